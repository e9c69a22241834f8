/*
 * test_daemon.c - the daemon as a process: its options, its exit statuses, its signals, how it
 * drains, and --health-check. The tests know the service by its socket only.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/client.h"
#include "support/daemon.h"

TestSuite(daemon, .timeout = 1200);

Test(daemon, bad_options_end_the_start) {
    char output[4096];
    cr_expect_eq(daemon_run("--port 65536", output, sizeof output), 2);
    cr_expect(strstr(output, "--port") && strstr(output, "0..65535") && strstr(output, "65536"),
              "%s", output);
    cr_expect_eq(daemon_run("--nonsense", output, sizeof output), 2);
    cr_expect_not_null(strstr(output, "--nonsense"), "%s", output);
    setenv("ATTENTIOND_MAX_BODY", "lots", 1);
    cr_expect_eq(daemon_run("", output, sizeof output), 2);
    cr_expect_not_null(strstr(output, "ATTENTIOND_MAX_BODY"), "%s", output);
}

/* Returns the number of threads of a daemon in whose environment OpenBLAS is to have so many. */
static unsigned count_threads(const char *of_openblas) {
    char path[64], line[64];
    unsigned threads = 0;
    setenv("OPENBLAS_NUM_THREADS", of_openblas, 1);
    cr_assert(daemon_spawn(NULL));
    snprintf(path, sizeof path, "/proc/%d/status", (int)the_daemon.pid);
    FILE *status = fopen(path, "r");
    cr_assert_not_null(status);
    while (threads == 0 && fgets(line, sizeof line, status) != NULL)
        sscanf(line, "Threads: %u", &threads);
    fclose(status);
    cr_expect_eq(daemon_stop(), 0);
    return threads;
}

Test(daemon, openblas_has_no_threads) {
    cr_expect_eq(count_threads("7"), count_threads("1"));
}

/* The daemon uses the kernels that ATTENTION_ISA names, or it does not start. */
Test(daemon, kernels_that_this_cpu_does_not_run_end_the_start) {
    char output[4096];
    setenv("ATTENTION_ISA", "sse9", 1);
    cr_expect_eq(daemon_run("--port 0", output, sizeof output), 2);
    cr_expect_not_null(strstr(output, "ATTENTION_ISA is \"sse9\", but this machine runs scalar"),
                       "%s", output);
}

Test(daemon, forced_kernels_are_in_use) {
    struct client_response response;
    setenv("ATTENTION_ISA", "scalar", 1);
    daemon_start(NULL);
    cr_assert(client_request(the_daemon.port, "GET", "/version", NULL, NULL, 0, &response));
    cr_expect_not_null(strstr(response.body, "\"kernels\":\"scalar\""), "%s", response.body);
    client_response_free(&response);
    daemon_end();
}

Test(daemon, help_and_version) {
    char output[8192];
    cr_expect_eq(daemon_run("--help", output, sizeof output), 0);
    cr_expect(strstr(output, "--port") && strstr(output, "ATTENTIOND_PORT") &&
                  strstr(output, "8080"),
              "%s", output);
    cr_expect_eq(daemon_run("--version", output, sizeof output), 0);
    cr_expect_eq(strncmp(output, "attentiond ", 11), 0, "%s", output);
}

Test(daemon, port_in_use) {
    char words[192], output[4096];
    daemon_start(NULL);
    snprintf(words, sizeof words, "--port %u", the_daemon.port);
    cr_expect_eq(daemon_run(words, output, sizeof output), 1);
    cr_expect_not_null(strstr(output, "the port is in use; choose another one"), "%s", output);
    daemon_end();
}

Test(daemon, signals_end_it_with_0) {
    static const int signals[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        struct client_connection idle;
        struct client_response response;
        int status = -1;
        daemon_start(NULL);
        cr_assert(client_open(&idle, the_daemon.port));
        cr_assert(client_request(the_daemon.port, "GET", "/health/live", NULL, NULL, 0, &response));
        client_response_free(&response);
        kill(the_daemon.pid, signals[i]);
        cr_assert_eq(waitpid(the_daemon.pid, &status, 0), the_daemon.pid);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "signal %d: status %x", signals[i],
                  (unsigned)status);
        client_close(&idle);
    }
}

