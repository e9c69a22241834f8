/*
 * test_daemon.c - the daemon as a process: its first line, its exit statuses, its signals,
 * --health-check.
 */
#include <criterion/criterion.h>
#include <math.h>
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

TestSuite(daemon, .timeout = 60);

Test(daemon, bad_options_end_the_start) {
    char output[4096];
    cr_expect_eq(server_run("--port 65536", output, sizeof output), 2);
    cr_expect(strstr(output, "--port") && strstr(output, "0..65535") && strstr(output, "65536"),
              "%s", output);
    cr_expect_eq(server_run("--nonsense", output, sizeof output), 2);
    cr_expect_not_null(strstr(output, "--nonsense"), "%s", output);
    setenv("ATTENTIOND_MAX_BODY", "lots", 1);
    cr_expect_eq(server_run("", output, sizeof output), 2);
    cr_expect_not_null(strstr(output, "ATTENTIOND_MAX_BODY"), "%s", output);
}

/* ATTENTION_ISA must be obeyed or end the start. */
Test(daemon, kernels_that_this_cpu_does_not_run_end_the_start) {
    char output[4096];
    setenv("ATTENTION_ISA", "sse9", 1);
    cr_expect_eq(server_run("--port 0", output, sizeof output), 2);
    cr_expect_not_null(strstr(output, "ATTENTION_ISA is \"sse9\", but this CPU runs scalar"), "%s",
                       output);
}

Test(daemon, forced_kernels_are_in_use) {
    struct server_process server;
    struct client_response response;
    setenv("ATTENTION_ISA", "scalar", 1);
    cr_assert(server_spawn(&server, NULL));
    cr_assert(client_request(server.port, "GET", "/version", NULL, NULL, 0, &response));
    cr_expect_not_null(strstr(response.body, "\"kernels\":\"scalar\""), "%s", response.body);
    client_response_free(&response);
    cr_expect_eq(server_stop(&server), 0);
}

Test(daemon, help_and_version) {
    char output[8192];
    cr_expect_eq(server_run("--help", output, sizeof output), 0);
    cr_expect(strstr(output, "--port") && strstr(output, "ATTENTIOND_PORT") &&
                  strstr(output, "8080"),
              "%s", output);
    cr_expect_eq(server_run("--version", output, sizeof output), 0);
    cr_expect_eq(strncmp(output, "attentiond ", 11), 0, "%s", output);
}

Test(daemon, port_in_use) {
    struct server_process server;
    char words[192], output[4096];
    cr_assert(server_spawn(&server, NULL));
    snprintf(words, sizeof words, "--port %u", server.port);
    cr_expect_eq(server_run(words, output, sizeof output), 1);
    snprintf(words, sizeof words,
             "cannot listen on 127.0.0.1:%u: the port is in use; choose another one with --port "
             "(make run ARGS=\"--port %u\")",
             server.port, server.port < 65535 ? server.port + 1 : server.port - 1);
    cr_expect_not_null(strstr(output, words), "%s", output);
    cr_expect_eq(server_stop(&server), 0);
}

Test(daemon, signals_end_it_with_0) {
    static const int signals[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        struct server_process server;
        struct client_connection idle;
        struct client_response response;
        int status = -1;
        cr_assert(server_spawn(&server, NULL));
        cr_assert(client_open(&idle, server.port));
        cr_assert(client_request(server.port, "GET", "/health/live", NULL, NULL, 0, &response));
        client_response_free(&response);
        kill(server.pid, signals[i]);
        cr_assert_eq(waitpid(server.pid, &status, 0), server.pid);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "signal %d: status %x", signals[i],
                  (unsigned)status);
        client_close(&idle);
    }
}

/* The daemon tells systemd when it is ready and when it begins to stop (sd_notify(3)). */
Test(daemon, tells_systemd_its_state) {
    static const char *const states[] = {"READY=1", "STOPPING=1"};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct server_process server;
    char state[64];
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    snprintf(name.sun_path, sizeof name.sun_path, "/tmp/attentiond-notify-%d", (int)getpid());
    unlink(name.sun_path);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&name, sizeof name), 0);
    setenv("NOTIFY_SOCKET", name.sun_path, 1);
    cr_assert(server_spawn(&server, NULL));
    for (size_t i = 0; i < 2; i++) {
        const ssize_t size = recv(fd, state, sizeof state - 1, 0);
        cr_assert_gt(size, 0);
        state[size] = '\0';
        cr_expect_str_eq(state, states[i]);
        cr_assert(i == 1 || server_stop(&server) == 0);
    }
    close(fd);
    unlink(name.sun_path);
}

