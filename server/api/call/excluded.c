/* excluded.c - see excluded.h. */
#include "api/call/excluded.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "api/call/call.h"
#include "api/reply.h"
#include "api/request.h"

enum {
    CHUNK_NUMBERS = 1 << 20,  /* numbers that one task looks at */
    SCALED_NUMBERS = 1 << 17, /* numbers that one task multiplies; each may have its own scale */
    COST_OF_NUMBER = 100,     /* multiply-adds that take as long as looking at a number */
    COST_OF_SCALED = 400      /* the same for a number that is also multiplied */
};

/* ------------------------------------------------------------------------------------- the rows */

/* How the numbers of a tensor lie: `columns` numbers of a row, then the rows, then the heads. */
struct layout {
    size_t columns, rows, heads, items;
    size_t past; /* the keys before the first row */
};

static struct layout layout_of(const struct call *call, const attn_tensor *t) {
    const attn_tensor *past = call->options.past_k;
    const attn_projection *projected = call->multihead.projections;
    const bool context = t == call->multihead.context || t == call->multihead.value_context,
               heads_follow = call->options.sequences != NULL && t->rank == 3,
               split = call->options.heads != 0,
               headed = projected == NULL ? !split : split || projected->w_q->rank == 3;
    const int row = heads_follow ? 0 : t->rank - 2;
    struct layout l = {.columns = 1, .rows = t->shape[row], .heads = 1, .items = 1};
    for (int axis = row + 1; axis < t->rank; axis++) {
        l.columns *= t->shape[axis];
    }
    for (int axis = 0; axis < row; axis++) {
        *(axis == row - 1 && headed && !context ? &l.heads : &l.items) *= t->shape[axis];
    }
    if (past != NULL && t != past && t != call->options.past_v) {
        l.past = past->shape[past->rank - 2];
    }
    return l;
}

/* Returns whether the sequence of this row of K has no queries. */
static bool is_alone(const struct call *call, size_t row) {
    const size_t *starts = call->excluded->starts;
    size_t low = 0, high = call->sequences.count; /* starts[low] <= row < starts[high] */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(starts[middle] <= row ? &low : &high) = middle;
    }
    return call->sequences.queries[low] == 0;
}

/* Returns whether the key of a batch item is excluded. */
static bool is_excluded(const struct call *call, size_t item, size_t key) {
    const attn_options *o = &call->options;
    if (o->lengths_count != 0 && key >= o->lengths[o->lengths_count == 1 ? 0 : item]) {
        return true;
    }
    const attn_tensor *padding = o->key_padding;
    if (padding == NULL) {
        return false;
    }
    const size_t keys = padding->shape[padding->rank - 1],
                 all = codec_count(padding->rank - 1, padding->shape);
    return ((const unsigned char *)padding->data)[(all == 1 ? 0 : item) * keys + key] == 0;
}

/* Returns the most keys that a batch item may have. */
static size_t longest(const attn_options *o) {
    size_t most = o->lengths_count == 0 ? SIZE_MAX : 0;
    for (size_t i = 0; i < o->lengths_count; i++) {
        most = o->lengths[i] > most ? o->lengths[i] : most;
    }
    return most;
}

/* Returns whether a row is excluded for each batch item that has it. */
static bool is_excluded_row(const struct call *call, const struct layout *l, size_t row) {
    const attn_options *o = &call->options;
    const size_t key = l->past + row % l->rows, item = row / l->rows / l->heads;
    if (o->sequences != NULL) {
        return is_alone(call, key);
    }
    if (l->items > 1) {
        return is_excluded(call, item, key);
    }
    return key >= call->excluded->longest ||
           (o->key_padding != NULL &&
            atomic_load_explicit(&call->excluded->seen[key], memory_order_relaxed) == 0);
}

/* ------------------------------------------------------------------------------------- the call */

