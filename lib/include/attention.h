/*
 * attention.h - the public interface of libattention.
 *
 * The library computes scaled dot-product attention, alone or with its projections (multi-head
 * attention), in float32 and float64. Every stage of the computation can be a result:
 *
 *     scores        = Q K^T
 *     scaled_scores = scale * scores, then softcap * tanh(x / softcap) if softcap > 0
 *     masked_scores = scaled_scores + bias + ALiBi, then -inf where mask, causal, window, lengths
 *                     or key_padding forbid the key
 *     weights       = softmax of masked_scores over the keys
 *     output        = weights V, times the sigmoid of a gate if one is given
 *
 * attn_normalization says what the weights are without softmax. attn_plan_linear() has attention
 * that keeps a state in place of a list of keys.
 *
 * Sources: Vaswani et al. 2017 (arXiv 1706.03762, section 3.2) for the attention and the heads; the
 * ONNX operator Attention (opset 23 to 25) for the order of the stages, past keys and windows;
 * Press et al. 2021 (arXiv 2108.12409) for ALiBi; Ainslie et al. 2023 (arXiv 2305.13245) for
 * grouped heads; Su et al. 2021 (arXiv 2104.09864) and the ONNX operator RotaryEmbedding (opset 23)
 * for rotary embedding. attn_linear has those of linear attention.
 *
 * A call has four steps. attn_plan_attention(), attn_plan_multihead(), attn_plan_linear() or
 * attn_plan_softmax() checks the call and makes a plan, which has the shape of each result.
 * attn_plan_bind() or attn_plan_bind_all() says where the results go. attn_plan_run() computes
 * them. attn_plan_free() frees the plan. The library owns no thread, prints nothing and keeps no
 * state between calls, so any number of plans may run at the same time.
 *
 * Ownership: a plan borrows the data of its input tensors, and the buffers that are bound to its
 * results, until it is freed. The numbers of the inputs may change until attn_plan_begin() or
 * attn_plan_run(), so they may be zeros while the plan is made.
 */
#ifndef ATTENTION_H
#define ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

#define ATTN_VERSION_MAJOR 1
#define ATTN_VERSION_MINOR 0
#define ATTN_VERSION_PATCH 0
#define ATTN_VERSION       "1.0.0-rc.2"

/* -------------------------------------------------------------------------------------- errors */

#define ATTN_STATUS_MAP(X)                                                                         \
    X(OK, 0, "success")                                                                            \
    X(INVALID_ARGUMENT, 1, "invalid argument")                                                     \
    X(SHAPE_MISMATCH, 2, "shapes do not agree")                                                    \
    X(TOO_LARGE, 3, "a size exceeds what can be addressed")                                        \
    X(NOT_FINITE, 4, "a result is not finite")                                                     \
    X(NO_MEMORY, 5, "out of memory")

typedef enum attn_status {
#define ATTN_STATUS_ENUM(name, code, text) ATTN_##name = code,
    ATTN_STATUS_MAP(ATTN_STATUS_ENUM)
#undef ATTN_STATUS_ENUM
} attn_status;

/* An error: `argument` names the argument at fault, such as "K", "past_K", "W_Q", "mask" or
 * "heads/2/W_K" (W_K of the third head). With ATTN_NOT_FINITE it names the stage, such as "scores",
 * the gradient, or the input that the compute_dtype cannot hold. It is empty if no argument is at
 * fault. `message` states the rule and the wrong values. `transposed` says that the transpose of
 * this weight would fit: perhaps the weights have the other attn_layout. */
typedef struct attn_error {
    attn_status status;
    char argument[40];
    char message[256];
    bool transposed;
} attn_error;

/* Returns the text of a status, which is static and never NULL. */
ATTN_API const char *attn_status_text(attn_status status);

/* ------------------------------------------------------------------------------------- tensors */

typedef enum attn_dtype {
    ATTN_FLOAT32 = 0,
    ATTN_FLOAT64 = 1,
    ATTN_BOOL = 2,
    ATTN_INT64 = 3
} attn_dtype;

enum {
    ATTN_MAX_RANK = 8,
    /* An alignment in bytes. A scratch and the buffer of attn_plan_bind_all() begin at a multiple
     * of it. Calls whose inputs and results do so, too, are faster. */
    ATTN_ALIGNMENT = 64
};

/* A dense row-major array that the library reads. A bool is a byte: 0 is false, and any other value
 * is true. */
typedef struct attn_tensor {
    const void *data;
    attn_dtype dtype;
    int rank;
    size_t shape[ATTN_MAX_RANK];
} attn_tensor;

/* Returns the bytes of one element, or 0 if the value is not a dtype. */
ATTN_API size_t attn_dtype_size(attn_dtype dtype);

/* Computes the number of elements of a tensor, or its bytes. Both functions return false, and write
 * nothing, if the number does not fit a size_t. */
ATTN_API bool attn_tensor_count(const attn_tensor *tensor, size_t *count);
ATTN_API bool attn_tensor_bytes(const attn_tensor *tensor, size_t *bytes);

/* ------------------------------------------------------------------------------------- results */

/*
 * All results that a call can have. B is the batch size, H the number of heads, n the number of
 * queries, and m the number of keys, past ones included. The shapes are those of a call of rank 4;
 * an axis that the call does not have is left out.
 *   output              (B,H,n,d_v); packed or projected: (B,n,H*d_v), or (B,n,d_out) after W_O
 *   weights             (B,H,n,m), or (B,n,m) with ATTN_FLAG_MEAN_OVER_HEADS
 *   scores, scaled_scores, masked_scores   (B,H,n,m); masked_scores are -inf for forbidden keys
 *   lse                 (B,H,n), the natural logarithm of the denominator of the softmax. If all
 *                       keys are forbidden, it is the sink's logit, or -inf without a sink
 *   entropy             (B,H,n), -sum w ln w over the weights w of a query, in nats
 *   top_k_indices       (B,H,n,k) int64, the keys of the k largest weights, the largest weight
 *                       first; of equal weights, the smaller index first
 *   top_k_weights       (B,H,n,k), the weights of these keys
 *   statistics          (4) float64, the population variances of Q, K, scores and scaled_scores
 *   present_state       (B,H_s,d,d_v), the state of linear attention after the last position
 *   states              (B,H_s,n,d,d_v), the state after each position
 *   decays              exp(decay): (B,H_s,n) or (B,H_s,n,d); packed (B,n,H_s) or (B,n,H_s*d)
 *   present_K, present_V   past and new rows together, in the form of K and V
 *   Q, K, V             the projected matrices, (B,H,n,d), (B,H_kv,m,d) and (B,H_kv,m,d_v), without
 *                       the past rows, as they are multiplied: after norms and rotary. If the
 *                       heads have projections of their own, these results, present_K and
 *                       present_V have one part for each head (see attn_plan_parts)
 *   grad_*              the gradients of a loss by inputs, in the shapes of these, see
 *                       attn_upstream. grad_Q, grad_K and grad_V of a call with projections are
 *                       those by the results Q, K and V. If the heads have projections of their
 *                       own, these three and the gradients of weights and their biases have one
 *                       part for each head
 */
