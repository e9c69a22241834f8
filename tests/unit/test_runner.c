/*
 * test_runner.c - the process that runs the tests sees to it that they compute with the kernels of
 * OpenBLAS that the daemon would choose here.
 */
#include <stdio.h>
#include <stdlib.h>

#include "attention.h"
#include "blas_setup.h"

/* main is Criterion's; glibc gives its arguments to constructors too. */
__attribute__((constructor)) static void choose_kernels(int argc, char *argv[]) {
    (void)argc;
    if (getenv("BXFI_MAP") == NULL) { /* set for the processes of tests */
        blas_prepare(argv);
        const attn_build_info build = attn_build();
        fprintf(stderr, "OpenBLAS core %s, row kernels %s\n", build.blas_core, build.kernels);
    }
}
