/*
 * plan_linear.c - plans linear attention: it checks the call, lists its sequences, and checks what
 * its results and gradients need. plan_results.c gives results their shapes, and schedule_linear.c
 * cuts the call into tasks.
 */
#include "recurrent/plan_linear.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/status.h"
#include "base/tensor.h"
#include "plan_inputs.h"
#include "plan_matrices.h"
#include "plan_memory.h"
#include "plan_results.h"
#include "recurrent/schedule_linear.h"

enum {
    MOST_COLUMNS = 4096, /* of a row of K, so that a chunk fits a scratch */
    MOST_WEIGHTS = 32768 /* positions of a row of weights, so that a task ends soon */
};

/* ---------------------------------------------------------------------------------- the options */

/* Refuses what linear attention does not have. */
static attn_status check_linear_options(const attn_options *o, attn_error *error) {
    attn_options others = *o;
    others.decay = NULL; /* the rules of attention about it are others */
    ATTN_TRY(check_options(&others, error));
    return check_lacks(o, CHECK_LINEAR, error);
}

/* Checks the update against what is given. */
static attn_status check_update(struct linear *l, const attn_options *o, attn_error *error) {
    static const char *const names[] = {"linear", "gated", "delta", "gated_delta"};
    const attn_linear *call = &l->given;
    const bool decay = o->decay != NULL, beta = call->beta != NULL;
    if ((unsigned)call->update > ATTN_GATED_DELTA) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "update", "update is %d; it must be 0 to 4",
                         (int)call->update);
    }
    l->corrects = beta;
    if (call->update == ATTN_UPDATE_AS_GIVEN) {
        return ATTN_OK;
    }
    const bool gated = call->update == ATTN_GATED || call->update == ATTN_GATED_DELTA;
    const bool delta = call->update == ATTN_DELTA || call->update == ATTN_GATED_DELTA;
    const char *name = names[call->update - ATTN_LINEAR];
    if (gated != decay) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "decay",
                         gated ? "update \"%s\" needs decay, the logarithm of the gates"
                               : "update \"%s\" has no decay: use \"gated\" or \"gated_delta\"",
                         name);
    }
    if (delta != beta) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "beta",
                         delta ? "update \"%s\" needs beta, the share of each correction"
                               : "update \"%s\" has no beta: use \"delta\" or \"gated_delta\"",
                         name);
    }
    return ATTN_OK;
}

/* --------------------------------------------------------------------------------- the matrices */

/* Finds the heads of packed Q, K and V. d is the columns of Q divided by its heads, and so those of
 * K say how many heads it has. */
static attn_status find_packed_heads(const attn_linear *call, const attn_options *o,
                                     size_t heads[3], attn_error *error) {
    const size_t q = o->heads, kv = o->kv_heads != 0 ? o->kv_heads : q;
    heads[0] = heads[1] = heads[2] = 0;
    if (q == 0 && o->kv_heads != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "kv_heads",
                         "kv_heads needs heads: without heads, the heads are an axis of Q and K");
    }
    if (q == 0) {
        return ATTN_OK;
    }
    if (q % kv != 0 && kv % q != 0) {
        return attn_fail(
            error, ATTN_INVALID_ARGUMENT, "kv_heads",
            "heads = %zu and kv_heads = %zu: one of them must be a multiple of the other", q, kv);
    }
    ATTN_TRY(check_rows(call->q, "Q", 2, MOST_AXES + 2, 2, error));
    ATTN_TRY(check_rows(call->k, "K", 2, MOST_AXES + 2, 2, error));
    const size_t q_columns = call->q->shape[call->q->rank - 1],
                 columns = call->k->shape[call->k->rank - 1];
    ATTN_TRY(check_columns("Q", q_columns, q, "heads", error));
    const size_t d = q_columns / q, k = columns / d;
    if (columns % d != 0 || k == 0 || (kv % k != 0 && k % kv != 0)) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "K",
                         "K has %zu column%s, not %zu: with %zu for each head as in Q, it has %s = "
                         "%zu heads, or a multiple or divisor of this number",
                         columns, plural_end(columns), kv * d, d,
                         o->kv_heads != 0 ? "kv_heads" : "heads", kv);
    }
    heads[0] = q, heads[1] = k, heads[2] = kv;
    return ATTN_OK;
}

