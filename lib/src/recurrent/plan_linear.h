/*
 * plan_linear.h - what a plan of linear attention knows beside its matrices. plan_linear.c fills
 * it, and recurrent/linear.c runs it.
 *
 * A state is computed for all positions of a sequence: a batch item or a packed sequence. Its
 * columns are those of V, and they do not depend on each other, so they may be cut into tiles. A
 * long sequence is cut into segments, each of which is a phase; the workspace keeps the states
 * between them. Gradients are computed in the same segments, from the last one to the first.
 */
#ifndef ATTN_PLAN_LINEAR_H
#define ATTN_PLAN_LINEAR_H

#include "plan.h"

enum {
    /* Fewer positions are computed one by one: a chunk would cost more than it saves, and outputs
     * of so few positions may all be sums that cancel. */
    LINEAR_FEW_POSITIONS = 16
};

/* The positions of a batch item, or of a sequence. */
struct linear_sequence {
    size_t item;  /* of the batch, or the index of the sequence */
    size_t first; /* its first row in Q, K and V, counted from that of its batch item */
    size_t rows;
};

/* The inputs that have gradients. */
enum linear_input {
    LINEAR_Q,
    LINEAR_K,
    LINEAR_V,
    LINEAR_DECAY,
    LINEAR_BETA,
    LINEAR_PAST,
    LINEAR_INPUTS
};

/*
 * The gradients of linear attention. Some columns of a tile are computed at a time. Their states
 * are computed again for an interval of positions, from a checkpoint at its begin, and kept until
 * the gradients have gone back through them. Heads, tiles and sequences that share an input each
 * have a partial gradient in the workspace, and the last phase adds them.
 */
struct linear_gradients {
    bool wanted;
    size_t columns;               /* that are computed at a time */
    size_t interval, checkpoints; /* positions of an interval, and intervals of a segment */
    /* Places in the workspace, in doubles. `states` has the gradients of the states, and so the
     * partial gradients of past_state. A partial gradient that is not wanted has the place
     * SIZE_MAX. */
    size_t states, partials[LINEAR_INPUTS];
    struct partition sums[LINEAR_INPUTS]; /* rows of each gradient */
};

struct linear {
    attn_linear given;
    size_t d, d_v;
    size_t states, group;         /* states, and the query heads that read each of them */
    bool corrects;                /* the delta rules */
    bool by_column;               /* each row of a state has a decay of its own */
    bool packed_sequences;        /* they are packed sequences, and not batch items */
    bool stacked;                 /* their heads are an axis: (n,heads,d) */
    struct broadcast decay, beta; /* strides of a batch item, a state, a position, a column of K */
    size_t past_item; /* from the states of one sequence of past_state to those of the next, or 0 */

    struct linear_sequence *sequences; /* the longest first */
    size_t count;
    size_t *item_rows; /* the rows of each batch item; NULL with sequences */
    size_t *starts;    /* of sequences in their order, and the end of the last one; or NULL */
    size_t rows;       /* positions of a segment */
    size_t segments;   /* at least 1 */
    /* The number of sequences that have positions in each segment. The first has all of them. */
    size_t *longer;
    size_t tiles, columns; /* tiles of a state, and the columns of each */
    bool exact;            /* in double, because little is to be computed, or states are results */
    /* Positions that are computed together, see chunks.inc. 0: they are computed one by one. */
    size_t chunk;
    size_t per_task; /* tiles of states that a task computes */
    /* Blocks of positions of a batch item whose decays and betas are checked, and whose results are
     * cleared if they are no positions of its sequence. */
    size_t check_rows, check_blocks;
    struct partition checks;
    /* Blocks of queries whose weights are computed, of `block` rows each. */
    size_t block, blocks;
    struct partition weights;
    struct linear_gradients gradients;
};

/* Returns the given input that has a gradient, or NULL. */
static inline const attn_tensor *linear_input_of(const attn_plan *plan, attn_result gradient) {
    const attn_linear *given = &plan->linear->given;
    return gradient == ATTN_RESULT_GRAD_Q            ? given->q
           : gradient == ATTN_RESULT_GRAD_K          ? given->k
           : gradient == ATTN_RESULT_GRAD_V          ? given->v
           : gradient == ATTN_RESULT_GRAD_DECAY      ? plan->options.decay
           : gradient == ATTN_RESULT_GRAD_BETA       ? given->beta
           : gradient == ATTN_RESULT_GRAD_PAST_STATE ? given->past_state
                                                     : NULL;
}

/* Are chunks computed in double at once? */
static inline bool linear_in_double(const attn_plan *plan) {
    return plan->dtype == ATTN_FLOAT64 || plan->linear->gradients.wanted;
}

