/*
 * http.h - HTTP/1.1 over libmicrohttpd: connections, framing checks, limits, deadlines, request
 * ids. A struct http_app turns requests into responses; this folder knows nothing of JSON bodies or
 * attention.
 *
 * A connection is suspended while another thread makes an answer or a part of it. HTTP_STATUSES is
 * the one map of statuses.
 */
#ifndef HTTP_H
#define HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_server;

/* ---------------------------------------------------------------------- requests and responses */

/* The statuses of all responses, with their standard reason phrases. The order is that of the
 * metrics; a status that is missing here is counted there as the last one. */
#define HTTP_STATUSES(X)                                                                           \
    X(200, "OK")                                                                                   \
    X(204, "No Content")                                                                           \
    X(304, "Not Modified")                                                                         \
    X(308, "Permanent Redirect")                                                                   \
    X(400, "Bad Request")                                                                          \
    X(401, "Unauthorized")                                                                         \
    X(404, "Not Found")                                                                            \
    X(405, "Method Not Allowed")                                                                   \
    X(409, "Conflict")                                                                             \
    X(411, "Length Required")                                                                      \
    X(413, "Content Too Large")                                                                    \
    X(414, "URI Too Long")                                                                         \
    X(415, "Unsupported Media Type")                                                               \
    X(417, "Expectation Failed")                                                                   \
    X(422, "Unprocessable Content")                                                                \
    X(431, "Request Header Fields Too Large")                                                      \
    X(501, "Not Implemented")                                                                      \
    X(503, "Service Unavailable")                                                                  \
    X(505, "HTTP Version Not Supported")

#define HTTP_COUNT_STATUS(code, title) +1
enum {
    HTTP_STATUS_COUNT = 0 HTTP_STATUSES(HTTP_COUNT_STATUS)
};

/* A parameter of the query of a request, such as limit=10. Both texts are percent-decoded. */
struct http_parameter {
    const char *name, *value;
};

enum {
    HTTP_PARAMETERS = 4 /* so many parameters of a query are kept; no route takes more */
};

struct http_request {
    const char *method;     /* "GET", "POST", ...; "GET" with head = true stands for HEAD */
    const char *path;       /* percent-decoded, without the query */
    const void *route;      /* what the app has found at the path */
    const char *media_type; /* the body's, lower case, without parameters; "" = not given */
    uint64_t length;        /* bytes of the body; 0 if it is chunked or compressed */
    const char *accept;     /* the first Accept header; "" = not given */
    /* The Inference-Header-Content-Length header, as it was sent; NULL = not given. */
    const char *inference_header;
    /* X-Request-Id: the client's if it has 1..128 visible ASCII characters; else made here. */
    const char *id;
    bool head;
    bool draining;   /* the server is about to stop */
    bool authorized; /* the request has a valid key, or no key is needed */
    struct http_parameter parameters[HTTP_PARAMETERS]; /* the first ones of the query */
    size_t parameter_count;                            /* of the whole query */
    bool no_bearer; /* the request has an Authorization header that is not "Bearer KEY" */
    bool inference; /* the path is of the Open Inference Protocol; see struct http_app */
    const struct http_server *server;
};

enum {
    HTTP_TIMING_DECODE,
    HTTP_TIMING_QUEUE,
    HTTP_TIMING_COMPUTE,
    HTTP_TIMING_ENCODE,
    HTTP_TIMING_COUNT
};

/* A body that never changes while the server runs, plain and in codings, all in static memory. A
 * form of size 0 does not exist. Caches may keep the body as long as it has the same tag. */
struct http_asset {
    const char *media_type;
    const char *tag; /* the ETag header: one weak tag for all codings */
    bool immutable;  /* another content has another name, so caches need never ask again */
    struct http_form {
        const char *bytes;
        size_t size;
    } plain, gzip, brotli;
};

