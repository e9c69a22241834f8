/*
 * plan.h - what a checked call is: every size, stride and option resolved, so that running it does
 * arithmetic only. plan.c and its checks fill a plan; run.c runs it.
 */
#ifndef ATTN_PLAN_H
#define ATTN_PLAN_H

#include "attention.h"

/* Rows of all batch items and heads of one matrix, in elements of the plan's dtype. Where a head
 * begins is in struct head. */
struct operand {
    const void *data; /* NULL = absent, or computed at run time */
    size_t ld;        /* from one row to the next */
    size_t batch;     /* from one batch item to the next */
};

/* One query head. Offsets are from the start of a batch item of the operand of that name. */
struct head {
    size_t d, d_v;
    size_t q, k, v, past_k, past_v, out;
    size_t pack; /* of its key head, in the packed keys */
    double scale;
};

/* A tensor broadcast to (batch, heads, n, m): strides in elements, 0 where it repeats. */
struct broadcast {
    const void *data; /* NULL = absent */
    size_t stride[4];
};

/* One product of a projection: columns [column, column + cols) of the result are X W + b. */
struct piece {
    const void *w, *b; /* b NULL = no bias */
    size_t cols, column;
};

/* X (rows, inner) times the weights of one or of every head, side by side in (rows, ld). */
struct projection {
    const void *x;
    size_t rows, inner, ld;
    bool out_in;                                /* w is (cols, inner), else (inner, cols) */
    struct piece *pieces;                       /* owned, by column */
    size_t count, room;                         /* pieces there are, and that there is memory for */
    const char *name;                           /* of the result, for messages */
    size_t task_rows, task_columns;             /* of the result that one task makes */
    size_t across;                              /* tasks that share task_rows rows */
    size_t tile_rows, tile_inner, tile_columns; /* sizes of one product */
    bool copies_tiles;                          /* of the weights, before they are multiplied */
};

struct result {
    attn_result_tensor *parts; /* owned; `data` is the bound buffer */
    size_t count, room;        /* parts there are, and that there is memory for */
};

/* The phases of a run. All tasks of one phase may run at once and in any order. */
enum phase {
    PHASE_PROJECT, /* Q, K and V from X */
    PHASE_PACK,    /* what is made of whole matrices: packed keys, copies, moments of Q and K */
    PHASE_ATTEND,  /* blocks of queries; if rows are cut, such a block and a part of the keys */
    PHASE_MERGE,   /* the parts of the keys of a row become one */
    PHASE_WEIGH,   /* of long rows: the weights, and the sorted parts for top_k */
    PHASE_RANK,    /* of long rows: top_k, a range of it in a task */
    PHASE_OUT,     /* the output projection */
    PHASE_COUNT
};

/* The matrices that PHASE_PACK copies to results, in this order. */
enum copy {
    COPY_Q,
    COPY_K,
    COPY_V,
    COPY_PRESENT_K,
    COPY_PRESENT_V,
    COPY_COUNT
};

