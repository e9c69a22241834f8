/*
 * forked.c - runs the unit tests in forks of one process, without the suites that match one of its
 * arguments. Criterion executes the program again for each test, which takes a second under
 * valgrind. So this file has a main of its own, and it takes the place of those functions of
 * Criterion that a test calls. Criterion's theories do not work here.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Criterion's macros put the tests and the suites into these sections. */
extern const struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
extern const struct criterion_suite *__start_cr_sts[], *__stop_cr_sts[];

static int failures; /* assertions that failed in this process */

void criterion_send_assert(struct criterion_assert_stats *stats) {
    if (!stats->passed) {
        fprintf(stderr, "%s:%u: %s\n", stats->file, stats->line, stats->message);
        failures++;
    }
}

void criterion_continue_test(void) {
}

void criterion_abort_test(void) {
    exit(EXIT_FAILURE);
}

void criterion_skip_test(const char *format, ...) {
    (void)format;
    exit(EXIT_SUCCESS);
}

static void *parameter;

static void call(void (*function)(void)) {
    if (function != NULL) {
        function();
    }
}

void criterion_internal_test_setup(void) {
    call(criterion_current_suite->data->init);
    call(criterion_current_test->data->init);
}

void criterion_internal_test_main(void (*run)(void)) {
    if (criterion_current_test->data->kind_ == CR_TEST_PARAMETERIZED) {
        ((void (*)(void *))run)(parameter);
    } else {
        run();
    }
}

void criterion_internal_test_teardown(void) {
    call(criterion_current_test->data->fini);
    call(criterion_current_suite->data->fini);
}

static const struct criterion_suite *suite_of(const struct criterion_test *test) {
    static struct criterion_test_extra_data nothing;
    static const struct criterion_suite without_options = {"", &nothing};
    const struct criterion_suite **at = __start_cr_sts;
    while (at < __stop_cr_sts && strcmp((*at)->name, test->category) != 0) {
        at++;
    }
    return at < __stop_cr_sts ? *at : &without_options;
}

enum {
    MOST_AT_ONCE = 256
};

/* The tests that run. A test whose process is 0 has ended. */
static struct {
    pid_t pid;
    const struct criterion_test *test;
} running[MOST_AT_ONCE];

/* Starts a process for a test. If its time is over, a signal ends it. The times of the tests are
 * for programs that run alone and without valgrind, so a test has five times as long here. */
static void start_child(const struct criterion_test *test) {
    const struct criterion_suite *suite = suite_of(test);
    pid_t pid = fork();
    if (pid == 0) {
        /* Criterion writes these pointers, too. They are constants only for tests. */
        *(const struct criterion_test **)&criterion_current_test = test;
        *(const struct criterion_suite **)&criterion_current_suite = suite;
        alarm((unsigned)(5 *
                         (test->data->timeout != 0 ? test->data->timeout : suite->data->timeout)));
        test->test();
        exit(failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    long at = 0;
    while (running[at].pid != 0) {
        at++;
    }
    running[at].pid = pid;
    running[at].test = test;
    fprintf(stderr, "process %ld: %s/%s\n", (long)pid, test->category, test->name);
}

/* Waits for the end of a process. If its test failed, writes the name to `failed_tests` and returns
 * 1. */
static int wait_for_one(FILE *failed_tests) {
    int status = 0;
    const pid_t pid = wait(&status);
    long at = 0;
    while (running[at].pid != pid) {
        at++;
    }
    running[at].pid = 0;
    if (status != 0) {
        fprintf(failed_tests, "%s/%s failed: process %ld, status %#x\n", running[at].test->category,
                running[at].test->name, (long)pid, (unsigned)status);
    }
    return status != 0;
}

static bool matches(char **patterns, const char *name) {
    while (*patterns != NULL && fnmatch(*patterns, name, 0) != 0) {
        patterns++;
    }
    return *patterns != NULL;
}

int main(int argc, char **argv) {
    (void)argc;
    long cores = sysconf(_SC_NPROCESSORS_ONLN), busy = 0;
    cores = cores < MOST_AT_ONCE ? cores : MOST_AT_ONCE;
    int tests = 0, failed = 0;
    char *names = NULL;
    size_t bytes = 0;
    FILE *failed_tests = open_memstream(&names, &bytes);
    for (const struct criterion_test **at = __start_cr_tst; at < __stop_cr_tst; at++) {
        const struct criterion_test *test = *at;
        if (matches(argv + 1, test->category)) {
            continue;
        }
        struct criterion_test_params all = {.length = 1};
        if (test->data->kind_ == CR_TEST_PARAMETERIZED) {
            all = test->data->param_();
        }
        for (size_t i = 0; i < all.length; i++, tests++) {
            parameter = (char *)all.params + i * all.size;
            if (busy == cores) {
                failed += wait_for_one(failed_tests);
                busy--;
            }
            start_child(test);
            busy++;
        }
    }
    for (; busy > 0; busy--) {
        failed += wait_for_one(failed_tests);
    }
    fclose(failed_tests);
    printf("%s%d tests, %d failed\n", names, tests, failed);
    free(names);
    return tests > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
