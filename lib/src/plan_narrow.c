/*
 * plan_narrow.c - plans a call with a compute_dtype: it finds the inputs of which a run makes
 * copies that are rounded to this type. engine/narrow.inc rounds them, and all that follows.
 */
#include "plan_build.h"

#include "narrow.h"
#include "status.h"
#include "tensor.h"

static const struct narrow_type types[] = {
    [ATTN_COMPUTE_FLOAT16] = {"float16", 13, 0x1p-14F, 0.5F, 65504},
    [ATTN_COMPUTE_BFLOAT16] = {"bfloat16", 16, 0, 0, 0x1.FEp127F},
};

enum {
    ALIGNED = ATTN_ALIGNMENT / sizeof(float)
};

attn_status narrow_fail(const struct narrow_type *type, const char *name, double number,
                        attn_error *error) {
    return attn_fail(error, ATTN_NOT_FINITE, name,
                     "%s holds %g, but the largest number of compute_dtype \"%s\" is %g", name,
                     number, type->name, (double)type->most);
}

/* Adds an input of `count` numbers, if it is given. One that is also the input before it shares the
 * copy of that. */
static void add_input(struct narrowing *n, const char *name, const void **place, size_t count) {
    if (*place == NULL) {
        return;
    }
    struct narrow_input *input = &n->inputs[n->count++];
    *input = (struct narrow_input){.place = place, .from = *place, .name = name, .count = count};
    if (n->count > 1 && input[-1].from == input->from && input[-1].count == count) {
        input->at = input[-1].at;
        return;
    }
    input->at = n->numbers;
    if (!size_add(n->numbers, ceil_div(count, ALIGNED) * ALIGNED, &n->numbers)) {
        n->numbers = SIZE_MAX; /* no memory holds so many */
    }
}

/* Adds the weights of a projection. */
static void add_weights(struct narrowing *n, struct projection *p, int which) {
    static const char *const w[] = {"W_Q", "W_K", "W_V", "W_O"};
    static const char *const b[] = {"b_Q", "b_K", "b_V", "b_O"};
    const size_t panel = p->prepacked ? plan_panel(ATTN_FLOAT32) : 1;
    for (size_t i = 0; i < p->count; i++) {
        struct piece *piece = &p->pieces[i];
        add_input(n, w[which], &piece->w, p->inner * ceil_div(piece->cols, panel) * panel);
        add_input(n, b[which], &piece->b, piece->cols);
    }
}

/* Adds the inputs that the engine reads. Those of one number for each head are rounded when they
 * are read. */
static attn_status add_inputs(attn_plan *plan, attn_error *error) {
    const attn_options *o = &plan->options;
    const attn_multihead *call = &plan->call;
    const bool same = plan->form.same, extra = plan->extra.count > 0;
    struct projection *p = plan->project;
    const struct {
        const char *name;
        const attn_tensor *tensor; /* NULL: it is not given, or it is the input before it */
        const void **place;
    } inputs[] = {
        {same ? "X" : "Q", plan->in.q.given, &plan->in.q.data},
        {"K", plan->in.k.given, &plan->in.k.data},
        {"V", plan->in.v.given, &plan->in.v.data},
        {"X", call->x, &p[PROJECT_Q].x},
        {"context", call->context, &p[PROJECT_K].x},
        {"value_context", call->value_context, &p[PROJECT_V].x},
        {"b_Q", o->b_q, &plan->in.q.bias},
        {"b_K", o->b_k, &plan->in.k.bias},
        {"b_V", o->b_v, &plan->in.v.bias},
        {"past_K", o->past_k, &plan->in.past_k.data},
        {"past_V", o->past_v, &plan->in.past_v.data},
        {"bias", o->bias, extra ? &plan->extra.given.bias.data : &plan->rules.bias.data},
        {"norm_Q", o->norm_q, &plan->norm_q.weights},
        {"norm_K", o->norm_k, &plan->norm_k.weights},
        {"rotary_cos", plan->rotary.given.cos, &plan->rotary.cos},
        {"rotary_sin", plan->rotary.given.sin, &plan->rotary.sin},
        {"bias_K", call->bias_k, &plan->extra.k},
        {"bias_V", call->bias_v, &plan->extra.v},
    };
    struct narrowing *n = &plan->narrow;
    const size_t others = sizeof inputs / sizeof *inputs;
    size_t most = others, count = 0;
    for (int i = 0; i < PROJECT_COUNT; i++) {
        most += 2 * p[i].count;
    }
    n->inputs = plan_alloc(plan, most, sizeof *n->inputs);
    if (n->inputs == NULL) {
        return attn_no_memory(error);
    }
    for (size_t i = 0; i < others; i++) {
        if (inputs[i].tensor != NULL) {
            attn_tensor_count(inputs[i].tensor, &count); /* fits: it was checked */
        }
        add_input(n, inputs[i].name, inputs[i].place, count);
    }
    for (int i = 0; i < PROJECT_COUNT; i++) {
        add_weights(n, &p[i], i);
    }
    return ATTN_OK;
}

attn_status plan_compute_dtype(attn_plan *plan, const attn_options *o, attn_error *error) {
    if (o->compute_dtype == ATTN_COMPUTE_AS_GIVEN) {
        return ATTN_OK;
    }
    plan->narrow.type = &types[o->compute_dtype];
    return plan->dtype == ATTN_FLOAT32
               ? ATTN_OK
               : attn_fail(
                     error, ATTN_INVALID_ARGUMENT, "compute_dtype",
                     "compute_dtype \"%s\" rounds float32 matrices, but the call is in float64",
                     plan->narrow.type->name);
}

attn_status plan_narrow(attn_plan *plan, attn_error *error) {
    struct narrowing *n = &plan->narrow;
    struct schedule *s = &plan->schedule;
    size_t bytes;
    if (n->type == NULL) {
        return ATTN_OK;
    }
    ATTN_TRY(add_inputs(plan, error));
    n->memory = s->workspace.bytes;
    if (!size_mul(n->numbers, sizeof(float), &bytes) ||
        !size_add(s->workspace.bytes, bytes, &s->workspace.bytes)) {
        return attn_too_large(error);
    }
    s->tasks[PHASE_NARROW] = ceil_div(n->numbers, COPY_NUMBERS);
    s->cost += cost_of_narrowing(plan);
    return ATTN_OK;
}
