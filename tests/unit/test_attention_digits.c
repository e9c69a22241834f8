/*
 * test_attention_digits.c - tests how exact results are where this needs the most care: long rows,
 * small calls, a single visible key, and large logits. It also tests that a result does not change
 * when others are returned beside it. lib/README.md ("How exact") promises these bounds.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_bounds.h"
#include "results.h"
#include "support/rng.h"

TestSuite(digits, .timeout = 1200);

enum {
    SUMS = ATTN_WANT(OUTPUT) | ATTN_WANT(LSE),
    KEPT = SUMS | ATTN_WANT(WEIGHTS)
};

#define EVERYTHING (RESULTS_FORWARD & ~RESULTS_OF(RESULT_PROJECTED | RESULT_COPY))

/* Returns the largest distance of an output from 1. */
static double off_from_one(const struct results *r) {
    double off = 0;
    for (size_t i = 0; i < r->count[ATTN_RESULT_OUTPUT]; i++) {
        off = fmax(off, fabs(r->of[ATTN_RESULT_OUTPUT][i] - 1));
    }
    return off;
}

/* ------------------------------------------------------------------------------------ long rows */

/* If all numbers of V are 1, the output is 1, however long the rows are and whatever results are
 * wanted beside it. With one sum in float32 over all keys of a row, it was off by 1e-5 here. */
Test(digits, values_of_one_give_one) {
    static const struct {
        size_t n, m, d;
    } sizes[] = {{1, 100000, 4}, {4, 50000, 4}, {3, 10000, 64}, {8, 30000, 3}, {20, 20000, 8}};
    static const uint64_t ways[] = {SUMS, ATTN_WANT(OUTPUT) | ATTN_WANT(ENTROPY), KEPT};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        if (too_slow(1, sizes[s].n, sizes[s].m, sizes[s].d)) {
            continue;
        }
        struct call c = draw_call(PLAIN, ATTN_FLOAT32, 1, sizes[s].n, sizes[s].m, sizes[s].d, 3);
        for (size_t i = 0; i < c.m * c.d_v; i++) {
            c.v[i] = 1;
        }
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            struct results r = run_call(&c, ways[way]);
            cr_expect_leq(off_from_one(&r), 3e-7, "%zu queries, %zu keys, way %zu: off by %g", c.n,
                          c.m, way, off_from_one(&r));
            free_results(&r);
        }
        free_call(&c);
    }
}

/* Long rows agree with the reference, for n from 1 to 8 and m up to 100,000. The values have both
 * signs, or one sign. */
Test(digits, long_rows_agree_with_the_reference) {
    static const size_t keys[] = {5000, 9000, 20000, 33333, 100000};
    const uint64_t ways[] = {SUMS, KEPT, SUMS | ATTN_WANT(ENTROPY)};
    for (size_t n = 1; n <= 8; n++) {
        const size_t m = keys[n % 5];
        if (too_slow(1, n, m, 4)) {
            continue;
        }
        struct call c = draw_call(n % 3 == 0 ? MASK : PLAIN, ATTN_FLOAT32, 1, n, m, 1 + n % 4, 2);
        for (size_t i = 0; i < m * c.d_v && n % 2 == 0; i++) {
            c.v[i] = fabs(c.v[i]);
        }
        struct reference_results want = reference_of(&c, 0, 0);
        for (size_t way = 0; way < 3; way++) {
            struct results r = run_call(&c, ways[way]);
            struct worst worst = {0};
            compare_to_reference(&worst, &c, 0, 0, &want, &r);
            cr_expect(worst.error <= 0.5, "%zu queries, %zu keys, way %zu: %s is off by %g", n, m,
                      way, worst.what, worst.error * bound_of(c.dtype));
            free_results(&r);
        }
        free(want.scores);
        free_call(&c);
    }
}

/* ---------------------------------------------------------------------------------- small calls */

/* A small call is computed in double from its first product to its last. So each number is that of
 * the reference, rounded once to float32. The library and the reference may add doubles in
 * different orders, and their sums could lie on two sides of the middle between two floats. Among
 * so few numbers this was never seen. */
