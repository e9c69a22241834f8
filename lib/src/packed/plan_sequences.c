/*
 * plan_sequences.c - plans attention over packed sequences. The call as a whole is planned first:
 * its options and inputs are checked, and its results get their shapes. Then the sequences get
 * plans of their own, as if each were a call: one plan for all sequences of the same lengths. So a
 * sequence has the bytes that it would have alone. packed/sequences.c runs them.
 */
#include "packed/plan_sequences.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "base/tensor.h"
#include "partition.h"
#include "plan_matrices.h"
#include "plan_memory.h"
#include "plan_results.h"
#include "softmax/cost.h"
#include "softmax/plan_attention.h"
#include "softmax/plan_gate.h"
#include "softmax/plan_half.h"
#include "softmax/plan_options.h"

enum {
    /* Each sequence takes memory, and so do the heads of each plan, and a caller can refuse a plan
     * only after it is made. A plan counts as at least LEAST_HEADS, because it takes as much
     * memory. */
    MOST_HEADS = 65536,
    LEAST_HEADS = 64,
    /* A sequence of at most so many multiply-adds, about 50 us, is one task. A small one,
     * which is one task itself, always is. */
    SHORT_WORK = 1 << 22
};

/* The call without sequences: Q, K and V are (rows,columns), with the columns of all heads. */
struct flat {
    attn_tensor tensors[3], gate, grad_output;
    const attn_tensor *qkv[3];
    attn_options options;
    attn_upstream upstream;
    size_t heads; /* of a Q of rank 3; otherwise 0 */
};

/* -------------------------------------------------------------------------- the call as a whole */

/* Refuses what packed sequences do not have. */
static attn_status check_sequence_options(const attn_options *o, attn_error *error) {
    ATTN_TRY(check_lacks(o, CHECK_SEQUENCES, error));
    const uint64_t wrong = o->results & ~RESULTS_OF(RESULT_PACKED);
    char names[128];
    size_t length = 0;
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (result_is((attn_result)r, RESULT_PACKED) &&
            !result_is((attn_result)r, RESULT_GRADIENT)) {
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                       length > 0 ? ", " : "", attn_result_name((attn_result)r));
            assert(length < sizeof names);
        }
    }
    return wrong == 0 ? ATTN_OK
                      : attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                                  "%s is not possible with sequences, which have %s and gradients",
                                  attn_result_name((attn_result)__builtin_ctzll(wrong)), names);
}

/* Flattens Q, K and V of rank 3, whose heads are an axis. */
static attn_status flatten_heads(struct flat *f, const attn_tensor *const qkv[3],
                                 const char *const names[3], attn_error *error) {
    const size_t heads = qkv[0]->shape[1], kv_heads = qkv[1]->shape[1];
    attn_options *o = &f->options;
    if (heads % kv_heads != 0) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, names[1],
                         "%s has %zu head%s, which is not a multiple of the %zu heads of %s",
                         names[0], heads, plural_end(heads), kv_heads, names[1]);
    }
    ATTN_TRY(check_equal(names[2], qkv[2]->shape[1], "head", names[1], kv_heads, error));
    f->heads = o->heads = heads;
    o->kv_heads = kv_heads;
    for (int i = 0; i < 3; i++) {
        f->tensors[i] = plan_flattened(qkv[i]);
    }
    if (o->gate != NULL) {
        const attn_tensor *given = o->gate;
        const size_t shape[] = {qkv[0]->shape[0], heads, qkv[2]->shape[2]};
        if (given->rank > 3) {
            return attn_fail(error, ATTN_SHAPE_MISMATCH, "gate",
                             "gate has %d axes; the rows of sequences have no batch, so it has 3",
                             given->rank);
        }
        ATTN_TRY(plan_check_gate_shape(given, 3, shape, 1, error));
        f->gate = plan_flattened(given);
        o->gate = &f->gate;
    }
    if (o->upstream != NULL && o->upstream->output != NULL) {
        const attn_tensor *given = o->upstream->output;
        const size_t shape[] = {qkv[0]->shape[0], heads, qkv[2]->shape[2]};
        ATTN_TRY(check_open_shape(given, "grad_output", 3, shape, error));
        f->grad_output = *given;
        f->grad_output.rank = 2;
        f->grad_output.shape[1] = heads * shape[2]; /* fits: both are sizes that were checked */
        f->upstream = *o->upstream;
        f->upstream.output = &f->grad_output;
        o->upstream = &f->upstream;
    }
    return ATTN_OK;
}

