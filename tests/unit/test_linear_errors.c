/*
 * test_linear_errors.c - tests the errors of linear attention, when a call is planned and when it
 * runs, and the calls at their limits: empty ones, and the largest ones.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "linear_bounds.h"
#include "test_by_hand.h"

enum {
    TENSORS = 6,
    NUMBERS = 4096
};

static const char *const names[TENSORS] = {"Q", "K", "V", "decay", "beta", "past_state"};
static const double zeros[NUMBERS];

/* The shapes of Q, K, V, decay, beta and past_state; "-" stands for none. */
struct shapes {
    attn_tensor t[TENSORS];
    bool given[TENSORS];
};

static struct shapes parse_shapes(const char *text) {
    struct shapes s = {0};
    char *end;
    for (size_t i = 0; i < TENSORS; i++, text += *text == ' ') {
        s.t[i] = (attn_tensor){.data = zeros, .dtype = ATTN_FLOAT64};
        s.given[i] = *text != '-' && *text != '\0';
        text += *text == '-';
        while (*text >= '0' && *text <= '9') {
            s.t[i].shape[s.t[i].rank++] = strtoull(text, &end, 10);
            text = end + (*end == ',');
        }
    }
    return s;
}

/* Plans the call of these shapes. */
static attn_status plan_shapes(attn_plan **plan, const struct shapes *s, attn_update update,
                               const attn_options *options, attn_error *error) {
    const attn_tensor *t[TENSORS];
    attn_options o = options == NULL ? (attn_options){0} : *options;
    for (size_t i = 0; i < TENSORS; i++) {
        t[i] = s->given[i] ? &s->t[i] : NULL;
    }
    o.decay = t[3];
    return attn_plan_linear(
        plan,
        &(attn_linear){
            .q = t[0], .k = t[1], .v = t[2], .beta = t[4], .past_state = t[5], .update = update},
        &o, error);
}

struct refusal {
    const char *shapes;
    attn_update update;
    attn_options options;
    struct verdict verdict;
};

static void expect_plan(size_t number, const struct shapes *s, attn_update update,
                        const attn_options *options, const struct verdict *verdict) {
    attn_plan *plan;
    attn_error error = {0};
    const attn_status status = plan_shapes(&plan, s, update, options, &error);
    expect_verdict(number, verdict, status, plan, &error);
}

#define BAD(shapes_, update_, status_, argument_, contains_, ...)                                  \
    {                                                                                              \
        shapes_, update_, __VA_ARGS__, {                                                           \
            ATTN_##status_, argument_, contains_                                                   \
        }                                                                                          \
    }
#define GOOD(shapes_, ...) BAD(shapes_, ATTN_UPDATE_AS_GIVEN, OK, "", "", __VA_ARGS__)
#define WRONG(shapes_, argument_, contains_, ...)                                                  \
    BAD(shapes_, ATTN_UPDATE_AS_GIVEN, SHAPE_MISMATCH, argument_, contains_, __VA_ARGS__)
#define REFUSED(shapes_, argument_, contains_, ...)                                                \
    BAD(shapes_, ATTN_UPDATE_AS_GIVEN, INVALID_ARGUMENT, argument_, contains_, __VA_ARGS__)

static const double two_scales[] = {1, -2}, not_a_scale[] = {NAN};
static const size_t lengths_5_0[] = {5, 0}, lengths_6[] = {0, 6};
static const attn_sequences no_lengths = {0}, of_5 = {2, (const size_t[]){2, 3}, NULL},
                            of_6 = {2, (const size_t[]){2, 4}, NULL},
                            same_keys = {2, (const size_t[]){2, 3}, (const size_t[]){2, 3}},
                            other_keys = {2, (const size_t[]){2, 3}, (const size_t[]){3, 2}},
                            too_many = {ATTN_MAX_SEQUENCES + 1, (const size_t[]){2, 3}, NULL},
                            endless = {2, (const size_t[]){SIZE_MAX, 6}, NULL};

