/* config.c - see config.h. */
#include "layers/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct codec_options config_limits(size_t size, struct account *account) {
    const size_t keys = size / 4; /* a key has two quotes, a colon and a value */
    return (struct codec_options){
        .max_bytes = size + 1,
        .max_values = CONFIG_VALUES,
        .max_keys = keys > CONFIG_KEYS ? CONFIG_KEYS : keys + 1,
        .max_arrays = CONFIG_VALUES,
        .account = account,
    };
}

const char *config_metadata(const struct config *config, const char *name) {
    const struct codec_value *value =
        config->metadata == NULL ? NULL : codec_get(config->metadata, name);
    const char *text;
    struct codec_error unused;
    return value != NULL && codec_as_text(config->header, value, &text, &unused) ? text : NULL;
}

bool config_open(struct config *config, struct codec_error *error) {
    const char *text = config_metadata(config, "config");
    if (text == NULL) {
        return true;
    }
    const size_t size = strlen(text);
    struct codec_options options = config_limits(size, config->account);
    options.settings = true;
    struct codec_reader *reader = codec_reader_create(&options);
    if (reader == NULL) {
        codec_no_memory(error);
    } else if (codec_reader_feed(reader, text, size) != CODEC_OK ||
               codec_reader_finish(reader, &config->own) != CODEC_OK) {
        *error = *codec_reader_error(reader);
    }
    codec_reader_free(reader);
    return config->own != NULL;
}

void config_close(struct config *config) {
    codec_document_free(config->own);
    codec_document_free(config->file);
    *config = (struct config){0};
}

struct config_object config_root(const struct config *config) {
    const struct codec_document *document = config->own != NULL ? config->own : config->file;
    return (struct config_object){document, document == NULL ? NULL : codec_root(document)};
}

struct config_object config_inner(struct config_object object, const char *name) {
    const struct codec_value *value = config_value(object, name);
    const bool inner = value != NULL && codec_kind_of(value) == CODEC_OBJECT;
    return (struct config_object){object.document, inner ? value : NULL};
}

const struct codec_value *config_value(struct config_object object, const char *name) {
    return codec_given(object.value, name);
}

double config_number(struct config_object object, const char *name, double otherwise) {
    const struct codec_value *value = config_value(object, name);
    struct codec_error unused;
    double number;
    const bool given = value != NULL && codec_as_number(object.document, value, &number, &unused);
    return given ? number : otherwise;
}

bool config_flag(struct config_object object, const char *name, bool otherwise) {
    const struct codec_value *value = config_value(object, name);
    struct codec_error unused;
    bool flag;
    return value != NULL && codec_as_bool(object.document, value, &flag, &unused) ? flag
                                                                                  : otherwise;
}

const char *config_text(struct config_object object, const char *name) {
    const struct codec_value *value = config_value(object, name);
    struct codec_error unused;
    const char *text;
    return value != NULL && codec_as_text(object.document, value, &text, &unused) ? text : NULL;
}

bool config_numbers(struct config_object object, const char *name, size_t count, double *numbers) {
    const struct codec_value *list = config_value(object, name);
    struct codec_error unused;
    size_t i = 0;
    if (list == NULL || codec_kind_of(list) != CODEC_ARRAY || codec_size(list) != count) {
        return false;
    }
    for (const struct codec_value *v = codec_at(list, 0); v != NULL; v = codec_next(v)) {
        if (codec_kind_of(v) != CODEC_NUMBER ||
            !codec_as_number(object.document, v, &numbers[i++], &unused)) {
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------------- messages */

/* A text that grows up to its room. */
struct print {
    const struct codec_document *document;
    char *text;
    size_t size, room;
};

static void put(struct print *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct print *p, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int more = vsnprintf(p->text + p->size, p->room - p->size, format, arguments);
    va_end(arguments);
    p->size += more < 0 ? 0 : (size_t)more;
    if (p->size >= p->room) { /* it is full, and stays so */
        p->size = p->room - 1;
        strcpy(p->text + p->size - 3, "...");
    }
}

/* Writes a value. */
static void print_value(struct print *p, const struct codec_value *value, int depth) {
    struct codec_error unused;
    const enum codec_kind kind = codec_kind_of(value);
    const char *text = "";
    double number = 0;
    bool flag = false;
    if (kind == CODEC_TEXT) {
        codec_as_text(p->document, value, &text, &unused);
        put(p, "\"%.100s\"", text);
    } else if (kind == CODEC_NUMBER) {
        if (codec_as_number(p->document, value, &number, &unused)) {
            put(p, "%.15g", number);
        } else {
            put(p, "Infinity or NaN");
        }
    } else if (kind == CODEC_BOOL) {
        codec_as_bool(p->document, value, &flag, &unused);
        put(p, "%s", flag ? "true" : "false");
    } else if (kind == CODEC_NULL) {
        put(p, "null");
    } else {
        put(p, "%s", kind == CODEC_OBJECT ? "{" : "[");
        const struct codec_value *member = codec_at(value, 0);
        for (bool first = true; member != NULL && depth > 0 && p->size + 1 < p->room;
             member = codec_next(member), first = false) {
            put(p, "%s", first ? "" : ", ");
            if (kind == CODEC_OBJECT) {
                put(p, "\"%.100s\": ", codec_name(member));
            }
            print_value(p, member, depth - 1);
        }
        put(p, "%s", kind == CODEC_OBJECT ? "}" : "]");
    }
}

void config_print(struct config_object object, const struct codec_value *value, size_t room,
                  char *text) {
    struct print p = {.document = object.document, .text = text, .room = room};
    text[0] = '\0';
    print_value(&p, value, 4);
}
