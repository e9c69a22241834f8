/*
 * plain.h - the plain document of a question whose tensors are bytes: what the JSON body of the
 * endpoint would be. The handlers and the table of fields therefore know only JSON. A
 * reader of a format lists tensors and options in a struct plain, and plain_make() makes the
 * document.
 */
#ifndef API_PLAIN_H
#define API_PLAIN_H

#include "codec/binary.h"

/* A tensor that the question describes. Everything is borrowed from the question. */
struct plain_tensor {
    const char *name;
    struct codec_tensor_form form;
    const struct codec_value *data; /* the array of its elements; NULL: its bytes follow */
};

/* The plain document before it is made. */
struct plain {
    struct account *account;       /* borrowed; counts all memory */
    size_t max_values;             /* values of the document outside of arrays of numbers */
    struct codec_document *source; /* borrowed; the JSON that the client sent */
    struct plain_tensor tensors[CODEC_MAX_ARRIVALS];
    size_t tensor_count;
    /* The JSON of the document so far, with a 0 in place of each tensor. */
    struct codec_items items;
};

/* Begins a document without members. The caller frees `items` in the end. */
void plain_begin(struct plain *plain, struct codec_document *source, struct account *account,
                 size_t max_values);

/* Returns whether the document has a member of this name so far. */
bool plain_has(const struct plain *plain, const char *name);

/* Adds a tensor. All tensors are added before the options. Errors: CODEC_CONTENT for more than
 * CODEC_MAX_ARRIVALS tensors, and for a name that is there. */
bool plain_tensor(struct plain *plain, const struct plain_tensor *tensor,
                  struct codec_error *error);

/* Adds an option that is a number. Errors: CODEC_CONTENT for a name that a tensor has. */
bool plain_number(struct plain *plain, const char *name, double number, struct codec_error *error);

/* Adds an option: a number, a boolean, or a text, which is read as JSON if it is JSON. Borrows
 * both. Errors: CODEC_CONTENT, also for a name that a tensor has; CODEC_NO_MEMORY. */
bool plain_option(struct plain *plain, const char *name, const struct codec_value *value,
                  struct codec_error *error);

/* Makes the plain document. Arrays of the question move into it, and `arrivals` gets the tensors
 * whose bytes follow. *floats becomes the type of float results: that of the tensors of floats, if
 * all have the same type and the question has no option "dtype". Returns owned, or NULL with the
 * error set. */
struct codec_document *plain_make(struct plain *plain, struct codec_arrivals *arrivals,
                                  enum codec_type *floats, struct codec_error *error);

#endif
