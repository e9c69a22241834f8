/*
 * half.h - rounds float32 numbers to the numbers of a type of 16 bits, to nearest with ties to
 * even, as IEEE 754 and PyTorch do. The rounded numbers are still float32.
 */
#ifndef ATTN_HALF_H
#define ATTN_HALF_H

#include <float.h>
#include <math.h>

#include "attention.h"

struct half_type {
    const char *name;
    unsigned dropped; /* the last bits of a float32 that the type does not have */
    float least; /* smaller magnitudes are subnormal, and adding `step` aligns their bits; or 0 */
    float step;
    float most; /* the largest number */
};

static inline float round_to_half(const struct half_type *type, float x) {
    union {
        float number;
        uint32_t bits;
    } rounded = {.number = fabsf(x)};
    const float magnitude = rounded.number;
    rounded.bits += (UINT32_C(1) << (type->dropped - 1)) - 1 + (rounded.bits >> type->dropped & 1);
    rounded.bits = rounded.bits >> type->dropped << type->dropped;
    const float normal = rounded.number > type->most ? INFINITY : rounded.number;
    const float number = magnitude < type->least ? (magnitude + type->step) - type->step : normal;
    return magnitude <= FLT_MAX ? copysignf(number, x) : x; /* NaN and infinities stay */
}

#endif
