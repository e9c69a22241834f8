/*
 * plan.h - a checked call: every size, stride and option is known, so that a run only computes.
 * plan*.c fill a plan, schedule.c cuts it into tasks, and engine/ runs it. Then it is constant,
 * apart from its bindings (bindings.h), which have the data that a run reads and writes.
 *
 * A call without a query, a key or a batch item has no scores. plan_empty.c fills its results, so
 * no part of the engine is asked for blocks of no rows. A plan with gradients has more phases after
 * those of its results: plan_gradients.c cuts them, and engine/gradient.inc computes them. A small
 * float32 call has a second plan, in float64, for them (plan_wide.c). The inputs of a call with a
 * compute_dtype are rounded copies in the workspace (plan_narrow.c), and engine/narrow.inc computes
 * what follows its scores.
 */
#ifndef ATTN_PLAN_H
#define ATTN_PLAN_H

#include "base/tensor.h"
#include "bindings.h"
#include "memory_map.h"
#include "results.h"

/* ------------------------------------------------------------------------------------- matrices */

/* Q, K, V, past_K or past_V: the rows of all its batch items and heads. It is broadcast to those of
 * the call: all items share one, and so many query heads follow each other that share a head.
 * Distances are counted in elements of the plan's dtype. struct head says where the rows of a head
 * begin. */
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

/* A mask or bias that is broadcast to (batch, heads, n, m). Strides are counted in elements; a
 * stride is 0 where the tensor repeats. */
struct broadcast {
    bool given;
    size_t stride[4];
};

/* The rules that say which keys a query may attend to, and which bias its scores get. */
struct rules {
    bool causal;
    int64_t window[2];           /* -1: open */
    size_t *lengths;             /* one for each batch item; NULL if there are none */
    struct broadcast mask, bias; /* without a mask, key_padding is the mask */
    bool padding, padding_too;   /* there is key_padding; there is a mask beside it */
    size_t padding_item;         /* from one batch item of it to the next, or 0 */
    size_t keys;                 /* the keys that the rules are about */
};

/* A mask or bias that is made for extra keys: it has a row for each of these items, heads and
 * queries. */
struct extended {
    size_t items, heads, rows;
};

/* A result that the caller asked for. */
struct result {
    attn_result_tensor *parts; /* their `data` is what the caller sees; tasks take the bindings */
    size_t count;              /* parts that there are */
};

/* Rotary embedding. `given` is what the caller gave, with the defaults filled in. */
struct rotary {
    attn_rotary given; /* the plan owns its lists */
    size_t columns;    /* columns of each head that are rotated; 0: there is no rotary embedding */
    double factor;     /* of cos and sin */
    size_t table_rows, table_batch; /* rows of a table; from one batch item to the next, or 0 */
    attn_dtype positions_dtype;
    size_t positions_batch; /* from one batch item to the next, or 0 */
};

/* ---------------------------------------------------------------------------------- projections */

/* One matrix of weights: columns [column, column + cols) of the result are X W + b. W is number
 * `weights` of those that are bound, and b the next one. */
struct piece {
    size_t cols, column, weights;
};

/* X (rows, inner) times the weights of all heads, or of each head with its own, side by side: the
 * result is (rows, ld). */
struct projection {
    size_t rows, inner, ld;
    bool out_in;          /* W is (cols, inner); otherwise it is (inner, cols) */
    size_t panel;         /* W is in panels of so many columns and of all its rows; 0: it is not */
    struct piece *pieces; /* in the order of their columns */
    size_t count;         /* pieces that there are */
    size_t weights;       /* the first of those that are bound */
    const char *name;     /* name of the result in messages */
    /* A batch item has item_rows rows. In the result, `gap` rows for extra keys follow them. */
    size_t item_rows, gap;
    /* One task computes task_rows rows and task_columns columns of the result. */
    size_t task_rows, task_columns;
    size_t across; /* tasks that share the same rows */
    /* One call of BLAS multiplies (tile_rows, tile_inner) by (tile_inner, tile_columns). */
    size_t tile_rows, tile_inner, tile_columns;
    bool copies_tiles; /* a tile of the weights is copied before it is multiplied */
};

/* --------------------------------------------------------------------------- copies of inputs */

