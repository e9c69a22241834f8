/*
 * reply.h - responses that several handlers give: problems from the codec's and the library's
 * errors, and answers from a list of items.
 */
#ifndef API_REPLY_H
#define API_REPLY_H

#include "api/api.h"

enum {
    REPLY_ITEMS = 40 /* more than any answer has */
};

/* There is no memory for the request: its account says whether it may not have so much, whether
 * other requests have it, or whether the system has none. */
void reply_no_memory(const struct api_request *request, struct http_response *response);
void reply_codec_error(const struct api_request *request, struct http_response *response,
                       const struct codec_error *error);
void reply_attn_error(const struct api_request *request, struct http_response *response,
                      const attn_error *error);

/* A list of codec items. Initialise `count` with 0. */
struct reply_items {
    size_t count;
    struct codec_item items[REPLY_ITEMS];
};

void reply_open(struct reply_items *list, enum codec_op op, const char *key);
void reply_close(struct reply_items *list);
void reply_tensor(struct reply_items *list, const char *key, const attn_tensor *tensor);
void reply_text(struct reply_items *list, const char *key, const char *text);
void reply_number(struct reply_items *list, const char *key, double number);

/* Any other item. */
void reply_item(struct reply_items *list, struct codec_item item);

/* Encodes the items as a 200 answer. `digits` as in codec_write. A long text is made while it is
 * sent: what the items point to must live as long as the exchange. */
void reply_items(const struct api_request *request, struct http_response *response,
                 const struct reply_items *list, int digits);

#endif
