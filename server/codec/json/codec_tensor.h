/*
 * codec_tensor.h - the tensors of a document: arrays of numbers or booleans, in typed buffers that
 * grow while the elements arrive. This part knows numbers and memory. The reader knows where a
 * tensor stands in the body, and learns its shape.
 */
#ifndef CODEC_TENSOR_H
#define CODEC_TENSOR_H

#include <stdbool.h>
#include <stddef.h>

#include "attention.h"
#include "codec/codec.h"

enum {
    /* The characters that are kept of a number that is out of range. */
    TENSOR_TEXT = 32,
    /* Bytes of the block in which a tensor begins. */
    TENSOR_FIRST = 1024,
};
#define TENSOR_NONE ((size_t)-1)

/* The conversions of all numbers of a tensor that convert.c has still to make, as bits. */
enum {
    CONVERT_TYPE = 1, /* the number must be one of another type, and may have to be rounded to it */
    CONVERT_NARROW = 2, /* the float64 number becomes float32 */
    CONVERT_MASK = 4    /* the number becomes a byte, 0 or 1 */
};

/* The numbers of which a double does not tell to which float32 or half their text is rounded: the
 * double lies halfway between two of them, and the text beside it. They stand in the order of the
 * tensor. */
struct codec_tensor_sides {
    size_t
        *list; /* twice the index of the number, and 1 more if its text has the larger magnitude */
    size_t count, capacity;
    size_t next; /* the first of them that is not rounded yet */
};

struct codec_tensor {
    void *data;    /* the buffer: floats, doubles, or bytes 0 and 1; see `mapped` and `borrowed` */
    size_t bytes;  /* bytes of the buffer that are counted in the account */
    size_t pages;  /* bytes of the pages of its own, which may not all be provided yet */
    bool mapped;   /* the buffer has pages of its own; otherwise it is a block of malloc */
    bool borrowed; /* the buffer is `first` of codec_tensor_init(), or lies in the document */
    attn_dtype dtype; /* ATTN_FLOAT32, ATTN_FLOAT64 or ATTN_BOOL */
    bool arrived;     /* the elements arrived as bytes */
    bool infinite;    /* the element `first_null` is -Infinity, and not null */
    bool own_type;    /* the numbers do not get the type of the document */
    int rank;
    size_t shape[ATTN_MAX_RANK]; /* an axis whose length is not known yet has 0 */
    size_t count;                /* elements so far */
    size_t capacity;             /* elements that there is room for */
    size_t first_null;           /* the first element that is null or -Infinity, or TENSOR_NONE */
    size_t first_range; /* the first number out of range of the tensor's type, or TENSOR_NONE */
    char range_text[TENSOR_TEXT + 1]; /* the beginning of that number */
    size_t texts; /* > 0: the bytes are so many texts, each after its length in four bytes */
    int type;     /* the enum codec_type of a tensor that has a datatype; 0 in a body of JSON */
    struct codec_tensor_sides sides;
    const struct codec_value *value; /* the place of the tensor in the document, for messages */
    struct codec_tensor *next;       /* of the document; NULL after the last */
    /* Only convert.c uses the rest. */
    unsigned pending; /* CONVERT_TYPE, CONVERT_NARROW, CONVERT_MASK */
    size_t converted; /* numbers to which the lowest bit of `pending` is done */
    bool boolean; /* CONVERT_TYPE: the type is BOOL, so the numbers 0 and 1 stand for booleans */
    bool ones;    /* CONVERT_MASK: one of the numbers so far is not 0 */
    bool zeros;   /* the tensor was a mask of numbers, all of which were 0 */
    size_t first_wrong; /* the first number that is none of its type or of a mask, or TENSOR_NONE */
};

/* The functions that take an account count the buffer there, and fail if the account refuses it. */

/* Begins a tensor. The first elements go to `first`, a block of TENSOR_FIRST bytes that is borrowed
 * until the tensor ends. So a small tensor is allocated once, in its final size. */
void codec_tensor_init(struct codec_tensor *tensor, attn_dtype dtype, int rank, void *first);

/* Makes zeros of a tensor that has just begun. It has `count` elements in this shape and room for
 * `capacity`. The caller writes over them. Pages that are not written take no physical memory.
 * False if out of memory. */
bool codec_tensor_zeros(struct codec_tensor *tensor, struct account *account, const size_t *shape,
                        size_t count, size_t capacity);

/* Makes room for one more element. False if out of memory. */
bool codec_tensor_room(struct codec_tensor *tensor, struct account *account);

/* Makes room for `needed` of the `total` elements that a tensor will have, or for all of them if
 * the tensor is short. Memory is counted while the elements arrive, so elements that never come
 * take none. False if out of memory. */
bool codec_tensor_room_for(struct codec_tensor *tensor, struct account *account, size_t needed,
                           size_t total);

/* Each stores one element; there must be room. `text` is a number by the grammar of JSON, and is
 * stored as the nearest double. False if out of memory. */
bool codec_tensor_add_number(struct codec_tensor *tensor, struct account *account, const char *text,
                             size_t size);
void codec_tensor_add_null(struct codec_tensor *tensor, bool infinite); /* -Infinity, or null */
void codec_tensor_add_bool(struct codec_tensor *tensor, bool value);

/* Returns element i of a tensor of numbers, whatever its type is. */
static inline double codec_tensor_number(const struct codec_tensor *tensor, size_t i) {
    return tensor->dtype == ATTN_FLOAT64 ? ((const double *)tensor->data)[i]
                                         : (double)((const float *)tensor->data)[i];
}

/* Stores the numbers of a text such as "1.5, -2,3e4, ..." while there is room. Stops before a
 * number that is long, reaches `end`, lies near a rounding boundary, or is none:
 * codec_tensor_add_number() is for these. Returns where it stopped. *added is how many numbers it
 * stored. *after: it stopped behind a number, so a comma may follow. */
const char *codec_tensor_add_run(struct codec_tensor *tensor, const char *text, const char *end,
                                 size_t *added, bool *after);

/* Gives back the room that is left over, unless the buffer is borrowed. */
void codec_tensor_trim(struct codec_tensor *tensor, struct account *account);
void codec_tensor_free(struct codec_tensor *tensor, struct account *account);

/* Forgets the sides, which nobody needs after the numbers were rounded. */
void codec_tensor_drop_sides(struct codec_tensor *tensor, struct account *account);

/* True for the bytes that end a scalar (a number or a literal): structure, quotes and white
 * space. */
extern const bool codec_ends_scalar[256];

#endif
