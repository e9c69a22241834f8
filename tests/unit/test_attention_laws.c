/*
 * test_attention_laws.c - laws of attention that hold whatever the numbers are: sums of rows,
 * shifts, permutations, forbidden keys, and results that follow from each other. Each law is tested
 * over many kinds of calls (attention_laws.h).
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

/* Checks that every row of weights, together with the share of the sink, sums to 1; or to 0 if the
 * query may attend to no key. A weight is an exponential, exact to 1 ulp, times
 * exp(tile's maximum - maximum) / sum. These are at most 15 roundings. The sums over m numbers are
 * made in double, by the library and here, in any order. */
static void check_sums(const struct call *c, const struct results *r) {
    const double *weights = r->of[ATTN_RESULT_WEIGHTS], *lse = r->of[ATTN_RESULT_LSE];
    for (size_t row = 0; row < all_rows(c); row++) {
        const double *w = weights + row * c->m;
        double sum = 0, sink = 0;
        for (size_t j = 0; j < c->m; j++) {
            cr_assert(w[j] >= 0 && w[j] <= 1 + 15 * epsilon(c->dtype), "row %zu: %g", row, w[j]);
            sum += w[j];
        }
        if (c->sinks != NULL) {
            sink = exp(c->sinks[row / c->n % c->heads] - lse[row]);
        }
        if (!sees_anything(c, row)) {
            cr_assert_eq(sum, 0, "row %zu sums to %g", row, sum);
            cr_assert_eq(lse[row], c->sinks == NULL ? -INFINITY : c->sinks[row / c->n % c->heads]);
            continue;
        }
        cr_assert(c->sinks == NULL || (sink > 0 && sum < 1));
        /* The sink's share is computed from lse, so it has the rounding error of lse, too. */
        const double bound = epsilon(c->dtype) * (15 + (sink == 0 ? 0 : fabs(lse[row]))) +
                             2 * (double)c->m * 0x1p-53;
        cr_assert_float_eq(sum + sink, 1, bound, "row %zu sums to 1 + %g", row, sum + sink - 1);
    }
}

TheoryDataPoints(laws, weights_of_a_row_sum_to_one) = {KINDS, SIZES, DTYPES};

Theory((unsigned kind, size_t size, int dtype), laws, weights_of_a_row_sum_to_one) {
    if (law_is_too_slow(size)) {
        return;
    }
    struct call c = draw_law_call(kind, size, dtype);
    for (int way = 0; way < 2; way++) {
        struct results r = run_call(&c, way == 0 ? (unsigned)TILED : (unsigned)STAGES);
        check_sums(&c, &r);
        free_results(&r);
    }
    free_call(&c);
}

/* The weights of a row sum to 1 however large the scores are. The maximum of a row may be rounded,
 * and then it differs from the score that it was rounded from. */
TheoryDataPoints(laws, weights_of_large_scores_sum_to_one) = {
    DataPoints(double, 1e2, 1e4, 3e5, 1e7, 1e9, 1e15), DataPoints(unsigned, PLAIN, MASK, BIAS),
    SIZES, DTYPES};

Theory((double factor, unsigned kind, size_t size, int dtype), laws,
       weights_of_large_scores_sum_to_one) {
    if (law_is_too_slow(size)) {
        return;
    }
    struct call c = draw_law_call(kind, size, dtype);
    const size_t count = all_rows(&c) * c.d, keys = c.batch * c.kv_heads * c.m * c.d;
    for (size_t i = 0; i < count; i++) {
        c.q[i] = dtype == ATTN_FLOAT32 ? (double)(float)(c.q[i] * factor) : c.q[i] * factor;
    }
    for (size_t i = 0; i < keys; i++) {
        c.k[i] = dtype == ATTN_FLOAT32 ? (double)(float)(c.k[i] * factor) : c.k[i] * factor;
    }
    c.scale *= 0.9; /* so that the scaled scores are not exact */
    for (int way = 0; way < 2; way++) {
        struct results r = run_call(&c, way == 0 ? (unsigned)TILED : (unsigned)STAGES);
        check_sums(&c, &r);
        free_results(&r);
    }
    free_call(&c);
}

