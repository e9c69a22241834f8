/*
 * plan_gradients.c checks what a call needs for its gradients, and cuts their computation into
 * phases of tasks, which follow the phases of the results (engine/gradient.inc).
 */
#include <math.h>

#include "check.h"
#include "plan_build.h"
#include "status.h"
#include "tensor.h"

enum {
    /* The most multiply-adds of one task of the gradients: about 13 ms. */
    MOST_WORK = 1 << 30,
    /* Tasks that cost less than this are not cut further, so that there are more of them. */
    LEAST_WORK = 1 << 24,
    /* Tasks of a phase that are enough for all threads. */
    MANY = 64,
    /* Bytes of the packed keys of a tile: a quarter of an L2 cache of 512 KiB. */
    TILE_BYTES = 1 << 17,
    TILE_ROWS = 96,
    TILE_KEYS = 256,
    /* The cost of one score beside its five products. */
    SCORE = 200
};

/* Checks the gradient of a result against the shape of that result. */
static attn_status check_upstream(const attn_plan *plan, const attn_tensor *given, const char *name,
                                  const attn_result_tensor *result, const void **data,
                                  attn_error *error) {
    if (given == NULL) {
        return ATTN_OK;
    }
    if (given->data == NULL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, name, "%s is missing", name);
    }
    ATTN_TRY(check_dtype(given, name, plan->dtype, error));
    ATTN_TRY(check_shape(given, name, result->rank, result->shape, error));
    *data = given->data;
    return ATTN_OK;
}

/* Fails if a gradient is wanted of an input that the call does not have. */
static attn_status check_input(const attn_plan *plan, attn_result which, bool has, const char *need,
                               attn_error *error) {
    const char *name = attn_result_name(which);
    return has || !plan_wants(plan, UINT64_C(1) << which)
               ? ATTN_OK
               : attn_fail(error, ATTN_INVALID_ARGUMENT, "results", "%s needs %s", name, need);
}

static attn_status check_inputs(const attn_plan *plan, const attn_options *o, attn_error *error) {
    ATTN_TRY(check_input(plan, ATTN_RESULT_GRAD_PAST_K, o->past_k != NULL, "past_K", error));
    ATTN_TRY(check_input(plan, ATTN_RESULT_GRAD_PAST_V, o->past_v != NULL, "past_V", error));
    ATTN_TRY(check_input(plan, ATTN_RESULT_GRAD_BIAS, o->bias != NULL, "bias", error));
    ATTN_TRY(check_input(plan, ATTN_RESULT_GRAD_SINK, o->sink != NULL, "sink", error));
    return check_input(plan, ATTN_RESULT_GRAD_ALIBI, o->alibi_slopes != NULL, "the slopes of alibi",
                       error);
}

attn_status plan_gradients(attn_plan *plan, const attn_options *o, attn_error *error) {
    struct gradients *g = &plan->gradients;
    const attn_upstream *up = o->upstream;
    attn_result_tensor output, lse, weights;
    g->wanted = plan_wants(plan, EVERY_GRADIENT);
    if (!g->wanted && up == NULL) {
        return ATTN_OK;
    }
    if (up == NULL || (up->output == NULL && up->lse == NULL && up->weights == NULL)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "grad_output",
                         "gradients need grad_output, grad_lse or grad_weights");
    }
    if (!g->wanted) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "results",
                         "grad_output, grad_lse and grad_weights need a result such as grad_Q");
    }
    if (up->lse != NULL && o->normalization != ATTN_SOFTMAX) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "grad_lse",
                         "grad_lse needs softmax, without which there is no lse");
    }
    ATTN_TRY(check_inputs(plan, o, error));
    plan_shape(plan, ATTN_RESULT_OUTPUT, &output);
    plan_shape(plan, ATTN_RESULT_LSE, &lse);
    plan_shape(plan, ATTN_RESULT_WEIGHTS, &weights);
    ATTN_TRY(check_upstream(plan, up->output, "grad_output", &output, &g->output, error));
    ATTN_TRY(check_upstream(plan, up->lse, "grad_lse", &lse, &g->lse, error));
    return check_upstream(plan, up->weights, "grad_weights", &weights, &g->weights, error);
}

