/*
 * check_kernels.h - the checks that every table of row kernels must pass, as plain functions.
 * tests/unit calls them for the tables of this machine, and run_kernels.c for those of another CPU;
 * run_kernels.c needs only a C library.
 */
#ifndef SUPPORT_CHECK_KERNELS_H
#define SUPPORT_CHECK_KERNELS_H

#include "kernels/kernels.h"

#define KERNEL_CHECKS(X)                                                                           \
    X(exp_f32_is_right_to_one_ulp)                                                                 \
    X(exp_f64_is_right_to_one_ulp)                                                                 \
    X(softcap_is_right_to_four_ulp)                                                                \
    X(log1p_is_right_to_three_ulp)                                                                 \
    X(alibi_agrees_with_plain_loop)                                                                \
    X(round_half_rounds_each_number)                                                               \
    X(max_agrees_with_plain_loop)                                                                  \
    X(rows_f32_agree_with_plain_loops)                                                             \
    X(rows_f64_agree_with_plain_loops)                                                             \
    X(matrices_f32_agree_with_plain_loops)                                                         \
    X(matrices_f64_agree_with_plain_loops)                                                         \
    X(products_f32_agree_with_plain_loops)                                                         \
    X(products_f64_agree_with_plain_loops)                                                         \
    X(gathers_f32_agree_with_plain_loops)                                                          \
    X(gathers_f64_agree_with_plain_loops)                                                          \
    X(solutions_f32_fit_their_systems)                                                             \
    X(solutions_f64_fit_their_systems)                                                             \
    X(far_below_f32_is_zero)                                                                       \
    X(far_below_f64_is_zero)                                                                       \
    X(spread_f32_writes_its_row_alone)                                                             \
    X(spread_f64_writes_its_row_alone)                                                             \
    X(online_f32_is_softmax)                                                                       \
    X(online_f64_is_softmax)                                                                       \
    X(online_f32_sees_what_is_too_large)                                                           \
    X(online_f64_sees_what_is_too_large)

/* Returns the text of a failure, which is static. The next call overwrites it. */
__attribute__((format(printf, 1, 2))) const char *check_failure(const char *format, ...);

/* Each function returns NULL, or a text that says what is wrong. The next call overwrites it. */
#define KERNEL_CHECK(name) const char *check_##name(const struct attn_kernels *k);
KERNEL_CHECKS(KERNEL_CHECK)
#undef KERNEL_CHECK

#endif
