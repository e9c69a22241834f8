/*
 * sequences.c runs plans of packed sequences, see struct sequences. A task binds the rows of its
 * sequence to the plan that all sequences of these lengths have.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/tensor.h"
#include "engine/task.h"
#include "packed/plan_sequences.h"
#include "partition.h"
#include "plan_results.h"
#include "softmax/plan_rotary.h"

/* The inputs of ROWS_Q and so on. */
static const int inputs_of_rows[ROWS_COUNT] = {INPUT_Q,           INPUT_K,         INPUT_V,
                                               INPUT_DECAY,       INPUT_POSITIONS, INPUT_GATE,
                                               INPUT_GRAD_OUTPUT, INPUT_GRAD_LSE};

/* Are the rows of a result those of K? */
static bool has_key_rows(int which) {
    return which == ATTN_RESULT_GRAD_K || which == ATTN_RESULT_GRAD_V ||
           which == ATTN_RESULT_GRAD_DECAY;
}

/* Returns where the results of some rows begin. */
static void *result_rows(const attn_plan *plan, const struct bindings *bindings, attn_result which,
                         const struct packed_rows *at) {
    return (char *)bindings->results[which] + (has_key_rows((int)which) ? at->k : at->q) *
                                                  plan_row_numbers(plan, which) *
                                                  attn_dtype_size(plan->dtype);
}

/* Returns the shared sums of a run, or of a long sequence; NULL if there are none. */
static double *shared_sums(const attn_plan *plan, const struct bindings *bindings, size_t place) {
    const struct sequences *s = plan->sequences;
    return s->shared == 0 ? NULL : (double *)(bindings->workspace + s->sums) + place * s->shared;
}

static void clear_shared(const attn_plan *plan, const struct bindings *bindings, size_t place) {
    if (plan->sequences->shared > 0) {
        memset(shared_sums(plan, bindings, place), 0, plan->sequences->shared * sizeof(double));
    }
}

/* Binds the rows of a sequence, and what all share. `place` is that of its shared sums. */
static void bind_sequence(const attn_plan *plan, const struct bindings *bindings,
                          const struct length_class *class, const struct packed_rows *at,
                          size_t place, struct bindings *own) {
    const size_t size = attn_dtype_size(plan->dtype);
    const struct {
        size_t first, bytes; /* of a row */
    } rows[ROWS_COUNT] = {
        [ROWS_Q] = {at->q, plan->in.q.ld * size},
        [ROWS_K] = {at->k, plan->in.k.ld * size},
        [ROWS_V] = {at->k, plan->in.v.ld * size},
        [ROWS_DECAY] = {at->k, plan->decay.stride[2] * size},
        [ROWS_POSITIONS] = {at->q, attn_dtype_size(plan->rotary.positions_dtype)},
        [ROWS_GATE] = {at->q, plan->gate.stride[2] * size},
        [ROWS_GRAD_OUTPUT] = {at->q, plan->out.ld * size},
        [ROWS_GRAD_LSE] = {at->q, size},
    };
    *own = *bindings;
    own->frequencies = class->plan->bindings.frequencies;
    own->shared = shared_sums(plan, bindings, place);
    for (int i = 0; i < ROWS_COUNT; i++) {
        const char *all = bindings->inputs[inputs_of_rows[i]];
        own->inputs[inputs_of_rows[i]] = all == NULL ? NULL : all + rows[i].first * rows[i].bytes;
    }
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        const bool own_rows = own->results[r] != NULL && !result_is((attn_result)r, RESULT_SHARED);
        own->results[r] = own_rows ? result_rows(plan, bindings, (attn_result)r, at) : NULL;
    }
}

/* ------------------------------------------------------------------------------ short sequences */

