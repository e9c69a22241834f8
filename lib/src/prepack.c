/*
 * prepack.c packs weights of projections once, in the form that the products read, so that many
 * plans can use them.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "blas.h"
#include "check.h"
#include "kernels/kernels.h"
#include "plan_build.h"
#include "status.h"
#include "tensor.h"

/* Finds the sizes of weights X W: W is (inner, columns), or (columns, inner) if it is out_in. */
static attn_status read_sizes(const attn_tensor *weights, attn_layout layout, size_t *inner,
                              size_t *columns, attn_error *error) {
    ATTN_TRY(check_matrix(weights, "weights", 2, 2, error));
    if (layout != ATTN_IN_OUT && layout != ATTN_OUT_IN) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "layout", "layout is %d; it must be 0 or 1",
                         (int)layout);
    }
    *inner = weights->shape[layout == ATTN_OUT_IN];
    *columns = weights->shape[layout == ATTN_IN_OUT];
    return ATTN_OK;
}

attn_status attn_prepack_bytes(const attn_tensor *weights, attn_layout layout, size_t *bytes,
                               attn_error *error) {
    size_t inner = 0, columns = 0, count;
    ATTN_TRY(read_sizes(weights, layout, &inner, &columns, error));
    const size_t panel = plan_panel(weights->dtype);
    if (panel > 0) {
        columns = (columns + panel - 1) / panel * panel; /* a size that BLAS can address */
    }
    if (!size_mul(inner, columns, &count) ||
        !size_mul(count, attn_dtype_size(weights->dtype), &count) ||
        !size_add(count, ATTN_ALIGNMENT - 1, &count)) {
        return attn_too_large(error);
    }
    *bytes = count / ATTN_ALIGNMENT * ATTN_ALIGNMENT;
    return ATTN_OK;
}

/* Copies rows of `columns` numbers of `size` bytes. The rows of the copy have `ld` numbers. */
static void copy_part(char *to, size_t ld, const char *from, size_t inner, size_t columns,
                      size_t size) {
    for (size_t row = 0; row < inner; row++) {
        memcpy(to + row * ld * size, from + row * columns * size, columns * size);
    }
}

attn_status attn_prepack_part(const attn_tensor *weights, attn_layout layout, size_t first,
                              size_t columns, void *buffer, attn_error *error) {
    size_t inner = 0, part = 0;
    ATTN_TRY(read_sizes(weights, layout, &inner, &part, error));
    if (buffer == NULL || (uintptr_t)buffer % ATTN_ALIGNMENT != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "buffer",
                         "buffer is not aligned to %d bytes, or it is NULL", ATTN_ALIGNMENT);
    }
    if (first % ATTN_PREPACK_COLUMNS != 0 || first > columns || part > columns - first ||
        (part % ATTN_PREPACK_COLUMNS != 0 && first + part != columns)) {
        return attn_fail(
            error, ATTN_INVALID_ARGUMENT, "first",
            "the columns %zu to %zu are no part of %zu columns that begins and ends at "
            "a multiple of %d",
            first, first + part, columns, ATTN_PREPACK_COLUMNS);
    }
    const bool out_in = layout == ATTN_OUT_IN, panels = plan_panel(weights->dtype) > 0;
    const struct attn_kernels *k = attn_kernels();
    const size_t ld = weights->shape[1], size = attn_dtype_size(weights->dtype);
    assert(!panels || ATTN_PREPACK_COLUMNS % plan_panel(weights->dtype) == 0);
    char *to = (char *)buffer + first * (panels ? inner : 1) * size;
    if (weights->dtype == ATTN_FLOAT32 && panels) {
        (out_in ? k->pack_transposed_f32 : k->pack_f32)((float *)to, weights->data, ld, inner,
                                                        part);
    } else if (panels) {
        (out_in ? k->pack_transposed_f64 : k->pack_f64)((double *)to, weights->data, ld, inner,
                                                        part);
    } else if (!out_in) {
        copy_part(to, columns, weights->data, inner, part, size);
    } else if (weights->dtype == ATTN_FLOAT32) {
        blas_transpose_f32(part, inner, weights->data, ld, (float *)to, columns);
    } else {
        blas_transpose_f64(part, inner, weights->data, ld, (double *)to, columns);
    }
    return ATTN_OK;
}

attn_status attn_prepack(const attn_tensor *weights, attn_layout layout, void *buffer,
                         attn_tensor *prepacked, attn_error *error) {
    size_t inner = 0, columns = 0;
    ATTN_TRY(read_sizes(weights, layout, &inner, &columns, error));
    ATTN_TRY(attn_prepack_part(weights, layout, 0, columns, buffer, error));
    *prepacked = (attn_tensor){
        .data = buffer, .dtype = weights->dtype, .rank = 2, .shape = {inner, columns}};
    return ATTN_OK;
}
