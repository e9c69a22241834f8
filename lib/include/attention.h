/*
 * attention.h - the public interface of libattention.
 *
 * Scaled dot-product attention, alone or with its projections (multi-head attention), for float32
 * and float64, with every stage of the computation available as a result.
 *
 *     scores        = Q K^T
 *     scaled_scores = scale * scores                 softcap * tanh(x / softcap) if softcap > 0
 *     masked_scores = + bias (+ ALiBi), then -inf where mask, causal, window or lengths forbid
 *     weights       = softmax over keys              unnormalized: masked_scores, 0 where forbidden
 *     output        = weights V
 *
 * Sources: Vaswani et al. 2017 (arXiv 1706.03762, section 3.2) for the attention and the heads; the
 * ONNX operator Attention (opset 23 to 25) for the order of the stages, past keys and windows;
 * Press et al. 2021 (arXiv 2108.12409) for ALiBi; Ainslie et al. 2023 (arXiv 2305.13245) for
 * grouped heads.
 *
 * A call has three steps: attn_plan_*() checks everything and knows every shape; attn_plan_bind()
 * says where each wanted result goes; attn_plan_run() computes. The library owns no thread, prints
 * nothing and keeps no state between calls, so any number of plans may run at the same time.
 *
 * Ownership: tensors passed in are borrowed until the plan is freed; their numbers may change until
 * attn_plan_begin() (zeros are fine while a plan is made). Buffers bound to results are borrowed
 * until the plan is freed. Plans are returned owned: free them with attn_plan_free().
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

#define ATTN_VERSION_MAJOR 0
#define ATTN_VERSION_MINOR 1
#define ATTN_VERSION_PATCH 0
#define ATTN_VERSION       "0.1.0"

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

/* What went wrong. `argument` names the argument at fault as the notebooks do ("K", "past_K",
 * "W_Q", "heads/2/W_K", "mask"; a stage such as "scores" for ATTN_NOT_FINITE), empty if none;
 * `message` states the rule and the values that broke it. */
typedef struct attn_error {
    attn_status status;
    char argument[40];
    char message[256];
} attn_error;

/* The fixed text of a status; never NULL. */
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
    /* Bytes: a scratch begins at a multiple of this. Inputs and results should too, for speed. */
    ATTN_ALIGNMENT = 64
};

/* A dense row-major array. Bools are bytes: 0 is false, any other true. As an input it is never
 * written through. */
typedef struct attn_tensor {
    const void *data;
    attn_dtype dtype;
    int rank;
    size_t shape[ATTN_MAX_RANK];
} attn_tensor;

/* Bytes of one element; 0 for a value that is no dtype. */
ATTN_API size_t attn_dtype_size(attn_dtype dtype);

/* Number of elements and of bytes. False if the product does not fit a size_t (outputs untouched).
 * */
ATTN_API bool attn_tensor_count(const attn_tensor *tensor, size_t *count);
ATTN_API bool attn_tensor_bytes(const attn_tensor *tensor, size_t *bytes);

/* ------------------------------------------------------------------------------------- results */

/*
 * Everything a call can return. With B = batch, H = heads, n queries, m keys (past ones included),
 * the shapes are those of a rank-4 question; axes that the question does not have are left out.
 *   output              (B,H,n,d_v); packed or projected: (B,n,H*d_v), or (B,n,d_out) after W_O
 *   weights             (B,H,n,m), or (B,n,m) with ATTN_FLAG_MEAN_OVER_HEADS
 *   scores, scaled_scores, masked_scores   (B,H,n,m); -inf in masked_scores where forbidden
 *   lse                 (B,H,n) natural log of the softmax denominator; -inf for an empty row, the
 *                       sink's logit if there is a sink
 *   entropy             (B,H,n) -sum w ln w, in nats
 *   top_k               indices (B,H,n,k) int64 and weights (B,H,n,k), largest first, ties by index
 *   statistics          (4) float64: population variance of Q, K, scores, scaled_scores
 *   present_K, present_V   past and new rows together, in the form of K and V
 *   Q, K, V             the projected matrices, (B,H,n,d); one part for each head if the heads have
 *                       projections of their own (see attn_plan_parts)
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
    X(PRESENT_K, "present_K")                                                                      \
    X(PRESENT_V, "present_V")                                                                      \
    X(Q, "Q")                                                                                      \
    X(K, "K")                                                                                      \
    X(V, "V")

typedef enum attn_result {
#define ATTN_RESULT_ENUM(name, text) ATTN_RESULT_##name,
    ATTN_RESULT_MAP(ATTN_RESULT_ENUM)
#undef ATTN_RESULT_ENUM
    ATTN_RESULT_COUNT
} attn_result;

/* The bit of a result in attn_options.results. */
#define ATTN_WANT(name) (1u << ATTN_RESULT_##name)

