/*
 * plan_multihead.c - plans attention with projections. Either all heads share one set of weights,
 * which is 3-D or is 2-D and split, or each head has weights of its own, which may differ in size.
 */
#include "softmax/plan_multihead.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/blas.h"
#include "base/check.h"
#include "base/status.h"
#include "base/tensor.h"
#include "plan_inputs.h"
#include "plan_matrices.h"
#include "plan_memory.h"
#include "softmax/plan_attention.h"
#include "softmax/schedule.h"

/* A weight, seen as a matrix (inner, columns) for each of `heads` heads, whatever its form. */
struct weight {
    const attn_tensor *tensor, *bias;
    char name[40], bias_name[40];
    bool stacked; /* 3-D */
    size_t heads; /* the heads of a 3-D weight; 1 for a 2-D weight */
    size_t inner, columns;
};

/* Checks the tensor of a weight, and reads its form. */
static attn_status read_weight(const attn_multihead *call, struct weight *w, int max_rank,
                               attn_error *error) {
    const attn_tensor *t = w->tensor;
    ATTN_TRY(check_matrix(t, w->name, 2, max_rank, error));
    ATTN_TRY(check_dtype(t, w->name, call->x->dtype, error));
    const size_t *end = t->shape + t->rank;
    w->stacked = t->rank == 3;
    w->heads = w->stacked ? end[-3] : 1;
    w->inner = call->layout == ATTN_OUT_IN ? end[-1] : end[-2];
    w->columns = call->layout == ATTN_OUT_IN ? end[-2] : end[-1];
    return ATTN_OK;
}

/* Returns the name of the axis of a weight that has `inner` elements. */
static const char *inner_name(attn_layout layout, size_t inner) {
    if (layout == ATTN_OUT_IN) {
        return inner == 1 ? "column (out_in)" : "columns (out_in)";
    }
    return inner == 1 ? "row" : "rows";
}

/* Checks that X W is possible: a weight has as many rows as X has columns. `has` is the verb of
 * `x_name`. */
static attn_status check_inner(const struct weight *w, const char *x_name, const char *has,
                               size_t columns, attn_layout layout, attn_error *error) {
    if (w->inner == columns) {
        return ATTN_OK;
    }
    attn_fail(error, ATTN_SHAPE_MISMATCH, w->name, "%s has %zu %s but %s %s %zu column%s", w->name,
              w->inner, inner_name(layout, w->inner), x_name, has, columns, plural_end(columns));
    if (error != NULL) {
        error->transposed = w->columns == columns && layout != ATTN_PREPACKED;
    }
    return ATTN_SHAPE_MISMATCH;
}

/* Checks a bias of heads * columns numbers: flat, or (heads, columns) beside 3-D weights. */
static attn_status check_bias(const struct weight *w, attn_error *error) {
    const attn_tensor *b = w->bias;
    if (b == NULL) {
        return ATTN_OK;
    }
    ATTN_TRY(check_matrix(b, w->bias_name, 1, 2, error));
    ATTN_TRY(check_dtype(b, w->bias_name, w->tensor->dtype, error));
    return b->rank == 2 && w->stacked
               ? check_shape(b, w->bias_name, 2, (size_t[]){w->heads, w->columns}, error)
               : check_shape(b, w->bias_name, 1, (size_t[]){w->heads * w->columns}, error);
}

/* Adds the matrices of one weight, and binds them. Their results are the next columns of each row.
 * An out_in weight in 3-D is one product, because it is also a 2-D weight, in which the rows of all
 * heads are below each other. */
static void add_matrices(attn_plan *plan, struct projection *p, const struct weight *w) {
    assert(w->tensor != NULL); /* read_weight() was called */
    const size_t count = w->stacked && !p->out_in ? w->heads : 1;
    const size_t cols = w->heads * w->columns / count; /* fits, as in the tensor */
    const size_t size = attn_dtype_size(w->tensor->dtype);
    for (size_t h = 0; h < count; h++) {
        const size_t weights = p->weights + 2 * p->count;
        plan->bindings.weights[weights] =
            (const char *)w->tensor->data + h * w->inner * cols * size;
        plan->bindings.weights[weights + 1] =
            w->bias == NULL ? NULL : (const char *)w->bias->data + h * cols * size;
        p->matrices[p->count++] =
            (struct weight_matrix){.cols = cols, .column = p->ld, .weights = weights};
        p->ld += cols;
    }
}

