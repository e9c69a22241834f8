/*
 * call.h - one call of the library: what the request says of it, its plan, and its job.
 */
#ifndef API_CALL_H
#define API_CALL_H

#include <pthread.h>

#include "api/api.h"
#include "api/call/answer_names.h"
#include "api/call/excluded.h"
#include "api/call/stored.h"

/* The tensors of the weights and biases of one attn_projection, which points to them. */
struct call_weights {
    attn_tensor w_q, w_k, w_v, b_q, b_k, b_v;
};

struct comparison;

struct call {
    struct api_work work; /* first */
    struct call *next;    /* the call of the next layer of the same request, or NULL */

    /* fields.c fills these members from the body, from which the tensors borrow their numbers. The
     * matrices of `options` and `multihead`, and `q`, `k` and `v`, point to `tensors`. They are
     * NULL if the request leaves them out. */
    attn_options options;
    attn_multihead multihead; /* of a call without projections, only `x` is used */
    attn_rotary rotary;       /* options.rotary points to it */
    attn_upstream upstream;   /* options.upstream points to it */
    attn_sequences sequences; /* options.sequences points to it */
    attn_linear linear;       /* of a call of linear attention, without Q, K and V */
    const attn_tensor *q, *k, *v;
    struct call_weights *weights; /* of multihead.projections; NULL: they are those of a layer */
    bool all_layers; /* the answer lists the results of this call and of those that follow it */
    double scalar;   /* the number, in the dtype of the body, if `sink` is a number */
    int axis;        /* the axis of /softmax */
    enum answer_name returned[ANSWER_COUNT]; /* in the order of "return" */
    size_t return_count;

    struct excluded *excluded;     /* matrices with a scale or with NaN; NULL: there are none */
    struct comparison *comparison; /* of the results; NULL: the request expects none */
    attn_plan *plan;               /* owned; the account of the request owns all else */
    struct job_phases phases;      /* of the plan */
    pthread_mutex_t mutex;         /* guards the next two members while tasks run */
    size_t failed;                 /* the task that `error` is about */
    attn_error error;
    struct stored stored; /* the layer whose weights the call takes */
    struct {
        attn_tensor q, k, v, x, context, value_context, w_o, b_o, bias_k, bias_v;
        attn_tensor mask, key_padding, bias, decay, alibi_slopes, sink, past_k, past_v;
        attn_tensor b_q, b_k, b_v; /* of Q, K and V without projections */
        attn_tensor norm_q, norm_k, norm_v, rotary_cos, rotary_sin, positions;
        attn_tensor grad_output, grad_lse, grad_weights, grad_present_state;
        attn_tensor beta, past_state, gate, w_g, b_g;
    } tensors;
};

/* Returns a call whose options are the defaults, which returns output and weights. It follows the
 * call `before`, unless that is NULL. Returns NULL after filling the response if there is no
 * memory. */
struct call *call_new(struct api_request *request, struct call *before);

/* Reads the body into a call. Returns false with the error set. */
typedef bool call_read(struct call *call, struct api_request *request, struct codec_error *error);
typedef attn_status call_plan(struct call *call, attn_error *error);

/* The plan of call->multihead. */
call_plan call_plan_multihead;

/* Reads a call and makes its plan. Returns false after filling the response. */
bool call_make(struct call *call, struct api_request *request, call_read *read, call_plan *plan);

/* Makes the call and those that follow it, which must have their plans, into work: asks for their
 * memory, gives every result its place, and fills the job. The calls run one after the other. The
 * work is the call itself, so its release ends the calls. Returns NULL after filling the response
 * if the work is over a limit or there is no memory; the caller then ends the call. */
struct api_work *call_work(struct call *call, struct api_request *request);

/* Notes that a task of the job of a call has failed. If several tasks of a phase fail, the error of
 * the first one is kept, so that the answer does not depend on the order in which they ran. */
static inline void call_fail(struct call *call, size_t task, const attn_error *error) {
    pthread_mutex_lock(&call->mutex);
    if (call->error.status == ATTN_OK || task < call->failed) {
        call->error = *error;
        call->failed = task;
    }
    pthread_mutex_unlock(&call->mutex);
}

/* The body of a handler: makes one call, and work of it. */
struct api_work *call_handle(struct api_request *request, call_read *read, call_plan *plan);

/* Ends the call and those that follow it: frees what the account does not own. */
void call_end(struct call *call);

#endif
