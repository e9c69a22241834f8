/*
 * test_attention_errors.c - tests the errors of the library. Each names the rule, the argument and
 * the values. An overflow names its stage.
 */
#include <math.h>
#include <string.h>

#include "test_by_hand.h"

struct refusal {
    size_t q[4], k[4], v[4]; /* the rank, followed by the shape */
    attn_options options;
    attn_status status;
    const char *argument, *contains;
};

static const size_t three_lengths[3] = {1, 1, 1}, long_length[1] = {9};

static const unsigned char existing[10] = {0};
static const attn_tensor
    two_numbers = {.data = (const double[]){1, 2}, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {2}},
    padding_of_5 = {.data = existing, .dtype = ATTN_BOOL, .rank = 1, .shape = {5}},
    padding_1_5 = {.data = existing, .dtype = ATTN_BOOL, .rank = 2, .shape = {1, 5}},
    padding_2_5 = {.data = existing, .dtype = ATTN_BOOL, .rank = 2, .shape = {2, 5}},
    padding_1_1 = {.data = existing, .dtype = ATTN_BOOL, .rank = 2, .shape = {1, 1}};

static const struct refusal refusals[] = {
    {{2, 4, 64}, {2, 5, 48}, {2, 5, 3}, {0}, ATTN_SHAPE_MISMATCH, "K", "48 columns but Q has 64"},
    {{2, 4, 8}, {2, 5, 8}, {2, 6, 3}, {0}, ATTN_SHAPE_MISMATCH, "V", "6 rows but K has 5"},
    {{2, 4, 8}, {3, 1, 5, 8}, {2, 5, 3}, {0}, ATTN_SHAPE_MISMATCH, "K", "rank 3 but Q has rank 2"},
    {{2, 0, 8}, {2, 5, 8}, {2, 5, 3}, {0}, ATTN_SHAPE_MISMATCH, "Q", "empty"},
    {{3, 3, 4, 8}, {3, 2, 5, 8}, {3, 2, 5, 3}, {0}, ATTN_SHAPE_MISMATCH, "K", "multiple of the 2"},
    {{3, 2, 4, 8}, {3, 2, 5, 8}, {3, 1, 5, 3}, {0}, ATTN_SHAPE_MISMATCH, "V", "1 head but K has 2"},
    {{1, 8}, {2, 5, 8}, {2, 5, 3}, {0}, ATTN_SHAPE_MISMATCH, "Q", "rank 2 to 4, not 1"},
    {{2, 4, 9}, {2, 5, 9}, {2, 5, 9}, {.heads = 2}, ATTN_SHAPE_MISMATCH, "Q", "9 columns"},
    {{2, 4, 9}, {2, 5, 9}, {2, 5, 9}, {.heads = SIZE_MAX}, ATTN_SHAPE_MISMATCH, "Q", "9 columns"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.heads = 4, .kv_heads = 3},
     ATTN_INVALID_ARGUMENT,
     "kv_heads",
     "kv_heads = 3"},
    {{2, 4, 8}, {2, 5, 8}, {2, 5, 8}, {.kv_heads = 2}, ATTN_INVALID_ARGUMENT, "kv_heads", "needs"},
    {{2, 4, 8}, {2, 5, 8}, {2, 5, 8}, {.flags = 1u << 30}, ATTN_INVALID_ARGUMENT, "flags", "0x"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.results = 1u << 30},
     ATTN_INVALID_ARGUMENT,
     "results",
     "0x"},
    {{2, 4, 8}, {2, 5, 8}, {2, 5, 8}, {.softcap = -1}, ATTN_INVALID_ARGUMENT, "softcap", "-1"},
    {{2, 4, 8}, {2, 5, 8}, {2, 5, 8}, {.softcap = NAN}, ATTN_INVALID_ARGUMENT, "softcap", "nan"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.flags = ATTN_FLAG_SCALE, .scale = INFINITY},
     ATTN_INVALID_ARGUMENT,
     "scale",
     "finite"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.flags = ATTN_FLAG_WINDOW, .window = {-2, 0}},
     ATTN_INVALID_ARGUMENT,
     "window",
     "[-2, 0]"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.lengths = three_lengths, .lengths_count = 3},
     ATTN_SHAPE_MISMATCH,
     "lengths",
     "has 3 numbers"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.lengths = long_length, .lengths_count = 1},
     ATTN_INVALID_ARGUMENT,
     "lengths",
     "is 9, but the number of keys is 5"},
    {{2, 4, 8}, {2, 5, 8}, {2, 5, 8}, {.sink = &identity2}, ATTN_SHAPE_MISMATCH, "sink", "rank"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.sink = &two_numbers},
     ATTN_SHAPE_MISMATCH,
     "sink",
     "2 numbers; it must have one for each of the 1 head"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.alibi_slopes = &two_numbers},
     ATTN_SHAPE_MISMATCH,
     "alibi",
     "2 numbers"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.bias = &identity2},
     ATTN_SHAPE_MISMATCH,
     "bias",
     "axis 1 (keys) is 2, not 5 or 1"},
    {{2, 4, 8}, {2, 5, 8}, {2, 5, 8}, {.mask = &identity2}, ATTN_INVALID_ARGUMENT, "mask", "bool"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.past_k = &identity2},
     ATTN_INVALID_ARGUMENT,
     "past_K",
     "together"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.past_k = &identity2, .past_v = &identity2},
     ATTN_SHAPE_MISMATCH,
     "past_K",
     "2 columns but K has 8"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.results = ATTN_WANT(Q)},
     ATTN_INVALID_ARGUMENT,
     "results",
     "projections"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.normalization = ATTN_UNNORMALIZED, .sink = &identity2},
     ATTN_INVALID_ARGUMENT,
     "sink",
     "normalization is \"none\""},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.normalization = ATTN_SIGMOID, .sigmoid_bias = NAN},
     ATTN_INVALID_ARGUMENT,
     "sigmoid_bias",
     "finite"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.normalization = ATTN_SIGMOID + 1},
     ATTN_INVALID_ARGUMENT,
     "normalization",
     "0 to 2"},
    {{2, 4, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.normalization = ATTN_UNNORMALIZED, .results = ATTN_WANT(LSE)},
     ATTN_INVALID_ARGUMENT,
     "results",
     "lse"},
    /* key_padding is never broadcast, and never taken for a mask (n,m). */
    {{2, 2, 8}, {2, 5, 8}, {2, 5, 8}, {.key_padding = &padding_of_5}, ATTN_OK, "", ""},
    {{2, 2, 8}, {2, 5, 8}, {2, 5, 8}, {.key_padding = &padding_1_5}, ATTN_OK, "", ""},
    {{3, 2, 2, 8}, {2, 5, 8}, {2, 5, 8}, {.key_padding = &padding_of_5}, ATTN_OK, "", ""},
    {{2, 2, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.key_padding = &padding_2_5},
     ATTN_SHAPE_MISMATCH,
     "key_padding",
     "(2, 5); it must have one element for each key of each batch item, (batch 1, keys 5)"},
    {{2, 2, 8},
     {2, 5, 8},
     {2, 5, 8},
     {.key_padding = &padding_1_1},
     ATTN_SHAPE_MISMATCH,
     "key_padding",
     "(1, 1); it must"},
    {{3, 2, 2, 4},
     {3, 2, 5, 4},
     {3, 2, 5, 8},
     {.heads = 2, .key_padding = &padding_2_5},
     ATTN_OK,
     "",
     ""},
    {{3, 2, 2, 4},
     {3, 2, 5, 4},
     {3, 2, 5, 8},
     {.heads = 2, .key_padding = &padding_of_5},
     ATTN_SHAPE_MISMATCH,
     "key_padding",
     "(5); it must"},
    {{2, 4, 2},
     {2, 3, 2},
     {2, 3, 2},
     {.past_k = &identity2, .past_v = &identity2, .key_padding = &padding_of_5},
     ATTN_OK,
     "",
     ""},
    {{2, 4, 2},
     {2, 5, 2},
     {2, 5, 2},
     {.past_k = &identity2, .past_v = &identity2, .key_padding = &padding_of_5},
     ATTN_SHAPE_MISMATCH,
     "key_padding",
     "(batch 1, keys 7), with the past keys"},
    {{2, 4, 2},
     {2, 2, 2},
     {2, 2, 2},
     {.key_padding = &identity2},
     ATTN_INVALID_ARGUMENT,
     "key_padding",
     "bool"},
    /* K and V may have a lower rank than Q, but one rank. */
    {{3, 2, 4, 8}, {2, 5, 8}, {2, 5, 3}, {0}, ATTN_OK, "", ""},
    {{3, 2, 4, 8},
     {2, 5, 8},
     {3, 1, 5, 3},
     {0},
     ATTN_SHAPE_MISMATCH,
     "V",
     "rank 3 but K has rank 2"},
    {{3, 2, 4, 8},
     {3, 1, 5, 8},
     {2, 5, 3},
     {0},
     ATTN_SHAPE_MISMATCH,
     "V",
     "rank 2 but K has rank 3"},
    {{3, 2, 4, 8}, {2, 5, 4}, {2, 5, 3}, {0}, ATTN_SHAPE_MISMATCH, "K", "4 columns but Q has 8"},
    {{3, 2, 4, 8}, {2, 5, 4}, {2, 5, 6}, {.heads = 4, .kv_heads = 2}, ATTN_OK, "", ""},
    {{3, 2, 4, 2},
     {3, 1, 5, 2},
     {3, 1, 5, 2},
     {.past_k = &identity2, .past_v = &identity2},
     ATTN_SHAPE_MISMATCH,
     "past_K",
     "rank 2 but K has rank 3"},
    {{3, 2, 4, 2},
     {2, 5, 2},
     {2, 5, 2},
     {.past_k = &identity2, .past_v = &identity2},
     ATTN_OK,
     "",
     ""},
    {{2, (size_t)1 << 40, 8}, {2, 5, 8}, {2, 5, 8}, {0}, ATTN_TOO_LARGE, "Q", "1099511627776"},
    {{2, 1 << 30, 1}, {2, 1 << 30, 1}, {2, 1 << 30, 1}, {0}, ATTN_OK, "", ""},
    {{3, 65536, 1, 1}, {3, 65536, 1, 1}, {3, 65536, 1, 1}, {0}, ATTN_OK, "", ""},
    {{3, 65537, 1, 1},
     {3, 65537, 1, 1},
     {3, 1, 1, 1},
     {0},
     ATTN_SHAPE_MISMATCH,
     "V",
     "1 head but K has 65537"},
    {{3, 65537, 1, 1},
     {3, 1, 1, 1},
     {3, 1, 1, 1},
     {0},
     ATTN_TOO_LARGE,
     "",
     "there are 65537 heads; at most 65536 are possible"},
    {{2, 1, 131072},
     {2, 1, 1},
     {2, 1, 1},
     {.heads = 131072, .kv_heads = 1},
     ATTN_TOO_LARGE,
     "",
     "there are 131072 heads; at most 65536 are possible"},
    {{4, 1 << 30, 1 << 30, 1 << 30},
     {4, 1 << 30, 1 << 30, 1 << 30},
     {4, 1, 1, 1},
     {0},
     ATTN_SHAPE_MISMATCH,
     "Q",
     "empty"},
};

