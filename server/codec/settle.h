/* settle.h - what the other files of the codec ask of settle.c. Private to the codec. */
#ifndef CODEC_SETTLE_H
#define CODEC_SETTLE_H

#include "codec/binary.h"
#include "codec/json/lift.h"

/* Says that the numbers of an array must be ones of `type`, and have the dtype of the array.
 * `source` has the numbers, if the array does not; it is borrowed until the last one is settled. */
void settle_expect_type(struct lifted *array, enum codec_type type, struct lifted *source);

/* Makes a mask of an array, unless it is one. Then array->misfit is the first number that is
 * neither 0 nor 1, or LIFT_NONE. */
void settle_mask(struct codec_document *document, struct lifted *array);

#endif
