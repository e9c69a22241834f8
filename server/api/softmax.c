/* softmax.c - POST /softmax: softmax of any array along one axis. */
#include "api/answer.h"
#include "api/call.h"
#include "api/reply.h"

static const char *const keys[] = {"X", "random", "axis", "dtype", "digits", "timeout"};

static bool read_request(struct call *call, const struct api_request *request, attn_tensor *x,
                         int64_t *axis, struct codec_error *error) {
    const struct codec_document *document = request->body;
    const struct codec_value *root = codec_root(document);
    if (!call_check_keys(document, root, CALL_AT_SOFTMAX, keys, sizeof keys / sizeof *keys,
                         error) ||
        !prepare_matrices(request, error)) {
        return false;
    }
    const struct codec_value *value = codec_get(root, "X"), *along = codec_get(root, "axis");
    if (value == NULL) {
        return codec_fail(document, NULL, error, "X is missing");
    }
    return codec_as_reals_or_null(document, value, 1, ATTN_MAX_RANK, x, error) &&
           (along == NULL ||
            codec_as_integer(document, along, -ATTN_MAX_RANK, ATTN_MAX_RANK, axis, error)) &&
           call_read_common(document, &call->digits, &call->work.seconds, error);
}

struct api_work *api_softmax(const struct api_request *request, struct http_response *response) {
    struct codec_error codec_error = {0};
    attn_error error = {0};
    attn_tensor x = {0};
    int64_t axis = -1;
    struct api_work *work = NULL;
    struct call *call = call_new(request, response);
    if (call == NULL) {
        return NULL;
    }
    if (!read_request(call, request, &x, &axis, &codec_error)) {
        reply_codec_error(request, response, &codec_error);
    } else if (attn_plan_softmax(&call->plan, &x, (int)axis, &error) != ATTN_OK) {
        reply_attn_error(request, response, &error);
    } else {
        call->returned[call->return_count++] = CALL_RESULT_OUTPUT;
        work = call_work(call, request, response);
    }
    if (work == NULL) {
        call_free(call);
    }
    return work;
}