/* Plans Q, K and V, and finds the states. */
static attn_status plan_rows(attn_plan *plan, const attn_options *o, attn_error *error) {
    static const char *const names[] = {"Q", "K", "V"};
    struct linear *l = plan->linear;
    struct matrix m[3];
    const attn_tensor *qkv[] = {l->given.q, l->given.k, l->given.v};
    attn_tensor flat[3];
    size_t heads[3];
    if (o->sequences != NULL) {
        ATTN_TRY(plan_check_packed(qkv, names, o, error));
    }
    l->stacked = o->sequences != NULL && qkv[0]->rank == 3;
    for (int i = 0; i < 3 && l->stacked; i++) {
        heads[i] = qkv[i]->shape[1];
        flat[i] = plan_flattened(qkv[i]);
        qkv[i] = &flat[i];
    }
    if (!l->stacked) {
        ATTN_TRY(find_packed_heads(&l->given, o, heads, error));
    }
    for (int i = 0; i < 3; i++) {
        m[i] = (struct matrix){.tensor = qkv[i], .name = names[i]};
    }
    ATTN_TRY(plan_matrices(plan, m, heads, o, error));
    ATTN_TRY(check_equal("K", plan->in.k.given->shape[plan->in.k.given->rank - 2], "row", "Q",
                         plan->n, error));
    const size_t k = plan->in.k.heads, v = plan->in.v.heads;
    l->states = size_max(k, v);
    l->group = plan->heads / l->states;
    plan->kv_heads = l->states;
    if (l->states % k != 0 || l->states % v != 0 || plan->heads % l->states != 0) {
        return attn_fail(
            error, ATTN_SHAPE_MISMATCH, l->states % v != 0 ? "V" : "K",
            "Q has %zu head%s, K has %zu and V has %zu: the heads of K or of V must be a multiple "
            "of the other's, and the most heads of all a multiple of both",
            plan->in.q.heads, plural_end(plan->in.q.heads), k, v);
    }
    l->d = plan->head[0].d;
    l->d_v = plan->head[0].d_v;
    return l->d <= MOST_COLUMNS
               ? ATTN_OK
               : attn_fail(error, ATTN_TOO_LARGE, "K",
                           "K has %zu columns for each head; linear attention has at most %d", l->d,
                           MOST_COLUMNS);
}

/* ------------------------------------------------------------------- decay, beta and past_state */

/* Fails because a decay or beta has another shape than the states and positions want. */
static attn_status wrong_gates(const attn_plan *plan, const attn_tensor *t, const char *name,
                               bool is_decay, attn_error *error) {
    const struct linear *l = plan->linear;
    const struct form *form = &plan->form;
    char got[SHAPE_TEXT], by_head[SHAPE_TEXT], by_column[SHAPE_TEXT];
    const bool packed = form->packed;
    attn_tensor want = {0};
    int rank = 0;
    for (int axis = 0; axis < form->axis_count; axis++) {
        want.shape[rank++] = form->axes[axis];
    }
    if (form->has_head_axis && !packed) {
        want.shape[rank++] = l->states;
    }
    want.shape[rank++] = plan->n;
    if (packed) {
        want.shape[rank++] = l->states;
    }
    want.rank = rank;
    shape_text(&want, by_head);
    if (packed && !l->stacked) {
        want.shape[rank - 1] = l->states * l->d;
    } else {
        want.shape[want.rank++] = l->d;
    }
    return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s has the shape %s, not %s%s%s%s", name,
                     shape_text(t, got), by_head, is_decay ? ", or by column " : "",
                     is_decay ? shape_text(&want, by_column) : "",
                     packed ? "; beside packed rows the heads follow the positions" : "");
}

