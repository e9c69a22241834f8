/*
 * test_attention_ends.c - tests calls whose last query stands at the last valid key of its batch
 * item. Their rule is compared with the one that flash-attention documents for `cache_seqlens`,
 * `causal`, `window_size`, `alibi_slopes` and `softcap`, which is written here from its words.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/rng.h"
#include "support/scale.h"
#include "test_by_hand.h"

/* ------------------------------------------------------------------ the rule of flash-attention */

enum {
    MOST_BATCH = 3,
    MOST_HEADS = 4
};

/* The arguments of flash_attn_with_kvcache(), with the sizes of its tensors. Q is (B,H,n,d), K and
 * V are (B,KV,m,d); the m keys of the cache are those of `past` and the new ones. */
struct flash {
    size_t batch, heads, kv_heads, queries, keys, past, d;
    double *q, *k, *v, *slopes; /* `slopes` is NULL without ALiBi */
    size_t seqlens[MOST_BATCH];
    bool causal;
    int64_t window[2]; /* (-1, -1) means infinite context window */
    double scale, softcap;
};

static double *draw_normals(struct rng *rng, size_t count) {
    double *x = malloc(count * sizeof *x);
    cr_assert_not_null(x);
    for (size_t i = 0; i < count; i++) {
        x[i] = rng_normal(rng);
    }
    return x;
}

/* Half of the calls are as small as those that the library computes in another way. */
static struct flash draw_flash(struct rng *rng) {
    const size_t most = rng_chance(rng, 2) ? 6 : 70;
    struct flash f = {.batch = rng_between(rng, 1, MOST_BATCH),
                      .kv_heads = rng_between(rng, 1, 2),
                      .queries = rng_between(rng, 1, rng_chance(rng, 3) ? 1 : most),
                      .keys = rng_between(rng, 1, most),
                      .d = rng_between(rng, 1, 9),
                      .causal = rng_chance(rng, 2),
                      .window = {-1, -1},
                      .softcap = rng_chance(rng, 4) ? 2 : 0};
    f.heads = f.kv_heads * rng_between(rng, 1, MOST_HEADS / f.kv_heads);
    f.past = rng_chance(rng, 3) ? rng_between(rng, 0, f.keys - 1) : 0;
    for (int side = 0; side < 2 && rng_chance(rng, 2); side++) {
        f.window[side] = (int64_t)rng_between(rng, 0, f.keys);
    }
    for (size_t b = 0; b < f.batch; b++) {
        f.seqlens[b] = rng_between(rng, 0, f.keys);
    }
    f.scale = 1 / sqrt((double)f.d);
    f.q = draw_normals(rng, f.batch * f.heads * f.queries * f.d);
    f.k = draw_normals(rng, f.batch * f.kv_heads * f.keys * f.d);
    f.v = draw_normals(rng, f.batch * f.kv_heads * f.keys * f.d);
    f.slopes = rng_chance(rng, 3) ? draw_normals(rng, f.heads) : NULL;
    return f;
}

/* "If window_size != (-1, -1), implements sliding window local attention. Query at position i will
 * only attend to keys between [i + seqlen_k - seqlen_q - window_size[0], i + seqlen_k - seqlen_q +
 * window_size[1]] inclusive." "The causal mask is aligned to the bottom right corner of the
 * attention matrix." */
static bool flash_allows(const struct flash *f, size_t b, size_t i, size_t j) {
    const int64_t seqlen_k = (int64_t)f->seqlens[b], seqlen_q = (int64_t)f->queries;
    const int64_t corner = (int64_t)i + seqlen_k - seqlen_q, key = (int64_t)j;
    const int64_t right = f->causal ? 0 : f->window[1];
    const bool in_causal_window = f->window[1] < 0 || key <= corner + f->window[1];
    return key < seqlen_k && (f->window[0] < 0 || key >= corner - f->window[0]) &&
           (right < 0 || key <= corner + right) && in_causal_window;
}

/* Writes the output of a query, and returns its softmax_lse. "A bias of (-alibi_slope * |i +
 * seqlen_k - seqlen_q - j|) is added to the attention score of query i and key j." "If the row of
 * the mask is all zero, the output will be zero." */
