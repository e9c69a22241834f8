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
#include "support/expect.h"
#include "support/json.h"
#include "support/pack.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MEDIA        "application/vnd.safetensors"
#define TYPE         "Content-Type: " MEDIA "\r\n"
#define ACCEPT       "Accept: " MEDIA "\r\n"

static void start_safetensors(void) {
    daemon_start((const char *const[]){"--compression", "yes", NULL});
    daemon_connect();
}

TestSuite(safetensors, .init = start_safetensors, .fini = daemon_end, .timeout = 120);
TestSuite(safetensors_limits, .fini = daemon_end, .timeout = 120);

/* Posts on the shared connection. */
static struct client_response post_shared(const char *path, const char *headers, const void *body,
                                          size_t size) {
    struct client_response response;
    char head[512];
    const int length =
        snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n%s\r\n",
                 path, size, headers);
    cr_assert(client_send(&the_connection, head, (size_t)length));
    cr_assert(client_send(&the_connection, body, size));
    cr_assert(client_receive(&the_connection, false, &response), "%s %s", path, headers);
    return response;
}

/* Expects an answer in safetensors that equals one in JSON. */
static void expect_file(const struct client_response *response, const char *about,
                        const struct cJSON *json) {
    struct binary_answer answer;
    char message[256] = "";
    cr_assert_eq(response->status, 200, "%s: %s", about, response->body);
    expect_header(response, about, "Content-Type", MEDIA);
    cr_assert(binary_read_safetensors(&answer, response->body, response->size, message), "%s: %s",
              about, message);
    cr_expect(binary_equal_json(&answer, json, message), "%s: %s", about, message);
    binary_free(&answer);
}

/* -------------------------------------------------------------------- the same as the endpoints */

Test(safetensors, answers_are_those_of_json) {
    static const struct {
        const char *type, *dtype;
    } types[] = {{"F32", "float32"}, {"F64", "float64"}};
    for (size_t i = 0; i < binary_call_count; i++) {
        const struct binary_call *call = &binary_calls[i];
        for (size_t k = 0; k < COUNT(types); k++) {
            size_t size, file_size;
            char *body = binary_json(call, types[k].dtype, &size);
            char *file = binary_safetensors(call, types[k].type, &file_size);
            struct client_response plain = post_shared(call->path, "", body, size);
            cr_assert_eq(plain.status, 200, "%s", plain.body);
            struct cJSON *json = json_parse(plain.body, plain.size);
            struct client_response response = post_shared(call->path, TYPE, file, file_size);
            expect_file(&response, call->path, json);
            client_response_free(&response);
            response = post_shared(call->path, ACCEPT, body, size); /* a question in JSON */
            expect_file(&response, call->path, json);
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
    char message[256];
    struct client_response plain = post_shared("/multi-head-attention", "", body, sizeof body - 1);
    struct client_response response =
        post_shared("/multi-head-attention", ACCEPT, body, sizeof body - 1);
    struct cJSON *json = json_parse(plain.body, plain.size);
    expect_file(&response, "heads", json);
    cr_assert(binary_read_safetensors(&answer, response.body, response.size, message));
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
    char message[256];
    struct client_response plain = post_shared("/embeddings", "", body, sizeof body - 1);
    struct client_response response = post_shared("/embeddings", ACCEPT, body, sizeof body - 1);
    cr_assert_eq(response.status, 200, "%s", response.body);
    cr_assert(binary_read_safetensors(&answer, response.body, response.size, message), "%s",
              message);
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
    };
    const struct binary_call call = {"/softmax", "", NULL, {{"X", {2, 3}, 0}}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t size;
        char headers[256];
        char *body = rows[i].question ? binary_safetensors(&call, "F32", &size)
                                      : binary_json(&call, "float32", &size);
        snprintf(headers, sizeof headers, "%s%s", rows[i].question ? TYPE : "", rows[i].headers);
        struct client_response response = post_shared("/softmax", headers, body, size);
        cr_expect_eq(response.status, 200, "%s", headers);
        expect_header(&response, headers, "Content-Type",
                      rows[i].file ? MEDIA : "application/json");
        expect_header(&response, headers, "Vary", "Accept, Accept-Encoding");
        client_response_free(&response);
        free(body);
    }
    struct client_response error = post_shared("/softmax", ACCEPT, "{}", 2);
    cr_expect_eq(error.status, 422, "%s", error.body);
    expect_header(&error, "an error", "Vary", "Accept-Encoding"); /* it is always JSON */
    client_response_free(&error);
}

/* The header Vary names Accept where JSON and safetensors can be asked for, and only there. */
Test(safetensors_limits, vary) {
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
    daemon_start(NULL);
    daemon_connect();
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct client_response response =
            post_shared(rows[i].path, "", rows[i].body, strlen(rows[i].body));
        cr_expect_eq(response.status, strlen(rows[i].body) > 2 ? 200 : 422, "%s", response.body);
        expect_header(&response, rows[i].path, "Vary", rows[i].vary);
        client_response_free(&response);
    }
}

