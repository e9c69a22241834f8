/*
 * alloc_failure.c - counts allocations and lets them fail. The dynamic linker finds the functions
 * of this file before those of libc and of a sanitizer, and they call these to do the work. So the
 * leak detection of AddressSanitizer still sees every block.
 */
#define _GNU_SOURCE /* dl_iterate_phdr, mremap */
#include "memory/alloc_failure.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    MAX_BLOCKS = 1 << 14, /* blocks that are allocated and not freed at the same time */
    MAX_RANGES = 16       /* segments of libraries that are told apart */
};

#define REPLACES __attribute__((visibility("default"), noinline))
#define CALLER   __builtin_return_address(0)

/* The functions that do the work: those of libc, or of a sanitizer if there is one. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *block);
#define WEAK __attribute__((weak))
WEAK void *__interceptor_malloc(size_t size);
WEAK void *__interceptor_calloc(size_t count, size_t size);
WEAK void *__interceptor_realloc(void *old, size_t size);
WEAK void *__interceptor_aligned_alloc(size_t align, size_t size);
WEAK void __interceptor_free(void *block);

/* ------------------------------------------------------------------------------- the accounts */

static _Thread_local bool exempted = true; /* set by alloc_failure_exempt() and begin_thread() */
static atomic_bool armed;
static bool endless;   /* all allocations after `failing` fail, too */
static size_t failing; /* the number of the allocation that fails; 0 = none */
static atomic_size_t counted, counted_http, failed;

/* A block in a hash table with linear probing. The bits of its address are inverted, because a leak
 * checker that found the address here would believe that the block is still in use. */
struct block {
    uintptr_t inverted; /* 0 = this place is free */
    size_t size;
    const void *caller; /* the code that allocated it */
};
static struct block blocks[MAX_BLOCKS];
static size_t block_count;
static atomic_size_t left; /* a copy of block_count that is read without the lock */
static atomic_flag locked = ATOMIC_FLAG_INIT;

static void lock(void) {
    while (atomic_flag_test_and_set_explicit(&locked, memory_order_acquire)) {
    }
}

static void unlock(void) {
    atomic_store(&left, block_count);
    atomic_flag_clear_explicit(&locked, memory_order_release);
}

/* Returns the first place where a block may be. */
static size_t home(uintptr_t inverted) {
    return (size_t)(~inverted / 16) % MAX_BLOCKS;
}

/* Returns the place of a block, or the free place where it would be. */
static struct block *find(uintptr_t inverted) {
    size_t at = home(inverted);
    while (blocks[at].inverted != 0 && blocks[at].inverted != inverted) {
        at = (at + 1) % MAX_BLOCKS;
    }
    return &blocks[at];
}

static void note(void *block, size_t size, const void *caller) {
    if (block == NULL || block == MAP_FAILED) {
        return;
    }
    lock();
    if (++block_count == MAX_BLOCKS) {
        abort();
    }
    *find(~(uintptr_t)block) = (struct block){~(uintptr_t)block, size, caller};
    unlock();
}

/* Removes a block from the table. Returns its entry, which is all 0 if the block was not there. */
static struct block forget(const void *block) {
    struct block was = {0};
    if (block == NULL || atomic_load(&left) == 0) {
        return was;
    }
    lock();
    struct block *place = find(~(uintptr_t)block);
    if (place->inverted != 0) {
        was = *place;
        block_count--;
        size_t hole = (size_t)(place - blocks);
        for (size_t at = (hole + 1) % MAX_BLOCKS; blocks[at].inverted != 0;
             at = (at + 1) % MAX_BLOCKS) {
            const size_t way = (at - home(blocks[at].inverted)) % MAX_BLOCKS;
            if (way >= (at - hole) % MAX_BLOCKS) { /* find() would stop at the hole before it */
                blocks[hole] = blocks[at];
                hole = at;
            }
        }
        blocks[hole] = (struct block){0};
    }
    unlock();
    return was;
}

/* ----------------------------------------------------------------------------- who is exempt */

/* The segments of some libraries. */
struct ranges {
    size_t count;
    struct {
        uintptr_t begin, end;
    } at[MAX_RANGES];
};
static struct ranges exempt_libraries, http_library;

