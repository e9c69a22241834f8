/* softmax.c - POST /softmax: softmax of an array of any rank along one axis. */
#include "api/call.h"
#include "api/fields.h"
#include "api/reply.h"

static bool softmax_read(struct call *call, const struct api_request *request,
                         struct codec_error *error) {
    if (fields_get(request->fields, "X") == NULL) {
        return codec_fail(request->body, NULL, error, "X is missing");
    }
    return fields_read_inputs(request, call, error) &&
           fields_read_work(request, &call->work, error);
}

struct api_work *api_softmax(const struct api_request *request, struct http_response *response) {
    struct codec_error codec_error = {0};
    attn_error error = {0};
    struct api_work *work = NULL;
    struct call *call = call_new(request, response, NULL);
    if (call == NULL) {
        return NULL;
    }
    call->return_count = 1; /* the output */
    call->axis = -1;
    if (!softmax_read(call, request, &codec_error)) {
        reply_codec_error(request, response, &codec_error);
    } else if (attn_plan_softmax(&call->plan, call->multihead.x, call->axis, &error) != ATTN_OK) {
        fields_refuse(request, response, &error);
    } else {
        work = call_work(call, request, response);
    }
    if (work == NULL) {
        call_end(call);
    }
    return work;
}
