/* attention_calls.c - see attention_calls.h. */
#include "attention_calls.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/reference.h"
#include "support/rng.h"
#include "support/scale.h"

static void *copy_of(const void *from, size_t count, size_t size) {
    return from == NULL ? NULL : memcpy(allocate(count, size), from, count * size);
}

double epsilon(attn_dtype dtype) {
    return dtype == ATTN_FLOAT32 ? 0x1p-24 : 0x1p-53;
}

bool too_slow(size_t heads, size_t n, size_t m, size_t columns) {
    return test_scale(100) < 100 && heads * n * m * columns > 400000;
}

/* ------------------------------------------------------------------------------ drawing a call */

/* Draws numbers of mean 0 and variance 1 in [-3, 3). Each is a sum of three uniform numbers. */
static double *numbers(struct rng *rng, size_t count, attn_dtype dtype) {
    double *x = allocate(count, sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = 2 * (rng_uniform(rng) + rng_uniform(rng) + rng_uniform(rng)) - 3;
        x[i] = in_dtype(dtype, x[i]);
    }
    return x;
}

/* Draws multiples of 1/64 in [-4, 4]. Sums of a few of them are exact in any dtype. */
static double *round_numbers(struct rng *rng, size_t count) {
    double *x = allocate(count, sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = (double)rng_between(rng, 0, 512) / 64 - 4;
    }
    return x;
}

struct call draw_call(unsigned kind, attn_dtype dtype, size_t heads, size_t n, size_t m, size_t d,
                      size_t d_v) {
    struct rng rng = {((uint64_t)kind << 40) + n * 1000003 + m * 1009 + d * 31 + d_v + 1};
    struct call c = {.dtype = dtype, .heads = heads, .n = n, .m = m, .d = d, .d_v = d_v};
    attn_options *o = &c.options;
    rng_bits(&rng);
    c.batch = kind & (LENGTHS | SHARED) ? 2 : 1;
    c.shared = (kind & SHARED) != 0;
    c.kv_heads = kind & GROUPED ? heads / 2 : heads;
    c.past = kind & PAST ? m / 3 : 0;
    o->flags = ATTN_FLAG_SCALE | ATTN_FLAG_WINDOW;
    o->flags |= kind & (BOTTOM_RIGHT | AT_THE_END) ? ATTN_FLAG_BOTTOM_RIGHT : 0;
    o->scale = (kind & NEGATIVE ? -1 : 1) / sqrt((double)d);
    o->softcap = kind & SOFTCAP ? 1.5 : 0;
    o->causal = (kind & (CAUSAL | BOTTOM_RIGHT | DECAY)) != 0;
    o->normalization = kind & NONE      ? ATTN_UNNORMALIZED
                       : kind & SIGMOID ? ATTN_SIGMOID
                       : kind & STICK   ? ATTN_STICK_BREAKING
                                        : ATTN_SOFTMAX;
    o->sigmoid_bias = kind & SIGMOID ? -2 : 0;
    o->window[0] = kind & WINDOW ? (int64_t)(m / 4) : -1;
    o->window[1] = kind & WINDOW ? (int64_t)(m / 8) : -1;
    o->top_k = 3;
    c.q = numbers(&rng, c.batch * heads * n * d, dtype);
    c.k = numbers(&rng, c.batch * c.kv_heads * m * d, dtype);
    c.v = numbers(&rng, c.batch * c.kv_heads * m * d_v, dtype);
    if (c.shared) {
        memcpy(c.k + c.kv_heads * m * d, c.k, c.kv_heads * m * d * sizeof *c.k);
        memcpy(c.v + c.kv_heads * m * d_v, c.v, c.kv_heads * m * d_v * sizeof *c.v);
    }
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
    c.decay = kind & DECAY ? round_numbers(&rng, c.batch * heads * m) : NULL;
    for (size_t i = 0; i < c.batch * heads * m && c.decay != NULL; i++) { /* the sum is about -8 */
        const double part = exp2(-ceil(log2((double)m / 4)));
        c.decay[i] = rng_chance(&rng, m) ? -INFINITY : -fabs(c.decay[i]) * part - 0x1p-14;
    }
    c.sinks = kind & SINK ? round_numbers(&rng, heads) : NULL;
    if (kind & LENGTHS) {
        c.lengths = allocate(c.batch, sizeof *c.lengths);
        c.lengths[0] = m - m / 5;
        c.lengths[1] = m / 2;
    }
    if (kind & PADDING) {
        c.exists = allocate(c.batch * m, 1);
        for (size_t i = 0; i < c.batch * m; i++) {
            c.exists[i] = (i % m < m / 4 || i % m >= m / 2) && !rng_chance(&rng, 8);
        }
    }
    return c;
}

