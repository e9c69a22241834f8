/*
 * recurrence.c computes a state of linear attention position by position, in double: few positions,
 * states that are results, and calls that are to be exact.
 */
#include "recurrent/recurrence.h"

#include "base/status.h"
#include "kernels/kernels.h"

/* A state: its rows are of the dtype of the plan, or double in the scratch. */
struct state_rows {
    void *data;
    size_t ld;
    bool is_float;
};

/* A tile, and its places in the scratch. */
struct recurrence {
    const struct state_tile *s;
    double *state;         /* (d, columns) */
    double *q, *k, *gates; /* (d) */
    double *v, *u;         /* (columns) */
};

static struct recurrence find_recurrence(const struct state_tile *s, void *scratch) {
    struct recurrence at = {.s = s, .state = scratch};
    at.q = at.state + s->l->d * s->l->columns;
    at.k = at.q + s->l->d;
    at.gates = at.k + s->l->d;
    at.v = at.gates + s->l->d;
    at.u = at.v + s->l->columns;
    return at;
}

/* Reads the state before the first position into the scratch. */
static void begin_state(const struct recurrence *at) {
    const struct state_tile *s = at->s;
    const size_t d = s->l->d, columns = s->columns;
    if (s->first > 0) {
        memcpy(at->state, kept_state(s, s->first), d * columns * sizeof(double));
    }
    for (size_t c = 0; c < d && s->first == 0; c++) {
        read_past(s, c, at->state + c * columns);
    }
}

/* Keeps the state after the last position, or writes it to a result. */
static attn_status end_state(const struct recurrence *at) {
    const struct state_tile *s = at->s;
    const size_t d = s->l->d, columns = s->columns;
    if (s->end < s->sequence->rows) {
        memcpy(kept_state(s, s->end), at->state, d * columns * sizeof(double));
        return ATTN_OK;
    }
    for (size_t c = 0; c < d && plan_wants(s->plan, ATTN_WANT(PRESENT_STATE)); c++) {
        if (!tile_round(s, at->state + c * columns, columns,
                        tile_state(s, ATTN_RESULT_PRESENT_STATE, 1, 0, c))) {
            return tile_not_finite(s, "present_state", s->state, s->end == 0 ? 0 : s->end - 1);
        }
    }
    return ATTN_OK;
}

/* Adds the product of a row of d numbers and a state. */
static void read_state(const struct recurrence *at, const double *row,
                       const struct state_rows *state, double *sum) {
    const struct state_tile *s = at->s;
    if (state->is_float) {
        s->kernels->mix_f32(sum, row, state->data, state->ld, s->l->d, s->columns);
    } else {
        s->kernels->mix_f64(sum, row, state->data, state->ld, s->l->d, s->columns);
    }
}

/* Makes u of a position of the delta rules, in the place of v. */
static void correct_step(const struct recurrence *at, const struct state_rows *from,
                         const double *gates, size_t i) {
    const struct state_tile *s = at->s;
    const double beta = beta_of(s, i);
    const double *k = at->k;
    if (gates != NULL) {
        s->kernels->decay_f64(at->q, gates, k, s->l->d);
        k = at->q;
    }
    memset(at->u, 0, s->columns * sizeof(double));
    read_state(at, k, from, at->u);
    for (size_t c = 0; c < s->columns; c++) {
        at->v[c] = beta * (at->v[c] - at->u[c]);
    }
}

static void read_query(const struct recurrence *at, size_t h, size_t i) {
    const struct state_tile *s = at->s;
    const struct head *head = &s->plan->head[h];
    const void *q = row_of(s, INPUT_Q, head->q, i);
    read_doubles(s, q, s->l->d, norm_of(s, q) * head->scale, at->q);
}

/* Makes `u` the output of one more head. A state of floats is rounded, and so the output is made of
 * the state before it, and of k v. */
static void read_once_more(const struct recurrence *at, const struct state_rows *from,
                           const struct state_rows *to, const double *gates) {
    const struct state_tile *s = at->s;
    const struct attn_kernels *kernels = s->kernels;
    double product = 0;
    memset(at->u, 0, s->columns * sizeof(double));
    if (to->is_float) {
        kernels->double_dots_f64(&product, at->q, at->k, s->l->d, 1, s->l->d);
        kernels->axpy_f64(at->u, at->v, s->columns, product);
        if (gates != NULL) {
            kernels->decay_f64(at->q, at->q, gates, s->l->d);
        }
    }
    read_state(at, at->q, to->is_float ? from : to, at->u);
}

