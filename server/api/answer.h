/*
 * answer.h - the names that "return" knows, the results of the library that each stands for, and
 * the answer that lists the results of a call.
 *
 * To add a result: add a row to ANSWER_MAP, before PRESENT_K. A result with a form of its own also
 * needs a case in add_result() and in answer_describe() of answer.c. Add it to openapi.yaml and to
 * tests/openapi/exact.yaml: to the names of return of each request and to the answers (then make
 * docs); to worker.js of the explorer; to EVERY_RESULT of tests/support/binary.c; and to a row of
 * tests/data/answers.txt. A result that is one tensor of floats can be expected without more;
 * promise() in comparison_answer.c has its bound, and Expected in exact.yaml its name. If it may be
 * null, test_extremes.c lists it.
 */
#ifndef API_ANSWER_H
#define API_ANSWER_H

#include <string.h>

#include "api/reply.h"

struct call;

/* One row for each name: X(NAME, text, the greatest rank of its results, the bits of its results in
 * attn_options.results). The library has no result COMPARISON. First come the results of every
 * call with softmax. Calls of /attention have the gradients of biases and decays, too, and calls of
 * stored layers have the results of projections. Calls with projections have all these. Last come
 * the results that only linear attention has. */
#define ANSWER_OF_ALL(X)                                                                           \
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
    X(GRAD_Q, "grad_Q", 4, ATTN_WANT(GRAD_Q))                                                      \
    X(GRAD_K, "grad_K", 4, ATTN_WANT(GRAD_K))                                                      \
    X(GRAD_V, "grad_V", 4, ATTN_WANT(GRAD_V))                                                      \
    X(GRAD_X, "grad_X", 4, ATTN_WANT(GRAD_X))                                                      \
    X(GRAD_PAST_K, "grad_past_K", 4, ATTN_WANT(GRAD_PAST_K))                                       \
    X(GRAD_PAST_V, "grad_past_V", 4, ATTN_WANT(GRAD_PAST_V))                                       \
    X(GRAD_BIAS, "grad_bias", 4, ATTN_WANT(GRAD_BIAS))                                             \
    X(GRAD_SINK, "grad_sink", 1, ATTN_WANT(GRAD_SINK))                                             \
    X(GRAD_ALIBI, "grad_alibi", 1, ATTN_WANT(GRAD_ALIBI))                                          \
    X(GRAD_NORM_Q, "grad_norm_Q", 1, ATTN_WANT(GRAD_NORM_Q))                                       \
    X(GRAD_NORM_K, "grad_norm_K", 1, ATTN_WANT(GRAD_NORM_K))

#define ANSWER_OF_BIASES(X)                                                                        \
    X(GRAD_B_Q, "grad_b_Q", 2, ATTN_WANT(GRAD_B_Q))                                                \
    X(GRAD_B_K, "grad_b_K", 2, ATTN_WANT(GRAD_B_K))                                                \
    X(GRAD_B_V, "grad_b_V", 2, ATTN_WANT(GRAD_B_V))                                                \
    X(GRAD_DECAY, "grad_decay", 4, ATTN_WANT(GRAD_DECAY))

#define ANSWER_OF_PROJECTIONS(X)                                                                   \
    X(Q, "Q", 4, ATTN_WANT(Q))                                                                     \
    X(K, "K", 4, ATTN_WANT(K))                                                                     \
    X(V, "V", 4, ATTN_WANT(V))                                                                     \
    X(GRAD_CONTEXT, "grad_context", 3, ATTN_WANT(GRAD_CONTEXT))                                    \
    X(GRAD_VALUE_CONTEXT, "grad_value_context", 3, ATTN_WANT(GRAD_VALUE_CONTEXT))

