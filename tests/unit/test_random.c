/*
 * test_random.c compares seeded draws with the bits that NumPy and PyTorch draw
 * (data/golden_random.json, made by gen/make_random.py): whole draws, draws in pieces, and draws
 * that are thrown away. It also tests which draws are refused.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "support/count.h"
#include "support/json.h"

TestSuite(random, .timeout = 1200);

static attn_random *seeded(attn_generator generator, uint64_t seed) {
    attn_random *random;
    cr_assert_eq(attn_random_create(&random, generator, seed, NULL), ATTN_OK);
    return random;
}

/* Draws into an allocation of the exact size, so that a sanitizer notices a write outside of it. */
static void *drawn(attn_random *random, const attn_draw *draw, attn_dtype dtype, size_t step) {
    attn_error error = {0};
    cr_assert_eq(attn_random_check(random, draw, &error), ATTN_OK, "%s", error.message);
    void *data = malloc(draw->count * attn_dtype_size(dtype));
    cr_assert_not_null(data);
    for (size_t first = 0; first < draw->count; first += step) {
        const size_t rest = draw->count - first;
        attn_random_fill(random, draw, first, rest < step ? rest : step, dtype, data);
    }
    return data;
}

/* The hash FNV-1a, by Fowler, Noll and Vo. */
static uint64_t hash(const void *data, size_t size) {
    uint64_t value = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        value = (value ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    }
    return value;
}

/* ---------------------------------------------------------------------------------- golden data */

/* Returns whether log, log1p, sin and cos of this C library, on this CPU, give the same bits as
 * those that made the golden data. libm() of make_random.py makes the same probes. */
static bool same_libm(const struct cJSON *golden) {
    enum {
        PROBES = 20000
    };
    double *values = malloc(4 * PROBES * sizeof *values);
    cr_assert_not_null(values);
    for (size_t i = 0; i < PROBES; i++) {
        const double x = ((double)i + 0.5) / PROBES;
        values[2 * i] = log(x);
        values[2 * i + 1] = log1p(-x);
        values[2 * PROBES + 2 * i] = sin(6.283185307179586 * x);
        values[2 * PROBES + 2 * i + 1] = cos(6.283185307179586 * x);
    }
    const uint64_t got = hash(values, 4 * PROBES * sizeof *values);
    free(values);
    return got == strtoull(json_text(json_get(golden, "libm")), NULL, 16);
}

struct golden_draw {
    attn_draw draw;
    uint64_t hash, first, last;
};

static struct golden_draw read_draw(const struct cJSON *array) {
    const struct cJSON *at = json_first(array);
    struct golden_draw golden = {.draw.dtype = ATTN_FLOAT64};
    double numbers[3] = {NAN, NAN, NAN};
    const char *name = json_text(at), *dtype = json_text(at = json_next(at));
    golden.draw.distribution = name[0] == 'r'   ? ATTN_RANDINT
                               : name[0] == 'u' ? ATTN_UNIFORM
                                                : ATTN_NORMAL;
    if (strcmp(dtype, "float32") == 0 && golden.draw.distribution != ATTN_RANDINT) {
        golden.draw.dtype = ATTN_FLOAT32;
    }
    for (size_t i = 0; i < 3; i++) {
        cr_assert(json_number(at = json_next(at), &numbers[i]));
    }
    golden.draw.a = numbers[0];
    golden.draw.b = numbers[1];
    golden.draw.count = (size_t)numbers[2];
    golden.hash = strtoull(json_text(at = json_next(at)), NULL, 16);
    golden.first = strtoull(json_text(at = json_next(at)), NULL, 16);
    golden.last = strtoull(json_text(json_next(at)), NULL, 16);
    return golden;
}

static uint64_t bits_at(const void *data, size_t index, attn_dtype dtype) {
    uint64_t wide = 0;
    uint32_t narrow = 0;
    if (dtype == ATTN_FLOAT64) {
        memcpy(&wide, (const char *)data + 8 * index, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)data + 4 * index, sizeof narrow);
    return narrow;
}

/* With another C library the last bits of logarithm, sine and cosine differ, and so do the last
 * bits of a normal. Returns whether the difference is as small as that. */
static bool near_enough(uint64_t got, uint64_t want, double mean) {
    double x, y;
    memcpy(&x, &got, sizeof x);
    memcpy(&y, &want, sizeof y);
    return fabs(x - y) <= 4 * DBL_EPSILON * (fabs(y) + fabs(mean));
}

