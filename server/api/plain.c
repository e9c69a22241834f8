/* plain.c - makes the plain document of a question whose tensors are bytes. */
#include "api/plain.h"

#include <string.h>

#include "api/fields.h"

void plain_begin(struct plain *plain, struct codec_document *source, struct account *account,
                 size_t max_values) {
    plain->account = account;
    plain->max_values = max_values;
    plain->source = source;
    plain->tensor_count = 0;
    codec_items_begin(&plain->items, account);
    codec_add_open(&plain->items, CODEC_OP_OBJECT, NULL);
}

bool plain_has(const struct plain *plain, const char *name) {
    for (size_t i = 0; i < plain->items.count; i++) {
        const char *key = plain->items.list[i].key; /* NULL for the object, and in "return" */
        if (key != NULL && strcmp(key, name) == 0) {
            return true;
        }
    }
    return false;
}

bool plain_tensor(struct plain *plain, const struct plain_tensor *tensor,
                  struct codec_error *error) {
    if (plain->tensor_count == CODEC_MAX_ARRIVALS) {
        return codec_fail(plain->source, NULL, error,
                          "the request has more than %d tensors, which is a fixed limit",
                          CODEC_MAX_ARRIVALS);
    }
    if (plain_has(plain, tensor->name)) {
        return codec_fail(plain->source, NULL, error, "the tensor \"%.64s\" is given twice",
                          tensor->name);
    }
    codec_add_number(&plain->items, tensor->name, 0);
    plain->tensors[plain->tensor_count++] = *tensor;
    return true;
}

/* Refuses an option with the name of a tensor. */
static bool is_new_option(const struct plain *plain, const char *name, struct codec_error *error) {
    for (size_t i = 0; i < plain->tensor_count; i++) {
        if (strcmp(plain->tensors[i].name, name) == 0) {
            return codec_fail(plain->source, NULL, error,
                              "\"%.64s\" is given as a tensor and as an option", name);
        }
    }
    return true;
}

bool plain_number(struct plain *plain, const char *name, double number, struct codec_error *error) {
    if (!is_new_option(plain, name, error)) {
        return false;
    }
    codec_add_number(&plain->items, name, number);
    return true;
}

/* Adds a text, as JSON if it is JSON. */
static bool add_text_option(struct plain *plain, const char *name, const char *text,
                            struct codec_error *error) {
    const bool infinity = strcmp(name, fields_infinity_key()) == 0;
    const struct codec_options options = {.account = plain->account,
                                          .max_values = plain->max_values,
                                          .infinity_key = infinity ? "" : NULL};
    bool json;
    if (!codec_is_json(text, &options, &json)) {
        return codec_no_memory(error);
    }
    codec_add(
        &plain->items,
        (struct codec_item){.op = json ? CODEC_OP_JSON : CODEC_OP_TEXT, .key = name, .text = text});
    return true;
}

bool plain_option(struct plain *plain, const char *name, const struct codec_value *value,
                  struct codec_error *error) {
    double number;
    bool on;
    const char *text;
    if (!is_new_option(plain, name, error)) {
        return false;
    }
    switch (codec_kind_of(value)) {
    case CODEC_NUMBER:
        if (!codec_as_number(plain->source, value, &number, error)) {
            return false;
        }
        codec_add_number(&plain->items, name, number);
        return true;
    case CODEC_BOOL:
        if (!codec_as_bool(plain->source, value, &on, error)) {
            return false;
        }
        codec_add_bool(&plain->items, name, on);
        return true;
    case CODEC_TEXT:
        return codec_as_text(plain->source, value, &text, error) &&
               add_text_option(plain, name, text, error);
    default:
        return codec_refuse(plain->source, value,
                            "a number, a boolean or a string; a list is written as JSON in a "
                            "string, such as \"[2, 0]\"",
                            error);
    }
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
        types |= codec_type_is_float(type) ? 1u << type : 0; /* texts have no float type */
    }
    if ((types & 1u << CODEC_TYPE_FP64) != 0) {
        codec_add_text(&plain->items, fields_dtype_key(), "float64");
    } else if (types == 1u << CODEC_TYPE_FP16 || types == 1u << CODEC_TYPE_BF16) {
        *floats = types == 1u << CODEC_TYPE_FP16 ? CODEC_TYPE_FP16 : CODEC_TYPE_BF16;
    }
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
        const bool good =
            tensor->data == NULL ? codec_expect(arrivals, member, &tensor->form, error)
            : tensor->form.texts ? codec_move_texts(document, member, plain->source, tensor->data,
                                                    &tensor->form, error)
                                 : codec_move_tensor(document, member, plain->source, tensor->data,
                                                     &tensor->form, error);
        if (!good) {
            return false;
        }
    }
    return true;
}

struct codec_document *plain_make(struct plain *plain, struct codec_arrivals *arrivals,
                                  enum codec_type *floats, struct codec_error *error) {
    struct codec_items *items = &plain->items;
    struct codec_buffer text = {0};
    struct codec_document *document = NULL;
    choose_type(plain, floats);
    codec_add_close(items);
    const size_t bytes = codec_items_bytes(items->list, items->count, 0, SIZE_MAX);
    if (codec_items_write(items, 0, 0, bytes, &text)) {
        document = parse_plain(plain, &text, error);
    } else {
        codec_no_memory(error);
    }
    codec_buffer_free(&text, plain->account);
    if (document != NULL && !place_tensors(plain, document, arrivals, error)) {
        codec_document_free(document);
        document = NULL;
    }
    return document;
}
