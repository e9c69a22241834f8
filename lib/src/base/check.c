/*
 * check.c - see check.h. This file computes and allocates nothing.
 */
#include "base/check.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/blas.h"
#include "base/status.h"
#include "base/tensor.h"
#include "results.h"

/* Checks the axes of a tensor. So that every product of some of them fits, an empty axis counts as
 * one element. */
static attn_status check_axes(const attn_tensor *tensor, const char *name, unsigned empty,
                              attn_error *error) {
    char shape[SHAPE_TEXT];
    attn_tensor least = *tensor;
    for (int axis = 0; axis < tensor->rank; axis++) {
        if (tensor->shape[axis] == 0 && (empty >> (tensor->rank - 1 - axis) & 1) == 0) {
            return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s is empty: its shape is %s", name,
                             shape_text(tensor, shape));
        }
        if (tensor->shape[axis] > BLAS_MAX_DIM) {
            return attn_fail(error, ATTN_TOO_LARGE, name,
                             "%s has the shape %s; no size may exceed %d", name,
                             shape_text(tensor, shape), BLAS_MAX_DIM);
        }
        least.shape[axis] = size_max(1, tensor->shape[axis]);
    }
    size_t bytes;
    if (!attn_tensor_bytes(&least, &bytes)) {
        return attn_fail(error, ATTN_TOO_LARGE, name, "%s has the shape %s, which is too large",
                         name, shape_text(tensor, shape));
    }
    return ATTN_OK;
}

attn_status check_sizes(const attn_tensor *tensor, const char *name, int min_rank, int max_rank,
                        unsigned empty, attn_error *error) {
    if (tensor == NULL || tensor_lacks_data(tensor)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, name, "%s is missing", name);
    }
    if (!dtype_is_float(tensor->dtype)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, name, "%s must be float32 or float64", name);
    }
    if (tensor->rank < min_rank || tensor->rank > max_rank) {
        if (min_rank == max_rank) {
            return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s must have rank %d, not %d", name,
                             min_rank, tensor->rank);
        }
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s must have rank %d to %d, not %d",
                         name, min_rank, max_rank, tensor->rank);
    }
    return check_axes(tensor, name, empty, error);
}

attn_status check_matrix(const attn_tensor *tensor, const char *name, int min_rank, int max_rank,
                         attn_error *error) {
    return check_sizes(tensor, name, min_rank, max_rank, 0, error);
}

attn_status check_rows(const attn_tensor *tensor, const char *name, int min_rank, int max_rank,
                       int last, attn_error *error) {
    return check_sizes(tensor, name, min_rank, max_rank, 1u << 1 | ~0u << last, error);
}

attn_status check_dtype(const attn_tensor *tensor, const char *name, attn_dtype dtype,
                        attn_error *error) {
    if (tensor->dtype != dtype) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, name,
                         "%s must be %s like the other matrices", name,
                         dtype == ATTN_FLOAT32 ? "float32" : "float64");
    }
    return ATTN_OK;
}

attn_status check_shape(const attn_tensor *tensor, const char *name, int rank, const size_t *shape,
                        attn_error *error) {
    attn_tensor wanted = {.rank = rank};
    bool same = tensor->rank == rank;
    for (int axis = 0; axis < rank; axis++) {
        wanted.shape[axis] = shape[axis];
        same = same && tensor->shape[axis] == shape[axis];
    }
    if (!same) {
        char want[SHAPE_TEXT], got[SHAPE_TEXT];
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s must have the shape %s, not %s",
                         name, shape_text(&wanted, want), shape_text(tensor, got));
    }
    return ATTN_OK;
}

attn_status check_open_shape(const attn_tensor *tensor, const char *name, int rank,
                             const size_t *shape, attn_error *error) {
    const int own = tensor->rank;
    const bool begins = own > 0 && own < rank && tensor->shape[own - 1] == 0 &&
                        memcmp(tensor->shape, shape, (size_t)own * sizeof *shape) == 0;
    return begins ? ATTN_OK : check_shape(tensor, name, rank, shape, error);
}

