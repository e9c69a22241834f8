/*
 * exchange.c - one request from its headers to its answer: finds the route, refuses what no handler
 * should see, feeds the body to the codec as it arrives, calls the handler, and has made
 * (prepare.h) and computed what that leaves: at once if it is little, else by the workers, if these
 * are not too busy.
 */
#include "api/api.h"
#include "api/reply.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SMALL_COST = 2000000, /* multiply-adds, about 25 us: what handing a job to the workers costs */
    SMALL_BODY = 8192 /* bytes that are read even if the workers take no more: it may be small */
};

struct exchange {
    const struct api_route *route;
    struct api_service *service;
    struct codec_reader *reader;
    struct codec_document *document;
    struct prepare prepare;
    struct api_work *work;
    struct job *job; /* of the work, or what comes before it as well */
    size_t memory;   /* of service->memory */
    size_t held;     /* bytes of it that the server holds for the body */
    size_t received;
    bool over;     /* there was none left for the body */
    bool unwanted; /* the workers took no more while it came */
    double decode_ms;
    int64_t submitted; /* jobs_clock() */
    /* While the workers compute. */
    const struct http_request *request;
    struct http_response *response;
    struct http_pending *pending;
};

/* "GET, HEAD" or "POST": the Allow header of a path with this method. */
static const char *allowed(const char *method) {
    return strcmp(method, "GET") == 0 ? "GET, HEAD" : method;
}

static const struct api_route *find_route(const struct http_request *request,
                                          struct http_response *response) {
    const size_t index = api_route_of(request->path);
    char detail[256];
    if (!request->authorized && (index == api_route_count || !api_routes[index].open)) {
        http_problem(
            response, request, 401,
            "a key is needed: send \"Authorization: Bearer KEY\" with one of this server's", NULL,
            -1);
        return NULL;
    }
    if (index == api_route_count) {
        snprintf(detail, sizeof detail,
                 "there is nothing at %.100s; /openapi.yaml lists every path", request->path);
        http_problem(response, request, 404, detail, NULL, -1);
        return NULL;
    }
    const struct api_route *route = &api_routes[index];
    if (strcmp(route->method, request->method) == 0) {
        return route;
    }
    snprintf(detail, sizeof detail, "%.20s is not a method of %s; use %s", request->method,
             route->path, allowed(route->method));
    http_problem(response, request, 405, detail, NULL, -1);
    response->allow = allowed(route->method);
    return NULL;
}

/* Of a request that has a route. */
static const char *name_of(const struct http_request *request) {
    return strrchr(request->path, '/') + 1;
}

/* JSON, or no type at all, or the type that `curl -d` sends unless told otherwise. */
static bool is_json(const char *media_type) {
    return media_type[0] == '\0' || strcmp(media_type, "application/json") == 0 ||
           strcmp(media_type, "application/x-www-form-urlencoded") == 0;
}

static void *begin(void *context, const struct http_request *request,
                   struct http_response *response) {
    struct api_service *service = context;
    const struct api_route *route = find_route(request, response);
    if (route == NULL) {
        return NULL;
    }
    if (strcmp(route->method, "GET") == 0) {
        const struct api_request call = {
            .http = request, .service = service, .name = name_of(request)};
        route->handler(&call, response);
        return NULL;
    }
    if (!is_json(request->media_type)) {
        char detail[256];
        snprintf(detail, sizeof detail, "the body is %.100s; it must be application/json",
                 request->media_type);
        http_problem(response, request, 415, detail, NULL, -1);
        return NULL;
    }
    const struct codec_limits bounds = {.max_tensors = api_most_memory(service)};
    struct exchange *exchange = calloc(1, sizeof *exchange);
    struct codec_reader *reader = codec_reader_create(&bounds);
    if (exchange == NULL || reader == NULL) {
        free(exchange);
        codec_reader_free(reader);
        reply_no_memory(request, response);
        return NULL;
    }
    *exchange = (struct exchange){.route = route, .service = service, .reader = reader};
    return exchange;
}

/* ---------------------------------------------------------------------------- bytes of them all */

