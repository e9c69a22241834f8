/*
 * plan.c - turns a call into a plan: all shapes checked against each other, all strides and result
 * shapes known. Computes nothing; see run.c.
 */
#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blas.h"
#include "check.h"
#include "status.h"
#include "tensor.h"

enum {
    DEFAULT_TOP_K = 5,
    BLOCK_BYTES = 1 << 20, /* scores of one block of queries: half of a common L2 cache */
    BLOCK_MIN_ROWS = 16,   /* below that a product is bound by memory */
};

/* ------------------------------------------------------------------------------- common parts */

static attn_status no_memory(attn_error *error) {
    return attn_fail(error, ATTN_NO_MEMORY, "", "out of memory");
}

static attn_status too_large(attn_error *error) {
    return attn_fail(error, ATTN_TOO_LARGE, "",
                     "the matrices of this call are too large to be addressed");
}

static attn_status new_plan(attn_plan **plan, attn_error *error) {
    *plan = calloc(1, sizeof **plan);
    return *plan == NULL ? no_memory(error) : ATTN_OK;
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

static double element(const attn_tensor *tensor, size_t index) {
    return tensor->dtype == ATTN_FLOAT32 ? (double)((const float *)tensor->data)[index]
                                         : ((const double *)tensor->data)[index];
}

/* A vector of one number for each head, as doubles, or NULL if absent. */
static attn_status per_head_numbers(const attn_tensor *tensor, const char *name,
                                    const attn_plan *plan, double **out, attn_error *error) {
    if (tensor == NULL) {
        return ATTN_OK;
    }
    ATTN_TRY(check_matrix(tensor, name, 1, 1, error));
    ATTN_TRY(check_dtype(tensor, name, plan->dtype, error));
    if (tensor->shape[0] != plan->heads) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name,
                         "%s has %zu numbers; it must have one for each of the %zu heads", name,
                         tensor->shape[0], plan->heads);
    }
    *out = malloc(plan->heads * sizeof **out);
    if (*out == NULL) {
        return no_memory(error);
    }
    for (size_t h = 0; h < plan->heads; h++) {
        (*out)[h] = element(tensor, h);
        if (!isfinite((*out)[h])) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, name, "%s must be finite", name);
        }
    }
    return ATTN_OK;
}

/* The slopes of Press et al. 2021: for a power of two, the geometric sequence that starts at and has the
 * ratio 2^(-8/heads); otherwise that of the next lower power, then every other slope of twice it. */
static double paper_slope(size_t h, size_t heads) {
    size_t power = 1;
    while (power * 2 <= heads) {
        power *= 2;
    }
    if (h < power) {
        return exp2(-8.0 * (double)(h + 1) / (double)power);
    }
    return exp2(-4.0 * (double)(2 * (h - power) + 1) / (double)power);
}

static attn_status resolve_alibi(attn_plan *plan, const attn_options *o, attn_error *error) {
    if ((o->flags & ATTN_FLAG_ALIBI) == 0) {
        return per_head_numbers(o->alibi_slopes, "alibi", plan, &plan->slopes, error);
    }
    plan->slopes = malloc(plan->heads * sizeof *plan->slopes);
    if (plan->slopes == NULL) {
        return no_memory(error);
    }
    for (size_t h = 0; h < plan->heads; h++) {
        plan->slopes[h] = paper_slope(h, plan->heads);
    }
    return ATTN_OK;
}

static attn_status resolve_lengths(attn_plan *plan, const attn_options *o, attn_error *error) {
    if (o->lengths_count == 0) {
        return ATTN_OK;
    }
    if (o->lengths_count != plan->batch) {
        return attn_fail(
            error, ATTN_SHAPE_MISMATCH, "lengths",
            "lengths has %zu numbers; it must have one for each of the %zu batch items",
            o->lengths_count, plan->batch);
    }
    plan->lengths = malloc(plan->batch * sizeof *plan->lengths);
    if (plan->lengths == NULL) {
        return no_memory(error);
    }
    for (size_t b = 0; b < plan->batch; b++) {
        if (o->lengths[b] > plan->m) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "lengths",
                             "lengths[%zu] is %zu, but there are only %zu keys", b, o->lengths[b],
                             plan->m);
        }
        plan->lengths[b] = o->lengths[b];
    }
    return ATTN_OK;
}

