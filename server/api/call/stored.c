/* stored.c - see stored.h. */
#include "api/call/stored.h"

#include <stdio.h>
#include <string.h>

#include "api/call/call.h"
#include "api/reply.h"

enum {
    BIAS_NUMBERS = 1 << 16, /* numbers of the bias that one task makes */
    COST_OF_BIAS = 200      /* multiply-adds that take as long as making one of them */
};

/* ---------------------------------------------------------------------------------- the weights */

bool stored_fit(struct api_request *request, const struct layers_catalogue *catalogue,
                const struct layer *first, size_t count, size_t *served) {
    const attn_dtype dtype =
        request->body == NULL ? ATTN_FLOAT32 : codec_document_dtype(request->body);
    size_t bytes = 0;
    char detail[512];
    *served = 0;
    for (size_t i = 0; i < count; i++) {
        if (layers_reason(catalogue, &first[i])[0] == '\0') {
            bytes += layer_packed_bytes(&first[i], dtype);
            ++*served;
        }
    }
    if (*served == 0) {
        snprintf(detail, sizeof detail, "the layer %s is not served: %s", first->name,
                 layers_reason(catalogue, first));
        reply_problem(request, 422, detail);
        return false;
    }
    if (bytes > layers_memory(request->state->layers)) {
        snprintf(detail, sizeof detail,
                 "the packed weights of %zu layer%s take %zu bytes; all layers together may take "
                 "%zu, a limit that the operator of this server sets with --layers-memory",
                 *served, *served == 1 ? "" : "s", bytes, layers_memory(request->state->layers));
        reply_problem(request, 413, detail);
        request->response->refused = "over --layers-memory";
        return false;
    }
    return true;
}

/* In the second phase the tasks of other requests that pack the same weights end. */
static size_t stored_pack_tasks(const void *weights, size_t phase) {
    return phase == 0 ? ((const struct stored_weights *)weights)->tasks : 1;
}

static bool stored_pack(void *weights, const struct jobs_task *task) {
    struct stored_weights *w = weights;
    if (task->phase == 0) {
        layers_free_chunk(w->layers);
        layer_task(&w->use, task->scratch);
        return true;
    }
    return layer_wait(&w->use, w->reason);
}

bool stored_use(struct api_request *request, struct stored_weights *w, const struct layer *layer,
                attn_dtype dtype) {
    w->layers = request->state->layers;
    w->phases = (struct job_phases){NULL, 2, stored_pack_tasks, stored_pack, w};
    const enum layer_status status = layer_begin(w->layers, layer, dtype, &w->use);
    if (status != LAYER_OK) {
        const bool busy = status == LAYER_BUSY;
        reply_problem(
            request, 503,
            busy ? "the layers that other requests use take the memory for packed weights: try "
                   "again in a second; the operator of this server sets the limit with "
                   "--layers-memory"
                 : "there is no memory for the weights of this layer: try again in a second");
        request->response->refused = busy ? "over --layers-memory" : "without memory";
        return false;
    }
    w->tasks = layer_tasks(&w->use);
    if (w->tasks > 0) {
        w->scratch = layer_scratch(&w->use);
        w->cost = layer_cost(&w->use);
    }
    return true;
}

bool stored_is_packed(struct api_request *request, const struct stored_weights *w) {
    if (w->reason[0] != '\0') {
        reply_problem(request, w->use.unreadable ? 503 : 422, w->reason);
    }
    return w->reason[0] == '\0';
}

bool stored_begin(struct call *call, struct api_request *request, const struct layer *layer,
                  size_t item, size_t count) {
    struct stored *s = &call->stored;
    s->item = item;
    s->count = count;
    if (!stored_use(request, &s->weights, layer, codec_document_dtype(request->body))) {
        return false;
    }
    layer_fill(&s->weights.use, &call->multihead, &call->options);
    if (layer->rotates) {
        call->rotary = layer->rotary;
        call->options.rotary = &call->rotary;
    }
    return true;
}

/* ---------------------------------------------------------------------------- the relative bias */

/* Removes the first axis of a tensor. */
static void drop_axis(attn_tensor *tensor) {
    memmove(tensor->shape, tensor->shape + 1, (ATTN_MAX_RANK - 1) * sizeof *tensor->shape);
    tensor->rank--;
}

