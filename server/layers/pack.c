/*
 * pack.c - reads the tensors of a layer from its files, widens them to the dtype of a call, and
 * packs the matrices for the library. A task takes a block of a matrix, or a part of a vector, so
 * the time of a task does not depend on the shape. It opens the file and closes it again. Several
 * requests may share the tasks of one layer: each task is begun once, and the others wait for those
 * that are running.
 */
#include "layers/pack.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/shard.h"

enum {
    PART_NUMBERS = 1 << 18, /* the most numbers that one task reads */
    COST_OF_NUMBER = 400,   /* multiply-adds that take as long as packing a number */
    /* The most scales of a part of a row of a task. */
    MOST_SCALES = PART_NUMBERS / ATTN_PREPACK_COLUMNS / LAYER_LEAST_BLOCK + 2
};

static const char *const part_names[LAYER_PARTS] = {
    "W_Q",    "W_K",    "W_V",    "W_O",    "b_Q",
    "b_K",    "b_V",    "b_O",    "norm_Q", "norm_K",
    "norm_V", "bias_K", "bias_V", "sink",   "relative_attention_bias",
    "W_G",    "b_G"};

static bool is_matrix(size_t part) {
    return part <= LAYER_W_O || part == LAYER_W_G;
}

size_t pack_inputs(const struct layer_tensor *t) {
    return t->out_in ? t->columns : t->rows;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Where a task finds its numbers in a tensor. A vector is one row of outputs, and so is a table. */
struct block {
    size_t input, inputs, output, outputs;
};

/* Returns the sizes of a tensor: all its inputs and outputs. */
static struct block whole_of(const struct layer_tensor *t, size_t part) {
    return is_matrix(part) ? (struct block){.inputs = pack_inputs(t), .outputs = t->count}
                           : (struct block){.inputs = 1, .outputs = t->rows * t->count};
}

/* Returns the most inputs and outputs that one task packs. The outputs are a multiple of those that
 * the library packs together. */
static struct block step_of(const struct layer_tensor *t, size_t part) {
    const struct block whole = whole_of(t, part);
    const size_t inputs = least(whole.inputs, PART_NUMBERS / ATTN_PREPACK_COLUMNS);
    const size_t outputs =
        PART_NUMBERS / inputs / ATTN_PREPACK_COLUMNS * (size_t)ATTN_PREPACK_COLUMNS;
    return (struct block){.inputs = inputs, .outputs = least(outputs, whole.outputs)};
}

/* Returns the number of tasks of a tensor. */
static size_t tasks_of(const struct layer_tensor *t, size_t part) {
    const struct block whole = whole_of(t, part), step = step_of(t, part);
    return ((whole.inputs - 1) / step.inputs + 1) * ((whole.outputs - 1) / step.outputs + 1);
}

/* Returns what task number `task` of a tensor packs. */
static struct block block_of(const struct layer_tensor *t, size_t part, size_t task) {
    const struct block whole = whole_of(t, part), step = step_of(t, part);
    const size_t deep = (whole.inputs - 1) / step.inputs + 1;
    const size_t input = task % deep * step.inputs, output = task / deep * step.outputs;
    return (struct block){.input = input,
                          .inputs = least(whole.inputs - input, step.inputs),
                          .output = output,
                          .outputs = least(whole.outputs - output, step.outputs)};
}

/* Returns the shape of a tensor in the block. It has no place yet. */
static attn_tensor shape_of(const struct layer_tensor *t, size_t part, attn_dtype dtype) {
    if (is_matrix(part) || part == LAYER_RELATIVE_BIAS) {
        const size_t rows = is_matrix(part) ? pack_inputs(t) : t->rows;
        return (attn_tensor){.dtype = dtype, .rank = 2, .shape = {rows, t->count}};
    }
    return (attn_tensor){.dtype = dtype, .rank = 1, .shape = {t->count}};
}

/* Returns the bytes of a tensor in the block. */
static size_t bytes_in_block(const struct layer_tensor *t, size_t part, attn_dtype dtype) {
    attn_tensor shape = shape_of(t, part, dtype);
    size_t bytes = t->rows * t->count * attn_dtype_size(dtype);
    attn_error error;
    shape.data = t; /* anything but NULL */
    if (t->shard == NULL) {
        return 0;
    }
    if (!is_matrix(part)) {
        return (bytes + ATTN_ALIGNMENT - 1) / ATTN_ALIGNMENT * ATTN_ALIGNMENT;
    }
    return attn_prepack_bytes(&shape, ATTN_IN_OUT, &bytes, &error) == ATTN_OK ? bytes
                                                                              : SIZE_MAX / 64;
}

size_t layer_packed_bytes(const struct layer *layer, attn_dtype dtype) {
    size_t bytes = 0;
    for (size_t part = 0; part < LAYER_PARTS; part++) {
        bytes += bytes_in_block(&layer->tensors[part], part, dtype);
    }
    return bytes;
}

/* Returns a tensor, or NULL if the layer does not have it. */
static const attn_tensor *tensor_or_null(const struct layer_use *use, enum layer_part part) {
    return use->tensors[part].data == NULL ? NULL : &use->tensors[part];
}

void layer_fill(struct layer_use *use, attn_multihead *multihead, attn_options *options) {
    const struct layer *layer = use->layer;
    const uint64_t results = options->results;
    use->projection = (attn_projection){
        .w_q = tensor_or_null(use, LAYER_W_Q),
        .w_k = tensor_or_null(use, LAYER_W_K),
        .w_v = tensor_or_null(use, LAYER_W_V),
        .b_q = tensor_or_null(use, LAYER_B_Q),
        .b_k = tensor_or_null(use, LAYER_B_K),
        .b_v = tensor_or_null(use, LAYER_B_V),
    };
    multihead->projections = &use->projection;
    multihead->count = 1;
    multihead->layout = ATTN_PREPACKED;
    multihead->w_o = tensor_or_null(use, LAYER_W_O);
    multihead->b_o = tensor_or_null(use, LAYER_B_O);
    multihead->bias_k = tensor_or_null(use, LAYER_BIAS_K);
    multihead->bias_v = tensor_or_null(use, LAYER_BIAS_V);
    multihead->zero_key = layer->zero_key;
    *options = layer->options;
    options->results = results;
    options->heads = layer->heads;
    options->kv_heads = layer->kv_heads;
    options->norm_q = tensor_or_null(use, LAYER_NORM_Q);
    options->norm_k = tensor_or_null(use, LAYER_NORM_K);
    options->norm_v = tensor_or_null(use, LAYER_NORM_V);
    options->sink = tensor_or_null(use, LAYER_SINK);
    options->w_g = tensor_or_null(use, LAYER_W_G);
    options->b_g = tensor_or_null(use, LAYER_B_G);
}

size_t layer_bucket(const struct layer *layer, int64_t distance) {
    size_t buckets = layer->tensors[LAYER_RELATIVE_BIAS].rows, first = 0;
    if (layer->bidirectional) {
        buckets /= 2;
        first = distance > 0 ? buckets : 0;
        distance = distance < 0 ? -distance : distance;
    } else {
        distance = distance < 0 ? -distance : 0;
    }
    const size_t exact = buckets / 2;
    if (distance < (int64_t)exact) {
        return first + (size_t)distance;
    }
    const double share =
        log((double)distance / (double)exact) / log((double)layer->max_distance / (double)exact);
    const double bucket = (double)exact + floor(share * (double)(buckets - exact));
    return first + (bucket < (double)(buckets - 1) ? (size_t)bucket : buckets - 1);
}

bool pack_check(const struct layer *layer, attn_error *error) {
    static const _Alignas(ATTN_ALIGNMENT) float nothing; /* a plan that has not begun reads none */
    struct layer_use use = {.layer = layer};
    const attn_tensor x = {.data = &nothing, .rank = 2, .shape = {1, layer->d_model}};
    const attn_tensor context = {.data = &nothing, .rank = 2, .shape = {1, layer->d_context}};
    const attn_tensor values = {.data = &nothing, .rank = 2, .shape = {1, layer->d_value}};
    attn_multihead multihead = {.x = &x, .context = &context, .value_context = &values};
    attn_options options = {.results = ATTN_WANT(OUTPUT)};
    attn_plan *plan = NULL;
    for (size_t part = 0; part < LAYER_PARTS; part++) {
        if (layer->tensors[part].shard != NULL) {
            use.tensors[part] = shape_of(&layer->tensors[part], part, ATTN_FLOAT32);
            use.tensors[part].data = &nothing;
        }
    }
    layer_fill(&use, &multihead, &options);
    options.rotary = layer->rotates ? &layer->rotary : NULL;
    const bool good = attn_plan_multihead(&plan, &multihead, &options, error) == ATTN_OK;
    attn_plan_free(plan);
    return good;
}

struct layer_packed *pack_new(const struct layer *layer, attn_dtype dtype) {
    struct layer_packed *packed = calloc(1, sizeof *packed);
    const size_t bytes = layer_packed_bytes(layer, dtype);
    if (packed == NULL || (packed->block = aligned_alloc(ATTN_ALIGNMENT, bytes)) == NULL) {
        free(packed);
        return NULL;
    }
    packed->layer = layer;
    packed->bytes = bytes;
    pthread_mutex_init(&packed->mutex, NULL);
    pthread_cond_init(&packed->changed, NULL);
    size_t at = 0;
    for (size_t part = 0; part < LAYER_PARTS; part++) {
        const struct layer_tensor *t = &layer->tensors[part];
        if (t->shard == NULL) {
            continue;
        }
        packed->tensors[part] = shape_of(t, part, dtype);
        packed->tensors[part].data = packed->block + at;
        packed->parts[part] = tasks_of(t, part);
        packed->tasks += packed->parts[part];
        at += bytes_in_block(t, part, dtype);
    }
    return packed;
}

void pack_free(struct layer_packed *packed) {
    if (packed == NULL) {
        return;
    }
    pthread_mutex_destroy(&packed->mutex);
    pthread_cond_destroy(&packed->changed);
    free(packed->block);
    free(packed);
}

/* ------------------------------------------------------------------------------------ the tasks */

bool pack_has_failed(struct layer_packed *packed) {
    pthread_mutex_lock(&packed->mutex);
    const bool failed = packed->failed;
    pthread_mutex_unlock(&packed->mutex);
    return failed;
}

size_t layer_tasks(const struct layer_use *use) {
    struct layer_packed *packed = use->packed;
    pthread_mutex_lock(&packed->mutex);
    const size_t left = packed->done == packed->tasks ? 0 : packed->tasks;
    pthread_mutex_unlock(&packed->mutex);
    return left;
}

/* Returns the most numbers that one task reads. */
static size_t numbers_of_task(const struct layer *layer) {
    size_t most = 0;
    for (size_t part = 0; part < LAYER_PARTS; part++) {
        const struct layer_tensor *t = &layer->tensors[part];
        if (t->shard != NULL) {
            const struct block step = step_of(t, part);
            const size_t numbers = step.inputs * step.outputs;
            most = numbers > most ? numbers : most;
        }
    }
    return most;
}

/* A task needs room for the bytes of the file, and for the numbers before they are packed. */
size_t layer_scratch(const struct layer_use *use) {
    return numbers_of_task(use->layer) * 2 * sizeof(double);
}

double layer_cost(const struct layer_use *use) {
    return (double)use->packed->bytes / 4 * COST_OF_NUMBER;
}

/* The part of a tensor that a task reads from a file and widens. */
struct block_reading {
    const struct layer_tensor *tensor;
    bool matrix;
    struct block block;
    attn_dtype dtype;
    char *bytes;               /* room for the numbers as the file has them */
    char *numbers;             /* where the next numbers go, in the layout of the file */
    bool finite;               /* all numbers so far are */
    int scales;                /* the file of the scales, if the tensor has them */
    size_t scaled;             /* 1 + the row of scales that was read last; 0: none */
    double scale[MOST_SCALES]; /* those of the columns of the block */
};

/* Multiplies the numbers of a part of a row by their scales. `place` is that of the first one in
 * the tensor. Returns false with errno if the scales cannot be read. */
static bool scale_numbers(struct block_reading *r, size_t place, size_t count, char *numbers) {
    const struct layer_scales *s = &r->tensor->scales;
    const size_t row = place / r->tensor->columns / s->block_rows;
    const size_t column = place % r->tensor->columns, first = column / s->block_columns;
    const size_t scales = (column + count - 1) / s->block_columns + 1 - first;
    const size_t width = codec_type_size(s->type);
    char bytes[MOST_SCALES * sizeof(double)];
    if (r->scaled != row + 1) {
        if (!shard_read_at(r->scales, bytes, scales * width,
                           s->offset + (row * s->columns + first) * width)) {
            return false;
        }
        r->finite &= codec_widen(s->type, bytes, scales, ATTN_FLOAT64, r->scale);
        r->scaled = row + 1;
    }
    for (size_t i = 0; i < count; i++) {
        const double scale = r->scale[(column + i) / s->block_columns - first];
        double scaled;
        if (r->dtype == ATTN_FLOAT32) {
            scaled = ((float *)numbers)[i] *= (float)scale;
        } else {
            scaled = ((double *)numbers)[i] *= scale;
        }
        r->finite &= isfinite(scaled) != 0;
    }
    return true;
}

/* Reads `rows` rows of `count` numbers. The numbers of a row begin at `at` in the tensor, and those
 * of the next row `stride` numbers later. Rows that follow one another are read together. Returns
 * false with errno if the file cannot be read. */
static bool read_rows(struct block_reading *r, int fd, size_t at, size_t stride, size_t rows,
                      size_t count) {
    const struct layer_tensor *t = r->tensor;
    const size_t width = codec_type_size(t->type), together = stride == count ? rows : 1;
    for (size_t row = 0; row < rows; row += together) {
        if (!shard_read_at(fd, r->bytes, together * count * width,
                           t->offset + (at + row * stride) * width)) {
            return false;
        }
        r->finite &= codec_widen(t->type, r->bytes, together * count, r->dtype, r->numbers);
        for (size_t i = 0; i < together; i++, r->numbers += count * attn_dtype_size(r->dtype)) {
            if (t->scales.shard != NULL &&
                !scale_numbers(r, at + (row + i) * stride, count, r->numbers)) {
                return false;
            }
        }
    }
    return true;
}

/* Returns where output `at` of a part lies in its tensor, and how many outputs, at most `count`,
 * lie together from there on. */
static size_t place_of_output(const struct layer_tensor *t, size_t at, size_t count,
                              size_t *together) {
    if (t->block == 0) {
        *together = count;
        return t->first + at;
    }
    *together = least(t->block - at % t->block, count);
    return t->first + at / t->block * t->stride + at % t->block;
}

/* Reads a block of a tensor. Only outputs that are rows, and vectors, may lie apart. */
static bool read_block(struct block_reading *r, int fd) {
    const struct layer_tensor *t = r->tensor;
    const struct block *b = &r->block;
    const size_t stride = r->matrix ? t->columns : 1;
    size_t together;
    if (r->matrix && !t->out_in) {
        return read_rows(r, fd, b->input * stride + t->first + b->output, stride, b->inputs,
                         b->outputs);
    }
    for (size_t at = 0; at < b->outputs; at += together) {
        const size_t place = place_of_output(t, b->output + at, b->outputs - at, &together);
        if (!read_rows(r, fd, place * stride + b->input, stride, together, b->inputs)) {
            return false;
        }
    }
    return true;
}

/* Adds 1 to numbers that are stored as differences from 1. */
static void add_one(attn_dtype dtype, char *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (dtype == ATTN_FLOAT32) {
            ((float *)numbers)[i] += 1;
        } else {
            ((double *)numbers)[i] += 1;
        }
    }
}