static attn_status resolve_mask(attn_plan *plan, const attn_options *o, attn_error *error) {
    if (o->mask != NULL && o->mask->dtype != ATTN_BOOL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "mask", "mask must hold booleans");
    }
    ATTN_TRY(check_broadcast(o->mask, "mask", plan, &plan->mask, error));
    if (o->bias != NULL) {
        ATTN_TRY(check_dtype(o->bias, "bias", plan->dtype, error));
    }
    return check_broadcast(o->bias, "bias", plan, &plan->bias, error);
}

/* All options, once the sizes, heads and per-head layouts of the plan are known. */
static attn_status resolve_options(attn_plan *plan, const attn_options *o, attn_error *error) {
    plan->causal = o->causal;
    plan->normalization = o->normalization;
    plan->softcap = o->softcap;
    plan->shift = o->causal == ATTN_CAUSAL_BOTTOM_RIGHT ? (int64_t)plan->m - (int64_t)plan->n
                                                        : (int64_t)plan->past;
    bool windowed = (o->flags & ATTN_FLAG_WINDOW) != 0;
    plan->window[0] = windowed ? o->window[0] : -1;
    plan->window[1] = windowed ? o->window[1] : -1;
    plan->mean_over_heads = (o->flags & ATTN_FLAG_MEAN_OVER_HEADS) != 0;
    plan->wanted = o->results != 0 ? o->results : ATTN_WANT(OUTPUT);
    plan->top_k = o->top_k != 0 ? o->top_k : DEFAULT_TOP_K;
    if (plan->top_k > plan->m) {
        plan->top_k = plan->m;
    }
    for (size_t h = 0; h < plan->heads; h++) {
        plan->head[h].scale =
            (o->flags & ATTN_FLAG_SCALE) != 0 ? o->scale : 1.0 / sqrt((double)plan->head[h].d);
    }
    ATTN_TRY(resolve_alibi(plan, o, error));
    ATTN_TRY(per_head_numbers(o->sink, "sink", plan, &plan->sinks, error));
    ATTN_TRY(resolve_lengths(plan, o, error));
    return resolve_mask(plan, o, error);
}

/* kv_heads of the options, checked against heads. */
static attn_status resolve_kv_heads(const attn_options *o, size_t heads, size_t *kv_heads,
                                    attn_error *error) {
    *kv_heads = o->kv_heads != 0 ? o->kv_heads : heads;
    if (heads % *kv_heads != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "kv_heads",
                         "heads = %zu is not a multiple of kv_heads = %zu", heads, *kv_heads);
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------ result shapes */

/* Adds a part of shape (lead axes..., sizes...). `head_axis` asks for the axis of heads or kv heads. */
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

static attn_status shape_results(attn_plan *plan, attn_error *error) {
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (!plan_wants(plan, 1u << r)) {
            continue;
        }
        bool projected_only = r == ATTN_RESULT_Q || r == ATTN_RESULT_K || r == ATTN_RESULT_V;
        if (projected_only && !plan->projected) {
            return attn_fail(error, ATTN_INVALID_ARGUMENT, "return",
                             "%s can be returned by calls with projections only",
                             attn_result_name((attn_result)r));
        }
        plan->results[r].parts = calloc(plan->per_head ? plan->heads : 1, sizeof(attn_tensor));
        if (plan->results[r].parts == NULL) {
            return no_memory(error);
        }
        shape_result(plan, (attn_result)r);
        for (size_t p = 0; p < plan->results[r].count; p++) {
            size_t bytes;
            if (!attn_tensor_bytes(&plan->results[r].parts[p], &bytes)) {
                return too_large(error);
            }
        }
    }
    return ATTN_OK;
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
        return too_large(error);
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
        return too_large(error);
    }
    if (plan->has_out_projection) {
        size_t bytes;
        if (!size_mul(plan->batch, plan->out_batch, &bytes) || !size_mul(bytes, size, &bytes) ||
            !size_add(plan->scratch, bytes, &plan->scratch)) {
            return too_large(error);
        }
    }
    return ATTN_OK;
}

static attn_status finish_plan(attn_plan *plan, const attn_options *o, attn_error *error) {
    ATTN_TRY(resolve_cost(plan, error)); /* first: it bounds every product of the sizes */
    ATTN_TRY(resolve_options(plan, o, error));
    ATTN_TRY(shape_results(plan, error));
    return resolve_cost(plan, error);
}