#define ATTN_RESULT_MAP(X)                                                                         \
    X(OUTPUT, "output")                                                                            \
    X(WEIGHTS, "weights")                                                                          \
    X(SCORES, "scores")                                                                            \
    X(SCALED_SCORES, "scaled_scores")                                                              \
    X(MASKED_SCORES, "masked_scores")                                                              \
    X(LSE, "lse")                                                                                  \
    X(STATISTICS, "statistics")                                                                    \
    X(ENTROPY, "entropy")                                                                          \
    X(TOP_K_INDICES, "top_k_indices")                                                              \
    X(TOP_K_WEIGHTS, "top_k_weights")                                                              \
    X(PRESENT_STATE, "present_state")                                                              \
    X(STATES, "states")                                                                            \
    X(DECAYS, "decays")                                                                            \
    X(PRESENT_K, "present_K")                                                                      \
    X(PRESENT_V, "present_V")                                                                      \
    X(Q, "Q")                                                                                      \
    X(K, "K")                                                                                      \
    X(V, "V")                                                                                      \
    X(GRAD_Q, "grad_Q")                                                                            \
    X(GRAD_K, "grad_K")                                                                            \
    X(GRAD_V, "grad_V")                                                                            \
    X(GRAD_PAST_K, "grad_past_K")                                                                  \
    X(GRAD_PAST_V, "grad_past_V")                                                                  \
    X(GRAD_BIAS, "grad_bias")                                                                      \
    X(GRAD_SINK, "grad_sink")                                                                      \
    X(GRAD_ALIBI, "grad_alibi")                                                                    \
    X(GRAD_NORM_Q, "grad_norm_Q")                                                                  \
    X(GRAD_NORM_K, "grad_norm_K")                                                                  \
    X(GRAD_X, "grad_X")                                                                            \
    X(GRAD_CONTEXT, "grad_context")                                                                \
    X(GRAD_VALUE_CONTEXT, "grad_value_context")                                                    \
    X(GRAD_W_Q, "grad_W_Q")                                                                        \
    X(GRAD_W_K, "grad_W_K")                                                                        \
    X(GRAD_W_V, "grad_W_V")                                                                        \
    X(GRAD_W_O, "grad_W_O")                                                                        \
    X(GRAD_B_Q, "grad_b_Q")                                                                        \
    X(GRAD_B_K, "grad_b_K")                                                                        \
    X(GRAD_B_V, "grad_b_V")                                                                        \
    X(GRAD_B_O, "grad_b_O")                                                                        \
    X(GRAD_BIAS_K, "grad_bias_K")                                                                  \
    X(GRAD_BIAS_V, "grad_bias_V")                                                                  \
    X(GRAD_DECAY, "grad_decay")                                                                    \
    X(GRAD_BETA, "grad_beta")                                                                      \
    X(GRAD_PAST_STATE, "grad_past_state")                                                          \
    X(GRAD_GATE, "grad_gate")                                                                      \
    X(GRAD_W_G, "grad_W_G")                                                                        \
    X(GRAD_B_G, "grad_b_G")                                                                        \
    X(GRAD_NORM_V, "grad_norm_V")

typedef enum attn_result {
#define ATTN_RESULT_ENUM(name, text) ATTN_RESULT_##name,
    ATTN_RESULT_MAP(ATTN_RESULT_ENUM)
#undef ATTN_RESULT_ENUM
    ATTN_RESULT_COUNT
} attn_result;

/* The bit of a result in attn_options.results. */
#define ATTN_WANT(name) (UINT64_C(1) << ATTN_RESULT_##name)

/* Returns the name of a result as it is in ATTN_RESULT_MAP, or NULL if the value is not a
 * result. */
ATTN_API const char *attn_result_name(attn_result result);

/* A part of a result: a dense row-major array as attn_tensor is, but its data may be written. */
typedef struct attn_result_tensor {
    void *data;
    attn_dtype dtype;
    int rank;
    size_t shape[ATTN_MAX_RANK];
} attn_result_tensor;

/* Returns a part of a result as a tensor with the same data, for attn_tensor_bytes() or as an input
 * of another plan. */
static inline attn_tensor attn_as_tensor(const attn_result_tensor *part) {
    attn_tensor tensor;
    tensor.data = part->data;
    tensor.dtype = part->dtype;
    tensor.rank = part->rank;
    for (int axis = 0; axis < ATTN_MAX_RANK; axis++) {
        tensor.shape[axis] = part->shape[axis];
    }
    return tensor;
}

/* ------------------------------------------------------------------------------------- options */

/* How the masked scores of a row become its weights. A forbidden key always has the weight 0. */
typedef enum attn_normalization {
    ATTN_SOFTMAX = 0,
    ATTN_UNNORMALIZED = 1, /* weights = masked scores */
    /* weights = 1 / (1 + exp(-(masked score + sigmoid_bias))). Ramapuram et al. 2024, arXiv
     * 2409.04431, set sigmoid_bias to the negative natural logarithm of the number of keys. */
    ATTN_SIGMOID = 2,
    /* weight of key j = s_j times the product of 1 - s_k over all keys k > j that the query may
     * attend to, where s = 1 / (1 + exp(-masked score)): a stick that is broken from the last key
     * backwards (Tan et al. 2024, arXiv 2410.17980). The weights sum to at most 1. */
    ATTN_STICK_BREAKING = 3
} attn_normalization;

