/*
 * empty.h - matrices without elements in JSON. An array such as [[], []] cannot show the axes after
 * its empty one, so they follow from the matrices beside it.
 */
#ifndef API_EMPTY_H
#define API_EMPTY_H

#include "api/call/fields.h"
#include "codec/codec.h"

/* Makes tensors of the empty arrays of a request that may be matrices without elements. The
 * matrices beside them must be tensors. Returns false with the error set: CODEC_CONTENT if nothing
 * tells the columns of a matrix, CODEC_NO_MEMORY. */
bool empty_make(const struct fields *fields, struct codec_document *document,
                struct codec_error *error);

#endif
