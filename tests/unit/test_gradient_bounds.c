/*
 * test_gradient_bounds.c - compares gradients with plain loops in long double that follow the
 * formulas of lib/README.md. That page states the bounds: an error is relative to the largest sum
 * of the absolute values of all terms of a number of the gradient.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attention.h"
#include "attention_laws.h"
#include "support/rng.h"

/* The numbers of a gradient, and for each of them the sum of the absolute values of its terms. */
struct sums {
    long double *of;
    double *terms;
};

/* The gradients of results, and those by the inputs. */
struct gradients_of_call {
    double *output, *lse, *weights;
    struct sums by[ATTN_RESULT_COUNT];
};

/* One query with its keys. */
struct query {
    const struct call *c;
    size_t b, h, i;
    long double *x, *slope, *p, *dp; /* scaled scores, the derivative of softcap, weights and dP */
    double *terms;                   /* those of dP, then those of dS */
};

static inline void add(const struct sums *to, size_t at, long double x, double terms) {
    if (to->of != NULL) {
        to->of[at] += x;
        to->terms[at] += terms;
    }
}

static double away(const struct query *t, size_t j) {
    return fabs((double)position_of(t->c, t->b, t->i) - (double)j);
}

/* Makes the weights of a query by breaking a stick. */
static void break_query(const struct query *t) {
    long double left = 1;
    for (size_t j = t->c->m; j-- > 0;) {
        const long double share = t->x[j] == -INFINITY ? 0 : 1 / (1 + expl(-t->x[j]));
        t->p[j] = share * left;
        left *= t->x[j] == -INFINITY ? 1 : 1 / (1 + expl(t->x[j]));
    }
}

/* Replaces dP by dS of such weights. */
static void differentiate_stick(const struct query *t) {
    long double before = 0;
    double terms = 0;
    for (size_t j = 0; j < t->c->m; j++) {
        const long double share = t->x[j] == -INFINITY ? 0 : 1 / (1 + expl(-t->x[j]));
        const long double got = t->p[j] == 0 ? 0 : t->p[j] * t->dp[j];
        const double size = (double)t->p[j] * t->terms[j];
        t->dp[j] = t->x[j] == -INFINITY ? 0 : got / (1 + expl(t->x[j])) - share * before;
        t->terms[j] = t->x[j] == -INFINITY ? 0 : size + (double)share * terms;
        before += got;
        terms += size;
    }
}

/* Makes the weights of a query. Returns the share of the sink, which is 0 without a sink. */
static long double weigh(const struct query *t) {
    const struct call *c = t->c;
    const attn_options *o = &c->options;
    const size_t row = row_of(c, t->b, t->h, t->i), key = key_row(c, t->b, t->h);
    long double max = c->sinks == NULL ? -INFINITY : c->sinks[t->h], sum = 0;
    for (size_t j = 0; j < c->m; j++) {
        long double x = 0;
        if (!may_attend(c, t->b, t->h, t->i, j)) {
            t->x[j] = -INFINITY;
            continue;
        }
        for (size_t e = 0; e < c->d; e++) {
            x += (long double)c->q[row * c->d + e] * c->k[(key + j) * c->d + e];
        }
        x *= o->scale;
        const long double capped = o->softcap > 0 ? tanhl(x / o->softcap) : 0;
        x = o->softcap > 0 ? o->softcap * capped : x;
        x += c->bias == NULL ? 0 : c->bias[row * c->m + j];
        x += decay_between(c, t->b, t->h, t->i, j);
        x -= c->slopes == NULL ? 0 : c->slopes[t->h] * away(t, j);
        t->slope[j] = 1 - capped * capped;
        t->x[j] = x;
        max = fmaxl(max, t->x[j]);
    }
    for (size_t j = 0; j < c->m; j++) {
        t->p[j] = t->x[j] == -INFINITY                    ? 0
                  : o->normalization == ATTN_UNNORMALIZED ? t->x[j]
                  : o->normalization == ATTN_SIGMOID ? 1 / (1 + expl(-t->x[j] - o->sigmoid_bias))
                                                     : expl(t->x[j] - max);
        sum += t->p[j];
    }
    if (o->normalization == ATTN_STICK_BREAKING) {
        break_query(t);
    }
    if (o->normalization != ATTN_SOFTMAX || max == -INFINITY) {
        return 0;
    }
    const long double sink = c->sinks == NULL ? 0 : expl(c->sinks[t->h] - max);
    for (size_t j = 0; j < c->m; j++) {
        t->p[j] /= sum + sink;
    }
    return sink / (sum + sink);
}

