/* test_by_hand.h - makes and runs calls of a few numbers, whose results are computed by hand. */
#ifndef TEST_BY_HAND_H
#define TEST_BY_HAND_H

#include <criterion/criterion.h>
#include <string.h>

#include "attention.h"
#include "support/count.h"

#define MATRIX(rows, columns, ...)                                                                 \
    ((attn_tensor){.data = (const double[]){__VA_ARGS__},                                          \
                   .dtype = ATTN_FLOAT64,                                                          \
                   .rank = 2,                                                                      \
                   .shape = {rows, columns}})

static const attn_tensor identity2 = {
    .data = (const double[]){1, 0, 0, 1}, .dtype = ATTN_FLOAT64, .rank = 2, .shape = {2, 2}};

/* Plans and runs a call. Binds the buffer data[r] to each wanted result r. */
static inline attn_status plan_and_run(const attn_tensor *q, const attn_tensor *k,
                                       const attn_tensor *v, const attn_options *options,
                                       void *const data[ATTN_RESULT_COUNT], attn_error *error) {
    attn_plan *plan;
    attn_status status = attn_plan_attention(&plan, q, k, v, options, error);
    if (status != ATTN_OK) {
        cr_assert_null(plan);
        return status;
    }
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (attn_plan_parts(plan, (attn_result)r) != 0) {
            cr_assert_eq(attn_plan_bind(plan, (attn_result)r, 0, data[r]), ATTN_OK);
        }
    }
    status = attn_plan_run(plan, error);
    attn_plan_free(plan);
    return status;
}

#endif
