/* settle.c - what must be done to every number of a matrix after it has arrived: the numbers of a
 * mask become bytes, and numbers in the JSON of a datatype are checked, rounded and converted. A
 * matrix may be as long as a body, so all of it can be done in chunks. */
#include "codec/settle.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/json/document.h"
#include "codec/json/number.h"
#include "codec/json/refuse.h"

enum {
    BLOCK = 256 /* numbers between two looks at what was found */
};

/* ---------------------------------------------------------------------------------------- masks */

/* Makes bytes of `count` numbers. Returns whether each is 0 or 1. *ones becomes 1 if one of them is
 * not 0. The loops have no exit, so the compiler makes vectors of them. */
#define BYTES_OF(name, real)                                                                       \
    static bool name(const real *restrict numbers, size_t count, unsigned char *restrict bytes,    \
                     unsigned *ones) {                                                             \
        unsigned bad = 0, any = *ones;                                                             \
        for (size_t i = 0; i < count; i++) {                                                       \
            bytes[i] = numbers[i] != 0;                                                            \
            any |= numbers[i] != 0;                                                                \
            bad |= (numbers[i] != 0) & (numbers[i] != 1);                                          \
        }                                                                                          \
        *ones = any;                                                                               \
        return bad == 0;                                                                           \
    }
BYTES_OF(bytes_of_floats, float)
BYTES_OF(bytes_of_doubles, double)

/* Settles `count` numbers of a mask from `first` on. The bytes replace the numbers in place: byte i
 * is written after number i was read, and lies before number i + 1. */
static void settle_bytes(struct lifted *array, size_t first, size_t count) {
    unsigned char block[BLOCK];
    unsigned ones = array->ones;
    for (size_t done = 0, part; done < count; done += part) {
        const size_t at = first + done;
        part = count - done < BLOCK ? count - done : BLOCK;
        const bool good =
            array->dtype == ATTN_FLOAT64
                ? bytes_of_doubles((const double *)array->data + at, part, block, &ones)
                : bytes_of_floats((const float *)array->data + at, part, block, &ones);
        for (size_t i = at; !good && array->misfit == LIFT_NONE; i++) {
            const double number = lifted_number(array, i);
            array->misfit = number != 0 && number != 1 ? i : LIFT_NONE;
        }
        array->ones = ones != 0;
        if (!good) {
            return;
        }
        memcpy((unsigned char *)array->data + at, block, part);
    }
}

/* ---------------------------------------------------------------------------------------- types */

/* Returns the first of `count` numbers that is no whole number in [least, most], or `count`. */
static size_t find_misfit(const struct lifted *numbers, size_t first, size_t count,
                          enum codec_type type) {
    const bool is_signed = type >= CODEC_TYPE_INT8;
    const int bits = type == CODEC_TYPE_BOOL ? 1 : 8 * (int)codec_type_size(type) - is_signed;
    const double least = is_signed ? -ldexp(1, bits) : 0, largest = ldexp(1, bits) - 1;
    /* The numbers were rounded when they were read, and so is the largest one of the type: 2^63
     * stands for 2^63 - 1. */
    const double most = numbers->dtype == ATTN_FLOAT32 ? (double)(float)largest : largest;
    for (size_t i = 0; i < count; i++) {
        const double number = lifted_number(numbers, first + i);
        if (!(number >= least && number <= most && floor(number) == number)) {
            return i;
        }
    }
    return count;
}

/* Rounds a number to a half, to nearest with ties to even. Let p be the largest power of two that
 * is not above its magnitude. The last digit of the half is worth p / 2^10, and so is that of the
 * sum of the magnitude and 1.5 · 2^42 · p. Below 2^-14 halves are subnormal and p stays 2^-14. */
static inline double round_to_half(double number) {
    const union {
        double number;
        uint64_t bits;
    } wide = {.number = number};
    union {
        uint64_t bits;
        double number;
    } power = {.bits = wide.bits & 0x7FF0000000000000};
    power.number = power.number > 0x1p-14 ? power.number : 0x1p-14;
    const double shift = power.number * 0x1.8p42;
    return copysign(fabs(number) + shift - shift, number);
}

/* Each rounds `count` numbers that were read as float64 to those of the type, as if its bytes had
 * come. Each returns the first number that is out of its range, or `count`. Minus infinity stands
 * for null. */
static size_t round_to_floats(double *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const float narrow = (float)numbers[i];
        if (isinf(narrow) && isfinite(numbers[i])) {
            return i;
        }
        numbers[i] = (double)narrow;
    }
    return count;
}

static size_t round_to_halves(double *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (numbers[i] == -(double)INFINITY) {
            continue;
        }
        if (fabs(numbers[i]) >= 65520) { /* the least magnitude that is rounded to 65536 */
            return i;
        }
        numbers[i] = round_to_half(numbers[i]);
    }
    return count;
}

/* Converts `count` numbers to the dtype of the array. A float64 number may be out of the range of
 * float32, which the accessors refuse. */
static void convert(struct lifted *array, size_t first, size_t count) {
    const bool wide = array->dtype == ATTN_FLOAT64;
    for (size_t i = first; i < first + count && wide; i++) {
        ((double *)array->data)[i] = (double)((const float *)array->source->data)[i];
    }
    for (size_t i = first; i < first + count && !wide; i++) {
        const double number = ((const double *)array->source->data)[i];
        const float narrow = (float)number;
        ((float *)array->data)[i] = narrow;
        if (!isfinite(narrow) && isfinite(number) && array->first_range == LIFT_NONE) {
            char text[NUMBER_SIZE + 1];
            array->first_range = i;
            snprintf(array->range_text, sizeof array->range_text, "%s",
                     document_number_text(number, false, text));
        }
    }
}

