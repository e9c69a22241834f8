/*
 * sequences.c runs plans of packed sequences, see struct sequences. A task takes a copy of the plan
 * of its sequence, whose pointers are those of the rows of the sequence.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/run.h"
#include "plan_build.h"
#include "status.h"
#include "tensor.h"

enum {
    SEQUENCE_RESULTS = 15 /* the results that a call of sequences may have */
};

/* The copy of a plan for one sequence. */
struct instance {
    attn_plan plan;
    attn_result_tensor parts[SEQUENCE_RESULTS];
};

static void copy_plan(const attn_plan *from, struct instance *to) {
    attn_result_tensor *next = to->parts;
    to->plan = *from;
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (from->results.of[r].count > 0) {
            assert(next < to->parts + SEQUENCE_RESULTS);
            *next = from->results.of[r].parts[0];
            to->plan.results.of[r].parts = next++;
        }
    }
}

/* Makes these rows the inputs of a plan. */
static void place_inputs(attn_plan *own, const void *const rows[ROWS_COUNT]) {
    own->bindings.inputs[INPUT_Q] = rows[ROWS_Q];
    own->bindings.inputs[INPUT_K] = rows[ROWS_K];
    own->bindings.inputs[INPUT_V] = rows[ROWS_V];
    own->bindings.inputs[INPUT_DECAY] = rows[ROWS_DECAY];
    own->bindings.inputs[INPUT_POSITIONS] = rows[ROWS_POSITIONS];
    own->bindings.inputs[INPUT_GRAD_OUTPUT] = rows[ROWS_GRAD_OUTPUT];
    own->bindings.inputs[INPUT_GRAD_LSE] = rows[ROWS_GRAD_LSE];
}

/* Returns row `row` of an array, or NULL if there is no array. */
static const void *row_of_bytes(const void *data, size_t row, size_t bytes) {
    return data == NULL ? NULL : (const char *)data + row * bytes;
}

static void place_sequence(const attn_plan *plan, const struct packed_rows *at,
                           const void *rows[ROWS_COUNT]) {
    const size_t size = attn_dtype_size(plan->dtype);
    rows[ROWS_Q] = row_of_bytes(plan->bindings.inputs[INPUT_Q], at->q, plan->in.q.ld * size);
    rows[ROWS_K] = row_of_bytes(plan->bindings.inputs[INPUT_K], at->k, plan->in.k.ld * size);
    rows[ROWS_V] = row_of_bytes(plan->bindings.inputs[INPUT_V], at->k, plan->in.v.ld * size);
    rows[ROWS_DECAY] =
        row_of_bytes(plan->bindings.inputs[INPUT_DECAY], at->k, plan->decay.stride[2] * size);
    rows[ROWS_POSITIONS] = row_of_bytes(plan->bindings.inputs[INPUT_POSITIONS], at->q,
                                        attn_dtype_size(plan->rotary.positions_dtype));
    rows[ROWS_GRAD_OUTPUT] =
        row_of_bytes(plan->bindings.inputs[INPUT_GRAD_OUTPUT], at->q, plan->out.ld * size);
    rows[ROWS_GRAD_LSE] = row_of_bytes(plan->bindings.inputs[INPUT_GRAD_LSE], at->q, size);
}

/* Are the rows of a result those of K? */
static bool has_key_rows(int which) {
    return which == ATTN_RESULT_GRAD_K || which == ATTN_RESULT_GRAD_V ||
           which == ATTN_RESULT_GRAD_DECAY;
}

/* Returns where the results of some rows begin. */
static void *result_rows(const attn_plan *plan, attn_result which, const struct packed_rows *at) {
    return (char *)plan->results.of[which].parts[0].data +
           (has_key_rows((int)which) ? at->k : at->q) * plan_row_numbers(plan, which) *
               attn_dtype_size(plan->dtype);
}

