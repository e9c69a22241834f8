/*
 * metrics.h - what is counted, for GET /metrics: the text format of Prometheus. Counting takes a
 * few atomic additions; from any thread.
 */
#ifndef API_METRICS_H
#define API_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "http/http.h"

enum {
    METRICS_ROUTES = 24, /* more than there are, and one for what is no route */
    METRICS_CODES = HTTP_STATUS_COUNT,
    METRICS_BUCKETS = 14
};

/* Buckets that are not cumulative, and the sum: of nanoseconds, or of bytes. */
struct metrics_histogram {
    _Atomic uint64_t buckets[METRICS_BUCKETS + 1];
    _Atomic uint64_t sum;
};

/* Zero-initialise. */
struct metrics {
    _Atomic uint64_t requests[METRICS_ROUTES][METRICS_CODES];
    _Atomic uint64_t aborted;        /* requests whose client left before there was a response */
    _Atomic uint64_t received, sent; /* bytes of bodies */
    struct metrics_histogram total;
    struct metrics_histogram stages[HTTP_TIMING_COUNT];
    struct metrics_histogram memory;       /* the most that each request has held */
    struct metrics_histogram longest_task; /* of each computation */
    _Atomic uint64_t task_max;             /* nanoseconds of the longest of all tasks */
    _Atomic uint64_t work, work_time;      /* multiply-adds, nanoseconds that they took */
    _Atomic uint64_t refused_queue, refused_memory, late, cancelled;
};

void metrics_count(_Atomic uint64_t *counter);

/* A computation has ended. `spent` and `longest` are nanoseconds of all tasks and of the longest;
 * `cost` is the estimate in multiply-adds, 0 if the computation was broken off. */
void metrics_computed(struct metrics *metrics, double cost, int64_t spent, int64_t longest);

/* A request has ended that held `size` bytes at most. */
void metrics_held(struct metrics *metrics, size_t size);

/* A request has ended; see struct http_app. */
void metrics_completed(struct metrics *metrics, const struct http_request *request,
                       const struct http_record *record);

#endif
