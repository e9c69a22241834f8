/*
 * test_attention_errors.c - tests the errors of the library. Each names the rule, the argument and
 * the values.
 */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test_by_hand.h"

struct refusal {
    const char *shapes; /* of Q, K and V */
    attn_options options;
    attn_status status;
    const char *argument, *contains;
};

static const size_t three_lengths[3] = {1, 1, 1}, long_length[1] = {9};

static const unsigned char existing[10] = {0};
static const double zeros[64], two_scales[] = {1, -2}, not_a_scale[] = {NAN};
static const attn_tensor zeros_4_8 = {
    .data = zeros, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {4, 8}};
static const attn_tensor zeros_4 = {.data = zeros, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {4}};
static const attn_tensor no_data = {.dtype = ATTN_FLOAT64, .rank = 2, .shape = {4, 8}};
static const attn_tensor floats_4_8 = {
    .data = zeros, .dtype = ATTN_FLOAT32, .rank = 2, .shape = {4, 8}};
static const attn_upstream none = {0}, of_output = {.output = &zeros_4_8},
                           of_lse = {.lse = &zeros_4}, of_nothing = {.output = &no_data},
                           of_floats = {.output = &floats_4_8}, wrong_output = {.output = &zeros_4},
                           wrong_lse = {.lse = &zeros_4_8}, wrong_weights = {.weights = &zeros_4_8};
static const attn_tensor
    two_numbers = {.data = (const double[]){1, 2}, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {2}},
    padding_of_5 = {.data = existing, .dtype = ATTN_BOOL, .rank = 1, .shape = {5}},
    padding_1_5 = {.data = existing, .dtype = ATTN_BOOL, .rank = 2, .shape = {1, 5}},
    padding_2_5 = {.data = existing, .dtype = ATTN_BOOL, .rank = 2, .shape = {2, 5}},
    padding_1_1 = {.data = existing, .dtype = ATTN_BOOL, .rank = 2, .shape = {1, 1}},
    narrow = {.data = (const float[4]){0}, .dtype = ATTN_FLOAT32, .rank = 2, .shape = {2, 2}},
    narrow_one = {.data = (const float[1]){0}, .dtype = ATTN_FLOAT32, .rank = 1, .shape = {1}};

static const attn_sequences no_lengths = {0}, of_4 = {2, (const size_t[]){1, 3}, NULL},
                            of_4_and_5 = {2, (const size_t[]){1, 3}, (const size_t[]){5, 0}},
                            endless = {2, (const size_t[]){SIZE_MAX, 3}, NULL},
                            many_lengths = {65537, three_lengths, NULL};
static const attn_upstream by_identity = {.output = &identity2},
                           by_weights = {.weights = &identity2};

static const attn_tensor
    past_2_3 = {.data = zeros, .dtype = ATTN_FLOAT64, .rank = 5, .shape = {2, 3, 1, 1, 2}},
    past_3_2 = {.data = zeros, .dtype = ATTN_FLOAT64, .rank = 5, .shape = {3, 2, 1, 1, 2}},
    past_of_4 = {.data = zeros, .dtype = ATTN_FLOAT64, .rank = 3, .shape = {4, 1, 2}};

static const attn_tensor two_rows = {
    .data = (const double[]){1, 2}, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {2, 1}};
static const attn_rotary short_tables = {.cos = &two_rows, .sin = &two_rows};

#define BAD(shapes_, status_, argument_, contains_, ...)                                           \
    { shapes_, __VA_ARGS__, ATTN_##status_, argument_, contains_ }
#define GOOD(shapes_, ...) BAD(shapes_, OK, "", "", __VA_ARGS__)

/* A gradient by an input that the call does not have. */
#define NEEDS(result, contains)                                                                    \
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "results", contains,                                      \
        {.results = ATTN_WANT(result), .upstream = &of_output})

