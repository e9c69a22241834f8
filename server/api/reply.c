/* reply.c - makes problem documents of errors, and answers of items. */
#include "api/reply.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LONG_TEXT = 64 * 1024,           /* bytes; a longer answer is made while it is sent */
    STREAM = HTTP_STREAM + 16 * 1024 /* bytes of memory that this takes */
};

/* ------------------------------------------------------------------------------------ problems */

void reply_put_size(char out[static 32], size_t bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double size = (double)bytes / 1024;
    size_t unit = 0;
    while (size >= 1000 && unit < 3) {
        size /= 1024;
        unit++;
    }
    snprintf(out, 32, "%.3g %s", size, units[unit]);
}

void reply_problem(struct api_request *request, int status, const char *detail) {
    http_problem(request->response, request->http, status, detail, NULL, NULL);
}

void reply_too_large(struct api_request *request, const char *pointer, const char *hint) {
    const struct account *account = &request->account;
    char detail[384], wanted[32], most[32];
    bool total;
    switch (account->refusal) {
    case ACCOUNT_OVER_REQUEST:
        total = account->held + account_room(account) < account->budget->max_request;
        reply_put_size(wanted, account->wanted);
        reply_put_size(most, account->held + account_room(account));
        snprintf(detail, sizeof detail,
                 "the request needs %s or more for its matrices, results and answer; this server "
                 "allows %s, a limit that its operator sets with %s%s",
                 wanted, most, total ? "--total-memory" : "--max-memory", hint);
        http_problem(request->response, request->http, 413, detail, pointer, NULL);
        request->response->refused = total ? "over --total-memory" : "over --max-memory";
        return;
    case ACCOUNT_OVER_TOTAL:
        metrics_count(&request->state->metrics.refused_memory);
        reply_problem(request, 503,
                      "other requests use the memory of this server: try again in a second; its "
                      "operator sets the limit with --total-memory");
        request->response->refused = "over --total-memory";
        return;
    case ACCOUNT_NOT_REFUSED:
        reply_problem(request, 503, "the server has no memory left for this request");
        request->response->refused = "without memory";
        return;
    }
}

void reply_no_memory(struct api_request *request) {
    reply_too_large(request, NULL, "");
}

void reply_codec_error(struct api_request *request, const struct codec_error *error) {
    static const int status[] = {
        [CODEC_SYNTAX] = 400,
        [CODEC_CONTENT] = 422,
        [CODEC_TOO_LARGE] = 413,
    };
    const char *pointer = error->has_pointer ? error->pointer : NULL;
    assert(error->status != CODEC_OK);
    if (error->status == CODEC_NO_MEMORY) {
        reply_too_large(request, pointer, "");
        return;
    }
    const struct http_place place = {error->offset, error->line, error->column};
    http_problem(request->response, request->http, status[error->status], error->message, pointer,
                 error->has_offset ? &place : NULL);
    if (error->status == CODEC_TOO_LARGE) {
        request->response->refused = "over a fixed limit";
    }
}

void reply_attn_error(struct api_request *request, const attn_error *error) {
    if (error->status == ATTN_NO_MEMORY) {
        reply_no_memory(request);
        return;
    }
    char pointer[sizeof error->argument + 1];
    snprintf(pointer, sizeof pointer, "/%s", error->argument);
    /* The argument of ATTN_NOT_FINITE is a stage and no member of the request. The message names
     * it. */
    const bool member = error->status != ATTN_NOT_FINITE && error->argument[0] != '\0';
    http_problem(request->response, request->http, 422, error->message, member ? pointer : NULL,
                 NULL);
}

/* ------------------------------------------------------------------------------------- answers */

static bool reply_read(void *writer, char *out, size_t room, size_t *size) {
    *size = codec_writer_read(writer, out, room);
    return true;
}

static void reply_release(void *writer) {
    codec_writer_free(writer);
}

/* Answers with a text that is made while it is sent. Returns false if there is no memory. */
static bool stream_items(struct api_request *request, const struct codec_items *items, int digits) {
    const size_t bytes = items->count * sizeof *items->list;
    struct codec_item *list = account_alloc(&request->account, bytes);
    if (list == NULL || !account_take(&request->account, STREAM)) {
        return false;
    }
    memcpy(list, items->list, bytes);
    struct codec_writer *writer = codec_writer_create(list, items->count, digits);
    if (writer == NULL) {
        return false;
    }
    request->response->status = 200;
    request->response->body = writer;
    request->response->read = reply_read;
    request->response->release = reply_release;
    return true;
}

/* Answers with a whole text, which has at most `bytes` bytes. Returns false if there is no
 * memory. */
static bool write_items(struct api_request *request, const struct codec_items *items, int digits,
                        size_t bytes) {
    struct codec_buffer buffer = {0};
    if (!codec_items_write(items, digits, 0, bytes, &buffer)) {
        return false;
    }
    request->response->status = 200;
    request->response->body = buffer.data;
    request->response->size = buffer.size;
    request->response->release = items->account != NULL ? NULL : free; /* it owns the text */
    return true;
}

void reply_json(struct api_request *request, struct codec_items *items, int digits) {
    const size_t most = items->account != NULL ? LONG_TEXT : SIZE_MAX;
    const size_t bytes = codec_items_bytes(items->list, items->count, digits, most);
    const bool done = !items->failed && (bytes > most ? stream_items(request, items, digits)
                                                      : write_items(request, items, digits, bytes));
    codec_items_free(items);
    if (!done) {
        reply_no_memory(request);
    }
}
