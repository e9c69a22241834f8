/*
 * run.h - the functions that the templates of this folder become for float32 and for float64.
 */
#ifndef ATTN_RUN_H
#define ATTN_RUN_H

#include "plan.h"

/* Returns the tasks of a phase that a small call runs as one task. */
static inline size_t tasks_of_phase(const attn_plan *plan, size_t phase) {
    const struct gradients *g = &plan->gradients;
    return phase < PHASE_COUNT ? plan->schedule.tasks[phase]
                               : g->tasks[gradient_phase_of(g, phase - PHASE_COUNT)];
}

/* Runs one task of a phase, see attn_plan_task. That of a small call runs all phases. */
attn_status run_task_f32(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                         size_t task, void *scratch, attn_error *error);
attn_status run_task_f64(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                         size_t task, void *scratch, attn_error *error);

/* Computes the statistics result, once all phases are done. */
attn_status run_statistics_f32(const attn_plan *plan, const struct bindings *bindings,
                               attn_error *error);
attn_status run_statistics_f64(const attn_plan *plan, const struct bindings *bindings,
                               attn_error *error);

/* Runs one task of a plan of softmax alone. */
attn_status run_softmax_f32(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                            size_t task, attn_error *error);
attn_status run_softmax_f64(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                            size_t task, attn_error *error);

#endif
