/*
 * comparison.c - what is compared: the expected tensors of a request, the tolerance, and the
 * results of the plan that they belong to.
 */
#include "api/call/comparison.h"

#include "api/call/field.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------- the expected tensors */

/* Returns the result of the library that is compared under a name. */
static attn_result result_of(enum answer_name which) {
    return (attn_result)__builtin_ctzll(answer_bits[which]);
}

/* Returns whether a result is one tensor of floats. */
static bool is_tensor(enum answer_name which) {
    return answer_ranks[which] > 0 && __builtin_popcountll(answer_bits[which]) == 1;
}

/* Refuses a member that is no name of a result that can be expected. */
static bool check_names(const struct codec_document *document, const struct field *field,
                        const struct codec_value *object, struct codec_error *error) {
    const char *names[ANSWER_COUNT];
    struct codec_keys keys = {.names = names,
                              .foreign = fields_foreign_results,
                              .foreign_count = fields_foreign_results_count,
                              .here = field->choice_count > 1 ? FIELDS_IN_EXPECTED : 0};
    for (size_t i = 0; i < field->choice_count; i++) {
        if (is_tensor(answer_of(field->choices[i]))) {
            names[keys.count++] = field->choices[i];
        }
    }
    return codec_check_keys(document, object, &keys, error);
}

/* Returns an empty comparison with room for the members of an object, or NULL. */
static struct comparison *new_comparison(struct call *call, struct account *account,
                                         const struct field *field,
                                         const struct codec_value *object) {
    const size_t bytes =
        sizeof(struct comparison) + codec_size(object) * sizeof(struct comparison_pair);
    struct comparison *comparison = account_alloc(account, bytes);
    if (comparison != NULL) {
        memset(comparison, 0, bytes);
        comparison->absolute = comparison->relative = -1;
        comparison->mutex = &call->mutex;
        comparison->call = call;
        comparison->headless = field->choice_count == 1;
    }
    return comparison;
}

bool comparison_read(struct call *call, struct codec_document *document, const struct field *field,
                     const struct codec_value *value, struct codec_error *error) {
    if (!check_names(document, field, value, error)) {
        return false;
    }
    struct comparison *own = new_comparison(call, codec_document_account(document), field, value);
    if (own == NULL) {
        return codec_no_memory(error);
    }
    for (const struct codec_value *member = codec_at(value, 0); member != NULL;
         member = codec_next(member)) {
        struct comparison_pair *pair = &own->pairs[own->count];
        if (codec_kind_of(member) == CODEC_NULL) { /* many clients write null for "not given" */
            continue;
        }
        if (!codec_make_empty(document, member, error) ||
            !codec_as_any_reals(document, member, &pair->expected, &pair->type, error)) {
            return false;
        }
        if (pair->type == CODEC_TYPE_FP4_E2M1 || pair->type == CODEC_TYPE_FP8_E8M0) {
            return codec_fail(document, member, error,
                              "%s has a type in which no result is judged: send it as F32, which "
                              "is FP32 in the Open Inference Protocol",
                              codec_name(member));
        }
        pair->which = answer_of(codec_name(member));
        pair->name = answer_names[pair->which];
        pair->from = member;
        call->options.results |= answer_bits[pair->which];
        own->count++;
    }
    if (own->count > 0) { /* some generated clients write {} for "not given" */
        call->comparison = own;
    }
    return true;
}

/* -------------------------------------------------------------------------------- the tolerance */

/* Reads a part of the tolerance, if it is given. */
static bool read_part(const struct codec_document *document, const struct codec_value *object,
                      const char *name, double *part, struct codec_error *error) {
    const struct codec_value *value = codec_given(object, name);
    if (value == NULL) {
        return true;
    }
    return codec_as_number(document, value, part, error) &&
           (*part >= 0 ||
            codec_fail(document, value, error, "%s must be at least 0, not %g", name, *part));
}

bool field_tolerance(struct call *call, struct codec_document *document, const struct field *field,
                     const struct codec_value *value, struct codec_error *error) {
    static const char *const names[] = {"absolute", "relative"};
    static const struct codec_foreign others[] = {{"atol", 1, "it is \"absolute\" here"},
                                                  {"rtol", 1, "it is \"relative\" here"}};
    static const struct codec_keys keys = {
        .names = names, .count = 2, .foreign = others, .foreign_count = 2, .here = 1};
    struct comparison *own = call->comparison;
    if (own == NULL) {
        return codec_fail(document, value, error, "%s is given without \"expected\"", field->name);
    }
    return codec_check_keys(document, value, &keys, error) &&
           read_part(document, value, names[0], &own->absolute, error) &&
           read_part(document, value, names[1], &own->relative, error);
}

