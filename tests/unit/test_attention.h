/*
 * test_attention.h - what the laws of attention share: calls drawn at random from a kind (which
 * options) and sizes, calls made from other calls (one head, some keys), and runs of them. All of
 * it is held in doubles that are exact in the call's dtype, so that two results have the same
 * bytes if and only if their doubles have.
 */
#ifndef TEST_ATTENTION_H
#define TEST_ATTENTION_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "support/reference.h"
#include "support/rng.h"
#include "support/scale.h"

/* What a kind of call is made of; bits. */
enum {
    PLAIN = 0,
    CAUSAL = 1 << 0,       /* top left */
    BOTTOM_RIGHT = 1 << 1, /* causal */
    WINDOW = 1 << 2,
    MASK = 1 << 3, /* a third forbidden; the first query may attend to nothing */
    BIAS = 1 << 4, /* some of it -inf */
    SOFTCAP = 1 << 5,
    ALIBI = 1 << 6,
    GROUPED = 1 << 7, /* two query heads for each key head */
    SINK = 1 << 8,
    LENGTHS = 1 << 9,
    PAST = 1 << 10,
    NEGATIVE = 1 << 11, /* scale < 0 */
    ALL = WINDOW | MASK | BIAS | SOFTCAP | ALIBI | GROUPED | SINK | LENGTHS | PAST,
};

struct call {
    attn_dtype dtype;
    size_t batch, heads, kv_heads, n, m, past, d, d_v;
    double *q, *k, *v;   /* (B,H,n,d), (B,KV,m,d), (B,KV,m,d_v); past rows first */
    unsigned char *mask; /* (B,H,n,m) or NULL */
    double *bias;        /* same */
    double *slopes;      /* (H) or NULL */
    double *sinks;       /* same */
    size_t *lengths;     /* (B) or NULL */
    attn_causal causal;
    attn_normalization normalization;
    int64_t left, right; /* -1 = open */
    double scale, softcap;
    unsigned flags; /* more of ATTN_FLAG_* */
};

struct results {
    attn_status status;
    attn_error error;
    double *of[ATTN_RESULT_COUNT]; /* NULL if not wanted, or on error */
    size_t count[ATTN_RESULT_COUNT];
};

static inline void *allocate(size_t count, size_t size) {
    void *block = calloc(count == 0 ? 1 : count, size);
    cr_assert_not_null(block);
    return block;
}

static inline void *copy(const void *from, size_t count, size_t size) {
    return from == NULL ? NULL : memcpy(allocate(count, size), from, count * size);
}

/* 2^-24 or 2^-53: half a unit in the last place of 1. */
static inline double epsilon(attn_dtype dtype) {
    return dtype == ATTN_FLOAT32 ? 0x1p-24 : 0x1p-53;
}

/* The bound that test_attention_random.c holds every result to. */
static inline double bound_of(attn_dtype dtype) {
    return dtype == ATTN_FLOAT32 ? 2e-6 : 1e-13;
}

/* Under valgrind, calls of many multiply-adds are left out. */
static inline bool too_slow(size_t heads, size_t n, size_t m, size_t columns) {
    return test_scale(100) < 100 && heads * n * m * columns > 400000;
}

/* ------------------------------------------------------------------------------- drawing a call */

/* Of mean 0 and variance 1, in [-3, 3): the sum of three uniform numbers. */
static inline double *numbers(struct rng *rng, size_t count, attn_dtype dtype) {
    double *x = allocate(count, sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = 2 * (rng_uniform(rng) + rng_uniform(rng) + rng_uniform(rng)) - 3;
        x[i] = dtype == ATTN_FLOAT32 ? (double)(float)x[i] : x[i];
    }
    return x;
}

/* Multiples of 1/64 in [-4, 4]: sums of a few of them are exact in any dtype. */
static inline double *round_numbers(struct rng *rng, size_t count) {
    double *x = allocate(count, sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = (double)rng_between(rng, 0, 512) / 64 - 4;
    }
    return x;
}

