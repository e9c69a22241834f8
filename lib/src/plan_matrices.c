/*
 * plan_matrices.c - see plan_matrices.h. The matrices have any of these forms: (n,d), (H,n,d),
 * (B...,H,n,d), or packed as (n,H*d) or (B...,n,H*d). They are broadcast to each other: all batch
 * items share a matrix that lacks the batch axes, or has the size 1 there. The rows of sequences
 * are (rows,H*d) or (rows,H,d).
 */
#include "plan_matrices.h"

#include <assert.h>
#include <math.h>

#include "base/check.h"
#include "base/status.h"
#include "base/tensor.h"
#include "plan_inputs.h"
#include "plan_memory.h"

/* Returns how many axes of the batch a matrix has. */
static int batch_axes(const attn_tensor *t, bool packed) {
    return packed || t->rank == 2 ? t->rank - 2 : t->rank - 3;
}

static struct dims dims_of(const attn_tensor *t, size_t packed_heads) {
    const size_t *end = t->shape + t->rank;
    struct dims d = {.batch = 1, .heads = 1, .rows = end[-2], .columns = end[-1]};
    if (packed_heads != 0) {
        d.heads = packed_heads;
        d.columns /= packed_heads;
    } else {
        d.heads = t->rank >= 3 ? end[-3] : 1;
    }
    for (int axis = 0; axis < batch_axes(t, packed_heads != 0); axis++) {
        d.batch *= t->shape[axis]; /* fits, because tensors were checked */
    }
    return d;
}

static struct operand operand_of(const attn_tensor *t, struct dims d, bool packed) {
    const size_t item = d.heads * d.rows * d.columns; /* fits, because tensors were checked */
    return (struct operand){.given = t,
                            .items = d.batch,
                            .heads = d.heads,
                            .ld = packed ? d.heads * d.columns : d.columns,
                            .batch = d.batch > 1 ? item : 0,
                            .numbers = d.batch * item};
}

/* Returns the offset of a head from the start of a batch item. */
static size_t head_offset(struct dims d, bool packed, size_t h) {
    return packed ? h * d.columns : h * d.rows * d.columns;
}

/* Checks a matrix. If it is packed, its `heads` heads have the name heads_name. */
static attn_status check_one(const struct matrix *m, attn_dtype dtype, size_t heads,
                             const char *heads_name, attn_error *error) {
    const attn_tensor *t = m->tensor;
    const int last = heads != 0 ? 2 : 3;
    ATTN_TRY(check_rows(t, m->name, 2, MOST_AXES + last, last, error));
    assert(t != NULL); /* check_rows() fails without a tensor, which clang-tidy does not know */
    ATTN_TRY(check_dtype(t, m->name, dtype, error));
    return heads == 0 ? ATTN_OK
                      : check_columns(m->name, t->shape[t->rank - 1], heads, heads_name, error);
}

/* Checks past rows of `of`, which have its rank. */
static attn_status check_past(const attn_tensor *past, const char *name, const struct matrix *of,
                              size_t heads, const char *heads_name, attn_error *error) {
    ATTN_TRY(check_one(&(struct matrix){.tensor = past, .name = name}, of->tensor->dtype, heads,
                       heads_name, error));
    if (past->rank != of->tensor->rank) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s has rank %d but %s has rank %d",
                         name, past->rank, of->name, of->tensor->rank);
    }
    return ATTN_OK;
}

/* Checks that the batch axes of the past rows are those of the rows. */
static attn_status check_past_axes(const attn_tensor *past, const char *name,
                                   const struct matrix *of, attn_error *error) {
    attn_tensor wanted = *of->tensor;
    wanted.shape[wanted.rank - 2] = past->shape[past->rank - 2];
    return check_shape(past, name, wanted.rank, wanted.shape, error);
}

/* Returns the size of a batch axis of a matrix, which is counted from the right from 1 on. */
static size_t axis_size(const struct matrix *m, bool packed, int back) {
    const int axes = batch_axes(m->tensor, packed);
    return back <= axes ? m->tensor->shape[axes - back] : 1;
}

static attn_status unequal_axes(const struct matrix *m, const struct matrix *first,
                                attn_error *error) {
    char got[SHAPE_TEXT], want[SHAPE_TEXT];
    return attn_fail(
        error, ATTN_SHAPE_MISMATCH, m->name,
        "%s has the shape %s but %s has the shape %s: their batch axes must be equal, or 1 in each",
        m->name, shape_text(m->tensor, got), first->name, shape_text(first->tensor, want));
}

