/*
 * test_linear_laws.c - tests laws of linear attention: calls that must agree with each other, and
 * calls whose gates, betas or values are extreme. The calls are those of linear_calls.h, of one
 * head, unless a law is about heads or batches.
 */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_bounds.h"
#include "linear_calls.h"
#include "support/scale.h"

enum {
    RULES = 4 /* linear, gated, delta, gated_delta; a bit for decay and one for beta */
};

#define LAW_SIZES  DataPoints(size_t, 0, 1, 2, 3)
#define LAW_RULES  DataPoints(unsigned, 0, 1, 2, 3, 5, 7) /* 4: the decay is by column */
#define LAW_DTYPES DataPoints(int, ATTN_FLOAT32, ATTN_FLOAT64)

/* The sizes take both ways of the engine: position by position, and chunks. */
static const struct law_size {
    size_t n, d, d_v;
} sizes[] = {{7, 3, 5}, {150, 24, 40}, {333, 64, 64}, {200, 130, 7}};

/* The numbers of one head, whose calls are parts of each other. */
struct law {
    attn_dtype dtype;
    size_t n, d, d_v, decays;
    double *q, *k, *v, *decay, *beta, *past; /* decay, beta and past may be NULL */
    bool normalize;
};

static double *law_numbers(struct rng *rng, size_t count, double low, double high) {
    double *x = allocate(count, sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = (double)(float)(low + (high - low) * rng_uniform(rng));
    }
    return x;
}

static struct law draw_law(size_t size, unsigned rule, int dtype) {
    struct rng rng = {size * 31 + rule + 1};
    const struct law_size *s = &sizes[size];
    struct law l = {.dtype = (attn_dtype)dtype,
                    .n = too_slow(1, s->n, s->d, s->d_v) ? s->n / 4 : s->n,
                    .d = s->d,
                    .d_v = s->d_v,
                    .normalize = true};
    rng_bits(&rng);
    l.decays = (rule & 1) == 0 ? 0 : rule & 4 ? l.d : 1;
    l.q = law_numbers(&rng, l.n * l.d, -1, 1);
    l.k = law_numbers(&rng, l.n * l.d, -1, 1);
    l.v = law_numbers(&rng, l.n * l.d_v, -1, 1);
    l.decay = rule & 1 ? law_numbers(&rng, l.n * l.decays, -0.5, 0) : NULL;
    l.beta = rule & 2 ? law_numbers(&rng, l.n, 0, 2) : NULL;
    l.past = law_numbers(&rng, l.d * l.d_v, -1, 1);
    return l;
}

static void free_law(struct law *l) {
    double *all[] = {l->q, l->k, l->v, l->decay, l->beta, l->past};
    for (size_t i = 0; i < 6; i++) {
        free(all[i]);
    }
}

/* Makes a tensor of rows [first, end) of a matrix, in the dtype of the law. */
static attn_tensor rows_of_law(const struct law *l, const double *x, size_t first, size_t end,
                               size_t columns) {
    const struct call c = {.dtype = l->dtype, .batch = 1};
    attn_tensor t = rows_of_heads(&c, x, 1, end, first, end, columns);
    t.rank = 2;
    t.shape[0] = end - first;
    t.shape[1] = columns;
    return t;
}

/* Runs positions [first, end) of a law with these options. */
static struct results run_law(const struct law *l, size_t first, size_t end,
                              const attn_options *options) {
    attn_tensor t[] = {
        rows_of_law(l, l->q, first, end, l->d),
        rows_of_law(l, l->k, first, end, l->d),
        rows_of_law(l, l->v, first, end, l->d_v),
        l->decay == NULL ? (attn_tensor){0} : rows_of_law(l, l->decay, first, end, l->decays),
        l->beta == NULL ? (attn_tensor){0} : rows_of_law(l, l->beta, first, end, 1),
        l->past == NULL ? (attn_tensor){0} : rows_of_law(l, l->past, 0, l->d, l->d_v)};
    t[3].rank = l->decays == 1 ? 1 : 2;
    t[4].rank = 1;
    const attn_linear call = {.q = &t[0],
                              .k = &t[1],
                              .v = &t[2],
                              .beta = l->beta == NULL ? NULL : &t[4],
                              .past_state = l->past == NULL ? NULL : &t[5],
                              .normalize_qk = l->normalize};
    attn_options own = options == NULL ? (attn_options){0} : *options;
    own.decay = l->decay == NULL ? NULL : &t[3];
    attn_plan *plan;
    attn_error error = {0};
    cr_assert_eq(attn_plan_linear(&plan, &call, &own, &error), ATTN_OK, "%s", error.message);
    struct results r = run_plan(plan, NULL);
    for (size_t i = 0; i < 6; i++) {
        free((void *)(uintptr_t)t[i].data);
    }
    return r;
}

