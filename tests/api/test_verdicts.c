/*
 * test_verdicts.c - the verdict on kernels: on right ones whose type explains their errors, and on
 * wrong ones whose errors are small beside the largest number of the result. Kernels of plain loops
 * compute in double and round where a kernel of their type rounds. The tests know the service by
 * its socket only. `make search-verdicts` draws such kernels.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/binary.h"
#include "support/client.h"
#include "support/daemon.h"
#include "support/json.h"
#include "support/rng.h"

TestSuite(verdicts, .init = daemon_start_connected, .fini = daemon_end, .timeout = 1200);

enum {
    HEADS = 2,
    ROWS = 256,
    COLUMNS = 16,
    NUMBERS = HEADS * ROWS * COLUMNS,
    PAIRS = HEADS * ROWS * ROWS
};

/* ---------------------------------------------------------------------------------- the kernel */

/* A causal call, its results, and how its kernel rounds. */
static struct {
    double q[NUMBERS], k[NUMBERS], v[NUMBERS], upstream[NUMBERS], bias[ROWS * ROWS];
    double scores[PAIRS], weights[PAIRS], lse[HEADS * ROWS];
    double output[NUMBERS], grad_q[NUMBERS], grad_k[NUMBERS], grad_v[NUMBERS];
    double gate[NUMBERS];
    bool gated;                /* requests have the gate, which close_rows() draws */
    double (*product)(double); /* rounds what is multiplied */
    bool divides_last;         /* weights are rounded before they are divided by their sum */
} c;

static double exactly(double x) {
    return x;
}

/* Rounds to a significand of `bits` bits. `whole` rounds to a whole number. The mask takes the
 * power of two from a number, which is much faster than frexp() and ldexp(). */
static double round_to(double x, int bits, double (*whole)(double)) {
    uint64_t pattern;
    double power;
    if (!isnormal(x)) {
        return x;
    }
    memcpy(&pattern, &x, sizeof pattern);
    pattern &= UINT64_C(0xfff0000000000000);
    memcpy(&power, &pattern, sizeof power);
    const double unit = (double)(1 << (bits - 1));
    return whole(x / power * unit) / unit * power;
}

static double bfloat16(double x) {
    return round_to(x, 8, nearbyint);
}

static double tf32(double x) {
    return round_to(x, 11, nearbyint);
}

static double float8(double x) {
    return round_to(x, 4, nearbyint);
}

/* Cuts off the last bits, as tensor cores do with a float32 that was not rounded before. */
static double tf32_cut_off(double x) {
    return round_to(x, 11, trunc);
}

static double float32(double x) {
    return (double)(float)x;
}

static void draw_numbers(double *to, size_t count, uint64_t seed, double mean, double size) {
    struct rng rng = {seed};
    for (size_t i = 0; i < count; i++) {
        to[i] = bfloat16(size * (mean + rng_normal(&rng)));
    }
}

/* Draws the inputs. */
static void draw_call(double mean_of_v, double loss) {
    draw_numbers(c.q, NUMBERS, 1, 0, 1);
    draw_numbers(c.k, NUMBERS, 2, 0, 1);
    draw_numbers(c.v, NUMBERS, 3, mean_of_v, 1);
    draw_numbers(c.upstream, NUMBERS, 4, 0, loss);
    memset(c.bias, 0, sizeof c.bias);
}

/* Computes row i of a head. */
static void attend_causally(size_t h, size_t i) {
    const size_t row = h * ROWS + i;
    double *scores = c.scores + row * ROWS, *weights = c.weights + row * ROWS;
    double max = -INFINITY, sum = 0;
    for (size_t j = 0; j < ROWS; j++) {
        scores[j] = 0;
        for (size_t e = 0; e < COLUMNS; e++) {
            scores[j] += c.product(c.q[row * COLUMNS + e]) *
                         c.product(c.k[(h * ROWS + j) * COLUMNS + e]) / 4;
        }
        scores[j] = j <= i ? scores[j] + c.bias[i * ROWS + j] : -INFINITY;
        max = fmax(max, scores[j]);
    }
    for (size_t j = 0; j <= i; j++) {
        sum += exp(scores[j] - max);
    }
    for (size_t j = 0; j < ROWS; j++) {
        weights[j] = j <= i ? exp(scores[j] - max) / sum : 0;
    }
    for (size_t e = 0; e < COLUMNS; e++) {
        double output = 0;
        for (size_t j = 0; j <= i; j++) {
            const double weight =
                c.divides_last ? c.product(exp(scores[j] - max)) / sum : c.product(weights[j]);
            output += weight * c.product(c.v[(h * ROWS + j) * COLUMNS + e]);
        }
        c.output[row * COLUMNS + e] = output;
    }
    c.lse[row] = max + log(sum);
}

