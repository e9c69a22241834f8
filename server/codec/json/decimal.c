/*
 * decimal.c - the hot loop that reads runs of decimal numbers into the buffer of a lifted array, in
 * ten to twenty nanoseconds for a number. It reads eight digits at a time and rounds w * 10^e with
 * one multiplication of 64 x 64 bits. A number whose last bit this does not decide is left to
 * std::from_chars (number.h). The loop knows no JSON structure but the comma between two numbers.
 */
#include <stdint.h>
#include <string.h>

#include "codec/json/lift.h"
#include "codec/json/power.h"

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

/* Makes the float nearest to w * 10^e. Whole numbers below 2^24 are floats already. Other numbers
 * must have an exponent at which floats are normal and rounding up does not reach infinity. The
 * mantissa is added to the bits, not masked in: its leading one and its carry raise the exponent.
 * False if the rounding is open. */
static inline bool decimal_to_float(uint64_t w, int e, bool negative, float *out) {
    uint64_t mantissa;
    int exponent;
    uint32_t bits;
    if (e == 0 && w < 1u << 24) {
        float whole = (float)(int)w;
        memcpy(&bits, &whole, sizeof bits);
    } else {
        if (!round_decimal(w, e, 24, &mantissa, &exponent) || exponent < -126 || exponent > 126) {
            return false;
        }
        bits = ((uint32_t)(exponent + 126) << 23) + (uint32_t)mantissa;
    }
    bits |= (uint32_t)negative << 31;
    memcpy(out, &bits, sizeof bits);
    return true;
}

/* Makes the double nearest to w * 10^e in the same way. Within the table of powers all doubles are
 * normal: 10^-64 <= w * 10^e < 2^64 * 10^40. */
static inline bool decimal_to_double(uint64_t w, int e, bool negative, double *out) {
    uint64_t mantissa;
    int exponent;
    uint64_t bits;
    if (e == 0 && w < (uint64_t)1 << 53) {
        double whole = (double)(int64_t)w;
        memcpy(&bits, &whole, sizeof bits);
    } else {
        if (!round_decimal(w, e, 53, &mantissa, &exponent)) {
            return false;
        }
        bits = ((uint64_t)(exponent + 1022) << 52) + mantissa;
    }
    bits |= (uint64_t)negative << 63;
    memcpy(out, &bits, sizeof bits);
    return true;
}

/* Does this double round to the same float as the text that it was read from? It does unless it
 * lies halfway between two floats, because no text lies on the other side of a halfway point than
 * its double. False also where floats are denormal or near their end: there the answer is not
 * known. */
static inline bool rounds_alike(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    unsigned exponent = (unsigned)(bits >> 52) & 0x7FF;
    return value == 0 ||
           ((bits & 0x1FFFFFFF) != 0x10000000 && exponent >= 1023 - 126 && exponent <= 1023 + 126);
}

/* ------------------------------------------------------------------------------------ hot loop */

const bool lifted_ends_scalar[256] = {
    [' '] = true, ['\t'] = true, ['\n'] = true, ['\r'] = true, ['"'] = true, [','] = true,
    [':'] = true, ['['] = true,  [']'] = true,  ['{'] = true,  ['}'] = true,
};

/* The loop stops so many bytes before the end of the text, because reading one number looks at
 * fewer bytes than this. */
enum {
    RUN_MARGIN = 80
};

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

/* The number w * 10^e, or its negative. */
struct decimal {
    uint64_t w; /* all digits, without the point */
    int e;
    bool negative;
};

