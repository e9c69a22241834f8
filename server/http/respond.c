/*
 * respond.c sends the response of a call: its headers, and its body, which is whole or is made
 * while it is sent. It compresses the body if the client asks for that.
 */
#include "http/internal.h"
#include "http/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
    BLOCK = 4 * 1024,  /* bytes of libmicrohttpd's buffer for chunks; HTTP/1.0 uses it */
    PIECE = 64 * 1000, /* bytes of a streamed body that are made at a time; two chunks hold them */
    SLICE = 8 * 1024,  /* bytes of a piece after which the clock is read */
    LITTLE = 32 * 1024 /* bytes that may be sent under libmicrohttpd's own idle timeout */
};

/* Milliseconds. After OWN_MS on one body, the I/O thread asks the app to have the rest made
 * elsewhere, for TURN_MS at a time. Otherwise a few long answers would keep the thread from all
 * other clients. */
static const double OWN_MS = 0.25, TURN_MS = 0.25;

/* Adds a header. A value of NULL leaves it out. */
static bool add_header(struct MHD_Response *out, const char *name, const char *value) {
    return value == NULL || MHD_add_response_header(out, name, value) == MHD_YES;
}

/* Appends a whole number, or thousandths with their three decimals. It does not use printf, because
 * OpenBLAS loads libquadmath, which registers formats of its own, and then all formats take the
 * slow path of glibc: the four timings took as long as the computation of a small request. */
static char *put_number(char *out, uint64_t number, bool thousandths) {
    char digits[24] = "";
    size_t at = sizeof digits - 1; /* the last NUL ends the text */
    for (int count = 0; number > 0 || count < (thousandths ? 4 : 1); count++) {
        if (thousandths && count == 3) {
            digits[--at] = '.';
        }
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    }
    return stpcpy(out, digits + at);
}

static char *put_timing(char *out, const char *name, double milliseconds) {
    const uint64_t microseconds = milliseconds > 0 ? (uint64_t)(milliseconds * 1e3 + 0.5) : 0;
    return put_number(stpcpy(stpcpy(out, name), ";dur="), microseconds, true);
}

/* Compresses the body with the coding that the client asks for, if that makes it shorter and there
 * is memory. */
static void compress_response(struct http_call *call) {
    struct http_response *response = &call->response;
    const int64_t start = clock_ns();
    /* A whole body exists twice for a moment; then only the compressed one is left. */
    const size_t whole = response->read == NULL ? response->size : 0;
    const size_t memory = coding_stream_memory(call->coding.wish) + 2 * whole;
    if (call->exchange != NULL && !http_call_hold(call, memory)) {
        return; /* it is sent uncompressed */
    }
    if (coding_compress(response, call->coding.wish, call->coding.must)) {
        call->coding.used = call->coding.wish;
    }
    if (call->exchange != NULL && response->read == NULL) {
        http_call_hold(call, 0);
    }
    response->timing[HTTP_TIMING_ENCODE] += clock_ms_since(start);
}

static bool add_timing(struct MHD_Response *out, const double timing[static HTTP_TIMING_COUNT]) {
    char text[160]; /* each of the four timings has less than 40 */
    char *end = put_timing(text, "decode", timing[HTTP_TIMING_DECODE]);
    end = put_timing(end, ", queue", timing[HTTP_TIMING_QUEUE]);
    end = put_timing(end, ", compute", timing[HTTP_TIMING_COMPUTE]);
    put_timing(end, ", encode", timing[HTTP_TIMING_ENCODE]);
    return add_header(out, "Server-Timing", text);
}

/* Adds the headers by which a browser lets a page of another origin see the response. */
static bool add_cors(const struct http_call *call, struct MHD_Response *out) {
    return (call->origin[0] == '\0' ||
            (add_header(out, "Access-Control-Allow-Origin", call->origin) &&
             add_header(out, "Access-Control-Expose-Headers",
                        "X-Request-Id, Server-Timing, Retry-After, "
                        "Inference-Header-Content-Length"))) &&
           (!call->preflight ||
            (add_header(out, "Access-Control-Allow-Methods", "GET, HEAD, POST") &&
             add_header(out, "Access-Control-Allow-Headers",
                        call->server->options.compression
                            ? "Authorization, Content-Encoding, Content-Type, X-Request-Id, "
                              "Inference-Header-Content-Length"
                            : "Authorization, Content-Type, X-Request-Id, "
                              "Inference-Header-Content-Length") &&
             add_header(out, "Access-Control-Max-Age", "600")));
}

/* Names the headers of the request on which the response depends. */
static bool add_vary(const struct http_call *call, struct MHD_Response *out) {
    static const char *const names[] = {
        NULL,
        "Origin",
        "Accept",
        "Origin, Accept",
        "Accept-Encoding",
        "Origin, Accept-Encoding",
        "Accept, Accept-Encoding",
        "Origin, Accept, Accept-Encoding",
    };
    const bool coding = call->server->options.compression || call->response.asset != NULL;
    const unsigned which = (call->server->options.cors_origins != NULL ? 1u : 0) |
                           (call->response.by_accept ? 2u : 0) | (coding ? 4u : 0);
    return add_header(out, "Vary", names[which]);
}