/* Makes the flat call. */
static attn_status flatten(struct flat *f, const attn_tensor *const qkv[3], const attn_options *o,
                           attn_error *error) {
    const bool same = qkv[0] == qkv[1] && qkv[1] == qkv[2];
    const char *const names[] = {same ? "X" : "Q", same ? "X" : "K", same ? "X" : "V"};
    *f = (struct flat){.options = *o};
    ATTN_TRY(plan_check_packed(qkv, names, o, error));
    for (int i = 0; i < 3; i++) {
        f->tensors[i] = *qkv[i];
        f->qkv[i] = &f->tensors[same ? 0 : i];
    }
    return qkv[0]->rank == 3 ? flatten_heads(f, qkv, names, error) : ATTN_OK;
}

/* Gives results of the form of Q, K and V the heads as an axis. */
static void unflatten(attn_plan *plan) {
    static const attn_result results[] = {ATTN_RESULT_OUTPUT, ATTN_RESULT_GRAD_Q,
                                          ATTN_RESULT_GRAD_K, ATTN_RESULT_GRAD_V,
                                          ATTN_RESULT_GRAD_X, ATTN_RESULT_GRAD_GATE};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        const struct result *result = &plan->results.of[results[i]];
        const bool kv = results[i] == ATTN_RESULT_GRAD_K || results[i] == ATTN_RESULT_GRAD_V;
        if (result->count > 0) {
            plan_stack(&result->parts[0], kv ? plan->kv_heads : plan->heads);
        }
    }
}

/* -------------------------------------------------------------------------------- the sequences */

/* Checks both lists of lengths. */
static attn_status check_lists(const struct flat *f, attn_error *error) {
    const attn_sequences *s = f->options.sequences;
    const bool same = f->qkv[0] == f->qkv[1], stacked = f->heads > 0;
    ATTN_TRY(plan_check_sequences(s, same ? "X" : "Q", f->qkv[0]->shape[0], stacked, error));
    if (same && s->keys != NULL && memcmp(s->keys, s->queries, s->count * sizeof *s->keys) != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "sequences",
                         "X stands for Q and K, so sequences has one list of lengths for both");
    }
    return plan_check_sum(same ? "X" : "K", f->qkv[1]->shape[0], stacked,
                          s->keys != NULL ? s->keys : s->queries, s->count, error);
}

/* Returns how many numbers are cleared for a row without keys, or without queries. */
static size_t numbers_to_clear(const attn_plan *plan) {
    size_t numbers = 1;
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (plan->results.of[r].count > 0 && !result_is((attn_result)r, RESULT_SHARED)) {
            numbers += plan_row_numbers(plan, (attn_result)r);
        }
    }
    return numbers + plan->heads;
}

static bool is_empty(const struct packed_rows *rows) {
    return rows->n == 0 || rows->m == 0;
}

/* Orders rows by their lengths, those without queries or keys first. */
static int compare_rows(const void *a_, const void *b_) {
    const struct packed_rows *a = a_, *b = b_;
    if (is_empty(a) != is_empty(b)) {
        return is_empty(a) ? -1 : 1;
    }
    if (a->n != b->n) {
        return a->n < b->n ? -1 : 1;
    }
    if (a->m != b->m) {
        return a->m < b->m ? -1 : 1;
    }
    return a->q + a->k < b->q + b->k ? -1 : a->q + a->k > b->q + b->k;
}