static attn_status new_heads(attn_plan *plan, attn_error *error) {
    plan->head = calloc(plan->heads, sizeof *plan->head);
    return plan->head == NULL ? no_memory(error) : ATTN_OK;
}

/* -------------------------------------------------------------------------- attention on Q, K, V */

/* The four sizes of a matrix, whatever its form. */
struct dims {
    size_t batch, heads, rows, columns; /* columns of one head */
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
    struct operand o = {.data = t->data, .ld = packed ? d.heads * d.columns : d.columns};
    o.batch = d.heads * d.rows * d.columns;
    return o;
}

/* Offset of a head in an operand. */
static size_t head_offset(struct dims d, bool packed, size_t h) {
    return packed ? h * d.columns : h * d.rows * d.columns;
}

static attn_status check_pair(const char *name, size_t got, const char *what, const char *other,
                              size_t want, attn_error *error) {
    if (got != want) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s has %zu %s but %s has %zu", name,
                         got, what, other, want);
    }
    return ATTN_OK;
}

struct qkv {
    const attn_tensor *q, *k, *v;
    const char *q_name, *k_name, *v_name;
};

static attn_status check_one(const attn_tensor *t, const char *name, const attn_tensor *q,
                             const char *q_name, int max_rank, size_t packed_heads,
                             const char *heads_name, attn_error *error) {
    ATTN_TRY(check_matrix(t, name, 2, max_rank, error));
    ATTN_TRY(check_dtype(t, name, q->dtype, error));
    if (t->rank != q->rank) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s has rank %d but %s has rank %d",
                         name, t->rank, q_name, q->rank);
    }
    if (packed_heads != 0) {
        return check_columns(name, t->shape[t->rank - 1], packed_heads, heads_name, error);
    }
    return ATTN_OK;
}

/* K and V, or the past ones, against Q and each other. */
static attn_status check_kv(struct dims q, const char *q_name, struct dims k, const char *k_name,
                            struct dims v, const char *v_name, attn_error *error) {
    ATTN_TRY(check_pair(k_name, k.columns, "columns", q_name, q.columns, error));
    ATTN_TRY(check_pair(k_name, k.batch, "batch items", q_name, q.batch, error));
    ATTN_TRY(check_pair(v_name, v.batch, "batch items", q_name, q.batch, error));
    ATTN_TRY(check_pair(v_name, v.rows, "rows", k_name, k.rows, error));
    return check_pair(v_name, v.heads, "heads", k_name, k.heads, error);
}

static attn_status check_past(const attn_options *o, attn_error *error) {
    if ((o->past_k == NULL) != (o->past_v == NULL)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, o->past_k == NULL ? "past_V" : "past_K",
                         "past_K and past_V must be given together");
    }
    return ATTN_OK;
}

/* Past rows in the form of K and V (given as dims): fills the plan's operands. */
static attn_status plan_past(attn_plan *plan, const attn_options *o, struct dims k, struct dims v,
                             bool packed, attn_error *error) {
    struct dims pk = dims_of(o->past_k, packed ? plan->kv_heads : 0);
    struct dims pv = dims_of(o->past_v, packed ? plan->kv_heads : 0);
    if (plan->has_batch_axis && !plan->has_head_axis) { /* (B,p,d): the first axis is no head */
        pk.batch = pk.heads, pv.batch = pv.heads;
        pk.heads = pv.heads = 1;
    }
    ATTN_TRY(check_pair("past_K", pk.columns, "columns", "K", k.columns, error));
    ATTN_TRY(check_pair("past_K", pk.heads, "heads", "K", k.heads, error));
    ATTN_TRY(check_pair("past_K", pk.batch, "batch items", "K", k.batch, error));
    ATTN_TRY(check_pair("past_V", pv.columns, "columns", "V", v.columns, error));
    ATTN_TRY(check_pair("past_V", pv.heads, "heads", "V", v.heads, error));
    ATTN_TRY(check_pair("past_V", pv.batch, "batch items", "V", v.batch, error));
    ATTN_TRY(check_pair("past_V", pv.rows, "rows", "past_K", pk.rows, error));
    plan->past = pk.rows;
    plan->past_k = operand_of(o->past_k, pk, packed);
    plan->past_v = operand_of(o->past_v, pv, packed);
    for (size_t h = 0; h < plan->heads; h++) {
        plan->head[h].past_k = head_offset(pk, packed, kv_head(plan, h));
        plan->head[h].past_v = head_offset(pv, packed, kv_head(plan, h));
    }
    return ATTN_OK;
}