static attn_status check_enums(const attn_options *o, attn_error *error) {
    const unsigned known = ATTN_FLAG_SCALE | ATTN_FLAG_WINDOW | ATTN_FLAG_ALIBI |
                           ATTN_FLAG_MEAN_OVER_HEADS | ATTN_FLAG_BOTTOM_RIGHT;
    if ((o->flags & ~known) != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "flags", "unknown bits in flags: 0x%x",
                         o->flags & ~known);
    }
    if ((o->results >> ATTN_RESULT_COUNT) != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "results", "unknown bits in results: 0x%llx",
                         (unsigned long long)o->results);
    }
    if ((unsigned)o->normalization > ATTN_STICK_BREAKING) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "normalization",
                         "normalization is %d; it must be 0 to 3", (int)o->normalization);
    }
    return ATTN_OK;
}

static attn_status check_compute_dtype(const attn_options *o, attn_error *error) {
    if ((unsigned)o->compute_dtype > ATTN_COMPUTE_BFLOAT16) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "compute_dtype",
                         "compute_dtype is %d; it must be 0 to 2", (int)o->compute_dtype);
    }
    if (o->compute_dtype != ATTN_COMPUTE_AS_GIVEN &&
        (o->upstream != NULL || (o->results & RESULTS_OF(RESULT_GRADIENT)) != 0)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "compute_dtype",
                         "gradients are computed without compute_dtype: ask for them in a call of "
                         "their own");
    }
    return ATTN_OK;
}

static attn_status check_normalization(const attn_options *o, attn_error *error) {
    static const char *const names[] = {"softmax", "none", "sigmoid", "stick_breaking"};
    const char *name = names[o->normalization];
    if (!isfinite(o->sigmoid_bias)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "sigmoid_bias",
                         "sigmoid_bias must be finite");
    }
    if (o->sigmoid_bias != 0 && o->normalization != ATTN_SIGMOID) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "sigmoid_bias",
                         "sigmoid_bias needs normalization \"sigmoid\", not \"%s\"", name);
    }
    if (o->normalization == ATTN_SOFTMAX) {
        return ATTN_OK;
    }
    if (o->sink != NULL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "sink",
                         "sink needs softmax, but normalization is \"%s\"", name);
    }
    const uint64_t of_softmax = o->results & RESULTS_OF(RESULT_SOFTMAX);
    if (of_softmax != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                         "%s needs softmax, but normalization is \"%s\"",
                         attn_result_name((attn_result)__builtin_ctzll(of_softmax)), name);
    }
    return ATTN_OK;
}

/* Refuses numbers that no flag puts to use. */
static attn_status check_flags(const attn_options *o, attn_error *error) {
    if ((o->flags & ATTN_FLAG_SCALE) == 0 && o->scale != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "scale",
                         "scale is %g, but flags does not have ATTN_FLAG_SCALE", o->scale);
    }
    if ((o->flags & ATTN_FLAG_WINDOW) == 0 && (o->window[0] != 0 || o->window[1] != 0)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "window",
                         "window is [%lld, %lld], but flags does not have ATTN_FLAG_WINDOW",
                         (long long)o->window[0], (long long)o->window[1]);
    }
    return ATTN_OK;
}

/* A program that was compiled with an older header passes a struct of the same size. */
static_assert(sizeof(void *) != 8 || sizeof(attn_options) == 392,
              "an option takes words of attn_options.reserved");

static attn_status check_reserved(const attn_options *o, attn_error *error) {
    for (size_t i = 0; i < sizeof o->reserved / sizeof *o->reserved; i++) {
        if (o->reserved[i] != 0) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "reserved",
                             "reserved[%zu] must be 0: a later version may have an option there",
                             i);
        }
    }
    return ATTN_OK;
}

