/*
 * main.c - attentiond: options, start, wait for a signal, stop. Nothing else.
 * Exit status: 0 after SIGTERM or SIGINT, 1 if it cannot serve or had to cut a computation off at
 * its end, 2 for a bad option or ATTENTION_ISA.
 */
#include "api/api.h"
#include "attention.h"
#include "blas_setup.h"
#include "health_check.h"
#include "http/http.h"
#include "http/log.h"
#include "options.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_JOBS = 256, /* each wake-up of libmicrohttpd looks at all connections that wait */
    REST_SECONDS = 1,
    TRIM_FROM = 8 << 20,   /* free bytes that malloc keeps, from which on they are given back */
    MAPPED_FROM = 1 << 20, /* bytes of a block that has pages of its own */
    KEPT_FREE = 2 << 20    /* bytes that an arena of malloc keeps at its end */
};

/* SIGTERM, SIGINT and SIGHUP are waited for, not handled: blocked here, before any thread exists,
 * so that every thread inherits it. A client that leaves while it is written to must not end the
 * process. */
static void prepare_signals(sigset_t *signals) {
    sigemptyset(signals);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGHUP);
    sigprocmask(SIG_BLOCK, signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a log file that may not grow */
    signal(SIGUSR1, SIG_IGN); /* other daemons open their logs again or tell their state */
    signal(SIGUSR2, SIG_IGN);
}

/* Large blocks go back to the kernel as soon as they are freed. Without these limits malloc raises
 * its own with the largest block that was ever freed, and each of its arenas may keep 64 MiB. */
static void prepare_malloc(void) {
    mallopt(M_MMAP_THRESHOLD, MAPPED_FROM);
    mallopt(M_TRIM_THRESHOLD, KEPT_FREE);
}

/* A second signal ends the process at once, by its default action. Programs like timeout(1) send
 * one to the process and one to its group: what comes within half a second is the same. */
static void *await_second(void *stop_) {
    const sigset_t stop = *(sigset_t *)stop_;
    int signal_number;
    nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    while (sigtimedwait(&stop, NULL, &(struct timespec){0}) > 0) {
    }
    sigwait(&stop, &signal_number);
    signal(signal_number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &stop, NULL);
    http_log("warning", "stopped by a second signal: open requests get no answer");
    raise(signal_number);
    return NULL;
}

/* Waits for the next signal and returns it. Once in a second the log gets what was refused, and
 * malloc gives the memory that it kept of requests back to the kernel: when no request is left, or
 * when it is much, because it may be the most that was ever in use. */
static int await_signal(const sigset_t *signals, const struct http_server *server) {
    const struct timespec rest = {.tv_sec = REST_SECONDS};
    unsigned seen = 0;
    for (;;) {
        const int signal_number = sigtimedwait(signals, NULL, &rest);
        if (signal_number > 0 || (errno != EAGAIN && errno != EINTR)) {
            return signal_number;
        }
        http_log_summary(false);
        const struct http_load load = http_load(server);
        const bool idle = load.requests == 0 && load.begun != seen;
        if (idle || mallinfo2().fordblks > TRIM_FROM) {
            malloc_trim(0);
            seen = load.begun;
        }
    }
}

/* Tells systemd the state of a service with Type=notify, as sd_notify(3) does. It does nothing if
 * systemd has not asked for that. */
static void tell_systemd(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = path != NULL ? strlen(path) : 0;
    if (length == 0 || length >= sizeof address.sun_path) {
        return;
    }
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') { /* a name that is no file */
        address.sun_path[0] = '\0';
    }
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        const struct timeval patience = {.tv_sec = 1};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
        close(fd);
    }
}

