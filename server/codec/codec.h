/*
 * codec.h - bytes to tensors and tensors to bytes. While a JSON body arrives, the reader makes a
 * document of it, which is a tree of values. An array of numbers or booleans is a tensor: its
 * elements go into a typed buffer, and in the tree it is one value. The writer makes JSON of a flat
 * list of items. The codec knows attn_tensor. It knows neither HTTP nor the keys of the service.
 *
 * Two threads must not use the same object at the same time. There is no global state. Texts and
 * names are valid UTF-8.
 */
#ifndef CODEC_H
#define CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "account.h"
#include "attention.h"

/* -------------------------------------------------------------------------------------- errors */

enum codec_status {
    CODEC_OK = 0,
    CODEC_SYNTAX,    /* the body is not JSON; `offset` is the byte at fault */
    CODEC_CONTENT,   /* the body is JSON, but not what is asked for; `pointer` is the place */
    CODEC_TOO_LARGE, /* the body exceeds a limit of codec_options or a fixed one */
    CODEC_NO_MEMORY, /* there is no memory, or the account refused it */
};

struct codec_error {
    enum codec_status status;
    bool has_pointer;  /* `pointer` is set; "" is the whole body */
    bool has_offset;   /* `offset`, `line` and `column` are set */
    bool no_json;      /* the body does not begin as JSON does, or it is empty */
    size_t offset;     /* byte of the body, from 0 */
    size_t line;       /* line of that byte, from 1; a line ends with LF */
    size_t column;     /* column of that byte in characters, from 1 */
    char pointer[256]; /* by RFC 6901; a pointer that is too long ends at a parent */
    char message[384]; /* the rule and the value that broke it */
};

/* ------------------------------------------------------------------------------ reading a body */

/* How a body is read. The texts are borrowed. */
struct codec_options {
    size_t max_bytes;  /* bytes that are neither white space nor in tensors; 0 = 1 MiB */
    size_t max_values; /* values that are not in tensors; 0 = 65536 */
    size_t max_keys;   /* keys of all open objects together, below 2^31; 0 = 1024 */
    size_t max_arrays; /* tensors; 0 = 4096 */
    /* The key of the outermost object whose value "float64" gives the document this type; NULL = no
     * key. */
    const char *dtype_key;
    /* The values may hold -Infinity, which is not JSON. NULL comes after the last key; "" = the
     * whole body. */
    const char *const *infinity_keys;
    /* The level of the objects whose members these are: 1 is the outermost object, and 3 is an
     * object in an array in it; 0 = 1. */
    size_t key_level;
    const char *null_key; /* the key whose numbers may be null for minus infinity, for a message */
    /* The text holds settings that a program in Python may have written: an array is a list of
     * values of any kind, and never a tensor, and NaN, Infinity and -Infinity are numbers. */
    bool settings;
    bool integers; /* numbers are integers, and are written so: 4 is taken, and 4.0 is refused */
    struct account *account; /* counts all that is allocated; borrowed; NULL = nothing is counted */
};

/* The hint about a text that begins with "version": the pointer that Git LFS leaves in place of a
 * file begins with "version https://git-lfs.github.com/spec/v1", and neither JSON nor safetensors
 * can begin so. */
extern const char codec_lfs_pointer[];

struct codec_reader;
struct codec_document;
struct codec_value; /* a place in a document; borrowed from it */

/* Returns owned, or NULL if out of memory. `options` may be NULL for the defaults. The keys must
 * outlive the reader, and the account must outlive the reader and its document. */
struct codec_reader *codec_reader_create(const struct codec_options *options);

/* Reads the next bytes of the body. The chunks may have any size: the result does not depend on
 * where the body is cut. After an error every later call returns the same error, which
 * codec_reader_error() describes. */
enum codec_status codec_reader_feed(struct codec_reader *reader, const void *bytes, size_t size);

/* Ends the body: checks that it is complete, and returns the document owned in *document, or NULL
 * there and an error. */
enum codec_status codec_reader_finish(struct codec_reader *reader,
                                      struct codec_document **document);

