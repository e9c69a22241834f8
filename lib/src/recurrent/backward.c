/*
 * backward.c computes the gradients of linear attention, in double, from the last position to the
 * first. D is the gradient by the output, times the scale. G is the gradient by the state, and
 * begins with that by present_state. S is the state after the position, and S' is a times the state
 * before it. Each position has
 *
 *     G          = G + q D^T
 *     grad_q     = S D
 *     grad_k     = G u
 *     grad_u     = G^T k
 *     grad_v     = grad_u                   linear, gated
 *
 *     grad_beta  = grad_u (v - S'^T k)      delta rules
 *     grad_v     = beta grad_u
 *     grad_k     = grad_k - S' grad_v
 *     G          = G - k grad_v^T
 *
 *     G          = a G
 *     grad_decay = the sum of G times the state before the position, number by number
 *
 * The states are computed again from checkpoints: first those at the begin of each interval of
 * positions, and then, for one interval after the other, those of its positions.
 */
#include "recurrent/backward.h"

#include "base/tensor.h"
#include "recurrent/schedule_linear.h"

/* Some columns of a tile, and their places in the scratch. */
struct backward {
    struct state_tile s;         /* with these columns */
    size_t tile;                 /* the number of its tile */
    size_t offset, tile_columns; /* its first column there, and all columns of the tile */
    bool adds;                   /* other columns of the tile have begun the partial gradients */
    struct gradient_rows rows[LINEAR_INPUTS];
    double *checkpoints, *states, *grad; /* states, and the gradient of one */
    double *keys, *gates;                /* (interval, d) */
    double *left, *u;                    /* (interval, columns): v, or v - S'^T k; and u */
    double *q, *x, *y;                   /* (d) */
    double *out, *grad_u, *unused;       /* (columns) */
};

static struct backward find_backward(const struct state_tile *tile, double *scratch) {
    const struct linear *l = tile->l;
    const struct linear_gradients *g = &l->gradients;
    struct backward b = {
        .s = *tile, .tile = tile->column / l->columns, .tile_columns = tile->columns};
    const size_t size = l->d * g->columns;
    for (int i = 0; i < LINEAR_INPUTS; i++) {
        b.rows[i] = linear_gradient_rows(tile->plan, (enum linear_input)i);
    }
    b.checkpoints = scratch;
    b.states = b.checkpoints + g->checkpoints * size;
    b.grad = b.states + (g->interval + 1) * size;
    b.keys = b.grad + size;
    b.gates = b.keys + g->interval * l->d;
    b.left = b.gates + g->interval * l->d;
    b.u = b.left + g->interval * g->columns;
    b.q = b.u + g->interval * g->columns;
    b.x = b.q + l->d;
    b.y = b.x + l->d;
    b.out = b.y + l->d;
    b.grad_u = b.out + g->columns;
    b.unused = b.grad_u + g->columns;
    return b;
}

/* Returns the numbers of a state in these columns. */
static size_t size_of(const struct backward *b) {
    return b->s.l->d * b->s.columns;
}

/* ---------------------------------------------------------------------------- partial gradients */

/* Returns the partial gradient that owner h has at position i, or NULL if the gradient is not
 * wanted. */
static double *partial_of(const struct backward *b, enum linear_input input, size_t h, size_t i) {
    const struct state_tile *s = &b->s;
    const struct gradient_rows *rows = &b->rows[input];
    const size_t place =
        rows->per_sequence ? s->sequence->item : item_of(s) * s->plan->n + s->sequence->first + i;
    return s->l->gradients.partials[input] == SIZE_MAX
               ? NULL
               : partial_of_row(s, input, rows, rows->tiles == 1 ? 0 : b->tile, place, h);
}

/* Adds numbers to a partial gradient of a position, which the first columns of the tile begin. */
static void add_partial(const struct backward *b, double *partial, const double *from,
                        size_t count) {
    if (partial != NULL && b->adds) {
        b->s.kernels->axpy_f64(partial, from, count, 1);
    } else if (partial != NULL) {
        memcpy(partial, from, count * sizeof *from);
    }
}

/* Adds numbers to a partial gradient of decay or beta, which may be one of the whole sequence. */
static void add_gate_partials(const struct backward *b, enum linear_input input, size_t i,
                              const double *from) {
    const struct gradient_rows *rows = &b->rows[input];
    double *partial = partial_of(b, input, b->s.state, i);
    if (partial != NULL && rows->per_sequence) {
        b->s.kernels->axpy_f64(partial, from, rows->width, 1);
    } else {
        add_partial(b, partial, from, rows->width);
    }
}

/* The last segment of a sequence begins with partial gradients of the sequence that are 0. */
static void begin_partials(const struct backward *b) {
    for (enum linear_input input = LINEAR_DECAY; input <= LINEAR_BETA; input++) {
        double *partial = b->rows[input].per_sequence ? partial_of(b, input, b->s.state, 0) : NULL;
        if (partial != NULL) {
            memset(partial, 0, b->rows[input].width * sizeof *partial);
        }
    }
}