static double flash_row(const struct flash *f, size_t b, size_t h, size_t i, double *output) {
    const size_t kv = b * f->kv_heads + h / (f->heads / f->kv_heads);
    const double *q = f->q + ((b * f->heads + h) * f->queries + i) * f->d;
    const double *k = f->k + kv * f->keys * f->d, *v = f->v + kv * f->keys * f->d;
    double sum = 0;
    memset(output, 0, f->d * sizeof *output);
    for (size_t j = 0; j < f->keys; j++) {
        double score = 0;
        for (size_t e = 0; e < f->d; e++) {
            score += f->scale * q[e] * k[j * f->d + e];
        }
        score = f->softcap > 0 ? f->softcap * tanh(score / f->softcap) : score;
        if (f->slopes != NULL) {
            score -= f->slopes[h] *
                     fabs((double)i + (double)f->seqlens[b] - (double)f->queries - (double)j);
        }
        const double weight = flash_allows(f, b, i, j) ? exp(score) : 0;
        for (size_t e = 0; e < f->d; e++) {
            output[e] += weight * v[j * f->d + e];
        }
        sum += weight;
    }
    for (size_t e = 0; e < f->d; e++) {
        output[e] = sum == 0 ? 0 : output[e] / sum;
    }
    return log(sum);
}

/* Returns rows [from, to) of each key head. The caller frees the data. */
static attn_tensor some_rows(const struct flash *f, const double *x, size_t from, size_t to) {
    const size_t heads = f->batch * f->kv_heads, width = (to - from) * f->d;
    double *rows = malloc((heads * width + 1) * sizeof *rows);
    cr_assert_not_null(rows);
    for (size_t head = 0; head < heads; head++) {
        memcpy(rows + head * width, x + (head * f->keys + from) * f->d, width * sizeof *rows);
    }
    return (attn_tensor){.data = rows,
                         .dtype = ATTN_FLOAT64,
                         .rank = 4,
                         .shape = {f->batch, f->kv_heads, to - from, f->d}};
}

/* Computes output and lse by the library. Stages and weights are computed by other code, so `more`
 * chooses the code. */
static void compute_flash(const struct flash *f, unsigned more, double *output, double *lse) {
    attn_tensor t[4] = {some_rows(f, f->k, f->past, f->keys), some_rows(f, f->v, f->past, f->keys),
                        some_rows(f, f->k, 0, f->past), some_rows(f, f->v, 0, f->past)};
    const attn_tensor q = {.data = f->q,
                           .dtype = ATTN_FLOAT64,
                           .rank = 4,
                           .shape = {f->batch, f->heads, f->queries, f->d}};
    const attn_tensor slopes = {
        .data = f->slopes, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {f->heads}};
    const attn_options o = {
        .flags = ATTN_FLAG_WINDOW | ATTN_FLAG_BOTTOM_RIGHT,
        .results = ATTN_WANT(OUTPUT) | ATTN_WANT(LSE) | more,
        .causal = f->causal,
        .softcap = f->softcap,
        .window = {f->window[0], f->window[1]},
        .lengths = f->seqlens,
        .lengths_count = f->batch,
        .alibi_slopes = f->slopes == NULL ? NULL : &slopes,
        .past_k = f->past == 0 ? NULL : &t[2],
        .past_v = f->past == 0 ? NULL : &t[3],
    };
    void *rest = malloc(f->batch * f->heads * f->queries * f->keys * sizeof(double));
    void *const data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_OUTPUT] = output,
                                           [ATTN_RESULT_LSE] = lse,
                                           [ATTN_RESULT_WEIGHTS] = rest,
                                           [ATTN_RESULT_MASKED_SCORES] = rest};
    attn_error error = {0};
    cr_assert_eq(plan_and_run(&q, &t[0], &t[1], &o, data, &error), ATTN_OK, "%s", error.message);
    free(rest);
    for (size_t i = 0; i < 4; i++) {
        free((void *)(uintptr_t)t[i].data);
    }
}

static void check_flash(const struct flash *f, unsigned more, size_t call) {
    const size_t rows = f->batch * f->heads * f->queries;
    double *output = malloc((rows * f->d + rows + f->d) * sizeof *output);
    double *lse = output + rows * f->d, *want = lse + rows;
    cr_assert_not_null(output);
    compute_flash(f, more, output, lse);
    for (size_t row = 0; row < rows; row++) {
        const size_t i = row % f->queries, h = row / f->queries % f->heads;
        const double sum = flash_row(f, row / f->queries / f->heads, h, i, want);
        cr_assert(lse[row] == sum || fabs(lse[row] - sum) <= 1e-13 * fmax(1, fabs(sum)),
                  "call %zu, row %zu: lse %.17g, not %.17g", call, row, lse[row], sum);
        for (size_t e = 0; e < f->d; e++) {
            const double is = output[row * f->d + e];
            cr_assert(fabs(is - want[e]) <= 1e-13, "call %zu, row %zu: %.17g, not %.17g", call, row,
                      is, want[e]);
        }
    }
    free(output);
}

