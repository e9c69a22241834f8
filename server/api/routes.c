/*
 * routes.c - the one table of routes, and the search for the row of a request.
 * tests/api/check_openapi.py checks that the table and openapi.yaml have the same routes.
 *
 * To add an endpoint: write a handler api_NAME in a file of server/api/ and declare it in api.h. If
 * it calls the library, begin with a copy of softmax.c; its matrices are of the group
 * FIELDS_INPUTS. Otherwise begin with embeddings.c; its own keys are FIELDS_UNGROUPED. The handler
 * gets a request whose keys are checked and whose draws and words are tensors. It asks for the
 * memory and the cost of its work by api_admit(), and a task costs at most about 13 ms. Add a row
 * to the table (a path may end in {name}) with the bit FIELDS_AT_* of its keys, or 0 if it takes no
 * body. A new bit goes into fields.h, into the rows of its keys in fields.c, and into
 * fields_example(). A key that only other endpoints have is refused with the name of one of them,
 * or with the hint of its row.
 *
 * Add a path to openapi.yaml in the same order as its row (copy a neighbour; then make docs), its
 * types to tests/openapi/exact.yaml, and how a valid body is made to hooks.py there. If it takes
 * tensors, MATRICES of hooks.py names those that it needs. check_openapi.py wants every status that
 * openapi.yaml names: a 200 in tests/data/answers.txt or a test of its own, a 400 and 422 in
 * tests/data/refusals.txt, and a 404, 413, 415 and 501 in tests/data/exchanges.txt. drawn_paths of
 * tests/support/drawn.c and fuzz_request.c, fuzz_inference.c and fuzz_safetensors.c in tests/fuzz
 * have lists of endpoints, too.
 */
#include "api/api.h"
#include "api/call/fields.h"
#include "codec/nearest.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const struct api_route api_routes[] = {
    {"POST", "/attention", FIELDS_AT_ATTENTION, api_attention, API_KEYED},
    {"POST", "/self-attention", FIELDS_AT_PROJECTIONS, api_multihead, API_KEYED},
    {"POST", "/multi-head-attention", FIELDS_AT_PROJECTIONS, api_multihead, API_KEYED},
    {"POST", "/linear-attention", FIELDS_AT_LINEAR, api_linear_attention, API_KEYED},
    {"POST", "/softmax", FIELDS_AT_SOFTMAX, api_softmax, API_KEYED},
    {"POST", "/embeddings", FIELDS_AT_EMBEDDINGS, api_embeddings, API_KEYED},
    {"GET", "/layers", API_NO_BODY, api_layers, API_KEYED},
    {"GET", "/layers/{name}", 0, api_layer, API_KEYED},
    {"POST", "/layers/{name}/attention", FIELDS_AT_LAYER, api_layer_attention, API_KEYED},
    {"POST", "/v2/models/{model}/infer", 0, NULL, API_KEYED},
    {"GET", "/v2", 0, api_server, API_OPEN},
    {"GET", "/v2/health/live", 0, api_server_live, API_OPEN},
    {"GET", "/v2/health/ready", 0, api_server_ready, API_OPEN},
    {"GET", "/v2/models", API_NO_BODY, api_models, API_OPEN},
    {"GET", "/v2/models/stats", 0, api_model_stats, API_KEYED},
    {"GET", "/v2/models/{model}", 0, api_model, API_OPEN},
    {"GET", "/v2/models/{model}/ready", 0, api_model_ready, API_OPEN},
    {"GET", "/v2/models/{model}/config", 0, api_model_config, API_OPEN},
    {"GET", "/v2/models/{model}/stats", 0, api_model_stats, API_KEYED},
    {"POST", "/v2/repository/index", API_NO_BODY, api_repository, API_OPEN},
    {"POST", "/v2/repository/models/{model}/load", API_NO_BODY, api_load, API_KEYED},
    {"POST", "/v2/repository/models/{model}/unload", 0, api_unload, API_KEYED},
    {"GET", "/health/live", 0, api_live, API_OPEN},
    {"GET", "/health/ready", 0, api_ready, API_OPEN},
    {"GET", "/metrics", 0, api_metrics, API_KEYED},
    {"GET", "/version", 0, api_version, API_KEYED},
    {"GET", "/openapi.yaml", 0, api_openapi, API_OPEN},
    {"GET", "/openapi.json", 0, api_openapi_json, API_OPEN},
    {"GET", "/llms.txt", 0, api_llms, API_OPEN},
    {"GET", "/", 0, api_explorer, API_OPEN},
    {"GET", "/docs", 0, api_docs, API_OPEN},
    {"GET", "/assets/{name}", 0, api_asset, API_OPEN},
    {0},
};

static_assert(sizeof api_routes / sizeof *api_routes <= METRICS_ROUTES,
              "the counters need one row for requests without a route");

const size_t api_route_count = sizeof api_routes / sizeof *api_routes - 1;

/* Returns whether a path has the segments of a route. "{name}" stands for any one segment, and
 * "{model}" also for a segment with the one version of a model after it. */
static bool matches(const char *route, const char *path) {
    static const char model[] = "{model}", version[] = "/versions/" API_MODEL_VERSION;
    if (path[0] != '/' || path[1] != route[1]) { /* no {name} is the first segment */
        return false;
    }
    while (*route != '\0' && *path != '\0') {
        if (*route == '{') {
            const size_t size = strcspn(path, "/"), more = sizeof version - 1;
            const bool versions = strncmp(route, model, sizeof model - 1) == 0;
            if (size == 0) {
                return false;
            }
            route += strcspn(route, "}") + 1;
            path += size;
            if (versions && strncmp(path, version, more) == 0 &&
                (path[more] == '\0' || path[more] == '/')) {
                path += more;
            }
        } else if (*route++ != *path++) {
            return false;
        }
    }
    return *route == *path;
}

