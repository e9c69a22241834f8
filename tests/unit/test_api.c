/*
 * test_api.c - requests without a socket: the application gets a body, and the test looks at the
 * response. tests/api has the tests over a socket.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/reply.h"
#include "support/app.h"
#include "support/count.h"
#include "support/json.h"

static struct api_state state = {.budget = {.max_request = 4 << 20, .max_total = 8 << 20},
                                 .max_work = 1e6,
                                 .timeout = 60,
                                 .threads = 2};
static const struct http_request post = {.method = "POST",
                                         .path = "/attention",
                                         .media_type = "application/json",
                                         .id = "unit",
                                         .authorized = true};

static char text[1 << 16]; /* the beginning of the last response's body */

/* Gives the application a body in pieces of `step` bytes. Returns the response, whose body is in
 * `text`. */
static struct http_response ask(const struct http_request *request, const char *body, size_t step) {
    const struct http_app app = api_app(&state);
    struct app_answer answer;
    app_ask(&app, request, &(struct app_body){body, strlen(body), step, false}, &answer);
    cr_assert_null(answer.fault, "%s", answer.fault);
    snprintf(text, sizeof text, "%s", answer.body);
    free(answer.body);
    return answer.response;
}

static void expect_answer(const char *body, int status, const char *contains) {
    for (size_t step = 1; step <= 1000; step += 333) {
        cr_expect_eq(ask(&post, body, step).status, status, "%s", text);
        cr_expect_not_null(strstr(text, contains), "no %s in %s", contains, text);
    }
}

/* The numbers of matrices become float32 before the handler reads them, in chunks, wherever they
 * stand. Lists of whole numbers and of doubles stay as they are. */
Test(api, knows_which_numbers_are_those_of_matrices) {
    static const struct {
        unsigned at;
        const char *member;
        size_t numbers;
    } rows[] = {
        {FIELDS_AT_PROJECTIONS, "\"X\":[[1,2],[3,4]]", 4},
        {FIELDS_AT_PROJECTIONS, "\"heads\":[{\"W_Q\":[[1,2]],\"b_Q\":[1]},{\"W_V\":[[3]]}]", 4},
        {FIELDS_AT_PROJECTIONS, "\"expected\":{\"output\":[[1,2,3]],\"lse\":[1]}", 4},
        {FIELDS_AT_PROJECTIONS, "\"mask\":[[1,0]],\"key_padding\":[1,1,0]", 5},
        {FIELDS_AT_ATTENTION, "\"alibi\":[1,2],\"sink\":[1],\"bias\":[[1]],\"decay\":[0]", 5},
        {FIELDS_AT_ATTENTION, "\"positions\":[1,2],\"scale\":[1],\"lengths\":[1],\"window\":[1,1]",
         0},
        {FIELDS_AT_ATTENTION, "\"sequences\":[[1]],\"sequence_offsets\":[[0,1]]", 0},
        {FIELDS_AT_ATTENTION, "\"rotary\":{\"scaling\":{\"short_factor\":[1,2]}}", 0},
        {FIELDS_AT_ATTENTION, "\"Q\":{\"random\":\"normal\",\"shape\":[1,2]}", 0},
        {FIELDS_AT_ATTENTION, "\"dtype\":\"float64\",\"Q\":[[1]],\"mask\":[[1]]", 1},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct codec_options options = {.dtype_key = fields_dtype_key()};
        struct codec_reader *reader = codec_reader_create(&options);
        struct codec_document *document;
        struct codec_error error;
        struct fields fields;
        snprintf(text, sizeof text, "{%s}", rows[i].member);
        codec_reader_feed(reader, text, strlen(text));
        cr_assert_eq(codec_reader_finish(reader, &document), CODEC_OK, "%s", text);
        codec_reader_free(reader);
        fields_find(&fields, codec_root(document), rows[i].at);
        fields_expect(&fields, document);
        for (size_t left = rows[i].numbers; left > 0; left--) {
            cr_assert_eq(codec_unconverted(document), left, "%s", text);
            cr_assert(codec_convert(document, 1, &error));
        }
        cr_expect_eq(codec_unconverted(document), 0, "%s", text);
        codec_document_free(document);
    }
}

/* The memory of all requests together is bounded while a body is read, and when the results are
 * allocated. */
