/*
 * test_attention_gate.c - tests the output gate beside the same call without it: in every path by
 * which outputs are computed, and on several threads. test_attention_random.c and test_gradients.c
 * draw its forms, its projection and its gradients.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "attention.h"
#include "attention_bounds.h"
#include "attention_calls.h"
#include "support/count.h"
#include "support/plans.h"
#include "test_halves.h"

/* Calls that are small, merged, packed, materialized, of several tasks, of split keys and of long
 * rows. */
static const struct {
    unsigned kind;
    size_t heads, n, m, d, d_v;
    uint64_t results;
} gated_calls[] = {{PLAIN, 1, 3, 4, 8, 5, 0},
                   {GROUPED, 4, 1, 90, 16, 70, 0},
                   {CAUSAL | LENGTHS, 4, 300, 300, 40, 130, ATTN_WANT(WEIGHTS)},
                   {BIAS | MASK | SINK, 2, 50, 60, 16, 24, ATTN_WANT(SCORES)},
                   {SIGMOID, 2, 70, 200, 16, 24, 0},
                   {NONE, 2, 20, 200, 16, 24, 0},
                   {STICK, 2, 20, 200, 16, 24, ATTN_WANT(WEIGHTS)},
                   {GROUPED | PAST, 4, 2, 60000, 16, 16, 0},
                   {SHARED, 2, 3, 40000, 8, 8, ATTN_WANT(WEIGHTS)}};

/* Returns number e of a drawn gate; some are far from 0. */
static double gate_number(const struct call *c, size_t e) {
    const double x = (double)(e * 7919 % 1000) / 50 - 10;
    return in_dtype(c->dtype, e % 13 == 0 ? 30 * x : x);
}

static double sigmoid(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

/* Checks that an output is that without the gate times the sigmoid of the gate. */
static void check_gated(const struct call *c, const struct results *plain,
                        const struct results *gated, const double *gate, size_t columns) {
    const bool single = c->dtype == ATTN_FLOAT32;
    for (size_t e = 0; e < c->batch * c->heads * c->n * c->d_v; e++) {
        const double out = plain->of[ATTN_RESULT_OUTPUT][e];
        const double want = out * sigmoid(gate[columns == 1 ? e / c->d_v : e]);
        cr_assert_float_eq(gated->of[ATTN_RESULT_OUTPUT][e], want,
                           (single ? 0x1p-23 : 0x1p-50) * fabs(want) + (single ? 1e-44 : 1e-307),
                           "number %zu is %g, not %g", e, gated->of[ATTN_RESULT_OUTPUT][e], want);
    }
}

static void check_gated_case(size_t at, attn_dtype dtype, bool per_head) {
    struct call c = draw_call(gated_calls[at].kind, dtype, gated_calls[at].heads, gated_calls[at].n,
                              gated_calls[at].m, gated_calls[at].d, gated_calls[at].d_v);
    const size_t columns = per_head ? 1 : c.d_v, rows = c.batch * c.heads * c.n;
    const uint64_t wanted = ATTN_WANT(OUTPUT) | gated_calls[at].results,
                   gradients = wanted | ATTN_WANT(GRAD_GATE) | ATTN_WANT(GRAD_V);
    if (too_slow(c.heads * c.batch, c.n, c.m, c.d + c.d_v)) {
        free_call(&c);
        return;
    }
    double *x = allocate(rows * c.d_v, sizeof *x);
    for (size_t i = 0; i < rows * c.d_v; i++) {
        x[i] = gate_number(&c, i);
    }
    const attn_tensor gate = rows_of_heads(&c, x, c.heads, c.n, 0, c.n, columns),
                      grad = rows_of_heads(&c, x, c.heads, c.n, 0, c.n, c.d_v);
    const attn_upstream up = {.output = &grad};
    struct results plain = run_call(&c, wanted);
    c.options.gate = &gate;
    struct results gated = run_call(&c, wanted), other = try_call_by(&c, wanted, run_on_7);
    cr_expect(same_bytes(&gated, &other), "case %zu depends on the threads", at);
    check_gated(&c, &plain, &gated, x, columns);
    c.options.upstream = &up;
    struct results all = run_call(&c, gradients), again = try_call_by(&c, gradients, run_backwards);
    cr_expect(same_bytes(&all, &again), "gradients of case %zu depend on the threads", at);
    check_gated(&c, &plain, &all, x, columns); /* small calls are widened from end to end */
    free_results(&plain);
    free_results(&gated);
    free_results(&other);
    free_results(&all);
    free_results(&again);
    free((void *)(uintptr_t)gate.data);
    free((void *)(uintptr_t)grad.data);
    free(x);
    free_call(&c);
}

Test(gate, multiplies_the_output_of_every_path, .timeout = 600) {
    for (size_t at = 0; at < COUNT(gated_calls); at++) {
        for (int i = 0; i < 4; i++) {
            check_gated_case(at, i % 2 == 0 ? ATTN_FLOAT32 : ATTN_FLOAT64, i >= 2);
        }
    }
}

/* A type of 16 bits rounds the gate, its sigmoid, the output and their product. */
Test(gate, is_rounded_as_pytorch_rounds_it) {
    for (attn_compute_dtype type = ATTN_COMPUTE_FLOAT16; type <= ATTN_COMPUTE_BFLOAT16; type++) {
        struct call c = draw_call(CAUSAL, ATTN_FLOAT32, 2, 40, 40, 8, 70);
        const size_t numbers = c.heads * c.n * c.d_v;
        double *x = allocate(numbers, sizeof *x);
        for (size_t i = 0; i < numbers; i++) {
            x[i] = gate_number(&c, i);
        }
        const attn_tensor gate = rows_of_heads(&c, x, c.heads, c.n, 0, c.n, c.d_v);
        c.options.compute_dtype = type;
        struct results plain = run_call(&c, ATTN_WANT(OUTPUT));
        c.options.gate = &gate;
        struct results gated = run_call(&c, ATTN_WANT(OUTPUT));
        for (size_t e = 0; e < numbers; e++) {
            const double factor = rounded(type, sigmoid(rounded(type, x[e])));
            const double want = rounded(type, plain.of[ATTN_RESULT_OUTPUT][e] * factor);
            cr_assert_eq(gated.of[ATTN_RESULT_OUTPUT][e], want, "number %zu is %g, not %g", e,
                         gated.of[ATTN_RESULT_OUTPUT][e], want);
        }
        free_results(&plain);
        free_results(&gated);
        free((void *)(uintptr_t)gate.data);
        free(x);
        free_call(&c);
    }
}
