/*
 * format.h - the format in which a request wants its answer: JSON, safetensors, or the Open
 * Inference Protocol.
 */
#ifndef API_FORMAT_H
#define API_FORMAT_H

#include "api/reply.h"

/* Returns the format of the answer to a request that is not of the Open Inference Protocol. It is
 * safetensors if the Accept header prefers it to JSON, or if the body is in safetensors and the
 * header names neither. */
enum api_format format_of_answer(const struct http_request *request);

/* Answers with a 200 in the format of request->format, and frees the items. `digits` are for
 * numbers in JSON. The data of the items must live as long as the request. */
void format_reply(struct api_request *request, struct codec_items *items, int digits);

#endif