bool field_fail_on_difference(struct call *call, struct codec_document *document,
                              const struct field *field, const struct codec_value *value,
                              struct codec_error *error) {
    bool refuses = false;
    if (!codec_as_bool(document, value, &refuses, error)) {
        return false;
    }
    if (refuses && call->comparison == NULL) {
        return codec_fail(document, value, error, "%s is true without \"expected\"", field->name);
    }
    if (refuses) {
        call->comparison->refuses = true;
    }
    return true;
}

/* ------------------------------------------------------------------------------------ the types */

bool field_computed_in(struct call *call, struct codec_document *document,
                       const struct field *field, const struct codec_value *value,
                       struct codec_error *error) {
    size_t choice;
    if (call->comparison == NULL) {
        return codec_fail(document, value, error, "%s is given without \"expected\"", field->name);
    }
    if (!codec_as_choice(document, value, field->choices, field->choice_count, &choice, error)) {
        return false;
    }
    call->comparison->computed = &comparison_types[choice];
    return true;
}

/* Sets the type in which the client's kernel multiplies, if the request does not say it: that of
 * the expected tensor, or the compute_dtype, if that is coarser. */
static void set_type(struct comparison_pair *pair, const struct comparison *own,
                     attn_compute_dtype compute_dtype) {
    const struct comparison_type *of = comparison_type_of(pair->type);
    const struct comparison_type *least =
        compute_dtype == ATTN_COMPUTE_FLOAT16    ? &comparison_types[COMPARISON_FLOAT16]
        : compute_dtype == ATTN_COMPUTE_BFLOAT16 ? &comparison_types[COMPARISON_BFLOAT16]
                                                 : comparison_types;
    pair->computed = own->computed != NULL ? own->computed : of > least ? of : least;
}

/* Sets the tolerance. The size of the result, which its absolute part depends on, is not known yet.
 */
static void set_tolerance(struct comparison_pair *pair, const struct comparison *own) {
    const struct comparison_type *type = comparison_type_of(pair->type);
    type = pair->computed > type ? pair->computed : type;
    pair->relative = own->relative >= 0 ? own->relative : type->relative;
    pair->absolute = own->absolute;
    pair->absolute_of_size = own->relative >= 0 ? own->relative : type->absolute;
}

/* ---------------------------------------------------------------------------------- the results */

void comparison_put(char out[static COMPARISON_TEXT], int rank, const size_t *numbers) {
    size_t used = 0;
    for (int axis = 0; axis < rank; axis++) {
        used += (size_t)snprintf(out + used, COMPARISON_TEXT - used, "%s%zu", axis > 0 ? ", " : "[",
                                 numbers[axis]);
    }
    snprintf(out + used, COMPARISON_TEXT - used, "]");
}

/* Finds the order of axes that makes the wanted shape of a shape: wanted[i] is shape[axes[i]].
 * Returns false if there is none. */
static bool find_transposition(int rank, const size_t *shape, const size_t *wanted, size_t *axes) {
    unsigned taken = 0;
    for (int axis = 0; axis < rank; axis++) {
        int from = 0;
        while (from < rank && ((taken >> from & 1) != 0 || shape[from] != wanted[axis])) {
            from++;
        }
        if (from == rank) {
            return false;
        }
        taken |= 1u << from;
        axes[axis] = (size_t)from;
    }
    return true;
}

/* Checks the shape of an expected tensor. The axes after an empty one may be left out. */
static bool check_shape(const struct comparison_pair *pair, const struct codec_document *document,
                        struct codec_error *error) {
    const attn_tensor *expected = &pair->expected;
    const attn_result_tensor *result = pair->result;
    char here[COMPARISON_TEXT], there[COMPARISON_TEXT], order[COMPARISON_TEXT];
    size_t axes[ATTN_MAX_RANK];
    const int rank = expected->rank;
    if ((rank == result->rank || (rank < result->rank && expected->shape[rank - 1] == 0)) &&
        memcmp(expected->shape, result->shape, (size_t)rank * sizeof *result->shape) == 0) {
        return true;
    }
    comparison_put(here, expected->rank, expected->shape);
    comparison_put(there, result->rank, result->shape);
    const bool fits = expected->rank == result->rank &&
                      find_transposition(result->rank, expected->shape, result->shape, axes);
    comparison_put(order, fits ? result->rank : 0, axes);
    return codec_fail(document, pair->from, error,
                      "the expected %s has the shape %s, but the result has the shape %s%s%s",
                      pair->name, here, there,
                      fits ? "; it would fit with its axes in the order " : "", fits ? order : "");
}

