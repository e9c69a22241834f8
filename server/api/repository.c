/*
 * repository.c - the model repository of the Open Inference Protocol: its index, and the loading of
 * stored layers. A layer that is loaded has its weights packed, so its next request is as fast as
 * any. Unloading frees the packed weights; the next request reads them again.
 */
#include <string.h>

#include "api/inference.h"
#include "api/lists.h"
#include "api/reply.h"
#include "api/stored.h"

static void add_entry(struct codec_items *list, const char *name, const char *reason) {
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    codec_add_text(list, "name", name);
    codec_add_text(list, "version", API_MODEL_VERSION);
    codec_add_text(list, "state", reason[0] == '\0' ? "READY" : "UNAVAILABLE");
    codec_add_text(list, "reason", reason);
    codec_add_close(list);
}

static void add_index(struct codec_items *list, const struct lists_page *page) {
    codec_add_open(list, CODEC_OP_ARRAY, NULL);
    for (size_t i = 0; i < api_route_count; i++) {
        if (inference_is_endpoint(&api_routes[i])) {
            add_entry(list, api_routes[i].path + 1, "");
        }
    }
    for (size_t i = page->first; i < page->end; i++) {
        const struct layers_entry *entry = &page->catalogue->entries[i];
        add_entry(list, layers_entry_name(entry),
                  entry->layer != NULL ? entry->layer->reason : entry->model->reason);
    }
    codec_add_close(list);
}

struct api_work *api_repository(struct api_request *request) {
    return lists_all(request, !request->http->authorized, add_index);
}

/* ------------------------------------------------------------------------------------- loading */

/* The phases of the job. */
enum {
    LOADING_PACK, /* the weights are read and packed */
    LOADING_WAIT, /* the tasks of other requests that pack the same weights end */
    LOADING_PHASES
};

/* The work that packs the weights of a layer. */
struct loading {
    struct api_work work; /* first */
    struct job_phases phases;
    struct layers *layers;
    struct layer_use use;
    size_t tasks;
    char reason[LAYERS_REASON];
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

static size_t loading_tasks(const void *loading, size_t phase) {
    return phase == LOADING_PACK ? ((const struct loading *)loading)->tasks : 1;
}

static bool loading_task(void *loading_, const struct jobs_task *task) {
    struct loading *loading = loading_;
    char ignored[LAYERS_REASON]; /* LOADING_WAIT reads the reason that all requests share */
    if (task->phase == LOADING_PACK) {
        layers_free_piece(loading->layers);
        layer_task(&loading->use, task->index, task->scratch, ignored);
        return true;
    }
    return layer_wait(&loading->use, loading->reason);
}

static void loading_answer(struct api_work *work, struct api_request *request) {
    const struct loading *loading = (const struct loading *)work;
    if (loading->reason[0] != '\0') {
        stored_refuse_weights(request, &loading->use, loading->reason);
    } else {
        reply_done(request, loading->use.layer, true);
    }
}

static void loading_release(struct api_work *work) {
    struct loading *loading = (struct loading *)work;
    layer_end(loading->layers, &loading->use);
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
    loading->layers = request->state->layers;
    const enum layer_status status =
        layer_begin(loading->layers, layer, ATTN_FLOAT32, &loading->use);
    if (status != LAYER_OK) {
        stored_refuse(request, status);
        loading_release(&loading->work);
        return NULL;
    }
    struct job *job = &loading->work.job;
    loading->tasks = layer_tasks(&loading->use);
    job->scratch = loading->tasks > 0 ? layer_scratch(&loading->use) : 0;
    job->cost = loading->tasks > 0 ? layer_cost(&loading->use) : 0;
    loading->phases =
        (struct job_phases){NULL, LOADING_PHASES, loading_tasks, loading_task, loading};
    job->phases = &loading->phases;
    loading->work.answer = loading_answer;
    loading->work.release = loading_release;
    if (!api_admit(request, &loading->work, job->scratch * request->state->threads, "")) {
        loading_release(&loading->work);
        return NULL;
    }
    return &loading->work;
}

static struct api_work *change(struct api_request *request, bool loads) {
    struct layers *layers = request->state->layers;
    struct api_work *work = NULL;
    char name[LAYERS_NAME + 1];
    if (inference_model(request->http->path) != NULL) {
        reply_problem(request, 501,
                      "this model is always loaded; only stored layers are loaded and unloaded");
        return NULL;
    }
    if (inference_layer(request->state, request->http, name) == NULL) {
        inference_refuse_model(request);
        return NULL;
    }
    const struct layers_catalogue *catalogue = layers_take(layers);
    const struct layer *layer = layers_find(catalogue, name);
    if (layer == NULL) { /* its file has gone just now */
        inference_refuse_model(request);
    } else if (!loads) {
        layers_unload(layers, layer);
        reply_done(request, layer, false);
    } else if (stored_fit(request, layer, 1)) {
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
