/*
 * field.h - one row of the table of request fields, and the names that are no keys. It is for the
 * files that read fields, and for tests that print or draw them.
 */
#ifndef API_FIELD_H
#define API_FIELD_H

#include "api/call/call.h"
#include "api/call/fields.h"

/* How a value is read, and what the target of the row is. */
enum field_kind {
    FIELD_BY_NAME,  /* generated.c or the handler asks for it by its name and reads it */
    FIELD_WORDS,    /* a text, or texts; generated.c reads it */
    FIELD_MATRIX,   /* finite numbers, of rank least..most */
    FIELD_ROWS,     /* as FIELD_MATRIX, of keys or values, of which rows may be excluded */
    FIELD_LOGITS,   /* as FIELD_MATRIX, and null means minus infinity */
    FIELD_BIAS,     /* as FIELD_LOGITS, and -Infinity means minus infinity */
    FIELD_DECAY,    /* as FIELD_BIAS, and no number is above 0 */
    FIELD_EXACT,    /* as FIELD_MATRIX, in the type in which the numbers were read */
    FIELD_MASK,     /* true and false, or 1 and 0, of rank least..most */
    FIELD_DTYPE,    /* one of the choices; the codec has followed it while it read the body */
    FIELD_CHOICE,   /* one of the choices; its index goes to an enum */
    FIELD_INTEGER,  /* a whole number in least..most; goes to an int */
    FIELD_COUNT,    /* a whole number >= 1; goes to a size_t */
    FIELD_NUMBER,   /* a finite number; goes to a double */
    FIELD_BOOL,     /* true or false; goes to a bool */
    FIELD_SECONDS,  /* a number > 0; goes to a double */
    FIELD_EXPECTED, /* an object of tensors under the names of results; `read` reads it */
    FIELD_READER    /* `read` of the row reads it */
};

/* The choices of "alignment". */
enum {
    FIELD_TOP_LEFT,
    FIELD_BOTTOM_RIGHT
};

struct field;

/* Reads the value of a field into the call. Returns false with the error set. */
typedef bool field_reader(struct call *call, struct codec_document *document,
                          const struct field *field, const struct codec_value *value,
                          struct codec_error *error);

struct field {
    const char *name;
    unsigned at; /* bits FIELDS_AT_*: the objects that have the key */
    enum fields_group group;
    enum field_kind kind;
    int least, most; /* the rank of a matrix, or the value of an integer */
    enum fields_draw draw;
    /* Tests draw valid values from this text. It has the axes of a matrix in the letters of
     * tests/support/drawn.h, or values in JSON with "|" between them. NULL: the kind says it. */
    const char *sample;
    /* Offsets in the target of the group: struct api_work, struct call or struct call_weights. The
     * pointer to the matrix of a weight is in attn_projection. */
    size_t value, pointer;
    const char *const *choices;
    size_t choice_count;
    field_reader *read;
    const char *argument; /* the library's name of the argument; NULL = the name of the key */
    /* `hint` is for the objects of the bits `hint_at`, which do not have the key. */
    unsigned hint_at;
    const char *hint;
    const char *not_a_mask; /* the hint for a mask whose numbers are not 0 and 1, or are all 0 */
};

/* Returns a row of the table, or NULL if there is none. */
const struct field *fields_row(size_t row);

/* The readers of fields whose values have a form of their own; see field_readers.c,
 * field_rotary.c and scaled.c. */
field_reader field_return, field_mean_over_heads, field_top_k, field_causal, field_always_causal,
    field_update, field_alignment, field_compute_dtype, field_window, field_scale, field_alibi,
    field_sink, field_lengths, field_sequences, field_sequence_offsets, field_rotary,
    field_computed_in, field_tolerance, field_fail_on_difference, field_scaled, comparison_read;

/* The names that other programs have for keys; see fields_foreign.c. */
extern const struct codec_foreign fields_foreign[];
extern const size_t fields_foreign_count;

/* Where a result is named. */
enum {
    FIELDS_IN_RETURN = 1,
    FIELDS_IN_EXPECTED = 2
};

/* The names that other programs have for results, and those that cannot be expected. */
extern const struct codec_foreign fields_foreign_results[];
extern const size_t fields_foreign_results_count;

#endif
