/*
 * multihead.c - POST /self-attention and /multi-head-attention: X, and a context if there is one,
 * go through W_Q, W_K and W_V, then through attention for each head, then through W_O. All heads
 * share one set of weights, or a list gives each head weights with sizes of their own.
 */
#include "api/call.h"
#include "api/fields.h"
#include "api/reply.h"

#include <string.h>

/* The projections of a call, which its plan copies. */
struct projections {
    attn_projection *projections; /* `count` of them */
    struct call_weights *weights; /* `count` of them */
    size_t count;
};

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

static bool allocate(struct projections *p, struct account *account, size_t count,
                     struct codec_error *error) {
    p->count = count;
    p->projections = account_alloc(account, count * sizeof *p->projections);
    p->weights = account_alloc(account, count * sizeof *p->weights);
    if (p->projections == NULL || p->weights == NULL) {
        return codec_no_memory(error);
    }
    memset(p->projections, 0, count * sizeof *p->projections);
    memset(p->weights, 0, count * sizeof *p->weights);
    return true;
}

/* Reads "heads": [{"W_Q", "W_K", "W_V"}, ...]. */
static bool read_head_list(struct projections *p, const struct api_request *request,
                           const struct codec_value *heads, struct codec_error *error) {
    struct codec_document *document = request->body;
    const size_t count = codec_size(heads);
    const struct codec_value *other = fields_first(request->fields, FIELDS_WEIGHTS);
    if (count == 0) {
        return codec_fail(document, heads, error, "heads is an empty array");
    }
    if (other != NULL) {
        return codec_fail(document, other, error,
                          "%s is given, but the heads have weights of their own",
                          codec_name(other));
    }
    if (!allocate(p, request->account, count, error)) {
        return false;
    }
    const struct codec_value *head = codec_at(heads, 0);
    for (size_t i = 0; i < count; i++, head = codec_next(head)) {
        struct fields fields;
        fields_find(&fields, head, FIELDS_AT_HEAD);
        if (!fields_check(&fields, document, head, error) ||
            !read_projection(&fields, document, head, &p->weights[i], &p->projections[i], error)) {
            return false;
        }
    }
    return true;
}

static bool read_heads(struct projections *p, struct call *call, const struct api_request *request,
                       struct codec_error *error) {
    const struct codec_value *heads = fields_get(request->fields, "heads");
    if (heads != NULL && codec_kind_of(heads) == CODEC_ARRAY) {
        call->multihead.per_head = true;
        return read_head_list(p, request, heads, error);
    }
    if (heads != NULL && codec_kind_of(heads) != CODEC_NUMBER) {
        return codec_refuse(request->body, heads,
                            "a whole number, or an array of objects with W_Q, W_K and W_V", error);
    }
    return (heads == NULL || field_count(request->body, heads, &call->options.heads, error)) &&
           allocate(p, request->account, 1, error) &&
           read_projection(request->fields, request->body, codec_root(request->body), p->weights,
                           p->projections, error);
}

static bool multihead_read(struct projections *p, struct call *call,
                           const struct api_request *request, struct codec_error *error) {
    if (fields_get(request->fields, "X") == NULL) {
        return codec_fail(request->body, NULL, error, "X is missing");
    }
    return fields_read_inputs(request, call, error) && read_heads(p, call, request, error) &&
           fields_read_options(request, call, error);
}

struct api_work *api_multihead(const struct api_request *request, struct http_response *response) {
    struct projections p = {0};
    struct codec_error codec_error = {0};
    attn_error error = {0};
    struct api_work *work = NULL;
    struct call *call = call_new(request, response, NULL);
    if (call == NULL) {
        return NULL;
    }
    const bool good = multihead_read(&p, call, request, &codec_error);
    call->multihead.projections = p.projections;
    call->multihead.count = p.count;
    if (!good) {
        reply_codec_error(request, response, &codec_error);
    } else if (attn_plan_multihead(&call->plan, &call->multihead, &call->options, &error) !=
               ATTN_OK) {
        fields_refuse(request, response, &error);
    } else {
        work = call_work(call, request, response);
    }
    if (work == NULL) {
        call_end(call);
    }
    return work;
}