/* A float32 input of which a run makes a copy. */
struct copied_input {
    size_t which; /* see bound_input() */
    const float *from;
    const char *name;
    size_t count, at; /* its numbers, and the place of the copy among those of all inputs */
};

struct copies {
    struct copied_input *inputs; /* in the order of their copies */
    size_t count;                /* inputs that there are */
    size_t numbers;              /* of all copies */
};

/* A call with a compute_dtype. */
struct narrowing {
    const struct narrow_type *type; /* NULL: there is no compute_dtype */
    struct copies copies;           /* they are rounded */
    size_t memory;                  /* where they begin in the workspace */
};

/* --------------------------------------------------------------------------------- the schedule */

/* The phases of a run. All tasks of one phase may run at once and in any order. */
enum phase {
    PHASE_NARROW,  /* inputs are rounded to the compute_dtype */
    PHASE_PROJECT, /* Q, K and V are computed from X */
    PHASE_PREPARE, /* Q, K and V get biases, norms, rotary embedding and extra keys */
    PHASE_PACK,    /* keys are packed, matrices are copied to results, Q and K give moments */
    PHASE_ATTEND,  /* a task takes blocks of queries, each with all keys or a part of them */
    PHASE_MERGE,   /* the parts of the keys of a row become one */
    PHASE_WEIGH,   /* long rows get their weights, and sorted parts for top_k */
    PHASE_RANK,    /* long rows get top_k; a task computes a range of it */
    PHASE_OUT,     /* the output projection */
    PHASE_COUNT
};

/* What PHASE_PREPARE does, in this order. */
enum prepare {
    PREPARE_QUERIES, /* rows of Q get their bias, and are normalised and rotated */
    PREPARE_KEYS,    /* the same for K; a row is a position of a batch item, with all heads */
    PREPARE_VALUES,  /* rows of V get their bias */
    PREPARE_EXTRA,   /* the rows of extra keys in K and V; a row is a batch item */
    PREPARE_MASK,    /* rows of the mask for all keys */
    PREPARE_BIAS,    /* rows of the bias for all keys */
    PREPARE_DECAY,   /* sums of decays; a row is DECAY_KEYS keys of a head */
    PREPARE_COUNT
};

/* Which code computes a call. schedule.c decides. */
struct path {
    /* Stages of whole rows are results, or there is no softmax. Otherwise scores are computed tile
     * by tile, with online softmax. */
    bool materialized;
    /* Tiles become weights, so they are kept until the softmax of their row is known. */
    bool keeps_tiles;
    /* There are so many weights that they are written past the caches. */
    bool streams_weights;
    /* Rows are so long that parts of their keys are added up in double. */
    bool adds_parts;
    /* Only scale, ranges and a mask lie between score and softmax. */
    bool plain;
    /* There are so few queries, or there is so little work, that a kernel multiplies each row. */
    bool without_blas;
    /* The call is so small that it is computed in double, see small.inc. */
    bool small;
    /* PHASE_PACK packs the keys for all blocks: tile by tile, transposed. */
    bool packs;
    /* There are at most two blocks. Each packs a tile of keys when it comes to it. */
    bool packs_late;
    /* The keys are cut into parts, and PHASE_MERGE merges their partial results. */
    bool cut;
    /* Whole rows are too long to be kept: the keys are cut, and long.inc computes the parts. */
    bool long_rows;
};

/* How PHASE_ATTEND cuts the scores: a block is `rows` queries of one head, a tile of keys is `keys`
 * keys. schedule.c decides. */
struct tiling {
    /* Products have a right operand in panels of this many columns, see kernels.h. 0: OpenBLAS
     * computes the products. */
    size_t panel;
    size_t rows, keys;
    size_t ld;            /* from one row of a block of scores to the next, in numbers */
    size_t scratch_rows;  /* `rows` before blocks were made equal, so that the size of a scratch
                               does not grow with n */
    size_t tiles;         /* tiles of the keys of one head */
    size_t blocks;        /* blocks of the queries of one head */
    size_t splits;        /* parts of the keys, each in tasks of its own; 1: they are not cut */
    size_t split_keys;    /* keys of one such part */
    size_t part_keys;     /* keys of each part that one task adds up in double */
    size_t heads_in_turn; /* key heads whose blocks alternate, so that each thread keeps to one */
    size_t value_columns; /* columns of the values that are multiplied at once */
};

