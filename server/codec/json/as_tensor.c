/* as_tensor.c - reads tensors, vectors and masks out of a document. */
#include "codec/codec.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "codec/convert.h"
#include "codec/json/refuse.h"

size_t codec_shape(const struct codec_value *value, size_t shape[static ATTN_MAX_RANK]) {
    if (codec_kind_of(value) != CODEC_TENSOR) {
        return 0;
    }
    const struct codec_tensor *tensor = document_tensor(value);
    memcpy(shape, tensor->shape, sizeof tensor->shape);
    return (size_t)tensor->rank;
}

/* Has an array the shape from an axis on? */
static bool has_shape(const struct codec_value *value, const size_t *shape, size_t rank) {
    bool same = codec_kind_of(value) == CODEC_ARRAY && codec_size(value) == shape[0];
    for (const struct codec_value *item = same ? codec_at(value, 0) : NULL; same && item != NULL;
         item = codec_next(item)) {
        same = rank > 1 && has_shape(item, shape + 1, rank - 1);
    }
    return same;
}

size_t codec_empty_shape(const struct codec_value *value, size_t shape[static ATTN_MAX_RANK]) {
    size_t rank = 0, last = 1;
    for (const struct codec_value *at = value;
         last > 0 && rank < ATTN_MAX_RANK && codec_kind_of(at) == CODEC_ARRAY;
         at = codec_at(at, 0)) {
        shape[rank++] = last = codec_size(at);
    }
    return last == 0 && has_shape(value, shape, rank) ? rank : 0;
}

bool codec_make_empty(struct codec_document *document, const struct codec_value *value,
                      struct codec_error *error) {
    size_t shape[ATTN_MAX_RANK];
    void *data;
    const size_t rank = codec_empty_shape(value, shape);
    return rank == 0 || codec_make_tensor(document, value, codec_document_dtype(document),
                                          (int)rank, shape, 0, &data, error);
}

static void put_tensor(const struct codec_tensor *tensor, attn_tensor *out) {
    *out = (attn_tensor){.data = tensor->data, .dtype = tensor->dtype, .rank = tensor->rank};
    memcpy(out->shape, tensor->shape, sizeof out->shape);
}

/* Finds a tensor of numbers. Returns NULL with the error set. */
static struct codec_tensor *find_tensor(const struct codec_document *document,
                                        const struct codec_value *value, int min_rank, int max_rank,
                                        struct codec_error *error) {
    struct codec_tensor *tensor =
        document_find_tensor(document, value, "a matrix of numbers", min_rank, max_rank, error);
    if (tensor != NULL && tensor->dtype == ATTN_BOOL) {
        document_refuse(document, value, DOCUMENT_WHOLE, error,
                        "must be a matrix of numbers, not of booleans");
        return NULL;
    }
    assert(tensor == NULL || (tensor->pending & CONVERT_TYPE) == 0);
    return tensor;
}

/* Does the same, and makes it one of the type of the document. */
static struct codec_tensor *find_numbers(const struct codec_document *document,
                                         const struct codec_value *value, int min_rank,
                                         int max_rank, struct codec_error *error) {
    struct codec_tensor *tensor = find_tensor(document, value, min_rank, max_rank, error);
    if (tensor != NULL) {
        codec_expect_reals(document, value);
        if ((tensor->pending & CONVERT_NARROW) != 0) {
            convert_narrow(document, tensor);
        }
    }
    return tensor;
}

/* Returns whether the first number out of range is a NaN or an Infinity of a datatype. */
static bool is_special(const struct codec_tensor *tensor) {
    return tensor->first_range != TENSOR_NONE && tensor->range_text[0] > '9';
}

static bool refuse_range(const struct codec_document *document, const struct codec_value *value,
                         const struct codec_tensor *tensor, struct codec_error *error) {
    return document_refuse(document, value, tensor->first_range, error,
                           "is %s, which is out of the range of %s", tensor->range_text,
                           tensor->dtype == ATTN_FLOAT64 ? "float64" : "float32");
}

/* Puts out a tensor, whose numbers are finite or minus infinity. */
static bool put_finite(const struct codec_document *document, const struct codec_value *value,
                       const struct codec_tensor *tensor, attn_tensor *out,
                       struct codec_error *error) {
    if (is_special(tensor)) {
        return document_refuse(document, value, tensor->first_range, error,
                               "must be a finite number, not %s", tensor->range_text);
    }
    if (tensor->first_range != TENSOR_NONE) {
        return refuse_range(document, value, tensor, error);
    }
    put_tensor(tensor, out);
    return true;
}

bool codec_as_reals_or_null(const struct codec_document *document, const struct codec_value *value,
                            int min_rank, int max_rank, attn_tensor *out,
                            struct codec_error *error) {
    const struct codec_tensor *tensor = find_numbers(document, value, min_rank, max_rank, error);
    return tensor != NULL && put_finite(document, value, tensor, out, error);
}