/* The name of a result, as in ATTN_RESULT_MAP; NULL for a value that is no result. */
ATTN_API const char *attn_result_name(attn_result result);

/* ------------------------------------------------------------------------------------- options */

typedef enum attn_causal {
    ATTN_CAUSAL_NONE = 0,
    ATTN_CAUSAL_TOP_LEFT = 1,     /* query i sees keys j <= i + p, p = number of past keys */
    ATTN_CAUSAL_BOTTOM_RIGHT = 2, /* query i sees keys j <= i + (m - n) */
} attn_causal;

typedef enum attn_normalization {
    ATTN_SOFTMAX = 0,
    ATTN_UNNORMALIZED = 1
} attn_normalization;

enum {
    ATTN_FLAG_SCALE = 1u << 0,  /* `scale` holds, even if 0; otherwise 1/sqrt(d) */
    ATTN_FLAG_WINDOW = 1u << 1, /* `window` holds */
    ATTN_FLAG_ALIBI = 1u << 2,  /* ALiBi with the slopes of the paper for this number of heads */
    ATTN_FLAG_MEAN_OVER_HEADS = 1u << 3, /* `weights` is the mean over the heads */
};

/* Zero means default: `attn_options o = {0}` is valid and asks for output only. Positions: query i
 * stands at i + s, with s = m - n under ATTN_CAUSAL_BOTTOM_RIGHT and s = p otherwise; causal,
 * window and ALiBi all use it. */
typedef struct attn_options {
    unsigned flags;   /* ATTN_FLAG_*; unknown bits are refused */
    unsigned results; /* ATTN_WANT(...) bits; 0 = output */
    attn_causal causal;
    attn_normalization normalization;
    double scale;      /* finite */
    double softcap;    /* > 0, or 0 for none */
    int64_t window[2]; /* left, right: i+s-left <= j <= i+s+right; -1 = open */
    /* attn_plan_attention: Q, K, V are packed as (n,heads*d); 0 = they are not.
     * attn_plan_multihead: 2-D weights are split into so many heads; 0 = one head.
     * kv_heads 0 = heads; query head h uses key and value head h / (heads / kv_heads). */
    size_t heads, kv_heads;
    size_t top_k;            /* for top_k: the min(top_k, m) largest; 0 = 5 */
    const attn_tensor *mask; /* ATTN_BOOL, rank 2..4, broadcast to (B,H,n,m); true = attends */
    const attn_tensor *bias; /* as mask, in Q's dtype; added after scaling; -inf forbids */
    const attn_tensor *alibi_slopes; /* (H), in Q's dtype: adds -slope * |i + s - j| */
    const attn_tensor *sink;         /* (H), in Q's dtype: logits that join the denominator only */
    const size_t *lengths;           /* (B): valid keys of each batch item, past ones included */
    size_t lengths_count;            /* 0 = none given */
    const attn_tensor *past_k, *past_v; /* rows before those of K and V, in their form; or NULL */
} attn_options;

/* ------------------------------------------------------------------------------------ planning */

typedef struct attn_plan attn_plan;

