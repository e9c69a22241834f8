/* test_codec_items.c - the list of the items of an answer, and the memory that it takes. */
#include "test_codec.h"

enum {
    MANY = 3 * CODEC_FEW_ITEMS
};

/* Lists an array of the numbers 0 to MANY - 1. */
static void add_numbers(struct codec_items *list) {
    codec_add_open(list, CODEC_OP_ARRAY, NULL);
    for (int i = 0; i < MANY; i++) {
        codec_add_number(list, NULL, i);
    }
    codec_add_close(list);
}

Test(codec_items, a_long_list_keeps_its_items) {
    struct account *account = test_account();
    const size_t held = account->held;
    struct codec_items list;
    codec_items_begin(&list, account);
    add_numbers(&list);
    cr_assert(list.count == MANY + 2 && !list.failed);
    cr_expect_geq(account->held, held + list.count * sizeof *list.list);
    for (int i = 0; i < MANY; i++) {
        cr_expect_eq(list.list[i + 1].number, i);
    }
    codec_items_free(&list);
    cr_expect(list.count == 0 && account->held == held);
}

/* Writes the list behind `before` bytes, and expects that the buffer counts in the account. */
static void write_behind(size_t before) {
    static const char text[] = "{\"n\":18446744073709551,\"on\":true,\"none\":[]}\n";
    static const size_t integer = 18446744073709551;
    struct account *account = test_account();
    const size_t held = account->held, size = sizeof text - 1;
    struct codec_buffer buffer = {0};
    struct codec_items list;
    codec_items_begin(&list, account);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_integer(&list, "n", &integer);
    codec_add_bool(&list, "on", true);
    codec_add_integers(&list, "none", &integer, 0);
    codec_add_close(&list);
    const size_t bytes = codec_items_bytes(list.list, list.count, 3, SIZE_MAX);
    cr_assert(codec_items_write(&list, 3, before, bytes, &buffer)); /* digits do not round it */
    cr_assert_eq(buffer.size, before + size);
    cr_expect_arr_eq(buffer.data + before, text, size);
    cr_expect_eq(account->held, held + account_block(before + bytes + CODEC_ROOM));
    account_free(account, buffer.data);
    cr_expect_eq(account->held, held);
}

Test(codec_items, writes_behind_bytes_that_are_left) {
    for (size_t before = 0; before < 9; before++) {
        write_behind(before);
    }
}

/* Whatever is refused, the list says so, and everything is given back. */
Test(codec_items, memory_refused) {
    bool written = false;
    for (size_t most = 0; !written; most += 256) {
        struct budget budget = {.max_request = most, .max_total = 4 * most + 2};
        struct account account;
        struct codec_buffer buffer = {0};
        struct codec_items list;
        account_open(&account, &budget, 0);
        codec_items_begin(&list, &account);
        add_numbers(&list);
        const size_t bytes = codec_items_bytes(list.list, list.count, 0, SIZE_MAX);
        written = codec_items_write(&list, 0, 0, bytes, &buffer);
        cr_expect(written == (account.refusal == ACCOUNT_NOT_REFUSED));
        cr_expect(!written || !list.failed);
        cr_expect(written == (buffer.data != NULL));
        account_free(&account, buffer.data);
        codec_items_free(&list);
        cr_expect_eq(account.held, 0);
        account_close(&account);
        cr_assert_lt(most, 1 << 20);
    }
}