bool stored_bias(struct call *call, struct account *account, struct codec_error *error) {
    struct stored *s = &call->stored;
    const attn_tensor *x = call->multihead.x, *given = call->options.bias;
    const attn_tensor *c = call->multihead.context != NULL ? call->multihead.context : x;
    const attn_tensor *past = call->options.past_k;
    if (s->weights.use.tensors[LAYER_RELATIVE_BIAS].data == NULL || x->rank < 2 || c->rank < 2) {
        return true;
    }
    const size_t heads = s->weights.use.layer->heads, n = x->shape[x->rank - 2];
    const size_t keys =
        c->shape[c->rank - 2] + (past != NULL && past->rank > 1 ? past->shape[past->rank - 2] : 0);
    /* Each batch item has a bias of its own if its queries stand at the end of its own keys. */
    const bool apart =
        call->options.lengths_count > 0 && (call->options.flags & ATTN_FLAG_BOTTOM_RIGHT) != 0;
    size_t items = apart && x->rank > 2 ? x->shape[0] : 1, bytes;
    if (given != NULL) {
        while (given->rank > 4 && given->shape[0] == 1) {
            drop_axis(&call->tensors.bias);
        }
        if (given->rank > 4) { /* the library will refuse it */
            return true;
        }
        items = !apart && given->rank == 4 ? given->shape[0] : items;
        const size_t want[] = {items, heads, n, keys};
        for (int back = 1; back <= given->rank; back++) { /* the same */
            const size_t size = given->shape[given->rank - back];
            if (size != 1 && size != want[4 - back]) {
                return true;
            }
        }
    }
    if (__builtin_mul_overflow(items * heads, n, &bytes) ||
        __builtin_mul_overflow(bytes, keys, &bytes) ||
        __builtin_mul_overflow(bytes, attn_dtype_size(x->dtype), &bytes) ||
        (s->numbers = account_alloc(account, bytes)) == NULL) {
        return codec_no_memory(error);
    }
    s->given = given;
    s->bias = (attn_tensor){
        .data = s->numbers, .dtype = x->dtype, .rank = 4, .shape = {items, heads, n, keys}};
    call->options.bias = &s->bias;
    return true;
}

/* Returns a number of a tensor of a float dtype. */
static double number_at(const attn_tensor *t, size_t index) {
    return t->dtype == ATTN_FLOAT32 ? (double)((const float *)t->data)[index]
                                    : ((const double *)t->data)[index];
}

/* Returns the place of an element of the request's bias, which is broadcast. */
static size_t given_index(const attn_tensor *t, const size_t at[static 4]) {
    size_t index = 0;
    for (int axis = 0; axis < t->rank; axis++) {
        const size_t i = at[4 - t->rank + axis];
        index = index * t->shape[axis] + (t->shape[axis] == 1 ? 0 : i);
    }
    return index;
}

/* Makes row `row` of the bias. */
static void make_bias_row(const struct call *call, size_t row) {
    const struct stored *s = &call->stored;
    const struct layer_use *use = &s->weights.use;
    const attn_tensor *bias = &s->bias, *table = &use->tensors[LAYER_RELATIVE_BIAS];
    const size_t heads = bias->shape[1], n = bias->shape[2], keys = bias->shape[3];
    const size_t i = row % n, h = row / n % heads, b = row / n / heads;
    const int64_t position = attn_plan_position(call->plan, b, i);
    for (size_t j = 0; j < keys; j++) {
        const size_t bucket = layer_bucket(use->layer, (int64_t)j - position);
        double number = number_at(table, bucket * heads + h);
        if (s->given != NULL) {
            number += number_at(s->given, given_index(s->given, (size_t[]){b, h, i, j}));
        }
        if (bias->dtype == ATTN_FLOAT32) {
            ((float *)s->numbers)[row * keys + j] = (float)number;
        } else {
            ((double *)s->numbers)[row * keys + j] = number;
        }
    }
}

/* Returns how many rows of the bias one task makes. */
static size_t rows_of_task(const struct stored *s) {
    const size_t rows = s->numbers == NULL ? 0 : BIAS_NUMBERS / s->bias.shape[3];
    return rows == 0 ? 1 : rows;
}

static size_t bias_rows(const struct stored *s) {
    return s->numbers == NULL ? 0 : s->bias.shape[0] * s->bias.shape[1] * s->bias.shape[2];
}

static size_t stored_bias_tasks(const void *call, size_t phase) {
    const struct stored *s = &((const struct call *)call)->stored;
    (void)phase;
    return bias_rows(s) == 0 ? 0 : (bias_rows(s) - 1) / rows_of_task(s) + 1;
}

static bool stored_make_bias(void *call_, const struct jobs_task *task) {
    const struct call *call = call_;
    const size_t rows = rows_of_task(&call->stored), all = bias_rows(&call->stored);
    const size_t first = task->index * rows;
    for (size_t row = first; row < first + rows && row < all; row++) {
        make_bias_row(call, row);
    }
    return true;
}

double stored_cost(const struct call *call) {
    const struct stored *s = &call->stored;
    return s->weights.cost + (double)bias_rows(s) * (double)s->bias.shape[3] * COST_OF_BIAS;
}

struct job_phases **stored_prepare(struct call *call, struct job_phases **end) {
    struct stored *s = &call->stored;
    if (s->weights.use.layer == NULL) {
        return end;
    }
    s->phases = (struct job_phases){NULL, 1, stored_bias_tasks, stored_make_bias, call};
    s->weights.phases.next = &s->phases;
    *end = &s->weights.phases;
    return &s->phases.next;
}
