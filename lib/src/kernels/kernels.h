/*
 * kernels.h - the row kernels: arithmetic on one row of numbers. There is one table of kernels for
 * each instruction set, and every table is complete. The kernels mask, widen, log1p, alibi,
 * round_half, admit, double_dots, mix, decay and step have the same source in every table and are
 * compiled for its instruction set. tests/support/check_kernels.c compares every kernel with a
 * plain loop.
 *
 * Kernels allocate nothing, never read or write outside of their rows, and accept any alignment.
 * Rows of different arguments do not overlap, unless the comment of the kernel allows it.
 *
 * In every table exp has an error of at most 1 ulp over [-87, 32] (float) and [-708, 32] (double).
 * Below these ranges it may return 0. Above them its result is undefined.
 *
 * To add a kernel: add a member to struct attn_kernels, whose comment says what the kernel
 * promises, and a line to table.inc. Write a plain loop in scalar.inc and a vector form in
 * vector.inc. Where compilers make vectors themselves, one loop in plain.inc is enough. Add a check
 * with a loop of its own to tests/support/check_kernels.inc (or .c). An instruction set is a file
 * of this folder that defines the macros of vector.inc. Only such files have intrinsics in the
 * library. The Makefile gives the file its flags, and dispatch.c its place in the order.
 * ATTENTION_ISA forces one set that the CPU has. With any other name the daemon does not start.
 * make check-neon runs the checks for ARM on any machine.
 */
#ifndef ATTN_KERNELS_H
#define ATTN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "half.h"

