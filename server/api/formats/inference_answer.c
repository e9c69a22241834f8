/* inference_answer.c - answers in the Open Inference Protocol. */
#include "api/formats/inference.h"

#include <string.h>

#include "api/call/generated.h"
#include "api/formats/tensors.h"
#include "api/reply.h"

enum {
    /* Bytes of JSON before binary results. Its length is sent before it, so it is made at once. */
    MOST_ANSWER_JSON = 1024 * 1024
};

/* Keeps only the results that the request asks for, and sets whether each is binary. Returns
 * whether any is. */
static bool choose(const struct decoder *decoder, struct codec_results *results) {
    size_t kept = 0;
    bool any = false;
    for (size_t i = 0; i < results->count; i++) {
        struct codec_result *result = &results->list[i];
        bool wanted = decoder->output_count == 0;
        result->binary = decoder->binary;
        for (size_t j = 0; j < decoder->output_count && !wanted; j++) {
            wanted = inference_is_part(decoder->outputs[j].name, result->name);
            result->binary = decoder->outputs[j].binary;
        }
        if (wanted) {
            any |= result->binary;
            results->list[kept++] = *result;
        }
    }
    results->count = kept;
    return any;
}

/* Removes the results that are not binary. */
static void keep_binary(struct codec_results *results) {
    size_t kept = 0;
    for (size_t i = 0; i < results->count; i++) {
        if (results->list[i].binary) {
            results->list[kept++] = results->list[i];
        }
    }
    results->count = kept;
}

/* Adds a result. A binary one has its size here; the data of any other are a flat array. */
static void add_output(struct codec_items *list, const struct codec_result *result) {
    /* A type of 16 bits exists in binary form only; as JSON the numbers are not rounded. */
    const bool wide = !result->binary && result->tensor.dtype == ATTN_FLOAT32;
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    codec_add_text(list, "name", result->name);
    codec_add_text(list, "datatype", codec_inference_types[wide ? CODEC_TYPE_FP32 : result->type]);
    codec_add_integers(list, "shape", result->tensor.shape, (size_t)result->tensor.rank);
    if (result->binary) {
        codec_add_open(list, CODEC_OP_OBJECT, "parameters");
        codec_add_integer(list, "binary_data_size", &result->bytes);
        codec_add_close(list);
    } else {
        const attn_tensor flat = {.data = result->tensor.data != NULL ? result->tensor.data
                                                                      : &result->number,
                                  .dtype = result->tensor.dtype,
                                  .rank = 1,
                                  .shape = {result->bytes / codec_type_size(result->type)}};
        codec_add_tensor(list, "data", &flat);
    }
    codec_add_close(list);
}

/* Begins an output of `*count` texts. A long answer is made after the items are gone, so the count
 * is not that of an item. */
static void begin_texts(struct codec_items *list, const char *name, const size_t *count) {
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    codec_add_text(list, "name", name);
    codec_add_text(list, "datatype", "BYTES");
    codec_add_integers(list, "shape", count, 1);
}

/* Adds the texts of an answer: words, which no request asks for by a name, and a comparison. */
static void add_texts(struct codec_items *list, const struct api_request *request,
                      const struct codec_items *items) {
    static const size_t one = 1;
    size_t depth = 0;
    for (size_t i = 0; i < items->count; i++) {
        const struct codec_item *item = &items->list[i];
        depth += codec_item_depth(item);
        if (item->op == CODEC_OP_TEXTS && request->input.decoder.output_count == 0) {
            begin_texts(list, item->key, &request->generated.words->count);
            codec_add_texts(list, "data", item->texts, item->count);
            codec_add_close(list);
        } else if (item->op == CODEC_OP_TEXT && depth == 1) {
            begin_texts(list, item->key, &one);
            codec_add_open(list, CODEC_OP_ARRAY, "data");
            codec_add_text(list, NULL, item->text);
            codec_add_close(list);
            codec_add_close(list);
        }
    }
}

/* Lists the JSON of the answer. `items` are the results as the handler lists them. */
static void add_answer(struct codec_items *list, struct api_request *request,
                       const struct codec_items *items) {
    const struct decoder *decoder = &request->input.decoder;
    const struct codec_results *results = &request->tensors.results;
    codec_add_open(list, CODEC_OP_OBJECT, NULL);
    codec_add_text(list, "model_name", request->name);
    codec_add_text(list, "model_version", API_MODEL_VERSION);
    if (decoder->id != NULL) {
        codec_add_text(list, "id", decoder->id);
    }
    codec_add_open(list, CODEC_OP_ARRAY, "outputs");
    add_texts(list, request, items);
    for (size_t i = 0; i < results->count; i++) {
        add_output(list, &results->list[i]);
    }
    codec_add_close(list);
    codec_add_close(list);
}

/* Answers with binary results, which have the JSON of `list` before them. */
static void send_binary(struct api_request *request, const struct codec_items *list, int digits) {
    struct tensors_answer *answer = &request->tensors;
    const size_t bytes = codec_items_bytes(list->list, list->count, digits, MOST_ANSWER_JSON);
    if (bytes > MOST_ANSWER_JSON) {
        reply_problem(request, 422,
                      "the outputs in JSON are too long to stand before binary ones: ask for all "
                      "of them in binary form, or for all in JSON");
        return;
    }
    if (!codec_items_write(list, digits, 0, bytes, &answer->header)) {
        reply_no_memory(request);
        return;
    }
    answer->header.size--; /* the line feed */
    keep_binary(&answer->results);
    tensors_send(request);
}

void inference_reply(struct api_request *request, struct codec_items *items, int digits) {
    struct codec_items list;
    codec_items_begin(&list, &request->account);
    if (tensors_list(request, items)) {
        const bool any_binary = choose(&request->input.decoder, &request->tensors.results);
        add_answer(&list, request, items);
        if (any_binary) {
            send_binary(request, &list, digits);
        } else {
            reply_json(request, &list, digits);
        }
    }
    codec_items_free(&list);
    codec_items_free(items);
}
