/*
 * plan_build.c makes, completes and frees plans, and counts their bytes. plan_attention.c,
 * plan_multihead.c and plan_softmax.c fill a plan from a call. plan_options.c, plan_results.c and
 * schedule.c do the rest. run.c runs it.
 */
#include "plan_build.h"

#include <stdlib.h>

#include "blas.h"
#include "status.h"
#include "tensor.h"

enum {
    /* Each head takes memory, and a caller can refuse a plan only after it is made. */
    MAX_HEADS = 65536
};

attn_status plan_new(attn_plan **plan, attn_error *error) {
    *plan = calloc(1, sizeof **plan);
    return *plan == NULL ? attn_no_memory(error) : ATTN_OK;
}

/* Memory that a plan owns beside its workspace. */
struct plan_memory {
    struct plan_memory *next;
    double data[]; /* has the alignment of all that plans keep */
};

void *plan_alloc(attn_plan *plan, size_t count, size_t size) {
    const size_t bytes = sizeof(struct plan_memory) + count * size;
    struct plan_memory *memory = calloc(1, bytes);
    if (memory == NULL) {
        return NULL;
    }
    memory->next = plan->memory;
    plan->memory = memory;
    plan->bytes += bytes;
    return memory->data;
}

void attn_plan_free(attn_plan *plan) {
    if (plan == NULL) {
        return;
    }
    for (struct plan_memory *next; plan->memory != NULL; plan->memory = next) {
        next = plan->memory->next;
        free(plan->memory);
    }
    free(plan->workspace);
    free(plan);
}

attn_status plan_or_free(attn_plan **plan, attn_status status) {
    if (status != ATTN_OK) {
        attn_plan_free(*plan);
        *plan = NULL;
    }
    return status;
}

/* Returns how many scratches `threads` threads use at most. The tasks of the largest phase are a
 * bound, too. */
static size_t scratches(const attn_plan *plan, size_t threads) {
    size_t most = 1;
    for (size_t phase = 0; phase < PHASE_COUNT; phase++) {
        most = size_max(most, plan->schedule.tasks[phase]);
    }
    return size_min(threads, most);
}

bool attn_plan_bytes(const attn_plan *plan, size_t threads, size_t *bytes) {
    size_t results, scratch, sum;
    if (!attn_plan_results_bytes(plan, &results) ||
        !size_mul(plan->schedule.scratch.bytes, scratches(plan, threads), &scratch) ||
        !size_add(results, scratch, &sum) || !size_add(sum, plan->schedule.workspace.bytes, &sum)) {
        return false;
    }
    return size_add(sum, sizeof *plan + plan->bytes, bytes);
}

/* If there is one query, the query heads that share a key head become the queries of one head. Keys
 * and values are then read once for all of them. Nothing moves in memory, because (H,1,d) is also
 * (H_kv,H/H_kv,d). */
static void merge_groups(attn_plan *plan) {
    const size_t group = plan->heads / plan->kv_heads;
    if (plan->n != 1 || group == 1 || plan->form.per_head || plan->scoring.slopes != NULL ||
        plan->scoring.sinks != NULL || plan->results.mean || plan->norm_q.whole) {
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
    plan->heads = plan->kv_heads;
    plan->n = group;
    plan->form.merged = true;
}

attn_status plan_finish(attn_plan *plan, const attn_options *o, attn_error *error) {
    size_t pairs; /* bytes of all scores in double; no product of sizes below is larger */
    if (!size_mul(plan->n, plan->m, &pairs) || !size_mul(pairs, plan->batch, &pairs) ||
        !size_mul(pairs, plan->heads, &pairs) || !size_mul(pairs, sizeof(double), &pairs) ||
        plan->m > BLAS_MAX_DIM - 32 || plan->out.ld > BLAS_MAX_DIM) {
        return attn_too_large(error);
    }
    ATTN_TRY(plan_options(plan, o, error));
    ATTN_TRY(plan_results(plan, error));
    merge_groups(plan);
    return plan_schedule(plan, error);
}

attn_status plan_check_heads(const attn_plan *plan, size_t heads, attn_error *error) {
    return heads <= MAX_HEADS
               ? ATTN_OK
               : attn_fail(error, ATTN_TOO_LARGE, plan->form.per_head ? "heads" : "",
                           "there are %zu heads; at most %d are possible", heads, MAX_HEADS);
}

attn_status plan_new_heads(attn_plan *plan, attn_error *error) {
    ATTN_TRY(plan_check_heads(plan, plan->heads, error));
    plan->head =
        plan->heads == 1 ? &plan->one_head : plan_alloc(plan, plan->heads, sizeof *plan->head);
    return plan->head == NULL ? attn_no_memory(error) : ATTN_OK;
}
