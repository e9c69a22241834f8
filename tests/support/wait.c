/* wait.c - see wait.h. */
#include "support/wait.h"

#include <stdatomic.h>
#include <stdlib.h>

static atomic_bool in_vain; /* this process has waited in vain */

int64_t wait_patience(void) {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
    const int64_t usual = 8;
#else
    const int64_t usual = 1;
#endif
    const char *text = getenv("TEST_PATIENCE");
    const long more = text != NULL ? strtol(text, NULL, 10) : 1;
    return usual * (more > 1 ? more : 1);
}

int64_t wait_limit(void) {
    return atomic_load(&in_vain) ? 100 : INT64_C(1000) * WAIT_SECONDS * wait_patience();
}

void wait_gave_up(void) {
    atomic_store(&in_vain, true);
}
