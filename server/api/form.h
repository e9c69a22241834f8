/*
 * form.h - the form in which a request wants its answer: JSON, safetensors, or the Open Inference
 * Protocol.
 */
#ifndef API_FORM_H
#define API_FORM_H

#include "api/reply.h"

/* Returns whether a request wants safetensors: if its Accept header prefers it to JSON, or if its
 * body is in safetensors and the header names neither. */
bool form_is_safetensors(const struct http_request *request);

/* Answers with a 200 in the form of the request. `digits` are for numbers in JSON. What the items
 * point to must live as long as the exchange. */
void form_reply(const struct api_request *request, struct http_response *response,
                const struct reply_items *list, int digits);

#endif
