/*
 * clock.h - the one clock of the server: CLOCK_MONOTONIC, which setting the date does not change.
 * All functions may be called from any thread.
 */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <time.h>

/* Returns nanoseconds since an arbitrary moment. */
static inline int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Returns whole milliseconds since the same moment. */
static inline int64_t clock_ms(void) {
    return clock_ns() / 1000000;
}

/* Returns the milliseconds since `start`, which clock_ns() gave. */
static inline double clock_ms_since(int64_t start) {
    return (double)(clock_ns() - start) * 1e-6;
}

#endif
