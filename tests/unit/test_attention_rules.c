/*
 * test_attention_rules.c - tests the rules that other programs get wrong, and the small functions.
 * The values are computed by hand.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/rng.h"
#include "support/scale.h"
#include "test_by_hand.h"

/* A bias that is no number is found where a query may attend to its key, and only there. */
Test(rules, a_bias_that_is_not_a_number_fails_where_it_is_seen) {
    const double wrong[] = {NAN, INFINITY};
    const unsigned char exists[] = {1, 0};
    const attn_tensor padding = {.data = exists, .dtype = ATTN_BOOL, .rank = 1, .shape = {2}};
    for (size_t i = 0; i < 2; i++) {
        const attn_tensor bias = MATRIX(2, 2, 0, wrong[i], 0, 0);
        attn_options o = {.bias = &bias};
        attn_error error;
        double output[4];
        void *data[ATTN_RESULT_COUNT] = {output};
        cr_expect_eq(plan_and_run(&identity2, &identity2, &identity2, &o, data, &error),
                     ATTN_NOT_FINITE);
        cr_expect_str_eq(error.argument, "masked_scores");
        o.key_padding = &padding;
        cr_expect_eq(plan_and_run(&identity2, &identity2, &identity2, &o, data, &error), ATTN_OK);
        cr_expect(output[0] == 1 && output[1] == 0);
    }
}

/* All numbers of the inputs may be written after the plan is made and before it runs. */
Test(rules, numbers_may_come_after_the_plan) {
    double x[4] = {0}, slope[2][1] = {{0}}, bias[4] = {0}, output[2][4];
    unsigned char mask[4] = {0};
    const attn_tensor q = {.data = x, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {2, 2}};
    attn_tensor heads = {.data = slope[0], .dtype = ATTN_FLOAT64, .rank = 1, .shape = {1}}, sink;
    const attn_tensor bytes = {.data = mask, .dtype = ATTN_BOOL, .rank = 2, .shape = {2, 2}};
    attn_tensor added = q;
    attn_plan *plan;
    attn_error error;
    sink = heads;
    sink.data = slope[1];
    added.data = bias;
    const attn_options o = {.alibi_slopes = &heads, .sink = &sink, .mask = &bytes, .bias = &added};
    for (int early = 0; early < 2; early++) {
        slope[0][0] = slope[1][0] = NAN; /* nothing reads them while a plan is made */
        if (early == 0) {
            cr_assert_eq(attn_plan_attention(&plan, &q, &q, &q, &o, &error), ATTN_OK);
        }
        memcpy(x, (const double[]){1, 2, 3, -1}, sizeof x);
        memcpy(bias, (const double[]){0, 1, 0.5, 2}, sizeof bias);
        memcpy(mask, (const unsigned char[]){1, 0, 1, 1}, sizeof mask);
        slope[0][0] = 0.75;
        slope[1][0] = -2;
        if (early == 1) {
            cr_assert_eq(attn_plan_attention(&plan, &q, &q, &q, &o, &error), ATTN_OK);
        }
        attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, output[early]);
        cr_assert_eq(attn_plan_run(plan, &error), ATTN_OK);
        cr_expect_neq(output[early][0], 0);
        slope[1][0] = NAN;
        cr_expect_eq(attn_plan_run(plan, &error), ATTN_INVALID_ARGUMENT);
        cr_expect_str_eq(error.message, "sink must be finite");
        attn_plan_free(plan);
        memset(bias, 0, sizeof bias);
    }
    cr_expect(memcmp(output[0], output[1], sizeof output[0]) == 0);
}

/* One sum in double over all numbers would be wrong in the twelfth digit. */
Test(rules, statistics_of_a_million_numbers_keep_their_digits) {
    const size_t count = test_scale((size_t)1 << 21);
    double *x = malloc(count * sizeof *x), one = 1, variance[4];
    cr_assert_not_null(x);
    setenv("ATTENTION_ISA", "scalar", 1);
    struct rng rng = {7};
    long double mean = 0, m2 = 0;
    for (size_t i = 0; i < count; i++) {
        x[i] = 3 + rng_normal(&rng);
        mean += x[i];
    }
    mean /= (long double)count;
    for (size_t i = 0; i < count; i++) {
        m2 += (x[i] - mean) * (x[i] - mean);
    }
    const double want = (double)(m2 / (long double)count);
    attn_tensor q = {.data = x, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {count, 1}};
    attn_tensor k = {.data = &one, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {1, 1}};
    attn_options o = {.results = ATTN_WANT(STATISTICS)};
    void *data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_STATISTICS] = variance};
    cr_assert_eq(plan_and_run(&q, &k, &k, &o, data, NULL), ATTN_OK);
    cr_expect_float_eq(variance[0], want, 5e-15, "Q: off by %g", variance[0] - want);
    cr_expect_float_eq(variance[2], want, 5e-15, "scores: off by %g", variance[2] - want);
    free(x);
}

/* -------------------------------------------------------------------------------- small things */

