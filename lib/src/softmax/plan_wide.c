/*
 * plan_wide.c - the gradients of a small float32 call are computed in double: a copy of its plan in
 * float64, the wide plan, takes copies of all inputs, and its results are rounded once. So they are
 * as exact as the other results, see engine/small.inc.
 */
#include "softmax/plan_wide.h"

#include <string.h>

#include "base/status.h"
#include "plan_inputs.h"
#include "plan_memory.h"
#include "plan_results.h"
#include "softmax/schedule.h"

/* Gives the wide plan its own heads, in which the schedule writes. */
static attn_status copy_heads(attn_plan *wide, const attn_plan *plan, attn_error *error) {
    ATTN_TRY(plan_new_heads(wide, error));
    memcpy(wide->head, plan->head, plan->heads * sizeof *plan->head);
    return ATTN_OK;
}

/* Lets the wide plan read copies, which each run fills. */
static attn_status bind_copies(struct wide *wide, attn_error *error) {
    struct copies *copies = &wide->copies;
    attn_plan *plan = wide->plan;
    ATTN_TRY(plan_copy_inputs(plan, true, copies, error));
    wide->numbers = plan_alloc(plan, copies->numbers, sizeof *wide->numbers);
    if (wide->numbers == NULL) {
        return attn_no_memory(error);
    }
    ATTN_TRY(plan_new_weights(plan, plan->weights, error));
    for (size_t i = 0; i < copies->count; i++) {
        *bound_input(&plan->bindings, copies->inputs[i].which) =
            wide->numbers + copies->inputs[i].at;
    }
    return ATTN_OK;
}

/* Gives the results of the wide plan a place. */
static attn_status bind_results(attn_plan *wide, attn_error *error) {
    void *memory = plan_alloc(wide, wide->results.bytes + ATTN_ALIGNMENT, 1);
    if (memory == NULL) {
        return attn_no_memory(error);
    }
    return attn_plan_bind_all(wide,
                              (char *)memory + ATTN_ALIGNMENT - (uintptr_t)memory % ATTN_ALIGNMENT);
}

attn_status plan_wide(attn_plan *plan, attn_error *error) {
    plan->wide = plan_alloc(plan, 1, sizeof *plan->wide);
    if (plan->wide == NULL) {
        return attn_no_memory(error);
    }
    ATTN_TRY(plan_new(&plan->wide->plan, error));
    attn_plan *wide = plan->wide->plan;
    *wide = *plan;
    plan->bindings.wide = &wide->bindings;
    wide->bindings.inputs[INPUT_ALIBI] = NULL; /* the plan reads their numbers for both */
    wide->bindings.inputs[INPUT_SINK] = NULL;
    wide->wide = NULL;
    wide->memory = NULL;
    wide->bytes = 0;
    wide->dtype = wide->rotary.positions_dtype = ATTN_FLOAT64;
    wide->results =
        (struct result_set){.wanted = plan->results.wanted & RESULTS_OF(RESULT_GRADIENT),
                            .head_rows = plan->results.head_rows};
    ATTN_TRY(copy_heads(wide, plan, error));
    ATTN_TRY(bind_copies(plan->wide, error));
    ATTN_TRY(plan_results(wide, error));
    ATTN_TRY(plan_schedule(wide, error));
    return bind_results(wide, error);
}