/* Until a signal says to stop. */
static int listen_and_wait(const struct server_options *options, struct api_service *service,
                           const sigset_t *signals) {
    const struct http_options http = {
        .log = {.json = options->log_json == 1,
                .requests = options->log_requests == 1,
                .file = options->log_file},
        .address = options->address,
        .port = options->port,
        .threads = options->io_threads,
        .max_body = options->max_body,
        .compression = options->compression == 1,
        .max_connections = options->max_connections,
        .idle_timeout = options->idle_timeout,
        .header_timeout = options->header_timeout,
        .body_timeout = options->body_timeout,
        .write_timeout = options->write_timeout,
        .api_key_file = options->api_key_file,
        .cors_origins = options->cors_origins,
        .tls_certificate = options->tls_certificate,
        .tls_key = options->tls_key,
        .drain_delay = options->drain_delay,
        .drain_timeout = options->drain_timeout,
    };
    static sigset_t stop; /* for a thread that may outlive this function */
    char error[512], url[128];
    pthread_t second;
    int signal_number;
    stop = *signals;
    const struct http_app app = api_app(service);
    struct http_server *server = http_start(&http, &app, error, sizeof error);
    if (server == NULL) {
        fprintf(stderr, "attentiond: %s\n", error);
        return 1;
    }
    bool ipv6 = strchr(options->address, ':') != NULL;
    snprintf(url, sizeof url, "http%s://%s%s%s:%u", options->tls_certificate != NULL ? "s" : "",
             ipv6 ? "[" : "", options->address, ipv6 ? "]" : "", http_port(server));
    printf("attentiond %s listening on %s\n", ATTN_VERSION, url); /* for scripts: not a log line */
    fflush(stdout);
    http_log("info", "started at %s: version %s, %u worker%s, %u I/O thread%s", url, ATTN_VERSION,
             options->workers, options->workers == 1 ? "" : "s", options->io_threads,
             options->io_threads == 1 ? "" : "s");
    tell_systemd("READY=1");
    while ((signal_number = await_signal(signals, server)) == SIGHUP) {
        http_reload(server);
    }
    http_log("info", "stopping after SIG%s", signal_number == SIGINT ? "INT" : "TERM");
    tell_systemd("STOPPING=1");
    sigdelset(&stop, SIGHUP);
    if (pthread_create(&second, NULL, await_second, &stop) == 0) {
        pthread_detach(second);
    }
    const bool stopped = http_stop(server);
    http_log_summary(true);
    if (!stopped) {
        http_log("error", "stopped: a request that is still being computed gets no answer");
        fflush(NULL);
        _exit(1); /* no exit handlers: the computation is still using what they take away */
    }
    http_log("info", "stopped");
    return 0;
}

static int serve(const struct server_options *options) {
    struct api_service service = {
        .budget = {.max_request = options->max_memory, .max_total = options->total_memory},
        .max_work = options->max_work,
        .timeout = options->compute_timeout,
        .threads = options->workers,
    };
    const struct jobs_options jobs = {
        .threads = options->workers,
        .max_jobs = MAX_JOBS,
        .max_cost = options->max_queue,
    };
    sigset_t signals;
    prepare_signals(&signals);
    prepare_malloc();
    attn_blas_set_threads(1); /* tasks run side by side on the workers */
    service.jobs = jobs_start(&jobs);
    if (service.jobs == NULL) {
        fprintf(stderr, "attentiond: %u worker threads cannot be started\n", options->workers);
        return 1;
    }
    const int status = listen_and_wait(options, &service, &signals);
    jobs_stop(service.jobs);
    return status;
}

int main(int argc, char *argv[]) {
    struct server_options options;
    char error[256];
    switch (options_read(&options, argc, argv, error, sizeof error)) {
    case OPTIONS_HELP:
        options_print_help(stdout);
        return 0;
    case OPTIONS_VERSION:
        printf("attentiond %s\n", ATTN_VERSION);
        return 0;
    case OPTIONS_BAD:
        fprintf(stderr, "attentiond: %s\n", error);
        return 2;
    case OPTIONS_READY:
        break;
    }
    if (options.health_check) {
        return health_check(options.address, options.port, options.tls_certificate != NULL);
    }
    blas_prepare(argv);
    return serve(&options);
}