/* How the work is cut; see schedule.c. Sizes of memory are bytes. */
struct schedule {
    bool staged;     /* stages of whole rows are kept; else tiles with online softmax */
    bool keeps;      /* tiles become weights: they stay until the softmax of their row is known */
    bool streams;    /* so many weights that they go past the caches */
    bool adds_parts; /* rows so long that parts of the keys are added up in double */
    bool plain;      /* nothing but scale, ranges and a mask between score and softmax */
    bool
        direct; /* so few queries or so little work that products go row by row, not through BLAS */
    bool exact; /* so small a call that it is computed in double, see exact.inc */
    bool packs; /* keys are packed transposed, tile by tile, once for all blocks */
    bool packs_late;   /* the same, by each of at most two blocks as it comes to the tile */
    size_t rows, keys; /* of a block of scores: queries, and keys of a tile */
    size_t ld;         /* from one row of a block of scores to the next */
    size_t
        scratch_rows;  /* `rows` before blocks were made even: so a scratch does not grow with n */
    size_t tiles;      /* of keys, in a head */
    size_t blocks;     /* of queries, in a head */
    bool cut;          /* the keys are cut into parts, which are attended to apart and merged */
    bool long_rows;    /* cut, and by the functions of long.inc: rows too long to be kept whole */
    size_t splits;     /* parts of the keys; 1 = whole */
    size_t split_keys; /* keys of one part */
    size_t part_keys;  /* ... of those that are added up by one task */
    size_t per_task;   /* blocks of one task of PHASE_ATTEND */
    size_t abreast;    /* key heads whose blocks take turns, so that threads keep to one each */
    /* PHASE_PACK: tasks of each kind, and how many parts of a head, or numbers, one task takes */
    size_t pack_tasks, pack_tiles, pack_parts, pack_per_task;
    size_t copy_tasks[COPY_COUNT], copy_numbers[COPY_COUNT], copy_parts[COPY_COUNT],
        copy_per_task[COPY_COUNT];
    size_t moment_tasks[3]; /* of Q, K and past_K */
    /* PHASE_MERGE: a row's output is merged in parts of its columns, some of them in a task */
    size_t merge_columns, merge_parts, merge_per_task;
    /* PHASE_WEIGH: tasks that take blocks as PHASE_ATTEND does, then those that make the mean over
     * heads of some weights of one query */
    size_t weigh_tasks, mean_keys, mean_parts;
    /* PHASE_RANK: sorted numbers that a part of a row yields at most, and what one task makes */
    size_t run_length, rank_numbers, rank_parts, rank_per_task;
    size_t tasks[PHASE_COUNT];
    size_t pack_batch;  /* numbers of packed keys of one batch item */
    size_t partial_row; /* numbers of one partial result */
    /* offsets into the workspace */
    size_t q, k, v, pack, out, partial, totals, runs, moments, input_moments;
    size_t row, logits, slow, state, max, top, part, tile, order; /* offsets into a scratch */
    size_t total_row;                            /* numbers of the sum of parts of one row */
    size_t wide_row;                             /* numbers of a row that is made double */
    size_t exact_q, exact_k, exact_v, exact_out; /* offsets into the workspace, in double */
    size_t total, wide, mean;                    /* offsets into a scratch */
    size_t workspace, scratch;
    double cost; /* multiply-adds of a run */
};

enum {
    SOFTMAX_COLUMNS = 256 /* of softmax alone, that one task takes */
};

/* Softmax alone: (outer, count, inner) along the middle. */
struct slices {
    const void *x;
    size_t outer, count, inner;
    size_t columns, across; /* of one task, and how many such parts `inner` has */
    size_t chunk, chunks;   /* of `count`: numbers of one part, and parts */
    size_t per_task;        /* parts of a task */
};

struct attn_plan {
    attn_dtype dtype;
    bool softmax; /* this plan is of attn_plan_softmax: only `slices`, results and schedule hold */
    struct slices slices;
    size_t batch, heads, kv_heads;
    size_t n, m, past; /* queries; keys, the past ones included; past keys */
    bool has_batch_axis, has_head_axis;
    bool packed; /* K and V, and so present_K and present_V, are (B,m,H*d) */
    bool projected, per_head;
    bool merged;       /* the n queries are one query of n heads, see merge_groups */
    struct head *head; /* owned, one for each query head */
    size_t head_room;  /* heads that there is memory for */
    struct operand q, k, v, past_k, past_v;
    size_t out_ld, out_batch; /* of the heads' outputs side by side or one after the other */

    attn_causal causal;
    attn_normalization normalization;
    int64_t shift;     /* s: query i stands at i + s */
    int64_t window[2]; /* -1 = open */
    double softcap;
    attn_tensor alibi, sink; /* borrowed; no data = absent */
    double *slopes, *sinks;  /* owned, their numbers, one for each head; NULL = absent */
    size_t *lengths;         /* owned, one for each batch item; NULL = absent */
    struct broadcast mask, bias;
    bool mean_over_heads;
    size_t top_k;

    struct projection project_q, project_k, project_v, project_out;
    bool has_out_projection;

    unsigned wanted; /* ATTN_WANT bits */
    struct result results[ATTN_RESULT_COUNT];

    struct schedule schedule;
    void *workspace; /* shared by all tasks, from the first run on. Owned */
};

/* Results that hold something of every key, forbidden ones too. */
#define STAGES_OF_ALL_KEYS                                                                         \
    (ATTN_WANT(SCORES) | ATTN_WANT(SCALED_SCORES) | ATTN_WANT(MASKED_SCORES) |                     \
     ATTN_WANT(STATISTICS))

static inline bool plan_wants(const attn_plan *plan, unsigned bits) {
    return (plan->wanted & bits) != 0;
}

static inline bool plan_wants_top_k(const attn_plan *plan) {
    return plan_wants(plan, ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS));
}

/* The numbers of alibi and sink as they are now. */
attn_status plan_read_numbers(attn_plan *plan, attn_error *error);

/* Key and value head of query head h. */
static inline size_t kv_head(const attn_plan *plan, size_t h) {
    return h / (plan->heads / plan->kv_heads);
}

#endif
