/*
 * test_kernels.c - every table of row kernels that this machine can run: exp to 1 ulp over its
 * whole range, and all kernels against plain loops around the edges of every vector width; and which
 * of them ATTENTION_ISA chooses.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "kernels.h"
#include "support/rng.h"
#include "support/scale.h"

static size_t tables(const struct attn_kernels *all[ATTN_KERNELS_MAX]) {
    size_t count = 0;
    all[count++] = &attn_kernels_scalar;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        all[count++] = &attn_kernels_avx2;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
        all[count++] = &attn_kernels_avx512;
    }
#elif defined(__aarch64__)
    all[count++] = &attn_kernels_neon;
#endif
    return count;
}

/* Distance in units of the last place of `exact`. */
static double ulps_f32(float got, double exact) {
    int exponent;
    frexp(exact, &exponent);
    return fabs((double)got - exact) / ldexp(1, exponent - FLT_MANT_DIG);
}

static double ulps_f64(double got, long double exact) {
    int exponent;
    frexpl(exact, &exponent);
    return (double)(fabsl((long double)got - exact) / ldexpl(1, exponent - DBL_MANT_DIG));
}

/* Every 64th float of [-87, 0]: 17 million of them. */
Test(kernels, exp_f32_is_right_to_one_ulp, .timeout = 300) {
    enum {
        COUNT = 4096,
        STEP = 64
    };
    const struct attn_kernels *all[ATTN_KERNELS_MAX];
    const size_t count = tables(all);
    static float x[COUNT], y[COUNT];
    for (size_t t = 0; t < count; t++) {
        double worst = 0;
        uint32_t bits = 0x80000000, end;
        const float last = -87.0f;
        const uint32_t step = STEP * (uint32_t)(4000 / test_scale(4000));
        memcpy(&end, &last, sizeof end);
        while (bits < end) {
            for (size_t i = 0; i < COUNT; i++, bits += step) {
                const uint32_t b = bits < end ? bits : end;
                memcpy(&x[i], &b, sizeof b);
            }
            memcpy(y, x, sizeof y);
            all[t]->exp_f32(y, COUNT, 1, 0);
            for (size_t i = 0; i < COUNT; i++) {
                worst = fmax(worst, ulps_f32(y[i], exp((double)x[i])));
            }
        }
        cr_expect_leq(worst, 1.0, "%s: %g ulp", all[t]->name, worst);
    }
}

Test(kernels, exp_f64_is_right_to_one_ulp, .timeout = 300) {
    enum {
        COUNT = 4096,
        ROUNDS = 100
    };
    const struct attn_kernels *all[ATTN_KERNELS_MAX];
    const size_t count = tables(all);
    struct rng rng = {12345};
    static double x[COUNT], y[COUNT];
    for (size_t t = 0; t < count; t++) {
        double worst = 0;
        for (int round = 0; round < (int)test_scale(ROUNDS); round++) {
            for (size_t i = 0; i < COUNT; i++) {
                x[i] = round % 2 ? -708 * rng_uniform(&rng) : -ldexp(rng_uniform(&rng), round - 60);
                x[i] = x[i] < -708 ? -708 : x[i];
            }
            memcpy(y, x, sizeof y);
            all[t]->exp_f64(y, COUNT, 1, 0);
            for (size_t i = 0; i < COUNT; i++) {
                worst = fmax(worst, ulps_f64(y[i], expl((long double)x[i])));
            }
        }
        cr_expect_leq(worst, 1.0, "%s: %g ulp", all[t]->name, worst);
    }
}

