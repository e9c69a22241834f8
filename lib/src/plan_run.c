/*
 * plan_run.c has the public functions that say what a plan needs, and those that run it. The kind
 * of the plan does the work.
 */
#include <stdlib.h>

#include "base/status.h"
#include "base/tensor.h"
#include "plan.h"

double attn_plan_cost(const attn_plan *plan) {
    return plan->schedule.cost;
}

size_t attn_plan_scratch(const attn_plan *plan) {
    return plan->schedule.scratch.bytes;
}

size_t attn_plan_phases(const attn_plan *plan) {
    return plan->kind->phases(plan);
}

size_t attn_plan_tasks(const attn_plan *plan, size_t phase) {
    return phase < attn_plan_phases(plan) ? plan->kind->tasks(plan, phase) : 0;
}

/* Returns how many scratches `threads` threads use at most. The tasks of the largest phase are a
 * bound, too. */
static size_t scratches(const attn_plan *plan, size_t threads) {
    size_t most = 1;
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        most = size_max(most, attn_plan_tasks(plan, phase));
    }
    return size_min(threads, most);
}

bool attn_plan_bytes(const attn_plan *plan, size_t threads, size_t *bytes) {
    size_t results, sum;
    if (!attn_plan_results_bytes(plan, &results) ||
        !size_mul(plan->schedule.scratch.bytes, scratches(plan, threads), &sum) ||
        !size_add(results, sum, &sum) || !size_add(sum, sizeof *plan + plan->bytes, &sum) ||
        !size_add(sum, plan->schedule.workspace.bytes, &sum)) {
        return false;
    }
    *bytes = sum;
    return true;
}

static void *allocate(size_t bytes) {
    const size_t rounded = (bytes + ATTN_ALIGNMENT - 1) / ATTN_ALIGNMENT * ATTN_ALIGNMENT;
    return aligned_alloc(ATTN_ALIGNMENT, bytes == 0 ? ATTN_ALIGNMENT : rounded);
}

attn_status attn_plan_begin(attn_plan *plan, attn_error *error) {
    for (uint64_t left = plan->results.wanted; left != 0; left &= left - 1) {
        const attn_result which = (attn_result)__builtin_ctzll(left);
        for (size_t part = 0; part < plan->results.of[which].count; part++) {
            if (bound_part(plan, &plan->bindings, which, part) == NULL &&
                part_numbers(&plan->results.of[which].parts[part]) > 0) {
                return attn_fail(error, ATTN_INVALID_ARGUMENT, attn_result_name(which),
                                 "part %zu of %s is not bound to a buffer", part,
                                 attn_result_name(which));
            }
        }
    }
    if (plan->bindings.workspace == NULL && plan->schedule.workspace.bytes != 0) {
        plan->bindings.workspace = allocate(plan->schedule.workspace.bytes);
        if (plan->bindings.workspace == NULL) {
            return attn_no_memory(error);
        }
    }
    return plan->kind->begin == NULL ? ATTN_OK : plan->kind->begin(plan, &plan->bindings, error);
}

attn_status attn_plan_task(const attn_plan *plan, size_t phase, size_t task, void *scratch,
                           attn_error *error) {
    return plan->kind->run(plan, &plan->bindings, phase, task, scratch, error);
}

attn_status attn_plan_end(attn_plan *plan, attn_error *error) {
    return plan->kind->end == NULL ? ATTN_OK : plan->kind->end(plan, &plan->bindings, error);
}

attn_status attn_plan_run(attn_plan *plan, attn_error *error) {
    ATTN_TRY(attn_plan_begin(plan, error));
    void *scratch = allocate(plan->schedule.scratch.bytes);
    if (scratch == NULL) {
        return attn_no_memory(error);
    }
    attn_status status = ATTN_OK;
    const size_t phases = plan->kind->phases(plan);
    for (size_t phase = 0; phase < phases && status == ATTN_OK; phase++) {
        const size_t tasks = plan->kind->tasks(plan, phase);
        for (size_t task = 0; task < tasks && status == ATTN_OK; task++) {
            status = plan->kind->run(plan, &plan->bindings, phase, task, scratch, error);
        }
    }
    free(scratch);
    status = status == ATTN_OK ? attn_plan_end(plan, error) : status;
    free(plan->bindings.workspace);
    plan->bindings.workspace = NULL;
    return status;
}
