/*
 * plan_half.c - plans a call with a compute_dtype: a run makes copies of its inputs that are
 * rounded to this type. engine/half.inc rounds them, and all that follows.
 */
#include "softmax/plan_half.h"

#include "base/status.h"
#include "base/tensor.h"
#include "half.h"
#include "partition.h"
#include "plan_inputs.h"
#include "softmax/cost.h"

static const struct half_type types[] = {
    [ATTN_COMPUTE_FLOAT16] = {"float16", 13, 0x1p-14F, 0.5F, 65504},
    [ATTN_COMPUTE_BFLOAT16] = {"bfloat16", 16, 0, 0, 0x1.FEp127F},
};

attn_status half_fail(const struct half_type *type, const char *name, double number,
                      attn_error *error) {
    return attn_fail(error, ATTN_NOT_FINITE, name,
                     "%s holds %g, but the largest number of compute_dtype \"%s\" is %g", name,
                     number, type->name, (double)type->most);
}

attn_status plan_compute_dtype(attn_plan *plan, const attn_options *o, attn_error *error) {
    if (o->compute_dtype == ATTN_COMPUTE_AS_GIVEN) {
        return ATTN_OK;
    }
    plan->half.type = &types[o->compute_dtype];
    return plan->dtype == ATTN_FLOAT32
               ? ATTN_OK
               : attn_fail(
                     error, ATTN_INVALID_ARGUMENT, "compute_dtype",
                     "compute_dtype \"%s\" rounds float32 matrices, but the call is in float64",
                     plan->half.type->name);
}

/* Inputs with one number for each head are rounded when they are read. */
attn_status plan_round_inputs(attn_plan *plan, attn_error *error) {
    struct half *n = &plan->half;
    struct schedule *s = &plan->schedule;
    size_t bytes;
    if (n->type == NULL) {
        return ATTN_OK;
    }
    ATTN_TRY(plan_copy_inputs(plan, error));
    n->memory = s->workspace.bytes;
    if (!size_mul(plan->copies.numbers, sizeof(float), &bytes) ||
        !size_add(s->workspace.bytes, bytes, &s->workspace.bytes)) {
        return attn_too_large(error);
    }
    s->tasks[PHASE_ROUND] = ceil_div(plan->copies.numbers, COPY_NUMBERS);
    s->cost += cost_of_rounded_inputs(plan);
    return ATTN_OK;
}
