/*
 * handler.c - the life of a request: filter the head, let the app begin, hand it the body within the
 * limits, wait while the answer is computed elsewhere, release everything once. Knows nothing of
 * paths or of what bodies mean.
 *
 * libmicrohttpd's rule that shapes this file (0.9.75, Debian 12; 1.0.1, Debian 13): a response
 * queued in the first call of the handler closes the connection, and none can be queued between
 * two pieces of a body. So a refusal that should keep the connection waits for the last call, and a
 * body that grows without end can only be cut off.
 */
#include "http/asset.h"
#include "http/cors.h"
#include "http/internal.h"
#include "http/keys.h"
#include "http/log.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    MAX_PIECES = 65536,          /* a body in more pieces than that ... */
    MIN_PIECE = 64,              /* ... has at least so many bytes in each, on average; */
    END_PIECES = 4 * MAX_PIECES, /* read so far only to refuse it with a word */
    INFLATED = 32 * 1024,        /* of a compressed body, until other connections have a turn */
    SLICE = 4 * 1024             /* of a plain body, between two looks at the clock */
};

/* Milliseconds that the app may take for the body of one connection, until others have a turn: a
 * hundred bodies of thousands of tiny arrays would keep them waiting otherwise. A turn has its
 * price, since libmicrohttpd suspends the connection for it: bodies of numbers need none. */
static const double TURN_MS = 0.2;

static void drop_reader(struct http_call *call) {
    coding_reader_free(call->reader);
    call->reader = NULL;
}