/* Starts a projection. Its matrices are those from number `first` on. */
static attn_status start_projection(attn_plan *plan, int which, const attn_tensor *x,
                                    attn_layout layout, size_t first, size_t matrices,
                                    attn_error *error) {
    static const char *const names[PROJECT_COUNT] = {"Q", "K", "V", "gate", "output"};
    struct projection *p = &plan->project[which];
    *p = (struct projection){
        .name = names[which], .out_in = layout == ATTN_OUT_IN, .weights = 2 * first};
    p->panel = layout == ATTN_PREPACKED ? plan_panel(x->dtype) : 0;
    p->inner = x->shape[x->rank - 1];
    p->item_rows = x->shape[x->rank - 2];
    p->rows = p->item_rows * (x->rank == 3 ? x->shape[0] : 1); /* fits: x was checked */
    p->matrices = plan_alloc(plan, matrices, sizeof *p->matrices);
    if (p->matrices == NULL) {
        return attn_no_memory(error);
    }
    if (p->rows > BLAS_MAX_DIM) {
        return attn_too_large(error);
    }
    return ATTN_OK;
}

/* Returns the input of a projection, and its name. */
static const attn_tensor *input_of(const attn_multihead *call, int which, const char **name) {
    const attn_tensor *const inputs[] = {call->x, call->context, call->value_context};
    static const char *const names[] = {"X", "context", "value_context"};
    while (which > 0 && inputs[which] == NULL) { /* V takes the input of K, and K that of Q */
        which--;
    }
    *name = names[which];
    return inputs[which];
}

/* Reads the three weights of one entry of call->projections, with their biases. */
static attn_status read_projection(const attn_multihead *call, size_t index,
                                   struct weight w[PROJECT_QKV], attn_error *error) {
    const attn_projection *p = &call->projections[index];
    const attn_tensor *const weights[] = {p->w_q, p->w_k, p->w_v};
    const attn_tensor *const biases[] = {p->b_q, p->b_k, p->b_v};
    const int max_rank = call->per_head || call->layout == ATTN_PREPACKED ? 2 : 3;
    char name[sizeof w->name] = "W_"; /* has room for any index */
    size_t length = 2;
    if (call->per_head) { /* once for all names of a head, because there may be 65536 heads */
        length = (size_t)snprintf(name, sizeof name, "heads/%zu/W_", index);
    }
    for (int i = 0; i < PROJECT_QKV; i++) {
        w[i] = (struct weight){.tensor = weights[i], .bias = biases[i]};
        name[length] = "QKV"[i];
        memcpy(w[i].name, name, sizeof name);
        memcpy(w[i].bias_name, name, sizeof name);
        w[i].bias_name[length - 2] = 'b';
        ATTN_TRY(read_weight(call, &w[i], max_rank, error));
        const char *x_name;
        const attn_tensor *x = input_of(call, i, &x_name);
        ATTN_TRY(check_inner(&w[i], x_name, "has", x->shape[x->rank - 1], call->layout, error));
        ATTN_TRY(check_bias(&w[i], error));
    }
    return ATTN_OK;
}

