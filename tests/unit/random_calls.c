/* random_calls.c - see random_calls.h. */
#include "random_calls.h"

#include "random_rotary.h"
#include "results.h"
#include "support/plans.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

size_t drawn_items(const struct call *c) {
    return c->batch == 0 ? 1 : c->batch;
}

double *draw_normals(struct call *c, size_t count, double scale) {
    double *x = keep_block(c, count * sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = in_dtype(c->dtype, scale * rng_normal(&c->rng));
    }
    return x;
}

static attn_tensor *new_tensor(struct call *c, attn_dtype dtype, int rank) {
    attn_tensor *t = c->tensors[c->tensor_count++] = keep_block(c, sizeof *t);
    cr_assert_lt(c->tensor_count, MOST_TENSORS);
    t->dtype = dtype;
    t->rank = rank;
    return t;
}

attn_tensor *tensor_of(struct call *c, const double *x, int rank, const size_t *shape) {
    attn_tensor *t = new_tensor(c, c->dtype, rank);
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    const size_t count = count_of(t), bytes = count * attn_dtype_size(c->dtype);
    void *data = keep_block(c, bytes);
    for (size_t i = 0; i < count; i++) {
        set_number(data, c->dtype, i, x[i]);
    }
    t->data = data;
    return t;
}

/* Returns rows [from, to) of the matrices x[b][h], which have `cols` columns, in a form. */
static attn_tensor *in_form(struct call *c, double *x[MAX_BATCH][MAX_HEADS], size_t from, size_t to,
                            size_t cols, const struct own *own) {
    const size_t rows = to - from, heads = own->heads, items = own->one ? 1 : c->batch;
    double *all = keep_block(c, items * heads * rows * cols * sizeof *all);
    const bool packed = form_is_packed(own->form);
    size_t shape[ATTN_MAX_RANK], *first = shape;
    int rank = 0;
    for (size_t b = 0; b < items; b++) {
        for (size_t h = 0; h < heads; h++) {
            for (size_t i = 0; i < rows; i++) {
                size_t at = packed ? ((b * rows + i) * heads + h) * cols
                                   : ((b * heads + h) * rows + i) * cols;
                memcpy(all + at, x[b][h] + (from + i) * cols, cols * sizeof *all);
            }
        }
    }
    for (size_t i = 0; i < own->ones; i++) {
        shape[rank++] = 1;
    }
    if (own->form == PLAIN_4D || own->form == PACKED_3D) {
        shape[rank++] = items;
    }
    if (own->form == PLAIN_3D || own->form == PLAIN_4D) {
        shape[rank++] = heads;
    }
    shape[rank++] = rows;
    shape[rank++] = packed ? heads * cols : cols;
    for (size_t i = 0; i < own->drop && rank > 2 && *first == 1; i++, rank--) {
        first++;
    }
    return tensor_of(c, all, rank, first);
}

/* ------------------------------------------------------------------------------ drawing a call */

/* Draws whether K and V have a lower rank than Q, and are shared. */
static void draw_kv_form(struct call *c) {
    struct own kv = {.form = c->form};
    if (rng_chance(&c->rng, 3)) {
        if (c->form == PLAIN_3D || c->form == PLAIN_4D) {
            kv.form = c->form == PLAIN_4D && rng_chance(&c->rng, 2) ? PLAIN_3D : PLAIN_2D;
            kv.one = true;
            if (kv.form == PLAIN_2D) {
                c->kv_heads = 1;
            }
        } else if (c->form == PACKED_3D) {
            kv.form = PACKED_2D;
            kv.one = true;
        }
    }
    kv.heads = c->kv_heads;
    c->own_k = c->own_v = kv;
    c->own_q = (struct own){.form = c->form, .heads = c->heads};
}

/* Draws which of Q, K and V have one batch item, and which fewer heads than the call, and adds or
 * leaves out axes of the size 1. */
static void draw_broadcasts(struct call *c, struct rng *rng) {
    struct own *const all[] = {&c->own_q, &c->own_k, &c->own_v};
    const size_t whole = rng_between(rng, 0, 2); /* it has all batch items */
    const bool shared = c->own_k.one;
    for (size_t i = 0; i < 3; i++) {
        all[i]->ones = rng_chance(rng, 3) ? rng_between(rng, 1, 2) : 0;
        all[i]->drop = rng_between(rng, 0, 3);
        all[i]->one |= !shared && i != whole && rng_chance(rng, 2);
    }
    if (shared || form_is_packed(c->form)) {
        return;
    }
    if (rng_chance(rng, 2)) {
        do {
            c->own_v.heads = rng_between(rng, 1, c->heads);
        } while (c->heads % c->own_v.heads != 0);
    }
    if ((c->kv_heads == c->heads || c->own_v.heads == c->heads) && rng_chance(rng, 3)) {
        c->own_q.heads = 1;
    }
}

