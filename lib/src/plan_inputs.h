/*
 * plan_inputs.h - the inputs of a plan that are matrices of numbers, and the copies of them that a
 * run makes in another type.
 */
#ifndef ATTN_PLAN_INPUTS_H
#define ATTN_PLAN_INPUTS_H

#include "base/tensor.h"

/* A float32 input of which a run makes a copy. */
struct copied_input {
    size_t which; /* see bound_input() */
    const float *from;
    const char *name;
    size_t count, at;      /* its numbers, and the place of the copy among those of all inputs */
    size_t panel, columns; /* of a matrix of weights, see struct projection */
};

enum {
    FEW_COPIES = 3 /* a call with so few inputs needs no memory for the list */
};

/* Returns how many numbers the copy of so many takes, so that the next one is aligned. */
static inline size_t copied_numbers(size_t count) {
    const size_t aligned = ATTN_ALIGNMENT / sizeof(float);
    return ceil_div(count, aligned) * aligned;
}

struct copies {
    struct copied_input *inputs; /* in the order of their copies */
    size_t count;                /* inputs that there are */
    size_t numbers;              /* of all copies */
    struct copied_input few[FEW_COPIES];
};

/* Binds an input. It may have no numbers, and then it counts as none. */
void plan_bind_input(attn_plan *plan, int which, const void *data);

/* Returns the input that a gradient is about, or NULL if the call lacks it. It is not about weights
 * of Q, K or V. */
const attn_tensor *plan_input_of(const attn_plan *plan, attn_result gradient);

/* Lists all inputs that a run copies: those that a compute_dtype rounds or, if there is none, those
 * of a widened call. The latter reads its rotary tables where they lie, because few of their rows
 * are read. */
attn_status plan_copy_inputs(attn_plan *plan, attn_error *error);

/* Checks the gradient of a result, if it is given, against the shape of that result, and binds
 * it. */
attn_status plan_bind_upstream(attn_plan *plan, const attn_tensor *given, const char *name,
                               const attn_result_tensor *result, int which, attn_error *error);

#endif
