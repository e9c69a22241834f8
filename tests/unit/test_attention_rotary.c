/*
 * test_attention_rotary.c - tests norms and rotary embedding: their errors, and laws that hold
 * whatever the numbers are. test_attention_random.c compares random calls with the formulas, but
 * without scaling.
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

static const double zeros[NUMBERS];

#define OF_DTYPE(dtype_, rank_, ...)                                                               \
    (&(const attn_tensor){.data = zeros, .dtype = dtype_, .rank = rank_, .shape = {__VA_ARGS__}})
#define ZEROS(rank_, ...) OF_DTYPE(ATTN_FLOAT64, rank_, __VA_ARGS__)
#define ROTARY(...)                                                                                \
    {                                                                                              \
        .rotary = &(const attn_rotary) {                                                           \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define LISTS(short_, short_count_, long_, long_count_)                                            \
    .scaling = ATTN_ROTARY_LONGROPE, .original_positions = 8, .short_factors = short_,             \
    .short_count = short_count_, .long_factors = long_, .long_count = long_count_

static const double ones[2] = {1, 1}, fours[2] = {4, 4}, holed[2] = {1, 0}, unknown[2] = {NAN, 1};

/* --------------------------------------------------------------------------------------- errors */

struct bad_rotation {
    size_t n, m, d;
    attn_options options;
    attn_status status;
    const char *argument, *contains;
};

/* BAD_CALL is a call of n queries, m keys and d columns with its error. BAD is one of three rows of
 * four columns. BAD_ROTARY is such a call whose wrong argument is "rotary". */