/* Lists the sequences. Rows without keys, or without queries, are cut into `some` rows. */
static attn_status list_rows(attn_plan *plan, const attn_sequences *given, attn_error *error) {
    struct sequences *s = plan->sequences;
    const size_t some = size_max(1, COPY_NUMBERS / numbers_to_clear(plan)),
                 *keys = given->keys != NULL ? given->keys : given->queries;
    struct packed_rows next = {0};
    s->rows = plan_alloc(plan, given->count + (plan->n + plan->m) / some, sizeof *s->rows);
    if (s->rows == NULL) {
        return attn_no_memory(error);
    }
    for (size_t i = 0; i < given->count; i++) {
        next.index = i;
        for (size_t n = given->queries[i], m = keys[i]; n + m > 0; n -= next.n, m -= next.m) {
            const bool empty = n == 0 || m == 0;
            next.n = empty ? size_min(n, some) : n;
            next.m = empty ? size_min(m, some) : m;
            s->rows[s->count++] = next;
            next.q += next.n;
            next.k += next.m;
        }
    }
    qsort(s->rows, s->count, sizeof *s->rows, compare_rows);
    return ATTN_OK;
}

/* Does the plan of a sequence depend on the numbers of its positions? */
static bool reads_positions(const attn_plan *plan) {
    const attn_rotary_scaling scaling = plan->rotary.given.scaling;
    return plan_has(plan, INPUT_POSITIONS) &&
           (scaling == ATTN_ROTARY_DYNAMIC || scaling == ATTN_ROTARY_LONGROPE);
}

/* Returns the end of the rows that have one plan with row `first`. */
static size_t end_of_alike(const attn_plan *plan, size_t first) {
    const struct packed_rows *rows = plan->sequences->rows, *one = &rows[first];
    const bool alone = reads_positions(plan) && !is_empty(one);
    size_t end = first + 1;
    while (
        end < plan->sequences->count && !alone &&
        (is_empty(one) ? is_empty(&rows[end]) : rows[end].n == one->n && rows[end].m == one->m)) {
        end++;
    }
    return end;
}

/* Counts the classes, and makes room for them. */
static attn_status new_classes(attn_plan *plan, attn_error *error) {
    struct sequences *s = plan->sequences;
    const size_t most = MOST_HEADS / size_max(plan->heads, LEAST_HEADS);
    size_t class_count = 0;
    for (size_t first = 0; first < s->count; first = end_of_alike(plan, first)) {
        class_count++;
    }
    if (class_count > most) {
        return attn_fail(error, ATTN_TOO_LARGE, "sequences",
                         "the sequences have %zu different %s; with %zu head%s at most %zu are "
                         "possible",
                         class_count, reads_positions(plan) ? "positions" : "pairs of lengths",
                         plan->heads, plural_end(plan->heads), most);
    }
    s->classes = plan_alloc(plan, class_count, sizeof *s->classes);
    if (s->classes == NULL) {
        return attn_no_memory(error);
    }
    s->class_count = class_count;
    return ATTN_OK;
}

/* ----------------------------------------------------------------------- the plans of sequences */

/* Returns rows [first, first + rows) of a tensor along an axis, which is 0 or its last one. */
static attn_tensor some_rows(const attn_tensor *t, int axis, size_t first, size_t rows) {
    attn_tensor some = *t;
    size_t numbers = first;
    for (int i = axis + 1; i < t->rank; i++) {
        numbers *= t->shape[i];
    }
    some.data = (const char *)t->data + numbers * attn_dtype_size(t->dtype);
    some.shape[axis] = rows;
    return some;
}

/* Plans a sequence as a call of its own. */
static attn_status plan_sequence(const attn_plan *plan, const struct flat *f,
                                 const struct packed_rows *at, attn_plan **own, attn_error *error) {
    const attn_tensor q = some_rows(f->qkv[0], 0, at->q, at->n),
                      k = some_rows(f->qkv[1], 0, at->k, at->m),
                      v = some_rows(f->qkv[2], 0, at->k, at->m);
    const bool same = plan->form.same;
    const attn_tensor *const qkv[] = {&q, same ? &q : &k, same ? &q : &v};
    attn_options o = f->options;
    attn_tensor output, lse, positions, decay, gate;
    attn_upstream upstream = {0};
    attn_rotary rotary;
    o.sequences = NULL;
    if (o.upstream != NULL && o.upstream->output != NULL) {
        output = some_rows(o.upstream->output, 0, at->q, at->n);
        upstream.output = &output;
    }
    if (o.upstream != NULL && o.upstream->lse != NULL) { /* its rows lie as in the call */
        lse = some_rows(o.upstream->lse, o.upstream->lse->rank - 1, at->q, at->n);
        upstream.lse = &lse;
    }
    o.upstream = o.upstream != NULL ? &upstream : NULL;
    if (o.decay != NULL) {
        const int axis = plan_decay_axis(plan, o.decay);
        decay = some_rows(o.decay, axis, at->k, at->m);
        if (plan->form.packed) { /* a sequence may have as many keys as heads */
            decay.shape[axis + 2] = 1;
            decay.rank = axis + 3;
        }
        o.decay = &decay;
    }
    if (o.gate != NULL) {
        gate = some_rows(o.gate, 0, at->q, at->n);
        o.gate = &gate;
    }
    if (plan_has(plan, INPUT_POSITIONS)) {
        rotary = *o.rotary;
        positions = some_rows(rotary.positions, rotary.positions->rank - 1, at->q, at->n);
        rotary.positions = &positions;
        o.rotary = &rotary;
    }
    ATTN_TRY(plan_attention(own, qkv[0], qkv[1], qkv[2], &o, error));
    (*own)->results.given_rows = plan->n;
    if (!(*own)->widened.is) {
        (*own)->results.head_rows = plan->n;
    }
    return ATTN_OK;
}