/* A socket whose queue is full does not keep the daemon from its start or its stop. */
Test(daemon, does_not_wait_for_systemd) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    struct server_process server;
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int other = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && other >= 0);
    snprintf(name.sun_path, sizeof name.sun_path, "/tmp/attentiond-full-%d", (int)getpid());
    unlink(name.sun_path);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&name, sizeof name), 0);
    while (sendto(other, "", 1, MSG_DONTWAIT, (const struct sockaddr *)&name, sizeof name) == 1) {
    }
    setenv("NOTIFY_SOCKET", name.sun_path, 1);
    cr_assert(server_spawn(&server, NULL));
    cr_expect_eq(server_stop(&server), 0);
    close(fd);
    close(other);
    unlink(name.sun_path);
}

/* An answer of megabytes comes in chunks, a small one with its length; both are whole. */
Test(daemon, large_answers_come_in_chunks) {
    struct server_process server;
    struct client_response response;
    char value[64] = "", *body = malloc(1 << 20);
    cr_assert(server_spawn(&server, NULL));
    for (size_t rows = 10; rows <= 1000; rows *= 100) {
        size_t size = (size_t)sprintf(body, "{\"return\":[\"weights\"],\"X\":[[1]");
        for (size_t i = 1; i < rows; i++) {
            size += (size_t)sprintf(body + size, ",[%zu]", i % 7);
        }
        size += (size_t)sprintf(body + size, "]}");
        cr_assert(client_request(server.port, "POST", "/attention", NULL, body, size, &response));
        cr_expect_eq(response.status, 200);
        const bool chunked = client_header(&response, "Transfer-Encoding", value, sizeof value);
        cr_expect_eq(chunked, rows == 1000);
        size_t commas = 0, brackets = 0;
        for (size_t i = 0; i < response.size; i++) {
            commas += response.body[i] == ',';
            brackets += response.body[i] == ']';
        }
        cr_expect_eq(commas, rows * rows - 1);
        cr_expect_eq(brackets, rows + 1);
        cr_expect_eq(strncmp(response.body, "{\"weights\":[[", 13), 0);
        cr_expect_str_eq(response.body + response.size - 4, "]]}\n");
        client_response_free(&response);
    }
    cr_expect_eq(server_stop(&server), 0);
    free(body);
}

/* The value of a metric, written as in the answer but for the space and the value; NAN if it is not
 * there. */
static double metric(const char *page, const char *name) {
    const size_t length = strlen(name);
    for (const char *line = page; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ' ') {
            return strtod(line + length, NULL);
        }
    }
    return NAN;
}

static char *get_metrics(unsigned port) {
    struct client_response response;
    char type[64] = "";
    cr_assert(client_request(port, "GET", "/metrics", NULL, NULL, 0, &response));
    cr_assert_eq(response.status, 200);
    cr_expect(client_header(&response, "Content-Type", type, sizeof type));
    cr_expect_str_eq(type, "text/plain; version=0.0.4; charset=utf-8");
    char *page = strdup(response.body);
    client_response_free(&response);
    return page;
}

