/*
 * plan_widened.h - small calls. One that is given in float32 is widened: its plan is one of
 * float64, whose run copies the inputs and rounds the results.
 */
#ifndef ATTN_PLAN_WIDENED_H
#define ATTN_PLAN_WIDENED_H

#include "plan_inputs.h"

/* A widened call. */
struct widened {
    bool is;
    size_t numbers; /* of all copies, and of all results that are rounded */
    void **parts;   /* room to bind the parts of these results; NULL: each has one part */
};

/* Looks whether a call is small, and widens it if it is in float32. Its results are known, but not
 * its schedule. */
attn_status plan_widen(attn_plan *plan, attn_error *error);

/* Are numbers of a part of a result rounded? The others have the same type in both plans. */
static inline bool is_rounded(const attn_result_tensor *part) {
    return part->dtype == ATTN_FLOAT32;
}

#endif
