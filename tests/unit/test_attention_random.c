/*
 * test_attention_random.c - thousands of random calls across all options, forms and both dtypes,
 * every result held against the plain double reference. The generator first makes each head's Q,
 * K, V and then puts them into the form of the call (or draws X and weights and computes Q, K, V
 * from them).
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "support/reference.h"
#include "support/rng.h"
#include "support/scale.h"

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

/* Everything of one call. Arrays of doubles hold values exact in the call's dtype. */
struct call {
    struct rng rng;
    attn_dtype dtype;
    enum form form;
    bool batched, has_heads; /* axes of the results */
    size_t B, H, KV, n, m, p;
    size_t d[MAX_HEADS], d_v[MAX_HEADS]; /* by kv head */
    /* canonical: [b][h] row-major; K and V hold past rows first */
    double *Q[MAX_BATCH][MAX_HEADS], *K[MAX_BATCH][MAX_HEADS], *V[MAX_BATCH][MAX_HEADS];
    double *mask_full, *bias_full; /* (B,H,n,m) or NULL */
    double slopes[MAX_HEADS], sinks[MAX_HEADS];
    bool has_sinks;
    size_t lengths[MAX_BATCH];
    double *w_o, *b_o; /* (sum d_v, d_out), (d_out) */
    size_t d_out;
    attn_options options;
    attn_multihead multihead;
    attn_projection projections[MAX_HEADS];
    attn_tensor tensors[64];
    size_t tensor_count;
    void *blocks[512];
    size_t block_count;
};

static void *keep(struct call *c, size_t bytes) {
    void *block = calloc(1, bytes == 0 ? 1 : bytes);
    cr_assert(block != NULL && c->block_count < 512);
    c->blocks[c->block_count++] = block;
    return block;
}

static double *numbers(struct call *c, size_t count, double scale) {
    double *x = keep(c, count * sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = scale * rng_normal(&c->rng);
        x[i] = c->dtype == ATTN_FLOAT32 ? (double)(float)x[i] : x[i];
    }
    return x;
}

/* A tensor of the call's dtype with these numbers. */
static attn_tensor *tensor(struct call *c, const double *x, int rank, const size_t *shape) {
    attn_tensor *t = &c->tensors[c->tensor_count++];
    cr_assert_lt(c->tensor_count, 64);
    *t = (attn_tensor){.dtype = c->dtype, .rank = rank};
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    size_t count, bytes;
    cr_assert(attn_tensor_count(t, &count) && attn_tensor_bytes(t, &bytes));
    void *data = keep(c, bytes);
    for (size_t i = 0; i < count; i++) {
        if (c->dtype == ATTN_FLOAT32) {
            ((float *)data)[i] = (float)x[i];
        } else {
            ((double *)data)[i] = x[i];
        }
    }
    t->data = data;
    return t;
}

/* Rows [from, to) of [b][h] matrices (each `cols` wide) in the form of the call. */
static attn_tensor *in_form(struct call *c, double *x[MAX_BATCH][MAX_HEADS], size_t heads,
                            size_t from, size_t to, size_t cols, enum form form) {
    const size_t rows = to - from;
    double *all = keep(c, c->B * heads * rows * cols * sizeof *all);
    const bool packed = form == PACKED_2D || form == PACKED_3D;
    for (size_t b = 0; b < c->B; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t i = 0; i < rows; i++) {
                size_t at = packed ? ((b * rows + i) * heads + h) * cols
                                   : ((b * heads + h) * rows + i) * cols;
                memcpy(all + at, x[b][h] + (from + i) * cols, cols * sizeof *all);
            }
        }
    }
    switch (form) {
    case PLAIN_2D:
        return tensor(c, all, 2, (size_t[]){rows, cols});
    case PLAIN_3D:
        return tensor(c, all, 3, (size_t[]){heads, rows, cols});
    case PACKED_2D:
        return tensor(c, all, 2, (size_t[]){rows, heads * cols});
    case PACKED_3D:
        return tensor(c, all, 3, (size_t[]){c->B, rows, heads * cols});
    default:
        return tensor(c, all, 4, (size_t[]){c->B, heads, rows, cols});
    }
}

/* ------------------------------------------------------------------------------ drawing a call */

