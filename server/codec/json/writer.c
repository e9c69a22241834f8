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
    MAX_OPEN = 64,      /* most arrays and objects that are open at once */
    STRIDE = 256,       /* most numbers of a piece */
    TEXT_STRIDE = 1024, /* most bytes of a text in a piece */
};

static_assert((int)NUMBER_SIZE < (int)CODEC_ROOM, "the last number has room");

/* Each put_ function writes at `out` and returns the end of what it wrote. There is room, because
 * codec_items_bytes() bounds the text. NUMBER_SIZE bytes from the beginning of a number on may be
 * written over. */

static char *put_byte(char *out, char byte) {
    *out = byte;
    return out + 1;
}

static char *put_double(char *out, double number, int digits) {
    if (!isfinite(number)) {
        return stpcpy(out, "null");
    }
    return out + (digits > 0 ? number_write_rounded(out, number, digits)
                             : number_write_double(out, number));
}

/* Writes a text with escapes and without quotes. */
static char *put_text(char *out, const char *text, size_t size) {
    static const char hex[] = "0123456789abcdef";
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
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
    return out;
}

/* ------------------------------------------------------------------------------------- tensors */

/* Does number_write_floats() write the elements? It writes several rows at once. */
static bool has_rows(const attn_tensor *tensor, int digits) {
    return tensor->dtype == ATTN_FLOAT32 && digits == 0;
}

/* Writes elements first to first + count - 1, each with a comma after it. If has_rows(), brackets
 * stand between rows of `row` elements. */