/* Finds the batch axes of the call: those of Q, K and V together. A matrix has the size of the call
 * in all of them, or 1 in all. */
static attn_status join_axes(attn_plan *plan, const struct matrix m[3], bool packed,
                             attn_error *error) {
    struct form *form = &plan->form;
    for (int i = 0; i < 3; i++) {
        const int axes = batch_axes(m[i].tensor, packed);
        form->axis_count = axes > form->axis_count ? axes : form->axis_count;
    }
    for (int back = 1; back <= form->axis_count; back++) {
        size_t *size = &form->axes[form->axis_count - back];
        *size = 1;
        for (int i = 0, first = 0; i < 3; i++) {
            const size_t own = axis_size(&m[i], packed, back);
            if (own != 1 && *size != 1 && own != *size) {
                return unequal_axes(&m[i], &m[first], error);
            }
            if (own != 1 && *size == 1) {
                *size = own;
                first = i;
            }
        }
    }
    plan->batch = 1;
    if (!size_mul_shape(&plan->batch, form->axis_count, form->axes)) {
        return attn_too_large(error);
    }
    for (int i = 0; i < 3; i++) {
        size_t items;
        ATTN_TRY(check_batch(m[i].tensor, m[i].name,
                             m[i].tensor->rank - batch_axes(m[i].tensor, packed), form, &items,
                             error));
    }
    return ATTN_OK;
}

/* Finds the heads of the call: those of Q. If Q has one head, or if the call keeps states, they are
 * the most heads that a matrix has. */
static attn_status join_heads(attn_plan *plan, const struct matrix m[3], attn_error *error) {
    const struct matrix *most = &m[0];
    for (int i = 1; i < 3 && (m[0].d.heads == 1 || plan->linear != NULL); i++) {
        most = m[i].d.heads > most->d.heads ? &m[i] : most;
    }
    plan->heads = most->d.heads;
    plan->kv_heads = m[1].d.heads;
    for (int i = 0; i < 3; i++) {
        if (plan->heads % m[i].d.heads != 0) {
            return attn_fail(error, ATTN_SHAPE_MISMATCH, m[i].name,
                             "%s has %zu head%s, which is not a multiple of the %zu heads of %s",
                             most->name, plan->heads, plural_end(plan->heads), m[i].d.heads,
                             m[i].name);
        }
    }
    return ATTN_OK;
}

/* Checks the sizes of K and V against Q and against each other, and finds the axes of the call. */
static attn_status join(attn_plan *plan, const struct matrix m[3], bool packed, attn_error *error) {
    const struct matrix *q = &m[0], *k = &m[1], *v = &m[2];
    ATTN_TRY(check_equal(k->name, k->d.columns, "column", q->name, q->d.columns, error));
    ATTN_TRY(join_axes(plan, m, packed, error));
    ATTN_TRY(check_equal(v->name, v->d.rows, "row", k->name, k->d.rows, error));
    return join_heads(plan, m, error);
}

attn_status plan_check_past(const attn_options *o, attn_error *error) {
    if ((o->past_k == NULL) != (o->past_v == NULL)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, o->past_k == NULL ? "past_V" : "past_K",
                         "past_K and past_V must be given together");
    }
    return ATTN_OK;
}

