/* guarded.c - see guarded.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "support/guarded.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__

void *guarded_new(size_t bytes) {
    const size_t some = bytes == 0 ? 1 : bytes;
    void *memory = bytes % 64 == 0 ? aligned_alloc(64, bytes == 0 ? 64 : bytes) : malloc(some);
    assert(memory != NULL);
    return memset(memory, 0, some);
}

void guarded_free(void *memory) {
    free(memory);
}

#else

/* Pages with a page behind them that nobody may access. */
struct pages {
    struct pages *next; /* of those that were freed */
    char *end;
    size_t count;
    bool used; /* they may hold more than zeros */
};

enum {
    KINDS = 64,           /* freed pages are kept in lists, one for each count */
    LINK = sizeof(void *) /* bytes before a memory, which say what its pages are */
};

static struct pages *freed[KINDS];

/* Returns new pages, or some that were freed. */
static struct pages *take_pages(size_t count) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (count < KINDS && freed[count] != NULL) {
        struct pages *pages = freed[count];
        freed[count] = pages->next;
        return pages;
    }
    struct pages *pages = malloc(sizeof *pages);
    char *first =
        mmap(NULL, (count + 1) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(pages != NULL && first != MAP_FAILED);
    *pages = (struct pages){NULL, first + count * page, count, false};
    const int failed = mprotect(pages->end, page, PROT_NONE);
    assert(failed == 0);
    return pages;
}

void *guarded_new(size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct pages *pages = take_pages((bytes + LINK + page - 1) / page);
    char *memory = pages->end - bytes;
    if (pages->used) {
        memset(memory, 0, bytes);
    }
    memcpy(memory - LINK, &pages, LINK); /* it may be not aligned */
    return memory;
}

void guarded_free(void *memory) {
    struct pages *pages;
    if (memory == NULL) {
        return;
    }
    memcpy(&pages, (char *)memory - LINK, LINK);
    if (pages->count < KINDS) {
        pages->next = freed[pages->count];
        pages->used = true;
        freed[pages->count] = pages;
        return;
    }
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap(pages->end - pages->count * page, (pages->count + 1) * page);
    free(pages);
}

#endif
