/*
 * test_attention_extra_keys.c - tests the extra keys of multi-head attention. Their errors name the
 * rule, and they are rows of K and V which every query may attend to. test_attention_random.c
 * compares random calls with the formulas.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/rng.h"
#include "test_by_hand.h"

enum {
    HEADS = 2,
    QUERIES = 2,
    KEYS = 3,
    EXTRA = 2, /* bias_k and the key of zeros */
    ALL = KEYS + EXTRA,
    COLUMNS = 4 /* of all heads */
};

/* The projections are the identity. So Q is X, and K and V are the contexts. */
static const attn_tensor identity4 = {
    .data = (const double[]){1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
    .dtype = ATTN_FLOAT64,
    .rank = 2,
    .shape = {COLUMNS, COLUMNS}};
static const attn_projection projection = {.w_q = &identity4, .w_k = &identity4, .w_v = &identity4};

static attn_tensor tensor(const void *data, attn_dtype dtype, size_t rows, size_t columns) {
    return (attn_tensor){.data = data, .dtype = dtype, .rank = 2, .shape = {rows, columns}};
}

/* A row of COLUMNS numbers. */
static attn_tensor row_of(const double *data) {
    return (attn_tensor){.data = data, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {COLUMNS}};
}

/* --------------------------------------------------------------------------------------- errors */

#define NUMBERS_OF(dtype_, rank_, ...)                                                             \
    (&(const attn_tensor){.data = (const double[COLUMNS]){0},                                      \
                          .dtype = dtype_,                                                         \
                          .rank = rank_,                                                           \
                          .shape = {__VA_ARGS__}})
#define NUMBERS(rank_, ...) NUMBERS_OF(ATTN_FLOAT64, rank_, __VA_ARGS__)

struct bad_extra {
    const attn_tensor *bias_k, *bias_v;
    bool zero_key, per_head;
    attn_options options;
    attn_status status;
    const char *argument, *contains;
};

/* The projections make four columns, which are split into two heads unless per_head is true. */
#define BAD(status_, argument_, contains_, bias_k_, bias_v_, ...)                                  \
    { bias_k_, bias_v_, __VA_ARGS__, ATTN_##status_, argument_, contains_ }
#define HAS_TWO_HEADS                                                                              \
    false, false, {                                                                                \
        .heads = HEADS                                                                             \
    }

static const size_t two_keys[] = {2};

static const struct bad_extra bad_extras[] = {
    BAD(INVALID_ARGUMENT, "bias_V", "given together", NULL, NUMBERS(1, 4), HAS_TWO_HEADS),
    BAD(INVALID_ARGUMENT, "bias_K", "given together", NUMBERS(1, 4), NULL, HAS_TWO_HEADS),
    BAD(SHAPE_MISMATCH, "bias_K", "(4), not (2)", NUMBERS(1, 2), NUMBERS(1, 4), HAS_TWO_HEADS),
    BAD(SHAPE_MISMATCH, "bias_V", "(2, 2), not (4, 1)", NUMBERS(1, 4), NUMBERS(2, 4, 1),
        HAS_TWO_HEADS),
    BAD(SHAPE_MISMATCH, "bias_K", "rank", NUMBERS(3, 1, 2, 2), NUMBERS(1, 4), HAS_TWO_HEADS),
    BAD(INVALID_ARGUMENT, "bias_V", "float64", NUMBERS(1, 4), NUMBERS_OF(ATTN_FLOAT32, 1, 4),
        HAS_TWO_HEADS),
    BAD(SHAPE_MISMATCH, "bias_K", "(4), not (1, 4)", NUMBERS(2, 1, 4), NUMBERS(1, 4), false, true,
        {0}),
    BAD(INVALID_ARGUMENT, "alibi", "zero_key", NULL, NULL, true, false,
        {.heads = HEADS, .flags = ATTN_FLAG_ALIBI}),
    BAD(INVALID_ARGUMENT, "alibi", "bias_K", NUMBERS(1, 4), NUMBERS(1, 4), true, false,
        {.heads = HEADS, .alibi_slopes = NUMBERS(1, 2)}),
    /* The extra key is none of those that lengths count. */
    BAD(INVALID_ARGUMENT, "lengths", "the number of keys is 1", NULL, NULL, true, false,
        {.heads = HEADS, .lengths = two_keys, .lengths_count = 1}),
};

Test(extra_keys, errors_name_the_rule_and_the_value) {
    static const double x[COLUMNS];
    const attn_tensor row = tensor(x, ATTN_FLOAT64, 1, COLUMNS);
    for (size_t i = 0; i < sizeof bad_extras / sizeof *bad_extras; i++) {
        const struct bad_extra *bad = &bad_extras[i];
        const attn_multihead call = {.x = &row,
                                     .projections = &projection,
                                     .count = 1,
                                     .per_head = bad->per_head,
                                     .bias_k = bad->bias_k,
                                     .bias_v = bad->bias_v,
                                     .zero_key = bad->zero_key};
        attn_error error = {0};
        attn_plan *plan;
        const attn_status status = attn_plan_multihead(&plan, &call, &bad->options, &error);
        expect_verdict(i, &(struct verdict){bad->status, bad->argument, bad->contains}, status,
                       plan, &error);
    }
}

/* ----------------------------------------------------------------------------------------- laws */

struct answer {
    double weights[HEADS * QUERIES * ALL], masked[HEADS * QUERIES * ALL], lse[HEADS * QUERIES];
    double output[QUERIES * COLUMNS], present[ALL * COLUMNS];
    size_t keys, present_keys; /* columns of the weights; rows of present_K */
};

/* Runs a call with two queries. */
static struct answer run(const attn_multihead *call, attn_options o) {
    struct answer a = {0};
    attn_error error = {0};
    attn_plan *plan;
    o.heads = HEADS;
    o.results = ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS) | ATTN_WANT(MASKED_SCORES) | ATTN_WANT(LSE) |
                ATTN_WANT(PRESENT_K);
    cr_assert_eq(attn_plan_multihead(&plan, call, &o, &error), ATTN_OK, "%s", error.message);
    a.keys = attn_plan_tensor(plan, ATTN_RESULT_WEIGHTS, 0)->shape[2];
    a.present_keys = attn_plan_tensor(plan, ATTN_RESULT_PRESENT_K, 0)->shape[1];
    cr_assert(a.keys <= ALL && a.present_keys <= ALL);
    attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, a.output);
    attn_plan_bind(plan, ATTN_RESULT_WEIGHTS, 0, a.weights);
    attn_plan_bind(plan, ATTN_RESULT_MASKED_SCORES, 0, a.masked);
    attn_plan_bind(plan, ATTN_RESULT_LSE, 0, a.lse);
    attn_plan_bind(plan, ATTN_RESULT_PRESENT_K, 0, a.present);
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
    attn_plan_free(plan);
    return a;
}

