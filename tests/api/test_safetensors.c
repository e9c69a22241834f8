/*
 * test_safetensors.c - safetensors over a socket: answers that are those in JSON bit by bit, the
 * Accept header, and every file that is refused. After each refusal the same connection serves the
 * next request. The tests know the service by its socket only.
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

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MEDIA        "application/vnd.safetensors"
#define TYPE         "Content-Type: " MEDIA "\r\n"
#define ACCEPT       "Accept: " MEDIA "\r\n"

TestSuite(safetensors, .init = daemon_start_connected, .fini = daemon_end, .timeout = 120);

/* Posts on the shared connection. */
static struct client_response post_shared(const char *path, const char *headers, const void *body,
                                          size_t size) {
    return daemon_ask_shared("POST", path, headers, body, size);
}

/* Expects an answer in safetensors that equals one in JSON. */
static void expect_same_file(const struct client_response *response, const char *about,
                             const struct cJSON *json) {
    struct binary_answer answer;
    char message[256] = "";
    expect_file(response, about, &answer);
    cr_expect(binary_equal_json(&answer, json, message), "%s: %s", about, message);
    binary_free(&answer);
}

/* -------------------------------------------------------------------- the same as the endpoints */

Test(safetensors, answers_are_those_of_json) {
    static const struct {
        const char *type, *dtype;
    } types[] = {{"F32", "float32"}, {"F64", "float64"}};
    for (size_t i = 0; i < DRAWN_BINARY; i++) {
        struct drawn_call drawn;
        const struct binary_call *call = &drawn.call;
        draw_binary(i, &drawn);
        if (drawn.words) { /* they are no tensor */
            continue;
        }
        for (size_t k = 0; k < COUNT(types); k++) {
            size_t size, file_size;
            char *body = binary_json(call, types[k].dtype, &size);
            char *file = binary_safetensors(call, types[k].type, &file_size);
            struct client_response plain = post_shared(call->path, "", body, size);
            cr_assert_eq(plain.status, 200, "%s", plain.body);
            struct cJSON *json = json_parse(plain.body, plain.size);
            struct client_response response = post_shared(call->path, TYPE, file, file_size);
            expect_same_file(&response, call->path, json);
            client_response_free(&response);
            response = post_shared(call->path, ACCEPT, body, size); /* a question in JSON */
            expect_same_file(&response, call->path, json);
            client_response_free(&response);
            response =
                post_shared(call->path, TYPE "Accept: application/json\r\n", file, file_size);
            cr_expect(response.size == plain.size &&
                          memcmp(response.body, plain.body, plain.size) == 0,
                      "%s", response.body);
            client_response_free(&response);
            client_response_free(&plain);
            json_free(json);
            free(body);
            free(file);
        }
    }
}

/* Heads with weights of their own differ in size, so each has a tensor: "weights" is one, and "Q.0"
 * is another. Such a question can only be JSON. */
Test(safetensors, heads_with_weights_of_their_own) {
    static const char body[] =
        "{\"X\":[[1,2],[3,4],[0.5,0.25]],\"heads\":["
        "{\"W_Q\":[[1],[0.5]],\"W_K\":[[1],[2]],\"W_V\":[[0.25],[2]]},"
        "{\"W_Q\":[[1,0],[0.5,0.125]],\"W_K\":[[1,1],[2,1]],\"W_V\":[[1,2,3],[2,3,4]]}],"
        "\"return\":[\"output\",\"weights\",\"scores\",\"lse\",\"Q\",\"K\",\"V\"]}";
    static const char *const names[] = {"Q.0", "Q.1", "K.1", "V.0", "V.1", "output"};
    struct binary_answer answer;
    struct client_response plain = post_shared("/multi-head-attention", "", body, sizeof body - 1);
    struct client_response response =
        post_shared("/multi-head-attention", ACCEPT, body, sizeof body - 1);
    struct cJSON *json = json_parse(plain.body, plain.size);
    expect_same_file(&response, "heads", json);
    expect_file(&response, "heads", &answer);
    for (size_t i = 0; i < COUNT(names); i++) {
        cr_expect_not_null(binary_find(&answer, names[i]), "%s", names[i]);
    }
    binary_free(&answer);
    json_free(json);
    client_response_free(&plain);
    client_response_free(&response);
}

