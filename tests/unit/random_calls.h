/*
 * random_calls.h - draws calls of seeds over all options, all forms and both dtypes. Q, K and V of
 * each head are made first, and are then put into the form of the call. For a call with
 * projections, X and the weights are drawn, and Q, K and V are computed from them.
 */
#ifndef RANDOM_CALLS_H
#define RANDOM_CALLS_H

#include <stddef.h>
#include <stdint.h>

#include "attention_calls.h"

/* Draws the call of a seed, and plans it; the plan must be possible. The caller frees the plan, and
 * the call by free_call(). */
attn_plan *draw_random_call(struct call *c, uint64_t seed);

/* Plans a drawn call again, after its options were changed; the plan must be possible. */
attn_plan *plan_random_call(struct call *c, uint64_t seed);

/* Draws the options that a call of any form may have, packed sequences too: those of one number for
 * all heads or for each. */
void draw_rules(struct call *c);

/* Draws the logarithms of forget gates, of which some are 0. They have the axes of K. */
void draw_decay(struct call *c, struct rng *rng);

/* Returns the batch items whose matrices are drawn: one at least, which a matrix may have although
 * the call has none. */
size_t drawn_items(const struct call *c);

/* Draws normal numbers of a standard deviation, which are exact in the dtype of the call. They are
 * freed with the call. */
double *draw_normals(struct call *c, size_t count, double scale);

/* Returns a tensor of the call's dtype with these numbers. It is freed with the call. */
attn_tensor *tensor_of(struct call *c, const double *x, int rank, const size_t *shape);

/* Returns Y (rows, columns) = X (rows, inner) W + bias, where element (r, column) of W is
 * w[r * row_stride + column * column_stride]. It is freed with the call. `bias` may be NULL. */
double *matrix_product(struct call *c, const double *x, size_t rows, size_t inner, const double *w,
                       size_t row_stride, size_t column_stride, size_t columns, const double *bias);

#endif
