/*
 * requests.c - the table of the requests, and the bodies that are made from it.
 */
#include "memory/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/count.h"
#include "support/drawn.h"
#include "support/json.h"

enum {
    DRAWN = 30 /* calls, so that each key is in one of them */
};

#define SEED "\"random\":{\"generator\":\"torch\",\"seed\":1}"
#define RAND "{\"random\":\"rand\",\"shape\":"

static const struct {
    const char *name, *path;
    int status;
    const char *body;
} posts[] = {
    {"draws for the workers", "/softmax", 200, "{" SEED ",\"X\":" RAND "[100,100]},\"digits\":3}"},
    {"words", "/embeddings", 200, "{\"text\":\"\\u03a3\\u03b1\\u03a3, a b; \\u0130 a\"}"},
    {"words, an embedding for the workers", "/embeddings", 200,
     "{" SEED ",\"text\":\"a b c d\",\"embedding_dim\":20000}"},
    {"words that are too many for the rows", "/embeddings", 422,
     "{\"tokens\":[\"a\",\"b\"],\"embedding\":#1x3}"},
    {"a bad draw", "/softmax", 422, "{" SEED ",\"X\":" RAND "[2,-1]}}"},
    {"no queries", "/attention", 200,
     "{\"Q\":[],\"K\":#3x4,\"V\":#3x4,\"mask\":[],\"expected\":{\"output\":[]}}"},
    {"bad JSON", "/attention", 400, "{\"X\":[[1,2],[3,]]}"},
    {"a wrong shape", "/attention", 422, "{\"Q\":#3x4,\"K\":#3x5,\"V\":#3x4}"},
    {"an unknown key", "/attention", 422, "{\"Q\":#3x4,\"K\":#3x4,\"W\":#3x4}"},
    {"no path", "/attentions", 404, "{}"},
    {"a large body", "/attention", 200, "{\"Q\":#1x4,\"K\":#17000x4,\"V\":#17000x1}"},
    {"a large body and a long answer", "/softmax", 200, "{\"X\":#18000x4}"},
    {"tiles for the workers", "/self-attention", 200,
     "{\"X\":#700x8,\"W_Q\":#8x8,\"W_K\":#8x8,\"W_V\":#8x8,\"return\":[\"output\",\"lse\"]}"},
    {"stages for the workers, a long answer", "/attention", 200,
     "{\"X\":#200x16,\"return\":[\"weights\",\"scores\"]}"},
    {"a result that is not the expected one", "/attention", 409,
     "{\"X\":#3x4,\"expected\":{\"output\":#3x4},\"fail_on_difference\":true}"},
    {"gradients of a small call", "/attention", 200,
     "{\"X\":#3x4,\"bias\":#3x3,\"grad_output\":#3x4,\"return\":[\"grad_X\",\"grad_bias\"]}"},
    {"gradients for the workers", "/self-attention", 200,
     "{\"X\":#200x8,\"W_Q\":#8x8,\"W_K\":#8x8,\"W_V\":#8x8,\"grad_output\":#200x8,"
     "\"return\":[\"grad_W_Q\",\"grad_X\"]}"},
    {"an overflow that a worker finds", "/attention", 422,
     "{\"Q\":#400x16,\"K\":#400x16,\"V\":#400x16,\"scale\":1e38}"},
};

/* These answers need no worker. */
static const struct request shorts[] = {
    {"health", "GET", "/health/ready", 200, .body = ""},
    {"version", "GET", "/version", 200, .body = ""},
    {"metrics", "GET", "/metrics", 200, .varies = true, .body = ""},
    {"a model", "GET", "/v2/models/attention", 200, .body = ""},
    {"statistics of the models", "GET", "/v2/models/stats", 200, .varies = true, .body = ""},
    {"the index", "POST", "/v2/repository/index", 200, .body = ""},
    {"no model", "POST", "/v2/models/none/infer", 404, .body = "{}", .size = 2},
    {"no such method here", "PUT", "/softmax", 405, .body = ""},
    {"openapi.yaml", "GET", "/openapi.yaml", 200, .body = ""},
    {"no method", "BREW", "/", 501, .only_server = true, .body = ""},
    {"no key", "POST", "/softmax", 401, .only_server = true, .body = "{}", .size = 2,
     .headers = ""},
    {"another key", "GET", "/version", 401, .only_server = true, .body = "",
     .headers = "Authorization: Bearer another\r\n"},
    {"a browser asks first", "OPTIONS", "/attention", 204, .only_server = true, .body = "",
     .headers = "Access-Control-Request-Method: POST\r\n"},
    {"a br body", "POST", "/softmax", 415, .only_server = true, .body = "{}", .size = 2,
     .headers = REQUEST_KEY "Content-Encoding: br\r\n"},
};

#define SAFETENSORS "application/vnd.safetensors"

/* Requests in JSON whose answers are safetensors. */
static const struct {
    const char *name, *path, *body;
} accepts[] = {
    {"heads in safetensors", "/multi-head-attention",
     "{\"X\":#5x6,\"heads\":[{\"W_Q\":#6x2,\"W_K\":#6x2,\"W_V\":#6x3},"
     "{\"W_Q\":#6x3,\"W_K\":#6x3,\"W_V\":#6x4}],\"return\":[\"output\",\"weights\",\"Q\"]}"},
    {"words in safetensors", "/embeddings", "{\"text\":\"b a\",\"embedding\":#2x3}"},
};

static const struct binary_call softmax = {
    "/softmax", "\"axis\":0", NULL, {{"X", {3, 4}, 0, NULL}}};
static const struct binary_call longer = {
    "/attention", "\"binary_data_output\":true", NULL, {{"X", {130, 8}, 0, NULL}}};
