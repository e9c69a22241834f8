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
    bool out_in;          /* w is (cols, inner), else (inner, cols) */
    struct piece *pieces; /* owned, by column */
    size_t count;
    const char *name;                           /* of the result, for messages */
    size_t task_rows, task_columns;             /* of the result that one task makes */
    size_t across;                              /* tasks that share task_rows rows */
    size_t tile_rows, tile_inner, tile_columns; /* sizes of one product */
    bool copies_tiles;                          /* of the weights, before they are multiplied */
};

struct result {
    attn_tensor *parts; /* owned; `data` is the bound buffer */
    size_t count;
};

/* The phases of a run. All tasks of one phase may run at once and in any order. */
enum phase {
    PHASE_PROJECT,
    PHASE_PACK,
    PHASE_ATTEND,
    PHASE_MERGE,
    PHASE_OUT,
    PHASE_COUNT
};

/* How the work is cut; see schedule.c. Sizes of memory are bytes. */
struct schedule {
    bool staged;  /* stages of whole rows are kept; else tiles with online softmax */
    bool keeps;   /* tiles become weights: they stay until the softmax of their row is known */
    bool streams; /* so many weights that they go past the caches */
    bool plain;   /* nothing but scale, ranges and a mask between score and softmax */
    bool
        direct; /* so few queries or so little work that products go row by row, not through BLAS */
    bool exact; /* so small a call that softmax and output are computed in double */
    bool packs; /* keys are packed transposed, tile by tile, once for all blocks */
    bool packs_late;   /* the same, by each of at most two blocks as it comes to the tile */
    size_t rows, keys; /* of a block of scores: queries, and keys of a tile */
    size_t ld;         /* from one row of a block of scores to the next */
    size_t
        scratch_rows;  /* `rows` before blocks were made even: so a scratch does not grow with n */
    size_t tiles;      /* of keys, in a head */
    size_t blocks;     /* of queries, in a head */
    size_t splits;     /* parts of the keys that are attended to apart and merged; 1 = whole */
    size_t split_keys; /* keys of one part */
    size_t per_task;   /* blocks of one task of PHASE_ATTEND */
    size_t abreast;    /* key heads whose blocks take turns, so that threads keep to one each */
    size_t tasks[PHASE_COUNT];
    size_t pack_batch;                              /* numbers of packed keys of one batch item */
    size_t partial_row;                             /* numbers of one partial result */
    size_t q, k, v, pack, out, partial, moments;    /* offsets into the workspace */
    size_t row, state, max, top, part, tile, order; /* offsets into a scratch */
    size_t workspace, scratch;
    double cost; /* multiply-adds of a run */
};

struct attn_plan {
    attn_dtype dtype;
    size_t batch, heads, kv_heads;
    size_t n, m, past; /* queries; keys, the past ones included; past keys */
    bool has_batch_axis, has_head_axis;
    bool packed; /* K and V, and so present_K and present_V, are (B,m,H*d) */
    bool projected, per_head;
    bool merged;       /* the n queries are one query of n heads, see merge_groups */
    struct head *head; /* owned, one for each query head */
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

static inline bool plan_wants(const attn_plan *plan, unsigned bits) {
    return (plan->wanted & bits) != 0;
}

/* The numbers of alibi and sink as they are now. */
attn_status plan_read_numbers(attn_plan *plan, attn_error *error);

/* Key and value head of query head h. */
static inline size_t kv_head(const attn_plan *plan, size_t h) {
    return h / (plan->heads / plan->kv_heads);
}

#endif
