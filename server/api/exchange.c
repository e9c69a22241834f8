/*
 * exchange.c - one request from its headers to its answer: finds the route, refuses what no handler
 * should see, feeds the body to the codec as it arrives, then calls the handler.
 */
#include "api/api.h"
#include "api/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct exchange {
    const struct api_route *route;
    const struct api_limits *limits;
    struct codec_reader *reader;
    double decode_ms;
};

/* "GET, HEAD" or "POST": the Allow header of a path that has one method. */
static const char *allowed(const char *method) {
    return strcmp(method, "GET") == 0 ? "GET, HEAD" : method;
}

static const struct api_route *find_route(const struct http_request *request,
                                          struct http_response *response) {
    const struct api_route *same_path = NULL;
    for (size_t i = 0; i < api_route_count; i++) {
        const struct api_route *route = &api_routes[i];
        if (strcmp(route->path, request->path) == 0) {
            same_path = route;
            if (strcmp(route->method, request->method) == 0) {
                return route;
            }
        }
    }
    char detail[256];
    if (same_path == NULL) {
        snprintf(detail, sizeof detail,
                 "there is nothing at %.100s; /openapi.yaml lists every path", request->path);
        http_problem(response, request, 404, detail, NULL, -1);
    } else {
        snprintf(detail, sizeof detail, "%.20s is not a method of %s; use %s", request->method,
                 same_path->path, allowed(same_path->method));
        http_problem(response, request, 405, detail, NULL, -1);
        response->allow = allowed(same_path->method);
    }
    return NULL;
}

/* JSON, or no type at all, or the type that `curl -d` sends unless told otherwise. */
static bool is_json(const char *media_type) {
    return media_type[0] == '\0' || strcmp(media_type, "application/json") == 0 ||
           strcmp(media_type, "application/x-www-form-urlencoded") == 0;
}

static void *begin(void *context, const struct http_request *request,
                   struct http_response *response) {
    const struct api_limits *limits = context;
    const struct api_route *route = find_route(request, response);
    if (route == NULL) {
        return NULL;
    }
    if (strcmp(route->method, "GET") == 0) {
        const struct api_request call = {.http = request, .limits = limits};
        route->handler(&call, response);
        return NULL;
    }
    if (!is_json(request->media_type)) {
        char detail[256];
        snprintf(detail, sizeof detail, "the body is %.100s; it must be application/json",
                 request->media_type);
        http_problem(response, request, 415, detail, NULL, -1);
        return NULL;
    }
    const struct codec_limits bounds = {.max_tensors = limits->max_memory};
    struct exchange *exchange = calloc(1, sizeof *exchange);
    struct codec_reader *reader = codec_reader_create(&bounds);
    if (exchange == NULL || reader == NULL) {
        free(exchange);
        codec_reader_free(reader);
        reply_no_memory(request, response);
        return NULL;
    }
    *exchange = (struct exchange){.route = route, .limits = limits, .reader = reader};
    return exchange;
}

static bool body(void *arg, const void *bytes, size_t size) {
    struct exchange *exchange = arg;
    const double start = reply_clock_ms();
    const bool more = codec_reader_feed(exchange->reader, bytes, size) == CODEC_OK;
    exchange->decode_ms += reply_clock_ms() - start;
    return more;
}

static void end(void *arg, const struct http_request *request, struct http_response *response) {
    struct exchange *exchange = arg;
    struct codec_document *document = NULL;
    const double start = reply_clock_ms();
    const enum codec_status status = codec_reader_finish(exchange->reader, &document);
    exchange->decode_ms += reply_clock_ms() - start;
    if (status != CODEC_OK) {
        reply_codec_error(request, response, codec_reader_error(exchange->reader));
    } else {
        const struct api_request call = {request, exchange->limits, document};
        exchange->route->handler(&call, response);
        codec_document_free(document);
    }
    response->timed = true;
    response->timing[HTTP_TIMING_DECODE] = exchange->decode_ms;
}

static void release(void *arg) {
    struct exchange *exchange = arg;
    codec_reader_free(exchange->reader);
    free(exchange);
}

struct http_app api_app(const struct api_limits *limits) {
    return (struct http_app){
        .context = (void *)(uintptr_t)limits,
        .begin = begin,
        .body = body,
        .end = end,
        .release = release,
    };
}
