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
    METRICS_CODES = 16,
    METRICS_BUCKETS = 14
};

/* Seconds, in buckets that are not cumulative. */
struct metrics_histogram {
    _Atomic uint64_t buckets[METRICS_BUCKETS + 1];
    _Atomic uint64_t nanoseconds;
};

/* Zero-initialise. */
struct metrics {
    _Atomic uint64_t requests[METRICS_ROUTES][METRICS_CODES];
    _Atomic uint64_t aborted;        /* requests whose client left before there was a response */
    _Atomic uint64_t received, sent; /* bytes of bodies */
    struct metrics_histogram total;
    struct metrics_histogram stages[HTTP_TIMING_COUNT];
    _Atomic uint64_t refused_queue, refused_memory, late, cancelled;
};

void metrics_count(_Atomic uint64_t *counter);

/* A request has ended; see struct http_app. */
void metrics_completed(struct metrics *metrics, const struct http_request *request,
                       const struct http_record *record);

#endif
