/*
 * watch.c holds all connections in one list under one mutex. A descriptor is shut down only while
 * its connection is in the list, so never after it was closed and was given to another connection.
 */
#define _GNU_SOURCE /* POLLRDHUP */
#include "http/watch.h"

#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    TICK_MS = 100,
    GONE_TICKS = 10,  /* checks in which the server reads what came before an end or a deadline */
    POLLED = 256,     /* connections that one poll() looks at */
    ASK_MS = 1000,    /* the time between two questions how much a client has taken */
    STEP = 32 * 1024, /* bytes: a client that takes less than this has stopped */
    PAUSE_MS = 32000, /* the slowest client takes 2 MiB in this time: see patience_with */
    /* Bytes of earlier responses that a client may have read although its kernel has not said so
     * yet. */
    UNTOLD = 128 * 1024,
    HEAD = 512,         /* bytes that the head of a response usually has at most */
    RECENT = 10 * 1024, /* bytes: see left_before */
    LINGER_MS = 2000,
    LINGER_TICK_MS = 10,
    LINGER_PIECES = 64 /* the most pieces of 16 KiB that are read from a connection in a turn */
};

struct watch {
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    pthread_t thread;
    bool stop;
    /* The heads of two rings: the connections, and those that linger. */
    struct watched ring, lingering;
};

static void link_last(struct watched *ring, struct watched *watched) {
    watched->next = ring;
    watched->previous = ring->previous;
    watched->previous->next = watched->next->previous = watched;
}

static void unlink_watched(struct watched *watched) {
    watched->next->previous = watched->previous;
    watched->previous->next = watched->next;
}

static bool is_empty(const struct watched *ring) {
    return ring->next == ring;
}

/* ------------------------------------------------------------------------- the watching thread */

static void tell_leave(struct watched *watched) {
    void (*leave)(struct watched *) = watched->leave;
    watched->leave = NULL;
    leave(watched);
}

/* Notes that a client has ended its connection, or its sending side, while no answer is made
 * elsewhere. If libmicrohttpd read the last bytes and the end at once, it does not notice the end
 * (0.9.75 with epoll). So the connection is cut off if nothing is left to read and nothing is sent
 * for GONE_TICKS. */
static void note_end(struct watched *w) {
    char byte;
    if (w->sending || recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0) {
        w->gone = 0;
    } else if (++w->gone == GONE_TICKS) {
        shutdown(w->fd, SHUT_RDWR);
    }
}

/* Makes the kernel tell once more that there are bytes to read, by setting an option to its
 * default. libmicrohttpd takes at most 128 events at a time from epoll. After exactly 128 events it
 * waits for one more before it serves any of them (0.9.75): if no other event comes, all these
 * connections wait. */
