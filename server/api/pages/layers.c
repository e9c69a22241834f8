/*
 * layers.c - the endpoints of stored layers: GET /layers and /layers/{name} describe them, and POST
 * /layers/{name}/attention computes with the weights of one.
 */
#include "api/call/call.h"
#include "api/call/fields.h"
#include "api/pages/lists.h"
#include "api/reply.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Returns the store, or NULL after filling the response if the server has none. */
static struct layers *store_of(struct api_request *request) {
    if (request->state->layers == NULL) {
        reply_problem(
            request, 404,
            "this server has no stored layers: its operator names their folder with --layers");
    }
    return request->state->layers;
}

/* Answers that there is no layer of this name, or why a model of this name has none. */
static void refuse_name(struct api_request *request, const struct layers_catalogue *catalogue,
                        const char *name) {
    const struct layer_model *model = layers_find_model(catalogue, name);
    const char *reason = model == NULL ? "" : model->reason;
    char detail[512];
    snprintf(detail, sizeof detail, "there is no layer %.100s%s%s; GET /layers lists the layers",
             name, reason[0] == '\0' ? "" : ": ", reason);
    reply_problem(request, 404, detail);
}

/* Answers that a name stands for layers of two models. */
static void refuse_two_models(struct api_request *request, const char *name,
                              const struct layer_model *one, const struct layer_model *other) {
    char detail[512];
    snprintf(detail, sizeof detail,
             "the name %.128s stands for layers of the model %.128s and for layers of the model "
             "%.128s: ask for one layer by its whole name",
             name, one->name, other->name);
    reply_problem(request, 422, detail);
}

/* Adds the sizes and options of a layer that is served. */
static void add_properties(struct codec_items *list, const struct layer *layer) {
    const attn_options *o = &layer->options;
    const struct {
        const char *key;
        size_t size;
    } sizes[] = {{"heads", layer->heads},     {"kv_heads", layer->kv_heads},
                 {"d_model", layer->d_model}, {"d_context", layer->d_context},
                 {"d_value", layer->d_value}, {"d_k", layer->d},
                 {"d_v", layer->d_v},         {"d_out", layer->d_out},
                 {"bytes", layer->bytes}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        codec_add_number(list, sizes[i].key, (double)sizes[i].size);
    }
    codec_add_text(list, "dtype", codec_safetensors_types[layer->tensors[LAYER_W_Q].type]);
    codec_add_bool(list, "causal", o->causal);
    codec_add_bool(list, "rotary", layer->rotates);
    codec_add_bool(list, "alibi", (o->flags & ATTN_FLAG_ALIBI) != 0);
    codec_add_bool(list, "norm", layer->tensors[LAYER_NORM_Q].shard != NULL);
    codec_add_bool(list, "norm_V", layer->tensors[LAYER_NORM_V].shard != NULL);
    codec_add_bool(list, "relative_bias", layer->tensors[LAYER_RELATIVE_BIAS].shard != NULL);
    codec_add_bool(list, "sink", layer->tensors[LAYER_SINK].shard != NULL);
    codec_add_bool(list, "gate", layer->tensors[LAYER_W_G].shard != NULL);
    if ((o->flags & ATTN_FLAG_SCALE) != 0) {
        codec_add_number(list, "scale", o->scale);
    }
    if (o->softcap > 0) {
        codec_add_number(list, "softcap", o->softcap);
    }
    if ((o->flags & ATTN_FLAG_WINDOW) != 0) {
        codec_add_integers(list, "window", o->window, 2);
    }
}

/* Adds the keys of config.json that are not known, and of which no name speaks of attention. */
static void add_ignored_keys(struct codec_items *list, const char *names) {
    if (names == NULL) {
        return;
    }
    codec_add_open(list, CODEC_OP_ARRAY, "ignored_keys");
    for (; *names != '\0'; names += strlen(names) + 1) {
        codec_add_text(list, NULL, names);
    }
    codec_add_close(list);
}

/* Adds a layer, or a model of which no layer is served. */
static void add_listed(struct codec_items *list, const struct layers_entry *entry) {
    const struct layer *layer = entry->layer;
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    if (layer != NULL) {
        codec_add_text(list, "name", layer->name);
        codec_add_text(list, "family", layer->family);
    }
    codec_add_text(list, "model", entry->model->name);
    codec_add_text(list, "file", entry->model->file);
    if (entry->reason[0] == '\0') {
        add_properties(list, layer);
        add_ignored_keys(list, entry->model->ignored);
    } else {
        codec_add_text(list, "reason", entry->reason);
    }
    codec_add_close(list);
}