/* Finds the units. Heads that share keys are of one unit, and so are heads and batch items that
 * share a bias whose gradient is wanted. */
static void choose_units(attn_plan *plan) {
    struct gradients *g = &plan->gradients;
    const size_t *bias = plan->rules.bias.stride;
    const bool adds = plan_wants(plan, ATTN_WANT(GRAD_BIAS));
    g->items = !plan->form.has_kv_batch_axis || (adds && bias[0] == 0) ? plan->batch : 1;
    g->heads = adds && bias[1] == 0 ? plan->heads : plan->heads / plan->kv_heads;
    g->units = plan->batch / g->items * (plan->heads / g->heads);
    g->members = g->items * g->heads;
}

static double cost_of_pair(const attn_plan *plan, double rows, double keys) {
    return rows * keys * (2.5 * plan->schedule.columns + SCORE);
}

/* Returns into how many parts of at least `tile` things all of them are cut. */
static size_t parts_of(size_t all, size_t tile, double parts) {
    const size_t most = ceil_div(all, tile);
    return parts < 1 ? 1 : parts > (double)most ? most : (size_t)parts;
}

/* Cuts keys into stripes and queries into blocks: so that there is work for many threads, as long as
 * tasks do not become short, and so that no task becomes long. */
static void choose_stripes(attn_plan *plan) {
    struct gradients *g = &plan->gradients;
    const double all = cost_of_pair(plan, (double)plan->n, (double)plan->m);
    const double least = ceil(sqrt(all / MOST_WORK)), most = sqrt(all / LEAST_WORK);
    const double parts = fmax(least, fmin(most, (double)ceil_div(MANY, g->units)));
    g->blocks = parts_of(plan->n, g->tile_rows, parts);
    g->stripes = parts_of(plan->m, g->tile_keys, fmax(parts, all / MOST_WORK / (double)g->blocks));
    g->blocks = parts_of(plan->n, g->tile_rows,
                         fmax((double)g->blocks, ceil(all / MOST_WORK / (double)g->stripes)));
    g->rows = ceil_div(ceil_div(plan->n, g->blocks), g->tile_rows) * g->tile_rows;
    g->keys = ceil_div(ceil_div(plan->m, g->stripes), g->tile_keys) * g->tile_keys;
    g->blocks = ceil_div(plan->n, g->rows);
    g->stripes = ceil_div(plan->m, g->keys);
    g->turns = size_max(g->blocks, g->stripes);
    const double pair = cost_of_pair(plan, (double)g->rows, (double)g->keys);
    g->together = parts_of(g->members, 1, LEAST_WORK / pair);
}

void plan_cut_gradients(attn_plan *plan, size_t d) {
    struct gradients *g = &plan->gradients;
    const size_t size = attn_dtype_size(plan->dtype);
    if (!g->wanted) {
        return;
    }
    g->tile_keys = size_max(64, size_min(TILE_KEYS, TILE_BYTES / (d * size) / 64 * 64));
    g->tile_keys = size_min(g->tile_keys, plan->m);
    g->tile_rows = size_min(TILE_ROWS, plan->n);
    const size_t panel = size_max(1, plan->tiling.panel);
    g->ld = ceil_div(g->tile_keys, panel) * panel;
    choose_units(plan);
    choose_stripes(plan);
    const double row = plan->schedule.columns * 20 + 2000 +
                       (g->weights == NULL ? 0 : cost_of_row(plan));
    const size_t rows = plan->batch * plan->heads * plan->n;
    g->start = plan_cut(rows, row * (double)rows);
    for (int r = ATTN_RESULT_GRAD_Q; r <= ATTN_RESULT_GRAD_ALIBI; r++) {
        g->parts += gradient_parts(plan, (attn_result)r);
    }
    g->phases = 2 + ceil_div(g->members, g->together) * g->turns;
    g->cost = row * (double)rows +
              (double)plan->batch * (double)plan->heads *
                  cost_of_pair(plan, (double)plan->n, (double)plan->m);
}

size_t gradient_tasks(const attn_plan *plan, size_t phase) {
    const struct gradients *g = &plan->gradients;
    return phase == 0 ? g->start.tasks + g->parts
           : phase + 1 < g->phases ? g->units * g->stripes
                          : g->parts + GRADIENT_SUMS;
}
