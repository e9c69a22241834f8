/*
 * call.c - the life of a call: it is made, gets its plan from a handler, becomes a job whose tasks
 * are the tasks of the plan, and is freed after its answer.
 */
#include "api/call.h"

#include "api/derived.h"
#include "api/reply.h"

#include <assert.h>
#include <string.h>

static_assert((int)JOBS_ALIGNMENT == (int)ATTN_ALIGNMENT, "the jobs' scratches suit the library");

struct call *call_new(const struct api_request *request, struct http_response *response) {
    /* BASE in app.c counts this struct. */
    struct call *call = account_alloc_taken(request->account, ACCOUNT_ALIGNMENT, sizeof *call);
    if (call == NULL) {
        reply_no_memory(request, response);
        return NULL;
    }
    memset(call, 0, sizeof *call);
    call->account = request->account;
    call->returned[0] = ANSWER_OUTPUT;
    call->returned[1] = ANSWER_WEIGHTS;
    call->return_count = 2;
    call->options.results = answer_bits[ANSWER_OUTPUT] | answer_bits[ANSWER_WEIGHTS];
    pthread_mutex_init(&call->mutex, NULL);
    return call;
}

void call_free(struct call *call) {
    attn_plan_free(call->plan);
    pthread_mutex_destroy(&call->mutex);
    account_free_taken(call->account, call->block, call->block_bytes);
    account_free(call->account, call->lengths, call->options.lengths_count * sizeof *call->lengths);
    account_free_taken(call->account, call, sizeof *call);
}

/* -------------------------------------------------------------------------------------- the job */

static size_t call_tasks(const struct job *job, size_t phase) {
    return attn_plan_tasks(((const struct call *)job)->plan, phase);
}

static bool call_begin(struct job *job) {
    struct call *call = (struct call *)job;
    return attn_plan_begin(call->plan, &call->error) == ATTN_OK;
}

/* If several tasks of a phase fail, the error of the first task is kept, so that the answer does
 * not depend on the order in which they ran. */
static bool call_task(struct job *job, size_t phase, size_t task, void *scratch) {
    struct call *call = (struct call *)job;
    attn_error error;
    if (attn_plan_task(call->plan, phase, task, scratch, &error) == ATTN_OK) {
        return true;
    }
    pthread_mutex_lock(&call->mutex);
    if (call->error.status == ATTN_OK || task < call->failed) {
        call->error = error;
        call->failed = task;
    }
    pthread_mutex_unlock(&call->mutex);
    return false;
}

static void call_answer(struct api_work *work, const struct api_request *request,
                        struct http_response *response) {
    answer_call((struct call *)work, request, response);
}

static void call_release(struct api_work *work) {
    call_free((struct call *)work);
}

struct api_work *call_work(struct call *call, const struct api_request *request,
                           struct http_response *response) {
    const attn_plan *plan = call->plan;
    size_t total, bytes;
    if (!attn_plan_bytes(plan, request->state->threads, &total) ||
        !attn_plan_results_bytes(plan, &bytes)) {
        total = bytes = SIZE_MAX;
    }
    call->work.job.cost = attn_plan_cost(plan);
    if (!api_claim(request, &call->work, total, response)) {
        return NULL;
    }
    call->block = account_alloc_taken(request->account, ATTN_ALIGNMENT, bytes);
    call->block_bytes = bytes;
    if (call->block == NULL) {
        account_give(request->account, call->work.memory);
        reply_no_memory(request, response);
        return NULL;
    }
    attn_plan_bind_all(call->plan, call->block);
    call->words = request->derived->words;
    call->work.answer = call_answer;
    call->work.release = call_release;
    call->work.job.scratch = attn_plan_scratch(plan);
    call->work.job.phases = attn_plan_phases(plan);
    call->work.job.tasks = call_tasks;
    call->work.job.begin = call_begin;
    call->work.job.task = call_task;
    return &call->work;
}
