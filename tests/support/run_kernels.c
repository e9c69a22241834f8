/*
 * run_kernels.c - the program `run_kernels TABLE...` checks these tables of row kernels, which this
 * CPU must be able to run. Without names it checks all tables that the CPU can run. It is a
 * plain program, so that an emulator of another CPU can run it (make check-neon). The exit status
 * is 0 only if all checks pass.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "support/check_kernels.h"

static const struct {
    const char *name;
    const char *(*run)(const struct attn_kernels *k);
} checks[] = {
#define KERNEL_CHECK(name) {#name, check_##name},
    KERNEL_CHECKS(KERNEL_CHECK)
#undef KERNEL_CHECK
};

/* Returns the number of failed checks. */
static int run_table(const struct attn_kernels *k) {
    int failed = 0;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        const char *wrong = checks[i].run(k);
        printf("%s %s: %s\n", k->name, checks[i].name, wrong == NULL ? "passed" : wrong);
        fflush(stdout);
        failed += wrong != NULL;
    }
    return failed;
}

int main(int argc, char *argv[]) {
    const struct attn_kernels *usable[ATTN_KERNELS_MAX];
    const size_t count = attn_kernels_usable(usable);
    int failed = 0;
    if (argc < 2) {
        for (size_t t = 0; t < count; t++) {
            failed += run_table(usable[t]);
        }
    }
    for (int i = 1; i < argc; i++) {
        size_t t = 0;
        while (t < count && strcmp(usable[t]->name, argv[i]) != 0) {
            t++;
        }
        if (t == count) {
            printf("this CPU does not run %s\n", argv[i]);
        }
        failed += t < count ? run_table(usable[t]) : 1;
    }
    printf("%d failed\n", failed);
    return failed != 0;
}