Test(names, every_status_and_result_has_one) {
    cr_expect_str_eq(attn_status_text(ATTN_SHAPE_MISMATCH), "shapes do not agree");
    cr_expect_str_eq(attn_status_text((attn_status)99), "unknown status");
    cr_expect_str_eq(attn_result_name(ATTN_RESULT_PRESENT_K), "present_K");
    cr_expect_null(attn_result_name(ATTN_RESULT_COUNT));
    cr_expect_eq(attn_dtype_size(ATTN_FLOAT64), 8);
    cr_expect_str_eq(attn_build().version, ATTN_VERSION);
    cr_expect_neq(attn_build().blas_core[0], '\0');
}

/* A version that is not released yet has more after its three numbers: 1.0.0-rc.1. */
Test(names, the_version_has_the_three_numbers) {
    char numbers[64];
    const int length = snprintf(numbers, sizeof numbers, "%d.%d.%d", ATTN_VERSION_MAJOR,
                                ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
    cr_expect(strncmp(ATTN_VERSION, numbers, (size_t)length) == 0, "%s", ATTN_VERSION);
    cr_expect(ATTN_VERSION[length] == '\0' || ATTN_VERSION[length] == '-', "%s", ATTN_VERSION);
}

Test(sizes, products_that_do_not_fit_are_seen) {
    attn_tensor t = {.dtype = ATTN_FLOAT64, .rank = 2, .shape = {SIZE_MAX / 2, 3}};
    size_t count = 7;
    cr_expect_not(attn_tensor_count(&t, &count));
    cr_expect_eq(count, 7);
    t.shape[1] = 1;
    cr_expect(attn_tensor_count(&t, &count));
    cr_expect_not(attn_tensor_bytes(&t, &count));
}

/* Promise 21: tensors of any claimed size are planned or refused before a byte of them is read. The
 * test puts four sizes at a time in every place of a call. */
Test(sizes, promise_21_claimed_sizes_are_planned_or_refused) {
    static const size_t sizes[] = {0,
                                   1,
                                   (size_t)1 << 15,
                                   (size_t)1 << 16,
                                   ((size_t)1 << 31) - 1,
                                   (size_t)1 << 31,
                                   (size_t)1 << 32,
                                   (size_t)1 << 53,
                                   (size_t)1 << 63,
                                   SIZE_MAX};
    const size_t count = COUNT(sizes);
    static float nothing[1];
    size_t planned = 0, refused = 0;
    for (size_t i = 0; i < count * count * count * count; i++) {
        const size_t a = sizes[i % count], b = sizes[i / count % count],
                     c = sizes[i / count / count % count], d = sizes[i / count / count / count];
        const attn_tensor q = {.rank = 3, .shape = {a, b, c}, .data = nothing};
        const attn_tensor k = {.rank = 3, .shape = {a, d, c}, .data = nothing};
        const attn_tensor flat = {.rank = 2, .shape = {b, c}, .data = nothing};
        const attn_options options = {.heads = d, .kv_heads = a, .top_k = b};
        attn_plan *plan = NULL;
        attn_error error = {0};
        for (int call = 0; call < 3; call++) {
            const attn_status status =
                call == 0   ? attn_plan_attention(&plan, &q, &k, &k, NULL, &error)
                : call == 1 ? attn_plan_attention(&plan, &flat, &flat, &flat, &options, &error)
                            : attn_plan_attention(&plan, &q, &q, &q, &options, &error);
            cr_assert_eq(status == ATTN_OK, plan != NULL);
            cr_assert(status == ATTN_OK || error.message[0] != '\0', "%zu %zu %zu %zu", a, b, c, d);
            planned += status == ATTN_OK;
            refused += status != ATTN_OK;
            attn_plan_free(plan);
            plan = NULL;
        }
    }
    cr_expect(planned > 0 && refused > planned, "%zu planned, %zu refused", planned, refused);
}

/* The slopes of Press et al. 2021 for any number of heads: those of the lower power of two, and
 * then every other one of twice that power. */
static double slope_of_paper(size_t h, size_t heads) {
    size_t power = 1;
    while (2 * power <= heads) {
        power *= 2;
    }
    return h < power ? pow(2, -8.0 * (double)(h + 1) / (double)power)
                     : slope_of_paper(2 * (h - power), 2 * power);
}

Test(rules, slopes_of_any_number_of_heads_are_those_of_the_paper) {
    enum {
        MOST = 40
    };
    static const double zeros[2 * MOST];
    for (size_t heads = 1; heads <= MOST; heads++) {
        const attn_tensor x = {zeros, ATTN_FLOAT64, 3, {heads, 2, 1}};
        const attn_options o = {.flags = ATTN_FLAG_ALIBI, .results = ATTN_WANT(MASKED_SCORES)};
        double scores[4 * MOST];
        void *const data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_MASKED_SCORES] = scores};
        cr_assert_eq(plan_and_run(&x, &x, &x, &o, data, NULL), ATTN_OK);
        for (size_t h = 0; h < heads; h++) { /* query 1 is one away from key 0 */
            cr_expect_float_eq(-scores[4 * h + 2], slope_of_paper(h, heads), 1e-14,
                               "head %zu of %zu: %g", h, heads, -scores[4 * h + 2]);
        }
    }
}
