/*
 * task.c has the kinds of plan of softmax: attention, attention with an empty axis, and softmax
 * alone. The dtype of a plan chooses the functions for float32 or for float64. A small call is one
 * task, see plan_widened.c.
 */
#include "engine/task.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/tensor.h"
#include "engine/run.h"
#include "kernels/kernels.h"
#include "plan_results.h"
#include "softmax/plan_empty.h"
#include "softmax/plan_gradients.h"
#include "softmax/plan_options.h"

/* The inputs of a call with a compute_dtype are their rounded copies. */
static void bind_rounded(const attn_plan *plan, struct bindings *bindings) {
    for (size_t i = 0; plan->half.type != NULL && i < plan->copies.count; i++) {
        const struct copied_input *input = &plan->copies.inputs[i];
        *bound_input(bindings, input->which) =
            bindings->workspace + plan->half.memory + input->at * sizeof(float);
    }
}

attn_status task_begin(const attn_plan *plan, struct bindings *bindings, attn_error *error) {
    bind_rounded(plan, bindings);
    return plan_read_numbers(plan, bindings, error);
}

/* Writes weights in panels to `to`, row after row. */
static void unpack_weights(const struct copied_input *input, const float *from, double *to) {
    const size_t columns = input->columns, panel = input->panel;
    const size_t inner = input->count / (ceil_div(columns, panel) * panel);
    for (size_t row = 0; row < inner; row++) {
        for (size_t c = 0; c < columns; c++) {
            to[row * columns + c] = (double)from[(c / panel * inner + row) * panel + c % panel];
        }
    }
}

/* Copies the inputs of a widened call to `memory`, and binds the copies. The rows of grad_lse in a
 * packed sequence lie apart. */
static void widen_inputs(const attn_plan *plan, struct bindings *bindings, double *memory) {
    const struct copies *copies = &plan->copies;
    const struct result_set *r = &plan->results;
    for (size_t i = 0; i < copies->count; i++) {
        const struct copied_input *input = &copies->inputs[i];
        const bool lse = input->which == INPUT_GRAD_LSE, weights = input->which >= INPUT_COUNT;
        const void **bound = bound_input(bindings, input->which);
        const float *from = weights ? input->from : *bound;
        const size_t columns = lse ? r->head_rows : input->count;
        double *to = memory + input->at;
        *bound = to;
        if (input->panel > 0) {
            unpack_weights(input, from, to);
            continue;
        }
        for (size_t row = 0; row * columns < input->count; row++) {
            attn_kernels()->widen_f32(from + row * r->given_rows, to + row * columns, columns, 1);
        }
    }
}

/* Binds the results of a widened call that are rounded to `memory`. */
static void bind_widened(const attn_plan *plan, struct bindings *bindings, double *memory) {
    bindings->parts = plan->widened.parts;
    for (uint64_t left = plan->results.wanted; left != 0; left &= left - 1) {
        const attn_result which = (attn_result)__builtin_ctzll(left);
        const struct result *result = &plan->results.of[which];
        for (size_t part = 0; part < result->count; part++) {
            const attn_result_tensor *form = &result->parts[part];
            if (is_rounded(form) && (part > 0 || bindings->results[which] != NULL)) {
                plan_bind_part(plan, bindings, which, part, memory);
                memory += copied_numbers(part_numbers(form));
            }
        }
    }
}

/* Rounds x to y. Returns the first number that is not finite in y, or `count`. */
static size_t round_numbers(const double *x, float *y, size_t count) {
    uint32_t any = 0;
    size_t first = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        y[i] = (float)x[i];
        memcpy(&bits, &y[i], sizeof bits);
        any |= (bits & 0x7fffffff) + 0x00800000; /* has the highest bit if y[i] is not finite */
    }
    while (first < count && (any >> 31 == 0 || isfinite(y[first]))) {
        first = any >> 31 == 0 ? count : first + 1;
    }
    return first;
}

/* Rounds the results of a widened call. */
static attn_status round_results(const attn_plan *plan, const struct bindings *widened,
                                 const struct bindings *bindings, attn_error *error) {
    const struct result_set *r = &plan->results;
    for (uint64_t left = r->wanted; left != 0; left &= left - 1) {
        const attn_result which = (attn_result)__builtin_ctzll(left);
        const bool rows = result_is(which, RESULT_PER_QUERY);
        for (size_t part = 0; part < r->of[which].count; part++) {
            const attn_result_tensor *form = &r->of[which].parts[part];
            const double *x = bound_part(plan, widened, which, part);
            float *to = bound_part(plan, bindings, which, part);
            const size_t count = to != NULL && is_rounded(form) ? part_numbers(form) : 0,
                         columns = rows ? r->head_rows : count;
            for (size_t row = 0; row * columns < count; row++) {
                const size_t bad =
                    round_numbers(x + row * columns, to + row * r->given_rows, columns);
                if (bad < columns && result_is(which, RESULT_GRADIENT)) {
                    return gradient_not_finite(form, which, bad, error);
                }
            }
        }
    }
    return ATTN_OK;
}

static attn_status run_widened(const attn_plan *plan, const struct bindings *bindings,
                               void *scratch, attn_error *error) {
    struct bindings widened = *bindings;
    double *memory = (double *)((char *)scratch + plan->schedule.scratch.widened);
    widen_inputs(plan, &widened, memory);
    bind_widened(plan, &widened, memory + plan->copies.numbers);
    ATTN_TRY(run_task_f64(plan, &widened, 0, 0, scratch, error));
    return round_results(plan, &widened, bindings, error);
}

attn_status task_run(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                     size_t task, void *scratch, attn_error *error) {
    if (plan->widened.is) {
        return run_widened(plan, bindings, scratch, error);
    }
    return plan->dtype == ATTN_FLOAT32 ? run_task_f32(plan, bindings, phase, task, scratch, error)
                                       : run_task_f64(plan, bindings, phase, task, scratch, error);
}

static size_t count_phases_of_run(const attn_plan *plan) {
    return plan->path.small ? 1 : PHASE_COUNT + plan->gradients.phases;
}

static size_t count_tasks_of_phase(const attn_plan *plan, size_t phase) {
    return plan->path.small ? 1 : tasks_of_phase(plan, phase);
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
