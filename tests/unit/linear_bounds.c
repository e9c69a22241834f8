/* linear_bounds.c - see linear_bounds.h. */
#include "linear_bounds.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns the gates of a head, with a row for each position. The caller frees them. */
static double *spread_rows(const struct linear_call *c, const struct linear_matrix *m, size_t line,
                           size_t h) {
    if (m->x == NULL) {
        return NULL;
    }
    double *rows = allocate(c->line_rows[line] * m->columns, sizeof *rows);
    for (size_t i = 0; i < c->line_rows[line]; i++) {
        memcpy(rows + i * m->columns,
               linear_number(m, linear_has_sequences(c) ? 0 : line, h, c->line_first[line] + i),
               m->columns * sizeof *rows);
    }
    return rows;
}

/* Returns the call of head h of a line. The caller frees its decay and its beta. */
static struct reference_linear call_of_linear(const struct linear_call *c, size_t line, size_t h) {
    const size_t s = h / (c->H / c->H_s), b = linear_has_sequences(c) ? 0 : line,
                 first = c->line_first[line];
    double *decay = spread_rows(c, &c->decay, line, s), *beta = spread_rows(c, &c->beta, line, s);
    return (struct reference_linear){
        .n = c->line_rows[line],
        .d = c->d,
        .d_v = c->d_v,
        .q = linear_number(&c->q, b, h / (c->H / c->q.heads), first),
        .k = linear_number(&c->k, b, h / (c->H / c->k.heads), first),
        .v = linear_number(&c->v, b, h / (c->H / c->v.heads), first),
        .decay = decay,
        .decays = decay == NULL ? 0 : c->decay.columns,
        .beta = beta,
        .past = c->past.x == NULL ? NULL : linear_number(&c->past, line, s, 0),
        .scale = c->scales[h],
        .normalize = c->call.normalize_qk,
        .epsilon = c->options.norm_epsilon != 0 ? c->options.norm_epsilon : 1e-6,
        .keep_states = (c->options.results & ATTN_WANT(STATES)) != 0,
        .weigh = (c->options.results & ATTN_WANT(WEIGHTS)) != 0};
}

static void free_reference_call(struct reference_linear *call) {
    free((double *)(uintptr_t)call->decay);
    free((double *)(uintptr_t)call->beta);
}

/* Returns the reference's results of head h of a line. */
static struct reference_linear_results reference_of_linear(const struct linear_call *c, size_t line,
                                                           size_t h) {
    struct reference_linear call = call_of_linear(c, line, h);
    const struct reference_linear_results r = reference_linear(&call);
    free_reference_call(&call);
    return r;
}

/* A comparison of one head of one line. */
struct comparison {
    const struct linear_call *c;
    const struct results *r;
    struct linear_errors *errors;
    size_t line, h, s;
    const struct reference_linear_results *want;
    double growth; /* how many times larger an error may be than otherwise */
};

static double largest_or_nan(const double *x, size_t count) {
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = !(fabs(x[i]) <= largest) ? fabs(x[i]) : largest;
    }
    return largest;
}

/* Compares numbers [at, at + count) of a result, which may be missing. */
static void compare_part(const struct comparison *k, attn_result which, size_t at,
                         const double *want, size_t count, double largest) {
    const double *is = k->r->of[which];
    /* Each term of a sum of denormal numbers is rounded. */
    const double denormal = 64 * (k->c->dtype == ATTN_FLOAT32 ? 0x1p-149 : 0x1p-1074);
    for (size_t i = 0; is != NULL && i < count; i++) {
        const double away = fabs(is[at + i] - want[i]);
        const double error = away <= denormal ? 0 : away / largest / k->growth;
        if (!(error <= k->errors->of[which])) { /* true for NaN, too */
            k->errors->of[which] = isnan(error) ? INFINITY : error;
        }
    }
}

static void expect_zeros(const struct comparison *k, attn_result which, size_t at, size_t count) {
    const double *is = k->r->of[which];
    size_t others = 0;
    for (size_t i = 0; is != NULL && i < count; i++) {
        others += !(is[at + i] == 0);
    }
    cr_expect_eq(others, 0, "%s: %zu of %zu numbers of %s are not 0", describe_linear(k->c), others,
                 count, attn_result_name(which));
}

/* Returns the index of position i of a head among all rows of the call. */
static size_t place_of_row(const struct comparison *k, size_t heads, size_t h, size_t i,
                           bool packed) {
    const struct linear_call *c = k->c;
    const size_t b = linear_has_sequences(c) ? 0 : k->line, row = c->line_first[k->line] + i;
    return packed ? (b * c->n + row) * heads + h : (b * heads + h) * c->n + row;
}

