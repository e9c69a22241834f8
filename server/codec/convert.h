/* convert.h - what the other files of the codec ask of convert.c. Private to the codec. */
#ifndef CODEC_CONVERT_H
#define CODEC_CONVERT_H

#include "codec/binary.h"
#include "codec/json/lift.h"

/* Says that the float64 numbers of an array must be ones of `type`, and that they get a dtype. */
void convert_expect_type(struct lifted *array, enum codec_type type, attn_dtype dtype);

/* Makes float32 of an array of float64 numbers. */
void convert_narrow(const struct codec_document *document, struct lifted *array);

/* Makes a mask of an array, unless it is one. Then array->first_wrong is the first number that is
 * neither 0 nor 1, or LIFT_NONE. */
void convert_mask(struct codec_document *document, struct lifted *array);

#endif