/* Plans one set of weights for all heads: splits 2-D weights, or checks the heads of 3-D ones. */
static attn_status plan_shared(attn_plan *plan, const attn_multihead *call, const attn_options *o,
                               attn_error *error) {
    struct weight w[PROJECT_QKV];
    ATTN_TRY(read_projection(call, 0, w, error));
    const struct weight *q = &w[PROJECT_Q], *k = &w[PROJECT_K], *v = &w[PROJECT_V];
    for (const struct weight *other = k; other <= v; other++) {
        if (other->stacked != q->stacked) {
            return attn_fail(error, ATTN_SHAPE_MISMATCH, other->name,
                             "%s has rank %d but W_Q has rank %d", other->name, other->tensor->rank,
                             q->tensor->rank);
        }
    }
    plan->form.has_head_axis = q->stacked || o->heads != 0;
    plan->heads = q->stacked ? q->heads : (o->heads != 0 ? o->heads : 1);
    if (q->stacked && o->heads != 0 && o->heads != plan->heads) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "W_Q", "W_Q has %zu head%s but heads is %zu",
                         plan->heads, plural_end(plan->heads), o->heads);
    }
    if (q->stacked) {
        plan->kv_heads = k->heads;
        ATTN_TRY(check_equal("W_V", v->heads, "head", "W_K", plan->kv_heads, error));
        if (o->kv_heads != 0) {
            ATTN_TRY(check_equal("W_K", plan->kv_heads, "head", "kv_heads", o->kv_heads, error));
        }
        if (plan->heads % plan->kv_heads != 0) {
            return attn_fail(error, ATTN_SHAPE_MISMATCH, "W_K",
                             "W_Q has %zu head%s, which is not a multiple of the %zu heads of W_K",
                             plan->heads, plural_end(plan->heads), plan->kv_heads);
        }
    } else {
        ATTN_TRY(plan_kv_heads(o, plan->heads, &plan->kv_heads, error));
        const char *kv_name = o->kv_heads != 0 ? "kv_heads" : "heads";
        ATTN_TRY(check_columns("W_Q", q->columns, plan->heads, "heads", error));
        ATTN_TRY(check_columns("W_K", k->columns, plan->kv_heads, kv_name, error));
        ATTN_TRY(check_columns("W_V", v->columns, plan->kv_heads, kv_name, error));
    }
    for (int i = 0; i < PROJECT_QKV; i++) {
        add_matrices(plan, &plan->project[i], &w[i]);
    }
    const size_t d = plan->project[PROJECT_Q].ld / plan->heads;
    const size_t k_columns = plan->project[PROJECT_K].ld / plan->kv_heads;
    const size_t d_v = plan->project[PROJECT_V].ld / plan->kv_heads;
    if (k_columns != d) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "W_K",
                         "W_K gives keys of %zu column%s but W_Q gives queries of %zu", k_columns,
                         plural_end(k_columns), d);
    }
    ATTN_TRY(plan_new_heads(plan, error));
    for (size_t h = 0; h < plan->heads; h++) {
        const size_t kv = h / (plan->heads / plan->kv_heads);
        plan->head[h] = (struct head){
            .d = d, .d_v = d_v, .q = h * d, .k = kv * d, .v = kv * d_v, .out = h * d_v};
    }
    plan->out.ld = plan->heads * d_v;
    return ATTN_OK;
}

/* Plans heads that have weights of their own. */
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
    plan->form.has_head_axis = true;
    plan->heads = plan->kv_heads = call->count;
    ATTN_TRY(plan_new_heads(plan, error));
    for (size_t h = 0; h < plan->heads; h++) {
        struct weight w[PROJECT_QKV];
        ATTN_TRY(read_projection(call, h, w, error));
        const struct weight *q = &w[PROJECT_Q], *k = &w[PROJECT_K], *v = &w[PROJECT_V];
        if (k->columns != q->columns) {
            return attn_fail(error, ATTN_SHAPE_MISMATCH, k->name,
                             "%s gives keys of %zu column%s but %s gives queries of %zu", k->name,
                             k->columns, plural_end(k->columns), q->name, q->columns);
        }
        plan->head[h] = (struct head){.d = q->columns,
                                      .d_v = v->columns,
                                      .q = plan->project[PROJECT_Q].ld,
                                      .k = plan->project[PROJECT_K].ld,
                                      .v = plan->project[PROJECT_V].ld,
                                      .out = plan->project[PROJECT_V].ld};
        for (int i = 0; i < PROJECT_QKV; i++) { /* fit: there are at most 65536 heads */
            add_matrices(plan, &plan->project[i], &w[i]);
        }
    }
    plan->out.ld = plan->project[PROJECT_V].ld;
    return ATTN_OK;
}

