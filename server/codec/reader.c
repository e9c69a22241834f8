/*
 * reader.c - the incremental scanner: strict RFC 8259, fed in chunks that may be cut anywhere.
 * Arrays of numbers or booleans go to typed buffers (lift.h), everything else to the skeleton, a
 * small JSON text for document.c.
 *
 * What a chunk boundary may cut is either inside a string, which is checked byte by byte, or
 * inside a word (a number or a literal), which is gathered until it ends. Nothing is decided
 * before that, so the outcome does not depend on the cuts. There is no recursion: the client's
 * nesting lives in `frames`.
 */
#include "codec/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/document.h"
#include "codec/error.h"
#include "codec/lift.h"
#include "codec/number.h"

enum {
    DEFAULT_DEPTH = 16,
    DEFAULT_SKELETON = 1024 * 1024,
    MAX_WORD = 4096,   /* characters of a number */
    MAX_KEYS = 1024,   /* of all open objects together: they are compared one by one */
    MAX_ARRAYS = 4096, /* lifted arrays of one body: each costs a buffer and a record */
    KEEP_BLOCK = 16 * 1024,
    KEEP_BLOCKS = 16,
    KEEP_BYTES = KEEP_BLOCK * KEEP_BLOCKS, /* of the body, for a late "dtype" */
};

/* What the grammar wants next. */
enum expect {
    VALUE,
    VALUE_OR_END,
    KEY,
    KEY_OR_END,
    COLON,
    COMMA_OR_END,
    NOTHING
};

/* What the chunk boundary is inside of. */
enum inside {
    BETWEEN,
    WORD,
    STRING
};

enum string_state {
    PLAIN,
    ESCAPE,
    HEX,
    LOW_BACKSLASH,
    LOW_U,
    CONTINUATION
};

/* An open array or object. */
struct frame {
    bool is_object;
    size_t offset;    /* of its bracket */
    size_t count;     /* complete elements */
    size_t first_key; /* of an object, in reader.keys */
    size_t key;       /* the current one */
};

struct key {
    uint32_t hash;
    size_t start, size; /* in reader.names, unescaped */
};

struct text {
    char *data;
    size_t size, capacity;
};

struct codec_reader {
    struct codec_limits limits;
    struct codec_error error;
    size_t offset; /* bytes of the body before the current chunk */
    const char *chunk;

    enum expect expect;
    enum inside inside;
    size_t depth;
    size_t held; /* innermost open arrays that are not in the skeleton yet: they may be a matrix */
    struct text skeleton;

    /* The current string. */
    enum string_state string_state;
    bool string_is_key;
    size_t string_offset, string_start; /* in the body, in the skeleton */
    unsigned code, high;                /* \u escapes: the digits so far, the first of a pair */
    int digits;
    int continuations; /* UTF-8: bytes to come, and the range of the next one */
    unsigned char next_min, next_max;

    struct key *keys; /* of all open objects */
    size_t key_count, key_capacity;
    struct text names;

    /* The lifted arrays. While `lifting`, the last one is open; frames[base] is its outermost
     * level. */
    struct lifted *tensors;
    size_t tensor_count, tensor_capacity, tensor_bytes;
    bool lifting;
    size_t base;

    attn_dtype dtype;
    bool dtype_known;   /* by the top-level key "dtype", or nothing is kept any more */
    bool lifted_floats; /* float32 arrays that a late "dtype" would have to read again */
    bool again;         /* it does: read the kept bytes again, as float64 */
    char *kept[KEEP_BLOCKS];

    struct frame frames[CODEC_MAX_DEPTH];
    size_t word_offset, word_size;
    char word[MAX_WORD];
};

/* -------------------------------------------------------------------------------------- errors */

static size_t offset_of(const struct codec_reader *reader, const char *p) {
    return reader->offset + (size_t)(p - reader->chunk);
}

/* All return false, so that the scanner can say `return fail(...)`. */
static bool __attribute__((format(printf, 3, 4)))
syntax(struct codec_reader *reader, size_t offset, const char *format, ...) {
    va_list args;
    reader->error =
        (struct codec_error){.status = CODEC_SYNTAX, .has_offset = true, .offset = offset};
    va_start(args, format);
    codec_error_message(&reader->error, format, args);
    va_end(args);
    return false;
}