/* Makes the matrices equal that share their numbers. */
static void share_matrices(struct call *c) {
    for (size_t b = 0; b < drawn_items(c); b++) {
        for (size_t h = 0; h < c->heads; h++) {
            c->Q[b][h] = c->Q[c->own_q.one ? 0 : b][h / (c->heads / c->own_q.heads)];
            c->K[b][h] = c->K[c->own_k.one ? 0 : b][h];
            c->V[b][h] = c->V[c->own_v.one ? 0 : b][h];
        }
    }
}

static void draw_sizes(struct call *c) {
    static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 48, 64, 65, 100};
    c->dtype = rng_chance(&c->rng, 2) ? ATTN_FLOAT32 : ATTN_FLOAT64;
    c->form = (enum call_form)rng_between(&c->rng, 0, FORM_COUNT - 1);
    c->n = sizes[rng_between(&c->rng, 0, 16)];
    c->m = sizes[rng_between(&c->rng, 0, 16)];
    c->past = rng_chance(&c->rng, 4) ? rng_between(&c->rng, 1, 9) : 0;
    c->m += c->past;
    c->batch = rng_between(&c->rng, 1, MAX_BATCH);
    c->kv_heads = rng_between(&c->rng, 1, 3);
    c->heads = c->kv_heads * rng_between(&c->rng, 1, MAX_HEADS / c->kv_heads);
    if (c->form == PLAIN_2D) {
        c->batch = c->heads = c->kv_heads = 1;
    }
    if (c->form == PLAIN_3D || c->form == PACKED_2D) {
        c->batch = 1;
    }
    draw_kv_form(c);
    c->batched = c->form == PLAIN_4D || c->form == PACKED_3D;
    c->has_heads = c->form != PLAIN_2D;
    const size_t d = sizes[rng_between(&c->rng, 0, 15)], d_v = sizes[rng_between(&c->rng, 0, 15)];
    for (size_t h = 0; h < MAX_HEADS; h++) {
        c->own_d[h] = d;
        c->own_d_v[h] = d_v;
    }
}

/* Makes an axis empty in some calls: the queries, the new keys, both, or the batch items. */
static void empty_axes(struct call *c, uint64_t seed) {
    const uint64_t which = seed % 32;
    c->n = which == 0 || which == 2 ? 0 : c->n;
    c->m = which == 1 || which == 2 ? c->past : c->m;
    if (which == 3 && (c->batched || c->form == PROJECTED)) {
        c->batch = 0;
    }
}

double *matrix_product(struct call *c, const double *x, size_t rows, size_t inner, const double *w,
                       size_t row_stride, size_t column_stride, size_t columns,
                       const double *bias) {
    double *y = keep_block(c, rows * columns * sizeof *y);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            double sum = bias != NULL ? bias[j] : 0;
            for (size_t e = 0; e < inner; e++) {
                sum += x[i * inner + e] * w[e * row_stride + j * column_stride];
            }
            y[i * columns + j] = sum;
        }
    }
    return y;
}

/* Draws weights of `inner` rows for `heads` heads of d[h] columns, in the form of the call, and
 * makes tensors of them in w_out and b_out. Writes their products with x to the matrices out[b][h],
 * from row `first` on. */
