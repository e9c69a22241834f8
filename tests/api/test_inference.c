/*
 * test_inference.c - the Open Inference Protocol over a socket: answers that are those of the JSON
 * endpoints bit by bit, and everything that a request may have. The descriptions of the models are
 * rows of data/exchanges.txt. The tests know the service by its socket only.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/binary.h"
#include "support/client.h"
#include "support/daemon.h"
#include "support/drawn.h"
#include "support/expect.h"
#include "support/json.h"

#define INFER "/v2/models/attention/infer"

TestSuite(inference, .init = daemon_start_compressing, .fini = daemon_end, .timeout = 1200);

/* -------------------------------------------------------------------- the same as the endpoints */

/* Returns the answer to the call in JSON, owned: json_free(). */
static struct cJSON *ask_in_json(const struct binary_call *call, const char *dtype) {
    size_t size;
    char *body = binary_json(call, dtype, &size);
    struct cJSON *json = daemon_ask_json(call->path, body, size);
    free(body);
    return json;
}

/* Asks in the protocol, and compares all results with those in JSON. Words are never binary. */
static void expect_same_answer(const struct binary_call *call, const char *type, unsigned binary,
                               bool binary_results, const struct cJSON *json) {
    struct binary_answer answer;
    char path[128], about[192], message[256], name[64], model[128], options[2048];
    size_t header, size;
    snprintf(model, sizeof model, "\"model_name\":\"%s\",\"model_version\":\"1\",", call->path + 1);
    const char *more = binary_results ? "\"outputs\":[],\"id\":\"a\\u00e9\"," : model;
    const struct binary_call asked = binary_with(
        call, binary_results ? "\"binary_data_output\":true" : "\"binary_data_output\":false",
        options);
    char *body = binary_inference(&asked, type, binary, more, &header, &size);
    snprintf(path, sizeof path, "/v2/models%s%s/infer", call->path,
             binary_results ? "/versions/1" : "");
    snprintf(about, sizeof about, "%s %s with %x", path, type, binary);
    struct client_response response = daemon_infer(path, "", body, size, binary == 0 ? 0 : header);
    expect_outputs(&response, about, &answer);
    cr_expect(binary_equal_json(&answer, json, message), "%s: %s", about, message);
    snprintf(name, sizeof name, "/%s", json_text(json_get(answer.head, "model_name")));
    cr_expect_str_eq(name, call->path);
    cr_expect_str_eq(json_text(json_get(answer.head, "model_version")), "1");
    const char *id = json_text(json_get(answer.head, "id"));
    cr_expect(binary_results ? id != NULL && strcmp(id, "a\xC3\xA9") == 0 : id == NULL);
    for (size_t i = 0; i < answer.count; i++) {
        const bool word = strcmp(answer.list[i].type, "BYTES") == 0;
        cr_expect_eq(answer.list[i].bytes != NULL, binary_results && !word, "%s: %s", about,
                     answer.list[i].name);
    }
    if (!binary_results) {
        expect_header(&response, about, "Inference-Header-Content-Length", NULL);
    }
    binary_free(&answer);
    client_response_free(&response);
    free(body);
}

Test(inference, answers_are_those_of_json) {
    static const struct {
        const char *type, *dtype;
    } types[] = {{"FP32", "float32"}, {"FP64", "float64"}};
    for (size_t i = 0; i < DRAWN_BINARY; i++) {
        struct drawn_call drawn;
        draw_binary(i, &drawn);
        for (size_t k = 0; k < COUNT(types); k++) {
            struct cJSON *json = ask_in_json(&drawn.call, types[k].dtype);
            for (unsigned binary = 0; binary < 4; binary++) { /* none, some, others, all */
                const unsigned mask = binary == 3 ? ~0u : 0x55u * binary;
                expect_same_answer(&drawn.call, types[k].type, mask, false, json);
                expect_same_answer(&drawn.call, types[k].type, mask, true, json);
            }
            json_free(json);
        }
    }
}

/* FP16 and BF16 hold the numbers of the calls exactly, so results of float32 are the same. */
Test(inference, types_of_16_bits_are_computed_in_float32) {
    static const char *const types[] = {"FP16", "BF16"};
    for (size_t i = 0; i < DRAWN_BINARY; i++) {
        char options[2048];
        struct drawn_call drawn;
        draw_binary(i, &drawn);
        struct cJSON *json = ask_in_json(&drawn.call, "float32");
        const struct binary_call call = binary_with(&drawn.call, "\"dtype\":\"float32\"", options);
        for (size_t k = 0; k < COUNT(types); k++) {
            expect_same_answer(&call, types[k], ~0u, true, json);
        }
        json_free(json);
    }
}

/* The digits are for numbers in JSON. They round neither bytes nor the sizes of them. */
Test(inference, digits_do_not_round_bytes) {
    char options[2048];
    struct cJSON *json = ask_in_json(&binary_rich, "float32");
    const struct binary_call call = binary_with(&binary_rich, "\"digits\":1", options);
    expect_same_answer(&call, "FP32", ~0u, true, json);
    json_free(json);
}

