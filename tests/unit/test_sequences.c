/*
 * test_sequences.c - packed sequences: each has the bytes of a call of its own, whatever the order
 * of the tasks; the cost is the sum of the parts; and gradients of what all share are sums. Calls
 * are drawn over all options that sequences have. TEST_SEED chooses other calls.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "support/plans.h"
#include "support/rng.h"
#include "support/scale.h"
#include "test_halves.h"

enum {
    MOST = 12, /* sequences of a drawn call */
    MOST_HEADS = 6,
    TENSORS = 16
};

/* The numbers of a tensor, and of those that were drawn before. */
struct numbers {
    struct numbers *before;
    double of[];
};

/* A call of sequences. Rows of Q, K and V have all heads. */
struct packed {
    struct rng rng;
    attn_dtype dtype;
    size_t heads, kv_heads, d, d_v;
    bool axis, same; /* the heads are an axis; Q, K and V are one matrix */
    double scales[MOST_HEADS];
    size_t queries[MOST], keys[MOST], rows[2];
    attn_tensor q, k, v;
    attn_options options;
    attn_sequences sequences;
    attn_rotary rotary;
    attn_upstream upstream;
    attn_tensor tensors[TENSORS];
    size_t tensor_count;
    struct numbers *numbers; /* of the last tensor */
};

static attn_tensor *draw_tensor(struct packed *c, int rank, size_t a, size_t b, size_t columns) {
    const size_t count = a * (rank > 1 ? b : 1) * (rank > 2 ? columns : 1);
    cr_assert_lt(c->tensor_count, TENSORS);
    attn_tensor *t = &c->tensors[c->tensor_count++];
    *t = (attn_tensor){.dtype = c->dtype, .rank = rank, .shape = {a, b, columns}};
    struct numbers *numbers = calloc(1, sizeof *numbers + count * sizeof(double));
    numbers->before = c->numbers;
    c->numbers = numbers;
    void *data = numbers->of;
    for (size_t i = 0; i < count; i++) {
        set_number(data, c->dtype, i, rng_normal(&c->rng));
    }
    t->data = data;
    return t;
}

/* Draws rows with all heads, in the form of the call. */
static attn_tensor *draw_rows(struct packed *c, size_t rows, size_t heads, size_t columns) {
    return c->axis ? draw_tensor(c, 3, rows, heads, columns)
                   : draw_tensor(c, 2, rows, heads * columns, 0);
}

/* Frees the tensors that were drawn after the first `count`. */
static void free_tensors(struct packed *c, size_t count) {
    for (; c->tensor_count > count; c->tensor_count--) {
        struct numbers *last = c->numbers;
        c->numbers = last->before;
        free(last);
    }
}

/* Draws a length: mostly short ones, some of which several sequences have. */
static size_t draw_length(struct packed *c, bool is_long) {
    return rng_chance(&c->rng, 6)              ? 0
           : is_long && rng_chance(&c->rng, 2) ? rng_between(&c->rng, 200, 500)
           : rng_chance(&c->rng, 2)            ? 5
                                               : rng_between(&c->rng, 1, 12);
}

/* Draws the lengths. In some calls no sequence has a query, or none has a key. */
static void draw_lengths(struct packed *c, bool is_long) {
    const bool list = !c->same && rng_chance(&c->rng, 2);
    const bool no_query = rng_chance(&c->rng, 16), no_key = rng_chance(&c->rng, 16);
    c->sequences.count = rng_between(&c->rng, 1, MOST);
    for (size_t i = 0; i < c->sequences.count; i++) {
        c->queries[i] = i == 0 ? 3 : draw_length(c, is_long);
        c->keys[i] = list ? (i == 0 ? 4 : draw_length(c, is_long)) : c->queries[i];
        if (list && rng_chance(&c->rng, 8)) { /* few scores, and so a small call, but many rows */
            c->queries[i] = rng_between(&c->rng, 60, 128);
            c->keys[i] = 1;
        }
        c->queries[i] = no_query ? 0 : c->queries[i];
        c->keys[i] = list ? (no_key ? 0 : c->keys[i]) : c->queries[i];
        c->rows[0] += c->queries[i];
        c->rows[1] += c->keys[i];
    }
    c->sequences.queries = c->queries;
    c->sequences.keys = list ? c->keys : NULL;
    c->options.sequences = &c->sequences;
}