static void project(struct call *c, const double *x, size_t rows, size_t inner, size_t heads,
                    const size_t *d, double *out[MAX_BATCH][MAX_HEADS], size_t first, bool three,
                    const attn_tensor **w_out, const attn_tensor **b_out, size_t stride) {
    const bool out_in = c->multihead.layout == ATTN_OUT_IN, own = c->multihead.per_head;
    const bool biased = rng_chance(&c->rng, 2);
    size_t total = 0, column = 0;
    for (size_t h = 0; h < heads; h++) {
        total += d[h];
    }
    double *w = draw_normals(c, inner * total, 1.0 / sqrt((double)inner));
    double *bias = biased ? draw_normals(c, total, 0.5) : NULL;
    for (size_t h = 0; h < heads; h++) {
        const bool apart = own || three;
        const double *wh = apart ? w + inner * column : out_in ? w + column * inner : w + column;
        const size_t rs = out_in ? 1 : apart ? d[h] : total, cs = out_in ? inner : 1;
        for (size_t b = 0; b < c->batch; b++) {
            double *y = matrix_product(c, x + b * rows * inner, rows, inner, wh, rs, cs, d[h],
                                       biased ? bias + column : NULL);
            memcpy(out[b][h] + first * d[h], y, rows * d[h] * sizeof *y);
        }
        if (own) {
            size_t shape[2] = {out_in ? d[h] : inner, out_in ? inner : d[h]};
            w_out[h * stride] = tensor_of(c, wh, 2, shape);
            b_out[h * stride] = biased ? tensor_of(c, bias + column, 1, &d[h]) : NULL;
        }
        column += d[h];
    }
    if (own) {
        return;
    }
    if (three) {
        size_t shape[3] = {heads, out_in ? d[0] : inner, out_in ? inner : d[0]};
        *w_out = tensor_of(c, w, 3, shape);
        *b_out = !biased                  ? NULL
                 : rng_chance(&c->rng, 2) ? tensor_of(c, bias, 2, (size_t[]){heads, d[0]})
                                          : tensor_of(c, bias, 1, &total);
    } else {
        *w_out = tensor_of(c, w, 2, (size_t[]){out_in ? total : inner, out_in ? inner : total});
        *b_out = biased ? tensor_of(c, bias, 1, &total) : NULL;
    }
}

/* Draws extra keys, as many as c->extra says, and writes their rows to the end of K and V. */
static void draw_extra(struct call *c) {
    const bool own = c->multihead.per_head, biased = c->extra == 2 || rng_chance(&c->rng, 2);
    size_t columns[2] = {0, 0};
    for (size_t h = 0; h < c->kv_heads; h++) {
        columns[0] += c->own_d[own ? h : 0];
        columns[1] += c->own_d_v[own ? h : 0];
    }
    double *rows[2] = {draw_normals(c, columns[0], 1), draw_normals(c, columns[1], 1)};
    const attn_tensor *tensors[2];
    for (int i = 0; i < 2; i++) {
        const size_t shape[] = {c->kv_heads, columns[i] / c->kv_heads};
        tensors[i] = own || rng_chance(&c->rng, 2) ? tensor_of(c, rows[i], 1, &columns[i])
                                                   : tensor_of(c, rows[i], 2, shape);
    }
    c->multihead.bias_k = biased ? tensors[0] : NULL;
    c->multihead.bias_v = biased ? tensors[1] : NULL;
    c->multihead.zero_key = c->extra == 2 || !biased;
    for (size_t b = 0; b < c->batch; b++) {
        const double *k = rows[0], *v = rows[1];
        for (size_t h = 0; h < c->kv_heads; h++) {
            const size_t d = c->own_d[own ? h : 0], d_v = c->own_d_v[own ? h : 0],
                         first = c->m - c->extra;
            memset(c->K[b][h] + first * d, 0, c->extra * d * sizeof *k);
            memset(c->V[b][h] + first * d_v, 0, c->extra * d_v * sizeof *v);
            if (biased) {
                memcpy(c->K[b][h] + first * d, k, d * sizeof *k);
                memcpy(c->V[b][h] + first * d_v, v, d_v * sizeof *v);
            }
            k += d;
            v += d_v;
        }
    }
}

