/*
 * dispatch.c chooses the table of row kernels: the fastest that the CPU and the operating system
 * support (the compiler's check reads CPUID and XCR0), or the one that ATTENTION_ISA names. No
 * other file of the library reads the environment.
 */
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)
/* Does the CPU have all instructions that the compiler may use in avx512.c? The Makefile names them
 * for that file. A virtual machine can lack some of them. */
static bool has_avx512(void) {
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

/* ---------------------------------------------------------------------------------------- tiles */

#if defined(__x86_64__) && defined(__linux__)
enum {
    ARCH_PRCTL = 158, /* the number of the system call */
    ARCH_GET_XCOMP_SUPP = 0x1021,
    ARCH_REQ_XCOMP_PERM = 0x1023,
    XTILECFG = 17, /* bits of XCR0 */
    XTILEDATA = 18
};

/* Calls arch_prctl. Returns a negative number if that fails. */
static long arch_prctl(long code, long argument) {
    long result = ARCH_PRCTL;
    __asm__ volatile("syscall" : "+a"(result) : "D"(code), "S"(argument) : "rcx", "r11", "memory");
    return result;
}

/* Do the CPU and the operating system know AMX-BF16? The leaves of CPUID and their bits are those
 * of Intel's Software Developer's Manual, volume 2A. Linux lets a process use the tile registers
 * only after a request (Documentation/arch/x86/xstate.rst). */
static bool has_tiles(void) {
    unsigned a, b, c, d, low, high;
    uint64_t supported = 0;
    if (!has_avx512() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d >> 22 & 1) == 0 ||
        (d >> 24 & 1) == 0 || !__get_cpuid_count(7, 1, &a, &b, &c, &d) || (a >> 5 & 1) == 0) {
        return false;
    }
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low >> XTILECFG & 1) != 0 && (low >> XTILEDATA & 1) != 0 &&
           arch_prctl(ARCH_GET_XCOMP_SUPP, (long)(uintptr_t)&supported) == 0 &&
           (supported >> XTILEDATA & 1) != 0;
}
#endif

enum permission {
    NOT_ASKED,
    GRANTED,
    REFUSED
};

static atomic_int permission;

bool attn_tiles_permitted(void) {
    int now = atomic_load_explicit(&permission, memory_order_relaxed);
    if (now == NOT_ASKED) {
        now = REFUSED;
#if defined(__x86_64__) && defined(__linux__)
        if (has_tiles() && arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0) {
            now = GRANTED;
        }
#endif
        atomic_store_explicit(&permission, now, memory_order_relaxed);
    }
    return now == GRANTED;
}

/* --------------------------------------------------------------------------------------- tables */

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
#if defined(__linux__)
    if (has_tiles() && atomic_load_explicit(&permission, memory_order_relaxed) != REFUSED) {
        tables[count++] = &attn_kernels_amx;
    }
#endif
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
    for (size_t i = 0; i < count; i++) {
        const bool named = asked && strcmp(tables[i]->name, forced) == 0;
        /* The products of tiles.h were checked with a model of their instructions, but their speed
         * was not measured yet. Therefore a user has to ask for them. */
        if (tables[i]->tiles == NULL || (named && attn_tiles_permitted())) {
            found = tables[i];
            followed = followed || named;
        }
        if (named) {
            break;
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
