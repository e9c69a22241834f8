/*
 * refuse.c - what the codec says about a value that is not what was asked for: its place, the rule,
 * and what it is instead.
 */
#include "codec/json/refuse.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codec/error.h"

bool codec_fail(const struct codec_document *document, const struct codec_value *value,
                struct codec_error *error, const char *format, ...) {
    va_list args;
    document_point(document, value, error);
    va_start(args, format);
    codec_error_message(error, format, args);
    va_end(args);
    return false;
}

bool document_refuse(const struct codec_document *document, const struct codec_value *value,
                     size_t element, struct codec_error *error, const char *format, ...) {
    document_point(document, value, error);
    if (element != DOCUMENT_WHOLE) {
        const struct codec_tensor *tensor = document_tensor(value);
        size_t stride = tensor->count;
        for (int axis = 0; axis < tensor->rank; axis++) {
            stride /= tensor->shape[axis];
            if (!codec_pointer_index(error, element / stride % tensor->shape[axis])) {
                break;
            }
        }
    }
    char label[CODEC_QUOTE_SIZE], rule[sizeof error->message];
    va_list args;
    codec_pointer_label(error, label);
    va_start(args, format);
    vsnprintf(rule, sizeof rule, format, args);
    va_end(args);
    struct codec_error named;
    codec_error_set(&named, CODEC_CONTENT, "%s %s", label, rule);
    memcpy(error->message, named.message, sizeof error->message);
    return false;
}

/* Returns words for what a value is: "an array of numbers". */
static const char *describe(const struct codec_value *value) {
    switch (codec_kind_of(value)) {
    case CODEC_BOOL:
        return "a boolean";
    case CODEC_NUMBER:
        return "a number";
    case CODEC_TEXT:
        return "a string";
    case CODEC_ARRAY:
        return codec_size(value) == 0 ? "an empty array" : "an array";
    case CODEC_OBJECT:
        return "an object";
    case CODEC_TENSOR:
        if (document_tensor(value)->texts > 0) {
            return "an array of strings";
        }
        return document_tensor(value)->dtype == ATTN_BOOL ? "an array of booleans"
                                                          : "an array of numbers";
    default:
        return "null";
    }
}

bool document_refuse_kind(const struct codec_document *document, const struct codec_value *value,
                          const char *wanted, struct codec_error *error) {
    return document_refuse(document, value, DOCUMENT_WHOLE, error, "must be %s, not %s", wanted,
                           describe(value));
}

bool codec_refuse(const struct codec_document *document, const struct codec_value *value,
                  const char *wanted, struct codec_error *error) {
    char quoted[CODEC_QUOTE_SIZE];
    if (codec_kind_of(value) != CODEC_TEXT) {
        return document_refuse_kind(document, value, wanted, error);
    }
    const char *text = document_text(value);
    codec_quote(quoted, text, strlen(text));
    return document_refuse(document, value, DOCUMENT_WHOLE, error, "must be %s, not \"%s\"", wanted,
                           quoted);
}

const char *document_number_text(double number, bool narrow, char text[NUMBER_SIZE + 1]) {
    size_t size =
        narrow ? number_write_float(text, (float)number) : number_write_double(text, number);
    text[size] = '\0';
    return text;
}

bool document_refuse_element(const struct codec_document *document, const struct codec_value *value,
                             const struct codec_tensor *tensor, size_t element, const char *rule,
                             struct codec_error *error) {
    char text[NUMBER_SIZE + 1];
    double number = codec_tensor_number(tensor, element);
    if (element == tensor->first_range) {
        return document_refuse(document, value, element, error, "must be %s, not %s", rule,
                               tensor->range_text);
    }
    if (!isfinite(number)) {
        return document_refuse(document, value, element, error, "must be %s, not %s", rule,
                               element != tensor->first_null ? "infinite"
                               : tensor->infinite            ? "-Infinity"
                                                             : "null");
    }
    const bool narrow = tensor->dtype == ATTN_FLOAT32;
    if (!document_is_exact(number, narrow)) {
        return document_refuse(document, value, element, error, "must be %s, not about %.3g", rule,
                               number);
    }
    return document_refuse(document, value, element, error, "must be %s, not %s", rule,
                           document_number_text(number, narrow, text));
}

struct codec_tensor *document_find_tensor(const struct codec_document *document,
                                          const struct codec_value *value, const char *wanted,
                                          int min_rank, int max_rank, struct codec_error *error) {
    const enum codec_kind kind = codec_kind_of(value);
    if (kind == CODEC_ARRAY) {
        const struct codec_value *at = value;
        while (codec_kind_of(at) == CODEC_ARRAY && codec_size(at) > 0) {
            at = codec_at(at, 0);
        }
        if (codec_kind_of(at) == CODEC_ARRAY) {
            document_refuse(document, at, DOCUMENT_WHOLE, error, "is empty");
        } else {
            document_refuse(document, value, DOCUMENT_WHOLE, error,
                            "must be %s, not an array with %s in it", wanted, describe(at));
        }
        return NULL;
    }
    if (kind != CODEC_TENSOR) {
        document_refuse_kind(document, value, wanted, error);
        return NULL;
    }
    struct codec_tensor *tensor = document_tensor(value);
    if ((tensor->rank >= min_rank || tensor->count == 0) && tensor->rank <= max_rank) {
        return tensor;
    }
    if (min_rank == max_rank) {
        document_refuse(document, value, DOCUMENT_WHOLE, error, "must have rank %d, not %d",
                        min_rank, tensor->rank);
    } else {
        document_refuse(document, value, DOCUMENT_WHOLE, error, "must have rank %d to %d, not %d",
                        min_rank, max_rank, tensor->rank);
    }
    return NULL;
}