static void draw_sizes(struct call *c) {
    static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 48, 64, 65, 100};
    c->dtype = rng_chance(&c->rng, 2) ? ATTN_FLOAT32 : ATTN_FLOAT64;
    c->form = (enum form)rng_between(&c->rng, 0, FORM_COUNT - 1);
    c->n = sizes[rng_between(&c->rng, 0, 16)];
    c->m = sizes[rng_between(&c->rng, 0, 16)];
    c->p = rng_chance(&c->rng, 4) ? rng_between(&c->rng, 1, 9) : 0;
    c->m += c->p;
    c->B = rng_between(&c->rng, 1, MAX_BATCH);
    c->KV = rng_between(&c->rng, 1, 3);
    c->H = c->KV * rng_between(&c->rng, 1, MAX_HEADS / c->KV);
    if (c->form == PLAIN_2D) {
        c->B = c->H = c->KV = 1;
    }
    if (c->form == PLAIN_3D || c->form == PACKED_2D) {
        c->B = 1;
    }
    c->batched = c->form == PLAIN_4D || c->form == PACKED_3D;
    c->has_heads = c->form != PLAIN_2D;
    const size_t d = sizes[rng_between(&c->rng, 0, 15)], d_v = sizes[rng_between(&c->rng, 0, 15)];
    for (size_t h = 0; h < MAX_HEADS; h++) {
        c->d[h] = d;
        c->d_v[h] = d_v;
    }
}

/* y (rows, cols) = x (rows, inner) W + bias, where element (r, col) of W is w[r * rs + col * cs].
 * */
static double *multiply(struct call *c, const double *x, size_t rows, size_t inner, const double *w,
                        size_t rs, size_t cs, size_t cols, const double *bias) {
    double *y = keep(c, rows * cols * sizeof *y);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            double sum = bias != NULL ? bias[j] : 0;
            for (size_t e = 0; e < inner; e++) {
                sum += x[i * inner + e] * w[e * rs + j * cs];
            }
            y[i * cols + j] = sum;
        }
    }
    return y;
}

/* Random weights for `heads` heads of d[h] columns over `inner` rows, in the form the call wants
 * them; sets the canonical matrices [b][h] (rows from `first`) from x and the public tensors in w
 * and bias. */
static void project(struct call *c, const double *x, size_t rows, size_t inner, size_t heads,
                    const size_t *d, double *out[MAX_BATCH][MAX_HEADS], size_t first, bool three,
                    const attn_tensor **w_out, const attn_tensor **b_out, size_t stride) {
    const bool out_in = c->multihead.layout == ATTN_OUT_IN, own = c->multihead.per_head;
    const bool biased = rng_chance(&c->rng, 2);
    size_t total = 0, column = 0;
    for (size_t h = 0; h < heads; h++) {
        total += d[h];
    }
    double *w = numbers(c, inner * total, 1.0 / sqrt((double)inner));
    double *bias = biased ? numbers(c, total, 0.5) : NULL;
    for (size_t h = 0; h < heads; h++) {
        const bool apart = own || three;
        const double *wh = apart ? w + inner * column : out_in ? w + column * inner : w + column;
        const size_t rs = out_in ? 1 : apart ? d[h] : total, cs = out_in ? inner : 1;
        for (size_t b = 0; b < c->B; b++) {
            double *y = multiply(c, x + b * rows * inner, rows, inner, wh, rs, cs, d[h],
                                 biased ? bias + column : NULL);
            memcpy(out[b][h] + first * d[h], y, rows * d[h] * sizeof *y);
        }
        if (own) {
            size_t shape[2] = {out_in ? d[h] : inner, out_in ? inner : d[h]};
            w_out[h * stride] = tensor(c, wh, 2, shape);
            b_out[h * stride] = biased ? tensor(c, bias + column, 1, &d[h]) : NULL;
        }
        column += d[h];
    }
    if (own) {
        return;
    }
    if (three) {
        size_t shape[3] = {heads, out_in ? d[0] : inner, out_in ? inner : d[0]};
        *w_out = tensor(c, w, 3, shape);
        *b_out = !biased                  ? NULL
                 : rng_chance(&c->rng, 2) ? tensor(c, bias, 2, (size_t[]){heads, d[0]})
                                          : tensor(c, bias, 1, &total);
    } else {
        *w_out = tensor(c, w, 2, (size_t[]){out_in ? total : inner, out_in ? inner : total});
        *b_out = biased ? tensor(c, bias, 1, &total) : NULL;
    }
}