static const attn_options both = {.results = ATTN_WANT(OUTPUT) | ATTN_WANT(PRESENT_STATE)};

/* Runs the whole law, which must succeed. */
static struct results run_whole(const struct law *l, const attn_options *options) {
    struct results r = run_law(l, 0, l->n, options);
    cr_assert_eq(r.status, ATTN_OK, "%s", r.error.message);
    return r;
}

/* Two results that a law makes equal may each be off by the bound. */
static void expect_equal_rows(const char *what, const struct law *l, const double *is,
                              const double *want, size_t count) {
    const double bound = (l->dtype == ATTN_FLOAT32 ? 2e-6 : 2e-13) * largest_of(want, count);
    for (size_t i = 0; i < count; i++) {
        cr_assert(fabs(is[i] - want[i]) <= bound, "%s, n %zu, d %zu: [%zu] is %g, not %g", what,
                  l->n, l->d, i, is[i], want[i]);
    }
}

/* ---------------------------------------------------------------------------------- split calls */

TheoryDataPoints(linear_laws, a_split_call_is_the_whole) = {LAW_SIZES, LAW_RULES, LAW_DTYPES};

Theory((size_t size, unsigned rule, int dtype), linear_laws, a_split_call_is_the_whole) {
    struct law l = draw_law(size, rule, dtype);
    struct results whole = run_whole(&l, &both);
    const size_t cuts[] = {0, 1, l.n / 3, l.n - 1, l.n};
    for (size_t i = 0; i < 5; i++) {
        const size_t cut = cuts[i], state = l.d * l.d_v;
        struct results first = run_law(&l, 0, cut, &both);
        struct law rest = l;
        rest.past = first.of[ATTN_RESULT_PRESENT_STATE];
        struct results second = run_law(&rest, cut, l.n, &both);
        expect_equal_rows("first output", &l, first.of[ATTN_RESULT_OUTPUT],
                          whole.of[ATTN_RESULT_OUTPUT], cut * l.d_v);
        double *joined = allocate(l.n * l.d_v, sizeof *joined);
        memcpy(joined, first.of[ATTN_RESULT_OUTPUT], cut * l.d_v * sizeof *joined);
        memcpy(joined + cut * l.d_v, second.of[ATTN_RESULT_OUTPUT],
               (l.n - cut) * l.d_v * sizeof *joined);
        expect_equal_rows("output", &l, joined, whole.of[ATTN_RESULT_OUTPUT], l.n * l.d_v);
        expect_equal_rows("present_state", &l, second.of[ATTN_RESULT_PRESENT_STATE],
                          whole.of[ATTN_RESULT_PRESENT_STATE], state);
        free(joined);
        free_results(&first);
        free_results(&second);
    }
    free_results(&whole);
    free_law(&l);
}

/* The positions before a length are those of a shorter call. */
TheoryDataPoints(linear_laws, a_length_is_a_cut) = {LAW_SIZES, LAW_RULES, LAW_DTYPES};

Theory((size_t size, unsigned rule, int dtype), linear_laws, a_length_is_a_cut) {
    struct law l = draw_law(size, rule, dtype);
    const size_t lengths[] = {0, 1, l.n / 2, l.n};
    for (size_t i = 0; i < 4; i++) {
        attn_options o = both;
        struct results cut = run_law(&l, 0, lengths[i], &o);
        o.lengths = &lengths[i];
        o.lengths_count = 1;
        struct results r = run_whole(&l, &o);
        const double *rest = r.of[ATTN_RESULT_OUTPUT] + lengths[i] * l.d_v;
        expect_equal_rows("output", &l, r.of[ATTN_RESULT_OUTPUT], cut.of[ATTN_RESULT_OUTPUT],
                          lengths[i] * l.d_v);
        expect_equal_rows("present_state", &l, r.of[ATTN_RESULT_PRESENT_STATE],
                          cut.of[ATTN_RESULT_PRESENT_STATE], l.d * l.d_v);
        cr_expect_eq(largest_of(rest, (l.n - lengths[i]) * l.d_v), 0);
        free_results(&cut);
        free_results(&r);
    }
    free_law(&l);
}

/* Each packed sequence is a call of its own. */
TheoryDataPoints(linear_laws, sequences_are_calls_of_their_own) = {LAW_SIZES, LAW_RULES,
                                                                   LAW_DTYPES};

