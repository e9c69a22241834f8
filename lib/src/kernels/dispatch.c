/*
 * dispatch.c chooses the table of row kernels: the fastest that the CPU and the operating system
 * support (the compiler's check reads CPUID and XCR0), or the one that ATTENTION_ISA names. No
 * other file of the library reads the environment.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

#if defined(__x86_64__)
/* Does the CPU have all instructions that the compiler may use in avx512.c? The Makefile names them
 * for that file. A virtual machine can lack some of them. */
static bool has_avx512(void) {
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

size_t attn_kernels_usable(const struct attn_kernels *tables[ATTN_KERNELS_MAX]) {
    size_t count = 0;
    tables[count++] = &attn_kernels_scalar;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        tables[count++] = &attn_kernels_avx2;
    }
    if (has_avx512()) {
        tables[count++] = &attn_kernels_avx512;
    }
#elif defined(__aarch64__)
    tables[count++] = &attn_kernels_neon;
#endif
    return count;
}

/* The first call makes the choice. Threads that make it at the same time find the same table. */
static _Atomic(const struct attn_kernels *) chosen;
static atomic_bool refused; /* valid once `chosen` is not NULL */

const struct attn_kernels *attn_kernels(void) {
    const struct attn_kernels *found = atomic_load_explicit(&chosen, memory_order_acquire);
    if (found != NULL) {
        return found;
    }
    const struct attn_kernels *tables[ATTN_KERNELS_MAX];
    const size_t count = attn_kernels_usable(tables);
    const char *forced = getenv("ATTENTION_ISA");
    const bool asked = forced != NULL && forced[0] != '\0';
    bool followed = !asked;
    found = tables[count - 1];
    for (size_t i = 0; asked && i < count; i++) {
        if (strcmp(tables[i]->name, forced) == 0) {
            found = tables[i];
            followed = true;
        }
    }
    atomic_store_explicit(&refused, !followed, memory_order_relaxed);
    atomic_store_explicit(&chosen, found, memory_order_release);
    return found;
}

void attn_kernels_use(const struct attn_kernels *table) {
    atomic_store_explicit(&chosen, table, memory_order_release);
}

bool attn_kernels_refused(void) {
    attn_kernels();
    return atomic_load_explicit(&refused, memory_order_relaxed);
}
