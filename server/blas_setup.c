/* blas_setup.c - sets the environment of OpenBLAS and executes the program again. */
#include "blas_setup.h"

#include "attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the name of the best kernels that every OpenBLAS since 0.3.6 has and that this CPU can
 * run; NULL if there is nothing better than what OpenBLAS chose. */
static const char *best_core(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        return "SkylakeX";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return "Haswell";
    }
#endif
    return NULL;
}

/* Returns the name of the kernels that OpenBLAS should take instead of those that it chose; NULL if
 * its choice stays. */
static const char *mended_core(void) {
    static const char *const old[] = {"Prescott", "Core2", "Nehalem", "Barcelona", "Bobcat"};
    const char *core = attn_build().blas_core, *better = best_core();
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        if (better != NULL && getenv("OPENBLAS_CORETYPE") == NULL && strcmp(core, old[i]) == 0) {
            fprintf(stderr,
                    "attentiond: OpenBLAS does not know this CPU (it chose %s); "
                    "using OPENBLAS_CORETYPE=%s\n",
                    core, better);
            return better;
        }
    }
    return NULL;
}

void blas_prepare(char *argv[]) {
    const char *core = mended_core(), *threads = getenv("OPENBLAS_NUM_THREADS");
    if (core == NULL && threads != NULL && strcmp(threads, "1") == 0) {
        return;
    }
    if (core != NULL) {
        setenv("OPENBLAS_CORETYPE", core, 1);
    }
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    /* The real path, not /proc/self/exe, keeps the program's name in the list of processes. */
    char path[4096];
    const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    if (size > 0) {
        path[size] = '\0';
        execv(path, argv);
    }
    /* Without exec the daemon serves all the same: its results are right, but slower. */
}