/* Returns whether the heads of Q, K or V, or of X, are an axis. */
static bool has_head_axis(const struct call *call) {
    const attn_tensor *const matrices[] = {call->q, call->k, call->v, call->multihead.x};
    bool has = false;
    for (int i = 0; i < 4 && call->options.heads == 0; i++) {
        has = has || (matrices[i] != NULL && matrices[i]->rank > 2);
    }
    return has;
}

/* Returns how many axes count batch items: those of Q, K or V, or those of X, which stands for
 * them. */
static int axes_of(const struct call *call, const attn_tensor *matrix) {
    const int rank = matrix != NULL ? matrix->rank : call->multihead.x->rank;
    const int axes = rank - (call->options.heads > 0 ? 2 : 3);
    return axes > 0 ? axes : 0;
}

/* Returns how many axes of a result count batch items. A result whose name ends in Q, K or V is
 * about this matrix, and any other has those of all three together. */
static int batch_axes(const struct call *call, enum answer_name which) {
    const attn_multihead *m = &call->multihead;
    if (m->projections != NULL) {
        return m->x->rank - 2; /* and a context has its rank */
    }
    const int q = axes_of(call, call->q), k = axes_of(call, call->k), v = axes_of(call, call->v);
    const char last = answer_names[which][strlen(answer_names[which]) - 1];
    return last == 'Q' ? q : last == 'K' ? k : last == 'V' ? v : q > k && q > v ? q : k > v ? k : v;
}

/* Is a result the gradient of a matrix that may have an axis of heads before its rows? */
static bool is_gradient_of_heads(enum answer_name which) {
    return which == ANSWER_GRAD_Q || which == ANSWER_GRAD_K || which == ANSWER_GRAD_V ||
           which == ANSWER_GRAD_X || which == ANSWER_GRAD_PAST_K || which == ANSWER_GRAD_PAST_V ||
           which == ANSWER_GRAD_GATE;
}

/* Finds the axis of the heads: it stands before the rows, and after the batch; or after packed
 * rows. */
static void find_heads(struct comparison_pair *pair, const struct call *call) {
    const attn_result_tensor *result = pair->result;
    const bool sequences = call->options.sequences != NULL;
    const bool states = pair->which == ANSWER_PRESENT_STATE; /* one for each sequence */
    int own = answer_ranks[pair->which] - 2;                 /* axes of one head */
    const bool packed = sequences && own == 2 && !states;
    pair->count = codec_count(result->rank, result->shape);
    pair->head_size = pair->count;
    if (call->comparison->headless ||
        (answer_is_gradient(pair->which) && !is_gradient_of_heads(pair->which))) {
        return;
    }
    const int axes = sequences && states ? 1 : batch_axes(call, pair->which);
    const int axis = packed ? 1 : axes;
    if (pair->which == ANSWER_DECAYS && !sequences && has_head_axis(call)) {
        own = result->rank - axes - 1; /* one for each head, or one for each column */
    }
    if (result->rank - own == axes + 1) {
        pair->heads = result->shape[axis];
        pair->head_size = codec_count(result->rank - axis - 1, result->shape + axis + 1);
    }
}

/* Returns the numbers of one head in a row of a result whose heads stand side by side, or all
 * numbers of the row. */