static void draw_projected(struct call *c) {
    static const size_t d_models[] = {1, 3, 7, 16, 24};
    c->multihead.per_head = rng_chance(&c->rng, 3);
    c->multihead.layout = rng_chance(&c->rng, 2) ? ATTN_OUT_IN : ATTN_IN_OUT;
    c->batched = rng_chance(&c->rng, 2);
    c->batch = c->batched ? c->batch : 1;
    bool three = !c->multihead.per_head && rng_chance(&c->rng, 2);
    c->has_heads = c->multihead.per_head || three || !rng_chance(&c->rng, 3);
    if (!c->has_heads) {
        c->heads = c->kv_heads = 1;
    }
    if (c->multihead.per_head) {
        c->m -= c->past;
        c->past = 0;
        c->kv_heads = c->heads;
        for (size_t h = 0; h < c->heads; h++) {
            c->own_d[h] = rng_between(&c->rng, 1, 20);
            c->own_d_v[h] = rng_between(&c->rng, 1, 20);
        }
    }
    const bool cross = rng_chance(&c->rng, 2);
    if (!cross) {
        c->m = c->past + c->n;
    }
    const size_t inner = d_models[rng_between(&c->rng, 0, 4)];
    const size_t context_inner = cross ? d_models[rng_between(&c->rng, 0, 4)] : inner;
    const size_t keys = c->m - c->past;
    const bool apart = rng_chance(&c->rng, 4);
    const size_t value_inner = apart ? d_models[rng_between(&c->rng, 0, 4)] : context_inner;
    double *x = draw_normals(c, c->batch * c->n * inner, 1);
    double *context = cross ? draw_normals(c, c->batch * keys * context_inner, 1) : x;
    double *values = apart ? draw_normals(c, c->batch * keys * value_inner, 1) : context;
    const int rank = c->batched ? 3 : 2;
    c->extra = rng_chance(&c->rng, 3) ? rng_between(&c->rng, 1, 2) : 0;
    c->m += c->extra;
    if (apart) {
        c->multihead.value_context = tensor_of(
            c, values, rank, (size_t[]){c->batch, keys, value_inner} + (c->batched ? 0 : 1));
    }
    c->multihead.x =
        tensor_of(c, x, rank, (size_t[]){c->batch, c->n, inner} + (c->batched ? 0 : 1));
    if (cross) {
        c->multihead.context = tensor_of(
            c, context, rank, (size_t[]){c->batch, keys, context_inner} + (c->batched ? 0 : 1));
    }
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t h = 0; h < c->heads; h++) {
            c->Q[b][h] = draw_normals(c, c->n * c->own_d[h], 1);
            c->K[b][h] =
                draw_normals(c, c->m * c->own_d[h], 1); /* of these, the past rows remain */
            c->V[b][h] = draw_normals(c, c->m * c->own_d_v[h], 1);
        }
    }
    const size_t stride = sizeof(attn_projection) / sizeof(attn_tensor *);
    attn_projection *all = c->projections;
    project(c, x, c->n, inner, c->heads, c->own_d, c->Q, 0, three, &all->w_q, &all->b_q, stride);
    project(c, context, keys, context_inner, c->kv_heads, c->own_d, c->K, c->past, three, &all->w_k,
            &all->b_k, stride);
    project(c, values, keys, value_inner, c->kv_heads, c->own_d_v, c->V, c->past, three, &all->w_v,
            &all->b_v, stride);
    if (c->extra > 0) {
        draw_extra(c);
    }
    c->multihead.projections = c->projections;
    c->multihead.count = c->multihead.per_head ? c->heads : 1;
    if (!c->multihead.per_head && c->has_heads) {
        c->options.heads = three && rng_chance(&c->rng, 2) ? 0 : c->heads;
        c->options.kv_heads = three && c->options.heads == 0 ? 0 : c->kv_heads;
    }
    if (rng_chance(&c->rng, 2)) {
        const bool out_in = c->multihead.layout == ATTN_OUT_IN;
        size_t total = 0;
        for (size_t h = 0; h < c->heads; h++) {
            total += c->own_d_v[c->multihead.per_head ? h : 0];
        }
        c->d_out = rng_between(&c->rng, 1, 20);
        double *w = draw_normals(c, total * c->d_out, 1.0 / sqrt((double)total));
        c->w_o = keep_block(c, total * c->d_out * sizeof *w);
        for (size_t i = 0; i < total; i++) {
            for (size_t j = 0; j < c->d_out; j++) {
                c->w_o[i * c->d_out + j] = w[out_in ? j * total + i : i * c->d_out + j];
            }
        }
        c->multihead.w_o =
            tensor_of(c, w, 2, (size_t[]){out_in ? c->d_out : total, out_in ? total : c->d_out});
        if (rng_chance(&c->rng, 2)) {
            c->b_o = draw_normals(c, c->d_out, 1);
            c->multihead.b_o = tensor_of(c, c->b_o, 1, &c->d_out);
        }
    }
    if (c->past != 0) {
        const struct own own = {.form = PLAIN_4D, .heads = c->kv_heads};
        attn_tensor *past[2] = {in_form(c, c->K, 0, c->past, c->own_d[0], &own),
                                in_form(c, c->V, 0, c->past, c->own_d_v[0], &own)};
        for (int i = 0; i < 2; i++) { /* leave out the axes that the call does not have */
            const size_t full[4] = {c->batch, c->kv_heads, c->past, past[i]->shape[3]};
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

/* Draws a tensor that broadcasts to (B,H,n,m), and writes its full form to `full`. */
static attn_tensor *draw_broadcast(struct call *c, bool boolean, double **full) {
    const size_t want[4] = {c->batch, c->heads, c->n, c->m - c->extra};
    const int rank = (int)rng_between(&c->rng, 2, 4);
    size_t shape[4], stride[4] = {0}, count = 1;
    for (int back = 1; back <= rank; back++) {
        size_t size = rng_chance(&c->rng, 4) ? 1 : want[4 - back];
        shape[rank - back] = size;
        stride[4 - back] = size == 1 ? 0 : count;
        count *= size;
    }
    /* One key of `one_in` is forbidden: all keys, if it is 1. */
    const size_t one_in = rng_chance(&c->rng, 4) ? 1 : rng_between(&c->rng, 2, 8);
    double *x = draw_normals(c, count, 1);
    for (size_t i = 0; i < count; i++) {
        bool forbid = rng_chance(&c->rng, one_in);
        x[i] = boolean ? !forbid : forbid ? -INFINITY : x[i];
    }
    *full = keep_block(c, c->batch * c->heads * c->n * c->m * sizeof **full);
    size_t at = 0;
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t h = 0; h < c->heads; h++) {
            for (size_t i = 0; i < c->n; i++) {
                for (size_t j = 0; j < c->m; j++, at++) {
                    (*full)[at] =
                        j < c->m - c->extra
                            ? x[b * stride[0] + h * stride[1] + i * stride[2] + j * stride[3]]
                            : 0;
                }
            }
        }
    }
    attn_tensor *t = tensor_of(c, x, rank, shape);
    if (boolean) {
        unsigned char *bytes = keep_block(c, count);
        for (size_t i = 0; i < count; i++) {
            bytes[i] = x[i] != 0;
        }
        t->dtype = ATTN_BOOL;
        t->data = bytes;
    }
    return t;
}

