/*
 * drawn.h - valid calls that are drawn from the table of request fields. A new row of the table
 * takes part by its sample, which has values in JSON with "|" between them, or first the axes of a
 * matrix:
 *
 *     b batch   h heads   H G heads of Q and of K, which may stand in the columns instead
 *     n queries   m new keys   p past keys   k all keys   a with extra ones   w words   r positions
 *     s sequences, of which there are two
 *     d v columns of a head of K and of V   e half of d   i all columns of the heads of V
 *     c x y o columns of X, of the context, of the value context and of the projected output
 *
 * A matrix with fewer axes than these lacks the first ones.
 */
#ifndef SUPPORT_DRAWN_H
#define SUPPORT_DRAWN_H

#include "support/binary.h"
#include "support/rng.h"

enum {
    DRAWN_BINARY = 50
};

struct drawn_call {
    struct binary_call call;
    bool words;                         /* stand in place of X, and the answer has them, too */
    char options[4096], returned[1024]; /* the call borrows them */
    char axes[BINARY_INPUTS][5];        /* of the inputs: a letter for each axis */
};

/* The endpoints that take calls. The last one needs a stored layer, tests/data/layers. */
extern const char *const drawn_paths[];
extern const size_t drawn_path_count;

/* Draws a call of this endpoint. With `json` it may have what only a body in JSON can have: draws,
 * heads with weights of their own, and digits. The calls of equal seeds are equal. */
void draw_call(struct rng *rng, const char *path, bool json, struct drawn_call *drawn);

/* Returns the dtype of a drawn call: "float64" if `wide` is true, unless the call needs float32. */
const char *drawn_dtype(const struct drawn_call *drawn, bool wide);

/* Draws call `i` of those that are sent in every format. */
void draw_binary(size_t i, struct drawn_call *drawn);

/* A key whose value has a limit: the rank of a matrix, or a number. */
struct drawn_limit {
    const char *name;
    int least, most;     /* `most` is 0 if only `least` is a limit */
    const char *element; /* of a matrix, in JSON; NULL for a number */
    bool open;           /* a lower rank has another meaning */
};

/* Fills *limit with that of key `i` of an endpoint, or of a head if the path is "heads". The key
 * has no limit if its `least` and `most` are 0. Returns false if there is no such key. */
bool drawn_limit_of(const char *path, size_t i, struct drawn_limit *limit);

/* Returns a short body that the endpoint takes. */
const char *drawn_example(const char *path);

/* Returns key `i` of an endpoint, or of a head if the path is "heads"; NULL if there is none. */
const char *drawn_key(const char *path, size_t i);

#endif
