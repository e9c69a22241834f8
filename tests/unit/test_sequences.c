/*
 * test_sequences.c - packed sequences: each has the bytes of a call of its own, whatever the order
 * of the tasks; the cost is the sum of the parts; and gradients of what all share are sums. Calls
 * are drawn over all options that sequences have. TEST_SEED chooses other calls.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "random_gradients.h"
#include "results.h"
#include "support/rng.h"
#include "support/scale.h"
#include "test_by_hand.h"

enum {
    MOST = 12 /* sequences of a drawn call */
};

/* A drawn call of sequences. Rows of Q, K and V have all heads. */
struct packed {
    struct call call;
    bool axis, same; /* the heads are an axis; Q, K and V are one matrix */
    size_t queries[MOST], keys[MOST];
    attn_sequences sequences;
    attn_upstream upstream;
};

static attn_tensor *draw_tensor(struct call *c, int rank, size_t a, size_t b, size_t d) {
    const size_t shape[] = {a, b, d}, count = a * (rank > 1 ? b : 1) * (rank > 2 ? d : 1);
    return tensor_of(c, draw_normals(c, count, 1), rank, shape);
}

/* Draws rows with all heads, in the form of the call. */
static attn_tensor *draw_rows(struct packed *c, size_t rows, size_t heads, size_t columns) {
    return c->axis ? draw_tensor(&c->call, 3, rows, heads, columns)
                   : draw_tensor(&c->call, 2, rows, heads * columns, 0);
}

/* Draws a length: mostly short ones, some of which several sequences have. */
static size_t draw_length(struct rng *rng, bool is_long) {
    return rng_chance(rng, 6)              ? 0
           : is_long && rng_chance(rng, 2) ? rng_between(rng, 200, 500)
           : rng_chance(rng, 2)            ? 5
                                           : rng_between(rng, 1, 12);
}

/* Draws the lengths. In some calls no sequence has a query, or none has a key. */
static void draw_lengths(struct packed *c, bool is_long) {
    struct rng *rng = &c->call.rng;
    const bool list = !c->same && rng_chance(rng, 2);
    const bool no_query = rng_chance(rng, 16), no_key = rng_chance(rng, 16);
    c->sequences.count = rng_between(rng, 1, MOST);
    for (size_t i = 0; i < c->sequences.count; i++) {
        c->queries[i] = i == 0 ? 3 : draw_length(rng, is_long);
        c->keys[i] = list ? (i == 0 ? 4 : draw_length(rng, is_long)) : c->queries[i];
        if (list && rng_chance(rng, 8)) { /* few scores, and so a small call, but many rows */
            c->queries[i] = rng_between(rng, 60, 128);
            c->keys[i] = 1;
        }
        c->queries[i] = no_query ? 0 : c->queries[i];
        c->keys[i] = list ? (no_key ? 0 : c->keys[i]) : c->queries[i];
        c->call.n += c->queries[i];
        c->call.m += c->keys[i];
    }
    c->sequences.queries = c->queries;
    c->sequences.keys = list ? c->keys : NULL;
    c->call.options.sequences = &c->sequences;
}

/* Draws a scaling, and perhaps positions, of which many are beyond those of the training. They may
 * be doubles in every call. */
static void draw_turns(struct packed *c) {
    static const attn_rotary_scaling scalings[] = {ATTN_ROTARY_UNSCALED, ATTN_ROTARY_LINEAR,
                                                   ATTN_ROTARY_DYNAMIC, ATTN_ROTARY_LLAMA3,
                                                   ATTN_ROTARY_PROPORTIONAL};
    struct call *call = &c->call;
    call->rotary = (attn_rotary){.scaling = scalings[rng_between(&call->rng, 0, 4)],
                                 .base = 100,
                                 .factor = 2,
                                 .original_positions = 4,
                                 .low_factor = 1,
                                 .high_factor = 4};
    if (call->rotary.scaling == ATTN_ROTARY_PROPORTIONAL) {
        call->rotary.partial_factor = call->own_d[0] < 4 ? 1 : 0.75;
    }
    if (c->sequences.keys == NULL && rng_chance(&call->rng, 2)) {
        const attn_dtype dtype = call->dtype;
        call->dtype = rng_chance(&call->rng, 2) ? ATTN_FLOAT64 : dtype;
        call->rotary.positions = tensor_of(call, draw_normals(call, call->n, 8), 1, &call->n);
        call->dtype = dtype;
    }
    call->options.rotary = &call->rotary;
}