struct attn_kernels {
    const char *name;
    /* Returns the largest of x, or -INFINITY if n is 0. If x has a NaN, the result is undefined. */
    double (*max)(const double *x, size_t n);
    /* Sets x to -INFINITY where mask is 0. Returns whether all other numbers are finite. */
    bool (*mask_f32)(float *x, const unsigned char *mask, size_t n);
    bool (*mask_f64)(double *x, const unsigned char *mask, size_t n);
    /* y = scale x. */
    void (*widen_f32)(const float *x, double *y, size_t n, double scale);
    void (*widen_f64)(const double *x, double *y, size_t n, double scale);
    /* y = softcap tanh(y / softcap), with an error of at most 4 ulp of softcap or of y, whichever
     * is smaller. Infinities and NaN stay as they are. softcap > 0. */
    void (*softcap)(double *y, size_t n, double softcap);
    /* y = ln(1 + y), with an error of at most 3 ulp. 0 <= y <= 1. */
    void (*log1p)(double *y, size_t n);
    /* y[i] -= slope |first + i|. */
    void (*alibi)(double *y, size_t n, double slope, double first);
    /* x = scale x, rounded to the numbers of a type of 16 bits. */
    void (*round_half)(float *x, size_t n, float scale, const struct half_type *type);
    /* y += bias, and y = -INFINITY where bias is -INFINITY or mask is 0. bias and mask may be NULL.
     * Returns whether all other numbers are finite when they are rounded to float (double). */
    bool (*admit_f32)(double *y, const float *bias, const unsigned char *mask, size_t n);
    bool (*admit_f64)(double *y, const double *bias, const unsigned char *mask, size_t n);
    /* The mean of x, and the sum of the squared differences to it. n > 0. */
    void (*moments_f32)(const float *x, size_t n, double *mean, double *m2);
    void (*moments_f64)(const double *x, size_t n, double *mean, double *m2);
    /* x = exp(scale x - max), where the argument of exp is rounded once. Returns the sum. */
    double (*exp_f32)(float *x, size_t n, float scale, float max);
    double (*exp_f64)(double *x, size_t n, double scale, double max);
    /* One step of online softmax on `rows` rows of n <= 1024 scores, which begin ld numbers apart:
     *   max    = the larger of max and the largest scale x of the row
     *   x      = exp(scale x - max)
     *   factor = exp(old max - max)
     *   sum    = factor sum + the sum of the row's new x
     * Scores of -INFINITY give 0, also if max stays -INFINITY. scale > 0.
     * The sum becomes NaN in three cases: |max| exceeds 2^29 (double: 2^58), so that its rounding
     * would change the weights (a row of -INFINITY alone is no such case); an x is a NaN without
     * a payload; or `check` is set and an x is not finite. */
    void (*online_f32)(float *x, size_t ld, size_t rows, size_t n, float scale, bool check,
                       float *max, double *sum, float *factor);
    void (*online_f64)(double *x, size_t ld, size_t rows, size_t n, double scale, bool check,
                       double *max, double *sum, double *factor);
    /* w = exp(y - max), which is 0 for -INFINITY. Returns the sum of w. */
    double (*exp_shift_f32)(const double *y, float *w, size_t n, double max);
    double (*exp_shift_f64)(const double *y, double *w, size_t n, double max);
    /* to = x * factor; `to` may be x. With `stream` the stores bypass the caches if the CPU can do
     * that; then call fence before another thread reads `to`. */
    void (*spread_f32)(float *to, const float *x, size_t n, float factor, bool stream);
    void (*spread_f64)(double *to, const double *x, size_t n, double factor, bool stream);
    void (*fence)(void);
    /* Multiplies row r of x by factor[r], for `rows` rows of n numbers, which begin ld numbers
     * apart. Rows whose factor is 1 are not read. Returns whether all products are finite. */
    bool (*mul_f32)(float *x, size_t ld, size_t rows, size_t n, const float *factor);
    bool (*mul_f64)(double *x, size_t ld, size_t rows, size_t n, const double *factor);
    /* y += factor * x. */
    void (*axpy_f32)(float *y, const float *x, size_t n, float factor);
    void (*axpy_f64)(double *y, const double *x, size_t n, double factor);
    /* x[j] = q . row j of `keys`, for `count` rows of d numbers, which begin ld numbers apart. */
    void (*dots_f32)(float *x, const float *q, const float *keys, size_t ld, size_t count,
                     size_t d);
    void (*dots_f64)(double *x, const double *q, const double *keys, size_t ld, size_t count,
                     size_t d);
    /* Does the same as dots, but q is double, and the products are summed in double. */
    void (*double_dots_f32)(double *x, const double *q, const float *keys, size_t ld, size_t count,
                            size_t d);
    void (*double_dots_f64)(double *x, const double *q, const double *keys, size_t ld, size_t count,
                            size_t d);
    /* out += the sum over j of w[j] * row j of v, for `count` rows of `columns` numbers, which
     * begin ld numbers apart. */
    void (*combine_f32)(float *out, const float *w, const float *v, size_t ld, size_t count,
                        size_t columns);
    void (*combine_f64)(double *out, const double *w, const double *v, size_t ld, size_t count,
                        size_t columns);
    /* Does the same as combine, but w and the sum are double. Rows of weight 0 are not read. */
    void (*mix_f32)(double *sum, const double *w, const float *v, size_t ld, size_t count,
                    size_t columns);
    void (*mix_f64)(double *sum, const double *w, const double *v, size_t ld, size_t count,
                    size_t columns);
    /* to = x * factor, number by number, rounded once; `to` may be x. */
    void (*decay_f32)(float *to, const float *x, const double *factor, size_t n);
    void (*decay_f64)(double *to, const double *x, const double *factor, size_t n);
    /* One step of a state of `rows` rows of n numbers, which begin ld numbers apart: row r of `to`
     * is gates[r] times row r of `from`, plus key[r] * u, rounded once, and out is the sum over r
     * of query[r] * row r before it is rounded. `gates` may be NULL for 1. `to` may be `from`. */
    void (*step_f32)(float *to, size_t to_ld, const float *from, size_t from_ld, size_t rows,
                     size_t n, const double *gates, const double *key, const double *u,
                     const double *query, double *out);
    void (*step_f64)(double *to, size_t to_ld, const double *from, size_t from_ld, size_t rows,
                     size_t n, const double *gates, const double *key, const double *u,
                     const double *query, double *out);