/* The error is borrowed from the reader. */
const struct codec_error *codec_reader_error(const struct codec_reader *reader);

/* Count the values outside of tensors so far, and their bytes without white space. */
size_t codec_reader_values(const struct codec_reader *reader);
size_t codec_reader_bytes(const struct codec_reader *reader);

void codec_reader_free(struct codec_reader *reader); /* accepts NULL */

/* -------------------------------------------------------------------------------- the document */

enum codec_kind {
    CODEC_NULL,
    CODEC_BOOL,
    CODEC_NUMBER,
    CODEC_TEXT,
    CODEC_ARRAY, /* an array that is no tensor, or an empty one */
    CODEC_OBJECT,
    CODEC_TENSOR, /* an array whose leaves are all numbers or null, or all booleans */
};

void codec_document_free(struct codec_document *document); /* accepts NULL */

/* Returns the float type of the document: ATTN_FLOAT64 if the dtype_key says so, otherwise
 * ATTN_FLOAT32. It may stand behind the numbers, so all numbers are read as float64. A tensor gets
 * the type of the document when it is read or converted; its numbers are then what rounding their
 * texts gives. */
attn_dtype codec_document_dtype(const struct codec_document *document);

/* Returns the account that counts the memory of the document; NULL if it has none. */
struct account *codec_document_account(const struct codec_document *document);

const struct codec_value *codec_root(const struct codec_document *document);
enum codec_kind codec_kind_of(const struct codec_value *value);

/* Returns the member of an object with exactly this name; NULL if there is none. */
const struct codec_value *codec_get(const struct codec_value *object, const char *name);

/* Does the same, and returns NULL also for a member that is null, and without an object. */
const struct codec_value *codec_given(const struct codec_value *object, const char *name);

/* Returns an element of an array or a member of an object; NULL beyond the last. */
const struct codec_value *codec_at(const struct codec_value *parent, size_t index);

/* Returns the number of elements or members; 0 for every other kind, tensors included. */
size_t codec_size(const struct codec_value *value);

/* Returns the name of a member; NULL for an element and the root. */
const char *codec_name(const struct codec_value *value);

/* Returns the element or member after this one, NULL after the last. A loop over a list with it
 * takes linear time. */
const struct codec_value *codec_next(const struct codec_value *value);

/* ------------------------------------------------------------------------- changing a document */

/* Makes a value and adds it to an array, or to an object under a name, which must live as long as
 * the document. Without a parent the value is no part of the tree, but it may become the root.
 * The kind is any but CODEC_TENSOR. Returns NULL if there is no memory. */
struct codec_value *codec_make_value(struct codec_document *, struct codec_value *parent,
                                     const char *name, enum codec_kind kind);

/* Each gives a value another kind and content. The text must live as long as the document, and
 * `other` is not used any more. */
void codec_set_bool(struct codec_value *value, bool on);
void codec_set_number(struct codec_value *value, double number);
void codec_set_text(struct codec_value *value, const char *text);
void codec_set_value(struct codec_value *value, const struct codec_value *other);

/* Gives a value the content of a text that is JSON for a reader with these options, or else the
 * text itself. Errors: CODEC_NO_MEMORY. */
bool codec_set_json(struct codec_document *, struct codec_value *value, const char *text,
                    const struct codec_options *options, struct codec_error *error);

void codec_set_dtype(struct codec_document *, attn_dtype dtype);
void codec_set_root(struct codec_document *, struct codec_value *root);

/* ----------------------------------------------------------------------- the keys of an object */

/* A name that another program has for a key, and what the message says about it. */
struct codec_foreign {
    const char *name;
    unsigned where; /* one bit for each kind of object in which this row holds */
    const char *hint;
};

/* The keys of an object, and the hints about names that are none of them. */
struct codec_keys {
    const char *const *names; /* the `count` keys */
    size_t count;
    const char *const *elsewhere; /* `elsewhere_count` names that are no keys but go into `place` */
    size_t elsewhere_count;
    const char *place;
    const struct codec_foreign *foreign; /* `foreign_count` rows */
    size_t foreign_count;
    unsigned here; /* the bit of this kind of object: only rows with it count */
};

