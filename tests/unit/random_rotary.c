/* random_rotary.c - see random_rotary.h. The angles are computed here from the formulas of
 * attention.h, for rotary embedding without scaling and with a part of the pairs. */
#include "random_rotary.h"

#include <math.h>

static const double EPSILON = 1e-3; /* of all norms */

/* Draws the weights of a norm for rows of d numbers. */
static const attn_tensor *draw_norm(struct call *c, size_t d, double **weights) {
    *weights = draw_normals(c, d, 0.5);
    return tensor_of(c, *weights, 1, &d);
}

/* Normalises a row of so many heads, which begins at x[h] + at in head h. */
static void normalise(double *const *x, size_t heads, size_t at, const double *weights, size_t d,
                      double epsilon) {
    double squares = 0;
    for (size_t h = 0; h < heads; h++) {
        for (size_t e = 0; e < d; e++) {
            squares += x[h][at + e] * x[h][at + e];
        }
    }
    for (size_t h = 0; h < heads; h++) {
        for (size_t e = 0; e < d; e++) {
            x[h][at + e] *= weights[h * d + e] / sqrt(squares / (double)(heads * d) + epsilon);
        }
    }
}

/* Normalises a row in every head, or in all heads together. */
static void normalise_heads(double *const *x, size_t heads, size_t at, const double *weights,
                            size_t d, double epsilon, bool whole) {
    if (whole) {
        normalise(x, heads, at, weights, d, epsilon);
        return;
    }
    for (size_t h = 0; h < heads; h++) {
        normalise(x + h, 1, at, weights, d, epsilon);
    }
}

/* The tables of a drawn rotary embedding, and its positions. */
struct rotation {
    double *cos, *sin;             /* (items, rows, pairs), or NULL */
    double *positions;             /* (items, n), or NULL */
    size_t rows, pairs, all_pairs; /* the first `pairs` of all turn */
    double divisor;                /* of the frequencies */
    bool table_items, place_items; /* they have a batch axis */
};

static void turn(const struct call *c, const struct rotation *t, double *x, size_t b, size_t i,
                 int64_t counted) {
    const attn_rotary *r = &c->rotary;
    const double at =
        t->positions == NULL ? (double)counted : t->positions[(t->place_items ? b * c->n : 0) + i];
    for (size_t k = 0; k < t->pairs; k++) {
        const double base = r->base == 0 ? 10000 : r->base;
        const double angle = at / pow(base, (double)k / (double)t->all_pairs) / t->divisor;
        double cosine = cos(angle), sine = sin(angle);
        if (t->cos != NULL) {
            const size_t row = (t->table_items ? b * t->rows : 0) + (size_t)at;
            cosine = t->cos[row * t->pairs + k];
            sine = t->sin[row * t->pairs + k];
        }
        double *const first = x + (r->interleaved ? 2 * k : k);
        double *const second = x + (r->interleaved ? 2 * k + 1 : k + t->all_pairs);
        const double a = *first, z = *second;
        *first = a * cosine - z * sine;
        *second = z * cosine + a * sine;
    }
}

/* Draws a table (rows, columns), with a batch axis or without one. Its cos and sin have a sum of
 * squares of about 1, as real ones have, so that turned rows are not longer. */
static const attn_tensor *draw_table(struct call *c, double **x, bool items, size_t rows,
                                     size_t columns) {
    const size_t shape[] = {c->batch, rows, columns};
    *x = draw_normals(c, (items ? c->batch : 1) * rows * columns, sqrt(0.5));
    return tensor_of(c, *x, 2 + items, items ? shape : shape + 1);
}