Theory((size_t size, unsigned rule, int dtype), linear_laws, sequences_are_calls_of_their_own) {
    struct law l = draw_law(size, rule, dtype);
    const size_t state = l.d * l.d_v,
                 lengths[] = {l.n / 2, 0, l.n / 4, 1, l.n - l.n / 2 - l.n / 4 - 1};
    double *past = l.past;
    l.past = NULL;
    attn_options o = both;
    o.sequences = &(attn_sequences){.count = 5, .queries = lengths};
    struct results all = run_whole(&l, &o);
    for (size_t i = 0, first = 0; i < 5; first += lengths[i], i++) {
        struct results alone = run_law(&l, first, first + lengths[i], &both);
        expect_equal_rows("output", &l, all.of[ATTN_RESULT_OUTPUT] + first * l.d_v,
                          alone.of[ATTN_RESULT_OUTPUT], lengths[i] * l.d_v);
        expect_equal_rows("present_state", &l, all.of[ATTN_RESULT_PRESENT_STATE] + i * state,
                          alone.of[ATTN_RESULT_PRESENT_STATE], state);
        free_results(&alone);
    }
    free_results(&all);
    l.past = past;
    free_law(&l);
}

/* ---------------------------------------------------------------------- weights and past states */

/* output = A V + the output of the past state with values of 0. */
TheoryDataPoints(linear_laws, the_output_is_weights_times_values) = {LAW_SIZES, LAW_RULES,
                                                                     LAW_DTYPES};

Theory((size_t size, unsigned rule, int dtype), linear_laws, the_output_is_weights_times_values) {
    struct law l = draw_law(size, rule, dtype), silent = l;
    const attn_options o = {.results = ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS)};
    silent.v = allocate(l.n * l.d_v, sizeof *silent.v);
    struct results r = run_whole(&l, &o), past = run_whole(&silent, &both);
    double *sums = past.of[ATTN_RESULT_OUTPUT];
    for (size_t i = 0; i < l.n; i++) {
        for (size_t j = 0; j < l.n; j++) {
            const double weight = r.of[ATTN_RESULT_WEIGHTS][i * l.n + j];
            cr_assert(j <= i || weight == 0);
            for (size_t e = 0; e < l.d_v; e++) {
                sums[i * l.d_v + e] += weight * l.v[j * l.d_v + e];
            }
        }
    }
    expect_equal_rows("A V", &l, sums, r.of[ATTN_RESULT_OUTPUT], l.n * l.d_v);
    free(silent.v);
    free_results(&r);
    free_results(&past);
    free_law(&l);
}

/* The last of all states is the present one, and each is the present one of a shorter call. */
TheoryDataPoints(linear_laws, states_are_present_states) = {LAW_SIZES, LAW_RULES, LAW_DTYPES};

Theory((size_t size, unsigned rule, int dtype), linear_laws, states_are_present_states) {
    struct law l = draw_law(size, rule, dtype);
    const attn_options o = {.results = ATTN_WANT(STATES)};
    const size_t ends[] = {1, l.n / 2, l.n}, state = l.d * l.d_v;
    struct results all = run_whole(&l, &o);
    for (size_t i = 0; i < 3; i++) {
        struct results cut = run_law(&l, 0, ends[i], &both);
        expect_equal_rows("states", &l, all.of[ATTN_RESULT_STATES] + (ends[i] - 1) * state,
                          cut.of[ATTN_RESULT_PRESENT_STATE], state);
        free_results(&cut);
    }
    free_results(&all);
    free_law(&l);
}

/* ---------------------------------------------------------------------------------------- gates */

/* A gate of 0 leaves nothing of what was before. */
TheoryDataPoints(linear_laws, a_gate_of_zero_forgets_everything) = {
    LAW_SIZES, DataPoints(unsigned, 1, 3, 5, 7), LAW_DTYPES, DataPoints(double, -INFINITY, -1e4)};

Theory((size_t size, unsigned rule, int dtype, double decay), linear_laws,
       a_gate_of_zero_forgets_everything) {
    struct law l = draw_law(size, rule, dtype), fresh = l;
    const size_t cut = l.n / 3;
    for (size_t e = 0; e < l.decays; e++) {
        l.decay[cut * l.decays + e] = decay;
    }
    fresh.past = NULL;
    struct results whole = run_whole(&l, &both), rest = run_law(&fresh, cut, l.n, &both);
    expect_equal_rows("output", &l, whole.of[ATTN_RESULT_OUTPUT] + cut * l.d_v,
                      rest.of[ATTN_RESULT_OUTPUT], (l.n - cut) * l.d_v);
    expect_equal_rows("present_state", &l, whole.of[ATTN_RESULT_PRESENT_STATE],
                      rest.of[ATTN_RESULT_PRESENT_STATE], l.d * l.d_v);
    free_results(&whole);
    free_results(&rest);
    free_law(&l);
}

/* Decays of 0 change nothing, whether they are those of heads or of columns. */
TheoryDataPoints(linear_laws, decays_of_zero_change_nothing) = {
    LAW_SIZES, DataPoints(unsigned, 1, 3, 5, 7), LAW_DTYPES};

