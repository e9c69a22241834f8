/*
 * call.h - what every computing endpoint shares: the options of a call read from its body, and the
 * way from a plan to an answer.
 */
#ifndef API_CALL_H
#define API_CALL_H

#include <pthread.h>

#include "api/api.h"

/* Names in `return`: one for each result, top_k for both of its own. */
enum {
    CALL_MAX_RETURN = ATTN_RESULT_COUNT
};

/* One call of the library: its options, the tensors they point to, its plan. Everything is borrowed
 * from the body except what call_free frees. */
struct call {
    struct api_work work;            /* first */
    const struct codec_words *words; /* borrowed from the exchange; NULL if none stand for X */
    attn_options options;
    attn_tensor mask, bias, alibi_slopes, sink, past_k, past_v;
    struct account *account; /* borrowed: what counts `lengths` */
    size_t batch;            /* no call has more batch items; 0 = no number of them is known */
    size_t *lengths;         /* owned */
    double scalar;           /* of a sink that is one number */
    int digits;
    bool per_head; /* each head has weights of its own: Q, K, V come in parts */
    size_t returned[CALL_MAX_RETURN], return_count; /* indices into call_results, in order */
    attn_plan *plan;                                /* owned */
    char *block;                                    /* owned: all results */
    pthread_mutex_t mutex;                          /* of the error */
    size_t failed;                                  /* task of which `error` tells */
    attn_error error;
};

/* Every key that call_read knows, for tables of known keys. */
#define CALL_KEYS                                                                                  \
    "mask", "bias", "causal", "window", "scale", "softcap", "alibi", "sink", "lengths", "past_K",  \
        "past_V", "normalization", "heads", "kv_heads", "dtype", "return", "top_k",                \
        "mean_over_heads", "digits", "timeout", "random"

/* Those that put words in place of X. */
#define CALL_WORD_KEYS "text", "tokens", "embedding", "embedding_dim"

/* The objects whose keys are checked, as bits. */
enum {
    CALL_AT_ATTENTION = 1,
    CALL_AT_PROJECTIONS = 2,
    CALL_AT_HEAD = 4, /* of a list of heads */
    CALL_AT_SOFTMAX = 8,
    CALL_AT_EMBEDDINGS = 16,
    CALL_AT_ATTENTIONS = CALL_AT_ATTENTION | CALL_AT_PROJECTIONS
};

/* codec_check_keys() for such an object. Its hints also know the names of other programs and the
 * keys of other endpoints. */
bool call_check_keys(const struct codec_document *document, const struct codec_value *object,
                     unsigned here, const char *const *names, size_t count,
                     struct codec_error *error);

/* Reads all options of a call but `heads`, which differs between endpoints. `projected` says
 * whether Q, K, V can be returned. */
bool call_read(struct call *call, struct codec_document *document, bool projected,
               struct codec_error *error);

/* The member `name` as a matrix of the call's dtype; absent leaves *out alone and *present NULL. */
bool call_matrix(const struct codec_document *document, const struct codec_value *object,
                 const char *name, int min_rank, int max_rank, attn_tensor *out,
                 const attn_tensor **present, struct codec_error *error);

/* Notes how many batch items there are at most, by the shape of Q or X: call_read() refuses longer
 * lists of lengths. */
void call_batch(struct call *call, const attn_tensor *first);

/* X, or what stands in its place; NULL if neither is given. False if words cannot stand there. */
bool call_x(const struct api_request *request, const struct codec_value **x,
            struct codec_error *error);

/* Tells that the library refuses the call; what it says of X is said of the words that stand in its
 * place. */
void call_refuse(const struct api_request *request, struct http_response *response,
                 attn_error *error);

/* A whole number >= 1 under `name`; absent leaves *out alone. */
bool call_count(const struct codec_document *document, const char *name, size_t *out,
                struct codec_error *error);

/* Reads dtype, digits and timeout alone; for endpoints without the other options. */
bool call_read_common(const struct codec_document *document, int *digits, double *seconds,
                      struct codec_error *error);

/* NULL after filling `response` if there is no memory. */
struct call *call_new(const struct api_request *request, struct http_response *response);

/* The work of a call that has its plan; NULL after filling `response` if it is over the limits. */
struct api_work *call_work(struct call *call, const struct api_request *request,
                           struct http_response *response);

void call_free(struct call *call);

#endif