/* Says what caches may do with the response and, for an asset, what the page in it may do. */
static bool add_keeping(const struct http_response *response, struct MHD_Response *out) {
    const struct http_asset *asset = response->asset;
    if (asset == NULL) {
        return add_header(out, "Cache-Control", "no-store");
    }
    return add_header(out, "Cache-Control",
                      asset->immutable ? "public, max-age=31536000, immutable" : "no-cache") &&
           add_header(out, "ETag", asset->tag) &&
           add_header(out, "Content-Security-Policy", response->policy) &&
           add_header(out, "Cross-Origin-Opener-Policy", "same-origin") &&
           add_header(out, "Referrer-Policy", "no-referrer");
}

static bool add_headers(const struct http_call *call, struct MHD_Response *out) {
    const struct http_response *response = &call->response;
    const char *type = response->media_type != NULL ? response->media_type : "application/json";
    const bool empty = (response->size == 0 && response->read == NULL) || response->status == 304;
    const bool coded = call->coding.used != CODING_NONE;
    const bool again = response->status == 503 && !response->lasting;
    char length[24];
    if (response->inference_length > 0) { /* otherwise the text is not read */
        put_number(length, response->inference_length, false);
    }
    return add_vary(call, out) &&
           (call->server->options.cors_origins == NULL || add_cors(call, out)) &&
           add_header(out, "Content-Encoding", coded ? coding_name(call->coding.used) : NULL) &&
           add_header(out, "Accept-Encoding", response->codings) &&
           add_header(out, "WWW-Authenticate", response->status == 401 ? "Bearer" : NULL) &&
           add_header(out, "Content-Type", empty ? NULL : type) &&
           add_header(out, "Inference-Header-Content-Length",
                      response->inference_length > 0 ? length : NULL) &&
           add_header(out, "X-Request-Id", call->id) && add_keeping(response, out) &&
           add_header(out, "X-Content-Type-Options", "nosniff") &&
           add_header(out, "Allow", response->allow) &&
           add_header(out, "Location", response->location) &&
           add_header(out, "Retry-After", again ? "1" : NULL) &&
           (!response->timed || add_timing(out, response->timing)) &&
           add_header(out, "Connection", call->connection->ends ? "close" : NULL);
}

/* A body that is made while it is sent. */
struct http_stream {
    double spent; /* milliseconds for which the I/O thread has made pieces */
    bool ended, failed;
    size_t room;        /* bytes of `piece`; 0: the body is copied where it is to be sent from */
    size_t size, taken; /* piece[taken..size) is to be sent */
    char piece[];
};

_Static_assert(BLOCK + sizeof(struct http_stream) + PIECE <= HTTP_STREAM, "what http.h says");

static bool read_body(struct http_call *call, char *out, size_t room, size_t *size) {
    *size = 0;
    return call->response.read((void *)call->response.body, out, room, size);
}

/* Makes the next piece, or as much of it as can be made in a turn. Returns the milliseconds that
 * this took. Once the server has ended, no piece is made: nobody would get the rest of the answer,
 * and making it would only delay the stop. */
static double make_piece(struct http_call *call) {
    struct http_stream *stream = call->stream;
    const int64_t start = clock_ns();
    double spent = 0;
    stream->size = stream->taken = 0;
    stream->failed |= atomic_load(&call->server->stage) == HTTP_ENDED;
    while (!stream->ended && !stream->failed && stream->size < stream->room && spent < TURN_MS) {
        const size_t left = stream->room - stream->size, room = left < SLICE ? left : SLICE;
        size_t size;
        stream->failed = !read_body(call, stream->piece + stream->size, room, &size);
        stream->ended = size == 0;
        stream->size += size;
        spent = clock_ms_since(start);
    }
    call->response.timing[HTTP_TIMING_ENCODE] += spent;
    return spent;
}

void http_make(struct http_pending *pending) {
    make_piece((struct http_call *)pending);
}

/* Asks the app to make the next piece. Returns false if the caller is to make it. */
static bool make_elsewhere(struct http_call *call) {
    struct http_server *server = call->server;
    if (call->stream->spent < OWN_MS || call->exchange == NULL || server->app->make == NULL) {
        return false;
    }
    atomic_fetch_add(&server->working, 1);
    const bool goes_on = atomic_load(&server->stage) != HTTP_ENDED;
    if (goes_on) {
        watch_pause(&call->connection->watched);
        http_call_suspend(call);
        server->app->make(call->exchange, (struct http_pending *)call);
    }
    atomic_fetch_sub(&server->working, 1);
    return goes_on;
}

/* Notes that libmicrohttpd gets the next `size` bytes of the body. If there are none, the body is
 * at its end, or it is shorter than its Content-Length. */
static ssize_t give(struct http_call *call, size_t size) {
    if (size == 0) {
        return call->response.size > 0 ? MHD_CONTENT_READER_END_WITH_ERROR
                                       : MHD_CONTENT_READER_END_OF_STREAM;
    }
    call->sent += size;
    watch_queue(&call->connection->watched, size);
    return (ssize_t)size;
}

