/* wait_on.c - the part of wait.h that fails a test; programs without Criterion do without it. */
#include <criterion/criterion.h>
#include <time.h>

#include "support/wait.h"

void wait_on(int64_t *since, const char *what, const char *file, int line) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t milliseconds = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    *since = *since == 0 ? milliseconds : *since;
    if (milliseconds - *since > wait_limit()) {
        wait_gave_up();
        cr_assert_fail("%s:%d: this never came: %s", file, line, what);
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}
