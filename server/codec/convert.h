/* convert.h - what the other files of the codec ask of convert.c. Private to the codec. */
#ifndef CODEC_CONVERT_H
#define CODEC_CONVERT_H

#include "codec/binary.h"
#include "codec/json/codec_tensor.h"

/* Says that the float64 numbers of a tensor must be ones of `type`, and that they get a dtype. */
void convert_expect_type(struct codec_tensor *tensor, enum codec_type type, attn_dtype dtype);

/* Makes float32 of a tensor of float64 numbers. */
void convert_narrow(const struct codec_document *document, struct codec_tensor *tensor);

/* Makes a mask of a tensor, unless it is one. Then tensor->first_wrong is the first number that is
 * neither 0 nor 1, or TENSOR_NONE. */
void convert_mask(struct codec_document *document, struct codec_tensor *tensor);

#endif