/* Reads a block from the file of its shard, and its scales from theirs. Returns 0, or the errno of
 * the failure: ESTALE if a file is another one or has changed, also while it was read. */
static int read_file(struct block_reading *r) {
    const struct layer_shard *shard = r->tensor->shard, *scales = r->tensor->scales.shard;
    const int fd = shard_open_inside(shard->folder, shard->path, 0);
    if (fd < 0) {
        return errno;
    }
    r->scales =
        scales == NULL || scales == shard ? fd : shard_open_inside(scales->folder, scales->path, 0);
    int error = r->scales >= 0 && read_block(r, fd) ? 0 : errno == 0 ? EIO : errno;
    if (!shard_is_unchanged(shard, fd) ||
        (scales != NULL && r->scales >= 0 && !shard_is_unchanged(scales, r->scales))) {
        error = ESTALE;
    }
    if (r->scales >= 0 && r->scales != fd) {
        close(r->scales);
    }
    close(fd);
    return error;
}

/* Packs a block of a matrix. */
static bool pack_block(const struct block_reading *r, const char *numbers, char *target,
                       char reason[static LAYERS_REASON]) {
    const struct layer_tensor *t = r->tensor;
    const struct block *b = &r->block;
    const attn_tensor weights = {
        .data = numbers,
        .dtype = r->dtype,
        .rank = 2,
        .shape = {t->out_in ? b->outputs : b->inputs, t->out_in ? b->inputs : b->outputs}};
    attn_error error;
    const bool good =
        attn_prepack_part(&weights, t->out_in ? ATTN_OUT_IN : ATTN_IN_OUT, b->input, pack_inputs(t),
                          b->output, t->count, target, &error) == ATTN_OK;
    if (!good) {
        snprintf(reason, LAYERS_REASON, "%.200s", error.message);
    }
    return good;
}