/* Replaces dP by dS, the gradients of the masked scores. */
static void differentiate(const struct query *t, const struct gradients_of_call *g,
                          struct sums *sink, long double share) {
    const struct call *c = t->c;
    const size_t row = row_of(c, t->b, t->h, t->i);
    const long double lse = g->lse == NULL ? 0 : g->lse[row];
    long double delta = 0;
    double terms = fabs((double)lse);
    for (size_t j = 0; j < c->m; j++) {
        delta += t->p[j] * t->dp[j];
        terms += fabs((double)t->p[j]) * t->terms[j];
    }
    if (c->options.normalization == ATTN_STICK_BREAKING) {
        differentiate_stick(t);
        return;
    }
    for (size_t j = 0; j < c->m; j++) {
        const long double p = t->p[j];
        if (t->x[j] == -INFINITY) {
            t->dp[j] = 0;
            t->terms[j] = 0;
        } else if (c->options.normalization == ATTN_SIGMOID) {
            t->dp[j] *= p * (1 - p);
            t->terms[j] *= (double)p;
        } else if (c->options.normalization == ATTN_SOFTMAX) {
            t->dp[j] = p * (t->dp[j] - delta + lse);
            t->terms[j] = (double)p * (t->terms[j] + terms);
        }
    }
    add(sink, t->h, -share * (delta - lse), (double)share * terms);
}

/* Adds what one query gives to all gradients. */
static void add_query(const struct query *t, struct gradients_of_call *g) {
    const struct call *c = t->c;
    const size_t row = row_of(c, t->b, t->h, t->i), key = key_row(c, t->b, t->h);
    const double *out = g->output + row * c->d_v;
    const long double share = weigh(t);
    const int64_t position = position_of(c, t->b, t->i);
    for (size_t j = 0; j < c->m; j++) {
        t->dp[j] = g->weights == NULL ? 0 : g->weights[row * c->m + j];
        t->terms[j] = fabs((double)t->dp[j]);
        for (size_t e = 0; e < c->d_v; e++) {
            const double v = c->v[(key + j) * c->d_v + e];
            t->dp[j] += (long double)out[e] * v;
            t->terms[j] += fabs(out[e] * v);
        }
    }
    differentiate(t, g, &g->by[ATTN_RESULT_GRAD_SINK], share);
    for (size_t j = 0; j < c->m; j++) {
        if (t->p[j] == 0 && t->dp[j] == 0 && t->terms[j] == 0) {
            continue; /* nothing is added for a key that the query does not attend to */
        }
        const bool past = j < c->past;
        const size_t rows = past ? c->past : c->m - c->past;
        size_t at = key / c->m * rows + (past ? j : j - c->past);
        at = c->shared ? at % (c->kv_heads * rows) : at;
        const long double ds = t->dp[j], scaled = c->options.scale * ds * t->slope[j];
        const double terms = t->terms[j], size = fabs(c->options.scale) * terms;
        add(&g->by[ATTN_RESULT_GRAD_BIAS], row * c->m + j, ds, terms);
        add(&g->by[ATTN_RESULT_GRAD_ALIBI], t->h, -ds * away(t, j), terms * away(t, j));
        for (size_t s = j + 1; c->decay != NULL && s < c->m && (int64_t)s <= position; s++) {
            add(&g->by[ATTN_RESULT_GRAD_DECAY], row / c->n * c->m + s, ds, terms);
        }
        for (size_t e = 0; e < c->d; e++) {
            const double q = c->q[row * c->d + e], k = c->k[(key + j) * c->d + e];
            add(&g->by[ATTN_RESULT_GRAD_Q], row * c->d + e, scaled * k, size * fabs(k));
            add(&g->by[past ? ATTN_RESULT_GRAD_PAST_K : ATTN_RESULT_GRAD_K], at * c->d + e,
                scaled * q, size * fabs(q));
        }
        for (size_t e = 0; e < c->d_v; e++) {
            add(&g->by[past ? ATTN_RESULT_GRAD_PAST_V : ATTN_RESULT_GRAD_V], at * c->d_v + e,
                t->p[j] * out[e], fabs((double)t->p[j] * out[e]));
        }
    }
}

