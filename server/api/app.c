/*
 * app.c - takes a request from its headers to its answer: finds the route, feeds the body to the
 * codec as it arrives, checks its keys and makes its derived matrices, calls the handler, and has
 * the work computed that the handler leaves.
 *
 * The thread that received a small request answers it at once. Everything else is a job for the
 * workers: parsing long bodies, planning for many heads, computing, and encoding long answers. A
 * request is refused if the workers have too much to do. The memory that a request holds counts in
 * its account, from the first byte of its body to the last byte of its answer.
 */
#include "api/api.h"
#include "api/derived.h"
#include "api/fields.h"
#include "api/format.h"
#include "api/inference.h"
#include "api/question.h"
#include "api/tensors.h"
#include "clock.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Multiply-adds. They take about 70 us, several times as long as handing a job to a worker. */
    SMALL_COST = 5000000,
    /* Bytes. A shorter body is read even if the workers take no more, because its computation may
     * be small. */
    SMALL_BODY = 8192,
    /* An I/O thread opens no request that exceeds one of these limits. Each is worth 0.25 ms. JSON
     * before binary tensors has limits of its own in question.c, because it is parsed while the
     * body arrives. */
    SMALL_SKELETON = 16 * 1024,  /* bytes outside of matrices */
    SMALL_VALUES = 1024,         /* values outside of matrices */
    SMALL_PARTS = 2048,          /* heads of all batch items */
    SMALL_NUMBERS = 64 * 1024,   /* numbers of masks and datatypes that are looked at one by one */
    PIECE_NUMBERS = 1024 * 1024, /* so many of them are looked at in one task */
    /* Multiply-adds that take as long as parsing a value, parsing a byte, planning for a part,
     * settling a number, encoding a piece of an answer, and one nanosecond. */
    COST_OF_VALUE = 20000,
    COST_OF_BYTE = 800,
    COST_OF_PART = 3000,
    COST_OF_NUMBER = 150,
    COST_OF_PIECE = 10000000,
    COST_OF_NS = 70,
    /* Bytes of the arena of a request. The body of a notebook, its call and its answer fit. */
    ARENA = 24 * 1024,
    /* Bytes that every request holds: the 32 KiB buffer of its connection, the structs of the
     * server and of this folder, and the arena. */
    BASE = 40 * 1024 + ARENA
};

/* A request with a body, from its headers to the end of its answer. */
struct exchange {
    const struct api_route *target; /* the endpoint, or the model of the path; has the handler */
    struct api_state *state;        /* borrowed */
    struct account account;
    char *arena; /* owned; ARENA bytes, which the account lends; NULL before the first piece */
    struct api_request request; /* what the handler gets */
    struct http_response *response;
    char layer[LAYERS_NAME + 1];     /* the layer that is the model of the path, or empty */
    struct question question;        /* the body while it comes */
    bool opened;                     /* the first piece of the body has come */
    struct tensors_answer tensors;   /* used if the answer has binary tensors */
    struct codec_document *document; /* owned; the body, once it is parsed */
    struct codec_error error;        /* what is wrong with the body; status 0 = nothing */
    struct fields fields;            /* the members of the body */
    struct derived derived;
    struct api_work *work; /* owned; what the handler left, or NULL */
    size_t held;           /* bytes that the server holds for compressed bodies and answers */
    size_t received;       /* bytes of the body so far */
    bool unwanted;         /* the workers took no more while the body came */
    double decode_ms;
    int64_t submitted; /* clock_ns() when the body was complete */