static void draw_projected(struct call *c) {
    static const size_t d_models[] = {1, 3, 7, 16, 24};
    c->multihead.per_head = rng_chance(&c->rng, 3);
    c->multihead.layout = rng_chance(&c->rng, 2) ? ATTN_OUT_IN : ATTN_IN_OUT;
    c->batched = rng_chance(&c->rng, 2);
    c->B = c->batched ? c->B : 1;
    bool three = !c->multihead.per_head && rng_chance(&c->rng, 2);
    c->has_heads = c->multihead.per_head || three || !rng_chance(&c->rng, 3);
    if (!c->has_heads) {
        c->H = c->KV = 1;
    }
    if (c->multihead.per_head) {
        c->m -= c->p;
        c->p = 0;
        c->KV = c->H;
        for (size_t h = 0; h < c->H; h++) {
            c->d[h] = rng_between(&c->rng, 1, 20);
            c->d_v[h] = rng_between(&c->rng, 1, 20);
        }
    }
    const bool cross = rng_chance(&c->rng, 2);
    if (!cross) {
        c->m = c->p + c->n;
    }
    const size_t inner = d_models[rng_between(&c->rng, 0, 4)];
    const size_t context_inner = cross ? d_models[rng_between(&c->rng, 0, 4)] : inner;
    const size_t keys = c->m - c->p;
    double *x = numbers(c, c->B * c->n * inner, 1);
    double *context = cross ? numbers(c, c->B * keys * context_inner, 1) : x;
    const int rank = c->batched ? 3 : 2;
    c->multihead.x = tensor(c, x, rank, (size_t[]){c->B, c->n, inner} + (c->batched ? 0 : 1));
    if (cross) {
        c->multihead.context =
            tensor(c, context, rank, (size_t[]){c->B, keys, context_inner} + (c->batched ? 0 : 1));
    }
    for (size_t b = 0; b < c->B; b++) {
        for (size_t h = 0; h < c->H; h++) {
            c->Q[b][h] = numbers(c, c->n * c->d[h], 1);
            c->K[b][h] = numbers(c, c->m * c->d[h], 1); /* the past rows stay as drawn */
            c->V[b][h] = numbers(c, c->m * c->d_v[h], 1);
        }
    }
    const size_t stride = sizeof(attn_projection) / sizeof(attn_tensor *);
    attn_projection *all = c->projections;
    project(c, x, c->n, inner, c->H, c->d, c->Q, 0, three, &all->w_q, &all->b_q, stride);
    project(c, context, keys, context_inner, c->KV, c->d, c->K, c->p, three, &all->w_k, &all->b_k,
            stride);
    project(c, context, keys, context_inner, c->KV, c->d_v, c->V, c->p, three, &all->w_v, &all->b_v,
            stride);
    c->multihead.projections = c->projections;
    c->multihead.count = c->multihead.per_head ? c->H : 1;
    if (!c->multihead.per_head && c->has_heads) {
        c->options.heads = three && rng_chance(&c->rng, 2) ? 0 : c->H;
        c->options.kv_heads = three && c->options.heads == 0 ? 0 : c->KV;
    }
    if (rng_chance(&c->rng, 2)) {
        const bool out_in = c->multihead.layout == ATTN_OUT_IN;
        size_t total = 0;
        for (size_t h = 0; h < c->H; h++) {
            total += c->d_v[c->multihead.per_head ? h : 0];
        }
        c->d_out = rng_between(&c->rng, 1, 20);
        double *w = numbers(c, total * c->d_out, 1.0 / sqrt((double)total));
        c->w_o = keep(c, total * c->d_out * sizeof *w);
        for (size_t i = 0; i < total; i++) {
            for (size_t j = 0; j < c->d_out; j++) {
                c->w_o[i * c->d_out + j] = w[out_in ? j * total + i : i * c->d_out + j];
            }
        }
        c->multihead.w_o =
            tensor(c, w, 2, (size_t[]){out_in ? c->d_out : total, out_in ? total : c->d_out});
        if (rng_chance(&c->rng, 2)) {
            c->b_o = numbers(c, c->d_out, 1);
            c->multihead.b_o = tensor(c, c->b_o, 1, &c->d_out);
        }
    }
    if (c->p != 0) {
        enum form form = c->has_heads ? PLAIN_4D : PLAIN_2D;
        attn_tensor *past[2] = {in_form(c, c->K, c->KV, 0, c->p, c->d[0], PLAIN_4D),
                                in_form(c, c->V, c->KV, 0, c->p, c->d_v[0], PLAIN_4D)};
        (void)form;
        for (int i = 0; i < 2; i++) { /* leave out the axes that the call has not */
            const size_t full[4] = {c->B, c->KV, c->p, past[i]->shape[3]};
            past[i]->rank = 0;
            for (int axis = 0; axis < 4; axis++) {
                if ((axis == 0 && !c->batched) || (axis == 1 && !c->has_heads)) {
                    continue;
                }
                past[i]->shape[past[i]->rank++] = full[axis];
            }
        }
        c->options.past_k = past[0];
        c->options.past_v = past[1];
    }
}

