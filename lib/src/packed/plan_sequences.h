/*
 * plan_sequences.h - the sequences of a call whose rows are packed, their plans and their tasks.
 */
#ifndef ATTN_PLAN_SEQUENCES_H
#define ATTN_PLAN_SEQUENCES_H

#include "plan.h"

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
    ROWS_GATE,
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
    struct partition runs; /* of short sequences */
    size_t sums;           /* the place of the first run, or long sequence, among the shared sums */
    size_t workspace;      /* of the first long sequence, in that of the call; or in the scratch */
};

/*
 * The sequences of a call. PHASE_ROUND is that of the call as a whole. PHASE_SHORT has the runs
 * of short sequences, and clears the shared sums of the long ones. Phase p + 1 has the tasks of
 * phase p of all long sequences, which have no PHASE_ROUND. The last phase adds up the shared
 * gradients, if there are any.
 */
enum {
    PHASE_SHORT = PHASE_ROUND + 1
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
    size_t shared;         /* numbers of the gradients of inputs that all sequences share */
    size_t places;         /* so many runs and long sequences add to sums of their own */
    size_t sums;           /* where these begin in the workspace */
    struct partition adds; /* these numbers, which tasks add up */
};

/* Plans attention over packed sequences. */
attn_status plan_sequences(attn_plan **plan, const attn_tensor *const qkv[3], const attn_options *o,
                           attn_error *error);

/* The first class that has tasks in a phase of the sequences. */
static inline size_t sequences_first(const struct sequences *s, size_t phase) {
    return phase == PHASE_SHORT ? 0 : s->short_classes;
}

#endif
