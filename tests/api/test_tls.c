/*
 * test_tls.c - the daemon with a certificate: versions of TLS, what it refuses, reload, deadlines,
 * drain and --health-check. Each test makes its certificates, so none in the tree can expire.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/json.h"
#include "support/tls.h"

#define ONLY_1_1 "NORMAL:-VERS-ALL:+VERS-TLS1.1:%COMPAT"
#define ONLY_1_2 "NORMAL:-VERS-ALL:+VERS-TLS1.2"
#define ONLY_1_3 "NORMAL:-VERS-ALL:+VERS-TLS1.3"

enum {
    YEAR = 365 * 86400
};

/* The files of one test, which is a process. */
static char folder[] = "/tmp/attentiond-tls-XXXXXX", certificate[64], key[64], log_file[64];

static void make_folder(void) {
    cr_assert_not_null(mkdtemp(folder));
    snprintf(certificate, sizeof certificate, "%s/certificate.pem", folder);
    snprintf(key, sizeof key, "%s/key.pem", folder);
    snprintf(log_file, sizeof log_file, "%s/log", folder);
    cr_assert(tls_make_pair("first", false, YEAR, certificate, key));
}

static void remove_folder(void) {
    unlink(certificate);
    unlink(key);
    unlink(log_file);
    rmdir(folder);
}

TestSuite(tls, .init = make_folder, .fini = remove_folder, .timeout = 1200);

/* Starts the daemon with the certificate and at most one option. */
static void start_tls(const char *option, const char *value) {
    daemon_start((const char *const[]){"--tls-certificate", certificate, "--tls-key", key,
                                       "--log-file", log_file, option, value, NULL});
}

static void pause_ms(long milliseconds) {
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL);
}

/* The value of a metric, asked for over TLS; NAN if there is none. */
static double metric_over_tls(const char *name) {
    struct client_response response;
    cr_assert(tls_request(the_daemon.port, NULL, "GET", "/metrics", NULL, 0, &response));
    const double value = daemon_metric_on(response.body, name);
    client_response_free(&response);
    return value;
}

static void await_metric_over_tls(const char *name, double value) {
    while (metric_over_tls(name) != value) {
        pause_ms(5);
    }
}

/* --------------------------------------------------------------------------- versions and peers */

static void answers_the_first_notebook(const char *priorities) {
    size_t size;
    char *body = json_read_file(TESTS_DIR "/notebooks/000-attention.request.json", &size);
    char *text = json_read_file(TESTS_DIR "/notebooks/000-attention.expected.json", &(size_t){0});
    struct cJSON *expected = json_parse(text, strlen(text));
    struct client_response response;
    struct json_difference difference;
    cr_assert(
        tls_request(the_daemon.port, priorities, "POST", "/attention", body, size, &response));
    cr_expect_eq(response.status, 200, "%s", response.body);
    struct cJSON *answer = json_parse(response.body, response.size);
    cr_expect(json_near(answer, json_get(expected, "expect"), 5e-9, 2e-6, &difference), "%s %s",
              difference.pointer, difference.message);
    cr_expect_eq(difference.numbers, 28);
    json_free(answer);
    json_free(expected);
    client_response_free(&response);
    free(text);
    free(body);
}

Test(tls, versions_1_2_and_1_3) {
    static const char *const priorities[] = {ONLY_1_2, ONLY_1_3}, *const names[] = {"TLS1.2",
                                                                                    "TLS1.3"};
    struct client_connection connection;
    for (int rsa = 0; rsa < 2; rsa++) {
        cr_assert(rsa == 0 || tls_make_pair("first", true, YEAR, certificate, key));
        start_tls(NULL, NULL);
        for (size_t i = 0; i < 2; i++) {
            answers_the_first_notebook(priorities[i]);
            cr_assert(tls_open(&connection, the_daemon.port, priorities[i]));
            cr_expect_str_eq(tls_version(&connection), names[i]);
            client_close(&connection);
        }
        daemon_end();
    }
}

/* The daemon refuses older versions, ciphers without forward secrecy or authentication, and plain
 * HTTP. */