/* A type of 16 bits whose rounding is imitated. The matrices are float32, and so are the results,
 * but each is rounded to this type where PyTorch's math path rounds it: inputs; Q, K and V after
 * projections or biases, and after norms and rotary; Q and K once more after each is multiplied by
 * the root of the scale; scaled_scores, masked_scores, weights, and the output, before W_O and
 * after it. The result scores is that of Q and K before they are scaled. lse, entropy and
 * statistics are not rounded. Between these places everything is computed in float32 or in double.
 * lib/README.md has the formulas. */
typedef enum attn_compute_dtype {
    ATTN_COMPUTE_AS_GIVEN = 0,
    ATTN_COMPUTE_FLOAT16 = 1,
    ATTN_COMPUTE_BFLOAT16 = 2
} attn_compute_dtype;

enum {
    ATTN_FLAG_SCALE = 1u << 0,  /* `scale` is used, even if it is 0; otherwise 1/sqrt(d) */
    ATTN_FLAG_WINDOW = 1u << 1, /* `window` is used */
    ATTN_FLAG_ALIBI = 1u << 2,  /* ALiBi with the slopes of the paper for this number of heads */
    ATTN_FLAG_MEAN_OVER_HEADS = 1u << 3, /* `weights` is the mean over the heads */
    ATTN_FLAG_BOTTOM_RIGHT = 1u << 4,    /* the last query stands at the last valid key */
};

/* How the frequencies of rotary embedding are changed for more positions than a model was trained
 * with. The names and formulas are those of Hugging Face transformers (`rope_scaling`). */
typedef enum attn_rotary_scaling {
    ATTN_ROTARY_UNSCALED = 0,
    ATTN_ROTARY_LINEAR = 1,   /* all frequencies are divided by `factor` */
    ATTN_ROTARY_DYNAMIC = 2,  /* the base grows with the number of positions (NTK) */
    ATTN_ROTARY_YARN = 3,     /* Peng et al. 2023, arXiv 2309.00071 */
    ATTN_ROTARY_LONGROPE = 4, /* Ding et al. 2024, arXiv 2402.13753 */
    ATTN_ROTARY_LLAMA3 = 5,   /* low frequencies are divided by `factor` */
    /* Only the first of the columns / 2 pairs turn: partial_factor says which part of them,
     * rounded down. All frequencies are divided by `factor`. Gemma 4 has it. */
    ATTN_ROTARY_PROPORTIONAL = 6
} attn_rotary_scaling;

/*
 * Rotary embedding rotates pairs of columns of each row of Q, and of each new row of K, in every
 * head. Pair k of a row at position p becomes (a cos - b sin, b cos + a sin) of the angle p * f(k),
 * where f(k) = base^(-2k / columns) before scaling. Rows of past_K are rotated already, and so are
 * all rows of present_K. Zero is the default of each field.
 *
 * Without `positions`, query i is at offset + i + s (see attn_options) and row j of K is at
 * offset + p + j, where p is the number of past keys. So a query and a key that stand at the same
 * place are rotated by the same angle.
 */
typedef struct attn_rotary {
    size_t columns;   /* the first columns of each head are rotated: an even number; 0 = all */
    bool interleaved; /* a pair is columns 2k and 2k + 1; otherwise it is k and k + columns / 2 */
    int64_t offset;   /* added to all positions that `positions` does not give; >= 0 */
    double base;      /* > 0; 0 = 10000 */
    /* (n) or (B,n), in float64 or in Q's dtype, which may round large positions: the position of
     * query i and of row i of K, so K has n new rows. The numbers are finite. */
    const attn_tensor *positions;
    /* Tables that replace base and scaling: (P, columns / 2) or (B, P, columns / 2), in Q's dtype.
     * Row p belongs to position p, so positions are whole numbers below P. Both or neither. */
    const attn_tensor *cos, *sin;

    attn_rotary_scaling scaling;
    /* >= 1. UNSCALED ignores it, PROPORTIONAL and LONGROPE may lack it, and the others need it. */
    double factor;
    /* The positions of the training; DYNAMIC, YARN, LLAMA3 and LONGROPE need it. */
    double original_positions;
    /* cos and sin are multiplied by it; 0 = what YARN and LONGROPE compute, 1 for the others. */
    double attention_factor;
    union {
        double low_factor;     /* of LLAMA3: low_freq_factor */
        double partial_factor; /* of PROPORTIONAL: more than 0 and at most 1; 0 = 1 */
    };
    double high_factor;          /* of LLAMA3: high_freq_factor */
    double beta_fast, beta_slow; /* of YARN; 0 = 32 and 1 */
    double mscale, mscale_all;   /* of YARN, for attention_factor; 0 = not given */
    bool untruncated;            /* YARN does not round the range of its ramp */
    /* Divisors of the frequencies, one for each pair. LONGROPE takes the short ones up to
     * original_positions, and the long ones beyond. */
    const double *short_factors, *long_factors;
    size_t short_count, long_count; /* numbers in these lists */
} attn_rotary;

/*
 * The gradients of a loss by results of a call, from which the results grad_* follow by the chain
 * rule. Each has the shape and the dtype of its result, also if that is not wanted: weights have
 * the shape (B,n,m) with ATTN_FLAG_MEAN_OVER_HEADS. The axes after one of size 0 may be left out.
 * NULL stands for zeros, and one of them is given. Linear attention has `output` and `state`, which
 * is that by present_state, and attention has the others. They are borrowed as inputs are. With P =
 * weights, D = output, and the formulas of attention.h (Dao 2023, arXiv 2307.08691, appendix B;
 * lib/README.md has all of them):
 *     grad_V = P^T D,  dP = D V^T + weights,  delta = the sum over the keys of P dP
 *     the gradient of masked_scores is P (dP - delta + lse), and 0 where a key is forbidden
 * Gradients of inputs that are broadcast, or shared by heads or batch items, are sums. The caller
 * makes sure that the numbers are finite. Only those of queries that may attend to no key, and the
 * weights of forbidden keys, may be NaN, because they add nothing to a gradient. There are two
 * exceptions: lse goes to the gradient of a sink, and output goes to that of b_O if there is a W_O.
 */
typedef struct attn_upstream {
    const attn_tensor *output, *lse, *weights;
    const attn_tensor *state; /* by present_state */
} attn_upstream;

enum {
    ATTN_MAX_SEQUENCES = 65536 /* the most sequences of a call */
};

