/* models.c - the endpoints of the Open Inference Protocol that describe the server and its models.
 * A model is an endpoint that computes from matrices, under the name of its path. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "api/answer.h"
#include "api/fields.h"
#include "api/inference.h"
#include "api/reply.h"

static const char models_path[] = INFERENCE_PATH "/models/";

/* Returns whether a route is a model. */
static bool is_model(const struct api_route *route) {
    return (route->fields & (FIELDS_AT_ATTENTION | FIELDS_AT_PROJECTIONS | FIELDS_AT_SOFTMAX)) != 0;
}

/* Returns the model whose name is the first `size` bytes of `name`, or NULL. */
static const struct api_route *find_model(const char *name, size_t size) {
    for (size_t i = 0; i < api_route_count; i++) {
        const char *own = api_routes[i].path + 1;
        if (is_model(&api_routes[i]) && strncmp(own, name, size) == 0 && own[size] == '\0') {
            return &api_routes[i];
        }
    }
    return NULL;
}

const struct api_route *inference_model(const char *path) {
    if (strncmp(path, models_path, sizeof models_path - 1) != 0) {
        return NULL;
    }
    const char *name = path + sizeof models_path - 1;
    return find_model(name, strcspn(name, "/"));
}

void inference_refuse_model(const struct http_request *request, struct http_response *response) {
    char detail[384];
    int size = snprintf(detail, sizeof detail, "there is no model at %.100s; the models are",
                        request->path);
    for (size_t i = 0; i < api_route_count; i++) {
        if (is_model(&api_routes[i])) {
            size += snprintf(detail + size, sizeof detail - (size_t)size, " %s,",
                             api_routes[i].path + 1);
        }
    }
    detail[size - 1] = '\0'; /* the last comma */
    http_problem(response, request, 404, detail, NULL, NULL);
}

/* ---------------------------------------------------------------------------------- the server */

static void reply_flag(const struct api_request *request, struct http_response *response,
                       const char *model, const char *key, bool value) {
    struct codec_items list;
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    if (model != NULL) {
        codec_add_text(&list, "name", model);
    }
    codec_add_bool(&list, key, value);
    codec_add_close(&list);
    reply_json(request, response, &list, 0);
}

/* Answers with a 503 if the server is about to stop. */
static bool refuse_draining(const struct api_request *request, struct http_response *response) {
    if (request->http->draining) {
        http_problem(response, request->http, 503, "the server is about to stop", NULL, NULL);
    }
    return request->http->draining;
}

struct api_work *api_server(const struct api_request *request, struct http_response *response) {
    static const char *const extensions[] = {"binary_tensor_data", "parameters", "statistics",
                                             "model_configuration", "model_repository"};
    struct codec_items list;
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_text(&list, "name", "attentiond");
    codec_add_text(&list, "version", attn_build().version);
    codec_add_texts(&list, "extensions", extensions, sizeof extensions / sizeof *extensions);
    codec_add_close(&list);
    reply_json(request, response, &list, 0);
    return NULL;
}

struct api_work *api_server_live(const struct api_request *request,
                                 struct http_response *response) {
    reply_flag(request, response, NULL, "live", true);
    return NULL;
}

struct api_work *api_server_ready(const struct api_request *request,
                                  struct http_response *response) {
    if (!refuse_draining(request, response)) {
        reply_flag(request, response, NULL, "ready", true);
    }
    return NULL;
}

/* Adds the names of all models, or an object for each as in the index of the repository. */
static void list_models(struct codec_items *list, bool names) {
    for (size_t i = 0; i < api_route_count; i++) {
        if (!is_model(&api_routes[i])) {
            continue;
        }
        if (names) {
            codec_add_text(list, NULL, api_routes[i].path + 1);
            continue;
        }
        codec_add_open(list, CODEC_OP_OBJECT, NULL);
        codec_add_text(list, "name", api_routes[i].path + 1);
        codec_add_text(list, "version", API_MODEL_VERSION);
        codec_add_text(list, "state", "READY");
        codec_add_text(list, "reason", "");
        codec_add_close(list);
    }
}

struct api_work *api_models(const struct api_request *request, struct http_response *response) {
    struct codec_items list;
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_open(&list, CODEC_OP_ARRAY, "models");
    list_models(&list, true);
    codec_add_close(&list);
    codec_add_close(&list);
    reply_json(request, response, &list, 0);
    return NULL;
}

struct api_work *api_repository(const struct api_request *request, struct http_response *response) {
    struct codec_items list;
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_ARRAY, NULL);
    list_models(&list, false);
    codec_add_close(&list);
    reply_json(request, response, &list, 0);
    return NULL;
}

struct api_work *api_load(const struct api_request *request, struct http_response *response) {
    http_problem(response, request->http, 501,
                 "the models of this server are always loaded: they are not loaded or unloaded",
                 NULL, NULL);
    return NULL;
}

/* ---------------------------------------------------------------------------------- the models */

/* Begins the object of a tensor whose axes may have any size; the caller ends it. A configuration
 * uses other keys. */
static void describe_tensor(struct codec_items *list, const char *name, enum codec_type type,
                            int rank, bool config) {
    static const int64_t any[ATTN_MAX_RANK] = {-1, -1, -1, -1, -1, -1, -1, -1};
#define MODELS_TYPE(name, inference, safetensors, size) "TYPE_" inference,
    static const char *const config_types[] = {CODEC_TYPES(MODELS_TYPE)};
#undef MODELS_TYPE
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    codec_add_text(list, "name", name);
    codec_add_text(list, config ? "data_type" : "datatype",
                   config ? config_types[type] : codec_inference_types[type]);
    codec_add_integers(list, config ? "dims" : "shape", any, (size_t)rank);
}