enum {
    COPY_NUMBERS = 1 << 17, /* the most numbers that are copied as one part */
    RANK_NUMBERS = 1 << 15, /* the most entries of a row of top_k that are found as one part */
};

/* Units of work that are cut into tasks. */
struct cut {
    size_t units, per_task, tasks;
};

/* Finds the units [*first, *end) of a task. */
static inline void units_of_task(const struct cut *cut, size_t task, size_t *first, size_t *end) {
    *first = task * cut->per_task;
    *end = end_of(*first, cut->per_task, cut->units);
}

/* The tasks of each phase, and the memory of a run. schedule.c decides. */
struct schedule {
    struct cut prepare[PREPARE_COUNT]; /* rows */
    double input_cost;                 /* of PHASE_PREPARE, and of the copies of PHASE_PACK */
    /* PHASE_PACK: first the tasks that pack. A part of the keys of a head is `tiles` tiles. */
    struct {
        struct cut all;
        size_t tiles, parts;
        size_t batch; /* numbers of packed keys of one batch item */
    } pack;
    /* PHASE_PACK: then the tasks that copy, for each result of RESULT_COPY in the order of the
     * table. The matrix of a head has `parts` parts. */
    struct {
        struct cut all;
        size_t parts;
    } copy[RESULT_COPIES];
    /* PHASE_PACK: then the tasks that make the moments of Q, K and past_K. */
    size_t moment_tasks[3];
    struct cut attend; /* PHASE_ATTEND: blocks; a block counts once for each split */
    /* PHASE_MERGE: the output of a row is merged in `parts` parts of `columns` columns. A partial
     * result has `partial` numbers. */
    struct {
        struct cut all;
        size_t columns, parts, partial;
    } merge;
    /* PHASE_WEIGH: first `tasks` tasks, which take the same blocks as PHASE_ATTEND. Then tasks that
     * each make mean_keys weights of the mean over heads, for one query; mean_parts tasks make a
     * row. */
    struct {
        size_t tasks, mean_keys, mean_parts;
    } weigh;
    /* PHASE_RANK: each part of a row has a sorted run of at most `run` entries. The top_k of a row
     * is made in `parts` parts of RANK_NUMBERS entries. */
    struct {
        struct cut all;
        size_t run, parts;
    } rank;
    size_t weight_numbers; /* numbers of the largest tile of weights that a task copies */
    size_t wide_numbers;   /* numbers of the longest row that a small call converts to double */
    size_t tasks[PHASE_COUNT];
    struct workspace_map workspace;
    struct scratch_map scratch;
    double columns;      /* d + d_v of an average head */
    double read_columns; /* the same, without d_v if there is no output */
    double cost;         /* of a run, in multiply-adds, see cost.c */
};

/* -------------------------------------------------------------------------------- softmax alone */

enum {
    SOFTMAX_COLUMNS = 256 /* the most columns of one task of softmax alone */
};

/* Softmax alone, along the middle of (outer, count, inner). A slice is the `count` numbers that sum
 * to 1; slices beside each other are columns. */
struct slices {
    size_t outer, count, inner;
    size_t columns; /* columns of one unit of work */
    size_t across;  /* units of work beside each other in `inner` */
    size_t chunk;   /* numbers of a slice that one unit takes */
    size_t chunks;  /* units of work along a slice */
    struct cut all; /* the units of work */
};

/* ------------------------------------------------------------------------------- the attention */

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

/* The logarithms of the forget gates, see engine/decay.inc. */
struct decay {
    size_t items, heads; /* 1, or those of the call */
    size_t stride[3];    /* from one item, head or key to the next, in elements */
};

enum {
    DECAY_KEYS = 1 << 16 /* the most keys whose decays one task adds */
};

/* The keys without a position: bias_K and zero_key. If there are any, the engine's rules are one
 * mask and one bias for all keys, which each run makes of the `given` rules. */
struct extra_keys {
    size_t count;
    struct rules given;
    struct extended mask, bias;
};

enum {
    PLAN_FEW_PARTS = 2 /* a call of one head with so few results needs no memory but its plan */
};

