/*
 * run_kernels.c - the program `run_kernels TABLE...` checks these tables of row kernels, which this
 * CPU must be able to run. Without names it checks all tables that the CPU can run, and the model
 * of the tile instructions. It is a plain program, so that an emulator of another CPU can run it
 * (make check-neon). The exit status is 0 only if all checks pass.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "support/check_kernels.h"
#include "support/check_tiles.h"
#include "support/tile_model.h"

static const struct {
    const char *name;
    const char *(*run)(const struct attn_kernels *k);
} checks[] = {
#define KERNEL_CHECK(name) {#name, check_##name},
    KERNEL_CHECKS(KERNEL_CHECK)
#undef KERNEL_CHECK
};

static const struct {
    const char *name;
    const char *(*run)(const struct attn_tiles *t);
} tile_checks[] = {
#define TILE_CHECK(name) {#name, check_tiles_##name},
    TILE_CHECKS(TILE_CHECK)
#undef TILE_CHECK
};

/* Prints the result of a check. Returns whether it failed. */
static bool print_result(const char *table, const char *check, const char *wrong) {
    printf("%s %s: %s\n", table, check, wrong == NULL ? "passed" : wrong);
    fflush(stdout);
    return wrong != NULL;
}

/* Returns the number of failed checks. */
static int run_tiles(const char *name, const struct attn_tiles *t) {
    int failed = 0;
    for (size_t i = 0; i < sizeof tile_checks / sizeof *tile_checks; i++) {
        failed += print_result(name, tile_checks[i].name, tile_checks[i].run(t));
    }
    return failed;
}

/* Returns the number of failed checks. */
static int run_table(const struct attn_kernels *k) {
    int failed = 0;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        failed += print_result(k->name, checks[i].name, checks[i].run(k));
    }
    if (k->tiles != NULL && !attn_tiles_permitted()) {
        printf("the operating system refuses the tile registers to %s\n", k->name);
    } else if (k->tiles != NULL) {
        failed += run_tiles(k->name, k->tiles);
    }
    return failed;
}

int main(int argc, char *argv[]) {
    const struct attn_kernels *usable[ATTN_KERNELS_MAX];
    const size_t count = attn_kernels_usable(usable);
    int failed = 0;
    if (argc < 2) {
        failed += run_tiles("model", &tile_model);
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
