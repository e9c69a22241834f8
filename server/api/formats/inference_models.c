/*
 * inference_models.c - the models of the Open Inference Protocol: stored layers, and the endpoints
 * that compute from matrices, each under the name of its path.
 */
#include "api/formats/inference.h"

#include <stdio.h>

#include "api/call/answer.h"
#include "api/call/fields.h"
#include "api/reply.h"

const struct api_route *inference_endpoint(const struct api_route *route) {
    const unsigned matrices =
        FIELDS_AT_ATTENTION | FIELDS_AT_PROJECTIONS | FIELDS_AT_LINEAR | FIELDS_AT_SOFTMAX;
    while (route->path != NULL && (route->fields & matrices) == 0) {
        route++;
    }
    return route->path != NULL ? route : NULL;
}

const struct api_route *inference_model(const struct api_state *state, const char *name) {
    const struct api_route *route = inference_endpoint(state->routes);
    while (route != NULL && strcmp(route->path + 1, name) != 0) {
        route = inference_endpoint(route + 1);
    }
    return route;
}

/* Returns whether a stored layer that is served has the name in the path. */
static bool is_layer(const struct api_request *request) {
    struct layers *layers = request->state->layers;
    if (layers == NULL || !request->http->authorized) {
        return false;
    }
    const struct layers_catalogue *catalogue = layers_take(layers);
    const struct layer *layer = layers_find(catalogue, request->name);
    const bool served = layer != NULL && layers_reason(catalogue, layer)[0] == '\0';
    layers_give(layers, catalogue);
    return served;
}

void inference_refuse_model(struct api_request *request) {
    char detail[384];
    int size = snprintf(detail, sizeof detail, "there is no model at %.100s; the models are",
                        request->http->path);
    for (const struct api_route *route = inference_endpoint(request->state->routes); route != NULL;
         route = inference_endpoint(route + 1)) {
        size += snprintf(detail + size, sizeof detail - (size_t)size, " %s,", route->path + 1);
    }
    size--; /* the last comma */
    snprintf(detail + size, sizeof detail - (size_t)size, "%s",
             request->state->layers == NULL ? ""
             : !request->http->authorized   ? ", and for clients with a key the stored layers"
                                            : ", and the stored layers of GET /layers");
    reply_problem(request, 404, detail);
}

bool inference_find(struct api_request *request) {
    const struct api_route *route = inference_model(request->state, request->name);
    if (route == NULL && is_layer(request)) {
        for (route = request->state->routes; route->fields != FIELDS_AT_LAYER;
             route++) { /* there is one */
        }
    }
    if (route == NULL) {
        inference_refuse_model(request);
    } else {
        request->route = route;
    }
    return route != NULL;
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
