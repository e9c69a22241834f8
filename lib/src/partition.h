/*
 * partition.h - the division of work into tasks. The units of a part of a run, such as its rows,
 * are handed out in tasks of equal counts. Tasks are long enough to be worth their beginning, and
 * short enough that other calls get their turn.
 */
#ifndef ATTN_PARTITION_H
#define ATTN_PARTITION_H

#include "base/tensor.h"

enum {
    /* The least multiply-adds of one task: about 3 us, more than the time to hand it out. */
    TASK_WORK = 1 << 18,
    /* The most multiply-adds of one task: about 13 ms, because other calls want their turn and a
     * call may be cancelled. */
    TASK_MOST = 1 << 30,
    MOST_TASKS = 1 << 16, /* a phase has more tasks only if its tasks would be too long otherwise */
    COPY_NUMBERS = 1 << 17, /* the most numbers that are copied as one part */
    TASK_COST = 4000        /* the cost of beginning a task, in the unit of softmax/cost.c */
};

/* Units of work that are cut into tasks. */
struct partition {
    size_t units, per_task, tasks;
};

/* Cuts units, which cost `cost` multiply-adds together, into tasks. Each costs about TASK_WORK, or
 * more if there would be more than MOST_TASKS of them. */
struct partition partition_units(size_t units, double cost);

/* Finds the units [*first, *end) of a task. */
static inline void units_of_task(const struct partition *p, size_t task, size_t *first,
                                 size_t *end) {
    *first = task * p->per_task;
    *end = end_of(*first, p->per_task, p->units);
}

#endif
