/*
 * test_layers.c - stored layers over a socket: their answers, their list, what is refused, and
 * files that change. The files have the tensors of a call of /multi-head-attention, so the answer
 * of that endpoint is the expected one. tests/models has the layers of real models.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "support/binary.h"
#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/json.h"
#include "support/layer_folder.h"

/* A test writes its files, and then starts the daemon. */
TestSuite(layers, .init = layer_folder_begin, .fini = layer_folder_stop, .timeout = 1200);

static void serve(void) {
    layer_folder_serve((const char *const[]){NULL});
}

/* The weights of a call of /multi-head-attention, and the same call without them. */
static const struct binary_call weights = {"/multi-head-attention",
                                           "\"heads\":4,\"kv_heads\":2",
                                           NULL,
                                           {{"X", {2, 5, 8}, 0, NULL},
                                            {"W_Q", {8, 8}, 0, NULL},
                                            {"W_K", {8, 4}, 0, NULL},
                                            {"W_V", {8, 4}, 0, NULL},
                                            {"W_O", {8, 6}, 0, NULL},
                                            {"b_Q", {8}, 0, NULL},
                                            {"b_O", {6}, 0, NULL},
                                            {"mask", {5, 5}, 1, NULL},
                                            {"W_G", {8, 4}, 0, NULL},
                                            {"b_G", {4}, 0, NULL},
                                            {"sink", {4}, 0, NULL},
                                            {"norm_V", {2}, 0, NULL}}};
static const struct binary_call small_call = {
    "/layers/small.attention/attention",
    "",
    NULL,
    {{"X", {2, 5, 8}, 0, NULL}, {"mask", {5, 5}, 1, NULL}}};

static void put_weights(const char *name, const struct binary_call *call, const char *type) {
    size_t size;
    char *file = binary_safetensors(call, type, &size);
    layer_file_put(name, file, size);
    free(file);
}

static void serve_small(void) {
    put_weights("small.safetensors", &weights, "F32");
    serve();
}

