/*
 * word.c - numbers and literals: a word is gathered until it ends, checked against the grammar and
 * put into the matrix around it or into the skeleton. The first one inside of arrays makes them a
 * matrix. Where rows and matrices end it leaves to reader.c, how numbers are converted to lift.h
 * and number.h.
 */
#include "codec/reader.h"

#include <stdlib.h>
#include <string.h>

#include "codec/error.h"
#include "codec/number.h"

enum {
    MAX_ARRAYS = 4096 /* lifted arrays of one body: each costs a buffer and a record */
};

enum word_kind {
    WORD_NUMBER,
    WORD_NULL,
    WORD_TRUE,
    WORD_FALSE,
    WORD_MINUS_INFINITY
};

/* ------------------------------------------------------------------------------------- grammar */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Checks text[0..size) against the grammar of numbers. Returns `size`, or the index of the first
 * byte that does not fit, with what is wrong in *rule; the index is `size` if the number stops too
 * early. */
static size_t check_number(const char *text, size_t size, const char **rule) {
    size_t i = text[0] == '-';
    *rule = "expected a digit after '-'";
    if (i == size || !is_digit(text[i])) {
        return i;
    }
    if (text[i] == '0' && i + 1 < size && is_digit(text[i + 1])) {
        *rule = "a number must not start with a zero and go on with digits";
        return i + 1;
    }
    while (i < size && is_digit(text[i])) {
        i++;
    }
    if (i < size && text[i] == '.') {
        i++;
        *rule = "expected a digit after '.'";
        if (i == size || !is_digit(text[i])) {
            return i;
        }
        while (i < size && is_digit(text[i])) {
            i++;
        }
    }
    if (i < size && (text[i] == 'e' || text[i] == 'E')) {
        i++;
        i += i < size && (text[i] == '+' || text[i] == '-');
        *rule = "expected a digit in the exponent";
        if (i == size || !is_digit(text[i])) {
            return i;
        }
        while (i < size && is_digit(text[i])) {
            i++;
        }
    }
    *rule = i < size ? "expected the number to end" : NULL;
    return i;
}

/* Words that other programs write where JSON has no number, and their like: a message of their
 * own. */
static bool not_json(struct codec_reader *reader, const char *text, size_t size, size_t offset) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity", "-NaN",
                                        "nan", "inf",      "-inf"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (size == strlen(words[i]) && memcmp(text, words[i], size) == 0) {
            return reader_syntax(
                reader, offset,
                i == 2 ? "%s is not JSON (only \"bias\" takes it)" : "%s is not JSON", words[i]);
        }
    }
    if (offset == 0 && size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        return reader_syntax(reader, 0,
                             "the body starts with a byte order mark, which is not JSON");
    }
    return true;
}

/* What kind of word text[0..size) is; false with the error set if it is none. */
static bool classify(struct codec_reader *reader, const char *text, size_t size, size_t offset,
                     enum word_kind *kind) {
    static const struct {
        const char *text;
        enum word_kind kind;
    } words[] = {{"null", WORD_NULL},
                 {"true", WORD_TRUE},
                 {"false", WORD_FALSE},
                 {"-Infinity", WORD_MINUS_INFINITY}};

    const char *rule = NULL;
    size_t good = 0;
    if (text[0] == '-' || is_digit(text[0])) {
        *kind = WORD_NUMBER;
        good = check_number(text, size, &rule);
        if (rule == NULL) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (text[0] != words[i].text[0]) {
            continue;
        }
        if (text[0] == '-' && (size < 2 || text[1] != 'I' || !reader_is_under(reader, "bias"))) {
            continue;
        }
        good = 0;
        while (good < size && text[good] == words[i].text[good] && text[good] != '\0') {
            good++;
        }
        *kind = words[i].kind;
        rule = words[i].text;
        if (good == size && words[i].text[good] == '\0') {
            return true;
        }
    }

    if (!not_json(reader, text, size, offset)) {
        return false;
    }
    if (rule == NULL) {
        return reader_unexpected(reader, offset, (unsigned char)text[0]);
    }
    const char *expected = *kind == WORD_NUMBER ? "" : "expected ";
    if (good == size) {
        return reader_syntax(reader, offset + good, "%s%s", expected, rule);
    }
    unsigned char byte = (unsigned char)text[good];
    if (byte > 0x20 && byte < 0x7F) {
        return reader_syntax(reader, offset + good, "%s%s, not '%c'", expected, rule, byte);
    }
    return reader_syntax(reader, offset + good, "%s%s, not the byte 0x%02X", expected, rule, byte);
}

/* ------------------------------------------------------------------------------------ matrices */

/* The brackets held back turn out to be a matrix: opens it. */
static bool begin_lift(struct codec_reader *reader, bool is_bool) {
    size_t rank = reader->held;
    reader->base = reader->depth - rank;
    if (rank > ATTN_MAX_RANK) {
        return reader_content(reader, reader->base, reader->frames[reader->base].offset,
                              "an array of numbers must have rank 1 to %d, not %zu", ATTN_MAX_RANK,
                              rank);
    }
    if (reader->tensor_count == MAX_ARRAYS) {
        codec_error_set(&reader->error, CODEC_TOO_LARGE, "more than %d arrays of numbers",
                        MAX_ARRAYS);
        return false;
    }
    if (reader->tensor_count == reader->tensor_capacity) {
        size_t capacity = reader->tensor_capacity > 0 ? reader->tensor_capacity * 2 : 8;
        struct lifted *tensors = realloc(reader->tensors, capacity * sizeof *tensors);
        if (tensors == NULL) {
            return codec_no_memory(&reader->error);
        }
        reader->tensors = tensors;
        reader->tensor_capacity = capacity;
    }
    attn_dtype dtype = is_bool ? ATTN_BOOL : reader->dtype;
    lifted_init(&reader->tensors[reader->tensor_count++], dtype, (int)rank);
    reader->lifted_floats = reader->lifted_floats || dtype == ATTN_FLOAT32;
    reader->held = 0;
    reader->lifting = true;
    return true;
}

