/*
 * test_gradient_rules.c - tests what holds for the gradients of any call: their digits, that they
 * change no other result, the order of tasks, what a forbidden key may hold, plans that run again,
 * and the bytes of a plan. Random calls show it over all options and forms. TEST_SEED chooses other
 * calls.
 */
#include <criterion/criterion.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "attention_calls.h"
#include "random_gradients.h"
#include "support/scale.h"

enum {
    CALLS = 400
};

/* A drawn call, and what was asked for. */
struct drawn {
    struct call *call;
    uint64_t seed;
    attn_upstream upstream;
    struct input inputs[INPUTS];
    size_t count;     /* inputs */
    uint64_t results; /* those that the call draws without gradients */
};

/* Draws a call with gradients. */
static struct drawn draw(uint64_t seed) {
    struct drawn d = {.call = malloc(sizeof *d.call), .seed = seed};
    cr_assert_not_null(d.call);
    attn_plan_free(draw_random_call(d.call, seed));
    d.results = d.call->options.results;
    return d;
}

static void ask_for_all(struct drawn *d) {
    d->count = ask_for_gradients(d->call, d->seed, &d->upstream, d->inputs);
    d->call->options.upstream = &d->upstream; /* `d` may have moved */
}

static void free_drawn(struct drawn *d) {
    free_call(d->call);
    free(d->call);
}

/* Calls `check` with some drawn calls, and returns the sum of what it returns. */
static size_t for_each_call(size_t calls, size_t (*check)(struct drawn *)) {
    const char *other = getenv("TEST_SEED");
    const uint64_t first = 1 + (other != NULL ? strtoull(other, NULL, 10) * calls : 0);
    size_t sum = 0;
    for (uint64_t seed = first; seed < first + test_scale(calls); seed++) {
        struct drawn d = draw(seed);
        sum += check(&d);
        free_drawn(&d);
    }
    return sum;
}

static attn_plan *run_drawn(struct drawn *d) {
    attn_plan *plan = plan_random_call(d->call, d->seed);
    bind_and_run(d->call, plan);
    return plan;
}

/* --------------------------------------------------------------------------------------- digits */

/* Is a float32 call small? Such a call is one task. */
static bool is_small(const attn_plan *plan) {
    size_t tasks = 0;
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        tasks += attn_plan_tasks(plan, phase);
    }
    return tasks == 1;
}

/* A small float32 call has the gradients of the same call in float64, rounded once. */
static size_t check_small(struct drawn *d) {
    if (d->call->dtype != ATTN_FLOAT32) {
        return 0;
    }
    ask_for_all(d);
    attn_plan *narrow = run_drawn(d);
    const bool small = is_small(narrow);
    if (small) {
        widen_call(d->call);
        attn_plan *wide = run_drawn(d);
        for (size_t i = 0; i < d->count; i++) {
            const struct input *input = &d->inputs[i];
            const attn_tensor is = attn_as_tensor(
                                  attn_plan_tensor(narrow, input->gradient, input->part)),
                              want = attn_as_tensor(
                                  attn_plan_tensor(wide, input->gradient, input->part));
            for (size_t e = 0; e < count_of(&want); e++) {
                cr_expect_eq(tensor_number(&is, e), (double)(float)tensor_number(&want, e),
                             "seed %llu: %s", (unsigned long long)d->seed,
                             attn_result_name(input->gradient));
            }
        }
        attn_plan_free(wide);
    }
    attn_plan_free(narrow);
    return small;
}

Test(gradients, of_small_calls_are_rounded_once) {
    cr_expect_geq(for_each_call(5 * CALLS, check_small), test_scale(CALLS) / 10);
}

/* The results beside gradients have the bytes that they have alone. */
static size_t check_others(struct drawn *d) {
    attn_plan *alone = run_drawn(d);
    ask_for_all(d);
    attn_plan *beside = run_drawn(d);
    /* One query of grouped heads is computed in another way, within the bounds of any result. */
    const bool merged = d->call->n == 1 && d->call->heads > d->call->kv_heads && !is_small(beside);
    expect_same_parts(d->seed, alone, beside, merged ? 0 : d->results,
                      "is not the one beside gradients");
    attn_plan_free(alone);
    attn_plan_free(beside);
    return 1;
}

Test(gradients, change_no_result_of_any_form) {
    for_each_call(CALLS, check_others);
}