static attn_tensor shaped(const size_t sizes[4], const double *data) {
    attn_tensor t = {.data = data, .dtype = ATTN_FLOAT64, .rank = (int)sizes[0]};
    memcpy(t.shape, sizes + 1, 3 * sizeof *sizes);
    return t;
}

Test(errors, name_the_rule_the_argument_and_the_values) {
    static const double data[4096];
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        attn_tensor q = shaped(r->q, data), k = shaped(r->k, data), v = shaped(r->v, data);
        attn_error error = {0};
        attn_plan *plan;
        attn_status status = attn_plan_attention(&plan, &q, &k, &v, &r->options, &error);
        cr_expect_eq(status, r->status, "case %zu: %d: %s", i, status, error.message);
        cr_expect_str_eq(error.argument, r->argument, "case %zu: %s", i, error.message);
        cr_expect_not_null(strstr(error.message, r->contains), "case %zu: %s", i, error.message);
        cr_expect_eq(plan == NULL, r->status != ATTN_OK, "case %zu", i);
        attn_plan_free(plan);
    }
}

/* If the wanted size is 1, the message does not say "not 1 or 1". */
Test(errors, name_a_size_of_one_once) {
    static const double data[4096];
    static const size_t queries[4] = {2, 4, 8}, key[4] = {2, 1, 8};
    const attn_tensor q = shaped(queries, data), k = shaped(key, data);
    const attn_options options = {.bias = &identity2};
    attn_error error = {0};
    attn_plan *plan;
    cr_expect_eq(attn_plan_attention(&plan, &q, &k, &k, &options, &error), ATTN_SHAPE_MISMATCH);
    const char *end = strstr(error.message, "axis ");
    cr_assert_not_null(end, "%s", error.message);
    cr_expect_str_eq(end, "axis 1 (keys) is 2, not 1");
}