/* Plans W_O, which is matrix number `first`. */
static attn_status plan_out_projection(attn_plan *plan, const attn_multihead *call, size_t first,
                                       attn_error *error) {
    if (call->w_o == NULL) {
        return call->b_o == NULL ? ATTN_OK
                                 : attn_fail(error, ATTN_INVALID_ARGUMENT, "b_O", "b_O needs W_O");
    }
    struct weight w = {.tensor = call->w_o, .bias = call->b_o, .name = "W_O", .bias_name = "b_O"};
    ATTN_TRY(read_weight(call, &w, 2, error));
    ATTN_TRY(check_inner(&w, "the heads together", "have", plan->out.ld, call->layout, error));
    ATTN_TRY(check_bias(&w, error));
    struct projection *p = &plan->project[PROJECT_OUT];
    ATTN_TRY(start_projection(plan, PROJECT_OUT, call->x, call->layout, first, 1, error));
    p->inner = plan->out.ld;
    add_matrices(plan, p, &w);
    return ATTN_OK;
}

/* Plans W_G, whose matrices begin with number `first`. It makes a gate of X for each number that
 * the heads have, or one for each head. */
static attn_status plan_gate_projection(attn_plan *plan, const attn_multihead *call,
                                        const attn_options *o, size_t first, attn_error *error) {
    struct weight w = {.tensor = o->w_g, .bias = o->b_g, .name = "W_G", .bias_name = "b_G"};
    if (o->w_g == NULL) {
        return ATTN_OK; /* plan_gate() refuses b_G */
    }
    ATTN_TRY(read_weight(call, &w, call->per_head ? 2 : 3, error));
    ATTN_TRY(check_inner(&w, "X", "has", call->x->shape[call->x->rank - 1], call->layout, error));
    if (w.stacked) {
        ATTN_TRY(check_equal("W_G", w.heads, "head", "W_Q", plan->heads, error));
    }
    const size_t columns = w.heads * w.columns; /* fits, as in the tensor */
    if (columns != plan->out.ld && columns != plan->heads) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, "W_G",
                         "W_G makes %zu column%s, but a gate has %zu, as many as the outputs of "
                         "the heads, or %zu, one for each head",
                         columns, plural_end(columns), plan->out.ld, plan->heads);
    }
    ATTN_TRY(check_bias(&w, error));
    struct projection *p = &plan->project[PROJECT_GATE];
    ATTN_TRY(start_projection(plan, PROJECT_GATE, call->x, call->layout, first, w.heads, error));
    add_matrices(plan, p, &w);
    return ATTN_OK;
}

/* Checks a context, if it is given, against X. */
static attn_status check_context(const attn_tensor *c, const char *name, const attn_tensor *x,
                                 attn_error *error) {
    if (c == NULL) {
        return ATTN_OK;
    }
    ATTN_TRY(check_rows(c, name, 2, 3, 2, error));
    ATTN_TRY(check_dtype(c, name, x->dtype, error));
    if (c->rank != x->rank) {
        return attn_fail(error, ATTN_SHAPE_MISMATCH, name, "%s has rank %d but X has rank %d", name,
                         c->rank, x->rank);
    }
    return c->rank == 2 ? ATTN_OK
                        : check_equal(name, c->shape[0], "batch item", "X", x->shape[0], error);
}