/* Compares one row of each result that has rows. */
static void compare_row(const struct comparison *k, size_t i, double largest[ATTN_RESULT_COUNT]) {
    const struct linear_call *c = k->c;
    const size_t rows = c->line_rows[k->line], state = c->d * c->d_v, gates = c->decay.columns;
    const struct {
        attn_result which;
        size_t place, count;
        const double *want;
    } parts[] = {
        {ATTN_RESULT_OUTPUT, place_of_row(k, c->H, k->h, i, linear_is_packed(c)), c->d_v,
         k->want->output},
        {ATTN_RESULT_WEIGHTS, place_of_row(k, c->H, k->h, i, false), rows, k->want->weights},
        {ATTN_RESULT_STATES, place_of_row(k, c->H_s, k->s, i, false), state, k->want->states},
        {ATTN_RESULT_DECAYS, place_of_row(k, c->H_s, k->s, i, linear_is_packed(c)), gates,
         k->want->gates}};
    for (size_t p = 0; p < 4; p++) {
        const bool is_weights = parts[p].which == ATTN_RESULT_WEIGHTS;
        const size_t at = parts[p].place * (is_weights ? c->n : parts[p].count);
        if (i < rows) {
            const double *want = parts[p].want + i * parts[p].count;
            compare_part(k, parts[p].which, at, want, parts[p].count,
                         parts[p].which == ATTN_RESULT_DECAYS ? 1 : largest[parts[p].which]);
        }
        if (is_weights) {
            const size_t seen = i < rows ? i + 1 : 0;
            expect_zeros(k, parts[p].which, at + seen, c->n - seen);
        } else if (i >= rows) {
            expect_zeros(k, parts[p].which, at, parts[p].count);
        }
    }
}

/* Compares all results of a head. An error is relative to the largest number of its result. The
 * error of the last state is relative to what the state was before, because a delta rule may cancel
 * it. The numbers of a float32 call may be computed in double, but a float64 number whose terms
 * cancel cannot be more exact than its terms. Returns the largest number of the wanted results. */
static double compare_head(const struct comparison *k) {
    const struct linear_call *c = k->c;
    const size_t n = c->line_rows[k->line], state = c->d * c->d_v;
    double largest[ATTN_RESULT_COUNT] = {0}, most = 0;
    largest[ATTN_RESULT_OUTPUT] = largest_or_nan(k->want->output, n * c->d_v);
    largest[ATTN_RESULT_PRESENT_STATE] = largest_or_nan(k->want->state, state);
    largest[ATTN_RESULT_WEIGHTS] =
        k->want->weights == NULL ? 0 : largest_or_nan(k->want->weights, n * n);
    largest[ATTN_RESULT_STATES] =
        k->want->states == NULL ? 0 : largest_or_nan(k->want->states, n * state);
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        const bool wanted = (c->options.results >> r & 1) != 0 ||
                            (r == ATTN_RESULT_OUTPUT && c->options.results == 0);
        most = wanted && !(largest[r] <= most) ? largest[r] : most;
    }
    largest[ATTN_RESULT_PRESENT_STATE] = k->want->size;
    if (c->dtype == ATTN_FLOAT64) {
        largest[ATTN_RESULT_OUTPUT] = k->want->terms;
        largest[ATTN_RESULT_WEIGHTS] = fmax(largest[ATTN_RESULT_WEIGHTS], k->want->pairs);
    }
    for (size_t i = 0; i < (linear_has_sequences(c) ? n : c->n) && isfinite(most); i++) {
        compare_row(k, i, largest);
    }
    if (isfinite(most)) {
        compare_part(k, ATTN_RESULT_PRESENT_STATE, (k->line * c->H_s + k->s) * state,
                     k->want->state, state, largest[ATTN_RESULT_PRESENT_STATE]);
    }
    return most;
}

/* ----------------------------------------------------------------------------------- gradients */

static const attn_result gradients[] = {ATTN_RESULT_GRAD_Q,    ATTN_RESULT_GRAD_K,
                                        ATTN_RESULT_GRAD_V,    ATTN_RESULT_GRAD_DECAY,
                                        ATTN_RESULT_GRAD_BETA, ATTN_RESULT_GRAD_PAST_STATE};

/* The sums of the gradients by each input, and the largest sum of the absolute values of all terms
 * of a number. */
struct gradient_sums {
    struct linear_matrix of[REFERENCE_INPUTS];
    double terms[REFERENCE_INPUTS];
};

static struct gradient_sums begin_sums(const struct linear_call *c) {
    const struct linear_matrix *inputs[] = {&c->q, &c->k, &c->v, &c->decay, &c->beta, &c->past};
    struct gradient_sums sums = {0};
    for (int i = 0; i < REFERENCE_INPUTS; i++) {
        sums.of[i] = *inputs[i];
        sums.of[i].x =
            inputs[i]->x == NULL ? NULL : allocate(linear_count(inputs[i]), sizeof(double));
    }
    return sums;
}

/* Adds the gradients of head h of a line. The gradient by the last state goes to the first of its
 * heads. */