/* Refuses a value that is no object, and members that are none of the keys. The message says what a
 * foreign name is here: unknown key "num_heads"; it is "heads" here. For other names it gives the
 * nearest key (unknown key "casual"; did you mean "causal"?) or the nearest name that goes
 * elsewhere (unknown key "weigths"; "weights" goes into "return"). */
bool codec_check_keys(const struct codec_document *document, const struct codec_value *object,
                      const struct codec_keys *keys, struct codec_error *error);

/* ----------------------------------------------------------------------------- reading a value */

/* Each codec_as_ function reads one value. If the value is not what it must be, the function
 * returns false with CODEC_CONTENT, the pointer and a message ("K must be ..."). */
bool codec_as_bool(const struct codec_document *, const struct codec_value *, bool *out,
                   struct codec_error *);

/* Reads a finite number. */
bool codec_as_number(const struct codec_document *, const struct codec_value *, double *out,
                     struct codec_error *);

/* Reads a whole number in [min, max]. It was read as float64, so from 2^53 on it is refused. */
bool codec_as_integer(const struct codec_document *, const struct codec_value *, int64_t min,
                      int64_t max, int64_t *out, struct codec_error *);

/* Reads a list of *count whole numbers in [min, max]. The first `most` of them are checked and
 * written to `out`. A single number is a list of one. The numbers are float64, unless
 * codec_as_reals() or codec_as_reals_or_null() has read them before, or they came as bytes in
 * another type. Numbers from 2^53 on in float64 or 2^24 in float32 are refused. */
bool codec_as_integers(const struct codec_document *, const struct codec_value *, int64_t min,
                       int64_t max, int64_t *out, size_t most, size_t *count, struct codec_error *);

/* Lists of whole numbers, which have one length and follow each other. */
struct codec_integers {
    int64_t *numbers; /* the first `most` of them */
    size_t most, count, lists;
};

/* Reads an array of such lists. The caller sets `numbers` and `most`. Numbers that are refused are
 * those of codec_as_integers(). */
bool codec_as_integer_lists(const struct codec_document *, const struct codec_value *, int64_t min,
                            int64_t max, struct codec_integers *, struct codec_error *);
/* Reads a list of *count finite numbers, at most `most`, into memory of the document's account.
 * They are those of codec_as_integers(). */
bool codec_as_numbers(const struct codec_document *, const struct codec_value *, size_t most,
                      const double **out, size_t *count, struct codec_error *);

/* Reads a text. It is borrowed from the document, ends with NUL and has no NUL inside. */
bool codec_as_text(const struct codec_document *, const struct codec_value *, const char **out,
                   struct codec_error *);

/* Reads a text that must be one of names[0..count), and returns its index in *out. Otherwise the
 * message lists the names and gives the nearest. */
bool codec_as_choice(const struct codec_document *, const struct codec_value *,
                     const char *const *names, size_t count, size_t *out, struct codec_error *);

/* ---------------------------------------------------------------------------- reading a tensor */

/* Reads a tensor of finite numbers in the type of the document, with min_rank <= rank <= max_rank.
 * null, a number out of range of the type, booleans and empty arrays are refused; the message names
 * the element. A tensor without elements may lack the axes after an empty one. The data are
 * borrowed from the document. */
bool codec_as_reals(const struct codec_document *, const struct codec_value *, int min_rank,
                    int max_rank, attn_tensor *out, struct codec_error *);

/* Does the same, but leaves the numbers in the type in which they were read: float64 for those of
 * JSON, whatever the type of the document is. */
bool codec_as_exact_reals(const struct codec_document *, const struct codec_value *, int min_rank,
                          int max_rank, attn_tensor *out, struct codec_error *);

/* The same for rows of keys or values, which may hold NaN and infinities in a tensor that came as
 * bytes. *special is the first such number, or SIZE_MAX. The next three functions are for such a
 * tensor. */
bool codec_as_rows(const struct codec_document *, const struct codec_value *, int min_rank,
                   int max_rank, attn_tensor *out, size_t *special, struct codec_error *);

