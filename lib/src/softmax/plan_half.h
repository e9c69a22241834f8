/*
 * plan_half.h - a call with a compute_dtype, whose inputs are rounded copies.
 */
#ifndef ATTN_PLAN_HALF_H
#define ATTN_PLAN_HALF_H

#include "half.h"
#include "plan_inputs.h"

/* A call with a compute_dtype. */
struct half {
    const struct half_type *type; /* NULL: there is no compute_dtype */
    size_t memory;                /* where the copies begin in the workspace */
};

/* Chooses the type of a compute_dtype. */
attn_status plan_compute_dtype(attn_plan *plan, const attn_options *o, attn_error *error);

/* Lets a call with a compute_dtype round its inputs. Its schedule is known. The plans of sequences
 * take rounded rows of the call as a whole, see packed/sequences.c. */
attn_status plan_round_inputs(attn_plan *plan, attn_error *error);

/* Fails because a number of an input is too large for the type. */
attn_status half_fail(const struct half_type *type, const char *name, double number,
                      attn_error *error);

#endif
