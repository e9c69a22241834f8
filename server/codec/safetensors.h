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
struct codec_header_tensor {
    const char *name;     /* borrowed from the document of the header */
    enum codec_type type; /* CODEC_TYPE_COUNT: a type that this program does not read */
    int rank;             /* 0 to ATTN_MAX_RANK; -1: it has more axes */
    size_t shape[ATTN_MAX_RANK];
    size_t begin, bytes; /* the offset of its bytes after the header, and their number */
};

/* The tensors of a header in the order of their bytes. */
struct codec_safetensors {
    struct codec_header_tensor *list; /* the caller gives it, with room for `most` */
    size_t most, count;
    const struct codec_value *metadata; /* an object of texts, borrowed, or NULL */
};

/* Returns the length of a header, from its eight bytes. */
uint64_t codec_safetensors_length(const unsigned char prefix[static SAFETENSORS_PREFIX]);

/* Returns whether these are the first bytes of a pointer of Git LFS (codec_lfs_pointer): as a
 * length they would be too large for any file. */
bool codec_is_lfs_pointer(const unsigned char prefix[static SAFETENSORS_PREFIX]);

/* Reads the header of a file that has so many bytes after it, or of a body. The bytes of the
 * tensors must follow one another without gaps or overlaps. A tensor of a file may have any number
 * of axes, no elements, or a type that this program does not read; one of a body is what
 * codec_as_spec() takes. Errors: CODEC_CONTENT; the message names the tensor and the rule. */
#define SAFETENSORS_BODY SIZE_MAX
bool codec_safetensors_read(const struct codec_document *document, size_t bytes,
                            struct codec_safetensors *header, struct codec_error *error);

/* Sorts the results of an answer so that each lies at a multiple of the bytes of its elements, and
 * writes the length of their header and the header into an empty buffer, which counts in the
 * account of the results. The metadata are the texts of the items of the answer, as JSON. Returns
 * false if there is no memory. */
bool codec_safetensors_write(struct codec_buffer *buffer, struct codec_results *results,
                             const struct codec_items *items);

#endif