Theory((size_t size, unsigned rule, int dtype), linear_laws, decays_of_zero_change_nothing) {
    struct law l = draw_law(size, rule, dtype), none = l;
    cr_assert_not_null(l.decay);
    memset(l.decay, 0, l.n * l.decays * sizeof *l.decay);
    none.decay = NULL;
    none.decays = 0;
    struct results gated = run_whole(&l, &both), plain = run_whole(&none, &both);
    expect_equal_rows("output", &l, gated.of[ATTN_RESULT_OUTPUT], plain.of[ATTN_RESULT_OUTPUT],
                      l.n * l.d_v);
    expect_equal_rows("present_state", &l, gated.of[ATTN_RESULT_PRESENT_STATE],
                      plain.of[ATTN_RESULT_PRESENT_STATE], l.d * l.d_v);
    free_results(&gated);
    free_results(&plain);
    free_law(&l);
}

/* The same decay for all columns is that of the head. */
TheoryDataPoints(linear_laws, equal_decays_of_columns_are_one_decay) = {
    LAW_SIZES, DataPoints(unsigned, 1, 3), LAW_DTYPES};

Theory((size_t size, unsigned rule, int dtype), linear_laws,
       equal_decays_of_columns_are_one_decay) {
    struct law l = draw_law(size, rule, dtype), wide = l;
    wide.decays = l.d;
    cr_assert_not_null(l.decay);
    wide.decay = allocate(l.n * l.d, sizeof *wide.decay);
    for (size_t i = 0; i < l.n * l.d; i++) {
        wide.decay[i] = l.decay[i / l.d];
    }
    const attn_options o = {.results = both.results | ATTN_WANT(WEIGHTS)};
    struct results one = run_whole(&l, &o), each = run_whole(&wide, &o);
    expect_equal_rows("output", &l, each.of[ATTN_RESULT_OUTPUT], one.of[ATTN_RESULT_OUTPUT],
                      l.n * l.d_v);
    expect_equal_rows("weights", &l, each.of[ATTN_RESULT_WEIGHTS], one.of[ATTN_RESULT_WEIGHTS],
                      l.n * l.n);
    expect_equal_rows("present_state", &l, each.of[ATTN_RESULT_PRESENT_STATE],
                      one.of[ATTN_RESULT_PRESENT_STATE], l.d * l.d_v);
    free(wide.decay);
    free_results(&one);
    free_results(&each);
    free_law(&l);
}

/* A beta of 1 with one unit key writes the value there, whatever the state was. */
Test(linear_laws, a_beta_of_one_replaces_the_value) {
    enum {
        N = 40,
        D = 8
    };
    double q[N * D] = {0}, v[N * D], beta[N];
    for (size_t i = 0; i < N; i++) {
        q[i * D + i % D] = 1;
        beta[i] = 1;
        for (size_t e = 0; e < D; e++) {
            v[i * D + e] = (double)(i * D + e);
        }
    }
    const struct law l = {
        .dtype = ATTN_FLOAT64, .n = N, .d = D, .d_v = D, .q = q, .k = q, .v = v, .beta = beta};
    const attn_options o = {.flags = ATTN_FLAG_SCALE, .scale = 1};
    struct results r = run_whole(&l, &o);
    cr_expect_arr_eq(r.of[ATTN_RESULT_OUTPUT], v, sizeof v);
    free_results(&r);
}

/* ------------------------------------------------------------------------------------- overflow */

/* A rule that is not stable overflows in the end, and the error names a result. */
TheoryDataPoints(linear_laws, a_growing_state_is_an_error) = {
    DataPoints(size_t, 1, 2), DataPoints(unsigned, 2, 3), LAW_DTYPES,
    DataPoints(uint64_t, ATTN_WANT(OUTPUT), ATTN_WANT(PRESENT_STATE), ATTN_WANT(STATES),
               ATTN_WANT(WEIGHTS))};

Theory((size_t size, unsigned rule, int dtype, uint64_t results), linear_laws,
       a_growing_state_is_an_error) {
    struct law l = draw_law(size, rule, dtype);
    l.normalize = false;
    for (size_t i = 0; i < l.n * l.d; i++) {
        l.k[i] *= 100;
    }
    const attn_options o = {.results = results};
    struct results r = run_law(&l, 0, l.n, &o);
    cr_expect_eq(r.status, ATTN_NOT_FINITE, "%d: %s", r.status, r.error.message);
    for (int which = 0; which < ATTN_RESULT_COUNT; which++) {
        if (results == UINT64_C(1) << which) {
            cr_expect_str_eq(r.error.argument, attn_result_name((attn_result)which));
        }
    }
    cr_expect_not_null(strstr(r.error.message, "is not a finite float"), "%s", r.error.message);
    cr_expect_not_null(strstr(r.error.message, "head 0"), "%s", r.error.message);
    free_results(&r);
    free_law(&l);
}