    /* The rest is used only if workers take part. */
    struct http_pending *pending;
    struct job opening;    /* parses the body and calls the handler */
    struct job encoding;   /* encodes a piece of the answer */
    pthread_mutex_t mutex; /* guards the next two members */
    struct job *job;       /* the job that app_cancel() cancels, or NULL */
    bool cancelled;
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

/* ------------------------------------------------------------------------------ the computation */

/* Fills the times of the header Server-Timing, except the time of encoding. */
static void tell_times(struct exchange *exchange, double queue_ms, double compute_ms) {
    struct http_response *response = exchange->response;
    response->timed = true;
    response->timing[HTTP_TIMING_DECODE] = exchange->decode_ms;
    response->timing[HTTP_TIMING_QUEUE] = queue_ms;
    response->timing[HTTP_TIMING_COMPUTE] = compute_ms;
}

static bool refuse_work(struct exchange *exchange) {
    metrics_count(&exchange->state->metrics.refused_queue);
    http_problem(exchange->response, exchange->request.http, 503,
                 "the queue of this server is full: try again in a second; its operator sets the "
                 "limit with --max-queue",
                 NULL, NULL);
    exchange->response->refused = "over --max-queue";
    return true;
}

/* Returns the seconds that the request may take. */
static double seconds_of(const struct exchange *exchange) {
    const double wanted = exchange->work != NULL ? exchange->work->seconds : 0;
    const double most = exchange->state->timeout;
    return wanted > 0 && wanted < most ? wanted : most;
}

/* Answers that a request is late. It may succeed later if it shared the workers with others.
 * Whoever gives it a time of its own must give it more, because a client that repeats it as it is
 * would do so in vain. */
static void refuse_late(struct exchange *exchange) {
    struct http_response *response = exchange->response;
    const bool own = seconds_of(exchange) < exchange->state->timeout;
    const bool shared = exchange->state->jobs != NULL && jobs_load(exchange->state->jobs).jobs > 0;
    char detail[256];
    metrics_count(&exchange->state->metrics.late);
    snprintf(detail, sizeof detail, "the answer was not computed within %g s, %s",
             seconds_of(exchange),
             own      ? "the \"timeout\" of the request: give it more time, or ask for less"
             : shared ? "a limit that the operator of this server sets with --compute-timeout: try "
                        "again in a second, because other requests are computed at the same time"
                      : "a limit that the operator of this server sets with --compute-timeout: ask "
                        "for less, because no other request is computed at the same time");
    http_problem(response, exchange->request.http, 503, detail, NULL, NULL);
    response->refused = own ? NULL : "over --compute-timeout";
    response->lasting = own || !shared;
}

/* Fills the response of a request whose last job has ended. */
static void conclude(struct exchange *exchange, const struct job *job, enum job_outcome outcome) {
    const struct http_request *request = exchange->request.http;
    struct http_response *response = exchange->response;
    const int64_t now = clock_ns(), begun = job->begun != 0 ? job->begun : now;
    metrics_computed(&exchange->state->metrics, outcome == JOB_DONE ? job->cost : 0, job->spent,
                     job->longest);
    switch (outcome) {
    case JOB_DONE:
    case JOB_FAILED:
        exchange->work->answer(exchange->work, &exchange->request, response);
        break;
    case JOB_NO_MEMORY:
        reply_no_memory(&exchange->request, response);
        break;
    case JOB_LATE:
        refuse_late(exchange);
        break;
    case JOB_CANCELLED:
        metrics_count(&exchange->state->metrics.cancelled);
        http_problem(
            response, request, 503,
            "the computation was given up: the client left, or the server is about to stop", NULL,
            NULL);
        break;
    }
    tell_times(exchange, (double)(begun - exchange->submitted) * 1e-6,
               (double)(now - begun) * 1e-6);
}

/* Frees everything but the response, so that the matrices do not wait until a slow client has its
 * answer. An answer that is made while it is sent needs them until its end. */
static void drop_work(struct exchange *exchange) {
    if (exchange->job != NULL) { /* only this thread sets it */
        pthread_mutex_lock(&exchange->mutex);
        exchange->job = NULL;
        pthread_mutex_unlock(&exchange->mutex);
    }
    if (exchange->work != NULL) {
        const size_t memory = exchange->work->memory;
        exchange->work->release(exchange->work);
        exchange->work = NULL;
        account_give(&exchange->account, memory);
    }
    derived_free(&exchange->derived);
    codec_document_free(exchange->document);
    exchange->document = NULL;
    question_drop(&exchange->question);
}

/* Frees what a filled response does not need. Returns true, the result of app_end() for a response
 * that is filled. */
static bool respond(struct exchange *exchange) {
    if (exchange->response->read == NULL) {
        drop_work(exchange);
    }
    return true;
}

static void resume(struct exchange *exchange) {
    respond(exchange);
    http_resume(exchange->pending);
}

/* The number of tasks of a job with phases of one task each, and of a job that only begins. */
static size_t app_one_task(const struct job *job, size_t phase) {
    (void)job;
    (void)phase;
    return 1;
}

static bool app_begin_nothing(struct job *job) {
    (void)job;
    return true;
}

/* Looks at results that a narrower type may not hold. */
static bool app_look_on_worker(struct job *job, size_t phase, size_t task, void *scratch) {
    struct exchange *exchange = job->owner;
    (void)phase;
    (void)task;
    (void)scratch;
    if (exchange->tensors.looks) {
        tensors_look(&exchange->request, exchange->response);
    }
    return true;
}

static void app_looked(struct job *job, enum job_outcome outcome) {
    (void)outcome; /* nothing cancels this job, because it is short */
    resume(job->owner);
}

static void app_computed(struct job *job, enum job_outcome outcome) {
    struct exchange *exchange = job->owner;
    conclude(exchange, job, outcome);
    if (!exchange->tensors.looks) {
        resume(exchange);
        return;
    }
    exchange->encoding.phases = tensors_pieces(&exchange->tensors);
    exchange->encoding.cost = (double)exchange->encoding.phases * PIECE_NUMBERS * COST_OF_NUMBER;
    exchange->encoding.tasks = app_one_task;
    exchange->encoding.begin = app_begin_nothing;
    exchange->encoding.task = app_look_on_worker;
    exchange->encoding.done = app_looked;
    exchange->encoding.owner = exchange;
    jobs_go_on(exchange->state->jobs, &exchange->encoding);
}

/* Asks the workers to take a job, which then is the job of the request. Returns false after filling
 * the response if they have too much to do. A request that was cancelled has its job cancelled. */
static bool admit(struct exchange *exchange, struct job *job,
                  void (*done)(struct job *, enum job_outcome)) {
    job->owner = exchange;
    job->done = done;
    job->deadline = exchange->submitted + (int64_t)(seconds_of(exchange) * 1e9);
    if (!jobs_admit(exchange->state->jobs, job)) {
        refuse_work(exchange);
        return false;
    }
    pthread_mutex_lock(&exchange->mutex);
    exchange->job = job;
    if (exchange->cancelled) {
        jobs_cancel(job);
    }
    pthread_mutex_unlock(&exchange->mutex);
    return true;
}

/* Begins the work that the handler left: computes it here if it is small. Returns the job that the
 * workers must run, or NULL if the response is filled. */
static struct job *begin_work(struct exchange *exchange) {
    struct job *job = derived_job(&exchange->derived, &exchange->work->job);
    if (exchange->state->jobs == NULL || job->cost <= SMALL_COST) {
        conclude(exchange, job, jobs_run_here(job));
        while (exchange->tensors.looks) {
            tensors_look(&exchange->request, exchange->response);
        }
        return NULL;
    }
    return admit(exchange, job, app_computed) ? job : NULL;
}

/* Parses the body, which has been read. `start` is the present clock_ns(). Returns false after
 * filling the response if the body is wrong. */
static bool parse(struct exchange *exchange, int64_t start) {
    exchange->document = question_finish(&exchange->question, &exchange->error);
    question_drop(&exchange->question);
    exchange->decode_ms += clock_ms_since(start);
    exchange->request.body = exchange->document;
    if (exchange->document == NULL) {
        reply_codec_error(&exchange->request, exchange->response, &exchange->error);
        tell_times(exchange, 0, 0);
        return false;
    }
    fields_find(&exchange->fields, codec_root(exchange->document), exchange->target->fields);
    fields_expect_masks(&exchange->fields, exchange->document);
    return true;
}

/* Looks at the next numbers of the matrices that need it. Returns false after filling the response
 * if a number is wrong. */
static bool settle(struct exchange *exchange, size_t most) {
    if (codec_settle(exchange->document, most, &exchange->error)) {
        return true;
    }
    reply_codec_error(&exchange->request, exchange->response, &exchange->error);
    tell_times(exchange, 0, 0);
    return false;
}

/* Checks the keys, makes the derived matrices and calls the handler. Returns false if the response
 * is filled, and true if the handler has left work. */
static bool handle(struct exchange *exchange) {
    if (!settle(exchange, SIZE_MAX)) {
        return false;
    }
    if (fields_check(&exchange->fields, exchange->document, codec_root(exchange->document),
                     &exchange->error) &&
        derived_make(&exchange->derived, &exchange->fields, exchange->document, &exchange->account,
                     &exchange->error)) {
        exchange->work = exchange->target->handler(&exchange->request, exchange->response);
    } else {
        reply_codec_error(&exchange->request, exchange->response, &exchange->error);
    }
    if (exchange->work == NULL) {
        tell_times(exchange, 0, 0);
    }
    return exchange->work != NULL;
}

/* Calls the handler of a route whose body is no question. Returns as handle() does. */
static bool handle_alone(struct exchange *exchange) {
    if (account_take(&exchange->account, 0)) { /* BASE */
        exchange->work = exchange->target->handler(&exchange->request, exchange->response);
    } else {
        reply_no_memory(&exchange->request, exchange->response);
    }
    return exchange->work != NULL;
}

/* ------------------------------------------------------- opening requests that are not short */

static bool app_parse_on_worker(struct job *job) {
    struct exchange *exchange = job->owner;
    if (exchange->document == NULL) {
        parse(exchange, clock_ns());
    }
    return true;
}

static bool app_open_on_worker(struct job *job, size_t phase, size_t task, void *scratch) {
    struct exchange *exchange = job->owner;
    (void)task;
    (void)scratch;
    if (exchange->response->status != 0) {
        return true; /* the request is refused */
    }
    if (phase + 1 < job->phases) {
        settle(exchange, PIECE_NUMBERS);
    } else {
        handle(exchange);
    }
    return true;
}

static void app_opened(struct job *job, enum job_outcome outcome) {
    struct exchange *exchange = job->owner;
    if (outcome != JOB_DONE) {
        /* A job that was cancelled while it ran may have filled the response, which is then
         * sent. */
        if (exchange->response->status == 0) {
            conclude(exchange, job, outcome);
        }
        resume(exchange);
        return;
    }
    metrics_computed(&exchange->state->metrics, job->cost, job->spent, job->longest);
    if (exchange->work != NULL) {
        struct job *next = begin_work(exchange);
        if (next != NULL) {
            jobs_run(exchange->state->jobs, next);
            return;
        }
    }
    resume(exchange);
}

/* Leaves the opening to the workers: one phase for each piece of numbers, and one for the handler.
 * `numbers` is the most that are to be settled. Returns true after
 * filling the response if they refuse it. */
static bool open_later(struct exchange *exchange, double cost, size_t numbers) {
    exchange->opening.cost = cost;
    exchange->opening.phases = numbers / PIECE_NUMBERS + 1; /* the last one settles the rest */
    exchange->opening.tasks = app_one_task;
    exchange->opening.begin = app_parse_on_worker;
    exchange->opening.task = app_open_on_worker;
    return !admit(exchange, &exchange->opening, app_opened) && respond(exchange);
}

/* ------------------------------------------------------------------------------------- the end */

/* Returns whether parsing the body takes so little time that an I/O thread does it. */
static bool is_short(const struct question *question) {
    return question_values(question) <= SMALL_VALUES &&
           question_skeleton(question) <= SMALL_SKELETON;
}

static bool app_end(void *arg, const struct http_request *request, struct http_response *response) {
    struct exchange *exchange = arg;
    exchange->request.http = request;
    exchange->response = response;
    exchange->submitted = clock_ns();
    if (exchange->unwanted) {
        return refuse_work(exchange);
    }
    const bool asks = exchange->target->fields != API_NO_BODY;
    if (asks && !exchange->opened && exchange->error.status == CODEC_OK) {
        /* The body is empty. The reader refuses it when it is finished. */
        read_piece(exchange, "", 0);
    }
    if (exchange->error.status != CODEC_OK) {
        reply_codec_error(&exchange->request, response, &exchange->error);
        tell_times(exchange, 0, 0);
        return respond(exchange);
    }
    if (!asks) {
        return (!handle_alone(exchange) || begin_work(exchange) == NULL) && respond(exchange);
    }
    const struct question *question = &exchange->question;
    if (!is_short(question) && exchange->state->jobs != NULL) {
        /* A number takes two bytes at least, and it is settled twice at most. */
        return open_later(exchange,
                          (double)question_values(question) * COST_OF_VALUE +
                              (double)question_skeleton(question) * COST_OF_BYTE,
                          exchange->received);
    }
    if (!parse(exchange, exchange->submitted)) {
        return respond(exchange);
    }
    const double parts = derived_parts(&exchange->fields, exchange->document);
    const size_t numbers = codec_unsettled(exchange->document);
    if ((parts > SMALL_PARTS || numbers > SMALL_NUMBERS) && exchange->state->jobs != NULL) {
        return open_later(exchange, parts * COST_OF_PART + (double)numbers * COST_OF_NUMBER,
                          numbers);
    }
    return (!handle(exchange) || begin_work(exchange) == NULL) && respond(exchange);
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
    exchange->encoding.tasks = app_one_task;
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
    drop_work(exchange);
    tensors_free(&exchange->tensors);
    question_free(&exchange->question);
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
