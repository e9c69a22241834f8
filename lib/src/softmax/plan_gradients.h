/*
 * plan_gradients.h - the gradients of a plan of softmax: the phases and tasks that compute them
 * after those of the results, and which of them the workspace keeps.
 */
#ifndef ATTN_PLAN_GRADIENTS_H
#define ATTN_PLAN_GRADIENTS_H

#include "bindings.h"
#include "partition.h"
#include "softmax/plan_multihead.h"

/* The phases of the gradients. All but GRADIENT_START and GRADIENT_STEP are one phase. */
enum gradient_phase {
    GRADIENT_OUT,     /* gradients of the heads' outputs, of W_O and of b_O; numbers are cleared */
    GRADIENT_GATE,    /* gradients of the gate, and of what it is multiplied by */
    GRADIENT_START,   /* `delta` of each query */
    GRADIENT_STEP,    /* what blocks of queries and keys give to the gradients of Q, K and V */
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
    struct partition all;
};

/*
 * The gradients of a call. plan_gradients.c decides how they are cut. A pair is a head of a batch
 * item. A group has the pairs whose gradients add up somewhere: they share rows of Q, K or V, or a
 * bias. The keys and the queries of a pair are cut into blocks. A task computes what a block of
 * keys and a block of queries give to all gradients. No two tasks of a phase have the same block of
 * keys or of queries of a group: in round r, block k of the keys takes block (k + r) mod rounds of
 * the queries. So tasks may add to the gradients without another copy of them, and the order of
 * the sums is fixed.
 */
struct gradients {
    bool wanted;
    attn_upstream given;
    size_t items, heads;             /* of a group */
    size_t groups, pairs;            /* all groups, and the pairs of each */
    size_t rows, keys;               /* of a block of queries, and of one of keys */
    size_t query_blocks, key_blocks; /* of a pair */
    size_t rounds;                   /* the larger of both */
    size_t tile_rows, tile_keys;     /* scores that are computed at once */
    size_t ld;                       /* from one row of them to the next */
    size_t pairs_per_task;           /* pairs whose blocks a task takes in a round */
    struct broadcast bias;           /* the given one */
    size_t bias_keys;                /* the keys that have a bias */
    struct partition start;          /* queries that get their `delta` */
    size_t starts, start_keys;       /* phases of GRADIENT_START, and the keys whose sticks each
                                        breaks: the last ones first */
    size_t bias_numbers;             /* of its gradient, unless that is a sum over whole rows */
    struct partition copies[3];      /* heads of projected Q, K and V whose gradients are results */
    bool prepares[3]; /* have Q, K and V to be rotated back, or norms to be differentiated? */
    int input[PROJECT_COUNT]; /* the input of each projection: that of the first with the same */
    struct blocks inputs[PROJECT_COUNT];    /* of (rows, inner) */
    struct blocks weights[PROJECT_COUNT];   /* of (inner, ld) */
    struct partition biases[PROJECT_COUNT]; /* columns */
    size_t steps;  /* phases of GRADIENT_STEP: all rounds of the first pairs_per_task pairs, then of
                     the next ones */
    size_t phases; /* they follow all others; 0 if no gradients are wanted */
    size_t tasks[GRADIENT_COUNT];
    size_t clears[SUMS_COUNT];      /* tasks that clear numbers */
    size_t ends[ATTN_RESULT_COUNT]; /* tasks of GRADIENT_END */
    double dense_cost;              /* of the blocks, if every query sees every key */
    double cost;                    /* of everything else */
};

/* Returns the tasks of the gradients of a projection. */
static inline size_t projection_tasks(const struct gradients *g, int which) {
    return g->inputs[which].all.tasks + g->weights[which].all.tasks + g->biases[which].tasks;
}

/* Returns the kind of phase `phase` of the gradients. */
static inline enum gradient_phase gradient_phase_of(const struct gradients *g, size_t phase) {
    const size_t steps = GRADIENT_START + g->starts, end = steps + g->steps;
    return phase < GRADIENT_START ? (enum gradient_phase)phase
           : phase < steps        ? GRADIENT_START
           : phase < end          ? GRADIENT_STEP
                                  : (enum gradient_phase)(phase - end + GRADIENT_COPY);
}

/* Checks whether a call has what the wanted gradients need. */
attn_status plan_check_gradients(attn_plan *plan, const attn_options *o, attn_error *error);

/* Checks and binds the given gradients of results. */
attn_status plan_upstream(attn_plan *plan, const attn_options *o, attn_error *error);

/* Cuts the computation of the gradients. The widest row has d numbers. */
void plan_cut_gradients(attn_plan *plan, size_t d);

/* Is a gradient made by GRADIENT_END? */
bool gradient_is_sum(const attn_plan *plan, attn_result which);

/* Returns the sums of gradients of logits over the queries, one for each key of each head, of which
 * the gradient of the decays is made. */
size_t sums_of_columns(const attn_plan *plan);

/* Returns the tiles of keys of a call whose gradients go through sticks; otherwise 0. */
size_t stick_tiles(const attn_plan *plan);

/* Is the gradient of Q (or K, V) kept in the workspace, because it is no result as it is? */
bool gradient_is_kept(const attn_plan *plan, int which);

/* Are rows of Q (or K, V) kept as they were before their norm? */
bool raw_is_kept(const attn_plan *plan, int norm);

/* Returns the sums to which a sequence adds its part of a gradient, or NULL. */
double *gradient_shared(const attn_plan *plan, const struct bindings *bindings, attn_result which);

#endif
