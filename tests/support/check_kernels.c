/* check_kernels.c implements check_kernels.h. Checks that are the same for float and double are in
 * check_kernels.inc. */
#include "support/check_kernels.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "support/rng.h"
#include "support/scale.h"

const char *check_failure(const char *format, ...) {
    static char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

#define REQUIRE(condition, ...)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return check_failure(__VA_ARGS__);                                                     \
        }                                                                                          \
    } while (0)

/* Returns what another check says, if it fails. */
#define REQUIRE_NULL(check)                                                                        \
    do {                                                                                           \
        const char *wrong = (check);                                                               \
        if (wrong != NULL) {                                                                       \
            return wrong;                                                                          \
        }                                                                                          \
    } while (0)

/* ----------------------------------------------------------------------------------- exp alone */

/* Returns the distance of `got` from `exact`, in units of the last place of `exact`. */
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

/* Tries every 64th float of [-87, 0], which are 17 million floats. */
const char *check_exp_f32_is_right_to_one_ulp(const struct attn_kernels *k) {
    enum {
        COUNT = 4096,
        STEP = 64
    };
    static float x[COUNT], y[COUNT];
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
        k->exp_f32(y, COUNT, 1, 0);
        for (size_t i = 0; i < COUNT; i++) {
            const double off = ulps_f32(y[i], exp((double)x[i]));
            REQUIRE(off <= 1, "exp_f32(%a) is %g ulp off", (double)x[i], off);
        }
    }
    return NULL;
}

