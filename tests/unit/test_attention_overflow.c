/*
 * test_attention_overflow.c - tests numbers that overflow. The error names the place, whatever
 * results are wanted and however the call is cut. A number that no query may see causes no error,
 * and neither does a sum that overflows only on the way to a finite value.
 */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_bounds.h"

static const struct {
    size_t n, m, d, d_v;
} sizes[] = {
    {3, 5, 4, 3},      /* so small that it is computed in double */
    {2, 300, 64, 40},  /* products are made row by row */
    {9, 130, 33, 65},  /* products use the keys as they are */
    {40, 300, 64, 64}, /* products use packed keys, tile by tile */
    {3, 8200, 5, 4},   /* keys are split into parts, which are merged */
};

enum {
    HEADS = 2,
    ENTROPY = ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS) | ATTN_WANT(LSE) | ATTN_WANT(ENTROPY),
    STAGES = ENTROPY | ATTN_WANT(SCORES) | ATTN_WANT(SCALED_SCORES) | ATTN_WANT(MASKED_SCORES)
};

#define SIZES  DataPoints(size_t, 0, 1, 2, 3, 4)
#define DTYPES DataPoints(int, ATTN_FLOAT32, ATTN_FLOAT64)
#define WAYS                                                                                       \
    DataPoints(unsigned, ATTN_WANT(OUTPUT), ATTN_WANT(LSE), ATTN_WANT(WEIGHTS),                    \
               ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS), ENTROPY, STAGES)

/* A call, and the pair of a query and a key of its last head that a test is about. */
struct pair {
    struct call call;
    size_t i, j;
    double *q, *k, *v; /* the rows of this query, key and value */
};

/* Draws a call; a slow run draws a smaller one. */
static struct pair draw_pair(unsigned kind, size_t size, int dtype) {
    const size_t d = sizes[size].d, d_v = sizes[size].d_v,
                 less = too_slow(HEADS, sizes[size].n, sizes[size].m, d + d_v) ? 8 : 1,
                 n = (sizes[size].n - 1) / less + 1, m = sizes[size].m / less;
    struct pair p = {.i = n * 2 / 3, .j = m * 2 / 3};
    p.call = draw_call(kind, (attn_dtype)dtype, HEADS, n, m, d, d_v);
    p.q = p.call.q + row_of(&p.call, 0, HEADS - 1, p.i) * p.call.d;
    p.k = p.call.k + (key_row(&p.call, 0, HEADS - 1) + p.j) * p.call.d;
    p.v = p.call.v + (key_row(&p.call, 0, HEADS - 1) + p.j) * p.call.d_v;
    return p;
}

/* Returns a number whose square does not fit the dtype, but whose products with drawn numbers
 * do. */
static double big(int dtype) {
    return dtype == ATTN_FLOAT32 ? 0x1p80 : 0x1p600;
}

/* Runs the call, checks the stage and the place that the error names, and frees the call. */
static void fails_at(struct pair *p, unsigned wanted, const char *stage, const char *axis,
                     size_t place) {
    struct results r = try_call(&p->call, wanted);
    char text[80];
    snprintf(text, sizeof text, "batch item 0, head %d, query %zu, %s %zu:", HEADS - 1, p->i, axis,
             place);
    cr_assert_eq(r.status, ATTN_NOT_FINITE, "status %d", r.status);
    cr_assert_str_eq(r.error.argument, stage, "%s", r.error.message);
    cr_assert_not_null(strstr(r.error.message, text), "%s: not %s", r.error.message, text);
    free_results(&r);
    free_call(&p->call);
}

/* Softcap would make every score finite, so the error must come before it. */
TheoryDataPoints(overflow, of_a_score_names_its_place) = {
    DataPoints(unsigned, PLAIN, SOFTCAP | SINK), SIZES, DTYPES, WAYS, DataPoints(double, 1, -1)};

Theory((unsigned kind, size_t size, int dtype, unsigned wanted, double sign), overflow,
       of_a_score_names_its_place) {
    struct pair p = draw_pair(kind, size, dtype);
    p.q[0] = big(dtype);
    p.k[0] = sign * big(dtype);
    fails_at(&p, wanted, "scores", "key", p.j);
}

TheoryDataPoints(overflow, of_a_biased_score_names_its_place) = {SIZES, DTYPES, WAYS};

