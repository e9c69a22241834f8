/* attention_bounds.c - see attention_bounds.h. */
#include "attention_bounds.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results.h"

double number_bound(attn_dtype dtype) {
    return dtype == ATTN_FLOAT32 ? 1e-6 : 1e-13;
}

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

struct reference_head head_of_call(const struct call *c, size_t b, size_t h) {
    const size_t n = c->n, m = c->m, row = row_of(c, b, h, 0), key = key_row(c, b, h);
    const attn_options *o = &c->options;
    const bool own = c->multihead.per_head;
    const size_t d = own ? c->own_d[h] : c->d;
    return (struct reference_head){
        .n = n,
        .m = m,
        .d = d,
        .d_v = own ? c->own_d_v[h] : c->d_v,
        .extra = c->extra,
        .q = c->q + row * c->d,
        .k = c->k + key * c->d,
        .v = c->v + value_row(c, b, h) * c->d_v,
        .scale = o->scales_count != 0           ? o->scales[h]
                 : (o->flags & ATTN_FLAG_SCALE) ? o->scale
                                                : 1 / sqrt((double)d),
        .bias = c->bias == NULL ? NULL : c->bias + row * m,
        .mask = c->mask == NULL ? NULL : c->mask + row * m,
        .slope = c->slopes == NULL ? 0 : c->slopes[h],
        .decay = c->decay == NULL ? NULL : c->decay + (b * c->heads + h) * m,
        .first = position_of(c, b, 0),
        .length = length_of(c, b),
        .exists = c->exists == NULL ? NULL : c->exists + b * (m - c->extra),
        .has_sink = c->sinks != NULL,
        .sink = c->sinks == NULL ? 0 : c->sinks[h],
        .options = *o,
    };
}

struct reference_results reference_of(const struct call *c, size_t b, size_t h) {
    const struct reference_head call = head_of_call(c, b, h);
    struct reference_results r = reference_compute(&call);
    for (size_t e = 0; c->gate != NULL && e < c->n * call.d_v; e++) {
        const double *gate = &c->gate[(row_of(c, b, h, 0) + e / call.d_v) * c->d_v + e % call.d_v];
        r.output[e] /= 1 + exp(-*gate);
    }
    return r;
}

/* Returns the scale of the scores of query i. A number of a projected Q or K is a rounded sum of
 * terms of about the size of 1, however small it is itself. The product multiplies its rounding
 * error by the other factor. */
static double score_scale(const struct call *c, const struct reference_head *call,
                          const struct reference_results *r, size_t i) {
    double scale = r->score_scale[i];
    for (size_t e = 0; e < call->d && c->form == PROJECTED; e++) {
        double key = 0;
        for (size_t j = 0; j < call->m; j++) {
            key = fmax(key, fabs(call->k[j * call->d + e]));
        }
        scale += key + fabs(call->q[i * call->d + e]);
    }
    return scale;
}

/* Returns how much larger than usual the errors of the weights of query i may be; at least 1. The
 * relative error of a weight is the error of its scaled score, and that grows with |scale| |q| |k|,
 * the size of the sum. lib/README.md states the bound for 64 columns of numbers of about the size
 * of 1 and the default scale, so for a size of 64 / sqrt(64). Projected Q and K may be larger than
 * 1, because they are sums of products of X and weights, and of a bias. */
static double weight_scale(const struct call *c, const struct reference_head *call, size_t i) {
    double query = 0, keys = 0;
    for (size_t e = 0; e < call->d && c->form == PROJECTED; e++) {
        query += call->q[i * call->d + e] * call->q[i * call->d + e];
        for (size_t j = 0; j < call->m; j++) {
            keys += call->k[j * call->d + e] * call->k[j * call->d + e];
        }
    }
    return fmax(1, fabs(call->scale) * sqrt(query * keys / (double)call->m) / 8);
}

/* The rounding error of a sum of d terms grows with d, and the scale of scores, 1/sqrt(d), makes it
 * smaller. So the error of a scaled score, and of its weight, grows with sqrt(d) beyond the columns
 * for which the bound is stated. */
void compare_to_reference(struct worst *worst, const struct call *c, size_t b, size_t h,
                          struct reference_results *r, const struct results *is) {
    const struct reference_head call = head_of_call(c, b, h);
    const size_t m = c->m;
    const bool plain = c->options.normalization == ATTN_UNNORMALIZED;
    const double bound = number_bound(c->dtype) * fmax(1, sqrt((double)call.d / 65));
    /* lib/README.md allows weights twice this error, because they have the errors of scores. */
    const double twice = bound_of(c->dtype) / number_bound(c->dtype);
    const double values = plain ? largest_of(call.v, m * call.d_v) : 0;
    for (size_t i = 0; i < c->n; i++) {
        const double scores = score_scale(c, &call, r, i);
        const double scaled = fmax(fabs(call.scale) * scores, 1e-3);
        const double masked = fmax(scaled, largest_of(r->masked_scores + i * m, m));
        /* Without normalization the weights are scores, with their errors. */
        const double weights = fmax(largest_of(r->weights + i * m, m), plain ? masked : 0);
        r->output_scale[i] = fmax(r->output_scale[i], masked * values);
        const double scales[ATTN_RESULT_COUNT] = {
            [ATTN_RESULT_SCORES] = scores,
            [ATTN_RESULT_SCALED_SCORES] = scaled,
            [ATTN_RESULT_MASKED_SCORES] = masked,
            [ATTN_RESULT_WEIGHTS] = twice * weights * weight_scale(c, &call, i),
            [ATTN_RESULT_OUTPUT] = r->output_scale[i],
            [ATTN_RESULT_LSE] = fmax(1, masked),
        };
        const size_t row = row_of(c, b, h, i);
        for (attn_result of = 0; of < ATTN_RESULT_COUNT; of++) {
            const bool single = result_is(of, RESULT_PER_QUERY);
            const bool here = is->of[of] != NULL && r->of[of] != NULL;
            cr_assert(here || !single || is->of[of] == NULL, "the reference lacks a result");
            const size_t width = single ? 1 : of == ATTN_RESULT_OUTPUT ? call.d_v : m;
            const double scale =
                single && of != ATTN_RESULT_LSE ? fmax(1, log((double)m)) : scales[of];
            for (size_t j = 0; here && j < width; j++) {
                compare_number(worst, attn_result_name(of), row, is->of[of][row * width + j],
                               r->of[of][i * width + j], bound * scale);
            }
        }
    }
}

void check_ways(const struct call *c, const uint64_t *wanted, size_t ways) {
    struct reference_results want[16];
    cr_assert_leq(c->batch * c->heads, 16);
    for (size_t head = 0; head < c->batch * c->heads; head++) {
        want[head] = reference_of(c, head / c->heads, head % c->heads);
    }
    for (size_t way = 0; way < ways; way++) {
        uint64_t results = wanted[way];
        if (c->options.normalization != ATTN_SOFTMAX) {
            results = (results & ~RESULTS_OF(RESULT_SOFTMAX)) | ATTN_WANT(OUTPUT);
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
