/*
 * lift.c - the buffers of lifted arrays and the hot loop that fills them: ten to twenty
 * nanoseconds for a number. The loop reads eight digits at a time and rounds w * 10^e with one 64
 * x 64 bit multiplication; whenever that cannot decide the last bit it leaves the number to
 * std::from_chars (number.h). Knows no JSON structure beyond the comma between two numbers.
 */
#define _GNU_SOURCE /* mremap */
#include "codec/json/lift.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "codec/json/number.h"
#include "codec/json/power.h"

/* ------------------------------------------------------------------------------------- buffers */

enum {
    /* A buffer doubles; from MAP_FROM on it has pages of its own and grows by an eighth. */
    MAP_FROM = 256 * 1024,
    LAST_BYTES = 16 * 1024,
};

/* A buffer that doubles is full at LIFT_EXACT elements: the hot loop stops there by itself. */
static_assert(LIFT_EXACT * sizeof(double) / LIFT_FIRST == 32 && MAP_FROM / LIFT_FIRST > 32,
              "a multiple of LIFT_FIRST by a power of two");

void lifted_init(struct lifted *lifted, attn_dtype dtype, int rank, void *first) {
    const bool exact = dtype == ATTN_FLOAT32 && rank == 1;
    *lifted = (struct lifted){
        .data = first,
        .borrowed = true,
        .dtype = exact ? ATTN_FLOAT64 : dtype,
        .exact = exact,
        .rank = rank,
        .first_null = LIFT_NONE,
        .first_range = LIFT_NONE,
    };
    lifted->capacity = LIFT_FIRST / attn_dtype_size(lifted->dtype);
}

/* A buffer from malloc becomes one with pages of its own: the old and the new one are there at
 * once. */
static bool map(struct lifted *lifted, struct account *account, size_t bytes) {
    if (!account_take(account, bytes)) {
        return false;
    }
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        account_give(account, bytes);
        return false;
    }
    if (lifted->count > 0) {
        memcpy(data, lifted->data, lifted->count * attn_dtype_size(lifted->dtype));
    }
    if (!lifted->borrowed) {
        account_free(account, lifted->data, lifted->bytes);
    }
    lifted->data = data;
    lifted->borrowed = false;
    lifted->mapped = true;
    lifted->bytes = bytes;
    return true;
}

/*
 * A large buffer must not be copied while it grows, since for a moment there would be two of it.
 * realloc() copies or remaps as the allocator's mood is; mremap() only ever moves page tables. And
 * pages that were never written are not there, so what such a buffer has in reserve costs nothing.
 */
static bool remap(struct lifted *lifted, struct account *account, size_t bytes) {
    const size_t more = bytes > lifted->bytes ? bytes - lifted->bytes : 0;
    if (!account_take(account, more)) {
        return false;
    }
    void *data = mremap(lifted->data, lifted->bytes, bytes, MREMAP_MAYMOVE);
    if (data == MAP_FAILED) {
        account_give(account, more);
        return false;
    }
    account_give(account, lifted->bytes + more - bytes);
    lifted->data = data;
    lifted->bytes = bytes;
    return true;
}

static bool resize(struct lifted *lifted, struct account *account, size_t bytes) {
    if (lifted->mapped) {
        return remap(lifted, account, bytes);
    }
    if (bytes >= MAP_FROM) {
        return map(lifted, account, bytes);
    }
    void *data = lifted->borrowed ? account_alloc(account, bytes)
                                  : account_realloc(account, lifted->data, lifted->bytes, bytes);
    if (data == NULL) {
        return false;
    }
    if (lifted->borrowed && lifted->count > 0) {
        memcpy(data, lifted->data, lifted->count * attn_dtype_size(lifted->dtype));
    }
    lifted->data = data;
    lifted->borrowed = false;
    lifted->bytes = bytes;
    return true;
}

