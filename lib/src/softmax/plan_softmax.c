/* plan_softmax.c - plans softmax alone, along one axis of an array; softmax.inc runs it. */
#include "softmax/plan_softmax.h"

#include <string.h>

#include "base/status.h"
#include "base/tensor.h"
#include "partition.h"
#include "plan_inputs.h"
#include "plan_memory.h"
#include "plan_results.h"
#include "softmax/cost.h"

enum {
    /* The most numbers of one task: they take about 0.5 ms, and fit an L2 cache. */
    CHUNK_NUMBERS = 1 << 18,
    /* The least numbers of one task, if there are enough slices. */
    TASK_NUMBERS = 1 << 14,
};

static attn_status check_softmax(const attn_tensor *x, int axis, attn_error *error) {
    size_t bytes;
    if (!dtype_is_float(x->dtype)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "X", "X must be float32 or float64");
    }
    if (x->rank < 1 || x->rank > ATTN_MAX_RANK) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "X", "X must have rank 1 to %d, not %d",
                         ATTN_MAX_RANK, x->rank);
    }
    if (axis < -x->rank || axis >= x->rank) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "axis",
                         "axis is %d; X has rank %d, so it must be in [%d, %d]", axis, x->rank,
                         -x->rank, x->rank - 1);
    }
    if (!attn_tensor_bytes(x, &bytes)) {
        return attn_fail(error, ATTN_TOO_LARGE, "X", "X is too large");
    }
    if (tensor_lacks_data(x)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "X", "X is missing");
    }
    return ATTN_OK;
}

/* Cuts the array into blocks of columns, and slices that are long into parts. */
static void cut_slices(attn_plan *plan) {
    struct slices *s = &plan->slices;
    struct schedule *schedule = &plan->schedule;
    s->columns = size_min(s->inner, SOFTMAX_COLUMNS);
    s->across = ceil_div(s->inner, s->columns);
    const size_t most = CHUNK_NUMBERS / s->columns;
    s->chunks = ceil_div(s->count, most);
    s->chunk = ceil_div(s->count, s->chunks);
    s->chunks = ceil_div(s->count, s->chunk);
    const size_t units = s->outer * s->across * s->chunks, numbers = s->chunk * s->columns;
    const size_t least =
        size_min(CHUNK_NUMBERS, size_max(TASK_NUMBERS, units / MOST_TASKS * numbers));
    s->all.units = units;
    s->all.per_task = size_max(1, least / numbers);
    schedule->tasks[PHASE_ATTEND] = ceil_div(units, s->all.per_task);
    if (s->chunks > 1) {
        schedule->tasks[PHASE_WEIGH] = schedule->tasks[PHASE_ATTEND];
        schedule->workspace.bytes = units * 2 * s->columns * sizeof(double);
    }
    schedule->cost = cost_of_softmax(plan);
}

attn_status attn_plan_softmax(attn_plan **plan, const attn_tensor *x, int axis, attn_error *error) {
    *plan = NULL;
    ATTN_TRY(check_softmax(x, axis, error));
    ATTN_TRY(plan_new(plan, error));
    attn_plan *p = *plan;
    struct result *output = &p->results.of[ATTN_RESULT_OUTPUT];
    p->results.wanted = ATTN_WANT(OUTPUT);
    output->parts = p->results.few;
    output->parts[0] = (attn_result_tensor){.dtype = x->dtype, .rank = x->rank};
    memcpy(output->parts[0].shape, x->shape, sizeof x->shape);
    output->count = 1;
    plan_add_bytes(p, &output->parts[0]);
    p->dtype = x->dtype;
    p->kind = &plan_kind_softmax;
    p->slices = (struct slices){.outer = 1, .inner = 1};
    plan_bind_input(p, INPUT_X, x->data);
    axis = axis < 0 ? axis + x->rank : axis;
    for (int i = 0; i < x->rank; i++) {
        p->slices.outer *= i < axis ? x->shape[i] : 1;
        p->slices.inner *= i > axis ? x->shape[i] : 1;
    }
    p->slices.count = x->shape[axis];
    if (p->slices.outer * p->slices.inner * p->slices.count != 0) { /* otherwise there is no task */
        cut_slices(p);
    }
    return ATTN_OK;
}

attn_status attn_softmax(const attn_tensor *x, int axis, void *out, attn_error *error) {
    attn_plan *plan;
    attn_status status = attn_plan_softmax(&plan, x, axis, error);
    if (status == ATTN_OK) {
        size_t count;
        attn_tensor_count(x, &count);
        if (count > 0) {
            attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, out);
            status = attn_plan_run(plan, error);
        }
        attn_plan_free(plan);
    }
    return status;
}