Test(errors, may_be_ignored) {
    attn_plan *plan;
    cr_assert_eq(attn_plan_attention(&plan, NULL, &identity2, &identity2, NULL, NULL),
                 ATTN_INVALID_ARGUMENT);
    cr_assert_null(plan);
    attn_plan_free(NULL);
}

Test(errors, x_alone_is_called_x) {
    attn_tensor x = MATRIX(2, 3, 1, 2, 3, 4, 5, 6);
    attn_error error;
    attn_plan *plan;
    cr_assert_eq(attn_plan_attention(&plan, &x, &x, &x, &(attn_options){.heads = 2}, &error),
                 ATTN_SHAPE_MISMATCH);
    cr_assert_str_eq(error.argument, "X");
    cr_assert_not_null(strstr(error.message, "X has 3 columns"));
}

Test(errors, mixed_dtypes_are_refused) {
    const float data[4] = {0};
    const attn_tensor matrix = {.data = data, .dtype = ATTN_FLOAT32, .rank = 2, .shape = {2, 2}};
    const attn_tensor one = {.data = data, .dtype = ATTN_FLOAT32, .rank = 1, .shape = {1}};
    const struct {
        const attn_tensor *k, *v;
        attn_options options;
        const char *argument;
    } cases[] = {
        {&matrix, &identity2, {0}, "K"},
        {&identity2, &matrix, {0}, "V"},
        {&identity2, &identity2, {.bias = &matrix}, "bias"},
        {&identity2, &identity2, {.sink = &one}, "sink"},
        {&identity2, &identity2, {.alibi_slopes = &one}, "alibi"},
        {&identity2, &identity2, {.past_k = &matrix, .past_v = &identity2}, "past_K"},
        {&identity2, &identity2, {.past_k = &identity2, .past_v = &matrix}, "past_V"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_error error = {0};
        attn_plan *plan;
        cr_expect_eq(attn_plan_attention(&plan, &identity2, cases[i].k, cases[i].v,
                                         &cases[i].options, &error),
                     ATTN_INVALID_ARGUMENT, "%s", cases[i].argument);
        cr_expect_str_eq(error.argument, cases[i].argument);
        attn_plan_free(plan);
    }
}

Test(errors, unbound_results_do_not_run) {
    attn_plan *plan;
    attn_error error;
    cr_assert_eq(attn_plan_attention(&plan, &identity2, &identity2, &identity2, NULL, NULL),
                 ATTN_OK);
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_INVALID_ARGUMENT);
    cr_assert_str_eq(error.argument, "output");
    cr_assert_eq(attn_plan_bind(plan, ATTN_RESULT_WEIGHTS, 0, &error), ATTN_INVALID_ARGUMENT);
    cr_assert_eq(attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 1, &error), ATTN_INVALID_ARGUMENT);
    cr_assert_null(attn_plan_tensor(plan, ATTN_RESULT_OUTPUT, 1));
    attn_plan_free(plan);
}