/*
 * Attention over given Q, K, V of one dtype and one rank:
 *   (n,d), (H,n,d) or (B,H,n,d); K (H_kv,m,d), V (H_kv,m,d_v), H a multiple of H_kv; or, with
 * options->heads,
 *   (n,H*d) or (B,n,H*d) with K (m,H_kv*d), V (m,H_kv*d_v).
 * Errors: ATTN_INVALID_ARGUMENT, ATTN_SHAPE_MISMATCH, ATTN_TOO_LARGE, ATTN_NO_MEMORY. *plan is
 * NULL on error. `error` may be NULL.
 */
ATTN_API attn_status attn_plan_attention(attn_plan **plan, const attn_tensor *q,
                                         const attn_tensor *k, const attn_tensor *v,
                                         const attn_options *options, attn_error *error);

typedef enum attn_layout {
    ATTN_IN_OUT = 0, /* X W: weights (d_model, d_k), per head (H, d_model, d_k) */
    ATTN_OUT_IN = 1, /* X W^T, as torch.nn.Linear: (d_k, d_model), per head (H, d_k, d_model) */
} attn_layout;

/* The projections of one head, or of all heads together. Biases may be NULL; they are (H*d), or
 * (H,d) beside 3-D weights. */
typedef struct attn_projection {
    const attn_tensor *w_q, *w_k, *w_v;
    const attn_tensor *b_q, *b_k, *b_v;
} attn_projection;

typedef struct attn_multihead {
    const attn_tensor *x;       /* (n,d_model) or (B,n,d_model) */
    const attn_tensor *context; /* (m,d_context) or (B,m,d_context) for K and V; NULL = x */
    /* One for all heads (2-D weights split by options->heads, or 3-D); or, with per_head, one for
     * each of `count` heads: 2-D weights with sizes of their own. */
    const attn_projection *projections;
    size_t count;
    bool per_head;
    attn_layout layout;           /* of all weights, W_O included */
    const attn_tensor *w_o, *b_o; /* (H*d_v, d_out), (d_out); NULL = heads are concatenated only */
} attn_multihead;

/* Q = X W_Q + b_Q, K = C W_K + b_K, V = C W_V + b_V, attention per head, heads concatenated, then
 * W_O and b_O. past_k and past_v are projected already: (p,d_k), (H_kv,p,d_k), (B,H_kv,p,d_k) in
 * the form of the K result; they are refused with per_head. Errors as attn_plan_attention. */
ATTN_API attn_status attn_plan_multihead(attn_plan **plan, const attn_multihead *call,
                                         const attn_options *options, attn_error *error);

/* Number of tensors that make up a result: 0 if it was not asked for, 1, or the number of heads for
 * Q, K, V, present_K and present_V of a per_head plan. */
ATTN_API size_t attn_plan_parts(const attn_plan *plan, attn_result result);

/* Shape and dtype of a part of a wanted result; its data is NULL until bound. Borrowed from the
 * plan. NULL if there is no such part. The parts of one result lie one after the other, so that
 * part p is attn_plan_tensor(plan, result, 0) + p. */
ATTN_API const attn_tensor *attn_plan_tensor(const attn_plan *plan, attn_result result,
                                             size_t part);

/* Says where that part goes: `data` holds attn_tensor_bytes() of it, is aligned for its dtype and
 * overlaps no input and no other result. ATTN_INVALID_ARGUMENT if there is no such part. */
ATTN_API attn_status attn_plan_bind(attn_plan *plan, attn_result result, size_t part, void *data);

/* Cost of making and running the plan, in the multiply-adds that take as long (about 80 of them in
 * a nanosecond on the machine it was measured on): products, and whatever else takes time, such as
 * exp, sorting, copies, masks that are read, and a constant for each head, row and task. */
ATTN_API double attn_plan_cost(const attn_plan *plan);

/* Bytes that the plan itself holds from the moment it is made: heads, slopes, lengths, the parts of
 * its results and the like. The workspace comes on top (attn_plan_workspace), and so do inputs and
 * bound buffers, which are the caller's. */