/* A random tensor that broadcasts to (B,H,n,m), and its full form. */
static attn_tensor *draw_broadcast(struct call *c, bool boolean, double **full) {
    const size_t want[4] = {c->B, c->H, c->n, c->m};
    const int rank = (int)rng_between(&c->rng, 2, 4);
    size_t shape[4], stride[4] = {0}, count = 1;
    for (int back = 1; back <= rank; back++) {
        size_t size = rng_chance(&c->rng, 4) ? 1 : want[4 - back];
        shape[rank - back] = size;
        stride[4 - back] = size == 1 ? 0 : count;
        count *= size;
    }
    const size_t one_in =
        rng_chance(&c->rng, 4) ? 1 : rng_between(&c->rng, 2, 8); /* 1: all forbidden */
    double *x = numbers(c, count, 1);
    for (size_t i = 0; i < count; i++) {
        bool forbid = rng_chance(&c->rng, one_in);
        x[i] = boolean ? !forbid : forbid ? -INFINITY : x[i];
    }
    *full = keep(c, c->B * c->H * c->n * c->m * sizeof **full);
    size_t at = 0;
    for (size_t b = 0; b < c->B; b++) {
        for (size_t h = 0; h < c->H; h++) {
            for (size_t i = 0; i < c->n; i++) {
                for (size_t j = 0; j < c->m; j++) {
                    (*full)[at++] =
                        x[b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]];
                }
            }
        }
    }
    attn_tensor *t = tensor(c, x, rank, shape);
    if (boolean) {
        unsigned char *bytes = keep(c, count);
        for (size_t i = 0; i < count; i++) {
            bytes[i] = x[i] != 0;
        }
        t->dtype = ATTN_BOOL;
        t->data = bytes;
    }
    return t;
}

