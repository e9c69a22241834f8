/*
 * requests.h - the requests whose allocations fail in turn.
 */
#ifndef MEMORY_REQUESTS_H
#define MEMORY_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>

#define REQUEST_KEY "Authorization: Bearer one-key-for-this-test\r\n"

struct request {
    const char *name, *method, *path;
    int status;       /* the status of the answer if there is memory enough */
    bool varies;      /* the answer varies with the time, so only its status is compared */
    bool only_server; /* the server answers without the app, so the app is not asked */
    char *body;
    size_t size;            /* bytes of the body */
    const char *headers;    /* headers beside Host, Origin and Content-Length; NULL = REQUEST_KEY */
    const char *media_type; /* the type of the body; NULL = application/json */
    const char *accept;     /* the Accept header; NULL = none */
    size_t header;          /* the Inference-Header-Content-Length header; 0 = none */
};

/* Returns whether this request is of the Open Inference Protocol, whose errors are {"error":
 * "text"}. */
bool request_is_inference(const struct request *request);

/* Calls `visit` with each request, whose body is freed after the call. */
void requests_visit(void (*visit)(const struct request *request));

/* Returns the request of a notebook. The caller frees its body, which is NULL if there is no
 * notebook. */
struct request request_of_notebook(void);

/* Returns whether the request is also asked with a compressed body. */
bool request_has_codings(const struct request *request);

#endif
