/* plan_call.c - the public functions that plan a call of attention. */
#include "base/status.h"
#include "packed/plan_sequences.h"
#include "plan_memory.h"
#include "softmax/plan_attention.h"
#include "softmax/plan_half.h"
#include "softmax/plan_multihead.h"

static const attn_options defaults = {0};

attn_status attn_plan_attention(attn_plan **plan, const attn_tensor *q, const attn_tensor *k,
                                const attn_tensor *v, const attn_options *options,
                                attn_error *error) {
    const attn_tensor *const qkv[] = {q, k, v};
    const attn_options *o = options != NULL ? options : &defaults;
    if (o->sequences != NULL) {
        return plan_sequences(plan, qkv, o, error);
    }
    ATTN_TRY(plan_attention(plan, q, k, v, o, error));
    return plan_or_free(plan, plan_round_inputs(*plan, error));
}

attn_status attn_plan_multihead(attn_plan **plan, const attn_multihead *call,
                                const attn_options *options, attn_error *error) {
    ATTN_TRY(plan_multihead(plan, call, options != NULL ? options : &defaults, error));
    return plan_or_free(plan, plan_round_inputs(*plan, error));
}
