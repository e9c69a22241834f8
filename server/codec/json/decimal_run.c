/*
 * decimal_run.c - the hot loop that reads runs of decimal numbers into the buffer of a lifted
 * array, on CPUs without the vectors of decimal_vector.c. It reads eight digits at a time and
 * rounds w * 10^e with one multiplication of 64 x 64 bits. A number whose last bit this does not
 * decide is left to std::from_chars (number.h). The loop knows no JSON structure but the comma
 * between two numbers.
 */
#include "codec/json/decimal.h"

/* LIMIT[n]: a number up to here fits in 64 bits with n more digits. */
static const uint64_t LIMIT[4] = {UINT64_MAX, UINT64_MAX / 10 - 1, UINT64_MAX / 100 - 1,
                                  UINT64_MAX / 1000 - 1};

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
    *w = *w * DECIMAL_SCALE[count] + value_of_digits(chars, count);
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
            w = w * DECIMAL_SCALE[count] + value_of_digits(third, count);
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

/* Adds the numbers of a run to the buffer. `kind` is a constant in every call, so the compiler
 * makes three loops. */
static inline __attribute__((always_inline)) const char *add_run(struct lifted *lifted,
                                                                 enum decimal_kind kind,
                                                                 const char *text, const char *end,
                                                                 bool *after) {
    size_t count = lifted->count;
    const size_t width = kind == DECIMAL_FLOATS ? sizeof(float) : sizeof(double);
    char *out = (char *)lifted->data + count * width;
    struct decimal number;

    *after = false;
    while (end - text >= DECIMAL_MARGIN && count < lifted->capacity) {
        const char *next = read_plain(text, &number);
        if (next == NULL) {
            struct decimal other; /* its address is taken; `number` can stay in registers */
            next = decimal_read(text, &other);
            if (next == NULL) {
                break;
            }
            number = other;
        }
        if (!decimal_store(&number, kind, out)) {
            break;
        }
        out += width;
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

const char *decimal_add_run(struct lifted *lifted, const char *text, const char *end, size_t *added,
                            bool *after) {
    size_t before = lifted->count;
    if (lifted->exact) {
        text = add_run(lifted, DECIMAL_EXACT, text, end, after);
    } else if (lifted->dtype == ATTN_FLOAT64) {
        text = add_run(lifted, DECIMAL_DOUBLES, text, end, after);
    } else {
        text = add_run(lifted, DECIMAL_FLOATS, text, end, after);
    }
    *added = lifted->count - before;
    return text;
}

const char *lifted_add_run(struct lifted *lifted, const char *text, const char *end, size_t *added,
                           bool *after) {
#ifdef DECIMAL_VECTOR
    if (vector_has_digits()) {
        return decimal_add_run_vector(lifted, text, end, added, after);
    }
#endif
    return decimal_add_run(lifted, text, end, added, after);
}
