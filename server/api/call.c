/* call.c - see call.h: reading the options of a call. answer.c is the way back. */
#include "api/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/reply.h"
#include "api/results.h"

enum {
    /* A longer list than this is refused before it is read, if no call has so many batch items. */
    LONG_LIST = 4096
};

bool call_matrix(const struct codec_document *document, const struct codec_value *object,
                 const char *name, int min_rank, int max_rank, attn_tensor *out,
                 const attn_tensor **present, struct codec_error *error) {
    const struct codec_value *value = codec_get(object, name);
    *present = NULL;
    if (value == NULL) {
        return true;
    }
    *present = out;
    return codec_as_reals(document, value, min_rank, max_rank, out, error);
}

void call_batch(struct call *call, const attn_tensor *first) {
    call->batch = first->rank > 2 ? first->shape[0] : 1;
}

bool call_x(const struct api_request *request, const struct codec_value **x,
            struct codec_error *error) {
    const struct prepare *prepare = request->prepare;
    const struct codec_value *root = codec_root(request->body);
    if (prepare->words != NULL && prepare->x == NULL) {
        const struct codec_value *text = codec_get(root, "text");
        return codec_fail(request->body, text != NULL ? text : codec_get(root, "tokens"), error,
                          "%s needs embedding or embedding_dim beside it",
                          text != NULL ? "text" : "tokens");
    }
    *x = prepare->x != NULL ? prepare->x : codec_get(root, "X");
    return true;
}

void call_refuse(const struct api_request *request, struct http_response *response,
                 attn_error *error) {
    const struct codec_value *words = request->prepare->x;
    if (words != NULL && strcmp(error->argument, "X") == 0) {
        snprintf(error->argument, sizeof error->argument, "%s", codec_name(words));
    }
    reply_attn_error(request, response, error);
}

bool call_count(const struct codec_document *document, const char *name, size_t *out,
                struct codec_error *error) {
    const struct codec_value *value = codec_get(codec_root(document), name);
    int64_t number;
    if (value == NULL) {
        return true;
    }
    if (!codec_as_integer(document, value, 1, INT64_C(1) << 53, &number, error)) {
        return false;
    }
    *out = (size_t)number;
    return true;
}

bool call_read_common(const struct codec_document *document, int *digits, double *seconds,
                      struct codec_error *error) {
    static const char *const dtypes[] = {"float32", "float64"};
    const struct codec_value *root = codec_root(document);
    const struct codec_value *dtype = codec_get(root, "dtype"), *value = codec_get(root, "digits");
    const struct codec_value *timeout = codec_get(root, "timeout");
    size_t choice;
    int64_t number = 0;
    if (dtype != NULL && !codec_as_choice(document, dtype, dtypes, 2, &choice, error)) {
        return false;
    }
    if (value != NULL && !codec_as_integer(document, value, 1, 17, &number, error)) {
        return false;
    }
    *digits = (int)number;
    if (timeout != NULL && !codec_as_number(document, timeout, seconds, error)) {
        return false;
    }
    if (timeout != NULL && !(*seconds > 0)) {
        return codec_fail(document, timeout, error,
                          "timeout must be a number of seconds greater than 0, not %g", *seconds);
    }
    return true;
}

static bool read_return(struct call *call, const struct codec_document *document, bool projected,
                        struct codec_error *error) {
    const struct codec_value *list = codec_get(codec_root(document), "return");
    const size_t known = projected ? CALL_RESULT_COUNT : CALL_RESULT_PROJECTED;
    if (list == NULL) {
        call->returned[0] = CALL_RESULT_OUTPUT;
        call->returned[1] = CALL_RESULT_WEIGHTS;
        call->return_count = 2;
    } else if (codec_kind_of(list) != CODEC_ARRAY || codec_size(list) == 0) {
        return codec_fail(document, list, error,
                          "return must be a list of names such as [\"output\", \"weights\"]");
    }
    for (const struct codec_value *item = list == NULL ? NULL : codec_at(list, 0); item != NULL;
         item = codec_next(item)) {
        size_t which;
        if (!codec_as_choice(document, item, call_result_names, known, &which, error)) {
            return false;
        }
        for (size_t j = 0; j < call->return_count; j++) {
            if (call->returned[j] == which) {
                return codec_fail(document, item, error, "return names \"%s\" twice",
                                  call_result_names[which]);
            }
        }
        call->returned[call->return_count++] = which;
    }
    for (size_t i = 0; i < call->return_count; i++) {
        call->options.results |= call_result_bits[call->returned[i]];
    }
    return true;
}

