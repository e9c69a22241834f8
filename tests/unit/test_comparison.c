/*
 * test_comparison.c - the tasks of a comparison. tests/api has the tests of what is found.
 */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>

#include "api/comparison.h"
#include "jobs/jobs.h"

/* The first of equal errors is named, also if the task that finds it is the last to end. */
Test(comparison, the_first_of_equal_errors_is_named) {
    enum {
        NUMBERS = 1 << 20,
        FIRST = 5,
        SECOND = NUMBERS - 5
    };
    float *numbers = calloc(NUMBERS, sizeof *numbers), *others = calloc(NUMBERS, sizeof *others);
    const attn_result_tensor result = {others, ATTN_FLOAT32, 1, {NUMBERS}};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct comparison *comparison = calloc(1, sizeof *comparison + sizeof(struct comparison_pair));
    struct comparison_pair *pair = comparison->pairs;
    struct job_phases *first = NULL;
    numbers[FIRST] = numbers[SECOND] = 2;
    others[FIRST] = others[SECOND] = 1;
    comparison->mutex = &mutex;
    comparison->count = 1;
    *pair = (struct comparison_pair){
        .expected = {numbers, ATTN_FLOAT32, 1, {NUMBERS}},
        .result = &result,
        .count = NUMBERS,
        .head_size = NUMBERS,
        .found = {.absolute = {0, SIZE_MAX}, .relative = {0, SIZE_MAX}},
    };
    comparison_add_phases(comparison, &first);
    const size_t tasks = first->tasks(first->argument, 0);
    cr_assert_gt(tasks, 1);
    for (size_t task = tasks; task-- > 0;) {
        cr_assert(first->run(first->argument, &(struct jobs_task){.index = task}));
    }
    cr_expect_eq(pair->found.absolute.element, FIRST);
    cr_expect_eq(pair->found.relative.element, FIRST);
    cr_expect_eq(pair->found.worst.element, FIRST);
    cr_expect_eq(pair->found.beyond, 2);
    free(comparison);
    free(others);
    free(numbers);
}
