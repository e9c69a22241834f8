/*
 * plan_attention.c - plans attention over given Q, K and V in any of their forms: (n,d), (H,n,d),
 * (B,H,n,d), or packed as (n,H*d) or (B,n,H*d). K and V may lack the first axes of Q.
 */
#include "plan_build.h"

#include <assert.h>

#include "check.h"
#include "status.h"
#include "tensor.h"

/* A matrix of the call. Its name is that of messages, and `d` are its sizes. */
struct matrix {
    const attn_tensor *tensor;
    const char *name;
    struct dims d;
};

static struct dims dims_of(const attn_tensor *t, size_t packed_heads) {
    const size_t *end = t->shape + t->rank;
    struct dims d = {.batch = 1, .heads = 1, .rows = end[-2], .columns = end[-1]};
    if (packed_heads != 0) {
        d.heads = packed_heads;
        d.columns /= packed_heads;
        d.batch = t->rank == 3 ? end[-3] : 1;
    } else {
        d.heads = t->rank >= 3 ? end[-3] : 1;
        d.batch = t->rank == 4 ? end[-4] : 1;
    }
    return d;
}

static struct operand operand_of(const attn_tensor *t, struct dims d, bool packed) {
    const size_t item = d.heads * d.rows * d.columns; /* fits, because tensors were checked */
    return (struct operand){.data = t->data,
                            .ld = packed ? d.heads * d.columns : d.columns,
                            .batch = d.batch > 1 ? item : 0,
                            .numbers = d.batch * item};
}

/* Returns the offset of a head from the start of a batch item. */
static size_t head_offset(struct dims d, bool packed, size_t h) {
    return packed ? h * d.columns : h * d.rows * d.columns;
}

/* Checks a matrix whose rank is that of `other` or, with `lower`, at most that. If it is packed,
 * its `heads` heads have the name heads_name. */
static attn_status check_one(const struct matrix *m, const struct matrix *other, bool lower,
                             size_t heads, const char *heads_name, attn_error *error) {
    const attn_tensor *t = m->tensor;
    ATTN_TRY(check_matrix(t, m->name, 2, heads != 0 ? 3 : 4, error));
    assert(other->tensor != NULL); /* it was checked before, or is the same */
    const int rank = other->tensor->rank;
    ATTN_TRY(check_dtype(t, m->name, other->tensor->dtype, error));
    if (t->rank != rank && (t->rank > rank || !lower)) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, m->name, "%s has rank %d but %s has rank %d",
                         m->name, t->rank, other->name, rank);
    }
    return heads == 0 ? ATTN_OK
                      : check_columns(m->name, t->shape[t->rank - 1], heads, heads_name, error);
}

/* Checks the sizes of K and V against Q and against each other. If they have no batch axis, all
 * batch items share them. */