/* ------------------------------------------------------------------------- the states and gates */

/* Reads the state before the first position of the segment. */
static void read_start(const struct backward *b, double *to) {
    const struct state_tile *s = &b->s;
    struct state_tile tile = *s;
    tile.column -= b->offset;
    for (size_t c = 0; c < s->l->d; c++) {
        if (s->first == 0) {
            read_past(s, c, to + c * s->columns);
        } else {
            memcpy(to + c * s->columns,
                   kept_state(&tile, s->first) + c * b->tile_columns + b->offset,
                   s->columns * sizeof *to);
        }
    }
}

/* Returns row c of the gradient of the state in the workspace. */
static double *kept_gradient(const struct backward *b, size_t c) {
    const struct state_tile *s = &b->s;
    return partial_of_state(s, s->sequence->item, s->state, c) + s->column;
}

/* Reads the gradient of the state after the last position of the segment. */
static void read_gradient(const struct backward *b) {
    const struct state_tile *s = &b->s;
    const struct linear *l = s->l;
    const size_t state = (s->sequence->item * l->states + s->state) * l->d;
    for (size_t c = 0; c < l->d; c++) {
        double *row = b->grad + c * s->columns;
        if (s->end < s->sequence->rows) {
            memcpy(row, kept_gradient(b, c), s->columns * sizeof *row);
        } else if (!plan_has(s->plan, INPUT_GRAD_STATE)) {
            memset(row, 0, s->columns * sizeof *row);
        } else {
            const size_t at = (state + c) * l->d_v + s->column;
            read_doubles(s, at_number(s->plan, s->bindings->inputs[INPUT_GRAD_STATE], at),
                         s->columns, 1, row);
        }
    }
}

/* Computes the state after position i, which is number x of its interval. */
static void step_forward(const struct backward *b, size_t i, size_t x, const double *from,
                         double *to) {
    const struct state_tile *s = &b->s;
    const struct linear *l = s->l;
    const struct head *head = &s->plan->head[s->state * l->group];
    const size_t d = l->d, columns = s->columns;
    double *key = b->keys + x * d, *left = b->left + x * columns, *u = b->u + x * columns;
    const void *k = row_of(s, INPUT_K, head->k, i);
    const double *gates = tile_gates(s, i, b->gates + x * d);
    read_doubles(s, k, d, norm_of(s, k), key);
    read_doubles(s, row_of(s, INPUT_V, head->v + s->column, i), columns, 1, left);
    if (l->corrects) {
        s->kernels->spread_f64(b->x, key, d, -1, false);
        if (gates != NULL) {
            s->kernels->decay_f64(b->x, b->x, gates, d);
        }
        s->kernels->mix_f64(left, b->x, from, columns, d, columns);
    }
    s->kernels->spread_f64(u, left, columns, l->corrects ? beta_of(s, i) : 1, false);
    s->kernels->step_f64(to, columns, from, columns, d, columns, gates, key, u, key, b->unused);
}

/* ------------------------------------------------------------------------------------ gradients */

/* Adds what the outputs of a position give: q D^T to the gradient of the state, and the partial
 * gradients of Q. Makes grad_u. */
static void read_outputs(const struct backward *b, size_t i, const double *key,
                         const double *state) {
    const struct state_tile *s = &b->s;
    const struct linear *l = s->l;
    const attn_plan *p = s->plan;
    const size_t d = l->d, columns = s->columns;
    if (!plan_has(p, INPUT_GRAD_OUTPUT)) {
        memset(b->grad_u, 0, columns * sizeof *b->grad_u);
        s->kernels->mix_f64(b->grad_u, key, b->grad, columns, d, columns);
        memset(b->x, 0, d * sizeof *b->x);
    }
    for (size_t h = s->state * l->group; h < (s->state + 1) * l->group; h++) {
        double *partial = partial_of(b, LINEAR_Q, h, i);
        if (plan_has(p, INPUT_GRAD_OUTPUT)) {
            const void *q = row_of(s, INPUT_Q, p->head[h].q, i);
            read_doubles(s, q, d, norm_of(s, q), b->q);
            read_doubles(s, row_of_output(s, s->bindings->inputs[INPUT_GRAD_OUTPUT], h, i), columns,
                         p->head[h].scale, b->out);
            s->kernels->step_f64(b->grad, columns, b->grad, columns, d, columns, NULL, b->q, b->out,
                                 key, b->grad_u);
            s->kernels->double_dots_f64(b->x, b->out, state, columns, d, columns);
        }
        add_partial(b, partial, b->x, d);
    }
}

/* Makes grad_v of grad_u, and adds the partial gradient of beta. Takes from `grad_k` and from the
 * gradient of the state what the correction gives. `before` is the state before the position. */