/* The app gets a response that is all zero. Its strings are static. */
struct http_response {
    int status;             /* e.g. 200; a 503 is sent with "Retry-After: 1" unless it lasts */
    const char *media_type; /* NULL = application/json */
    const char *allow;      /* the Allow header of a 405 */
    const char *location;   /* the Location header of a 308 */
    const char *codings;    /* the Accept-Encoding header of a 415 */
    /* The reason of a refusal, such as "over --max-body", which the summaries in the log count;
     * NULL = this is not such a refusal. */
    const char *refused;
    bool lasting;     /* a 503 that the same request would get again: it has no Retry-After */
    bool by_accept;   /* the Accept header has chosen the format; Vary says so */
    bool close;       /* end the connection after this response */
    const void *body; /* `size` bytes */
    size_t size;
    /* Called once when the body was sent or dropped; NULL = the body is static, or it lives as long
     * as the exchange. */
    void (*release)(void *body);
    size_t inference_length; /* the Inference-Header-Content-Length header; 0 = none */
    /* Static; NULL = the body is no asset. The server replaces the body by the form of the asset
     * that the request asks for, or the response by a 304. It does so with and without
     * http_options.compression. */
    const struct http_asset *asset;
    const char *policy; /* of an asset: its Content-Security-Policy; kept as long as the server */
    /* Writes the next bytes of a body that is made while it is sent; NULL = the body is whole.
     * `body` is then what makes the bytes, and the `size` above is the number of bytes that it will
     * make, or 0 if that is not known: then the body is sent in chunks. Writes at most
     * `room` bytes, and none at the end of the body. Returns false if it cannot go on: the
     * connection is then cut off, as it is if the body ends before its `size`. It is called on an
     * I/O thread or by http_make, never twice at the same time. The exchange is released after the
     * last call. The server holds HTTP_STREAM bytes for it. */
    bool (*read)(void *body, char *out, size_t room, size_t *size);
    /* `read` only copies bytes, and `size` is known. Its bytes then go straight into the buffer
     * from which they are sent, and no other thread is asked to make them. */
    bool copies;
    bool timed;                       /* Server-Timing is sent */
    double timing[HTTP_TIMING_COUNT]; /* milliseconds */
};

/* Returns the weight that an Accept header (NULL: none) gives a media type by its name, in
 * thousandths (RFC 9110 section 12.5.1), or -1 if it does not name it. A malformed weight counts as
 * none. */
int http_accepts(const char *accept, const char *type);

/* The place of a byte in a body: its offset, and its line and column for an editor, which both
 * count from 1. */
struct http_place {
    uint64_t offset, line, column;
};

/* Returns the standard reason phrase of a status. Static. */
const char *http_title(int status);

/* Fills `response` with an RFC 9457 problem document (application/problem+json):
 * {"type":"about:blank","title":..,"status":..,"detail":..,"pointer":..,"offset":..,"line":..,
 * "column":..,"request_id":..}.
 * A `pointer` or `place` of NULL leaves its members out. `detail` is cut to valid UTF-8, and its
 * control characters are escaped. If memory runs out, the body is a static 503 problem. If the
 * request is of the Open Inference Protocol, the body is {"error":detail} as application/json. */
__attribute__((cold)) void http_problem(struct http_response *response,
                                        const struct http_request *request, int status,
                                        const char *detail, const char *pointer,
                                        const struct http_place *place);

/* The record of a request that has ended, for the log and the metrics. */
struct http_record {
    int status; /* 0: the client left before there was a response */
    /* Bytes of the bodies, in their codings. Of a body that was not sent completely, these are the
     * bytes that libmicrohttpd was given. */
    uint64_t received, sent;
    double seconds;       /* since the head was complete */
    const double *timing; /* see struct http_response; NULL = the response was not timed */
};

enum {
    /* The bytes that the server holds for a body that is made while it is sent. */
    HTTP_STREAM = 72 * 1024
};

/* A pending request: its answer, or a piece of its body, is being made elsewhere. */
struct http_pending;

