/*
 * plan_linear.h - what a plan of linear attention knows beside its matrices. plan_linear.c fills
 * it, and engine/linear.c runs it.
 *
 * A state is computed for all positions of a line: a batch item or a packed sequence. Its columns
 * are those of V, and they do not depend on each other, so they may be cut into bands. A long line
 * is cut into segments, each of which is a phase; the workspace keeps the states between them.
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
struct line {
    size_t item;  /* of the batch, or the index of the sequence */
    size_t first; /* its first row in Q, K and V, counted from that of its batch item */
    size_t rows;
};

struct linear {
    attn_linear given;
    size_t d, d_v;
    size_t states, group; /* states, and the query heads that read each of them */
    bool corrects;        /* the delta rules */
    bool by_column;       /* each row of a state has a decay of its own */
    bool sequences;       /* the lines are packed sequences */
    /* Strides of a batch item, a state, a position, and a column of K; without data if not given */
    struct broadcast decay, beta;
    const void *past;
    size_t past_item; /* from the states of one line to those of the next, or 0 */

    struct line *lines; /* the longest first */
    size_t count;
    size_t *starts;  /* of sequences in their order, and the end of the last one; or NULL */
    size_t rows;     /* positions of a segment */
    size_t segments; /* at least 1 */
    size_t *longer;  /* for each segment, the lines that have positions in it; all have the first */
    size_t bands, columns; /* bands of a state, and the columns of each */
    bool exact;            /* in double, because little is to be computed, or states are results */
    /* Positions that are computed together, see chunks.inc. 0: they are computed one by one. */
    size_t chunk;
    size_t per_task; /* bands of states that a task computes */
    /* Blocks of positions of a batch item whose decays and betas are checked, and whose results are
     * cleared if they are no positions of its line. */
    size_t check_rows, check_blocks;
    struct cut checks;
    /* Blocks of queries whose weights are computed, of `block` rows each. */
    size_t block, blocks;
    struct cut weights;
};

/* The first phase checks numbers, and each of the others is a segment. The weights belong to the
 * first segment. */
static inline size_t linear_phases(const struct linear *l) {
    return 1 + l->segments;
}

/* Are outputs or states computed? */
static inline bool linear_runs(const attn_plan *plan) {
    return plan_wants(plan, ATTN_WANT(OUTPUT) | ATTN_WANT(PRESENT_STATE) | ATTN_WANT(STATES));
}

/* The tasks of a segment, without those of the weights. */
static inline size_t linear_segment_tasks(const attn_plan *plan, size_t segment) {
    const struct linear *l = plan->linear;
    return linear_runs(plan) ? ceil_div(l->longer[segment] * l->states * l->bands, l->per_task) : 0;
}

static inline size_t linear_tasks(const attn_plan *plan, size_t phase) {
    const struct linear *l = plan->linear;
    return phase == 0 ? l->checks.tasks
                      : linear_segment_tasks(plan, phase - 1) + (phase == 1 ? l->weights.tasks : 0);
}

/* The scratch of a task that computes positions one by one, in doubles: a band of a state, its
 * rows of Q and K and their decays, and rows of V and u. */
static inline size_t linear_rows_numbers(const struct linear *l) {
    return l->d * l->columns + 3 * l->d + 2 * l->columns;
}

/*
 * The scratch of a task that computes chunks, in numbers of `real`, or of double where that is
 * said. A panel has P columns, see kernels.h; C is the rows of a chunk, and C_P is the columns of
 * its panels; S_P is the columns of the panels of a band, and W the larger of both. An area
 * X(name, type, count) begins at a multiple of ATTN_ALIGNMENT bytes.
 */
/* clang-format off */
#define ATTN_CHUNK_AREAS(X)                                                                        \
    X(state, real, d * S_P)     /* in panels */                                                    \
    X(rest, real, d * S_P)      /* what the numbers of `state` lack */                             \
    X(sum, real, d * P)         /* what a chunk adds to a panel of the state */                    \
    X(queries, real, C * d)     /* rows of Q */                                                    \
    X(keys, real, C * d)        /* rows of K */                                                    \
    X(left, real, C * d)        /* such rows, decayed */                                           \
    X(right, real, C * d)       /* such rows, decayed, of which `turned` is made */                \
    X(turned, real, W_T)        /* rows of K in panels, transposed or as they are */               \
    X(gates, double, C * (by_column ? d : 1))                                                      \
    X(running, double, C + d + P) /* products of gates, or a row */                                \
    X(fades, real, C)           /* products of the gates of whole rows */                          \
    X(weights, real, C * C_P)   /* of the rows of a chunk and its keys */                          \
    X(system, real, C * C_P)    /* -beta times the products of its keys */                         \
    X(values, real, C * W)      /* u, in panels */                                                 \
    X(mixed, real, C * W)       /* rows as long as those of a band */                             \
    X(row, real, d + S_P)       /* one row of an input */
/* clang-format on */

#define ATTN_CHUNK_OFFSET(name, type, count) size_t name;

/* Offsets in bytes. */
struct chunk_map {
    ATTN_CHUNK_AREAS(ATTN_CHUNK_OFFSET)
    size_t bytes;
};

/* Lays out the scratch for numbers of `size` bytes. No area is larger than a few MiB. */
static inline struct chunk_map chunk_map(const struct linear *l, size_t size, size_t P) {
    const size_t d = l->d, C = l->chunk, C_P = ceil_div(C, P) * P,
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

/* The columns of a panel, also for kernels that have no products of their own. */
enum {
    CHUNK_PANEL = 32
};

#endif
