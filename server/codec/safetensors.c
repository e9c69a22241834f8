/* safetensors.c - reads and writes the headers of safetensors. */
#include "codec/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "codec/error.h"

/* ---------------------------------------------------------------------------- reading a header */

uint64_t safetensors_length(const unsigned char prefix[static SAFETENSORS_PREFIX]) {
    uint64_t length = 0;
    for (int i = SAFETENSORS_PREFIX - 1; i >= 0; i--) {
        length = length << 8 | prefix[i];
    }
    return length;
}

static bool read_tensor(const struct codec_document *document, const struct codec_value *value,
                        struct safetensors_tensor *tensor, struct codec_error *error) {
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
    const struct safetensors_tensor *left = a, *right = b;
    return (left->begin > right->begin) - (left->begin < right->begin);
}

/* Checks that the bytes of the tensors follow one another. */
static bool check_order(const struct codec_document *document, const struct safetensors *header,
                        struct codec_error *error) {
    size_t end = 0;
    for (size_t i = 0; i < header->count; i++) {
        const struct safetensors_tensor *tensor = &header->list[i];
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

bool safetensors_read(const struct codec_document *document, struct safetensors *header,
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

/* ---------------------------------------------------------------------------- writing a header */

static int by_width(const void *a, const void *b) {
    const struct codec_result *left = a, *right = b;
    const size_t wide = codec_type_size(left->type), narrow = codec_type_size(right->type);
    return wide != narrow ? (wide < narrow) - (wide > narrow) : strcmp(left->name, right->name);
}

/* Writes the texts of an answer as JSON into `texts`, one after another, each with a NUL. Returns
 * false if there is no memory. */
static bool write_texts(struct codec_buffer *texts, const struct codec_item *items, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct codec_item item = items[i];
        if (item.op != CODEC_OP_TEXTS && item.op != CODEC_OP_IDS) {
            continue;
        }
        item.key = NULL;
        if (!codec_write(texts, &item, 1, 0)) {
            return false;
        }
        texts->data[texts->size - 1] = '\0'; /* in place of the line feed */
    }
    return true;
}

/* Adds the object of the metadata, if the answer has texts: they are in `text`, each with a NUL.
 * Returns the end of the items. */
static struct codec_item *add_metadata(struct codec_item *out, const char *text,
                                       const struct codec_item *items, size_t count) {
    if (text == NULL) {
        return out;
    }
    *out++ = (struct codec_item){.op = CODEC_OP_OBJECT, .key = "__metadata__"};
    for (size_t i = 0; i < count; i++) {
        if (items[i].op == CODEC_OP_TEXTS || items[i].op == CODEC_OP_IDS) {
            *out++ = (struct codec_item){.op = CODEC_OP_TEXT, .key = items[i].key, .text = text};
            text += strlen(text) + 1;
        }
    }
    *out++ = (struct codec_item){.op = CODEC_OP_END};
    return out;
}

enum {
    ITEMS_OF_TENSOR = 6
};

/* Adds the items of one tensor. `offsets` are two numbers that live as long as the items. */
static struct codec_item *add_tensor(struct codec_item *out, const struct codec_result *result,
                                     int64_t offsets[static 2], size_t begin) {
    const attn_tensor *tensor = &result->tensor;
    offsets[0] = (int64_t)begin;
    offsets[1] = (int64_t)(begin + result->bytes);
    *out++ = (struct codec_item){.op = CODEC_OP_OBJECT, .key = result->name};
    *out++ = (struct codec_item){
        .op = CODEC_OP_TEXT, .key = "dtype", .text = codec_safetensors_types[result->type]};
    *out++ = codec_shape_item("shape", tensor);
    *out++ = (struct codec_item){
        .op = CODEC_OP_TENSOR,
        .key = "data_offsets",
        .tensor = {.data = offsets, .dtype = ATTN_INT64, .rank = 1, .shape = {2}}};
    *out++ = (struct codec_item){.op = CODEC_OP_END};
    return out;
}

/* Writes the header, with spaces at its end so that the tensors begin at a multiple of eight. */
static bool write_header(struct codec_buffer *buffer, const struct codec_item *items,
                         size_t count) {
    const char prefix[SAFETENSORS_PREFIX] = {0};
    const size_t start = buffer->size;
    if (!codec_append(buffer, prefix, sizeof prefix) || !codec_write(buffer, items, count, 0)) {
        return false;
    }
    buffer->size--; /* the line feed */
    while ((buffer->size - start) % SAFETENSORS_PREFIX != 0) {
        if (!codec_append(buffer, " ", 1)) {
            return false;
        }
    }
    const uint64_t length = buffer->size - start - SAFETENSORS_PREFIX;
    for (int i = 0; i < SAFETENSORS_PREFIX; i++) {
        buffer->data[start + (size_t)i] = (char)(length >> 8 * i);
    }
    return true;
}

bool safetensors_write(struct codec_buffer *buffer, struct codec_results *results,
                       const struct codec_item *items, size_t count) {
    struct codec_buffer texts = {0};
    const size_t room = count + 4 + results->count * ITEMS_OF_TENSOR;
    struct codec_item *header = calloc(room, sizeof *header), *out = header;
    int64_t(*offsets)[2] = calloc(results->count + 1, sizeof *offsets);
    size_t begin = 0;
    bool good = header != NULL && offsets != NULL && write_texts(&texts, items, count);
    if (good) {
        qsort(results->list, results->count, sizeof *results->list, by_width);
        *out++ = (struct codec_item){.op = CODEC_OP_OBJECT};
        out = add_metadata(out, texts.data, items, count);
        for (size_t i = 0; i < results->count; i++) {
            out = add_tensor(out, &results->list[i], offsets[i], begin);
            begin += results->list[i].bytes;
        }
        *out++ = (struct codec_item){.op = CODEC_OP_END};
        good = write_header(buffer, header, (size_t)(out - header));
    }
    free(texts.data);
    free(header);
    free(offsets);
    return good;
}
