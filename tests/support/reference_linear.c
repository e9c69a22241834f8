/* reference_linear.c - see reference_linear.h. */
#include "support/reference_linear.h"

#include <math.h>
#include <stdlib.h>

static void *zeros(size_t count, size_t size) {
    void *block = calloc(count + 1, size);
    if (block == NULL) {
        abort();
    }
    return block;
}

/* Returns the rows of Q or K as they are multiplied. The caller frees them. */
static long double *multiplied_rows(const struct reference_linear *c, const double *x) {
    long double *rows = zeros(c->n * c->d, sizeof *rows);
    for (size_t i = 0; i < c->n; i++) {
        long double squares = 0;
        for (size_t e = 0; e < c->d; e++) {
            squares += (long double)x[i * c->d + e] * x[i * c->d + e];
        }
        const long double length = c->normalize ? sqrtl(squares + c->epsilon) : 1;
        for (size_t e = 0; e < c->d; e++) {
            rows[i * c->d + e] = x[i * c->d + e] / length;
        }
    }
    return rows;
}

/* Returns the decay of a row of the state at position i. */
static long double decay_at(const struct reference_linear *c, size_t i, size_t row) {
    return c->decays == 0 ? 0 : c->decay[i * c->decays + (c->decays == 1 ? 0 : row)];
}

static void note_largest(struct reference_linear_results *out, long double x) {
    const double size = fabs((double)x);
    out->largest = size > out->largest || isnan(size) ? size : out->largest;
}

/* Changes the state at position i. */
static void change_state(const struct reference_linear *c, struct reference_linear_results *out,
                         size_t i, const long double *k, long double *state) {
    long double most = 0;
    for (size_t r = 0; r < c->d; r++) {
        const long double gate = expl(decay_at(c, i, r));
        most = fmaxl(most, gate);
        for (size_t e = 0; e < c->d_v; e++) {
            state[r * c->d_v + e] *= gate;
        }
    }
    out->size *= (double)most;
    for (size_t e = 0; e < c->d_v; e++) {
        long double u = c->v[i * c->d_v + e];
        if (c->beta != NULL) {
            for (size_t r = 0; r < c->d; r++) {
                u -= state[r * c->d_v + e] * k[r];
            }
            u *= c->beta[i];
        }
        note_largest(out, u);
        for (size_t r = 0; r < c->d; r++) {
            state[r * c->d_v + e] += k[r] * u;
            note_largest(out, state[r * c->d_v + e]);
            out->size = fmax(out->size, fabs((double)state[r * c->d_v + e]));
        }
    }
}

/* Computes the outputs and the states. */
static void run_positions(const struct reference_linear *c, struct reference_linear_results *out,
                          const long double *q, const long double *k) {
    const size_t size = c->d * c->d_v;
    long double *state = zeros(size, sizeof *state);
    for (size_t x = 0; x < size && c->past != NULL; x++) {
        state[x] = c->past[x];
        out->size = fmax(out->size, fabs(c->past[x]));
    }
    for (size_t i = 0; i < c->n; i++) {
        change_state(c, out, i, k + i * c->d, state);
        for (size_t e = 0; e < c->d_v; e++) {
            long double sum = 0, terms = 0;
            for (size_t r = 0; r < c->d; r++) {
                sum += state[r * c->d_v + e] * q[i * c->d + r];
                terms += fabsl(state[r * c->d_v + e] * q[i * c->d + r]);
            }
            out->output[i * c->d_v + e] = (double)(c->scale * sum);
            out->terms = fmax(out->terms, fabs((double)(c->scale * terms)));
        }
        for (size_t x = 0; x < size && out->states != NULL; x++) {
            out->states[i * size + x] = (double)state[x];
        }
    }
    for (size_t x = 0; x < size; x++) {
        out->state[x] = (double)state[x];
    }
    free(state);
}

/* Computes sum_c x_ic k_jc exp(G_ic - G_jc) for j <= i, where G is the running sum of decays.
 * Returns the largest sum of the absolute values of these terms. */
