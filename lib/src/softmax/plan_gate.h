/*
 * plan_gate.h - the output gate of a plan: the outputs of the heads are multiplied by its sigmoid,
 * before W_O takes them (Qiu et al. 2025, arXiv 2505.06708).
 */
#ifndef ATTN_PLAN_GATE_H
#define ATTN_PLAN_GATE_H

#include "partition.h"

struct gate {
    bool is;       /* there is a gate, and outputs of heads, to which it belongs */
    bool per_head; /* one number for each head of a query; otherwise as many as its output has */
    size_t items;  /* those of the call, or 1 that all share */
    size_t numbers;
    /* A gate per head has these distances from one batch item, head and query to the next. Another
     * one lies as the outputs of the heads do: only the first and the last are used. */
    size_t stride[3];
    /* Rows of a head, of all batch items forward, and of those of the gate backward. */
    struct partition forward, backward;
    double cost; /* of both */
};

/* Checks and binds the gate. The sizes and the projections are known. */
attn_status plan_gate(attn_plan *plan, const attn_options *o, attn_error *error);

/* Checks the last axes of a gate, whose batch axes may be fewer. The columns are those of `shape`,
 * or `per_head`. */
attn_status plan_check_gate_shape(const attn_tensor *gate, int last, const size_t *shape,
                                  size_t per_head, attn_error *error);

/* Cuts PHASE_GATE and GRADIENT_GATE into tasks. */
void plan_cut_gate(attn_plan *plan);

#endif