static const uint64_t SCALE[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

/* LIMIT[n]: a number up to here fits in 64 bits with n more digits. */
static const uint64_t LIMIT[4] = {UINT64_MAX, UINT64_MAX / 10 - 1, UINT64_MAX / 100 - 1,
                                  UINT64_MAX / 1000 - 1};

/* Appends the digits at text to *w. Returns their end. NULL if there are 32 or more, or if *w would
 * not fit in 64 bits. */
static const char *append_digits(const char *text, uint64_t *w) {
    unsigned count;
    int blocks = 0;
    do {
        uint64_t chars = load8(text);
        count = count_digits(chars);
        uint64_t value = value_of_digits(chars, count);
        if (*w > (UINT64_MAX - value) / SCALE[count] || ++blocks > 4) {
            return NULL;
        }
        *w = *w * SCALE[count] + value;
        text += count;
    } while (count == 8);
    return text;
}

/* Reads any number whose digits fit in 64 bits, and returns its end. NULL if it is none of these:
 * then std::from_chars reads it. Looks at less than RUN_MARGIN bytes. */
static __attribute__((noinline)) const char *read_decimal(const char *text,
                                                          struct decimal *number) {
    *number = (struct decimal){.negative = *text == '-'};
    text += number->negative;
    const char *first = text;
    text = append_digits(text, &number->w);
    if (text == NULL || text == first || (*first == '0' && text - first > 1)) {
        return NULL;
    }
    if (*text == '.') {
        const char *point = text + 1;
        text = append_digits(point, &number->w);
        if (text == NULL || text == point) {
            return NULL;
        }
        number->e = (int)(point - text);
    }
    if (*text == 'e' || *text == 'E') {
        text++;
        bool minus = *text == '-';
        text += *text == '-' || *text == '+';
        uint64_t chars = load8(text);
        unsigned count = count_digits(chars);
        int power = (int)value_of_digits(chars, count);
        if (count == 0 || count > 4) {
            return NULL;
        }
        number->e += minus ? -power : power;
        text += count;
    }
    return lifted_ends_scalar[(unsigned char)*text] ? text : NULL;
}

/* Appends the digits at *text, at most eight, to *w. Returns whether they are eight. This is the
 * only branch: the processor can predict whether there are eight, but not how many there are
 * otherwise. */
static inline __attribute__((always_inline)) bool take_digits(const char **text, uint64_t *w) {
    uint64_t chars = load8(*text), others = other_than_digits(chars);
    if (others == 0) {
        *w = *w * 100000000 + value_of_digits(chars, 8);
        *text += 8;
        return true;
    }
    unsigned count = (unsigned)__builtin_ctzll(others) / 8;
    *w = *w * SCALE[count] + value_of_digits(chars, count);
    *text += count;
    return false;
}

/* Reads the numbers that most matrices consist of, and returns their end: at most seven characters
 * before the point, the sign included, and at most 19 digits after it. NULL for all others. */
static inline __attribute__((always_inline)) const char *read_plain(const char *text,
                                                                    struct decimal *number) {
    uint64_t chars = load8(text), w;
    unsigned negative = (chars & 0xFF) == '-'; /* no branch: signs cannot be predicted */
    uint64_t unsigned_chars = chars >> 8 * negative;
    const char *point;

    if ((unsigned_chars >> 8 & 0xFF) == '.') {
        w = (unsigned_chars & 0xFF) - '0';
        if (w > 9) {
            return NULL;
        }
        point = text + negative + 1;
    } else {
        /* The first character is not looked at here. It may be a sign, and the checks below refuse
         * everything else that is no digit. */
        uint64_t others = other_than_digits(chars) & ~(uint64_t)0xFF;
        if (others == 0) {
            return NULL;
        }
        unsigned end = (unsigned)__builtin_ctzll(others) / 8, count = end - negative;
        w = unsigned_chars & 0xFF;
        if (count == 0 || w - '0' > 9 || (w == '0' && count > 1)) {
            return NULL;
        }
        w = value_of_digits(unsigned_chars, count);
        point = text + end;
    }
    number->negative = negative != 0;
    number->e = 0;
    text = point;
    if (*point == '.') {
        text++;
        if (w >= 1000) { /* 16 more digits might not fit in 64 bits */
            return NULL;
        }
        const bool eight = take_digits(&text, &w);
        if (eight && take_digits(&text, &w)) {
            /* A double has up to 17 digits, so a few may be left: at most three. */
            uint64_t third = load8(text);
            unsigned count = count_digits(third);
            if (count > 3 || w > LIMIT[count]) {
                return NULL;
            }
            w = w * SCALE[count] + value_of_digits(third, count);
            text += count;
        }
        if (text == point + 1) {
            return NULL;
        }
        number->e = (int)(point + 1 - text);
    }
    number->w = w;
    return lifted_ends_scalar[(unsigned char)*text] ? text : NULL;
}

/* Adds the numbers of a run to a buffer of doubles (`wide`) or floats. `exact`: the doubles must
 * round to the floats of the text. Both are constants in every call, so the compiler makes three
 * loops. */
static inline __attribute__((always_inline)) const char *add_run(struct lifted *lifted, bool wide,
                                                                 bool exact, const char *text,
                                                                 const char *end, bool *after) {
    size_t count = lifted->count;
    float *floats = lifted->data;
    double *doubles = lifted->data;
    struct decimal number;

    *after = false;
    while (end - text >= RUN_MARGIN && count < lifted->capacity) {
        const char *next = read_plain(text, &number);
        if (next == NULL) {
            struct decimal other; /* its address is taken; `number` can stay in registers */
            next = read_decimal(text, &other);
            if (next == NULL) {
                break;
            }
            number = other;
        }
        if (wide ? !decimal_to_double(number.w, number.e, number.negative, &doubles[count])
                 : !decimal_to_float(number.w, number.e, number.negative, &floats[count])) {
            break;
        }
        if (exact && !rounds_alike(doubles[count])) {
            break;
        }
        count++;
        text = next;
        if (*text != ',') {
            *after = true;
            break;
        }
        if (text[1] == ' ') {
            text += 2;
        } else {
            text += 1;
        }
    }
    lifted->count = count;
    return text;
}

const char *lifted_add_run(struct lifted *lifted, const char *text, const char *end, size_t *added,
                           bool *after) {
    size_t before = lifted->count;
    if (lifted->exact) {
        text = add_run(lifted, true, true, text, end, after);
    } else if (lifted->dtype == ATTN_FLOAT64) {
        text = add_run(lifted, true, false, text, end, after);
    } else {
        text = add_run(lifted, false, false, text, end, after);
    }
    *added = lifted->count - before;
    return text;
}