/* Adds what row i of a head gives to the gradients. */
static void differentiate(size_t h, size_t i) {
    const size_t row = h * ROWS + i;
    const double *upstream = c.upstream + row * COLUMNS;
    double delta = 0;
    for (size_t e = 0; e < COLUMNS; e++) {
        const double result = c.output[row * COLUMNS + e];
        delta += upstream[e] * (c.product == bfloat16 ? bfloat16(result) : result);
    }
    for (size_t j = 0; j <= i; j++) {
        const size_t key = (h * ROWS + j) * COLUMNS;
        const double weight = c.weights[row * ROWS + j];
        double gradient = 0;
        for (size_t e = 0; e < COLUMNS; e++) {
            gradient += c.product(upstream[e]) * c.product(c.v[key + e]);
            c.grad_v[key + e] += c.product(weight) * c.product(upstream[e]);
        }
        gradient = c.product(weight * (gradient - delta));
        for (size_t e = 0; e < COLUMNS; e++) {
            c.grad_q[row * COLUMNS + e] += gradient * c.product(c.k[key + e]) / 4;
            c.grad_k[key + e] += gradient * c.product(c.q[row * COLUMNS + e]) / 4;
        }
    }
}

static void compute_kernel(double (*product)(double)) {
    c.product = product;
    memset(c.grad_q, 0, sizeof c.grad_q);
    memset(c.grad_k, 0, sizeof c.grad_k);
    memset(c.grad_v, 0, sizeof c.grad_v);
    for (size_t h = 0; h < HEADS; h++) {
        for (size_t i = 0; i < ROWS; i++) {
            attend_causally(h, i);
        }
        for (size_t i = 0; i < ROWS; i++) {
            differentiate(h, i);
        }
    }
}

/* --------------------------------------------------------------------------------- the question */

/* Sends tensors, with options. Returns the status, and the comparison of the first expected tensor,
 * owned by *json. */
static int ask_verdict(const struct binary_call *call, const char *type, struct cJSON **json,
                       const struct cJSON **result) {
    size_t size;
    char *body = binary_safetensors(call, type, &size);
    struct client_response response = daemon_ask_shared(
        "POST", call->path,
        "Content-Type: application/vnd.safetensors\r\nAccept: application/json\r\n", body, size);
    *json = json_parse(response.body, response.size);
    *result = json_first(json_get(json_get(*json, "comparison"), "results"));
    cr_assert_not_null(*result, "%d %s", response.status, response.body);
    const int status = response.status;
    client_response_free(&response);
    free(body);
    return status;
}

#define MATRIX                                                                                     \
    { HEADS, ROWS, COLUMNS }
#define ALL "\"causal\":true,\"fail_on_difference\":true"

/* Expects the verdict on one result. A right one has the status 200, and any other one 409. A
 * message holds `text`, unless that is NULL. */
static void expect(const char *what, const struct binary_input *expected, const char *input_type,
                   const char *options, const char *verdict, const char *text) {
    char all[256];
    struct binary_call call = {"/attention",
                               all,
                               "[\"comparison\"]",
                               {*expected,
                                {"Q", MATRIX, 0, c.q},
                                {"K", MATRIX, 0, c.k},
                                {"V", MATRIX, 0, c.v},
                                {"bias", {ROWS, ROWS}, 0, c.bias}}};
    struct cJSON *json;
    const struct cJSON *result;
    if (strstr(expected->name, "grad") != NULL) {
        call.inputs[5] = (struct binary_input){"grad_output", MATRIX, 0, c.upstream};
    }
    if (c.gated) {
        call.inputs[strstr(expected->name, "grad") != NULL ? 6 : 5] =
            (struct binary_input){"gate", MATRIX, 0, c.gate};
    }
    snprintf(all, sizeof all, "%s" ALL, options);
    const int status = ask_verdict(&call, input_type, &json, &result);
    const char *got = json_text(json_get(result, "verdict"));
    const char *message = json_text(json_get(result, "message"));
    cr_expect(strstr(verdict, got) != NULL, "%s: %s, %s", what, got, message ? message : "");
    cr_expect_eq(status, verdict[0] == 'w' ? 409 : 200, "%s", what);
    cr_expect(text == NULL || (message != NULL && strstr(message, text) != NULL), "%s: %s", what,
              message ? message : "no message");
    json_free(json);
}

