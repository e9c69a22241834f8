/*
 * document.h - how the reader hands what it has read over to the document. Private to the codec.
 */
#ifndef CODEC_DOCUMENT_H
#define CODEC_DOCUMENT_H

#include "codec/lift.h"

/* No limit of codec_limits goes beyond. */
enum {
    CODEC_MAX_DEPTH = 64
};

/* Makes a document of the skeleton text[0..size), in which every lifted array is an array that
 * holds one number, its index in tensors[0..count). Takes the tensors; NULL if out of memory, and
 * then does not. No other array of the skeleton holds a single number, because every such array
 * has been lifted. */
struct codec_document *codec_document_create(const char *text, size_t size, struct lifted *tensors,
                                             size_t count, attn_dtype dtype);

#endif