/*
 * Packed sequences: the rows of Q, and those of K and V, are the rows of `count` sequences, one
 * after the other. Each sequence is a call of its own: its queries attend to its keys only, and
 * positions begin anew. A length may be 0: queries without keys get zeros, as if all keys were
 * forbidden. At most 1024 sequences differ in their lengths, and fewer with more than 64 heads.
 */
typedef struct attn_sequences {
    size_t count;
    const size_t *queries; /* the rows of each sequence in Q */
    const size_t *keys;    /* its rows in K and V; NULL = as many as in Q */
} attn_sequences;

/*
 * The rounding errors of a kernel that computes with fewer digits, drawn at random. A caller who
 * runs a plan with several seeds sees how far such errors move each result. Inputs have no errors
 * here: the caller gives them those. A finite masked score is at least -2^40. Zero is no error.
 */
typedef struct attn_rounding {
    uint64_t seed;
    /* The largest relative error of one rounding of a score, which is rounded after scale and
     * softcap, and once more after bias, ALiBi and decays are added. */
    double scores;
    /* The same for a weight, the gradient of a score, and a number of the output, which `delta` is
     * made of. */
    double products;
    double least_weight, least_gradient; /* their largest absolute errors */
    double sum;         /* the largest relative error of one addition, over keys and over columns */
    double least_score; /* some kernels make a score that is a little smaller this one; 0: none */
    /* The largest relative error of `delta` as a whole. Only kernels that cut digits off, and do
     * not round, have it. */
    double delta;
} attn_rounding;

/*
 * The options of a call. Zero is the default of each field, so `attn_options o = {0}` is valid and
 * asks for the output only. Causal, window, ALiBi and rotary use the position of a query: query i
 * is at i + s, where s is the number of past keys. With ATTN_FLAG_BOTTOM_RIGHT, s is L - n, where L
 * is the number of valid keys of the batch item: its number in `lengths`, or m without them.
 * Queries at positions below 0 are possible then.
 */
typedef struct attn_options {
    unsigned flags;   /* bits ATTN_FLAG_*; unknown bits are refused */
    uint64_t results; /* bits ATTN_WANT(...); 0 = output */
    bool causal;      /* query i attends to keys j <= i + s only */
    attn_normalization normalization;
    double scale; /* finite; 0 without ATTN_FLAG_SCALE */
    /* The scale of each head in place of `scale`, finite; borrowed while the plan is made. */
    const double *scales;
    size_t scales_count; /* numbers in `scales`: 0 = none, or H, or the heads of Q */
    double softcap;      /* > 0, or 0 for none */
    double sigmoid_bias; /* finite; for ATTN_SIGMOID only */
    /* left and right: i+s-left <= j <= i+s+right; -1 = no limit on that side. Zeros without
     * ATTN_FLAG_WINDOW. */
    int64_t window[2];
    /* attn_plan_attention: Q, K and V are packed as (n,heads*d); 0 = they are not packed.
     * attn_plan_multihead: the number of heads into which 2-D weights are split; 0 = one head.
     * kv_heads: 0 = as many as heads; query head h uses key head h / (heads / kv_heads). */
    size_t heads, kv_heads;
    size_t top_k;            /* for top_k_*: k is the smaller of top_k and m; 0 = 5 */
    const attn_tensor *mask; /* ATTN_BOOL, broadcast to (B,H,n,m), also (m); true = may attend */
    /* The same in Q's dtype; added to scaled_scores, and -inf forbids. The caller makes sure that
     * no number is NaN or +inf: the library does not look for them. They make the call fail with
     * ATTN_NOT_FINITE only if some query may attend to their key by all other rules. */
    const attn_tensor *bias;
    /* The logarithms of forget gates, each <= 0, in Q's dtype (Lin et al. 2025, arXiv 2503.02130):
     * (H,m), or (m) without an axis of heads, with the batch axes of the call, or none or 1 in
     * each, before these. H may be 1. If Q, K and V are packed, or (n,H,d) with sequences: (m,H) or
     * (B,m,H). An axis of 1 may follow, and must if m is H and not 1. The decays of the keys after
     * j, up to the position of the query, are added to the masked score of key j. -inf is a gate of
     * 0: what lies before that key is forbidden. It needs `causal`. attn_linear says what it is
     * there. */
    const attn_tensor *decay;
    const attn_tensor *alibi_slopes; /* (H), in Q's dtype: adds -slope * |i + s - j| */
    const attn_tensor *sink; /* (H), in Q's dtype: logits that are added to the denominator only */
    const size_t *lengths;   /* (B): the valid keys of each batch item, past ones included */
    size_t lengths_count;    /* numbers in `lengths`; 0 = all keys are valid */
    /* ATTN_BOOL, (B,m), or (1,m) or (m) for all batch items: true = the key exists, past ones
     * included. What is false is forbidden to every query, as by a mask. */
    const attn_tensor *key_padding;
    const attn_tensor *past_k, *past_v; /* rows before those of K and V, in their form; or NULL */
    /* For attn_plan_attention() only: (H*d) or (H,d), (H_kv*d) or (H_kv,d), and (H_kv*d_v) or
     * (H_kv,d_v), in Q's dtype, or NULL. They are added to each row of Q, K and V in every head,
     * before a norm and rotary embedding. Rows of past_K and past_V do not change. */
    const attn_tensor *b_q, *b_k, *b_v;
    /* (d), in Q's dtype, or NULL: each row of Q, or of new keys, becomes w * x / sqrt(mean(x^2) +
     * norm_epsilon) in every head, before rotary (RMSNorm: Zhang and Sennrich 2019, arXiv
     * 1910.07467). With (H*d), or (H_kv*d) for norm_k, the mean is that of all heads together, as
     * in OLMo 2 (arXiv 2501.00656). */
    const attn_tensor *norm_q, *norm_k;
    double norm_epsilon;       /* of all norms; >= 0 and finite; 0 = 1e-6, and without a norm */
    const attn_rotary *rotary; /* borrowed while the plan is made; NULL = none */
    /* Rounds as a type of 16 bits does. It needs float32 and rows of at most 32768 keys and 4096
     * columns, and no gradient. A number that the type cannot hold is ATTN_NOT_FINITE. */
    attn_compute_dtype compute_dtype;
    /* Borrowed while the plan is made; NULL = none. With it, the results name at least one grad_*,
     * each by an input that the call has. Prepacked weights have no gradients. No head has more
     * than 16384 columns then. */
    const attn_upstream *upstream;
    const attn_sequences *sequences; /* borrowed while the plan is made; NULL = the rows are one */
    /* Borrowed until the plan is freed, and read by each run; NULL = none. Linear attention has no
     * scores, so it changes nothing there. */
    const attn_rounding *rounding;
    /* The output gate, in Q's dtype (Qiu et al. 2025, arXiv 2505.06708), or NULL: the outputs of
     * the heads are multiplied by 1 / (1 + exp(-gate)) before W_O takes them, and nothing else
     * changes. It has the shape of these outputs, (B,H,n,d_v) or, if they are packed or projected,
     * (B,n,H*d_v); or one column for each head there: (B,H,n,1) or (B,n,H). The batch axes may be
     * left out, or 1 in each. With sequences and an axis of heads: (n,H,d_v) or (n,H,1). With a
     * compute_dtype, the factor and the product are rounded. */
    const attn_tensor *gate;
    /* attn_plan_multihead() takes these in place of `gate`: the gate is X W_G + b_G, (B,n,H*d_v) or
     * (B,n,H). The weights are in the layout of the others, for all heads together, also with
     * per_head: (d_model,H*d_v) or (d_model,H), or in 3-D (H,d_model,d_v) or (H,d_model,1). */
    const attn_tensor *w_g, *b_g;
    /* (d_v) or (H_v*d_v), in Q's dtype, or NULL: normalises the rows of V as norm_q does those of
     * Q. The weights of Gemma 4 are 1. */
    const attn_tensor *norm_v;
    /* Zeros. An option of a later version takes the first of these words. So the struct keeps its
     * size, and a library that does not know the option refuses it. */
    uint64_t reserved[11];
} attn_options;

