/*
 * decimal.c - reads decimal numbers of all forms, one at a time and eight digits at a time, and has
 * the loop over a run of them for CPUs without the vectors of decimal_vector.c. A number whose last
 * bit one multiplication of 64 x 64 bits does not decide is left to std::from_chars (number.h). The
 * loop knows no JSON structure but the comma between two numbers.
 */
#include "codec/json/decimal.h"

const struct decimal_tables decimal_tables = {
    .powers = {{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14,
                1e15},
               {-1e0, -1e1, -1e2, -1e3, -1e4, -1e5, -1e6, -1e7, -1e8, -1e9, -1e10, -1e11, -1e12,
                -1e13, -1e14, -1e15}},
    .vector = {.places = {-16, -15, -14, -13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1,
                          0,   1,   2,   3,   4,   5,   6,   7,  8,  9,  10, 11, 12, 13, 14, 15},
               .steps = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1},
               .zeros = {'0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0',
                         '0'}},
};

const bool codec_ends_scalar[256] = {
    [' '] = true, ['\t'] = true, ['\n'] = true, ['\r'] = true, ['"'] = true, [','] = true,
    [':'] = true, ['['] = true,  [']'] = true,  ['{'] = true,  ['}'] = true,
};

/* Appends the digits at text to *w. Returns their end. NULL if there are 32 or more, or if *w would
 * not fit in 64 bits. */
static inline const char *append_digits(const char *text, uint64_t *w) {
    for (int blocks = 0; blocks < 4; blocks++) {
        const uint64_t chars = load8(text);
        const unsigned count = count_digits(chars);
        if (__builtin_mul_overflow(*w, DECIMAL_SCALE[count], w) ||
            __builtin_add_overflow(*w, value_of_digits(chars, count), w)) {
            return NULL;
        }
        text += count;
        if (count < 8) {
            return text;
        }
    }
    return NULL;
}

const char *decimal_end(const char *text, struct decimal *number) {
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
    return codec_ends_scalar[(unsigned char)*text] ? text : NULL;
}

/* Stays a function, because the loop below would make a branch of the sign, which cannot be
 * predicted. */
__attribute__((noinline)) const char *decimal_read(const char *text, struct decimal *number) {
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
    return *text == ',' ? text : decimal_end(text, number);
}

const char *decimal_add_run(struct codec_tensor *tensor, const char *text, const char *end,
                            size_t *added, bool *after) {
    double *out = (double *)tensor->data + tensor->count;
    double *const first = out, *const full = (double *)tensor->data + tensor->capacity;

    *after = false;
    while (end - text >= DECIMAL_MARGIN && out < full) {
        const char *next = decimal_store_any(text, out);
        if (next == NULL) {
            break;
        }
        out++;
        text = next;
        if (*text != ',') {
            *after = true;
            break;
        }
        text += text[1] == ' ' ? 2 : 1;
    }
    *added = (size_t)(out - first);
    tensor->count += *added;
    return text;
}
