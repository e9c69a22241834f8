/*
 * lift.c - the buffers of lifted arrays and the hot loop that fills them: about ten nanoseconds for a number.
 * The loop reads eight digits at a time and rounds w * 10^e with one 64 x 64 bit multiplication; whenever
 * that cannot decide the last bit it leaves the number to std::from_chars (number.h). Knows no JSON
 * structure beyond the comma between two numbers.
 */
#include "codec/lift.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codec/number.h"

/* ---------------------------------------------------------------------------------------- buffers */

enum {
    FIRST_BYTES = 128,          /* of a new buffer */
    DOUBLE_UNTIL = 256 * 1024,  /* below this size buffers double ... */
    GROWTH_BYTES = 64 * 1024,   /* ... then grow by this much or a sixteenth, whichever is more */
};

void lifted_init(struct lifted *lifted, attn_dtype dtype, int rank)
{
    *lifted = (struct lifted){
        .dtype = dtype, .rank = rank, .first_null = LIFT_NONE, .first_range = LIFT_NONE};
}

/* Small steps keep the slack of a large buffer under a sixteenth. They are cheap where it matters: glibc
 * reallocates large blocks by remapping their pages, without a copy. */
enum codec_status lifted_room(struct lifted *lifted, size_t budget)
{
    if (lifted->count < lifted->capacity)
        return CODEC_OK;

    size_t width = attn_dtype_size(lifted->dtype);
    size_t bytes = lifted->capacity * width;
    size_t step = bytes / 16 > GROWTH_BYTES ? bytes / 16 : GROWTH_BYTES;
    if (bytes < DOUBLE_UNTIL)
        step = bytes > 0 ? bytes : FIRST_BYTES;
    if (step > budget - bytes)
        step = budget - bytes;
    size_t capacity = lifted->capacity + step / width;
    if (capacity == lifted->capacity)
        return CODEC_TOO_LARGE;

    void *data = realloc(lifted->data, capacity * width);
    if (data == NULL)
        return CODEC_NO_MEMORY;
    lifted->data = data;
    lifted->capacity = capacity;
    return CODEC_OK;
}

void lifted_trim(struct lifted *lifted)
{
    void *data = realloc(lifted->data, lifted->count * attn_dtype_size(lifted->dtype));
    if (data != NULL)
        lifted->data = data; /* else the old block is still good, only larger */
    lifted->capacity = lifted->count;
}

/* --------------------------------------------------------------------------------- single elements */

void lifted_add_number(struct lifted *lifted, const char *text, size_t size)
{
    bool fits;
    if (lifted->dtype == ATTN_FLOAT64)
        fits = number_read_double(text, size, &((double *)lifted->data)[lifted->count]);
    else
        fits = number_read_float(text, size, &((float *)lifted->data)[lifted->count]);
    if (!fits && lifted->first_range == LIFT_NONE) {
        lifted->first_range = lifted->count;
        memcpy(lifted->range_text, text, size < LIFT_TEXT ? size : LIFT_TEXT);
    }
    lifted->count++;
}

void lifted_add_null(struct lifted *lifted)
{
    if (lifted->first_null == LIFT_NONE)
        lifted->first_null = lifted->count;
    if (lifted->dtype == ATTN_FLOAT64)
        ((double *)lifted->data)[lifted->count] = -(double)INFINITY;
    else
        ((float *)lifted->data)[lifted->count] = -INFINITY;
    lifted->count++;
}

void lifted_add_bool(struct lifted *lifted, bool value)
{
    ((unsigned char *)lifted->data)[lifted->count++] = value;
}

/* ------------------------------------------------------------------------------- decimal to binary */

