/*
 * reader.h - the state of the reader, and what its parts ask of each other. Private to state.c,
 * string.c, scalar.c, matrix.c and reader.c. Each knows the state and state.c; scalar.c also
 * matrix.c; reader.c alone knows them all.
 */
#ifndef CODEC_READER_H
#define CODEC_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/codec.h"
#include "codec/json/document.h"
#include "codec/json/lift.h"

enum {
    READER_MAX_WORD = 4096, /* characters of a word */
    READER_KEEP_BLOCKS = 16
};

/* What the grammar wants next. */
enum reader_expect {
    READER_EXPECT_VALUE,
    READER_EXPECT_VALUE_OR_END,
    READER_EXPECT_KEY,
    READER_EXPECT_KEY_OR_END,
    READER_EXPECT_COLON,
    READER_EXPECT_COMMA_OR_END,
    READER_EXPECT_NOTHING
};

/* What the chunk boundary is inside of. */
enum reader_inside {
    READER_INSIDE_NOTHING,
    READER_INSIDE_WORD,
    READER_INSIDE_STRING
};

enum reader_string {
    READER_STRING_PLAIN,
    READER_STRING_ESCAPE,
    READER_STRING_HEX,
    READER_STRING_LOW_BACKSLASH,
    READER_STRING_LOW_U,
    READER_STRING_CONTINUATION
};

enum reader_word {
    READER_WORD_NUMBER,
    READER_WORD_NULL,
    READER_WORD_TRUE,
    READER_WORD_FALSE,
    READER_WORD_MINUS_INFINITY
};

/* The line of a byte. `margin` is the offset of the line's first byte, plus the bytes that its
 * characters have beyond one each: so the column of a byte is its offset - margin + 1. */
struct reader_line {
    size_t number, margin;
};

/* An open array or object. */
struct reader_frame {
    bool is_object;
    size_t offset; /* of its bracket */
    struct reader_line line;
    size_t count;     /* complete elements */
    size_t first_key; /* of an object, in reader.keys */
    size_t key;       /* the current one */
};

struct reader_key {
    uint32_t hash;
    size_t start, size; /* in reader.names, unescaped */
};

struct reader_text {
    char *data;
    size_t size, capacity;
};

struct codec_reader {
    struct codec_options options;
    struct codec_error error;
    size_t offset; /* bytes of the body before the current chunk */
    const char *chunk;
    struct reader_line line; /* of the byte that is looked at */

    enum reader_expect expect;
    enum reader_inside inside;
    size_t depth;
    size_t held; /* innermost open arrays that are not in the skeleton yet: they may be a matrix */
    struct reader_text skeleton;
    size_t values;  /* in it: containers, texts, words and the places of lifted arrays */
    size_t strings; /* in it: keys and texts */

    /* The current string. */
    enum reader_string string_state;
    bool string_is_key;
    size_t string_offset, string_start; /* in the body, in the skeleton */
    struct reader_line string_line;
    unsigned code, high; /* \u escapes: the digits so far, the first of a pair */
    int digits;
    int continuations; /* UTF-8: bytes to come, and the range of the next one */
    unsigned char next_min, next_max;

    struct reader_key *keys; /* of all open objects */
    size_t key_count, key_capacity;
    struct reader_text names;

    /* The lifted arrays. While `lifting`, the last one is open; frames[base] is its outermost
     * level. */
    struct lifted_list tensors;
    bool lifting;
    size_t base;
    _Alignas(double) char first[LIFT_FIRST]; /* in which each begins */

    attn_dtype dtype;
    bool dtype_known;   /* by the dtype_key, or nothing is kept any more */
    bool lifted_floats; /* float32 arrays that a late dtype_key would have to read again */
    bool again;         /* it does: read the kept bytes again, as float64 */
    char *kept[READER_KEEP_BLOCKS];

    struct reader_frame frames[CODEC_MAX_DEPTH];
    size_t word_offset, word_size;
    char word[READER_MAX_WORD];
};

/* Where in the body the byte of the current chunk at p is. */
static inline size_t reader_offset(const struct codec_reader *reader, const char *p) {
    return reader->offset + (size_t)(p - reader->chunk);
}

static inline bool reader_wants_value(const struct codec_reader *reader) {
    return reader->expect == READER_EXPECT_VALUE || reader->expect == READER_EXPECT_VALUE_OR_END;
}

/* ------------------------------------------------------------------------------------- state.c */

/* Each sets the error and returns false, so that a caller can say `return reader_syntax(...)`. */
bool reader_syntax(struct codec_reader *reader, size_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* With the place that reader_point() adds. */
bool reader_content(struct codec_reader *reader, size_t levels, size_t offset, const char *format,
                    ...) __attribute__((format(printf, 4, 5)));
/* A byte that has no place here; what would have one follows from `expect`. */
bool reader_unexpected(struct codec_reader *reader, size_t offset, unsigned char byte);

/* Adds to the error the place of the current element of the `levels` outermost open arrays and
 * objects. */
void reader_point(struct codec_reader *reader, size_t levels);

/* Is this inside the value of the top-level key `name`? False if it is NULL. */
bool reader_is_under(const struct codec_reader *reader, const char *name);

/* Each appends bytes to one of the reader's texts, or sets the error and returns false. */
bool reader_append(struct codec_reader *reader, struct reader_text *text, const char *bytes,
                   size_t size);
/* To the skeleton, within its limit. */
bool reader_emit(struct codec_reader *reader, const char *bytes, size_t size);
/* The brackets held back, which turn out to be no matrix, to the skeleton. */
bool reader_emit_held(struct codec_reader *reader);

/* ------------------------------------------------------------------------------------ string.c */

/* A quote that opens a string; `offset` is its own. False on error. */
bool reader_begin_string(struct codec_reader *reader, size_t offset);

/* Goes on with the string, to its end or that of the chunk. Returns where it stopped, NULL on
 * error. The string is complete if the reader is inside nothing then; a key is among the keys of
 * the innermost object. */
const char *reader_scan_string(struct codec_reader *reader, const char *p, const char *end);

/* Is the string value that has just ended `text`, of at most 10 characters? */
bool reader_string_is(const struct codec_reader *reader, const char *text);

/* ------------------------------------------------------------------------------------ scalar.c */

/* A word from its first byte, or from where the last chunk cut it. Returns where it stopped, NULL
 * on error. The word is complete, in the matrix or in the skeleton, if the reader is inside nothing
 * then. */
const char *reader_scan_word(struct codec_reader *reader, const char *p, const char *end);

/* The word that a chunk has cut ends here. False on error. */
bool reader_end_word(struct codec_reader *reader);

/* ------------------------------------------------------------------------------------ matrix.c */

/* Each returns false on error. */

/* The brackets held back turn out to be a matrix: opens it. */
bool reader_begin_matrix(struct codec_reader *reader, bool is_bool);
/* Stores a checked word in the open matrix. */
bool reader_add_element(struct codec_reader *reader, enum reader_word kind, const char *text,
                        size_t size, size_t offset);
/* A row of the matrix ends: it must be as long as those before it. The outermost one ends the
 * matrix. */
bool reader_end_row(struct codec_reader *reader);
/* Something that does not fit into the open matrix: sets the error. */
bool reader_misfit(struct codec_reader *reader, size_t offset, const char *what);

/* A run of plain numbers inside the innermost level of a matrix, their commas included. Returns
 * where it stopped: p if there is none. */
const char *reader_scan_run(struct codec_reader *reader, const char *p, const char *end);

#endif
