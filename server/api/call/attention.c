/* attention.c - POST /attention and /linear-attention: attention over given Q, K, V, or over X or
 * words for all three, with softmax or with a state. */
#include "api/call/call.h"
#include "api/call/fields.h"
#include "api/request.h"

/* Checks that the request gives Q, K and V, or X alone. */
static bool attention_check(struct api_request *request, struct codec_error *error) {
    static const char *const names[] = {"Q", "K", "V"};
    const struct codec_value *x = fields_get(&request->fields, "X");
    for (int i = 0; i < 3; i++) {
        const bool given = fields_get(&request->fields, names[i]) != NULL;
        if (x != NULL && given) {
            return codec_fail(request->body, x, error,
                              "X stands for Q, K and V, but %s is given too", names[i]);
        }
        if (x == NULL && !given) {
            return codec_fail(request->body, NULL, error,
                              "%s is missing: give Q, K and V, or X alone, or text", names[i]);
        }
    }
    return true;
}

static bool attention_read(struct call *call, struct api_request *request,
                           struct codec_error *error) {
    return attention_check(request, error) && fields_read_inputs(request, call, error) &&
           fields_read_options(request, call, error);
}

static attn_status attention_plan(struct call *call, attn_error *error) {
    const attn_tensor *x = call->multihead.x;
    return x != NULL
               ? attn_plan_attention(&call->plan, x, x, x, &call->options, error)
               : attn_plan_attention(&call->plan, call->q, call->k, call->v, &call->options, error);
}

static attn_status linear_plan(struct call *call, attn_error *error) {
    const attn_tensor *x = call->multihead.x;
    attn_linear *linear = &call->linear;
    linear->q = x != NULL ? x : call->q;
    linear->k = x != NULL ? x : call->k;
    linear->v = x != NULL ? x : call->v;
    return attn_plan_linear(&call->plan, linear, &call->options, error);
}

struct api_work *api_attention(struct api_request *request) {
    return call_handle(request, attention_read, attention_plan);
}

struct api_work *api_linear_attention(struct api_request *request) {
    return call_handle(request, attention_read, linear_plan);
}