void free_call(struct call *c) {
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->mask);
    free(c->exists);
    free(c->bias);
    free(c->slopes);
    free(c->decay);
    free(c->sinks);
    free(c->lengths);
    *c = (struct call){0};
}

/* ----------------------------------------------------------------- calls made from other calls */

size_t row_of(const struct call *c, size_t b, size_t h, size_t i) {
    return (b * c->heads + h) * c->n + i;
}

size_t key_row(const struct call *c, size_t b, size_t h) {
    return (b * c->kv_heads + h / (c->heads / c->kv_heads)) * c->m;
}

int64_t position_of(const struct call *c, size_t b, size_t i) {
    const bool at_the_end = (c->options.flags & ATTN_FLAG_BOTTOM_RIGHT) != 0;
    return reference_position(at_the_end, c->past, length_of(c, b), c->n, i);
}

size_t length_of(const struct call *c, size_t b) {
    return c->lengths == NULL ? c->m : c->lengths[b];
}

double decay_between(const struct call *c, size_t b, size_t h, size_t i, size_t j) {
    const int64_t position = position_of(c, b, i);
    double sum = 0;
    for (size_t t = j + 1; c->decay != NULL && t < c->m && (int64_t)t <= position; t++) {
        sum += c->decay[(b * c->heads + h) * c->m + t];
    }
    return sum;
}

bool may_attend(const struct call *c, size_t b, size_t h, size_t i, size_t j) {
    const int64_t away = (int64_t)j - position_of(c, b, i);
    const size_t at = row_of(c, b, h, i) * c->m + j;
    const int64_t *window = c->options.window;
    return (!c->options.causal || away <= 0) && (window[0] < 0 || -away <= window[0]) &&
           (window[1] < 0 || away <= window[1]) && j < length_of(c, b) &&
           (c->exists == NULL || c->exists[b * c->m + j] != 0) &&
           (c->mask == NULL || c->mask[at] != 0) && decay_between(c, b, h, i, j) > -INFINITY &&
           (c->bias == NULL || c->bias[at] != -INFINITY);
}

uint64_t gradients_of(const struct call *c) {
    return ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V) |
           (c->past > 0 ? ATTN_WANT(GRAD_PAST_K) | ATTN_WANT(GRAD_PAST_V) : 0) |
           (c->bias != NULL ? ATTN_WANT(GRAD_BIAS) : 0) |
           (c->sinks != NULL ? ATTN_WANT(GRAD_SINK) : 0) |
           (c->slopes != NULL ? ATTN_WANT(GRAD_ALIBI) : 0) |
           (c->decay != NULL ? ATTN_WANT(GRAD_DECAY) : 0);
}

struct call copy_call(const struct call *c) {
    struct call to = *c;
    const size_t pairs = c->batch * c->heads * c->n * c->m;
    to.q = copy_of(c->q, c->batch * c->heads * c->n * c->d, sizeof *c->q);
    to.k = copy_of(c->k, c->batch * c->kv_heads * c->m * c->d, sizeof *c->k);
    to.v = copy_of(c->v, c->batch * c->kv_heads * c->m * c->d_v, sizeof *c->v);
    to.mask = copy_of(c->mask, pairs, 1);
    to.exists = copy_of(c->exists, c->batch * c->m, 1);
    to.bias = copy_of(c->bias, pairs, sizeof *c->bias);
    to.slopes = copy_of(c->slopes, c->heads, sizeof *c->slopes);
    to.decay = copy_of(c->decay, c->batch * c->heads * c->m, sizeof *c->decay);
    to.sinks = copy_of(c->sinks, c->heads, sizeof *c->sinks);
    to.lengths = copy_of(c->lengths, c->batch, sizeof *c->lengths);
    return to;
}

struct call only_head(const struct call *c, size_t b, size_t h) {
    struct call to = *c;
    const size_t row = row_of(c, b, h, 0), key = key_row(c, b, h), pairs = c->n * c->m;
    to.batch = to.heads = to.kv_heads = 1;
    to.q = copy_of(c->q + row * c->d, c->n * c->d, sizeof *c->q);
    to.k = copy_of(c->k + key * c->d, c->m * c->d, sizeof *c->k);
    to.v = copy_of(c->v + key * c->d_v, c->m * c->d_v, sizeof *c->v);
    to.mask = c->mask == NULL ? NULL : copy_of(c->mask + row * c->m, pairs, 1);
    to.exists = c->exists == NULL ? NULL : copy_of(c->exists + b * c->m, c->m, 1);
    to.bias = c->bias == NULL ? NULL : copy_of(c->bias + row * c->m, pairs, sizeof *c->bias);
    to.slopes = c->slopes == NULL ? NULL : copy_of(c->slopes + h, 1, sizeof *c->slopes);
    to.decay =
        c->decay == NULL ? NULL : copy_of(c->decay + row / c->n * c->m, c->m, sizeof *c->decay);
    to.sinks = c->sinks == NULL ? NULL : copy_of(c->sinks + h, 1, sizeof *c->sinks);
    to.lengths = c->lengths == NULL ? NULL : copy_of(c->lengths + b, 1, sizeof *c->lengths);
    return to;
}

