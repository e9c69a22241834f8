/*
 * call.c - the life of a call: it is made, gets its plan from a handler, becomes a job whose tasks
 * are the tasks of the plan, and ends after its answer.
 */
#include "api/call/call.h"

#include "api/call/answer.h"
#include "api/call/comparison.h"
#include "api/call/fields.h"
#include "api/reply.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum {
    ANSWER_ROOM = 256 * 1024, /* bytes that sending an answer takes, at most */
    EMPTY_BYTES = 3,          /* of an empty array in an answer, with its comma */
    /* The plan of a packed sequence, with that of its gradients, takes less than PLAN_BYTES. No
     * more than MOST_PLANS sequences have plans of their own. */
    PLAN_BYTES = 16 * 1024,
    MOST_PLANS = 1024
};

static_assert((int)JOBS_ALIGNMENT == (int)ATTN_ALIGNMENT, "the jobs' scratches suit the library");

struct call *call_new(struct api_request *request, struct call *before) {
    /* BASE in app.c counts the first struct. */
    struct call *call =
        before == NULL ? account_alloc_taken(&request->account, ACCOUNT_ALIGNMENT, sizeof *call)
                       : account_alloc(&request->account, sizeof *call);
    if (call == NULL) {
        reply_no_memory(request);
        return NULL;
    }
    /* The rest of a layer is set when the call uses one, and a tensor of rank 0 is not given. */
    memset(call, 0, offsetof(struct call, stored.weights.use.projection));
    for (size_t i = 0; i < sizeof call->tensors / sizeof(attn_tensor); i++) {
        ((attn_tensor *)&call->tensors)[i].rank = 0;
    }
    if (before != NULL) {
        before->next = call;
    }
    call->returned[0] = ANSWER_OUTPUT;
    call->returned[1] = ANSWER_WEIGHTS;
    call->return_count = 2;
    call->options.results = answer_bits[ANSWER_OUTPUT] | answer_bits[ANSWER_WEIGHTS];
    pthread_mutex_init(&call->mutex, NULL);
    return call;
}

void call_end(struct call *call) {
    for (; call != NULL; call = call->next) {
        attn_plan_free(call->plan);
        comparison_free(call->comparison);
        excluded_free(call);
        layer_end(call->stored.weights.layers, &call->stored.weights.use);
        pthread_mutex_destroy(&call->mutex);
    }
}

attn_status call_plan_multihead(struct call *call, attn_error *error) {
    return attn_plan_multihead(&call->plan, &call->multihead, &call->options, error);
}

/* Plans a call, and the reference that its comparison needs. */
static bool make_plans(struct call *call, struct api_request *request, call_plan *plan) {
    struct codec_error *codec_error = &request->input.error;
    attn_error error = {0};
    if (plan(call, &error) != ATTN_OK) {
        fields_refuse(request, &error);
        return false;
    }
    if (call->comparison != NULL &&
        !comparison_check(call, &request->account, plan, request->body, codec_error)) {
        reply_codec_error(request, codec_error);
        return false;
    }
    return true;
}

bool call_make(struct call *call, struct api_request *request, call_read *read, call_plan *plan) {
    struct codec_error *error = &request->input.error;
    if (!read(call, request, error) || !excluded_check(call, request->body, error)) {
        reply_codec_error(request, error);
        return false;
    }
    /* The memory of a plan is known only when it is made, so the most that sequences may take is
     * taken for as long as that lasts. */
    const size_t count = call->sequences.count;
    const size_t bytes = (count < MOST_PLANS ? count : MOST_PLANS) * PLAN_BYTES;
    if (!account_take(&request->account, bytes)) {
        reply_no_memory(request);
        return false;
    }
    const bool good = make_plans(call, request, plan);
    account_give(&request->account, bytes);
    return good;
}

struct api_work *call_handle(struct api_request *request, call_read *read, call_plan *plan) {
    struct call *call = call_new(request, NULL);
    struct api_work *work =
        call != NULL && call_make(call, request, read, plan) ? call_work(call, request) : NULL;
    if (work == NULL) {
        call_end(call);
    }
    return work;
}

