/* attention_bounds.c - see attention_bounds.h. */
#include "attention_bounds.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double bound_of(attn_dtype dtype) {
    return dtype == ATTN_FLOAT32 ? 2e-6 : 1e-13;
}

void compare_number(struct worst *worst, const char *what, size_t row, double is, double want,
                    double bound) {
    const double error = is == want ? 0 : fabs(is - want) / fmax(bound, 1e-300);
    if (!(error <= worst->error)) { /* true for NaN, too */
        *worst = (struct worst){isnan(error) ? INFINITY : error, what, row};
    }
}

double largest_of(const double *x, size_t count) {
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        largest = isfinite(x[i]) ? fmax(largest, fabs(x[i])) : largest;
    }
    return largest;
}

/* Returns the size of the terms of which an output row is a sum: max_c sum_j w_j |v_jc|. */
static double terms_of(const struct call *c, size_t row, const double *weights) {
    const size_t h = row / c->n % c->heads, b = row / c->n / c->heads;
    const double *v = c->v + key_row(c, b, h) * c->d_v;
    double sums[256] = {0};
    cr_assert_leq(c->d_v, 256);
    for (size_t j = 0; j < c->m; j++) {
        for (size_t e = 0; weights[j] != 0 && e < c->d_v; e++) {
            sums[e] += fabs(weights[j] * v[j * c->d_v + e]);
        }
    }
    return largest_of(sums, c->d_v);
}

void compare_results(struct worst *worst, const struct call *c, const struct results *a,
                     const struct results *b, double bound) {
    for (size_t row = 0; row < c->batch * c->heads * c->n; row++) {
        const double *w = a->of[ATTN_RESULT_WEIGHTS] + row * c->m;
        const double largest = largest_of(w, c->m), terms = terms_of(c, row, w);
        for (size_t j = 0; j < c->m && b->of[ATTN_RESULT_WEIGHTS] != NULL; j++) {
            compare_number(worst, "weights", row, b->of[ATTN_RESULT_WEIGHTS][row * c->m + j], w[j],
                           bound * largest);
        }
        for (size_t e = row * c->d_v; e < (row + 1) * c->d_v; e++) {
            compare_number(worst, "output", row, b->of[ATTN_RESULT_OUTPUT][e],
                           a->of[ATTN_RESULT_OUTPUT][e], bound * terms);
        }
        const double lse = a->of[ATTN_RESULT_LSE][row];
        compare_number(worst, "lse", row, b->of[ATTN_RESULT_LSE][row], lse,
                       bound * fmax(1, fabs(lse)));
    }
}

bool same_bytes(const struct results *a, const struct results *b) {
    for (int i = 0; i < ATTN_RESULT_COUNT; i++) {
        if (a->of[i] != NULL && b->of[i] != NULL &&
            (a->count[i] != b->count[i] ||
             memcmp(a->of[i], b->of[i], a->count[i] * sizeof *a->of[i]) != 0)) {
            return false;
        }
    }
    return true;
}

struct reference_results reference_of(const struct call *c, size_t b, size_t h) {
    const size_t n = c->n, m = c->m, row = row_of(c, b, h, 0), key = key_row(c, b, h);
    const struct reference_head call = {
        .n = n,
        .m = m,
        .d = c->d,
        .d_v = c->d_v,
        .q = c->q + row * c->d,
        .k = c->k + key * c->d,
        .v = c->v + key * c->d_v,
        .scale = c->options.scale,
        .bias = c->bias == NULL ? NULL : c->bias + row * m,
        .mask = c->mask == NULL ? NULL : c->mask + row * m,
        .slope = c->slopes == NULL ? 0 : c->slopes[h],
        .decay = c->decay == NULL ? NULL : c->decay + row / n * m,
        .first = position_of(c, b, 0),
        .length = length_of(c, b),
        .exists = c->exists == NULL ? NULL : c->exists + b * m,
        .has_sink = c->sinks != NULL,
        .sink = c->sinks == NULL ? 0 : c->sinks[h],
        .options = c->options,
    };
    return reference_compute(&call);
}

/* The bound was stated for d <= 64. The rounding error of a sum of d terms grows with d, and the
 * scale of scores, 1/sqrt(d), makes it smaller. So the error of a scaled score, and of its weight,
 * grows with sqrt(d). */
void compare_to_reference(struct worst *worst, const struct call *c, size_t b, size_t h,
                          const struct reference_results *r, const struct results *is) {
    const size_t m = c->m;
    const double bound = bound_of(c->dtype) * fmax(1, sqrt((double)c->d / 64));
    const double values = largest_of(c->v + key_row(c, b, h) * c->d_v, m * c->d_v);
    for (size_t i = 0; i < c->n; i++) {
        const double scaled = fmax(fabs(c->options.scale) * r->score_scale[i], 1e-3);
        const double masked = fmax(scaled, largest_of(r->masked_scores + i * m, m));
        /* Without softmax the weights are scores, with their errors. */
        const double scores = c->options.normalization == ATTN_UNNORMALIZED ? masked : 0;
        const double output = fmax(r->output_scale[i], scores * values);
        const struct {
            attn_result result;
            const double *want;
            size_t width;
            double scale;
        } rows[] = {
            {ATTN_RESULT_SCORES, r->scores, m, r->score_scale[i]},
            {ATTN_RESULT_SCALED_SCORES, r->scaled_scores, m, scaled},
            {ATTN_RESULT_MASKED_SCORES, r->masked_scores, m, masked},
            {ATTN_RESULT_WEIGHTS, r->weights, m, fmax(largest_of(r->weights + i * m, m), scores)},
            {ATTN_RESULT_OUTPUT, r->output, c->d_v, output},
            {ATTN_RESULT_LSE, r->lse, 1, fmax(1, masked)},
            {ATTN_RESULT_ENTROPY, r->entropy, 1, fmax(1, log((double)m))},
        };
        const size_t row = row_of(c, b, h, i);
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            const double *got = is->of[rows[k].result];
            const size_t width = rows[k].width;
            for (size_t j = 0; got != NULL && j < width; j++) {
                compare_number(worst, attn_result_name(rows[k].result), row, got[row * width + j],
                               rows[k].want[i * width + j], bound * rows[k].scale);
            }
        }
    }
}

void check_ways(const struct call *c, const unsigned *wanted, size_t ways) {
    struct reference_results want[16];
    cr_assert_leq(c->batch * c->heads, 16);
    for (size_t head = 0; head < c->batch * c->heads; head++) {
        want[head] = reference_of(c, head / c->heads, head % c->heads);
    }
    for (size_t way = 0; way < ways; way++) {
        unsigned results = wanted[way];
        if (c->options.normalization != ATTN_SOFTMAX) {
            results =
                (results & ~(unsigned)(ATTN_WANT(LSE) | ATTN_WANT(ENTROPY))) | ATTN_WANT(OUTPUT);
        }
        struct results r = run_call(c, results);
        struct worst worst = {0};
        for (size_t head = 0; head < c->batch * c->heads; head++) {
            compare_to_reference(&worst, c, head / c->heads, head % c->heads, &want[head], &r);
        }
        cr_assert(worst.error <= 1, "way %zu: %s of row %zu is off by %g times its bound", way,
                  worst.what, worst.row, worst.error);
        free_results(&r);
    }
    for (size_t head = 0; head < c->batch * c->heads; head++) {
        free(want[head].scores);
    }
}
