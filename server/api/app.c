/*
 * app.c - takes a request from its headers to its end: finds the route, feeds the body to the codec
 * as it arrives, and has exchange.c make the answer. Long answers are encoded by the workers, in
 * pieces. The memory that a request holds counts in its account, from the first byte of its body to
 * the last byte of its answer.
 */
#include "api/exchange.h"
#include "api/format.h"
#include "api/inference.h"
#include "api/reply.h"
#include "clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Bytes. A shorter body is read even if the workers take no more, because its computation may
     * be small. */
    SMALL_BODY = 8192,
    /* Multiply-adds that take as long as encoding a piece of an answer, and one nanosecond. */
    COST_OF_PIECE = 10000000,
    COST_OF_NS = 70,
    /* Bytes of the arena of a request. The body of a notebook, its call and its answer fit. */
    ARENA = 24 * 1024,
    /* Bytes that every request holds: the 32 KiB buffer of its connection, the structs of the
     * server and of this folder, and the arena. */
    BASE = 40 * 1024 + ARENA
};

/* Returns the last segment of the path of a request that has a route. */
static const char *last_segment(const struct http_request *request) {
    return strrchr(request->path, '/') + 1;
}

/* Returns the path from the name of a layer on; the path need not have one. */
static const char *layer_of(const struct http_request *request) {
    const char *second = strchr(request->path + 1, '/');
    return second == NULL ? "" : second + 1;
}

static void app_release(void *arg);

static void *app_begin(void *context, const struct http_request *request,
                       struct http_response *response) {
    struct api_state *state = context;
    const struct api_route *route = api_find_route(request, response), *target = route;
    if (route == NULL) {
        return NULL;
    }
    const struct api_request bodiless = {
        .http = request, .state = state, .name = last_segment(request), .layer = layer_of(request)};
    char layer[LAYERS_NAME + 1] = "";
    if (route->handler == NULL) {
        target = inference_model(request->path);
        target = target != NULL ? target : inference_layer(state, request, layer);
        if (target == NULL) {
            inference_refuse_model(&bodiless, response);
            return NULL;
        }
    } else if (route->fields == 0) {
        route->handler(&bodiless, response);
        return NULL;
    }
    struct exchange *exchange = malloc(sizeof *exchange);
    if (exchange == NULL) {
        reply_no_memory(&bodiless, response);
        return NULL;
    }
    *exchange = (struct exchange){.target = target, .state = state, .request = bodiless};
    account_open(&exchange->account, &state->budget, BASE);
    exchange->request.name = target->path + 1;
    if (layer[0] != '\0') {
        memcpy(exchange->layer, layer, sizeof layer);
        exchange->request.name = exchange->request.layer = exchange->layer;
    }
    exchange->request.account = &exchange->account;
    exchange->request.fields = &exchange->fields;
    exchange->request.derived = &exchange->derived;
    exchange->request.tensors = &exchange->tensors;
    exchange->request.question = &exchange->question;
    exchange->request.format = route == target ? format_of_answer(request) : API_INFERENCE;
    pthread_mutex_init(&exchange->mutex, NULL);
    if (target->fields != API_NO_BODY &&
        !question_begin(&exchange->question, &exchange->request, target->fields, response)) {
        app_release(exchange);
        return NULL;
    }
    return exchange;
}

/* ------------------------------------------------------------------------------------- the body */

static bool app_hold(void *arg, size_t bytes) {
    struct exchange *exchange = arg;
    if (bytes > exchange->held && !account_take(&exchange->account, bytes - exchange->held)) {
        if (exchange->response == NULL) { /* the body cannot be read any further */
            codec_no_memory(&exchange->error);
            question_drop(&exchange->question);
        }
        return false;
    }
    if (bytes < exchange->held) {
        account_give(&exchange->account, exchange->held - bytes);
    }
    exchange->held = bytes;
    return true;
}

/* Takes BASE, which counts the arena, from the budget, and then makes the arena. A request whose
 * body has not begun needs none. If there is no memory for it, the account takes all blocks from
 * malloc. Returns false if the account refuses BASE. */
static bool make_arena(struct exchange *exchange) {
    if (!account_take(&exchange->account, 0)) {
        return false;
    }
    exchange->arena = malloc(ARENA);
    if (exchange->arena != NULL) {
        account_lend(&exchange->account, exchange->arena, ARENA);
    }
    return true;
}

/* Reads a piece of the body; the first piece opens it. Returns false if the body is wrong: the
 * error is kept, and what reads the body is freed. */
static bool read_piece(struct exchange *exchange, const void *bytes, size_t size) {
    struct codec_error *error = &exchange->error;
    if (!exchange->opened) {
        struct codec_options options = exchange->state->codec;
        options.account = &exchange->account;
        if (!make_arena(exchange) || !question_open(&exchange->question, &options)) {
            return codec_no_memory(error);
        }
        exchange->opened = true;
    }
    if (!question_feed(&exchange->question, bytes, size, error)) {
        question_drop(&exchange->question);
    }
    return error->status == CODEC_OK;
}

