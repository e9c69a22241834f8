/*
 * answer.c - the answer of a call: the results in the order in which "return" names them.
 */
#include "api/call/answer.h"

#include "api/call/call.h"
#include "api/call/comparison.h"
#include "api/call/fields.h"

/* Adds the matrices of heads that have weights, and so sizes, of their own:
 * [head][row][column], or [batch][head][row][column]. */
static void add_parts(struct codec_items *list, const char *key, const attn_plan *plan,
                      attn_result result) {
    codec_add(list, (struct codec_item){.op = CODEC_OP_PARTS,
                                        .key = key,
                                        .count = attn_plan_parts(plan, result),
                                        .parts = attn_plan_tensor(plan, result, 0)});
}

/* `variance` has four numbers. */
static void add_statistics(struct codec_items *list, const double *variance) {
    static const char *const names[] = {"Q", "K", "scores", "scaled_scores"};
    codec_add_open(list, CODEC_OP_OBJECT, answer_names[ANSWER_STATISTICS]);
    codec_add_open(list, CODEC_OP_OBJECT, "variance");
    for (int i = 0; i < 4; i++) {
        codec_add_number(list, names[i], variance[i]);
    }
    codec_add_close(list);
    codec_add_close(list);
}

static void add_top_k(struct codec_items *list, const attn_tensor *indices,
                      const attn_tensor *weights) {
    codec_add_open(list, CODEC_OP_OBJECT, answer_names[ANSWER_TOP_K]);
    codec_add_tensor(list, "indices", indices);
    codec_add_tensor(list, "weights", weights);
    codec_add_close(list);
}

/* Returns a result as a whole. */
static attn_tensor whole(const attn_plan *plan, attn_result result) {
    return attn_as_tensor(attn_plan_tensor(plan, result, 0));
}

static void add_result(struct codec_items *list, const struct call *call, enum answer_name which) {
    const char *key = answer_names[which];
    /* ATTN_WANT() is the bit whose number is the result. */
    const attn_result result = (attn_result)__builtin_ctzll(answer_bits[which]);
    const attn_tensor tensor = whole(call->plan, result);
    if (which == ANSWER_STATISTICS) {
        add_statistics(list, tensor.data);
    } else if (which == ANSWER_TOP_K) {
        const attn_tensor weights = whole(call->plan, ATTN_RESULT_TOP_K_WEIGHTS);
        add_top_k(list, &tensor, &weights);
    } else if (call->multihead.per_head && answer_has_parts[which]) {
        add_parts(list, key, call->plan, result);
    } else {
        codec_add_tensor(list, key, &tensor);
    }
}

void answer_describe(struct codec_items *list, unsigned fields) {
    static const double no_numbers[4];
    const bool returns = fields_has("return", fields); /* otherwise the output is like the input */
    size_t count;
    const char *const *names = answer_names_of(fields, &count);
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    for (size_t i = 0; i < count; i++) {
        const enum answer_name which = answer_of(names[i]);
        const attn_tensor tensor = {.dtype = ATTN_FLOAT32,
                                    .rank = returns ? answer_ranks[which] : ATTN_MAX_RANK};
        const attn_tensor indices = {.dtype = ATTN_INT64, .rank = answer_ranks[which]};
        if (which == ANSWER_STATISTICS) {
            add_statistics(list, no_numbers);
        } else if (which == ANSWER_TOP_K) {
            add_top_k(list, &indices, &tensor);
        } else if (which != ANSWER_COMPARISON) { /* its text is no tensor */
            codec_add_tensor(list, answer_names[which], &tensor);
        }
    }
    codec_add_close(list);
}

/* Ends a call. Returns false after filling the response if it has failed. */
static bool end_call(struct call *call, struct api_request *request) {
    if (!excluded_end(call, request) || !stored_is_packed(request, &call->stored.weights)) {
        return false;
    }
    if (call->error.status != ATTN_OK || attn_plan_end(call->plan, &call->error) != ATTN_OK) {
        reply_attn_error(request, &call->error);
        return false;
    }
    return true;
}

/* Adds the results in their order, and then the comparison, unless it has a place among them. */
static void add_results(struct codec_items *list, const struct call *call, enum api_format format) {
    bool rest = call->comparison != NULL;
    for (size_t i = 0; i < call->return_count; i++) {
        if (call->returned[i] == ANSWER_COMPARISON) {
            comparison_add(list, call->comparison, format, call->work.digits);
            rest = false;
        } else {
            add_result(list, call, call->returned[i]);
        }
    }
    if (rest) {
        comparison_add(list, call->comparison, format, call->work.digits);
    }
}

/* Adds an object for each layer of a model. */
static void add_each_layer(struct codec_items *list, const struct call *call,
                           enum api_format format) {
    codec_add_open(list, CODEC_OP_ARRAY, "layers");
    for (; call != NULL; call = call->next) {
        codec_add_open(list, CODEC_OP_OBJECT, NULL);
        codec_add_text(list, "name", call->stored.weights.use.layer->name);
        add_results(list, call, format);
        codec_add_close(list);
    }
    codec_add_close(list);
}

bool answer_list_results(struct call *call, struct api_request *request, struct codec_items *list) {
    const struct codec_words *words = request->generated.words;
    struct call *each = call;
    do {
        if (!end_call(each, request)) {
            return false;
        }
        each = each->next;
    } while (each != NULL);
    if (call->comparison != NULL && !comparison_end(call->comparison) &&
        call->comparison->refuses) {
        comparison_refuse(call->comparison, request, call->work.digits);
        return false;
    }
    codec_items_begin(list, &request->account);
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    if (words != NULL) { /* they stand in place of X */
        codec_add_texts(list, "tokens", words->words, words->count);
    }
    if (call->all_layers) {
        add_each_layer(list, call, request->format);
    } else {
        add_results(list, call, request->format);
    }
    codec_add_close(list);
    return true;
}