/* Draws positions, of which many are beyond those of the training. They may be doubles in every
 * call. */
static const attn_tensor *draw_spread(struct packed *c, size_t count) {
    const attn_dtype dtype = c->dtype;
    c->dtype = rng_chance(&c->rng, 2) ? ATTN_FLOAT64 : dtype;
    const attn_tensor *positions = draw_tensor(c, 1, count, 0, 0);
    void *data = c->numbers->of;
    for (size_t i = 0; i < count; i++) {
        set_number(data, c->dtype, i, 8 * number_of(data, c->dtype, i));
    }
    c->dtype = dtype;
    return positions;
}

static void draw_turns(struct packed *c) {
    static const attn_rotary_scaling scalings[] = {ATTN_ROTARY_UNSCALED, ATTN_ROTARY_LINEAR,
                                                   ATTN_ROTARY_DYNAMIC, ATTN_ROTARY_LLAMA3};
    c->rotary = (attn_rotary){.scaling = scalings[rng_between(&c->rng, 0, 3)],
                              .base = 100,
                              .factor = 2,
                              .original_positions = 4,
                              .low_factor = 1,
                              .high_factor = 4};
    if (c->sequences.keys == NULL && rng_chance(&c->rng, 2)) {
        c->rotary.positions = draw_spread(c, c->rows[0]);
    }
    c->options.rotary = &c->rotary;
}

/* Draws the logarithms of forget gates, of which some are 0. */
static void draw_gates(struct packed *c) {
    const bool headed = c->axis || c->options.heads != 0;
    const size_t heads = headed && rng_chance(&c->rng, 2) ? c->heads : 1;
    /* A last axis of 1 says that the heads follow the keys. */
    const bool sure = headed && (heads == c->rows[1] || rng_chance(&c->rng, 2));
    c->options.decay = draw_tensor(c, sure ? 3 : headed ? 2 : 1, c->rows[1], heads, 1);
    void *data = c->numbers->of;
    for (size_t i = 0; i < c->rows[1] * heads; i++) {
        const double x = rng_chance(&c->rng, 8) ? INFINITY : number_of(data, c->dtype, i);
        set_number(data, c->dtype, i, -fabs(x));
    }
}

/* Draws tables of angles, with a row for each position. */
static void draw_tables(struct packed *c) {
    const size_t rows = c->rows[0] > c->rows[1] ? c->rows[0] : c->rows[1];
    c->rotary = (attn_rotary){.cos = draw_tensor(c, 2, rows, c->d / 2, 0),
                              .sin = draw_tensor(c, 2, rows, c->d / 2, 0)};
    c->options.rotary = &c->rotary;
}

