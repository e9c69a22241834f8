/* plans.c - see plans.h. Programs without Criterion link it, so a broken rule is an assertion. */
#include "support/plans.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "support/guarded.h"

void *allocate(size_t count, size_t size) {
    void *block = calloc(count == 0 ? 1 : count, size);
    assert(block != NULL);
    return block;
}

/* -------------------------------------------------------------------------------------- numbers */

double in_dtype(attn_dtype dtype, double x) {
    return dtype == ATTN_FLOAT32 ? (double)(float)x : x;
}

double number_of(const void *data, attn_dtype dtype, size_t i) {
    return dtype == ATTN_FLOAT32   ? (double)((const float *)data)[i]
           : dtype == ATTN_FLOAT64 ? ((const double *)data)[i]
                                   : (double)((const int64_t *)data)[i];
}

void set_number(void *data, attn_dtype dtype, size_t i, double x) {
    if (dtype == ATTN_FLOAT32) {
        ((float *)data)[i] = (float)x;
    } else {
        ((double *)data)[i] = x;
    }
}

double tensor_number(const attn_tensor *t, size_t i) {
    return number_of(t->data, t->dtype, i);
}

size_t count_of(const attn_tensor *t) {
    size_t count = 0;
    const bool counted = attn_tensor_count(t, &count);
    assert(counted);
    return count;
}

/* ----------------------------------------------------------------------------------------- runs */

static attn_status run_in_order(attn_plan *plan, bool backwards, attn_error *error) {
    const size_t used = (attn_plan_scratch(plan) + ATTN_ALIGNMENT - 1) / ATTN_ALIGNMENT;
    const size_t bytes = used * ATTN_ALIGNMENT;
    void *scratch = guarded_new(bytes);
    attn_status status = attn_plan_begin(plan, error);
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        const size_t tasks = attn_plan_tasks(plan, phase);
        for (size_t i = 0; i < tasks && status == ATTN_OK; i++) {
            memset(scratch, 0xff, bytes);
            status = attn_plan_task(plan, phase, backwards ? tasks - 1 - i : i, scratch, error);
        }
    }
    guarded_free(scratch);
    return status == ATTN_OK ? attn_plan_end(plan, error) : status;
}

attn_status run_forwards(attn_plan *plan, attn_error *error) {
    return run_in_order(plan, false, error);
}

attn_status run_backwards(attn_plan *plan, attn_error *error) {
    return run_in_order(plan, true, error);
}

/* Threads that share the tasks of one phase. */
struct team {
    attn_plan *plan;
    size_t phase;
    _Atomic size_t next;
    _Atomic int status;
};

static void *take_tasks(void *arg) {
    struct team *team = arg;
    const size_t units = attn_plan_scratch(team->plan) / ATTN_ALIGNMENT + 1;
    void *scratch = aligned_alloc(ATTN_ALIGNMENT, units * ATTN_ALIGNMENT);
    size_t task;
    assert(scratch != NULL);
    memset(scratch, 0xff, units * ATTN_ALIGNMENT);
    while ((task = atomic_fetch_add(&team->next, 1)) < attn_plan_tasks(team->plan, team->phase)) {
        const attn_status status = attn_plan_task(team->plan, team->phase, task, scratch, NULL);
        team->status = status != ATTN_OK ? (int)status : team->status;
    }
    free(scratch);
    return NULL;
}

static attn_status run_on_threads(attn_plan *plan, size_t threads, attn_error *error) {
    pthread_t ids[64];
    attn_status status = attn_plan_begin(plan, error);
    for (size_t phase = 0; phase < attn_plan_phases(plan) && status == ATTN_OK; phase++) {
        struct team team = {.plan = plan, .phase = phase};
        for (size_t i = 0; i < threads; i++) {
            const int failed = pthread_create(&ids[i], NULL, take_tasks, &team);
            assert(failed == 0);
        }
        for (size_t i = 0; i < threads; i++) {
            pthread_join(ids[i], NULL);
        }
        status = (attn_status)team.status;
    }
    return status == ATTN_OK ? attn_plan_end(plan, error) : status;
}

#define RUN_ON(threads)                                                                            \
    attn_status run_on_##threads(attn_plan *plan, attn_error *error) {                             \
        return run_on_threads(plan, threads, error);                                               \
    }
RUN_ON(1)
RUN_ON(2)
RUN_ON(3)
RUN_ON(7)
RUN_ON(64)
#undef RUN_ON

struct results run_plan(attn_plan *plan, run_tasks *run) {
    struct results r = {0};
    void *data[256]; /* of all parts of all results */
    size_t used = 0, bytes = 0;
    for (int i = 0; i < ATTN_RESULT_COUNT; i++) {
        for (size_t part = 0; part < attn_plan_parts(plan, (attn_result)i); part++, used++) {
            const attn_tensor t = attn_as_tensor(attn_plan_tensor(plan, (attn_result)i, part));
            const bool counted = attn_tensor_bytes(&t, &bytes);
            assert(counted && used < sizeof data / sizeof *data);
            r.count[i] += count_of(&t);
            data[used] = memset(guarded_new(bytes), 0xff, bytes);
            attn_plan_bind(plan, (attn_result)i, part, data[used]);
        }
    }
    r.status = (run != NULL ? run : attn_plan_run)(plan, &r.error);
    used = 0;
    for (int i = 0; i < ATTN_RESULT_COUNT; i++) {
        const size_t parts = attn_plan_parts(plan, (attn_result)i);
        r.of[i] = parts > 0 && r.status == ATTN_OK ? allocate(r.count[i], sizeof *r.of[i]) : NULL;
        for (size_t part = 0, at = 0; part < parts; part++) {
            const attn_tensor t = attn_as_tensor(attn_plan_tensor(plan, (attn_result)i, part));
            const size_t count = r.of[i] == NULL ? 0 : count_of(&t);
            for (size_t e = 0; e < count; e++) {
                r.of[i][at++] = number_of(t.data, t.dtype, e);
            }
            guarded_free(data[used++]);
        }
    }
    attn_plan_free(plan);
    return r;
}

void free_results(struct results *r) {
    for (int i = 0; i < ATTN_RESULT_COUNT; i++) {
        free(r->of[i]);
    }
    *r = (struct results){0};
}
