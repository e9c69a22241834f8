/*
 * number.c - writes single numbers; number_floats.inc writes arrays of floats. The shortest digits
 * of a double come from one multiplication of 64 x 64 bits. This is R. Giulietti's Schubfach ("The
 * Schubfach way to render doubles", 2020) with half its precision. What it cannot decide, about one
 * double in a hundred, is left to std::to_chars (number.cc), and so is a single float.
 */
#include "codec/json/number.h"

#include <string.h>

#include "codec/json/layout.h"
#include "codec/json/power.h"

/* -------------------------------------------------------------------------------------- digits */

static const uint64_t TENS[20] = {1,    1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                  1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};

static const uint64_t LARGEST_DOUBLE = 17976931348623158; /* 17 digits of it; times 10^292 */

/* Is a within `error` of b? */
static inline bool is_close(uint64_t a, uint64_t b, uint64_t error) {
    return a - b + error <= 2 * error;
}

/*
 * Finds the shortest digits that round to c * 2^q, and of these the nearest. False if 64 bits do
 * not decide it.
 *
 * The unit is 10^k, the largest power of ten that is not above 2^q. In this unit the value is whole
 * + fraction / one. Every number that is closer to the value than `half` rounds to it. Below a
 * power of two the numbers of the type are closer together, so on that side the distance is `left`.
 * These numbers are an interval that is 1 to 10 units wide, or three quarters of that at a power of
 * two. If it contains a multiple of ten, this is the shortest. If not, the whole number nearest to
 * the value is the shortest; the last test checks that the interval contains it. A shift by 4 drops
 * the last bits, so that ten units fit in a word.
 *
 * The error bound: the table cuts the power of ten off, so the true product is less than c larger
 * than the computed one. After the shift that is c / 16, and the bits that were dropped and the
 * roundings of `half` and `left` are less than 4 more. A distance that is this close to its limit
 * is not decided here.
 */
static inline bool shortest(uint64_t c, int q, bool lowest_of_binade, struct number_digits *out) {
    int k = (q * 315653) >> 20; /* floor(q log10 2) */
    if (-k < POWER_MIN || -k > POWER_MAX) {
        return false;
    }
    uint64_t power = codec_powers[-k - POWER_MIN];
    int shift = 63 - q - codec_power_log2(-k); /* 60..63 */
    uint128 value = (uint128)c * power;
    uint64_t whole = (uint64_t)(value >> shift);
    uint64_t one = (uint64_t)1 << (shift - 4);
    uint64_t fraction = (uint64_t)value >> 4 & (one - 1);
    uint64_t half = power >> 5, left = lowest_of_binade ? power >> 6 : half;
    uint64_t error = (c >> 4) + 4;

    uint64_t tens = whole / 10 * 10;
    uint64_t above_tens = (whole - tens) * one + fraction, below_next = 10 * one - above_tens;
    bool up = fraction > one / 2;
    uint64_t distance = up ? one - fraction : fraction;
    bool is_tens = above_tens < left, is_next = below_next < half;
    if (is_close(above_tens, left, error) || is_close(below_next, half, error)) {
        return false;
    }
    if (!is_tens && !is_next && (is_close(fraction, one / 2, error) || distance + error >= left)) {
        return false;
    }
    out->digits = is_tens ? tens : is_next ? tens + 10 : whole + up;
    out->power = k;
    return true;
}

/* Rounds c * 2^q to so many digits. False if 64 bits do not decide it: c is scaled to 64 bits, and
 * the true product is less than c larger than the computed one, because the table cuts the power
 * off. */
static inline bool rounded(uint64_t c, int q, int digits, struct number_digits *out) {
    int zeros = __builtin_clzll(c);
    c <<= zeros;
    q -= zeros;
    /* k may be one too small, because the logarithm is rounded down; the loop then tries the
     * next. */
    int k = ((q + 63) * 315653 >> 20) - digits + 1;
    for (;; k++) {
        if (-k < POWER_MIN || -k > POWER_MAX) {
            return false;
        }
        uint128 x = (uint128)c * codec_powers[-k - POWER_MIN];
        int shift = 63 - q - codec_power_log2(-k);
        uint64_t whole = (uint64_t)(x >> shift);
        if (whole >= TENS[digits]) {
            continue;
        }
        uint128 half = (uint128)1 << (shift - 1), rest = x & (2 * half - 1);
        out->digits = whole + (rest > half);
        out->power = k;
        if (out->digits == TENS[digits]) { /* 9.99 was rounded up to 10.0, which has a digit more */
            out->digits = TENS[digits - 1];
            out->power++;
        }
        return rest > half || rest + c < half;
    }
}

/* ---------------------------------------------------------------------------------------- text */

/* Makes the eight digits of x < 10^8, one in each byte and the first in the lowest. Each step
 * divides all parts in two at once: eight digits become four and four, then pairs, then single
 * digits. The multiplications are divisions by 100 and 10, which are exact for parts of this
 * size. */