void call_release_exchange(struct http_call *call) {
    drop_reader(call);
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

/* Answers for the app: whatever it has is released. */
__attribute__((format(printf, 3, 4))) static void refuse(struct http_call *call, int status,
                                                         const char *format, ...) {
    char detail[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    call_release_exchange(call);
    release_response(&call->response);
    http_problem(&call->response, &call->request, status, detail, NULL, NULL);
    call->answered = true;
}

/* Refuses a body that is over --max-body. The format says how large it is. */
__attribute__((format(printf, 2, 3))) static void refuse_size(struct http_call *call,
                                                              const char *format, ...) {
    char what[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    refuse(call, 413,
           "the body has %s; this server takes at most %zu, a limit that its operator sets with "
           "--max-body",
           what, call->server->max_body);
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

/* `method` is one that the filter admitted, unless the request is refused. */
static struct http_call *call_new(struct http_server *server, struct connection *connection,
                                  const char *url, const char *method,
                                  const struct framing_result *framing) {
    const char *path = path_of(url);
    size_t path_size = strlen(path) + 1;
    struct http_call *call = calloc(1, sizeof *call + path_size);
    if (call == NULL) {
        return NULL;
    }
    call->server = server;
    call->connection = connection;
    call->begun = clock_ns();
    call->request.server = server;
    call->request.draining = atomic_load(&server->stage) != CALL_SERVING;
    memcpy(call->path, path, path_size);
    call->request.head = strcmp(method, "HEAD") == 0;
    strncpy(call->method, call->request.head ? "GET" : method, sizeof call->method - 1);
    framing_media_type(framing->content_type, call->media_type, sizeof call->media_type);
    call->request.authorized =
        server->keys == NULL ||
        (framing->authorization != NULL && keys_match(server->keys, framing->authorization->value,
                                                      framing->authorization->value_size));
    call->request.no_bearer =
        framing->authorization != NULL &&
        !keys_is_bearer(framing->authorization->value, framing->authorization->value_size);
    if (framing->origin != NULL && framing->origin->value_size < sizeof call->origin &&
        cors_allows(server->cors_origins, framing->origin->value, framing->origin->value_size)) {
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

/* The client's address as text, without its port. */
static void name_client(struct MHD_Connection *connection, char text[static INET6_ADDRSTRLEN]) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info != NULL ? info->client_addr : NULL;
    snprintf(text, INET6_ADDRSTRLEN, "-");
    if (address != NULL && address->sa_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, text,
                  INET6_ADDRSTRLEN);
    } else if (address != NULL && address->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, text,
                  INET6_ADDRSTRLEN);
    }
}

static void tell_completed(const struct http_call *call, struct MHD_Connection *connection) {
    const struct http_app *app = call->server->app;
    const struct http_record record = {
        .status = call->status,
        .received = call->received,
        .sent = call->sent,
        .seconds = clock_ms_since(call->begun) * 1e-3,
        .timing = call->response.timed ? call->response.timing : NULL,
    };
    if (app->completed != NULL) {
        app->completed(app->context, &call->request, &record);
    }
    if (call->response.refused != NULL && call->status != 0) {
        http_log_refused(call->response.refused);
    }
    if (http_log_wants_requests()) {
        char client[INET6_ADDRSTRLEN];
        name_client(connection, client);
        http_log_request(&call->request, &record, client);
    }
}

static void call_free(struct http_call *call) {
    call_release_exchange(call);
    release_response(&call->response);
    atomic_fetch_sub(&call->server->requests, 1);
    free(call);
}

/* ------------------------------------------------------------------------ calls of the handler */

struct header_list {
    struct framing_header headers[FRAMING_MAX_HEADERS + 1];
    size_t count;
};

static enum MHD_Result collect_header(void *list_, enum MHD_ValueKind kind, const char *name,
                                      size_t name_size, const char *value, size_t value_size) {
    struct header_list *list = list_;
    (void)kind;
    list->headers[list->count++] = (struct framing_header){
        .name = name != NULL ? name : "",
        .name_size = name_size,
        .value = value != NULL ? value : "",
        .value_size = value_size,
    };
    return list->count <= FRAMING_MAX_HEADERS ? MHD_YES : MHD_NO;
}

/* What the raw request target was worth is known before its headers are: call_target leaves it in
 * the handler's closure as a pointer to one of these, never allocated, because a request that is
 * malformed further on reaches neither the handler nor call_completed. */
static char uri_marks[FRAMING_URI_COUNT];

static bool is_uri_mark(const void *closure) {
    return (uintptr_t)closure >= (uintptr_t)uri_marks &&
           (uintptr_t)closure < (uintptr_t)(uri_marks + FRAMING_URI_COUNT);
}

static struct connection *connection_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

void *call_target(void *unused, const char *raw, struct MHD_Connection *connection) {
    struct connection *own = connection_of(connection);
    (void)unused;
    if (own != NULL) {
        own->target = raw;
        own->target_size = strlen(raw);
    }
    return &uri_marks[framing_check_uri(raw)];
}

/* Libmicrohttpd before 1.0 cuts a head into parts where it has read it, and passes over some faults
 * in silence. Later ones refuse these themselves (see start_daemon) and promise no such layout. */
static void show_layout(struct framing_head *head, struct connection *own,
                        struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (own != NULL && info != NULL && MHD_get_version()[0] == '0') {
        head->target = own->target;
        head->target_size = own->target_size;
        head->size = info->header_size;
    }
}

/* The head is sound: decides about the body and asks the app. Returns true if the response should
 * be sent now, which ends the connection. */
static bool begin(struct http_call *call, const struct framing_result *framing) {
    const struct http_server *server = call->server;
    uint64_t length = framing->content_length;
    if (length > server->max_body) {
        refuse_size(call, "%llu bytes", (unsigned long long)length);
        /* Reading a little too much keeps the connection; a client that asks first has sent
         * nothing. */
        call->response.close = framing->expects_continue || length / 2 > server->max_body;
        return call->response.close;
    }
    call->request.length = framing->coding == CODING_NONE ? length : 0;
    call->exchange = server->app->begin(server->app->context, &call->request, &call->response);
    call->answered = call->exchange == NULL;
    call->wants_body = !call->answered;
    if (framing->coding != CODING_NONE && call->wants_body) {
        call->reader = coding_reader_create(framing->coding);
        if (call->reader == NULL) {
            refuse(call, 503, "the server has no memory left for this request");
            call->response.refused = "without memory";
        }
    }
    return call->answered && framing->expects_continue;
}

static enum MHD_Result first_call(struct http_server *server, struct MHD_Connection *connection,
                                  const char *url, const char *method, const char *version,
                                  void **closure) {
    struct header_list list = {.count = 0};
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, collect_header, &list);
    struct framing_head head = {
        .method = method,
        .version = version,
        .uri =
            *closure == NULL ? FRAMING_URI_BAD : (enum framing_uri)((char *)*closure - uri_marks),
        .headers = list.headers,
        .count = list.count,
        .codings = server->compression,
    };
    struct framing_result framing;
    struct connection *own = connection_of(connection);
    show_layout(&head, own, connection);
    framing_check(&head, &framing);
    struct http_call *call = own != NULL ? call_new(server, own, url, method, &framing) : NULL;
    *closure = call;
    if (call == NULL) {
        return MHD_NO;
    }
    atomic_store_explicit(&own->watched.asked, true, memory_order_relaxed);
    watch_until(&own->watched, call->begun / 1000000 + server->body_ms);
    if (server->compression) {
        call->accepts = coding_choose(list.headers, list.count, CODINGS_MADE, &call->must_code);
    }
    bool now;
    if (framing.status != 0) {
        refuse(call, framing.status, "%s", framing.detail);
        call->response.close = framing.close;
        call->response.codings = framing.status == 415 && server->compression ? CODING_NAMES : NULL;
        now = framing.close;
    } else if (framing.is_preflight && call->origin[0] != '\0') {
        call->preflight = call->answered = true; /* needs no key: a browser sends none */
        call->response.status = 204;
        now = false;
    } else {
        now = begin(call, &framing);
    }
    if (call->response.asset != NULL) {
        call->coding = asset_choose(&call->response, list.headers, list.count);
        call->accepts = CODING_NONE;
    }
    call->response.close |= now; /* libmicrohttpd does in any case */
    return now ? call_respond(call, connection) : MHD_YES;
}

/* A fault of a compressed body, if there is one. */
static bool refuse_fault(struct http_call *call) {
    char text[192];
    const int status = coding_fault(call->reader, text, sizeof text);
    if (status != 0) {
        refuse(call, status, "%s", text);
        call->response.refused = status == 503   ? "without memory"
                                 : status == 413 ? "over a fixed limit"
                                                 : NULL;
    }
    return status != 0;
}

bool call_hold(struct http_call *call, size_t bytes) {
    const struct http_app *app = call->server->app;
    const bool same = bytes == call->held || app->hold == NULL;
    call->held = bytes;
    return same || app->hold(call->exchange, bytes);
}

/* Takes a piece of a compressed body, and gives the app what it holds. Returns how many bytes are
 * left over for another time: little can become much, and this thread has other connections. Bytes
 * may be left over in the decoder only, but not at the end: it takes the last one when all is
 * written. */
static size_t take_compressed(struct http_call *call, const char *bytes, size_t size) {
    const struct http_server *server = call->server;
    char out[INFLATED];
    const int64_t start = clock_ns();
    const size_t part = coding_read(call->reader, bytes, &size, out, sizeof out);
    call->inflate_ms += clock_ms_since(start);
    call->inflated += part;
    if (refuse_fault(call)) {
        return 0;
    }
    if (call->inflated > server->max_body) {
        refuse_size(call, "more bytes than allowed once it is decompressed");
        return 0;
    }
    call->wants_body = call_hold(call, coding_memory(call->reader)) &&
                       (part == 0 || server->app->body(call->exchange, out, part));
    if (!call->wants_body) {
        drop_reader(call);
        call_hold(call, 0);
        return 0;
    }
    return size;
}

/* Gives the app a piece of a plain body. Returns how many bytes are left over for another time. */
static size_t take_plain(struct http_call *call, const char *bytes, size_t size) {
    const int64_t start = clock_ns();
    while (size > 0 && call->wants_body) {
        const size_t part = size < SLICE ? size : SLICE;
        call->wants_body = call->server->app->body(call->exchange, bytes, part);
        bytes += part;
        size -= part;
        if (clock_ms_since(start) > TURN_MS) {
            break;
        }
    }
    return call->wants_body ? size : 0;
}

/* Takes the next piece of the body, but for the last *left bytes. False cuts the connection:
 * nothing can be answered in mid-body. */
static bool take_body(struct http_call *call, const void *bytes, size_t size, size_t *left) {
    const struct http_server *server = call->server;
    *left = 0;
    call->received += size;
    call->pieces++;
    watch_until(&call->connection->watched,
                call->begun / 1000000 + server->body_ms + (int64_t)(call->received / SLOWEST));
    bool crumbs = call->pieces > MAX_PIECES && call->received < call->pieces * MIN_PIECE;
    if (call->received / 2 > server->max_body || (crumbs && call->pieces > END_PIECES)) {
        return false;
    }
    if (call->answered) {
        return true;
    }
    if (call->received > server->max_body) {
        refuse_size(call, "%llu bytes or more", (unsigned long long)call->received);
    } else if (crumbs) {
        refuse(call, 400, "the body comes in more than %d pieces of less than %d bytes on average",
               MAX_PIECES, MIN_PIECE);
    } else if (call->reader != NULL || call->wants_body) {
        *left = call->reader != NULL ? take_compressed(call, bytes, size)
                                     : take_plain(call, bytes, size);
        call->received -= *left;
        call->pieces -= *left > 0; /* it is still the same one */
    }
    return true;
}

/* The client of a pending request has left. */
static void on_leave(struct watched *watched) {
    struct http_call *call = ((struct connection *)watched)->call;
    call->left = atomic_load(&call->server->stage) < CALL_CLOSED; /* else the server calls it off */
    call->server->app->cancel(call->exchange);
}

void call_suspend(struct http_call *call, struct MHD_Connection *connection) {
    call->suspended = connection;
    call->connection->call = call;
    atomic_fetch_add(&call->server->pending, 1);
    MHD_suspend_connection(connection);
}

static void wait_for_answer(struct http_call *call, struct MHD_Connection *connection) {
    call_suspend(call, connection);
    watch_wait(call->server->watch, &call->connection->watched, on_leave);
    call->server->app->start(call->exchange, (struct http_pending *)call);
}

void http_resume(struct http_pending *pending) {
    struct http_call *call = (struct http_call *)pending;
    struct http_server *server = call->server;
    if (call->stream == NULL) {
        watch_awake(server->watch, &call->connection->watched);
        call->answered = true;
    } else {
        watch_go_on(&call->connection->watched);
    }
    MHD_resume_connection(call->suspended);
    atomic_fetch_sub(&server->pending, 1); /* the call may be gone by now */
}

/* All of the body was taken: a compressed one must have come to its end. */
static void end_compressed(struct http_call *call) {
    coding_end(call->reader);
    if (!refuse_fault(call)) {
        drop_reader(call);
        call_hold(call, 0);
    }
}

static enum MHD_Result last_call(struct http_call *call, struct MHD_Connection *connection) {
    if (call->reader != NULL) {
        end_compressed(call);
    }
    if (!call->answered) {
        call->answered = call->server->app->end(call->exchange, &call->request, &call->response);
    }
    if (!call->answered) {
        wait_for_answer(call, connection);
        return MHD_YES;
    }
    return call_respond(call, connection);
}

static enum MHD_Result handle(struct http_server *server, struct MHD_Connection *connection,
                              const char *url, const char *method, const char *version,
                              const char *bytes, size_t *size, void **closure) {
    if (*closure == NULL || is_uri_mark(*closure)) {
        if (atomic_load(&server->stage) >= CALL_CLOSED) {
            return MHD_NO;
        }
        return first_call(server, connection, url, method, version, closure);
    }
    if (*size == 0) {
        return last_call(*closure, connection);
    }
    size_t left = 0;
    const bool goes_on = take_body(*closure, bytes, *size, &left);
    *size = left;
    if (left > 0 && goes_on) { /* after the other connections, the handler is called again */
        MHD_suspend_connection(connection);
        MHD_resume_connection(connection);
    }
    return goes_on ? MHD_YES : MHD_NO;
}

/* Who enters after the end sees it: the stop can wait for `working` to become 0. */
enum MHD_Result call_handle(void *server_, struct MHD_Connection *connection, const char *url,
                            const char *method, const char *version, const char *bytes,
                            size_t *size, void **closure) {
    struct http_server *server = server_;
    enum MHD_Result result = MHD_NO;
    atomic_fetch_add(&server->working, 1);
    if (atomic_load(&server->stage) != CALL_ENDED) {
        result = handle(server, connection, url, method, version, bytes, size, closure);
    }
    atomic_fetch_sub(&server->working, 1);
    return result;
}

void call_completed(void *unused, struct MHD_Connection *connection, void **closure,
                    enum MHD_RequestTerminationCode code) {
    (void)unused;
    (void)code;
    if (*closure != NULL && !is_uri_mark(*closure)) {
        struct http_call *call = *closure;
        const struct http_server *server = call->server;
        if (call->connection->untimed) {
            call->connection->untimed = false;
            MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT,
                                      server->idle_timeout);
        }
        watch_sent(&call->connection->watched);
        atomic_store_explicit(&call->connection->watched.asked, false, memory_order_relaxed);
        watch_for(&call->connection->watched, server->idle_timeout * 1000 + server->header_ms);
        tell_completed(call, connection);
        call_free(call);
    }
    *closure = NULL;
}
