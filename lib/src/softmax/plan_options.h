/*
 * plan_options.h - the options of a plan: which keys a query may attend to, and what its scores
 * get.
 */
#ifndef ATTN_PLAN_OPTIONS_H
#define ATTN_PLAN_OPTIONS_H

#include "base/tensor.h"
#include "bindings.h"

/* The rules that say which keys a query may attend to, and which bias its scores get. */
struct rules {
    bool causal;
    int64_t window[2];           /* -1: open */
    size_t *lengths;             /* one for each batch item; NULL if there are none */
    struct broadcast mask, bias; /* without a mask, key_padding is the mask */
    bool padding, padding_too;   /* there is key_padding; there is a mask beside it */
    size_t padding_item;         /* from one batch item of it to the next, or 0 */
    size_t keys;                 /* the keys that the rules are about */
};

/* A mask or bias that is made for extra keys: it has a row for each of these items, heads and
 * queries. */
struct extended {
    size_t items, heads, rows;
};

/* The keys without a position: bias_K and zero_key. If there are any, the engine's rules are one
 * mask and one bias for all keys, which each run makes of the `given` rules. */
struct extra_keys {
    size_t count;
    struct rules given;
    struct extended mask, bias;
};

/* The logarithms of the forget gates, see engine/decay.inc. */
struct decay {
    size_t items, heads; /* 1, or those of the call */
    size_t stride[3];    /* from one item, head or key to the next, in elements */
};

enum {
    DECAY_KEYS = 1 << 16 /* the most keys whose decays one task adds */
};

/* Resolves all options against the sizes and the heads of the plan. */
attn_status plan_options(attn_plan *plan, const attn_options *o, attn_error *error);

/* Reads the numbers of alibi and sink, and the positions of rotary embedding, which the caller may
 * have changed since the last run. Fails with ATTN_INVALID_ARGUMENT if a slope or sink is not
 * finite. */
attn_status plan_read_numbers(const attn_plan *plan, const struct bindings *bindings,
                              attn_error *error);

/* Returns the axis of a decay that has the keys. Beside packed rows an axis of 1 may follow that of
 * the heads. */
int plan_decay_axis(const attn_plan *plan, const attn_tensor *t);

#endif