attn_status check_options(const attn_options *o, attn_error *error) {
    ATTN_TRY(check_reserved(o, error));
    ATTN_TRY(check_enums(o, error));
    ATTN_TRY(check_flags(o, error));
    if (!isfinite(o->scale)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "scale", "scale must be finite");
    }
    if ((o->flags & ATTN_FLAG_SCALE) != 0 && o->scales_count != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "scale",
                         "scale takes one number or a number for each head, not both");
    }
    if (!(o->softcap >= 0) || isinf(o->softcap)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "softcap",
                         "softcap must be 0 (no bound) or a positive number, not %g", o->softcap);
    }
    if ((o->flags & ATTN_FLAG_WINDOW) != 0 && (o->window[0] < -1 || o->window[1] < -1)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "window",
                         "window is [%lld, %lld]; each side must be -1 (no limit) or at least 0",
                         (long long)o->window[0], (long long)o->window[1]);
    }
    if (o->decay != NULL && !o->causal) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "decay",
                         "decay needs causal: a key after the query would be remembered, not "
                         "forgotten");
    }
    if ((o->flags & ATTN_FLAG_ALIBI) != 0 && o->alibi_slopes != NULL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "alibi",
                         "alibi takes the slopes of the paper or given slopes, not both");
    }
    ATTN_TRY(check_compute_dtype(o, error));
    return check_normalization(o, error);
}

static const char no_softmax[] = "linear attention has no softmax and no list of keys";
static const char no_past[] = "a state stands in place of past keys: \"past_state\"";
static const char no_norms[] = "\"normalize_QK\" divides each row by its norm here";
static const char own_bias[] = "each projection has a bias of its own";
static const char no_gate[] = "its output times the sigmoid of a gate is another step, and the "
                              "logarithm of a forget gate is \"decay\"";
static const char plain[] = ""; /* there is no more to say */

/* One row for each option that some calls do not have: X(name, whether it is given, then why calls
 * with projections, of linear attention and of packed sequences do not have it, or NULL if they
 * do). Q, K, V and the results have rules of their own. */
#define OPTION_MAP(X)                                                                              \
    X("mask", o->mask != NULL, NULL, no_softmax, plain)                                            \
    X("bias", o->bias != NULL, NULL, no_softmax, plain)                                            \
    X("lengths", o->lengths_count != 0, NULL, NULL, plain)                                         \
    X("key_padding", o->key_padding != NULL, NULL,                                                 \
      "a position without a token is beyond its length in \"lengths\" here", plain)                \
    X("past_K", o->past_k != NULL, NULL, no_past, plain)                                           \
    X("past_V", o->past_v != NULL, NULL, no_past, plain)                                           \
    X("softcap", o->softcap != 0, NULL, no_softmax, NULL)                                          \
    X("sink", o->sink != NULL, NULL, no_softmax, NULL)                                             \
    X("window", (o->flags & ATTN_FLAG_WINDOW) != 0, NULL, no_softmax, NULL)                        \
    X("alibi", (o->flags & ATTN_FLAG_ALIBI) != 0 || o->alibi_slopes != NULL, NULL, no_softmax,     \
      NULL)                                                                                        \
    X("normalization", o->normalization != ATTN_SOFTMAX, NULL, no_softmax, NULL)                   \
    X("sigmoid_bias", o->sigmoid_bias != 0, NULL, no_softmax, NULL)                                \
    X("top_k", o->top_k != 0, NULL, no_softmax, NULL)                                              \
    X("mean_over_heads", (o->flags & ATTN_FLAG_MEAN_OVER_HEADS) != 0, NULL, plain, NULL)           \
    X("alignment", (o->flags & ATTN_FLAG_BOTTOM_RIGHT) != 0, NULL, no_softmax, NULL)               \
    X("rotary", o->rotary != NULL, NULL, plain, NULL)                                              \
    X("norm_Q", o->norm_q != NULL, NULL, no_norms, NULL)                                           \
    X("norm_K", o->norm_k != NULL, NULL, no_norms, NULL)                                           \
    X("norm_V", o->norm_v != NULL, NULL, plain, NULL)                                              \
    X("b_Q", o->b_q != NULL, own_bias, plain, NULL)                                                \
    X("b_K", o->b_k != NULL, own_bias, plain, NULL)                                                \
    X("b_V", o->b_v != NULL, own_bias, plain, NULL)                                                \
    X("gate", o->gate != NULL, NULL, no_gate, NULL)                                                \
    X("W_G", o->w_g != NULL, NULL, no_gate, plain)                                                 \
    X("b_G", o->b_g != NULL, NULL, no_gate, plain)                                                 \
    X("compute_dtype", o->compute_dtype != ATTN_COMPUTE_AS_GIVEN, NULL, plain, NULL)               \
    X("grad_lse", o->upstream != NULL && o->upstream->lse != NULL, NULL, plain, NULL)              \
    X("grad_weights", o->upstream != NULL && o->upstream->weights != NULL, NULL, plain, plain)     \
    X("sequences", o->sequences != NULL, "packed sequences need Q, K and V", NULL, NULL)

