/*
 * test_attention_ends.c - tests calls whose last query stands at the last valid key of its batch
 * item. Their rule is compared with the one that flash-attention documents for `cache_seqlens`,
 * `causal`, `window_size` and `alibi_slopes`, which is written here from its words.
 * test_attention_random.c compares all results of random calls with the reference, also those with
 * rotary embedding.
 */
#include <math.h>

#include "support/rng.h"
#include "support/scale.h"
#include "test_by_hand.h"

/* ------------------------------------------------------------------ the rule of flash-attention */

/* "Query at position i will only attend to keys between [i + seqlen_k - seqlen_q - window_size[0],
 * i + seqlen_k - seqlen_q + window_size[1]] inclusive." "The causal mask is aligned to the bottom
 * right corner of the attention matrix." "A bias of (-alibi_slope * |i + seqlen_k - seqlen_q - j|)
 * is added to the attention score of query i and key j." Returns what is added to the score. */
static double flash_adds(const attn_options *o, int64_t seqlen_q, int64_t seqlen_k, double slope,
                         int64_t i, int64_t j) {
    const int64_t corner = i + seqlen_k - seqlen_q;
    const bool allowed = j < seqlen_k && !(o->causal && j > corner) &&
                         (o->window[0] < 0 || j >= corner - o->window[0]) &&
                         (o->window[1] < 0 || j <= corner + o->window[1]);
    return allowed ? -slope * fabs((double)(corner - j)) : -INFINITY;
}

/* Compares the masked scores of a drawn call whose other scores are 0. */
static void compare_with_flash(struct rng *rng, size_t call) {
    enum {
        MOST = 40
    };
    static const double zeros[3 * MOST];
    static double masked[3 * MOST * MOST];
    const size_t batch = rng_between(rng, 1, 3),
                 n = rng_between(rng, 1, rng_chance(rng, 3) ? 1 : MOST),
                 m = rng_between(rng, 1, MOST);
    const double slope = rng_chance(rng, 2) ? 0.5 : 0;
    const attn_tensor q = {zeros, ATTN_FLOAT64, 4, {batch, 1, n, 1}};
    const attn_tensor k = {zeros, ATTN_FLOAT64, 4, {batch, 1, m, 1}};
    const attn_tensor slopes = {.data = &slope, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {1}};
    size_t lengths[3];
    for (size_t b = 0; b < batch; b++) {
        lengths[b] = rng_between(rng, 0, m);
    }
    attn_options o = {.flags = ATTN_FLAG_BOTTOM_RIGHT | ATTN_FLAG_WINDOW,
                      .results = ATTN_WANT(MASKED_SCORES),
                      .causal = rng_chance(rng, 2),
                      .window = {-1, -1},
                      .alibi_slopes = slope == 0 ? NULL : &slopes,
                      .lengths = lengths,
                      .lengths_count = batch};
    for (int side = 0; side < 2; side++) {
        o.window[side] = rng_chance(rng, 2) ? (int64_t)rng_between(rng, 0, m) : -1;
    }
    void *const data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_MASKED_SCORES] = masked};
    cr_assert_eq(plan_and_run(&q, &k, &k, &o, data, NULL), ATTN_OK);
    for (size_t at = 0; at < batch * n * m; at++) {
        const size_t b = at / m / n, i = at / m % n, j = at % m;
        const double want =
            flash_adds(&o, (int64_t)n, (int64_t)lengths[b], slope, (int64_t)i, (int64_t)j);
        cr_assert(masked[at] == want, "call %zu, item %zu, %zu, %zu: %g, not %g", call, b, i, j,
                  masked[at], want);
    }
}

Test(ends, random_calls_follow_the_rule_of_flash_attention, .timeout = 1200) {
    struct rng rng = {2023};
    for (size_t call = 0; call < test_scale(2000); call++) {
        compare_with_flash(&rng, call);
    }
}

/* -------------------------------------------------------------------------------------- by hand */

enum {
    ITEMS = 3,
    KEYS = 4
};

static const size_t lengths[ITEMS] = {4, 3, 1};
static const double zeros[ITEMS * KEYS];

/* Returns a tensor (ITEMS, 1, rows, 1) of zeros. */
static attn_tensor zero_rows(size_t rows) {
    return (attn_tensor){zeros, ATTN_FLOAT64, 4, {ITEMS, 1, rows, 1}};
}

/* One query of some heads that share a key head is computed as some queries of one head. */
Test(ends, positions_are_told) {
    const attn_tensor k = zero_rows(KEYS), many = k;
    attn_tensor q = zero_rows(1);
    q.shape[1] = 2;
    const struct {
        const attn_tensor *q;
        attn_options options;
        int64_t first[ITEMS];
    } cases[] = {
        {&q, {.causal = true}, {0, 0, 0}},
        {&q, {.causal = true, .flags = ATTN_FLAG_BOTTOM_RIGHT}, {3, 3, 3}},
        {&many, {.flags = ATTN_FLAG_BOTTOM_RIGHT}, {0, 0, 0}},
        {&many, {.past_k = &k, .past_v = &k}, {4, 4, 4}},
        {&many, {.past_k = &k, .past_v = &k, .flags = ATTN_FLAG_BOTTOM_RIGHT}, {4, 4, 4}},
        {&q, {.lengths = lengths, .lengths_count = ITEMS}, {0, 0, 0}},
        {&q,
         {.flags = ATTN_FLAG_BOTTOM_RIGHT, .lengths = lengths, .lengths_count = ITEMS},
         {3, 2, 0}},
        {&many,
         {.causal = true,
          .flags = ATTN_FLAG_BOTTOM_RIGHT,
          .lengths = lengths,
          .lengths_count = ITEMS},
         {0, -1, -3}},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        attn_plan *plan;
        const size_t n = cases[c].q->shape[2];
        cr_assert_eq(attn_plan_attention(&plan, cases[c].q, &k, &k, &cases[c].options, NULL),
                     ATTN_OK);
        for (size_t b = 0; b < ITEMS; b++) {
            for (size_t i = 0; i < n; i++) {
                cr_expect_eq(attn_plan_position(plan, b, i), cases[c].first[b] + (int64_t)i,
                             "case %zu, item %zu", c, b);
            }
        }
        attn_plan_free(plan);
    }
}
