/*
 * test_gradient_rules.c - tests what holds for the gradients of any call: their digits, that they
 * change no other result, what a forbidden key may hold, the order of tasks, and plans that run
 * again. Random calls show it over all options and forms. TEST_SEED chooses other calls.
 */
#include <criterion/criterion.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
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
    struct random_call *call;
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
    free_random_call(d->call);
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

/* Expects that the results of two plans, of these sets, have the same bytes. */
static void expect_same(const struct drawn *d, const attn_plan *a, const attn_plan *b,
                        uint64_t results, const char *what) {
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        for (size_t part = 0; part < attn_plan_parts(a, (attn_result)r); part++) {
            const attn_result_tensor *x = attn_plan_tensor(a, (attn_result)r, part),
                                     *y = attn_plan_tensor(b, (attn_result)r, part);
            const attn_tensor t = attn_as_tensor(x);
            size_t bytes;
            cr_assert(attn_tensor_bytes(&t, &bytes));
            cr_expect((results >> r & 1) == 0 || memcmp(x->data, y->data, bytes) == 0,
                      "seed %llu: %s %s", (unsigned long long)d->seed,
                      attn_result_name((attn_result)r), what);
        }
    }
}

/* --------------------------------------------------------------------------------------- digits */

/* Is a float32 call small? Such a call has one task, and another one for its gradients. */
static bool is_small(const attn_plan *plan) {
    size_t tasks = 0;
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        tasks += attn_plan_tasks(plan, phase);
    }
    return tasks == 2;
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
                cr_expect_eq(number_at(&is, e), (double)(float)number_at(&want, e), "seed %llu: %s",
                             (unsigned long long)d->seed, attn_result_name(input->gradient));
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
    const bool merged = d->call->n == 1 && d->call->H > d->call->KV && !is_small(beside);
    expect_same(d, alone, beside, merged ? 0 : d->results, "is not the one beside gradients");
    attn_plan_free(alone);
    attn_plan_free(beside);
    return 1;
}

Test(gradients, change_no_result_of_any_form) {
    for_each_call(CALLS, check_others);
}

/* ------------------------------------------------------------------------------- order of tasks */

/* Threads that take the tasks of a phase. */
struct team {
    attn_plan *plan;
    size_t phase;
    atomic_size_t next;
    atomic_int failed;
};

static void *take_tasks(void *data) {
    struct team *team = data;
    const size_t units = attn_plan_scratch(team->plan) / ATTN_ALIGNMENT + 1;
    void *scratch = aligned_alloc(ATTN_ALIGNMENT, units * ATTN_ALIGNMENT);
    const size_t tasks = attn_plan_tasks(team->plan, team->phase);
    for (size_t task; (task = atomic_fetch_add(&team->next, 1)) < tasks;) {
        if (attn_plan_task(team->plan, team->phase, task, scratch, NULL) != ATTN_OK) {
            team->failed = 1;
        }
    }
    free(scratch);
    return NULL;
}

static void run_on_threads(attn_plan *plan, size_t count) {
    struct team team = {.plan = plan};
    pthread_t threads[64];
    cr_assert_eq(attn_plan_begin(plan, NULL), ATTN_OK);
    for (; team.phase < attn_plan_phases(plan); team.phase++) {
        team.next = 0;
        for (size_t i = 0; i < count; i++) {
            cr_assert_eq(pthread_create(&threads[i], NULL, take_tasks, &team), 0);
        }
        for (size_t i = 0; i < count; i++) {
            pthread_join(threads[i], NULL);
        }
    }
    cr_assert_eq(team.failed, 0);
    cr_assert_eq(attn_plan_end(plan, NULL), ATTN_OK);
}

static size_t check_order(struct drawn *d) {
    attn_error error = {0};
    ask_for_all(d);
    attn_plan *plan = run_drawn(d), *backwards = plan_random_call(d->call, d->seed);
    bind_all(d->call, backwards);
    cr_assert_eq(run_backwards(backwards, &error), ATTN_OK, "%s", error.message);
    expect_same(d, plan, backwards, UINT64_MAX, "depends on the order of tasks");
    attn_plan_free(plan);
    attn_plan_free(backwards);
    return 1;
}

