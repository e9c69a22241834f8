/*
 * server.c - requests and responses over libmicrohttpd; the only file that includes <microhttpd.h>.
 * Owns the life of a request: filter the head, let the app begin, hand it the body within the
 * limits, send what it answers, release everything once. Knows nothing of paths or of what bodies
 * mean.
 *
 * libmicrohttpd's rule that shapes this file (0.9.75, Debian 12; 1.0.1, Debian 13): a response
 * queued in the first call of the handler closes the connection, and none can be queued between
 * two pieces of a body. So a refusal that should keep the connection waits for the last call, and a
 * body that grows without end can only be cut off.
 */
#include "http/coding.h"
#include "http/cors.h"
#include "http/framing.h"
#include "http/http.h"
#include "http/keys.h"
#include "http/listen.h"
#include "http/log.h"
#include "http/request_id.h"
#include "http/tls.h"
#include "http/watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECTION_MEMORY = 32 * 1024, /* libmicrohttpd clears all of it after each request */
    MAX_PIECES = 65536,            /* a body in more pieces than that ...              */
    MIN_PIECE = 64,                /* ... has at least so many bytes in each, on average; */
    END_PIECES = 4 * MAX_PIECES,   /* read so far only to refuse it with a word */
    DRAIN_TICK_MS = 10,
    DRAIN_QUIET = 5,   /* ticks without any request: then idle connections are closed */
    END_TICKS = 100,   /* 1 s for the handlers and computations that are at work even then */
    PIECE = 32 * 1024, /* of a body that is made while it is sent */
    /* Of a compressed body, decompressed: at a time, and until other connections have a turn. */
    INFLATED = 32 * 1024,
    MOST_INFLATED = 1 << 20,
    SLOWEST = 64, /* bytes in a millisecond of a long body or response, once the time is over */
};

struct http_server {
    const struct http_app *app;
    struct MHD_Daemon *daemon;
    size_t max_body;
    bool compression;
    unsigned max_connections;
    unsigned idle_timeout;
    int64_t header_ms, body_ms, write_ms; /* deadlines; the latter two grow with the bytes */
    int drain_delay_ticks, drain_ticks;
    unsigned port;
    struct request_ids ids;
    struct watch *watch;
    struct keys *keys; /* NULL: none are needed */
    struct tls *tls;   /* NULL: plain HTTP */
    const char *cors_origins;
    atomic_uint connections;
    atomic_uint requests; /* between the first call of the handler and the end of the response */
    atomic_uint begun;    /* requests, ever; wraps around */
    atomic_uint working;  /* threads in the handler, and so perhaps in the app */
    atomic_uint pending;  /* requests whose answer is computed elsewhere */
    atomic_bool draining; /* every response ends its connection */
    atomic_bool closed;   /* no request is begun any more */
    atomic_bool ended;    /* the handler does nothing any more */
    int listening;        /* the socket, which libmicrohttpd owns */
};

/* One connection. Lives from on_connection to on_connection, or on_ended. */
struct connection {
    struct watched watched; /* first, for on_leave and on_ended */
    struct http_server *server;
    struct tls_pair *pair;  /* that its session uses */
    struct http_call *call; /* that is pending */
    bool ends;              /* with the response that was queued last, because the server says so */
};

/* One request. Lives from the first call of the handler to on_completed, on one I/O thread. */
struct http_call {
    struct http_server *server;
    struct MHD_Connection *suspended; /* while pending */
    struct connection *connection;
    int64_t begun;               /* watch_clock() when the headers were complete */
    struct timespec started;     /* the same time, finer */
    int status;                  /* of the response that was queued, or 0 */
    uint64_t sent;               /* bytes of its body */
    struct http_request request; /* points into this struct, and `path` */
    struct http_response response;
    void *exchange;  /* the app's; NULL once it has answered or been released */
    bool left;       /* the client did, while the answer was computed */
    bool answered;   /* `response` is what will be sent: drop the rest of the body */
    bool wants_body; /* the app has not said that it has enough */
    uint64_t received;
    uint64_t pieces;
    struct coding_reader *reader; /* of a compressed body, as long as it is wanted */
    uint64_t inflated;            /* bytes that it gave */
    double inflate_ms;
    size_t held;                 /* bytes of memory that the app knows of */
    enum coding accepts, coding; /* what the response is to have, and has */
    bool must_code;
    char method[8];
    char id[FRAMING_MAX_ID + 1];
    char media_type[128];
    char origin[256]; /* of a web page that may see the response; "" = none */
    bool preflight;
    char path[];
};