static void draw_sequence_options(struct packed *c) {
    struct rng *rng = &c->rng;
    attn_options *o = &c->options;
    o->causal = rng_chance(rng, 2);
    o->softcap = rng_chance(rng, 4) ? 2 : 0;
    o->flags |= rng_chance(rng, 3) ? ATTN_FLAG_BOTTOM_RIGHT : 0;
    if (rng_chance(rng, 3)) {
        o->flags |= ATTN_FLAG_WINDOW;
        o->window[0] = (int64_t)rng_between(rng, 0, 4);
        o->window[1] = (int64_t)rng_between(rng, 0, 4) - 1;
    }
    if (rng_chance(rng, 4)) {
        static const attn_normalization others[] = {ATTN_SIGMOID, ATTN_UNNORMALIZED,
                                                    ATTN_STICK_BREAKING};
        o->normalization = others[rng_between(rng, 0, 2)];
    } else {
        o->sink = rng_chance(rng, 3) ? draw_tensor(c, 1, c->heads, 0, 0) : NULL;
    }
    if (rng_chance(rng, 3)) {
        o->alibi_slopes = draw_tensor(c, 1, c->heads, 0, 0);
    } else if (rng_chance(rng, 4)) {
        o->flags |= ATTN_FLAG_ALIBI;
    }
    for (size_t h = 0; h < c->heads; h++) {
        c->scales[h] = rng_uniform(rng);
    }
    o->scales = c->scales;
    o->scales_count = rng_chance(rng, 4) ? c->heads : 0;
    if (o->causal && rng_chance(rng, 3)) {
        draw_gates(c);
    }
    o->norm_q = rng_chance(rng, 4) ? draw_tensor(c, 1, c->d, 0, 0) : NULL;
    o->norm_k = rng_chance(rng, 4) ? draw_tensor(c, 1, c->kv_heads * c->d, 0, 0) : NULL;
    o->b_q = rng_chance(rng, 4) ? draw_tensor(c, 2, c->heads, c->d, 0) : NULL;
    o->b_k = rng_chance(rng, 4) ? draw_tensor(c, 1, c->kv_heads * c->d, 0, 0) : NULL;
    o->b_v = rng_chance(rng, 4) ? draw_tensor(c, 1, c->kv_heads * c->d_v, 0, 0) : NULL;
    if (c->d % 2 == 0 && (o->flags & ATTN_FLAG_BOTTOM_RIGHT) == 0 && rng_chance(rng, 4)) {
        draw_tables(c); /* queries have no positions below 0 */
    } else if (c->d % 2 == 0 && rng_chance(rng, 3)) {
        draw_turns(c);
    }
}

/* Chooses the results, and draws the gradients of output and lse. */
static void draw_results(struct packed *c, bool gradients) {
    attn_options *o = &c->options;
    const bool softmax = o->normalization == ATTN_SOFTMAX;
    o->results = ATTN_WANT(OUTPUT) | (softmax ? ATTN_WANT(LSE) | ATTN_WANT(ENTROPY) : 0);
    if (!gradients) {
        return;
    }
    const bool lse = softmax && rng_chance(&c->rng, 2);
    c->upstream.output = draw_rows(c, c->rows[0], c->heads, c->d_v);
    c->upstream.lse = !lse                       ? NULL
                      : c->axis || o->heads != 0 ? draw_tensor(c, 2, c->heads, c->rows[0], 0)
                                                 : draw_tensor(c, 1, c->rows[0], 0, 0);
    o->upstream = &c->upstream;
    o->results |= ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V) |
                  (c->same ? ATTN_WANT(GRAD_X) : 0) | (o->sink != NULL ? ATTN_WANT(GRAD_SINK) : 0) |
                  (o->alibi_slopes != NULL ? ATTN_WANT(GRAD_ALIBI) : 0) |
                  (o->decay != NULL ? ATTN_WANT(GRAD_DECAY) : 0) |
                  (o->norm_q != NULL ? ATTN_WANT(GRAD_NORM_Q) : 0) |
                  (o->norm_k != NULL ? ATTN_WANT(GRAD_NORM_K) : 0) |
                  (o->b_q != NULL ? ATTN_WANT(GRAD_B_Q) : 0) |
                  (o->b_k != NULL ? ATTN_WANT(GRAD_B_K) : 0) |
                  (o->b_v != NULL ? ATTN_WANT(GRAD_B_V) : 0);
}

