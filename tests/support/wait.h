/*
 * wait.h - how long a test waits for something that never comes. A red test ends within 20 seconds,
 * because all its waits in vain together take at most WAIT_SECONDS. Nothing here is an assertion
 * about speed: a sanitizer gets more time, and TEST_PATIENCE=5 gives five times as much.
 */
#ifndef SUPPORT_WAIT_H
#define SUPPORT_WAIT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    WAIT_SECONDS = 15
};

/* Waits until the condition holds, at which it looks every millisecond. Fails the test if that
 * takes too long. */
#define WAIT_UNTIL(condition)                                                                      \
    for (int64_t since_ = 0; !(condition);)                                                        \
    wait_on(&since_, #condition, __FILE__, __LINE__)

/* Sleeps for a millisecond. *since is 0 at first. Fails the test if the time is over. */
void wait_on(int64_t *since, const char *what, const char *file, int line);

/* Returns the milliseconds that a wait may take: next to nothing after a wait in vain. */
int64_t wait_limit(void);

/* Notes that a wait was in vain. */
void wait_gave_up(void);

/* Returns how many times as long as usual everything may take. */
int64_t wait_patience(void);

#endif
