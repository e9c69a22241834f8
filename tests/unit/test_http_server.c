/*
 * test_http_server.c - the HTTP server with a little app behind it: connections that are kept and
 * ended, limits on bodies, headers of responses, clients that leave, the stop.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "http/http.h"
#include "support/client.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ------------------------------------------------------------------------------------- the app */

enum {
    MAX_BODY = 4096
};

static atomic_uint begun, ended, released, bodies_freed;
static atomic_bool holding; /* a request for /hold is in its end() */
static atomic_bool let_go;

struct exchange {
    char *bytes;
    size_t size, pieces;
};

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void free_body(void *body) {
    atomic_fetch_add(&bodies_freed, 1);
    free(body);
}

static void *app_begin(void *context, const struct http_request *request,
                       struct http_response *response) {
    cr_assert_str_eq(context, "context");
    if (strcmp(request->path, "/refuse") == 0) {
        http_problem(response, request, 405, "no", NULL, NULL);
        response->allow = "GET, HEAD";
        return NULL;
    }
    if (strcmp(request->path, "/static") == 0) {
        *response = (struct http_response){
            .status = 200, .media_type = "text/plain", .body = "static", .size = 6};
        return NULL;
    }
    if (strcmp(request->path, "/empty") == 0) {
        response->status = 204;
        return NULL;
    }
    atomic_fetch_add(&begun, 1);
    return calloc(1, sizeof(struct exchange));
}

static bool app_body(void *exchange_, const void *bytes, size_t size) {
    struct exchange *exchange = exchange_;
    char *grown = realloc(exchange->bytes, exchange->size + size);
    cr_assert_not_null(grown);
    memcpy(grown + exchange->size, bytes, size);
    exchange->bytes = grown;
    exchange->size += size;
    exchange->pieces++;
    return memchr(bytes, '!', size) == NULL; /* "that is enough" */
}

static bool app_end(void *exchange_, const struct http_request *request,
                    struct http_response *response) {
    struct exchange *exchange = exchange_;
    atomic_fetch_add(&ended, 1);
    if (strcmp(request->path, "/slow") == 0) {
        sleep_ms(2500);
    }
    if (strcmp(request->path, "/hold") == 0) {
        atomic_store(&holding, true);
        while (!atomic_load(&let_go)) {
            sleep_ms(1);
        }
    }
    /* "METHOD path media-type id\n" and the body */
    size_t room = strlen(request->path) + strlen(request->media_type) + strlen(request->id) + 32;
    char *text = malloc(room + exchange->size);
    cr_assert_not_null(text);
    int length = sprintf(text, "%s%s %s %s %s\n", request->head ? "HEAD/" : "", request->method,
                         request->path, request->media_type, request->id);
    if (exchange->size > 0) {
        memcpy(text + length, exchange->bytes, exchange->size);
    }
    *response = (struct http_response){
        .status = 200,
        .body = text,
        .size = (size_t)length + exchange->size,
        .release = free_body,
        .timed = true,
        .timing = {1, 0.25, 12345.6789, 0},
    };
    return true;
}

static void app_release(void *exchange_) {
    struct exchange *exchange = exchange_;
    atomic_fetch_add(&released, 1);
    free(exchange->bytes);
    free(exchange);
}

static const struct http_app app = {.context = "context",
                                    .begin = app_begin,
                                    .body = app_body,
                                    .end = app_end,
                                    .release = app_release};

/* --------------------------------------------------------------------------------- the fixture */

static struct http_server *server;

static void start_with(unsigned threads, unsigned connections, unsigned idle) {
    char error[256];
    const struct http_options options = {
        .address = "127.0.0.1",
        .threads = threads,
        .max_body = MAX_BODY,
        .max_connections = connections,
        .idle_timeout = idle,
        .header_timeout = 60,
        .body_timeout = 60,
        .write_timeout = 60,
        .drain_timeout = 3,
    };
    server = http_start(&options, &app, error, sizeof error);
    cr_assert_not_null(server, "%s", error);
}

static void start(void) {
    start_with(2, 100, 30);
}

static void stop(void) {
    http_stop(server);
    server = NULL;
}

/* Every exchange is released once, whatever happened to it. (An expectation in a fixture is not
 * counted.) */
static void stop_and_count(void) {
    stop();
    cr_expect_gt(begun, 0);
    cr_expect_eq(begun, released, "%u exchanges begun, %u released", begun, released);
}

TestSuite(http_server, .init = start, .fini = stop, .timeout = 60);
TestSuite(http_server_own, .fini = stop, .timeout = 60);

