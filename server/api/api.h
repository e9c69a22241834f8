/*
 * api.h - the application behind the HTTP server: which routes there are and what each answers.
 * Handlers turn a decoded request into a response; they know the codec and attention.h, never
 * libmicrohttpd or cJSON, so each can be called without a socket.
 */
#ifndef API_H
#define API_H

#include "codec/codec.h"
#include "http/http.h"

struct api_limits {
    size_t max_memory; /* bytes that one request may take: its matrices, its results, its answer */
    double max_work;   /* multiply-adds that one request may take */
    unsigned threads;  /* I/O threads, for /version */
};

/* The application for http_start. Borrows `limits`. */
struct http_app api_app(const struct api_limits *limits);

struct api_request {
    const struct http_request *http;
    const struct api_limits *limits;
    struct codec_document *body; /* NULL for a route that takes none */
};

/* Fills `response`: an answer or a problem. */
typedef void api_handler(const struct api_request *request, struct http_response *response);

/* One row of the one route table, in the order of openapi.yaml. */
struct api_route {
    const char *method, *path;
    api_handler *handler;
};

extern const struct api_route api_routes[];
extern const size_t api_route_count;

api_handler api_attention, api_multihead, api_softmax;
api_handler api_live, api_ready, api_version, api_openapi;

#endif
