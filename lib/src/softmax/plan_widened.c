/*
 * plan_widened.c - a small call, such as one for teaching, is one task, which computes in double
 * from its first product to its last. If it is in float32, its plan becomes one of float64 as soon
 * as the options are checked. A run then copies the inputs, and rounds each result once, see
 * engine/task.c. So a result hardly ever differs from the correctly rounded one.
 */
#include "softmax/plan_widened.h"

#include "base/status.h"
#include "base/tensor.h"
#include "plan_memory.h"
#include "plan_results.h"

enum {
    /* A small call has at most SMALL_SCORES scores. Its attention costs at most SMALL_WORK
     * multiply-adds, and its projections cost at most as many. */
    SMALL_SCORES = 128,
    SMALL_WORK = 6144
};

/* The multiply-adds of all projections. */
static double all_projections(const attn_plan *plan) {
    double work = 0;
    for (const struct projection *p = plan->project; p < plan->project + PROJECT_COUNT; p++) {
        /* Weights are copied although no row needs them. */
        work += (double)size_max(p->rows, 1) * (double)p->inner * (double)p->ld;
    }
    return work;
}

static bool is_small(const attn_plan *plan) {
    const double pairs = (double)plan->batch * (double)plan->n * (double)plan->m;
    double columns = 0;
    for (size_t h = 0; h < plan->heads; h++) {
        columns += (double)plan->head[h].d + (double)plan->head[h].d_v;
    }
    return !plan->form.empty && plan->half.type == NULL &&
           pairs * (double)plan->heads <= SMALL_SCORES && pairs * columns <= SMALL_WORK &&
           all_projections(plan) <= SMALL_WORK;
}

/* Counts the numbers of a run, and makes room to bind the parts of its results. */
static attn_status place_numbers(attn_plan *plan, attn_error *error) {
    struct widened *wide = &plan->widened;
    size_t parts = 0;
    wide->numbers = plan->copies.numbers;
    for (uint64_t left = plan->results.wanted; left != 0; left &= left - 1) {
        const struct result *result = &plan->results.of[__builtin_ctzll(left)];
        for (size_t i = 0; i < result->count; i++, parts++) {
            const attn_result_tensor *part = &result->parts[i];
            wide->numbers += is_rounded(part) ? copied_numbers(part_numbers(part)) : 0;
        }
    }
    if (plan->bindings.parts == NULL) {
        return ATTN_OK;
    }
    wide->parts = plan_alloc(plan, parts, sizeof *wide->parts);
    return wide->parts == NULL ? attn_no_memory(error) : ATTN_OK;
}

attn_status plan_widen(attn_plan *plan, attn_error *error) {
    plan->path.small = is_small(plan);
    if (!plan->path.small || plan->dtype == ATTN_FLOAT64) {
        return ATTN_OK;
    }
    plan->widened.is = true;
    ATTN_TRY(plan_copy_inputs(plan, error));
    plan->dtype = ATTN_FLOAT64;
    for (int i = 0; i < PROJECT_COUNT; i++) {
        plan->project[i].panel = 0; /* the copies are rows */
    }
    return place_numbers(plan, error);
}