static double multiply_pairs(const struct reference_linear *c, const long double *x,
                             const long double *k, long double *pairs) {
    long double *between = zeros(c->d, sizeof *between); /* G_i - G_j */
    double largest = 0;
    for (size_t j = 0; j < c->n; j++) {
        for (size_t r = 0; r < c->d; r++) {
            between[r] = 0;
        }
        for (size_t i = j; i < c->n; i++) {
            long double gate = 1, sum = 0, terms = 0;
            for (size_t r = 0; r < c->d; r++) {
                between[r] += i > j ? decay_at(c, i, r) : 0;
                gate = r == 0 || c->decays > 1 ? expl(between[r]) : gate;
                sum += x[i * c->d + r] * k[j * c->d + r] * gate;
                terms += fabsl(x[i * c->d + r] * k[j * c->d + r] * gate);
            }
            largest = fmax(largest, (double)terms);
            pairs[i * c->n + j] = sum;
        }
    }
    free(between);
    return largest;
}

/* Replaces each row a of A by a (I + L)^-1 diag(beta), where L_ij = beta_i pairs_ij for j < i. */
static void correct_weights(const struct reference_linear *c, const long double *pairs,
                            long double *a) {
    for (size_t i = 0; i < c->n; i++) {
        long double *row = a + i * c->n;
        for (size_t j = i + 1; j-- > 0;) {
            for (size_t later = j + 1; later <= i; later++) {
                row[j] -= row[later] * c->beta[later] * pairs[later * c->n + j];
            }
        }
        for (size_t j = 0; j <= i; j++) {
            row[j] *= c->beta[j];
        }
    }
}

static void weigh(const struct reference_linear *c, struct reference_linear_results *out,
                  const long double *q, const long double *k) {
    long double *a = zeros(c->n * c->n, sizeof *a), *pairs = zeros(c->n * c->n, sizeof *pairs);
    out->pairs = fabs(c->scale) * multiply_pairs(c, q, k, a);
    if (c->beta != NULL) {
        multiply_pairs(c, k, k, pairs);
        correct_weights(c, pairs, a);
    }
    for (size_t x = 0; x < c->n * c->n; x++) {
        out->weights[x] = (double)(c->scale * a[x]);
    }
    free(a);
    free(pairs);
}

struct reference_linear_results reference_linear(const struct reference_linear *call) {
    const size_t n = call->n, size = call->d * call->d_v;
    struct reference_linear_results out = {
        .output = zeros(n * call->d_v, sizeof *out.output),
        .state = zeros(size, sizeof *out.state),
        .states = call->keep_states ? zeros(n * size, sizeof *out.states) : NULL,
        .weights = call->weigh ? zeros(n * n, sizeof *out.weights) : NULL,
        .gates = zeros(n * call->decays, sizeof *out.gates)};
    long double *q = multiplied_rows(call, call->q), *k = multiplied_rows(call, call->k);
    run_positions(call, &out, q, k);
    if (call->weigh) {
        weigh(call, &out, q, k);
    }
    for (size_t x = 0; x < n * call->decays; x++) {
        out.gates[x] = (double)expl(call->decay[x]);
    }
    free(q);
    free(k);
    return out;
}

void reference_linear_free(struct reference_linear_results *results) {
    free(results->output);
    free(results->state);
    free(results->states);
    free(results->weights);
    free(results->gates);
    *results = (struct reference_linear_results){0};
}

/* ------------------------------------------------------------------------------------ gradients */

/* A position: the state before it and after it, its rows and their gradients. */
struct position {
    const struct reference_linear *c;
    struct reference_linear_gradients *to;
    size_t i;
    const long double *before, *after, *q, *k;
    const double *output; /* the gradient by its output, or NULL */
    long double *grad;    /* by the state after it, and in the end by the state before it */
    long double *u, *left, *grad_u;
    /* Gradients by the rows as they are multiplied, and the sums of the sizes of their terms. */
    long double *grad_q, *grad_k, *terms_q, *terms_k;
    long double *error; /* of each number of `grad`, see note_cancelled() */
};

/* Where terms of a gradient by the state cancel, what is left cannot be more exact than they are.
 * That error passes through the gates and corrections of all positions before. */
static void note_cancelled(const struct position *p, long double terms, long double left,
                           long double by) {
    enum {
        OFTEN = 16 /* times as large as what is left; smaller ones are in the bounds */
    };
    const long double stays = p->c->d == 1 ? fabsl(by) : fmaxl(1, fabsl(by));
    *p->error = stays * *p->error + (terms > OFTEN * left ? terms : 0);
}

static void note_terms(struct reference_linear_gradients *to, int input, long double terms) {
    to->terms[input] = fmax(to->terms[input], (double)terms);
}