/* Returns the stride of an axis, which is 0 if its size is 1, and multiplies *step by the size. */
static size_t stride_of(size_t size, size_t *step) {
    const size_t stride = size == 1 ? 0 : *step;
    *step *= size; /* fits: the tensor was checked */
    return stride;
}

/* Resolves a decay or beta whose last axes are rows and heads: (n,H), or (n,H*d) by column. */
static bool fits_packed(const attn_plan *plan, const attn_tensor *t, bool by_column,
                        struct broadcast *out) {
    const struct linear *l = plan->linear;
    const size_t columns = t->shape[t->rank - 1], rows = t->shape[t->rank - 2];
    const size_t all = by_column ? l->states * l->d : l->states;
    if ((columns != all && (columns != 1 || by_column)) || (rows != plan->n && rows != 1)) {
        return false;
    }
    size_t step = 1;
    out->stride[1] = columns == 1 ? 0 : by_column ? l->d : 1;
    out->stride[3] = by_column ? 1 : 0;
    stride_of(columns, &step);
    out->stride[2] = stride_of(rows, &step);
    out->stride[0] = step;
    return true;
}

/* The same for (H,n), or (H,n,d) by column; without heads (n), or (n,d). */
static bool fits_stacked(const attn_plan *plan, const attn_tensor *t, bool by_column,
                         struct broadcast *out) {
    const struct linear *l = plan->linear;
    const size_t *end = t->shape + t->rank - (by_column ? 1 : 0);
    const bool headed = plan->form.has_head_axis;
    const size_t rows = end[-1], heads = headed ? end[-2] : 1;
    if ((by_column && *end != l->d) || (rows != plan->n && rows != 1) ||
        (heads != l->states && heads != 1)) {
        return false;
    }
    size_t step = by_column ? l->d : 1;
    out->stride[3] = by_column ? 1 : 0;
    out->stride[2] = stride_of(rows, &step);
    out->stride[1] = headed ? stride_of(heads, &step) : 0;
    out->stride[0] = step;
    return true;
}

/* The same for (n,H,d), which sequences have whose heads are an axis. */
static bool fits_rows_of_heads(const attn_plan *plan, const attn_tensor *t, struct broadcast *out) {
    const struct linear *l = plan->linear;
    size_t step = l->d;
    out->stride[3] = 1;
    out->stride[1] = stride_of(t->shape[1], &step);
    out->stride[2] = stride_of(t->shape[0], &step);
    return t->shape[2] == l->d && (t->shape[1] == l->states || t->shape[1] == 1) &&
           (t->shape[0] == plan->n || t->shape[0] == 1);
}

/* Resolves a vector: (H) of a decay, or (n) of a beta, if the call has heads; or (1) for all. */
static attn_status resolve_vector(const attn_plan *plan, const attn_tensor *t, const char *name,
                                  bool by_head, struct broadcast *out, attn_error *error) {
    const size_t heads = plan->linear->states, count = t->shape[0],
                 want = by_head ? heads : plan->n;
    out->given = t->data != NULL;
    if (count == 1) {
        return ATTN_OK;
    }
    if (count != want) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                         "%s has %zu numbers, not %zu: a list has one for each %s, or one for all",
                         name, count, want, by_head ? "head" : "position");
    }
    if (heads == plan->n && heads > 1) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                         "%s has %zu numbers, and there are as many heads as positions: give it an "
                         "axis of each, one of them with the size 1",
                         name, count);
    }
    out->stride[by_head ? 1 : 2] = 1;
    return ATTN_OK;
}

/* Fails because one row of numbers may be the decays of all columns, or those of all positions in a
 * further axis. */
static attn_status one_row_of_gates(const attn_plan *plan, const attn_tensor *t, const char *name,
                                    attn_error *error) {
    char got[SHAPE_TEXT];
    return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                     "%s has the shape %s, and there are as many positions as columns of K: give "
                     "it a row of %zu numbers for each position, or leave out an axis of 1 if its "
                     "numbers are those of the positions",
                     name, shape_text(t, got), plan->linear->d);
}