static bool read_causal(struct call *call, const struct codec_document *document,
                        struct codec_error *error) {
    static const char *const names[] = {"bottom_right"};
    const struct codec_value *value = codec_get(codec_root(document), "causal");
    bool causal = false;
    size_t choice;
    if (value == NULL) {
        return true;
    }
    if (codec_kind_of(value) == CODEC_TEXT) {
        call->options.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        return codec_as_choice(document, value, names, 1, &choice, error);
    }
    if (codec_kind_of(value) != CODEC_BOOL) {
        return codec_fail(document, value, error, "causal must be true, false or \"bottom_right\"");
    }
    codec_as_bool(document, value, &causal, error);
    call->options.causal = causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    return true;
}

static bool read_window(struct call *call, struct codec_document *document,
                        struct codec_error *error) {
    const struct codec_value *value = codec_get(codec_root(document), "window");
    int64_t sides[2];
    size_t count;
    if (value == NULL) {
        return true;
    }
    if (!codec_as_integers(document, value, -1, INT32_MAX, sides, 2, &count, error)) {
        return false;
    }
    if (count != 2) {
        return codec_fail(document, value, error,
                          "window must be [left, right], two numbers, not %zu", count);
    }
    call->options.flags |= ATTN_FLAG_WINDOW;
    call->options.window[0] = sides[0];
    call->options.window[1] = sides[1];
    return true;
}

static bool read_alibi(struct call *call, const struct codec_document *document,
                       struct codec_error *error) {
    const struct codec_value *value = codec_get(codec_root(document), "alibi");
    bool on = false;
    if (value != NULL && codec_kind_of(value) == CODEC_BOOL) {
        codec_as_bool(document, value, &on, error);
        call->options.flags |= on ? ATTN_FLAG_ALIBI : 0u;
        return true;
    }
    if (value != NULL && codec_kind_of(value) != CODEC_TENSOR) {
        return codec_fail(document, value, error,
                          "alibi must be true, false or a list of one slope for each head");
    }
    return call_matrix(document, codec_root(document), "alibi", 1, 1, &call->alibi_slopes,
                       &call->options.alibi_slopes, error);
}

/* One logit for each head; for one head a plain number does. */
static bool read_sink(struct call *call, const struct codec_document *document,
                      struct codec_error *error) {
    const struct codec_value *value = codec_get(codec_root(document), "sink");
    if (value == NULL || codec_kind_of(value) != CODEC_NUMBER) {
        return call_matrix(document, codec_root(document), "sink", 1, 1, &call->sink,
                           &call->options.sink, error);
    }
    if (!codec_as_number(document, value, &call->scalar, error)) {
        return false;
    }
    call->sink = (attn_tensor){.data = &call->scalar, .rank = 1, .shape = {1}};
    call->sink.dtype = codec_document_dtype(document);
    if (call->sink.dtype == ATTN_FLOAT32) {
        const float rounded = (float)call->scalar;
        memcpy(&call->scalar, &rounded, sizeof rounded);
    }
    call->options.sink = &call->sink;
    return true;
}

static bool read_lengths(struct call *call, struct codec_document *document,
                         struct codec_error *error) {
    const struct codec_value *value = codec_get(codec_root(document), "lengths");
    size_t count;
    int64_t length;
    if (value == NULL) {
        return true;
    }
    if (!codec_as_integers(document, value, 0, INT32_MAX, &length, 1, &count, error)) {
        return false;
    }
    if (count > LONG_LIST && count > call->batch) { /* a shorter one, the library refuses */
        return codec_fail(document, value, error,
                          "lengths has %zu numbers; it must have one for each batch item", count);
    }
    call->lengths = account_alloc(call->account, count * sizeof *call->lengths);
    call->options.lengths_count = count;
    if (call->lengths == NULL) {
        return codec_no_memory(error);
    }
    call->options.lengths = call->lengths;
    return codec_as_integers(document, value, 0, INT32_MAX, (int64_t *)call->lengths, count, &count,
                             error);
}