/* Returns the first of the numbers [first, end) that is not finite, or `end`. */
size_t codec_find_special(const struct codec_value *, size_t first, size_t end);

/* Makes 0 of each of the numbers [first, end) that is not finite. */
void codec_clear_special(const struct codec_value *, size_t first, size_t end);

/* Multiplies each of the numbers [first, end) by that of its block. `scale` has the type of the
 * tensor and as many axes, and divides each of them into blocks of one size. */
void codec_scale(const struct codec_value *, const attn_tensor *scale, size_t first, size_t end);

/* Refuses a number that is not finite. Returns false. */
bool codec_refuse_special(const struct codec_document *, const struct codec_value *, size_t special,
                          struct codec_error *);

/* Reads a finite number as a vector of one element in the type of the document. A number out of
 * range of the type is refused. *element holds the number, and the data of *out point there. */
bool codec_as_real(const struct codec_document *, const struct codec_value *, double *element,
                   attn_tensor *out, struct codec_error *);

/* Reads what codec_as_reals() reads, and null and -Infinity as minus infinity. The reader accepts
 * -Infinity only in the values of the infinity_keys. */
bool codec_as_reals_or_null(const struct codec_document *, const struct codec_value *, int min_rank,
                            int max_rank, attn_tensor *out, struct codec_error *);

/* Reads a tensor of true and false, or of 1 and 0, as ATTN_BOOL. Other numbers are refused; the
 * message names the element. The data are borrowed from the document. */
bool codec_as_mask(struct codec_document *, const struct codec_value *, int min_rank, int max_rank,
                   attn_tensor *out, struct codec_error *);

/* Returns whether all elements of a mask that codec_as_mask() has read are the number 0. Of
 * booleans and of the datatype BOOL this is false. */
bool codec_mask_is_zeros(const struct codec_value *);

/* Some tensors must be converted before they can be used, number by number: the numbers of a mask
 * become bytes, those of a datatype are checked and rounded, and those of JSON become float32. A
 * long tensor is converted in chunks. What is not converted yet is converted by the function that
 * reads it. */

/* Say which function will read a value, which may be of any kind: codec_as_mask(), or one that
 * reads reals in the type of the document. */
void codec_expect_mask(const struct codec_value *);
void codec_expect_reals(const struct codec_document *, const struct codec_value *);

/* Returns how many numbers are still to be converted. A number that is converted twice counts
 * twice. */
size_t codec_unconverted(const struct codec_document *);

/* Converts the next numbers, at most `most`. Errors: CODEC_CONTENT for a number that its datatype
 * does not have. codec_as_mask() refuses a number that is neither 0 nor 1. */
bool codec_convert(struct codec_document *, size_t most, struct codec_error *);

/* Writes the shape of a tensor and returns its rank; returns 0 for every other value. */
size_t codec_shape(const struct codec_value *, size_t shape[static ATTN_MAX_RANK]);

/* Writes the shape of an array in which every array on one level has the same length and those on
 * the last level are empty: [[], []] has the shape (2, 0). JSON cannot show the axes after an empty
 * one. Returns the rank, or 0 for every other value. */
size_t codec_empty_shape(const struct codec_value *, size_t shape[static ATTN_MAX_RANK]);

/* Returns the product of a shape, which fits in a size_t. */
static inline size_t codec_count(int rank, const size_t *shape) {
    size_t count = 1;
    for (int axis = 0; axis < rank; axis++) {
        count *= shape[axis];
    }
    return count;
}

/* Replaces a value by a tensor of zeros. The caller may write its elements through *data until the
 * document is freed. The product of the shape fits in a size_t.
 * There is room for `capacity` elements; the first of them are those of the tensor. */
bool codec_make_tensor(struct codec_document *, const struct codec_value *, attn_dtype dtype,
                       int rank, const size_t *shape, size_t capacity, void **data,
                       struct codec_error *);

/* Makes a tensor of a value if codec_empty_shape() knows its shape. Returns false with the error
 * set if there is no memory. */
bool codec_make_empty(struct codec_document *, const struct codec_value *, struct codec_error *);

