/*
 * schedule.h - the phases of a run, the paths and tiles by which its scores are computed, and the
 * tasks of each phase.
 */
#ifndef ATTN_SCHEDULE_H
#define ATTN_SCHEDULE_H

#include "partition.h"
#include "results.h"
#include "softmax/memory_map.h"

/* The phases of a run. All tasks of one phase may run at once and in any order. */
enum phase {
    PHASE_ROUND,   /* inputs are rounded to the compute_dtype */
    PHASE_PROJECT, /* Q, K, V and the gate are computed from X */
    PHASE_PREPARE, /* Q, K and V get biases, norms, rotary embedding and extra keys */
    PHASE_PACK,    /* keys are packed, matrices are copied to results, Q and K give moments */
    PHASE_ATTEND,  /* a task takes blocks of queries, each with all keys or a part of them */
    PHASE_MERGE,   /* the parts of the keys of a row become one */
    PHASE_WEIGH,   /* long rows get their weights, and sorted parts for top_k */
    PHASE_RANK,    /* long rows get top_k; a task computes a range of it */
    PHASE_GATE,    /* the outputs of heads are multiplied by the gate */
    PHASE_OUT,     /* the output projection */
    PHASE_COUNT
};

/* The kinds of tasks of PHASE_PREPARE, in their order. */
enum prepare {
    PREPARE_QUERIES, /* rows of Q get their bias, and are normalised and rotated */
    PREPARE_KEYS,    /* the same for K; a row is a position of a batch item, with all heads */
    PREPARE_VALUES,  /* rows of V get their bias, and are normalised */
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
    /* There are so many weights, or outputs of linear attention, that they are written past the
     * caches. */
    bool streams;
    /* Rows are so long that parts of their keys are added up in double. */
    bool adds_parts;
    /* Only scale, ranges and a mask lie between score and softmax. */
    bool plain;
    /* There are so few queries, or there is so little work, that a kernel multiplies each row. */
    bool without_blas;
    /* The call is so small that it is one task, and computed in double, see plan_widened.c. */
    bool small;
    /* PHASE_PACK packs the keys for all blocks: tile by tile, transposed. */
    bool packs;
    /* There are at most two blocks. Each packs a tile of keys when it comes to it. */
    bool packs_late;
    /* The keys are split into parts, and PHASE_MERGE merges their partial results. */
    bool splits_keys;
    /* Whole rows are too long to be kept: the keys are split, and long.inc computes the parts. */
    bool long_rows;
};

/* How PHASE_ATTEND cuts the scores: a block is `rows` queries of one head, a tile of keys is `keys`
 * keys. schedule.c decides. */
struct tiling {
    size_t panel; /* the columns of a panel, see plan_panel() */
    size_t rows, keys;
    size_t ld;            /* from one row of a block of scores to the next, in numbers */
    size_t scratch_rows;  /* `rows` before blocks were made equal, so that the size of a scratch
                               does not grow with n */
    size_t tiles;         /* tiles of the keys of one head */
    size_t blocks;        /* blocks of the queries of one head */
    size_t splits;        /* parts of the keys, each in tasks of its own; 1: they are not split */
    size_t split_keys;    /* keys of one such part */
    size_t part_keys;     /* keys of each part that one task adds up in double */
    size_t heads_in_turn; /* key heads whose blocks alternate, so that each thread keeps to one */
    size_t value_columns; /* columns of the values that are multiplied at once */
};

enum {
    RANK_NUMBERS = 1 << 15 /* the most entries of a row of top_k that are found as one part */
};

/* The tasks of each phase, and the memory of a run. schedule.c decides. */
struct schedule {
    struct partition prepare[PREPARE_COUNT]; /* rows */
    double input_cost;                       /* of PHASE_PREPARE, and of the copies of PHASE_PACK */
    /* PHASE_PACK: first the tasks that pack. A part of the keys of a head is `tiles` tiles. */
    struct {
        struct partition all;
        size_t tiles, parts;
        size_t batch; /* numbers of packed keys of one batch item */
    } pack;
    /* PHASE_PACK: then the tasks that copy, for each result of RESULT_COPY in the order of the
     * table. The matrix of a head has `parts` parts. */
    struct {
        struct partition all;
        size_t parts;
    } copy[RESULT_COPIES];
    /* PHASE_PACK: then the tasks that make the moments of Q, K and past_K. */
    size_t moment_tasks[3];
    struct partition attend; /* PHASE_ATTEND: blocks; a block counts once for each split */
    /* PHASE_MERGE: the output of a row is merged in `parts` parts of `columns` columns. A partial
     * result has `partial` numbers. */
    struct {
        struct partition all;
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
        struct partition all;
        size_t run, parts;
    } rank;
    size_t weight_numbers; /* numbers of the largest tile of weights that a task copies */
    size_t tasks[PHASE_COUNT];
    struct workspace_map workspace;
    struct scratch_map scratch;
    double columns;      /* d + d_v of an average head */
    double read_columns; /* the same, without d_v if there is no output */
    double cost;         /* of a run, in multiply-adds, see cost.c */
};

/* Returns the columns of a panel of the right operands of this dtype, see kernels.h. */
size_t plan_panel(attn_dtype dtype);

/* Cuts the work into phases of tasks, lays out the memory of a run, and estimates its cost. */
attn_status plan_schedule(attn_plan *plan, attn_error *error);

#endif
