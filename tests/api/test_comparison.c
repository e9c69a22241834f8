/*
 * test_comparison.c - the comparison of a client's own results with those of the service. A kernel
 * of plain loops computes them with planted bugs, and the verdict must name the place of each. The
 * tests know the service by its socket only.
 */
#define _GNU_SOURCE /* open_memstream */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/binary.h"
#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/json.h"
#include "support/rng.h"

TestSuite(comparison, .init = daemon_start_connected, .fini = daemon_end, .timeout = 1200);

/* ---------------------------------------------------------------------------------- the kernel */

enum {
    HEADS = 3,
    ROWS = 9,
    COLUMNS = 4,
    VALID = 6, /* keys that are no padding */
    TORN = 4   /* the row, of head 1, that is not written */
};

enum bug {
    NONE,
    ONE_ROW,    /* the row TORN of head 1 is not written */
    ONE_HEAD,   /* head 1 takes the keys of head 0 */
    OFF_BY_ONE, /* a query sees one later key */
    NO_SCALE,   /* the scores are not divided by the root of the columns */
    UNMASKED,   /* the keys after the valid ones are seen */
    SWAPPED,    /* keys stand for values, and values for keys */
    BUGS
};

typedef double matrix[HEADS][ROWS][COLUMNS];

static matrix q, k, v;

static void draw_matrix(matrix m, uint64_t seed) {
    struct rng rng = {seed};
    for (size_t head = 0; head < HEADS; head++) {
        for (size_t row = 0; row < ROWS; row++) {
            for (size_t c = 0; c < COLUMNS; c++) {
                m[head][row][c] = (double)(float)rng_normal(&rng);
            }
        }
    }
}

/* Computes a row of the output, and of the weights. */
static void attend(enum bug bug, size_t head, size_t row, double output[COLUMNS],
                   double weights[ROWS]) {
    const size_t of = bug == ONE_HEAD && head == 1 ? 0 : head;
    double(*keys)[COLUMNS] = bug == SWAPPED ? v[of] : k[of];
    double(*values)[COLUMNS] = bug == SWAPPED ? k[head] : v[head];
    double sum = 0;
    memset(output, 0, COLUMNS * sizeof *output);
    for (size_t j = 0; j < ROWS; j++) {
        double score = 0;
        for (size_t c = 0; c < COLUMNS; c++) {
            score += q[head][row][c] * keys[j][c];
        }
        const bool seen = j <= row + (bug == OFF_BY_ONE ? 1 : 0) && (j < VALID || bug == UNMASKED);
        weights[j] = seen ? exp(bug == NO_SCALE ? score : score / sqrt(COLUMNS)) : 0;
        sum += weights[j];
    }
    for (size_t j = 0; j < ROWS; j++) {
        weights[j] /= sum;
        for (size_t c = 0; c < COLUMNS; c++) {
            output[c] += weights[j] * values[j][c];
        }
    }
    if (head == 1 && row == TORN && bug == ONE_ROW) {
        memset(output, 0, COLUMNS * sizeof *output);
    }
}

static void compute(enum bug bug, matrix output, double weights[HEADS][ROWS][ROWS]) {
    for (size_t head = 0; head < HEADS; head++) {
        for (size_t row = 0; row < ROWS; row++) {
            attend(bug, head, row, output[head][row], weights[head][row]);
        }
    }
}

/* Writes an array of three axes, of which the last has `columns` elements. */
static void put(FILE *to, const char *name, const double *numbers, size_t columns) {
    binary_put(to, &(struct binary_input){name, {HEADS, ROWS, columns}, 0, numbers});
}

/* Returns the body of a call that expects what the kernel computes; free(). */
static char *body_with(enum bug bug, const char *more, size_t *size) {
    static matrix output;
    static double weights[HEADS][ROWS][ROWS];
    char *body = NULL;
    FILE *to = open_memstream(&body, size);
    compute(bug, output, weights);
    fprintf(to, "{%s\"causal\":true,\"lengths\":%d,\"return\":[\"comparison\"],", more, VALID);
    put(to, "Q", q[0][0], COLUMNS);
    fputc(',', to);
    put(to, "K", k[0][0], COLUMNS);
    fputc(',', to);
    put(to, "V", v[0][0], COLUMNS);
    fputs(",\"expected\":{", to);
    put(to, "output", output[0][0], COLUMNS);
    fputc(',', to);
    put(to, "weights", weights[0][0], ROWS);
    fputs("}}", to);
    fclose(to);
    return body;
}

