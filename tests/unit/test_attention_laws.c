/*
 * test_attention_laws.c - laws of attention that hold whatever the numbers are: sums of rows,
 * shifts, scales, biases and forbidden keys. Each law is tested over many kinds of calls
 * (attention_laws.h).
 */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_laws.h"
#include "support/rng.h"

static bool sees_anything(const struct call *c, size_t row) {
    const size_t i = row % c->n, h = row / c->n % c->heads, b = row / c->n / c->heads;
    for (size_t j = 0; j < c->m; j++) {
        if (may_attend(c, b, h, i, j)) {
            return true;
        }
    }
    return false;
}

/* ----------------------------------------------------------------------------- sums of the rows */

/* Checks that every row of weights sums to 1, or to 0 if the query may attend to no key. A weight
 * is an exponential, exact to 1 ulp, times exp(tile's maximum - maximum) / sum. These are at most
 * 15 roundings. The sums over m numbers are made in double, by the library and here. */
static void check_sums(const struct call *c, const struct results *r) {
    const double bound = 15 * epsilon(c->dtype);
    for (size_t row = 0; row < all_rows(c); row++) {
        const double *w = r->of[ATTN_RESULT_WEIGHTS] + row * c->m;
        double sum = 0;
        for (size_t j = 0; j < c->m; j++) {
            cr_assert(w[j] >= 0 && w[j] <= 1 + bound, "row %zu: %g", row, w[j]);
            sum += w[j];
        }
        if (sees_anything(c, row)) {
            cr_assert_float_eq(sum, 1, bound + 2 * (double)c->m * 0x1p-53, "row %zu sums to 1 + %g",
                               row, sum - 1);
        } else {
            cr_assert_eq(sum, 0, "row %zu sums to %g", row, sum);
            cr_assert_eq(r->of[ATTN_RESULT_LSE][row], -INFINITY);
        }
    }
}

/* The weights of a row sum to 1 however large the scores are. The maximum of a row may be rounded,
 * and then it differs from the score that it was rounded from. */
TheoryDataPoints(laws, weights_of_a_row_sum_to_one) = {
    DataPoints(double, 1, 1e2, 1e4, 1e7, 1e15),
    DataPoints(unsigned, PLAIN, MASK, BIAS, CAUSAL | LENGTHS), SIZES, DTYPES};

Theory((double factor, unsigned kind, size_t size, int dtype), laws, weights_of_a_row_sum_to_one) {
    struct call c = draw_law_call(kind, size, dtype);
    const size_t count = all_rows(&c) * c.d, keys = c.batch * c.kv_heads * c.m * c.d;
    for (size_t i = 0; i < count; i++) {
        c.q[i] = dtype == ATTN_FLOAT32 ? (double)(float)(c.q[i] * factor) : c.q[i] * factor;
    }
    for (size_t i = 0; i < keys; i++) {
        c.k[i] = dtype == ATTN_FLOAT32 ? (double)(float)(c.k[i] * factor) : c.k[i] * factor;
    }
    c.options.scale *= 0.9; /* so that the scaled scores are not exact */
    for (int way = 0; way < 2; way++) {
        struct results r = run_call(&c, way == 0 ? TILED : STAGES);
        check_sums(&c, &r);
        free_results(&r);
    }
    free_call(&c);
}

/* --------------------------------------------------------------------------------------- shifts */

/* If a constant is added to all biases of a row, the lse of the row grows by this constant, and
 * nothing else changes. Each row has a constant of its own. With a sink, all rows of a head have
 * the same constant, which is added to the sink, too. The logits are in the hundreds. If the
 * constant is large, they must not be rounded to the last digit of their sum in float32. */
TheoryDataPoints(laws, a_shifted_row_of_biases_moves_lse_alone) = {DataPoints(double, -40, 0x1p33),
                                                                   KINDS, SIZES, DTYPES};

