/*
 * fields.h - the fields of requests: which keys the JSON object of each endpoint may have, and how
 * the value of each is read. All of this comes from one table in fields.c. A new option of a call
 * is a row there, a member of attn_options, the arithmetic in the library, and tests.
 */
#ifndef API_FIELDS_H
#define API_FIELDS_H

#include "api/api.h"

struct call;
struct call_weights;
struct field;

/* The objects whose keys the table knows, as bits. */
enum {
    FIELDS_AT_ATTENTION = 1,
    FIELDS_AT_PROJECTIONS = 2, /* /self-attention and /multi-head-attention */
    FIELDS_AT_HEAD = 4,        /* one head of the list "heads" */
    FIELDS_AT_SOFTMAX = 8,
    FIELDS_AT_EMBEDDINGS = 16,
    FIELDS_AT_LAYER = 32, /* /layers/{name}/attention */
    FIELDS_AT_LINEAR = 64 /* /linear-attention */
};

enum {
    FIELDS_MOST = 112 /* most rows of the table */
};

/* The fields that are read together, in the order of the table. */
enum fields_group {
    FIELDS_UNGROUPED, /* each is read alone: by generated.c, or by the handler */
    FIELDS_WORK,      /* keys of every endpoint, which go into struct api_work */
    FIELDS_INPUTS,    /* the matrices that a call is about, which go into struct call */
    FIELDS_WEIGHTS, /* projections of a request or of one head, which go into struct call_weights */
    FIELDS_OPTIONS  /* the options of a call of attention, which go into struct call */
};

/* How {"random": ...} in place of a value is drawn. */
enum fields_draw {
    FIELDS_NOT_DRAWN, /* an object cannot stand there */
    FIELDS_NUMBERS,
    FIELDS_MASK /* drawn as numbers 0 and 1, which become bytes */
};

/* The members of one object of a body. */
struct fields {
    unsigned at;       /* the bit FIELDS_AT_* of the object */
    bool unknown;      /* the value is no object, or it has a member that is no key */
    uint64_t initials; /* a bit for each first letter of a key, modulo 64 */
    size_t count;
    struct fields_given {
        const struct field *row;
        const struct codec_value *value; /* borrowed from the document */
    } given[FIELDS_MOST];                /* in the order of the table */
};

/* Finds the members of an object in the table. A key whose value is null counts as absent, even if
 * it is required. It never fails; fields_check() refuses what is wrong with the object, and a null
 * under a name that is no key, too. */
void fields_find(struct fields *fields, const struct codec_value *object, unsigned at);

/* Refuses a value that is no object, and a member that is no key. The message has a hint if the
 * name is that of another program, a key of another endpoint, the name of a result, or nearly a
 * key. `object` is what fields_find() got. Returns false with the error set. */
bool fields_check(const struct fields *fields, const struct codec_document *document,
                  const struct codec_value *object, struct codec_error *error);

/* Returns the value of a key, or NULL if the object does not have it. Borrowed. */
const struct codec_value *fields_get(const struct fields *fields, const char *name);

/* Returns the first value of a group in the order of the table, or NULL. Borrowed. */
const struct codec_value *fields_first(const struct fields *fields, enum fields_group group);

/* Makes `value` the value of a key, although it stands under another name in the body. Does nothing
 * if the object has no such key. */
void fields_put(struct fields *fields, const char *name, const struct codec_value *value);

/* Says to the document which of its values will be read as masks, and which as matrices of its
 * type. All other numbers stay as they were read. */
void fields_expect(const struct fields *fields, const struct codec_document *document);

/* A key whose value is a matrix, a mask, a list of numbers, or words. */
struct fields_matrix {
    const char *name;
    int rank; /* with a batch axis and heads, where it can have them */
    bool mask, words;
};

/* Lists the matrices and words that these objects can have, in the order of the table, and returns
 * their number. */
size_t fields_matrices(unsigned at, struct fields_matrix matrices[static FIELDS_MOST]);

/* Returns whether these objects have the key. */
bool fields_has(const char *name, unsigned at);

/* Returns the shortest body, in JSON, that the endpoint of one bit takes. A stored layer may want
 * an X with more columns. */
const char *fields_example(unsigned at);

/* Returns whether these objects have the key, and its value is a text or texts. */
bool fields_is_words(const char *name, unsigned at);

/* Lists the keys of these objects, and returns their number. */
size_t fields_names(unsigned at, const char *names[static FIELDS_MOST]);

/* Says how a value under this name can be drawn, whatever the object is. */
enum fields_draw fields_draw_of(const char *name);

/* The key whose value decides the dtype of all matrices, and the keys whose matrices may hold
 * -Infinity, with NULL after the last one, for codec_reader_create(). */
const char *fields_dtype_key(void);
void fields_infinity_keys(const char *keys[static API_INFINITY_KEYS]);

/* Returns whether the numbers of a list or matrix under this name never pass through the dtype of a
 * request. */
bool fields_is_exact(const char *name);

/* Returns the key of these objects that takes null for minus infinity, but not -Infinity; NULL if
 * there is none. */
const char *fields_null_key(unsigned at);

/* Returns whether a matrix under this name may hold -Infinity. */
bool fields_takes_infinity(const char *name);

/* The key of the object of expected tensors. */
const char *fields_expected_key(void);

/* Each of these reads the given fields of one group, in the order of the table, and leaves the
 * targets of the other fields as they are. Matrices borrow their numbers from the body. Each
 * returns false with the error set. */
bool fields_read_work(const struct api_request *request, struct api_work *work,
                      struct codec_error *error);
bool fields_read_inputs(const struct api_request *request, struct call *call,
                        struct codec_error *error);
bool fields_read_weights(const struct fields *fields, struct codec_document *document,
                         struct call_weights *weights, attn_projection *projection,
                         struct codec_error *error);
/* Reads the group FIELDS_WORK first. */
bool fields_read_options(const struct api_request *request, struct call *call,
                         struct codec_error *error);

/* Reads a whole number of at least 1. */
bool field_count(const struct codec_document *document, const struct codec_value *value,
                 size_t *count, struct codec_error *error);

/* Answers that the library refuses a call. The pointer of the problem is the key under which the
 * argument stands in the body. */
void fields_refuse(struct api_request *request, const attn_error *error);

#endif