/* Draws tables of angles, with a row for each position. */
static void draw_tables(struct call *c) {
    const size_t rows = c->n > c->m ? c->n : c->m;
    c->rotary = (attn_rotary){.cos = draw_tensor(c, 2, rows, c->own_d[0] / 2, 0),
                              .sin = draw_tensor(c, 2, rows, c->own_d[0] / 2, 0)};
    c->options.rotary = &c->rotary;
}

static void draw_sequence_options(struct packed *c) {
    struct call *call = &c->call;
    struct rng *rng = &call->rng;
    attn_options *o = &call->options;
    const size_t d = call->own_d[0], keys = call->kv_heads * d,
                 values = call->kv_heads * call->own_d_v[0];
    draw_rules(call);
    o->flags |= rng_chance(rng, 3) ? ATTN_FLAG_BOTTOM_RIGHT : 0;
    for (int side = 0; side < 2 && (o->flags & ATTN_FLAG_WINDOW) != 0; side++) {
        o->window[side] = (int64_t)rng_between(rng, 0, 5) - 1; /* most sequences are short */
    }
    o->flags |= o->alibi_slopes == NULL && rng_chance(rng, 4) ? ATTN_FLAG_ALIBI : 0;
    if (o->causal && rng_chance(rng, 3)) {
        draw_decay(call, rng);
    }
    o->norm_q = rng_chance(rng, 4) ? draw_tensor(call, 1, d, 0, 0) : NULL;
    o->norm_k = rng_chance(rng, 4) ? draw_tensor(call, 1, keys, 0, 0) : NULL;
    o->norm_v = rng_chance(rng, 4) ? draw_tensor(call, 1, values, 0, 0) : NULL;
    o->b_q = rng_chance(rng, 4) ? draw_tensor(call, 2, call->heads, d, 0) : NULL;
    o->b_k = rng_chance(rng, 4) ? draw_tensor(call, 1, keys, 0, 0) : NULL;
    o->b_v = rng_chance(rng, 4) ? draw_tensor(call, 1, values, 0, 0) : NULL;
    o->gate = rng_chance(rng, 3)
                  ? draw_rows(c, call->n, call->heads, rng_chance(rng, 3) ? 1 : call->own_d_v[0])
                  : NULL;
    if (d % 2 == 0 && (o->flags & ATTN_FLAG_BOTTOM_RIGHT) == 0 && rng_chance(rng, 4)) {
        draw_tables(call); /* queries have no positions below 0 */
    } else if (d % 2 == 0 && rng_chance(rng, 3)) {
        draw_turns(c);
    }
}

