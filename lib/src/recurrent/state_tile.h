/*
 * state_tile.h - what the ways to compute a state share: recurrence.c computes positions one by
 * one, chunks.inc computes chunks of them, and backward.c computes the gradients.
 */
#ifndef ATTN_STATE_TILE_H
#define ATTN_STATE_TILE_H

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "recurrent/schedule_linear.h"

/* A tile of a state, and the sequence whose positions it is computed for. */
struct state_tile {
    const attn_plan *plan;
    const struct bindings *bindings;
    const struct linear *l;
    const struct attn_kernels *kernels;
    attn_error *error;
    const struct linear_sequence *sequence;
    size_t state;           /* of the sequence */
    size_t column, columns; /* of V */
    size_t first, end;      /* positions of the sequence that are computed now */
};

/* Returns number `index` of an array whose numbers have the dtype of the plan. */
static inline const char *at_number(const attn_plan *plan, const void *data, size_t index) {
    return (const char *)data +
           index * (plan->dtype == ATTN_FLOAT64 ? sizeof(double) : sizeof(float));
}

/* Reads `count` numbers of the dtype of the plan, times `scale`. */
static inline void read_doubles(const struct state_tile *s, const void *from, size_t count,
                                double scale, double *to) {
    if (s->plan->dtype == ATTN_FLOAT32) {
        s->kernels->widen_f32(from, to, count, scale);
    } else {
        s->kernels->widen_f64(from, to, count, scale);
    }
}

/* Returns a row of Q, K or V: position i of the sequence, in the head that begins at `at`. */
static inline const void *row_of(const struct state_tile *s, int input, size_t at, size_t i) {
    const struct operand *o = &s->plan->in.q + (input - INPUT_Q);
    return at_number(s->plan, s->bindings->inputs[input],
                     s->sequence->item * o->batch + at + (s->sequence->first + i) * o->ld);
}

/* Returns 1 / sqrt(the sum of squares) of a float64 row that has a square beyond double. Any
 * epsilon is too small to count beside it. */
double tile_long_norm(const double *row, size_t d);

/* Returns 1 / sqrt(the sum of squares of a row of K or Q + epsilon), or 1 if rows stay as they
 * are. */
static inline double norm_of(const struct state_tile *s, const void *row) {
    if (!s->l->given.normalize_qk) {
        return 1;
    }
    const size_t d = s->l->d;
    double mean, m2;
    if (s->plan->dtype == ATTN_FLOAT32) {
        s->kernels->moments_f32(row, d, &mean, &m2);
    } else {
        s->kernels->moments_f64(row, d, &mean, &m2);
    }
    const double squares = m2 + (double)d * mean * mean;
    return isfinite(squares) ? 1 / sqrt(squares + s->plan->norm_epsilon) : tile_long_norm(row, d);
}

/* Returns a decay or beta of position i of the sequence, in column 0. */
static inline const void *gate_of(const struct state_tile *s, int input, size_t i) {
    const size_t *stride = input == INPUT_DECAY ? s->l->decay.stride : s->l->beta.stride;
    return at_number(s->plan, s->bindings->inputs[input],
                     s->sequence->item * stride[0] + s->state * stride[1] +
                         (s->sequence->first + i) * stride[2]);
}

static inline double beta_of(const struct state_tile *s, size_t i) {
    return number_at(gate_of(s, INPUT_BETA, i), s->plan->dtype, 0);
}

/* Returns how many decays a position has. */
static inline size_t decays_of(const struct linear *l) {
    return !l->decay.given ? 0 : l->by_column ? l->d : 1;
}

/* Returns the batch item of the sequence in a result: packed sequences are in the same one. An
 * input that all sequences share has the stride 0 in place of this. */
static inline size_t item_of(const struct state_tile *s) {
    return s->l->packed_sequences ? 0 : s->sequence->item;
}

/* Returns where the workspace keeps the tile of the state after the positions before `end`, the end
 * of a segment. */