static void draw_options(struct call *c) {
    attn_options *o = &c->options;
    if (rng_chance(&c->rng, 3)) {
        o->mask = draw_broadcast(c, true, &c->mask_full);
    }
    if (rng_chance(&c->rng, 3)) {
        o->bias = draw_broadcast(c, false, &c->bias_full);
    }
    o->causal = rng_chance(&c->rng, 2) ? ATTN_CAUSAL_NONE : (attn_causal)rng_between(&c->rng, 1, 2);
    if (rng_chance(&c->rng, 3)) {
        o->flags |= ATTN_FLAG_WINDOW;
        o->window[0] = (int64_t)rng_between(&c->rng, 0, 20) - 1;
        o->window[1] = (int64_t)rng_between(&c->rng, 0, 20) - 1;
    }
    if (rng_chance(&c->rng, 3)) {
        o->flags |= ATTN_FLAG_SCALE;
        o->scale =
            rng_chance(&c->rng, 5) ? 0 : (2 * rng_uniform(&c->rng) - 1) / sqrt((double)c->d[0]);
    }
    o->softcap = rng_chance(&c->rng, 4) ? 0.5 + 5 * rng_uniform(&c->rng) : 0;
    o->normalization = rng_chance(&c->rng, 6) ? ATTN_UNNORMALIZED : ATTN_SOFTMAX;
    if (rng_chance(&c->rng, 4)) {
        double *s = numbers(c, c->H, 0.3);
        memcpy(c->slopes, s, c->H * sizeof *s);
        o->alibi_slopes = tensor(c, s, 1, &c->H);
    }
    if (rng_chance(&c->rng, 4) && o->normalization == ATTN_SOFTMAX) {
        double *s = numbers(c, c->H, 1);
        memcpy(c->sinks, s, c->H * sizeof *s);
        c->has_sinks = true;
        o->sink = tensor(c, s, 1, &c->H);
    }
    for (size_t b = 0; b < c->B; b++) {
        c->lengths[b] = c->m;
    }
    if (rng_chance(&c->rng, 4)) {
        for (size_t b = 0; b < c->B; b++) {
            c->lengths[b] = rng_between(&c->rng, 0, c->m);
        }
        o->lengths = c->lengths;
        o->lengths_count = c->B;
    }
    o->top_k = rng_chance(&c->rng, 2) ? rng_between(&c->rng, 1, 12) : 0;
    o->results = (unsigned)rng_bits(&c->rng) & ((1u << ATTN_RESULT_COUNT) - 1);
    o->results |=
        rng_chance(&c->rng, 2) ? ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS) : ATTN_WANT(OUTPUT);
    if (rng_chance(&c->rng, 2)) { /* the two ways without stages */
        o->results = ATTN_WANT(OUTPUT) | ATTN_WANT(LSE);
        o->results |= rng_chance(&c->rng, 2) ? ATTN_WANT(WEIGHTS) | ATTN_WANT(ENTROPY) : 0;
    }
    if (c->form != PROJECTED) {
        o->results &= ~(ATTN_WANT(Q) | ATTN_WANT(K) | ATTN_WANT(V));
    }
    if (o->normalization == ATTN_UNNORMALIZED) {
        o->results &= ~(ATTN_WANT(LSE) | ATTN_WANT(ENTROPY));
    }
    o->flags |= rng_chance(&c->rng, 5) ? ATTN_FLAG_MEAN_OVER_HEADS : 0;
}

static attn_plan *draw_call(struct call *c, uint64_t seed) {
    *c = (struct call){.rng = {seed * UINT64_C(0x9e3779b97f4a7c15) + 1}};
    for (int i = 0; i < 8; i++) {
        rng_bits(&c->rng);
    }
    attn_plan *plan = NULL;
    attn_error error = {0};
    draw_sizes(c);
    if (c->form == PROJECTED) {
        draw_projected(c);
        draw_options(c);
        attn_plan_multihead(&plan, &c->multihead, &c->options, &error);
    } else {
        for (size_t b = 0; b < c->B; b++) {
            for (size_t h = 0; h < c->H; h++) {
                c->Q[b][h] = numbers(c, c->n * c->d[0], 1);
                c->K[b][h] = numbers(c, c->m * c->d[0], 1);
                c->V[b][h] = numbers(c, c->m * c->d_v[0], 1);
            }
        }
        if (c->form == PACKED_2D || c->form == PACKED_3D) {
            c->options.heads = c->H;
            c->options.kv_heads = c->KV;
        }
        attn_tensor *q = in_form(c, c->Q, c->H, 0, c->n, c->d[0], c->form);
        attn_tensor *k = in_form(c, c->K, c->KV, c->p, c->m, c->d[0], c->form);
        attn_tensor *v = in_form(c, c->V, c->KV, c->p, c->m, c->d_v[0], c->form);
        if (c->p != 0) {
            c->options.past_k = in_form(c, c->K, c->KV, 0, c->p, c->d[0], c->form);
            c->options.past_v = in_form(c, c->V, c->KV, 0, c->p, c->d_v[0], c->form);
        }
        draw_options(c);
        attn_plan_attention(&plan, q, k, v, &c->options, &error);
    }
    cr_assert(plan != NULL, "seed %llu: %s", (unsigned long long)seed, error.message);
    return plan;
}

/* ----------------------------------------------------------------------------------- comparing */

struct worst {
    double error[2]; /* by dtype */
    const char *what[2];
    uint64_t seed[2], at;
};

static double got(const attn_plan *plan, attn_result result, size_t part, size_t index) {
    const attn_result_tensor *t = attn_plan_tensor(plan, result, part);
    switch (t->dtype) {
    case ATTN_FLOAT32:
        return (double)((const float *)t->data)[index];
    case ATTN_FLOAT64:
        return ((const double *)t->data)[index];
    default:
        return (double)((const int64_t *)t->data)[index];
    }
}

