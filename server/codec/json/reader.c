/*
 * reader.c - the scanner of bodies, strictly by RFC 8259. It takes a body in chunks that may be cut
 * anywhere. Arrays of numbers or booleans go to typed buffers (open_tensor.c), and every other
 * value becomes a node of the document (document.h). This file has the structure of a body, and the
 * life of a reader. string.c scans strings. scan_scalar.c scans scalars, which are numbers and
 * literals.
 *
 * The end of a chunk may cut a string, which is checked byte by byte, or a scalar, which is
 * gathered until it is complete. Nothing is decided about a part of a scalar, so the result does
 * not depend on the cuts. Nothing here is recursive: `frames` holds the open arrays and objects.
 */
#include "codec/json/reader.h"

#include <string.h>

#include "codec/error.h"

enum {
    DEFAULT_BYTES = 1024 * 1024,
    DEFAULT_VALUES = 65536, /* each costs a node */
    DEFAULT_KEYS = 1024,    /* so few are compared one by one */
    DEFAULT_ARRAYS = 4096,  /* each costs a buffer and its struct */
};

/* ----------------------------------------------------------------------------------- structure */

/* Counts a value that is complete. False if there are too many outside of tensors. */
static bool value_done(struct codec_reader *reader) {
    if (reader->tensor == NULL && reader->values++ == reader->options.max_values) {
        codec_error_set(&reader->error, CODEC_TOO_LARGE,
                        "the body has more than %zu values outside of matrices, which is a fixed "
                        "limit",
                        reader->options.max_values);
        return false;
    }
    if (reader->depth == 0) {
        reader->expect = READER_EXPECT_NOTHING;
        return true;
    }
    reader->frames[reader->depth - 1].count++;
    reader->expect = READER_EXPECT_COMMA_OR_END;
    return true;
}

static bool open_frame(struct codec_reader *reader, size_t offset, bool is_object) {
    if (!reader_wants_value(reader)) {
        return reader_unexpected(reader, offset, is_object ? '{' : '[');
    }
    if (reader->depth == CODEC_MAX_DEPTH) {
        return reader_syntax(reader, offset, "arrays and objects are nested deeper than %d levels",
                             CODEC_MAX_DEPTH);
    }
    struct codec_value *value = NULL;
    if (reader->tensor == NULL) {
        value = reader_count(reader, 1) ? reader_add(reader, is_object ? CODEC_OBJECT : CODEC_ARRAY)
                                        : NULL;
        if (value == NULL) {
            return false;
        }
    } else if (is_object) {
        return reader_refuse_element(reader, offset, "an object");
    } else if (reader->depth - reader->base == (size_t)reader->tensor->rank) {
        return reader_refuse_element(reader, offset, "an array");
    }
    reader->frames[reader->depth++] = (struct reader_frame){.is_object = is_object,
                                                            .offset = offset,
                                                            .line = reader->line,
                                                            .value = value,
                                                            .first_key = reader->keys.count};
    reader->deepest = reader->depth > reader->deepest ? reader->depth : reader->deepest;
    reader->expect = is_object ? READER_EXPECT_KEY_OR_END : READER_EXPECT_VALUE_OR_END;
    return true;
}

static bool close_frame(struct codec_reader *reader, size_t offset, bool is_object) {
    /* `expect` has one of these values only inside a frame, so depth > 0 if it fits. */
    bool fits =
        reader->expect == READER_EXPECT_COMMA_OR_END ||
        reader->expect == (is_object ? READER_EXPECT_KEY_OR_END : READER_EXPECT_VALUE_OR_END);
    if (!fits || reader->frames[reader->depth - 1].is_object != is_object) {
        return reader_unexpected(reader, offset, is_object ? '}' : ']');
    }
    if (reader->tensor != NULL) {
        return reader_end_row(reader) && value_done(reader);
    }

    reader_drop_keys(reader, reader->frames[reader->depth - 1].first_key);
    reader->held = 0;
    reader->depth--;
    return reader_count(reader, 1) && value_done(reader);
}

static bool comma(struct codec_reader *reader, size_t offset) {
    if (reader->expect != READER_EXPECT_COMMA_OR_END) {
        return reader_unexpected(reader, offset, ',');
    }
    reader->expect =
        reader->frames[reader->depth - 1].is_object ? READER_EXPECT_KEY : READER_EXPECT_VALUE;
    return reader->tensor != NULL || reader_count(reader, 1);
}