/* -------------------------------------------------------------------------------------- the job */

/* The first phase begins the plan; those of the plan follow. */
static size_t call_tasks(const void *call, size_t phase) {
    return phase == 0 ? 1 : attn_plan_tasks(((const struct call *)call)->plan, phase - 1);
}

static bool call_task(void *call_, const struct jobs_task *task) {
    struct call *call = call_;
    attn_error error;
    if ((task->phase == 0 ? attn_plan_begin(call->plan, &error)
                          : attn_plan_task(call->plan, task->phase - 1, task->index, task->scratch,
                                           &error)) == ATTN_OK) {
        return true;
    }
    call_fail(call, task->index, &error);
    return false;
}

/* Puts the phases of a call and of those that follow it into the job. */
static void add_phases(struct call *call, struct job *job) {
    struct job_phases **end = &job->phases;
    for (; call != NULL; call = call->next) {
        const size_t count = attn_plan_phases(call->plan) + 1;
        call->phases = (struct job_phases){NULL, count, call_tasks, call_task, call};
        *stored_prepare(call, excluded_add_phases(call, end)) = &call->phases;
        end = &call->phases.next;
        if (call->comparison != NULL) {
            end = comparison_add_phases(call->comparison, end);
        }
    }
}

static bool call_answer(struct api_work *work, struct api_request *request,
                        struct codec_items *list) {
    for (struct call *call = (struct call *)work; call != NULL; call = call->next) {
        layer_give_weights(call->stored.weights.layers, &call->stored.weights.use);
    }
    const bool listed = answer_list_results((struct call *)work, request, list);
    /* An I/O thread may send the answer and end the calls. The answer has copies of what the plans
     * of many layers say of their results. */
    for (struct call *call = (struct call *)work; call != NULL && call->all_layers;
         call = call->next) {
        attn_plan_free(call->plan);
        call->plan = NULL;
    }
    return listed;
}

static void call_release(struct api_work *work) {
    call_end((struct call *)work);
}

/* Returns the bytes that the empty arrays of a result have in an answer, or SIZE_MAX if they cannot
 * be counted. They take no memory, but there may be many. */
static size_t empty_bytes(const attn_result_tensor *tensor) {
    size_t bytes = EMPTY_BYTES;
    for (int axis = 0; axis < tensor->rank; axis++) {
        if (tensor->shape[axis] == 0) {
            return bytes;
        }
        if (bytes == SIZE_MAX || __builtin_mul_overflow(bytes, tensor->shape[axis], &bytes)) {
            bytes = SIZE_MAX;
        }
    }
    return 0;
}

/* Adds the bytes of the empty arrays of all results. Returns false if that does not fit. */
static bool add_empty_arrays(const struct call *call, size_t *bytes) {
    bool fits = true;
    for (uint64_t bits = call->options.results; bits != 0; bits &= bits - 1) {
        const attn_result result = (attn_result)__builtin_ctzll(bits);
        for (size_t part = 0; part < attn_plan_parts(call->plan, result); part++) {
            const size_t more = empty_bytes(attn_plan_tensor(call->plan, result, part));
            fits = fits && !__builtin_add_overflow(*bytes, more, bytes);
        }
    }
    return fits;
}

/* Adds the limits and the memory of one call to those of the job. Returns false if the bytes do not
 * fit into a size_t. */
static bool add_to_job(const struct call *call, unsigned threads, struct job *job, size_t *total) {
    const attn_plan *plan = call->plan;
    const size_t own = attn_plan_scratch(plan);
    size_t bytes;
    job->cost += attn_plan_cost(plan) + stored_cost(call) + excluded_cost(call);
    job->scratch = own > job->scratch ? own : job->scratch;
    if (call->comparison != NULL) {
        const attn_plan *reference = call->comparison->reference;
        const size_t scratch = attn_plan_scratch(reference);
        job->cost += comparison_cost(call->comparison);
        job->scratch = scratch > job->scratch ? scratch : job->scratch;
        if (!attn_plan_bytes(reference, threads, &bytes) ||
            __builtin_add_overflow(*total, bytes, total)) {
            return false;
        }
    }
    return attn_plan_bytes(plan, threads, &bytes) && add_empty_arrays(call, &bytes) &&
           !__builtin_add_overflow(*total, bytes, total);
}

