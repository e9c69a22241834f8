/* tensor.c - see tensor.h. */
#include "base/tensor.h"

#include <stdio.h>

#include "base/status.h"

size_t attn_dtype_size(attn_dtype dtype) {
    return dtype_size(dtype);
}

bool attn_tensor_count(const attn_tensor *tensor, size_t *count) {
    size_t product = 1;
    if (!size_mul_shape(&product, tensor->rank, tensor->shape)) {
        return false;
    }
    *count = product;
    return true;
}

bool attn_tensor_bytes(const attn_tensor *tensor, size_t *bytes) {
    size_t count;
    return attn_tensor_count(tensor, &count) && size_mul(count, dtype_size(tensor->dtype), bytes);
}

const char *shape_text(const attn_tensor *tensor, char text[SHAPE_TEXT]) {
    size_t used = 0;
    text[0] = '\0';
    for (int axis = 0; axis < tensor->rank && used < SHAPE_TEXT; axis++) {
        used += (size_t)snprintf(text + used, SHAPE_TEXT - used, "%s%zu", axis == 0 ? "(" : ", ",
                                 tensor->shape[axis]);
    }
    if (used < SHAPE_TEXT) {
        snprintf(text + used, SHAPE_TEXT - used, tensor->rank == 0 ? "()" : ")");
    }
    return text;
}

attn_status gradient_not_finite(const attn_result_tensor *part, attn_result which, size_t index,
                                attn_error *error) {
    char place[SHAPE_TEXT];
    attn_tensor at = attn_as_tensor(part);
    for (int axis = part->rank; axis-- > 0;) {
        at.shape[axis] = index % part->shape[axis];
        index /= part->shape[axis];
    }
    return attn_fail(error, ATTN_NOT_FINITE, attn_result_name(which),
                     "%s is not a finite %s at %s: the values are too large",
                     attn_result_name(which), part->dtype == ATTN_FLOAT32 ? "float32" : "float64",
                     shape_text(&at, place));
}