static void draw_packed(struct packed *c, uint64_t seed) {
    *c = (struct packed){.rng = {seed * 7919 + 1}};
    struct rng *rng = &c->rng;
    const bool is_long = rng_chance(rng, 8);
    c->dtype = rng_chance(rng, 2) ? ATTN_FLOAT32 : ATTN_FLOAT64;
    c->same = rng_chance(rng, 5);
    c->axis = rng_chance(rng, 2);
    c->kv_heads = rng_between(rng, 1, 2);
    c->heads = c->kv_heads * (c->same ? 1 : rng_between(rng, 1, 3));
    c->d = rng_between(rng, 1, 8) * (is_long ? 4 : 1);
    c->d_v = c->same ? c->d : rng_between(rng, 1, 8);
    draw_lengths(c, is_long);
    c->q = *draw_rows(c, c->rows[0], c->heads, c->d);
    c->k = c->same ? c->q : *draw_rows(c, c->rows[1], c->kv_heads, c->d);
    c->v = c->same ? c->q : *draw_rows(c, c->rows[1], c->kv_heads, c->d_v);
    if (!c->axis && (c->heads > 1 || rng_chance(rng, 2))) {
        c->options.heads = c->heads;
        c->options.kv_heads = c->kv_heads;
    }
    draw_sequence_options(c);
    draw_results(c, rng_chance(rng, 2));
    if (c->dtype == ATTN_FLOAT32 && c->options.upstream == NULL) {
        c->options.compute_dtype = (attn_compute_dtype)rng_between(rng, 0, 2);
    }
    if (c->options.normalization == ATTN_UNNORMALIZED) { /* the output of many keys is large */
        c->options.compute_dtype = ATTN_COMPUTE_AS_GIVEN;
    }
}

/* ----------------------------------------------------------------------------------------- runs */

static attn_plan *plan_packed(const struct packed *c) {
    attn_plan *plan;
    attn_error error = {0};
    cr_assert_eq(attn_plan_attention(&plan, &c->q, c->same ? &c->q : &c->k, c->same ? &c->q : &c->v,
                                     &c->options, &error),
                 ATTN_OK, "%s", error.message);
    return plan;
}

/* Runs a plan, and returns the buffer of all results. */
static char *run_packed(attn_plan *plan, run_tasks *run) {
    attn_error error = {0};
    size_t bytes;
    cr_assert(attn_plan_results_bytes(plan, &bytes));
    char *results = aligned_alloc(ATTN_ALIGNMENT, bytes + ATTN_ALIGNMENT);
    memset(results, 0xff, bytes); /* NaN */
    cr_assert_eq(attn_plan_bind_all(plan, results), ATTN_OK);
    cr_assert_eq(run(plan, &error), ATTN_OK, "%s", error.message);
    return results;
}

/* Rows [first, first + count) of a matrix, with all heads, as a call with options->heads takes
 * them. */
static attn_tensor rows_of(const attn_tensor *t, size_t first, size_t count) {
    attn_tensor rows = {.dtype = t->dtype, .rank = 2, .shape = {count, t->shape[1]}};
    rows.shape[1] *= t->rank == 3 ? t->shape[2] : 1;
    rows.data = (const char *)t->data + first * rows.shape[1] * attn_dtype_size(t->dtype);
    return rows;
}

/* Columns [first, first + count) of (heads,rows) or (rows). */
static attn_tensor columns_of(struct packed *c, const attn_tensor *t, size_t first, size_t count) {
    const attn_dtype dtype = c->dtype;
    c->dtype = t->dtype;
    attn_tensor *some =
        t->rank == 1 ? draw_tensor(c, 1, count, 0, 0) : draw_tensor(c, 2, t->shape[0], count, 0);
    c->dtype = dtype;
    const size_t size = attn_dtype_size(t->dtype), heads = t->rank == 1 ? 1 : t->shape[0];
    for (size_t h = 0; h < heads; h++) {
        memcpy((char *)(uintptr_t)some->data + h * count * size,
               (const char *)t->data + (h * t->shape[t->rank - 1] + first) * size, count * size);
    }
    return *some;
}

