/*
 * test_http_server.c tests the HTTP server with an app that answers at once: connections that are
 * kept and ended, limits on bodies, headers of responses, and clients that leave.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "http/http.h"
#include "http_app.h"
#include "http_fixture.h"
#include "support/client.h"
#include "support/descriptors.h"
#include "support/wait.h"

enum {
    MAX_BODY = 4096 /* bytes that the server takes */
};

/* Most tests need a server like this one. The tests of the suite http_server_own start their
 * own. */
static void serve_default(void) {
    app_serve((struct http_options){.max_body = MAX_BODY, .drain_timeout = 3});
}

TestSuite(http_server, .init = serve_default, .fini = fixture_stop, .timeout = 60);
TestSuite(http_server_own, .fini = fixture_stop, .timeout = 60);

/* --------------------------------------------------------------------------------------- tests */

Test(http_server, request_reaches_the_app) {
    struct client_response response;
    char value[256];
    cr_assert(client_request(http_port(fixture_server), "POST", "/a%20b?q=1",
                             "X-Request-Id: my-id\r\nContent-Type: Text/Plain; a=b\r\n", "body\0!",
                             6, &response));
    cr_expect_eq(response.status, 200);
    cr_expect_eq(response.size, strlen("POST /a b text/plain my-id\n") + 6);
    cr_expect_eq(memcmp(response.body, "POST /a b text/plain my-id\nbody\0!", response.size), 0,
                 "%s", response.body);
    static const struct {
        const char *name, *value;
    } headers[] = {
        {"content-type", "application/json"},
        {"x-request-id", "my-id"},
        {"cache-control", "no-store"},
        {"x-content-type-options", "nosniff"},
        {"connection", "close"}, /* because the client asks for it */
        {"server-timing",
         "decode;dur=1.000, queue;dur=0.250, compute;dur=12345.679, encode;dur=0.000"},
    };
    for (size_t i = 0; i < COUNT(headers); i++) {
        cr_expect(client_header(&response, headers[i].name, value, sizeof value), "%s",
                  headers[i].name);
        cr_expect_str_eq(value, headers[i].value);
    }
    cr_expect_not(client_header(&response, "Retry-After", value, sizeof value));
    cr_expect_not(client_header(&response, "Allow", value, sizeof value));
    client_response_free(&response);
}

Test(http_server, request_id_is_made_if_there_is_no_good_one) {
    static const char *const bad[] = {"", "X-Request-Id:\r\n", "X-Request-Id: a b\r\n"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct client_response response;
        char id[256];
        cr_assert(client_request(http_port(fixture_server), "GET", "/refuse", bad[i], NULL, 0,
                                 &response));
        cr_assert(client_header(&response, "X-Request-Id", id, sizeof id));
        cr_expect_eq(strspn(id, "0123456789abcdef"), 16);
        cr_expect_not_null(strstr(response.body, id), "the id is in the problem as well");
        client_response_free(&response);
    }
}

Test(http_server, head_is_get_without_a_body) {
    static const char *const paths[] = {"/static", "/a", "/refuse"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct client_response get, head;
        char a[64], b[64];
        const char *id = "X-Request-Id: 12345\r\n";
        cr_assert(client_request(http_port(fixture_server), "GET", paths[i], id, NULL, 0, &get));
        cr_assert(client_request(http_port(fixture_server), "HEAD", paths[i], id, NULL, 0, &head));
        cr_expect_eq(head.status, get.status);
        cr_expect_eq(head.size, 0);
        cr_expect(client_header(&get, "Content-Length", a, sizeof a));
        cr_expect(client_header(&head, "Content-Length", b, sizeof b));
        /* The answer to /a names the method, which is 5 characters longer. */
        cr_expect_eq(atoi(b) - atoi(a), i == 1 ? 5 : 0);
        client_response_free(&get);
        client_response_free(&head);
    }
}

