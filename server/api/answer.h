/*
 * answer.h - the answer of a call, which lists its results.
 */
#ifndef API_ANSWER_H
#define API_ANSWER_H

#include "api/answer_names.h"
#include "api/reply.h"

struct call;

/* Lists all results of objects with these fields as items without numbers: each has its type and
 * its greatest rank. */
void answer_describe(struct codec_items *list, unsigned fields);

/* Fills the response of a call whose job has ended: its results in the order of "return", or the
 * error of the task that failed. The response borrows from the call. */
void answer_call(struct call *call, struct api_request *request);

#endif
