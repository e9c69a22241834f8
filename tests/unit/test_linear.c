/*
 * test_linear.c - compares linear attention with the recurrence, in drawn calls, long calls, and
 * extreme ones, and runs each on several threads. TEST_SEED chooses other calls, and TEST_CALLS
 * more of them (make search-linear).
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_bounds.h"
#include "linear_bounds.h"
#include "recurrent/plan_linear.h"
#include "support/scale.h"

/* The largest errors of the calls of each dtype, and their seeds. Each test is a process. */
static struct linear_worst {
    size_t calls, refused;
    struct linear_errors errors;
    uint64_t seeds[ATTN_RESULT_COUNT];
} worst[2];

static const double bounds[2] = {[ATTN_FLOAT32] = 1e-6, [ATTN_FLOAT64] = 1e-13};

/* Runs the tasks of a call in other ways. Each must give the same bytes. */
static void check_same_bytes(const struct linear_call *c, const struct results *r, bool all) {
    run_tasks *const ways[] = {run_backwards, run_on_2, run_on_64, run_on_3, run_on_7};
    for (size_t i = 0; i < (all ? 5 : 1); i++) {
        struct results other = try_linear(c, ways[i]);
        cr_expect_eq(other.status, r->status, "%s: way %zu: %s", describe_linear(c), i,
                     other.error.message);
        cr_expect(other.status != ATTN_OK || same_bytes(r, &other), "%s: way %zu differs",
                  describe_linear(c), i);
        free_results(&other);
    }
}

/* Compares a call with the reference, and frees it. */
static void check_linear(struct linear_call *c, uint64_t seed, bool all_ways) {
    struct linear_worst *of = &worst[c->dtype];
    struct linear_errors errors = {0};
    struct results r = try_linear(c, NULL);
    of->calls++;
    of->refused += !compare_linear(c, &r, &errors);
    for (int i = 0; i < ATTN_RESULT_COUNT && r.status == ATTN_OK; i++) {
        cr_expect_leq(errors.of[i], bounds[c->dtype], "seed %llu: %s: %s is off by %.3g",
                      (unsigned long long)seed, describe_linear(c),
                      attn_result_name((attn_result)i), errors.of[i]);
        if (errors.of[i] > of->errors.of[i]) {
            of->errors.of[i] = errors.of[i];
            of->seeds[i] = seed;
        }
    }
    check_same_bytes(c, &r, all_ways);
    free_results(&r);
    free_linear_call(c);
}

