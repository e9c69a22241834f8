/*
 * test_http_stop.c tests the stop of a server with requests in work, whose answers are made at once
 * or come later. The tests belong to the suites of test_http_server.c
 * and test_http_pending.c.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http/http.h"
#include "http_app.h"
#include "http_fixture.h"
#include "support/client.h"
#include "support/wait.h"

/* ------------------------------------------------------------------ an app that answers at once */

/* A request that is in work when the stop begins is answered in full, and its answer says that the
 * connection ends. */
Test(http_server_own, stop_waits_for_answers) {
    app_serve((struct http_options){.drain_timeout = fixture_seconds(3)});
    struct client_connection idle, connection;
    struct client_response response;
    char value[64] = "";
    pthread_t stopper;
    bool stopped = false;
    fixture_open(&idle, GET("/a"));
    fixture_expect_status(&idle, 200, "before the stop");
    atomic_store(&app_held, true);
    fixture_open(&connection, POST("/hold") "Content-Length: 3\r\n\r\nabc");
    WAIT_UNTIL(atomic_load(&app_holding));
    cr_assert_eq(pthread_create(&stopper, NULL, fixture_stop_thread, &stopped), 0);
    fixture_sleep_ms(100); /* likely enough for the stop to be under way */
    atomic_store(&app_held, false);
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_eq(response.status, 200);
    cr_expect(client_header(&response, "Connection", value, sizeof value));
    cr_expect_str_eq(value, "close");
    client_response_free(&response);
    pthread_join(stopper, NULL);
    cr_expect(stopped);
    fixture_server = NULL;
    cr_expect(client_at_end(&connection));
    cr_expect(client_at_end(&idle));
    client_close(&connection);
    client_close(&idle);
}

/* If the app is still at work when the time is up, the stop does not wait for it. A second call of
 * the stop succeeds once the app is done. */
Test(http_server_own, stop_gives_up_on_work_without_end) {
    app_serve((struct http_options){.drain_timeout = 3});
    struct client_connection idle, connection;
    fixture_open(&idle, GET("/a"));
    fixture_expect_status(&idle, 200, "before the stop");
    atomic_store(&app_held, true);
    fixture_open(&connection, POST("/hold") "Content-Length: 3\r\n\r\nabc");
    WAIT_UNTIL(atomic_load(&app_holding));
    cr_expect_not(http_stop(fixture_server));
    unsigned before = app_begun;
    /* The thread of this connection may be the one that is at work. */
    client_send(&idle, GET("/a"), strlen(GET("/a")));
    atomic_store(&app_held, false);
    cr_expect(client_at_end(&idle), "no request is answered any more");
    cr_expect_eq(app_begun, before);
    WAIT_UNTIL(atomic_load(&app_released) >= before);
    cr_expect(http_stop(fixture_server));
    fixture_server = NULL;
    client_close(&connection);
    client_close(&idle);
}

/* The stop does not wait without end for a client that does not go on sending. */
Test(http_server_own, stop_cuts_off_slow_clients) {
    app_serve((struct http_options){.drain_timeout = 3});
    struct client_connection connection;
    fixture_open(&connection, POST("/a") "Content-Length: 3\r\n\r\na");
    WAIT_UNTIL(atomic_load(&app_begun) != 0);
    cr_expect(http_stop(fixture_server));
    fixture_server = NULL;
    cr_expect(client_at_end(&connection));
    cr_expect_eq(app_released, 1);
    client_close(&connection);
}

/* ------------------------------------------------------------------- an app that answers later */

/* A slow reader gets the last answer to its end, although more of its requests follow
 * unanswered. */
