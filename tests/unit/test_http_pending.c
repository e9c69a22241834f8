/*
 * test_http_pending.c - answers that are computed elsewhere, and the deadlines of connections: who
 * leaves is noticed, who is slow is cut off, a stop leaves nobody without an answer.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "http/http.h"
#include "support/client.h"

enum {
    LARGE = 32 << 20, /* bytes of a response that no socket takes at once */
    MADE = 4 << 20,   /* bytes of one that takes more than the I/O thread's own time */
    SHORT = 100000
};

static atomic_uint begun, released, cancelled, streams_freed, made;
static atomic_bool held; /* /held waits for this to become false, or for a cancel */

struct exchange {
    const struct http_request *request;
    struct http_response *response;
    struct http_pending *pending;
    pthread_t thread;
    atomic_bool cancel;
};

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* A body that counts: the bytes 0, 1, 2 ... up to LARGE, or for ever. */
struct counting {
    size_t at, end;
    bool breaks;
};

static bool read_counting(void *body, char *out, size_t room, size_t *size) {
    struct counting *c = body;
    for (*size = 0; *size < room && c->at < c->end; c->at++) {
        out[(*size)++] = (char)(c->at % 251);
    }
    return *size > 0 || !c->breaks;
}

static void free_counting(void *body) {
    free(body);
    atomic_fetch_add(&streams_freed, 1);
}

/* `which` ends the path: "", "-short" or "-breaks". */
static void answer_counting(const char *which, size_t whole, struct http_response *response) {
    struct counting *counting = calloc(1, sizeof *counting);
    counting->breaks = strcmp(which, "-breaks") == 0;
    counting->end = which[0] == '\0' ? whole : SHORT;
    *response = (struct http_response){.status = 200,
                                       .media_type = "text/plain",
                                       .body = counting,
                                       .read = read_counting,
                                       .release = free_counting};
}

static void *app_begin(void *context, const struct http_request *request,
                       struct http_response *response) {
    static const char whole[16 * 1024];
    (void)context;
    if (strcmp(request->path, "/whole") == 0) {
        *response = (struct http_response){.status = 200, .body = whole, .size = sizeof whole};
        return NULL;
    }
    if (strcmp(request->path, "/draining") == 0) {
        response->status = request->draining ? 503 : 200;
        return NULL;
    }
    if (strncmp(request->path, "/stream", 7) == 0) {
        answer_counting(request->path + 7, LARGE, response);
        return NULL;
    }
    atomic_fetch_add(&begun, 1);
    return calloc(1, sizeof(struct exchange));
}

static bool app_body(void *exchange, const void *bytes, size_t size) {
    (void)exchange;
    (void)bytes;
    (void)size;
    return true;
}

static bool app_end(void *exchange_, const struct http_request *request,
                    struct http_response *response) {
    struct exchange *exchange = exchange_;
    exchange->request = request;
    exchange->response = response;
    if (strncmp(request->path, "/made", 5) == 0) {
        answer_counting(request->path + 5, MADE, response);
        return true;
    }
    return false;
}

/* Others make the rest of a long body: each piece on a thread of its own. */
static void *make_piece(void *pending) {
    while (atomic_load(&held)) {
        sleep_ms(1);
    }
    http_make(pending);
    http_resume(pending);
    return NULL;
}

static void app_make(void *exchange, struct http_pending *pending) {
    pthread_t thread;
    (void)exchange;
    atomic_fetch_add(&made, 1);
    cr_assert_eq(pthread_create(&thread, NULL, make_piece, pending), 0);
    pthread_detach(thread);
}

static void *compute(void *exchange_) {
    struct exchange *exchange = exchange_;
    while (strcmp(exchange->request->path, "/held") == 0 && atomic_load(&held) &&
           !atomic_load(&exchange->cancel)) {
        sleep_ms(1);
    }
    exchange->response->status = atomic_load(&exchange->cancel) ? 503 : 200;
    exchange->response->body = "later";
    exchange->response->size = 5;
    http_resume(exchange->pending);
    return NULL;
}

