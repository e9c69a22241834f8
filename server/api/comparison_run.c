/*
 * comparison_run.c - compares expected tensors with results, as tasks of the job of the call. A
 * task compares a chunk of one tensor. What several tasks find is put together by sums of counts
 * and by maxima, so the order of the tasks changes nothing.
 */
#include "api/comparison.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    CHUNK = 256 * 1024,    /* elements that one task compares; it takes at most about 10 ms */
    BLOCK = 256,           /* elements that are widened before they are compared */
    COST_OF_ELEMENT = 250, /* multiply-adds that take as long as comparing an element */
    COST_OF_RUN = 1400     /* the same for elements of one head that follow one another */
};

/* Widens `count` numbers from `first` on. */
static void widen(const void *data, attn_dtype dtype, size_t first, size_t count, double *out) {
    if (dtype == ATTN_FLOAT64) {
        memcpy(out, (const double *)data + first, count * sizeof *out);
        return;
    }
    const float *numbers = (const float *)data + first;
    for (size_t i = 0; i < count; i++) {
        out[i] = (double)numbers[i];
    }
}

static inline void keep_larger(struct comparison_place *place, double error, size_t element) {
    if (error > place->error || (error == place->error && element < place->element)) {
        *place = (struct comparison_place){error, element};
    }
}

/* Compares two numbers that differ. The error is infinite if one of them is not finite. Beside an
 * expected 0 there is no relative error. */
static inline void compare(const struct comparison_pair *pair, struct comparison_findings *found,
                           double result, double expected, size_t element) {
    const double difference = fabs(result - expected), magnitude = fabs(expected);
    const double error = difference <= DBL_MAX ? difference : (double)INFINITY;
    if (isinf(error) || error > pair->absolute + pair->relative * magnitude) {
        found->beyond++;
        keep_larger(&found->worst, error, element);
    }
    keep_larger(&found->absolute, error, element);
    if (isinf(error)) {
        keep_larger(&found->relative, error, element);
    } else if (magnitude > 0) {
        keep_larger(&found->relative, error / magnitude, element);
    }
}

/* Compares `count` elements from `first` on, at most BLOCK. */
static void compare_block(const struct comparison_pair *pair, struct comparison_findings *found,
                          size_t first, size_t count) {
    double result[BLOCK], expected[BLOCK];
    widen(pair->result->data, pair->result->dtype, first, count, result);
    widen(pair->expected.data, pair->expected.dtype, first, count, expected);
    for (size_t i = 0; i < count; i++) {
        const double magnitude = fabs(result[i]);
        if (magnitude > found->magnitude && magnitude <= DBL_MAX) {
            found->magnitude = magnitude;
        }
        found->nan += isnan(expected[i]) != 0;
        found->infinite += isinf(expected[i]) != 0;
        if (result[i] != expected[i]) { /* equal infinities are equal numbers */
            compare(pair, found, result[i], expected[i], first + i);
        }
    }
}

static void add_findings(struct comparison_findings *all, const struct comparison_findings *some) {
    keep_larger(&all->absolute, some->absolute.error, some->absolute.element);
    keep_larger(&all->relative, some->relative.error, some->relative.element);
    keep_larger(&all->worst, some->worst.error, some->worst.element);
    all->magnitude = fmax(all->magnitude, some->magnitude);
    all->beyond += some->beyond;
    all->nan += some->nan;
    all->infinite += some->infinite;
}

static void keep_error(_Atomic double *largest, double error) {
    double before = atomic_load_explicit(largest, memory_order_relaxed);
    while (error > before &&
           !atomic_compare_exchange_weak_explicit(largest, &before, error, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

/* Compares the elements [first, end), head by head. */
static void compare_chunk(struct comparison_pair *pair, struct comparison_findings *all,
                          size_t first, size_t end) {
    const struct comparison_findings none = {
        .absolute = {0, SIZE_MAX}, .relative = {0, SIZE_MAX}, .worst = {0, SIZE_MAX}};
    *all = none;
    while (first < end) {
        const size_t run = first / pair->head_size, after = (run + 1) * pair->head_size;
        const size_t stop = after < end ? after : end;
        struct comparison_findings found = none;
        for (size_t part; first < stop; first += part) {
            part = stop - first < BLOCK ? stop - first : BLOCK;
            compare_block(pair, &found, first, part);
        }
        if (pair->heads > 0) {
            keep_error(&pair->errors[run % pair->heads], found.absolute.error);
        }
        add_findings(all, &found);
    }
}

/* A phase compares one pair. */
static size_t comparison_tasks(const void *comparison, size_t phase) {
    const struct comparison_pair *pair = &((const struct comparison *)comparison)->pairs[phase];
    return pair->count / CHUNK + (pair->count % CHUNK > 0);
}

static bool comparison_task(void *comparison_, const struct jobs_task *task) {
    struct comparison *comparison = comparison_;
    struct comparison_pair *pair = &comparison->pairs[task->phase];
    const size_t first = task->index * CHUNK, left = pair->count - first;
    struct comparison_findings found;
    compare_chunk(pair, &found, first, first + (left < CHUNK ? left : CHUNK));
    pthread_mutex_lock(comparison->mutex);
    add_findings(&pair->found, &found);
    pthread_mutex_unlock(comparison->mutex);
    return true;
}

double comparison_cost(const struct comparison *comparison) {
    double cost = 0;
    for (size_t i = 0; i < comparison->count; i++) {
        const struct comparison_pair *pair = &comparison->pairs[i];
        const size_t runs = pair->count > 0 ? pair->count / pair->head_size : 0;
        cost += (double)pair->count * COST_OF_ELEMENT + (double)runs * COST_OF_RUN;
    }
    return cost;
}

struct job_phases **comparison_add_phases(struct comparison *comparison, struct job_phases **end) {
    comparison->phases =
        (struct job_phases){NULL, comparison->count, comparison_tasks, comparison_task, comparison};
    *end = &comparison->phases;
    return &comparison->phases.next;
}