static void add_gradients(const struct linear_call *c, size_t line, size_t h,
                          struct gradient_sums *sums) {
    const size_t group = c->H / c->H_s, s = h / group, b = linear_has_sequences(c) ? 0 : line;
    struct reference_linear call = call_of_linear(c, line, h);
    double *output = spread_rows(c, &c->grad_output, line, h);
    const double *state = c->grad_state.x == NULL || h % group != 0
                              ? NULL
                              : linear_number(&c->grad_state, line, s, 0);
    struct reference_linear_gradients g = reference_linear_gradients(&call, output, state);
    for (int i = 0; i < REFERENCE_INPUTS; i++) {
        struct linear_matrix *m = &sums->of[i];
        if (m->x == NULL) {
            continue;
        }
        const size_t owner = i == REFERENCE_Q ? h : s, all = i == REFERENCE_Q ? c->H : c->H_s,
                     rows = i == REFERENCE_PAST ? c->d : c->line_rows[line];
        const size_t head = owner / (all / m->heads), item = i == REFERENCE_PAST ? line : b;
        for (size_t r = 0; r < rows; r++) {
            double *to =
                linear_number(m, item, head, i == REFERENCE_PAST ? r : c->line_first[line] + r);
            for (size_t e = 0; e < m->columns; e++) {
                to[e] += g.of[i][r * m->columns + e];
            }
        }
        sums->terms[i] = !(g.terms[i] <= sums->terms[i]) ? g.terms[i] : sums->terms[i];
    }
    reference_linear_gradients_free(&g);
    free(output);
    free_reference_call(&call);
}

/* Returns how many numbers of the heads and lines of a call have one number of an input. */
static double sharers(const struct linear_call *c, const struct linear_matrix *m, int input) {
    const double heads = (double)(input == REFERENCE_Q ? c->H : c->H_s) / (double)m->heads;
    const double items = m->items == 1 ? (double)c->line_count : 1;
    return heads * items * (m->rows == 1 && input != REFERENCE_PAST ? (double)c->n : 1);
}

/* Compares the gradients. Returns their largest number, before it is rounded. */
static double compare_gradients(const struct linear_call *c, const struct results *r,
                                struct linear_errors *errors, double *within, double growth) {
    struct gradient_sums sums = begin_sums(c);
    double most = 0;
    for (size_t line = 0; line < c->line_count; line++) {
        for (size_t h = 0; h < c->H; h++) {
            add_gradients(c, line, h, &sums);
        }
    }
    for (int i = 0; i < REFERENCE_INPUTS; i++) {
        const struct linear_matrix *m = &sums.of[i];
        const bool wanted = (c->options.results >> gradients[i] & 1) != 0;
        const double largest = !wanted ? 0 : largest_or_nan(m->x, linear_count(m));
        const bool packed = linear_is_packed(c) && i != REFERENCE_PAST;
        const struct comparison k = {.c = c, .r = r, .errors = errors, .growth = growth};
        most = !(largest <= most) ? largest : most;
        *within = !(sums.terms[i] <= *within) ? sums.terms[i] : *within;
        for (size_t x = 0; isfinite(largest) && wanted && x < linear_count(m); x += m->columns) {
            const size_t row = x / m->columns % m->rows, h = x / m->columns / m->rows % m->heads,
                         b = x / m->columns / m->rows / m->heads;
            compare_part(&k, gradients[i], linear_place(m, b, h, row, packed), m->x + x, m->columns,
                         sums.terms[i] * sharers(c, m, i));
        }
        free(sums.of[i].x);
    }
    return most;
}

/* Returns how many times the errors of a head may be larger than those of a stable rule. Float32
 * calls of such rules are computed in double. A float64 state that grows multiplies its errors,
 * and with a beta of 2 all errors stay. The recurrence in double has these errors, too. */
static double growth_of(const struct linear_call *c, size_t line, double largest) {
    if (c->dtype == ATTN_FLOAT32 || c->beta.x == NULL) {
        return 1;
    }
    return largest > 1e6 ? 1000 : 1 + (double)c->line_rows[line] / 500;
}

bool compare_linear(const struct linear_call *c, const struct results *r,
                    struct linear_errors *errors) {
    const bool narrow = c->dtype == ATTN_FLOAT32;
    const double limit = narrow ? (double)FLT_MAX : DBL_MAX, safe = narrow ? 1e30 : 1e290;
    double result = 0, within = 0, growth_of_all = 1;
    for (size_t line = 0; line < c->line_count; line++) {
        for (size_t h = 0; h < c->H; h++) {
            struct reference_linear_results want = reference_of_linear(c, line, h);
            const double growth = growth_of(c, line, want.largest);
            const struct comparison k = {c, r, errors, line, h, h / (c->H / c->H_s), &want, growth};
            const double most = compare_head(&k);
            growth_of_all = fmax(growth, growth_of_all);
            result = !(most <= result) ? most : result;
            within = !(want.largest <= within) ? want.largest : within;
            reference_linear_free(&want);
        }
    }
    if (c->upstream.output != NULL || c->upstream.state != NULL) {
        const double most = compare_gradients(c, r, errors, &within, growth_of_all);
        result = !(most <= result) ? most : result;
    }
    if (!(result <= limit * (1 + 1e-6))) {
        cr_expect_eq(r->status, ATTN_NOT_FINITE, "%s: the result %g has no error",
                     describe_linear(c), result);
    } else if (within <= safe && result <= safe) {
        cr_expect_eq(r->status, ATTN_OK, "%s: %s", describe_linear(c), r->error.message);
    }
    return r->status == ATTN_OK;
}
