/*
 * fuzz_reader.c - fuzzes the reader of JSON bodies. The first byte of an input chooses the limits
 * and how the rest is cut into pieces. The rest is read whole and in pieces. Both must give the
 * same error, or the same document with the same matrices, bit for bit. The values of a document
 * are written again, and must be the same when they are read again.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "codec/codec.h"
#include "fuzz/fuzz.h"

enum {
    MAX_LEAVES = 64,  /* values that are written and read again */
    MAX_INTEGERS = 64 /* whole numbers of a list that are compared */
};

static const char *const infinite[] = {"bias", "decay", NULL};

/* Bit 0 of the first byte chooses one. The limits of the first are so small that inputs of some
 * hundred bytes reach them. */
static const struct codec_options options[] = {
    {.max_bytes = 256, .dtype_key = "dtype", .infinity_keys = infinite},
    {.max_bytes = 65536, .dtype_key = "dtype", .infinity_keys = infinite},
};

/* ------------------------------------------------------------------------------------- reading */

/* Returns the size of the next piece. `cut` chooses one piece, pieces of one size or of many
 * sizes. */
static size_t next_piece(uint8_t cut, uint32_t *state) {
    if (cut < 128) {
        return cut == 0 ? SIZE_MAX : cut;
    }
    *state = *state * 1664525u + 1013904223u;
    return *state >> 28; /* 0 to 15 */
}

static struct codec_document *read_pieces(struct codec_reader *reader, const uint8_t *data,
                                          size_t size, uint8_t cut) {
    uint32_t state = cut;
    for (size_t at = 0; at < size;) {
        size_t piece = next_piece(cut, &state);
        piece = piece < size - at ? piece : size - at;
        /* The piece is a block of its own, so a sanitizer sees a read beyond it. */
        char *copy = malloc(piece > 0 ? piece : 1);
        fuzz_require(copy != NULL, "out of memory");
        memcpy(copy, data + at, piece);
        codec_reader_feed(reader, copy, piece);
        free(copy);
        at += piece;
    }
    struct codec_document *document;
    const enum codec_status status = codec_reader_finish(reader, &document);
    fuzz_require((status == CODEC_OK) == (document != NULL), "status %d", status);
    fuzz_require(status != CODEC_NO_MEMORY, "out of memory");
    fuzz_require(status == codec_reader_error(reader)->status, "status %d", status);
    return document;
}

static void same_error(const struct codec_error *a, const struct codec_error *b) {
    fuzz_require(a->status == b->status, "%d (%s), %d (%s)", a->status, a->message, b->status,
                 b->message);
    if (a->status == CODEC_OK) {
        return;
    }
    fuzz_require(memchr(a->message, '\0', sizeof a->message) != NULL && a->message[0] != '\0',
                 "status %d", a->status);
    fuzz_require(strcmp(a->message, b->message) == 0, "%s, %s", a->message, b->message);
    fuzz_require(a->has_offset == b->has_offset && a->has_pointer == b->has_pointer, "%s",
                 a->message);
    fuzz_require(!a->has_offset || a->offset == b->offset, "%s: %zu, %zu", a->message, a->offset,
                 b->offset);
    fuzz_require(!a->has_pointer || strcmp(a->pointer, b->pointer) == 0, "%s: %s, %s", a->message,
                 a->pointer, b->pointer);
}

/* ----------------------------------------------------------------------------------- documents */

/* A value without children, and what it was read as. */
struct leaf {
    bool good;
    struct codec_item item; /* borrowed from the document */
    struct codec_error error;
    bool whole;                     /* the value is a list of whole numbers */
    int64_t integers[MAX_INTEGERS]; /* the first of these numbers, then zeros */
    size_t integer_count;
};

static size_t bytes_of(const attn_tensor *tensor) {
    size_t bytes = attn_dtype_size(tensor->dtype);
    for (int i = 0; i < tensor->rank; i++) {
        bytes *= tensor->shape[i];
    }
    return bytes;
}

/* Reads a tensor as whole numbers first. codec_as_reals_or_null() makes float32 of a short list,
 * which is no longer exact then. */
static void read_tensor(struct codec_document *document, const struct codec_value *value,
                        struct leaf *leaf) {
    struct codec_error unused;
    leaf->item.op = CODEC_OP_TENSOR;
    leaf->whole = codec_as_integers(document, value, INT64_MIN, INT64_MAX, leaf->integers,
                                    MAX_INTEGERS, &leaf->integer_count, &leaf->error);
    leaf->good = codec_as_reals_or_null(document, value, 1, ATTN_MAX_RANK, &leaf->item.tensor,
                                        &leaf->error) ||
                 codec_as_mask(document, value, 1, ATTN_MAX_RANK, &leaf->item.tensor, &unused);
}

