/*
 * test_log_file.c - the file of the log when somebody moves it away: the daemon goes on writing to
 * the moved file until SIGHUP, and no line is lost. The test knows the service by its socket and by
 * the files of its log.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/descriptors.h"
#include "support/wait.h"

static char *read_log(const char *path) {
    char *text = calloc(1, 1 << 16);
    FILE *file = fopen(path, "r");
    cr_assert(text != NULL && file != NULL);
    cr_assert_lt(fread(text, 1, (1 << 16) - 1, file), (1 << 16) - 1);
    fclose(file);
    return text;
}

/* Counts the lines that are about requests. */
static size_t count_lines(const char *text) {
    size_t lines = 0;
    for (const char *at = text; (at = strstr(at, "\"request_id\":")) != NULL; at++) {
        lines++;
    }
    return lines;
}

/* Waits for this many lines. A client may have its answer before the server has written the
 * line. */
static void await_lines(const char *path, size_t lines) {
    size_t there = 0;
    for (int64_t since = 0; there < lines; wait_on(&since, path, __FILE__, __LINE__)) {
        char *text = read_log(path);
        there = count_lines(text);
        free(text);
    }
    cr_assert_eq(there, lines, "%s", path);
}

/* Each request has a line, also in a file that was moved away. A client cannot forge a line. */
Test(daemon, logs_requests) {
    char folder[] = "/tmp/attentiond-log-XXXXXX", path[64], moved[64];
    static const char call[] = "{\"X\":[[1]]}";
    struct client_response response;
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/log", folder);
    snprintf(moved, sizeof moved, "%s/log.1", folder);
    daemon_start((const char *const[]){"--log-requests", "yes", "--log-format", "json",
                                       "--log-file", path, NULL});
    cr_assert(client_request(the_daemon.port, "POST", "/attention", "X-Request-Id: a\"b\\c\r\n",
                             call, strlen(call), &response));
    cr_expect_eq(response.status, 200);
    client_response_free(&response);
    response = daemon_ask("GET", "/a%22%C3%A4", NULL);
    cr_expect_eq(response.status, 404);
    client_response_free(&response);
    rename(path, moved);
    response = daemon_ask("GET", "/version", NULL);
    client_response_free(&response);
    await_lines(moved, 3); /* the daemon still writes to the moved file */
    kill(the_daemon.pid, SIGHUP);
    WAIT_UNTIL(access(path, F_OK) == 0);
    size_t early = 0; /* lines in the moved file after the new one was created */
    for (size_t asked = 1, new_lines = 0; asked < 1000 && new_lines == 0; asked++) {
        response = daemon_ask("GET", "/health/live", NULL);
        cr_expect_eq(response.status, 200);
        client_response_free(&response);
        for (size_t all = 0; all < 3 + asked;) { /* until each line is in one of the files */
            char *text = read_log(moved);
            early = count_lines(text) - 3;
            free(text);
            text = read_log(path);
            new_lines = count_lines(text);
            free(text);
            all = 3 + early + new_lines;
        }
    }
    daemon_end();

    char *old = read_log(moved), *new = read_log(path);
    cr_expect_not_null(strstr(old, "\"request_id\":\"a\\\"b\\\\c\",\"client\":\"127.0.0.1\","
                                   "\"method\":\"POST\",\"path\":\"/attention\",\"status\":200,"
                                   "\"received\":11,\"sent\":33,\"ms\":"),
                       "%s", old);
    cr_expect_not_null(strstr(old, "\"compute_ms\":"));
    cr_expect_not_null(strstr(old, "\"path\":\"/a\\\"??\",\"status\":404"), "%s", old);
    cr_expect_not_null(strstr(old, "\"path\":\"/version\""));
    cr_expect_not_null(strstr(new, "\"path\":\"/health/live\",\"status\":200"), "%s", new);
    cr_expect_eq(count_lines(old), 3 + early);
    cr_expect_eq(count_lines(new), 1);
    free(old);
    free(new);
    unlink(path);
    unlink(moved);
    rmdir(folder);
}

/* Each SIGHUP opens the log anew and closes the file before. */
Test(daemon, a_reopened_log_leaves_no_descriptor) {
    char folder[] = "/tmp/attentiond-log-XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/log", folder);
    daemon_start((const char *const[]){"--log-file", path, NULL});
    const size_t before = count_descriptors((long)the_daemon.pid);
    for (int i = 0; i < 10; i++) {
        unlink(path);
        kill(the_daemon.pid, SIGHUP);
        WAIT_UNTIL(access(path, F_OK) == 0);
    }
    /* The last one is closed a moment later. */
    WAIT_UNTIL(count_descriptors((long)the_daemon.pid) <= before);
    daemon_end();
    unlink(path);
    rmdir(folder);
}