/* Computes a short sequence. */
static attn_status run_sequence(const attn_plan *plan, const struct bindings *bindings,
                                const struct length_class *class, const struct packed_rows *at,
                                size_t place, char *scratch, attn_error *error) {
    struct bindings own;
    bind_sequence(plan, bindings, class, at, place, &own);
    own.workspace = scratch + class->workspace;
    const size_t phases = attn_plan_phases(class->plan);
    for (size_t phase = 0; phase < phases; phase++) {
        const size_t tasks = attn_plan_tasks(class->plan, phase);
        for (size_t task = 0; task < tasks; task++) {
            ATTN_TRY(attn_of_sequence(
                error, task_run(class->plan, &own, phase, task, scratch, error), at->index));
        }
    }
    return ATTN_OK;
}

/* Writes the lse of queries without keys: that of their sink alone. */
static void fill_lse(const attn_plan *plan, const struct bindings *bindings,
                     const struct packed_rows *at) {
    void *lse = bindings->results[ATTN_RESULT_LSE];
    for (size_t h = 0; lse != NULL && h < plan->heads; h++) {
        const double sink = bindings->sinks == NULL ? -INFINITY : bindings->sinks[h];
        const size_t first = h * plan->n + at->q;
        for (size_t i = first; i < first + at->n; i++) {
            put_number(lse, plan->dtype, i, sink);
        }
    }
}

/* Writes the results of rows without keys or without queries. */
static void clear_rows(const attn_plan *plan, const struct bindings *bindings,
                       const struct packed_rows *at) {
    const size_t size = attn_dtype_size(plan->dtype);
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (plan->results.of[r].count == 0 || r == ATTN_RESULT_LSE ||
            result_is((attn_result)r, RESULT_SHARED)) {
            continue;
        }
        const size_t bytes =
            (has_key_rows(r) ? at->m : at->n) * plan_row_numbers(plan, (attn_result)r) * size;
        char *to = result_rows(plan, bindings, (attn_result)r, at);
        const size_t copies = result_is((attn_result)r, RESULT_PER_QUERY) ? plan->heads : 1;
        for (size_t h = 0; h < copies; h++) {
            memset(to + h * plan->n * size, 0, bytes);
        }
    }
    fill_lse(plan, bindings, at);
}

/* Adds the gradients of the sinks by the lse of queries without keys, which is the sink. */
static void add_sinks(const attn_plan *plan, const struct bindings *bindings,
                      const struct packed_rows *at, size_t place) {
    const void *lse = bindings->inputs[INPUT_GRAD_LSE];
    if (lse == NULL || !plan_wants(plan, ATTN_WANT(GRAD_SINK))) {
        return;
    }
    double *sums = shared_sums(plan, bindings, place); /* those of the sinks are the first ones */
    for (size_t h = 0; h < plan->heads; h++) {
        for (size_t i = 0; i < at->n; i++) {
            sums[h] += number_at(lse, plan->dtype, h * plan->n + at->q + i);
        }
    }
}

