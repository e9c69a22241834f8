/*
 * test_layers_bias.c - the relative bias of a stored layer, beside the same bias in a request. The
 * layer is a decoder of T5 whose table has a row for each distance that occurs.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/binary.h"
#include "support/daemon.h"
#include "support/json.h"

enum {
    HEADS = 2,
    D = 4,
    WIDTH = HEADS * D,
    BUCKETS = 32, /* the first half has one distance each */
    MATRICES = 4
};

#define LAYER   "decoder.block.0.layer.0.SelfAttention"
#define OPTIONS "\"return\":[\"output\",\"weights\"],"

static char folder[64], file_name[96];
static float numbers[MATRICES * WIDTH * WIDTH + BUCKETS * HEADS];

static void make_numbers(void) {
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        numbers[i] = (float)((i * 37 + i / 64 * 11) % 61) / 64 - 0.375f;
    }
}

static void start_t5(void) {
    static const char names[MATRICES] = "qkvo";
    char header[2048] =
        "{\"__metadata__\":{\"config\":\"{\\\"model_type\\\":\\\"t5\\\",\\\"num_heads\\\":2,"
        "\\\"d_model\\\":8,\\\"d_kv\\\":4,\\\"relative_attention_num_buckets\\\":32}\"}";
    size_t size = strlen(header), bytes = 0;
    for (int i = 0; i <= MATRICES; i++) {
        const size_t rows = i < MATRICES ? WIDTH : BUCKETS, columns = i < MATRICES ? WIDTH : HEADS;
        const size_t end = bytes + rows * columns * sizeof *numbers;
        char name[40] = "relative_attention_bias";
        if (i < MATRICES) {
            snprintf(name, sizeof name, "%c", names[i]);
        }
        size += (size_t)snprintf(header + size, sizeof header - size,
                                 ",\"" LAYER ".%s.weight\":{\"dtype\":\"F32\",\"shape\":[%zu,%zu],"
                                 "\"data_offsets\":[%zu,%zu]}",
                                 name, rows, columns, bytes, end);
        bytes = end;
    }
    strcat(header, "}");
    make_numbers();
    strcpy(folder, "/tmp/layers-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(file_name, sizeof file_name, "%s/t5.safetensors", folder);
    char *bytes_of_file = binary_file(header, numbers, sizeof numbers, &size);
    FILE *file = fopen(file_name, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes_of_file, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
    free(bytes_of_file);
    daemon_start_with((const char *const[]){"--layers", folder, NULL});
}

static void end_t5(void) {
    daemon_end();
    unlink(file_name);
    cr_assert_eq(rmdir(folder), 0);
}

TestSuite(layers_bias, .init = start_t5, .fini = end_t5, .timeout = 60);

/* ------------------------------------------------------------------------------------- requests */

static void write_matrix(FILE *out, const char *name, const float *values, size_t rows,
                         size_t columns) {
    fprintf(out, "\"%s\":[", name);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            fprintf(out, "%s%.9g", j > 0 ? "," : i > 0 ? "],[" : "[", values[i * columns + j]);
        }
    }
    fputs("]],", out);
}

/* Writes X and, if there are some, the keys and values of the past. The batch has two items. */
static void write_inputs(FILE *out, size_t n, size_t past) {
    static const char *const names[] = {"past_K", "past_V"};
    fputs("{" OPTIONS "\"X\":[", out);
    for (size_t i = 0; i < 2 * n; i++) {
        fprintf(out, "%s", i == 0 ? "[" : i == n ? "],[" : ",");
        for (size_t j = 0; j < WIDTH; j++) {
            fprintf(out, "%s%.3g", j > 0 ? "," : "[", (double)((i * 29 + j * 13) % 41) / 20 - 1);
        }
        fputs("]", out);
    }
    fputs("]],", out);
    for (size_t k = 0; past > 0 && k < 2; k++) {
        fprintf(out, "\"%s\":[", names[k]);
        for (size_t i = 0; i < 2 * HEADS * past; i++) {
            fputs(i == 0                    ? "[[["
                  : i % (HEADS * past) == 0 ? "]],[[["
                  : i % past == 0           ? "],[["
                                            : ",[",
                  out);
            for (size_t j = 0; j < D; j++) {
                fprintf(out, "%s%.3g", j > 0 ? "," : "",
                        (double)((i * 17 + j * 23 + k * 7) % 37) / 20 - 0.9);
            }
            fputs("]", out);
        }
        fputs("]]],", out);
    }
}