/* The daemon tells systemd when it is ready and when it begins to stop (sd_notify(3)). */
Test(daemon, tells_systemd_its_state) {
    static const char *const states[] = {"READY=1", "STOPPING=1"};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    char state[64];
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    snprintf(name.sun_path, sizeof name.sun_path, "/tmp/attentiond-notify-%d", (int)getpid());
    unlink(name.sun_path);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&name, sizeof name), 0);
    setenv("NOTIFY_SOCKET", name.sun_path, 1);
    daemon_start(NULL);
    for (size_t i = 0; i < 2; i++) {
        const ssize_t size = recv(fd, state, sizeof state - 1, 0);
        cr_assert_gt(size, 0);
        state[size] = '\0';
        cr_expect_str_eq(state, states[i]);
        cr_assert(i == 1 || daemon_stop() == 0);
    }
    close(fd);
    unlink(name.sun_path);
}

/* A notification socket whose queue is full delays neither the start nor the stop. */
Test(daemon, does_not_wait_for_systemd) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int other = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && other >= 0);
    snprintf(name.sun_path, sizeof name.sun_path, "/tmp/attentiond-full-%d", (int)getpid());
    unlink(name.sun_path);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&name, sizeof name), 0);
    while (sendto(other, "", 1, MSG_DONTWAIT, (const struct sockaddr *)&name, sizeof name) == 1) {
    }
    setenv("NOTIFY_SOCKET", name.sun_path, 1);
    daemon_start(NULL);
    daemon_end();
    close(fd);
    close(other);
    unlink(name.sun_path);
}

/* After the first signal, and others that come with it, the daemon waits for a request that does
 * not end. A later signal ends the wait. */
Test(daemon, second_signal_ends_it_at_once) {
    static const char head[] = "POST /softmax HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n";
    static const char ask[] = "GET /health/ready HTTP/1.1\r\nHost: a\r\n\r\n";
    struct client_connection open, probe;
    struct client_response response = {.status = 200};
    int status = -1;
    daemon_start((const char *const[]){"--drain-timeout", "3600", NULL});
    cr_assert(client_open(&open, the_daemon.port));
    cr_assert(client_send(&open, head, sizeof head - 1));
    cr_assert(client_open(&probe, the_daemon.port));
    /* The two are the open request and the one for /metrics. */
    daemon_await_metric("attentiond_requests_in_flight", 2);
    for (int i = 0; i < 10; i++) {
        kill(the_daemon.pid, i % 2 ? SIGINT : SIGTERM);
    }
    while (response.status == 200 && client_send(&probe, ask, sizeof ask - 1) &&
           client_receive(&probe, false, &response)) {
        client_response_free(&response); /* until it is not ready, or ends the connection */
    }
    client_close(&probe);
    cr_assert_eq(waitpid(the_daemon.pid, &status, WNOHANG), 0, "it waits");
    for (int i = 0; i < 300 && waitpid(the_daemon.pid, &status, WNOHANG) == 0; i++) {
        kill(the_daemon.pid, SIGINT);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "status %x", (unsigned)status);
    client_close(&open);
}

/* Promise 10: while the daemon drains, /health/ready says so, on old connections and on new ones.
 * /health/live is still a 200, and requests are answered. */