static const struct refusal refusals[] = {
    BAD("4,64 5,48 5,3", SHAPE_MISMATCH, "K", "48 columns but Q has 64", {0}),
    BAD("4,8 5,8 6,3", SHAPE_MISMATCH, "V", "6 rows but K has 5", {0}),
    GOOD("0,8 5,8 5,3", {0}),
    GOOD("4,8 0,8 0,3", {0}),
    GOOD("0,2,4,8 0,2,5,8 0,2,5,3", {0}),
    GOOD("0,2,4,8 1,2,5,8 2,5,3", {0}),
    GOOD("1,1,2,4,8 2,5,8 3,0,2,5,3", {0}),
    BAD("0,2,4,8 2,2,5,8 2,2,5,3", SHAPE_MISMATCH, "K", "must be equal, or 1 in each", {0}),
    BAD("0,4,8 0,5,8 0,5,3", SHAPE_MISMATCH, "Q", "Q is empty: its shape is (0, 4, 8)", {0}),
    BAD("4,0 5,0 5,3", SHAPE_MISMATCH, "Q", "Q is empty: its shape is (4, 0)", {0}),
    BAD("4,8 5,8 5,0", SHAPE_MISMATCH, "V", "V is empty: its shape is (5, 0)", {0}),
    BAD("0,8 5,8 0,3", SHAPE_MISMATCH, "V", "0 rows but K has 5", {0}),
    BAD("0,65536,1073741824,1073741824 1,1 1,1", TOO_LARGE, "Q", "too large", {0}),
    BAD("0,8 5,8 5,3", INVALID_ARGUMENT, "results", "a call without a query has none",
        {.results = ATTN_WANT(STATISTICS)}),
    BAD("4,8 0,8 0,3", INVALID_ARGUMENT, "results", "a call without a key has none",
        {.results = ATTN_WANT(STATISTICS)}),
    BAD("3,4,8 2,5,8 2,5,3", SHAPE_MISMATCH, "K", "multiple of the 2", {0}),
    BAD("8 5,8 5,3", SHAPE_MISMATCH, "Q", "rank 2 to 8, not 1", {0}),
    BAD("1,1,1,1,1,1,4,8 5,8 5,8", SHAPE_MISMATCH, "Q", "rank 2 to 7, not 8", {.heads = 2}),
    BAD("4,9 5,9 5,9", SHAPE_MISMATCH, "Q", "9 columns", {.heads = 2}),
    BAD("4,9 5,9 5,9", SHAPE_MISMATCH, "Q", "9 columns", {.heads = SIZE_MAX}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "kv_heads", "kv_heads = 3", {.heads = 4, .kv_heads = 3}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "kv_heads", "needs", {.kv_heads = 2}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "flags", "0x", {.flags = 1u << 30}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "results", "0x", {.results = UINT64_C(1) << 63}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "reserved", "reserved[0]", {.reserved = {1}}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "reserved", "reserved[14]", {.reserved = {[14] = 1}}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "softcap", "-1", {.softcap = -1}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "softcap", "nan", {.softcap = NAN}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "scale", "finite",
        {.flags = ATTN_FLAG_SCALE, .scale = INFINITY}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "scale", "scale is 2, but flags", {.scale = 2}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "window", "window is [0, 3], but flags",
        {.window = {0, 3}}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "scale", "2 numbers, not 1: it must have one for each head",
        {.scales = two_scales, .scales_count = 2}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "scale", "scale[0] is nan",
        {.scales = not_a_scale, .scales_count = 1}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "scale", "not both",
        {.flags = ATTN_FLAG_SCALE, .scales = two_scales, .scales_count = 1}),
    GOOD("4,8 5,8 5,8", {.scales = two_scales, .scales_count = 1}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "window", "[-2, 0]",
        {.flags = ATTN_FLAG_WINDOW, .window = {-2, 0}}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "lengths", "has 3 numbers",
        {.lengths = three_lengths, .lengths_count = 3}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "lengths", "is 9, but the number of keys is 5",
        {.lengths = long_length, .lengths_count = 1}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "b_Q", "b_Q must have the shape (8), not (4)",
        {.b_q = &zeros_4}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "b_V", "b_V must have the shape (1, 8), not (4, 8)",
        {.b_v = &zeros_4_8}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "b_K", "float64", {.b_k = &floats_4_8}),
    GOOD("4,4 5,4 5,8", {.b_q = &zeros_4, .b_k = &zeros_4}),
    GOOD("4,4,8 4,5,8 4,5,8", {.b_q = &zeros_4_8, .b_k = &zeros_4_8, .b_v = &zeros_4_8}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "sink", "rank", {.sink = &identity2}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "sink", "2 numbers, not 1: it must have one for each head",
        {.sink = &two_numbers}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "alibi", "2 numbers", {.alibi_slopes = &two_numbers}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "bias", "axis 1 (keys) is 2, not 5 or 1",
        {.bias = &identity2}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "mask", "bool", {.mask = &identity2}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "past_K", "together", {.past_k = &identity2}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "past_K", "2 columns but K has 8",
        {.past_k = &identity2, .past_v = &identity2}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "results", "projections", {.results = ATTN_WANT(Q)}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "sink", "normalization is \"none\"",
        {.normalization = ATTN_UNNORMALIZED, .sink = &identity2}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "sigmoid_bias", "finite",
        {.normalization = ATTN_SIGMOID, .sigmoid_bias = NAN}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "normalization", "0 to 3",
        {.normalization = ATTN_STICK_BREAKING + 1}),
    BAD("2,1,1 2,16385,1 2,16385,1", TOO_LARGE, "normalization", "at most 16384 keys",
        {.normalization = ATTN_STICK_BREAKING,
         .flags = ATTN_FLAG_MEAN_OVER_HEADS,
         .results = ATTN_WANT(WEIGHTS)}),
    NEEDS(GRAD_DECAY, "grad_decay needs decay"),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "decay", "decay needs causal", {.decay = &two_numbers}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "decay", "has the shape (2), not (5)",
        {.causal = true, .decay = &two_numbers}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "sink", "normalization is \"stick_breaking\"",
        {.normalization = ATTN_STICK_BREAKING, .sink = &identity2}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "results", "lse",
        {.normalization = ATTN_UNNORMALIZED, .results = ATTN_WANT(LSE)}),
    BAD("2,2 2,2 2,2", INVALID_ARGUMENT, "bias", "float64", {.bias = &narrow}),
    BAD("2,2 2,2 2,2", INVALID_ARGUMENT, "sink", "float64", {.sink = &narrow_one}),
    BAD("2,2 2,2 2,2", INVALID_ARGUMENT, "alibi", "float64", {.alibi_slopes = &narrow_one}),
    BAD("2,2 2,2 2,2", INVALID_ARGUMENT, "past_K", "float64",
        {.past_k = &narrow, .past_v = &identity2}),
    BAD("2,2 2,2 2,2", INVALID_ARGUMENT, "past_V", "float64",
        {.past_k = &identity2, .past_v = &narrow}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "compute_dtype", "0 to 2",
        {.compute_dtype = ATTN_COMPUTE_BFLOAT16 + 1}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "compute_dtype", "the call is in float64",
        {.compute_dtype = ATTN_COMPUTE_FLOAT16}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "compute_dtype",
        "gradients are computed without compute_dtype",
        {.results = ATTN_WANT(GRAD_Q),
         .upstream = &of_output,
         .compute_dtype = ATTN_COMPUTE_FLOAT16}),
    /* Gradients. */
    GOOD("4,8 5,8 5,8", {.results = ATTN_WANT(GRAD_Q), .upstream = &of_output}),
    GOOD("4,8 5,8 5,8", {.results = ATTN_WANT(GRAD_Q), .upstream = &of_lse}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "grad_output",
        "gradients need grad_output, grad_lse or grad_weights", {.results = ATTN_WANT(GRAD_Q)}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "grad_output",
        "gradients need grad_output, grad_lse or grad_weights",
        {.results = ATTN_WANT(GRAD_Q), .upstream = &none}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "results",
        "grad_output, grad_lse and grad_weights need a result such as grad_Q",
        {.upstream = &of_output}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "grad_lse", "needs softmax, without which there is no lse",
        {.results = ATTN_WANT(GRAD_Q), .upstream = &of_lse, .normalization = ATTN_SIGMOID}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "grad_output", "grad_output is missing",
        {.results = ATTN_WANT(GRAD_Q), .upstream = &of_nothing}),
    BAD("4,8 5,8 5,8", INVALID_ARGUMENT, "grad_output",
        "grad_output must be float64 like the other matrices",
        {.results = ATTN_WANT(GRAD_Q), .upstream = &of_floats}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "grad_output",
        "grad_output must have the shape (4, 8), not (4)",
        {.results = ATTN_WANT(GRAD_Q), .upstream = &wrong_output}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "grad_lse", "grad_lse must have the shape (4), not (4, 8)",
        {.results = ATTN_WANT(GRAD_Q), .upstream = &wrong_lse}),
    BAD("4,8 5,8 5,8", SHAPE_MISMATCH, "grad_weights",
        "grad_weights must have the shape (4, 5), not (4, 8)",
        {.results = ATTN_WANT(GRAD_Q), .upstream = &wrong_weights}),
    BAD("2,4,8 5,8 5,8", SHAPE_MISMATCH, "grad_weights",
        "grad_weights must have the shape (2, 4, 5), not (4, 8)",
        {.results = ATTN_WANT(GRAD_Q), .upstream = &wrong_weights}),
    BAD("2,4,8 5,8 5,8", SHAPE_MISMATCH, "grad_weights",
        "grad_weights must have the shape (4, 5), not (4, 8)",
        {.results = ATTN_WANT(GRAD_Q),
         .upstream = &wrong_weights,
         .flags = ATTN_FLAG_MEAN_OVER_HEADS}),
    BAD("4,16385 5,16385 5,8", INVALID_ARGUMENT, "results",
        "gradients need heads of at most 16384 columns, not 16385",
        {.results = ATTN_WANT(GRAD_Q), .upstream = &of_output}),
    NEEDS(GRAD_PAST_K, "grad_past_K needs past_K"),
    NEEDS(GRAD_PAST_V, "grad_past_V needs past_V"),
    NEEDS(GRAD_BIAS, "grad_bias needs bias"),
    NEEDS(GRAD_SINK, "grad_sink needs sink"),
    NEEDS(GRAD_ALIBI, "grad_alibi needs slopes in alibi"),
    NEEDS(GRAD_NORM_Q, "grad_norm_Q needs norm_Q"),
    NEEDS(GRAD_NORM_K, "grad_norm_K needs norm_K"),
    NEEDS(GRAD_X, "grad_X needs X"),
    NEEDS(GRAD_CONTEXT, "grad_context needs context"),
    NEEDS(GRAD_VALUE_CONTEXT, "grad_value_context needs value_context"),
    NEEDS(GRAD_W_Q, "grad_W_Q needs W_Q"),
    NEEDS(GRAD_W_K, "grad_W_K needs W_K"),
    NEEDS(GRAD_W_V, "grad_W_V needs W_V"),
    NEEDS(GRAD_W_O, "grad_W_O needs W_O"),
    NEEDS(GRAD_B_Q, "grad_b_Q needs b_Q"),
    NEEDS(GRAD_B_K, "grad_b_K needs b_K"),
    NEEDS(GRAD_B_V, "grad_b_V needs b_V"),
    NEEDS(GRAD_B_O, "grad_b_O needs b_O"),
    NEEDS(GRAD_BIAS_K, "grad_bias_K needs bias_K"),
    NEEDS(GRAD_BIAS_V, "grad_bias_V needs bias_V"),
    /* key_padding has all batch items or one, and is never taken for a mask (n,m). */
    GOOD("2,8 5,8 5,8", {.key_padding = &padding_of_5}),
    GOOD("2,8 5,8 5,8", {.key_padding = &padding_1_5}),
    GOOD("2,2,8 5,8 5,8", {.key_padding = &padding_of_5}),
    BAD("2,8 5,8 5,8", SHAPE_MISMATCH, "key_padding",
        "has the shape (2, 5), not (5): it must have one element for each key of each batch item",
        {.key_padding = &padding_2_5}),
    BAD("2,8 5,8 5,8", SHAPE_MISMATCH, "key_padding", "(1, 1), not (5)",
        {.key_padding = &padding_1_1}),
    GOOD("2,2,4 2,5,4 2,5,8", {.heads = 2, .key_padding = &padding_2_5}),
    GOOD("2,2,4 2,5,4 2,5,8", {.heads = 2, .key_padding = &padding_of_5}),
    GOOD("2,2,4 2,5,4 2,5,8", {.heads = 2, .key_padding = &padding_1_5}),
    BAD("3,2,4 3,5,4 3,5,8", SHAPE_MISMATCH, "key_padding", "(2, 5), not (3, 5)",
        {.heads = 2, .key_padding = &padding_2_5}),
    GOOD("4,2 3,2 3,2", {.past_k = &identity2, .past_v = &identity2, .key_padding = &padding_of_5}),
    BAD("4,2 5,2 5,2", SHAPE_MISMATCH, "key_padding",
        "(5), not (7): it must have one element for each key of each batch item, with the past "
        "keys",
        {.past_k = &identity2, .past_v = &identity2, .key_padding = &padding_of_5}),
    BAD("4,2 2,2 2,2", INVALID_ARGUMENT, "key_padding", "bool", {.key_padding = &identity2}),
    BAD("2,2,1,2,8 5,8 5,8", SHAPE_MISMATCH, "key_padding", "(2, 5), not (2, 2, 5)",
        {.key_padding = &padding_2_5}),
    /* Batch axes are broadcast, and so are heads; but a matrix has all batch items or one. */
    GOOD("2,4,8 5,8 5,3", {0}),
    GOOD("2,4,8 5,8 1,5,3", {0}),
    GOOD("2,4,8 2,5,8 1,5,3", {0}),
    GOOD("4,8 2,5,8 5,3", {0}),
    GOOD("1,4,8 2,5,8 4,5,3", {0}),
    GOOD("4,2,4,8 2,5,8 4,1,5,3", {0}),
    GOOD("4,8 3,2,5,8 2,5,3", {0}),
    GOOD("2,3,6,4,8 1,1,2,5,8 2,3,1,5,3", {0}),
    GOOD("2,1,4,8 5,8 1,1,5,8", {.heads = 2}),
    BAD("2,1,4,8 3,1,5,8 5,3", SHAPE_MISMATCH, "K",
        "K has the shape (3, 1, 5, 8) but Q has the shape (2, 1, 4, 8): their batch axes", {0}),
    BAD("1,1,4,8 2,1,5,8 3,1,5,3", SHAPE_MISMATCH, "V",
        "V has the shape (3, 1, 5, 3) but K has the shape (2, 1, 5, 8): their batch axes", {0}),
    BAD("2,3,1,4,8 3,3,1,5,8 5,3", SHAPE_MISMATCH, "K",
        "K has the shape (3, 3, 1, 5, 8) but Q has the shape (2, 3, 1, 4, 8)", {0}),
    BAD("2,1,1,4,8 1,3,1,5,8 5,3", SHAPE_MISMATCH, "Q",
        "(2, 1, 1, 4, 8), but the batch axes of the call are (2, 3)", {0}),
    BAD("2,3,1,4,8 3,1,5,8 5,3", SHAPE_MISMATCH, "K", "(3, 1, 5, 8), but the batch axes", {0}),
    BAD("2,4,8 4,5,8 4,5,3", SHAPE_MISMATCH, "K",
        "Q has 2 heads, which is not a multiple of the 4 heads of K", {0}),
    BAD("4,4,8 4,5,8 3,5,3", SHAPE_MISMATCH, "V",
        "Q has 4 heads, which is not a multiple of the 3 heads of V", {0}),
    BAD("4,8 4,5,8 3,5,3", SHAPE_MISMATCH, "V",
        "K has 4 heads, which is not a multiple of the 3 heads of V", {0}),
    BAD("1048576,1,1,1,1,1,1,1 1,1048576,1,1,1,1,1,1 1,1,1048576,1048576,1,1,1,1", TOO_LARGE, "",
        "", {0}),
    BAD("2,4,8 5,4 5,3", SHAPE_MISMATCH, "K", "4 columns but Q has 8", {0}),
    GOOD("2,4,8 5,4 5,6", {.heads = 4, .kv_heads = 2}),
    BAD("2,4,2 1,5,2 1,5,2", SHAPE_MISMATCH, "past_K", "rank 2 but K has rank 3",
        {.past_k = &identity2, .past_v = &identity2}),
    GOOD("2,4,2 5,2 5,2", {.past_k = &identity2, .past_v = &identity2}),
    GOOD("2,3,1,4,2 2,3,1,5,2 2,3,1,5,2", {.past_k = &past_2_3, .past_v = &past_2_3}),
    BAD("2,3,1,4,2 2,3,1,5,2 2,3,1,5,2", SHAPE_MISMATCH, "past_K", "(2, 3, 1, 1, 2), not",
        {.past_k = &past_3_2, .past_v = &past_2_3}),
    BAD("2,3,1,4,2 2,3,1,5,2 2,3,1,5,2", SHAPE_MISMATCH, "past_V", "(2, 3, 1, 1, 2), not",
        {.past_k = &past_2_3, .past_v = &past_3_2}),
    BAD("4,4,2 4,5,2 2,5,2", SHAPE_MISMATCH, "past_V", "past_V has 4 heads but V has 2",
        {.past_k = &past_of_4, .past_v = &past_of_4}),
    BAD("4,4,2 2,5,2 4,5,2", SHAPE_MISMATCH, "past_K", "past_K has 4 heads but K has 2",
        {.past_k = &past_of_4, .past_v = &past_of_4}),
    /* Packed sequences. */
    GOOD("4,8 5,8 5,3", {.sequences = &of_4_and_5}),
    GOOD("4,8 5,4 5,6", {.heads = 4, .kv_heads = 2, .sequences = &of_4_and_5}),
    GOOD("4,4,2 4,2,2 4,2,3", {.sequences = &of_4}),
    BAD("5,8 5,8 5,3", SHAPE_MISMATCH, "sequences", "have 4 rows together, but Q has 5 rows",
        {.sequences = &of_4_and_5}),
    BAD("4,8 5,8 5,3", SHAPE_MISMATCH, "sequences", "have 4 rows together, but K has 5 rows",
        {.sequences = &of_4}),
    BAD("4,8 1,8 1,3", SHAPE_MISMATCH, "sequences", "have 5 rows together, but K has 1 row",
        {.sequences = &of_4_and_5}),
    BAD("4,8 4,8 4,3", INVALID_ARGUMENT, "sequences", "no lengths", {.sequences = &no_lengths}),
    BAD("4,8 4,8 4,3", TOO_LARGE, "", "too large", {.sequences = &endless}),
    BAD("4,8 4,8 4,3", TOO_LARGE, "sequences", "65537 sequences; at most 65536",
        {.sequences = &many_lengths}),
    BAD("1,4,2,2 4,2,2 4,2,2", SHAPE_MISMATCH, "Q", "it has no batch axis", {.sequences = &of_4}),
    BAD("4,2,2 4,2 4,2", SHAPE_MISMATCH, "K", "rank 3, not 2", {.sequences = &of_4}),
    BAD("4,2 4,2 4,2,2", SHAPE_MISMATCH, "V", "rank 2, not 3", {.sequences = &of_4}),
    BAD("4,3,2 4,2,2 4,2,2", SHAPE_MISMATCH, "K", "3 heads, which is not a multiple of the 2",
        {.sequences = &of_4}),
    BAD("4,2,2 4,2,2 4,1,2", SHAPE_MISMATCH, "V", "1 head but K has 2", {.sequences = &of_4}),
    BAD("4,2,2 4,2,2 4,2,2", INVALID_ARGUMENT, "heads", "Q has rank 3",
        {.heads = 2, .sequences = &of_4}),
    BAD("4,2,2 4,2,2 4,2,2", INVALID_ARGUMENT, "kv_heads", "Q has rank 3",
        {.kv_heads = 2, .sequences = &of_4}),
    BAD("4,2 4,2 4,2", INVALID_ARGUMENT, "mask", "not possible with sequences",
        {.mask = &padding_1_5, .sequences = &of_4}),
    BAD("4,2 4,2 4,2", INVALID_ARGUMENT, "bias", "not possible with sequences",
        {.bias = &identity2, .sequences = &of_4}),
    BAD("4,2 4,2 4,2", INVALID_ARGUMENT, "lengths", "not possible with sequences",
        {.lengths = three_lengths, .lengths_count = 1, .sequences = &of_4}),
    BAD("4,2 4,2 4,2", INVALID_ARGUMENT, "key_padding", "not possible with sequences",
        {.key_padding = &padding_of_5, .sequences = &of_4}),
    BAD("4,2 4,2 4,2", INVALID_ARGUMENT, "past_K", "not possible with sequences",
        {.past_k = &identity2, .past_v = &identity2, .sequences = &of_4}),
    BAD("4,2 4,2 4,2", INVALID_ARGUMENT, "grad_weights", "not possible with sequences",
        {.upstream = &by_weights, .sequences = &of_4}),
    BAD("4,2 4,2 4,2", INVALID_ARGUMENT, "results", "weights is not possible with sequences",
        {.results = ATTN_WANT(WEIGHTS), .sequences = &of_4}),
    BAD("4,2 4,2 4,2", SHAPE_MISMATCH, "grad_output", "(4, 2), not (2, 2)",
        {.upstream = &by_identity, .results = ATTN_WANT(GRAD_Q), .sequences = &of_4}),
    BAD("4,2,2 4,2,2 4,2,3", SHAPE_MISMATCH, "grad_output", "(4, 2, 3), not (2, 2)",
        {.upstream = &by_identity, .results = ATTN_WANT(GRAD_Q), .sequences = &of_4}),
    BAD("4,2 4,2 4,2", SHAPE_MISMATCH, "rotary_cos", "sequence 1: rotary_cos has 2 rows",
        {.rotary = &short_tables, .sequences = &of_4}),
    BAD("1099511627776,8 5,8 5,8", TOO_LARGE, "Q", "1099511627776", {0}),
    GOOD("1073741824,1 1073741824,1 1073741824,1", {0}),
    GOOD("65536,1,1 65536,1,1 65536,1,1", {0}),
    BAD("65537,1,1 65537,1,1 1,1,1", TOO_LARGE, "", "there are 65537 heads; at most 65536 are",
        {0}),
    BAD("65537,1,1 1,1,1 1,1,1", TOO_LARGE, "", "there are 65537 heads; at most 65536 are possible",
        {0}),
    BAD("1,131072 1,1 1,1", TOO_LARGE, "", "there are 131072 heads; at most 65536 are possible",
        {.heads = 131072, .kv_heads = 1}),
    BAD("1073741824,1073741824,1073741824,0 1073741824,1073741824,1073741824,0 1,1,1,0",
        SHAPE_MISMATCH, "Q", "empty", {0}),
};