static void draw_packed(struct packed *c, uint64_t seed) {
    *c = (struct packed){.call = {.rng = {seed * 7919 + 1}, .batch = 1}};
    struct call *call = &c->call;
    struct rng *rng = &call->rng;
    attn_options *o = &call->options;
    const bool is_long = rng_chance(rng, 8);
    call->dtype = rng_chance(rng, 2) ? ATTN_FLOAT32 : ATTN_FLOAT64;
    c->same = rng_chance(rng, 5);
    c->axis = rng_chance(rng, 2);
    call->kv_heads = rng_between(rng, 1, 2);
    call->heads = call->kv_heads * (c->same ? 1 : rng_between(rng, 1, 3));
    call->own_d[0] = rng_between(rng, 1, 8) * (is_long ? 4 : 1);
    call->own_d_v[0] = c->same ? call->own_d[0] : rng_between(rng, 1, 8);
    draw_lengths(c, is_long);
    call->tensor_q = draw_rows(c, call->n, call->heads, call->own_d[0]);
    call->tensor_k =
        c->same ? call->tensor_q : draw_rows(c, call->m, call->kv_heads, call->own_d[0]);
    call->tensor_v =
        c->same ? call->tensor_q : draw_rows(c, call->m, call->kv_heads, call->own_d_v[0]);
    if (!c->axis && (call->heads > 1 || rng_chance(rng, 2))) {
        o->heads = call->heads;
        o->kv_heads = call->kv_heads;
    }
    call->form = c->axis || o->heads != 0 ? PACKED_2D : PLAIN_2D;
    draw_sequence_options(c);
    o->results = RESULTS_OF(RESULT_PACKED) & RESULTS_FORWARD;
    o->results &= o->normalization == ATTN_SOFTMAX ? o->results : ~RESULTS_OF(RESULT_SOFTMAX);
    if (rng_chance(rng, 2)) {
        struct input inputs[INPUTS];
        ask_for_gradients(call, seed, &c->upstream, inputs);
        o->results |= c->same ? ATTN_WANT(GRAD_X) : 0;
    } else if (call->dtype == ATTN_FLOAT32 && o->normalization != ATTN_UNNORMALIZED) {
        o->compute_dtype = (attn_compute_dtype)rng_between(rng, 0, 2); /* no large output */
    }
}

/* ----------------------------------------------------------------------------------------- runs */

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
static const attn_tensor *columns_of(struct call *c, const attn_tensor *t, size_t first,
                                     size_t count) {
    const attn_dtype dtype = c->dtype;
    const size_t heads = t->rank == 1 ? 1 : t->shape[0], columns = t->shape[t->rank - 1];
    double *x = keep_block(c, heads * count * sizeof *x);
    for (size_t i = 0; i < heads * count; i++) {
        x[i] = tensor_number(t, i / count * columns + first + i % count);
    }
    c->dtype = t->dtype;
    const size_t shape[] = {heads, count};
    attn_tensor *some = tensor_of(c, x, t->rank, t->rank == 1 ? &count : shape);
    c->dtype = dtype;
    return some;
}

/* Plans sequence i of a call as a call of its own. */
static attn_plan *plan_alone(struct packed *c, size_t q, size_t k, size_t i) {
    struct call own = c->call;
    attn_options *o = &own.options;
    attn_upstream upstream = c->upstream;
    attn_tensor decay;
    attn_tensor rows[] = {rows_of(own.tensor_q, q, c->queries[i]),
                          rows_of(own.tensor_k, k, c->keys[i]),
                          rows_of(own.tensor_v, k, c->keys[i]),
                          {0},
                          {0}};
    own.tensor_q = &rows[0];
    own.tensor_k = c->same ? own.tensor_q : &rows[1];
    own.tensor_v = c->same ? own.tensor_q : &rows[2];
    o->sequences = NULL;
    if (c->axis) {
        o->heads = own.heads;
        o->kv_heads = own.kv_heads;
    }
    if (o->gate != NULL) {
        rows[4] = rows_of(o->gate, q, c->queries[i]);
        o->gate = &rows[4];
    }
    if (o->decay != NULL) {
        decay = *o->decay;
        decay.shape[0] = c->keys[i];
        decay.data = (const char *)decay.data +
                     k * (decay.rank > 1 ? decay.shape[1] : 1) * attn_dtype_size(own.dtype);
        if (decay.rank == 2) {
            decay.shape[decay.rank++] = 1;
        }
        o->decay = &decay;
    }
    if (o->upstream != NULL) {
        if (upstream.output != NULL) {
            rows[3] = rows_of(upstream.output, q, c->queries[i]);
            upstream.output = &rows[3];
        }
        upstream.lse =
            upstream.lse == NULL ? NULL : columns_of(&c->call, upstream.lse, q, c->queries[i]);
        o->upstream = &upstream;
    }
    if (own.rotary.positions != NULL) {
        own.rotary.positions = columns_of(&c->call, own.rotary.positions, q, c->queries[i]);
        o->rotary = &own.rotary;
    }
    return plan_random_call(&own, i);
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
    MOST_SHARED = MAX_HEADS * 32
};

