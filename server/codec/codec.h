/*
 * codec.h - bytes <-> tensors. The reader lifts every array of numbers or booleans out of a JSON
 * body into a typed buffer while the bytes arrive; what is left, the skeleton, is small and is
 * read through the codec_* accessors below. The writer turns a flat list of items into JSON.
 *
 * Knows cJSON and attn_tensor; never HTTP. Everything here is single-threaded per object and has
 * no global state.
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
    CODEC_SYNTAX,    /* not JSON: `offset` is the byte */
    CODEC_CONTENT,   /* JSON, but not what is asked for: `pointer` (RFC 6901) is the place */
    CODEC_TOO_LARGE, /* over a limit of codec_options, or over a fixed one */
    CODEC_NO_MEMORY, /* there is none, or the account refused it */
};

struct codec_error {
    enum codec_status status;
    bool has_pointer;  /* `pointer` holds ("" is the whole body) */
    bool has_offset;   /* the next three hold */
    size_t offset;     /* byte of the body, from 0 */
    size_t line;       /* from 1; a line ends with LF */
    size_t column;     /* from 1, in characters */
    char pointer[256]; /* RFC 6901, escaped, cut at a token if longer */
    char message[384]; /* the rule and the value that broke it; valid UTF-8 */
};

/* -------------------------------------------------------------------------------------- reader */

/* How a body is read. Both keys are borrowed and mean members of the outermost object. */
struct codec_options {
    size_t max_depth;         /* levels of arrays and objects, at most 64; 0 = 16 */
    size_t max_skeleton;      /* bytes of the body that are not in lifted arrays; 0 = 1 MiB */
    const char *dtype_key;    /* its value "float64" makes all matrices float64; NULL = no key */
    const char *infinity_key; /* its value may hold -Infinity, which is not JSON; NULL = no key */
    struct account *account; /* borrowed; counts all that is allocated; NULL = nothing is counted */
};

struct codec_reader;
struct codec_document;
struct codec_value; /* a place in a document; borrowed from it */

/* Returns owned, NULL if out of memory. `options` may be NULL for the defaults. The keys must outlive
 * the reader, and the account must outlive the reader and its document. */
struct codec_reader *codec_reader_create(const struct codec_options *options);

/* Feeds the next bytes of the body, in chunks of any size: the result is the same however the body
 * is cut. After an error every later call returns the same error. The error stays owned by the
 * reader: codec_reader_error(). */
enum codec_status codec_reader_feed(struct codec_reader *reader, const void *bytes, size_t size);

/* The body is complete: checks that and hands over the document (returns owned). */
enum codec_status codec_reader_finish(struct codec_reader *reader,
                                      struct codec_document **document);

const struct codec_error *codec_reader_error(const struct codec_reader *reader);

/* Values outside of lifted arrays so far, the most that codec_reader_finish() has to parse. */
size_t codec_reader_values(const struct codec_reader *reader);

/* Bytes of the body that are outside of lifted arrays so far. */
size_t codec_reader_skeleton(const struct codec_reader *reader);

void codec_reader_free(struct codec_reader *reader);       /* NULL is fine */
void codec_document_free(struct codec_document *document); /* NULL is fine */

/* The float type of the lifted numbers: ATTN_FLOAT64 if the value of the dtype_key is "float64",
 * else ATTN_FLOAT32. The key may stand anywhere in a body of up to 256 KiB. In a larger body it must
 * stand before the first matrix; otherwise the reader fails with CODEC_CONTENT. */
attn_dtype codec_document_dtype(const struct codec_document *document);

/* The account that counts the memory of the document; NULL if it has none. */
struct account *codec_document_account(const struct codec_document *document);

/* -------------------------------------------------------------------------- reading a document */

enum codec_kind {
    CODEC_NULL,
    CODEC_BOOL,
    CODEC_NUMBER,
    CODEC_TEXT,
    CODEC_ARRAY,
    CODEC_OBJECT,
    CODEC_TENSOR, /* a lifted array: all leaves are numbers or null, or all are booleans */
};

const struct codec_value *codec_root(const struct codec_document *document);
enum codec_kind codec_kind_of(const struct codec_value *value);

/* Member of an object by exact name, NULL if there is none; element of an array; number of members
 * or elements (0 for every other kind). */
const struct codec_value *codec_get(const struct codec_value *object, const char *name);
const struct codec_value *codec_at(const struct codec_value *array, size_t index);
size_t codec_size(const struct codec_value *value);

/* The name of a member; NULL for an element and the root. */
const char *codec_name(const struct codec_value *value);

/* The element or member after this one, NULL after the last: long lists in linear time. */
const struct codec_value *codec_next(const struct codec_value *value);