static void expect_draw(const struct golden_draw *golden, const void *data, bool exact,
                        const char *where) {
    const attn_draw *draw = &golden->draw;
    const uint64_t first = bits_at(data, 0, draw->dtype);
    const uint64_t last = bits_at(data, draw->count - 1, draw->dtype);
    if (!exact && draw->distribution == ATTN_NORMAL && draw->dtype == ATTN_FLOAT64) {
        cr_expect(near_enough(first, golden->first, draw->a), "%s: the first number", where);
        cr_expect(near_enough(last, golden->last, draw->a), "%s: the last number", where);
        return;
    }
    cr_expect_eq(first, golden->first, "%s begins with %" PRIx64 ", not %" PRIx64, where, first,
                 golden->first);
    cr_expect_eq(last, golden->last, "%s ends with %" PRIx64 ", not %" PRIx64, where, last,
                 golden->last);
    cr_expect_eq(hash(data, draw->count * attn_dtype_size(draw->dtype)), golden->hash,
                 "%s differs between its first and last number", where);
}

/* Makes the draws of a case in pieces of `step` numbers. Every `kept`-th draw is compared, and the
 * others are thrown away. */
static void play(const struct cJSON *test, bool exact, size_t step, size_t kept) {
    const char *generator = json_text(json_get(test, "generator"));
    const char *seed = json_text(json_get(test, "seed"));
    attn_random *random =
        seeded(strcmp(generator, "numpy") == 0 ? ATTN_NUMPY : ATTN_TORCH, strtoull(seed, NULL, 10));
    const struct cJSON *array = json_first(json_get(test, "draws"));
    for (size_t i = 1; array != NULL; array = json_next(array), i++) {
        const struct golden_draw golden = read_draw(array);
        if (i % kept != 0) {
            attn_random_fill(random, &golden.draw, 0, golden.draw.count, ATTN_FLOAT32, NULL);
            continue;
        }
        char where[160];
        snprintf(where, sizeof where, "%s, seed %s, draw %zu: %zu of kind %d, %g, %g, %s",
                 generator, seed, i, golden.draw.count, (int)golden.draw.distribution,
                 golden.draw.a, golden.draw.b,
                 golden.draw.dtype == ATTN_FLOAT32 ? "float32" : "float64");
        void *data = drawn(random, &golden.draw, golden.draw.dtype, step);
        expect_draw(&golden, data, exact, where);
        free(data);
    }
    attn_random_free(random);
}

static void play_all(size_t step, size_t kept) {
    size_t size;
    char *text = json_read_file(TESTS_DIR "/data/golden_random.json", &size);
    cr_assert_not_null(text);
    struct cJSON *golden = json_parse(text, size);
    free(text);
    cr_assert_gt(json_size(json_get(golden, "cases")), 0);
    const bool exact = same_libm(golden);
    const struct cJSON *test = json_first(json_get(golden, "cases"));
    for (; test != NULL; test = json_next(test)) {
        play(test, exact, step, kept);
    }
    json_free(golden);
}

Test(random, draws_the_bits_of_numpy_and_torch) {
    play_all(SIZE_MAX / 2, 1);
}

Test(random, pieces_give_what_the_whole_gives) {
    play_all(ATTN_DRAW_PIECE, 1);
    play_all((size_t)2 * ATTN_DRAW_PIECE, 1);
}

Test(random, a_draw_thrown_away_leaves_the_next_as_it_is) {
    play_all(ATTN_DRAW_PIECE, 2);
    play_all(ATTN_DRAW_PIECE, 7);
}

/* ---------------------------------------------------------------------------------- properties */

Test(random, numbers_are_rounded_to_the_wanted_type) {
    enum {
        COUNT = 1000
    };
    for (int generator = ATTN_NUMPY; generator <= ATTN_TORCH; generator++) {
        for (int distribution = ATTN_RANDINT; distribution <= ATTN_NORMAL; distribution++) {
            const attn_draw draw = {(attn_distribution)distribution, ATTN_FLOAT64, -3e9, 7e9,
                                    COUNT};
            attn_random *one = seeded((attn_generator)generator, 5);
            attn_random *other = seeded((attn_generator)generator, 5);
            double *wide = drawn(one, &draw, ATTN_FLOAT64, COUNT);
            float *narrow = drawn(other, &draw, ATTN_FLOAT32, COUNT);
            for (size_t i = 0; i < COUNT; i++) {
                cr_assert(narrow[i] == (float)wide[i]);
            }
            free(wide);
            free(narrow);
            attn_random_free(one);
            attn_random_free(other);
        }
    }
}

