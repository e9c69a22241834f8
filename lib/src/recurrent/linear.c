/*
 * linear.c runs the tasks of linear attention: it checks numbers, and finds the tiles of a task,
 * which recurrence.c computes position by position, or chunks.inc in chunks.
 *
 * The first phase checks the gates, and each later one computes a segment of positions of every
 * state. A task has a tile of the columns of some states (state_tile.h). It computes chunks of
 * positions as matrices (chunks.inc), or few positions one by one in double. The weights belong to
 * the second phase (chunk_weights.inc). Gradients have more phases: each takes a segment back
 * (backward.c), and the last one adds what heads, tiles and sequences give to the same input
 * (partial_gradients.c).
 */
#include "base/status.h"
#include "base/tensor.h"
#include "kernels/kernels.h"
#include "partition.h"
#include "recurrent/backward.h"
#include "recurrent/chunks.h"
#include "recurrent/partial_gradients.h"
#include "recurrent/recurrence.h"

/* ----------------------------------------------------------------------------------- the checks */

/* Fails because a decay or beta is no possible number. */
static attn_status bad_gate(const struct state_tile *s, const char *name, double number, size_t i,
                            const char *rule) {
    return attn_fail(s->error, ATTN_INVALID_ARGUMENT, name,
                     "%s is %g at %s %zu, head %zu, position %zu: %s", name, number,
                     s->l->packed_sequences ? "sequence" : "batch item", s->sequence->item,
                     s->state, i, rule);
}

/* Returns the row of a position in the result decays. */
static char *row_of_decays(const struct state_tile *s, size_t i) {
    const struct linear *l = s->l;
    const attn_plan *p = s->plan;
    const size_t item = item_of(s), row = s->sequence->first + i;
    const size_t place = p->form.packed ? (item * p->n + row) * l->states + s->state
                                        : (item * l->states + s->state) * p->n + row;
    return (char *)at_number(p, s->bindings->results[ATTN_RESULT_DECAYS], place * decays_of(l));
}

/* Checks the decays and the beta of a position, and writes its gates. */
static attn_status check_position(const struct state_tile *s, size_t i) {
    const struct linear *l = s->l;
    const attn_plan *p = s->plan;
    void *gates = plan_wants(p, ATTN_WANT(DECAYS)) ? row_of_decays(s, i) : NULL;
    for (size_t c = 0; c < decays_of(l); c++) {
        const double decay = number_at(gate_of(s, INPUT_DECAY, i), p->dtype, c);
        if (!(decay <= 0)) {
            return bad_gate(s, "decay", decay, i,
                            "decay is the logarithm of the gate, so it is at most 0");
        }
        if (gates != NULL) {
            put_number(gates, p->dtype, c, exp(decay));
        }
    }
    const double beta = l->beta.given ? beta_of(s, i) : 0;
    return isfinite(beta) ? ATTN_OK : bad_gate(s, "beta", beta, i, "beta must be finite");
}

/* Clears what the results have for a position that belongs to no sequence. */
static void clear_position(struct state_tile *s, size_t i) {
    const attn_plan *p = s->plan;
    const size_t size = attn_dtype_size(p->dtype), d_v = s->l->d_v;
    for (size_t h = 0; plan_wants(p, ATTN_WANT(OUTPUT)) && h < p->heads; h++) {
        memset(tile_output(s, h, i), 0, d_v * size);
    }
    for (s->state = 0; s->state < s->l->states; s->state++) {
        if (plan_wants(p, ATTN_WANT(STATES))) {
            memset(tile_state(s, ATTN_RESULT_STATES, p->n, i, 0), 0, s->l->d * d_v * size);
        }
        if (plan_wants(p, ATTN_WANT(DECAYS))) {
            memset(row_of_decays(s, i), 0, decays_of(s->l) * size);
        }
    }
}

/* Checks, or clears, rows [first, end) of a batch item, or of all sequences. */
static attn_status check_rows_of(const struct state_tile *of,
                                 const struct linear_sequence *sequence, size_t first, size_t end) {
    const size_t begin = size_max(first, sequence->first),
                 stop = size_min(end, sequence->first + sequence->rows);
    struct state_tile s = *of;
    s.sequence = sequence;
    for (s.state = 0; s.state < s.l->states; s.state++) {
        for (size_t row = begin; row < stop; row++) {
            ATTN_TRY(check_position(&s, row - sequence->first));
        }
    }
    for (size_t row = size_max(begin, stop); row < end && !s.l->packed_sequences; row++) {
        clear_position(&s, row);
    }
    return ATTN_OK;
}

/* Checks rows [first, end) of packed sequences. */
static attn_status check_sequences(const struct state_tile *s, size_t first, size_t end) {
    const size_t *starts = s->l->starts;
    size_t low = 0, high = s->l->count; /* starts[low] <= first < starts[high] */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        *(starts[middle] <= first ? &low : &high) = middle;
    }
    for (size_t i = low; i < s->l->count && starts[i] < end; i++) {
        const struct linear_sequence sequence = {
            .item = i, .first = starts[i], .rows = starts[i + 1] - starts[i]};
        ATTN_TRY(check_rows_of(s, &sequence, first, end));
    }
    return ATTN_OK;
}

static attn_status check_task(const struct state_tile *s, size_t task) {
    const struct linear *l = s->l;
    size_t unit, end;
    for (units_of_task(&l->checks, task, &unit, &end); unit < end; unit++) {
        const size_t first = unit % l->check_blocks * l->check_rows,
                     last = end_of(first, l->check_rows, s->plan->n);
        ATTN_TRY(l->packed_sequences
                     ? check_sequences(s, first, last)
                     : check_rows_of(s, &l->sequences[unit / l->check_blocks], first, last));
    }
    return ATTN_OK;
}