/* The logits are about 2^39, and differ by less than 2. So their rounding shows in the weights. */
Test(gradients, change_no_output_of_a_small_call_with_large_logits) {
    double q[] = {1e6, 1, 0}, k[] = {1e6, 0, 0, 1e6, 1, 0, 1e6, 2, 0}, v[] = {1, 2, 4, 5, 7, 8},
           output[2][2], grad_q[3];
    const attn_tensor tensors[] = {{q, ATTN_FLOAT64, 2, {1, 3}},
                                   {k, ATTN_FLOAT64, 2, {3, 3}},
                                   {v, ATTN_FLOAT64, 2, {3, 2}},
                                   {v, ATTN_FLOAT64, 2, {1, 2}}};
    const attn_upstream upstream = {.output = &tensors[3]};
    for (int with = 0; with < 2; with++) {
        const attn_options o = {.results = ATTN_WANT(OUTPUT) | (with ? ATTN_WANT(GRAD_Q) : 0),
                                .upstream = with ? &upstream : NULL};
        attn_plan *plan;
        cr_assert_eq(attn_plan_attention(&plan, &tensors[0], &tensors[1], &tensors[2], &o, NULL),
                     ATTN_OK);
        attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, output[with]);
        attn_plan_bind(plan, ATTN_RESULT_GRAD_Q, 0, grad_q);
        cr_assert_eq(attn_plan_run(plan, NULL), ATTN_OK);
        attn_plan_free(plan);
    }
    cr_expect_arr_eq(output[0], output[1], sizeof output[0]);
}

/* The last digit of these logits, 10^19, decides the weights, so lse and gradients need the same
 * ones. The largest logit has the weight 1, and the gradient of lse by Q is the row of its key. */
Test(gradients, of_a_small_call_with_huge_logits_have_the_weights_of_lse) {
    enum {
        N = 3,
        M = 4,
        D = 6
    };
    double q[N * D], k[M * D], lse[N], grad_q[N * D];
    const double ones[N] = {1, 1, 1};
    const attn_tensor of_q = {q, ATTN_FLOAT64, 2, {N, D}}, of_k = {k, ATTN_FLOAT64, 2, {M, D}},
                      grad_lse = {ones, ATTN_FLOAT64, 1, {N}};
    const attn_upstream upstream = {.lse = &grad_lse};
    const attn_options o = {.results = ATTN_WANT(LSE) | ATTN_WANT(GRAD_Q), .upstream = &upstream};
    for (int draw = 0; draw < 100; draw++) {
        for (int i = 0; i < M * D; i++) {
            k[i] = sin(draw + 1.7 * i) * (i / D == draw % M ? 1e19 : 1);
            q[i % (N * D)] = cos(2.3 * draw + i);
        }
        attn_plan *plan;
        cr_assert_eq(attn_plan_attention(&plan, &of_q, &of_k, &of_k, &o, NULL), ATTN_OK);
        attn_plan_bind(plan, ATTN_RESULT_LSE, 0, lse);
        attn_plan_bind(plan, ATTN_RESULT_GRAD_Q, 0, grad_q);
        cr_assert_eq(attn_plan_run(plan, NULL), ATTN_OK);
        attn_plan_free(plan);
        for (int i = 0; i < N * D; i++) {
            const double want = k[draw % M * D + i % D] / sqrt(D);
            cr_expect(lse[i / D] < 1e10 || fabs(grad_q[i] - want) <= 1e-12 * fabs(want),
                      "draw %d: %g, not %g", draw, grad_q[i], want);
        }
    }
}

/* ------------------------------------------------------------------------------- order of tasks */

static size_t check_order(struct drawn *d) {
    ask_for_all(d);
    attn_plan *plan = run_drawn(d);
    expect_any_order(d->call, d->seed, plan);
    attn_plan_free(plan);
    return 1;
}

Test(gradients, do_not_depend_on_the_order_of_tasks) {
    for_each_call(CALLS, check_order);
}

/* ----------------------------------------------------------------------- what nobody attends to */

/* The pairs of a query and a key that is forbidden to it: (B,H,n,m). */
static unsigned char *forbidden_pairs(struct drawn *d) {
    const size_t pairs = d->call->batch * d->call->heads * d->call->n * d->call->m;
    unsigned char *forbidden = keep_block(d->call, pairs);
    const uint64_t results = d->call->options.results;
    d->call->options.results = ATTN_WANT(MASKED_SCORES);
    attn_plan *plan = run_drawn(d);
    const attn_tensor scores = attn_as_tensor(attn_plan_tensor(plan, ATTN_RESULT_MASKED_SCORES, 0));
    cr_assert_eq(count_of(&scores), pairs);
    for (size_t i = 0; i < pairs; i++) {
        forbidden[i] = tensor_number(&scores, i) == -INFINITY;
    }
    attn_plan_free(plan);
    d->call->options.results = results;
    return forbidden;
}

