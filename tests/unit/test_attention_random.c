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
#include "support/scale.h"

/* ----------------------------------------------------------------------------------- comparing */

/* A run of a call, and what its heads give together: the mean of their weights, (B,n,m), and their
 * outputs side by side, (B,n,ld). The scale of the errors of a row follows its outputs. */
struct run {
    struct worst worst;
    struct call *call;
    struct results results;
    double *mean, *joined;
    size_t ld;
};

static void compare_rows(struct run *run, attn_result result, size_t at, const double *want,
                         size_t count, double scale) {
    const double *is = run->results.of[result];
    for (size_t i = 0; is != NULL && i < count; i++) {
        compare_number(&run->worst, attn_result_name(result), at + i, is[at + i], want[i], scale);
    }
}

/* Checks that top_k names no key twice, and that at most i keys rank before the key at place i. */
static void check_top_k_of_row(const struct run *run, size_t row, const double *ranked,
                               double tolerance) {
    const struct call *c = run->call;
    const size_t k = c->options.top_k != 0 ? c->options.top_k : 5, kk = k < c->m ? k : c->m;
    const double *indices = run->results.of[ATTN_RESULT_TOP_K_INDICES];
    unsigned char *seen = allocate(c->m, 1);
    for (size_t i = 0; indices != NULL && i < kk; i++) {
        const size_t index = (size_t)indices[row * kk + i];
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

static size_t columns_of_output(const struct call *c, size_t h) {
    return c->own_d_v[c->multihead.per_head ? h : 0];
}

/* Checks head h of batch item b, whose output begins at `column` of the joined rows. */
static void check_head(struct run *run, size_t b, size_t h, size_t column) {
    const struct call *c = run->call;
    const bool plain = c->options.normalization == ATTN_UNNORMALIZED;
    const size_t n = c->n, m = c->m, d_v = columns_of_output(c, h);
    struct results own = run->results; /* those that each head has */
    own.of[ATTN_RESULT_OUTPUT] = c->form < PACKED_2D ? own.of[ATTN_RESULT_OUTPUT] : NULL;
    if (c->options.flags & ATTN_FLAG_MEAN_OVER_HEADS) {
        own.of[ATTN_RESULT_WEIGHTS] = NULL;
    }
    struct reference_results r = reference_of(c, b, h);
    compare_to_reference(&run->worst, c, b, h, &r, &own);
    for (size_t i = 0; i < n; i++) {
        const double *ranked = (plain ? r.masked_scores : r.weights) + i * m;
        check_top_k_of_row(run, row_of(c, b, h, i), ranked,
                           (c->dtype == ATTN_FLOAT32 ? 1e-5 : 1e-12) * largest_of(ranked, m));
        for (size_t j = 0; j < m; j++) {
            run->mean[(b * n + i) * m + j] += r.weights[i * m + j] / (double)c->heads;
        }
        double *joined = run->joined + (b * n + i) * (run->ld + 1);
        memcpy(joined + column, r.output + i * d_v, d_v * sizeof *joined);
        joined[run->ld] = fmax(joined[run->ld], r.output_scale[i]);
    }
    free(r.scores);
}

/* Compares K and present_K, or V and present_V, of head h of batch item b. `rows` are those of all
 * heads. */
static void check_rows(struct run *run, attn_result which, attn_result present, size_t heads,
                       size_t b, size_t h, const double *rows) {
    const struct call *c = run->call;
    const bool packed = form_is_packed(c->form), own = c->multihead.per_head;
    const size_t *columns = which == ATTN_RESULT_K ? c->own_d : c->own_d_v;
    const size_t d = columns[own ? h : 0], most = which == ATTN_RESULT_K ? c->d : c->d_v;
    const size_t slot = own ? b : b * heads + h, all = c->m - c->extra, keys = all - c->past;
    size_t before = 0; /* columns of earlier heads with weights of their own */
    for (size_t head = 0; own && head < h; head++) {
        before += columns[head];
    }
    rows += (b * heads + h) * c->m * most;
    const double bound = 4 * number_bound(c->dtype);
    compare_rows(run, which, c->batch * keys * before + slot * keys * d, rows + c->past * d,
                 keys * d, bound);
    for (size_t j = 0; j < all; j++) {
        const size_t row = packed ? (b * all + j) * heads + h : slot * all + j;
        compare_rows(run, present, c->batch * all * before + row * d, rows + j * d, d, bound);
    }
}

/* Has a matrix rows of its own for batch item b? */
static bool has_item(const struct call *c, const struct own *own, size_t b) {
    return own->one ? b == 0 : b < c->batch;
}

/* Compares Q, K, V, present_K and present_V of head h. */
static void check_matrices(struct run *run, size_t b, size_t h) {
    const struct call *c = run->call;
    const bool own = c->multihead.per_head;
    size_t before = 0;
    for (size_t head = 0; own && head < h; head++) {
        before += c->own_d[head];
    }
    if (b < c->batch) {
        const size_t d = c->own_d[own ? h : 0], slot = own ? b : b * c->heads + h;
        compare_rows(run, ATTN_RESULT_Q, c->batch * c->n * before + slot * c->n * d,
                     c->q + row_of(c, b, h, 0) * c->d, c->n * d, 4 * number_bound(c->dtype));
    }
    if (h < c->own_k.heads && has_item(c, &c->own_k, b)) {
        check_rows(run, ATTN_RESULT_K, ATTN_RESULT_PRESENT_K, c->own_k.heads, b, h, c->k);
    }
    if (h < c->own_v.heads && has_item(c, &c->own_v, b)) {
        check_rows(run, ATTN_RESULT_V, ATTN_RESULT_PRESENT_V, c->own_v.heads, b, h, c->v);
    }
}

/* Checks what all heads give together. */
static void check_joined(struct run *run, size_t row) {
    struct call *c = run->call;
    const size_t ld = run->ld;
    const double *joined = run->joined + row * (ld + 1), *mean = run->mean + row * c->m;
    const double bound = number_bound(c->dtype);
    if (c->options.flags & ATTN_FLAG_MEAN_OVER_HEADS) {
        const double least = c->options.normalization == ATTN_UNNORMALIZED ? 10 : 0;
        compare_rows(run, ATTN_RESULT_WEIGHTS, row * c->m, mean, c->m,
                     bound_of(c->dtype) * fmax(largest_of(mean, c->m), least));
    }
    if (c->form >= PACKED_2D && c->d_out == 0) {
        compare_rows(run, ATTN_RESULT_OUTPUT, row * ld, joined, ld, bound * joined[ld]);
    } else if (c->form >= PACKED_2D) {
        double *y = matrix_product(c, joined, 1, ld, c->w_o, c->d_out, 1, c->d_out, c->b_o);
        compare_rows(run, ATTN_RESULT_OUTPUT, row * c->d_out, y, c->d_out,
                     bound * fmax(1, joined[ld]));
    }
}

/* Runs a call, and compares its results with the reference. */
static struct worst check_call(struct call *c, attn_plan *plan) {
    struct run run = {.call = c, .results = run_plan(plan, NULL)};
    cr_assert_eq(run.results.status, ATTN_OK, "%s", run.results.error.message);
    for (size_t h = 0; h < c->heads; h++) {
        run.ld += columns_of_output(c, h);
    }
    run.mean = keep_block(c, c->batch * c->n * c->m * sizeof *run.mean);
    run.joined = keep_block(c, c->batch * c->n * (run.ld + 1) * sizeof *run.joined);
    for (size_t b = 0; b < drawn_items(c); b++) {
        for (size_t h = 0, column = 0; h < c->heads; column += columns_of_output(c, h++)) {
            check_matrices(&run, b, h);
            if (b < c->batch) {
                check_head(&run, b, h, column);
            }
        }
    }
    for (size_t row = 0; row < c->batch * c->n; row++) {
        check_joined(&run, row);
    }
    free_results(&run.results);
    return run.worst;
}

/* The calls of a dtype, and the worst error of them, relative to its bound. */
struct seeds {
    size_t calls;
    struct worst worst;
    uint64_t seed; /* of the call with this error */
};

/* Compares the call of a seed with the reference. */
static void check_seed(struct seeds seeds[2], uint64_t seed) {
    struct call *c = malloc(sizeof *c);
    attn_plan *plan = draw_random_call(c, seed);
    struct seeds *of = &seeds[c->dtype];
    const struct worst worst = check_call(c, plan);
    of->calls++;
    if (worst.error > of->worst.error) {
        of->worst = worst;
        of->seed = seed;
    }
    free_call(c);
    free(c);
}

Test(attention, random_calls_agree_with_the_reference, .timeout = 1200) {
    enum {
        CALLS = 4000
    };
    static const uint64_t larger_scores = 23467; /* its scores are twice as large as usual */
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
        fprintf(stderr, "%zu float%d calls: worst error %.2g of its bound (%s, seed %llu)\n",
                of->calls, dtype == ATTN_FLOAT32 ? 32 : 64, of->worst.error, of->worst.what,
                (unsigned long long)of->seed);
        cr_assert_gt(of->calls, all / 4);
        cr_expect_leq(of->worst.error, 1);
    }
}