/* Fails because (1,n,1) beside packed rows may be one row of all heads, with a further axis, or the
 * positions of one head, with a further axis in front. */
static attn_status one_column_of_gates(const attn_plan *plan, const attn_tensor *t,
                                       const char *name, attn_error *error) {
    char got[SHAPE_TEXT];
    return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                     "%s has the shape %s, and there are as many heads as positions: let it end "
                     "with the axes (%zu,1) if it has a number for each position, or (1,%zu) if it "
                     "has one for each head, and leave out a further axis of 1",
                     name, shape_text(t, got), plan->n, plan->n);
}

/* How a shape is read. */
struct reading {
    bool by_column;
    int last; /* axes after those of the batch */
};

/* Reads the shape of a decay or beta beside packed rows. A further axis of 1 changes nothing. */
static bool read_packed(const attn_plan *plan, const attn_tensor *t, bool is_decay,
                        struct reading *r, struct broadcast *out) {
    const struct linear *l = plan->linear;
    const int further = t->rank - plan->form.axis_count - 2;
    const size_t columns = t->shape[t->rank - 1];
    attn_tensor flat = *t;
    flat.rank -= further;
    r->last = 2 + further;
    r->by_column = is_decay && (further == 0 ? l->d > 1 && columns == l->states * l->d
                                             : l->stacked && columns == l->d);
    return further == 0   ? fits_packed(plan, t, r->by_column, out)
           : r->by_column ? fits_rows_of_heads(plan, t, out)
                          : columns == 1 && fits_packed(plan, &flat, false, out);
}

/* Reads the shape of a decay or beta of given axes. Only a decay may have numbers by column. */
static bool read_gates(const attn_plan *plan, const attn_tensor *t, bool is_decay,
                       struct reading *r, struct broadcast *out) {
    const struct form *form = &plan->form;
    const int least = form->axis_count + 1 + form->has_head_axis;
    if (t->rank < least || t->rank > least + 1) {
        return false;
    }
    if (form->packed) {
        return read_packed(plan, t, is_decay, r, out);
    }
    r->by_column = t->rank > least;
    r->last = 1 + form->has_head_axis + r->by_column;
    return (is_decay || !r->by_column) && fits_stacked(plan, t, r->by_column, out);
}

/* Resolves decay or beta. Axes of 1 that the call does not have may stand before those of the
 * call. */
static attn_status resolve_gates(attn_plan *plan, const attn_tensor *t, const char *name,
                                 bool is_decay, struct broadcast *out, attn_error *error) {
    struct linear *l = plan->linear;
    const struct form *form = &plan->form;
    struct reading r = {0};
    size_t items = 1;
    if (t == NULL) {
        return ATTN_OK;
    }
    ATTN_TRY(check_sizes(t, name, 1, ATTN_MAX_RANK, ~0u, error));
    ATTN_TRY(check_dtype(t, name, plan->dtype, error));
    plan_bind_input(plan, is_decay ? INPUT_DECAY : INPUT_BETA, t->data);
    if (t->rank == 1 && form->has_head_axis) {
        return resolve_vector(plan, t, name, is_decay, out, error);
    }
    attn_tensor own = *t;
    bool fits = read_gates(plan, &own, is_decay, &r, out);
    while (!fits && own.shape[0] == 1 && own.rank > 1 + form->has_head_axis) {
        own.rank--;
        for (int axis = 0; axis < own.rank; axis++) {
            own.shape[axis] = own.shape[axis + 1];
        }
        fits = read_gates(plan, &own, is_decay, &r, out);
    }
    if (!fits) {
        return wrong_gates(plan, t, name, is_decay, error);
    }
    if (r.by_column && !form->packed && l->d == plan->n && plan->n > 1 && out->stride[0] == l->d) {
        return one_row_of_gates(plan, t, name, error);
    }
    const size_t *rows = own.shape + own.rank - r.last;
    if (form->packed && r.last == 3 && own.shape[0] == 1 && rows[0] == 1 && rows[1] == plan->n &&
        plan->n > 1 && rows[2] == 1) {
        return one_column_of_gates(plan, t, name, error);
    }
    if (form->packed && !(r.by_column && r.last == 2)) {
        ATTN_TRY(check_square(&own, name, own.rank - r.last, form->axis_count, error));
    }
    ATTN_TRY(check_batch(&own, name, r.last, form, &items, error));
    out->stride[0] = items == 1 ? 0 : out->stride[0];
    out->given = t->data != NULL;
    l->by_column = l->by_column || r.by_column;
    return ATTN_OK;
}

