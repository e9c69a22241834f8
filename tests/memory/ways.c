/*
 * ways.c - asks the app in the calling thread, or the server over one connection.
 */
#include "memory/ways.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory/alloc_failure.h"
#include "memory/trial.h"
#include "support/app.h"
#include "support/client.h"
#include "support/pack.h"

enum {
    PIECE = 5000,       /* bytes of a body that the app gets at a time */
    ANSWER_SECONDS = 10 /* the server must answer or close the connection within this time */
};

struct api_state tested_state = {
    .budget = {64 << 20, 64 << 20, 0, 0}, .max_work = 1e12, .timeout = 60, .threads = 2};
static const struct jobs_options workers = {.threads = 2, .max_jobs = 8, .max_cost = 1e12};
static char key_file[] = "/tmp/attentiond-no-memory-XXXXXX";
static const struct http_options options = {
    .log = {.json = true, .requests = true, .file = "/dev/null"},
    .api_key_file = key_file,
    .cors_origins = "https://a.example",
    .address = "127.0.0.1",
    .threads = 2,
    .max_body = 16 << 20,
    .compression = true,
    .max_connections = 16,
    .idle_timeout = 30,
    .header_timeout = 30,
    .body_timeout = 30,
    .write_timeout = 30,
    .drain_timeout = 10};
struct http_app tested_app;
struct http_server *tested_server;

void ways_begin(void) {
    FILE *file = fdopen(mkstemp(key_file), "w");
    if (file == NULL || fputs("one-key-for-this-test\n", file) < 0 || fclose(file) != 0) {
        fprintf(stderr, "%s cannot be written\n", key_file);
        exit(1);
    }
    trial_file = key_file;
    tested_app = api_app(&tested_state);
}

struct jobs *ways_start_workers(void) {
    return jobs_start(&workers);
}

bool ways_start_server(char *error, size_t size) {
    tested_server = http_start(&options, &tested_app, error, size);
    return tested_server != NULL;
}

/* ----------------------------------------------------------------------------- without a socket */

/* The memory of the test itself never runs out. */
static void app_may_fail(bool is_called) {
    alloc_failure_exempt(!is_called);
}

static void ask_app(const struct request *q, struct answer *out) {
    char length[32];
    snprintf(length, sizeof length, "%zu", q->header);
    const struct http_request request = {.method = q->method,
                                         .path = q->path,
                                         .media_type = q->media_type != NULL ? q->media_type
                                                                             : "application/json",
                                         .accept = q->accept != NULL ? q->accept : "",
                                         .inference_header = q->header > 0 ? length : NULL,
                                         .inference = request_is_inference(q),
                                         .id = "here",
                                         .server = tested_server};
    struct app_answer answer;
    app_is_called = app_may_fail;
    app_ask(&tested_app, &request, &(struct app_body){q->body, q->size, PIECE, false}, &answer);
    if (answer.fault != NULL) {
        trial_fault("%s", answer.fault);
    }
    out->status = answer.response.status;
    out->retry = true; /* the server would add Retry-After */
    out->body = answer.body;
    out->size = answer.size;
}

static void prepare_app(void) {
    tested_state.jobs = NULL;
}

static void finish_app(void) {
}

const struct way way_app = {"the app alone", prepare_app, ask_app, finish_app};

/* ------------------------------------------------------------------- the server and its workers */

static struct client_connection connection = {.fd = -1};
static bool is_open;

void ways_hang_up(void) {
    client_close(&connection);
    is_open = false;
}

/* Decompresses the body of an answer. */
static void decode(const char *coding, struct answer *out) {
    char *body = unpack(coding, out->body, out->size, &out->size);
    if (body == NULL) {
        trial_fault("an answer cannot be decompressed as %s", coding);
        return;
    }
    free(out->body);
    out->body = body;
}

/* Writes the head of a request, and returns its size. */
static size_t write_head(const struct request *q, char head[1024]) {
    int size = sprintf(head,
                       "%s %s HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\n"
                       "Content-Length: %zu\r\n%s",
                       q->method, q->path, q->size, q->headers != NULL ? q->headers : REQUEST_KEY);
    if (q->media_type != NULL) {
        size += sprintf(head + size, "Content-Type: %s\r\n", q->media_type);
    }
    if (q->accept != NULL) {
        size += sprintf(head + size, "Accept: %s\r\n", q->accept);
    }
    if (q->header > 0) {
        size += sprintf(head + size, "Inference-Header-Content-Length: %zu\r\n", q->header);
    }
    return (size_t)(size + sprintf(head + size, "\r\n"));
}

static void ask_server(const struct request *q, struct answer *out) {
    struct client_response response;
    char head[1024], value[64];
    const double start = trial_now();
    const size_t size = write_head(q, head);
    if (!is_open && !client_open(&connection, http_port(tested_server))) {
        trial_fault("there is no connection: %s", strerror(errno));
        return;
    }
    is_open = true;
    if (client_send(&connection, head, size)) {
        client_send(&connection, q->body, q->size); /* may fail: an early refusal is read below */
    }
    if (!client_receive(&connection, false, &response)) {
        if (trial_now() - start > ANSWER_SECONDS) {
            trial_fault("the server neither answers nor closes the connection");
        }
        ways_hang_up();
        return;
    }
    out->status = response.status;
    out->retry = client_header(&response, "Retry-After", value, sizeof value);
    out->body = response.body;
    out->size = response.size;
    response.body = NULL;
    if (client_header(&response, "Content-Encoding", value, sizeof value)) {
        decode(value, out);
    }
    if (client_header(&response, "Connection", value, sizeof value)) {
        ways_hang_up();
    }
    client_response_free(&response);
}

/* Each trial has new workers, because a worker keeps its scratch memory. */
static void prepare_server(void) {
    tested_state.jobs = ways_start_workers();
    if (tested_state.jobs == NULL) {
        trial_fault("the workers do not start");
    }
}

static void finish_server(void) {
    const double start = trial_now();
    ways_hang_up();
    while (http_load(tested_server).connections > 0 && trial_now() - start < trial_patience()) {
        trial_tick();
    }
    if (jobs_load(tested_state.jobs).jobs != 0) {
        trial_fault("a job is left");
    }
    jobs_stop(tested_state.jobs);
    tested_state.jobs = NULL;
}

const struct way way_server = {"the server", prepare_server, ask_server, finish_server};