#define WIDE    "\"dtype\":\"float64\","
#define ROUNDED "rounded equal"
#define WRONG   "wrong"

static const struct binary_input output = {"expected.output", MATRIX, BINARY_BF16, c.output},
                                 weights = {"expected.weights",
                                            {HEADS, ROWS, ROWS},
                                            BINARY_BF16,
                                            c.weights},
                                 lse = {"expected.lse", {HEADS, ROWS}, BINARY_F32, c.lse},
                                 grad_q = {"expected.grad_Q", MATRIX, BINARY_BF16, c.grad_q},
                                 grad_k = {"expected.grad_K", MATRIX, BINARY_BF16, c.grad_k},
                                 grad_v = {"expected.grad_V", MATRIX, BINARY_BF16, c.grad_v};

static void multiply(double *x, size_t first, size_t end, double factor) {
    for (size_t i = first; i < end; i++) {
        x[i] *= factor;
    }
}

/* --------------------------------------------------------------------------------- the verdicts */

Test(verdicts, right_kernels_of_each_type_are_rounded) {
    const struct binary_input all[] = {output, weights, lse, grad_q, grad_k, grad_v};
    const size_t count = COUNT(all);
    for (int shifted = 0; shifted < 2; shifted++) {
        draw_call(shifted == 1 ? 5 : 0, 1e-6);
        compute_kernel(bfloat16);
        for (size_t i = 0; i < count; i++) {
            expect(all[i].name, &all[i], "BF16", WIDE "\"computed_in\":\"bfloat16\",", ROUNDED,
                   NULL);
        }
        compute_kernel(exactly);
        for (size_t i = 0; i < count; i++) {
            struct binary_input wide = all[i];
            wide.kind = BINARY_F64;
            expect(wide.name, &wide, "F64", WIDE, ROUNDED, NULL);
            expect(wide.name, &wide, "F32", "", ROUNDED, NULL);
        }
    }
}

Test(verdicts, rows_of_small_numbers_are_judged_by_their_size) {
    draw_call(0, 1e-6);
    compute_kernel(bfloat16);
    for (size_t h = 0; h < HEADS; h++) {
        const size_t end = (h + 1) * ROWS;
        multiply(c.output, (end - ROWS / 2) * COLUMNS, end * COLUMNS, 1.05);
        multiply(c.grad_k, (end - ROWS / 8) * COLUMNS, end * COLUMNS, 1.3);
        for (size_t row = end - ROWS; row < end; row++) {
            multiply(c.weights, row * ROWS + ROWS / 2, (row + 1) * ROWS, 0);
        }
    }
    expect("half of the output * 1.05", &output, "BF16", WIDE, WRONG, "output");
    expect("half of the weights 0", &weights, "BF16", WIDE, WRONG, "it is 0");
    expect("the last rows of grad_K * 1.3", &grad_k, "BF16", WIDE, WRONG, "rounding to bfloat16");
}

/* Draws a gate that makes the last half of the rows of each head small, and multiplies the output
 * by it as a kernel does that rounds each step. */
static void close_rows(double (*round)(double)) {
    draw_numbers(c.gate, NUMBERS, 77, 0, 1);
    for (size_t i = 0; i < NUMBERS; i++) {
        c.gate[i] = round(c.gate[i] - (i / COLUMNS % ROWS < ROWS / 2 ? 0 : 7));
        c.output[i] = round(round(c.output[i]) * round(1 / (1 + exp(-c.gate[i]))));
    }
}

Test(verdicts, rows_of_closed_gates_are_judged_by_their_size) {
    draw_call(0, 1);
    compute_kernel(bfloat16);
    close_rows(bfloat16);
    c.gated = true;
    expect("gated output", &output, "BF16", WIDE, ROUNDED, NULL);
    for (size_t h = 0; h < HEADS; h++) {
        const size_t end = (h + 1) * ROWS;
        multiply(c.output, (end - ROWS / 2) * COLUMNS, end * COLUMNS, 1.05);
    }
    expect("closed rows * 1.05", &output, "BF16", WIDE, "wrong or close", "rounding to bfloat16");
    c.gated = false;
}

