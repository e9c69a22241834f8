/*
 * answer.c - from a plan to an answer: holds the call against the limits, gives every result a
 * buffer, makes the plan a job and lists the results in the order in which `return` names them.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/answer.h"
#include "api/call.h"
#include "api/reply.h"

const char *const call_result_names[CALL_RESULT_COUNT] = {
    "output",     "weights", "scores", "scaled_scores", "masked_scores", "lse",
    "statistics", "entropy", "top_k",  "present_K",     "present_V",     "Q",
    "K",          "V",
};

const unsigned call_result_bits[CALL_RESULT_COUNT] = {
    ATTN_WANT(OUTPUT),
    ATTN_WANT(WEIGHTS),
    ATTN_WANT(SCORES),
    ATTN_WANT(SCALED_SCORES),
    ATTN_WANT(MASKED_SCORES),
    ATTN_WANT(LSE),
    ATTN_WANT(STATISTICS),
    ATTN_WANT(ENTROPY),
    ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS),
    ATTN_WANT(PRESENT_K),
    ATTN_WANT(PRESENT_V),
    ATTN_WANT(Q),
    ATTN_WANT(K),
    ATTN_WANT(V),
};

bool api_claim(const struct api_request *request, struct api_work *work, double bytes,
               struct http_response *response) {
    const double cost = work->job.cost + request->prepare->cost;
    const double most = request->service->max_work;
    char detail[256];
    if (!account_take(request->account, bytes < 0x1p62 ? (size_t)bytes : SIZE_MAX)) {
        reply_no_memory(request, response);
        return false;
    }
    if (cost > most) {
        account_give(request->account, (size_t)bytes);
        snprintf(detail, sizeof detail,
                 "the request needs %.3g multiply-adds; this server allows %.15g, a limit that its "
                 "operator sets with --max-work",
                 cost, most);
        http_problem(response, request->http, 413, detail, NULL, NULL);
        response->refused = "over --max-work";
        return false;
    }
    work->memory = (size_t)bytes;
    return true;
}

static_assert((int)JOBS_ALIGNMENT == (int)ATTN_ALIGNMENT, "the jobs' scratches suit the library");

static void add_whole(struct reply_items *list, const char *key, const attn_plan *plan,
                      attn_result result) {
    const attn_tensor tensor = attn_as_tensor(attn_plan_tensor(plan, result, 0));
    reply_tensor(list, key, &tensor);
}

/* The parts of heads of any size: [head][row][column], or [batch][head][row][column]. */
static void add_parts(struct reply_items *list, const char *key, const attn_plan *plan,
                      attn_result result) {
    reply_item(list, (struct codec_item){.op = CODEC_OP_PARTS,
                                         .key = key,
                                         .count = attn_plan_parts(plan, result),
                                         .parts = attn_plan_tensor(plan, result, 0)});
}

static void add_statistics(struct reply_items *list, const attn_plan *plan) {
    static const char *const names[] = {"Q", "K", "scores", "scaled_scores"};
    const double *variance = attn_plan_tensor(plan, ATTN_RESULT_STATISTICS, 0)->data;
    reply_open(list, CODEC_OP_OBJECT, "statistics");
    reply_open(list, CODEC_OP_OBJECT, "variance");
    for (int i = 0; i < 4; i++) {
        reply_number(list, names[i], variance[i]);
    }
    reply_close(list);
    reply_close(list);
}

