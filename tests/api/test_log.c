/*
 * test_log.c - what the lines of the log say: the method that the client sent, the time to the
 * millisecond, the same facts in text and in JSON, and how many lines were left out. The tests know
 * the service by its socket and by the file of its log.
 */
#define _GNU_SOURCE /* for posix_openpt and prlimit */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/json.h"

static char path[64];

TestSuite(log, .timeout = 1200);

static bool spawn_at(const char *address, const char *format) {
    snprintf(path, sizeof path, "/tmp/attentiond-log-%d", (int)getpid());
    unlink(path);
    return daemon_spawn((const char *const[]){"--address", address, "--log-requests", "yes",
                                              "--log-format", format, "--log-file", path, NULL});
}

static void start_logging(const char *format) {
    cr_assert(spawn_at("127.0.0.1", format));
}

/* Stops the daemon and reads the log. A line is written after its answer, so the log is complete
 * only when the daemon has ended. Returns owned: free(). */
static char *stop_and_read_log(void) {
    char *text = NULL;
    size_t size = 0;
    daemon_end();
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_geq(getdelim(&text, &size, '\0', file), 0);
    fclose(file);
    unlink(path);
    return text;
}

/* Asks on this connection, because lines of different threads have no order. */
static void ask_if_live(struct client_connection *connection, const char *method) {
    struct client_response response;
    char request[80];
    const int size =
        snprintf(request, sizeof request, "%s /health/live HTTP/1.1\r\nHost: a\r\n\r\n", method);
    cr_assert(client_send(connection, request, (size_t)size));
    cr_assert(client_receive(connection, strcmp(method, "HEAD") == 0, &response));
    client_response_free(&response);
}

/* Returns the next line of *rest, cut off at its end, or NULL after the last line. */
static char *next_line(char **rest) {
    char *line = *rest, *end = strchr(line, '\n');
    if (end == NULL) {
        return NULL;
    }
    *end = '\0';
    *rest = end + 1;
    return line;
}

/* Returns the next line that is not a message about the start or the stop. */
static char *next_request(char **rest) {
    char *line;
    do {
        line = next_line(rest);
    } while (line != NULL && (strstr(line, " attentiond: st") != NULL ||
                              strstr(line, "\"level\":\"info\",\"message\":\"st") != NULL));
    return line;
}

/* The wall clock in milliseconds since 1970. */
static double wall_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const long milliseconds = now.tv_nsec / 1000000; /* without a fraction, as in the log */
    return (double)now.tv_sec * 1e3 + (double)milliseconds;
}

/* Converts "2026-11-21T10:22:39.123Z" to milliseconds since 1970. Returns -1 for another text. */
static double read_time(const char *text) {
    struct tm parts = {0};
    unsigned milliseconds;
    int end = 0;
    if (text == NULL ||
        sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%3uZ%n", &parts.tm_year, &parts.tm_mon,
               &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &milliseconds,
               &end) != 7 ||
        end != 24) {
        return -1;
    }
    parts.tm_year -= 1900;
    parts.tm_mon -= 1;
    setenv("TZ", "UTC", 1);
    return (double)mktime(&parts) * 1e3 + milliseconds;
}

/* The log tells ten moments, which are spread over a second, to the millisecond. */
Test(log, times_are_those_of_the_requests) {
    enum {
        REQUESTS = 10
    };
    double before[REQUESTS], after[REQUESTS];
    struct client_connection connection;
    start_logging("json");
    cr_assert(client_open(&connection, the_daemon.port));
    for (size_t i = 0; i < REQUESTS; i++) {
        before[i] = wall_clock();
        ask_if_live(&connection, "GET");
        nanosleep(&(struct timespec){.tv_nsec = 70000000}, NULL);
        after[i] = wall_clock();
    }
    client_close(&connection);
    char *text = stop_and_read_log(), *rest = text;
    for (size_t i = 0; i < REQUESTS; i++) {
        const char *line = next_request(&rest);
        cr_assert_not_null(line, "%zu lines", i);
        struct cJSON *json = json_parse(line, strlen(line));
        const double told = read_time(json_text(json_get(json, "time")));
        /* The line may be written a little after the answer, but before the next request. */
        cr_expect(told >= before[i] &&
                      (told <= after[i] || i + 1 == REQUESTS || told <= after[i + 1]),
                  "%s: %.0f to %.0f", line, before[i], after[i]);
        json_free(json);
    }
    free(text);
}

