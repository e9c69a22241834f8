/*
 * plan_results.h - the shapes of results, and the buffers that they are bound to.
 */
#ifndef ATTN_PLAN_RESULTS_H
#define ATTN_PLAN_RESULTS_H

#include "plan.h"

/* Allocates the parts of all wanted results, and gives each its shape and dtype. */
attn_status plan_results(attn_plan *plan, attn_error *error);

/* Gives `part` the shape and the dtype of a result that does not have the form of Q, K or V. */
void plan_shape(const attn_plan *plan, attn_result which, attn_result_tensor *part);

/* Returns the numbers of a row of a result of sequences. A row of a RESULT_PER_QUERY is a query of
 * one head. */
size_t plan_row_numbers(const attn_plan *plan, attn_result which);

/* Adds the bytes of a part to those of a buffer for all results. Returns false if the part alone is
 * larger than any buffer. */
bool plan_add_bytes(attn_plan *plan, const attn_result_tensor *part);

/* Binds a part, see bound_part(). */
void plan_bind_part(const attn_plan *plan, struct bindings *bindings, attn_result which,
                    size_t part, void *data);

/* The form of a result of RESULT_COPY, or of the gradient of Q, K or V. */
struct copy_form {
    bool query, value, present;
    size_t items, heads, rows; /* batch items, heads or key heads, and the rows of each */
};

static inline struct copy_form copy_form_of(const attn_plan *plan, attn_result which) {
    struct copy_form form = {.query = result_is(which, RESULT_OF_Q),
                             .value = result_is(which, RESULT_OF_V),
                             .present =
                                 which == ATTN_RESULT_PRESENT_K || which == ATTN_RESULT_PRESENT_V};
    const struct operand *of = form.query ? &plan->in.q : form.value ? &plan->in.v : &plan->in.k;
    form.items = of->items;
    form.heads = of->heads;
    form.rows = form.query ? plan->n : form.present ? present_rows(plan) : plan->form.new_keys;
    return form;
}

/* The columns of head h of such a result. */
static inline size_t copy_columns(const attn_plan *plan, const struct copy_form *form, size_t h) {
    const struct head *head = &plan->head[h * (plan->heads / form->heads)];
    return form->value ? head->d_v : head->d;
}

#endif
