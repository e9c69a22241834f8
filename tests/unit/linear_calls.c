/* linear_calls.c - see linear_calls.h. */
#include "linear_calls.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

bool linear_has_sequences(const struct linear_call *c) {
    return c->form >= LINEAR_ROWS;
}

bool linear_is_packed(const struct linear_call *c) {
    return c->form == LINEAR_PACKED || linear_has_sequences(c);
}

static bool has_heads(const struct linear_call *c) {
    return c->form != LINEAR_PLAIN && c->form != LINEAR_ROWS;
}

/* ------------------------------------------------------------------------------ drawing numbers */

size_t linear_count(const struct linear_matrix *m) {
    return m->items * m->heads * m->rows * m->columns;
}

double *linear_number(const struct linear_matrix *m, size_t b, size_t h, size_t i) {
    const size_t item = m->items == 1 ? 0 : b, head = m->heads == 1 ? 0 : h,
                 row = m->rows == 1 ? 0 : i;
    return m->x + ((item * m->heads + head) * m->rows + row) * m->columns;
}

size_t linear_place(const struct linear_matrix *m, size_t b, size_t h, size_t i, bool packed) {
    const size_t row = packed ? i * m->heads + h : h * m->rows + i;
    return (b * m->heads * m->rows + row) * m->columns;
}

static double *new_numbers(struct linear_call *c, const struct linear_matrix *m) {
    return keep_block(c, linear_count(m) * sizeof *m->x);
}

static void draw_normals_of(struct linear_call *c, struct linear_matrix *m, double size) {
    m->x = new_numbers(c, m);
    for (size_t i = 0; i < linear_count(m); i++) {
        m->x[i] = in_dtype(c->dtype, size * rng_normal(&c->rng));
    }
}

/* Gives each row of K the length 1. */
static void make_unit_rows(const struct linear_call *c, const struct linear_matrix *m) {
    for (size_t row = 0; row < linear_count(m) / m->columns; row++) {
        double *x = m->x + row * m->columns, squares = 0;
        for (size_t e = 0; e < m->columns; e++) {
            squares += x[e] * x[e];
        }
        for (size_t e = 0; e < m->columns && squares > 0; e++) {
            x[e] = in_dtype(c->dtype, x[e] / sqrt(squares));
        }
    }
}

/* Makes each row of K nearly the one before it: `away` is how far they differ. */
static void make_rows_alike(struct linear_call *c, const struct linear_matrix *m, double away) {
    for (size_t i = m->columns; i < linear_count(m); i++) {
        m->x[i] = in_dtype(c->dtype, m->x[i - m->columns] + away * m->x[i]);
    }
}

enum decay_kind {
    DECAY_ZERO,
    DECAY_TINY,
    DECAY_USUAL,
    DECAY_WIDE, /* to -1000 */
    DECAY_MIXED /* of all these, and -inf */
};

static double draw_gate_logarithms(struct linear_call *c, enum decay_kind kind) {
    const double u = rng_uniform(&c->rng);
    switch (kind) {
    case DECAY_ZERO:
        return 0;
    case DECAY_TINY:
        return -pow(10, -10 + 7 * u);
    case DECAY_USUAL:
        return -pow(10, -2 + 2 * u);
    case DECAY_WIDE:
        return -pow(10, -2 + 5 * u);
    default:
        return rng_chance(&c->rng, 12)
                   ? -INFINITY
                   : draw_gate_logarithms(c, (enum decay_kind)rng_between(&c->rng, 0, DECAY_WIDE));
    }
}

/* Chooses which axes of decay or beta have the size 1. */
static struct linear_matrix draw_gate_axes(struct linear_call *c, size_t columns) {
    const size_t items = linear_has_sequences(c) ? 1 : c->B;
    return (struct linear_matrix){.items = rng_chance(&c->rng, 4) ? 1 : items,
                                  .heads = rng_chance(&c->rng, 4) && columns == 1 ? 1 : c->H_s,
                                  .rows = rng_chance(&c->rng, 6) ? 1 : c->n,
                                  .columns = columns};
}

