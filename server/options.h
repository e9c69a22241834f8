/*
 * options.h - the configuration of the daemon: command line, then environment, then default.
 * One table in options.c says everything about an option; this file knows nothing of what it does.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct server_options {
    const char *address; /* numeric IPv4 or IPv6; points into argv or the environment */
    unsigned port;       /* 0 = a free one */
    const char *api_key_file, *cors_origins, *log_file; /* NULL = none; as address */
    const char *tls_certificate, *tls_key;              /* the same; both or neither */
    unsigned log_json, log_requests;                    /* 0 or 1 */
    unsigned io_threads;
    unsigned workers;
    size_t max_body;      /* bytes */
    unsigned compression; /* 0 or 1 */
    unsigned max_connections;
    /* seconds */
    unsigned idle_timeout, header_timeout, body_timeout, write_timeout;
    unsigned drain_delay, drain_timeout;
    double compute_timeout;
    size_t max_memory;   /* bytes one request may take in matrices, results and answer text */
    double max_work;     /* multiply-adds one request may take */
    size_t total_memory; /* bytes that all requests together may take */
    double max_queue;    /* multiply-adds that may wait to be computed */
    bool health_check;   /* do not serve: ask the server at address and port whether it lives */
};

enum options_result {
    OPTIONS_READY,
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_BAD
};

/* Fills `options`. OPTIONS_BAD comes with the rule and the value that broke it in
 * error[0..size). */
enum options_result options_read(struct server_options *options, int argc, char *const argv[],
                                 char *error, size_t size);

/* Writes the help: flag, variable, default, range and meaning of each option. */
void options_print_help(FILE *out);

#endif
