/*
 * account.h - the memory that requests hold. All requests share one budget, and each request has an
 * account. Memory is taken from the account before it is allocated and given back when it is freed,
 * so what would be too much is refused before it exists. A leaf: it knows nothing of the rest of
 * the server.
 *
 * One sixteenth of the budget is a reserve for small requests: however much the others hold, a
 * request of a few kilobytes is still answered.
 */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum {
    ACCOUNT_RESERVE = 16,       /* the reserve is the budget divided by this number */
    ACCOUNT_SMALL = 256 * 1024, /* bytes that a small request holds at most */
};

/* The memory budget that all requests share. The owner fills the first part. */
struct budget {
    size_t max_request; /* bytes that one account may hold */
    size_t max_total;   /* bytes that all accounts together may hold */

    atomic_size_t used; /* bytes that all accounts have taken */
    atomic_size_t peak; /* the largest `used` so far */
};

enum account_refusal {
    ACCOUNT_NOT_REFUSED,
    ACCOUNT_OVER_REQUEST, /* the request wants more than one request may hold */
    ACCOUNT_OVER_TOTAL    /* the other requests hold the rest of the budget */
};

/* The memory of one request. Two threads must not use an account at the same time. */
struct account {
    struct budget *budget;        /* borrowed */
    size_t base;                  /* bytes that count in the budget, but not in max_request */
    size_t held;                  /* bytes that were taken and not given back, without `base` */
    size_t peak;                  /* the most that `held` has been */
    size_t reserved;              /* bytes taken from the budget: at least base + held */
    bool small;                   /* may use the reserve while it holds little */
    enum account_refusal refusal; /* the reason of the last refusal */
    size_t wanted;                /* bytes that the request would have held then */
};

/* The most that one account of this budget can hold. */
size_t budget_most(const struct budget *budget);

/* Opens an account. `base` is what the request holds in any case, such as the buffer of its
 * connection; it is taken with the first bytes. */
void account_open(struct account *account, struct budget *budget, size_t base);

/* Gives everything back. An account that was never opened, all zeros, is fine. */
void account_close(struct account *account);

/* Takes `bytes` more. False: they are refused, nothing was taken, and `refusal` says why. In all
 * functions a NULL account counts nothing and refuses nothing. */
bool account_take(struct account *account, size_t bytes);
void account_give(struct account *account, size_t bytes);

/* malloc, realloc and free on account, the overhead of the allocator included. The sizes of the old
 * block must be what it was allocated with. NULL: refused, or there is no memory; `refusal` tells
 * which. While a block grows, the old and the new one both count. */
void *account_alloc(struct account *account, size_t size);
void *account_realloc(struct account *account, void *block, size_t old_size, size_t size);
void account_free(struct account *account, void *block, size_t size);

/* Makes room for `needed` elements of `size` bytes in a growing array. *capacity is the number of
 * elements that there is room for; an array that is NULL has 0. The array doubles while it is small
 * and grows by a quarter once it is large, or by more if `needed` is more. Returns the array, which
 * may have moved; free it as a block of *capacity * size bytes. NULL: account_realloc() failed or
 * the size overflows, and the old array and *capacity stay as they are. */
void *account_grow(struct account *account, void *array, size_t *capacity, size_t needed,
                   size_t size);

/* The bytes that a block of malloc takes. */
size_t account_block(size_t size);

#endif