Test(safetensors, codings) {
    static const char *const names[] = {"gzip", "zstd", "deflate"};
    const struct binary_call *call = &binary_calls[binary_call_count - 1];
    size_t size;
    char *body = binary_safetensors(call, "F32", &size);
    struct client_response plain = post_shared(call->path, TYPE, body, size);
    for (size_t i = 0; i < COUNT(names); i++) {
        char headers[256];
        size_t packed_size, unpacked = 0;
        char *packed = pack(names[i], body, size, &packed_size);
        snprintf(headers, sizeof headers, TYPE "Content-Encoding: %s\r\nAccept-Encoding: %s\r\n",
                 names[i], names[i]);
        struct client_response response = post_shared(call->path, headers, packed, packed_size);
        expect_header(&response, names[i], "Content-Encoding", names[i]);
        char *got = unpack(names[i], response.body, response.size, &unpacked);
        cr_expect(got != NULL && unpacked == plain.size && memcmp(got, plain.body, unpacked) == 0,
                  "%s: %d", names[i], response.status);
        free(got);
        client_response_free(&response);
        free(packed);
    }
    client_response_free(&plain);
    free(body);
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
    struct cJSON *problem;
    char *body = binary_file(header, numbers, sizeof numbers, &size), *scores;
    struct client_response response = post_shared("/attention", TYPE, body, size);
    expect_problem(&response, 422, "scores", &problem);
    expect_text(json_text(json_get(problem, "detail")), "scores has the number 131008", "detail",
                "scores");
    json_free(problem);
    client_response_free(&response);
    scores = strstr(body + 8, ",\\\"scores\\\"");
    memset(scores, ' ', 11); /* the output alone fits */
    struct binary_answer answer;
    char message[256];
    response = post_shared("/attention", TYPE, body, size);
    cr_assert_eq(response.status, 200, "%s", response.body);
    cr_assert(binary_read_safetensors(&answer, response.body, response.size, message));
    cr_assert_eq(answer.count, 1);
    cr_expect_str_eq(answer.list[0].type, "F16");
    cr_expect_arr_eq(answer.list[0].bytes, numbers + 4, 4);
    binary_free(&answer);
    client_response_free(&response);
    free(body);
}

/* ------------------------------------------------------------------------------ what is refused */

/* Expects a problem that says all of `says`, and that the same connection then serves another
 * request. */
static void expect_refused_file(struct client_response *response, int status, const char *about,
                                const char *const says[], size_t count) {
    static const char good[] = "{\"X\":[[1,2]]}";
    struct cJSON *problem;
    expect_problem(response, status, about, &problem);
    for (size_t i = 0; i < count && says[i] != NULL; i++) {
        expect_text(json_text(json_get(problem, "detail")), says[i], "detail", about);
    }
    json_free(problem);
    client_response_free(response);
    struct client_response next = post_shared("/softmax", "", good, sizeof good - 1);
    cr_expect_eq(next.status, 200, "%s: then %d %s", about, next.status, next.body);
    client_response_free(&next);
}