/* Prints the errors. Expects that at most so many calls were refused because they overflow. */
static void expect_refused(const char *what, size_t most) {
    for (int dtype = 0; dtype < 2; dtype++) {
        fprintf(stderr, "%s: %zu float%d calls, of which %zu overflow; worst errors:", what,
                worst[dtype].calls, dtype == ATTN_FLOAT32 ? 32 : 64, worst[dtype].refused);
#define PRINT_WORST(name)                                                                          \
    fprintf(stderr, " %s %.2g (seed %llu)", attn_result_name(ATTN_RESULT_##name),                  \
            worst[dtype].errors.of[ATTN_RESULT_##name],                                            \
            (unsigned long long)worst[dtype].seeds[ATTN_RESULT_##name]);
        LINEAR_RESULT_MAP(PRINT_WORST)
        fprintf(stderr, "\n");
    }
    cr_expect_leq(worst[0].refused + worst[1].refused, most);
}

/* Checks drawn calls: `calls`, or a part of those that TEST_CALLS asks for. */
static void check_drawn(bool is_long, size_t calls, double part) {
    const char *other = getenv("TEST_SEED"), *more = getenv("TEST_CALLS");
    calls = more != NULL ? (size_t)(part * strtod(more, NULL)) : test_scale(calls);
    const uint64_t first = 1 + (other != NULL ? strtoull(other, NULL, 10) * 1000000 : 0);
    for (uint64_t seed = first; seed < first + calls; seed++) {
        check_linear(draw_linear_call(seed, is_long), seed, more != NULL || seed % 8 == 0);
    }
    expect_refused(is_long ? "long calls" : "calls", calls / 4);
}

Test(linear, random_calls_agree_with_the_recurrence, .timeout = 36000) {
    check_drawn(false, 400, 0.9);
}

Test(linear, long_calls_agree_with_the_recurrence, .timeout = 36000) {
    check_drawn(true, 12, 0.1);
}

/* Calls that the search for drawn calls found to be wrong, before they were mended. */
Test(linear, calls_that_were_wrong_agree_with_the_recurrence, .timeout = 1200) {
    static const uint64_t seeds[] = {927000635, 927002994, 927003225, 31013652, 51000183};
    for (size_t i = 0; i < COUNT(seeds); i++) {
        check_linear(draw_linear_call(seeds[i], false), seeds[i], true);
    }
    expect_refused("calls that were wrong", 0);
}

/* Gates may be anything from 1 to 0, and corrections as large as a stable rule allows. */
Test(linear, extreme_gates_agree_with_the_recurrence, .timeout = 1200) {
    static const struct linear_kind kinds[] = {
        {.decays = 1, .decay = {-1000, -1000}},
        {.decays = 2, .decay = {-1000, -1000}},
        {.decays = 1, .decay = {-69.1, -69}}, /* the gates are about 1e-30 */
        {.decays = 2, .decay = {-69.1, -69}},
        {.decays = 2, .decay = {-1000, 0}},
        {.decays = 1, .decay = {-INFINITY, -INFINITY}},
        {.decays = 1, .decay = {-1e-6, 0}},
        {.has_beta = true, .beta = {2, 2}},
        {.has_beta = true, .beta = {1.9, 1.9}, .one_key = true},
        {.has_beta = true, .beta = {0, 0}},
        {.has_beta = true, .beta = {0, 2}, .decays = 1, .decay = {-1000, -1000}},
        {.has_beta = true, .beta = {2, 2}, .decays = 2, .decay = {-69.1, -69}},
        {.has_beta = true, .beta = {2, 2}, .decays = 1, .decay = {-1e-3, 0}},
        {.has_beta = true, .beta = {1.4, 1.6}, .decays = 2, .decay = {-1e-3, 0}},
        {.has_beta = true, .beta = {1.4, 1.5}, .one_key = true},
        {.decays = 1, .decay = {-0.5, 0}}, /* these gates are usual ones */
        {.decays = 2, .decay = {-0.5, 0}},
        {.has_beta = true, .beta = {0, 2}, .decays = 1, .decay = {-0.5, 0}},
        {.has_beta = true, .beta = {0, 2}, .decays = 2, .decay = {-0.5, 0}}};
    static const size_t sizes[][3] = {{9, 4, 5}, {130, 33, 17}, {300, 64, 64}, {200, 128, 40}};
    for (size_t i = 0; i < COUNT(kinds) * 8; i++) {
        const size_t *size = sizes[i / 2 % 4];
        struct linear_kind kind = kinds[i / 8];
        kind.dtype = i % 2 == 0 ? ATTN_FLOAT32 : ATTN_FLOAT64;
        kind.n = test_scale(size[0]);
        kind.d = size[1];
        kind.d_v = size[2];
        kind.decays = kind.decays == 2 ? kind.d : kind.decays;
        struct linear_call *c = draw_linear_kind(&kind);
        c->options.results |= size[0] == 300 ? ATTN_WANT(WEIGHTS) | ATTN_WANT(STATES) : 0;
        check_linear(c, i, false);
    }
    expect_refused("extreme gates", 0);
}

/* Multiplies all numbers of Q or K or V by a power of 2, which keeps them exact. */
static void scale_numbers(const struct linear_matrix *m, int power) {
    for (size_t i = 0; i < linear_count(m); i++) {
        m->x[i] = ldexp(m->x[i], power);
    }
}

/* Products of rows of Q, K and V may be beyond the range of the dtype though outputs are not. */
Test(linear, products_out_of_range_agree_with_the_recurrence, .timeout = 1200) {
    static const struct {
        struct linear_kind kind;
        int q, k, v; /* powers of 2 for float32 */
    } cases[] = {{{.decays = 0}, -84, -84, 84},
                 {{.decays = 1, .decay = {-1, 0}}, -84, -84, 84},
                 {{.decays = 2, .decay = {-1, 0}}, -84, -84, 84},
                 {{.has_beta = true, .beta = {0, 1}}, -84, -84, 84},
                 {{.decays = 2, .decay = {-1, 0}, .has_beta = true, .beta = {0, 1}}, -84, -84, 84},
                 {{.decays = 0}, 84, 84, -100},
                 {{.decays = 1, .decay = {-1, 0}}, 84, 84, -100},
                 {{.decays = 2, .decay = {-1, 0}}, 84, 84, -100},
                 {{.decays = 0}, 84, -84, -84},
                 {{.decays = 2, .decay = {-1, 0}}, 84, -84, -84},
                 {{.decays = 1, .decay = {-1, 0}, .has_beta = true, .beta = {0, 1}}, 84, -84, -84}};
    for (size_t i = 0; i < COUNT(cases) * 2; i++) {
        struct linear_kind kind = cases[i / 2].kind;
        /* Exponents of float64 are 8 times as large, or 6 times, so that a state fits double. */
        const bool small_state = cases[i / 2].k < 0 && cases[i / 2].v < 0;
        const int by = i % 2 == 0 ? 1 : small_state ? 6 : 8;
        kind.dtype = i % 2 == 0 ? ATTN_FLOAT32 : ATTN_FLOAT64;
        kind.n = 130, kind.d = 33, kind.d_v = i / 4 % 2 == 0 ? 17 : 64; /* 64 fills panels */
        kind.decays = kind.decays == 2 ? kind.d : kind.decays;
        struct linear_call *c = draw_linear_kind(&kind);
        scale_numbers(&c->q, by * cases[i / 2].q);
        scale_numbers(&c->k, by * cases[i / 2].k);
        scale_numbers(&c->v, by * cases[i / 2].v);
        make_linear_tensors(c);
        check_linear(c, i, false);
    }
    expect_refused("products out of range", 0);
}

/* A scale may be a denormal float though outputs are not. */
Test(linear, a_small_scale_keeps_its_digits) {
    const struct linear_kind kind = {.dtype = ATTN_FLOAT32, .n = 130, .d = 33, .d_v = 17};
    struct linear_call *c = draw_linear_kind(&kind);
    c->scales[0] = c->options.scale = 1e-42;
    c->options.flags |= ATTN_FLAG_SCALE;
    scale_numbers(&c->v, 60);
    make_linear_tensors(c);
    check_linear(c, 0, false);
    cr_expect_eq(worst[ATTN_FLOAT32].refused, 0);
}

/* A state may overflow though the output of the same position does not. */
Test(linear, a_state_that_overflows_is_an_error) {
    for (size_t n = 1; n < 4; n++) {
        const struct linear_kind kind = {.dtype = ATTN_FLOAT32, .n = n, .d = 1, .d_v = 1};
        struct linear_call *c = draw_linear_kind(&kind);
        c->past = (struct linear_matrix){1, 1, 1, 1, keep_block(c, sizeof *c->past.x)};
        c->past.x[0] = ldexp(1, 127);
        c->q.x[n - 1] = 0.25;
        c->k.x[n - 1] = 1;
        c->v.x[n - 1] = ldexp(1, 127);
        make_linear_tensors(c);
        check_linear(c, n, false);
    }
    cr_expect_eq(worst[0].refused, 3);
}

/* A rule that is not stable overflows in the end, and the error names a result. */
Test(linear, a_growing_state_is_an_error) {
    static const attn_result results[] = {ATTN_RESULT_OUTPUT, ATTN_RESULT_PRESENT_STATE,
                                          ATTN_RESULT_STATES, ATTN_RESULT_WEIGHTS};
    for (size_t i = 0; i < 32; i++) {
        const attn_result which = results[i % 4];
        const struct linear_kind kind = {.dtype = (attn_dtype)(i / 4 % 2),
                                         .n = i / 8 % 2 == 0 ? 150 : 333,
                                         .d = i / 8 % 2 == 0 ? 24 : 64,
                                         .d_v = 40,
                                         .decays = i / 16,
                                         .decay = {-0.5, 0},
                                         .has_beta = true,
                                         .beta = {0, 2}};
        struct linear_call *c = draw_linear_kind(&kind);
        scale_numbers(&c->k, 9);
        c->options.results = UINT64_C(1) << which;
        make_linear_tensors(c);
        struct results r = try_linear(c, NULL);
        cr_expect_eq(r.status, ATTN_NOT_FINITE, "%zu: %s", i, r.error.message);
        cr_expect_str_eq(r.error.argument, attn_result_name(which));
        cr_expect(strstr(r.error.message, "is not a finite float") != NULL &&
                      strstr(r.error.message, "head 0") != NULL,
                  "%s", r.error.message);
        free_results(&r);
        free_linear_call(c);
    }
}

/* The largest float, to which a power of 2 is added, rounds to infinity or to itself. */
Test(linear, a_state_that_rounds_to_infinity_is_an_error) {
    for (size_t n = 1; n < 3; n++) {
        for (int power = 90; power < 128; power++) {
            const struct linear_kind kind = {.dtype = ATTN_FLOAT32, .n = n, .d = 1, .d_v = 1};
            struct linear_call *c = draw_linear_kind(&kind);
            c->past = (struct linear_matrix){1, 1, 1, 1, keep_block(c, sizeof *c->past.x)};
            c->past.x[0] = (double)FLT_MAX;
            c->q.x[0] = c->q.x[n - 1] = c->v.x[n - 1] = 0;
            c->k.x[0] = 1;
            c->v.x[0] = ldexp(1, power);
            make_linear_tensors(c);
            struct results r = try_linear(c, NULL);
            cr_expect_eq(r.status, power < 103 ? ATTN_OK : ATTN_NOT_FINITE, "%zu, 2^%d: %d", n,
                         power, r.status);
            free_results(&r);
            free_linear_call(c);
        }
    }
}

/* Returns the phases of a plan of the first n positions of a call. */
static size_t phases_of(struct linear_call *c, size_t n) {
    attn_plan *plan;
    for (size_t i = 0; i < 4; i++) {
        c->tensors[i].shape[0] = n;
    }
    cr_assert_eq(attn_plan_linear(&plan, &c->call, &c->options, NULL), ATTN_OK);
    const size_t phases = attn_plan_phases(plan);
    attn_plan_free(plan);
    return phases;
}

/* A state may be too large for its type between two segments, and a gate makes it small again. */
Test(linear, a_state_between_segments_may_be_large) {
    struct linear_kind kind = {.dtype = ATTN_FLOAT32, .n = 60000, .d = 16, .d_v = 16, .decays = 1};
    struct linear_call *c = draw_linear_kind(&kind);
    size_t end = 100, beyond = kind.n;
    const size_t phases = phases_of(c, end);
    cr_assert_gt(phases_of(c, beyond), phases);
    while (beyond - end > 1) {
        const size_t middle = (end + beyond) / 2;
        *(phases_of(c, middle) > phases ? &beyond : &end) = middle;
    }
    free_linear_call(c);
    kind.n = end + 40;
    c = draw_linear_kind(&kind);
    for (size_t e = 0; e < kind.d; e++) {
        const size_t last = (end - 1) * kind.d + e;
        c->q.x[last] = 0;
        c->k.x[last] = c->v.x[last] = ldexp(1, 66);
    }
    c->decay.x[end] = -80;
    make_linear_tensors(c);
    check_linear(c, 0, false);
    cr_expect_eq(worst[ATTN_FLOAT32].refused, 0);
}

/* Rows of V may be longer than all else that a task of the gradients keeps. */
Test(linear, gradients_of_long_rows_fit_their_scratch) {
    const struct linear_kind kind = {.dtype = ATTN_FLOAT32, .n = 8, .d = 1, .d_v = 10000};
    struct linear_call *c = draw_linear_kind(&kind);
    c->grad_output = c->v;
    c->options.results = ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_V);
    make_linear_tensors(c);
    check_linear(c, 0, false);
    cr_expect_eq(worst[ATTN_FLOAT32].refused, 0);
}

/* A product of gates may be a denormal float, which has few digits. The state still has all of its
 * digits if only the first values are large. */
Test(linear, products_of_gates_keep_their_digits, .timeout = 1200) {
    static const double decays[] = {-4.5, -5, -100, -1000};
    for (size_t i = 0; i < COUNT(decays) * 4; i++) {
        struct linear_kind kind = {.dtype = ATTN_FLOAT32, .n = 20, .d = 33, .d_v = 40};
        kind.decays = i % 2 == 0 ? 1 : kind.d;
        kind.has_beta = i / 2 % 2 == 1;
        kind.beta[1] = 1;
        kind.decay[0] = kind.decay[1] = decays[i / 4];
        struct linear_call *c = draw_linear_kind(&kind);
        for (size_t j = 0; j < kind.n * kind.decays && decays[i / 4] <= -100; j++) {
            c->decay.x[j] = j / kind.decays == 8 ? decays[i / 4] : 0; /* one gate is strong */
        }
        for (size_t j = 0; j < kind.n * kind.d_v; j++) {
            c->v.x[j] = ldexp(c->v.x[j], j < 6 * kind.d_v ? 120 : -40);
        }
        make_linear_tensors(c);
        check_linear(c, i, false);
    }
    expect_refused("products of gates", 0);
}

/* ------------------------------------------------------------------------- lines and segments */

/* Returns the positions of a segment of a call, by its plan. */
static size_t segment_of(const struct linear_call *c) {
    attn_plan *plan;
    cr_assert_eq(attn_plan_linear(&plan, &c->call, &c->options, NULL), ATTN_OK);
    const size_t rows = plan->linear->rows;
    attn_plan_free(plan);
    return rows;
}

/* Makes the row of Q of each line of one position nearly orthogonal to that of K, so that the terms
 * of its output cancel. */
static void cancel_outputs(struct linear_call *c) {
    for (size_t line = 0; line < c->line_count; line++) {
        double *q = c->q.x + c->line_first[line] * c->d, product = 0;
        const double *k = c->k.x + c->line_first[line] * c->d;
        for (size_t e = 0; e < c->d && c->line_rows[line] == 1; e++) {
            product += q[e] * k[e];
        }
        for (size_t e = 0; e < c->d && c->line_rows[line] == 1; e++) {
            q[e] = (double)(float)(q[e] - 0.999 * product * k[e]);
        }
    }
}

/* Gives a call a past state and gradients by all results. */
static void draw_states(struct linear_call *c) {
    struct linear_matrix *all[] = {&c->past, &c->grad_state, &c->grad_output};
    c->past = c->grad_state = (struct linear_matrix){c->line_count, c->H_s, c->d, c->d_v, NULL};
    c->grad_output = (struct linear_matrix){1, c->H, c->n, c->d_v, NULL};
    for (size_t i = 0; i < 3; i++) {
        const size_t count = linear_count(all[i]);
        all[i]->x = keep_block(c, count * sizeof(double));
        for (size_t e = 0; e < count; e++) {
            all[i]->x[e] = (double)(float)rng_normal(&c->rng);
        }
    }
    c->options.results |=
        ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V) | ATTN_WANT(GRAD_PAST_STATE);
    c->options.results |= c->decay.x != NULL ? ATTN_WANT(GRAD_DECAY) : 0;
    c->options.results |= c->beta.x != NULL ? ATTN_WANT(GRAD_BETA) : 0;
}

/* Makes the call of a kind one of packed sequences with these rows. */
static struct linear_call *draw_lines_of(struct linear_kind *kind, const size_t *rows, size_t count,
                                         bool gradients) {
    kind->n = 0;
    for (size_t i = 0; i < count; i++) {
        kind->n += rows[i];
    }
    struct linear_call *c = draw_linear_kind(kind);
    c->form = LINEAR_ROWS;
    c->line_count = count;
    for (size_t i = 0, first = 0; i < count; first += rows[i++]) {
        c->line_first[i] = first;
        c->queries[i] = c->line_rows[i] = rows[i];
    }
    c->sequences = (attn_sequences){.count = count, .queries = c->queries};
    c->options.sequences = &c->sequences;
    if (gradients) {
        draw_states(c);
    } else {
        cancel_outputs(c);
    }
    make_linear_tensors(c);
    return c;
}

/* Lines end with a segment, or one position before or behind its end; one is very short. A band has
 * several strips if there are enough lines, or many rows of K. */
Test(linear, lines_at_the_ends_of_segments_agree_with_the_recurrence, .timeout = 1200) {
    struct rng rng = {47};
    for (uint64_t seed = 0; seed < test_scale(12); seed++) {
        size_t rows[MAX_SEQUENCES] = {600}, count = rng_between(&rng, 1, 5);
        struct linear_kind kind = {.dtype = seed % 3 == 0 ? ATTN_FLOAT64 : ATTN_FLOAT32,
                                   .d = seed % 6 == 1 ? 130 : rng_between(&rng, 1, 12),
                                   .decay = {-0.1, 0},
                                   .has_beta = rng_chance(&rng, 2),
                                   .beta = {0, 1.5}};
        kind.d_v = rng_between(&rng, 1, kind.d > 12 ? 40 : 150);
        kind.decays = rng_between(&rng, 0, 2);
        kind.decays = kind.decays == 2 ? kind.d : kind.decays;
        struct linear_call *c = draw_lines_of(&kind, rows, 1, true);
        const size_t segment = segment_of(c);
        free_linear_call(c);
        for (size_t i = 0; i < count; i++) {
            const size_t near = (1 + i % 2) * segment - 1 + rng_between(&rng, 0, 2);
            rows[i] = i > 0 && i + 1 == count ? rng_between(&rng, 0, 20) : near;
        }
        check_linear(draw_lines_of(&kind, rows, count, true), seed, seed % 8 == 0);
    }
    expect_refused("ends of segments", 0);
}

/* A short line beside a long one, which is computed in chunks, is as exact as a call of its own. */
Test(linear, short_lines_beside_long_ones_keep_their_digits) {
    struct rng rng = {50};
    for (uint64_t seed = 0; seed < 12; seed++) {
        static const size_t rows[MAX_SEQUENCES] = {300, 1, 1, 15, 2, 1};
        struct linear_kind kind = {.dtype = ATTN_FLOAT32,
                                   .d = rng_between(&rng, 60, 90),
                                   .d_v = rng_between(&rng, 1, 20),
                                   .decays = seed % 2,
                                   .decay = {-0.1, 0},
                                   .has_beta = seed % 4 >= 2,
                                   .beta = {0.5, 1.5}};
        check_linear(draw_lines_of(&kind, rows, MAX_SEQUENCES, false), seed, false);
    }
    expect_refused("short lines", 0);
}

/* Where beta times the squared length of a row of K is about 2, errors of float32 would stay. */
Test(linear, corrections_that_do_not_shrink_the_state_keep_their_digits, .timeout = 1200) {
    struct rng rng = {48};
    for (uint64_t seed = 0; seed < test_scale(16); seed++) {
        const int power = (int)rng_between(&rng, 0, 4) - 2; /* of the length of a row of K */
        const double low = 1.5 + rng_uniform(&rng);
        struct linear_kind kind = {
            .dtype = seed % 8 == 0 ? ATTN_FLOAT64 : ATTN_FLOAT32,
            .n = rng_between(&rng, 1500, 3000),
            .d = rng_between(&rng, 50, 100),
            .d_v = rng_between(&rng, 1, 4),
            .decays = seed % 3 == 0,
            .decay = {-1e-4, 0},
            .has_beta = true,
            .beta = {ldexp(fmin(low, 2), -2 * power), ldexp(fmin(low + 0.2, 2), -2 * power)}};
        struct linear_call *c = draw_linear_kind(&kind);
        scale_numbers(&c->k, power);
        make_linear_tensors(c);
        check_linear(c, seed, false);
    }
    expect_refused("large corrections", 0);
}

/* A column whose first gate is 0 has gates of 1e-20 later. Their products are denormal floats, but
 * the state is all that is left of the largest values. */
Test(linear, small_gates_after_a_gate_of_0_keep_their_digits) {
    struct rng rng = {49};
    for (uint64_t seed = 0; seed < 16; seed++) {
        struct linear_kind kind = {.dtype = ATTN_FLOAT32,
                                   .n = rng_between(&rng, 16, 30),
                                   .d = rng_between(&rng, 33, 60),
                                   .d_v = rng_between(&rng, 33, 60),
                                   .has_beta = seed % 4 >= 2,
                                   .beta = {0, 1}};
        kind.decays = seed % 2 == 0 ? 1 : kind.d;
        struct linear_call *c = draw_linear_kind(&kind);
        for (size_t at = 0; at < kind.n * kind.decays; at++) {
            const size_t i = at / kind.decays;
            const bool forgets = i == 1 && rng_chance(&rng, kind.decays == 1 ? 1 : 2);
            c->decay.x[at] = forgets ? -INFINITY : i == 8 || i == 10 ? (double)-46.1F : 0;
        }
        for (size_t at = 0; at < kind.n * kind.d_v; at++) {
            c->v.x[at] = ldexp(c->v.x[at], at < 6 * kind.d_v ? 120 : -60);
        }
        make_linear_tensors(c);
        check_linear(c, seed, false);
    }
    expect_refused("small gates", 0);
}

Test(linear, a_very_long_call_agrees_with_the_recurrence, .timeout = 1200) {
    const struct linear_kind kind = {.dtype = ATTN_FLOAT32,
                                     .n = test_scale(100000),
                                     .d = 16,
                                     .d_v = 16,
                                     .decays = 1,
                                     .decay = {-1e-3, 0},
                                     .has_beta = true,
                                     .beta = {0, 1}};
    check_linear(draw_linear_kind(&kind), 0, true);
    expect_refused("a very long call", 0);
}

/* A task needs at most about 2 MiB, however long the rows of V are. */
Test(linear, the_scratch_of_a_task_is_small) {
    static const float number;
    for (size_t d = 1; d <= 1024; d *= 4) {
        for (size_t d_v = 8; d_v <= 32768; d_v *= 8) {
            attn_tensor qk = {&number, ATTN_FLOAT32, 3, {16, 1000, d}}, v = qk;
            attn_plan *plan;
            v.shape[2] = d_v;
            const attn_linear call = {.q = &qk, .k = &qk, .v = &v};
            cr_assert_eq(attn_plan_linear(&plan, &call, NULL, NULL), ATTN_OK);
            cr_expect_leq(attn_plan_scratch(plan), 2 << 20, "d=%zu d_v=%zu: %zu bytes", d, d_v,
                          attn_plan_scratch(plan));
            attn_plan_free(plan);
        }
    }
}

/* A task ends soon, however many query heads read one state. */
Test(linear, many_query_heads_are_cut_into_segments) {
    static const float number;
    for (size_t d = 1; d <= 16; d *= 16) {
        const attn_tensor q = {&number, ATTN_FLOAT32, 3, {16384, 256, d}},
                          k = {&number, ATTN_FLOAT32, 3, {1, 256, d}};
        const attn_upstream upstream = {.output = &q};
        const attn_linear call = {.q = &q, .k = &k, .v = &k};
        const attn_options gradients = {.results = ATTN_WANT(GRAD_Q), .upstream = &upstream};
        attn_plan *plan;
        cr_assert_eq(attn_plan_linear(&plan, &call, NULL, NULL), ATTN_OK);
        cr_expect_geq(attn_plan_phases(plan), 1 + 256 / 16, "d=%zu", d);
        attn_plan_free(plan);
        cr_assert_eq(attn_plan_linear(&plan, &call, &gradients, NULL), ATTN_OK);
        cr_expect_geq(attn_plan_phases(plan), 2 * (1 + 256 / 4), "d=%zu", d);
        attn_plan_free(plan);
    }
}

enum {
    LEARNED = 600
};

/* Computes grad_beta of a call whose state has learned all values after some positions. */
static void learn(attn_dtype dtype, double grad_beta[LEARNED]) {
    const struct linear_kind kind = {
        .dtype = dtype, .n = LEARNED, .d = 16, .d_v = 16, .has_beta = true, .beta = {0.5, 0.5}};
    struct linear_call *c = draw_linear_kind(&kind);
    c->grad_output = c->v;
    c->grad_output.x = keep_block(c, linear_count(&c->v) * sizeof *c->v.x);
    memset(c->k.x, 0, linear_count(&c->k) * sizeof *c->k.x);
    for (size_t i = 0; i < LEARNED * kind.d; i++) {
        const size_t row = i / kind.d % kind.d, e = i % kind.d;
        c->k.x[i] = row == e;
        c->v.x[i] = (double)(float)((double)((row * 7 + e * 3) % 11) / 8 + (double)0.1F);
        c->grad_output.x[i] = i / kind.d == LEARNED - 1;
    }
    c->q = c->k;
    c->options.results = ATTN_WANT(GRAD_BETA);
    make_linear_tensors(c);
    cr_assert_lt(segment_of(c), (size_t)LEARNED);
    struct results r = try_linear(c, NULL);
    cr_assert_eq(r.status, ATTN_OK, "%s", r.error.message);
    memcpy(grad_beta, r.of[ATTN_RESULT_GRAD_BETA], LEARNED * sizeof *grad_beta);
    free_results(&r);
    free_linear_call(c);
}

/* The gradient by beta has v - S k as a factor, which is small if the state has learned v. */
Test(linear, gradients_by_small_corrections_keep_their_digits) {
    double narrow[LEARNED], wide[LEARNED], largest = 0;
    learn(ATTN_FLOAT32, narrow);
    learn(ATTN_FLOAT64, wide);
    for (size_t i = 0; i < LEARNED; i++) {
        largest = fmax(largest, fabs(wide[i]));
    }
    cr_assert_gt(largest, 0);
    for (size_t i = 0; i < LEARNED; i++) {
        cr_expect_leq(fabs(narrow[i] - wide[i]), 1e-6 * largest, "position %zu: %g and not %g", i,
                      narrow[i], wide[i]);
    }
}

/* The state after one position is a result, which is rounded: 1 is left of 1 + 2^-30 in float32. No
 * output is made of that, and so each head, which takes the difference to 1, has 2^-30. */
Test(linear, outputs_are_made_of_a_state_that_is_not_rounded) {
    const float q[] = {1, -1, 1, -1}, k[] = {0x1p-15F, 0}, v[] = {0x1p-15F, 0x1p-14F},
                past[] = {1, 1}, zero[] = {0}, one[] = {1};
    const attn_tensor t[] = {
        {q, ATTN_FLOAT32, 3, {2, 1, 2}},    {k, ATTN_FLOAT32, 3, {1, 1, 2}},
        {v, ATTN_FLOAT32, 3, {1, 1, 1}},    {v + 1, ATTN_FLOAT32, 3, {1, 1, 1}},
        {past, ATTN_FLOAT32, 3, {1, 2, 1}}, {zero, ATTN_FLOAT32, 1, {1}},
        {one, ATTN_FLOAT32, 1, {1}}};
    for (int rule = 0; rule < 4; rule++) {
        const bool corrects = rule >= 2;
        const attn_linear call = {.q = &t[0],
                                  .k = &t[1],
                                  .v = &t[corrects ? 3 : 2],
                                  .past_state = &t[4],
                                  .beta = corrects ? &t[6] : NULL};
        const attn_options o = {.flags = ATTN_FLAG_SCALE,
                                .scale = 1,
                                .decay = rule % 2 == 1 ? &t[5] : NULL,
                                .results = ATTN_WANT(OUTPUT) | ATTN_WANT(PRESENT_STATE)};
        float output[2], state[2];
        attn_plan *plan;
        attn_error error = {0};
        cr_assert_eq(attn_plan_linear(&plan, &call, &o, &error), ATTN_OK, "%s", error.message);
        attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, output);
        attn_plan_bind(plan, ATTN_RESULT_PRESENT_STATE, 0, state);
        cr_assert_eq(attn_plan_run(plan, NULL), ATTN_OK);
        cr_expect_eq(output[0], 0x1p-30F, "rule %d: %g", rule, (double)output[0]);
        cr_expect_eq(output[1], 0x1p-30F, "rule %d: %g", rule, (double)output[1]);
        cr_expect_eq(state[0], 1);
        attn_plan_free(plan);
    }
}