static bool read_masks(struct call *call, struct codec_document *document,
                       struct codec_error *error) {
    const struct codec_value *root = codec_root(document);
    const struct codec_value *mask = codec_get(root, "mask"), *bias = codec_get(root, "bias");
    if (mask != NULL) {
        call->options.mask = &call->mask;
        if (!codec_as_mask(document, mask, 2, 4, &call->mask, error)) {
            return false;
        }
    }
    if (bias != NULL) {
        call->options.bias = &call->bias;
        return codec_as_bias(document, bias, 2, 4, &call->bias, error);
    }
    return true;
}

static bool read_numbers(struct call *call, const struct codec_document *document,
                         struct codec_error *error) {
    static const char *const normalizations[] = {"softmax", "none"};
    const struct codec_value *root = codec_root(document), *value;
    bool mean = false;
    size_t choice;
    if ((value = codec_get(root, "scale")) != NULL) {
        call->options.flags |= ATTN_FLAG_SCALE;
        if (!codec_as_number(document, value, &call->options.scale, error)) {
            return false;
        }
    }
    if ((value = codec_get(root, "softcap")) != NULL &&
        !codec_as_number(document, value, &call->options.softcap, error)) {
        return false;
    }
    if ((value = codec_get(root, "normalization")) != NULL) {
        if (!codec_as_choice(document, value, normalizations, 2, &choice, error)) {
            return false;
        }
        call->options.normalization = choice == 0 ? ATTN_SOFTMAX : ATTN_UNNORMALIZED;
    }
    if ((value = codec_get(root, "mean_over_heads")) != NULL) {
        if (!codec_as_bool(document, value, &mean, error)) {
            return false;
        }
        if (mean && (call->options.results & ATTN_WANT(WEIGHTS)) == 0) {
            return codec_fail(document, value, error,
                              "mean_over_heads is true but return does not name \"weights\"");
        }
        call->options.flags |= mean ? ATTN_FLAG_MEAN_OVER_HEADS : 0u;
    }
    if ((value = codec_get(root, "top_k")) != NULL &&
        (call->options.results & ATTN_WANT(TOP_K_INDICES)) == 0) {
        return codec_fail(document, value, error,
                          "top_k is given but return does not name \"top_k\"");
    }
    return call_count(document, "top_k", &call->options.top_k, error) &&
           call_count(document, "kv_heads", &call->options.kv_heads, error);
}

bool call_read(struct call *call, struct codec_document *document, bool projected,
               struct codec_error *error) {
    const struct codec_value *root = codec_root(document);
    return call_read_common(document, &call->digits, &call->work.seconds, error) &&
           read_return(call, document, projected, error) && read_numbers(call, document, error) &&
           read_causal(call, document, error) && read_window(call, document, error) &&
           read_alibi(call, document, error) && read_sink(call, document, error) &&
           read_lengths(call, document, error) && read_masks(call, document, error) &&
           call_matrix(document, root, "past_K", 2, 4, &call->past_k, &call->options.past_k,
                       error) &&
           call_matrix(document, root, "past_V", 2, 4, &call->past_v, &call->options.past_v, error);
}

struct call *call_new(const struct api_request *request, struct http_response *response) {
    struct call *call = calloc(1, sizeof *call);
    if (call == NULL) {
        reply_no_memory(request, response);
        return NULL;
    }
    call->account = request->account;
    pthread_mutex_init(&call->mutex, NULL);
    return call;
}

void call_free(struct call *call) {
    attn_plan_free(call->plan);
    pthread_mutex_destroy(&call->mutex);
    free(call->block);
    account_free(call->account, call->lengths, call->options.lengths_count * sizeof *call->lengths);
    free(call);
}