/* Makes `bytes` what the exchange takes of the memory for all requests. False if there is no more:
 * then it stays as it was. */
static bool take_memory(struct exchange *exchange, size_t bytes) {
    atomic_size_t *memory = &exchange->service->memory;
    size_t total = atomic_load(memory), wanted;
    do {
        wanted = total - exchange->memory + bytes;
        if (bytes > exchange->memory && wanted > exchange->service->max_total) {
            return false;
        }
    } while (!atomic_compare_exchange_weak(memory, &total, wanted));
    exchange->memory = bytes;
    return true;
}

static bool refuse_memory(struct exchange *exchange) {
    metrics_count(&exchange->service->metrics.refused_memory);
    http_problem(exchange->response, exchange->request, 503, "the memory for requests is in use",
                 NULL, -1);
    return true;
}

static bool refuse_work(struct exchange *exchange) {
    metrics_count(&exchange->service->metrics.refused_queue);
    http_problem(exchange->response, exchange->request, 503,
                 "the server has as much to compute as it accepts", NULL, -1);
    return true;
}

/* ------------------------------------------------------------------------------------- the body */

static void drop_body(struct exchange *exchange) {
    codec_reader_free(exchange->reader);
    exchange->reader = NULL;
    take_memory(exchange, 0);
    exchange->held = 0;
}

/* For what is read of the body so far, and what the server holds for it. */
static bool take_body_memory(struct exchange *exchange) {
    exchange->over =
        !take_memory(exchange, codec_reader_tensor_bytes(exchange->reader) +
                                   codec_reader_text_bytes(exchange->reader) + exchange->held);
    if (exchange->over) {
        drop_body(exchange);
    }
    return !exchange->over;
}

static bool hold(void *arg, size_t bytes) {
    struct exchange *exchange = arg;
    const size_t before = exchange->held;
    exchange->held = bytes;
    return exchange->reader != NULL ? take_body_memory(exchange)
                                    : take_memory(exchange, exchange->memory - before + bytes);
}

/* Reading numbers costs many times what it costs to drop them: a server with more to do than it can
 * would be busy with reading what it then refuses. */
static bool body(void *arg, const void *bytes, size_t size) {
    struct exchange *exchange = arg;
    const int64_t start = jobs_clock();
    bool more = false;
    exchange->received += size;
    exchange->unwanted = exchange->received > SMALL_BODY && exchange->service->jobs != NULL &&
                         jobs_full(exchange->service->jobs);
    if (exchange->unwanted) {
        drop_body(exchange);
    } else {
        more = codec_reader_feed(exchange->reader, bytes, size) == CODEC_OK &&
               take_body_memory(exchange);
    }
    exchange->decode_ms += (double)(jobs_clock() - start) * 1e-6;
    return more;
}

/* ------------------------------------------------------------------------------ the computation */

/* Server-Timing, but for what encoding took. */
static void tell_times(struct exchange *exchange, double queue_ms, double compute_ms) {
    struct http_response *response = exchange->response;
    response->timed = true;
    response->timing[HTTP_TIMING_DECODE] = exchange->decode_ms;
    response->timing[HTTP_TIMING_QUEUE] = queue_ms;
    response->timing[HTTP_TIMING_COMPUTE] = compute_ms;
}

/* The work has come to its end: fills the response. The job is not freed here: until http_resume it
 * may still be cancelled. */
static void conclude(struct exchange *exchange, enum job_end end) {
    struct api_work *work = exchange->work;
    const struct http_request *request = exchange->request;
    struct http_response *response = exchange->response;
    const int64_t now = jobs_clock(),
                  begun = exchange->job->begun != 0 ? exchange->job->begun : now;
    char detail[128];
    switch (end) {
    case JOB_DONE:
    case JOB_FAILED:
        work->answer(work, request, response);
        break;
    case JOB_NO_MEMORY:
        reply_no_memory(request, response);
        break;
    case JOB_LATE:
        metrics_count(&exchange->service->metrics.late);
        snprintf(detail, sizeof detail, "the answer was not computed within %g s (timeout)",
                 work->seconds);
        http_problem(response, request, 503, detail, NULL, -1);
        break;
    case JOB_CANCELLED:
        metrics_count(&exchange->service->metrics.cancelled);
        http_problem(response, request, 503,
                     "the computation was called off: the client left, or the server stops", NULL,
                     -1);
        break;
    }
    tell_times(exchange, (double)(begun - exchange->submitted) * 1e-6,
               (double)(now - begun) * 1e-6);
}