#define OPTION_ROW(name, given, projections, linear, packed) {name, {projections, linear, packed}},
static const struct {
    const char *name, *reasons[CHECK_CALLS];
} option_rows[] = {OPTION_MAP(OPTION_ROW)};

attn_status check_lacks(const attn_options *o, enum check_call call, attn_error *error) {
    static const char *const rules[] = {"is not possible with projections",
                                        "is no option of linear attention",
                                        "is not possible with sequences"};
#define OPTION_GIVEN(name, given, ...) given,
    const bool given[] = {OPTION_MAP(OPTION_GIVEN)};
    for (size_t i = 0; i < sizeof given; i++) {
        const char *name = option_rows[i].name, *reason = option_rows[i].reasons[call];
        if (given[i] && reason != NULL) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, name, "%s %s%s%s", name, rules[call],
                             reason[0] != '\0' ? ": " : "", reason);
        }
    }
    return ATTN_OK;
}

const char *attn_linear_lacks(const char *name) {
    for (size_t i = 0; i < sizeof option_rows / sizeof *option_rows; i++) {
        if (strcmp(option_rows[i].name, name) == 0) {
            const char *reason = option_rows[i].reasons[CHECK_LINEAR];
            return reason == plain ? NULL : reason;
        }
    }
    return NULL;
}

attn_status check_norm_epsilon(const attn_options *o, const char *needs, double *epsilon,
                               attn_error *error) {
    *epsilon = o->norm_epsilon == 0 ? 1e-6 : o->norm_epsilon;
    if (!(*epsilon > 0 && isfinite(*epsilon))) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "norm_epsilon",
                         "norm_epsilon is %g; it must be a finite number of at least 0",
                         o->norm_epsilon);
    }
    if (o->norm_epsilon != 0 && needs != NULL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "norm_epsilon",
                         "norm_epsilon is %g, but it needs %s", o->norm_epsilon, needs);
    }
    return ATTN_OK;
}

attn_status check_columns(const char *name, size_t columns, size_t heads, const char *heads_name,
                          attn_error *error) {
    if (columns % heads != 0) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                         "%s has %zu column%s, which is not a multiple of %s = %zu", name, columns,
                         plural_end(columns), heads_name, heads);
    }
    return ATTN_OK;
}

attn_status check_per_head(const attn_plan *plan, size_t count, const char *name,
                           attn_error *error) {
    return count == plan->heads
               ? ATTN_OK
               : attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                           "%s has %zu number%s, not %zu: it must have one for each head", name,
                           count, plural_end(count), plan->heads);
}

attn_status check_lengths(const attn_plan *plan, const attn_options *o, size_t most,
                          const char *what, attn_error *error) {
    if (o->lengths_count != 0 && o->lengths_count != plan->batch) {
        return attn_fail(
            error, ATTN_SHAPE_MISMATCH, "lengths",
            "lengths has %zu number%s; it must have one for each of the %zu batch item%s%s",
            o->lengths_count, plural_end(o->lengths_count), plan->batch, plural_end(plan->batch),
            plan->batch == 1 ? ", and the lengths of packed rows are \"sequences\"" : "");
    }
    for (size_t b = 0; b < o->lengths_count; b++) {
        if (o->lengths[b] > most) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "lengths",
                             "lengths[%zu] is %zu, but the number of %s is %zu", b, o->lengths[b],
                             what, most);
        }
    }
    return ATTN_OK;
}