/* Reads a shape like "4,8", and returns its end. */
static const char *read_shape(const char *text, attn_tensor *to) {
    static const double data[4096];
    char *end;
    *to = (attn_tensor){.data = data, .dtype = ATTN_FLOAT64};
    do {
        to->shape[to->rank++] = strtoul(text, &end, 10);
        text = end + 1;
    } while (*end == ',');
    return text;
}

Test(errors, name_the_rule_the_argument_and_the_values) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        attn_tensor q, k, v;
        attn_error error = {0};
        attn_plan *plan;
        read_shape(read_shape(read_shape(r->shapes, &q), &k), &v);
        const attn_status status = attn_plan_attention(&plan, &q, &k, &v, &r->options, &error);
        expect_verdict(i, &(struct verdict){r->status, r->argument, r->contains}, status, plan,
                       &error);
    }
}

#ifdef __GLIBC__
/* Returns the bytes of the heap that are in use. */
static size_t heap_bytes(void) {
    return mallinfo2().uordblks;
}

/* Plans and runs what fails, late and early. */
static void fail_everywhere(void) {
    const double nothing[] = {NAN, 1};
    double output[16];
    void *const data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_OUTPUT] = output};
    const attn_tensor bad = {.data = nothing, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {1, 2}};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        attn_tensor q, k, v;
        attn_plan *plan;
        read_shape(read_shape(read_shape(refusals[i].shapes, &q), &k), &v);
        attn_plan_attention(&plan, &q, &k, &v, &refusals[i].options, NULL);
        attn_plan_free(plan);
    }
    if (attn_softmax(&bad, 1, output, NULL) != ATTN_NOT_FINITE ||
        plan_and_run(&bad, &bad, &bad, NULL, data, NULL) != ATTN_NOT_FINITE) {
        abort(); /* an assertion takes memory */
    }
}

