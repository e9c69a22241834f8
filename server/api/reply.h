/*
 * reply.h - responses that several handlers give: problems from the codec's and the library's
 * errors, and answers from a list of items.
 */
#ifndef API_REPLY_H
#define API_REPLY_H

#include "api/api.h"

void reply_no_memory(const struct http_request *request, struct http_response *response);
void reply_codec_error(const struct http_request *request, struct http_response *response,
                       const struct codec_error *error);
void reply_attn_error(const struct http_request *request, struct http_response *response,
                      const attn_error *error);

/* A growing list of codec items. Zero-initialise; failed adds are remembered. */
struct reply_items {
    struct codec_item *items;
    size_t count, capacity;
    bool failed;
};

void reply_open(struct reply_items *list, enum codec_op op, const char *key);
void reply_close(struct reply_items *list);
void reply_tensor(struct reply_items *list, const char *key, const attn_tensor *tensor);
void reply_text(struct reply_items *list, const char *key, const char *text);
void reply_texts(struct reply_items *list, const char *key, const char *const *texts, size_t count);
void reply_number(struct reply_items *list, const char *key, double number);

/* Encodes the items as a 200 answer and frees the list. `digits` as in codec_write. A long text is
 * made while it is sent: what the items point to must live as long as the exchange. */
void reply_items(const struct http_request *request, struct http_response *response,
                 struct reply_items *list, int digits);

/* Bytes of `text` that reply_items holds at a time. */
double reply_text_memory(double text);

#endif