static bool colon(struct codec_reader *reader, size_t offset) {
    if (reader->expect != READER_EXPECT_COLON) {
        return reader_unexpected(reader, offset, ':');
    }
    reader->expect = READER_EXPECT_VALUE;
    return reader_count(reader, 1);
}

/* ---------------------------------------------------------------------------------------- feed */

/* Each reads on to the end of the string or scalar, or of the chunk, and sets what is allowed after
 * it. NULL on error. */
static const char *scan_string(struct codec_reader *reader, const char *p, const char *end) {
    p = reader_scan_string(reader, p, end);
    if (p == NULL || reader->inside == READER_INSIDE_STRING) {
        return p;
    }
    if (reader->string.is_key) {
        reader->expect = READER_EXPECT_COLON;
        return p;
    }
    return value_done(reader) ? p : NULL;
}

static const char *scan_scalar(struct codec_reader *reader, const char *p, const char *end) {
    p = reader_scan_scalar(reader, p, end);
    const bool complete = p != NULL && reader->inside == READER_INSIDE_NOTHING;
    return !complete || value_done(reader) ? p : NULL;
}

/* Does this character begin the first number of arrays that may become a tensor? If they may not,
 * the number is checked first, because what is no JSON has another error. */
static bool begins_numbers(const struct codec_reader *reader, char c) {
    return reader->held > 0 && (c == '-' || (c >= '0' && c <= '9')) &&
           reader->held <= ATTN_MAX_RANK &&
           document_tensor_count(reader->document) < reader->options.max_arrays;
}

/* Reads a chunk. */
static void scan(struct codec_reader *reader, const char *bytes, size_t size) {
    const char *p = bytes, *end = bytes + size;
    reader->chunk = bytes;
    /* Only the first token of a chunk was cut by the end of the last chunk. */
    if (reader->inside != READER_INSIDE_NOTHING && size > 0) {
        p = reader->inside == READER_INSIDE_STRING ? scan_string(reader, p, end)
                                                   : scan_scalar(reader, p, end);
    }
    while (p != NULL && p < end) {
        bool good = true;
        switch (*p) {
        case '\n': /* the only place for line feeds: strings, scalars and runs have none */
            reader->line.number++;
            reader->line.margin = reader_offset(reader, p) + 1;
            p++;
            continue;
        case ' ':
        case '\t':
        case '\r':
            do { /* indented bodies have long runs */
                p++;
            } while (p < end && *p == ' ');
            continue;
        case '[':
        case '{':
            good = open_frame(reader, reader_offset(reader, p), *p == '{');
            break;
        case ']':
        case '}':
            good = close_frame(reader, reader_offset(reader, p), *p == '}');
            break;
        case ',':
            good = comma(reader, reader_offset(reader, p));
            break;
        case ':':
            good = colon(reader, reader_offset(reader, p));
            break;
        case '"':
            p = reader_begin_string(reader, reader_offset(reader, p))
                    ? scan_string(reader, p + 1, end)
                    : NULL;
            continue;
        default: {
            const char *start = p;
            if (begins_numbers(reader, *p) && !reader_begin_tensor(reader, false)) {
                p = NULL;
                continue;
            }
            if (reader->tensor != NULL && reader_wants_value(reader)) {
                p = reader_scan_run(reader, p, end);
            }
            if (p == start) {
                p = scan_scalar(reader, p, end);
            }
            continue;
        }
        }
        p = good ? p + 1 : NULL;
    }
    reader->chunk = NULL;
    reader->offset += p != NULL ? size : 0;
}

enum codec_status codec_reader_feed(struct codec_reader *reader, const void *bytes, size_t size) {
    if (reader->error.status != CODEC_OK || size == 0) {
        return reader->error.status;
    }
    scan(reader, bytes, size);
    return reader->error.status;
}

/* Ends the body. False if it is wrong or not complete. */
static bool end_body(struct codec_reader *reader) {
    if (reader->error.status != CODEC_OK || (reader->inside == READER_INSIDE_SCALAR &&
                                             !(reader_end_scalar(reader) && value_done(reader)))) {
        return false;
    }
    if (reader->inside != READER_INSIDE_STRING && reader->expect == READER_EXPECT_NOTHING) {
        return true;
    }
    if (reader->offset == 0) {
        return reader_syntax(reader, 0, "the body is empty");
    }
    if (reader->inside == READER_INSIDE_STRING) {
        return reader_syntax(reader, reader->offset, "the body ends inside a string");
    }
    if (reader->depth == 0) {
        return reader_syntax(reader, reader->offset, "the body holds nothing but white space");
    }
    return reader_syntax(reader, reader->offset, "the body ends inside an %s",
                         reader->frames[reader->depth - 1].is_object ? "object" : "array");
}

