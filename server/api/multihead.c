/*
 * multihead.c - POST /self-attention and /multi-head-attention: X (and a context) through W_Q,
 * W_K, W_V, attention per head, and W_O. One set of weights for all heads, or a list of heads of
 * any size.
 */
#include "api/answer.h"
#include "api/call.h"
#include "api/reply.h"

#include <string.h>

static const char *const keys[] = {
    "X",   "context", "W_Q", "W_K",           "W_V",     "W_O",         "b_Q",
    "b_K", "b_V",     "b_O", "weight_layout", CALL_KEYS, CALL_WORD_KEYS};
static const char *const head_keys[] = {"W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V"};

struct weights {
    attn_tensor w_q, w_k, w_v, b_q, b_k, b_v;
};

struct inputs {
    attn_multihead call;
    attn_tensor x, context, w_o, b_o;
    attn_projection *projections; /* owned */
    struct weights *weights;      /* owned */
    struct account *account;      /* what counts these two */
};

/* The weights and biases of one object: the request itself, or one of its heads. */
static bool read_weights(const struct codec_document *document, const struct codec_value *object,
                         int max_rank, struct weights *w, attn_projection *p,
                         struct codec_error *error) {
    if (!call_matrix(document, object, "W_Q", 2, max_rank, &w->w_q, &p->w_q, error) ||
        !call_matrix(document, object, "W_K", 2, max_rank, &w->w_k, &p->w_k, error) ||
        !call_matrix(document, object, "W_V", 2, max_rank, &w->w_v, &p->w_v, error) ||
        !call_matrix(document, object, "b_Q", 1, 2, &w->b_q, &p->b_q, error) ||
        !call_matrix(document, object, "b_K", 1, 2, &w->b_k, &p->b_k, error) ||
        !call_matrix(document, object, "b_V", 1, 2, &w->b_v, &p->b_v, error)) {
        return false;
    }
    const char *missing = p->w_q == NULL   ? "W_Q"
                          : p->w_k == NULL ? "W_K"
                          : p->w_v == NULL ? "W_V"
                                           : NULL;
    if (missing != NULL) {
        return codec_fail(document, object, error,
                          "%s is missing: W_Q, W_K and W_V belong together", missing);
    }
    return true;
}

static bool allocate(struct inputs *in, size_t count, struct codec_error *error) {
    in->call.count = count;
    in->projections = account_alloc(in->account, count * sizeof *in->projections);
    in->weights = account_alloc(in->account, count * sizeof *in->weights);
    in->call.projections = in->projections;
    if (in->projections == NULL || in->weights == NULL) {
        return codec_no_memory(error);
    }
    memset(in->projections, 0, count * sizeof *in->projections);
    memset(in->weights, 0, count * sizeof *in->weights);
    return true;
}

static void free_inputs(struct inputs *in) {
    account_free(in->account, in->projections, in->call.count * sizeof *in->projections);
    account_free(in->account, in->weights, in->call.count * sizeof *in->weights);
}

/* heads: [{"W_Q", "W_K", "W_V"}, ...] */
static bool read_head_list(struct inputs *in, const struct codec_document *document,
                           const struct codec_value *heads, struct codec_error *error) {
    const size_t count = codec_size(heads);
    const struct codec_value *root = codec_root(document);
    if (count == 0) {
        return codec_fail(document, heads, error, "heads is an empty array");
    }
    for (size_t i = 0; i < sizeof head_keys / sizeof *head_keys; i++) {
        const struct codec_value *other = codec_get(root, head_keys[i]);
        if (other != NULL) {
            return codec_fail(document, other, error,
                              "%s is given, but the heads have weights of their own", head_keys[i]);
        }
    }
    in->call.per_head = true;
    if (!allocate(in, count, error)) {
        return false;
    }
    const struct codec_value *head = codec_at(heads, 0);
    for (size_t i = 0; i < count; i++, head = codec_next(head)) {
        if (!call_check_keys(document, head, CALL_AT_HEAD, head_keys,
                             sizeof head_keys / sizeof *head_keys, error) ||
            !read_weights(document, head, 2, &in->weights[i], &in->projections[i], error)) {
            return false;
        }
    }
    return true;
}

static bool read_layout(struct inputs *in, const struct codec_document *document,
                        struct codec_error *error) {
    static const char *const layouts[] = {"in_out", "out_in"};
    const struct codec_value *value = codec_get(codec_root(document), "weight_layout");
    size_t choice = 0;
    if (value != NULL && !codec_as_choice(document, value, layouts, 2, &choice, error)) {
        return false;
    }
    in->call.layout = choice == 0 ? ATTN_IN_OUT : ATTN_OUT_IN;
    return true;
}

static bool read_inputs(struct inputs *in, struct call *call, const struct api_request *request,
                        struct codec_error *error) {
    const struct codec_document *document = request->body;
    const struct codec_value *root = codec_root(document), *x;
    const struct codec_value *heads = codec_get(root, "heads");
    const bool list = heads != NULL && codec_kind_of(heads) == CODEC_ARRAY;
    if (!call_x(request, &x, error)) {
        return false;
    }
    if (x == NULL) {
        return codec_fail(document, NULL, error, "X is missing");
    }
    in->call.x = &in->x;
    if (!codec_as_reals(document, x, 2, 3, &in->x, error) ||
        !call_matrix(document, root, "context", 2, 3, &in->context, &in->call.context, error) ||
        !call_matrix(document, root, "W_O", 2, 2, &in->w_o, &in->call.w_o, error) ||
        !call_matrix(document, root, "b_O", 1, 1, &in->b_o, &in->call.b_o, error) ||
        !read_layout(in, document, error)) {
        return false;
    }
    call_batch(call, &in->x);
    if (list) {
        return read_head_list(in, document, heads, error);
    }
    if (heads != NULL && codec_kind_of(heads) != CODEC_NUMBER) {
        return codec_refuse(document, heads,
                            "a whole number, or an array of objects with W_Q, W_K and W_V", error);
    }
    return call_count(document, "heads", &call->options.heads, error) && allocate(in, 1, error) &&
           read_weights(document, root, 3, in->weights, in->projections, error);
}

struct api_work *api_multihead(const struct api_request *request, struct http_response *response) {
    struct inputs in = {.account = request->account};
    struct codec_error codec_error = {0};
    attn_error error = {0};
    struct api_work *work = NULL;
    struct call *call = call_new(request, response);
    if (call == NULL) {
        return NULL;
    }
    if (!call_check_keys(request->body, codec_root(request->body), CALL_AT_PROJECTIONS, keys,
                         sizeof keys / sizeof *keys, &codec_error) ||
        !prepare_matrices(request, &codec_error) ||
        !read_inputs(&in, call, request, &codec_error) ||
        !call_read(call, request->body, true, &codec_error)) {
        reply_codec_error(request, response, &codec_error);
    } else if (attn_plan_multihead(&call->plan, &in.call, &call->options, &error) != ATTN_OK) {
        call_refuse(request, response, &error);
    } else {
        call->per_head = in.call.per_head;
        work = call_work(call, request, response);
    }
    free_inputs(&in);
    if (work == NULL) {
        call_free(call);
    }
    return work;
}
