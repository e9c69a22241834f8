/*
 * test_attention_rotary.c - tests norms and rotary embedding by laws that hold whatever the numbers
 * are. test_attention_random.c compares random calls with the formulas, and of all scalings the
 * proportional one.
 */
#include <math.h>
#include <string.h>

#include "support/rng.h"
#include "test_by_hand.h"

enum {
    ROWS = 3,
    COLUMNS = 4,
    NUMBERS = ROWS * COLUMNS
};

#define ROTARY(...)                                                                                \
    {                                                                                              \
        .rotary = &(const attn_rotary) {                                                           \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* ---------------------------------------------------------------------------------------- norms */

struct turned {
    double keys[NUMBERS], scores[ROWS * ROWS], output[NUMBERS];
};

static void draw_numbers(double *x, size_t count, uint64_t seed) {
    struct rng rng = {seed};
    for (size_t i = 0; i < count; i++) {
        x[i] = rng_normal(&rng);
    }
}

/* Runs a call of which Q, K and V are the rows x. Its keys after norm and rotary are present_K. */
static attn_status try_rows(const double x[NUMBERS], const attn_options *options,
                            struct turned *turned, attn_error *error) {
    const attn_tensor rows = {x, ATTN_FLOAT64, 2, {ROWS, COLUMNS}};
    attn_options o = *options;
    o.results = ATTN_WANT(OUTPUT) | ATTN_WANT(SCORES) | ATTN_WANT(PRESENT_K);
    return plan_and_run(&rows, &rows, &rows, &o,
                        (void *[ATTN_RESULT_COUNT]){[ATTN_RESULT_OUTPUT] = turned->output,
                                                    [ATTN_RESULT_SCORES] = turned->scores,
                                                    [ATTN_RESULT_PRESENT_K] = turned->keys},
                        error);
}

static struct turned turn_rows(const double x[NUMBERS], const attn_options *options) {
    struct turned turned;
    attn_error error = {0};
    cr_assert_eq(try_rows(x, options, &turned, &error), ATTN_OK, "%s", error.message);
    return turned;
}

static void expect_near(const double *is, const double *want, size_t count, double tolerance) {
    for (size_t i = 0; i < count; i++) {
        cr_expect(is[i] == want[i] || fabs(is[i] - want[i]) <= tolerance,
                  "number %zu: %.17g, %.17g", i, is[i], want[i]);
    }
}

/* Numbers whose squares overflow, and a row of zeros, are no exceptions. */
Test(rotary, a_norm_forgets_the_length_of_a_row) {
    static const double weights[COLUMNS] = {1, -2, 0.5, 3};
    const attn_tensor norm = {weights, ATTN_FLOAT64, 1, {COLUMNS}};
    const attn_options o = {.norm_q = &norm, .norm_k = &norm, .norm_epsilon = 1e-300};
    double x[NUMBERS], longer[NUMBERS];
    draw_numbers(x, NUMBERS, 1);
    memset(x, 0, COLUMNS * sizeof *x);
    const struct turned want = turn_rows(x, &o);
    expect_near(want.keys, x, COLUMNS, 0);
    for (int power = -20; power <= 1000; power += 510) {
        for (size_t i = 0; i < NUMBERS; i++) {
            longer[i] = ldexp(x[i], power);
        }
        const struct turned is = turn_rows(longer, &o);
        expect_near(is.keys, want.keys, NUMBERS, power < 500 ? 0 : 1e-14);
        expect_near(is.scores, want.scores, ROWS * ROWS, power < 500 ? 0 : 1e-13);
    }
}

Test(rotary, a_norm_that_overflows_names_the_row) {
    static const double weights[COLUMNS] = {1, 1, 1.7e308, 1}, x[NUMBERS] = {[6] = 4};
    const attn_tensor norm = {weights, ATTN_FLOAT64, 1, {COLUMNS}};
    const attn_options o = {.norm_k = &norm, .norm_epsilon = 1};
    struct turned turned;
    attn_error error = {0};
    cr_expect_eq(try_rows(x, &o, &turned, &error), ATTN_NOT_FINITE);
    cr_expect_str_eq(error.argument, "K");
    cr_expect_not_null(strstr(error.message, "row 1, column 2"), "%s", error.message);
}

/* --------------------------------------------------------------------------------------- rotary */

/* Turns rows of which row i is at positions[i]. */
static struct turned turn_at(const double x[NUMBERS], const double positions[ROWS],
                             attn_rotary rotary) {
    const attn_tensor at = {.data = positions, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {ROWS}};
    rotary.positions = &at;
    return turn_rows(x, &(attn_options){.rotary = &rotary});
}

/* The angle of a position is rounded: it is wrong by at most angle 2^-53, and the angle is at most
 * the position. A score has two such angles in each of two calls. */
Test(rotary, only_the_distance_of_positions_matters) {
    double x[NUMBERS];
    draw_numbers(x, NUMBERS, 4);
    const struct turned plain = turn_rows(x, &(attn_options){0});
    const struct turned want = turn_rows(x, &(attn_options)ROTARY(0));
    cr_expect_gt(fabs(want.scores[1] - plain.scores[1]), 0.01, "the rows must turn");
    for (int64_t shift = 1; shift <= (1 << 30); shift *= 1024) {
        const attn_options moved = ROTARY(.offset = shift);
        const struct turned is = turn_rows(x, &moved);
        for (size_t i = 0; i < ROWS * ROWS; i++) {
            double q = 0, k = 0;
            for (size_t e = 0; e < COLUMNS; e++) {
                q += x[i / ROWS * COLUMNS + e] * x[i / ROWS * COLUMNS + e];
                k += x[i % ROWS * COLUMNS + e] * x[i % ROWS * COLUMNS + e];
            }
            const double bound = (4 * ((double)shift + ROWS) + 32) * 0x1p-53 * sqrt(q * k);
            cr_expect_float_eq(is.scores[i], want.scores[i], bound, "shift %lld", (long long)shift);
        }
        const double at[ROWS] = {(double)shift, (double)(shift + 1), (double)(shift + 2)};
        const struct turned given = turn_at(x, at, (attn_rotary){0});
        cr_expect_arr_eq(given.keys, is.keys, sizeof is.keys);
        cr_expect_arr_eq(given.scores, is.scores, sizeof is.scores);
        cr_expect_arr_eq(given.output, is.output, sizeof is.output);
    }
}

/* A key that no query may attend to may hold any bytes, also if it is turned. */
Test(rotary, a_forbidden_key_may_be_nan) {
    static const unsigned char allowed[ROWS] = {1, 0, 1};
    static const double weights[COLUMNS] = {1, 1, 1, 1};
    const attn_tensor mask = {.data = allowed, .dtype = ATTN_BOOL, .rank = 2, .shape = {1, ROWS}};
    const attn_tensor norm = {weights, ATTN_FLOAT64, 1, {COLUMNS}};
    const attn_rotary rotary = {0};
    const attn_options o = {.mask = &mask, .norm_k = &norm, .rotary = &rotary};
    double x[NUMBERS], k[NUMBERS], out[2][NUMBERS];
    draw_numbers(x, NUMBERS, 6);
    memcpy(k, x, sizeof k);
    const attn_tensor q = {.data = x, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {ROWS, COLUMNS}};
    attn_tensor keys = q;
    keys.data = k;
    for (size_t i = 0; i < 2; i++) {
        attn_error error = {0};
        cr_assert_eq(plan_and_run(&q, &keys, &q, &o, (void *[ATTN_RESULT_COUNT]){out[i]}, &error),
                     ATTN_OK, "%s", error.message);
        k[COLUMNS] = NAN;
        k[COLUMNS + 3] = INFINITY;
    }
    cr_expect_arr_eq(out[0], out[1], sizeof out[0]);
}

Test(rotary, an_attention_factor_multiplies_turned_numbers) {
    static const double places[ROWS] = {0, 5, 13};
    double x[NUMBERS];
    draw_numbers(x, NUMBERS, 10);
    struct turned want = turn_at(x, places, (attn_rotary){.columns = 2});
    const struct turned is = turn_at(x, places, (attn_rotary){.columns = 2, .attention_factor = 2});
    for (size_t i = 0; i < NUMBERS; i++) {
        want.keys[i] *= i % COLUMNS < 2 ? 2 : 1;
    }
    cr_expect_arr_eq(is.keys, want.keys, sizeof want.keys);
}