    /* Matrix products whose right operand is cut into panels of `panel` columns. The table of plain
     * loops has no such products: `panel` is 0 there, and the functions are NULL. */
    size_t panel_f32, panel_f64;
    /* Packs b (inner, columns), whose rows begin ldb numbers apart. A packed panel has its `inner`
     * rows one after another, `panel` numbers each, and the next panel follows. Columns that are
     * missing in the last panel are 0. */
    void (*pack_f32)(float *packed, const float *b, size_t ldb, size_t inner, size_t columns);
    void (*pack_f64)(double *packed, const double *b, size_t ldb, size_t inner, size_t columns);
    /* Does the same, but b is (columns, inner). */
    void (*pack_transposed_f32)(float *packed, const float *b, size_t ldb, size_t inner,
                                size_t columns);
    void (*pack_transposed_f64)(double *packed, const double *b, size_t ldb, size_t inner,
                                size_t columns);
    /* Computes c (rows, columns) = a b, or c += a b with `add`. Rows of c begin ldc numbers apart,
     * and those of a (rows, inner) lda. The rows of a panel of b begin ldb numbers apart, and its
     * panels `distance` numbers: `panel` and inner * `panel` if b is packed, or the distance of its
     * rows and `panel` if b lies as it is. All `panel` numbers of each row of a panel must be
     * readable. A number of c depends on its row of a and its column of b alone, and not on the
     * rows and columns that are computed with it. */
    void (*multiply_f32)(float *c, size_t ldc, size_t rows, size_t columns, const float *a,
                         size_t lda, size_t inner, const float *b, size_t ldb, size_t distance,
                         bool add);
    void (*multiply_f64)(double *c, size_t ldc, size_t rows, size_t columns, const double *a,
                         size_t lda, size_t inner, const double *b, size_t ldb, size_t distance,
                         bool add);
    /* Solves x = y + l x, where l (rows, rows) has 0 on its diagonal and above: y is given in the
     * place of x. x is one panel, and rows of l begin ldl numbers apart. The numbers of l on its
     * diagonal and above are not read. */
    void (*solve_f32)(float *x, size_t rows, const float *l, size_t ldl);
    void (*solve_f64)(double *x, size_t rows, const double *l, size_t ldl);
    /* Adds a product to a long sum: sum + rest = factor (sum + rest) + a b, where `sum` is rounded
     * and `rest` is what it lacks. If the old sum is larger, the error is that of a b alone. Both
     * are (rows, panel), one row after another. All rows have factor[0], or each has one of its own
     * with `each`. a (rows, inner) is what pack_transposed makes of (inner, rows): a panel has
     * `panel` columns of all rows. Rows of b begin ldb numbers apart. */
    void (*gather_f32)(float *sum, float *rest, size_t rows, const float *a, size_t inner,
                       const float *b, size_t ldb, const double *factor, bool each);
    void (*gather_f64)(double *sum, double *rest, size_t rows, const double *a, size_t inner,
                       const double *b, size_t ldb, const double *factor, bool each);
};

extern const struct attn_kernels attn_kernels_scalar, attn_kernels_avx2, attn_kernels_avx512,
    attn_kernels_neon;

enum {
    ATTN_KERNELS_MAX = 3 /* the most tables that attn_kernels_usable() returns */
};

/* Writes the tables of this build that the CPU and the operating system can run into `tables`, the
 * slowest first. Returns their number, which is at least 1. */
size_t attn_kernels_usable(const struct attn_kernels *tables[ATTN_KERNELS_MAX]);

/* Returns the fastest usable table, or the one that the environment variable ATTENTION_ISA names.
 * Every call returns the same table. */
const struct attn_kernels *attn_kernels(void);

/* Makes attn_kernels() return this table from now on. Only tests call this, between plans. */
void attn_kernels_use(const struct attn_kernels *table);

/* Returns whether ATTENTION_ISA is set but names no usable table, so that it has no effect. */
bool attn_kernels_refused(void);

#endif
