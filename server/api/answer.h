/*
 * answer.h - the names that "return" knows, the results of the library that each stands for, and
 * the answer that lists the results of a call.
 */
#ifndef API_ANSWER_H
#define API_ANSWER_H

#include "api/reply.h"

struct call;

/* One row for each name: X(NAME, text, the greatest rank of its results, the bits of its results in
 * attn_options.results). The library has no result COMPARISON. From PRESENT_K on, a result has one
 * part for each head if the heads have projections of their own. */
#define ANSWER_MAP(X)                                                                              \
    X(OUTPUT, "output", 4, ATTN_WANT(OUTPUT))                                                      \
    X(WEIGHTS, "weights", 4, ATTN_WANT(WEIGHTS))                                                   \
    X(SCORES, "scores", 4, ATTN_WANT(SCORES))                                                      \
    X(SCALED_SCORES, "scaled_scores", 4, ATTN_WANT(SCALED_SCORES))                                 \
    X(MASKED_SCORES, "masked_scores", 4, ATTN_WANT(MASKED_SCORES))                                 \
    X(LSE, "lse", 3, ATTN_WANT(LSE))                                                               \
    X(STATISTICS, "statistics", 0, ATTN_WANT(STATISTICS))                                          \
    X(ENTROPY, "entropy", 3, ATTN_WANT(ENTROPY))                                                   \
    X(TOP_K, "top_k", 4, ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS))                      \
    X(COMPARISON, "comparison", 0, 0)                                                              \
    X(PRESENT_K, "present_K", 4, ATTN_WANT(PRESENT_K))                                             \
    X(PRESENT_V, "present_V", 4, ATTN_WANT(PRESENT_V))                                             \
    X(Q, "Q", 4, ATTN_WANT(Q))                                                                     \
    X(K, "K", 4, ATTN_WANT(K))                                                                     \
    X(V, "V", 4, ATTN_WANT(V))

enum answer_name {
#define ANSWER_ENUM(name, text, rank, bits) ANSWER_##name,
    ANSWER_MAP(ANSWER_ENUM)
#undef ANSWER_ENUM
    ANSWER_COUNT,
    ANSWER_PROJECTED = ANSWER_Q /* the first name that is a result of projections only */
};

extern const char *const answer_names[ANSWER_COUNT];
extern const unsigned answer_bits[ANSWER_COUNT];
extern const int answer_ranks[ANSWER_COUNT];

/* Returns how many of the names, from the first on, objects with these fields can return. Objects
 * without the key "return" have an output alone. */
size_t answer_count(unsigned fields);

/* Lists all results of objects with these fields as items without numbers: each has its type and
 * its greatest rank. */
void answer_describe(struct codec_items *list, unsigned fields);

/* Fills the response of a call whose job has ended: its results in the order of "return", or the
 * error of the task that failed. The response borrows from the call. */
void answer_call(struct call *call, struct api_request *request);

#endif
