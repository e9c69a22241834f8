/*
 * answer.h - the answer of a call, which lists its results.
 */
#ifndef API_ANSWER_H
#define API_ANSWER_H

#include "api/call/answer_names.h"
#include "api/reply.h"

struct call;

/* Lists all results of objects with these fields as items without numbers: each has its type and
 * its greatest rank. */
void answer_describe(struct codec_items *list, unsigned fields);

/* Lists the results of a call whose job has ended, in the order of "return". The list borrows from
 * the call. Returns false after filling the response with the error of the task that failed, or
 * with the differences that the request refuses. */
bool answer_list_results(struct call *call, struct api_request *request, struct codec_items *list);

#endif