/* Packs one block of a tensor. Returns false with a reason; *unreadable says that the file is
 * it. */
static bool pack_part(const struct layer_packed *packed, size_t part, size_t index, char *scratch,
                      bool *unreadable, char reason[static LAYERS_REASON]) {
    const struct layer_tensor *t = &packed->layer->tensors[part];
    const attn_tensor *to = &packed->tensors[part];
    const bool matrix = is_matrix(part);
    const struct block b = block_of(t, part, index);
    char *target = packed->block + ((const char *)to->data - packed->block);
    char *numbers = matrix ? scratch + numbers_of_task(packed->layer) * sizeof(double)
                           : target + b.output * attn_dtype_size(to->dtype);
    struct block_reading r = {.tensor = t,
                              .matrix = matrix,
                              .block = b,
                              .dtype = to->dtype,
                              .bytes = scratch,
                              .numbers = numbers,
                              .finite = true};
    if (t->ones) {
        memset(numbers, 0, b.outputs * attn_dtype_size(to->dtype));
    }
    const int error = t->ones ? 0 : read_file(&r);
    *unreadable = error != 0;
    if (error != 0) {
        snprintf(reason, LAYERS_REASON, "%s of the layer %.90s cannot be read: %s",
                 part_names[part], packed->layer->name,
                 error == ESTALE || error == ENOENT ? "its file has changed, try again in a second"
                                                    : strerror(error));
        return false;
    }
    if (!r.finite) {
        snprintf(reason, LAYERS_REASON,
                 "%s of the layer %.100s has a number that is not finite in the dtype of the "
                 "request",
                 part_names[part], packed->layer->name);
        return false;
    }
    if (t->from_one || t->ones) {
        add_one(to->dtype, numbers, b.outputs);
    }
    return !matrix || pack_block(&r, numbers, target, reason);
}

