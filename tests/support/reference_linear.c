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