/* -------------------------------------------------------------------------- the life of a call */

static void drop_reader(struct http_call *call) {
    coding_reader_free(call->reader);
    call->reader = NULL;
}

static void release_exchange(struct http_call *call) {
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
    release_exchange(call);
    release_response(&call->response);
    http_problem(&call->response, &call->request, status, detail, NULL, -1);
    call->answered = true;
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
    call->begun = watch_clock();
    clock_gettime(CLOCK_MONOTONIC, &call->started);
    call->request.server = server;
    call->request.draining = atomic_load_explicit(&server->draining, memory_order_relaxed);
    memcpy(call->path, path, path_size);
    call->request.head = strcmp(method, "HEAD") == 0;
    strncpy(call->method, call->request.head ? "GET" : method, sizeof call->method - 1);
    framing_media_type(framing->content_type, call->media_type, sizeof call->media_type);
    call->request.authorized =
        server->keys == NULL ||
        (framing->authorization != NULL && keys_match(server->keys, framing->authorization->value,
                                                      framing->authorization->value_size));
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
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const struct http_record record = {
        .status = call->status,
        .received = call->received,
        .sent = call->sent,
        .seconds = (double)(now.tv_sec - call->started.tv_sec) +
                   (double)(now.tv_nsec - call->started.tv_nsec) * 1e-9,
        .timing = call->response.timed ? call->response.timing : NULL,
    };
    if (app->completed != NULL) {
        app->completed(app->context, &call->request, &record);
    }
    if (http_log_wants_requests()) {
        char client[INET6_ADDRSTRLEN];
        name_client(connection, client);
        http_log_request(&call->request, &record, client);
    }
}

static void call_free(struct http_call *call) {
    release_exchange(call);
    release_response(&call->response);
    atomic_fetch_sub(&call->server->requests, 1);
    free(call);
}

/* ----------------------------------------------------------------------------------- responses */

static bool add_header(struct MHD_Response *out, const char *name, const char *value) {
    return MHD_add_response_header(out, name, value) == MHD_YES;
}

/* Appends the name and milliseconds with three decimals. Not by printf: libquadmath, which OpenBLAS
 * brings along, registers formats of its own, and then all of them take glibc's slow path: these
 * four took as long as a small request's computation. */
static char *put_timing(char *out, const char *name, double milliseconds) {
    char digits[24];
    uint64_t microseconds = milliseconds > 0 ? (uint64_t)(milliseconds * 1e3 + 0.5) : 0;
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + microseconds % 10);
        microseconds /= 10;
    } while (microseconds > 0 || count < 4);
    out = stpcpy(stpcpy(out, name), ";dur=");
    while (count > 0) {
        *out++ = digits[--count];
        if (count == 3) {
            *out++ = '.';
        }
    }
    *out = '\0';
    return out;
}

static double clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Gives the response the coding that the client wants, if it is worth it. */
static void compress(struct http_call *call) {
    struct http_response *response = &call->response;
    const double start = clock_ms();
    if (coding_compress(response, call->accepts, call->must_code)) {
        call->coding = call->accepts;
    }
    response->timing[HTTP_TIMING_ENCODE] += clock_ms() - start;
}

static bool add_timing(struct MHD_Response *out, const double timing[static HTTP_TIMING_COUNT]) {
    char text[160]; /* four times less than 40 */
    char *end = put_timing(text, "decode", timing[HTTP_TIMING_DECODE]);
    end = put_timing(end, ", queue", timing[HTTP_TIMING_QUEUE]);
    end = put_timing(end, ", compute", timing[HTTP_TIMING_COMPUTE]);
    put_timing(end, ", encode", timing[HTTP_TIMING_ENCODE]);
    return add_header(out, "Server-Timing", text);
}