/* The first 64 bits of 10^e for e = POWER_MIN..POWER_MAX, cut off, not rounded: exact for 0 <= e <= 27. */
enum { POWER_MIN = -64, POWER_MAX = 40 };
static const uint64_t POWERS[POWER_MAX - POWER_MIN + 1] = {
    0xa87fea27a539e9a5, 0xd29fe4b18e88640e, 0x83a3eeeef9153e89, 0xa48ceaaab75a8e2b,
    0xcdb02555653131b6, 0x808e17555f3ebf11, 0xa0b19d2ab70e6ed6, 0xc8de047564d20a8b,
    0xfb158592be068d2e, 0x9ced737bb6c4183d, 0xc428d05aa4751e4c, 0xf53304714d9265df,
    0x993fe2c6d07b7fab, 0xbf8fdb78849a5f96, 0xef73d256a5c0f77c, 0x95a8637627989aad,
    0xbb127c53b17ec159, 0xe9d71b689dde71af, 0x9226712162ab070d, 0xb6b00d69bb55c8d1,
    0xe45c10c42a2b3b05, 0x8eb98a7a9a5b04e3, 0xb267ed1940f1c61c, 0xdf01e85f912e37a3,
    0x8b61313bbabce2c6, 0xae397d8aa96c1b77, 0xd9c7dced53c72255, 0x881cea14545c7575,
    0xaa242499697392d2, 0xd4ad2dbfc3d07787, 0x84ec3c97da624ab4, 0xa6274bbdd0fadd61,
    0xcfb11ead453994ba, 0x81ceb32c4b43fcf4, 0xa2425ff75e14fc31, 0xcad2f7f5359a3b3e,
    0xfd87b5f28300ca0d, 0x9e74d1b791e07e48, 0xc612062576589dda, 0xf79687aed3eec551,
    0x9abe14cd44753b52, 0xc16d9a0095928a27, 0xf1c90080baf72cb1, 0x971da05074da7bee,
    0xbce5086492111aea, 0xec1e4a7db69561a5, 0x9392ee8e921d5d07, 0xb877aa3236a4b449,
    0xe69594bec44de15b, 0x901d7cf73ab0acd9, 0xb424dc35095cd80f, 0xe12e13424bb40e13,
    0x8cbccc096f5088cb, 0xafebff0bcb24aafe, 0xdbe6fecebdedd5be, 0x89705f4136b4a597,
    0xabcc77118461cefc, 0xd6bf94d5e57a42bc, 0x8637bd05af6c69b5, 0xa7c5ac471b478423,
    0xd1b71758e219652b, 0x83126e978d4fdf3b, 0xa3d70a3d70a3d70a, 0xcccccccccccccccc,
    0x8000000000000000, 0xa000000000000000, 0xc800000000000000, 0xfa00000000000000,
    0x9c40000000000000, 0xc350000000000000, 0xf424000000000000, 0x9896800000000000,
    0xbebc200000000000, 0xee6b280000000000, 0x9502f90000000000, 0xba43b74000000000,
    0xe8d4a51000000000, 0x9184e72a00000000, 0xb5e620f480000000, 0xe35fa931a0000000,
    0x8e1bc9bf04000000, 0xb1a2bc2ec5000000, 0xde0b6b3a76400000, 0x8ac7230489e80000,
    0xad78ebc5ac620000, 0xd8d726b7177a8000, 0x878678326eac9000, 0xa968163f0a57b400,
    0xd3c21bcecceda100, 0x84595161401484a0, 0xa56fa5b99019a5c8, 0xcecb8f27f4200f3a,
    0x813f3978f8940984, 0xa18f07d736b90be5, 0xc9f2c9cd04674ede, 0xfc6f7c4045812296,
    0x9dc5ada82b70b59d, 0xc5371912364ce305, 0xf684df56c3e01bc6, 0x9a130b963a6c115c,
    0xc097ce7bc90715b3, 0xf0bdc21abb48db20, 0x96769950b50d88f4, 0xbc143fa4e250eb31,
    0xeb194f8e1ae525fd,
};

__extension__ typedef unsigned __int128 uint128;

/*
 * w * 10^e rounded to `precision` bits, as *mantissa * 2^(*exponent - precision + 1) with *mantissa in
 * [2^(precision-1), 2^precision]. False if the product of the leading 64 bits cannot decide the rounding.
 *
 * With w and the power normalised to 64 bits, the true product is less than 2^64 above the computed one (the
 * power is cut off). So its first 64 bits are less than 4 above `high`: a unit for what is cut off here, one for the
 * power, and both twice if the leading bit had to be shifted up. Only when that interval touches the middle
 * between two neighbours is the rounding open: for one double in 500, and for ties.
 * The idea is D. Lemire's ("Number parsing at a gigabyte per second", 2021).
 */
static inline bool round_decimal(uint64_t w, int e, int precision, uint64_t *mantissa, int *exponent)
{
    if (w == 0 || e < POWER_MIN || e > POWER_MAX)
        return false;
    int zeros = __builtin_clzll(w);
    uint64_t high = (uint64_t)(((uint128)(w << zeros) * POWERS[e - POWER_MIN]) >> 64);
    int top = (int)(high >> 63); /* the product has 126 + top bits below its leading one */
    high += top ? 0 : high;
    int drop = 64 - precision;
    uint64_t half = (uint64_t)1 << (drop - 1);
    uint64_t rest = high & (2 * half - 1);
    if (rest - (half - 3) <= 3)
        return false;
    *mantissa = (high >> drop) + (rest > half);
    *exponent = 63 + top - zeros + ((e * 217706) >> 16); /* floor(e log2 10), exact for |e| < 350 */
    return true;
}