static int add_ranges(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size;
    (void)unused;
    const bool http = strstr(info->dlpi_name, "microhttpd") != NULL;
    struct ranges *ranges = http ? &http_library : &exempt_libraries;
    if (!http && strstr(info->dlpi_name, "openblas") == NULL &&
        strstr(info->dlpi_name, "/ld-") == NULL) {
        return 0;
    }
    for (size_t i = 0; i < info->dlpi_phnum && ranges->count < MAX_RANGES; i++) {
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            ranges->at[ranges->count].begin = begin;
            ranges->at[ranges->count].end = begin + info->dlpi_phdr[i].p_memsz;
            ranges->count++;
        }
    }
    return 0;
}

static bool is_in(const struct ranges *ranges, const void *caller) {
    for (size_t i = 0; i < ranges->count; i++) {
        if ((uintptr_t)caller >= ranges->at[i].begin && (uintptr_t)caller < ranges->at[i].end) {
            return true;
        }
    }
    return false;
}

__attribute__((constructor)) static void find_ranges(void) {
    dl_iterate_phdr(add_ranges, NULL);
}

static bool is_counted(const void *caller) {
    return atomic_load(&armed) && !exempted && !is_in(&exempt_libraries, caller);
}

/* Counts one allocation by `caller`. Returns whether it must fail. */
static bool fails(const void *caller) {
    const size_t number = atomic_fetch_add(&counted, 1) + 1;
    if (is_in(&http_library, caller)) {
        atomic_fetch_add(&counted_http, 1);
    }
    const bool fail = failing != 0 && (number == failing || (endless && number > failing));
    if (fail) {
        atomic_fetch_add(&failed, 1);
        errno = ENOMEM;
    }
    return fail;
}

/* -------------------------------------------------------------------------- the replacements */

static void *real_malloc(size_t size) {
    return __interceptor_malloc != NULL ? __interceptor_malloc(size) : __libc_malloc(size);
}

enum way {
    UNSEEN, /* it does not count */
    COUNTED,
    FAILS
};

/* Begins an allocation by `caller`. Returns by value, because AddressSanitizer allocates before its
 * checks of variables whose address is taken can work. */
static enum way begin(const void *caller) {
    if (!is_counted(caller)) {
        return UNSEEN;
    }
    return fails(caller) ? FAILS : COUNTED;
}

/* Ends it: notes the block if it counts. */
static void *end(void *block, size_t size, const void *caller, bool counts) {
    if (counts) {
        note(block, size, caller);
    }
    return block;
}

static void *allocate(size_t size, const void *caller) {
    const enum way way = begin(caller);
    return way == FAILS ? NULL : end(real_malloc(size), size, caller, way == COUNTED);
}

REPLACES void *malloc(size_t size) {
    return allocate(size, CALLER);
}

REPLACES void *calloc(size_t count, size_t size) {
    const enum way way = begin(CALLER);
    if (way == FAILS) {
        return NULL;
    }
    void *block = __interceptor_calloc != NULL ? __interceptor_calloc(count, size)
                                               : __libc_calloc(count, size);
    return end(block, count * size, CALLER, way == COUNTED);
}

REPLACES void *aligned_alloc(size_t align, size_t size) {
    const enum way way = begin(CALLER);
    if (way == FAILS) {
        return NULL;
    }
    void *block = __interceptor_aligned_alloc != NULL ? __interceptor_aligned_alloc(align, size)
                                                      : __libc_memalign(align, size);
    return end(block, size, CALLER, way == COUNTED);
}

REPLACES void free(void *block) {
    forget(block);
    if (__interceptor_free != NULL) {
        __interceptor_free(block);
    } else {
        __libc_free(block);
    }
}

/* If the caller does not count, a block that counted keeps its first caller. */
REPLACES void *realloc(void *old, size_t size) {
    const enum way way = begin(CALLER);
    if (way == FAILS) {
        return NULL;
    }
    const struct block was = forget(old);
    void *block = __interceptor_realloc != NULL ? __interceptor_realloc(old, size)
                                                : __libc_realloc(old, size);
    return end(block, size, way == COUNTED ? CALLER : was.caller,
               way == COUNTED || was.inverted != 0);
}