static bool add_retry(struct MHD_Response *out, int seconds) {
    char text[16];
    snprintf(text, sizeof text, "%d", seconds);
    return add_header(out, "Retry-After", text);
}

/* What a browser must read before it lets a page of another origin see the response. */
static bool add_cors(const struct http_call *call, struct MHD_Response *out) {
    return (call->origin[0] == '\0' ||
            (add_header(out, "Access-Control-Allow-Origin", call->origin) &&
             add_header(out, "Access-Control-Expose-Headers",
                        "X-Request-Id, Server-Timing, Retry-After"))) &&
           (!call->preflight ||
            (add_header(out, "Access-Control-Allow-Methods", "GET, HEAD, POST") &&
             add_header(out, "Access-Control-Allow-Headers",
                        call->server->compression
                            ? "Authorization, Content-Encoding, Content-Type, X-Request-Id"
                            : "Authorization, Content-Type, X-Request-Id") &&
             add_header(out, "Access-Control-Max-Age", "600")));
}

/* What in a request, beside its target, the response depends on. */
static bool add_vary(const struct http_server *server, struct MHD_Response *out) {
    const bool origin = server->cors_origins != NULL;
    return (!origin && !server->compression) || add_header(out, "Vary",
                                                           !server->compression ? "Origin"
                                                           : origin ? "Origin, Accept-Encoding"
                                                                    : "Accept-Encoding");
}

static bool add_headers(const struct http_call *call, struct MHD_Response *out) {
    const struct http_response *response = &call->response;
    const char *type = response->media_type != NULL ? response->media_type : "application/json";
    const bool empty = response->size == 0 && response->read == NULL;
    return add_vary(call->server, out) &&
           (call->server->cors_origins == NULL || add_cors(call, out)) &&
           (call->coding == CODING_NONE ||
            add_header(out, "Content-Encoding", coding_name(call->coding))) &&
           (response->codings == NULL || add_header(out, "Accept-Encoding", response->codings)) &&
           (response->status != 401 || add_header(out, "WWW-Authenticate", "Bearer")) &&
           (empty || add_header(out, "Content-Type", type)) &&
           add_header(out, "X-Request-Id", call->id) &&
           add_header(out, "Cache-Control", "no-store") &&
           add_header(out, "X-Content-Type-Options", "nosniff") &&
           (response->allow == NULL || add_header(out, "Allow", response->allow)) &&
           (response->retry_after <= 0 || add_retry(out, response->retry_after)) &&
           (!response->timed || add_timing(out, response->timing)) &&
           (!call->connection->ends || add_header(out, "Connection", "close"));
}

/* A body that is made while it is sent. Libmicrohttpd owns it, with the response. */
struct stream {
    struct http_call *call; /* there as long as `read_stream` is called */
    void *body;
    bool (*read)(void *body, char *out, size_t room, size_t *size);
    void (*release)(void *body);
    uint64_t sent;
    int64_t begun;
};

static ssize_t read_stream(void *stream_, uint64_t position, char *out, size_t room) {
    struct stream *stream = stream_;
    size_t size;
    (void)position;
    if (!stream->read(stream->body, out, room, &size)) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    /* The client must take some of it within the time, and all so far at the slowest rate. */
    stream->sent += size;
    stream->call->sent = stream->sent;
    const int64_t now = watch_clock(), slowest = stream->begun + (int64_t)(stream->sent / SLOWEST);
    watch_until(&stream->call->connection->watched,
                (now < slowest ? now : slowest) + stream->call->server->write_ms);
    return size > 0 ? (ssize_t)size : MHD_CONTENT_READER_END_OF_STREAM;
}

static void free_stream(void *stream_) {
    struct stream *stream = stream_;
    if (stream->release != NULL) {
        stream->release(stream->body);
    }
    free(stream);
}

static struct MHD_Response *create_stream(struct http_call *call) {
    struct http_response *response = &call->response;
    struct stream *stream = malloc(sizeof *stream);
    if (stream == NULL) {
        return NULL;
    }
    *stream = (struct stream){.call = call,
                              .body = (void *)response->body,
                              .read = response->read,
                              .release = response->release,
                              .begun = watch_clock()};
    struct MHD_Response *out = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, PIECE,
                                                                 read_stream, stream, free_stream);
    if (out == NULL) {
        free(stream);
    } else {
        response->release = NULL; /* it is the stream's now */
    }
    return out;
}

