/* attention_calls.c - see attention_calls.h. */
#include "attention_calls.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/guarded.h"
#include "support/reference.h"
#include "support/rng.h"
#include "support/scale.h"

void *keep_bytes(struct kept *kept, size_t bytes) {
    if ((kept->count & (kept->count + 1)) == 0) { /* the list is full: 0, 1, 3, 7, ... */
        const size_t most = 2 * kept->count + 1;
        kept->blocks = realloc(kept->blocks, most * sizeof *kept->blocks);
        cr_assert_not_null(kept->blocks);
    }
    return kept->blocks[kept->count++] = kept->heap ? allocate(1, bytes) : guarded_new(bytes);
}

void free_kept(struct kept *kept) {
    while (kept->count > 0) {
        (kept->heap ? free : guarded_free)(kept->blocks[--kept->count]);
    }
    free(kept->blocks);
}

double epsilon(attn_dtype dtype) {
    return dtype == ATTN_FLOAT32 ? 0x1p-24 : 0x1p-53;
}

bool too_slow(size_t heads, size_t n, size_t m, size_t columns) {
    return test_scale(100) < 100 && heads * n * m * columns > 400000;
}

/* ------------------------------------------------------------------------------ drawing a call */

/* Draws numbers of mean 0 and variance 1 in [-3, 3). Each is a sum of three uniform numbers. */
static double *numbers(struct call *c, size_t count) {
    struct rng *rng = &c->rng;
    double *x = keep_block(c, count * sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = 2 * (rng_uniform(rng) + rng_uniform(rng) + rng_uniform(rng)) - 3;
        x[i] = in_dtype(c->dtype, x[i]);
    }
    return x;
}

/* Draws multiples of 1/64 in [-4, 4]. Sums of a few of them are exact in any dtype. */
static double *round_numbers(struct call *c, size_t count) {
    double *x = keep_block(c, count * sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = (double)rng_between(&c->rng, 0, 512) / 64 - 4;
    }
    return x;
}

struct call draw_call(unsigned kind, attn_dtype dtype, size_t heads, size_t n, size_t m, size_t d,
                      size_t d_v) {
    struct call c = {.dtype = dtype, .heads = heads, .n = n, .m = m, .d = d, .d_v = d_v};
    c.kept.heap = true; /* the tensors of a run are copies */
    attn_options *o = &c.options;
    c.rng.state = ((uint64_t)kind << 40) + n * 1000003 + m * 1009 + d * 31 + d_v + 1;
    rng_bits(&c.rng);
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
    c.q = numbers(&c, c.batch * heads * n * d);
    c.k = numbers(&c, c.batch * c.kv_heads * m * d);
    c.v = numbers(&c, c.batch * c.kv_heads * m * d_v);
    if (c.shared) {
        memcpy(c.k + c.kv_heads * m * d, c.k, c.kv_heads * m * d * sizeof *c.k);
        memcpy(c.v + c.kv_heads * m * d_v, c.v, c.kv_heads * m * d_v * sizeof *c.v);
    }
    const size_t pairs = c.batch * heads * n * m;
    if (kind & MASK) {
        c.mask = keep_block(&c, pairs);
        for (size_t i = 0; i < pairs; i++) {
            c.mask[i] = i >= m && !rng_chance(&c.rng, 3);
        }
    }
    if (kind & BIAS) {
        c.bias = round_numbers(&c, pairs);
        for (size_t i = 0; i < pairs; i++) {
            c.bias[i] = rng_chance(&c.rng, 6) ? -INFINITY : c.bias[i];
        }
    }
    c.slopes = kind & ALIBI ? round_numbers(&c, heads) : NULL;
    for (size_t h = 0; h < heads && c.slopes != NULL; h++) {
        c.slopes[h] = (double)(h + 1) / 64;
    }
    c.decay = kind & DECAY ? round_numbers(&c, c.batch * heads * m) : NULL;
    for (size_t i = 0; i < c.batch * heads * m && c.decay != NULL; i++) { /* the sum is about -8 */
        const double part = exp2(-ceil(log2((double)m / 4)));
        c.decay[i] = rng_chance(&c.rng, m) ? -INFINITY : -fabs(c.decay[i]) * part - 0x1p-14;
    }
    c.sinks = kind & SINK ? round_numbers(&c, heads) : NULL;
    if (kind & LENGTHS) {
        c.lengths = keep_block(&c, c.batch * sizeof *c.lengths);
        c.lengths[0] = m - m / 5;
        c.lengths[1] = m / 2;
    }
    if (kind & PADDING) {
        c.exists = keep_block(&c, c.batch * m);
        for (size_t i = 0; i < c.batch * m; i++) {
            c.exists[i] = (i % m < m / 4 || i % m >= m / 2) && !rng_chance(&c.rng, 8);
        }
    }
    return c;
}

