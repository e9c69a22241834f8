/* http_fixture.c runs one server at a time in the process of the test. */
#include "http_fixture.h"

#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

#include "support/wait.h"

struct http_server *fixture_server;

void fixture_start(const struct http_options *options, const struct http_app *app) {
    struct http_options local = *options;
    char error[256];
    local.address = "127.0.0.1";
    fixture_server = http_start(&local, app, error, sizeof error);
    cr_assert_not_null(fixture_server, "%s", error);
}

void fixture_stop(void) {
    http_stop(fixture_server);
    fixture_server = NULL;
}

void *fixture_stop_thread(void *stopped) {
    *(bool *)stopped = http_stop(fixture_server);
    return NULL;
}

void fixture_send(struct client_connection *connection, const char *text) {
    cr_assert(client_send(connection, text, strlen(text)));
}

void fixture_open(struct client_connection *connection, const char *text) {
    cr_assert(client_open(connection, http_port(fixture_server)));
    fixture_send(connection, text);
}

void fixture_expect_status(struct client_connection *connection, int status, const char *what) {
    struct client_response response;
    if (!client_receive(connection, false, &response)) {
        cr_expect_fail("%s: no response", what);
        return;
    }
    cr_expect_eq(response.status, status, "%s: %d %s", what, response.status, response.body);
    client_response_free(&response);
}

void fixture_sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

unsigned fixture_seconds(unsigned seconds) {
    return seconds * (unsigned)wait_patience();
}

double fixture_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}