/* ------------------------------------------------------------------------------------ planning */

typedef struct attn_plan attn_plan;

/*
 * Makes a plan of attention over given Q, K and V. They have one dtype:
 *   Q (n,d), (H,n,d) or (B,H,n,d); K the same with H_k heads, m rows and d columns; V the same
 *   with H_v heads, m rows and d_v columns. H is a multiple of H_k and of H_v.
 * With options->heads they are packed:
 *   Q (n,H*d) or (B,n,H*d); K (m,H_kv*d) or (B,m,H_kv*d); V (m,H_kv*d_v) or (B,m,H_kv*d_v).
 * B stands for the axes of the batch, of which there are at most five. They are counted from the
 * right. All batch items share a matrix that lacks these axes, or has 1 in each of them: Q (n,d) is
 * that of all heads and batch items, and K (H_k,m,d) is that of all batch items. If Q has one head,
 * or no axis of heads, H is the larger one of H_k and H_v. Results have all axes of the call. Past
 * keys have the batch axes and the heads of K, and so has present_K; past values have those of V,
 * and so has present_V. A gradient has the shape of its input. n, m, each axis of B and the number
 * of past keys may be 0. A tensor without elements needs no data.
 * With options->sequences, Q, K and V have one rank and no batch axis, and their rows are those of
 * all sequences:
 *   Q (n,d), or (n,H*d) with options->heads, or (n,H,d); K and V in the same form.
 * The results are output, lse, entropy and gradients. output and gradients have the form of Q, K
 * and V; lse and entropy are (H,n). `positions` of rotary embedding has a number for each row.
 * Mask, bias, lengths, key_padding, past keys and the gradient of weights are not possible then.
 * The plan is returned owned and borrows the tensors' data. `options` may be NULL for the defaults,
 * and `error` may be NULL.
 * Errors: ATTN_INVALID_ARGUMENT, ATTN_SHAPE_MISMATCH, ATTN_TOO_LARGE, ATTN_NO_MEMORY; *plan is then
 * NULL.
 */
ATTN_API attn_status attn_plan_attention(attn_plan **plan, const attn_tensor *q,
                                         const attn_tensor *k, const attn_tensor *v,
                                         const attn_options *options, attn_error *error);

typedef enum attn_layout {
    ATTN_IN_OUT = 0, /* X W: weights (d_model,H*d) or, in 3-D, (H,d_model,d) */
    ATTN_OUT_IN = 1, /* X W^T as torch.nn.Linear: weights (H*d,d_model) or, in 3-D, (H,d,d_model) */
    ATTN_PREPACKED = 2, /* X W: weights (d_model,H*d) of attn_prepack(); not with per_head */
} attn_layout;

/* The projections of one head, or of all heads together. A bias is (H*d), or (H,d) beside 3-D
 * weights; NULL = no bias. */
typedef struct attn_projection {
    const attn_tensor *w_q, *w_k, *w_v;
    const attn_tensor *b_q, *b_k, *b_v;
} attn_projection;

typedef struct attn_multihead {
    const attn_tensor *x;       /* (n,d_model) or (B,n,d_model) */
    const attn_tensor *context; /* (m,d_context) or (B,m,d_context) for K and V; NULL = x */
    /* (m,d_value) or (B,m,d_value) for V alone, with as many rows as the context; NULL = context */
    const attn_tensor *value_context;
    /* Without per_head: one projection for all heads, with 3-D weights, or with 2-D weights that
     * options->heads splits. With per_head: one projection for each of `count` heads, with 2-D
     * weights that may have a different number of columns in each head. */
    const attn_projection *projections;
    size_t count; /* projections; 1 without per_head */
    bool per_head;
    attn_layout layout; /* the layout of all weights, W_O included */
    /* (H*d_v,d_out), or (d_out,H*d_v) with ATTN_OUT_IN, and (d_out); NULL = heads are concatenated
     * only */
    const attn_tensor *w_o, *b_o;
    /* Extra keys after all others: first one whose rows in K and V are bias_k and bias_v, then one
     * of zeros if zero_key is true. They are torch.nn.MultiheadAttention's bias_k, bias_v and
     * add_zero_attn. bias_k has the form of a b_K of all heads, and bias_v that of a b_V. An extra
     * key has no position: every query may attend to it, and mask, bias, lengths, key_padding,
     * causal and window are about the other keys only. Weights and stages have a column for it; K,
     * V, present_K and present_V have no row for it. It cannot be combined with ALiBi. */
    const attn_tensor *bias_k, *bias_v;
    bool zero_key;
} attn_multihead;

