/*
 * attention_calls.h - a call of attention, whose numbers are known for each head, and its runs. It
 * is drawn at random: here from a kind (a set of options) and sizes, and by random_calls.h from a
 * seed over all options and forms. All numbers are doubles that are exact in the dtype of the call.
 * So two results have the same bytes if and only if their doubles have.
 */
#ifndef ATTENTION_CALLS_H
#define ATTENTION_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attention.h"
#include "support/count.h"
#include "support/plans.h"
#include "support/rng.h"

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

/* Memory blocks that are freed with a call. They are memory of malloc if `heap`, which is faster.
 * Otherwise nothing behind a block can be read. */
struct kept {
    void **blocks;
    size_t count;
    bool heap;
};

void *keep_bytes(struct kept *kept, size_t bytes);
void free_kept(struct kept *kept);

/* ------------------------------------------------------------------------------------- a call */

enum {
    MAX_HEADS = 6, /* of a call that is drawn from a seed */
    MAX_BATCH = 3,
    MOST_TENSORS = 80 /* of a call */
};

enum call_form {
    PLAIN_2D,
    PLAIN_3D,
    PLAIN_4D,
    PACKED_2D,
    PACKED_3D,
    PROJECTED,
    FORM_COUNT
};

static inline bool form_is_packed(enum call_form form) {
    return form == PACKED_2D || form == PACKED_3D;
}

/* The form of a matrix, and what of the batch and the heads of the call it has. */
struct own {
    enum call_form form;
    bool one;     /* it has one batch item, which all share */
    size_t heads; /* each is shared by H / heads heads */
    size_t ones;  /* axes of the size 1 before the others */
    size_t drop;  /* most axes of the size 1 that are left out */
};

/* One call. B = batch, H = heads, KV = kv_heads, VH = v_heads. The rows of a head that has fewer
 * columns than others follow each other, and the rest of its place is not used. */
struct call {
    attn_dtype dtype;
    size_t batch, heads, kv_heads, v_heads; /* v_heads: 0 = KV */
    size_t n, m, past, d, d_v;              /* m counts past and extra keys, too */
    double *q, *k, *v;     /* (B,H,n,d), (B,KV,m,d), (B,VH,m,d_v); past rows first */
    bool shared;           /* K and V are passed without their batch axis; the items are equal */
    unsigned char *mask;   /* (B,H,n,m) or NULL */
    unsigned char *exists; /* key_padding, (B,m) without extra keys, or NULL */
    double *bias;          /* (B,H,n,m) or NULL */
    double *slopes;        /* (H) or NULL */
    double *decay;         /* (B,H,m) or NULL */
    double *sinks;         /* (H) or NULL */
    double *gate;          /* of a call of a seed: (B,H,n,d_v) or NULL */
    size_t *lengths;       /* (B) or NULL */
    attn_options options;  /* of a kind: without results and pointers, with a scale and a window */
    /* The rest is that of a call of a seed. Its tensors are made with it. */
    struct rng rng;
    enum call_form form;
    bool batched, has_heads; /* which axes the results have */
    struct own own_q, own_k, own_v;
    size_t extra;                                /* the last keys, which are bias_K and zero_key */
    size_t own_d[MAX_HEADS], own_d_v[MAX_HEADS]; /* of each key head; all are the same, or each
                                                    head has weights of its own */
    double *Q[MAX_BATCH][MAX_HEADS], *K[MAX_BATCH][MAX_HEADS], *V[MAX_BATCH][MAX_HEADS];
    double scales[MAX_HEADS];
    double *w_o, *b_o; /* (sum d_v, d_out), (d_out) */
    size_t d_out;
    attn_tensor *tensor_q, *tensor_k, *tensor_v; /* of a call without projections */
    attn_rotary rotary;
    attn_multihead multihead;
    attn_projection projections[MAX_HEADS];
    attn_tensor *tensors[MOST_TENSORS];
    size_t tensor_count;
    struct kept kept;
};

/* Allocates zeros that are freed with a call of any kind. */
#define keep_block(call, bytes) keep_bytes(&(call)->kept, bytes)

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

/* Returns the first row of the keys, or of the values, that query head h uses. */
size_t key_row(const struct call *c, size_t b, size_t h);
size_t value_row(const struct call *c, size_t b, size_t h);

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