static void draw_all(void) {
    draw_matrix(q, 1);
    draw_matrix(k, 2);
    draw_matrix(v, 3);
}

static double number_of(const struct cJSON *object, const char *name) {
    double number = (double)NAN;
    json_number(json_get(object, name), &number);
    return number;
}

/* Returns the place of the largest absolute error along an axis. */
static size_t place_of(const struct cJSON *result, size_t axis) {
    double number = -1;
    const struct cJSON *index = json_first(json_get(json_get(result, "absolute_error"), "index"));
    for (; axis > 0; axis--) {
        index = json_next(index);
    }
    json_number(index, &number);
    return (size_t)number;
}

/* Returns the largest absolute error of a head; infinity stands for null. */
static double error_of(const struct cJSON *result, size_t head) {
    double error = (double)INFINITY;
    const struct cJSON *errors = json_first(json_get(result, "head_errors"));
    for (; head > 0; head--) {
        errors = json_next(errors);
    }
    json_number(errors, &error);
    return error;
}

static const char *verdict_of(const struct cJSON *object) {
    return json_text(json_get(object, "verdict"));
}

/* Expects the place of a bug in the output, or in both results. */
static void expect_place(enum bug bug, const struct cJSON *output, const struct cJSON *weights) {
    const size_t head = place_of(output, 0), row = place_of(output, 1);
    const double bound = 10 * number_of(output, "bound"); /* which is a root mean square */
    switch (bug) {
    case ONE_ROW:
        cr_expect(head == 1 && row == TORN && number_of(output, "beyond_tolerance") == COLUMNS);
        cr_expect_str_eq(verdict_of(weights), "rounded");
        cr_expect(error_of(output, 0) <= bound && error_of(output, 2) <= bound);
        break;
    case ONE_HEAD:
        cr_expect(head == 1 && place_of(weights, 0) == 1);
        cr_expect(error_of(output, 0) <= bound && error_of(output, 1) > 0.01 &&
                  error_of(weights, 2) <= 10 * number_of(weights, "bound"));
        break;
    case OFF_BY_ONE:
        cr_expect(row < VALID - 1 && place_of(weights, 1) < VALID - 1);
        break;
    case NO_SCALE:
        cr_expect(row > 0 && error_of(output, 0) > 0.01);
        break;
    case UNMASKED:
        cr_expect(row >= VALID && place_of(weights, 1) >= VALID);
        break;
    case SWAPPED:
        cr_expect(error_of(output, 0) > 0.1 && error_of(output, 2) > 0.1);
        break;
    default:
        cr_expect(false, "no bug %d", bug);
    }
}

Test(comparison, the_verdict_names_the_place_of_a_bug) {
    draw_all();
    for (enum bug bug = ONE_ROW; bug < BUGS; bug++) {
        size_t size;
        char *body = body_with(bug, "", &size);
        struct cJSON *json = daemon_ask_json("/attention", body, size);
        const struct cJSON *all = json_get(json, "comparison"), *results = json_get(all, "results");
        const struct cJSON *output = json_get(results, "output");
        cr_expect_eq(json_size(json), 1); /* "return" names nothing else */
        cr_expect_str_eq(verdict_of(all), "wrong", "bug %d", bug);
        cr_expect_str_eq(verdict_of(output), "wrong", "bug %d", bug);
        cr_expect_eq(json_size(json_get(output, "head_errors")), HEADS);
        expect_place(bug, output, json_get(results, "weights"));
        json_free(json);
        free(body);
    }
}

Test(comparison, a_right_kernel_differs_by_rounding) {
    static const char *const types[] = {"", "\"dtype\":\"float64\","};
    draw_all();
    for (size_t i = 0; i < COUNT(types); i++) {
        size_t size;
        char *body = body_with(NONE, types[i], &size);
        struct cJSON *json = daemon_ask_json("/attention", body, size);
        const struct cJSON *all = json_get(json, "comparison"), *results = json_get(all, "results");
        cr_expect_str_eq(verdict_of(all), "rounded");
        const struct cJSON *output = json_get(results, "output");
        cr_expect_eq(number_of(output, "beyond_tolerance"), 0);
        cr_expect_eq(number_of(json_get(output, "tolerance"), "relative"), i == 0 ? 1.3e-6 : 1e-7);
        cr_expect(number_of(output, "bound") < (i == 0 ? 1e-6 : 1e-14));
        json_free(json);
        free(body);
    }
}

