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

/* A tensor of a file, which may hold any tensors. */
struct codec_stored {
    const char *name;     /* borrowed from the document of the header */
    enum codec_type type; /* CODEC_TYPE_COUNT: a type that this program does not read */
    int rank;             /* 0 to ATTN_MAX_RANK; -1: it has more axes */
    size_t shape[ATTN_MAX_RANK];
    size_t begin, bytes; /* the offset of its bytes after the header, and their number */
};

/* Lists the tensors in the header of a file, sorted by name. The file has `bytes` bytes after the
 * header. All rules of the format hold, but a tensor may have any number of axes, no elements, or a
 * type that this program does not read. Returns the list owned, to be freed by free(), or NULL with
 * the error set: CODEC_CONTENT, CODEC_NO_MEMORY. *metadata is borrowed from the document; NULL if
 * there is none. */
struct codec_stored *codec_safetensors_list(const struct codec_document *document, size_t bytes,
                                            size_t *count, const struct codec_value **metadata,
                                            struct codec_error *error);

/* Sorts the results of an answer so that each lies at a multiple of the bytes of its elements, and
 * writes the length of their header and the header into an empty buffer, which counts in the
 * account of the results. The metadata are the texts of the items of the answer, as JSON. Returns
 * false if there is no memory. */
bool codec_safetensors_write(struct codec_buffer *buffer, struct codec_results *results,
                             const struct codec_items *items);

#endif
