/*
 * plan_gate.c checks the output gate, and cuts its work into tasks. engine/gate.inc computes it.
 */
#include "softmax/plan_gate.h"

#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "base/tensor.h"
#include "plan_inputs.h"
#include "plan_matrices.h"

enum {
    /* The cost of a number: its sigmoid and its product, and those of the gradients. */
    GATE_NUMBER = 150,
    GATE_GRADIENT = 250,
    GATE_ROW = 2000
};

attn_status plan_check_gate_shape(const attn_tensor *gate, int last, const size_t *shape,
                                  size_t per_head, attn_error *error) {
    attn_tensor all = {.rank = last}, few;
    memcpy(all.shape, shape, (size_t)last * sizeof *shape);
    few = all;
    few.shape[last - 1] = per_head;
    const bool axes = gate->rank >= last;
    const size_t *own = gate->shape + (axes ? gate->rank - last : 0), columns = shape[last - 1];
    const bool fits = axes && memcmp(own, shape, (size_t)(last - 1) * sizeof *shape) == 0 &&
                      (own[last - 1] == columns || own[last - 1] == per_head);
    char got[SHAPE_TEXT], want[SHAPE_TEXT], or [SHAPE_TEXT];
    return fits ? ATTN_OK
                : attn_fail(error, ATTN_SHAPE_MISMATCH, "gate",
                            "gate has the shape %s, not %s or %s: it must have as many numbers as "
                            "the outputs of the heads, or one for each head",
                            shape_text(gate, got), shape_text(&all, want), shape_text(&few, or));
}

/* Checks and binds a gate that is given. Returns its columns and its items. */
static attn_status check_given(attn_plan *plan, const attn_tensor *t, size_t *columns,
                               size_t *items, attn_error *error) {
    const bool flat = plan->form.packed || plan->form.projected;
    size_t shape[3];
    int last = 0;
    if (!flat && plan->form.has_head_axis) {
        shape[last++] = plan->heads;
    }
    shape[last++] = plan->n;
    shape[last++] = plan->out.ld;
    ATTN_TRY(check_rows(t, "gate", last, ATTN_MAX_RANK, last, error));
    ATTN_TRY(check_dtype(t, "gate", plan->dtype, error));
    ATTN_TRY(plan_check_gate_shape(t, last, shape, flat ? plan->heads : 1, error));
    ATTN_TRY(check_batch(t, "gate", last, &plan->form, items, error));
    *columns = t->shape[t->rank - 1];
    plan_bind_input(plan, INPUT_GATE, t->data);
    return ATTN_OK;
}

attn_status plan_gate(attn_plan *plan, const attn_options *o, attn_error *error) {
    const bool flat = plan->form.packed || plan->form.projected;
    const struct projection *p = &plan->project[PROJECT_GATE];
    struct gate *gate = &plan->gate;
    size_t columns = p->ld;
    gate->items = plan->batch;
    if (o->b_g != NULL && o->w_g == NULL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "b_G", "b_G needs W_G");
    }
    if (o->w_g != NULL && !plan->form.projected) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "W_G",
                         "W_G needs a call with projections; beside Q, K and V the gate is given: "
                         "\"gate\"");
    }
    if (o->w_g != NULL && o->gate != NULL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "gate",
                         "gate is given, but W_G makes a gate of X: give one of them");
    }
    if (o->gate != NULL) {
        ATTN_TRY(check_given(plan, o->gate, &columns, &gate->items, error));
    }
    /* If each head has one column, both kinds of gates are the same. */
    gate->per_head = columns != plan->out.ld;
    const size_t rows = plan->heads * plan->n; /* fits, and so do all products: see plan_finish() */
    const size_t item = gate->per_head ? rows : plan->out.batch;
    gate->numbers = gate->items * item;
    gate->stride[0] = gate->items == 1 ? 0 : item;
    gate->stride[1] = !gate->per_head ? 0 : flat ? 1 : plan->n;
    gate->stride[2] = !gate->per_head ? plan->out.ld : flat ? plan->heads : 1;
    return ATTN_OK;
}

void plan_cut_gate(attn_plan *plan) {
    struct gate *gate = &plan->gate;
    const double rows = (double)plan->batch * (double)plan->heads * (double)plan->n;
    double columns = 0;
    for (size_t h = 0; h < plan->heads; h++) {
        columns += (double)plan->head[h].d_v / (double)plan->heads;
    }
    gate->is = (plan_has(plan, INPUT_GATE) || plan->project[PROJECT_GATE].count > 0) &&
               plan_makes_output(plan) && !plan->form.empty;
    if (gate->is && plan_wants(plan, ATTN_WANT(OUTPUT) | ATTN_WANT(GRAD_W_O))) {
        const double cost = rows * (GATE_ROW + columns * GATE_NUMBER);
        gate->forward = partition_units(plan->batch * plan->heads * plan->n, cost);
        gate->cost += cost;
    }
    if (gate->is && plan->gradients.wanted &&
        (plan_has(plan, INPUT_GRAD_OUTPUT) || plan_wants(plan, ATTN_WANT(GRAD_GATE)))) {
        const double cost = rows * (GATE_ROW + columns * GATE_GRADIENT);
        gate->backward = partition_units(gate->items * plan->heads * plan->n, cost);
        gate->cost += cost;
    }
    plan->schedule.tasks[PHASE_GATE] = gate->forward.tasks;
}