static double *draw_inputs_of(struct rng *rng, size_t count) {
    double *x = allocate(count, sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = (double)(float)rng_normal(rng);
    }
    return x;
}

/* Computes the gradients that `r` has. */
static void compute_formulas(const struct call *c, const struct results *r,
                             struct gradients_of_call *g) {
    struct query t = {.c = c};
    long double *numbers = allocate(4 * c->m, sizeof *numbers);
    t.x = numbers;
    t.slope = t.x + c->m;
    t.p = t.slope + c->m;
    t.dp = t.p + c->m;
    t.terms = allocate(c->m, sizeof *t.terms);
    for (int i = ATTN_RESULT_GRAD_Q; i < ATTN_RESULT_COUNT; i++) {
        if (r->of[i] != NULL) {
            g->by[i].of = allocate(r->count[i], sizeof(long double));
            g->by[i].terms = allocate(r->count[i], sizeof(double));
        }
    }
    for (size_t row = 0; row < c->batch * c->heads * c->n; row++) {
        t.b = row / c->n / c->heads;
        t.h = row / c->n % c->heads;
        t.i = row % c->n;
        add_query(&t, g);
    }
    free(numbers);
    free(t.terms);
}

/* Returns the largest error of a gradient, and finds its largest number. */
static double error_of(const struct sums *want, const double *is, size_t count, double *largest) {
    double worst = 0;
    *largest = 0;
    for (size_t i = 0; i < count; i++) {
        const double error = (double)fabsl(is[i] - want->of[i]);
        worst = error > worst || isnan(error) ? error : worst;
        *largest = fmax(*largest, (double)fabsl(want->of[i]));
    }
    return isnan(worst) ? INFINITY : worst;
}

/* Compares the gradients of a call with the formulas, and then, with `widen`, those of the same
 * call in float64. Frees the call. */
static void check_bounds(struct call c, uint64_t seed, bool lse, bool weights, bool widen,
                         double worst[2][ATTN_RESULT_COUNT]) {
    const size_t rows = c.batch * c.heads * c.n;
    struct rng rng = {seed};
    struct gradients_of_call g = {.output = draw_inputs_of(&rng, rows * c.d_v)};
    g.lse = c.options.normalization == ATTN_SOFTMAX && lse ? draw_inputs_of(&rng, rows) : NULL;
    g.weights = weights ? draw_inputs_of(&rng, rows * c.m) : NULL;
    for (int dtype = (int)c.dtype; dtype <= (widen ? ATTN_FLOAT64 : (int)c.dtype); dtype++) {
        attn_tensor t[3] = {{0}};
        c.dtype = (attn_dtype)dtype;
        t[0] = rows_of_heads(&c, g.output, c.heads, c.n, 0, c.n, c.d_v);
        if (g.lse != NULL) {
            t[1] = rows_of_heads(&c, g.lse, c.heads, c.n, 0, c.n, 1);
            t[1].rank = 3;
        }
        if (g.weights != NULL) {
            t[2] = rows_of_heads(&c, g.weights, c.heads, c.n, 0, c.n, c.m);
        }
        const attn_upstream up = {.output = &t[0],
                                  .lse = g.lse == NULL ? NULL : &t[1],
                                  .weights = g.weights == NULL ? NULL : &t[2]};
        c.options.upstream = &up;
        struct results r = run_call(&c, gradients_of(&c));
        if (g.by[ATTN_RESULT_GRAD_Q].of == NULL) {
            compute_formulas(&c, &r, &g);
        }
        for (int i = ATTN_RESULT_GRAD_Q; i < ATTN_RESULT_COUNT; i++) {
            if (r.of[i] == NULL) {
                continue;
            }
            const double terms = largest_of(g.by[i].terms, r.count[i]);
            double largest;
            const double error = error_of(&g.by[i], r.of[i], r.count[i], &largest);
            worst[dtype][i] = fmax(worst[dtype][i], error / fmax(terms, 1e-300));
            cr_expect(error <= (dtype == ATTN_FLOAT32 ? 1e-6 : 1e-14) * terms &&
                          (!widen || error <= 4e-6 * largest),
                      "seed %llu, n %zu, m %zu: %s is off by %.2g", (unsigned long long)seed, c.n,
                      c.m, attn_result_name((attn_result)i), error);
        }
        for (int i = 0; i < 3; i++) {
            free((void *)(uintptr_t)t[i].data);
        }
        free_results(&r);
    }
    for (int i = ATTN_RESULT_GRAD_Q; i < ATTN_RESULT_COUNT; i++) {
        free(g.by[i].of);
        free(g.by[i].terms);
    }
    free(g.output);
    free(g.lse);
    free(g.weights);
    free_call(&c);
}