static void wait_briefly(void) {
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

/* Waits until GET has this status. */
static void await_status(const char *path, int status) {
    for (;;) {
        struct client_response response = daemon_ask("GET", path, "");
        const int got = response.status;
        client_response_free(&response);
        if (got == status) {
            return;
        }
        wait_briefly();
    }
}

static bool are_close(const struct cJSON *a, const struct cJSON *b, double tolerance) {
    struct json_difference difference;
    return json_near(a, b, tolerance, tolerance, &difference);
}

/* Posts JSON on a connection of its own, so that the exchange is recorded. Returns owned. */
static struct cJSON *ask_body(const char *path, const char *body) {
    struct client_response response;
    cr_assert(client_request(the_daemon.port, "POST", path, NULL, body, strlen(body), &response));
    cr_assert_eq(response.status, 200, "%s: %s", path, response.body);
    struct cJSON *answer = json_parse(response.body, response.size);
    client_response_free(&response);
    return answer;
}

static struct cJSON *ask_call(const struct binary_call *call, const char *dtype) {
    size_t size;
    char *body = binary_json(call, dtype, &size);
    struct cJSON *answer = ask_body(call->path, body);
    free(body);
    return answer;
}

Test(layers, give_the_answer_of_their_weights) {
    static const struct {
        const char *type, *dtype;
        double tolerance;
    } types[] = {{"F32", "float32", 0}, /* the same bits */
                 {"F32", "float64", 1e-13},
                 {"F64", "float64", 0},
                 {"F16", "float32", 1e-6},
                 {"BF16", "float64", 1e-13}};
    char path[64];
    for (size_t i = 0; i < COUNT(types); i++) {
        snprintf(path, sizeof path, "w%zu.safetensors", i);
        put_weights(path, &weights, types[i].type);
    }
    serve();
    for (size_t i = 0; i < COUNT(types); i++) {
        struct binary_call call = small_call;
        call.path = path;
        snprintf(path, sizeof path, "/layers/w%zu.attention/attention", i);
        struct cJSON *expected = ask_call(&weights, types[i].dtype);
        for (int turn = 0; turn < 2; turn++) { /* the second time the weights are packed already */
            struct cJSON *answer = ask_call(&call, types[i].dtype);
            cr_expect(are_close(answer, expected, types[i].tolerance), "%s %s", types[i].type,
                      types[i].dtype);
            json_free(answer);
        }
        json_free(expected);
    }
}

Test(layers, take_the_options_of_a_request) {
    static const char gradients[] = "\"random\":{\"generator\":\"numpy\",\"seed\":1},"
                                    "\"grad_output\":{\"random\":\"randn\",\"shape\":[2,5,6]},"
                                    "\"return\":[\"grad_X\",\"grad_Q\",\"grad_K\",\"grad_V\"]";
    static const char *const options[] = {"\"causal\":true",
                                          "\"window\":[1,0]",
                                          "\"return\":[\"Q\",\"K\",\"scores\",\"lse\"]",
                                          "\"rotary\":{\"base\":10}",
                                          "\"scale\":0.5,\"softcap\":2",
                                          gradients};
    serve_small();
    for (size_t i = 0; i < COUNT(options); i++) {
        char a[2048], b[2048];
        struct binary_call call = binary_with(&small_call, options[i], a);
        struct binary_call same = binary_with(&weights, options[i], b);
        struct cJSON *answer = ask_call(&call, "float64"), *expected = ask_call(&same, "float64");
        cr_expect(are_close(answer, expected, 1e-13), "%s", options[i]);
        json_free(answer);
        json_free(expected);
    }
}

/* The rotary embedding of a layer holds until the request has another one, which replaces all of
 * it: the scaling does not stay. */
Test(layers, let_a_request_replace_their_rotary_embedding) {
    static const char config[] =
        "\"config\":\"{\\\"model_type\\\":\\\"llama\\\",\\\"num_attention_heads\\\":1,"
        "\\\"hidden_size\\\":2,\\\"rope_theta\\\":100,\\\"rope_scaling\\\":"
        "{\\\"rope_type\\\":\\\"linear\\\",\\\"factor\\\":4}}\"";
    static const float numbers[16] = {1, 2, 3, 4, 2, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1};
    static const char x[] = "\"X\":[[1,0],[0,1],[1,-1]]";
    static const struct {
        const char *given, *same; /* the option of the layer's request, and what it stands for */
    } rows[] = {
        {"", ",\"rotary\":{\"base\":100,\"scaling\":{\"rope_type\":\"linear\",\"factor\":4}}"},
        {",\"rotary\":{\"base\":10}", ",\"rotary\":{\"base\":10}"},
        {",\"rotary\":{}", ",\"rotary\":true"},
        {",\"rotary\":false", ""},
    };
    layer_file_described(
        "turned.safetensors", "",
        "q_proj.weight 2x2, k_proj.weight 2x2, v_proj.weight 2x2, o_proj.weight 2x2", config,
        numbers);
    serve();
    for (size_t i = 0; i < COUNT(rows); i++) {
        char body[512];
        snprintf(body, sizeof body, "{%s%s}", x, rows[i].given);
        struct cJSON *answer = ask_body("/layers/turned.attention/attention", body);
        snprintf(
            body, sizeof body,
            "{%s,\"heads\":1,\"weight_layout\":\"out_in\",\"causal\":true,\"W_Q\":[[1,2],[3,4]],"
            "\"W_K\":[[2,1],[0,1]],\"W_V\":[[1,0],[0,1]],\"W_O\":[[1,0],[0,1]]%s}",
            x, rows[i].same);
        struct cJSON *expected = ask_body("/multi-head-attention", body);
        cr_expect(are_close(answer, expected, 1e-6), "row %zu", i);
        json_free(answer);
        json_free(expected);
    }
}

Test(layers, answer_in_safetensors) {
    size_t size;
    struct binary_answer answer;
    serve_small();
    char *body = binary_safetensors(&small_call, "F32", &size);
    struct client_response response = daemon_ask_shared(
        "POST", small_call.path, "Content-Type: application/vnd.safetensors\r\n", body, size);
    expect_file(&response, small_call.path, &answer);
    cr_expect_eq(answer.count, 2);
    binary_free(&answer);
    client_response_free(&response);
    free(body);
}

Test(layers, are_models_of_the_inference_protocol) {
    char message[256];
    struct binary_call call = small_call, weights_of_other = weights;
    call.path = "/small.attention";
    weights_of_other.inputs[1].shape[1] = 6; /* no multiple of the heads */
    put_weights("wrong.safetensors", &weights_of_other, "F32");
    serve_small();
    struct cJSON *expected = ask_call(&weights, "float32");
    for (unsigned binary = 0; binary < 4; binary += 3) {
        size_t header, size;
        struct binary_answer answer;
        char *body = binary_inference(&call, "FP32", binary, "\"model_name\":\"small.attention\",",
                                      &header, &size);
        struct client_response response = daemon_infer("/v2/models/small.attention/infer", "", body,
                                                       size, binary == 0 ? 0 : header);
        expect_outputs(&response, "small", &answer);
        cr_expect(binary_equal_json(&answer, expected, message), "%s", message);
        cr_expect_str_eq(json_text(json_get(answer.head, "model_name")), "small.attention");
        binary_free(&answer);
        client_response_free(&response);
        free(body);
    }
    json_free(expected);
    expect_answer("GET", "/v2/models", NULL, "", 200, "\"small.attention\"");
    expect_answer("GET", "/v2/models/small.attention", NULL, "", 200,
                  "{\"name\":\"small.attention\"");
    expect_answer("GET", "/v2/models/small.attention/config", NULL, "", 200, "\"name\":\"X\"");
    expect_answer("GET", "/v2/models/small.attention/versions/1/ready", NULL, "", 200,
                  "\"ready\":true");
    expect_answer("GET", "/v2/models/small.attention/stats", NULL, "", 404, "/metrics");
    expect_answer("GET", "/v2/models/wrong.attention", NULL, "", 404, "GET /layers");
    expect_answer("POST", "/v2/models/wrong.attention/infer", NULL, "", 404, "GET /layers");
    expect_answer("POST", "/v2/repository/index", NULL, "", 200,
                  "{\"name\":\"small.attention\",\"version\":\"1\",\"state\":\"READY\"");
    expect_answer("POST", "/v2/repository/index", NULL, "", 200,
                  "{\"name\":\"wrong.attention\",\"version\":\"1\",\"state\":\"UNAVAILABLE\"");
}

static double packed_bytes(void) {
    return daemon_metric("attentiond_layers_packed_bytes");
}

/* Waits until the packed weights that were dropped are freed. */
static void await_packed(double bytes) {
    while (packed_bytes() != bytes) {
        wait_briefly();
    }
}

Test(layers, are_loaded_and_unloaded) {
    serve_small();
    cr_expect_eq(packed_bytes(), 0);
    expect_answer("POST", "/v2/repository/models/small.attention/load", NULL, "", 200,
                  "\"loaded\":true");
    const double loaded = packed_bytes();
    cr_expect_gt(loaded, 0);
    expect_answer("POST", "/v2/repository/models/small.attention/load", NULL, "", 200,
                  "\"loaded\":true");
    json_free(ask_call(&small_call, "float32"));
    cr_expect_eq(packed_bytes(), loaded);
    json_free(ask_call(&small_call, "float64"));
    cr_expect_gt(packed_bytes(), loaded);
    expect_answer("POST", "/v2/repository/models/small.attention/unload", NULL, "", 200,
                  "\"loaded\":false");
    await_packed(0);
    struct cJSON *expected = ask_call(&weights, "float32"),
                 *answer = ask_call(&small_call, "float32");
    cr_expect(are_close(answer, expected, 1e-6));
    json_free(expected);
    json_free(answer);
    expect_answer("POST", "/v2/repository/models/none.attention/load", NULL, "", 404,
                  "GET /layers");
    expect_answer("POST", "/v2/repository/models/none.attention/unload", NULL, "", 404,
                  "GET /layers");
    expect_answer("POST", "/v2/repository/models/attention/unload", NULL, "", 501, "always loaded");
}

Test(layers, answer_for_all_layers_of_a_model) {
    static const char x[] = "[[%zu,1],[0.5,-%zu],[2,0.25]]";

    char body[2048] = "{\"return\":[\"weights\",\"lse\"],\"causal\":true,\"X\":[", path[64];
    const size_t count = 12; /* more than ten: layer 10 comes after layer 9 */
    layer_file_model("many.safetensors", "", count, 2, 2, 1);
    serve();
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(body);
        snprintf(body + size, sizeof body - size, i > 0 ? "," : "");
        size = strlen(body);
        snprintf(body + size, sizeof body - size, x, i, i);
    }
    strcat(body, "]}");
    struct cJSON *answer = ask_body("/layers/many.h/attention", body),
                 *whole = ask_body("/layers/many/attention", body);
    const struct cJSON *layer = json_first(json_get(answer, "layers"));
    cr_assert_eq(json_size(json_get(answer, "layers")), count);
    cr_expect(are_close(whole, answer, 0));
    for (size_t i = 0; i < count; i++) {
        int size =
            snprintf(body, sizeof body, "{\"return\":[\"weights\",\"lse\"],\"causal\":true,\"X\":");
        size += snprintf(body + size, sizeof body - (size_t)size, x, i, i);
        snprintf(body + size, sizeof body - (size_t)size, "}");
        snprintf(path, sizeof path, "/layers/many.h.%zu/attention", i);
        struct cJSON *one = ask_body(path, body);
        cr_expect(are_close(json_get(layer, "weights"), json_get(one, "weights"), 0), "%zu", i);
        cr_expect(are_close(json_get(layer, "lse"), json_get(one, "lse"), 0), "%zu", i);
        snprintf(path, sizeof path, "many.h.%zu", i);
        cr_expect_str_eq(json_text(json_get(layer, "name")), path);
        json_free(one);
        layer = json_next(layer);
    }
    json_free(answer);
    json_free(whole);
}