/* Plans sequence i of a call as a call of its own. */
static attn_plan *plan_alone(struct packed *c, size_t q, size_t k, size_t i) {
    struct packed own = *c;
    own.axis = false;
    own.q = rows_of(&c->q, q, c->queries[i]);
    own.k = rows_of(&c->k, k, c->keys[i]);
    own.v = rows_of(&c->v, k, c->keys[i]);
    own.options.sequences = NULL;
    if (c->axis) {
        own.options.heads = c->heads;
        own.options.kv_heads = c->kv_heads;
    }
    attn_tensor output, lse, positions, decay;
    if (c->options.decay != NULL) {
        decay = *c->options.decay;
        decay.shape[0] = c->keys[i];
        decay.data = (const char *)decay.data +
                     k * (decay.rank > 1 ? decay.shape[1] : 1) * attn_dtype_size(c->dtype);
        if (decay.rank == 2) {
            decay.shape[decay.rank++] = 1;
        }
        own.options.decay = &decay;
    }
    if (c->options.upstream != NULL) {
        output = rows_of(c->upstream.output, q, c->queries[i]);
        own.upstream.output = &output;
        if (c->upstream.lse != NULL) {
            lse = columns_of(c, c->upstream.lse, q, c->queries[i]);
            own.upstream.lse = &lse;
        }
        own.options.upstream = &own.upstream;
    }
    if (c->rotary.positions != NULL) {
        positions = columns_of(c, c->rotary.positions, q, c->queries[i]);
        own.rotary.positions = &positions;
        own.options.rotary = &own.rotary;
    }
    return plan_packed(&own);
}

static double real_at(const attn_result_tensor *t, size_t i) {
    return number_of(t->data, t->dtype, i);
}

static size_t reals_of(const attn_result_tensor *part) {
    const attn_tensor t = attn_as_tensor(part);
    return count_of(&t);
}

/* ---------------------------------------------------------------------------------- comparisons */

enum {
    SHARED = ATTN_RESULT_GRAD_B_V + 1 - ATTN_RESULT_GRAD_SINK,
    MOST_SHARED = MOST_HEADS * 32
};

/* What sequences are compared with. */
struct sums {
    double of[SHARED][MOST_SHARED], sizes[SHARED][MOST_SHARED];
    double cost;
};

static bool is_shared(int result) {
    return (result >= ATTN_RESULT_GRAD_SINK && result <= ATTN_RESULT_GRAD_NORM_K) ||
           (result >= ATTN_RESULT_GRAD_B_Q && result <= ATTN_RESULT_GRAD_B_V);
}

/* Compares the bytes of some rows: all heads of a row, or the rows of each head. */
static void compare_bytes(const attn_result_tensor *all, const attn_result_tensor *alone,
                          attn_result which, size_t first, size_t index) {
    const bool heads = which == ATTN_RESULT_LSE || which == ATTN_RESULT_ENTROPY;
    const size_t size = attn_dtype_size(all->dtype),
                 runs = heads && all->rank == 2 ? all->shape[0] : 1;
    const size_t count = reals_of(alone) / runs;
    const size_t place =
        heads || all->shape[0] == 0 ? first : first * (reals_of(all) / all->shape[0]);
    for (size_t h = 0; h < runs; h++) {
        const size_t from = h * all->shape[all->rank - 1] * (heads ? 1 : 0) + place;
        cr_assert_arr_eq((const char *)all->data + from * size,
                         (const char *)alone->data + h * count * size, count * size,
                         "%s of sequence %zu is not what it is alone", attn_result_name(which),
                         index);
    }
}

static void add_sums(const attn_result_tensor *t, struct sums *sums, int which) {
    for (size_t e = 0; e < reals_of(t); e++) {
        sums->of[which][e] += real_at(t, e);
        sums->sizes[which][e] += fabs(real_at(t, e));
    }
}