/* Whole numbers are exact as they are. Of the others, normal ones only; adding, not masking, the mantissa lets its
 * carry reach the exponent. */
static inline bool decimal_to_float(uint64_t w, int e, bool negative, float *out)
{
    uint64_t mantissa;
    int exponent;
    uint32_t bits;
    if (e == 0 && w < 1u << 24) {
        float whole = (float)(int)w;
        memcpy(&bits, &whole, sizeof bits);
    } else {
        if (!round_decimal(w, e, 24, &mantissa, &exponent) || exponent < -126 || exponent > 126)
            return false;
        bits = ((uint32_t)(exponent + 126) << 23) + (uint32_t)mantissa;
    }
    bits |= (uint32_t)negative << 31;
    memcpy(out, &bits, sizeof bits);
    return true;
}

static inline bool decimal_to_double(uint64_t w, int e, bool negative, double *out)
{
    uint64_t mantissa;
    int exponent;
    uint64_t bits;
    if (e == 0 && w < (uint64_t)1 << 53) {
        double whole = (double)(int64_t)w;
        memcpy(&bits, &whole, sizeof bits);
    } else {
        if (!round_decimal(w, e, 53, &mantissa, &exponent))
            return false; /* within the table's range doubles are normal */
        bits = ((uint64_t)(exponent + 1022) << 52) + mantissa;
    }
    bits |= (uint64_t)negative << 63;
    memcpy(out, &bits, sizeof bits);
    return true;
}

/* ---------------------------------------------------------------------------------------- hot loop */

const bool codec_ends_word[256] = {
    [' '] = true, ['\t'] = true, ['\n'] = true, ['\r'] = true, ['"'] = true, [','] = true,
    [':'] = true, ['['] = true,  [']'] = true,  ['{'] = true,  ['}'] = true,
};

/* A plain number, its sign, commas and all, is shorter than this; the loop keeps as far from the end. */
enum { RUN_MARGIN = 80 };

/* Eight characters of text, the first in the lowest byte. */
static inline uint64_t load8(const char *text)
{
    uint64_t chars;
    memcpy(&chars, text, sizeof chars);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    chars = __builtin_bswap64(chars);
#endif
    return chars;
}

/* How many of the eight characters are digits before the first that is none. A count of trailing zeros would
 * need a branch for zero, and whether all eight are digits cannot be predicted: this adds up one bit for each
 * byte below the first other. */
static inline unsigned count_digits(uint64_t chars)
{
    chars ^= 0x3030303030303030; /* digits become 0..9, everything else is larger */
    uint64_t others = ((chars + 0x7676767676767676) | chars) >> 7 & 0x0101010101010101;
    uint64_t below = (others - 1) & ~others & 0x0101010101010101;
    return (unsigned)(below * 0x0101010101010101 >> 56);
}

/* The value of the first `count` characters, which are digits: eight at a time, whatever the count. */
static inline uint64_t value_of_digits(uint64_t chars, unsigned count)
{
    chars = (chars ^ 0x3030303030303030) << (4 * (8 - count)) << (4 * (8 - count)); /* zeros in front */
    chars = chars * 10 + (chars >> 8);
    chars = (chars & 0x000000FF000000FF) * 0x000F424000000064 +
            ((chars >> 16) & 0x000000FF000000FF) * 0x0000271000000001;
    return (uint32_t)(chars >> 32);
}

struct decimal {
    uint64_t w; /* all digits */
    int e;      /* power of ten */
    bool negative;
};

static const uint64_t SCALE[9] = {1,      10,      100,      1000,     10000,
                                  100000, 1000000, 10000000, 100000000};

/* The largest numbers that take 0..3 more digits. */
static const uint64_t LIMIT[4] = {UINT64_MAX, UINT64_MAX / 10 - 1, UINT64_MAX / 100 - 1,
                                  UINT64_MAX / 1000 - 1};

/* Appends the digits at text, fewer than 32, to *w. Returns their end, NULL if *w does not hold them. */
static const char *append_digits(const char *text, uint64_t *w)
{
    unsigned count;
    int blocks = 0;
    do {
        uint64_t chars = load8(text);
        count = count_digits(chars);
        uint64_t value = value_of_digits(chars, count);
        if (*w > (UINT64_MAX - value) / SCALE[count] || ++blocks > 4)
            return NULL;
        *w = *w * SCALE[count] + value;
        text += count;
    } while (count == 8);
    return text;
}