static attn_status resolve_past(attn_plan *plan, bool sequences, attn_error *error) {
    struct linear *l = plan->linear;
    const attn_tensor *t = l->given.past_state;
    if (t == NULL) {
        return ATTN_OK;
    }
    attn_result_tensor want;
    plan_shape(plan, ATTN_RESULT_PRESENT_STATE, &want);
    ATTN_TRY(check_sizes(t, "past_state", 2, ATTN_MAX_RANK, ~3u, error));
    ATTN_TRY(check_dtype(t, "past_state", plan->dtype, error));
    const int own = 2 + plan->form.has_head_axis;
    const size_t *last = t->shape + t->rank - 2;
    const bool few = t->rank == own && !sequences;
    const size_t *shape = few ? want.shape + want.rank - own : want.shape;
    const int rank = few ? own : want.rank;
    attn_error refused;
    plan_bind_input(plan, INPUT_PAST_STATE, t->data);
    l->past_item = few ? 0 : l->states * l->d * l->d_v;
    if (check_shape(t, "past_state", rank, shape, &refused) == ATTN_OK) {
        return ATTN_OK;
    }
    char got[SHAPE_TEXT], text[SHAPE_TEXT];
    attn_tensor right = {.rank = rank};
    memcpy(right.shape, shape, (size_t)rank * sizeof *shape);
    const bool transposed = last[0] == l->d_v && last[1] == l->d && l->d != l->d_v;
    return attn_fail(error, ATTN_SHAPE_MISMATCH, "past_state",
                     "past_state has the shape %s, not %s: a state has a row for each column of K "
                     "and a column for each column of V%s",
                     shape_text(t, got), shape_text(&right, text),
                     transposed ? "; its last two axes are exchanged" : "");
}

/* -------------------------------------------------------------------------------- the sequences */

/* Lists sequences whose rows are those of Q. */
static attn_status list_packed(attn_plan *plan, const attn_sequences *s, attn_error *error) {
    struct linear *l = plan->linear;
    l->starts = plan_alloc(plan, s->count + 1, sizeof *l->starts);
    if (l->starts == NULL) {
        return attn_no_memory(error);
    }
    for (size_t i = 0; i < s->count; i++) {
        l->sequences[i] =
            (struct linear_sequence){.item = i, .first = l->starts[i], .rows = s->queries[i]};
        l->starts[i + 1] = l->starts[i] + s->queries[i];
    }
    return ATTN_OK;
}

static attn_status list_items(attn_plan *plan, const attn_options *o, attn_error *error) {
    struct linear *l = plan->linear;
    l->item_rows = plan_alloc(plan, plan->batch, sizeof *l->item_rows);
    if (l->item_rows == NULL) {
        return attn_no_memory(error);
    }
    for (size_t b = 0; b < plan->batch; b++) {
        l->item_rows[b] = o->lengths_count != 0 ? o->lengths[b] : plan->n;
        l->sequences[b] = (struct linear_sequence){.item = b, .rows = l->item_rows[b]};
    }
    return ATTN_OK;
}