/* What sequences are compared with. */
struct sums {
    double of[ATTN_RESULT_COUNT][MOST_SHARED], sizes[ATTN_RESULT_COUNT][MOST_SHARED];
    double cost;
};

/* Compares the bytes of some rows: all heads of a row, or the rows of each head. */
static void compare_bytes(const attn_result_tensor *all, const attn_result_tensor *alone,
                          attn_result which, size_t first, size_t index) {
    const bool heads = result_is(which, RESULT_PER_QUERY);
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
    attn_plan *alone = plan_alone(c, q, k, i);
    char *results = run_packed(alone, run_forwards);
    const bool empty = c->queries[i] == 0 || c->keys[i] == 0; /* such rows share tasks */
    sums->cost += empty ? 0 : attn_plan_cost(alone);
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        const attn_result_tensor *got = attn_plan_tensor(plan, (attn_result)r, 0);
        const bool keys =
            r == ATTN_RESULT_GRAD_K || r == ATTN_RESULT_GRAD_V || r == ATTN_RESULT_GRAD_DECAY;
        if (got != NULL && result_is((attn_result)r, RESULT_SHARED)) {
            add_sums(attn_plan_tensor(alone, (attn_result)r, 0), sums, r);
        } else if (got != NULL) {
            compare_bytes(got, attn_plan_tensor(alone, (attn_result)r, 0), (attn_result)r,
                          keys ? k : q, i);
        }
    }
    free(results);
    attn_plan_free(alone);
}

static void check_shared(const attn_plan *plan, const struct sums *sums, attn_dtype dtype) {
    const double bound = dtype == ATTN_FLOAT32 ? 1e-6 : 1e-14;
    for (attn_result r = 0; r < ATTN_RESULT_COUNT; r++) {
        const attn_result_tensor *t = attn_plan_tensor(plan, r, 0);
        for (size_t e = 0; t != NULL && result_is(r, RESULT_SHARED) && e < reals_of(t); e++) {
            cr_assert_float_eq(real_at(t, e), sums->of[r][e], bound * (sums->sizes[r][e] + 1e-300),
                               "%s[%zu] is %g, not %g", attn_result_name(r), e, real_at(t, e),
                               sums->of[r][e]);
        }
    }
}

static void check_packed(uint64_t seed) {
    struct packed c;
    struct sums *sums = calloc(1, sizeof *sums);
    draw_packed(&c, seed);
    attn_plan *plan = plan_random_call(&c.call, seed);
    char *results = run_packed(plan, run_forwards);
    size_t q = 0, k = 0, empty = 0;
    for (size_t i = 0; i < c.sequences.count; q += c.queries[i], k += c.keys[i], i++) {
        compare_sequence(&c, plan, q, k, i, sums);
        empty += c.queries[i] == 0 || c.keys[i] == 0 ? c.queries[i] + c.keys[i] : 0;
    }
    check_shared(plan, sums, c.call.dtype);
    if (c.call.options.compute_dtype !=
        ATTN_COMPUTE_AS_GIVEN) { /* what all share is rounded once */
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
    free_call(&c.call);
}

Test(sequences, each_is_a_call_of_its_own, .timeout = 1200) {
    enum {
        CALLS = 4000
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
    return plan_and_run(&q, &q, &values, &options, (void *[ATTN_RESULT_COUNT]){out}, error);
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
    attn_error error = {0};
    void *const data[ATTN_RESULT_COUNT] = {
        [ATTN_RESULT_OUTPUT] = out, [ATTN_RESULT_GRAD_SINK] = sums};
    cr_assert_eq(plan_and_run(&q, &k, &k, &options, data, &error), ATTN_OK, "%s", error.message);
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
    void *const data[ATTN_RESULT_COUNT] = {
        [ATTN_RESULT_GRAD_SINK] = grad_sink, [ATTN_RESULT_GRAD_B_V] = grad_b_v};
    for (size_t i = 0; i < EQUAL; i++) {
        lengths[i] = 1;
        grad[i] = d;
    }
    return plan_and_run(&q, &q, &q, &options, data, error);
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
