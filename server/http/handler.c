/*
 * handler.c takes a request from its head to its end. It filters the head, lets the app begin, has
 * the body read, waits while the answer is made elsewhere, and reports the end of the request. It
 * does not know which paths exist or what bodies mean.
 *
 * Two rules of libmicrohttpd shape this file (0.9.75, Debian 12; 1.0.1, Debian 13). A response that
 * is queued in the first step of a request ends the connection, and no response can be queued
 * between two pieces of a body. So a refusal that should keep the connection waits for the last
 * step, and a body that grows without end can only be cut off.
 */
#include "http/asset.h"
#include "http/internal.h"
#include "http/log.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    LAST_TURNS = 8 /* enough for a plain body; libmicrohttpd holds at most 32 KiB of it */
};

/* ------------------------------------------------------------------------------------ the head */

struct header_list {
    struct framing_header headers[FRAMING_MAX_HEADERS + 1];
    size_t count;
};

static enum MHD_Result collect_header(void *list_, enum MHD_ValueKind kind, const char *name,
                                      size_t name_size, const char *value, size_t value_size) {
    struct header_list *list = list_;
    (void)kind;
    list->headers[list->count++] = (struct framing_header){
        .name = name != NULL ? name : "",
        .name_size = name_size,
        .value = value != NULL ? value : "",
        .value_size = value_size,
    };
    return list->count <= FRAMING_MAX_HEADERS ? MHD_YES : MHD_NO;
}

/* The raw target is judged before the headers are read. handler_on_target leaves the verdict in the
 * closure of the handler as a pointer to one of these marks. Nothing is allocated for it, because a
 * request that is malformed further on reaches neither the handler nor handler_on_completed. */
static char uri_marks[FRAMING_URI_COUNT];

static bool is_uri_mark(const void *closure) {
    return (uintptr_t)closure >= (uintptr_t)uri_marks &&
           (uintptr_t)closure < (uintptr_t)(uri_marks + FRAMING_URI_COUNT);
}

static struct http_connection *connection_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

void *handler_on_target(void *unused, const char *raw, struct MHD_Connection *connection) {
    struct http_connection *own = connection_of(connection);
    (void)unused;
    if (own != NULL) {
        own->target = raw;
        own->target_size = strlen(raw);
        handler_await_head(own); /* the latest stands first */
        own->targeted = true;
    }
    return &uri_marks[framing_check_uri(raw)];
}

/* libmicrohttpd before 1.0 cuts a head into parts in the buffer into which it was read, and passes
 * over some faults without a word. Later versions refuse these faults themselves (see start_daemon)
 * and promise no such layout. */
static void show_layout(struct framing_head *head, const struct http_connection *own) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(own->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (info != NULL && MHD_get_version()[0] == '0') {
        head->target = own->target;
        head->target_size = own->target_size;
        head->size = info->header_size;
    }
}

/* Decides about the body of a request whose head is sound, and asks the app. Returns true if the
 * response should be sent now, which ends the connection. */
static bool begin_exchange(struct http_call *call, const struct framing_result *framing) {
    const struct http_server *server = call->server;
    uint64_t length = framing->content_length;
    if (length > server->options.max_body) {
        http_call_refuse_size(call, "%llu bytes", (unsigned long long)length);
        /* A body that is a little too large is read, which keeps the connection. A client that
         * expects 100 Continue has not sent its body. */
        call->response.close = framing->expects_continue || length / 2 > server->options.max_body;
        return call->response.close;
    }
    call->request.length = framing->coding == CODING_NONE ? length : 0;
    call->exchange = server->app->begin(server->app->context, &call->request, &call->response);
    call->answered = call->exchange == NULL;
    call->body.wanted = !call->answered;
    if (framing->coding != CODING_NONE && call->body.wanted) {
        call->body.reader = coding_reader_create(framing->coding);
        if (call->body.reader == NULL) {
            http_call_refuse(call, 503, "the server has no memory left for this request");
            call->response.refused = "without memory";
        }
    }
    return call->answered && framing->expects_continue;
}