Test(digits, small_calls_are_rounded_once) {
    static const unsigned kinds[] = {PLAIN, CAUSAL, MASK,    BIAS, SOFTCAP,
                                     ALIBI, SINK,   GROUPED, PAST, ALL & ~LENGTHS};
    for (size_t draw = 0; draw < 60; draw++) {
        const size_t n = 1 + draw % 6, m = 3 + draw % 7, d = 1 + draw % 5;
        struct call c = draw_call(kinds[draw % 10], ATTN_FLOAT32, 2, n, m, d, 3);
        struct results r = run_call(&c, EVERYTHING);
        for (size_t h = 0; h < 2; h++) {
            struct reference_results want = reference_of(&c, 0, h);
            for (attn_result k = 0; k < ATTN_RESULT_COUNT; k++) {
                const double *row = want.of[k];
                const size_t count = row == NULL ? 0 : r.count[k] / 2;
                for (size_t i = 0; i < count; i++) {
                    const double is = r.of[k][h * count + i];
                    cr_expect_eq(is, (double)(float)row[i], "draw %zu: %s %zu: %.9g", draw,
                                 attn_result_name(k), i, is);
                }
            }
            free(want.scores);
        }
        free_results(&r);
        free_call(&c);
    }
}

/* In a small call the mean over heads is rounded once, too. */
Test(digits, a_small_mean_over_heads_is_rounded_once) {
    enum {
        HEADS = 7
    };
    for (size_t d = 1; d <= 12; d++) {
        struct call c = draw_call(PLAIN, ATTN_FLOAT32, HEADS, 4, 4, d, 3);
        c.options.flags |= ATTN_FLAG_MEAN_OVER_HEADS;
        struct results r = run_call(&c, KEPT);
        double mean[16] = {0};
        for (size_t h = 0; h < HEADS; h++) {
            struct reference_results want = reference_of(&c, 0, h);
            for (size_t i = 0; i < 16; i++) {
                mean[i] += want.weights[i];
            }
            free(want.scores);
        }
        for (size_t i = 0; i < 16; i++) {
            cr_expect_eq(r.of[ATTN_RESULT_WEIGHTS][i], (double)(float)(mean[i] / HEADS),
                         "%zu columns, weight %zu", d, i);
        }
        free_results(&r);
        free_call(&c);
    }
}

Test(digits, a_small_score_is_the_nearest_float) {
    static const float q[] = {0.1f, 0.2f, 0.3f}, k[] = {1.7f, 2.3f, -3.1f};
    struct call c = draw_call(PLAIN, ATTN_FLOAT32, 1, 1, 1, 3, 1);
    for (size_t i = 0; i < 3; i++) {
        c.q[i] = (double)q[i];
        c.k[i] = (double)k[i];
    }
    struct results r = run_call(&c, ATTN_WANT(SCORES));
    cr_expect_eq(r.of[ATTN_RESULT_SCORES][0], (double)-0.3f, "%.9g", r.of[ATTN_RESULT_SCORES][0]);
    free_results(&r);
    free_call(&c);
}

/* The variances are those of scores that are not rounded to float32. */
Test(digits, small_statistics_are_not_rounded_on_the_way) {
    struct call c = draw_call(PLAIN, ATTN_FLOAT32, 1, 1, 2, 1, 1);
    c.q[0] = (double)0.1f;
    c.k[0] = (double)0.3f;
    c.k[1] = (double)0.7f;
    struct results r = run_call(&c, ATTN_WANT(STATISTICS));
    const double half = c.q[0] * (c.k[1] - c.k[0]) / 2;
    for (size_t i = 2; i < 4; i++) { /* of scores and scaled scores */
        const double is = r.of[ATTN_RESULT_STATISTICS][i];
        cr_expect(fabs(is - half * half) <= 1e-14 * half * half, "%.17g", is);
    }
    free_results(&r);
    free_call(&c);
}

/* The projections of small calls stay in float64. The output is computed from Q, K and V before
 * they are rounded. The results Q, K and V are rounded once. */