REPLACES char *strndup(const char *text, size_t limit) {
    const size_t size = strnlen(text, limit);
    char *copy = allocate(size + 1, CALLER);
    if (copy != NULL) {
        memcpy(copy, text, size);
        copy[size] = '\0';
    }
    return copy;
}

REPLACES char *strdup(const char *text) {
    const size_t size = strlen(text) + 1;
    char *copy = allocate(size, CALLER);
    return copy == NULL ? NULL : memcpy(copy, text, size);
}

REPLACES void *mmap(void *address, size_t size, int access, int flags, int file, off_t offset) {
    const enum way way = begin(CALLER);
    if (way == FAILS) {
        return MAP_FAILED;
    }
    void *block = (void *)syscall(SYS_mmap, address, size, access, flags, file, offset);
    return end(block, size, CALLER, way == COUNTED);
}

REPLACES void *mremap(void *old, size_t old_size, size_t size, int flags, ...) {
    const enum way way = begin(CALLER);
    if (way == FAILS) {
        return MAP_FAILED;
    }
    const struct block was = forget(old);
    void *block = (void *)syscall(SYS_mremap, old, old_size, size, flags, NULL);
    return end(block, size, way == COUNTED ? CALLER : was.caller,
               way == COUNTED || was.inverted != 0);
}

REPLACES int munmap(void *block, size_t size) {
    forget(block);
    return (int)syscall(SYS_munmap, block, size);
}

/* The function of a new thread and its argument. The thread counts only from begin_thread() on,
 * because a sanitizer allocates before that and cannot go on without memory. */
struct thread_start {
    void *(*run)(void *);
    void *argument;
};

static void *begin_thread(void *start_) {
    const struct thread_start start = *(struct thread_start *)start_;
    free(start_);
    exempted = false;
    return start.run(start.argument);
}

typedef int create_thread(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *argument);

REPLACES int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                            void *(*run)(void *), void *argument) {
    const bool was_exempted = exempted;
    struct thread_start *start =
        is_counted(CALLER) && fails(CALLER) ? NULL : real_malloc(sizeof *start);
    if (start == NULL) {
        return EAGAIN;
    }
    *start = (struct thread_start){run, argument};
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    create_thread *real;
    memcpy(&real, &symbol, sizeof real);
    exempted = true;
    const int status = real(thread, attributes, begin_thread, start);
    exempted = was_exempted;
    if (status != 0) {
        free(start);
    }
    return status;
}

/* ------------------------------------------------------------------------------- for the test */

void alloc_failure_exempt(bool exempt) {
    exempted = exempt;
}

void alloc_failure_arm(size_t first, bool forever) {
    lock();
    memset(blocks, 0, sizeof blocks);
    block_count = 0;
    unlock();
    atomic_store(&counted, 0);
    atomic_store(&counted_http, 0);
    atomic_store(&failed, 0);
    failing = first;
    endless = forever;
    atomic_store(&armed, true);
}

size_t alloc_failure_disarm(void) {
    atomic_store(&armed, false);
    return atomic_load(&failed);
}

size_t alloc_failure_count(void) {
    return atomic_load(&counted);
}

size_t alloc_failure_count_http(void) {
    return atomic_load(&counted_http);
}

size_t alloc_failure_left(void) {
    return atomic_load(&left);
}

static int tell_object(struct dl_phdr_info *info, size_t size, void *caller_) {
    const uintptr_t caller = *(const uintptr_t *)caller_;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const uintptr_t begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && caller >= begin &&
            caller - begin < info->dlpi_phdr[i].p_memsz) {
            fprintf(stderr, "  at 0x%zx of %s", (size_t)(caller - info->dlpi_addr),
                    info->dlpi_name[0] == '\0' ? "this program" : info->dlpi_name);
            return 1;
        }
    }
    return 0;
}

void alloc_failure_tell_left(void) {
    for (size_t i = 0; i < MAX_BLOCKS; i++) {
        if (blocks[i].inverted != 0) {
            uintptr_t caller = (uintptr_t)blocks[i].caller;
            fprintf(stderr, "  %zu bytes allocated", blocks[i].size);
            dl_iterate_phdr(tell_object, &caller);
            fputc('\n', stderr);
        }
    }
}