/* Makes a plan of attention with its projections: Q = X W_Q + b_Q, K = C W_K + b_K and
 * V = C W_V + b_V, where C is the context or X, or the value_context for V; then attention in each
 * head; then the heads are concatenated, multiplied by W_O, and b_O is added. past_k and past_v are
 * projected already: (p,d), (H_kv,p,d) or (B,H_kv,p,d), in the form of the result K; per_head does
 * not allow them.
 * Ownership and errors are those of attn_plan_attention(). */
ATTN_API attn_status attn_plan_multihead(attn_plan **plan, const attn_multihead *call,
                                         const attn_options *options, attn_error *error);

/* How the state of linear attention changes at a position, see attn_linear. */
typedef enum attn_update {
    /* ATTN_GATED if there is a decay, ATTN_DELTA if there is a beta, ATTN_GATED_DELTA if there are
     * both, and ATTN_LINEAR if there is neither. */
    ATTN_UPDATE_AS_GIVEN = 0,
    ATTN_LINEAR = 1,
    ATTN_GATED = 2,
    ATTN_DELTA = 3,
    ATTN_GATED_DELTA = 4
} attn_update;

/*
 * Attention without softmax. One state S (d,d_v) stands for all keys and values so far. At each
 * position, with its rows q, k, v, and with a = exp(decay):
 *
 *     S = a S                   with a decay: one number, or one for each row of S
 *     u = v                     ATTN_LINEAR, ATTN_GATED
 *     u = beta (v - S^T k)      ATTN_DELTA, ATTN_GATED_DELTA: with the S that was just decayed
 *     S = S + k u^T
 *     output = scale S^T q      so a position sees itself
 *
 * options->decay is the logarithm of the gate, at most 0; -inf forgets everything. It has the axes
 * of K, but with H_s heads: (B,H_s,n), or (B,H_s,n,d) for each row of S; packed (B,n,H_s) or
 * (B,n,H_s*d); sequences with an axis of heads (n,H_s) or (n,H_s,d). The batch axes may be 1 in
 * each, heads and n may be 1, and further axes of 1 may stand in front; but d numbers alone are not
 * for each row of S if there are d positions. If H_s is n, and not 1, then (n,H_s) and, beside
 * packed rows, (1,n,1) are refused, because the axes of heads and positions could be taken for each
 * other: (n,H_s,1), (n,H_s*d), (n,1) and (1,H_s) are not. (H_s) is one number for each head, if the
 * call has heads, and not as many heads as positions.
 *
 * The implied weights are those numbers A for which output = A V + what the past state gives. They
 * are 0 for all later positions.
 *
 * Sources: Katharopoulos et al. 2020 (arXiv 2006.16236) for the state; Sun et al. 2023 (arXiv
 * 2307.08621) and Yang et al. 2023 (arXiv 2312.06635) for the gates; Yang et al. 2024 (arXiv
 * 2406.06484) for the delta rule and its chunks; Yang, Kautz and Hatamizadeh 2025 (arXiv
 * 2412.06464) for both together; the ONNX operator LinearAttention (opset 27) for the order.
 *
 * There are as many states, H_s, as the larger one of H_k and H_v. H is the largest one of the
 * heads of Q, K and V. The others divide it, and H_k and H_v divide H_s: several query heads may
 * read one state, and several states may take one head of K. All have n rows.
 */
typedef struct attn_linear {
    /* Matrices in the forms of attn_plan_attention(), with as many rows each. If they are packed,
     * Q has options->heads heads and V has kv_heads; K has columns / d heads. kv_heads may be a
     * multiple of heads, too. */
    const attn_tensor *q, *k, *v;
    attn_update update;
    /* One number for each position, in the forms of the decay of each head; or (n) for all heads
     * and batch items, if there are not as many heads as positions. */
    const attn_tensor *beta;
    /* (B,H_s,d,d_v), or without the batch axes for all batch items; zeros if NULL. With sequences
     * (count,H_s,d,d_v), one for each sequence. Without heads, there is no axis for them. */
    const attn_tensor *past_state;
    /* Each row of Q and K is divided by sqrt(its sum of squares + norm_epsilon). */
    bool normalize_qk;
} attn_linear;

/* Makes a plan of linear attention. Of the options it takes results, scale, scales, heads,
 * kv_heads, decay, norm_epsilon, lengths, sequences and upstream; causal changes nothing, and all
 * others are refused. The results are output, present_state, decays, weights, states and the
 * gradients by Q, K, V, decay, beta and past_state; weights and states have no packed form, so
 * sequences have neither. A position from the length of its batch item on gives zeros and changes
 * no state. With sequences, present_state is (count,H_s,d,d_v), and Q, K and V are in the forms of
 * attn_plan_attention(): if they are (n,H,d), decays are (n,H_s) or (n,H_s,d). d is at most 4096,
 * and weights have at most 32768 positions. Ownership and errors are those of
 * attn_plan_attention(). A run has the error ATTN_INVALID_ARGUMENT if a decay is above 0 or NaN, or
 * a beta is not finite. */
ATTN_API attn_status attn_plan_linear(attn_plan **plan, const attn_linear *call,
                                      const attn_options *options, attn_error *error);

/* Returns why attn_plan_linear() refuses an option, in the words of its error, or NULL if it takes
 * the option or gives no reason. `name` is the name in errors, such as "past_K", and not NULL. */
ATTN_API const char *attn_linear_lacks(const char *name);

/*
 * These functions pack the weights of a projection once, in the form in which the products of this
 * library on this CPU read them, so that plans need not pack them again. `weights` has the shape
 * (d_model,columns), or (columns,d_model) if `layout` is ATTN_OUT_IN.
 *   attn_prepack_bytes  computes the bytes of the buffer, a multiple of ATTN_ALIGNMENT
 *   attn_prepack        packs the weights into `buffer`, which is aligned to ATTN_ALIGNMENT and
 *                       does not overlap them; afterwards they may be freed
 * *prepacked becomes a tensor of shape (d_model,columns) and of the same dtype, for
 * attn_plan_multihead() with ATTN_PREPACKED. It borrows the buffer, which must not change before
 * the last plan that uses it is freed. It is valid only in this process. All weights of a call are
 * packed, W_O included: the library cannot see whether a tensor was packed, and weights that were
 * not packed give wrong numbers. Errors: ATTN_INVALID_ARGUMENT ("weights", "layout", "buffer"),
 * ATTN_SHAPE_MISMATCH, ATTN_TOO_LARGE.
 */
ATTN_API attn_status attn_prepack_bytes(const attn_tensor *weights, attn_layout layout,
                                        size_t *bytes, attn_error *error);
