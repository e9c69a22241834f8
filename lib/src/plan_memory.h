/*
 * plan_memory.h - plans and the memory that they own. If a function that builds a plan fails,
 * attn_plan_free() frees the plan that is not complete.
 */
#ifndef ATTN_PLAN_MEMORY_H
#define ATTN_PLAN_MEMORY_H

#include "plan.h"

/* Allocates an empty plan. */
attn_status plan_new(attn_plan **plan, attn_error *error);

/* Returns zeroed memory of `count` elements of `size` bytes, whose product fits, or NULL. The plan
 * owns it. */
void *plan_alloc(attn_plan *plan, size_t count, size_t size);

/* Returns `status`. If it is an error, the plan is freed, and becomes NULL. */
attn_status plan_or_free(attn_plan **plan, attn_status status);

/* Checks a number of heads against the most that are possible. */
attn_status plan_check_heads(const attn_plan *plan, size_t heads, attn_error *error);

/* Makes room to bind so many weights and biases of projections. */
attn_status plan_new_weights(attn_plan *plan, size_t count, attn_error *error);

/* Checks plan->heads, and allocates plan->head for as many. */
attn_status plan_new_heads(attn_plan *plan, attn_error *error);

#endif
