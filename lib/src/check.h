/*
 * check.h - the rules an argument must obey on its own. Each failure names the rule and the values.
 */
#ifndef ATTN_CHECK_H
#define ATTN_CHECK_H

#include "attention.h"
#include "plan.h"

/* A present, non-empty float tensor of min_rank <= rank <= max_rank whose sizes BLAS can address.
 * */
attn_status check_matrix(const attn_tensor *tensor, const char *name, int min_rank, int max_rank,
                         attn_error *error);

/* Same dtype as the call, and exactly this shape (rank sizes). */
attn_status check_dtype(const attn_tensor *tensor, const char *name, attn_dtype dtype,
                        attn_error *error);
attn_status check_shape(const attn_tensor *tensor, const char *name, int rank, const size_t *shape,
                        attn_error *error);

/* Numbers, flags and enums of the options, apart from all shapes. */
attn_status check_options(const attn_options *options, attn_error *error);

/* Returns the plural ending of a noun that follows this number in a message: "1 row", "2 rows". */
static inline const char *plural_end(size_t number) {
    return number == 1 ? "" : "s";
}

/* `columns` must be a multiple of `heads`, which the message calls `heads_name`. */
attn_status check_columns(const char *name, size_t columns, size_t heads, const char *heads_name,
                          attn_error *error);

/* got == want, else "`name` has got `what` but `other` has want". `what` is in the singular. */
attn_status check_equal(const char *name, size_t got, const char *what, const char *other,
                        size_t want, attn_error *error);

/* Strides that broadcast `tensor` (rank 2..4, may be NULL) to (batch, heads, n, m). */
attn_status check_broadcast(const attn_tensor *tensor, const char *name, const attn_plan *plan,
                            struct broadcast *out, attn_error *error);

#endif