const void *api_route_of(const char *path) {
    path = strcmp(path, "/docs/") == 0 ? "/docs" : path; /* the handler knows the difference */
    for (size_t i = 0; i < api_route_count; i++) {
        if (matches(api_routes[i].path, path)) {
            return &api_routes[i];
        }
    }
    return NULL;
}

/* -------------------------------------------------------------------------- paths without a row */

enum {
    SEGMENT = 40,  /* bytes of a segment that is compared */
    SEGMENTS = 8,  /* segments of a path that is compared */
    ONE_MORE = 3,  /* edits that a segment costs which only one of two paths has */
    MOST_EDITS = 6 /* edits between a path and the row that it may stand for */
};

struct segments {
    char list[SEGMENTS][SEGMENT];
    size_t count;
};

/* Cuts a path at its slashes, of which several are like one. Returns false if it is too long. */
static bool cut(const char *path, struct segments *out) {
    out->count = 0;
    for (path += strspn(path, "/"); *path != '\0'; path += strspn(path, "/")) {
        const size_t size = strcspn(path, "/");
        if (out->count == SEGMENTS || size >= SEGMENT) {
            return false;
        }
        memcpy(out->list[out->count], path, size);
        out->list[out->count++][size] = '\0';
        path += size;
    }
    return true;
}

/* Returns the edits that make a segment of a path the one of a row, or more than MOST_EDITS. */
static size_t segment_edits(const char *segment, const char *row) {
    const size_t size = strlen(segment);
    size_t edits;
    if (row[0] == '{') {
        return 0;
    }
    if (codec_nearest(segment, &row, 1, &edits) != NULL) {
        return edits;
    }
    return size > 3 && strncmp(segment, row, size) == 0 ? 2 : MOST_EDITS + 1;
}

/* The way from a path to a row, or from the first segments of one to those of the other. */
struct way {
    size_t edits;
    size_t common; /* segments that both have, other than names */
};

static bool is_shorter(struct way a, struct way b) {
    return a.edits < b.edits || (a.edits == b.edits && a.common > b.common);
}

/* Finds the shortest way, by the edit distance of lists of segments. */
static struct way find_way(const struct segments *path, const struct segments *row) {
    struct way ways[SEGMENTS + 1][SEGMENTS + 1];
    for (size_t i = 0; i <= path->count; i++) {
        for (size_t k = 0; k <= row->count; k++) {
            ways[i][k] = (struct way){.edits = ONE_MORE * (i + k)};
            if (i == 0 || k == 0) {
                continue;
            }
            const struct way *before = &ways[i - 1][k - 1];
            const struct way *less =
                is_shorter(ways[i - 1][k], ways[i][k - 1]) ? &ways[i - 1][k] : &ways[i][k - 1];
            const struct way one_more = {less->edits + ONE_MORE, less->common};
            ways[i][k] =
                (struct way){before->edits + segment_edits(path->list[i - 1], row->list[k - 1]),
                             before->common + (row->list[k - 1][0] != '{')};
            ways[i][k] = is_shorter(one_more, ways[i][k]) ? one_more : ways[i][k];
        }
    }
    return ways[path->count][row->count];
}

/* Returns the path of the row that an unknown path probably stands for, or NULL. */
static const char *nearest_path(const char *path) {
    struct segments own, row;
    struct way shortest = {.edits = MOST_EDITS + 1};
    const char *nearest = NULL;
    const bool comparable = cut(path, &own);
    for (size_t i = 0; comparable && i < api_route_count; i++) {
        cut(api_routes[i].path, &row); /* a row is short */
        const struct way way = find_way(&own, &row);
        if (way.common > 0 && way.edits <= MOST_EDITS && is_shorter(way, shortest)) {
            shortest = way;
            nearest = api_routes[i].path;
        }
    }
    return nearest;
}

/* Answers that there is nothing at the path of a request. */
static void refuse_path(const struct http_request *request, struct http_response *response) {
    const char *nearest = nearest_path(request->path);
    char detail[256];
    snprintf(detail, sizeof detail, "there is nothing at %.100s; %s%s%s/docs shows every path",
             request->path, nearest != NULL ? "did you mean " : "", nearest != NULL ? nearest : "",
             nearest != NULL ? "? " : "");
    http_problem(response, request, 404, detail, NULL, NULL);
}

/* ----------------------------------------------------------------------------------- the check */

bool api_check_route(const struct http_request *request, struct http_response *response) {
    const struct api_route *route = request->route;
    char detail[256];
    if (!request->authorized && (route == NULL || route->access != API_OPEN)) {
        http_problem(response, request, 401,
                     request->no_bearer ? "the Authorization header must be \"Bearer KEY\", with "
                                          "one of the keys of this server"
                                        : "this server needs a key: send \"Authorization: Bearer "
                                          "KEY\" with one of its keys",
                     NULL, NULL);
        response->refused = "without a valid key";
        return false;
    }
    if (route == NULL) {
        refuse_path(request, response);
        return false;
    }
    if (strcmp(route->method, request->method) != 0) {
        response->allow = strcmp(route->method, "GET") == 0 ? "GET, HEAD" : route->method;
        snprintf(detail, sizeof detail, "%.20s is not a method of %s; use %s", request->method,
                 route->path, response->allow);
        http_problem(response, request, 405, detail, NULL, NULL);
        return false;
    }
    return true;
}
