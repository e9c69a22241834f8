/*
 * kernels.h - arithmetic on one row of numbers, once per instruction set. Every table is complete;
 * mask, widen, alibi, admit, wide_dots and mix are the same source in each, compiled for it. All
 * are held against the loops of tests/support/check_kernels.c. Kernels allocate nothing, never read
 * or write outside of their rows and take any alignment; rows of different arguments do not
 * overlap, unless said otherwise.
 *
 * exp is exact to 1 ulp over [-87, 32] (float) and [-708, 32] (double) in every table; below that
 * it may give 0, above anything.
 */
#ifndef ATTN_KERNELS_H
#define ATTN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

struct attn_kernels {
    const char *name;
    /* The largest of x; -INFINITY if n is 0, anything if any is NaN. */
    double (*max)(const double *x, size_t n);
    /* x = -INFINITY where mask is 0. Returns whether all others are finite. */
    bool (*mask_f32)(float *x, const unsigned char *mask, size_t n);
    bool (*mask_f64)(double *x, const unsigned char *mask, size_t n);
    /* y = scale x. */
    void (*widen_f32)(const float *x, double *y, size_t n, double scale);
    void (*widen_f64)(const double *x, double *y, size_t n, double scale);
    /* y = softcap tanh(y / softcap), to 4 ulp of softcap or of y, whichever is smaller; what is not
     * finite stays. softcap > 0. */
    void (*softcap)(double *y, size_t n, double softcap);
    /* y[i] -= slope |first + i|. */
    void (*alibi)(double *y, size_t n, double slope, double first);
    /* y += bias; -INFINITY where bias is that or mask is 0. bias, mask: NULL if there is none.
     * Returns whether all others are finite as a float (double). */
    bool (*admit_f32)(double *y, const float *bias, const unsigned char *mask, size_t n);
    bool (*admit_f64)(double *y, const double *bias, const unsigned char *mask, size_t n);
    /* Mean, and sum of squared differences to it; n > 0. */
    void (*moments_f32)(const float *x, size_t n, double *mean, double *m2);
    void (*moments_f64)(const double *x, size_t n, double *mean, double *m2);
    /* x = exp(scale x - max), with one rounding before exp. Returns the sum of the results. */
    double (*exp_f32)(float *x, size_t n, float scale, float max);
    double (*exp_f64)(double *x, size_t n, double scale, double max);
    /* One step of online softmax on `rows` rows of n <= 1024 scores, ld apart: max becomes the
     * larger of itself and the row's largest scale x, x = exp(scale x - max), and sum shrinks by
     * factor = exp(old max - max) before the row's sum is added. Scores of -INFINITY give 0, also
     * where max stays -INFINITY. scale > 0. The sum becomes NaN if the maximum is beyond 2^29
     * (double: 2^58), where rounding it would matter, up or down (a row of -INFINITY alone
     * has none), if any x is a NaN without a payload and, with `check`, if any is not finite. */
    void (*online_f32)(float *x, size_t ld, size_t rows, size_t n, float scale, bool check,
                       float *max, double *sum, float *factor);
    void (*online_f64)(double *x, size_t ld, size_t rows, size_t n, double scale, bool check,
                       double *max, double *sum, double *factor);
    /* w = exp(y - max). Returns the sum of w. -INFINITY gives 0. */
    double (*exp_shift_f32)(const double *y, float *w, size_t n, double max);
    double (*exp_shift_f64)(const double *y, double *w, size_t n, double max);
    /* to = x * factor, also in place; with `stream` past the caches, if the CPU can: call fence
     * before another thread reads it. */
    void (*spread_f32)(float *to, const float *x, size_t n, float factor, bool stream);
    void (*spread_f64)(double *to, const double *x, size_t n, double factor, bool stream);
    void (*fence)(void);
    /* Row r of x *= factor[r], for `rows` rows of n numbers, ld apart; rows of factor 1 are not
     * read. Returns whether all products of the other rows are finite. */
    bool (*mul_f32)(float *x, size_t ld, size_t rows, size_t n, const float *factor);
    bool (*mul_f64)(double *x, size_t ld, size_t rows, size_t n, const double *factor);
    /* y += factor * x. */
    void (*axpy_f32)(float *y, const float *x, size_t n, float factor);
    void (*axpy_f64)(double *y, const double *x, size_t n, double factor);
    /* x[j] = q . row j of `keys`, for `count` rows of d numbers, ld apart. */
    void (*dots_f32)(float *x, const float *q, const float *keys, size_t ld, size_t count,
                     size_t d);
    void (*dots_f64)(double *x, const double *q, const double *keys, size_t ld, size_t count,
                     size_t d);
    /* The same in double, of numbers that are double on one side. */
    void (*wide_dots_f32)(double *x, const double *q, const float *keys, size_t ld, size_t count,
                          size_t d);
    void (*wide_dots_f64)(double *x, const double *q, const double *keys, size_t ld, size_t count,
                          size_t d);
    /* out += sum of w[j] * row j of v, for `count` rows of `columns` numbers, ld apart. */
    void (*combine_f32)(float *out, const float *w, const float *v, size_t ld, size_t count,
                        size_t columns);
    void (*combine_f64)(double *out, const double *w, const double *v, size_t ld, size_t count,
                        size_t columns);
    /* The same in double; rows of weight 0 are not read. */
    void (*mix_f32)(double *sum, const double *w, const float *v, size_t ld, size_t count,
                    size_t columns);
    void (*mix_f64)(double *sum, const double *w, const double *v, size_t ld, size_t count,
                    size_t columns);
};

extern const struct attn_kernels attn_kernels_scalar, attn_kernels_avx2, attn_kernels_avx512,
    attn_kernels_neon;

enum {
    ATTN_KERNELS_MAX = 4 /* tables */
};

/* The tables of this build that this CPU and its operating system can run, the slowest first.
 * Returns how many: at least 1. */
size_t attn_kernels_usable(const struct attn_kernels *tables[ATTN_KERNELS_MAX]);

/* The best of these, or the one that the environment variable ATTENTION_ISA names. The same at
 * every call. */
const struct attn_kernels *attn_kernels(void);

/* Whether ATTENTION_ISA names none of them, so that attn_kernels() does not follow it. */
bool attn_kernels_refused(void);

#endif