Test(daemon, metrics_count_every_request) {
    static const struct {
        const char *method, *path, *body, *name;
        unsigned times;
    } cases[] = {
        {"POST", "/attention", "{\"X\":[[1]]}", "{route=\"/attention\",code=\"200\"}", 7},
        {"POST", "/attention", "{\"X\":[[1],2]}", "{route=\"/attention\",code=\"422\"}", 3},
        {"POST", "/softmax", "{", "{route=\"/softmax\",code=\"400\"}", 2},
        {"GET", "/softmax", "", "{route=\"/softmax\",code=\"405\"}", 1},
        {"GET", "/health/live", "", "{route=\"/health/live\",code=\"200\"}", 4},
        {"GET", "/nowhere", "", "{route=\"none\",code=\"404\"}", 5},
    };
    struct server_process server;
    struct client_response response;
    double received = 0, sent = 0, all = 0, pages = 0, name_value;
    char name[128];
    cr_assert(server_spawn(&server, NULL));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (unsigned time = 0; time < cases[i].times; time++) {
            cr_assert(client_request(server.port, cases[i].method, cases[i].path, NULL,
                                     cases[i].body, strlen(cases[i].body), &response));
            received += (double)strlen(cases[i].body);
            sent += (double)response.size;
            all++;
            client_response_free(&response);
        }
    }
    struct client_connection raw; /* without a length, which client_request would send */
    static const char endless[] = "POST /softmax HTTP/1.1\r\nHost: a\r\n\r\n";
    cr_assert(client_open(&raw, server.port));
    cr_assert(client_send(&raw, endless, sizeof endless - 1));
    cr_assert(client_receive(&raw, false, &response));
    sent += (double)response.size;
    all++;
    client_response_free(&response);
    client_close(&raw);
    /* A client may have its answer before the server has counted it. */
    char *page = get_metrics(server.port);
    for (; metric(page, "attentiond_requests_in_flight") != 1; page = get_metrics(server.port)) {
        sent += (double)strlen(page);
        all++;
        pages++;
        free(page);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(name, sizeof name, "attentiond_requests_total%s", cases[i].name);
        name_value = metric(page, name);
        cr_expect(name_value == cases[i].times, "%s %g", name, name_value);
    }
    cr_expect_eq(metric(page, "attentiond_requests_total{route=\"/softmax\",code=\"411\"}"), 1);
    cr_expect_eq(metric(page, "attentiond_request_bytes_total"), received);
    cr_expect_eq(metric(page, "attentiond_response_bytes_total"), sent);
    cr_expect_eq(metric(page, "attentiond_request_duration_seconds_count"), all);
    cr_expect_eq(metric(page, "attentiond_request_duration_seconds_bucket{le=\"+Inf\"}"), all);
    cr_expect_eq(metric(page, "attentiond_stage_duration_seconds_count{stage=\"decode\"}"), 12);
    cr_expect_eq(metric(page, "attentiond_requests_in_flight"), 1);
    cr_expect_eq(metric(page, "attentiond_memory_bytes"), 0);
    cr_expect_eq(metric(page, "attentiond_queue_cost"), 0);
    cr_expect_gt(metric(page, "process_resident_memory_bytes"), 1e6);
    cr_expect_gt(metric(page, "process_start_time_seconds"), 1.7e9);
    free(page);
    do {
        page = get_metrics(server.port);
        name_value = metric(page, "attentiond_requests_total{route=\"/metrics\",code=\"200\"}");
        free(page);
        pages++;
    } while (name_value != pages);
    cr_expect_eq(server_stop(&server), 0);
}

static int status_with(unsigned port, const char *method, const char *path, const char *headers) {
    struct client_response response;
    char value[256] = "";
    const char *body = strcmp(method, "POST") == 0 ? "{\"X\":[[1]]}" : "";
    cr_assert(client_request(port, method, path, headers, body, strlen(body), &response));
    if (response.status == 401) {
        cr_expect(client_header(&response, "WWW-Authenticate", value, sizeof value));
        cr_expect_str_eq(value, "Bearer");
    }
    client_response_free(&response);
    return response.status;
}

/* Is it a 401 whose text has these words and no word of a key? */
static bool refused_saying(unsigned port, const char *headers, const char *words) {
    struct client_response response;
    cr_assert(client_request(port, "GET", "/version", headers, "", 0, &response));
    const bool said = response.status == 401 && strstr(response.body, words) != NULL &&
                      strstr(response.body, "the-first") == NULL;
    client_response_free(&response);
    return said;
}

static void write_key(const char *path, const char *key) {
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fprintf(file, "# the key\n%s\n", key);
    cr_assert_eq(fclose(file), 0);
}

#define OLD_KEY "Authorization: Bearer the-first-key-of-all\r\n"
#define NEW_KEY "Authorization: Bearer another-key-instead\r\n"

