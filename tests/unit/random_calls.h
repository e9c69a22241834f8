/*
 * random_calls.h - draws calls over all options, all forms and both dtypes. Q, K and V of each head
 * are made first, and are then put into the form of the call. For a call with projections, X and
 * the weights are drawn, and Q, K and V are computed from them.
 */
#ifndef RANDOM_CALLS_H
#define RANDOM_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attention.h"
#include "support/rng.h"

enum {
    MAX_HEADS = 6,
    MAX_BATCH = 3
};

enum form {
    PLAIN_2D,
    PLAIN_3D,
    PLAIN_4D,
    PACKED_2D,
    PACKED_3D,
    PROJECTED,
    FORM_COUNT
};

static inline bool form_is_packed(enum form form) {
    return form == PACKED_2D || form == PACKED_3D;
}

/* The form of a matrix, and what of the batch and the heads of the call it has. */
struct own {
    enum form form;
    bool one;     /* it has one batch item, which all share */
    size_t heads; /* each is shared by H / heads heads */
    size_t ones;  /* axes of the size 1 before the others */
    size_t drop;  /* most axes of the size 1 that are left out */
};

/* One call with all its inputs. The doubles are exact in the dtype of the call. */
struct random_call {
    struct rng rng;
    attn_dtype dtype;
    enum form form;
    bool batched, has_heads; /* which axes the results have */
    size_t B, H, KV, n, p;
    struct own own_q, own_k, own_v;
    size_t m;                            /* keys, past and extra ones included */
    size_t extra;                        /* the last of them, which are bias_K and zero_key */
    size_t d[MAX_HEADS], d_v[MAX_HEADS]; /* of each key head */
    /* The matrices of each batch item and head; K and V begin with the past rows. */
    double *Q[MAX_BATCH][MAX_HEADS], *K[MAX_BATCH][MAX_HEADS], *V[MAX_BATCH][MAX_HEADS];
    double *mask_full, *bias_full; /* (B,H,n,m) or NULL */
    double *decay_full;            /* (B,H,m) or NULL */
    double scales[MAX_HEADS], slopes[MAX_HEADS], sinks[MAX_HEADS];
    bool has_sinks;
    size_t lengths[MAX_BATCH];
    unsigned char *exists; /* key_padding, (B,m), or NULL */
    double *w_o, *b_o;     /* (sum d_v, d_out), (d_out) */
    size_t d_out;
    attn_tensor *q, *k, *v; /* of a call without projections */
    attn_options options;
    attn_rotary rotary;
    attn_multihead multihead;
    attn_projection projections[MAX_HEADS];
    attn_tensor tensors[80];
    size_t tensor_count;
    void *blocks[4096];
    size_t block_count;
};

/* Draws the call of a seed, and plans it; the plan must be possible. The caller frees the plan, and
 * the call by free_random_call(). */
attn_plan *draw_random_call(struct random_call *c, uint64_t seed);

/* Plans a drawn call again, after its options were changed; the plan must be possible. */
attn_plan *plan_random_call(struct random_call *c, uint64_t seed);
void free_random_call(struct random_call *c);

/* Draws the options that a call of any form may have, packed sequences too: those of one number for
 * all heads or for each. */
void draw_rules(struct random_call *c);

/* Draws the logarithms of forget gates, of which some are 0. They have the axes of K. */
void draw_decay(struct random_call *c, struct rng *rng);

/* Returns the batch items whose matrices are drawn: one at least, which a matrix may have although
 * the call has none. */
size_t drawn_items(const struct random_call *c);

/* Returns the position of query i of batch item b. */
int64_t random_position(const struct random_call *c, size_t b, size_t i);

/* Allocates zeros that are freed with the call, and behind which nothing can be read. */
void *keep_block(struct random_call *c, size_t bytes);

/* Draws normal numbers of a standard deviation, which are exact in the dtype of the call. They are
 * freed with the call. */
double *draw_normals(struct random_call *c, size_t count, double scale);

/* Returns a tensor of the call's dtype with these numbers. It is freed with the call. */
attn_tensor *tensor_of(struct random_call *c, const double *x, int rank, const size_t *shape);

/* Returns Y (rows, columns) = X (rows, inner) W + bias, where element (r, column) of W is
 * w[r * row_stride + column * column_stride]. It is freed with the call. `bias` may be NULL. */
double *matrix_product(struct random_call *c, const double *x, size_t rows, size_t inner,
                       const double *w, size_t row_stride, size_t column_stride, size_t columns,
                       const double *bias);

#endif