ATTN_API attn_status attn_prepack(const attn_tensor *weights, attn_layout layout, void *buffer,
                                  attn_tensor *prepacked, attn_error *error);

/* The weights of this many columns are packed together. */
enum {
    ATTN_PREPACK_COLUMNS = 64
};

/* Packs a part of such weights: `weights` are the rows [row, row + m) and the columns [column,
 * column + n) of weights (rows,columns), and `buffer` is that of the whole. Parts may be packed in
 * any order, by several threads at the same time. `column` is a multiple of ATTN_PREPACK_COLUMNS,
 * and so is n, except for the last columns. Errors: those of attn_prepack(), and
 * ATTN_INVALID_ARGUMENT ("row", "column").
 */
ATTN_API attn_status attn_prepack_part(const attn_tensor *weights, attn_layout layout, size_t row,
                                       size_t rows, size_t column, size_t columns, void *buffer,
                                       attn_error *error);

/* Returns the number of parts of a result: 0 if it is not wanted; the number of heads for Q, K, V,
 * present_K, present_V and the gradients of Q, K, V and of the weights of heads and their biases of
 * a per_head plan; 1 otherwise. */
ATTN_API size_t attn_plan_parts(const attn_plan *plan, attn_result result);

/* Returns a part of a wanted result with its shape and dtype, borrowed from the plan, or NULL if
 * there is no such part. Its data is NULL until it is bound. The parts of a result are an array:
 * part p is attn_plan_tensor(plan, result, 0) + p. */
ATTN_API const attn_result_tensor *attn_plan_tensor(const attn_plan *plan, attn_result result,
                                                    size_t part);

/* Binds a part of a result to a buffer of the caller, who keeps it until the plan is freed. `data`
 * holds the bytes of the part, is aligned for its dtype, and overlaps no input and no other result.
 * A part without elements needs no buffer.
 * Errors: ATTN_INVALID_ARGUMENT if there is no such part or `data` is NULL. */
ATTN_API attn_status attn_plan_bind(attn_plan *plan, attn_result result, size_t part, void *data);

/* Computes the bytes of one buffer for all wanted results, a multiple of ATTN_ALIGNMENT. Returns
 * false, and writes nothing, if the number does not fit a size_t. */
ATTN_API bool attn_plan_results_bytes(const attn_plan *plan, size_t *bytes);

/* Binds all parts of all wanted results to one buffer of the caller, who keeps it until the plan is
 * freed. The parts lie one after the other, in the order of ATTN_RESULT_MAP, and each begins at a
 * multiple of ATTN_ALIGNMENT bytes from the start of the buffer. The buffer holds
 * attn_plan_results_bytes(), is aligned to ATTN_ALIGNMENT, and overlaps no input.
 * Errors: ATTN_INVALID_ARGUMENT if the buffer is NULL, even if all results have 0 bytes, or if it
 * is not aligned; ATTN_TOO_LARGE if no buffer can hold all results. Nothing is bound then. */
ATTN_API attn_status attn_plan_bind_all(attn_plan *plan, void *buffer);

/* Returns i + s, the position of a query of a batch item (see attn_options). The plan has no
 * sequences. */
ATTN_API int64_t attn_plan_position(const attn_plan *plan, size_t item, size_t query);

/* Returns the cost of making and running the plan. The unit is the time of one multiply-add in
 * attention of many queries; the machine where it was measured does about 80 of them in a
 * nanosecond. The cost counts the products and whatever else takes time: exp, sorting, copies,
 * reading masks, and a constant for each head, row and task. */
ATTN_API double attn_plan_cost(const attn_plan *plan);

/* Computes all bytes that the plan takes, so that a caller can refuse it before more is allocated:
 * the plan itself, which is allocated already; its workspace, which the first begin allocates; one
 * buffer for all results (attn_plan_results_bytes); and the scratches (attn_plan_scratch) that
 * `threads` threads use at the same time. attn_plan_run() uses one scratch. Inputs are not counted.
 * Returns false, and writes nothing, if the number does not fit a size_t. */
ATTN_API bool attn_plan_bytes(const attn_plan *plan, size_t threads, size_t *bytes);

/* Computes all wanted results on the calling thread. Every part must be bound. A query that may
 * attend to no key gets rows of zeros. The numbers of a forbidden key or value, NaN included,
 * change no weights and no output of the queries that may not attend to it. Projections, and
 * outputs without softmax, are summed in their dtype: a sum that overflows on the way is an error,
 * even if the whole sum would be finite. The same holds for outputs in float64 of few queries or
 * long rows whose values are near the largest float64, because they are divided at the end.
 * Errors: ATTN_INVALID_ARGUMENT (a part is not bound, or a slope or sink is not finite),
 * ATTN_NOT_FINITE (a stage or a gradient overflowed; the message says where), ATTN_NO_MEMORY. */
ATTN_API attn_status attn_plan_run(attn_plan *plan, attn_error *error);

/*
 * These functions run a plan on threads of the caller: begin, then every task of phase 0, then
 * every task of phase 1 and so on, then end. The tasks of one phase may run at the same time and in
 * any order, each with a scratch that no other task uses at that time. The bytes of the results do
 * not depend on the threads or on the order. If a call fails, leave out the remaining tasks and
 * free the plan.
 *   attn_plan_phases    the number of phases
 *   attn_plan_tasks     the number of tasks of a phase, which may be 0
 *   attn_plan_scratch   the bytes of one scratch, which is aligned to ATTN_ALIGNMENT; with 0 bytes
 *                       the scratch may be NULL
 * Errors: attn_plan_begin() has those of attn_plan_run() except ATTN_NOT_FINITE; a task and
 * attn_plan_end() have ATTN_NOT_FINITE, and a task of linear attention ATTN_INVALID_ARGUMENT, too.
 */
ATTN_API size_t attn_plan_phases(const attn_plan *plan);
ATTN_API size_t attn_plan_tasks(const attn_plan *plan, size_t phase);
ATTN_API size_t attn_plan_scratch(const attn_plan *plan);
ATTN_API attn_status attn_plan_begin(attn_plan *plan, attn_error *error);
ATTN_API attn_status attn_plan_task(const attn_plan *plan, size_t phase, size_t task, void *scratch,
                                    attn_error *error);
ATTN_API attn_status attn_plan_end(attn_plan *plan, attn_error *error);

