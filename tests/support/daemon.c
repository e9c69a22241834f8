/* daemon.c - starts and stops the daemon of a test, and reads its metrics and its log. */
#define _GNU_SOURCE /* open_memstream */
#include "support/daemon.h"

#include <criterion/criterion.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/json.h"
#include "support/wait.h"

enum {
    MAX_OPTIONS = 64
};

struct daemon_process the_daemon = {.pid = -1};
struct client_connection the_connection = {.fd = -1};

/* ---------------------------------------------------------------------------------- the process */

/* Replaces this process by the daemon. It does not return. */
static void execute(const char *const options[], int output) {
    const char *argv[MAX_OPTIONS + 4];
    size_t count = 0;
    argv[count++] = getenv("ATTENTIOND_BIN");
    argv[count++] = "--port";
    argv[count++] = "0";
    for (size_t i = 0; options != NULL && options[i] != NULL && i < MAX_OPTIONS; i++) {
        argv[count++] = options[i];
    }
    argv[count] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argv[0] != NULL && dup2(output, STDOUT_FILENO) >= 0) {
        execv(argv[0], (char *const *)argv);
    }
    _exit(127);
}

/* Reads the line "... listening on http[s]://127.0.0.1:PORT". */
static bool read_port(int fd, unsigned *port) {
    char line[256];
    size_t size = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (size < sizeof line - 1 && poll(&ready, 1, (int)wait_limit()) > 0 &&
           read(fd, line + size, 1) == 1 && line[size] != '\n') {
        size++;
    }
    line[size] = '\0';
    const char *colon = strrchr(line, ':');
    return colon != NULL && sscanf(colon, ":%5u", port) == 1;
}

bool daemon_spawn(const char *const options[]) {
    int fds[2];
    if (pipe(fds) != 0) {
        return false;
    }
    the_daemon.pid = fork();
    if (the_daemon.pid == 0) {
        close(fds[0]);
        execute(options, fds[1]);
    }
    close(fds[1]);
    bool ready = the_daemon.pid > 0 && read_port(fds[0], &the_daemon.port);
    close(fds[0]);
    if (!ready && the_daemon.pid > 0) {
        kill(the_daemon.pid, SIGKILL);
        waitpid(the_daemon.pid, NULL, 0);
        the_daemon.pid = -1;
    }
    return ready;
}

