/* metrics.c - counts requests, their times and their costs. */
#include "api/metrics.h"

#include <time.h>

const struct metrics_scale metrics_seconds = {
    1e9, {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1, 2.5, 10, 60}};
const struct metrics_scale metrics_bytes = {1,
                                            {0x1p14, 0x1p15, 0x1p16, 0x1p17, 0x1p18, 0x1p20, 0x1p22,
                                             0x1p24, 0x1p26, 0x1p27, 0x1p28, 0x1p29, 0x1p30,
                                             0x1p32}};

#define CODE(code, title) code,
const int metrics_codes[METRICS_CODES] = {HTTP_STATUSES(CODE)};

void metrics_count(_Atomic uint64_t *counter) {
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void add(_Atomic uint64_t *counter, uint64_t value) {
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

static void observe(struct metrics_histogram *histogram, const struct metrics_scale *scale,
                    double value) {
    size_t bucket = 0;
    while (bucket < METRICS_BUCKETS && value > scale->bounds[bucket]) {
        bucket++;
    }
    metrics_count(&histogram->buckets[bucket]);
    add(&histogram->sum, (uint64_t)(value * scale->unit));
}

void metrics_computed(struct metrics *metrics, double cost, int64_t spent, int64_t longest) {
    uint64_t most = atomic_load_explicit(&metrics->task_max, memory_order_relaxed);
    while ((uint64_t)longest > most &&
           !atomic_compare_exchange_weak(&metrics->task_max, &most, (uint64_t)longest)) {
    }
    observe(&metrics->longest_task, &metrics_seconds, (double)longest * 1e-9);
    if (cost > 0) {
        add(&metrics->work, (uint64_t)cost);
        add(&metrics->work_time, (uint64_t)spent);
    }
}

void metrics_held(struct metrics *metrics, size_t size) {
    observe(&metrics->memory, &metrics_bytes, (double)size);
}

void metrics_completed(struct metrics *metrics, size_t route, const struct http_record *record) {
    if (record->status == 0) {
        metrics_count(&metrics->aborted);
        return;
    }
    size_t code = 0;
    while (code < METRICS_CODES - 1 && metrics_codes[code] != record->status) {
        code++;
    }
    metrics_count(&metrics->requests[route][code]);
    add(&metrics->received, record->received);
    add(&metrics->sent, record->sent);
    observe(&metrics->total, &metrics_seconds, record->seconds);
    for (int i = 0; record->timing != NULL && i < HTTP_TIMING_COUNT; i++) {
        observe(&metrics->stages[i], &metrics_seconds, record->timing[i] * 1e-3);
    }
}

static void add_duration(struct metrics_model *model, enum metrics_duration_name name, double ns) {
    metrics_count(&model->durations[name].count);
    add(&model->durations[name].ns, (uint64_t)ns);
}

void metrics_inferred(struct metrics *metrics, size_t index, const struct http_record *record) {
    static const enum metrics_duration_name names[HTTP_TIMING_COUNT] = {
        [HTTP_TIMING_DECODE] = METRICS_COMPUTE_INPUT,
        [HTTP_TIMING_QUEUE] = METRICS_QUEUE,
        [HTTP_TIMING_COMPUTE] = METRICS_COMPUTE_INFER,
        [HTTP_TIMING_ENCODE] = METRICS_COMPUTE_OUTPUT,
    };
    struct metrics_model *model = &metrics->models[index];
    const bool good = record->status == 200;
    if (record->status == 0) {
        return;
    }
    add_duration(model, good ? METRICS_SUCCESS : METRICS_FAIL, record->seconds * 1e9);
    for (int i = 0; good && record->timing != NULL && i < HTTP_TIMING_COUNT; i++) {
        add_duration(model, names[i], record->timing[i] * 1e6);
    }
    if (good) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        atomic_store_explicit(&model->last_ms,
                              (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000,
                              memory_order_relaxed);
    }
}
