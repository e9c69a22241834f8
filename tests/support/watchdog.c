/*
 * watchdog.c - ends a test that hangs, for example in a lock that nobody gives back. In each
 * process of a test a thread looks whether the main thread has slept without a moment of work for
 * longer than any wait of wait.h, and the other threads have done next to nothing meanwhile. A main
 * thread that is ready to run and gets no core does not sleep.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/wait.h"

enum {
    LONGEST = WAIT_SECONDS + 3, /* seconds */
    WORK = 10000000             /* ns of a second; servers that do nothing take less */
};

static pthread_t test; /* the main thread */

/* Returns the state of the main thread, as in proc(5): 'S' if it sleeps. */
static char main_state(void) {
    char path[64], state = 'R';
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", (long)getpid());
    FILE *file = fopen(path, "r");
    if (file == NULL || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) {
        state = 'R';
    }
    if (file != NULL) {
        fclose(file);
    }
    return state;
}

static int64_t nanoseconds(clockid_t clock) {
    struct timespec time = {0};
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void *watch_test(void *unused) {
    int64_t main_before = 0, all_before = 0;
    clockid_t of_main;
    if (pthread_getcpuclockid(test, &of_main) != 0) {
        return unused;
    }
    for (int64_t slept = 0; slept < LONGEST * wait_patience(); slept++) {
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        const int64_t own = nanoseconds(of_main), all = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
        if (own != main_before || all - all_before > WORK || main_state() != 'S') {
            slept = -1;
        }
        main_before = own;
        all_before = all;
    }
    fprintf(stderr, "the test hangs: nothing has happened in it for %d seconds\n", (int)LONGEST);
    abort();
}

__attribute__((constructor)) static void start_watchdog(void) {
    sigset_t all, before;
    pthread_t thread;
    /* Criterion sets it in the processes of tests. forked.c has a limit of its own. */
    const char *map = getenv("BXFI_MAP");
    if (map == NULL || strcmp(map, "forked") == 0) {
        return;
    }
    test = pthread_self();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, watch_test, NULL) == 0) {
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
