/*
 * plan.c - what both kinds of plan share: making, costing and freeing one. plan_attention.c and
 * plan_multihead.c fill it from a call, plan_options.c and plan_results.c resolve the rest. Nothing
 * is computed here; see run.c.
 */
#include "plan_build.h"

#include <stdlib.h>

#include "status.h"
#include "tensor.h"

enum {
    BLOCK_BYTES = 1 << 20, /* scores of one block of queries: half of a common L2 cache */
    BLOCK_MIN_ROWS = 16,   /* below that a product is bound by memory */
};

attn_status plan_no_memory(attn_error *error) {
    return attn_fail(error, ATTN_NO_MEMORY, "", "out of memory");
}

attn_status plan_too_large(attn_error *error) {
    return attn_fail(error, ATTN_TOO_LARGE, "",
                     "the matrices of this call are too large to be addressed");
}

attn_status plan_new(attn_plan **plan, attn_error *error) {
    *plan = calloc(1, sizeof **plan);
    return *plan == NULL ? plan_no_memory(error) : ATTN_OK;
}

void attn_plan_free(attn_plan *plan) {
    if (plan == NULL) {
        return;
    }
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        free(plan->results[r].parts);
    }
    free(plan->project_q.pieces);
    free(plan->project_k.pieces);
    free(plan->project_v.pieces);
    free(plan->project_out.pieces);
    free(plan->head);
    free(plan->slopes);
    free(plan->sinks);
    free(plan->lengths);
    free(plan);
}

/* ------------------------------------------------------------------------------- cost, scratch */

static double projection_cost(const struct projection *projection) {
    return (double)projection->rows * (double)projection->inner * (double)projection->ld;
}

/* Bytes of the projected rows, which live in the run's scratch. */
static bool projection_bytes(const attn_plan *plan, const struct projection *p, size_t *total) {
    size_t bytes;
    return p->count == 0 || (size_mul(p->rows, p->ld, &bytes) &&
                             size_mul(bytes, attn_dtype_size(plan->dtype), &bytes) &&
                             size_add(*total, bytes, total));
}

static attn_status resolve_cost(attn_plan *plan, attn_error *error) {
    const size_t size = attn_dtype_size(plan->dtype);
    size_t pairs, all;
    if (!size_mul(plan->n, plan->m, &pairs) || !size_mul(pairs, plan->batch, &all) ||
        !size_mul(all, plan->heads, &all) || !size_mul(all, sizeof(double), &all)) {
        return plan_too_large(error);
    }
    plan->cost = projection_cost(&plan->project_q) + projection_cost(&plan->project_k) +
                 projection_cost(&plan->project_v) + projection_cost(&plan->project_out);
    for (size_t h = 0; h < plan->heads; h++) {
        plan->cost += (double)plan->batch * (double)plan->n * (double)plan->m *
                      (double)(plan->head[h].d + plan->head[h].d_v);
    }
    size_t rows = BLOCK_BYTES / (plan->m * size);
    rows = rows < BLOCK_MIN_ROWS ? BLOCK_MIN_ROWS : rows;
    plan->block_rows = rows < plan->n ? rows : plan->n;
    plan->scratch = plan->block_rows * plan->m * size; /* fits: at most all scores or 16 rows */
    plan->scratch += plan->m * sizeof(double);
    if (plan_wants(plan, ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS))) {
        plan->scratch += plan->m * sizeof(size_t);
    }
    if (!projection_bytes(plan, &plan->project_q, &plan->scratch) ||
        !projection_bytes(plan, &plan->project_k, &plan->scratch) ||
        !projection_bytes(plan, &plan->project_v, &plan->scratch)) {
        return plan_too_large(error);
    }
    if (plan->has_out_projection) {
        size_t bytes;
        if (!size_mul(plan->batch, plan->out_batch, &bytes) || !size_mul(bytes, size, &bytes) ||
            !size_add(plan->scratch, bytes, &plan->scratch)) {
            return plan_too_large(error);
        }
    }
    return ATTN_OK;
}

attn_status plan_finish(attn_plan *plan, const attn_options *o, attn_error *error) {
    ATTN_TRY(resolve_cost(plan, error)); /* first: it bounds every product of the sizes */
    ATTN_TRY(plan_options(plan, o, error));
    ATTN_TRY(plan_results(plan, error));
    return resolve_cost(plan, error);
}

attn_status plan_new_heads(attn_plan *plan, attn_error *error) {
    plan->head = calloc(plan->heads, sizeof *plan->head);
    return plan->head == NULL ? plan_no_memory(error) : ATTN_OK;
}

double attn_plan_cost(const attn_plan *plan) {
    return plan->cost;
}

size_t attn_plan_scratch(const attn_plan *plan) {
    return plan->scratch;
}