const char *check_exp_f64_is_right_to_one_ulp(const struct attn_kernels *k) {
    enum {
        COUNT = 4096,
        ROUNDS = 100
    };
    static double x[COUNT], y[COUNT];
    struct rng rng = {12345};
    for (int round = 0; round < (int)test_scale(ROUNDS); round++) {
        for (size_t i = 0; i < COUNT; i++) {
            x[i] = round % 2 ? -708 * rng_uniform(&rng) : -ldexp(rng_uniform(&rng), round - 60);
            x[i] = x[i] < -708 ? -708 : x[i];
        }
        memcpy(y, x, sizeof y);
        k->exp_f64(y, COUNT, 1, 0);
        for (size_t i = 0; i < COUNT; i++) {
            const double off = ulps_f64(y[i], expl((long double)x[i]));
            REQUIRE(off <= 1, "exp_f64(%a) is %g ulp off", x[i], off);
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------------------- for doubles alone */

/* Tries all lengths up to a few vectors. The arguments go from numbers so small that tanh(x) = x to
 * numbers so large that tanh(x) = 1. */
const char *check_softcap_is_right_to_four_ulp(const struct attn_kernels *k) {
    enum {
        COUNT = 40
    };
    const double odd[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    struct rng rng = {8};
    for (size_t c = 0; c < 50 * COUNT; c++) {
        const size_t n = c % COUNT;
        const double cap = ldexp(1 + rng_uniform(&rng), (int)(c % 12) - 4);
        double y[COUNT + 1], was[COUNT];
        for (size_t i = 0; i < n; i++) {
            was[i] = ldexp(rng_uniform(&rng) - 0.5, (int)rng_between(&rng, 0, 50) - 38);
            was[i] = rng_chance(&rng, 9) ? odd[rng_between(&rng, 0, 2)] : cap * was[i];
            y[i] = was[i];
        }
        y[n] = 7;
        k->softcap(y, n, cap);
        for (size_t i = 0; i < n; i++) {
            const double least = fmin(cap, fabs(was[i]));
            const double ulp = nextafter(least, (double)INFINITY) - least;
            const long double want = (long double)cap * tanhl((long double)was[i] / cap);
            REQUIRE(isfinite(was[i]) ? fabsl((long double)y[i] - want) <= 4 * (long double)ulp
                                     : memcmp(&y[i], &was[i], sizeof *y) == 0,
                    "softcap %a of %a: %a, %zu of %zu", cap, was[i], y[i], i, n);
        }
        REQUIRE(y[n] == 7, "softcap writes beyond %zu", n);
    }
    return NULL;
}

/* The arguments are 0, 1 and numbers of every magnitude between. */
const char *check_log1p_is_right_to_three_ulp(const struct attn_kernels *k) {
    enum {
        COUNT = 70
    };
    struct rng rng = {10};
    for (size_t c = 0; c < 100 * COUNT; c++) {
        const size_t n = c % COUNT;
        double y[COUNT + 1], was[COUNT];
        for (size_t i = 0; i < n; i++) {
            was[i] = ldexp(rng_uniform(&rng), -(int)rng_between(&rng, 0, c % 2 == 0 ? 4 : 1000));
            was[i] = rng_chance(&rng, 20) ? (double)rng_between(&rng, 0, 1) : was[i];
            y[i] = was[i];
        }
        y[n] = 7;
        k->log1p(y, n);
        for (size_t i = 0; i < n; i++) {
            const double off = ulps_f64(y[i], log1pl((long double)was[i]));
            REQUIRE(off <= 3, "log1p(%a) is %g ulp off, %zu of %zu", was[i], off, i, n);
        }
        REQUIRE(y[n] == 7, "log1p writes beyond %zu", n);
    }
    return NULL;
}

const char *check_alibi_agrees_with_plain_loop(const struct attn_kernels *k) {
    enum {
        COUNT = 70
    };
    struct rng rng = {9};
    for (size_t n = 0; n < COUNT; n++) {
        const double slope = rng_uniform(&rng), first = (double)rng_between(&rng, 0, 80) - 60;
        double y[COUNT], was[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            was[i] = y[i] = rng_normal(&rng);
        }
        k->alibi(y, n, slope, first);
        for (size_t i = 0; i < COUNT; i++) {
            const double want = i < n ? was[i] - slope * fabs(first + (double)i) : was[i];
            REQUIRE(y[i] == want, "alibi of %zu from %g: %g at %zu, not %g", n, first, y[i], i,
                    want);
        }
    }
    return NULL;
}

/* Numbers of any magnitude, infinities and NaN. */
const char *check_round_half_rounds_each_number(const struct attn_kernels *k) {
    static const struct half_type types[] = {{"float16", 13, 0x1p-14F, 0.5F, 65504},
                                             {"bfloat16", 16, 0, 0, 0x1.FEp127F}};
    enum {
        COUNT = 70
    };
    struct rng rng = {11};
    for (size_t n = 0; n < COUNT; n++) {
        const float scale = n % 2 == 0 ? 1 : (float)rng_normal(&rng);
        const struct half_type *type = &types[n / 2 % 2];
        float x[COUNT], was[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            const double magnitude = exp2((double)rng_between(&rng, 0, 300) - 150);
            x[i] = i % 23 == 9    ? INFINITY
                   : i % 23 == 20 ? NAN
                                  : (float)(magnitude * rng_normal(&rng));
            was[i] = x[i];
        }
        k->round_half(x, n, scale, type);
        for (size_t i = 0; i < COUNT; i++) {
            const float want = i < n ? round_to_half(type, scale * was[i]) : was[i];
            REQUIRE(x[i] == want || (isnan(x[i]) && isnan(want)),
                    "round_half %g of %zu to %s: %g at %zu, not %g", (double)was[i], n, type->name,
                    (double)x[i], i, (double)want);
        }
    }
    return NULL;
}

/* -------------------------------------------------------------------------------- all the rest */

enum {
    GUARD = 8,      /* numbers on each side of a row that must stay as they are */
    LONGEST = 2100, /* numbers of a row */
    WIDE = 300,     /* numbers of a row of a matrix */
    WIDEST = 1024,  /* numbers of a row of `online` */
    MANY = 36,      /* rows of one call; more than two groups of the widest vectors */
    NO_ROW = -1
};

/* The number around each row. A kernel that reads it gets a wrong sum and a wrong largest number. A
 * kernel that writes there is noticed, because no kernel produces this number. */
#define OUTSIDE 1000

/* Returns the next length to try. All lengths below 140 are tried, which covers the widths of all
 * vectors and four times these; above, one of 121. */
static size_t next_length(size_t n) {
    return n < 140 ? n + 1 : n + 121;
}

/* UNIT is the unit roundoff. TERM bounds the relative error of exp(arg): 1 ulp (two units) for exp
 * itself, and one unit of arg for the rounding of the argument. For double the bound is doubled,
 * because the reference is computed in double, too. */
#define real        float
#define T(name)     name##_f32
#define CHECK(a, b) check_##a##_f32_##b
#define UNIT        0x1p-24
#define TERM(arg)   (1.01 * UNIT * (2 + fabs(arg)))
#define LOWEST      (-87.0)
#define LARGEST     FLT_MAX
#define EXACT       0x1p29f
#include "support/check_kernels.inc"

#define real        double
#define T(name)     name##_f64
#define CHECK(a, b) check_##a##_f64_##b
#define UNIT        0x1p-53
#define TERM(arg)   (2 * UNIT * (2 + fabs(arg)))
#define LOWEST      (-708.0)
#define LARGEST     DBL_MAX
#define EXACT       0x1p58
#include "support/check_kernels.inc"

/* ---------------------------------------------------------------------------- for doubles again */

const char *check_max_agrees_with_plain_loop(const struct attn_kernels *k) {
    static _Alignas(64) double buffer[LONGEST + 64 + 2 * GUARD];
    struct rng rng = {99};
    for (size_t n = 0; n < LONGEST; n = next_length(n)) {
        const double *x = row_f64(buffer, n % 8, n, &rng);
        double max = -(double)INFINITY;
        for (size_t i = 0; i < n; i++) {
            max = x[i] > max ? x[i] : max;
        }
        REQUIRE(k->max(x, n) == max, "max of %zu", n);
    }
    return NULL;
}
