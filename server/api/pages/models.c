/* models.c - the endpoints of the Open Inference Protocol that describe the server and models. */
#include <stdio.h>
#include <string.h>

#include "api/call/answer.h"
#include "api/call/fields.h"
#include "api/formats/inference.h"
#include "api/pages/lists.h"
#include "api/reply.h"

/* ---------------------------------------------------------------------------------- the server */

static void reply_flag(struct api_request *request, const char *model, const char *key,
                       bool value) {
    struct codec_items list;
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    if (model != NULL) {
        codec_add_text(&list, "name", model);
    }
    codec_add_bool(&list, key, value);
    codec_add_close(&list);
    reply_json(request, &list, 0);
}

/* Answers with a 503 if the server is about to stop. */
static bool refuse_draining(struct api_request *request) {
    if (request->http->draining) {
        reply_problem(request, 503, "the server is about to stop");
    }
    return request->http->draining;
}

struct api_work *api_server(struct api_request *request) {
    static const char *const extensions[] = {"binary_tensor_data", "parameters", "statistics",
                                             "model_configuration", "model_repository"};
    struct codec_items list;
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_text(&list, "name", "attentiond");
    codec_add_text(&list, "version", attn_build().version);
    codec_add_texts(&list, "extensions", extensions, sizeof extensions / sizeof *extensions);
    codec_add_close(&list);
    reply_json(request, &list, 0);
    return NULL;
}

struct api_work *api_server_live(struct api_request *request) {
    reply_flag(request, NULL, "live", true);
    return NULL;
}

struct api_work *api_server_ready(struct api_request *request) {
    if (!refuse_draining(request)) {
        reply_flag(request, NULL, "ready", true);
    }
    return NULL;
}

static void add_models(struct codec_items *list, const struct lists_page *page) {
    if (page->opens) {
        codec_add_open(list, CODEC_OP_OBJECT, NULL);
        codec_add_open(list, CODEC_OP_ARRAY, "models");
    }
    for (const struct api_route *route = page->opens ? inference_endpoint(page->routes) : NULL;
         route != NULL; route = inference_endpoint(route + 1)) {
        codec_add_text(list, NULL, route->path + 1);
    }
    for (size_t i = page->first; i < page->end; i++) {
        const struct layers_entry *entry = &page->catalogue->entries[i];
        if (entry->reason[0] == '\0') {
            codec_add_text(list, NULL, entry->layer->name);
        }
    }
    if (page->closes) {
        codec_add_close(list);
        codec_add_close(list);
    }
}

struct api_work *api_models(struct api_request *request) {
    return lists_all(request, !request->http->authorized, add_models);
}

/* ---------------------------------------------------------------------------------- the models */

/* Begins the object of a tensor whose axes may have any size; the caller ends it. CODEC_TYPE_COUNT
 * stands for words. A configuration uses other keys. */
static void describe_tensor(struct codec_items *list, const char *name, enum codec_type type,
                            int rank, bool config) {
    static const int64_t any[ATTN_MAX_RANK] = {-1, -1, -1, -1, -1, -1, -1, -1};
#define MODELS_TYPE(name, inference, safetensors, bits) "TYPE_" inference,
    static const char *const config_types[] = {CODEC_TYPES(MODELS_TYPE)};
#undef MODELS_TYPE
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    codec_add_text(list, "name", name);
    codec_add_text(list, config ? "data_type" : "datatype",
                   type == CODEC_TYPE_COUNT ? (config ? "TYPE_STRING" : "BYTES")
                   : config                 ? config_types[type]
                                            : codec_inference_types[type]);
    codec_add_integers(list, config ? "dims" : "shape", any, (size_t)rank);
}

/* Describes the inputs of a model from the table of fields. */
static void describe_inputs(struct codec_items *list, unsigned fields, bool config) {
    struct fields_matrix inputs[FIELDS_MOST];
    const size_t count = fields_matrices(fields, inputs);
    codec_add_open(list, CODEC_OP_ARRAY, config ? "input" : "inputs");
    for (size_t i = 0; i < count; i++) {
        describe_tensor(list, inputs[i].name,
                        inputs[i].words  ? CODEC_TYPE_COUNT
                        : inputs[i].mask ? CODEC_TYPE_BOOL
                                         : CODEC_TYPE_FP32,
                        inputs[i].rank, config);
        if (config) {
            codec_add_bool(list, "optional", true);
        }
        codec_add_close(list);
    }
    codec_add_close(list);
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

static void describe(struct api_request *request, bool config) {
    static const char *const versions[] = {API_MODEL_VERSION};
    struct codec_results outputs = {0};
    struct codec_items list;
    if (!inference_find(request)) {
        return;
    }
    const unsigned fields = request->route->fields;
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_text(&list, "name", request->name);
    codec_add_text(&list, "platform", "attentiond");
    if (config) {
        codec_add_text(&list, "backend", "attentiond");
        codec_add_number(&list, "max_batch_size", 0);
    } else {
        codec_add_texts(&list, "versions", versions, 1);
    }
    describe_inputs(&list, fields, config);
    if (inference_outputs(&outputs, fields, NULL)) {
        describe_outputs(&list, &outputs, config);
    } else {
        list.failed = true;
    }
    codec_add_close(&list);
    reply_json(request, &list, 0);
    codec_results_free(&outputs);
}

struct api_work *api_model(struct api_request *request) {
    describe(request, false);
    return NULL;
}

struct api_work *api_model_config(struct api_request *request) {
    describe(request, true);
    return NULL;
}

struct api_work *api_model_ready(struct api_request *request) {
    if (inference_find(request) && !refuse_draining(request)) {
        reply_flag(request, request->name, "ready", true);
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

struct api_work *api_model_stats(struct api_request *request) {
    const bool all = strcmp(request->http->path, INFERENCE_PATH "/models/stats") == 0;
    const struct api_state *state = request->state;
    struct codec_items list;
    if (!all && !inference_find(request)) {
        return NULL;
    }
    if (request->route->fields == FIELDS_AT_LAYER) {
        reply_problem(request, 404,
                      "a stored layer has no statistics of its own; /metrics counts all layers");
        return NULL;
    }
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_open(&list, CODEC_OP_ARRAY, "model_stats");
    for (const struct api_route *route = inference_endpoint(state->routes); route != NULL;
         route = inference_endpoint(route + 1)) {
        if (all || request->route == route) {
            describe_stats(&list, route->path + 1, &state->metrics.models[route - state->routes]);
        }
    }
    codec_add_close(&list);
    codec_add_close(&list);
    reply_json(request, &list, 0);
    return NULL;
}
