/*
 * request.h - the context of a request, from its headers to the last byte of its answer. app.c owns
 * it and reads the body; request.c makes the answer.
 *
 * Before any handler runs, request.c checks the keys and calls generated_make(). This turns draws
 * and words into tensors of a known shape whose numbers are still zero, so that everything is
 * checked and planned before anything is drawn. So no code may read a number of a tensor before the
 * work begins. Whole numbers and masks are the exception: they are checked before the handler runs.
 * A handler is a function from a request to its response or to work, so tests call it without a
 * socket.
 *
 * Small work (SMALL_COST) is computed at once. The rest is left to the workers: long bodies, long
 * masks of numbers, plans for many heads, and most of the encoding of long answers.
 *
 * Memory is taken from the account of the request before it is allocated: by the codec for what it
 * reads, and by api_admit() for what a handler is about to allocate. Every other allocation for a
 * request must be counted there, too. The account owns its blocks, so nobody else frees them: those
 * of the request go when the answer is made, and those of the answer when it is sent. A small
 * request makes three allocations: its context, its arena and its plan. The code that usually runs
 * formats nothing with printf.
 */
#ifndef API_REQUEST_H
#define API_REQUEST_H

#include <pthread.h>

#include "api/api.h"
#include "api/call/fields.h"
#include "api/call/generated.h"
#include "api/formats/decoder.h"
#include "api/formats/tensors.h"
#include "layers/layers.h"

/* The body while it comes. */
struct api_input {
    struct decoder decoder;
    bool opened;              /* the first chunk has come */
    struct codec_error error; /* what is wrong with it; status 0 = nothing */
    size_t held;              /* bytes that the server holds for compressed bodies and answers */
    size_t received;          /* bytes so far */
    bool unwanted;            /* the workers took no more while the body came */
    double decode_ms;
};

/* The computation. Only `work` and `submitted` are used if no workers take part. */
struct api_run {
    struct api_work *work; /* owned; what the handler left, or NULL */
    int64_t submitted;     /* clock_ns() when the body was complete */
    struct http_pending *pending;
    struct job_phases phases[2]; /* of the next two */
    struct job opening;    /* parses the body, or converts its matrices and calls the handler */
    struct job encoding;   /* checks results, or encodes a chunk of the answer */
    pthread_mutex_t mutex; /* guards the next two members */
    struct job *job;       /* the job that app_cancel() cancels, or NULL */
    bool cancelled;
};

/* Everything here lives until the request ends. A pointer borrows, if it is not said to own. */
struct api_request {
    struct api_state *state;
    const struct http_request *http;
    struct http_response *response; /* NULL while the body comes */
    const struct api_route *route;  /* the endpoint, or the model of the path; has the handler */
    /* What {name} or {model} stands for in the path, or empty. One character more than a name may
     * have is kept, so that a name that is cut is that of nothing. */
    char name[LAYERS_NAME + 2];
    struct account account; /* counts the memory that the request holds */
    char *arena; /* owned; the memory that the account lends; NULL before the first chunk */

    struct api_input input; /* what came */
    /* The meaning of the body. */
    struct codec_document *body; /* owned; NULL before it is parsed */
    struct generated generated;  /* the matrices that are drawn or embedded before the work */
    struct api_run run;          /* what is computed */
    /* The answer. */
    enum api_format format;
    struct tensors_answer tensors; /* used if the answer has binary tensors */
    struct fields fields; /* the members of the body; each is a key of this route. A new request
                             sets none of them, so they are the last. */
};

/* Answers a request whose body is complete; run.submitted is the present time. Returns true if the
 * response is filled. Otherwise the caller has the workers run run.job, and http_resume() is called
 * when the response is filled. */
bool request_answer(struct api_request *request);

/* Has the workers do more of a request whose answer is being made: `tasks` tasks of this cost
 * together, which follow one another. */
void request_go_on(struct api_request *request, size_t tasks, double cost,
                   bool (*run)(void *request, const struct jobs_task *task),
                   void (*done)(struct job *job, enum job_outcome outcome));

/* Frees everything but the response, so that the matrices do not wait until a slow client has its
 * answer. */
void request_drop_work(struct api_request *request);

#endif