bool lifted_zeros(struct lifted *lifted, struct account *account, attn_dtype dtype, int rank,
                  const size_t *shape, size_t count, size_t capacity) {
    size_t bytes;
    lifted_init(lifted, dtype, rank, NULL);
    lifted->dtype = dtype;
    lifted->exact = false;
    if (__builtin_mul_overflow(capacity, attn_dtype_size(dtype), &bytes)) {
        bytes = SIZE_MAX; /* refused like any other size that is not there */
    }
    if (!resize(lifted, account, bytes)) {
        return false;
    }
    if (!lifted->mapped) {
        memset(lifted->data, 0, bytes);
    }
    memcpy(lifted->shape, shape, (size_t)rank * sizeof *shape);
    lifted->count = count;
    lifted->capacity = capacity;
    return true;
}

/* The buffer of numbers grows by a rule of its own, not by account_grow(): it has pages of its own
 * when it is large, and it must be full at LIFT_EXACT elements. */
bool lifted_room(struct lifted *lifted, struct account *account) {
    if (lifted->exact && lifted->count == LIFT_EXACT) {
        lifted_narrow(lifted);
    }
    if (lifted->count < lifted->capacity) {
        return true;
    }
    const size_t width = attn_dtype_size(lifted->dtype), bytes = lifted->capacity * width;
    size_t step = bytes >= MAP_FROM ? bytes / 8 : bytes;
    if (!resize(lifted, account, bytes + step / width * width)) {
        /* Close to the limit a buffer grows by little, so that no more is asked for than needed. */
        step = step < LAST_BYTES ? step : LAST_BYTES;
        if (step < LAST_BYTES || !resize(lifted, account, bytes + step)) {
            return false;
        }
    }
    lifted->capacity += step / width;
    return true;
}

bool lifted_trim(struct lifted *lifted, struct account *account) {
    const size_t bytes = lifted->count * attn_dtype_size(lifted->dtype);
    if (lifted->borrowed && bytes <= sizeof lifted->few) {
        memmove(lifted->few, lifted->data, bytes);
        lifted->data = lifted->few;
        lifted->capacity = lifted->count;
        return true;
    }
    const bool done = resize(lifted, account, bytes);
    lifted->capacity = lifted->count;
    return done || !lifted->borrowed; /* if it is only larger than it need be, it is still good */
}

void lifted_free(struct lifted *lifted, struct account *account) {
    if (lifted->mapped) {
        munmap(lifted->data, lifted->bytes);
        account_give(account, lifted->bytes);
    } else if (!lifted->borrowed) {
        account_free(account, lifted->data, lifted->bytes);
    }
    lifted->data = NULL;
    lifted->mapped = false;
    lifted->bytes = 0;
}

void codec_narrow(void *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const float narrow = (float)((const double *)numbers)[i];
        memcpy((char *)numbers + i * sizeof narrow, &narrow, sizeof narrow);
    }
}

void lifted_narrow(struct lifted *lifted) {
    if (!lifted->exact) {
        return;
    }
    codec_narrow(lifted->data, lifted->count);
    lifted->exact = false;
    lifted->dtype = ATTN_FLOAT32;
    lifted->capacity *= 2;
}

/* ------------------------------------------------------------------------------------ the list */

struct lifted *lifted_next(struct lifted_list *list, struct account *account) {
    const size_t size = LIFT_BLOCK * sizeof(struct lifted);
    if (list->count == list->block_count * LIFT_BLOCK) {
        struct lifted **blocks = account_grow(account, list->blocks, &list->block_capacity,
                                              list->block_count + 1, sizeof *blocks);
        if (blocks == NULL) {
            return NULL;
        }
        list->blocks = blocks;
        struct lifted *block = account_alloc(account, size);
        if (block == NULL) {
            return NULL;
        }
        list->blocks[list->block_count++] = block;
    }
    return lifted_at(list, list->count);
}

void lifted_list_free(struct lifted_list *list, struct account *account) {
    for (size_t i = 0; i < list->count; i++) {
        lifted_free(lifted_at(list, i), account);
    }
    for (size_t i = 0; i < list->block_count; i++) {
        account_free(account, list->blocks[i], LIFT_BLOCK * sizeof(struct lifted));
    }
    account_free(account, list->blocks, list->block_capacity * sizeof(struct lifted *));
    *list = (struct lifted_list){0};
}

/* ----------------------------------------------------------------------------- single elements */