/* ---------------------------------------------------------------------------- refusing a value */

/* Each fills `error` and returns false. */

/* Sets CODEC_CONTENT, the pointer of `value` (NULL: of the root) and a message. */
bool codec_fail(const struct codec_document *document, const struct codec_value *value,
                struct codec_error *error, const char *format, ...)
    __attribute__((cold, format(printf, 4, 5)));

/* Sets CODEC_CONTENT, the pointer of `value` and a message that says what it must be and what it
 * is: "causal must be true or false, not a number". A text is quoted. */
__attribute__((cold)) bool codec_refuse(const struct codec_document *document,
                                        const struct codec_value *value, const char *wanted,
                                        struct codec_error *error);

/* Sets CODEC_NO_MEMORY and a message. */
__attribute__((cold)) bool codec_no_memory(struct codec_error *error);

/* --------------------------------------------------------------------------------------- words */

enum {
    CODEC_MAX_WORDS = 16384
};

/* A text as a list of words, and as ids. The words are sorted by code point. The id of a word is
 * its place in that order, and the last place if the word occurs more than once (Python: {word: i
 * for i, word in enumerate(sorted(words))}). */
struct codec_words {
    size_t count;        /* number of words, at least 1 */
    const char **words;  /* `count` words, in the order of the text */
    int64_t *ids;        /* `count` ids, one for each word */
    size_t different;    /* number of different words */
    const char **sorted; /* `different` words: the vocabulary */
    int64_t *sorted_ids; /* `different` ids, one for each word of the vocabulary */
    size_t text_bytes;   /* bytes of all words in `words`, with a NUL after each */
    /* Only vocabulary.c uses these: the characters, the lists, and the account that counts both. */
    char *text, *block;
    struct account *account;
};

/* Makes words of a text as Python's str.lower(), str.replace() and str.split() do: in lower case,
 * without commas, semicolons and full stops, cut at white space. Returns owned, or NULL with the
 * error set. The words do not need the document any more. */
struct codec_words *codec_words_of_text(const struct codec_document *, const struct codec_value *,
                                        struct codec_error *);

/* Makes words of an array of texts, which are taken as they are. Otherwise like
 * codec_words_of_text(). */
struct codec_words *codec_words_of_tokens(const struct codec_document *, const struct codec_value *,
                                          struct codec_error *);
void codec_words_free(struct codec_words *words); /* accepts NULL */

/* -------------------------------------------------------------------------------------- writer */

/* One step of an answer. */
enum codec_op {
    CODEC_OP_OBJECT, /* begins an object */
    CODEC_OP_ARRAY,  /* begins an array */
    CODEC_OP_END,    /* ends the innermost object or array */
    CODEC_OP_TENSOR, /* nested arrays; rank 0 is a plain number. -inf, +inf and NaN become null */
    CODEC_OP_PARTS,  /* the matrices or rows of `parts` in an array, for each item of a batch */
    CODEC_OP_TEXTS,  /* `texts` in an array */
    CODEC_OP_IDS,    /* an object in which each of `texts` has its number of `ids` */
    CODEC_OP_NUMBER,
    CODEC_OP_TEXT,
    CODEC_OP_BOOL,
};

/* All pointers are borrowed until the item is written. */
struct codec_item {
    enum codec_op op;
    const char *key;    /* the name of a member of an object; NULL inside an array */
    attn_tensor tensor; /* CODEC_OP_TENSOR */
    double number;      /* CODEC_OP_NUMBER; CODEC_OP_BOOL: 0 is false */
    const char *text;   /* CODEC_OP_TEXT */
    /* A list is not part of its item, so an item has one size however long its list is. */
    size_t count; /* number of `parts` in each batch item, or of `texts` */
    /* All parts have rank 2, or all have rank 3 with the batch as their first axis. */
    const attn_result_tensor *parts;
    const char *const *texts;
    const int64_t *ids;
};