/* Describes the inputs of a model from the table of fields. */
static void describe_inputs(struct codec_items *list, unsigned fields, bool config) {
    struct fields_matrix inputs[FIELDS_MOST];
    const size_t count = fields_matrices(fields, inputs);
    codec_add_open(list, CODEC_OP_ARRAY, config ? "input" : "inputs");
    for (size_t i = 0; i < count; i++) {
        describe_tensor(list, inputs[i].name, inputs[i].mask ? CODEC_TYPE_BOOL : CODEC_TYPE_FP32,
                        inputs[i].rank, config);
        if (config) {
            codec_add_bool(list, "optional", true);
        }
        codec_add_close(list);
    }
    codec_add_close(list);
}

bool inference_outputs(struct codec_results *outputs, unsigned fields, struct account *account) {
    struct codec_items items;
    codec_items_begin(&items, account);
    answer_describe(&items, fields);
    const bool good = !items.failed && codec_results_make(outputs, items.list, items.count,
                                                          CODEC_TYPE_FP32, account);
    codec_items_free(&items);
    return good;
}

static void describe_outputs(struct codec_items *list, const struct codec_results *outputs,
                             bool config) {
    codec_add_open(list, CODEC_OP_ARRAY, config ? "output" : "outputs");
    for (size_t i = 0; i < outputs->count; i++) {
        const struct codec_result *output = &outputs->list[i];
        describe_tensor(list, output->name, output->type, output->tensor.rank, config);
        codec_add_close(list);
    }
    codec_add_close(list);
}

static void describe(const struct api_request *request, struct http_response *response,
                     bool config) {
    static const char *const versions[] = {API_MODEL_VERSION};
    const struct api_route *model = inference_model(request->http->path);
    struct codec_results outputs = {0};
    struct codec_items list;
    if (model == NULL) {
        inference_refuse_model(request->http, response);
        return;
    }
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_text(&list, "name", model->path + 1);
    codec_add_text(&list, "platform", "attentiond");
    if (config) {
        codec_add_text(&list, "backend", "attentiond");
        codec_add_number(&list, "max_batch_size", 0);
    } else {
        codec_add_texts(&list, "versions", versions, 1);
    }
    describe_inputs(&list, model->fields, config);
    if (inference_outputs(&outputs, model->fields, NULL)) {
        describe_outputs(&list, &outputs, config);
    } else {
        list.failed = true;
    }
    codec_add_close(&list);
    reply_json(request, response, &list, 0);
    assert(response->read == NULL); /* the text is short, so it borrows nothing any more */
    codec_results_free(&outputs);
}

struct api_work *api_model(const struct api_request *request, struct http_response *response) {
    describe(request, response, false);
    return NULL;
}

struct api_work *api_model_config(const struct api_request *request,
                                  struct http_response *response) {
    describe(request, response, true);
    return NULL;
}

struct api_work *api_model_ready(const struct api_request *request,
                                 struct http_response *response) {
    const struct api_route *model = inference_model(request->http->path);
    if (model == NULL) {
        inference_refuse_model(request->http, response);
    } else if (!refuse_draining(request, response)) {
        reply_flag(request, response, model->path + 1, "ready", true);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------- the statistics */

/* Adds the statistics of a model. */
static void describe_stats(struct codec_items *list, const char *name,
                           const struct metrics_model *stats) {
    static const char *const keys[METRICS_DURATIONS] = {METRICS_DURATION_NAMES};
    const double count = (double)atomic_load(&stats->durations[METRICS_SUCCESS].count);
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    codec_add_text(list, "name", name);
    codec_add_text(list, "version", API_MODEL_VERSION);
    codec_add_number(list, "last_inference", (double)atomic_load(&stats->last_ms));
    codec_add_number(list, "inference_count", count);
    codec_add_number(list, "execution_count", count);
    codec_add_open(list, CODEC_OP_OBJECT, "inference_stats");
    for (size_t i = 0; i < METRICS_DURATIONS; i++) {
        const struct metrics_duration *duration = &stats->durations[i];
        codec_add_open(list, CODEC_OP_OBJECT, keys[i]);
        codec_add_number(list, "count", (double)atomic_load(&duration->count));
        codec_add_number(list, "ns", (double)atomic_load(&duration->ns));
        codec_add_close(list);
    }
    codec_add_close(list);
    codec_add_open(list, CODEC_OP_ARRAY, "batch_stats");
    codec_add_close(list);
    codec_add_close(list);
}

struct api_work *api_model_stats(const struct api_request *request,
                                 struct http_response *response) {
    const bool all = strcmp(request->http->path, INFERENCE_PATH "/models/stats") == 0;
    const struct api_route *wanted = all ? NULL : inference_model(request->http->path);
    struct codec_items list;
    if (!all && wanted == NULL) {
        inference_refuse_model(request->http, response);
        return NULL;
    }
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_open(&list, CODEC_OP_ARRAY, "model_stats");
    for (size_t i = 0; i < api_route_count; i++) {
        if (is_model(&api_routes[i]) && (all || wanted == &api_routes[i])) {
            describe_stats(&list, api_routes[i].path + 1, &request->state->metrics.models[i]);
        }
    }
    codec_add_close(&list);
    codec_add_close(&list);
    reply_json(request, response, &list, 0);
    return NULL;
}
