/* moved.c - arrays in the JSON of a body become tensors of a stated type and shape. Texts become
 * what the type BYTES of the Open Inference Protocol has in bytes: each has its length before it,
 * in four bytes. vocabulary.c reads them. */
#include "codec/binary.h"

#include <string.h>

#include "codec/convert.h"
#include "codec/json/document.h"

/* ------------------------------------------------------------------------------------- numbers */

/* Checks that an array can be the tensor that `spec` describes, whatever its numbers are. */
static bool check_array(const struct codec_document *document, const struct codec_value *value,
                        const char *name, const struct codec_tensor_spec *spec,
                        struct codec_error *error) {
    const struct codec_tensor *tensor = document_tensor(value);
    const size_t elements = codec_count(spec->rank, spec->shape);
    if (tensor->count != elements) {
        return binary_refuse(document, value, name, error,
                             "has %zu elements in its data, but %zu in its shape", tensor->count,
                             elements);
    }
    if (tensor->rank != 1 &&
        (tensor->rank != spec->rank ||
         memcmp(tensor->shape, spec->shape, (size_t)spec->rank * sizeof *spec->shape) != 0)) {
        return binary_refuse(document, value, name, error,
                             "has data whose nesting does not match its shape");
    }
    if (tensor->dtype == ATTN_BOOL && spec->type != CODEC_TYPE_BOOL) {
        return binary_refuse(document, value, name, error, "has booleans, but its type is no BOOL");
    }
    return true;
}

/* Makes a tensor without elements. Its data is an empty array, or arrays that are empty. */
static bool move_empty(struct codec_document *document, const struct codec_value *at,
                       const struct codec_tensor_spec *spec, attn_dtype dtype,
                       struct codec_error *error) {
    void *data;
    const bool is_bool = spec->type == CODEC_TYPE_BOOL;
    if (!codec_make_tensor(document, at, is_bool ? ATTN_BOOL : dtype, spec->rank, spec->shape, 0,
                           &data, error)) {
        return false;
    }
    document_tensor(at)->type = (int)spec->type;
    return true;
}

bool codec_move_tensor(struct codec_document *document, struct codec_value *at,
                       const struct codec_value *value, const struct codec_tensor_spec *spec,
                       struct codec_error *error) {
    const attn_dtype dtype = codec_spec_dtype(spec, codec_document_dtype(document));
    if (spec->bytes == 0 && codec_kind_of(value) == CODEC_ARRAY) {
        return move_empty(document, at, spec, dtype, error);
    }
    if (!check_array(document, value, codec_name(at), spec, error)) {
        return false;
    }
    struct codec_tensor *tensor = document_tensor(value);
    codec_set_value(at, value);
    tensor->value = at;
    tensor->own_type = spec->own_type || spec->exact;
    tensor->rank = spec->rank;
    memcpy(tensor->shape, spec->shape, sizeof tensor->shape);
    convert_expect_type(tensor, spec->type, dtype);
    return true;
}

/* --------------------------------------------------------------------------------------- texts */

/* Where the texts of an array go. */
struct packing {
    const struct codec_document *document;
    const struct codec_tensor_spec *spec;
    char *out;    /* NULL: the bytes are only counted */
    size_t bytes; /* so far */
    size_t texts; /* so far */
};

/* Packs a text. */
static bool pack_text(struct packing *packing, const struct codec_value *value,
                      struct codec_error *error) {
    const char *text;
    if (!codec_as_text(packing->document, value, &text, error)) {
        return false;
    }
    const uint32_t size = (uint32_t)strlen(text); /* a text is much shorter */
    if (packing->out != NULL) {
        memcpy(packing->out + packing->bytes, &size, sizeof size);
        memcpy(packing->out + packing->bytes + sizeof size, text, size);
    }
    packing->bytes += sizeof size + size;
    packing->texts++;
    return true;
}

/* Packs the texts of an array whose first axis is `axis` of the spec. Arrays are nested as the spec
 * says. */
static bool pack_axis(struct packing *packing, const struct codec_value *value, int axis,
                      struct codec_error *error) {
    if (axis == packing->spec->rank) {
        return pack_text(packing, value, error);
    }
    if (codec_kind_of(value) != CODEC_ARRAY || codec_size(value) != packing->spec->shape[axis]) {
        return codec_fail(packing->document, value, error,
                          "data of BYTES must be an array of strings, flat or nested as its shape "
                          "says");
    }
    for (const struct codec_value *item = codec_at(value, 0); item != NULL;
         item = codec_next(item)) {
        if (!pack_axis(packing, item, axis + 1, error)) {
            return false;
        }
    }
    return true;
}

static bool pack(struct packing *packing, const struct codec_value *value,
                 struct codec_error *error) {
    const struct codec_value *item = codec_at(value, 0);
    if (codec_kind_of(item) == CODEC_ARRAY) {
        return pack_axis(packing, value, 0, error);
    }
    for (; item != NULL; item = codec_next(item)) {
        if (!pack_text(packing, item, error)) {
            return false;
        }
    }
    return true;
}

bool codec_move_texts(struct codec_document *document, struct codec_value *at,
                      const struct codec_value *value, const struct codec_tensor_spec *spec,
                      struct codec_error *error) {
    struct account *account = codec_document_account(document);
    struct packing packing = {.document = document, .spec = spec};
    if (!pack(&packing, value, error)) {
        return false;
    }
    const size_t count = codec_count(spec->rank, spec->shape), bytes = packing.bytes;
    if (packing.texts != count) {
        return binary_refuse(document, value, codec_name(at), error,
                             "has %zu texts in its data, but %zu in its shape", packing.texts,
                             count);
    }
    struct codec_tensor *packed = document_new_tensor(document, at, ATTN_BOOL, 1, NULL);
    if (packed == NULL || !codec_tensor_zeros(packed, account, &bytes, bytes, bytes)) {
        return codec_no_memory(error);
    }
    packing.out = packed->data;
    packing.bytes = 0;
    pack(&packing, value, error);
    packed->texts = count;
    return true;
}
