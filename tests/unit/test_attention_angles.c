/*
 * test_attention_angles.c - compares the angles of rotary embedding with those that the formulas of
 * each scaling give for numbers that are worked out here. test_attention_rotary.c has the laws.
 */
#include <math.h>

#include "test_by_hand.h"

enum {
    PAIRS = 4,
    COLUMNS = 2 * PAIRS,
    ITEMS = 2
};

/* Turns a row of each batch item, which stand at these positions, and compares the angles: pair k
 * has the frequency frequencies[k], and all numbers are multiplied by `factor`. */
static void expect_angles(attn_rotary rotary, const double positions[ITEMS],
                          const double frequencies[PAIRS], double factor) {
    double x[ITEMS * COLUMNS], keys[ITEMS * COLUMNS];
    for (size_t i = 0; i < ITEMS * COLUMNS; i++) {
        x[i] = i % COLUMNS < PAIRS; /* so that the row becomes cosines, and then sines */
    }
    const attn_tensor rows = {x, ATTN_FLOAT64, 4, {ITEMS, 1, 1, COLUMNS}};
    const attn_tensor at = {positions, ATTN_FLOAT64, 2, {ITEMS, 1}};
    rotary.positions = &at;
    const attn_options o = {.rotary = &rotary, .results = ATTN_WANT(PRESENT_K)};
    void *const data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_PRESENT_K] = keys};
    attn_error error = {0};
    cr_assert_eq(plan_and_run(&rows, &rows, &rows, &o, data, &error), ATTN_OK, "%s", error.message);
    for (size_t b = 0; b < ITEMS; b++) {
        for (size_t k = 0; k < PAIRS; k++) {
            const double angle = positions[b] * frequencies[k];
            const double *is = keys + b * COLUMNS + k;
            cr_expect_float_eq(is[0], factor * cos(angle), 1e-13, "item %zu, pair %zu: %g", b, k,
                               is[0]);
            cr_expect_float_eq(is[PAIRS], factor * sin(angle), 1e-13, "item %zu, pair %zu: %g", b,
                               k, is[PAIRS]);
        }
    }
}

/* The frequencies of the base 10000 are 1, 0.1, 0.01 and 0.001. */
static const double plain[PAIRS] = {1, 0.1, 0.01, 0.001};

Test(angles, are_positions_times_frequencies) {
    expect_angles((attn_rotary){0}, (const double[]){3, 50}, plain, 1);
    expect_angles((attn_rotary){.scaling = ATTN_ROTARY_LINEAR, .factor = 8},
                  (const double[]){8 * 3, 8 * 50}, (const double[]){.125, .0125, .00125, .000125},
                  1);
}

/* Columns whose pairs do not turn stay as they are, also between those that turn. */
Test(angles, of_a_part_of_the_pairs) {
    static const double at[ITEMS] = {3, 50};
    attn_rotary r = {.scaling = ATTN_ROTARY_PROPORTIONAL};
    expect_angles(r, at, plain, 1);
    r.partial_factor = 0.5;
    expect_angles(r, at, (const double[]){1, 0.1, 0, 0}, 1);
    r.partial_factor = 0.74; /* 2.96 pairs */
    r.factor = 4;
    expect_angles(r, at, (const double[]){0.25, 0.025, 0, 0}, 1);
    r.partial_factor = 1;
    expect_angles(r, at, (const double[]){0.25, 0.025, 0.0025, 0.00025}, 1);
}

/* A float32 call turns its rows by positions that float32 would round. */
Test(angles, of_large_positions_are_exact) {
    enum {
        ROWS = 4
    };
    static const double positions[ROWS] = {16777217, 16777219, 2147483647, 9007199254740991};
    static const float ones[ROWS * 2] = {1, 0, 1, 0, 1, 0, 1, 0};
    const attn_tensor rows = {ones, ATTN_FLOAT32, 4, {1, 1, ROWS, 2}};
    const attn_tensor at = {.data = positions, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {ROWS}};
    const attn_rotary rotary = {.positions = &at};
    const attn_options o = {.rotary = &rotary, .results = ATTN_WANT(PRESENT_K)};
    float keys[ROWS * 2];
    void *const data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_PRESENT_K] = keys};
    attn_error error = {0};
    cr_assert_eq(plan_and_run(&rows, &rows, &rows, &o, data, &error), ATTN_OK, "%s", error.message);
    for (size_t i = 0; i < ROWS; i++) {
        cr_expect_eq(keys[2 * i], (float)cos(positions[i]), "%zu", i);
        cr_expect_eq(keys[2 * i + 1], (float)sin(positions[i]), "%zu", i);
    }
}

/* The position of any batch item may be the largest one. */
Test(angles, of_a_dynamic_base_follow_the_largest_position) {
    static const double orders[2][ITEMS] = {{3, 20}, {20, 3}};
    const attn_rotary r = {.scaling = ATTN_ROTARY_DYNAMIC, .factor = 3, .original_positions = 7};
    /* 21 positions are 3 times those of the training: 3 * 3 - 2 = 7. */
    const double base = 10000 * pow(7, 8.0 / 6);
    const double frequencies[PAIRS] = {1, pow(base, -0.25), pow(base, -0.5), pow(base, -0.75)};
    for (size_t i = 0; i < 2; i++) {
        expect_angles(r, orders[i], frequencies, 1);
    }
    expect_angles(r, (const double[]){6, 2}, plain, 1); /* up to 7 positions the base stays */
    expect_angles(r, (const double[]){1, 2}, plain, 1);
}

