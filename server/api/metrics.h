/*
 * metrics.h - the counters that GET /metrics shows. Every function takes a few atomic additions and
 * may be called on any thread.
 *
 * To add a metric: add a member to struct metrics, unless another part counts it already, and a
 * call where the event happens (conclude() in request.c sees the end of every computation), and a
 * line to metrics_text.c. Test it in tests/api by daemon_metric(). Describe it at /metrics in
 * openapi.yaml (then make docs). Add its expression to a panel of docker/grafana-dashboard.json (a
 * new panel takes the next free id), or a reason to LEFT_OUT of tests/support/check-dashboard.py.
 */
#ifndef API_METRICS_H
#define API_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "http/http.h"

enum {
    METRICS_ROUTES = 48, /* more than there are routes; the index after the last means no route */
    METRICS_CODES = HTTP_STATUS_COUNT,
    METRICS_BUCKETS = 14
};

/* The scale of a histogram. */
struct metrics_scale {
    double unit;                    /* units of the sum in one unit of the bounds */
    double bounds[METRICS_BUCKETS]; /* the upper bound of each bucket, which belongs to it */
};

/* Seconds, summed in nanoseconds; and bytes. */
extern const struct metrics_scale metrics_seconds, metrics_bytes;

/* The statuses that are counted. Any other status counts as the last one. */
extern const int metrics_codes[METRICS_CODES];

/* The buckets are not cumulative; the last one holds the values above all bounds. */
struct metrics_histogram {
    _Atomic uint64_t buckets[METRICS_BUCKETS + 1];
    _Atomic uint64_t sum; /* nanoseconds or bytes */
};

/* The durations that the statistics of the Open Inference Protocol have, and their names there. */
enum metrics_duration_name {
    METRICS_SUCCESS, /* whole requests that were answered with a 200 */
    METRICS_FAIL,    /* all other requests */
    METRICS_QUEUE,   /* these four are of the requests that were answered with a 200 */
    METRICS_COMPUTE_INPUT,
    METRICS_COMPUTE_INFER,
    METRICS_COMPUTE_OUTPUT,
    METRICS_DURATIONS
};
#define METRICS_DURATION_NAMES                                                                     \
    "success", "fail", "queue", "compute_input", "compute_infer", "compute_output"

struct metrics_duration {
    _Atomic uint64_t count, ns;
};

/* The statistics of one model for the Open Inference Protocol. */
struct metrics_model {
    struct metrics_duration durations[METRICS_DURATIONS];
    _Atomic uint64_t last_ms; /* milliseconds since 1970 of the last answer */
};

/* Zero-initialise. */
struct metrics {
    struct metrics_model models[METRICS_ROUTES]; /* by the routes whose names the models have */
    _Atomic uint64_t requests[METRICS_ROUTES][METRICS_CODES];
    _Atomic uint64_t aborted;        /* requests whose client left before there was a response */
    _Atomic uint64_t received, sent; /* bytes of bodies */
    struct metrics_histogram total;  /* seconds of each request */
    struct metrics_histogram stages[HTTP_TIMING_COUNT];
    struct metrics_histogram memory;       /* the most bytes that each request has held */
    struct metrics_histogram longest_task; /* the longest task of each computation */
    _Atomic uint64_t task_max;             /* nanoseconds of the longest of all tasks */
    _Atomic uint64_t work, work_time;      /* multiply-adds, and the nanoseconds that they took */
    _Atomic uint64_t refused_queue, refused_memory, late, cancelled;
};

/* Adds one to a counter. */
void metrics_count(_Atomic uint64_t *counter);

/* Counts a computation that has ended. `spent` and `longest` are the nanoseconds of all its tasks
 * and of its longest task. `cost` is its estimate in multiply-adds, or 0 if it did not complete. */
void metrics_computed(struct metrics *metrics, double cost, int64_t spent, int64_t longest);

/* Counts a request that has ended and that held at most `size` bytes. */
void metrics_held(struct metrics *metrics, size_t size);

/* Counts a request that has ended. `route` is the index of its route; their number if it has
 * none. */
void metrics_completed(struct metrics *metrics, size_t route, const struct http_record *record);

/* Counts a request to a model that has ended. `index` is that of the route of the model. */
void metrics_inferred(struct metrics *metrics, size_t index, const struct http_record *record);

#endif