Test(verdicts, a_small_head_is_judged_by_its_size) {
    draw_call(0, 1);
    multiply(c.v, NUMBERS / HEADS, NUMBERS, 0x1p-10);
    compute_kernel(bfloat16);
    expect("a small head", &output, "BF16", WIDE, ROUNDED, NULL);
    multiply(c.output, NUMBERS / HEADS, NUMBERS, 0);
    expect("a small head is 0", &output, "BF16", WIDE, WRONG, "[1, ");
}

/* Rounding moves a column of large numbers by more than the other columns are large. */
Test(verdicts, a_large_column_hides_no_other) {
    draw_call(0, 1);
    for (size_t i = 0; i < HEADS * ROWS; i++) {
        c.v[i * COLUMNS + 3] *= 1024;
    }
    compute_kernel(bfloat16);
    expect("a large column", &output, "BF16", WIDE, ROUNDED, NULL);
    for (size_t i = 0; i < HEADS * ROWS; i++) {
        multiply(c.output, i * COLUMNS + COLUMNS / 2, (i + 1) * COLUMNS, 0);
    }
    expect("half of the columns are 0", &output, "BF16", WIDE, WRONG, "it is 0");
}

Test(verdicts, a_finite_mask_hides_no_error) {
    const double masks[] = {-1e9, -3.3895313892515355e38}; /* the least number of bfloat16 */
    for (size_t i = 0; i < 2; i++) {
        struct binary_input masked = {
            "expected.masked_scores", {HEADS, ROWS, ROWS}, BINARY_BF16, c.scores};
        draw_call(0, 1);
        for (size_t row = 0; row < ROWS; row++) { /* row 9 is padding */
            for (size_t j = 0; j < ROWS; j++) {
                c.bias[row * ROWS + j] = row == 9 || j % 3 == 1 ? bfloat16(masks[i]) : 0;
            }
        }
        compute_kernel(bfloat16);
        expect("masked_scores", &masked, "BF16", WIDE, ROUNDED, NULL);
        expect("lse", &lse, "BF16", WIDE "\"computed_in\":\"bfloat16\",", ROUNDED, NULL);
        expect("grad_V", &grad_v, "BF16", WIDE, ROUNDED, NULL);
        multiply(c.scores, 100 * ROWS, 100 * ROWS + 1, 1.1);
        multiply(c.scores, 100 * ROWS + 3, 101 * ROWS, 1.1);
        multiply(c.lse, 100, 140, 1.1);
        expect("masked_scores * 1.1", &masked, "BF16", WIDE, WRONG, NULL);
        expect("lse * 1.1", &lse, "BF16", WIDE "\"computed_in\":\"bfloat16\",", WRONG, NULL);
        compute_kernel(bfloat16);
        c.lse[9] = 5;
        expect("lse of padding", &lse, "BF16", WIDE "\"computed_in\":\"bfloat16\",", WRONG,
               "[0, 9]");
    }
}

/* A rounded weight moves no score, though its score may be far below 1. */
Test(verdicts, small_scores_are_judged_by_their_size) {
    struct binary_input masked = {
        "expected.masked_scores", {HEADS, ROWS, ROWS}, BINARY_BF16, c.scores};
    draw_call(0, 1);
    multiply(c.q, 0, NUMBERS, 0x1p-10);
    memset(c.bias, 0, sizeof c.bias);
    compute_kernel(bfloat16);
    expect("small scores", &masked, "BF16", WIDE, ROUNDED, NULL);
    multiply(c.scores, 100 * ROWS, 101 * ROWS, 1.1);
    expect("a row of small scores * 1.1", &masked, "BF16", WIDE, WRONG, "[0, 100, ");
}

/* A kernel that forgets half of the keys doubles every weight. */
Test(verdicts, lse_is_judged_by_what_it_means_for_weights) {
    struct binary_input narrow = lse;
    narrow.kind = BINARY_BF16;
    draw_call(0, 1);
    compute_kernel(bfloat16);
    expect("lse", &narrow, "BF16", WIDE, ROUNDED, NULL);
    for (size_t i = 0; i < HEADS * ROWS; i++) {
        c.lse[i] -= i % ROWS >= ROWS / 2 ? 0.6931 : 0;
    }
    expect("half of the keys", &narrow, "BF16", WIDE, WRONG, NULL);
    compute_kernel(bfloat16);
    multiply(c.lse, 0, HEADS * ROWS, 1.4426950408889634);
    expect("lse in base 2", &narrow, "BF16", WIDE, WRONG, "ln 2");
}

