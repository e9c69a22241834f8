/*
 * watch.c - see watch.h. One list under one mutex: a descriptor is shut down only while its
 * connection is in the list, so never after it was closed and belongs to somebody else.
 */
#define _GNU_SOURCE /* POLLRDHUP */
#include "http/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    TICK_MS = 100,
    GONE_TICKS = 10, /* in which the server may be reading what came before the client's end */
    POLLED = 256,    /* connections that are asked at a time whether they are still there */
    LINGER_MS = 2000,
    LINGER_TICK_MS = 10,
    LINGER_PIECES = 64 /* of 16 KiB that are read from one at a time */
};

struct watch {
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    pthread_t thread;
    bool stop;
    /* No connections themselves: before the first and after the last. */
    struct watched ring, lingering;
};

int64_t watch_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

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

static void call_leave(struct watched *watched) {
    void (*leave)(struct watched *) = watched->leave;
    watched->leave = NULL;
    leave(watched);
}

/* The client of a connection on which nothing is computed has ended it, or its sending side. If
 * libmicrohttpd read the last bytes and that end at once, it does not notice (0.9.75 with epoll):
 * so once there is nothing left to read and nothing is sent, the connection is cut off. */
static void note_end(struct watched *w) {
    char byte;
    if (atomic_load_explicit(&w->sending, memory_order_relaxed) ||
        recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0) {
        w->gone = 0;
    } else if (++w->gone == GONE_TICKS) {
        shutdown(w->fd, SHUT_RDWR);
    }
}

/* What came from the client is not read yet. libmicrohttpd takes at most 128 events at a time from
 * epoll, and after exactly as many waits for one more before it serves any (0.9.75): if no other
 * comes, they all wait. To set this option, to its default, makes the kernel tell anew what there
 * is to read: one more event. */
static void tell_again(const struct watched *w) {
    const int one = 1;
    setsockopt(w->fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
}

/* Asks some connections whether their clients are gone. A client that shut down only its sending
 * side while it is waited with has left, too: it cannot be told from one that closed. */
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
            call_leave(some[i]);
        } else {
            note_end(some[i]);
        }
    }
}

static void look(struct watch *watch) {
    struct pollfd fds[POLLED];
    struct watched *asked[POLLED];
    nfds_t count = 0;
    const int64_t now = watch_clock();
    for (struct watched *w = watch->ring.next; w != &watch->ring; w = w->next) {
        const int64_t deadline = atomic_load_explicit(&w->deadline, memory_order_relaxed);
        if (deadline != 0 && now > deadline) {
            atomic_store_explicit(&w->deadline, 0, memory_order_relaxed);
            shutdown(w->fd, SHUT_RDWR); /* libmicrohttpd sees the end, and closes it */
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

/* Reads what the client has sent meanwhile. False once it has ended its side. */
static bool read_on(int fd) {
    char dropped[16 * 1024];
    ssize_t size = 1;
    for (int i = 0; size > 0 && i < LINGER_PIECES; i++) {
        size = recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
    }
    return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Others wait for the mutex, not for what clients send: only this thread shortens the ring. */
static void linger(struct watch *watch) {
    const int64_t now = watch_clock();
    struct watched *next;
    for (struct watched *w = watch->lingering.next; w != &watch->lingering; w = next) {
        pthread_mutex_unlock(&watch->mutex);
        const bool over = !read_on(w->fd) || now > w->deadline;
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
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += milliseconds * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&watch->woken, &watch->mutex, &until);
}

static void *run(void *watch_) {
    struct watch *watch = watch_;
    int64_t looked = watch_clock();
    pthread_mutex_lock(&watch->mutex);
    while (!watch->stop || !is_empty(&watch->lingering)) {
        wait_for(watch, is_empty(&watch->lingering) ? TICK_MS : LINGER_TICK_MS);
        linger(watch);
        if (watch_clock() - looked >= TICK_MS) {
            looked = watch_clock();
            look(watch);
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
    if (pthread_create(&watch->thread, NULL, run, watch) != 0) {
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

/* ------------------------------------------------------------------------------ for the server */

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

bool watch_linger(struct watch *watch, struct watched *watched, void (*ended)(struct watched *)) {
    const int fd = fcntl(watched->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    shutdown(fd, SHUT_WR);
    watched->ended = ended;
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
    atomic_store_explicit(&watched->deadline, time, memory_order_relaxed);
}

void watch_for(struct watched *watched, int64_t milliseconds) {
    watch_until(watched, watch_clock() + milliseconds);
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
        if (!atomic_load_explicit(&w->asked, memory_order_relaxed) &&
            recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
            shutdown(w->fd, SHUT_RD); /* a request that was read just now can be answered still */
        }
    }
    pthread_mutex_unlock(&watch->mutex);
}

void watch_leave_all(struct watch *watch) {
    pthread_mutex_lock(&watch->mutex);
    for (struct watched *w = watch->ring.next; w != &watch->ring; w = w->next) {
        if (w->leave != NULL) {
            call_leave(w);
        }
    }
    pthread_mutex_unlock(&watch->mutex);
}
