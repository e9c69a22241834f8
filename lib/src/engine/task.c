/*
 * task.c runs one task of a plan. The dtype of the plan chooses the function for float32 or for
 * float64. The wide plan, see plan_wide.c, is one task.
 */
#include "engine/run.h"
#include "plan_build.h"
#include "status.h"

void task_widen(const attn_plan *plan) {
    const struct copies *copies = &plan->wide->copies;
    for (size_t i = 0; i < copies->count; i++) {
        const struct copied_input *input = &copies->inputs[i];
        for (size_t e = 0; e < input->count; e++) {
            plan->wide->numbers[input->at + e] = (double)input->from[e];
        }
    }
}

/* Rounds the results of the wide plan to those of the plan. */
static attn_status round_results(const attn_plan *plan, const struct bindings *bindings,
                                 attn_error *error) {
    const attn_plan *wide = plan->wide->plan;
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) { /* the wide plan has gradients only */
        if (gradient_shared(plan, bindings, (attn_result)r) != NULL) {
            continue; /* the wide plan has added to the sum of all sequences */
        }
        for (size_t part = 0; part < wide->results.of[r].count; part++) {
            const attn_result_tensor *form = &plan->results.of[r].parts[part];
            const double *x = bound_result(wide, bindings->wide, (attn_result)r, part);
            float *to = bound_result(plan, bindings, (attn_result)r, part);
            for (size_t i = 0; i < part_numbers(form); i++) {
                to[i] = (float)x[i];
                if (to[i] - to[i] != 0) {
                    return gradient_not_finite(form, (attn_result)r, i, error);
                }
            }
        }
    }
    return ATTN_OK;
}

/* Runs the wide plan, and rounds its results. */
static attn_status run_wide(const attn_plan *plan, const struct bindings *bindings, void *scratch,
                            attn_error *error) {
    const attn_plan *wide = plan->wide->plan;
    for (size_t phase = 0; phase < attn_plan_phases(wide); phase++) {
        for (size_t task = 0; task < attn_plan_tasks(wide, phase); task++) {
            ATTN_TRY(run_task_f64(wide, bindings->wide, phase, task, scratch, error));
        }
    }
    return round_results(plan, bindings, error);
}

attn_status task_run(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                     size_t task, void *scratch, attn_error *error) {
    if (plan->linear != NULL) {
        return linear_task(plan, bindings, phase, task, scratch, error);
    }
    if (phase >= PHASE_COUNT && plan->wide != NULL) {
        return run_wide(plan, bindings, scratch, error);
    }
    if (phase == PHASE_ATTEND && plan->form.empty) {
        return plan_fill(plan, bindings, task, error);
    }
    return plan->dtype == ATTN_FLOAT32 ? run_task_f32(plan, bindings, phase, task, scratch, error)
                                       : run_task_f64(plan, bindings, phase, task, scratch, error);
}
