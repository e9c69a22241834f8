/* blas_setup.c - see blas_setup.h. */
#include "blas_setup.h"

#include "attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The best kernels that every OpenBLAS since 0.3.6 has and that this CPU can run; NULL = no
 * better. */
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

/* The kernels to ask for instead of those that OpenBLAS chose; NULL = they are fine. */
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
    /* By its own path, so that it keeps its name in the process list. */
    char path[4096];
    const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    if (size > 0) {
        path[size] = '\0';
        execv(path, argv);
    }
    /* Not possible here: slower, but right. */
}
