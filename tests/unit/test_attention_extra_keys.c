/*
 * test_attention_extra_keys.c - tests the extra keys of multi-head attention.
 * test_attention_random.c compares random calls with the formulas.
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