/* Makes room for the results of a plan. Returns false if there is no memory. */
static bool make_block(attn_plan *plan, struct account *account) {
    size_t bytes;
    char *block;
    if (!attn_plan_results_bytes(plan, &bytes)) {
        return false;
    }
    block = account_alloc_taken(account, ATTN_ALIGNMENT, bytes);
    if (block != NULL) {
        attn_plan_bind_all(plan, block);
    }
    return block != NULL;
}

/* Returns the bytes of a result, or 0 if the call does not compute it. */
static size_t result_bytes(const struct call *call, enum answer_name name) {
    size_t bytes = 0;
    for (uint64_t bits = answer_bits[name]; bits != 0; bits &= bits - 1) {
        const attn_result result = (attn_result)__builtin_ctzll(bits);
        for (size_t part = 0; part < attn_plan_parts(call->plan, result); part++) {
            const attn_result_tensor *tensor = attn_plan_tensor(call->plan, result, part);
            size_t size = attn_dtype_size(tensor->dtype);
            for (int axis = 0; axis < tensor->rank; axis++) {
                size *= tensor->shape[axis];
            }
            bytes += size + empty_bytes(tensor);
        }
    }
    return bytes;
}

/* Writes which result of work that is too large takes most of its `total` bytes, and whether the
 * work would fit if it returned nothing but its output. */
static void name_largest(const struct call *call, size_t total, size_t room, char *out,
                         size_t size) {
    size_t bytes[ANSWER_COUNT] = {0}, others = 0;
    enum answer_name largest = call->returned[0];
    char text[32];
    for (const struct call *c = call; c != NULL; c = c->next) {
        for (size_t name = 0; name < ANSWER_COUNT; name++) {
            bytes[name] += result_bytes(c, (enum answer_name)name);
        }
    }
    for (size_t name = 0; name < ANSWER_COUNT; name++) {
        others += name != ANSWER_OUTPUT ? bytes[name] : 0;
        largest = bytes[name] > bytes[largest] ? (enum answer_name)name : largest;
    }
    reply_put_size(text, bytes[largest]);
    const int used = snprintf(out, size, "; \"%s\" takes %s of it", answer_names[largest], text);
    if (call->comparison == NULL && call->options.upstream == NULL && bytes[ANSWER_OUTPUT] > 0 &&
        others > 0 && total - others + ANSWER_ROOM <= room) {
        snprintf(out + used, size - (size_t)used,
                 ", and with \"return\": [\"output\"] the request would fit");
    }
}

struct api_work *call_work(struct call *call, struct api_request *request) {
    size_t total = 0, stored = 0; /* the calls follow one another, so one scratch is enough */
    struct job *job = &call->work.job;
    for (const struct call *c = call; c != NULL && total != SIZE_MAX; c = c->next) {
        stored = c->stored.weights.scratch > stored ? c->stored.weights.scratch : stored;
        if (!add_to_job(c, request->state->threads, job, &total)) {
            total = SIZE_MAX; /* api_admit() refuses it */
        }
    }
    job->scratch = stored > job->scratch ? stored : job->scratch;
    if (__builtin_add_overflow(total, stored * request->state->threads, &total)) {
        total = SIZE_MAX;
    }
    const size_t room = account_room(&request->account);
    char hint[160] = "";
    if (total > room && total != SIZE_MAX) {
        name_largest(call, total, room, hint, sizeof hint);
    }
    if (!api_admit(request, &call->work, total, hint)) {
        return NULL;
    }
    for (struct call *c = call; c != NULL; c = c->next) {
        if (!make_block(c->plan, &request->account) ||
            (c->comparison != NULL && !make_block(c->comparison->reference, &request->account))) {
            reply_no_memory(request);
            return NULL;
        }
    }
    call->work.answer = call_answer;
    call->work.release = call_release;
    add_phases(call, job);
    return &call->work;
}
