/*
 * server.c starts the server, follows its connections from their first byte to their last, reloads
 * files, and stops without leaving a request unanswered. handler.c has the requests.
 */
#define _GNU_SOURCE /* memmem */
#include "http/internal.h"
#include "http/keys.h"
#include "http/listen.h"
#include "http/log.h"
#include "http/tls.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum {
    CONNECTION_MEMORY = 32 * 1024, /* bytes, which libmicrohttpd clears after each request */
    DRAIN_TICK_MS = 10,
    DRAIN_QUIET = 5, /* ticks without any request, after which idle connections are closed */
    END_TICKS = 300  /* three seconds for handlers and computations that are still at work */
};

static struct tls_pair *begin_tls(struct http_server *server, struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info != NULL ? tls_begin(server->tls, info->tls_session) : NULL;
}

static void open_connection(struct http_server *server, struct MHD_Connection *connection,
                            void **context) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct http_connection *own = info != NULL ? calloc(1, sizeof *own) : NULL;
    const int fd = info != NULL ? info->connect_fd : -1; /* the next such call overwrites `info` */
    atomic_fetch_add_explicit(&server->connections, 1, memory_order_relaxed);
    if (own != NULL) { /* otherwise the first request is cut off */
        own->server = server;
        own->mhd = connection;
        own->pair = server->tls != NULL ? begin_tls(server, connection) : NULL;
        /* The time includes the handshake. */
        watch_for(&own->watched, INT64_C(1000) * server->options.header_timeout);
        watch_add(server->watch, &own->watched, fd);
        handler_await_head(own);
    }
    *context = own;
}

static void forget_connection(struct http_server *server, struct http_connection *own) {
    if (own != NULL) {
        free(own->idle);
    }
    free(own);
    atomic_fetch_sub_explicit(&server->connections, 1, memory_order_relaxed);
}

static void on_ended(struct watched *watched) {
    struct http_connection *own = (struct http_connection *)watched;
    forget_connection(own->server, own);
}

/* Returns whether the client of a port for TLS has sent plain HTTP. GnuTLS has read the first five
 * bytes and then given up. The rest of the first line is still in the socket. */
static bool is_plain_http(int fd) {
    static const char version[] = " HTTP/1.";
    char line[4096];
    const ssize_t size = recv(fd, line, sizeof line, MSG_PEEK | MSG_DONTWAIT);
    const char *end = size > 0 ? memchr(line, '\n', (size_t)size) : NULL;
    return end != NULL && memmem(line, (size_t)(end - line), version, sizeof version - 1) != NULL;
}

static void on_connection(void *server_, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code) {
    struct http_server *server = server_;
    struct http_connection *own = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        open_connection(server, connection, context);
        return;
    }
    if (own != NULL) {
        handler_forget_head(own);
        if (own->pair != NULL && own->target == NULL && is_plain_http(own->watched.fd)) {
            http_log_refused("plain HTTP on this port for HTTPS");
        }
        tls_end(own->pair);
        if ((own->ends || watch_has_untaken(&own->watched)) &&
            watch_linger(server->watch, &own->watched, on_ended)) {
            return;
        }
        watch_remove(server->watch, &own->watched);
    }
    forget_connection(server, own);
}

/* Closes a connection over the limit at once. The limit of libmicrohttpd itself would leave it
 * hanging instead. */
static enum MHD_Result on_accept(void *server_, const struct sockaddr *address, socklen_t size) {
    struct http_server *server = server_;
    (void)address;
    (void)size;
    unsigned open = atomic_load_explicit(&server->connections, memory_order_relaxed);
    if (open < server->options.max_connections) {
        return MHD_YES;
    }
    http_log_refused("over --max-connections");
    return MHD_NO;
}

static void on_panic(void *unused, const char *file, unsigned line, const char *reason) {
    (void)unused;
    fprintf(stderr, "attentiond: libmicrohttpd gave up in %s:%u: %s\n", file, line,
            reason != NULL ? reason : "no reason given");
    abort();
}

static int ticks_of(unsigned seconds) {
    return (int)seconds * (1000 / DRAIN_TICK_MS);
}

static void wait_tick(void) {
    nanosleep(&(struct timespec){.tv_nsec = DRAIN_TICK_MS * 1000000L}, NULL);
}

/* Logs a message of libmicrohttpd. If no descriptor is left for the first connection of one of its
 * threads, the thread tries again at once ("busy waiting" in its message). Such a thread serves
 * nobody, so it rests here for a tick. */