static const struct refusal refusals[] = {
    /* The forms. */
    GOOD("5,8 5,8 5,3 5 5 8,3", {0}),
    GOOD("5,8 5,8 5,3 5,8 1 8,3", {0}),
    GOOD("2,5,8 2,5,8 2,5,3 2,5 5 2,8,3", {0}),
    GOOD("2,5,8 2,5,8 2,5,3 2 1,5 2,8,3", {0}),
    GOOD("2,5,8 2,5,8 2,5,3 2,1,8 2,1 2,8,3", {0}),
    GOOD("5,8 2,5,8 2,5,3 1,5 1,1 2,8,3", {0}),
    GOOD("3,2,5,8 5,8 2,5,3 3,2,5,8 1,2,5 3,2,8,3", {0}),
    GOOD("3,2,5,8 5,8 2,5,3 2 5 2,8,3", {0}),
    GOOD("3,1,2,5,8 1,1,2,5,8 2,5,3 1,1,2,5,8 3,1,2,5 3,1,2,8,3", {0}),
    GOOD("5,16 5,16 5,6 5,2 5 2,8,3", {.heads = 2}),
    GOOD("3,5,32 3,5,16 5,12 1,5,32 3,5,1 4,8,3", {.heads = 4}),
    GOOD("3,5,16 3,5,8 5,12 4 3,1,4 3,4,8,3", {.heads = 2, .kv_heads = 4}),
    GOOD("5,8 5,8 5,3 5 5 2,8,3", {.sequences = &of_5}),
    GOOD("5,16 5,16 5,6 5,16 5,1 2,2,8,3", {.heads = 2, .sequences = &same_keys}),
    GOOD("5,2,8 5,1,8 5,2,3 5,2,8 5,2 2,2,8,3", {.sequences = &of_5}),
    GOOD("5,2,8 5,1,8 5,2,3 5,1,8 5,1 2,2,8,3", {.sequences = &of_5}),
    GOOD("5,2,8 5,1,8 5,2,3 1,2,8 1,2 2,2,8,3", {.sequences = &of_5}),
    GOOD("5,2,8 5,1,8 5,2,3 5,2,1 5,1,1 2,2,8,3", {.sequences = &of_5}),
    GOOD("5,5,8 5,1,8 5,5,3 5,5,1 5,5,1 2,5,8,3", {.sequences = &of_5}),
    GOOD("5,40 5,40 5,5 5,40 5,5,1 5,8,1", {.heads = 5}),
    /* Axes of 1 that the call does not have stand in front. */
    GOOD("5,8 5,8 5,3 1,5 1,5 8,3", {0}),
    GOOD("5,8 5,8 5,3 1,5,8 1,1,5 8,3", {0}),
    GOOD("2,5,8 2,5,8 2,5,3 1,2,5,8 1,2,5 2,8,3", {0}),
    GOOD("5,16 5,16 5,6 1,5,16 1,5,2 2,8,3", {.heads = 2}),
    GOOD("2,5,8 2,5,8 2,5,3 - - -", {.lengths = lengths_5_0, .lengths_count = 1}),
    GOOD("2,1,5,8 2,1,5,8 2,1,5,3 - - -", {.lengths = lengths_5_0, .lengths_count = 2}),
    GOOD("2,5,8 2,5,8 2,5,3 - - -", {.scales = two_scales, .scales_count = 2}),
    /* Missing and empty matrices. */
    REFUSED("- 5,8 5,3", "Q", "missing", {0}),
    REFUSED("5,8 - 5,3", "K", "missing", {0}),
    REFUSED("5,8 5,8 -", "V", "missing", {0}),
    WRONG("5,0 5,0 5,3", "Q", "is empty", {0}),
    WRONG("5,8 5,8 5,0", "V", "is empty", {0}),
    WRONG("8 5,8 5,3", "Q", "rank", {0}),
    /* The rows and the heads. */
    WRONG("5,8 6,8 6,3", "K", "6 rows but Q has 5", {0}),
    WRONG("5,8 5,8 6,3", "V", "6 rows but K has 5", {0}),
    WRONG("5,8 5,7 5,3", "K", "7 columns but Q has 8", {0}),
    WRONG("4,5,8 3,5,8 3,5,3", "K", "multiple", {0}),
    WRONG("2,5,8 3,5,8 3,5,3", "Q", "multiple", {0}),
    WRONG("6,5,8 2,5,8 3,5,3", "K", "K has 2 and V has 3", {0}),
    WRONG("6,5,8 3,5,8 2,5,3", "V", "K has 3 and V has 2", {0}),
    REFUSED("5,32 5,16 5,9", "kv_heads", "heads = 4 and kv_heads = 3", {.heads = 4, .kv_heads = 3}),
    REFUSED("5,32 5,16 5,9", "kv_heads", "needs heads", {.kv_heads = 3}),
    WRONG("5,33 5,16 5,6", "Q", "33 columns", {.heads = 2}),
    WRONG("5,16 5,17 5,6", "K", "17 columns", {.heads = 2}),
    WRONG("5,16 5,16 5,7", "V", "not a multiple of heads = 2", {.heads = 2}),
    WRONG("5,16 5,16 5,7", "V", "not a multiple of kv_heads = 4", {.heads = 2, .kv_heads = 4}),
    WRONG("5,24 5,40 5,18", "K", "it has heads = 3 heads, or a multiple or divisor", {.heads = 3}),
    WRONG("5,16 5,32 5,18", "K", "kv_heads = 6 heads, or a multiple or divisor",
          {.heads = 2, .kv_heads = 6}),
    REFUSED("5,2,8 5,2,8 5,2,3", "heads", "its heads are an axis",
            {.heads = 2, .sequences = &of_5}),
    WRONG("1,2,5,8 1,2,5,8 1,2,5,3", "Q", "no batch axis", {.sequences = &of_5}),
    /* Lists of gates. */
    WRONG("2,5,8 2,5,8 2,5,3 3", "decay", "3 numbers", {0}),
    WRONG("2,5,8 2,5,8 2,5,3 - 4", "beta", "4 numbers", {0}),
    WRONG("5,5,8 5,5,8 5,5,3 5", "decay", "as many heads as positions", {0}),
    WRONG("5,5,8 5,5,8 5,5,3 - 5", "beta", "as many heads as positions", {0}),
    WRONG("2,5,8 2,5,8 2,5,3 - 2,5,8", "beta", "(2, 5, 8)", {0}),
    WRONG("5,16 5,16 5,6 5,15", "decay", "(5, 15)", {.heads = 2}),
    WRONG("5,16 5,16 5,6 - 5,16", "beta", "(5, 16)", {.heads = 2}),
    WRONG("5,16 5,16 5,6 2,5", "decay", "(2, 5)", {.heads = 2}),
    WRONG("3,2,5,8 3,2,5,8 3,2,5,3 2,5", "decay", "(2, 5)", {0}),
    WRONG("5,2,8 5,2,8 5,2,3 5,8,2", "decay", "(5, 8, 2), not (5, 2), or by column (5, 2, 8)",
          {.sequences = &of_5}),
    WRONG("5,2,8 5,2,8 5,2,3 5,1,2", "decay", "(5, 1, 2)", {.sequences = &of_5}),
    WRONG("5,2,8 5,2,8 5,2,3 5,2,3", "decay", "(5, 2, 3)", {.sequences = &of_5}),
    WRONG("5,2,8 5,2,8 5,2,3 2,5", "decay", "the heads follow the positions", {.sequences = &of_5}),
    WRONG("5,2,8 5,2,8 5,2,3 - 2,5,1", "beta", "the heads follow", {.sequences = &of_5}),
    WRONG("2,5,8 2,5,8 2,5,3 - 2,5,1", "beta", "(2, 5, 1)", {0}),
    WRONG("5,5,8 5,5,8 5,5,3 5,5", "decay", "give it the shape (5, 5, 1)", {.sequences = &of_5}),
    WRONG("5,5,8 5,5,8 5,5,3 - 5,5", "beta", "give it the shape (5, 5, 1)", {.sequences = &of_5}),
    WRONG("5,5,8 5,5,8 5,5,3 5,5,8", "decay", "give it the shape (5, 40)", {.sequences = &of_5}),
    WRONG("3,5,40 3,5,40 3,5,15 1,5,5", "decay", "the shape (1, 5, 5, 1)", {.heads = 5}),
    WRONG("1,5,8 1,5,8 1,5,3 1,1,8,5", "decay", "(1, 1, 8, 5)", {0}),
    WRONG("5,8 5,8 5,3 2,5", "decay", "(2, 5)", {0}),
    WRONG("2,5,8 2,5,8 2,5,3 1,2", "decay", "(1, 2)", {0}),
    /* The state. */
    WRONG("2,5,8 2,5,8 2,5,3 - - 2,3,8", "past_state", "(2, 3, 8), not (2, 8, 3)", {0}),
    WRONG("2,5,8 2,5,8 2,5,3 - - 8,3", "past_state", "(8, 3), not (2, 8, 3)", {0}),
    WRONG("3,2,5,8 3,2,5,8 3,2,5,3 - - 3,2,3,8", "past_state", "exchanged", {0}),
    WRONG("3,2,5,8 3,2,5,8 3,2,5,3 - - 1,2,8,3", "past_state", "not (3, 2, 8, 3)", {0}),
    WRONG("5,16 5,16 5,6 - - 2,8,3", "past_state", "not (2, 2, 8, 3)",
          {.heads = 2, .sequences = &of_5}),
    /* Lengths and sequences. */
    WRONG("2,1,5,8 2,1,5,8 2,1,5,3", "lengths", "2 batch items",
          {.lengths = lengths_5_0, .lengths_count = 1}),
    REFUSED("2,1,5,8 2,1,5,8 2,1,5,3", "lengths",
            "lengths[1] is 6, but the number of positions is 5",
            {.lengths = lengths_6, .lengths_count = 2}),
    REFUSED("5,8 5,8 5,3", "lengths", "sequences",
            {.lengths = lengths_5_0, .lengths_count = 1, .sequences = &of_5}),
    REFUSED("5,8 5,8 5,3", "sequences", "no lengths", {.sequences = &no_lengths}),
    WRONG("5,8 5,8 5,3", "sequences", "6 rows together, but Q has 5", {.sequences = &of_6}),
    REFUSED("5,8 5,8 5,3", "sequences", "in linear attention they are equal",
            {.sequences = &other_keys}),
    BAD("5,8 5,8 5,3", ATTN_UPDATE_AS_GIVEN, TOO_LARGE, "sequences", "at most 65536",
        {.sequences = &too_many}),
    BAD("5,8 5,8 5,3", ATTN_UPDATE_AS_GIVEN, TOO_LARGE, "", "", {.sequences = &endless}),
    REFUSED("5,8 5,8 5,3", "results", "weights is not possible with sequences",
            {.sequences = &of_5, .results = ATTN_WANT(WEIGHTS)}),
    REFUSED("5,8 5,8 5,3", "results", "states is not possible with sequences",
            {.sequences = &of_5, .results = ATTN_WANT(OUTPUT) | ATTN_WANT(STATES)}),
    GOOD("2,1,1,2,1,5,8 5,8 5,3", {.results = ATTN_WANT(STATES)}),
    GOOD("2,1,1,1,2,1,5,8 5,8 5,3", {0}),
    BAD("2,1,1,1,2,1,5,8 5,8 5,3", ATTN_UPDATE_AS_GIVEN, TOO_LARGE, "results", "at most 4, not 5",
        {.results = ATTN_WANT(STATES)}),
    /* Scales and the epsilon. */
    REFUSED("5,8 5,8 5,3", "scale", "finite", {.flags = ATTN_FLAG_SCALE, .scale = INFINITY}),
    REFUSED("5,8 5,8 5,3", "scale", "scale[0] is nan", {.scales = not_a_scale, .scales_count = 1}),
    WRONG("5,8 5,8 5,3", "scale", "2 numbers", {.scales = two_scales, .scales_count = 2}),
    REFUSED("5,8 5,8 5,3", "norm_epsilon", "-1", {.norm_epsilon = -1}),
    REFUSED("5,8 5,8 5,3", "norm_epsilon", "nan", {.norm_epsilon = NAN}),
    REFUSED("5,8 5,8 5,3", "flags", "0x", {.flags = 1u << 30}),
    REFUSED("5,8 5,8 5,3", "results", "0x", {.results = UINT64_C(1) << 63}),
    REFUSED("5,8 5,8 5,3", "results", "decays needs decay", {.results = ATTN_WANT(DECAYS)}),
    /* The updates. */
    BAD("5,8 5,8 5,3 5", ATTN_LINEAR, INVALID_ARGUMENT, "decay", "\"linear\" has no decay", {0}),
    BAD("5,8 5,8 5,3 - 5", ATTN_LINEAR, INVALID_ARGUMENT, "beta", "\"linear\" has no beta", {0}),
    BAD("5,8 5,8 5,3", ATTN_GATED, INVALID_ARGUMENT, "decay", "\"gated\" needs decay", {0}),
    BAD("5,8 5,8 5,3 5 5", ATTN_GATED, INVALID_ARGUMENT, "beta", "\"gated\" has no beta", {0}),
    BAD("5,8 5,8 5,3", ATTN_DELTA, INVALID_ARGUMENT, "beta", "\"delta\" needs beta", {0}),
    BAD("5,8 5,8 5,3 5 5", ATTN_DELTA, INVALID_ARGUMENT, "decay", "\"delta\" has no decay", {0}),
    BAD("5,8 5,8 5,3 - 5", ATTN_GATED_DELTA, INVALID_ARGUMENT, "decay",
        "\"gated_delta\" needs decay", {0}),
    BAD("5,8 5,8 5,3 5", ATTN_GATED_DELTA, INVALID_ARGUMENT, "beta", "\"gated_delta\" needs beta",
        {0}),
    BAD("5,8 5,8 5,3", (attn_update)5, INVALID_ARGUMENT, "update", "update is 5; it must be 0 to 4",
        {0}),
    /* The limits. */
    GOOD("1,4096 1,4096 1,1", {0}),
    BAD("1,4097 1,4097 1,1", ATTN_UPDATE_AS_GIVEN, TOO_LARGE, "K", "4097 columns", {0}),
    GOOD("32768,1 32768,1 32768,1", {.results = ATTN_WANT(WEIGHTS)}),
    BAD("32769,1 32769,1 32769,1", ATTN_UPDATE_AS_GIVEN, TOO_LARGE, "results",
        "at most 32768 positions, not 32769", {.results = ATTN_WANT(WEIGHTS)}),
    GOOD("32769,1 32769,1 32769,1", {0}),
};

