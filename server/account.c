/*
 * account.c - the budget, the accounts, and the blocks and growing arrays that are counted in them.
 *
 * The arena hands out its bytes from the first to the last. A block that is freed leaves a hole,
 * unless it is the last block. With AddressSanitizer all bytes outside of blocks and their notes
 * are forbidden.
 */
#include "account.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined __has_feature
#if __has_feature(address_sanitizer)
#define CHECKED_ARENA
#endif
#elif defined __SANITIZE_ADDRESS__
#define CHECKED_ARENA
#endif
#ifdef CHECKED_ARENA
#include <sanitizer/asan_interface.h>
#define FORBID(from, size) ASAN_POISON_MEMORY_REGION(from, size)
#define ALLOW(from, size)  ASAN_UNPOISON_MEMORY_REGION(from, size)
#else
#define FORBID(from, size) ((void)0)
#define ALLOW(from, size)  ((void)0)
#endif

enum {
    STEP = 16 * 1024,        /* bytes that an account takes from the budget at a time */
    PAGE = 4096,             /* a block with pages of its own is rounded up to whole pages */
    PAGED_FROM = 128 * 1024, /* bytes from which glibc by default gives a block pages of its own */
    FIRST_BYTES = 256,       /* the least size of a growing array */
    DOUBLE_UNTIL = 1 << 20,  /* bytes below which a growing array doubles */
};

/* The account's note before each of its blocks. */
struct account_block {
    struct account_block *next, **link; /* the next block of the region; the pointer to this one */
    size_t size;                        /* bytes of the block */
    uint32_t start; /* bytes from the beginning of what was allocated to the block */
    bool taken;     /* the bytes do not count with the block */
};

enum {
    NOTE = sizeof(struct account_block)
};

static_assert(NOTE % ACCOUNT_ALIGNMENT == 0, "a block follows its note");

size_t account_block(size_t size) {
    const size_t header = 8 + NOTE, unit = size < PAGED_FROM ? 16 : PAGE;
    if (size > SIZE_MAX - 2 * PAGE) {
        return SIZE_MAX;
    }
    const size_t block = (size + header + unit - 1) & ~(unit - 1);
    return block < 32 ? 32 : block;
}

/* ---------------------------------------------------------------------------------- the budget */

static size_t without_reserve(const struct budget *budget) {
    return budget->max_total - budget->max_total / ACCOUNT_RESERVE;
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
    const size_t total = without_reserve(budget);
    *account = (struct account){
        .budget = budget,
        .base = base,
        .most = budget->max_request < total ? budget->max_request : total,
    };
}

size_t account_room(const struct account *account) {
    if (account == NULL) {
        return SIZE_MAX;
    }
    const size_t total = without_reserve(account->budget) + account->inside;
    const size_t alone = total > account->base ? total - account->base : 0;
    const size_t most = account->most < alone ? account->most : alone;
    return most > account->held ? most - account->held : 0;
}

void account_lend(struct account *account, void *arena, size_t size) {
    assert((uintptr_t)arena % ACCOUNT_ALIGNMENT == 0);
    account->arena = arena;
    account->arena_size = size;
    FORBID(arena, size);
}

void account_close(struct account *account) {
    for (enum account_region region = 0; region < ACCOUNT_REGIONS; region++) {
        account_free_region(account, region);
    }
    if (account->budget != NULL) {
        atomic_fetch_sub(&account->budget->used, account->reserved);
    }
    if (account->arena != NULL) {
        ALLOW(account->arena, account->arena_size);
    }
    *account = (struct account){0};
}

/* Returns the bytes of the budget that the account needs while it holds `held` bytes. */
static size_t needed_for(const struct account *account, size_t held) {
    return account->base + held - account->inside;
}

/* Returns the bytes of the budget that an account may use for `held` bytes if it is alone. */
static size_t most_alone(const struct account *account, size_t held) {
    const bool small = account->small && held <= ACCOUNT_SMALL;
    return small ? account->budget->max_total : without_reserve(account->budget);
}

/* Makes the account's part of the budget enough for `held` bytes, in whole steps if there is room
 * for them. False if the budget has no room. */
