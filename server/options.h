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

#include "http/http.h"
#include "jobs/jobs.h"
#include "layers/layers.h"
#include "process.h"

enum {
    OPTIONS_ORIGINS = 4096 /* bytes of a list of origins, at most */
};

struct server_options {
    struct http_options http;
    struct jobs_options jobs;
    struct layers_options layers; /* without a folder there are no stored layers */
    const char *frame_ancestors;  /* a list with commas; NULL = none */
    double compute_timeout;       /* seconds */
    size_t max_memory;   /* bytes that a request may hold in matrices, results and answer */
    size_t total_memory; /* bytes that all requests together may hold */
    double max_work;     /* multiply-adds that a request may take */
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
