/*
 * app.c - takes a request from its headers to its end: finds the route, feeds the body to the codec
 * as it arrives, and has request.c make the answer. Long answers are encoded by the workers, in
 * chunks. The memory that a request holds counts in its account, from the first byte of its body to
 * the last byte of its answer.
 */
#include "api/formats/format.h"
#include "api/formats/inference.h"
#include "api/reply.h"
#include "api/request.h"
#include "clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Bytes. A shorter body is read even if the workers take no more, because its computation may
     * be small. */
    SMALL_BODY = 8192,
    /* Multiply-adds that take as long as encoding a chunk of an answer, and one nanosecond. */
    COST_OF_CHUNK = 10000000,
    COST_OF_NS = 70,
    /* Bytes of the arena of a request. The body of a notebook, its call and its answer fit. */
    ARENA = 24 * 1024,
    /* Bytes that every request holds: the 32 KiB buffer of its connection, the structs of the
     * server and of this folder, and the arena. */
    BASE = 40 * 1024 + ARENA
};

/* Writes what {name} or {model} in the path of a route stands for. */
static void copy_name(const struct api_route *route, const char *path,
                      char name[static LAYERS_NAME + 2]) {
    const char *brace = strchr(route->path, '{');
    if (brace != NULL) {
        const char *own = path + (brace - route->path);
        snprintf(name, LAYERS_NAME + 2, "%.*s", (int)strcspn(own, "/"), own);
    }
}

static void open_request(struct api_request *request, struct api_state *state,
                         const struct http_request *http, struct http_response *response,
                         const struct api_route *route) {
    memset(request, 0, offsetof(struct api_request, fields.given));
    request->state = state;
    request->http = http;
    request->response = response;
    request->route = route;
    copy_name(route, http->path, request->name);
    account_open(&request->account, &state->budget, BASE);
}

static void app_release(void *arg);

static void *app_begin(void *context, const struct http_request *http,
                       struct http_response *response) {
    const struct api_route *route = http->route;
    if (!api_check_route(http, response)) {
        return NULL;
    }
    const bool inference = route->handler == NULL, stays = inference || route->fields != 0;
    struct api_request short_lived, *request = stays ? malloc(sizeof *request) : NULL;
    if (request == NULL) {
        open_request(&short_lived, context, http, response, route);
        if (stays) {
            reply_no_memory(&short_lived);
        } else {
            route->handler(&short_lived);
        }
        account_close(&short_lived.account);
        return NULL;
    }
    open_request(request, context, http, response, route);
    pthread_mutex_init(&request->run.mutex, NULL);
    request->format = inference ? API_INFERENCE : format_of_answer(http);
    if ((inference && !inference_find(request)) ||
        (request->route->fields != API_NO_BODY && !decoder_begin(request))) {
        app_release(request);
        return NULL;
    }
    request->response = NULL;
    return request;
}

/* ------------------------------------------------------------------------------------- the body */

static bool app_hold(void *arg, size_t bytes) {
    struct api_request *request = arg;
    if (bytes > request->input.held &&
        !account_take(&request->account, bytes - request->input.held)) {
        if (request->response == NULL) { /* the body cannot be read any further */
            codec_no_memory(&request->input.error);
            decoder_drop(&request->input.decoder);
        }
        return false;
    }
    if (bytes < request->input.held) {
        account_give(&request->account, request->input.held - bytes);
    }
    request->input.held = bytes;
    return true;
}

/* Takes BASE, which counts the arena, from the budget, and then makes the arena. A request whose
 * body has not begun needs none. If there is no memory for it, the account takes all blocks from
 * malloc. Returns false if the account refuses BASE. */
static bool make_arena(struct api_request *request) {
    if (!account_take(&request->account, 0)) {
        return false;
    }
    request->arena = malloc(ARENA);
    if (request->arena != NULL) {
        account_lend(&request->account, request->arena, ARENA);
    }
    return true;
}

/* Reads a chunk of the body; the first chunk opens it. Returns false if the body is wrong: the
 * error is kept, and what reads the body is freed. */
static bool read_chunk(struct api_request *request, const void *bytes, size_t size) {
    struct codec_error *error = &request->input.error;
    if (!request->input.opened) {
        struct codec_options options = request->state->codec;
        options.account = &request->account;
        if (!make_arena(request) || !decoder_open(&request->input.decoder, &options)) {
            return codec_no_memory(error);
        }
        request->input.opened = true;
    }
    if (!decoder_feed(&request->input.decoder, bytes, size, error)) {
        decoder_drop(&request->input.decoder);
    }
    return error->status == CODEC_OK;
}