static attn_status plan_qkv(attn_plan *plan, const struct qkv *t, const attn_options *o,
                            attn_error *error) {
    const bool packed = o->heads != 0;
    const int max_rank = packed ? 3 : 4;
    size_t kv_heads = 0;
    if (packed) {
        ATTN_TRY(resolve_kv_heads(o, o->heads, &kv_heads, error));
    } else if (o->kv_heads != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "kv_heads",
                         "kv_heads needs heads: without it the heads are the axis of Q and K");
    }
    const char *kv_name = o->kv_heads != 0 ? "kv_heads" : "heads";
    ATTN_TRY(check_matrix(t->q, t->q_name, 2, max_rank, error));
    ATTN_TRY(check_one(t->q, t->q_name, t->q, t->q_name, max_rank, o->heads, "heads", error));
    ATTN_TRY(check_one(t->k, t->k_name, t->q, t->q_name, max_rank, kv_heads, kv_name, error));
    ATTN_TRY(check_one(t->v, t->v_name, t->q, t->q_name, max_rank, kv_heads, kv_name, error));
    ATTN_TRY(check_past(o, error));
    struct dims q = dims_of(t->q, o->heads);
    struct dims k = dims_of(t->k, kv_heads);
    struct dims v = dims_of(t->v, kv_heads);
    ATTN_TRY(check_kv(q, t->q_name, k, t->k_name, v, t->v_name, error));
    if (q.heads % k.heads != 0) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, t->k_name,
                         "%s has %zu heads, which is not a multiple of the %zu heads of %s",
                         t->q_name, q.heads, k.heads, t->k_name);
    }
    plan->dtype = t->q->dtype;
    plan->packed = packed;
    plan->has_batch_axis = t->q->rank == (packed ? 3 : 4);
    plan->has_head_axis = packed || t->q->rank >= 3;
    plan->batch = q.batch;
    plan->heads = q.heads;
    plan->kv_heads = k.heads;
    ATTN_TRY(new_heads(plan, error));
    if (o->past_k != NULL) {
        ATTN_TRY(
            check_one(o->past_k, "past_K", t->q, t->q_name, max_rank, kv_heads, kv_name, error));
        ATTN_TRY(
            check_one(o->past_v, "past_V", t->q, t->q_name, max_rank, kv_heads, kv_name, error));
        ATTN_TRY(plan_past(plan, o, k, v, packed, error));
    }
    plan->n = q.rows;
    plan->m = plan->past + k.rows;
    plan->q = operand_of(t->q, q, packed);
    plan->k = operand_of(t->k, k, packed);
    plan->v = operand_of(t->v, v, packed);
    plan->out_ld = packed ? q.heads * v.columns : v.columns;
    if (!size_mul(q.heads * q.rows, v.columns, &plan->out_batch)) {
        return too_large(error);
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
    return finish_plan(plan, o, error);
}

attn_status attn_plan_attention(attn_plan **plan, const attn_tensor *q, const attn_tensor *k,
                                const attn_tensor *v, const attn_options *options,
                                attn_error *error) {
    static const attn_options defaults = {0};
    const attn_options *o = options != NULL ? options : &defaults;
    const bool one = q != NULL && q == k && k == v; /* self-attention without projections */
    const struct qkv t = {q, k, v, one ? "X" : "Q", one ? "X" : "K", one ? "X" : "V"};
    *plan = NULL;
    ATTN_TRY(check_options(o, error));
    ATTN_TRY(new_plan(plan, error));
    attn_status status = plan_qkv(*plan, &t, o, error);
    if (status != ATTN_OK) {
        attn_plan_free(*plan);
        *plan = NULL;
    }
    return status;
}

/* ---------------------------------------------------------------------------------- projections */

/* A weight matrix seen as (inner, columns) for each of `heads` heads, whatever its form. */
struct weight {
    const attn_tensor *tensor;
    const char *name;
    bool per_head; /* 3-D */
    size_t heads;  /* of a 3-D weight, else 1 */
    size_t inner, columns;
};

