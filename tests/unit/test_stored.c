/* test_stored.c - the tasks that make the relative bias of a stored layer. */
#include <criterion/criterion.h>

#include "api/call/call.h"

/* A row of so many keys is a task of its own, so there are as many tasks as rows: not one more. */
Test(stored, each_long_row_of_the_bias_is_a_task) {
    static char numbers;
    static const struct layer layer;
    struct call call = {.stored = {.numbers = &numbers, .weights.use.layer = &layer}};
    struct job_phases *phases;
    cr_expect_neq(stored_prepare(&call, &phases), &phases);
    call.stored.bias = (attn_tensor){.rank = 4, .shape = {1, 2, 3, (size_t)1 << 24}};
    cr_expect_eq(phases->next->tasks(&call, 0), 6);
    call.stored.bias.shape[3] = 1; /* all rows are one task */
    cr_expect_eq(phases->next->tasks(&call, 0), 1);
    call.stored.numbers = NULL;
    cr_expect_eq(phases->next->tasks(&call, 0), 0);
}
