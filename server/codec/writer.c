/*
 * writer.c - a flat list of items as compact JSON. Knows nothing of readers and documents.
 */
#include "codec/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/number.h"

enum {
    MAX_OPEN = 64,          /* arrays and objects open at once */
    STRIDE = 256,           /* numbers written between two looks at the buffer's room */
    DOUBLE_UNTIL = 1 << 20, /* buffers double below this size, then grow by a quarter */
};

/* Makes room for `more` bytes. */
static bool reserve(struct codec_buffer *buffer, size_t more) {
    if (more <= buffer->capacity - buffer->size) {
        return true;
    }
    if (more > SIZE_MAX / 2 - buffer->size) {
        return false;
    }
    size_t step = buffer->capacity < DOUBLE_UNTIL ? buffer->capacity : buffer->capacity / 4;
    size_t capacity = buffer->capacity + step;
    if (capacity < buffer->size + more) {
        capacity = buffer->size + more;
    }
    char *data = realloc(buffer->data, capacity);
    if (data == NULL) {
        return false;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

static bool put(struct codec_buffer *buffer, const char *bytes, size_t size) {
    if (!reserve(buffer, size)) {
        return false;
    }
    memcpy(buffer->data + buffer->size, bytes, size);
    buffer->size += size;
    return true;
}

static char *put_word(char *out, const char *word) {
    size_t size = strlen(word);
    memcpy(out, word, size);
    return out + size;
}

/* Needs NUMBER_SIZE bytes at `out`, as the next. */
static char *put_double(char *out, double number, int digits) {
    if (!isfinite(number)) {
        return put_word(out, "null");
    }
    return out + (digits > 0 ? number_write_rounded(out, number, digits)
                             : number_write_double(out, number));
}

static char *put_float(char *out, float number, int digits) {
    if (!isfinite(number)) {
        return put_word(out, "null");
    }
    return out + (digits > 0 ? number_write_rounded(out, (double)number, digits)
                             : number_write_float(out, number));
}

/* ---------------------------------------------------------------------------------------- text */

static bool put_text(struct codec_buffer *buffer, const char *text) {
    static const char hex[] = "0123456789abcdef";
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";

    if (!put(buffer, "\"", 1)) {
        return false;
    }
    while (*text != '\0') {
        size_t run = 0;
        while ((unsigned char)text[run] >= 0x20 && text[run] != '"' && text[run] != '\\') {
            run++;
        }
        if (!put(buffer, text, run)) {
            return false;
        }
        text += run;
        if (*text == '\0') {
            break;
        }
        const char *known = strchr(plain, *text);
        unsigned char byte = (unsigned char)*text++;
        char escape[6] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};
        if (known != NULL) {
            escape[1] = letters[known - plain];
        }
        if (!put(buffer, escape, known != NULL ? 2 : 6)) {
            return false;
        }
    }
    return put(buffer, "\"", 1);
}

/* ------------------------------------------------------------------------------------- tensors */

/* Elements [first, first + count), with commas after each. */
static char *put_elements(char *out, const attn_tensor *tensor, size_t first, size_t count,
                          int digits) {
    size_t end = first + count;
    switch (tensor->dtype) {
    case ATTN_FLOAT32:
        for (size_t i = first; i < end; i++, *out++ = ',') {
            out = put_float(out, ((const float *)tensor->data)[i], digits);
        }
        break;
    case ATTN_FLOAT64:
        for (size_t i = first; i < end; i++, *out++ = ',') {
            out = put_double(out, ((const double *)tensor->data)[i], digits);
        }
        break;
    case ATTN_INT64:
        for (size_t i = first; i < end; i++, *out++ = ',') {
            out += number_write_int64(out, ((const int64_t *)tensor->data)[i]);
        }
        break;
    case ATTN_BOOL:
        for (size_t i = first; i < end; i++, *out++ = ',') {
            out = put_word(out, ((const unsigned char *)tensor->data)[i] ? "true" : "false");
        }
        break;
    }
    return out;
}

/* The elements of one innermost row, without brackets. */
static bool put_row(struct codec_buffer *buffer, const attn_tensor *tensor, size_t first,
                    size_t count, int digits) {
    for (size_t done = 0; done < count;) {
        size_t part = count - done < STRIDE ? count - done : STRIDE;
        if (!reserve(buffer, part * (NUMBER_SIZE + 1))) {
            return false;
        }
        char *out = put_elements(buffer->data + buffer->size, tensor, first + done, part, digits);
        buffer->size = (size_t)(out - buffer->data);
        done += part;
    }
    buffer->size -= count > 0; /* the last comma */
    return true;
}

/* Characters of one element, at most: a sign, the digits, and six zeros after them, which is the
 * most that is written out, or a point and an exponent, which are no longer. */
static size_t element_width(attn_dtype dtype, int digits) {
    switch (dtype) {
    case ATTN_FLOAT32:
        return digits > 0 ? (size_t)digits + 7 : 1 + 9 + 6;
    case ATTN_FLOAT64:
        return digits > 0 ? (size_t)digits + 7 : 1 + 17 + 6;
    case ATTN_INT64:
        return 1 + 19;
    case ATTN_BOOL:
        return 5;
    }
    return NUMBER_SIZE;
}

size_t codec_text_bytes(const attn_tensor *tensor, int digits) {
    size_t arrays = 1, total = 0, part; /* arrays of this axis */
    for (int axis = 0; axis < tensor->rank; axis++) {
        if (__builtin_mul_overflow(arrays, 3, &part) || /* two brackets and a comma for each */
            __builtin_add_overflow(total, part, &total) ||
            __builtin_mul_overflow(arrays, tensor->shape[axis], &arrays)) {
            return SIZE_MAX;
        }
    }
    if (__builtin_mul_overflow(arrays, element_width(tensor->dtype, digits) + 1, &part) ||
        __builtin_add_overflow(total, part, &total)) {
        return SIZE_MAX;
    }
    return total;
}

/* Room for all of a tensor at once, so that large answers are not copied while they grow, and for
 * what the last put_row() wants to have beyond. */
static bool reserve_tensor(struct codec_buffer *buffer, const attn_tensor *tensor, size_t count,
                           int digits) {
    size_t bytes = codec_text_bytes(tensor, digits);
    size_t beyond = (count < STRIDE ? count : STRIDE) * (NUMBER_SIZE + 1);
    return bytes <= SIZE_MAX - beyond && reserve(buffer, bytes + beyond);
}

/* Nested arrays: an odometer over all axes but the last opens and closes brackets as it turns. */
static bool put_tensor(struct codec_buffer *buffer, const attn_tensor *tensor, int digits) {
    size_t index[ATTN_MAX_RANK] = {0};
    int last = tensor->rank - 1;
    size_t count;

    if (!attn_tensor_count(tensor, &count) || !reserve_tensor(buffer, tensor, count, digits)) {
        return false;
    }
    if (tensor->rank == 0) {
        return put_row(buffer, tensor, 0, 1, digits);
    }
    for (int axis = 0; count == 0 && axis < last; axis++) {
        if (tensor->shape[axis] == 0) { /* nothing is nested in an empty array */
            last = axis;
        }
    }

    size_t row = tensor->shape[last];
    int axis = 0; /* the outermost whose bracket is to be opened */
    for (size_t first = 0;; first += row) {
        if (!put(buffer, "[[[[[[[[", (size_t)(last - axis + 1)) ||
            !put_row(buffer, tensor, first, row, digits)) {
            return false;
        }
        axis = last;
        while (axis > 0 && ++index[axis - 1] == tensor->shape[axis - 1]) {
            index[--axis] = 0;
        }
        if (!put(buffer, "]]]]]]]]", (size_t)(last - axis + 1))) {
            return false;
        }
        if (axis == 0) {
            return true;
        }
        if (!put(buffer, ",", 1)) {
            return false;
        }
    }
}

/* --------------------------------------------------------------------------------------- items */

static bool put_value(struct codec_buffer *buffer, const struct codec_item *item, int digits) {
    switch (item->op) {
    case CODEC_OP_OBJECT:
        return put(buffer, "{", 1);
    case CODEC_OP_ARRAY:
        return put(buffer, "[", 1);
    case CODEC_OP_TENSOR:
        return put_tensor(buffer, &item->tensor, digits);
    case CODEC_OP_NUMBER:
        if (!reserve(buffer, NUMBER_SIZE)) {
            return false;
        }
        char *end = put_double(buffer->data + buffer->size, item->number, digits);
        buffer->size = (size_t)(end - buffer->data);
        return true;
    case CODEC_OP_TEXT:
        return put_text(buffer, item->text);
    case CODEC_OP_BOOL:
        return item->number != 0 ? put(buffer, "true", 4) : put(buffer, "false", 5);
    default:
        return put(buffer, "null", 4);
    }
}

bool codec_write(struct codec_buffer *buffer, const struct codec_item *items, size_t count,
                 int digits) {
    bool is_object[MAX_OPEN];
    size_t open = 0;
    bool first = true; /* in the innermost array or object, or of all */

    for (size_t i = 0; i < count; i++) {
        const struct codec_item *item = &items[i];
        if (item->op == CODEC_OP_END) {
            if (open == 0 || !put(buffer, is_object[--open] ? "}" : "]", 1)) {
                return false;
            }
            first = false;
            continue;
        }
        if (!first && !put(buffer, ",", 1)) {
            return false;
        }
        if (item->key != NULL && (!put_text(buffer, item->key) || !put(buffer, ":", 1))) {
            return false;
        }
        if (!put_value(buffer, item, digits)) {
            return false;
        }
        first = item->op == CODEC_OP_OBJECT || item->op == CODEC_OP_ARRAY;
        if (first) {
            if (open == MAX_OPEN) {
                return false;
            }
            is_object[open++] = item->op == CODEC_OP_OBJECT;
        }
    }
    return put(buffer, "\n", 1);
}