static inline struct call draw_call(unsigned kind, attn_dtype dtype, size_t heads, size_t n,
                                    size_t m, size_t d, size_t d_v) {
    struct rng rng = {((uint64_t)kind << 40) + n * 1000003 + m * 1009 + d * 31 + d_v + 1};
    struct call c = {.dtype = dtype, .heads = heads, .n = n, .m = m, .d = d, .d_v = d_v};
    rng_bits(&rng);
    c.batch = kind & LENGTHS ? 2 : 1;
    c.kv_heads = kind & GROUPED ? heads / 2 : heads;
    c.past = kind & PAST ? m / 3 : 0;
    c.scale = (kind & NEGATIVE ? -1 : 1) / sqrt((double)d);
    c.softcap = kind & SOFTCAP ? 1.5 : 0;
    c.causal = kind & BOTTOM_RIGHT ? ATTN_CAUSAL_BOTTOM_RIGHT
               : kind & CAUSAL     ? ATTN_CAUSAL_TOP_LEFT
                                   : ATTN_CAUSAL_NONE;
    c.left = kind & WINDOW ? (int64_t)(m / 4) : -1;
    c.right = kind & WINDOW ? (int64_t)(m / 8) : -1;
    c.q = numbers(&rng, c.batch * heads * n * d, dtype);
    c.k = numbers(&rng, c.batch * c.kv_heads * m * d, dtype);
    c.v = numbers(&rng, c.batch * c.kv_heads * m * d_v, dtype);
    const size_t pairs = c.batch * heads * n * m;
    if (kind & MASK) {
        c.mask = allocate(pairs, 1);
        for (size_t i = 0; i < pairs; i++) {
            c.mask[i] = i >= m && !rng_chance(&rng, 3);
        }
    }
    if (kind & BIAS) {
        c.bias = round_numbers(&rng, pairs);
        for (size_t i = 0; i < pairs; i++) {
            c.bias[i] = rng_chance(&rng, 6) ? -INFINITY : c.bias[i];
        }
    }
    c.slopes = kind & ALIBI ? round_numbers(&rng, heads) : NULL;
    for (size_t h = 0; h < heads && c.slopes != NULL; h++) {
        c.slopes[h] = (double)(h + 1) / 64;
    }
    c.sinks = kind & SINK ? round_numbers(&rng, heads) : NULL;
    if (kind & LENGTHS) {
        c.lengths = allocate(c.batch, sizeof *c.lengths);
        c.lengths[0] = m - m / 5;
        c.lengths[1] = m / 2;
    }
    return c;
}

static inline void free_call(struct call *c) {
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->mask);
    free(c->bias);
    free(c->slopes);
    free(c->sinks);
    free(c->lengths);
    *c = (struct call){0};
}

/* ------------------------------------------------------------------------- calls of other calls */

static inline size_t row_of(const struct call *c, size_t b, size_t h, size_t i) {
    return (b * c->heads + h) * c->n + i;
}

/* The first row of the keys and values of query head h. */
static inline size_t key_row(const struct call *c, size_t b, size_t h) {
    return (b * c->kv_heads + h / (c->heads / c->kv_heads)) * c->m;
}

static inline int64_t position_of(const struct call *c, size_t i) {
    return (int64_t)i + (c->causal == ATTN_CAUSAL_BOTTOM_RIGHT ? (int64_t)c->m - (int64_t)c->n
                                                               : (int64_t)c->past);
}

static inline bool may_attend(const struct call *c, size_t b, size_t h, size_t i, size_t j) {
    const int64_t away = (int64_t)j - position_of(c, i);
    const size_t at = row_of(c, b, h, i) * c->m + j;
    return (c->causal == ATTN_CAUSAL_NONE || away <= 0) && (c->left < 0 || -away <= c->left) &&
           (c->right < 0 || away <= c->right) && (c->lengths == NULL || j < c->lengths[b]) &&
           (c->mask == NULL || c->mask[at] != 0) && (c->bias == NULL || c->bias[at] != -INFINITY);
}

static inline double bias_of(const struct call *c, size_t b, size_t h, size_t i, size_t j) {
    const double bias = c->bias == NULL ? 0 : c->bias[row_of(c, b, h, i) * c->m + j];
    const double slope = c->slopes == NULL ? 0 : c->slopes[h];
    return bias - slope * fabs((double)position_of(c, i) - (double)j);
}

