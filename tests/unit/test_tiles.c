/*
 * test_tiles.c tests the products of kernels/tiles.h: the model of the tile instructions against a
 * second description of them, and then the checks of support/check_tiles.h for the model and, where
 * CPU and operating system allow it, for the instructions themselves.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "support/check_tiles.h"
#include "support/rng.h"
#include "support/tile_model.h"

/* --------------------------------------------------------------------------- the instructions */

/* Rounds a number that a float can hold, or nearly, to 24 bits, to nearest even, and then makes 0
 * of what is below 2^-126. This is the arithmetic of the instruction in other words than those of
 * the model. */
static double rounded_to_float(double x) {
    int exponent;
    frexp(x, &exponent);
    const double y = ldexp(nearbyint(ldexp(x, 24 - exponent)), exponent - 24);
    return fabs(y) < 0x1p-126 ? 0 : fabs(y) >= 0x1p128 ? copysign((double)INFINITY, y) : y;
}

static double number_of(uint16_t part) {
    const double size = part >> 7 & 0xff; /* 8 bits of exponent, 7 of fraction */
    const double fraction = 1 + (part & 0x7f) / 128.0;
    const double x = size == 0     ? 0
                     : size == 255 ? ((part & 0x7f) == 0 ? (double)INFINITY : (double)NAN)
                                   : ldexp(fraction, (int)size - 127);
    return part >> 15 == 0 ? x : -x;
}

/* Adds the products of the even or odd parts of a row and a column. The exact sum of a product and
 * a float has at most 53 bits here, because all exponents are close together. */
static double sum_of_chain(const uint16_t *row, const uint16_t *column, size_t ld, size_t pairs) {
    double sum = 0;
    for (size_t k = 0; k < pairs; k++) {
        const double x = number_of(row[2 * k]) * number_of(column[ld * k]) + sum;
        sum = isfinite(x) && x != 0 ? rounded_to_float(x) : x;
    }
    return sum;
}

static double flushed(float x) {
    return fabsf(x) < FLT_MIN ? 0 : (double)x;
}

/* Draws a bfloat16 whose exponent is `middle`, or up to 6 more or less, and sometimes 0. */
static uint16_t draw_part(struct rng *rng, size_t middle) {
    const size_t exponent = rng_chance(rng, 20) ? 0 : middle - 6 + rng_between(rng, 0, 12);
    return (uint16_t)(rng_between(rng, 0, 1) << 15 | exponent << 7 | rng_between(rng, 0, 127));
}

static void set_shape(uint8_t config[64], size_t t, size_t rows, size_t bytes) {
    config[48 + t] = (uint8_t)rows;
    config[16 + 2 * t] = (uint8_t)bytes;
    config[17 + 2 * t] = (uint8_t)(bytes >> 8);
}

/* Tries a product of random shape. The products have exponents around 2 `middle` - 254. */
static void try_dot(struct rng *rng, size_t middle) {
    const size_t rows = rng_between(rng, 1, 16), pairs = rng_between(rng, 1, 16),
                 columns = rng_between(rng, 1, 16), ld = rng_between(rng, 32, 40);
    uint16_t a[16 * 40], b[16 * 40];
    float c[16 * 20], was[16 * 20];
    uint8_t config[64] = {1};
    const int least = 2 * (int)middle - 254;
    for (size_t i = 0; i < 16 * 40; i++) {
        a[i] = draw_part(rng, middle);
        b[i] = draw_part(rng, middle);
    }
    for (size_t i = 0; i < 16 * 20; i++) {
        was[i] = c[i] = (float)ldexp(rng_normal(rng), least);
    }
    set_shape(config, 0, rows, 4 * columns);
    set_shape(config, 1, rows, 4 * pairs);
    set_shape(config, 2, pairs, 4 * columns);
    cr_assert(tile_model_configure(config));
    tile_model_load(0, c, 20 * sizeof *c);
    tile_model_load(1, a, ld * sizeof *a);
    tile_model_load(2, b, ld * sizeof *b);
    tile_model_dot(0, 1, 2);
    tile_model_store(0, c, 20 * sizeof *c);
    for (size_t i = 0; i < 16 * 20; i++) {
        const size_t r = i / 20, n = i % 20;
        double want = (double)was[i];
        if (r < rows && n < columns) {
            const double even = sum_of_chain(a + r * ld, b + 2 * n, ld, pairs);
            const double odd = sum_of_chain(a + r * ld + 1, b + 2 * n + 1, ld, pairs);
            const double both = rounded_to_float(even + odd);
            want = rounded_to_float(flushed(was[i]) + both);
        }
        cr_assert((double)c[i] == want || (isnan(c[i]) && isnan(want)),
                  "%zu, %zu of %zu x %zu x %zu: %a, not %a", r, n, rows, 2 * pairs, columns,
                  (double)c[i], want);
    }
}

