/*
 * request.c - makes the answer of a request whose body is complete: parses it, checks its keys and
 * makes its generated matrices, calls the handler, and has the work computed that the handler
 * leaves.
 *
 * The thread that received a small request answers it at once. Everything else is a job for the
 * workers: parsing long bodies, converting long masks, planning for many heads, computing, and
 * checking long results. A request is refused if the workers have too much to do.
 */
#include "api/request.h"

#include <stdio.h>

#include "api/call/empty.h"
#include "api/formats/format.h"
#include "api/reply.h"
#include "clock.h"

enum {
    /* Multiply-adds. They take about 70 us, several times as long as handing a job to a worker. */
    SMALL_COST = 5000000,
    /* An I/O thread opens no request that exceeds one of these limits. Each is worth 0.25 ms. JSON
     * before binary tensors has limits of its own in decoder.c, because it is parsed while the
     * body arrives. */
    SMALL_BYTES = 16 * 1024,     /* bytes outside of matrices */
    SMALL_VALUES = 1024,         /* values outside of matrices */
    SMALL_PARTS = 2048,          /* heads of all batch items */
    SMALL_NUMBERS = 64 * 1024,   /* numbers of masks and datatypes that are converted one by one */
    CHUNK_NUMBERS = 1024 * 1024, /* a task converts so many, or checks so many of results */
    /* Multiply-adds that take as long as the handler needs for a value and for a byte outside of
     * matrices, planning for a part, and converting or checking a number. */
    COST_OF_VALUE = 20000,
    COST_OF_BYTE = 800,
    COST_OF_PART = 3000,
    COST_OF_NUMBER = 150
};

/* Fills the times of the header Server-Timing, except the time of encoding. */
static void tell_times(struct api_request *request, double queue_ms, double compute_ms) {
    struct http_response *response = request->response;
    response->timed = true;
    response->timing[HTTP_TIMING_DECODE] = request->input.decode_ms;
    response->timing[HTTP_TIMING_QUEUE] = queue_ms;
    response->timing[HTTP_TIMING_COMPUTE] = compute_ms;
}

/* Answers that the body is wrong. Returns false. */
static bool refuse_content(struct api_request *request) {
    reply_codec_error(request, &request->input.error);
    tell_times(request, 0, 0);
    return false;
}

static void refuse_work(struct api_request *request) {
    metrics_count(&request->state->metrics.refused_queue);
    reply_problem(request, 503,
                  "the queue of this server is full: try again in a second; its operator sets the "
                  "limit with --max-queue");
    request->response->refused = "over --max-queue";
}

/* Returns the seconds that the request may take. */
static double seconds_of(const struct api_request *request) {
    const double wanted = request->run.work != NULL ? request->run.work->seconds : 0;
    const double most = request->state->timeout;
    return wanted > 0 && wanted < most ? wanted : most;
}

/* Answers that a request is late. It may succeed later if it shared the workers with others.
 * Whoever gives it a time of its own must give it more, because a client that repeats it as it is
 * would do so in vain. */
static void refuse_late(struct api_request *request) {
    struct http_response *response = request->response;
    const bool own = seconds_of(request) < request->state->timeout;
    const bool shared = request->state->jobs != NULL && jobs_load(request->state->jobs).jobs > 0;
    char detail[256];
    metrics_count(&request->state->metrics.late);
    snprintf(detail, sizeof detail, "the answer was not computed within %g s, %s",
             seconds_of(request),
             own      ? "the \"timeout\" of the request: give it more time, or ask for less"
             : shared ? "a limit that the operator of this server sets with --compute-timeout: try "
                        "again in a second, because other requests are computed at the same time"
                      : "a limit that the operator of this server sets with --compute-timeout: ask "
                        "for less, because no other request is computed at the same time");
    reply_problem(request, 503, detail);
    response->refused = own ? NULL : "over --compute-timeout";
    response->lasting = own || !shared;
}

/* Answers with what the last job has made. */
static void answer_work(struct api_request *request) {
    struct api_work *work = request->run.work;
    struct codec_items list;
    request->account.region = ACCOUNT_ANSWER;
    if (work->answer(work, request, &list)) {
        format_reply(request, &list, work->digits);
    }
}

/* Fills the response of a request whose last job has ended. */
static void conclude(struct api_request *request, const struct job *job, enum job_outcome outcome) {
    const int64_t now = clock_ns(), begun = job->begun != 0 ? job->begun : now;
    metrics_computed(&request->state->metrics, outcome == JOB_DONE ? job->cost : 0, job->spent,
                     job->longest);
    switch (outcome) {
    case JOB_DONE:
    case JOB_FAILED:
        answer_work(request);
        request->response->timing[HTTP_TIMING_ENCODE] = clock_ms_since(now);
        break;
    case JOB_NO_MEMORY:
        reply_no_memory(request);
        break;
    case JOB_LATE:
        refuse_late(request);
        break;
    case JOB_CANCELLED:
        metrics_count(&request->state->metrics.cancelled);
        reply_problem(
            request, 503,
            "the computation was given up: the client left, or the server is about to stop");
        break;
    }
    tell_times(request, (double)(begun - request->run.submitted) * 1e-6,
               (double)(now - begun) * 1e-6);
}