Test(api, refuses_when_the_memory_of_all_is_in_use) {
    size_t size;
    char *body = json_body("{\"X\":#500x1,\"return\":[\"weights\"]}", &size); /* 1 MB of weights */
    state.max_work = 1e9;
    for (size_t in_use = 0; in_use <= 1; in_use++) {
        const size_t others = state.budget.max_total - (in_use == 0 ? 10000 : 1 << 20);
        atomic_store(&state.budget.used, others);
        expect_answer(body, 503, "its operator sets the limit with --total-memory");
        cr_expect_eq(state.budget.used, others);
        atomic_store(&state.budget.used, 0);
        cr_expect_eq(ask(&post, body, 1000).status, 200);
        cr_expect_eq(state.budget.used, 0);
    }
    cr_expect_eq(state.metrics.refused_memory, 8);
    free(body);
}

/* A long answer is encoded while it is sent. The memory that the server holds for this counts. */
Test(api, counts_a_long_answer_while_it_is_sent) {
    static const float zeros[40000];
    const attn_tensor tensor = {.data = zeros, .dtype = ATTN_FLOAT32, .rank = 1, .shape = {40000}};
    struct http_response response = {0};
    struct api_request request = {.http = &post, .state = &state, .response = &response};
    struct codec_items list;
    account_open(&request.account, &state.budget, 0);
    codec_items_begin(&list, &request.account);
    codec_add_tensor(&list, NULL, &tensor);
    reply_json(&request, &list, 0);
    cr_assert_not_null(response.read);
    cr_expect_geq(request.account.held, HTTP_STREAM);
    response.release((void *)(uintptr_t)response.body);
    account_close(&request.account);
}

/* A long answer of binary tensors counts while it is sent, and so does its header. */
Test(api, counts_a_long_binary_answer_while_it_is_sent) {
    static const float zeros[40000];
    const attn_tensor tensor = {.data = zeros, .dtype = ATTN_FLOAT32, .rank = 1, .shape = {40000}};
    struct http_response response = {0};
    struct api_request request = {.http = &post,
                                  .state = &state,
                                  .response = &response,
                                  .input.decoder.floats = CODEC_TYPE_FP32};
    struct codec_items list;
    account_open(&request.account, &state.budget, 0);
    codec_items_begin(&list, &request.account);
    codec_add_open(&list, CODEC_OP_OBJECT, NULL);
    codec_add_tensor(&list, "output", &tensor);
    codec_add_close(&list);
    tensors_reply(&request, &list);
    cr_assert_eq(response.status, 200);
    cr_assert_not_null(response.read);
    cr_expect_geq(request.account.held, HTTP_STREAM + request.tensors.header.size);
    cr_expect_gt(response.size, sizeof zeros);
    account_close(&request.account);
}

/* Only small requests whose body is complete may use the last part of the memory, because a client
 * could let an incomplete one wait for long. */
Test(api, keeps_a_reserve_for_small_requests) {
    size_t size;
    char *large = json_body("{\"X\":#400x1,\"return\":[\"weights\"]}", &size);
    const char *small = "{\"X\":[[0],[0]],\"return\":[\"output\"]}";
    struct http_request request = post;
    state.max_work = 1e9;
    atomic_store(&state.budget.used, state.budget.max_total / 16 * 15);
    request.length = strlen(small);
    cr_expect_eq(ask(&request, small, SIZE_MAX / 2).status, 200, "%s", text);
    cr_expect_eq(ask(&request, small, request.length - 1).status, 503, "%s", text);
    request.length = 0; /* the length of a body in chunks is not known */
    cr_expect_eq(ask(&request, small, SIZE_MAX / 2).status, 503, "%s", text);
    request.length = size; /* the text is small, but the result is not */
    cr_expect_eq(ask(&request, large, SIZE_MAX / 2).status, 503, "%s", text);
    atomic_store(&state.budget.used, 0);
    cr_expect_eq(ask(&request, large, SIZE_MAX / 2).status, 200, "%s", text);
    free(large);
}

/* Returns the most bytes that this request holds. */
static size_t needed(const char *body) {
    atomic_store(&state.budget.peak, 0);
    cr_expect_eq(ask(&post, body, SIZE_MAX / 2).status, 200, "%s", text);
    cr_expect_eq(state.budget.used, 0);
    return state.budget.peak;
}