Test(tls, refuses_what_is_old_or_plain) {
    static const char *const bad[] = {ONLY_1_1, ONLY_1_2 ":-KX-ALL:+RSA",
                                      ONLY_1_2 ":-CIPHER-ALL:+AES-128-CBC:+AES-256-CBC",
                                      ONLY_1_3 ":-GROUP-ALL:+GROUP-FFDHE2048"};
    struct client_connection connection;
    /* Most of these ciphers need an RSA key. */
    cr_assert(tls_make_pair("first", true, YEAR, certificate, key));
    start_tls(NULL, NULL);
    for (size_t i = 0; i < COUNT(bad); i++) {
        cr_expect(!tls_open(&connection, the_daemon.port, bad[i]), "%s", bad[i]);
    }
    cr_assert(client_open(&connection, the_daemon.port));
    /* The connection may end before the body is sent. */
    client_send_post(&connection, "/attention", "{\"X\":[[1]]}", 11);
    cr_expect(!client_receive(&connection, false, &(struct client_response){0}));
    client_close(&connection);
    answers_the_first_notebook(NULL);
    daemon_end();
}

/* ------------------------------------------------------------------------------------- the pair */

Test(tls, options_that_end_the_start) {
    char words[256], output[1024], other[64];
    const struct {
        const char *certificate, *key, *message;
        int status;
    } cases[] = {
        {certificate, NULL, "--tls-certificate needs --tls-key, too", 2},
        {NULL, key, "--tls-key needs --tls-certificate, too", 2},
        {"/nowhere", key, "the certificate in /nowhere cannot be read: No such file", 1},
        {certificate, "/nowhere", "the key in /nowhere cannot be read: No such file", 1},
        {certificate, "/dev/null",
         "the key in /dev/null cannot be read: this is not a regular file", 1},
        {key, key, "no certificate in PEM form", 1},
        {certificate, certificate, "no key in PEM form", 1},
        {certificate, other, "does not belong to the certificate", 1},
    };
    snprintf(other, sizeof other, "%s/log", folder);
    cr_assert(tls_make_pair("other", false, YEAR, "/dev/null", other));
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(words, sizeof words, "--port 0 %s %s %s %s",
                 cases[i].certificate != NULL ? "--tls-certificate" : "",
                 cases[i].certificate != NULL ? cases[i].certificate : "",
                 cases[i].key != NULL ? "--tls-key" : "", cases[i].key != NULL ? cases[i].key : "");
        cr_expect_eq(daemon_run(words, output, sizeof output), cases[i].status, "case %zu", i);
        cr_expect_not_null(strstr(output, cases[i].message), "case %zu: %s", i, output);
    }
    setenv("ATTENTIOND_TLS_CERTIFICATE", certificate, 1);
    cr_expect_eq(daemon_run("--port 0", output, sizeof output), 2, "%s", output);
}

/* The daemon serves an expired certificate. Clients will complain, and the log warns. */
Test(tls, an_expired_certificate_is_served_with_a_warning) {
    char text[128];
    cr_assert(tls_make_pair("first", false, -3600, certificate, key));
    start_tls(NULL, NULL);
    snprintf(text, sizeof text, "the certificate in %s expired on 20", certificate);
    daemon_await_text(log_file, text);
    cr_assert(tls_make_pair("first", false, 2 * 86400, certificate, key)); /* valid from tomorrow */
    kill(the_daemon.pid, SIGHUP);
    snprintf(text, sizeof text, "the certificate in %s is not valid before 20", certificate);
    daemon_await_text(log_file, text);
    answers_the_first_notebook(NULL);
    daemon_end();
}

static void peer_name(char name[static 64]) {
    struct client_connection connection;
    cr_assert(tls_open(&connection, the_daemon.port, NULL));
    tls_peer_name(&connection, name);
    client_close(&connection);
}

