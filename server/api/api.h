/*
 * api.h - the application behind the HTTP server: which routes there are and what each answers.
 * Handlers turn a decoded request into a response; they know the codec and attention.h, never
 * libmicrohttpd or cJSON, so each can be called without a socket.
 */
#ifndef API_H
#define API_H

#include "account.h"
#include "api/derived.h"
#include "api/metrics.h"
#include "codec/codec.h"
#include "http/http.h"
#include "jobs/jobs.h"

/* The settings and counters that all requests share. The owner fills the first part. */
struct api_state {
    struct budget budget; /* the memory of all requests */
    double max_work;      /* multiply-adds that one request may take */
    double timeout;       /* seconds that a computation may take, its waiting included */
    unsigned threads;     /* that compute */
    struct jobs *jobs;    /* borrowed. NULL: everything is computed at once, by the I/O threads */

    struct metrics metrics;
};

/* The application for http_start. Borrows `state`. */
struct http_app api_app(struct api_state *state);

struct api_request {
    const struct http_request *http;
    struct api_state *state;
    const char *name; /* the last segment of the path: what stands for {name} in the route */
    /* NULL for a route that takes no body. */
    struct account *account; /* of the memory that the request holds */
    struct codec_document *body;
    struct prepare *prepare; /* what the handler leaves to be made of the body */
};

/* A computation that a handler leaves to be run: a job, and what becomes of it. */
struct api_work {
    struct job job; /* `done` and `owner` are not the handler's */
    double seconds; /* that the request allows for it; 0 = it does not say */
    size_t memory;  /* bytes that api_claim() took; they are given back after `release` */
    /* The job is done, or a task of it has failed: fills the response. */
    void (*answer)(struct api_work *work, const struct api_request *request,
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

/* Holds work against the limits of one request: its multiply-adds, those of the draws included, and
 * `bytes` that it is about to allocate, which become work->memory. False after filling
 * `response`. */
bool api_claim(const struct api_request *request, struct api_work *work, double bytes,
               struct http_response *response);

/* The index of the row for this path; api_route_count if there is none. */
size_t api_route_of(const char *path);

api_handler api_attention, api_multihead, api_softmax, api_embeddings;
api_handler api_explorer, api_docs, api_asset, api_openapi; /* assets.c */
api_handler api_live, api_ready, api_metrics, api_version;

#endif
