/*
 * test_attention_decay.c - the forget gates at their limits: a gate of 0, decays of very different
 * sizes, many keys, queries that stand behind all keys, and decays that are refused.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_bounds.h"

/* Draws a causal call of one head, whose decays are x. */
static struct call draw_with(attn_dtype dtype, size_t n, size_t m, const double *x) {
    struct call c = draw_call(CAUSAL, dtype, 1, n, m, 2, 3);
    c.decay = memcpy(keep_block(&c, m * sizeof *x), x, m * sizeof *x);
    return c;
}

/* A large decay takes no digit of those after it, and a gate of 0 changes no bit of what follows
 * it. */
Test(decay, large_ones_leave_the_others_exact) {
    static const double small[] = {-0.25, -0.5, -0.125, -1, -0.0625, -0.75, -0.375, -2};
    static const double large[] = {-1e30, -INFINITY, -3e38, -1e10};
    for (size_t i = 0; i < 8; i++) {
        double x[8], y[8];
        for (size_t j = 0; j < 8; j++) {
            x[j] = j == 3 ? large[i % 4] : small[j];
            y[j] = j == 3 ? -INFINITY : small[j];
        }
        const attn_dtype dtype = i < 4 ? ATTN_FLOAT32 : ATTN_FLOAT64;
        struct call a = draw_with(dtype, 8, 8, x), b = draw_with(dtype, 8, 8, y);
        const uint64_t wanted = ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS) | ATTN_WANT(LSE);
        struct results is = run_call(&a, wanted), want = run_call(&b, wanted);
        cr_expect(same_bytes(&is, &want), "decay %g", large[i % 4]);
        cr_expect_eq(want.of[ATTN_RESULT_WEIGHTS][3 * 8 + 3], 1);
        free_results(&is);
        free_results(&want);
        free_call(&a);
        free_call(&b);
    }
}

/* The decays of so many keys are added in several trees. */
Test(decay, of_many_keys) {
    enum {
        KEYS = 140000
    };
    static const uint64_t ways[] = {ATTN_WANT(OUTPUT) | ATTN_WANT(LSE),
                                    ATTN_WANT(OUTPUT) | ATTN_WANT(LSE) | ATTN_WANT(WEIGHTS)};
    double *x = allocate(KEYS, sizeof *x);
    if (too_slow(1, 3, KEYS, 2)) {
        cr_skip_test("too large for a slow run");
    }
    for (size_t gate = 0; gate < 2; gate++) {
        for (size_t j = 0; j < KEYS; j++) {
            x[j] = -1.0 / (double)(1 << (14 + j % 4));
        }
        x[KEYS / 2 + 3] = gate == 0 ? -0.5 : -INFINITY;
        struct call c = draw_with(ATTN_FLOAT64, 3, KEYS, x);
        c.options.flags |= ATTN_FLAG_BOTTOM_RIGHT;
        double *running = allocate(KEYS + 1, sizeof *running); /* these sums are exact */
        for (size_t j = KEYS; j-- > 0;) {
            running[j] = running[j + 1] + c.decay[j];
        }
        c.bias = keep_block(&c, 3 * KEYS * sizeof *c.bias);
        for (size_t i = 0; i < 3; i++) {
            for (size_t j = 0; j < KEYS; j++) {
                const size_t end = KEYS - 2 + i;
                c.bias[i * KEYS + j] = j + 1 >= end ? 0
                                       : running[j + 1] == -INFINITY
                                           ? -INFINITY
                                           : running[j + 1] - running[end];
            }
        }
        struct call biased = copy_call(&c);
        biased.decay = NULL;
        c.bias = NULL;
        for (size_t way = 0; way < 2; way++) {
            struct results is = run_call(&c, ways[way]), want = run_call(&biased, ways[way]);
            cr_expect(same_bytes(&is, &want), "gate %zu, way %zu", gate, way);
            free_results(&is);
            free_results(&want);
        }
        free(running);
        free_call(&c);
        free_call(&biased);
    }
    free(x);
}
