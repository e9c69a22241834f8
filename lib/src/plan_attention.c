/*
 * plan_attention.c - plans attention over given Q, K and V in any of their forms: (n,d), (H,n,d),
 * (B,H,n,d), or packed as (n,H*d) or (B,n,H*d). K and V may lack the first axes of Q.
 */
#include "plan_build.h"

#include <assert.h>

#include "check.h"
#include "status.h"
#include "tensor.h"

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

struct qkv {
    const attn_tensor *q, *k, *v;
    const char *q_name, *k_name, *v_name;
};

/* Checks a matrix whose rank is that of `other` or, with `lower`, at most that. */
static attn_status check_one(const attn_tensor *t, const char *name, const attn_tensor *other,
                             const char *other_name, bool lower, size_t packed_heads,
                             const char *heads_name, attn_error *error) {
    assert(other != NULL); /* plan_qkv() has checked it */
    ATTN_TRY(check_matrix(t, name, 2, packed_heads != 0 ? 3 : 4, error));
    ATTN_TRY(check_dtype(t, name, other->dtype, error));
    if (t->rank != other->rank && (t->rank > other->rank || !lower)) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s has rank %d but %s has rank %d",
                         name, t->rank, other_name, other->rank);
    }
    if (packed_heads != 0) {
        return check_columns(name, t->shape[t->rank - 1], packed_heads, heads_name, error);
    }
    return ATTN_OK;
}

/* Checks the sizes of K and V against Q and against each other. If they have no batch axis, all
 * batch items share them. */
static attn_status check_kv(struct dims q, const char *q_name, struct dims k, const char *k_name,
                            struct dims v, const char *v_name, bool shared, attn_error *error) {
    ATTN_TRY(check_equal(k_name, k.columns, "column", q_name, q.columns, error));
    if (!shared) {
        ATTN_TRY(check_equal(k_name, k.batch, "batch item", q_name, q.batch, error));
        ATTN_TRY(check_equal(v_name, v.batch, "batch item", q_name, q.batch, error));
    }
    ATTN_TRY(check_equal(v_name, v.rows, "row", k_name, k.rows, error));
    return check_equal(v_name, v.heads, "head", k_name, k.heads, error);
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

static attn_status plan_qkv(attn_plan *plan, const struct qkv *t, const attn_options *o,
                            attn_error *error) {
    const bool packed = o->heads != 0;
    const int batched_rank = packed ? 3 : 4; /* of a matrix with a batch axis */
    size_t kv_heads = 0;
    if (packed) {
        ATTN_TRY(plan_kv_heads(o, o->heads, &kv_heads, error));
    } else if (o->kv_heads != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "kv_heads",
                         "kv_heads needs heads: without heads, the heads are an axis of Q and K");
    }
    if (packed && t->q == t->k && kv_heads != o->heads) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "kv_heads",
                         "X stands for Q and K, so kv_heads = %zu must be heads = %zu", kv_heads,
                         o->heads);
    }
    const char *kv_name = o->kv_heads != 0 ? "kv_heads" : "heads";
    ATTN_TRY(check_matrix(t->q, t->q_name, 2, batched_rank, error));
    ATTN_TRY(check_one(t->q, t->q_name, t->q, t->q_name, false, o->heads, "heads", error));
    ATTN_TRY(check_one(t->k, t->k_name, t->q, t->q_name, true, kv_heads, kv_name, error));
    ATTN_TRY(check_one(t->v, t->v_name, t->k, t->k_name, false, kv_heads, kv_name, error));
    ATTN_TRY(plan_check_past(o, error));
    struct dims q = dims_of(t->q, o->heads);
    struct dims k = dims_of(t->k, kv_heads);
    struct dims v = dims_of(t->v, kv_heads);
    plan->form.has_batch_axis = t->q->rank == batched_rank;
    plan->form.has_head_axis = packed || t->q->rank >= 3;
    plan->form.has_kv_batch_axis = t->k->rank == batched_rank;
    plan->form.has_kv_head_axis = packed || t->k->rank >= 3;
    ATTN_TRY(
        check_kv(q, t->q_name, k, t->k_name, v, t->v_name, !plan->form.has_kv_batch_axis, error));
    if (q.heads % k.heads != 0) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, t->k_name,
                         "%s has %zu head%s, which is not a multiple of the %zu heads of %s",
                         t->q_name, q.heads, plural_end(q.heads), k.heads, t->k_name);
    }
    plan->dtype = t->q->dtype;
    plan->form.packed = packed;
    plan->batch = q.batch;
    plan->heads = q.heads;
    plan->kv_heads = k.heads;
    ATTN_TRY(plan_new_heads(plan, error));
    if (o->past_k != NULL) {
        ATTN_TRY(check_one(o->past_k, "past_K", t->k, t->k_name, false, kv_heads, kv_name, error));
        ATTN_TRY(check_one(o->past_v, "past_V", t->k, t->k_name, false, kv_heads, kv_name, error));
        ATTN_TRY(plan_past(plan, o, k, v, packed, error));
    }
    plan->n = q.rows;
    plan->form.new_keys = k.rows;
    plan->m = plan->form.past + k.rows;
    plan->in.q = operand_of(t->q, q, packed);
    plan->in.k = operand_of(t->k, k, packed);
    plan->in.v = operand_of(t->v, v, packed);
    plan->out.ld = packed ? q.heads * v.columns : v.columns;
    if (!size_mul(q.heads * q.rows, v.columns, &plan->out.batch)) {
        return attn_too_large(error);
    }
    for (size_t h = 0; h < plan->heads; h++) {
        struct head *head = &plan->head[h];
        head->d = q.columns;
        head->d_v = v.columns;
        head->q = head_offset(q, packed, h);
        head->k = head_offset(k, packed, kv_head(plan, h));
        head->v = head_offset(v, packed, kv_head(plan, h));
        head->out = packed ? h * v.columns : h * q.rows * v.columns;
    }
    return plan_finish(plan, o, error);
}

attn_status attn_plan_attention(attn_plan **plan, const attn_tensor *q, const attn_tensor *k,
                                const attn_tensor *v, const attn_options *options,
                                attn_error *error) {
    static const attn_options defaults = {0};
    const attn_options *o = options != NULL ? options : &defaults;
    const bool one = q != NULL && q == k && k == v; /* one matrix, which messages call X */
    const struct qkv t = {q, k, v, one ? "X" : "Q", one ? "X" : "K", one ? "X" : "V"};
    *plan = NULL;
    ATTN_TRY(check_options(o, error));
    ATTN_TRY(plan_new(plan, error));
    attn_status status = plan_qkv(*plan, &t, o, error);
    if (status != ATTN_OK) {
        attn_plan_free(*plan);
        *plan = NULL;
    }
    return status;
}
