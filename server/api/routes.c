/*
 * routes.c - the one route table. tests/api/check_openapi.py holds it and openapi.yaml to each
 * other.
 */
#include "api/api.h"

#include <assert.h>
#include <string.h>

enum {
    KEYED, /* whoever asks must have a key, if the server wants one */
    OPEN
};

const struct api_route api_routes[] = {
    {"POST", "/attention", api_attention, KEYED},
    {"POST", "/self-attention", api_multihead, KEYED},
    {"POST", "/multi-head-attention", api_multihead, KEYED},
    {"POST", "/softmax", api_softmax, KEYED},
    {"POST", "/embeddings", api_embeddings, KEYED},
    {"GET", "/health/live", api_live, OPEN},
    {"GET", "/health/ready", api_ready, OPEN},
    {"GET", "/metrics", api_metrics, KEYED},
    {"GET", "/version", api_version, KEYED},
    {"GET", "/openapi.yaml", api_openapi, OPEN},
    {"GET", "/", api_explorer, OPEN},
    {"GET", "/docs", api_docs, OPEN},
    {"GET", "/assets/{name}", api_asset, OPEN},
};

static_assert(sizeof api_routes / sizeof *api_routes < METRICS_ROUTES, "one more is for no route");

const size_t api_route_count = sizeof api_routes / sizeof *api_routes;

static bool is_for(const struct api_route *route, const char *path) {
    const size_t fixed = strcspn(route->path, "{");
    return strncmp(route->path, path, fixed) == 0 &&
           (route->path[fixed] == '\0' ? path[fixed] == '\0'
                                       : path[fixed] != '\0' && strchr(path + fixed, '/') == NULL);
}

size_t api_route_of(const char *path) {
    size_t route = 0;
    while (route < api_route_count && !is_for(&api_routes[route], path)) {
        route++;
    }
    return route;
}