/* The body goes to libmicrohttpd without a copy and is released when the last byte is sent. */
static struct MHD_Response *create_whole(struct http_response *response) {
    void *body = (void *)response->body;
    if (response->release == NULL || response->size == 0) {
        return MHD_create_response_from_buffer(response->size, body, MHD_RESPMEM_PERSISTENT);
    }
    struct MHD_Response *out = MHD_create_response_from_buffer_with_free_callback_cls(
        response->size, body, response->release, body);
    if (out != NULL) {
        response->release = NULL; /* it is the response's now */
    }
    return out;
}

static enum MHD_Result send_response(struct http_call *call, struct MHD_Connection *connection) {
    struct http_response *response = &call->response;
    response->timing[HTTP_TIMING_DECODE] += call->inflate_ms;
    if (call->accepts != CODING_NONE) {
        compress(call);
    }
    const bool streams = response->read != NULL;
    struct MHD_Response *out = streams ? create_stream(call) : create_whole(response);
    if (out == NULL) {
        return MHD_NO;
    }
    enum MHD_Result result = MHD_NO;
    atomic_store_explicit(&call->connection->watched.sending, true, memory_order_relaxed);
    watch_for(&call->connection->watched,
              call->server->write_ms + (int64_t)(response->size / SLOWEST));
    call->connection->ends =
        response->close || atomic_load_explicit(&call->server->draining, memory_order_relaxed);
    if (add_headers(call, out)) {
        result = MHD_queue_response(connection, (unsigned)response->status, out);
    }
    MHD_destroy_response(out);
    call->status = result == MHD_YES && !call->left ? response->status : 0;
    call->sent = call->request.head ? 0 : response->size;
    if (!streams) {
        release_exchange(call); /* else the body may still be made of it */
    }
    return result;
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

/* What the raw request target was worth is known before its headers are: on_target leaves it in the
 * handler's closure as a pointer to one of these, never allocated, because a request that is
 * malformed further on reaches neither the handler nor on_completed. */
static char uri_marks[FRAMING_URI_COUNT];

static bool is_uri_mark(const void *closure) {
    return (uintptr_t)closure >= (uintptr_t)uri_marks &&
           (uintptr_t)closure < (uintptr_t)(uri_marks + FRAMING_URI_COUNT);
}

static void *on_target(void *unused, const char *raw, struct MHD_Connection *connection) {
    (void)unused;
    (void)connection;
    return &uri_marks[framing_check_uri(raw)];
}

static struct connection *connection_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* The head is sound: decides about the body and asks the app. Returns true if the response should
 * be sent now, which ends the connection. */
static bool begin(struct http_call *call, const struct framing_result *framing) {
    const struct http_server *server = call->server;
    uint64_t length = framing->content_length;
    if (length > server->max_body) {
        refuse(call, 413, "a body has at most %zu bytes, the Content-Length is %llu",
               server->max_body, (unsigned long long)length);
        /* Reading a little too much keeps the connection; a client that asks first has sent
         * nothing. */
        call->response.close = framing->expects_continue || length / 2 > server->max_body;
        return call->response.close;
    }
    call->exchange = server->app->begin(server->app->context, &call->request, &call->response);
    call->answered = call->exchange == NULL;
    call->wants_body = !call->answered;
    if (framing->coding != CODING_NONE && call->wants_body) {
        call->reader = coding_reader_create(framing->coding);
        if (call->reader == NULL) {
            refuse(call, 503, "the server has no memory left for this request");
            call->response.retry_after = 1;
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
    framing_check(&head, &framing);
    struct connection *own = connection_of(connection);
    struct http_call *call = own != NULL ? call_new(server, own, url, method, &framing) : NULL;
    *closure = call;
    if (call == NULL) {
        return MHD_NO;
    }
    atomic_store_explicit(&own->watched.asked, true, memory_order_relaxed);
    watch_for(&own->watched, server->body_ms);
    if (server->compression) {
        call->accepts = coding_choose(list.headers, list.count, &call->must_code);
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
    call->response.close |= now; /* libmicrohttpd does in any case */
    return now ? send_response(call, connection) : MHD_YES;
}

/* A fault of a compressed body, if there is one. */
static bool refuse_fault(struct http_call *call) {
    char text[192];
    const int status = coding_fault(call->reader, text, sizeof text);
    if (status != 0) {
        refuse(call, status, "%s", text);
        call->response.retry_after = status == 503 ? 1 : 0;
    }
    return status != 0;
}

/* Tells the app what the reader holds, if that has changed. */
static bool hold(struct http_call *call, size_t bytes) {
    const struct http_app *app = call->server->app;
    const bool same = bytes == call->held || app->hold == NULL;
    call->held = bytes;
    return same || app->hold(call->exchange, bytes);
}

/* Takes a piece of a compressed body, and gives the app what it holds. Returns how many bytes are
 * left over for another time: little can become much, and this thread has other connections. */
static size_t take_compressed(struct http_call *call, const char *bytes, size_t size) {
    const struct http_server *server = call->server;
    char out[INFLATED];
    size_t left = size, part = sizeof out;
    for (size_t total = 0; part == sizeof out && call->wants_body; total += part) {
        if (total >= MOST_INFLATED) {
            return left; /* decoders take the last byte of a stream when all else is written */
        }
        const double start = clock_ms();
        part = coding_read(call->reader, bytes + size - left, &left, out, sizeof out);
        call->inflate_ms += clock_ms() - start;
        call->inflated += part;
        if (refuse_fault(call)) {
            return 0;
        }
        if (call->inflated > server->max_body) {
            refuse(call, 413, "a body has at most %zu bytes, this compressed one becomes more",
                   server->max_body);
            return 0;
        }
        call->wants_body = hold(call, coding_memory(call->reader)) &&
                           (part == 0 || server->app->body(call->exchange, out, part));
    }
    if (!call->wants_body) {
        drop_reader(call);
        hold(call, 0);
    }
    return 0;
}

/* Takes the next piece of the body, but for the last *left bytes. False cuts the connection: nothing
 * can be answered in mid-body. */
static bool take_body(struct http_call *call, const void *bytes, size_t size, size_t *left) {
    const struct http_server *server = call->server;
    *left = 0;
    call->received += size;
    call->pieces++;
    watch_until(&call->connection->watched,
                call->begun + server->body_ms + (int64_t)(call->received / SLOWEST));
    bool crumbs = call->pieces > MAX_PIECES && call->received < call->pieces * MIN_PIECE;
    if (call->received / 2 > server->max_body || (crumbs && call->pieces > END_PIECES)) {
        return false;
    }
    if (call->answered) {
        return true;
    }
    if (call->received > server->max_body) {
        refuse(call, 413, "a body has at most %zu bytes, this chunked one has more",
               server->max_body);
    } else if (crumbs) {
        refuse(call, 400, "a body in more than %d pieces has %d bytes or more in each on average",
               MAX_PIECES, MIN_PIECE);
    } else if (call->reader != NULL) {
        *left = take_compressed(call, bytes, size);
        call->received -= *left;
    } else if (call->wants_body) {
        call->wants_body = server->app->body(call->exchange, bytes, size);
    }
    return true;
}

/* The client of a pending request has left. */
static void on_leave(struct watched *watched) {
    struct http_call *call = ((struct connection *)watched)->call;
    call->left = !atomic_load(&call->server->closed); /* else the server itself calls it off */
    call->server->app->cancel(call->exchange);
}

/* Libmicrohttpd leaves the connection alone until http_resume, which the app may call at once. */
static void suspend(struct http_call *call, struct MHD_Connection *connection) {
    call->suspended = connection;
    call->connection->call = call;
    atomic_fetch_add(&call->server->pending, 1);
    MHD_suspend_connection(connection);
    watch_wait(call->server->watch, &call->connection->watched, on_leave);
    call->server->app->start(call->exchange, (struct http_pending *)call);
}

void http_resume(struct http_pending *pending) {
    struct http_call *call = (struct http_call *)pending;
    struct http_server *server = call->server;
    watch_awake(server->watch, &call->connection->watched);
    watch_for(&call->connection->watched, server->write_ms);
    call->answered = true;
    MHD_resume_connection(call->suspended);
    atomic_fetch_sub(&server->pending, 1); /* the call may be gone by now */
}

/* All of the body was taken: a compressed one must have come to its end. */
static void end_compressed(struct http_call *call) {
    coding_end(call->reader);
    if (!refuse_fault(call)) {
        drop_reader(call);
        hold(call, 0);
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
        suspend(call, connection);
        return MHD_YES;
    }
    return send_response(call, connection);
}

static enum MHD_Result handle(struct http_server *server, struct MHD_Connection *connection,
                              const char *url, const char *method, const char *version,
                              const char *bytes, size_t *size, void **closure) {
    if (*closure == NULL || is_uri_mark(*closure)) {
        if (atomic_load(&server->closed)) {
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

/* Who enters after `ended` is set sees it: the stop can wait for `working` to become 0. */
static enum MHD_Result on_request(void *server_, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *bytes,
                                  size_t *size, void **closure) {
    struct http_server *server = server_;
    enum MHD_Result result = MHD_NO;
    atomic_fetch_add(&server->working, 1);
    if (!atomic_load(&server->ended)) {
        result = handle(server, connection, url, method, version, bytes, size, closure);
    }
    atomic_fetch_sub(&server->working, 1);
    return result;
}

static void on_completed(void *unused, struct MHD_Connection *connection, void **closure,
                         enum MHD_RequestTerminationCode code) {
    (void)unused;
    (void)code;
    if (*closure != NULL && !is_uri_mark(*closure)) {
        struct http_call *call = *closure;
        const struct http_server *server = call->server;
        atomic_store_explicit(&call->connection->watched.sending, false, memory_order_relaxed);
        atomic_store_explicit(&call->connection->watched.asked, false, memory_order_relaxed);
        watch_for(&call->connection->watched, server->idle_timeout * 1000 + server->header_ms);
        tell_completed(call, connection);
        call_free(call);
    }
    *closure = NULL;
}

/* ---------------------------------------------------------------------------------- the server */

static struct tls_pair *begin_tls(struct http_server *server, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info != NULL ? tls_begin(server->tls, info->tls_session) : NULL;
}

static void open_connection(struct http_server *server, struct MHD_Connection *connection,
                            void **context) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct connection *own = info != NULL ? calloc(1, sizeof *own) : NULL;
    const int fd = info != NULL ? info->connect_fd : -1; /* the next question overwrites `info` */
    atomic_fetch_add_explicit(&server->connections, 1, memory_order_relaxed);
    if (own != NULL) { /* else its first request is cut off */
        own->server = server;
        own->pair = server->tls != NULL ? begin_tls(server, connection) : NULL;
        watch_for(&own->watched, server->header_ms); /* a handshake included */
        watch_add(server->watch, &own->watched, fd);
    }
    *context = own;
}

static void forget_connection(struct http_server *server, struct connection *own) {
    free(own);
    atomic_fetch_sub_explicit(&server->connections, 1, memory_order_relaxed);
}

static void on_ended(struct watched *watched) {
    struct connection *own = (struct connection *)watched;
    forget_connection(own->server, own);
}

static void on_connection(void *server_, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    struct http_server *server = server_;
    struct connection *own = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        open_connection(server, connection, context);
        return;
    }
    if (own != NULL) {
        tls_end(own->pair);
        if (own->ends && watch_linger(server->watch, &own->watched, on_ended)) {
            return;
        }
        watch_remove(server->watch, &own->watched);
    }
    forget_connection(server, own);
}

/* A connection too many is closed at once. libmicrohttpd's own limit would leave it hanging
 * instead. */
static enum MHD_Result on_accept(void *server_, const struct sockaddr *address, socklen_t size) {
    struct http_server *server = server_;
    (void)address;
    (void)size;
    unsigned open = atomic_load_explicit(&server->connections, memory_order_relaxed);
    return open < server->max_connections ? MHD_YES : MHD_NO;
}

static void on_panic(void *unused, const char *file, unsigned line, const char *reason) {
    (void)unused;
    fprintf(stderr, "attentiond: libmicrohttpd gave up in %s:%u: %s\n", file, line,
            reason != NULL ? reason : "no reason given");
    abort();
}

static void wait_tick(void) {
    nanosleep(&(struct timespec){.tv_nsec = DRAIN_TICK_MS * 1000000L}, NULL);
}

/* Without a descriptor for its first connection, a thread of libmicrohttpd tries again at once, "busy
 * waiting" as its message says. As it serves nobody, it may as well rest here. */
static void on_message(void *unused, const char *format, va_list arguments) {
    const bool busy_waiting = strstr(format, "at FIRST connection") != NULL;
    http_log_mhd(unused, format, arguments);
    if (busy_waiting) {
        wait_tick();
    }
}

static struct MHD_Daemon *start_daemon(struct http_server *server, bool ipv6, unsigned threads) {
    /* With epoll, libmicrohttpd spins from the first byte of a handshake to the last (0.9.75 and
     * 1.0.1): a client that does not go on would cost a core. With poll it waits. */
    unsigned flags = (server->tls != NULL ? MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_TLS
                                          : MHD_USE_EPOLL_INTERNAL_THREAD) |
                     MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG |
                     (ipv6 ? MHD_USE_IPv6 : 0u);
    /* The limit is split over the threads, but the kernel need not spread connections evenly. */
    unsigned limit = (server->max_connections + 1) * threads;
    struct MHD_OptionItem for_tls[] = {
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)tls_priorities},
        {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, tls_no_certificate()},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem more[] = {
        {MHD_OPTION_ARRAY, 0, server->tls != NULL ? for_tls : for_tls + 2},
#if MHD_VERSION >= 0x01000000
        /* The strictest level within the RFCs refuses bare LF, folded headers, and spaces in the
         * target, which get a redirect otherwise. A higher one adds only empty lines in front. */
        {MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1, NULL},
#endif
        {threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, (intptr_t)threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    return MHD_start_daemon(
        flags, (uint16_t)server->port, on_accept, server, on_request, server,
        MHD_OPTION_EXTERNAL_LOGGER, on_message, NULL, MHD_OPTION_LISTEN_SOCKET, server->listening,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_CONNECTION_LIMIT,
        limit, MHD_OPTION_CONNECTION_TIMEOUT, server->idle_timeout, MHD_OPTION_URI_LOG_CALLBACK,
        on_target, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, server, MHD_OPTION_ARRAY, more,
        MHD_OPTION_END);
}

struct http_server *http_start(const struct http_options *options, const struct http_app *app,
                               char *error, size_t size) {
    struct http_server *server = calloc(1, sizeof *server);
    bool ipv6 = false;
    if (server == NULL) {
        snprintf(error, size, "out of memory");
        return NULL;
    }
    if (!http_log_open(&options->log, error, size)) {
        goto failed;
    }
    server->app = app;
    server->port = options->port;
    server->max_body = options->max_body;
    server->compression = options->compression;
    server->idle_timeout = options->idle_timeout;
    server->header_ms = (int64_t)options->header_timeout * 1000;
    server->body_ms = (int64_t)options->body_timeout * 1000;
    server->write_ms = (int64_t)options->write_timeout * 1000;
    server->drain_delay_ticks = (int)options->drain_delay * (1000 / DRAIN_TICK_MS);
    server->drain_ticks = (int)options->drain_timeout * (1000 / DRAIN_TICK_MS);
    server->max_connections = listen_reserve_files(options->max_connections);
    if (server->max_connections < options->max_connections) {
        http_log("the limit on open files admits %u connections instead of %u",
                 server->max_connections, options->max_connections);
    }
    request_ids_init(&server->ids);
    MHD_set_panic_func(on_panic, NULL);
    server->watch = watch_start();
    if (server->watch == NULL) {
        snprintf(error, size, "no thread to watch connections");
        goto failed;
    }

    server->cors_origins = options->cors_origins;
    if (options->api_key_file != NULL) {
        char reason[192];
        server->keys = keys_load(options->api_key_file, reason, sizeof reason);
        if (server->keys == NULL) {
            snprintf(error, size, "the keys in %s: %s", options->api_key_file, reason);
            goto failed;
        }
    }
    if (options->tls_certificate != NULL) {
        server->tls = tls_load(options->tls_certificate, options->tls_key, error, size);
        if (server->tls == NULL) {
            goto failed;
        }
    }
    server->listening = listen_open(options->address, &server->port, &ipv6, error, size);
    if (server->listening < 0) {
        goto failed;
    }
    server->daemon = start_daemon(server, ipv6, options->threads > 0 ? options->threads : 1);
    if (server->daemon == NULL) {
        snprintf(error, size, "cannot serve on %s:%u: %s", options->address, server->port,
                 strerror(errno));
        goto failed;
    }
    return server;

failed:
    /* The socket is left alone: libmicrohttpd may have closed it, and the program ends anyway. */
    watch_stop(server->watch);
    keys_free(server->keys);
    tls_free(server->tls);
    free(server);
    return NULL;
}

struct http_load http_load(const struct http_server *server) {
    return (struct http_load){atomic_load(&server->connections), atomic_load(&server->requests)};
}

void http_reload(struct http_server *server) {
    char reason[256];
    http_log_reopen();
    if (server->keys != NULL && !keys_reload(server->keys, reason, sizeof reason)) {
        http_log("the keys stay as they were: %s", reason);
    }
    if (server->tls != NULL && !tls_reload(server->tls, reason, sizeof reason)) {
        http_log("the certificate stays as it was: %s", reason);
    }
}

unsigned http_port(const struct http_server *server) {
    return server->port;
}

/* Waits until no request has been begun or in work for so many ticks, for `most` ticks at most.
 * Returns how many of these are left. */
static int await_quiet(const struct http_server *server, int ticks, int most) {
    unsigned seen = atomic_load_explicit(&server->begun, memory_order_relaxed);
    for (int quiet = 0; most > 0 && quiet < ticks; most--) {
        const unsigned begun = atomic_load_explicit(&server->begun, memory_order_relaxed);
        quiet = atomic_load(&server->requests) == 0 && begun == seen ? quiet + 1 : 0;
        seen = begun;
        wait_tick();
    }
    return most;
}

/* Answers what is there and begins nothing more; what takes longer is called off. A client learns
 * from the end of its idle connection that it should send elsewhere: what it sent before is answered,
 * even now. */
static void drain(struct http_server *server) {
    int left = await_quiet(server, DRAIN_QUIET, server->drain_ticks);
    watch_close_idle(server->watch);
    left = await_quiet(server, 1, left > 0 ? left : 1);
    atomic_store(&server->closed, true);
    await_quiet(server, 1, left > 0 ? left : 1); /* what came in the meantime */
    watch_leave_all(server->watch);
    await_quiet(server, 1, END_TICKS);
}

/* MHD_quiesce_daemon would do this, but it and a thread of libmicrohttpd can both take the socket out
 * of the thread's epoll set: then the second to do so calls the panic function (0.9.75, seen once in
 * 60,000 stops). So the socket is replaced by one that nobody connects to. */
static void stop_listening(struct http_server *server) {
    if (!listen_end(server->listening)) {
        http_log("no descriptor to spare: connections are accepted until the end");
    }
}

/* Lets no request reach the app any more. False if one is still there after a bounded time. */
static bool end_work(struct http_server *server) {
    atomic_store(&server->ended, true);
    for (int i = 0; i < END_TICKS; i++) {
        watch_leave_all(server->watch);
        if (atomic_load(&server->working) == 0 && atomic_load(&server->pending) == 0) {
            return true;
        }
        wait_tick();
    }
    return false;
}

bool http_stop(struct http_server *server) {
    if (server == NULL) {
        return true;
    }
    if (!atomic_exchange(&server->draining, true)) {
        for (int i = 0; i < server->drain_delay_ticks; i++) {
            wait_tick();
        }
        stop_listening(server);
        drain(server);
    }
    if (!end_work(server)) {
        return false; /* MHD_stop_daemon would wait for the thread that is in the app */
    }
    MHD_stop_daemon(server->daemon); /* closes the socket */
    watch_stop(server->watch);
    keys_free(server->keys);
    tls_free(server->tls);
    free(server);
    return true;
}