Test(comparison, a_difference_is_a_409_on_request) {
    draw_all();
    for (enum bug bug = NONE; bug <= ONE_ROW; bug++) {
        size_t size;
        struct cJSON *problem;
        char *body = body_with(bug, "\"fail_on_difference\":true,", &size);
        struct client_response response = daemon_ask_shared("POST", "/attention", "", body, size);
        if (bug == NONE) {
            cr_expect_eq(response.status, 200, "%s", response.body);
        } else {
            expect_problem(&response, 409, "one row", &problem);
            const struct cJSON *all = json_get(problem, "comparison");
            cr_expect_str_eq(verdict_of(all), "wrong");
            cr_expect_eq(place_of(json_get(json_get(all, "results"), "output"), 1), TORN);
            expect_text(json_text(json_get(problem, "detail")), "output is off by ", "detail",
                        "one row");
            json_free(problem);
        }
        client_response_free(&response);
        free(body);
    }
}

/* ---------------------------------------------------------------------------- types of tensors */

/* One query, one key, and values 1 and 2, so the output is these values. */
#define TENSORS                                                                                    \
    "\"Q\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"                            \
    "\"K\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[4,8]},"                            \
    "\"V\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[8,16]},"                           \
    "\"expected.output\":{\"shape\":[1,2],\"data_offsets\":[16,"

/* Asks with an expected output of this type and these bytes, and returns the answer in JSON. */
static struct cJSON *ask_with_type(const char *type, const void *bytes, size_t count) {
    static const float numbers[] = {1, 1, 1, 2};
    char header[512], data[64], headers[128];
    size_t size;
    snprintf(header, sizeof header, "{" TENSORS "%zu],\"dtype\":\"%s\"}}", sizeof numbers + count,
             type);
    memcpy(data, numbers, sizeof numbers);
    memcpy(data + sizeof numbers, bytes, count);
    char *body = binary_file(header, data, sizeof numbers + count, &size);
    snprintf(headers, sizeof headers,
             "Content-Type: application/vnd.safetensors\r\nAccept: application/json\r\n");
    struct client_response response = daemon_ask_shared("POST", "/attention", headers, body, size);
    cr_expect_eq(response.status, 200, "%s: %s", type, response.body);
    struct cJSON *json = json_parse(response.body, response.size);
    client_response_free(&response);
    free(body);
    return json;
}

static const struct cJSON *output_of(const struct cJSON *json) {
    return json_get(json_get(json_get(json, "comparison"), "results"), "output");
}

/* 1 and the number after it, or near to it, and 2. */
Test(comparison, each_type_has_a_tolerance_and_keeps_its_numbers) {
    static const struct {
        const char *type;
        unsigned char bytes[16];
        size_t size;
        double error, relative;
        const char *computed_in;
    } types[] = {
        {"F8_E4M3", {0x39, 0x40}, 2, 0x1p-3, 0.25, "float8"},
        {"F8_E5M2", {0x3D, 0x40}, 2, 0x1p-2, 0.5, "float8_e5m2"},
        {"F16", {1, 0x3C, 0, 0x40}, 4, 0x1p-10, 1e-3, "float16"},
        {"BF16", {0x81, 0x3F, 0, 0x40}, 4, 0x1p-7, 1.6e-2, "bfloat16"},
        {"F32", {1, 0, 0x80, 0x3F, 0, 0, 0, 0x40}, 8, 0x1p-23, 1.3e-6, "float32"},
        {"F64",
         {1, 0, 0, 0, 0, 0, 0xF0, 0x3F, 0, 0, 0, 0, 0, 0, 0, 0x40},
         16,
         0x1p-52,
         1e-7,
         "float64"},
        {"I8", {2, 2}, 2, 1, 1.3e-6, "float32"},
        {"I32", {1, 0, 0, 1, 2}, 8, 0x1p24, 1.3e-6, "float32"},
        {"I64", {1, 0, 0, 1, 0, 0, 0, 0, 2}, 16, 0x1p24, 1.3e-6, "float32"},
    };
    for (size_t i = 0; i < COUNT(types); i++) {
        struct cJSON *json = ask_with_type(types[i].type, types[i].bytes, types[i].size);
        const struct cJSON *output = output_of(json);
        cr_expect_eq(number_of(json_get(output, "absolute_error"), "largest"), types[i].error, "%s",
                     types[i].type);
        cr_expect_eq(number_of(json_get(output, "tolerance"), "relative"), types[i].relative);
        cr_expect_str_eq(json_text(json_get(output, "computed_in")), types[i].computed_in);
        cr_expect_str_eq(verdict_of(output), i < 6 ? "rounded" : "wrong", "%s", types[i].type);
        json_free(json);
    }
}

