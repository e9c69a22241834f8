/*
 * document.h - what the reader hands over to the document, and what the accessors (as_value.c,
 * as_matrix.c, members.c, refuse.c) ask of it. Private to the codec.
 */
#ifndef CODEC_DOCUMENT_H
#define CODEC_DOCUMENT_H

#include <string.h>

#include "codec/codec.h"
#include "codec/json/lift.h"

/* The largest max_depth of codec_options. */
enum {
    CODEC_MAX_DEPTH = 64
};

enum {
    DOCUMENT_INDEX_SIZE = 24 /* room for an index in the skeleton */
};

/* Writes what stands in the skeleton in place of lifted array number `index`, and returns its size:
 * a string of the index in bytes that no text has, because they are not UTF-8. cJSON takes them as
 * they are. */
size_t document_write_index(char out[DOCUMENT_INDEX_SIZE], size_t index);

/* The result of a reader. */
struct document_source {
    const char *text; /* the skeleton, with an index in place of each lifted array */
    size_t size;      /* bytes of the skeleton */
    size_t values;    /* values in the skeleton */
    size_t strings;   /* keys and texts in the skeleton */
    struct lifted_list tensors;
    attn_dtype dtype;
    struct account *account; /* NULL: nothing is counted */
};

/* Makes a document of the skeleton, which no longer needs the text. Takes the tensors. Returns NULL
 * if out of memory; the tensors then stay with the caller. */
struct codec_document *document_create(const struct document_source *source);

/* Each returns the content of a value, which must be of this kind. The text and the tensor are
 * borrowed from the document. */
bool document_bool(const struct codec_value *value);
double document_number(const struct codec_value *value);
const char *document_text(const struct codec_value *value);
struct lifted *document_tensor(const struct codec_document *document,
                               const struct codec_value *value);

/* Replaces a value by a tensor, which the document takes and numbers. Returns the number, or
 * DOCUMENT_NO_TENSOR with the error set if there is no memory; the tensor then stays with the
 * caller. */
#define DOCUMENT_NO_TENSOR ((size_t)-1)
size_t document_put_tensor(struct codec_document *document, const struct codec_value *value,
                           const struct lifted *tensor, struct codec_error *error);

/* Returns the tensor of this number. Borrowed. */
struct lifted *document_tensor_at(struct codec_document *document, size_t number);

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
