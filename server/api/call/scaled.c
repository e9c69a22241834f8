/*
 * scaled.c - reads the scales beside Q, K, V and past keys and values, which quantised inputs have.
 * Element (i, c) of a matrix stands for its number times scale[i / b, c / b'], and so on for more
 * axes: the blocks of b by b' numbers follow from the two shapes. excluded.c multiplies them before
 * the plan of the call runs, so all else knows only the products.
 */
#include <stdio.h>
#include <string.h>

#include "api/call/call.h"
#include "api/call/comparison.h"
#include "api/call/field.h"

/* A scale, and its number if the request gives one for all. */
struct scaled {
    attn_tensor scale;
    double number;
};

/* Refuses a scale whose axes do not divide those of its matrix, and gives one that is a single
 * number as many axes as the matrix. */
static bool check_blocks(const struct codec_document *document, const struct codec_value *value,
                         const char *name, const attn_tensor *t, attn_tensor *scale,
                         struct codec_error *error) {
    char shape[COMPARISON_TEXT], own[COMPARISON_TEXT];
    bool fits = scale->rank == t->rank;
    comparison_put(shape, t->rank, t->shape);
    comparison_put(own, scale->rank, scale->shape);
    if (codec_count(scale->rank, scale->shape) == 1) {
        scale->rank = t->rank;
        for (int axis = 0; axis < t->rank; axis++) {
            scale->shape[axis] = 1;
        }
        return true;
    }
    for (int axis = 0; fits && axis < t->rank; axis++) {
        const size_t blocks = scale->shape[axis], all = t->shape[axis];
        fits = blocks == all || (blocks > 0 && all % blocks == 0);
    }
    return fits || codec_fail(document, value, error,
                              "%s has the shape %s, which does not divide %s of %s: each axis of "
                              "%s is a whole number of blocks of one size (fill up a block with "
                              "zeros if it is not)",
                              codec_name(value), own, shape, name, name);
}

/* Reads a scale. The row says where the call has the matrix. A block of excluded rows may have a
 * scale that is not finite. */
bool field_scaled(struct call *call, struct codec_document *document, const struct field *field,
                  const struct codec_value *value, struct codec_error *error) {
    const attn_tensor *t = *(const attn_tensor *const *)((const char *)call + field->pointer);
    const int size = (int)(strlen(field->name) - strlen("_scale"));
    size_t special;
    char name[16];
    snprintf(name, sizeof name, "%.*s", size, field->name);
    if (t == NULL) {
        return codec_fail(document, value, error, "%s is given without %s", field->name, name);
    }
    struct scaled *own = account_alloc(codec_document_account(document), sizeof *own);
    if (own == NULL) {
        return codec_no_memory(error);
    }
    const bool good = codec_kind_of(value) == CODEC_NUMBER
                          ? codec_as_real(document, value, &own->number, &own->scale, error)
                          : codec_as_rows(document, value, field->least, field->most, &own->scale,
                                          &special, error);
    return good && check_blocks(document, value, name, t, &own->scale, error) &&
           excluded_note(call, document,
                         &(struct excluded_tensor){.value = codec_get(codec_root(document), name),
                                                   .tensor = t,
                                                   .scale = &own->scale,
                                                   .special = SIZE_MAX},
                         error);
}