Test(http_pending, stop_with_requests_unread) {
    app_serve((struct http_options){0});
    struct client_connection connection;
    pthread_t stopper;
    bool stopped = false;
    char *taken = malloc(1 << 16), end[5] = "";
    size_t total = 0;
    cr_assert_not_null(taken);
    cr_assert(client_open(&connection, http_port(fixture_server)));
    fixture_send(&connection, "GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    cr_assert_eq(recv(connection.fd, taken, 1, MSG_PEEK), 1);
    for (int i = 0; i < 2000; i++) {
        fixture_send(&connection, "GET /stream-short HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    cr_assert_eq(pthread_create(&stopper, NULL, fixture_stop_thread, &stopped), 0);
    for (ssize_t size; (size = recv(connection.fd, taken, 1 << 16, 0)) > 0; total += (size_t)size) {
        const size_t kept = (size_t)size < sizeof end ? (size_t)size : sizeof end;
        memmove(end, end + kept, sizeof end - kept);
        memcpy(end + sizeof end - kept, taken + (size_t)size - kept, kept);
        fixture_sleep_ms(1);
    }
    cr_expect_gt(total, APP_LARGE);
    cr_expect_arr_eq(end, "0\r\n\r\n", sizeof end, "the last of %zu bytes is missing", total);
    client_close(&connection);
    pthread_join(stopper, NULL);
    cr_expect(stopped);
    free(taken);
}

/* A request whose answer is not ready when the time is up is cancelled and still gets an answer. */
Test(http_pending, stop_cancels_what_is_left) {
    struct http_options options = {0};
    options.drain_timeout = 1;
    app_serve(options);
    struct client_connection connection;
    cr_assert(client_open(&connection, http_port(fixture_server)));
    atomic_store(&app_held, true);
    fixture_send(&connection, POST_JSON("/held"));
    WAIT_UNTIL(atomic_load(&app_begun) == 1);
    cr_expect(http_stop(fixture_server));
    fixture_expect_status(&connection, 503, "the answer");
    cr_expect(client_at_end(&connection));
    cr_expect_eq(app_cancelled, 1);
    cr_expect_eq(app_released, 1);
    client_close(&connection);
}

/* A client that comes while the stop waits for answers is refused; it is not left waiting. */
Test(http_pending, stop_refuses_connections) {
    app_serve((struct http_options){0});
    const unsigned port = http_port(fixture_server);
    struct client_connection connection, late;
    pthread_t stopper;
    bool stopped = false;
    cr_assert(client_open(&connection, port));
    atomic_store(&app_held, true);
    fixture_send(&connection, POST_JSON("/held"));
    WAIT_UNTIL(atomic_load(&app_begun) == 1);
    cr_assert_eq(pthread_create(&stopper, NULL, fixture_stop_thread, &stopped), 0);
    for (int64_t since = 0; client_open(&late, port);) {
        client_close(&late);
        wait_on(&since, "a refused connection", __FILE__, __LINE__);
    }
    atomic_store(&app_held, false);
    fixture_expect_status(&connection, 200, "the answer");
    pthread_join(stopper, NULL);
    cr_expect(stopped);
    client_close(&connection);
}

/* During the drain delay the server still accepts connections, and its answers end them. */
Test(http_pending, drain_delay_goes_on_accepting) {
    struct http_options options = {0};
    options.drain_delay = fixture_seconds(2);
    app_serve(options);
    const unsigned port = http_port(fixture_server);
    struct client_response response;
    pthread_t stopper;
    bool stopped = false;
    int status = 0;
    char value[16] = "";
    cr_assert(client_request(port, "GET", "/draining", NULL, NULL, 0, &response));
    cr_expect_eq(response.status, 200);
    client_response_free(&response);
    cr_assert_eq(pthread_create(&stopper, NULL, fixture_stop_thread, &stopped), 0);
    for (int64_t since = 0; status != 503; wait_on(&since, "a 503", __FILE__, __LINE__)) {
        cr_assert(client_request(port, "GET", "/draining", NULL, NULL, 0, &response));
        status = response.status;
        client_header(&response, "Connection", value, sizeof value);
        client_response_free(&response);
    }
    cr_expect_str_eq(value, "close");
    pthread_join(stopper, NULL);
    cr_expect(stopped);
    cr_expect_not(client_request(port, "GET", "/draining", NULL, NULL, 0, &response));
}
