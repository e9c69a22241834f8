/*
 * test_codec_grammar.c - what is JSON and what is not by RFC 8259, and the byte at fault. This
 * tests the reader alone, with the texts of data/grammar.txt and others.
 */
#include <pthread.h>

#include "support/rows.h"
#include "test_codec.h"

/* Expects JSON if `offset` is negative, and otherwise a fault at this byte. */
static void check_text(const char *text, long offset) {
    struct outcome outcome = read_text(text);
    if (offset < 0) {
        cr_expect_eq(outcome.error.status, CODEC_OK, "%s: %s", text, outcome.error.message);
    } else {
        cr_expect_eq(outcome.error.status, CODEC_SYNTAX, "%s: status %d %s", text,
                     outcome.error.status, outcome.error.message);
        cr_expect(outcome.error.has_offset);
        cr_expect_eq(outcome.error.offset, (size_t)offset, "%s: offset %zu, not %ld (%s)", text,
                     outcome.error.offset, offset, outcome.error.message);
        cr_expect_neq(outcome.error.message[0], '\0');
    }
    codec_document_free(outcome.document);
}

/* Reads a text three times: as it is, with a long tail, and with a number before it. The hot loop
 * reads neither the first number of an array nor numbers close to the end, so it takes part only in
 * the last two. */
static void check_thrice(const char *text, long offset) {
    char padded[ROWS_BYTES + 200];
    check_text(text, offset);
    if (offset >= (long)strlen(text)) {
        return;
    }
    snprintf(padded, sizeof padded, "%s%100s", text, "");
    check_text(padded, offset);
    if (text[0] != '[' || offset == 0 || strchr("-0123456789", text[1]) == NULL) {
        return;
    }
    snprintf(padded, sizeof padded, "[7,%s%100s", text + 1, "");
    check_text(padded, offset < 0 ? offset : offset + 2);
}

Test(codec_grammar, texts) {
    static struct rows rows;
    char text[ROWS_BYTES];
    size_t good = 0, bad = 0;
    rows_open(&rows, "grammar.txt");
    while (rows_next(&rows)) {
        if (rows.line[0] != '=') {
            const long offset = rows_grammar(&rows, text);
            *(offset < 0 ? &good : &bad) += 1;
            check_thrice(text, offset);
        }
    }
    cr_expect(good >= 95 && bad >= 188, "the public suites have 95 and 188, this one %zu and %zu",
              good, bad);
    rows_close(&rows);
}

struct deep {
    const char *opening;
    size_t offset; /* place of the 17th bracket */
};

/* Reads a body with a million levels, whole and byte by byte. It is refused at its 17th level. */
static void *read_deep(void *deep_) {
    const struct deep *deep = deep_;
    const size_t each = strlen(deep->opening), size = 1000000 * each;
    char *body = malloc(size);
    for (size_t at = 0; at < size; at += each)
        memcpy(body + at, deep->opening, each);
    for (size_t piece = 0; piece < 2; piece++) {
        struct outcome outcome = read_pieces(body, size, NULL, piece);
        cr_expect_eq(outcome.error.status, CODEC_SYNTAX);
        cr_expect_eq(outcome.error.offset, deep->offset);
    }
    free(body);
    return NULL;
}

/* Promise 16: a million levels are read with a small stack. */
Test(codec_grammar, promise_16_million_levels_take_no_stack) {
    struct deep deeps[] = {{"[", 16}, {"{\"a\":", 80}, {"[{\"a\":", 48}};
    for (size_t i = 0; i < COUNT(deeps); i++) {
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        /* The stack also contains the thread's own variables. */
        cr_assert_eq(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
        cr_assert_eq(pthread_create(&thread, &attributes, read_deep, &deeps[i]), 0);
        pthread_join(thread, NULL);
        pthread_attr_destroy(&attributes);
    }
}

Test(codec_grammar, long_numbers) {
    char body[5000];
    memset(body, '1', sizeof body);
    body[0] = '[';
    body[4097] = ']';
    struct outcome outcome = read_sized(body, 4098, NULL);
    cr_expect_eq(outcome.error.status, CODEC_OK);
    codec_document_free(outcome.document);
    expect_error_sized(body, 4097, NULL, CODEC_SYNTAX, NULL, 4097, "ends inside");
    body[4097] = '1';
    body[4098] = ']';
    expect_error_sized(body, 4099, NULL, CODEC_SYNTAX, NULL, 1, "4096");
    body[10] = 'x'; /* the first error is reported, not the length */
    expect_error_sized(body, 4099, NULL, CODEC_SYNTAX, NULL, 10, "not 'x'");
}

/* Every prefix of a good body is refused, with the offset of its end. */
Test(codec_grammar, truncation) {
    static const char body[] =
        "{\"dtype\": \"float64\", \"K\": [[1.5, -2e+3], [null, 0.25]], \"mask\": "
        "[true, false], \"h\": [{\"\\u0041\\ud83d\\ude00\xE2\x82\xAC\": -0.5}], "
        "\"bias\": [-Infinity], \"n\": null}";
    for (size_t size = 1; size < sizeof body - 1; size++)
        expect_error_sized(body, size, NULL, CODEC_SYNTAX, NULL, (long)size, "");
    codec_document_free(read_good(body));
}

/* Numbers may have to be written as integers. In matrices and elsewhere, the first one that is not
 * is refused, wherever it is cut. */
Test(codec_grammar, numbers_written_as_integers) {
    static const char *const refused[] = {"0.0", "4.0", "-4.0", "4e0", "40E-1", "-0", "0e0", "1.5"};
    static const char *const formats[] = {"{\"a\":[4,-4,0,%s]}", "{\"a\":[[1],[2],[3],[%s]]}",
                                          "{\"a\":{\"b\":    %s}}", "{\"a\":[\"\",\"x\", %s]}"};
    static const char *const places[] = {"/a/3", "/a/3/0", "/a/b", "/a/2"};
    static const long offsets[] = {13, 19, 14, 14};
    static const struct codec_options options = {.integers = true};
    for (size_t i = 0; i < COUNT(formats); i++) {
        char body[64], message[96];
        for (size_t k = 0; k < COUNT(refused); k++) {
            sprintf(body, formats[i], refused[k]);
            sprintf(message, "%s must be written as an integer, not as %s", places[i], refused[k]);
            expect_error_sized(body, strlen(body), &options, CODEC_CONTENT, places[i], offsets[i],
                               message);
            codec_document_free(read_good(body));
        }
        sprintf(body, formats[i], "-9007199254740993");
        struct outcome outcome = read_sized(body, strlen(body), &options);
        cr_expect_not_null(outcome.document, "%s: %s", body, outcome.error.message);
        codec_document_free(outcome.document);
    }
}
