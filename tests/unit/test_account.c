/* test_account.c - the memory of requests: what is taken, refused and given back. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "account.h"

enum {
    KIB = 1024,
    MIB = 1024 * KIB
};

static struct budget make_budget(size_t max_request, size_t max_total) {
    return (struct budget){.max_request = max_request, .max_total = max_total};
}

Test(account, counts_what_is_taken_and_given_back) {
    struct budget budget = make_budget(MIB, 16 * MIB);
    struct account account;
    account_open(&account, &budget, 40 * KIB);
    cr_expect_eq(budget.used, 0); /* the base is taken with the first bytes */
    cr_assert(account_take(&account, 1));
    cr_expect(budget.used > 40 * KIB && budget.used <= 40 * KIB + 16 * KIB + 1);
    cr_assert(account_take(&account, 500 * KIB));
    cr_expect(budget.used >= 540 * KIB && budget.used <= 560 * KIB);
    account_give(&account, 500 * KIB);
    cr_expect(budget.used > 40 * KIB && budget.used <= 80 * KIB);
    cr_expect_eq(account.held, 1);
    cr_expect_eq(account.peak, 500 * KIB + 1);
    account_close(&account);
    cr_expect_eq(budget.used, 0);
    cr_expect_geq(budget.peak, 540 * KIB);
    account_close(&account); /* once more does no harm */
    account_open(&account, &budget, 40 * KIB);
    account_free_region(&account, ACCOUNT_REQUEST); /* nothing was taken, and nothing is now */
    cr_expect_eq(budget.used, 0);
    account_close(&account);
}

Test(account, says_why_it_refuses) {
    struct budget budget = make_budget(MIB, 2 * MIB);
    struct account one, other;
    account_open(&one, &budget, 0);
    account_open(&other, &budget, 0);
    cr_expect(account_take(&one, MIB));
    cr_expect_not(account_take(&one, 1));
    cr_expect_eq(one.refusal, ACCOUNT_OVER_REQUEST);
    cr_expect_eq(one.wanted, MIB + 1);
    cr_expect_eq(one.held, MIB);
    cr_expect_not(account_take(&one, SIZE_MAX));
    cr_expect_eq(one.wanted, SIZE_MAX);
    cr_expect_not(account_take(&other, 900 * KIB)); /* less than a sixteenth is left then */
    cr_expect_eq(other.refusal, ACCOUNT_OVER_TOTAL);
    cr_expect_eq(budget.used, MIB);
    cr_expect(account_take(&other, 890 * KIB));
    account_close(&one);
    account_close(&other);
    cr_expect_eq(budget.used, 0);
}

/* A request that could never be admitted is refused by the limit of one request, not by that of
 * all. */
Test(account, no_account_may_hold_the_reserve) {
    struct budget budget = make_budget(100 * MIB, 16 * MIB);
    struct account account;
    for (size_t base = 0; base <= 64 * KIB; base += 64 * KIB) { /* the base is in the budget, too */
        account_open(&account, &budget, base);
        cr_expect_eq(account_room(&account), 15 * MIB - base);
        cr_expect_not(account_take(&account, 15 * MIB - base + 1));
        cr_expect_eq(account.refusal, ACCOUNT_OVER_REQUEST, "base %zu", base);
        cr_expect(account_take(&account, 15 * MIB - base));
        cr_expect_eq(account_room(&account), 0);
        account_close(&account);
    }
}

Test(account, keeps_the_reserve_for_small_requests) {
    struct budget budget = make_budget(16 * MIB, 16 * MIB);
    struct account large, small;
    account_open(&large, &budget, 0);
    account_open(&small, &budget, 0);
    cr_assert(account_take(&large, 15 * MIB));
    cr_expect_not(account_take(&small, 1));
    small.small = true;
    cr_expect(account_take(&small, ACCOUNT_SMALL));
    cr_expect_not(account_take(&small, 1)); /* it now holds more than a small request */
    account_close(&small);
    account_close(&large);
}

Test(account, allocates_on_account) {
    struct budget budget = make_budget(MIB, 16 * MIB);
    struct account account;
    account_open(&account, &budget, 0);
    char *block = account_alloc(&account, 100);
    cr_assert_not_null(block);
    cr_expect_geq(account.held, 100);
    block[99] = 7;
    block = account_realloc(&account, block, 100 * KIB);
    cr_assert_not_null(block);
    cr_expect_eq(block[99], 7);
    cr_expect_geq(account.peak, 100 * KIB + 100); /* both blocks exist for a moment */
    cr_expect_null(account_realloc(&account, block, 2 * MIB));
    cr_expect_null(account_alloc(&account, SIZE_MAX));
    account_free(&account, block);
    account_free(&account, NULL);
    cr_expect_eq(account.held, 0);
    block = account_alloc(NULL, 10); /* nothing is counted */
    cr_assert_not_null(block);
    account_free(NULL, block);
    account_close(&account);
}