static inline struct call copy_call(const struct call *c) {
    struct call to = *c;
    const size_t pairs = c->batch * c->heads * c->n * c->m;
    to.q = copy(c->q, c->batch * c->heads * c->n * c->d, sizeof *c->q);
    to.k = copy(c->k, c->batch * c->kv_heads * c->m * c->d, sizeof *c->k);
    to.v = copy(c->v, c->batch * c->kv_heads * c->m * c->d_v, sizeof *c->v);
    to.mask = copy(c->mask, pairs, 1);
    to.bias = copy(c->bias, pairs, sizeof *c->bias);
    to.slopes = copy(c->slopes, c->heads, sizeof *c->slopes);
    to.sinks = copy(c->sinks, c->heads, sizeof *c->sinks);
    to.lengths = copy(c->lengths, c->batch, sizeof *c->lengths);
    return to;
}

/* Head h of batch item b alone. */
static inline struct call only_head(const struct call *c, size_t b, size_t h) {
    struct call to = *c;
    const size_t row = row_of(c, b, h, 0), key = key_row(c, b, h), pairs = c->n * c->m;
    to.batch = to.heads = to.kv_heads = 1;
    to.q = copy(c->q + row * c->d, c->n * c->d, sizeof *c->q);
    to.k = copy(c->k + key * c->d, c->m * c->d, sizeof *c->k);
    to.v = copy(c->v + key * c->d_v, c->m * c->d_v, sizeof *c->v);
    to.mask = c->mask == NULL ? NULL : copy(c->mask + row * c->m, pairs, 1);
    to.bias = c->bias == NULL ? NULL : copy(c->bias + row * c->m, pairs, sizeof *c->bias);
    to.slopes = c->slopes == NULL ? NULL : copy(c->slopes + h, 1, sizeof *c->slopes);
    to.sinks = c->sinks == NULL ? NULL : copy(c->sinks + h, 1, sizeof *c->sinks);
    to.lengths = c->lengths == NULL ? NULL : copy(c->lengths + b, 1, sizeof *c->lengths);
    return to;
}

/* The call on these keys, in this order. What depends on the place of a key (causal, window,
 * lengths, ALiBi, the past) is written out as mask and bias. */
static inline struct call only_keys(const struct call *c, const size_t *keys, size_t count) {
    struct call to = *c;
    const size_t pairs = c->batch * c->heads * c->n * count;
    const bool restricted = c->causal != ATTN_CAUSAL_NONE || c->left >= 0 || c->right >= 0 ||
                            c->mask != NULL || c->lengths != NULL;
    to.m = count;
    to.past = 0;
    to.causal = ATTN_CAUSAL_NONE;
    to.left = to.right = -1;
    to.q = copy(c->q, c->batch * c->heads * c->n * c->d, sizeof *c->q);
    to.sinks = copy(c->sinks, c->heads, sizeof *c->sinks);
    to.slopes = NULL;
    to.lengths = NULL;
    to.k = allocate(c->batch * c->kv_heads * count * c->d, sizeof *c->k);
    to.v = allocate(c->batch * c->kv_heads * count * c->d_v, sizeof *c->v);
    to.mask = restricted ? allocate(pairs, 1) : NULL;
    to.bias = c->bias != NULL || c->slopes != NULL ? allocate(pairs, sizeof *to.bias) : NULL;
    for (size_t head = 0; head < c->batch * c->kv_heads; head++) {
        for (size_t j = 0; j < count; j++) {
            memcpy(to.k + (head * count + j) * c->d, c->k + (head * c->m + keys[j]) * c->d,
                   c->d * sizeof *c->k);
            memcpy(to.v + (head * count + j) * c->d_v, c->v + (head * c->m + keys[j]) * c->d_v,
                   c->d_v * sizeof *c->v);
        }
    }
    for (size_t row = 0; row < c->batch * c->heads * c->n; row++) {
        const size_t i = row % c->n, h = row / c->n % c->heads, b = row / c->n / c->heads;
        for (size_t j = 0; j < count; j++) {
            if (to.mask != NULL) {
                to.mask[row * count + j] = may_attend(c, b, h, i, keys[j]);
            }
            if (to.bias != NULL) {
                to.bias[row * count + j] = bias_of(c, b, h, i, keys[j]);
            }
        }
    }
    return to;
}

/* -------------------------------------------------------------------------------------- running */

