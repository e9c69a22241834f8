/* softmax.c - POST /softmax: softmax of any array along one axis. */
#include "api/call.h"
#include "api/reply.h"

#include <stdlib.h>

enum {
    EXP_COST = 200 /* multiply-adds that take as long as one exp */
};

static const char *const keys[] = {"X", "axis", "dtype", "digits"};

static bool read_request(const struct codec_document *document, attn_tensor *x, int64_t *axis,
                         int *digits, struct codec_error *error) {
    const struct codec_value *root = codec_root(document);
    if (!codec_check_keys(document, root, keys, sizeof keys / sizeof *keys, NULL, 0, NULL, error)) {
        return false;
    }
    const struct codec_value *value = codec_get(root, "X"), *along = codec_get(root, "axis");
    if (value == NULL) {
        return codec_fail(document, NULL, error, "X is missing");
    }
    return codec_as_reals(document, value, 1, ATTN_MAX_RANK, x, error) &&
           (along == NULL ||
            codec_as_integer(document, along, -ATTN_MAX_RANK, ATTN_MAX_RANK, axis, error)) &&
           call_read_format(document, digits, error);
}

void api_softmax(const struct api_request *request, struct http_response *response) {
    struct codec_error codec_error = {0};
    attn_error error = {0};
    attn_tensor x = {0};
    struct reply_items list = {0};
    size_t count = 0, bytes = 0;
    int64_t axis = -1;
    int digits = 0;
    if (!read_request(request->body, &x, &axis, &digits, &codec_error)) {
        reply_codec_error(request->http, response, &codec_error);
        return;
    }
    attn_tensor_count(&x, &count);
    attn_tensor_bytes(&x, &bytes);
    if (!call_fits(request, response, (double)count * EXP_COST,
                   (double)bytes + (double)codec_text_bytes(&x, digits))) {
        return;
    }
    void *out = malloc(bytes);
    if (out == NULL) {
        reply_no_memory(request->http, response);
        return;
    }
    const double start = reply_clock_ms();
    const attn_status status = attn_softmax(&x, (int)axis, out, &error);
    response->timing[HTTP_TIMING_COMPUTE] = reply_clock_ms() - start;
    if (status != ATTN_OK) {
        reply_attn_error(request->http, response, &error);
    } else {
        x.data = out;
        reply_open(&list, CODEC_OP_OBJECT, NULL);
        reply_tensor(&list, "output", &x);
        reply_close(&list);
        reply_items(request->http, response, &list, digits);
    }
    free(out);
}
