/*
 * test_comparison.c - the tasks of a comparison. tests/api has the tests of what is found.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>

#include "api/call/comparison.h"
#include "jobs/jobs.h"

/* The first of equal errors is named, also if the task that finds it is the last to end. */
Test(comparison, the_first_of_equal_errors_is_named) {
    enum {
        NUMBERS = 1 << 20,
        FIRST = 5,
        SECOND = NUMBERS - 5
    };
    static const double one = 1;
    const attn_tensor x = {&one, ATTN_FLOAT64, 1, {1}};
    double *numbers = calloc(NUMBERS, sizeof *numbers), *others = calloc(NUMBERS, sizeof *others);
    double *spread = calloc(NUMBERS, sizeof *spread);
    struct comparison_row *rows = calloc(NUMBERS, sizeof *rows);
    const attn_result_tensor result = {others, ATTN_FLOAT64, 1, {NUMBERS}};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct comparison *comparison = calloc(1, sizeof *comparison + sizeof(struct comparison_pair));
    struct comparison_pair *pair = comparison->pairs;
    struct job_phases *first = NULL;
    numbers[FIRST] = numbers[SECOND] = 2;
    others[FIRST] = others[SECOND] = 1;
    comparison->mutex = &mutex;
    comparison->count = comparison->runs = 1;
    comparison->first = comparison->type = comparison_types;
    cr_assert_eq(attn_plan_softmax(&comparison->reference, &x, 0, NULL), ATTN_OK);
    *pair = (struct comparison_pair){
        .expected = {numbers, ATTN_FLOAT64, 1, {NUMBERS}},
        .type = CODEC_TYPE_FP64,
        .computed = comparison_types,
        .result = &result,
        .spread = spread,
        .rows = rows,
        .row_size = 1,
        .row_count = NUMBERS,
        .run = NUMBERS,
        .step = 1,
        .count = NUMBERS,
        .head_size = NUMBERS,
        .found = {.absolute = {0, SIZE_MAX}, .relative = {0, SIZE_MAX}, .worst = {0, SIZE_MAX}},
    };
    comparison_add_phases(comparison, &first);
    for (size_t phase = 0; phase < first->count; phase++) {
        const size_t tasks = first->tasks(first->argument, phase);
        cr_assert(tasks > 1 || (phase != 0 && phase != 2));
        for (size_t task = tasks; task-- > 0;) {
            cr_assert(
                first->run(first->argument, &(struct jobs_task){.phase = phase, .index = task}));
        }
    }
    cr_expect_eq(pair->found.absolute.element, FIRST);
    cr_expect_eq(pair->found.relative.element, FIRST);
    cr_expect_eq(pair->found.worst.element, FIRST);
    cr_expect_eq(pair->found.beyond, 2);
    cr_expect(pair->worst_count == 2 && pair->worst[0] == FIRST && pair->worst[1] == SECOND);
    comparison_free(comparison);
    free(comparison);
    free(rows);
    free(spread);
    free(others);
    free(numbers);
}