static void expect_close(const double *is, const double *want, size_t count, const char *what) {
    for (size_t i = 0; i < count; i++) {
        cr_expect(is[i] == want[i] || fabs(is[i] - want[i]) <= 1e-14, "%s %zu: %.17g, not %.17g",
                  what, i, is[i], want[i]);
    }
}

/* Matrices X, K and V whose last two rows of K and V are those of the extra keys. */
struct drawn {
    double x[QUERIES * COLUMNS], k[ALL * COLUMNS], v[ALL * COLUMNS];
};

static struct drawn draw(uint64_t seed) {
    struct drawn drawn;
    struct rng rng = {seed};
    double *const all[] = {drawn.x, drawn.k, drawn.v};
    for (size_t i = 0; i < 3; i++) {
        for (size_t e = 0; e < (i == 0 ? QUERIES : ALL) * COLUMNS; e++) {
            all[i][e] = rng_normal(&rng);
        }
    }
    memset(drawn.k + (ALL - 1) * COLUMNS, 0, COLUMNS * sizeof(double));
    memset(drawn.v + (ALL - 1) * COLUMNS, 0, COLUMNS * sizeof(double));
    return drawn;
}

/* Expects that extra keys give what the same rows of K and V give with a mask that allows them to
 * every query. `allowed` says for each query which other keys `options` allow. */