/* A compute_dtype says in which type the client's kernel computes, if the numbers do not. */
Test(comparison, a_compute_dtype_has_a_tolerance) {
    static const struct {
        const char *type;
        double relative;
    } types[] = {{"float16", 1e-3}, {"bfloat16", 1.6e-2}};
    char body[256];
    for (size_t i = 0; i < COUNT(types); i++) {
        const int size =
            snprintf(body, sizeof body,
                     "{\"compute_dtype\":\"%s\",\"Q\":[[1]],\"K\":[[1]],\"V\":[[1,2]],"
                     "\"return\":[\"comparison\"],\"expected\":{\"output\":[[1,2.001]]}}",
                     types[i].type);
        struct cJSON *json = daemon_ask_json("/attention", body, (size_t)size);
        const struct cJSON *output = output_of(json);
        cr_expect_eq(number_of(json_get(output, "tolerance"), "relative"), types[i].relative);
        cr_expect_str_eq(json_text(json_get(output, "computed_in")), types[i].type);
        cr_expect_str_eq(verdict_of(output), "rounded");
        json_free(json);
    }
}

/* The datatype of an expected tensor is not that of the call. */
Test(comparison, an_expected_type_changes_no_result) {
    static const double numbers[] = {1, 2};
    static const char body[] =
        "{\"outputs\":[{\"name\":\"output\"},{\"name\":\"comparison\"}],"
        "\"inputs\":[{\"name\":\"Q\",\"datatype\":\"FP16\",\"shape\":[1,1],"
        "\"data\":[1]},{\"name\":\"K\",\"datatype\":\"FP16\",\"shape\":[1,1],"
        "\"data\":[1]},{\"name\":\"V\",\"datatype\":\"FP16\",\"shape\":[1,2],"
        "\"data\":[1,2]},{\"name\":\"expected.output\",\"datatype\":\"FP64\","
        "\"shape\":[1,2],\"data\":[1,2.0000000000000004]}],"
        "\"parameters\":{\"binary_data_output\":true}}";
    struct binary_answer answer;
    struct client_response response =
        daemon_infer("/v2/models/attention/infer", "", body, sizeof body - 1, 0);
    expect_outputs(&response, "FP64 expected", &answer);
    cr_expect_str_eq(binary_find(&answer, "output")->type, "FP16");
    const struct binary_result *comparison = binary_find(&answer, "comparison");
    cr_assert_not_null(comparison);
    cr_expect_str_eq(comparison->type, "BYTES");
    expect_text(json_text(json_first(comparison->data)), "{\"largest\":4.440892098500626e-16",
                "comparison", "FP64 expected");
    binary_free(&answer);
    client_response_free(&response);
    struct cJSON *json = ask_with_type("F64", numbers, sizeof numbers);
    cr_expect_str_eq(verdict_of(output_of(json)), "equal");
    json_free(json);
}

Test(comparison, nan_and_infinities_are_counted_and_found) {
    static const float with_nan[] = {1, NAN}, infinite[] = {-INFINITY, NAN};
    const struct {
        const float *numbers;
        double nan, infinite;
        size_t column;
    } rows[] = {{with_nan, 1, 0, 1}, {infinite, 1, 1, 0}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        double error;
        struct cJSON *json = ask_with_type("F32", rows[i].numbers, sizeof with_nan);
        const struct cJSON *output = output_of(json);
        cr_expect_str_eq(verdict_of(output), "wrong");
        cr_expect_eq(number_of(output, "expected_nan"), rows[i].nan);
        cr_expect_eq(number_of(output, "expected_infinite"), rows[i].infinite);
        cr_expect_eq(number_of(output, "beyond_tolerance"), rows[i].nan + rows[i].infinite);
        cr_expect_eq(place_of(output, 1), rows[i].column);
        cr_expect_not(json_number(json_get(json_get(output, "absolute_error"), "largest"), &error));
        json_free(json);
    }
}