static size_t columns_of_head(const struct comparison_pair *pair, const struct call *call) {
    const attn_multihead *m = &call->multihead;
    const attn_tensor *w = m->projections == NULL ? NULL : m->projections[0].w_q;
    const size_t columns = pair->result->shape[pair->result->rank - 1];
    size_t heads = call->options.heads;
    if (m->projections != NULL) {
        heads = heads == 0 && w->rank == 3 ? w->shape[0] : heads;
        return pair->which != ANSWER_OUTPUT || m->w_o != NULL || m->per_head || heads == 0
                   ? columns
                   : columns / heads;
    }
    if (heads == 0) {
        return columns;
    }
    const attn_tensor *q = call->q != NULL ? call->q : m->x;
    const size_t d = q->shape[q->rank - 1] / heads;
    switch (pair->which) {
    case ANSWER_OUTPUT:
    case ANSWER_GRAD_GATE:
        return columns / heads;
    case ANSWER_GRAD_Q:
    case ANSWER_GRAD_K:
    case ANSWER_GRAD_X:
    case ANSWER_GRAD_PAST_K:
    case ANSWER_PRESENT_K:
    case ANSWER_GRAD_B_Q:
    case ANSWER_GRAD_B_K:
        return d;
    case ANSWER_GRAD_V:
    case ANSWER_GRAD_PAST_V:
    case ANSWER_PRESENT_V:
    case ANSWER_GRAD_B_V:
        return columns / (call->options.kv_heads != 0 ? call->options.kv_heads : heads);
    default:
        return columns;
    }
}

static enum comparison_kind kind_of(enum answer_name which) {
    return which == ANSWER_WEIGHTS                              ? KIND_WEIGHTS
           : (answer_forms[which] & ANSWER_SCORES_OF_KEYS) != 0 ? KIND_SCORES
                                                                : KIND_ROW;
}

/* Finds the rows of a pair: the numbers of one position of one head. */
static void find_rows(struct comparison_pair *pair, const struct call *call) {
    const attn_result_tensor *result = pair->result;
    const size_t columns = result->shape[result->rank - 1];
    const bool single = (answer_forms[pair->which] & ANSWER_SINGLE) != 0;
    size_t size = single ? 1 : columns_of_head(pair, call);
    size = size == 0 || columns % size != 0 ? columns : size;
    pair->kind = kind_of(pair->which);
    pair->row_size = size;
    pair->row_count = size == 0 ? 0 : pair->count / size;
    pair->step = pair->run = 1; /* no row has neighbours */
    if (pair->row_count == 0 || pair->which == ANSWER_GRAD_SINK ||
        pair->which == ANSWER_GRAD_ALIBI) {
        return;
    }
    if (single) {
        pair->run = columns;
        return;
    }
    pair->step = columns / size;
    pair->run = pair->step * (result->rank > 1 ? result->shape[result->rank - 2] : 1);
    if (call->options.sequences != NULL && pair->heads > 0 && pair->head_size == size) {
        pair->step = pair->heads; /* (n,H,d): the heads stand between the rows and the columns */
        pair->run = pair->row_count;
    }
}

static bool check_pair(struct comparison_pair *pair, const struct call *call,
                       struct account *account, const struct codec_document *document,
                       struct codec_error *error) {
    const attn_result result = result_of(pair->which);
    if (call->multihead.per_head && answer_has_parts[pair->which]) {
        return codec_fail(document, pair->from, error,
                          "%s is one matrix for each head, because the heads have weights of their "
                          "own: it cannot be compared",
                          pair->name);
    }
    pair->result = attn_plan_tensor(call->plan, result, 0);
    if (!check_shape(pair, document, error)) {
        return false;
    }
    set_type(pair, call->comparison, call->options.compute_dtype);
    if (codec_document_dtype(document) == ATTN_FLOAT32 && excluded_has_scales(call) &&
        pair->computed < &comparison_types[COMPARISON_FLOAT32]) {
        pair->computed = &comparison_types[COMPARISON_FLOAT32]; /* to which products are rounded */
    }
    set_tolerance(pair, call->comparison);
    find_heads(pair, call);
    find_rows(pair, call);
    const bool gated = pair->which == ANSWER_OUTPUT
                           ? call->multihead.w_o == NULL /* which mixes the numbers of all heads */
                           : pair->which == ANSWER_GRAD_GATE;
    pair->gate = gated && !call->multihead.per_head ? call->options.gate : NULL;
    pair->found.absolute.element = pair->found.relative.element = pair->found.worst.element =
        SIZE_MAX;
    pair->errors = account_alloc(account, (pair->heads + 1) * sizeof *pair->errors);
    if (pair->errors == NULL) {
        return codec_no_memory(error);
    }
    memset(pair->errors, 0, (pair->heads + 1) * sizeof *pair->errors);
    return true;
}

bool comparison_check(struct call *call, struct account *account, call_plan *plan,
                      const struct codec_document *document, struct codec_error *error) {
    for (size_t i = 0; i < call->comparison->count; i++) {
        if (!check_pair(&call->comparison->pairs[i], call, account, document, error)) {
            return false;
        }
    }
    return comparison_reference(call->comparison, account, plan, error);
}