void layer_task(struct layer_use *use, void *scratch) {
    struct layer_packed *packed = use->packed;
    char reason[LAYERS_REASON];
    pthread_mutex_lock(&packed->mutex);
    const size_t mine = packed->failed ? packed->tasks : packed->begun;
    packed->begun += mine < packed->tasks;
    pthread_mutex_unlock(&packed->mutex);
    if (mine >= packed->tasks) {
        return;
    }
    bool unreadable = false;
    size_t part = 0, task = mine; /* of this part */
    while (task >= packed->parts[part]) {
        task -= packed->parts[part++];
    }
    const bool good = pack_part(packed, part, task, scratch, &unreadable, reason);
    pthread_mutex_lock(&packed->mutex);
    packed->done++;
    if (!good && !packed->failed) {
        packed->failed = true;
        packed->unreadable = unreadable;
        memcpy(packed->reason, reason, LAYERS_REASON);
    }
    pthread_cond_broadcast(&packed->changed);
    pthread_mutex_unlock(&packed->mutex);
}

bool layer_wait(struct layer_use *use, char reason[static LAYERS_REASON]) {
    struct layer_packed *packed = use->packed;
    pthread_mutex_lock(&packed->mutex);
    while (packed->done < packed->begun) {
        pthread_cond_wait(&packed->changed, &packed->mutex);
    }
    const bool good = !packed->failed;
    use->unreadable = packed->unreadable;
    memcpy(reason, packed->reason, LAYERS_REASON);
    pthread_mutex_unlock(&packed->mutex);
    return good;
}