/* Any number that 64 bits of digits hold, and its end; NULL leaves it to the careful path. Reads less than
 * RUN_MARGIN bytes. */
static __attribute__((noinline)) const char *read_decimal(const char *text, struct decimal *number)
{
    *number = (struct decimal){.negative = *text == '-'};
    text += number->negative;
    const char *first = text;
    text = append_digits(text, &number->w);
    if (text == NULL || text == first || (*first == '0' && text - first > 1))
        return NULL;
    if (*text == '.') {
        const char *point = text + 1;
        text = append_digits(point, &number->w);
        if (text == NULL || text == point)
            return NULL;
        number->e = (int)(point - text);
    }
    if (*text == 'e' || *text == 'E') {
        text++;
        bool minus = *text == '-';
        text += *text == '-' || *text == '+';
        uint64_t chars = load8(text);
        unsigned count = count_digits(chars);
        int power = (int)value_of_digits(chars, count);
        if (count == 0 || count > 4)
            return NULL;
        number->e += minus ? -power : power;
        text += count;
    }
    return codec_ends_word[(unsigned char)*text] ? text : NULL;
}

/*
 * The numbers that matrices are made of, [-]d{1,6}[.d{1,19}], and their end; NULL for all others. What the next
 * round waits for is where this number ends, so that is worked out first and without a branch on the
 * sign or the number of digits, which nothing could predict.
 */
static inline __attribute__((always_inline)) const char *read_plain(const char *text,
                                                                    struct decimal *number)
{
    uint64_t chars = load8(text);
    unsigned negative = (chars & 0xFF) == '-';
    chars >>= 8 * negative;
    text += negative;

    uint64_t w;
    if ((chars >> 8 & 0xFF) == '.') {
        w = (chars & 0xFF) - '0';
        if (w > 9)
            return NULL;
        text++;
    } else {
        unsigned count = count_digits(chars);
        if (count == 0 || count > 6 || ((chars & 0xFF) == '0' && count > 1))
            return NULL;
        w = value_of_digits(chars, count);
        text += count;
    }
    number->negative = negative != 0;
    number->e = 0;
    number->w = w;
    if (*text == '.') {
        uint64_t first = load8(text + 1), second = load8(text + 9);
        unsigned count = count_digits(first), more = count_digits(second);
        more *= count / 8; /* 0 unless all eight were digits: a multiplication, not a branch */
        if (w >= 1000 || count == 0)
            return NULL;
        w = (w * SCALE[count] + value_of_digits(first, count)) * SCALE[more] +
            value_of_digits(second, more);
        text += 1 + count + more;
        number->e = -(int)(count + more);
        if (more == 8) { /* the 16 or 17 digits of a double: one to three are left */
            uint64_t third = load8(text);
            count = count_digits(third);
            if (count > 3 || w > LIMIT[count])
                return NULL;
            w = w * SCALE[count] + value_of_digits(third, count);
            text += count;
            number->e -= (int)count;
        }
        number->w = w;
    }
    return codec_ends_word[(unsigned char)*text] ? text : NULL;
}

/* `wide` is a constant at both calls: two loops come out of one text. */
static inline __attribute__((always_inline)) const char *
add_run(struct lifted *lifted, bool wide, const char *text, const char *end, bool *after)
{
    size_t count = lifted->count;
    float *floats = lifted->data;
    double *doubles = lifted->data;
    struct decimal number;

    *after = false;
    while (end - text >= RUN_MARGIN && count < lifted->capacity) {
        const char *next = read_plain(text, &number);
        if (next == NULL) {
            struct decimal other; /* apart, so that `number` can live in registers */
            next = read_decimal(text, &other);
            if (next == NULL)
                break;
            number = other;
        }
        if (wide ? !decimal_to_double(number.w, number.e, number.negative, &doubles[count])
                 : !decimal_to_float(number.w, number.e, number.negative, &floats[count]))
            break;
        count++;
        text = next;
        if (*text != ',') {
            *after = true;
            break;
        }
        if (text[1] == ' ')
            text += 2;
        else
            text += 1;
    }
    lifted->count = count;
    return text;
}

const char *lifted_add_run(struct lifted *lifted, const char *text, const char *end, size_t *added,
                           bool *after)
{
    size_t before = lifted->count;
    if (lifted->dtype == ATTN_FLOAT64)
        text = add_run(lifted, true, text, end, after);
    else
        text = add_run(lifted, false, text, end, after);
    *added = lifted->count - before;
    return text;
}