/* The results of a plan. */
struct result_set {
    uint64_t wanted; /* ATTN_WANT bits */
    bool mean;       /* the wanted weights are the mean over heads */
    size_t top_k;
    size_t head_rows; /* rows from one head to the next: n, or those of all sequences */
    struct result of[ATTN_RESULT_COUNT];
    attn_result_tensor *parts;              /* those of all results */
    attn_result_tensor few[PLAN_FEW_PARTS]; /* the parts, if there are not more */
    size_t bytes; /* of a buffer for all results; SIZE_MAX if it does not fit a size_t */
};

/* The projections of a plan. Their order is that of Q, K and V in a call. */
enum {
    PROJECT_Q,
    PROJECT_K,
    PROJECT_V,
    PROJECT_INPUTS,
    PROJECT_OUT = PROJECT_INPUTS,
    PROJECT_COUNT
};

/* The phases of the gradients. All but PHASE_STEP are one phase. */
enum gradient_phase {
    GRADIENT_OUT,     /* gradients of the heads' outputs, of W_O and of b_O; numbers are cleared */
    GRADIENT_START,   /* `shift` of each query */
    GRADIENT_STEP,    /* what pairs of stripes and blocks give to the gradients of Q, K and V */
    GRADIENT_COPY,    /* gradients of projected Q, K and V are copied to results */
    GRADIENT_PREPARE, /* rotary embedding and norms */
    GRADIENT_PROJECT, /* gradients of X, of the contexts and of their weights */
    GRADIENT_END,     /* sums over rows; all gradients are checked */
    GRADIENT_COUNT
};

/* The matrices of numbers that begin as 0, and to which tasks add. Those of SUMS_DECAY are double.
 */
enum {
    SUMS_Q,
    SUMS_K,
    SUMS_V,
    SUMS_PAST_K,
    SUMS_PAST_V,
    SUMS_BIAS,
    SUMS_DECAY,
    SUMS_COUNT
};

/* Blocks of a matrix, which tasks compute. */
struct blocks {
    size_t rows, columns; /* of a block */
    size_t across;        /* blocks beside each other */
    struct cut all;
};

/*
 * The gradients of a call. plan_gradients.c decides how they are cut. A unit is a set of heads and
 * batch items whose gradients add up somewhere: they share rows of Q, K or V, or a bias. Each of
 * these pairs is a member of its unit. The keys of a member are cut into stripes, and its queries
 * into blocks. A task computes what a stripe of one unit and a block give to all gradients. No two
 * tasks of a phase have the same block or the same stripe of a unit: in turn t, stripe s takes
 * block (s + t) mod turns. So tasks may add to the gradients without another copy of them, and the
 * order of the sums is fixed.
 */
struct gradients {
    bool wanted;
    attn_upstream given;
    size_t items, heads; /* of a unit */
    size_t units, members;
    size_t rows, keys;           /* of a block and of a stripe */
    size_t blocks, stripes;      /* of a member */
    size_t turns;                /* the larger of both */
    size_t tile_rows, tile_keys; /* scores that are computed at once */
    size_t ld;                   /* from one row of them to the next */
    size_t together;             /* members of which a task takes its turn */
    struct broadcast bias;       /* the given one */
    size_t bias_keys;            /* the keys that have a bias */
    struct cut start;            /* queries that get their `shift` */
    size_t bias_numbers;         /* of its gradient, unless that is a sum over whole rows */
    struct cut copies[3];        /* heads of projected Q, K and V whose gradients are results */
    bool prepares[2];         /* have Q and K to be rotated back, or norms to be differentiated? */
    int input[PROJECT_COUNT]; /* the input of each projection: that of the first with the same */
    struct blocks inputs[PROJECT_COUNT];  /* of (rows, inner) */
    struct blocks weights[PROJECT_COUNT]; /* of (inner, ld) */
    struct cut biases[PROJECT_COUNT];     /* columns */
    size_t steps;                         /* the phases of GRADIENT_STEP */
    size_t phases;                        /* they follow all others; 0 if no gradients are wanted */
    size_t tasks[GRADIENT_COUNT];
    size_t clears[SUMS_COUNT];      /* tasks that clear numbers */
    size_t ends[ATTN_RESULT_COUNT]; /* tasks of GRADIENT_END */
    double cost_of_pairs;           /* if every query sees every key */
    double cost;                    /* of everything else */
};

