/*
 * test_patience.c - the times that a client is promised: how long it may be idle, how long a
 * computation may take, and how long a server that stops goes on. The tests know the service by its
 * socket only.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <time.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"

TestSuite(patience, .timeout = 1200);

/* The time limit for the head of a request begins with its first byte. Before that, a connection
 * that was used once may be idle for --idle-timeout. */
Test(patience, an_idle_connection_is_not_held_to_the_time_for_headers) {
    struct client_connection connection;
    struct client_response response;
    static const char body[] = "{\"X\":[[1]]}";
    daemon_start((const char *const[]){"--header-timeout", "1", "--idle-timeout", "30", NULL});
    cr_assert(client_open(&connection, the_daemon.port));
    for (int i = 0; i < 2; i++) {
        cr_assert(client_post(&connection, "/attention", body, sizeof body - 1, &response),
                  "request %d has no answer", i);
        cr_expect_eq(response.status, 200);
        client_response_free(&response);
        if (i == 0) {
            nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 600000000}, NULL);
        }
    }
    client_close(&connection);
    daemon_end();
}

/* A client may ask for less time than the server gives to a computation, but not for more. */
Test(patience, a_computation_has_the_shorter_of_two_times) {
    static const struct {
        const char *timeout, *detail;
    } cases[] = {
        {"", "within 0.05 s, a limit that the operator of this server sets with --compute-timeout"},
        {"\"timeout\":100,", "with --compute-timeout"},
        {"\"timeout\":0.02,", "within 0.02 s, the \\\"timeout\\\" of the request"},
    };
    daemon_start((const char *const[]){"--compute-timeout", "0.05", NULL});
    for (size_t i = 0; i < COUNT(cases); i++) {
        char body[256];
        snprintf(body, sizeof body,
                 "{%s\"random\":{\"generator\":\"numpy\",\"seed\":1},"
                 "\"return\":[\"entropy\"],\"X\":{\"random\":\"rand\","
                 "\"shape\":[30000,64]}}",
                 cases[i].timeout);
        expect_answer("POST", "/attention", NULL, body, 503, cases[i].detail);
    }
    daemon_end();
}
