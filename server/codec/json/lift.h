/*
 * lift.h - one array of numbers or booleans on its way out of the text: a typed buffer that grows
 * while the elements arrive. Knows numbers and memory; not where the array stands in the body, nor
 * its shape before the reader has seen it end.
 */
#ifndef CODEC_LIFT_H
#define CODEC_LIFT_H

#include <stdbool.h>
#include <stddef.h>

#include "attention.h"
#include "codec/codec.h"

/* Characters kept of a number that is out of range. */
enum {
    LIFT_TEXT = 32
};
/* Elements of an array of rank 1 up to which a float32 document keeps it in double: it may be a
 * list of whole numbers that float32 would change. */
enum {
    LIFT_EXACT = 4096
};
/* Bytes of the block in which an array begins. */
enum {
    LIFT_FIRST = 1024
};
#define LIFT_NONE ((size_t)-1)

struct lifted {
    void *data;       /* owned: float, double, or bytes 0 and 1; free it with lifted_free() */
    size_t bytes;     /* of the buffer, as they are counted in the account */
    bool mapped;      /* data has pages of its own; else it is from malloc, */
    bool borrowed;    /* ... or the block that lifted_init() was given, or `few` */
    attn_dtype dtype; /* ATTN_FLOAT32, ATTN_FLOAT64 or ATTN_BOOL */
    bool exact;       /* ATTN_FLOAT64 only until lifted_narrow() */
    int rank;
    size_t shape[ATTN_MAX_RANK]; /* 0: not known yet */
    size_t count;                /* elements so far */
    size_t capacity;             /* elements there is room for */
    size_t first_null;           /* first element that is null or -Infinity, or LIFT_NONE */
    size_t first_range;          /* first out of range of the document's dtype, or LIFT_NONE */
    char range_text[LIFT_TEXT + 1];
    double few[2]; /* the elements themselves, if there is room for all after lifted_trim() */
};

/* The functions that take an account count the buffer there, and fail if it refuses. */

/* `dtype` is the document's, or ATTN_BOOL. Short vectors begin `exact`. The first elements go to
 * `first`, a block of LIFT_FIRST bytes that is borrowed until lifted_trim(): so a small array takes
 * as much memory as it needs, no more, and is allocated once. */
void lifted_init(struct lifted *lifted, attn_dtype dtype, int rank, void *first);

/* Zeros in this shape, of `count` elements, with room for `capacity` of them. Nothing was lifted:
 * they are there to be written over, and take no memory before, but for what is used again. False
 * if out of memory. */
bool lifted_zeros(struct lifted *lifted, struct account *account, attn_dtype dtype, int rank,
                  const size_t *shape, size_t count, size_t capacity);

/* Makes the float32 array of an `exact` one, with the very floats that the text rounds to, and
 * leaves every other as it is. */
void lifted_narrow(struct lifted *lifted);

/* Makes room for one more element. False if out of memory. */
bool lifted_room(struct lifted *lifted, struct account *account);

/* Each stores one element; there must be room. `text` is a number by the grammar. */
void lifted_add_number(struct lifted *lifted, const char *text, size_t size);
void lifted_add_null(struct lifted *lifted);
void lifted_add_bool(struct lifted *lifted, bool value);

/* Element i of an array of numbers, whatever its type. */
static inline double lifted_number(const struct lifted *lifted, size_t i) {
    return lifted->dtype == ATTN_FLOAT64 ? ((const double *)lifted->data)[i]
                                         : (double)((const float *)lifted->data)[i];
}

/* Stores the numbers of "1.5, -2,3e4, ..." at text, as long as they are plain and there is room:
 * what is long, close to `end`, not quite a number or near a rounding boundary is left to the
 * careful path. Returns where it stopped, and how many numbers it stored; *after: the last one's
 * comma is still to come. */
const char *lifted_add_run(struct lifted *lifted, const char *text, const char *end, size_t *added,
                           bool *after);

/* Gives back the room that is left over. False if out of memory. */
bool lifted_trim(struct lifted *lifted, struct account *account);
void lifted_free(struct lifted *lifted, struct account *account);

/* The records of all arrays of a body, by number. They lie in blocks that never move: a list that
 * grew in one piece would leave holes in the heap, as much memory as it has itself. */
struct lifted_list {
    struct lifted **blocks; /* owned, of LIFT_BLOCK records each */
    size_t count;           /* of the records */
    size_t block_count, block_capacity;
};
enum {
    LIFT_BLOCK = 8
};

static inline struct lifted *lifted_at(const struct lifted_list *list, size_t index) {
    return &list->blocks[index / LIFT_BLOCK][index % LIFT_BLOCK];
}

/* The place of the next record, number list->count, which the caller raises when it is filled.
 * NULL if out of memory. */
struct lifted *lifted_next(struct lifted_list *list, struct account *account);

/* Frees all arrays and their records. The list is empty then. */
void lifted_list_free(struct lifted_list *list, struct account *account);

/* True for the bytes that end a word (a number or a literal): structure, quotes and white space. */
extern const bool codec_ends_word[256];

#endif
