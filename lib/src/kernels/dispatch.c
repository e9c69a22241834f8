/*
 * dispatch.c chooses the table of row kernels: the fastest that the CPU and the operating system
 * support (the compiler's check reads CPUID and XCR0), or the one that ATTENTION_ISA names. No
 * other file of the library reads the environment.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

size_t attn_kernels_usable(const struct attn_kernels *tables[ATTN_KERNELS_MAX]) {
    size_t count = 0;
    tables[count++] = &attn_kernels_scalar;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        tables[count++] = &attn_kernels_avx2;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) {
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
    bool followed = forced == NULL || forced[0] == '\0';
    found = tables[count - 1];
    for (size_t i = 0; !followed && i < count; i++) {
        followed = strcmp(tables[i]->name, forced) == 0;
        found = followed ? tables[i] : found;
    }
    atomic_store_explicit(&refused, !followed, memory_order_relaxed);
    atomic_store_explicit(&chosen, found, memory_order_release);
    return found;
}

bool attn_kernels_refused(void) {
    attn_kernels();
    return atomic_load_explicit(&refused, memory_order_relaxed);
}