/* ------------------------------------------------------------------------- shifts, permutations */

/* If a constant is added to all biases of a row, the lse of the row grows by this constant, and
 * nothing else changes. Each row has a constant of its own. With a sink, all rows of a head have
 * the same constant, which is added to the sink, too. The logits are in the hundreds. If the
 * constant is large, they must not be rounded to the last digit of their sum in float32. */
TheoryDataPoints(laws, a_shifted_row_of_biases_moves_lse_alone) = {
    DataPoints(double, -40, 1e5, 0x1p33, -0x1p33), KINDS, SIZES, DTYPES};

Theory((double shift, unsigned kind, size_t size, int dtype), laws,
       a_shifted_row_of_biases_moves_lse_alone) {
    if (law_is_too_slow(size)) {
        return;
    }
    struct call c = draw_law_call(kind, size, dtype);
    c.scale *= 100;
    if (c.bias == NULL) {
        c.bias = allocate(all_rows(&c) * c.m, sizeof *c.bias);
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

/* The results do not depend on the order of the keys, values and columns of mask and bias, except
 * for the rounding of sums. In the call with another order, a mask and a bias replace causal,
 * window, lengths and ALiBi. So this law also says that these options mean the same as a mask and a
 * bias. */
TheoryDataPoints(laws, keys_and_values_have_no_order) = {KINDS, SIZES, DTYPES};

Theory((unsigned kind, size_t size, int dtype), laws, keys_and_values_have_no_order) {
    if (law_is_too_slow(size)) {
        return;
    }
    struct call c = draw_law_call(kind, size, dtype);
    struct rng rng = {kind + size + 1};
    size_t *keys = allocate(c.m, sizeof *keys);
    for (size_t j = 0; j < c.m; j++) { /* Fisher and Yates */
        const size_t other = rng_between(&rng, 0, j);
        keys[j] = keys[other];
        keys[other] = j;
    }
    struct call moved = only_keys(&c, keys, c.m);
    struct results a = run_call(&c, TILED), b = run_call(&moved, TILED), back = b;
    back.of[ATTN_RESULT_WEIGHTS] = allocate(all_rows(&c) * c.m, sizeof(double));
    for (size_t i = 0; i < all_rows(&c) * c.m; i++) {
        back.of[ATTN_RESULT_WEIGHTS][i / c.m * c.m + keys[i % c.m]] = b.of[ATTN_RESULT_WEIGHTS][i];
    }
    struct worst worst = {0};
    compare_results(&worst, &c, &a, &back, 2 * bound_of(c.dtype));
    expect_within_bounds(&worst);
    free(back.of[ATTN_RESULT_WEIGHTS]);
    free(keys);
    free_results(&a);
    free_results(&b);
    free_call(&c);
    free_call(&moved);
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
    if (law_is_too_slow(size)) {
        return;
    }
    struct call c = draw_law_call(kind, size, dtype);
    const size_t last = (c.n - 1) * half / 2;
    const int64_t next = position_of(&c, 0, last) + 1; /* item 0 has the most valid keys */
    struct call other = copy_call(&c);
    refill(&other, next < 0 ? 0 : next > (int64_t)c.m ? c.m : (size_t)next, false, size + 1);
    const unsigned ways[] = {TILED, ATTN_WANT(OUTPUT) | ATTN_WANT(LSE), TILED | ATTN_WANT(ENTROPY)};
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
    if (law_is_too_slow(size)) {
        return;
    }
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
    const unsigned ways[] = {TILED, ATTN_WANT(OUTPUT) | ATTN_WANT(LSE), TILED | ATTN_WANT(ENTROPY)};
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

/* ------------------------------------------------------------------- results against each other */

/* Checks that the weights are exp(masked_scores - lse), and that lse, entropy and output follow
 * from the weights. */
static void check_row(struct worst *worst, const struct call *c, const struct results *r,
                      size_t row) {
    const double e = epsilon(c->dtype), lse = r->of[ATTN_RESULT_LSE][row];
    const double *x = r->of[ATTN_RESULT_MASKED_SCORES] + row * c->m;
    const double *w = r->of[ATTN_RESULT_WEIGHTS] + row * c->m;
    const double largest = largest_of(x, c->m);
    const double sink = c->sinks == NULL ? -INFINITY : c->sinks[row / c->n % c->heads];
    /* The rounding of two sums over m numbers in different orders. */
    const double sums = 2 * (double)c->m * 0x1p-53;
    double sum = exp(sink - fmax(lse, -1e300)), entropy = 0;
    for (size_t j = 0; j < c->m; j++) {
        const double want = x[j] == -INFINITY ? 0 : exp(x[j] - lse);
        /* masked_scores, lse and the difference to the maximum are each rounded once. A weight has
         * 15 roundings of its own, and those of sums. A weight below exp(-87) may be 0 in
         * float32. */
        compare_number(worst, "exp(masked_scores - lse)", row, w[j], want,
                       want * (e * (2 * fabs(x[j]) + 2 * fabs(lse) + 15) + sums) + 2e-38);
        sum += want;
        entropy -= w[j] > 0 ? w[j] * log(w[j]) : 0;
    }
    /* The sum is the exponential of the lse that is computed here less the lse of the library. */
    compare_number(worst, "lse", row, sum, lse == -INFINITY ? 0 : 1,
                   e * (largest + fabs(lse) + 4) + sums);
    /* A small call computes the entropy of weights that are not rounded yet. If a weight w has a
     * relative rounding error, w ln w changes by w (1 + ln w) times this error. Then the entropy is
     * rounded. log is exact to 1 ulp of double. */
    compare_number(worst, "entropy", row, r->of[ATTN_RESULT_ENTROPY][row], entropy,
                   e * (2 * entropy + 1) + sums * fmax(1, entropy));
    const size_t h = row / c->n % c->heads, b = row / c->n / c->heads;
    const double *v = c->v + key_row(c, b, h) * c->d_v, terms = terms_of(c, row, w);
    for (size_t col = 0; col < c->d_v; col++) {
        double out = 0;
        for (size_t j = 0; j < c->m; j++) {
            out += w[j] == 0 ? 0 : w[j] * v[j * c->d_v + col];
        }
        compare_number(worst, "output", row, r->of[ATTN_RESULT_OUTPUT][row * c->d_v + col], out,
                       bound_of(c->dtype) * terms);
    }
}

TheoryDataPoints(laws, results_follow_from_each_other) = {KINDS, SIZES, DTYPES};

Theory((unsigned kind, size_t size, int dtype), laws, results_follow_from_each_other) {
    if (law_is_too_slow(size)) {
        return;
    }
    struct call c = draw_law_call(kind, size, dtype);
    struct results r = run_call(&c, STAGES);
    struct worst worst = {0};
    for (size_t row = 0; row < all_rows(&c); row++) {
        check_row(&worst, &c, &r, row);
    }
    expect_within_bounds(&worst);
    free_results(&r);
    if (c.sinks == NULL) { /* without softmax, the weights have the bytes of the masked scores */
        c.normalization = ATTN_UNNORMALIZED;
        r = run_call(&c, ATTN_WANT(WEIGHTS) | ATTN_WANT(MASKED_SCORES));
        for (size_t i = 0; i < all_rows(&c) * c.m; i++) {
            const double x = r.of[ATTN_RESULT_MASKED_SCORES][i];
            cr_assert_eq(r.of[ATTN_RESULT_WEIGHTS][i], x == -INFINITY ? 0 : x);
        }
        free_results(&r);
    }
    free_call(&c);
}
