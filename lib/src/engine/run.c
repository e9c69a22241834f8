/*
 * run.c runs a plan: it holds the public functions that compute. The dtype of the plan chooses the
 * functions for float32 or for float64.
 */
#include "engine/run.h"

#include <stdlib.h>

#include "plan_build.h"
#include "status.h"
#include "tensor.h"

static void *allocate(size_t bytes) {
    const size_t rounded = (bytes + ATTN_ALIGNMENT - 1) / ATTN_ALIGNMENT * ATTN_ALIGNMENT;
    return aligned_alloc(ATTN_ALIGNMENT, bytes == 0 ? ATTN_ALIGNMENT : rounded);
}

/* The inputs of a call with a compute_dtype are their rounded copies. */
static void bind_rounded(attn_plan *plan) {
    const char *memory = plan->bindings.workspace;
    for (size_t i = 0; i < plan->narrow.copies.count; i++) {
        const struct copied_input *input = &plan->narrow.copies.inputs[i];
        *bound_input(&plan->bindings, input->which) =
            memory + plan->narrow.memory + input->at * sizeof(float);
    }
}

attn_status attn_plan_begin(attn_plan *plan, attn_error *error) {
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        for (size_t part = 0; part < plan->results.of[r].count; part++) {
            if (bound_result(plan, &plan->bindings, (attn_result)r, part) == NULL &&
                part_numbers(&plan->results.of[r].parts[part]) > 0) {
                return attn_fail(error, ATTN_INVALID_ARGUMENT, attn_result_name((attn_result)r),
                                 "part %zu of %s is not bound to a buffer", part,
                                 attn_result_name((attn_result)r));
            }
        }
    }
    if (plan->bindings.workspace == NULL && plan->schedule.workspace.bytes != 0) {
        plan->bindings.workspace = allocate(plan->schedule.workspace.bytes);
        if (plan->bindings.workspace == NULL) {
            return attn_no_memory(error);
        }
    }
    bind_rounded(plan);
    ATTN_TRY(plan_read_numbers(plan, &plan->bindings, error));
    if (plan->sequences != NULL) {
        sequences_begin(plan);
    }
    if (plan->wide == NULL) {
        return ATTN_OK;
    }
    task_widen(plan);
    return attn_plan_begin(plan->wide->plan, error);
}

attn_status attn_plan_task(const attn_plan *plan, size_t phase, size_t task, void *scratch,
                           attn_error *error) {
    return plan->sequences != NULL
               ? sequences_task(plan, &plan->bindings, phase, task, scratch, error)
               : task_run(plan, &plan->bindings, phase, task, scratch, error);
}

attn_status attn_plan_end(attn_plan *plan, attn_error *error) {
    attn_status status = ATTN_OK;
    if (plan_wants(plan, ATTN_WANT(STATISTICS))) {
        status = plan->dtype == ATTN_FLOAT32 ? run_statistics_f32(plan, &plan->bindings, error)
                                             : run_statistics_f64(plan, &plan->bindings, error);
    }
    return status;
}

attn_status attn_plan_run(attn_plan *plan, attn_error *error) {
    ATTN_TRY(attn_plan_begin(plan, error));
    void *scratch = allocate(plan->schedule.scratch.bytes);
    if (scratch == NULL) {
        return attn_no_memory(error);
    }
    attn_status status = ATTN_OK;
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        for (size_t task = 0; task < attn_plan_tasks(plan, phase) && status == ATTN_OK; task++) {
            status = attn_plan_task(plan, phase, task, scratch, error);
        }
    }
    free(scratch);
    status = status == ATTN_OK ? attn_plan_end(plan, error) : status;
    free(plan->bindings.workspace);
    plan->bindings.workspace = NULL;
    return status;
}
