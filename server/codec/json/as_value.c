/* as_value.c - reads booleans, numbers, lists of numbers, texts and choices out of a
 * document. */
#include "codec/codec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/binary.h"
#include "codec/json/refuse.h"
#include "codec/nearest.h"

bool codec_as_bool(const struct codec_document *document, const struct codec_value *value,
                   bool *out, struct codec_error *error) {
    if (codec_kind_of(value) != CODEC_BOOL) {
        return document_refuse_kind(document, value, "true or false", error);
    }
    *out = document_bool(value);
    return true;
}

bool codec_as_number(const struct codec_document *document, const struct codec_value *value,
                     double *out, struct codec_error *error) {
    if (codec_kind_of(value) != CODEC_NUMBER) {
        return document_refuse_kind(document, value, "a number", error);
    }
    double number = document_number(value);
    if (!isfinite(number)) {
        return document_refuse(document, value, DOCUMENT_WHOLE, error,
                               "must be a finite number within float64");
    }
    *out = number;
    return true;
}

/* The rule for a whole number. */
struct range {
    int64_t min, max;
    bool narrow; /* the number was read as float32 */
};

/* Refuses a number that may not be the one that was sent: it is beyond the whole numbers that are
 * `exact`. So the message does not show it. */
static bool refuse_inexact(const struct codec_document *document, const struct codec_value *value,
                           size_t element, const struct range *range, struct codec_error *error) {
    const int64_t exact = range->narrow ? DOCUMENT_EXACT32 : DOCUMENT_EXACT64;
    if (range->max < exact) {
        return document_refuse(document, value, element, error, "must be %lld to %lld",
                               (long long)range->min, (long long)range->max);
    }
    return document_refuse(document, value, element, error,
                           "must be %lld to %lld: larger whole numbers are not exact in %s",
                           (long long)(range->min < -exact ? -exact : range->min), (long long)exact,
                           range->narrow ? "float32" : "float64");
}

static bool check_integer(const struct codec_document *document, const struct codec_value *value,
                          size_t element, double number, const struct range *range,
                          struct codec_error *error) {
    const long long min = range->min, max = range->max;
    char text[NUMBER_SIZE + 1];
    if (!isfinite(number)) {
        return document_refuse(document, value, element, error, "must be a whole number");
    }
    if (floor(number) != number) {
        return document_refuse(document, value, element, error, "must be a whole number, not %s",
                               document_number_text(number, range->narrow, text));
    }
    if (!document_is_exact(number, range->narrow)) {
        return refuse_inexact(document, value, element, range, error);
    }
    const long long integer = (long long)number;
    if (integer >= min && integer <= max) {
        return true;
    }
    return integer < min && max == INT64_MAX
               ? document_refuse(document, value, element, error, "must be at least %lld, not %lld",
                                 min, integer)
               : document_refuse(document, value, element, error, "must be %lld to %lld, not %lld",
                                 min, max, integer);
}

bool codec_as_integer(const struct codec_document *document, const struct codec_value *value,
                      int64_t min, int64_t max, int64_t *out, struct codec_error *error) {
    const struct range range = {min, max, false};
    if (codec_kind_of(value) != CODEC_NUMBER) {
        return document_refuse_kind(document, value, "a whole number", error);
    }
    const double number = document_number(value);
    if (!check_integer(document, value, DOCUMENT_WHOLE, number, &range, error)) {
        return false;
    }
    *out = (int64_t)number;
    return true;
}

bool codec_as_numbers(const struct codec_document *document, const struct codec_value *value,
                      size_t most, const double **out, size_t *count, struct codec_error *error) {
    const struct codec_tensor *tensor =
        document_find_tensor(document, value, "an array of numbers", 1, 1, error);
    if (tensor == NULL) {
        return false;
    }
    if (tensor->dtype == ATTN_BOOL || tensor->count > most) {
        return tensor->dtype == ATTN_BOOL
                   ? document_refuse(document, value, DOCUMENT_WHOLE, error,
                                     "must be an array of numbers, not of booleans")
                   : document_refuse(document, value, DOCUMENT_WHOLE, error,
                                     "must have at most %zu numbers, not %zu", most, tensor->count);
    }
    if (tensor->count == 0) {
        return document_refuse(document, value, DOCUMENT_WHOLE, error, "is empty");
    }
    double *numbers =
        account_alloc(codec_document_account(document), tensor->count * sizeof *numbers);
    if (numbers == NULL) {
        return codec_no_memory(error);
    }
    for (size_t i = 0; i < tensor->count; i++) {
        numbers[i] = codec_tensor_number(tensor, i);
        if (!isfinite(numbers[i])) {
            return document_refuse_element(document, value, tensor, i, "a finite number", error);
        }
    }
    *out = numbers;
    *count = tensor->count;
    return true;
}