/* Adds the place of the current element of the `levels` outermost open arrays and objects. */
static void point(struct codec_reader *reader, size_t levels) {
    reader->error.has_pointer = true;
    for (size_t i = 0; i < levels; i++) {
        const struct frame *frame = &reader->frames[i];
        const struct key *key = frame->is_object ? &reader->keys[frame->key] : NULL;
        if (key != NULL
                ? !codec_pointer_name(&reader->error, reader->names.data + key->start, key->size)
                : !codec_pointer_index(&reader->error, frame->count)) {
            return;
        }
    }
}

static bool __attribute__((format(printf, 4, 5)))
content(struct codec_reader *reader, size_t levels, size_t offset, const char *format, ...) {
    va_list args;
    reader->error =
        (struct codec_error){.status = CODEC_CONTENT, .has_offset = true, .offset = offset};
    va_start(args, format);
    codec_error_message(&reader->error, format, args);
    va_end(args);
    point(reader, levels);
    return false;
}

/* A byte that has no place here; what would have one follows from `expect`. */
static bool unexpected(struct codec_reader *reader, size_t offset, unsigned char byte) {
    bool in_object = reader->depth > 0 && reader->frames[reader->depth - 1].is_object;
    const char *wanted = NULL;
    switch (reader->expect) {
    case VALUE:
        wanted = "expected a value";
        break;
    case VALUE_OR_END:
        wanted = "expected a value or ']'";
        break;
    case KEY:
        wanted = "expected a key in double quotes";
        break;
    case KEY_OR_END:
        wanted = "expected a key in double quotes or '}'";
        break;
    case COLON:
        wanted = "expected ':' after the key";
        break;
    case COMMA_OR_END:
        wanted = in_object ? "expected ',' or '}'" : "expected ',' or ']'";
        break;
    case NOTHING:
        wanted = "expected nothing more after the JSON value";
        break;
    }
    if (byte > 0x20 && byte < 0x7F) {
        return syntax(reader, offset, "%s, not '%c'", wanted, byte);
    }
    return syntax(reader, offset, "%s, not the byte 0x%02X", wanted, byte);
}

/* --------------------------------------------------------------------------- skeleton and keys */

static bool append(struct codec_reader *reader, struct text *text, const char *bytes, size_t size) {
    if (text->data == NULL || size > text->capacity - text->size) {
        size_t capacity = text->capacity > 0 ? text->capacity : 256;
        while (capacity - text->size < size) {
            capacity *= 2; /* both texts are bounded by max_skeleton, and `size` by it as well */
        }
        char *data = realloc(text->data, capacity);
        if (data == NULL) {
            return codec_no_memory(&reader->error);
        }
        text->data = data;
        text->capacity = capacity;
    }
    memcpy(text->data + text->size, bytes, size);
    text->size += size;
    return true;
}

static bool emit(struct codec_reader *reader, const char *bytes, size_t size) {
    size_t limit = reader->limits.max_skeleton;
    if (size > limit - reader->skeleton.size) {
        codec_error_set(&reader->error, CODEC_TOO_LARGE,
                        "the body without its matrices is over the limit of %zu bytes", limit);
        return false;
    }
    return append(reader, &reader->skeleton, bytes, size);
}

/* The brackets held back turn out to be no matrix. */
static bool emit_held(struct codec_reader *reader) {
    for (; reader->held > 0; reader->held--) {
        if (!emit(reader, "[", 1)) {
            return false;
        }
    }
    return true;
}

static unsigned hex_value(char c) {
    return (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
}

static unsigned hex4(const char *text) {
    return hex_value(text[0]) << 12 | hex_value(text[1]) << 8 | hex_value(text[2]) << 4 |
           hex_value(text[3]);
}

static size_t put_utf8(char *out, unsigned code) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t size = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, code >>= 6) {
        out[i] = (char)(0x80 | (code & 0x3F));
    }
    out[0] = (char)((0xF00 >> size & 0xF0) | code);
    return size;
}

/* Undoes the escapes of a checked string; `out` may be as small as the string. Returns the size. */
static size_t unescape(const char *text, size_t size, char *out) {
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '\\') {
            out[used++] = text[i];
        } else if (text[++i] == 'u') {
            unsigned code = hex4(text + i + 1);
            i += 4;
            if (code >= 0xD800 && code < 0xDC00) {
                code = 0x10000 + ((code - 0xD800) << 10) + (hex4(text + i + 3) - 0xDC00);
                i += 6;
            }
            used += put_utf8(out + used, code);
        } else {
            const char *known = strchr(from, text[i]);
            out[used++] = known != NULL ? to[known - from] : text[i];
        }
    }
    return used;
}

