/* account.c - the budget, the accounts, and the blocks and growing arrays that are counted in
 * them. */
#include "account.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    STEP = 16 * 1024,        /* bytes that an account takes from the budget at a time */
    PAGE = 4096,             /* a block with pages of its own is rounded up to whole pages */
    PAGED_FROM = 128 * 1024, /* bytes from which glibc by default gives a block pages of its own */
    FIRST_BYTES = 256,       /* the least size of a growing array */
    DOUBLE_UNTIL = 1 << 20,  /* bytes below which a growing array doubles */
};

size_t account_block(size_t size) {
    const size_t header = 8, unit = size < PAGED_FROM ? 16 : PAGE;
    if (size > SIZE_MAX - 2 * PAGE) {
        return SIZE_MAX;
    }
    const size_t block = (size + header + unit - 1) / unit * unit;
    return block < 32 ? 32 : block;
}

/* ---------------------------------------------------------------------------------- the budget */

static size_t without_reserve(const struct budget *budget) {
    return budget->max_total - budget->max_total / ACCOUNT_RESERVE;
}

size_t budget_most(const struct budget *budget) {
    const size_t most = without_reserve(budget);
    return budget->max_request < most ? budget->max_request : most;
}

static void note_peak(struct budget *budget, size_t used) {
    size_t peak = atomic_load_explicit(&budget->peak, memory_order_relaxed);
    while (used > peak && !atomic_compare_exchange_weak(&budget->peak, &peak, used)) {
    }
}

/* Takes `bytes` from the budget. False if more than `most` would be in use then. */
static bool take_shared(struct budget *budget, size_t bytes, size_t most) {
    size_t used = atomic_load(&budget->used);
    do {
        if (used > most || bytes > most - used) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(&budget->used, &used, used + bytes));
    note_peak(budget, used + bytes);
    return true;
}

/* -------------------------------------------------------------------------------- the accounts */

void account_open(struct account *account, struct budget *budget, size_t base) {
    *account = (struct account){.budget = budget, .base = base};
}

void account_close(struct account *account) {
    if (account->budget != NULL) {
        atomic_fetch_sub(&account->budget->used, account->reserved);
    }
    *account = (struct account){0};
}

/* Makes the account's part of the budget at least `bytes`, in whole steps if there is room for
 * them. False if the budget has no room. */
static bool reserve(struct account *account, size_t bytes) {
    struct budget *budget = account->budget;
    const bool small = account->small && bytes - account->base <= ACCOUNT_SMALL;
    const size_t most = small ? budget->max_total : without_reserve(budget);
    const size_t exact = bytes - account->reserved, steps = (exact + STEP - 1) / STEP * STEP;
    if (take_shared(budget, steps, most)) {
        account->reserved += steps;
        return true;
    }
    if (take_shared(budget, exact, most)) {
        account->reserved += exact;
        return true;
    }
    return false;
}

bool account_take(struct account *account, size_t bytes) {
    if (account == NULL) {
        return true;
    }
    const size_t most = budget_most(account->budget);
    if (bytes > most || account->held > most - bytes) {
        account->refusal = ACCOUNT_OVER_REQUEST;
        account->wanted = bytes > SIZE_MAX - account->held ? SIZE_MAX : account->held + bytes;
        return false;
    }
    const size_t needed = account->base + account->held + bytes;
    if (needed > account->reserved && !reserve(account, needed)) {
        account->refusal = ACCOUNT_OVER_TOTAL;
        account->wanted = account->held + bytes;
        return false;
    }
    account->refusal = ACCOUNT_NOT_REFUSED; /* an allocation that fails now was not refused here */
    account->held += bytes;
    account->peak = account->held > account->peak ? account->held : account->peak;
    return true;
}

void account_give(struct account *account, size_t bytes) {
    if (account == NULL) {
        return;
    }
    assert(bytes <= account->held);
    account->held -= bytes;
    const size_t needed = account->base + account->held;
    assert(account->reserved >= needed);
    if (account->reserved - needed >= (size_t)2 * STEP) {
        const size_t kept = (needed + STEP - 1) / STEP * STEP;
        atomic_fetch_sub(&account->budget->used, account->reserved - kept);
        account->reserved = kept;
    }
}

/* ---------------------------------------------------------------------------------- allocation */

void *account_alloc(struct account *account, size_t size) {
    return account_realloc(account, NULL, 0, size);
}

void *account_realloc(struct account *account, void *block, size_t old_size, size_t size) {
    if (!account_take(account, account_block(size))) {
        return NULL;
    }
    void *grown = realloc(block, size);
    if (grown == NULL) {
        account_give(account, account_block(size));
    } else if (block != NULL) {
        account_give(account, account_block(old_size));
    }
    return grown;
}

void *account_grow(struct account *account, void *array, size_t *capacity, size_t needed,
                   size_t size) {
    size_t least;
    if (array != NULL && needed <= *capacity) {
        return array;
    }
    if (__builtin_mul_overflow(needed, size, &least)) {
        return NULL;
    }
    const size_t bytes = *capacity * size;
    size_t wanted = bytes + (bytes < DOUBLE_UNTIL ? bytes : bytes / 4);
    wanted = wanted > FIRST_BYTES ? wanted : FIRST_BYTES;
    wanted = wanted > least ? wanted : least;
    wanted -= wanted % size;
    void *grown = account_realloc(account, array, bytes, wanted);
    if (grown != NULL) {
        *capacity = wanted / size;
    }
    return grown;
}

void account_free(struct account *account, void *block, size_t size) {
    if (block != NULL) {
        free(block);
        account_give(account, account_block(size));
    }
}
