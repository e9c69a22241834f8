/*
 * plan_attention.c - plans attention over given Q, K and V in any of their forms: (n,d), (H,n,d),
 * (B...,H,n,d), or packed as (n,H*d) or (B...,n,H*d). They are broadcast to each other: all batch
 * items share a matrix that lacks the batch axes, or has the size 1 there. K and V may have fewer
 * heads than Q, and Q may have one.
 */
#include <assert.h>

#include "plan_build.h"

#include "base/check.h"
#include "base/status.h"
#include "base/tensor.h"

/* A matrix of the call. Its name is that of messages, and `d` are its sizes. */
struct matrix {
    const attn_tensor *tensor;
    const char *name;
    struct dims d;
};

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
    return attn_fail(error, ATTN_SHAPE_MISMATCH, m->name,
                     "%s has the shape %s but %s has the shape %s: their batch axes must be equal, "
                     "or 1 in each",
                     m->name, shape_text(m->tensor, got), first->name,
                     shape_text(first->tensor, want));
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

/* Checks and binds a bias of Q, K or V, whose sizes are given. */
static attn_status plan_bias(attn_plan *plan, const attn_tensor *bias, const char *name,
                             struct dims d, int which, attn_error *error) {
    if (bias == NULL) {
        return ATTN_OK;
    }
    const size_t columns = d.heads * d.columns, shape[] = {d.heads, d.columns};
    ATTN_TRY(check_matrix(bias, name, 1, 2, error));
    ATTN_TRY(check_dtype(bias, name, plan->dtype, error));
    plan_bind_input(plan, which, bias->data);
    return check_shape(bias, name, bias->rank, bias->rank == 1 ? &columns : shape, error);
}

/* Finds the heads of packed K and V. */
static attn_status packed_heads(const attn_options *o, bool same, size_t *kv_heads,
                                attn_error *error) {
    *kv_heads = 0;
    if (o->heads != 0) {
        ATTN_TRY(plan_kv_heads(o, o->heads, kv_heads, error));
    } else if (o->kv_heads != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "kv_heads",
                         "kv_heads needs heads: without heads, the heads are an axis of Q and K");
    }
    if (o->heads != 0 && same && *kv_heads != o->heads) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "kv_heads",
                         "X stands for Q and K, so kv_heads = %zu must be heads = %zu", *kv_heads,
                         o->heads);
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

attn_status plan_matrices(attn_plan *plan, const attn_tensor *const qkv[3], const size_t heads[3],
                          attn_error *error) {
    struct matrix m[] = {{.tensor = qkv[0], .name = "Q"},
                         {.tensor = qkv[1], .name = "K"},
                         {.tensor = qkv[2], .name = "V"}};
    const char *kv_name = plan->options.kv_heads != 0 ? "kv_heads" : "heads";
    plan->form.packed = heads[0] != 0;
    ATTN_TRY(check_matrices(plan, m, heads, kv_name, error));
    ATTN_TRY(join(plan, m, plan->form.packed, error));
    ATTN_TRY(plan_new_heads(plan, error));
    return place_matrices(plan, m, plan->form.packed, error);
}

static attn_status plan_qkv(attn_plan *plan, struct matrix m[3], const attn_options *o,
                            attn_error *error) {
    struct matrix *q = &m[0], *k = &m[1], *v = &m[2];
    struct form *form = &plan->form;
    const bool packed = o->heads != 0;
    size_t kv_heads;
    ATTN_TRY(packed_heads(o, q->tensor == k->tensor, &kv_heads, error));
    const char *kv_name = o->kv_heads != 0 ? "kv_heads" : "heads";
    const size_t heads[] = {o->heads, kv_heads, kv_heads};
    ATTN_TRY(check_matrices(plan, m, heads, kv_name, error));
    ATTN_TRY(plan_check_past(o, error));
    ATTN_TRY(join(plan, m, packed, error));
    form->packed = packed;
    ATTN_TRY(plan_new_heads(plan, error));
    if (o->past_k != NULL) {
        ATTN_TRY(check_past(o->past_k, "past_K", k, kv_heads, kv_name, error));
        ATTN_TRY(check_past(o->past_v, "past_V", v, kv_heads, kv_name, error));
        ATTN_TRY(plan_past(plan, o, k->d, v->d, packed, error));
        ATTN_TRY(check_past_axes(o->past_k, "past_K", k, error));
        ATTN_TRY(check_past_axes(o->past_v, "past_V", v, error));
    }
    ATTN_TRY(place_matrices(plan, m, packed, error));
    ATTN_TRY(plan_bias(plan, o->b_q, "b_Q", q->d, INPUT_B_Q, error));
    ATTN_TRY(plan_bias(plan, o->b_k, "b_K", k->d, INPUT_B_K, error));
    ATTN_TRY(plan_bias(plan, o->b_v, "b_V", v->d, INPUT_B_V, error));
    return plan_finish(plan, o, error);
}

attn_status plan_attention(attn_plan **plan, const attn_tensor *q, const attn_tensor *k,
                           const attn_tensor *v, const attn_options *o, attn_error *error) {
    const bool one = q != NULL && q == k && k == v; /* one matrix, which messages call X */
    struct matrix m[] = {{.tensor = q, .name = one ? "X" : "Q"},
                         {.tensor = k, .name = one ? "X" : "K"},
                         {.tensor = v, .name = one ? "X" : "V"}};
    *plan = NULL;
    ATTN_TRY(check_options(o, error));
    ATTN_TRY(plan_new(plan, error));
    (*plan)->form.same = one;
    (*plan)->call.x = one ? q : NULL;
    return plan_or_free(plan, plan_qkv(*plan, m, o, error));
}
