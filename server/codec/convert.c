/* convert.c - what must be done to every number of a tensor after it has arrived: the numbers of a
 * mask become bytes, numbers in the JSON of a datatype are checked and rounded, the float64 numbers
 * of JSON become float32, and scales multiply their blocks. A tensor may be as long as a body, so
 * all of it can be done in chunks. */
#include "codec/convert.h"

#include <assert.h>
#include <float.h>
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

/* Converts `count` numbers of a mask from `first` on. The bytes replace the numbers in place: byte
 * i is written after number i was read, and lies before number i + 1. */
static void convert_bytes(struct codec_tensor *tensor, size_t first, size_t count) {
    unsigned char block[BLOCK];
    unsigned ones = tensor->ones;
    for (size_t done = 0, part; done < count; done += part) {
        const size_t at = first + done;
        part = count - done < BLOCK ? count - done : BLOCK;
        const bool good =
            tensor->dtype == ATTN_FLOAT64
                ? bytes_of_doubles((const double *)tensor->data + at, part, block, &ones)
                : bytes_of_floats((const float *)tensor->data + at, part, block, &ones);
        for (size_t i = at; !good && tensor->first_wrong == TENSOR_NONE; i++) {
            const double number = codec_tensor_number(tensor, i);
            tensor->first_wrong = number != 0 && number != 1 ? i : TENSOR_NONE;
        }
        tensor->ones = ones != 0;
        if (!good) {
            return;
        }
        memcpy((unsigned char *)tensor->data + at, block, part);
    }
}

/* ---------------------------------------------------------------------------------------- types */

/* Returns the first of `count` numbers that is no whole number in [least, most], or `count`. The
 * numbers were rounded when they were read, and so is the largest one of a type: 2^63 stands for
 * 2^63 - 1. */
static size_t find_wrong(const double *numbers, size_t count, enum codec_type type) {
    const bool is_signed = type >= CODEC_TYPE_INT8;
    const int bits = type == CODEC_TYPE_BOOL ? 1 : 8 * (int)codec_type_size(type) - is_signed;
    const double least = is_signed ? -ldexp(1, bits) : 0, most = ldexp(1, bits) - 1;
    for (size_t i = 0; i < count; i++) {
        if (!(numbers[i] >= least && numbers[i] <= most && floor(numbers[i]) == numbers[i])) {
            return i;
        }
    }
    return count;
}

/* Moves the next of `count` doubles whose texts lie beside them by their last bit to the side of
 * the text. Then they are rounded as the text is. */
