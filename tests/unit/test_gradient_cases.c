/*
 * test_gradient_cases.c - tests the gradients of calls that are made for one rule each: of many
 * tasks on several threads, of one matrix that is Q, K and V, of prepacked weights, and of norms
 * whose squares overflow.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "attention.h"
#include "attention_bounds.h"
#include "random_gradients.h"

/* -------------------------------------------------------------------------------------- threads */

/* Sizes at which each phase has many tasks. */
static const struct {
    unsigned kind;
    size_t heads, n, m, d, d_v;
} sizes_of_many_tasks[] = {{PLAIN, 2, 300, 700, 40, 24},
                           {ALL, 4, 300, 300, 16, 64},
                           {SHARED | BIAS | CAUSAL, 2, 1000, 300, 8, 20},
                           {GROUPED | PAST | SINK, 4, 200, 5000, 8, 8}};

Test(gradients, do_not_depend_on_the_threads, .timeout = 1200) {
    run_tasks *const ways[] = {run_on_1, run_on_2, run_on_64, run_backwards};
    for (size_t at = 0; at < COUNT(sizes_of_many_tasks) * 2; at++) {
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
        for (size_t way = 0; way < COUNT(ways); way++) {
            struct results is = try_call_by(&c, gradients_of(&c), ways[way]);
            cr_expect(same_bytes(&want, &is), "case %zu, way %zu", at, way);
            free_results(&is);
        }
        free_results(&want);
        free((void *)(uintptr_t)output.data);
        free(x);
        free_call(&c);
    }
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
                sum += tensor_number(&t, e);
                cr_assert_eq(tensor_number(&t, e), tensor_number(&u, e));
            }
            for (int i = 1; i < 3; i++) {
                const attn_tensor t =
                    attn_as_tensor(attn_plan_tensor(plans[i], ATTN_RESULT_GRAD_X, 0));
                cr_assert_float_eq(tensor_number(&t, e), sum, (at % 2 ? 1e-14 : 1e-6) * 10);
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
                largest = fmax(largest, fabs(tensor_number(&want, e)));
            }
            for (size_t e = 0; e < count_of(&want); e++) {
                cr_assert_float_eq(tensor_number(&is, e), tensor_number(&want, e),
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
static void expect_gradients_of_large(bool values) {
    static const double scales[] = {0x1p60, 0x1p1000};
    const attn_result of_rows = values ? ATTN_RESULT_GRAD_V : ATTN_RESULT_GRAD_K,
                      of_norm = values ? ATTN_RESULT_GRAD_NORM_V : ATTN_RESULT_GRAD_NORM_K;
    struct call c = draw_call(PLAIN, ATTN_FLOAT64, 1, ROWS, ROWS, WIDE, WIDE);
    const attn_tensor q = matrix_of(c.q, ATTN_FLOAT64, ROWS, WIDE),
                      k = matrix_of(c.k, ATTN_FLOAT64, ROWS, WIDE),
                      norm = {.data = c.v, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {WIDE}};
    const attn_upstream up = {.output = &q};
    const attn_options o = {.results = UINT64_C(1) << of_rows | UINT64_C(1) << of_norm,
                            .upstream = &up,
                            .norm_k = values ? NULL : &norm,
                            .norm_v = values ? &norm : NULL};
    double *rows[2], *results[2];
    attn_plan *plans[2];
    for (int i = 0; i < 2; i++) {
        rows[i] = allocate(ROWS * WIDE, sizeof(double));
        for (size_t e = 0; e < ROWS * WIDE; e++) {
            rows[i][e] = c.v[e] * scales[i];
        }
        const attn_tensor large = matrix_of(rows[i], ATTN_FLOAT64, ROWS, WIDE);
        cr_assert_eq(attn_plan_attention(&plans[i], &q, values ? &k : &large, values ? &large : &k,
                                         &o, NULL),
                     ATTN_OK);
        results[i] = run_alone(plans[i]);
    }
    for (int r = 0; r < 2; r++) {
        const attn_result which = r ? of_norm : of_rows;
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
        free(rows[i]);
    }
    free_call(&c);
}

Test(gradients, of_norms_of_large_numbers) {
    expect_gradients_of_large(false);
    expect_gradients_of_large(true);
}
