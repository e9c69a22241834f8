/*
 * safetensors.h - the format of safetensors: eight bytes with the length of a header, the header,
 * which is JSON, and the bytes of all tensors. The format is described at
 * https://github.com/huggingface/safetensors. This file knows headers; binary.h knows the tensors.
 */
#ifndef CODEC_SAFETENSORS_H
#define CODEC_SAFETENSORS_H

#include "codec/binary.h"

enum {
    SAFETENSORS_PREFIX = 8 /* bytes of the length of the header, which is little-endian */
};

/* One tensor of a header. */
struct codec_safetensors_tensor {
    const struct codec_value *value; /* borrowed; codec_name() is the name of the tensor */
    struct codec_tensor_form form;
    size_t begin; /* the offset of its bytes after the header */
};

/* The tensors of a header in the order of their bytes. */
struct codec_safetensors {
    struct codec_safetensors_tensor list[CODEC_MAX_ARRIVALS];
    size_t count;
    const struct codec_value *metadata; /* an object of texts, borrowed, or NULL */
};

/* Returns the length of a header, from its eight bytes. */
uint64_t codec_safetensors_length(const unsigned char prefix[static SAFETENSORS_PREFIX]);

/* Reads a header. The bytes of the tensors must follow one another without gaps or overlaps. At
 * most CODEC_MAX_ARRIVALS tensors are taken. Errors: CODEC_CONTENT; the message names the tensor
 * and the rule. */
bool codec_safetensors_read(const struct codec_document *document, struct codec_safetensors *header,
                            struct codec_error *error);

/* Sorts the results of an answer so that each lies at a multiple of the bytes of its elements, and
 * writes the length of their header and the header into an empty buffer, which counts in the
 * account of the results. The metadata are the texts of the items of the answer, as JSON. Returns
 * false if there is no memory. */
bool codec_safetensors_write(struct codec_buffer *buffer, struct codec_results *results,
                             const struct codec_items *items);

#endif
