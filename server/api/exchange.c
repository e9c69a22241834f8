/*
 * exchange.c - makes the answer of a request whose body is complete: parses it, checks its keys and
 * makes its derived matrices, calls the handler, and has the work computed that the handler leaves.
 *
 * The thread that received a small request answers it at once. Everything else is a job for the
 * workers: parsing long bodies, settling long masks, planning for many heads, computing, and
 * looking at long results. A request is refused if the workers have too much to do.
 */
#include "api/exchange.h"

#include <stdio.h>

#include "api/reply.h"
#include "clock.h"

enum {
    /* Multiply-adds. They take about 70 us, several times as long as handing a job to a worker. */
    SMALL_COST = 5000000,
    /* An I/O thread opens no request that exceeds one of these limits. Each is worth 0.25 ms. JSON
     * before binary tensors has limits of its own in question.c, because it is parsed while the
     * body arrives. */
    SMALL_BYTES = 16 * 1024,     /* bytes outside of matrices */
    SMALL_VALUES = 1024,         /* values outside of matrices */
    SMALL_PARTS = 2048,          /* heads of all batch items */
    SMALL_NUMBERS = 64 * 1024,   /* numbers of masks and datatypes that are looked at one by one */
    PIECE_NUMBERS = 1024 * 1024, /* so many of them, or of results, are looked at in one task */
    /* Multiply-adds that take as long as parsing a value, parsing a byte, planning for a part, and
     * looking at a number. */
    COST_OF_VALUE = 20000,
    COST_OF_BYTE = 800,
    COST_OF_PART = 3000,
    COST_OF_NUMBER = 150
};

/* Fills the times of the header Server-Timing, except the time of encoding. */
static void tell_times(struct exchange *exchange, double queue_ms, double compute_ms) {
    struct http_response *response = exchange->response;
    response->timed = true;
    response->timing[HTTP_TIMING_DECODE] = exchange->decode_ms;
    response->timing[HTTP_TIMING_QUEUE] = queue_ms;
    response->timing[HTTP_TIMING_COMPUTE] = compute_ms;
}

/* Answers that the body is wrong. Returns false. */
static bool refuse_content(struct exchange *exchange) {
    reply_codec_error(&exchange->request, exchange->response, &exchange->error);
    tell_times(exchange, 0, 0);
    return false;
}

