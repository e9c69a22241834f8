/* softmax.c - POST /softmax: softmax of any array along one axis. */
#include "api/call.h"
#include "api/reply.h"

#include <stdlib.h>

enum {
    EXP_COST = 200 /* multiply-adds that take as long as one exp */
};

static const char *const keys[] = {"X", "random", "axis", "dtype", "digits", "timeout"};

struct softmax {
    struct api_work work; /* first */
    attn_tensor x, out;   /* x is the body's, the data of out are owned */
    int axis, digits;
    attn_error error;
};

static bool read_request(const struct api_request *request, attn_tensor *x, int64_t *axis,
                         int *digits, double *seconds, struct codec_error *error) {
    const struct codec_document *document = request->body;
    const struct codec_value *root = codec_root(document);
    if (!codec_check_keys(document, root, keys, sizeof keys / sizeof *keys, NULL, 0, NULL, error) ||
        !prepare_matrices(request, error)) {
        return false;
    }
    const struct codec_value *value = codec_get(root, "X"), *along = codec_get(root, "axis");
    if (value == NULL) {
        return codec_fail(document, NULL, error, "X is missing");
    }
    return codec_as_bias(document, value, 1, ATTN_MAX_RANK, x, error) &&
           (along == NULL ||
            codec_as_integer(document, along, -ATTN_MAX_RANK, ATTN_MAX_RANK, axis, error)) &&
           call_read_common(document, digits, seconds, error);
}

static size_t one_task(const struct job *job, size_t phase) {
    (void)job;
    (void)phase;
    return 1;
}

static bool begin(struct job *job) {
    (void)job;
    return true;
}

static bool run(struct job *job, size_t phase, size_t task, void *scratch) {
    struct softmax *s = (struct softmax *)job;
    (void)phase;
    (void)task;
    (void)scratch;
    return attn_softmax(&s->x, s->axis, (void *)(uintptr_t)s->out.data, &s->error) == ATTN_OK;
}

static void answer(struct api_work *work, const struct http_request *request,
                   struct http_response *response) {
    struct softmax *s = (struct softmax *)work;
    struct reply_items list = {0};
    if (s->error.status != ATTN_OK) {
        reply_attn_error(request, response, &s->error);
        return;
    }
    reply_open(&list, CODEC_OP_OBJECT, NULL);
    reply_tensor(&list, "output", &s->out);
    reply_close(&list);
    reply_items(request, response, &list, s->digits);
}

static void release(struct api_work *work) {
    struct softmax *s = (struct softmax *)work;
    free((void *)(uintptr_t)s->out.data);
    free(s);
}

struct api_work *api_softmax(const struct api_request *request, struct http_response *response) {
    struct codec_error error = {0};
    attn_tensor x = {0};
    size_t count = 0, bytes = 0;
    int64_t axis = -1;
    int digits = 0;
    double seconds = 0;
    if (!read_request(request, &x, &axis, &digits, &seconds, &error)) {
        reply_codec_error(request->http, response, &error);
        return NULL;
    }
    attn_tensor_count(&x, &count);
    attn_tensor_bytes(&x, &bytes);
    const double cost = (double)count * EXP_COST;
    const double memory = (double)bytes + reply_text_memory((double)codec_text_bytes(&x, digits));
    if (!call_fits(request, response, cost, memory)) {
        return NULL;
    }
    struct softmax *s = malloc(sizeof *s);
    void *out = malloc(bytes);
    if (s == NULL || out == NULL) {
        free(s);
        free(out);
        reply_no_memory(request->http, response);
        return NULL;
    }
    *s = (struct softmax){
        .work = {.job = {.cost = cost, .phases = 1, .tasks = one_task, .begin = begin, .task = run},
                 .seconds = seconds,
                 .memory = (size_t)memory,
                 .answer = answer,
                 .release = release},
        .x = x,
        .out = x,
        .axis = (int)axis,
        .digits = digits,
    };
    s->out.data = out;
    return &s->work;
}
