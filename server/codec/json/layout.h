/*
 * layout.h - the text of a number whose digits are known: where they, the point, zeros and the
 * exponent stand.
 */
#ifndef CODEC_LAYOUT_H
#define CODEC_LAYOUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void store_digits(char *out, uint64_t digits) {
    digits |= 0x3030303030303030;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    digits = __builtin_bswap64(digits);
#endif
    memcpy(out, &digits, sizeof digits);
}

static size_t write_exponent(char *out, int exponent) {
    size_t size = 0;
    out[size++] = 'e';
    if (exponent < 0) {
        out[size++] = '-';
    }
    unsigned rest = (unsigned)(exponent < 0 ? -exponent : exponent);
    if (rest >= 100) {
        out[size++] = (char)('0' + rest / 100);
    }
    if (rest >= 10) {
        out[size++] = (char)('0' + rest / 10 % 10);
    }
    out[size++] = (char)('0' + rest % 10);
    return size;
}

/* Writes a number of nine digits, zeros at the end included, and returns its length. `head` is the
 * first digit, `tail` has the others in its bytes, and `exponent` is the power of ten of the first.
 * The digits stay in registers: to store them in pieces and load them as a whole would take longer
 * than the rest of this function. */
static inline __attribute__((always_inline)) size_t number_lay_out(char *out, unsigned head,
                                                                   uint64_t tail, int exponent) {
    const char first = (char)('0' + head);
    const int trail = tail > 0 ? __builtin_clzll(tail) / 8 : 8, count = 9 - trail;
    const int power = exponent - count + 1; /* the exponent of the last digit that is not 0 */

    if (exponent < -4 || power > 6) {
        out[0] = first;
        out[1] = '.';
        store_digits(out + 2, tail);
        const size_t size = count > 1 ? (size_t)count + 1 : 1;
        return size + write_exponent(out + size, exponent);
    }
    if (power >= 0) {
        out[0] = first;
        store_digits(out + 1, tail);
        memset(out + count, '0', 6);
        return (size_t)(count + power);
    }
    /* The number has zeros before its digits, or the point among them. There is no branch, because
     * the processor could not predict it. */
    const int below = -(exponent < 0); /* all bits, or none */
    const int lead = (1 - exponent) & below, before = exponent & ~below;
    memcpy(out, "0.000", 5);
    out[lead] = first;
    store_digits(out + lead + 1, tail);
    out[before + 1] = '.';
    store_digits(out + lead + before + 2 + below, tail >> (8 * before));
    return (size_t)(lead + count + 1 + below);
}

/* Whole numbers below this one have at most seven digits and are written by write_small(). */
enum {
    SMALL = 10000000
};

#endif