static void compare(struct worst *worst, const struct call *c, const char *what, double is,
                    double want, double scale) {
    double error = is == want ? 0 : fabs(is - want) / fmax(scale, 1e-30);
    if (!(error <= worst->error[c->dtype])) { /* NaN is the worst */
        worst->error[c->dtype] = isnan(error) ? INFINITY : error;
        worst->what[c->dtype] = what;
        worst->seed[c->dtype] = worst->at;
    }
}

static double largest(const double *x, size_t count) {
    double max = 0;
    for (size_t i = 0; i < count; i++) {
        max = isfinite(x[i]) ? fmax(max, fabs(x[i])) : max;
    }
    return max;
}

static void compare_rows(struct worst *worst, const struct call *c, const attn_plan *plan,
                         attn_result result, size_t part, size_t at, const double *want,
                         size_t count, double scale) {
    if (attn_plan_parts(plan, result) == 0) {
        return;
    }
    /* lib/README.md allows weights twice this error, because they are off by as much as scores. */
    scale *= result == ATTN_RESULT_WEIGHTS ? 2 : 1;
    for (size_t i = 0; i < count; i++) {
        compare(worst, c, attn_result_name(result), got(plan, result, part, at + i), want[i],
                scale);
    }
}

/* The scale of the scores of query i. A projected Q or K is itself a rounded sum of terms of size
 * 1 or so, however small it is, and its rounding error meets the other factor. */
static double score_scale(const struct call *c, const struct reference_head *call,
                          const struct reference_results *r, size_t i) {
    double scale = r->score_scale[i];
    for (size_t e = 0; e < call->d && c->form == PROJECTED; e++) {
        double key = 0;
        for (size_t j = 0; j < call->m; j++) {
            key = fmax(key, fabs(call->k[j * call->d + e]));
        }
        scale += key + fabs(call->q[i * call->d + e]);
    }
    return scale;
}

/* top_k holds what it says: the largest weights in order, each found at its index. */
static void check_top_k(const struct call *c, const attn_plan *plan, size_t row,
                        const double *ranked, double tolerance) {
    const size_t k = c->options.top_k != 0 ? c->options.top_k : 5, kk = k < c->m ? k : c->m;
    unsigned char *seen = calloc(c->m, 1);
    for (size_t i = 0; i < kk; i++) {
        size_t index = (size_t)got(plan, ATTN_RESULT_TOP_K_INDICES, 0, row * kk + i);
        cr_assert(index < c->m && !seen[index], "top_k names key %zu twice", index);
        seen[index] = 1;
        size_t larger = 0;
        for (size_t j = 0; j < c->m; j++) {
            larger += ranked[j] > ranked[index] + tolerance;
        }
        cr_assert_leq(larger, i, "top_k place %zu: %zu keys are larger", i, larger);
    }
    free(seen);
}