/* Texts are JSON in the metadata. */
Test(safetensors, words) {
    static const char body[] =
        "{\"text\":\"b a, \\u00e9 b\",\"embedding\":[[1,2],[3,4],[5,6],[7,8]]}";
    struct binary_answer answer;
    struct client_response plain = post_shared("/embeddings", "", body, sizeof body - 1);
    struct client_response response = post_shared("/embeddings", ACCEPT, body, sizeof body - 1);
    expect_file(&response, "words", &answer);
    struct cJSON *json = json_parse(plain.body, plain.size);
    const struct cJSON *metadata = json_get(answer.head, "__metadata__");
    cr_assert_gt(json_size(metadata), 0);
    for (const struct cJSON *text = json_first(metadata); text != NULL; text = json_next(text)) {
        char *expected = json_print(json_get(json, json_name(text)));
        cr_expect_str_eq(json_text(text), expected, "%s", json_name(text));
        free(expected);
    }
    cr_expect_not_null(json_get(metadata, "tokens"));
    cr_expect_eq(answer.count + json_size(metadata), json_size(json));
    json_free(json);
    binary_free(&answer);
    client_response_free(&plain);
    client_response_free(&response);
}

Test(safetensors, accept) {
    static const struct {
        const char *headers;
        bool question, file; /* the question and the answer are safetensors */
    } rows[] = {
        {"", false, false},
        {"", true, true},
        {"Accept: */*\r\n", false, false},
        {"Accept: */*\r\n", true, true},
        {"Accept: application/json\r\n", true, false},
        {"Accept: Application/VND.Safetensors\r\n", false, true},
        {"Accept: text/html," MEDIA ";q=0.1\r\n", false, true},
        {"Accept: " MEDIA ";q=0\r\n", true, false},
        {"Accept: application/json;q=0.5, " MEDIA "\r\n", false, true},
        {"Accept: application/json, " MEDIA ";q=0.5\r\n", true, false},
        {"Accept: application/vnd.safetensorsx\r\n", false, false},
        {"Accept: text/plain\r\n", true, true},
        {"Accept: application/json;q=0\r\n", true, true},
        {"Accept: application/json;q=0\r\n", false, false}, /* nothing else is accepted */
        {"Accept: application/json;q=0, " MEDIA "\r\n", false, true},
        {"Accept: application/json;q=0, */*\r\n", true, true},
        {"Accept: " MEDIA ";q=0.5, application/json\r\n", false, false},
        {"Accept: " MEDIA ";q=0.5, application/json;q=0.4\r\n", false, true},
        {"Accept: " MEDIA ";q=0.4, application/json;q=0.5\r\n", true, false},
        {"Accept: " MEDIA ";q=0.5, application/json;q=0.5\r\n", false, true},
        {"Accept: " MEDIA " ; Q=0.5 ,application/json ; q=0.9\r\n", true, false},
        {"Accept: application/json;q=0.001, " MEDIA ";q=0.000\r\n", true, false},
        {"Accept: application/json;q=0.5, " MEDIA ";version=1;q=0.4\r\n", true, false},
        {"Accept: application/json;q=0.2;version=1, " MEDIA ";q=0.5\r\n", false, true},
        {"Accept: application/json;q=0.5, " MEDIA ";q=2\r\n", false, true}, /* no weight */
        {"Accept: " MEDIA ";q=0\r\n", false, false},
        {"Accept: " MEDIA ";q=0, application/json;q=0\r\n", true, false},
    };
    const struct binary_call call = {"/softmax", "", NULL, {{"X", {2, 3}, 0}}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t size;
        char headers[256];
        char *body = rows[i].question ? binary_safetensors(&call, "F32", &size)
                                      : binary_json(&call, "float32", &size);
        snprintf(headers, sizeof headers, "%s%s", rows[i].question ? TYPE : "", rows[i].headers);
        struct client_response response = post_shared("/softmax", headers, body, size);
        cr_expect_eq(response.status, 200, "%s: %s", headers, response.body);
        expect_header(&response, headers, "Content-Type",
                      rows[i].file ? MEDIA : "application/json");
        expect_header(&response, headers, "Vary", "Accept");
        client_response_free(&response);
        free(body);
    }
    struct client_response error = post_shared("/softmax", "Accept: " MEDIA "\r\n", "{}", 2);
    cr_expect_eq(error.status, 422, "%s", error.body);
    expect_header(&error, "an error", "Vary", NULL); /* it is always JSON */
    client_response_free(&error);
}