Test(verdicts, gradients_of_a_small_loss_are_judged_by_their_size) {
    const double factors[] = {0, -1, 0.1};
    for (size_t i = 0; i < 3; i++) {
        draw_call(0, 1e-6);
        compute_kernel(bfloat16);
        multiply(c.grad_q, 0, NUMBERS, factors[i]);
        multiply(c.grad_v, 0, NUMBERS, factors[i]);
        expect("grad_Q", &grad_q, "BF16", WIDE, WRONG, NULL);
        expect("grad_V", &grad_v, "BF16", WIDE, WRONG, NULL);
    }
}

Test(verdicts, a_coarser_type_is_named) {
    struct binary_input narrow = output;
    narrow.kind = BINARY_F32;
    draw_call(0, 1);
    compute_kernel(bfloat16);
    expect("bfloat16", &narrow, "F32", "", WRONG, "in bfloat16 it would be rounded");
    expect("bfloat16", &narrow, "F32", "\"computed_in\":\"bfloat16\",", ROUNDED, NULL);
    struct rng rng = {8};
    for (size_t i = 0; i < NUMBERS; i++) { /* so that a product rounds them */
        c.v[i] = float32(rng_normal(&rng));
    }
    compute_kernel(tf32);
    expect("tf32", &narrow, "F32", "", WRONG, "in tf32 it would be rounded");
    expect("tf32", &narrow, "F32", "\"computed_in\":\"tf32\",", ROUNDED, NULL);
}

/* All weights are rounded to 1. Their sum is not rounded, so the errors of a row do not cancel. */
Test(verdicts, nearly_equal_weights_are_rounded_alike) {
    draw_call(5, 1);
    multiply(c.q, 0, NUMBERS, 0x1p-7);
    c.divides_last = true;
    compute_kernel(float8);
    expect("float8", &output, "BF16", "\"computed_in\":\"float8\",", ROUNDED, NULL);
}

/* Cutting off makes all numbers smaller. So the errors of a row do not cancel, and those of `delta`
 * least of all. */
Test(verdicts, kernels_of_tf32_may_cut_digits_off) {
    const struct binary_input all[] = {output, lse, grad_q, grad_k, grad_v};
    struct rng rng = {8};
    draw_call(0, 1);
    for (size_t i = 0; i < NUMBERS; i++) {
        c.v[i] = float32(5 + rng_normal(&rng));
        c.upstream[i] = float32(1 + rng_normal(&rng));
    }
    compute_kernel(tf32_cut_off);
    for (size_t i = 0; i < COUNT(all); i++) {
        struct binary_input narrow = all[i];
        narrow.kind = BINARY_F32;
        expect(narrow.name, &narrow, "F32", "\"computed_in\":\"tf32\",", ROUNDED, NULL);
    }
    struct binary_input wrong = grad_q;
    wrong.kind = BINARY_F32;
    multiply(c.grad_q, NUMBERS / 2, NUMBERS, 1.05);
    expect("half of grad_Q * 1.05", &wrong, "F32", "\"computed_in\":\"tf32\",", WRONG, "grad_Q");
}

/* Kernels make angles of rotary embeddings in float32, so far positions have few digits. */
Test(verdicts, angles_in_float32_are_rounding) {
    const float frequencies[] = {1, 0.01F}, at[] = {80000, 79001};
    const double q[] = {0.3, -1.2, 0.7, 2.1}, k[] = {1.1, 0.4, -0.9, 0.6};
    double score = 0;
    char body[512];
    for (size_t pair = 0; pair < 2; pair++) {
        const double a = (double)(at[0] * frequencies[pair]),
                     b = (double)(at[1] * frequencies[pair]);
        score +=
            (q[pair] * cos(a) - q[pair + 2] * sin(a)) * (k[pair] * cos(b) - k[pair + 2] * sin(b)) +
            (q[pair] * sin(a) + q[pair + 2] * cos(a)) * (k[pair] * sin(b) + k[pair + 2] * cos(b));
    }
    for (int i = 0; i < 2; i++) {
        const int size =
            snprintf(body, sizeof body,
                     "{\"dtype\":\"float64\",\"computed_in\":\"%s\",\"rotary\":true,\"scale\":1,"
                     "\"Q\":[[0,0,0,0],[0.3,-1.2,0.7,2.1]],\"K\":[[1.1,0.4,-0.9,0.6],[0,0,0,0]],"
                     "\"V\":[[1],[2]],\"positions\":[79001,80000],\"return\":[\"comparison\"],"
                     "\"expected\":{\"scores\":[[0,0],[%.17g,0]]}}",
                     i == 0 ? "float32" : "float64", score);
        struct cJSON *json = daemon_ask_json("/attention", body, (size_t)size);
        const struct cJSON *result = json_first(json_get(json_get(json, "comparison"), "results"));
        cr_expect_str_eq(json_text(json_get(result, "verdict")), i == 0 ? "rounded" : "wrong");
        json_free(json);
    }
}