Test(linear_errors, name_the_rule_and_the_values) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        const struct shapes s = parse_shapes(r->shapes);
        expect_plan(i, &s, r->update, &r->options, &r->verdict);
    }
}

/* Each size of each tensor is made larger by one, and smaller by one. */
Test(linear_errors, of_each_size) {
    static const char good[] = "2,4,5,8 2,2,5,8 2,2,5,3 2,2,5,8 2,2,5 2,2,8,3";
    /* A size of 1 is shared: those of a batch axis, of heads, and of rows of gates. */
    static const int shared[TENSORS] = {1, 3, 3, 3, 3, 0};
    for (size_t t = 0; t < TENSORS; t++) {
        for (int axis = 0; axis < parse_shapes(good).t[t].rank; axis++) {
            for (size_t more = 0; more < 3; more += 2) {
                struct shapes s = parse_shapes(good);
                size_t *size = &s.t[t].shape[axis];
                *size += more - 1;
                const bool is_shared = axis < 2 && *size == 1 && (shared[t] >> axis & 1) != 0;
                attn_plan *plan;
                attn_error error = {0};
                const attn_status status = plan_shapes(&plan, &s, ATTN_GATED_DELTA, NULL, &error);
                cr_expect_eq(status, is_shared ? ATTN_OK : ATTN_SHAPE_MISMATCH,
                             "%s, axis %d is %zu: %d %s", names[t], axis, *size, status,
                             error.message);
                cr_expect_eq(error.argument[0] == '\0', is_shared, "%s", error.argument);
                attn_plan_free(plan);
            }
        }
    }
}

