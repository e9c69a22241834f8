/*
 * plan.h - a checked call: every size, stride and option is known, so that a run only computes.
 * plan*.c fill a plan, schedule.c cuts it into tasks, and engine/ runs it. Then it is constant,
 * apart from its bindings (bindings.h), which have the data that a run reads and writes. What only
 * one kind of plan has is a struct of that kind's folder, in the header of the file that fills it.
 */
#ifndef ATTN_PLAN_H
#define ATTN_PLAN_H

#include "base/tensor.h"
#include "bindings.h"
#include "results.h"
#include "softmax/plan_gate.h"
#include "softmax/plan_gradients.h"
#include "softmax/plan_half.h"
#include "softmax/plan_multihead.h"
#include "softmax/plan_options.h"
#include "softmax/plan_rotary.h"
#include "softmax/plan_softmax.h"
#include "softmax/plan_widened.h"
#include "softmax/schedule.h"

/* Q, K, V, past_K or past_V: the rows of all its batch items and heads. It is broadcast to those of
 * the call: all items share one, and heads_of_one() query heads, which follow each other, share a
 * head. Distances are counted in elements of the plan's dtype. struct head says where the rows of a
 * head begin. */
struct operand {
    const attn_tensor *given; /* borrowed while the plan is made; NULL if the run computes it */
    size_t items, heads;      /* the items are 1 or those of the call; the heads divide its heads */
    size_t ld;                /* from one row to the next */
    size_t batch;             /* from one batch item to the next; 0 if there is one */
    size_t numbers;           /* of all batch items together */
};

/* One query head. The places are offsets, in elements, from the start of a batch item of the
 * operand of the same name. */
struct head {
    size_t d, d_v;
    size_t q, k, v, past_k, past_v, out;
    size_t pack; /* place of its key head in the packed keys */
    double scale;
};

/* A result that the caller asked for. */
struct result {
    attn_result_tensor *parts; /* their `data` is what the caller sees; tasks take the bindings */
    size_t count;              /* parts that there are */
};

enum {
    MOST_AXES = ATTN_MAX_RANK - 3 /* so that weights have room for heads, queries and keys */
};

/* The form of a call, beside its sizes. */
struct form {
    size_t past, new_keys; /* the first of the m keys; extra keys follow them */
    /* The axes of the batch, from the left. `batch` of the plan is their product. */
    size_t axes[MOST_AXES];
    int axis_count;
    bool has_head_axis;
    bool packed;             /* K and V, and so present_K and present_V, are (B,m,H*d) */
    bool projected;          /* Q, K and V are computed from X */
    bool per_head;           /* each head has projections with sizes of its own */
    bool same;               /* Q, K and V are one matrix, X */
    bool empty;              /* there is no query, no key or no batch item, see plan_empty.c */
    bool merged;             /* the n queries are heads of the caller, see merge_groups */
    int64_t position_offset; /* see plan_position() */
    const size_t *ends;      /* the lengths, if the position of a query counts from them; or NULL */
};

enum {
    PLAN_FEW_PARTS = 2 /* a call of one head with so few results needs no memory but its plan */
};

/* The results of a plan. */
struct result_set {
    uint64_t wanted; /* ATTN_WANT bits */
    bool mean;       /* the wanted weights are the mean over heads */
    size_t top_k;
    size_t head_rows;  /* rows from one head to the next: n, or those of all sequences */
    size_t given_rows; /* the same where the caller has the results of a widened call */
    struct result of[ATTN_RESULT_COUNT];
    attn_result_tensor *parts;              /* those of all results */
    attn_result_tensor few[PLAN_FEW_PARTS]; /* the parts, if there are not more */
    size_t bytes; /* of a buffer for all results; SIZE_MAX if it does not fit a size_t */
};

/* A kind of plan: its phases and tasks, and what a run does. */
struct plan_kind {
    size_t (*phases)(const attn_plan *plan);
    size_t (*tasks)(const attn_plan *plan, size_t phase); /* of a phase that there is */
    /* Completes the bindings of a run, whose results and workspace are bound; NULL: nothing is
     * to be done. */
    attn_status (*begin)(const attn_plan *plan, struct bindings *bindings, attn_error *error);
    /* Runs a task, see attn_plan_task. */
    attn_status (*run)(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                       size_t task, void *scratch, attn_error *error);
    /* Makes results that need what all tasks have made; NULL: there are none. */
    attn_status (*end)(const attn_plan *plan, const struct bindings *bindings, attn_error *error);
};

/* plan_kind_empty has no query, no key or no batch item. The engine defines the kinds. */
extern const struct plan_kind plan_kind_softmax, plan_kind_attention, plan_kind_empty,
    plan_kind_linear, plan_kind_sequences;