/* Writes the number that the layer adds for each query and key, and `more`, a number to add for
 * each key. Query i stands at the place i + past. A later key is forbidden, whatever is added. */
static void write_bias(FILE *out, size_t n, size_t past, const double *more) {
    const float *table = numbers + MATRICES * WIDTH * WIDTH;
    fputs("\"bias\":[", out);
    for (size_t h = 0; h < HEADS; h++) {
        for (size_t i = 0; i < n; i++) {
            fprintf(out, "%s", i > 0 ? ",[" : h > 0 ? "],[[" : "[[");
            for (size_t j = 0; j < past + n; j++) {
                const size_t distance = i + past > j ? i + past - j : 0;
                fprintf(out, "%s%.9g", j > 0 ? "," : "",
                        (double)table[distance * HEADS + h] + (more != NULL ? more[j] : 0));
            }
            fputs("]", out);
        }
    }
    fputs("]],", out);
}

static struct cJSON *ask_layer(const char *path, char *body) {
    struct cJSON *answer = daemon_ask_json(path, body, strlen(body));
    free(body);
    return answer;
}

/* Compares the layer with /multi-head-attention. `more` is a bias of the request, for each key. */
static void compare(size_t n, size_t past, const double *more) {
    static const char *const names[MATRICES] = {"W_Q", "W_K", "W_V", "W_O"};
    char *mine, *same;
    size_t size;
    FILE *out = open_memstream(&mine, &size);
    write_inputs(out, n, past);
    if (more != NULL) {
        fputs("\"bias\":[", out);
        for (size_t j = 0; j < past + n; j++) {
            fprintf(out, "%s%.9g", j > 0 ? "," : "[", more[j]);
        }
        fputs("]],", out);
    }
    fputs("\"dtype\":\"float64\"}", out);
    fclose(out);
    out = open_memstream(&same, &size);
    write_inputs(out, n, past);
    for (size_t i = 0; i < MATRICES; i++) {
        write_matrix(out, names[i], numbers + i * WIDTH * WIDTH, WIDTH, WIDTH);
    }
    write_bias(out, n, past, more);
    fputs("\"heads\":2,\"weight_layout\":\"out_in\",\"scale\":1,\"causal\":true,"
          "\"dtype\":\"float64\"}",
          out);
    fclose(out);
    struct cJSON *answer = ask_layer("/layers/t5." LAYER "/attention", mine);
    struct cJSON *expected = ask_layer("/multi-head-attention", same);
    struct json_difference difference;
    cr_expect(json_near(answer, expected, 1e-12, 1e-12, &difference), "%zu queries after %zu keys",
              n, past);
    json_free(answer);
    json_free(expected);
}

/* ---------------------------------------------------------------------------------------- tests */

/* The number of past keys is neither that of the queries nor the size of a head. */
Test(layers_bias, is_that_of_an_explicit_bias) {
    static const double more[] = {0.5, -1, 0.25, 2, 0, -0.75, 1, 0.125};
    compare(5, 0, NULL);
    compare(1, 7, NULL);
    compare(3, 5, NULL);
    compare(5, 3, more);
}

/* A bias of the request that fits no call is refused as it is for every other call. */
Test(layers_bias, refuses_what_is_no_bias) {
    static const struct {
        const char *bias, *detail;
    } rows[] = {
        {"[[[[[0]]]]]", "bias must have rank 2 to 4, not 5"},
        {"[[1,2,3]]", "bias"},
        {"[[[0]],[[0]],[[0]]]", "bias"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"X\":[[1,2,3,4,5,6,7,8],[8,7,6,5,4,3,2,1]],\"bias\":%s}",
                 rows[i].bias);
        struct client_response response =
            daemon_ask_shared("POST", "/layers/t5." LAYER "/attention",
                              "Content-Type: application/json\r\n", body, strlen(body));
        cr_expect_eq(response.status, 422, "%s: %s", rows[i].bias, response.body);
        cr_expect_not_null(strstr(response.body, rows[i].detail), "%s", response.body);
        client_response_free(&response);
    }
}
