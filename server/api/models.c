/* models.c - the endpoints of the Open Inference Protocol that describe the server and its models.
 * A model is an endpoint that computes from matrices, under the name of its path. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/fields.h"
#include "api/inference.h"

static const char models_path[] = INFERENCE_PATH "/models/";

/* Returns whether a route is a model. */
static bool is_model(const struct api_route *route) {
    return route->fields != API_MODEL &&
           (route->fields & (FIELDS_AT_ATTENTION | FIELDS_AT_PROJECTIONS | FIELDS_AT_SOFTMAX)) != 0;
}

/* Returns the model of this name, of which `size` bytes count, or NULL. */
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
    int size = snprintf(detail, sizeof detail,
                        "there is no such model as in %.100s; the models are", request->path);
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
    struct reply_items list = {.count = 0};
    reply_open(&list, CODEC_OP_OBJECT, NULL);
    if (model != NULL) {
        reply_text(&list, "name", model);
    }
    reply_item(&list, (struct codec_item){.op = CODEC_OP_BOOL, .key = key, .number = value});
    reply_close(&list);
    reply_items(request, response, &list, 0);
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
    struct reply_items list = {.count = 0};
    reply_open(&list, CODEC_OP_OBJECT, NULL);
    reply_text(&list, "name", "attentiond");
    reply_text(&list, "version", attn_build().version);
    reply_item(&list, (struct codec_item){.op = CODEC_OP_TEXTS,
                                          .key = "extensions",
                                          .count = sizeof extensions / sizeof *extensions,
                                          .texts = extensions});
    reply_close(&list);
    reply_items(request, response, &list, 0);
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

/* Adds an object for each model, as the index of the repository has it, or the names alone. */
static void list_models(struct reply_items *list, bool names) {
    for (size_t i = 0; i < api_route_count; i++) {
        if (!is_model(&api_routes[i])) {
            continue;
        }
        if (names) {
            reply_text(list, NULL, api_routes[i].path + 1);
            continue;
        }
        reply_open(list, CODEC_OP_OBJECT, NULL);
        reply_text(list, "name", api_routes[i].path + 1);
        reply_text(list, "version", API_VERSION);
        reply_text(list, "state", "READY");
        reply_text(list, "reason", "");
        reply_close(list);
    }
}

struct api_work *api_models(const struct api_request *request, struct http_response *response) {
    struct reply_items list = {.count = 0};
    reply_open(&list, CODEC_OP_OBJECT, NULL);
    reply_open(&list, CODEC_OP_ARRAY, "models");
    list_models(&list, true);
    reply_close(&list);
    reply_close(&list);
    reply_items(request, response, &list, 0);
    return NULL;
}

struct api_work *api_repository(const struct api_request *request, struct http_response *response) {
    struct reply_items list = {.count = 0};
    reply_open(&list, CODEC_OP_ARRAY, NULL);
    list_models(&list, false);
    reply_close(&list);
    reply_items(request, response, &list, 0);
    return NULL;
}

struct api_work *api_load(const struct api_request *request, struct http_response *response) {
    http_problem(response, request->http, 501,
                 "the models of this server are always loaded: they are not loaded or unloaded",
                 NULL, NULL);
    return NULL;
}

/* ---------------------------------------------------------------------------------- the models */

enum {
    MOST_TENSORS = FIELDS_MOST, /* most inputs, and most outputs, of a model */
    ITEMS_OF_TENSOR = 6
};

/* The items of a description, and what they borrow. */
struct description {
    struct codec_item items[16 + 2 * MOST_TENSORS * ITEMS_OF_TENSOR];
    size_t count;
    struct fields_matrix inputs[MOST_TENSORS];
    struct reply_items results;
    struct codec_results outputs;
    char types[2 * MOST_TENSORS][16];
    size_t type_count;
};

static struct codec_item *next_item(struct description *d, enum codec_op op, const char *key) {
    struct codec_item *item = &d->items[d->count++];
    *item = (struct codec_item){.op = op, .key = key};
    return item;
}

/* Adds a tensor of any sizes. A configuration has other names for the same. */
static void describe_tensor(struct description *d, const char *name, enum codec_type type, int rank,
                            bool config, bool optional) {
    static const int64_t any[ATTN_MAX_RANK] = {-1, -1, -1, -1, -1, -1, -1, -1};
    char *text = d->types[d->type_count++];
    snprintf(text, sizeof *d->types, "%s%s", config ? "TYPE_" : "", codec_inference_types[type]);
    next_item(d, CODEC_OP_OBJECT, NULL);
    next_item(d, CODEC_OP_TEXT, "name")->text = name;
    next_item(d, CODEC_OP_TEXT, config ? "data_type" : "datatype")->text = text;
    next_item(d, CODEC_OP_TENSOR, config ? "dims" : "shape")->tensor =
        (attn_tensor){.data = any, .dtype = ATTN_INT64, .rank = 1, .shape = {(size_t)rank}};
    if (optional) {
        next_item(d, CODEC_OP_BOOL, "optional")->number = true;
    }
    next_item(d, CODEC_OP_END, NULL);
}

/* Describes the tensors of a model from the table of fields and that of results. Returns false if
 * there is no memory. */
