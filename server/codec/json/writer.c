/*
 * writer.c - a flat list of items as compact JSON, all at once or piece by piece. Knows nothing of
 * readers and documents.
 */
#include "codec/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/json/number.h"

enum {
    MAX_OPEN = 64,      /* arrays and objects open at once */
    STRIDE = 256,       /* numbers written between two looks at the buffer's room */
    TEXT_STRIDE = 1024, /* bytes of a text, likewise */
    FIRST_BYTES = 512,  /* of a buffer: most of a small answer */
};

/* Makes room for `more` bytes. */
static bool reserve(struct codec_buffer *buffer, size_t more) {
    if (more <= buffer->capacity - buffer->size) {
        return true;
    }
    if (more > SIZE_MAX / 2 - buffer->size) {
        return false;
    }
    const size_t size = buffer->size + more, needed = size > FIRST_BYTES ? size : FIRST_BYTES;
    char *data = account_grow(NULL, buffer->data, &buffer->capacity, needed, 1);
    if (data == NULL) {
        return false;
    }
    buffer->data = data;
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

/* Appends up to TEXT_STRIDE bytes of a text, escaped, without quotes. Returns how many were taken,
 * 0 at the end of the text; SIZE_MAX if out of memory. */
static size_t put_some_text(struct codec_buffer *buffer, const char *text) {
    static const char hex[] = "0123456789abcdef";
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const size_t size = strnlen(text, TEXT_STRIDE);
    if (!reserve(buffer, 6 * size)) { /* an escape has at most six characters */
        return SIZE_MAX;
    }
    char *out = buffer->data + buffer->size;
    for (size_t i = 0; i < size; i++) {
        const unsigned char byte = (unsigned char)text[i];
        if (byte >= 0x20 && byte != '"' && byte != '\\') {
            *out++ = (char)byte;
            continue;
        }
        const char *known = strchr(plain, byte);
        *out++ = '\\';
        if (known != NULL) {
            *out++ = letters[known - plain];
        } else {
            const char escape[] = {'u', '0', '0', hex[byte >> 4], hex[byte & 15]};
            memcpy(out, escape, sizeof escape);
            out += sizeof escape;
        }
    }
    buffer->size = (size_t)(out - buffer->data);
    return size;
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

static size_t add_bytes(size_t a, size_t b) {
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

/* The lists of an item. */
static size_t list_bytes(const struct codec_item *item, int digits, size_t most) {
    size_t bytes = 4;
    for (size_t i = 0; i < item->count && bytes <= most; i++) {
        if (item->op == CODEC_OP_PARTS) {
            const attn_tensor part = attn_as_tensor(&item->parts[i]);
            bytes = add_bytes(bytes, codec_text_bytes(&part, digits));
            bytes = add_bytes(bytes, 4);
        } else {
            bytes = add_bytes(bytes, 6 * strlen(item->texts[i]) + 4 + NUMBER_SIZE);
        }
    }
    return bytes;
}

size_t codec_items_bytes(const struct codec_item *items, size_t count, int digits, size_t most) {
    size_t bytes = 1;
    for (size_t i = 0; i < count && bytes <= most; i++) {
        const struct codec_item *item = &items[i];
        const size_t key = item->key != NULL ? strlen(item->key) : 0;
        const size_t text = item->op == CODEC_OP_TEXT ? strlen(item->text) : 0;
        bytes = add_bytes(bytes, 6 * key + 4 + 6 * text + 2 + NUMBER_SIZE);
        if (item->op == CODEC_OP_TENSOR) {
            bytes = add_bytes(bytes, codec_text_bytes(&item->tensor, digits));
        }
        bytes = add_bytes(bytes, list_bytes(item, digits, most));
    }
    return bytes;
}

/* -------------------------------------------------------------------------------------- pieces */

struct codec_writer {
    const struct codec_item *items;
    size_t count, next; /* items; those that are begun */
    int digits;
    bool ended, failed;
    bool first; /* in the innermost array or object, or of all */
    size_t open;
    bool is_object[MAX_OPEN];

    /* The tensor that is being written: an odometer over all axes but the last opens and closes
     * brackets as it turns. */
    const attn_tensor *tensor;
    size_t index[ATTN_MAX_RANK];
    int last, axis;         /* of the rows; the outermost whose bracket is to be opened */
    size_t row, in_row, at; /* elements: of a row, written of this one, of all */

    /* The text that is being written, NULL if none is, and what follows it: ':' after a key. */
    const char *text;
    char after_text;

    /* The item with a list that is being written, NULL if none is. */
    const struct codec_item *list;
    size_t list_next;      /* entry: part + count * batch item, or text */
    bool list_named;       /* the key of this entry is written, its number is not */
    attn_tensor list_part; /* the matrix that is being written, or the number */

    struct codec_buffer piece; /* for codec_writer_read */
    size_t taken;              /* of it */
};

static bool begin_tensor(struct codec_writer *w, const attn_tensor *tensor) {
    size_t count;
    if (!attn_tensor_count(tensor, &count)) {
        return false;
    }
    w->tensor = tensor;
    memset(w->index, 0, sizeof w->index);
    w->last = tensor->rank - 1;
    for (int axis = 0; count == 0 && axis < w->last; axis++) {
        if (tensor->shape[axis] == 0) { /* nothing is nested in an empty array */
            w->last = axis;
        }
    }
    w->row = tensor->rank == 0 ? 1 : tensor->shape[w->last];
    w->axis = 0;
    w->in_row = w->at = 0;
    return true;
}

/* Room for all of a tensor at once, so that large answers are not copied while they grow, and for
 * what the last piece wants to have beyond. */
static bool reserve_tensor(struct codec_buffer *buffer, const attn_tensor *tensor, int digits) {
    const size_t row = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
    const size_t piece = row < STRIDE ? row + 1 : STRIDE;
    const size_t bytes = codec_text_bytes(tensor, digits), beyond = piece * (NUMBER_SIZE + 1);
    return bytes <= SIZE_MAX - beyond && reserve(buffer, bytes + beyond);
}

/* Some elements of a row of the tensor, with the brackets before and after. */
static bool put_part(struct codec_writer *w, struct codec_buffer *buffer) {
    const attn_tensor *tensor = w->tensor;
    const size_t left = w->row - w->in_row, part = left < STRIDE ? left : STRIDE;
    const size_t opens = w->in_row == 0 ? (size_t)(w->last - w->axis + 1) : 0;
    /* The brackets at the end are shorter than the room that the last number leaves. */
    if (!reserve(buffer, opens + (part > 0 ? part : 1) * (NUMBER_SIZE + 1))) {
        return false;
    }
    char *out = buffer->data + buffer->size;
    memset(out, '[', opens);
    out += opens;
    out = put_elements(out, tensor, w->at, part, w->digits);
    w->at += part;
    w->in_row += part;
    if (w->in_row == w->row) {
        out -= w->row > 0; /* the last comma */
        w->in_row = 0;
        w->axis = w->last > 0 ? w->last : 0; /* a rank of 0 has no axis */
        while (w->axis > 0 && ++w->index[w->axis - 1] == tensor->shape[w->axis - 1]) {
            w->index[--w->axis] = 0;
        }
        for (int axis = w->axis; axis <= w->last; axis++) {
            *out++ = ']';
        }
        if (w->axis > 0) {
            *out++ = ',';
        } else {
            w->tensor = NULL;
        }
    }
    buffer->size = (size_t)(out - buffer->data);
    return true;
}

/* --------------------------------------------------------------------------------------- items */

/* A quoted text begins; put_piece() writes the rest. `after` follows it, if it is not 0. */
static bool begin_text(struct codec_writer *w, struct codec_buffer *buffer, const char *text,
                       char after) {
    w->text = text;
    w->after_text = after;
    return put(buffer, "\"", 1);
}

/* The next part of the text, or its end. */
static bool put_part_of_text(struct codec_writer *w, struct codec_buffer *buffer) {
    const size_t part = put_some_text(buffer, w->text);
    if (part == SIZE_MAX) {
        return false;
    }
    w->text += part;
    if (*w->text != '\0') {
        return true;
    }
    w->text = NULL;
    return put(buffer, "\"", 1) && (w->after_text == '\0' || put(buffer, &w->after_text, 1));
}

static bool begin_list(struct codec_writer *w, struct codec_buffer *buffer,
                       const struct codec_item *item) {
    w->list = item;
    w->list_next = 0;
    w->list_named = false;
    return put(buffer, item->op == CODEC_OP_IDS ? "{" : "[", 1);
}

/* The batch items of a list of parts; 0 if these have no axis for it. */
static size_t batch_of(const struct codec_item *list) {
    return list->count > 0 && list->parts[0].rank == 3 ? list->parts[0].shape[0] : 0;
}

/* The next matrix of a list of parts, with the brackets of its batch item. */
static bool put_next_part(struct codec_writer *w, struct codec_buffer *buffer) {
    const struct codec_item *list = w->list;
    const size_t batch = batch_of(list), item = w->list_next / list->count;
    const size_t index = w->list_next % list->count;
    const attn_result_tensor *part = &list->parts[index];
    const size_t *size = part->shape + part->rank - 2;
    if (w->list_next > 0 && !put(buffer, index == 0 ? "],[" : ",", index == 0 ? 3 : 1)) {
        return false;
    }
    if (w->list_next == 0 && batch > 0 && !put(buffer, "[", 1)) {
        return false;
    }
    w->list_part = (attn_tensor){.dtype = part->dtype, .rank = 2, .shape = {size[0], size[1]}};
    w->list_part.data =
        (const char *)part->data + item * size[0] * size[1] * attn_dtype_size(part->dtype);
    w->list_next++;
    return begin_tensor(w, &w->list_part);
}

/* The next text, or the next key with its number. */
static bool put_next_text(struct codec_writer *w, struct codec_buffer *buffer) {
    const struct codec_item *list = w->list;
    if (w->list_named) {
        w->list_named = false;
        w->list_part = (attn_tensor){.data = &list->ids[w->list_next - 1], .dtype = ATTN_INT64};
        return begin_tensor(w, &w->list_part); /* of rank 0: no digit of it is rounded away */
    }
    const bool is_key = list->op == CODEC_OP_IDS;
    w->list_named = is_key;
    return (w->list_next == 0 || put(buffer, ",", 1)) &&
           begin_text(w, buffer, list->texts[w->list_next++], is_key ? ':' : '\0');
}

static bool put_list(struct codec_writer *w, struct codec_buffer *buffer) {
    const struct codec_item *list = w->list;
    const bool parts = list->op == CODEC_OP_PARTS;
    const size_t batch = parts ? batch_of(list) : 0;
    if (w->list_next == list->count * (batch > 0 ? batch : 1) && !w->list_named) {
        w->list = NULL;
        return put(buffer, list->op == CODEC_OP_IDS ? "}" : "]]", batch > 0 ? 2 : 1);
    }
    return parts ? put_next_part(w, buffer) : put_next_text(w, buffer);
}

static bool put_value(struct codec_writer *w, struct codec_buffer *buffer,
                      const struct codec_item *item) {
    switch (item->op) {
    case CODEC_OP_OBJECT:
        return put(buffer, "{", 1);
    case CODEC_OP_ARRAY:
        return put(buffer, "[", 1);
    case CODEC_OP_TENSOR:
        return begin_tensor(w, &item->tensor);
    case CODEC_OP_PARTS:
    case CODEC_OP_TEXTS:
    case CODEC_OP_IDS:
        return begin_list(w, buffer, item);
    case CODEC_OP_NUMBER:
        if (!reserve(buffer, NUMBER_SIZE)) {
            return false;
        }
        char *end = put_double(buffer->data + buffer->size, item->number, w->digits);
        buffer->size = (size_t)(end - buffer->data);
        return true;
    case CODEC_OP_TEXT:
        return begin_text(w, buffer, item->text, '\0');
    case CODEC_OP_BOOL:
        return item->number != 0 ? put(buffer, "true", 4) : put(buffer, "false", 5);
    default:
        return put(buffer, "null", 4);
    }
}

/* The key of a member, which is short, and its colon. */
static bool put_key(struct codec_buffer *buffer, const char *key) {
    size_t part = 0;
    bool good = put(buffer, "\"", 1);
    for (; good && *key != '\0'; key += part) {
        part = put_some_text(buffer, key);
        good = part != SIZE_MAX;
    }
    return good && put(buffer, "\":", 2);
}

static bool put_item(struct codec_writer *w, struct codec_buffer *buffer,
                     const struct codec_item *item) {
    if (item->op == CODEC_OP_END) {
        w->first = false;
        return w->open > 0 && put(buffer, w->is_object[--w->open] ? "}" : "]", 1);
    }
    if (!w->first && !put(buffer, ",", 1)) {
        return false;
    }
    if (item->key != NULL && !put_key(buffer, item->key)) {
        return false;
    }
    w->first = item->op == CODEC_OP_OBJECT || item->op == CODEC_OP_ARRAY;
    if (w->first) {
        if (w->open == MAX_OPEN) {
            return false;
        }
        w->is_object[w->open++] = item->op == CODEC_OP_OBJECT;
    }
    return put_value(w, buffer, item);
}

/* The next piece: an item, or a part of one. False at the end or on failure. */
static bool put_piece(struct codec_writer *w, struct codec_buffer *buffer) {
    if (w->ended || w->failed) {
        return false;
    }
    if (w->text != NULL) {
        w->failed = !put_part_of_text(w, buffer);
    } else if (w->tensor != NULL) {
        w->failed = !put_part(w, buffer);
    } else if (w->list != NULL) {
        w->failed = !put_list(w, buffer);
    } else if (w->next < w->count) {
        w->failed = !put_item(w, buffer, &w->items[w->next++]);
    } else {
        w->ended = true;
        w->failed = !put(buffer, "\n", 1);
    }
    return !w->failed;
}

bool codec_write(struct codec_buffer *buffer, const struct codec_item *items, size_t count,
                 int digits) {
    struct codec_writer w = {.items = items, .count = count, .digits = digits, .first = true};
    const attn_tensor *tensor = NULL;
    while (put_piece(&w, buffer)) {
        if (w.tensor != tensor && w.tensor != NULL && !reserve_tensor(buffer, w.tensor, digits)) {
            return false;
        }
        tensor = w.tensor;
    }
    return !w.failed;
}

/* The longest text of an item without its lists: a comma, its key, and its number. */
static size_t item_bytes(const struct codec_item *item) {
    const size_t key = item->key != NULL ? strlen(item->key) : 0;
    return 1 + 6 * key + 3 + NUMBER_SIZE;
}

struct codec_writer *codec_writer_create(const struct codec_item *items, size_t count, int digits) {
    /* The longest piece that put_piece() makes. */
    size_t longest = 3 + ATTN_MAX_RANK + (size_t)STRIDE * (NUMBER_SIZE + 1);
    longest = longest > 6 * TEXT_STRIDE + 2 ? longest : 6 * TEXT_STRIDE + 2;
    for (size_t i = 0; i < count; i++) {
        const size_t size = item_bytes(&items[i]);
        longest = size > longest ? size : longest;
    }
    struct codec_writer *w = malloc(sizeof *w);
    if (w == NULL) {
        return NULL;
    }
    *w = (struct codec_writer){.items = items, .count = count, .digits = digits, .first = true};
    /* All memory is allocated now, while the answer can still be another one. */
    if (!reserve(&w->piece, longest)) {
        free(w);
        return NULL;
    }
    return w;
}

bool codec_writer_read(struct codec_writer *w, char *out, size_t room, size_t *size) {
    *size = 0;
    for (;;) {
        const size_t there = w->piece.size - w->taken;
        const size_t part = there < room - *size ? there : room - *size;
        if (part > 0) {
            memcpy(out + *size, w->piece.data + w->taken, part);
        }
        w->taken += part;
        *size += part;
        if (w->taken < w->piece.size || w->ended) {
            return !w->failed;
        }
        w->taken = w->piece.size = 0;
        if (!put_piece(w, &w->piece) && w->failed) {
            return false;
        }
    }
}

void codec_writer_free(struct codec_writer *w) {
    if (w != NULL) {
        free(w->piece.data);
    }
    free(w);
}