/* Reading numbers costs many times as much as dropping them. So no long body is read while the
 * workers take no more: a busy server would spend its time on reading what it then refuses. */
static bool app_body(void *arg, const void *bytes, size_t size) {
    struct api_request *request = arg;
    const int64_t start = clock_ns();
    bool more = false;
    if (request->route->fields == API_NO_BODY) {
        return false;
    }
    request->input.received += size;
    request->input.unwanted = request->input.received > SMALL_BODY &&
                              request->state->jobs != NULL && jobs_full(request->state->jobs);
    /* Only a complete body may use the reserve, because a client could let an incomplete body wait
     * for long. */
    request->account.small =
        request->input.received <= SMALL_BODY && request->input.received == request->http->length;
    if (request->input.unwanted) {
        decoder_drop(&request->input.decoder);
    } else {
        more = read_chunk(request, bytes, size);
    }
    request->input.decode_ms += clock_ms_since(start);
    return more;
}

/* ------------------------------------------------------------------------------------- the end */

static bool app_end(void *arg, const struct http_request *http, struct http_response *response) {
    struct api_request *request = arg;
    const bool asks = request->route->fields != API_NO_BODY;
    request->http = http;
    request->response = response;
    request->run.submitted = clock_ns();
    if (asks && !request->input.opened && !request->input.unwanted &&
        request->input.error.status == CODEC_OK) {
        /* The body is empty. The reader refuses it when it is finished. */
        read_chunk(request, "", 0);
    }
    return request_answer(request);
}

static void app_start(void *arg, struct http_pending *pending) {
    struct api_request *request = arg;
    request->run.pending = pending;
    jobs_run(request->state->jobs, request->run.job);
}

static bool app_make_on_worker(void *request, const struct jobs_task *task) {
    (void)task;
    http_make(((struct api_request *)request)->run.pending);
    return true;
}

static void app_made(struct job *job, enum job_outcome outcome) {
    (void)outcome; /* nothing cancels this job, because it is short */
    http_resume(((struct api_request *)job->owner)->run.pending);
}

static void app_make(void *arg, struct http_pending *pending) {
    struct api_request *request = arg;
    const int64_t last = request->run.encoding.spent;
    request->run.pending = pending;
    /* The next chunk will cost what the last one did, which is more than COST_OF_CHUNK if the
     * answer is compressed. */
    request_go_on(request, 1, fmax(COST_OF_CHUNK, COST_OF_NS * (double)last), app_make_on_worker,
                  app_made);
}

static void app_cancel(void *arg) {
    struct api_request *request = arg;
    pthread_mutex_lock(&request->run.mutex);
    request->run.cancelled = true;
    if (request->run.job != NULL) {
        jobs_cancel(request->run.job);
    }
    pthread_mutex_unlock(&request->run.mutex);
}

static void app_release(void *arg) {
    struct api_request *request = arg;
    request_drop_work(request);
    if (request->account.peak > 0) {
        metrics_held(&request->state->metrics, request->account.peak);
    }
    account_close(&request->account);
    pthread_mutex_destroy(&request->run.mutex);
    free(request->arena);
    free(request);
}

static void app_completed(void *context, const struct http_request *request,
                          const struct http_record *record) {
    struct api_state *state = context;
    const struct api_route *route = request->route;
    metrics_completed(&state->metrics,
                      route != NULL ? (size_t)(route - api_routes) : api_route_count, record);
    if (route != NULL && route->handler == NULL) {
        char name[LAYERS_NAME + 2];
        copy_name(route, request->path, name);
        const struct api_route *model = inference_model(state, name);
        if (model != NULL) {
            metrics_inferred(&state->metrics, (size_t)(model - api_routes), record);
        }
    }
}

struct http_app api_app(struct api_state *state) {
    fields_infinity_keys(state->infinity_keys);
    state->codec = (struct codec_options){.dtype_key = fields_dtype_key(),
                                          .infinity_keys = state->infinity_keys};
    state->routes = api_routes;
    assets_set_policy(state);
    return (struct http_app){
        .context = state,
        .inference_path = INFERENCE_PATH,
        .find = api_route_of,
        .shorter = decoder_shorter,
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
