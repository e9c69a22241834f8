/*
 * plan_f64.c - the gradients of a small float32 call are computed in double: the float64 plan, a
 * copy of its plan, takes copies of all inputs, and its results are rounded once. So they are as
 * exact as the other results, see engine/small.inc.
 */
#include "softmax/plan_f64.h"

#include <string.h>

#include "base/status.h"
#include "plan_inputs.h"
#include "plan_memory.h"
#include "plan_results.h"
#include "softmax/schedule.h"

/* Gives the float64 plan its own heads, in which the schedule writes. */
static attn_status copy_heads(attn_plan *f64, const attn_plan *plan, attn_error *error) {
    ATTN_TRY(plan_new_heads(f64, error));
    memcpy(f64->head, plan->head, plan->heads * sizeof *plan->head);
    return ATTN_OK;
}

/* Lets the float64 plan read copies, which each run fills. */
static attn_status bind_copies(struct plan_f64 *f64, attn_error *error) {
    struct copies *copies = &f64->copies;
    attn_plan *plan = f64->plan;
    ATTN_TRY(plan_copy_inputs(plan, true, copies, error));
    f64->numbers = plan_alloc(plan, copies->numbers, sizeof *f64->numbers);
    if (f64->numbers == NULL) {
        return attn_no_memory(error);
    }
    ATTN_TRY(plan_new_weights(plan, plan->weights, error));
    for (size_t i = 0; i < copies->count; i++) {
        *bound_input(&plan->bindings, copies->inputs[i].which) =
            f64->numbers + copies->inputs[i].at;
    }
    return ATTN_OK;
}

/* Gives the results of the float64 plan a place. */
static attn_status bind_results(attn_plan *f64, attn_error *error) {
    void *memory = plan_alloc(f64, f64->results.bytes + ATTN_ALIGNMENT, 1);
    if (memory == NULL) {
        return attn_no_memory(error);
    }
    return attn_plan_bind_all(f64,
                              (char *)memory + ATTN_ALIGNMENT - (uintptr_t)memory % ATTN_ALIGNMENT);
}

attn_status plan_make_f64(attn_plan *plan, attn_error *error) {
    plan->f64 = plan_alloc(plan, 1, sizeof *plan->f64);
    if (plan->f64 == NULL) {
        return attn_no_memory(error);
    }
    ATTN_TRY(plan_new(&plan->f64->plan, error));
    attn_plan *f64 = plan->f64->plan;
    *f64 = *plan;
    plan->bindings.f64 = &f64->bindings;
    f64->bindings.inputs[INPUT_ALIBI] = NULL; /* the plan reads their numbers for both */
    f64->bindings.inputs[INPUT_SINK] = NULL;
    f64->f64 = NULL;
    f64->memory = NULL;
    f64->bytes = 0;
    f64->dtype = f64->rotary.positions_dtype = ATTN_FLOAT64;
    f64->results = (struct result_set){.wanted = plan->results.wanted & RESULTS_OF(RESULT_GRADIENT),
                                       .head_rows = plan->results.head_rows};
    ATTN_TRY(copy_heads(f64, plan, error));
    ATTN_TRY(bind_copies(plan->f64, error));
    ATTN_TRY(plan_results(f64, error));
    ATTN_TRY(plan_schedule(f64, error));
    return bind_results(f64, error);
}
