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

bool codec_is_lfs_pointer(const unsigned char prefix[static SAFETENSORS_PREFIX]) {
    return memcmp(prefix, "version ", SAFETENSORS_PREFIX) == 0;
}

/* Reads the type and the shape of a tensor of a file. */
static bool read_spec(const struct codec_document *document, const struct codec_value *value,
                      struct codec_header_tensor *tensor, struct codec_error *error) {
    const struct codec_value *type = codec_get(value, "dtype"), *shape = codec_get(value, "shape");
    const char *text;
    int64_t axes[ATTN_MAX_RANK];
    size_t count = 0;
    if (codec_kind_of(value) != CODEC_OBJECT) {
        return binary_refuse(document, value, tensor->name, error, "is no object");
    }
    if (type == NULL || codec_kind_of(type) != CODEC_TEXT ||
        !codec_as_text(document, type, &text, error)) {
        return binary_refuse(document, value, tensor->name, error,
                             "has no dtype, which is a string");
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
        return binary_refuse(document, value, tensor->name, error,
                             "has no shape, which is a list of sizes");
    }
    tensor->rank = count > ATTN_MAX_RANK ? -1 : (int)count;
    for (int axis = 0; axis < tensor->rank; axis++) {
        tensor->shape[axis] = (size_t)axes[axis];
    }
    return true;
}

/* Reads the type and the shape of a tensor of a body. */
static bool read_narrow_spec(const struct codec_document *document, const struct codec_value *value,
                             struct codec_header_tensor *tensor, struct codec_error *error) {
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    const struct codec_keys known = {.names = keys, .count = sizeof keys / sizeof *keys};
    struct codec_tensor_spec spec;
    if (!codec_check_keys(document, value, &known, error) ||
        !codec_as_spec(document, codec_get(value, "dtype"), codec_get(value, "shape"), tensor->name,
                       codec_safetensors_types, &spec, error)) {
        return false;
    }
    tensor->type = spec.type;
    tensor->rank = spec.rank;
    memcpy(tensor->shape, spec.shape, sizeof tensor->shape);
    return true;
}

/* Checks that a tensor has as many bytes by its data_offsets as by its dtype and shape. */
static bool check_bytes(const struct codec_document *document, const struct codec_value *value,
                        bool is_body, const struct codec_header_tensor *tensor,
                        struct codec_error *error) {
    if (tensor->type == CODEC_TYPE_COUNT || tensor->rank < 0) {
        return true;
    }
    const size_t together = codec_type_together(tensor->type);
    size_t bytes = codec_type_size(tensor->type);
    bool fits = true;
    for (int axis = 0; axis < tensor->rank; axis++) {
        fits = fits && !__builtin_mul_overflow(bytes, tensor->shape[axis], &bytes);
    }
    fits = fits && bytes % together == 0;
    bytes /= together;
    if (fits && bytes == tensor->bytes) {
        return true;
    }
    return is_body ? binary_refuse(document, value, tensor->name, error,
                                   "has %zu bytes by its data_offsets, but %zu by its dtype and "
                                   "shape",
                                   tensor->bytes, bytes)
                   : binary_refuse(document, value, tensor->name, error,
                                   "has another number of bytes by its data_offsets than by its "
                                   "dtype and shape");
}