static bool reserve(struct account *account, size_t held) {
    struct budget *budget = account->budget;
    const size_t bytes = needed_for(account, held), most = most_alone(account, held);
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
    if (bytes > account->most || account->held > account->most - bytes) {
        account->refusal = ACCOUNT_OVER_REQUEST;
        account->wanted = bytes > SIZE_MAX - account->held ? SIZE_MAX : account->held + bytes;
        return false;
    }
    const size_t held = account->held + bytes;
    if (needed_for(account, held) > account->reserved && !reserve(account, held)) {
        account->refusal = needed_for(account, held) > most_alone(account, held)
                               ? ACCOUNT_OVER_REQUEST
                               : ACCOUNT_OVER_TOTAL;
        account->wanted = held;
        return false;
    }
    account->refusal = ACCOUNT_NOT_REFUSED; /* an allocation that fails now was not refused here */
    account->held = held;
    account->peak = account->held > account->peak ? account->held : account->peak;
    return true;
}

void account_give(struct account *account, size_t bytes) {
    if (account == NULL || bytes == 0) { /* an account that is not open yet has reserved nothing */
        return;
    }
    assert(bytes <= account->held);
    account->held -= bytes;
    const size_t needed = needed_for(account, account->held);
    assert(account->reserved >= needed);
    if (account->reserved - needed >= (size_t)2 * STEP) {
        const size_t kept = (needed + STEP - 1) / STEP * STEP;
        atomic_fetch_sub(&account->budget->used, account->reserved - kept);
        account->reserved = kept;
    }
}

bool account_charge(struct account *account, size_t bytes) {
    const bool good = account_take(account, bytes);
    account->charged += good ? bytes : 0;
    return good;
}

/* ----------------------------------------------------------------------------------- the arena */

static bool is_inside(const struct account *account, const void *block) {
    return account->arena != NULL &&
           (uintptr_t)block - (uintptr_t)account->arena < account->arena_size;
}

/* Returns the bytes of the arena that a block takes: at least one more than `size`, so that a
 * forbidden byte follows every block. */
static size_t rounded(size_t size) {
    return (size / ACCOUNT_ALIGNMENT + 1) * ACCOUNT_ALIGNMENT;
}

static bool is_last(const struct account *account, const char *block, size_t size) {
    return block + rounded(size) == account->arena + account->arena_used;
}

/* Returns a place for a block with its note before it, or NULL if the arena has no room. */
static void *arena_alloc(struct account *account, size_t alignment, size_t size) {
    if (account->arena == NULL || size >= account->arena_size) {
        return NULL;
    }
    const uintptr_t start = (uintptr_t)account->arena;
    const size_t at =
        ((start + account->arena_used + NOTE + alignment - 1) & ~(alignment - 1)) - start;
    if (at + rounded(size) > account->arena_size) {
        return NULL;
    }
    account->arena_used = at + rounded(size);
    ALLOW(account->arena + at - NOTE, NOTE + size);
    return account->arena + at;
}

static void arena_free(struct account *account, char *block, size_t size) {
    if (is_last(account, block, size)) {
        account->arena_used = (size_t)(block - NOTE - account->arena);
    }
    FORBID(block - NOTE, NOTE + size);
}

/* Changes the size of a block of the arena where it is. Returns false if it must move. */
static bool arena_fit(struct account *account, char *block, size_t old_size, size_t size) {
    const size_t at = (size_t)(block - account->arena);
    const bool last = is_last(account, block, old_size);
    if (size > old_size &&
        (!last || size > account->arena_size || at + rounded(size) > account->arena_size)) {
        return false;
    }
    if (last) {
        account->arena_used = at + rounded(size);
    }
    account->inside = account->inside - old_size + size;
    FORBID(block, old_size);
    ALLOW(block, size);
    return true;
}

/* ---------------------------------------------------------------------------------- allocation */

static struct account_block *note_of(void *block) {
    return (struct account_block *)block - 1;
}

/* Puts a block into a list, at the place to which `link` points. */
static void link_block(struct account_block *note, struct account_block **link) {
    note->next = *link;
    note->link = link;
    *link = note;
    if (note->next != NULL) {
        note->next->link = &note->next;
    }
}

