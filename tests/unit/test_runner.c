/*
 * test_runner.c - what concerns the process that runs the tests. Criterion starts a process for
 * each of them.
 *
 * Its own, with some two hundred tests, leaves 48 bytes behind, which LeakSanitizer is not to take
 * for ours. The processes of the tests are looked at as ever.
 *
 * It sees to it that they compute with the kernels of OpenBLAS that the daemon would choose here.
 */
#include <stdio.h>
#include <stdlib.h>

#include "attention.h"
#include "blas_setup.h"

/* LeakSanitizer asks it at the end, from its own library. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);

static int is_runner;

/* main is Criterion's; glibc gives its arguments to constructors too. */
__attribute__((constructor)) static void begin(int argc, char *argv[]) {
    (void)argc;
    is_runner = getenv("BXFI_MAP") == NULL; /* set for the processes of tests */
    if (is_runner) {
        blas_prepare(argv);
        const attn_build_info build = attn_build();
        fprintf(stderr, "OpenBLAS core %s, row kernels %s\n", build.blas_core, build.kernels);
    }
}

int __lsan_is_turned_off(void) {
    return is_runner;
}