/* Draws which keys exist. In some calls none of a batch item does. */
static void draw_padding(struct call *c) {
    const size_t none = rng_between(&c->rng, 0, 3 * MAX_BATCH); /* often no item */
    const int rank = c->batch == 1 && rng_chance(&c->rng, 2) ? 1 : 2;
    attn_tensor *t = new_tensor(c, ATTN_BOOL, rank);
    const size_t keys = c->m - c->extra;
    c->exists = keep_block(c, c->batch * keys);
    for (size_t i = 0; i < c->batch * keys; i++) {
        const unsigned any = (unsigned)rng_between(&c->rng, 1, 255); /* every byte but 0 is true */
        c->exists[i] = i / keys == none || rng_chance(&c->rng, 3) ? 0 : (unsigned char)any;
    }
    t->data = c->exists;
    t->shape[0] = rank == 1 ? keys : c->batch;
    t->shape[1] = rank == 1 ? 0 : keys;
    c->options.key_padding = t;
}

/* Has a call an axis of heads? */
static bool has_head_axis(const struct call *c) {
    return c->form == PROJECTED ? c->has_heads
                                : c->tensor_q->rank > 2 || c->tensor_k->rank > 2 ||
                                      c->tensor_v->rank > 2 || form_is_packed(c->form);
}

void draw_decay(struct call *c, struct rng *rng) {
    const bool packed = form_is_packed(c->form);
    const size_t heads = rng_chance(rng, 3) ? 1 : c->heads,
                 items = rng_chance(rng, 3) ? 1 : c->batch;
    const size_t m = c->m, one_in = rng_chance(rng, 2) ? 12 : 1000, count = items * heads * m;
    const size_t shape[] = {items, packed ? m : heads, packed ? heads : m, 1};
    const int sure = packed && (heads == m || rng_chance(rng, 4)) ? 1 : 0; /* heads follow keys */
    const size_t line[] = {items, m};
    double *x = draw_normals(c, count, 0.3);
    for (size_t i = 0; i < count; i++) {
        x[i] = rng_chance(rng, one_in) ? -INFINITY : -fabs(x[i]) - 0x1p-10;
        x[i] = in_dtype(c->dtype, x[i]);
    }
    c->decay = keep_block(c, c->batch * c->heads * m * sizeof *x);
    for (size_t at = 0; at < c->batch * c->heads * m; at++) {
        const size_t j = at % m, h = heads == 1 ? 0 : at / m % c->heads;
        const size_t b = items == 1 ? 0 : at / m / c->heads;
        c->decay[at] = x[packed ? (b * m + j) * heads + h : (b * heads + h) * m + j];
    }
    const int skip = c->batched && !(items == 1 && sure == 0 && rng_chance(rng, 2)) ? 0 : 1;
    c->options.decay = has_head_axis(c) ? tensor_of(c, x, 3 - skip + sure, shape + skip)
                                        : tensor_of(c, x, 2 - skip, line + skip);
}