/* Returns the shared sums of a run, or of a long sequence. */
static double *shared_sums(const attn_plan *plan, size_t place) {
    const struct sequences *s = plan->sequences;
    return (double *)((char *)plan->workspace + s->sums) + place * s->shared;
}

static void clear_shared(const attn_plan *plan, size_t place) {
    if (plan->sequences->shared > 0) {
        memset(shared_sums(plan, place), 0, plan->sequences->shared * sizeof(double));
    }
}

/* Makes the copy of the plan of a sequence. `place` is that of its shared sums. */
static void make_instance(const attn_plan *plan, const struct alike *kind,
                          const struct packed_rows *at, size_t place, struct instance *to) {
    const void *rows[ROWS_COUNT];
    double *sums = plan->sequences->shared > 0 ? shared_sums(plan, place) : NULL;
    copy_plan(kind->plan, to);
    place_sequence(plan, at, rows);
    place_inputs(&to->plan, rows);
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        const struct result *result = &to->plan.results.of[r];
        if (result->count == 0) {
            continue;
        }
        if (result_is((attn_result)r, RESULT_SHARED)) {
            to->plan.gradients.shared[result_place((attn_result)r, RESULT_SHARED)] = sums;
            result->parts[0].data = sums;
            sums += part_numbers(&result->parts[0]);
        } else {
            result->parts[0].data = result_rows(plan, (attn_result)r, at);
        }
    }
}

/* ------------------------------------------------------------------------------ short sequences */

/* Copies rows of the inputs of a small sequence in double. Positions may be doubles. */
static void widen_rows(const attn_plan *own, const void *const from[ROWS_COUNT],
                       const struct alike *kind, char *scratch, const void *to[ROWS_COUNT]) {
    const attn_plan *wide = kind->plan->wide->plan; /* its heads are those of the caller */
    const struct {
        size_t rows, columns, apart; /* from one row to the next */
    } shapes[ROWS_COUNT] = {
        [ROWS_Q] = {1, own->in.q.numbers, 0},
        [ROWS_K] = {1, own->in.k.numbers, 0},
        [ROWS_V] = {1, own->in.v.numbers, 0},
        [ROWS_DECAY] = {1, own->decay.heads * own->m, 0},
        [ROWS_POSITIONS] = {1, wide->n, 0},
        [ROWS_GRAD_OUTPUT] = {1, own->out.batch, 0},
        [ROWS_GRAD_LSE] = {wide->heads, wide->n, own->results.head_rows},
    };
    for (int i = 0; i < ROWS_COUNT; i++) {
        double *next = (double *)(scratch + kind->wide.rows[i]);
        if (i == ROWS_POSITIONS && own->rotary.positions_dtype == ATTN_FLOAT64) {
            to[i] = from[i];
            continue;
        }
        to[i] = from[i] == NULL ? NULL : next;
        for (size_t row = 0; from[i] != NULL && row < shapes[i].rows; row++) {
            const float *x = (const float *)from[i] + row * shapes[i].apart;
            for (size_t c = 0; c < shapes[i].columns; c++) {
                *next++ = (double)x[c];
            }
        }
    }
}

/* Gives the copy of a plan a copy of the wide plan. */
static void add_wide(struct instance *own, const struct alike *kind, char *scratch,
                     struct instance *wide, struct wide *to) {
    const attn_plan *p = &own->plan;
    const void *const from[ROWS_COUNT] = {
        p->bindings.inputs[INPUT_Q],         p->bindings.inputs[INPUT_K],
        p->bindings.inputs[INPUT_V],         p->bindings.inputs[INPUT_DECAY],
        p->bindings.inputs[INPUT_POSITIONS], p->bindings.inputs[INPUT_GRAD_OUTPUT],
        p->bindings.inputs[INPUT_GRAD_LSE],
    };
    const void *rows[ROWS_COUNT];
    copy_plan(kind->plan->wide->plan, wide);
    widen_rows(p, from, kind, scratch, rows);
    place_inputs(&wide->plan, rows);
    memcpy(wide->plan.gradients.shared, p->gradients.shared, sizeof p->gradients.shared);
    attn_plan_bind_all(&wide->plan, scratch + kind->wide.results);
    wide->plan.workspace = scratch + kind->wide.workspace;
    to->plan = &wide->plan;
    own->plan.wide = to;
}