attn_status plan_past(attn_plan *plan, const attn_options *o, struct dims k, struct dims v,
                      bool packed, attn_error *error) {
    struct dims pk = dims_of(o->past_k, packed ? plan->kv_heads : 0);
    struct dims pv = dims_of(o->past_v, packed ? plan->kv_heads : 0);
    if (plan->form.projected && plan->form.axis_count > 0 &&
        !plan->form.has_head_axis) { /* (B,p,d): the first axis is the batch */
        pk.batch = pk.heads, pv.batch = pv.heads;
        pk.heads = pv.heads = 1;
    }
    ATTN_TRY(check_equal("past_K", pk.columns, "column", "K", k.columns, error));
    ATTN_TRY(check_equal("past_K", pk.heads, "head", "K", k.heads, error));
    ATTN_TRY(check_equal("past_K", pk.batch, "batch item", "K", k.batch, error));
    ATTN_TRY(check_equal("past_V", pv.columns, "column", "V", v.columns, error));
    ATTN_TRY(check_equal("past_V", pv.heads, "head", "V", v.heads, error));
    ATTN_TRY(check_equal("past_V", pv.batch, "batch item", "V", v.batch, error));
    ATTN_TRY(check_equal("past_V", pv.rows, "row", "past_K", pk.rows, error));
    plan->form.past = pk.rows;
    plan->in.past_k = operand_of(o->past_k, pk, packed);
    plan->in.past_v = operand_of(o->past_v, pv, packed);
    plan_bind_input(plan, INPUT_PAST_K, o->past_k->data);
    plan_bind_input(plan, INPUT_PAST_V, o->past_v->data);
    for (size_t h = 0; h < plan->heads; h++) {
        plan->head[h].past_k = head_offset(pk, packed, h / (plan->heads / pk.heads));
        plan->head[h].past_v = head_offset(pv, packed, h / (plan->heads / pv.heads));
    }
    return ATTN_OK;
}

/* Checks Q, K and V, and finds their sizes and the dtype of the call. */
static attn_status check_matrices(attn_plan *plan, struct matrix m[3], const size_t heads[3],
                                  const char *kv_name, attn_error *error) {
    const bool packed = heads[0] != 0;
    const int last = packed ? 2 : 3;
    ATTN_TRY(check_rows(m[0].tensor, m[0].name, 2, MOST_AXES + last, last, error));
    assert(m[0].tensor != NULL);
    plan->dtype = m[0].tensor->dtype;
    for (int i = 0; i < 3; i++) {
        ATTN_TRY(check_one(&m[i], plan->dtype, heads[i], i == 0 ? "heads" : kv_name, error));
        m[i].d = dims_of(m[i].tensor, heads[i]);
        plan->form.has_head_axis |= packed || m[i].tensor->rank >= 3;
    }
    return ATTN_OK;
}

/* Makes Q, K and V operands of the plan, and finds where the rows of each head are. */
static attn_status place_matrices(attn_plan *plan, const struct matrix m[3], bool packed,
                                  attn_error *error) {
    const struct matrix *q = &m[0], *k = &m[1], *v = &m[2];
    plan->n = q->d.rows;
    plan->form.new_keys = k->d.rows;
    plan->m = plan->form.past + k->d.rows;
    plan->in.q = operand_of(q->tensor, q->d, packed);
    plan->in.k = operand_of(k->tensor, k->d, packed);
    plan->in.v = operand_of(v->tensor, v->d, packed);
    for (int i = 0; i < 3; i++) {
        plan_bind_input(plan, INPUT_Q + i, m[i].tensor->data);
    }
    const struct dims out = {plan->batch, plan->heads, q->d.rows, v->d.columns};
    plan->out.ld = packed ? out.heads * out.columns : out.columns;
    if (!size_mul(out.heads * out.rows, out.columns, &plan->out.batch)) {
        return attn_too_large(error);
    }
    for (size_t h = 0; h < plan->heads; h++) {
        struct head *head = &plan->head[h];
        head->d = q->d.columns;
        head->d_v = v->d.columns;
        head->q = head_offset(q->d, packed, h / heads_of_one(plan, &plan->in.q));
        head->k = head_offset(k->d, packed, h / heads_of_one(plan, &plan->in.k));
        head->v = head_offset(v->d, packed, h / heads_of_one(plan, &plan->in.v));
        head->out = head_offset(out, packed, h);
    }
    return ATTN_OK;
}

attn_status plan_matrices(attn_plan *plan, struct matrix m[3], const size_t heads[3],
                          const attn_options *o, attn_error *error) {
    const struct matrix *k = &m[1], *v = &m[2];
    const bool packed = heads[0] != 0;
    const char *kv_name = o->kv_heads != 0 ? "kv_heads" : "heads";
    plan->form.packed = packed;
    ATTN_TRY(check_matrices(plan, m, heads, kv_name, error));
    ATTN_TRY(plan_check_past(o, error));
    ATTN_TRY(join(plan, m, packed, error));
    ATTN_TRY(plan_new_heads(plan, error));
    if (o->past_k != NULL) {
        ATTN_TRY(check_past(o->past_k, "past_K", k, heads[1], kv_name, error));
        ATTN_TRY(check_past(o->past_v, "past_V", v, heads[2], kv_name, error));
        ATTN_TRY(plan_past(plan, o, k->d, v->d, packed, error));
        ATTN_TRY(check_past_axes(o->past_k, "past_K", k, error));
        ATTN_TRY(check_past_axes(o->past_v, "past_V", v, error));
    }
    return place_matrices(plan, m, packed, error);
}