/* Draws the gate of X, (B,n,columns), and W_G and b_G. */
static double *draw_gate_of_x(struct call *c, struct rng *rng, size_t columns) {
    const attn_tensor *x = c->multihead.x;
    const size_t inner = x->shape[x->rank - 1], rows = c->batch * c->n;
    const bool out_in = c->multihead.layout == ATTN_OUT_IN, biased = rng_chance(rng, 2);
    const bool three = !c->multihead.per_head && rng_chance(rng, 2);
    cr_assert(c->heads > 0 && columns >= c->heads);
    const size_t own = three ? columns / c->heads : columns, heads = columns / own;
    const size_t shape[] = {heads, out_in ? own : inner, out_in ? inner : own};
    double *w = draw_normals(c, inner * columns, 1.0 / sqrt((double)inner)),
           *b = draw_normals(c, columns, 1), *gate = keep_block(c, rows * columns * sizeof *gate);
    for (size_t at = 0; at < rows * columns; at++) {
        const size_t column = at % columns, h = column / own, e = column % own;
        gate[at] = biased ? b[column] : 0;
        for (size_t i = 0; i < inner; i++) {
            gate[at] += tensor_number(x, at / columns * inner + i) *
                        w[h * inner * own + (out_in ? e * inner + i : i * own + e)];
        }
    }
    c->options.w_g = three ? tensor_of(c, w, 3, shape) : tensor_of(c, w, 2, shape + 1);
    if (biased) {
        c->options.b_g = three && rng_chance(rng, 2) ? tensor_of(c, b, 2, (size_t[]){heads, own})
                                                     : tensor_of(c, b, 1, &columns);
    }
    return gate;
}

/* Draws a gate of the outputs of the heads, which has a number for each of their numbers, or for
 * each head. Some gates are nearly open or closed. */
static void draw_gate(struct call *c, struct rng *rng) {
    const bool flat = form_is_packed(c->form) || c->form == PROJECTED, few = rng_chance(rng, 3);
    const bool of_x = c->form == PROJECTED && rng_chance(rng, 2);
    const size_t items = !of_x && rng_chance(rng, 3) ? 1 : c->batch, H = c->heads, n = c->n;
    size_t all = 0; /* columns of all heads */
    cr_assert_gt(H, 0);
    for (size_t h = 0; h < H; h++) {
        all += few ? 1 : c->own_d_v[c->multihead.per_head ? h : 0];
    }
    const double *x = of_x ? draw_gate_of_x(c, rng, all)
                           : draw_normals(c, items * n * all, rng_chance(rng, 6) ? 300 : 2);
    c->gate = keep_block(c, c->batch * H * n * c->d_v * sizeof *c->gate);
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t h = 0, column = 0, own; h < H; h++, column += own) {
            own = few ? 1 : c->own_d_v[c->multihead.per_head ? h : 0];
            for (size_t at = 0; at < n * c->d_v; at++) {
                const size_t i = at / c->d_v, e = few ? 0 : at % c->d_v, item = items == 1 ? 0 : b;
                c->gate[row_of(c, b, h, 0) * c->d_v + at] =
                    e >= own ? 0
                             : x[flat ? (item * n + i) * all + column + e
                                      : ((item * H + h) * n + i) * own + e];
            }
        }
    }
    const size_t flat_shape[] = {items, n, all}, shape[] = {items, H, n, all / H};
    const int skip = c->batched && !(items == 1 && rng_chance(rng, 2)) ? 0 : 1;
    if (!of_x && flat) {
        c->options.gate = tensor_of(c, x, 3 - skip, flat_shape + skip);
    } else if (!of_x && has_head_axis(c)) {
        c->options.gate = tensor_of(c, x, 4 - skip, shape + skip);
    } else if (!of_x) {
        c->options.gate = tensor_of(c, x, 2, shape + 2);
    }
}

static double draw_scale(struct call *c) {
    return rng_chance(&c->rng, 5) ? 0 : (2 * rng_uniform(&c->rng) - 1) / sqrt((double)c->own_d[0]);
}

/* Draws the bias of a given Q, K or V, or NULL, and adds it to rows [from, to) of x[b][h]. */
static const attn_tensor *draw_bias(struct call *c, double *x[MAX_BATCH][MAX_HEADS],
                                    const struct own *own, size_t from, size_t to, size_t columns) {
    const size_t heads = own->heads, items = own->one ? 1 : c->batch, all = heads * columns;
    if (!rng_chance(&c->rng, 4)) {
        return NULL;
    }
    const double *bias = draw_normals(c, all, 0.5);
    for (size_t at = 0; at < items * heads * (to - from) * columns; at++) {
        const size_t e = at % columns, i = at / columns % (to - from);
        const size_t h = at / columns / (to - from) % heads, b = at / columns / (to - from) / heads;
        x[b][h][(from + i) * columns + e] += bias[h * columns + e];
    }
    return rng_chance(&c->rng, 2) ? tensor_of(c, bias, 1, &all)
                                  : tensor_of(c, bias, 2, (size_t[]){heads, columns});
}

