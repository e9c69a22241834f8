/*
 * test_attention_empty.c - tests calls without queries or keys, by hand. The random calls have
 * some, too, and data/answers.txt has others.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "test_by_hand.h"

/* Tensors without elements have no data. */
#define EMPTY(rows, columns)                                                                       \
    ((attn_tensor){.dtype = ATTN_FLOAT64, .rank = 2, .shape = {rows, columns}})

static bool are_zeros(const double *numbers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (numbers[i] != 0) {
            return false;
        }
    }
    return true;
}

static void expect_shape(const attn_plan *plan, attn_result result, size_t rows, size_t columns) {
    const attn_result_tensor *t = attn_plan_tensor(plan, result, 0);
    cr_assert_not_null(t);
    cr_expect(t->rank == 2 && t->shape[0] == rows && t->shape[1] == columns, "%s: (%zu, %zu)",
              attn_result_name(result), t->shape[0], t->shape[1]);
}

/* Results without elements need no buffer. */
Test(empty, no_query_gives_zeros_to_keys) {
    const attn_tensor q = EMPTY(0, 2), k = MATRIX(3, 2, 1, 2, 3, 4, 5, 6),
                      v = MATRIX(3, 1, 1, 2, 3);
    const attn_tensor grad = EMPTY(0, 1), early = {.dtype = ATTN_FLOAT64, .rank = 1};
    const attn_tensor *const given[] = {&grad, &early};
    for (size_t i = 0; i < 2; i++) {
        const attn_upstream up = {.output = given[i]};
        const attn_options o = {.results = ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS) |
                                           ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) |
                                           ATTN_WANT(GRAD_V) | ATTN_WANT(PRESENT_K),
                                .upstream = &up};
        double grad_k[6], grad_v[3], present[6];
        attn_plan *plan;
        attn_error error;
        memset(grad_k, 0xff, sizeof grad_k);
        memset(grad_v, 0xff, sizeof grad_v);
        cr_assert_eq(attn_plan_attention(&plan, &q, &k, &v, &o, &error), ATTN_OK, "%s",
                     error.message);
        expect_shape(plan, ATTN_RESULT_OUTPUT, 0, 1);
        expect_shape(plan, ATTN_RESULT_WEIGHTS, 0, 3);
        expect_shape(plan, ATTN_RESULT_GRAD_Q, 0, 2);
        attn_plan_bind(plan, ATTN_RESULT_GRAD_K, 0, grad_k);
        attn_plan_bind(plan, ATTN_RESULT_GRAD_V, 0, grad_v);
        attn_plan_bind(plan, ATTN_RESULT_PRESENT_K, 0, present);
        cr_expect_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
        cr_expect(are_zeros(grad_k, 6) && are_zeros(grad_v, 3));
        cr_expect_eq(memcmp(present, k.data, sizeof present), 0);
        attn_plan_free(plan);
    }
}

enum {
    LONG = 300000, /* queries; tasks fill fewer numbers than their results have */
    OUT = 3
};

/* Runs a call without keys whose gradients of W_O and b_O are wanted, and whose D is `x`. */
static attn_status run_long(double x, double output[static LONG * OUT], double *grad_w_o,
                            double *grad_b_o, attn_error *error) {
    double *d = malloc(sizeof *d * LONG * OUT);
    for (size_t i = 0; i < (size_t)LONG * OUT; i++) {
        d[i] = i % OUT == 2 ? x : (double)(i % OUT);
    }
    const attn_tensor X = {.data = d, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {LONG, 1}};
    const attn_tensor D = {.data = d, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {LONG, OUT}};
    const attn_tensor w = MATRIX(1, 1, 1), w_o = MATRIX(1, OUT, 1, 2, 3), context = EMPTY(0, 1);
    const attn_tensor b_o = {(const double[]){4, 5, 6}, ATTN_FLOAT64, 1, {OUT}};
    const attn_projection all = {.w_q = &w, .w_k = &w, .w_v = &w};
    const attn_multihead call = {
        .x = &X, .context = &context, .projections = &all, .count = 1, .w_o = &w_o, .b_o = &b_o};
    const attn_upstream up = {.output = &D};
    const attn_options o = {
        .results = ATTN_WANT(OUTPUT) | ATTN_WANT(GRAD_W_O) | ATTN_WANT(GRAD_B_O), .upstream = &up};
    attn_plan *plan;
    attn_status status = attn_plan_multihead(&plan, &call, &o, error);
    cr_assert_eq(status, ATTN_OK, "%s", error->message);
    attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, output);
    attn_plan_bind(plan, ATTN_RESULT_GRAD_W_O, 0, grad_w_o);
    attn_plan_bind(plan, ATTN_RESULT_GRAD_B_O, 0, grad_b_o);
    status = attn_plan_run(plan, error);
    attn_plan_free(plan);
    free(d);
    return status;
}

Test(empty, no_key_leaves_the_bias_of_the_output) {
    double *output = malloc(sizeof *output * LONG * OUT), grad_w_o[OUT], grad_b_o[OUT];
    attn_error error = {0};
    memset(output, 0xff, sizeof *output * LONG * OUT);
    memset(grad_w_o, 0xff, sizeof grad_w_o);
    cr_assert_eq(run_long(2, output, grad_w_o, grad_b_o, &error), ATTN_OK, "%s", error.message);
    for (size_t i = 0; i < (size_t)LONG * OUT; i++) {
        cr_assert_eq(output[i], (double)(4 + i % OUT));
    }
    cr_expect(are_zeros(grad_w_o, OUT));
    for (size_t c = 0; c < OUT; c++) {
        cr_expect_eq(grad_b_o[c], (double)(c * LONG));
    }
    cr_expect_eq(run_long(1e307, output, grad_w_o, grad_b_o, &error), ATTN_NOT_FINITE);
    cr_expect_str_eq(error.message,
                     "grad_b_O is not a finite float64 at (2): the values are too large");
    free(output);
}

/* Heads that share a key head are not taken for queries. The numbers after D belong to nobody. */
Test(empty, one_query_of_grouped_heads_is_one_query) {
    static const double given[] = {2, 3, 1000, 1000};
    const attn_tensor D = {.data = given, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {1, 2}};
    const attn_tensor x = MATRIX(1, 1, 1), context = EMPTY(0, 1), w_q = MATRIX(1, 2, 1, 1),
                      w = MATRIX(1, 1, 1), w_o = MATRIX(2, 2, 1, 2, 3, 4);
    const attn_tensor b_o = {(const double[]){4, 5}, ATTN_FLOAT64, 1, {2}};
    const attn_projection all = {.w_q = &w_q, .w_k = &w, .w_v = &w};
    const attn_multihead call = {
        .x = &x, .context = &context, .projections = &all, .count = 1, .w_o = &w_o, .b_o = &b_o};
    const attn_upstream up = {.output = &D};
    const attn_options o = {
        .results = ATTN_WANT(GRAD_B_O), .heads = 2, .kv_heads = 1, .upstream = &up};
    double grad_b_o[2];
    attn_plan *plan;
    attn_error error;
    cr_assert_eq(attn_plan_multihead(&plan, &call, &o, &error), ATTN_OK, "%s", error.message);
    attn_plan_bind(plan, ATTN_RESULT_GRAD_B_O, 0, grad_b_o);
    cr_expect_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
    cr_expect(grad_b_o[0] == 2 && grad_b_o[1] == 3, "%g, %g", grad_b_o[0], grad_b_o[1]);
    attn_plan_free(plan);
}
