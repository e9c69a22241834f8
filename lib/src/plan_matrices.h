/*
 * plan_matrices.h - Q, K, V and the past rows of a call of any kind: their checks, and the places
 * of their rows.
 */
#ifndef ATTN_PLAN_MATRICES_H
#define ATTN_PLAN_MATRICES_H

#include "plan.h"

/* The four sizes of a matrix, whatever its form. */
struct dims {
    size_t batch, heads, rows, columns; /* columns of one head */
};

/* A matrix of the call. Its name is that of messages. plan_matrices() finds its sizes. */
struct matrix {
    const attn_tensor *tensor;
    const char *name;
    struct dims d;
};

/* Checks Q, K and V, and the past rows of the options, against each other, and makes them operands
 * of the plan. `heads` are those of packed matrices, or zeros. */
attn_status plan_matrices(attn_plan *plan, struct matrix m[3], const size_t heads[3],
                          const attn_options *o, attn_error *error);

/* Checks that past_K and past_V are both given, or neither. */
attn_status plan_check_past(const attn_options *o, attn_error *error);

/* Checks past_K and past_V against the sizes of K and V, and makes them operands of the plan. */
attn_status plan_past(attn_plan *plan, const attn_options *o, struct dims k, struct dims v,
                      bool packed, attn_error *error);

/* Gives each head its scale. */
attn_status plan_scale(attn_plan *plan, const attn_options *o, attn_error *error);

/* Checks Q, K and V of sequences, whose axes are (rows, columns), or (rows, heads, columns) if the
 * options have no heads. There may be no rows. */
attn_status plan_check_packed(const attn_tensor *const qkv[3], const char *const names[3],
                              const attn_options *o, attn_error *error);

/* Checks the number of sequences, and that their queries are the rows of a matrix. `stacked`: its
 * heads are an axis. */
attn_status plan_check_sequences(const attn_sequences *s, const char *name, size_t rows,
                                 bool stacked, attn_error *error);

/* Checks that the lengths of `count` sequences add up to the rows of Q, or of K. */
attn_status plan_check_sum(const char *name, size_t rows, bool stacked, const size_t *lengths,
                           size_t count, attn_error *error);

/* Makes (rows,heads*columns) of (rows,heads,columns), which was checked, and such a part again of a
 * part (rows,heads*columns). */
attn_tensor plan_flattened(const attn_tensor *t);
void plan_stack(attn_result_tensor *part, size_t heads);

#endif