static void correct_gradients(const struct backward *b, size_t i, size_t x, const double *before,
                              double *grad_k) {
    const struct state_tile *s = &b->s;
    const size_t d = s->l->d, columns = s->columns;
    const double *key = b->keys + x * d, *gates = decays_of(s->l) == 0 ? NULL : b->gates + x * d;
    double grad_beta;
    s->kernels->double_dots_f64(&grad_beta, b->grad_u, b->left + x * columns, columns, 1, columns);
    add_gate_partials(b, LINEAR_BETA, i, &grad_beta);
    s->kernels->spread_f64(b->grad_u, b->grad_u, columns, beta_of(s, i), false);
    s->kernels->double_dots_f64(b->y, b->grad_u, before, columns, d, columns);
    s->kernels->spread_f64(b->q, key, d, -1, false);
    if (gates != NULL) {
        s->kernels->decay_f64(b->y, b->y, gates, d);
        s->kernels->decay_f64(b->q, b->q, gates, d);
    }
    s->kernels->axpy_f64(grad_k, b->y, d, -1);
    s->kernels->step_f64(b->grad, columns, b->grad, columns, d, columns, gates, b->q, b->grad_u,
                         key, b->unused);
}

/* Adds the partial gradients of the decays. The gradient of the state is that before the position
 * already. */
static void add_decay_partials(const struct backward *b, size_t i, const double *before) {
    const struct state_tile *s = &b->s;
    const size_t d = s->l->d, columns = s->columns;
    double sum = 0;
    for (size_t c = 0; c < d; c++) {
        s->kernels->double_dots_f64(b->y + c, b->grad + c * columns, before + c * columns, columns,
                                    1, columns);
        sum += b->y[c];
    }
    add_gate_partials(b, LINEAR_DECAY, i, s->l->by_column ? b->y : &sum);
}

/* Goes back through position i, which is number x of its interval. */
static void step_backward(const struct backward *b, size_t i, size_t x) {
    const struct state_tile *s = &b->s;
    const struct linear *l = s->l;
    const size_t d = l->d, columns = s->columns;
    const double *before = b->states + x * size_of(b), *after = before + size_of(b);
    const double *key = b->keys + x * d;
    double *grad_v = partial_of(b, LINEAR_V, s->state, i);
    read_outputs(b, i, key, after);
    s->kernels->double_dots_f64(b->x, b->u + x * columns, b->grad, columns, d, columns);
    if (l->corrects) {
        correct_gradients(b, i, x, before, b->x);
    } else if (decays_of(l) > 0) {
        s->kernels->mul_f64(b->grad, columns, d, columns, b->gates + x * d);
    }
    add_partial(b, partial_of(b, LINEAR_K, s->state, i), b->x, d);
    if (grad_v != NULL) {
        memcpy(grad_v + s->column, b->grad_u, columns * sizeof *grad_v);
    }
    if (l->gradients.partials[LINEAR_DECAY] != SIZE_MAX && decays_of(l) > 0) {
        add_decay_partials(b, i, before);
    }
}

/* Computes the gradients of some columns of a tile. */
static void run_columns(const struct backward *b) {
    const struct state_tile *s = &b->s;
    const struct linear_gradients *g = &s->l->gradients;
    const size_t size = size_of(b), rows = s->end - s->first,
                 intervals = ceil_div(rows, g->interval);
    if (!b->adds && s->end == s->sequence->rows) {
        begin_partials(b);
    }
    read_gradient(b);
    read_start(b, b->checkpoints);
    for (size_t i = 0; i + g->interval < intervals * g->interval; i++) {
        const size_t next = i / g->interval + 1;
        double *start = b->checkpoints + next * size;
        const double *from = i % g->interval == 0 ? start - size : start;
        step_forward(b, s->first + i, 0, from, start);
    }
    for (size_t interval = intervals; interval-- > 0;) {
        const size_t first = interval * g->interval, some = size_min(g->interval, rows - first);
        memcpy(b->states, b->checkpoints + interval * size, size * sizeof *b->states);
        for (size_t x = 0; x < some; x++) {
            step_forward(b, s->first + first + x, x, b->states + x * size,
                         b->states + (x + 1) * size);
        }
        for (size_t x = some; x-- > 0;) {
            step_backward(b, s->first + first + x, x);
        }
    }
    for (size_t c = 0; c < s->l->d; c++) {
        memcpy(kept_gradient(b, c), b->grad + c * s->columns, s->columns * sizeof *b->grad);
    }
}

void backward_run(const struct state_tile *tile, double *scratch) {
    struct backward b = find_backward(tile, scratch);
    for (size_t column = 0; column < tile->columns; column += b.s.columns) {
        b.offset = column;
        b.adds = column > 0;
        b.s.column = tile->column + column;
        b.s.columns = size_min(tile->l->gradients.columns, tile->columns - column);
        run_columns(&b);
    }
}