static const struct binary_call file = {"/attention",
                                        "\"top_k\":2",
                                        "[\"weights\",\"top_k\",\"statistics\"]",
                                        {{"X", {130, 8}, 0, NULL}}};
static const struct binary_call indices = {
    "/attention", "\"top_k\":2", NULL, {{"X", {3, 4}, 0, NULL}}};
static const struct binary_call wrong = {
    "/attention", "\"casual\":true", NULL, {{"X", {3, 4}, 0, NULL}}};

static const struct binary_call many_heads = {"/multi-head-attention",
                                              "\"heads\":4,\"kv_heads\":2",
                                              NULL,
                                              {{"X", {2, 5, 8}, 0, NULL},
                                               {"W_Q", {8, 8}, 0, NULL},
                                               {"W_K", {8, 4}, 0, NULL},
                                               {"W_V", {8, 4}, 0, NULL}}};

/* Requests with binary tensors. */
static const struct {
    const char *name;
    const struct binary_call *call;
    const char *type;
    bool inference;  /* the Open Inference Protocol; else safetensors */
    unsigned binary; /* the inputs that are binary */
    int status;
    size_t lacks;        /* bytes that the body lacks */
    const char *outputs; /* NULL: all results */
} tensors[] = {
    {"inputs in JSON", &binary_rich, "FP64", true, 0, 200, 0, NULL},
    {"some inputs are binary", &many_heads, "FP32", true, 0x55, 200, 0, NULL},
    {"all is binary", &longer, "FP64", true, ~0u, 200, 0, NULL},
    {"all is binary and short", &softmax, "BF16", true, ~0u, 200, 0, NULL},
    {"rounded while it is sent", &longer, "FP16", true, ~0u, 200, 0, NULL},
    {"a body that lacks a byte", &softmax, "FP32", true, ~0u, 400, 1, NULL},
    {"an unknown parameter", &wrong, "FP32", true, ~0u, 422, 0, NULL},
    {"parts of a result", &indices, "FP32", true, 0, 200, 0,
     "{\"name\":\"top_k.indices\"},{\"name\":\"lse\"}"},
    {"an unknown output", &indices, "FP32", true, 0, 422, 0, "{\"name\":\"top\"}"},
    {"a file", &binary_rich, "F32", false, 0, 200, 0, NULL},
    {"a file, and a long answer", &file, "F64", false, 0, 200, 0, NULL},
    {"a file of F16, and a long answer", &file, "F16", false, 0, 200, 0, NULL},
    {"a file that lacks a byte", &softmax, "F32", false, 0, 400, 1, NULL},
    {"a file with an unknown option", &wrong, "F32", false, 0, 422, 0, NULL},
};

bool request_is_inference(const struct request *request) {
    return strncmp(request->path, "/v2", 3) == 0;
}

/* Visits the requests with binary tensors, in the requests or in the answers. */
static void visit_tensors(void (*visit)(const struct request *request)) {
    for (size_t i = 0; i < COUNT(accepts); i++) {
        struct request q = {.name = accepts[i].name,
                            .method = "POST",
                            .path = accepts[i].path,
                            .accept = SAFETENSORS,
                            .status = 200};
        q.body = json_body(accepts[i].body, &q.size);
        visit(&q);
        free(q.body);
    }
    for (size_t i = 0; i < COUNT(tensors); i++) {
        const struct binary_call *call = tensors[i].call;
        char path[64];
        struct request q = {.name = tensors[i].name,
                            .method = "POST",
                            .path = call->path,
                            .media_type = SAFETENSORS,
                            .status = tensors[i].status};
        if (tensors[i].inference) {
            snprintf(path, sizeof path, "/v2/models%s/infer", call->path);
            q.path = path;
            q.media_type = "application/octet-stream";
            const char *outputs = tensors[i].outputs != NULL ? tensors[i].outputs : "";
            char more[128];
            snprintf(more, sizeof more, "\"id\":\"1\",\"outputs\":[%s],", outputs);
            q.body = binary_inference(call, tensors[i].type, tensors[i].binary, more, &q.header,
                                      &q.size);
        } else {
            q.body = binary_safetensors(call, tensors[i].type, &q.size);
        }
        q.size -= tensors[i].lacks;
        visit(&q);
        free(q.body);
    }
}

void requests_visit(void (*visit)(const struct request *request)) {
    for (size_t i = 0; i < COUNT(shorts); i++) {
        visit(&shorts[i]);
    }
    for (size_t i = 0; i < COUNT(posts); i++) {
        struct request q = {.name = posts[i].name,
                            .method = "POST",
                            .path = posts[i].path,
                            .status = posts[i].status};
        q.body = json_body(posts[i].body, &q.size);
        visit(&q);
        free(q.body);
    }
    visit_tensors(visit);
    for (size_t i = 0; i < DRAWN; i++) {
        struct rng rng = {i + 1};
        struct drawn_call drawn;
        char name[32];
        struct request q = {.name = name, .method = "POST", .status = 200};
        q.path = drawn_paths[i % 6]; /* there is no layer */
        snprintf(name, sizeof name, "drawn call %zu", i);
        draw_call(&rng, q.path, true, &drawn);
        q.body = binary_json(&drawn.call, drawn_dtype(&drawn, i % 2 != 0), &q.size);
        visit(&q);
        free(q.body);
    }
}

struct request request_of_notebook(void) {
    struct request q = {.name = "notebook", .method = "POST", .path = "/attention", .status = 200};
    q.body = json_read_file(TESTS_DIR "/notebooks/000-attention.request.json", &q.size);
    return q;
}

bool request_has_codings(const struct request *request) {
    static const char *const names[] = {"notebook", "openapi.yaml", "bad JSON",
                                        "a large body and a long answer"};
    for (size_t i = 0; i < COUNT(names); i++) {
        if (strcmp(request->name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}