static void draw_decays(struct linear_call *c) {
    const bool by_column = rng_chance(&c->rng, 2);
    c->decay = draw_gate_axes(c, by_column ? c->d : 1);
    if (by_column && !linear_is_packed(c) && rng_chance(&c->rng, 4)) {
        c->decay.heads = 1;
    }
    const bool has_axis = !linear_is_packed(c) || !has_heads(c); /* one of positions, or of 1 */
    if (by_column && has_axis && c->decay.heads == 1 && c->d == c->n) {
        c->decay.rows = c->n; /* one row could be the numbers of the positions, too */
    }
    const enum decay_kind kind = (enum decay_kind)rng_between(&c->rng, 0, DECAY_MIXED);
    c->decay.x = new_numbers(c, &c->decay);
    for (size_t i = 0; i < linear_count(&c->decay); i++) {
        c->decay.x[i] = in_dtype(c->dtype, draw_gate_logarithms(c, kind));
    }
}

static void draw_betas(struct linear_call *c) {
    const size_t kind = rng_between(&c->rng, 0, 3);
    c->beta = draw_gate_axes(c, 1);
    c->beta.x = new_numbers(c, &c->beta);
    for (size_t i = 0; i < linear_count(&c->beta); i++) {
        const double whole = (double)rng_between(&c->rng, 0, 2);
        c->beta.x[i] = in_dtype(c->dtype, kind == 0   ? 2
                                          : kind == 1 ? whole
                                                      : rng_uniform(&c->rng) * (kind == 2 ? 2 : 1));
    }
}

/* ------------------------------------------------------------------------------- drawing a call */

/* Draws a size in [1, most], of which each power of 2 is as likely as the next one. */
static size_t draw_size(struct linear_call *c, size_t most) {
    return (size_t)exp(rng_uniform(&c->rng) * log((double)most + 0.999));
}

static void draw_form(struct linear_call *c, bool is_long) {
    c->form = (enum linear_form)rng_between(&c->rng, 0, LINEAR_FORMS - 1);
    c->B = 1;
    if (c->form == LINEAR_HEADS || c->form == LINEAR_PACKED) {
        c->axis_count = is_long ? 0 : (int)rng_between(&c->rng, 0, 2);
    }
    for (int i = 0; i < c->axis_count; i++) {
        c->axes[i] = rng_between(&c->rng, 1, i == 0 ? 3 : 2);
        c->B *= c->axes[i];
    }
}

/* Draws the heads. V of a packed call has as many as there are states. */
static void draw_heads(struct linear_call *c, bool is_long) {
    static const size_t counts[] = {1, 1, 2, 3, 4, 6};
    c->H = c->H_s = c->q.heads = c->k.heads = c->v.heads = 1;
    if (!has_heads(c) || is_long) {
        return;
    }
    c->H_s = counts[rng_between(&c->rng, 0, 5)];
    c->k.heads = c->v.heads = c->H_s;
    size_t *fewer = linear_is_packed(c) && c->form != LINEAR_ROWS_AND_HEADS ? &c->k.heads
                    : rng_chance(&c->rng, 2)                                ? &c->k.heads
                                                                            : &c->v.heads;
    *fewer = rng_chance(&c->rng, 2) ? c->H_s : c->H_s / (c->H_s % 2 == 0 ? 2 : c->H_s);
    c->H = c->H_s * rng_between(&c->rng, 1, c->H_s > 3 ? 2 : 3);
    c->q.heads = c->H;
    if (rng_chance(&c->rng, 3)) { /* several states for a head of Q */
        c->H = c->H_s;
        c->q.heads = c->H_s % 2 == 0 && rng_chance(&c->rng, 2) ? c->H_s / 2 : 1;
    }
}

static void draw_linear_sizes(struct linear_call *c, bool is_long) {
    const size_t most = is_long ? 100000000 : 4000000;
    do {
        c->n = is_long ? 300 + draw_size(c, 4700) : draw_size(c, 300);
        c->d = draw_size(c, 160);
        c->d_v = draw_size(c, 160);
        c->d = rng_chance(&c->rng, 4) ? 16 * (1 + c->d / 16) : c->d;
    } while (c->B * c->H * c->n * c->d * c->d_v > most);
}