struct attn_plan {
    const struct plan_kind *kind;
    attn_dtype dtype;     /* of the numbers of a run; see plan_given_dtype() */
    struct slices slices; /* a plan of softmax alone has only these, results and a schedule */
    size_t batch, heads;
    size_t kv_heads; /* those of K */
    size_t n;        /* queries */
    size_t m;        /* keys: past ones, then new ones, then extra ones */
    struct form form;
    struct head *head; /* one for each query head; &one_head if there is one */
    struct head one_head;
    struct {
        struct operand q, k, v, past_k, past_v;
    } in;
    struct {
        size_t ld, batch; /* from one row, or batch item, of the heads' outputs to the next */
    } out;
    /* As given: the engine reads numbers and enums in them, and never what they point to. */
    attn_options options;
    attn_multihead call;
    uint64_t given; /* a bit for each input that the caller gave */
    size_t weights; /* the number of matrices and biases of projections that a run binds */
    struct rules rules;
    struct extra_keys extra;
    struct decay decay;
    bool whole_norm[3]; /* of Q, K and V: it goes over the columns of all heads */
    double norm_epsilon;
    struct rotary rotary;
    struct projection project[PROJECT_COUNT]; /* one that the call lacks has no matrices */
    struct gate gate;
    struct copies copies; /* that a compute_dtype rounds, or those of a widened call */
    struct half half;
    struct widened widened;
    struct bindings bindings; /* what the caller bound; each task gets it beside the plan */
    struct result_set results;
    struct gradients gradients;
    struct linear *linear;       /* of linear attention, see plan_linear.h; NULL: this is none */
    struct sequences *sequences; /* NULL: there are none. Such a plan has no schedule of its own */
    struct path path;
    struct tiling tiling;
    struct schedule schedule;
    struct plan_memory *memory; /* of plan_alloc(), and its bytes */
    size_t bytes;
};

/* Did the caller give an input? */
static inline bool plan_has(const attn_plan *plan, int input) {
    return (plan->given >> input & 1) != 0;
}

/* Returns the dtype of inputs and results. */
static inline attn_dtype plan_given_dtype(const attn_plan *plan) {
    return plan->widened.is ? ATTN_FLOAT32 : plan->dtype;
}

/* Do scores get the slopes of ALiBi? */
static inline bool plan_has_slopes(const attn_plan *plan) {
    return plan_has(plan, INPUT_ALIBI) || (plan->options.flags & ATTN_FLAG_ALIBI) != 0;
}

/* Returns whether any of these results is wanted. */
static inline bool plan_wants(const attn_plan *plan, uint64_t bits) {
    return (plan->results.wanted & bits) != 0;
}

/* Do weights, or their given gradients, have the shape of a mean over heads? */
static inline bool plan_has_mean(const attn_plan *plan) {
    return (plan->options.flags & ATTN_FLAG_MEAN_OVER_HEADS) != 0;
}

/* Are the outputs of heads computed? */
static inline bool plan_makes_output(const attn_plan *plan) {
    return plan_wants(plan, ATTN_WANT(OUTPUT)) || plan->gradients.wanted;
}

/* Does a function lie between a score times the scale and its scaled score? See bend_row(). */
static inline bool plan_bends(const attn_plan *plan) {
    return plan->options.softcap > 0;
}

static inline bool plan_wants_top_k(const attn_plan *plan) {
    return plan_wants(plan, ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS));
}

/* Are rows of Q (or K) normalised or rotated? */
static inline bool plan_prepares_rows(const attn_plan *plan, int norm) {
    return plan_has(plan, norm) || plan->rotary.columns > 0;
}

/* Do rows of Q, or of new keys or values, change before they are multiplied? */
static inline bool plan_prepares_queries(const attn_plan *plan) {
    return plan_has(plan, INPUT_B_Q) || plan_prepares_rows(plan, INPUT_NORM_Q);
}

static inline bool plan_prepares_keys(const attn_plan *plan) {
    return plan_has(plan, INPUT_B_K) || plan_prepares_rows(plan, INPUT_NORM_K);
}

static inline bool plan_prepares_values(const attn_plan *plan) {
    return plan_has(plan, INPUT_B_V) || plan_has(plan, INPUT_NORM_V);
}

/* Returns the data of a part of a result. */
static inline void *bound_part(const attn_plan *plan, const struct bindings *bindings,
                               attn_result which, size_t part) {
    return part == 0 ? bindings->results[which]
                     : bindings->parts[&plan->results.of[which].parts[part] - plan->results.parts];
}

/* The rows of present_K and present_V: all keys that have a position. */
static inline size_t present_rows(const attn_plan *plan) {
    return plan->form.past + plan->form.new_keys;
}

/* Returns how many heads of the call share a head of an operand. They follow each other. */
static inline size_t heads_of_one(const attn_plan *plan, const struct operand *o) {
    return plan->heads / o->heads;
}

#endif
