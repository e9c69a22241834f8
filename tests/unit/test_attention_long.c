/*
 * test_attention_long.c - tests rows that are cut along their keys (long.inc), because they are
 * long or have very many columns. They mean the same as short rows, whatever the options and the
 * results, and their top_k is that of a plain sort.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>

#include "attention_laws.h"
#include "plan.h"
#include "results.h"
#include "support/scale.h"

enum {
    HEADS = 2,
    SPLIT = 140000, /* keys of 2 columns that are cut even if only output and lse are wanted */
    ROWS = ATTN_WANT(OUTPUT) | ATTN_WANT(LSE)
};

/* The wanted results. Each choice of them is computed by other phases. */
static const uint64_t ways[] = {TILED, ROWS | ATTN_WANT(ENTROPY), ATTN_WANT(ENTROPY), STAGES};

static const unsigned kinds[] = {ALL_KINDS,
                                 SHARED | PADDING | MASK,
                                 LENGTHS | BOTTOM_RIGHT,
                                 NONE | BOTTOM_RIGHT,
                                 SIGMOID | MASK,
                                 DECAY | PAST | GROUPED,
                                 STICK | CAUSAL,
                                 STICK | MASK | BIAS | BOTTOM_RIGHT};

static void check_kind(unsigned kind, attn_dtype dtype, size_t n, size_t m, size_t d, size_t d_v) {
    struct call c = draw_call(kind, dtype, HEADS, n, m, d, d_v);
    for (size_t h = 0; h < HEADS && c.slopes != NULL; h++) {
        c.slopes[h] /= 1024; /* the weights of keys so far away would vanish in float32 */
    }
    for (size_t i = 0; kind & STICK && c.bias != NULL && i < HEADS * n * m; i++) {
        c.bias[i] -= 12; /* the last keys would break the whole stick */
    }
    check_ways(&c, ways, COUNT(ways));
    free_call(&c);
}

/* The first indices are the kinds in float32, and the others are the same in float64. */
ParameterizedTestParameters(attention_long, every_option) {
    static size_t index[2 * COUNT(kinds)];
    for (size_t i = 0; i < 2 * COUNT(kinds); i++) {
        index[i] = i;
    }
    return cr_make_param_array(size_t, index, 2 * COUNT(kinds));
}

/* Rows of 33,000 keys are too long to be kept whole in float32, and rows of 17,000 in float64. Rows
 * of 8200 columns do not fit a scratch, however few keys there are. */
ParameterizedTest(const size_t *index, attention_long, every_option, .timeout = 1200) {
    const attn_dtype dtype = *index < COUNT(kinds) ? ATTN_FLOAT32 : ATTN_FLOAT64;
    const unsigned kind = kinds[*index % COUNT(kinds)];
    if (test_scale(100) < 100) {
        cr_skip_test("too large for a slow run");
    }
    check_kind(kind, dtype, 3, dtype == ATTN_FLOAT32 ? 33000 : 17000, 2, 3);
    check_kind(kind, dtype, 5, 24, *index % 2 == 0 ? 8200 : 40, *index % 2 == 0 ? 40 : 8200);
}

/* -------------------------------------------------------------------------------- other results */

static attn_status run_cut_rows(attn_plan *plan, attn_error *error) {
    cr_expect_leq(attn_plan_scratch(plan), (size_t)2 << 20);
    cr_expect_gt(attn_plan_tasks(plan, PHASE_MERGE), 0, "these rows are not cut");
    return attn_plan_run(plan, error);
}

/* Runs a call whose rows are cut. Free the results. */
static struct results run_cut(const struct call *c, uint64_t wanted) {
    struct results r = try_call_by(c, wanted, run_cut_rows);
    cr_assert_eq(r.status, ATTN_OK, "%s", r.error.message);
    return r;
}

static const double *sorted_row; /* for by_weight */

static int by_weight(const void *a, const void *b) {
    const size_t i = *(const size_t *)a, j = *(const size_t *)b;
    const double x = sorted_row[i], y = sorted_row[j];
    return x != y ? (x < y ? 1 : -1) : (i > j) - (i < j);
}

/* Compares top_k of each row with a plain sort of its weights. */
static void check_top_k(struct call *c, size_t k) {
    c->options.top_k = k;
    struct results r =
        run_cut(c, ATTN_WANT(WEIGHTS) | ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS));
    size_t *order = allocate(c->m, sizeof *order);
    for (size_t row = 0; row < c->heads * c->n; row++) {
        const double *is = r.of[ATTN_RESULT_TOP_K_WEIGHTS] + row * k;
        const double *at = r.of[ATTN_RESULT_TOP_K_INDICES] + row * k;
        sorted_row = r.of[ATTN_RESULT_WEIGHTS] + row * c->m;
        for (size_t j = 0; j < c->m; j++) {
            order[j] = j;
        }
        qsort(order, c->m, sizeof *order, by_weight);
        for (size_t j = 0; j < k; j++) {
            cr_assert(at[j] == (double)order[j] && is[j] == sorted_row[order[j]],
                      "row %zu, %zu of %zu: key %.0f of weight %g, not key %zu of %g", row, j, k,
                      at[j], is[j], order[j], sorted_row[order[j]]);
        }
    }
    free(order);
    free_results(&r);
}

/* The logits have few different values, so most weights are equal to others in other parts of the
 * row. */