Test(gradients, do_not_depend_on_the_order_of_tasks) {
    for_each_call(CALLS, check_order);
}

/* Sizes at which each phase has many tasks. */
static const struct {
    unsigned kind;
    size_t heads, n, m, d, d_v;
} sizes_of_many_tasks[] = {{PLAIN, 2, 300, 700, 40, 24},
                           {ALL, 4, 300, 300, 16, 64},
                           {SHARED | BIAS | CAUSAL, 2, 1000, 300, 8, 20},
                           {GROUPED | PAST | SINK, 4, 200, 5000, 8, 8}};

static attn_status run_on_one(attn_plan *plan, attn_error *error) {
    (void)error;
    run_on_threads(plan, 1);
    return ATTN_OK;
}

static attn_status run_on_two(attn_plan *plan, attn_error *error) {
    (void)error;
    run_on_threads(plan, 2);
    return ATTN_OK;
}

static attn_status run_on_many(attn_plan *plan, attn_error *error) {
    (void)error;
    run_on_threads(plan, 64);
    return ATTN_OK;
}

Test(gradients, do_not_depend_on_the_threads, .timeout = 120) {
    run_tasks *const ways[] = {run_on_one, run_on_two, run_on_many, run_backwards};
    for (size_t at = 0; at < sizeof sizes_of_many_tasks / sizeof *sizes_of_many_tasks * 2; at++) {
        const size_t s = at / 2;
        struct call c = draw_call(sizes_of_many_tasks[s].kind, at % 2 ? ATTN_FLOAT64 : ATTN_FLOAT32,
                                  sizes_of_many_tasks[s].heads, sizes_of_many_tasks[s].n,
                                  sizes_of_many_tasks[s].m, sizes_of_many_tasks[s].d,
                                  sizes_of_many_tasks[s].d_v);
        if (too_slow(c.heads * c.batch, c.n, c.m, c.d + c.d_v)) {
            free_call(&c);
            continue;
        }
        const size_t numbers = c.batch * c.heads * c.n * c.d_v;
        double *x = allocate(numbers, sizeof *x);
        for (size_t i = 0; i < numbers; i++) {
            x[i] = (double)(i % 31) / 8 - 2;
        }
        const attn_tensor output = rows_of_heads(&c, x, c.heads, c.n, 0, c.n, c.d_v);
        const attn_upstream up = {.output = &output};
        c.options.upstream = &up;
        struct results want = run_call(&c, gradients_of(&c));
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            struct results is = try_call_by(&c, gradients_of(&c), ways[way]);
            for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
                cr_expect(want.of[r] == NULL ||
                              memcmp(want.of[r], is.of[r], want.count[r] * sizeof(double)) == 0,
                          "case %zu, way %zu: %s", at, way, attn_result_name((attn_result)r));
            }
            free_results(&is);
        }
        free_results(&want);
        free((void *)(uintptr_t)output.data);
        free(x);
        free_call(&c);
    }
}

/* ----------------------------------------------------------------------- what nobody attends to */

/* The pairs of a query and a key that is forbidden to it: (B,H,n,m). */
static unsigned char *forbidden_pairs(struct drawn *d) {
    const size_t pairs = d->call->B * d->call->H * d->call->n * d->call->m;
    unsigned char *forbidden = keep_block(d->call, pairs);
    const uint64_t results = d->call->options.results;
    d->call->options.results = ATTN_WANT(MASKED_SCORES);
    attn_plan *plan = run_drawn(d);
    const attn_tensor scores = attn_as_tensor(attn_plan_tensor(plan, ATTN_RESULT_MASKED_SCORES, 0));
    cr_assert_eq(count_of(&scores), pairs);
    for (size_t i = 0; i < pairs; i++) {
        forbidden[i] = number_at(&scores, i) == -INFINITY;
    }
    attn_plan_free(plan);
    d->call->options.results = results;
    return forbidden;
}

