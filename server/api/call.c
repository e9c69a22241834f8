/* call.c - see call.h: reading the options of a call. answer.c is the way back. */
#include "api/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/answer.h"
#include "api/reply.h"

enum {
    /* A longer list than this is refused before it is read, if no call has so many batch items. */
    LONG_LIST = 4096
};

/* ---------------------------------------------------------------------------------------- keys */

#define WITH_PROJECTIONS "it is a key of /self-attention, which projects X by W_Q, W_K and W_V"
#define PROJECTED        "Q, K and V are keys of /attention; here \"return\" names them as results"
#define HEADS            "it is \"heads\" here"
#define KV_HEADS         "it is \"kv_heads\" here, the number of heads of K and V"
#define NO_DROPOUT       "there is no dropout here: leave it out"
#define BY_SHAPES        "it follows from the shapes of the matrices: leave it out"
#define WINDOW           "it is \"window\" here: [left, right]"
#define LENGTHS          "it is \"lengths\" here, the number of valid keys of each batch item"
#define RETURNED         "\"return\" names the results here, such as [\"output\", \"weights\"]"
#define RETURN_LSE       "\"return\" names the results here, such as [\"output\", \"lse\"]"
#define SCALE            "it is \"scale\" here"
#define SOFTCAP          "it is \"softcap\" here"
#define SINK             "it is \"sink\" here, one number for each head"
#define PAST_K           "it is \"past_K\" here"
#define PAST_V           "it is \"past_V\" here"
#define PACKED           "it is W_Q, W_K and W_V" OUT_IN
#define OUT_IN           " of /self-attention, with \"weight_layout\": \"out_in\""

/* The names of PyTorch, ONNX, flash-attention, JAX and Transformers. A name that means other things
 * in several of them has a hint that is right for all. */
