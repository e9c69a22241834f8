/*
 * test_kernels.c runs the checks of support/check_kernels.c for every table of row kernels that
 * this machine can run, and tests which table ATTENTION_ISA chooses.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "attention.h"
#include "kernels/kernels.h"
#include "support/check_kernels.h"

static size_t tables(const struct attn_kernels *all[ATTN_KERNELS_MAX]) {
    size_t count = 0;
    all[count++] = &attn_kernels_scalar;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        all[count++] = &attn_kernels_avx2;
    }
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
        all[count++] = &attn_kernels_avx512;
    }
#elif defined(__aarch64__)
    all[count++] = &attn_kernels_neon;
#endif
    return count;
}

static void check_tables(const char *(*check)(const struct attn_kernels *k)) {
    const struct attn_kernels *all[ATTN_KERNELS_MAX];
    const size_t count = tables(all);
    for (size_t t = 0; t < count; t++) {
        const char *wrong = check(all[t]);
        cr_expect_null(wrong, "%s: %s", all[t]->name, wrong);
    }
}

#define KERNEL_CHECK(name)                                                                         \
    Test(kernels, name, .timeout = 1200) {                                                         \
        check_tables(check_##name);                                                                \
    }
KERNEL_CHECKS(KERNEL_CHECK)

/* ------------------------------------------------------------------------------- ATTENTION_ISA */

/* Each test is a process of its own, in which the table is not chosen yet. */
TestSuite(isa, .timeout = 1200);

/* Expects that attn_build() names the table with this index (-1: the fastest one), and that it says
 * whether the value of ATTENTION_ISA was refused. */
static void expect_choice(const char *value, bool refused, int index) {
    const struct attn_kernels *all[ATTN_KERNELS_MAX];
    const size_t count = tables(all);
    if (value == NULL) {
        unsetenv("ATTENTION_ISA");
    } else {
        setenv("ATTENTION_ISA", value, 1);
    }
    const attn_build_info build = attn_build();
    cr_expect_eq(build.kernels_refused, refused);
    cr_expect_str_eq(build.kernels, all[index < 0 ? count - 1 : (size_t)index]->name);
    for (size_t t = 0; t < count; t++) {
        cr_assert_not_null(build.usable_kernels[t]);
        cr_expect_str_eq(build.usable_kernels[t], all[t]->name);
    }
    cr_expect_null(build.usable_kernels[count]);
    setenv("ATTENTION_ISA", "later", 1); /* a later value has no effect */
    cr_expect_eq(attn_build().kernels_refused, refused);
    cr_expect_str_eq(attn_build().kernels, build.kernels);
}

Test(isa, without_it_the_best_kernels_are_used) {
    expect_choice(NULL, false, -1);
}

Test(isa, empty_is_as_good_as_unset) {
    expect_choice("", false, -1);
}

Test(isa, forces_a_table) {
    expect_choice("scalar", false, 0);
}

Test(isa, unknown_name_is_refused) {
    expect_choice("Scalar", true, -1);
}

Test(isa, table_of_another_cpu_is_refused) {
#if defined(__aarch64__)
    expect_choice("avx2", true, -1);
#else
    expect_choice("neon", true, -1);
#endif
}
