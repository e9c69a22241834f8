/*
 * attention_calls.h - the calls that the tests of attention draw at random from a kind (a set of
 * options) and sizes, and their runs. All numbers are doubles that are exact in the dtype of the
 * call. So two results have the same bytes if and only if their doubles have.
 */
#ifndef ATTENTION_CALLS_H
#define ATTENTION_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attention.h"
#include "support/plans.h"

/* The options of a kind of call, as bits. */
enum {
    PLAIN = 0,
    CAUSAL = 1 << 0,       /* top left */
    BOTTOM_RIGHT = 1 << 1, /* causal, bottom right */
    WINDOW = 1 << 2,
    MASK = 1 << 3, /* a third of the keys is forbidden; the first query may attend to no key */
    BIAS = 1 << 4, /* a sixth of the biases is -inf */
    SOFTCAP = 1 << 5,
    ALIBI = 1 << 6,
    GROUPED = 1 << 7, /* two query heads for each key head */
    SINK = 1 << 8,
    LENGTHS = 1 << 9, /* a batch of two */
    PAST = 1 << 10,
    NEGATIVE = 1 << 11,   /* scale < 0 */
    PADDING = 1 << 12,    /* a quarter of the keys in the middle, and some others, do not exist */
    SHARED = 1 << 13,     /* a batch of two that shares K and V, which have rank 3 */
    AT_THE_END = 1 << 14, /* bottom right without causal */
    NONE = 1 << 15,       /* no normalization */
    SIGMOID = 1 << 16,
    DECAY = 1 << 17, /* forget gates, of which a few are 0; the call is causal */
    STICK = 1 << 18, /* stick-breaking */
    ALL = WINDOW | MASK | BIAS | SOFTCAP | ALIBI | GROUPED | SINK | LENGTHS | PAST | PADDING,
};

/* One call. B = batch, H = heads, KV = kv_heads. */
struct call {
    attn_dtype dtype;
    size_t batch, heads, kv_heads, n, m, past, d, d_v;
    double *q, *k, *v;     /* (B,H,n,d), (B,KV,m,d), (B,KV,m,d_v); past rows first */
    bool shared;           /* K and V are passed without their batch axis; the items are equal */
    unsigned char *mask;   /* (B,H,n,m) or NULL */
    unsigned char *exists; /* key_padding, (B,m), or NULL */
    double *bias;          /* (B,H,n,m) or NULL */
    double *slopes;        /* (H) or NULL */
    double *decay;         /* (B,H,m) or NULL */
    double *sinks;         /* (H) or NULL */
    size_t *lengths;       /* (B) or NULL */
    attn_options options;  /* without results; as drawn with a scale, a window and no pointers */
};

/* Returns 2^-24 or 2^-53: half a unit in the last place of 1. */
double epsilon(attn_dtype dtype);

/* True for calls of many multiply-adds in a run under valgrind, which leaves them out. */
bool too_slow(size_t heads, size_t n, size_t m, size_t columns);

/* --------------------------------------------------------------------------------------- calls */

/* Draws a call of a kind. The same arguments give the same call. Free it with free_call(). */
struct call draw_call(unsigned kind, attn_dtype dtype, size_t heads, size_t n, size_t m, size_t d,
                      size_t d_v);
struct call copy_call(const struct call *c);
void free_call(struct call *c);

/* Returns the call of head h of batch item b alone. */
struct call only_head(const struct call *c, size_t b, size_t h);

/* Returns the row of query i among all rows of all heads. */
size_t row_of(const struct call *c, size_t b, size_t h, size_t i);

/* Returns the first row of the keys and values that query head h uses. */
size_t key_row(const struct call *c, size_t b, size_t h);

/* Returns the valid keys of a batch item, and the position of query i. */
size_t length_of(const struct call *c, size_t b);
int64_t position_of(const struct call *c, size_t b, size_t i);
/* Returns the sum of the decays after key j, up to the position of query i; 0 without decays. */
double decay_between(const struct call *c, size_t b, size_t h, size_t i, size_t j);
bool may_attend(const struct call *c, size_t b, size_t h, size_t i, size_t j);

/* Returns the bits of the gradients by all inputs of a call. */
uint64_t gradients_of(const struct call *c);

/* ---------------------------------------------------------------------------------------- runs */

/* Returns rows [from, to) of each of `heads` matrices (rows, columns) in the call's dtype. The
 * caller frees the data. */
attn_tensor rows_of_heads(const struct call *c, const double *x, size_t heads, size_t rows,
                          size_t from, size_t to, size_t columns);

/* Runs a call; the plan must be possible. With try_call() the run may fail, and the caller looks at
 * the status. With run_call() the run must succeed. Free the results with free_results(). */
struct results try_call(const struct call *c, uint64_t wanted);
struct results try_call_by(const struct call *c, uint64_t wanted, run_tasks *run);
struct results run_call(const struct call *c, uint64_t wanted);

#endif