/* Appends numbers one at a time, as every user of account_grow() does. */
Test(account, grows_arrays) {
    struct budget budget = make_budget(4 * MIB, 16 * MIB);
    struct account account;
    size_t capacity = 0, count = 0, moves = 0;
    uint64_t *array = NULL;
    account_open(&account, &budget, 0);
    for (;; count++) {
        const size_t before = capacity;
        uint64_t *grown = account_grow(&account, array, &capacity, count + 1, sizeof *array);
        if (grown == NULL) {
            cr_expect_eq(capacity, before); /* the old array is still there */
            break;
        }
        array = grown;
        cr_assert(capacity > count);
        moves += capacity != before;
        array[count] = count;
    }
    cr_expect_eq(account.refusal, ACCOUNT_OVER_REQUEST);
    cr_expect(count * sizeof *array >= MIB && moves < 30, "%zu elements, %zu moves", count, moves);
    for (size_t i = 0; i < count; i++) {
        cr_assert_eq(array[i], i);
    }
    cr_expect_eq(account.held, account_block(capacity * sizeof *array));
    cr_expect_null(account_grow(&account, array, &capacity, SIZE_MAX / 4, sizeof *array));
    cr_expect_null(account_grow(NULL, NULL, &(size_t){0}, SIZE_MAX / 4, sizeof *array));
    account_free(&account, array);
    cr_expect_eq(account.held, 0);

    size_t large = 0;
    char *bytes = account_grow(NULL, NULL, &large, 1000, 1); /* as many as are needed at once */
    cr_assert_not_null(bytes);
    cr_expect_eq(large, 1000);
    cr_expect_eq(account_grow(NULL, bytes, &large, 1000, 1), bytes);
    cr_expect_eq(large, 1000);
    account_free(NULL, bytes);
    account_close(&account);
}

enum {
    ARENA = 1024
};

/* Opens an account whose base counts an arena of ARENA bytes. */
static void open_with_arena(struct account *account, struct budget *budget, char *arena) {
    account_open(account, budget, 2 * KIB);
    account_lend(account, arena, ARENA);
}

static bool is_inside(const char *arena, const void *block, size_t size) {
    const uintptr_t at = (uintptr_t)block - (uintptr_t)arena;
    return at < ARENA && size <= ARENA - at;
}

Test(account, lends_blocks_of_its_arena) {
    static _Alignas(64) char arena[ARENA];
    struct budget budget = make_budget(MIB, 16 * MIB);
    struct account account;
    open_with_arena(&account, &budget, arena);
    char *one = account_alloc(&account, 100), *two = account_alloc(&account, 0);
    cr_assert(is_inside(arena, one, 100) && is_inside(arena, two, 0) && one != two);
    cr_expect_eq(account.held, account_block(100) + account_block(0));
    memset(one, 1, 100);
    account_free(&account, two);
    two = account_alloc(&account, 20);
    memset(two, 2, 20);
    cr_expect_eq(account_realloc(&account, two, 300), two); /* the last block grows in place */
    memset(two, 2, 300);
    char *moved = account_realloc(&account, one, 200); /* another block must move */
    cr_assert(is_inside(arena, moved, 200) && moved >= two + 300);
    for (int i = 0; i < 100; i++) {
        cr_assert_eq(moved[i], 1);
    }
    cr_expect_eq(two[299], 2);
    char *large = account_alloc(&account, 600); /* it does not fit any more */
    cr_assert(large != NULL && !is_inside(arena, large, 0));
    account_free(&account, large);
    moved = account_realloc(&account, moved, 5000); /* it leaves the arena */
    cr_assert(moved != NULL && !is_inside(arena, moved, 0) && moved[99] == 1);
    account_free(&account, moved);
    account_free(&account, two);
    cr_expect_eq(account.held, 0);
    cr_expect_eq(account.inside, 0);
    account_close(&account);
    cr_expect_eq(budget.used, 0);
}

/* The base counts the blocks of the arena. Blocks of malloc are counted beyond it. */
Test(account, counts_the_arena_once) {
    static _Alignas(64) char arena[ARENA];
    struct budget budget = make_budget(MIB, 2 * KIB + 300);
    struct account account;
    open_with_arena(&account, &budget, arena);
    account.small = true; /* the reserve counts, too */
    for (int i = 0; i < 8; i++) {
        cr_expect_not_null(account_alloc(&account, 48));
    }
    /* A block is counted before the arena has it. */
    cr_expect_eq(budget.used, 2 * KIB + 8 * account_block(48) - 7 * (48 + 32));
    cr_expect_null(account_alloc(&account, ARENA));      /* this would be a block of malloc */
    cr_expect_eq(account.refusal, ACCOUNT_OVER_REQUEST); /* it never fits, even alone */
    account_close(&account);
    cr_expect_eq(budget.used, 0);
}