Test(angles, of_longrope_follow_the_largest_position) {
    static const double orders[2][ITEMS] = {{3, 16}, {16, 3}}, shorts[PAIRS] = {1, 2, 2.5, 4},
                        longs[PAIRS] = {2, 4, 5, 8};
    const attn_rotary r = {.scaling = ATTN_ROTARY_LONGROPE,
                           .original_positions = 16,
                           .short_factors = shorts,
                           .short_count = PAIRS,
                           .long_factors = longs,
                           .long_count = PAIRS};
    for (size_t i = 0; i < 2; i++) {
        expect_angles(r, orders[i], (const double[]){.5, .025, .002, .000125}, 1);
    }
    expect_angles(r, (const double[]){15, 3}, (const double[]){1, .05, .004, .00025}, 1);
}

/* The factor of cos and sin is sqrt(1 + ln(factor) / ln(original_positions)), and 1 without a
 * factor. */
Test(angles, of_longrope_have_a_factor) {
    static const double ones[PAIRS] = {1, 1, 1, 1}, at[ITEMS] = {1, 2};
    attn_rotary r = {.scaling = ATTN_ROTARY_LONGROPE,
                     .original_positions = 16,
                     .short_factors = ones,
                     .short_count = PAIRS,
                     .long_factors = ones,
                     .long_count = PAIRS};
    expect_angles(r, at, plain, 1);
    r.factor = 1;
    expect_angles(r, at, plain, 1);
    r.factor = 4;
    expect_angles(r, at, plain, sqrt(1.5));
    r.attention_factor = 0.5;
    expect_angles(r, at, plain, 0.5);
}

/* A pair that turns t times over P positions is 8 ln(P / 2 pi t) / (2 ln base). */
Test(angles, of_yarn_have_a_ramp) {
    static const double at[ITEMS] = {1, 5};
    attn_rotary r = {.scaling = ATTN_ROTARY_YARN, .factor = 2, .attention_factor = 1};
    /* The base 10000 and 64 positions: beta_fast 1 is pair 1.008, and beta_slow 0.05 is 2.31. */
    r.original_positions = 64;
    r.beta_fast = 1;
    r.beta_slow = 0.05;
    expect_angles(r, at, (const double[]){1, .1, .01 * .75, .001 * .5}, 1); /* from 1 to 3 */
    r.untruncated = true;
    const double low = 4 * log(64 / (2 * acos(-1))) / log(10000),
                 high = 4 * log(64 / (0.1 * acos(-1))) / log(10000);
    expect_angles(r, at,
                  (const double[]){1, .1, .01 * (1 - (2 - low) / (high - low) / 2), .001 * .5}, 1);
    r.untruncated = false;
    /* beta_fast 32 is a pair below 0, so the ramp begins at pair 0 and ends at pair 3. */
    r.beta_fast = 32;
    expect_angles(r, at, (const double[]){1, .1 * (1 - 1.0 / 6), .01 * (1 - 2.0 / 6), .001 * .5},
                  1);
    /* The base 10 and 4096 positions: beta_fast 600 is pair 0.14, and beta_slow 1 is pair 11.3. The
     * ramp ends at column 7, the last one. */
    r.base = 10;
    r.original_positions = 4096;
    r.beta_fast = 600;
    r.beta_slow = 1;
    double frequencies[PAIRS];
    for (size_t k = 0; k < PAIRS; k++) {
        frequencies[k] = pow(10, -(double)k / 4) * (1 - (double)k / 14);
    }
    expect_angles(r, at, frequencies, 1);
    /* With the base 10000 and 6 positions both are at most pair 0: the ramp is a step behind it. */
    r.base = 10000;
    r.original_positions = 6;
    r.beta_fast = 2;
    expect_angles(r, at, (const double[]){1, .1 / 2, .01 / 2, .001 / 2}, 1);
}

Test(angles, of_yarn_have_a_factor) {
    static const double at[ITEMS] = {1, 2};
    attn_rotary r = {.scaling = ATTN_ROTARY_YARN, .factor = 1, .original_positions = 1};
    expect_angles(r, at, plain, 1);
    r.mscale = 2;
    r.mscale_all = 0.5;
    expect_angles(r, at, plain, 1);
    r.factor = 4;
    r.mscale = 0;
    /* The base 1e40 leaves pair 0 as it is, and hardly rotates the others. */
    r.base = 1e40;
    r.beta_fast = r.beta_slow = 1e-3;
    r.original_positions = 1e6;
    const double still[PAIRS] = {1, 1e-10 / 4, 0, 0};
    expect_angles(r, at, still, 0.1 * log(4) + 1);
    r.mscale = 2;
    expect_angles(r, at, still, (0.2 * log(4) + 1) / (0.05 * log(4) + 1));
}

/* The turns over 64 positions are 64 f / 2 pi: 10.2, 1.02, 0.10 and 0.010. */
Test(angles, of_llama3_have_a_ramp) {
    const double turns = 6.4 / (2 * acos(-1)), share = (turns - 0.5) / (2 - 0.5);
    const attn_rotary r = {.scaling = ATTN_ROTARY_LLAMA3,
                           .factor = 4,
                           .original_positions = 64,
                           .low_factor = 0.5,
                           .high_factor = 2};
    expect_angles(r, (const double[]){1, 7},
                  (const double[]){1, .1 * (share + (1 - share) / 4), .01 / 4, .001 / 4}, 1);
}