attn_status check_batch(const attn_tensor *tensor, const char *name, int last,
                        const struct form *form, size_t *items, attn_error *error) {
    const int axes = tensor->rank - last, count = form->axis_count;
    size_t batch = 1;
    bool all = true, one = true;
    for (int back = 1; back <= axes || back <= count; back++) {
        const size_t own = back <= axes ? tensor->shape[axes - back] : 1;
        const size_t size = back <= count ? form->axes[count - back] : 1;
        batch *= size; /* fits: it is the batch of the call */
        all = all && own == size;
        one = one && own == 1;
    }
    *items = one ? 1 : batch;
    if (all || one) {
        return ATTN_OK;
    }
    attn_tensor call = {.rank = count};
    char got[SHAPE_TEXT], want[SHAPE_TEXT];
    if (count == 0) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                         "%s has the shape %s, but the call has no batch axis", name,
                         shape_text(tensor, got));
    }
    memcpy(call.shape, form->axes, sizeof form->axes);
    return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                     "%s has the shape %s, but the batch axes of the call are %s: it must have all "
                     "of them, or 1 in each",
                     name, shape_text(tensor, got), shape_text(&call, want));
}

attn_status check_square(const attn_tensor *tensor, const char *name, int axis, int batch_axes,
                         attn_error *error) {
    const size_t *own = tensor->shape + axis;
    const bool by_column = tensor->rank == axis + 3;
    char got[SHAPE_TEXT], want[SHAPE_TEXT];
    if (own[0] != own[1] || own[1] < 2 || (by_column && own[2] == 1)) {
        return ATTN_OK;
    }
    attn_tensor sure = {0};
    for (int i = axis < batch_axes ? axis - batch_axes : 0; i < axis; i++) {
        sure.shape[sure.rank++] = i < 0 ? 1 : tensor->shape[i];
    }
    sure.shape[sure.rank++] = own[0];
    if (!by_column) {
        sure.shape[sure.rank++] = own[1];
    }
    sure.shape[sure.rank++] = by_column ? own[1] * own[2] : 1; /* fits: it was checked */
    return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                     "%s has the shape %s, and there are as many heads as positions: if the heads "
                     "follow the positions, as in packed rows, give it the shape %s",
                     name, shape_text(tensor, got), shape_text(&sure, want));
}

attn_status check_broadcast(const attn_tensor *tensor, const char *name, const attn_plan *plan,
                            struct broadcast *out, attn_error *error) {
    *out = (struct broadcast){0};
    if (tensor == NULL) {
        return ATTN_OK;
    }
    static const char *const axes[4] = {"batch", "heads", "queries", "keys"};
    const size_t full[4] = {plan->batch, plan->heads, plan->n, plan->rules.keys};
    char got[SHAPE_TEXT];
    if (tensor_lacks_data(tensor)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, name, "%s is missing", name);
    }
    if (tensor->rank < 1 || tensor->rank > 3 + MOST_AXES) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s must have rank 1 to %d, not %d",
                         name, 3 + MOST_AXES, tensor->rank);
    }
    size_t stride = 1, items = 1;
    for (int back = 1; back <= tensor->rank && back <= 3; back++) {
        size_t size = tensor->shape[tensor->rank - back];
        size_t want = full[4 - back];
        if (size != want && size != 1) {
            return attn_fail(
                error, ATTN_SHAPE_MISMATCH, name,
                "%s has the shape %s, which does not broadcast to (batch %zu, heads %zu, "
                "queries %zu, keys %zu): axis %d (%s) is %zu, not %zu%s",
                name, shape_text(tensor, got), full[0], full[1], full[2], full[3],
                tensor->rank - back, axes[4 - back], size, want, want == 1 ? "" : " or 1");
        }
        out->stride[4 - back] = size == 1 ? 0 : stride;
        stride *= size; /* fits: the product of the plan's sizes was checked */
    }
    if (tensor->rank > 3) {
        ATTN_TRY(check_batch(tensor, name, 3, &plan->form, &items, error));
    }
    out->stride[0] = items == 1 ? 0 : stride;
    out->given = tensor->data != NULL;
    return ATTN_OK;
}

attn_status check_equal(const char *name, size_t got, const char *what, const char *other,
                        size_t want, attn_error *error) {
    if (got != want) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s has %zu %s%s but %s has %zu", name,
                         got, what, plural_end(got), other, want);
    }
    return ATTN_OK;
}
