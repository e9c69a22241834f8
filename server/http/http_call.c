/*
 * http_call.c creates and frees a call, refuses it, tells the app how much memory its codings take,
 * and suspends and resumes its connection. It does not know at which step of a request this
 * happens.
 */
#include "http/cors.h"
#include "http/internal.h"
#include "http/keys.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    USUAL_PATH = 256 /* bytes; the memory of a call with a longer path is not kept */
};

static void release_exchange(struct http_call *call) {
    coding_reader_free(call->body.reader);
    call->body.reader = NULL;
    if (call->exchange != NULL) {
        call->server->app->release(call->exchange);
    }
    call->exchange = NULL;
}

static void release_response(struct http_response *response) {
    if (response->release != NULL) {
        response->release((void *)response->body);
    }
    *response = (struct http_response){0};
}

void http_call_refuse(struct http_call *call, int status, const char *format, ...) {
    char detail[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    release_exchange(call);
    release_response(&call->response);
    http_problem(&call->response, &call->request, status, detail, NULL, NULL);
    call->answered = true;
}

void http_call_refuse_size(struct http_call *call, const char *format, ...) {
    char what[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const struct http_app *app = call->server->app;
    const char *shorter = app->shorter != NULL ? app->shorter(&call->request) : "";
    http_call_refuse(
        call, 413,
        "the body has %s; this server takes at most %zu, a limit that its operator sets with "
        "--max-body%s",
        what, call->server->options.max_body, shorter);
    call->response.refused = "over --max-body";
}

/* The path of a target in absolute form (RFC 9112 section 3.2.2), else the target itself. */
static const char *path_of(const char *url) {
    size_t scheme = strncasecmp(url, "http://", 7) == 0    ? 7
                    : strncasecmp(url, "https://", 8) == 0 ? 8
                                                           : 0;
    if (scheme == 0) {
        return url;
    }
    const char *path = strchr(url + scheme, '/');
    return path != NULL ? path : "/";
}

/* Returns whether the path is `top` or below it. `top` may be NULL. */
static bool is_below(const char *path, const char *top) {
    const size_t size = top != NULL ? strlen(top) : 0;
    return size > 0 && strncmp(path, top, size) == 0 && (path[size] == '\0' || path[size] == '/');
}

/* Returns a call that is all zeros and has room for a path. The requests of a connection follow one
 * another, so each takes the memory of the one before it. */
static struct http_call *new_call(struct http_connection *connection, size_t path_size) {
    struct http_call *call = connection->idle;
    const size_t room = path_size > USUAL_PATH ? path_size : USUAL_PATH;
    if (call == NULL || path_size > USUAL_PATH) {
        call = malloc(sizeof *call + room);
    } else {
        connection->idle = NULL;
    }
    if (call != NULL) {
        memset(call, 0, sizeof *call);
        call->path_room = room;
    }
    return call;
}

struct http_call *http_call_create(struct http_connection *connection, const char *url,
                                   const char *method, const struct framing_result *framing) {
    struct http_server *server = connection->server;
    const char *path = path_of(url);
    size_t path_size = strlen(path) + 1;
    struct http_call *call = new_call(connection, path_size);
    if (call == NULL) {
        return NULL;
    }
    call->server = server;
    call->connection = connection;
    call->begun_ns = clock_ns();
    call->request.server = server;
    call->request.draining = atomic_load(&server->stage) != HTTP_SERVING;
    memcpy(call->path, path, path_size);
    call->request.route = server->app->find != NULL ? server->app->find(call->path) : NULL;
    call->request.head = strcmp(method, "HEAD") == 0;
    strncpy(call->method, call->request.head ? "GET" : method, sizeof call->method - 1);
    framing_media_type(framing->content_type, call->media_type, sizeof call->media_type);
    /* libmicrohttpd ends values with a NUL and keeps them until the end of the request. */
    call->request.accept = framing->accept != NULL ? framing->accept->value : "";
    call->request.inference_header =
        framing->inference_header != NULL ? framing->inference_header->value : NULL;
    call->request.inference = is_below(call->path, server->app->inference_path);
    call->request.authorized =
        server->keys == NULL ||
        (framing->authorization != NULL && keys_match(server->keys, framing->authorization->value,
                                                      framing->authorization->value_size));
    call->request.no_bearer =
        framing->authorization != NULL &&
        !keys_is_bearer(framing->authorization->value, framing->authorization->value_size);
    if (framing->origin != NULL && framing->origin->value_size < sizeof call->origin &&
        cors_allows(server->options.cors_origins, framing->origin->value,
                    framing->origin->value_size)) {
        memcpy(call->origin, framing->origin->value, framing->origin->value_size);
    }
    if (framing_is_id(framing->request_id)) {
        memcpy(call->id, framing->request_id->value, framing->request_id->value_size);
    } else {
        request_ids_next(&server->ids, call->id);
    }
    call->request.method = call->method;
    call->request.path = call->path;
    call->request.media_type = call->media_type;
    call->request.id = call->id;
    atomic_fetch_add(&server->requests, 1);
    atomic_fetch_add_explicit(&server->begun, 1, memory_order_relaxed);
    return call;
}

void http_call_free(struct http_call *call) {
    release_exchange(call);
    release_response(&call->response);
    free(call->stream);
    atomic_fetch_sub(&call->server->requests, 1);
    if (call->connection->idle == NULL && call->path_room == USUAL_PATH) {
        call->connection->idle = call;
    } else {
        free(call);
    }
}

bool http_call_hold(struct http_call *call, size_t bytes) {
    const struct http_app *app = call->server->app;
    return app->hold == NULL || app->hold(call->exchange, bytes);
}

void http_call_suspend(struct http_call *call) {
    call->connection->call = call;
    atomic_fetch_add(&call->server->pending, 1);
    MHD_suspend_connection(call->connection->mhd);
}

void http_resume(struct http_pending *pending) {
    struct http_call *call = (struct http_call *)pending;
    struct http_server *server = call->server;
    if (call->stream == NULL) {
        watch_awake(server->watch, &call->connection->watched);
        call->answered = true;
    } else {
        watch_resume(&call->connection->watched);
    }
    MHD_resume_connection(call->connection->mhd);
    atomic_fetch_sub(&server->pending, 1); /* the call may have been freed by now */
}
