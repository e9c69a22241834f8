/*
 * test_attention_random.c - compares every result of thousands of random calls, over all options,
 * all forms and both dtypes, with the reference in double. TEST_SEED chooses other calls.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "attention_bounds.h"
#include "random_calls.h"
#include "support/plans.h"
#include "support/reference.h"
#include "support/scale.h"

/* ----------------------------------------------------------------------------------- comparing */

static double got(const attn_plan *plan, attn_result result, size_t part, size_t index) {
    const attn_result_tensor *t = attn_plan_tensor(plan, result, part);
    return number_of(t->data, t->dtype, index);
}

static void compare_rows(struct worst *worst, const attn_plan *plan, attn_result result,
                         size_t part, size_t at, const double *want, size_t count, double scale) {
    if (attn_plan_parts(plan, result) == 0) {
        return;
    }
    /* lib/README.md allows weights twice this error, because they have the errors of scores. */
    scale *= result == ATTN_RESULT_WEIGHTS ? 2 : 1;
    for (size_t i = 0; i < count; i++) {
        compare_number(worst, attn_result_name(result), at + i, got(plan, result, part, at + i),
                       want[i], scale);
    }
}

/* Returns the scale of the scores of query i. A number of a projected Q or K is a rounded sum of
 * terms of about the size of 1, however small it is itself. The product multiplies its rounding
 * error by the other factor. */