/* Is a segment computed: for outputs or states, or for the gradients of the next segment? */
static inline bool linear_runs(const attn_plan *plan, size_t segment) {
    const struct linear *l = plan->linear;
    return plan_wants(plan, ATTN_WANT(OUTPUT) | ATTN_WANT(PRESENT_STATE) | ATTN_WANT(STATES)) ||
           (l->gradients.wanted && segment + 1 < l->segments);
}

/* The tasks of a segment that is computed, without those of the weights. */
static inline size_t linear_segment_tasks(const struct linear *l, size_t segment) {
    return ceil_div(l->longer[segment] * l->states * l->tiles, l->per_task);
}

/* The scratch of a task that computes positions one by one, in doubles: a tile of a state, its
 * rows of Q and K and their decays, and rows of V and u. */
static inline size_t linear_rows_numbers(const struct linear *l) {
    return l->d * l->columns + 3 * l->d + 2 * l->columns;
}

/* The scratch of a task of the gradients, in doubles: states of some columns of a tile at the
 * begin of each interval and before and after each position of one, and its gradient; rows of K and
 * their gates, and rows of V and u, of an interval; and rows of gradients. */
static inline size_t linear_backward_numbers(const struct linear *l) {
    const struct linear_gradients *g = &l->gradients;
    return (g->checkpoints + g->interval + 2) * l->d * g->columns +
           2 * g->interval * (l->d + g->columns) + 3 * (l->d + g->columns);
}

/* The scratch of a task that adds partial gradients, in doubles: a row of a gradient, and one of Q
 * or K. */
static inline size_t linear_sum_numbers(const struct linear *l) {
    return size_max(2 * l->d, l->d_v);
}

/*
 * The scratch of a task that computes chunks, in numbers of `real`, or of double where that is
 * said. A panel has P columns, see kernels.h; C is the rows of a chunk, and C_P is the columns of
 * its panels; S_P is the columns of the panels of a tile, and W the larger of both. An area
 * X(name, type, count) begins at a multiple of ATTN_ALIGNMENT bytes.
 */
/* clang-format off */
#define ATTN_CHUNK_AREAS(X)                                                                        \
    X(state, real, d * S_P)          /* in panels */                                               \
    X(low, real, d * S_P)            /* what the numbers of `state` lack */                        \
    X(queries, real, C * d)          /* rows of Q */                                               \
    X(keys, real, C * d)             /* rows of K */                                               \
    X(left, real, C * d)             /* such rows, decayed */                                      \
    X(right, real, C * d)            /* such rows, decayed, of which `transposed` is made */       \
    X(transposed, real, W_T)         /* rows of K in panels, transposed or as they are */          \
    X(gates, double, C * (by_column ? d : 1))                                                      \
    X(cumulative, double, C + d + P) /* products of gates, or a row */                             \
    X(row_gates, real, C)            /* products of the gates of whole rows */                     \
    X(weights, real, C * C_P)        /* of the rows of a chunk and its keys */                     \
    X(minus_l, real, C * C_P)        /* -beta times the products of its keys */                    \
    X(values, real, C * W)           /* u, in panels */                                            \
    X(mixed, real, C * W)            /* rows as long as those of a tile */                         \
    X(row, real, d + S_P)            /* one row of an input */
/* clang-format on */

#define ATTN_CHUNK_OFFSET(name, type, count) size_t name;

/* Offsets in bytes. */
struct chunk_map {
    ATTN_CHUNK_AREAS(ATTN_CHUNK_OFFSET)
    size_t bytes;
};

/* Returns the most rows of a chunk, or of a block of weights, whose task has the same areas. */
static inline size_t chunk_rows(const struct linear *l) {
    return size_max(l->chunk, l->block);
}

/* Lays out the scratch for numbers of `size` bytes. No area is larger than a few MiB. */
static inline struct chunk_map chunk_map(const struct linear *l, size_t size, size_t P) {
    const size_t d = l->d, C = chunk_rows(l), C_P = ceil_div(C, P) * P,
                 S_P = ceil_div(l->columns, P) * P, W = size_max(S_P, C_P),
                 W_T = size_max(C_P * d, C * ceil_div(d, P) * P);
    const bool by_column = l->by_column;
    struct chunk_map map = {0};
#define ATTN_CHUNK_PLACE(name, type, count)                                                        \
    map.name = map.bytes;                                                                          \
    map.bytes += ceil_div((count) * (#type[0] == 'd' ? sizeof(double) : size), ATTN_ALIGNMENT) *   \
                 ATTN_ALIGNMENT;
    ATTN_CHUNK_AREAS(ATTN_CHUNK_PLACE)
#undef ATTN_CHUNK_PLACE
    return map;
}

#endif