/* Stores a checked word in the open matrix. */
static bool lift_word(struct codec_reader *reader, enum word_kind kind, const char *text,
                      size_t size, size_t offset) {
    static const char *const names[] = {"a number", "null", "a boolean", "a boolean", "-Infinity"};
    struct lifted *tensor = &reader->tensors[reader->tensor_count - 1];
    bool is_bool = kind == WORD_TRUE || kind == WORD_FALSE;
    if (reader->depth - reader->base < (size_t)tensor->rank ||
        is_bool != (tensor->dtype == ATTN_BOOL)) {
        return reader_misfit(reader, offset, names[kind]);
    }

    size_t limit = reader->limits.max_tensors;
    switch (lifted_room(tensor, limit - reader->tensor_bytes)) {
    case CODEC_OK:
        break;
    case CODEC_TOO_LARGE:
        codec_error_set(&reader->error, CODEC_TOO_LARGE,
                        "the matrices need more than the limit of %zu bytes", limit);
        return false;
    default:
        return codec_no_memory(&reader->error);
    }
    if (is_bool) {
        lifted_add_bool(tensor, kind == WORD_TRUE);
    } else if (kind == WORD_NUMBER) {
        lifted_add_number(tensor, text, size);
    } else {
        lifted_add_null(tensor);
    }
    return true;
}

const char *reader_scan_run(struct codec_reader *reader, const char *p, const char *end) {
    struct lifted *tensor = &reader->tensors[reader->tensor_count - 1];
    if (tensor->dtype == ATTN_BOOL || reader->depth - reader->base != (size_t)tensor->rank) {
        return p;
    }
    size_t added;
    bool after;
    p = lifted_add_run(tensor, p, end, &added, &after);
    if (added > 0) {
        reader->frames[reader->depth - 1].count += added;
        reader->expect = after ? READER_EXPECT_COMMA_OR_END : READER_EXPECT_VALUE;
    }
    return p;
}

/* --------------------------------------------------------------------------------------- words */

/* A number outside of arrays is written anew for cJSON, which reads only the first 63
 * characters. */
static bool emit_word(struct codec_reader *reader, enum word_kind kind, const char *text,
                      size_t size) {
    char number[NUMBER_SIZE];
    double value;
    switch (kind) {
    case WORD_NUMBER:
        if (!number_read_double(text, size, &value)) {
            return reader_emit(reader, value < 0 ? "-1e999" : "1e999", value < 0 ? 6 : 5);
        }
        return reader_emit(reader, number, number_write_double(number, value));
    case WORD_MINUS_INFINITY:
        return reader_emit(reader, "-1e999", 6);
    default:
        return reader_emit(reader, text, size);
    }
}

static bool word_done(struct codec_reader *reader, const char *text, size_t size, size_t offset) {
    enum word_kind kind;
    if (!classify(reader, text, size, offset, &kind)) {
        return false;
    }
    if (reader->held > 0 && !begin_lift(reader, kind == WORD_TRUE || kind == WORD_FALSE)) {
        return false;
    }
    return reader->lifting ? lift_word(reader, kind, text, size, offset)
                           : emit_word(reader, kind, text, size);
}

bool reader_end_word(struct codec_reader *reader) {
    reader->inside = READER_INSIDE_NOTHING;
    return word_done(reader, reader->word, reader->word_size, reader->word_offset);
}

const char *reader_scan_word(struct codec_reader *reader, const char *p, const char *end) {
    if (reader->inside == READER_INSIDE_NOTHING) {
        if (!reader_wants_value(reader)) {
            reader_unexpected(reader, reader_offset(reader, p), (unsigned char)*p);
            return NULL;
        }
        reader->word_offset = reader_offset(reader, p);
        reader->word_size = 0;
    }
    const char *start = p;
    const char *limit = (size_t)(end - p) > READER_MAX_WORD - reader->word_size
                            ? p + (READER_MAX_WORD - reader->word_size)
                            : end;
    while (p < limit && !codec_ends_word[(unsigned char)*p]) {
        p++;
    }
    size_t size = (size_t)(p - start);

    bool complete = p < end && codec_ends_word[(unsigned char)*p];
    if (complete && reader->inside == READER_INSIDE_NOTHING) { /* the usual case: no copy */
        return word_done(reader, start, size, reader->word_offset) ? p : NULL;
    }
    memcpy(reader->word + reader->word_size, start, size);
    reader->word_size += size;
    reader->inside = READER_INSIDE_WORD;
    if (!complete && p == end) {
        return p;
    }
    if (complete) {
        return reader_end_word(reader) ? p : NULL;
    }

    enum word_kind kind; /* too long: say so, unless something is wrong already */
    if (classify(reader, reader->word, reader->word_size, reader->word_offset, &kind)) {
        reader_syntax(reader, reader->word_offset, "a number is longer than %d characters",
                      READER_MAX_WORD);
    }
    return NULL;
}