Test(http_server, app_has_enough) {
    struct client_connection connection;
    struct client_response response;
    fixture_open(&connection, POST("/a") "X-Request-Id: i\r\nTransfer-Encoding: chunked\r\n\r\n"
                                         "2\r\na!\r\n3\r\nbcd\r\n0\r\n\r\n");
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_str_eq(response.body, "POST /a  i\na!");
    client_response_free(&response);
    client_close(&connection);
}

Test(http_server, no_content) {
    struct client_response response;
    char value[64];
    cr_assert(client_request(http_port(fixture_server), "GET", "/empty", NULL, NULL, 0, &response));
    cr_expect_eq(response.status, 204);
    cr_expect_not(client_header(&response, "Content-Type", value, sizeof value));
    client_response_free(&response);
}

/* After each of these requests the same connection answers the next one. data/framing.txt has more
 * of them. */
Test(http_server, connection_is_kept) {
    static const struct {
        const char *what, *request;
        int status;
    } cases[] = {
        {"get", GET("/a"), 200},
        {"static", GET("/static"), 200},
        {"post", POST("/a") "Content-Length: 3\r\n\r\nabc", 200},
        {"empty post", POST("/a") "Content-Length: 0\r\n\r\n", 200},
        {"enough", POST("/a") "Transfer-Encoding: chunked\r\n\r\n1\r\n!\r\n1\r\nz\r\n0\r\n\r\n",
         200},
        {"refused", POST("/refuse") "Content-Length: 3\r\n\r\nabc", 405},
        {"refused, chunked",
         POST("/refuse") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 405},
        {"100-continue", POST("/a") "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", 200},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct client_connection connection;
        fixture_open(&connection, cases[i].request);
        fixture_expect_status(&connection, cases[i].status, cases[i].what);
        cr_expect(client_send(&connection, GET("/a"), strlen(GET("/a"))), "%s", cases[i].what);
        fixture_expect_status(&connection, 200, cases[i].what);
        client_close(&connection);
    }
}

/* After each of these requests there is one answer, and the connection ends, whatever follows in
 * it. data/framing.txt has more of them. */
Test(http_server, connection_is_ended) {
    static const struct {
        const char *what, *request;
        int status;
    } cases[] = {
        {"refused before the body",
         POST("/refuse") "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n", 405},
        {"too large before the body",
         POST("/a") "Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n", 413},
        {"far too large", POST("/a") "Content-Length: 8194\r\n\r\n", 413},
        {"close", "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" GET("/a"), 200},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct client_connection connection;
        struct client_response response;
        char value[64];
        fixture_open(&connection, cases[i].request);
        cr_assert(client_receive(&connection, false, &response), "%s", cases[i].what);
        cr_expect_eq(response.status, cases[i].status, "%s: %d", cases[i].what, response.status);
        cr_expect(client_header(&response, "Connection", value, sizeof value), "%s", cases[i].what);
        client_response_free(&response);
        cr_expect(client_at_end(&connection), "%s: still open", cases[i].what);
        client_close(&connection);
    }
}

/* The Content-Length is at the limit, over it and far over it. */
Test(http_server, body_limit_with_a_length) {
    char body[2 * MAX_BODY + 1];
    memset(body, 'x', sizeof body);
    struct client_connection connection;
    struct client_response response;
    cr_assert(client_open(&connection, http_port(fixture_server)));
    static const size_t sizes[] = {MAX_BODY, MAX_BODY + 1, 2 * MAX_BODY, 2 * MAX_BODY + 1,
                                   MAX_BODY};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char head[192];
        snprintf(head, sizeof head, POST("/a") "Content-Length: %zu\r\n\r\n", sizes[i]);
        cr_assert(client_send(&connection, head, strlen(head)));
        cr_assert(client_send(&connection, body, sizes[i]));
        cr_assert(client_receive(&connection, false, &response));
        cr_expect_eq(response.status, sizes[i] > MAX_BODY ? 413 : 200, "%zu bytes", sizes[i]);
        if (sizes[i] > MAX_BODY) {
            snprintf(head, sizeof head,
                     "the body has %zu bytes; this server takes at most %d, a limit that its "
                     "operator sets with --max-body",
                     sizes[i], MAX_BODY);
            cr_expect_not_null(strstr(response.body, head), "%s", response.body);
        }
        client_response_free(&response);
    }
    client_close(&connection);
}

