/*
 * http.h - HTTP/1.1 over libmicrohttpd: connections, framing checks, limits, timers, request ids.
 * Knows nothing of JSON bodies or attention: an http_app turns requests into responses.
 */
#ifndef HTTP_H
#define HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_server;

/* ---------------------------------------------------------------------- requests and responses */

struct http_request {
    const char *method; /* "GET", "POST", ...; HEAD arrives as "GET" with head = true */
    const char *path;   /* without the query, percent-decoded */
    /* Of the body: lower case, without parameters; "" if there is no such header. */
    const char *media_type;
    uint64_t length; /* of the body; 0 if that is not known before: in chunks, or compressed */
    /* X-Request-Id: the client's if it is 1..128 visible ASCII characters, else made. */
    const char *id;
    bool head;
    bool draining;   /* the server is about to stop */
    bool authorized; /* it has a key, or none is needed */
    bool no_bearer;  /* it has an Authorization header that is not "Bearer KEY" */
    const struct http_server *server;
};

enum {
    HTTP_TIMING_DECODE,
    HTTP_TIMING_QUEUE,
    HTTP_TIMING_COMPUTE,
    HTTP_TIMING_ENCODE,
    HTTP_TIMING_COUNT
};

/* A body that never changes while the server runs, as it is and in codings (size 0: not in that
 * one), all in static memory. It may be kept by caches, as long as it has the same tag. */
struct http_asset {
    const char *media_type;
    const char *tag;    /* the ETag header: a weak one, for all codings of it */
    const char *policy; /* the Content-Security-Policy header */
    bool immutable;     /* its name is that of this content: never ask again */
    struct http_form {
        const char *bytes;
        size_t size;
    } plain, gzip, brotli;
};

/* Zero-initialised before it is handed to the app. */
struct http_response {
    int status;             /* e.g. 200; with 503 goes "Retry-After: 1" */
    const char *media_type; /* static; NULL = application/json */
    const char *allow;      /* static; the Allow header of a 405 */
    const char *codings;    /* static; the Accept-Encoding header of a 415 */
    const char
        *refused; /* static; why it is refused, for the summaries in the log; NULL = it is not */
    bool close;   /* end the connection after this response */
    const void *body; /* `size` bytes */
    size_t size;
    /* Called once when the body is sent or dropped; NULL = the body is static. */
    void (*release)(void *body);
    /* Static. The body is that of the asset; the server makes it another form of it, or a 304, as
     * the request wants, whatever its options say of compression. */
    const struct http_asset *asset;
    /* For a body that is made while it is sent, in chunks: `body` is what makes it, `size` is 0.
     * Writes the next bytes, at most `room`; none at the end of the body. False = it cannot go on:
     * the connection is cut. On an I/O thread or where http_make is called, one call at a time;
     * the exchange is released after the last one. The server holds HTTP_STREAM bytes for it. */
    bool (*read)(void *body, char *out, size_t room, size_t *size);
    bool timed;                       /* Server-Timing is sent */
    double timing[HTTP_TIMING_COUNT]; /* milliseconds */
};

/* A byte of a body: its offset, and the line and column for an editor, which count from 1. */
struct http_place {
    uint64_t offset, line, column;
};

/* Fills `response` with an RFC 9457 problem document (application/problem+json):
 * {"type":"about:blank","title":..,"status":..,"detail":..,"pointer":..,"offset":..,"line":..,
 * "column":..,"request_id":..}.
 * A `pointer` or `place` of NULL leaves its members out. `detail` is cut to valid UTF-8; control
 * characters are escaped. If memory runs out the body is a static 503 problem. */
void http_problem(struct http_response *response, const struct http_request *request, int status,
                  const char *detail, const char *pointer, const struct http_place *place);

/* How a request ended. */
struct http_record {
    int status; /* 0: the client left before there was a response */
    /* Bytes of the bodies, compressed ones as they are; at least what libmicrohttpd had of them. */
    uint64_t received, sent;
    double seconds;       /* since the headers were complete */
    const double *timing; /* of the response; NULL if it was not timed */
};

enum {
    HTTP_STREAM =
        72 * 1024 /* bytes that the server holds of a body that is made while it is sent */
};

/* A request whose answer is computed, or a piece of it made, elsewhere meanwhile. */
struct http_pending;