static bool read_tensor(const struct codec_document *document, const struct codec_value *value,
                        bool is_body, struct codec_header_tensor *tensor,
                        struct codec_error *error) {
    int64_t offsets[2];
    size_t count;
    tensor->name = codec_name(value);
    if (!(is_body ? read_narrow_spec : read_spec)(document, value, tensor, error)) {
        return false;
    }
    const struct codec_value *range = codec_get(value, "data_offsets");
    if (range == NULL || codec_kind_of(range) != CODEC_TENSOR ||
        !codec_as_integers(document, range, 0, INT64_MAX, offsets, 2, &count, error) ||
        count != 2 || offsets[1] < offsets[0]) {
        return binary_refuse(document, value, tensor->name, error,
                             "must have data_offsets, two offsets of which the second is not "
                             "before the first");
    }
    tensor->begin = (size_t)offsets[0];
    tensor->bytes = (size_t)(offsets[1] - offsets[0]);
    return check_bytes(document, value, is_body, tensor, error);
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

/* An empty tensor stands before the one that begins at the same byte. */
static int by_begin(const void *a, const void *b) {
    const struct codec_header_tensor *left = a, *right = b;
    return left->begin != right->begin ? (left->begin > right->begin ? 1 : -1)
                                       : (left->bytes > 0) - (right->bytes > 0);
}

/* Sorts the tensors by their bytes, and checks that these follow one another. *end becomes their
 * number. */
static bool check_order(const struct codec_document *document, struct codec_safetensors *header,
                        size_t *end, struct codec_error *error) {
    *end = 0;
    qsort(header->list, header->count, sizeof *header->list, by_begin);
    for (size_t i = 0; i < header->count; i++) {
        const struct codec_header_tensor *tensor = &header->list[i];
        if (tensor->begin != *end) {
            return binary_refuse(document, codec_get(codec_root(document), tensor->name),
                                 tensor->name, error,
                                 "begins at byte %zu, but the tensors before it end at byte %zu: "
                                 "tensors have no gaps and do not overlap",
                                 tensor->begin, *end);
        }
        *end += tensor->bytes; /* at most 2^53 + 2^53 */
    }
    return true;
}

bool codec_safetensors_read(const struct codec_document *document, size_t bytes,
                            struct codec_safetensors *header, struct codec_error *error) {
    const struct codec_value *root = codec_root(document);
    const bool is_body = bytes == SAFETENSORS_BODY;
    size_t end;
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
        if (header->count == header->most) {
            return codec_fail(document, member, error,
                              "the body has more than %zu tensors, which is a fixed limit",
                              header->most);
        }
        if (!read_tensor(document, member, is_body, &header->list[header->count++], error)) {
            return false;
        }
    }
    if (!check_order(document, header, &end, error)) {
        return false;
    }
    return is_body || end == bytes ||
           codec_fail(document, NULL, error,
                      "the tensors have %zu bytes, but the file has %zu bytes after its header",
                      end, bytes);
}

/* ---------------------------------------------------------------------------- writing a header */

enum {
    MOST_TEXTS = 2 /* most texts and lists of texts in one answer */
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

/* Lists the texts of an answer in the metadata, but not those of an array. A list of texts is
 * written as JSON into one of `texts`. Returns false if there is no memory. */
static bool add_metadata(struct codec_items *list, struct codec_buffer texts[static MOST_TEXTS],
                         const struct codec_items *items) {
    size_t count = 0, depth = 0;
    for (size_t i = 0; i < items->count; i++) {
        const struct codec_item *item = &items->list[i];
        depth += codec_item_depth(item);
        if (depth != 1 ||
            (item->op != CODEC_OP_TEXTS && item->op != CODEC_OP_IDS && item->op != CODEC_OP_TEXT)) {
            continue;
        }
        assert(count < MOST_TEXTS);
        if (item->op != CODEC_OP_TEXT && !write_text(&texts[count], list->account, item)) {
            return false;
        }
        if (count == 0) {
            codec_add_open(list, CODEC_OP_OBJECT, "__metadata__");
        }
        codec_add_text(list, item->key, item->op == CODEC_OP_TEXT ? item->text : texts[count].data);
        count++;
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
    if (results->count > 0) { /* a comparison is no tensor */
        qsort(results->list, results->count, sizeof *results->list, by_width);
    }
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    bool good = add_metadata(&list, texts, items);
    add_tensors(&list, results);
    codec_add_close(&list);
    good = good && write_header(&list, buffer);
    for (size_t i = 0; i < MOST_TEXTS; i++) {
        account_free(results->account, texts[i].data);
    }
    codec_items_free(&list);
    return good;
}