Test(digits, small_projections_are_not_rounded_on_the_way) {
    enum {
        N = 5,
        WIDE = 7,
        D = 3
    };
    struct rng rng = {17};
    for (size_t draw = 0; draw < 20; draw++) {
        float x[N * WIDE], weights[3][WIDE * D], last[D * D], bias[D], got[4][N * D];
        double made[3][N * D];
        for (size_t i = 0; i < N * WIDE; i++) {
            x[i] = (float)rng_normal(&rng);
        }
        for (size_t i = 0; i < 3 * WIDE * D; i++) {
            weights[i / (WIDE * D)][i % (WIDE * D)] = (float)rng_normal(&rng);
        }
        for (size_t i = 0; i < D * D; i++) {
            last[i] = (float)rng_normal(&rng);
            bias[i % D] = (float)rng_normal(&rng);
        }
        attn_tensor t[6] = {{.data = x, .rank = 2, .shape = {N, WIDE}}};
        for (size_t i = 0; i < 3; i++) {
            t[1 + i] = (attn_tensor){.data = weights[i], .rank = 2, .shape = {WIDE, D}};
        }
        t[4] = (attn_tensor){.data = last, .rank = 2, .shape = {D, D}};
        t[5] = (attn_tensor){.data = bias, .rank = 1, .shape = {D}};
        const attn_projection projection = {
            .w_q = &t[1], .w_k = &t[2], .w_v = &t[3], .b_q = &t[5], .b_v = &t[5]};
        const attn_multihead call = {
            .x = &t[0], .projections = &projection, .count = 1, .w_o = &t[4], .b_o = &t[5]};
        const attn_result results[] = {ATTN_RESULT_Q, ATTN_RESULT_K, ATTN_RESULT_V,
                                       ATTN_RESULT_OUTPUT};
        const attn_options o = {.results =
                                    ATTN_WANT(Q) | ATTN_WANT(K) | ATTN_WANT(V) | ATTN_WANT(OUTPUT)};
        attn_plan *plan;
        attn_error error = {0};
        cr_assert_eq(attn_plan_multihead(&plan, &call, &o, &error), ATTN_OK, "%s", error.message);
        for (size_t i = 0; i < 4; i++) {
            attn_plan_bind(plan, results[i], 0, got[i]);
        }
        cr_assert_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
        attn_plan_free(plan);
        for (size_t i = 0; i < 3 * N * D; i++) {
            const size_t which = i / (N * D), row = i % (N * D) / D, c = i % D;
            double sum = which == 1 ? 0 : (double)bias[c];
            for (size_t e = 0; e < WIDE; e++) {
                sum += (double)x[row * WIDE + e] * (double)weights[which][e * D + c];
            }
            made[which][row * D + c] = sum;
            cr_expect_eq(got[which][row * D + c], (float)sum, "draw %zu", draw);
        }
        const struct reference_head head = {.n = N,
                                            .m = N,
                                            .d = D,
                                            .d_v = D,
                                            .q = made[0],
                                            .k = made[1],
                                            .v = made[2],
                                            .scale = 1 / sqrt(D),
                                            .length = N};
        const struct reference_results want = reference_compute(&head);
        for (size_t i = 0; i < N * D; i++) {
            double y = (double)bias[i % D];
            for (size_t e = 0; e < D; e++) {
                y += want.output[i / D * D + e] * (double)last[e * D + i % D];
            }
            cr_expect_eq(got[3][i], (float)y, "draw %zu: %.9g, not %.9g", draw, (double)got[3][i],
                         y);
        }
        free(want.scores);
    }
}

/* ------------------------------------------------------------------------------ one visible key */

/* Forbids query i all keys but one, by the mask or the bias if the kind has it. Returns this
 * key. */
static size_t allow_one(struct call *c, unsigned kind, size_t i) {
    const size_t only = kind & CAUSAL ? i : (7 * i + 3) % c->m;
    for (size_t j = 0; j < c->m; j++) {
        if (kind & MASK) {
            c->mask[i * c->m + j] = j == only;
        } else if (kind & BIAS) {
            c->bias[i * c->m + j] = j == only ? 2.5 : -INFINITY;
        }
    }
    return only;
}

/* Without softmax a row whose product is NaN is computed again, without forbidden values. */
Test(digits, forbidden_values_may_be_nan_without_softmax) {
    struct call c = draw_call(CAUSAL, ATTN_FLOAT32, 1, 24, 25, 3, 3);
    c.options.normalization = ATTN_UNNORMALIZED;
    struct results want = run_call(&c, ATTN_WANT(OUTPUT));
    c.v[24 * 3] = c.v[24 * 3 + 1] = c.v[24 * 3 + 2] = NAN; /* no query sees the last key */
    struct results is = run_call(&c, ATTN_WANT(OUTPUT));
    for (size_t i = 0; i < is.count[ATTN_RESULT_OUTPUT]; i++) {
        cr_expect(fabs(is.of[ATTN_RESULT_OUTPUT][i] - want.of[ATTN_RESULT_OUTPUT][i]) < 1e-4);
    }
    free_results(&want);
    free_results(&is);
    free_call(&c);
}

