/*
 * reply.h - the responses that several handlers give: problem documents for the errors of the codec
 * and of the library, and answers that are made of a list of items.
 */
#ifndef API_REPLY_H
#define API_REPLY_H

#include "api/api.h"

enum {
    REPLY_ITEMS = 40 /* no answer has more items */
};

/* Answers that there is no memory for the request: with a 413 if the request may not hold so much,
 * and with a 503 if other requests hold the memory or the system has none. The account of the
 * request says which. */
__attribute__((cold)) void reply_no_memory(const struct api_request *request,
                                           struct http_response *response);

/* Answers with the problem of an error: 400, 413, 422 or 503. */
__attribute__((cold)) void reply_codec_error(const struct api_request *request,
                                             struct http_response *response,
                                             const struct codec_error *error);

/* Answers with a 422, or with a 503 if the library has no memory. error->argument becomes the
 * pointer of the problem. */
__attribute__((cold)) void reply_attn_error(const struct api_request *request,
                                            struct http_response *response,
                                            const attn_error *error);

/* The items of an answer. Initialise `count` with 0. Keys, texts and data are borrowed. */
struct reply_items {
    size_t count;
    struct codec_item items[REPLY_ITEMS];
};

/* Each of these adds one item. `key` is NULL inside an array. */
void reply_open(struct reply_items *list, enum codec_op op, const char *key);
void reply_close(struct reply_items *list);
void reply_tensor(struct reply_items *list, const char *key, const attn_tensor *tensor);
void reply_text(struct reply_items *list, const char *key, const char *text);
void reply_number(struct reply_items *list, const char *key, double number);
void reply_item(struct reply_items *list, struct codec_item item);

/* Writes items as JSON into a buffer. `bytes` is codec_items_bytes() of them, in full. The buffer
 * counts in the account; unless it is borrowed, the caller frees it. Returns false if there is no
 * memory. */
bool reply_write(const struct api_request *request, const struct codec_item *items, size_t count,
                 int digits, size_t bytes, struct codec_buffer *buffer);

/* Answers with a 200 whose body is `count` items as JSON. `digits` is as in codec_write(). A long
 * text is made while it is sent, so what the items point to must live as long as the exchange; the
 * items themselves are copied. Answers with reply_no_memory() if there is no memory. */
void reply_json(const struct api_request *request, struct http_response *response,
                const struct codec_item *items, size_t count, int digits);

/* Does what reply_json() does with a list of items. */
void reply_items(const struct api_request *request, struct http_response *response,
                 const struct reply_items *list, int digits);

#endif