static attn_status read_weight(const attn_tensor *t, const char *name, attn_layout layout,
                               int max_rank, attn_dtype dtype, struct weight *out,
                               attn_error *error) {
    ATTN_TRY(check_matrix(t, name, 2, max_rank, error));
    ATTN_TRY(check_dtype(t, name, dtype, error));
    const size_t *end = t->shape + t->rank;
    *out = (struct weight){
        .tensor = t,
        .name = name,
        .per_head = t->rank == 3,
        .heads = t->rank == 3 ? end[-3] : 1,
        .inner = layout == ATTN_IN_OUT ? end[-2] : end[-1],
        .columns = layout == ATTN_IN_OUT ? end[-1] : end[-2],
    };
    return ATTN_OK;
}

/* X W must be possible. */
static attn_status check_inner(const struct weight *w, const char *x_name, size_t columns,
                               attn_layout layout, attn_error *error) {
    if (w->inner != columns) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, w->name,
                         "%s has %zu %s but %s has %zu columns", w->name, w->inner,
                         layout == ATTN_IN_OUT ? "rows" : "columns (out_in)", x_name, columns);
    }
    return ATTN_OK;
}

/* A bias of heads * columns numbers: flat, or (heads, columns) beside 3-D weights. */
static attn_status check_bias(const attn_tensor *b, const char *name, attn_dtype dtype,
                              const struct weight *w, attn_error *error) {
    if (b == NULL) {
        return ATTN_OK;
    }
    ATTN_TRY(check_matrix(b, name, 1, 2, error));
    ATTN_TRY(check_dtype(b, name, dtype, error));
    if (b->rank == 2 && w->per_head) {
        return check_shape(b, name, 2, (size_t[]){w->heads, w->columns}, error);
    }
    return check_shape(b, name, 1, (size_t[]){w->heads * w->columns}, error);
}

/* Adds the pieces of one weight, whose result starts at `column` of each row. A 3-D out_in weight is
 * a 2-D one with the heads' rows below each other: one product. */
static void add_pieces(struct projection *p, const struct weight *w, const attn_tensor *bias,
                       size_t column) {
    const size_t count = w->per_head && !p->out_in ? w->heads : 1;
    const size_t cols = w->heads * w->columns / count;
    const size_t size = attn_dtype_size(w->tensor->dtype);
    for (size_t h = 0; h < count; h++) {
        p->pieces[p->count++] = (struct piece){
            .w = (const char *)w->tensor->data + h * w->inner * cols * size,
            .b = bias == NULL ? NULL : (const char *)bias->data + h * cols * size,
            .cols = cols,
            .column = column + h * cols,
        };
    }
}

static attn_status start_projection(struct projection *p, const char *name, const attn_tensor *x,
                                    attn_layout layout, size_t pieces, attn_error *error) {
    *p = (struct projection){.name = name, .x = x->data, .out_in = layout == ATTN_OUT_IN};
    p->inner = x->shape[x->rank - 1];
    p->rows = x->shape[x->rank - 2] * (x->rank == 3 ? x->shape[0] : 1); /* fits: checked by x */
    p->pieces = calloc(pieces, sizeof *p->pieces);
    if (p->pieces == NULL) {
        return no_memory(error);
    }
    if (p->rows > BLAS_MAX_DIM) {
        return too_large(error);
    }
    return ATTN_OK;
}

enum {
    WEIGHT_Q,
    WEIGHT_K,
    WEIGHT_V
};

struct named_projection {
    struct weight w[3];
    const attn_tensor *b[3];
    char w_name[3][32], b_name[3][32];
};

/* Reads the three weights and biases of one entry of call->projections. */
static attn_status read_projection(const attn_multihead *call, size_t index, attn_dtype dtype,
                                   struct named_projection *out, attn_error *error) {
    const attn_projection *p = &call->projections[index];
    const attn_tensor *w[3] = {p->w_q, p->w_k, p->w_v};
    const attn_tensor *c = call->context != NULL ? call->context : call->x;
    out->b[0] = p->b_q, out->b[1] = p->b_k, out->b[2] = p->b_v;
    for (int i = 0; i < 3; i++) {
        char prefix[24] = "";
        if (call->per_head) {
            snprintf(prefix, sizeof prefix, "heads/%zu/", index);
        }
        snprintf(out->w_name[i], sizeof out->w_name[i], "%sW_%c", prefix, "QKV"[i]);
        snprintf(out->b_name[i], sizeof out->b_name[i], "%sb_%c", prefix, "QKV"[i]);
        ATTN_TRY(read_weight(w[i], out->w_name[i], call->layout, call->per_head ? 2 : 3, dtype,
                             &out->w[i], error));
        const attn_tensor *x = i == WEIGHT_Q ? call->x : c;
        ATTN_TRY(check_inner(&out->w[i], x == call->x ? "X" : "context", x->shape[x->rank - 1],
                             call->layout, error));
        ATTN_TRY(check_bias(out->b[i], out->b_name[i], dtype, &out->w[i], error));
    }
    return ATTN_OK;
}