Test(daemon, promise_10_says_that_it_drains) {
    static const char ready[] = "GET /health/ready HTTP/1.1\r\nHost: a\r\n\r\n";
    static const struct {
        const char *method, *path, *body;
        int status;
    } cases[] = {{"GET", "/health/ready", "", 503},
                 {"GET", "/health/live", "", 200},
                 {"GET", "/v2/health/ready", "", 503},
                 {"GET", "/v2/health/live", "", 200},
                 {"GET", "/v2/models/attention/ready", "", 503},
                 {"GET", "/v2/models/none/ready", "", 404},
                 {"POST", "/attention", "{\"X\":[[1]]}", 200},
                 {"POST", "/attention", "{", 400}};
    struct client_connection kept;
    struct client_response response = {.status = 200};
    char value[16] = "";
    int status = -1;
    daemon_start((const char *const[]){"--drain-delay", "3", NULL});
    cr_assert(client_open(&kept, the_daemon.port));
    for (size_t i = 0; response.status == 200; i++) {
        cr_assert(client_send(&kept, ready, sizeof ready - 1) &&
                  client_receive(&kept, false, &response));
        /* The first 503 is the first answer after the signal, and it ends the connection. */
        cr_expect_eq(client_header(&response, "Connection", value, sizeof value),
                     response.status == 503);
        client_response_free(&response);
        if (i == 10) {
            kill(the_daemon.pid, SIGTERM);
        }
    }
    cr_expect_eq(response.status, 503);
    cr_expect_str_eq(value, "close");
    cr_expect(client_at_end(&kept));
    client_close(&kept);
    for (size_t i = 0; i < COUNT(cases); i++) {
        cr_assert(client_request(the_daemon.port, cases[i].method, cases[i].path, NULL,
                                 cases[i].body, strlen(cases[i].body), &response),
                  "%s", cases[i].path);
        cr_expect_eq(response.status, cases[i].status, "%s: %d", cases[i].path, response.status);
        cr_expect(client_header(&response, "Connection", value, sizeof value), "%s", cases[i].path);
        cr_expect_str_eq(value, "close");
        client_response_free(&response);
    }
    cr_assert_eq(waitpid(the_daemon.pid, &status, 0), the_daemon.pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

/* Returns the exit status, or -1 if a signal ended the process or it still runs after 30
 * seconds. */
static int wait_for_end(pid_t pid) {
    int status = 0;
    pid_t ended = 0;
    for (int i = 0; i < 3000 && ended == 0; i++) {
        ended = waitpid(pid, &status, WNOHANG);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return ended == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A computation of minutes does not keep the daemon from ending. Its client gets a 503. */
Test(daemon, long_computation_does_not_outlive_it) {
    enum {
        ROWS = 1000000
    };
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    static const char tail[] = "[0]],\"return\":[\"lse\"]}";
    struct client_connection connection;
    struct client_response response;
    char head[256], words[sizeof go_on] = "";
    char *body = malloc(ROWS * 4 + 64);
    cr_assert_not_null(body);
    size_t size = (size_t)sprintf(body, "{\"X\":[");
    for (size_t i = 1; i < ROWS; i++) {
        memcpy(body + size, "[0],", 4);
        size += 4;
    }
    memcpy(body + size, tail, sizeof tail);
    size += sizeof tail - 1;
    snprintf(head, sizeof head,
             "POST /attention HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
             "Expect: 100-continue\r\nContent-Length: %zu\r\n\r\n",
             size);
    daemon_start((const char *const[]){"--max-work", "1e18", "--drain-timeout", "1", NULL});
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_send(&connection, head, strlen(head)));
    /* After this answer the daemon has begun the request, so the drain waits for it. */
    cr_assert_eq(recv(connection.fd, words, sizeof go_on - 1, MSG_WAITALL), sizeof go_on - 1);
    cr_assert_str_eq(words, go_on);
    cr_assert(client_send(&connection, body, size));
    daemon_await_metric("attentiond_jobs", 1); /* the computation runs */
    kill(the_daemon.pid, SIGTERM);
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_eq(response.status, 503, "%s", response.body);
    cr_expect_eq(wait_for_end(the_daemon.pid), 0);
    client_response_free(&response);
    client_close(&connection);
    free(body);
}

Test(daemon, health_check) {
    char words[128], output[4096];
    daemon_start((const char *const[]){"--address", "0.0.0.0", NULL});
    snprintf(words, sizeof words, "--health-check --address 0.0.0.0 --port %u", the_daemon.port);
    cr_expect_eq(daemon_run(words, output, sizeof output), 0, "%s", output);
    cr_expect_str_eq(output, "");
    snprintf(words, sizeof words, "%u", the_daemon.port);
    setenv("ATTENTIOND_PORT", words, 1);
    cr_expect_eq(daemon_run("--health-check", output, sizeof output), 0, "%s", output);
    daemon_end();
    cr_expect_eq(daemon_run("--health-check", output, sizeof output), 1);
    cr_expect_not_null(strstr(output, words), "%s", output);
}

Test(daemon, ipv6) {
    char words[128], output[4096];
    if (!daemon_spawn((const char *const[]){"--address", "::1", NULL})) {
        cr_skip_test("no IPv6 here");
    }
    snprintf(words, sizeof words, "--health-check --address ::1 --port %u", the_daemon.port);
    cr_expect_eq(daemon_run(words, output, sizeof output), 0, "%s", output);
    daemon_end();
    daemon_start((const char *const[]){"--address", "::", NULL});
    struct client_response response; /* asked over IPv4 */
    cr_assert(client_request(the_daemon.port, "GET", "/health/live", NULL, NULL, 0, &response));
    cr_expect_eq(response.status, 200);
    client_response_free(&response);
    daemon_end();
}