/* Waits for the end of the daemon, and kills it if it does not end. */
static bool await_end(int *status) {
    const int64_t limit = wait_limit();
    pid_t ended = 0;
    for (int64_t ms = 0; ended == 0 && ms < limit; ms++) {
        ended = waitpid(the_daemon.pid, status, WNOHANG);
        if (ended == 0) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
    if (ended == 0) {
        wait_gave_up();
        kill(the_daemon.pid, SIGKILL);
        ended = waitpid(the_daemon.pid, status, 0);
    }
    return ended == the_daemon.pid;
}

int daemon_stop(void) {
    int status = 0;
    if (the_daemon.pid <= 0 || kill(the_daemon.pid, SIGTERM) != 0 || !await_end(&status)) {
        return -1;
    }
    the_daemon.pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int daemon_run(const char *words, char *output, size_t size) {
    char command[4096];
    output[0] = '\0';
    snprintf(command, sizeof command, "\"$ATTENTIOND_BIN\" %s 2>&1", words);
    FILE *pipe = popen(command, "r");
    if (pipe == NULL) {
        return -1;
    }
    output[fread(output, 1, size - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---------------------------------------------------------------------- a fixture for a suite */

void daemon_start(const char *const options[]) {
    const char *program = getenv("ATTENTIOND_BIN");
    cr_assert(daemon_spawn(options), "the daemon does not start; ATTENTIOND_BIN is %s",
              program != NULL ? program : "not set");
}

void daemon_start_plain(void) {
    daemon_start(NULL);
}

void daemon_end(void) {
    client_close(&the_connection);
    const int status = daemon_stop();
    cr_expect_eq(status, 0, "the daemon ends with status %d", status);
}

void daemon_connect(void) {
    cr_assert(client_open(&the_connection, the_daemon.port));
}

void daemon_start_with(const char *const options[]) {
    daemon_start(options);
    daemon_connect();
}

void daemon_start_connected(void) {
    daemon_start_with(NULL);
}

void daemon_start_compressing(void) {
    daemon_start_with((const char *const[]){"--compression", "yes", NULL});
}

struct client_response daemon_ask_shared(const char *method, const char *path, const char *headers,
                                         const void *body, size_t size) {
    struct client_response response;
    char head[1024];
    const int length =
        snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n%s\r\n",
                 method, path, size, headers);
    cr_assert_lt((size_t)length, sizeof head);
    cr_assert(client_send(&the_connection, head, (size_t)length));
    cr_assert(client_send(&the_connection, body, size));
    cr_assert(client_receive(&the_connection, strcmp(method, "HEAD") == 0, &response), "%s %s %s",
              method, path, headers);
    return response;
}

struct client_response daemon_ask_in_chunks(const char *path, const char *headers, const void *body,
                                            size_t size, size_t part) {
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    struct client_response response;
    fprintf(to, "POST %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n%s\r\n", path,
            headers);
    for (size_t at = 0; at < size; at += part) {
        const size_t some = size - at < part ? size - at : part;
        fprintf(to, "%zx\r\n", some);
        fwrite((const char *)body + at, 1, some, to);
        fputs("\r\n", to);
    }
    fputs("0\r\n\r\n", to);
    fclose(to);
    cr_assert(client_send(&the_connection, text, length));
    cr_assert(client_receive(&the_connection, false, &response), "%s %s", path, headers);
    free(text);
    return response;
}

struct client_response daemon_infer(const char *path, const char *headers, const void *body,
                                    size_t size, size_t header) {
    char all[512];
    snprintf(all, sizeof all,
             "Content-Type: application/octet-stream\r\n"
             "Inference-Header-Content-Length: %zu\r\n%s",
             header, headers);
    return daemon_ask_shared("POST", path, header > 0 ? all : headers, body, size);
}

struct cJSON *daemon_ask_json(const char *path, const void *body, size_t size) {
    struct client_response response = daemon_ask_shared("POST", path, "", body, size);
    cr_assert_eq(response.status, 200, "%s: %d %.600s", path, response.status, response.body);
    struct cJSON *json = json_parse(response.body, response.size);
    client_response_free(&response);
    return json;
}

struct client_response daemon_ask(const char *method, const char *path, const char *headers) {
    struct client_response response;
    cr_assert(client_request(the_daemon.port, method, path, headers, "", 0, &response),
              "%s %s: no answer", method, path);
    return response;
}

/* ------------------------------------------------------------------------------ metrics and log */

char *daemon_metrics(void) {
    struct client_response response = daemon_ask("GET", "/metrics", NULL);
    char type[64] = "";
    cr_assert_eq(response.status, 200);
    cr_expect(client_header(&response, "Content-Type", type, sizeof type));
    cr_expect_str_eq(type, "text/plain; version=0.0.4; charset=utf-8");
    char *page = strdup(response.body);
    client_response_free(&response);
    return page;
}

double daemon_metric_on(const char *page, const char *name) {
    const size_t length = strlen(name);
    for (const char *line = page; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ' ') {
            return strtod(line + length, NULL);
        }
    }
    return NAN;
}

double daemon_metric(const char *name) {
    char *page = daemon_metrics();
    const double value = daemon_metric_on(page, name);
    free(page);
    return value;
}

void daemon_await_metric(const char *name, double value) {
    WAIT_UNTIL(daemon_metric(name) == value);
}

static bool file_has(const char *path, const char *text) {
    char *file = json_read_file(path, &(size_t){0});
    const bool has = file != NULL && strstr(file, text) != NULL;
    free(file);
    return has;
}

void daemon_await_text(const char *path, const char *text) {
    WAIT_UNTIL(file_has(path, text));
}