/* Draws the lengths of batch items, or sequences. */
static void draw_lines(struct linear_call *c) {
    c->line_count = c->B;
    for (size_t b = 0; b < c->B; b++) {
        c->line_rows[b] = c->n;
    }
    if (linear_has_sequences(c)) {
        size_t left = c->n;
        c->line_count = rng_between(&c->rng, 1, MAX_SEQUENCES);
        for (size_t i = 0; i < c->line_count; i++) {
            const size_t some = rng_chance(&c->rng, 4) ? 0 : rng_between(&c->rng, 0, left);
            c->queries[i] = c->line_rows[i] = i + 1 == c->line_count ? left : some;
            c->line_first[i] = c->n - left;
            left -= c->line_rows[i];
        }
        c->sequences = (attn_sequences){.count = c->line_count, .queries = c->queries};
        c->sequences.keys = rng_chance(&c->rng, 2) ? c->queries : NULL;
        c->options.sequences = &c->sequences;
    } else if (rng_chance(&c->rng, 3)) {
        for (size_t b = 0; b < c->B; b++) {
            c->lengths[b] = c->line_rows[b] = rng_between(&c->rng, 0, c->n);
        }
        c->options.lengths = c->lengths;
        c->options.lengths_count = c->B;
    }
}

static void draw_matrices(struct linear_call *c) {
    struct linear_matrix *all[] = {&c->q, &c->k, &c->v};
    const size_t whole = rng_between(&c->rng, 0, 2), keys = rng_between(&c->rng, 0, 9);
    for (size_t i = 0; i < 3; i++) {
        all[i]->items =
            linear_has_sequences(c) || (i != whole && rng_chance(&c->rng, 4)) ? 1 : c->B;
        all[i]->rows = c->n;
        all[i]->columns = i == 2 ? c->d_v : c->d;
        draw_normals_of(c, all[i], i == 1 && keys < 2 ? 1 / sqrt((double)c->d) : 1);
    }
    c->call.normalize_qk = keys == 3 || rng_chance(&c->rng, 6);
    if (keys >= 8) {
        make_rows_alike(c, &c->k, keys == 8 ? 0 : pow(10, -4 + 3 * rng_uniform(&c->rng)));
    }
    if (keys > 3) { /* with 2 the rows are as long as they are drawn */
        make_unit_rows(c, &c->k);
    }
    if (rng_chance(&c->rng, 2)) {
        const size_t items = linear_has_sequences(c)  ? c->line_count
                             : rng_chance(&c->rng, 2) ? 1
                                                      : c->B;
        c->past = (struct linear_matrix){items, c->H_s, c->d, c->d_v, NULL};
        draw_normals_of(c, &c->past, 1);
    }
}

static void draw_linear_options(struct linear_call *c) {
    static const double fixed[] = {1, -0.5, 0, 0.125};
    attn_options *o = &c->options;
    o->norm_epsilon = c->call.normalize_qk && rng_chance(&c->rng, 3) ? 1e-3 : 0;
    if (rng_chance(&c->rng, 3)) {
        o->flags = ATTN_FLAG_SCALE;
        o->scale = fixed[rng_between(&c->rng, 0, 3)];
    }
    for (size_t h = 0; h < c->H; h++) {
        c->scales[h] = o->flags != 0 ? o->scale : 1 / sqrt((double)c->d);
    }
    if (o->flags == 0 && rng_chance(&c->rng, 3)) {
        for (size_t h = 0; h < c->H; h++) {
            c->scales[h] = rng_normal(&c->rng);
        }
        o->scales = c->scales;
        o->scales_count = c->H;
    }
}

/* Chooses the results. The reference makes weights and states slowly. */
static void draw_linear_results(struct linear_call *c) {
    const double rows = (double)(c->B * c->H) * (double)c->n;
    const bool few = rows * (double)c->n * (double)(c->d + c->n) < 4e6 && !linear_has_sequences(c);
    const bool small = rows * (double)(c->d * c->d_v) < 2e6 && !linear_has_sequences(c);
    uint64_t *results = &c->options.results;
    *results |= rng_chance(&c->rng, 4) ? 0 : ATTN_WANT(OUTPUT);
    *results |= rng_chance(&c->rng, 2) ? ATTN_WANT(PRESENT_STATE) : 0;
    *results |= few && rng_chance(&c->rng, 3) ? ATTN_WANT(WEIGHTS) : 0;
    *results |= small && rng_chance(&c->rng, 4) ? ATTN_WANT(STATES) : 0;
    *results |= c->decay.x != NULL && rng_chance(&c->rng, 3) ? ATTN_WANT(DECAYS) : 0;
}