Theory((double shift, unsigned kind, size_t size, int dtype), laws,
       a_shifted_row_of_biases_moves_lse_alone) {
    struct call c = draw_law_call(kind, size, dtype);
    c.options.scale *= 100;
    if (c.bias == NULL) {
        c.bias = keep_block(&c, all_rows(&c) * c.m * sizeof *c.bias);
    }
    for (size_t h = 0; h < c.heads && c.sinks != NULL; h++) {
        c.sinks[h] = fabs(shift) > 1e6 ? 0 : c.sinks[h]; /* so that the sums below are exact */
    }
    for (size_t i = 0; i < all_rows(&c) * c.m && fabs(shift) > 1e6; i++) {
        c.bias[i] = c.bias[i] == -INFINITY ? -INFINITY : 0;
    }
    struct call moved = copy_call(&c);
    for (size_t i = 0; i < all_rows(&c) * c.m; i++) {
        moved.bias[i] += i / c.m % 3 == 0 && c.sinks == NULL ? shift / 2 : shift;
    }
    for (size_t h = 0; h < c.heads && c.sinks != NULL; h++) {
        moved.sinks[h] += shift;
    }
    struct results a = run_call(&c, TILED), b = run_call(&moved, TILED);
    struct worst worst = {0};
    /* A logit is in double, and is rounded once more to the last digit of the constant. */
    const double rounding = 4 * 0x1p-53 * fabs(shift);
    for (size_t row = 0; row < all_rows(&c); row++) {
        const double by = row % 3 == 0 && c.sinks == NULL ? shift / 2 : shift;
        const double was = a.of[ATTN_RESULT_LSE][row], is = b.of[ATTN_RESULT_LSE][row];
        compare_number(&worst, "moved lse", row, is, was + by,
                       4 * epsilon(c.dtype) * (1 + fabs(was) + fabs(by)) + rounding);
        b.of[ATTN_RESULT_LSE][row] = was;
    }
    /* Rows of large logits are computed again, with the terms of their scores in another order. The
     * error of this order is a hundred times larger here, because the scores are. */
    const double bound = (fabs(shift) > 1e6 ? 200 : 2) * bound_of(c.dtype);
    compare_results(&worst, &c, &a, &b, bound + rounding);
    expect_within_bounds(&worst);
    free_results(&a);
    free_results(&b);
    free_call(&c);
    free_call(&moved);
}

/* ------------------------------------------------------------------------------------- biases */

/* Rounds numbers to multiples of 1/64, so that their sums are exact. */
static void make_round(double *x, size_t count) {
    for (size_t i = 0; i < count; i++) {
        x[i] = round(x[i] * 64) / 64;
    }
}

/* Draws a bias (heads, columns), and adds it to rows [from, rows) of each head of x. */
static attn_tensor draw_round_bias(struct rng *rng, double *x, attn_dtype dtype, size_t items,
                                   size_t heads, size_t from, size_t rows, size_t columns) {
    void *data = allocate(heads * columns, sizeof(double));
    make_round(x, items * heads * rows * columns);
    for (size_t e = 0; e < heads * columns; e++) {
        const double bias = (double)rng_between(rng, 0, 128) / 64 - 1;
        set_number(data, dtype, e, bias);
        for (size_t row = 0; row < items * rows; row++) {
            const size_t head = row / rows * heads + e / columns, i = row % rows;
            x[(head * rows + i) * columns + e % columns] += i >= from ? bias : 0;
        }
    }
    return (attn_tensor){.data = data, .dtype = dtype, .rank = 1, .shape = {heads * columns}};
}

/* Checks that the gradient of a bias is the sum over the rows of that of its matrix. */
static void check_bias_gradient(const struct results *r, attn_result which, attn_result matrix,
                                size_t heads, size_t rows, size_t columns) {
    const double *grad = r->of[matrix];
    const size_t items = r->count[matrix] / (heads * rows * columns);
    for (size_t e = 0; e < heads * columns; e++) {
        double sum = 0, size = 0;
        for (size_t row = 0; row < items * rows; row++) {
            const size_t head = row / rows * heads + e / columns;
            const double x = grad[(head * rows + row % rows) * columns + e % columns];
            sum += x;
            size += fabs(x);
        }
        cr_assert_float_eq(r->of[which][e], sum, 1e-6 * size, "%s[%zu] is %g, not %g",
                           attn_result_name(which), e, r->of[which][e], sum);
    }
}

/* Biases give the results, and the gradients, of a call to whose rows they were added, byte for
 * byte. Past rows get no bias. */
TheoryDataPoints(laws, biases_are_added_to_new_rows) = {KINDS, SIZES, DTYPES};