Test(random, float32_draws_are_float32_numbers_wherever_they_go) {
    for (size_t count = 1; count < 40; count += 6) {
        for (int distribution = ATTN_UNIFORM; distribution <= ATTN_NORMAL; distribution++) {
            const attn_draw draw = {(attn_distribution)distribution, ATTN_FLOAT32, 0, 1, count};
            attn_random *random[] = {seeded(ATTN_TORCH, 1), seeded(ATTN_TORCH, 1)};
            float narrow[40];
            double wide[40];
            attn_random_fill(random[0], &draw, 0, count, ATTN_FLOAT32, narrow);
            attn_random_fill(random[1], &draw, 0, count, ATTN_FLOAT64, wide);
            for (size_t i = 0; i < count; i++) {
                cr_expect_eq((double)narrow[i], wide[i], "%zu of %zu", i, count);
            }
            attn_random_free(random[0]);
            attn_random_free(random[1]);
        }
    }
}

/* Expects the same next draws of two generators, and frees them. */
static void expect_same_next(attn_random *random, attn_random *other, const attn_draw *draw) {
    float *x = drawn(random, draw, ATTN_FLOAT32, 20), *y = drawn(other, draw, ATTN_FLOAT32, 20);
    cr_expect_arr_eq(x, y, draw->count * sizeof *x);
    free(x);
    free(y);
    attn_random_free(random);
    attn_random_free(other);
}

Test(random, nothing_drawn_is_nothing_changed) {
    attn_random *random = seeded(ATTN_TORCH, 1);
    const attn_draw some = {ATTN_NORMAL, ATTN_FLOAT32, 0, 1, 20};
    attn_draw none = some;
    none.count = 0;
    attn_random_fill(random, &none, 0, 0, ATTN_FLOAT32, NULL);
    attn_random_fill(random, &some, 0, 0, ATTN_FLOAT32, NULL);
    expect_same_next(random, seeded(ATTN_TORCH, 1), &some);
}

/* Expects numbers from low to high; high is excluded where NumPy and PyTorch exclude it. */
static void expect_within(attn_generator generator, attn_distribution distribution,
                          attn_dtype dtype, double low, double high) {
    enum {
        COUNT = 20000
    };
    const attn_draw draw = {distribution, dtype, low, high, COUNT};
    attn_random *random = seeded(generator, 3);
    double *values = drawn(random, &draw, ATTN_FLOAT64, COUNT);
    const bool narrow = generator == ATTN_TORCH && dtype == ATTN_FLOAT32;
    const double first = narrow ? (double)(float)low : low,
                 end = narrow ? (double)(float)high : high;
    const bool open = distribution == ATTN_RANDINT || (generator == ATTN_TORCH && end > first);
    for (size_t i = 0; i < COUNT; i++) {
        cr_assert(values[i] >= first && (open ? values[i] < end : values[i] <= end),
                  "%.17g is not from %.17g to %.17g", values[i], first, end);
    }
    free(values);
    attn_random_free(random);
}

Test(random, numbers_stay_within_their_ends) {
    static const double ends[][2] = {
        {0, 1},   {-1, 0},         {0, 3},          {-5, 5},        {1e9, 2e9},
        {-3, -2}, {0, 4294967296}, {0, 4294967297}, {0, 268435456}, {16777216, 16777218}};
    for (size_t i = 0; i < COUNT(ends); i++) {
        for (int generator = ATTN_NUMPY; generator <= ATTN_TORCH; generator++) {
            const attn_generator g = (attn_generator)generator;
            expect_within(g, ATTN_RANDINT, ATTN_FLOAT64, ends[i][0], ends[i][1]);
            expect_within(g, ATTN_UNIFORM, ATTN_FLOAT64, ends[i][0], ends[i][1]);
        }
        expect_within(ATTN_TORCH, ATTN_UNIFORM, ATTN_FLOAT32, ends[i][0], ends[i][1]);
    }
}

Test(random, only_the_low_half_of_a_torch_seed_counts) {
    const attn_draw draw = {ATTN_UNIFORM, ATTN_FLOAT32, 0, 1, 10};
    expect_same_next(seeded(ATTN_TORCH, UINT64_MAX), seeded(ATTN_TORCH, UINT32_MAX), &draw);
}

/* -------------------------------------------------------------------------------------- errors */