/* The queries (B,H,n) of a call that attend to no key, and the keys (B,H,m) to which no query
 * attends. */
struct unseen {
    const struct call *call;
    const unsigned char *pairs;
};

static bool query_is_unseen(const struct unseen *u, size_t b, size_t h, size_t i) {
    const struct call *c = u->call;
    return memchr(u->pairs + ((b * c->heads + h) * c->n + i) * c->m, 0, c->m) == NULL;
}

/* The same for a row of a matrix: the row belongs to all heads and items that share it. */
static bool row_is_unseen(const struct unseen *u, const struct own *own, size_t item, size_t head,
                          size_t i) {
    const size_t group = u->call->heads / own->heads;
    for (size_t b = 0; b < u->call->batch; b++) {
        for (size_t h = head * group; (b == item || own->one) && h < (head + 1) * group; h++) {
            if (!query_is_unseen(u, b, h, i)) {
                return false;
            }
        }
    }
    return true;
}

/* Is a key of all heads and, if items share it, of all items unseen? */
static bool key_is_unseen(const struct unseen *u, const struct own *own, size_t item, size_t j) {
    const struct call *c = u->call;
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t i = 0; (b == item || own->one) && i < c->heads * c->n; i++) {
            if (u->pairs[(b * c->heads * c->n + i) * c->m + j] == 0) {
                return false;
            }
        }
    }
    return true;
}

enum {
    MARK = 77 /* X and contexts get it, because their numbers must be finite */
};

/* Writes a number that is not finite, or MARK, to element i of a tensor. */
static void poison(const struct unseen *u, const attn_tensor *t, size_t i) {
    const attn_multihead *call = &u->call->multihead;
    const bool finite = t == call->x || t == call->context || t == call->value_context;
    const double bad = finite ? MARK : i % 3 == 0 ? (double)NAN : i % 3 == 1 ? INFINITY : -INFINITY;
    set_number((void *)(uintptr_t)t->data, t->dtype, i, bad);
}

/* Poisons the rows of keys or values from key `first` on that are unseen. */
static void poison_keys(const struct unseen *u, const attn_tensor *t, size_t first,
                        const struct own *own) {
    if (t == NULL) {
        return;
    }
    const size_t heads = form_is_packed(own->form) ? 1 : own->heads;
    const size_t columns = t->shape[t->rank - 1], rows = t->shape[t->rank - 2];
    for (size_t e = 0; e < count_of(t); e++) {
        const size_t row = e / columns, b = row / rows / heads;
        if (key_is_unseen(u, own, b, first + row % rows)) {
            poison(u, t, e);
        }
    }
}

/* Poisons the rows of X that are neither a query with a key nor a key with a query. */
static void poison_x(const struct unseen *u) {
    const struct call *c = u->call;
    const attn_tensor *x = c->multihead.x;
    const struct own own = {.heads = 1};
    const size_t columns = x->shape[x->rank - 1];
    for (size_t e = 0; e < count_of(x); e++) {
        const size_t row = e / columns, b = row / c->n, i = row % c->n;
        if (row_is_unseen(u, &own, b, 0, i) &&
            (c->multihead.context != NULL || key_is_unseen(u, &own, b, c->past + i))) {
            poison(u, x, e);
        }
    }
}

/* Poisons the rows of Q that are queries without a key. */
static void poison_q(const struct unseen *u) {
    const struct call *c = u->call;
    const struct own *own = &c->own_q;
    const bool packed = form_is_packed(own->form);
    const attn_tensor *norm = c->options.norm_q;
    const bool whole = norm != NULL && norm->shape[0] > c->own_d[0]; /* it goes over all heads */
    const struct own norms = {.one = own->one, .heads = 1};
    for (size_t row = 0; row < (own->one ? 1 : c->batch) * own->heads * c->n; row++) {
        const size_t b = row / c->n / own->heads, h = row / c->n % own->heads, i = row % c->n;
        const size_t at = packed ? (b * c->n + i) * own->heads + h : row;
        const bool unseen =
            whole ? row_is_unseen(u, &norms, b, 0, i) : row_is_unseen(u, own, b, h, i);
        for (size_t e = 0; e < c->own_d[0] && unseen; e++) {
            poison(u, c->tensor_q, at * c->own_d[0] + e);
        }
    }
}

