/*
 * red.c ends the process of a test some seconds after its first assertion has failed. Criterion
 * jumps out of such a test, and the end of its suite then waits for threads that the test still
 * holds, or the test itself waits for what never comes. A green test may take as long as it likes.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <unistd.h>

/* The assertions of a test call this function in place of that of Criterion. */
void criterion_send_assert(struct criterion_assert_stats *stats) {
    static bool failed;
    void (*next)(struct criterion_assert_stats *);
    enum {
        SECONDS = 12
    };
    if (!stats->passed && !failed) {
        failed = true;
        alarm(SECONDS);
    }
    *(void **)&next = dlsym(RTLD_NEXT, "criterion_send_assert");
    next(stats);
}
