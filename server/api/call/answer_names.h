/*
 * answer_names.h - the names that "return" knows, and the results of the library that each stands
 * for.
 *
 * To add a result: add a row to ANSWER_MAP. A result with a form of its own also needs a case in
 * add_result() and in answer_describe() of answer.c; one whose numbers are no rows, and which
 * the explorer shows, has a place in worker.js. Add it to openapi.yaml (then make docs), which
 * tests/api/check_openapi.py compares with the map, and give tests/data/answers.txt a row. A form
 * of its own is in tests/openapi/exact.yaml. If it may be null, test_extremes.c lists it.
 */
#ifndef API_ANSWER_NAMES_H
#define API_ANSWER_NAMES_H

#include <attention.h>
#include <string.h>

/* Properties of results that a comparison asks for. A result without them is rows of numbers. */
enum answer_form {
    ANSWER_SINGLE = 1 << 0, /* one number for each position or each head */
    ANSWER_SCORES_OF_KEYS = 1 << 1,
    ANSWER_MASKED = 1 << 2, /* a mask may make them -Infinity, or large and negative */
};

/* One row for each name: X(NAME, text, the greatest rank of its results, its bits of enum
 * answer_form, whether it has a part for each head if the heads have projections of their own, then
 * whether it is a result of /attention, of calls with projections, of stored layers and of
 * /linear-attention, and the bits of its results in attn_options.results). The library has no
 * result COMPARISON. The order of the rows is that in which messages list the names; nothing else
 * follows from it. */
#define ANSWER_MAP(X)                                                                              \
    X(OUTPUT, "output", 4, 0, 0, 1, 1, 1, 1, ATTN_WANT(OUTPUT))                                    \
    X(WEIGHTS, "weights", 4, 0, 0, 1, 1, 1, 1, ATTN_WANT(WEIGHTS))                                 \
    X(PRESENT_STATE, "present_state", 4, 0, 0, 0, 0, 0, 1, ATTN_WANT(PRESENT_STATE))               \
    X(STATES, "states", 5, 0, 0, 0, 0, 0, 1, ATTN_WANT(STATES))                                    \
    X(DECAYS, "decays", 4, ANSWER_SINGLE, 0, 0, 0, 0, 1, ATTN_WANT(DECAYS))                        \
    X(GRAD_BETA, "grad_beta", 3, ANSWER_SINGLE, 0, 0, 0, 0, 1, ATTN_WANT(GRAD_BETA))               \
    X(GRAD_PAST_STATE, "grad_past_state", 4, 0, 0, 0, 0, 0, 1, ATTN_WANT(GRAD_PAST_STATE))         \
    X(SCORES, "scores", 4, ANSWER_SCORES_OF_KEYS, 0, 1, 1, 1, 0, ATTN_WANT(SCORES))                \
    X(SCALED_SCORES, "scaled_scores", 4, ANSWER_SCORES_OF_KEYS, 0, 1, 1, 1, 0,                     \
      ATTN_WANT(SCALED_SCORES))                                                                    \
    X(MASKED_SCORES, "masked_scores", 4, ANSWER_SCORES_OF_KEYS | ANSWER_MASKED, 0, 1, 1, 1, 0,     \
      ATTN_WANT(MASKED_SCORES))                                                                    \
    X(LSE, "lse", 3, ANSWER_SINGLE | ANSWER_MASKED, 0, 1, 1, 1, 0, ATTN_WANT(LSE))                 \
    X(STATISTICS, "statistics", 0, 0, 0, 1, 1, 1, 0, ATTN_WANT(STATISTICS))                        \
    X(ENTROPY, "entropy", 3, ANSWER_SINGLE, 0, 1, 1, 1, 0, ATTN_WANT(ENTROPY))                     \
    X(TOP_K, "top_k", 4, 0, 0, 1, 1, 1, 0, ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS))    \
    X(COMPARISON, "comparison", 0, 0, 0, 1, 1, 1, 1, 0)                                            \
    X(PRESENT_K, "present_K", 4, 0, 1, 1, 1, 1, 0, ATTN_WANT(PRESENT_K))                           \
    X(PRESENT_V, "present_V", 4, 0, 1, 1, 1, 1, 0, ATTN_WANT(PRESENT_V))                           \
    X(GRAD_Q, "grad_Q", 4, 0, 1, 1, 1, 1, 1, ATTN_WANT(GRAD_Q))                                    \
    X(GRAD_K, "grad_K", 4, 0, 1, 1, 1, 1, 1, ATTN_WANT(GRAD_K))                                    \
    X(GRAD_V, "grad_V", 4, 0, 1, 1, 1, 1, 1, ATTN_WANT(GRAD_V))                                    \
    X(GRAD_X, "grad_X", 4, 0, 0, 1, 1, 1, 0, ATTN_WANT(GRAD_X))                                    \
    X(GRAD_PAST_K, "grad_past_K", 4, 0, 0, 1, 1, 1, 0, ATTN_WANT(GRAD_PAST_K))                     \
    X(GRAD_PAST_V, "grad_past_V", 4, 0, 0, 1, 1, 1, 0, ATTN_WANT(GRAD_PAST_V))                     \
    X(GRAD_BIAS, "grad_bias", 4, 0, 0, 1, 1, 1, 0, ATTN_WANT(GRAD_BIAS))                           \
    X(GRAD_SINK, "grad_sink", 1, ANSWER_SINGLE, 0, 1, 1, 1, 0, ATTN_WANT(GRAD_SINK))               \
    X(GRAD_ALIBI, "grad_alibi", 1, ANSWER_SINGLE, 0, 1, 1, 1, 0, ATTN_WANT(GRAD_ALIBI))            \
    X(GRAD_NORM_Q, "grad_norm_Q", 1, 0, 0, 1, 1, 1, 0, ATTN_WANT(GRAD_NORM_Q))                     \
    X(GRAD_NORM_K, "grad_norm_K", 1, 0, 0, 1, 1, 1, 0, ATTN_WANT(GRAD_NORM_K))                     \
    X(GRAD_GATE, "grad_gate", 4, 0, 0, 1, 1, 0, 0, ATTN_WANT(GRAD_GATE))                           \
    X(GRAD_NORM_V, "grad_norm_V", 1, 0, 0, 1, 1, 1, 0, ATTN_WANT(GRAD_NORM_V))                     \
    X(GRAD_B_Q, "grad_b_Q", 2, 0, 1, 1, 1, 0, 0, ATTN_WANT(GRAD_B_Q))                              \
    X(GRAD_B_K, "grad_b_K", 2, 0, 1, 1, 1, 0, 0, ATTN_WANT(GRAD_B_K))                              \
    X(GRAD_B_V, "grad_b_V", 2, 0, 1, 1, 1, 0, 0, ATTN_WANT(GRAD_B_V))                              \
    X(GRAD_DECAY, "grad_decay", 4, ANSWER_SINGLE, 0, 1, 1, 0, 1, ATTN_WANT(GRAD_DECAY))            \
    X(Q, "Q", 4, 0, 1, 0, 1, 1, 0, ATTN_WANT(Q))                                                   \
    X(K, "K", 4, 0, 1, 0, 1, 1, 0, ATTN_WANT(K))                                                   \
    X(V, "V", 4, 0, 1, 0, 1, 1, 0, ATTN_WANT(V))                                                   \
    X(GRAD_CONTEXT, "grad_context", 3, 0, 0, 0, 1, 1, 0, ATTN_WANT(GRAD_CONTEXT))                  \
    X(GRAD_VALUE_CONTEXT, "grad_value_context", 3, 0, 0, 0, 1, 1, 0,                               \
      ATTN_WANT(GRAD_VALUE_CONTEXT))                                                               \
    X(GRAD_W_Q, "grad_W_Q", 3, 0, 1, 0, 1, 0, 0, ATTN_WANT(GRAD_W_Q))                              \
    X(GRAD_W_K, "grad_W_K", 3, 0, 1, 0, 1, 0, 0, ATTN_WANT(GRAD_W_K))                              \
    X(GRAD_W_V, "grad_W_V", 3, 0, 1, 0, 1, 0, 0, ATTN_WANT(GRAD_W_V))                              \
    X(GRAD_W_O, "grad_W_O", 2, 0, 0, 0, 1, 0, 0, ATTN_WANT(GRAD_W_O))                              \
    X(GRAD_B_O, "grad_b_O", 1, 0, 0, 0, 1, 0, 0, ATTN_WANT(GRAD_B_O))                              \
    X(GRAD_W_G, "grad_W_G", 3, 0, 0, 0, 1, 0, 0, ATTN_WANT(GRAD_W_G))                              \
    X(GRAD_B_G, "grad_b_G", 2, 0, 0, 0, 1, 0, 0, ATTN_WANT(GRAD_B_G))                              \
    X(GRAD_BIAS_K, "grad_bias_K", 2, 0, 0, 0, 1, 0, 0, ATTN_WANT(GRAD_BIAS_K))                     \
    X(GRAD_BIAS_V, "grad_bias_V", 2, 0, 0, 0, 1, 0, 0, ATTN_WANT(GRAD_BIAS_V))