static double score_scale(const struct random_call *c, const struct reference_head *call,
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
static double weight_scale(const struct random_call *c, const struct reference_head *call,
                           size_t i) {
    double query = 0, keys = 0;
    for (size_t e = 0; e < call->d && c->form == PROJECTED; e++) {
        query += call->q[i * call->d + e] * call->q[i * call->d + e];
        for (size_t j = 0; j < call->m; j++) {
            keys += call->k[j * call->d + e] * call->k[j * call->d + e];
        }
    }
    return fmax(1, fabs(call->scale) * sqrt(query * keys / (double)call->m) / 8);
}

/* Checks that top_k names no key twice, and that at most i keys rank before the key at place i. */
static void check_top_k_of_row(const struct random_call *c, const attn_plan *plan, size_t row,
                               const double *ranked, double tolerance) {
    const size_t k = c->options.top_k != 0 ? c->options.top_k : 5, kk = k < c->m ? k : c->m;
    unsigned char *seen = calloc(c->m, 1);
    for (size_t i = 0; i < kk; i++) {
        size_t index = (size_t)got(plan, ATTN_RESULT_TOP_K_INDICES, 0, row * kk + i);
        cr_assert(index < c->m && !seen[index], "top_k names key %zu twice", index);
        seen[index] = 1;
        size_t larger = 0;
        for (size_t j = 0; j < c->m; j++) {
            larger += ranked[j] > ranked[index] + tolerance;
        }
        cr_assert_leq(larger, i, "top_k place %zu: %zu keys are larger", i, larger);
    }
    free(seen);
}

static void check_head(struct worst *worst, struct random_call *c, const attn_plan *plan, size_t b,
                       size_t h, double *mean, double *concat, size_t concat_ld, size_t concat_at) {
    const size_t k = h / (c->H / c->own_k.heads), v = h / (c->H / c->own_v.heads);
    const size_t n = c->n, m = c->m;
    const size_t dh = c->multihead.per_head ? h : 0, d = c->d[dh], d_v = c->d_v[dh];
    const attn_options *o = &c->options;
    const size_t row0 = (b * c->H + h) * n;
    unsigned char *mask = NULL;
    if (c->mask_full != NULL) {
        mask = keep_block(c, n * m);
        for (size_t i = 0; i < n * m; i++) {
            mask[i] = c->mask_full[row0 * m + i] != 0;
        }
    }
    struct reference_head call = {
        .n = n,
        .m = m,
        .d = d,
        .d_v = d_v,
        .extra = c->extra,
        .q = c->Q[b][h],
        .k = c->K[b][k],
        .v = c->V[b][v],
        .scale = o->scales_count != 0           ? o->scales[h]
                 : (o->flags & ATTN_FLAG_SCALE) ? o->scale
                                                : 1 / sqrt((double)d),
        .bias = c->bias_full == NULL ? NULL : c->bias_full + row0 * m,
        .mask = mask,
        .slope = c->slopes[h],
        .decay = c->decay_full == NULL ? NULL : c->decay_full + (b * c->H + h) * m,
        .first = random_position(c, b, 0),
        .length = c->lengths[b],
        .exists = c->exists == NULL ? NULL : c->exists + b * (m - c->extra),
        .has_sink = c->has_sinks,
        .sink = c->sinks[h],
        .options = *o,
    };
    struct reference_results r = reference_compute(&call);
    for (size_t i = 0; i < n; i++) {
        const size_t row = row0 + i;
        const double s = score_scale(c, &call, &r, i), scaled = fmax(fabs(call.scale) * s, 1e-3);
        const double masked = fmax(scaled, largest_of(r.masked_scores + i * m, m));
        compare_rows(worst, plan, ATTN_RESULT_SCORES, 0, row * m, r.scores + i * m, m, s);
        compare_rows(worst, plan, ATTN_RESULT_SCALED_SCORES, 0, row * m, r.scaled_scores + i * m, m,
                     scaled);
        compare_rows(worst, plan, ATTN_RESULT_MASKED_SCORES, 0, row * m, r.masked_scores + i * m, m,
                     masked);
        const double w = fmax(largest_of(r.weights + i * m, m),
                              o->normalization == ATTN_UNNORMALIZED ? masked : 0);
        if (!(o->flags & ATTN_FLAG_MEAN_OVER_HEADS)) {
            compare_rows(worst, plan, ATTN_RESULT_WEIGHTS, 0, row * m, r.weights + i * m, m,
                         w * weight_scale(c, &call, i));
        }
        compare_rows(worst, plan, ATTN_RESULT_LSE, 0, row, r.lse + i, 1, fmax(1, masked));
        compare_rows(worst, plan, ATTN_RESULT_ENTROPY, 0, row, r.entropy + i, 1,
                     fmax(1, log((double)m)));
        if (attn_plan_parts(plan, ATTN_RESULT_TOP_K_INDICES) != 0) {
            const double *ranked =
                o->normalization == ATTN_UNNORMALIZED ? r.masked_scores + i * m : r.weights + i * m;
            check_top_k_of_row(c, plan, row, ranked, (c->dtype == ATTN_FLOAT32 ? 1e-5 : 1e-12) * w);
        }
        for (size_t j = 0; j < m; j++) {
            mean[(b * n + i) * m + j] += r.weights[i * m + j] / (double)c->H;
        }
        if (o->normalization == ATTN_UNNORMALIZED) {
            /* The weights have the rounding errors of scores. */
            r.output_scale[i] = fmax(r.output_scale[i], masked * largest_of(call.v, m * d_v));
        }
        double *joined = concat + (b * n + i) * (concat_ld + 1);
        memcpy(joined + concat_at, r.output + i * d_v, d_v * sizeof *joined);
        joined[concat_ld] = fmax(joined[concat_ld], r.output_scale[i]);
        if (c->form < PACKED_2D) {
            compare_rows(worst, plan, ATTN_RESULT_OUTPUT, 0, row * d_v, r.output + i * d_v, d_v,
                         r.output_scale[i]);
        }
    }
    free(r.scores);
}

/* A head of K or V: how many heads there are, its batch item, its number, its columns, and its part
 * of the result. */
struct place {
    const struct random_call *call;
    size_t heads, b, h, d, part;
};

/* Compares K and present_K, or V and present_V, of a head. */
static void check_rows(struct worst *worst, const attn_plan *plan, attn_result which,
                       const struct place *at, const double *rows) {
    const struct random_call *c = at->call;
    const bool packed = form_is_packed(c->form);
    const attn_result present =
        which == ATTN_RESULT_K ? ATTN_RESULT_PRESENT_K : ATTN_RESULT_PRESENT_V;
    const size_t slot = c->multihead.per_head ? at->b : at->b * at->heads + at->h, d = at->d;
    const size_t all = c->m - c->extra, keys = all - c->p;
    compare_rows(worst, plan, which, at->part, slot * keys * d, rows + c->p * d, keys * d, 4);
    for (size_t j = 0; j < all; j++) {
        const size_t row = packed ? (at->b * all + j) * at->heads + at->h : slot * all + j;
        compare_rows(worst, plan, present, at->part, row * d, rows + j * d, d, 4);
    }
}

/* Has a matrix rows of its own for batch item b? */
static bool has_item(const struct random_call *c, const struct own *own, size_t b) {
    return own->one ? b == 0 : b < c->B;
}

/* Compares Q, K, V, present_K and present_V of head h. */
static void check_matrices(struct worst *worst, struct random_call *c, const attn_plan *plan,
                           size_t b, size_t h) {
    const bool own = c->multihead.per_head;
    const size_t d = c->d[own ? h : 0], d_v = c->d_v[own ? h : 0], part = own ? h : 0;
    const size_t slot = own ? b : b * c->H + h;
    if (b < c->B) {
        compare_rows(worst, plan, ATTN_RESULT_Q, part, slot * c->n * d, c->Q[b][h], c->n * d, 4);
    }
    if (h < c->own_k.heads && has_item(c, &c->own_k, b)) {
        check_rows(worst, plan, ATTN_RESULT_K, &(struct place){c, c->own_k.heads, b, h, d, part},
                   c->K[b][h]);
    }
    if (h < c->own_v.heads && has_item(c, &c->own_v, b)) {
        check_rows(worst, plan, ATTN_RESULT_V, &(struct place){c, c->own_v.heads, b, h, d_v, part},
                   c->V[b][h]);
    }
}

static void check_call(struct worst *worst, struct random_call *c, attn_plan *plan) {
    attn_error error = {0};
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        for (size_t part = 0; part < attn_plan_parts(plan, (attn_result)r); part++) {
            const attn_tensor t = attn_as_tensor(attn_plan_tensor(plan, (attn_result)r, part));
            size_t bytes;
            cr_assert(attn_tensor_bytes(&t, &bytes));
            void *data = keep_block(c, bytes);
            memset(data, 0xff, bytes); /* NaN, so that a number that is not written is seen */
            attn_plan_bind(plan, (attn_result)r, part, data);
        }
    }
    attn_status status = attn_plan_run(plan, &error);
    cr_assert_eq(status, ATTN_OK, "%s", error.message);

    size_t ld = 0;
    for (size_t h = 0; h < c->H; h++) {
        ld += c->d_v[c->multihead.per_head ? h : 0];
    }
    double *mean = keep_block(c, c->B * c->n * c->m * sizeof *mean);
    double *concat = keep_block(c, c->B * c->n * (ld + 1) * sizeof *concat);
    for (size_t b = 0; b < drawn_items(c); b++) {
        size_t at = 0;
        for (size_t h = 0; h < c->H; h++) {
            check_matrices(worst, c, plan, b, h);
            if (b == c->B) {
                continue;
            }
            check_head(worst, c, plan, b, h, mean, concat, ld, at);
            at += c->d_v[c->multihead.per_head ? h : 0];
        }
    }
    for (size_t row = 0; row < c->B * c->n; row++) {
        const double *joined = concat + row * (ld + 1);
        if (c->options.flags & ATTN_FLAG_MEAN_OVER_HEADS) {
            const double *w = mean + row * c->m;
            compare_rows(
                worst, plan, ATTN_RESULT_WEIGHTS, 0, row * c->m, w, c->m,
                fmax(largest_of(w, c->m), c->options.normalization == ATTN_UNNORMALIZED ? 10 : 0));
        }
        if (c->form < PACKED_2D) {
            continue;
        }
        if (c->d_out == 0) {
            compare_rows(worst, plan, ATTN_RESULT_OUTPUT, 0, row * ld, joined, ld, joined[ld]);
            continue;
        }
        double *y = matrix_product(c, joined, 1, ld, c->w_o, c->d_out, 1, c->d_out, c->b_o);
        compare_rows(worst, plan, ATTN_RESULT_OUTPUT, 0, row * c->d_out, y, c->d_out,
                     fmax(1, joined[ld]));
    }
}