/* Computes a short sequence. */
static attn_status run_sequence(const attn_plan *plan, const struct alike *kind,
                                const struct packed_rows *at, size_t place, char *scratch,
                                attn_error *error) {
    struct instance own, wide_own;
    struct wide wide;
    make_instance(plan, kind, at, place, &own);
    own.plan.workspace = scratch + kind->workspace;
    if (kind->plan->wide != NULL) {
        add_wide(&own, kind, scratch, &wide_own, &wide);
    }
    for (size_t phase = 0; phase < attn_plan_phases(&own.plan); phase++) {
        for (size_t task = 0; task < attn_plan_tasks(&own.plan, phase); task++) {
            ATTN_TRY(attn_of_sequence(
                error, task_run(&own.plan, &own.plan.bindings, phase, task, scratch, error),
                at->index));
        }
    }
    return ATTN_OK;
}

/* Writes the lse of queries without keys: that of their sink alone. */
static void fill_lse(const attn_plan *plan, const struct packed_rows *at) {
    const struct result *lse = &plan->results.of[ATTN_RESULT_LSE];
    for (size_t h = 0; lse->count > 0 && h < plan->heads; h++) {
        const double sink = plan->scoring.sinks == NULL ? -INFINITY : plan->scoring.sinks[h];
        const size_t first = h * plan->n + at->q;
        for (size_t i = first; i < first + at->n; i++) {
            put_number(lse->parts[0].data, plan->dtype, i, sink);
        }
    }
}

/* Writes the results of rows without keys or without queries. */
static void clear_rows(const attn_plan *plan, const struct packed_rows *at) {
    const size_t size = attn_dtype_size(plan->dtype);
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (plan->results.of[r].count == 0 || r == ATTN_RESULT_LSE ||
            result_is((attn_result)r, RESULT_SHARED)) {
            continue;
        }
        const size_t bytes =
            (has_key_rows(r) ? at->m : at->n) * plan_row_numbers(plan, (attn_result)r) * size;
        char *to = result_rows(plan, (attn_result)r, at);
        const size_t copies = r == ATTN_RESULT_ENTROPY ? plan->heads : 1;
        for (size_t h = 0; h < copies; h++) {
            memset(to + h * plan->n * size, 0, bytes);
        }
    }
    fill_lse(plan, at);
}

/* Adds the gradients of the sinks by the lse of queries without keys, which is the sink. */
static void add_sinks(const attn_plan *plan, const struct packed_rows *at, size_t place) {
    const void *lse = plan->bindings.inputs[INPUT_GRAD_LSE];
    if (lse == NULL || !plan_wants(plan, ATTN_WANT(GRAD_SINK))) {
        return;
    }
    double *sums = shared_sums(plan, place); /* those of the sinks are the first ones */
    for (size_t h = 0; h < plan->heads; h++) {
        for (size_t i = 0; i < at->n; i++) {
            sums[h] += number_at(lse, plan->dtype, h * plan->n + at->q + i);
        }
    }
}