/* The limit of one request holds for the arena as well. */
Test(account, refuses_blocks_of_the_arena) {
    static _Alignas(64) char arena[ARENA];
    struct budget budget = make_budget(200, 16 * MIB);
    struct account account;
    open_with_arena(&account, &budget, arena);
    char *block = account_alloc(&account, 100);
    cr_expect_not_null(block);
    cr_expect_null(account_alloc(&account, 100));
    cr_expect_eq(account.refusal, ACCOUNT_OVER_REQUEST);
    cr_expect_null(account_realloc(&account, block, 150));
    account_free(&account, block);
    account_close(&account);
}

Test(account, allocates_bytes_that_are_taken) {
    static _Alignas(64) char arena[ARENA];
    struct budget budget = make_budget(MIB, 16 * MIB);
    struct account account;
    open_with_arena(&account, &budget, arena);
    cr_assert(account_charge(&account, 10 * KIB));
    cr_expect_not(account_charge(&account, MIB));
    char *odd = account_alloc(&account, 1);
    char *small = account_alloc_taken(&account, 64, 100);
    char *large = account_alloc_taken(&account, 64, 5000);
    cr_assert(is_inside(arena, small, 100) && (uintptr_t)small % 64 == 0);
    cr_assert(large != NULL && !is_inside(arena, large, 0) && (uintptr_t)large % 64 == 0);
    memset(large, 1, 5000);
    cr_expect_null(account_alloc_taken(&account, 64, SIZE_MAX));
    account_free(&account, odd);
    cr_expect_eq(account.held, 10 * KIB);
    account_free_region(&account, ACCOUNT_REQUEST);
    cr_expect_eq(account.held, 0);
    cr_expect_eq(account.inside, 0);
    account_close(&account);
}

/* The answer stays when the request is freed, also a block of it that has moved. The leak checker
 * sees a block that no region frees. */
Test(account, frees_a_region) {
    static _Alignas(64) char arena[ARENA];
    struct budget budget = make_budget(MIB, 16 * MIB);
    struct account account;
    open_with_arena(&account, &budget, arena);
    char *blocks[6];
    for (size_t i = 0; i < 6; i++) {
        account.region = i % 2 == 0 ? ACCOUNT_REQUEST : ACCOUNT_ANSWER;
        blocks[i] = account_alloc(&account, i < 4 ? 20 : 5000);
        memset(blocks[i], (int)i, 20);
    }
    account.region = ACCOUNT_REQUEST;
    blocks[1] = account_realloc(&account, blocks[1], 2000);
    blocks[5] = account_realloc(&account, blocks[5], 50000);
    account_free_region(&account, ACCOUNT_REQUEST);
    cr_expect_eq(account.held, account_block(2000) + account_block(20) + account_block(50000));
    cr_expect_eq(account.inside, 20 + 32);
    for (size_t i = 1; i < 6; i += 2) {
        cr_expect(blocks[i][0] == (char)i && blocks[i][19] == (char)i, "block %zu", i);
    }
    account_free_region(&account, ACCOUNT_ANSWER);
    cr_expect_eq(account.held, 0);
    account_close(&account);
    cr_expect_eq(budget.used, 0);
}

Test(account, counts_the_overhead_of_blocks) {
    cr_expect_eq(account_block(SIZE_MAX), SIZE_MAX);
    for (size_t size = 0; size < 300 * KIB; size += size / 7 + 1) {
        cr_expect_geq(account_block(size), size + 8, "%zu", size);
        cr_expect_geq(account_block(size), 32, "%zu", size);
        cr_expect_leq(account_block(size), size + size / 16 + 72, "%zu", size);
    }
}

static void *take_and_give(void *budget) {
    for (int round = 0; round < 2000; round++) {
        struct account account;
        account_open(&account, budget, 100);
        for (size_t step = 0; step < 20; step++) {
            account_take(&account, step * 4000);
        }
        account_give(&account, account.held / 2);
        account_close(&account);
    }
    return NULL;
}

Test(account, many_threads_share_a_budget) {
    enum {
        THREADS = 4
    };
    struct budget budget = make_budget(MIB, 2 * MIB);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, take_and_give, &budget), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    cr_expect_eq(budget.used, 0);
    cr_expect_leq(budget.peak, 2 * MIB);
}
