/*
 * watch.h - deadlines of connections, which libmicrohttpd has none of but idleness: a client that
 * sends or takes a byte now and then would be served for ever. And it notices clients that leave
 * while their request is computed, when libmicrohttpd does not look at the connection; and it reads
 * on from connections that the server has ended, so that their clients get the answer.
 */
#ifndef HTTP_WATCH_H
#define HTTP_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    WATCH_SLOWEST =
        64 /* bytes in a millisecond of a long body or response, once the time is over */
};

/* One connection. The owner keeps it from watch_add to watch_remove. */
struct watched {
    int fd;
    /* clock_ms() after which it is cut off, or after which the watching thread asks how much of
     * the response the client has taken; 0 = none. */
    _Atomic int64_t deadline;
    void (*leave)(struct watched *); /* set: call it, once, when the client leaves */
    _Atomic bool sending;            /* a response: a client that only reads is still there */
    _Atomic int64_t begun, patience; /* the response, in clock_ms(); its milliseconds */
    _Atomic uint64_t queued;         /* bytes of it, and of earlier ones that were not taken */
    _Atomic uint64_t taken;          /* of these, when the watching thread asked last */
    _Atomic int64_t took;            /* when `taken` grew */
    int64_t halted, rest;            /* clock_ms() at watch_halt, and the deadline then */
    _Atomic bool asked;              /* a request: it is not idle */
    unsigned gone;                   /* looks at which there was nothing but the client's end */
    void (*ended)(struct watched *); /* of one that lingers */
    bool owed;                       /* it lingers on, for the client still takes the answer */
    struct watched *next, *previous;
};

struct watch;

/* Starts the thread that looks at all connections, ten times in a second. NULL if it cannot. */
struct watch *watch_start(void);
void watch_stop(struct watch *watch); /* none is watched any more, some may linger; NULL is fine */

void watch_add(struct watch *watch, struct watched *watched, int fd);
void watch_remove(struct watch *watch, struct watched *watched);

/* Sets the deadline: in clock_ms(), or so many milliseconds from now. */
void watch_until(struct watched *watched, int64_t time);
void watch_for(struct watched *watched, int64_t milliseconds);

/* A response begins. `bytes` of it are there to be sent; watch_queue says that more are. Its client
 * has so many milliseconds, and one more for each WATCH_SLOWEST bytes that it takes. What lies in the
 * buffers of this machine's kernel counts as not taken. So a connection is cut off whose client is
 * slower; or takes next to nothing for so many milliseconds and half a minute, however fast it was
 * before. Between watch_halt and watch_go_on the server makes the next bytes, and the client's time
 * stands still. watch_sent: all of it was sent. */
void watch_send(struct watched *watched, int64_t milliseconds, uint64_t bytes);
void watch_queue(struct watched *watched, uint64_t bytes);
void watch_halt(struct watched *watched);
void watch_go_on(struct watched *watched);
void watch_sent(struct watched *watched);

/* From now on there is no deadline, and leave(watched) is called, on the watching thread, when the
 * client closes its end. When watch_awake returns, it is not being called and will not be. */
void watch_wait(struct watch *watch, struct watched *watched, void (*leave)(struct watched *));
void watch_awake(struct watch *watch, struct watched *watched);

/* Instead of watch_remove, while `fd` is still open and about to be closed: what the client sends
 * goes on being read, and dropped, until it ends its side too, for a bounded time or as long as it
 * takes its last answer fast enough. Closing a socket that holds unread bytes, or that gets some
 * later, resets the connection, and the client can lose the answer (RFC 9112 section 9.6). Then
 * ended(watched) is called, on the watching thread. False if it cannot; then the connection is
 * still to be removed. */
bool watch_linger(struct watch *watch, struct watched *watched, void (*ended)(struct watched *));

/* Is there something in the socket that its client has not taken? */
bool watch_owes(const struct watched *watched);

/* Ends the reading from every connection on which nothing is asked and nothing waits to be read, so
 * that libmicrohttpd closes it. */
void watch_close_idle(struct watch *watch);

/* As if every client that is waited with had left. */
void watch_leave_all(struct watch *watch);

#endif