/* Settles `count` numbers of a datatype from `first` on. */
static void settle_type(struct lifted *array, size_t first, size_t count) {
    struct lifted *numbers = array->source != NULL ? array->source : array;
    const enum codec_type type = (enum codec_type)array->type;
    size_t fit = count;
    if (type == CODEC_TYPE_FP16) {
        assert(numbers->dtype == ATTN_FLOAT64);
        fit = round_to_halves((double *)numbers->data + first, count);
    } else if (type == CODEC_TYPE_FP32 && array->source == NULL) {
        fit = round_to_floats((double *)numbers->data + first, count);
    } else if (!codec_type_is_float(type)) {
        fit = find_misfit(numbers, first, count, type);
    }
    if (fit < count) {
        array->misfit = first + fit;
    } else if (array->source != NULL) {
        convert(array, first, count);
    }
}

/* -------------------------------------------------------------------------------------- steps */

/* Ends a step, of which all numbers are settled. */
static void end_step(struct lifted *array, struct account *account) {
    const unsigned step = array->rest & -array->rest;
    array->rest -= step;
    array->settled = 0;
    if (step == LIFT_MASK) {
        array->zeros = array->count > 0 && !array->ones && !array->boolean;
        array->dtype = ATTN_BOOL;
        array->exact = false;
        lifted_trim(array, account);
    } else if (array->source != NULL) {
        lifted_free(array->source, account);
        array->source = NULL;
    }
}

/* Settles at most `most` numbers of an array. Returns how many. */
static size_t settle_array(struct lifted *array, struct account *account, size_t most) {
    size_t done = 0;
    while (array->rest != 0 && array->misfit == LIFT_NONE && done < most) {
        const size_t left = array->count - array->settled;
        const size_t part = left < most - done ? left : most - done;
        ((array->rest & LIFT_TYPE) != 0 ? settle_type : settle_bytes)(array, array->settled, part);
        array->settled += part;
        done += part;
        if (part == left && array->misfit == LIFT_NONE) {
            end_step(array, account);
        }
    }
    return done;
}

/* Returns whether there is nothing to be done any more. */
static bool is_settled(const struct lifted *array) {
    return array->rest == 0 || array->misfit != LIFT_NONE;
}

void settle_expect_type(struct lifted *array, enum codec_type type, struct lifted *source) {
    const bool rounds = type == CODEC_TYPE_FP16 ||
                        (type == CODEC_TYPE_FP32 && array->dtype == ATTN_FLOAT64 && !array->exact);
    const bool checks = !codec_type_is_float(type) && array->dtype != ATTN_BOOL;
    array->type = (int)type;
    array->source = source;
    array->boolean = type == CODEC_TYPE_BOOL;
    array->rest |= rounds || checks || source != NULL ? LIFT_TYPE : 0;
}

void settle_mask(struct codec_document *document, struct lifted *array) {
    if (array->dtype != ATTN_BOOL) {
        array->rest |= LIFT_MASK;
        settle_array(array, codec_document_account(document), SIZE_MAX);
    }
}

void codec_expect_mask(const struct codec_value *value) {
    if (codec_kind_of(value) == CODEC_TENSOR && document_tensor(value)->dtype != ATTN_BOOL) {
        document_tensor(value)->rest |= LIFT_MASK;
    }
}

/* Returns the tensor of a member, or NULL if it is none or is settled. */
static struct lifted *unsettled_tensor(const struct codec_value *member) {
    if (codec_kind_of(member) != CODEC_TENSOR) {
        return NULL;
    }
    struct lifted *array = document_tensor(member);
    return is_settled(array) ? NULL : array;
}

/* Returns how many numbers of the members of an object are still to be settled. */
static size_t unsettled_members(const struct codec_value *object) {
    size_t count = 0;
    for (const struct codec_value *member = codec_at(object, 0); member != NULL;
         member = codec_next(member)) {
        const struct lifted *array = unsettled_tensor(member);
        if (array != NULL) {
            const bool both = array->rest == (LIFT_TYPE | LIFT_MASK);
            count += array->count - array->settled + (both ? array->count : 0);
        } else if (codec_kind_of(member) == CODEC_OBJECT) {
            count += unsettled_members(member);
        }
    }
    return count;
}

size_t codec_unsettled(const struct codec_document *document) {
    return unsettled_members(codec_root(document));
}

/* Refuses a number that its datatype does not have. */
static bool refuse_misfit(const struct codec_document *document, const struct codec_value *member,
                          const struct lifted *array, struct codec_error *error) {
    char rule[96];
    snprintf(rule, sizeof rule, "a number of its datatype %s%s", codec_inference_types[array->type],
             array->type == CODEC_TYPE_FP16 ? ", of which the largest is 65504" : "");
    return document_refuse_element(document, member, array->source != NULL ? array->source : array,
                                   array->misfit, rule, error);
}

/* Settles at most *most numbers of the members of an object, and takes their number from *most. */
static bool settle_members(struct codec_document *document, const struct codec_value *object,
                           size_t *most, struct codec_error *error) {
    for (const struct codec_value *member = codec_at(object, 0); member != NULL && *most > 0;
         member = codec_next(member)) {
        struct lifted *array = unsettled_tensor(member);
        if (array == NULL) {
            if (codec_kind_of(member) == CODEC_OBJECT &&
                !settle_members(document, member, most, error)) {
                return false;
            }
            continue;
        }
        *most -= settle_array(array, codec_document_account(document), *most);
        if (array->misfit != LIFT_NONE && (array->rest & LIFT_TYPE) != 0) {
            return refuse_misfit(document, member, array, error);
        }
    }
    return true;
}

bool codec_settle(struct codec_document *document, size_t most, struct codec_error *error) {
    return settle_members(document, codec_root(document), &most, error);
}
