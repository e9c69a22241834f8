/*
 * routes.c - the one table of routes. tests/api/check_openapi.py checks that it and openapi.yaml
 * have the same routes.
 */
#include "api/api.h"
#include "api/fields.h"

#include <assert.h>
#include <string.h>

enum {
    KEYED, /* the client must have a key, if the server wants keys */
    OPEN   /* no client needs a key */
};

const struct api_route api_routes[] = {
    {"POST", "/attention", FIELDS_AT_ATTENTION, api_attention, KEYED},
    {"POST", "/self-attention", FIELDS_AT_PROJECTIONS, api_multihead, KEYED},
    {"POST", "/multi-head-attention", FIELDS_AT_PROJECTIONS, api_multihead, KEYED},
    {"POST", "/softmax", FIELDS_AT_SOFTMAX, api_softmax, KEYED},
    {"POST", "/embeddings", FIELDS_AT_EMBEDDINGS, api_embeddings, KEYED},
    {"POST", "/v2/models/{model}/infer", 0, NULL, KEYED},
    {"GET", "/v2", 0, api_server, OPEN},
    {"GET", "/v2/health/live", 0, api_server_live, OPEN},
    {"GET", "/v2/health/ready", 0, api_server_ready, OPEN},
    {"GET", "/v2/models", 0, api_models, OPEN},
    {"GET", "/v2/models/stats", 0, api_model_stats, KEYED},
    {"GET", "/v2/models/{model}", 0, api_model, OPEN},
    {"GET", "/v2/models/{model}/ready", 0, api_model_ready, OPEN},
    {"GET", "/v2/models/{model}/config", 0, api_model_config, OPEN},
    {"GET", "/v2/models/{model}/stats", 0, api_model_stats, KEYED},
    {"POST", "/v2/repository/index", 0, api_repository, OPEN},
    {"POST", "/v2/repository/models/{model}/load", 0, api_load, KEYED},
    {"POST", "/v2/repository/models/{model}/unload", 0, api_load, KEYED},
    {"GET", "/health/live", 0, api_live, OPEN},
    {"GET", "/health/ready", 0, api_ready, OPEN},
    {"GET", "/metrics", 0, api_metrics, KEYED},
    {"GET", "/version", 0, api_version, KEYED},
    {"GET", "/openapi.yaml", 0, api_openapi, OPEN},
    {"GET", "/", 0, api_explorer, OPEN},
    {"GET", "/docs", 0, api_docs, OPEN},
    {"GET", "/assets/{name}", 0, api_asset, OPEN},
};

static_assert(sizeof api_routes / sizeof *api_routes < METRICS_ROUTES,
              "the counters need one more row for requests without a route");

const size_t api_route_count = sizeof api_routes / sizeof *api_routes;

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

size_t api_route_of(const char *path) {
    size_t route = 0;
    while (route < api_route_count && !matches(api_routes[route].path, path)) {
        route++;
    }
    return route;
}