static attn_status check_inputs(const attn_multihead *call, attn_error *error) {
    const char *context_name;
    const attn_tensor *context = input_of(call, PROJECT_K, &context_name);
    ATTN_TRY(check_rows(call->x, "X", 2, 3, 2, error));
    ATTN_TRY(check_context(call->context, "context", call->x, error));
    ATTN_TRY(check_context(call->value_context, "value_context", call->x, error));
    if (call->value_context != NULL) {
        ATTN_TRY(check_equal("value_context", call->value_context->shape[context->rank - 2], "row",
                             context_name, context->shape[context->rank - 2], error));
    }
    if (call->projections == NULL || call->count == 0 || (!call->per_head && call->count != 1)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "heads", "there are no weights");
    }
    if ((unsigned)call->layout > ATTN_PREPACKED) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "layout",
                         "layout is %d; it must be 0, 1 or 2", (int)call->layout);
    }
    if (call->layout == ATTN_PREPACKED && call->per_head) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "layout",
                         "heads with weights of their own cannot have prepacked weights");
    }
    return ATTN_OK;
}

/* Returns the most matrices that a projection can have: one for each head that has weights of its
 * own, or one for each head of a 3-D weight. */
static size_t matrix_count(const attn_multihead *call, const attn_tensor *w) {
    return call->per_head ? call->count : (w != NULL && w->rank == 3 ? w->shape[0] : 1);
}

/* Checks and binds a row of an extra key, which has a number for each of the `columns` columns of K
 * or V. */
static attn_status bind_extra(attn_plan *plan, const attn_tensor *row, int which, const char *name,
                              size_t columns, attn_error *error) {
    ATTN_TRY(check_matrix(row, name, 1, 2, error));
    ATTN_TRY(check_dtype(row, name, plan->dtype, error));
    plan_bind_input(plan, which, row->data);
    return row->rank == 1 || plan->form.per_head
               ? check_shape(row, name, 1, &columns, error)
               : check_shape(row, name, 2, (size_t[]){plan->kv_heads, columns / plan->kv_heads},
                             error);
}

/* Plans the extra keys, whose rows follow those of each batch item in K and V. */
static attn_status plan_extra(attn_plan *plan, const attn_multihead *call, const attn_options *o,
                              attn_error *error) {
    plan->extra.count = (size_t)(call->bias_k != NULL) + (call->zero_key ? 1 : 0);
    if ((call->bias_k == NULL) != (call->bias_v == NULL)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, call->bias_k == NULL ? "bias_V" : "bias_K",
                         "bias_K and bias_V must be given together");
    }
    if (call->bias_k != NULL) {
        ATTN_TRY(bind_extra(plan, call->bias_k, INPUT_BIAS_K, "bias_K", plan->project[PROJECT_K].ld,
                            error));
        ATTN_TRY(bind_extra(plan, call->bias_v, INPUT_BIAS_V, "bias_V", plan->project[PROJECT_V].ld,
                            error));
    }
    if (plan->extra.count > 0 && ((o->flags & ATTN_FLAG_ALIBI) != 0 || o->alibi_slopes != NULL)) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "alibi",
                         "alibi needs the position of each key, but the key of %s has none",
                         plan_has(plan, INPUT_BIAS_K) ? "bias_K" : "zero_key");
    }
    if (plan->extra.count > 0 && o->decay != NULL) {
        return attn_fail(error, ATTN_INVALID_ARGUMENT, "decay",
                         "decay needs the position of each key, but the key of %s has none",
                         plan_has(plan, INPUT_BIAS_K) ? "bias_K" : "zero_key");
    }
    plan->project[PROJECT_K].gap = plan->project[PROJECT_V].gap = plan->extra.count;
    plan->m += plan->extra.count;
    return ATTN_OK;
}

/* Returns the operand that a projection makes. */
static struct operand projected_operand(const attn_plan *plan, const struct projection *p,
                                        size_t heads) {
    const size_t rows = p->item_rows + p->gap;
    const size_t item = rows * p->ld; /* fits, because BLAS can address both sizes */
    return (struct operand){.items = plan->batch,
                            .heads = heads,
                            .ld = p->ld,
                            .batch = item,
                            .numbers = plan->batch * item};
}

