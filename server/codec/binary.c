/* binary.c - tensors whose bytes arrive with a body. results.c has the other direction. */
#include "codec/binary.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "codec/error.h"
#include "codec/json/document.h"
#include "codec/json/number.h"
#include "codec/json/refuse.h"

enum {
    CHECKED = 256 /* numbers that one loop checks, which vectors then do at once */
};

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "binary tensors are little-endian");

/* --------------------------------------------------------------------------------------- types */

bool binary_refuse(const struct codec_document *document, const struct codec_value *value,
                   const char *name, struct codec_error *error, const char *format, ...) {
    char quoted[CODEC_QUOTE_SIZE], rule[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rule, sizeof rule, format, arguments);
    va_end(arguments);
    codec_quote(quoted, name, strlen(name));
    return codec_fail(document, value, error, "the tensor \"%s\" %s", quoted, rule);
}

static bool read_type(const struct codec_document *document, const struct codec_value *value,
                      const char *name, const char *const names[static CODEC_TYPE_COUNT],
                      enum codec_type *type, struct codec_error *error) {
    const char *text;
    char quoted[CODEC_QUOTE_SIZE];
    if (value == NULL || codec_kind_of(value) != CODEC_TEXT) {
        return binary_refuse(document, value, name, error,
                             "must have a type, which is a string such as \"%s\"",
                             names[CODEC_TYPE_FP32]);
    }
    if (!codec_as_text(document, value, &text, error)) {
        return false;
    }
    for (size_t i = 0; i < CODEC_TYPE_COUNT; i++) {
        if (strcmp(text, names[i]) == 0) {
            *type = (enum codec_type)i;
            return true;
        }
    }
    codec_quote(quoted, text, strlen(text));
    return binary_refuse(document, value, name, error,
                         "has the type \"%s\"; the types are %s, %s, %s, %s, %s, %s, %s, %s, %s, "
                         "and %s to %s and %s to %s",
                         quoted, names[CODEC_TYPE_FP32], names[CODEC_TYPE_FP64],
                         names[CODEC_TYPE_FP16], names[CODEC_TYPE_BF16], names[CODEC_TYPE_FP8_E4M3],
                         names[CODEC_TYPE_FP8_E5M2], names[CODEC_TYPE_FP8_E8M0],
                         names[CODEC_TYPE_FP4_E2M1], names[CODEC_TYPE_BOOL], names[CODEC_TYPE_INT8],
                         names[CODEC_TYPE_INT64], names[CODEC_TYPE_UINT8],
                         names[CODEC_TYPE_UINT64]);
}

/* Reads a shape, each of whose elements takes at most `most` bytes. An axis has at least `least`
 * elements; an empty one counts as one element of its tensor. */
static bool read_shape(const struct codec_document *document, const struct codec_value *shape,
                       const char *name, int64_t least, size_t most, struct codec_tensor_spec *spec,
                       struct codec_error *error) {
    int64_t axes[ATTN_MAX_RANK];
    size_t count = 0;
    struct codec_error fault;
    if (shape == NULL) {
        return binary_refuse(document, shape, name, error, "has no shape");
    }
    if (codec_kind_of(shape) != CODEC_ARRAY || codec_size(shape) > 0) {
        if (codec_kind_of(shape) == CODEC_NUMBER) {
            return binary_refuse(document, shape, name, error, "has a shape that is not an array");
        }
        if (!codec_as_integers(document, shape, least, INT64_MAX, axes, ATTN_MAX_RANK, &count,
                               &fault)) {
            return binary_refuse(document, shape, name, error, "has a wrong shape: %s",
                                 fault.message);
        }
    }
    if (count == 0 || count > ATTN_MAX_RANK) {
        return binary_refuse(document, shape, name, error, "has %zu axes; it must have 1 to %d",
                             count, (int)ATTN_MAX_RANK);
    }
    spec->rank = (int)count;
    for (size_t axis = 0; axis < count; axis++) {
        spec->shape[axis] = (size_t)axes[axis];
        if (__builtin_mul_overflow(most, axes[axis] > 0 ? spec->shape[axis] : 1, &most)) {
            return binary_refuse(document, shape, name, error,
                                 "has a shape of more bytes than a file can have");
        }
    }
    return true;
}