static void refuse_work(struct exchange *exchange) {
    metrics_count(&exchange->state->metrics.refused_queue);
    http_problem(exchange->response, exchange->request.http, 503,
                 "the queue of this server is full: try again in a second; its operator sets the "
                 "limit with --max-queue",
                 NULL, NULL);
    exchange->response->refused = "over --max-queue";
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
        exchange->account.region = ACCOUNT_ANSWER;
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

void exchange_drop_work(struct exchange *exchange) {
    if (exchange->job != NULL) { /* only this thread sets it */
        pthread_mutex_lock(&exchange->mutex);
        exchange->job = NULL;
        pthread_mutex_unlock(&exchange->mutex);
    }
    if (exchange->work != NULL) {
        if (exchange->work->release != NULL) {
            exchange->work->release(exchange->work);
        }
        exchange->work = NULL;
    }
    derived_free(&exchange->derived);
    codec_document_free(exchange->document);
    exchange->document = NULL;
    question_drop(&exchange->question);
    account_free_region(&exchange->account, ACCOUNT_QUESTION);
}

/* Frees what a filled response does not need; an answer that is made while it is sent needs all.
 * Returns true, which says that the response is filled. */
static bool respond(struct exchange *exchange) {
    if (exchange->response->read == NULL) {
        exchange_drop_work(exchange);
    }
    return true;
}

static void resume(struct exchange *exchange) {
    respond(exchange);
    http_resume(exchange->pending);
}

/* Looks at all results that a narrower type may not hold. */
static void look(struct exchange *exchange) {
    if (exchange->tensors.unlooked > 0) {
        tensors_look(&exchange->request, exchange->response, SIZE_MAX);
    }
}

static bool exchange_look_on_worker(struct job *job, size_t phase, size_t task, void *scratch) {
    struct exchange *exchange = job->owner;
    (void)phase;
    (void)task;
    (void)scratch;
    if (exchange->tensors.unlooked > 0) {
        tensors_look(&exchange->request, exchange->response, PIECE_NUMBERS);
    }
    return true;
}

static void exchange_looked(struct job *job, enum job_outcome outcome) {
    (void)outcome; /* nothing cancels this job, because it is short */
    resume(job->owner);
}

static void exchange_computed(struct job *job, enum job_outcome outcome) {
    struct exchange *exchange = job->owner;
    conclude(exchange, job, outcome);
    const size_t numbers = exchange->tensors.unlooked;
    if (numbers <= PIECE_NUMBERS) {
        look(exchange);
        resume(exchange);
        return;
    }
    exchange->encoding.phases = (numbers - 1) / PIECE_NUMBERS + 1;
    exchange->encoding.cost = (double)numbers * COST_OF_NUMBER;
    exchange->encoding.task = exchange_look_on_worker;
    exchange->encoding.done = exchange_looked;
    exchange->encoding.owner = exchange;
    jobs_go_on(exchange->state->jobs, &exchange->encoding);
}

/* Asks the workers to take a job, which then is the job of the request. Returns the job, or NULL
 * after filling the response if they have too much to do. A request that was cancelled has its job
 * cancelled. */
static struct job *admit(struct exchange *exchange, struct job *job,
                         void (*done)(struct job *, enum job_outcome)) {
    job->owner = exchange;
    job->done = done;
    job->deadline = exchange->submitted + (int64_t)(seconds_of(exchange) * 1e9);
    if (!jobs_admit(exchange->state->jobs, job)) {
        refuse_work(exchange);
        return NULL;
    }
    pthread_mutex_lock(&exchange->mutex);
    exchange->job = job;
    if (exchange->cancelled) {
        jobs_cancel(job);
    }
    pthread_mutex_unlock(&exchange->mutex);
    return job;
}

/* Begins the work that the handler left: computes it here if it is small. Returns the job that the
 * workers must run, or NULL if the response is filled. */
static struct job *begin_work(struct exchange *exchange) {
    struct job *job = derived_job(&exchange->derived, &exchange->work->job);
    if (exchange->state->jobs == NULL || job->cost <= SMALL_COST) {
        conclude(exchange, job, jobs_run_here(job));
        look(exchange);
        return NULL;
    }
    return admit(exchange, job, exchange_computed);
}

/* Parses the body, which has been read. `start` is the present clock_ns(). Returns false after
 * filling the response if the body is wrong. */
static bool parse(struct exchange *exchange, int64_t start) {
    exchange->document = question_finish(&exchange->question, &exchange->error);
    question_drop(&exchange->question);
    exchange->decode_ms += clock_ms_since(start);
    exchange->request.body = exchange->document;
    if (exchange->document == NULL) {
        return refuse_content(exchange);
    }
    fields_find(&exchange->fields, codec_root(exchange->document), exchange->target->fields);
    fields_expect_masks(&exchange->fields, exchange->document);
    return true;
}

/* Looks at the next numbers of the matrices that need it. Returns false after filling the response
 * if a number is wrong. */
static bool settle(struct exchange *exchange, size_t most) {
    return codec_settle(exchange->document, most, &exchange->error) || refuse_content(exchange);
}

/* Checks the keys, makes the derived matrices and calls the handler. Returns false if the response
 * is filled, and true if the handler has left work. */
static bool handle(struct exchange *exchange) {
    if (!settle(exchange, SIZE_MAX)) {
        return false;
    }
    if (!fields_check(&exchange->fields, exchange->document, codec_root(exchange->document),
                      &exchange->error) ||
        !derived_make(&exchange->derived, &exchange->fields, exchange->document, &exchange->account,
                      &exchange->error)) {
        return refuse_content(exchange);
    }
    exchange->work = exchange->target->handler(&exchange->request, exchange->response);
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

/* Returns whether parsing the body takes so little time that an I/O thread does it. */
static bool is_short(const struct question *question) {
    return question_values(question) <= SMALL_VALUES && question_bytes(question) <= SMALL_BYTES;
}

static bool exchange_parse_on_worker(struct job *job) {
    parse(job->owner, clock_ns());
    return true;
}

static bool exchange_handle_on_worker(struct job *job, size_t phase, size_t task, void *scratch) {
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

static void exchange_opened(struct job *job, enum job_outcome outcome);

/* Leaves the parsing to the workers. Returns as begin_work() does. */
static struct job *parse_later(struct exchange *exchange) {
    const struct question *question = &exchange->question;
    struct job *job = &exchange->opening;
    job->cost = (double)question_values(question) * COST_OF_VALUE +
                (double)question_bytes(question) * COST_OF_BYTE;
    job->begin = exchange_parse_on_worker;
    return admit(exchange, job, exchange_opened);
}

/* Goes on with a document: calls the handler here if that takes little time. Otherwise a job has a
 * phase for each piece of numbers, and one that settles the rest and calls the handler. Returns as
 * begin_work() does. */
static struct job *open_document(struct exchange *exchange) {
    const double parts = derived_parts(&exchange->fields, exchange->document);
    const size_t numbers = codec_unsettled(exchange->document);
    struct job *job = &exchange->opening;
    if (exchange->state->jobs == NULL || (parts <= SMALL_PARTS && numbers <= SMALL_NUMBERS)) {
        return handle(exchange) ? begin_work(exchange) : NULL;
    }
    job->cost = parts * COST_OF_PART + (double)numbers * COST_OF_NUMBER;
    job->phases = numbers / PIECE_NUMBERS + 1;
    job->begin = NULL;
    job->task = exchange_handle_on_worker;
    return admit(exchange, job, exchange_opened);
}

static void exchange_opened(struct job *job, enum job_outcome outcome) {
    struct exchange *exchange = job->owner;
    struct job *next = NULL;
    if (outcome == JOB_DONE) {
        metrics_computed(&exchange->state->metrics, job->cost, job->spent, job->longest);
    }
    /* A job that was cancelled while it ran may have filled the response, which is then sent. */
    if (exchange->response->status == 0) {
        if (outcome != JOB_DONE) {
            conclude(exchange, job, outcome);
        } else {
            next = exchange->work != NULL ? begin_work(exchange) : open_document(exchange);
        }
    }
    if (next != NULL) {
        jobs_run(exchange->state->jobs, next);
    } else {
        resume(exchange);
    }
}

/* ---------------------------------------------------------------------------------- the answer */

/* Begins to answer. Returns as begin_work() does. */
static struct job *begin_answer(struct exchange *exchange) {
    if (exchange->unwanted) {
        refuse_work(exchange);
        return NULL;
    }
    if (exchange->error.status != CODEC_OK) {
        refuse_content(exchange);
        return NULL;
    }
    if (exchange->target->fields == API_NO_BODY) {
        return handle_alone(exchange) ? begin_work(exchange) : NULL;
    }
    if (!is_short(&exchange->question) && exchange->state->jobs != NULL) {
        return parse_later(exchange);
    }
    return parse(exchange, exchange->submitted) ? open_document(exchange) : NULL;
}

bool exchange_answer(struct exchange *exchange) {
    return begin_answer(exchange) == NULL && respond(exchange);
}
