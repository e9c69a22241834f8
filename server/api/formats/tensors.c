/* tensors.c - sends binary tensors. A short answer is one block. The bytes of a long one are copied
 * from the results into the buffer from which they are sent, or rounded to 16 bits on the way. */
#include "api/formats/tensors.h"

#include "api/formats/decoder.h"
#include "api/reply.h"
#include "codec/safetensors.h"

#include <stdio.h>
#include <string.h>

enum {
    SHORT = 16 * 1024 /* bytes; a shorter answer is copied into one block */
};

/* Refuses results of which a number is out of the range of their type. */
static void refuse_range(struct api_request *request, const struct codec_result *result,
                         size_t element) {
    char detail[256];
    snprintf(detail, sizeof detail,
             "%s has the number %.9g at element %zu, which is out of the range of %s; ask for "
             "\"dtype\": \"float32\"",
             result->name, (double)((const float *)result->tensor.data)[element], element,
             codec_inference_types[result->type]);
    reply_problem(request, 422, detail);
}

bool tensors_list(struct api_request *request, const struct codec_items *items) {
    struct tensors_answer *answer = &request->tensors;
    if (items->failed || !codec_results_make(&answer->results, items->list, items->count,
                                             request->input.decoder.floats, &request->account)) {
        reply_no_memory(request);
        return false;
    }
    return true;
}

/* -------------------------------------------------------------------------------------- sending */

/* Writes the next bytes of the answer. */
static bool tensors_read(void *answer_, char *out, size_t room, size_t *size) {
    struct tensors_answer *answer = answer_;
    *size = 0;
    while (!answer->in_results || answer->result < answer->results.count) {
        const struct codec_result *result = &answer->results.list[answer->result];
        const size_t all = answer->in_results ? result->bytes : answer->header.size;
        const size_t left = all - answer->offset;
        const size_t part = left < room - *size ? left : room - *size;
        if (answer->in_results) {
            codec_result_read(result, answer->offset, out + *size, part);
        } else {
            memcpy(out + *size, answer->header.data + answer->offset, part);
        }
        *size += part;
        answer->offset += part;
        if (part < left) {
            break;
        }
        answer->result += answer->in_results;
        answer->in_results = true;
        answer->offset = 0;
    }
    return true;
}

/* Makes the whole answer at once. Returns false if there is no memory. */
static bool copy_all(struct api_request *request, size_t total) {
    struct tensors_answer *answer = &request->tensors;
    size_t size = 0;
    char *whole = account_alloc(&request->account, total);
    if (whole == NULL) {
        return false;
    }
    tensors_read(answer, whole, total, &size);
    request->response->body = whole;
    return true;
}

/* Prepares an answer whose bytes are made while they are sent. Returns false if there is no
 * memory. */
static bool stream_all(struct api_request *request) {
    const struct codec_results *results = &request->tensors.results;
    if (!account_take(&request->account, HTTP_STREAM)) {
        return false;
    }
    request->response->body = &request->tensors;
    request->response->read = tensors_read;
    request->response->copies = true;
    for (size_t i = 0; i < results->count; i++) {
        request->response->copies &= codec_result_bytes(&results->list[i]) != NULL;
    }
    return true;
}

/* Fills the response. All results are in the range of their types. */
static void fill(struct api_request *request) {
    const bool inference = request->format == API_INFERENCE;
    struct tensors_answer *answer = &request->tensors;
    size_t total = answer->header.size;
    for (size_t i = 0; i < answer->results.count; i++) {
        total += answer->results.list[i].bytes;
    }
    if (!(total <= SHORT ? copy_all(request, total) : stream_all(request))) {
        reply_no_memory(request);
        return;
    }
    request->response->status = 200;
    request->response->size = total;
    request->response->media_type = inference ? "application/octet-stream" : TENSORS_SAFETENSORS;
    request->response->inference_length = inference ? answer->header.size : 0;
}

void tensors_check(struct api_request *request, size_t most) {
    struct tensors_answer *answer = &request->tensors;
    if (answer->unchecked == 0) {
        return;
    }
    while (most > 0 && answer->unchecked > 0) {
        const struct codec_result *result = &answer->results.list[answer->result];
        const size_t left = codec_result_narrowed(result) - answer->offset;
        const size_t part = left < most ? left : most;
        const size_t element = codec_result_out_of_range(result, answer->offset, part);
        if (element != SIZE_MAX) {
            answer->unchecked = 0;
            refuse_range(request, result, element);
            return;
        }
        most -= part;
        answer->unchecked -= part;
        answer->offset = part < left ? answer->offset + part : 0;
        answer->result += part == left;
    }
    if (answer->unchecked == 0) {
        answer->result = answer->offset = 0;
        fill(request);
    }
}

void tensors_send(struct api_request *request) {
    struct tensors_answer *answer = &request->tensors;
    for (size_t i = 0; i < answer->results.count; i++) {
        answer->unchecked += codec_result_narrowed(&answer->results.list[i]);
    }
    if (answer->unchecked == 0) {
        fill(request);
    }
}

/* ---------------------------------------------------------------------------------- safetensors */

void tensors_reply(struct api_request *request, struct codec_items *items) {
    struct tensors_answer *answer = &request->tensors;
    if (tensors_list(request, items)) {
        if (codec_safetensors_write(&answer->header, &answer->results, items)) {
            tensors_send(request);
        } else {
            reply_no_memory(request);
        }
    }
    codec_items_free(items);
}