static void done(struct job *job, enum job_end end) {
    struct exchange *exchange = job->owner;
    conclude(exchange, end);
    http_resume(exchange->pending);
}

/* Computes at once, or leaves it to the workers and returns false. */
static bool compute(struct exchange *exchange) {
    struct api_service *service = exchange->service;
    struct api_work *work = exchange->work;
    struct job *job = prepare_job(&exchange->prepare, &work->job);
    exchange->submitted = jobs_clock();
    exchange->job = job;
    job->owner = exchange;
    job->done = done;
    if (work->seconds == 0 || work->seconds > service->timeout) {
        work->seconds = service->timeout;
    }
    if (service->jobs == NULL || job->cost <= SMALL_COST) {
        conclude(exchange, jobs_run_here(job));
        return true;
    }
    job->deadline = exchange->submitted + (int64_t)(work->seconds * 1e9);
    if (jobs_admit(service->jobs, job)) {
        return false;
    }
    return refuse_work(exchange);
}

/* The body is read: has the handler's work computed, or leaves it to the workers and returns
 * false. */
static bool handle(struct exchange *exchange) {
    const struct api_request call = {
        .http = exchange->request,
        .service = exchange->service,
        .name = name_of(exchange->request),
        .body = exchange->document,
        .prepare = &exchange->prepare,
    };
    exchange->work = exchange->route->handler(&call, exchange->response);
    if (exchange->work == NULL) {
        tell_times(exchange, 0, 0);
        return true;
    }
    /* Nothing of it is written to yet, and memory that was never written to is not there. */
    if (!take_memory(exchange,
                     exchange->memory + exchange->prepare.memory + exchange->work->memory)) {
        return refuse_memory(exchange);
    }
    return compute(exchange);
}

static bool end(void *arg, const struct http_request *request, struct http_response *response) {
    struct exchange *exchange = arg;
    exchange->request = request;
    exchange->response = response;
    if (exchange->over) {
        return refuse_memory(exchange);
    }
    if (exchange->unwanted) {
        return refuse_work(exchange);
    }
    const int64_t start = jobs_clock();
    const size_t text = codec_reader_text_bytes(exchange->reader); /* as it was counted */
    const enum codec_status status = codec_reader_finish(exchange->reader, &exchange->document);
    exchange->decode_ms += (double)(jobs_clock() - start) * 1e-6;
    if (status != CODEC_OK) {
        reply_codec_error(request, response, codec_reader_error(exchange->reader));
        tell_times(exchange, 0, 0);
        return true;
    }
    codec_reader_free(exchange->reader);
    exchange->reader = NULL;
    take_memory(exchange, exchange->memory - text);
    return handle(exchange);
}

static void start(void *arg, struct http_pending *pending) {
    struct exchange *exchange = arg;
    exchange->pending = pending;
    jobs_run(exchange->service->jobs, exchange->job);
}

static void cancel(void *arg) {
    struct exchange *exchange = arg;
    jobs_cancel(exchange->job);
}

static void release(void *arg) {
    struct exchange *exchange = arg;
    if (exchange->work != NULL) {
        exchange->work->release(exchange->work);
    }
    prepare_free(&exchange->prepare);
    codec_document_free(exchange->document);
    codec_reader_free(exchange->reader);
    take_memory(exchange, 0);
    free(exchange);
}

static void completed(void *context, const struct http_request *request,
                      const struct http_record *record) {
    metrics_completed(&((struct api_service *)context)->metrics, request, record);
}

struct http_app api_app(struct api_service *service) {
    return (struct http_app){
        .context = service,
        .begin = begin,
        .hold = hold,
        .body = body,
        .end = end,
        .start = start,
        .cancel = cancel,
        .release = release,
        .completed = completed,
    };
}
