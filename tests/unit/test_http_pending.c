/*
 * test_http_pending.c tests answers that are made elsewhere: by other threads, whole or while they
 * are sent. Clients that leave meanwhile are noticed.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "http/http.h"
#include "http_app.h"
#include "http_fixture.h"
#include "support/client.h"
#include "support/wait.h"

TestSuite(http_pending, .timeout = 60);

Test(http_pending, later_answers_keep_the_connection) {
    app_serve((struct http_options){0});
    struct client_connection connection;
    cr_assert(client_open(&connection, http_port(fixture_server)));
    for (int i = 0; i < 200; i++) {
        fixture_send(&connection, POST_JSON("/later"));
        fixture_expect_status(&connection, 200, "the answer");
    }
    fixture_send(&connection, POST_JSON("/later") POST_JSON("/later") POST_JSON("/later"));
    for (int i = 0; i < 3; i++) {
        fixture_expect_status(&connection, 200, "the answer");
    }
    client_close(&connection);
    app_stop();
    cr_expect_eq(app_begun, 203);
    cr_expect_eq(app_cancelled, 0);
}

Test(http_pending, others_are_served_meanwhile) {
    app_serve((struct http_options){0});
    struct client_connection waiting[20], other;
    atomic_store(&app_held, true);
    for (size_t i = 0; i < 20; i++) {
        cr_assert(client_open(&waiting[i], http_port(fixture_server)));
        fixture_send(&waiting[i], POST_JSON("/held"));
    }
    cr_assert(client_open(&other, http_port(fixture_server)));
    for (int i = 0; i < 20; i++) {
        fixture_send(&other, POST_JSON("/later"));
        fixture_expect_status(&other, 200, "another client");
    }
    atomic_store(&app_held, false);
    for (size_t i = 0; i < 20; i++) {
        fixture_expect_status(&waiting[i], 200, "an answer that waited");
        client_close(&waiting[i]);
    }
    client_close(&other);
    app_stop();
}

/* There are more clients than the watch asks at a time. */
Test(http_pending, client_that_leaves_is_cancelled) {
    enum {
        CLIENTS = 270
    };
    app_serve((struct http_options){0});
    struct client_connection *clients = calloc(CLIENTS, sizeof *clients);
    atomic_store(&app_held, true);
    for (size_t i = 0; i < CLIENTS; i++) {
        cr_assert(client_open(&clients[i], http_port(fixture_server)));
        fixture_send(&clients[i], POST_JSON("/held"));
    }
    WAIT_UNTIL(atomic_load(&app_begun) == CLIENTS);
    for (size_t i = 0; i < CLIENTS; i += 2) {
        client_close(&clients[i]);
    }
    WAIT_UNTIL(atomic_load(&app_cancelled) == CLIENTS / 2);
    WAIT_UNTIL(atomic_load(&app_released) == CLIENTS / 2);
    atomic_store(&app_held, false);
    for (size_t i = 1; i < CLIENTS; i += 2) {
        fixture_expect_status(&clients[i], 200, "a client that stayed");
        client_close(&clients[i]);
    }
    free(clients);
    app_stop();
}

/* The end of a client may arrive together with the last bytes that it sent. */
Test(http_pending, clients_that_leave_in_the_midst_are_let_go) {
    enum {
        CLIENTS = 100
    };
    app_serve((struct http_options){0});
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct client_connection connection;
        cr_assert(client_open(&connection, http_port(fixture_server)));
        fixture_send(&connection, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n[");
        client_close(&connection);
    }
    WAIT_UNTIL(atomic_load(&app_begun) == CLIENTS);
    WAIT_UNTIL(atomic_load(&app_released) == CLIENTS);
    app_stop();
}

/* Sends a request and expects a body of the first `end` bytes that the app counts. */
static void expect_counting(struct client_connection *connection, const char *request, size_t end) {
    struct client_response response;
    char value[64] = "";
    fixture_send(connection, request);
    cr_assert(client_receive(connection, false, &response));
    cr_expect(client_header(&response, "Transfer-Encoding", value, sizeof value));
    cr_expect_str_eq(value, "chunked");
    cr_expect(client_header(&response, "Content-Type", value, sizeof value));
    cr_expect_str_eq(value, "text/plain");
    cr_assert_eq(response.size, end);
    cr_assert(app_is_body(response.body, end));
    client_response_free(&response);
}

Test(http_pending, bodies_are_made_while_they_are_sent) {
    app_serve((struct http_options){0});
    char taken[256];
    struct client_connection connection;
    struct client_response response;
    cr_assert(client_open(&connection, http_port(fixture_server)));
    expect_counting(&connection, GET("/stream"), APP_LARGE);
    expect_counting(&connection, GET("/stream-short"), APP_SHORT); /* the connection is kept */
    fixture_send(&connection, GET("/stream-breaks"));
    cr_expect_not(client_receive(&connection, false, &response), "it is cut, not ended");
    client_close(&connection);

    cr_assert(client_open(&connection, http_port(fixture_server)));
    fixture_send(&connection, "HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    cr_assert(client_receive(&connection, true, &response));
    cr_expect_eq(response.size, 0);
    client_response_free(&response);
    fixture_send(&connection, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    cr_assert_eq(recv(connection.fd, taken, sizeof taken, MSG_WAITALL), (ssize_t)sizeof taken);
    client_close(&connection); /* the client leaves in the middle of the body */
    WAIT_UNTIL(atomic_load(&app_bodies_freed) == 5);
    cr_expect_eq(app_pieces, 0, "there is no exchange that could be asked to make a piece");
    app_stop();
}

/* The app has other threads make the rest of a body that takes long. */
Test(http_pending, the_app_makes_the_rest_of_long_bodies) {
    app_serve((struct http_options){0});
    char taken[256];
    struct client_connection connection;
    struct client_response response;
    cr_assert(client_open(&connection, http_port(fixture_server)));
    expect_counting(&connection, POST_JSON("/made"), APP_MADE);
    cr_expect_gt(app_pieces, 0);
    expect_counting(&connection, POST_JSON("/made-short"), APP_SHORT);
    fixture_send(&connection, POST_JSON("/made-breaks"));
    cr_expect_not(client_receive(&connection, false, &response), "it is cut, not ended");
    client_close(&connection);

    atomic_store(&app_pieces, 0);
    atomic_store(&app_held, true);
    cr_assert(client_open(&connection, http_port(fixture_server)));
    fixture_send(&connection, POST_JSON("/made"));
    cr_assert_eq(recv(connection.fd, taken, sizeof taken, MSG_WAITALL), (ssize_t)sizeof taken);
    WAIT_UNTIL(atomic_load(&app_pieces) == 1);
    client_close(&connection); /* the client leaves while a piece is made */
    cr_assert(client_open(&connection, http_port(fixture_server)));
    /* Others are served meanwhile. */
    expect_counting(&connection, GET("/stream-short"), APP_SHORT);
    atomic_store(&app_held, false);
    WAIT_UNTIL(atomic_load(&app_bodies_freed) == 5);
    client_close(&connection);
    app_stop();
}