static attn_status plan_projections(attn_plan *plan, const attn_multihead *call,
                                    const attn_options *o, attn_error *error) {
    const char *ignored;
    const attn_tensor *x = call->x, *c = input_of(call, PROJECT_K, &ignored);
    const attn_projection *first = &call->projections[0];
    const attn_tensor *const w[] = {first->w_q, first->w_k, first->w_v};
    size_t matrices = 0;
    plan->form.per_head = call->per_head;
    plan->call = *call;
    for (int i = 0; i < PROJECT_QKV; i++) {
        ATTN_TRY(plan_check_heads(plan, matrix_count(call, w[i]), error));
    }
    for (int i = 0; i < PROJECT_QKV; i++) {
        const attn_tensor *in = input_of(call, i, &ignored);
        const size_t count = matrix_count(call, w[i]);
        ATTN_TRY(start_projection(plan, i, in, call->layout, matrices, count, error));
        plan_bind_input(plan, INPUT_X + i, in->data);
        matrices += count;
    }
    const size_t gates = o->w_g != NULL && o->w_g->rank == 3 ? o->w_g->shape[0] : 1;
    ATTN_TRY(plan_check_heads(plan, gates, error));
    ATTN_TRY(plan_new_weights(plan, 2 * (matrices + 1 + gates), error));
    plan->dtype = x->dtype;
    plan->form.projected = true;
    plan->form.axis_count = x->rank == 3;
    plan->batch = plan->form.axes[0] = x->rank == 3 ? x->shape[0] : 1;
    plan->n = x->shape[x->rank - 2];
    const size_t new_keys = c->shape[c->rank - 2];
    ATTN_TRY(call->per_head ? plan_per_head(plan, call, o, error)
                            : plan_shared(plan, call, o, error));
    if (plan->project[PROJECT_Q].ld > BLAS_MAX_DIM || plan->project[PROJECT_K].ld > BLAS_MAX_DIM ||
        plan->project[PROJECT_V].ld > BLAS_MAX_DIM) {
        return attn_too_large(error);
    }
    ATTN_TRY(plan_check_past(o, error));
    if (o->past_k != NULL) {
        const int last = 2 + plan->form.has_head_axis, rank = last + plan->form.axis_count;
        ATTN_TRY(check_rows(o->past_k, "past_K", rank, rank, last, error));
        ATTN_TRY(check_rows(o->past_v, "past_V", rank, rank, last, error));
        ATTN_TRY(check_dtype(o->past_k, "past_K", plan->dtype, error));
        ATTN_TRY(check_dtype(o->past_v, "past_V", plan->dtype, error));
        struct dims k = {plan->batch, plan->kv_heads, new_keys, plan->head[0].d};
        struct dims v = {plan->batch, plan->kv_heads, new_keys, plan->head[0].d_v};
        ATTN_TRY(plan_past(plan, o, k, v, false, error));
    }
    plan->form.new_keys = new_keys;
    plan->m = plan->form.past + new_keys;
    ATTN_TRY(plan_extra(plan, call, o, error));
    plan->in.q = projected_operand(plan, &plan->project[PROJECT_Q], plan->heads);
    plan->in.k = projected_operand(plan, &plan->project[PROJECT_K], plan->kv_heads);
    plan->in.v = projected_operand(plan, &plan->project[PROJECT_V], plan->kv_heads);
    if (!size_mul(plan->n, plan->out.ld, &plan->out.batch)) {
        return attn_too_large(error);
    }
    ATTN_TRY(plan_out_projection(plan, call, matrices, error));
    ATTN_TRY(plan_gate_projection(plan, call, o, matrices + 1, error));
    return plan_finish(plan, o, error);
}

attn_status plan_multihead(attn_plan **plan, const attn_multihead *call, const attn_options *o,
                           attn_error *error) {
    *plan = NULL;
    ATTN_TRY(check_options(o, error));
    ATTN_TRY(check_lacks(o, CHECK_PROJECTIONS, error));
    ATTN_TRY(check_inputs(call, error));
    ATTN_TRY(plan_new(plan, error));
    return plan_or_free(plan, plan_projections(*plan, call, o, error));
}
