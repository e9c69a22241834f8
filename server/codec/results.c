/* results.c - the results of an answer as binary tensors: their names, their types and their
 * bytes. */
#include "codec/binary.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_OPEN = 5 /* most objects and arrays of an answer that are open at once */
};

/* ------------------------------------------------------------------------------------ the list */

/* The objects and arrays that are open, by their keys. The outermost object has none. An object in
 * an array has its number as its key. */
struct path {
    struct path_step {
        const char *key;
        char number[24];
        bool array;
        size_t count; /* of the array, so far */
    } steps[MAX_OPEN];
    size_t depth;
};

static void open_step(struct path *path, const char *key, bool array) {
    assert(path->depth < MAX_OPEN);
    struct path_step *outer = path->depth > 0 ? &path->steps[path->depth - 1] : NULL;
    struct path_step *step = &path->steps[path->depth++];
    *step = (struct path_step){.key = key, .array = array};
    if (outer != NULL && outer->array) {
        snprintf(step->number, sizeof step->number, "%zu", outer->count++);
        step->key = step->number;
    }
}

static enum codec_type type_of(attn_dtype dtype, enum codec_type narrow) {
    switch (dtype) {
    case ATTN_FLOAT32:
        return narrow == CODEC_TYPE_FP16 || narrow == CODEC_TYPE_BF16 ? narrow : CODEC_TYPE_FP32;
    case ATTN_FLOAT64:
        return CODEC_TYPE_FP64;
    case ATTN_INT64:
        return CODEC_TYPE_INT64;
    default:
        return CODEC_TYPE_BOOL;
    }
}

/* Adds a result and returns it, or returns NULL if there is no memory. */
static struct codec_result *add(struct codec_results *results, const struct path *path,
                                const char *key, const attn_tensor *tensor,
                                enum codec_type narrow) {
    struct codec_result *list = account_grow(results->account, results->list, &results->capacity,
                                             results->count + 1, sizeof *list);
    if (list == NULL) {
        return NULL;
    }
    results->list = list;
    struct codec_result *result = &list[results->count++];
    const enum codec_type type = type_of(tensor->dtype, narrow);
    size_t size = 0;
    *result = (struct codec_result){.tensor = *tensor, .type = type, .binary = true};
    result->bytes = codec_type_size(type) * codec_count(tensor->rank, tensor->shape);
    for (size_t i = 1; i < path->depth; i++) {
        assert(size < sizeof result->name);
        size += (size_t)snprintf(result->name + size, sizeof result->name - size, "%s.",
                                 path->steps[i].key);
    }
    size += (size_t)snprintf(result->name + size, sizeof result->name - size, "%s", key);
    assert(size < sizeof result->name); /* the names of results are few and short */
    return result;
}

static bool add_parts(struct codec_results *results, const struct path *path,
                      const struct codec_item *item, enum codec_type narrow) {
    for (size_t i = 0; i < item->count; i++) {
        char key[32];
        const attn_tensor tensor = attn_as_tensor(&item->parts[i]);
        snprintf(key, sizeof key, "%s.%zu", item->key, i);
        if (add(results, path, key, &tensor, narrow) == NULL) {
            return false;
        }
    }
    return true;
}

static bool add_number(struct codec_results *results, const struct path *path,
                       const struct codec_item *item) {
    const attn_tensor tensor = {.dtype = ATTN_FLOAT64};
    struct codec_result *result = add(results, path, item->key, &tensor, CODEC_TYPE_FP64);
    if (result != NULL) {
        result->number = item->number;
    }
    return result != NULL;
}

bool codec_results_make(struct codec_results *results, const struct codec_item *items, size_t count,
                        enum codec_type narrow, struct account *account) {
    struct path path = {.depth = 0};
    bool good = true;
    results->account = account;
    for (size_t i = 0; good && i < count; i++) {
        switch (items[i].op) {
        case CODEC_OP_OBJECT:
        case CODEC_OP_ARRAY:
            open_step(&path, items[i].key, items[i].op == CODEC_OP_ARRAY);
            break;
        case CODEC_OP_END:
            assert(path.depth > 0);
            path.depth--;
            break;
        case CODEC_OP_TENSOR:
            good = add(results, &path, items[i].key, &items[i].tensor, narrow) != NULL;
            break;
        case CODEC_OP_PARTS:
            good = add_parts(results, &path, &items[i], narrow);
            break;
        case CODEC_OP_NUMBER:
            good = add_number(results, &path, &items[i]);
            break;
        default: /* texts */
            break;
        }
    }
    return good;
}