/* Asks for gradients of a loss by output, by present_state, or by both. */
static void draw_linear_gradients(struct linear_call *c) {
    const double numbers = (double)(c->B * c->H * c->n) * (double)(c->d * c->d_v);
    uint64_t *results = &c->options.results;
    if (numbers > 8e6 || rng_chance(&c->rng, 2)) {
        return;
    }
    const size_t items = linear_has_sequences(c) ? 1 : c->B, which = rng_between(&c->rng, 0, 3);
    if (which != 0) {
        c->grad_output = (struct linear_matrix){items, c->H, c->n, c->d_v, NULL};
        draw_normals_of(c, &c->grad_output, 1);
    }
    if (which < 2) {
        const size_t states = linear_has_sequences(c) ? c->line_count : c->B;
        c->grad_state = (struct linear_matrix){states, c->H_s, c->d, c->d_v, NULL};
        draw_normals_of(c, &c->grad_state, 1);
    }
    const uint64_t all = ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V) |
                         (c->decay.x != NULL ? ATTN_WANT(GRAD_DECAY) : 0) |
                         (c->beta.x != NULL ? ATTN_WANT(GRAD_BETA) : 0) |
                         (c->past.x != NULL ? ATTN_WANT(GRAD_PAST_STATE) : 0);
    const uint64_t some = all & rng_bits(&c->rng);
    *results |= some == 0 || rng_chance(&c->rng, 2) ? all : some;
}

/* ---------------------------------------------------------------------------------- the tensors */

static void add_axis(attn_tensor *t, size_t size) {
    t->shape[t->rank++] = size;
}

/* Adds the axes of the batch, or axes of the size 1, or none. */
static void add_batch(const struct linear_call *c, attn_tensor *t, size_t items, bool may_lack) {
    for (int i = 0; i < c->axis_count && !(may_lack && items == 1); i++) {
        add_axis(t, items == c->B ? c->axes[i] : 1);
    }
}

/* Writes the numbers of a matrix, with the rows before the heads in a packed call. */
static void write_numbers(struct linear_call *c, attn_tensor *t, const struct linear_matrix *m,
                          bool packed) {
    void *data = keep_block(c, linear_count(m) * attn_dtype_size(c->dtype));
    for (size_t x = 0; x < linear_count(m); x++) {
        const size_t e = x % m->columns, i = x / m->columns % m->rows,
                     h = x / m->columns / m->rows % m->heads,
                     b = x / m->columns / m->rows / m->heads;
        set_number(data, c->dtype, linear_place(m, b, h, i, packed) + e, m->x[x]);
    }
    t->data = data;
    t->dtype = c->dtype;
}

/* Makes Q, K or V. Some of those that all batch items share lack axes. */
static void make_rows(struct linear_call *c, attn_tensor *t, const struct linear_matrix *m) {
    const bool lacks = m->items == 1 && c->B > 1 && m->rows % 2 == 1;
    const bool flat = c->form == LINEAR_ROWS_PACKED || c->form == LINEAR_PACKED;
    *t = (attn_tensor){0};
    add_batch(c, t, m->items, lacks);
    if (c->form == LINEAR_HEADS && !(lacks && m->heads == 1)) {
        add_axis(t, m->heads);
    }
    add_axis(t, m->rows);
    if (c->form == LINEAR_ROWS_AND_HEADS) {
        add_axis(t, m->heads);
    }
    add_axis(t, flat ? m->heads * m->columns : m->columns);
    write_numbers(c, t, m, linear_is_packed(c));
}

/* Makes decay or beta. One number for each head, the betas of all heads, or one number for all may
 * be a list. */
