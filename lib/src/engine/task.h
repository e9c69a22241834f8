/*
 * task.h - how the tasks of attention are begun and run, whatever the dtype of the plan.
 */
#ifndef ATTN_TASK_H
#define ATTN_TASK_H

#include "plan.h"

/* These are begin and run of plan_kind_attention. */
attn_status task_begin(const attn_plan *plan, struct bindings *bindings, attn_error *error);
attn_status task_run(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                     size_t task, void *scratch, attn_error *error);

#endif