/* Words are an output of the type BYTES. A long answer is made when the list of its results is
 * gone, and must still have the number of its words. */
Test(inference, words) {
    static const char *const paths[] = {"/attention", "/self-attention", "/multi-head-attention"};
    static const size_t counts[] = {3, 260};
    for (size_t i = 0; i < COUNT(paths) * COUNT(counts); i++) {
        const size_t count = counts[i % 2], path = i / 2;
        struct binary_call call = {paths[path],
                                   NULL,
                                   "[\"weights\",\"output\"]",
                                   {{"embedding", {count + 1, 4}, 0, NULL},
                                    {path > 0 ? "W_Q" : NULL, {4, 4}, 0, NULL},
                                    {"W_K", {4, 4}, 0, NULL},
                                    {"W_V", {4, 4}, 0, NULL},
                                    {"W_O", {4, 4}, 0, NULL}}};
        char text[4096];
        size_t size = (size_t)sprintf(text, "%s\"text\":\"\\u00e9", path > 1 ? "\"heads\":2," : "");
        for (size_t k = 1; k < count; k++) {
            size += (size_t)sprintf(text + size, " w%zu", k);
        }
        strcpy(text + size, "\"");
        call.options = text;
        if (path < 2) {
            call.inputs[4].name = NULL;
        }
        struct cJSON *json = ask_in_json(&call, "float32");
        cr_expect_eq(json_size(json_get(json, "tokens")), count, "%s", call.path);
        for (unsigned binary = 0; binary < 4; binary++) {
            expect_same_answer(&call, "FP32", binary % 2 - 1U, binary / 2 != 0, json);
        }
        json_free(json);
    }
}

/* --------------------------------------------------------------------- what a request may have */

#define SIDE 1100 /* so that SIDE * SIDE numbers are more than one task converts */

/* Writes a request with a mask of SIDE x SIDE numbers of a type, of which the last one is `last`.
 * Returns its size; *header is the size of its JSON, or 0 if all of it is JSON. */
static size_t write_mask(char *body, const char *type, size_t width, char last, size_t *header) {
    size_t size = (size_t)sprintf(body, "{\"inputs\":[");
    for (const char *name = "QKV"; *name != '\0'; name++) {
        size += (size_t)sprintf(body + size, "{\"name\":\"%c\",\"datatype\":\"FP32\",", *name);
        size += (size_t)sprintf(body + size, "\"shape\":[%d,1],\"data\":[", SIDE);
        for (int k = 0; k < SIDE; k++) {
            size += (size_t)sprintf(body + size, "%s%d", k > 0 ? "," : "", k * k % 7);
        }
        size += (size_t)sprintf(body + size, "]},");
    }
    size += (size_t)sprintf(body + size, "{\"name\":\"mask\",\"datatype\":\"%s\",", type);
    size += (size_t)sprintf(body + size, "\"shape\":[%d,%d],", SIDE, SIDE);
    if (width > 0) {
        size += (size_t)sprintf(body + size, "\"parameters\":{\"binary_data_size\":%zu}",
                                SIDE * SIDE * width);
    } else {
        body[size++] = '"';
        size += (size_t)sprintf(body + size, "data\":[");
    }
    for (size_t k = 0; width == 0 && k < SIDE * SIDE; k++) {
        body[size++] = (char)('0' + (k + 1 == SIDE * SIDE ? last : k * k % 5 < 3));
        body[size++] = k + 1 == SIDE * SIDE ? ']' : ',';
    }
    size += (size_t)sprintf(body + size, "}],\"outputs\":[{\"name\":\"lse\",\"parameters\":"
                                         "{\"binary_data\":true}}]}");
    *header = width > 0 ? size : 0;
    memset(body + size, 0, SIDE * SIDE * width);
    for (size_t k = 0; width > 0 && k < SIDE * SIDE; k++) {
        body[size + k * width] = (char)(k + 1 == SIDE * SIDE ? last : k * k % 5 < 3);
    }
    return size + SIDE * SIDE * width;
}

/* A long mask of numbers is converted in several tasks before the call. It means what the same mask
 * of the type BOOL means, in bytes and in JSON, and its last wrong number is named. */