/* Runs one run of a short class. */
static attn_status run_short(const attn_plan *plan, const struct bindings *bindings,
                             const struct length_class *class, size_t run, char *scratch,
                             attn_error *error) {
    const struct packed_rows *rows = plan->sequences->rows + class->first;
    size_t first, end;
    units_of_task(&class->runs, run, &first, &end);
    clear_shared(plan, bindings, class->sums + run);
    for (size_t i = first; i < end; i++) {
        if (class->plan == NULL) {
            clear_rows(plan, bindings, &rows[i]);
            add_sinks(plan, bindings, &rows[i], class->sums + run);
        } else {
            ATTN_TRY(
                run_sequence(plan, bindings, class, &rows[i], class->sums + run, scratch, error));
        }
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------- long sequences */

/* Runs one task of a phase of a long class; the first phase clears shared sums. */
static attn_status run_long(const attn_plan *plan, const struct bindings *bindings,
                            const struct length_class *class, size_t phase, size_t task,
                            void *scratch, attn_error *error) {
    if (phase == PHASE_SHORT) {
        clear_shared(plan, bindings, class->sums + task);
        return ATTN_OK;
    }
    const size_t tasks = attn_plan_tasks(class->plan, phase - 1), index = task / tasks;
    const struct packed_rows *at = &plan->sequences->rows[class->first + index];
    struct bindings own;
    bind_sequence(plan, bindings, class, at, class->sums + index, &own);
    own.workspace =
        bindings->workspace + class->workspace + index * class->plan->schedule.workspace.bytes;
    return attn_of_sequence(
        error, task_run(class->plan, &own, phase - 1, task % tasks, scratch, error), at->index);
}

/* ----------------------------------------------------------------------------- shared gradients */

/* Writes element `index` of a shared gradient. */
static attn_status keep_shared(const attn_plan *plan, const struct bindings *bindings,
                               attn_result which, size_t index, double sum, attn_error *error) {
    void *data = bindings->results[which];
    put_number(data, plan->dtype, index, sum);
    return isfinite(number_at(data, plan->dtype, index))
               ? ATTN_OK
               : gradient_not_finite(plan->results.of[which].parts, which, index, error);
}

/* Adds up some numbers of the shared gradients, in the order of the places of their sums. */
static attn_status add_shared(const attn_plan *plan, const struct bindings *bindings, size_t task,
                              attn_error *error) {
    const struct sequences *s = plan->sequences;
    size_t first, end, before = 0;
    units_of_task(&s->adds, task, &first, &end);
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        const struct result *result = &plan->results.of[r];
        const size_t numbers = result_is((attn_result)r, RESULT_SHARED) && result->count > 0
                                   ? part_numbers(&result->parts[0])
                                   : 0;
        for (size_t e = size_max(first, before); e < size_min(end, before + numbers); e++) {
            double sum = 0;
            for (size_t place = 0; place < s->places; place++) {
                sum += shared_sums(plan, bindings, place)[e];
            }
            ATTN_TRY(keep_shared(plan, bindings, (attn_result)r, e - before, sum, error));
        }
        before += numbers;
    }
    return ATTN_OK;
}

/* ----------------------------------------------------------------------------- the entry points */

static size_t sequences_phases(const attn_plan *plan) {
    return plan->sequences->phases;
}

static size_t sequences_tasks(const attn_plan *plan, size_t phase) {
    const struct sequences *s = plan->sequences;
    return phase == PHASE_ROUND ? plan->schedule.tasks[PHASE_ROUND]
           : s->shared > 0 && phase + 1 == s->phases
               ? s->adds.tasks
               : s->first_task[phase][s->class_count - sequences_first(s, phase)];
}

/* Begins the call as a whole, and reads the numbers that each class of sequences has for itself. */
static attn_status sequences_begin(const attn_plan *plan, struct bindings *bindings,
                                   attn_error *error) {
    const struct sequences *s = plan->sequences;
    ATTN_TRY(task_begin(plan, bindings, error));
    for (size_t i = 0; i < s->class_count; i++) {
        const attn_plan *own = s->classes[i].plan;
        if (own != NULL) {
            plan_frequencies(own, &own->bindings);
        }
    }
    return ATTN_OK;
}

static attn_status sequences_run(const attn_plan *plan, const struct bindings *bindings,
                                 size_t phase, size_t task, void *scratch, attn_error *error) {
    const struct sequences *s = plan->sequences;
    if (s->shared > 0 && phase + 1 == s->phases) {
        return add_shared(plan, bindings, task, error);
    }
    if (phase == PHASE_ROUND) {
        return task_run(plan, bindings, phase, task, scratch, error);
    }
    const size_t first = sequences_first(s, phase), *first_task = s->first_task[phase];
    size_t low = 0, high = s->class_count - first; /* first_task[low] <= task < first_task[high] */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(first_task[middle] <= task ? &low : &high) = middle;
    }
    const struct length_class *class = &s->classes[first + low];
    task -= first_task[low];
    return class->is_long ? run_long(plan, bindings, class, phase, task, scratch, error)
                          : run_short(plan, bindings, class, task, scratch, error);
}

const struct plan_kind plan_kind_sequences = {.phases = sequences_phases,
                                              .tasks = sequences_tasks,
                                              .begin = sequences_begin,
                                              .run = sequences_run};