/* Rows [from, to) of each of `heads` matrices (rows, columns), in the dtype. Owns its data. */
static inline attn_tensor rows_of_heads(const struct call *c, const double *x, size_t heads,
                                        size_t rows, size_t from, size_t to, size_t columns) {
    attn_tensor t = {.dtype = c->dtype,
                     .rank = 4,
                     .shape = {c->batch, heads, to - from, columns},
                     .data = allocate(c->batch * heads * (to - from) * columns, sizeof *x)};
    void *data = (void *)(uintptr_t)t.data;
    size_t at = 0;
    for (size_t head = 0; head < c->batch * heads; head++) {
        const double *row = x + head * rows * columns;
        for (size_t i = from * columns; i < to * columns; i++, at++) {
            if (c->dtype == ATTN_FLOAT32) {
                ((float *)data)[at] = (float)row[i];
            } else {
                ((double *)data)[at] = row[i];
            }
        }
    }
    return t;
}

static inline attn_tensor per_head(const struct call *c, const double *x) {
    struct call one = *c;
    one.batch = 1;
    attn_tensor t = rows_of_heads(&one, x, 1, 1, 0, 1, c->heads);
    t.rank = 1;
    t.shape[0] = c->heads;
    return t;
}

/* A result's numbers as doubles. */
static inline double *numbers_of(const attn_result_tensor *t, size_t count) {
    double *x = allocate(count, sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = t->dtype == ATTN_FLOAT32   ? (double)((const float *)t->data)[i]
               : t->dtype == ATTN_FLOAT64 ? ((const double *)t->data)[i]
                                          : (double)((const int64_t *)t->data)[i];
    }
    return x;
}

static inline void run_plan(attn_plan *plan, struct results *r) {
    void *data[ATTN_RESULT_COUNT] = {0};
    for (int i = 0; i < ATTN_RESULT_COUNT; i++) {
        size_t bytes;
        if (attn_plan_parts(plan, (attn_result)i) > 0) {
            const attn_tensor t = attn_as_tensor(attn_plan_tensor(plan, (attn_result)i, 0));
            cr_assert(attn_tensor_bytes(&t, &bytes) && attn_tensor_count(&t, &r->count[i]));
            data[i] =
                memset(allocate(bytes, 1), 0xff, bytes); /* NaN: what is not written is seen */
            attn_plan_bind(plan, (attn_result)i, 0, data[i]);
        }
    }
    r->status = attn_plan_run(plan, &r->error);
    for (int i = 0; i < ATTN_RESULT_COUNT; i++) {
        if (data[i] != NULL && r->status == ATTN_OK) {
            r->of[i] = numbers_of(attn_plan_tensor(plan, (attn_result)i, 0), r->count[i]);
        }
        free(data[i]);
    }
}

/* Runs a call. The status of the run is for the caller to look at. */
static inline struct results try_call(const struct call *c, unsigned wanted) {
    const attn_tensor none = {0};
    const attn_tensor mask = {
        .data = c->mask, .dtype = ATTN_BOOL, .rank = 4, .shape = {c->batch, c->heads, c->n, c->m}};
    attn_tensor t[] = {
        rows_of_heads(c, c->q, c->heads, c->n, 0, c->n, c->d),
        rows_of_heads(c, c->k, c->kv_heads, c->m, c->past, c->m, c->d),
        rows_of_heads(c, c->v, c->kv_heads, c->m, c->past, c->m, c->d_v),
        c->past == 0 ? none : rows_of_heads(c, c->k, c->kv_heads, c->m, 0, c->past, c->d),
        c->past == 0 ? none : rows_of_heads(c, c->v, c->kv_heads, c->m, 0, c->past, c->d_v),
        c->bias == NULL ? none : rows_of_heads(c, c->bias, c->heads, c->n, 0, c->n, c->m),
        c->slopes == NULL ? none : per_head(c, c->slopes),
        c->sinks == NULL ? none : per_head(c, c->sinks),
    };
    const attn_options o = {
        .flags = ATTN_FLAG_SCALE | ATTN_FLAG_WINDOW | c->flags,
        .results = wanted,
        .causal = c->causal,
        .normalization = c->normalization,
        .scale = c->scale,
        .softcap = c->softcap,
        .window = {c->left, c->right},
        .top_k = 3,
        .mask = c->mask == NULL ? NULL : &mask,
        .past_k = c->past == 0 ? NULL : &t[3],
        .past_v = c->past == 0 ? NULL : &t[4],
        .bias = c->bias == NULL ? NULL : &t[5],
        .alibi_slopes = c->slopes == NULL ? NULL : &t[6],
        .sink = c->sinks == NULL ? NULL : &t[7],
        .lengths = c->lengths,
        .lengths_count = c->lengths == NULL ? 0 : c->batch,
    };
    struct results r = {0};
    attn_plan *plan;
    const attn_status status = attn_plan_attention(&plan, &t[0], &t[1], &t[2], &o, &r.error);
    cr_assert_eq(status, ATTN_OK, "%s", r.error.message);
    run_plan(plan, &r);
    attn_plan_free(plan);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        free((void *)(uintptr_t)t[i].data);
    }
    return r;
}