/* -------------------------------------------------------------------------------------- running */

attn_tensor rows_of_heads(const struct call *c, const double *x, size_t heads, size_t rows,
                          size_t from, size_t to, size_t columns) {
    void *data = allocate(c->batch * heads * (to - from) * columns, sizeof *x);
    const attn_tensor t = {
        .dtype = c->dtype, .rank = 4, .shape = {c->batch, heads, to - from, columns}, .data = data};
    size_t at = 0;
    for (size_t head = 0; head < c->batch * heads; head++) {
        const double *row = x + head * rows * columns;
        for (size_t i = from * columns; i < to * columns; i++, at++) {
            set_number(data, c->dtype, at, row[i]);
        }
    }
    return t;
}

/* Returns a vector of one number for each head. The caller frees the data. */
static attn_tensor per_head(const struct call *c, const double *x) {
    struct call one = *c;
    one.batch = 1;
    attn_tensor t = rows_of_heads(&one, x, 1, 1, 0, 1, c->heads);
    t.rank = 1;
    t.shape[0] = c->heads;
    return t;
}

struct results try_call_by(const struct call *c, uint64_t wanted, run_tasks *run) {
    const attn_tensor none = {0};
    const attn_tensor mask = {
        .data = c->mask, .dtype = ATTN_BOOL, .rank = 4, .shape = {c->batch, c->heads, c->n, c->m}};
    const attn_tensor padding = {
        .data = c->exists, .dtype = ATTN_BOOL, .rank = 2, .shape = {c->batch, c->m}};
    attn_tensor t[] = {
        rows_of_heads(c, c->q, c->heads, c->n, 0, c->n, c->d),
        rows_of_heads(c, c->k, c->kv_heads, c->m, c->past, c->m, c->d),
        rows_of_heads(c, c->v, c->kv_heads, c->m, c->past, c->m, c->d_v),
        c->past == 0 ? none : rows_of_heads(c, c->k, c->kv_heads, c->m, 0, c->past, c->d),
        c->past == 0 ? none : rows_of_heads(c, c->v, c->kv_heads, c->m, 0, c->past, c->d_v),
        c->bias == NULL ? none : rows_of_heads(c, c->bias, c->heads, c->n, 0, c->n, c->m),
        c->slopes == NULL ? none : per_head(c, c->slopes),
        c->sinks == NULL ? none : per_head(c, c->sinks),
        c->decay == NULL ? none : rows_of_heads(c, c->decay, c->heads, 1, 0, 1, c->m),
    };
    attn_options o = c->options;
    o.results = wanted;
    o.mask = c->mask == NULL ? NULL : &mask;
    o.key_padding = c->exists == NULL ? NULL : &padding;
    o.past_k = c->past == 0 ? NULL : &t[3];
    o.past_v = c->past == 0 ? NULL : &t[4];
    o.bias = c->bias == NULL ? NULL : &t[5];
    o.alibi_slopes = c->slopes == NULL ? NULL : &t[6];
    o.sink = c->sinks == NULL ? NULL : &t[7];
    o.decay = c->decay == NULL ? NULL : &t[8];
    t[8].rank = 3;
    t[8].shape[2] = c->m;
    o.lengths = c->lengths;
    o.lengths_count = c->lengths == NULL ? 0 : c->batch;
    for (size_t i = 1; i < 5 && c->shared; i++) { /* K, V, past_K and past_V */
        t[i].rank = 3;
        memmove(t[i].shape, t[i].shape + 1, 3 * sizeof *t[i].shape);
    }
    attn_plan *plan;
    attn_error error = {0};
    const attn_status status = attn_plan_attention(&plan, &t[0], &t[1], &t[2], &o, &error);
    cr_assert_eq(status, ATTN_OK, "%s", error.message);
    struct results r = run_plan(plan, run);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        free((void *)(uintptr_t)t[i].data);
    }
    return r;
}

struct results try_call(const struct call *c, uint64_t wanted) {
    return try_call_by(c, wanted, attn_plan_run);
}

struct results run_call(const struct call *c, uint64_t wanted) {
    struct results r = try_call(c, wanted);
    cr_assert_eq(r.status, ATTN_OK, "%s", r.error.message);
    return r;
}