static bool key_is(const struct codec_reader *reader, const struct frame *frame, const char *name) {
    const struct key *key = &reader->keys[frame->key];
    return key->size == strlen(name) &&
           memcmp(reader->names.data + key->start, name, key->size) == 0;
}

/* Adds the key that stands at skeleton[start..end), unescaped, to the keys of the innermost
 * object. */
static bool add_key(struct codec_reader *reader, size_t start, size_t end) {
    struct frame *frame = &reader->frames[reader->depth - 1];
    if (reader->key_count == MAX_KEYS) {
        codec_error_set(&reader->error, CODEC_TOO_LARGE, "more than %d keys in nested objects",
                        MAX_KEYS);
        return false;
    }
    if (reader->key_count == reader->key_capacity) {
        size_t capacity = reader->key_capacity > 0 ? reader->key_capacity * 2 : 16;
        struct key *keys = realloc(reader->keys, capacity * sizeof *keys);
        if (keys == NULL) {
            return codec_no_memory(&reader->error);
        }
        reader->keys = keys;
        reader->key_capacity = capacity;
    }

    struct key key = {.hash = 2166136261u, .start = reader->names.size};
    if (!append(reader, &reader->names, reader->skeleton.data + start, end - start)) {
        return false;
    }
    char *name = reader->names.data + key.start;
    key.size = unescape(reader->skeleton.data + start, end - start, name);
    reader->names.size = key.start + key.size;
    for (size_t i = 0; i < key.size; i++) {
        key.hash = (key.hash ^ (unsigned char)name[i]) * 16777619u; /* FNV-1a */
    }

    for (size_t i = frame->first_key; i < reader->key_count; i++) {
        const struct key *other = &reader->keys[i];
        if (other->hash != key.hash || other->size != key.size ||
            memcmp(reader->names.data + other->start, name, key.size) != 0) {
            continue;
        }
        char quoted[CODEC_QUOTE_SIZE];
        codec_quote(quoted, name, key.size);
        syntax(reader, reader->string_offset, "the key \"%s\" is there twice", quoted);
        frame->key = i;
        point(reader, reader->depth);
        return false;
    }
    frame->key = reader->key_count;
    reader->keys[reader->key_count++] = key;
    return true;
}

/* ----------------------------------------------------------------------------------- structure */

static bool wants_value(const struct codec_reader *reader) {
    return reader->expect == VALUE || reader->expect == VALUE_OR_END;
}

static void value_done(struct codec_reader *reader) {
    if (reader->depth == 0) {
        reader->expect = NOTHING;
        return;
    }
    reader->frames[reader->depth - 1].count++;
    reader->expect = COMMA_OR_END;
}

/* An element that does not fit into the matrix around it. */
static bool misfit(struct codec_reader *reader, size_t offset, const char *what) {
    const struct lifted *tensor = &reader->tensors[reader->tensor_count - 1];
    const char *others = tensor->dtype == ATTN_BOOL ? "booleans" : "numbers";
    if (reader->depth - reader->base < (size_t)tensor->rank) {
        others = "arrays";
    }
    return content(reader, reader->depth, offset, "%s stands where all others are %s", what,
                   others);
}

static bool open_frame(struct codec_reader *reader, size_t offset, bool is_object) {
    if (!wants_value(reader)) {
        return unexpected(reader, offset, is_object ? '{' : '[');
    }
    if (reader->depth == reader->limits.max_depth) {
        return syntax(reader, offset, "nested deeper than %zu levels", reader->depth);
    }
    if (reader->lifting) {
        const struct lifted *tensor = &reader->tensors[reader->tensor_count - 1];
        if (is_object) {
            return misfit(reader, offset, "an object");
        }
        if (reader->depth - reader->base == (size_t)tensor->rank) {
            return misfit(reader, offset, "an array");
        }
    } else if (is_object) {
        if (!emit_held(reader) || !emit(reader, "{", 1)) {
            return false;
        }
    } else {
        reader->held++;
    }
    reader->frames[reader->depth++] =
        (struct frame){.is_object = is_object, .offset = offset, .first_key = reader->key_count};
    reader->expect = is_object ? KEY_OR_END : VALUE_OR_END;
    return true;
}