/* Checks the lengths of the sequences. */
static attn_status check_lengths_of_sequences(const attn_plan *plan, const attn_options *o,
                                              attn_error *error) {
    const attn_sequences *s = o->sequences;
    if (s == NULL) {
        return check_lengths(plan, o, plan->n, "positions", error);
    }
    ATTN_TRY(check_lacks(o, CHECK_SEQUENCES, error));
    ATTN_TRY(plan_check_sequences(s, "Q", plan->n, plan->linear->stacked, error));
    for (size_t i = 0; s->keys != NULL && i < s->count; i++) {
        if (s->keys[i] != s->queries[i]) {
            return attn_fail(
                error, ATTN_INVALID_ARGUMENT, "sequences",
                "sequence %zu has %zu row%s in Q and %zu in K: in linear attention they are equal",
                i, s->queries[i], plural_end(s->queries[i]), s->keys[i]);
        }
    }
    return ATTN_OK;
}

static attn_status list_sequences(attn_plan *plan, const attn_options *o, attn_error *error) {
    struct linear *l = plan->linear;
    ATTN_TRY(check_lengths_of_sequences(plan, o, error));
    l->count = o->sequences != NULL ? o->sequences->count : plan->batch;
    l->sequences = plan_alloc(plan, l->count, sizeof *l->sequences);
    if (l->sequences == NULL) {
        return attn_no_memory(error);
    }
    return o->sequences != NULL ? list_packed(plan, o->sequences, error)
                                : list_items(plan, o, error);
}

/* ---------------------------------------------------------------------------------- the results */

static attn_status check_linear_results(const attn_plan *plan, bool sequences, attn_error *error) {
    const uint64_t flat = ATTN_WANT(WEIGHTS) | ATTN_WANT(STATES);
    const uint64_t can = RESULTS_OF(RESULT_LINEAR | RESULT_BOTH);
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if ((plan->results.wanted & ~can) >> r & 1) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                             "%s is no result of linear attention, which has output, weights, "
                             "present_state, states, decays and the gradients by its inputs",
                             attn_result_name((attn_result)r));
        }
    }
    if (sequences && plan_wants(plan, flat)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                         "%s is not possible with sequences, which have output, present_state, "
                         "decays and gradients",
                         plan_wants(plan, ATTN_WANT(WEIGHTS)) ? "weights" : "states");
    }
    if (plan_wants(plan, ATTN_WANT(DECAYS)) && plan->options.decay == NULL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "results", "decays needs decay");
    }
    if (plan_wants(plan, ATTN_WANT(WEIGHTS)) && plan->n > MOST_WEIGHTS) {
        return attn_fail(error, ATTN_TOO_LARGE, "results",
                         "weights has at most %d positions, not %zu", MOST_WEIGHTS, plan->n);
    }
    if (plan_wants(plan, ATTN_WANT(STATES)) && plan->form.axis_count > ATTN_MAX_RANK - 4) {
        return attn_fail(
            error, ATTN_TOO_LARGE, "results",
            "states has four axes beside those of the batch, of which it has at most %d, not %d",
            ATTN_MAX_RANK - 4, plan->form.axis_count);
    }
    return ATTN_OK;
}

/* Gives the output and decays by column an axis of heads, as sequences with such an axis have. */
static void stack_results(attn_plan *plan) {
    const struct result *output = &plan->results.of[ATTN_RESULT_OUTPUT],
                        *decays = &plan->results.of[ATTN_RESULT_DECAYS];
    if (output->count > 0) {
        plan_stack(&output->parts[0], plan->heads);
    }
    if (decays->count > 0 && plan->linear->by_column) {
        plan_stack(&decays->parts[0], plan->linear->states);
    }
}