Test(attention_long, top_k_is_a_plain_sort, .timeout = 1200) {
    const size_t m = test_scale(100) < 100 ? 33000 : 70000, ks[] = {1, 5, 3000, 20000, 33000, m};
    for (int variant = 0; variant < 4; variant++) {
        const attn_dtype dtype = variant & 1 ? ATTN_FLOAT64 : ATTN_FLOAT32;
        struct call c = draw_call(variant & 2 ? NONE : PLAIN, dtype, 1, 2, m, 1, 1);
        c.options.scale = 1;
        c.q[0] = 1;
        for (size_t j = 0; variant < 2 && j < m; j++) {
            c.k[j] = (double)(j * 7919 % 37) / 16;
        }
        for (size_t i = 0; i < COUNT(ks); i++) {
            check_top_k(&c, ks[i]);
        }
        free_call(&c);
    }
}

static double variance(const double *x, size_t count) {
    double mean = 0, sum = 0;
    for (size_t i = 0; i < count; i++) {
        mean += x[i] / (double)count;
    }
    for (size_t i = 0; i < count; i++) {
        sum += (x[i] - mean) * (x[i] - mean) / (double)count;
    }
    return sum;
}

Test(attention_long, statistics) {
    struct call c = draw_call(PLAIN, ATTN_FLOAT64, 2, 3, 40000, 2, 1);
    struct results r =
        run_cut(&c, ATTN_WANT(STATISTICS) | ATTN_WANT(SCORES) | ATTN_WANT(SCALED_SCORES));
    const double want[] = {
        variance(c.q, 2 * 3 * c.d), variance(c.k, 2 * c.m * c.d),
        variance(r.of[ATTN_RESULT_SCORES], r.count[ATTN_RESULT_SCORES]),
        variance(r.of[ATTN_RESULT_SCALED_SCORES], r.count[ATTN_RESULT_SCALED_SCORES])};
    for (size_t i = 0; i < 4; i++) {
        const double is = r.of[ATTN_RESULT_STATISTICS][i];
        cr_expect(fabs(is - want[i]) <= 1e-9 * want[i], "%zu: %g, not %g", i, is, want[i]);
    }
    free_results(&r);
    free_call(&c);
}

/* The mean over heads is the mean of the weights that the heads have alone. */
Test(attention_long, mean_over_heads) {
    for (int variant = 0; variant < 2; variant++) {
        struct call c = draw_call(GROUPED | BOTTOM_RIGHT | (variant ? NONE : PLAIN), ATTN_FLOAT64,
                                  4, 3, 20000, 3, 1);
        struct results each = run_cut(&c, ATTN_WANT(WEIGHTS));
        c.options.flags |= ATTN_FLAG_MEAN_OVER_HEADS;
        struct results mean = run_cut(&c, ATTN_WANT(WEIGHTS) | ATTN_WANT(OUTPUT));
        const size_t count = c.n * c.m;
        cr_assert_eq(mean.count[ATTN_RESULT_WEIGHTS], count);
        for (size_t i = 0; i < count; i++) {
            double want = 0;
            for (size_t h = 0; h < 4; h++) {
                want += each.of[ATTN_RESULT_WEIGHTS][h * count + i] / 4;
            }
            const double is = mean.of[ATTN_RESULT_WEIGHTS][i];
            cr_assert(fabs(is - want) <= 1e-13 * fmax(fabs(want), variant ? 1 : 1e-4),
                      "weight %zu: %g, not %g", i, is, want);
        }
        free_results(&each);
        free_results(&mean);
        free_call(&c);
    }
}

/* --------------------------------------------------------------------------------------- limits */

/* In float32, logits near 2^41 are rounded by more than exp can take. Terms of 2^128, which cancel
 * each other, do not fit it. */
Test(attention_long, large_logits) {
    for (int split = 0; split < 2; split++) {
        const uint64_t wanted = ROWS | (split ? 0 : ATTN_WANT(WEIGHTS) | ATTN_WANT(ENTROPY));
        struct call c = draw_call(PLAIN, ATTN_FLOAT32, 1, 2, SPLIT, 2, 1);
        c.options.scale = 1;
        c.q[0] = c.q[1] = 0x1p20;
        c.q[2] = c.q[3] = 0x1p107;
        for (size_t j = 0; j < c.m; j++) { /* all scores are 0 */
            c.k[2 * j] = 0x1p21;
            c.k[2 * j + 1] = -0x1p21;
            c.v[j] = (double)(j % 100);
        }
        struct results zeros = run_cut(&c, wanted);
        for (size_t i = 0; i < 2; i++) {
            cr_expect(fabs(zeros.of[ATTN_RESULT_OUTPUT][i] - 49.5) <= 1e-4, "way %d, query %zu: %g",
                      split, i, zeros.of[ATTN_RESULT_OUTPUT][i]);
            cr_expect(fabs(zeros.of[ATTN_RESULT_LSE][i] - log(SPLIT)) <= 1e-5);
        }
        c.k[2 * 20000 + 1] = 0; /* a score of 2^41 */
        c.n = 1;
        struct results one = run_cut(&c, wanted);
        cr_expect_eq(one.of[ATTN_RESULT_OUTPUT][0], 0); /* the value of key 20000 */
        cr_expect_eq(one.of[ATTN_RESULT_LSE][0], 0x1p41);
        free_results(&zeros);
        free_results(&one);
        free_call(&c);
    }
}
