/*
 * exchange.h - a request with a body, from its headers to its answer. app.c owns it and reads the
 * body; exchange.c makes the answer.
 */
#ifndef API_EXCHANGE_H
#define API_EXCHANGE_H

#include <pthread.h>

#include "api/api.h"
#include "api/derived.h"
#include "api/fields.h"
#include "api/question.h"
#include "api/tensors.h"
#include "layers/layers.h"

struct exchange {
    const struct api_route *target; /* the endpoint, or the model of the path; has the handler */
    struct api_state *state;        /* borrowed */
    struct account account;
    char *arena; /* owned; the memory that the account lends; NULL before the first piece */
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
    struct job opening;    /* parses the body, or settles its matrices and calls the handler */
    struct job encoding;   /* looks at results, or encodes a piece of the answer */
    pthread_mutex_t mutex; /* guards the next two members */
    struct job *job;       /* the job that app_cancel() cancels, or NULL */
    bool cancelled;
};

/* Answers a request whose body is complete; exchange->submitted is the present time. Returns true
 * if the response is filled. Otherwise the caller has the workers run exchange->job, and
 * http_resume() is called when the response is filled. */
bool exchange_answer(struct exchange *exchange);

/* Frees everything but the response, so that the matrices do not wait until a slow client has its
 * answer. */
void exchange_drop_work(struct exchange *exchange);

#endif
