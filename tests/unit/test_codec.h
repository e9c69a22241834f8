/*
 * test_codec.h - what all tests of the codec share. A body is read whole, byte by byte and in
 * random cuts. All three must give the same document, or the same error in every field.
 */
#ifndef TEST_CODEC_H
#define TEST_CODEC_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "support/count.h"

static inline uint64_t random_bits(void) {
    static uint64_t state = 0x853C49E6748FEA9B;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545F4914F6CDD1D;
}

/* An item that is a tensor: TENSOR_ITEM(key, data, dtype, rank, shape...). */
#define TENSOR_ITEM(key_, data_, dtype_, rank_, ...)                                               \
    {                                                                                              \
        .op = CODEC_OP_TENSOR, .key = key_, .tensor = { data_, dtype_, rank_, {__VA_ARGS__} }      \
    }

/* The result of reading one body: a document, or an error. */
struct outcome {
    struct codec_document *document;
    struct codec_error error;
};

/* Returns the account that counts all bodies of tests which have no account of their own. */
static inline struct account *test_account(void) {
    static struct budget budget = {.max_request = SIZE_MAX / 2, .max_total = SIZE_MAX / 2};
    static struct account account;
    if (account.budget == NULL) {
        account_open(&account, &budget, 0);
    }
    return &account;
}

/* The keys that take -Infinity, as in the service. */
static const char *const codec_bias[] = {"bias", NULL};

/* Reads text[0..size) in pieces of `piece` bytes, or of a random size from 1 to `piece`; 0 means
 * whole. Without options, the keys are "dtype" and "bias", as in the service. Each piece is a block
 * of its own, so a sanitizer sees every read beyond it. */
static inline struct outcome read_cuts(const char *text, size_t size,
                                       const struct codec_options *options, size_t piece,
                                       bool at_random) {
    struct outcome outcome = {0};
    struct codec_options counted = {.dtype_key = "dtype", .infinity_keys = codec_bias};
    if (options != NULL) {
        counted = *options;
    }
    if (counted.account == NULL) {
        counted.account = test_account();
    }
    struct codec_reader *reader = codec_reader_create(&counted);
    cr_assert_not_null(reader);
    for (size_t at = 0, part; at < size; at += part) {
        part = piece == 0 ? size : at_random ? 1 + (size_t)random_bits() % piece : piece;
        if (part > size - at)
            part = size - at;
        char *copy = malloc(part);
        memcpy(copy, text + at, part);
        enum codec_status status = codec_reader_feed(reader, copy, part);
        cr_expect_eq(status, codec_reader_error(reader)->status);
        free(copy);
    }
    enum codec_status status = codec_reader_finish(reader, &outcome.document);
    outcome.error = *codec_reader_error(reader);
    cr_expect_eq(status, outcome.error.status);
    cr_expect_eq(status == CODEC_OK, outcome.document != NULL);
    codec_reader_free(reader);
    return outcome;
}

/* Reads a body in pieces of random sizes from 1 to `piece`: 0 means whole, 1 byte by byte. */
static inline struct outcome read_pieces(const char *text, size_t size,
                                         const struct codec_options *options, size_t piece) {
    return read_cuts(text, size, options, piece, true);
}

/* Writes everything that the accessors say about a value and the values in it. The pointers contain
 * the names. */
static inline void dump_value(FILE *out, struct codec_document *document,
                              const struct codec_value *value) {
    struct codec_error error;
    double number = 0;
    const char *text = NULL;
    bool truth = false;
    attn_tensor tensor = {0};
    size_t bytes = 0;

    codec_fail(document, value, &error, "-");
    fprintf(out, "%s %d: ", error.pointer, codec_kind_of(value));
    if (codec_as_number(document, value, &number, &error))
        fprintf(out, "%a", number);
    if (codec_as_text(document, value, &text, &error))
        fprintf(out, "%s", text);
    if (codec_as_bool(document, value, &truth, &error))
        fprintf(out, "%d", truth);
    if (codec_kind_of(value) == CODEC_TENSOR) {
        if (!codec_as_reals_or_null(document, value, 1, ATTN_MAX_RANK, &tensor, &error)) {
            fprintf(out, "%s %s", error.pointer, error.message);
            codec_as_mask(document, value, 1, ATTN_MAX_RANK, &tensor, &error);
        }
        if (tensor.rank > 0)
            attn_tensor_bytes(&tensor, &bytes);
        for (int axis = 0; axis < tensor.rank; axis++)
            fprintf(out, "(%zu)", tensor.shape[axis]);
        for (size_t i = 0; i < bytes; i++)
            fprintf(out, "%02x", ((const unsigned char *)tensor.data)[i]);
    }
    fprintf(out, "\n");
    for (const struct codec_value *child = codec_at(value, 0); child != NULL;
         child = codec_next(child))
        dump_value(out, document, child);
}

