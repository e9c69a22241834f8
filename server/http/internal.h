/*
 * internal.h - what the files of this room that know libmicrohttpd share: a server, a connection, a
 * call (one request and its response). server.c has their beginning and end, handler.c the handler
 * that libmicrohttpd calls, respond.c what it sends.
 */
#ifndef HTTP_INTERNAL_H
#define HTTP_INTERNAL_H

#include "clock.h"
#include "http/coding.h"
#include "http/framing.h"
#include "http/http.h"
#include "http/request_id.h"
#include "http/watch.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Of a server, one after the other. */
enum call_stage {
    CALL_SERVING,
    CALL_DRAINING, /* every response ends its connection */
    CALL_CLOSED,   /* no request is begun any more */
    CALL_ENDED     /* the handler does nothing any more */
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
    atomic_uint working;  /* threads in the handler or about to suspend, so perhaps in the app */
    atomic_uint pending;  /* requests whose answer, or a piece of it, is made elsewhere */
    _Atomic enum call_stage stage;
    int listening; /* the socket, which libmicrohttpd owns */
};

/* One connection. Lives from on_connection to on_connection, or on_ended. */
struct connection {
    struct watched watched; /* first, for on_leave and on_ended */
    struct http_server *server;
    struct tls_pair *pair;  /* that its session uses */
    struct http_call *call; /* that is pending */
    bool untimed;           /* libmicrohttpd does not ask whether it is idle */
    const char *target;     /* of the request that is being read, where libmicrohttpd has it */
    size_t target_size;
    bool ends; /* with the response that was queued last, because the server says so */
};

/* One request. Lives from the first call of the handler to call_completed, on one I/O thread. */
struct http_call {
    struct http_server *server;
    struct MHD_Connection *suspended; /* while pending */
    struct stream *stream; /* its body, if that is made while it is sent; see respond.c */
    struct connection *connection;
    int64_t begun;               /* clock_ns() when the headers were complete */
    int status;                  /* of the response that was queued, or 0 */
    uint64_t sent;               /* bytes of its body */
    struct http_request request; /* points into this struct, and `path` */
    struct http_response response;
    void *exchange;  /* the app's; NULL if it has answered at once, or was released */
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

/* Callbacks of libmicrohttpd: for a request's target, for each step of it, after its end. */
void *call_target(void *unused, const char *raw, struct MHD_Connection *connection);
enum MHD_Result call_handle(void *server, struct MHD_Connection *connection, const char *url,
                            const char *method, const char *version, const char *bytes,
                            size_t *size, void **closure);
void call_completed(void *unused, struct MHD_Connection *connection, void **closure,
                    enum MHD_RequestTerminationCode code);

/* Tells the app how many bytes the coding of a body holds, if that has changed. False: too many. */
bool call_hold(struct http_call *call, size_t bytes);

/* Libmicrohttpd leaves the connection alone until http_resume, which the app may call at once. */
void call_suspend(struct http_call *call, struct MHD_Connection *connection);

/* Releases what the app has of the call. */
void call_release_exchange(struct http_call *call);

/* Sends call->response. MHD_NO: nothing could be sent, the connection is to be cut. */
enum MHD_Result call_respond(struct http_call *call, struct MHD_Connection *connection);

#endif