Theory((size_t size, int dtype, unsigned wanted), overflow, of_a_biased_score_names_its_place) {
    struct pair p = draw_pair(BIAS, size, dtype);
    p.q[0] = p.k[0] = dtype == ATTN_FLOAT32 ? 0x1p63 : 0x1p511;
    p.call.options.scale = 1;
    p.call.bias[row_of(&p.call, 0, HEADS - 1, p.i) * p.call.m + p.j] =
        dtype == ATTN_FLOAT32 ? 0x1.8p127 : 0x1.8p1023;
    fails_at(&p, wanted, "masked_scores", "key", p.j);
}

/* The value is infinite, and only one query may attend to it. */
TheoryDataPoints(overflow, of_a_value_names_its_place) = {
    SIZES, DTYPES,
    DataPoints(unsigned, ATTN_WANT(OUTPUT), ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS), ENTROPY,
               STAGES)};

Theory((size_t size, int dtype, unsigned wanted), overflow, of_a_value_names_its_place) {
    struct pair p = draw_pair(MASK, size, dtype);
    for (size_t row = 0; row < HEADS * p.call.n; row++) {
        p.call.mask[row * p.call.m + p.j] = row == row_of(&p.call, 0, HEADS - 1, p.i);
    }
    p.v[p.call.d_v - 1] = INFINITY;
    fails_at(&p, wanted, "output", "column", p.call.d_v - 1);
}

TheoryDataPoints(overflow, that_nobody_sees_is_none) = {DataPoints(unsigned, MASK, BIAS), SIZES,
                                                        DTYPES};

Theory((unsigned kind, size_t size, int dtype), overflow, that_nobody_sees_is_none) {
    const uint64_t ways[] = {ATTN_WANT(OUTPUT) | ATTN_WANT(LSE), ATTN_WANT(WEIGHTS), ENTROPY};
    struct pair p = draw_pair(kind, size, dtype);
    const size_t at = row_of(&p.call, 0, HEADS - 1, p.i) * p.call.m + p.j;
    if (kind & MASK) {
        p.call.mask[at] = 0;
    } else {
        p.call.bias[at] = -INFINITY;
    }
    p.q[0] = p.k[0] = big(dtype);
    for (size_t row = 0; row < HEADS * p.call.n * p.call.d; row += p.call.d) {
        p.call.q[row] = &p.call.q[row] == p.q ? p.q[0] : 0; /* so that no other score is large */
    }
    check_ways(&p.call, ways, 3); /* no scores, which would hold the overflow */
    free_call(&p.call);
}

/* The large terms of a score cancel each other. */
TheoryDataPoints(overflow, on_the_way_to_a_finite_score_is_none) = {
    DataPoints(unsigned, PLAIN, MASK, BIAS, SOFTCAP | SINK, CAUSAL, PAST), SIZES, DTYPES};

Theory((unsigned kind, size_t size, int dtype), overflow, on_the_way_to_a_finite_score_is_none) {
    const uint64_t ways[] = {ATTN_WANT(OUTPUT), ATTN_WANT(LSE),
                             ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS), ENTROPY, STAGES};
    struct pair p = draw_pair(kind, size, dtype);
    struct call *c = &p.call;
    for (size_t row = 0; row < HEADS * c->n; row++) {
        c->q[row * c->d] = c->q[row * c->d + 1] = 0;
    }
    for (size_t row = 0; row < HEADS * c->m; row++) {
        c->k[row * c->d] = c->k[row * c->d + 1] = 0;
    }
    struct call same = copy_call(c); /* without the large terms */
    p.q[0] = p.q[1] = p.k[0] = big(dtype);
    p.k[1] = -big(dtype);
    for (size_t way = 0; way < COUNT(ways); way++) {
        struct results r = run_call(c, ways[way]);
        struct worst worst = {0};
        for (size_t h = 0; h < HEADS; h++) {
            struct reference_results want = reference_of(&same, 0, h);
            compare_to_reference(&worst, &same, 0, h, &want, &r);
            free(want.scores);
        }
        cr_assert(worst.error <= 1, "way %zu: %s of row %zu is off by %g times its bound", way,
                  worst.what, worst.row, worst.error);
        free_results(&r);
    }
    free_call(c);
    free_call(&same);
}

static double near_largest(int dtype) {
    return dtype == ATTN_FLOAT32 ? 3e38 : 1.7e308;
}

