/*
 * plan_build.h - the parts that both kinds of plan are built from. Every function checks what it
 * is given; on failure the half-built plan is freed by attn_plan_free.
 */
#ifndef ATTN_PLAN_BUILD_H
#define ATTN_PLAN_BUILD_H

#include "plan.h"

attn_status plan_no_memory(attn_error *error);
attn_status plan_too_large(attn_error *error);

attn_status plan_new(attn_plan **plan, attn_error *error);
attn_status plan_check_heads(const attn_plan *plan, size_t heads, attn_error *error);
attn_status plan_new_heads(attn_plan *plan, attn_error *error); /* plan->heads is known */

/* kv_heads of the options, checked against heads. */
attn_status plan_kv_heads(const attn_options *o, size_t heads, size_t *kv_heads, attn_error *error);

/* The four sizes of a matrix, whatever its form. */
struct dims {
    size_t batch, heads, rows, columns; /* columns of one head */
};

/* past_K and past_V: both or none; then, in the form of K and V (given as dims), into the plan. */
attn_status check_past(const attn_options *o, attn_error *error);
attn_status plan_past(attn_plan *plan, const attn_options *o, struct dims k, struct dims v,
                      bool packed, attn_error *error);

/* Once sizes, heads and operands are known: options, result shapes, cost. */
attn_status plan_finish(attn_plan *plan, const attn_options *o, attn_error *error);
attn_status plan_options(attn_plan *plan, const attn_options *o, attn_error *error);
attn_status plan_results(attn_plan *plan, attn_error *error);
attn_status plan_schedule(attn_plan *plan, attn_error *error);

#endif