/* Makes `left`, v or what the correction leaves of it, and u. */
static void make_u(const struct position *p) {
    const struct reference_linear *c = p->c;
    for (size_t e = 0; e < c->d_v; e++) {
        p->left[e] = c->v[p->i * c->d_v + e];
        for (size_t r = 0; r < c->d && c->beta != NULL; r++) {
            p->left[e] -= expl(decay_at(c, p->i, r)) * p->before[r * c->d_v + e] * p->k[r];
        }
        p->u[e] = c->beta != NULL ? c->beta[p->i] * p->left[e] : p->left[e];
    }
}

/* output = scale S^T q */
static void back_through_output(const struct position *p) {
    const struct reference_linear *c = p->c;
    for (size_t r = 0; r < c->d; r++) {
        long double sum = 0, terms = 0;
        for (size_t e = 0; e < c->d_v && p->output != NULL; e++) {
            const long double by = c->scale * (long double)p->output[e];
            sum += p->after[r * c->d_v + e] * by;
            terms += fabsl(p->after[r * c->d_v + e] * by);
            p->grad[r * c->d_v + e] += p->q[r] * by;
        }
        p->grad_q[r] = sum;
        p->terms_q[r] = terms;
    }
}

/* S = S + k u^T and u = v, or u = beta (v - S^T k) */
static void back_through_update(const struct position *p) {
    const struct reference_linear *c = p->c;
    const long double beta = c->beta != NULL ? c->beta[p->i] : 1;
    long double by_beta = 0, beta_terms = 0;
    for (size_t e = 0; e < c->d_v; e++) {
        long double sum = 0, terms = 0;
        for (size_t r = 0; r < c->d; r++) {
            sum += p->grad[r * c->d_v + e] * p->k[r];
            terms += fabsl(p->grad[r * c->d_v + e] * p->k[r]);
        }
        p->grad_u[e] = sum;
        p->to->of[REFERENCE_V][p->i * c->d_v + e] = (double)(beta * sum);
        note_terms(p->to, REFERENCE_V, fabsl(beta) * terms);
        by_beta += sum * p->left[e];
        beta_terms += terms * fabsl(p->left[e]);
    }
    p->to->of[REFERENCE_BETA][p->i] = (double)by_beta;
    note_terms(p->to, REFERENCE_BETA, beta_terms);
    long double squares = 0, largest = 0, left = 0;
    for (size_t r = 0; r < c->d; r++) {
        const long double gate = expl(decay_at(c, p->i, r));
        long double sum = 0, terms = 0;
        squares += p->k[r] * p->k[r];
        for (size_t e = 0; e < c->d_v; e++) {
            const size_t x = r * c->d_v + e;
            const long double own = p->grad[x] * p->u[e];
            const long double corrected =
                c->beta == NULL ? 0 : gate * p->before[x] * beta * p->grad_u[e];
            sum += own - corrected;
            terms += fabsl(own) + fabsl(corrected);
            const long double taken = c->beta == NULL ? 0 : p->k[r] * beta * p->grad_u[e];
            largest = fmaxl(largest, fabsl(p->grad[x]) + fabsl(taken));
            p->grad[x] -= taken;
            left = fmaxl(left, fabsl(p->grad[x]));
        }
        p->grad_k[r] = sum;
        p->terms_k[r] = terms;
    }
    note_cancelled(p, largest, left, c->beta == NULL ? 1 : 1 - beta * squares);
}

/* S = a S */
static void back_through_gates(const struct position *p) {
    const struct reference_linear *c = p->c;
    long double all = 0, all_terms = 0, largest_gate = 0;
    for (size_t r = 0; r < c->d; r++) {
        const long double gate = expl(decay_at(c, p->i, r));
        long double sum = 0, terms = 0;
        largest_gate = fmaxl(largest_gate, gate);
        for (size_t e = 0; e < c->d_v; e++) {
            const size_t x = r * c->d_v + e;
            p->grad[x] *= gate;
            sum += p->grad[x] * p->before[x];
            terms += (fabsl(p->grad[x]) + gate * *p->error) * fabsl(p->before[x]);
        }
        all += sum;
        all_terms += terms;
        if (c->decays > 1) {
            p->to->of[REFERENCE_DECAY][p->i * c->decays + r] = (double)sum;
            note_terms(p->to, REFERENCE_DECAY, terms);
        }
    }
    if (c->decays == 1) {
        p->to->of[REFERENCE_DECAY][p->i] = (double)all;
        note_terms(p->to, REFERENCE_DECAY, all_terms);
    }
    *p->error *= largest_gate;
}