bool excluded_note(struct call *call, struct codec_document *document,
                   const struct excluded_tensor *noted, struct codec_error *error) {
    struct excluded *x = call->excluded;
    size_t at = 0;
    if (x == NULL) {
        x = account_alloc(codec_document_account(document), sizeof *x);
        if (x == NULL) {
            return codec_no_memory(error);
        }
        *x = (struct excluded){0};
        pthread_mutex_init(&x->mutex, NULL);
        call->excluded = x;
    }
    while (at < x->count && x->list[at].tensor != noted->tensor) {
        at++;
    }
    assert(at < EXCLUDED_TENSORS);
    if (at == x->count) {
        x->list[x->count++] = *noted;
    }
    x->list[at].scale = noted->scale;
    return true;
}

bool excluded_has_scales(const struct call *call) {
    const struct excluded *x = call->excluded;
    size_t i = 0;
    while (x != NULL && i < x->count && x->list[i].scale == NULL) {
        i++;
    }
    return x != NULL && i < x->count;
}

/* Returns how many numbers of a tensor a task gets. */
static size_t chunk_of(const struct excluded_tensor *t) {
    return t->scale != NULL ? SCALED_NUMBERS : CHUNK_NUMBERS;
}

/* Finds where the sequences begin in K. */
static bool find_starts(struct call *call, struct account *account, struct codec_error *error) {
    const attn_sequences *s = &call->sequences;
    const size_t *keys = s->keys != NULL ? s->keys : s->queries;
    size_t *starts = account_alloc(account, (s->count + 1) * sizeof *starts);
    if (starts == NULL) {
        return codec_no_memory(error);
    }
    starts[0] = 0;
    for (size_t i = 0; i < s->count; i++) {
        starts[i + 1] = starts[i] + keys[i]; /* no sum of a valid call is too large */
    }
    call->excluded->starts = starts;
    return true;
}

bool excluded_check(struct call *call, struct codec_document *document, struct codec_error *error) {
    struct excluded *x = call->excluded;
    const attn_options *o = &call->options;
    if (x == NULL) {
        return true;
    }
    const bool none = o->sequences == NULL && o->lengths_count == 0 && o->key_padding == NULL;
    x->longest = longest(o);
    for (size_t i = 0; i < x->count; i++) {
        struct excluded_tensor *t = &x->list[i];
        if (none && t->special != SIZE_MAX) {
            return codec_refuse_special(document, t->value, t->special, error);
        }
        t->count = codec_count(t->tensor->rank, t->tensor->shape);
        t->tasks = (t->count + chunk_of(t) - 1) / chunk_of(t);
    }
    struct account *account = codec_document_account(document);
    if (o->key_padding != NULL) {
        const size_t keys = o->key_padding->shape[o->key_padding->rank - 1];
        x->seen = account_alloc(account, keys * sizeof *x->seen);
        if (x->seen == NULL) {
            return codec_no_memory(error);
        }
        for (size_t key = 0; key < keys; key++) {
            atomic_init(&x->seen[key], 0);
        }
    }
    return o->sequences == NULL || find_starts(call, account, error);
}

/* Notes the keys of the numbers [first, end) of key_padding that are there. */
static void note_seen(struct call *call, size_t first, size_t end) {
    const attn_options *o = &call->options;
    const attn_tensor *padding = o->key_padding;
    const unsigned char *there = padding->data;
    const size_t keys = padding->shape[padding->rank - 1];
    const bool shared = codec_count(padding->rank - 1, padding->shape) == 1;
    for (size_t i = first; i < end; i++) {
        const size_t item = i / keys, key = i % keys;
        const size_t length = o->lengths_count == 0 ? SIZE_MAX
                              : shared              ? call->excluded->longest
                                                    : o->lengths[o->lengths_count == 1 ? 0 : item];
        if (there[i] != 0 && key < length) {
            atomic_store_explicit(&call->excluded->seen[key], 1, memory_order_relaxed);
        }
    }
}

/* Makes 0 of those of the numbers [first, end) that are not finite and in an excluded row. Notes
 * the first one in another row. */
