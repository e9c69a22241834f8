/*
 * decimal_vector.c - the hot loop that reads runs of decimal numbers into the buffer of a tensor,
 * with vectors: AVX2, FMA and BMI2 on x86 (the Makefile gives this file their flags), NEON on ARM.
 * It finds the ends of several numbers at once, reads 16 characters at a time, and divides by a
 * power of ten. The loop knows no JSON structure but the comma between two numbers.
 */
#include "codec/json/decimal.h"

#include "codec/json/vectors.h"

#ifdef DECIMAL_VECTOR

/* Numbers that are read from 64 characters. One with more than DECIMAL_FEW counts twice. */
enum {
    NUMBERS = 4
};

/* The places of a number, without its exponent, relative to its first character. */
struct shape {
    uint64_t negative; /* 1 if the first character is a sign, and 0 otherwise */
    uint64_t size;     /* characters */
    uint64_t end;      /* the same, with a point after a number that has none */
    uint64_t after;    /* digits after the point */
};

/* Finds the shape of a number at text. Bit i of `others` is set if character i is no digit. False
 * if it is no number, or has a zero in front, or does not end before the last bit. */
static inline __attribute__((always_inline)) bool find_shape(const char *text, uint64_t others,
                                                             struct shape *shape) {
    const uint64_t negative = *text == '-';
    others ^= negative; /* what is left is the point, or a character that ends the number */
    if (others == 0) {
        return false;
    }
    const uint64_t point = (uint64_t)__builtin_ctzll(others), before = point - negative;
    if (before != 1 && (before == 0 || text[negative] == '0')) {
        return false;
    }
    *shape = (struct shape){.negative = negative, .size = point, .end = point + 1};
    if (text[point] == '.') {
        others &= others - 1;
        if (others == 0) {
            return false;
        }
        shape->size = shape->end = (uint64_t)__builtin_ctzll(others);
        shape->after = shape->end - point - 1;
        return shape->after > 0;
    }
    return true;
}

/* Stores a number with few digits: w < 2^53 divided by a power of ten is the double nearest to the
 * text. False if its rounding to float is open; that to half never is, because a number with so few
 * digits that is not halfway between two halves is more than a double's error away from there. */
static inline __attribute__((always_inline)) bool
store_few(const char *text, const struct shape *shape, double *out) {
    const double w =
        vector_double(vector_read(&decimal_tables.vector, text, shape->end, shape->after));
    *out = w / decimal_tables.powers[shape->negative][shape->after];
    return !decimal_is_halfway(*out);
}

/* Reads the digits of a number of any length. False if they may not fit in 64 bits. */
static inline __attribute__((always_inline)) bool
read_many(const char *text, const struct shape *shape, struct decimal *number) {
    const struct vector_tables *tables = &decimal_tables.vector;
    const uint64_t after = shape->after;
    number->e = -(int)after;
    number->negative = shape->negative != 0;
    if (shape->end <= 16) {
        number->w = vector_whole(vector_read(tables, text, shape->end, after));
        return true;
    }
    const uint64_t before = shape->end - 16;
    if (before > 16) {
        return false;
    }
    const bool inside = after < 16; /* the point is one of the last 16 characters */
    const uint64_t head =
        vector_whole(vector_read(tables, text, before, inside ? before : after - 16));
    const uint64_t tail = vector_whole(vector_read(tables, text + before, 16, inside ? after : 16));
    number->w = head * (inside ? 1000000000000000 : 10000000000000000) + tail;
    return head < 1000;
}

/* Stores a number of this shape that has many digits or an exponent. Returns its end. NULL if its
 * digits do not fit, no number ends there, or its rounding is open. */
static inline __attribute__((always_inline)) const char *
store_many(const char *text, const struct shape *shape, double *out) {
    struct decimal number;
    if (!read_many(text, shape, &number)) {
        return NULL;
    }
    const char *end = text + shape->size;
    if (*end != ',') {
        struct decimal other = number; /* its address is taken; `number` can stay in registers */
        end = decimal_end(end, &other);
        number = other;
    }
    return end != NULL && decimal_store(&number, out) ? end : NULL;
}

const char *decimal_add_run_vector(struct codec_tensor *tensor, const char *text, const char *end,
                                   size_t *added, bool *after) {
    double *out = (double *)tensor->data + tensor->count;
    double *const first = out, *const full = (double *)tensor->data + tensor->capacity;
    bool spaced = false; /* a space follows the commas */

    *after = false;
    while (end - text >= DECIMAL_MARGIN) {
        uint64_t others = vector_others(text);
        for (int i = 0; i < NUMBERS; i++) {
            struct shape shape;
            if (out == full) {
                goto done;
            }
            const bool found = find_shape(text, others, &shape);
            const char *next = found ? text + shape.size : text;
            if (found && shape.end <= DECIMAL_FEW &&
                (*next == ',' || codec_ends_scalar[(unsigned char)*next])) {
                if (!store_few(text, &shape, out)) {
                    goto done;
                }
            } else {
                next = found ? store_many(text, &shape, out) : NULL;
                if (next == NULL && i > 0) {
                    break; /* the 64 characters may end in this number */
                }
                if (next == NULL && (next = decimal_store_any(text, out)) == NULL) {
                    goto done;
                }
                shape.size = (uint64_t)(next - text);
                i = shape.size > 61 ? NUMBERS
                                    : i + 1; /* nothing may be left of the 64 characters */
            }
            out++;
            if (*next != ',') {
                text = next;
                *after = true;
                goto done;
            }
            /* The space is known from the last number, so the next number does not wait for
             * this load. */
            if ((next[1] == ' ') != spaced) {
                spaced = !spaced;
                text = next + 1 + spaced;
                break;
            }
            const uint64_t moved = shape.size + 1 + spaced;
            text += moved;
            others >>= moved & 63;
        }
    }
done:
    *added = (size_t)(out - first);
    tensor->count += *added;
    return text;
}

#endif