/* A path of a model leaves out its layers that are refused, as those of a hybrid model are. */
Test(layers, answer_for_the_served_layers_of_a_model) {
    static const struct binary_call mixed = {"",
                                             "\"heads\":1",
                                             NULL,
                                             {{"a.0.W_Q", {2, 2}, 0, NULL},
                                              {"a.0.W_K", {2, 4}, 0, NULL},
                                              {"a.0.W_V", {2, 2}, 0, NULL},
                                              {"a.1.W_Q", {2, 2}, 0, NULL},
                                              {"a.1.W_K", {2, 2}, 0, NULL},
                                              {"a.1.W_V", {2, 2}, 0, NULL},
                                              {"b.0.W_Q", {2, 2}, 0, NULL},
                                              {"b.0.W_K", {2, 4}, 0, NULL},
                                              {"b.0.W_V", {2, 2}, 0, NULL}}};
    put_weights("mixed.safetensors", &mixed, "F32");
    layer_file_text("page.safetensors", "<html>____");
    serve();
    struct cJSON *all = ask_body("/layers/mixed/attention", "{\"X\":[[[1,2],[3,5]]]}"),
                 *one = ask_body("/layers/mixed.a.1/attention", "{\"X\":[[1,2],[3,5]]}");
    cr_expect_eq(json_size(json_get(all, "layers")), 1);
    cr_expect(are_close(json_get(json_first(json_get(all, "layers")), "output"),
                        json_get(one, "output"), 0));
    expect_answer("POST", "/layers/mixed/attention", NULL, "{\"X\":[[[1,2]],[[3,5]]]}", 422,
                  "has 2 layers, but this model has 1 that are served");
    expect_answer("POST", "/layers/mixed.b/attention", NULL, "{\"X\":[[[1,2]]]}", 422,
                  "the layer mixed.b.0 is not served: the keys have 4 columns");
    expect_answer("POST", "/layers/page/attention", NULL, "{\"X\":[[1,2]]}", 404,
                  "there is no layer page: page.safetensors is no whole safetensors file");
    expect_answer("GET", "/layers/mixed", NULL, "", 404, "there is no layer mixed; GET /layers");
    json_free(all);
    json_free(one);
}