static void check_head(struct worst *worst, struct call *c, const attn_plan *plan, size_t b,
                       size_t h, double *mean, double *concat, size_t concat_ld, size_t concat_at) {
    const size_t kv = h / (c->H / c->KV), n = c->n, m = c->m;
    const size_t dh = c->multihead.per_head ? h : 0, d = c->d[dh], d_v = c->d_v[dh];
    const attn_options *o = &c->options;
    const size_t row0 = (b * c->H + h) * n;
    unsigned char *mask = NULL;
    if (c->mask_full != NULL) {
        mask = keep(c, n * m);
        for (size_t i = 0; i < n * m; i++) {
            mask[i] = c->mask_full[row0 * m + i] != 0;
        }
    }
    struct reference_head call = {
        .n = n,
        .m = m,
        .d = d,
        .d_v = d_v,
        .q = c->Q[b][h],
        .k = c->K[b][kv],
        .v = c->V[b][kv],
        .scale = (o->flags & ATTN_FLAG_SCALE) ? o->scale : 1 / sqrt((double)d),
        .softcap = o->softcap,
        .bias = c->bias_full == NULL ? NULL : c->bias_full + row0 * m,
        .mask = mask,
        .slope = c->slopes[h],
        .causal = o->causal != ATTN_CAUSAL_NONE,
        .shift = o->causal == ATTN_CAUSAL_BOTTOM_RIGHT ? (int64_t)m - (int64_t)n : (int64_t)c->p,
        .left = (o->flags & ATTN_FLAG_WINDOW) ? o->window[0] : -1,
        .right = (o->flags & ATTN_FLAG_WINDOW) ? o->window[1] : -1,
        .length = c->lengths[b],
        .has_sink = c->has_sinks,
        .sink = c->sinks[h],
        .unnormalized = o->normalization == ATTN_UNNORMALIZED,
    };
    double *buffer = keep(c, (4 * n * m + n * d_v + 4 * n) * sizeof *buffer);
    struct reference_results r = {.scores = buffer};
    r.scaled_scores = r.scores + n * m;
    r.masked_scores = r.scaled_scores + n * m;
    r.weights = r.masked_scores + n * m;
    r.output = r.weights + n * m;
    r.lse = r.output + n * d_v;
    r.entropy = r.lse + n;
    r.score_scale = r.entropy + n;
    r.output_scale = r.score_scale + n;
    attn_reference_head(&call, &r);

    for (size_t i = 0; i < n; i++) {
        const size_t row = row0 + i;
        const double s = score_scale(c, &call, &r, i), scaled = fmax(fabs(call.scale) * s, 1e-3);
        const double masked = fmax(scaled, largest(r.masked_scores + i * m, m));
        compare_rows(worst, c, plan, ATTN_RESULT_SCORES, 0, row * m, r.scores + i * m, m, s);
        compare_rows(worst, c, plan, ATTN_RESULT_SCALED_SCORES, 0, row * m, r.scaled_scores + i * m,
                     m, scaled);
        compare_rows(worst, c, plan, ATTN_RESULT_MASKED_SCORES, 0, row * m, r.masked_scores + i * m,
                     m, masked);
        const double w = fmax(largest(r.weights + i * m, m), call.unnormalized ? masked : 0);
        if (!(o->flags & ATTN_FLAG_MEAN_OVER_HEADS)) {
            compare_rows(worst, c, plan, ATTN_RESULT_WEIGHTS, 0, row * m, r.weights + i * m, m, w);
        }
        compare_rows(worst, c, plan, ATTN_RESULT_LSE, 0, row, r.lse + i, 1, fmax(1, masked));
        compare_rows(worst, c, plan, ATTN_RESULT_ENTROPY, 0, row, r.entropy + i, 1,
                     fmax(1, log((double)m)));
        if (attn_plan_parts(plan, ATTN_RESULT_TOP_K_INDICES) != 0) {
            const double *ranked = call.unnormalized ? r.masked_scores + i * m : r.weights + i * m;
            check_top_k(c, plan, row, ranked, (c->dtype == ATTN_FLOAT32 ? 1e-5 : 1e-12) * w);
        }
        for (size_t j = 0; j < m; j++) {
            mean[(b * n + i) * m + j] += r.weights[i * m + j] / (double)c->H;
        }
        if (call.unnormalized) { /* the weights are scores: so is their rounding error */
            r.output_scale[i] = fmax(r.output_scale[i], masked * largest(call.v, m * d_v));
        }
        double *joined = concat + (b * n + i) * (concat_ld + 1);
        memcpy(joined + concat_at, r.output + i * d_v, d_v * sizeof *joined);
        joined[concat_ld] = fmax(joined[concat_ld], r.output_scale[i]);
        if (c->form < PACKED_2D) {
            compare_rows(worst, c, plan, ATTN_RESULT_OUTPUT, 0, row * d_v, r.output + i * d_v, d_v,
                         r.output_scale[i]);
        }
    }
}

/* Q, K, V and present_K, present_V of kv head h. */
static void check_matrices(struct worst *worst, struct call *c, const attn_plan *plan, size_t b,
                           size_t h) {
    const bool own = c->multihead.per_head, packed = c->form == PACKED_2D || c->form == PACKED_3D;
    const size_t d = c->d[own ? h : 0], d_v = c->d_v[own ? h : 0], part = own ? h : 0;
    const size_t slot = own ? b : b * c->H + h, kv_slot = own ? b : b * c->KV + h;
    const size_t keys = c->m - c->p;
    compare_rows(worst, c, plan, ATTN_RESULT_Q, part, slot * c->n * d, c->Q[b][h], c->n * d, 4);
    if (h >= c->KV) {
        return;
    }
    compare_rows(worst, c, plan, ATTN_RESULT_K, part, kv_slot * keys * d, c->K[b][h] + c->p * d,
                 keys * d, 4);
    compare_rows(worst, c, plan, ATTN_RESULT_V, part, kv_slot * keys * d_v, c->V[b][h] + c->p * d_v,
                 keys * d_v, 4);
    for (size_t j = 0; j < c->m; j++) {
        size_t at = packed ? (b * c->m + j) * c->KV + h : kv_slot * c->m + j;
        compare_rows(worst, c, plan, ATTN_RESULT_PRESENT_K, part, at * d, c->K[b][h] + j * d, d, 4);
        compare_rows(worst, c, plan, ATTN_RESULT_PRESENT_V, part, at * d_v, c->V[b][h] + j * d_v,
                     d_v, 4);
    }
}

