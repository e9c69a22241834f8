/* items.c - the list of the items of an answer. */
#include "codec/codec.h"

#include <assert.h>
#include <string.h>

void codec_items_begin(struct codec_items *items, struct account *account) {
    items->list = items->few;
    items->count = 0;
    items->capacity = 0;
    items->account = account;
    items->failed = false;
}

void codec_items_free(struct codec_items *items) {
    if (items->list != items->few) {
        account_free(items->account, items->list);
    }
    codec_items_begin(items, items->account);
}

/* Makes room for one more item. Returns false if there is no memory. */
static bool make_room(struct codec_items *items) {
    struct codec_item *few = items->list == items->few ? items->few : NULL;
    struct codec_item *list = account_grow(items->account, few != NULL ? NULL : items->list,
                                           &items->capacity, items->count + 1, sizeof *list);
    if (list == NULL) {
        return false;
    }
    if (few != NULL) {
        memcpy(list, few, items->count * sizeof *list);
    }
    items->list = list;
    return true;
}

void codec_add(struct codec_items *items, struct codec_item item) {
    const size_t room = items->list == items->few ? CODEC_FEW_ITEMS : items->capacity;
    if (items->failed || (items->count == room && !make_room(items))) {
        items->failed = true;
        return;
    }
    items->list[items->count++] = item;
}

void codec_add_open(struct codec_items *items, enum codec_op op, const char *key) {
    codec_add(items, (struct codec_item){.op = op, .key = key});
}

void codec_add_close(struct codec_items *items) {
    codec_add(items, (struct codec_item){.op = CODEC_OP_END});
}

void codec_add_tensor(struct codec_items *items, const char *key, const attn_tensor *tensor) {
    codec_add(items, (struct codec_item){.op = CODEC_OP_TENSOR, .key = key, .tensor = *tensor});
}

void codec_add_integers(struct codec_items *items, const char *key, const void *integers,
                        size_t count) {
    const attn_tensor tensor = {.data = integers, .dtype = ATTN_INT64, .rank = 1, .shape = {count}};
    codec_add_tensor(items, key, &tensor);
}

void codec_add_integer(struct codec_items *items, const char *key, const void *integer) {
    codec_add_tensor(items, key, &(attn_tensor){.data = integer, .dtype = ATTN_INT64});
}

void codec_add_number(struct codec_items *items, const char *key, double number) {
    codec_add(items, (struct codec_item){.op = CODEC_OP_NUMBER, .key = key, .number = number});
}

void codec_add_bool(struct codec_items *items, const char *key, bool on) {
    codec_add(items, (struct codec_item){.op = CODEC_OP_BOOL, .key = key, .number = on});
}

void codec_add_text(struct codec_items *items, const char *key, const char *text) {
    codec_add(items, (struct codec_item){.op = CODEC_OP_TEXT, .key = key, .text = text});
}

void codec_add_texts(struct codec_items *items, const char *key, const char *const *texts,
                     size_t count) {
    codec_add(items, (struct codec_item){
                         .op = CODEC_OP_TEXTS, .key = key, .texts = texts, .count = count});
}

/* Returns the numbers of the longest row in a list. */
static size_t longest_row(const struct codec_items *items) {
    size_t longest = 1;
    for (size_t i = 0; i < items->count; i++) {
        const struct codec_item *item = &items->list[i];
        for (size_t k = 0; item->op == CODEC_OP_PARTS && k < item->count; k++) {
            const size_t row = item->parts[k].shape[item->parts[k].rank - 1];
            longest = row > longest ? row : longest;
        }
        if (item->op == CODEC_OP_TENSOR && item->tensor.rank > 0) {
            const size_t row = item->tensor.shape[item->tensor.rank - 1];
            longest = row > longest ? row : longest;
        }
    }
    return longest;
}

bool codec_items_write(const struct codec_items *items, int digits, size_t before, size_t bytes,
                       struct codec_buffer *buffer) {
    struct account *account = items->account;
    const size_t row = longest_row(items);
    const size_t beyond = CODEC_ROOM + (row < CODEC_STRIDE ? row : CODEC_STRIDE) * CODEC_ROOM_EACH;
    const size_t room = before + bytes + beyond; /* it is never too little */
    if (items->failed || bytes > SIZE_MAX / 4) {
        return false;
    }
    buffer->data = account_alloc(account, room);
    buffer->borrowed = account != NULL;
    buffer->capacity = room;
    buffer->size = before;
    const bool good =
        buffer->data != NULL && codec_write(buffer, items->list, items->count, digits);
    assert(buffer->capacity == room);
    if (!good) {
        codec_buffer_free(buffer, account);
    }
    return good;
}

void codec_buffer_free(struct codec_buffer *buffer, struct account *account) {
    account_free(account, buffer->data);
    *buffer = (struct codec_buffer){0};
}
