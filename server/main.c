/*
 * main.c - the course of the daemon: it reads the options, starts, waits for a signal and stops.
 * The exit status is 0 after SIGTERM or SIGINT, 1 if the daemon cannot serve or stopped before a
 * computation had ended, and 2 if an option or ATTENTION_ISA is wrong.
 */
#include "api/api.h"
#include "attention.h"
#include "blas_setup.h"
#include "health_check.h"
#include "http/http.h"
#include "http/log.h"
#include "layers/layers.h"
#include "options.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    /* libmicrohttpd looks at all connections that wait for a job whenever it wakes up, so their
     * number is limited. */
    MAX_JOBS = 256,
    REST_SECONDS = 1,      /* how often the log gets a summary and the free memory is looked at */
    TRIM_FROM = 8 << 20,   /* more free bytes in malloc's arenas than this are given back */
    MAPPED_FROM = 1 << 20, /* a block of this many bytes or more gets pages of its own */
    KEPT_FREE = 2 << 20    /* free bytes that malloc keeps at the end of an arena */
};

/* SIGTERM, SIGINT and SIGHUP have no handlers, because the main thread waits for them. They are
 * blocked before any other thread exists, so that every thread inherits the mask. SIGPIPE is
 * ignored, because a client that leaves while the server writes to it must not end the process. */
static void prepare_signals(sigset_t *signals) {
    sigemptyset(signals);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGHUP);
    sigprocmask(SIG_BLOCK, signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* the log file may have reached its limit of size */
    signal(SIGUSR1, SIG_IGN); /* other daemons reopen their logs or print their state at these */
    signal(SIGUSR2, SIG_IGN);
}

/* Makes malloc give large blocks back to the kernel as soon as they are freed. Without these limits
 * malloc would raise its own limits to the size of the largest block that was ever freed, and each
 * of its arenas could keep 64 MiB. The malloc of musl keeps little, and has none of this. */
static void prepare_malloc(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, MAPPED_FROM);
    mallopt(M_TRIM_THRESHOLD, KEPT_FREE);
#endif
}

/* Lets malloc give its free memory back if nothing is in use, or if there is much. Returns whether
 * it did. */
static bool trim_malloc(bool idle) {
#ifdef __GLIBC__
    if (idle || mallinfo2().fordblks > TRIM_FROM) {
        malloc_trim(0);
        return true;
    }
    return false;
#else
    return idle;
#endif
}

/* Waits for a second signal and ends the process at once by the default action of this signal.
 * Programs like timeout(1) send a signal to the process and another one to its group, so signals
 * within half a second count as the first one. */
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

/* Logs what the operator should know about the folder of layers. */
static void warn_of_layers(const char *text) {
    http_log("warning", "%s", text);
}

/* Waits for the next signal and returns it. Once in a second the log gets a summary of what was
 * refused. malloc then gives its free memory back to the kernel if no request is left, or if there
 * is much free memory, because this may be the most that was ever in use. */
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
        if (trim_malloc(idle)) {
            seen = load.begun;
        }
    }
}

/* Sends systemd a message about a service with Type=notify, as sd_notify(3) does. It does nothing
 * if systemd has not asked for that. */
static void tell_systemd(const char *message) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = path != NULL ? strlen(path) : 0;
    if (length == 0 || length >= sizeof address.sun_path) {
        return;
    }
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') { /* an abstract name, which is not in the file system */
        address.sun_path[0] = '\0';
    }
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        const struct timeval patience = {.tv_sec = 1};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        sendto(fd, message, strlen(message), MSG_NOSIGNAL, (const struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
        close(fd);
    }
}

/* Serves until a signal asks to stop. Returns the exit status. */
static int listen_and_wait(const struct server_options *options, struct api_state *state,
                           const sigset_t *signals) {
    const struct http_options *http = &options->http;
    static sigset_t stop; /* static, because await_second() may outlive this function */
    char error[512], url[128];
    pthread_t second;
    int signal_number;
    stop = *signals;
    const struct http_app app = api_app(state);
    struct http_server *server = http_start(http, &app, error, sizeof error);
    if (server == NULL) {
        fprintf(stderr, "attentiond: %s\n", error);
        return 1;
    }
    bool ipv6 = strchr(http->address, ':') != NULL;
    snprintf(url, sizeof url, "http%s://%s%s%s:%u", http->tls_certificate != NULL ? "s" : "",
             ipv6 ? "[" : "", http->address, ipv6 ? "]" : "", http_port(server));
    /* Scripts read this line, so it does not go to the log. */
    printf("attentiond %s listening on %s\n", ATTN_VERSION, url);
    fflush(stdout);
    char memory[48] = "no limit of memory";
    if (options->container.memory > 0) {
        snprintf(memory, sizeof memory, "at most %.0f MiB", options->container.memory / (1 << 20));
    }
    http_log("info", "started at %s: version %s, %u worker%s, %u I/O thread%s; %.3g core%s, %s",
             url, ATTN_VERSION, options->jobs.threads, options->jobs.threads == 1 ? "" : "s",
             http->threads, http->threads == 1 ? "" : "s", options->container.cores,
             options->container.cores > 1 ? "s" : "", memory);
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
        _exit(1); /* exit handlers would free what the computation still uses */
    }
    http_log("info", "stopped");
    return 0;
}

_Static_assert((int)OPTIONS_ORIGINS <= (int)API_ANCESTORS, "a list of origins fits the policy");

static int serve(const struct server_options *options) {
    struct api_state state = {
        .budget = {.max_request = options->max_memory, .max_total = options->total_memory},
        .max_work = options->max_work,
        .timeout = options->compute_timeout,
        .threads = options->jobs.threads,
        .cores = options->container.cores,
        .memory_limit = options->container.memory,
        .frame_ancestors = options->frame_ancestors,
    };
    struct jobs_options jobs = options->jobs;
    struct layers_options layers = options->layers;
    sigset_t signals;
    prepare_signals(&signals);
    prepare_malloc();
    attn_blas_set_threads(1); /* tasks run side by side on the workers */
    jobs.max_jobs = MAX_JOBS;
    state.jobs = jobs_start(&jobs);
    if (state.jobs == NULL) {
        fprintf(stderr, "attentiond: %u worker threads cannot be started\n", options->jobs.threads);
        return 1;
    }
    int status = 1;
    if (layers.folder != NULL) {
        char reason[LAYERS_REASON];
        layers.warn = warn_of_layers;
        state.layers = layers_open(&layers, reason);
        if (state.layers == NULL) {
            fprintf(stderr, "attentiond: the folder of --layers cannot be used: %s\n", reason);
        }
    }
    if (layers.folder == NULL || state.layers != NULL) {
        status = listen_and_wait(options, &state, &signals);
    }
    layers_close(state.layers);
    jobs_stop(state.jobs);
    return status;
}

int main(int argc, char *argv[]) {
    struct server_options options;
    char error[512];
    prctl(PR_SET_NAME, "attentiond"); /* in the bundle this would be the name of the loader */
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
        return health_check(options.http.address, options.http.port,
                            options.http.tls_certificate != NULL);
    }
    blas_report();
    return serve(&options);
}