/* Several tasks plan this number of layers. */
Test(layers, answer_for_more_layers_than_a_task_plans) {
    const size_t count = 600;
    char *body = malloc(32 * count), path[64];
    size_t size = (size_t)sprintf(body, "{\"return\":[\"output\"],\"X\":[");
    cr_assert_not_null(body);
    for (size_t i = 0; i < count; i++) {
        size += (size_t)sprintf(body + size, "%s[[%zu,1],[0,2]]", i > 0 ? "," : "", i % 7);
    }
    strcpy(body + size, "]}");
    layer_file_model("many.safetensors", "", count, 2, 2, 1);
    serve();
    const double before = daemon_metric("attentiond_longest_task_seconds_count");
    struct cJSON *answer = ask_body("/layers/many/attention", body);
    const struct cJSON *layer = json_first(json_get(answer, "layers"));
    cr_expect_eq(daemon_metric("attentiond_longest_task_seconds_count"), before + 2,
                 "planning is work of its own, which no I/O thread does");
    cr_assert_eq(json_size(json_get(answer, "layers")), count);
    for (size_t i = 0; i < count; i++, layer = json_next(layer)) {
        snprintf(path, sizeof path, "many.h.%zu", i);
        cr_expect_str_eq(json_text(json_get(layer, "name")), path);
        if (i % 85 == 0 || i % 256 >= 254 || i % 256 < 2) {
            char one_body[96];
            snprintf(path, sizeof path, "/layers/many.h.%zu/attention", i);
            snprintf(one_body, sizeof one_body, "{\"return\":[\"output\"],\"X\":[[%zu,1],[0,2]]}",
                     i % 7);
            struct cJSON *one = ask_body(path, one_body);
            cr_expect(are_close(json_get(layer, "output"), json_get(one, "output"), 0), "%zu", i);
            json_free(one);
        }
    }
    json_free(answer);
    strcpy(body + size - 14, "]}"); /* without the last one */
    expect_answer("POST", "/layers/many/attention", "Content-Type: application/json\r\n", body, 422,
                  "has 599 layers, but this model has 600");
    free(body);
}

/* Each layer has gradients of its own results. */
Test(layers, return_gradients_for_all_layers_of_a_model) {
#define X0 "[[1,2],[0.5,-1]]"
#define X1 "[[3,1],[2,0.25]]"
#define D0 "[[1,0],[2,-1]]"
#define D1 "[[0,4],[-3,1]]"
    static const char *const of_each[] = {
        "{\"return\":[\"grad_X\"],\"X\":" X0 ",\"grad_output\":" D0 ",\"grad_weights\":[" D1 "]}",
        "{\"return\":[\"grad_X\"],\"X\":" X1 ",\"grad_output\":" D1 ",\"grad_weights\":[" D0 "]}"};
    layer_file_model("two.safetensors", "", 2, 2, 2, 1);
    serve();
    struct cJSON *answer =
        ask_body("/layers/two/attention",
                 "{\"return\":[\"grad_X\"],\"X\":[" X0 "," X1 "],\"grad_output\":[" D0 "," D1
                 "],\"grad_weights\":[[" D1 "],[" D0 "]]}");
    const struct cJSON *layer = json_first(json_get(answer, "layers"));
    for (size_t i = 0; i < 2; i++, layer = json_next(layer)) {
        char path[64];
        snprintf(path, sizeof path, "/layers/two.h.%zu/attention", i);
        struct cJSON *one = ask_body(path, of_each[i]);
        cr_expect(are_close(json_get(layer, "grad_X"), json_get(one, "grad_X"), 0), "%zu", i);
        json_free(one);
    }
    json_free(answer);
}