#define BAD_CALL(n_, m_, d_, status_, argument_, contains_, ...)                                   \
    { n_, m_, d_, __VA_ARGS__, ATTN_##status_, argument_, contains_ }
#define BAD(status_, argument_, contains_, ...)                                                    \
    BAD_CALL(ROWS, ROWS, COLUMNS, status_, argument_, contains_, __VA_ARGS__)
#define BAD_ROTARY(contains_, ...) BAD(INVALID_ARGUMENT, "rotary", contains_, ROTARY(__VA_ARGS__))

static const struct bad_rotation bad_rotations[] = {
    BAD(SHAPE_MISMATCH, "norm_Q", "(4), not (3)", {.norm_q = ZEROS(1, 3)}),
    BAD(SHAPE_MISMATCH, "norm_K", "rank", {.norm_k = ZEROS(2, 1, 4)}),
    BAD(INVALID_ARGUMENT, "norm_Q", "float64", {.norm_q = OF_DTYPE(ATTN_FLOAT32, 1, 4)}),
    BAD(INVALID_ARGUMENT, "norm_epsilon", "is -1", {.norm_epsilon = -1}),
    BAD(INVALID_ARGUMENT, "norm_epsilon", "is nan", {.norm_epsilon = NAN}),
    BAD(INVALID_ARGUMENT, "norm_epsilon", "is inf", {.norm_epsilon = INFINITY}),
    BAD_CALL(1, 1, 65538, TOO_LARGE, "norm_K", "65538 columns", {.norm_k = ZEROS(1, 65538)}),

    BAD_CALL(3, 3, 3, INVALID_ARGUMENT, "rotary", "3 columns", ROTARY(0)),
    BAD_CALL(1, 1, 65538, TOO_LARGE, "rotary", "65538 columns", ROTARY(0)),
    BAD_ROTARY("3 columns", .columns = 3),
    BAD_ROTARY("at most 4", .columns = SIZE_MAX - 1),
    BAD_CALL(3, 3, 3, INVALID_ARGUMENT, "rotary", "turns 4 columns", ROTARY(.columns = 4)),
    BAD_ROTARY("offset of rotary is -1", .offset = -1),
    BAD_ROTARY("9223372036854775807", .offset = INT64_MAX),
    BAD_ROTARY("base of rotary is -1", .base = -1),
    BAD_ROTARY("base of rotary is nan", .base = NAN),
    BAD_ROTARY("base of rotary is inf", .base = INFINITY),
    BAD_ROTARY("scaling of rotary is 6", .scaling = 6),
    BAD_ROTARY("attention_factor of rotary is -1", .attention_factor = -1),
    BAD_ROTARY("attention_factor of rotary is nan", .attention_factor = NAN),
    BAD_ROTARY("factor of rotary is inf", .scaling = ATTN_ROTARY_LINEAR, .factor = INFINITY),
    BAD_ROTARY("original_positions of rotary is nan", .scaling = ATTN_ROTARY_DYNAMIC, .factor = 2,
               .original_positions = NAN),
    BAD_ROTARY("beta_slow of rotary is -1", .scaling = ATTN_ROTARY_YARN, .factor = 2,
               .original_positions = 8, .beta_slow = -1),
    BAD_ROTARY("mscale_all_dim of rotary is nan", .scaling = ATTN_ROTARY_YARN, .factor = 2,
               .original_positions = 8, .mscale_all = NAN),
    BAD_ROTARY("high_freq_factor of rotary is 1", .scaling = ATTN_ROTARY_LLAMA3, .factor = 2,
               .original_positions = 8, .low_factor = 1, .high_factor = 1),
    BAD_ROTARY("long_factor[1] of rotary is 0", LISTS(ones, 2, holed, 2)),
    BAD_ROTARY("short_factor[0] of rotary is nan", LISTS(unknown, 2, ones, 2)),
    BAD(SHAPE_MISMATCH, "rotary", "short_factor of rotary", ROTARY(LISTS(NULL, 2, ones, 2))),
    BAD(SHAPE_MISMATCH, "rotary", "long_factor of rotary", ROTARY(LISTS(ones, 2, ones, 1))),

    BAD(SHAPE_MISMATCH, "positions", "2 numbers", ROTARY(.positions = ZEROS(1, 2))),
    BAD(SHAPE_MISMATCH, "positions", "(2, 3), but the call has no batch axis",
        ROTARY(.positions = ZEROS(2, 2, 3))),
    BAD_CALL(2, 3, 4, SHAPE_MISMATCH, "positions", "3 new keys", ROTARY(.positions = ZEROS(1, 2))),
    BAD(INVALID_ARGUMENT, "positions", "float64", ROTARY(.positions = OF_DTYPE(ATTN_INT64, 1, 3))),
    BAD(INVALID_ARGUMENT, "rotary_sin", "given together", ROTARY(.cos = ZEROS(2, 3, 2))),
    BAD(INVALID_ARGUMENT, "rotary_cos", "given together", ROTARY(.sin = ZEROS(2, 3, 2))),
    BAD(INVALID_ARGUMENT, "rotary_sin", "float64",
        ROTARY(.cos = ZEROS(2, 3, 2), .sin = OF_DTYPE(ATTN_FLOAT32, 2, 3, 2))),
    BAD(SHAPE_MISMATCH, "rotary_sin", "(3, 2), not (1, 3, 2)",
        ROTARY(.cos = ZEROS(2, 3, 2), .sin = ZEROS(3, 1, 3, 2))),
    BAD(SHAPE_MISMATCH, "rotary_cos", "2 columns",
        ROTARY(.cos = ZEROS(2, 3, 2), .sin = ZEROS(2, 3, 2), .columns = 2)),
    BAD(SHAPE_MISMATCH, "rotary_cos", "positions 1 to 3",
        ROTARY(.cos = ZEROS(2, 3, 2), .sin = ZEROS(2, 3, 2), .offset = 1)),
    BAD_CALL(3, 2, 4, SHAPE_MISMATCH, "rotary_cos", "positions 0 to 2",
             ROTARY(.cos = ZEROS(2, 2, 2), .sin = ZEROS(2, 2, 2))),
    /* If there are two keys, the bottom right rule puts the first of three queries at -1. */
    BAD_CALL(3, 2, 4, SHAPE_MISMATCH, "rotary_cos", "positions -1 to 1",
             {.causal = true,
              .flags = ATTN_FLAG_BOTTOM_RIGHT,
              .rotary = &(const attn_rotary){.cos = ZEROS(2, 3, 2), .sin = ZEROS(2, 3, 2)}}),
};

Test(rotary, errors_name_the_rule_and_the_value) {
    for (size_t i = 0; i < sizeof bad_rotations / sizeof *bad_rotations; i++) {
        const struct bad_rotation *bad = &bad_rotations[i];
        attn_error error = {0};
        attn_plan *plan;
        const attn_status status =
            attn_plan_attention(&plan, ZEROS(2, bad->n, bad->d), ZEROS(2, bad->m, bad->d),
                                ZEROS(2, bad->m, 1), &bad->options, &error);
        expect_verdict(i, &(struct verdict){bad->status, bad->argument, bad->contains}, status,
                       plan, &error);
    }
}

/* Positions and tables may differ between batch items only if these have keys of their own. */
Test(rotary, batch_items_that_share_keys_share_positions) {
    const attn_tensor *q = ZEROS(4, 2, 1, 3, 2), *own = q, *shared = ZEROS(2, 3, 2);
    const attn_tensor *positions = ZEROS(2, 2, 3), *table = ZEROS(3, 2, 3, 1);
    const attn_rotary rotary[] = {{.positions = positions}, {.cos = table, .sin = table}};
    static const char *const arguments[] = {"positions", "rotary_cos"};
    for (size_t i = 0; i < 2; i++) {
        const attn_options o = {.rotary = &rotary[i]};
        attn_error error = {0};
        attn_plan *plan;
        cr_expect_eq(attn_plan_attention(&plan, q, own, own, &o, &error), ATTN_OK, "%s",
                     error.message);
        attn_plan_free(plan);
        cr_expect_eq(attn_plan_attention(&plan, q, shared, shared, &o, &error),
                     ATTN_SHAPE_MISMATCH);
        cr_expect_str_eq(error.argument, arguments[i]);
        cr_expect_not_null(strstr(error.message, "all batch items share one K"), "%s",
                           error.message);
    }
}

Test(rotary, of_heads_of_different_sizes_are_refused) {
    const attn_tensor *x = ZEROS(2, 2, 1), *two = ZEROS(2, 1, 2), *four = ZEROS(2, 1, 4);
    const attn_projection heads[] = {{.w_q = two, .w_k = two, .w_v = two},
                                     {.w_q = four, .w_k = four, .w_v = two}};
    const attn_multihead call = {.x = x, .projections = heads, .count = 2, .per_head = true};
    const attn_options turned = ROTARY(0), normalised = {.norm_q = ZEROS(1, 2)};
    attn_error error = {0};
    attn_plan *plan;
    cr_expect_eq(attn_plan_multihead(&plan, &call, &turned, &error), ATTN_SHAPE_MISMATCH);
    cr_expect_str_eq(error.argument, "rotary");
    cr_expect_not_null(strstr(error.message, "head 0 has 2 columns and head 1 has 4"), "%s",
                       error.message);
    cr_expect_eq(attn_plan_multihead(&plan, &call, &normalised, &error), ATTN_SHAPE_MISMATCH);
    cr_expect_str_eq(error.argument, "norm_Q");
}

/* The numbers of positions are read when the plan runs. */
Test(rotary, positions_without_a_row_of_the_table_are_refused) {
    static const double bad[] = {-1, 0.5, 3, NAN, INFINITY};
    static const char *const said[] = {"has -1,", "has 0.5,", "has 3,", "nan,", "has inf,"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const double numbers[ROWS] = {0, bad[i], 2};
        const attn_tensor positions = {
            .data = numbers, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {ROWS}};
        const attn_options o =
            ROTARY(.positions = &positions, .cos = ZEROS(2, 3, 2), .sin = ZEROS(2, 3, 2));
        const attn_tensor *x = ZEROS(2, ROWS, COLUMNS);
        double output[NUMBERS];
        attn_error error = {0};
        cr_expect_eq(plan_and_run(x, x, x, &o, (void *[ATTN_RESULT_COUNT]){output}, &error),
                     ATTN_INVALID_ARGUMENT);
        cr_expect_str_eq(error.argument, "positions");
        cr_expect_not_null(strstr(error.message, said[i]), "%s", error.message);
        cr_expect_not_null(strstr(error.message, "positions 0 to 2"), "%s", error.message);
    }
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
    const attn_tensor rows = {
        .data = x, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {ROWS, COLUMNS}};
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
    const attn_tensor norm = {
        .data = weights, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {COLUMNS}};
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

Test(rotary, an_epsilon_is_added_to_the_mean_square) {
    const attn_tensor norm = {.data = fours, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {2}};
    const attn_tensor k = MATRIX(1, 2, 1, -1);
    double keys[2];
    const attn_options o = {.norm_k = &norm, .norm_epsilon = 3, .results = ATTN_WANT(PRESENT_K)};
    void *data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_PRESENT_K] = keys};
    cr_assert_eq(plan_and_run(&k, &k, &k, &o, data, NULL), ATTN_OK);
    cr_expect(keys[0] == 2 && keys[1] == -2, "4 / sqrt(1 + 3) is 2, not %g", keys[0]);
}

Test(rotary, a_norm_that_overflows_names_the_row) {
    static const double weights[COLUMNS] = {1, 1, 1.7e308, 1}, x[NUMBERS] = {[6] = 4};
    const attn_tensor norm = {
        .data = weights, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {COLUMNS}};
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
    const attn_tensor norm = {
        .data = weights, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {COLUMNS}};
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
