/* safetensors.c - reads and writes the headers of safetensors. */
#include "codec/safetensors.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "codec/error.h"

/* ---------------------------------------------------------------------------- reading a header */

uint64_t codec_safetensors_length(const unsigned char prefix[static SAFETENSORS_PREFIX]) {
    uint64_t length = 0;
    for (int i = SAFETENSORS_PREFIX - 1; i >= 0; i--) {
        length = length << 8 | prefix[i];
    }
    return length;
}

static bool read_tensor(const struct codec_document *document, const struct codec_value *value,
                        struct codec_safetensors_tensor *tensor, struct codec_error *error) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    const struct codec_keys known = {.names = keys, .count = sizeof keys / sizeof *keys};
    char quoted[CODEC_QUOTE_SIZE];
    int64_t offsets[2];
    size_t count;
    codec_quote(quoted, codec_name(value), strlen(codec_name(value)));
    if (!codec_check_keys(document, value, &known, error) ||
        !codec_as_form(document, codec_get(value, "dtype"), codec_get(value, "shape"),
                       codec_name(value), codec_safetensors_types, &tensor->form, error)) {
        return false;
    }
    const struct codec_value *range = codec_get(value, "data_offsets");
    if (range == NULL || codec_kind_of(range) != CODEC_TENSOR ||
        !codec_as_integers(document, range, 0, INT64_MAX, offsets, 2, &count, error) ||
        count != 2 || offsets[1] < offsets[0]) {
        return codec_fail(document, value, error,
                          "the tensor \"%s\" must have data_offsets, two offsets of which the "
                          "second is not before the first",
                          quoted);
    }
    tensor->value = value;
    tensor->begin = (size_t)offsets[0];
    if ((size_t)(offsets[1] - offsets[0]) != tensor->form.bytes) {
        return codec_fail(document, value, error,
                          "the tensor \"%s\" has %lld bytes by its data_offsets, but %zu by its "
                          "dtype and shape",
                          quoted, (long long)(offsets[1] - offsets[0]), tensor->form.bytes);
    }
    return true;
}

static bool read_metadata(const struct codec_document *document, const struct codec_value *value,
                          struct codec_error *error) {
    if (codec_kind_of(value) != CODEC_OBJECT) {
        return codec_refuse(document, value, "an object", error);
    }
    for (const struct codec_value *member = codec_at(value, 0); member != NULL;
         member = codec_next(member)) {
        if (codec_kind_of(member) != CODEC_TEXT) {
            return codec_refuse(document, member, "a string, as all values of __metadata__", error);
        }
    }
    return true;
}

