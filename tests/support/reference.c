/* reference.c - see reference.h. */
#include "support/reference.h"

#include <math.h>
#include <stdlib.h>

int64_t reference_position(bool at_the_end, size_t past, size_t length, size_t n, size_t i) {
    return at_the_end ? (int64_t)(length + i) - (int64_t)n : (int64_t)(past + i);
}

double reference_bend(const attn_options *o, double x) {
    return o->softcap > 0 ? o->softcap * tanh(x / o->softcap) : x;
}

/* Returns the sum of the decays after key j, up to the position of query i. */
static double decay_between(const struct reference_head *c, size_t i, size_t j) {
    double sum = 0;
    for (size_t t = j + 1; c->decay != NULL && t < c->m && (int64_t)t <= c->first + (int64_t)i;
         t++) {
        sum += c->decay[t];
    }
    return sum;
}

static bool may_attend(const struct reference_head *c, size_t i, size_t j) {
    const int64_t position = c->first + (int64_t)i, key = (int64_t)j;
    const attn_options *o = &c->options;
    const bool windowed = (o->flags & ATTN_FLAG_WINDOW) != 0;
    if (j >= c->m - c->extra) {
        return true;
    }
    return j < c->length && !(o->causal && key > position) &&
           !(windowed && o->window[0] >= 0 && key < position - o->window[0]) &&
           !(windowed && o->window[1] >= 0 && key > position + o->window[1]) &&
           !(c->mask != NULL && c->mask[i * c->m + j] == 0) &&
           !(c->exists != NULL && c->exists[j] == 0) && decay_between(c, i, j) > -INFINITY &&
           !(c->bias != NULL && c->bias[i * c->m + j] == -INFINITY);
}

static void scores_of_query(const struct reference_head *c, const struct reference_results *out,
                            size_t i) {
    out->score_scale[i] = 0;
    for (size_t j = 0; j < c->m; j++) {
        double dot = 0, terms = 0;
        for (size_t e = 0; e < c->d; e++) {
            dot += c->q[i * c->d + e] * c->k[j * c->d + e];
            terms += fabs(c->q[i * c->d + e] * c->k[j * c->d + e]);
        }
        out->score_scale[i] = fmax(out->score_scale[i], terms);
        out->scores[i * c->m + j] = dot;
        const double scaled = reference_bend(&c->options, c->scale * dot);
        out->scaled_scores[i * c->m + j] = scaled;
        double masked = -INFINITY;
        if (may_attend(c, i, j)) {
            masked = scaled + decay_between(c, i, j) +
                     (c->bias != NULL ? c->bias[i * c->m + j] : 0) -
                     c->slope * fabs((double)c->first + (double)i - (double)j);
        }
        out->masked_scores[i * c->m + j] = masked;
    }
}

/* Makes weights of the masked scores x of a query by breaking a stick from the last key on. */
static void break_stick_of_query(const struct reference_head *c, const double *x, double *w) {
    double rest = 0; /* the logarithm of what is left */
    for (size_t j = c->m; j-- > 0;) {
        const bool sees = x[j] > -INFINITY;
        w[j] = sees ? exp(rest - (x[j] < 0 ? log1p(exp(x[j])) - x[j] : log1p(exp(-x[j])))) : 0;
        rest -= !sees ? 0 : x[j] < 0 ? log1p(exp(x[j])) : x[j] + log1p(exp(-x[j]));
    }
}

static void weights_of_query(const struct reference_head *c, const struct reference_results *out,
                             size_t i) {
    const double *x = out->masked_scores + i * c->m;
    double *w = out->weights + i * c->m;
    double max = c->has_sink ? c->sink : -INFINITY, sum = 0;
    for (size_t j = 0; j < c->m; j++) {
        max = fmax(max, x[j]);
    }
    for (size_t j = 0; j < c->m; j++) {
        sum += x[j] == -INFINITY ? 0 : exp(x[j] - max);
    }
    sum += c->has_sink ? exp(c->sink - max) : 0;
    out->of[ATTN_RESULT_LSE][i] = sum == 0 ? -INFINITY : max + log(sum);
    for (size_t j = 0; j < c->m; j++) {
        if (x[j] == -INFINITY) {
            w[j] = 0;
        } else if (c->options.normalization == ATTN_UNNORMALIZED) {
            w[j] = x[j];
        } else if (c->options.normalization == ATTN_SIGMOID) {
            w[j] = 1 / (1 + exp(-(x[j] + c->options.sigmoid_bias)));
        } else {
            w[j] = exp(x[j] - max) / sum;
        }
        out->of[ATTN_RESULT_ENTROPY][i] -= w[j] > 0 ? w[j] * log(w[j]) : 0;
    }
    if (c->options.normalization == ATTN_STICK_BREAKING) {
        break_stick_of_query(c, x, w);
    }
}

static void output_of_query(const struct reference_head *c, const struct reference_results *out,
                            size_t i) {
    out->output_scale[i] = 0;
    for (size_t e = 0; e < c->d_v; e++) {
        double sum = 0, terms = 0;
        for (size_t j = 0; j < c->m; j++) {
            const double w = out->weights[i * c->m + j];
            sum += w == 0 ? 0 : w * c->v[j * c->d_v + e];
            terms += w == 0 ? 0 : fabs(w * c->v[j * c->d_v + e]);
        }
        out->output[i * c->d_v + e] = sum;
        out->output_scale[i] = fmax(out->output_scale[i], terms);
    }
}

struct reference_results reference_compute(const struct reference_head *call) {
    const size_t n = call->n, pairs = n * call->m;
    double *const block = calloc(4 * pairs + n * (call->d_v + 4), sizeof *block);
    double *const output = block + 4 * pairs, *const singles = output + n * call->d_v;
    if (block == NULL) {
        abort();
    }
    const struct reference_results out = {
        .scores = block,
        .scaled_scores = block + pairs,
        .masked_scores = block + 2 * pairs,
        .weights = block + 3 * pairs,
        .output = output,
        .score_scale = singles,
        .output_scale = singles + n,
        .of = {[ATTN_RESULT_SCORES] = block,
               [ATTN_RESULT_SCALED_SCORES] = block + pairs,
               [ATTN_RESULT_MASKED_SCORES] = block + 2 * pairs,
               [ATTN_RESULT_WEIGHTS] = block + 3 * pairs,
               [ATTN_RESULT_OUTPUT] = output,
               [ATTN_RESULT_LSE] = singles + 2 * n,
               [ATTN_RESULT_ENTROPY] = singles + 3 * n},
    };
    for (size_t i = 0; i < n; i++) {
        scores_of_query(call, &out, i);
        weights_of_query(call, &out, i);
        output_of_query(call, &out, i);
    }
    return out;
}
