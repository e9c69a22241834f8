/*
 * run.c - the entry points that compute: they choose the template's instance by dtype.
 */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensor.h"

static void *allocate(size_t bytes) {
    return aligned_alloc(64, bytes == 0 ? 64 : (bytes + 63) / 64 * 64);
}

attn_status attn_plan_begin(attn_plan *plan, attn_error *error) {
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        for (size_t part = 0; part < plan->results[r].count; part++) {
            if (plan->results[r].parts[part].data == NULL) {
                return attn_fail(error, ATTN_INVALID_ARGUMENT, attn_result_name((attn_result)r),
                                 "part %zu of %s is not bound to a buffer", part,
                                 attn_result_name((attn_result)r));
            }
        }
    }
    if (plan->workspace == NULL && plan->schedule.workspace != 0) {
        plan->workspace = allocate(plan->schedule.workspace);
        if (plan->workspace == NULL) {
            return attn_fail(error, ATTN_NO_MEMORY, "", "out of memory");
        }
    }
    if (plan_wants(plan, ATTN_WANT(STATISTICS))) {
        memset((char *)plan->workspace + plan->schedule.moments, 0,
               plan->batch * plan->heads * plan->schedule.blocks * 2 * sizeof(struct moments));
    }
    return plan_read_numbers(plan, error);
}

attn_status attn_plan_task(const attn_plan *plan, size_t phase, size_t task, void *scratch,
                           attn_error *error) {
    return plan->dtype == ATTN_FLOAT32 ? run_task_f32(plan, phase, task, scratch, error)
                                       : run_task_f64(plan, phase, task, scratch, error);
}

attn_status attn_plan_end(attn_plan *plan, attn_error *error) {
    attn_status status = ATTN_OK;
    if (plan_wants(plan, ATTN_WANT(STATISTICS))) {
        status = plan->dtype == ATTN_FLOAT32 ? run_statistics_f32(plan, error)
                                             : run_statistics_f64(plan, error);
    }
    return status;
}

attn_status attn_plan_run(attn_plan *plan, attn_error *error) {
    ATTN_TRY(attn_plan_begin(plan, error));
    void *scratch = allocate(plan->schedule.scratch);
    if (scratch == NULL) {
        return attn_fail(error, ATTN_NO_MEMORY, "", "out of memory");
    }
    attn_status status = ATTN_OK;
    for (size_t phase = 0; phase < PHASE_COUNT; phase++) {
        for (size_t task = 0; task < plan->schedule.tasks[phase] && status == ATTN_OK; task++) {
            status = attn_plan_task(plan, phase, task, scratch, error);
        }
    }
    free(scratch);
    status = status == ATTN_OK ? attn_plan_end(plan, error) : status;
    free(plan->workspace);
    plan->workspace = NULL;
    return status;
}

attn_status attn_softmax(const attn_tensor *x, int axis, void *out, attn_error *error) {
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
        return attn_fail(error, ATTN_TOO_LARGE, "X", "X is too large to be addressed");
    }
    axis = axis < 0 ? axis + x->rank : axis;
    return x->dtype == ATTN_FLOAT32 ? softmax_f32(x, axis, out, error)
                                    : softmax_f64(x, axis, out, error);
}

void moments_merge(struct moments *into, struct moments other) {
    if (other.count == 0) {
        return;
    }
    if (into->count == 0) { /* below, the square of a large mean times no numbers would be NaN */
        *into = other;
        return;
    }
    double count = into->count + other.count;
    double delta = other.mean - into->mean;
    into->m2 += other.m2 + delta * delta * (into->count * other.count / count);
    into->mean += delta * (other.count / count);
    into->count = count;
}