/* Makes the values NaN that no query sees. */
static void poison_the_others(struct call *c, const size_t *only) {
    unsigned char *seen = allocate(c->m, 1);
    for (size_t i = 0; i < c->n; i++) {
        seen[only[i]] = 1;
    }
    for (size_t i = 0; i < c->m * c->d_v; i++) {
        c->v[i] = seen[i / c->d_v] ? c->v[i] : (double)NAN;
    }
    free(seen);
}

/* If a query may attend to one key only, its output is the value of this key, bit for bit. Its row
 * is not divided by its sum, and a NaN in a forbidden value is found in it all the same. */
Test(digits, one_visible_key_gives_its_value) {
    static const struct {
        size_t n, m, d;
    } sizes[] = {{5, 7, 3}, {3, 300, 9}, {60, 60, 9}, {239, 239, 64}, {2, 20000, 4}, {20, 9000, 3}};
    static const unsigned kinds[] = {PLAIN, WINDOW, MASK, BIAS, MASK | SOFTCAP, BIAS | ALIBI};
    static const uint64_t ways[] = {ATTN_WANT(OUTPUT), KEPT, SUMS | ATTN_WANT(ENTROPY), EVERYTHING};
    for (size_t at = 0; at < 6 * 6 * 2; at++) {
        const size_t s = at % 6;
        const unsigned kind = kinds[at / 6 % 6];
        const size_t m = kind == PLAIN ? 1 : sizes[s].m;
        if (too_slow(1, sizes[s].n, m, sizes[s].d)) {
            continue;
        }
        struct call c =
            draw_call(kind, at / 36 ? ATTN_FLOAT64 : ATTN_FLOAT32, 1, sizes[s].n, m, sizes[s].d, 5);
        c.options.scale *= 3;
        c.options.window[0] = c.options.window[1] = kind & WINDOW ? 0 : -1;
        c.v[1] = -0.0;
        size_t *only = allocate(c.n, sizeof *only);
        for (size_t i = 0; i < c.n; i++) {
            only[i] = kind & WINDOW ? i : allow_one(&c, kind, i);
        }
        if ((s + at / 6) % 2 == 0) {
            poison_the_others(&c, only);
        }
        for (size_t way = 0; way < 4; way++) {
            struct results r = run_call(&c, ways[way]);
            for (size_t i = 0; i < c.n; i++) {
                cr_expect(memcmp(r.of[ATTN_RESULT_OUTPUT] + i * 5, c.v + only[i] * 5,
                                 5 * sizeof(double)) == 0,
                          "kind %u, size %zu, way %zu: row %zu", kind, s, way, i);
                cr_expect(r.of[ATTN_RESULT_WEIGHTS] == NULL ||
                              r.of[ATTN_RESULT_WEIGHTS][i * m + only[i]] == 1,
                          "kind %u, size %zu, way %zu: weight of row %zu", kind, s, way, i);
            }
            free_results(&r);
        }
        free(only);
        free_call(&c);
    }
}

/* ------------------------------------------------------------------ every result alone, and all */

/* A result that is wanted alone has the same bytes as beside all others in a small call. In other
 * calls the difference stays within the bound. */
Test(digits, a_result_alone_is_the_one_beside_all_others) {
    static const struct {
        size_t n, m, d, d_v;
    } sizes[] = {
        {4, 5, 3, 2}, {3, 700, 20, 5}, {70, 90, 33, 20}, {2, 20000, 3, 2}, {8, 3000, 9, 3}};
    static const unsigned kinds[] = {PLAIN, MASK, BIAS | SOFTCAP, CAUSAL | SINK};
    for (size_t at = 0; at < 5 * 4 * 2; at++) {
        const size_t s = at % 5;
        if (too_slow(2, sizes[s].n, sizes[s].m, sizes[s].d + sizes[s].d_v)) {
            continue;
        }
        struct call c = draw_call(kinds[at / 5 % 4], at / 20 ? ATTN_FLOAT64 : ATTN_FLOAT32, 2,
                                  sizes[s].n, sizes[s].m, sizes[s].d, sizes[s].d_v);
        struct results all = run_call(&c, EVERYTHING);
        for (int i = 0; i < ATTN_RESULT_COUNT; i++) {
            if (all.of[i] == NULL) {
                continue;
            }
            struct results one = run_call(&c, UINT64_C(1) << i), beside = all;
            if (s == 0) {
                cr_expect(same_bytes(&one, &all), "%s", attn_result_name((attn_result)i));
            } else if ((UINT64_C(1) << i & KEPT) != 0) {
                struct worst worst = {0};
                for (int k = 0; k < ATTN_RESULT_COUNT; k++) {
                    beside.of[k] = k == i ? one.of[i] : all.of[k];
                }
                compare_results(&worst, &c, &all, &beside, bound_of(c.dtype) / 2);
                cr_expect(worst.error <= 1, "size %zu: %s of row %zu is off by %g bounds", s,
                          worst.what, worst.row, worst.error);
            }
            free_results(&one);
        }
        free_results(&all);
        free_call(&c);
    }
}