/* One set of weights for all heads: splits 2-D weights, or checks the heads of 3-D ones. */
static attn_status plan_shared(attn_plan *plan, const attn_multihead *call, const attn_options *o,
                               attn_error *error) {
    struct named_projection p;
    ATTN_TRY(read_projection(call, 0, plan->dtype, &p, error));
    const bool three = p.w[WEIGHT_Q].per_head;
    for (int i = WEIGHT_K; i <= WEIGHT_V; i++) {
        if (p.w[i].per_head != three) {
            return attn_fail(error, ATTN_SHAPE_MISMATCH, p.w_name[i],
                             "%s has rank %d but W_Q has rank %d", p.w_name[i], p.w[i].tensor->rank,
                             p.w[WEIGHT_Q].tensor->rank);
        }
    }
    plan->has_head_axis = three || o->heads != 0;
    plan->heads = three ? p.w[WEIGHT_Q].heads : (o->heads != 0 ? o->heads : 1);
    if (three && o->heads != 0 && o->heads != plan->heads) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "W_Q", "W_Q has %zu heads but heads is %zu",
                         plan->heads, o->heads);
    }
    if (three) {
        plan->kv_heads = p.w[WEIGHT_K].heads;
        ATTN_TRY(check_pair("W_V", p.w[WEIGHT_V].heads, "heads", "W_K", plan->kv_heads, error));
        if (o->kv_heads != 0) {
            ATTN_TRY(check_pair("W_K", plan->kv_heads, "heads", "kv_heads", o->kv_heads, error));
        }
        if (plan->heads % plan->kv_heads != 0) {
            return attn_fail(error, ATTN_SHAPE_MISMATCH, "W_K",
                             "W_Q has %zu heads, which is not a multiple of the %zu heads of W_K",
                             plan->heads, plan->kv_heads);
        }
    } else {
        ATTN_TRY(resolve_kv_heads(o, plan->heads, &plan->kv_heads, error));
        const char *kv_name = o->kv_heads != 0 ? "kv_heads" : "heads";
        ATTN_TRY(check_columns("W_Q", p.w[WEIGHT_Q].columns, plan->heads, "heads", error));
        ATTN_TRY(check_columns("W_K", p.w[WEIGHT_K].columns, plan->kv_heads, kv_name, error));
        ATTN_TRY(check_columns("W_V", p.w[WEIGHT_V].columns, plan->kv_heads, kv_name, error));
    }
    const size_t q_cols = p.w[WEIGHT_Q].heads * p.w[WEIGHT_Q].columns; /* fit: sizes of tensors */
    const size_t k_cols = p.w[WEIGHT_K].heads * p.w[WEIGHT_K].columns;
    const size_t v_cols = p.w[WEIGHT_V].heads * p.w[WEIGHT_V].columns;
    const size_t d = q_cols / plan->heads, d_v = v_cols / plan->kv_heads;
    if (k_cols / plan->kv_heads != d) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "W_K",
                         "W_K gives keys of %zu columns but W_Q gives queries of %zu",
                         k_cols / plan->kv_heads, d);
    }
    ATTN_TRY(new_heads(plan, error));
    plan->project_q.ld = q_cols;
    plan->project_k.ld = k_cols;
    plan->project_v.ld = v_cols;
    add_pieces(&plan->project_q, &p.w[WEIGHT_Q], p.b[WEIGHT_Q], 0);
    add_pieces(&plan->project_k, &p.w[WEIGHT_K], p.b[WEIGHT_K], 0);
    add_pieces(&plan->project_v, &p.w[WEIGHT_V], p.b[WEIGHT_V], 0);
    for (size_t h = 0; h < plan->heads; h++) {
        size_t kv = kv_head(plan, h);
        plan->head[h] = (struct head){
            .d = d, .d_v = d_v, .q = h * d, .k = kv * d, .v = kv * d_v, .out = h * d_v};
    }
    plan->out_ld = plan->heads * d_v;
    return ATTN_OK;
}