/* The type of numbers in JSON is not known. */
Test(verdicts, numbers_in_json_have_the_type_that_the_request_says) {
    static const char *const types[] = {"", "\"computed_in\":\"float32\","};
    for (size_t i = 0; i < 2; i++) {
        char body[512];
        const int size = snprintf(
            body, sizeof body,
            "{\"dtype\":\"float64\",%s\"Q\":[[1,0]],\"K\":[[1,0],[0,1]],\"V\":[[1,2],[3,4]],"
            "\"return\":[\"comparison\"],\"expected\":{\"output\":[[1.66047680,2.66047692]]}}",
            types[i]);
        struct cJSON *json = daemon_ask_json("/attention", body, (size_t)size);
        const struct cJSON *result = json_first(json_get(json_get(json, "comparison"), "results"));
        cr_expect_str_eq(json_text(json_get(result, "verdict")), i == 0 ? "wrong" : "rounded");
        if (i == 0) {
            cr_expect_not_null(strstr(json_text(json_get(result, "message")), "in float32"));
        }
        json_free(json);
    }
}

Test(verdicts, a_float32_call_is_compared_with_exact_results) {
    struct binary_input wide = output;
    wide.kind = BINARY_F32;
    draw_call(0, 1);
    multiply(c.q, 0, NUMBERS, 128); /* scores of some hundreds */
    compute_kernel(exactly);
    expect("large scores", &wide, "F32", "", ROUNDED, NULL);
}

Test(verdicts, shifted_rows_and_transposed_heads_are_named) {
    static double moved[PAIRS];
    struct binary_input sent = output;
    draw_call(0, 1);
    compute_kernel(bfloat16);
    sent.numbers = moved;
    for (size_t i = 0; i < NUMBERS; i++) {
        const size_t row = i / COLUMNS;
        moved[i] = row % ROWS + 1 < ROWS ? c.output[i + COLUMNS] : 0;
    }
    expect("rows one place back", &sent, "BF16", WIDE, WRONG, "if each moves one place on");
    for (size_t i = 0; i < NUMBERS; i++) {
        const size_t row = i / COLUMNS;
        moved[i] = row % ROWS > 0 ? c.output[i - COLUMNS] : 0;
    }
    expect("rows one place on", &sent, "BF16", WIDE, WRONG, "if each moves one place back");
    sent = weights;
    sent.numbers = moved;
    for (size_t i = 0; i < PAIRS; i++) {
        const size_t h = i / ROWS / ROWS, row = i / ROWS % ROWS, column = i % ROWS;
        moved[i] = c.weights[(h * ROWS + column) * ROWS + row];
    }
    expect("weights", &sent, "BF16", WIDE, WRONG, "if each is transposed");
}

/* A tolerance decides alone, and it changes no verdict. */
Test(verdicts, a_tolerance_decides_if_it_is_given) {
    static const char *const tolerances[] = {"0.3", "1e-9"};
    draw_call(0, 1);
    compute_kernel(bfloat16);
    multiply(c.output, 0, NUMBERS, 1.1);
    for (size_t i = 0; i < 2; i++) {
        char options[256];
        const struct binary_call call = {
            "/attention",
            options,
            "[\"comparison\"]",
            {output, {"Q", MATRIX, 0, c.q}, {"K", MATRIX, 0, c.k}, {"V", MATRIX, 0, c.v}}};
        struct cJSON *json;
        const struct cJSON *result;
        snprintf(options, sizeof options,
                 WIDE ALL ",\"tolerance\":{\"absolute\":%s,\"relative\":%s}", tolerances[i],
                 tolerances[i]);
        cr_expect_eq(ask_verdict(&call, "BF16", &json, &result), i == 0 ? 200 : 409);
        cr_expect_str_eq(json_text(json_get(result, "verdict")), "wrong");
        json_free(json);
    }
}
