/*
 * daemon.h - the daemon that a test talks to: its process, its metrics and its log. Criterion runs
 * each test in a process of its own, so a test has one daemon and at most one shared connection.
 * Except for daemon_spawn, daemon_stop and daemon_run, a function that fails also fails the test.
 */
#ifndef SUPPORT_DAEMON_H
#define SUPPORT_DAEMON_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "support/client.h"

struct cJSON;

struct daemon_process {
    pid_t pid;
    unsigned port;
};

extern struct daemon_process the_daemon;

/* ---------------------------------------------------------------------------------- the process */

/* Runs $ATTENTIOND_BIN with --port 0 and `options`, a list that ends with NULL and may be NULL, and
 * waits for the line that names its port. The daemon is killed when the test ends. Returns false if
 * the daemon does not start. */
bool daemon_spawn(const char *const options[]);

/* Sends SIGTERM and waits. Returns the exit status, or -1 if a signal ended the process. */
int daemon_stop(void);

/* Runs $ATTENTIOND_BIN with these words in a shell, and writes to `output` what it prints to stdout
 * and stderr. Returns its exit status, or -1 if a signal ended it. */
int daemon_run(const char *words, char *output, size_t size);

/* ---------------------------------------------------------------------- a fixture for a suite */

/* daemon_start() takes the options of daemon_spawn(). daemon_start_plain() has none, so that it can
 * be the .init of a suite. */
void daemon_start(const char *const options[]);
void daemon_start_plain(void);

/* Closes the shared connection, stops the daemon, and expects the exit status 0. */
void daemon_end(void);

/* A keep-alive connection that all requests of a test share. daemon_end() closes it. */
extern struct client_connection the_connection;

/* Opens the shared connection. */
void daemon_connect(void);

/* Calls daemon_start() and daemon_connect(). daemon_start_connected() has no options, and
 * daemon_start_compressing() has --compression yes, so that both can be the .init of a suite. */
void daemon_start_with(const char *const options[]);
void daemon_start_connected(void);
void daemon_start_compressing(void);

/* Asks on the shared connection. `headers` is "A: b\r\n..."; Host and Content-Length are added. The
 * response is owned: client_response_free(). */
struct client_response daemon_ask_shared(const char *method, const char *path, const char *headers,
                                         const void *body, size_t size);

/* The same, and the body is sent in chunks of `part` bytes. */
struct client_response daemon_ask_in_chunks(const char *path, const char *headers, const void *body,
                                            size_t size, size_t part);

/* Asks a model of the Open Inference Protocol. `header` is the length of the JSON before binary
 * tensors. If it is 0, no header names it. */
struct client_response daemon_infer(const char *path, const char *headers, const void *body,
                                    size_t size, size_t header);

/* Posts JSON, and parses the answer, which must be a 200. Returns owned: json_free(). */
struct cJSON *daemon_ask_json(const char *path, const void *body, size_t size);

/* A request without a body, on a connection of its own. `headers` is as in client_request(). The
 * response is owned: client_response_free(). */
struct client_response daemon_ask(const char *method, const char *path, const char *headers);

/* ------------------------------------------------------------------------------ metrics and log */

/* The page /metrics. Returns owned: free(). */
char *daemon_metrics(void);

/* The value of a metric on such a page, or NAN if there is none. `name` is written as on the page,
 * with its labels. */
double daemon_metric_on(const char *page, const char *name);

/* The value of a metric now. */
double daemon_metric(const char *name);

/* Waits until the metric has this value. */
void daemon_await_metric(const char *name, double value);

/* Waits until a file, such as the log, contains the text. */
void daemon_await_text(const char *path, const char *text);

#endif