static char *put_elements(char *out, const attn_tensor *tensor, size_t first, size_t count,
                          size_t row, int digits) {
    size_t end = first + count;
    switch (tensor->dtype) {
    case ATTN_FLOAT32:
        if (has_rows(tensor, digits)) {
            return number_write_floats(out, (const float *)tensor->data + first, count, row);
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
            out = stpcpy(out, ((const unsigned char *)tensor->data)[i] ? "true" : "false");
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

/* Returns an upper bound of the bytes of an item without its text, tensor or list: a comma, a key
 * with escapes, and a number. */
static size_t item_bytes(const struct codec_item *item) {
    const size_t key = item->key != NULL ? strlen(item->key) : 0;
    return 6 * key + 4 + NUMBER_SIZE;
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
        const size_t text = item->op == CODEC_OP_TEXT ? strlen(item->text) : 0;
        bytes = add_sizes(bytes, item_bytes(item) + 6 * text + 2);
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
    bool ended;
    bool first;               /* the next item is the first in its array or object */
    size_t open;              /* open arrays and objects */
    bool is_object[MAX_OPEN]; /* the kind of each of them */

    /* The tensor that is being written, NULL if none is. */
    const attn_tensor *tensor;
    int last;   /* the axis of the rows, -1 for rank 0 */
    int opens;  /* brackets that are opened next */
    bool empty; /* the rows are empty; each counts as one element */
    size_t row; /* elements of each row, at least 1 */
    size_t at;  /* elements of the tensor that are written */

    const char *text; /* the text that is being written, NULL if none is */

    /* The item with a list that is being written, NULL if none is. */
    const struct codec_item *list;
    size_t list_next;      /* the next entry: part + count * batch item, or text */
    bool list_named;       /* the key of the last entry is begun, its number is not */
    attn_tensor list_part; /* the matrix or number of the list that is being written */

    char *piece;        /* the last piece that codec_writer_read() made, owned */
    size_t size, taken; /* its bytes, and those that were read */
};

static void begin_tensor(struct codec_writer *w, const attn_tensor *tensor) {
    w->tensor = tensor;
    w->at = 0;
    w->last = tensor->rank - 1;
    for (int axis = 0; axis < w->last; axis++) {
        if (tensor->shape[axis] == 0) { /* an empty array contains no arrays */
            w->last = axis;
        }
    }
    w->opens = w->last + 1;
    w->empty = w->last >= 0 && tensor->shape[w->last] == 0;
    w->row = w->last < 0 || w->empty ? 1 : tensor->shape[w->last];
}

/* Returns how many of the next elements are written at once: at most STRIDE elements of a row, or
 * of several rows of a matrix. */
static size_t next_part(const struct codec_writer *w) {
    size_t left = w->row - w->at % w->row;
    if (left == w->row && w->last > 0 && !w->empty && has_rows(w->tensor, w->digits)) {
        const size_t matrix = w->row * w->tensor->shape[w->last - 1];
        left = matrix - w->at % matrix;
    }
    return left < STRIDE ? left : STRIDE;
}

/* Writes the next elements of the tensor, with the brackets before and after them. */
static char *put_part(struct codec_writer *w, char *out) {
    const attn_tensor *tensor = w->tensor;
    const size_t part = next_part(w);
    for (; w->opens > 0; w->opens--) {
        *out++ = '[';
    }
    if (!w->empty) {
        out = put_elements(out, tensor, w->at, part, w->row, w->digits);
    }
    w->at += part;
    if (w->at % w->row != 0) {
        return out;
    }
    out -= !w->empty; /* removes the last comma */
    size_t size = w->row;
    int axis = w->last;
    for (; axis >= 0 && w->at % size == 0; axis--) {
        *out++ = ']';
        w->opens++;
        size *= axis > 0 ? tensor->shape[axis - 1] : 1;
    }
    if (axis >= 0) {
        *out++ = ',';
    } else {
        w->tensor = NULL;
        w->opens = 0;
    }
    return out;
}

/* --------------------------------------------------------------------------------------- items */

/* Begins a quoted text; put_piece() writes the rest. */
static char *begin_text(struct codec_writer *w, char *out, const char *text) {
    w->text = text;
    return put_byte(out, '"');
}

/* Writes the next part of the text, and its end if it is reached. */
static char *put_part_of_text(struct codec_writer *w, char *out) {
    const size_t part = strnlen(w->text, TEXT_STRIDE);
    out = put_text(out, w->text, part);
    w->text += part;
    if (*w->text != '\0') {
        return out;
    }
    w->text = NULL;
    return stpcpy(out, w->list_named ? "\":" : "\""); /* the text is a key then */
}

/* Returns the number of batch items in a list of parts; 0 if the parts have no batch axis. */
static size_t batch_of(const struct codec_item *list) {
    return list->count > 0 && list->parts[0].rank == 3 ? list->parts[0].shape[0] : 0;
}

/* Begins the next matrix or row of a list of parts, and writes the brackets of its batch item. */
static char *put_next_part(struct codec_writer *w, char *out) {
    const struct codec_item *list = w->list;
    const size_t item = w->list_next / list->count, index = w->list_next % list->count;
    const attn_result_tensor *part = &list->parts[index];
    const int rank = part->rank < 2 ? part->rank : 2;
    size_t count = 1;
    if (w->list_next > 0) {
        out = stpcpy(out, index == 0 ? "],[" : ",");
    } else if (batch_of(list) > 0) {
        *out++ = '[';
    }
    w->list_part = (attn_tensor){.dtype = part->dtype, .rank = rank};
    for (int axis = 0; axis < rank; axis++) {
        w->list_part.shape[axis] = part->shape[part->rank - rank + axis];
        count *= w->list_part.shape[axis];
    }
    w->list_part.data = (const char *)part->data + item * count * attn_dtype_size(part->dtype);
    w->list_next++;
    begin_tensor(w, &w->list_part);
    return out;
}

/* Begins the next text of a list, or the next key, or the number of the last key. */
static char *put_next_text(struct codec_writer *w, char *out) {
    const struct codec_item *list = w->list;
    if (w->list_named) {
        w->list_named = false;
        w->list_part = (attn_tensor){.data = &list->ids[w->list_next - 1], .dtype = ATTN_INT64};
        begin_tensor(w, &w->list_part); /* rank 0: int64 numbers are never rounded */
        return out;
    }
    w->list_named = list->op == CODEC_OP_IDS;
    if (w->list_next > 0) {
        *out++ = ',';
    }
    return begin_text(w, out, list->texts[w->list_next++]);
}

static char *put_list(struct codec_writer *w, char *out) {
    const struct codec_item *list = w->list;
    const bool parts = list->op == CODEC_OP_PARTS;
    const size_t batch = parts ? batch_of(list) : 0;
    const bool no_items = parts && batch == 0 && list->count > 0 && list->parts[0].rank == 3;
    if (no_items || (w->list_next == list->count * (batch > 0 ? batch : 1) && !w->list_named)) {
        w->list = NULL;
        return stpcpy(out, list->op == CODEC_OP_IDS ? "}" : batch > 0 ? "]]" : "]");
    }
    return parts ? put_next_part(w, out) : put_next_text(w, out);
}

static char *put_value(struct codec_writer *w, char *out, const struct codec_item *item) {
    switch (item->op) {
    case CODEC_OP_OBJECT:
    case CODEC_OP_ARRAY:
        assert(w->open < MAX_OPEN);
        w->first = true;
        w->is_object[w->open++] = item->op == CODEC_OP_OBJECT;
        return put_byte(out, item->op == CODEC_OP_OBJECT ? '{' : '[');
    case CODEC_OP_TENSOR:
        begin_tensor(w, &item->tensor);
        return out;
    case CODEC_OP_PARTS:
    case CODEC_OP_TEXTS:
    case CODEC_OP_IDS:
        w->list = item;
        w->list_next = 0;
        w->list_named = false;
        return put_byte(out, item->op == CODEC_OP_IDS ? '{' : '[');
    case CODEC_OP_NUMBER:
        return put_double(out, item->number, w->digits);
    case CODEC_OP_TEXT:
        return begin_text(w, out, item->text);
    default:
        return stpcpy(out, item->number != 0 ? "true" : "false");
    }
}

static char *put_item(struct codec_writer *w, char *out, const struct codec_item *item) {
    if (item->op == CODEC_OP_END) {
        assert(w->open > 0);
        w->first = false;
        return put_byte(out, w->is_object[--w->open] ? '}' : ']');
    }
    if (!w->first) {
        *out++ = ',';
    }
    w->first = false;
    if (item->key != NULL) { /* a key is short, so it is written in one piece */
        *out++ = '"';
        out = put_text(out, item->key, strlen(item->key));
        out = stpcpy(out, "\":");
    }
    return put_value(w, out, item);
}

/* Writes the next piece: an item or a part of one. */
static char *put_piece(struct codec_writer *w, char *out) {
    if (w->text != NULL) {
        return put_part_of_text(w, out);
    }
    if (w->tensor != NULL) {
        return put_part(w, out);
    }
    if (w->list != NULL) {
        return put_list(w, out);
    }
    if (w->next < w->count) {
        return put_item(w, out, &w->items[w->next++]);
    }
    w->ended = true;
    return put_byte(out, '\n');
}

char *codec_write(char *out, const struct codec_item *items, size_t count, int digits) {
    struct codec_writer w = {.items = items, .count = count, .digits = digits, .first = true};
    while (!w.ended) {
        out = put_piece(&w, out);
    }
    return out;
}

struct codec_writer *codec_writer_create(const struct codec_item *items, size_t count, int digits) {
    /* Finds the longest piece that put_piece() can make. */
    size_t longest = 3 + ATTN_MAX_RANK + (size_t)STRIDE * (NUMBER_SIZE + 1);
    longest = longest > 6 * TEXT_STRIDE + 2 ? longest : 6 * TEXT_STRIDE + 2;
    for (size_t i = 0; i < count; i++) {
        const size_t size = item_bytes(&items[i]);
        longest = size > longest ? size : longest;
    }
    /* All memory is allocated now. If there is none, the request can still get another answer. */
    struct codec_writer *w = malloc(sizeof *w);
    char *piece = malloc(longest);
    if (w == NULL || piece == NULL) {
        free(w);
        free(piece);
        return NULL;
    }
    *w = (struct codec_writer){
        .items = items, .count = count, .digits = digits, .first = true, .piece = piece};
    return w;
}

size_t codec_writer_read(struct codec_writer *w, char *out, size_t room) {
    size_t size = 0;
    for (;;) {
        const size_t there = w->size - w->taken, part = there < room - size ? there : room - size;
        memcpy(out + size, w->piece + w->taken, part);
        w->taken += part;
        size += part;
        if (w->taken < w->size || w->ended) {
            return size;
        }
        w->size = (size_t)(put_piece(w, w->piece) - w->piece);
        w->taken = 0;
    }
}

void codec_writer_free(struct codec_writer *w) {
    if (w != NULL) {
        free(w->piece);
    }
    free(w);
}