#define TENSOR(name, type, shape, offsets)                                                         \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ONE(name, offsets) TENSOR(name, "F32", "[1,1]", offsets) /* a tensor of four bytes */
#define KV                 ONE("K", "[4,8]") "," ONE("V", "[8,12]")
#define METADATA(texts)    "\"__metadata__\":{" texts "}"

static const char zeros[64];

Test(safetensors, bad_files_name_the_tensor_and_the_rule) {
    static const struct {
        const char *header;
        const char *bytes; /* NULL: zeros */
        size_t size;
        int status;
        const char *says[3];
    } rows[] = {
        /* sizes and offsets */
        {"{" ONE("Q", "[0,4]") "," KV "}", NULL, 11, 400, {"\"V\"", "3 of its 4 bytes"}},
        {"{" ONE("Q", "[0,4]") "," KV "}", NULL, 0, 400, {"\"Q\"", "0 of its 4 bytes"}},
        {"{" ONE("Q", "[0,4]") "," KV "}", NULL, 13, 400, {"after the last of its tensors"}},
        {"{}", NULL, 1, 400, {"after the last of its tensors"}},
        {"{" TENSOR("Q", "F32", "[1,2]", "[0,4]") "," KV "}",
         NULL,
         12,
         422,
         {"\"Q\"", "4 bytes by its data_offsets, but 8"}},
        {"{" ONE("Q", "[0,8]") "," KV "}", NULL, 12, 422, {"\"Q\"", "8 bytes by its data_offsets"}},
        {"{" ONE("Q", "[4,0]") "}", NULL, 4, 422, {"\"Q\"", "not before the first"}},
        {"{" ONE("Q", "[-4,0]") "}", NULL, 4, 422, {"\"Q\"", "data_offsets"}},
        {"{" ONE("Q", "[0,4]") "," ONE("K", "[5,9]") "}",
         NULL,
         9,
         422,
         {"\"K\"", "begins at byte 5", "no gaps"}},
        {"{" ONE("Q", "[0,4]") "," ONE("K", "[0,4]") "}",
         NULL,
         4,
         422,
         {"begins at byte 0", "do not overlap"}},
        {"{" ONE("Q", "[4,8]") "}", NULL, 8, 422, {"\"Q\"", "begins at byte 4"}},
        {"{\"Q\":{\"dtype\":\"F32\",\"shape\":[1,1]}}", NULL, 4, 422, {"\"Q\"", "data_offsets"}},
        {"{" ONE("Q", "[0.0,4.0]") "," KV "}", NULL, 12, 422, {"/Q/data_offsets/0", "as 0.0"}},
        {"{" ONE("Q", "[0,4e0]") "," KV "}", NULL, 12, 422, {"/Q/data_offsets/1", "as 4e0"}},
        {"{" ONE("Q", "[-0,4]") "," KV "}", NULL, 12, 422, {"/Q/data_offsets/0", "as -0"}},
        /* shapes */
        {"{" TENSOR("Q", "F32", "[1,1.0]", "[0,4]") "," KV "}",
         NULL,
         12,
         422,
         {"/Q/shape/1", "an integer, not as 1.0"}},
        {"{" TENSOR("Q", "F32", "[0,1]", "[0,0]") "}", NULL, 0, 422, {"\"Q\"", "at least 1"}},
        {"{" TENSOR("Q", "F32", "[]", "[0,4]") "}", NULL, 4, 422, {"\"Q\"", "0 axes"}},
        {"{" TENSOR("Q", "F32", "[4294967296,4294967296]", "[0,4]") "}",
         NULL,
         4,
         422,
         {"\"Q\"", "more bytes than a file can have"}},
        {"{" TENSOR("Q", "F32", "[9223372036854775808]", "[0,4]") "}",
         NULL,
         4,
         422,
         {"\"Q\"", "wrong shape"}},
        {"{" TENSOR("Q", "F32", "[1,2]", "[0,8]") "," ONE("K", "[8,12]") "," ONE("V",
                                                                                 "[12,16]") "}",
         NULL,
         16,
         422,
         {"Q", "K", "2"}},
        /* types */
        {"{" TENSOR("Q", "F8_E4M3", "[1,1]", "[0,1]") "}", NULL, 1, 422, {"\"Q\"", "\"F8_E4M3\""}},
        {"{" TENSOR("Q", "FP32", "[1,1]", "[0,4]") "}", NULL, 4, 422, {"\"Q\"", "\"FP32\""}},
        {"{" TENSOR("Q", "BOOL", "[4,1]", "[0,4]") "," KV "}",
         NULL,
         12,
         422,
         {"Q", "not of booleans"}},
        {"{" ONE("Q", "[0,4]") "," KV "," TENSOR("mask", "BOOL", "[1,1]", "[12,13]") "}",
         "\0\0\0\0\0\0\0\0\0\0\0\0\3",
         13,
         422,
         {"mask", "the byte 3"}},
        {"{" ONE("Q", "[0,4]") "," KV "}",
         "\0\0\x80\x7F\0\0\0\0\0\0\0\0",
         12,
         422,
         {"Q", "Infinity"}},
        {"{" TENSOR("Q", "F64", "[1,1]", "[0,8]") "," ONE("K", "[8,12]") "," ONE(
             "V", "[12,16]") "," METADATA("\"dtype\":\"float32\"") "}",
         "\0\0\0\0\0\0\xF0\x7E\0\0\0\0\0\0\0\0",
         16,
         422,
         {"Q", "out of the range of float32"}},
        /* names and options */
        {"{" ONE("Q", "[0,4]") "," ONE("Q", "[4,8]") "}", NULL, 8, 400, {"Q", "twice"}},
        {"{" ONE("Q", "[0,4]") "," KV "," ONE("query", "[12,16]") "}", NULL, 16, 422, {"query"}},
        {"{" KV "}", NULL, 12, 422, {"\"K\"", "begins at byte 4"}},
        {"{" ONE("K", "[0,4]") "," ONE("V", "[4,8]") "}", NULL, 8, 422, {"Q is missing"}},
        {"{}", NULL, 0, 422, {"missing"}},
        {"{" METADATA("\"heads\":2") "}", NULL, 0, 422, {"heads", "a string"}},
        {"{" METADATA("\"casual\":\"true\"") "," ONE("Q", "[0,4]") "," KV "}",
         NULL,
         12,
         422,
         {"casual", "causal"}},
        {"{" METADATA("\"causal\":\"yes\"") "," ONE("Q", "[0,4]") "," KV "}",
         NULL,
         12,
         422,
         {"causal"}},
        {"{" METADATA("\"Q\":\"[[1]]\"") "," ONE("Q", "[0,4]") "," KV "}",
         NULL,
         12,
         422,
         {"\"Q\"", "as a tensor and as an option"}},
        {"{" METADATA("\"window\":\"[1,\"") "," ONE("Q", "[0,4]") "," KV "}",
         NULL,
         12,
         422,
         {"window"}},
        {"{\"__metadata__\":7}", NULL, 0, 422, {"__metadata__", "an object"}},
        /* headers that are no JSON */
        {"", NULL, 0, 400, {"0 bytes"}},
        {" {}", NULL, 0, 400, {"begin with {"}},
        {"[]", NULL, 0, 400, {"begin with {"}},
        {"{\"Q\":", NULL, 0, 400, {"ends"}},
        {"{\"Q\xFF\":1}", NULL, 0, 400, {"UTF-8"}},
        {"{}}", NULL, 0, 400, {""}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t size;
        char about[2048];
        char *body = binary_file(rows[i].header, rows[i].bytes != NULL ? rows[i].bytes : zeros,
                                 rows[i].size, &size);
        snprintf(about, sizeof about, "%s and %zu bytes", rows[i].header, rows[i].size);
        struct client_response response = post_shared("/attention", TYPE, body, size);
        expect_refused_file(&response, rows[i].status, about, rows[i].says, COUNT(rows[i].says));
        free(body);
    }
}

Test(safetensors, lengths_that_are_wrong) {
    static const struct {
        uint64_t length;
        size_t size; /* bytes of the whole body */
        int status;
        const char *says[2];
    } rows[] = {
        {2, 0, 400, {"0 of its 8 bytes"}},
        {2, 7, 400, {"7 of its 8 bytes"}},
        {2, 8, 400, {"0 of its 2 bytes"}},
        {2, 9, 400, {"1 of its 2 bytes"}},
        {0, 16, 400, {"0 bytes"}},
        {1, 16, 400, {"1 bytes"}},
        {100, 16, 400, {"8 of its 100 bytes"}},
        {32769, 16, 413, {"32769 bytes", "32768"}},
        {100000000, 16, 413, {"100000000 bytes", "fixed limit"}},
        {UINT64_C(1) << 63, 16, 413, {"9223372036854775808 bytes"}},
        {UINT64_MAX, 16, 413, {"18446744073709551615 bytes"}},
        {UINT64_MAX - 7, 16, 413, {"18446744073709551608 bytes"}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char body[16] = "        {}      ", about[64];
        memcpy(body, &rows[i].length, sizeof rows[i].length);
        snprintf(about, sizeof about, "length %llu", (unsigned long long)rows[i].length);
        struct client_response response = post_shared("/softmax", TYPE, body, rows[i].size);
        expect_refused_file(&response, rows[i].status, about, rows[i].says, 2);
    }
}

Test(safetensors, cuts_at_every_byte) {
    static const char *const nothing[1] = {NULL};
    static const struct binary_call call = {
        "/attention", "\"scale\":2", NULL, {{"X", {2, 3}, 0}, {"mask", {2, 2}, 1}}};
    size_t size;
    char *body = binary_safetensors(&call, "F16", &size);
    for (size_t cut = 0; cut < size; cut++) {
        char about[64];
        sprintf(about, "%zu of %zu bytes", cut, size);
        struct client_response response = post_shared(call.path, TYPE, body, cut);
        expect_refused_file(&response, 400, about, nothing, 1);
    }
    struct client_response response = post_shared(call.path, TYPE, body, size);
    cr_expect_eq(response.status, 200, "%s", response.body);
    client_response_free(&response);
    free(body);
}

Test(safetensors, types_of_bodies) {
    static const char *const says[] = {"application/octet-stream", MEDIA};
    static const char *const paths[] = {"/attention", "/self-attention", "/multi-head-attention",
                                        "/softmax", "/embeddings"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct client_response response =
            post_shared(paths[i], "Content-Type: application/octet-stream\r\n", "{}", 2);
        expect_refused_file(&response, 415, paths[i], says, 2);
    }
}

/* --------------------------------------------------------------------------------------- limits */

/* A client that declares 400 MB and sends 1 KB holds almost no memory, and leaves none behind. */
Test(safetensors_limits, declared_sizes_that_never_arrive) {
    enum {
        CLIENTS = 20
    };
    static const char header[] = "{" TENSOR("X", "F32", "[10000,10000]", "[0,400000000]") "}";
    static const char kilobyte[1000];
    struct client_connection clients[CLIENTS];
    size_t size, file_size;
    daemon_start((const char *const[]){"--max-memory", "1GiB", "--total-memory", "16MiB",
                                       "--max-body", "1GiB", NULL});
    daemon_connect();
    char *begin = binary_file(header, kilobyte, sizeof kilobyte, &size);
    char *file = binary_safetensors(&binary_calls[1], "F64", &file_size);
    for (size_t i = 0; i < CLIENTS; i++) {
        char head[256];
        cr_assert(client_open(&clients[i], the_daemon.port));
        sprintf(head, "POST /softmax HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n" TYPE "\r\n",
                sizeof header + 7 + 400000000);
        cr_assert(client_send(&clients[i], head, strlen(head)));
        cr_assert(client_send(&clients[i], begin, size));
    }
    daemon_await_metric("attentiond_requests_in_flight", CLIENTS + 1);
    for (size_t i = 0; i < 20; i++) {
        struct client_response response = post_shared("/attention", TYPE, file, file_size);
        cr_expect_eq(response.status, 200, "%.300s", response.body);
        client_response_free(&response);
    }
    const double held = daemon_metric("attentiond_memory_bytes");
    cr_expect(held > 0 && held < 10e6, "%g bytes", held);
    for (size_t i = 0; i < CLIENTS; i++) {
        client_close(&clients[i]);
    }
    daemon_await_metric("attentiond_memory_bytes", 0);
    free(begin);
    free(file);
}

/* The bytes that arrive are held against --max-memory. */
Test(safetensors_limits, memory) {
    static const char *const says[] = {"--max-memory"};
    static const struct binary_call call = {"/softmax", "", NULL, {{"X", {300, 300}, 0}}};
    size_t size;
    char *body = binary_safetensors(&call, "F64", &size);
    daemon_start((const char *const[]){"--max-memory", "256KiB", NULL});
    daemon_connect();
    struct client_response response = post_shared("/softmax", TYPE, body, size);
    expect_refused_file(&response, 413, "300 x 300", says, 1);
    daemon_await_metric("attentiond_memory_bytes", 0);
    free(body);
}

/* -------------------------------------------------------------- the Open Inference Protocol, too */

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

/* Makes a question about the softmax of 100000 numbers, with this text before its data, and returns
 * it owned. */
static char *long_softmax(const char *before, const char *after) {
    enum {
        COUNT_OF_X = 100000
    };
    char *text = malloc(5 * COUNT_OF_X + 512), *out = text;
    out += sprintf(out, "{\"inputs\":[%s,\"data\":[1", before);
    for (size_t i = 1; i < COUNT_OF_X; i++) {
        out += sprintf(out, ",0.5");
    }
    sprintf(out, "]%s}", after);
    return text;
}

/* In a long body, FP64 comes before all data. The message says so in plain words. */
Test(safetensors, late_fp64_in_a_long_body) {
    static const char rule[] =
        "\\\"datatype\\\": \\\"FP64\\\" must stand before the data of the first "
        "matrix in a body over 256 KiB";
    static const struct {
        const char *before, *after, *says; /* NULL: the question is accepted */
    } rows[] = {
        {"{\"name\":\"X\",\"shape\":[100000],\"datatype\":\"FP64\"", "}]", NULL},
        {"{\"name\":\"X\",\"shape\":[100000]", ",\"datatype\":\"FP64\"}]", "/inputs/0/datatype"},
        {"{\"name\":\"X\",\"shape\":[100000]", ",\"datatype\":\"FP32\"}]", NULL},
        {"{\"name\":\"W\",\"shape\":[100000],\"datatype\":\"FP32\"",
         "}," INPUT("V", "[1,1]", "[1]") ",{\"name\":\"X\",\"datatype\":\"FP64\"}]",
         "/inputs/2/datatype"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char *text = long_softmax(rows[i].before, rows[i].after);
        struct client_response response =
            post_shared("/v2/models/softmax/infer", "", text, strlen(text));
        cr_expect_eq(response.status, rows[i].says == NULL ? 200 : 422, "%zu: %.200s", i,
                     response.body);
        if (rows[i].says != NULL) {
            expect_text(response.body, rows[i].says, "answer", rows[i].before);
            expect_text(response.body, rule, "answer", rows[i].before);
        }
        client_response_free(&response);
        free(text);
    }
}

/* The softmax has the rank of X, which may be up to 8. */
Test(safetensors, softmax_is_described_with_the_rank_of_x) {
    static const struct {
        const char *path, *inputs, *outputs, *shape;
    } rows[] = {{"/v2/models/softmax", "inputs", "outputs", "shape"},
                {"/v2/models/softmax/config", "input", "output", "dims"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct client_response response;
        cr_assert(client_request(the_daemon.port, "GET", rows[i].path, NULL, "", 0, &response));
        cr_assert_eq(response.status, 200, "%s", response.body);
        struct cJSON *json = json_parse(response.body, response.size);
        const struct cJSON *x = json_first(json_get(json, rows[i].inputs)),
                           *output = json_first(json_get(json, rows[i].outputs));
        cr_expect_eq(json_size(json_get(x, rows[i].shape)), 8, "%s", response.body);
        cr_expect_eq(json_size(json_get(output, rows[i].shape)), 8, "%s", response.body);
        json_free(json);
        client_response_free(&response);
    }
}
