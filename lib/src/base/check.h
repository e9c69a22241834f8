/*
 * check.h - checks of arguments. Each error names the rule and the values that broke it.
 */
#ifndef ATTN_CHECK_H
#define ATTN_CHECK_H

#include "attention.h"
#include "plan.h"

/* Checks that a tensor is given, has a float dtype and a rank in [min_rank, max_rank], is not
 * empty, and has sizes that BLAS can address. */
attn_status check_matrix(const attn_tensor *tensor, const char *name, int min_rank, int max_rank,
                         attn_error *error);

/* The same, but the axes of which `empty` has the bit may be empty: bit 0 is the last axis. A
 * tensor that is empty needs no data. */
attn_status check_sizes(const attn_tensor *tensor, const char *name, int min_rank, int max_rank,
                        unsigned empty, attn_error *error);

/* The same for a matrix whose rows may be none, and also its batch items, whose axes come before
 * the `last` ones. */
attn_status check_rows(const attn_tensor *tensor, const char *name, int min_rank, int max_rank,
                       int last, attn_error *error);

/* Checks that a tensor has the dtype of the call. */
attn_status check_dtype(const attn_tensor *tensor, const char *name, attn_dtype dtype,
                        attn_error *error);

/* Checks that a tensor has exactly this shape. */
attn_status check_shape(const attn_tensor *tensor, const char *name, int rank, const size_t *shape,
                        attn_error *error);

/* The same, but the axes after an empty one may be left out. */
attn_status check_open_shape(const attn_tensor *tensor, const char *name, int rank,
                             const size_t *shape, attn_error *error);

/* The kinds of calls that do not have all options. */
enum check_call {
    CHECK_PROJECTIONS,
    CHECK_LINEAR,
    CHECK_SEQUENCES,
    CHECK_CALLS
};

/* Refuses the options that a kind of call does not have. */
attn_status check_lacks(const attn_options *options, enum check_call call, attn_error *error);

/* Checks the numbers, flags and enums of the options, but nothing that depends on shapes. */
attn_status check_options(const attn_options *options, attn_error *error);

/* Finds norm_epsilon or its default, and checks it. */
attn_status check_norm_epsilon(const attn_options *o, const char *needs, double *epsilon,
                               attn_error *error);

/* Returns the ending of a noun that follows this number in a message: "1 row", "2 rows". */
static inline const char *plural_end(size_t number) {
    return number == 1 ? "" : "s";
}

/* Checks that `columns` is a multiple of `heads`, which the message calls `heads_name`. */
attn_status check_columns(const char *name, size_t columns, size_t heads, const char *heads_name,
                          attn_error *error);

/* Checks that `got` equals `want`. The message is "NAME has GOT WHAT but OTHER has WANT", where
 * WHAT is a noun; `what` is its singular. */
attn_status check_equal(const char *name, size_t got, const char *what, const char *other,
                        size_t want, attn_error *error);

/* Checks how many numbers there are of an option that has one for each head. */
attn_status check_per_head(const attn_plan *plan, size_t count, const char *name,
                           attn_error *error);

/* Checks that each batch item has a length, or none has, and that no length is above `most`, the
 * number of `what`. */
attn_status check_lengths(const attn_plan *plan, const attn_options *o, size_t most,
                          const char *what, attn_error *error);

/* Finds how many batch items a tensor has before its `last` axes. These axes are those of the call,
 * counted from the right. It has all items, or 1 if each of its batch axes is 1. */
attn_status check_batch(const attn_tensor *tensor, const char *name, int last,
                        const struct form *form, size_t *items, attn_error *error);

/* Refuses a decay or beta of packed rows, (positions, heads) from `axis` on, or (positions, heads,
 * columns), if there are as many heads as positions: it may be meant the other way round. A last
 * axis of 1, or one for heads and columns together, says that it is not. */
attn_status check_square(const attn_tensor *tensor, const char *name, int axis, int batch_axes,
                         attn_error *error);

/* Checks that `tensor` broadcasts to (batch..., heads, n, m), and writes its strides to
 * `out`. `tensor` may be NULL. */
attn_status check_broadcast(const attn_tensor *tensor, const char *name, const attn_plan *plan,
                            struct broadcast *out, attn_error *error);

#endif