/* Weights of its own for each head, of any size. */
static attn_status plan_per_head(attn_plan *plan, const attn_multihead *call, const attn_options *o,
                                 attn_error *error) {
    if (o->heads != 0 || o->kv_heads != 0) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, o->heads != 0 ? "heads" : "kv_heads",
                         "heads with weights of their own cannot be split or grouped");
    }
    if (o->past_k != NULL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "past_K",
                         "past_K needs heads of one size, not heads with weights of their own");
    }
    plan->has_head_axis = true;
    plan->heads = plan->kv_heads = call->count;
    ATTN_TRY(new_heads(plan, error));
    for (size_t h = 0; h < plan->heads; h++) {
        struct named_projection p;
        ATTN_TRY(read_projection(call, h, plan->dtype, &p, error));
        const size_t d = p.w[WEIGHT_Q].columns, d_v = p.w[WEIGHT_V].columns;
        if (p.w[WEIGHT_K].columns != d) {
            return attn_fail(error, ATTN_SHAPE_MISMATCH, p.w_name[WEIGHT_K],
                             "%s gives keys of %zu columns but W_Q gives queries of %zu",
                             p.w_name[WEIGHT_K], p.w[WEIGHT_K].columns, d);
        }
        plan->head[h] = (struct head){.d = d,
                                      .d_v = d_v,
                                      .q = plan->project_q.ld,
                                      .k = plan->project_k.ld,
                                      .v = plan->project_v.ld,
                                      .out = plan->out_ld};
        add_pieces(&plan->project_q, &p.w[WEIGHT_Q], p.b[WEIGHT_Q], plan->project_q.ld);
        add_pieces(&plan->project_k, &p.w[WEIGHT_K], p.b[WEIGHT_K], plan->project_k.ld);
        add_pieces(&plan->project_v, &p.w[WEIGHT_V], p.b[WEIGHT_V], plan->project_v.ld);
        if (!size_add(plan->project_q.ld, d, &plan->project_q.ld) ||
            !size_add(plan->project_v.ld, d_v, &plan->project_v.ld)) {
            return too_large(error);
        }
        plan->project_k.ld = plan->project_q.ld;
        plan->out_ld = plan->project_v.ld;
    }
    return ATTN_OK;
}

static attn_status plan_out_projection(attn_plan *plan, const attn_multihead *call,
                                       attn_error *error) {
    if (call->w_o == NULL) {
        return call->b_o == NULL ? ATTN_OK
                                 : attn_fail(error, ATTN_INVALID_ARGUMENT, "b_O", "b_O needs W_O");
    }
    struct weight w;
    ATTN_TRY(read_weight(call->w_o, "W_O", call->layout, 2, plan->dtype, &w, error));
    if (w.inner != plan->out_ld) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "W_O",
                         "W_O has %zu %s but the heads together have %zu columns", w.inner,
                         call->layout == ATTN_IN_OUT ? "rows" : "columns (out_in)", plan->out_ld);
    }
    ATTN_TRY(check_bias(call->b_o, "b_O", plan->dtype, &w, error));
    struct projection *p = &plan->project_out;
    ATTN_TRY(start_projection(p, "output", call->x, call->layout, 1, error));
    p->inner = plan->out_ld;
    p->ld = w.columns;
    p->x = NULL;
    add_pieces(p, &w, call->b_o, 0);
    plan->has_out_projection = true;
    return ATTN_OK;
}

static attn_status check_inputs(const attn_multihead *call, attn_error *error) {
    const attn_tensor *x = call->x, *c = call->context;
    ATTN_TRY(check_matrix(x, "X", 2, 3, error));
    if (c != NULL) {
        ATTN_TRY(check_matrix(c, "context", 2, 3, error));
        ATTN_TRY(check_dtype(c, "context", x->dtype, error));
        if (c->rank != x->rank) {
            return attn_fail(error, ATTN_SHAPE_MISMATCH, "context",
                             "context has rank %d but X has rank %d", c->rank, x->rank);
        }
        if (c->rank == 3) {
            ATTN_TRY(check_pair("context", c->shape[0], "batch items", "X", x->shape[0], error));
        }
    }
    if (call->projections == NULL || call->count == 0 || (!call->per_head && call->count != 1)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "heads", "there are no weights");
    }
    if ((unsigned)call->layout > ATTN_OUT_IN) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "weight_layout",
                         "weight_layout is %d; it must be 0 or 1", (int)call->layout);
    }
    return ATTN_OK;
}