/* Poisons the gradients of results for queries without a key, and the gradients of weights of
 * forbidden keys. */
static void poison_upstream(const struct unseen *u) {
    const struct call *c = u->call;
    const attn_upstream *up = c->options.upstream;
    const bool mean = (c->options.flags & ATTN_FLAG_MEAN_OVER_HEADS) != 0;
    for (size_t row = 0; row < c->batch * c->heads * c->n; row++) {
        const size_t b = row / c->n / c->heads, h = row / c->n % c->heads, i = row % c->n;
        const size_t at = form_is_packed(c->form) ? (b * c->n + i) * c->heads + h : row;
        const bool unseen = query_is_unseen(u, b, h, i), own = c->form != PROJECTED;
        for (size_t e = 0; e < c->own_d_v[0] && unseen && own && up->output != NULL; e++) {
            poison(u, up->output, at * c->own_d_v[0] + e);
        }
        if (unseen && up->lse != NULL && c->sinks == NULL) {
            poison(u, up->lse, row);
        }
        for (size_t j = 0; j < c->m && up->weights != NULL && !mean; j++) {
            if (u->pairs[row * c->m + j]) {
                poison(u, up->weights, row * c->m + j);
            }
        }
    }
}

/* Neither NaN nor infinity reaches a gradient from a key that is forbidden to all queries, from a
 * query that may attend to no key, or from their gradients. The gradients of these rows are exact
 * zeros, and the others stay as they were. */
static size_t check_poison(struct drawn *d) {
    struct call *c = d->call;
    size_t zeros = 0;
    const struct unseen u = {c, forbidden_pairs(d)};
    c->options.results = 0; /* the stages of these rows are not finite */
    ask_for_all(d);
    attn_plan *want = run_drawn(d);
    poison_keys(&u, c->tensor_k, c->past, &c->own_k);
    poison_keys(&u, c->tensor_v, c->past, &c->own_v);
    poison_keys(&u, c->options.past_k, 0, &c->own_k);
    poison_keys(&u, c->options.past_v, 0, &c->own_v);
    poison_upstream(&u);
    if (c->form == PROJECTED) {
        const struct own context = {.heads = 1};
        poison_x(&u);
        poison_keys(&u, c->multihead.context, c->past, &context);
        poison_keys(&u, c->multihead.value_context, c->past, &context);
    } else {
        poison_q(&u);
    }
    attn_plan *plan = run_drawn(d);
    for (size_t k = 0; k < d->count; k++) {
        const struct input *input = &d->inputs[k];
        const attn_tensor is = attn_as_tensor(attn_plan_tensor(plan, input->gradient, input->part)),
                          was =
                              attn_as_tensor(attn_plan_tensor(want, input->gradient, input->part));
        double largest = 1;
        for (size_t e = 0; e < count_of(&is); e++) {
            largest = fmax(largest, fabs(tensor_number(&was, e)));
        }
        if (input->gradient == ATTN_RESULT_GRAD_ALIBI) { /* it is a sum over all queries */
            largest = fmax(largest, (double)(c->n * c->m));
        }
        const double bound = (c->dtype == ATTN_FLOAT32 ? 4e-6 : 1e-13) * largest;
        for (size_t e = 0; e < count_of(&is); e++) {
            const double x = tensor_number(&is, e), y = tensor_number(&was, e);
            const double given = tensor_number(input->tensor, e);
            const bool bad = !isfinite(given) || given == MARK;
            zeros += bad;
            cr_expect(bad ? x == 0 && y == 0 : fabs(x - y) <= bound,
                      "seed %llu: %s[%zu] is %g, and was %g", (unsigned long long)d->seed,
                      attn_result_name(input->gradient), e, x, y);
        }
    }
    attn_plan_free(want);
    attn_plan_free(plan);
    return zeros;
}

Test(gradients, of_what_nobody_attends_to_are_zeros) {
    cr_expect_gt(for_each_call(CALLS, check_poison), 20 * test_scale(CALLS));
}

/* ------------------------------------------------------------------------- plans that run again */