/* The chunks reach the limit, exceed it (the answer comes at the end), or exceed it by far (the
 * connection is cut off). */
Test(http_server, body_limit_with_chunks) {
    static const struct {
        size_t chunks;
        int status;
    } cases[] = {{4, 200}, {5, 413}, {8, 413}, {9, 0}};
    char chunk[1024 + 8] = "400\r\n";
    memset(chunk + 5, 'x', 1024);
    memcpy(chunk + 5 + 1024, "\r\n", 2);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct client_connection connection;
        fixture_open(&connection, POST("/a") "Transfer-Encoding: chunked\r\n\r\n");
        for (size_t j = 0; j < cases[i].chunks; j++) {
            client_send(&connection, chunk, 5 + 1024 + 2);
        }
        client_send(&connection, "0\r\n\r\n" GET("/a"), strlen("0\r\n\r\n" GET("/a")));
        if (cases[i].status != 0) {
            fixture_expect_status(&connection, cases[i].status, "chunks");
            fixture_expect_status(&connection, 200, "the next request");
        } else {
            cr_expect(client_at_end(&connection), "the connection should have been cut");
        }
        client_close(&connection);
    }
    app_stop();
}

/* A body that arrives in tiny pieces is refused long before it is large. */
Test(http_server_own, body_in_tiny_chunks) {
    static const struct {
        size_t chunks;
        int status;
    } cases[] = {{65536, 200}, {65537, 400}, {200000, 400}, {264000, 0}};
    app_serve((struct http_options){.max_connections = 10});
    static char bytes[264000 * 6 + 1];
    for (size_t i = 0; i < sizeof bytes / 6; i++) {
        memcpy(bytes + i * 6, "1\r\nx\r\n", 7);
    }
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct client_connection connection;
        fixture_open(&connection, POST("/a") "Transfer-Encoding: chunked\r\n\r\n");
        client_send(&connection, bytes, cases[i].chunks * 6);
        client_send(&connection, "0\r\n\r\n", 5);
        if (cases[i].status != 0) {
            fixture_expect_status(&connection, cases[i].status, "tiny chunks");
        } else {
            cr_expect(client_at_end(&connection), "the connection should have been cut");
        }
        client_close(&connection);
    }
    app_stop();
}

/* The end of the client's side is there before the server reads the first byte, and each piece of
 * the body takes more than one turn of the connection. The request is whole, so it is answered. */
Test(http_server_own, whole_bodies_count_although_the_client_has_ended) {
    static const size_t sizes[] = {4097, 17000, 30000, 60000};
    static char message[1 << 16];
    app_serve((struct http_options){.threads = 1});
    atomic_store(&app_body_ms, 1);
    for (size_t i = 0; i < 2 * COUNT(sizes); i++) {
        const size_t size = sizes[i / 2];
        struct client_connection holder, connection;
        int length = sprintf(message,
                             i % 2 ? "%sTransfer-Encoding: chunked\r\n\r\n%zx\r\n"
                                   : "%sContent-Length: %zu\r\n\r\n",
                             POST("/a"), size);
        memset(message + length, 'x', size);
        length += (int)size;
        length += sprintf(message + length, "%s", i % 2 ? "\r\n0\r\n\r\n" : "");
        atomic_store(&app_held, true);
        atomic_store(&app_holding, false);
        fixture_open(&holder, GET("/hold"));
        WAIT_UNTIL(atomic_load(&app_holding));
        fixture_open(&connection, "");
        cr_assert(client_send(&connection, message, (size_t)length));
        shutdown(connection.fd, SHUT_WR);
        atomic_store(&app_held, false);
        fixture_expect_status(&connection, 200, i % 2 ? "chunks" : "a length");
        client_close(&connection);
        client_close(&holder);
    }
    app_stop();
}

