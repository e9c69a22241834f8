/*
 * scan_scalar.c - scalars: numbers and literals, but not strings. A scalar is gathered until it
 * ends, checked against the grammar, and added to the tensor around it (open_tensor.c) or to the
 * document. The first scalar inside of arrays makes these arrays a tensor, unless reader.c did.
 */
#include "codec/json/reader.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "codec/error.h"
#include "codec/json/number.h"

enum {
    KEYS_TEXT = 64 /* room for the names of the keys that take -Infinity */
};

/* ------------------------------------------------------------------------------------- grammar */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Returns the end of the digits that begin at text[i]. */
static size_t after_digits(const char *text, size_t size, size_t i) {
    while (i < size && is_digit(text[i])) {
        i++;
    }
    return i;
}

/* Checks text[0..size) against the grammar of numbers. Returns `size` with *rule NULL if it is a
 * number. Otherwise *rule says what is wrong, and the result is the index of the first byte that
 * does not fit, or `size` if the number stops too early. */
static size_t check_number(const char *text, size_t size, const char **rule) {
    size_t first = text[0] == '-', i = after_digits(text, size, first);
    *rule = "expected a digit after '-'";
    if (i == first) {
        return i;
    }
    if (text[first] == '0' && i > first + 1) {
        *rule = "a number must not have a zero in front";
        return first + 1;
    }
    if (i < size && text[i] == '.') {
        first = i + 1;
        i = after_digits(text, size, first);
        *rule = "expected a digit after '.'";
    }
    if (i > first && i < size && (text[i] == 'e' || text[i] == 'E')) {
        first = i + 1;
        first += first < size && (text[first] == '+' || text[first] == '-');
        i = after_digits(text, size, first);
        *rule = "expected a digit in the exponent";
    }
    if (i > first) {
        *rule = i < size ? "expected the number to end" : NULL;
    }
    return i;
}

/* Returns whether a number is written as an integer. -0 is none: only floats have it. */
static bool is_integer(const char *text, size_t size) {
    const size_t first = text[0] == '-';
    return !(first == 1 && text[1] == '0') && after_digits(text, size, first) == size;
}

/* Refuses a number that is not written as an integer. */
static bool refuse_fraction(struct codec_reader *reader, const char *text, size_t size,
                            size_t offset) {
    char quoted[CODEC_QUOTE_SIZE];
    struct codec_error named;
    reader_content(reader, reader->depth, offset, "%s", "");
    codec_quote(quoted, reader->error.pointer, strlen(reader->error.pointer));
    codec_error_set(&named, CODEC_CONTENT, "%s must be written as an integer, not as %.*s", quoted,
                    (int)(size < TENSOR_TEXT ? size : TENSOR_TEXT), text);
    memcpy(reader->error.message, named.message, sizeof named.message);
    return false;
}

/* Returns the key whose value is being read, if it may hold -Infinity, or NULL. */
static const char *takes_infinity(const struct codec_reader *reader) {
    const char *const *key = reader->options.infinity_keys;
    while (key != NULL && *key != NULL && !reader_is_under(reader, *key)) {
        key++;
    }
    return key != NULL ? *key : NULL;
}

/* Writes which keys take -Infinity: "bias" takes, or "bias" and "decay" take. */
static void put_infinity_keys(const struct codec_reader *reader, char out[KEYS_TEXT]) {
    const char *const *keys = reader->options.infinity_keys;
    size_t used = 0, i = 0;
    for (; keys[i] != NULL && used < KEYS_TEXT; i++) {
        used += (size_t)snprintf(out + used, KEYS_TEXT - used, "%s\"%s\"", i > 0 ? " and " : "",
                                 keys[i]);
    }
    snprintf(out + used, used < KEYS_TEXT ? KEYS_TEXT - used : 0, i > 1 ? " take" : " takes");
}

const char codec_lfs_pointer[] =
    "this is a pointer of Git LFS and not the file itself, which \"git lfs pull\" fetches";

/* Refuses texts that other programs write, and a byte order mark, with messages of their own. True
 * if the text is none of them. */
