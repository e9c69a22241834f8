/*
 * test_attention_buffers.c - tests the one buffer for all results of a plan, and the bytes that a
 * plan says it takes.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "plan.h"

enum {
    ROWS = 5,
    MODEL = 3,
    HEADS = 2,
    MOST_RESULTS = ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS) | ATTN_WANT(LSE) | ATTN_WANT(STATISTICS) |
                   ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(PRESENT_K) | ATTN_WANT(Q) | ATTN_WANT(V)
};

/* Plans two heads that have weights of their own, of 1 and of 4 columns. */
static attn_plan *plan_of_two_heads(void) {
    static const float numbers[ROWS * MODEL * 4] = {1, -2, 3, 0.5f, 2, 1, -1, 0, 1};
    const attn_tensor x = {.data = numbers, .rank = 2, .shape = {ROWS, MODEL}};
    const attn_tensor narrow = {.data = numbers, .rank = 2, .shape = {MODEL, 1}};
    const attn_tensor wide = {.data = numbers, .rank = 2, .shape = {MODEL, 4}};
    const attn_projection projections[HEADS] = {
        {.w_q = &narrow, .w_k = &narrow, .w_v = &wide},
        {.w_q = &wide, .w_k = &wide, .w_v = &narrow},
    };
    const attn_multihead call = {
        .x = &x, .projections = projections, .count = HEADS, .per_head = true};
    const attn_options options = {.results = MOST_RESULTS};
    attn_plan *plan;
    attn_error error;
    cr_assert_eq(attn_plan_multihead(&plan, &call, &options, &error), ATTN_OK, "%s", error.message);
    return plan;
}

static size_t bytes_of(const attn_plan *plan, attn_result result, size_t part) {
    const attn_tensor tensor = attn_as_tensor(attn_plan_tensor(plan, result, part));
    size_t bytes;
    cr_assert(attn_tensor_bytes(&tensor, &bytes));
    return bytes;
}

/* The parts lie in one buffer, aligned, one after the other. They hold the bytes that they hold in
 * buffers of their own. */
Test(buffers, one_holds_all_results) {
    attn_plan *together = plan_of_two_heads(), *apart = plan_of_two_heads();
    size_t bytes = 0, parts = 0, end = 0;
    cr_assert(attn_plan_results_bytes(together, &bytes));
    char *buffer = aligned_alloc(ATTN_ALIGNMENT, bytes + ATTN_ALIGNMENT);
    cr_assert_not_null(buffer);
    memset(buffer, 0x55, bytes + ATTN_ALIGNMENT);
    cr_assert_eq(attn_plan_bind_all(together, buffer), ATTN_OK);
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        for (size_t part = 0; part < attn_plan_parts(apart, (attn_result)r); part++) {
            void *own = malloc(bytes_of(apart, (attn_result)r, part));
            cr_assert_eq(attn_plan_bind(apart, (attn_result)r, part, own), ATTN_OK);
        }
    }
    cr_assert_eq(attn_plan_run(together, NULL), ATTN_OK);
    cr_assert_eq(attn_plan_run(apart, NULL), ATTN_OK);
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        for (size_t part = 0; part < attn_plan_parts(apart, (attn_result)r); part++) {
            const char *data = attn_plan_tensor(together, (attn_result)r, part)->data;
            void *own = attn_plan_tensor(apart, (attn_result)r, part)->data;
            const size_t size = bytes_of(together, (attn_result)r, part);
            cr_expect_eq((size_t)(data - buffer), end, "%s", attn_result_name((attn_result)r));
            cr_expect_eq(memcmp(data, own, size), 0, "%s", attn_result_name((attn_result)r));
            end += (size + ATTN_ALIGNMENT - 1) / ATTN_ALIGNMENT * ATTN_ALIGNMENT;
            parts++;
            free(own);
        }
    }
    cr_expect_eq(end, bytes);
    cr_expect_eq(parts, 5 + 3 * HEADS);
    for (size_t i = 0; i < ATTN_ALIGNMENT; i++) {
        cr_expect_eq(buffer[bytes + i], 0x55, "byte %zu after the buffer is written", i);
    }
    attn_plan_free(together);
    attn_plan_free(apart);
    free(buffer);
}

/* A result may be written, and it may be an input of another plan. */
Test(buffers, a_result_may_be_written_and_read_as_an_input) {
    attn_plan *first = plan_of_two_heads(), *second;
    size_t bytes;
    double twice[ROWS];
    cr_assert(attn_plan_results_bytes(first, &bytes));
    void *buffer = aligned_alloc(ATTN_ALIGNMENT, bytes);
    cr_assert_eq(attn_plan_bind_all(first, buffer), ATTN_OK);
    cr_assert_eq(attn_plan_run(first, NULL), ATTN_OK);
    float *q = attn_plan_tensor(first, ATTN_RESULT_Q, 0)->data;
    for (size_t i = 0; i < ROWS; i++) {
        twice[i] = 2 * (double)q[i];
        q[i] *= 2;
    }
    const attn_tensor x = attn_as_tensor(attn_plan_tensor(first, ATTN_RESULT_Q, 0));
    cr_assert(x.data == q && x.dtype == ATTN_FLOAT32 && x.rank == 2);
    cr_assert(x.shape[0] == ROWS && x.shape[1] == 1);
    const attn_options options = {.flags = ATTN_FLAG_SCALE, .scale = 0};
    float output[ROWS];
    cr_assert_eq(attn_plan_attention(&second, &x, &x, &x, &options, NULL), ATTN_OK);
    attn_plan_bind(second, ATTN_RESULT_OUTPUT, 0, output);
    cr_assert_eq(attn_plan_run(second, NULL), ATTN_OK);
    const double mean = (twice[0] + twice[1] + twice[2] + twice[3] + twice[4]) / ROWS;
    cr_expect_float_eq(output[0], mean, 1e-6);
    attn_plan_free(first);
    attn_plan_free(second);
    free(buffer);
}

