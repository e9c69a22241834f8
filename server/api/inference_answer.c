/* inference_answer.c - answers in the Open Inference Protocol. */
#include "api/inference.h"

#include <string.h>

#include "api/derived.h"
#include "api/tensors.h"
#include "clock.h"

enum {
    ITEMS_AROUND = 16,   /* most items of an answer that are not of a result */
    ITEMS_OF_RESULT = 8, /* most items of one result */
    /* Bytes of JSON before binary results. Its length is sent before it, so it is made at once. */
    MOST_JSON = 1024 * 1024
};

/* Finds whether a result is asked for, and whether it is to be binary. */
static bool find_output(const struct question *question, const char *name, bool *binary) {
    *binary = question->binary;
    for (size_t i = 0; i < question->output_count; i++) {
        if (inference_is_part(question->outputs[i].name, name)) {
            *binary = question->outputs[i].binary;
            return true;
        }
    }
    return question->output_count == 0;
}

static struct codec_item *add_text(struct codec_item *out, const char *key, const char *text) {
    *out = (struct codec_item){.op = CODEC_OP_TEXT, .key = key, .text = text};
    return out + 1;
}

static struct codec_item *add_open(struct codec_item *out, enum codec_op op, const char *key) {
    *out = (struct codec_item){.op = op, .key = key};
    return out + 1;
}

/* Adds a whole number, which it borrows. The "digits" of the request do not round it. */
static struct codec_item *add_count(struct codec_item *out, const char *key, const size_t *count) {
    *out = (struct codec_item){.op = CODEC_OP_TENSOR,
                               .key = key,
                               .tensor = {.data = count, .dtype = ATTN_INT64, .rank = 0}};
    return out + 1;
}

static struct codec_item *add_end(struct codec_item *out) {
    *out = (struct codec_item){.op = CODEC_OP_END};
    return out + 1;
}

/* Adds a result. A binary one has its size here; the data of any other are a flat array. */
static struct codec_item *add_output(struct codec_item *out, const struct codec_result *result,
                                     bool binary) {
    out = add_open(out, CODEC_OP_OBJECT, NULL);
    out = add_text(out, "name", result->name);
    /* A type of 16 bits exists in binary form only; as JSON the numbers are not rounded. */
    const bool wide = !binary && result->tensor.dtype == ATTN_FLOAT32;
    out = add_text(out, "datatype", codec_inference_types[wide ? CODEC_TYPE_FP32 : result->type]);
    *out++ = codec_shape_item("shape", &result->tensor);
    if (binary) {
        out = add_open(out, CODEC_OP_OBJECT, "parameters");
        out = add_count(out, "binary_data_size", &result->bytes);
        out = add_end(out);
    } else {
        const size_t count = result->bytes / codec_type_size(result->type);
        const void *data = result->tensor.data != NULL ? result->tensor.data : &result->number;
        *out++ = (struct codec_item){
            .op = CODEC_OP_TENSOR,
            .key = "data",
            .tensor = {.data = data, .dtype = result->tensor.dtype, .rank = 1, .shape = {count}}};
    }
    return add_end(out);
}

/* Adds the words of a text. */
static struct codec_item *add_words(struct codec_item *out, const struct codec_item *words,
                                    const size_t *count) {
    out = add_open(out, CODEC_OP_OBJECT, NULL);
    out = add_text(out, "name", words->key);
    out = add_text(out, "datatype", "BYTES");
    out = add_open(out, CODEC_OP_ARRAY, "shape");
    out = add_count(out, NULL, count);
    out = add_end(out);
    *out = *words;
    out->key = "data";
    return add_end(out + 1);
}

/* Makes the items of the answer, and leaves only its binary results in the list. Returns the end
 * of the items. */
static struct codec_item *add_all(struct codec_item *out, const struct api_request *request,
                                  const struct codec_item *items, size_t count) {
    const struct question *question = request->question;
    struct codec_results *results = &request->tensors->results;
    out = add_open(out, CODEC_OP_OBJECT, NULL);
    out = add_text(out, "model_name", request->name);
    out = add_text(out, "model_version", API_VERSION);
    if (question->id != NULL) {
        out = add_text(out, "id", question->id);
    }
    out = add_open(out, CODEC_OP_ARRAY, "outputs");
    for (size_t i = 0; i < count && question->output_count == 0; i++) {
        if (items[i].op == CODEC_OP_TEXTS) {
            /* A long answer is made after the items are gone, but before the words are. */
            out = add_words(out, &items[i], &request->derived->words->count);
        }
    }
    for (size_t i = 0; i < results->count; i++) {
        bool binary;
        if (find_output(question, results->list[i].name, &binary)) {
            out = add_output(out, &results->list[i], binary);
        }
    }
    out = add_end(out);
    return add_end(out);
}

/* Leaves the binary results that are asked for. */
static void keep_binary(const struct question *question, struct codec_results *results) {
    size_t kept = 0;
    for (size_t i = 0; i < results->count; i++) {
        bool binary;
        if (find_output(question, results->list[i].name, &binary) && binary) {
            results->list[kept++] = results->list[i];
        }
    }
    results->count = kept;
}

/* Returns whether a result that is asked for is binary. */
static bool any_binary(const struct question *question, const struct codec_results *results) {
    bool any = false;
    for (size_t i = 0; i < results->count; i++) {
        bool binary;
        any |= find_output(question, results->list[i].name, &binary) && binary;
    }
    return any;
}

void inference_reply(const struct api_request *request, struct http_response *response,
                     const struct codec_item *items, size_t count, int digits) {
    struct tensors_answer *answer = request->tensors;
    const int64_t start = clock_ns();
    if (!tensors_list(request, response, items, count)) {
        return;
    }
    const size_t room = ITEMS_AROUND + (count + answer->results.count) * ITEMS_OF_RESULT;
    struct codec_item *list = account_alloc(request->account, room * sizeof *list);
    if (list == NULL) {
        reply_no_memory(request, response);
        return;
    }
    const size_t size = (size_t)(add_all(list, request, items, count) - list);
    const size_t bytes = codec_items_bytes(list, size, digits, MOST_JSON);
    if (!any_binary(request->question, &answer->results)) {
        reply_json(request, response, list, size, digits);
    } else if (bytes > MOST_JSON) {
        http_problem(response, request->http, 422,
                     "the outputs in JSON are too long to stand before binary ones: ask for all of "
                     "them in binary form, or for all in JSON",
                     NULL, NULL);
    } else if (!reply_write(request, list, size, digits, bytes, &answer->header)) {
        reply_no_memory(request, response);
    } else {
        answer->header_counted = account_block(answer->header.capacity);
        answer->header.size--; /* the line feed */
        const size_t header = answer->header.size;
        keep_binary(request->question, &answer->results);
        tensors_send(request, response);
        if (response->status == 200) {
            response->media_type = "application/octet-stream";
            response->inference_header = header;
        }
    }
    account_free(request->account, list, room * sizeof *list);
    response->timing[HTTP_TIMING_ENCODE] = clock_ms_since(start);
}