/* The exponents go from those whose products vanish to those whose products overflow. */
Test(tiles, model_does_what_the_instruction_does, .timeout = 60) {
    struct rng rng = {23};
    for (size_t c = 0; c < 2000; c++) {
        try_dot(&rng, 50 + c % 140);
    }
    tile_model_release();
}

Test(tiles, model_refuses_what_the_instruction_refuses) {
    uint8_t good[64] = {1}, config[64];
    set_shape(good, 0, 16, 64);
    set_shape(good, 7, 1, 4);
    cr_expect(tile_model_configure(good));
    static const size_t wrong[][3] = {{0, 17, 64}, {0, 16, 65}, {0, 16, 256 + 64},
                                      {0, 0, 64},  {3, 16, 0},  {8, 1, 4}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(config, good, sizeof config);
        set_shape(config, wrong[i][0], wrong[i][1], wrong[i][2]);
        cr_expect_not(tile_model_configure(config), "shape %zu", i);
    }
    for (size_t i = 0; i < 16; i++) { /* palette, start row, reserved bytes */
        memcpy(config, good, sizeof config);
        config[i] = 2;
        cr_expect_not(tile_model_configure(config), "byte %zu", i);
    }
    tile_model_release();
}

Test(tiles, model_rounds_to_nearest_even) {
    const struct {
        float x;
        double want;
    } cases[] = {{1 + 0x1p-8f, 1},
                 {1 + 0x3p-8f, 1 + 0x1p-6},
                 {1 + 0x1.02p-8f, 1 + 0x1p-7},
                 {-(1 + 0x1.02p-8f), -(1 + 0x1p-7)},
                 {0x1.fefffep127f, 0x1.fep127},
                 {0x1.ffp127f, (double)INFINITY},
                 {-FLT_MAX, -(double)INFINITY},
                 {0x1p-126f, 0x1p-126},
                 {0x1.fffffcp-127f, 0},
                 {(float)-INFINITY, -(double)INFINITY}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(number_of(tile_model_round(cases[i].x)), cases[i].want, "%a",
                     (double)cases[i].x);
    }
    cr_expect(isnan(number_of(tile_model_round(NAN))));
}

/* ------------------------------------------------------------------------------- the kernels */

static void check_all_tiles(const char *(*check)(const struct attn_tiles *t)) {
    const struct attn_kernels *tables[ATTN_KERNELS_MAX];
    const size_t count = attn_kernels_usable(tables);
    const char *wrong = check(&tile_model);
    cr_expect_null(wrong, "model: %s", wrong);
    for (size_t i = 0; i < count; i++) {
        if (tables[i]->tiles != NULL && attn_tiles_permitted()) {
            wrong = check(tables[i]->tiles);
            cr_expect_null(wrong, "%s: %s", tables[i]->name, wrong);
        }
    }
}

#define TILE_CHECK(name)                                                                           \
    Test(tiles, name, .timeout = 300) {                                                            \
        check_all_tiles(check_tiles_##name);                                                       \
    }
TILE_CHECKS(TILE_CHECK)

/* A packed panel of 17 to 26 numbers has as many tiles as products; one of 27 has a chunk more. */
Test(tiles, tails_take_few_tiles) {
    static const size_t tiles[][2] = {{1, 1},  {5, 1},  {6, 2},  {8, 2},  {10, 2},
                                      {11, 3}, {16, 3}, {21, 4}, {26, 5}, {27, 3},
                                      {31, 3}, {32, 3}, {33, 4}, {64, 6}};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
        cr_expect_eq(attn_tiles_panel(tiles[i][0]), tiles[i][1] * ATTN_TILE_NUMBERS, "k = %zu",
                     tiles[i][0]);
    }
    cr_expect_eq(attn_tiles_parts(17, 32), 6 * ATTN_TILE_NUMBERS);
}