Test(inference, long_masks_of_numbers) {
    static const struct {
        const char *type;
        size_t width; /* 0: JSON */
        char last;
    } rows[] = {{"BOOL", 1, 1},  {"UINT8", 1, 1}, {"INT64", 8, 1}, {"FP32", 0, 1},
                {"UINT8", 0, 1}, {"UINT8", 1, 2}, {"UINT8", 0, 2}};
    char *body = malloc(SIDE * SIDE * 8 + 32 * 1024);
    float first[SIDE];
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t header, size = write_mask(body, rows[i].type, rows[i].width, rows[i].last, &header);
        struct client_response response = daemon_infer(INFER, "", body, size, header);
        if (rows[i].last > 1) {
            expect_refused(&response, INFER, 422, "mask/1099/1099|2", rows[i].type);
        } else {
            cr_assert_eq(response.status, 200, "%s: %s", rows[i].type, response.body);
            cr_assert_gt(response.size, sizeof first);
            const char *lse = response.body + response.size - sizeof first;
            if (i == 0) {
                memcpy(first, lse, sizeof first);
            }
            cr_expect_eq(memcmp(first, lse, sizeof first), 0, "%s %zu", rows[i].type, i);
        }
        client_response_free(&response);
    }
    free(body);
}

/* ---------------------------------------------------------------------------- what clients send */

/* Asks, and returns the body of the answer, owned. It must be 200. */
static char *infer_body(const char *json, const void *bytes, size_t size) {
    const size_t header = strlen(json);
    char *body = malloc(header + size + 1);
    memcpy(body, json, header);
    memcpy(body + header, size > 0 ? bytes : "", size);
    struct client_response response =
        daemon_infer(INFER, "", body, header + size, size > 0 ? header : 0);
    cr_assert_eq(response.status, 200, "%s: %s", json, response.body);
    char *answer = strdup(response.body);
    client_response_free(&response);
    free(body);
    return answer;
}

/* Numbers of FP16 in JSON are those of the nearest bytes, in short and in long arrays, wherever the
 * datatype stands. */
Test(inference, halves_in_json) {
    enum {
        ROWS = 80
    }; /* ROWS * ROWS numbers are no short list any more */
    static const char *const forms[] = {
        "{\"name\":\"%c\",\"datatype\":\"FP16\",\"shape\":[%d,%d],\"data\":[",
        "{\"name\":\"%c\",\"shape\":[%d,%d],\"data\":["};
    char *body = malloc(3 * ROWS * ROWS * 24 + 4096), *first = NULL;
    for (size_t form = 0; form < 3; form++) { /* 2: the nearest halves in FP32 */
        size_t size = (size_t)sprintf(body, "{\"inputs\":[");
        for (const char *name = "QKV"; *name != '\0'; name++) {
            size += (size_t)sprintf(body + size, forms[form != 0], *name, ROWS, ROWS);
            for (int i = 0; i < ROWS * ROWS; i++) {
                const double number = 1 + (i % 97) / 64.0; /* a half by itself */
                const double more = form == 2 ? 0 : 0x1p-12 * (i % 3 - 1);
                size += (size_t)sprintf(body + size, "%s%.17g", i > 0 ? "," : "", number + more);
            }
            size += (size_t)sprintf(body + size, "]%s}%s",
                                    form == 0   ? ""
                                    : form == 1 ? ",\"datatype\":\"FP16\""
                                                : ",\"datatype\":\"FP32\"",
                                    *name == 'V' ? "" : ",");
        }
        strcpy(body + size, "],\"outputs\":[{\"name\":\"output\"}]}");
        char *answer = infer_body(body, "", 0);
        first = first != NULL ? first : strdup(answer);
        cr_expect_str_eq(answer, first, "form %zu", form);
        free(answer);
    }
    free(first);
    free(body);
}

/* The service takes texts up to the fixed limits of their number and of their bytes. */
Test(inference, most_texts) {
    enum {
        TEXTS = 16384,
        BYTES = 1024 * 1024
    };
    static const char rest[] = "{\"name\":\"embedding\",\"datatype\":\"FP32\",\"shape\":[2,1],"
                               "\"data\":[1,2]}]}";
    char *body = calloc(1, BYTES + 1024);
    size_t header = (size_t)sprintf(body,
                                    "{\"inputs\":[{\"name\":\"tokens\",\"datatype\":\"BYTES\","
                                    "\"shape\":[%d],\"parameters\":{\"binary_data_size\":%d}},%s",
                                    TEXTS, 4 * TEXTS, rest);
    memset(body + header, 0, 4 * TEXTS); /* empty texts, which are one word many times */
    struct client_response response = daemon_infer(INFER, "", body, header + 4 * TEXTS, header);
    expect_refused(&response, INFER, 422, "the id 16383|embedding has 2 rows", "many texts");
    header = (size_t)sprintf(body,
                             "{\"inputs\":[{\"name\":\"text\",\"datatype\":\"BYTES\",\"shape\":[1],"
                             "\"parameters\":{\"binary_data_size\":%d}},%s",
                             BYTES, rest);
    const uint32_t size = BYTES - 4;
    memset(body + header, 'a', BYTES); /* one long word */
    memcpy(body + header, &size, sizeof size);
    response = daemon_infer(INFER, "", body, header + BYTES, header);
    cr_expect_eq(response.status, 200, "%.200s", response.body);
    cr_expect_gt(response.size, (size_t)BYTES);
    client_response_free(&response);
    free(body);
}
