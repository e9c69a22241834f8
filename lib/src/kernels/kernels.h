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
 * To add a kernel: add a member to kernels.inc (or to struct attn_kernels, if it has one type
 * only), whose comment says what the kernel promises, and a line to table.inc. Write a plain loop
 * in scalar.inc and a vector form in vector.inc. Where compilers make vectors themselves, one loop
 * in plain.inc is enough. Add a check with a loop of its own to tests/support/check_kernels.inc (or
 * .c). An instruction set is a file of this folder that defines the macros of vector.inc. Only such
 * files have intrinsics in the library. The Makefile gives the file its flags, and dispatch.c its
 * place in the order. ATTENTION_ISA forces one set that the CPU has. With any other name the daemon
 * does not start. make check-neon runs the checks for ARM on any machine.
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
    /* y = softcap tanh(y / softcap), with an error of at most 4 ulp of softcap or of y, whichever
     * is smaller. Infinities and NaN stay as they are. softcap > 0. */
    void (*softcap)(double *y, size_t n, double softcap);
    /* y = ln(1 + y), with an error of at most 3 ulp. 0 <= y <= 1. */
    void (*log1p)(double *y, size_t n);
    /* y[i] -= slope |first + i|. */
    void (*alibi)(double *y, size_t n, double slope, double first);
    /* x = scale x, rounded to the numbers of a type of 16 bits. */
    void (*round_half)(float *x, size_t n, float scale, const struct half_type *type);
    /* Waits until all stores are done that bypass the caches. */
    void (*fence)(void);

    /* Matrix products have a right operand that is cut into panels of `panel` columns. */
    size_t panel_f32, panel_f64;
    /* The kernels for rows of float, and those for rows of double. */
#define real      float
#define ROW(name) name##_f32
#include "kernels/kernels.inc"
#define real      double
#define ROW(name) name##_f64
#include "kernels/kernels.inc"
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
