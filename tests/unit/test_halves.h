/* test_halves.h - the values of numbers of 16 and 8 bits, and rounding to 16 bits, in plain
 * arithmetic. */
#ifndef TEST_HALVES_H
#define TEST_HALVES_H

#include <math.h>
#include <stdint.h>

#include "attention.h"

/* Returns the value of a number with a sign, `exponent` bits of exponent and the rest of fraction
 * (IEEE 754-2008, 3.4). */
static inline double value_of_bits(uint16_t bits, int exponent) {
    const int fraction = 15 - exponent, bias = (1 << (exponent - 1)) - 1;
    const int e = bits >> fraction & ((1 << exponent) - 1), f = bits & ((1 << fraction) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (e == (1 << exponent) - 1) {
        return f != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    return sign * (e == 0 ? ldexp(f, 1 - bias - fraction)
                          : ldexp((1 << fraction) + f, e - bias - fraction));
}

static inline double half_value(uint16_t bits) {
    return value_of_bits(bits, 5);
}

static inline double bfloat_value(uint16_t bits) {
    return value_of_bits(bits, 8);
}

/* Micikevicius et al. 2022 (arXiv 2209.05433), table 1: E5M2 is as IEEE 754 would have it, and E4M3
 * has numbers in place of the infinities and of all NaN but one for each sign. */
static inline double e5m2_value(uint8_t bits) {
    return value_of_bits((uint16_t)(bits << 8), 5);
}

static inline double e2m1_value(unsigned bits) {
    const double magnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return copysign(magnitudes[bits % 8], bits < 8 ? 1 : -1);
}

static inline double e4m3_value(uint8_t bits) {
    const int e = bits >> 3 & 15, f = bits & 7;
    const double sign = bits >= 128 ? -1 : 1;
    return e == 15 && f == 7 ? (double)NAN
                             : sign * ldexp(e == 0 ? f : 8 + f, (e == 0 ? 1 : e) - 7 - 3);
}

/* Rounds to a number of the type, to nearest with ties to even (IEEE 754-2019, 4.3.1). */
static inline double rounded(attn_compute_dtype type, double x) {
    const bool half = type == ATTN_COMPUTE_FLOAT16;
    const int digits = half ? 11 : 8, least = half ? -24 : -133;
    int exponent;
    if (type == ATTN_COMPUTE_AS_GIVEN || x == 0 || !isfinite(x)) {
        return x;
    }
    frexp(x, &exponent);
    const int unit = exponent - digits > least ? exponent - digits : least;
    const double number = ldexp(nearbyint(ldexp(x, -unit)), unit);
    return fabs(number) > (half ? 65504 : 0x1.FEp127) ? copysign(INFINITY, x) : number;
}

#endif