static void app_start(void *exchange_, struct http_pending *pending) {
    struct exchange *exchange = exchange_;
    exchange->pending = pending;
    cr_assert_eq(pthread_create(&exchange->thread, NULL, compute, exchange), 0);
}

static void app_cancel(void *exchange) {
    atomic_fetch_add(&cancelled, 1);
    atomic_store(&((struct exchange *)exchange)->cancel, true);
}

static void app_release(void *exchange_) {
    struct exchange *exchange = exchange_;
    if (exchange->pending != NULL) {
        pthread_join(exchange->thread, NULL);
    }
    free(exchange);
    atomic_fetch_add(&released, 1);
}

static const struct http_app app = {.begin = app_begin,
                                    .body = app_body,
                                    .end = app_end,
                                    .start = app_start,
                                    .cancel = app_cancel,
                                    .make = app_make,
                                    .release = app_release};

/* --------------------------------------------------------------------------------- the fixture */

static struct http_server *server;

static void start_with(struct http_options options) {
    char error[256];
    options.address = "127.0.0.1";
    options.threads = 2;
    options.max_body = 1 << 20;
    options.max_connections = 300;
    options.idle_timeout = options.idle_timeout > 0 ? options.idle_timeout : 60;
    server = http_start(&options, &app, error, sizeof error);
    cr_assert_not_null(server, "%s", error);
}

static const struct http_options patient = {
    .header_timeout = 60, .body_timeout = 60, .write_timeout = 60, .drain_timeout = 30};

static void stop(void) {
    cr_expect(http_stop(server));
    cr_expect_eq(begun, released, "%u exchanges begun, %u released", begun, released);
    server = NULL;
}

TestSuite(http_pending, .timeout = 60);

#define POST(to) "POST " to " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n[]"

static void expect_status(struct client_connection *connection, int status) {
    struct client_response response;
    if (!client_receive(connection, false, &response)) {
        cr_expect_fail("no response");
        return;
    }
    cr_expect_eq(response.status, status, "%d %s", response.status, response.body);
    client_response_free(&response);
}

static void send_text(struct client_connection *connection, const char *text) {
    cr_assert(client_send(connection, text, strlen(text)));
}

static void wait_until(const atomic_uint *value, unsigned wanted) {
    for (int i = 0; i < 5000 && atomic_load(value) != wanted; i++) {
        sleep_ms(1);
    }
    cr_assert_eq(*value, wanted);
}

/* --------------------------------------------------------------------------------------- tests */

Test(http_pending, later_answers_keep_the_connection) {
    start_with(patient);
    struct client_connection connection;
    cr_assert(client_open(&connection, http_port(server)));
    for (int i = 0; i < 200; i++) {
        send_text(&connection, POST("/later"));
        expect_status(&connection, 200);
    }
    send_text(&connection, POST("/later") POST("/later") POST("/later"));
    for (int i = 0; i < 3; i++) {
        expect_status(&connection, 200);
    }
    client_close(&connection);
    stop();
    cr_expect_eq(begun, 203);
    cr_expect_eq(cancelled, 0);
}

Test(http_pending, others_are_served_meanwhile) {
    start_with(patient);
    struct client_connection waiting[20], other;
    atomic_store(&held, true);
    for (size_t i = 0; i < 20; i++) {
        cr_assert(client_open(&waiting[i], http_port(server)));
        send_text(&waiting[i], POST("/held"));
    }
    cr_assert(client_open(&other, http_port(server)));
    for (int i = 0; i < 20; i++) {
        send_text(&other, POST("/later"));
        expect_status(&other, 200);
    }
    atomic_store(&held, false);
    for (size_t i = 0; i < 20; i++) {
        expect_status(&waiting[i], 200);
        client_close(&waiting[i]);
    }
    client_close(&other);
    stop();
}

