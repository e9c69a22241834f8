/*
 * band.h - what the ways to compute a state share: steps.c computes positions one by one,
 * chunks.inc computes chunks of them, and backward.c computes the gradients.
 */
#ifndef ATTN_BAND_H
#define ATTN_BAND_H

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "recurrent/schedule_linear.h"

/* A band of a state, and the line whose positions it is computed for. */
struct band {
    const attn_plan *plan;
    const struct bindings *bindings;
    const struct linear *l;
    const struct attn_kernels *kernels;
    attn_error *error;
    const struct line *line;
    size_t state;           /* of the line */
    size_t column, columns; /* of V */
    size_t first, end;      /* positions of the line that are computed now */
};

/* Computes a band position by position. */
attn_status steps_run(const struct band *s, void *scratch);

/* Computes a band in chunks, in float or in double. *hard becomes true if the keys of a chunk are
 * so much alike that errors of the delta rules would add up, or if the numbers between the inputs
 * and the results are too small or too large for the type of the plan. The results of the band are
 * not complete then. */
attn_status chunks_run_f32(const struct band *s, void *scratch, bool *hard);
attn_status chunks_run_f64(const struct band *s, void *scratch, bool *hard);

/* Computes the weights of a block of queries of head h, in double. */
attn_status chunks_weigh_f64(const struct band *s, size_t h, size_t block, void *scratch);

/* Computes the gradients of a band in one segment: adds to its shares, and takes the gradient of
 * its state from the end of the segment to its begin. */
void back_run(const struct band *band, double *scratch);

/* Makes some rows of gradients, which are sums of shares. */
attn_status shares_task(const struct band *s, size_t task, double *scratch);

/* Returns number `index` of an array whose numbers have the dtype of the plan. */
static inline const char *at_number(const attn_plan *plan, const void *data, size_t index) {
    return (const char *)data +
           index * (plan->dtype == ATTN_FLOAT64 ? sizeof(double) : sizeof(float));
}

/* Reads `count` numbers of the dtype of the plan, times `scale`. */
static inline void read_doubles(const struct band *s, const void *from, size_t count, double scale,
                                double *to) {
    if (s->plan->dtype == ATTN_FLOAT32) {
        s->kernels->widen_f32(from, to, count, scale);
    } else {
        s->kernels->widen_f64(from, to, count, scale);
    }
}

/* Returns a row of Q, K or V: position i of the line, in the head that begins at `at`. */
static inline const void *row_of(const struct band *s, int input, size_t at, size_t i) {
    const struct operand *o = &s->plan->in.q + (input - INPUT_Q);
    return at_number(s->plan, s->bindings->inputs[input],
                     s->line->item * o->batch + at + (s->line->first + i) * o->ld);
}

/* Returns 1 / sqrt(the sum of squares) of a float64 row that has a square beyond double. Any
 * epsilon is too small to count beside it. */
double band_long_norm(const double *row, size_t d);

/* Returns 1 / sqrt(the sum of squares of a row of K or Q + epsilon), or 1 if rows stay as they
 * are. */
static inline double norm_of(const struct band *s, const void *row) {
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
    return isfinite(squares) ? 1 / sqrt(squares + s->plan->norm_epsilon) : band_long_norm(row, d);
}

/* Returns a decay or beta of position i of the line, in column 0. */
static inline const void *gate_of(const struct band *s, int input, size_t i) {
    const size_t *stride = input == INPUT_DECAY ? s->l->decay.stride : s->l->beta.stride;
    return at_number(s->plan, s->bindings->inputs[input],
                     s->line->item * stride[0] + s->state * stride[1] +
                         (s->line->first + i) * stride[2]);
}

static inline double beta_of(const struct band *s, size_t i) {
    return number_at(gate_of(s, INPUT_BETA, i), s->plan->dtype, 0);
}

/* Returns how many decays a position has. */
static inline size_t decays_of(const struct linear *l) {
    return !l->decay.given ? 0 : l->by_column ? l->d : 1;
}

/* Returns the batch item of the line in a result: all sequences are in the same one. An input that
 * all lines share has the stride 0 in place of this. */