bool codec_as_any_reals(const struct codec_document *document, const struct codec_value *value,
                        attn_tensor *out, enum codec_type *type, struct codec_error *error) {
    const struct codec_tensor *tensor = find_numbers(document, value, 1, ATTN_MAX_RANK, error);
    if (tensor == NULL) {
        return false;
    }
    if (tensor->first_range != TENSOR_NONE && !is_special(tensor)) {
        return refuse_range(document, value, tensor, error);
    }
    put_tensor(tensor, out);
    *type = codec_type_is_float((enum codec_type)tensor->type) ? (enum codec_type)tensor->type
            : codec_document_dtype(document) == ATTN_FLOAT64   ? CODEC_TYPE_FP64
                                                               : CODEC_TYPE_FP32;
    return true;
}

/* Puts out a tensor, whose numbers are finite. */
static bool put_reals(const struct codec_document *document, const struct codec_value *value,
                      const struct codec_tensor *tensor, attn_tensor *out,
                      struct codec_error *error) {
    if (tensor->first_null < tensor->first_range) {
        return document_refuse(document, value, tensor->first_null, error,
                               "must be a finite number, not %s",
                               tensor->infinite ? "-Infinity" : "null");
    }
    return put_finite(document, value, tensor, out, error);
}

bool codec_as_reals(const struct codec_document *document, const struct codec_value *value,
                    int min_rank, int max_rank, attn_tensor *out, struct codec_error *error) {
    const struct codec_tensor *tensor = find_numbers(document, value, min_rank, max_rank, error);
    return tensor != NULL && put_reals(document, value, tensor, out, error);
}

bool codec_as_exact_reals(const struct codec_document *document, const struct codec_value *value,
                          int min_rank, int max_rank, attn_tensor *out, struct codec_error *error) {
    const struct codec_tensor *tensor = find_tensor(document, value, min_rank, max_rank, error);
    return tensor != NULL && put_reals(document, value, tensor, out, error);
}

bool codec_as_rows(const struct codec_document *document, const struct codec_value *value,
                   int min_rank, int max_rank, attn_tensor *out, size_t *special,
                   struct codec_error *error) {
    const struct codec_tensor *tensor = find_numbers(document, value, min_rank, max_rank, error);
    *special = SIZE_MAX;
    if (tensor == NULL || !tensor->arrived) {
        return tensor != NULL && codec_as_reals(document, value, min_rank, max_rank, out, error);
    }
    *special = tensor->first_null < tensor->first_range ? tensor->first_null : tensor->first_range;
    put_tensor(tensor, out);
    return true;
}

bool codec_refuse_special(const struct codec_document *document, const struct codec_value *value,
                          size_t special, struct codec_error *error) {
    const struct codec_tensor *tensor = document_tensor(value);
    const double number = codec_tensor_number(tensor, special);
    if (special == tensor->first_range && !is_special(tensor)) {
        return refuse_range(document, value, tensor, error);
    }
    if (isinf(number) && tensor->dtype == ATTN_FLOAT32 && tensor->type == CODEC_TYPE_FP64) {
        return document_refuse(document, value, special, error,
                               "must be a number in the range of float32");
    }
    return document_refuse(document, value, special, error, "must be a finite number, not %s",
                           isnan(number) ? "NaN"
                           : number > 0  ? "Infinity"
                                         : "-Infinity");
}

bool codec_as_real(const struct codec_document *document, const struct codec_value *value,
                   double *element, attn_tensor *out, struct codec_error *error) {
    const attn_dtype dtype = codec_document_dtype(document);
    char text[NUMBER_SIZE + 1];
    if (!codec_as_number(document, value, element, error)) {
        return false;
    }
    *out = (attn_tensor){.data = element, .dtype = dtype, .rank = 1, .shape = {1}};
    if (dtype == ATTN_FLOAT32) {
        const double number = *element;
        const float narrow = (float)number;
        memcpy(element, &narrow, sizeof narrow);
        if (!isfinite(narrow)) {
            return document_refuse(document, value, DOCUMENT_WHOLE, error,
                                   "is %s, which is out of the range of float32",
                                   document_number_text(number, false, text));
        }
    }
    return true;
}

bool codec_as_mask(struct codec_document *document, const struct codec_value *value, int min_rank,
                   int max_rank, attn_tensor *out, struct codec_error *error) {
    struct codec_tensor *tensor =
        document_find_tensor(document, value, "a matrix of booleans", min_rank, max_rank, error);
    if (tensor == NULL) {
        return false;
    }
    convert_mask(document, tensor);
    if (tensor->first_wrong != TENSOR_NONE) {
        return document_refuse_element(document, value, tensor, tensor->first_wrong,
                                       "true, false, 1 or 0", error);
    }
    put_tensor(tensor, out);
    return true;
}

bool codec_mask_is_zeros(const struct codec_value *value) {
    return document_tensor(value)->zeros;
}