static ssize_t read_stream(void *call_, uint64_t position, char *out, size_t room) {
    struct http_call *call = call_;
    struct http_stream *stream = call->stream;
    size_t size;
    (void)position;
    if (stream->room == 0) {
        read_body(call, out, room, &size);
        return give(call, size);
    }
    if (stream->taken == stream->size && !stream->ended) {
        if (make_elsewhere(call)) {
            return 0;
        }
        stream->spent += make_piece(call);
    }
    if (stream->failed) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size = stream->size - stream->taken;
    size = size < room ? size : room;
    memcpy(out, stream->piece + stream->taken, size);
    stream->taken += size;
    return give(call, size);
}

/* Gives the body to libmicrohttpd, which copies nothing of a whole one. The body lives until
 * http_call_free, which libmicrohttpd calls after the last byte. */
static struct MHD_Response *create_response(struct http_call *call) {
    const struct http_response *response = &call->response;
    const bool sized = response->size > 0;
    if (response->read == NULL) {
        return MHD_create_response_from_buffer(response->size, (void *)response->body,
                                               MHD_RESPMEM_PERSISTENT);
    }
    /* Chunks are written into libmicrohttpd's buffer for heads, and bodies of a known size into its
     * block. */
    const size_t block = !sized ? BLOCK : response->copies ? PIECE : PIECE / 2;
    const size_t room = !sized ? PIECE : PIECE - block;
    call->stream = malloc(sizeof *call->stream + room);
    if (call->stream == NULL) {
        return NULL;
    }
    *call->stream = (struct http_stream){.room = room};
    return MHD_create_response_from_callback(sized ? response->size : MHD_SIZE_UNKNOWN, block,
                                             read_stream, call, NULL);
}

/* Begins the deadline of the response. libmicrohttpd would close a connection as idle while its
 * client is still taking bytes from the buffer of the kernel. So while more than LITTLE is sent,
 * only the watch ends the connection. */
static void begin_sending(struct http_call *call) {
    struct watched *watched = &call->connection->watched;
    const bool streams = call->response.read != NULL;
    watch_send(watched, INT64_C(1000) * call->server->options.write_timeout,
               streams ? 0 : call->response.size);
    if (streams || atomic_load_explicit(&watched->queued, memory_order_relaxed) > LITTLE) {
        call->connection->untimed = true;
        MHD_set_connection_option(call->connection->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    }
}

/* Returns whether the response may be compressed. In the Open Inference Protocol, only results are:
 * tritonclient's asyncio client accepts gzip for every answer, but it inflates only results. */
static bool may_compress(const struct http_call *call) {
    const bool result = call->response.timed && call->response.status == 200;
    return call->coding.wish != CODING_NONE &&
           (result || call->coding.must || !call->request.inference);
}

enum MHD_Result respond_send(struct http_call *call) {
    struct http_response *response = &call->response;
    response->timing[HTTP_TIMING_DECODE] += call->body.inflate_ms;
    if (may_compress(call)) {
        compress_response(call);
    }
    const bool streams = response->read != NULL;
    struct MHD_Response *out = create_response(call);
    if (out == NULL) {
        return MHD_NO;
    }
    enum MHD_Result result = MHD_NO;
    begin_sending(call);
    call->connection->ends = response->close || atomic_load(&call->server->stage) != HTTP_SERVING;
    if (add_headers(call, out)) {
        result = MHD_queue_response(call->connection->mhd, (unsigned)response->status, out);
    }
    MHD_destroy_response(out);
    call->status = result == MHD_YES && !call->client_left ? response->status : 0;
    call->sent = streams || call->request.head || response->status == 304 ? 0 : response->size;
    return result;
}

void respond_alone(struct http_call *call, bool body) {
    const struct http_response *response = &call->response;
    const struct http_connection *own = call->connection;
    const size_t size = body ? response->size : 0;
    const size_t sent = call->request.head ? 0 : size;
    char text[2048], date[40] = "";
    struct tm now;
    const time_t seconds = time(NULL);
    gmtime_r(&seconds, &now);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &now);
    const int head = snprintf(text, sizeof text,
                              "HTTP/1.1 %d %s\r\nDate: %s\r\nConnection: close\r\n"
                              "Content-Type: %s\r\nX-Request-Id: %s\r\nCache-Control: no-store\r\n"
                              "X-Content-Type-Options: nosniff\r\nContent-Length: %zu\r\n\r\n",
                              response->status, http_title(response->status), date,
                              response->media_type, call->id, size);
    if (head > 0 && (size_t)head + sent <= sizeof text) {
        memcpy(text + head, response->body, sent);
        const union MHD_ConnectionInfo *tls =
            own->pair != NULL
                ? MHD_get_connection_info(own->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION)
                : NULL;
        if (tls != NULL) {
            tls_send(tls->tls_session, text, (size_t)head + sent);
        } else {
            send(own->watched.fd, text, (size_t)head + sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
        call->status = response->status;
        call->sent = sent;
    }
    shutdown(own->watched.fd, SHUT_WR);
}
