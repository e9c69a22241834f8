/*
 * cpu.c - chooses the row kernels: by what the CPU and the operating system can do (CPUID and XCR0,
 * through the compiler's own check), or by ATTENTION_ISA. The only file that reads the environment.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

/* Tables of this build that this machine can run, the slowest first. Returns how many. */
static size_t usable(const struct attn_kernels *tables[4]) {
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

const struct attn_kernels *attn_kernels(void) {
    /* Threads that race here all find the same. */
    static _Atomic(const struct attn_kernels *) chosen;
    const struct attn_kernels *found = atomic_load_explicit(&chosen, memory_order_acquire);
    if (found != NULL) {
        return found;
    }
    const struct attn_kernels *tables[4];
    const size_t count = usable(tables);
    const char *forced = getenv("ATTENTION_ISA");
    found = tables[count - 1];
    for (size_t i = 0; forced != NULL && i < count; i++) {
        found = strcmp(tables[i]->name, forced) == 0 ? tables[i] : found;
    }
    atomic_store_explicit(&chosen, found, memory_order_release);
    return found;
}
