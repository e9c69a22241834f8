/* test_attention_softmax.c - tests softmax alone, along any axis. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "support/plans.h"
#include "support/scale.h"

Test(softmax, in_place_and_with_minus_infinity) {
    double x[3] = {-INFINITY, 2, 2};
    attn_tensor t = {.data = x, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {3}};
    cr_assert_eq(attn_softmax(&t, -1, x, NULL), ATTN_OK);
    cr_expect(x[0] == 0 && x[1] == 0.5 && x[2] == 0.5);
    x[0] = x[1] = x[2] = -INFINITY;
    cr_assert_eq(attn_softmax(&t, 0, x, NULL), ATTN_OK);
    cr_expect(x[0] == 0 && x[1] == 0 && x[2] == 0);
}

Test(softmax, refuses_what_has_no_softmax) {
    double x[2] = {1, NAN};
    attn_tensor t = {.data = x, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {2}};
    attn_error error;
    cr_expect_eq(attn_softmax(&t, 0, x, &error), ATTN_NOT_FINITE);
    cr_expect_not_null(strstr(error.message, "element 1"));
    cr_expect_eq(attn_softmax(&t, 1, x, &error), ATTN_INVALID_ARGUMENT);
}

/* Compares softmax of (outer, count, inner) along the middle axis with plain loops. It runs in
 * place, task by task, and each phase from its last task to its first. */
static void check_softmax(size_t outer, size_t count, size_t inner, attn_dtype dtype) {
    const attn_tensor t = {.dtype = dtype, .rank = 3, .shape = {outer, count, inner}};
    const size_t all = outer * count * inner, size = attn_dtype_size(dtype);
    double *want = malloc(all * sizeof *want);
    void *x = malloc(all * size);
    attn_tensor in_place = t;
    size_t bytes;
    attn_plan *plan;
    attn_error error = {0};
    in_place.data = x;
    cr_assert(want != NULL && x != NULL);
    for (size_t i = 0; i < all; i++) {
        const double value = i % 101 == 0 ? -INFINITY : (double)(i * 7919 % 1009) / 64 - 8;
        want[i] = value;
        set_number(x, dtype, i, value);
    }
    for (size_t slice = 0; slice < outer * inner; slice++) {
        double *w = want + slice / inner * count * inner + slice % inner, sum = 0;
        for (size_t i = 0; i < count; i++) {
            sum += exp(w[i * inner]);
        }
        for (size_t i = 0; i < count; i++) {
            w[i * inner] = sum > 0 ? exp(w[i * inner]) / sum : 0;
        }
    }
    cr_assert_eq(attn_plan_softmax(&plan, &in_place, 1, &error), ATTN_OK, "%s", error.message);
    cr_expect(attn_plan_results_bytes(plan, &bytes) && bytes >= all * size);
    attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, x);
    cr_assert_eq(attn_plan_begin(plan, &error), ATTN_OK);
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        for (size_t task = attn_plan_tasks(plan, phase); task-- > 0;) {
            cr_assert_eq(attn_plan_task(plan, phase, task, NULL, &error), ATTN_OK);
        }
    }
    cr_assert_eq(attn_plan_end(plan, &error), ATTN_OK);
    attn_plan_free(plan);
    for (size_t i = 0; i < all; i++) {
        const double is = number_of(x, dtype, i);
        cr_assert(fabs(is - want[i]) <= (dtype == ATTN_FLOAT32 ? 4e-7 : 1e-12) * want[i],
                  "(%zu, %zu, %zu): %g is off by %g of it", outer, count, inner, is,
                  is / want[i] - 1);
    }
    free(want);
    free(x);
}

/* The shapes have one number, few or many columns, slices that are cut, many slices in a task, or
 * rows around the sizes of vectors. */
Test(softmax, of_every_shape) {
    static const size_t shapes[][3] = {
        {1, 1, 1},      {3, 5, 1},     {2, 7, 3},     {1, 600, 255}, {2, 40, 257}, {1, 300000, 1},
        {1, 3000, 300}, {1, 90000, 3}, {20000, 3, 1}, {500, 2, 9},   {1, 7, 1},    {1, 8, 1},
        {1, 9, 1},      {1, 15, 1},    {1, 16, 1},    {1, 17, 1},    {1, 31, 1},   {1, 33, 1},
        {1, 63, 1},     {1, 64, 1},    {1, 65, 1},    {1, 1000, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t *s = shapes[i];
        if (test_scale(100) == 100 || s[0] * s[1] * s[2] < 100000) {
            check_softmax(s[0], s[1], s[2], ATTN_FLOAT32);
            check_softmax(s[0], s[1], s[2], ATTN_FLOAT64);
        }
    }
}

Test(softmax, names_the_element_in_a_cut_slice) {
    const size_t count = 300000;
    float *x = calloc(count, sizeof *x);
    attn_tensor t = {.data = x, .rank = 1, .shape = {count}};
    attn_error error;
    x[299999] = NAN;
    cr_expect_eq(attn_softmax(&t, 0, x, &error), ATTN_NOT_FINITE);
    cr_expect_not_null(strstr(error.message, "element 299999"));
    t.rank = 2;
    t.shape[0] = 1000;
    t.shape[1] = 300;
    x[299999] = 0;
    x[150] = INFINITY;
    cr_expect_eq(attn_softmax(&t, 0, x, &error), ATTN_NOT_FINITE);
    cr_expect_not_null(strstr(error.message, "element 150"));
    free(x);
}