/* Plans all sequences: the short classes from the first one on, the long ones from the last one
 * on. */
static attn_status plan_classes(attn_plan *plan, const struct flat *f, attn_error *error) {
    struct sequences *s = plan->sequences;
    size_t next_long = s->class_count;
    for (size_t first = 0, end; first < s->count; first = end) {
        struct length_class class = {.first = first};
        attn_plan *own = NULL;
        end = end_of_alike(plan, first);
        class.count = end - first;
        if (!is_empty(&s->rows[first])) {
            ATTN_TRY(attn_of_sequence(error, plan_sequence(plan, f, &s->rows[first], &own, error),
                                      s->rows[first].index));
            plan->bytes += sizeof *own + own->bytes;
        }
        class.plan = own;
        class.is_long = own != NULL && !own->path.small && own->schedule.cost > SHORT_WORK;
        s->classes[class.is_long ? --next_long : s->short_classes++] = class;
    }
    return ATTN_OK;
}

/* --------------------------------------------------------------------------------- the schedule */

/* Reserves bytes at the end of a memory. Returns false if the memory could not be addressed. */
static bool reserve_bytes(size_t *memory, size_t bytes, size_t *at) {
    *at = *memory;
    return size_align(&bytes) && size_add(*memory, bytes, memory);
}

/* Lays out the scratch of a short class: what its plan needs, then its workspace. Everything is
 * small. */
static size_t map_short_scratch(struct length_class *class) {
    const attn_plan *own = class->plan;
    size_t bytes = own->schedule.scratch.bytes;
    reserve_bytes(&bytes, own->schedule.workspace.bytes, &class->workspace);
    return bytes;
}

/* Returns the cost of all sequences of a class. Pieces without keys, or without queries, may have
 * any number of rows. */
static double cost_of_class(const attn_plan *plan, const struct length_class *class) {
    const struct packed_rows *pieces = &plan->sequences->rows[class->first];
    const double numbers = (double)numbers_to_clear(plan);
    double cost = 0;
    if (class->plan != NULL) {
        return class->plan->schedule.cost * (double)class->count;
    }
    for (size_t i = 0; i < class->count; i++) {
        const double rows = (double)pieces[i].n + (double)pieces[i].m;
        cost += cost_of_copying(rows * numbers, rows);
    }
    return cost;
}

/* Cuts a class into runs, and gives it its memory. Returns false if that cannot be addressed. */
static bool cut_class(attn_plan *plan, struct length_class *class) {
    struct sequences *s = plan->sequences;
    struct schedule *schedule = &plan->schedule;
    const double cost = cost_of_class(plan, class);
    size_t scratch = 0, workspace = 0;
    bool fits = true;
    schedule->cost += cost;
    class->sums = s->places;
    if (class->is_long) {
        assert(class->plan != NULL);
        scratch = class->plan->schedule.scratch.bytes;
        fits = size_mul(class->plan->schedule.workspace.bytes, class->count, &workspace) &&
               reserve_bytes(&schedule->workspace.bytes, workspace, &class->workspace);
        s->places += class->count;
    } else {
        class->runs = partition_units(class->count, cost);
        scratch = class->plan != NULL ? map_short_scratch(class) : 0;
        s->places += class->runs.tasks;
    }
    schedule->scratch.bytes = size_max(schedule->scratch.bytes, scratch);
    return fits;
}

