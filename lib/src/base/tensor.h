/*
 * tensor.h - the sizes of tensors, with every product checked for overflow, and their shapes as
 * text.
 */
#ifndef ATTN_TENSOR_H
#define ATTN_TENSOR_H

#include <assert.h>

#include "attention.h"

/* Writes a product or a sum. Both return false if the number does not fit a size_t. */
static inline bool size_mul(size_t a, size_t b, size_t *product) {
    return !__builtin_mul_overflow(a, b, product);
}

static inline bool size_add(size_t a, size_t b, size_t *sum) {
    return !__builtin_add_overflow(a, b, sum);
}

static inline size_t size_min(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t size_max(size_t a, size_t b) {
    return a > b ? a : b;
}

static inline size_t ceil_div(size_t a, size_t b) {
    assert(b > 0);
    return a / b + (a % b != 0);
}

/* Returns where `some` of `all` things end that begin with `first`; the last ones may be fewer. */
static inline size_t end_of(size_t first, size_t some, size_t all) {
    return all - first < some ? all : first + some;
}

/* Does what attn_dtype_size() does, without a call. */
static inline size_t dtype_size(attn_dtype dtype) {
    switch (dtype) {
    case ATTN_FLOAT32:
        return sizeof(float);
    case ATTN_FLOAT64:
        return sizeof(double);
    case ATTN_BOOL:
        return 1;
    case ATTN_INT64:
        return sizeof(int64_t);
    }
    return 0;
}

/* Returns element `index` of an array of floats. */
static inline double number_at(const void *data, attn_dtype dtype, size_t index) {
    return dtype == ATTN_FLOAT32 ? (double)((const float *)data)[index]
                                 : ((const double *)data)[index];
}

/* Rounds a number to element `index` of an array of this float dtype. */
static inline void put_number(void *data, attn_dtype dtype, size_t index, double number) {
    if (dtype == ATTN_FLOAT32) {
        ((float *)data)[index] = (float)number;
    } else {
        ((double *)data)[index] = number;
    }
}

/* Multiplies a size by those of all axes of a shape. Returns false if that does not fit. */
static inline bool size_mul_shape(size_t *size, int rank, const size_t *shape) {
    bool fits = true;
    for (int axis = 0; axis < rank; axis++) {
        fits = fits && size_mul(*size, shape[axis], size);
    }
    return fits;
}

/* Has a tensor neither data nor an empty axis? */
static inline bool tensor_lacks_data(const attn_tensor *tensor) {
    bool empty = false;
    for (int axis = 0; axis < tensor->rank && axis < ATTN_MAX_RANK; axis++) {
        empty = empty || tensor->shape[axis] == 0;
    }
    return tensor->data == NULL && !empty;
}

/* Returns the numbers of a part of a result, which fit a size_t. */
static inline size_t part_numbers(const attn_result_tensor *part) {
    size_t count = 1;
    for (int axis = 0; axis < part->rank; axis++) {
        count *= part->shape[axis];
    }
    return count;
}

/* Rounds a size up to a multiple of ATTN_ALIGNMENT. Returns false if that does not fit. */
static inline bool size_align(size_t *size) {
    const bool fits = size_add(*size, ATTN_ALIGNMENT - 1, size);
    *size = *size / ATTN_ALIGNMENT * ATTN_ALIGNMENT;
    return fits;
}

/* A mask or bias that is broadcast to (batch, heads, n, m). Strides are counted in elements; a
 * stride is 0 where the tensor repeats. */
struct broadcast {
    bool given;
    size_t stride[4];
};

enum {
    SHAPE_TEXT = 96 /* bytes of the longest text of a shape, with its end */
};

/* Writes a shape such as "(4, 3)" to `text`, and returns `text`. */
const char *shape_text(const attn_tensor *tensor, char text[SHAPE_TEXT]);

/* Fails because number `index` of a part of a gradient is not finite. */
attn_status gradient_not_finite(const attn_result_tensor *part, attn_result which, size_t index,
                                attn_error *error);

static inline bool dtype_is_float(attn_dtype dtype) {
    return dtype == ATTN_FLOAT32 || dtype == ATTN_FLOAT64;
}

#endif
