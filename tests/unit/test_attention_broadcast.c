/*
 * test_attention_broadcast.c - forms of one call whose results have the same bytes: several axes of
 * the batch or one. test_attention_random.c and test_gradients.c draw matrices that are broadcast,
 * and data/answers.txt has options of one axis.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "plan.h"
#include "support/rng.h"

enum {
    ITEMS = 6,
    HEADS = 2,
    QUERIES = 4,
    COLUMNS = 4,
    MOST = ITEMS * HEADS * QUERIES * QUERIES * COLUMNS
};

/* The numbers of all matrices, and the bytes of mask and key_padding. */
static float numbers[8][MOST];
static unsigned char allowed[MOST];

static void draw_inputs(void) {
    struct rng rng = {5};
    for (size_t i = 0; i < MOST; i++) {
        for (size_t of = 0; of < 8; of++) {
            numbers[of][i] = (float)rng_normal(&rng);
        }
        allowed[i] = rng_chance(&rng, 4) ? 0 : 1;
    }
    for (size_t i = 0; i < MOST; i++) { /* positions */
        numbers[7][i] = (float)(i % 11);
    }
}

/* Returns a tensor whose last axes are these, without those that are 0. Before them stand the batch
 * axes: (1,...,1,2,3), or (2,3), or (6), or none. */
static attn_tensor tensor_in(const void *data, int axes, size_t a, size_t b, size_t c) {
    attn_tensor t = {.data = data, .dtype = ATTN_FLOAT32};
    const size_t last[3] = {a, b, c};
    for (int i = 2; i < axes; i++) {
        t.shape[t.rank++] = 1;
    }
    if (axes >= 2) {
        t.shape[t.rank++] = 2;
        t.shape[t.rank++] = 3;
    } else if (axes == 1) {
        t.shape[t.rank++] = ITEMS;
    }
    for (int i = 0; i < 3; i++) {
        if (last[i] != 0) {
            t.shape[t.rank++] = last[i];
        }
    }
    return t;
}

/* Runs a call, and returns its results one after the other, which the caller frees. */
static char *run_form(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                      const attn_options *o, int rank, size_t *bytes) {
    attn_plan *plan;
    attn_error error = {0};
    cr_assert_eq(attn_plan_attention(&plan, q, k, v, o, &error), ATTN_OK, "%s", error.message);
    cr_assert(attn_plan_results_bytes(plan, bytes));
    char *results = aligned_alloc(ATTN_ALIGNMENT, *bytes);
    cr_assert_not_null(results);
    memset(results, 0, *bytes);
    cr_assert_eq(attn_plan_bind_all(plan, results), ATTN_OK);
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
    cr_expect_eq(attn_plan_tensor(plan, ATTN_RESULT_OUTPUT, 0)->rank, rank);
    attn_plan_free(plan);
    return results;
}

/* Runs a call with so many batch axes. Q lacks them with `shared`, and is that of all items. */
static char *run_axes(int axes, bool packed, bool shared, size_t *bytes) {
    const size_t rows = packed ? QUERIES : HEADS, columns = packed ? HEADS * COLUMNS : QUERIES;
    const size_t last = packed ? 0 : COLUMNS;
    const attn_tensor q = tensor_in(numbers[0], shared ? 0 : axes, rows, columns, last),
                      k = tensor_in(numbers[1], axes, rows, columns, last),
                      v = tensor_in(numbers[2], axes, rows, columns, last),
                      bias = tensor_in(numbers[3], axes, HEADS, QUERIES, QUERIES),
                      upstream = tensor_in(numbers[4], axes, rows, columns, last),
                      lse = tensor_in(numbers[5], axes, HEADS, QUERIES, 0),
                      positions = tensor_in(numbers[7], shared ? 0 : axes, QUERIES, 0, 0);
    attn_tensor mask = tensor_in(allowed, axes, 1, QUERIES, QUERIES),
                padding = tensor_in(allowed + 7, axes, QUERIES, 0, 0);
    mask.dtype = padding.dtype = ATTN_BOOL;
    const attn_upstream up = {.output = &upstream, .lse = &lse};
    const attn_rotary rotary = {.positions = &positions};
    const attn_options o = {.results = ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS) | ATTN_WANT(LSE) |
                                       ATTN_WANT(TOP_K_WEIGHTS) | ATTN_WANT(PRESENT_K) |
                                       ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V) |
                                       ATTN_WANT(GRAD_BIAS),
                            .heads = packed ? HEADS : 0,
                            .mask = &mask,
                            .bias = &bias,
                            .key_padding = &padding,
                            .rotary = &rotary,
                            .upstream = &up};
    return run_form(&q, &k, &v, &o, axes + (packed ? 2 : 3), bytes);
}

Test(attention, axes_of_the_batch_are_one_batch) {
    draw_inputs();
    for (int way = 0; way < 4; way++) {
        size_t folded_bytes, bytes;
        char *folded = run_axes(1, way % 2 != 0, way / 2 != 0, &folded_bytes);
        for (int axes = 2; axes <= MOST_AXES; axes++) {
            char *several = run_axes(axes, way % 2 != 0, way / 2 != 0, &bytes);
            cr_assert_eq(bytes, folded_bytes);
            cr_expect(memcmp(folded, several, bytes) == 0, "way %d, %d axes", way, axes);
            free(several);
        }
        free(folded);
    }
}
