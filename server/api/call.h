/*
 * call.h - what every computing endpoint shares: the options of a call read from its body, and the
 * way from a plan to an answer.
 */
#ifndef API_CALL_H
#define API_CALL_H

#include "api/api.h"

/* Names in `return`: one for each result, top_k for both of its own. */
enum {
    CALL_MAX_RETURN = ATTN_RESULT_COUNT
};

/* The options of one call and the tensors they point to. Zero-initialise; everything is borrowed
 * from the body except `lengths`, which call_free frees. */
struct call {
    attn_options options;
    attn_tensor mask, bias, alibi_slopes, sink, past_k, past_v;
    size_t *lengths;
    double scalar; /* of a sink that is one number */
    int digits;
    bool per_head; /* each head has weights of its own: Q, K, V come in parts */
    size_t returned[CALL_MAX_RETURN], return_count; /* indices into call_results, in order */
};

/* Every key that call_read knows, for tables of known keys. */
#define CALL_KEYS                                                                                  \
    "mask", "bias", "causal", "window", "scale", "softcap", "alibi", "sink", "lengths", "past_K",  \
        "past_V", "normalization", "heads", "kv_heads", "dtype", "return", "top_k",                \
        "mean_over_heads", "digits"

/* Reads all options of a call but `heads`, which differs between endpoints. `projected` says
 * whether Q, K, V can be returned. */
bool call_read(struct call *call, struct codec_document *document, bool projected,
               struct codec_error *error);

/* The member `name` as a matrix of the call's dtype; absent leaves *out alone and *present NULL. */
bool call_matrix(const struct codec_document *document, const struct codec_value *object,
                 const char *name, int min_rank, int max_rank, attn_tensor *out,
                 const attn_tensor **present, struct codec_error *error);

/* A whole number >= 1 under `name`; absent leaves *out alone. */
bool call_count(const struct codec_document *document, const char *name, size_t *out,
                struct codec_error *error);

/* Reads dtype and digits alone; for endpoints without the other options. */
bool call_read_format(const struct codec_document *document, int *digits,
                      struct codec_error *error);

/* Takes the plan: refuses it if it is over the limits, else runs it and answers. */
void call_answer(const struct api_request *request, struct http_response *response,
                 const struct call *call, attn_plan *plan);

void call_free(struct call *call);

/* Is a call within the limits that takes `work` multiply-adds, and `bytes` beside its body's
 * matrices? If not, fills `response`. */
bool call_fits(const struct api_request *request, struct http_response *response, double work,
               double bytes);

#endif