static void make_gates(struct linear_call *c, attn_tensor *t, const struct linear_matrix *m) {
    const bool by_column = m->columns > 1 || (m == &c->decay && c->d == 1 && c->n % 2 == 1);
    const bool is_one = m->heads == 1 && m->rows == 1 && c->d_v % 2 == 1;
    const bool is_list =
        m->items == 1 && !by_column && has_heads(c) && (c->n != c->H_s || is_one) &&
        (is_one ||
         (m == &c->decay ? m->rows == 1 && m->heads == c->H_s : m->heads == 1 && m->rows == c->n));
    const bool square = m->heads > 1 && m->heads == m->rows; /* may be meant the other way round */
    /* (1,n,1) may be one row of all heads, or one column of all positions; (1,1,n) may be the
     * positions of one head, or one row of all columns. */
    const bool open = m->columns == 1 && ((c->n == c->H_s && (m->heads == 1) != (m->rows == 1)) ||
                                          (m == &c->decay && m->heads == 1 && c->n == c->d));
    const int further = c->axis_count == 0 && !is_list && !open ? (int)(c->d_v % 5) : 0;
    *t = (attn_tensor){0};
    for (int i = 3; i <= further; i++) { /* axes of 1 that the call does not have */
        add_axis(t, 1);
    }
    if (is_list) {
        add_axis(t, m->heads * m->rows);
    } else if (linear_is_packed(c)) {
        add_batch(c, t, m->items, false);
        add_axis(t, m->rows);
        if (c->form == LINEAR_ROWS_AND_HEADS && by_column && !square) {
            add_axis(t, m->heads);
            add_axis(t, m->columns);
        } else if (has_heads(c)) {
            add_axis(t, m->heads * m->columns);
            if (m->columns == 1 && !open && (square || c->d_v % 4 == 1)) {
                add_axis(t, 1);
            }
        } else if (by_column) {
            add_axis(t, m->columns);
        }
    } else {
        add_batch(c, t, m->items, false);
        if (has_heads(c)) {
            add_axis(t, m->heads);
        }
        add_axis(t, m->rows);
        if (by_column) {
            add_axis(t, m->columns);
        }
    }
    write_numbers(c, t, m, linear_is_packed(c));
}

/* Makes past_state, or the gradient by present_state, which has all axes. */
static void make_state(struct linear_call *c, attn_tensor *t, const struct linear_matrix *m) {
    *t = (attn_tensor){0};
    if (linear_has_sequences(c)) {
        add_axis(t, c->line_count);
    } else {
        add_batch(c, t, m->items, m == &c->past);
    }
    if (has_heads(c)) {
        add_axis(t, c->H_s);
    }
    add_axis(t, c->d);
    add_axis(t, c->d_v);
    write_numbers(c, t, m, false);
}

void make_linear_tensors(struct linear_call *c) {
    attn_tensor *t = c->tensors;
    make_rows(c, &t[0], &c->q);
    make_rows(c, &t[1], &c->k);
    make_rows(c, &t[2], &c->v);
    c->call.q = &t[0];
    c->call.k = &t[1];
    c->call.v = &t[2];
    if (c->decay.x != NULL) {
        make_gates(c, &t[3], &c->decay);
        c->options.decay = &t[3];
    }
    if (c->beta.x != NULL) {
        make_gates(c, &t[4], &c->beta);
        c->call.beta = &t[4];
    }
    if (c->past.x != NULL) {
        make_state(c, &t[5], &c->past);
        c->call.past_state = &t[5];
    }
    if (c->grad_output.x != NULL) {
        make_rows(c, &t[6], &c->grad_output);
        c->upstream.output = &t[6];
        c->options.upstream = &c->upstream;
    }
    if (c->grad_state.x != NULL) {
        make_state(c, &t[7], &c->grad_state);
        c->upstream.state = &t[7];
        c->options.upstream = &c->upstream;
    }
    if (c->form == LINEAR_PACKED || c->form == LINEAR_ROWS_PACKED) {
        c->options.heads = c->q.heads;
        c->options.kv_heads = c->v.heads == c->q.heads && c->n % 2 == 0 ? 0 : c->v.heads;
    }
}

/* Rows behind the lengths of all batch items may be NaN. */
static void spoil_the_rest(struct linear_call *c) {
    size_t longest = 0;
    for (size_t b = 0; b < c->B; b++) {
        longest = c->line_rows[b] > longest ? c->line_rows[b] : longest;
    }
    struct linear_matrix *all[] = {&c->q, &c->k, &c->v, &c->decay, &c->beta, &c->grad_output};
    for (size_t m = 0; m < 6 && !linear_has_sequences(c); m++) {
        for (size_t at = 0; all[m]->x != NULL && at < linear_count(all[m]); at++) {
            if (all[m]->rows > 1 && at / all[m]->columns % all[m]->rows >= longest) {
                all[m]->x[at] = NAN;
            }
        }
    }
}