static enum MHD_Result collect_parameter(void *request_, enum MHD_ValueKind kind, const char *name,
                                         const char *value) {
    struct http_request *request = request_;
    (void)kind;
    if (request->parameter_count < HTTP_PARAMETERS) {
        request->parameters[request->parameter_count] = (struct http_parameter){
            .name = name != NULL ? name : "", .value = value != NULL ? value : ""};
    }
    request->parameter_count++;
    return MHD_YES;
}

/* The first step of a request. */
static enum MHD_Result take_head(struct http_connection *own, const char *url, const char *method,
                                 const char *version, void **closure) {
    const bool compression = own->server->options.compression;
    struct header_list list;
    list.count = 0;
    MHD_get_connection_values_n(own->mhd, MHD_HEADER_KIND, collect_header, &list);
    struct framing_head head = {
        .method = method,
        .version = version,
        .uri =
            *closure == NULL ? FRAMING_URI_BAD : (enum framing_uri)((char *)*closure - uri_marks),
        .headers = list.headers,
        .count = list.count,
        .codings = compression,
    };
    struct framing_result framing;
    show_layout(&head, own);
    framing_check(&head, &framing);
    struct http_call *call = http_call_create(own, url, method, &framing);
    *closure = call;
    if (call == NULL) {
        return MHD_NO;
    }
    /* libmicrohttpd keeps the texts until the end of the request. */
    MHD_get_connection_values(own->mhd, MHD_GET_ARGUMENT_KIND, collect_parameter, &call->request);
    atomic_store_explicit(&own->watched.busy, true, memory_order_relaxed);
    body_set_deadline(call);
    if (compression) {
        call->coding.wish =
            coding_choose(list.headers, list.count, CODINGS_MADE, &call->coding.must);
    }
    bool now;
    if (framing.status != 0) {
        http_call_refuse(call, framing.status, "%s", framing.detail);
        call->response.close = framing.close;
        call->response.codings = framing.status == 415 && compression ? CODING_NAMES : NULL;
        now = framing.close;
    } else if (framing.is_preflight && call->origin[0] != '\0') {
        call->preflight = call->answered = true; /* no key is needed: a browser sends none */
        call->response.status = 204;
        now = false;
    } else {
        now = begin_exchange(call, &framing);
    }
    if (call->response.asset != NULL) {
        call->coding.used = asset_choose(&call->response, list.headers, list.count);
        call->coding.wish = CODING_NONE;
    }
    call->response.close |= now; /* libmicrohttpd closes it in any case */
    return now ? respond_send(call) : MHD_YES;
}

/* ------------------------------------------------------------------------------------- the end */

/* The client of a pending request has left. */
static void on_leave(struct watched *watched) {
    struct http_call *call = ((struct http_connection *)watched)->call;
    /* The server itself cancels requests from HTTP_CLOSED on. */
    call->client_left = atomic_load(&call->server->stage) < HTTP_CLOSED;
    call->server->app->cancel(call->exchange);
}

static void wait_for_answer(struct http_call *call) {
    http_call_suspend(call);
    watch_wait(call->server->watch, &call->connection->watched, on_leave);
    call->server->app->start(call->exchange, (struct http_pending *)call);
}

/* The last step of a request. There are two if the answer comes later. */
static enum MHD_Result take_end(struct http_call *call) {
    body_end(call);
    if (!call->answered) {
        call->answered = call->server->app->end(call->exchange, &call->request, &call->response);
    }
    if (!call->answered) {
        wait_for_answer(call);
        return MHD_YES;
    }
    return respond_send(call);
}

/* The client's address as text, without its port. */
static void name_client(struct MHD_Connection *connection, char text[static INET6_ADDRSTRLEN]) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info != NULL ? info->client_addr : NULL;
    snprintf(text, INET6_ADDRSTRLEN, "-");
    if (address != NULL && address->sa_family == AF_INET) {
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)address)->sin_addr, text,
                  INET6_ADDRSTRLEN);
    } else if (address != NULL && address->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, text,
                  INET6_ADDRSTRLEN);
    }
}

