/*
 * watch.h - deadlines of connections, and clients that leave. libmicrohttpd only closes connections
 * that are idle, so a client that sends or takes a byte now and then would be served for ever. And
 * it does not look at a connection while its answer is made elsewhere, so the watch notices clients
 * that leave meanwhile. The watch also goes on reading from connections that the server has ended,
 * so that their clients get the answer.
 */
#ifndef HTTP_WATCH_H
#define HTTP_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    /* The least rate in bytes per millisecond: each WATCH_SLOWEST bytes of a body or a response
     * give the client one millisecond more. */
    WATCH_SLOWEST = 64
};

/* A connection that is watched. The caller owns it and keeps it from watch_add to watch_remove. */
struct watched {
    int fd;
    /* clock_ms() after which the connection is cut off, or after which the watching thread asks how
     * much of the response the client has taken; 0 = none. */
    _Atomic int64_t deadline;
    void (*leave)(struct watched *); /* called once when the client leaves; NULL = never */
    _Atomic bool sending;  /* a response is being sent: a client that only reads is still there */
    _Atomic int64_t begun; /* clock_ms() when the response began */
    _Atomic int64_t patience; /* milliseconds that the client has for the response */
    _Atomic uint64_t queued;  /* bytes of the response, and of earlier ones that were not taken */
    _Atomic uint64_t taken;   /* bytes of `queued` that the client had taken at `took` */
    _Atomic int64_t took;     /* clock_ms() when the watching thread saw `taken` grow */
    uint64_t recent;   /* bytes of responses since the kernel was last asked how many are untaken */
    int64_t paused;    /* clock_ms() at watch_pause */
    int64_t rest;      /* the deadline at watch_pause */
    _Atomic bool busy; /* a request is being read or answered */
    unsigned gone;     /* checks in a row that saw nothing but the client's end */
    unsigned late;     /* checks in a row that saw unread bytes after the deadline */
    void (*ended)(struct watched *); /* called when a connection that lingers has ended */
    bool answer_untaken;             /* lingers longer: the client still takes the answer */
    struct watched *next, *previous;
};

struct watch;

/* Starts the thread that looks at all connections, ten times in a second. NULL if it cannot. */
struct watch *watch_start(void);

/* Stops the thread and frees the watch, after the last connection that lingers has ended. All
 * others must have been removed before. NULL is fine. */
void watch_stop(struct watch *watch);

void watch_add(struct watch *watch, struct watched *watched, int fd);
void watch_remove(struct watch *watch, struct watched *watched);

/* These set the deadline: to a time of clock_ms(), or to so many milliseconds from now. */
void watch_until(struct watched *watched, int64_t time);
void watch_for(struct watched *watched, int64_t milliseconds);

/* Says that a response begins, of which `bytes` bytes are ready; watch_queue says that more bytes
 * are. The client has `milliseconds` for the response, and one more for each WATCH_SLOWEST bytes
 * that it takes. Bytes in the buffers of this machine's kernel count as not taken. The connection
 * is cut off if its client is slower, or if it takes next to nothing for `milliseconds` and half a
 * minute, however fast it was before. Between watch_pause and watch_resume the server makes the
 * next bytes, and the client's time stands still. watch_sent says that the whole response was
 * sent. */
void watch_send(struct watched *watched, int64_t milliseconds, uint64_t bytes);
void watch_queue(struct watched *watched, uint64_t bytes);
void watch_pause(struct watched *watched);
void watch_resume(struct watched *watched);
void watch_sent(struct watched *watched);

/* After watch_wait there is no deadline, and leave(watched) is called, on the watching thread,
 * when the client closes its end. When watch_awake returns, `leave` is not running and will not be
 * called. */
void watch_wait(struct watch *watch, struct watched *watched, void (*leave)(struct watched *));
void watch_awake(struct watch *watch, struct watched *watched);

/* Lets a connection linger, instead of watch_remove, while its descriptor is still open and about
 * to be closed. What the client sends is read and dropped until the client ends its side too, for a
 * bounded time or as long as it takes its last answer fast enough. The reason: closing a socket
 * that holds unread bytes, or that gets some later, resets the connection, and the client can lose
 * the answer (RFC 9112 section 9.6). Afterwards ended(watched) is called, on the watching thread.
 * Returns false if this is not possible; the connection is then still to be removed. */
bool watch_linger(struct watch *watch, struct watched *watched, void (*ended)(struct watched *));

/* Returns whether the socket holds bytes that the client has not taken. */
bool watch_has_untaken(const struct watched *watched);

/* Ends the reading from every idle connection, so that libmicrohttpd closes it. Idle means that no
 * request was read and no byte waits to be read. */
void watch_close_idle(struct watch *watch);

/* Calls `leave` of every connection that has one, as if all these clients had left. */
void watch_leave_all(struct watch *watch);

#endif
