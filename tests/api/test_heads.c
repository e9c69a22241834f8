/*
 * test_heads.c - which heads of requests are accepted, and that an answer to HEAD has the headers
 * of the answer to GET. The tests know the service by its socket only.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/client.h"
#include "support/daemon.h"

TestSuite(heads, .timeout = 60);

/* A server must take the absolute form of a target (RFC 9112, 3.2.2). */
Test(heads, absolute_targets_lead_to_their_paths) {
    static const struct {
        const char *target;
        int status;
    } cases[] = {
        {"http://a/health/live", 200},
        {"https://a/health/live", 200},
        {"HTTPS://a:8080/health/live", 200},
        {"https://a/nowhere", 404},
    };
    struct client_connection connection;
    struct client_response response;
    daemon_start(NULL);
    cr_assert(client_open(&connection, the_daemon.port));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[128];
        const int size = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n",
                                  cases[i].target);
        cr_assert(client_send(&connection, request, (size_t)size));
        cr_assert(client_receive(&connection, false, &response));
        cr_expect_eq(response.status, cases[i].status, "%s: %d", cases[i].target, response.status);
        client_response_free(&response);
    }
    client_close(&connection);
    daemon_end();
}

Test(heads, a_client_without_a_key_is_told_what_to_send) {
    static const char *const methods[] = {"GET", "HEAD"};
    char path[] = "/tmp/attentiond-keys-XXXXXX", value[64];
    const int fd = mkstemp(path);
    struct client_response response;
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, "0123456789abcdef\n", 17), 17);
    close(fd);
    daemon_start((const char *const[]){"--api-key-file", path, NULL});
    for (size_t i = 0; i < 2; i++) {
        cr_assert(
            client_request(the_daemon.port, methods[i], "/version", NULL, NULL, 0, &response));
        cr_expect_eq(response.status, 401);
        cr_expect(client_header(&response, "WWW-Authenticate", value, sizeof value) &&
                      strcmp(value, "Bearer") == 0,
                  "%s", methods[i]);
        client_response_free(&response);
    }
    daemon_end();
    unlink(path);
}
