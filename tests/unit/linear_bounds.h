/*
 * linear_bounds.h - compares the results of a call of linear attention with the reference. Every
 * error is relative to the largest number of its result in a head.
 */
#ifndef LINEAR_BOUNDS_H
#define LINEAR_BOUNDS_H

#include "linear_calls.h"
#include "support/reference_linear.h"

/* The results that linear attention has. */
#define LINEAR_RESULT_MAP(X)                                                                       \
    X(OUTPUT)                                                                                      \
    X(WEIGHTS)                                                                                     \
    X(PRESENT_STATE)                                                                               \
    X(STATES)                                                                                      \
    X(DECAYS)                                                                                      \
    X(GRAD_Q)                                                                                      \
    X(GRAD_K)                                                                                      \
    X(GRAD_V)                                                                                      \
    X(GRAD_DECAY)                                                                                  \
    X(GRAD_BETA)                                                                                   \
    X(GRAD_PAST_STATE)

/* The largest errors, each relative to the largest number of its result in a head. */
struct linear_errors {
    double of[ATTN_RESULT_COUNT];
};

/* Compares the results of a call with the reference, and adds its errors. A result may be missing
 * only if it is too large for the dtype. Returns false if the call was such a one. */
bool compare_linear(const struct linear_call *c, const struct results *r,
                    struct linear_errors *errors);

#endif