bool codec_as_text(const struct codec_document *document, const struct codec_value *value,
                   const char **out, struct codec_error *error) {
    if (codec_kind_of(value) != CODEC_TEXT) {
        return document_refuse_kind(document, value, "a string", error);
    }
    *out = document_text(value);
    return true;
}

/* Writes a list of names: "a", "b" or "c". If there is no room for all of them, it ends with the
 * number of the others. */
static void list_names(char *out, size_t size, const char *const *names, size_t count) {
    const size_t others = sizeof " or one of 9999 others";
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        const char *before = i == 0 ? "" : i + 1 < count ? ", " : " or ";
        const size_t next = strlen(before) + strlen(names[i]) + 2;
        if (used + next + others > size) {
            snprintf(out + used, size - used, " or one of %zu others", count - i);
            return;
        }
        used += (size_t)snprintf(out + used, size - used, "%s\"%s\"", before, names[i]);
    }
}

/* Returns the longest of the names that is a part of `text` and has at least three letters, or
 * NULL. */
static const char *name_within(const char *text, const char *const *names, size_t count) {
    const char *found = NULL;
    for (size_t i = 0, longest = 2; i < count; i++) {
        const size_t size = strlen(names[i]);
        if (size > longest && strstr(text, names[i]) != NULL) {
            found = names[i];
            longest = size;
        }
    }
    return found;
}

bool codec_as_choice(const struct codec_document *document, const struct codec_value *value,
                     const char *const *names, size_t count, size_t *out,
                     struct codec_error *error) {
    /* A value that is no text is like an empty one: no name is equal or near to it. */
    const char *text = codec_kind_of(value) == CODEC_TEXT ? document_text(value) : "";
    for (size_t i = 0; i < count; i++) {
        /* The first character excludes most names without a call. */
        if (text[0] == names[i][0] && strcmp(text, names[i]) == 0) {
            *out = i;
            return true;
        }
    }
    char list[240];
    size_t edits;
    list_names(list, sizeof list, names, count);
    codec_refuse(document, value, list, error);
    const char *nearest = codec_nearest(text, names, count, &edits);
    nearest = nearest != NULL ? nearest : name_within(text, names, count);
    if (nearest != NULL && count > 2) { /* a list of two needs no hint */
        const size_t used = strlen(error->message);
        snprintf(error->message + used, sizeof error->message - used, "; did you mean \"%s\"?",
                 nearest);
    }
    return false;
}

/* Reads the numbers of a tensor of rank 1 or 2. */
static bool read_integers(const struct codec_document *document, const struct codec_value *value,
                          struct range range, int rank, struct codec_integers *out,
                          struct codec_error *error) {
    const struct codec_tensor *tensor = document_find_tensor(
        document, value,
        rank == 1 ? "an array of whole numbers" : "an array of arrays of whole numbers", rank, rank,
        error);
    if (tensor == NULL) {
        return false;
    }
    if (tensor->dtype == ATTN_BOOL) {
        return document_refuse(document, value, DOCUMENT_WHOLE, error,
                               "must be an array of whole numbers, not of booleans");
    }
    const enum codec_type type = (enum codec_type)tensor->type;
    if (codec_type_is_float(type) && type < CODEC_TYPE_FP32) {
        return document_refuse(document, value, DOCUMENT_WHOLE, error,
                               "must be an array of whole numbers, not of %s, which rounds them",
                               codec_inference_types[type]);
    }
    if (tensor->count == 0) {
        return document_refuse(document, value, DOCUMENT_WHOLE, error, "is empty");
    }
    range.narrow = tensor->dtype == ATTN_FLOAT32;
    out->count = tensor->count;
    out->lists = rank == 2 ? tensor->shape[0] : 1;
    for (size_t i = 0; i < out->count && i < out->most; i++) {
        const double number = codec_tensor_number(tensor, i);
        if (!isfinite(number)) {
            return document_refuse_element(document, value, tensor, i, "a whole number", error);
        }
        if (!check_integer(document, value, i, number, &range, error)) {
            return false;
        }
        out->numbers[i] = (int64_t)number;
    }
    return true;
}

bool codec_as_integers(const struct codec_document *document, const struct codec_value *value,
                       int64_t min, int64_t max, int64_t *out, size_t most, size_t *count,
                       struct codec_error *error) {
    *count = 1;
    if (codec_kind_of(value) == CODEC_NUMBER) {
        return codec_as_integer(document, value, min, max, out, error);
    }
    struct codec_integers list = {.numbers = out, .most = most};
    const bool good =
        read_integers(document, value, (struct range){min, max, false}, 1, &list, error);
    *count = list.count;
    return good;
}

bool codec_as_integer_lists(const struct codec_document *document, const struct codec_value *value,
                            int64_t min, int64_t max, struct codec_integers *out,
                            struct codec_error *error) {
    return read_integers(document, value, (struct range){min, max, false}, 2, out, error);
}
