/*
 * decimal.h - the parts that the two hot loops share (decimal.c and decimal_vector.c): a number
 * that was read, its rounding to binary, and digits eight at a time.
 */
#ifndef CODEC_DECIMAL_H
#define CODEC_DECIMAL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "codec/json/codec_tensor.h"
#include "codec/json/power.h"
#include "codec/json/vectors.h"

/* The number w * 10^e, or its negative. */
struct decimal {
    uint64_t w; /* all digits, without the point */
    int e;
    bool negative;
};

/* The loops stop so many bytes before the end of the text, because reading one number looks at
 * fewer bytes than this. */
enum {
    DECIMAL_MARGIN = 80
};

/* A number with at most so many characters has at most 15 digits and a point, so that the digits
 * and their power of ten are doubles. */
enum {
    DECIMAL_FEW = 16
};

/* The tables of decimal_vector.c. They lie in one struct, so that the loop needs one register for
 * them, and in another file, so that the compiler loads what it would else compute in the loop. */
extern const struct decimal_tables {
    double powers[2][DECIMAL_FEW]; /* powers of ten and their negatives */
    struct vector_tables vector;
} decimal_tables;

/* Reads any number whose digits fit in 64 bits, and returns its end. NULL if it is none of these:
 * then std::from_chars reads it. Looks at less than DECIMAL_MARGIN bytes. */
const char *decimal_read(const char *text, struct decimal *number);

/* Reads the exponent at text, if there is one, and returns the end of the number. NULL if no number
 * ends there. Looks at less than 16 bytes. */
const char *decimal_end(const char *text, struct decimal *number);

/* decimal_add_run() is codec_tensor_add_run() without vectors, and decimal_add_run_vector() with
 * them. DECIMAL_VECTOR says that the latter exists. It may be called only if
 * vector_has_digits(). */
const char *decimal_add_run(struct codec_tensor *tensor, const char *text, const char *end,
                            size_t *added, bool *after);
#if defined(__x86_64__) || (defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
#define DECIMAL_VECTOR
const char *decimal_add_run_vector(struct codec_tensor *tensor, const char *text, const char *end,
                                   size_t *added, bool *after);
#endif

/* --------------------------------------------------------------------------- decimal to binary */

/*
 * Rounds w * 10^e to `precision` bits: *mantissa * 2^(*exponent - precision + 1), where *mantissa
 * is in [2^(precision-1), 2^precision]. False if the first 64 bits of the product do not decide the
 * rounding.
 *
 * The error bound: w and the power of ten are scaled to 64 bits each. The power is cut off, so it
 * is less than 1 too small, and the computed product is less than 2^64 too small. `high` is the
 * upper half of the product. The lower half is cut off, so `high` is less than 2 too small: less
 * than 1 for the power and less than 1 for the lower half. If the product has only 127 bits, `high`
 * is doubled, and its error with it. So the true value lies in [high, high + 4). The rounding is
 * open only if this interval touches the middle between two neighbours. That happens for one double
 * in 500 (4 of the 2^11 values of the bits that are dropped) and for ties. The method is D.
 * Lemire's ("Number parsing at a gigabyte per second", 2021).
 */
static inline bool round_decimal(uint64_t w, int e, int precision, uint64_t *mantissa,
                                 int *exponent) {
    if (w == 0 || e < POWER_MIN || e > POWER_MAX) {
        return false;
    }
    int zeros = __builtin_clzll(w);
    uint64_t high = (uint64_t)(((uint128)(w << zeros) * codec_powers[e - POWER_MIN]) >> 64);
    int top = (int)(high >> 63); /* the leading one of the product is its bit 126 + top */
    high += top ? 0 : high;
    int drop = 64 - precision;
    uint64_t half = (uint64_t)1 << (drop - 1);
    uint64_t rest = high & (2 * half - 1);
    if (rest - (half - 3) <= 3) { /* rest is in [half - 3, half] */
        return false;
    }
    *mantissa = (high >> drop) + (rest > half);
    *exponent = 63 + top - zeros + codec_power_log2(e);
    return true;
}

/* Makes the double nearest to the number. Within the table of powers all doubles are normal:
 * 10^-64 <= w * 10^e < 2^64 * 10^40. The mantissa is added to the bits, not masked in: its leading
 * one and its carry raise the exponent. False if the rounding is open. */