/* Tells the app and the log how the request has ended. */
static void tell_completed(const struct http_call *call, struct MHD_Connection *connection) {
    const struct http_app *app = call->server->app;
    const struct http_record record = {
        .status = call->status,
        .received = call->body.received,
        .sent = call->sent,
        .seconds = clock_ms_since(call->begun_ns) * 1e-3,
        .timing = call->response.timed ? call->response.timing : NULL,
    };
    if (app->completed != NULL) {
        app->completed(app->context, &call->request, &record);
    }
    if (call->response.refused != NULL && call->status != 0) {
        http_log_refused(call->response.refused);
    }
    if (http_log_wants_requests()) {
        char client[INET6_ADDRSTRLEN];
        name_client(connection, client);
        http_log_request(&call->request, &record, client);
    }
}

void handler_on_completed(void *unused, struct MHD_Connection *connection, void **closure,
                          enum MHD_RequestTerminationCode code) {
    (void)unused;
    (void)code;
    if (*closure != NULL && !is_uri_mark(*closure)) {
        struct http_call *call = *closure;
        const struct http_server *server = call->server;
        if (call->connection->untimed) {
            call->connection->untimed = false;
            MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT,
                                      server->options.idle_timeout);
        }
        watch_sent(&call->connection->watched);
        atomic_store_explicit(&call->connection->watched.busy, false, memory_order_relaxed);
        watch_for(&call->connection->watched,
                  INT64_C(1000) * (server->options.idle_timeout + server->options.header_timeout));
        tell_completed(call, connection);
        handler_await_head(call->connection);
        http_call_free(call);
    }
    *closure = NULL;
}

/* ------------------------------------------------------------ what libmicrohttpd itself refuses */

/* libmicrohttpd 0.9.75 sends two heads if it refuses a head that has come as a whole, as for its
 * Content-Length or its cookies, and a body behind the head of HEAD if the target does not fit into
 * its buffer. It does not say which connection it refuses. So the server looks among those that
 * wait for a head. Whichever it finds has a head that is refused in any case, and gets an answer of
 * the server, behind which nothing can be sent. If it finds none, libmicrohttpd answers alone. */
static _Thread_local struct http_connection *heads;

enum {
    MOST_LOOKED = 256,      /* connections that are looked at */
    LONG_TARGET = 16 * 1024 /* bytes without the end of a request line, which are refused anyway */
};

void handler_forget_head(struct http_connection *own) {
    if (!own->waits || !pthread_equal(own->thread, pthread_self())) {
        return; /* another thread closes what is left when the server stops */
    }
    if (own->previous_head != NULL) {
        own->previous_head->next_head = own->next_head;
    } else {
        heads = own->next_head;
    }
    if (own->next_head != NULL) {
        own->next_head->previous_head = own->previous_head;
    }
    own->waits = false;
}

void handler_await_head(struct http_connection *own) {
    handler_forget_head(own);
    own->thread = pthread_self();
    own->previous_head = NULL;
    own->next_head = heads;
    if (heads != NULL) {
        heads->previous_head = own;
    }
    heads = own;
    own->waits = true;
    own->targeted = false;
}

/* Returns whether libmicrohttpd has read more than a target may have, without finding its end. Only
 * the first request of a connection is known to be all that was read. */
static bool has_long_target(const struct http_connection *own) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    int unread = 0;
    return !own->targeted && !own->served && own->server->tls == NULL &&
           getsockopt(own->watched.fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           ioctl(own->watched.fd, FIONREAD, &unread) == 0 &&
           info.tcpi_bytes_received >= (uint64_t)unread + LONG_TARGET;
}

/* Returns whether the whole head has come. The handler has not been called for it. */
static bool has_whole_head(const struct http_connection *own) {
    return own->targeted &&
           MHD_get_connection_info(own->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE) != NULL;
}

/* Returns whether the method is HEAD, the only one that ends with a D. It ends with a NUL, behind
 * which only spaces may stand before the target. */
static bool is_head(const struct http_connection *own) {
    const char *at = own->target;
    do {
        at--;
    } while (*at == ' ');
    return at[-1] == 'D';
}