/* Reads a double that codec_narrow() rounds to the same float as the text. Usually it is the double
 * nearest to the text. That double may lie halfway between two floats while the text does not; the
 * double beside it, in the direction of the text's float, is taken then. False if the number is out
 * of the range of float. */
static bool read_exact(const char *text, size_t size, double *out) {
    float narrow;
    const bool fits = number_read_float(text, size, &narrow);
    number_read_double(text, size, out);
    union {
        double number;
        float narrow;
    } rounded = {.number = *out};
    codec_narrow(&rounded, 1);
    if (rounded.narrow != narrow) {
        *out = nextafter(*out, (double)narrow);
    }
    return fits;
}

void lifted_add_number(struct lifted *lifted, const char *text, size_t size) {
    bool fits;
    if (lifted->exact) {
        fits = read_exact(text, size, &((double *)lifted->data)[lifted->count]);
    } else if (lifted->dtype == ATTN_FLOAT64) {
        fits = number_read_double(text, size, &((double *)lifted->data)[lifted->count]);
    } else {
        fits = number_read_float(text, size, &((float *)lifted->data)[lifted->count]);
    }
    if (!fits && lifted->first_range == LIFT_NONE) {
        lifted->first_range = lifted->count;
        memcpy(lifted->range_text, text, size < LIFT_TEXT ? size : LIFT_TEXT);
    }
    lifted->count++;
}

void lifted_add_null(struct lifted *lifted) {
    if (lifted->first_null == LIFT_NONE) {
        lifted->first_null = lifted->count;
    }
    if (lifted->dtype == ATTN_FLOAT64) {
        ((double *)lifted->data)[lifted->count] = -(double)INFINITY;
    } else {
        ((float *)lifted->data)[lifted->count] = -INFINITY;
    }
    lifted->count++;
}

void lifted_add_bool(struct lifted *lifted, bool value) {
    ((unsigned char *)lifted->data)[lifted->count++] = value;
}

/* --------------------------------------------------------------------------- decimal to binary */

/*
 * w * 10^e rounded to `precision` bits, as *mantissa * 2^(*exponent - precision + 1) with
 * *mantissa in [2^(precision-1), 2^precision]. False if the product of the leading 64 bits cannot
 * decide the rounding.
 *
 * With w and the power normalised to 64 bits, the true product is less than 2^64 above the
 * computed one (the power is cut off). So its first 64 bits are less than 4 above `high`: a unit
 * for what is cut off here, one for the power, and both twice if the leading bit had to be shifted
 * up. Only when that interval touches the middle between two neighbours is the rounding open: for
 * one double in 500, and for ties. The idea is D. Lemire's ("Number parsing at a gigabyte per
 * second", 2021).
 */
static inline bool round_decimal(uint64_t w, int e, int precision, uint64_t *mantissa,
                                 int *exponent) {
    if (w == 0 || e < POWER_MIN || e > POWER_MAX) {
        return false;
    }
    int zeros = __builtin_clzll(w);
    uint64_t high = (uint64_t)(((uint128)(w << zeros) * codec_powers[e - POWER_MIN]) >> 64);
    int top = (int)(high >> 63); /* the product has 126 + top bits below its leading one */
    high += top ? 0 : high;
    int drop = 64 - precision;
    uint64_t half = (uint64_t)1 << (drop - 1);
    uint64_t rest = high & (2 * half - 1);
    if (rest - (half - 3) <= 3) {
        return false;
    }
    *mantissa = (high >> drop) + (rest > half);
    *exponent = 63 + top - zeros + codec_power_log2(e);
    return true;
}

/* Whole numbers are exact as they are. Of the others, normal ones only; adding, not masking, the
 * mantissa lets its carry reach the exponent. */
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

static inline bool decimal_to_double(uint64_t w, int e, bool negative, double *out) {
    uint64_t mantissa;
    int exponent;
    uint64_t bits;
    if (e == 0 && w < (uint64_t)1 << 53) {
        double whole = (double)(int64_t)w;
        memcpy(&bits, &whole, sizeof bits);
    } else {
        if (!round_decimal(w, e, 53, &mantissa, &exponent)) {
            return false; /* within the table's range doubles are normal */
        }
        bits = ((uint64_t)(exponent + 1022) << 52) + mantissa;
    }
    bits |= (uint64_t)negative << 63;
    memcpy(out, &bits, sizeof bits);
    return true;
}

