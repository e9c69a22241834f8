/*
 * test_attention_extra_keys.c - tests the extra keys of multi-head attention. Their errors name the
 * rule. test_attention_random.c compares random calls with the formulas.
 */
#include <stdlib.h>

#include "support/rng.h"
#include "test_by_hand.h"

enum {
    HEADS = 2,
    COLUMNS = 4 /* of all heads */
};

/* The projections are the identity. So Q, K and V are X. */
static const attn_tensor identity4 = {
    .data = (const double[]){1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
    .dtype = ATTN_FLOAT64,
    .rank = 2,
    .shape = {COLUMNS, COLUMNS}};
static const attn_projection projection = {.w_q = &identity4, .w_k = &identity4, .w_v = &identity4};

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
    for (size_t i = 0; i < sizeof bad_extras / sizeof *bad_extras; i++) {
        const struct bad_extra *bad = &bad_extras[i];
        const attn_multihead call = {.x = NUMBERS(2, 1, COLUMNS),
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
        for (size_t i = 0; item > 0 && i < NUMBERS_OF_ITEM; i++) {
            const double want = all[(item - 1) * NUMBERS_OF_ITEM + i];
            cr_expect_float_eq(alone[i], want, 1e-14, "%zu: %.17g, not %.17g", i, alone[i], want);
        }
    }
    free(x);
    free(all);
    free(alone);
}