/* Charges the tensor just completed and leaves its index in the skeleton. */
static bool end_lift(struct codec_reader *reader) {
    struct lifted *tensor = &reader->tensors[reader->tensor_count - 1];
    lifted_trim(tensor);
    reader->tensor_bytes += tensor->count * attn_dtype_size(tensor->dtype);
    reader->lifting = false;

    char place[32];
    int size = snprintf(place, sizeof place, "[%zu]", reader->tensor_count - 1);
    return emit(reader, place, (size_t)size);
}

/* A row of the matrix ends: it must be as long as those before it. */
static bool end_row(struct codec_reader *reader) {
    struct lifted *tensor = &reader->tensors[reader->tensor_count - 1];
    const struct frame *row = &reader->frames[reader->depth - 1];
    size_t level = reader->depth - 1 - reader->base;
    size_t count = row->count, usual = tensor->shape[level];

    reader->depth--;
    if (count == 0) {
        return content(reader, reader->depth, row->offset, "the row is empty");
    }
    if (usual != 0 && count != usual) {
        const char *what = tensor->dtype == ATTN_BOOL ? "boolean" : "number";
        if (level + 1 < (size_t)tensor->rank) {
            what = "row";
        }
        return content(reader, reader->depth, row->offset,
                       "row has %zu %s%s, the rows before it have %zu", count, what,
                       count == 1 ? "" : "s", usual);
    }
    tensor->shape[level] = count;
    if (reader->depth == reader->base && !end_lift(reader)) {
        return false;
    }
    value_done(reader);
    return true;
}

static bool close_frame(struct codec_reader *reader, size_t offset, bool is_object) {
    /* what fits is expected only inside a frame */
    bool fits =
        reader->expect == COMMA_OR_END || reader->expect == (is_object ? KEY_OR_END : VALUE_OR_END);
    if (!fits || reader->frames[reader->depth - 1].is_object != is_object) {
        return unexpected(reader, offset, is_object ? '}' : ']');
    }
    if (reader->lifting) {
        return end_row(reader);
    }

    const struct frame *frame = &reader->frames[reader->depth - 1];
    if (is_object && frame->first_key < reader->key_count) {
        reader->key_count = frame->first_key;
        reader->names.size = reader->keys[frame->first_key].start;
    }
    if (!emit_held(reader) || !emit(reader, is_object ? "}" : "]", 1)) {
        return false;
    }
    reader->depth--;
    value_done(reader);
    return true;
}

static bool comma(struct codec_reader *reader, size_t offset) {
    if (reader->expect != COMMA_OR_END) {
        return unexpected(reader, offset, ',');
    }
    reader->expect = reader->frames[reader->depth - 1].is_object ? KEY : VALUE;
    return reader->lifting || emit(reader, ",", 1);
}

static bool colon(struct codec_reader *reader, size_t offset) {
    if (reader->expect != COLON) {
        return unexpected(reader, offset, ':');
    }
    reader->expect = VALUE;
    return emit(reader, ":", 1);
}

/* --------------------------------------------------------------------------------------- words */

enum word_kind {
    WORD_NUMBER,
    WORD_NULL,
    WORD_TRUE,
    WORD_FALSE,
    WORD_MINUS_INFINITY
};

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

/* Is -Infinity welcome here: inside the value of the top-level key "bias"? */
static bool in_bias(const struct codec_reader *reader) {
    return reader->depth > 0 && reader->frames[0].is_object &&
           key_is(reader, &reader->frames[0], "bias");
}

/* Words that other programs write where JSON has no number, and their like: a message of their
 * own. */
static bool not_json(struct codec_reader *reader, const char *text, size_t size, size_t offset) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity", "-NaN",
                                        "nan", "inf",      "-inf"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (size == strlen(words[i]) && memcmp(text, words[i], size) == 0) {
            return syntax(reader, offset,
                          i == 2 ? "%s is not JSON (only \"bias\" takes it)" : "%s is not JSON",
                          words[i]);
        }
    }
    if (offset == 0 && size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        return syntax(reader, 0, "the body starts with a byte order mark, which is not JSON");
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
        if (text[0] == '-' && (size < 2 || text[1] != 'I' || !in_bias(reader))) {
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
        return unexpected(reader, offset, (unsigned char)text[0]);
    }
    const char *expected = *kind == WORD_NUMBER ? "" : "expected ";
    if (good == size) {
        return syntax(reader, offset + good, "%s%s", expected, rule);
    }
    unsigned char byte = (unsigned char)text[good];
    if (byte > 0x20 && byte < 0x7F) {
        return syntax(reader, offset + good, "%s%s, not '%c'", expected, rule, byte);
    }
    return syntax(reader, offset + good, "%s%s, not the byte 0x%02X", expected, rule, byte);
}

