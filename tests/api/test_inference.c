/*
 * test_inference.c - the Open Inference Protocol over a socket: answers that are those of the JSON
 * endpoints bit by bit, everything that a question may have, and everything that is refused. After
 * each refusal the same connection serves the next request. The tests know the service by its
 * socket only.
 */
#include <criterion/criterion.h>
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
#define OCTETS       "Content-Type: application/octet-stream\r\n"
#define INFER        "/v2/models/attention/infer"

static void start_inference(void) {
    daemon_start((const char *const[]){"--compression", "yes", NULL});
    daemon_connect();
}

TestSuite(inference, .init = start_inference, .fini = daemon_end, .timeout = 120);
TestSuite(inference_limits, .fini = daemon_end, .timeout = 120);

/* Asks on the shared connection. */
static struct client_response ask_shared(const char *method, const char *path, const char *headers,
                                         const void *body, size_t size) {
    struct client_response response;
    char head[640];
    const int length =
        snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n%s\r\n",
                 method, path, size, headers);
    cr_assert(client_send(&the_connection, head, (size_t)length));
    cr_assert(client_send(&the_connection, body, size));
    cr_assert(client_receive(&the_connection, strcmp(method, "HEAD") == 0, &response), "%s %s %s",
              method, path, headers);
    return response;
}

/* Asks a model, with the length of the JSON in a header; 0: without that header. */
static struct client_response ask_model(const char *path, const void *body, size_t size,
                                        size_t header, const char *more) {
    char headers[512];
    snprintf(headers, sizeof headers, OCTETS "Inference-Header-Content-Length: %zu\r\n%s", header,
             more);
    return ask_shared("POST", path, header > 0 ? headers : more, body, size);
}

/* Returns the value of the header Inference-Header-Content-Length, or 0. */
static size_t header_of(const struct client_response *response) {
    char text[32] = "0";
    client_header(response, "Inference-Header-Content-Length", text, sizeof text);
    return strtoul(text, NULL, 10);
}

static void read_answer(const struct client_response *response, struct binary_answer *answer) {
    char message[256] = "", type[64] = "";
    const size_t header = header_of(response);
    cr_assert_eq(response->status, 200, "%.*s", (int)response->size, response->body);
    client_header(response, "Content-Type", type, sizeof type);
    cr_expect_str_eq(type, header > 0 ? "application/octet-stream" : "application/json");
    cr_assert(binary_read_inference(answer, response->body, response->size, header, message), "%s",
              message);
}

/* -------------------------------------------------------------------- the same as the endpoints */

static void path_of_model(const struct binary_call *call, bool version, char path[128]) {
    snprintf(path, 128, "/v2/models%s%s/infer", call->path, version ? "/versions/1" : "");
}

/* Asks in the protocol, and compares all results with those in JSON. */
static void expect_same_answer(const struct binary_call *call, const char *type, unsigned binary,
                               bool binary_results, const struct cJSON *json) {
    struct binary_answer answer;
    char path[128], message[256], name[64];
    size_t header, size;
    char model[128];
    snprintf(model, sizeof model, "\"model_name\":\"%s\",\"model_version\":\"1\",", call->path + 1);
    const char *more = binary_results ? "\"outputs\":[],\"id\":\"a\\u00e9\"," : model;
    struct binary_call asked = *call;
    char options[512];
    snprintf(options, sizeof options, "%s%s\"binary_data_output\":%s", call->options,
             call->options[0] != '\0' ? "," : "", binary_results ? "true" : "false");
    asked.options = options;
    char *body = binary_inference(&asked, type, binary, more, &header, &size);
    path_of_model(call, binary_results, path);
    struct client_response response = ask_model(path, body, size, binary == 0 ? 0 : header, "");
    read_answer(&response, &answer);
    cr_expect_eq(header_of(&response) > 0, binary_results);
    cr_expect(binary_equal_json(&answer, json, message), "%s %s with %x: %s", path, type, binary,
              message);
    snprintf(name, sizeof name, "/%s", json_text(json_get(answer.head, "model_name")));
    cr_expect_str_eq(name, call->path);
    cr_expect_str_eq(json_text(json_get(answer.head, "model_version")), "1");
    const char *id = json_text(json_get(answer.head, "id"));
    cr_expect(binary_results ? id != NULL && strcmp(id, "a\xC3\xA9") == 0 : id == NULL);
    for (size_t i = 0; i < answer.count; i++) {
        cr_expect_eq(answer.list[i].bytes != NULL, binary_results);
    }
    binary_free(&answer);
    client_response_free(&response);
    free(body);
}

Test(inference, answers_are_those_of_json) {
    static const struct {
        const char *type, *dtype;
    } types[] = {{"FP32", "float32"}, {"FP64", "float64"}};
    for (size_t i = 0; i < binary_call_count; i++) {
        for (size_t k = 0; k < COUNT(types); k++) {
            size_t size;
            char *body = binary_json(&binary_calls[i], types[k].dtype, &size);
            struct client_response response =
                ask_shared("POST", binary_calls[i].path, "", body, size);
            cr_assert_eq(response.status, 200, "%s", response.body);
            struct cJSON *json = json_parse(response.body, response.size);
            for (unsigned binary = 0; binary < 4; binary++) { /* none, some, others, all */
                const unsigned mask = binary == 3 ? ~0u : 0x55u * binary;
                expect_same_answer(&binary_calls[i], types[k].type, mask, false, json);
                expect_same_answer(&binary_calls[i], types[k].type, mask, true, json);
            }
            json_free(json);
            client_response_free(&response);
            free(body);
        }
    }
}

