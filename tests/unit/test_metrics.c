/*
 * test_metrics.c - a request that has ended counts once, in the bucket of its time. If its client
 * left first, only this is counted.
 */
#include <criterion/criterion.h>

#include "api/metrics.h"

enum {
    ROUTE = 3
};

static struct metrics metrics;

static void complete(int status, double seconds, const double *timing) {
    const struct http_record record = {
        .status = status, .received = 3, .sent = 5, .seconds = seconds, .timing = timing};
    metrics_completed(&metrics, ROUTE, &record);
}

static size_t in_buckets(const struct metrics_histogram *histogram, size_t first, size_t last) {
    size_t count = 0;
    for (size_t i = first; i <= last; i++) {
        count += histogram->buckets[i];
    }
    return count;
}

/* A bucket holds the values up to its bound, the bound included, as Prometheus defines it. */
Test(metrics, a_time_is_in_the_bucket_of_its_bound) {
    static const double bounds[METRICS_BUCKETS] = {
        0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1, 2.5, 10, 60};
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        metrics = (struct metrics){0};
        complete(200, bounds[i], NULL);
        cr_expect_eq(metrics.total.buckets[i], 1, "%g", bounds[i]);
        complete(200, bounds[i] * 1.001, NULL);
        cr_expect_eq(metrics.total.buckets[i + 1], 1, "more than %g", bounds[i]);
        cr_expect_eq(in_buckets(&metrics.total, 0, METRICS_BUCKETS), 2);
        cr_expect_eq(metrics.total.sum,
                     (uint64_t)(bounds[i] * 1e9) + (uint64_t)(bounds[i] * 1.001 * 1e9));
    }
}

Test(metrics, a_request_counts_once) {
    static const double milliseconds[HTTP_TIMING_COUNT] = {1, 30, 200, 0};
    complete(422, 0.3, milliseconds);
    uint64_t requests = 0;
    for (size_t code = 0; code < METRICS_CODES; code++) {
        requests += metrics.requests[ROUTE][code];
    }
    cr_expect_eq(requests, 1);
    cr_expect_eq(metrics.received, 3);
    cr_expect_eq(metrics.sent, 5);
    cr_expect_eq(metrics.aborted, 0);
    for (size_t i = 0; i < HTTP_TIMING_COUNT; i++) {
        cr_expect_eq(in_buckets(&metrics.stages[i], 0, METRICS_BUCKETS), 1);
        cr_expect_eq(metrics.stages[i].sum, (uint64_t)(milliseconds[i] * 1e-3 * 1e9));
    }
    cr_expect_eq(metrics.stages[1].buckets[8], 1, "30 ms are in the bucket of 0.1 s");
}

Test(metrics, a_client_that_left_is_counted_as_such) {
    complete(0, 0.3, NULL);
    cr_expect_eq(metrics.aborted, 1);
    cr_expect_eq(metrics.received + metrics.sent, 0);
    cr_expect_eq(in_buckets(&metrics.total, 0, METRICS_BUCKETS), 0);
}