/* The brackets held back turn out to be a matrix: opens it. */
static bool begin_lift(struct codec_reader *reader, bool is_bool) {
    size_t rank = reader->held;
    reader->base = reader->depth - rank;
    if (rank > ATTN_MAX_RANK) {
        return content(reader, reader->base, reader->frames[reader->base].offset,
                       "an array of numbers must have rank 1 to %d, not %zu", ATTN_MAX_RANK, rank);
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
        return misfit(reader, offset, names[kind]);
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

/* A number outside of arrays is written anew for cJSON, which reads only the first 63
 * characters. */
static bool emit_word(struct codec_reader *reader, enum word_kind kind, const char *text,
                      size_t size) {
    char number[NUMBER_SIZE];
    double value;
    switch (kind) {
    case WORD_NUMBER:
        if (!number_read_double(text, size, &value)) {
            return emit(reader, value < 0 ? "-1e999" : "1e999", value < 0 ? 6 : 5);
        }
        return emit(reader, number, number_write_double(number, value));
    case WORD_MINUS_INFINITY:
        return emit(reader, "-1e999", 6);
    default:
        return emit(reader, text, size);
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
    if (reader->lifting ? !lift_word(reader, kind, text, size, offset)
                        : !emit_word(reader, kind, text, size)) {
        return false;
    }
    value_done(reader);
    return true;
}

/* A run of plain numbers inside the innermost level of a matrix. */
static const char *scan_run(struct codec_reader *reader, const char *p, const char *end) {
    struct lifted *tensor = &reader->tensors[reader->tensor_count - 1];
    if (tensor->dtype == ATTN_BOOL || reader->depth - reader->base != (size_t)tensor->rank) {
        return p;
    }
    size_t added;
    bool after;
    p = lifted_add_run(tensor, p, end, &added, &after);
    if (added > 0) {
        reader->frames[reader->depth - 1].count += added;
        reader->expect = after ? COMMA_OR_END : VALUE;
    }
    return p;
}

/* A word from its first byte, or from where the last chunk cut it. NULL on error. */
static const char *scan_word(struct codec_reader *reader, const char *p, const char *end) {
    if (reader->inside == BETWEEN) {
        if (!wants_value(reader)) {
            unexpected(reader, offset_of(reader, p), (unsigned char)*p);
            return NULL;
        }
        reader->word_offset = offset_of(reader, p);
        reader->word_size = 0;
    }
    const char *start = p;
    const char *limit =
        (size_t)(end - p) > MAX_WORD - reader->word_size ? p + (MAX_WORD - reader->word_size) : end;
    while (p < limit && !codec_ends_word[(unsigned char)*p]) {
        p++;
    }
    size_t size = (size_t)(p - start);

    bool complete = p < end && codec_ends_word[(unsigned char)*p];
    if (complete && reader->inside == BETWEEN) { /* the usual case: no copy */
        return word_done(reader, start, size, reader->word_offset) ? p : NULL;
    }
    memcpy(reader->word + reader->word_size, start, size);
    reader->word_size += size;
    reader->inside = WORD;
    if (!complete && p == end) {
        return p;
    }
    reader->inside = BETWEEN;
    if (complete) {
        return word_done(reader, reader->word, reader->word_size, reader->word_offset) ? p : NULL;
    }

    enum word_kind kind; /* too long: say so, unless something is wrong already */
    if (classify(reader, reader->word, reader->word_size, reader->word_offset, &kind)) {
        syntax(reader, reader->word_offset, "a number is longer than %d characters", MAX_WORD);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------- strings */

/* The value of the top-level key "dtype" decides how matrices are read, even those before it. */
static bool set_dtype(struct codec_reader *reader, size_t start, size_t end, size_t offset) {
    char text[64];
    if (end - start > sizeof text) {
        return true;
    }
    size_t size = unescape(reader->skeleton.data + start, end - start, text);
    bool wide = size == 7 && memcmp(text, "float64", 7) == 0;
    if (!wide || reader->dtype == ATTN_FLOAT64) {
        reader->dtype_known = true;
        return true;
    }
    if (!reader->lifted_floats) {
        reader->dtype = ATTN_FLOAT64;
        reader->dtype_known = true;
        return true;
    }
    if (offset < KEEP_BYTES) {
        reader->again = true;
        return true;
    }
    return content(
        reader, reader->depth, reader->string_offset,
        "dtype must come before the first matrix in bodies over %d KiB, because matrices are "
        "decoded as they arrive",
        KEEP_BYTES / 1024);
}

static bool begin_string(struct codec_reader *reader, size_t offset) {
    bool is_key = reader->expect == KEY || reader->expect == KEY_OR_END;
    if (!is_key && !wants_value(reader)) {
        return unexpected(reader, offset, '"');
    }
    if (reader->lifting) {
        return misfit(reader, offset, "a string");
    }
    if (!emit_held(reader)) {
        return false;
    }
    reader->inside = STRING;
    reader->string_state = PLAIN;
    reader->string_is_key = is_key;
    reader->string_offset = offset;
    reader->string_start = reader->skeleton.size;
    reader->high = 0;
    return emit(reader, "\"", 1);
}

/* `offset` is that of the closing quote, already emitted. */
static bool end_string(struct codec_reader *reader, size_t offset) {
    size_t start = reader->string_start + 1, end = reader->skeleton.size - 1;
    reader->inside = BETWEEN;
    if (reader->string_is_key) {
        reader->expect = COLON;
        return add_key(reader, start, end);
    }
    if (reader->depth == 1 && reader->frames[0].is_object &&
        key_is(reader, &reader->frames[0], "dtype") && !set_dtype(reader, start, end, offset)) {
        return false;
    }
    value_done(reader);
    return true;
}

/* The first byte of a character beyond ASCII; ranges of the second by RFC 3629. */
static bool begin_utf8(struct codec_reader *reader, unsigned char byte) {
    if (byte < 0xC2 || byte > 0xF4) {
        return false;
    }
    reader->continuations = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
    reader->next_min = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    reader->next_max = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    reader->string_state = CONTINUATION;
    return true;
}

/* The four digits of a \u escape are complete; `offset` is that of its backslash. */
static bool end_escape(struct codec_reader *reader, size_t offset) {
    bool is_low = reader->code >= 0xDC00 && reader->code < 0xE000;
    if (reader->code == 0) {
        return syntax(reader, offset, "\\u0000 is not accepted in strings");
    }
    if (reader->high != 0 && !is_low) {
        return syntax(reader, offset, "\\u%04x must be followed by a low surrogate, not \\u%04x",
                      reader->high, reader->code);
    }
    if (reader->high == 0 && is_low) {
        return syntax(reader, offset, "the low surrogate \\u%04x has no high one before it",
                      reader->code);
    }
    bool is_high = reader->code >= 0xD800 && reader->code < 0xDC00;
    reader->high = is_high ? reader->code : 0;
    reader->string_state = is_high ? LOW_BACKSLASH : PLAIN;
    return true;
}

/* One byte of a string that is not plain ASCII, or in the middle of something. */
static bool string_byte(struct codec_reader *reader, unsigned char byte, size_t offset) {
    switch (reader->string_state) {
    case PLAIN:
        if (byte == '\\') {
            reader->string_state = ESCAPE;
        } else if (byte < 0x20) {
            return syntax(reader, offset,
                          "the control character 0x%02X must be escaped in a string", byte);
        } else if (byte >= 0x80 && !begin_utf8(reader, byte)) {
            return syntax(reader, offset, "the byte 0x%02X is not valid UTF-8", byte);
        }
        return true;
    case ESCAPE:
        reader->code = 0;
        reader->digits = 0;
        reader->string_state = byte == 'u' ? HEX : PLAIN;
        if (byte == 0 || strchr("\"\\/bfnrtu", byte) == NULL) {
            return syntax(reader, offset,
                          "the escape must be one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
        }
        return true;
    case HEX:
        if (!is_digit((char)byte) && !((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f')) {
            return syntax(reader, offset, "expected four hexadecimal digits after \\u");
        }
        reader->code = reader->code << 4 | hex_value((char)byte);
        return ++reader->digits < 4 || end_escape(reader, offset - 5);
    case LOW_BACKSLASH:
    case LOW_U:
        if (byte != (reader->string_state == LOW_U ? 'u' : '\\')) {
            return syntax(reader, offset, "\\u%04x must be followed by a low surrogate",
                          reader->high);
        }
        reader->code = 0;
        reader->digits = 0;
        reader->string_state = reader->string_state == LOW_U ? HEX : LOW_U;
        return true;
    case CONTINUATION:
        if (byte < reader->next_min || byte > reader->next_max) {
            return syntax(reader, offset, "the byte 0x%02X is not valid UTF-8", byte);
        }
        reader->next_min = 0x80;
        reader->next_max = 0xBF;
        if (--reader->continuations == 0) {
            reader->string_state = PLAIN;
        }
        return true;
    }
    return true;
}

/* Goes on with a string. Runs of plain characters are copied at once, and before what follows them
 * is looked at: an error must not depend on how the run was cut. NULL on error. */
static const char *scan_string(struct codec_reader *reader, const char *p, const char *end) {
    while (p < end) {
        const char *run = p;
        if (reader->string_state == PLAIN) {
            while (p < end && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80 && *p != '"' &&
                   *p != '\\') {
                p++;
            }
        }
        if (p > run) {
            if (!emit(reader, run, (size_t)(p - run))) {
                return NULL;
            }
            continue;
        }
        bool quote = *p == '"' && reader->string_state == PLAIN;
        if (!quote && !string_byte(reader, (unsigned char)*p, offset_of(reader, p))) {
            return NULL;
        }
        if (!emit(reader, p, 1)) {
            return NULL;
        }
        p++;
        if (quote) {
            return end_string(reader, offset_of(reader, p - 1)) ? p : NULL;
        }
    }
    return p;
}

/* ---------------------------------------------------------------------------------------- feed */

/* Consumes a chunk, up to its end, an error, or the need to read `again`. */
static bool scan(struct codec_reader *reader, const char *bytes, size_t size) {
    const char *p = bytes, *end = bytes + size;
    reader->chunk = bytes;
    while (p != NULL && p < end && !reader->again) {
        if (reader->inside == STRING) {
            p = scan_string(reader, p, end);
            continue;
        }
        if (reader->inside == WORD) {
            p = scan_word(reader, p, end);
            continue;
        }
        bool good = true;
        switch (*p) {
        case ' ':
        case '\t':
        case '\n':
        case '\r':
            break;
        case '[':
        case '{':
            good = open_frame(reader, offset_of(reader, p), *p == '{');
            break;
        case ']':
        case '}':
            good = close_frame(reader, offset_of(reader, p), *p == '}');
            break;
        case ',':
            good = comma(reader, offset_of(reader, p));
            break;
        case ':':
            good = colon(reader, offset_of(reader, p));
            break;
        case '"':
            good = begin_string(reader, offset_of(reader, p));
            break;
        default: {
            const char *start = p;
            if (reader->lifting && wants_value(reader)) {
                p = scan_run(reader, p, end);
            }
            if (p == start) {
                p = scan_word(reader, p, end);
            }
            continue;
        }
        }
        p = good ? p + 1 : NULL;
    }
    reader->chunk = NULL;
    if (p != NULL && !reader->again) {
        reader->offset += size;
    }
    return p != NULL;
}

static void drop_kept(struct codec_reader *reader) {
    for (size_t i = 0; i < KEEP_BLOCKS; i++) {
        free(reader->kept[i]);
        reader->kept[i] = NULL;
    }
}

/* Keeps the bytes of the chunk at `offset` of the body, while a "dtype" may still want to read
 * them again. */
static bool keep(struct codec_reader *reader, size_t offset, const char *bytes, size_t size) {
    if (reader->dtype_known || offset + size > KEEP_BYTES) {
        drop_kept(reader);
        return true;
    }
    while (size > 0) {
        char **block = &reader->kept[offset / KEEP_BLOCK];
        size_t at = offset % KEEP_BLOCK;
        size_t part = size < KEEP_BLOCK - at ? size : KEEP_BLOCK - at;
        if (*block == NULL && (*block = malloc(KEEP_BLOCK)) == NULL) {
            return codec_no_memory(&reader->error);
        }
        memcpy(*block + at, bytes, part);
        offset += part;
        bytes += part;
        size -= part;
    }
    return true;
}

static void free_tensors(struct codec_reader *reader) {
    for (size_t i = 0; i < reader->tensor_count; i++) {
        lifted_free(&reader->tensors[i]);
    }
    free(reader->tensors);
    reader->tensors = NULL;
    reader->tensor_count = reader->tensor_capacity = reader->tensor_bytes = 0;
}

/* Starts over as float64: the kept bytes, then the current chunk. */
static bool read_again(struct codec_reader *reader, const char *bytes, size_t size) {
    size_t kept = reader->offset;
    free_tensors(reader);
    reader->again = false;
    reader->dtype = ATTN_FLOAT64;
    reader->dtype_known = true;
    reader->lifted_floats = false;
    reader->lifting = false;
    reader->offset = reader->depth = reader->held = reader->key_count = 0;
    reader->skeleton.size = reader->names.size = 0;
    reader->expect = VALUE;
    reader->inside = BETWEEN;
    for (size_t i = 0; i * KEEP_BLOCK < kept; i++) {
        size_t rest = kept - i * KEEP_BLOCK;
        if (!scan(reader, reader->kept[i], rest < KEEP_BLOCK ? rest : KEEP_BLOCK)) {
            return false;
        }
    }
    drop_kept(reader);
    return scan(reader, bytes, size);
}

enum codec_status codec_reader_feed(struct codec_reader *reader, const void *bytes, size_t size) {
    if (reader->error.status != CODEC_OK || size == 0) {
        return reader->error.status;
    }
    size_t offset = reader->offset;
    if (scan(reader, bytes, size) && (!reader->again || read_again(reader, bytes, size))) {
        keep(reader, offset, bytes, size);
    }
    return reader->error.status;
}

enum codec_status codec_reader_finish(struct codec_reader *reader,
                                      struct codec_document **document) {
    *document = NULL;
    if (reader->error.status != CODEC_OK) {
        return reader->error.status;
    }
    if (reader->inside == WORD) {
        reader->inside = BETWEEN;
        if (!word_done(reader, reader->word, reader->word_size, reader->word_offset)) {
            return reader->error.status;
        }
    }
    if (reader->inside == STRING || reader->expect != NOTHING) {
        if (reader->offset == 0) {
            syntax(reader, 0, "the body is empty");
        } else if (reader->inside == STRING) {
            syntax(reader, reader->offset, "the body ends inside a string");
        } else if (reader->depth == 0) {
            syntax(reader, reader->offset, "the body holds nothing but white space");
        } else {
            syntax(reader, reader->offset, "the body ends inside an %s",
                   reader->frames[reader->depth - 1].is_object ? "object" : "array");
        }
        return reader->error.status;
    }
    *document = codec_document_create(reader->skeleton.data, reader->skeleton.size, reader->tensors,
                                      reader->tensor_count, reader->dtype);
    if (*document == NULL) {
        codec_no_memory(&reader->error);
        return reader->error.status;
    }
    reader->tensors = NULL;
    reader->tensor_count = reader->tensor_capacity = 0;
    return CODEC_OK;
}

/* ---------------------------------------------------------------------------------- life cycle */

struct codec_reader *codec_reader_create(const struct codec_limits *limits) {
    struct codec_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        return NULL;
    }
    if (limits != NULL) {
        reader->limits = *limits;
    }
    if (reader->limits.max_depth == 0) {
        reader->limits.max_depth = DEFAULT_DEPTH;
    }
    if (reader->limits.max_depth > CODEC_MAX_DEPTH) {
        reader->limits.max_depth = CODEC_MAX_DEPTH;
    }
    if (reader->limits.max_skeleton == 0) {
        reader->limits.max_skeleton = DEFAULT_SKELETON;
    }
    if (reader->limits.max_tensors == 0) {
        reader->limits.max_tensors = SIZE_MAX;
    }
    return reader;
}

const struct codec_error *codec_reader_error(const struct codec_reader *reader) {
    return &reader->error;
}

void codec_reader_free(struct codec_reader *reader) {
    if (reader == NULL) {
        return;
    }
    free_tensors(reader);
    drop_kept(reader);
    free(reader->skeleton.data);
    free(reader->keys);
    free(reader->names.data);
    free(reader);
}