/* The calls of a dtype, and the worst error of them, relative to the scale of its number. */
struct seeds {
    size_t calls;
    struct worst worst;
    uint64_t seed; /* of the call with this error */
};

/* Compares the call of a seed with the reference. */
static void check_seed(struct seeds seeds[2], uint64_t seed) {
    struct random_call *c = malloc(sizeof *c);
    attn_plan *plan = draw_random_call(c, seed);
    struct seeds *of = &seeds[c->dtype];
    struct worst worst = {0};
    check_call(&worst, c, plan);
    of->calls++;
    if (worst.error > of->worst.error) {
        of->worst = worst;
        of->seed = seed;
    }
    attn_plan_free(plan);
    free_random_call(c);
    free(c);
}

Test(attention, random_calls_agree_with_the_reference, .timeout = 1200) {
    enum {
        CALLS = 4000
    };
    static const uint64_t larger_scores = 23467; /* its scores are twice as large as usual */
    static const double bounds[2] = {[ATTN_FLOAT32] = 1e-6, [ATTN_FLOAT64] = 1e-13};
    struct seeds seeds[2] = {0};
    const size_t all = test_scale(CALLS);
    const char *other = getenv("TEST_SEED");
    const uint64_t first = 1 + (other != NULL ? strtoull(other, NULL, 10) * CALLS : 0);
    for (uint64_t seed = first; seed < first + all; seed++) {
        check_seed(seeds, seed);
    }
    check_seed(seeds, larger_scores);
    for (int dtype = 0; dtype < 2; dtype++) {
        const struct seeds *of = &seeds[dtype];
        fprintf(stderr, "%zu float%d calls: worst error %.2g (%s, seed %llu)\n", of->calls,
                dtype == ATTN_FLOAT32 ? 32 : 64, of->worst.error, of->worst.what,
                (unsigned long long)of->seed);
        cr_assert_gt(of->calls, all / 4);
        cr_expect_leq(of->worst.error, bounds[dtype]);
    }
}
