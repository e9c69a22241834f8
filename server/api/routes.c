/*
 * routes.c - the one route table. tests/api/check_openapi.py holds it and openapi.yaml to each
 * other.
 */
#include <assert.h>

#include "api/api.h"

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
