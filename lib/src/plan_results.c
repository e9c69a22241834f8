/* plan_results.c - the shape of every result that is wanted, and where it goes. */
#include "plan_build.h"

#include <stdlib.h>

#include "status.h"
#include "tensor.h"

/* Adds a part of shape (lead axes..., sizes...). `head_axis` asks for the axis of heads or kv
 * heads. */
static void add_part(attn_plan *plan, attn_result which, attn_dtype dtype, size_t head_axis,
                     int rank, const size_t *sizes) {
    struct result *result = &plan->results[which];
    attn_tensor *tensor = &result->parts[result->count++];
    tensor->dtype = dtype;
    if (plan->has_batch_axis) {
        tensor->shape[tensor->rank++] = plan->batch;
    }
    if (head_axis != 0 && plan->has_head_axis) {
        tensor->shape[tensor->rank++] = head_axis;
    }
    for (int axis = 0; axis < rank; axis++) {
        tensor->shape[tensor->rank++] = sizes[axis];
    }
}

static void add_projected_parts(attn_plan *plan, attn_result which, size_t rows, size_t heads,
                                bool value) {
    if (!plan->per_head) {
        size_t d = value ? plan->head[0].d_v : plan->head[0].d;
        add_part(plan, which, plan->dtype, heads, 2, (size_t[]){rows, d});
        return;
    }
    for (size_t h = 0; h < plan->heads; h++) {
        size_t d = value ? plan->head[h].d_v : plan->head[h].d;
        add_part(plan, which, plan->dtype, 0, 2, (size_t[]){rows, d});
    }
}

static void add_present(attn_plan *plan, attn_result which, bool value) {
    if (plan->packed) {
        size_t d = value ? plan->head[0].d_v : plan->head[0].d;
        add_part(plan, which, plan->dtype, 0, 2, (size_t[]){plan->m, plan->kv_heads * d});
        return;
    }
    add_projected_parts(plan, which, plan->m, plan->kv_heads, value);
}

static void shape_result(attn_plan *plan, attn_result which) {
    const size_t n = plan->n, m = plan->m;
    const struct head *head = &plan->head[0];
    switch (which) {
    case ATTN_RESULT_OUTPUT:
        if (plan->has_out_projection) {
            add_part(plan, which, plan->dtype, 0, 2, (size_t[]){n, plan->project_out.ld});
        } else if (plan->packed || plan->projected) {
            add_part(plan, which, plan->dtype, 0, 2, (size_t[]){n, plan->out_ld});
        } else {
            add_part(plan, which, plan->dtype, plan->heads, 2, (size_t[]){n, head->d_v});
        }
        break;
    case ATTN_RESULT_WEIGHTS:
        add_part(plan, which, plan->dtype, plan->mean_over_heads ? 0 : plan->heads, 2,
                 (size_t[]){n, m});
        break;
    case ATTN_RESULT_SCORES:
    case ATTN_RESULT_SCALED_SCORES:
    case ATTN_RESULT_MASKED_SCORES:
        add_part(plan, which, plan->dtype, plan->heads, 2, (size_t[]){n, m});
        break;
    case ATTN_RESULT_LSE:
    case ATTN_RESULT_ENTROPY:
        add_part(plan, which, plan->dtype, plan->heads, 1, &n);
        break;
    case ATTN_RESULT_STATISTICS: {
        struct result *result = &plan->results[which];
        result->parts[result->count++] =
            (attn_tensor){.dtype = ATTN_FLOAT64, .rank = 1, .shape = {4}};
        break;
    }
    case ATTN_RESULT_TOP_K_INDICES:
    case ATTN_RESULT_TOP_K_WEIGHTS:
        add_part(plan, which, which == ATTN_RESULT_TOP_K_INDICES ? ATTN_INT64 : plan->dtype,
                 plan->heads, 2, (size_t[]){n, plan->top_k});
        break;
    case ATTN_RESULT_PRESENT_K:
    case ATTN_RESULT_PRESENT_V:
        add_present(plan, which, which == ATTN_RESULT_PRESENT_V);
        break;
    case ATTN_RESULT_Q:
        add_projected_parts(plan, which, n, plan->heads, false);
        break;
    case ATTN_RESULT_K:
    case ATTN_RESULT_V:
        add_projected_parts(plan, which, m - plan->past, plan->kv_heads, which == ATTN_RESULT_V);
        break;
    case ATTN_RESULT_COUNT:
        break;
    }
}

attn_status plan_results(attn_plan *plan, attn_error *error) {
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (!plan_wants(plan, 1u << r)) {
            continue;
        }
        bool projected_only = r == ATTN_RESULT_Q || r == ATTN_RESULT_K || r == ATTN_RESULT_V;
        if (projected_only && !plan->projected) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                             "%s is a result of calls with projections only",
                             attn_result_name((attn_result)r));
        }
        const bool parted = plan->per_head && r >= ATTN_RESULT_PRESENT_K;
        plan->results[r].room = parted ? plan->heads : 1;
        plan->results[r].parts = calloc(plan->results[r].room, sizeof(attn_tensor));
        if (plan->results[r].parts == NULL) {
            return attn_no_memory(error);
        }
        shape_result(plan, (attn_result)r);
        for (size_t p = 0; p < plan->results[r].count; p++) {
            size_t bytes;
            if (!attn_tensor_bytes(&plan->results[r].parts[p], &bytes)) {
                return attn_too_large(error);
            }
        }
    }
    return ATTN_OK;
}

size_t attn_plan_parts(const attn_plan *plan, attn_result result) {
    return (unsigned)result < ATTN_RESULT_COUNT ? plan->results[result].count : 0;
}

const attn_tensor *attn_plan_tensor(const attn_plan *plan, attn_result result, size_t part) {
    return part < attn_plan_parts(plan, result) ? &plan->results[result].parts[part] : NULL;
}

attn_status attn_plan_bind(attn_plan *plan, attn_result result, size_t part, void *data) {
    if (part >= attn_plan_parts(plan, result) || data == NULL) {
        return ATTN_INVALID_ARGUMENT;
    }
    plan->results[result].parts[part].data = data;
    return ATTN_OK;
}