/*
 * The application. For each request whose framing is sound, on one I/O thread:
 *   begin   headers are complete. Returns an exchange (owned by the server until release) that
 *           wants the body, or NULL after filling `response`: the body, if any, is then read and
 *           dropped before it is sent.
 *   hold    the server itself holds so many bytes for reading a compressed body, until it says
 *           another number. false: too many; the rest of the body is not needed. NULL: all is well.
 *           After `end` (and http_resume): for compressing an answer, until release.
 *   body    the next bytes of the body, decompressed. false = the rest is not needed: it is read
 *           and dropped.
 *   end     the body is complete. Returns true after filling `response`, or false: the answer
 *           comes later. Called exactly once for each exchange unless the client left or the body
 *           was refused (too large).
 *   start   after an `end` that returned false. Nothing is done with the connection until
 *           http_resume(pending) is called, once, from any thread; `request` and `response` of
 *           `end` live until then, and `response` is filled by then.
 *   cancel  from about start until http_resume, on any thread, perhaps: nobody waits for the
 *           answer any more. http_resume must be called nevertheless, and should be soon.
 *   make    the I/O thread has spent enough on a body that is made while it is sent. The app has
 *           another thread call http_make(pending), which makes the next piece, and then
 *           http_resume(pending), each once. Nothing is done with the connection until then. NULL:
 *           I/O threads make all pieces.
 *   release the exchange ends: its answer is sent or dropped. NULL never arrives.
 *   completed  the request has ended, whether it came to `begin` or not. NULL: nobody wants to
 *           know.
 */
struct http_app {
    void *context;
    void *(*begin)(void *context, const struct http_request *request,
                   struct http_response *response);
    bool (*hold)(void *exchange, size_t bytes);
    bool (*body)(void *exchange, const void *bytes, size_t size);
    bool (*end)(void *exchange, const struct http_request *request, struct http_response *response);
    void (*start)(void *exchange, struct http_pending *pending);
    void (*cancel)(void *exchange);
    void (*make)(void *exchange, struct http_pending *pending);
    void (*release)(void *exchange);
    void (*completed)(void *context, const struct http_request *request,
                      const struct http_record *record);
};

/* Makes the next piece of a body. That takes a fraction of a millisecond, or some milliseconds if
 * it is compressed. */
void http_make(struct http_pending *pending);

/* The answer or its next piece is there. The exchange may be released before this returns. */
void http_resume(struct http_pending *pending);

/* ---------------------------------------------------------------------------------- the server */

struct http_log_options {
    bool json;        /* else text */
    bool requests;    /* a line for each */
    const char *file; /* NULL = standard error */
};

struct http_options {
    struct http_log_options log;
    const char *address; /* "127.0.0.1", "0.0.0.0", "::1", "::" */
    unsigned port;       /* 0 = a free one */
    unsigned threads;    /* I/O threads */
    size_t max_body;     /* bytes, compressed and decompressed; more is a 413 */
    bool compression;    /* bodies may be compressed, either way; see coding.h */
    unsigned max_connections;
    unsigned idle_timeout; /* seconds without a byte until a connection is closed */
    /* Seconds: for the headers, from the connection or the last response on; for a body and for a
     * response, beside one more for each 64 KiB. */
    unsigned header_timeout, body_timeout, write_timeout;
    /* See tls.h; both NULL: plain HTTP. */
    const char *tls_certificate, *tls_key;
    const char *api_key_file; /* see keys.h; NULL: everybody is authorized */
    const char *cors_origins; /* see cors.h; NULL: none */
    unsigned drain_delay;     /* seconds that http_stop goes on accepting */
    unsigned drain_timeout;   /* seconds that it then gives the requests that are there */
};

/* Listens and serves on threads of its own. Borrows `app` until http_stop. Returns owned; NULL
 * with the reason in error[0..size). */
struct http_server *http_start(const struct http_options *options, const struct http_app *app,
                               char *error, size_t size);

struct http_load {
    unsigned connections, requests; /* open; between their headers and the end of their response */
    unsigned begun;                 /* requests, ever; wraps around */
};

struct http_load http_load(const struct http_server *server);

/* Opens the log again and reads the keys and the certificate again. What fails stays as it was. The
 * log says what was done. */
void http_reload(struct http_server *server);

/* The port that is really listened on. */
unsigned http_port(const struct http_server *server);

/* Lets every response end its connection and requests be `draining`; goes on accepting for the
 * drain delay, in which load balancers notice; then stops accepting, gives the requests that are
 * being answered the drain timeout, cancels and cuts off the rest (a slow client, say), frees the
 * server and returns true. NULL is fine. False: a second later the app was still at work on a
 * request. Then nothing is freed, no further request reaches the app, and either http_stop is
 * called again, or the process ends by _exit: exit would take away what the app is using. */
bool http_stop(struct http_server *server);

#endif