/* Returns the tasks of all sequences of a class in a phase. */
static size_t tasks_of_class(const struct sequences *s, const struct length_class *class,
                             size_t phase) {
    if (!class->is_long) {
        return class->runs.tasks;
    }
    return class->count * (phase > PHASE_SHORT ? attn_plan_tasks(class->plan, phase - 1)
                           : s->shared > 0     ? 1
                                               : 0);
}

/* Counts the tasks of all phases. */
static attn_status count_phases(attn_plan *plan, attn_error *error) {
    struct sequences *s = plan->sequences;
    s->phases = PHASE_SHORT + 1;
    for (size_t i = s->short_classes; i < s->class_count; i++) {
        s->phases = size_max(s->phases, 1 + attn_plan_phases(s->classes[i].plan));
    }
    const size_t phases = s->phases;
    s->phases += s->shared > 0;
    s->first_task = plan_alloc(plan, phases, sizeof *s->first_task);
    for (size_t phase = PHASE_SHORT; s->first_task != NULL && phase < phases; phase++) {
        const size_t first = sequences_first(s, phase);
        size_t *first_task = plan_alloc(plan, s->class_count - first + 1, sizeof *first_task);
        if (first_task == NULL) {
            return attn_no_memory(error);
        }
        for (size_t i = first; i < s->class_count; i++) {
            first_task[i - first + 1] =
                first_task[i - first] + tasks_of_class(s, &s->classes[i], phase);
        }
        s->first_task[phase] = first_task;
    }
    return s->first_task == NULL ? attn_no_memory(error) : ATTN_OK;
}

/* Cuts the sums of shared gradients. Returns false if their memory cannot be addressed. */
static bool cut_shared(attn_plan *plan) {
    struct sequences *s = plan->sequences;
    size_t sums;
    if (s->shared == 0) {
        return true;
    }
    s->adds = partition_units(s->shared, 8.0 * (double)s->shared * (double)s->places);
    return size_mul(s->places * sizeof(double), s->shared, &sums) &&
           reserve_bytes(&plan->schedule.workspace.bytes, sums, &s->sums);
}

static attn_status plan_parts_of_call(attn_plan *plan, const struct flat *f, attn_error *error) {
    const attn_sequences *given = f->options.sequences;
    bool fits = true;
    ATTN_TRY(check_lists(f, error));
    plan->sequences = plan_alloc(plan, 1, sizeof *plan->sequences);
    if (plan->sequences == NULL) {
        return attn_no_memory(error);
    }
    struct sequences *s = plan->sequences;
    plan->kind = &plan_kind_sequences;
    ATTN_TRY(plan_round_inputs(plan, error));
    ATTN_TRY(list_rows(plan, given, error));
    ATTN_TRY(new_classes(plan, error));
    ATTN_TRY(plan_classes(plan, f, error));
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        s->shared += result_is((attn_result)r, RESULT_SHARED) && plan_wants(plan, UINT64_C(1) << r)
                         ? part_numbers(plan->results.of[r].parts)
                         : 0;
    }
    for (size_t i = 0; i < s->class_count; i++) {
        fits = cut_class(plan, &s->classes[i]) && fits;
    }
    if (!cut_shared(plan) || !fits) {
        return attn_too_large(error);
    }
    if (f->heads > 0) {
        unflatten(plan);
    }
    return count_phases(plan, error);
}

attn_status plan_sequences(attn_plan **plan, const attn_tensor *const qkv[3], const attn_options *o,
                           attn_error *error) {
    struct flat f;
    *plan = NULL;
    ATTN_TRY(check_options(o, error));
    ATTN_TRY(check_sequence_options(o, error));
    ATTN_TRY(flatten(&f, qkv, o, error));
    ATTN_TRY(plan_attention(plan, f.qkv[0], f.qkv[1], f.qkv[2], &f.options, error));
    return plan_or_free(plan, plan_parts_of_call(*plan, &f, error));
}