static struct leaf read_leaf(struct codec_document *document, const struct codec_value *value) {
    struct leaf leaf = {.good = true};
    bool truth;
    switch (codec_kind_of(value)) {
    case CODEC_NULL:
        leaf.item = (struct codec_item){.op = CODEC_OP_NUMBER, .number = (double)NAN};
        break;
    case CODEC_BOOL:
        leaf.item.op = CODEC_OP_BOOL;
        leaf.good = codec_as_bool(document, value, &truth, &leaf.error);
        leaf.item.number = leaf.good && truth;
        break;
    case CODEC_NUMBER:
        leaf.item.op = CODEC_OP_NUMBER;
        leaf.good = codec_as_number(document, value, &leaf.item.number, &leaf.error);
        break;
    case CODEC_TEXT:
        leaf.item.op = CODEC_OP_TEXT;
        leaf.good = codec_as_text(document, value, &leaf.item.text, &leaf.error);
        break;
    case CODEC_TENSOR:
        read_tensor(document, value, &leaf);
        break;
    case CODEC_ARRAY:
    case CODEC_OBJECT:
        leaf.good = false;
        break;
    }
    return leaf;
}

static void same_value(const struct codec_item *a, const struct codec_item *b) {
    fuzz_require(a->op == b->op, "%d, %d", a->op, b->op);
    fuzz_require(memcmp(&a->number, &b->number, sizeof a->number) == 0, "%a, %a", a->number,
                 b->number);
    fuzz_require(a->op != CODEC_OP_TEXT || strcmp(a->text, b->text) == 0, "%s, %s", a->text,
                 b->text);
    if (a->op != CODEC_OP_TENSOR) {
        return;
    }
    fuzz_require(a->tensor.dtype == b->tensor.dtype && a->tensor.rank == b->tensor.rank,
                 "types %d and %d, ranks %d and %d", (int)a->tensor.dtype, (int)b->tensor.dtype,
                 a->tensor.rank, b->tensor.rank);
    for (int i = 0; i < a->tensor.rank; i++) {
        fuzz_require(a->tensor.shape[i] == b->tensor.shape[i], "dimension %d: %zu, %zu", i,
                     (size_t)a->tensor.shape[i], (size_t)b->tensor.shape[i]);
    }
    fuzz_require(memcmp(a->tensor.data, b->tensor.data, bytes_of(&a->tensor)) == 0,
                 "a matrix of other numbers");
}

static void same_leaf(const struct leaf *a, const struct leaf *b) {
    fuzz_require(a->good == b->good && a->whole == b->whole, "%d and %d, %d and %d", a->good,
                 b->good, a->whole, b->whole);
    same_error(&a->error, &b->error);
    if (a->good) {
        same_value(&a->item, &b->item);
    }
    if (a->whole) {
        fuzz_require(a->integer_count == b->integer_count &&
                         memcmp(a->integers, b->integers, sizeof a->integers) == 0,
                     "other whole numbers");
    }
}

struct leaves {
    struct codec_item items[MAX_LEAVES];
    size_t count;
};

/* Requires that two documents have the same values, and gathers the good leaves of `a`. The reader
 * bounds the depth of this recursion. */
static void same_values(struct codec_document *document_a, const struct codec_value *a,
                        struct codec_document *document_b, const struct codec_value *b,
                        struct leaves *leaves) {
    const enum codec_kind kind = codec_kind_of(a);
    fuzz_require(kind == codec_kind_of(b), "kinds %d and %d", kind, codec_kind_of(b));
    fuzz_require(codec_size(a) == codec_size(b), "%zu and %zu", codec_size(a), codec_size(b));
    if (kind != CODEC_ARRAY && kind != CODEC_OBJECT) {
        const struct leaf leaf_a = read_leaf(document_a, a), leaf_b = read_leaf(document_b, b);
        same_leaf(&leaf_a, &leaf_b);
        if (leaf_a.good && leaves->count < MAX_LEAVES) {
            leaves->items[leaves->count++] = leaf_a.item;
        }
        return;
    }
    /* Pointers show the names of members and the places in arrays. */
    struct codec_error place_a = {0}, place_b = {0};
    codec_fail(document_a, a, &place_a, "here");
    codec_fail(document_b, b, &place_b, "here");
    same_error(&place_a, &place_b);
    const struct codec_value *child_a = codec_size(a) > 0 ? codec_at(a, 0) : NULL;
    const struct codec_value *child_b = codec_size(b) > 0 ? codec_at(b, 0) : NULL;
    while (child_a != NULL && child_b != NULL) {
        same_values(document_a, child_a, document_b, child_b, leaves);
        child_a = codec_next(child_a);
        child_b = codec_next(child_b);
    }
    fuzz_require(child_a == NULL && child_b == NULL, "one is longer");
}