bool codec_as_spec(const struct codec_document *document, const struct codec_value *type,
                   const struct codec_value *shape, const char *name,
                   const char *const names[static CODEC_TYPE_COUNT], struct codec_tensor_spec *spec,
                   struct codec_error *error) {
    /* An element takes the bytes of a double at most in a document. */
    if (!read_type(document, type, name, names, &spec->type, error) ||
        !read_shape(document, shape, name, 0, sizeof(double), spec, error)) {
        return false;
    }
    const size_t count = codec_count(spec->rank, spec->shape),
                 together = codec_type_together(spec->type);
    spec->texts = spec->own_type = spec->exact = false;
    spec->bytes = codec_type_bytes(spec->type, count);
    return count % together == 0 ||
           binary_refuse(document, shape, name, error,
                         "has %zu elements; the type %s needs a multiple of %zu, which fill a byte",
                         count, names[spec->type], together);
}

bool codec_as_texts_spec(const struct codec_document *document, const struct codec_value *shape,
                         const char *name, struct codec_tensor_spec *spec,
                         struct codec_error *error) {
    if (!read_shape(document, shape, name, 1, sizeof(uint32_t), spec, error)) {
        return false;
    }
    spec->type = CODEC_TYPE_UINT8;
    spec->texts = true;
    spec->own_type = spec->exact = false;
    const size_t count = codec_count(spec->rank, spec->shape);
    return count <= CODEC_MAX_WORDS ||
           binary_refuse(document, shape, name, error, "has %zu texts; it may have at most %d",
                         count, CODEC_MAX_WORDS);
}

attn_dtype codec_spec_dtype(const struct codec_tensor_spec *spec, attn_dtype document) {
    if (spec->exact) {
        return ATTN_FLOAT64;
    }
    if (!spec->own_type) {
        return document;
    }
    return codec_type_size(spec->type) > 4 ||
                   (codec_type_size(spec->type) == 4 && !codec_type_is_float(spec->type))
               ? ATTN_FLOAT64
               : ATTN_FLOAT32;
}

/* --------------------------------------------------------------------------------- conversions */

/* The bits of a half are those of a float with a smaller exponent. The product with 2^112 corrects
 * the exponent, also of subnormal numbers; infinity and NaN get the largest exponent. */
static inline float widen_half(uint16_t half) {
    const uint32_t magnitude = (uint32_t)(half & 0x7FFF) << 13;
    union {
        uint32_t bits;
        float number;
    } wide = {.bits = magnitude};
    wide.number *= 0x1p112F;
    wide.bits |= (magnitude >= 0x0F800000 ? 0x7F800000u : 0) | (uint32_t)(half & 0x8000) << 16;
    return wide.number;
}

static inline float widen_bfloat(uint16_t bfloat) {
    const union {
        uint32_t bits;
        float number;
    } wide = {.bits = (uint32_t)bfloat << 16};
    return wide.number;
}

/* E5M2 is the upper byte of a half. */
static inline float widen_e5m2(uint8_t byte) {
    return widen_half((uint16_t)(byte << 8));
}

/* As widen_half(), with 2^120. E4M3 has no infinity, and NaN is its largest magnitude alone. */
static inline float widen_e4m3(uint8_t byte) {
    const uint32_t magnitude = byte & 0x7F;
    union {
        uint32_t bits;
        float number;
    } wide = {.bits = magnitude << 20};
    wide.number *= 0x1p120F;
    wide.bits |= (magnitude == 0x7F ? 0x7FC00000u : 0) | (uint32_t)(byte & 0x80) << 24;
    return wide.number;
}

/* A byte b is 2^(b - 127), and 255 is NaN. The float 2^-127 is subnormal. */
static inline float widen_e8m0(uint8_t byte) {
    const union {
        uint32_t bits;
        float number;
    } wide = {.bits = byte == 0xFF ? 0x7FC00000u : byte == 0 ? 0x00400000u : (uint32_t)byte << 23};
    return wide.number;
}

/* Two bits of exponent and one of the fraction, behind the sign. */
static inline float widen_e2m1(unsigned bits) {
    static const float numbers[] = {0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                    -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};
    return numbers[bits & 15];
}

/* The loops of one type, to float and to double. The bytes need not be aligned. */
#define LOOP(name, from, to, convert)                                                              \
    static void name(void *restrict out_, const unsigned char *restrict bytes, size_t count) {     \
        to *restrict out = out_;                                                                   \
        for (size_t i = 0; i < count; i++) {                                                       \
            from element;                                                                          \
            memcpy(&element, bytes + i * sizeof element, sizeof element);                          \
            out[i] = (to)convert(element);                                                         \
        }                                                                                          \
    }
