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

enum {
    MOST_TASKS = 1 << 16 /* A phase has more tasks only if its tasks would be too long otherwise. */
};

/* Once sizes, heads and operands are known: options, result shapes, cost. */
attn_status plan_finish(attn_plan *plan, const attn_options *o, attn_error *error);
attn_status plan_options(attn_plan *plan, const attn_options *o, attn_error *error);
attn_status plan_results(attn_plan *plan, attn_error *error);
attn_status plan_schedule(attn_plan *plan, attn_error *error);

/* The costs of the parts of a run; see cost.c. Each function reads only those fields of the
 * schedule that are known when it is called. */
double cost_mean_columns(const attn_plan *plan); /* d + d_v of an average head */
double cost_of_row(const attn_plan *plan, const struct schedule *s); /* one query of one head */
double cost_of_attending(const attn_plan *plan, const struct schedule *s); /* PHASE_ATTEND */
double cost_of_packing(const attn_plan *plan, const struct schedule *s);
double cost_of_copying(double numbers, double rows);
double cost_of_merging(const attn_plan *plan, const struct schedule *s);
double cost_of_ranking(const attn_plan *plan, const struct schedule *s);
double cost_of_projecting(const struct projection *p, size_t rows, size_t columns);
double cost_of_plan(const attn_plan *plan, const struct schedule *s);
double cost_of_softmax(const attn_plan *plan);

#endif