/* Each message begins with its argument. */
static void expect_message(const attn_error *error, const char *message) {
    cr_expect_str_eq(error->message, message);
    cr_expect_eq(strcspn(message, " "), strlen(error->argument), "%s", error->argument);
    cr_expect_eq(memcmp(message, error->argument, strlen(error->argument)), 0);
}

Test(random, refuses_generators_and_seeds) {
    attn_random *random = (attn_random *)&random;
    attn_error error = {0};
    cr_expect_eq(attn_random_create(&random, (attn_generator)2, 0, &error), ATTN_INVALID_ARGUMENT);
    cr_expect_null(random);
    expect_message(&error, "generator must be numpy or torch: 0 or 1, not 2");
    random = (attn_random *)&random;
    cr_expect_eq(attn_random_create(&random, ATTN_NUMPY, UINT64_C(1) << 32, &error),
                 ATTN_INVALID_ARGUMENT);
    cr_expect_null(random);
    expect_message(&error, "seed must be at most 2^32 - 1 with numpy, not 4294967296");
    attn_random_free(NULL);
}

#define BAD_DRAW(distribution_, dtype_, a_, b_, message_)                                          \
    { {distribution_, dtype_, a_, b_, 1}, message_ }
#define BAD(distribution_, dtype_, a_, b_, message_)                                               \
    BAD_DRAW(ATTN_##distribution_, ATTN_##dtype_, a_, b_, message_)

Test(random, refuses_what_cannot_be_drawn) {
    static const struct {
        attn_draw draw;
        const char *message;
    } cases[] = {
        BAD_DRAW((attn_distribution)3, ATTN_FLOAT64, 0, 1,
                 "distribution must be randint, uniform or normal: 0 to 2, not 3"),
        BAD(NORMAL, INT64, 0, 1, "dtype must be float32 or float64"),
        BAD(UNIFORM, BOOL, 0, 1, "dtype must be float32 or float64"),
        BAD(RANDINT, FLOAT64, 0.5, 9, "low must be a whole number within -2^53 .. 2^53, not 0.5"),
        BAD(RANDINT, FLOAT64, 0, 0x1p53 + 2,
            "high must be a whole number within -2^53 .. 2^53, not 9007199254740994"),
        BAD(RANDINT, FLOAT64, -INFINITY, 9,
            "low must be a whole number within -2^53 .. 2^53, not -inf"),
        BAD(RANDINT, FLOAT64, 7, 7, "high must be greater than low: low is 7, high is 7"),
        BAD(UNIFORM, FLOAT64, 1.5, 0, "high must not be less than low: low is 1.5, high is 0"),
        BAD(UNIFORM, FLOAT32, 0, 2e37, "high must be within -1e37 .. 1e37, not 2e+37"),
        BAD(UNIFORM, FLOAT64, -2e37, 0, "low must be within -1e37 .. 1e37, not -2e+37"),
        BAD(NORMAL, FLOAT64, INFINITY, 1, "mean must be within -1e37 .. 1e37, not inf"),
        BAD(NORMAL, FLOAT64, 0, 1e300, "std must be within -1e37 .. 1e37, not 1e+300"),
        BAD(NORMAL, FLOAT64, 0, -0.25, "std must not be negative, but it is -0.25"),
    };
    attn_random *random = seeded(ATTN_TORCH, 0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        attn_error error = {0};
        cr_expect_eq(attn_random_check(random, &cases[i].draw, &error), ATTN_INVALID_ARGUMENT);
        expect_message(&error, cases[i].message);
        cr_expect_eq(attn_random_check(random, &cases[i].draw, NULL), ATTN_INVALID_ARGUMENT);
    }
    attn_random_free(random);

    random = seeded(ATTN_NUMPY, 0);
    attn_error error = {0};
    attn_draw draw = {ATTN_UNIFORM, ATTN_FLOAT32, 0, 1, 1};
    cr_expect_eq(attn_random_check(random, &draw, &error), ATTN_INVALID_ARGUMENT);
    expect_message(&error, "dtype must be float64, because NumPy's RandomState draws nothing else");
    draw.distribution = ATTN_RANDINT; /* the dtype does not matter for integers */
    draw.dtype = ATTN_BOOL;
    cr_expect_eq(attn_random_check(random, &draw, NULL), ATTN_OK);
    draw = (attn_draw){ATTN_NORMAL, ATTN_FLOAT64, 0, (double)NAN, 1};
    cr_expect_eq(attn_random_check(random, &draw, &error), ATTN_INVALID_ARGUMENT);
    cr_expect_str_eq(error.argument, "std");
    attn_random_free(random);
}