/* The comparison is a text in the header, so the answer may have no tensor at all. */
Test(comparison, an_answer_in_safetensors_may_have_no_tensor) {
    static const struct binary_call call = {"/attention",
                                            "",
                                            "[\"comparison\"]",
                                            {{"Q", {2, 3}, 0, NULL},
                                             {"K", {2, 3}, 0, NULL},
                                             {"V", {2, 3}, 0, NULL},
                                             {"expected.output", {2, 3}, 0, NULL}}};
    size_t size;
    char *body = binary_safetensors(&call, "F32", &size), message[256];
    struct client_response response = daemon_ask_shared(
        "POST", "/attention", "Content-Type: application/vnd.safetensors\r\n", body, size);
    struct binary_answer answer;
    cr_assert(binary_read_safetensors(&answer, response.body, response.size, message), "%s",
              message);
    cr_expect_eq(answer.count, 0);
    expect_text(json_text(json_get(json_get(answer.head, "__metadata__"), "comparison")),
                "{\"verdict\":\"wrong\"", "comparison", "no tensor");
    binary_free(&answer);
    client_response_free(&response);
    free(body);
}

/* ------------------------------------------------------------------------------- large tensors */

enum {
    LARGE = 3 /* heads; four tasks compare their scores */
};

/* Several tasks compare a tensor, and the last chunk of the first head ends in the second one. */
static const struct binary_call large = {"/attention",
                                         "",
                                         "[\"comparison\"]",
                                         {{"Q", {LARGE, 370, 8}, 0, NULL},
                                          {"K", {LARGE, 370, 8}, 0, NULL},
                                          {"V", {LARGE, 370, 8}, 0, NULL},
                                          {"expected.scores", {LARGE, 370, 370}, 0, NULL},
                                          {"expected.lse", {LARGE, 370}, 0, NULL}}};

/* Returns the comparison of a large call by a daemon with this number of threads. Further calls
 * give the same one. */
static char *compare_large(const char *threads) {
    size_t size;
    char *answer = NULL;
    daemon_start_with((const char *const[]){"--workers", threads, NULL});
    char *body = binary_safetensors(&large, "F32", &size);
    for (int i = 0; i < 4; i++) {
        struct client_response response = daemon_ask_shared(
            "POST", "/attention",
            "Content-Type: application/vnd.safetensors\r\nAccept: application/json\r\n", body,
            size);
        cr_expect_eq(response.status, 200, "%s", response.body);
        answer = answer == NULL ? strdup(response.body) : answer;
        cr_expect_str_eq(response.body, answer, "%s workers, call %d", threads, i);
        client_response_free(&response);
    }
    free(body);
    daemon_end();
    return answer;
}

/* A row that is about as long as what one task compares. */
Test(comparison, rows_as_long_as_a_task_are_compared) {
    static const size_t columns[] = {131056, 131057, 131071, 131072};
    for (size_t i = 0; i < COUNT(columns); i++) {
        const struct binary_call call = {
            "/softmax",
            "",
            NULL,
            {{"X", {1, columns[i]}, 0, NULL}, {"expected.output", {1, columns[i]}, 0, NULL}}};
        size_t size;
        char *body = binary_safetensors(&call, "F32", &size);
        struct client_response response = daemon_ask_shared(
            "POST", "/softmax",
            "Content-Type: application/vnd.safetensors\r\nAccept: application/json\r\n", body,
            size);
        struct cJSON *json = json_parse(response.body, response.size);
        const char *verdict = json_text(json_get(json_get(json, "comparison"), "verdict"));
        cr_expect_eq(response.status, 200);
        cr_expect(verdict != NULL && strcmp(verdict, "wrong") == 0, "%s", response.body);
        json_free(json);
        client_response_free(&response);
        free(body);
    }
}

TestSuite(comparison_of_threads, .timeout = 1200);

Test(comparison_of_threads, does_not_depend_on_their_number) {
    char *one = compare_large("1"), *seven = compare_large("7");
    struct cJSON *json = json_parse(one, strlen(one));
    const struct cJSON *scores =
        json_get(json_get(json_get(json, "comparison"), "results"), "scores");
    double largest = 0;
    cr_expect_str_eq(one, seven);
    cr_expect_gt(number_of(scores, "beyond_tolerance"), 370000);
    for (size_t head = 0; head < LARGE; head++) {
        cr_expect(error_of(scores, head) > 10 && error_of(scores, head) < 1000);
        largest = fmax(largest, error_of(scores, head));
    }
    cr_expect_eq(largest, number_of(json_get(scores, "absolute_error"), "largest"));
    cr_expect_eq(largest, error_of(scores, place_of(scores, 0)));
    json_free(json);
    free(one);
    free(seven);
}