attn_status plan_scale(attn_plan *plan, const attn_options *o, attn_error *error) {
    const size_t count = o->scales_count;
    /* A scale of a head of Q is that of all heads that the head of Q asks. */
    if (count != 0 && count != plan->in.q.heads) {
        ATTN_TRY(check_per_head(plan, count, "scale", error));
    }
    for (size_t h = 0; h < plan->heads; h++) {
        struct head *head = &plan->head[h];
        head->scale = count != 0                          ? o->scales[h / (plan->heads / count)]
                      : (o->flags & ATTN_FLAG_SCALE) != 0 ? o->scale
                                                          : 1.0 / sqrt((double)head->d);
        if (!isfinite(head->scale)) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "scale",
                             "scale must be finite, but scale[%zu] is %g", h, head->scale);
        }
    }
    return ATTN_OK;
}

/* ----------------------------------------------------------------------------- packed sequences */

attn_tensor plan_flattened(const attn_tensor *t) {
    attn_tensor flat = {.data = t->data, .dtype = t->dtype, .rank = 2};
    flat.shape[0] = t->shape[0];
    flat.shape[1] = t->shape[1] * t->shape[2]; /* fits: the tensor was checked */
    return flat;
}

/* Checks the rows of Q, K or V, of which there may be none. Their heads may be an axis. */
static attn_status check_packed(const attn_tensor *t, const char *name, int min_rank, int max_rank,
                                attn_error *error) {
    const unsigned rows = t != NULL && t->rank == 3 ? 1u << 2 : 1u << 1;
    if (t != NULL && t->rank > 3) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                         "%s has rank %d, but with sequences it has no batch axis: its axes are "
                         "(rows, columns) or (rows, heads, columns)",
                         name, t->rank);
    }
    return check_sizes(t, name, min_rank, max_rank, rows, error);
}

attn_status plan_check_packed(const attn_tensor *const qkv[3], const char *const names[3],
                              const attn_options *o, attn_error *error) {
    ATTN_TRY(check_packed(qkv[0], names[0], 2, 3, error));
    const int rank = qkv[0]->rank;
    for (int i = 1; i < 3; i++) {
        ATTN_TRY(check_packed(qkv[i], names[i], rank, rank, error));
    }
    if (rank == 3 && (o->heads != 0 || o->kv_heads != 0)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, o->heads != 0 ? "heads" : "kv_heads",
                         "%s has rank 3, so with sequences its heads are an axis: heads and "
                         "kv_heads are for matrices of rank 2",
                         names[0]);
    }
    return ATTN_OK;
}

void plan_stack(attn_result_tensor *part, size_t heads) {
    part->rank = 3;
    part->shape[2] = part->shape[1] / heads;
    part->shape[1] = heads;
}

attn_status plan_check_sum(const char *name, size_t rows, bool stacked, const size_t *lengths,
                           size_t count, attn_error *error) {
    size_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (!size_add(sum, lengths[i], &sum)) {
            return attn_too_large(error);
        }
    }
    return sum == rows ? ATTN_OK
                       : attn_fail(error, ATTN_SHAPE_MISMATCH, "sequences",
                                   "the sequences have %zu row%s together, but %s has %zu row%s%s",
                                   sum, plural_end(sum), name, rows, plural_end(rows),
                                   stacked ? "; its axes are (rows, heads, columns)" : "");
}

attn_status plan_check_sequences(const attn_sequences *s, const char *name, size_t rows,
                                 bool stacked, attn_error *error) {
    if (s->count == 0 || s->queries == NULL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "sequences", "sequences has no lengths");
    }
    if (s->count > ATTN_MAX_SEQUENCES) {
        return attn_fail(error, ATTN_TOO_LARGE, "sequences",
                         "there are %zu sequences; at most %d are possible", s->count,
                         ATTN_MAX_SEQUENCES);
    }
    return plan_check_sum(name, rows, stacked, s->queries, s->count, error);
}