/* Writes the outputs of position i. The output of the first head is in `u`. */
static attn_status write_outputs_of(const struct recurrence *at, const struct state_rows *from,
                                    const struct state_rows *to, const double *gates, size_t i) {
    const struct state_tile *s = at->s;
    const size_t first = s->state * s->l->group;
    for (size_t h = first; h < first + s->l->group; h++) {
        if (h > first) {
            read_query(at, h, i);
            read_once_more(at, from, to, gates);
        }
        if (!tile_round(s, at->u, s->columns, tile_output(s, h, i))) {
            return tile_not_finite(s, "output", h, i);
        }
    }
    return ATTN_OK;
}

/* Computes position i. `from` is the state before it, and `to` the one after it. */
static attn_status run_step(const struct recurrence *at, const struct state_rows *from,
                            const struct state_rows *to, size_t i) {
    const struct state_tile *s = at->s;
    const struct linear *l = s->l;
    const attn_plan *p = s->plan;
    const struct head *head = &p->head[s->state * l->group];
    const void *k = row_of(s, INPUT_K, head->k, i);
    const double *gates = tile_gates(s, i, at->gates);
    read_doubles(s, k, l->d, norm_of(s, k), at->k);
    read_doubles(s, row_of(s, INPUT_V, head->v + s->column, i), s->columns, 1, at->v);
    if (l->corrects) {
        correct_step(at, from, gates, i);
    }
    read_query(at, s->state * l->group, i);
    if (to->is_float) {
        s->kernels->step_f32(to->data, to->ld, from->data, from->ld, l->d, s->columns, gates, at->k,
                             at->v, at->q, at->u);
    } else {
        s->kernels->step_f64(to->data, to->ld, from->data, from->ld, l->d, s->columns, gates, at->k,
                             at->v, at->q, at->u);
    }
    return plan_wants(p, ATTN_WANT(OUTPUT)) ? write_outputs_of(at, from, to, gates, i) : ATTN_OK;
}

static attn_status keep_state(const struct recurrence *at, size_t i) {
    const struct state_tile *s = at->s;
    for (size_t c = 0; c < s->l->d; c++) {
        if (!tile_round(s, at->state + c * s->columns, s->columns,
                        tile_state(s, ATTN_RESULT_STATES, s->plan->n, i, c))) {
            return tile_not_finite(s, "states", s->state, i);
        }
    }
    return ATTN_OK;
}

/* Is a number of a float32 state infinite? Its output need not be: it is made before the state is
 * rounded. No gate is above 1, so only additions of half the last place of the largest float, which
 * is 2^103, can make one. No addition is above the product of the lengths of k and u. */
static bool rounds_to_infinity(const struct recurrence *at, const float *state) {
    const struct state_tile *s = at->s;
    double k, u;
    s->kernels->double_dots_f64(&k, at->k, at->k, s->l->d, 1, s->l->d);
    s->kernels->double_dots_f64(&u, at->v, at->v, s->columns, 1, s->columns);
    for (size_t c = 0; c < s->l->d && !(k * u < 0x1p206); c++) {
        for (size_t j = 0; j < s->columns; j++) {
            if (isinf(state[c * s->l->d_v + j])) {
                return true;
            }
        }
    }
    return false;
}

/* Computes a sequence of one position, whose past state is given and whose present state is wanted,
 * where these lie: both are read and written once. */
static attn_status run_one(const struct recurrence *at) {
    const struct state_tile *s = at->s;
    const bool is_float = s->plan->dtype == ATTN_FLOAT32;
    void *past = (char *)(uintptr_t)past_row(s, 0), /* the step only reads it */
        *present = tile_state(s, ATTN_RESULT_PRESENT_STATE, 1, 0, 0);
    const struct state_rows from = {past, s->l->d_v, is_float}, to = {present, s->l->d_v, is_float};
    ATTN_TRY(run_step(at, &from, &to, 0));
    return is_float && rounds_to_infinity(at, present)
               ? tile_not_finite(s, "present_state", s->state, 0)
               : ATTN_OK;
}

attn_status recurrence_run(const struct state_tile *s, void *scratch) {
    const struct recurrence at = find_recurrence(s, scratch);
    const uint64_t both = ATTN_WANT(OUTPUT) | ATTN_WANT(PRESENT_STATE);
    if (s->sequence->rows == 1 && plan_has(s->plan, INPUT_PAST_STATE) &&
        s->plan->results.wanted == both) {
        return run_one(&at);
    }
    const struct state_rows state = {at.state, s->columns, false};
    begin_state(&at);
    for (size_t i = s->first; i < s->end; i++) {
        ATTN_TRY(run_step(&at, &state, &state, i));
        if (plan_wants(s->plan, ATTN_WANT(STATES))) {
            ATTN_TRY(keep_state(&at, i));
        }
    }
    return end_state(&at);
}
