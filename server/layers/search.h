/*
 * search.h - what is known while the layers of a model are found: search.c reads their tensors,
 * family.c finds their sizes, and family_options.c their options.
 */
#ifndef LAYERS_SEARCH_H
#define LAYERS_SEARCH_H

#include "layers/family.h"

/* The names that a family of models gives to the tensors of an attention, and its habits. */
struct family {
    const char *name;
    const char *const *models;        /* the values of model_type, and NULL; NULL: any */
    const char *tensors[LAYER_PARTS]; /* their names after the prefix of a layer */
    const char *ending;               /* the prefix ends with this text; NULL: any prefix */
    bool fused_weights;               /* one tensor holds the weights of Q, K and V */
    bool fused_biases;                /* one tensor holds the biases of Q, K and V */
    bool in_out;                      /* matrices are (inputs, outputs) */
    bool needs_output;                /* a prefix without W_O is no layer of this family */
    bool causal;
    bool rotary;
    bool unscaled;
};

/* The layer that is looked at. Everything is borrowed. */
struct search {
    struct layer_model *model;
    const struct family_tensor *tensors;
    size_t count;
    const struct config *config;
    const struct family *family;
    const char *prefix; /* of the tensors of the layer, with its last dot */
    size_t prefix_size;
    struct layer *layer;
};

/* Compares the names of two layers as strcmp() does, but numbers in them by their size: layer.2 is
 * before layer.10. */
int search_compare(const char *a, const char *b);

/* Notes why a layer is not served. The first reason counts. Returns false. */
bool search_refuse(struct layer *layer, const char *format, ...)
    __attribute__((cold, format(printf, 2, 3)));

/* Finds a tensor by its prefix and the rest of its name, which may be NULL. Returns NULL if there
 * is none. */
const struct family_tensor *search_tensor(const struct search *s, const char *prefix,
                                          size_t prefix_size, const char *rest);

/* Reads a tensor as a matrix, or as a vector: all axes but the last have the size 1. Returns false
 * with the reason in the layer. */
bool search_read(const struct search *s, const struct family_tensor *from, bool matrix,
                 struct layer_tensor *to);

/* Reads the options of a layer whose tensors and sizes are known. Returns false with the reason in
 * the layer. */
bool search_options(const struct search *s);

#endif