static void clear_excluded(struct call *call, struct excluded_tensor *t, size_t first, size_t end) {
    const struct layout l = layout_of(call, t->tensor);
    for (size_t i = codec_find_special(t->value, first, end); i < end;) {
        const size_t row = i / l.columns, last = (row + 1) * l.columns;
        const size_t stop = last < end ? last : end;
        if (t->tensor == call->q || !is_excluded_row(call, &l, row)) {
            pthread_mutex_lock(&call->excluded->mutex);
            t->special = i < t->special ? i : t->special;
            pthread_mutex_unlock(&call->excluded->mutex);
            return;
        }
        codec_clear_special(t->value, i, stop);
        i = codec_find_special(t->value, stop, end);
    }
}

/* Returns how many numbers key_padding has. */
static size_t paddings(const struct call *call) {
    const attn_tensor *padding = call->options.key_padding;
    return padding == NULL ? 0 : codec_count(padding->rank, padding->shape);
}

/* The first phase looks at key_padding, and the second one at the tensors. The third one has one
 * task, which fails if a number is refused. */
static size_t excluded_tasks(const void *call, size_t phase) {
    const struct excluded *x = ((const struct call *)call)->excluded;
    size_t tasks = 0;
    if (phase == 0) {
        return (paddings(call) + CHUNK_NUMBERS - 1) / CHUNK_NUMBERS;
    }
    for (size_t i = 0; i < x->count; i++) {
        tasks += x->list[i].tasks;
    }
    return phase == 1 ? tasks : 1;
}

static bool excluded_run(void *call_, const struct jobs_task *task) {
    struct call *call = call_;
    struct excluded_tensor *t = call->excluded->list;
    size_t index = task->index;
    bool good = true;
    if (task->phase == 0) {
        const size_t first = index * CHUNK_NUMBERS, left = paddings(call) - first;
        note_seen(call, first, first + (left < CHUNK_NUMBERS ? left : CHUNK_NUMBERS));
        return true;
    }
    if (task->phase > 1) {
        for (size_t i = 0; i < call->excluded->count; i++) {
            good = good && t[i].special == SIZE_MAX;
        }
        return good;
    }
    for (; index >= t->tasks; t++) {
        index -= t->tasks;
    }
    const size_t chunk = chunk_of(t), first = index * chunk, left = t->count - first;
    const size_t end = first + (left < chunk ? left : chunk);
    if (t->scale != NULL) {
        codec_scale(t->value, t->scale, first, end);
    }
    clear_excluded(call, t, first, end);
    return true;
}

double excluded_cost(const struct call *call) {
    double cost = call->excluded != NULL ? (double)paddings(call) * COST_OF_NUMBER : 0;
    for (size_t i = 0; call->excluded != NULL && i < call->excluded->count; i++) {
        const struct excluded_tensor *t = &call->excluded->list[i];
        cost += (double)t->count * (t->scale != NULL ? COST_OF_SCALED : COST_OF_NUMBER);
    }
    return cost;
}

struct job_phases **excluded_add_phases(struct call *call, struct job_phases **end) {
    struct excluded *x = call->excluded;
    if (x == NULL) {
        return end;
    }
    for (size_t i = 0; i < x->count; i++) {
        x->list[i].special = SIZE_MAX;
    }
    x->phases = (struct job_phases){NULL, 3, excluded_tasks, excluded_run, call};
    *end = &x->phases;
    return &x->phases.next;
}

bool excluded_end(const struct call *call, struct api_request *request) {
    const struct excluded *x = call->excluded;
    for (size_t i = 0; x != NULL && i < x->count; i++) {
        if (x->list[i].special != SIZE_MAX) {
            struct codec_error error = {0};
            codec_refuse_special(request->body, x->list[i].value, x->list[i].special, &error);
            if (x->list[i].scale != NULL) {
                const size_t used = strlen(error.message);
                snprintf(error.message + used, sizeof error.message - used,
                         "; the product with %s_scale is not finite", codec_name(x->list[i].value));
            }
            reply_codec_error(request, &error);
            return false;
        }
    }
    return true;
}

void excluded_free(struct call *call) {
    if (call->excluded != NULL) {
        pthread_mutex_destroy(&call->excluded->mutex);
    }
}