/* Draws new numbers for all inputs and gradients of results. -inf remains. */
static void change_inputs(struct drawn *d) {
    for (size_t t = 0; t < d->call->tensor_count; t++) {
        const attn_tensor *tensor = d->call->tensors[t];
        const bool decay = tensor == d->call->options.decay; /* at most 0 */
        if (tensor->dtype != d->call->dtype || tensor == d->call->rotary.positions) {
            continue;
        }
        for (size_t i = 0; i < count_of(tensor); i++) {
            const double x = tensor_number(tensor, i) * 0.75 + (decay ? 0 : 0.0625);
            set_number((void *)(uintptr_t)tensor->data, tensor->dtype, i, x);
        }
    }
}

/* A plan that was left in the middle and runs again gives the same bytes. If its inputs change, it
 * gives the results of a new plan. */
static size_t check_again(struct drawn *d) {
    ask_for_all(d);
    attn_plan *want = run_drawn(d), *plan = plan_random_call(d->call, d->seed);
    bind_all(d->call, plan);
    const size_t units = attn_plan_scratch(plan) / ATTN_ALIGNMENT + 1;
    void *scratch = aligned_alloc(ATTN_ALIGNMENT, units * ATTN_ALIGNMENT);
    const size_t last = rng_between(&d->call->rng, 0, attn_plan_phases(plan));
    cr_assert_eq(attn_plan_begin(plan, NULL), ATTN_OK);
    for (size_t phase = 0; phase < last; phase++) {
        for (size_t task = 0; task < attn_plan_tasks(plan, phase); task++) {
            attn_plan_task(plan, phase, task, scratch, NULL);
        }
    }
    free(scratch);
    for (int time = 0; time < 2; time++) {
        cr_assert_eq(attn_plan_run(plan, NULL), ATTN_OK);
        expect_same_parts(d->seed, want, plan, UINT64_MAX,
                          "is another one when the plan runs again");
    }
    change_inputs(d);
    attn_plan_free(want);
    want = run_drawn(d);
    cr_assert_eq(attn_plan_run(plan, NULL), ATTN_OK);
    expect_same_parts(d->seed, want, plan, UINT64_MAX, "does not follow the inputs");
    attn_plan_free(want);
    attn_plan_free(plan);
    return 1;
}

Test(gradients, of_a_plan_that_runs_again_follow_its_inputs) {
    for_each_call(CALLS, check_again);
}

/* ---------------------------------------------------------------------------------------- bytes */

/* Returns the bytes that are allocated, or 0 in a program with a sanitizer. */
static size_t allocated(void) {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* The C library keeps freed blocks of small sizes for the thread, and counts them as allocated.
 * While the test holds `blocks`, there are none of them. */
enum {
    CACHED_SIZES = 64,
    CACHED_EACH = 16
};
static void take_cached(void *blocks[CACHED_SIZES][CACHED_EACH]) {
    for (size_t size = 0; size < CACHED_SIZES; size++) {
        for (size_t i = 0; i < CACHED_EACH; i++) {
            blocks[size][i] = malloc(16 * size + 24);
        }
    }
}

static void give_cached(void *blocks[CACHED_SIZES][CACHED_EACH]) {
    for (size_t size = 0; size < CACHED_SIZES; size++) {
        for (size_t i = 0; i < CACHED_EACH; i++) {
            free(blocks[size][i]);
        }
    }
}

/* A plan and its run allocate what attn_plan_bytes() says, beside the rounding of each block. */
static size_t check_bytes(struct drawn *d) {
    enum {
        ROUNDING = 40 * 100 + 4 * 4096 /* of all blocks, of which some are pages of their own */
    };
    void *cached[CACHED_SIZES][CACHED_EACH];
    ask_for_all(d);
    take_cached(cached);
    const size_t before = allocated();
    attn_plan *plan = plan_random_call(d->call, d->seed);
    size_t bytes, results;
    cr_assert(attn_plan_bytes(plan, 0, &bytes) && attn_plan_results_bytes(plan, &results));
    const size_t planned = allocated() - before;
    bind_all(d->call, plan);
    const size_t bound = allocated();
    cr_assert_eq(attn_plan_begin(plan, NULL), ATTN_OK);
    const size_t taken = planned + allocated() - bound;
    cr_expect_leq(taken, bytes - results + ROUNDING, "seed %llu", (unsigned long long)d->seed);
    cr_expect(taken == 0 || bytes - results <= taken, "seed %llu: %zu, not %zu",
              (unsigned long long)d->seed, bytes - results, taken);
    attn_plan_free(plan);
    give_cached(cached);
    return 1;
}

Test(gradients, take_the_bytes_of_their_plan) {
    for_each_call(CALLS, check_bytes);
}