static inline bool decimal_to_double(const struct decimal *number, double *out) {
    uint64_t mantissa;
    int exponent;
    uint64_t bits;
    if (number->e == 0 && number->w < (uint64_t)1 << 53) {
        double whole = (double)(int64_t)number->w;
        memcpy(&bits, &whole, sizeof bits);
    } else if (round_decimal(number->w, number->e, 53, &mantissa, &exponent)) {
        bits = ((uint64_t)(exponent + 1022) << 52) + mantissa;
    } else if (number->w == 0) {
        bits = 0;
    } else {
        return false;
    }
    bits |= (uint64_t)number->negative << 63;
    memcpy(out, &bits, sizeof bits);
    return true;
}

/* Does this double lie halfway between two floats, if floats are normal there? */
static inline bool decimal_is_halfway(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & 0x1FFFFFFF) == 0x10000000;
}

/* May this double lie halfway between two floats or two halves, so that it does not tell to which
 * of them its text is rounded? All other doubles tell it, because no text lies on the other side of
 * a halfway point than its double. Where floats or halves are subnormal, what lies halfway has
 * fewer bits. */
static inline bool decimal_is_open(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint64_t exponent = bits >> 52 & 0x7FF;
    if ((bits & 0xFFFFFFF) != 0) {
        return false;
    }
    if (exponent < 1023 - 14) {
        return value != 0 &&
               (exponent < 1023 - 126 || decimal_is_halfway(value) || (bits & 0x1FFFFFFFFFF) == 0);
    }
    return decimal_is_halfway(value) || (bits & 0x3FFFFFFFFFF) == 0x20000000000;
}

/* Is this number a double? */
static inline bool decimal_is_whole(const struct decimal *number) {
    return number->e == 0 && number->w < (uint64_t)1 << 53;
}

/* Stores the number. False if its rounding, or that to a float or a half, is open. */
static inline __attribute__((always_inline)) bool decimal_store(const struct decimal *number,
                                                                double *out) {
    return decimal_to_double(number, out) && (decimal_is_whole(number) || !decimal_is_open(*out));
}

/* Reads and stores a number of any form. Returns its end, or NULL. */
static inline const char *decimal_store_any(const char *text, double *out) {
    struct decimal number;
    const char *end = decimal_read(text, &number);
    return end != NULL && decimal_store(&number, out) ? end : NULL;
}

/* ------------------------------------------------------------------------------- eight digits */

/* Returns eight characters of text, with the first in the lowest byte. */
static inline uint64_t load8(const char *text) {
    uint64_t chars;
    memcpy(&chars, text, sizeof chars);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    chars = __builtin_bswap64(chars);
#endif
    return chars;
}

/* Returns the top bit of the first byte that is no digit. Above it, the bits may be wrong, because
 * of carries. 0 if all eight bytes are digits. */
static inline uint64_t other_than_digits(uint64_t chars) {
    chars ^= 0x3030303030303030; /* digits become 0..9, everything else is larger */
    return ((chars + 0x7676767676767676) | chars) & 0x8080808080808080;
}

/* Returns how many digits stand before the first character that is none. */
static inline unsigned count_digits(uint64_t chars) {
    uint64_t others = other_than_digits(chars);
    return others != 0 ? (unsigned)__builtin_ctzll(others) / 8 : 8;
}

/* Returns the value of the first `count` characters, which are digits. They are moved to the upper
 * bytes, and zeros before them make them eight digits. Neighbouring digits, pairs and groups of
 * four are then added in three steps. The shift is done in two halves, because C does not define a
 * shift by 64 bits (count 0). */
static inline uint64_t value_of_digits(uint64_t chars, unsigned count) {
    chars = (chars ^ 0x3030303030303030) << (4 * (8 - count)) << (4 * (8 - count));
    chars = chars * 10 + (chars >> 8);
    chars = (chars & 0x000000FF000000FF) * 0x000F424000000064 +
            ((chars >> 16) & 0x000000FF000000FF) * 0x0000271000000001;
    return (uint32_t)(chars >> 32);
}

/* Powers of ten by which so many more digits move a number. */
static const uint64_t DECIMAL_SCALE[9] = {1,      10,      100,      1000,     10000,
                                          100000, 1000000, 10000000, 100000000};

#endif
