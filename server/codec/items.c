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

bool codec_items_write(const struct codec_items *items, int digits, size_t before, size_t bytes,
                       struct codec_buffer *buffer) {
    if (items->failed || bytes > SIZE_MAX / 4) {
        return false;
    }
    buffer->data = account_alloc(items->account, before + bytes + CODEC_ROOM);
    if (buffer->data == NULL) {
        return false;
    }
    const char *end = codec_write(buffer->data + before, items->list, items->count, digits);
    buffer->size = (size_t)(end - buffer->data);
    assert(buffer->size <= before + bytes);
    return true;
}