/* Checks whether a call has what its gradients need. */
static attn_status check_linear_gradients(attn_plan *plan, const attn_options *o,
                                          attn_error *error) {
    static const struct {
        attn_result gradient;
        const char *input;
    } gradients[] = {{ATTN_RESULT_GRAD_DECAY, "decay"},
                     {ATTN_RESULT_GRAD_BETA, "beta"},
                     {ATTN_RESULT_GRAD_PAST_STATE, "past_state"}};
    const attn_upstream *up = o->upstream;
    plan->linear->gradients.wanted = plan_wants(plan, RESULTS_OF(RESULT_GRADIENT));
    if (!plan_wants(plan, RESULTS_OF(RESULT_GRADIENT))) {
        return up == NULL || (up->output == NULL && up->state == NULL)
                   ? ATTN_OK
                   : attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                               "grad_output and grad_present_state need a result such as grad_Q");
    }
    if (up == NULL || (up->output == NULL && up->state == NULL)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "grad_output",
                         "gradients need grad_output or grad_present_state");
    }
    for (int i = 0; i < 3; i++) {
        if (plan_wants(plan, UINT64_C(1) << gradients[i].gradient) &&
            linear_input_of(plan, gradients[i].gradient) == NULL) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "results", "%s needs %s",
                             attn_result_name(gradients[i].gradient), gradients[i].input);
        }
    }
    return ATTN_OK;
}

/* Checks the gradients of the loss against the shapes of their results. */
static attn_status resolve_upstream(attn_plan *plan, const attn_options *o, attn_error *error) {
    const attn_upstream *up = o->upstream;
    attn_result_tensor output, state;
    if (!plan->linear->gradients.wanted || up == NULL) {
        return ATTN_OK;
    }
    plan_shape(plan, ATTN_RESULT_OUTPUT, &output);
    plan_shape(plan, ATTN_RESULT_PRESENT_STATE, &state);
    if (plan->linear->stacked) {
        plan_stack(&output, plan->heads);
    }
    ATTN_TRY(
        plan_bind_upstream(plan, up->output, "grad_output", &output, INPUT_GRAD_OUTPUT, error));
    return plan_bind_upstream(plan, up->state, "grad_present_state", &state, INPUT_GRAD_STATE,
                              error);
}

/* ------------------------------------------------------------------------------------- the plan */

static attn_status plan_call(attn_plan *plan, const attn_options *o, attn_error *error) {
    struct linear *l = plan->linear;
    const bool sequences = o->sequences != NULL;
    plan->options = *o;
    ATTN_TRY(check_linear_options(o, error));
    ATTN_TRY(check_update(l, o, error));
    ATTN_TRY(plan_rows(plan, o, error));
    l->packed_sequences = sequences;
    ATTN_TRY(check_norm_epsilon(o, l->given.normalize_qk ? NULL : "normalize_QK",
                                &plan->norm_epsilon, error));
    ATTN_TRY(plan_scale(plan, o, error));
    ATTN_TRY(list_sequences(plan, o, error));
    ATTN_TRY(resolve_gates(plan, o->decay, "decay", true, &l->decay, error));
    ATTN_TRY(resolve_gates(plan, l->given.beta, "beta", false, &l->beta, error));
    ATTN_TRY(resolve_past(plan, sequences, error));
    plan->results.wanted = o->results != 0 ? o->results : ATTN_WANT(OUTPUT);
    ATTN_TRY(check_linear_results(plan, sequences, error));
    ATTN_TRY(check_linear_gradients(plan, o, error));
    ATTN_TRY(resolve_upstream(plan, o, error));
    ATTN_TRY(plan_results(plan, error));
    if (l->stacked) {
        stack_results(plan);
    }
    return plan_schedule_linear(plan, o->lengths_count != 0, error);
}

attn_status attn_plan_linear(attn_plan **plan, const attn_linear *call, const attn_options *options,
                             attn_error *error) {
    static const attn_options defaults = {0};
    *plan = NULL;
    ATTN_TRY(plan_new(plan, error));
    (*plan)->kind = &plan_kind_linear;
    (*plan)->linear = plan_alloc(*plan, 1, sizeof *(*plan)->linear);
    if ((*plan)->linear == NULL) {
        return plan_or_free(plan, attn_no_memory(error));
    }
    (*plan)->linear->given = *call;
    return plan_or_free(plan, plan_call(*plan, options != NULL ? options : &defaults, error));
}