static void print_worst(double worst[2][ATTN_RESULT_COUNT]) {
    for (int i = 2 * ATTN_RESULT_GRAD_Q; i < 2 * ATTN_RESULT_COUNT; i++) {
        if (worst[i % 2][i / 2] > 0) {
            fprintf(stderr, "%s %s: %.2g\n", i % 2 == ATTN_FLOAT32 ? "float32" : "float64",
                    attn_result_name((attn_result)(i / 2)), worst[i % 2][i / 2]);
        }
    }
}

Test(laws, gradients_stay_within_their_bounds, .timeout = 1200) {
    static const unsigned kinds[] = {ALL_KINDS,      SIGMOID | BIAS | WINDOW, SIGMOID | CAUSAL,
                                     NONE | CAUSAL,  NONE | ALIBI | SOFTCAP,  NONE | DECAY,
                                     STICK | CAUSAL, STICK | MASK | SOFTCAP};
    double worst[2][ATTN_RESULT_COUNT] = {{0}};
    for (size_t at = 0; at < COUNT(kinds) * 12; at++) {
        const unsigned kind = kinds[at / 12];
        const size_t size = at % 6;
        check_bounds(draw_law_call(kind, size, at / 6 % 2), kind * 31 + size, size % 2 == 0,
                     size % 3 == 0, false, worst);
    }
    print_worst(worst);
}

/* Sizes at which a call has several tiles, blocks and stripes. */
static const struct long_size {
    size_t heads, n, m, d, d_v;
} long_sizes[] = {{2, 200, 700, 40, 24},
                  {4, 300, 300, 16, 64},
                  {2, 3, 3000, 8, 8},
                  {2, 1500, 40, 8, 20},
                  {2, 130, 530, 300, 8}};

static const unsigned long_kinds[] = {PLAIN,
                                      CAUSAL,
                                      BOTTOM_RIGHT | WINDOW,
                                      ALL,
                                      GROUPED | PAST,
                                      SHARED | BIAS | CAUSAL,
                                      MASK | SINK,
                                      LENGTHS | ALIBI,
                                      SIGMOID | BIAS | WINDOW,
                                      NONE | CAUSAL,
                                      SOFTCAP | PADDING,
                                      DECAY | GROUPED,
                                      STICK | CAUSAL};

Test(laws, gradients_of_long_calls_stay_within_their_bounds, .timeout = 1200) {
    double worst[2][ATTN_RESULT_COUNT] = {{0}};
    for (size_t at = 0; at < COUNT(long_sizes) * COUNT(long_kinds); at++) {
        const struct long_size *s = &long_sizes[at % COUNT(long_sizes)];
        if (!too_slow(2 * s->heads, s->n, s->m, s->d + s->d_v)) {
            check_bounds(draw_call(long_kinds[at / COUNT(long_sizes)], ATTN_FLOAT32, s->heads, s->n,
                                   s->m, s->d, s->d_v),
                         at + 1, true, false, true, worst);
        }
    }
    print_worst(worst);
}

/* A stick that is too long for one task is broken in several phases. Few keys take all of it, and
 * they lie so far apart that each phase has some of them. */
Test(laws, gradients_of_long_sticks_stay_within_their_bounds, .timeout = 1200) {
    enum {
        KEYS = 120000,
        APART = 5000
    };
    double worst[2][ATTN_RESULT_COUNT] = {{0}};
    struct call c = draw_call(STICK | MASK, ATTN_FLOAT32, 2, 2, KEYS, 1, 1);
    for (size_t i = 0; i < c.batch * c.heads * c.n * KEYS; i++) {
        c.mask[i] = i % APART == 0;
    }
    check_bounds(c, 1, false, false, true, worst);
    print_worst(worst);
}