/* A name that another program has for a key, and what the message says about it. */
struct codec_foreign {
    const char *name;
    unsigned where; /* bits: the objects in which this row holds */
    const char *hint;
};

/* The keys of an object, and the hints about names that are none of them. */
struct codec_keys {
    const char *const *names; /* `count`: the keys */
    size_t count;
    const char *const *elsewhere; /* `elsewhere_count` names that go into `place` and are no keys */
    size_t elsewhere_count;
    const char *place;
    const struct codec_foreign *foreign; /* `foreign_count` rows; those with the bit `here` count */
    size_t foreign_count;
    unsigned here;
};

/* Refuses a value that is no object, and members that are none of the keys. The message says what
 * a foreign name is here: unknown key "num_heads"; it is "heads" here. For other names it gives the
 * nearest key (unknown key "casual"; did you mean "causal"?) or the nearest name that goes
 * elsewhere (unknown key "weigths"; "weights" goes into "return"). */
bool codec_check_keys(const struct codec_document *document, const struct codec_value *object,
                      const struct codec_keys *keys, struct codec_error *error);

/* Each reads one value or fails with CODEC_CONTENT, pointer and message ("K must be ..."). */
bool codec_as_bool(const struct codec_document *, const struct codec_value *, bool *out,
                   struct codec_error *);
bool codec_as_number(const struct codec_document *, const struct codec_value *, double *out,
                     struct codec_error *);
bool codec_as_integer(const struct codec_document *, const struct codec_value *, int64_t min,
                      int64_t max, int64_t *out, struct codec_error *);
/* Borrowed, NUL-terminated, valid UTF-8 without NUL inside. */
bool codec_as_text(const struct codec_document *, const struct codec_value *, const char **out,
                   struct codec_error *);

/* Index of a text among names[0..count). If it is none of them, the message lists them and names
 * the nearest. */
bool codec_as_choice(const struct codec_document *, const struct codec_value *,
                     const char *const *names, size_t count, size_t *out, struct codec_error *);

/* A matrix of finite numbers in the document's dtype, of min_rank <= rank <= max_rank. null, a
 * number out of range of the dtype, booleans and empty arrays are refused, naming the element.
 * Borrowed from the document. */
bool codec_as_reals(const struct codec_document *, const struct codec_value *, int min_rank,
                    int max_rank, attn_tensor *out, struct codec_error *);

/* Reads what codec_as_reals() reads, and null and -Infinity as minus infinity. The reader accepts
 * -Infinity only in the value of the infinity_key. */
bool codec_as_reals_or_null(const struct codec_document *, const struct codec_value *, int min_rank,
                            int max_rank, attn_tensor *out, struct codec_error *);

/* true/false or 1/0, as ATTN_BOOL. Numbers other than 0 and 1 are refused, naming the element. */
bool codec_as_mask(struct codec_document *, const struct codec_value *, int min_rank, int max_rank,
                   attn_tensor *out, struct codec_error *);

/* Makes a value a tensor of zeros, which the caller writes over through *data until the document is
 * freed: whatever it was before is gone. The shape has no 0, and its product fits. There is room
 * for `capacity` elements, of which those of the shape are the first. */
bool codec_make_tensor(struct codec_document *, const struct codec_value *, attn_dtype dtype,
                       int rank, const size_t *shape, size_t capacity, void **data,
                       struct codec_error *);

/* A list of *count whole numbers in [min, max], of which the first `most` are checked and written
 * to `out`. A single number is a list of one. The numbers were read as float64 and are exact up to
 * 2^53 if there are at most 4096 of them; longer lists, and one that codec_as_reals() or
 * codec_as_reals_or_null() has read before, were read in the document's dtype. */
bool codec_as_integers(const struct codec_document *, const struct codec_value *, int64_t min,
                       int64_t max, int64_t *out, size_t most, size_t *count, struct codec_error *);

/* Rounds `count` float64 numbers to float32 in place, to nearest with ties to even: float32 i is
 * written into the memory of the numbers before i + 1, when number i has been read. */
void codec_narrow(void *numbers, size_t count);

/* The shape of a lifted array. Returns its rank; 0 for every other value. */
size_t codec_shape(const struct codec_document *, const struct codec_value *,
                   size_t shape[static ATTN_MAX_RANK]);

/* Fills `error` with CODEC_CONTENT, the pointer of `value` and a message that says what it must be
 * and what it is: "causal must be true or false, not a number". Texts are quoted. Returns false. */
bool codec_refuse(const struct codec_document *document, const struct codec_value *value,
                  const char *wanted, struct codec_error *error);

/* Fills `error` with CODEC_NO_MEMORY and a message. Returns false. */
bool codec_no_memory(struct codec_error *error);