struct overflow {
    float q[2], k[2], v[2], bias;
    unsigned results;
    attn_normalization normalization;
    const char *stage;
};

static const struct overflow overflows[] = {
    {{1e30f, 0}, {1e30f, 1}, {1, 1}, 0, ATTN_WANT(OUTPUT), ATTN_SOFTMAX, "scores"},
    {{-1e30f, 0}, {1e30f, 1}, {1, 1}, 0, ATTN_WANT(OUTPUT), ATTN_SOFTMAX, "scores"},
    {{1e30f, 0}, {1e30f, 1}, {1, 1}, 0, ATTN_WANT(SCORES), ATTN_SOFTMAX, "scores"},
    {{1e19f, 0}, {1e19f, 1}, {1, 1}, 3.4e38f, ATTN_WANT(OUTPUT), ATTN_SOFTMAX, "masked_scores"},
    {{1e30f, 0}, {1, 1}, {1e30f, 1}, 0, ATTN_WANT(OUTPUT), ATTN_UNNORMALIZED, "output"},
};

Test(errors, overflow_names_the_stage) {
    for (size_t i = 0; i < sizeof overflows / sizeof *overflows; i++) {
        const struct overflow *c = &overflows[i];
        attn_tensor q = {.data = c->q, .rank = 2, .shape = {1, 1}};
        attn_tensor k = {.data = c->k, .rank = 2, .shape = {2, 1}};
        attn_tensor v = {.data = c->v, .rank = 2, .shape = {2, 1}};
        attn_tensor bias = {.data = &c->bias, .rank = 2, .shape = {1, 1}};
        attn_options o = {.results = c->results, .normalization = c->normalization, .bias = &bias};
        float out[4];
        attn_error error = {0};
        void *data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_OUTPUT] = out, [ATTN_RESULT_SCORES] = out};
        cr_expect_eq(plan_and_run(&q, &k, &v, &o, data, &error), ATTN_NOT_FINITE, "case %zu", i);
        cr_expect_str_eq(error.argument, c->stage, "case %zu: %s", i, error.message);
        cr_expect_not_null(strstr(error.message, "query 0"), "case %zu: %s", i, error.message);
    }
}