void draw_rules(struct call *c) {
    attn_options *o = &c->options;
    o->causal = rng_chance(&c->rng, 2);
    if (rng_chance(&c->rng, 3)) {
        o->flags |= ATTN_FLAG_WINDOW;
        o->window[0] = (int64_t)rng_between(&c->rng, 0, 20) - 1;
        o->window[1] = (int64_t)rng_between(&c->rng, 0, 20) - 1;
    }
    if (rng_chance(&c->rng, 3)) {
        o->flags |= ATTN_FLAG_SCALE;
        o->scale = draw_scale(c);
    } else if (rng_chance(&c->rng, 3)) {
        for (size_t h = 0; h < c->heads; h++) {
            c->scales[h] = draw_scale(c);
        }
        o->scales = c->scales;
        o->scales_count = c->heads;
    }
    o->softcap = rng_chance(&c->rng, 4) ? 0.5 + 5 * rng_uniform(&c->rng) : 0;
    o->normalization = rng_chance(&c->rng, 6) ? ATTN_UNNORMALIZED : ATTN_SOFTMAX;
    if (rng_chance(&c->rng, 6)) {
        o->normalization = ATTN_SIGMOID;
        o->sigmoid_bias = rng_chance(&c->rng, 2) ? -log(fmax(1, (double)c->m)) : 0;
    } else if (rng_chance(&c->rng, 6)) {
        o->normalization = ATTN_STICK_BREAKING;
    }
    if (rng_chance(&c->rng, 4) && c->extra == 0) {
        c->slopes = draw_normals(c, c->heads, 0.3);
        o->alibi_slopes = tensor_of(c, c->slopes, 1, &c->heads);
    }
    if (rng_chance(&c->rng, 4) && o->normalization == ATTN_SOFTMAX) {
        c->sinks = draw_normals(c, c->heads, 1);
        o->sink = tensor_of(c, c->sinks, 1, &c->heads);
    }
}

static void draw_options(struct call *c) {
    attn_options *o = &c->options;
    if (rng_chance(&c->rng, 3)) {
        double *full;
        o->mask = draw_broadcast(c, true, &full);
        const size_t pairs = c->batch * c->heads * c->n * c->m;
        c->mask = keep_block(c, pairs);
        for (size_t i = 0; i < pairs; i++) {
            c->mask[i] = full[i] != 0;
        }
    }
    if (rng_chance(&c->rng, 3)) {
        o->bias = draw_broadcast(c, false, &c->bias);
    }
    draw_rules(c);
    if (rng_chance(&c->rng, 4)) {
        c->lengths = keep_block(c, drawn_items(c) * sizeof *c->lengths);
        c->lengths[0] = c->m - c->extra; /* also if there is no item */
        for (size_t b = 0; b < c->batch; b++) {
            c->lengths[b] = rng_between(&c->rng, 0, c->m - c->extra);
        }
        o->lengths = c->lengths;
        o->lengths_count = c->batch;
    }
    if (rng_chance(&c->rng, 3)) {
        draw_padding(c);
    }
    o->top_k = rng_chance(&c->rng, 2) ? rng_between(&c->rng, 1, 12) : 0;
    o->results = rng_bits(&c->rng) & RESULTS_FORWARD;
    o->results |=
        rng_chance(&c->rng, 2) ? ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS) : ATTN_WANT(OUTPUT);
    if (rng_chance(&c->rng, 2)) { /* results that need no stages */
        o->results = ATTN_WANT(OUTPUT) | ATTN_WANT(LSE);
        o->results |=
            rng_chance(&c->rng, 2) ? ATTN_WANT(WEIGHTS) | RESULTS_OF(RESULT_PER_QUERY) : 0;
    }
    if (c->form != PROJECTED) {
        o->results &= ~RESULTS_OF(RESULT_PROJECTED);
    }
    if (c->batch == 0 || c->n == 0 || c->m == 0) {
        o->results &= ~ATTN_WANT(STATISTICS);
    }
    if (o->normalization != ATTN_SOFTMAX) {
        o->results &= ~RESULTS_OF(RESULT_SOFTMAX);
    }
    o->flags |= rng_chance(&c->rng, 5) ? ATTN_FLAG_MEAN_OVER_HEADS : 0;
}