/* Adds the entries of a page that are served, or those that are not. */
static void add_entries(struct codec_items *list, const struct lists_page *page, bool refused) {
    for (size_t i = page->first; i < page->end; i++) {
        const struct layers_entry *entry = &page->catalogue->entries[i];
        if ((entry->reason[0] != '\0') == refused) {
            add_listed(list, entry);
        }
    }
}

static void add_page(struct codec_items *list, const struct lists_page *page) {
    const struct layers_catalogue *catalogue = page->catalogue;
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    codec_add_open(list, CODEC_OP_ARRAY, "layers");
    add_entries(list, page, false);
    codec_add_close(list);
    codec_add_open(list, CODEC_OP_ARRAY, "refused");
    add_entries(list, page, true);
    codec_add_close(list);
    if (page->end < catalogue->entry_count) {
        codec_add_text(list, "next", layers_entry_name(&catalogue->entries[page->end - 1]));
    }
    codec_add_close(list);
}

struct api_work *api_layers(struct api_request *request) {
    return lists_one_page(request, add_page);
}

struct api_work *api_layer(struct api_request *request) {
    struct layers *layers = store_of(request);
    struct codec_items list;
    if (layers == NULL) {
        return NULL;
    }
    const struct layers_catalogue *catalogue = layers_take(layers);
    const struct layer *layer = layers_find(catalogue, request->name);
    if (layer != NULL) {
        codec_items_begin(&list, NULL);
        add_listed(&list,
                   &(struct layers_entry){layer->model, layer, layers_reason(catalogue, layer)});
        reply_json(request, &list, 0);
    } else {
        refuse_name(request, catalogue, request->name);
    }
    layers_give(layers, catalogue);
    return NULL;
}

/* Refuses rows from earlier requests for more than one layer: each layer has rows of its own, and
 * those of one layer would be taken for those of all. Returns false with the error set. */
static bool refuse_past(struct api_request *request, size_t count, struct codec_error *error) {
    static const char *const names[] = {"past_K", "past_V"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct codec_value *value = fields_get(&request->fields, names[i]);
        if (value != NULL) {
            return codec_fail(request->body, value, error,
                              "%s holds rows of one layer, but this path stands for %zu layers: "
                              "ask for one layer by its whole name",
                              names[i], count);
        }
    }
    return true;
}

/* Refuses expected results where the answer lists layers. Returns false with the error set. */
static bool refuse_expected(struct api_request *request, struct codec_error *error) {
    const char *key = fields_expected_key();
    const struct codec_value *value = fields_get(&request->fields, key);
    return value == NULL || codec_fail(request->body, value, error,
                                       "%s holds results of one layer, but this path stands for "
                                       "all layers of a model: ask for one layer by its whole name",
                                       key);
}

/* Takes the part of a call's layer from a tensor whose first axis counts the layers of a model. */
static bool take_part(const struct call *call, struct api_request *request, const char *key,
                      attn_tensor *tensor, struct codec_error *error) {
    const size_t count = call->stored.count;
    if (tensor->shape[0] != count) {
        return codec_fail(
            request->body, fields_get(&request->fields, key), error,
            "the first axis of %s has %zu layers, but this model has %zu that are served", key,
            tensor->shape[0], count);
    }
    size_t size = attn_dtype_size(tensor->dtype);
    for (int axis = 1; axis < tensor->rank; axis++) {
        tensor->shape[axis - 1] = tensor->shape[axis];
        size *= tensor->shape[axis];
    }
    tensor->rank--;
    tensor->data = (char *)tensor->data + call->stored.item * size;
    return true;
}

/* Takes the part of each gradient of a result. */
static bool take_gradients(struct call *call, struct api_request *request,
                           struct codec_error *error) {
    const attn_upstream *up = &call->upstream;
    return (up->output == NULL ||
            take_part(call, request, "grad_output", &call->tensors.grad_output, error)) &&
           (up->lse == NULL ||
            take_part(call, request, "grad_lse", &call->tensors.grad_lse, error)) &&
           (up->weights == NULL ||
            take_part(call, request, "grad_weights", &call->tensors.grad_weights, error));
}