/* Returns the text of dump_value() for a whole document, owned. */
static inline char *dump(struct codec_document *document) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    fprintf(out, "%d\n", (int)codec_document_dtype(document));
    dump_value(out, document, codec_root(document));
    fclose(out);
    return text;
}

/* Expects that the line and the column of an error are those of its offset. */
static inline void expect_place(const struct codec_error *error, const char *text) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < error->offset; i++) {
        const bool inside = ((unsigned char)text[i] & 0xC0) == 0x80; /* a character of UTF-8 */
        line += text[i] == '\n';
        column = text[i] == '\n' ? 1 : column + !inside;
    }
    cr_expect(error->line == line && error->column == column,
              "%.60s: byte %zu is line %zu column %zu, not %zu and %zu", text, error->offset, line,
              column, error->line, error->column);
}

/* Reads a body whole and in pieces of several sizes. All results must be the same, and all memory
 * must be given back. Returns the outcome of reading it whole; the caller frees its document. */
static inline struct outcome read_sized(const char *text, size_t size,
                                        const struct codec_options *options) {
    const size_t held = test_account()->held;
    struct outcome whole = read_pieces(text, size, options, 0);
    char *expected = whole.document != NULL ? dump(whole.document) : NULL;
    if (whole.error.has_offset)
        expect_place(&whole.error, text);
    for (size_t piece = 1; piece <= 41; piece += 8) {
        struct outcome other = read_pieces(text, size, options, piece);
        cr_expect_eq(other.error.status, whole.error.status, "%.60s", text);
        cr_expect_eq(other.error.has_offset, whole.error.has_offset, "%.60s", text);
        cr_expect_eq(other.error.offset, whole.error.offset, "%.60s", text);
        if (other.error.has_offset)
            expect_place(&other.error, text);
        cr_expect_eq(other.error.has_pointer, whole.error.has_pointer, "%.60s", text);
        cr_expect_str_eq(other.error.pointer, whole.error.pointer, "%.60s", text);
        cr_expect_str_eq(other.error.message, whole.error.message, "%.60s", text);
        if (expected != NULL && other.document != NULL) {
            char *actual = dump(other.document);
            cr_expect_str_eq(actual, expected, "%.60s", text);
            free(actual);
        }
        codec_document_free(other.document);
    }
    free(expected);
    if (whole.document != NULL) /* dump() may have made a mask of numbers, so it is read again */
        codec_document_free(whole.document);
    cr_expect_eq(test_account()->held, held, "%.60s: %zu bytes are left", text,
                 test_account()->held - held);
    return read_pieces(text, size, options, 0);
}

static inline struct outcome read_text(const char *text) {
    return read_sized(text, strlen(text), NULL);
}

/* Reads a body that must be accepted. The caller frees the document. */
static inline struct codec_document *read_good(const char *text) {
    struct outcome outcome = read_text(text);
    cr_assert_not_null(outcome.document, "%.60s: %s", text, outcome.error.message);
    return outcome.document;
}

/* Returns a member of the root. */
static inline const struct codec_value *member(const struct codec_document *document,
                                               const char *name) {
    return codec_get(codec_root(document), name);
}

/* Expects that a body is refused with this status, this pointer (NULL: none), this offset (-1:
 * none) and a message that contains this text. */
static inline void expect_error_sized(const char *text, size_t size,
                                      const struct codec_options *options, enum codec_status status,
                                      const char *pointer, long offset, const char *message) {
    struct outcome outcome = read_sized(text, size, options);
    const struct codec_error *error = &outcome.error;
    cr_expect_eq(error->status, status, "%.60s: status %d, %s", text, error->status,
                 error->message);
    cr_expect_eq(error->has_pointer, pointer != NULL, "%.60s: pointer", text);
    cr_expect_str_eq(error->pointer, pointer != NULL ? pointer : "", "%.60s: %s", text,
                     error->pointer);
    cr_expect_eq(error->has_offset, offset >= 0, "%.60s: has offset", text);
    if (offset >= 0)
        cr_expect_eq(error->offset, (size_t)offset, "%.60s: offset %zu, not %ld", text,
                     error->offset, offset);
    cr_expect_not_null(strstr(error->message, message), "%.60s: %s", text, error->message);
    codec_document_free(outcome.document);
}

#endif
