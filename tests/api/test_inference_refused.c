/*
 * test_inference_refused.c - what the Open Inference Protocol refuses over a socket, beside the
 * rows of data/refusals.txt. After each refusal the same connection serves the next request. The
 * tests know the service by its socket only.
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
#include "support/expect.h"
#include "support/json.h"

#define INFER "/v2/models/attention/infer"

TestSuite(inference_refused, .init = daemon_start_compressing, .fini = daemon_end, .timeout = 1200);

/* ----------------------------------------------------------------------------------- requests */

#define INPUT(name, type, shape, rest)                                                             \
    "{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":" shape "," rest "}"
#define BYTES(size)   "\"parameters\":{\"binary_data_size\":" size "}"
#define DATA(numbers) "\"data\":" numbers
#define ONE(name)     INPUT(name, "FP32", "[1,1]", DATA("[1]"))

/* The JSON before tensors has limits of its own, because a thread that serves connections parses
 * it. */
Test(inference_refused, limits_of_the_json) {
    static const struct {
        const char *begin, *each, *after, *end; /* a number stands before `after` */
        size_t times;
        bool length;
        int status;
        const char *says;
    } rows[] = {
        {"{\"id\":\"", "0123456789", "", "\"}", 6600, true, 413, "32768"},
        {"{\"id\":[\"\"", ",\"", "\"", "]}", 4100, true, 413, "4096 values"},
        {"{\"inputs\":[" ONE("Q"),
         ",{\"datatype\":\"FP32\",\"shape\":[1,1],\"data\":[1],\"name\":\"", "\"}", "]}", 64, false,
         422, "64 tensors"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *body = NULL;
        size_t size;
        FILE *to = open_memstream(&body, &size);
        fputs(rows[i].begin, to);
        for (size_t k = 0; k < rows[i].times; k++) {
            fprintf(to, "%s%zu%s", rows[i].each, k, rows[i].after);
        }
        fputs(rows[i].end, to);
        fclose(to);
        struct client_response response =
            daemon_infer(INFER, "", body, size, rows[i].length ? size : 0);
        expect_refused(&response, INFER, rows[i].status, rows[i].says, rows[i].begin);
        free(body);
    }
}

/* ------------------------------------------------------------------------------------- answers */

/* Makes a request whose result "scores" are the keys, and says which of its results are binary. */
static char *make_scores(const float *keys, size_t count, bool output, bool scores, size_t *header,
                         size_t *size) {
    const size_t bytes = count * sizeof *keys;
    char *body = malloc(1024 + 2 * bytes);
    *header = (size_t)sprintf(
        body,
        "{\"inputs\":[%s,{\"name\":\"K\",\"datatype\":\"FP32\",\"shape\":[%zu,1],"
        "\"parameters\":{\"binary_data_size\":%zu}},{\"name\":\"V\",\"datatype\":\"FP32\","
        "\"shape\":[%zu,1],\"parameters\":{\"binary_data_size\":%zu}}],\"outputs\":["
        "{\"name\":\"output\",\"parameters\":{\"binary_data\":%s}},"
        "{\"name\":\"scores\",\"parameters\":{\"binary_data\":%s}}]}",
        ONE("Q"), count, bytes, count, bytes, output ? "true" : "false", scores ? "true" : "false");
    memcpy(body + *header, keys, bytes);
    memcpy(body + *header + bytes, keys, bytes);
    *size = *header + 2 * bytes;
    return body;
}

/* Makes numbers that have 15 characters in JSON, because they need nine digits. */
static void fill_long(float *numbers, size_t count) {
    char text[32];
    float number = -1e-10F;
    for (size_t i = 0; i < count;) {
        snprintf(text, sizeof text, "%.8g", (double)number);
        if (strtof(text, NULL) != number) {
            numbers[i++] = number;
        }
        number = nextafterf(number, -1);
    }
}

/* Expects these numbers, bit for bit. */
static void expect_floats(const struct binary_result *result, const float *numbers, size_t count,
                          const char *about) {
    cr_assert_not_null(result, "%s", about);
    cr_expect(result->bytes == NULL || memcmp(result->bytes, numbers, count * sizeof *numbers) == 0,
              "%s", about);
    const struct cJSON *element = json_first(result->data);
    for (size_t i = 0; i < count && result->bytes == NULL; i++, element = json_next(element)) {
        double number = 0;
        cr_assert(json_number(element, &number) && (float)number == numbers[i],
                  "%s: element %zu is %g", about, i, number);
    }
}

/* JSON stands before binary results, so it may have 1 MiB at most. The scores have 15 characters
 * and a comma each. The server reckons with 17 bytes for each, and with some for the names. */
Test(inference_refused, long_json_before_binary_results) {
    enum {
        MIB = 1048576,
        FIT = MIB / 17 - 250,
        BEYOND = MIB / 16 + 1000
    };
    static const struct {
        size_t count;
        bool output, scores; /* are binary */
        int status;
    } rows[] = {{FIT, true, false, 200},
                {BEYOND, true, false, 422},
                {BEYOND, true, true, 200},
                {BEYOND, false, false, 200}};
    static float keys[BEYOND];
    fill_long(keys, BEYOND);
    for (size_t i = 0; i < COUNT(rows); i++) {
        char about[64];
        size_t header, size;
        struct binary_answer answer;
        char *body =
            make_scores(keys, rows[i].count, rows[i].output, rows[i].scores, &header, &size);
        struct client_response response = daemon_infer(INFER, "", body, size, header);
        snprintf(about, sizeof about, "row %zu", i);
        free(body);
        if (rows[i].status != 200) {
            expect_refused(&response, INFER, rows[i].status,
                           "ask for all of them in binary form|or for all in JSON", about);
            continue;
        }
        expect_outputs(&response, about, &answer);
        expect_floats(binary_find(&answer, "scores"), keys, rows[i].count, about);
        const char *output = binary_find(&answer, "output")->bytes;
        const size_t json = output != NULL ? (size_t)(output - response.body) : response.size;
        cr_expect(rows[i].scores || (rows[i].count == BEYOND && json > MIB) ||
                      (json > MIB * 9 / 10 && json <= MIB),
                  "%s: %zu bytes of JSON", about, json);
        binary_free(&answer);
        client_response_free(&response);
    }
}

/* Many results are looked at in pieces, and the answer waits for the last one. */
Test(inference_refused, one_of_many_results_is_out_of_range) {
    enum {
        SIDE = 1100
    };
    static const char *const ways[] = {"FP16", "FP32"};
    char body[4096 + 3 * SIDE * 4];
    for (size_t way = 0; way < COUNT(ways) + 1; way++) {
        const size_t width = way == 1 ? 4 : 2;
        size_t size = (size_t)sprintf(body, "{\"inputs\":[");
        for (const char *name = "QKV"; *name != '\0'; name++) {
            size +=
                (size_t)sprintf(body + size, "%s" INPUT("%c", "%s", "[%d,1]", BYTES("%zu")),
                                *name == 'Q' ? "" : ",", *name, ways[way % 2], SIDE, SIDE * width);
        }
        size += (size_t)sprintf(body + size, "],\"outputs\":[{\"name\":\"scores\",\"parameters\":"
                                             "{\"binary_data\":true}}]}");
        const size_t header = size;
        for (size_t i = 0; i < 3 * SIDE; i++, size += width) {
            const bool large = i % SIDE == SIDE - 1 && way < 2; /* 256; the others are 1 */
            const float number = large ? 256 : 1;
            const uint16_t half = large ? 0x5C00 : 0x3C00;
            memcpy(body + size, way == 1 ? (const void *)&number : (const void *)&half, width);
        }
        struct client_response response = daemon_infer(INFER, "", body, size, header);
        if (way == 0) {
            expect_refused(&response, INFER, 422,
                           "scores has the number 65536 at element 1209999|the range of FP16", "");
        } else {
            cr_expect_eq(response.status, 200, "%s", response.body);
            cr_expect_gt(response.size, (size_t)SIDE * SIDE * width);
        }
        client_response_free(&response);
    }
}