static void on_message(void *unused, const char *format, va_list arguments) {
    const bool busy_waiting = strstr(format, "at FIRST connection") != NULL;
    const bool handshake = strstr(format, "received handshake message out of context") != NULL;
    /* libmicrohttpd has refused a request with a page of its own. */
    const bool refusal = strstr(format, "(HTTP response code is %u ('%s'))") != NULL;
    unsigned status = 0;
    if (refusal) {
        va_list copy;
        va_copy(copy, arguments);
        status = va_arg(copy, unsigned);
        va_end(copy);
    }
    http_log_mhd(unused,
                 handshake ? "a TLS handshake failed"
                 : refusal ? "libmicrohttpd refused a request with status %u"
                           : format,
                 arguments);
    if (refusal) {
        handler_on_refusal((int)status);
    }
    if (busy_waiting) {
        wait_tick();
    }
}

static struct MHD_Daemon *start_daemon(struct http_server *server, bool ipv6, unsigned threads) {
    /* libmicrohttpd with epoll spins from the first byte of a handshake to the last (0.9.75 and
     * 1.0.1), so a client that does not go on would cost a core. With poll it waits. */
    unsigned flags = (server->tls != NULL ? MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_TLS
                                          : MHD_USE_EPOLL_INTERNAL_THREAD) |
                     MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG |
                     (ipv6 ? MHD_USE_IPv6 : 0u);
    /* libmicrohttpd gives each thread an equal part of the limit, but the kernel may spread
     * connections unevenly. */
    unsigned limit = (server->options.max_connections + 1) * threads;
    struct MHD_OptionItem for_tls[] = {
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)tls_priorities},
        {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, tls_no_certificate()},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem more[] = {
        {MHD_OPTION_ARRAY, 0, server->tls != NULL ? for_tls : for_tls + 2},
#if MHD_VERSION >= 0x01000000
        /* Level 1 is the strictest one within the RFCs. It refuses bare LF, folded headers, and
         * spaces in the target, for which there would be a redirect otherwise. A higher level
         * would only refuse empty lines before a request, too. */
        {MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1, NULL},
#endif
        {threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, (intptr_t)threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    return MHD_start_daemon(
        flags, (uint16_t)server->options.port, on_accept, server, handler_on_step, server,
        MHD_OPTION_EXTERNAL_LOGGER, on_message, NULL, MHD_OPTION_LISTEN_SOCKET, server->listening,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_CONNECTION_LIMIT,
        limit, MHD_OPTION_CONNECTION_TIMEOUT, server->options.idle_timeout,
        MHD_OPTION_URI_LOG_CALLBACK, handler_on_target, NULL, MHD_OPTION_NOTIFY_COMPLETED,
        handler_on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, server,
        MHD_OPTION_ARRAY, more, MHD_OPTION_END);
}

static void free_server(struct http_server *server) {
    watch_stop(server->watch);
    keys_free(server->keys);
    tls_free(server->tls);
    free(server);
}

struct http_server *http_start(const struct http_options *options, const struct http_app *app,
                               char *error, size_t size) {
    struct http_server *server = calloc(1, sizeof *server);
    bool ipv6 = false;
    if (server == NULL) {
        snprintf(error, size, "out of memory");
        return NULL;
    }
    if (!http_log_open(&options->log, error, size)) {
        goto failed;
    }
    server->app = app;
    server->options = *options;
    server->options.max_connections = listen_reserve_files(options->max_connections);
    if (server->options.max_connections < options->max_connections) {
        http_log("warning", "the limit on open files admits %u connections instead of %u",
                 server->options.max_connections, options->max_connections);
    }
    request_ids_init(&server->ids);
    MHD_set_panic_func(on_panic, NULL);
    server->watch = watch_start();
    if (server->watch == NULL) {
        snprintf(error, size, "no thread can be started");
        goto failed;
    }
    if (options->api_key_file != NULL) {
        char reason[192];
        server->keys = keys_load(options->api_key_file, reason, sizeof reason);
        if (server->keys == NULL) {
            snprintf(error, size, "the keys in %s cannot be read: %s", options->api_key_file,
                     reason);
            goto failed;
        }
    }
    if (options->tls_certificate != NULL) {
        server->tls = tls_load(options->tls_certificate, options->tls_key, error, size);
        if (server->tls == NULL) {
            goto failed;
        }
    }
    server->listening = listen_open(options->address, &server->options.port, &ipv6, error, size);
    if (server->listening < 0) {
        goto failed;
    }
    server->daemon = start_daemon(server, ipv6, options->threads > 0 ? options->threads : 1);
    if (server->daemon == NULL) {
        snprintf(error, size, "cannot serve on %s:%u: %s", options->address, server->options.port,
                 strerror(errno));
        goto failed;
    }
    return server;

failed:
    /* The socket is not closed: libmicrohttpd may have closed it, and the program ends anyway. */
    free_server(server);
    return NULL;
}

struct http_load http_load(const struct http_server *server) {
    return (struct http_load){.connections = atomic_load(&server->connections),
                              .requests = atomic_load(&server->requests),
                              .begun = atomic_load(&server->begun)};
}

void http_reload(struct http_server *server) {
    char reason[256];
    const bool log = http_log_reopen();
    const bool keys = server->keys != NULL && keys_reload(server->keys, reason, sizeof reason);
    if (server->keys != NULL && !keys) {
        http_log("warning", "the keys stay as they were: %s", reason);
    }
    const bool tls = server->tls != NULL && tls_reload(server->tls, reason, sizeof reason);
    if (server->tls != NULL && !tls) {
        http_log("warning", "the certificate stays as it was: %s", reason);
    }
    const char *const done[] = {log ? "the log" : "", keys ? "the keys" : "",
                                tls ? "the certificate" : ""};
    char list[64] = "";
    for (size_t i = 0; i < sizeof done / sizeof *done; i++) {
        const char *comma = list[0] != '\0' && done[i][0] != '\0' ? ", " : "";
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", comma, done[i]);
    }
    http_log("info", "reloaded: %s", list[0] != '\0' ? list : "nothing");
}

unsigned http_port(const struct http_server *server) {
    return server->options.port;
}

/* Waits until, for `ticks` ticks, no request was begun or in work. Waits for `most` ticks at most
 * and returns how many of these are left. */
static int await_quiet(const struct http_server *server, int ticks, int most) {
    unsigned seen = atomic_load_explicit(&server->begun, memory_order_relaxed);
    for (int quiet = 0; most > 0 && quiet < ticks; most--) {
        const unsigned begun = atomic_load_explicit(&server->begun, memory_order_relaxed);
        quiet = atomic_load(&server->requests) == 0 && begun == seen ? quiet + 1 : 0;
        seen = begun;
        http_log_summary(false);
        wait_tick();
    }
    return most;
}

/* Waits for the requests in work, then lets no further request begin, and cancels those that take
 * longer. Idle connections are closed before that. A client learns from the end of its connection
 * that it should send requests elsewhere; a request that it sent before is still answered. */
static void drain(struct http_server *server) {
    int left = await_quiet(server, DRAIN_QUIET, ticks_of(server->options.drain_timeout));
    watch_close_idle(server->watch);
    left = await_quiet(server, DRAIN_QUIET, left > 0 ? left : 1);
    atomic_store(&server->stage, HTTP_CLOSED);
    await_quiet(server, 1, left > 0 ? left : 1); /* requests may have come in the meantime */
    watch_leave_all(server->watch);
    await_quiet(server, 1, END_TICKS);
}

/* Stops listening without MHD_quiesce_daemon. That function and a thread of libmicrohttpd can both
 * take the socket out of the epoll set of the thread, and then the second of them calls the panic
 * function (0.9.75, seen once in 60,000 stops). So the socket is replaced by a socket to which
 * nobody connects. */
static void stop_listening(struct http_server *server) {
    if (!listen_end(server->listening)) {
        http_log(
            "warning",
            "no file descriptor is left, so new connections are accepted until the daemon ends");
    }
}

/* Lets no request reach the app any more. Returns false if the app is still at work on one after a
 * bounded time. */
static bool end_work(struct http_server *server) {
    atomic_store(&server->stage, HTTP_ENDED);
    for (int i = 0; i < END_TICKS; i++) {
        watch_leave_all(server->watch);
        if (atomic_load(&server->working) == 0 && atomic_load(&server->pending) == 0) {
            return true;
        }
        wait_tick();
    }
    return false;
}

bool http_stop(struct http_server *server) {
    if (server == NULL) {
        return true;
    }
    if (atomic_load(&server->stage) == HTTP_SERVING) {
        atomic_store(&server->stage, HTTP_DRAINING);
        for (int i = 0; i < ticks_of(server->options.drain_delay); i++) {
            http_log_summary(false);
            wait_tick();
        }
        stop_listening(server);
        drain(server);
    }
    if (!end_work(server)) {
        return false; /* MHD_stop_daemon would wait for the threads that are in the app */
    }
    MHD_stop_daemon(server->daemon); /* closes the socket */
    free_server(server);
    return true;
}