static inline struct results run_call(const struct call *c, unsigned wanted) {
    struct results r = try_call(c, wanted);
    cr_assert_eq(r.status, ATTN_OK, "%s", r.error.message);
    return r;
}

static inline void free_results(struct results *r) {
    for (int i = 0; i < ATTN_RESULT_COUNT; i++) {
        free(r->of[i]);
    }
    *r = (struct results){0};
}

/* ------------------------------------------------------------------------------------ comparing */

/* The worst error seen, in units of the bound that it was held to. */
struct worst {
    double error;
    const char *what;
    size_t row;
};

static inline void held_to(struct worst *worst, const char *what, size_t row, double is,
                           double want, double bound) {
    const double error = is == want ? 0 : fabs(is - want) / fmax(bound, 1e-300);
    if (!(error <= worst->error)) { /* NaN is the worst */
        *worst = (struct worst){isnan(error) ? INFINITY : error, what, row};
    }
}

static inline double largest_of(const double *x, size_t count) {
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = isfinite(x[i]) ? fmax(largest, fabs(x[i])) : largest;
    }
    return largest;
}

/* The size of the terms that an output row is summed from: max_c sum_j w_j |v_jc|. */
static inline double terms_of(const struct call *c, size_t row, const double *weights) {
    const size_t h = row / c->n % c->heads, b = row / c->n / c->heads;
    const double *v = c->v + key_row(c, b, h) * c->d_v;
    double sums[256] = {0};
    cr_assert_leq(c->d_v, 256);
    for (size_t j = 0; j < c->m; j++) {
        for (size_t e = 0; weights[j] != 0 && e < c->d_v; e++) {
            sums[e] += fabs(weights[j] * v[j * c->d_v + e]);
        }
    }
    return largest_of(sums, c->d_v);
}

/* Holds output and lse of two results of calls on the same queries, and their weights unless the
 * calls have other keys, to a bound that is relative to the size of their rows. a has weights. */
static inline void held_together(struct worst *worst, const struct call *c, const struct results *a,
                                 const struct results *b, double bound) {
    for (size_t row = 0; row < c->batch * c->heads * c->n; row++) {
        const double *w = a->of[ATTN_RESULT_WEIGHTS] + row * c->m;
        const double largest = largest_of(w, c->m), terms = terms_of(c, row, w);
        for (size_t j = 0; j < c->m && b->of[ATTN_RESULT_WEIGHTS] != NULL; j++) {
            held_to(worst, "weights", row, b->of[ATTN_RESULT_WEIGHTS][row * c->m + j], w[j],
                    bound * largest);
        }
        for (size_t e = row * c->d_v; e < (row + 1) * c->d_v; e++) {
            held_to(worst, "output", row, b->of[ATTN_RESULT_OUTPUT][e],
                    a->of[ATTN_RESULT_OUTPUT][e], bound * terms);
        }
        const double lse = a->of[ATTN_RESULT_LSE][row];
        held_to(worst, "lse", row, b->of[ATTN_RESULT_LSE][row], lse, bound * fmax(1, fabs(lse)));
    }
}

/* Did two results of one shape come out the same, byte for byte? */
static inline bool same_bytes(const struct results *a, const struct results *b) {
    for (int i = 0; i < ATTN_RESULT_COUNT; i++) {
        if (a->of[i] != NULL && b->of[i] != NULL &&
            (a->count[i] != b->count[i] ||
             memcmp(a->of[i], b->of[i], a->count[i] * sizeof *a->of[i]) != 0)) {
            return false;
        }
    }
    return true;
}