/* Refuses gradients of what is stored. */
static bool refuse_gradients(const struct call *call, struct api_request *request,
                             struct codec_error *error) {
    const attn_options *o = &call->options;
    const struct layer_use *use = &call->stored.weights.use;
    const struct {
        enum answer_name gradient;
        bool stored;
        const char *what;
    } all[] = {
        {ANSWER_GRAD_NORM_Q, o->norm_q == &use->tensors[LAYER_NORM_Q], "norm_Q"},
        {ANSWER_GRAD_NORM_K, o->norm_k == &use->tensors[LAYER_NORM_K], "norm_K"},
        {ANSWER_GRAD_NORM_V, o->norm_v == &use->tensors[LAYER_NORM_V], "norm_V"},
        {ANSWER_GRAD_SINK, o->sink == &use->tensors[LAYER_SINK], "sink"},
        {ANSWER_GRAD_BIAS, use->tensors[LAYER_RELATIVE_BIAS].data != NULL, "relative bias"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].stored && (o->results & answer_bits[all[i].gradient]) != 0) {
            return codec_fail(request->body, fields_get(&request->fields, "return"), error,
                              "%s: the layer %s has a %s of its own, and this service computes no "
                              "gradients of stored weights",
                              answer_names[all[i].gradient], use->layer->name, all[i].what);
        }
    }
    return true;
}

/* Reads the inputs and options of a call. X and the gradients of results are one matrix of the body
 * if it has one for each layer. */
static bool read_inputs(struct call *call, struct api_request *request, struct codec_error *error) {
    const size_t count = call->stored.count;
    const struct codec_value *value = fields_get(&request->fields, "X");
    attn_tensor *x = &call->tensors.x;
    if (value == NULL) {
        return codec_fail(request->body, NULL, error, "X is missing");
    }
    if ((count > 1 && !refuse_past(request, count, error)) ||
        (call->all_layers && !refuse_expected(request, error)) ||
        !fields_read_inputs(request, call, error)) {
        return false;
    }
    if (call->all_layers) {
        if (x->rank < 3) {
            return codec_fail(request->body, value, error,
                              "X must have one more axis, which comes first and counts the layers "
                              "of this model: %zu",
                              count);
        }
        if (!take_part(call, request, "X", x, error)) {
            return false;
        }
    }
    return fields_read_options(request, call, error) &&
           (!call->all_layers || take_gradients(call, request, error)) &&
           refuse_gradients(call, request, error);
}

/* Checks the columns of the inputs. The weights are no part of the request, so the error names an
 * input and the size of the layer that GET /layers shows. */
static bool check_columns(const struct call *call, struct api_request *request,
                          struct codec_error *error) {
    const struct layer *layer = call->stored.weights.use.layer;
    static const char *const keys[] = {"X", "context", "value_context"};
    static const char *const names[] = {"d_model", "d_context", "d_value"};
    const attn_multihead *m = &call->multihead;
    const attn_tensor *const inputs[] = {m->x, m->context, m->value_context};
    const size_t sizes[] = {layer->d_model, layer->d_context, layer->d_value};
    size_t from = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        from = inputs[i] != NULL ? i : from; /* an input that is missing is the one before it */
        const attn_tensor *x = inputs[from];
        if (x == NULL || x->rank < 2) {
            return true; /* the library refuses it */
        }
        const size_t columns = x->shape[x->rank - 1];
        if (columns != sizes[i]) {
            return codec_fail(request->body, fields_get(&request->fields, keys[from]), error,
                              "%s has %zu column%s, but %s of the layer %s is %zu", keys[from],
                              columns, columns == 1 ? "" : "s", names[i], layer->name, sizes[i]);
        }
    }
    return true;
}

/* Checks that the layer is known at all positions of the call. */
static bool check_positions(const struct call *call, struct api_request *request,
                            struct codec_error *error) {
    const struct layer *layer = call->stored.weights.use.layer;
    const attn_tensor *x = call->multihead.x, *given = call->rotary.positions;
    const attn_tensor *past = call->options.past_k;
    double last = 0;
    size_t count = 0;
    if (layer->positions == 0 || x->rank < 2) {
        return true;
    }
    if (given == NULL) {
        const attn_tensor *keys = call->multihead.context != NULL ? call->multihead.context : x;
        const size_t new_rows = keys->rank > 1 ? keys->shape[keys->rank - 2] : 0;
        const size_t rows = x->shape[x->rank - 2] > new_rows ? x->shape[x->rank - 2] : new_rows;
        last = (double)call->rotary.offset + (double)rows - 1 +
               (past != NULL && past->rank > 1 ? (double)past->shape[past->rank - 2] : 0);
    }
    for (size_t i = 0; given != NULL && attn_tensor_count(given, &count) && i < count; i++) {
        last = fmax(last, given->dtype == ATTN_FLOAT32 ? (double)((const float *)given->data)[i]
                                                       : ((const double *)given->data)[i]);
    }
    return last < (double)layer->positions ||
           codec_fail(request->body,
                      fields_get(&request->fields, given == NULL ? "X" : "positions"), error,
                      "the layer %s scales its queries from position %zu on, which is not computed "
                      "here, and the request has rows up to position %.0f",
                      layer->name, layer->positions, last);
}

