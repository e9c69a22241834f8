/*
 * config.h - the settings of a model: the `__metadata__` of its safetensors file, and its
 * config.json as Hugging Face transformers writes it, or the text "config" of the metadata, which
 * takes the place of that file.
 */
#ifndef LAYERS_CONFIG_H
#define LAYERS_CONFIG_H

#include "codec/codec.h"

/* The settings of a model. */
struct config {
    const struct codec_document *header; /* of the safetensors file; borrowed */
    const struct codec_value *metadata;  /* texts of the header; NULL: there are none */
    struct codec_document *own;          /* owned: the text "config" of the metadata, as JSON */
    struct codec_document *file;         /* owned: config.json */
    struct account *account;             /* counts the documents; borrowed */
};

/* An object in which keys are looked up. It is borrowed from a config. */
struct config_object {
    const struct codec_document *document;
    const struct codec_value *value; /* NULL: there is none, and so no key has a value */
};

enum {
    CONFIG_VALUES = 1 << 21, /* values of a file */
    CONFIG_KEYS = 1 << 18    /* keys of a file, and tensors of a model */
};

/* Returns the options for a JSON text of a file of `size` bytes. The files are those of the
 * operator, and may hold more than the body of a request. */
struct codec_options config_limits(size_t size, struct account *account);

/* Parses the text "config" of the metadata, if there is one. */
bool config_open(struct config *config, struct codec_error *error);

/* Frees what the config owns. */
void config_close(struct config *config);

/* Returns a text of the metadata, or NULL. Borrowed. */
const char *config_metadata(const struct config *config, const char *name);

/* Returns the outermost value of the config, which must be checked to be an object. */
struct config_object config_root(const struct config *config);

/* Returns an object in an object; its value is NULL if there is none. */
struct config_object config_inner(struct config_object object, const char *name);

/* Returns the value of a key. NULL: there is none, or it is null. */
const struct codec_value *config_value(struct config_object object, const char *name);

/* Each returns the value of a key if it has one of this kind. family_keys.c refuses values of
 * another kind before. A text is borrowed. */
double config_number(struct config_object object, const char *name, double otherwise);
bool config_flag(struct config_object object, const char *name, bool otherwise);
const char *config_text(struct config_object object, const char *name);

/* Reads a list of `count` numbers. Returns false if the key has no such list. */
bool config_numbers(struct config_object object, const char *name, size_t count, double *numbers);

/* Writes a value as JSON, for a message. What is too long ends with "...". */
void config_print(struct config_object object, const struct codec_value *value, size_t room,
                  char *text);

#endif