static void move_to_sides(struct codec_tensor *tensor, size_t first, size_t count) {
    struct codec_tensor_sides *sides = &tensor->sides;
    for (; sides->next < sides->count && sides->list[sides->next] / 2 < first + count;
         sides->next++) {
        double *number = (double *)tensor->data + sides->list[sides->next] / 2;
        uint64_t bits;
        memcpy(&bits, number, sizeof bits);
        bits += sides->list[sides->next] % 2 != 0 ? 1 : UINT64_MAX;
        memcpy(number, &bits, sizeof bits);
    }
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

/* Converts `count` numbers of a datatype from `first` on. */
static void convert_type(struct codec_tensor *tensor, size_t first, size_t count) {
    double *numbers = (double *)tensor->data + first;
    const enum codec_type type = (enum codec_type)tensor->type;
    size_t fit = count;
    assert(tensor->dtype == ATTN_FLOAT64);
    if (type == CODEC_TYPE_FP16 || type == CODEC_TYPE_FP32) {
        move_to_sides(tensor, first, count);
        fit = (type == CODEC_TYPE_FP16 ? round_to_halves : round_to_floats)(numbers, count);
    } else if (!codec_type_is_float(type)) {
        fit = find_wrong(numbers, count, type);
    }
    if (fit < count) {
        tensor->first_wrong = first + fit;
    }
}

/* Notes the first of `count` numbers that is out of the range of float32. The accessors refuse
 * it. */
static void note_range(struct codec_tensor *tensor, const double *numbers, size_t first,
                       size_t count) {
    for (size_t i = 0; i < count && first + i < tensor->first_range; i++) {
        if (isinf((float)numbers[i]) && isfinite(numbers[i])) {
            char text[NUMBER_SIZE + 1];
            tensor->first_range = first + i;
            snprintf(tensor->range_text, sizeof tensor->range_text, "%s",
                     document_number_text(numbers[i], false, text));
        }
    }
}

/* Makes float32 of `count` numbers from `first` on, in place: a block is written after it was read,
 * and lies before the next one. */
static void convert_floats(struct codec_tensor *tensor, size_t first, size_t count) {
    float block[BLOCK];
    move_to_sides(tensor, first, count);
    for (size_t done = 0, part; done < count; done += part) {
        const double *numbers = (const double *)tensor->data + first + done;
        unsigned infinite = 0;
        part = count - done < BLOCK ? count - done : BLOCK;
        for (size_t i = 0; i < part; i++) {
            block[i] = (float)numbers[i];
            infinite |= fabsf(block[i]) > FLT_MAX;
        }
        if (infinite != 0) {
            note_range(tensor, numbers, first + done, part);
        }
        memcpy((float *)tensor->data + first + done, block, part * sizeof *block);
    }
}

/* --------------------------------------------------------------------------------------- scales */

/* Each multiplies the numbers [first, end) of a row that has blocks of `block` numbers. */
#define SCALE_ROW(name, real)                                                                      \
    static void name(void *row, const void *scales, size_t block, size_t first, size_t end) {      \
        real *numbers = row;                                                                       \
        const real *scale_of = (const real *)scales + first / block;                               \
        size_t whole = first / block * block;                                                      \
        for (size_t at = first, stop; at < end; at = stop) {                                       \
            const real scale = *scale_of++;                                                        \
            whole += block;                                                                        \
            stop = whole < end ? whole : end;                                                      \
            for (size_t i = at; i < stop; i++) {                                                   \
                numbers[i] *= scale;                                                               \
            }                                                                                      \
        }                                                                                          \
    }
SCALE_ROW(scale_floats, float)
SCALE_ROW(scale_doubles, double)

void codec_scale(const struct codec_value *value, const attn_tensor *scale, size_t first,
                 size_t end) {
    struct codec_tensor *t = document_tensor(value);
    const size_t width = attn_dtype_size(t->dtype), columns = t->shape[t->rank - 1],
                 blocks = scale->shape[t->rank - 1];
    for (size_t at = first, stop; at < end; at = stop) {
        const size_t row = at / columns, begin = row * columns;
        size_t rest = row, place = 0, stride = blocks;
        for (int axis = t->rank - 2; axis >= 0; axis--) {
            const size_t size = t->shape[axis], parts = scale->shape[axis];
            place += rest % size / (size / parts) * stride;
            rest /= size;
            stride *= parts;
        }
        stop = begin + columns < end ? begin + columns : end;
        (t->dtype == ATTN_FLOAT64 ? scale_doubles : scale_floats)(
            (char *)t->data + begin * width, (const char *)scale->data + place * width,
            columns / blocks, at - begin, stop - begin);
    }
}

/* ---------------------------------------------------------------------------------- conversions */

/* Ends the first pending conversion, which all numbers have had. */
static void end_conversion(struct codec_tensor *tensor, struct account *account) {
    const unsigned conversion = tensor->pending & -tensor->pending;
    tensor->pending -= conversion;
    tensor->converted = 0;
    if (conversion == CONVERT_TYPE) {
        return;
    }
    tensor->zeros =
        conversion == CONVERT_MASK && tensor->count > 0 && !tensor->ones && !tensor->boolean;
    tensor->dtype = conversion == CONVERT_MASK ? ATTN_BOOL : ATTN_FLOAT32;
    codec_tensor_drop_sides(tensor, account);
    codec_tensor_trim(tensor, account);
}

/* Converts at most `most` numbers of a tensor. Returns how many. */
static size_t convert_tensor(struct codec_tensor *tensor, struct account *account, size_t most) {
    size_t done = 0;
    while (tensor->pending != 0 && tensor->first_wrong == TENSOR_NONE && done < most) {
        const size_t left = tensor->count - tensor->converted;
        const size_t part = left < most - done ? left : most - done;
        ((tensor->pending & CONVERT_TYPE) != 0 ? convert_type
         : (tensor->pending & CONVERT_NARROW) != 0
             ? convert_floats
             : convert_bytes)(tensor, tensor->converted, part);
        tensor->converted += part;
        done += part;
        if (part == left && tensor->first_wrong == TENSOR_NONE) {
            end_conversion(tensor, account);
        }
    }
    return done;
}

void convert_expect_type(struct codec_tensor *tensor, enum codec_type type, attn_dtype dtype) {
    const bool is_float = codec_type_is_float(type);
    tensor->type = (int)type;
    tensor->boolean = type == CODEC_TYPE_BOOL;
    if (tensor->dtype == ATTN_FLOAT64) {
        tensor->pending |= !is_float || type < CODEC_TYPE_FP64 ? CONVERT_TYPE : 0;
        tensor->pending |= dtype == ATTN_FLOAT32 && tensor->own_type ? CONVERT_NARROW : 0;
    }
}

void convert_narrow(const struct codec_document *document, struct codec_tensor *tensor) {
    tensor->pending |= CONVERT_NARROW;
    convert_tensor(tensor, codec_document_account(document), SIZE_MAX);
}

void convert_mask(struct codec_document *document, struct codec_tensor *tensor) {
    if (tensor->dtype != ATTN_BOOL) {
        tensor->pending |= CONVERT_MASK;
        convert_tensor(tensor, codec_document_account(document), SIZE_MAX);
    }
}

void codec_expect_mask(const struct codec_value *value) {
    if (codec_kind_of(value) == CODEC_TENSOR && document_tensor(value)->dtype != ATTN_BOOL) {
        document_tensor(value)->pending |= CONVERT_MASK;
    }
}

void codec_expect_reals(const struct codec_document *document, const struct codec_value *value) {
    if (codec_kind_of(value) == CODEC_TENSOR && codec_document_dtype(document) == ATTN_FLOAT32 &&
        document_tensor(value)->dtype == ATTN_FLOAT64 && !document_tensor(value)->own_type) {
        document_tensor(value)->pending |= CONVERT_NARROW;
    }
}

/* Returns the next tensor after this one that has numbers to be converted, or NULL. */
static struct codec_tensor *next_unconverted(const struct codec_document *document,
                                             const struct codec_tensor *after) {
    struct codec_tensor *tensor = document_next_tensor(document, after);
    while (tensor != NULL && (tensor->pending == 0 || tensor->first_wrong != TENSOR_NONE)) {
        tensor = document_next_tensor(document, tensor);
    }
    return tensor;
}

size_t codec_unconverted(const struct codec_document *document) {
    size_t count = 0;
    for (const struct codec_tensor *tensor = next_unconverted(document, NULL); tensor != NULL;
         tensor = next_unconverted(document, tensor)) {
        count += (size_t)__builtin_popcount(tensor->pending) * tensor->count - tensor->converted;
    }
    return count;
}

/* Refuses a number that its datatype does not have. */
static bool refuse_wrong(const struct codec_document *document, const struct codec_tensor *tensor,
                         struct codec_error *error) {
    char rule[96];
    snprintf(rule, sizeof rule, "a number of its datatype %s%s",
             codec_inference_types[tensor->type],
             tensor->type == CODEC_TYPE_FP16 ? ", of which the largest is 65504" : "");
    return document_refuse_element(document, tensor->value, tensor, tensor->first_wrong, rule,
                                   error);
}

bool codec_convert(struct codec_document *document, size_t most, struct codec_error *error) {
    for (struct codec_tensor *tensor = next_unconverted(document, NULL); tensor != NULL && most > 0;
         tensor = next_unconverted(document, tensor)) {
        most -= convert_tensor(tensor, codec_document_account(document), most);
        if (tensor->first_wrong != TENSOR_NONE && (tensor->pending & CONVERT_TYPE) != 0) {
            return refuse_wrong(document, tensor, error);
        }
    }
    return true;
}
