/*
 * tensor.h - sizes of tensors, every product checked for overflow, and their shapes as text.
 */
#ifndef ATTN_TENSOR_H
#define ATTN_TENSOR_H

#include "attention.h"

/* *product = a * b; false if that does not fit. */
static inline bool size_mul(size_t a, size_t b, size_t *product) {
    return !__builtin_mul_overflow(a, b, product);
}

static inline bool size_add(size_t a, size_t b, size_t *sum) {
    return !__builtin_add_overflow(a, b, sum);
}

enum {
    SHAPE_TEXT = 96
};

/* "(4, 3)" into text; returns text. */
const char *shape_text(const attn_tensor *tensor, char text[SHAPE_TEXT]);

static inline bool dtype_is_float(attn_dtype dtype) {
    return dtype == ATTN_FLOAT32 || dtype == ATTN_FLOAT64;
}

#endif
