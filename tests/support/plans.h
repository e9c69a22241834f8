/*
 * plans.h - the numbers of tensors in any dtype, and runs of plans with their tasks in any order.
 * The tests of drawn calls share it. A number is a double here, which is exact in its dtype.
 */
#ifndef SUPPORT_PLANS_H
#define SUPPORT_PLANS_H

#include <stddef.h>

#include "attention.h"

/* Allocates zeros; the program ends if there is no memory. */
void *allocate(size_t count, size_t size);

/* Rounds a number to a dtype; reads or writes number i of an array. */
double in_dtype(attn_dtype dtype, double x);
double number_of(const void *data, attn_dtype dtype, size_t i);
void set_number(void *data, attn_dtype dtype, size_t i, double x);

/* Returns a number of a tensor, or the count of its numbers. */
double tensor_number(const attn_tensor *t, size_t i);
size_t count_of(const attn_tensor *t);

/* Runs all tasks of a plan, as attn_plan_run() does. */
typedef attn_status run_tasks(attn_plan *plan, attn_error *error);

/* Run the tasks of each phase in order, or from the last to the first, each on a scratch full of
 * NaN that ends where nothing can be read; or on so many threads, each of which takes the next
 * task. */
run_tasks run_forwards, run_backwards;
run_tasks run_on_1, run_on_2, run_on_3, run_on_7, run_on_64;

/* The results of a run, as doubles. The parts of a result follow each other. */
struct results {
    attn_status status;
    attn_error error;
    double *of[ATTN_RESULT_COUNT]; /* NULL if a result is not wanted, or after an error */
    size_t count[ATTN_RESULT_COUNT];
};

/* Runs a plan, which is freed, by attn_plan_run() or by `run`. Results are filled with NaN before,
 * and nothing behind them can be written. Free the results with free_results(). */
struct results run_plan(attn_plan *plan, run_tasks *run);
void free_results(struct results *r);

#endif