/* Returns how many more objects and arrays are open after an item: 1, 0, or SIZE_MAX for 1 less. */
static inline size_t codec_item_depth(const struct codec_item *item) {
    return item->op == CODEC_OP_OBJECT || item->op == CODEC_OP_ARRAY ? 1
           : item->op == CODEC_OP_END                                ? SIZE_MAX
                                                                     : 0;
}

enum {
    CODEC_FEW_ITEMS = 40 /* items of a list that needs no memory of its own */
};

/* A growing list of items. It has a pointer into itself, so it is not copied. */
struct codec_items {
    struct codec_item *list;
    size_t count, capacity;
    struct account *account; /* borrowed; counts a long list; NULL: nothing counts it */
    bool failed;             /* there was no memory for an item, which is missing */
    struct codec_item few[CODEC_FEW_ITEMS];
};

void codec_items_begin(struct codec_items *items, struct account *account);

/* Frees the items and leaves an empty list. */
void codec_items_free(struct codec_items *items);

/* Each of these adds one item. Keys, texts and numbers are borrowed until the items are written.
 * `key` is NULL inside an array. An integer is an int64_t, or a size_t below 2^63; the "digits" of
 * a request do not round it. If there is no memory, `failed` is set. */
void codec_add(struct codec_items *items, struct codec_item item);
void codec_add_open(struct codec_items *items, enum codec_op op, const char *key);
void codec_add_close(struct codec_items *items);
void codec_add_tensor(struct codec_items *items, const char *key, const attn_tensor *tensor);
void codec_add_integers(struct codec_items *items, const char *key, const void *integers,
                        size_t count);
void codec_add_integer(struct codec_items *items, const char *key, const void *integer);
void codec_add_number(struct codec_items *items, const char *key, double number);
void codec_add_bool(struct codec_items *items, const char *key, bool on);
void codec_add_text(struct codec_items *items, const char *key, const char *text);
void codec_add_texts(struct codec_items *items, const char *key, const char *const *texts,
                     size_t count);

/* Bytes of codec_items_write(). All zeros is an empty buffer. */
struct codec_buffer {
    char *data;
    size_t size;
};

enum {
    CODEC_ROOM = 64 /* bytes beyond its text that codec_write() may write over */
};

/* Writes the items at `out` as one compact JSON text and a newline, and returns the end. There must
 * be room for codec_items_bytes() and CODEC_ROOM. A number has the fewest digits that read back as
 * the same float32, float64 or int64, or it is rounded to `digits` significant digits (1 to 17; 0 =
 * the fewest). Arrays and objects are balanced and are nested at most 64 deep. */
char *codec_write(char *out, const struct codec_item *items, size_t count, int digits);

/* Writes a list into an empty buffer, which counts in the account of the list and lies in its arena
 * if it fits there. `bytes` is codec_items_bytes() of the list, in full. `before` bytes at the
 * beginning are left for the caller to set. Returns false if there is no memory, or was none for an
 * item; the buffer is empty then. */
bool codec_items_write(const struct codec_items *items, int digits, size_t before, size_t bytes,
                       struct codec_buffer *buffer);

/* Writes the same text piece by piece, for answers that are too long to be held as text. The items
 * and what they point to are borrowed. A writer takes ten kilobytes, however long the text is. NULL
 * if out of memory. */
struct codec_writer;
struct codec_writer *codec_writer_create(const struct codec_item *items, size_t count, int digits);
void codec_writer_free(struct codec_writer *writer); /* accepts NULL */

/* Writes the next bytes: `room`, or fewer at the end of the text. Returns how many; 0 after the
 * end. Allocates nothing, so an answer that was begun can be completed. */
size_t codec_writer_read(struct codec_writer *writer, char *out, size_t room);

/* Returns an upper bound of the bytes that codec_write() makes of a tensor: numbers, commas and
 * brackets. SIZE_MAX if it does not fit in a size_t. The data are not read. */
size_t codec_text_bytes(const attn_tensor *tensor, int digits);

/* Returns an upper bound of the bytes that codec_write() makes of these items. It stops counting
 * beyond `most`: if the bound is larger than `most`, the result is some number larger than
 * `most`. */
size_t codec_items_bytes(const struct codec_item *items, size_t count, int digits, size_t most);

#endif