/* Compares a sequence with a call of its own. */
static void compare_sequence(struct packed *c, const attn_plan *plan, size_t q, size_t k, size_t i,
                             struct sums *sums) {
    const size_t tensors = c->tensor_count;
    attn_plan *alone = plan_alone(c, q, k, i);
    char *results = run_packed(alone, run_forwards);
    const bool empty = c->queries[i] == 0 || c->keys[i] == 0; /* such rows share tasks */
    sums->cost += empty ? 0 : attn_plan_cost(alone);
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        const attn_result_tensor *got = attn_plan_tensor(plan, (attn_result)r, 0);
        const bool keys =
            r == ATTN_RESULT_GRAD_K || r == ATTN_RESULT_GRAD_V || r == ATTN_RESULT_GRAD_DECAY;
        if (got != NULL && is_shared(r)) {
            add_sums(attn_plan_tensor(alone, (attn_result)r, 0), sums, r - ATTN_RESULT_GRAD_SINK);
        } else if (got != NULL) {
            compare_bytes(got, attn_plan_tensor(alone, (attn_result)r, 0), (attn_result)r,
                          keys ? k : q, i);
        }
    }
    free(results);
    attn_plan_free(alone);
    free_tensors(c, tensors);
}

static void check_shared(const attn_plan *plan, const struct sums *sums, attn_dtype dtype) {
    const double bound = dtype == ATTN_FLOAT32 ? 1e-6 : 1e-14;
    for (int r = 0; r < SHARED; r++) {
        const attn_result which = (attn_result)(ATTN_RESULT_GRAD_SINK + r);
        const attn_result_tensor *t = attn_plan_tensor(plan, which, 0);
        for (size_t e = 0; t != NULL && is_shared((int)which) && e < reals_of(t); e++) {
            cr_assert_float_eq(real_at(t, e), sums->of[r][e], bound * (sums->sizes[r][e] + 1e-300),
                               "%s[%zu] is %g, not %g", attn_result_name(which), e, real_at(t, e),
                               sums->of[r][e]);
        }
    }
}

static void check_packed(uint64_t seed) {
    struct packed c;
    struct sums *sums = calloc(1, sizeof *sums);
    draw_packed(&c, seed);
    attn_plan *plan = plan_packed(&c);
    char *results = run_packed(plan, run_forwards);
    size_t q = 0, k = 0, empty = 0;
    for (size_t i = 0; i < c.sequences.count; q += c.queries[i], k += c.keys[i], i++) {
        compare_sequence(&c, plan, q, k, i, sums);
        empty += c.queries[i] == 0 || c.keys[i] == 0 ? c.queries[i] + c.keys[i] : 0;
    }
    check_shared(plan, sums, c.dtype);
    if (c.options.compute_dtype != ATTN_COMPUTE_AS_GIVEN) { /* what all share is rounded once */
        const double most = sums->cost * (1 + 1e-9);
        cr_assert(empty > 0 || sums->cost == 0 || attn_plan_cost(plan) <= most);
    } else if (empty == 0) {
        cr_assert_float_eq(attn_plan_cost(plan), sums->cost, 1e-9 * sums->cost);
    } else {
        cr_assert_gt(attn_plan_cost(plan), sums->cost);
    }
    char *again = run_packed(plan, run_backwards);
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) { /* what lies between results is not written */
        const attn_result_tensor *t = attn_plan_tensor(plan, (attn_result)r, 0);
        if (t != NULL) {
            const size_t at = (size_t)((char *)t->data - again);
            cr_assert_arr_eq(results + at, again + at, reals_of(t) * attn_dtype_size(t->dtype));
        }
    }
    free(again);
    free(results);
    free(sums);
    attn_plan_free(plan);
    free_tensors(&c, 0);
}

Test(sequences, each_is_a_call_of_its_own, .timeout = 1200) {
    enum {
        CALLS = 3000
    };
    const char *other = getenv("TEST_SEED");
    const uint64_t first = 1 + (other != NULL ? strtoull(other, NULL, 10) * CALLS : 0);
    for (uint64_t seed = first; seed < first + test_scale(CALLS); seed++) {
        check_packed(seed);
    }
}

