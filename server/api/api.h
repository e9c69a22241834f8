/*
 * api.h - the types that the files of this folder share: the state of the service, the work that a
 * handler leaves, and the table of routes. request.h has the context of a request.
 *
 * A handler turns a request whose body is read and checked into a response or into work. It knows
 * the codec, attention.h and http.h, but neither libmicrohttpd nor cJSON, so a test can call it
 * without a socket.
 */
#ifndef API_H
#define API_H

#include "account.h"
#include "api/metrics.h"
#include "codec/binary.h"
#include "http/http.h"
#include "jobs/jobs.h"

struct api_request;
struct layers;

enum {
    API_ANCESTORS = 4096, /* bytes of a list of frame_ancestors, at most */
    API_INFINITY_KEYS = 4 /* keys whose matrices may hold -Infinity, and a NULL */
};

/* The settings and the counters that all requests share. */
struct api_state {
    /* The owner sets these members before api_app(), and leaves the rest zero. */
    struct budget budget;  /* the memory of all requests */
    double max_work;       /* multiply-adds that one request may take */
    double timeout;        /* seconds that a computation may take, with the time that it waits */
    unsigned threads;      /* the number of threads that compute */
    double cores;          /* that the process may use; see process.h */
    double memory_limit;   /* bytes that the process may use; 0: there is no limit */
    struct jobs *jobs;     /* borrowed; NULL: the I/O threads compute everything themselves */
    struct layers *layers; /* borrowed; NULL: there are no stored layers */
    /* The origins whose pages may show ours in a frame, with commas between; borrowed; NULL: none.
     * The owner has checked that nothing else is in this list. */
    const char *frame_ancestors;

    /* api_app() sets these. */
    const struct api_route *routes; /* api_routes, for handlers that list the endpoints */
    struct codec_options codec;     /* how bodies are read */
    const char *infinity_keys[API_INFINITY_KEYS]; /* of `codec` */
    char policy[API_ANCESTORS + 256];             /* of the files for browsers */
    struct metrics metrics;
};

/* Returns the application for http_start(). It borrows `state`, which must outlive the server. */
struct http_app api_app(struct api_state *state);

/* The format of a body or of an answer. */
enum api_format {
    API_JSON,
    API_SAFETENSORS,
    API_INFERENCE /* the Open Inference Protocol */
};

/* A computation that a handler leaves: a job, and the functions that answer and free it. */
struct api_work {
    struct job job; /* request.c sets `done`, `owner` and `deadline` */
    double seconds; /* the "timeout" of the request; 0 = the request has none */
    int digits;     /* the "digits" of the request; 0 = each number has its shortest form */
    /* If the job is done, the work that follows it, which takes its place; NULL after filling the
     * response. A member of NULL: nothing follows. */
    struct api_work *(*next)(struct api_work *work, struct api_request *request);
    /* Called after the job is done or one of its tasks has failed. Returns true after filling the
     * list with the items of the answer, which gets the format that the request wants, and false
     * after filling the response. */
    bool (*answer)(struct api_work *work, struct api_request *request, struct codec_items *list);
    /* Frees what the account does not own. NULL: the account owns all, as it owns the work. */
    void (*release)(struct api_work *work);
};

/* Fills request->response and returns NULL, or returns the work that must be computed first. The
 * work may borrow from the request. */
typedef struct api_work *api_handler(struct api_request *request);

/* Who may send the requests of a route. */
enum api_access {
    API_KEYED, /* a client with a key, if the server wants keys */
    API_OPEN   /* any client: the answer tells no secret, and nothing is computed */
};

/* One row of the table of routes: a path and its method. "{name}" in a path matches any one
 * segment. The rows are in the order of openapi.yaml. */
struct api_route {
    const char *method, *path;
    /* A bit FIELDS_AT_*: the fields of the body; or API_NO_BODY. 0: the body, if there is one, is
     * not read, and the handler leaves no work. */
    unsigned fields;
    /* NULL: the route takes a request in the Open Inference Protocol for the model in the path, and
     * has the fields and the handler of this model. */
    api_handler *handler;
    enum api_access access;
};

enum {
    API_NO_BODY = 1 << 29 /* the body is not read, but the handler may leave work */
};

#define API_MODEL_VERSION "1" /* the one version of each model */

/* Behind the last row is one whose path is NULL. */
extern const struct api_route api_routes[];
extern const size_t api_route_count;

/* Returns the struct api_route for this path, or NULL if there is none. */
const void *api_route_of(const char *path);

/* Checks that a request has a row for its path, and its method. Returns false after filling the
 * response with a 401, 404 or 405 if the client has no key, or if there is no row. */
bool api_check_route(const struct http_request *request, struct http_response *response);

/* Writes the Content-Security-Policy of the files for browsers to state->policy. */
void assets_set_policy(struct api_state *state);

/* Holds work against the limits of one request: its multiply-adds, those of the draws included, and
 * `bytes` that the caller is about to allocate, which are charged to its account. Returns false
 * after filling the response with a 413 or a 503. A 413 for too many bytes ends with `hint`. */
bool api_admit(struct api_request *request, struct api_work *work, size_t bytes, const char *hint);

api_handler api_attention, api_linear_attention, api_multihead, api_softmax, api_embeddings;
api_handler api_explorer, api_docs, api_asset;             /* assets.c */
api_handler api_openapi, api_openapi_json, api_llms;       /* assets.c */
api_handler api_layers, api_layer, api_layer_attention;    /* layers.c */
api_handler api_live, api_ready, api_version;              /* health.c */
api_handler api_server, api_server_live, api_server_ready; /* models.c */
api_handler api_models, api_model, api_model_ready, api_model_config, api_model_stats;
api_handler api_repository, api_load, api_unload; /* repository.c */
api_handler api_metrics;                          /* metrics_text.c */

#endif
