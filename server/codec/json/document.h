/*
 * document.h - how the reader hands what it has read over to the document. Private to the codec.
 */
#ifndef CODEC_DOCUMENT_H
#define CODEC_DOCUMENT_H

#include "codec/json/lift.h"

/* The largest max_depth of codec_options. */
enum {
    CODEC_MAX_DEPTH = 64
};

/* The result of a reader. */
struct document_source {
    const char *text; /* the skeleton: every lifted array is an array of one number, its index */
    size_t size, values, strings; /* of it: bytes, values, and keys and texts */
    struct lifted_list tensors;
    attn_dtype dtype;
    struct account *account; /* NULL: nothing is counted */
};

/* Takes the tensors; NULL if out of memory, and then does not. No other array of the skeleton holds
 * a single number, because every such array has been lifted. */
struct codec_document *codec_document_create(const struct document_source *source);

#endif
