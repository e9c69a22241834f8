/* plain.c - makes the plain document of a question whose tensors are bytes. */
#include "api/plain.h"

#include <stdlib.h>
#include <string.h>

#include "api/fields.h"

enum {
    BEYOND = 8 * 1024 /* bytes that codec_write() reserves beyond the text */
};

bool plain_option(struct plain *plain, const char *name, const struct codec_value *value,
                  struct codec_error *error) {
    const bool infinity = strcmp(name, fields_infinity_key()) == 0;
    const struct codec_options options = {.account = plain->account,
                                          .max_values = plain->max_values,
                                          .infinity_key = infinity ? "" : NULL};
    struct codec_item item = {.key = name};
    bool on = false;
    if (plain->item_count >= PLAIN_OPTIONS) {
        return codec_fail(plain->question, value, error,
                          "the request has more than %d options, which is a fixed limit",
                          PLAIN_OPTIONS);
    }
    switch (codec_kind_of(value)) {
    case CODEC_NUMBER:
        item.op = CODEC_OP_NUMBER;
        if (!codec_as_number(plain->question, value, &item.number, error)) {
            return false;
        }
        break;
    case CODEC_BOOL:
        item.op = CODEC_OP_BOOL;
        codec_as_bool(plain->question, value, &on, error);
        item.number = on;
        break;
    case CODEC_TEXT:
        if (!codec_as_text(plain->question, value, &item.text, error)) {
            return false;
        }
        if (!codec_is_json(item.text, &options, &on)) {
            return codec_no_memory(error);
        }
        item.op = on ? CODEC_OP_JSON : CODEC_OP_TEXT;
        break;
    default:
        return codec_refuse(plain->question, value,
                            "a number, a boolean or a string; a list is written as JSON in a "
                            "string, such as \"[2, 0]\"",
                            error);
    }
    plain->items[plain->item_count++] = item;
    return true;
}

bool plain_has(const struct plain *plain, const char *name) {
    for (size_t i = 0; i < plain->item_count; i++) {
        const char *key = plain->items[i].key; /* NULL inside of the list "return" */
        if (key != NULL && strcmp(key, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Finds the float type of the results: that of the tensors if all have the same one. Adds the dtype
 * in which they are computed, unless the request has it as an option. */
static void choose_type(struct plain *plain, enum codec_type *floats) {
    unsigned types = 0;
    if (plain_has(plain, fields_dtype_key())) {
        return;
    }
    for (size_t i = 0; i < plain->tensor_count; i++) {
        const enum codec_type type = plain->tensors[i].form.type;
        types |= codec_type_is_float(type) ? 1u << type : 0;
    }
    if ((types & 1u << CODEC_TYPE_FP64) != 0) {
        plain->items[plain->item_count++] =
            (struct codec_item){.op = CODEC_OP_TEXT, .key = fields_dtype_key(), .text = "float64"};
    } else if (types == 1u << CODEC_TYPE_FP16 || types == 1u << CODEC_TYPE_BF16) {
        *floats = types == 1u << CODEC_TYPE_FP16 ? CODEC_TYPE_FP16 : CODEC_TYPE_BF16;
    }
}

/* Lists the JSON of the plain document, with a 0 in place of each tensor. */
static void list_plain(const struct plain *plain, struct codec_item *items) {
    *items++ = (struct codec_item){.op = CODEC_OP_OBJECT};
    for (size_t i = 0; i < plain->tensor_count; i++) {
        *items++ = (struct codec_item){.op = CODEC_OP_NUMBER, .key = plain->tensors[i].name};
    }
    memcpy(items, plain->items, plain->item_count * sizeof *items);
    items[plain->item_count] = (struct codec_item){.op = CODEC_OP_END};
}

/* Parses the JSON of the plain document. */
static struct codec_document *
parse_plain(const struct plain *plain, const struct codec_buffer *text, struct codec_error *error) {
    const struct codec_options options = {.account = plain->account,
                                          .max_values = plain->max_values,
                                          .dtype_key = fields_dtype_key(),
                                          .infinity_key = fields_infinity_key()};
    struct codec_reader *reader = codec_reader_create(&options);
    struct codec_document *document = NULL;
    if (reader == NULL) {
        codec_no_memory(error);
    } else if (codec_reader_feed(reader, text->data, text->size) != CODEC_OK ||
               codec_reader_finish(reader, &document) != CODEC_OK) {
        *error = *codec_reader_error(reader);
        error->has_offset = false; /* the client has not sent this text */
    }
    codec_reader_free(reader);
    return document;
}

/* Puts the tensors into the plain document: the arrays of the JSON at once, and the others when
 * their bytes arrive. */
static bool place_tensors(const struct plain *plain, struct codec_document *document,
                          struct codec_arrivals *arrivals, struct codec_error *error) {
    const struct codec_value *member = codec_at(codec_root(document), 0);
    arrivals->document = document;
    for (size_t i = 0; i < plain->tensor_count; i++, member = codec_next(member)) {
        const struct plain_tensor *tensor = &plain->tensors[i];
        const bool good = tensor->data != NULL
                              ? codec_move_tensor(document, member, plain->question, tensor->data,
                                                  &tensor->form, error)
                              : codec_expect(arrivals, member, &tensor->form, error);
        if (!good) {
            return false;
        }
    }
    return true;
}

static bool check_names(const struct plain *plain, struct codec_error *error) {
    for (size_t i = 0; i < plain->tensor_count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(plain->tensors[i].name, plain->tensors[j].name) == 0) {
                return codec_fail(plain->question, NULL, error,
                                  "the tensor \"%.64s\" is given twice", plain->tensors[i].name);
            }
        }
        if (plain_has(plain, plain->tensors[i].name)) {
            return codec_fail(plain->question, NULL, error,
                              "\"%.64s\" is given as a tensor and as an option",
                              plain->tensors[i].name);
        }
    }
    return true;
}

struct codec_document *plain_make(struct plain *plain, struct codec_arrivals *arrivals,
                                  enum codec_type *floats, struct codec_error *error) {
    struct codec_buffer text = {0};
    struct codec_document *document = NULL;
    choose_type(plain, floats);
    if (!check_names(plain, error)) {
        return NULL;
    }
    const size_t count = plain->tensor_count + plain->item_count + 2;
    struct codec_item *items = account_alloc(plain->account, count * sizeof *items);
    size_t bytes = 0;
    if (items != NULL) {
        list_plain(plain, items);
        bytes = 2 * codec_items_bytes(items, count, 0, SIZE_MAX) + BEYOND;
    }
    const bool counted = items != NULL && account_take(plain->account, bytes);
    if (counted && codec_write(&text, items, count, 0)) {
        document = parse_plain(plain, &text, error);
    } else {
        codec_no_memory(error);
    }
    free(text.data);
    account_give(plain->account, counted ? bytes : 0);
    account_free(plain->account, items, count * sizeof *items);
    if (document != NULL && !place_tensors(plain, document, arrivals, error)) {
        codec_document_free(document);
        document = NULL;
    }
    return document;
}