/* A stored tensor has no gradient. A tensor that the request gives in its place has one. */
Test(layers, have_no_gradients_of_what_they_store) {
#define GRADIENTS "{\"X\":[[1,2]],\"grad_output\":[[1,1]],\"return\":[\"grad_"
    static const struct binary_call own = {"",
                                           "\"heads\":1",
                                           NULL,
                                           {{"W_Q", {2, 2}, 0, NULL},
                                            {"W_K", {2, 2}, 0, NULL},
                                            {"W_V", {2, 2}, 0, NULL},
                                            {"W_O", {2, 2}, 0, NULL},
                                            {"norm_Q", {2}, 0, NULL},
                                            {"norm_K", {2}, 0, NULL},
                                            {"norm_V", {2}, 0, NULL},
                                            {"b_V", {2}, 0, NULL}}};
    static const struct {
        const char *rest;
        int status;
        const char *text;
    } rows[] = {
        {"W_V\"]}", 422, "grad_W_V is the gradient of stored weights, which this service does not"},
        {"b_V\"]}", 422, "grad_b_V is the gradient of stored weights"},
        {"bias_K\"]}", 422, "grad_bias_K is the gradient of stored weights"},
        {"norm_Q\"]}", 422, "grad_norm_Q: the layer own.attention has a norm_Q of its own, and"},
        {"norm_K\"]}", 422, "grad_norm_K: the layer own.attention has a norm_K of its own"},
        {"norm_V\"]}", 422, "grad_norm_V: the layer own.attention has a norm_V of its own"},
        {"alibi\"]}", 422, "grad_alibi needs slopes in alibi"},
        {"norm_Q\"],\"norm_Q\":[1,1]}", 200, "grad_norm_Q"},
        {"sink\"],\"sink\":[1]}", 200, "grad_sink"},
        {"bias\"],\"bias\":[[1]]}", 200, "grad_bias"},
    };
    put_weights("own.safetensors", &own, "F32");
    layer_file_text(
        "g.config.json",
        "{\"model_type\":\"gpt_oss\",\"num_attention_heads\":1,\"num_key_value_heads\":1,"
        "\"hidden_size\":4,\"head_dim\":4,\"sliding_window\":4,\"attention_bias\":false,"
        "\"rope_parameters\":{\"rope_type\":\"default\"}}");
    layer_file_described("g.safetensors", "layers.0.self_attn.",
                         "q_proj.weight 4x4, k_proj.weight 4x4, v_proj.weight 4x4, "
                         "o_proj.weight 4x4, sinks 1",
                         "", NULL);
    serve();
    for (size_t i = 0; i < COUNT(rows); i++) {
        char body[256];
        snprintf(body, sizeof body, GRADIENTS "%s", rows[i].rest);
        expect_answer("POST", "/layers/own.attention/attention", NULL, body, rows[i].status,
                      rows[i].text);
    }
    expect_answer("POST", "/layers/g.layers.0.self_attn/attention", NULL,
                  "{\"X\":[[1,2,3,4]],\"grad_lse\":[[1]],\"return\":[\"grad_sink\"]}", 422,
                  "grad_sink: the layer g.layers.0.self_attn has a sink of its own");
}

/* A layer that is not known at all positions refuses those behind the last one that is. */
Test(layers, refuse_positions_at_which_they_are_not_known) {
    static const struct {
        const char *body;
        int status;
        const char *text;
    } rows[] = {
        {"{\"X\":[[1,2],[3,4]]}", 200, "output"},
        {"{\"X\":[[1,2]],\"positions\":[1]}", 200, "output"},
        {"{\"X\":[[1,2],[3,4],[5,6]]}", 422,
         "the layer m.layers.0.self_attn scales its queries from position 2 on, which is not "
         "computed here, and the request has rows up to position 2"},
        {"{\"X\":[[1,2],[3,4]],\"positions\":[7,0]}", 422, "rows up to position 7"},
        {"{\"X\":[[1,2]],\"context\":[[1,2],[3,4],[5,6]],\"causal\":\"bottom_right\"}", 422,
         "rows up to position 2"},
        {"{\"X\":[[1,2]],\"past_K\":[[[1,2],[3,4]]],\"past_V\":[[[1,2],[3,4]]]}", 422,
         "rows up to position 2"},
    };
    layer_file_text("m.config.json", "{\"model_type\":\"ministral3\",\"num_attention_heads\":1,"
                                     "\"num_key_value_heads\":1,\"hidden_size\":2,\"head_dim\":2,"
                                     "\"rope_parameters\":{\"original_max_position_embeddings\":2,"
                                     "\"llama_4_scaling_beta\":0.1}}");
    layer_file_described(
        "m.safetensors", "layers.0.self_attn.",
        "q_proj.weight 2x2, k_proj.weight 2x2, v_proj.weight 2x2, o_proj.weight 2x2", "", NULL);
    serve();
    for (size_t i = 0; i < COUNT(rows); i++) {
        expect_answer("POST", "/layers/m.layers.0.self_attn/attention", NULL, rows[i].body,
                      rows[i].status, rows[i].text);
    }
}