/* y = x / sqrt(x x + epsilon), or x, for the row of Q or K at the position */
static void back_through_norm(const struct position *p, int input) {
    const struct reference_linear *c = p->c;
    const bool query = input == REFERENCE_Q;
    const double *x = (query ? c->q : c->k) + p->i * c->d;
    const long double *grad = query ? p->grad_q : p->grad_k,
                      *terms = query ? p->terms_q : p->terms_k;
    double *to = p->to->of[input] + p->i * c->d;
    long double squares = 0, product = 0, product_terms = 0;
    for (size_t e = 0; e < c->d && c->normalize; e++) {
        squares += (long double)x[e] * x[e];
        product += x[e] * grad[e];
        product_terms += fabs(x[e]) * terms[e];
    }
    const long double length = c->normalize ? sqrtl(squares + c->epsilon) : 1,
                      cube = length * length * length;
    for (size_t e = 0; e < c->d; e++) {
        to[e] = (double)(grad[e] / length - x[e] * product / cube);
        note_terms(p->to, input, terms[e] / length + fabs(x[e]) * product_terms / cube);
    }
}

/* Returns the states before the first position and after each one. The caller frees them. */
static long double *all_states(const struct reference_linear *c, const long double *k) {
    const size_t size = c->d * c->d_v;
    struct reference_linear_results unused = {0};
    long double *states = zeros((c->n + 1) * size, sizeof *states);
    for (size_t x = 0; x < size && c->past != NULL; x++) {
        states[x] = c->past[x];
    }
    for (size_t i = 0; i < c->n; i++) {
        long double *state = states + i * size;
        for (size_t x = 0; x < size; x++) {
            state[size + x] = state[x];
        }
        change_state(c, &unused, i, k + i * c->d, state + size);
    }
    return states;
}

struct reference_linear_gradients reference_linear_gradients(const struct reference_linear *call,
                                                             const double *output,
                                                             const double *state) {
    const size_t n = call->n, d = call->d, d_v = call->d_v, size = d * d_v;
    const size_t counts[] = {n * d, n * d, n * d_v, n * call->decays, n, size};
    struct reference_linear_gradients to = {0};
    for (int i = 0; i < REFERENCE_INPUTS; i++) {
        to.of[i] = zeros(counts[i], sizeof *to.of[i]);
    }
    long double *q = multiplied_rows(call, call->q), *k = multiplied_rows(call, call->k),
                *states = all_states(call, k), *grad = zeros(size, sizeof *grad),
                *rows = zeros(3 * d_v + 4 * d, sizeof *rows), error = 0;
    for (size_t x = 0; x < size && state != NULL; x++) {
        grad[x] = state[x];
    }
    for (size_t i = n; i-- > 0;) {
        const struct position p = {.c = call,
                                   .to = &to,
                                   .i = i,
                                   .before = states + i * size,
                                   .after = states + (i + 1) * size,
                                   .q = q + i * d,
                                   .k = k + i * d,
                                   .output = output == NULL ? NULL : output + i * d_v,
                                   .grad = grad,
                                   .u = rows,
                                   .left = rows + d_v,
                                   .grad_u = rows + 2 * d_v,
                                   .grad_q = rows + 3 * d_v,
                                   .grad_k = rows + 3 * d_v + d,
                                   .terms_q = rows + 3 * d_v + 2 * d,
                                   .terms_k = rows + 3 * d_v + 3 * d,
                                   .error = &error};
        make_u(&p);
        back_through_output(&p);
        back_through_update(&p);
        back_through_gates(&p);
        back_through_norm(&p, REFERENCE_Q);
        back_through_norm(&p, REFERENCE_K);
    }
    for (size_t x = 0; x < size; x++) {
        to.of[REFERENCE_PAST][x] = (double)grad[x];
        note_terms(&to, REFERENCE_PAST, fabsl(grad[x]) + error);
    }
    free(q);
    free(k);
    free(states);
    free(grad);
    free(rows);
    return to;
}

void reference_linear_gradients_free(struct reference_linear_gradients *gradients) {
    for (int i = 0; i < REFERENCE_INPUTS; i++) {
        free(gradients->of[i]);
    }
    *gradients = (struct reference_linear_gradients){0};
}