static void check_rules(const attn_options *options, const unsigned char allowed[QUERIES][KEYS]) {
    const struct drawn d = draw(11);
    const attn_tensor x = tensor(d.x, ATTN_FLOAT64, QUERIES, COLUMNS);
    attn_tensor k = tensor(d.k, ATTN_FLOAT64, KEYS, COLUMNS), v = k;
    v.data = d.v;
    const attn_tensor bias_k = row_of(d.k + KEYS * COLUMNS), bias_v = row_of(d.v + KEYS * COLUMNS);
    attn_multihead call = {.x = &x,
                           .context = &k,
                           .value_context = &v,
                           .projections = &projection,
                           .count = 1,
                           .bias_k = &bias_k,
                           .bias_v = &bias_v,
                           .zero_key = true};
    const struct answer is = run(&call, *options);
    cr_expect(is.keys == ALL && is.present_keys == KEYS);
    cr_expect_arr_eq(is.present, run(&call, (attn_options){0}).present, sizeof is.present);

    unsigned char mask[QUERIES * ALL];
    double bias[ALL] = {0};
    memset(mask, 1, sizeof mask);
    for (size_t i = 0; i < QUERIES; i++) {
        memcpy(mask + i * ALL, allowed[i], KEYS);
    }
    const attn_tensor mask_of_all = tensor(mask, ATTN_BOOL, QUERIES, ALL);
    const attn_tensor bias_of_all = tensor(bias, ATTN_FLOAT64, 1, ALL);
    if (options->bias != NULL) {
        memcpy(bias, options->bias->data, KEYS * sizeof *bias);
    }
    k.shape[0] = v.shape[0] = ALL;
    call.bias_k = call.bias_v = NULL;
    call.zero_key = false;
    const struct answer want =
        run(&call, (attn_options){.mask = &mask_of_all, .bias = &bias_of_all});
    expect_close(is.weights, want.weights, HEADS * QUERIES * ALL, "weight");
    expect_close(is.masked, want.masked, HEADS * QUERIES * ALL, "masked score");
    expect_close(is.lse, want.lse, HEADS * QUERIES, "lse");
    expect_close(is.output, want.output, QUERIES * COLUMNS, "output");
}

Test(extra_keys, are_rows_that_every_query_may_attend_to) {
    static const unsigned char some[QUERIES][KEYS] = {{0, 1, 0}, {0, 0, 0}};
    static const size_t lengths[] = {0, 2};
    const attn_tensor mask = tensor(some, ATTN_BOOL, QUERIES, KEYS);
    const attn_tensor padding = {.data = some, .dtype = ATTN_BOOL, .rank = 1, .shape = {KEYS}};
    const attn_tensor bias = MATRIX(1, KEYS, 0.5, -INFINITY, 2);
    check_rules(&(attn_options){0}, (const unsigned char[2][3]){{1, 1, 1}, {1, 1, 1}});
    check_rules(&(attn_options){.mask = &mask}, some);
    check_rules(&(attn_options){.bias = &bias}, (const unsigned char[2][3]){{1, 0, 1}, {1, 0, 1}});
    check_rules(&(attn_options){.key_padding = &padding},
                (const unsigned char[2][3]){{0, 1, 0}, {0, 1, 0}});
    check_rules(&(attn_options){.lengths = lengths, .lengths_count = 1},
                (const unsigned char[2][3]){{0}});
    check_rules(&(attn_options){.lengths = lengths + 1, .lengths_count = 1},
                (const unsigned char[2][3]){{1, 1, 0}, {1, 1, 0}});
    check_rules(&(attn_options){.causal = true}, (const unsigned char[2][3]){{1, 0, 0}, {1, 1, 0}});
    check_rules(&(attn_options){.causal = true, .flags = ATTN_FLAG_BOTTOM_RIGHT},
                (const unsigned char[2][3]){{1, 1, 0}, {1, 1, 1}});
    check_rules(&(attn_options){.flags = ATTN_FLAG_WINDOW, .window = {0, 0}},
                (const unsigned char[2][3]){{1, 0, 0}, {0, 1, 0}});
    check_rules(&(attn_options){.causal = true,
                                .flags = ATTN_FLAG_BOTTOM_RIGHT,
                                .mask = &mask,
                                .bias = &bias,
                                .lengths = lengths + 1,
                                .lengths_count = 1},
                (const unsigned char[2][3]){{0, 0, 0}, {0, 0, 0}});
}