/* A request may have a scale of its own, or one for each head, in place of that of the layer. */
Test(layers, have_a_scale_that_a_request_may_replace) {
    static const struct binary_call own = {
        "",
        "\"heads\":2,\"scale\":0",
        NULL,
        {{"W_Q", {2, 2}, 0, NULL}, {"W_K", {2, 2}, 0, NULL}, {"W_V", {2, 2}, 0, NULL}}};
    static const struct {
        const char *scale, *equal;
    } rows[] = {{"", "{\"weights\":[[[0.5,0.5],[0.5,0.5]],[[0.5,0.5],[0.5,0.5]]]}"},
                {",\"scale\":[0,0]", "{\"weights\":[[[0.5,0.5],[0.5,0.5]],[[0.5,0.5],[0.5,0.5]]]}"},
                {",\"scale\":[0,1]", "{\"weights\":[[[0.5,0.5],[0.5,0.5]],[[8.18"},
                {",\"scale\":[1,0]", "]],[[0.5,0.5],[0.5,0.5]]]}"}};
    put_weights("own.safetensors", &own, "F32");
    serve();
    for (size_t i = 0; i < COUNT(rows); i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"X\":[[1,2],[3,5]],\"return\":[\"weights\"]%s}",
                 rows[i].scale);
        expect_answer("POST", "/layers/own.attention/attention", NULL, body, 200, rows[i].equal);
    }
}

Test(layers, refuse_what_is_wrong) {
#define ONE  "{\"X\":[[1]]}"
#define PAIR "{\"X\":[[[1,2]],[[1,2]]]"
    static const char header[] =
        "{\"__metadata__\":{\"heads\":\"1\"},"
        "\"W_Q\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[0,4]},"
        "\"W_K\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[4,8]},"
        "\"W_V\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[8,12]}}";
    static const float numbers[] = {NAN, 1, 1};
    char path[192];
    static const struct {
        const char *path, *body;
        int status;
        const char *text;
    } rows[] = {
        {"/layers/none.attention/attention", ONE, 404, "there is no layer none.attention"},
        {"/layers/small.attention/attention", ONE, 422,
         "X has 1 column, but d_model of the layer small.attention is 8"},
        {"/layers/small.attention/attention", "{}", 422, "X is missing"},
        {"/layers/small.attention/attention", "{\"X\":[[1]],\"W_Q\":[[1]]}", 422,
         "unknown key \\\"W_Q\\\""},
        {"/layers/small.attention/attention", "{\"X\":", 400, "ends"},
        {"/layers/small/attention", ONE, 422, "counts the layers of this model: 1"},
        {"/layers/small/attention", "{\"X\":[[[1]],[[1]]]}", 422,
         "the first axis of X has 2 layers, but this model has 1"},
        {"/layers/several/attention", PAIR ",\"grad_output\":[[1,2]],\"return\":[\"grad_X\"]}", 422,
         "the first axis of grad_output has 1 layers, but this model has 2"},
        {"/layers/m.h/attention", PAIR "}", 422,
         "the name m.h stands for layers of the model m and for layers of the model m.h"},
        {"/layers/several/attention", PAIR ",\"past_K\":[[[1,2]]],\"past_V\":[[[1,2]]]}", 422,
         "past_K holds rows of one layer, but this path stands for 2 layers"},
        {"/layers/several/attention", PAIR ",\"past_V\":[[[1,2]]]}", 422,
         "past_V holds rows of one layer"},
        {"/layers/several/attention", PAIR ",\"expected\":{\"lse\":[[1],[1]]}}", 422,
         "expected holds results of one layer, but this path stands for all layers"},
        {"/layers/several.h.0/attention",
         "{\"X\":[[1,2]],\"expected\":{\"lse\":[[9e9]]},\"fail_on_difference\":true}", 409,
         "lse is off by "},
        {"/layers/bad.attention/attention", ONE, 422,
         "W_Q of the layer bad.attention has a number that is not finite"},
        {"/v2/repository/models/bad.attention/load", "", 422, "a number that is not finite"},
        {"/layers/small.attention/attention",
         "{\"X\":{\"random\":\"randn\",\"shape\":[900000,8]},"
         "\"random\":{\"generator\":\"numpy\",\"seed\":1}}",
         413, ""},
    };
    layer_file_model("m.safetensors", "", 2, 2, 2, 1);
    layer_file_model("m.h.safetensors", "", 1, 2, 2, 1);
    layer_file_model("several.safetensors", "", 2, 2, 2, 1);
    layer_file_tensors("bad.safetensors", header, numbers, sizeof numbers);
    snprintf(path, sizeof path, "%0124d.safetensors", 7);
    layer_file_model(path, "", 1, 2, 2, 1);
    serve_small();
    for (size_t i = 0; i < COUNT(rows); i++) {
        expect_answer("POST", rows[i].path, "Content-Type: application/json\r\n", rows[i].body,
                      rows[i].status, rows[i].text);
    }
    expect_answer("POST", small_call.path, "Content-Type: text/plain\r\n", ONE "x", 415, "");
    snprintf(path, sizeof path, "/layers/%0124d.h.0/attention", 7);
    expect_answer("POST", path, "Content-Type: application/json\r\n", "{\"X\":[[1,2]]}", 200, "");
    snprintf(path, sizeof path, "/layers/%0124d.h.0x/attention",
             7); /* it is not cut to the other */
    expect_answer("POST", path, "Content-Type: application/json\r\n", "{\"X\":[[1,2]]}", 404, "");
}