/* New connections get a new pair. A bad pair changes nothing. */
Test(tls, reload) {
    struct client_connection old;
    struct client_response response;
    char name[64];
    start_tls(NULL, NULL);
    cr_assert(tls_open(&old, the_daemon.port, NULL));
    tls_peer_name(&old, name);
    cr_expect_str_eq(name, "first");
    cr_assert(tls_make_pair("second", true, YEAR, certificate, key));
    kill(the_daemon.pid, SIGHUP);
    do {
        peer_name(name);
    } while (strcmp(name, "first") == 0);
    cr_expect_str_eq(name, "second");
    for (int i = 0; i < 2; i++) {
        cr_assert(client_send_post(&old, "/attention", "{\"X\":[[1]]}", 11));
        cr_assert(client_receive(&old, false, &response), "the old connection lives");
        cr_expect_eq(response.status, 200);
        client_response_free(&response);
    }
    cr_assert(tls_make_pair("third", false, YEAR, certificate, "/dev/null"));
    kill(the_daemon.pid, SIGHUP);
    daemon_await_text(log_file, "the certificate stays as it was: the key in ");
    peer_name(name);
    cr_expect_str_eq(name, "second");
    unlink(certificate);
    kill(the_daemon.pid, SIGHUP);
    daemon_await_text(log_file, "No such file or directory");
    peer_name(name);
    cr_expect_str_eq(name, "second");
    client_close(&old);
    daemon_end();
}

/* A ticket spares a client the handshake, but not after a reload, because it must see the new
 * certificate. */
Test(tls, sessions_resume_until_a_reload) {
    struct client_connection first, second, third;
    struct client_response response;
    char name[64];
    start_tls(NULL, NULL);
    cr_assert(tls_open(&first, the_daemon.port, NULL));
    cr_assert(client_send_post(&first, "/attention", "{\"X\":[[1]]}", 11));
    cr_assert(client_receive(&first, false, &response)); /* the ticket arrives before the answer */
    client_response_free(&response);
    cr_assert(tls_open_again(&second, the_daemon.port, &first));
    cr_expect(tls_resumed(&second));
    client_close(&second);
    cr_assert(tls_make_pair("second", false, YEAR, certificate, key));
    kill(the_daemon.pid, SIGHUP);
    do {
        peer_name(name);
    } while (strcmp(name, "first") == 0);
    cr_assert(tls_open_again(&third, the_daemon.port, &first));
    cr_expect(!tls_resumed(&third));
    tls_peer_name(&third, name);
    cr_expect_str_eq(name, "second");
    client_close(&third);
    client_close(&first);
    daemon_end();
}

/* Pairs are replaced during handshakes. No handshake may use a pair that was freed. */
Test(tls, reloads_do_not_disturb_handshakes) {
    enum {
        TIMES = 60
    };
    struct client_connection connections[TIMES];
    struct client_response response;
    start_tls(NULL, NULL);
    for (int i = 0; i < TIMES; i++) {
        kill(the_daemon.pid, SIGHUP);
        cr_assert(tls_open(&connections[i], the_daemon.port, i % 2 ? ONLY_1_2 : ONLY_1_3));
    }
    for (int i = 0; i < TIMES; i++) {
        cr_assert(client_send_post(&connections[i], "/attention", "{\"X\":[[1]]}", 11));
        cr_assert(client_receive(&connections[i], false, &response));
        cr_expect_eq(response.status, 200);
        client_response_free(&response);
        client_close(&connections[i]);
    }
    daemon_end();
}

Test(tls, health_check) {
    char words[256], output[1024];
    start_tls("--address", "0.0.0.0");
    snprintf(words, sizeof words, "--health-check --port %u", the_daemon.port);
    cr_expect_eq(daemon_run(words, output, sizeof output), 1, "HTTP");
    snprintf(words, sizeof words, "--health-check --port %u --tls-certificate %s --tls-key %s",
             the_daemon.port, certificate, key);
    cr_expect_eq(daemon_run(words, output, sizeof output), 0, "%s", output);
    cr_expect_str_eq(output, "");
    daemon_end();
    cr_expect_eq(daemon_run(words, output, sizeof output), 1);
    daemon_start(NULL);
    snprintf(words, sizeof words, "--health-check --port %u --tls-certificate %s --tls-key %s",
             the_daemon.port, certificate, key);
    cr_expect_eq(daemon_run(words, output, sizeof output), 1, "of a server without TLS");
    cr_expect_not_null(strstr(output, "no answer from"), "%s", output);
    daemon_end();
}

