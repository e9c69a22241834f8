/*
 * plan_rotary.h - the norms of rows and the rotary embedding of a plan.
 */
#ifndef ATTN_PLAN_ROTARY_H
#define ATTN_PLAN_ROTARY_H

#include "bindings.h"

/* Rotary embedding. `given` is what the caller gave, with the defaults filled in. */
struct rotary {
    attn_rotary given; /* the plan owns its lists */
    size_t columns;    /* columns of each head that are rotated; 0: there is no rotary embedding */
    size_t all_pairs;  /* pairs of columns, of which the first ones are rotated */
    double factor;     /* of cos and sin */
    size_t table_rows, table_batch; /* rows of a table; from one batch item to the next, or 0 */
    attn_dtype positions_dtype;
    size_t positions_batch; /* from one batch item to the next, or 0 */
};

/* Checks the norms and rotary. The heads, the sizes and plan_position() are known. */
attn_status plan_rotary(attn_plan *plan, const attn_options *o, attn_error *error);

/* Computes the frequencies of rotary embedding for the positions of a run. */
void plan_frequencies(const attn_plan *plan, const struct bindings *bindings);

#endif
