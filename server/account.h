/*
 * account.h - the memory that requests hold. All requests share one budget, and each request has an
 * account. Memory is taken from the account before it is allocated, and given back when it is
 * freed. So a request that wants too much is refused before the memory exists. This file knows
 * nothing of the rest of the server.
 *
 * One sixteenth of the budget is a reserve for small requests. So a request of a few kilobytes is
 * answered even if large requests hold the rest.
 *
 * An account owns the blocks that it allocates, in two regions: what the request needs until its
 * answer is made, and the answer. Freeing a region frees all of its blocks.
 *
 * An account may have an arena. Its blocks then come from the arena as long as they fit, and from
 * malloc otherwise. So a small request needs no allocation but that of the arena.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    ACCOUNT_RESERVE = 16,       /* the reserve is the budget divided by this number */
    ACCOUNT_SMALL = 256 * 1024, /* bytes that a small request holds at most */
    ACCOUNT_ALIGNMENT = 16,     /* of all blocks */
};

/* The memory budget that all requests share. The owner sets the first two members. */
struct budget {
    size_t max_request; /* bytes that one account may hold */
    size_t max_total;   /* bytes that all accounts together may hold */

    atomic_size_t used; /* bytes that all accounts have taken */
    atomic_size_t peak; /* the largest `used` so far */
};

enum account_refusal {
    ACCOUNT_NOT_REFUSED,
    ACCOUNT_OVER_REQUEST, /* the request wants more than it may hold, even if it is alone */
    ACCOUNT_OVER_TOTAL    /* the other requests hold the rest of the budget */
};

enum account_region {
    ACCOUNT_REQUEST,
    ACCOUNT_ANSWER,
    ACCOUNT_REGIONS
};

struct account_block;

/* The memory of one request. Two threads must not use an account at the same time. Its blocks point
 * to it, so it is not copied. */
struct account {
    struct budget *budget;        /* borrowed */
    size_t base;                  /* bytes that count in the budget, but not in max_request */
    size_t held;                  /* bytes that were taken and not given back, without `base` */
    size_t peak;                  /* the most that `held` has been */
    size_t most;                  /* the most that `held` may be, whatever the base is */
    size_t reserved;              /* bytes taken from the budget: at least base + held */
    bool small;                   /* the request may use the reserve while it holds little */
    enum account_refusal refusal; /* the reason of the last refusal */
    size_t wanted;                /* bytes that it would have held without the last refusal */
    size_t charged;               /* bytes of `held` that account_charge() took */
    enum account_region region;   /* of the next blocks; the owner sets it */
    struct account_block *blocks[ACCOUNT_REGIONS]; /* owned */

    char *arena; /* borrowed; NULL: all blocks come from malloc */
    size_t arena_size;
    size_t arena_used; /* the first bytes of the arena, which are or were blocks */
    size_t inside;     /* bytes of `held` that `base` counts already, as part of the arena */
};

/* Opens an account. `base` is the memory that the request holds in any case, such as the buffer of
 * its connection. It is taken from the budget together with the first bytes. */
void account_open(struct account *account, struct budget *budget, size_t base);

/* Gives an open account an arena of `size` bytes, which begins at a multiple of ACCOUNT_ALIGNMENT.
 * Borrows it until account_close(). `base` counts the arena. */
void account_lend(struct account *account, void *arena, size_t size);

/* Frees all blocks and gives everything back. Does nothing to an account that was never opened and
 * is all zeros. */
void account_close(struct account *account);

/* Frees the blocks of a region. Gives the charged bytes back with those of the request. */
void account_free_region(struct account *account, enum account_region region);

/* Returns how many bytes more the account may hold if it is alone and not small. */
size_t account_room(const struct account *account);

/* Takes `bytes` more. False if they are refused: nothing is taken then, and `refusal` says why. A
 * NULL account counts nothing and refuses nothing, here and where blocks are made and freed. */
bool account_take(struct account *account, size_t bytes);
void account_give(struct account *account, size_t bytes);

/* Takes bytes for account_alloc_taken() and for memory that others allocate. They are given back
 * with the region of the request. */
bool account_charge(struct account *account, size_t bytes);

/* The next three are malloc, realloc and free for blocks that the account owns. They count a block
 * and the overhead of the allocator. The first two return NULL if the account refuses the block or
 * there is no memory; `refusal` says which. While a block grows, the old and the new block both
 * count. Blocks of a NULL account are those of malloc. */
void *account_alloc(struct account *account, size_t size);
void *account_realloc(struct account *account, void *block, size_t size);
void account_free(struct account *account, void *block);

/* Returns a block whose bytes count already. It is freed with its region, and keeps its size.
 * `alignment` is a power of two, at least ACCOUNT_ALIGNMENT. */
void *account_alloc_taken(struct account *account, size_t alignment, size_t size);

/* Makes room for `needed` elements of `size` bytes in a growing array. *capacity is the number of
 * elements that there is room for; an array that is NULL has 0. The array doubles below 1 MiB and
 * grows by a quarter above, or to `needed` elements if these are more. Returns the array, which may
 * have moved. NULL: account_realloc() failed or the size overflows, and the old array and *capacity
 * stay as they are. */
void *account_grow(struct account *account, void *array, size_t *capacity, size_t needed,
                   size_t size);

/* Returns the bytes that a block of an account takes with its overhead. */
size_t account_block(size_t size);

#endif
