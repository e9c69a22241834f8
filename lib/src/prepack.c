/*
 * prepack.c packs weights of projections once, in the form that the products read, so that many
 * plans can use them.
 */
#include <assert.h>
#include <stdint.h>

#include "base/check.h"
#include "base/status.h"
#include "base/tensor.h"
#include "kernels/kernels.h"
#include "softmax/schedule.h"

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
    columns = ceil_div(columns, panel) * panel; /* a size that BLAS can address */
    if (!size_mul(inner, columns, &count) ||
        !size_mul(count, attn_dtype_size(weights->dtype), &count) || !size_align(&count)) {
        return attn_too_large(error);
    }
    *bytes = count;
    return ATTN_OK;
}

/* Checks the place of a part of `count` rows, or of `count` columns. */
static attn_status check_row(size_t count, size_t row, size_t rows, attn_error *error) {
    return row <= rows && count <= rows - row
               ? ATTN_OK
               : attn_fail(error, ATTN_INVALID_ARGUMENT, "row",
                           "the rows %zu to %zu are no part of %zu rows", row, row + count, rows);
}

static attn_status check_column(size_t count, size_t column, size_t columns, attn_error *error) {
    return column % ATTN_PREPACK_COLUMNS == 0 && column <= columns && count <= columns - column &&
                   (count % ATTN_PREPACK_COLUMNS == 0 || column + count == columns)
               ? ATTN_OK
               : attn_fail(error, ATTN_INVALID_ARGUMENT, "column",
                           "the columns %zu to %zu are no part of %zu columns that begins and ends "
                           "at a multiple of %d",
                           column, column + count, columns, ATTN_PREPACK_COLUMNS);
}

/* Packs a part that lies in one panel. `to` is its first row there. */
static void pack_panel(void *to, const attn_tensor *w, bool out_in, size_t from, size_t inner,
                       size_t columns) {
    const struct attn_kernels *k = attn_kernels();
    const size_t ld = w->shape[1];
    if (w->dtype == ATTN_FLOAT32) {
        (out_in ? k->pack_transposed_f32 : k->pack_f32)(to, (const float *)w->data + from, ld,
                                                        inner, columns);
    } else {
        (out_in ? k->pack_transposed_f64 : k->pack_f64)(to, (const double *)w->data + from, ld,
                                                        inner, columns);
    }
}

attn_status attn_prepack_part(const attn_tensor *weights, attn_layout layout, size_t row,
                              size_t rows, size_t column, size_t columns, void *buffer,
                              attn_error *error) {
    size_t inner = 0, part = 0;
    ATTN_TRY(read_sizes(weights, layout, &inner, &part, error));
    if (buffer == NULL || (uintptr_t)buffer % ATTN_ALIGNMENT != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "buffer",
                         "buffer is not aligned to %d bytes, or it is NULL", ATTN_ALIGNMENT);
    }
    ATTN_TRY(check_row(inner, row, rows, error));
    ATTN_TRY(check_column(part, column, columns, error));
    const bool out_in = layout == ATTN_OUT_IN;
    const size_t panel = plan_panel(weights->dtype), size = attn_dtype_size(weights->dtype);
    assert(ATTN_PREPACK_COLUMNS % panel == 0);
    for (size_t j = 0; j < part; j += panel) {
        char *to = (char *)buffer + ((column + j) * rows + row * panel) * size;
        pack_panel(to, weights, out_in, out_in ? j * weights->shape[1] : j, inner,
                   part - j < panel ? part - j : panel);
    }
    return ATTN_OK;
}

attn_status attn_prepack(const attn_tensor *weights, attn_layout layout, void *buffer,
                         attn_tensor *prepacked, attn_error *error) {
    size_t inner = 0, columns = 0;
    ATTN_TRY(read_sizes(weights, layout, &inner, &columns, error));
    ATTN_TRY(attn_prepack_part(weights, layout, 0, inner, 0, columns, buffer, error));
    *prepacked = (attn_tensor){
        .data = buffer, .dtype = weights->dtype, .rank = 2, .shape = {inner, columns}};
    return ATTN_OK;
}