void request_drop_work(struct api_request *request) {
    if (request->run.job != NULL) { /* only this thread sets it */
        pthread_mutex_lock(&request->run.mutex);
        request->run.job = NULL;
        pthread_mutex_unlock(&request->run.mutex);
    }
    if (request->run.work != NULL) {
        if (request->run.work->release != NULL) {
            request->run.work->release(request->run.work);
        }
        request->run.work = NULL;
    }
    generated_free(&request->generated);
    codec_document_free(request->body);
    request->body = NULL;
    decoder_drop(&request->input.decoder);
    account_free_region(&request->account, ACCOUNT_REQUEST);
}

/* Frees what a filled response does not need; an answer that is made while it is sent needs all.
 * Returns true, which says that the response is filled. */
static bool respond(struct api_request *request) {
    if (request->response->read == NULL) {
        request_drop_work(request);
    }
    return true;
}

static void resume(struct api_request *request) {
    respond(request);
    http_resume(request->run.pending);
}

void request_go_on(struct api_request *request, size_t tasks, double cost,
                   bool (*run)(void *, const struct jobs_task *),
                   void (*done)(struct job *, enum job_outcome)) {
    struct job *job = &request->run.encoding;
    request->run.phases[0] = (struct job_phases){NULL, tasks, NULL, run, request};
    job->phases = request->run.phases;
    job->cost = cost;
    job->done = done;
    job->owner = request;
    jobs_run(request->state->jobs, job);
}

static bool request_check_on_worker(void *request, const struct jobs_task *task) {
    (void)task;
    tensors_check(request, CHUNK_NUMBERS);
    return true;
}

static void request_checked(struct job *job, enum job_outcome outcome) {
    (void)outcome; /* nothing cancels this job, because it is short */
    resume(job->owner);
}

static struct job *begin_work(struct api_request *request);

/* Begins the work that follows the work of a job that is done. Returns as begin_work() does. */
static struct job *begin_next(struct api_request *request) {
    struct api_work *work = request->run.work;
    request->run.work = work->next(work, request);
    return request->run.work != NULL ? begin_work(request) : NULL;
}

static void request_computed(struct job *job, enum job_outcome outcome) {
    struct api_request *request = job->owner;
    if (outcome == JOB_DONE && request->run.work->next != NULL) {
        metrics_computed(&request->state->metrics, job->cost, job->spent, job->longest);
        struct job *next = begin_next(request);
        if (next != NULL) {
            jobs_run(request->state->jobs, next);
        } else {
            resume(request);
        }
        return;
    }
    conclude(request, job, outcome);
    const size_t numbers = request->tensors.unchecked;
    if (numbers <= CHUNK_NUMBERS) {
        tensors_check(request, SIZE_MAX);
        resume(request);
        return;
    }
    request_go_on(request, (numbers - 1) / CHUNK_NUMBERS + 1, (double)numbers * COST_OF_NUMBER,
                  request_check_on_worker, request_checked);
}

/* Asks the workers to take a job, which then is the job of the request. Returns the job, or NULL
 * after filling the response if they have too much to do. A request that was cancelled has its job
 * cancelled. */
static struct job *admit(struct api_request *request, struct job *job,
                         void (*done)(struct job *, enum job_outcome)) {
    job->owner = request;
    job->done = done;
    job->deadline = request->run.submitted + (int64_t)(seconds_of(request) * 1e9);
    if (!jobs_admit(request->state->jobs, job)) {
        refuse_work(request);
        return NULL;
    }
    pthread_mutex_lock(&request->run.mutex);
    request->run.job = job;
    if (request->run.cancelled) {
        jobs_cancel(job);
    }
    pthread_mutex_unlock(&request->run.mutex);
    return job;
}

/* Begins the work that the handler left: computes it here if it is small. Returns the job that the
 * workers must run, or NULL if the response is filled. */
static struct job *begin_work(struct api_request *request) {
    struct job *job = &request->run.work->job;
    if (request->run.work->next == NULL) {
        generated_begin(&request->generated, job);
    }
    if (request->state->jobs == NULL || job->cost <= SMALL_COST) {
        const enum job_outcome outcome = jobs_run_here(job);
        if (outcome == JOB_DONE && request->run.work->next != NULL) {
            return begin_next(request);
        }
        conclude(request, job, outcome);
        tensors_check(request, SIZE_MAX);
        return NULL;
    }
    return admit(request, job, request_computed);
}

/* Parses the body, which has been read. `start` is the present clock_ns(). Returns false after
 * filling the response if the body is wrong. */
static bool parse(struct api_request *request, int64_t start) {
    request->body = decoder_finish(&request->input.decoder, &request->input.error);
    decoder_drop(&request->input.decoder);
    request->input.decode_ms += clock_ms_since(start);
    if (request->body == NULL) {
        return refuse_content(request);
    }
    fields_find(&request->fields, codec_root(request->body), request->route->fields);
    fields_expect(&request->fields, request->body);
    return true;
}