static const struct codec_foreign foreign_names[] = {
    {"attn_mask", CALL_AT_ATTENTIONS,
     "it is \"mask\" here, where true attends (as in scaled_dot_product_attention and ONNX; in "
     "torch.nn.MultiheadAttention true forbids), or \"bias\" for numbers that are added"},
    {"attention_mask", CALL_AT_ATTENTIONS,
     "it is \"mask\" here, where true or 1 attends, or \"lengths\" for the number of valid keys"},
    {"key_padding_mask", CALL_AT_ATTENTIONS,
     "it is \"lengths\" here, the number of valid keys of each batch item, if the padding is at "
     "the end; or \"mask\" of the shape (batch, 1, 1, keys), where true attends, the opposite of "
     "key_padding_mask"},
    {"block_mask", CALL_AT_ATTENTIONS, "it is \"mask\" here, where true attends"},
    {"attn_bias", CALL_AT_ATTENTIONS, "it is \"bias\" here"},
    {"is_causal", CALL_AT_ATTENTIONS, "it is \"causal\" here"},
    {"num_heads", CALL_AT_ATTENTIONS, HEADS},
    {"q_num_heads", CALL_AT_ATTENTIONS, HEADS},
    {"nhead", CALL_AT_ATTENTIONS, HEADS},
    {"n_heads", CALL_AT_ATTENTIONS, HEADS},
    {"num_attention_heads", CALL_AT_ATTENTIONS, HEADS},
    {"kv_num_heads", CALL_AT_ATTENTIONS, KV_HEADS},
    {"num_kv_heads", CALL_AT_ATTENTIONS, KV_HEADS},
    {"num_key_value_heads", CALL_AT_ATTENTIONS, KV_HEADS},
    {"enable_gqa", CALL_AT_ATTENTIONS,
     "grouped heads need no switch here: give K and V fewer heads than Q, or \"kv_heads\""},
    {"need_weights", CALL_AT_ATTENTIONS, RETURNED},
    {"output_attentions", CALL_AT_ATTENTIONS, RETURNED},
    {"return_attn_probs", CALL_AT_ATTENTIONS, RETURNED},
    {"return_lse", CALL_AT_ATTENTIONS, RETURN_LSE},
    {"return_softmax_lse", CALL_AT_ATTENTIONS, RETURN_LSE},
    {"qk_matmul_output_mode", CALL_AT_ATTENTIONS,
     "\"return\" names the steps here, such as \"scaled_scores\", \"masked_scores\" and "
     "\"weights\""},
    {"average_attn_weights", CALL_AT_ATTENTIONS,
     "it is \"mean_over_heads\" here, and its default is false"},
    {"dropout", CALL_AT_ATTENTIONS, NO_DROPOUT},
    {"dropout_p", CALL_AT_ATTENTIONS, NO_DROPOUT},
    {"embed_dim", CALL_AT_ATTENTIONS, BY_SHAPES},
    {"head_dim", CALL_AT_ATTENTIONS, BY_SHAPES},
    {"kdim", CALL_AT_ATTENTIONS, BY_SHAPES},
    {"vdim", CALL_AT_ATTENTIONS, BY_SHAPES},
    {"batch_first", CALL_AT_ATTENTIONS,
     "the batch is always the first axis here, as with batch_first=True: leave it out"},
    {"softmax_precision", CALL_AT_ATTENTIONS, "it is \"dtype\" here: \"float32\" or \"float64\""},
    {"softmax_scale", CALL_AT_ATTENTIONS, SCALE},
    {"sm_scale", CALL_AT_ATTENTIONS, SCALE},
    {"temperature", CALL_AT_ATTENTIONS,
     "there is no temperature here: divide \"scale\" by it; the default of \"scale\" is "
     "1 / sqrt(columns of a head of Q)"},
    {"temperature", CALL_AT_SOFTMAX, "there is no temperature here: divide X by it first"},
    {"logits_soft_cap", CALL_AT_ATTENTIONS, SOFTCAP},
    {"window_size", CALL_AT_ATTENTIONS, WINDOW},
    {"sliding_window", CALL_AT_ATTENTIONS, WINDOW},
    {"local_window_size", CALL_AT_ATTENTIONS, WINDOW},
    {"left_window_size", CALL_AT_ATTENTIONS, WINDOW},
    {"right_window_size", CALL_AT_ATTENTIONS, WINDOW},
    {"alibi_slopes", CALL_AT_ATTENTIONS, "it is \"alibi\" here"},
    {"sinks", CALL_AT_ATTENTIONS, SINK},
    {"learnable_sink", CALL_AT_ATTENTIONS, SINK},
    {"nonpad_kv_seqlen", CALL_AT_ATTENTIONS, LENGTHS},
    {"key_value_seq_lengths", CALL_AT_ATTENTIONS, LENGTHS},
    {"past_key", CALL_AT_ATTENTIONS, PAST_K},
    {"past_value", CALL_AT_ATTENTIONS, PAST_V},
    {"query", CALL_AT_ATTENTION, "it is \"Q\" here"},
    {"key", CALL_AT_ATTENTION, "it is \"K\" here"},
    {"value", CALL_AT_ATTENTION, "it is \"V\" here"},
    {"query", CALL_AT_PROJECTIONS, "it is \"X\" here"},
    {"hidden_states", CALL_AT_PROJECTIONS, "it is \"X\" here"},
    {"key", CALL_AT_PROJECTIONS, "it is \"context\" here, from which K and V are projected"},
    {"value", CALL_AT_PROJECTIONS, "it is \"context\" here, from which K and V are projected"},
    {"encoder_hidden_states", CALL_AT_PROJECTIONS, "it is \"context\" here"},
    {"in_proj_weight", CALL_AT_ATTENTIONS, PACKED},
    {"in_proj_bias", CALL_AT_ATTENTIONS, "it is b_Q, b_K and b_V of /self-attention"},
    {"q_proj_weight", CALL_AT_ATTENTIONS, "it is W_Q" OUT_IN},
    {"k_proj_weight", CALL_AT_ATTENTIONS, "it is W_K" OUT_IN},
    {"v_proj_weight", CALL_AT_ATTENTIONS, "it is W_V" OUT_IN},
    {"out_proj", CALL_AT_ATTENTIONS, "it is W_O and b_O" OUT_IN},
    {"out_proj.weight", CALL_AT_ATTENTIONS, "it is W_O" OUT_IN},
    {"out_proj.bias", CALL_AT_ATTENTIONS, "it is b_O of /self-attention"},
    {"W_Q", CALL_AT_ATTENTION, WITH_PROJECTIONS},
    {"W_K", CALL_AT_ATTENTION, WITH_PROJECTIONS},
    {"W_V", CALL_AT_ATTENTION, WITH_PROJECTIONS},
    {"W_O", CALL_AT_ATTENTION, WITH_PROJECTIONS},
    {"b_Q", CALL_AT_ATTENTION, WITH_PROJECTIONS},
    {"b_K", CALL_AT_ATTENTION, WITH_PROJECTIONS},
    {"b_V", CALL_AT_ATTENTION, WITH_PROJECTIONS},
    {"b_O", CALL_AT_ATTENTION, WITH_PROJECTIONS},
    {"context", CALL_AT_ATTENTION, WITH_PROJECTIONS},
    {"weight_layout", CALL_AT_ATTENTION, WITH_PROJECTIONS},
    {"Q", CALL_AT_PROJECTIONS, PROJECTED},
    {"K", CALL_AT_PROJECTIONS, PROJECTED},
    {"V", CALL_AT_PROJECTIONS, PROJECTED},
    {"W_O", CALL_AT_HEAD, "it belongs beside \"heads\", once for all heads"},
    {"b_O", CALL_AT_HEAD, "it belongs beside \"heads\", once for all heads"},
    {"dim", CALL_AT_SOFTMAX, "it is \"axis\" here"},
    {"input", CALL_AT_SOFTMAX, "it is \"X\" here"},
};

bool call_check_keys(const struct codec_document *document, const struct codec_value *object,
                     unsigned here, const char *const *names, size_t count,
                     struct codec_error *error) {
    const struct codec_keys keys = {
        .names = names,
        .count = count,
        .elsewhere = call_result_names,
        .elsewhere_count = here == CALL_AT_ATTENTION     ? CALL_RESULT_PROJECTED
                           : here == CALL_AT_PROJECTIONS ? CALL_RESULT_COUNT
                                                         : 0,
        .place = "return",
        .foreign = foreign_names,
        .foreign_count = sizeof foreign_names / sizeof *foreign_names,
        .here = here,
    };
    return codec_check_keys(document, object, &keys, error);
}

/* ------------------------------------------------------------------------------------- options */

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
        return codec_refuse(document, list, "an array of names such as [\"output\", \"weights\"]",
                            error);
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
    const struct codec_value *value = codec_get(codec_root(document), "causal");
    bool causal = false;
    const char *text = "";
    if (value == NULL) {
        return true;
    }
    if (codec_kind_of(value) == CODEC_TEXT && codec_as_text(document, value, &text, error) &&
        strcmp(text, "bottom_right") == 0) {
        call->options.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
        return true;
    }
    if (codec_kind_of(value) != CODEC_BOOL) {
        return codec_refuse(document, value, "true, false or \"bottom_right\"", error);
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
                          "window must be two numbers, [left, right], not %zu", count);
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
        return codec_refuse(document, value, "true, false or an array with one slope for each head",
                            error);
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
        codec_narrow(&call->scalar, 1);
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
        return codec_as_reals_or_null(document, bias, 2, 4, &call->bias, error);
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
