/*
 * config.h - the settings of a model: the `__metadata__` of its safetensors file, and its
 * config.json as Hugging Face transformers writes it.
 */
#ifndef LAYERS_CONFIG_H
#define LAYERS_CONFIG_H

#include "codec/codec.h"

/* The places where a setting may stand, in this order. NULL: there is no such place. */
struct config {
    const struct codec_document *header; /* of the safetensors file; borrowed */
    const struct codec_value *metadata;  /* texts of the header */
    struct codec_document *own;          /* owned: the text "config" of the metadata, as JSON */
    struct codec_document *file;         /* owned: config.json */
    struct account *account;             /* counts the documents; borrowed */
    bool of_text; /* "text_config", the config of a language model, is asked first */
};

enum {
    CONFIG_VALUES = 1 << 21, /* values of a file */
    CONFIG_KEYS = 1 << 18    /* keys of a file, and tensors of a model */
};

/* Returns the options for a JSON text of a file of `size` bytes. The files are those of the
 * operator, and may hold more than the body of a request. */
struct codec_options config_limits(size_t size, struct account *account);

/* Parses JSON of `size` bytes. `account` counts the document. Returns owned, or NULL with the error
 * set. */
struct codec_document *config_parse(const char *text, size_t size, struct account *account,
                                    struct codec_error *error);

/* Parses the text "config" of the metadata, if there is one. */
bool config_open(struct config *config, struct codec_error *error);

/* Frees what the config owns. */
void config_close(struct config *config);

/* Returns the number of the first of these names that has one, or `otherwise`. `names` ends with
 * NULL. A text of the metadata counts if it is a number. */
double config_number(const struct config *config, const char *const *names, double otherwise);

/* Returns such a number if it is a whole number from 1 to 2^20, and otherwise 0. */
size_t config_count(const struct config *config, const char *const *names, size_t otherwise);

/* Returns whether a setting is true. */
bool config_flag(const struct config *config, const char *name, bool otherwise);

/* Returns a text, or NULL. Borrowed. */
const char *config_text(const struct config *config, const char *name);

/* Returns a value of config.json, and the document that it belongs to; NULL if there is none. */
const struct codec_value *config_value(const struct config *config, const char *name,
                                       const struct codec_document **document);

#endif