#define ANSWER_OF_WEIGHTS(X)                                                                       \
    X(GRAD_W_Q, "grad_W_Q", 3, ATTN_WANT(GRAD_W_Q))                                                \
    X(GRAD_W_K, "grad_W_K", 3, ATTN_WANT(GRAD_W_K))                                                \
    X(GRAD_W_V, "grad_W_V", 3, ATTN_WANT(GRAD_W_V))                                                \
    X(GRAD_W_O, "grad_W_O", 2, ATTN_WANT(GRAD_W_O))                                                \
    X(GRAD_B_O, "grad_b_O", 1, ATTN_WANT(GRAD_B_O))                                                \
    X(GRAD_BIAS_K, "grad_bias_K", 2, ATTN_WANT(GRAD_BIAS_K))                                       \
    X(GRAD_BIAS_V, "grad_bias_V", 2, ATTN_WANT(GRAD_BIAS_V))

#define ANSWER_OF_STATES(X)                                                                        \
    X(PRESENT_STATE, "present_state", 4, ATTN_WANT(PRESENT_STATE))                                 \
    X(STATES, "states", 5, ATTN_WANT(STATES))                                                      \
    X(DECAYS, "decays", 4, ATTN_WANT(DECAYS))                                                      \
    X(GRAD_BETA, "grad_beta", 3, ATTN_WANT(GRAD_BETA))                                             \
    X(GRAD_PAST_STATE, "grad_past_state", 4, ATTN_WANT(GRAD_PAST_STATE))

#define ANSWER_MAP(X)                                                                              \
    ANSWER_OF_ALL(X)                                                                               \
    ANSWER_OF_BIASES(X) ANSWER_OF_PROJECTIONS(X) ANSWER_OF_WEIGHTS(X) ANSWER_OF_STATES(X)

enum answer_name {
#define ANSWER_ENUM(name, text, rank, bits) ANSWER_##name,
    ANSWER_MAP(ANSWER_ENUM)
#undef ANSWER_ENUM
    ANSWER_COUNT,
    ANSWER_PROJECTED = ANSWER_Q,           /* the first one that is a result of projections only */
    ANSWER_SOFTMAX = ANSWER_PRESENT_STATE, /* names of softmax; the others are of states */
    ANSWER_LINEAR = 12,                    /* names of linear attention */
    ANSWER_STORED = ANSWER_GRAD_W_Q - (ANSWER_Q - ANSWER_GRAD_B_Q) /* names of stored layers */
};

extern const char *const answer_names[ANSWER_COUNT];
extern const char *const answer_stored_names[ANSWER_STORED]; /* those of calls of stored layers */
extern const char *const answer_linear_names[ANSWER_LINEAR]; /* those of linear attention */
extern const uint64_t answer_bits[ANSWER_COUNT];
extern const int answer_ranks[ANSWER_COUNT];

/* Returns the names that objects with these fields can return, and their number. Objects without
 * the key "return" have an output alone. */
const char *const *answer_names_of(unsigned fields, size_t *count);

/* Returns the name of a result, which must be one of them. */
static inline enum answer_name answer_of(const char *name) {
    size_t which = 0;
    while (strcmp(answer_names[which], name) != 0) {
        which++;
    }
    return (enum answer_name)which;
}

/* Is a result a gradient? */
static inline bool answer_is_gradient(enum answer_name which) {
    return answer_bits[which] >= ATTN_WANT(GRAD_Q);
}

/* Has a result one part for each head, if the heads have projections of their own? */
static inline bool answer_has_parts(enum answer_name which) {
    const uint64_t bits = answer_bits[which];
    return (bits >= ATTN_WANT(PRESENT_K) && bits <= ATTN_WANT(GRAD_V)) ||
           (bits >= ATTN_WANT(GRAD_W_Q) && bits <= ATTN_WANT(GRAD_B_V) &&
            bits != ATTN_WANT(GRAD_W_O));
}

/* Lists all results of objects with these fields as items without numbers: each has its type and
 * its greatest rank. */
void answer_describe(struct codec_items *list, unsigned fields);

/* Fills the response of a call whose job has ended: its results in the order of "return", or the
 * error of the task that failed. The response borrows from the call. */
void answer_call(struct call *call, struct api_request *request);

#endif
