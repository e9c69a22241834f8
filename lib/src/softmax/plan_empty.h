/*
 * plan_empty.h - calls with an empty axis, which have no scores.
 */
#ifndef ATTN_PLAN_EMPTY_H
#define ATTN_PLAN_EMPTY_H

#include "plan.h"

/* Checks that the results of a call with an empty axis exist. */
attn_status plan_check_empty(const attn_plan *plan, attn_error *error);

/* Counts the tasks that fill the results of a call with an empty axis. They are PHASE_ATTEND. */
size_t plan_count_fills(const attn_plan *plan);

/* The cost of these tasks. */
double plan_cost_of_fills(const attn_plan *plan);

/* Runs one of these tasks. */
attn_status plan_fill(const attn_plan *plan, const struct bindings *bindings, size_t task,
                      attn_error *error);

#endif