/* The header Vary names Accept where JSON and safetensors can be asked for, and only there. */
Test(safetensors, vary) {
    static const char x[] = "{\"X\":[[1,2]]}",
                      words[] = "{\"text\":\"a b\",\"embedding\":[[1],[2]]}",
                      inference[] = "{\"inputs\":[{\"name\":\"X\",\"shape\":[1,2],\"datatype\":"
                                    "\"FP32\",\"data\":[1,2]}]}";
    static const struct {
        const char *path, *body, *vary;
    } rows[] = {
        {"/attention", x, "Accept"},
        {"/softmax", x, "Accept"},
        {"/embeddings", words, "Accept"},
        {"/v2/models/softmax/infer", inference, NULL},
        {"/v2/models/softmax/infer", "{}", NULL},
        {"/softmax", "{}", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct client_response response =
            post_shared(rows[i].path, "", rows[i].body, strlen(rows[i].body));
        cr_expect_eq(response.status, strlen(rows[i].body) > 2 ? 200 : 422, "%s", response.body);
        expect_header(&response, rows[i].path, "Vary", rows[i].vary);
        client_response_free(&response);
    }
}

/* Results of 16 bits are rounded, and refused if they do not fit. */
Test(safetensors, results_of_16_bits) {
    static const uint16_t numbers[] = {0x7BFF, 0x7BFF, 0x3C00, 0x3C00, 0x0001, 0xFBFF}; /* 65504 */
    static const char header[] =
        "{\"__metadata__\":{\"return\":\"[\\\"output\\\",\\\"scores\\\"]\"},"
        "\"Q\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,4]},"
        "\"K\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[4,8]},"
        "\"V\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[8,12]}}";
    size_t size;
    char *body = binary_file(header, numbers, sizeof numbers, &size), *scores;
    struct client_response response = post_shared("/attention", TYPE, body, size);
    expect_refused(&response, "/attention", 422, "scores has the number 131008", "scores");
    response = post_shared("/attention", TYPE "Accept: application/json\r\n", body, size);
    cr_expect_eq(response.status, 200); /* JSON is not rounded to 16 bits */
    expect_text(response.body, "\"scores\":[[131008]]", "answer", "scores in JSON");
    client_response_free(&response);
    scores = strstr(body + 8, ",\\\"scores\\\"");
    memset(scores, ' ', 11); /* the output alone fits */
    struct binary_answer answer;
    response = post_shared("/attention", TYPE, body, size);
    expect_file(&response, "the output alone", &answer);
    cr_assert_eq(answer.count, 1);
    cr_expect_str_eq(answer.list[0].type, "F16");
    cr_expect_arr_eq(answer.list[0].bytes, numbers + 4, 4);
    binary_free(&answer);
    client_response_free(&response);
    free(body);
}

/* ------------------------------------------------------------------------------ what is refused */

#define TENSOR(name, type, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define METADATA(texts) "\"__metadata__\":{" texts "}"

Test(safetensors, lengths_that_are_wrong) {
    static const struct {
        uint64_t length;
        size_t size; /* bytes of the whole body */
        int status;
        const char *says;
    } rows[] = {
        {2, 0, 400, "0 of its 8 bytes"},
        {2, 7, 400, "7 of its 8 bytes"},
        {2, 8, 400, "0 of its 2 bytes"},
        {2, 9, 400, "1 of its 2 bytes"},
        {0, 16, 400, "0 bytes"},
        {1, 16, 400, "1 bytes"},
        {100, 16, 400, "8 of its 100 bytes"},
        {32769, 16, 413, "32769 bytes|32768"},
        {100000000, 16, 413, "100000000 bytes|fixed limit"},
        {UINT64_C(1) << 63, 16, 413, "9223372036854775808 bytes|may not be safetensors at all"},
        {UINT64_MAX, 16, 413, "18446744073709551615 bytes|may not be safetensors at all"},
        {UINT64_MAX - 7, 16, 413, "18446744073709551608 bytes|may not be safetensors at all"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char body[16] = "        {}      ", about[64];
        memcpy(body, &rows[i].length, sizeof rows[i].length);
        snprintf(about, sizeof about, "length %llu", (unsigned long long)rows[i].length);
        struct client_response response = post_shared("/softmax", TYPE, body, rows[i].size);
        expect_refused(&response, "/softmax", rows[i].status, rows[i].says, about);
    }
}

Test(safetensors, types_of_bodies) {
    static const char *const paths[] = {"/attention", "/self-attention", "/multi-head-attention",
                                        "/softmax", "/embeddings"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct client_response response =
            post_shared(paths[i], "Content-Type: application/octet-stream\r\n", "{}", 2);
        expect_refused(&response, paths[i], 415, "application/octet-stream|" MEDIA, paths[i]);
    }
}

/* --------------------------------------------------------------------- options in both formats */

#define INPUT(name, shape, data)                                                                   \
    "{\"name\":\"" name "\",\"datatype\":\"FP32\",\"shape\":" shape ",\"data\":" data "}"

/* An option in a text is read by the rules of the key: -Infinity may stand in a bias alone. */
Test(safetensors, minus_infinity_in_an_option) {
    static const struct {
        const char *option;
        int status;
        const char *says;
    } rows[] = {
        {"\"bias\":\"[[-Infinity, 0]]\"", 200, "[3]"},
        {"\"bias\":\"[[null, 0]]\"", 200, "[3]"},
        {"\"bias\":\"[[NaN, 0]]\"", 422, "bias must be a matrix of numbers"},
        {"\"scale\":\"-Infinity\"", 422, "scale must be a number"},
        {"\"bias\":\"0,\\\"scale\\\":1\"", 422, "bias must be a matrix of numbers"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[512];
        size_t size = (size_t)sprintf(
            text,
            "{\"inputs\":[" INPUT("Q", "[1,1]", "[1]") "," INPUT("K", "[2,1]", "[1,1]") "," INPUT(
                "V", "[2,1]", "[2,3]") "],\"parameters\":{%s}}",
            rows[i].option);
        struct client_response response = post_shared("/v2/models/attention/infer", "", text, size);
        cr_expect_eq(response.status, rows[i].status, "%s: %s", text, response.body);
        expect_text(response.body, rows[i].says, "answer", text);
        client_response_free(&response);

        static const float numbers[] = {1, 1, 1, 2, 3};
        sprintf(text,
                "{" TENSOR("Q", "F32", "[1,1]", "[0,4]") "," TENSOR(
                    "K", "F32", "[2,1]", "[4,12]") "," TENSOR("V", "F32", "[2,1]",
                                                              "[12,20]") "," METADATA("%s") "}",
                rows[i].option);
        char *file = binary_file(text, (const char *)numbers, sizeof numbers, &size);
        response = post_shared("/attention", TYPE "Accept: application/json\r\n", file, size);
        cr_expect_eq(response.status, rows[i].status, "%s: %s", text, response.body);
        expect_text(response.body, rows[i].says, "answer", text);
        client_response_free(&response);
        free(file);
    }
}