/* FP16 and BF16 hold the numbers of the calls exactly, so results of float32 are the same. */
Test(inference, types_of_16_bits_are_computed_in_float32) {
    static const char *const types[] = {"FP16", "BF16"};
    for (size_t i = 0; i < binary_call_count; i++) {
        size_t size;
        char *body = binary_json(&binary_calls[i], "float32", &size), options[256];
        struct client_response response = ask_shared("POST", binary_calls[i].path, "", body, size);
        struct cJSON *json = json_parse(response.body, response.size);
        struct binary_call call = binary_calls[i];
        snprintf(options, sizeof options, "%s%s\"dtype\":\"float32\"", call.options,
                 call.options[0] != '\0' ? "," : "");
        call.options = options;
        for (size_t k = 0; k < COUNT(types); k++) {
            expect_same_answer(&call, types[k], ~0u, true, json);
        }
        json_free(json);
        client_response_free(&response);
        free(body);
    }
}

/* The digits are for numbers in JSON. They round neither bytes nor the sizes of them. */
Test(inference, digits_do_not_round_bytes) {
    size_t size;
    char *body = binary_json(&binary_calls[1], "float32", &size), options[256];
    struct client_response response = ask_shared("POST", binary_calls[1].path, "", body, size);
    struct cJSON *json = json_parse(response.body, response.size);
    struct binary_call call = binary_calls[1];
    snprintf(options, sizeof options, "%s,\"digits\":1", call.options);
    call.options = options;
    expect_same_answer(&call, "FP32", ~0u, true, json);
    json_free(json);
    client_response_free(&response);
    free(body);
}

/* Without a dtype, results have the type of the inputs if all have the same, FP64 if one has it,
 * and FP32 otherwise. */
