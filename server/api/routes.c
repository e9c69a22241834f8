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

static bool matches(const struct api_route *route, const char *path) {
    if (path[0] != '/' || path[1] != route->path[1]) { /* no {name} is the first segment */
        return false;
    }
    const size_t fixed = strcspn(route->path, "{");
    return strncmp(route->path, path, fixed) == 0 &&
           (route->path[fixed] == '\0' ? path[fixed] == '\0'
                                       : path[fixed] != '\0' && strchr(path + fixed, '/') == NULL);
}

size_t api_route_of(const char *path) {
    size_t route = 0;
    while (route < api_route_count && !matches(&api_routes[route], path)) {
        route++;
    }
    return route;
}