Test(linear_errors, of_each_dtype) {
    for (size_t t = 0; t < TENSORS; t++) {
        struct shapes s = parse_shapes("2,4,5,8 2,2,5,8 2,2,5,3 2,2,5,8 2,2,5 2,2,8,3");
        s.t[t].dtype = ATTN_FLOAT32;
        expect_plan(t, &s, ATTN_UPDATE_AS_GIVEN, NULL,
                    &(struct verdict){ATTN_INVALID_ARGUMENT, t == 0 ? "K" : names[t],
                                      t == 0 ? "float32" : "float64"});
        s.t[t].dtype = ATTN_INT64;
        expect_plan(t, &s, ATTN_UPDATE_AS_GIVEN, NULL,
                    &(struct verdict){ATTN_INVALID_ARGUMENT, names[t], "float"});
    }
}

Test(linear_errors, of_options_without_a_meaning) {
    const struct shapes s = parse_shapes("5,8 5,8 5,3");
    const attn_tensor *x = &s.t[0];
    const attn_upstream lse = {.lse = x}, weights = {.weights = x};
    const attn_rotary rotary = {0};
    const struct {
        const char *name;
        attn_options options;
    } cases[] = {
        {"mask", {.mask = x}},
        {"bias", {.bias = x}},
        {"key_padding", {.key_padding = x}},
        {"past_K", {.past_k = x, .past_v = x}},
        {"past_V", {.past_v = x}},
        {"softcap", {.softcap = 1}},
        {"sink", {.sink = x}},
        {"window", {.flags = ATTN_FLAG_WINDOW, .window = {1, 1}}},
        {"alibi", {.flags = ATTN_FLAG_ALIBI}},
        {"alibi", {.alibi_slopes = x}},
        {"normalization", {.normalization = ATTN_UNNORMALIZED}},
        {"normalization", {.normalization = ATTN_SIGMOID, .sigmoid_bias = 1}},
        {"normalization", {.normalization = ATTN_STICK_BREAKING}},
        {"top_k", {.top_k = 1}},
        {"mean_over_heads", {.flags = ATTN_FLAG_MEAN_OVER_HEADS}},
        {"alignment", {.flags = ATTN_FLAG_BOTTOM_RIGHT, .causal = true}},
        {"rotary", {.rotary = &rotary}},
        {"norm_Q", {.norm_q = x}},
        {"norm_K", {.norm_k = x}},
        {"b_Q", {.b_q = x}},
        {"b_K", {.b_k = x}},
        {"b_V", {.b_v = x}},
        {"compute_dtype", {.compute_dtype = ATTN_COMPUTE_FLOAT16}},
        {"grad_lse", {.upstream = &lse}},
        {"grad_weights", {.upstream = &weights}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_plan(i, &s, ATTN_UPDATE_AS_GIVEN, &cases[i].options,
                    &(struct verdict){ATTN_INVALID_ARGUMENT, cases[i].name, cases[i].name});
    }
}

/* The last two axes of a state can only be exchanged if they differ. */
Test(linear_errors, of_a_square_state_name_no_exchange) {
    static const char *const shapes[] = {"5,8 5,8 5,8 - - 3,8,8", "2,5,8 2,5,8 2,5,8 - - 3,8,8",
                                         "5,8 5,8 5,3 - - 3,8"};
    for (size_t i = 0; i < 3; i++) {
        const struct shapes s = parse_shapes(shapes[i]);
        attn_plan *plan;
        attn_error error = {0};
        cr_expect_eq(plan_shapes(&plan, &s, ATTN_UPDATE_AS_GIVEN, NULL, &error),
                     ATTN_SHAPE_MISMATCH);
        cr_expect_str_eq(error.argument, "past_state");
        cr_expect_eq(strstr(error.message, "exchanged") != NULL, i == 2, "%s", error.message);
    }
}

Test(linear_errors, of_results_that_do_not_exist) {
    const struct shapes s = parse_shapes("5,8 5,8 5,3 5 5 8,3");
    const attn_upstream up = {.output = &s.t[2]};
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        bool exists = false;
        const attn_options o = {.results = ATTN_WANT(OUTPUT) | UINT64_C(1) << r,
                                .upstream = r >= ATTN_RESULT_GRAD_Q ? &up : NULL};
#define EXISTS(name) exists |= r == ATTN_RESULT_##name;
        LINEAR_RESULT_MAP(EXISTS)
#undef EXISTS
        const struct verdict refused = {ATTN_INVALID_ARGUMENT, "results",
                                        attn_result_name((attn_result)r)};
        expect_plan((size_t)r, &s, ATTN_UPDATE_AS_GIVEN, &o,
                    exists ? &(struct verdict){ATTN_OK, "", ""} : &refused);
    }
}

