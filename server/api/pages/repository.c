/*
 * repository.c - the model repository of the Open Inference Protocol: its index, and the loading of
 * stored layers. A layer that is loaded has its weights packed, so its next request is as fast as
 * any. Unloading frees the packed weights; the next request reads them again.
 */
#include <string.h>

#include "api/call/stored.h"
#include "api/formats/inference.h"
#include "api/pages/lists.h"
#include "api/reply.h"

static void add_entry(struct codec_items *list, const char *name, const char *reason) {
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    codec_add_text(list, "name", name);
    codec_add_text(list, "version", API_MODEL_VERSION);
    codec_add_text(list, "state", reason[0] == '\0' ? "READY" : "UNAVAILABLE");
    codec_add_text(list, "reason", reason);
    codec_add_close(list);
}

static void add_index(struct codec_items *list, const struct lists_page *page) {
    if (page->opens) {
        codec_add_open(list, CODEC_OP_ARRAY, NULL);
    }
    for (const struct api_route *route = page->opens ? inference_endpoint(page->routes) : NULL;
         route != NULL; route = inference_endpoint(route + 1)) {
        add_entry(list, route->path + 1, "");
    }
    for (size_t i = page->first; i < page->end; i++) {
        const struct layers_entry *entry = &page->catalogue->entries[i];
        add_entry(list, layers_entry_name(entry), entry->reason);
    }
    if (page->closes) {
        codec_add_close(list);
    }
}

struct api_work *api_repository(struct api_request *request) {
    return lists_all(request, !request->http->authorized, add_index);
}

/* ------------------------------------------------------------------------------------- loading */

/* The work that packs the weights of a layer. */
struct loading {
    struct api_work work; /* first */
    struct stored_weights weights;
};

static void reply_done(struct api_request *request, const struct layer *layer, bool loaded) {
    struct codec_items list;
    codec_items_begin(&list, NULL);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_text(&list, "name", layer->name);
    codec_add_bool(&list, "loaded", loaded);
    codec_add_close(&list);
    reply_json(request, &list, 0);
}

static bool loading_answer(struct api_work *work, struct api_request *request,
                           struct codec_items *list) {
    (void)list; /* it is JSON in any case */
    const struct stored_weights *weights = &((const struct loading *)work)->weights;
    if (stored_is_packed(request, weights)) {
        reply_done(request, weights->use.layer, true);
    }
    return false;
}

static void loading_release(struct api_work *work) {
    struct stored_weights *weights = &((struct loading *)work)->weights;
    layer_end(weights->layers, &weights->use);
}

/* Makes the work that packs the weights of a layer in float32. Returns owned, or NULL after filling
 * the response. */
static struct api_work *load(struct api_request *request, const struct layer *layer) {
    struct loading *loading = account_alloc(&request->account, sizeof *loading);
    if (loading == NULL) {
        reply_no_memory(request);
        return NULL;
    }
    memset(loading, 0, sizeof *loading);
    struct stored_weights *weights = &loading->weights;
    if (!stored_use(request, weights, layer, ATTN_FLOAT32)) {
        return NULL;
    }
    loading->work = (struct api_work){
        .job = {.scratch = weights->scratch, .cost = weights->cost, .phases = &weights->phases},
        .answer = loading_answer,
        .release = loading_release};
    if (!api_admit(request, &loading->work, weights->scratch * request->state->threads, "")) {
        loading_release(&loading->work);
        return NULL;
    }
    return &loading->work;
}

static struct api_work *change(struct api_request *request, bool loads) {
    struct layers *layers = request->state->layers;
    struct api_work *work = NULL;
    if (!inference_find(request)) {
        return NULL;
    }
    if (request->route->fields != FIELDS_AT_LAYER) {
        reply_problem(request, 501,
                      "this model is always loaded; only stored layers are loaded and unloaded");
        return NULL;
    }
    const struct layers_catalogue *catalogue = layers_take(layers);
    const struct layer *layer = layers_find(catalogue, request->name);
    size_t served;
    if (layer == NULL) { /* its file has gone just now */
        inference_refuse_model(request);
    } else if (!loads) {
        layers_unload(layers, layer);
        reply_done(request, layer, false);
    } else if (stored_fit(request, catalogue, layer, 1, &served)) {
        work = load(request, layer);
    }
    layers_give(layers, catalogue);
    return work;
}

struct api_work *api_load(struct api_request *request) {
    return change(request, true);
}

struct api_work *api_unload(struct api_request *request) {
    return change(request, false);
}
