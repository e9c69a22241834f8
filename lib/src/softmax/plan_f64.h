/*
 * plan_f64.h - the second plan of a small float32 call whose gradients are wanted.
 */
#ifndef ATTN_PLAN_F64_H
#define ATTN_PLAN_F64_H

#include "plan_inputs.h"

/* The plan in float64 of the gradients of a small call, and the copies of its inputs. */
struct plan_f64 {
    attn_plan *plan; /* owned */
    struct copies copies;
    double *numbers; /* of all copies */
};

/* Makes the float64 plan of a small call, whose results are known, but not its schedule. */
attn_status plan_make_f64(attn_plan *plan, attn_error *error);

#endif