Test(ends, random_calls_follow_the_rule_of_flash_attention, .timeout = 60) {
    static const unsigned more[] = {0, ATTN_WANT(WEIGHTS), ATTN_WANT(MASKED_SCORES)};
    struct rng rng = {2023};
    for (size_t call = 0; call < test_scale(2000); call++) {
        struct flash f = draw_flash(&rng);
        check_flash(&f, more[call % 3], call);
        free(f.q);
        free(f.k);
        free(f.v);
        free(f.slopes);
    }
}

/* -------------------------------------------------------------------------------------- by hand */

enum {
    ITEMS = 3,
    QUERIES = 2,
    KEYS = 4
};

static const size_t lengths[ITEMS] = {4, 3, 1};
static const double zeros[ITEMS * KEYS];

/* Returns a tensor (ITEMS, 1, rows, 1) of zeros. */
static attn_tensor zero_rows(size_t rows) {
    return (attn_tensor){
        .data = zeros, .dtype = ATTN_FLOAT64, .rank = 4, .shape = {ITEMS, 1, rows, 1}};
}

/* Computes masked scores of zeros, in which 0 is a key that a query may attend to. */
static void masked_zeros(attn_options o, double masked[ITEMS][QUERIES][KEYS]) {
    const attn_tensor q = zero_rows(QUERIES), k = zero_rows(KEYS);
    attn_error error = {0};
    o.results = ATTN_WANT(MASKED_SCORES);
    o.lengths = lengths;
    o.lengths_count = ITEMS;
    void *const data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_MASKED_SCORES] = masked};
    cr_assert_eq(plan_and_run(&q, &k, &k, &o, data, &error), ATTN_OK, "%s", error.message);
}

static void expect_allowed(attn_options o, const char *const want[ITEMS][QUERIES]) {
    double masked[ITEMS][QUERIES][KEYS];
    masked_zeros(o, masked);
    for (size_t b = 0; b < ITEMS; b++) {
        for (size_t i = 0; i < QUERIES; i++) {
            for (size_t j = 0; j < KEYS; j++) {
                cr_expect_eq(masked[b][i][j] == 0, want[b][i][j] == 'x', "item %zu, %zu, %zu: %g",
                             b, i, j, masked[b][i][j]);
            }
        }
    }
}

Test(ends, the_last_query_stands_at_the_last_valid_key) {
    const unsigned right = ATTN_FLAG_BOTTOM_RIGHT, window = ATTN_FLAG_WINDOW;
    expect_allowed((attn_options){.causal = true, .flags = right},
                   (const char *const[][2]){{"xxx.", "xxxx"}, {"xx..", "xxx."}, {"....", "x..."}});
    expect_allowed((attn_options){.causal = true},
                   (const char *const[][2]){{"x...", "xx.."}, {"x...", "xx.."}, {"x...", "x..."}});
    expect_allowed((attn_options){.flags = right},
                   (const char *const[][2]){{"xxxx", "xxxx"}, {"xxx.", "xxx."}, {"x...", "x..."}});
    expect_allowed((attn_options){.flags = right | window, .window = {0, 0}},
                   (const char *const[][2]){{"..x.", "...x"}, {".x..", "..x."}, {"....", "x..."}});
    expect_allowed((attn_options){.flags = right | window, .window = {1, -1}},
                   (const char *const[][2]){{".xxx", "..xx"}, {"xxx.", ".xx."}, {"x...", "x..."}});
    expect_allowed((attn_options){.flags = window, .window = {0, 0}},
                   (const char *const[][2]){{"x...", ".x.."}, {"x...", ".x.."}, {"x...", "...."}});
}

Test(ends, alibi_counts_from_the_last_valid_key) {
    static const double want[ITEMS][QUERIES][KEYS] = {
        {{-2, -1, 0, -1}, {-3, -2, -1, 0}},
        {{-1, 0, -1, -INFINITY}, {-2, -1, 0, -INFINITY}},
        {{-1, -INFINITY, -INFINITY, -INFINITY}, {0, -INFINITY, -INFINITY, -INFINITY}}};
    const attn_tensor slope = {
        .data = (const double[]){1}, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {1}};
    double masked[ITEMS][QUERIES][KEYS];
    masked_zeros((attn_options){.flags = ATTN_FLAG_BOTTOM_RIGHT, .alibi_slopes = &slope}, masked);
    cr_expect_arr_eq(masked, want, sizeof want);
}