/* -------------------------------------------------------------------------- slow and gone peers */

/* Returns the seconds of CPU that the daemon has used. */
static double cpu_seconds(void) {
    char path[64], text[1024] = "";
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)the_daemon.pid);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_gt(fread(text, 1, sizeof text - 1, file), 0);
    fclose(file);
    const char *rest = strrchr(text, ')');
    cr_assert_not_null(rest);
    cr_assert_eq(
        sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system), 2);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* A client that sends plain HTTP to the port gets no answer. The log tells it, but it tells nothing
 * about TLS clients that send no request. */
Test(tls, plain_http_is_told_in_the_log) {
    static const char request[] = "GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n";
    struct client_connection connection;
    start_tls(NULL, NULL);
    cr_assert(tls_open(&connection, the_daemon.port, NULL));
    client_close(&connection);
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_send(&connection, request, sizeof request - 1));
    cr_expect(client_at_end(&connection));
    client_close(&connection);
    daemon_await_text(log_file, " attentiond: refused 1 time in the last ");
    daemon_await_text(log_file, " s: 1 plain HTTP on this port for HTTPS\n");
    daemon_end();
}

/* The deadline for headers ends a connection whose handshake is unfinished or was not begun.
 * Waiting for it costs no CPU. */
Test(tls, unfinished_handshakes_are_cut) {
    static const char *const begun[] = {"", "\x16\x03\x01", "\x16\x03\x01\x02"};
    struct client_connection connections[3];
    start_tls("--header-timeout", "2");
    answers_the_first_notebook(NULL);
    const double before = cpu_seconds();
    for (size_t i = 0; i < 3; i++) {
        cr_assert(client_open(&connections[i], the_daemon.port));
        cr_assert(client_send(&connections[i], begun[i], strlen(begun[i])));
    }
    for (size_t i = 0; i < 3; i++) {
        cr_expect(client_at_end(&connections[i]));
        client_close(&connections[i]);
    }
    cr_expect_lt(cpu_seconds() - before, 0.9);
    answers_the_first_notebook(NULL);
    daemon_end();
}

/* The deadline for writing ends the connection of a client that does not read. */
Test(tls, slow_readers_are_cut) {
    struct client_connection slow;
    size_t size;
    char *body = json_rows("\"return\":[\"weights\"]", 1000, &size);
    start_tls("--write-timeout", "1");
    /* TLS 1.2 sends nothing but answers after the handshake. */
    cr_assert(tls_open(&slow, the_daemon.port, ONLY_1_2));
    cr_assert(client_send_post(&slow, "/attention", body, size));
    cr_assert_eq(poll(&(struct pollfd){.fd = slow.fd, .events = POLLIN}, 1, 60000), 1);
    await_metric_over_tls("attentiond_requests_in_flight", 1); /* only the request for /metrics */
    await_metric_over_tls("attentiond_connections", 1);
    client_close(&slow);
    daemon_end();
    free(body);
}

Test(tls, long_answers_are_whole) {
    enum {
        ROWS = 1000
    };
    struct client_connection connection;
    struct client_response response = {0}, again = {0};
    size_t size, commas = 0;
    char *body = json_rows("\"return\":[\"weights\"]", ROWS, &size);
    start_tls(NULL, NULL);
    cr_assert(tls_open(&connection, the_daemon.port, ONLY_1_2));
    cr_assert(client_send_post(&connection, "/attention", body, size));
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_gt(response.size, 1 << 20);
    for (size_t i = 0; i < response.size; i++) {
        commas += response.body[i] == ',';
    }
    cr_expect_eq(commas, (size_t)ROWS * ROWS - 1);
    client_close(&connection);
    cr_assert(tls_open(&connection, the_daemon.port, ONLY_1_3));
    for (int i = 0; i < 2; i++) { /* both on one connection */
        cr_assert(client_send_post(&connection, "/attention", body, size));
        cr_assert(client_receive(&connection, false, &again));
        cr_expect(again.size == response.size &&
                  memcmp(again.body, response.body, again.size) == 0);
        client_response_free(&again);
    }
    client_response_free(&response);
    client_close(&connection);
    daemon_end();
    free(body);
}