/* Puts the matrices of all heads behind each other, those of shared batch items, too. */
static double *join(struct call *c, double *x[MAX_BATCH][MAX_HEADS], size_t heads, size_t rows,
                    const size_t *columns, size_t most) {
    const size_t items = c->form == PROJECTED ? c->batch : drawn_items(c);
    double *all = keep_block(c, items * heads * rows * most * sizeof *all);
    for (size_t at = 0; at < items * heads; at++) {
        const size_t h = at % heads;
        memcpy(all + at * rows * most, x[at / heads][h], rows * columns[h] * sizeof *all);
    }
    return all;
}

static void join_heads(struct call *c) {
    for (size_t h = 0; h < c->heads; h++) {
        c->d = c->own_d[h] > c->d ? c->own_d[h] : c->d;
        c->d_v = c->own_d_v[h] > c->d_v ? c->own_d_v[h] : c->d_v;
    }
    c->v_heads = c->own_v.heads;
    c->q = join(c, c->Q, c->heads, c->n, c->own_d, c->d);
    c->k = join(c, c->K, c->kv_heads, c->m, c->own_d, c->d);
    c->v = join(c, c->V, c->v_heads, c->m, c->own_d_v, c->d_v);
}

attn_plan *draw_random_call(struct call *c, uint64_t seed) {
    *c = (struct call){.rng = {seed * UINT64_C(0x9e3779b97f4a7c15) + 1}};
    for (int i = 0; i < 7; i++) {
        rng_bits(&c->rng);
    }
    c->options.flags = rng_chance(&c->rng, 3) ? ATTN_FLAG_BOTTOM_RIGHT : 0;
    draw_sizes(c);
    empty_axes(c, seed);
    struct rng forms = {seed + 1}; /* apart, so that the numbers of a seed stay the same */
    if (c->form == PROJECTED) {
        draw_projected(c);
        c->own_q.heads = c->heads;
        c->own_k.heads = c->own_v.heads = c->kv_heads;
        draw_options(c);
    } else {
        if (rng_chance(&forms, 2)) {
            draw_broadcasts(c, &forms);
        }
        for (size_t b = 0; b < drawn_items(c); b++) {
            for (size_t h = 0; h < c->heads; h++) {
                c->Q[b][h] = draw_normals(c, c->n * c->own_d[0], 1);
                c->K[b][h] = draw_normals(c, c->m * c->own_d[0], 1);
                c->V[b][h] = draw_normals(c, c->m * c->own_d_v[0], 1);
            }
        }
        share_matrices(c);
        if (form_is_packed(c->form)) {
            c->options.heads = c->heads;
            c->options.kv_heads = c->kv_heads;
        }
        c->tensor_q = in_form(c, c->Q, 0, c->n, c->own_d[0], &c->own_q);
        c->tensor_k = in_form(c, c->K, c->past, c->m, c->own_d[0], &c->own_k);
        c->tensor_v = in_form(c, c->V, c->past, c->m, c->own_d_v[0], &c->own_v);
        if (c->past != 0) {
            c->options.past_k = in_form(c, c->K, 0, c->past, c->own_d[0], &c->own_k);
            c->options.past_v = in_form(c, c->V, 0, c->past, c->own_d_v[0], &c->own_v);
        }
        c->options.b_q = draw_bias(c, c->Q, &c->own_q, 0, c->n, c->own_d[0]);
        c->options.b_k = draw_bias(c, c->K, &c->own_k, c->past, c->m, c->own_d[0]);
        c->options.b_v = draw_bias(c, c->V, &c->own_v, c->past, c->m, c->own_d_v[0]);
        draw_options(c);
    }
    draw_rotation(c);
    if (c->options.causal && c->extra == 0 && rng_chance(&forms, 3)) {
        draw_decay(c, &forms);
    }
    join_heads(c);
    if (rng_chance(&forms, 3)) {
        draw_gate(c, &forms);
    }
    return plan_random_call(c, seed);
}

attn_plan *plan_random_call(struct call *c, uint64_t seed) {
    attn_plan *plan = NULL;
    attn_error error = {0};
    if (c->form == PROJECTED) {
        attn_plan_multihead(&plan, &c->multihead, &c->options, &error);
    } else {
        attn_plan_attention(&plan, c->tensor_q, c->tensor_k, c->tensor_v, &c->options, &error);
    }
    cr_assert(plan != NULL, "seed %llu: %s", (unsigned long long)seed, error.message);
    return plan;
}