/* Fills `error` with CODEC_CONTENT, the pointer of `value` (of the root if NULL) and a message.
 * Returns false. */
bool codec_fail(const struct codec_document *document, const struct codec_value *value,
                struct codec_error *error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* --------------------------------------------------------------------------------------- words */

enum {
    CODEC_MAX_WORDS = 16384
};

/* A text as a list of words, and as ids. With the words sorted by code point, the id of a word is
 * its place there, the last one if it is there more than once (Python: {word: i for i, word in
 * enumerate(sorted(words))}). */
struct codec_words {
    size_t count;        /* at least 1 */
    const char **words;  /* count, in the order of the text */
    int64_t *ids;        /* count: of each */
    size_t different;    /* words */
    const char **sorted; /* different, each once */
    int64_t *sorted_ids; /* different */
    size_t text_bytes;   /* of all words in `words`, a NUL behind each */
    /* Only vocabulary.c uses these: the characters, the lists, and the account that counts both. */
    char *text, *block;
    size_t text_room, block_size;
    struct account *account;
};

/* Each returns owned words, or NULL with the error set. `text`: lower case, without commas,
 * semicolons and full stops, cut at white space, as str.lower(), str.replace() and str.split() of
 * Python do it. `tokens`: a list of words, which are taken as they are. */
struct codec_words *codec_words_of_text(const struct codec_document *, const struct codec_value *,
                                        struct codec_error *);
struct codec_words *codec_words_of_tokens(const struct codec_document *, const struct codec_value *,
                                          struct codec_error *);
void codec_words_free(struct codec_words *words); /* NULL is fine */

/* -------------------------------------------------------------------------------------- writer */

/* One step of an answer. `key` is the member name inside an object, NULL inside an array. */
enum codec_op {
    CODEC_OP_OBJECT,
    CODEC_OP_ARRAY,
    CODEC_OP_END,    /* opens and closes */
    CODEC_OP_TENSOR, /* nested arrays; rank 0 is a plain number. -inf, +inf and NaN become null */
    CODEC_OP_PARTS,  /* the matrices of `parts` in an array; with a batch, an array for each item */
    CODEC_OP_TEXTS,  /* `texts` in an array */
    CODEC_OP_IDS,    /* an object in which each of `texts` has its number of `ids` */
    CODEC_OP_NUMBER,
    CODEC_OP_TEXT,
    CODEC_OP_BOOL,
    CODEC_OP_NULL,
};

struct codec_item {
    enum codec_op op;
    const char *key;    /* borrowed */
    attn_tensor tensor; /* CODEC_OP_TENSOR; data borrowed */
    double number;      /* CODEC_OP_NUMBER; CODEC_OP_BOOL: 0 or not */
    const char *text;   /* CODEC_OP_TEXT; borrowed, valid UTF-8 */
    /* A long list is borrowed, so an item has one size however long its list is. */
    size_t count; /* of the parts of a batch item, or of texts */
    const attn_result_tensor
        *parts;               /* of rank 2, or all of rank 3 with the batch as their first axis */
    const char *const *texts; /* valid UTF-8 */
    const int64_t *ids;
};

/* A growing byte buffer. Zero-initialise; free(data) or hand it on. */
struct codec_buffer {
    char *data;
    size_t size, capacity;
};

/* Appends the items as one compact JSON text and a newline. Numbers are written with the fewest
 * digits that read back as the same float32, float64 or int64, or rounded to `digits` significant
 * digits (1..17, 0 = shortest). False if out of memory. */
bool codec_write(struct codec_buffer *buffer, const struct codec_item *items, size_t count,
                 int digits);

/* The same text piece by piece, for answers too large to be held as text. Borrows the items and
 * what they point to. Takes ten kilobytes, however long the text is. NULL if out of memory. */
struct codec_writer;
struct codec_writer *codec_writer_create(const struct codec_item *items, size_t count, int digits);
void codec_writer_free(struct codec_writer *writer); /* NULL is fine */

/* Writes the next bytes, `room` unless the text ends before; 0 at its end. Allocates nothing: what
 * was begun can be ended. False if arrays and objects are nested too deep. */
bool codec_writer_read(struct codec_writer *writer, char *out, size_t room, size_t *size);

/* Upper bound of the bytes that codec_write() makes of a tensor: numbers, commas and brackets.
 * SIZE_MAX if it does not fit in a size_t. The data are not looked at. */
size_t codec_text_bytes(const attn_tensor *tensor, int digits);

/* Upper bound of the bytes that codec_write() makes of these items, or something larger than `most`
 * if it is larger than that. */
size_t codec_items_bytes(const struct codec_item *items, size_t count, int digits, size_t most);

#endif
