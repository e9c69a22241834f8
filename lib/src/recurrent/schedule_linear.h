/*
 * schedule_linear.h - the tasks of linear attention, and the rows of its gradients.
 */
#ifndef ATTN_SCHEDULE_LINEAR_H
#define ATTN_SCHEDULE_LINEAR_H

#include "recurrent/plan_linear.h"

/* Cuts a plan of linear attention, whose sequences are listed, into phases of tasks, lays out its
 * memory, and estimates its cost. With lengths, some results are to be cleared. */
attn_status plan_schedule_linear(attn_plan *plan, bool lengths, attn_error *error);

/* The rows of a gradient, (items, heads, rows) of `width` numbers each. */
struct gradient_rows {
    attn_result which;
    size_t items, heads, rows, width;
    size_t stride[3];  /* from one item, head or row to the next */
    size_t owners;     /* the query heads or states that have partial gradients, of one sequence */
    size_t tiles;      /* partial gradients of an owner */
    bool per_sequence; /* each sequence has a partial gradient, and not each position */
    size_t sequences;  /* the sequences, or the batch items, that have partial gradients */
    double partials;   /* of one row */
};

struct gradient_rows linear_gradient_rows(const attn_plan *plan, enum linear_input input);

#endif