static void tell_again(const struct watched *w) {
    const int one = 1;
    setsockopt(w->fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
}

/* Asks whether the clients of some connections are gone. A client that shuts down only its sending
 * side while its answer is made counts as gone: it cannot be told from a client that closed. */
static void ask(struct watched *const *some, struct pollfd *fds, nfds_t count) {
    if (count == 0 || poll(fds, count, 0) <= 0) {
        return;
    }
    for (nfds_t i = 0; i < count; i++) {
        if ((fds[i].revents & POLLIN) != 0 && some[i]->leave == NULL) {
            tell_again(some[i]);
        }
        if ((fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) == 0) {
            continue;
        }
        if (some[i]->leave != NULL) {
            tell_leave(some[i]);
        } else {
            note_end(some[i]);
        }
    }
}

/* Returns how many bytes were sent that the client's kernel has not confirmed. */
static uint64_t untaken(int fd) {
    int bytes = 0;
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (uint64_t)bytes : 0;
}

/*
 * Returns the clock_ms() until which the client of a response may go on as it does. The kernel
 * takes megabytes from the server at once and then nothing for a long time, while the client takes
 * them steadily. So the bytes that were sent say little; the bytes that are left in the socket say
 * how much the client has taken. (The bytes of a whole body that libmicrohttpd still holds count as
 * taken: they are 1 MiB at most. The framing of chunks and TLS in the socket counts as not taken:
 * it is less than STEP.)
 *
 * The client's kernel tells in steps, too, what its reader takes: after its buffer was full, it
 * asks for more when a 16th of the buffer is free. A 16th of a large buffer is 2 MiB, which the
 * slowest client takes in PAUSE_MS. So a client that seems to take nothing for a shorter time may
 * not have stopped.
 */
static int64_t patience_with(struct watched *w, int64_t now) {
    const uint64_t queued = w->queued;
    const uint64_t left = untaken(w->fd), taken = queued > left ? queued - left : 0;
    if (taken >= w->taken + STEP) {
        w->taken = taken;
        w->took = now;
    }
    const int64_t slowest = w->begun + (int64_t)(taken / WATCH_SLOWEST);
    const int64_t stopped = w->took + PAUSE_MS;
    return (slowest < stopped ? slowest : stopped) + w->patience;
}

/* Returns whether bytes of the client wait to be read. */
static bool has_unread(int fd) {
    int bytes = 0;
    return ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

/* Acts on a deadline that is over. If the server sets another deadline at the same time, that one
 * holds. While bytes of the client wait, the server is late, and not the client: on a busy machine
 * its threads may not have run for seconds. So the connection is cut off GONE_TICKS later. */
static void end_time(struct watched *w, int64_t deadline, int64_t now) {
    int64_t next = 0;
    if (!w->sending && w->late < GONE_TICKS && has_unread(w->fd)) {
        w->late++;
        return;
    }
    if (w->sending) {
        const int64_t last = patience_with(w, now);
        next = last < now ? 0 : last < now + ASK_MS ? last : now + ASK_MS;
    }
    if (atomic_compare_exchange_strong(&w->deadline, &deadline, next) && next == 0) {
        shutdown(w->fd, SHUT_RDWR); /* libmicrohttpd sees the end and closes the connection */
    }
}

static void check_all(struct watch *watch) {
    struct pollfd fds[POLLED];
    struct watched *asked[POLLED];
    nfds_t count = 0;
    const int64_t now = clock_ms();
    for (struct watched *w = watch->ring.next; w != &watch->ring; w = w->next) {
        const int64_t deadline = atomic_load(&w->deadline);
        if (deadline != 0 && now > deadline) {
            end_time(w, deadline, now);
        } else if (deadline != 0) {
            w->late = 0;
        }
        asked[count] = w;
        fds[count++] = (struct pollfd){.fd = w->fd, .events = POLLIN | POLLRDHUP};
        if (count == POLLED) {
            ask(asked, fds, count);
            count = 0;
        }
    }
    ask(asked, fds, count);
}

/* Reads and drops what the client has sent. Returns false once the client has ended its side. */
static bool read_on(int fd) {
    char dropped[16 * 1024];
    ssize_t size = 1;
    for (int i = 0; size > 0 && i < LINGER_PIECES; i++) {
        size = recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
    }
    return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Decides about a connection whose time to linger is over. A client that still takes the answer as
 * fast as it must is owed the rest: if the socket were closed, the next byte that the client sends
 * would reset the connection. It is looked at less often from now on, because there may be many
 * such clients. */
static bool is_owed(struct watched *w, int64_t now) {
    w->answer_untaken = untaken(w->fd) > 0 && patience_with(w, now) > now;
    if (w->answer_untaken) {
        watch_until(w, now + ASK_MS);
    }
    return w->answer_untaken;
}

static bool lingers_on(struct watched *w, bool stop, int64_t now) {
    const bool late = now > w->deadline;
    if (w->answer_untaken && !late && !stop) {
        return true;
    }
    return read_on(w->fd) && (!late || (!stop && is_owed(w, now)));
}

/* The mutex is free while bytes are read, so that other threads do not wait for that. The ring
 * stays valid, because only this thread removes connections from it. */
static void linger(struct watch *watch) {
    const int64_t now = clock_ms();
    const bool stop = watch->stop;
    struct watched *next;
    for (struct watched *w = watch->lingering.next; w != &watch->lingering; w = next) {
        pthread_mutex_unlock(&watch->mutex);
        const bool over = !lingers_on(w, stop, now);
        pthread_mutex_lock(&watch->mutex);
        next = w->next;
        if (over) {
            unlink_watched(w);
            close(w->fd);
            w->ended(w);
        }
    }
}

static void wait_for(struct watch *watch, long milliseconds) {
    const int64_t end = clock_ns() + milliseconds * 1000000L;
    const struct timespec until = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
    pthread_cond_timedwait(&watch->woken, &watch->mutex, &until);
}

static void *watch_connections(void *watch_) {
    struct watch *watch = watch_;
    int64_t checked = clock_ms();
    pthread_mutex_lock(&watch->mutex);
    while (!watch->stop || !is_empty(&watch->lingering)) {
        wait_for(watch, is_empty(&watch->lingering) ? TICK_MS : LINGER_TICK_MS);
        linger(watch);
        if (clock_ms() - checked >= TICK_MS) {
            checked = clock_ms();
            check_all(watch);
        }
    }
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

struct watch *watch_start(void) {
    struct watch *watch = calloc(1, sizeof *watch);
    pthread_condattr_t monotonic;
    if (watch == NULL) {
        return NULL;
    }
    watch->ring.next = watch->ring.previous = &watch->ring;
    watch->lingering.next = watch->lingering.previous = &watch->lingering;
    pthread_mutex_init(&watch->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->woken, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&watch->thread, NULL, watch_connections, watch) != 0) {
        pthread_cond_destroy(&watch->woken);
        pthread_mutex_destroy(&watch->mutex);
        free(watch);
        return NULL;
    }
    return watch;
}

void watch_stop(struct watch *watch) {
    if (watch == NULL) {
        return;
    }
    pthread_mutex_lock(&watch->mutex);
    watch->stop = true;
    pthread_cond_signal(&watch->woken);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->woken);
    pthread_mutex_destroy(&watch->mutex);
    free(watch);
}

/* -------------------------------------------------------------------------------- the interface */

void watch_add(struct watch *watch, struct watched *watched, int fd) {
    watched->fd = fd;
    watched->leave = NULL;
    pthread_mutex_lock(&watch->mutex);
    link_last(&watch->ring, watched);
    pthread_mutex_unlock(&watch->mutex);
}

void watch_remove(struct watch *watch, struct watched *watched) {
    pthread_mutex_lock(&watch->mutex);
    unlink_watched(watched);
    pthread_mutex_unlock(&watch->mutex);
}

bool watch_has_untaken(const struct watched *watched) {
    return untaken(watched->fd) > 0;
}

bool watch_linger(struct watch *watch, struct watched *watched, void (*ended)(struct watched *)) {
    const int fd = fcntl(watched->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    shutdown(fd, SHUT_WR);
    watched->ended = ended;
    watched->answer_untaken = false;
    watch_for(watched, LINGER_MS);
    pthread_mutex_lock(&watch->mutex);
    unlink_watched(watched);
    watched->fd = fd;
    link_last(&watch->lingering, watched);
    pthread_cond_signal(&watch->woken);
    pthread_mutex_unlock(&watch->mutex);
    return true;
}

void watch_until(struct watched *watched, int64_t time) {
    atomic_store(&watched->deadline, time);
}

void watch_for(struct watched *watched, int64_t milliseconds) {
    watch_until(watched, clock_ms() + milliseconds);
}

/* Returns how many bytes of earlier responses the client has not taken, at most. Asking the kernel
 * costs as much as a tenth of a small request. So while the responses since it was asked are short,
 * all of them count. */
static uint64_t left_before(struct watched *w, uint64_t bytes) {
    const uint64_t before = w->recent;
    w->recent += bytes + HEAD;
    if (before > 0 && w->recent <= RECENT) {
        return before;
    }
    const uint64_t left = untaken(w->fd);
    w->recent = left + bytes + HEAD;
    return left;
}

void watch_send(struct watched *watched, int64_t milliseconds, uint64_t bytes) {
    const int64_t now = clock_ms();
    const uint64_t left = left_before(watched, bytes), untold = left < UNTOLD ? left : UNTOLD;
    atomic_store_explicit(&watched->begun, now, memory_order_relaxed);
    atomic_store_explicit(&watched->patience, milliseconds, memory_order_relaxed);
    atomic_store_explicit(&watched->queued, left + untold + bytes, memory_order_relaxed);
    atomic_store_explicit(&watched->taken, 0, memory_order_relaxed);
    atomic_store_explicit(&watched->took, now, memory_order_relaxed);
    atomic_store_explicit(&watched->sending, true, memory_order_relaxed);
    watch_until(watched, now + milliseconds);
}

void watch_queue(struct watched *watched, uint64_t bytes) {
    atomic_fetch_add_explicit(&watched->queued, bytes, memory_order_relaxed);
    watched->recent += bytes;
}

void watch_pause(struct watched *watched) {
    watched->paused = clock_ms();
    watched->rest = atomic_exchange(&watched->deadline, 0);
}

void watch_resume(struct watched *watched) {
    const int64_t now = clock_ms(), time = now - watched->paused;
    atomic_fetch_add_explicit(&watched->begun, time, memory_order_relaxed);
    atomic_fetch_add_explicit(&watched->took, time, memory_order_relaxed);
    if (watched->rest != 0) { /* 0: the connection was cut off just before */
        watch_until(watched, watched->rest + time);
    }
}

void watch_sent(struct watched *watched) {
    atomic_store_explicit(&watched->sending, false, memory_order_relaxed);
}

void watch_wait(struct watch *watch, struct watched *watched, void (*leave)(struct watched *)) {
    pthread_mutex_lock(&watch->mutex);
    atomic_store_explicit(&watched->deadline, 0, memory_order_relaxed);
    watched->leave = leave;
    pthread_mutex_unlock(&watch->mutex);
}

void watch_awake(struct watch *watch, struct watched *watched) {
    pthread_mutex_lock(&watch->mutex);
    watched->leave = NULL;
    pthread_mutex_unlock(&watch->mutex);
}

void watch_close_idle(struct watch *watch) {
    char byte;
    pthread_mutex_lock(&watch->mutex);
    for (struct watched *w = watch->ring.next; w != &watch->ring; w = w->next) {
        if (!w->busy && recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
            shutdown(w->fd, SHUT_RD); /* a request that was read just now can still be answered */
        }
    }
    pthread_mutex_unlock(&watch->mutex);
}

void watch_leave_all(struct watch *watch) {
    pthread_mutex_lock(&watch->mutex);
    for (struct watched *w = watch->ring.next; w != &watch->ring; w = w->next) {
        if (w->leave != NULL) {
            tell_leave(w);
        }
    }
    pthread_mutex_unlock(&watch->mutex);
}