/* The plan in float64 of the gradients of a small call, and the copies of its inputs. */
struct wide {
    attn_plan *plan; /* owned */
    struct copies copies;
    double *numbers; /* of all copies */
};

/* ----------------------------------------------------------------------------- packed sequences */

/* The rows of a sequence; or some rows without keys or without queries, whose results are zeros. */
struct packed_rows {
    size_t index; /* of the sequence */
    size_t q, k;  /* its first rows in Q and in K */
    size_t n, m;
};

/* The inputs of which each sequence has rows of its own. */
enum {
    ROWS_Q,
    ROWS_K,
    ROWS_V,
    ROWS_DECAY,
    ROWS_POSITIONS,
    ROWS_GRAD_OUTPUT,
    ROWS_GRAD_LSE,
    ROWS_COUNT
};

/*
 * Sequences of the same lengths, which have one plan. Each task binds the rows of its sequence to
 * it. A short sequence is computed by one task, from its first phase to its last, with all memory
 * in the scratch. A long one has its own tasks in each phase, and a workspace.
 */
struct length_class {
    attn_plan *plan; /* owned; NULL: these are rows whose results are zeros */
    size_t first, count;
    bool is_long;
    struct cut runs;  /* of short sequences */
    size_t sums;      /* the place of the first run, or long sequence, among the shared sums */
    size_t workspace; /* of the first long sequence, in that of the call; or in the scratch */
    /* In the scratch: the rows of the wide plan, its results and its workspace. */
    struct {
        size_t rows[ROWS_COUNT], results, workspace;
    } wide;
};

/*
 * The sequences of a call. PHASE_NARROW is that of the call as a whole. PHASE_SHORT has the runs
 * of short sequences, and clears the shared sums of the long ones. Phase p + 1 has the tasks of
 * phase p of all long sequences, which have no PHASE_NARROW. The last phase adds up the shared
 * gradients, if there are any.
 */
enum {
    PHASE_SHORT = PHASE_NARROW + 1
};

struct sequences {
    size_t count;
    struct packed_rows *rows; /* in the order of their lengths */
    size_t class_count, short_classes;
    struct length_class *classes; /* first those of short sequences */
    size_t phases;
    /* The tasks of each phase that come before those of each class, and all tasks: of PHASE_SHORT
     * from the first class on, of the phases after it from the first long one on. */
    size_t **first_task;
    size_t shared;   /* numbers of shared gradients */
    size_t places;   /* so many runs and long sequences add to sums of their own */
    size_t sums;     /* where these begin in the workspace */
    struct cut adds; /* the shared numbers */
};

/* ------------------------------------------------------------------------------------- the plan */

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
    /* Makes what needs all tasks; NULL: there is nothing. */
    attn_status (*end)(const attn_plan *plan, const struct bindings *bindings, attn_error *error);
};

/* plan_kind_empty has no query, no key or no batch item. The engine defines the kinds. */
extern const struct plan_kind plan_kind_softmax, plan_kind_attention, plan_kind_empty,
    plan_kind_linear, plan_kind_sequences;

struct attn_plan {
    const struct plan_kind *kind;
    attn_dtype dtype;
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
    size_t weights; /* of projections that are bound, with their biases */
    struct rules rules;
    struct extra_keys extra;
    struct decay decay;
    bool whole_norm_q, whole_norm_k; /* it goes over the columns of all heads */
    double norm_epsilon;
    struct rotary rotary;
    struct projection project[PROJECT_COUNT]; /* one that the call lacks has no pieces */
    struct narrowing narrow;
    struct bindings bindings; /* what the caller bound; each task gets it beside the plan */
    struct result_set results;
    struct gradients gradients;
    struct wide *wide;           /* of a small call whose gradients are wanted; or NULL */
    struct linear *linear;       /* of linear attention, see plan_linear.h; NULL: this is none */
    struct sequences *sequences; /* NULL: there are none. Such a plan has no schedule of its own */
    struct path path;
    struct tiling tiling;
    struct schedule schedule;
    struct plan_memory *memory; /* of plan_alloc(), and its bytes */
    size_t bytes;
};