/* A score that overflows to -inf does not forbid its key. The call has more scores than a small
 * call, which would be computed in double. */
Test(errors, overflow_downwards_is_not_nothing_to_attend_to) {
    enum {
        ROWS = 70,
        KEYS = 300
    };
    float x[KEYS], y[KEYS], out[ROWS];
    attn_error error = {0};
    for (size_t i = 0; i < KEYS; i++) {
        x[i] = 1e19f;
        y[i] = -1e19f;
    }
    const attn_tensor q = {.data = x, .rank = 2, .shape = {ROWS, 1}},
                      k = {.data = y, .rank = 2, .shape = {KEYS, 1}};
    const attn_options o = {.flags = ATTN_FLAG_SCALE, .scale = 100, .results = ATTN_WANT(OUTPUT)};
    cr_expect_eq(plan_and_run(&q, &k, &k, &o, (void *[ATTN_RESULT_COUNT]){out}, &error),
                 ATTN_NOT_FINITE);
    cr_expect_not_null(strstr(error.message, "masked_scores is not a finite float32"), "%s",
                       error.message);
}

Test(rules, the_mean_over_heads_of_large_scores_does_not_overflow) {
    const float q[2] = {1e19f, 1e19f}, k[2] = {3e19f, 3e19f};
    float mean[1];
    attn_tensor tq = {.data = q, .rank = 3, .shape = {2, 1, 1}}, tk = tq;
    tk.data = k;
    attn_options o = {.flags = ATTN_FLAG_SCALE | ATTN_FLAG_MEAN_OVER_HEADS,
                      .scale = 1,
                      .normalization = ATTN_UNNORMALIZED,
                      .results = ATTN_WANT(WEIGHTS)};
    void *data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_WEIGHTS] = mean};
    cr_assert_eq(plan_and_run(&tq, &tk, &tk, &o, data, NULL), ATTN_OK);
    cr_assert_float_eq(mean[0], 3e38f, 1e32f);
}

