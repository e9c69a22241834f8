/*
 * writer.c - writes a flat list of items as compact JSON, all at once or piece by piece. It knows
 * neither readers nor documents.
 */
#include "codec/codec.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codec/json/number.h"

enum {
    MAX_OPEN = 64,         /* most arrays and objects that are open at once */
    STRIDE = CODEC_STRIDE, /* numbers for which room is made at once */
    TEXT_STRIDE = 1024,    /* bytes of a text for which room is made at once */
    FIRST_BYTES = 512,     /* the least size of a buffer, enough for most of a small answer */
};

static_assert(NUMBER_SIZE + 1 == CODEC_ROOM_EACH, "the room for a number and a comma");

/* Makes room for `more` bytes. False if out of memory. */
static bool reserve(struct codec_buffer *buffer, size_t more) {
    if (more <= buffer->capacity - buffer->size) {
        return true;
    }
    if (more > SIZE_MAX / 2 - buffer->size) {
        return false;
    }
    const size_t size = buffer->size + more, needed = size > FIRST_BYTES ? size : FIRST_BYTES;
    size_t capacity = buffer->borrowed ? 0 : buffer->capacity;
    char *data = account_grow(NULL, buffer->borrowed ? NULL : buffer->data, &capacity, needed, 1);
    if (data == NULL) {
        return false;
    }
    if (buffer->borrowed && buffer->size > 0) {
        memcpy(data, buffer->data, buffer->size);
    }
    *buffer = (struct codec_buffer){.data = data, .size = buffer->size, .capacity = capacity};
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

static char *put_literal(char *out, const char *literal) {
    size_t size = strlen(literal);
    memcpy(out, literal, size);
    return out + size;
}

/* Each put_ function that takes `out` returns the end of what it wrote. There must be room:
 * NUMBER_SIZE bytes for each number. */
static char *put_double(char *out, double number, int digits) {
    if (!isfinite(number)) {
        return put_literal(out, "null");
    }
    return out + (digits > 0 ? number_write_rounded(out, number, digits)
                             : number_write_double(out, number));
}

/* ---------------------------------------------------------------------------------------- text */

/* Appends up to TEXT_STRIDE bytes of a text with escapes and without quotes. Returns how many bytes
 * of the text it took: 0 at its end, SIZE_MAX if out of memory. */
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

/* Writes elements first to first + count - 1, each with a comma after it. */
static char *put_elements(char *out, const attn_tensor *tensor, size_t first, size_t count,
                          int digits) {
    size_t end = first + count;
    switch (tensor->dtype) {
    case ATTN_FLOAT32:
        if (digits == 0) {
            return number_write_floats(out, (const float *)tensor->data + first, count);
        }
        for (size_t i = first; i < end; i++, *out++ = ',') {
            out = put_double(out, (double)((const float *)tensor->data)[i], digits);
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
            out = put_literal(out, ((const unsigned char *)tensor->data)[i] ? "true" : "false");
        }
        break;
    }
    return out;
}

/* Returns the most characters of one element: a sign, the digits, and six zeros after them. These
 * are the most zeros that are written out. Instead of zeros there may be a point and an exponent,
 * which take no more characters. */
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
    size_t arrays = 1, total = 0, part; /* `arrays`: how many arrays this axis has */
    for (int axis = 0; axis < tensor->rank; axis++) {
        if (__builtin_mul_overflow(arrays, 3, &part) || /* each has two brackets and a comma */
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

static size_t add_sizes(size_t a, size_t b) {
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

/* Returns an upper bound of the bytes of an item's list. Stops counting beyond `most`. */
static size_t list_bytes(const struct codec_item *item, int digits, size_t most) {
    size_t bytes = 4;
    for (size_t i = 0; i < item->count && bytes <= most; i++) {
        if (item->op == CODEC_OP_PARTS) {
            const attn_tensor part = attn_as_tensor(&item->parts[i]);
            bytes = add_sizes(bytes, codec_text_bytes(&part, digits));
            bytes = add_sizes(bytes, 4);
        } else {
            bytes = add_sizes(bytes, 6 * strlen(item->texts[i]) + 4 + NUMBER_SIZE);
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
        bytes = add_sizes(bytes, 6 * key + 4 + 6 * text + 2 + NUMBER_SIZE);
        if (item->op == CODEC_OP_TENSOR) {
            bytes = add_sizes(bytes, codec_text_bytes(&item->tensor, digits));
        }
        bytes = add_sizes(bytes, list_bytes(item, digits, most));
    }
    return bytes;
}

/* -------------------------------------------------------------------------------------- pieces */

struct codec_writer {
    const struct codec_item *items;
    size_t count, next; /* number of items, and of those that are begun */
    int digits;
    bool ended, failed;
    bool first;               /* the next item is the first in its array or object */
    size_t open;              /* open arrays and objects */
    bool is_object[MAX_OPEN]; /* the kind of each of them */

    /* The tensor that is being written, NULL if none is. index[] counts over all axes but the last,
     * like an odometer; when an axis begins or ends, a bracket is written. */
    const attn_tensor *tensor;
    size_t index[ATTN_MAX_RANK];
    int last;      /* the axis of the rows */
    int axis;      /* the outermost axis whose bracket is opened next */
    size_t row;    /* elements of each row */
    size_t in_row; /* elements of this row that are written */
    size_t at;     /* elements of the tensor that are written */

    /* The text that is being written, NULL if none is, and the character that follows its closing
     * quote: ':' for a key, 0 for none. */
    const char *text;
    char after_text;

    /* The item with a list that is being written, NULL if none is. */
    const struct codec_item *list;
    size_t list_next;      /* the next entry: part + count * batch item, or text */
    bool list_named;       /* the key of the last entry is written, its number is not */
    attn_tensor list_part; /* the matrix or number of the list that is being written */

    struct codec_buffer piece; /* the last piece that codec_writer_read() made */
    size_t taken;              /* bytes of it that were read */
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
        if (tensor->shape[axis] == 0) { /* an empty array contains no arrays */
            w->last = axis;
        }
    }
    w->row = tensor->rank == 0 ? 1 : tensor->shape[w->last];
    w->axis = 0;
    w->in_row = w->at = 0;
    return true;
}

/* Makes room for a whole tensor at once, so that a large answer is not copied while it grows. Adds
 * the room that put_part() wants for its last piece. False if out of memory. */
static bool reserve_tensor(struct codec_buffer *buffer, const attn_tensor *tensor, int digits) {
    const size_t row = tensor->rank > 0 ? tensor->shape[tensor->rank - 1] : 1;
    const size_t piece = row < STRIDE ? row + 1 : STRIDE;
    const size_t bytes = codec_text_bytes(tensor, digits), beyond = piece * (NUMBER_SIZE + 1);
    return bytes <= SIZE_MAX - beyond && reserve(buffer, bytes + beyond);
}

/* Writes at most STRIDE elements of a row of the tensor, with the brackets before and after
 * them. */
static bool put_part(struct codec_writer *w, struct codec_buffer *buffer) {
    const attn_tensor *tensor = w->tensor;
    const size_t left = w->row - w->in_row, part = left < STRIDE ? left : STRIDE;
    const size_t opens = w->in_row == 0 ? (size_t)(w->last - w->axis + 1) : 0;
    /* The last number leaves more room than the closing brackets take. */
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
        out -= w->row > 0; /* removes the last comma */
        w->in_row = 0;
        w->axis = w->last > 0 ? w->last : 0; /* `last` is -1 for rank 0 */
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

/* Begins a quoted text; put_piece() writes the rest. `after` follows the text unless it is 0. */
static bool begin_text(struct codec_writer *w, struct codec_buffer *buffer, const char *text,
                       char after) {
    w->text = text;
    w->after_text = after;
    return put(buffer, "\"", 1);
}

/* Writes the next part of the text, and its end if it is reached. */
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

/* Returns the number of batch items in a list of parts; 0 if the parts have no batch axis. */
static size_t batch_of(const struct codec_item *list) {
    return list->count > 0 && list->parts[0].rank == 3 ? list->parts[0].shape[0] : 0;
}

/* Begins the next matrix of a list of parts, and writes the brackets of its batch item. */
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

/* Begins the next text of a list, or the next key, or the number of the last key. */
static bool put_next_text(struct codec_writer *w, struct codec_buffer *buffer) {
    const struct codec_item *list = w->list;
    if (w->list_named) {
        w->list_named = false;
        w->list_part = (attn_tensor){.data = &list->ids[w->list_next - 1], .dtype = ATTN_INT64};
        return begin_tensor(w, &w->list_part); /* rank 0: int64 numbers are never rounded */
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

/* Writes the key of a member and its colon. A key is short, so it is written in one piece. */
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

/* Writes the next piece: an item or a part of one. False at the end or on failure. */
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

/* Returns an upper bound of the text of an item without its text, tensor or list: a comma, a key
 * with escapes, and a number. */
static size_t item_bytes(const struct codec_item *item) {
    const size_t key = item->key != NULL ? strlen(item->key) : 0;
    return 1 + 6 * key + 3 + NUMBER_SIZE;
}

struct codec_writer *codec_writer_create(const struct codec_item *items, size_t count, int digits) {
    /* Finds the longest piece that put_piece() can make. */
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
    /* All memory is allocated now. If there is none, the request can still get another answer. */
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