static void draw_rotary(struct call *c, struct rotation *t) {
    attn_rotary *r = &c->rotary;
    int64_t first = 0; /* of all positions without the offset */
    for (size_t b = 0; b < drawn_items(c); b++) {
        first = position_of(c, b, 0) < first ? position_of(c, b, 0) : first;
    }
    const bool may_have_items = c->batch == 1 || !(c->own_q.one || c->own_k.one);
    r->columns = rng_chance(&c->rng, 2) ? 2 * rng_between(&c->rng, 1, c->own_d[0] / 2) : 0;
    r->columns = c->own_d[0] % 2 != 0 && r->columns == 0 ? c->own_d[0] - 1 : r->columns;
    r->interleaved = rng_chance(&c->rng, 2);
    r->offset = rng_chance(&c->rng, 2) ? 0 : (int64_t)rng_between(&c->rng, 1, 50);
    r->offset -= first;
    r->base = rng_chance(&c->rng, 2) ? 0 : 2 + 100 * rng_uniform(&c->rng);
    t->pairs = t->all_pairs = (r->columns == 0 ? c->own_d[0] : r->columns) / 2;
    t->divisor = 1;
    t->rows = (size_t)r->offset + c->m + c->n;
    if (c->n == c->m - c->extra - c->past && rng_chance(&c->rng, 2)) {
        t->place_items = may_have_items && rng_chance(&c->rng, 2);
        const size_t count = (t->place_items ? c->batch : 1) * c->n;
        t->positions = draw_normals(c, count, 1);
        for (size_t i = 0; i < count; i++) {
            t->positions[i] = (double)rng_between(&c->rng, 0, t->rows - 1);
        }
        attn_tensor *positions = tensor_of(c, t->positions, 1 + t->place_items,
                                           (size_t[]){c->batch, c->n} + (t->place_items ? 0 : 1));
        if (rng_chance(&c->rng, 2)) { /* whatever the dtype of the call is */
            positions->data = t->positions;
            positions->dtype = ATTN_FLOAT64;
        }
        r->positions = positions;
    }
    if (rng_chance(&c->rng, 3)) {
        t->table_items = may_have_items && rng_chance(&c->rng, 2);
        r->cos = draw_table(c, &t->cos, t->table_items, t->rows, t->pairs);
        r->sin = draw_table(c, &t->sin, t->table_items, t->rows, t->pairs);
    } else if (rng_chance(&c->rng, 3)) {
        t->pairs = rng_between(&c->rng, 1, t->all_pairs);
        t->divisor = rng_chance(&c->rng, 2) ? 1 : 1 + 3 * rng_uniform(&c->rng);
        r->scaling = ATTN_ROTARY_PROPORTIONAL;
        r->factor = t->divisor == 1 ? 0 : t->divisor;
        /* Half a pair more is rounded down. */
        r->partial_factor = fmin(1, ((double)t->pairs + 0.5) / (double)t->all_pairs);
    }
    c->options.rotary = r;
}

/* Draws norm_v, and normalises the new rows of V. */
static void draw_norm_of_values(struct call *c) {
    const size_t d_v = c->own_d_v[0], heads = c->own_v.heads;
    const bool whole = rng_chance(&c->rng, 3);
    double *weights;
    for (size_t h = 0; h < c->heads; h++) {
        if (c->own_d_v[h] != d_v || d_v == 1) { /* that of one number is almost its sign */
            return;
        }
    }
    c->options.norm_v = draw_norm(c, whole ? heads * d_v : d_v, &weights);
    c->options.norm_epsilon = EPSILON;
    for (size_t b = 0; b < (c->own_v.one ? 1 : c->batch); b++) {
        for (size_t j = c->past; j < c->m - c->extra; j++) {
            normalise_heads(c->V[b], heads, j * d_v, weights, d_v, EPSILON, whole);
        }
    }
}

void draw_rotation(struct call *c) {
    struct rotation t = {0};
    double *norm_q = NULL, *norm_k = NULL;
    bool whole = false; /* the norms go over all heads */
    const size_t d = c->own_d[0];
    if (rng_chance(&c->rng, 4)) {
        draw_norm_of_values(c);
    }
    for (size_t h = 0; h < c->heads; h++) {
        if (c->own_d[h] != d) {
            return;
        }
    }
    if (rng_chance(&c->rng, 4)) {
        whole = rng_chance(&c->rng, 3);
        c->options.norm_q = draw_norm(c, whole ? c->own_q.heads * d : d, &norm_q);
        c->options.norm_k =
            rng_chance(&c->rng, 2) ? draw_norm(c, whole ? c->kv_heads * d : d, &norm_k) : NULL;
        c->options.norm_epsilon = EPSILON;
    }
    const bool apart =
        c->options.lengths != NULL && (c->options.flags & ATTN_FLAG_BOTTOM_RIGHT) != 0;
    if (d > 1 && rng_chance(&c->rng, 3) && !(c->batch > 1 && apart && c->own_q.one)) {
        draw_rotary(c, &t);
    }
    for (size_t b = 0; b < drawn_items(c); b++) {
        const bool has_q = c->own_q.one ? b == 0 : b < c->batch;
        const bool has_k = c->own_k.one ? b == 0 : b < c->batch;
        for (size_t i = 0; norm_q != NULL && has_q && i < c->n; i++) {
            normalise_heads(c->Q[b], c->own_q.heads, i * d, norm_q, d, EPSILON, whole);
        }
        for (size_t j = c->past; norm_k != NULL && has_k && j < c->m - c->extra; j++) {
            normalise_heads(c->K[b], c->kv_heads, j * d, norm_k, d, EPSILON, whole);
        }
        for (size_t h = 0; h < c->own_q.heads && has_q; h++) {
            for (size_t i = 0; i < c->n; i++) {
                turn(c, &t, c->Q[b][h] + i * d, b, i, position_of(c, b, i) + c->rotary.offset);
            }
        }
        for (size_t h = 0; h < c->kv_heads && has_k; h++) {
            for (size_t j = c->past; j < c->m - c->extra; j++) {
                turn(c, &t, c->K[b][h] + j * d, b, j - c->past, (int64_t)j + c->rotary.offset);
            }
        }
    }
}