/* A call of one head in which one number of V makes one sequence overflow. */
static attn_status run_overflow(attn_error *error) {
    const float ones[6] = {1, 1, 1, 1, 1, 1}, v[6] = {1, 1, 1, 3e38f, 3e38f, 3e38f};
    float out[6];
    const attn_tensor q = {ones, ATTN_FLOAT32, 2, {6, 1}}, values = {v, ATTN_FLOAT32, 2, {6, 1}};
    const attn_sequences sequences = {3, (const size_t[]){2, 0, 4}, NULL};
    const attn_options options = {.sequences = &sequences, .normalization = ATTN_UNNORMALIZED};
    attn_plan *plan;
    attn_status status = attn_plan_attention(&plan, &q, &q, &values, &options, error);
    cr_assert_eq(status, ATTN_OK, "%s", error->message);
    attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, out);
    status = attn_plan_run(plan, error);
    attn_plan_free(plan);
    return status;
}

Test(sequences, errors_name_the_sequence) {
    attn_error error = {0};
    cr_expect_eq(run_overflow(&error), ATTN_NOT_FINITE);
    cr_expect_str_eq(error.argument, "output");
    cr_expect_not_null(strstr(error.message, "sequence 2: output is not a finite float32"), "%s",
                       error.message);
    cr_expect_not_null(strstr(error.message, "query 0"), "%s", error.message);
}

Test(sequences, may_all_have_no_keys) {
    const double ones[4] = {1, 1, 1, 1};
    double out[4] = {1, 1, 1, 1}, sums[2] = {1, 1};
    const attn_tensor q = {ones, ATTN_FLOAT64, 3, {2, 2, 1}},
                      k = {ones, ATTN_FLOAT64, 3, {1, 2, 1}}, sink = {ones, ATTN_FLOAT64, 1, {2}};
    const attn_sequences sequences = {2, (const size_t[]){2, 0}, (const size_t[]){0, 1}};
    const attn_upstream upstream = {.output = &q};
    const attn_options options = {.sequences = &sequences,
                                  .sink = &sink,
                                  .upstream = &upstream,
                                  .results = ATTN_WANT(OUTPUT) | ATTN_WANT(GRAD_SINK)};
    attn_plan *plan;
    attn_error error = {0};
    cr_assert_eq(attn_plan_attention(&plan, &q, &k, &k, &options, &error), ATTN_OK, "%s",
                 error.message);
    attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, out);
    attn_plan_bind(plan, ATTN_RESULT_GRAD_SINK, 0, sums);
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
    attn_plan_free(plan);
    cr_expect_arr_eq(out, ((double[]){0, 0, 0, 0}), sizeof out);
    cr_expect_arr_eq(sums, ((double[]){0, 0}), sizeof sums);
}

enum {
    EQUAL = 3000 /* sequences of one query and one key */
};

/* Runs equal sequences whose weights are 1/2 each, beside a sink of 0, and whose D is `d`. */
static attn_status run_equal(float d, float *grad_sink, float *grad_b_v, attn_error *error) {
    static size_t lengths[EQUAL];
    static float zeros[EQUAL], grad[EQUAL];
    const attn_tensor q = {zeros, ATTN_FLOAT32, 2, {EQUAL, 1}},
                      sink = {zeros, ATTN_FLOAT32, 1, {1}},
                      given = {grad, ATTN_FLOAT32, 2, {EQUAL, 1}},
                      b_v = {(const float[]){2}, ATTN_FLOAT32, 1, {1}};
    const attn_sequences sequences = {EQUAL, lengths, NULL};
    const attn_upstream upstream = {.output = &given};
    const attn_options options = {.sequences = &sequences,
                                  .sink = &sink,
                                  .b_v = &b_v,
                                  .upstream = &upstream,
                                  .results = ATTN_WANT(GRAD_SINK) | ATTN_WANT(GRAD_B_V)};
    attn_plan *plan;
    for (size_t i = 0; i < EQUAL; i++) {
        lengths[i] = 1;
        grad[i] = d;
    }
    attn_status status = attn_plan_attention(&plan, &q, &q, &q, &options, error);
    cr_assert_eq(status, ATTN_OK, "%s", error->message);
    attn_plan_bind(plan, ATTN_RESULT_GRAD_SINK, 0, grad_sink);
    attn_plan_bind(plan, ATTN_RESULT_GRAD_B_V, 0, grad_b_v);
    status = attn_plan_run(plan, error);
    attn_plan_free(plan);
    return status;
}