static inline double *kept_state(const struct state_tile *s, size_t end) {
    const struct linear *l = s->l;
    const size_t segment = l->gradients.wanted ? end / l->rows - 1 : 0;
    const size_t sequence = segment * l->longer[1] + (size_t)(s->sequence - l->sequences);
    return (double *)s->bindings->workspace + (sequence * l->states + s->state) * l->d * l->d_v +
           s->column * l->d;
}

/* Returns a partial gradient of a row: that of a tile of an owner at `place`, which is the number
 * of a sequence, or that of a position among those of all batch items. */
static inline double *partial_of_row(const struct state_tile *s, enum linear_input input,
                                     const struct gradient_rows *rows, size_t tile, size_t place,
                                     size_t owner) {
    const size_t places = rows->per_sequence ? rows->sequences : s->plan->batch * s->plan->n;
    double *partials = (double *)s->bindings->workspace + s->l->gradients.partials[input];
    return partials + ((tile * places + place) * rows->owners + owner) * rows->width;
}

/* Returns row c of the gradient of a state of a sequence, which is its partial gradient of
 * past_state. */
static inline double *partial_of_state(const struct state_tile *s, size_t sequence, size_t state,
                                       size_t c) {
    const struct linear *l = s->l;
    return (double *)s->bindings->workspace + l->gradients.states +
           ((sequence * l->states + state) * l->d + c) * l->d_v;
}

/* Returns row c of a tile of the past state, or NULL if it is zeros. */
static inline const void *past_row(const struct state_tile *s, size_t c) {
    const struct linear *l = s->l;
    const void *past = s->bindings->inputs[INPUT_PAST_STATE];
    return past == NULL ? NULL
                        : at_number(s->plan, past,
                                    s->sequence->item * l->past_item +
                                        (s->state * l->d + c) * l->d_v + s->column);
}

/* Reads row c of a tile of the past state. */
static inline void read_past(const struct state_tile *s, size_t c, double *to) {
    if (!plan_has(s->plan, INPUT_PAST_STATE)) {
        memset(to, 0, s->columns * sizeof *to);
    } else {
        read_doubles(s, past_row(s, c), s->columns, 1, to);
    }
}

/* Returns row c of a tile of a state in a result whose item has `rows` states of each head. */
static inline void *tile_state(const struct state_tile *s, attn_result which, size_t rows,
                               size_t row, size_t c) {
    const struct linear *l = s->l;
    const size_t state = (s->sequence->item * l->states + s->state) * rows + row;
    const void *data = s->bindings->results[which];
    return (char *)at_number(s->plan, data, (state * l->d + c) * l->d_v + s->column);
}

/* Returns the output, or the gradient by it, of position i of the sequence in head h, from the
 * first column of the tile on. */
static inline const void *row_of_output(const struct state_tile *s, const void *data, size_t h,
                                        size_t i) {
    const attn_plan *p = s->plan;
    return at_number(p, data,
                     item_of(s) * p->out.batch + p->head[h].out +
                         (s->sequence->first + i) * p->out.ld + s->column);
}

static inline void *tile_output(const struct state_tile *s, size_t h, size_t i) {
    const void *data = s->bindings->results[ATTN_RESULT_OUTPUT];
    return (char *)(uintptr_t)row_of_output(s, data, h, i);
}

/* Returns the weights of the query at position i of the sequence in head h. */
static inline char *tile_weights(const struct state_tile *s, size_t h, size_t i) {
    const attn_plan *p = s->plan;
    return (char *)at_number(p, s->bindings->results[ATTN_RESULT_WEIGHTS],
                             ((s->sequence->item * p->heads + h) * p->n + i) * p->n);
}

/* Reads the gates of a position, one for each row of the state. Returns NULL if there are none. */
const double *tile_gates(const struct state_tile *s, size_t i, double *gates);

/* Writes a row of numbers in the dtype of the plan. Returns whether all of them are finite. */
bool tile_round(const struct state_tile *s, const double *from, size_t count, void *to);

/* Fails because a number of a result is not finite at a position. */
attn_status tile_not_finite(const struct state_tile *s, const char *name, size_t h, size_t i);

#endif