static attn_status check_kv(const struct matrix *q, const struct matrix *k, const struct matrix *v,
                            bool shared, attn_error *error) {
    ATTN_TRY(check_equal(k->name, k->d.columns, "column", q->name, q->d.columns, error));
    if (!shared) {
        ATTN_TRY(check_equal(k->name, k->d.batch, "batch item", q->name, q->d.batch, error));
        ATTN_TRY(check_equal(v->name, v->d.batch, "batch item", q->name, q->d.batch, error));
    }
    ATTN_TRY(check_equal(v->name, v->d.rows, "row", k->name, k->d.rows, error));
    return check_equal(v->name, v->d.heads, "head", k->name, k->d.heads, error);
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
    if (plan->form.has_batch_axis &&
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
    for (size_t h = 0; h < plan->heads; h++) {
        plan->head[h].past_k = head_offset(pk, packed, kv_head(plan, h));
        plan->head[h].past_v = head_offset(pv, packed, kv_head(plan, h));
    }
    return ATTN_OK;
}

static attn_status plan_qkv(attn_plan *plan, struct matrix *q, struct matrix *k, struct matrix *v,
                            const attn_options *o, attn_error *error) {
    struct form *form = &plan->form;
    const bool packed = o->heads != 0;
    const int batched_rank = packed ? 3 : 4; /* of a matrix with a batch axis */
    size_t kv_heads = 0;
    if (packed) {
        ATTN_TRY(plan_kv_heads(o, o->heads, &kv_heads, error));
    } else if (o->kv_heads != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "kv_heads",
                         "kv_heads needs heads: without heads, the heads are an axis of Q and K");
    }
    if (packed && q->tensor == k->tensor && kv_heads != o->heads) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "kv_heads",
                         "X stands for Q and K, so kv_heads = %zu must be heads = %zu", kv_heads,
                         o->heads);
    }
    const char *kv_name = o->kv_heads != 0 ? "kv_heads" : "heads";
    ATTN_TRY(check_matrix(q->tensor, q->name, 2, batched_rank, error));
    ATTN_TRY(check_one(q, q, false, o->heads, "heads", error));
    ATTN_TRY(check_one(k, q, true, kv_heads, kv_name, error));
    ATTN_TRY(check_one(v, k, false, kv_heads, kv_name, error));
    ATTN_TRY(plan_check_past(o, error));
    q->d = dims_of(q->tensor, o->heads);
    k->d = dims_of(k->tensor, kv_heads);
    v->d = dims_of(v->tensor, kv_heads);
    form->has_batch_axis = q->tensor->rank == batched_rank;
    form->has_head_axis = packed || q->tensor->rank >= 3;
    form->has_kv_batch_axis = k->tensor->rank == batched_rank;
    form->has_kv_head_axis = packed || k->tensor->rank >= 3;
    ATTN_TRY(check_kv(q, k, v, !form->has_kv_batch_axis, error));
    if (q->d.heads % k->d.heads != 0) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, k->name,
                         "%s has %zu head%s, which is not a multiple of the %zu heads of %s",
                         q->name, q->d.heads, plural_end(q->d.heads), k->d.heads, k->name);
    }
    plan->dtype = q->tensor->dtype;
    form->packed = packed;
    plan->batch = q->d.batch;
    plan->heads = q->d.heads;
    plan->kv_heads = k->d.heads;
    ATTN_TRY(plan_new_heads(plan, error));
    if (o->past_k != NULL) {
        const struct matrix past_k = {.tensor = o->past_k, .name = "past_K"};
        const struct matrix past_v = {.tensor = o->past_v, .name = "past_V"};
        ATTN_TRY(check_one(&past_k, k, false, kv_heads, kv_name, error));
        ATTN_TRY(check_one(&past_v, k, false, kv_heads, kv_name, error));
        ATTN_TRY(plan_past(plan, o, k->d, v->d, packed, error));
    }
    plan->n = q->d.rows;
    form->new_keys = k->d.rows;
    plan->m = form->past + k->d.rows;
    plan->in.q = operand_of(q->tensor, q->d, packed);
    plan->in.k = operand_of(k->tensor, k->d, packed);
    plan->in.v = operand_of(v->tensor, v->d, packed);
    const struct dims out = {q->d.batch, q->d.heads, q->d.rows, v->d.columns};
    plan->out.ld = packed ? out.heads * out.columns : out.columns;
    if (!size_mul(out.heads * out.rows, out.columns, &plan->out.batch)) {
        return attn_too_large(error);
    }
    for (size_t h = 0; h < plan->heads; h++) {
        struct head *head = &plan->head[h];
        head->d = q->d.columns;
        head->d_v = v->d.columns;
        head->q = head_offset(q->d, packed, h);
        head->k = head_offset(k->d, packed, kv_head(plan, h));
        head->v = head_offset(v->d, packed, kv_head(plan, h));
        head->out = head_offset(out, packed, h);
    }
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
    return plan_or_free(plan, plan_qkv(*plan, &m[0], &m[1], &m[2], o, error));
}
