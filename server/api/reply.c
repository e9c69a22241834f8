/* reply.c - see reply.h. */
#include "api/reply.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    LONG_TEXT = 1 << 20 /* bytes of an answer from which on it is not held whole */
};

/* ------------------------------------------------------------------------------------ problems */

void reply_no_memory(const struct http_request *request, struct http_response *response) {
    http_problem(response, request, 503, "the server has no memory left for this request", NULL,
                 -1);
}

void reply_codec_error(const struct http_request *request, struct http_response *response,
                       const struct codec_error *error) {
    static const int status[] = {
        [CODEC_SYNTAX] = 400,
        [CODEC_CONTENT] = 422,
        [CODEC_TOO_LARGE] = 413,
    };
    assert(error->status != CODEC_OK);
    if (error->status == CODEC_NO_MEMORY) {
        reply_no_memory(request, response);
        return;
    }
    http_problem(response, request, status[error->status], error->message,
                 error->has_pointer ? error->pointer : NULL,
                 error->has_offset ? (int64_t)error->offset : -1);
}

void reply_attn_error(const struct http_request *request, struct http_response *response,
                      const attn_error *error) {
    if (error->status == ATTN_NO_MEMORY) {
        reply_no_memory(request, response);
        return;
    }
    char pointer[sizeof error->argument + 1];
    snprintf(pointer, sizeof pointer, "/%s", error->argument);
    /* A stage that overflows is no member of the request: the message says where it is. */
    const bool member = error->status != ATTN_NOT_FINITE && error->argument[0] != '\0';
    http_problem(response, request, 422, error->message, member ? pointer : NULL, -1);
}

/* ------------------------------------------------------------------------------------- answers */

static void add(struct reply_items *list, struct codec_item item) {
    if (list->count == list->capacity && !list->failed) {
        const size_t capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
        struct codec_item *items = realloc(list->items, capacity * sizeof *items);
        list->failed = items == NULL;
        if (!list->failed) {
            list->items = items;
            list->capacity = capacity;
        }
    }
    if (!list->failed) {
        list->items[list->count++] = item;
    }
}

void reply_open(struct reply_items *list, enum codec_op op, const char *key) {
    add(list, (struct codec_item){.op = op, .key = key});
}

void reply_close(struct reply_items *list) {
    add(list, (struct codec_item){.op = CODEC_OP_END});
}

void reply_tensor(struct reply_items *list, const char *key, const attn_tensor *tensor) {
    add(list, (struct codec_item){.op = CODEC_OP_TENSOR, .key = key, .tensor = *tensor});
}

void reply_text(struct reply_items *list, const char *key, const char *text) {
    add(list, (struct codec_item){.op = CODEC_OP_TEXT, .key = key, .text = text});
}

void reply_texts(struct reply_items *list, const char *key, const char *const *texts,
                 size_t count) {
    reply_open(list, CODEC_OP_ARRAY, key);
    for (size_t i = 0; i < count; i++) {
        reply_text(list, NULL, texts[i]);
    }
    reply_close(list);
}

void reply_number(struct reply_items *list, const char *key, double number) {
    add(list, (struct codec_item){.op = CODEC_OP_NUMBER, .key = key, .number = number});
}

/* An answer that is encoded while it is sent. */
struct stream {
    struct codec_writer *writer;
    struct codec_item *items;
};

static bool read_stream(void *stream, char *out, size_t room, size_t *size) {
    return codec_writer_read(((struct stream *)stream)->writer, out, room, size);
}

static void free_stream(void *stream_) {
    struct stream *stream = stream_;
    codec_writer_free(stream->writer);
    free(stream->items);
    free(stream);
}

/* Takes the items. False if there is no memory. */
static bool stream_items(struct http_response *response, struct reply_items *list, int digits) {
    struct stream *stream = malloc(sizeof *stream);
    struct codec_writer *writer = codec_writer_create(list->items, list->count, digits);
    if (stream == NULL || writer == NULL) {
        free(stream);
        codec_writer_free(writer);
        return false;
    }
    *stream = (struct stream){writer, list->items};
    list->items = NULL;
    response->status = 200;
    response->body = stream;
    response->read = read_stream;
    response->release = free_stream;
    return true;
}

static bool write_items(struct http_response *response, const struct reply_items *list,
                        int digits) {
    struct codec_buffer buffer = {0};
    if (!codec_write(&buffer, list->items, list->count, digits)) {
        free(buffer.data);
        return false;
    }
    response->status = 200;
    response->body = buffer.data;
    response->size = buffer.size;
    response->release = free;
    return true;
}

double reply_text_memory(double text) {
    return text > LONG_TEXT ? 0 : text;
}

void reply_items(const struct http_request *request, struct http_response *response,
                 struct reply_items *list, int digits) {
    const int64_t start = jobs_clock();
    double text = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].op == CODEC_OP_TENSOR) {
            text += (double)codec_text_bytes(&list->items[i].tensor, digits);
        }
    }
    if (list->failed || !(text > LONG_TEXT ? stream_items(response, list, digits)
                                           : write_items(response, list, digits))) {
        reply_no_memory(request, response);
    }
    free(list->items);
    response->timing[HTTP_TIMING_ENCODE] = (double)(jobs_clock() - start) * 1e-6;
}