ATTN_API size_t attn_plan_memory(const attn_plan *plan);

/* Computes all wanted results on the calling thread. Every part must be bound. A query that may
 * attend to nothing gets rows of zeros; what a forbidden key or value holds, NaN included, reaches
 * no other row.
 * Errors: ATTN_INVALID_ARGUMENT (a part is not bound), ATTN_NOT_FINITE (a stage overflowed: the
 * message names where), ATTN_NO_MEMORY. Projections, and outputs without softmax, are summed in
 * their dtype: one that overflows on the way is an error even if its whole sum would be finite. */
ATTN_API attn_status attn_plan_run(attn_plan *plan, attn_error *error);

/*
 * The same on threads of the caller: begin, then phase by phase every task of that phase, at once
 * and in any order, each with a scratch of its own, then end. The bytes of the results do not
 * depend on the threads or the order. After an error the remaining tasks need not be run; free the
 * plan.
 *   attn_plan_workspace  bytes that the first begin allocates and attn_plan_free frees
 *   attn_plan_scratch    bytes of one scratch, aligned to ATTN_ALIGNMENT; tasks may use it in turn
 *
 * Errors of begin: as attn_plan_run; of a task and of end: ATTN_NOT_FINITE.
 */
ATTN_API size_t attn_plan_phases(const attn_plan *plan);
ATTN_API size_t attn_plan_tasks(const attn_plan *plan, size_t phase);
ATTN_API size_t attn_plan_workspace(const attn_plan *plan);
ATTN_API size_t attn_plan_scratch(const attn_plan *plan);
ATTN_API attn_status attn_plan_begin(attn_plan *plan, attn_error *error);
ATTN_API attn_status attn_plan_task(const attn_plan *plan, size_t phase, size_t task, void *scratch,
                                    attn_error *error);
ATTN_API attn_status attn_plan_end(attn_plan *plan, attn_error *error);

/* NULL is fine. */
ATTN_API void attn_plan_free(attn_plan *plan);

/* ------------------------------------------------------------------------------------- softmax */

/* A plan of softmax of `x` along `axis` (negative counts from the last). Its one result is
 * ATTN_RESULT_OUTPUT, in the shape and dtype of x, which may be bound to x's own data: it is begun,
 * run task by task and ended as every plan. -inf entries get 0, a slice of nothing else is all
 * zeros. Errors: ATTN_INVALID_ARGUMENT (rank 0, axis out of range, not a float dtype),
 * ATTN_TOO_LARGE, ATTN_NO_MEMORY; of a task ATTN_NOT_FINITE (+inf or NaN in x: the message names
 * the element). */
ATTN_API attn_status attn_plan_softmax(attn_plan **plan, const attn_tensor *x, int axis,
                                       attn_error *error);

/* Such a plan made and run at once: out = softmax of `x`. `out` holds as many bytes as x and may be
 * x's own data. Errors: those of attn_plan_softmax and of its run. */
ATTN_API attn_status attn_softmax(const attn_tensor *x, int axis, void *out, attn_error *error);

/* ------------------------------------------------------------------------------- seeded draws */

/*
 * Whose numbers: the same seed gives the very bits that it gives there, one draw after another, on
 * x86-64 and, for ATTN_TORCH, a CPU with AVX2. In the last bit of normals drawn as float64 both
 * follow the C library (log, sin, cos), and so do these; all else is the same on every machine.
 * Versions: the legacy RandomState no longer changes; PyTorch's integers for ranges of 2^28 and
 * more, and the open end of its uniforms, are those of 2.15.
 */
typedef enum attn_generator {
    ATTN_NUMPY = 0, /* np.random.seed(seed): the legacy RandomState; seeds up to 2^32 - 1 */
    ATTN_TORCH = 1  /* torch.manual_seed(seed), on the CPU; a negative seed is seed + 2^64 */
} attn_generator;