#define LOOPS(name, from, convert)                                                                 \
    LOOP(name##_to_float, from, float, convert)                                                    \
    LOOP(name##_to_double, from, double, convert)

/* A byte has two numbers. `count` is even. */
#define LOOP_OF_PAIRS(name, to)                                                                    \
    static void name(void *restrict out_, const unsigned char *restrict bytes, size_t count) {     \
        to *restrict out = out_;                                                                   \
        for (size_t i = 0; i < count; i += 2) {                                                    \
            out[i] = (to)widen_e2m1(bytes[i / 2]);                                                 \
            out[i + 1] = (to)widen_e2m1(bytes[i / 2] >> 4);                                        \
        }                                                                                          \
    }

LOOPS(uint8, uint8_t, )
LOOPS(uint16, uint16_t, )
LOOPS(uint32, uint32_t, )
LOOPS(uint64, uint64_t, )
LOOPS(int8, int8_t, )
LOOPS(int16, int16_t, )
LOOPS(int32, int32_t, )
LOOPS(int64, int64_t, )
LOOP_OF_PAIRS(e2m1_to_float, float)
LOOP_OF_PAIRS(e2m1_to_double, double)
LOOPS(e8m0, uint8_t, widen_e8m0)
LOOPS(e4m3, uint8_t, widen_e4m3)
LOOPS(e5m2, uint8_t, widen_e5m2)
LOOPS(half, uint16_t, widen_half)
LOOPS(bfloat, uint16_t, widen_bfloat)
LOOPS(float32, float, )
LOOPS(float64, double, )

typedef void converter(void *restrict out, const unsigned char *restrict bytes, size_t count);

#define PAIR(name)                                                                                 \
    { name##_to_float, name##_to_double }
static converter *const converters[CODEC_TYPE_COUNT][2] = {
    [CODEC_TYPE_UINT8] = PAIR(uint8),   [CODEC_TYPE_UINT16] = PAIR(uint16),
    [CODEC_TYPE_UINT32] = PAIR(uint32), [CODEC_TYPE_UINT64] = PAIR(uint64),
    [CODEC_TYPE_INT8] = PAIR(int8),     [CODEC_TYPE_INT16] = PAIR(int16),
    [CODEC_TYPE_INT32] = PAIR(int32),   [CODEC_TYPE_INT64] = PAIR(int64),
    [CODEC_TYPE_FP4_E2M1] = PAIR(e2m1), [CODEC_TYPE_FP8_E8M0] = PAIR(e8m0),
    [CODEC_TYPE_FP8_E4M3] = PAIR(e4m3), [CODEC_TYPE_FP8_E5M2] = PAIR(e5m2),
    [CODEC_TYPE_FP16] = PAIR(half),     [CODEC_TYPE_BF16] = PAIR(bfloat),
    [CODEC_TYPE_FP32] = PAIR(float32),  [CODEC_TYPE_FP64] = PAIR(float64),
};

/* Each returns whether all numbers are finite: not all bits of an exponent are set. The loop has no
 * exit, so the compiler makes vectors of it. */
#define ARE_FINITE(name, real, word, exponent)                                                     \
    static bool name(const real *numbers, size_t count) {                                          \
        word bad = 0;                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            word bits;                                                                             \
            memcpy(&bits, &numbers[i], sizeof bits);                                               \
            bad |= (bits & (exponent)) == (exponent);                                              \
        }                                                                                          \
        return bad == 0;                                                                           \
    }
ARE_FINITE(floats_are_finite, float, uint32_t, 0x7F800000)
ARE_FINITE(doubles_are_finite, double, uint64_t, 0x7FF0000000000000)

static bool are_finite(const void *numbers, size_t count, bool wide) {
    return wide ? doubles_are_finite(numbers, count) : floats_are_finite(numbers, count);
}

bool codec_widen(enum codec_type type, const void *bytes, size_t count, attn_dtype dtype,
                 void *out) {
    const bool wide = dtype == ATTN_FLOAT64;
    assert(codec_type_is_float(type));
    converters[type][wide](out, bytes, count);
    return are_finite(out, count, wide);
}

size_t codec_find_special(const struct codec_value *value, size_t first, size_t end) {
    const struct codec_tensor *tensor = document_tensor(value);
    const bool wide = tensor->dtype == ATTN_FLOAT64;
    const size_t size = attn_dtype_size(tensor->dtype);
    while (first < end) {
        const size_t part = end - first < CHECKED ? end - first : CHECKED;
        if (!are_finite((const char *)tensor->data + first * size, part, wide)) {
            break;
        }
        first += part;
    }
    while (first < end && isfinite(codec_tensor_number(tensor, first))) {
        first++;
    }
    return first;
}

void codec_clear_special(const struct codec_value *value, size_t first, size_t end) {
    struct codec_tensor *tensor = document_tensor(value);
    for (size_t i = first; i < end; i++) {
        if (!isfinite(codec_tensor_number(tensor, i)) && tensor->dtype == ATTN_FLOAT64) {
            ((double *)tensor->data)[i] = 0;
        } else if (!isfinite(codec_tensor_number(tensor, i))) {
            ((float *)tensor->data)[i] = 0;
        }
    }
}

/* ------------------------------------------------------------------------------------ stream */

bool codec_stream_add(struct codec_stream *stream, const struct codec_value *value,
                      const struct codec_tensor_spec *spec, struct codec_error *error) {
    struct codec_document *document = stream->document;
    const attn_dtype dtype = spec->type == CODEC_TYPE_BOOL || spec->texts
                                 ? ATTN_BOOL
                                 : codec_spec_dtype(spec, codec_document_dtype(document));
    const size_t elements = spec->texts ? spec->bytes : codec_count(spec->rank, spec->shape);
    struct codec_tensor *tensor = document_new_tensor(document, value, dtype, spec->rank, NULL);
    assert(stream->count < CODEC_MAX_TENSORS);
    if (tensor == NULL) {
        return codec_no_memory(error);
    }
    tensor->own_type = spec->own_type || spec->exact;
    tensor->type = (int)spec->type;
    tensor->arrived = true;
    tensor->capacity = 0;
    tensor->data = tensor; /* of a tensor without elements, no byte of which arrives */
    tensor->texts = spec->texts ? codec_count(spec->rank, spec->shape) : 0;
    memcpy(tensor->shape, spec->shape, sizeof tensor->shape);
    stream->list[stream->count++] =
        (struct codec_stream_tensor){value, tensor, spec->type, elements};
    return true;
}

/* Notes the first number that is not finite, from element `first` on. `bytes` are the elements as
 * they arrived. */
static void note_special(struct codec_tensor *tensor, enum codec_type type,
                         const unsigned char *bytes, size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++) {
        const double number = codec_tensor_number(tensor, i);
        if (isfinite(number)) {
            continue;
        }
        double wide = number;
        if (type == CODEC_TYPE_FP64) { /* a double may be out of the range of float32 */
            memcpy(&wide, bytes + (i - first) * sizeof wide, sizeof wide);
        }
        if (isinf(wide) && wide < 0) {
            tensor->infinite |= tensor->first_null == TENSOR_NONE;
            tensor->first_null = tensor->first_null == TENSOR_NONE ? i : tensor->first_null;
        } else if (tensor->first_range == TENSOR_NONE) {
            tensor->first_range = i;
            if (isfinite(wide)) {
                char text[NUMBER_SIZE + 1];
                strcpy(tensor->range_text, document_number_text(wide, false, text));
            } else {
                strcpy(tensor->range_text, isnan(wide) ? "NaN" : "Infinity");
            }
        }
    }
}

/* Refuses an element of a BOOL that is neither 0 nor 1. */
static bool refuse_bool(const struct codec_stream *stream,
                        const struct codec_stream_tensor *expected, struct codec_tensor *tensor,
                        size_t element, struct codec_error *error) {
    const unsigned byte = ((const unsigned char *)tensor->data)[element];
    tensor->count = expected->elements;
    return document_refuse(stream->document, expected->value, element, error,
                           "is the byte %u; a BOOL is 0 or 1", byte);
}

/* Stores `count` whole elements, for which there must be room. */
static bool store(const struct codec_stream *stream, const struct codec_stream_tensor *expected,
                  struct codec_tensor *tensor, const unsigned char *bytes, size_t count,
                  struct codec_error *error) {
    const size_t first = tensor->count;
    const bool wide = tensor->dtype == ATTN_FLOAT64;
    void *out = (char *)tensor->data + first * attn_dtype_size(tensor->dtype);
    if (tensor->dtype == ATTN_BOOL) {
        unsigned char all = 0;
        memcpy(out, bytes, count);
        for (size_t i = 0; i < count && tensor->texts == 0; i++) {
            all |= bytes[i];
        }
        for (size_t i = 0; all > 1 && i < count; i++) {
            if (bytes[i] > 1) {
                return refuse_bool(stream, expected, tensor, first + i, error);
            }
        }
        tensor->count += count;
        return true;
    }
    if (expected->type == (wide ? CODEC_TYPE_FP64 : CODEC_TYPE_FP32)) {
        memcpy(out, bytes, count * codec_type_size(expected->type));
    } else {
        converters[expected->type][wide](out, bytes, count);
    }
    tensor->count += count;
    if (!are_finite(out, count, wide)) {
        note_special(tensor, expected->type, bytes, first, count);
    }
    return true;
}

/* Takes bytes of the current tensor, and none beyond its end. */
static bool take(struct codec_stream *stream, const struct codec_stream_tensor *expected,
                 struct codec_tensor *tensor, const unsigned char *bytes, size_t size,
                 struct codec_error *error) {
    const size_t width = codec_type_size(expected->type),
                 together = codec_type_together(expected->type);
    size_t needed = tensor->count + (size / width + 1) * together;
    needed = needed < expected->elements ? needed : expected->elements;
    if (!codec_tensor_room_for(tensor, codec_document_account(stream->document), needed,
                               expected->elements)) {
        document_point(stream->document, expected->value, error);
        error->status = CODEC_NO_MEMORY;
        return false;
    }
    if (stream->cut_size > 0) {
        const size_t lacks = width - stream->cut_size, part = size < lacks ? size : lacks;
        memcpy(stream->cut + stream->cut_size, bytes, part);
        stream->cut_size += part;
        bytes += part;
        size -= part;
        if (stream->cut_size < width) {
            return true;
        }
        stream->cut_size = 0;
        if (!store(stream, expected, tensor, stream->cut, together, error)) {
            return false;
        }
    }
    stream->cut_size = size % width;
    memcpy(stream->cut, bytes + size - stream->cut_size, stream->cut_size);
    return store(stream, expected, tensor, bytes, size / width * together, error);
}

/* Returns the tensor to which the next bytes belong: tensors without elements have none. */
static size_t next_tensor(const struct codec_stream *stream) {
    size_t next = stream->next;
    while (next < stream->count && stream->list[next].elements == 0) {
        next++;
    }
    return next;
}

bool codec_stream_feed(struct codec_stream *stream, const void *bytes_, size_t size,
                       struct codec_error *error) {
    const unsigned char *bytes = bytes_;
    while (size > 0) {
        stream->next = next_tensor(stream);
        if (stream->next == stream->count) {
            codec_error_set(error, CODEC_SYNTAX,
                            "the body has bytes after the last of its tensors");
            return false;
        }
        const struct codec_stream_tensor *expected = &stream->list[stream->next];
        struct codec_tensor *tensor = expected->tensor;
        const size_t lacks =
            codec_type_bytes(expected->type, expected->elements - tensor->count) - stream->cut_size;
        const size_t part = size < lacks ? size : lacks;
        if (!take(stream, expected, tensor, bytes, part, error)) {
            return false;
        }
        stream->next += part == lacks;
        bytes += part;
        size -= part;
    }
    return true;
}

bool codec_stream_finish(const struct codec_stream *stream, struct codec_error *error) {
    const size_t next = next_tensor(stream);
    if (next == stream->count) {
        return true;
    }
    const struct codec_stream_tensor *expected = &stream->list[next];
    const struct codec_tensor *tensor = expected->tensor;
    const size_t whole = codec_type_bytes(expected->type, expected->elements),
                 there = codec_type_bytes(expected->type, tensor->count) + stream->cut_size;
    char quoted[CODEC_QUOTE_SIZE];
    const char *name = codec_name(expected->value);
    codec_quote(quoted, name, strlen(name));
    codec_error_set(error, CODEC_SYNTAX,
                    "the body ends inside the tensor \"%s\": %zu of its %zu bytes are there",
                    quoted, there, whole);
    return false;
}
