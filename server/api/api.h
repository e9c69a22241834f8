/*
 * api.h - the application behind the HTTP server: which routes there are and what each answers.
 * Handlers turn a decoded request into a response; they know the codec and attention.h, never
 * libmicrohttpd or cJSON, so each can be called without a socket.
 */
#ifndef API_H
#define API_H

#include "api/metrics.h"
#include "api/prepare.h"
#include "codec/codec.h"
#include "http/http.h"
#include "jobs/jobs.h"

/* What all requests share. The first part is filled by the owner. */
struct api_service {
    size_t max_memory; /* bytes that one request may take: its matrices, its results, its answer */
    double max_work;   /* multiply-adds that one request may take */
    size_t max_total;  /* bytes that all requests together may take */
    double timeout;    /* seconds that a computation may take, its waiting included */
    unsigned threads;  /* that compute, for /version */
    struct jobs *jobs; /* borrowed. NULL: everything is computed at once, by the I/O threads */

    atomic_size_t memory; /* that requests take just now */
    struct metrics metrics;
};

/* Bytes that one request may take at most. */
static inline size_t api_most_memory(const struct api_service *service) {
    return service->max_memory < service->max_total ? service->max_memory : service->max_total;
}

/* The application for http_start. Borrows `service`. */
struct http_app api_app(struct api_service *service);

struct api_request {
    const struct http_request *http;
    const struct api_service *service;
    const char *name; /* the last segment of the path: what stands for {name} in the route */
    struct codec_document *body; /* NULL for a route that takes none, as is the next */
    struct prepare *prepare;     /* what the handler leaves to be made of it */
};

/* A computation that a handler leaves to be run: a job, and what becomes of it. */
struct api_work {
    struct job job; /* `done` and `owner` are not the handler's */
    double seconds; /* that the request allows for it; 0 = it does not say */
    size_t memory;  /* bytes of results and of their text, beside the body's matrices */
    /* The job is done, or a task of it has failed: fills the response. */
    void (*answer)(struct api_work *work, const struct http_request *request,
                   struct http_response *response);
    void (*release)(struct api_work *work);
};

/* Fills `response` and returns NULL, or returns what is to be computed first. What that refers to
 * in the request lives as long as it. */
typedef struct api_work *api_handler(const struct api_request *request,
                                     struct http_response *response);

/* One row of the one route table, in the order of openapi.yaml: a path and its one method. A path
 * that ends in "{name}" stands for all those with one segment in its place. */
struct api_route {
    const char *method, *path;
    api_handler *handler;
    bool open; /* needs no key: it tells nothing that is secret, and computes nothing */
};

extern const struct api_route api_routes[];
extern const size_t api_route_count;

/* The index of the row for this path; api_route_count if there is none. */
size_t api_route_of(const char *path);

api_handler api_attention, api_multihead, api_softmax, api_embeddings;
api_handler api_explorer, api_docs, api_asset, api_openapi; /* assets.c */
api_handler api_live, api_ready, api_metrics, api_version;

#endif
