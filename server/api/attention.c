/* attention.c - POST /attention: attention over given Q, K, V, or over X or words for all three. */
#include "api/call.h"
#include "api/fields.h"
#include "api/reply.h"

/* Checks that the request gives Q, K and V, or X alone. */
static bool attention_check(const struct api_request *request, struct codec_error *error) {
    static const char *const names[] = {"Q", "K", "V"};
    const struct codec_value *x = fields_get(request->fields, "X");
    for (int i = 0; i < 3; i++) {
        const bool given = fields_get(request->fields, names[i]) != NULL;
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

static attn_status attention_plan(struct call *call, attn_error *error) {
    const attn_tensor *x = call->multihead.x;
    return x != NULL
               ? attn_plan_attention(&call->plan, x, x, x, &call->options, error)
               : attn_plan_attention(&call->plan, call->q, call->k, call->v, &call->options, error);
}

struct api_work *api_attention(const struct api_request *request, struct http_response *response) {
    struct codec_error codec_error = {0};
    attn_error error = {0};
    struct api_work *work = NULL;
    struct call *call = call_new(request, response, NULL);
    if (call == NULL) {
        return NULL;
    }
    if (!attention_check(request, &codec_error) ||
        !fields_read_inputs(request, call, &codec_error) ||
        !fields_read_options(request, call, &codec_error)) {
        reply_codec_error(request, response, &codec_error);
    } else if (attention_plan(call, &error) != ATTN_OK) {
        fields_refuse(request, response, &error);
    } else {
        work = call_work(call, request, response);
    }
    if (work == NULL) {
        call_end(call);
    }
    return work;
}