static bool not_json(struct codec_reader *reader, const char *text, size_t size, size_t offset) {
    static const char finite[] = "numbers must be finite";
    static const struct {
        const char *text, *hint;
    } others[] = {{"NaN", finite},          {"nan", finite},        {"-NaN", finite},
                  {"-nan", finite},         {"Infinity", finite},   {"inf", finite},
                  {"-Infinity", finite},    {"-inf", finite},       {"True", "write true"},
                  {"False", "write false"}, {"None", "write null"}, {"undefined", "write null"}};
    const char *key = takes_infinity(reader);
    char keys[KEYS_TEXT];
    const char *null_key = reader->options.null_key;
    const bool minus_infinity = size == strlen("-Infinity") && memcmp(text, "-Infinity", size) == 0;
    if (minus_infinity && null_key != NULL && reader_is_under(reader, null_key)) {
        return reader_syntax(reader, offset,
                             "-Infinity is not JSON: write null for minus infinity in \"%s\"",
                             null_key);
    }
    if (minus_infinity && reader->options.infinity_keys != NULL) {
        put_infinity_keys(reader, keys);
        return reader_syntax(reader, offset, "-Infinity is not JSON: only %s it", keys);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (size == strlen(others[i].text) && memcmp(text, others[i].text, size) == 0) {
            if (key != NULL && others[i].hint == finite) {
                return reader_syntax(
                    reader, offset,
                    "%s is not JSON: \"%s\" takes finite numbers, null and -Infinity",
                    others[i].text, key);
            }
            return reader_syntax(reader, offset, "%s is not JSON: %s", others[i].text,
                                 others[i].hint);
        }
    }
    if (offset == 0 && size == strlen("version") && memcmp(text, "version", size) == 0) {
        return reader_syntax(reader, 0, "%s", codec_lfs_pointer);
    }
    if (offset == 0 && size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        reader_syntax(reader, 0, "the body starts with a byte order mark, which is not JSON");
        reader->error.no_json = false; /* JSON may follow */
        return false;
    }
    return true;
}

/* Finds what kind of scalar text[0..size) is. False with the error set if it is none. */
static bool classify(struct codec_reader *reader, const char *text, size_t size, size_t offset,
                     enum reader_scalar *kind) {
    static const struct {
        const char *text;
        enum reader_scalar kind;
    } literals[] = {
        {"null", READER_SCALAR_NULL},         {"true", READER_SCALAR_TRUE},
        {"false", READER_SCALAR_FALSE},       {"-Infinity", READER_SCALAR_MINUS_INFINITY},
        {"Infinity", READER_SCALAR_INFINITY}, {"NaN", READER_SCALAR_NAN}};

    const bool settings = reader->options.settings;
    const char *rule = NULL;
    size_t good = 0;
    if (text[0] == '-' || is_digit(text[0])) {
        *kind = READER_SCALAR_NUMBER;
        good = check_number(text, size, &rule);
        if (rule == NULL && reader->options.integers && !is_integer(text, size)) {
            return refuse_fraction(reader, text, size, offset);
        }
        if (rule == NULL) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof literals / sizeof literals[0]; i++) {
        if (text[0] != literals[i].text[0]) {
            continue;
        }
        if (text[0] == '-' &&
            (size < 2 || text[1] != 'I' || (takes_infinity(reader) == NULL && !settings))) {
            continue;
        }
        if (literals[i].kind >= READER_SCALAR_INFINITY && !settings) {
            continue;
        }
        good = 0;
        while (good < size && text[good] == literals[i].text[good] && text[good] != '\0') {
            good++;
        }
        *kind = literals[i].kind;
        rule = literals[i].text;
        if (good == size && literals[i].text[good] == '\0') {
            return true;
        }
    }

    if (!not_json(reader, text, size, offset)) {
        return false;
    }
    if (rule == NULL) {
        return reader_unexpected(reader, offset, (unsigned char)text[0]);
    }
    const char *expected = *kind == READER_SCALAR_NUMBER ? "" : "expected ";
    if (good == size) {
        return reader_syntax(reader, offset + good, "%s%s", expected, rule);
    }
    unsigned char byte = (unsigned char)text[good];
    if (byte > 0x20 && byte < 0x7F) {
        return reader_syntax(reader, offset + good, "%s%s, not '%c'", expected, rule, byte);
    }
    return reader_syntax(reader, offset + good, "%s%s, not the byte 0x%02X", expected, rule, byte);
}

