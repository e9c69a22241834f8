/*
 * scalar.c - numbers and literals: a word is gathered until it ends, checked against the grammar
 * and given to the matrix around it (matrix.c) or to the skeleton. The first one inside of arrays
 * makes them a matrix.
 */
#include "codec/json/reader.h"

#include <string.h>

#include "codec/error.h"
#include "codec/json/number.h"

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
        *rule = "a number must not have a zero in front";
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

/* Words that other programs write have messages of their own. */
static bool not_json(struct codec_reader *reader, const char *text, size_t size, size_t offset) {
    static const char finite[] = "numbers must be finite";
    static const struct {
        const char *text, *hint;
    } words[] = {{"NaN", finite},          {"nan", finite},        {"-NaN", finite},
                 {"-nan", finite},         {"Infinity", finite},   {"inf", finite},
                 {"-Infinity", finite},    {"-inf", finite},       {"True", "write true"},
                 {"False", "write false"}, {"None", "write null"}, {"undefined", "write null"}};
    const char *key = reader->options.infinity_key;
    if (key != NULL && size == strlen("-Infinity") && memcmp(text, "-Infinity", size) == 0) {
        return reader_syntax(reader, offset, "-Infinity is not JSON: only \"%s\" takes it", key);
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (size == strlen(words[i].text) && memcmp(text, words[i].text, size) == 0) {
            return reader_syntax(reader, offset, "%s is not JSON: %s", words[i].text,
                                 words[i].hint);
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
                     enum reader_word *kind) {
    static const struct {
        const char *text;
        enum reader_word kind;
    } words[] = {{"null", READER_WORD_NULL},
                 {"true", READER_WORD_TRUE},
                 {"false", READER_WORD_FALSE},
                 {"-Infinity", READER_WORD_MINUS_INFINITY}};

    const char *rule = NULL;
    size_t good = 0;
    if (text[0] == '-' || is_digit(text[0])) {
        *kind = READER_WORD_NUMBER;
        good = check_number(text, size, &rule);
        if (rule == NULL) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (text[0] != words[i].text[0]) {
            continue;
        }
        if (text[0] == '-' && (size < 2 || text[1] != 'I' ||
                               !reader_is_under(reader, reader->options.infinity_key))) {
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
    const char *expected = *kind == READER_WORD_NUMBER ? "" : "expected ";
    if (good == size) {
        return reader_syntax(reader, offset + good, "%s%s", expected, rule);
    }
    unsigned char byte = (unsigned char)text[good];
    if (byte > 0x20 && byte < 0x7F) {
        return reader_syntax(reader, offset + good, "%s%s, not '%c'", expected, rule, byte);
    }
    return reader_syntax(reader, offset + good, "%s%s, not the byte 0x%02X", expected, rule, byte);
}

/* --------------------------------------------------------------------------------------- words */

/* A number outside of arrays is written anew for cJSON, which reads only the first 63
 * characters. */
static bool emit_word(struct codec_reader *reader, enum reader_word kind, const char *text,
                      size_t size) {
    char number[NUMBER_SIZE];
    double value;
    switch (kind) {
    case READER_WORD_NUMBER:
        if (!number_read_double(text, size, &value)) {
            return reader_emit(reader, value < 0 ? "-1e999" : "1e999", value < 0 ? 6 : 5);
        }
        return reader_emit(reader, number, number_write_double(number, value));
    case READER_WORD_MINUS_INFINITY:
        return reader_emit(reader, "-1e999", 6);
    default:
        return reader_emit(reader, text, size);
    }
}

static bool word_done(struct codec_reader *reader, const char *text, size_t size, size_t offset) {
    enum reader_word kind;
    if (!classify(reader, text, size, offset, &kind)) {
        return false;
    }
    if (reader->held > 0 &&
        !reader_begin_matrix(reader, kind == READER_WORD_TRUE || kind == READER_WORD_FALSE)) {
        return false;
    }
    return reader->lifting ? reader_add_element(reader, kind, text, size, offset)
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

    enum reader_word kind; /* too long: say so, unless something is wrong already */
    if (classify(reader, reader->word, reader->word_size, reader->word_offset, &kind)) {
        reader_syntax(reader, reader->word_offset, "a number has more than %d characters",
                      READER_MAX_WORD);
    }
    return NULL;
}