/* Answers a request that libmicrohttpd refuses with this status. If the filter refuses it, too, the
 * filter says why. */
static void answer_refused(struct http_connection *own, int status) {
    struct header_list list = {.count = 0};
    struct framing_result framing;
    const bool known = own->targeted;
    if (known) {
        MHD_get_connection_values_n(own->mhd, MHD_HEADER_KIND, collect_header, &list);
    }
    const struct framing_head head = {
        .method = known && is_head(own) ? "HEAD" : "GET",
        .version = "HTTP/1.1",
        .uri = known ? FRAMING_URI_SOUND : FRAMING_URI_LONG,
        .headers = list.headers,
        .count = list.count,
        .codings = own->server->options.compression,
    };
    framing_check(&head, &framing);
    struct http_call *call =
        http_call_create(own, known ? own->target : "/", head.method, &framing);
    if (call == NULL) {
        return;
    }
    if (framing.status != 0) {
        http_call_refuse(call, framing.status, "%s", framing.detail);
    } else if (framing.content_length > own->server->options.max_body) {
        http_call_refuse_size(call, "%llu bytes or more",
                              (unsigned long long)framing.content_length);
    } else {
        http_call_refuse(call, status,
                         status == 431 ? "the head of a request has at most about 30 KB"
                                       : "the head of the request is not sound HTTP");
    }
    respond_alone(call, known);
    own->ends = true;
    tell_completed(call, own->mhd);
    http_call_free(call);
}

void handler_on_refusal(int status) {
    struct http_connection *own = MHD_get_version()[0] == '0' ? heads : NULL;
    for (int i = 0; own != NULL && i < MOST_LOOKED; i++, own = own->next_head) {
        if (has_whole_head(own) || has_long_target(own)) {
            handler_forget_head(own);
            answer_refused(own, status);
            return;
        }
    }
}

/* ------------------------------------------------------------------------------- all the steps */

/* Returns whether the client has ended its side and all its bytes were read. */
static bool has_ended(const struct http_connection *own) {
    char byte;
    return recv(own->watched.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* A step with a chunk of the body. libmicrohttpd reads from a connection that is resumed before it
 * hands over the rest of the chunk (0.9.75). If it reads the end then, it drops a request that is
 * whole. So a client that has ended its side gets its next turns at once, but not so many that a
 * compressed body could keep the other connections waiting. */
static enum MHD_Result take_chunk(struct http_call *call, const char *bytes, size_t *size) {
    size_t left = 0;
    bool goes_on = body_take(call, bytes, *size, &left);
    for (int turn = 0; turn < LAST_TURNS && left > 0 && goes_on && has_ended(call->connection);
         turn++) {
        goes_on = body_take(call, bytes + *size - left, left, &left);
    }
    *size = left;
    if (left > 0 && goes_on) { /* the other connections have their turn, then this one goes on */
        MHD_suspend_connection(call->connection->mhd);
        MHD_resume_connection(call->connection->mhd);
    }
    return goes_on ? MHD_YES : MHD_NO;
}

/* A thread that enters after end_work has set HTTP_ENDED sees the stage and does nothing. So the
 * stop can wait until `working` is 0. */
enum MHD_Result handler_on_step(void *server_, struct MHD_Connection *connection, const char *url,
                                const char *method, const char *version, const char *bytes,
                                size_t *size, void **closure) {
    struct http_server *server = server_;
    enum MHD_Result result = MHD_NO;
    atomic_fetch_add(&server->working, 1);
    const enum http_stage stage = atomic_load(&server->stage);
    if (*closure == NULL || is_uri_mark(*closure)) {
        struct http_connection *own = stage < HTTP_CLOSED ? connection_of(connection) : NULL;
        if (own != NULL) {
            handler_forget_head(own);
            own->served = true;
        }
        result = own != NULL ? take_head(own, url, method, version, closure) : MHD_NO;
    } else if (stage != HTTP_ENDED) {
        result = *size > 0 ? take_chunk(*closure, bytes, size) : take_end(*closure);
    }
    atomic_fetch_sub(&server->working, 1);
    return result;
}