static void add_result(struct reply_items *list, const struct call *call, const attn_plan *plan,
                       size_t which) {
    static const attn_result results[CALL_RESULT_COUNT] = {
        [CALL_RESULT_OUTPUT] = ATTN_RESULT_OUTPUT,
        [CALL_RESULT_WEIGHTS] = ATTN_RESULT_WEIGHTS,
        [CALL_RESULT_SCORES] = ATTN_RESULT_SCORES,
        [CALL_RESULT_SCALED_SCORES] = ATTN_RESULT_SCALED_SCORES,
        [CALL_RESULT_MASKED_SCORES] = ATTN_RESULT_MASKED_SCORES,
        [CALL_RESULT_LSE] = ATTN_RESULT_LSE,
        [CALL_RESULT_ENTROPY] = ATTN_RESULT_ENTROPY,
        [CALL_RESULT_PRESENT_K] = ATTN_RESULT_PRESENT_K,
        [CALL_RESULT_PRESENT_V] = ATTN_RESULT_PRESENT_V,
        [CALL_RESULT_Q] = ATTN_RESULT_Q,
        [CALL_RESULT_K] = ATTN_RESULT_K,
        [CALL_RESULT_V] = ATTN_RESULT_V,
    };
    const char *key = call_result_names[which];
    if (which == CALL_RESULT_STATISTICS) {
        add_statistics(list, plan);
    } else if (which == CALL_RESULT_TOP_K) {
        reply_open(list, CODEC_OP_OBJECT, key);
        add_whole(list, "indices", plan, ATTN_RESULT_TOP_K_INDICES);
        add_whole(list, "weights", plan, ATTN_RESULT_TOP_K_WEIGHTS);
        reply_close(list);
    } else if (call->per_head && which >= CALL_RESULT_PRESENT_K) {
        add_parts(list, key, plan, results[which]);
    } else {
        add_whole(list, key, plan, results[which]);
    }
}

/* ------------------------------------------------------------------------------------- the work */

static size_t tasks_of(const struct job *job, size_t phase) {
    return attn_plan_tasks(((const struct call *)job)->plan, phase);
}

static bool begin_plan(struct job *job) {
    struct call *call = (struct call *)job;
    return attn_plan_begin(call->plan, &call->error) == ATTN_OK;
}

/* Of the errors of a phase, that of its first task is told, whatever the order of running. */
static bool run_task(struct job *job, size_t phase, size_t task, void *scratch) {
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

static void answer(struct api_work *work, const struct api_request *request,
                   struct http_response *response) {
    struct call *call = (struct call *)work;
    struct reply_items list = {.count = 0};
    if (call->error.status != ATTN_OK || attn_plan_end(call->plan, &call->error) != ATTN_OK) {
        reply_attn_error(request, response, &call->error);
        return;
    }
    reply_open(&list, CODEC_OP_OBJECT, NULL);
    if (call->words != NULL) {
        reply_item(&list, (struct codec_item){.op = CODEC_OP_TEXTS,
                                              .key = "tokens",
                                              .count = call->words->count,
                                              .texts = call->words->words});
    }
    for (size_t i = 0; i < call->return_count; i++) {
        add_result(&list, call, call->plan, call->returned[i]);
    }
    reply_close(&list);
    reply_items(request, response, &list, call->digits);
}

static void release(struct api_work *work) {
    call_free((struct call *)work);
}

struct api_work *call_work(struct call *call, const struct api_request *request,
                           struct http_response *response) {
    const attn_plan *plan = call->plan;
    size_t total, bytes;
    if (!attn_plan_bytes(plan, request->service->threads, &total) ||
        !attn_plan_results_bytes(plan, &bytes)) {
        total = bytes = SIZE_MAX;
    }
    call->work.job.cost = attn_plan_cost(plan);
    if (!api_claim(request, &call->work, (double)total, response)) {
        return NULL;
    }
    call->block = aligned_alloc(ATTN_ALIGNMENT, bytes);
    if (call->block == NULL) {
        account_give(request->account, call->work.memory);
        reply_no_memory(request, response);
        return NULL;
    }
    attn_plan_bind_all(call->plan, call->block);
    call->words = request->prepare->words;
    call->work.answer = answer;
    call->work.release = release;
    call->work.job.scratch = attn_plan_scratch(plan);
    call->work.job.phases = attn_plan_phases(plan);
    call->work.job.tasks = tasks_of;
    call->work.job.begin = begin_plan;
    call->work.job.task = run_task;
    return &call->work;
}
