/*
 * options.h - the configuration of the daemon. The command line takes precedence over the
 * environment, and the environment over the defaults. These files know nothing of what an option
 * does.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "process.h"

enum {
    OPTIONS_ORIGINS = 4096 /* bytes of a list of origins, at most */
};

struct server_options {
    const char *address;                          /* a numeric IPv4 or IPv6 address */
    unsigned port;                                /* 0 = any free port */
    const char *api_key_file, *log_file, *layers; /* NULL = none */
    const char *cors_origins, *frame_ancestors;   /* lists with commas; NULL = none */
    const char *tls_certificate, *tls_key;        /* both or neither are NULL */
    unsigned log_json, log_requests;              /* 0 or 1 */
    unsigned io_threads;
    unsigned workers;
    size_t max_body;      /* bytes */
    unsigned compression; /* 0 or 1 */
    unsigned max_connections;
    /* These are seconds. */
    unsigned idle_timeout, header_timeout, body_timeout, write_timeout;
    unsigned drain_delay, drain_timeout;
    double compute_timeout;
    size_t max_memory;    /* bytes that a request may hold in matrices, results and answer */
    double max_work;      /* multiply-adds that a request may take */
    size_t total_memory;  /* bytes that all requests together may hold */
    size_t layers_memory; /* bytes of the packed weights of layers */
    double max_queue;     /* multiply-adds of all requests that wait or are computed */
    struct process_limits container; /* what the process may use; no option sets it */
    bool health_check; /* ask the server at address and port whether it is alive, serve nothing */
};

enum options_result {
    OPTIONS_READY,
    OPTIONS_HELP,
    OPTIONS_VERSION,
    OPTIONS_BAD
};

/* Fills `options`, whose texts point into argv and the environment. If it returns OPTIONS_BAD, the
 * message in error[0..size) states the rule and the value that broke it. */
enum options_result options_read(struct server_options *options, int argc, char *const argv[],
                                 char *error, size_t size);

/* Fits the default numbers of threads and the default budgets to `container`. */
void options_fit(struct server_options *options);

/* Prints the help, with the flag, variable, default, range and meaning of each option. */
void options_print_help(FILE *out);

#endif
