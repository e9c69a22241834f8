/*
 * plan_attention.c - plans attention over given Q, K and V. It also completes the plan of a call
 * with projections, which has found its heads and matrices: it merges grouped heads of single
 * queries, and has options, results and schedule planned.
 */
#include "softmax/plan_attention.h"

#include "base/blas.h"
#include "base/check.h"
#include "base/status.h"
#include "base/tensor.h"
#include "plan_inputs.h"
#include "plan_matrices.h"
#include "plan_memory.h"
#include "plan_results.h"
#include "softmax/plan_empty.h"
#include "softmax/plan_gate.h"
#include "softmax/plan_gradients.h"
#include "softmax/plan_half.h"
#include "softmax/plan_options.h"
#include "softmax/plan_widened.h"
#include "softmax/schedule.h"

/* If there is one query, the query heads that share a key head become the queries of one head. Keys
 * and values are then read once for all of them. Nothing moves in memory, because (H,1,d) is also
 * (H_kv,H/H_kv,d). A call without keys has nothing to read, and it fills its results by the queries
 * and heads of the caller. */
static void merge_groups(attn_plan *plan) {
    const size_t group = heads_of_one(plan, &plan->in.k);
    if (plan->form.empty || plan->n != 1 || group == 1 || plan->in.q.heads != plan->heads ||
        plan->in.v.heads != plan->in.k.heads || plan->form.per_head || plan_has_slopes(plan) ||
        plan_has(plan, INPUT_SINK) || plan_has(plan, INPUT_DECAY) ||
        plan->options.scales_count != 0 || plan->results.mean || plan_has(plan, INPUT_B_Q) ||
        plan->whole_norm[0] || plan->gradients.wanted) {
        return;
    }
    plan->in.q.ld = plan->head[1].q - plan->head[0].q;
    plan->out.ld = plan->head[1].out - plan->head[0].out;
    plan->rules.mask.stride[2] = plan->rules.mask.stride[1];
    plan->rules.mask.stride[1] *= group;
    plan->rules.bias.stride[2] = plan->rules.bias.stride[1];
    plan->rules.bias.stride[1] *= group;
    plan->gate.stride[2] = plan->gate.stride[1];
    plan->gate.stride[1] *= group;
    for (size_t h = 0; h < plan->kv_heads; h++) {
        plan->head[h] = plan->head[h * group];
    }
    plan->heads = plan->in.q.heads = plan->kv_heads;
    plan->n = group;
    plan->form.merged = true;
}

attn_status plan_finish(attn_plan *plan, const attn_options *o, attn_error *error) {
    /* The bytes of all scores in double. No product of sizes below is larger, not even if an empty
     * axis is left out. */
    size_t pairs;
    bool fits = size_mul(size_max(1, plan->n), size_max(1, plan->m), &pairs);
    for (int axis = 0; axis < plan->form.axis_count; axis++) {
        fits = fits && size_mul(pairs, size_max(1, plan->form.axes[axis]), &pairs);
    }
    if (!fits || !size_mul(pairs, plan->heads, &pairs) ||
        !size_mul(pairs, sizeof(double), &pairs) || plan->m > BLAS_MAX_DIM - 32 ||
        plan->out.ld > BLAS_MAX_DIM) {
        return attn_too_large(error);
    }
    plan->form.empty = plan->batch == 0 || plan->n == 0 || plan->m == 0;
    plan->kind = plan->form.empty ? &plan_kind_empty : &plan_kind_attention;
    ATTN_TRY(plan_options(plan, o, error));
    ATTN_TRY(plan_gate(plan, o, error));
    ATTN_TRY(plan_compute_dtype(plan, o, error));
    ATTN_TRY(plan_check_gradients(plan, o, error));
    ATTN_TRY(plan_check_empty(plan, error));
    ATTN_TRY(plan_results(plan, error));
    ATTN_TRY(plan_upstream(plan, o, error));
    plan->results.head_rows = plan->results.given_rows = plan->n;
    if (o->sequences != NULL) {
        return ATTN_OK;
    }
    merge_groups(plan);
    ATTN_TRY(plan_widen(plan, error));
    return plan_schedule(plan, error);
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

attn_status plan_kv_heads(const attn_options *o, size_t heads, size_t *kv_heads,
                          attn_error *error) {
    *kv_heads = o->kv_heads != 0 ? o->kv_heads : heads;
    if (heads % *kv_heads != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "kv_heads",
                         "heads = %zu is not a multiple of kv_heads = %zu", heads, *kv_heads);
    }
    return ATTN_OK;
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

static attn_status plan_qkv(attn_plan *plan, struct matrix m[3], const attn_options *o,
                            attn_error *error) {
    size_t kv_heads;
    ATTN_TRY(packed_heads(o, m[0].tensor == m[1].tensor, &kv_heads, error));
    const size_t heads[] = {o->heads, kv_heads, kv_heads};
    ATTN_TRY(plan_matrices(plan, m, heads, o, error));
    ATTN_TRY(plan_bias(plan, o->b_q, "b_Q", m[0].d, INPUT_B_Q, error));
    ATTN_TRY(plan_bias(plan, o->b_k, "b_K", m[1].d, INPUT_B_K, error));
    ATTN_TRY(plan_bias(plan, o->b_v, "b_V", m[2].d, INPUT_B_V, error));
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