static void unlink_block(const struct account_block *note) {
    *note->link = note->next;
    if (note->next != NULL) {
        note->next->link = note->link;
    }
}

/* Allocates a block of the present region, whose bytes have been taken. */
static void *new_block(struct account *account, size_t alignment, size_t size, bool taken) {
    const size_t start = (NOTE + alignment - 1) & ~(alignment - 1);
    char *block = arena_alloc(account, alignment, size);
    if (block == NULL && size <= SIZE_MAX - start - alignment) {
        const size_t whole = (start + size + alignment - 1) & ~(alignment - 1);
        char *memory =
            alignment > ACCOUNT_ALIGNMENT ? aligned_alloc(alignment, whole) : malloc(start + size);
        block = memory != NULL ? memory + start : NULL;
    }
    if (block != NULL) {
        struct account_block *note = note_of(block);
        *note = (struct account_block){.size = size, .start = (uint32_t)start, .taken = taken};
        link_block(note, &account->blocks[account->region]);
        account->inside += !taken && is_inside(account, block) ? NOTE + size : 0;
    }
    return block;
}

static void free_block(struct account *account, void *block) {
    struct account_block *note = note_of(block);
    const size_t counted = note->taken ? 0 : account_block(note->size);
    unlink_block(note);
    if (is_inside(account, block)) {
        account->inside -= note->taken ? 0 : NOTE + note->size;
        arena_free(account, block, note->size);
    } else {
        free((char *)block - note->start);
    }
    account_give(account, counted);
}

void *account_alloc(struct account *account, size_t size) {
    return account_realloc(account, NULL, size);
}

void *account_alloc_taken(struct account *account, size_t alignment, size_t size) {
    return new_block(account, alignment, size, true);
}

/* Gives a block of malloc another size. */
static void *resize_block(struct account_block *note, size_t size) {
    struct account_block **link = note->link;
    unlink_block(note);
    struct account_block *moved = realloc(note, NOTE + size);
    link_block(moved != NULL ? moved : note, link);
    return moved != NULL ? moved + 1 : NULL;
}

/* Moves a block out of its place in the arena. */
static void *move_block(struct account *account, void *block, size_t size) {
    const size_t old_size = note_of(block)->size;
    void *moved = new_block(account, ACCOUNT_ALIGNMENT, size, false);
    if (moved != NULL) {
        memcpy(moved, block, old_size < size ? old_size : size);
        unlink_block(note_of(moved)); /* it belongs to the region of the old block */
        unlink_block(note_of(block));
        link_block(note_of(moved), note_of(block)->link);
        arena_free(account, block, old_size);
        account->inside -= NOTE + old_size;
    }
    return moved;
}

void *account_realloc(struct account *account, void *block, size_t size) {
    if (account == NULL) {
        return realloc(block, size);
    }
    if (!account_take(account, account_block(size))) {
        return NULL;
    }
    const size_t counted = block != NULL ? account_block(note_of(block)->size) : 0;
    void *grown = block == NULL                ? new_block(account, ACCOUNT_ALIGNMENT, size, false)
                  : !is_inside(account, block) ? resize_block(note_of(block), size)
                  : arena_fit(account, block, note_of(block)->size, size)
                      ? block
                      : move_block(account, block, size);
    if (grown != NULL) {
        note_of(grown)->size = size;
    }
    account_give(account, grown == NULL ? account_block(size) : counted);
    return grown;
}

void account_free(struct account *account, void *block) {
    if (account == NULL) {
        free(block);
    } else if (block != NULL) {
        free_block(account, block);
    }
}

void account_free_region(struct account *account, enum account_region region) {
    struct account_block *next = NULL;
    for (struct account_block *note = account->blocks[region]; note != NULL; note = next) {
        next = note->next;
        free_block(account, note + 1);
    }
    if (region == ACCOUNT_REQUEST) {
        account_give(account, account->charged);
        account->charged = 0;
    }
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
    void *grown = account_realloc(account, array, wanted);
    if (grown != NULL) {
        *capacity = wanted / size;
    }
    return grown;
}