/* Returns the reason under which GET /layers lists a file, in the answer `list`. */
static const char *reason_of(const struct cJSON *list, const char *file) {
    const struct cJSON *refused = json_get(list, "refused");
    for (const struct cJSON *entry = json_first(refused); entry != NULL; entry = json_next(entry)) {
        if (strcmp(json_text(json_get(entry, "file")), file) == 0) {
            return json_text(json_get(entry, "reason"));
        }
    }
    return "";
}

/* The unit tests of the codec and of the layers have each thing that may be wrong with a file. */
Test(layers, list_each_file_that_is_not_served_with_the_reason) {
#define TENSOR(offsets) "{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":" offsets "}"
    static const struct {
        const char *name, *header, *reason;
    } files[] = {
        {"json", "{\"a\":", "is not JSON"},
        {"gap", "{\"a\":" TENSOR("[4,8]") "}", "no gaps"},
        {"long", "{\"a\":" TENSOR("[0,4]") "}", "4 bytes"},
        {"other",
         "{\"a\":" TENSOR("[0,4]") ",\"b\":" TENSOR("[4,8]") ",\"c\":" TENSOR("[8,12]") "}",
         "an attention that is known"},
        {"bad name", "{}", "the name of a model"},
        {"type",
         "{\"__metadata__\":{\"heads\":\"1\"},\"W_Q\":" TENSOR("[0,4]") ",\"W_K\":" TENSOR(
             "[4,8]") ",\"W_V\":" TENSOR("[8,12]") "}",
         "W_Q is I32; only F8_E4M3, F8_E5M2, F16, BF16, F32 and F64 are read: save"},
    };
    static const char *const others[][2] = {
        {"empty.safetensors", "has no header"},
        {"pointer.safetensors", "a pointer of Git LFS"},
        {"fifo.safetensors", "no regular file"},
        {"link.safetensors", "link out of the folder"},
        {"dir.safetensors", "no regular file"},
        {"a-00001-of-00002.safetensors", "*.safetensors.index.json is not beside it"},
        {"none", "no .safetensors file is in this folder"},
        {"out", "no .safetensors file is in this folder"}};
    char name[128], path[256];
    const char zeros[12] = {0};
    for (size_t i = 0; i < COUNT(files); i++) {
        snprintf(name, sizeof name, "%s.safetensors", files[i].name);
        layer_file_tensors(name, files[i].header, zeros, sizeof zeros);
    }
    layer_file_text("empty.safetensors", "");
    layer_file_text("pointer.safetensors", "version https://git-lfs.github.com/spec/v1\n"
                                           "oid sha256:0123456789abcdef\nsize 12\n");
    snprintf(path, sizeof path, "%sfifo.safetensors", layer_folder);
    cr_assert_eq(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%slink.safetensors", layer_folder);
    cr_assert_eq(symlink("/etc/passwd", path), 0);
    snprintf(path, sizeof path, "%sdir.safetensors", layer_folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    layer_file_text("a-00001-of-00002.safetensors", "");
    snprintf(path, sizeof path, "%snone", layer_folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    layer_file_text("none/config.json", "{}");
    snprintf(path, sizeof path, "%sout", layer_folder);
    cr_assert_eq(symlink("/etc", path), 0);
    serve();
    struct client_response response = daemon_ask("GET", "/layers", "");
    struct cJSON *list = json_parse(response.body, response.size);
    cr_expect_eq(json_size(json_get(list, "refused")), COUNT(files) + COUNT(others));
    for (size_t i = 0; i < COUNT(files); i++) {
        snprintf(name, sizeof name, "%s.safetensors", files[i].name);
        expect_text(reason_of(list, name), files[i].reason, "reason", name);
    }
    for (size_t i = 0; i < COUNT(others); i++) {
        expect_text(reason_of(list, others[i][0]), others[i][1], "reason", others[i][0]);
    }
    client_response_free(&response);
    json_free(list);
}

Test(layers, follow_the_folder) {
    serve_small();
    struct cJSON *before = ask_call(&small_call, "float64");
    struct binary_call call = weights;
    call.inputs[4] = (struct binary_input){"W_O", {8, 3}, 0, NULL}; /* an output of other columns */
    call.inputs[6] = (struct binary_input){"b_O", {3}, 0, NULL};
    put_weights("small.safetensors", &call, "F32");
    struct cJSON *expected = ask_call(&call, "float64"), *after;
    for (;;) {
        after = ask_call(&small_call, "float64");
        if (!are_close(after, before, 1e-13)) { /* it is the old answer, or the new one */
            break;
        }
        json_free(after);
        wait_briefly();
    }
    cr_expect(are_close(after, expected, 1e-13));
    layer_file_remove("small.safetensors");
    await_status("/layers/small.attention", 404);
    json_free(before);
    json_free(after);
    json_free(expected);
}

/* Promise 27. The daemon has no method that writes. */
Test(layers, no_request_writes) {
    static const char *const methods[] = {"PUT", "DELETE", "PATCH", "POST"};
    serve_small();
    for (size_t i = 0; i < COUNT(methods); i++) {
        expect_answer(methods[i], "/layers/small", NULL, "{}", 405, "");
    }
    expect_answer("GET", "/layers/small.attention", NULL, "", 200, "");
}

/* The lists of models are open to everyone, but the layers in them need a key. */
Test(layers, lists_show_them_to_clients_with_a_key_only) {
    static const struct {
        const char *method, *path;
    } lists[] = {{"GET", "/v2/models"}, {"POST", "/v2/repository/index"}};
    char keys[128];
    snprintf(keys, sizeof keys, "%skeys", layer_folder);
    put_weights("small.safetensors", &weights, "F32");
    layer_file_text("keys", "a-key-of-this-test\n");
    layer_folder_serve((const char *const[]){"--api-key-file", keys, NULL});
    for (size_t i = 0; i < COUNT(lists); i++) {
        struct client_response response;
        expect_answer(lists[i].method, lists[i].path,
                      "Authorization: Bearer a-key-of-this-test\r\n", "", 200, "small.attention");
        cr_assert(
            client_request(the_daemon.port, lists[i].method, lists[i].path, "", "", 0, &response));
        cr_expect_eq(response.status, 200);
        cr_expect_null(strstr(response.body, "small"), "%s", response.body);
        client_response_free(&response);
    }
}

/* A task has room for all numbers that it reads: a matrix has 2 MiB as doubles. */
Test(layers, have_room_for_a_large_matrix) {
    static const struct binary_call large = {"/multi-head-attention",
                                             "\"heads\":4",
                                             NULL,
                                             {{"X", {1, 512}, 0, NULL},
                                              {"W_Q", {512, 512}, 0, NULL},
                                              {"W_K", {512, 512}, 0, NULL},
                                              {"W_V", {512, 512}, 0, NULL}}};
    static const struct binary_call question_of_large = {
        "/layers/large.attention/attention", "", NULL, {{"X", {1, 512}, 0, NULL}}};
    put_weights("large.safetensors", &large, "F32");
    serve();
    expect_answer("POST", "/v2/repository/models/large.attention/load", NULL, "", 200, "");
    struct cJSON *answer = ask_call(&question_of_large, "float32"),
                 *expected = ask_call(&large, "float32");
    cr_expect(are_close(answer, expected, 1e-6));
    json_free(answer);
    json_free(expected);
}

Test(layers, fit_their_memory) {
    /* The weights of each take 600 KiB in float32, and more than 1 MiB in float64. */
    static const struct binary_call large = {"/multi-head-attention",
                                             "\"heads\":4",
                                             "[\"output\"]",
                                             {{"X", {2, 100}, 0, NULL},
                                              {"W_Q", {100, 500}, 0, NULL},
                                              {"W_K", {100, 500}, 0, NULL},
                                              {"W_V", {100, 500}, 0, NULL}}};
    struct cJSON *expected, *answer;
    char path[64];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "l%d.safetensors", i);
        put_weights(path, &large, "F32");
    }
    layer_folder_serve((const char *const[]){"--layers-memory", "1MiB", NULL});
    expected = ask_call(&large, "float32");
    for (int i = 0; i < 9; i++) {
        struct binary_call call = {path, "", "[\"output\"]", {{"X", {2, 100}, 0, NULL}}};
        snprintf(path, sizeof path, "/layers/l%d.attention/attention", i % 3);
        answer = ask_call(&call, "float32");
        cr_expect(are_close(answer, expected, 1e-5), "turn %d", i);
        json_free(answer);
    }
    json_free(expected);
    struct binary_call wide = {path, "", "[\"output\"]", {{"X", {2, 100}, 0, NULL}}};
    size_t size;
    char *body = binary_json(&wide, "float64", &size);
    expect_answer("POST", path, NULL, body, 413, "--layers-memory");
    free(body);
}