static bool describe_tensors(struct description *d, unsigned fields, bool config) {
    const size_t inputs = fields_matrices(fields, d->inputs);
    next_item(d, CODEC_OP_ARRAY, config ? "input" : "inputs");
    for (size_t i = 0; i < inputs; i++) {
        const struct fields_matrix *input = &d->inputs[i];
        describe_tensor(d, input->name, input->mask ? CODEC_TYPE_BOOL : CODEC_TYPE_FP32,
                        input->rank, config, config);
    }
    next_item(d, CODEC_OP_END, NULL);
    answer_describe(&d->results, answer_count(fields));
    if (!codec_results_make(&d->outputs, d->results.items, d->results.count, CODEC_TYPE_FP32,
                            NULL)) {
        return false;
    }
    next_item(d, CODEC_OP_ARRAY, config ? "output" : "outputs");
    for (size_t i = 0; i < d->outputs.count; i++) {
        const struct codec_result *output = &d->outputs.list[i];
        /* A model without "return" gives a tensor of the form of its input. */
        const int rank = fields_has("return", fields) ? output->tensor.rank : d->inputs[0].rank;
        describe_tensor(d, output->name, output->type, rank, config, false);
    }
    next_item(d, CODEC_OP_END, NULL);
    return true;
}

static void describe(const struct api_request *request, struct http_response *response,
                     bool config) {
    static const char *const versions[] = {API_VERSION};
    const struct api_route *model = inference_model(request->http->path);
    if (model == NULL) {
        inference_refuse_model(request->http, response);
        return;
    }
    struct description *d = calloc(1, sizeof *d);
    if (d == NULL) {
        reply_no_memory(request, response);
        return;
    }
    next_item(d, CODEC_OP_OBJECT, NULL);
    next_item(d, CODEC_OP_TEXT, "name")->text = model->path + 1;
    next_item(d, CODEC_OP_TEXT, "platform")->text = "attentiond";
    if (config) {
        next_item(d, CODEC_OP_TEXT, "backend")->text = "attentiond";
        next_item(d, CODEC_OP_NUMBER, "max_batch_size")->number = 0;
    } else {
        struct codec_item *list = next_item(d, CODEC_OP_TEXTS, "versions");
        list->texts = versions;
        list->count = 1;
    }
    const bool good = describe_tensors(d, model->fields, config);
    next_item(d, CODEC_OP_END, NULL);
    if (good) {
        reply_json(request, response, d->items, d->count, 0);
    } else {
        reply_no_memory(request, response);
    }
    codec_results_free(&d->outputs);
    free(d);
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
static void describe_stats(struct description *d, const char *name,
                           const struct metrics_model *stats) {
    static const char *const keys[METRICS_DURATIONS] = {METRICS_DURATION_NAMES};
    const double count = (double)atomic_load(&stats->durations[METRICS_SUCCESS].count);
    next_item(d, CODEC_OP_OBJECT, NULL);
    next_item(d, CODEC_OP_TEXT, "name")->text = name;
    next_item(d, CODEC_OP_TEXT, "version")->text = API_VERSION;
    next_item(d, CODEC_OP_NUMBER, "last_inference")->number = (double)atomic_load(&stats->last_ms);
    next_item(d, CODEC_OP_NUMBER, "inference_count")->number = count;
    next_item(d, CODEC_OP_NUMBER, "execution_count")->number = count;
    next_item(d, CODEC_OP_OBJECT, "inference_stats");
    for (size_t i = 0; i < METRICS_DURATIONS; i++) {
        const struct metrics_duration *duration = &stats->durations[i];
        next_item(d, CODEC_OP_OBJECT, keys[i]);
        next_item(d, CODEC_OP_NUMBER, "count")->number = (double)atomic_load(&duration->count);
        next_item(d, CODEC_OP_NUMBER, "ns")->number = (double)atomic_load(&duration->ns);
        next_item(d, CODEC_OP_END, NULL);
    }
    next_item(d, CODEC_OP_END, NULL);
    next_item(d, CODEC_OP_ARRAY, "batch_stats");
    next_item(d, CODEC_OP_END, NULL);
    next_item(d, CODEC_OP_END, NULL);
}

struct api_work *api_model_stats(const struct api_request *request,
                                 struct http_response *response) {
    const bool all = strcmp(request->http->path, INFERENCE_PATH "/models/stats") == 0;
    const struct api_route *wanted = all ? NULL : inference_model(request->http->path);
    struct description *d = NULL;
    if (!all && wanted == NULL) {
        inference_refuse_model(request->http, response);
        return NULL;
    }
    d = calloc(1, sizeof *d);
    if (d == NULL) {
        reply_no_memory(request, response);
        return NULL;
    }
    next_item(d, CODEC_OP_OBJECT, NULL);
    next_item(d, CODEC_OP_ARRAY, "model_stats");
    for (size_t i = 0; i < api_route_count; i++) {
        if (is_model(&api_routes[i]) && (all || wanted == &api_routes[i])) {
            describe_stats(d, api_routes[i].path + 1, &request->state->metrics.models[i]);
        }
    }
    next_item(d, CODEC_OP_END, NULL);
    next_item(d, CODEC_OP_END, NULL);
    reply_json(request, response, d->items, d->count, 0);
    free(d);
    return NULL;
}
