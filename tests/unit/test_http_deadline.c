/*
 * test_http_deadline.c tests the deadlines of connections: a slow client is cut off, a steady one
 * is not, and a client that the server has ended can still read its answer. The tests belong to the
 * suite of test_http_pending.c.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http/http.h"
#include "http_app.h"
#include "http_fixture.h"
#include "support/client.h"
#include "support/wait.h"

/* Each client is cut off by a deadline of its own, although it sends a byte now and then. */
Test(http_pending, slow_clients_are_cut_off) {
    static const struct {
        struct http_options options;
        const char *begin, *more;
    } cases[] = {
        {{.header_timeout = 1}, "GET /later HTTP/1.1\r\nHost: a\r\n", "a: b\r\n"},
        {{.body_timeout = 1},
         "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
         "x"},
        {{.body_timeout = 1},
         "POST /later HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
         "1\r\nx\r\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        app_serve(cases[i].options);
        struct client_connection connection;
        cr_assert(client_open(&connection, http_port(fixture_server)));
        fixture_send(&connection, cases[i].begin);
        const unsigned most = 200 * fixture_seconds(1);
        unsigned sent = 0;
        while (sent < most && client_send(&connection, cases[i].more, strlen(cases[i].more))) {
            fixture_sleep_ms(50);
            sent++;
        }
        cr_expect_lt(sent, most, "case %zu: never cut off", i);
        client_close(&connection);
        cr_expect(http_stop(fixture_server));
    }
}

/* Opens two clients whose responses the kernel does not take at once: one gets a body that is made
 * while it is sent, the other gets short bodies one after the other. */
static void open_readers(struct client_connection readers[static 2]) {
    enum {
        REQUESTS = 1000
    };
    const int small = 65536; /* enough for a reader that was delayed to catch up */
    for (int i = 0; i < 2; i++) {
        cr_assert(client_open(&readers[i], http_port(fixture_server)));
        setsockopt(readers[i].fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    }
    WAIT_UNTIL(http_load(fixture_server).connections == 2); /* a busy server accepts them later */
    fixture_send(&readers[0], "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    for (int i = 0; i < REQUESTS; i++) {
        fixture_send(&readers[1], "GET /whole HTTP/1.1\r\nHost: a\r\n\r\n");
    }
}

/* Lets both clients read at this rate, in bytes per millisecond, until the time is over or the
 * server has closed both connections. Returns how many connections are open. */
static unsigned read_steadily(struct client_connection readers[static 2], double rate,
                              double milliseconds) {
    static char taken[1 << 16];
    const double start = fixture_now_ms();
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
        fixture_sleep_ms(5);
        open = http_load(fixture_server).connections;
        past = fixture_now_ms() - start;
    }
    return open;
}

/* The kernel takes megabytes at once from the server, and nothing after that for seconds. During
 * that time neither the deadline of the response nor the idle timeout may run out. */
Test(http_pending, steady_readers_are_not_cut_off) {
    const unsigned second = fixture_seconds(1);
    app_serve((struct http_options){.write_timeout = second, .idle_timeout = second});
    struct client_connection readers[2];
    open_readers(readers);
    cr_expect_eq(read_steadily(readers, 256, 2500 * second), 2, "%u are left",
                 http_load(fixture_server).connections);
    cr_expect_eq(app_bodies_freed, 0);
    client_close(&readers[0]);
    client_close(&readers[1]);
    app_stop();
}

Test(http_pending, slow_readers_are_cut_off) {
    app_serve((struct http_options){.write_timeout = 1});
    struct client_connection readers[2];
    open_readers(readers);
    cr_expect_eq(read_steadily(readers, 4, 20000 * fixture_seconds(1)), 0, "%u are left",
                 http_load(fixture_server).connections);
    client_close(&readers[0]);
    client_close(&readers[1]);
    app_stop();
}

/* When the server ends a connection, the bytes that its client has not read yet are not lost, even
 * if the client goes on sending requests. */
Test(http_pending, ended_connections_are_read_to_the_end) {
    app_serve((struct http_options){0});
    struct client_connection connection;
    struct client_response response;
    const int small = 16384;
    cr_assert(client_open(&connection, http_port(fixture_server)));
    setsockopt(connection.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    fixture_send(&connection, "GET /stream-short HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    fixture_sleep_ms(2300);
    for (int i = 0; i < 3; i++) { /* a request that cannot be sent is no failure */
        client_send(&connection, POST_JSON("/later"), strlen(POST_JSON("/later")));
        fixture_sleep_ms(50);
    }
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_eq(response.size, 100000);
    client_response_free(&response);
    cr_expect(client_at_end(&connection));
    client_close(&connection);
    app_stop();
}

/* The client sends 400 KiB for each second of the time of a body, and takes 1.6 times as long. */
Test(http_pending, steady_senders_are_not_cut_off) {
    enum {
        RATE = 256 /* bytes per millisecond */
    };
    const unsigned second = fixture_seconds(1);
    const size_t size = (size_t)second * (400 << 10);
    char *bytes = calloc(size, 1);
    cr_assert_not_null(bytes);
    app_serve((struct http_options){.body_timeout = second, .max_body = size});
    struct client_connection connection;
    char head[128];
    cr_assert(client_open(&connection, http_port(fixture_server)));
    snprintf(head, sizeof head, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
             size);
    fixture_send(&connection, head);
    const double start = fixture_now_ms();
    for (size_t sent = 0; sent < size;) {
        size_t due = (size_t)((fixture_now_ms() - start) * RATE);
        due = due < size ? due : size;
        if (!client_send(&connection, bytes + sent, due - sent)) {
            cr_expect_fail("cut off after %zu bytes", sent);
            break;
        }
        sent = due;
        fixture_sleep_ms(5);
    }
    fixture_expect_status(&connection, 200, "the answer");
    client_close(&connection);
    free(bytes);
    app_stop();
}

/* The deadline of the body does not count while the answer is computed. */
Test(http_pending, computations_may_outlast_the_time_for_bodies) {
    const unsigned second = fixture_seconds(1);
    app_serve((struct http_options){
        .header_timeout = second, .body_timeout = second, .write_timeout = second});
    struct client_connection connection;
    atomic_store(&app_held, true);
    cr_assert(client_open(&connection, http_port(fixture_server)));
    fixture_send(&connection, POST_JSON("/held"));
    fixture_sleep_ms(1400 * (long)second);
    atomic_store(&app_held, false);
    fixture_expect_status(&connection, 200, "the answer");
    client_close(&connection);
    app_stop();
}

/* A client that sends a whole body before it reads gets the refusal, although the refusal was sent
 * in the middle of the body and ended the connection. */
Test(http_pending, refusals_are_read_after_the_body) {
    enum {
        BODY = 4 << 20
    };
    app_serve((struct http_options){0});
    struct client_connection connection;
    char *body = calloc(BODY, 1), head[128];
    cr_assert_not_null(body);
    cr_assert(client_open(&connection, http_port(fixture_server)));
    snprintf(head, sizeof head, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", BODY);
    fixture_send(&connection, head);
    fixture_sleep_ms(50); /* likely enough for the refusal to be sent */
    cr_expect(client_send(&connection, body, BODY));
    fixture_expect_status(&connection, 413, "the answer");
    client_close(&connection);
    free(body);
    app_stop();
}