/* Sends text on a connection of its own. */
static void open_and_send(struct client_connection *connection, const char *text) {
    cr_assert(client_open(connection, http_port(server)));
    cr_assert(client_send(connection, text, strlen(text)));
}

static void expect_status(struct client_connection *connection, int status, const char *what) {
    struct client_response response;
    if (!client_receive(connection, false, &response)) {
        cr_expect_fail("%s: no response", what);
        return;
    }
    cr_expect_eq(response.status, status, "%s: %d %s", what, response.status, response.body);
    client_response_free(&response);
}

#define GET      "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
#define POST(to) "POST " to " HTTP/1.1\r\nHost: a\r\n"

/* --------------------------------------------------------------------------------------- tests */

Test(http_server, request_reaches_the_app) {
    struct client_response response;
    char value[256];
    cr_assert(client_request(http_port(server), "POST", "/a%20b?q=1",
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
        {"connection", "close"}, /* because the client asked for it */
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
        cr_assert(client_request(http_port(server), "GET", "/refuse", bad[i], NULL, 0, &response));
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
        cr_assert(client_request(http_port(server), "GET", paths[i], id, NULL, 0, &get));
        cr_assert(client_request(http_port(server), "HEAD", paths[i], id, NULL, 0, &head));
        cr_expect_eq(head.status, get.status);
        cr_expect_eq(head.size, 0);
        cr_expect(client_header(&get, "Content-Length", a, sizeof a));
        cr_expect(client_header(&head, "Content-Length", b, sizeof b));
        /* the app names the method in its answer to /a */
        cr_expect_eq(atoi(b) - atoi(a), i == 1 ? 5 : 0);
        client_response_free(&get);
        client_response_free(&head);
    }
}

Test(http_server, app_has_enough) {
    struct client_connection connection;
    struct client_response response;
    open_and_send(&connection, POST("/a") "X-Request-Id: i\r\nTransfer-Encoding: chunked\r\n\r\n"
                                          "2\r\na!\r\n3\r\nbcd\r\n0\r\n\r\n");
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_str_eq(response.body, "POST /a  i\na!");
    client_response_free(&response);
    client_close(&connection);
}

Test(http_server, no_content) {
    struct client_response response;
    char value[64];
    cr_assert(client_request(http_port(server), "GET", "/empty", NULL, NULL, 0, &response));
    cr_expect_eq(response.status, 204);
    cr_expect_not(client_header(&response, "Content-Type", value, sizeof value));
    client_response_free(&response);
}

/* After each of these the same connection answers the next request. */
Test(http_server, connection_is_kept) {
    static const struct {
        const char *what, *request;
        int status;
    } cases[] = {
        {"get", GET, 200},
        {"static", "GET /static HTTP/1.1\r\nHost: a\r\n\r\n", 200},
        {"get with a body", "GET /static HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 200},
        {"post", POST("/a") "Content-Length: 3\r\n\r\nabc", 200},
        {"empty post", POST("/a") "Content-Length: 0\r\n\r\n", 200},
        {"chunked post",
         POST("/a") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n", 200},
        {"enough", POST("/a") "Transfer-Encoding: chunked\r\n\r\n1\r\n!\r\n1\r\nz\r\n0\r\n\r\n",
         200},
        {"refused", POST("/refuse") "Content-Length: 3\r\n\r\nabc", 405},
        {"refused, chunked",
         POST("/refuse") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 405},
        {"compressed", POST("/a") "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", 415},
        {"absolute form", "GET http://b/a HTTP/1.1\r\nHost: a\r\n\r\n", 200},
        {"upgrade", "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
         200},
        {"100-continue", POST("/a") "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", 200},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct client_connection connection;
        open_and_send(&connection, cases[i].request);
        expect_status(&connection, cases[i].status, cases[i].what);
        cr_expect(client_send(&connection, GET, strlen(GET)), "%s", cases[i].what);
        expect_status(&connection, 200, cases[i].what);
        client_close(&connection);
    }
}

/* A status that says: this is no sound request. */
static bool is_refusal(int status) {
    return (status >= 400 && status < 500) || status == 501 || status == 505;
}

/* After each of these comes one answer and the end, whatever follows. `early`: libmicrohttpd 1.x
 * refuses it before it comes to the filter, with a page of its own; what the filter answers, with
 * 0.9.75, is exact. */
Test(http_server, connection_is_ended) {
    static const struct {
        const char *what, *request;
        int status;
        bool early;
    } cases[] = {
        {"length and chunked",
         POST("/a") "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" GET, 400,
         true},
        {"space before colon", POST("/a") "Content-Length : 27\r\n\r\n" GET, 400, true},
        {"gzip, chunked", POST("/a") "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" GET, 501,
         true},
        {"no length", POST("/a") "\r\n" GET, 411, false},
        {"no host", "GET /a HTTP/1.1\r\n\r\n" GET, 400, true},
        {"version", "GET /a HTTP/1.9\r\nHost: a\r\n\r\n" GET, 505, false},
        {"NUL by percent", "GET /a%00 HTTP/1.1\r\nHost: a\r\n\r\n" GET, 400, false},
        {"method", "get /a HTTP/1.1\r\nHost: a\r\n\r\n" GET, 501, false},
        {"expectation", POST("/a") "Expect: tea\r\nContent-Length: 3\r\n\r\n", 417, false},
        {"refused before the body",
         POST("/refuse") "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n", 405, false},
        {"too large before the body",
         POST("/a") "Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n", 413, false},
        {"far too large", POST("/a") "Content-Length: 8194\r\n\r\n", 413, false},
        {"largest length", POST("/a") "Content-Length: 18446744073709551615\r\n\r\n", 413, true},
        {"HTTP/1.0", "GET /a HTTP/1.0\r\n\r\n", 200, false},
        {"close", "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200, false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct client_connection connection;
        struct client_response response;
        char type[64] = "", value[64];
        open_and_send(&connection, cases[i].request);
        cr_assert(client_receive(&connection, false, &response), "%s", cases[i].what);
        client_header(&response, "Content-Type", type, sizeof type);
        if (cases[i].early && strcmp(type, "application/problem+json") != 0) {
            cr_expect(is_refusal(response.status), "%s: %d", cases[i].what, response.status);
        } else {
            cr_expect_eq(response.status, cases[i].status, "%s: %d", cases[i].what,
                         response.status);
            cr_expect(client_header(&response, "X-Request-Id", value, sizeof value), "%s",
                      cases[i].what);
            cr_expect_str_eq(
                type, response.status == 200 ? "application/json" : "application/problem+json",
                "%s", cases[i].what);
        }
        if (response.status != 200) {
            cr_expect(client_header(&response, "Connection", value, sizeof value), "%s",
                      cases[i].what);
        }
        client_response_free(&response);
        cr_expect(client_at_end(&connection), "%s: still open", cases[i].what);
        client_close(&connection);
    }
}

Test(http_server, pipelining) {
    struct client_connection connection;
    open_and_send(&connection, POST("/1") "Content-Length: 3\r\n\r\nabc" GET POST(
                                   "/2") "Transfer-Encoding: chunked\r\n\r\n"
                                         "3\r\nabc\r\n0\r\n\r\nGET /st");
    for (int i = 0; i < 3; i++) {
        expect_status(&connection, 200, "pipelined");
    }
    const char *rest = "atic HTTP/1.1\r\nHost: a\r\n\r\n";
    cr_assert(client_send(&connection, rest, strlen(rest)));
    expect_status(&connection, 200, "the rest of the last one");
    client_close(&connection);
}

Test(http_server, request_cut_everywhere) {
    const char *text = POST("/cut") "X-Request-Id: i\r\nTransfer-Encoding: "
                                    "chunked\r\n\r\n3\r\nabc\r\n02\r\nde\r\n0\r\n\r\n";
    struct client_connection connection;
    cr_assert(client_open(&connection, http_port(server)));
    for (size_t cut = 1; cut < strlen(text); cut++) {
        struct client_response response;
        cr_assert(client_send(&connection, text, cut));
        sleep_ms(1); /* only to make it likely that the server sees two parts */
        cr_assert(client_send(&connection, text + cut, strlen(text) - cut));
        cr_assert(client_receive(&connection, false, &response), "cut at %zu", cut);
        cr_expect_str_eq(response.body, "POST /cut  i\nabcde", "cut at %zu", cut);
        client_response_free(&response);
    }
    client_close(&connection);
}

/* Content-Length at, over and far over the limit. */
Test(http_server, body_limit_with_a_length) {
    char body[2 * MAX_BODY + 1];
    memset(body, 'x', sizeof body);
    struct client_connection connection;
    struct client_response response;
    cr_assert(client_open(&connection, http_port(server)));
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

/* Chunks up to the limit, over it (answered in the end), far over it (cut). */
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
        open_and_send(&connection, POST("/a") "Transfer-Encoding: chunked\r\n\r\n");
        for (size_t j = 0; j < cases[i].chunks; j++) {
            client_send(&connection, chunk, 5 + 1024 + 2);
        }
        client_send(&connection, "0\r\n\r\n" GET, strlen("0\r\n\r\n" GET));
        if (cases[i].status != 0) {
            expect_status(&connection, cases[i].status, "chunks");
            expect_status(&connection, 200, "the next request");
        } else {
            cr_expect(client_at_end(&connection), "the connection should have been cut");
        }
        client_close(&connection);
    }
    stop_and_count();
}

/* What arrives in crumbs is refused long before it is large. */
Test(http_server_own, body_in_crumbs) {
    enum {
        LOT = 1000,
        LIMIT = 65536
    };
    static const struct {
        int lots, status;
    } cases[] = {
        {LIMIT / LOT, 200}, {LIMIT / LOT + 1, 400}, {200000 / LOT, 400}, {4 * LIMIT / LOT + 2, 0}};
    char error[256];
    const struct http_options options = {.address = "127.0.0.1",
                                         .max_body = 1 << 20,
                                         .max_connections = 10,
                                         .idle_timeout = 30,
                                         .header_timeout = 60,
                                         .body_timeout = 60,
                                         .write_timeout = 60};
    server = http_start(&options, &app, error, sizeof error);
    cr_assert_not_null(server, "%s", error);
    char lot[LOT * 6 + 1];
    for (size_t i = 0; i < LOT; i++) {
        memcpy(lot + i * 6, "1\r\nx\r\n", 7);
    }
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct client_connection connection;
        open_and_send(&connection, POST("/a") "Transfer-Encoding: chunked\r\n\r\n");
        for (int j = 0; j < cases[i].lots; j++) {
            client_send(&connection, lot, sizeof lot - 1);
        }
        client_send(&connection, "0\r\n\r\n", 5);
        if (cases[i].status != 0) {
            expect_status(&connection, cases[i].status, "crumbs");
        } else {
            cr_expect(client_at_end(&connection), "the connection should have been cut");
        }
        client_close(&connection);
    }
    stop_and_count();
}

/* Wherever it leaves, what it began is released. */
Test(http_server, client_leaves) {
    static const char *const parts[] = {
        "GET /a HT",
        "GET /a HTTP/1.1\r\nHo",
        POST("/a") "Content-Length: 100\r\n\r\n",
        POST("/a") "Content-Length: 100\r\n\r\nabc",
        POST("/a") "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5\r\nab",
        POST("/refuse") "Content-Length: 100\r\n\r\nabc",
        POST("/a") "Content-Length: 5000\r\n\r\nabc",
        GET, /* and does not read the answer */
    };
    for (size_t i = 0; i < 4 * COUNT(parts); i++) {
        struct client_connection connection;
        open_and_send(&connection, parts[i % COUNT(parts)]);
        if (i >= 2 * COUNT(parts)) { /* a reset instead of an orderly end */
            setsockopt(connection.fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1},
                       sizeof(struct linger));
        }
        client_close(&connection);
    }
    struct client_connection connection;
    open_and_send(&connection, GET);
    expect_status(&connection, 200, "afterwards");
    client_close(&connection);
    stop_and_count();
}

Test(http_server, bodies_of_responses_are_released) {
    struct client_response response;
    for (int i = 0; i < 10; i++) {
        cr_assert(client_request(http_port(server), i % 2 ? "HEAD" : "GET", "/a", NULL, NULL, 0,
                                 &response));
        client_response_free(&response);
    }
    stop_and_count();
    cr_expect_eq(bodies_freed, 10);
    cr_expect_eq(ended, 10);
}

static size_t count_descriptors(void) {
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    cr_assert_not_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

/* A connection that the server ends is read from for a while, by a descriptor of its own. */
Test(http_server, ended_connections_leave_no_descriptor) {
    const size_t before = count_descriptors();
    for (int i = 0; i < 50; i++) {
        struct client_connection connection;
        open_and_send(&connection, "GET /a HTTP/1.9\r\nHost: a\r\n\r\n");
        expect_status(&connection, 505, "refused");
        client_close(&connection);
    }
    for (int i = 0; i < 10000 && count_descriptors() > before; i++) {
        sleep_ms(1);
    }
    cr_expect_eq(count_descriptors(), before);
}

/* A computation that takes longer than the idle timeout still gets its answer out. */
Test(http_server_own, idle_timeout_spares_work) {
    start_with(1, 10, 1);
    struct client_connection connection;
    open_and_send(&connection, POST("/slow") "Content-Length: 1\r\n\r\nx");
    expect_status(&connection, 200, "slow");
    cr_expect(client_at_end(&connection), "and then the idle connection is closed");
    client_close(&connection);
}

Test(http_server_own, one_connection_too_many_is_closed) {
    start_with(2, 3, 30);
    struct client_connection connections[4];
    for (size_t i = 0; i < 3; i++) {
        open_and_send(&connections[i], GET);
        expect_status(&connections[i], 200, "within the limit");
    }
    cr_assert(client_open(&connections[3], http_port(server)));
    cr_expect(client_at_end(&connections[3]), "beyond the limit");
    client_close(&connections[3]);
    client_send(&connections[0], GET, strlen(GET));
    expect_status(&connections[0], 200, "the others are not touched");
    for (size_t i = 0; i < 3; i++) {
        client_close(&connections[i]);
    }
}

static void *stop_server(void *stopped) {
    *(bool *)stopped = http_stop(server);
    return NULL;
}

/* A request in work when the stop begins is answered in full, and told that the connection ends. */
Test(http_server_own, stop_waits_for_answers) {
    start_with(2, 10, 30);
    struct client_connection idle, connection;
    struct client_response response;
    char value[64] = "";
    pthread_t stopper;
    bool stopped = false;
    open_and_send(&idle, GET);
    expect_status(&idle, 200, "before the stop");
    open_and_send(&connection, POST("/hold") "Content-Length: 3\r\n\r\nabc");
    while (!atomic_load(&holding)) {
        sleep_ms(1);
    }
    cr_assert_eq(pthread_create(&stopper, NULL, stop_server, &stopped), 0);
    sleep_ms(100); /* likely enough for the stop to be under way */
    atomic_store(&let_go, true);
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_eq(response.status, 200);
    cr_expect(client_header(&response, "Connection", value, sizeof value));
    cr_expect_str_eq(value, "close");
    client_response_free(&response);
    pthread_join(stopper, NULL);
    cr_expect(stopped);
    server = NULL;
    cr_expect(client_at_end(&connection));
    cr_expect(client_at_end(&idle));
    client_close(&connection);
    client_close(&idle);
}

/* The app is still at work when the time is up: the stop does not wait for it, until it is called
 * again. */
Test(http_server_own, stop_gives_up_on_work_without_end) {
    start_with(2, 10, 30);
    struct client_connection idle, connection;
    open_and_send(&idle, GET);
    expect_status(&idle, 200, "before the stop");
    open_and_send(&connection, POST("/hold") "Content-Length: 3\r\n\r\nabc");
    while (!atomic_load(&holding)) {
        sleep_ms(1);
    }
    cr_expect_not(http_stop(server));
    unsigned before = begun;
    client_send(&idle, GET, strlen(GET)); /* perhaps on the very thread that is at work */
    atomic_store(&let_go, true);
    cr_expect(client_at_end(&idle), "no request is answered any more");
    cr_expect_eq(begun, before);
    while (atomic_load(&released) < before) {
        sleep_ms(1);
    }
    cr_expect(http_stop(server));
    server = NULL;
    client_close(&connection);
    client_close(&idle);
}

/* A client that does not go on is no reason to wait without end. */
Test(http_server_own, stop_cuts_off_slow_clients) {
    start_with(2, 10, 30);
    struct client_connection connection;
    open_and_send(&connection, POST("/a") "Content-Length: 3\r\n\r\na");
    while (atomic_load(&begun) == 0) {
        sleep_ms(1);
    }
    cr_expect(http_stop(server));
    server = NULL;
    cr_expect(client_at_end(&connection));
    cr_expect_eq(released, 1);
    client_close(&connection);
}

Test(http_server_own, start_says_why_it_cannot) {
    char error[256] = "", wanted[192];
    struct http_options options = {.address = "127.0.0.1",
                                   .threads = 1,
                                   .max_body = 1,
                                   .max_connections = 1,
                                   .idle_timeout = 1};
    start_with(1, 10, 30);
    options.port = http_port(server);
    cr_expect_null(http_start(&options, &app, error, sizeof error));
    snprintf(wanted, sizeof wanted,
             "cannot listen on 127.0.0.1:%u: the port is in use; choose another one with --port "
             "(make run ARGS=\"--port %u\")",
             options.port, options.port < 65535 ? options.port + 1 : options.port - 1);
    cr_expect_str_eq(error, wanted);
    options.address = "here";
    cr_expect_null(http_start(&options, &app, error, sizeof error));
    cr_expect_not_null(strstr(error, "\"here\""), "%s", error);
}