/* Looks at the next numbers of the matrices that need it. Returns false after filling the response
 * if a number is wrong. */
static bool convert(struct api_request *request, size_t most) {
    return codec_convert(request->body, most, &request->input.error) || refuse_content(request);
}

/* Checks the keys, makes the generated matrices and calls the handler. Returns false if the
 * response is filled, and true if the handler has left work. */
static bool handle(struct api_request *request) {
    if (!convert(request, SIZE_MAX)) {
        return false;
    }
    if (!fields_check(&request->fields, request->body, codec_root(request->body),
                      &request->input.error) ||
        !generated_make(&request->generated, &request->fields, request->body,
                        &request->input.error) ||
        !empty_make(&request->fields, request->body, &request->input.error)) {
        return refuse_content(request);
    }
    request->run.work = request->route->handler(request);
    if (request->run.work == NULL) {
        tell_times(request, 0, 0);
    }
    return request->run.work != NULL;
}

/* Calls the handler of a route that has no body. Returns as handle() does. */
static bool handle_alone(struct api_request *request) {
    if (account_take(&request->account, 0)) { /* BASE */
        request->run.work = request->route->handler(request);
    } else {
        reply_no_memory(request);
    }
    return request->run.work != NULL;
}

/* ------------------------------------------------------- opening requests that are not short */

/* Returns whether the body has so little outside of matrices that an I/O thread handles it. */
static bool is_short(const struct decoder *decoder) {
    return decoder_values(decoder) <= SMALL_VALUES && decoder_bytes(decoder) <= SMALL_BYTES;
}

/* Each of these fails if it has filled the response. */
static bool request_parse_on_worker(void *request, const struct jobs_task *task) {
    (void)task;
    return parse(request, clock_ns());
}

static bool request_convert_on_worker(void *request, const struct jobs_task *task) {
    (void)task;
    return convert(request, CHUNK_NUMBERS);
}

static bool request_handle_on_worker(void *request, const struct jobs_task *task) {
    (void)task;
    return handle(request);
}

static void request_opened(struct job *job, enum job_outcome outcome);

/* Leaves a long body to the workers. Returns as begin_work() does. */
static struct job *parse_later(struct api_request *request) {
    const struct decoder *decoder = &request->input.decoder;
    struct job *job = &request->run.opening;
    job->cost = (double)decoder_values(decoder) * COST_OF_VALUE +
                (double)decoder_bytes(decoder) * COST_OF_BYTE;
    request->run.phases[0] = (struct job_phases){NULL, 1, NULL, request_parse_on_worker, request};
    job->phases = request->run.phases;
    return admit(request, job, request_opened);
}

/* Goes on with a document: calls the handler here if that takes little time. Otherwise a job has a
 * phase for each chunk of numbers, and one that converts the rest and calls the handler. Returns as
 * begin_work() does. */
static struct job *open_document(struct api_request *request) {
    const double parts = generated_parts(&request->fields, request->body);
    const size_t numbers = codec_unconverted(request->body);
    struct job *job = &request->run.opening;
    if (request->state->jobs == NULL || (parts <= SMALL_PARTS && numbers <= SMALL_NUMBERS)) {
        return handle(request) ? begin_work(request) : NULL;
    }
    job->cost = parts * COST_OF_PART + (double)numbers * COST_OF_NUMBER;
    request->run.phases[0] = (struct job_phases){&request->run.phases[1], numbers / CHUNK_NUMBERS,
                                                 NULL, request_convert_on_worker, request};
    request->run.phases[1] = (struct job_phases){NULL, 1, NULL, request_handle_on_worker, request};
    job->phases = request->run.phases;
    return admit(request, job, request_opened);
}

static void request_opened(struct job *job, enum job_outcome outcome) {
    struct api_request *request = job->owner;
    struct job *next = NULL;
    if (outcome == JOB_DONE || outcome == JOB_FAILED) {
        metrics_computed(&request->state->metrics, job->cost, job->spent, job->longest);
    }
    /* A job that was cancelled while it ran may have filled the response, which is then sent. */
    if (request->response->status == 0) {
        if (outcome != JOB_DONE) {
            conclude(request, job, outcome);
        } else {
            next = request->run.work != NULL ? begin_work(request) : open_document(request);
        }
    }
    if (next != NULL) {
        jobs_run(request->state->jobs, next);
    } else {
        resume(request);
    }
}

/* ---------------------------------------------------------------------------------- the answer */

/* Begins to answer. Returns as begin_work() does. */
static struct job *begin_answer(struct api_request *request) {
    if (request->input.unwanted) {
        refuse_work(request);
        return NULL;
    }
    if (request->input.error.status != CODEC_OK) {
        refuse_content(request);
        return NULL;
    }
    if (request->route->fields == API_NO_BODY) {
        return handle_alone(request) ? begin_work(request) : NULL;
    }
    if (!is_short(&request->input.decoder) && request->state->jobs != NULL) {
        return parse_later(request);
    }
    return parse(request, request->run.submitted) ? open_document(request) : NULL;
}

bool request_answer(struct api_request *request) {
    return begin_answer(request) == NULL && respond(request);
}
