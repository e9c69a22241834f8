/*
 * plan_empty.c - calls with an empty axis: without a query, a key or a batch item. They have no
 * scores, so no engine computes them. Their projections and their copies of Q, K and V are tasks
 * like those of other calls. All other results are filled here: without a key, every query is one
 * that may attend to no key. Its lse is -inf or the sink, its other numbers are 0, and only the
 * sink and b_O have a gradient.
 */
#include "softmax/plan_empty.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "base/tensor.h"
#include "partition.h"

enum {
    SUM_COST = 16 /* adding a number to a gradient that is a sum, in multiply-adds */
};

/* A gradient. Its number j is the sum of x[(o * numbers + j) * inner + i] over all o < outer and
 * i < inner. */
struct sum {
    const void *x; /* NULL: zeros */
    size_t outer, numbers, inner;
};

/* A part of a result that is filled. The work of its `numbers` numbers is counted in terms: each
 * number has so many. */
struct fill {
    attn_result which;
    attn_result_tensor part;
    size_t numbers, terms;
};

attn_status plan_check_empty(const attn_plan *plan, attn_error *error) {
    const char *none = plan->n == 0 ? "query" : plan->m == 0 ? "key" : "batch item";
    return plan->form.empty && plan_wants(plan, ATTN_WANT(STATISTICS))
               ? attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                           "statistics needs scores, and a call without a %s has none", none)
               : ATTN_OK;
}

/* The sum over queries that a gradient is: that of b_O over grad_output, that of the sink over
 * grad_lse. */
static struct sum sum_of(const attn_plan *plan, const struct bindings *bindings,
                         attn_result which) {
    const void *const *inputs = bindings->inputs;
    if (which == ATTN_RESULT_GRAD_B_O) {
        return (struct sum){inputs[INPUT_GRAD_OUTPUT], plan->batch * plan->n,
                            plan->project[PROJECT_OUT].ld, 1};
    }
    if (which == ATTN_RESULT_GRAD_SINK) {
        return (struct sum){inputs[INPUT_GRAD_LSE], plan->batch, plan->heads, plan->n};
    }
    return (struct sum){0};
}

/* Does another phase make a result? */
static bool is_made(const attn_plan *plan, attn_result which) {
    return result_is(which, RESULT_COPY) ||
           (which == ATTN_RESULT_OUTPUT && plan->project[PROJECT_OUT].count > 0);
}

/* Returns part `index` of what is filled. Those of each result follow one another, and W_O reads
 * the outputs of heads in place of the output. Returns false if the result has no such part. */
static bool fill_of(const attn_plan *plan, const struct bindings *bindings, attn_result which,
                    size_t index, struct fill *fill) {
    const size_t heads_out = plan->schedule.workspace.heads_out;
    const struct sum sum = sum_of(plan, bindings, which);
    const bool made = is_made(plan, which);
    if (index >= plan->results.of[which].count || (made && which != ATTN_RESULT_OUTPUT)) {
        return false;
    }
    *fill = (struct fill){.which = which, .part = plan->results.of[which].parts[index]};
    fill->part.data = bound_part(plan, bindings, which, index);
    if (made) {
        fill->part = (attn_result_tensor){
            .data = bindings->workspace == NULL ? NULL : bindings->workspace + heads_out,
            .dtype = plan->dtype,
            .rank = 2,
            .shape = {plan->batch, plan->out.batch}};
    }
    fill->numbers = part_numbers(&fill->part);
    fill->terms = sum.x == NULL ? 1 : size_max(1, sum.outer * sum.inner);
    return true;
}

size_t plan_count_fills(const attn_plan *plan) {
    struct fill fill;
    size_t terms = 0; /* fit: they are those of results and of an input */
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        for (size_t index = 0; fill_of(plan, &plan->bindings, (attn_result)r, index, &fill);
             index++) {
            terms += fill.numbers * fill.terms;
        }
    }
    return ceil_div(terms, COPY_NUMBERS);
}

double plan_cost_of_fills(const attn_plan *plan) {
    double cost = 0;
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) { /* only a gradient is a sum */
        const struct sum sum = sum_of(plan, &plan->bindings, (attn_result)r);
        const double terms = (double)sum.outer * (double)sum.numbers * (double)sum.inner;
        cost += plan_wants(plan, UINT64_C(1) << r) && sum.x != NULL ? terms * SUM_COST : 0;
    }
    return cost;
}

/* Writes numbers [first, end) of an lse: each head has its own sink. */
static void fill_lse(const attn_plan *plan, const double *sinks, const attn_result_tensor *part,
                     size_t first, size_t end) {
    for (size_t i = first; i < end; i++) {
        const size_t head = i / plan->n % plan->heads;
        put_number(part->data, part->dtype, i, sinks == NULL ? -(double)INFINITY : sinks[head]);
    }
}

/* Writes numbers [first, end) of a gradient that is a sum. */
static attn_status fill_sum(const struct sum *sum, const struct fill *fill, size_t first,
                            size_t end, attn_error *error) {
    const attn_dtype dtype = fill->part.dtype;
    for (size_t j = first; j < end; j++) {
        double all = 0;
        for (size_t o = 0; o < sum->outer; o++) {
            for (size_t i = 0; i < sum->inner; i++) {
                all += number_at(sum->x, dtype, (o * sum->numbers + j) * sum->inner + i);
            }
        }
        put_number(fill->part.data, dtype, j, all);
        if (!isfinite(number_at(fill->part.data, dtype, j))) {
            return gradient_not_finite(&fill->part, fill->which, j, error);
        }
    }
    return ATTN_OK;
}

/* Fills numbers [first, end) of a part. */
static attn_status fill_range(const attn_plan *plan, const struct bindings *bindings,
                              const struct fill *fill, size_t first, size_t end,
                              attn_error *error) {
    const size_t size = attn_dtype_size(fill->part.dtype);
    const struct sum sum = sum_of(plan, bindings, fill->which);
    if (sum.x != NULL) {
        return fill_sum(&sum, fill, first, end, error);
    }
    if (fill->which == ATTN_RESULT_LSE) {
        fill_lse(plan, bindings->sinks, &fill->part, first, end);
    } else if (first < end) {
        assert(fill->part.data != NULL);
        memset((char *)fill->part.data + first * size, 0, (end - first) * size);
    }
    return ATTN_OK;
}

/* Returns the number of a part to which the terms from `before` to `at` count. */
static size_t number_of(const struct fill *fill, size_t before, size_t at) {
    return at <= before ? 0 : size_min(ceil_div(at - before, fill->terms), fill->numbers);
}

/* A task fills the numbers whose first term is one of its COPY_NUMBERS terms. */
attn_status plan_fill(const attn_plan *plan, const struct bindings *bindings, size_t task,
                      attn_error *error) {
    const size_t from = task * COPY_NUMBERS, to = from + COPY_NUMBERS;
    struct fill fill;
    size_t before = 0;
    for (int r = 0; r < ATTN_RESULT_COUNT && before < to; r++) {
        for (size_t index = 0; fill_of(plan, bindings, (attn_result)r, index, &fill); index++) {
            ATTN_TRY(fill_range(plan, bindings, &fill, number_of(&fill, before, from),
                                number_of(&fill, before, to), error));
            before += fill.numbers * fill.terms;
        }
    }
    return ATTN_OK;
}
