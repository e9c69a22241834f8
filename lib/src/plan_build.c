/*
 * plan_build.c - completes the plan of attention after plan_attention.c or plan_multihead.c has
 * found its heads and matrices: it merges grouped heads of single queries, and has options, results
 * and schedule planned. It also counts the bytes that any plan takes.
 */
#include "plan_build.h"

#include "base/blas.h"
#include "base/status.h"
#include "base/tensor.h"

/* Returns how many scratches `threads` threads use at most. The tasks of the largest phase are a
 * bound, too. */
static size_t scratches(const attn_plan *plan, size_t threads) {
    size_t most = 1;
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        most = size_max(most, attn_plan_tasks(plan, phase));
    }
    return size_min(threads, most);
}

/* Adds the bytes of a plan itself and of its workspace. */
static bool add_own_bytes(const attn_plan *plan, size_t *bytes) {
    return size_add(*bytes, sizeof *plan + plan->bytes, bytes) &&
           size_add(*bytes, plan->schedule.workspace.bytes, bytes);
}

bool attn_plan_bytes(const attn_plan *plan, size_t threads, size_t *bytes) {
    size_t results, sum; /* the wide plan has its results in memory of this one, and its scratch */
    if (!attn_plan_results_bytes(plan, &results) ||
        !size_mul(plan->schedule.scratch.bytes, scratches(plan, threads), &sum) ||
        !size_add(results, sum, &sum) || !add_own_bytes(plan, &sum) ||
        (plan->wide != NULL && !add_own_bytes(plan->wide->plan, &sum))) {
        return false;
    }
    *bytes = sum;
    return true;
}

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
        plan->whole_norm_q || plan->gradients.wanted) {
        return;
    }
    plan->in.q.ld = plan->head[1].q - plan->head[0].q;
    plan->out.ld = plan->head[1].out - plan->head[0].out;
    plan->rules.mask.stride[2] = plan->rules.mask.stride[1];
    plan->rules.mask.stride[1] *= group;
    plan->rules.bias.stride[2] = plan->rules.bias.stride[1];
    plan->rules.bias.stride[1] *= group;
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
    ATTN_TRY(plan_compute_dtype(plan, o, error));
    ATTN_TRY(plan_check_gradients(plan, o, error));
    ATTN_TRY(plan_check_empty(plan, error));
    ATTN_TRY(plan_results(plan, error));
    ATTN_TRY(plan_upstream(plan, o, error));
    plan->results.head_rows = plan->n;
    if (o->sequences != NULL) {
        return ATTN_OK;
    }
    if (plan->gradients.wanted && plan->dtype == ATTN_FLOAT32 &&
        plan->call.layout != ATTN_PREPACKED && plan_is_small(plan)) {
        ATTN_TRY(plan_wide(plan, error));
        plan->gradients.wanted = false;
    }
    merge_groups(plan);
    ATTN_TRY(plan_schedule(plan, error));
    if (plan->wide != NULL) {
        const struct schedule *wide = &plan->wide->plan->schedule;
        struct schedule *s = &plan->schedule;
        s->scratch.bytes = size_max(s->scratch.bytes, wide->scratch.bytes);
        s->cost += wide->cost;
    }
    return ATTN_OK;
}