/* ------------------------------------------------------------------------------ and back again */

/* Writes the leaves as {"dtype": .., "0": .., "1": .., ...} and reads them again. They are members,
 * because the leaves in an array could become one matrix. */
static void write_again(const struct leaves *leaves, attn_dtype dtype) {
    struct codec_item items[MAX_LEAVES + 3];
    char keys[MAX_LEAVES][4];
    items[0] = (struct codec_item){.op = CODEC_OP_OBJECT};
    items[1] = (struct codec_item){.op = CODEC_OP_TEXT, .key = "dtype"};
    items[1].text = dtype == ATTN_FLOAT64 ? "float64" : "float32";
    for (size_t i = 0; i < leaves->count; i++) {
        snprintf(keys[i], sizeof keys[i], "%u", (unsigned)i % MAX_LEAVES);
        items[i + 2] = leaves->items[i];
        items[i + 2].key = keys[i];
    }
    items[leaves->count + 2] = (struct codec_item){.op = CODEC_OP_END};

    const size_t count = leaves->count + 3;
    struct codec_buffer buffer = {0};
    buffer.data = malloc(codec_items_bytes(items, count, 0, SIZE_MAX) + CODEC_ROOM);
    fuzz_require(buffer.data != NULL, "out of memory");
    buffer.size = (size_t)(codec_write(buffer.data, items, count, 0) - buffer.data);
    const struct codec_options again = {.dtype_key = "dtype"};
    struct codec_reader *reader = codec_reader_create(&again);
    fuzz_require(reader != NULL, "out of memory");
    struct codec_document *document =
        read_pieces(reader, (const uint8_t *)buffer.data, buffer.size, 0);
    fuzz_require(document != NULL, "%s: %.*s", codec_reader_error(reader)->message,
                 (int)buffer.size, buffer.data);
    fuzz_require(codec_document_dtype(document) == dtype, "dtype %d", (int)dtype);
    for (size_t i = 0; i < leaves->count; i++) {
        const struct leaf leaf = read_leaf(document, codec_get(codec_root(document), keys[i]));
        fuzz_require(leaf.good, "%s: %.*s", leaf.error.message, (int)buffer.size, buffer.data);
        same_value(&leaves->items[i], &leaf.item);
    }
    codec_document_free(document);
    codec_reader_free(reader);
    free(buffer.data);
}

/* Requires that the line and the column of an error are those of its offset. */
static void check_place(const struct codec_error *error, const uint8_t *text) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < error->offset; i++) {
        line += text[i] == '\n';
        column = text[i] == '\n' ? 1 : column + ((text[i] & 0xC0) != 0x80);
    }
    fuzz_require(error->line == line && error->column == column, "byte %zu: %zu %zu, not %zu %zu",
                 error->offset, error->line, error->column, line, column);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) {
        return 0;
    }
    struct budget budget = {.max_request = SIZE_MAX / 2, .max_total = SIZE_MAX / 2};
    struct account account;
    account_open(&account, &budget, 0);
    struct codec_options chosen = options[data[0] & 1];
    chosen.account = &account;
    struct codec_reader *whole = codec_reader_create(&chosen);
    struct codec_reader *pieces = codec_reader_create(&chosen);
    fuzz_require(whole != NULL && pieces != NULL, "out of memory");
    struct codec_document *a = read_pieces(whole, data + 1, size - 1, 0);
    struct codec_document *b = read_pieces(pieces, data + 1, size - 1, data[0] == 0 ? 1 : data[0]);
    same_error(codec_reader_error(whole), codec_reader_error(pieces));
    const struct codec_error *error = codec_reader_error(whole);
    fuzz_require(!error->has_offset || error->offset < size, "byte %zu of %zu", error->offset,
                 size - 1);
    if (error->has_offset) {
        check_place(error, data + 1);
        check_place(codec_reader_error(pieces), data + 1);
    }
    if (a != NULL) {
        struct leaves leaves = {.count = 0};
        const attn_dtype dtype = codec_document_dtype(a);
        fuzz_require(dtype == codec_document_dtype(b), "dtype %d", (int)dtype);
        same_values(a, codec_root(a), b, codec_root(b), &leaves);
        write_again(&leaves, dtype);
    }
    codec_document_free(a);
    codec_document_free(b);
    codec_reader_free(whole);
    codec_reader_free(pieces);
    fuzz_require(account.held == 0, "%zu bytes are left", account.held);
    account_close(&account);
    return 0;
}