/* Two requests arrive at once, and a worker computes the first. The answers come in order. */
Test(tls, pipelined_requests_wait_for_a_computation) {
    struct client_connection connection;
    struct client_response response;
    size_t size;
    char *body = json_rows("\"return\":[\"lse\"],\"softcap\":5", 4000, &size);
    char *both = malloc(2 * size + 512);
    start_tls(NULL, NULL);
    for (int i = 0; i < 2; i++) {
        cr_assert(tls_open(&connection, the_daemon.port, i == 0 ? ONLY_1_2 : ONLY_1_3));
        int length = sprintf(both,
                             "POST /attention HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n"
                             "%sGET /health/live HTTP/1.1\r\nHost: a\r\n\r\n",
                             size, body);
        cr_assert(client_send(&connection, both, (size_t)length));
        cr_assert(client_receive(&connection, false, &response));
        cr_expect_eq(response.status, 200);
        cr_expect_eq(strncmp(response.body, "{\"lse\":[", 8), 0);
        client_response_free(&response);
        cr_assert(client_receive(&connection, false, &response));
        cr_expect_eq(response.status, 200);
        client_response_free(&response);
        client_close(&connection);
    }
    daemon_end();
    free(both);
    free(body);
}

Test(tls, who_leaves_gives_up_the_computation) {
    struct client_connection connection;
    size_t size;
    char *body = json_rows("\"return\":[\"lse\"],\"softcap\":5", 200000, &size);
    start_tls("--max-work", "1e18");
    cr_assert(tls_open(&connection, the_daemon.port, NULL));
    cr_assert(client_send_post(&connection, "/attention", body, size));
    await_metric_over_tls("attentiond_jobs", 1);
    client_close(&connection);
    await_metric_over_tls("attentiond_jobs", 0);
    cr_expect_eq(metric_over_tls("attentiond_cancelled_total"), 1);
    daemon_end();
    free(body);
}

/* ---------------------------------------------------------------------------------------- drain */

/* Every request is answered, whatever other connections are open: one in its handshake, an idle
 * one, and one whose answer is read only after the signal. */
Test(tls, drain_loses_nothing) {
    struct client_connection computing, idle, handshake, reading;
    struct client_response response;
    size_t size, long_size;
    int status = -1;
    char *body = json_rows("\"return\":[\"lse\"],\"softcap\":5", 8000, &size);
    char *long_body = json_rows("\"return\":[\"weights\"]", 1000, &long_size);
    start_tls("--drain-timeout", "100");
    cr_assert(tls_open(&idle, the_daemon.port, NULL));
    cr_assert(client_send_post(&idle, "/attention", "{\"X\":[[1]]}", 11));
    cr_assert(client_receive(&idle, false, &response));
    client_response_free(&response);
    cr_assert(client_open(&handshake, the_daemon.port));
    cr_assert(client_send(&handshake, "\x16\x03\x01", 3));
    cr_assert(tls_open(&reading, the_daemon.port, NULL));
    cr_assert(client_send_post(&reading, "/attention", long_body, long_size));
    /* The two are the request whose answer is not read, and the one for /metrics. */
    await_metric_over_tls("attentiond_requests_in_flight", 2);
    cr_assert(tls_open(&computing, the_daemon.port, NULL));
    cr_assert(client_send_post(&computing, "/attention", body, size));
    kill(the_daemon.pid, SIGTERM);
    cr_assert(client_receive(&reading, false, &response));
    cr_expect_eq(response.status, 200);
    cr_expect_str_eq(response.body + response.size - 4, "]]}\n");
    client_response_free(&response);
    cr_assert(client_receive(&computing, false, &response));
    cr_expect_eq(response.status, 200, "%s", response.body);
    client_response_free(&response);
    cr_assert_eq(waitpid(the_daemon.pid, &status, 0), the_daemon.pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
    client_close(&computing);
    client_close(&reading);
    client_close(&idle);
    client_close(&handshake);
    free(body);
    free(long_body);
}