/* More heads than rows of a 3-D weight cannot be: bounds the number of pieces by what was given. */
static size_t piece_count(const attn_multihead *call, const attn_tensor *w) {
    return call->per_head ? call->count : (w != NULL && w->rank == 3 ? w->shape[0] : 1);
}

static attn_status plan_projections(attn_plan *plan, const attn_multihead *call,
                                    const attn_options *o, attn_error *error) {
    const attn_tensor *x = call->x, *c = call->context != NULL ? call->context : call->x;
    const attn_projection *first = &call->projections[0];
    ATTN_TRY(start_projection(&plan->project_q, "Q", x, call->layout, piece_count(call, first->w_q),
                              error));
    ATTN_TRY(start_projection(&plan->project_k, "K", c, call->layout, piece_count(call, first->w_k),
                              error));
    ATTN_TRY(start_projection(&plan->project_v, "V", c, call->layout, piece_count(call, first->w_v),
                              error));
    plan->dtype = x->dtype;
    plan->projected = true;
    plan->per_head = call->per_head;
    plan->has_batch_axis = x->rank == 3;
    plan->batch = x->rank == 3 ? x->shape[0] : 1;
    plan->n = x->shape[x->rank - 2];
    const size_t new_keys = c->shape[c->rank - 2];
    ATTN_TRY(call->per_head ? plan_per_head(plan, call, o, error)
                            : plan_shared(plan, call, o, error));
    if (plan->project_q.ld > BLAS_MAX_DIM || plan->project_k.ld > BLAS_MAX_DIM ||
        plan->project_v.ld > BLAS_MAX_DIM || plan->out_ld > BLAS_MAX_DIM) {
        return too_large(error);
    }
    ATTN_TRY(check_past(o, error));
    if (o->past_k != NULL) {
        const int rank = 2 + plan->has_head_axis + plan->has_batch_axis;
        ATTN_TRY(check_matrix(o->past_k, "past_K", rank, rank, error));
        ATTN_TRY(check_matrix(o->past_v, "past_V", rank, rank, error));
        ATTN_TRY(check_dtype(o->past_k, "past_K", plan->dtype, error));
        ATTN_TRY(check_dtype(o->past_v, "past_V", plan->dtype, error));
        struct dims k = {plan->batch, plan->kv_heads, new_keys, plan->head[0].d};
        struct dims v = {plan->batch, plan->kv_heads, new_keys, plan->head[0].d_v};
        ATTN_TRY(plan_past(plan, o, k, v, false, error));
    }
    plan->m = plan->past + new_keys;
    plan->q = (struct operand){.ld = plan->project_q.ld, .batch = plan->n * plan->project_q.ld};
    plan->k = (struct operand){.ld = plan->project_k.ld, .batch = new_keys * plan->project_k.ld};
    plan->v = (struct operand){.ld = plan->project_v.ld, .batch = new_keys * plan->project_v.ld};
    if (!size_mul(plan->n, plan->out_ld, &plan->out_batch)) {
        return too_large(error);
    }
    ATTN_TRY(plan_out_projection(plan, call, error));
    return finish_plan(plan, o, error);
}

attn_status attn_plan_multihead(attn_plan **plan, const attn_multihead *call,
                                const attn_options *options, attn_error *error) {
    static const attn_options defaults = {0};
    const attn_options *o = options != NULL ? options : &defaults;
    *plan = NULL;
    ATTN_TRY(check_options(o, error));
    ATTN_TRY(check_inputs(call, error));
    ATTN_TRY(new_plan(plan, error));
    attn_status status = plan_projections(*plan, call, o, error);
    if (status != ATTN_OK) {
        attn_plan_free(*plan);
        *plan = NULL;
    }
    return status;
}

/* --------------------------------------------------------------------------------- the results */

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

double attn_plan_cost(const attn_plan *plan) {
    return plan->cost;
}

size_t attn_plan_scratch(const attn_plan *plan) {
    return plan->scratch;
}
