/*
 * task.c has the kinds of plan of softmax: attention, attention with an empty axis, and softmax
 * alone. The dtype of a plan chooses the functions for float32 or for float64. The float64 plan,
 * see plan_f64.c, is one task.
 */
#include "engine/task.h"

#include "base/status.h"
#include "base/tensor.h"
#include "engine/run.h"
#include "softmax/plan_empty.h"
#include "softmax/plan_f64.h"
#include "softmax/plan_gradients.h"
#include "softmax/plan_options.h"

void task_copy_inputs(const attn_plan *plan) {
    const struct copies *copies = &plan->f64->copies;
    for (size_t i = 0; i < copies->count; i++) {
        const struct copied_input *input = &copies->inputs[i];
        for (size_t e = 0; e < input->count; e++) {
            plan->f64->numbers[input->at + e] = (double)input->from[e];
        }
    }
}

/* Rounds the results of the float64 plan to those of the plan. */
static attn_status round_results(const attn_plan *plan, const struct bindings *bindings,
                                 attn_error *error) {
    const attn_plan *f64 = plan->f64->plan;
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) { /* the float64 plan has gradients only */
        if (gradient_shared(plan, bindings, (attn_result)r) != NULL) {
            continue; /* the float64 plan has added to the sum of all sequences */
        }
        for (size_t part = 0; part < f64->results.of[r].count; part++) {
            const attn_result_tensor *form = &plan->results.of[r].parts[part];
            const double *x = bound_part(f64, bindings->f64, (attn_result)r, part);
            float *to = bound_part(plan, bindings, (attn_result)r, part);
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

/* Runs the float64 plan, and rounds its results. */
static attn_status run_f64(const attn_plan *plan, const struct bindings *bindings, void *scratch,
                           attn_error *error) {
    const attn_plan *f64 = plan->f64->plan;
    for (size_t phase = 0; phase < attn_plan_phases(f64); phase++) {
        for (size_t task = 0; task < attn_plan_tasks(f64, phase); task++) {
            ATTN_TRY(run_task_f64(f64, bindings->f64, phase, task, scratch, error));
        }
    }
    return round_results(plan, bindings, error);
}

/* The inputs of a call with a compute_dtype are their rounded copies. */
static void bind_rounded(const attn_plan *plan, struct bindings *bindings) {
    for (size_t i = 0; i < plan->half.copies.count; i++) {
        const struct copied_input *input = &plan->half.copies.inputs[i];
        *bound_input(bindings, input->which) =
            bindings->workspace + plan->half.memory + input->at * sizeof(float);
    }
}

attn_status task_begin(const attn_plan *plan, struct bindings *bindings, attn_error *error) {
    bind_rounded(plan, bindings);
    ATTN_TRY(plan_read_numbers(plan, bindings, error));
    if (plan->f64 == NULL) {
        return ATTN_OK;
    }
    task_copy_inputs(plan);
    return attn_plan_begin(plan->f64->plan, error);
}

attn_status task_run(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                     size_t task, void *scratch, attn_error *error) {
    if (phase >= PHASE_COUNT && plan->f64 != NULL) {
        return run_f64(plan, bindings, scratch, error);
    }
    return plan->dtype == ATTN_FLOAT32 ? run_task_f32(plan, bindings, phase, task, scratch, error)
                                       : run_task_f64(plan, bindings, phase, task, scratch, error);
}

static size_t count_phases_of_run(const attn_plan *plan) {
    return PHASE_COUNT + (plan->f64 != NULL ? 1 : plan->gradients.phases);
}

static size_t count_tasks_of_phase(const attn_plan *plan, size_t phase) {
    const struct gradients *g = &plan->gradients;
    if (phase >= PHASE_COUNT) {
        return plan->f64 != NULL ? 1 : g->tasks[gradient_phase_of(g, phase - PHASE_COUNT)];
    }
    return plan->path.small ? phase == PHASE_PROJECT /* one task runs those of all phases */
                            : plan->schedule.tasks[phase];
}

static attn_status end_run(const attn_plan *plan, const struct bindings *bindings,
                           attn_error *error) {
    if (!plan_wants(plan, ATTN_WANT(STATISTICS))) {
        return ATTN_OK;
    }
    return plan->dtype == ATTN_FLOAT32 ? run_statistics_f32(plan, bindings, error)
                                       : run_statistics_f64(plan, bindings, error);
}

static attn_status run_empty(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                             size_t task, void *scratch, attn_error *error) {
    return phase == PHASE_ATTEND ? plan_fill(plan, bindings, task, error)
                                 : task_run(plan, bindings, phase, task, scratch, error);
}

static attn_status softmax_run(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                               size_t task, void *scratch, attn_error *error) {
    (void)scratch; /* there is none */
    return plan->dtype == ATTN_FLOAT32 ? run_softmax_f32(plan, bindings, phase, task, error)
                                       : run_softmax_f64(plan, bindings, phase, task, error);
}

const struct plan_kind plan_kind_attention = {.phases = count_phases_of_run,
                                              .tasks = count_tasks_of_phase,
                                              .begin = task_begin,
                                              .run = task_run,
                                              .end = end_run};
const struct plan_kind plan_kind_empty = {.phases = count_phases_of_run,
                                          .tasks = count_tasks_of_phase,
                                          .begin = task_begin,
                                          .run = run_empty};
const struct plan_kind plan_kind_softmax = {
    .phases = count_phases_of_run, .tasks = count_tasks_of_phase, .run = softmax_run};