Test(daemon, needs_a_key_and_reads_keys_again) {
    char path[] = "/tmp/attentiond-keys-XXXXXX", output[4096], words[128];
    struct server_process server;
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
    snprintf(words, sizeof words, "--port 0 --api-key-file %s", path);
    cr_expect_eq(server_run(words, output, sizeof output), 1, "an empty file");
    cr_expect_not_null(strstr(output, "the file has no key"), "%s", output);
    write_key(path, "the-first-key-of-all");
    cr_assert(server_spawn(&server, (const char *const[]){"--api-key-file", path, NULL}));
    cr_expect_eq(status_with(server.port, "POST", "/attention", OLD_KEY), 200);
    cr_expect_eq(status_with(server.port, "POST", "/attention", NEW_KEY), 401);
    cr_expect_eq(status_with(server.port, "POST", "/attention", NULL), 401);
    cr_expect_eq(status_with(server.port, "GET", "/metrics", NULL), 401);
    cr_expect(refused_saying(server.port, NULL, "send \\\"Authorization: Bearer KEY"));
    cr_expect(refused_saying(server.port, NEW_KEY, "send \\\"Authorization: Bearer KEY"));
    cr_expect(refused_saying(server.port, "Authorization: the-first-key-of-all\r\n",
                             "header must be \\\"Bearer KEY\\\", with one of the keys"));
    cr_expect_eq(status_with(server.port, "GET", "/nowhere", NULL), 401);
    cr_expect_eq(status_with(server.port, "GET", "/health/nowhere", NULL), 401);
    cr_expect_eq(status_with(server.port, "GET", "/health/live", NULL), 200);
    cr_expect_eq(status_with(server.port, "GET", "/health/ready", NULL), 200);
    write_key(path, "another-key-instead");
    kill(server.pid, SIGHUP);
    for (int i = 0; i < 1000 && status_with(server.port, "GET", "/version", NEW_KEY) != 200; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    cr_expect_eq(status_with(server.port, "GET", "/version", NEW_KEY), 200);
    cr_expect_eq(status_with(server.port, "GET", "/version", OLD_KEY), 401);
    unlink(path);
    kill(server.pid, SIGHUP);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    cr_expect_eq(status_with(server.port, "GET", "/version", NEW_KEY), 200, "the keys stay");
    cr_expect_eq(server_stop(&server), 0);
}

/* What a browser asks and reads. */
Test(daemon, pages_of_listed_origins_may_ask) {
    static const struct {
        const char *method, *origin;
        int status;
        bool allowed;
    } cases[] = {
        {"POST", "Origin: https://a.example\r\n", 200, true},
        {"POST", "Origin: https://b.example\r\n", 200, false},
        {"POST", NULL, 200, false},
        {"OPTIONS", "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n", 204,
         true},
        {"OPTIONS", "Origin: https://b.example\r\nAccess-Control-Request-Method: POST\r\n", 405,
         false},
        {"OPTIONS", "Origin: https://a.example\r\n", 405, true},
    };
    struct server_process server;
    struct client_response response;
    char value[256] = "";
    cr_assert(server_spawn(
        &server, (const char *const[]){"--cors-origins", "http://c,https://a.example", NULL}));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *body = strcmp(cases[i].method, "POST") == 0 ? "{\"X\":[[1]]}" : "";
        cr_assert(client_request(server.port, cases[i].method, "/attention", cases[i].origin, body,
                                 strlen(body), &response));
        cr_expect_eq(response.status, cases[i].status, "case %zu", i);
        cr_expect_eq(client_header(&response, "Access-Control-Allow-Origin", value, sizeof value),
                     cases[i].allowed, "case %zu", i);
        cr_expect(!cases[i].allowed || strcmp(value, "https://a.example") == 0);
        cr_expect_eq(client_header(&response, "Access-Control-Allow-Headers", value, sizeof value),
                     cases[i].status == 204, "case %zu", i);
        cr_expect(client_header(&response, "Vary", value, sizeof value));
        client_response_free(&response);
    }
    cr_expect_eq(server_stop(&server), 0);
}

static char *read_file(const char *path) {
    char *text = calloc(1, 1 << 16);
    FILE *file = fopen(path, "r");
    cr_assert(text != NULL && file != NULL);
    cr_assert_lt(fread(text, 1, (1 << 16) - 1, file), (1 << 16) - 1);
    fclose(file);
    return text;
}

/* Lines of requests. */
static size_t count_lines(const char *text) {
    size_t lines = 0;
    for (const char *at = text; (at = strstr(at, "\"request_id\":")) != NULL; at++) {
        lines++;
    }
    return lines;
}