/* --------------------------------------------------------------------------------- large logits */

/* The scale does not fit float32, but the logits are -1.6, beside a sink of 0. */
Test(digits, a_scale_beyond_float32_is_no_infinity) {
    struct call c = draw_call(SINK, ATTN_FLOAT32, 1, 32, 64, 16, 1);
    for (size_t i = 0; i < c.m * c.d; i++) {
        c.q[i % (c.n * c.d)] = -1e-20;
        c.k[i] = 1e-20;
        c.v[i / c.d] = 1;
    }
    c.options.scale = 1e39;
    c.sinks[0] = 0;
    struct results r = run_call(&c, ATTN_WANT(OUTPUT));
    const double all = (double)c.m * exp(-1.6);
    /* The bound is wide, because the scores are denormal and have few digits. */
    for (size_t i = 0; i < c.n; i++) {
        cr_expect_float_eq(r.of[ATTN_RESULT_OUTPUT][i], all / (all + 1), 1e-4);
    }
    free_results(&r);
    free_call(&c);
}

/* The logits are -64, beside a sink of 0.1: lse is 0.1, and keeps the digits of 0.1. */
Test(digits, lse_beside_a_far_larger_sink_is_the_sink) {
    struct call c = draw_call(SINK, ATTN_FLOAT64, 1, 32, 64, 16, 1);
    for (size_t i = 0; i < c.m * c.d; i++) {
        c.q[i % (c.n * c.d)] = -4;
        c.k[i] = 1;
    }
    c.options.scale = 1;
    c.sinks[0] = 0.1;
    struct results r = run_call(&c, SUMS);
    for (size_t i = 0; i < c.n; i++) {
        cr_expect_float_eq(r.of[ATTN_RESULT_LSE][i], 0.1, 4e-16, "off by %g",
                           r.of[ATTN_RESULT_LSE][i] - 0.1);
    }
    free_results(&r);
    free_call(&c);
}

/* The weights of 100 equal logits are equal. The logits are near 2^30, where a float32 is a
 * multiple of 64 or 128, and larger. So the maximum is rounded up or down, by an amount that exp
 * can take in some calls and cannot take in others. */
Test(digits, equal_logits_near_two_to_thirty_are_equal) {
    enum {
        N = 40,
        M = 100
    };
    static const double biases[] = {0x1p29,  0x1p30 - 128, 0x1p30, -0x1p30, 0x1p31,
                                    -0x1p31, 0x1p32,       0x1p33, -0x1p33, 0x1p40};
    for (size_t at = 0; at < 2 * sizeof biases / sizeof *biases; at++) {
        const double bias = biases[at / 2];
        struct call c = draw_call(BIAS, ATTN_FLOAT32, 1, N, M, 2, 3);
        for (size_t i = 0; i < N * M; i++) {
            c.bias[i] = bias;
        }
        for (size_t i = 0; i < N * c.d; i++) { /* the scores move the logits between two floats */
            const size_t row = i / c.d;
            c.q[i] = 4 * (double)row;
        }
        for (size_t i = 0; i < M * c.d; i++) {
            c.k[i] = 1;
        }
        c.options.scale = at % 2 == 0 ? 1 : -1;
        const uint64_t ways[] = {SUMS, KEPT, EVERYTHING & ~ATTN_WANT(STATISTICS)};
        check_ways(&c, ways, 3);
        for (size_t way = 1; way < 3; way++) {
            struct results r = run_call(&c, ways[way]);
            for (size_t i = 0; i < N * M; i++) {
                cr_expect_float_eq(r.of[ATTN_RESULT_WEIGHTS][i], 0.01, 2e-9, "bias %g: %.9g", bias,
                                   r.of[ATTN_RESULT_WEIGHTS][i]);
            }
            free_results(&r);
        }
        free_call(&c);
    }
}