/* The gradients by what all sequences share are sums, which may overflow. */
Test(sequences, have_sums_that_are_checked) {
    attn_error error = {0};
    float grad_sink = 0, grad_b_v = 0;
    cr_assert_eq(run_equal(1, &grad_sink, &grad_b_v, &error), ATTN_OK, "%s", error.message);
    cr_expect_float_eq(grad_sink, -EQUAL / 2.0, EQUAL * 1e-6);
    cr_expect_float_eq(grad_b_v, EQUAL / 2.0, EQUAL * 1e-6);
    cr_expect_eq(run_equal(1e38f, &grad_sink, &grad_b_v, &error), ATTN_NOT_FINITE);
    cr_expect_str_eq(error.argument, "grad_sink");
    cr_expect_not_null(strstr(error.message, "at (0)"), "%s", error.message);
}

/* Returns the bytes of a plan of `count` sequences of these lengths beside results and scratches;
 * without sequences, of one call. */
static size_t bytes_of_lengths(const size_t *lengths, size_t count, bool packed) {
    static const double ones[64];
    size_t rows = 0, all, results;
    for (size_t i = 0; i < count; i++) {
        rows += lengths[i];
    }
    const attn_tensor x = {ones, ATTN_FLOAT64, 2, {rows, 1}};
    const attn_sequences sequences = {count, lengths, NULL};
    const attn_options options = {.sequences = packed ? &sequences : NULL};
    attn_plan *plan;
    attn_error error = {0};
    cr_assert_eq(attn_plan_attention(&plan, &x, &x, &x, &options, &error), ATTN_OK, "%s",
                 error.message);
    cr_assert(attn_plan_bytes(plan, 0, &all) && attn_plan_results_bytes(plan, &results));
    attn_plan_free(plan);
    return all - results;
}

/* Sequences of the same lengths share a plan, and each kind of sequence has its own. */
Test(sequences, take_the_bytes_of_each_plan) {
    static const size_t kinds[] = {3, 4, 5, 6, 7, 9}, alike[] = {5, 5, 5, 5, 5, 9};
    size_t plans = 0;
    for (size_t i = 0; i < 4; i++) {
        plans += bytes_of_lengths(&kinds[i], 1, false);
    }
    cr_expect_geq(bytes_of_lengths(kinds, 6, true), bytes_of_lengths(alike, 6, true) + plans);
}

/* Returns the cost of one head with `count` sequences of `rows` queries without keys. */
static double cost_without_keys(size_t count, size_t rows) {
    enum {
        ROWS = 1024
    };
    static const float ones[ROWS];
    static size_t queries[ROWS], keys[ROWS];
    const attn_tensor q = {ones, ATTN_FLOAT32, 2, {count * rows, 1}},
                      k = {ones, ATTN_FLOAT32, 2, {0, 1}};
    const attn_sequences sequences = {count, queries, keys};
    const attn_options options = {.sequences = &sequences};
    attn_plan *plan;
    attn_error error = {0};
    for (size_t i = 0; i < count; i++) {
        queries[i] = rows;
    }
    cr_assert_eq(attn_plan_attention(&plan, &q, &k, &k, &options, &error), ATTN_OK, "%s",
                 error.message);
    const double cost = attn_plan_cost(plan);
    attn_plan_free(plan);
    return cost;
}

Test(sequences, cost_the_rows_without_keys_that_they_have) {
    const double one = cost_without_keys(1, 1), many = cost_without_keys(1024, 1);
    cr_expect_lt(one, 1e5, "clearing a row costs %g", one);
    cr_expect_leq(many, 1024 * one, "clearing 1024 rows costs %g", many);
    cr_expect_lt(one, cost_without_keys(1, 1024));
    cr_expect_lt(cost_without_keys(1, 1024), many);
}