/* Runs one run of a short kind. */
static attn_status run_short(const attn_plan *plan, const struct alike *kind, size_t run,
                             char *scratch, attn_error *error) {
    const struct packed_rows *rows = plan->sequences->rows + kind->first;
    size_t first, end;
    units_of_task(&kind->runs, run, &first, &end);
    clear_shared(plan, kind->sums + run);
    for (size_t i = first; i < end; i++) {
        if (kind->plan == NULL) {
            clear_rows(plan, &rows[i]);
            add_sinks(plan, &rows[i], kind->sums + run);
        } else {
            ATTN_TRY(run_sequence(plan, kind, &rows[i], kind->sums + run, scratch, error));
        }
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------- long sequences */

/* Runs one task of a phase of a long kind; the first phase clears shared sums. */
static attn_status run_long(const attn_plan *plan, const struct alike *kind, size_t phase,
                            size_t task, void *scratch, attn_error *error) {
    if (phase == PHASE_SHORT) {
        clear_shared(plan, kind->sums + task);
        return ATTN_OK;
    }
    const size_t tasks = attn_plan_tasks(kind->plan, phase - 1), member = task / tasks;
    const struct packed_rows *at = &plan->sequences->rows[kind->first + member];
    struct instance own;
    make_instance(plan, kind, at, kind->sums + member, &own);
    own.plan.workspace =
        (char *)plan->workspace + kind->workspace + member * kind->plan->schedule.workspace.bytes;
    return attn_of_sequence(
        error, task_run(&own.plan, &own.plan.bindings, phase - 1, task % tasks, scratch, error),
        at->index);
}

/* ----------------------------------------------------------------------------- shared gradients */

/* Writes element `index` of a shared gradient. */
static attn_status keep_shared(const attn_plan *plan, attn_result which, size_t index, double sum,
                               attn_error *error) {
    const attn_result_tensor *part = &plan->results.of[which].parts[0];
    put_number(part->data, plan->dtype, index, sum);
    return isfinite(number_at(part->data, plan->dtype, index))
               ? ATTN_OK
               : gradient_not_finite(part, which, index, error);
}

/* Adds up some numbers of the shared gradients, in the order of the places of their sums. */
static attn_status add_shared(const attn_plan *plan, size_t task, attn_error *error) {
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
                sum += shared_sums(plan, place)[e];
            }
            ATTN_TRY(keep_shared(plan, (attn_result)r, e - before, sum, error));
        }
        before += numbers;
    }
    return ATTN_OK;
}

/* ----------------------------------------------------------------------------- the entry points */

/* Gives the plan of a sequence the inputs that all share. They may be rounded copies. */
static void share_inputs(const attn_plan *plan, attn_plan *own) {
    static const int shared[] = {INPUT_B_Q,    INPUT_B_K,        INPUT_B_V,       INPUT_NORM_Q,
                                 INPUT_NORM_K, INPUT_ROTARY_COS, INPUT_ROTARY_SIN};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        own->bindings.inputs[shared[i]] = plan->bindings.inputs[shared[i]];
    }
}

attn_status sequences_begin(const attn_plan *plan, attn_error *error) {
    const struct sequences *s = plan->sequences;
    for (size_t i = 0; i < s->kinds; i++) {
        attn_plan *own = s->alike[i].plan;
        if (own != NULL) {
            share_inputs(plan, own);
            ATTN_TRY(plan_read_numbers(own, error));
        }
        if (own != NULL && own->wide != NULL) {
            task_widen(own);
            ATTN_TRY(plan_read_numbers(own->wide->plan, error));
        }
    }
    return ATTN_OK;
}

attn_status sequences_task(const attn_plan *plan, size_t phase, size_t task, void *scratch,
                           attn_error *error) {
    const struct sequences *s = plan->sequences;
    if (s->shared > 0 && phase + 1 == s->phases) {
        return add_shared(plan, task, error);
    }
    if (phase == PHASE_NARROW) {
        return task_run(plan, &plan->bindings, phase, task, scratch, error);
    }
    const size_t first = sequences_first(s, phase), *before = s->before[phase];
    size_t low = 0, high = s->kinds - first; /* before[low] <= task < before[high] */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(before[middle] <= task ? &low : &high) = middle;
    }
    const struct alike *kind = &s->alike[first + low];
    task -= before[low];
    return kind->is_long ? run_long(plan, kind, phase, task, scratch, error)
                         : run_short(plan, kind, task, scratch, error);
}
