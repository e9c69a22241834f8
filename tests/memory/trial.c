/*
 * trial.c - prints and counts faults, and keeps the time of a trial.
 */
#include "memory/trial.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

enum {
    MOST_FAULTS = 10, /* a leak is found at nearly every allocation, so ten faults say enough */
    SETTLE_SECONDS = 10,
    TICK_NS = 100000
};

struct trial trial;
const char *trial_file;
static unsigned faults;

void trial_fault(const char *format, ...) {
    va_list arguments;
    fprintf(stderr, "%s, %s, allocation %zu%s: ", trial.way, trial.request, trial.first,
            trial.forever ? " and all after it" : "");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    if (++faults == MOST_FAULTS) {
        if (trial_file != NULL) {
            unlink(trial_file);
        }
        printf("%u faults, so the rest was not tried\n", faults);
        fflush(stdout);
        _exit(1); /* the server is not stopped, because it could wait for what was lost */
    }
}

unsigned trial_faults(void) {
    return faults;
}

double trial_now(void) {
    return (double)clock_ns() * 1e-9;
}

double trial_patience(void) {
    return faults == 0 ? SETTLE_SECONDS : 0.5;
}

void trial_tick(void) {
    nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
}