/* Both formats have the same facts, and the method that the client sent. */
Test(log, methods_are_those_of_the_requests) {
    static const char *const formats[] = {"json", "text"};
    static const char *const methods[] = {"HEAD", "GET", "DELETE"};
    for (size_t f = 0; f < 2; f++) {
        struct client_connection connection;
        start_logging(formats[f]);
        cr_assert(client_open(&connection, the_daemon.port));
        for (size_t i = 0; i < 3; i++) {
            ask_if_live(&connection, methods[i]);
        }
        client_close(&connection);
        char *text = stop_and_read_log(), *rest = text;
        for (size_t i = 0; i < 3; i++) {
            char wanted[128];
            const int status = i == 2 ? 405 : 200;
            const char *line = next_request(&rest);
            cr_assert_not_null(line);
            snprintf(wanted, sizeof wanted,
                     f == 0
                         ? "\"client\":\"127.0.0.1\",\"method\":\"%s\",\"path\":\"/health/live\","
                           "\"status\":%d,\"received\":0,"
                         : "Z 127.0.0.1 %s /health/live %d 0 > ",
                     methods[i], status);
            cr_expect_not_null(strstr(line, wanted), "%s: not %s", line, wanted);
        }
        cr_expect_null(next_request(&rest));
        free(text);
    }
}

/* The log counts the bytes of each body that were sent, whatever the answer is. */
Test(log, bytes_are_those_of_the_bodies) {
    static const struct {
        const char *method, *path, *headers, *body;
        int status;
    } asked[] = {
        {"GET", "/", "", "", 200},
        {"HEAD", "/", "", "", 200},
        {"GET", "/", "If-None-Match: *\r\n", "", 304},
        {"GET", "/version", "", "", 200},
        {"GET", "/none", "", "", 404},
        {"GET", "/docs/", "", "", 308},
        {"PUT", "/softmax", "", "{}", 405},
        {"POST", "/softmax", "", "{\"X\":[[1,2]]}", 200},
        {"POST", "/softmax", "", "{\"X\":", 400},
    };
    size_t sizes[COUNT(asked)];
    start_logging("json");
    daemon_connect();
    for (size_t i = 0; i < COUNT(asked); i++) {
        struct client_response response = daemon_ask_shared(
            asked[i].method, asked[i].path, asked[i].headers, asked[i].body, strlen(asked[i].body));
        cr_expect_eq(response.status, asked[i].status, "%zu: %d", i, response.status);
        sizes[i] = response.size;
        client_response_free(&response);
    }
    char *text = stop_and_read_log(), *rest = text;
    for (size_t i = 0; i < COUNT(asked); i++) {
        const char *line = next_request(&rest);
        cr_assert_not_null(line, "%zu", i);
        struct cJSON *json = json_parse(line, strlen(line));
        double sent = -1, received = -1;
        cr_expect(json_number(json_get(json, "sent"), &sent) && sent == (double)sizes[i],
                  "%zu bytes: %s", sizes[i], line);
        cr_expect(json_number(json_get(json, "received"), &received) &&
                      received == (double)strlen(asked[i].body),
                  "%s", line);
        json_free(json);
    }
    free(text);
}

/* A server that listens on :: sees clients of IPv4 with addresses of IPv6 (RFC 4291, 2.5.5.2). */
Test(log, clients_of_ipv6_are_named) {
    struct client_connection connection;
    if (!spawn_at("::", "text")) {
        cr_skip_test("this machine has no IPv6");
    }
    cr_assert(client_open(&connection, the_daemon.port));
    ask_if_live(&connection, "GET");
    client_close(&connection);
    char *text = stop_and_read_log();
    cr_expect_not_null(strstr(text, "Z ::ffff:127.0.0.1 GET /health/live 200"), "%s", text);
    free(text);
}

/* The log has at most 1000 lines in a second, and tells in the next second how many it left out.
 * Lines and left-out lines together are as many as the requests. */
Test(log, lines_left_out_are_counted) {
    enum {
        REQUESTS = 3000
    };
    static const char request[] = "GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n";
    struct client_connection connection;
    struct client_response response;
    start_logging("text");
    cr_assert(client_open(&connection, the_daemon.port));
    for (size_t i = 0; i < REQUESTS; i += 50) {
        for (size_t j = 0; j < 50; j++) {
            cr_assert(client_send(&connection, request, sizeof request - 1));
        }
        for (size_t j = 0; j < 50; j++) {
            cr_assert(client_receive(&connection, false, &response));
            cr_assert_eq(response.status, 200);
            client_response_free(&response);
        }
    }
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100000000}, NULL);
    cr_assert(client_send(&connection, request, sizeof request - 1));
    cr_assert(client_receive(&connection, false, &response));
    client_response_free(&response);
    client_close(&connection);
    char *text = stop_and_read_log(), *rest = text;
    size_t lines = 0, left_out = 0;
    for (char *line; (line = next_line(&rest)) != NULL;) {
        size_t count = 0;
        lines += strstr(line, " GET /health/live 200 ") != NULL;
        left_out +=
            sscanf(line, "%*s attentiond: %zu lines were left out here", &count) == 1 ? count : 0;
    }
    cr_expect_eq(lines + left_out, REQUESTS + 1, "%zu lines, and %zu left out", lines, left_out);
    free(text);
}