static void check_call(struct worst *worst, struct call *c, attn_plan *plan) {
    attn_error error = {0};
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        for (size_t part = 0; part < attn_plan_parts(plan, (attn_result)r); part++) {
            const attn_tensor t = attn_as_tensor(attn_plan_tensor(plan, (attn_result)r, part));
            size_t bytes;
            cr_assert(attn_tensor_bytes(&t, &bytes));
            void *data = keep(c, bytes);
            memset(data, 0xff, bytes); /* NaN: what is not written is seen */
            attn_plan_bind(plan, (attn_result)r, part, data);
        }
    }
    attn_status status = attn_plan_run(plan, &error);
    cr_assert_eq(status, ATTN_OK, "seed %llu: %s", (unsigned long long)worst->at, error.message);

    size_t ld = 0;
    for (size_t h = 0; h < c->H; h++) {
        ld += c->d_v[c->multihead.per_head ? h : 0];
    }
    double *mean = keep(c, c->B * c->n * c->m * sizeof *mean);
    double *concat = keep(c, c->B * c->n * (ld + 1) * sizeof *concat);
    for (size_t b = 0; b < c->B; b++) {
        size_t at = 0;
        for (size_t h = 0; h < c->H; h++) {
            check_head(worst, c, plan, b, h, mean, concat, ld, at);
            check_matrices(worst, c, plan, b, h);
            at += c->d_v[c->multihead.per_head ? h : 0];
        }
    }
    for (size_t row = 0; row < c->B * c->n; row++) {
        const double *joined = concat + row * (ld + 1);
        if (c->options.flags & ATTN_FLAG_MEAN_OVER_HEADS) {
            const double *w = mean + row * c->m;
            compare_rows(worst, c, plan, ATTN_RESULT_WEIGHTS, 0, row * c->m, w, c->m,
                         fmax(largest(w, c->m), c->options.normalization ? 10 : 0));
        }
        if (c->form < PACKED_2D) {
            continue;
        }
        if (c->d_out == 0) {
            compare_rows(worst, c, plan, ATTN_RESULT_OUTPUT, 0, row * ld, joined, ld, joined[ld]);
            continue;
        }
        double *y = multiply(c, joined, 1, ld, c->w_o, c->d_out, 1, c->d_out, c->b_o);
        compare_rows(worst, c, plan, ATTN_RESULT_OUTPUT, 0, row * c->d_out, y, c->d_out,
                     fmax(1, joined[ld]));
    }
}

Test(attention, random_calls_agree_with_the_reference, .timeout = 300) {
    enum {
        CALLS = 4000
    };
    struct worst worst = {0};
    size_t calls[2] = {0};
    const size_t all = test_scale(CALLS);
    for (uint64_t seed = 1; seed <= all; seed++) {
        struct call *c = malloc(sizeof *c);
        attn_plan *plan = draw_call(c, seed);
        worst.at = seed;
        check_call(&worst, c, plan);
        calls[c->dtype]++;
        attn_plan_free(plan);
        while (c->block_count > 0) {
            free(c->blocks[--c->block_count]);
        }
        free(c);
    }
    fprintf(stderr,
            "%zu float32 calls: worst error %.2g (%s, seed %llu); %zu float64 calls: %.2g (%s, "
            "seed %llu)\n",
            calls[0], worst.error[0], worst.what[0], (unsigned long long)worst.seed[0], calls[1],
            worst.error[1], worst.what[1], (unsigned long long)worst.seed[1]);
    cr_assert_gt(calls[0], all / 4);
    cr_assert_gt(calls[1], all / 4);
    cr_expect_leq(worst.error[0], 1e-6);
    cr_expect_leq(worst.error[1], 1e-13);
}