/* What the reference says of head h of batch item b. Free its scores: they begin its one block. */
static inline struct reference_results reference_of(const struct call *c, size_t b, size_t h) {
    const size_t n = c->n, m = c->m, row = row_of(c, b, h, 0), key = key_row(c, b, h);
    const struct reference_head call = {
        .n = n,
        .m = m,
        .d = c->d,
        .d_v = c->d_v,
        .q = c->q + row * c->d,
        .k = c->k + key * c->d,
        .v = c->v + key * c->d_v,
        .scale = c->scale,
        .softcap = c->softcap,
        .bias = c->bias == NULL ? NULL : c->bias + row * m,
        .mask = c->mask == NULL ? NULL : c->mask + row * m,
        .slope = c->slopes == NULL ? 0 : c->slopes[h],
        .causal = c->causal != ATTN_CAUSAL_NONE,
        .shift = position_of(c, 0),
        .left = c->left,
        .right = c->right,
        .length = c->lengths == NULL ? m : c->lengths[b],
        .has_sink = c->sinks != NULL,
        .sink = c->sinks == NULL ? 0 : c->sinks[h],
    };
    struct reference_results r = {.scores =
                                      allocate(4 * n * m + n * c->d_v + 4 * n, sizeof(double))};
    r.scaled_scores = r.scores + n * m;
    r.masked_scores = r.scaled_scores + n * m;
    r.weights = r.masked_scores + n * m;
    r.output = r.weights + n * m;
    r.lse = r.output + n * c->d_v;
    r.entropy = r.lse + n;
    r.score_scale = r.entropy + n;
    r.output_scale = r.score_scale + n;
    attn_reference_head(&call, &r);
    return r;
}

/* Head h of batch item b held to its reference, whatever of it is wanted. The bound was stated for
 * d <= 64. A sum of d terms that are added in order is off by d roundings of its size, times scale,
 * 1/sqrt(d): by sqrt(d) in all, and so is the weight that it is the logit of. */
static inline void held_to_reference(struct worst *worst, const struct call *c, size_t b, size_t h,
                                     const struct reference_results *r, const struct results *is) {
    const size_t m = c->m;
    const double bound = bound_of(c->dtype) * fmax(1, sqrt((double)c->d / 64));
    for (size_t i = 0; i < c->n; i++) {
        const double scaled = fmax(fabs(c->scale) * r->score_scale[i], 1e-3);
        const double masked = fmax(scaled, largest_of(r->masked_scores + i * m, m));
        const struct {
            attn_result result;
            const double *want;
            size_t width;
            double scale;
        } rows[] = {
            {ATTN_RESULT_SCORES, r->scores, m, r->score_scale[i]},
            {ATTN_RESULT_SCALED_SCORES, r->scaled_scores, m, scaled},
            {ATTN_RESULT_MASKED_SCORES, r->masked_scores, m, masked},
            {ATTN_RESULT_WEIGHTS, r->weights, m, largest_of(r->weights + i * m, m)},
            {ATTN_RESULT_OUTPUT, r->output, c->d_v, r->output_scale[i]},
            {ATTN_RESULT_LSE, r->lse, 1, fmax(1, masked)},
            {ATTN_RESULT_ENTROPY, r->entropy, 1, fmax(1, log((double)m))},
        };
        const size_t row = row_of(c, b, h, i);
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            const double *got = is->of[rows[k].result];
            const size_t width = rows[k].width;
            for (size_t j = 0; got != NULL && j < width; j++) {
                held_to(worst, attn_result_name(rows[k].result), row, got[row * width + j],
                        rows[k].want[i * width + j], bound * rows[k].scale);
            }
        }
    }
}

/* Runs a call in several ways and holds each to the reference. */
static inline void check_ways(const struct call *c, const unsigned *wanted, size_t ways) {
    struct reference_results want[16];
    cr_assert_leq(c->batch * c->heads, 16);
    for (size_t head = 0; head < c->batch * c->heads; head++) {
        want[head] = reference_of(c, head / c->heads, head % c->heads);
    }
    for (size_t way = 0; way < ways; way++) {
        struct results r = run_call(c, wanted[way]);
        struct worst worst = {0};
        for (size_t head = 0; head < c->batch * c->heads; head++) {
            held_to_reference(&worst, c, head / c->heads, head % c->heads, &want[head], &r);
        }
        cr_assert(worst.error <= 1, "way %zu: %s of row %zu is off by %g times its bound", way,
                  worst.what, worst.row, worst.error);
        free_results(&r);
    }
    for (size_t head = 0; head < c->batch * c->heads; head++) {
        free(want[head].scores);
    }
}

#endif