typedef enum attn_distribution {
    /* Whole numbers in [a, b), a < b, both whole and within -2^53 .. 2^53: np.random.randint,
     * torch.randint of their default type. */
    ATTN_RANDINT = 0,
    /* [a, b), a <= b: np.random.uniform (which may round up to b), Tensor.uniform_ (which may not);
     * rand is that of [0, 1). */
    ATTN_UNIFORM = 1,
    /* Of mean a and standard deviation b >= 0: np.random.normal, Tensor.normal_; randn is that of 0
     * and 1, torch.nn.Embedding(rows, columns) one of rows * columns. */
    ATTN_NORMAL = 2
} attn_distribution;

/* One matrix to be drawn. `dtype` is that of the numbers as they are drawn, ATTN_FLOAT64 alone with
 * ATTN_NUMPY; it does not matter for ATTN_RANDINT. How many there are matters: PyTorch draws less
 * than 16 normals in another way than more. For ATTN_UNIFORM and ATTN_NORMAL a and b lie within
 * -1e37 .. 1e37, so that no number drawn overflows, in float32 either. */
typedef struct attn_draw {
    attn_distribution distribution;
    attn_dtype dtype;
    double a, b;
    size_t count; /* of its elements */
} attn_draw;

typedef struct attn_random attn_random;

/* Returns owned: attn_random_free(). Errors: ATTN_INVALID_ARGUMENT ("generator", "seed"),
 * ATTN_NO_MEMORY; *random is NULL then. */
ATTN_API attn_status attn_random_create(attn_random **random, attn_generator generator,
                                        uint64_t seed, attn_error *error);
ATTN_API void attn_random_free(attn_random *random); /* NULL is fine */

/* Can this be drawn? Errors: ATTN_INVALID_ARGUMENT ("distribution", "dtype"; a and b are "low" and
 * "high", of a normal "mean" and "std"). */
ATTN_API attn_status attn_random_check(const attn_random *random, const attn_draw *draw,
                                       attn_error *error);

/* Writes the elements first .. first + count - 1 of a checked draw to their places in `data`, which
 * holds all draw->count of them in `dtype` (float32 or float64, rounded if that is narrower). For
 * work in turns: the pieces of a draw are asked for in order and none between two draws is left
 * out; each begins at a multiple of ATTN_DRAW_PIECE elements and, but for the last, is whole ones.
 * The last piece may write up to 15 elements before its first once more. With `data` NULL the
 * numbers are drawn and thrown away. */
#define ATTN_DRAW_PIECE 16384
ATTN_API void attn_random_fill(attn_random *random, const attn_draw *draw, size_t first,
                               size_t count, attn_dtype dtype, void *data);

/* ---------------------------------------------------------------------------------- this build */

typedef struct attn_build_info {
    const char *version;           /* ATTN_VERSION of the library */
    const char *blas;              /* OpenBLAS's own description of its build */
    const char *blas_core;         /* the kernels OpenBLAS chose for this CPU, e.g. "SkylakeX" */
    const char *kernels;           /* the row kernels in use, e.g. "scalar" */
    const char *usable_kernels[5]; /* those that this CPU runs, the slowest first, then NULL */
    bool kernels_refused;          /* ATTENTION_ISA names none of these and was not followed */
} attn_build_info;

/* What this build is and what it found on this CPU; the texts are static. The fastest usable
 * kernels are chosen once, when they are first needed, unless the environment variable
 * ATTENTION_ISA then names others of these (empty is unset). A caller to whom that matters looks at
 * kernels_refused: the library itself goes on with the fastest. */
ATTN_API attn_build_info attn_build(void);

/* How many threads OpenBLAS itself may use, process-wide. A caller that runs plans on threads of
 * its own sets 1 before the first plan; results then do not depend on thread counts. */
ATTN_API void attn_blas_set_threads(int threads);
ATTN_API int attn_blas_threads(void);

#ifdef __cplusplus
}
#endif

#endif
