/*
 * number_floats.c - arrays of floats as text, in the vectors that every CPU of the kind has.
 */
#include "codec/json/vectors.h"

#define WRITE_FLOATS number_write_floats_plain
#include "codec/json/number_floats.inc"

char *number_write_floats(char *out, const float *values, size_t count, size_t row) {
#ifdef NUMBER_WIDE
    if (vector_has_digits()) {
        return number_write_floats_wide(out, values, count, row);
    }
#endif
    return number_write_floats_plain(out, values, count, row);
}
