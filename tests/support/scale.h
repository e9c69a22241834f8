/* scale.h - runs fewer rounds of long tests where each takes much longer. $TEST_DIVISOR is set for
 * valgrind and emulators. */
#ifndef SUPPORT_SCALE_H
#define SUPPORT_SCALE_H

#include <stddef.h>
#include <stdlib.h>

/* Returns `count` divided by $TEST_DIVISOR, at least 1. */
static inline size_t test_scale(size_t count) {
    const char *text = getenv("TEST_DIVISOR");
    const long divisor = text == NULL ? 1 : strtol(text, NULL, 10);
    return divisor <= 1 ? count : count / (size_t)divisor + 1;
}

#endif