/* Frees the plan and its workspace. NULL is allowed. */
ATTN_API void attn_plan_free(attn_plan *plan);

/* ------------------------------------------------------------------------------------- softmax */

/* Makes a plan of the softmax of `x` along `axis`; a negative axis counts from the last one. Its
 * one result is ATTN_RESULT_OUTPUT, in the shape and dtype of x, which may be bound to x's own
 * data. The plan runs as every other plan does. Entries of -inf get 0, and a slice in which all
 * entries are -inf gets zeros. The plan is returned owned and borrows the data of x.
 * Errors: ATTN_INVALID_ARGUMENT (rank 0, an axis out of range, not a float dtype), ATTN_TOO_LARGE,
 * ATTN_NO_MEMORY. A task has the error ATTN_NOT_FINITE if x holds +inf or NaN; the message names
 * the element. */
ATTN_API attn_status attn_plan_softmax(attn_plan **plan, const attn_tensor *x, int axis,
                                       attn_error *error);

/* Writes the softmax of `x` along `axis` to `out`, which holds as many bytes as x and may be x's
 * own data. The errors are those of attn_plan_softmax() and of its tasks. */
ATTN_API attn_status attn_softmax(const attn_tensor *x, int axis, void *out, attn_error *error);

/* ------------------------------------------------------------------------------- seeded draws */

/*
 * A generator makes the numbers of NumPy or PyTorch: after the same seed, one draw after another
 * has the same bits as there, on x86-64 and, with ATTN_TORCH, on a CPU with AVX2. The last bit of
 * normals drawn in float64 depends on the C library (log, sin, cos), there and here. Everything
 * else is the same on every machine. NumPy's legacy RandomState no longer changes. ATTN_TORCH
 * follows PyTorch 2.15; other versions may draw integers of ranges of 2^28 and more, and the open
 * end of uniforms, in another way.
 */
typedef enum attn_generator {
    ATTN_NUMPY = 0, /* np.random.seed(seed); the seed is at most 2^32 - 1 */
    ATTN_TORCH = 1  /* torch.manual_seed(seed), on the CPU; a negative seed is seed + 2^64 */
} attn_generator;

typedef enum attn_distribution {
    /* Whole numbers in [a, b), where a < b are whole and within -2^53 .. 2^53: np.random.randint,
     * and torch.randint of its default dtype. */
    ATTN_RANDINT = 0,
    /* Numbers in [a, b), where a <= b: np.random.uniform, which may round up to b, and
     * Tensor.uniform_, which may not. rand is this with a = 0 and b = 1. */
    ATTN_UNIFORM = 1,
    /* Numbers of mean a and standard deviation b >= 0: np.random.normal and Tensor.normal_. randn
     * is this with a = 0 and b = 1, and torch.nn.Embedding(rows, columns) is one such draw of
     * rows * columns numbers. */
    ATTN_NORMAL = 2
} attn_distribution;

/* One draw: all numbers of one matrix. */
typedef struct attn_draw {
    attn_distribution distribution;
    /* The dtype in which the numbers are drawn: ATTN_FLOAT64 with ATTN_NUMPY, either float dtype
     * with ATTN_TORCH. ATTN_RANDINT does not use it. */
    attn_dtype dtype;
    /* Except with ATTN_RANDINT, a and b are within -1e37 .. 1e37, so that no number overflows
     * float32. */
    double a, b;
    /* The elements of the whole matrix. It matters for the values, too: PyTorch draws fewer than 16
     * normals in another way than more. */
    size_t count;
} attn_draw;

typedef struct attn_random attn_random;

/* Makes a generator, which is returned owned; free it with attn_random_free().
 * Errors: ATTN_INVALID_ARGUMENT ("generator", "seed"), ATTN_NO_MEMORY; *random is then NULL. */
ATTN_API attn_status attn_random_create(attn_random **random, attn_generator generator,
                                        uint64_t seed, attn_error *error);

/* Frees a generator. NULL is allowed. */
ATTN_API void attn_random_free(attn_random *random);

/* Checks whether the generator can make a draw, and draws nothing. Errors: ATTN_INVALID_ARGUMENT
 * with the argument "distribution" or "dtype", or with "low" for a and "high" for b; for normals
 * these are "mean" and "std". */
ATTN_API attn_status attn_random_check(const attn_random *random, const attn_draw *draw,
                                       attn_error *error);

/* Draws the elements first .. first + count - 1 of a checked draw, and writes them to their places
 * in `data`, which holds all draw->count elements in `dtype` (float32 or float64; the numbers are
 * rounded to float32). If `data` is NULL, the numbers are drawn and not kept.
 * A draw may be filled in pieces: each piece begins at a multiple of ATTN_DRAW_PIECE elements, the
 * pieces follow each other in order, and the draw is completed before the next one begins. The last
 * piece may write up to 15 elements before `first` again. */
enum {
    ATTN_DRAW_PIECE = 16384
};
ATTN_API void attn_random_fill(attn_random *random, const attn_draw *draw, size_t first,
                               size_t count, attn_dtype dtype, void *data);

/* ---------------------------------------------------------------------------------- this build */

typedef struct attn_build_info {
    const char *version;   /* ATTN_VERSION of the library */
    const char *blas;      /* OpenBLAS's own description of its build */
    const char *blas_core; /* the kernels that OpenBLAS chose for this CPU, e.g. "SkylakeX" */
    const char *kernels;   /* the library's vector instructions: "scalar", "avx2", "avx512" or
                              "neon" */
    const char *usable_kernels[4]; /* all that this CPU can run, the slowest first, then NULL */
    bool kernels_refused;          /* ATTENTION_ISA names no usable kernels, and has no effect */
} attn_build_info;

/* Returns what this build is, and what it found on this CPU. The texts are static. The kernels are
 * chosen once, when they are first needed. They are those that the environment variable
 * ATTENTION_ISA names. If it is unset or empty, they are the fastest usable ones. If it names
 * kernels that this CPU cannot run, the library uses the fastest ones, and kernels_refused is
 * true. */
ATTN_API attn_build_info attn_build(void);

/* Sets the number of threads that OpenBLAS itself may use in the whole process. A caller that runs
 * plans on threads of its own sets it to 1 before the first plan. The results then do not depend on
 * the number of threads. */
ATTN_API void attn_blas_set_threads(int threads);

#ifdef __cplusplus
}
#endif

#endif
