/*
 * run.h - the functions that the templates of this folder become for float32 and for float64, and
 * those that choose between both.
 */
#ifndef ATTN_RUN_H
#define ATTN_RUN_H

#include "plan.h"

/* Runs one task of a phase, see attn_plan_task. */
attn_status run_task_f32(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                         size_t task, void *scratch, attn_error *error);
attn_status run_task_f64(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                         size_t task, void *scratch, attn_error *error);

/* Computes the statistics result, once all phases are done. */
attn_status run_statistics_f32(const attn_plan *plan, const struct bindings *bindings,
                               attn_error *error);
attn_status run_statistics_f64(const attn_plan *plan, const struct bindings *bindings,
                               attn_error *error);

/* Runs one task of a plan of linear attention. */
attn_status linear_task(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                        size_t task, void *scratch, attn_error *error);

/* Runs one task of a plan, or its wide plan, which is the task after all others. */
attn_status task_run(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                     size_t task, void *scratch, attn_error *error);

/* Copies the inputs of the wide plan. */
void task_widen(const attn_plan *plan);

/* Reads the numbers that each kind of sequences has for itself. */
void sequences_begin(const attn_plan *plan);

/* Runs one task of a plan of sequences, see attn_plan_task. */
attn_status sequences_task(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                           size_t task, void *scratch, attn_error *error);

#endif
