/*
 * routes.c - the one table of routes. tests/api/check_openapi.py checks that it and openapi.yaml
 * have the same routes.
 */
#include "api/api.h"
#include "api/fields.h"

#include <assert.h>
#include <string.h>

const struct api_route api_routes[] = {
    {"POST", "/attention", FIELDS_AT_ATTENTION, api_attention, API_KEYED},
    {"POST", "/self-attention", FIELDS_AT_PROJECTIONS, api_multihead, API_KEYED},
    {"POST", "/multi-head-attention", FIELDS_AT_PROJECTIONS, api_multihead, API_KEYED},
    {"POST", "/softmax", FIELDS_AT_SOFTMAX, api_softmax, API_KEYED},
    {"POST", "/embeddings", FIELDS_AT_EMBEDDINGS, api_embeddings, API_KEYED},
    {"GET", "/layers", 0, api_layers, API_KEYED},
    {"GET", "/layers/{name}", 0, api_layer, API_KEYED},
    {"PUT", "/layers/{name}", API_FILE, api_write, API_WRITES},
    {"DELETE", "/layers/{name}", API_NO_BODY, api_write, API_WRITES},
    {"POST", "/layers/{name}/attention", FIELDS_AT_LAYER, api_layer_attention, API_KEYED},
    {"POST", "/v2/models/{model}/infer", 0, NULL, API_KEYED},
    {"GET", "/v2", 0, api_server, API_OPEN},
    {"GET", "/v2/health/live", 0, api_server_live, API_OPEN},
    {"GET", "/v2/health/ready", 0, api_server_ready, API_OPEN},
    {"GET", "/v2/models", 0, api_models, API_OPEN},
    {"GET", "/v2/models/stats", 0, api_model_stats, API_KEYED},
    {"GET", "/v2/models/{model}", 0, api_model, API_OPEN},
    {"GET", "/v2/models/{model}/ready", 0, api_model_ready, API_OPEN},
    {"GET", "/v2/models/{model}/config", 0, api_model_config, API_OPEN},
    {"GET", "/v2/models/{model}/stats", 0, api_model_stats, API_KEYED},
    {"POST", "/v2/repository/index", 0, api_repository, API_OPEN},
    {"POST", "/v2/repository/models/{model}/load", API_NO_BODY, api_load, API_KEYED},
    {"POST", "/v2/repository/models/{model}/unload", 0, api_unload, API_KEYED},
    {"GET", "/health/live", 0, api_live, API_OPEN},
    {"GET", "/health/ready", 0, api_ready, API_OPEN},
    {"GET", "/metrics", 0, api_metrics, API_KEYED},
    {"GET", "/version", 0, api_version, API_KEYED},
    {"GET", "/openapi.yaml", 0, api_openapi, API_OPEN},
    {"GET", "/", 0, api_explorer, API_OPEN},
    {"GET", "/docs", 0, api_docs, API_OPEN},
    {"GET", "/assets/{name}", 0, api_asset, API_OPEN},
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