static int by_begin(const void *a, const void *b) {
    const struct codec_safetensors_tensor *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

/* Checks that the bytes of the tensors follow one another. */
static bool check_order(const struct codec_document *document,
                        const struct codec_safetensors *header, struct codec_error *error) {
    size_t end = 0;
    for (size_t i = 0; i < header->count; i++) {
        const struct codec_safetensors_tensor *tensor = &header->list[i];
        char quoted[CODEC_QUOTE_SIZE];
        if (tensor->begin != end) {
            codec_quote(quoted, codec_name(tensor->value), strlen(codec_name(tensor->value)));
            return codec_fail(document, tensor->value, error,
                              "the tensor \"%s\" begins at byte %zu, but the tensors before it end "
                              "at byte %zu: tensors have no gaps and do not overlap",
                              quoted, tensor->begin, end);
        }
        end += tensor->form.bytes;
    }
    return true;
}

bool codec_safetensors_read(const struct codec_document *document, struct codec_safetensors *header,
                            struct codec_error *error) {
    const struct codec_value *root = codec_root(document);
    header->count = 0;
    header->metadata = NULL;
    if (codec_kind_of(root) != CODEC_OBJECT) {
        return codec_refuse(document, root, "an object", error);
    }
    for (const struct codec_value *member = codec_at(root, 0); member != NULL;
         member = codec_next(member)) {
        if (strcmp(codec_name(member), "__metadata__") == 0) {
            header->metadata = member;
            if (!read_metadata(document, member, error)) {
                return false;
            }
            continue;
        }
        if (header->count == CODEC_MAX_ARRIVALS) {
            return codec_fail(document, member, error,
                              "the body has more than %d tensors, which is a fixed limit",
                              CODEC_MAX_ARRIVALS);
        }
        if (!read_tensor(document, member, &header->list[header->count++], error)) {
            return false;
        }
    }
    qsort(header->list, header->count, sizeof *header->list, by_begin);
    return check_order(document, header, error);
}

/* ------------------------------------------------------------------------- the header of a file */

/* Refuses a tensor of a file. The message is a rule after its name. */
static bool refuse_stored(const struct codec_document *document, const struct codec_value *value,
                          const char *rule, struct codec_error *error) {
    char quoted[CODEC_QUOTE_SIZE];
    codec_quote(quoted, codec_name(value), strlen(codec_name(value)));
    return codec_fail(document, value, error, "the tensor \"%s\" %s", quoted, rule);
}

/* Reads the type and the shape of a tensor. */
static bool read_stored_form(const struct codec_document *document, const struct codec_value *value,
                             struct codec_stored *tensor, struct codec_error *error) {
    const struct codec_value *type = codec_get(value, "dtype"), *shape = codec_get(value, "shape");
    const char *text;
    int64_t axes[ATTN_MAX_RANK];
    size_t count = 0;
    if (type == NULL || codec_kind_of(type) != CODEC_TEXT ||
        !codec_as_text(document, type, &text, error)) {
        return refuse_stored(document, value, "has no dtype, which is a string", error);
    }
    tensor->type = CODEC_TYPE_BOOL;
    while (tensor->type < CODEC_TYPE_COUNT &&
           strcmp(text, codec_safetensors_types[tensor->type]) != 0) {
        tensor->type++;
    }
    const bool empty =
        shape != NULL && codec_kind_of(shape) == CODEC_ARRAY && codec_size(shape) == 0;
    if (!empty &&
        (shape == NULL || codec_kind_of(shape) != CODEC_TENSOR ||
         !codec_as_integers(document, shape, 0, INT64_MAX, axes, ATTN_MAX_RANK, &count, error))) {
        return refuse_stored(document, value, "has no shape, which is a list of sizes", error);
    }
    tensor->rank = count > ATTN_MAX_RANK ? -1 : (int)count;
    for (int axis = 0; axis < tensor->rank; axis++) {
        tensor->shape[axis] = (size_t)axes[axis];
    }
    return true;
}

static bool read_stored(const struct codec_document *document, const struct codec_value *value,
                        struct codec_stored *tensor, struct codec_error *error) {
    const struct codec_value *range = codec_get(value, "data_offsets");
    int64_t offsets[2];
    size_t count;
    tensor->name = codec_name(value);
    if (codec_kind_of(value) != CODEC_OBJECT) {
        return refuse_stored(document, value, "is no object", error);
    }
    if (!read_stored_form(document, value, tensor, error)) {
        return false;
    }
    if (range == NULL || codec_kind_of(range) != CODEC_TENSOR ||
        !codec_as_integers(document, range, 0, INT64_MAX, offsets, 2, &count, error) ||
        count != 2 || offsets[1] < offsets[0]) {
        return refuse_stored(document, value,
                             "must have data_offsets, two offsets of which the second is not "
                             "before the first",
                             error);
    }
    tensor->begin = (size_t)offsets[0];
    tensor->bytes = (size_t)(offsets[1] - offsets[0]);
    if (tensor->type == CODEC_TYPE_COUNT || tensor->rank < 0) {
        return true;
    }
    size_t bytes = codec_type_size(tensor->type);
    bool fits = true;
    for (int axis = 0; axis < tensor->rank; axis++) {
        fits = fits && !__builtin_mul_overflow(bytes, tensor->shape[axis], &bytes);
    }
    return (fits && bytes == tensor->bytes) ||
           refuse_stored(document, value,
                         "has another number of bytes by its data_offsets than by its dtype and "
                         "shape",
                         error);
}

static int stored_by_begin(const void *a, const void *b) {
    const struct codec_stored *left = a, *right = b;
    return left->begin != right->begin
               ? (left->begin > right->begin ? 1 : -1)
               : (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

static int stored_by_name(const void *a, const void *b) {
    return strcmp(((const struct codec_stored *)a)->name, ((const struct codec_stored *)b)->name);
}

/* Checks that the tensors follow one another and end with the file, and sorts them by name. */
static bool check_file(const struct codec_document *document, struct codec_stored *list,
                       size_t count, size_t bytes, struct codec_error *error) {
    char quoted[CODEC_QUOTE_SIZE];
    size_t end = 0;
    qsort(list, count, sizeof *list, stored_by_begin);
    for (size_t i = 0; i < count; i++) {
        if (list[i].begin != end) {
            codec_quote(quoted, list[i].name, strlen(list[i].name));
            return codec_fail(document, NULL, error,
                              "the tensor \"%s\" begins at byte %zu, but the tensors before it end "
                              "at byte %zu: tensors have no gaps and do not overlap",
                              quoted, list[i].begin, end);
        }
        end += list[i].bytes; /* at most 2^53 + 2^53 */
    }
    if (end != bytes) {
        return codec_fail(document, NULL, error,
                          "the tensors have %zu bytes, but the file has %zu bytes after its header",
                          end, bytes);
    }
    qsort(list, count, sizeof *list, stored_by_name);
    return true;
}

struct codec_stored *codec_safetensors_list(const struct codec_document *document, size_t bytes,
                                            size_t *count, const struct codec_value **metadata,
                                            struct codec_error *error) {
    const struct codec_value *root = codec_root(document);
    *count = 0;
    *metadata = NULL;
    if (codec_kind_of(root) != CODEC_OBJECT) {
        codec_refuse(document, root, "an object", error);
        return NULL;
    }
    struct codec_stored *list = calloc(codec_size(root) + 1, sizeof *list);
    if (list == NULL) {
        codec_no_memory(error);
        return NULL;
    }
    bool good = true;
    const struct codec_value *member = codec_at(root, 0);
    for (; good && member != NULL; member = codec_next(member)) {
        if (strcmp(codec_name(member), "__metadata__") == 0) {
            *metadata = member;
            good = read_metadata(document, member, error);
        } else {
            good = read_stored(document, member, &list[(*count)++], error);
        }
    }
    if (!good || !check_file(document, list, *count, bytes, error)) {
        free(list);
        return NULL;
    }
    return list;
}

/* ---------------------------------------------------------------------------- writing a header */

enum {
    MOST_TEXTS = 2 /* most lists of texts in one answer */
};

static int by_width(const void *a, const void *b) {
    const struct codec_result *left = a, *right = b;
    const size_t wide = codec_type_size(left->type), narrow = codec_type_size(right->type);
    return wide != narrow ? (wide < narrow) - (wide > narrow) : strcmp(left->name, right->name);
}

/* Writes an item of an answer as JSON, with a NUL at its end. Returns false if there is no
 * memory. */
static bool write_text(struct codec_buffer *text, struct account *account,
                       const struct codec_item *item) {
    struct codec_items list;
    codec_items_begin(&list, account);
    codec_add(&list, *item);
    list.list[0].key = NULL;
    if (!codec_items_write(&list, 0, 0, codec_items_bytes(list.list, 1, 0, SIZE_MAX), text)) {
        return false;
    }
    text->data[text->size - 1] = '\0'; /* in place of the line feed */
    return true;
}

/* Lists the texts of an answer in the metadata. Each is written as JSON into one of `texts`.
 * Returns false if there is no memory. */
static bool add_metadata(struct codec_items *list, struct codec_buffer texts[static MOST_TEXTS],
                         const struct codec_items *items) {
    size_t count = 0;
    for (size_t i = 0; i < items->count; i++) {
        const struct codec_item *item = &items->list[i];
        if (item->op != CODEC_OP_TEXTS && item->op != CODEC_OP_IDS) {
            continue;
        }
        assert(count < MOST_TEXTS);
        if (!write_text(&texts[count], list->account, item)) {
            return false;
        }
        if (count == 0) {
            codec_add_open(list, CODEC_OP_OBJECT, "__metadata__");
        }
        codec_add_text(list, item->key, texts[count++].data);
    }
    if (count > 0) {
        codec_add_close(list);
    }
    return true;
}

/* Lists the tensors of an answer, and sets their offsets. */
static void add_tensors(struct codec_items *list, struct codec_results *results) {
    size_t offset = 0;
    for (size_t i = 0; i < results->count; i++) {
        struct codec_result *result = &results->list[i];
        result->offsets[0] = offset;
        result->offsets[1] = offset += result->bytes;
        codec_add_open(list, CODEC_OP_OBJECT, result->name);
        codec_add_text(list, "dtype", codec_safetensors_types[result->type]);
        codec_add_integers(list, "shape", result->tensor.shape, (size_t)result->tensor.rank);
        codec_add_integers(list, "data_offsets", result->offsets, 2);
        codec_add_close(list);
    }
}

/* Writes a header, with spaces at its end so that the tensors begin at a multiple of eight. */
static bool write_header(const struct codec_items *list, struct codec_buffer *buffer) {
    const size_t bytes = codec_items_bytes(list->list, list->count, 0, SIZE_MAX);
    if (!codec_items_write(list, 0, SAFETENSORS_PREFIX, bytes + SAFETENSORS_PREFIX, buffer)) {
        return false;
    }
    buffer->size--; /* the line feed */
    while (buffer->size % SAFETENSORS_PREFIX != 0) {
        buffer->data[buffer->size++] = ' '; /* the room has SAFETENSORS_PREFIX bytes more */
    }
    const uint64_t length = buffer->size - SAFETENSORS_PREFIX;
    for (int i = 0; i < SAFETENSORS_PREFIX; i++) {
        buffer->data[i] = (char)(length >> 8 * i);
    }
    return true;
}

bool codec_safetensors_write(struct codec_buffer *buffer, struct codec_results *results,
                             const struct codec_items *items) {
    struct codec_buffer texts[MOST_TEXTS] = {0};
    struct codec_items list;
    codec_items_begin(&list, results->account);
    qsort(results->list, results->count, sizeof *results->list, by_width);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    bool good = add_metadata(&list, texts, items);
    add_tensors(&list, results);
    codec_add_close(&list);
    good = good && write_header(&list, buffer);
    for (size_t i = 0; i < MOST_TEXTS; i++) {
        codec_buffer_free(&texts[i], results->account);
    }
    codec_items_free(&list);
    return good;
}
