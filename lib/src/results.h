/*
 * results.h - what each result is: one row for each, which nobody else repeats.
 *
 * To add a result: give it a row in ATTN_RESULT_MAP, at the end, and one here; then see
 * plan_results.c.
 */
#ifndef ATTN_RESULTS_H
#define ATTN_RESULTS_H

#include <assert.h>
#include <attention.h>

enum result_kind {
    RESULT_COPY = 1 << 0,       /* it has the form of Q, K or V, and PHASE_PACK copies it */
    RESULT_PROJECTED = 1 << 1,  /* only calls with projections have it */
    RESULT_PER_HEAD = 1 << 2,   /* a part for each head, if heads have projections of their own */
    RESULT_LINEAR = 1 << 3,     /* only linear attention has it */
    RESULT_BOTH = 1 << 13,      /* attention and linear attention have it */
    RESULT_PACKED = 1 << 14,    /* attention over packed sequences has it */
    RESULT_SOFTMAX = 1 << 15,   /* only softmax makes it */
    RESULT_STAGE = 1 << 16,     /* the scores of all keys, those of forbidden keys, too */
    RESULT_PER_QUERY = 1 << 17, /* one number for each query of a head */
    RESULT_OF_ROW = 1 << 18,    /* made of all weights of a query at once */
    RESULT_GRADIENT = 1 << 4,
    RESULT_OF_HEADS = 1 << 5,  /* the gradient of Q, K or V as heads read them */
    RESULT_OF_WEIGHT = 1 << 6, /* the gradient of the weights of a projection */
    RESULT_OF_BIAS = 1 << 7,   /* the gradient of the bias of Q, K or V */
    RESULT_SUM = 1 << 8,       /* a gradient that GRADIENT_END adds up */
    RESULT_SHARED = 1 << 9,    /* the gradient of an input that all packed sequences share */
    RESULT_OF_Q = 1 << 10,     /* made of Q, or of what is projected to it */
    RESULT_OF_K = 1 << 11,
    RESULT_OF_V = 1 << 12
};

#define RESULT_GRADIENT_SHARED (RESULT_GRADIENT | RESULT_SUM | RESULT_SHARED)
#define RESULT_GRADIENT_HEADS  (RESULT_GRADIENT | RESULT_OF_HEADS | RESULT_PER_HEAD)
#define RESULT_GRADIENT_WEIGHT (RESULT_GRADIENT | RESULT_OF_WEIGHT)
#define RESULT_GRADIENT_BIAS   (RESULT_GRADIENT | RESULT_OF_BIAS | RESULT_PER_HEAD | RESULT_SHARED)

/* One row for each result: X(of, NAME, kinds, cost). `of` is handed on. The cost is what the result
 * adds to that of each score, see cost.c: 0 if it is counted elsewhere or takes no time. */