static inline size_t item_of(const struct band *s) {
    return s->l->sequences ? 0 : s->line->item;
}

/* Returns where the workspace keeps the band of the state after the positions before `end`, the end
 * of a segment. */
static inline double *kept_state(const struct band *s, size_t end) {
    const struct linear *l = s->l;
    const size_t segment = l->gradients.wanted ? end / l->rows - 1 : 0;
    const size_t line = segment * l->longer[1] + (size_t)(s->line - l->lines);
    return (double *)s->bindings->workspace + (line * l->states + s->state) * l->d * l->d_v +
           s->column * l->d;
}

/* Returns a share of a row: that of a band of an owner at `place`, which is the number of a line,
 * or that of a position among those of all batch items. */
static inline double *share_of_row(const struct band *s, enum linear_input input,
                                   const struct gradient_rows *rows, size_t band, size_t place,
                                   size_t owner) {
    const size_t places = rows->of_lines ? rows->lines : s->plan->batch * s->plan->n;
    double *shares = (double *)s->bindings->workspace + s->l->gradients.shares[input];
    return shares + ((band * places + place) * rows->owners + owner) * rows->width;
}

/* Returns row c of the gradient of a state of a line, which is its share of past_state. */
static inline double *share_of_state(const struct band *s, size_t line, size_t state, size_t c) {
    const struct linear *l = s->l;
    return (double *)s->bindings->workspace + l->gradients.states +
           ((line * l->states + state) * l->d + c) * l->d_v;
}

/* Returns row c of a band of the past state, or NULL if it is zeros. */
static inline const void *past_row(const struct band *s, size_t c) {
    const struct linear *l = s->l;
    const void *past = s->bindings->inputs[INPUT_PAST_STATE];
    return past == NULL ? NULL
                        : at_number(s->plan, past,
                                    s->line->item * l->past_item + (s->state * l->d + c) * l->d_v +
                                        s->column);
}

/* Reads row c of a band of the past state. */
static inline void read_past(const struct band *s, size_t c, double *to) {
    if (!plan_has(s->plan, INPUT_PAST_STATE)) {
        memset(to, 0, s->columns * sizeof *to);
    } else {
        read_doubles(s, past_row(s, c), s->columns, 1, to);
    }
}

/* Returns row c of a band of a state in a result whose item has `rows` states of each head. */
static inline void *band_state(const struct band *s, attn_result which, size_t rows, size_t row,
                               size_t c) {
    const struct linear *l = s->l;
    const size_t state = (s->line->item * l->states + s->state) * rows + row;
    const void *data = s->bindings->results[which];
    return (char *)at_number(s->plan, data, (state * l->d + c) * l->d_v + s->column);
}

/* Returns the output, or the gradient by it, of position i of the line in head h, from the first
 * column of the band on. */
static inline const void *row_of_output(const struct band *s, const void *data, size_t h,
                                        size_t i) {
    const attn_plan *p = s->plan;
    return at_number(p, data,
                     item_of(s) * p->out.batch + p->head[h].out + (s->line->first + i) * p->out.ld +
                         s->column);
}

static inline void *band_output(const struct band *s, size_t h, size_t i) {
    const void *data = s->bindings->results[ATTN_RESULT_OUTPUT];
    return (char *)(uintptr_t)row_of_output(s, data, h, i);
}

/* Returns the weights of the query at position i of the line in head h. */
static inline char *band_weights(const struct band *s, size_t h, size_t i) {
    const attn_plan *p = s->plan;
    return (char *)at_number(p, s->bindings->results[ATTN_RESULT_WEIGHTS],
                             ((s->line->item * p->heads + h) * p->n + i) * p->n);
}

/* Reads the gates of a position, one for each row of the state. Returns NULL if there are none. */
const double *band_gates(const struct band *s, size_t i, double *gates);

/* Writes a row of numbers in the dtype of the plan. Returns whether all of them are finite. */
bool band_round(const struct band *s, const double *from, size_t count, void *to);

/* Fails because a number of a result is not finite at a position. */
attn_status band_not_finite(const struct band *s, const char *name, size_t h, size_t i);

#endif
