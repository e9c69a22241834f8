/*
 * multihead.c - POST /self-attention and /multi-head-attention: X, and a context if there is one,
 * go through W_Q, W_K and W_V, then through attention for each head, then through W_O. All heads
 * share one set of weights, or a list gives each head weights with sizes of their own.
 */
#include "api/call/call.h"
#include "api/call/fields.h"
#include "api/request.h"

#include <string.h>

/* Reads the weights and biases of one object: the request itself, or one head of its list. */
static bool read_projection(const struct fields *fields, struct codec_document *document,
                            const struct codec_value *object, struct call_weights *weights,
                            attn_projection *p, struct codec_error *error) {
    if (!fields_read_weights(fields, document, weights, p, error)) {
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

/* Makes room for the projections of a call and for their weights, which *weights points to. Returns
 * NULL with the error set if there is no memory. */
static attn_projection *new_projections(struct call *call, struct account *account, size_t count,
                                        struct call_weights **weights, struct codec_error *error) {
    attn_projection *list = account_alloc(account, count * sizeof *list);
    *weights = account_alloc(account, count * sizeof **weights);
    if (list == NULL || *weights == NULL) {
        codec_no_memory(error);
        return NULL;
    }
    memset(list, 0, count * sizeof *list);
    memset(*weights, 0, count * sizeof **weights);
    call->multihead.projections = list;
    call->multihead.count = count;
    call->weights = *weights;
    return list;
}

/* Reads "heads": [{"W_Q", "W_K", "W_V"}, ...]. */
static bool read_head_list(struct call *call, struct api_request *request,
                           const struct codec_value *heads, struct codec_error *error) {
    struct codec_document *document = request->body;
    const size_t count = codec_size(heads);
    struct call_weights *weights;
    const struct codec_value *other = fields_first(&request->fields, FIELDS_WEIGHTS);
    if (count == 0) {
        return codec_fail(document, heads, error, "heads is an empty array");
    }
    if (other != NULL) {
        return codec_fail(document, other, error,
                          "%s is given, but the heads have weights of their own",
                          codec_name(other));
    }
    attn_projection *list = new_projections(call, &request->account, count, &weights, error);
    if (list == NULL) {
        return false;
    }
    const struct codec_value *head = codec_at(heads, 0);
    for (size_t i = 0; i < count; i++, head = codec_next(head)) {
        struct fields fields;
        fields_find(&fields, head, FIELDS_AT_HEAD);
        if (!fields_check(&fields, document, head, error) ||
            !read_projection(&fields, document, head, &weights[i], &list[i], error)) {
            return false;
        }
    }
    return true;
}

static bool read_heads(struct call *call, struct api_request *request, struct codec_error *error) {
    const struct codec_value *heads = fields_get(&request->fields, "heads");
    struct call_weights *weights;
    if (heads != NULL && codec_kind_of(heads) == CODEC_ARRAY) {
        call->multihead.per_head = true;
        return read_head_list(call, request, heads, error);
    }
    if (heads != NULL && codec_kind_of(heads) != CODEC_NUMBER) {
        return codec_refuse(request->body, heads,
                            "a whole number, or an array of objects with W_Q, W_K and W_V", error);
    }
    if (heads != NULL && !field_count(request->body, heads, &call->options.heads, error)) {
        return false;
    }
    attn_projection *one = new_projections(call, &request->account, 1, &weights, error);
    return one != NULL && read_projection(&request->fields, request->body,
                                          codec_root(request->body), weights, one, error);
}

static bool multihead_read(struct call *call, struct api_request *request,
                           struct codec_error *error) {
    if (fields_get(&request->fields, "X") == NULL) {
        return codec_fail(request->body, NULL, error, "X is missing");
    }
    return fields_read_inputs(request, call, error) && read_heads(call, request, error) &&
           fields_read_options(request, call, error);
}

struct api_work *api_multihead(struct api_request *request) {
    return call_handle(request, multihead_read, call_plan_multihead);
}
