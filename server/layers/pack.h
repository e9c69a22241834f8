/*
 * pack.h - the packed weights of a layer: one block of memory with all its tensors in one dtype.
 */
#ifndef LAYERS_PACK_H
#define LAYERS_PACK_H

#include <pthread.h>

#include "layers/layers.h"

/* The tensors of a layer in one dtype. Matrices are prepacked for the library. */
struct layer_packed {
    const struct layer *layer;
    attn_tensor tensors[LAYER_PARTS]; /* `data` is NULL for a part that the layer does not have */
    size_t parts[LAYER_PARTS];        /* tasks of each tensor */
    size_t tasks;
    char *block; /* owned */
    size_t bytes;
    /* The store's mutex guards these four; see packed_cache.h. */
    size_t users;
    bool unwanted;                      /* its last use drops it */
    struct layer_packed *newer, *older; /* in a list of the cache */
    /* `mutex` guards the rest, and `changed` is signalled when one of these changes. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    size_t begun, done; /* tasks */
    bool failed, unreadable;
    char reason[LAYERS_REASON];
};

/* Returns the inputs of a matrix: the columns of the rows that it projects. */
size_t pack_inputs(const struct layer_tensor *t);

/* Makes the block for a layer. The tensors have their shapes and places, but no numbers yet.
 * Returns owned, or NULL if there is no memory. */
struct layer_packed *pack_new(const struct layer *layer, attn_dtype dtype);

/* Plans a call with the layer. Returns false with an error if the library refuses it. */
bool pack_check(const struct layer *layer, attn_error *error);

/* Returns whether one of its tasks has failed. */
bool pack_has_failed(struct layer_packed *packed);

/* Frees a block that nothing uses. NULL is allowed. */
void pack_free(struct layer_packed *packed);

#endif