Test(inference, types_of_results) {
    static const struct {
        const char *types[3], *options, *result;
    } rows[] = {
        {{"FP32", "FP32", "FP32"}, "", "FP32"},
        {{"FP64", "FP64", "FP64"}, "", "FP64"},
        {{"FP16", "FP16", "FP16"}, "", "FP16"},
        {{"BF16", "BF16", "BF16"}, "", "BF16"},
        {{"FP16", "BF16", "FP16"}, "", "FP32"},
        {{"FP16", "FP32", "FP16"}, "", "FP32"},
        {{"BF16", "FP64", "FP16"}, "", "FP64"},
        {{"INT8", "INT8", "UINT8"}, "", "FP32"},
        {{"INT64", "FP16", "INT32"}, "", "FP16"},
        {{"INT16", "UINT16", "FP64"}, "", "FP64"},
        {{"FP64", "FP64", "FP64"}, "\"dtype\":\"float32\"", "FP32"},
        {{"FP16", "FP16", "FP16"}, "\"dtype\":\"float64\"", "FP64"},
        {{"UINT32", "UINT64", "FP16"}, "\"dtype\":\"float32\"", "FP32"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char head[512], body[640], message[256];
        size_t bytes = 0;
        int size = sprintf(head, "{\"inputs\":[");
        for (size_t k = 0; k < 3; k++) {
            const char *type = rows[i].types[k];
            const size_t width = strtoul(type + strcspn(type, "0123456789"), NULL, 10) / 8;
            size += sprintf(head + size,
                            "%s{\"name\":\"%c\",\"datatype\":\"%s\",\"shape\":[2,2],"
                            "\"parameters\":{\"binary_data_size\":%zu}}",
                            k > 0 ? "," : "", "QKV"[k], type, 4 * width);
            bytes += 4 * width;
        }
        size += sprintf(head + size, "],\"parameters\":{\"binary_data_output\":true%s%s}}",
                        rows[i].options[0] != '\0' ? "," : "", rows[i].options);
        memcpy(body, head, (size_t)size);
        memset(body + size, 0, bytes);
        struct binary_answer answer;
        struct client_response response =
            ask_model(INFER, body, (size_t)size + bytes, (size_t)size, "");
        read_answer(&response, &answer);
        const struct binary_result *output = binary_find(&answer, "output");
        snprintf(message, sizeof message, "row %zu", i);
        cr_assert_not_null(output);
        cr_expect_str_eq(output->type, rows[i].result, "%s: %s", message, output->type);
        cr_expect_str_eq(binary_find(&answer, "weights")->type, rows[i].result, "%s", message);
        binary_free(&answer);
        client_response_free(&response);
    }
}

/* --------------------------------------------------------------------- what a question may have */

#define QKV                                                                                        \
    "\"inputs\":[{\"name\":\"Q\",\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":[1,2]},"           \
    "{\"name\":\"K\",\"datatype\":\"FP32\",\"shape\":[2,2],\"data\":[[1,0],[0,1]]},"               \
    "{\"name\":\"V\",\"datatype\":\"FP32\",\"shape\":[2,1],\"data\":[3,4]}]"

Test(inference, outputs_and_parameters) {
    static const struct {
        const char *body;
        const char *names; /* of the results, each with a space; binary ones with an asterisk */
    } rows[] = {
        {"{" QKV "}", "output weights "},
        {"{" QKV ",\"parameters\":{},\"outputs\":[]}", "output weights "},
        {"{" QKV ",\"parameters\":null,\"outputs\":null,\"id\":null}", "output weights "},
        {"{" QKV ",\"outputs\":[{\"name\":\"lse\"}]}", "lse "},
        {"{" QKV ",\"outputs\":[{\"name\":\"lse\"},{\"name\":\"output\"}]}", "lse output "},
        {"{" QKV ",\"outputs\":[{\"name\":\"lse\",\"parameters\":{\"binary_data\":true}},"
         "{\"name\":\"output\"}]}",
         "lse* output "},
        {"{" QKV ",\"parameters\":{\"binary_data_output\":true},\"outputs\":[{\"name\":\"lse\"},"
         "{\"name\":\"output\",\"parameters\":{\"binary_data\":false}},{\"name\":\"weights\"}]}",
         "lse* output weights* "},
        {"{" QKV ",\"parameters\":{\"binary_data_output\":true}}", "output* weights* "},
        {"{" QKV ",\"outputs\":[{\"name\":\"top_k\"}],\"parameters\":{\"top_k\":1}}",
         "top_k.indices top_k.weights "},
        {"{" QKV ",\"outputs\":[{\"name\":\"top_k.indices\"}]}", "top_k.indices "},
        {"{" QKV ",\"outputs\":[{\"name\":\"statistics.variance.Q\",\"parameters\":"
         "{\"binary_data\":true}},{\"name\":\"output\"}]}",
         "statistics.variance.Q* output "},
        {"{" QKV ",\"parameters\":{\"return\":\"[\\\"lse\\\"]\"}}", "lse "},
        {"{" QKV ",\"parameters\":{\"window\":\"[1, 0]\",\"scale\":0.5,\"causal\":true,"
         "\"priority\":1,\"timeout\":5000000,\"triton_x\":\"y\",\"headers\":\"\"}}",
         "output weights "},
        {"{" QKV ",\"parameters\":{\"causal\":\"bottom_right\",\"digits\":3,\"timeout\":0}}",
         "output weights "},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct binary_answer answer;
        char names[256] = "";
        struct client_response response =
            ask_shared("POST", INFER, "", rows[i].body, strlen(rows[i].body));
        read_answer(&response, &answer);
        for (size_t k = 0; k < answer.count; k++) {
            strcat(strcat(names, answer.list[k].name), answer.list[k].bytes != NULL ? "* " : " ");
        }
        cr_expect_str_eq(names, rows[i].names, "%s: %s", rows[i].body, names);
        binary_free(&answer);
        client_response_free(&response);
    }
}

/* The length of the JSON counts the bytes of the body before it was compressed. */
Test(inference, codings) {
    static const char *const names[] = {"gzip", "zstd", "deflate"};
    const struct binary_call *call = &binary_calls[binary_call_count - 1];
    size_t header, size;
    char *body = binary_inference(call, "FP32", ~0u, "", &header, &size);
    struct client_response plain = ask_model(INFER, body, size, header, "");
    cr_assert_eq(plain.status, 200, "%.300s", plain.body);
    for (size_t i = 0; i < COUNT(names); i++) {
        char more[128];
        size_t packed_size, unpacked = 0;
        char *packed = pack(names[i], body, size, &packed_size);
        snprintf(more, sizeof more, "Content-Encoding: %s\r\n", names[i]);
        struct client_response response = ask_model(INFER, packed, packed_size, header, more);
        cr_expect(response.status == 200 && response.size == plain.size &&
                      memcmp(response.body, plain.body, plain.size) == 0,
                  "%s: %d %.200s", names[i], response.status, response.body);
        client_response_free(&response);
        snprintf(more, sizeof more, "Content-Encoding: %s\r\nAccept-Encoding: %s\r\n", names[i],
                 names[i]);
        response = ask_model(INFER, packed, packed_size, header, more);
        expect_header(&response, names[i], "Content-Encoding", names[i]);
        cr_expect_eq(header_of(&response), header_of(&plain));
        char *got = unpack(names[i], response.body, response.size, &unpacked);
        cr_expect(got != NULL && unpacked == plain.size && memcmp(got, plain.body, unpacked) == 0);
        free(got);
        client_response_free(&response);
        free(packed);
    }
    client_response_free(&plain);
    free(body);
}

/* Sends a body in chunks of `part` bytes. */
static struct client_response ask_in_chunks(const char *path, const char *headers, const char *body,
                                            size_t size, size_t part) {
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    struct client_response response;
    fprintf(to, "POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n%s\r\n", path,
            headers);
    for (size_t at = 0; at < size; at += part) {
        const size_t some = size - at < part ? size - at : part;
        fprintf(to, "%zx\r\n", some);
        fwrite(body + at, 1, some, to);
        fputs("\r\n", to);
    }
    fputs("0\r\n\r\n", to);
    fclose(to);
    cr_assert(client_send(&the_connection, text, length));
    cr_assert(client_receive(&the_connection, false, &response));
    free(text);
    return response;
}

Test(inference, chunks) {
    size_t header, size;
    char headers[128];
    char *body = binary_inference(&binary_calls[1], "FP64", ~0u, "", &header, &size);
    struct client_response plain = ask_model(INFER, body, size, header, "");
    snprintf(headers, sizeof headers, "Inference-Header-Content-Length: %zu\r\n", header);
    for (size_t part = 1; part < 400; part = 3 * part + 1) {
        struct client_response response = ask_in_chunks(INFER, headers, body, size, part);
        cr_expect(response.status == 200 && response.size == plain.size &&
                      memcmp(response.body, plain.body, plain.size) == 0,
                  "%zu: %d %.200s", part, response.status, response.body);
        client_response_free(&response);
    }
    client_response_free(&plain);
    free(body);
}

/* ------------------------------------------------------------------------- the other endpoints */

Test(inference, descriptions) {
    static const struct {
        const char *method, *path;
        int status;
        const char *says;
    } rows[] = {
        {"GET", "/v2", 200, "\"binary_tensor_data\""},
        {"GET", "/v2/health/live", 200, "{\"live\":true}"},
        {"GET", "/v2/health/ready", 200, "{\"ready\":true}"},
        {"GET", "/v2/models", 200, "multi-head-attention"},
        {"GET", "/v2/models/softmax", 200, "{\"name\":\"softmax\""},
        {"GET", "/v2/models/softmax/versions/1", 200, "{\"name\":\"softmax\""},
        {"GET", "/v2/models/attention/ready", 200, "\"ready\":true"},
        {"GET", "/v2/models/attention/versions/1/ready", 200, "\"ready\":true"},
        {"GET", "/v2/models/attention/config", 200, "TYPE_FP32"},
        {"GET", "/v2/models/attention/stats", 200, "\"inference_count\""},
        {"GET", "/v2/models/attention/versions/1/stats", 200, "\"inference_count\""},
        {"GET", "/v2/models/stats", 200, "\"self-attention\""},
        {"POST", "/v2/repository/index", 200, "\"READY\""},
        {"POST", "/v2/repository/models/attention/load", 501, "{\"error\":"},
        {"POST", "/v2/repository/models/attention/unload", 501, "{\"error\":"},
        {"GET", "/v2/models/embeddings", 404, "{\"error\":"},
        {"GET", "/v2/models/Attention", 404, "{\"error\":"},
        {"GET", "/v2/models/attention/versions/2", 404, "{\"error\":"},
        {"GET", "/v2/models/attention/versions/2/ready", 404, "{\"error\":"},
        {"GET", "/v2/nothing", 404, "{\"error\":"},
        {"POST", "/v2/models/gpt/infer", 404, "{\"error\":"},
        {"POST", "/v2/models/attention/versions/2/infer", 404, "{\"error\":"},
        {"GET", "/v2/models/attention/infer", 405, "{\"error\":"},
        {"POST", "/v2", 405, "{\"error\":"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct client_response response = ask_shared(rows[i].method, rows[i].path, "", "", 0);
        cr_expect_eq(response.status, rows[i].status, "%s: %d", rows[i].path, response.status);
        expect_text(response.body, rows[i].says, "answer", rows[i].path);
        expect_header(&response, rows[i].path, "Content-Type", "application/json");
        if (strcmp(rows[i].method, "GET") == 0) {
            struct client_response head = ask_shared("HEAD", rows[i].path, "", "", 0);
            cr_expect_eq(head.status, rows[i].status);
            cr_expect_eq(head.size, 0);
            client_response_free(&head);
        }
        client_response_free(&response);
    }
}

/* ------------------------------------------------------------------------------ what is refused */

static const char good[] = "{" QKV "}";

/* Expects {"error": text}, that the text says all of `says`, and that the same connection then
 * serves another request. */
static void expect_refusal(struct client_response *response, int status, const char *about,
                           const char *const says[], size_t count) {
    struct cJSON *json = json_parse(response->body, response->size);
    const char *text = json_text(json_get(json, "error"));
    cr_expect_eq(response->status, status, "%s: %d %s", about, response->status, response->body);
    expect_header(response, about, "Content-Type", "application/json");
    expect_header(response, about, "Inference-Header-Content-Length", NULL);
    cr_expect(text != NULL && json_size(json) == 1, "%s: %s", about, response->body);
    for (size_t i = 0; i < count && says[i] != NULL; i++) {
        expect_text(text, says[i], "error", about);
    }
    json_free(json);
    client_response_free(response);
    struct client_response next = ask_shared("POST", INFER, "", good, sizeof good - 1);
    cr_expect_eq(next.status, 200, "%s: then %d %s", about, next.status, next.body);
    client_response_free(&next);
}

#define INPUT(name, type, shape, rest)                                                             \
    "{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":" shape "," rest "}"
#define BYTES(size)   "\"parameters\":{\"binary_data_size\":" size "}"
#define DATA(numbers) "\"data\":" numbers
#define ONE(name)     INPUT(name, "FP32", "[1,1]", DATA("[1]"))
#define INPUTS(list)  "{\"inputs\":[" list "]}"
#define REST          ONE("K") "," ONE("V")
#define ZEROS         "\0\0\0\0\0\0\0\0"

/* The length in the header Inference-Header-Content-Length. */
enum length {
    NO_LENGTH,   /* there is no such header */
    RIGHT_LENGTH /* the bytes of the JSON */
};

static const struct bad_question {
    const char *json;
    const char *bytes; /* the `size` bytes after it */
    size_t size;
    enum length length;
    int status;
    const char *says[3];
} bad_questions[] = {
    /* the model */
    {"{\"model_name\":\"softmax\"," QKV "}",
     NULL,
     0,
     NO_LENGTH,
     422,
     {"model_name", "\"softmax\"", "\"attention\""}},
    {"{\"model_version\":\"2\"," QKV "}",
     NULL,
     0,
     NO_LENGTH,
     422,
     {"model_version", "\"2\"", "\"1\""}},
    /* sizes */
    {INPUTS(INPUT("Q", "FP32", "[1,1]", BYTES("8")) "," REST),
     ZEROS,
     8,
     RIGHT_LENGTH,
     422,
     {"\"Q\"", "binary_data_size of 8", "4 bytes"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", BYTES("0")) "," REST),
     ZEROS,
     4,
     RIGHT_LENGTH,
     422,
     {"\"Q\"", "binary_data_size of 0", "4 bytes"}},
    {INPUTS(INPUT("Q", "FP64", "[1,1]", BYTES("4")) "," REST),
     ZEROS,
     4,
     RIGHT_LENGTH,
     422,
     {"\"Q\"", "binary_data_size of 4", "8 bytes"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", BYTES("-4")) "," REST),
     ZEROS,
     4,
     RIGHT_LENGTH,
     422,
     {"binary_data_size", "-4"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", BYTES("4.5")) "," REST),
     ZEROS,
     4,
     RIGHT_LENGTH,
     422,
     {"binary_data_size", "4.5"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", BYTES("\"4\"")) "," REST),
     ZEROS,
     4,
     RIGHT_LENGTH,
     422,
     {"binary_data_size", "string"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", "\"parameters\":[]") "," REST),
     "",
     0,
     RIGHT_LENGTH,
     422,
     {"parameters", "an object"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", BYTES("4")) "," REST),
     ZEROS,
     3,
     RIGHT_LENGTH,
     400,
     {"\"Q\"", "3 of its 4 bytes"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", BYTES("4")) "," REST),
     "",
     0,
     RIGHT_LENGTH,
     400,
     {"\"Q\"", "0 of its 4 bytes"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", BYTES("4")) "," REST),
     ZEROS,
     5,
     RIGHT_LENGTH,
     400,
     {"after the last of its tensors"}},
    {INPUTS(ONE("Q") "," REST), ZEROS, 1, RIGHT_LENGTH, 400, {"after the last of its tensors"}},
    /* shapes */
    {INPUTS(INPUT("Q", "FP32", "[2,2]", BYTES("12")) "," REST),
     ZEROS ZEROS,
     12,
     RIGHT_LENGTH,
     422,
     {"\"Q\"", "binary_data_size of 12", "16 bytes"}},
    {INPUTS(INPUT("Q", "FP32", "[2,1]", DATA("[1]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "1 elements in its data, but 2"}},
    {INPUTS(INPUT("Q", "FP32", "[1,2]", DATA("[[1],[2]]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "nested in another way"}},
    {INPUTS(INPUT("Q", "FP32", "[1,2]", DATA("[[1],[2,3]]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"/inputs/0/data", "the row has 2 numbers"}},
    {INPUTS(INPUT("Q", "FP32", "[]", DATA("[1]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "0 axes"}},
    {INPUTS(INPUT("Q", "FP32", "[1,0]", DATA("[]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "at least 1, not 0"}},
    {INPUTS(INPUT("Q", "FP32", "[-1,1]", DATA("[1]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "at least 1, not -1"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1,1,1,1,1,1,1,1]", DATA("[1]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "9 axes"}},
    {INPUTS(INPUT("Q", "FP32", "[9223372036854775808]", BYTES("4")) "," REST),
     ZEROS,
     4,
     RIGHT_LENGTH,
     422,
     {"\"Q\"", "wrong shape"}},
    {INPUTS(INPUT("Q", "FP32", "[2147483648,4294967296]", BYTES("4")) "," REST),
     ZEROS,
     4,
     RIGHT_LENGTH,
     422,
     {"\"Q\"", "more bytes than a file can have"}},
    {INPUTS(INPUT("Q", "BOOL", "[2147483648,4294967296]", BYTES("9223372036854775808")) "," REST),
     ZEROS,
     4,
     RIGHT_LENGTH,
     422,
     {"\"Q\"", "more bytes than a file can have"}},
    {INPUTS(INPUT("Q", "FP32", "[65536,65536,65536,65536]", BYTES("0")) "," REST),
     ZEROS,
     4,
     RIGHT_LENGTH,
     422,
     {"\"Q\"", "more bytes than a file can have"}},
    {INPUTS(INPUT("Q", "FP32", "[1,3]", BYTES("12")) "," REST),
     ZEROS ZEROS,
     12,
     RIGHT_LENGTH,
     422,
     {"Q", "K", "3"}},
    /* types */
    {INPUTS(INPUT("Q", "FP8", "[1,1]", BYTES("1")) "," REST),
     ZEROS,
     1,
     RIGHT_LENGTH,
     422,
     {"\"Q\"", "the type \"FP8\"", "BF16"}},
    {INPUTS(INPUT("Q", "BYTES", "[1,1]", DATA("[\"a\"]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "the type \"BYTES\""}},
    {INPUTS(INPUT("Q", "F32", "[1,1]", DATA("[1]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "the type \"F32\""}},
    {INPUTS(INPUT("Q", "FP16", "[1,1]", DATA("[1]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "FP16", "must be binary"}},
    {INPUTS(INPUT("Q", "BOOL", "[1,1]", BYTES("1")) "," REST),
     "\1",
     1,
     RIGHT_LENGTH,
     422,
     {"Q", "not of booleans"}},
    {INPUTS(INPUT("Q", "INT8", "[1,1]", DATA("[128]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "its type does not have"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", DATA("[true]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "booleans"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", DATA("\"AAAA\"")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "an array of numbers"}},
    {INPUTS(ONE("Q") "," REST "," INPUT("mask", "FP32", "[1,1]", DATA("[0.5]"))),
     "",
     0,
     NO_LENGTH,
     422,
     {"mask", "0.5"}},
    {INPUTS(ONE("Q") "," REST "," INPUT("mask", "BOOL", "[1,1]", BYTES("1"))),
     "\2",
     1,
     RIGHT_LENGTH,
     422,
     {"mask", "the byte 2"}},
    {INPUTS(ONE("Q") "," REST "," ONE("causal")), "", 0, NO_LENGTH, 422, {"causal"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", BYTES("4")) "," REST),
     "\0\0\xC0\x7F",
     4,
     RIGHT_LENGTH,
     422,
     {"Q", "NaN"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", DATA("[null]")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"Q", "null"}},
    /* places of the elements */
    {INPUTS("{\"name\":\"Q\",\"datatype\":\"FP32\",\"shape\":[1,1]}," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "neither data nor"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", DATA("[1]") "," BYTES("4")) "," REST),
     ZEROS,
     4,
     RIGHT_LENGTH,
     422,
     {"\"Q\"", "give one of them"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", BYTES("4")) "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "no header Inference-Header-Content-Length"}},
    {INPUTS(
         INPUT("Q", "FP32", "[1,1]", "\"parameters\":{\"shared_memory_region\":\"a\"}") "," REST),
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "shared memory"}},
    /* names */
    {INPUTS(ONE("Q") "," ONE("Q") "," REST), "", 0, NO_LENGTH, 422, {"\"Q\"", "twice"}},
    {INPUTS(ONE("Q") "," REST "," ONE("query")), "", 0, NO_LENGTH, 422, {"query"}},
    {INPUTS(REST), "", 0, NO_LENGTH, 422, {"Q is missing"}},
    {INPUTS(""), "", 0, NO_LENGTH, 422, {"missing"}},
    {INPUTS("{\"datatype\":\"FP32\",\"shape\":[1,1],\"data\":[1]}"),
     "",
     0,
     NO_LENGTH,
     422,
     {"name"}},
    {INPUTS("{\"name\":7,\"datatype\":\"FP32\",\"shape\":[1,1],\"data\":[1]}"),
     "",
     0,
     NO_LENGTH,
     422,
     {"name", "string"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", "\"dtype\":1," DATA("[1]"))),
     "",
     0,
     NO_LENGTH,
     422,
     {"dtype"}},
    {INPUTS("1"), "", 0, NO_LENGTH, 422, {"inputs"}},
    {"{\"inputs\":[" ONE("Q") "," REST "],\"parameters\":{\"Q\":1}}",
     "",
     0,
     NO_LENGTH,
     422,
     {"\"Q\"", "as a tensor and as an option"}},
    {"{\"inputs\":{}}", "", 0, NO_LENGTH, 422, {"inputs", "array"}},
    {"{}", "", 0, NO_LENGTH, 422, {"inputs is missing"}},
    {"[]", "", 0, NO_LENGTH, 422, {"object"}},
    {"{\"input\":[]}", "", 0, NO_LENGTH, 422, {"\"input\"", "\"inputs\""}},
    /* options and outputs */
    {"{" QKV ",\"parameters\":{\"casual\":true}}", "", 0, NO_LENGTH, 422, {"casual", "causal"}},
    {"{" QKV ",\"parameters\":{\"window\":[1,0]}}",
     "",
     0,
     NO_LENGTH,
     422,
     {"window", "JSON in a string"}},
    {"{" QKV ",\"parameters\":{\"scale\":null}}", "", 0, NO_LENGTH, 422, {"scale", "a number"}},
    {"{" QKV ",\"parameters\":{\"timeout\":-1}}", "", 0, NO_LENGTH, 422, {"timeout", "-1"}},
    {"{" QKV ",\"parameters\":{\"timeout\":\"x\"}}", "", 0, NO_LENGTH, 422, {"timeout"}},
    {"{" QKV ",\"parameters\":7}", "", 0, NO_LENGTH, 422, {"parameters", "an object"}},
    {"{" QKV ",\"parameters\":{\"binary_data_output\":1}}",
     "",
     0,
     NO_LENGTH,
     422,
     {"binary_data_output", "true or false"}},
    {"{" QKV ",\"id\":7}", "", 0, NO_LENGTH, 422, {"id", "string"}},
    {"{" QKV ",\"outputs\":[{\"name\":\"outputs\"}]}", "", 0, NO_LENGTH, 422, {"outputs"}},
    {"{" QKV ",\"outputs\":[{\"name\":\"output.x\"}]}",
     "",
     0,
     NO_LENGTH,
     422,
     {"\"output.x\"", "is unknown"}},
    {"{" QKV ",\"outputs\":[{\"name\":\"top_k.index\"},{\"name\":\"output\"}]}",
     "",
     0,
     NO_LENGTH,
     422,
     {"\"top_k.index\"", "is unknown"}},
    {"{" QKV ",\"outputs\":[{}]}", "", 0, NO_LENGTH, 422, {"name"}},
    {"{" QKV ",\"outputs\":[7]}", "", 0, NO_LENGTH, 422, {"outputs"}},
    {"{" QKV ",\"outputs\":7}", "", 0, NO_LENGTH, 422, {"outputs", "array"}},
    {"{" QKV ",\"outputs\":[{\"name\":\"lse\",\"parameters\":{\"binary_data\":1}}]}",
     "",
     0,
     NO_LENGTH,
     422,
     {"binary_data", "true or false"}},
    {"{" QKV ",\"outputs\":[{\"name\":\"lse\",\"parameters\":{\"classification\":1}}]}",
     "",
     0,
     NO_LENGTH,
     422,
     {"classification"}},
    {"{" QKV ",\"outputs\":[{\"name\":\"lse\"}],\"parameters\":{\"return\":\"[\\\"lse\\\"]\"}}",
     "",
     0,
     NO_LENGTH,
     422,
     {"outputs", "return", "not both"}},
    /* JSON that is none */
    {"", "", 0, NO_LENGTH, 400, {"empty"}},
    {"{\"inputs\":[", "", 0, NO_LENGTH, 400, {"ends", "at byte 11"}},
    {"{\"inputs\":[}", "", 0, NO_LENGTH, 400, {"]", "at byte 11"}},
    {"inputs", "", 0, NO_LENGTH, 400, {""}},
    {"{" QKV ",}", "", 0, RIGHT_LENGTH, 400, {""}},
    {"{" QKV "}}", "", 0, RIGHT_LENGTH, 400, {""}},
    {"{" QKV ",\"id\":\"a\",\"id\":\"b\"}", "", 0, NO_LENGTH, 400, {"id", "twice"}},
    {"{" QKV ",\"id\":\"\xFF\"}", "", 0, RIGHT_LENGTH, 400, {"UTF-8"}},
    {INPUTS(INPUT("Q", "FP32", "[1,1]", DATA("[NaN]"))), "", 0, NO_LENGTH, 400, {"NaN"}},
};

Test(inference, bad_questions_name_the_tensor_and_the_rule) {
    for (size_t i = 0; i < COUNT(bad_questions); i++) {
        const struct bad_question *row = &bad_questions[i];
        const size_t size = strlen(row->json);
        char body[2048], about[2200];
        memcpy(body, row->json, size);
        memcpy(body + size, row->bytes, row->size);
        snprintf(about, sizeof about, "%s and %zu bytes", row->json, row->size);
        struct client_response response =
            ask_model(INFER, body, size + row->size, row->length == RIGHT_LENGTH ? size : 0, "");
        expect_refusal(&response, row->status, about, row->says, COUNT(row->says));
    }
}

Test(inference, headers_that_are_wrong) {
    static const struct {
        const char *headers;
        int status;
        const char *says[2];
    } rows[] = {
        {"Inference-Header-Content-Length: -1\r\n", 400, {"Inference-Header-Content-Length", "-1"}},
        {"Inference-Header-Content-Length: 0\r\n", 400, {"Inference-Header-Content-Length", "0"}},
        {"Inference-Header-Content-Length: abc\r\n", 400, {"\"abc\""}},
        {"Inference-Header-Content-Length: 1x\r\n", 400, {"\"1x\""}},
        {"Inference-Header-Content-Length: +5\r\n", 400, {"\"+5\""}},
        {"Inference-Header-Content-Length: 18446744073709551617\r\n",
         400,
         {"18446744073709551617"}},
        {"Inference-Header-Content-Length: 99999999999999999999999\r\n", 400, {"9999999"}},
        {"Inference-Header-Content-Length: 100000\r\n", 400, {"ends inside its header"}},
        {"Inference-Header-Content-Length: 9223372036854775808\r\n",
         400,
         {"ends inside its header"}},
        {"Inference-Header-Content-Length: 5\r\n", 400, {"ends"}},
        {"Content-Type: text/plain\r\n", 415, {"text/plain", "application/octet-stream"}},
        {"Content-Type: application/vnd.safetensors\r\n", 415, {"application/octet-stream"}},
        {"Content-Type: multipart/form-data; boundary=a\r\n", 415, {"multipart/form-data"}},
        {"Content-Encoding: br\r\n", 415, {"gzip, zstd, deflate"}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct client_response response =
            ask_shared("POST", INFER, rows[i].headers, good, sizeof good - 1);
        expect_refusal(&response, rows[i].status, rows[i].headers, rows[i].says, 2);
    }
}

/* A body that is cut at any byte is never answered with a 200. */
Test(inference, cuts_at_every_byte) {
    static const char *const nothing[1] = {NULL};
    static const struct binary_call call = {
        "/attention", "", "[\"lse\"]", {{"X", {2, 3}, 0}, {"mask", {2, 2}, 1}}};
    size_t header, size;
    char *body = binary_inference(&call, "FP32", ~0u, "", &header, &size);
    for (size_t cut = 0; cut < size; cut++) {
        char about[64];
        sprintf(about, "%zu of %zu bytes", cut, size);
        struct client_response response = ask_model(INFER, body, cut, header, "");
        expect_refusal(&response, 400, about, nothing, 1);
    }
    struct client_response response = ask_model(INFER, body, size, header, "");
    cr_expect_eq(response.status, 200);
    client_response_free(&response);
    free(body);
}

/* The JSON before tensors has limits of its own, because a thread that serves connections parses
 * it. */
Test(inference, limits_of_the_json) {
    static const char *const long_header[] = {"32768"}, *const many_values[] = {"4096 values"};
    static const char *const tensors[] = {"64 tensors"}, *const twice[] = {
                                                             "\"lse\" is asked for twice"};
    static const struct {
        const char *begin, *each, *after, *end; /* a number stands before `after` */
        size_t times;
        bool length;
        int status;
        const char *const *says;
    } rows[] = {
        {"{\"id\":\"", "0123456789", "", "\"}", 6600, true, 413, long_header},
        {"{\"id\":[\"\"", ",\"", "\"", "]}", 4100, true, 413, many_values},
        {"{\"inputs\":[" ONE("Q"),
         ",{\"datatype\":\"FP32\",\"shape\":[1,1],\"data\":[1],\"name\":\"", "\"}", "]}", 64, false,
         422, tensors},
        {"{" QKV ",\"outputs\":[{\"name\":\"lse\"}",
         ",{\"name\":\"lse\",\"parameters\":{\"a\":", "}}", "]}", 1, false, 422, twice},
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
            ask_model(INFER, body, size, rows[i].length ? size : 0, "");
        expect_refusal(&response, rows[i].status, rows[i].end, rows[i].says, 1);
        free(body);
    }
}

/* --------------------------------------------------------------------------------------- limits */

static void start_limited(const char *const options[]) {
    daemon_start(options);
    daemon_connect();
}

/* Opens a connection, and sends a head that declares 400 MB and the first 1000 bytes of the
 * tensor. */
static void declare(struct client_connection *connection) {
    static const char zeros[1000];
    static const char json[] = INPUTS(INPUT("X", "FP32", "[10000,10000]", BYTES("400000000")));
    char head[512];
    cr_assert(client_open(connection, the_daemon.port));
    sprintf(head,
            "POST /v2/models/softmax/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n"
            "Inference-Header-Content-Length: %zu\r\n\r\n%s",
            sizeof json - 1 + 400000000, sizeof json - 1, json);
    cr_assert(client_send(connection, head, strlen(head)));
    cr_assert(client_send(connection, zeros, sizeof zeros));
}

/* Twenty clients declare 8 GB together and send 20 KB. Other requests must be answered. */
Test(inference_limits, declared_sizes_that_never_arrive) {
    enum {
        CLIENTS = 20
    };
    struct client_connection clients[CLIENTS];
    size_t header, size;
    start_limited((const char *const[]){"--max-memory", "1GiB", "--total-memory", "16MiB",
                                        "--max-body", "1GiB", NULL});
    for (size_t i = 0; i < CLIENTS; i++) {
        declare(&clients[i]);
    }
    char *body =
        binary_inference(&binary_calls[binary_call_count - 1], "FP64", ~0u, "", &header, &size);
    daemon_await_metric("attentiond_requests_in_flight", CLIENTS + 1);
    for (size_t i = 0; i < 20; i++) {
        struct client_response response = ask_model(INFER, body, size, header, "");
        cr_expect_eq(response.status, 200, "%.300s", response.body);
        client_response_free(&response);
    }
    const double held = daemon_metric("attentiond_memory_bytes");
    cr_expect(held > 0 && held < 10e6, "%g bytes", held);
    for (size_t i = 0; i < CLIENTS; i++) {
        client_close(&clients[i]); /* the clients leave in the middle of a tensor */
    }
    daemon_await_metric("attentiond_memory_bytes", 0);
    free(body);
}

/* Each limit refuses a question that goes over it, and the connection serves the next one. */
Test(inference_limits, memory_body_work_and_time) {
    static const char *const memory[] = {"--max-memory"}, *const length[] = {"--max-body"};
    static const char *const work[] = {"--max-work"};
    static const struct {
        const char *option, *value;
        size_t rows;
        const char *const *says;
    } limits[] = {{"--max-memory", "64KiB", 200, memory},
                  {"--max-body", "4096", 200, length},
                  {"--max-work", "1000000", 300, work}};
    for (size_t i = 0; i < COUNT(limits); i++) {
        start_limited((const char *const[]){limits[i].option, limits[i].value, NULL});
        const struct binary_call call = {"/attention", "", NULL, {{"X", {limits[i].rows, 8}, 0}}};
        size_t header, size;
        char *body = binary_inference(&call, "FP32", ~0u, "", &header, &size);
        struct client_response response;
        if (i == 1) { /* the head says already that the body is too long */
            char head[64];
            sprintf(head, "Inference-Header-Content-Length: %zu\r\n", header);
            cr_assert(client_request(the_daemon.port, "POST", INFER, head, body, size, &response));
        } else {
            response = ask_model(INFER, body, size, header, "");
        }
        expect_refusal(&response, 413, limits[i].option, limits[i].says, 1);
        free(body);
        if (i + 1 < COUNT(limits)) {
            daemon_end();
        }
    }
}

Test(inference_limits, time) {
    static const char *const late[] = {"--compute-timeout"}, *const own[] = {"\"timeout\""};
    const struct binary_call call = {"/attention", "", NULL, {{"X", {1500, 64}, 0}}};
    const struct binary_call patient = {
        "/attention", "\"timeout\":1", NULL, {{"X", {1500, 64}, 0}}};
    size_t header, size;
    start_limited((const char *const[]){"--compute-timeout", "0.001", NULL});
    char *body = binary_inference(&call, "FP32", ~0u, "", &header, &size);
    struct client_response response = ask_model(INFER, body, size, header, "");
    expect_header(&response, "late", "Retry-After", "1");
    expect_refusal(&response, 503, "late", late, 1);
    free(body);
    daemon_end();
    start_limited(NULL);
    body = binary_inference(&patient, "FP32", ~0u, "", &header, &size); /* one microsecond */
    response = ask_model(INFER, body, size, header, "");
    expect_refusal(&response, 503, "own", own, 1);
    free(body);
}