static bool layer_read(struct call *call, struct api_request *request, struct codec_error *error) {
    return read_inputs(call, request, error) && check_columns(call, request, error) &&
           check_positions(call, request, error) && stored_bias(call, &request->account, error);
}

/* ------------------------------------------------------------------------- making many calls */

enum {
    LAYERS_AT_ONCE = 8,     /* calls that an I/O thread makes, in about 0.2 ms */
    LAYERS_OF_TASK = 256,   /* calls that a task makes, in about 5 ms */
    COST_OF_CALL = 1500000, /* multiply-adds that take as long as making one */
};

/* Work that makes a call with each of many layers, a few in each task; the work of these calls
 * follows it. */
struct making {
    struct api_work work; /* first */
    struct job_phases phases;
    struct api_request *request;
    const struct layers_catalogue *catalogue; /* kept until the work is released */
    const struct layer *next; /* the layers are those that are served from here on */
    size_t count, made;
    bool all_layers;
    struct call *head, *last; /* the calls that are made; owned */
};

/* Makes the calls up to number `end`. Returns false after filling the response. */
static bool make_calls(struct making *m, size_t end) {
    for (; m->made < end; m->made++, m->next++) {
        while (layers_reason(m->catalogue, m->next)[0] != '\0') {
            m->next++;
        }
        struct call *call = call_new(m->request, m->last);
        if (call == NULL) {
            return false;
        }
        m->head = m->head == NULL ? call : m->head;
        m->last = call;
        call->all_layers = m->all_layers;
        if (!stored_begin(call, m->request, m->next, m->made, m->count) ||
            !call_make(call, m->request, layer_read, call_plan_multihead)) {
            return false;
        }
    }
    return true;
}

static bool layers_make_on_worker(void *making, const struct jobs_task *task) {
    struct making *m = making;
    const size_t end = (task->phase + 1) * LAYERS_OF_TASK;
    return make_calls(m, end < m->count ? end : m->count);
}

/* Ends what was made, and gives the catalogue back; the calls keep their layers. */
static void layers_release(struct api_work *work) {
    struct making *m = (struct making *)work;
    call_end(m->head);
    layers_give(m->request->state->layers, m->catalogue);
}

/* Makes work of the calls, or ends them. */
static struct api_work *layers_next(struct api_work *work, struct api_request *request) {
    struct making *m = (struct making *)work;
    struct api_work *calls = call_work(m->head, request);
    if (calls != NULL) {
        m->head = NULL; /* they belong to their work */
    }
    layers_release(work);
    return calls;
}

/* A task has failed and filled the response. */
static bool layers_answer(struct api_work *work, struct api_request *request,
                          struct codec_items *list) {
    (void)work, (void)request, (void)list;
    return false;
}

/* Makes the calls in tasks. Returns NULL after filling the response. */
static struct api_work *make_later(const struct making *making) {
    struct making *m = account_alloc(&making->request->account, sizeof *m);
    if (m == NULL) {
        reply_no_memory(making->request);
        return NULL;
    }
    *m = *making;
    m->phases = (struct job_phases){NULL, (m->count - 1) / LAYERS_OF_TASK + 1, NULL,
                                    layers_make_on_worker, m};
    m->work.job.phases = &m->phases;
    m->work.job.cost = (double)m->count * COST_OF_CALL;
    m->work.next = layers_next;
    m->work.answer = layers_answer;
    m->work.release = layers_release;
    return &m->work;
}

struct api_work *api_layer_attention(struct api_request *request) {
    struct layers *layers = store_of(request);
    const char *name = request->name;
    struct making making = {.request = request};
    if (layers == NULL) {
        return NULL;
    }
    making.catalogue = layers_take(layers);
    const struct layer *one = layers_find(making.catalogue, name);
    const struct layer_model *other = NULL;
    size_t count = 1;
    making.next = one != NULL ? one : layers_under(making.catalogue, name, &count, &other);
    making.all_layers = one == NULL;
    if (making.next == NULL) {
        refuse_name(request, making.catalogue, name);
    } else if (other != NULL) {
        refuse_two_models(request, name, making.next->model, other);
    } else if (stored_fit(request, making.catalogue, making.next, count, &making.count)) {
        struct api_work *work = making.count > LAYERS_AT_ONCE ? make_later(&making) : NULL;
        if (work != NULL) {
            return work;
        }
        if (making.count <= LAYERS_AT_ONCE && make_calls(&making, making.count)) {
            return layers_next(&making.work, request);
        }
    }
    layers_release(&making.work);
    return NULL;
}
