/*
 * reply.h - the responses that several handlers give: problem documents for the errors of the codec
 * and of the library, and answers that are made of a list of items.
 */
#ifndef API_REPLY_H
#define API_REPLY_H

#include "api/request.h"

/* Answers with a problem document without a pointer. */
__attribute__((cold)) void reply_problem(struct api_request *request, int status,
                                         const char *detail);

/* Answers that there is no memory for the request: with a 413 if the request may not hold so much,
 * and with a 503 if other requests hold the memory or the system has none. The account of the
 * request says which. */
__attribute__((cold)) void reply_no_memory(struct api_request *request);

/* Does the same. `pointer` is that of the problem, or NULL. The text of a 413 ends with `hint`. */
__attribute__((cold)) void reply_too_large(struct api_request *request, const char *pointer,
                                           const char *hint);

/* Writes a number of bytes for a message, such as "512 MiB". */
void reply_put_size(char out[static 32], size_t bytes);

/* Answers with the problem of an error: 400, 413, 422 or 503. */
__attribute__((cold)) void reply_codec_error(struct api_request *request,
                                             const struct codec_error *error);

/* Answers with a 422, or with a 503 if the library has no memory. error->argument becomes the
 * pointer of the problem. */
__attribute__((cold)) void reply_attn_error(struct api_request *request, const attn_error *error);

/* Answers with a 200 whose body is the list of items as JSON, and frees the list. `digits` is as in
 * codec_write(). A long text of a list with an account is made while it is sent, so what its items
 * point to must live as long as the request. Answers with reply_no_memory() if there is no memory,
 * also for an item. */
void reply_json(struct api_request *request, struct codec_items *items, int digits);

#endif
