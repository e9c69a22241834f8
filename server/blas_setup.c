/* blas_setup.c - sets the environment of OpenBLAS before OpenBLAS reads it. */
#define _GNU_SOURCE /* environ */
#include "blas_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* OpenBLAS exports these functions and calls them when it is loaded. The first one is its
 * constructor, which does nothing when it is called again. The second one chooses kernels, and the
 * third one forgets them; only builds with kernels for several CPUs have these two. */
void gotoblas_init(void) __attribute__((weak));
void gotoblas_dynamic_init(void) __attribute__((weak));
void gotoblas_dynamic_quit(void) __attribute__((weak));
char *openblas_get_corename(void);

static const char *replaced_core; /* the kernels that OpenBLAS chose, if it got others */

/* Returns the name of the best kernels that every OpenBLAS since 0.3.6 has and that this CPU can
 * run; NULL if OpenBLAS should choose. */
static const char *best_core(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
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

/* Lets OpenBLAS choose its kernels, and sets OPENBLAS_CORETYPE if its choice is an old one. */
static void mend_core(const char *better) {
    static const char *const old[] = {"Prescott", "Core2", "Nehalem", "Barcelona", "Bobcat"};
    gotoblas_dynamic_init();
    const char *core = openblas_get_corename();
    for (size_t i = 0; i < sizeof old / sizeof *old; i++) {
        if (strcmp(core, old[i]) == 0) {
            replaced_core = core;
            setenv("OPENBLAS_CORETYPE", better, 1);
        }
    }
    gotoblas_dynamic_quit();
}

/* glibc has no environment yet, and takes the original one when its own constructor runs. So
 * OpenBLAS must begin here, while the variables are set. */
static void prepare(int argc, char *argv[], char *environment[]) {
    (void)argc;
    (void)argv;
    environ = environment;
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    const char *better = best_core();
    if (better != NULL && gotoblas_dynamic_init != NULL && gotoblas_dynamic_quit != NULL &&
        getenv("OPENBLAS_CORETYPE") == NULL) {
        mend_core(better);
    }
    if (gotoblas_init != NULL) {
        gotoblas_init();
    }
}

/* The functions of this section run before the constructors of all libraries. */
typedef void function(int, char *[], char *[]);
__attribute__((section(".preinit_array"), used)) static function *const before_all = prepare;

void blas_report(void) {
    if (replaced_core != NULL) {
        fprintf(stderr,
                "attentiond: OpenBLAS does not know this CPU (it chose %s); "
                "using OPENBLAS_CORETYPE=%s\n",
                replaced_core, openblas_get_corename());
    }
}