/* Wherever a client leaves, its exchange is released. */
Test(http_server, client_leaves) {
    static const char *const parts[] = {
        "GET /a HT",
        "GET /a HTTP/1.1\r\nHo",
        POST("/a") "Content-Length: 100\r\n\r\n",
        POST("/a") "Content-Length: 100\r\n\r\nabc",
        POST("/a") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5\r\nab",
        POST("/refuse") "Content-Length: 100\r\n\r\nabc",
        POST("/a") "Content-Length: 5000\r\n\r\nabc",
        GET("/a"), /* the client does not read the answer */
    };
    for (size_t i = 0; i < 4 * COUNT(parts); i++) {
        struct client_connection connection;
        fixture_open(&connection, parts[i % COUNT(parts)]);
        if (i >= 2 * COUNT(parts)) { /* reset the connection instead of ending it */
            setsockopt(connection.fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                       sizeof(struct linger));
        }
        client_close(&connection);
    }
    struct client_connection connection;
    fixture_open(&connection, GET("/a"));
    fixture_expect_status(&connection, 200, "afterwards");
    client_close(&connection);
    app_stop();
}

Test(http_server, bodies_of_responses_are_released) {
    struct client_response response;
    for (int i = 0; i < 10; i++) {
        cr_assert(client_request(http_port(fixture_server), i % 2 ? "HEAD" : "GET", "/a", NULL,
                                 NULL, 0, &response));
        client_response_free(&response);
    }
    app_stop();
    cr_expect_eq(app_bodies_freed, 10);
    cr_expect_eq(app_ended, 10);
}

/* The server reads for a while from a connection that it has ended, with another descriptor. */
Test(http_server, ended_connections_leave_no_descriptor) {
    const size_t before = count_descriptors(0);
    for (int i = 0; i < 50; i++) {
        struct client_connection connection;
        fixture_open(&connection, "GET /a HTTP/1.9\r\nHost: a\r\n\r\n");
        fixture_expect_status(&connection, 505, "refused");
        client_close(&connection);
    }
    WAIT_UNTIL(count_descriptors(0) <= before);
}

/* An answer is sent although its computation takes longer than the idle timeout. */
Test(http_server_own, idle_timeout_spares_work) {
    app_serve((struct http_options){.idle_timeout = fixture_seconds(1)});
    struct client_connection connection;
    fixture_open(&connection, POST("/slow") "Content-Length: 1\r\n\r\nx");
    fixture_expect_status(&connection, 200, "slow");
    cr_expect(client_at_end(&connection), "and then the idle connection is closed");
    client_close(&connection);
}

Test(http_server_own, one_connection_too_many_is_closed) {
    app_serve((struct http_options){.max_connections = 3});
    struct client_connection connections[4];
    for (size_t i = 0; i < 3; i++) {
        fixture_open(&connections[i], GET("/a"));
        fixture_expect_status(&connections[i], 200, "within the limit");
    }
    cr_assert(client_open(&connections[3], http_port(fixture_server)));
    cr_expect(client_at_end(&connections[3]), "beyond the limit");
    client_close(&connections[3]);
    client_send(&connections[0], GET("/a"), strlen(GET("/a")));
    fixture_expect_status(&connections[0], 200, "the others are not touched");
    for (size_t i = 0; i < 3; i++) {
        client_close(&connections[i]);
    }
}

Test(http_server_own, start_says_why_it_cannot) {
    char error[256] = "", wanted[192];
    struct http_options options = {.address = "127.0.0.1",
                                   .threads = 1,
                                   .max_body = 1,
                                   .max_connections = 1,
                                   .idle_timeout = 1};
    app_serve((struct http_options){0});
    options.port = http_port(fixture_server);
    cr_expect_null(http_start(&options, &(struct http_app){0}, error, sizeof error));
    snprintf(wanted, sizeof wanted,
             "cannot listen on 127.0.0.1:%u: the port is in use; choose another one with --port "
             "(make run ARGS=\"--port %u\")",
             options.port, options.port < 65535 ? options.port + 1 : options.port - 1);
    cr_expect_str_eq(error, wanted);
    options.address = "here";
    cr_expect_null(http_start(&options, &(struct http_app){0}, error, sizeof error));
    cr_expect_not_null(strstr(error, "\"here\""), "%s", error);
}