/* The queries (B,H,n) of a call that attend to no key, and the keys (B,H,m) to which no query
 * attends. */
struct unseen {
    const struct random_call *call;
    const unsigned char *pairs;
};

static bool query_is_unseen(const struct unseen *u, size_t b, size_t h, size_t i) {
    const struct random_call *c = u->call;
    return memchr(u->pairs + ((b * c->H + h) * c->n + i) * c->m, 0, c->m) == NULL;
}

/* The same for a row of a matrix: the row belongs to all heads and items that share it. */
static bool row_is_unseen(const struct unseen *u, const struct own *own, size_t item, size_t head,
                          size_t i) {
    const size_t group = u->call->H / own->heads;
    for (size_t b = 0; b < u->call->B; b++) {
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
    const struct random_call *c = u->call;
    for (size_t b = 0; b < c->B; b++) {
        for (size_t i = 0; (b == item || own->one) && i < c->H * c->n; i++) {
            if (u->pairs[(b * c->H * c->n + i) * c->m + j] == 0) {
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
    if (t->dtype == ATTN_FLOAT32) {
        ((float *)(uintptr_t)t->data)[i] = (float)bad;
    } else {
        ((double *)(uintptr_t)t->data)[i] = bad;
    }
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
    const struct random_call *c = u->call;
    const attn_tensor *x = c->multihead.x;
    const struct own own = {.heads = 1};
    const size_t columns = x->shape[x->rank - 1];
    for (size_t e = 0; e < count_of(x); e++) {
        const size_t row = e / columns, b = row / c->n, i = row % c->n;
        if (row_is_unseen(u, &own, b, 0, i) &&
            (c->multihead.context != NULL || key_is_unseen(u, &own, b, c->p + i))) {
            poison(u, x, e);
        }
    }
}

/* Poisons the rows of Q that are queries without a key. */
static void poison_q(const struct unseen *u) {
    const struct random_call *c = u->call;
    const struct own *own = &c->own_q;
    const bool packed = form_is_packed(own->form);
    const attn_tensor *norm = c->options.norm_q;
    const bool whole = norm != NULL && norm->shape[0] > c->d[0]; /* it goes over all heads */
    const struct own norms = {.one = own->one, .heads = 1};
    for (size_t row = 0; row < (own->one ? 1 : c->B) * own->heads * c->n; row++) {
        const size_t b = row / c->n / own->heads, h = row / c->n % own->heads, i = row % c->n;
        const size_t at = packed ? (b * c->n + i) * own->heads + h : row;
        const bool unseen =
            whole ? row_is_unseen(u, &norms, b, 0, i) : row_is_unseen(u, own, b, h, i);
        for (size_t e = 0; e < c->d[0] && unseen; e++) {
            poison(u, c->q, at * c->d[0] + e);
        }
    }
}

/* Poisons the gradients of results for queries without a key, and the gradients of weights of
 * forbidden keys. */
static void poison_upstream(const struct unseen *u) {
    const struct random_call *c = u->call;
    const attn_upstream *up = c->options.upstream;
    const bool mean = (c->options.flags & ATTN_FLAG_MEAN_OVER_HEADS) != 0;
    for (size_t row = 0; row < c->B * c->H * c->n; row++) {
        const size_t b = row / c->n / c->H, h = row / c->n % c->H, i = row % c->n;
        const size_t at = form_is_packed(c->form) ? (b * c->n + i) * c->H + h : row;
        const bool unseen = query_is_unseen(u, b, h, i), own = c->form != PROJECTED;
        for (size_t e = 0; e < c->d_v[0] && unseen && own && up->output != NULL; e++) {
            poison(u, up->output, at * c->d_v[0] + e);
        }
        if (unseen && up->lse != NULL && !c->has_sinks) {
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
    struct random_call *c = d->call;
    size_t zeros = 0;
    const struct unseen u = {c, forbidden_pairs(d)};
    c->options.results = 0; /* the stages of these rows are not finite */
    ask_for_all(d);
    attn_plan *want = run_drawn(d);
    poison_keys(&u, c->k, c->p, &c->own_k);
    poison_keys(&u, c->v, c->p, &c->own_v);
    poison_keys(&u, c->options.past_k, 0, &c->own_k);
    poison_keys(&u, c->options.past_v, 0, &c->own_v);
    poison_upstream(&u);
    if (c->form == PROJECTED) {
        const struct own context = {.heads = 1};
        poison_x(&u);
        poison_keys(&u, c->multihead.context, c->p, &context);
        poison_keys(&u, c->multihead.value_context, c->p, &context);
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
            largest = fmax(largest, fabs(number_at(&was, e)));
        }
        if (input->gradient == ATTN_RESULT_GRAD_ALIBI) { /* it is a sum over all queries */
            largest = fmax(largest, (double)(c->n * c->m));
        }
        const double bound = (c->dtype == ATTN_FLOAT32 ? 4e-6 : 1e-13) * largest;
        for (size_t e = 0; e < count_of(&is); e++) {
            const double x = number_at(&is, e), y = number_at(&was, e);
            const double given = number_at(input->tensor, e);
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
        const attn_tensor *tensor = &d->call->tensors[t];
        if (tensor->dtype != d->call->dtype || tensor == d->call->rotary.positions) {
            continue;
        }
        for (size_t i = 0; i < count_of(tensor); i++) {
            const double x = number_at(tensor, i) * 0.75 + 0.0625;
            if (tensor->dtype == ATTN_FLOAT32) {
                ((float *)(uintptr_t)tensor->data)[i] = (float)x;
            } else {
                ((double *)(uintptr_t)tensor->data)[i] = x;
            }
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
        expect_same(d, want, plan, UINT64_MAX, "is another one when the plan runs again");
    }
    change_inputs(d);
    attn_plan_free(want);
    want = run_drawn(d);
    cr_assert_eq(attn_plan_run(plan, NULL), ATTN_OK);
    expect_same(d, want, plan, UINT64_MAX, "does not follow the inputs");
    attn_plan_free(want);
    attn_plan_free(plan);
    return 1;
}

Test(gradients, of_a_plan_that_runs_again_follow_its_inputs) {
    for_each_call(CALLS, check_again);
}

/* ------------------------------------------------------------------------------- single calls */

/* Runs a plan of float64 results in one buffer, and returns the buffer. */
static double *run_alone(attn_plan *plan) {
    attn_error error = {0};
    size_t bytes;
    cr_assert(attn_plan_results_bytes(plan, &bytes));
    double *buffer = aligned_alloc(ATTN_ALIGNMENT, bytes);
    cr_assert_eq(attn_plan_bind_all(plan, buffer), ATTN_OK);
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
    return buffer;
}

static attn_tensor matrix_of(const void *data, attn_dtype dtype, size_t rows, size_t columns) {
    return (attn_tensor){.data = data, .dtype = dtype, .rank = 2, .shape = {rows, columns}};
}

enum {
    ROWS = 40,
    WIDE = 24
};

/* If one matrix is Q, K and V, its gradient is the sum of theirs. The others need not be
 * results. */
Test(gradients, of_one_matrix_are_the_sum_of_three) {
    for (int at = 0; at < 4; at++) {
        const attn_dtype dtype = at % 2 ? ATTN_FLOAT64 : ATTN_FLOAT32;
        const size_t rows = at < 2 ? 4 : ROWS; /* small, or not */
        struct call c = draw_call(PLAIN, dtype, 1, rows, rows, WIDE, WIDE);
        const attn_tensor given = rows_of_heads(&c, c.q, 1, rows, 0, rows, WIDE);
        const attn_tensor x = matrix_of(given.data, dtype, rows, WIDE), k = x, v = x;
        const attn_upstream up = {.output = &x};
        const uint64_t three = ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V);
        const attn_options apart = {.results = three, .upstream = &up},
                           alone = {.results = ATTN_WANT(GRAD_X), .upstream = &up},
                           beside = {.results = ATTN_WANT(GRAD_X) | three, .upstream = &up};
        attn_plan *plans[3];
        cr_assert_eq(attn_plan_attention(&plans[0], &x, &k, &v, &apart, NULL), ATTN_OK);
        cr_assert_eq(attn_plan_attention(&plans[1], &x, &x, &x, &alone, NULL), ATTN_OK);
        cr_assert_eq(attn_plan_attention(&plans[2], &x, &x, &x, &beside, NULL), ATTN_OK);
        double *buffers[3];
        for (int i = 0; i < 3; i++) {
            buffers[i] = run_alone(plans[i]);
        }
        for (size_t e = 0; e < rows * WIDE; e++) {
            double sum = 0;
            for (int r = ATTN_RESULT_GRAD_Q; r <= ATTN_RESULT_GRAD_V; r++) {
                const attn_tensor t = attn_as_tensor(attn_plan_tensor(plans[0], (attn_result)r, 0)),
                                  u = attn_as_tensor(attn_plan_tensor(plans[2], (attn_result)r, 0));
                sum += number_at(&t, e);
                cr_assert_eq(number_at(&t, e), number_at(&u, e));
            }
            for (int i = 1; i < 3; i++) {
                const attn_tensor t =
                    attn_as_tensor(attn_plan_tensor(plans[i], ATTN_RESULT_GRAD_X, 0));
                cr_assert_float_eq(number_at(&t, e), sum, (at % 2 ? 1e-14 : 1e-6) * 10);
            }
        }
        for (int i = 0; i < 3; i++) {
            attn_plan_free(plans[i]);
            free(buffers[i]);
        }
        free((void *)(uintptr_t)given.data);
        free_call(&c);
    }
}

/* Prepacked weights give the gradients by inputs and biases that plain ones give. */
Test(gradients, of_prepacked_weights_reach_inputs_and_biases) {
    static const uint64_t wanted = ATTN_WANT(GRAD_X) | ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_B_Q) |
                                   ATTN_WANT(GRAD_B_V) | ATTN_WANT(GRAD_B_O);
    for (int at = 0; at < 4; at++) {
        const attn_dtype dtype = at % 2 ? ATTN_FLOAT64 : ATTN_FLOAT32;
        const size_t rows = at < 2 ? 3 : ROWS, columns = 72; /* more than are packed together */
        struct call c = draw_call(PLAIN, dtype, 1, columns, columns, columns, columns);
        for (size_t e = 0; e < columns * columns; e++) {
            c.q[e] /= 4; /* scores of about the size of 1 */
        }
        const attn_tensor all = rows_of_heads(&c, c.q, 1, columns, 0, columns, columns);
        const attn_tensor x = matrix_of(all.data, dtype, rows, columns),
                          w = matrix_of(all.data, dtype, columns, columns),
                          b = {.data = all.data, .dtype = dtype, .rank = 1, .shape = {columns}};
        size_t bytes;
        attn_tensor packed;
        cr_assert_eq(attn_prepack_bytes(&w, ATTN_OUT_IN, &bytes, NULL), ATTN_OK);
        void *memory = aligned_alloc(ATTN_ALIGNMENT, bytes);
        cr_assert_eq(attn_prepack(&w, ATTN_OUT_IN, memory, &packed, NULL), ATTN_OK);
        const attn_projection plain = {&w, &w, &w, &b, NULL, &b},
                              stored = {&packed, &packed, &packed, &b, NULL, &b};
        const attn_multihead calls[] = {{.x = &x,
                                         .projections = &plain,
                                         .count = 1,
                                         .layout = ATTN_OUT_IN,
                                         .w_o = &w,
                                         .b_o = &b},
                                        {.x = &x,
                                         .projections = &stored,
                                         .count = 1,
                                         .layout = ATTN_PREPACKED,
                                         .w_o = &packed,
                                         .b_o = &b}};
        const attn_upstream up = {.output = &x};
        const attn_options o = {.results = wanted, .heads = 3, .upstream = &up};
        attn_plan *plans[2];
        double *buffers[2];
        for (int i = 0; i < 2; i++) {
            cr_assert_eq(attn_plan_multihead(&plans[i], &calls[i], &o, NULL), ATTN_OK);
            buffers[i] = run_alone(plans[i]);
        }
        for (int r = ATTN_RESULT_GRAD_Q; r < ATTN_RESULT_COUNT; r++) {
            if ((wanted >> r & 1) == 0) {
                continue;
            }
            const attn_tensor want = attn_as_tensor(attn_plan_tensor(plans[0], (attn_result)r, 0)),
                              is = attn_as_tensor(attn_plan_tensor(plans[1], (attn_result)r, 0));
            double largest = 0;
            for (size_t e = 0; e < count_of(&want); e++) {
                largest = fmax(largest, fabs(number_at(&want, e)));
            }
            for (size_t e = 0; e < count_of(&want); e++) {
                cr_assert_float_eq(number_at(&is, e), number_at(&want, e),
                                   (at % 2 ? 1e-13 : 1e-5) * largest, "call %d: %s", at,
                                   attn_result_name((attn_result)r));
            }
        }
        for (int i = 0; i < 2; i++) {
            attn_plan_free(plans[i]);
            free(buffers[i]);
        }
        free(memory);
        free((void *)(uintptr_t)all.data);
        free_call(&c);
    }
}

/* A norm does not change if its row is multiplied by a number. So the gradient by the row is
 * divided by it, and that by the weights of the norm stays, although the squares overflow. */
Test(gradients, of_norms_of_large_numbers) {
    static const double scales[] = {0x1p60, 0x1p1000};
    struct call c = draw_call(PLAIN, ATTN_FLOAT64, 1, ROWS, ROWS, WIDE, WIDE);
    const attn_tensor q = matrix_of(c.q, ATTN_FLOAT64, ROWS, WIDE),
                      v = matrix_of(c.v, ATTN_FLOAT64, ROWS, WIDE),
                      norm = {.data = c.v, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {WIDE}};
    const attn_upstream up = {.output = &v};
    const attn_options o = {
        .results = ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_NORM_K), .upstream = &up, .norm_k = &norm};
    double *keys[2], *results[2];
    attn_plan *plans[2];
    for (int i = 0; i < 2; i++) {
        keys[i] = allocate(ROWS * WIDE, sizeof(double));
        for (size_t e = 0; e < ROWS * WIDE; e++) {
            keys[i][e] = c.k[e] * scales[i];
        }
        const attn_tensor k = matrix_of(keys[i], ATTN_FLOAT64, ROWS, WIDE);
        cr_assert_eq(attn_plan_attention(&plans[i], &q, &k, &v, &o, NULL), ATTN_OK);
        results[i] = run_alone(plans[i]);
    }
    for (int r = 0; r < 2; r++) {
        const attn_result which = r ? ATTN_RESULT_GRAD_NORM_K : ATTN_RESULT_GRAD_K;
        const double *want = attn_plan_tensor(plans[0], which, 0)->data,
                     *is = attn_plan_tensor(plans[1], which, 0)->data;
        for (size_t e = 0; e < (r ? WIDE : ROWS * WIDE); e++) {
            const double factor = r ? 1 : scales[1] / scales[0];
            cr_assert_float_eq(is[e] * factor, want[e], r ? 1e-12 : 1e-12 / scales[0]);
        }
    }
    for (int i = 0; i < 2; i++) {
        attn_plan_free(plans[i]);
        free(results[i]);
        free(keys[i]);
    }
    free_call(&c);
}

/* Returns the bytes that are allocated, or 0 in a program with a sanitizer. */
static size_t allocated(void) {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* A plan and its run allocate what attn_plan_bytes() says, beside the rounding of each block. */
static size_t check_bytes(struct drawn *d) {
    enum {
        ROUNDING = 40 * 100 + 4 * 4096 /* of all blocks, of which some are pages of their own */
    };
    ask_for_all(d);
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
    return 1;
}

Test(gradients, take_the_bytes_of_their_plan) {
    for_each_call(CALLS, check_bytes);
}