/* A matrix that is drawn counts as a matrix in the body does, and its memory is given back. */
Test(api, draws_are_memory_and_work) {
    static const char drawn[] =
        "{\"random\":{\"generator\":\"numpy\",\"seed\":1},\"X\":{\"random\":"
        "\"rand\",\"shape\":[50,200]},\"return\":[\"lse\"]}";
    size_t size;
    char *given = json_body("{\"X\":#50x200,\"return\":[\"lse\"]}", &size);
    state.max_work = 1e9;
    const size_t of_drawn = needed(drawn), of_given = needed(given), bytes = 50 * 200 * 4;
    cr_expect(of_drawn >= bytes && of_given >= bytes && of_drawn < of_given + bytes, "%zu and %zu",
              of_drawn, of_given);
    state.budget.max_request = 40000; /* enough to read the request, but not to draw X */
    expect_answer(drawn, 413, "sets with --max-memory\",\"pointer\":\"/X\"");
    state.max_work = 1e6;
    state.budget.max_request = 4 << 20;
    expect_answer(drawn, 413, "multiply-adds; this server allows 1000000");
    expect_answer("{\"text\":\"a b\",\"embedding\":[[1,2],[3,4]],\"return\":[\"output\"]}", 200,
                  "{\"tokens\":[\"a\",\"b\"],\"output\":[[");
    cr_expect_eq(state.budget.used, 0);
    free(given);
}

/* A long body is not read when the workers take no more, so even its mistakes are not seen. A short
 * body is read, and a small computation is done. */
Test(api, reads_no_long_body_when_the_workers_take_no_more) {
    const struct jobs_options no_job = {.threads = 1, .max_jobs = 0, .max_cost = 1e12};
    size_t size;
    char *body = json_body("{\"X\":[[1]*2100(,[1])nonsense", &size);
    state.jobs = jobs_start(&no_job);
    cr_assert_not_null(state.jobs);
    expect_answer(body, 503, "its operator sets the limit with --max-queue");
    cr_expect_eq(state.budget.used, 0);
    cr_expect_eq(state.metrics.refused_queue, 4);
    expect_answer("{\"X\":[[0],[0]],\"return\":[\"output\"]}", 200, "{\"output\":[[0],[0]]}\n");
    free(body);
    jobs_stop(state.jobs);
    state.jobs = NULL;
}

#define DRAWN(shape, more)                                                                         \
    "{\"random\":{\"generator\":\"numpy\",\"seed\":1},\"return\":[\"lse\"]," more                  \
    "\"X\":{\"random\":\"rand\",\"shape\":" shape "}}"

/* The workers take no job here, so a request that needs them is refused. A request with many heads
 * or batch items needs them, however short its body is. The answer to a request with a mistake does
 * not need them. */
Test(api, leaves_the_planning_for_many_parts_to_the_workers) {
    static const char busy[] = "its operator sets the limit with --max-queue";
    static const struct {
        const char *body;
        int status;
        const char *contains;
    } cases[] = {
        {DRAWN("[1,3000]", "\"heads\":3000,"), 503, busy},
        {DRAWN("[3000,1,1]", ""), 503, busy},
        {DRAWN("[60,50,1,1]", ""), 503, busy},
        {DRAWN("[30,1,100]", "\"heads\":100,"), 503, busy},
        {DRAWN("[2147483647,2147483647,2147483647,1]", ""), 503, busy},
        {DRAWN("[1,1000]", "\"heads\":100,"), 200, "{\"lse\":["},
        {DRAWN("[1,3000]", "\"heads\":2,"), 200, "{\"lse\":["},
        {DRAWN("[1,3000]", "\"heads\":1e308,"), 422, "/heads"},
        {DRAWN("[1,3000]", "\"heads\":-3000,"), 422, "/heads"},
        {DRAWN("[1,3000]", "\"heads\":2.5,"), 422, "/heads"},
        {DRAWN("[0,0,0,0,3,4]", ""), 422, "its shape is (0, 0, 0, 0, 3, 4)"},
        {DRAWN("[3000,1,-1]", ""), 422, "/X/shape/2"},
        {DRAWN("\"3000\"", ""), 422, "/X/shape"},
        {"{\"heads\":3000,\"X\":[[1,2],[3,4]]}", 503, busy},
        {"[[1,2],[3,4]]", 422, "object"},
    };
    const struct jobs_options no_job = {.threads = 1, .max_jobs = 0, .max_cost = 1e12};
    state.max_work = 1e9;
    state.jobs = jobs_start(&no_job);
    cr_assert_not_null(state.jobs);
    for (size_t i = 0; i < COUNT(cases); i++) {
        expect_answer(cases[i].body, cases[i].status, cases[i].contains);
    }
    cr_expect_eq(state.budget.used, 0);
    jobs_stop(state.jobs);
    state.jobs = NULL;
}