struct linear_call *draw_linear_call(uint64_t seed, bool is_long) {
    struct linear_call *c = allocate(1, sizeof *c);
    c->rng.state = seed * UINT64_C(0x9E3779B97F4A7C15) + is_long;
    rng_bits(&c->rng);
    c->dtype = rng_chance(&c->rng, 3) ? ATTN_FLOAT64 : ATTN_FLOAT32;
    draw_form(c, is_long);
    draw_heads(c, is_long);
    draw_linear_sizes(c, is_long);
    draw_lines(c);
    draw_matrices(c);
    const size_t rule = rng_between(&c->rng, 0, 3);
    if (rule % 2 == 1) {
        draw_decays(c);
    }
    if (rule >= 2) {
        draw_betas(c);
    }
    c->call.update = rng_chance(&c->rng, 2) ? ATTN_UPDATE_AS_GIVEN : (attn_update)(rule + 1);
    draw_linear_options(c);
    draw_linear_results(c);
    draw_linear_gradients(c);
    spoil_the_rest(c);
    make_linear_tensors(c);
    return c;
}

static void draw_range(struct linear_call *c, struct linear_matrix *m, const double range[2]) {
    m->x = new_numbers(c, m);
    for (size_t i = 0; i < linear_count(m); i++) {
        m->x[i] = in_dtype(
            c->dtype,
            range[0] + (range[0] == range[1] ? 0 : rng_uniform(&c->rng) * (range[1] - range[0])));
    }
}

struct linear_call *draw_linear_kind(const struct linear_kind *kind) {
    const size_t n = kind->n, d = kind->d;
    struct linear_call *c = allocate(1, sizeof *c);
    *c = (struct linear_call){.rng = {n * 31 + d},
                              .dtype = kind->dtype,
                              .B = 1,
                              .H = 1,
                              .H_s = 1,
                              .n = n,
                              .d = d,
                              .d_v = kind->d_v,
                              .q = {1, 1, n, d, NULL},
                              .k = {1, 1, n, d, NULL},
                              .v = {1, 1, n, kind->d_v, NULL},
                              .decay = {1, 1, n, kind->decays, NULL},
                              .beta = {1, 1, n, 1, NULL},
                              .scales = {1 / sqrt((double)d)},
                              .line_count = 1,
                              .line_rows = {n}};
    struct linear_matrix *all[] = {&c->q, &c->k, &c->v};
    for (size_t i = 0; i < 3; i++) {
        draw_normals_of(c, all[i], 1);
    }
    make_unit_rows(c, &c->k);
    for (size_t i = d; kind->one_key && i < n * d; i++) {
        c->k.x[i] = c->k.x[i - d];
    }
    if (kind->decays > 0) {
        draw_range(c, &c->decay, kind->decay);
    }
    if (kind->has_beta) {
        draw_range(c, &c->beta, kind->beta);
    }
    c->options.results = ATTN_WANT(OUTPUT) | ATTN_WANT(PRESENT_STATE);
    make_linear_tensors(c);
    return c;
}

void free_linear_call(struct linear_call *c) {
    free_kept(&c->kept);
    free(c);
}

const char *describe_linear(const struct linear_call *c) {
    static const char *const forms[] = {"plain", "heads",       "packed",
                                        "rows",  "rows_packed", "rows_and_heads"};
    static char text[256];
    snprintf(text, sizeof text,
             "%s float%d B=%zu heads %zu/%zu/%zu n=%zu d=%zu d_v=%zu%s%s%s%s%s%s results %llx",
             forms[c->form], c->dtype == ATTN_FLOAT32 ? 32 : 64, c->B, c->q.heads, c->k.heads,
             c->v.heads, c->n, c->d, c->d_v,
             c->decay.x == NULL      ? ""
             : c->decay.columns == 1 ? " decay"
                                     : " decay by column",
             c->beta.x != NULL ? " beta" : "", c->past.x != NULL ? " past" : "",
             c->options.lengths != NULL ? " lengths" : "",
             c->call.normalize_qk ? " normalized" : "", c->options.scales != NULL ? " scales" : "",
             (unsigned long long)c->options.results);
    return text;
}

/* -------------------------------------------------------------------------------------- running */

struct results try_linear(const struct linear_call *c, run_tasks *run) {
    attn_plan *plan;
    attn_error error = {0};
    cr_assert_eq(attn_plan_linear(&plan, &c->call, &c->options, &error), ATTN_OK, "%s: %s",
                 describe_linear(c), error.message);
    return run_plan(plan, run);
}