static inline uint64_t spread_digits(uint32_t x) {
    uint64_t v = x / 10000 | (uint64_t)(x % 10000) << 32;
    uint64_t high = (v * 10486 >> 20) & 0x0000007F0000007F; /* / 100 */
    v = high | (v - high * 100) << 16;
    high = (v * 103 >> 10) & 0x000F000F000F000F; /* / 10 */
    return high | (v - high * 10) << 8;
}

/* Writes digits * 10^power, which has at most 17 digits. Copies blocks of constant size, including
 * what comes after the digits, so that no copy depends on the number of digits. */
static inline size_t write_digits(char *out, const struct number_digits *number) {
    enum {
        WIDTH = 24,
        BLOCK = 17
    };
    /* The digits with zeros before them, and bytes for the copies beyond. */
    char text[WIDTH + BLOCK];
    uint64_t last = spread_digits((uint32_t)(number->digits % 100000000));
    uint64_t rest = number->digits / 100000000;
    uint64_t middle = spread_digits((uint32_t)(rest % 100000000));
    text[7] = (char)('0' + rest / 100000000);
    store_digits(text + 8, middle);
    store_digits(text + 16, last);
    memset(text + WIDTH, '0', BLOCK);

    int length = ((64 - __builtin_clzll(number->digits)) * 1233) >> 12; /* log10 2 = 1233 / 4096 */
    length += number->digits >= TENS[length];
    int lead = WIDTH - length;
    int trail = last > 0     ? __builtin_clzll(last) / 8
                : middle > 0 ? 8 + __builtin_clzll(middle) / 8
                             : 16;
    const char *digits = text + lead;
    int count = length - trail, power = number->power + trail;
    int exponent = power + count - 1; /* the exponent of the first digit */

    if (exponent < -4 || power > 6) {
        out[0] = digits[0];
        memcpy(out + 2, digits + 1, BLOCK);
        out[1] = '.';
        size_t size = count > 1 ? (size_t)count + 1 : 1;
        return size + write_exponent(out + size, exponent);
    }
    if (exponent < 0) {
        memcpy(out, "0.000", 5);
        memcpy(out + 1 - exponent, digits, BLOCK);
        return (size_t)(1 - exponent + count);
    }
    memcpy(out, digits, BLOCK);
    if (power >= 0) {
        memset(out + count, '0', 6);
        return (size_t)(count + power);
    }
    out[exponent + 1] = '.';
    memcpy(out + exponent + 2, digits + exponent + 1, BLOCK);
    return (size_t)(count + 1);
}

static inline size_t write_sign(char *out, bool negative) {
    *out = '-';
    return negative;
}

static inline size_t write_small(char *out, uint32_t value) {
    uint64_t digits = spread_digits(value);
    int lead = value == 0 ? 7 : __builtin_ctzll(digits) / 8;
    /* The shift removes the zeros before the digits. */
    store_digits(out, digits >> (8 * lead));
    return (size_t)(8 - lead);
}

/* ------------------------------------------------------------------------------------- numbers */

size_t number_write_float(char *out, float value) {
    size_t sign = write_sign(out, __builtin_signbit(value) != 0);
    float size = __builtin_fabsf(value);
    if (size < SMALL && (float)(int)size == size) {
        return sign + write_small(out + sign, (uint32_t)size);
    }

    struct number_digits number;
    number_exact_float(size, &number);
    return sign + write_digits(out + sign, &number);
}

/* Splits a positive number into c * 2^q. False for denormals. */
static inline bool split_double(double value, uint64_t *c, int *q) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    *c = (bits & 0xFFFFFFFFFFFFF) | 0x10000000000000;
    *q = (int)(bits >> 52) - 1075;
    return bits >> 52 != 0;
}

size_t number_write_double(char *out, double value) {
    size_t sign = write_sign(out, __builtin_signbit(value) != 0);
    double size = __builtin_fabs(value);
    if (size < SMALL && (double)(int)size == size) {
        return sign + write_small(out + sign, (uint32_t)size);
    }

    struct number_digits number;
    uint64_t c;
    int q;
    if (!split_double(size, &c, &q) || !shortest(c, q, c == 0x10000000000000, &number)) {
        number_exact_double(size, &number);
    }
    return sign + write_digits(out + sign, &number);
}

size_t number_write_rounded(char *out, double value, int digits) {
    size_t sign = write_sign(out, __builtin_signbit(value) != 0);
    double size = __builtin_fabs(value);
    if (size == 0) {
        return sign + write_small(out + sign, 0);
    }

    struct number_digits number;
    uint64_t c;
    int q;
    if (!split_double(size, &c, &q) || !rounded(c, q, digits, &number)) {
        number_exact_rounded(size, digits, &number);
    }
    /* One of the largest numbers may have been rounded up to a text that reads back as infinity. */
    if (size > 1e308 && number.digits * TENS[17 - digits] > LARGEST_DOUBLE) {
        number.digits--;
    }
    return sign + write_digits(out + sign, &number);
}

size_t number_write_int64(char *out, int64_t value) {
    char digits[20];
    size_t count = 0, size = write_sign(out, value < 0);
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[count++] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    while (count > 0) {
        out[size++] = digits[--count];
    }
    return size;
}