/* Results for which the scores of all keys are computed, those of forbidden keys, too. */
#define STAGES_OF_ALL_KEYS                                                                         \
    (ATTN_WANT(SCORES) | ATTN_WANT(SCALED_SCORES) | ATTN_WANT(MASKED_SCORES) |                     \
     ATTN_WANT(STATISTICS))

/* Returns the tasks of the gradients of a projection. */
static inline size_t projection_tasks(const struct gradients *g, int which) {
    return g->inputs[which].all.tasks + g->weights[which].all.tasks + g->biases[which].tasks;
}

/* Did the caller give an input? */
static inline bool plan_has(const attn_plan *plan, int input) {
    return (plan->given >> input & 1) != 0;
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

static inline bool plan_wants_top_k(const attn_plan *plan) {
    return plan_wants(plan, ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS));
}

/* Are rows of Q (or K) normalised or rotated? */
static inline bool plan_turns(const attn_plan *plan, int norm) {
    return plan_has(plan, norm) || plan->rotary.columns > 0;
}

/* Do rows of Q, or of new keys, change before they are multiplied? */
static inline bool plan_prepares_queries(const attn_plan *plan) {
    return plan_has(plan, INPUT_B_Q) || plan_turns(plan, INPUT_NORM_Q);
}

static inline bool plan_prepares_keys(const attn_plan *plan) {
    return plan_has(plan, INPUT_B_K) || plan_turns(plan, INPUT_NORM_K);
}

/* Returns the place of a row of X in the result of a projection. */
static inline size_t projected_row(const struct projection *p, size_t row) {
    return p->gap == 0 ? row : row + row / p->item_rows * p->gap;
}

/* Returns the kind of phase `phase` of the gradients. */
static inline enum gradient_phase gradient_phase_of(const struct gradients *g, size_t phase) {
    return phase < GRADIENT_STEP              ? (enum gradient_phase)phase
           : phase < GRADIENT_STEP + g->steps ? GRADIENT_STEP
                                              : (enum gradient_phase)(phase + 1 - g->steps);
}

/* Is a gradient made by GRADIENT_END? */
static inline bool gradient_is_sum(const attn_plan *plan, attn_result which) {
    return (which == ATTN_RESULT_GRAD_BIAS && plan->gradients.bias_numbers == 0) ||
           (result_is(which, RESULT_OF_BIAS) && !plan->form.projected) ||
           result_is(which, RESULT_SUM);
}

/* Returns the sums of gradients of logits over the queries, one for each key of each head, of which
 * the gradient of the decays is made. */
static inline size_t sums_of_columns(const attn_plan *plan) {
    return plan_wants(plan, ATTN_WANT(GRAD_DECAY)) ? plan->batch * plan->heads * plan->m : 0;
}

/* Returns the tiles of keys of a call whose gradients go through sticks; otherwise 0. */
static inline size_t stick_tiles(const attn_plan *plan) {
    return plan->gradients.wanted && plan->options.normalization == ATTN_STICK_BREAKING
               ? ceil_div(plan->m, plan->gradients.tile_keys)
               : 0;
}

/* Is the gradient of Q (or K, V) kept in the workspace, because it is no result as it is? */
static inline bool gradient_is_kept(const attn_plan *plan, int which) {
    static const attn_result results[] = {ATTN_RESULT_GRAD_Q, ATTN_RESULT_GRAD_K,
                                          ATTN_RESULT_GRAD_V};
    static const uint64_t others[] = {ATTN_WANT(GRAD_NORM_Q) | ATTN_WANT(GRAD_B_Q),
                                      ATTN_WANT(GRAD_NORM_K) | ATTN_WANT(GRAD_B_K),
                                      ATTN_WANT(GRAD_B_V)};
    return plan->gradients.wanted &&
           (plan->form.projected || (plan_wants(plan, others[which] | ATTN_WANT(GRAD_X)) &&
                                     !plan_wants(plan, UINT64_C(1) << results[which])));
}

/* Are rows of Q (or K) kept as they were before their norm? */
static inline bool raw_is_kept(const attn_plan *plan, int norm) {
    return plan->gradients.wanted && plan->form.projected && plan_has(plan, norm);
}