void free_call(struct call *c) {
    free_kept(&c->kept);
    *c = (struct call){0};
}

/* ----------------------------------------------------------------- calls made from other calls */

size_t row_of(const struct call *c, size_t b, size_t h, size_t i) {
    return (b * c->heads + h) * c->n + i;
}

size_t key_row(const struct call *c, size_t b, size_t h) {
    return (b * c->kv_heads + h / (c->heads / c->kv_heads)) * c->m;
}

size_t value_row(const struct call *c, size_t b, size_t h) {
    const size_t heads = c->v_heads == 0 ? c->kv_heads : c->v_heads;
    return (b * heads + h / (c->heads / heads)) * c->m;
}

int64_t position_of(const struct call *c, size_t b, size_t i) {
    const bool at_the_end = (c->options.flags & ATTN_FLAG_BOTTOM_RIGHT) != 0;
    return reference_position(at_the_end, c->past, length_of(c, b), c->n, i);
}

size_t length_of(const struct call *c, size_t b) {
    return c->lengths == NULL ? c->m - c->extra : c->lengths[b];
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

/* Returns `count` elements from element `first` on of an array, which may be NULL, of another call.
 * They are freed with this one. */
static void *part_of(struct call *c, const void *array, size_t first, size_t count, size_t size) {
    const char *from = array;
    return from == NULL ? NULL
                        : memcpy(keep_block(c, count * size), from + first * size, count * size);
}

/* Returns a copy of a call: of all of it, or of head h of batch item b. */
static struct call part_of_call(const struct call *c, bool all, size_t b, size_t h) {
    const size_t row = row_of(c, b, h, 0), key = key_row(c, b, h), head = b * c->heads + h;
    const size_t heads = all ? c->heads : 1, kv = all ? c->kv_heads : 1, items = all ? c->batch : 1;
    const size_t rows = items * heads * c->n, keys = items * kv * c->m, size = sizeof(double);
    struct call to = *c;
    to.kept = (struct kept){.heap = true};
    to.batch = items;
    to.heads = heads;
    to.kv_heads = kv;
    to.q = part_of(&to, c->q, row * c->d, rows * c->d, size);
    to.k = part_of(&to, c->k, key * c->d, keys * c->d, size);
    to.v = part_of(&to, c->v, key * c->d_v, keys * c->d_v, size);
    to.mask = part_of(&to, c->mask, row * c->m, rows * c->m, 1);
    to.exists = part_of(&to, c->exists, b * c->m, items * c->m, 1);
    to.bias = part_of(&to, c->bias, row * c->m, rows * c->m, size);
    to.slopes = part_of(&to, c->slopes, h, heads, size);
    to.decay = part_of(&to, c->decay, head * c->m, items * heads * c->m, size);
    to.sinks = part_of(&to, c->sinks, h, heads, size);
    to.lengths = part_of(&to, c->lengths, b, items, sizeof *to.lengths);
    return to;
}

struct call copy_call(const struct call *c) {
    return part_of_call(c, true, 0, 0);
}

struct call only_head(const struct call *c, size_t b, size_t h) {
    return part_of_call(c, false, b, h);
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
    const attn_tensor mask = {c->mask, ATTN_BOOL, 4, {c->batch, c->heads, c->n, c->m}};
    const attn_tensor padding = {c->exists, ATTN_BOOL, 2, {c->batch, c->m}};
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
    for (size_t i = 0; i < COUNT(t); i++) {
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
