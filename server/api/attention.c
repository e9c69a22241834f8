/* attention.c - POST /attention: attention over given Q, K, V, or X or words for all three. */
#include "api/answer.h"
#include "api/call.h"
#include "api/reply.h"

static const char *const keys[] = {"Q", "K", "V", "X", CALL_KEYS, CALL_WORD_KEYS};

struct inputs {
    attn_tensor q, k, v;
    const attn_tensor *Q, *K, *V; /* X: all three point to q */
};

static bool read_inputs(struct inputs *in, struct call *call, const struct api_request *request,
                        struct codec_error *error) {
    const struct codec_document *document = request->body;
    const struct codec_value *root = codec_root(document), *x;
    static const char *const names[] = {"Q", "K", "V"};
    if (!call_x(request, &x, error)) {
        return false;
    }
    if (x != NULL) {
        for (int i = 0; i < 3; i++) {
            if (codec_get(root, names[i]) != NULL) {
                return codec_fail(document, x, error,
                                  "X stands for Q, K and V, but %s is given too", names[i]);
            }
        }
        in->Q = in->K = in->V = &in->q;
        if (!codec_as_reals(document, x, 2, 4, &in->q, error)) {
            return false;
        }
        call_batch(call, &in->q);
        return true;
    }
    for (int i = 0; i < 3; i++) {
        if (codec_get(root, names[i]) == NULL) {
            return codec_fail(document, NULL, error,
                              "%s is missing: give Q, K and V, or X alone, or text", names[i]);
        }
    }
    if (!call_matrix(document, root, "Q", 2, 4, &in->q, &in->Q, error) ||
        !call_matrix(document, root, "K", 2, 4, &in->k, &in->K, error) ||
        !call_matrix(document, root, "V", 2, 4, &in->v, &in->V, error)) {
        return false;
    }
    call_batch(call, &in->q);
    return true;
}

struct api_work *api_attention(const struct api_request *request, struct http_response *response) {
    struct inputs in = {0};
    struct codec_error codec_error = {0};
    attn_error error = {0};
    struct api_work *work = NULL;
    struct call *call = call_new(request, response);
    if (call == NULL) {
        return NULL;
    }
    if (!call_check_keys(request->body, codec_root(request->body), CALL_AT_ATTENTION, keys,
                         sizeof keys / sizeof *keys, &codec_error) ||
        !prepare_matrices(request, &codec_error) ||
        !read_inputs(&in, call, request, &codec_error) ||
        !call_read(call, request->body, false, &codec_error) ||
        !call_count(request->body, "heads", &call->options.heads, &codec_error)) {
        reply_codec_error(request, response, &codec_error);
    } else if (attn_plan_attention(&call->plan, in.Q, in.K, in.V, &call->options, &error) !=
               ATTN_OK) {
        call_refuse(request, response, &error);
    } else {
        work = call_work(call, request, response);
    }
    if (work == NULL) {
        call_free(call);
    }
    return work;
}