/* A computation takes some tenths of a second on a server that is otherwise idle. It hardly waits,
 * and reading its short body takes hardly any time. The header of the answer has the same times,
 * without what is encoded after it. */
Test(log, stages_have_their_own_names) {
    static const char body[] =
        "{\"random\":{\"generator\":\"numpy\",\"seed\":1},\"return\":[\"entropy\"],"
        "\"X\":{\"random\":\"rand\",\"shape\":[5000,64]}}";
    struct client_connection connection;
    struct client_response response;
    char timing[256] = "";
    double ms[4] = {0}, said[4] = {0};
    static const char *const stages[] = {"decode", "queue", "compute", "encode"};
    start_logging("json");
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_post(&connection, "/attention", body, sizeof body - 1, &response));
    cr_expect_eq(response.status, 200, "%s", response.body);
    cr_expect(client_header(&response, "Server-Timing", timing, sizeof timing));
    client_response_free(&response);
    client_close(&connection);
    char *text = stop_and_read_log(), *rest = text;
    const char *line = next_request(&rest);
    cr_assert_not_null(line);
    struct cJSON *json = json_parse(line, strlen(line));
    cr_expect_eq(sscanf(timing, "decode;dur=%lf, queue;dur=%lf, compute;dur=%lf, encode;dur=%lf",
                        &said[0], &said[1], &said[2], &said[3]),
                 4, "%s", timing);
    for (size_t i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_ms", stages[i]);
        cr_expect(json_number(json_get(json, name), &ms[i]), "%s: %s", name, line);
        cr_expect((i == 3 || ms[i] < said[i] + 0.0015) && ms[i] > said[i] - 0.0015,
                  "%s: not %s, %g", timing, name, ms[i]);
    }
    cr_expect(ms[2] > ms[0] && ms[2] > ms[1] && ms[2] > ms[3], "%s", timing);
    json_free(json);
    free(text);
}

/* ----------------------------------------------------------------- messages of the daemon */

/* Sends a body that is over the limit of 1 KiB. */
static void ask_too_much(void) {
    static const char body[1025] = "";
    struct client_response response;
    cr_assert(
        client_request(the_daemon.port, "POST", "/softmax", NULL, body, sizeof body, &response));
    cr_assert_eq(response.status, 413);
    client_response_free(&response);
}

static void start_logging_refusals(const char *format) {
    snprintf(path, sizeof path, "/tmp/attentiond-log-%d", (int)getpid());
    unlink(path);
    daemon_start((const char *const[]){"--max-body", "1KiB", "--log-format", format, "--log-file",
                                       path, NULL});
}

/* Start, reload and stop have one line each, in this order, and each line begins with its time. */
Test(log, tells_start_reload_and_stop) {
    static const char *const after[] = {
        " attentiond: started at http://127.0.0.1:", " attentiond: reloaded: the log",
        " attentiond: stopping after SIGTERM", " attentiond: stopped"};
    char port[32];
    start_logging_refusals("text");
    snprintf(port, sizeof port, ":%u: version ", the_daemon.port);
    kill(the_daemon.pid, SIGHUP);
    daemon_await_text(path, "reloaded");
    char *text = stop_and_read_log(), *rest = text;
    for (size_t i = 0; i < 4; i++) {
        const char *line = next_line(&rest);
        cr_assert_not_null(line, "%zu lines", i);
        cr_expect_eq(strncmp(line + strcspn(line, " "), after[i], strlen(after[i])), 0, "%s", line);
        cr_expect(i > 0 || strstr(line, port) != NULL, "%s", line);
        char time[25];
        snprintf(time, sizeof time, "%s", line);
        cr_expect(read_time(time) > 0, "%s", line);
    }
    cr_expect_str_eq(rest, "");
    free(text);
}

/* The log says "1 worker", not "1 workers". A request that libmicrohttpd refuses has a line without
 * the HTML of its answer. A refusal is told while the daemon drains, not only at its end. Here a
 * second signal ends the daemon, so there is no end of the drain. */
