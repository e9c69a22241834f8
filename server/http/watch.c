/*
 * watch.c - see watch.h. One list under one mutex: a descriptor is shut down only while its
 * connection is in the list, so never after it was closed and belongs to somebody else.
 */
#define _GNU_SOURCE /* POLLRDHUP */
#include "http/watch.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum {
    TICK_MS = 100,
    GONE_TICKS = 10, /* in which the server may be reading what came before the client's end */
    POLLED = 256     /* connections that are asked at a time whether they are still there */
};

struct watch {
    pthread_mutex_t mutex;
    pthread_cond_t stopped;
    pthread_t thread;
    bool stop;
    struct watched ring; /* no connection itself: before the first and after the last */
};

int64_t watch_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ------------------------------------------------------------------------- the watching thread */

static void call_leave(struct watched *watched) {
    void (*leave)(struct watched *) = watched->leave;
    watched->leave = NULL;
    leave(watched);
}

/* The client of a connection on which nothing is computed has ended it, or its sending side. If
 * libmicrohttpd read the last bytes and that end at once, it does not notice (0.9.75 with epoll): so
 * once there is nothing left to read and nothing is sent, the connection is cut off. */
static void note_end(struct watched *w) {
    char byte;
    if (atomic_load_explicit(&w->sending, memory_order_relaxed) ||
        recv(w->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0) {
        w->gone = 0;
    } else if (++w->gone == GONE_TICKS) {
        shutdown(w->fd, SHUT_RDWR);
    }
}

/* Asks some connections whether their clients are gone. A client that shut down only its sending
 * side while it is waited with has left, too: it cannot be told from one that closed. */
static void ask(struct watched *const *some, struct pollfd *fds, nfds_t count) {
    if (count == 0 || poll(fds, count, 0) <= 0) {
        return;
    }
    for (nfds_t i = 0; i < count; i++) {
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
        fds[count++] = (struct pollfd){.fd = w->fd, .events = POLLRDHUP};
        if (count == POLLED) {
            ask(asked, fds, count);
            count = 0;
        }
    }
    ask(asked, fds, count);
}

static void *run(void *watch_) {
    struct watch *watch = watch_;
    pthread_mutex_lock(&watch->mutex);
    while (!watch->stop) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += TICK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&watch->stopped, &watch->mutex, &until);
        look(watch);
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
    pthread_mutex_init(&watch->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->stopped, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&watch->thread, NULL, run, watch) != 0) {
        pthread_cond_destroy(&watch->stopped);
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
    pthread_cond_signal(&watch->stopped);
    pthread_mutex_unlock(&watch->mutex);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->stopped);
    pthread_mutex_destroy(&watch->mutex);
    free(watch);
}

/* ------------------------------------------------------------------------------ for the server */

void watch_add(struct watch *watch, struct watched *watched, int fd) {
    watched->fd = fd;
    watched->leave = NULL;
    pthread_mutex_lock(&watch->mutex);
    watched->next = &watch->ring;
    watched->previous = watch->ring.previous;
    watched->previous->next = watched->next->previous = watched;
    pthread_mutex_unlock(&watch->mutex);
}

void watch_remove(struct watch *watch, struct watched *watched) {
    pthread_mutex_lock(&watch->mutex);
    watched->next->previous = watched->previous;
    watched->previous->next = watched->next;
    pthread_mutex_unlock(&watch->mutex);
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

void watch_leave_all(struct watch *watch) {
    pthread_mutex_lock(&watch->mutex);
    for (struct watched *w = watch->ring.next; w != &watch->ring; w = w->next) {
        if (w->leave != NULL) {
            call_leave(w);
        }
    }
    pthread_mutex_unlock(&watch->mutex);
}