enum codec_status codec_reader_finish(struct codec_reader *reader,
                                      struct codec_document **document) {
    *document = NULL;
    if (end_body(reader)) {
        const char *key = reader->options.dtype_key;
        const struct codec_value *dtype = key != NULL ? codec_get(reader->root, key) : NULL;
        const bool wide =
            codec_kind_of(dtype) == CODEC_TEXT && document_is_name(document_text(dtype), "float64");
        codec_set_dtype(reader->document, wide ? ATTN_FLOAT64 : ATTN_FLOAT32);
        codec_set_root(reader->document, reader->root);
        *document = reader->document;
        reader->document = NULL;
    }
    return reader->error.status;
}

/* ---------------------------------------------------------------------------------- life cycle */

/* Makes the table in which keys are found by their hash, if many are allowed. False if there is no
 * memory. */
static bool make_slots(struct codec_reader *reader) {
    if (reader->options.max_keys <= DEFAULT_KEYS) {
        return true;
    }
    reader->keys.slot_count = 2;
    while (reader->keys.slot_count < 2 * reader->options.max_keys) {
        reader->keys.slot_count *= 2;
    }
    const size_t bytes = reader->keys.slot_count * sizeof *reader->keys.slots;
    reader->keys.slots = account_alloc(reader->options.account, bytes);
    if (reader->keys.slots != NULL) {
        memset(reader->keys.slots, 0, bytes);
    }
    return reader->keys.slots != NULL;
}

static void set_default(size_t *option, size_t usual) {
    *option = *option == 0 ? usual : *option;
}

/* Makes a reader that adds to a document; NULL: it makes one. */
static struct codec_reader *create(const struct codec_options *options,
                                   struct codec_document *document) {
    struct account *account = options != NULL ? options->account : NULL;
    struct codec_reader *reader = account_alloc(account, sizeof *reader);
    if (reader == NULL) {
        return NULL;
    }
    memset(reader, 0, offsetof(struct codec_reader, frames));
    reader->line.number = 1;
    reader->keys.list = reader->few;
    reader->keys.capacity = READER_FEW_KEYS;
    if (options != NULL) {
        reader->options = *options;
    }
    set_default(&reader->options.max_bytes, DEFAULT_BYTES);
    set_default(&reader->options.max_values, DEFAULT_VALUES);
    set_default(&reader->options.max_keys, DEFAULT_KEYS);
    set_default(&reader->options.max_arrays, DEFAULT_ARRAYS);
    set_default(&reader->options.key_level, 1);
    if (make_slots(reader)) {
        reader->document = document != NULL ? document : document_create(account);
    }
    if (reader->document == NULL) {
        codec_reader_free(reader);
        return NULL;
    }
    return reader;
}

struct codec_reader *codec_reader_create(const struct codec_options *options) {
    return create(options, NULL);
}

size_t codec_reader_values(const struct codec_reader *reader) {
    return reader->values;
}

size_t codec_reader_bytes(const struct codec_reader *reader) {
    return reader->bytes;
}

const struct codec_error *codec_reader_error(const struct codec_reader *reader) {
    return &reader->error;
}

void codec_reader_free(struct codec_reader *reader) {
    if (reader == NULL) {
        return;
    }
    struct account *account = reader->options.account;
    codec_document_free(reader->document);
    account_free(account, reader->keys.list != reader->few ? reader->keys.list : NULL);
    account_free(account, reader->keys.slots);
    account_free(account, reader);
}

bool codec_set_json(struct codec_document *document, struct codec_value *value, const char *text,
                    const struct codec_options *options, struct codec_error *error) {
    codec_set_text(value, text);
    if (text[0] == '\0' || strchr(" \t\r\n{[\"-0123456789tfn", text[0]) == NULL) {
        return true; /* no JSON begins like this */
    }
    struct codec_reader *reader = create(options, document);
    if (reader == NULL) {
        return codec_no_memory(error);
    }
    codec_reader_feed(reader, text, strlen(text)); /* an error of it stays */
    if (end_body(reader)) {
        codec_set_value(value, reader->root);
    }
    const bool good = reader->error.status != CODEC_NO_MEMORY;
    reader->document = NULL;
    codec_reader_free(reader);
    return good || codec_no_memory(error);
}