/* States belong to linear attention only. */
Test(linear_errors, of_states_of_other_attention) {
    const uint64_t results[] = {ATTN_WANT(PRESENT_STATE), ATTN_WANT(STATES), ATTN_WANT(DECAYS),
                                ATTN_WANT(GRAD_BETA), ATTN_WANT(GRAD_PAST_STATE)};
    for (size_t i = 0; i < 5; i++) {
        const attn_options o = {.results = results[i]};
        attn_plan *plan;
        attn_error error = {0};
        const attn_status status =
            attn_plan_attention(&plan, &identity2, &identity2, &identity2, &o, &error);
        expect_verdict(i,
                       &(struct verdict){ATTN_INVALID_ARGUMENT, "results", "linear attention only"},
                       status, plan, &error);
    }
}

/* Gradients need a loss and an input, and have shapes. */
Test(linear_errors, of_gradients) {
    const struct shapes plain = parse_shapes("5,8 5,8 5,3"),
                        all = parse_shapes("5,8 5,8 5,3 5 5 8,3");
    const attn_tensor *v = &plain.t[2], *past = &all.t[5];
    const attn_upstream output = {.output = v}, wide = {.output = &plain.t[0]},
                        state = {.state = past}, turned = {.state = v}, none = {0},
                        both = {.output = v, .state = past};
    const uint64_t every = ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V) |
                           ATTN_WANT(GRAD_DECAY) | ATTN_WANT(GRAD_BETA) |
                           ATTN_WANT(GRAD_PAST_STATE);
