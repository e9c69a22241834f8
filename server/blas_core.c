/* blas_core.c - see blas_core.h. */
#include "blas_core.h"

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

void blas_core_mend(char *argv[]) {
    static const char *const old[] = {"Prescott", "Core2", "Nehalem", "Barcelona", "Bobcat"};
    const char *core = attn_build().blas_core, *better = best_core();
    if (better == NULL || getenv("OPENBLAS_CORETYPE") != NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        if (strcmp(core, old[i]) == 0) {
            fprintf(stderr,
                    "attentiond: OpenBLAS does not know this CPU (it chose %s); "
                    "using OPENBLAS_CORETYPE=%s\n",
                    core, better);
            setenv("OPENBLAS_CORETYPE", better, 1);
            setenv("OPENBLAS_NUM_THREADS", "1", 0);
            execv("/proc/self/exe", argv);
            return; /* not possible here: slower, but right */
        }
    }
}