Theory((unsigned kind, size_t size, int dtype), laws, biases_are_added_to_new_rows) {
    struct call added = draw_law_call(kind, size, dtype);
    const size_t items = added.batch, kv = added.kv_heads, heads = added.heads;
    make_round(added.q, all_rows(&added) * added.d);
    make_round(added.k, items * kv * added.m * added.d);
    make_round(added.v, items * kv * added.m * added.d_v);
    struct call c = copy_call(&added);
    struct rng rng = {size + 7};
    const attn_tensor b[] = {
        draw_round_bias(&rng, added.q, added.dtype, items, heads, 0, c.n, c.d),
        draw_round_bias(&rng, added.k, added.dtype, items, kv, c.past, c.m, c.d),
        draw_round_bias(&rng, added.v, added.dtype, items, kv, c.past, c.m, c.d_v)};
    double *numbers = allocate(all_rows(&c) * c.d_v, sizeof *numbers);
    for (size_t i = 0; i < all_rows(&c) * c.d_v; i++) {
        numbers[i] = (double)(float)rng_normal(&rng);
    }
    const attn_tensor output = rows_of_heads(&c, numbers, heads, c.n, 0, c.n, c.d_v);
    const attn_upstream up = {.output = &output};
    const uint64_t biases = ATTN_WANT(GRAD_B_Q) | ATTN_WANT(GRAD_B_K) | ATTN_WANT(GRAD_B_V);
    c.options.b_q = &b[0];
    c.options.b_k = &b[1];
    c.options.b_v = &b[2];
    for (size_t way = 0; way < WAYS + 1; way++) {
        const bool gradients = way == WAYS;
        c.options.upstream = added.options.upstream = gradients ? &up : NULL;
        const uint64_t wanted = gradients ? gradients_of(&c) : all_ways[way];
        struct results is = run_call(&c, wanted | (gradients ? biases : 0));
        struct results want = run_call(&added, wanted);
        cr_assert(same_bytes(&is, &want), "way %zu", way);
        if (gradients) {
            const size_t rows = c.m - c.past;
            check_bias_gradient(&is, ATTN_RESULT_GRAD_B_Q, ATTN_RESULT_GRAD_Q, heads, c.n, c.d);
            check_bias_gradient(&is, ATTN_RESULT_GRAD_B_K, ATTN_RESULT_GRAD_K, kv, rows, c.d);
            check_bias_gradient(&is, ATTN_RESULT_GRAD_B_V, ATTN_RESULT_GRAD_V, kv, rows, c.d_v);
        }
        free_results(&is);
        free_results(&want);
    }
    for (size_t i = 0; i < 3; i++) {
        free((void *)(uintptr_t)b[i].data);
    }
    free((void *)(uintptr_t)output.data);
    free(numbers);
    free_call(&c);
    free_call(&added);
}

/* ------------------------------------------------------------------ what may not be attended to */

/* Replaces the numbers of all keys and values from key `from` on: by NaN and infinities if `poison`
 * is true, and by random numbers otherwise. */
static void refill(struct call *c, size_t from, bool poison, uint64_t seed) {
    struct rng rng = {seed};
    for (size_t head = 0; head < c->batch * c->kv_heads; head++) {
        for (size_t j = from; j < c->m; j++) {
            const double bad = j % 3 == 0 ? (double)NAN : j % 3 == 1 ? INFINITY : -INFINITY;
            double *key = c->k + (head * c->m + j) * c->d;
            double *value = c->v + (head * c->m + j) * c->d_v;
            for (size_t e = 0; e < c->d; e++) {
                key[e] = poison ? bad : (double)(float)rng_normal(&rng);
            }
            for (size_t e = 0; e < c->d_v; e++) {
                value[e] = poison ? bad : (double)(float)rng_normal(&rng);
            }
        }
    }
}

#define CAUSAL_KINDS                                                                               \
    DataPoints(unsigned, CAUSAL, BOTTOM_RIGHT, CAUSAL | WINDOW, CAUSAL | MASK, CAUSAL | BIAS,      \
               CAUSAL | GROUPED, CAUSAL | LENGTHS | SINK, CAUSAL | PAST | NEGATIVE, CAUSAL | ALL,  \
               BOTTOM_RIGHT | ALL)

