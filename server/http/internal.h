/*
 * internal.h - the types that the files around libmicrohttpd share: a server, a connection, and a
 * call, which is one request with its response. server.c has the server and its connections,
 * handler.c takes a request from its head to its end, body.c has its body and respond.c its
 * response. http_call.c has what these three need of a call.
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
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The stages of a server, in the order in which it passes through them. */
enum http_stage {
    HTTP_SERVING,
    HTTP_DRAINING, /* every response ends its connection */
    HTTP_CLOSED,   /* no further request is begun */
    HTTP_ENDED     /* the handler does nothing more */
};

struct http_server {
    const struct http_app *app;
    struct MHD_Daemon *daemon;
    struct http_options options; /* with the port and the connections that there are */
    struct request_ids ids;
    struct watch *watch;
    struct keys *keys; /* NULL: every request is authorized */
    struct tls *tls;   /* NULL: plain HTTP */
    atomic_uint connections;
    atomic_uint requests; /* requests that were begun and whose response has not ended */
    atomic_uint begun;    /* requests since the start; wraps around */
    atomic_uint pending;  /* requests whose answer, or a piece of it, is made elsewhere */
    /* Threads that are in the handler or about to suspend a connection: they may be in the app. */
    atomic_uint working;
    _Atomic enum http_stage stage;
    int listening; /* the socket, which libmicrohttpd owns */
};

/* A connection. It lives between the two calls of on_connection, or until on_ended if it lingers.
 * on_leave and on_ended cast `watched` to the connection, so it is the first member. */
struct http_connection {
    struct watched watched;
    struct http_server *server;
    struct MHD_Connection *mhd; /* the connection in libmicrohttpd */
    struct tls_pair *pair;      /* the certificate and key of the TLS session, or NULL */
    struct http_call *call;     /* the call that was pending last */
    struct http_call *idle;     /* owned; memory for the next call, or NULL */
    bool untimed;               /* libmicrohttpd's idle timeout is off */
    struct http_connection *next_head, *previous_head; /* neighbours in the list of handler.c */
    pthread_t thread;                                  /* the I/O thread of the connection */
    bool waits;    /* it is in that list: the head of the next request has not come as a whole */
    bool targeted; /* the target of that head has come */
    bool served;   /* a request has reached the handler */
    bool ends;     /* the last response that was queued says that the server closes it */
    const char *target; /* raw, of the last request, in libmicrohttpd's buffer; NULL: none yet */
    size_t target_size;
};

/* The body of a request, as it arrives. */
struct http_body {
    bool wanted;                  /* the app wants more of it */
    uint64_t received;            /* bytes, as they were sent */
    uint64_t pieces;              /* pieces in which these bytes were received */
    struct coding_reader *reader; /* decodes a compressed body while the app wants it; else NULL */
    uint64_t inflated;            /* bytes that the reader has given */
    double inflate_ms;
};

/* The coding of a response. */
struct http_coding {
    enum coding wish; /* the coding that the client prefers */
    bool must;        /* the client rules out a response without a coding */
    enum coding used;
};

/* A call: one request with its response. It lives from the first step of the handler to
 * handler_on_completed, on one I/O thread. libmicrohttpd borrows the body of the response. */
struct http_call {
    struct http_server *server;
    struct http_connection *connection;
    int64_t begun_ns;            /* clock_ns() when the head was complete */
    struct http_request request; /* points into this struct */
    struct http_body body;
    void *exchange;   /* the app's; NULL if it answered at once, or when released */
    bool answered;    /* `response` is complete; the rest of the body is dropped */
    bool client_left; /* the client left while the answer was made */
    bool preflight;   /* the response answers a CORS preflight request */
    struct http_response response;
    struct http_coding coding;
    struct http_stream *stream; /* owned; see respond.c */
    int status;    /* the status of the queued response; 0: none was queued, or the client left */
    uint64_t sent; /* bytes of the body of the response */
    char method[8];
    char id[FRAMING_MAX_ID + 1];
    char media_type[128];
    char origin[256]; /* the origin of a web page that may see the response; "" = none */
    size_t path_room; /* bytes of `path` */
    char path[];
};

/* ---------------------------------------------------------------------------------- handler.c */

/* Callbacks of libmicrohttpd. They are called for the target of a request, for each step of it (its
 * head, each piece of its body, its end), and after its response. */
void *handler_on_target(void *unused, const char *raw, struct MHD_Connection *connection);
enum MHD_Result handler_on_step(void *server, struct MHD_Connection *connection, const char *url,
                                const char *method, const char *version, const char *bytes,
                                size_t *size, void **closure);
void handler_on_completed(void *unused, struct MHD_Connection *connection, void **closure,
                          enum MHD_RequestTerminationCode code);

/* The connection waits for the head of a request, or waits no longer. The I/O thread of the
 * connection calls these. */
void handler_await_head(struct http_connection *own);
void handler_forget_head(struct http_connection *own);

/* libmicrohttpd is about to refuse a request of this thread with a page of its own. */
void handler_on_refusal(int status);

/* ------------------------------------------------------------------------------------- body.c */

/* Sets the deadline of the body, which grows with the bytes that have arrived. */
void body_set_deadline(struct http_call *call);

/* Takes the next piece of the body, except for its last *left bytes, which are to be given again.
 * Returns false if the connection must be cut off, because no response can be queued between two
 * pieces. */
bool body_take(struct http_call *call, const void *bytes, size_t size, size_t *left);

/* Checks at the end of the body that a compressed one is complete, and refuses it otherwise. */
void body_end(struct http_call *call);

/* ---------------------------------------------------------------------------------- respond.c */

/* Queues call->response. Returns MHD_NO if that fails; libmicrohttpd then cuts off the connection.
 */
enum MHD_Result respond_send(struct http_call *call);

/* Sends call->response on the socket of a connection whose request libmicrohttpd refuses, and lets
 * nothing follow it. Without `body` the body is left out, because the method is not known. */
void respond_alone(struct http_call *call, bool body);

/* -------------------------------------------------------------------------------- http_call.c */

/* Creates the call of a request. `method` is one that the filter let through, unless the request is
 * refused. Returns NULL if memory runs out. */
struct http_call *http_call_create(struct http_connection *connection, const char *url,
                                   const char *method, const struct framing_result *framing);

/* Ends the call. Its connection may keep the memory for the next call. */
void http_call_free(struct http_call *call);

/* Answers with a problem document instead of the app, whose exchange is released. */
__attribute__((cold, format(printf, 3, 4))) void
http_call_refuse(struct http_call *call, int status, const char *format, ...);

/* Refuses a body that is over --max-body. The format says how large the body is. */
__attribute__((cold, format(printf, 2, 3))) void http_call_refuse_size(struct http_call *call,
                                                                       const char *format, ...);

/* Tells the app how many bytes of memory a coding takes. Returns false if these are too many. */
bool http_call_hold(struct http_call *call, size_t bytes);

/* Makes the call pending: libmicrohttpd leaves the connection alone until http_resume, which the
 * app may call at once. */
void http_call_suspend(struct http_call *call);

#endif
