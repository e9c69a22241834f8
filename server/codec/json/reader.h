/*
 * reader.h - the state of the reader, and the functions that its files call of each other. It is
 * private to reader.c, string.c, scan_scalar.c, open_tensor.c and state.c. reader.c calls all
 * others, scan_scalar.c calls open_tensor.c and state.c, and string.c and open_tensor.c call only
 * state.c.
 */
#ifndef CODEC_READER_H
#define CODEC_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/codec.h"
#include "codec/json/codec_tensor.h"
#include "codec/json/document.h"

enum {
    READER_MAX_SCALAR = 4096, /* most characters of a scalar: a number or a literal */
    READER_FEW_KEYS = 16      /* keys of open objects that need no block of their own */
};

/* The tokens that the grammar allows next. */
enum reader_expect {
    READER_EXPECT_VALUE,
    READER_EXPECT_VALUE_OR_END,
    READER_EXPECT_KEY,
    READER_EXPECT_KEY_OR_END,
    READER_EXPECT_COLON,
    READER_EXPECT_COMMA_OR_END,
    READER_EXPECT_NOTHING
};

/* The kind of token that the end of the last chunk has cut. */
enum reader_inside {
    READER_INSIDE_NOTHING,
    READER_INSIDE_SCALAR,
    READER_INSIDE_STRING
};

/* The part of a string to which its next byte belongs. */
enum reader_string_state {
    READER_STRING_PLAIN,
    READER_STRING_ESCAPE,
    READER_STRING_HEX,
    READER_STRING_LOW_BACKSLASH,
    READER_STRING_LOW_U,
    READER_STRING_CONTINUATION
};

enum reader_scalar {
    READER_SCALAR_NUMBER,
    READER_SCALAR_NULL,
    READER_SCALAR_TRUE,
    READER_SCALAR_FALSE,
    READER_SCALAR_MINUS_INFINITY,
    READER_SCALAR_INFINITY, /* this one and the next one only in settings */
    READER_SCALAR_NAN
};

/* The line of a byte. `margin` is the offset of the line's first byte plus the number of
 * continuation bytes of UTF-8 since then. So the column of a byte, in characters, is its offset -
 * margin + 1. */
struct reader_line {
    size_t number, margin;
};

/* An open array or object. */
struct reader_frame {
    bool is_object;
    size_t offset; /* place of its bracket in the body */
    struct reader_line line;
    struct codec_value *value; /* NULL inside of a tensor */
    size_t count;              /* complete elements or members */
    size_t first_key;          /* index of an object's first key in reader.keys */
    size_t key;                /* index of its current key there */
};

struct reader_key {
    uint32_t hash;
    size_t size;
    const char *name; /* a text of the document */
};

/* The keys of all open objects. */
struct reader_keys {
    struct reader_key *list; /* owned, or `few` */
    size_t count, capacity;
    uint32_t *slots; /* the indices of the keys by their hash, plus 1; NULL: few keys are allowed */
    size_t slot_count; /* a power of two, at least twice max_keys */
};

/* The current string. */
struct reader_string {
    enum reader_string_state state;
    bool is_key;
    size_t offset; /* place of its quote in the body */
    struct reader_line line;
    const char *text;                 /* the last complete string, without escapes */
    unsigned code;                    /* a \u escape: the value of its digits so far */
    int digits;                       /* how many digits these are */
    unsigned high;                    /* the high surrogate that waits for its low one, or 0 */
    int continuations;                /* UTF-8: bytes of the character that are still to come */
    unsigned char next_min, next_max; /* the range of the next of them */
};

struct codec_reader {
    struct codec_options options;
    struct codec_error error;
    size_t offset; /* bytes of the body before the current chunk */
    const char *chunk;
    struct reader_line line; /* the current line */

    enum reader_expect expect;
    enum reader_inside inside;
    size_t depth; /* open arrays and objects */
    size_t held;  /* innermost open arrays that may be a tensor: they hold nothing else yet */
    struct codec_document *document; /* owned, or borrowed by codec_set_json() */
    struct codec_value *root;        /* the outermost value; NULL before it begins */
    size_t bytes;                    /* bytes outside of tensors, without white space */
    size_t values;                   /* values in the document */

    struct reader_string string;
    struct reader_keys keys;

    struct codec_tensor *tensor; /* the open tensor, or NULL */
    size_t base;                 /* frames[base] is its outermost level */

    size_t scalar_offset, scalar_size;
    size_t deepest; /* the frames that were used so far */

