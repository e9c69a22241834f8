/*
 * test_runner.c - makes the tests compute with the kernels of OpenBLAS that the daemon would choose
 * on this machine, and prints the names of all kernels.
 */
#include <stdio.h>
#include <stdlib.h>

#include "attention.h"
#include "blas_setup.h"

/* Criterion has the function main, so a constructor prints. */
__attribute__((constructor)) static void show_kernels(void) {
    if (getenv("BXFI_MAP") == NULL) { /* Criterion sets it in the processes of tests */
        blas_report();
        const attn_build_info build = attn_build();
        fprintf(stderr, "OpenBLAS core %s, row kernels %s\n", build.blas_core, build.kernels);
    }
}