/* ---------------------------------------------------------------------------------------- tasks */

/* Finds the positions of a segment. */
static void find_positions(struct state_tile *s, size_t segment) {
    s->first = size_min(segment * s->l->rows, s->sequence->rows);
    s->end = end_of(s->first, s->l->rows, s->sequence->rows);
}

/* Computes a tile in one segment: in the fastest of three ways that is exact enough. A sequence
 * that is as short as calls that are computed step by step is computed so, too. Gradients begin
 * with states in double, because a correction that is small beside its terms is a factor of that of
 * beta. */
static attn_status run_tile(const struct state_tile *s, void *scratch) {
    const struct linear *l = s->l;
    const bool in_double = linear_in_double(s->plan);
    bool ill_conditioned = false;
    if (l->chunk == 0 || s->sequence->rows < LINEAR_FEW_POSITIONS) {
        return recurrence_run(s, scratch);
    }
    /* A product may be too large before a gate makes it small. Double has room for it. */
    if (!in_double && chunks_run_f32(s, scratch, &ill_conditioned) == ATTN_OK && !ill_conditioned) {
        return ATTN_OK;
    }
    const attn_status status = chunks_run_f64(s, scratch, &ill_conditioned);
    return in_double && (ill_conditioned || status != ATTN_OK) ? recurrence_run(s, scratch)
                                                               : status;
}

/* Computes the tiles of a task, or goes back through them. */
static attn_status segment_task(struct state_tile *s, size_t segment, size_t task, bool back,
                                void *scratch) {
    const struct linear *l = s->l;
    const struct partition tiles = {l->longer[segment] * l->states * l->tiles, l->per_task, 0};
    size_t unit, end;
    for (units_of_task(&tiles, task, &unit, &end); unit < end; unit++) {
        s->sequence = &l->sequences[unit / l->tiles / l->states];
        s->state = unit / l->tiles % l->states;
        s->column = unit % l->tiles * l->columns;
        s->columns = size_min(l->columns, l->d_v - s->column);
        find_positions(s, segment);
        if (back) {
            backward_run(s, scratch);
        } else {
            ATTN_TRY(run_tile(s, scratch));
        }
    }
    return ATTN_OK;
}

/* Clears the weights of queries that belong to no sequence. */
static void clear_rows_of_weights(const struct state_tile *s, size_t h, size_t first, size_t end) {
    const size_t bytes = s->plan->n * attn_dtype_size(s->plan->dtype);
    for (size_t i = size_max(first, s->sequence->rows); i < end; i++) {
        memset(tile_weights(s, h, i), 0, bytes);
    }
}

static attn_status weigh_blocks(struct state_tile *s, size_t task, void *scratch) {
    const struct linear *l = s->l;
    size_t unit, end;
    for (units_of_task(&l->weights, task, &unit, &end); unit < end; unit++) {
        /* The last blocks come first: they cost most. */
        const size_t block = l->blocks - 1 - unit % l->blocks,
                     h = unit / l->blocks % s->plan->heads, first = block * l->block;
        s->sequence = &l->sequences[unit / l->blocks / s->plan->heads];
        s->state = h / l->group;
        clear_rows_of_weights(s, h, first, end_of(first, l->block, s->plan->n));
        if (first < s->sequence->rows) {
            ATTN_TRY(chunks_weigh_f64(s, h, block, scratch));
        }
    }
    return ATTN_OK;
}

static attn_status linear_run(const attn_plan *plan, const struct bindings *bindings, size_t phase,
                              size_t task, void *scratch, attn_error *error) {
    struct state_tile s = {.plan = plan,
                           .bindings = bindings,
                           .l = plan->linear,
                           .kernels = attn_kernels(),
                           .error = error};
    const size_t segments = s.l->segments;
    if (phase == 0) {
        return check_task(&s, task);
    }
    if (phase > 2 * segments) {
        return partial_gradients_task(&s, task, scratch);
    }
    if (phase > segments) {
        return segment_task(&s, 2 * segments - phase, task, true, scratch);
    }
    const size_t tasks = linear_runs(plan, phase - 1) ? linear_segment_tasks(s.l, phase - 1) : 0;
    return task < tasks ? segment_task(&s, phase - 1, task, false, scratch)
                        : weigh_blocks(&s, task - tasks, scratch);
}

/* The first phase checks numbers, and each of the others is a segment. The weights belong to the
 * first segment. Then each segment has a phase of the gradients, from the last to the first, and
 * the last phase adds their partial gradients. */
static size_t linear_phases(const attn_plan *plan) {
    const struct linear *l = plan->linear;
    return 1 + l->segments + (l->gradients.wanted ? l->segments + 1 : 0);
}

static size_t linear_tasks(const attn_plan *plan, size_t phase) {
    const struct linear *l = plan->linear;
    size_t tasks = phase == 0 ? l->checks.tasks : 0;
    if (phase > 0 && phase <= l->segments) {
        tasks = (linear_runs(plan, phase - 1) ? linear_segment_tasks(l, phase - 1) : 0) +
                (phase == 1 ? l->weights.tasks : 0);
    } else if (phase > 0 && phase <= 2 * l->segments) {
        tasks = linear_segment_tasks(l, 2 * l->segments - phase);
    } else if (phase > 0) {
        for (int i = 0; i < LINEAR_INPUTS; i++) {
            tasks += l->gradients.sums[i].tasks;
        }
    }
    return tasks;
}

const struct plan_kind plan_kind_linear = {
    .phases = linear_phases, .tasks = linear_tasks, .run = linear_run};