Test(errors, an_overflow_that_nobody_sees_is_none) {
    float q[1] = {1e30f}, k[2] = {0, 1e30f}, v[2] = {3, 4}, out[1];
    attn_tensor tq = {.data = q, .rank = 2, .shape = {1, 1}};
    attn_tensor tk = {.data = k, .rank = 2, .shape = {2, 1}};
    attn_tensor tv = {.data = v, .rank = 2, .shape = {2, 1}};
    attn_options o = {.causal = true};
    cr_assert_eq(plan_and_run(&tq, &tk, &tv, &o, (void *[ATTN_RESULT_COUNT]){out}, NULL), ATTN_OK);
    cr_assert_eq(out[0], 3);
}

/* Past keys and values have the dtype and the rank of a call with projections. */
Test(errors, multihead_names_past_keys_and_values) {
    static const double data[4];
    const attn_tensor x = {.data = data, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {2, 2}};
    const attn_projection head = {.w_q = &x, .w_k = &x, .w_v = &x};
    const attn_multihead call = {.x = &x, .projections = &head, .count = 1};
    attn_tensor narrow = x, deep = x;
    narrow.dtype = ATTN_FLOAT32;
    deep.rank = 3;
    deep.shape[2] = 1;
    const struct {
        const attn_tensor *k, *v;
        attn_status status;
        const char *argument, *message;
    } cases[] = {
        {&narrow, &x, ATTN_INVALID_ARGUMENT, "past_K",
         "past_K must be float64 like the other matrices"},
        {&x, &narrow, ATTN_INVALID_ARGUMENT, "past_V",
         "past_V must be float64 like the other matrices"},
        {&deep, &x, ATTN_SHAPE_MISMATCH, "past_K", "past_K must have rank 2, not 3"},
        {&x, &deep, ATTN_SHAPE_MISMATCH, "past_V", "past_V must have rank 2, not 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attn_options o = {.past_k = cases[i].k, .past_v = cases[i].v};
        attn_error error = {0};
        attn_plan *plan;
        cr_expect_eq(attn_plan_multihead(&plan, &call, &o, &error), cases[i].status, "case %zu", i);
        cr_expect_str_eq(error.argument, cases[i].argument);
        cr_expect_str_eq(error.message, cases[i].message);
    }
}

Test(errors, multihead_names_the_weights) {
    static const double data[64];
    attn_tensor x = {.data = data, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {2, 7}};
    attn_tensor w = {.data = data, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {7, 3}};
    attn_tensor five = {.data = data, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {5, 3}};
    attn_projection heads[2] = {{&w, &w, &w, NULL, NULL, NULL}, {&w, &five, &w, NULL, NULL, NULL}};
    attn_multihead call = {.x = &x, .projections = heads, .count = 2, .per_head = true};
    attn_error error;
    attn_plan *plan;
    cr_assert_eq(attn_plan_multihead(&plan, &call, NULL, &error), ATTN_SHAPE_MISMATCH);
    cr_expect_str_eq(error.argument, "heads/1/W_K");
    cr_expect_not_null(strstr(error.message, "5 rows but X has 7 columns"), "%s", error.message);
    call.count = 1;
    call.w_o = &five;
    cr_assert_eq(attn_plan_multihead(&plan, &call, NULL, &error), ATTN_SHAPE_MISMATCH);
    cr_expect_str_eq(error.argument, "W_O");
    cr_expect_not_null(strstr(error.message, "5 rows but the heads together have 3"));
    call.per_head = false;
    call.w_o = NULL;
    cr_assert_eq(attn_plan_multihead(&plan, &call, &(attn_options){.heads = 2}, &error),
                 ATTN_SHAPE_MISMATCH);
    cr_expect_str_eq(error.argument, "W_Q");
    cr_expect_not_null(strstr(error.message, "3 columns, which is not a multiple of heads = 2"),
                       "%s", error.message);
    const attn_tensor many = {
        .data = data, .dtype = ATTN_FLOAT64, .rank = 3, .shape = {(size_t)1 << 60, 7, 3}};
    call.layout = (attn_layout)3;
    cr_assert_eq(attn_plan_multihead(&plan, &call, NULL, &error), ATTN_INVALID_ARGUMENT);
    cr_expect_str_eq(error.argument, "layout");
    cr_expect_str_eq(error.message, "layout is 3; it must be 0, 1 or 2");
    call.layout = ATTN_PREPACKED;
    call.per_head = true;
    cr_assert_eq(attn_plan_multihead(&plan, &call, NULL, &error), ATTN_INVALID_ARGUMENT);
    cr_expect_str_eq(error.message,
                     "heads with weights of their own cannot have prepacked weights");
    size_t bytes;
    cr_expect_eq(attn_prepack_bytes(&five, ATTN_PREPACKED, &bytes, &error), ATTN_INVALID_ARGUMENT);
    cr_expect_str_eq(error.message, "layout is 2; it must be 0 or 1");
    cr_expect_eq(attn_prepack_bytes(&many, ATTN_IN_OUT, &bytes, &error), ATTN_SHAPE_MISMATCH);
    cr_expect_str_eq(error.argument, "weights");
    _Alignas(ATTN_ALIGNMENT) char buffer[ATTN_ALIGNMENT + 4];
    attn_tensor packed;
    cr_expect_eq(attn_prepack(&five, ATTN_IN_OUT, NULL, &packed, &error), ATTN_INVALID_ARGUMENT);
    cr_expect_eq(attn_prepack(&five, ATTN_IN_OUT, buffer + 4, &packed, &error),
                 ATTN_INVALID_ARGUMENT);
    cr_expect_str_eq(error.argument, "buffer");
    cr_expect_str_eq(error.message, "buffer is not aligned to 64 bytes, or it is NULL");
    static const struct {
        size_t row, rows, column, columns;
        const char *argument, *message;
    } wrong[] = {{0, 5, 1, 100, "column", "multiple of 64"},
                 {0, 5, 64, 66, "column", "of 66 columns"},
                 {0, 5, 0, 100, "column", "multiple of 64"},
                 {0, 5, 128, 64, "column", "the columns 128 to"},
                 {1, 5, 0, 3, "row", "the rows 1 to 6 are no part of 5 rows"},
                 {7, 6, 0, 3, "row", "are no part of 6 rows"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_eq(attn_prepack_part(&five, ATTN_IN_OUT, wrong[i].row, wrong[i].rows,
                                       wrong[i].column, wrong[i].columns, buffer, &error),
                     ATTN_INVALID_ARGUMENT, "row %zu", i);
        cr_expect_str_eq(error.argument, wrong[i].argument);
        cr_expect_not_null(strstr(error.message, wrong[i].message), "%s", error.message);
    }
    call.per_head = false;
    call.layout = ATTN_IN_OUT;
    heads[0].w_v = &many;
    cr_assert_eq(attn_plan_multihead(&plan, &call, NULL, &error), ATTN_TOO_LARGE);
    cr_expect_not_null(strstr(error.message, "1152921504606846976 heads"), "%s", error.message);
}
