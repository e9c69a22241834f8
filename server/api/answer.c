/*
 * answer.c - the answer of a call: the results in the order in which "return" names them.
 */
#include "api/answer.h"

#include "api/call.h"
#include "api/reply.h"

#define ANSWER_TEXT(name, text, bits) text,
#define ANSWER_BITS(name, text, bits) bits,
const char *const answer_names[ANSWER_COUNT] = {ANSWER_MAP(ANSWER_TEXT)};
const unsigned answer_bits[ANSWER_COUNT] = {ANSWER_MAP(ANSWER_BITS)};

static void add_whole(struct reply_items *list, const char *key, const attn_plan *plan,
                      attn_result result) {
    const attn_tensor tensor = attn_as_tensor(attn_plan_tensor(plan, result, 0));
    reply_tensor(list, key, &tensor);
}

/* Adds the matrices of heads that have weights, and so sizes, of their own:
 * [head][row][column], or [batch][head][row][column]. */
static void add_parts(struct reply_items *list, const char *key, const attn_plan *plan,
                      attn_result result) {
    reply_item(list, (struct codec_item){.op = CODEC_OP_PARTS,
                                         .key = key,
                                         .count = attn_plan_parts(plan, result),
                                         .parts = attn_plan_tensor(plan, result, 0)});
}

static void add_statistics(struct reply_items *list, const attn_plan *plan) {
    static const char *const names[] = {"Q", "K", "scores", "scaled_scores"};
    const double *variance = attn_plan_tensor(plan, ATTN_RESULT_STATISTICS, 0)->data;
    reply_open(list, CODEC_OP_OBJECT, "statistics");
    reply_open(list, CODEC_OP_OBJECT, "variance");
    for (int i = 0; i < 4; i++) {
        reply_number(list, names[i], variance[i]);
    }
    reply_close(list);
    reply_close(list);
}

static void add_result(struct reply_items *list, const struct call *call, enum answer_name which) {
    const char *key = answer_names[which];
    /* ATTN_WANT() is the bit whose number is the result. */
    const attn_result result = (attn_result)__builtin_ctz(answer_bits[which]);
    if (which == ANSWER_STATISTICS) {
        add_statistics(list, call->plan);
    } else if (which == ANSWER_TOP_K) {
        reply_open(list, CODEC_OP_OBJECT, key);
        add_whole(list, "indices", call->plan, ATTN_RESULT_TOP_K_INDICES);
        add_whole(list, "weights", call->plan, ATTN_RESULT_TOP_K_WEIGHTS);
        reply_close(list);
    } else if (call->multihead.per_head && which >= ANSWER_PRESENT_K) {
        add_parts(list, key, call->plan, result);
    } else {
        add_whole(list, key, call->plan, result);
    }
}

void answer_call(struct call *call, const struct api_request *request,
                 struct http_response *response) {
    struct reply_items list = {.count = 0};
    if (call->error.status != ATTN_OK || attn_plan_end(call->plan, &call->error) != ATTN_OK) {
        reply_attn_error(request, response, &call->error);
        return;
    }
    reply_open(&list, CODEC_OP_OBJECT, NULL);
    if (call->words != NULL) {
        reply_item(&list, (struct codec_item){.op = CODEC_OP_TEXTS,
                                              .key = "tokens",
                                              .count = call->words->count,
                                              .texts = call->words->words});
    }
    for (size_t i = 0; i < call->return_count; i++) {
        add_result(&list, call, call->returned[i]);
    }
    reply_close(&list);
    reply_items(request, response, &list, call->work.digits);
}