static void check_length(const struct attn_kernels *k, size_t n, struct rng *rng) {
    enum {
        MAX = 2100,
        GUARD = 4
    };
    static float x[MAX], a[MAX], b[MAX];
    static double y[MAX];
    float max = -INFINITY;
    double sum = 0, dot = 0, size = 0;
    bool finite;
    for (size_t i = 0; i < n + GUARD; i++) {
        x[i] = (float)rng_normal(rng);
        a[i] = b[i] = (float)rng_normal(rng);
        y[i] = (double)x[i];
        if (i < n) {
            max = fmaxf(max, x[i]);
            dot += (double)x[i] * (double)a[i];
            size += fabs((double)x[i] * (double)a[i]);
        }
    }
    cr_assert_eq(k->max_f32(x, n, &finite), max, "%s max %zu", k->name, n);
    cr_assert(finite);
    cr_assert_eq(k->max_f64(y, n, &finite), (double)max);
    float product;
    k->dots_f32(&product, x, a, 0, 1, n);
    cr_assert(fabs((double)product - dot) <= 1e-6 * size, "%s dot %zu", k->name, n);
    k->axpy_f32(b, x, n, 2);
    for (size_t i = 0; i < n + GUARD; i++) {
        const float want = i < n ? a[i] + 2 * x[i] : a[i];
        cr_assert(fabsf(b[i] - want) <= 1e-6f, "%s axpy %zu at %zu", k->name, n, i);
    }
    memcpy(b, x, sizeof b);
    const double got = k->exp_f32(b, n, 0.5f, max);
    for (size_t i = 0; i < n + GUARD; i++) {
        const double want = i < n ? exp(0.5 * (double)x[i] - (double)max) : (double)x[i];
        sum += i < n ? want : 0;
        const double rounding = 1.2e-7 + 6e-8 * fabs(0.5 * (double)x[i] - (double)max);
        cr_assert(fabs((double)b[i] - want) <= (i < n ? rounding : 0) * fabs(want), "%s exp %zu",
                  k->name, n);
    }
    cr_assert(fabs(got - sum) <= 1e-6 * sum, "%s sum of %zu: %g, not %g", k->name, n, got, sum);
    b[n] = 7;
    k->exp_shift_f32(y, b, n, 1.5);
    cr_assert_eq(b[n], 7, "%s exp_shift writes past %zu", k->name, n);
    for (size_t i = 0; i < n; i++) {
        const double want = exp(y[i] - 1.5), rounding = 1.2e-7 + 6e-8 * fabs(y[i] - 1.5);
        cr_assert(fabs((double)b[i] - want) <= rounding * want, "%s exp_shift %zu", k->name, n);
    }
    cr_assert(k->mul_f32(b, n, 1, n, (const float[]){0}));
    cr_assert(n == 0 || (b[0] == 0 && b[n - 1] == 0));
    cr_assert_eq(b[n], 7);
    if (n > 0) {
        x[n - 1] = NAN;
        k->max_f32(x, n, &finite);
        cr_assert_not(finite, "%s does not see NaN at the end of %zu", k->name, n);
        x[n - 1] = -INFINITY;
        k->max_f32(x, n, &finite);
        cr_assert_not(finite);
    }
}

Test(kernels, agree_with_plain_loops_at_every_edge) {
    const struct attn_kernels *all[ATTN_KERNELS_MAX];
    const size_t count = tables(all);
    struct rng rng = {99};
    for (size_t t = 0; t < count; t++) {
        for (size_t n = 0; n < 140; n++) {
            check_length(all[t], n, &rng);
        }
        for (size_t n = 1000; n < 2090; n += 121) {
            check_length(all[t], n, &rng);
        }
    }
}

Test(kernels, what_is_far_below_is_zero) {
    const struct attn_kernels *all[ATTN_KERNELS_MAX];
    const size_t count = tables(all);
    for (size_t t = 0; t < count; t++) {
        float x[3] = {-1e30f, -200, 0};
        const double y[3] = {-INFINITY, -2000, 0};
        float w[3];
        cr_expect_eq(all[t]->exp_f32(x, 3, 1, 0), 1, "%s", all[t]->name);
        cr_expect(x[0] == 0 && x[1] == 0 && x[2] == 1);
        cr_expect_eq(all[t]->exp_shift_f32(y, w, 3, 0), 1, "%s", all[t]->name);
        cr_expect(w[0] == 0 && w[1] == 0 && w[2] == 1);
    }
}

/* ------------------------------------------------------------------------------- ATTENTION_ISA */

/* Each test is a process of its own, so that the choice is not made yet. */
TestSuite(isa, .timeout = 60);

/* What the build says: whether the value was refused, and that `kernels` is the table of this
 * index, or the best with -1. */
static void expect_choice(const char *value, bool refused, int index) {
    const struct attn_kernels *all[ATTN_KERNELS_MAX];
    const size_t count = tables(all);
    if (value == NULL) {
        unsetenv("ATTENTION_ISA");
    } else {
        setenv("ATTENTION_ISA", value, 1);
    }
    const attn_build_info build = attn_build();
    cr_expect_eq(build.kernels_refused, refused);
    cr_expect_str_eq(build.kernels, all[index < 0 ? count - 1 : (size_t)index]->name);
    for (size_t t = 0; t < count; t++) {
        cr_assert_not_null(build.usable_kernels[t]);
        cr_expect_str_eq(build.usable_kernels[t], all[t]->name);
    }
    cr_expect_null(build.usable_kernels[count]);
    setenv("ATTENTION_ISA", "later", 1); /* chosen is chosen */
    cr_expect_eq(attn_build().kernels_refused, refused);
    cr_expect_str_eq(attn_build().kernels, build.kernels);
}

Test(isa, without_it_the_best_kernels_are_used) {
    expect_choice(NULL, false, -1);
}

Test(isa, empty_is_as_good_as_unset) {
    expect_choice("", false, -1);
}

Test(isa, forces_a_table) {
    expect_choice("scalar", false, 0);
}

Test(isa, unknown_name_is_refused) {
    expect_choice("Scalar", true, -1);
}

Test(isa, table_of_another_cpu_is_refused) {
#if defined(__aarch64__)
    expect_choice("avx2", true, -1);
#else
    expect_choice("neon", true, -1);
#endif
}
