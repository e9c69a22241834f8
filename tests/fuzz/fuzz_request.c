/*
 * fuzz_request.c - fuzzes a request from its body to its answer in one process: reader, handler,
 * plan, tasks and writer. The first byte of an input chooses the path, the limits, how the body is
 * cut and whether the client stays. The rest is the body. Whatever the body is, the answer must
 * have a status of the API and be valid JSON, and the request must leave no memory behind.
 */
#include "fuzz/ask.h"
#include "fuzz/fuzz.h"

/* The bits of the first byte. */
enum {
    PATH = 3 << 0,   /* index in paths[] */
    STEP = 3 << 2,   /* the step of fuzz_ask() */
    TIGHT = 1 << 4,  /* the limits are too small for the notebooks */
    LEAVES = 1 << 5, /* the client leaves in the middle of the body */
    WORDS = 1 << 6,  /* the path is /embeddings instead */
    OTHER = 3 << 6   /* both bits: the request is others[bits 0 to 3] and computes nothing */
};

/* /multi-head-attention is the same as /self-attention. */
static const char *const paths[] = {"/attention", "/self-attention", "/linear-attention",
                                    "/softmax"};

#define JSON "application/json"
#define FORM "application/x-www-form-urlencoded"
/* GET /metrics is not here, because it asks the HTTP server and the workers. */
static const struct http_request others[16] = {
    {.method = "GET", .path = "/health/live", .media_type = "", .id = "fuzz"},
    {.method = "GET", .path = "/health/ready", .media_type = "", .id = "fuzz"},
    {.method = "GET", .path = "/health/ready", .media_type = "", .id = "fuzz", .draining = true},
    {.method = "POST", .path = "/metrics", .media_type = JSON, .id = "fuzz"},
    {.method = "GET", .path = "/version", .media_type = "", .id = "fuzz"},
    {.method = "GET", .path = "/openapi.yaml", .media_type = "", .id = "fuzz"},
    {.method = "GET", .path = "/version", .media_type = "", .id = "fuzz", .head = true},
    {.method = "GET", .path = "/attention", .media_type = "", .id = "fuzz"},
    {.method = "PUT", .path = "/softmax", .media_type = JSON, .id = "fuzz"},
    {.method = "POST", .path = "/version", .media_type = JSON, .id = "fuzz"},
    {.method = "POST", .path = "/\xff\"\\\n", .media_type = JSON, .id = "fuzz"},
    {.method = "POST", .path = "/attention/", .media_type = JSON, .id = "fuzz"},
    {.method = "POST", .path = "/attention", .media_type = "text/\xff\"\\", .id = "fuzz"},
    {.method = "POST", .path = "/attention", .media_type = "", .id = "fuzz"},
    {.method = "POST", .path = "/softmax", .media_type = FORM, .id = "fuzz"},
    {.method = "POST", .path = "/self-attention", .media_type = JSON, .id = "\"\\~"},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct app_answer answer;
    if (size == 0) {
        return 0;
    }
    const unsigned choice = data[0];
    if ((choice & OTHER) == OTHER) {
        fuzz_ask(false, &others[choice & 15], data + 1, size - 1, 0, false, &answer);
        free(answer.body);
        return 0;
    }
    const struct http_request request = {.method = "POST",
                                         .path = (choice & WORDS) != 0 ? "/embeddings"
                                                                       : paths[choice & PATH],
                                         .media_type = JSON,
                                         .id = "fuzz"};
    fuzz_ask((choice & TIGHT) != 0, &request, data + 1, size - 1, (choice & STEP) >> 2,
             (choice & LEAVES) != 0, &answer);
    free(answer.body);
    return 0;
}