/* The allocator keeps some freed memory for each size, so the use grows at first. */
Test(errors, leave_no_memory_behind) {
    size_t before = 0, after = 1;
    for (size_t i = 0; i < 40 && after != before; i++) {
        before = heap_bytes();
        fail_everywhere();
        after = heap_bytes();
    }
    cr_expect_eq(after, before, "%zu bytes are left", after - before);
}
#endif

/* If the wanted size is 1, the message does not say "not 1 or 1". */
Test(errors, name_a_size_of_one_once) {
    attn_tensor q, k;
    read_shape(read_shape("4,8 1,8", &q), &k);
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

static void expect_refused(const attn_tensor *q, const attn_tensor *k, const attn_tensor *v,
                           const attn_options *options, const struct verdict *want) {
    attn_error error = {0};
    attn_plan *plan;
    const attn_status status = attn_plan_attention(&plan, q, k, v, options, &error);
    expect_verdict(0, want, status, plan, &error);
}

Test(errors, x_alone_is_called_x) {
    const attn_tensor x = MATRIX(2, 3, 1, 2, 3, 4, 5, 6);
    expect_refused(&x, &x, &x, &(attn_options){.heads = 2},
                   &(struct verdict){ATTN_SHAPE_MISMATCH, "X", "X has 3 columns"});
}

Test(errors, x_alone_has_one_list_of_lengths) {
    const attn_tensor x = MATRIX(3, 2, 1, 2, 3, 4, 5, 6);
    const attn_sequences two = {2, (const size_t[]){1, 2}, (const size_t[]){2, 1}};
    expect_refused(&x, &x, &x, &(attn_options){.sequences = &two},
                   &(struct verdict){ATTN_INVALID_ARGUMENT, "sequences", "X stands for Q and K"});
    expect_refused(
        &x, &x, &x, &(attn_options){.sequences = &of_4},
        &(struct verdict){ATTN_SHAPE_MISMATCH, "sequences", "4 rows together, but X has 3"});
}

/* Plans of heads and of sequences take memory before a caller can refuse them. */
Test(errors, name_the_different_lengths) {
    enum {
        MANY = 5000
    };
    static size_t queries[MANY], keys[MANY];
    size_t rows[2] = {0};
    for (size_t i = 0; i < MANY; i++) {
        rows[0] += queries[i] = 1 + i / 71;
        rows[1] += keys[i] = 1 + i % 71;
    }
    static const double data[1 << 19];
    const attn_tensor q = {data, ATTN_FLOAT64, 2, {rows[0], 1}},
                      k = {data, ATTN_FLOAT64, 2, {rows[1], 1}};
    const attn_sequences sequences = {MANY, queries, keys};
    expect_refused(&q, &k, &k, &(attn_options){.sequences = &sequences},
                   &(struct verdict){ATTN_TOO_LARGE, "sequences",
                                     "5000 different pairs of lengths; with 1 head at most 1024"});
}

/* Whole rows must fit a task. Keys are rounded once for at least 8 queries. */
Test(errors, name_the_rows_that_are_too_long_for_a_compute_dtype) {
    static const float data[1];
    static const struct {
        size_t n, m, d;
        const char *text;
    } cases[] = {{1, 32769, 8, "at most 32768 keys"},
                 {1, 2, 4097, "at most 4096 columns, not 4097"},
                 {8, 20000, 2048, "2048 columns are many, but there are 20000"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const attn_tensor q = {data, ATTN_FLOAT32, 2, {cases[i].n, cases[i].d}},
                          k = {data, ATTN_FLOAT32, 2, {cases[i].m, cases[i].d}};
        expect_refused(&q, &k, &k, &(attn_options){.compute_dtype = ATTN_COMPUTE_FLOAT16},
                       &(struct verdict){ATTN_TOO_LARGE, "compute_dtype", cases[i].text});
    }
}

Test(errors, mixed_dtypes_are_refused) {
    expect_refused(&identity2, &narrow, &identity2, NULL,
                   &(struct verdict){ATTN_INVALID_ARGUMENT, "K", "float64"});
    expect_refused(&identity2, &identity2, &narrow, NULL,
                   &(struct verdict){ATTN_INVALID_ARGUMENT, "V", "float64"});
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

static void expect_multihead_refused(const attn_multihead *call, const attn_options *options,
                                     attn_status wanted, const char *argument,
                                     const char *contains) {
    attn_error error = {0};
    attn_plan *plan;
    const attn_status status = attn_plan_multihead(&plan, call, options, &error);
    expect_verdict(0, &(struct verdict){wanted, argument, contains}, status, plan, &error);
}

/* Past keys and values have the dtype and the rank of a call with projections. */
Test(errors, multihead_names_past_keys_and_values) {
    const attn_tensor *const x = &identity2;
    const attn_projection head = {.w_q = x, .w_k = x, .w_v = x};
    const attn_multihead call = {.x = x, .projections = &head, .count = 1};
    attn_tensor deep = *x;
    deep.rank = 3;
    deep.shape[2] = 1;
    expect_multihead_refused(&call, &(attn_options){.past_k = &narrow, .past_v = x},
                             ATTN_INVALID_ARGUMENT, "past_K",
                             "past_K must be float64 like the other matrices");
    expect_multihead_refused(&call, &(attn_options){.past_k = x, .past_v = &narrow},
                             ATTN_INVALID_ARGUMENT, "past_V",
                             "past_V must be float64 like the other matrices");
    expect_multihead_refused(&call, &(attn_options){.past_k = &deep, .past_v = x},
                             ATTN_SHAPE_MISMATCH, "past_K", "past_K must have rank 2, not 3");
    expect_multihead_refused(&call, &(attn_options){.past_k = x, .past_v = &deep},
                             ATTN_SHAPE_MISMATCH, "past_V", "past_V must have rank 2, not 3");
}

Test(errors, multihead_names_the_weights) {
    static const double data[64];
    const attn_tensor x = {.data = data, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {2, 7}},
                      w = {.data = data, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {7, 3}},
                      five = {.data = data, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {5, 3}},
                      many = {.data = data,
                              .dtype = ATTN_FLOAT64,
                              .rank = 3,
                              .shape = {(size_t)1 << 60, 7, 3}};
    attn_projection heads[2] = {{&w, &w, &w, NULL, NULL, NULL}, {&w, &five, &w, NULL, NULL, NULL}};
    attn_multihead call = {.x = &x, .projections = heads, .count = 2, .per_head = true};
    expect_multihead_refused(&call, NULL, ATTN_SHAPE_MISMATCH, "heads/1/W_K",
                             "5 rows but X has 7 columns");
    call.count = 1;
    call.w_o = &five;
    expect_multihead_refused(&call, NULL, ATTN_SHAPE_MISMATCH, "W_O",
                             "5 rows but the heads together have 3");
    call.per_head = false;
    call.w_o = NULL;
    expect_multihead_refused(&call, &(attn_options){.heads = 2}, ATTN_SHAPE_MISMATCH, "W_Q",
                             "3 columns, which is not a multiple of heads = 2");
    call.layout = (attn_layout)3;
    expect_multihead_refused(&call, NULL, ATTN_INVALID_ARGUMENT, "layout",
                             "layout is 3; it must be 0, 1 or 2");
    call.layout = ATTN_PREPACKED;
    call.per_head = true;
    expect_multihead_refused(&call, NULL, ATTN_INVALID_ARGUMENT, "layout",
                             "heads with weights of their own cannot have prepacked weights");
    call.per_head = false;
    call.layout = ATTN_IN_OUT;
    heads[0].w_v = &many;
    expect_multihead_refused(&call, NULL, ATTN_TOO_LARGE, "", "1152921504606846976 heads");
    attn_error error = {0};
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
}

/* Packed weights have no gradients, and a bias has one only if all heads have it. */
Test(errors, of_gradients_of_weights) {
    static const attn_upstream of_eye = {.output = &identity2};
    const attn_tensor *const x = &identity2;
    attn_projection heads[2] = {{x, x, x, &two_numbers, NULL, NULL}, {x, x, x, NULL, NULL, NULL}};
    attn_multihead call = {
        .x = x, .projections = heads, .count = 1, .w_o = x, .layout = ATTN_PREPACKED};
    static const struct {
        uint64_t result;
        const char *message;
    } packed[] = {{ATTN_WANT(GRAD_W_Q), "grad_W_Q needs weights that are not prepacked"},
                  {ATTN_WANT(GRAD_W_K), "grad_W_K needs weights that are not prepacked"},
                  {ATTN_WANT(GRAD_W_V), "grad_W_V needs weights that are not prepacked"},
                  {ATTN_WANT(GRAD_W_O), "grad_W_O needs weights that are not prepacked"},
                  {ATTN_WANT(GRAD_B_K), "grad_b_K needs b_K"}};
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        const attn_options o = {.results = packed[i].result, .upstream = &of_eye};
        expect_multihead_refused(&call, &o, ATTN_INVALID_ARGUMENT, "results", packed[i].message);
    }
    call = (attn_multihead){.x = x, .projections = heads, .count = 2, .per_head = true, .w_o = x};
    heads[1].w_v = heads[0].w_v =
        &(attn_tensor){.data = zeros, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {2, 1}};
    const attn_options o = {.results = ATTN_WANT(GRAD_B_Q), .upstream = &of_eye};
    expect_multihead_refused(&call, &o, ATTN_INVALID_ARGUMENT, "results", "grad_b_Q needs b_Q");
    const attn_options biased = {.b_k = x};
    expect_multihead_refused(&call, &biased, ATTN_INVALID_ARGUMENT, "b_K", "is not possible with projections");
}