static void fill_values(struct call *c, double value) {
    const size_t values = HEADS * c->m * c->d_v;
    for (size_t i = 0; i < values; i++) {
        c->v[i] = value;
    }
}

/* The mean of values near the largest number is finite. */
TheoryDataPoints(overflow, of_weighted_values_is_none) = {SIZES, DTYPES};

Theory((size_t size, int dtype), overflow, of_weighted_values_is_none) {
    struct pair p = draw_pair(PLAIN, size, dtype);
    const double large = near_largest(dtype);
    const double bound = dtype == ATTN_FLOAT32 ? 0x1p-22 : (double)(p.call.m + 2) * 0x1p-53;
    memset(p.call.q, 0, HEADS * p.call.n * p.call.d * sizeof *p.call.q);
    fill_values(&p.call, large);
    struct results r = run_call(&p.call, ATTN_WANT(OUTPUT));
    for (size_t i = 0; i < HEADS * p.call.n * p.call.d_v; i++) {
        const double out = r.of[ATTN_RESULT_OUTPUT][i];
        cr_assert(fabs(out / large - 1) <= bound, "%.17g", out);
    }
    free_results(&r);
    free_call(&p.call);
}

/* The weights of a row whose output is computed again are counted once in the mean over heads. */
TheoryDataPoints(overflow, of_an_output_leaves_the_mean_of_the_weights) = {SIZES, DTYPES};

Theory((size_t size, int dtype), overflow, of_an_output_leaves_the_mean_of_the_weights) {
    struct pair p = draw_pair(PLAIN, size, dtype);
    fill_values(&p.call, near_largest(dtype));
    p.call.options.flags |= ATTN_FLAG_MEAN_OVER_HEADS;
    struct results r = run_call(&p.call, ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS));
    for (size_t i = 0; i < p.call.n; i++) {
        double sum = 0;
        for (size_t j = 0; j < p.call.m; j++) {
            sum += r.of[ATTN_RESULT_WEIGHTS][i * p.call.m + j];
        }
        cr_assert(fabs(sum - 1) <= 1e-5, "the weights of query %zu sum to %.17g", i, sum);
    }
    free_results(&r);
    free_call(&p.call);
}

/* Statistics count each score once, also if its row is computed again. */
TheoryDataPoints(overflow, of_an_output_leaves_the_statistics) = {SIZES, DTYPES};

Theory((size_t size, int dtype), overflow, of_an_output_leaves_the_statistics) {
    struct pair p = draw_pair(PLAIN, size, dtype);
    double variance[2][4];
    p.call.options.causal = true; /* so that no query sees the last keys */
    for (int large = 0; large < 2; large++) {
        fill_values(&p.call, large == 0 ? 1 : near_largest(dtype));
        struct results r = run_call(&p.call, ATTN_WANT(OUTPUT) | ATTN_WANT(STATISTICS));
        memcpy(variance[large], r.of[ATTN_RESULT_STATISTICS], sizeof variance[large]);
        free_results(&r);
    }
    for (size_t i = 0; i < 4; i++) {
        cr_assert(fabs(variance[1][i] / variance[0][i] - 1) <= 1e-6, "%zu: %.17g, not %.17g", i,
                  variance[1][i], variance[0][i]);
    }
    free_call(&p.call);
}

/* A projection of many rows and columns is computed in tiles. */
Test(overflow, a_projection_says_where_it_overflows) {
    enum {
        ROWS = 600,
        COLUMNS = 200
    };
    static float x[ROWS], weights[COLUMNS], out[ROWS * COLUMNS];
    const attn_tensor input = {.data = x, .rank = 2, .shape = {ROWS, 1}},
                      w = {.data = weights, .rank = 2, .shape = {1, COLUMNS}};
    const attn_projection p = {.w_q = &w, .w_k = &w, .w_v = &w};
    const attn_multihead call = {.x = &input, .projections = &p, .count = 1};
    attn_plan *plan;
    attn_error error;
    x[550] = 1e30f;
    weights[131] = 1e30f;
    cr_assert_eq(attn_plan_multihead(&plan, &call, NULL, NULL), ATTN_OK);
    cr_assert_eq(attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, out), ATTN_OK);
    cr_expect_eq(attn_plan_run(plan, &error), ATTN_NOT_FINITE);
    cr_expect_str_eq(error.message, "Q is not a finite float32 at row 550, column 131: the values "
                                    "are too large");
    attn_plan_free(plan);
}
