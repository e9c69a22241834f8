/*
 * document.h - how the reader builds a document, and what the accessors (as_value.c, as_tensor.c,
 * members.c, refuse.c) ask of it. Private to the codec.
 */
#ifndef CODEC_DOCUMENT_H
#define CODEC_DOCUMENT_H

#include <string.h>

#include "codec/codec.h"
#include "codec/json/codec_tensor.h"

enum {
    CODEC_MAX_DEPTH = 16 /* most levels of arrays and objects in a body */
};

/* ------------------------------------------------------------------- building a document */

/* Makes a document without values. Returns NULL if out of memory. */
struct codec_document *document_create(struct account *account);

/* Begins a text. */
void document_begin_text(struct codec_document *document);

/* Adds bytes to the text that was begun. No value is made before it ends. False if there is no
 * memory. */
bool document_extend_text(struct codec_document *document, const char *bytes, size_t size);

/* Ends the text. Returns it with its size, or NULL if out of memory. */
const char *document_end_text(struct codec_document *document, size_t *size);

/* Makes a tensor of a value, as codec_tensor_init() does. Returns NULL if out of memory. */
struct codec_tensor *document_new_tensor(struct codec_document *document,
                                         const struct codec_value *value, attn_dtype dtype,
                                         int rank, void *first);

/* Moves the elements of a tensor from its borrowed buffer to the document. False if out of memory.
 */
bool document_keep(struct codec_document *document, struct codec_tensor *tensor);

/* Returns the tensor that was made after this one, or NULL; NULL stands before the first. */
struct codec_tensor *document_next_tensor(const struct codec_document *document,
                                          const struct codec_tensor *tensor);

/* Returns the number of tensors. */
size_t document_tensor_count(const struct codec_document *document);

/* -------------------------------------------------------------------- reading a document */

/* Each returns the content of a value, which must be of this kind. The text and the tensor are
 * borrowed from the document. */
bool document_bool(const struct codec_value *value);
double document_number(const struct codec_value *value);
const char *document_text(const struct codec_value *value);
struct codec_tensor *document_tensor(const struct codec_value *value);

/* Are two names the same? A handler looks for each of its keys among all members, and the check of
 * keys does the reverse. Most pairs differ in the first letter, so it is compared without a
 * call. */
static inline bool document_is_name(const char *a, const char *b) {
    return a[0] == b[0] && strcmp(a, b) == 0;
}

/* Clears the error and sets CODEC_CONTENT and the pointer of `value`; NULL is the root. */
void document_point(const struct codec_document *document, const struct codec_value *value,
                    struct codec_error *error);

#endif