void codec_results_free(struct codec_results *results) {
    account_free(results->account, results->list);
    *results = (struct codec_results){0};
}

/* --------------------------------------------------------------------------------- conversions */

/* Rounds to nearest, ties to even, without a branch so that the compiler makes vectors of the loop.
 * A magnitude below 2^-14 becomes a subnormal half: adding 0.5 aligns its bits and rounds them. */
static inline uint16_t narrow_half(float number) {
    union {
        float number;
        uint32_t bits;
    } wide = {.number = number}, small;
    const uint32_t sign = wide.bits >> 16 & 0x8000, magnitude = wide.bits & 0x7FFFFFFF;
    small.bits = magnitude < 0x38800000 ? magnitude : 0;
    small.number += 0.5F;
    const uint32_t subnormal = small.bits - 0x3F000000;
    const uint32_t normal = (magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13;
    const uint32_t half = magnitude < 0x38800000   ? subnormal
                          : magnitude < 0x477FF000 ? normal
                                                   : 0x7C00;
    return (uint16_t)(sign | half);
}

static inline uint16_t narrow_bfloat(float number) {
    const union {
        float number;
        uint32_t bits;
    } wide = {.number = number};
    return (uint16_t)((wide.bits + 0x7FFF + (wide.bits >> 16 & 1)) >> 16);
}

const void *codec_result_bytes(const struct codec_result *result) {
    if (result->tensor.data == NULL) {
        return &result->number;
    }
    return result->type == CODEC_TYPE_FP16 || result->type == CODEC_TYPE_BF16 ? NULL
                                                                              : result->tensor.data;
}

void codec_result_read(const struct codec_result *result, size_t first, void *out, size_t size) {
    const void *bytes = codec_result_bytes(result);
    if (bytes != NULL) {
        memcpy(out, (const char *)bytes + first, size);
        return;
    }
    const float *numbers = result->tensor.data;
    uint16_t narrow[256];
    for (size_t done = 0, part; done < size; done += part) {
        const size_t at = first + done, odd = at % sizeof *narrow; /* a byte may be taken already */
        const size_t left = size - done, most = sizeof narrow - odd;
        const float *from = numbers + at / sizeof *narrow;
        part = left < most ? left : most;
        const size_t count = (odd + part + 1) / sizeof *narrow;
        for (size_t i = 0; result->type == CODEC_TYPE_FP16 && i < count; i++) {
            narrow[i] = narrow_half(from[i]);
        }
        for (size_t i = 0; result->type == CODEC_TYPE_BF16 && i < count; i++) {
            narrow[i] = narrow_bfloat(from[i]);
        }
        memcpy((char *)out + done, (const char *)narrow + odd, part);
    }
}

size_t codec_result_narrowed(const struct codec_result *result) {
    return codec_result_bytes(result) != NULL ? 0 : result->bytes / codec_type_size(result->type);
}

size_t codec_result_out_of_range(const struct codec_result *result, size_t first, size_t count) {
    /* The least magnitudes that are rounded to infinity. */
    const float least = result->type == CODEC_TYPE_FP16 ? 65520.0F : 0x1.FFp+127F;
    const float *numbers = result->tensor.data;
    unsigned beyond = 0;
    for (size_t i = first; i < first + count; i++) {
        beyond |= (fabsf(numbers[i]) >= least) & (fabsf(numbers[i]) < INFINITY);
    }
    for (size_t i = first; beyond != 0 && i < first + count; i++) {
        if (fabsf(numbers[i]) >= least && fabsf(numbers[i]) < INFINITY) {
            return i;
        }
    }
    return SIZE_MAX;
}
