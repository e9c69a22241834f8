/*
 * plan_wide.c - the gradients of a small float32 call are computed in double: a plan in float64,
 * the wide plan, takes copies of all inputs, and its results are rounded once. So they are as exact
 * as the other results, see engine/small.inc.
 */
#include <string.h>

#include "plan_build.h"
#include "status.h"
#include "tensor.h"

enum {
    OTHER_TENSORS = 32 /* the most inputs beside those of the projections */
};

/* The copies that are made while the wide plan is built. */
struct copies {
    attn_plan *plan;
    attn_tensor *tensors; /* as many as copies */
    bool complete;        /* there was memory for each of them */
};

/* Returns the copy of an input in float64, whose numbers each run fills. What is not in float32 is
 * returned as it is. */
static const attn_tensor *widened(struct copies *copies, const attn_tensor *input) {
    struct wide *wide = copies->plan->wide;
    size_t count = 0;
    if (input == NULL || input->dtype != ATTN_FLOAT32 || !copies->complete) {
        return input;
    }
    attn_tensor *copy = &copies->tensors[wide->count];
    struct wide_input *numbers = &wide->inputs[wide->count++];
    attn_tensor_count(input, &count); /* fits: the call was checked */
    *copy = *input;
    copy->dtype = ATTN_FLOAT64;
    *numbers =
        (struct wide_input){input->data, plan_alloc(copies->plan, count, sizeof(double)), count};
    copy->data = numbers->to;
    copies->complete = copy->data != NULL;
    return copy;
}

static void widen_options(struct copies *copies, attn_options *o, attn_rotary *rotary,
                          attn_upstream *upstream) {
    *upstream = *o->upstream;
    upstream->output = widened(copies, upstream->output);
    upstream->lse = widened(copies, upstream->lse);
    upstream->weights = widened(copies, upstream->weights);
    o->upstream = upstream;
    o->bias = widened(copies, o->bias);
    o->alibi_slopes = widened(copies, o->alibi_slopes);
    o->sink = widened(copies, o->sink);
    o->past_k = widened(copies, o->past_k);
    o->past_v = widened(copies, o->past_v);
    o->b_q = widened(copies, o->b_q);
    o->b_k = widened(copies, o->b_k);
    o->b_v = widened(copies, o->b_v);
    o->norm_q = widened(copies, o->norm_q);
    o->norm_k = widened(copies, o->norm_k);
    if (o->rotary != NULL) {
        *rotary = *o->rotary;
        rotary->positions = widened(copies, rotary->positions);
        rotary->cos = widened(copies, rotary->cos);
        rotary->sin = widened(copies, rotary->sin);
        o->rotary = rotary;
    }
}

static void widen_call(struct copies *copies, attn_multihead *call, attn_projection *projections) {
    call->x = widened(copies, call->x);
    call->context = widened(copies, call->context);
    call->value_context = widened(copies, call->value_context);
    call->w_o = widened(copies, call->w_o);
    call->b_o = widened(copies, call->b_o);
    call->bias_k = widened(copies, call->bias_k);
    call->bias_v = widened(copies, call->bias_v);
    for (size_t h = 0; h < call->count; h++) {
        const attn_projection *p = &call->projections[h];
        projections[h] = (attn_projection){
            .w_q = widened(copies, p->w_q),
            .w_k = widened(copies, p->w_k),
            .w_v = widened(copies, p->w_v),
            .b_q = widened(copies, p->b_q),
            .b_k = widened(copies, p->b_k),
            .b_v = widened(copies, p->b_v),
        };
    }
    call->projections = projections;
}

/* Makes the wide plan of copies of the inputs. */
static attn_status build_plan(attn_plan *plan, const attn_tensor *const qkv[3],
                              struct copies *copies, attn_projection *projections,
                              attn_error *error) {
    attn_options o = plan->options;
    attn_multihead call = plan->call;
    attn_rotary rotary;
    attn_upstream upstream;
    o.results = plan->results.wanted & EVERY_GRADIENT;
    widen_options(copies, &o, &rotary, &upstream);
    if (qkv == NULL) {
        widen_call(copies, &call, projections);
        return copies->complete ? plan_multihead(&plan->wide->plan, &call, &o, error)
                                : attn_no_memory(error);
    }
    const attn_tensor *q = widened(copies, qkv[0]);
    const attn_tensor *k = plan->form.same ? q : widened(copies, qkv[1]);
    const attn_tensor *v = plan->form.same ? q : widened(copies, qkv[2]);
    return copies->complete ? plan_attention(&plan->wide->plan, q, k, v, &o, error)
                            : attn_no_memory(error);
}

/* Gives the results of the wide plan a place. */
static attn_status bind_results(attn_plan *plan, attn_error *error) {
    attn_plan *wide = plan->wide->plan;
    void *memory = plan_alloc(plan, wide->results.bytes + ATTN_ALIGNMENT, 1);
    if (memory == NULL) {
        return attn_no_memory(error);
    }
    return attn_plan_bind_all(wide,
                              (char *)memory + ATTN_ALIGNMENT - (uintptr_t)memory % ATTN_ALIGNMENT);
}

attn_status plan_wide(attn_plan *plan, const attn_tensor *const qkv[3], attn_error *error) {
    if (!plan->form.widens) {
        return ATTN_OK;
    }
    const size_t most = OTHER_TENSORS + 6 * plan->call.count;
    struct copies copies = {
        .plan = plan, .tensors = plan_alloc(plan, most, sizeof(attn_tensor)), .complete = true};
    attn_projection *projections = plan_alloc(plan, plan->call.count, sizeof *projections);
    plan->wide = plan_alloc(plan, 1, sizeof *plan->wide + most * sizeof(struct wide_input));
    if (copies.tensors == NULL || projections == NULL || plan->wide == NULL) {
        return attn_no_memory(error);
    }
    ATTN_TRY(build_plan(plan, qkv, &copies, projections, error));
    ATTN_TRY(bind_results(plan, error));
    struct schedule *s = &plan->schedule;
    s->scratch.bytes = size_max(s->scratch.bytes, plan->wide->plan->schedule.scratch.bytes);
    s->cost += plan->wide->plan->schedule.cost;
    return ATTN_OK;
}
