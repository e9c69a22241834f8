/*
 * plan_multihead.h - the projections of a plan: Q, K, V and the gate are computed from X, and the
 * output from the outputs of the heads.
 */
#ifndef ATTN_PLAN_MULTIHEAD_H
#define ATTN_PLAN_MULTIHEAD_H

#include "base/tensor.h"
#include "results.h"

/* The projections of a plan. Their order is that of Q, K and V in a call. */
enum {
    PROJECT_Q,
    PROJECT_K,
    PROJECT_V,
    PROJECT_QKV, /* so many make Q, K and V */
    PROJECT_GATE = PROJECT_QKV,
    PROJECT_INPUTS,
    PROJECT_OUT = PROJECT_INPUTS,
    PROJECT_COUNT
};

/* One matrix of weights: columns [column, column + cols) of the result are X W + b. W is number
 * `weights` of those that are bound, and b the next one. */
struct weight_matrix {
    size_t cols, column, weights;
};

/* X (rows, inner) times the weights of all heads, or of each head with its own, side by side: the
 * result is (rows, ld). */
struct projection {
    size_t rows, inner, ld;
    bool out_in;  /* W is (cols, inner); otherwise it is (inner, cols) */
    size_t panel; /* W is in panels of so many columns and of all its rows; 0: it is not */
    struct weight_matrix *matrices; /* in the order of their columns */
    size_t count;                   /* matrices that there are */
    size_t weights;                 /* the first of those that are bound */
    const char *name;               /* name of the result in messages */
    /* A batch item has item_rows rows. In the result, `gap` rows for extra keys follow them. */
    size_t item_rows, gap;
    /* One task computes task_rows rows and task_columns columns of the result. */
    size_t task_rows, task_columns;
    size_t across;     /* tasks that share the same rows */
    size_t tile_inner; /* columns of X that one product has */
};

/* Returns the place of a row of X in the result of a projection. */
static inline size_t projected_row(const struct projection *p, size_t row) {
    return p->gap == 0 ? row : row + row / p->item_rows * p->gap;
}

/* Returns the gradient of the weights of a projection, or of its bias. */
static inline attn_result gradient_of_weights(int which) {
    return which == PROJECT_GATE  ? ATTN_RESULT_GRAD_W_G
           : which == PROJECT_OUT ? ATTN_RESULT_GRAD_W_O
                                  : result_after(ATTN_RESULT_GRAD_W_Q, which);
}

static inline attn_result gradient_of_bias(int which) {
    return which == PROJECT_GATE  ? ATTN_RESULT_GRAD_B_G
           : which == PROJECT_OUT ? ATTN_RESULT_GRAD_B_O
                                  : result_after(ATTN_RESULT_GRAD_B_Q, which);
}

/* Plans attention with projections. */
attn_status plan_multihead(attn_plan **plan, const attn_multihead *call, const attn_options *o,
                           attn_error *error);

#endif