/* More than the watch asks at a time. */
Test(http_pending, client_that_leaves_is_cancelled) {
    enum {
        CLIENTS = 270
    };
    start_with(patient);
    struct client_connection *clients = calloc(CLIENTS, sizeof *clients);
    atomic_store(&held, true);
    for (size_t i = 0; i < CLIENTS; i++) {
        cr_assert(client_open(&clients[i], http_port(server)));
        send_text(&clients[i], POST("/held"));
    }
    wait_until(&begun, CLIENTS);
    for (size_t i = 0; i < CLIENTS; i += 2) {
        client_close(&clients[i]);
    }
    wait_until(&cancelled, CLIENTS / 2);
    wait_until(&released, CLIENTS / 2);
    atomic_store(&held, false);
    for (size_t i = 1; i < CLIENTS; i += 2) {
        expect_status(&clients[i], 200);
        client_close(&clients[i]);
    }
    free(clients);
    stop();
}

/* Their end may come together with the last bytes that they sent. */
Test(http_pending, clients_that_leave_in_the_midst_are_let_go) {
    enum {
        CLIENTS = 100
    };
    start_with(patient);
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct client_connection connection;
        cr_assert(client_open(&connection, http_port(server)));
        send_text(&connection, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n[");
        client_close(&connection);
    }
    wait_until(&begun, CLIENTS);
    wait_until(&released, CLIENTS);
    stop();
}

/* Each is cut off by its own deadline although it sends, or takes, a byte now and then. */
Test(http_pending, slow_clients_are_cut_off) {
    static const struct {
        struct http_options options;
        const char *begin, *more;
    } cases[] = {
        {{.header_timeout = 1, .body_timeout = 60, .write_timeout = 60},
         "GET /later HTTP/1.1\r\nHost: a\r\n",
         "a: b\r\n"},
        {{.header_timeout = 60, .body_timeout = 1, .write_timeout = 60},
         "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
         "x"},
        {{.header_timeout = 60, .body_timeout = 1, .write_timeout = 60},
         "POST /later HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
         "1\r\nx\r\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        start_with(cases[i].options);
        struct client_connection connection;
        cr_assert(client_open(&connection, http_port(server)));
        send_text(&connection, cases[i].begin);
        int sent = 0;
        while (sent < 200 && client_send(&connection, cases[i].more, strlen(cases[i].more))) {
            sleep_ms(50);
            sent++;
        }
        cr_expect_lt(sent, 200, "case %zu: never cut off", i);
        client_close(&connection);
        cr_expect(http_stop(server));
    }
}

static void expect_counting(struct client_connection *connection, const char *request, size_t end) {
    struct client_response response;
    char value[64] = "";
    send_text(connection, request);
    cr_assert(client_receive(connection, false, &response));
    cr_expect(client_header(&response, "Transfer-Encoding", value, sizeof value));
    cr_expect_str_eq(value, "chunked");
    cr_expect(client_header(&response, "Content-Type", value, sizeof value));
    cr_expect_str_eq(value, "text/plain");
    cr_assert_eq(response.size, end);
    size_t good = 0;
    while (good < end && (unsigned char)response.body[good] == good % 251) {
        good++;
    }
    cr_assert_eq(good, end, "byte %zu", good);
    client_response_free(&response);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

Test(http_pending, bodies_are_made_while_they_are_sent) {
    start_with(patient);
    char taken[256];
    struct client_connection connection;
    struct client_response response;
    cr_assert(client_open(&connection, http_port(server)));
    expect_counting(&connection, GET("/stream"), LARGE);
    expect_counting(&connection, GET("/stream-short"), SHORT); /* the connection is kept */
    send_text(&connection, GET("/stream-breaks"));
    cr_expect_not(client_receive(&connection, false, &response), "it is cut, not ended");
    client_close(&connection);

    cr_assert(client_open(&connection, http_port(server)));
    send_text(&connection, "HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    cr_assert(client_receive(&connection, true, &response));
    cr_expect_eq(response.size, 0);
    client_response_free(&response);
    send_text(&connection, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    cr_assert_eq(recv(connection.fd, taken, sizeof taken, MSG_WAITALL), (ssize_t)sizeof taken);
    client_close(&connection); /* leaves in the midst of it */
    wait_until(&streams_freed, 5);
    cr_expect_eq(made, 0, "there is no exchange that could be asked to make a piece");
    stop();
}

/* The same, of an exchange whose app has others make what takes long. */
Test(http_pending, the_app_makes_the_rest_of_long_bodies) {
    start_with(patient);
    char taken[256];
    struct client_connection connection;
    struct client_response response;
    cr_assert(client_open(&connection, http_port(server)));
    expect_counting(&connection, POST("/made"), MADE);
    cr_expect_gt(made, 0);
    expect_counting(&connection, POST("/made-short"), SHORT);
    send_text(&connection, POST("/made-breaks"));
    cr_expect_not(client_receive(&connection, false, &response), "it is cut, not ended");
    client_close(&connection);

    atomic_store(&made, 0);
    atomic_store(&held, true);
    cr_assert(client_open(&connection, http_port(server)));
    send_text(&connection, POST("/made"));
    cr_assert_eq(recv(connection.fd, taken, sizeof taken, MSG_WAITALL), (ssize_t)sizeof taken);
    wait_until(&made, 1);
    client_close(&connection); /* leaves while a piece is made */
    cr_assert(client_open(&connection, http_port(server)));
    expect_counting(&connection, GET("/stream-short"), SHORT); /* others are served meanwhile */
    atomic_store(&held, false);
    wait_until(&streams_freed, 5);
    client_close(&connection);
    stop();
}

Test(http_pending, slow_readers_of_streams_are_cut_off) {
    start_with((struct http_options){.header_timeout = 60, .body_timeout = 60, .write_timeout = 1});
    struct client_connection connection;
    char taken[256];
    const int small = 4096; /* what its kernel takes gives it time */
    cr_assert(client_open(&connection, http_port(server)));
    setsockopt(connection.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    send_text(&connection, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    cr_assert_eq(recv(connection.fd, taken, sizeof taken, MSG_WAITALL), (ssize_t)sizeof taken);
    wait_until(&streams_freed, 1);
    client_close(&connection);
    stop();
}

/* ------------------------------------------------------------------------- steady and slow ones */

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Two clients that read what the kernel does not take at once: a stream, and short bodies one after
 * the other. */
static void open_readers(struct client_connection readers[static 2]) {
    enum {
        REQUESTS = 1000
    };
    const int small = 65536; /* a reader that was held up can catch up with this */
    for (int i = 0; i < 2; i++) {
        cr_assert(client_open(&readers[i], http_port(server)));
        setsockopt(readers[i].fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    }
    send_text(&readers[0], "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    for (int i = 0; i < REQUESTS; i++) {
        send_text(&readers[1], "GET /whole HTTP/1.1\r\nHost: a\r\n\r\n");
    }
}

/* Both read so many bytes in a millisecond, until the time is over or the server has let both go.
 * Returns how many it has not let go. */
static unsigned read_steadily(struct client_connection readers[static 2], double rate,
                              double milliseconds) {
    static char taken[1 << 16];
    const double start = now_ms();
    size_t done[2] = {0};
    unsigned open = 2;
    double past = 0;
    while (past < milliseconds && open > 0) {
        for (int i = 0; i < 2; i++) {
            const double due = past * rate - (double)done[i];
            const size_t most = due < 0 ? 0 : due < sizeof taken ? (size_t)due : sizeof taken;
            const ssize_t got = recv(readers[i].fd, taken, most, MSG_DONTWAIT);
            done[i] += got > 0 ? (size_t)got : 0;
        }
        sleep_ms(5);
        open = http_load(server).connections;
        past = now_ms() - start;
    }
    return open;
}

/* The kernel takes megabytes at once from the server, and nothing after that for seconds. Neither
 * the time for responses nor the one for idle connections may run meanwhile. */
Test(http_pending, steady_readers_are_not_cut_off) {
    start_with((struct http_options){
        .header_timeout = 60, .body_timeout = 60, .write_timeout = 1, .idle_timeout = 1});
    struct client_connection readers[2];
    open_readers(readers);
    cr_expect_eq(read_steadily(readers, 256, 2500), 2, "%u are left",
                 http_load(server).connections);
    cr_expect_eq(streams_freed, 0);
    client_close(&readers[0]);
    client_close(&readers[1]);
    stop();
}

Test(http_pending, slow_readers_are_cut_off) {
    start_with((struct http_options){.header_timeout = 60, .body_timeout = 60, .write_timeout = 1});
    struct client_connection readers[2];
    open_readers(readers);
    cr_expect_eq(read_steadily(readers, 4, 20000), 0, "%u are left", http_load(server).connections);
    client_close(&readers[0]);
    client_close(&readers[1]);
    stop();
}

/* What a client has not read yet when the server ends the connection is not lost, though it goes on
 * asking. */
Test(http_pending, ended_connections_are_read_to_the_end) {
    start_with(patient);
    struct client_connection connection;
    struct client_response response;
    const int small = 16384;
    cr_assert(client_open(&connection, http_port(server)));
    setsockopt(connection.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    send_text(&connection, "GET /stream-short HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    sleep_ms(2300);
    for (int i = 0; i < 3; i++) { /* one that cannot be sent is no fault */
        client_send(&connection, POST("/later"), strlen(POST("/later")));
        sleep_ms(50);
    }
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_eq(response.size, 100000);
    client_response_free(&response);
    cr_expect(client_at_end(&connection));
    client_close(&connection);
    stop();
}

/* 400 KiB in more time than a short body has. */
Test(http_pending, steady_senders_are_not_cut_off) {
    enum {
        BODY = 400 << 10,
        RATE = 256 /* bytes in a millisecond */
    };
    static const char bytes[BODY];
    start_with((struct http_options){.header_timeout = 60, .body_timeout = 1, .write_timeout = 60});
    struct client_connection connection;
    char head[128];
    cr_assert(client_open(&connection, http_port(server)));
    snprintf(head, sizeof head, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n",
             BODY);
    send_text(&connection, head);
    const double start = now_ms();
    for (size_t sent = 0; sent < BODY;) {
        size_t due = (size_t)((now_ms() - start) * RATE);
        due = due < BODY ? due : BODY;
        if (!client_send(&connection, bytes + sent, due - sent)) {
            cr_expect_fail("cut off after %zu bytes", sent);
            break;
        }
        sent = due;
        sleep_ms(5);
    }
    expect_status(&connection, 200);
    client_close(&connection);
    stop();
}

/* The time for a body is over when its answer is computed. */
Test(http_pending, computations_may_outlast_the_time_for_bodies) {
    start_with((struct http_options){.header_timeout = 1, .body_timeout = 1, .write_timeout = 1});
    struct client_connection connection;
    atomic_store(&held, true);
    cr_assert(client_open(&connection, http_port(server)));
    send_text(&connection, POST("/held"));
    sleep_ms(1400);
    atomic_store(&held, false);
    expect_status(&connection, 200);
    client_close(&connection);
    stop();
}

/* ------------------------------------------------------------------------------------ the stop */

static void *stop_server(void *stopped) {
    *(bool *)stopped = http_stop(server);
    return NULL;
}

/* A client that sends all of a body before it reads gets the refusal, though it came in the midst
 * of the body and ended the connection. */
Test(http_pending, refusals_are_read_after_the_body) {
    enum {
        BODY = 4 << 20
    };
    start_with(patient);
    struct client_connection connection;
    char *body = calloc(BODY, 1), head[128];
    cr_assert_not_null(body);
    cr_assert(client_open(&connection, http_port(server)));
    snprintf(head, sizeof head, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", BODY);
    send_text(&connection, head);
    sleep_ms(50); /* the refusal is under way */
    cr_expect(client_send(&connection, body, BODY));
    expect_status(&connection, 413);
    client_close(&connection);
    free(body);
    stop();
}

/* Requests that stand behind the last one that is answered do not cost a slow reader its end. */
Test(http_pending, stop_with_requests_unread) {
    start_with(patient);
    struct client_connection connection;
    pthread_t stopper;
    bool stopped = false;
    char *taken = malloc(1 << 16), end[5] = "";
    size_t total = 0;
    cr_assert_not_null(taken);
    cr_assert(client_open(&connection, http_port(server)));
    send_text(&connection, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    cr_assert_eq(recv(connection.fd, taken, 1, MSG_PEEK), 1);
    for (int i = 0; i < 2000; i++) {
        send_text(&connection, "GET /stream-short HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    cr_assert_eq(pthread_create(&stopper, NULL, stop_server, &stopped), 0);
    for (ssize_t size; (size = recv(connection.fd, taken, 1 << 16, 0)) > 0; total += (size_t)size) {
        const size_t kept = (size_t)size < sizeof end ? (size_t)size : sizeof end;
        memmove(end, end + kept, sizeof end - kept);
        memcpy(end + sizeof end - kept, taken + (size_t)size - kept, kept);
        sleep_ms(1);
    }
    cr_expect_gt(total, LARGE);
    cr_expect_arr_eq(end, "0\r\n\r\n", sizeof end, "the last of %zu bytes is missing", total);
    client_close(&connection);
    pthread_join(stopper, NULL);
    cr_expect(stopped);
    free(taken);
}

/* What is still computed when the time is up gets an answer without its result. */
Test(http_pending, stop_cancels_what_is_left) {
    struct http_options options = patient;
    options.drain_timeout = 1;
    start_with(options);
    struct client_connection connection;
    cr_assert(client_open(&connection, http_port(server)));
    atomic_store(&held, true);
    send_text(&connection, POST("/held"));
    wait_until(&begun, 1);
    cr_expect(http_stop(server));
    expect_status(&connection, 503);
    cr_expect(client_at_end(&connection));
    cr_expect_eq(cancelled, 1);
    cr_expect_eq(released, 1);
    client_close(&connection);
}

/* Who comes while what is there is answered is refused, not left waiting. */
Test(http_pending, stop_refuses_connections) {
    start_with(patient);
    const unsigned port = http_port(server);
    struct client_connection connection, late;
    pthread_t stopper;
    bool stopped = false, refused = false;
    cr_assert(client_open(&connection, port));
    atomic_store(&held, true);
    send_text(&connection, POST("/held"));
    wait_until(&begun, 1);
    cr_assert_eq(pthread_create(&stopper, NULL, stop_server, &stopped), 0);
    for (int i = 0; i < 5000 && !refused; i++) {
        refused = !client_open(&late, port);
        if (!refused) {
            client_close(&late);
            sleep_ms(1);
        }
    }
    cr_expect(refused);
    atomic_store(&held, false);
    expect_status(&connection, 200);
    pthread_join(stopper, NULL);
    cr_expect(stopped);
    client_close(&connection);
}

/* Before it stops accepting, the server says that it will. */
Test(http_pending, drain_delay_goes_on_accepting) {
    struct http_options options = patient;
    options.drain_delay = 2;
    start_with(options);
    const unsigned port = http_port(server);
    struct client_response response;
    pthread_t stopper;
    bool stopped = false;
    int status = 0;
    char value[16] = "";
    cr_assert(client_request(port, "GET", "/draining", NULL, NULL, 0, &response));
    cr_expect_eq(response.status, 200);
    client_response_free(&response);
    cr_assert_eq(pthread_create(&stopper, NULL, stop_server, &stopped), 0);
    for (int i = 0; i < 1000 && status != 503; i++) {
        cr_assert(client_request(port, "GET", "/draining", NULL, NULL, 0, &response));
        status = response.status;
        client_header(&response, "Connection", value, sizeof value);
        client_response_free(&response);
    }
    cr_expect_eq(status, 503);
    cr_expect_str_eq(value, "close");
    pthread_join(stopper, NULL);
    cr_expect(stopped);
    cr_expect_not(client_request(port, "GET", "/draining", NULL, NULL, 0, &response));
}