/*
 * The application. The server calls it for each request whose framing is sound, on one I/O thread
 * unless said otherwise:
 *   find    Returns what is at a path, or NULL; the request keeps it as `route`. NULL: no request
 *           has one.
 *   shorter Returns what is added to the text of a 413 for a body that is too long: how the same
 *           request may be shorter, or an empty text. It is static. NULL: nothing is added.
 *   begin   The head is complete. Returns an exchange, which the server owns until release, to get
 *           the body. Or fills `response` and returns NULL: the body, if there is one, is then read
 *           and dropped before the response is sent.
 *   hold    The server itself now holds `bytes` bytes for inflating the body; each call replaces
 *           the number. Returns false if these are too many: the rest of the body is then dropped.
 *           After `end` (and http_resume) the bytes are those for compressing the answer, until
 *           release. NULL: any number is fine.
 *   body    Takes the next bytes of the body, decompressed. Returns false if the app does not need
 *           the rest: it is then read and dropped.
 *   end     The body is complete. Fills `response` and returns true, or returns false if the answer
 *           comes later. It is called exactly once for each exchange, unless the client left or the
 *           body was refused (too large).
 *   start   Follows an `end` that returned false. Nothing happens to the connection until
 *           http_resume(pending) is called, once, from any thread. The `request` and the `response`
 *           of `end` live until then, and `response` must be filled by then.
 *   cancel  Nobody waits for the answer any more. It is called, on any thread, at any time from
 *           just before `start` until http_resume, or not at all. http_resume must be called
 *           nevertheless, and should be called soon.
 *   make    The I/O thread has spent enough on a body that is made while it is sent. The app has
 *           another thread call http_make(pending), which makes the next piece, and then
 *           http_resume(pending), each once. Nothing happens to the connection until then. NULL:
 *           the I/O threads make all pieces.
 *   release The exchange ends: its answer was sent or dropped. It is never called with NULL.
 *   completed  The request has ended, whether or not it reached `begin`. NULL: the app does not
 *           need to know.
 */
struct http_app {
    void *context;
    /* The path of the Open Inference Protocol, such as "/v2"; NULL = none. For this path and all
     * paths below it, problems are {"error": "detail"} as application/json, and only a 200 that is
     * `timed` is compressed. */
    const char *inference_path;
    const void *(*find)(const char *path);
    const char *(*shorter)(const struct http_request *request);
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

/* Makes the next piece of a body. This takes a fraction of a millisecond, or some milliseconds if
 * the body is compressed. */
void http_make(struct http_pending *pending);

/* Says that the answer, or the next piece of its body, is there. The exchange may be released
 * before this returns. */
void http_resume(struct http_pending *pending);

/* ---------------------------------------------------------------------------------- the server */

struct http_log_options {
    bool json;        /* else text */
    bool requests;    /* one line for each request */
    const char *file; /* NULL = standard error */
};

struct http_options {
    struct http_log_options log;
    const char *address; /* "127.0.0.1", "0.0.0.0", "::1", "::" */
    unsigned port;       /* 0 = a free port */
    unsigned threads;    /* I/O threads */
    size_t max_body;     /* bytes, compressed and decompressed; a longer body is a 413 */
    bool compression;    /* bodies of requests and of responses may be compressed; see coding.h */
    unsigned max_connections;
    unsigned idle_timeout; /* seconds without a byte after which a connection is closed */
    /* Deadlines in seconds. header_timeout is for the head of a request; it begins with the
     * connection or after the last response. body_timeout and write_timeout are for the body of a
     * request and for a response; each 64 KiB give one second more. */
    unsigned header_timeout, body_timeout, write_timeout;
    const char *tls_certificate, *tls_key; /* see tls.h; both NULL = plain HTTP */
    const char *api_key_file;              /* see keys.h; NULL = every request is authorized */
    const char *cors_origins;              /* see cors.h; NULL = no origin */
    unsigned drain_delay;   /* seconds for which http_stop goes on accepting connections */
    unsigned drain_timeout; /* seconds that the requests in work have after that */
};

/* Listens and serves on threads of its own. Borrows `app` until http_stop. Returns owned; NULL
 * with the reason in error[0..size). */
struct http_server *http_start(const struct http_options *options, const struct http_app *app,
                               char *error, size_t size);

struct http_load {
    unsigned connections; /* open connections */
    unsigned requests;    /* requests that were begun and whose response has not ended */
    unsigned begun;       /* requests since the start; wraps around */
};

struct http_load http_load(const struct http_server *server);

/* Opens the log anew, and reads the keys and the certificate anew. If one of these fails, its old
 * state stays. The log says what was done. */
void http_reload(struct http_server *server);

/* Returns the port that the server listens on. */
unsigned http_port(const struct http_server *server);

/* Stops the server and frees it. From now on every response ends its connection, and requests are
 * `draining`. The server goes on accepting connections for the drain delay, so that load balancers
 * notice. Then it stops accepting, gives the requests in work the drain timeout, and cancels and
 * cuts off the rest (a slow client, for example). Returns true, also for NULL. Returns false if the
 * app is still at work on a request one second later. Then nothing is freed and no further request
 * reaches the app; the caller either calls http_stop again or ends the process by _exit, because
 * exit would take away what the app is using. */
bool http_stop(struct http_server *server);

#endif