/* A client may have its answer before the server has written the line of it. */
static void await_lines(const char *path, size_t lines) {
    size_t there = 0;
    for (int i = 0; i < 10000 && there < lines; i++) {
        char *text = read_file(path);
        there = count_lines(text);
        free(text);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cr_assert_eq(there, lines, "%s", path);
}

/* A line for each request, also in a file that is moved away; nobody can forge one. */
Test(daemon, logs_requests) {
    char folder[] = "/tmp/attentiond-log-XXXXXX", path[64], moved[64];
    struct server_process server;
    struct client_response response;
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/log", folder);
    snprintf(moved, sizeof moved, "%s/log.1", folder);
    cr_assert(server_spawn(&server, (const char *const[]){"--log-requests", "yes", "--log-format",
                                                          "json", "--log-file", path, NULL}));
    cr_expect_eq(status_with(server.port, "POST", "/attention", "X-Request-Id: a\"b\\c\r\n"), 200);
    cr_expect_eq(status_with(server.port, "GET", "/a%22%C3%A4", NULL), 404);
    rename(path, moved);
    cr_assert(client_request(server.port, "GET", "/version", NULL, NULL, 0, &response));
    client_response_free(&response);
    await_lines(moved, 3); /* still in the old file */
    kill(server.pid, SIGHUP);
    for (int i = 0; i < 10000 && access(path, F_OK) != 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    size_t early = 0; /* the new file is there before lines go to it */
    for (size_t asked = 1, new_lines = 0; asked < 1000 && new_lines == 0; asked++) {
        cr_expect_eq(status_with(server.port, "GET", "/health/live", NULL), 200);
        for (size_t all = 0; all < 3 + asked;) { /* each line is in one of them */
            char *text = read_file(moved);
            early = count_lines(text) - 3;
            free(text);
            text = read_file(path);
            new_lines = count_lines(text);
            free(text);
            all = 3 + early + new_lines;
        }
    }
    cr_expect_eq(server_stop(&server), 0);

    char *old = read_file(moved), *new = read_file(path);
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

/* The time of all requests is the most that one may ask for. */
Test(daemon, no_request_has_more_time_than_the_server_gives) {
    static const char body[] =
        "{\"random\":{\"generator\":\"numpy\",\"seed\":1},\"return\":[\"lse\"],\"timeout\":1000,"
        "\"X\":{\"random\":\"normal\",\"shape\":[50000,64]}}";
    struct server_process server;
    struct client_response response;
    cr_assert(server_spawn(&server, (const char *const[]){"--compute-timeout", "0.05", "--max-work",
                                                          "1e18", "--max-queue", "1e18", NULL}));
    cr_assert(
        client_request(server.port, "POST", "/attention", NULL, body, sizeof body - 1, &response));
    cr_expect_eq(response.status, 503, "%d", response.status);
    cr_expect_not_null(strstr(response.body, "within 0.05 s, a limit"), "%s", response.body);
    client_response_free(&response);
    cr_expect_eq(server_stop(&server), 0);
}

/* Work that is refused, late, or given up by its client is counted, and told to those who stay. */
Test(daemon, busy_servers_say_so) {
    enum {
        ROWS = 200000
    };
    struct server_process server;
    struct client_connection working;
    struct client_response response;
    char head[256], value[16] = "";
    char *body = malloc(ROWS * 4 + 128), *page;
    size_t size = (size_t)sprintf(body, "{\"return\":[\"lse\"],\"softcap\":5,\"X\":[[1]");
    for (size_t i = 1; i < ROWS; i++) {
        size += (size_t)sprintf(body + size, ",[1]");
    }
    size += (size_t)sprintf(body + size, "]}");
    cr_assert(server_spawn(&server,
                           (const char *const[]){"--max-queue", "1", "--max-work", "1e18", NULL}));
    snprintf(head, sizeof head,
             "POST /attention HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", size);
    cr_assert(client_open(&working, server.port));
    cr_assert(client_send(&working, head, strlen(head)));
    cr_assert(client_send(&working, body, size));
    do { /* until it computes */
        page = get_metrics(server.port);
        value[0] = metric(page, "attentiond_jobs") == 1 ? '1' : '\0';
        free(page);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    } while (value[0] != '1');
    cr_assert(client_request(server.port, "POST", "/attention", NULL, body, size, &response));
    cr_expect_eq(response.status, 503, "%s", response.body);
    cr_expect(client_header(&response, "Retry-After", value, sizeof value));
    cr_expect_str_eq(value, "1");
    cr_expect_not_null(strstr(response.body, "--max-queue"));
    client_response_free(&response);
    static const char small[] = "{\"X\":[[1]]}"; /* nothing that would wait */
    cr_assert(client_request(server.port, "POST", "/attention", NULL, small, sizeof small - 1,
                             &response));
    cr_expect_eq(response.status, 200);
    client_response_free(&response);
    client_close(&working); /* leaves */
    do {
        page = get_metrics(server.port);
        value[0] = metric(page, "attentiond_cancelled_total") == 1 ? '1' : '\0';
        cr_expect_eq(metric(page, "attentiond_rejected_total{reason=\"queue\"}"), 1);
        free(page);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    } while (value[0] != '1');
    memcpy(body + size - 1, ",\"timeout\":1e-6}", sizeof ",\"timeout\":1e-6}");
    size += strlen(",\"timeout\":1e-6");
    do { /* until the one before it is gone */
        cr_assert(client_request(server.port, "POST", "/attention", NULL, body, size, &response));
        cr_expect_eq(response.status, 503);
        value[0] = strstr(response.body, "within 1e-06 s, the ") != NULL ? '1' : '\0';
        client_response_free(&response);
    } while (value[0] != '1');
    page = get_metrics(server.port);
    cr_expect_eq(metric(page, "attentiond_rejected_total{reason=\"timeout\"}"), 1);
    free(page);
    cr_expect_eq(server_stop(&server), 0);
    free(body);
}

/* The first signal, and those that come with it, wait for a request that does not end; a later one
 * ends the wait. */
Test(daemon, second_signal_ends_it_at_once) {
    static const char head[] = "POST /softmax HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n";
    static const char ask[] = "GET /health/ready HTTP/1.1\r\nHost: a\r\n\r\n";
    struct server_process server;
    struct client_connection open, probe;
    struct client_response response = {.status = 200};
    char *page;
    int status = -1;
    cr_assert(server_spawn(&server, (const char *const[]){"--drain-timeout", "3600", NULL}));
    cr_assert(client_open(&open, server.port));
    cr_assert(client_send(&open, head, sizeof head - 1));
    cr_assert(client_open(&probe, server.port));
    for (double there = 0; there != 2; free(page)) { /* it and the question itself */
        page = get_metrics(server.port);
        there = metric(page, "attentiond_requests_in_flight");
    }
    for (int i = 0; i < 10; i++) {
        kill(server.pid, i % 2 ? SIGINT : SIGTERM);
    }
    while (response.status == 200 && client_send(&probe, ask, sizeof ask - 1) &&
           client_receive(&probe, false, &response)) {
        client_response_free(&response); /* until it says so, or ends the connection */
    }
    client_close(&probe);
    cr_assert_eq(waitpid(server.pid, &status, WNOHANG), 0, "it waits");
    for (int i = 0; i < 300 && waitpid(server.pid, &status, WNOHANG) == 0; i++) {
        kill(server.pid, SIGINT);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "status %x", (unsigned)status);
    client_close(&open);
}

/* Promise 10: while it drains it says so, on connections that were there before and on new ones;
 * who asks whether it lives is told that it does, and work is done. */
Test(daemon, promise_10_says_that_it_drains) {
    static const char ready[] = "GET /health/ready HTTP/1.1\r\nHost: a\r\n\r\n";
    static const struct {
        const char *method, *path, *body;
        int status;
    } cases[] = {{"GET", "/health/ready", "", 503},
                 {"GET", "/health/live", "", 200},
                 {"POST", "/attention", "{\"X\":[[1]]}", 200},
                 {"POST", "/attention", "{", 400}};
    struct server_process server;
    struct client_connection kept;
    struct client_response response = {.status = 200};
    char value[16] = "";
    int status = -1;
    cr_assert(server_spawn(&server, (const char *const[]){"--drain-delay", "3", NULL}));
    cr_assert(client_open(&kept, server.port));
    for (size_t i = 0; response.status == 200; i++) {
        cr_assert(client_send(&kept, ready, sizeof ready - 1) &&
                  client_receive(&kept, false, &response));
        /* The first answer that says no is the first after the signal: it ends the connection. */
        cr_expect_eq(client_header(&response, "Connection", value, sizeof value),
                     response.status == 503);
        client_response_free(&response);
        if (i == 10) {
            kill(server.pid, SIGTERM);
        }
    }
    cr_expect_eq(response.status, 503);
    cr_expect_str_eq(value, "close");
    cr_expect(client_at_end(&kept));
    client_close(&kept);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_assert(client_request(server.port, cases[i].method, cases[i].path, NULL, cases[i].body,
                                 strlen(cases[i].body), &response),
                  "%s", cases[i].path);
        cr_expect_eq(response.status, cases[i].status, "%s: %d", cases[i].path, response.status);
        cr_expect(client_header(&response, "Connection", value, sizeof value), "%s", cases[i].path);
        cr_expect_str_eq(value, "close");
        client_response_free(&response);
    }
    cr_assert_eq(waitpid(server.pid, &status, 0), server.pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

/* The exit status, or -1 if it died otherwise or, after a generous while, not at all. */
static int wait_for_end(pid_t pid) {
    int status = 0;
    pid_t ended = 0;
    for (int i = 0; i < 3000 && ended == 0; i++) { /* 30 s */
        ended = waitpid(pid, &status, WNOHANG);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return ended == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A computation that goes on for minutes does not keep the daemon from ending; who waits for it is
 * told. */
Test(daemon, long_computation_does_not_outlive_it) {
    enum {
        ROWS = 1000000
    };
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    static const char tail[] = "[0]],\"return\":[\"lse\"]}";
    struct server_process server;
    struct client_connection connection;
    struct client_response response;
    char head[256], words[sizeof go_on] = "", *page;
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
    cr_assert(server_spawn(
        &server, (const char *const[]){"--max-work", "1e18", "--drain-timeout", "1", NULL}));
    cr_assert(client_open(&connection, server.port));
    cr_assert(client_send(&connection, head, strlen(head)));
    /* From here on the request is one that the daemon waits for. */
    cr_assert_eq(recv(connection.fd, words, sizeof go_on - 1, MSG_WAITALL), sizeof go_on - 1);
    cr_assert_str_eq(words, go_on);
    cr_assert(client_send(&connection, body, size));
    for (double jobs = 0; jobs != 1; free(page)) { /* it computes */
        page = get_metrics(server.port);
        jobs = metric(page, "attentiond_jobs");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    kill(server.pid, SIGTERM);
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_eq(response.status, 503, "%s", response.body);
    cr_expect_eq(wait_for_end(server.pid), 0);
    client_response_free(&response);
    client_close(&connection);
    free(body);
}

Test(daemon, health_check) {
    struct server_process server;
    char words[128], output[4096];
    cr_assert(server_spawn(&server, (const char *const[]){"--address", "0.0.0.0", NULL}));
    snprintf(words, sizeof words, "--health-check --address 0.0.0.0 --port %u", server.port);
    cr_expect_eq(server_run(words, output, sizeof output), 0, "%s", output);
    cr_expect_str_eq(output, "");
    snprintf(words, sizeof words, "%u", server.port);
    setenv("ATTENTIOND_PORT", words, 1);
    cr_expect_eq(server_run("--health-check", output, sizeof output), 0, "%s", output);
    cr_expect_eq(server_stop(&server), 0);
    cr_expect_eq(server_run("--health-check", output, sizeof output), 1);
    cr_expect_not_null(strstr(output, words), "%s", output);
}

Test(daemon, ipv6) {
    struct server_process server;
    char words[128], output[4096];
    if (!server_spawn(&server, (const char *const[]){"--address", "::1", NULL})) {
        cr_skip_test("no IPv6 here");
    }
    snprintf(words, sizeof words, "--health-check --address ::1 --port %u", server.port);
    cr_expect_eq(server_run(words, output, sizeof output), 0, "%s", output);
    cr_expect_eq(server_stop(&server), 0);
    cr_assert(server_spawn(&server, (const char *const[]){"--address", "::", NULL}));
    struct client_response response; /* over IPv4 */
    cr_assert(client_request(server.port, "GET", "/health/live", NULL, NULL, 0, &response));
    cr_expect_eq(response.status, 200);
    client_response_free(&response);
    cr_expect_eq(server_stop(&server), 0);
}

/* What the flags say reaches the server. */
Test(daemon, flags_reach_the_server) {
    struct server_process server;
    struct client_response response;
    char body[2000];
    memset(body, ' ', sizeof body);
    cr_assert(
        server_spawn(&server, (const char *const[]){"--max-body=1KiB", "--io-threads=1", NULL}));
    cr_assert(client_request(server.port, "POST", "/softmax", "Content-Type: application/json\r\n",
                             body, sizeof body, &response));
    cr_expect_eq(response.status, 413);
    cr_expect_not_null(strstr(response.body, "1024"), "%s", response.body);
    client_response_free(&response);
    cr_expect_eq(server_stop(&server), 0);
}