/* Is the float that this double rounds to surely that of the text it was read from? Not if it lies
 * halfway between two, nor where floats are denormal or end. */
static inline bool rounds_alike(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    unsigned exponent = (unsigned)(bits >> 52) & 0x7FF;
    return value == 0 ||
           ((bits & 0x1FFFFFFF) != 0x10000000 && exponent >= 1023 - 126 && exponent <= 1023 + 126);
}

/* ------------------------------------------------------------------------------------ hot loop */

const bool codec_ends_word[256] = {
    [' '] = true, ['\t'] = true, ['\n'] = true, ['\r'] = true, ['"'] = true, [','] = true,
    [':'] = true, ['['] = true,  [']'] = true,  ['{'] = true,  ['}'] = true,
};

/* A plain number, its sign, commas and all, is shorter than this; the loop keeps as far from the
 * end. */
enum {
    RUN_MARGIN = 80
};

/* Eight characters of text, the first in the lowest byte. */
static inline uint64_t load8(const char *text) {
    uint64_t chars;
    memcpy(&chars, text, sizeof chars);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    chars = __builtin_bswap64(chars);
#endif
    return chars;
}

/* The top bit of every byte that is no digit; above the first of them, maybe of others too. */
static inline uint64_t other_than_digits(uint64_t chars) {
    chars ^= 0x3030303030303030; /* digits become 0..9, everything else is larger */
    return ((chars + 0x7676767676767676) | chars) & 0x8080808080808080;
}

/* How many of the eight characters are digits, before the first that is none. */
static inline unsigned count_digits(uint64_t chars) {
    uint64_t others = other_than_digits(chars);
    return others != 0 ? (unsigned)__builtin_ctzll(others) / 8 : 8;
}

/* The value of the first `count` characters, which are digits: eight at a time, whatever the
 * count. */
static inline uint64_t value_of_digits(uint64_t chars, unsigned count) {
    chars = (chars ^ 0x3030303030303030)
            << (4 * (8 - count)) << (4 * (8 - count)); /* zeros in front */
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

static const uint64_t SCALE[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

/* The largest numbers that take 0..3 more digits. */
static const uint64_t LIMIT[4] = {UINT64_MAX, UINT64_MAX / 10 - 1, UINT64_MAX / 100 - 1,
                                  UINT64_MAX / 1000 - 1};

/* Appends the digits at text, fewer than 32, to *w. Returns their end, NULL if *w does not hold
 * them. */
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

/* Any number that 64 bits of digits hold, and its end; NULL leaves it to the careful path. Reads
 * less than RUN_MARGIN bytes. */
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
    return codec_ends_word[(unsigned char)*text] ? text : NULL;
}

/* Appends the digits at *text, at most eight, to *w; true if they are eight. There is a branch on
 * that, and none on how many fewer they are, because only the former can be predicted. */
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

/* The numbers that matrices are made of, [-]d{1,6}[.d{1,19}]: returns their end; NULL for all
 * others. */
static inline __attribute__((always_inline)) const char *read_plain(const char *text,
                                                                    struct decimal *number) {
    uint64_t chars = load8(text), w;
    unsigned negative = (chars & 0xFF) == '-'; /* no branch on the sign either */
    uint64_t unsigned_chars = chars >> 8 * negative;
    const char *point;

    if ((unsigned_chars >> 8 & 0xFF) == '.') {
        w = (unsigned_chars & 0xFF) - '0';
        if (w > 9) {
            return NULL;
        }
        point = text + negative + 1;
    } else {
        /* the first character is left out: it is a sign or a digit, or the count comes out wrong
         * below */
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
        if (w >= 1000) { /* or 16 more digits might not fit */
            return NULL;
        }
        const bool eight = take_digits(&text, &w);
        if (eight && take_digits(&text, &w)) {
            /* the 16 or 17 digits of a double: up to three are left */
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
    return codec_ends_word[(unsigned char)*text] ? text : NULL;
}

/* `wide` and `exact` are constants at all calls: three loops come out of one text. */
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
            struct decimal other; /* apart, so that `number` can live in registers */
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