/* Returns the data of a part of a result. */
static inline void *bound_part(const attn_plan *plan, const struct bindings *bindings,
                               attn_result which, size_t part) {
    return part == 0 ? bindings->results[which]
                     : bindings->parts[&plan->results.of[which].parts[part] - plan->results.parts];
}

/* Returns the sums to which a sequence adds its part of a gradient, or NULL. */
static inline double *gradient_shared(const attn_plan *plan, const struct bindings *bindings,
                                      attn_result which) {
    double *sums = bindings->shared;
    if (sums == NULL || !result_is(which, RESULT_SHARED)) {
        return NULL;
    }
    for (int r = 0; r < (int)which; r++) {
        const struct result *before = &plan->results.of[r];
        sums += result_is((attn_result)r, RESULT_SHARED) && before->count > 0
                    ? part_numbers(before->parts)
                    : 0;
    }
    return sums;
}

/* The first class that has tasks in a phase of the sequences. */
static inline size_t sequences_first(const struct sequences *s, size_t phase) {
    return phase == PHASE_SHORT ? 0 : s->short_classes;
}

/* Returns the position of query i of batch item b. This is the only place that knows it: causal,
 * window, ALiBi and rotary embedding count from here. */
static inline int64_t plan_position(const attn_plan *plan, size_t b, size_t i) {
    const int64_t end = plan->form.ends == NULL ? 0 : (int64_t)plan->form.ends[b];
    return (plan->form.merged ? 0 : (int64_t)i) + plan->form.position_offset + end;
}

/* The rows of present_K and present_V: all keys that have a position. */
static inline size_t present_rows(const attn_plan *plan) {
    return plan->form.past + plan->form.new_keys;
}

/* The form of a result of RESULT_COPY, or of the gradient of Q, K or V. */
struct copy_form {
    bool query, value, present;
    size_t items, heads, rows; /* batch items, heads or key heads, and the rows of each */
};

static inline struct copy_form copy_form_of(const attn_plan *plan, attn_result which) {
    struct copy_form form = {.query = result_is(which, RESULT_OF_Q),
                             .value = result_is(which, RESULT_OF_V),
                             .present =
                                 which == ATTN_RESULT_PRESENT_K || which == ATTN_RESULT_PRESENT_V};
    const struct operand *of = form.query ? &plan->in.q : form.value ? &plan->in.v : &plan->in.k;
    form.items = of->items;
    form.heads = of->heads;
    form.rows = form.query ? plan->n : form.present ? present_rows(plan) : plan->form.new_keys;
    return form;
}

/* The columns of head h of such a result. */
static inline size_t copy_columns(const attn_plan *plan, const struct copy_form *form, size_t h) {
    const struct head *head = &plan->head[h * (plan->heads / form->heads)];
    return form->value ? head->d_v : head->d;
}

/* The place of batch item b among the packed keys. */
static inline size_t packed_item(const attn_plan *plan, size_t b) {
    return plan->in.k.items > 1 ? b : 0;
}

/* Returns how many heads of the call share a head of an operand. They follow each other. */
static inline size_t heads_of_one(const attn_plan *plan, const struct operand *o) {
    return plan->heads / o->heads;
}

/* Is a key of a batch item excluded by lengths or key_padding, with past keys counted, and does no
 * result show its numbers? With `shared` it must be excluded for all batch items. */
static inline bool plan_ignores(const attn_plan *plan, const struct bindings *bindings, bool shared,
                                size_t item, size_t key) {
    const struct rules *rules = &plan->rules;
    const unsigned char *padding = bindings->inputs[INPUT_KEY_PADDING];
    const uint64_t shown = ATTN_WANT(K) | ATTN_WANT(V) | ATTN_WANT(PRESENT_K) |
                           ATTN_WANT(PRESENT_V) | ATTN_WANT(SCORES) | ATTN_WANT(SCALED_SCORES) |
                           ATTN_WANT(STATISTICS);
    if (plan_wants(plan, shown) || key >= rules->keys) {
        return false;
    }
    for (size_t b = shared ? 0 : item; b < (shared ? plan->batch : item + 1); b++) {
        const bool exists = !rules->padding || padding[b * rules->padding_item + key] != 0;
        if (exists && (rules->lengths == NULL || key < rules->lengths[b])) {
            return false;
        }
    }
    return true;
}

#endif