Test(log, tells_numbers_pages_and_refusals_plainly) {
    static const char request[] = "GET / HTTP/9.9.9\r\n\r\n";
    struct client_connection connection;
    struct client_response response;
    snprintf(path, sizeof path, "/tmp/attentiond-log-%d", (int)getpid());
    unlink(path);
    daemon_start((const char *const[]){"--workers", "1", "--io-threads", "1", "--max-body", "1KiB",
                                       "--drain-delay", "3600", "--log-file", path, NULL});
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_send(&connection, request, sizeof request - 1));
    if (client_receive(&connection, false, &response)) {
        client_response_free(&response);
    }
    client_close(&connection);
    daemon_await_text(path, "libmicrohttpd refused");
    kill(the_daemon.pid, SIGTERM);
    daemon_await_text(path, "stopping");
    ask_too_much();
    daemon_await_text(path, "refused 1 time");
    for (int i = 0, status; waitpid(the_daemon.pid, &status, WNOHANG) == 0; i++) {
        kill(the_daemon.pid, SIGTERM); /* signals within half a second count as one */
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    char *text = json_read_file(path, &(size_t){0});
    unlink(path);
    cr_assert_not_null(text);
    cr_expect_not_null(strstr(text, ", 1 worker, 1 I/O thread; "), "%s", text);
    cr_expect_not_null(strstr(text, "libmicrohttpd refused a request with status 4"), "%s", text);
    cr_expect_null(strstr(text, "<html>"), "%s", text);
    free(text);
}

/* Start and stop have the same lines in JSON. */
Test(log, tells_start_and_stop_as_json) {
    static const char *const messages[] = {"started at http://", "stopping after SIGTERM",
                                           "stopped"};
    start_logging_refusals("json");
    char *text = stop_and_read_log(), *rest = text;
    for (size_t i = 0; i < 3; i++) {
        const char *line = next_line(&rest);
        cr_assert_not_null(line, "%zu lines", i);
        struct cJSON *json = json_parse(line, strlen(line));
        const char *message = json_text(json_get(json, "message"));
        cr_expect(read_time(json_text(json_get(json, "time"))) > 0, "%s", line);
        cr_expect_str_eq(json_text(json_get(json, "level")), "info");
        cr_expect(message != NULL && strncmp(message, messages[i], strlen(messages[i])) == 0, "%s",
                  line);
        json_free(json);
    }
    cr_expect_str_eq(rest, "");
    free(text);
}

/* The first summary comes at once, the next one a minute later or at the end. So there are two
 * here, and together they count all refusals. */
Test(log, refusals_are_summed_up) {
    enum {
        REFUSALS = 3
    };
    size_t summaries = 0, refusals = 0, too_large = 0;
    start_logging_refusals("text");
    ask_too_much();
    daemon_await_text(path, " 1 over --max-body");
    for (size_t i = 1; i < REFUSALS; i++) {
        ask_too_much();
        nanosleep(&(struct timespec){.tv_nsec = 700000000}, NULL);
    }
    char *text = stop_and_read_log(), *rest = text;
    for (char *line; (line = next_line(&rest)) != NULL;) {
        size_t all, some;
        if (sscanf(line,
                   "%*s attentiond: refused %zu time%*[s ]in the last %*u s: %zu over --max-body",
                   &all, &some) == 2) {
            summaries++;
            refusals += all;
            too_large += some;
        }
    }
    cr_expect_eq(summaries, 2);
    cr_expect_eq(refusals, REFUSALS);
    cr_expect_eq(too_large, REFUSALS);
    free(text);
}

/* A terminal that nobody reads is soon full. Neither an answer nor the stop waits for it. */
Test(log, terminal_that_nobody_reads) {
    struct client_connection connection;
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    cr_assert_geq(terminal, 0);
    cr_assert(grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    const int error = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    cr_assert_geq(error, 0);
    cr_assert_eq(dup2(error, STDERR_FILENO), STDERR_FILENO);
    daemon_start((const char *const[]){"--log-requests", "yes", NULL});
    cr_assert(client_open(&connection, the_daemon.port));
    for (int i = 0; i < 900; i++) {
        ask_if_live(&connection, "GET");
    }
    client_close(&connection);
    daemon_end();
    close(terminal);
}

/* A full disk cuts a line. When there is room again, the next line does not continue the cut
 * one. */
Test(log, lines_begin_anew_after_a_full_disk) {
    struct client_connection connection;
    struct rlimit limit = {.rlim_cur = 2000, .rlim_max = RLIM_INFINITY};
    size_t lines = 0;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    start_logging("json");
    cr_assert(client_open(&connection, the_daemon.port));
    for (int i = 0; i < 40; i++) {
        ask_if_live(&connection, "GET");
    }
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(prlimit(the_daemon.pid, RLIMIT_FSIZE, &limit, NULL), 0);
    client_close(&connection);
    char *text = stop_and_read_log(), *rest = text;
    for (const char *line; (line = next_line(&rest)) != NULL; lines++) {
        cr_expect_null(strstr(line + 1, "{\"time\""), "%s", line);
    }
    cr_expect_gt(lines, 4, "%zu lines", lines);
    free(text);
}
