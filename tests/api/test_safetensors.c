/*
 * test_safetensors.c - safetensors over a socket: answers that are those in JSON bit by bit. What
 * is refused, and the Accept header, are rows of data/refusals.txt and data/exchanges.txt. The
 * tests know the service by its socket only.
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

#define MEDIA  "application/vnd.safetensors"
#define TYPE   "Content-Type: " MEDIA "\r\n"
#define ACCEPT "Accept: " MEDIA "\r\n"

TestSuite(safetensors, .init = daemon_start_connected, .fini = daemon_end, .timeout = 1200);

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
            response = post_shared(call->path, ACCEPT, body, size); /* a request in JSON */
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
 * is another. Such a request can only be JSON. */
/* The positions are exact in a float32 call, whose results are sin(1) then. */
Test(safetensors, positions_of_whole_numbers) {
    static const char *const types[] = {"I64", "U64", "I32", "U32"};
    static const float unit[] = {1, 0, 0, 1}, wanted[] = {1, -0.84147096F, -0.84147096F, 1};
    for (size_t i = 0; i < COUNT(types); i++) {
        const bool wide = i < 2;
        const uint64_t longs[] = {16777216, 16777217};
        const uint32_t shorts[] = {16777216, 16777217};
        const size_t width = wide ? sizeof longs : sizeof shorts;
        char data[sizeof longs + sizeof unit], header[512];
        size_t size;
        memcpy(data, wide ? (const void *)longs : shorts, width);
        memcpy(data + width, unit, sizeof unit);
        sprintf(header,
                "{\"positions\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[0,%zu]},\"X\":{"
                "\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[%zu,%zu]},\"__metadata__\":{"
                "\"rotary\":\"true\",\"scale\":\"1\",\"return\":\"[\\\"scores\\\"]\"}}",
                types[i], width, width, width + sizeof unit);
        char *body = binary_file(header, data, width + sizeof unit, &size);
        struct client_response response = post_shared("/attention", TYPE ACCEPT, body, size);
        struct binary_answer answer;
        expect_file(&response, types[i], &answer);
        const struct binary_result *scores = binary_find(&answer, "scores");
        cr_assert(scores != NULL && scores->size == sizeof wanted, "%s", types[i]);
        cr_expect_arr_eq(scores->bytes, wanted, sizeof wanted, "%s", types[i]);
        binary_free(&answer);
        client_response_free(&response);
        free(body);
    }
}

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

/* The place of an error counts from the first byte of the body, which is that of the length. */
Test(safetensors, errors_name_a_byte_of_the_body) {
    static const char *const headers[] = {"{x", "{\"Q\":\n  x", "{\n\n x"};
    for (size_t i = 0; i < COUNT(headers); i++) {
        struct cJSON *problem;
        size_t size, offset = 0;
        char *body = binary_file(headers[i], "", 0, &size);
        double at = -1, line = -1, column = -1, lines = 1, columns = 1;
        for (; body[offset] != 'x'; offset++) {
            const bool ends = body[offset] == '\n' && offset >= 8; /* none is in the length */
            lines += ends;
            columns = ends ? 1 : columns + 1;
        }
        struct client_response response = post_shared("/attention", TYPE, body, size);
        expect_problem(&response, 400, headers[i], &problem);
        json_number(json_get(problem, "offset"), &at);
        json_number(json_get(problem, "line"), &line);
        json_number(json_get(problem, "column"), &column);
        cr_expect(at == (double)offset && line == lines && column == columns, "%s: %s", headers[i],
                  response.body);
        json_free(problem);
        client_response_free(&response);
        free(body);
    }
}
