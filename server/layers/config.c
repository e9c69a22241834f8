/* config.c - see config.h. */
#include "layers/config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct codec_options config_limits(size_t size, struct account *account) {
    const size_t keys = size / 4; /* a key has two quotes, a colon and a value */
    return (struct codec_options){
        .max_skeleton = size + 1,
        .max_values = CONFIG_VALUES,
        .max_keys = keys > CONFIG_KEYS ? CONFIG_KEYS : keys + 1,
        .account = account,
    };
}

struct codec_document *config_parse(const char *text, size_t size, struct account *account,
                                    struct codec_error *error) {
    const struct codec_options options = config_limits(size, account);
    struct codec_reader *reader = codec_reader_create(&options);
    struct codec_document *document = NULL;
    if (reader == NULL) {
        codec_no_memory(error);
    } else if (codec_reader_feed(reader, text, size) != CODEC_OK ||
               codec_reader_finish(reader, &document) != CODEC_OK) {
        *error = *codec_reader_error(reader);
    }
    codec_reader_free(reader);
    return document;
}

/* Returns a text of the metadata, or NULL. */
static const char *metadata_text(const struct config *config, const char *name) {
    const struct codec_value *value =
        config->metadata == NULL ? NULL : codec_get(config->metadata, name);
    const char *text;
    struct codec_error unused;
    return value != NULL && codec_as_text(config->header, value, &text, &unused) ? text : NULL;
}

bool config_open(struct config *config, struct codec_error *error) {
    const char *text = metadata_text(config, "config");
    if (text == NULL) {
        return true;
    }
    config->own = config_parse(text, strlen(text), config->account, error);
    return config->own != NULL;
}

void config_close(struct config *config) {
    codec_document_free(config->own);
    codec_document_free(config->file);
    *config = (struct config){0};
}

const struct codec_value *config_value(const struct config *config, const char *name,
                                       const struct codec_document **document) {
    const struct codec_document *const documents[] = {config->own, config->file};
    for (size_t i = 0; i < 2; i++) {
        *document = documents[i];
        if (*document == NULL || codec_kind_of(codec_root(*document)) != CODEC_OBJECT) {
            continue;
        }
        const struct codec_value *root = codec_root(*document);
        const struct codec_value *text = config->of_text ? codec_get(root, "text_config") : NULL;
        const struct codec_value *value = NULL;
        if (text != NULL && codec_kind_of(text) == CODEC_OBJECT) {
            value = codec_get(text, name);
        }
        value = value == NULL ? codec_get(root, name) : value;
        if (value != NULL && codec_kind_of(value) != CODEC_NULL) {
            return value;
        }
    }
    return NULL;
}

double config_number(const struct config *config, const char *const *names, double otherwise) {
    for (size_t i = 0; names[i] != NULL; i++) {
        const char *text = metadata_text(config, names[i]);
        const struct codec_document *document;
        const struct codec_value *value = config_value(config, names[i], &document);
        struct codec_error unused;
        double number;
        if (text != NULL) {
            char *end;
            number = strtod(text, &end);
            if (end != text && *end == '\0' && isfinite(number)) {
                return number;
            }
        }
        if (value != NULL && codec_as_number(document, value, &number, &unused)) {
            return number;
        }
    }
    return otherwise;
}

size_t config_count(const struct config *config, const char *const *names, size_t otherwise) {
    const double number = config_number(config, names, (double)otherwise);
    return number >= 1 && number <= 1 << 20 && number == floor(number) ? (size_t)number : 0;
}

bool config_flag(const struct config *config, const char *name, bool otherwise) {
    const char *text = metadata_text(config, name);
    const struct codec_document *document;
    const struct codec_value *value = config_value(config, name, &document);
    struct codec_error unused;
    bool flag;
    if (text != NULL) {
        return strcmp(text, "true") == 0;
    }
    return value != NULL && codec_as_bool(document, value, &flag, &unused) ? flag : otherwise;
}

const char *config_text(const struct config *config, const char *name) {
    const char *text = metadata_text(config, name);
    const struct codec_document *document;
    const struct codec_value *value = config_value(config, name, &document);
    struct codec_error unused;
    if (text != NULL) {
        return text;
    }
    return value != NULL && codec_as_text(document, value, &text, &unused) ? text : NULL;
}