/* With causal, the keys and values after a query do not change a byte of its results. */
TheoryDataPoints(laws, a_causal_query_ignores_what_follows) = {CAUSAL_KINDS, SIZES, DTYPES,
                                                               DataPoints(size_t, 0, 1, 2)};

Theory((unsigned kind, size_t size, int dtype, size_t half), laws,
       a_causal_query_ignores_what_follows) {
    struct call c = draw_law_call(kind, size, dtype);
    const size_t last = (c.n - 1) * half / 2;
    const int64_t next = position_of(&c, 0, last) + 1; /* item 0 has the most valid keys */
    struct call other = copy_call(&c);
    refill(&other, next < 0 ? 0 : next > (int64_t)c.m ? c.m : (size_t)next, false, size + 1);
    const uint64_t ways[] = {TILED, ATTN_WANT(OUTPUT) | ATTN_WANT(LSE), TILED | ATTN_WANT(ENTROPY)};
    for (size_t way = 0; way < (half == 1 ? 3 : 2); way++) {
        struct results a = run_call(&c, ways[way]), b = run_call(&other, ways[way]);
        for (size_t row = 0; row < all_rows(&c); row++) {
            for (int i = 0; i < ATTN_RESULT_COUNT && row % c.n <= last; i++) {
                const size_t width = a.count[i] / all_rows(&c);
                cr_assert(a.of[i] == NULL || memcmp(a.of[i] + row * width, b.of[i] + row * width,
                                                    width * sizeof(double)) == 0,
                          "%s of row %zu", attn_result_name((attn_result)i), row);
            }
        }
        free_results(&a);
        free_results(&b);
    }
    free_call(&c);
    free_call(&other);
}

/* A key that no query may attend to may hold NaN and infinities, and so may its value. If its
 * position or a length forbids it, it is not multiplied at all, and the results have the same
 * bytes. If a mask or a bias forbids it, it may be multiplied, and it always is where stages of
 * whole rows are kept. Rows in which this matters are computed again without it, and stay within
 * the bounds. */
TheoryDataPoints(laws, what_nobody_may_attend_to_may_hold_anything) = {
    DataPoints(unsigned, CAUSAL, CAUSAL | WINDOW, CAUSAL | MASK, CAUSAL | BIAS, CAUSAL | SOFTCAP,
               CAUSAL | ALIBI, CAUSAL | GROUPED, CAUSAL | SINK, CAUSAL | PAST, CAUSAL | ALL, MASK,
               BIAS, MASK | BIAS | GROUPED | SINK, BIAS | PAST | SOFTCAP),
    SIZES, DTYPES};

Theory((unsigned kind, size_t size, int dtype), laws, what_nobody_may_attend_to_may_hold_anything) {
    struct call c = draw_law_call(kind, size, dtype);
    size_t from = c.past + c.n;
    if (!(kind & CAUSAL)) {
        from = c.m - c.m / 4;
        for (size_t i = 0; i < all_rows(&c) * c.m; i++) {
            if (i % c.m >= from && c.mask != NULL) {
                c.mask[i] = 0;
            } else if (i % c.m >= from) {
                c.bias[i] = -INFINITY;
            }
        }
    }
    struct call clean = copy_call(&c);
    refill(&clean, from < c.m ? from : c.m, false, 1);
    refill(&c, from < c.m ? from : c.m, true, 1);
    const uint64_t ways[] = {TILED, ATTN_WANT(OUTPUT) | ATTN_WANT(LSE), TILED | ATTN_WANT(ENTROPY)};
    struct results want = run_call(&clean, ways[0]);
    for (size_t way = 0; way < 3; way++) {
        struct results b = run_call(&c, ways[way]);
        struct worst worst = {0};
        if ((kind & CAUSAL) && way < 2) {
            struct results a = way == 0 ? want : run_call(&clean, ways[way]);
            cr_assert(same_bytes(&a, &b), "way %zu", way);
            if (way > 0) {
                free_results(&a);
            }
        }
        compare_results(&worst, &clean, &want, &b, 2 * bound_of(c.dtype));
        expect_within_bounds(&worst);
        free_results(&b);
    }
    free_results(&want);
    free_call(&c);
    free_call(&clean);
}