#define RESULT_TABLE(X, of)                                                                        \
    X(of, OUTPUT, RESULT_BOTH | RESULT_PACKED, 0)                                                  \
    X(of, WEIGHTS, RESULT_BOTH | RESULT_OF_ROW, 30)                                                \
    X(of, SCORES, RESULT_STAGE, 60)                                                                \
    X(of, SCALED_SCORES, RESULT_STAGE, 60)                                                         \
    X(of, MASKED_SCORES, RESULT_STAGE, 60)                                                         \
    X(of, LSE, RESULT_SOFTMAX | RESULT_PACKED | RESULT_PER_QUERY, 0)                               \
    X(of, STATISTICS, 0, 120)                                                                      \
    X(of, ENTROPY, RESULT_SOFTMAX | RESULT_PACKED | RESULT_PER_QUERY | RESULT_OF_ROW, 350)         \
    X(of, TOP_K_INDICES, RESULT_OF_ROW, 0)                                                         \
    X(of, TOP_K_WEIGHTS, RESULT_OF_ROW, 0)                                                         \
    X(of, PRESENT_STATE, RESULT_LINEAR, 0)                                                         \
    X(of, STATES, RESULT_LINEAR, 0)                                                                \
    X(of, DECAYS, RESULT_LINEAR, 0)                                                                \
    X(of, PRESENT_K, RESULT_COPY | RESULT_PER_HEAD | RESULT_OF_K, 0)                               \
    X(of, PRESENT_V, RESULT_COPY | RESULT_PER_HEAD | RESULT_OF_V, 0)                               \
    X(of, Q, RESULT_COPY | RESULT_PER_HEAD | RESULT_PROJECTED | RESULT_OF_Q, 0)                    \
    X(of, K, RESULT_COPY | RESULT_PER_HEAD | RESULT_PROJECTED | RESULT_OF_K, 0)                    \
    X(of, V, RESULT_COPY | RESULT_PER_HEAD | RESULT_PROJECTED | RESULT_OF_V, 0)                    \
    X(of, GRAD_Q, RESULT_GRADIENT_HEADS | RESULT_OF_Q | RESULT_BOTH | RESULT_PACKED, 0)            \
    X(of, GRAD_K, RESULT_GRADIENT_HEADS | RESULT_OF_K | RESULT_BOTH | RESULT_PACKED, 0)            \
    X(of, GRAD_V, RESULT_GRADIENT_HEADS | RESULT_OF_V | RESULT_BOTH | RESULT_PACKED, 0)            \
    X(of, GRAD_PAST_K, RESULT_GRADIENT, 0)                                                         \
    X(of, GRAD_PAST_V, RESULT_GRADIENT, 0)                                                         \
    X(of, GRAD_BIAS, RESULT_GRADIENT, 0)                                                           \
    X(of, GRAD_SINK, RESULT_GRADIENT_SHARED | RESULT_PACKED, 0)                                    \
    X(of, GRAD_ALIBI, RESULT_GRADIENT_SHARED | RESULT_PACKED, 0)                                   \
    X(of, GRAD_NORM_Q, RESULT_GRADIENT_SHARED | RESULT_OF_Q | RESULT_PACKED, 0)                    \
    X(of, GRAD_NORM_K, RESULT_GRADIENT_SHARED | RESULT_OF_K | RESULT_PACKED, 0)                    \
    X(of, GRAD_NORM_V, RESULT_GRADIENT_SHARED | RESULT_OF_V | RESULT_PACKED, 0)                    \
    X(of, GRAD_X, RESULT_GRADIENT | RESULT_PACKED, 0)                                              \
    X(of, GRAD_CONTEXT, RESULT_GRADIENT, 0)                                                        \
    X(of, GRAD_VALUE_CONTEXT, RESULT_GRADIENT, 0)                                                  \
    X(of, GRAD_W_Q, RESULT_GRADIENT_WEIGHT | RESULT_PER_HEAD | RESULT_OF_Q, 0)                     \
    X(of, GRAD_W_K, RESULT_GRADIENT_WEIGHT | RESULT_PER_HEAD | RESULT_OF_K, 0)                     \
    X(of, GRAD_W_V, RESULT_GRADIENT_WEIGHT | RESULT_PER_HEAD | RESULT_OF_V, 0)                     \
    X(of, GRAD_W_O, RESULT_GRADIENT_WEIGHT, 0)                                                     \
    X(of, GRAD_B_Q, RESULT_GRADIENT_BIAS | RESULT_OF_Q | RESULT_PACKED, 0)                         \
    X(of, GRAD_B_K, RESULT_GRADIENT_BIAS | RESULT_OF_K | RESULT_PACKED, 0)                         \
    X(of, GRAD_B_V, RESULT_GRADIENT_BIAS | RESULT_OF_V | RESULT_PACKED, 0)                         \
    X(of, GRAD_B_O, RESULT_GRADIENT, 0)                                                            \
    X(of, GRAD_BIAS_K, RESULT_GRADIENT | RESULT_SUM, 0)                                            \
    X(of, GRAD_BIAS_V, RESULT_GRADIENT | RESULT_SUM, 0)                                            \
    X(of, GRAD_DECAY, RESULT_GRADIENT | RESULT_SUM | RESULT_BOTH | RESULT_PACKED, 0)               \
    X(of, GRAD_BETA, RESULT_GRADIENT | RESULT_LINEAR, 0)                                           \
    X(of, GRAD_PAST_STATE, RESULT_GRADIENT | RESULT_LINEAR, 0)                                     \
    X(of, GRAD_GATE, RESULT_GRADIENT | RESULT_PACKED, 0)                                           \
    X(of, GRAD_W_G, RESULT_GRADIENT_WEIGHT, 0)                                                     \
    X(of, GRAD_B_G, RESULT_GRADIENT, 0)

#define RESULT_COUNT_ROW(of, name, ...) +1
static_assert((0 RESULT_TABLE(RESULT_COUNT_ROW, )) == ATTN_RESULT_COUNT,
              "each result has a row in RESULT_TABLE");
#undef RESULT_COUNT_ROW

/* The bits of all results that are of one of these kinds. */
#define RESULT_BIT_OF(of, name, kinds, ...) | (((kinds) & (of)) != 0 ? ATTN_WANT(name) : 0)
#define RESULTS_OF(kinds)                   (UINT64_C(0) RESULT_TABLE(RESULT_BIT_OF, kinds))

/* Results for which the scores of all keys are computed, those of forbidden keys, too. */
#define STAGES_OF_ALL_KEYS                  (RESULTS_OF(RESULT_STAGE) | ATTN_WANT(STATISTICS))

/* The results of softmax that are no gradients. */
#define RESULTS_FORWARD                                                                            \
    (((UINT64_C(1) << ATTN_RESULT_COUNT) - 1) & ~RESULTS_OF(RESULT_GRADIENT | RESULT_LINEAR))

/* Is a result of one of these kinds? */
static inline bool result_is(attn_result result, unsigned kinds) {
    return (RESULTS_OF(kinds) >> result & 1) != 0;
}

/* How many results are of a kind. */
enum {
    RESULT_COPIES = __builtin_popcountll(RESULTS_OF(RESULT_COPY))
};

/* Returns how many results of a kind come before this one. */
static inline size_t result_place(attn_result result, unsigned kind) {
    return (size_t)__builtin_popcountll(RESULTS_OF(kind) & ((UINT64_C(1) << result) - 1));
}

/* Returns the result that has place `which` among those of Q, K and V, or of X and the contexts.
 * `first` is that of Q or X. */
static inline attn_result result_after(attn_result first, int which) {
    return (attn_result)((int)first + which);
}
static_assert(ATTN_RESULT_GRAD_V == ATTN_RESULT_GRAD_Q + 2 &&
                  ATTN_RESULT_GRAD_VALUE_CONTEXT == ATTN_RESULT_GRAD_X + 2,
              "such results follow one another");

/* Returns 0 for a result of Q, 1 for one of K, and 2 for one of V. */
static inline int result_operand(attn_result result) {
    assert(result_is(result, RESULT_OF_Q | RESULT_OF_K | RESULT_OF_V));
    return result_is(result, RESULT_OF_K) + 2 * result_is(result, RESULT_OF_V);
}

#endif