/* ------------------------------------------------------------------------------------- scalars */

/* Adds a scalar to the document. A number out of range becomes infinite. */
static bool add_scalar(struct codec_reader *reader, enum reader_scalar kind, const char *text,
                       size_t size) {
    struct codec_value *value = reader_count(reader, size) ? reader_add(reader, CODEC_NULL) : NULL;
    if (value == NULL) {
        return false;
    }
    double number = kind == READER_SCALAR_NAN        ? (double)NAN
                    : kind == READER_SCALAR_INFINITY ? (double)INFINITY
                                                     : -(double)INFINITY;
    if (kind == READER_SCALAR_NUMBER) {
        number_read_double(text, size, &number);
    }
    if (kind == READER_SCALAR_NUMBER || kind >= READER_SCALAR_MINUS_INFINITY) {
        codec_set_number(value, number);
    } else if (kind != READER_SCALAR_NULL) {
        codec_set_bool(value, kind == READER_SCALAR_TRUE);
    }
    return true;
}

/* Adds a complete scalar to the tensor or to the document. */
static bool scalar_done(struct codec_reader *reader, const char *text, size_t size, size_t offset) {
    enum reader_scalar kind;
    if (!classify(reader, text, size, offset, &kind)) {
        return false;
    }
    if (reader->held > 0 &&
        !reader_begin_tensor(reader, kind == READER_SCALAR_TRUE || kind == READER_SCALAR_FALSE)) {
        return false;
    }
    return reader->tensor != NULL ? reader_add_element(reader, kind, text, size, offset)
                                  : add_scalar(reader, kind, text, size);
}

bool reader_end_scalar(struct codec_reader *reader) {
    reader->inside = READER_INSIDE_NOTHING;
    return scalar_done(reader, reader->scalar, reader->scalar_size, reader->scalar_offset);
}

const char *reader_scan_scalar(struct codec_reader *reader, const char *p, const char *end) {
    if (reader->inside == READER_INSIDE_NOTHING) {
        if (!reader_wants_value(reader)) {
            reader_unexpected(reader, reader_offset(reader, p), (unsigned char)*p);
            return NULL;
        }
        reader->scalar_offset = reader_offset(reader, p);
        reader->scalar_size = 0;
    }
    const char *start = p;
    const char *limit = (size_t)(end - p) > READER_MAX_SCALAR - reader->scalar_size
                            ? p + (READER_MAX_SCALAR - reader->scalar_size)
                            : end;
    while (p < limit && !codec_ends_scalar[(unsigned char)*p]) {
        p++;
    }
    size_t size = (size_t)(p - start);

    bool complete = p < end && codec_ends_scalar[(unsigned char)*p];
    if (complete && reader->inside == READER_INSIDE_NOTHING) { /* the usual case needs no copy */
        return scalar_done(reader, start, size, reader->scalar_offset) ? p : NULL;
    }
    memcpy(reader->scalar + reader->scalar_size, start, size);
    reader->scalar_size += size;
    reader->inside = READER_INSIDE_SCALAR;
    if (!complete && p == end) {
        return p;
    }
    if (complete) {
        return reader_end_scalar(reader) ? p : NULL;
    }

    /* The scalar is too long. That is the error, unless its beginning is wrong already. */
    enum reader_scalar kind;
    if (classify(reader, reader->scalar, reader->scalar_size, reader->scalar_offset, &kind)) {
        reader_syntax(reader, reader->scalar_offset, "a number has more than %d characters",
                      READER_MAX_SCALAR);
    }
    return NULL;
}