/* A query before the first key gets zeros, and its lse is -inf. */
Test(ends, a_query_before_the_first_key_sees_nothing) {
    const attn_tensor q = zero_rows(QUERIES), k = zero_rows(KEYS);
    attn_tensor v = k;
    const double ones[ITEMS * KEYS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    double output[ITEMS * QUERIES], lse[ITEMS * QUERIES];
    void *const data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_OUTPUT] = output, [ATTN_RESULT_LSE] = lse};
    const attn_options o = {.causal = true,
                            .flags = ATTN_FLAG_BOTTOM_RIGHT,
                            .results = ATTN_WANT(OUTPUT) | ATTN_WANT(LSE),
                            .lengths = lengths,
                            .lengths_count = ITEMS};
    v.data = ones;
    cr_assert_eq(plan_and_run(&q, &k, &v, &o, data, NULL), ATTN_OK);
    for (size_t row = 0; row < ITEMS * QUERIES; row++) {
        cr_expect_eq(output[row], row == 4 ? 0 : 1, "row %zu: %g", row, output[row]);
    }
    cr_expect_eq(lse[4], -INFINITY);
    cr_expect_eq(lse[5], 0);
}

/* All rows are (1, 0) before they turn, so a score is the cosine of the distance. */
Test(ends, rotary_embedding_counts_from_the_last_valid_key) {
    double rows[ITEMS * KEYS * 2], scores[ITEMS][QUERIES][KEYS];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rows[i] = i % 2 == 0;
    }
    const attn_tensor k = {
        .data = rows, .dtype = ATTN_FLOAT64, .rank = 4, .shape = {ITEMS, 1, KEYS, 2}};
    attn_tensor q = k;
    q.shape[2] = QUERIES;
    const attn_rotary rotary = {.offset = 5};
    const attn_options o = {.causal = true,
                            .flags = ATTN_FLAG_BOTTOM_RIGHT,
                            .results = ATTN_WANT(SCORES),
                            .rotary = &rotary,
                            .lengths = lengths,
                            .lengths_count = ITEMS};
    void *const data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_SCORES] = scores};
    cr_assert_eq(plan_and_run(&q, &k, &k, &o, data, NULL), ATTN_OK);
    for (size_t b = 0; b < ITEMS; b++) {
        for (size_t i = 0; i < QUERIES; i++) {
            for (size_t j = 0; j < KEYS; j++) {
                const double away = (double)(lengths[b] + i) - QUERIES - (double)j;
                cr_expect_float_eq(scores[b][i][j], cos(away), 1e-14, "%zu %zu %zu: %g", b, i, j,
                                   scores[b][i][j]);
            }
        }
    }
}

/* A table has rows for the first and the last position of every batch item. */
Test(ends, tables_have_rows_for_all_batch_items) {
    static const double ones[2 * ITEMS * KEYS] = {1};
    const attn_tensor q = {
        .data = ones, .dtype = ATTN_FLOAT64, .rank = 4, .shape = {ITEMS, 1, QUERIES, 2}};
    const attn_tensor k = {
        .data = ones, .dtype = ATTN_FLOAT64, .rank = 4, .shape = {ITEMS, 1, KEYS, 2}};
    attn_tensor table = {.data = ones, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {KEYS, 1}};
    attn_rotary rotary = {.cos = &table, .sin = &table};
    const attn_options o = {.flags = ATTN_FLAG_BOTTOM_RIGHT,
                            .rotary = &rotary,
                            .lengths = lengths,
                            .lengths_count = ITEMS};
    double output[2 * ITEMS * QUERIES];
    void *const data[ATTN_RESULT_COUNT] = {output};
    attn_error error = {0};
    cr_expect_eq(plan_and_run(&q, &k, &k, &o, data, &error), ATTN_SHAPE_MISMATCH);
    cr_expect_str_eq(error.message,
                     "rotary_cos has rows for the positions 0 to 3, but the call has "
                     "the positions -1 to 3");
    rotary.offset = 1;
    cr_expect_eq(plan_and_run(&q, &k, &k, &o, data, &error), ATTN_SHAPE_MISMATCH);
    table.shape[0] = KEYS + 1;
    cr_expect_eq(plan_and_run(&q, &k, &k, &o, data, &error), ATTN_OK);
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
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
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
