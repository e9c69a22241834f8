/* tensors.c - sends binary tensors. A short answer is one block. The bytes of a long one are copied
 * from the results into the buffer from which they are sent, or rounded to 16 bits on the way. */
#include "api/tensors.h"

#include "api/question.h"
#include "api/reply.h"
#include "clock.h"
#include "codec/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHORT = 16 * 1024 /* bytes; a shorter answer is copied into one block */
};

void tensors_free(struct tensors_answer *answer) {
    codec_results_free(&answer->results);
    if (!answer->header.borrowed) {
        free(answer->header.data);
    }
    account_give(answer->account, answer->header_counted);
    *answer = (struct tensors_answer){0};
}

/* Refuses results of which a number is out of the range of their type. */
static void refuse_range(const struct api_request *request, struct http_response *response,
                         const struct codec_result *result, size_t element) {
    char detail[256];
    snprintf(detail, sizeof detail,
             "%s has the number %.9g at element %zu, which is out of the range of %s; ask for "
             "\"dtype\": \"float32\"",
             result->name, (double)((const float *)result->tensor.data)[element], element,
             codec_inference_types[result->type]);
    http_problem(response, request->http, 422, detail, NULL, NULL);
}

bool tensors_list(const struct api_request *request, struct http_response *response,
                  const struct codec_item *items, size_t count) {
    struct tensors_answer *answer = request->tensors;
    answer->account = request->account;
    if (!codec_results_make(&answer->results, items, count, request->question->floats,
                            request->account)) {
        reply_no_memory(request, response);
        return false;
    }
    return true;
}

/* -------------------------------------------------------------------------------------- sending */

/* Appends all tensors to the header. Returns false if there is no memory. */
static bool copy_all(struct tensors_answer *answer, struct http_response *response, size_t total) {
    const size_t more = account_block(2 * total);
    char piece[512];
    if (!account_take(answer->account, more)) {
        return false;
    }
    answer->header_counted += more;
    for (size_t i = 0; i < answer->results.count; i++) {
        const struct codec_result *result = &answer->results.list[i];
        for (size_t done = 0; done < result->bytes; done += sizeof piece) {
            const size_t left = result->bytes - done;
            const size_t size = left < sizeof piece ? left : sizeof piece;
            codec_result_read(result, done, piece, size);
            if (!codec_append(&answer->header, piece, size)) {
                return false;
            }
        }
    }
    response->body = answer->header.data;
    return true;
}

/* Writes the next bytes of the answer. */
static bool tensors_read(void *answer_, char *out, size_t room, size_t *size) {
    struct tensors_answer *answer = answer_;
    *size = 0;
    while (answer->next <= answer->results.count) {
        const struct codec_result *result =
            answer->next > 0 ? &answer->results.list[answer->next - 1] : NULL;
        const size_t left = (result != NULL ? result->bytes : answer->header.size) - answer->done;
        const size_t part = left < room - *size ? left : room - *size;
        if (result != NULL) {
            codec_result_read(result, answer->done, out + *size, part);
        } else {
            memcpy(out + *size, answer->header.data + answer->done, part);
        }
        *size += part;
        answer->done += part;
        if (part < left) {
            break;
        }
        answer->next++;
        answer->done = 0;
    }
    return true;
}

/* Has the answer made while it is sent. Returns false if there is no memory. */
static bool stream_all(const struct api_request *request, struct http_response *response) {
    const struct codec_results *results = &request->tensors->results;
    if (!account_take(request->account, HTTP_STREAM)) {
        return false;
    }
    response->body = request->tensors;
    response->read = tensors_read;
    response->copies = true;
    for (size_t i = 0; i < results->count; i++) {
        response->copies &= codec_result_bytes(&results->list[i]) != NULL;
    }
    return true;
}

void tensors_send(const struct api_request *request, struct http_response *response) {
    struct tensors_answer *answer = request->tensors;
    size_t total = answer->header.size;
    for (size_t i = 0; i < answer->results.count; i++) {
        const struct codec_result *result = &answer->results.list[i];
        const size_t element = codec_result_beyond(result);
        if (element != SIZE_MAX) {
            refuse_range(request, response, result, element);
            return;
        }
        total += result->bytes;
    }
    if (!(total <= SHORT ? copy_all(answer, response, total) : stream_all(request, response))) {
        reply_no_memory(request, response);
        return;
    }
    response->status = 200;
    response->size = total;
}

/* ---------------------------------------------------------------------------------- safetensors */

void tensors_reply(const struct api_request *request, struct http_response *response,
                   const struct codec_item *items, size_t count) {
    struct tensors_answer *answer = request->tensors;
    const int64_t start = clock_ns();
    size_t bytes = 0;
    if (!tensors_list(request, response, items, count)) {
        return;
    }
    for (size_t i = 0; i < count; i++) { /* the texts become JSON within JSON */
        if (items[i].op != CODEC_OP_TENSOR && items[i].op != CODEC_OP_PARTS) {
            bytes += 4 * codec_items_bytes(&items[i], 1, 0, SIZE_MAX);
        }
    }
    bytes += answer->results.count * 2 * (256 + ATTN_MAX_RANK * sizeof(struct codec_item));
    if (!account_take(request->account, bytes)) {
        reply_no_memory(request, response);
        return;
    }
    answer->header_counted = bytes;
    if (!safetensors_write(&answer->header, &answer->results, items, count)) {
        reply_no_memory(request, response);
        return;
    }
    tensors_send(request, response);
    if (response->status == 200) {
        response->media_type = TENSORS_SAFETENSORS;
    }
    response->timing[HTTP_TIMING_ENCODE] = clock_ms_since(start);
}
