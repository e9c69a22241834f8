/*
 * routes.c - the one route table. tests/api/check_openapi.py holds it and openapi.yaml to each
 * other.
 */
#include "api/api.h"

#include <assert.h>
#include <string.h>

const struct api_route api_routes[] = {
    {"POST", "/attention", api_attention},
    {"POST", "/self-attention", api_multihead},
    {"POST", "/multi-head-attention", api_multihead},
    {"POST", "/softmax", api_softmax},
    {"GET", "/health/live", api_live},
    {"GET", "/health/ready", api_ready},
    {"GET", "/metrics", api_metrics},
    {"GET", "/version", api_version},
    {"GET", "/openapi.yaml", api_openapi},
};

static_assert(sizeof api_routes / sizeof *api_routes < METRICS_ROUTES, "one more is for no route");

const size_t api_route_count = sizeof api_routes / sizeof *api_routes;

size_t api_route_of(const char *path) {
    size_t route = 0;
    while (route < api_route_count && strcmp(api_routes[route].path, path) != 0) {
        route++;
    }
    return route;
}
