/*
 * answer.h - the names that "return" knows, the results of the library that each stands for, and
 * the answer that lists the results of a call.
 */
#ifndef API_ANSWER_H
#define API_ANSWER_H

#include "api/api.h"

struct call;

/* One row for each name: X(NAME, text, the bits of its results in attn_options.results). From
 * PRESENT_K on, a result has one part for each head if the heads have projections of their own. */
#define ANSWER_MAP(X)                                                                              \
    X(OUTPUT, "output", ATTN_WANT(OUTPUT))                                                         \
    X(WEIGHTS, "weights", ATTN_WANT(WEIGHTS))                                                      \
    X(SCORES, "scores", ATTN_WANT(SCORES))                                                         \
    X(SCALED_SCORES, "scaled_scores", ATTN_WANT(SCALED_SCORES))                                    \
    X(MASKED_SCORES, "masked_scores", ATTN_WANT(MASKED_SCORES))                                    \
    X(LSE, "lse", ATTN_WANT(LSE))                                                                  \
    X(STATISTICS, "statistics", ATTN_WANT(STATISTICS))                                             \
    X(ENTROPY, "entropy", ATTN_WANT(ENTROPY))                                                      \
    X(TOP_K, "top_k", ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS))                         \
    X(PRESENT_K, "present_K", ATTN_WANT(PRESENT_K))                                                \
    X(PRESENT_V, "present_V", ATTN_WANT(PRESENT_V))                                                \
    X(Q, "Q", ATTN_WANT(Q))                                                                        \
    X(K, "K", ATTN_WANT(K))                                                                        \
    X(V, "V", ATTN_WANT(V))

enum answer_name {
#define ANSWER_ENUM(name, text, bits) ANSWER_##name,
    ANSWER_MAP(ANSWER_ENUM)
#undef ANSWER_ENUM
    ANSWER_COUNT,
    ANSWER_PROJECTED = ANSWER_Q /* the first name that is a result of projections only */
};

extern const char *const answer_names[ANSWER_COUNT];
extern const unsigned answer_bits[ANSWER_COUNT];

/* Fills the response of a call whose job has ended: its results in the order of "return", or the
 * error of the task that failed. The response borrows from the call. */
void answer_call(struct call *call, const struct api_request *request,
                 struct http_response *response);

#endif