Test(buffers, that_cannot_hold_the_results_are_refused) {
    attn_plan *plan = plan_of_two_heads();
    char *buffer = aligned_alloc(ATTN_ALIGNMENT, 2 * ATTN_ALIGNMENT);
    cr_expect_eq(attn_plan_bind_all(plan, NULL), ATTN_INVALID_ARGUMENT);
    cr_expect_eq(attn_plan_bind_all(plan, buffer + 8), ATTN_INVALID_ARGUMENT);
    cr_expect_null(attn_plan_tensor(plan, ATTN_RESULT_OUTPUT, 0)->data);
    attn_plan_free(plan);
    free(buffer);
}

/* Each of these results has 2^62 bytes, so four of them are more than can be addressed. */
Test(buffers, of_results_that_cannot_be_addressed_are_refused) {
    static const float nothing[1];
    static const unsigned results[] = {ATTN_WANT(SCORES), ATTN_WANT(SCALED_SCORES),
                                       ATTN_WANT(MASKED_SCORES), ATTN_WANT(WEIGHTS)};
    const attn_tensor x = {.data = nothing, .rank = 2, .shape = {1 << 30, 1}};
    attn_options options = {0};
    for (size_t i = 0; i < 4; i++) {
        attn_plan *plan;
        size_t bytes = 7, all = 7;
        options.results |= results[i];
        cr_assert_eq(attn_plan_attention(&plan, &x, &x, &x, &options, NULL), ATTN_OK);
        cr_expect_eq(attn_plan_results_bytes(plan, &bytes), i < 3);
        cr_expect_eq(bytes, i < 3 ? (i + 1) << 62 : 7);
        cr_expect_eq(attn_plan_bytes(plan, 1, &all), i < 3);
        cr_expect(i < 3 ? all > bytes : all == 7);
        if (i == 3) { /* no buffer could hold the results of the others, either */
            _Alignas(ATTN_ALIGNMENT) char buffer[ATTN_ALIGNMENT];
            cr_expect_eq(attn_plan_bind_all(plan, buffer), ATTN_TOO_LARGE);
            cr_expect_null(attn_plan_tensor(plan, ATTN_RESULT_SCORES, 0)->data);
        }
        attn_plan_free(plan);
    }
}

Test(buffers, of_an_empty_result_may_be_of_any_size) {
    float x[1] = {3};
    const attn_tensor empty = {.data = x, .rank = 2, .shape = {0, 4}};
    attn_plan *plan;
    size_t bytes = 7;
    _Alignas(ATTN_ALIGNMENT) char buffer[ATTN_ALIGNMENT];
    cr_assert_eq(attn_plan_softmax(&plan, &empty, 1, NULL), ATTN_OK);
    cr_expect(attn_plan_results_bytes(plan, &bytes) && bytes == 0);
    cr_assert_eq(attn_plan_bind_all(plan, buffer), ATTN_OK);
    cr_expect_eq(attn_plan_run(plan, NULL), ATTN_OK);
    attn_plan_free(plan);
}

/* Each thread needs a scratch, but no more threads than a phase has tasks. */
Test(buffers, bytes_of_a_plan_count_a_scratch_for_each_thread) {
    static const float nothing[1];
    const attn_tensor x = {.data = nothing, .rank = 2, .shape = {4096, 64}};
    attn_plan *plan;
    size_t bytes[4], results, tasks = 0;
    cr_assert_eq(attn_plan_attention(&plan, &x, &x, &x, NULL, NULL), ATTN_OK);
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        const size_t of_phase = attn_plan_tasks(plan, phase);
        tasks = of_phase > tasks ? of_phase : tasks;
    }
    const size_t threads[4] = {0, 1, tasks, tasks + 1};
    cr_assert_gt(tasks, 1);
    for (size_t i = 0; i < 4; i++) {
        cr_assert(attn_plan_bytes(plan, threads[i], &bytes[i]));
    }
    cr_assert(attn_plan_results_bytes(plan, &results));
    cr_expect_eq(bytes[1] - bytes[0], attn_plan_scratch(plan));
    cr_expect_eq(bytes[2] - bytes[0], tasks * attn_plan_scratch(plan));
    cr_expect_eq(bytes[3], bytes[2]);
    cr_expect_eq(results, (size_t)4096 * 64 * sizeof(float));
    cr_expect_geq(bytes[0], results + plan->schedule.workspace.bytes + sizeof *plan);
    attn_plan_free(plan);
}
