/* softmax.c - POST /softmax: softmax of an array of any rank along one axis. */
#include "api/call/call.h"
#include "api/call/fields.h"
#include "api/request.h"

static bool softmax_read(struct call *call, struct api_request *request,
                         struct codec_error *error) {
    call->return_count = 1; /* the output */
    call->axis = -1;
    if (fields_get(&request->fields, "X") == NULL) {
        return codec_fail(request->body, NULL, error, "X is missing");
    }
    return fields_read_inputs(request, call, error) && fields_read_options(request, call, error);
}

static attn_status softmax_plan(struct call *call, attn_error *error) {
    return attn_plan_softmax(&call->plan, call->multihead.x, call->axis, error);
}

struct api_work *api_softmax(struct api_request *request) {
    return call_handle(request, softmax_read, softmax_plan);
}