/* A query that may attend to nothing else attends to the key of zeros: its score is 0. */
Test(extra_keys, of_zeros_alone_give_zeros) {
    static const size_t nothing[] = {0};
    const struct drawn d = draw(12);
    const attn_tensor x = tensor(d.x, ATTN_FLOAT64, QUERIES, COLUMNS);
    const attn_multihead call = {.x = &x, .projections = &projection, .count = 1, .zero_key = true};
    const struct answer is = run(&call, (attn_options){.lengths = nothing, .lengths_count = 1});
    cr_assert_eq(is.keys, QUERIES + 1);
    for (size_t i = 0; i < HEADS * QUERIES; i++) {
        const double *w = is.weights + i * is.keys;
        cr_expect(w[0] == 0 && w[1] == 0 && w[2] == 1, "row %zu: %g %g %g", i, w[0], w[1], w[2]);
        cr_expect_eq(is.lse[i], 0);
    }
    for (size_t i = 0; i < QUERIES * COLUMNS; i++) {
        cr_expect_eq(is.output[i], 0);
    }
}

/* Tasks of a projection begin inside of batch items, whose keys have gaps for extra keys. The
 * output of an item is that of the item alone. */
Test(extra_keys, follow_each_batch_item) {
    enum {
        ITEMS = 3,
        ROWS = 300,
        NUMBERS_OF_ITEM = ROWS * COLUMNS
    };
    struct rng rng = {5};
    double *x = malloc(ITEMS * NUMBERS_OF_ITEM * sizeof *x);
    double *all = malloc(ITEMS * NUMBERS_OF_ITEM * sizeof *all);
    double *alone = malloc(NUMBERS_OF_ITEM * sizeof *alone);
    cr_assert(x != NULL && all != NULL && alone != NULL);
    for (size_t i = 0; i < ITEMS * NUMBERS_OF_ITEM; i++) {
        x[i] = rng_normal(&rng);
    }
    for (size_t item = 0; item <= ITEMS; item++) { /* the first call has all items */
        const attn_tensor rows = {.data = item == 0 ? x : x + (item - 1) * NUMBERS_OF_ITEM,
                                  .dtype = ATTN_FLOAT64,
                                  .rank = 3,
                                  .shape = {item == 0 ? ITEMS : 1, ROWS, COLUMNS}};
        const attn_multihead call = {
            .x = &rows, .projections = &projection, .count = 1, .zero_key = true};
        const attn_options o = {.heads = HEADS};
        attn_error error = {0};
        attn_plan *plan;
        cr_assert_eq(attn_plan_multihead(&plan, &call, &o, &error), ATTN_OK, "%s", error.message);
        attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, item == 0 ? all : alone);
        cr_assert_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
        attn_plan_free(plan);
        if (item > 0) {
            expect_close(alone, all + (item - 1) * NUMBERS_OF_ITEM, NUMBERS_OF_ITEM, "output");
        }
    }
    free(x);
    free(all);
    free(alone);
}

/* Neither is a past key, so both calls have the same weights, in another order. */
Test(extra_keys, are_neither_turned_nor_normalised) {
    static const double positions[QUERIES] = {5, 2}, weights[COLUMNS / HEADS] = {2, -0.5};
    const struct drawn d = draw(13);
    const attn_tensor x = tensor(d.x, ATTN_FLOAT64, QUERIES, COLUMNS);
    const attn_tensor bias_k = row_of(d.k), bias_v = row_of(d.v);
    const attn_tensor at = {
        .data = positions, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {QUERIES}};
    attn_tensor norm = at, past_k = bias_k, past_v = bias_v;
    norm.data = weights;
    past_k.rank = past_v.rank = 3;
    memcpy(past_k.shape, (const size_t[]){HEADS, 1, COLUMNS / HEADS}, 3 * sizeof(size_t));
    memcpy(past_v.shape, past_k.shape, sizeof past_k.shape);
    const attn_rotary rotary = {.positions = &at};
    attn_options o = {.norm_q = &norm, .norm_k = &norm, .rotary = &rotary};
    attn_multihead call = {
        .x = &x, .projections = &projection, .count = 1, .bias_k = &bias_k, .bias_v = &bias_v};
    const struct answer is = run(&call, o);
    call.bias_k = call.bias_v = NULL;
    o.past_k = &past_k;
    o.past_v = &past_v;
    const struct answer want = run(&call, o);
    cr_assert(is.keys == QUERIES + 1 && want.keys == QUERIES + 1);
    for (size_t row = 0; row < HEADS * QUERIES; row++) {
        const double *w = is.weights + row * is.keys, *p = want.weights + row * want.keys;
        expect_close(w, p + 1, QUERIES, "weight");
        expect_close(w + QUERIES, p, 1, "weight of the extra key");
    }
    expect_close(is.output, want.output, QUERIES * COLUMNS, "output");
}
