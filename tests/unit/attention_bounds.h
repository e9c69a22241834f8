/*
 * attention_bounds.h - compares the results of a call with the reference, and results with each
 * other. Each number has a bound of its own, and the worst error is kept in units of these bounds.
 */
#ifndef ATTENTION_BOUNDS_H
#define ATTENTION_BOUNDS_H

#include "attention_calls.h"
#include "support/reference.h"

/* The worst error so far, in units of its bound. */
struct worst {
    double error;
    const char *what;
    size_t row;
};

/* Returns the relative bound of a result, as lib/README.md states it, and that of weights, which is
 * also one for all results together. */
double number_bound(attn_dtype dtype);
double bound_of(attn_dtype dtype);

/* Returns the largest absolute value of the finite numbers. */
double largest_of(const double *x, size_t count);

/* Compares one number with what it should be. NaN is the worst error. */
void compare_number(struct worst *worst, const char *what, size_t row, double is, double want,
                    double bound);

/* Compares output, lse and weights of b with those of a, with a bound that is relative to the size
 * of their rows. Both calls have the queries of c. a has weights; the weights of b are compared if
 * it has them. */
void compare_results(struct worst *worst, const struct call *c, const struct results *a,
                     const struct results *b, double bound);

/* Returns true if all results that both have are the same, byte for byte. */
bool same_bytes(const struct results *a, const struct results *b);

/* Returns head h of batch item b as the reference takes it, and the reference's results. The caller
 * frees their `scores`. */
struct reference_head head_of_call(const struct call *c, size_t b, size_t h);
struct reference_results reference_of(const struct call *c, size_t b, size_t h);

/* Compares all results of head h of batch item b with those of the reference. Raises output_scale
 * to the scale of the errors of the output. */
void compare_to_reference(struct worst *worst, const struct call *c, size_t b, size_t h,
                          struct reference_results *r, const struct results *is);

/* Runs a call once for each choice of wanted results, and compares each run with the reference.
 * Without softmax, results that need it are left out of the choices. */
void check_ways(const struct call *c, const uint64_t *wanted, size_t ways);

#endif