#define REFUSE(result, up, argument, contains)                                                     \
    {                                                                                              \
        &plain, ATTN_WANT(result), up, {                                                           \
            ATTN_INVALID_ARGUMENT, argument, contains                                              \
        }                                                                                          \
    }
    const struct {
        const struct shapes *s;
        uint64_t results;
        const attn_upstream *up;
        struct verdict verdict;
    } cases[] = {
        {&all, every, &both, {ATTN_OK, "", ""}},
        {&plain, ATTN_WANT(GRAD_Q), &state, {ATTN_OK, "", ""}},
        REFUSE(GRAD_Q, NULL, "grad_output", "need grad_output or grad_present_state"),
        REFUSE(GRAD_Q, &none, "grad_output", "need grad_output or grad_present_state"),
        REFUSE(OUTPUT, &output, "results", "need a result such as grad_Q"),
        REFUSE(GRAD_DECAY, &output, "results", "grad_decay needs decay"),
        REFUSE(GRAD_BETA, &output, "results", "grad_beta needs beta"),
        REFUSE(GRAD_PAST_STATE, &output, "results", "grad_past_state needs past_state"),
        {&plain, ATTN_WANT(GRAD_V), &wide, {ATTN_SHAPE_MISMATCH, "grad_output", "(5, 3)"}},
        {&plain, ATTN_WANT(GRAD_V), &turned, {ATTN_SHAPE_MISMATCH, "grad_present_state", "(8, 3)"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attn_options o = {.results = cases[i].results, .upstream = cases[i].up};
        expect_plan(i, cases[i].s, ATTN_UPDATE_AS_GIVEN, &o, &cases[i].verdict);
    }
    attn_plan *plan;
    attn_error error = {0};
    const attn_upstream up = {.output = &identity2, .state = &identity2};
    const attn_options o = {.results = ATTN_WANT(GRAD_Q), .upstream = &up};
    const attn_status status =
        attn_plan_attention(&plan, &identity2, &identity2, &identity2, &o, &error);
    expect_verdict(
        0, &(struct verdict){ATTN_INVALID_ARGUMENT, "grad_present_state", "needs linear attention"},
        status, plan, &error);
}

/* ------------------------------------------------------------------------------ errors of a run */

/* One number of decay or beta at run time. */
struct bad_number {
    const char *shapes;
    size_t tensor, at;
    double number;
    attn_options options;
    const char *place;
};

static void expect_bad_number(size_t number, const struct bad_number *bad, uint64_t results) {
    struct shapes s = parse_shapes(bad->shapes);
    static double copy[NUMBERS];
    memset(copy, 0, sizeof copy);
    copy[bad->at] = bad->number;
    s.t[bad->tensor].data = copy;
    attn_options o = bad->options;
    o.results = results;
    attn_plan *plan;
    attn_error error = {0};
    cr_assert_eq(plan_shapes(&plan, &s, ATTN_UPDATE_AS_GIVEN, &o, &error), ATTN_OK, "%s",
                 error.message);
    struct results r = run_linear_plan(plan, NULL);
    cr_expect_eq(r.status, ATTN_INVALID_ARGUMENT, "case %zu: %d", number, r.status);
    cr_expect_str_eq(r.error.argument, names[bad->tensor], "case %zu: %s", number, r.error.message);
    char place[100];
    snprintf(place, sizeof place, "%s is %g at %s:", names[bad->tensor], bad->number, bad->place);
    cr_expect_not_null(strstr(r.error.message, place), "case %zu: %s", number, r.error.message);
    free_results(&r);
}

static const attn_sequences gap = {3, (const size_t[]){2, 0, 3}, NULL};

static const struct bad_number bad_numbers[] = {
    {"3,2,5,8 2,5,8 2,5,3 3,2,5", 3, 19, 0.5, {0}, "batch item 1, head 1, position 4"},
    {"3,2,5,8 2,5,8 2,5,3 3,2,5", 3, 0, NAN, {0}, "batch item 0, head 0, position 0"},
    {"3,2,5,8 2,5,8 2,5,3 3,2,5,8", 3, 85, 1e-9, {0}, "batch item 1, head 0, position 0"},
    {"3,2,5,8 2,5,8 2,5,3 2", 3, 1, INFINITY, {0}, "batch item 0, head 1, position 0"},
    {"3,2,5,8 2,5,8 2,5,3 - 3,2,5", 4, 19, INFINITY, {0}, "batch item 1, head 1, position 4"},
    {"3,2,5,8 2,5,8 2,5,3 - 5", 4, 2, NAN, {0}, "batch item 0, head 0, position 2"},
    {"3,5,16 5,16 5,6 3,5,2", 3, 19, 2, {.heads = 2}, "batch item 1, head 1, position 4"},
    {"3,5,16 5,16 5,6 - 3,5,2", 4, 19, -INFINITY, {.heads = 2}, "batch item 1, head 1, position 4"},
    {"5,8 5,8 5,3 5", 3, 3, 2, {.sequences = &gap}, "sequence 2, head 0, position 1"},
    {"5,2,8 5,2,8 5,2,3 5,2 5,2", 4, 3, NAN, {.sequences = &gap}, "sequence 0, head 1, position 1"},
};

Test(linear_errors, of_a_run_name_the_place) {
    for (size_t i = 0; i < sizeof bad_numbers / sizeof *bad_numbers; i++) {
        expect_bad_number(i, &bad_numbers[i], ATTN_WANT(OUTPUT));
        expect_bad_number(i, &bad_numbers[i], ATTN_WANT(PRESENT_STATE));
    }
}

/* Numbers behind a length are not looked at. */
Test(linear_errors, of_a_run_are_not_behind_a_length) {
    struct shapes s = parse_shapes("5,8 5,8 5,3 5 5");
    const double decay[] = {-1, -1, -1, 1, NAN}, beta[] = {1, 1, 1, INFINITY, NAN};
    const size_t length = 3;
    s.t[3].data = decay;
    s.t[4].data = beta;
    const attn_options o = {
        .lengths = &length, .lengths_count = 1, .results = ATTN_WANT(DECAYS) | ATTN_WANT(OUTPUT)};
    attn_plan *plan;
    cr_assert_eq(plan_shapes(&plan, &s, ATTN_GATED_DELTA, &o, NULL), ATTN_OK);
    struct results r = run_linear_plan(plan, NULL);
    cr_assert_eq(r.status, ATTN_OK, "%s", r.error.message);
    cr_expect_eq(r.of[ATTN_RESULT_DECAYS][3], 0);
    cr_expect_eq(r.of[ATTN_RESULT_DECAYS][4], 0);
    free_results(&r);
}

/* ---------------------------------------------------------------------------------- empty calls */

/* Runs a call without positions, and compares present_state with `want`, or with zeros. */
static void expect_empty(size_t number, const char *shapes, const attn_options *options,
                         const double *past, const double *want, size_t states) {
    struct shapes s = parse_shapes(shapes);
    s.t[5].data = past;
    attn_options o = *options;
    o.results = ATTN_WANT(OUTPUT) | ATTN_WANT(PRESENT_STATE);
    o.results |= o.sequences == NULL ? ATTN_WANT(WEIGHTS) | ATTN_WANT(STATES) : 0;
    o.results |= s.given[3] ? ATTN_WANT(DECAYS) : 0;
    attn_plan *plan;
    attn_error error = {0};
    cr_assert_eq(plan_shapes(&plan, &s, ATTN_UPDATE_AS_GIVEN, &o, &error), ATTN_OK, "case %zu: %s",
                 number, error.message);
    struct results r = run_linear_plan(plan, NULL);
    cr_assert_eq(r.status, ATTN_OK, "case %zu: %s", number, r.error.message);
    cr_expect_eq(r.count[ATTN_RESULT_OUTPUT], 0, "case %zu", number);
    cr_expect_eq(r.count[ATTN_RESULT_PRESENT_STATE], states, "case %zu: %zu", number,
                 r.count[ATTN_RESULT_PRESENT_STATE]);
    for (size_t i = 0; i < states; i++) {
        const double is = r.of[ATTN_RESULT_PRESENT_STATE][i];
        cr_expect_eq(is, want == NULL ? 0 : want[i], "case %zu: %g", number, is);
    }
    free_results(&r);
}

Test(linear_errors, empty_calls_have_none) {
    static const size_t no_rows[3] = {0};
    static const attn_sequences empty = {3, no_rows, NULL};
    double past[64], twice[64];
    for (size_t i = 0; i < 64; i++) {
        past[i] = (double)(i + 1) / 8;
        twice[i] = past[i % 24];
    }
    expect_empty(0, "0,8 0,8 0,3 0 0 8,3", &(attn_options){0}, past, past, 24);
    expect_empty(1, "0,8 0,8 0,3", &(attn_options){0}, NULL, NULL, 24);
    expect_empty(2, "2,0,8 2,0,8 2,0,3 2,0,8 2,0 2,8,3", &(attn_options){0}, past, past, 48);
    expect_empty(3, "2,1,0,8 2,1,0,8 2,1,0,3 - - 1,8,3", &(attn_options){0}, past, twice, 48);
    expect_empty(4, "0,2,5,8 0,2,5,8 0,2,5,3 1,2,5 - 2,8,3", &(attn_options){0}, past, past, 0);
    expect_empty(5, "0,16 0,16 0,6 0,2 0,2 2,8,3", &(attn_options){.heads = 2}, past, past, 48);
    expect_empty(6, "0,4 0,4 0,3 - - 3,4,3", &(attn_options){.sequences = &empty}, past, past, 36);
    expect_empty(7, "0,2,2 0,2,2 0,2,3 - - 3,2,2,3", &(attn_options){.sequences = &empty}, past,
                 past, 36);
    expect_empty(8, "0,5,16 0,5,16 5,6 2 5", &(attn_options){.heads = 2}, past, past, 0);
}