/* Reading numbers costs many times as much as dropping them. So no long body is read while the
 * workers take no more: a busy server would spend its time on reading what it then refuses. */
static bool app_body(void *arg, const void *bytes, size_t size) {
    struct exchange *exchange = arg;
    const int64_t start = clock_ns();
    bool more = false;
    if (exchange->target->fields == API_NO_BODY) {
        return false;
    }
    exchange->received += size;
    exchange->unwanted = exchange->received > SMALL_BODY && exchange->state->jobs != NULL &&
                         jobs_full(exchange->state->jobs);
    /* Only a complete body may use the reserve, because a client could let an incomplete body wait
     * for long. */
    exchange->account.small =
        exchange->received <= SMALL_BODY && exchange->received == exchange->request.http->length;
    if (exchange->unwanted) {
        question_drop(&exchange->question);
    } else {
        more = read_piece(exchange, bytes, size);
    }
    exchange->decode_ms += clock_ms_since(start);
    return more;
}

/* ------------------------------------------------------------------------------------- the end */

static bool app_end(void *arg, const struct http_request *request, struct http_response *response) {
    struct exchange *exchange = arg;
    const bool asks = exchange->target->fields != API_NO_BODY;
    exchange->request.http = request;
    exchange->response = response;
    exchange->submitted = clock_ns();
    if (asks && !exchange->opened && !exchange->unwanted && exchange->error.status == CODEC_OK) {
        /* The body is empty. The reader refuses it when it is finished. */
        read_piece(exchange, "", 0);
    }
    return exchange_answer(exchange);
}

static void app_start(void *arg, struct http_pending *pending) {
    struct exchange *exchange = arg;
    exchange->pending = pending;
    jobs_run(exchange->state->jobs, exchange->job);
}

static bool app_make_on_worker(struct job *job) {
    http_make(((struct exchange *)job->owner)->pending);
    return true;
}

static void app_made(struct job *job, enum job_outcome outcome) {
    (void)outcome; /* nothing cancels this job, because it is short */
    http_resume(((struct exchange *)job->owner)->pending);
}

static void app_make(void *arg, struct http_pending *pending) {
    struct exchange *exchange = arg;
    exchange->pending = pending;
    /* The next piece will cost what the last one did, which is more than COST_OF_PIECE if the
     * answer is compressed. */
    exchange->encoding.cost = fmax(COST_OF_PIECE, COST_OF_NS * (double)exchange->encoding.spent);
    exchange->encoding.phases = 0;
    exchange->encoding.begin = app_make_on_worker;
    exchange->encoding.done = app_made;
    exchange->encoding.owner = exchange;
    jobs_go_on(exchange->state->jobs, &exchange->encoding);
}

static void app_cancel(void *arg) {
    struct exchange *exchange = arg;
    pthread_mutex_lock(&exchange->mutex);
    exchange->cancelled = true;
    if (exchange->job != NULL) {
        jobs_cancel(exchange->job);
    }
    pthread_mutex_unlock(&exchange->mutex);
}

static void app_release(void *arg) {
    struct exchange *exchange = arg;
    exchange_drop_work(exchange);
    if (exchange->account.peak > 0) {
        metrics_held(&exchange->state->metrics, exchange->account.peak);
    }
    account_close(&exchange->account);
    pthread_mutex_destroy(&exchange->mutex);
    free(exchange->arena);
    free(exchange);
}

static void app_completed(void *context, const struct http_request *request,
                          const struct http_record *record) {
    struct api_state *state = context;
    const size_t index = api_route_of(request->path);
    metrics_completed(&state->metrics, index, record);
    if (index < api_route_count && api_routes[index].handler == NULL) {
        const struct api_route *model = inference_model(request->path);
        if (model != NULL) {
            metrics_inferred(&state->metrics, (size_t)(model - api_routes), record);
        }
    }
}

struct http_app api_app(struct api_state *state) {
    state->codec = (struct codec_options){.dtype_key = fields_dtype_key(),
                                          .infinity_key = fields_infinity_key()};
    assets_set_policy(state);
    state->metrics.route_count = api_route_count;
    for (size_t i = 0; i < api_route_count; i++) {
        state->metrics.routes[i] = api_routes[i].path;
    }
    return (struct http_app){
        .context = state,
        .inference_path = INFERENCE_PATH,
        .shorter = question_shorter,
        .begin = app_begin,
        .hold = app_hold,
        .body = app_body,
        .end = app_end,
        .start = app_start,
        .cancel = app_cancel,
        .make = state->jobs != NULL ? app_make : NULL,
        .release = app_release,
        .completed = app_completed,
    };
}