enum answer_name {
#define ANSWER_ENUM(name, ...) ANSWER_##name,
    ANSWER_MAP(ANSWER_ENUM)
#undef ANSWER_ENUM
    ANSWER_COUNT
};

/* How many names each list has. */
#define ANSWER_IN_ATTENTION(name, text, rank, forms, parts, attention, ...) +attention
#define ANSWER_IN_PROJECTIONS(name, text, rank, forms, parts, attention, projections, ...)         \
    +projections
#define ANSWER_IN_LAYER(name, text, rank, forms, parts, a, p, layer, ...)           +layer
#define ANSWER_IN_LINEAR(name, text, rank, forms, parts, a, p, layer, linear, bits) +linear
enum {
    ANSWER_OF_ATTENTION = 0 ANSWER_MAP(ANSWER_IN_ATTENTION),
    ANSWER_OF_PROJECTIONS = 0 ANSWER_MAP(ANSWER_IN_PROJECTIONS),
    ANSWER_OF_LAYER = 0 ANSWER_MAP(ANSWER_IN_LAYER),
    ANSWER_OF_LINEAR = 0 ANSWER_MAP(ANSWER_IN_LINEAR)
};

extern const char *const answer_names[ANSWER_COUNT];
extern const char *const answer_attention_names[ANSWER_OF_ATTENTION];
extern const char *const answer_projections_names[ANSWER_OF_PROJECTIONS];
extern const char *const answer_layer_names[ANSWER_OF_LAYER];
extern const char *const answer_linear_names[ANSWER_OF_LINEAR];
extern const unsigned answer_at[ANSWER_COUNT]; /* bits FIELDS_AT_* of those that have the name */
extern const uint64_t answer_bits[ANSWER_COUNT];
extern const int answer_ranks[ANSWER_COUNT];
extern const bool answer_has_parts[ANSWER_COUNT]; /* has it a part for each head, see the map? */
extern const unsigned answer_forms[ANSWER_COUNT]; /* bits of enum answer_form */

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
    return strncmp(answer_names[which], "grad_", 5) == 0;
}

#endif