    /* A new reader sets nothing below, because most bodies need little of it. */
    struct reader_frame frames[CODEC_MAX_DEPTH];
    struct reader_key few[READER_FEW_KEYS];    /* the keys, if there are not more */
    _Alignas(double) char first[TENSOR_FIRST]; /* the block in which each array begins */
    char scalar[READER_MAX_SCALAR];            /* the current scalar, if a chunk has cut it */
};

/* Returns the place in the body of the byte at p, which is in the current chunk. */
static inline size_t reader_offset(const struct codec_reader *reader, const char *p) {
    return reader->offset + (size_t)(p - reader->chunk);
}

static inline bool reader_wants_value(const struct codec_reader *reader) {
    return reader->expect == READER_EXPECT_VALUE || reader->expect == READER_EXPECT_VALUE_OR_END;
}

/* ------------------------------------------------------------------------------------- state.c */

/* Each sets the error and returns false, so that a caller can write `return reader_syntax(...)`. */
bool reader_syntax(struct codec_reader *reader, size_t offset, const char *format, ...)
    __attribute__((cold, format(printf, 3, 4)));
/* The same with the status CODEC_CONTENT. Its JSON pointer has the first `levels` open frames. */
bool reader_content(struct codec_reader *reader, size_t levels, size_t offset, const char *format,
                    ...) __attribute__((cold, format(printf, 4, 5)));
/* Refuses a byte that is not allowed here. The message says what is allowed, which `expect`
 * tells. */
__attribute__((cold)) bool reader_unexpected(struct codec_reader *reader, size_t offset,
                                             unsigned char byte);

/* Adds the pointer of the current element or member to the error, as far as it lies in the `levels`
 * outermost open arrays and objects. */
void reader_point(struct codec_reader *reader, size_t levels);

/* Is this inside the value of the key `name` of an object of the key_level? False if it is NULL,
 * and true if it is "". */
bool reader_is_under(const struct codec_reader *reader, const char *name);

/* Counts bytes outside of tensors. False if there are too many. */
__attribute__((cold)) bool reader_refuse_bytes(struct codec_reader *reader);
static inline bool reader_count(struct codec_reader *reader, size_t bytes) {
    if (bytes > reader->options.max_bytes - reader->bytes) {
        return reader_refuse_bytes(reader);
    }
    reader->bytes += bytes;
    return true;
}
/* Adds a value to the innermost open array or object. Returns NULL on error. */
struct codec_value *reader_add(struct codec_reader *reader, enum codec_kind kind);

/* ------------------------------------------------------------------------------------ string.c */

/* Begins a string; `offset` is the place of its quote. False on error. */
bool reader_begin_string(struct codec_reader *reader, size_t offset);

/* Forgets all keys from index `first` on: their objects have ended. */
void reader_drop_keys(struct codec_reader *reader, size_t first);

/* Reads on to the end of the string or of the chunk. Returns where it stopped, NULL on error. The
 * string is complete if the reader is inside nothing then. A complete key has been added to the
 * keys of the innermost object, and any other string to the document. */
const char *reader_scan_string(struct codec_reader *reader, const char *p, const char *end);

/* ------------------------------------------------------------------------------- scan_scalar.c */

/* Reads a scalar from its first byte, or from where the last chunk has cut it. Returns where it
 * stopped, NULL on error. The scalar is complete, and is in the tensor or in the document, if the
 * reader is inside nothing then. */
const char *reader_scan_scalar(struct codec_reader *reader, const char *p, const char *end);

/* Ends a scalar that the last chunk has cut. False on error. */
bool reader_end_scalar(struct codec_reader *reader);

/* -------------------------------------------------------------------------------- open_tensor.c */

/* Each sets the error and returns false if there is one. */

/* Begins a tensor at the brackets that were held back. */
bool reader_begin_tensor(struct codec_reader *reader, bool is_bool);
/* Stores a checked scalar in the open tensor. */
bool reader_add_element(struct codec_reader *reader, enum reader_scalar kind, const char *text,
                        size_t size, size_t offset);
/* Ends a row of the tensor, which must be as long as the rows before it. The end of the outermost
 * row ends the tensor. */
bool reader_end_row(struct codec_reader *reader);
/* Refuses something that does not fit into the open tensor: `what` is its name. Returns false. */
__attribute__((cold)) bool reader_refuse_element(struct codec_reader *reader, size_t offset,
                                                 const char *what);

/* Reads a run of plain numbers and their commas in the innermost level of a tensor. Returns where
 * it stopped; this is p if there is no such run. */
const char *reader_scan_run(struct codec_reader *reader, const char *p, const char *end);

#endif
