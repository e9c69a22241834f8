/*
 * test_framing.c - requests that break the rules of HTTP, sent to the daemon over a raw socket.
 * Most are rows of data/framing.txt, which also says what is promised of each; hostile/proxies.py
 * sends the same rows through proxies.
 *
 * libmicrohttpd answers requests that it cannot parse with a page of its own. Version 0.9.75 does
 * so rarely; 1.x does so for most malformed requests. Any
 * status is right if it refuses and the connection ends. 0.9.75 accepts NUL in a target or value, a
 * bare LF, folded headers (it appends the folded line to the name of the header) and a header
 * without a name. The server's filter finds these by the bytes that are left between the parts of a
 * head; 1.x refuses them itself. No filter can see two things in a chunked body: 0.9.75 hides chunk
 * extensions and bare LF, and every version hides trailers. If a proxy did not take such a bare LF
 * for the end of a line and forwarded it, the proxy and 0.9.75 would disagree on where a request
 * ends.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/rows.h"

enum promise {
    KEPT,    /* the daemon answers, and the connection stays */
    ENDED,   /* the daemon answers, and the connection ends */
    REFUSED, /* ENDED, or libmicrohttpd refuses the request and closes */
    SILENT,  /* REFUSED, or libmicrohttpd closes without an answer */
    HARMLESS /* KEPT, or libmicrohttpd refuses and closes, with an answer or without one */
};

struct probe {
    const char *name;
    const char *bytes;
    size_t size;
    int status; /* the status of the daemon's answer */
    enum promise promise;
};

#define PROBE(name_, bytes_, status_, promise_)                                                    \
    {                                                                                              \
        .name = name_, .bytes = bytes_, .size = sizeof(bytes_) - 1, .status = status_,             \
        .promise = promise_                                                                        \
    }

#define LIVE    "GET /health/live HTTP/1.1\r\nHost: a\r\n"
#define SOFTMAX "POST /softmax HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
#define BODY    "{\"X\":[0,0]}" /* 11 bytes */
#define CHUNKED SOFTMAX "Transfer-Encoding: chunked\r\n\r\n"
#define LENGTH  SOFTMAX "Content-Length: 11\r\n"

/* ---------------------------------------------------------------------------- data/framing.txt */

static enum promise promise_called(const char *word) {
    static const char *const words[] = {"kept", "ended", "refused", "silent", "harmless"};
    size_t i = 0;
    while (i < COUNT(words) && strcmp(words[i], word) != 0) {
        i++;
    }
    cr_assert(i < COUNT(words), "no such promise: %s", word);
    return (enum promise)i;
}

/* Reads the next row. Its name and its bytes are valid until the next one is read. */
static bool next_probe(struct rows *rows, struct probe *probe) {
    static char name[80], bytes[ROWS_BYTES];
    char word[16];
    int at = 0;
    if (!rows_next(rows)) {
        return false;
    }
    cr_assert_eq(sscanf(rows->line, "%d %15s %79[^:]: %n", &probe->status, word, name, &at), 3,
                 "no row: %s", rows->line);
    probe->promise = promise_called(word);
    probe->name = name;
    probe->bytes = bytes;
    probe->size = rows_expand(rows, rows->line + at, bytes);
    return true;
}

/* ------------------------------------------------------------------------------------ the tests */

static void start_small(void) {
    static const char *const arguments[] = {"--max-body", "1KiB", NULL};
    daemon_start(arguments);
}

TestSuite(framing, .init = start_small, .fini = daemon_end, .timeout = 1200);
TestSuite(framing_own, .timeout = 1200);

/* Expects that nothing follows the answer: no second head, and no body behind HEAD. */
static void expect_end(struct client_connection *connection, const struct probe *probe) {
    cr_expect(client_at_end(connection), "%s: more than one answer", probe->name);
}

/* Returns whether the bytes begin with the method HEAD. */
static bool asks_head(const struct probe *probe) {
    return probe->size > 5 && memcmp(probe->bytes, "HEAD ", 5) == 0;
}

/* Expects that the next request on the connection gets one answer. */
static void expect_alive(struct client_connection *connection, const struct probe *probe) {
    struct client_response response;
    static const char last[] = LIVE "Connection: close\r\n\r\n";
    if (!client_send(connection, last, sizeof last - 1) ||
        !client_receive(connection, false, &response)) {
        cr_expect_fail("%s: the connection is not usable afterwards", probe->name);
        return;
    }
    cr_expect_eq(response.status, 200, "%s: afterwards %d", probe->name, response.status);
    client_response_free(&response);
    cr_expect(client_at_end(connection), "%s: one answer too many", probe->name);
}

/* Says whether the answer is a page of libmicrohttpd. Such a page has no media type or
 * text/html. */
static bool is_foreign(const struct client_response *response) {
    char type[64] = "";
    client_header(response, "Content-Type", type, sizeof type);
    return type[0] == '\0' || strncmp(type, "text/html", 9) == 0;
}

static void expect_ours(const struct client_response *response, const struct probe *probe) {
    char value[256] = "";
    cr_expect_eq(response->status, probe->status, "%s: %d, not %d", probe->name, response->status,
                 probe->status);
    client_header(response, "Content-Type", value, sizeof value);
    cr_expect_str_eq(value,
                     response->status == 200 ? "application/json" : "application/problem+json",
                     "%s: the answer is of type %s", probe->name, value);
    cr_expect(client_header(response, "X-Request-Id", value, sizeof value), "%s: no id",
              probe->name);
}

static void run_probe(const struct probe *probe) {
    struct client_connection connection;
    struct client_response response;
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_send(&connection, probe->bytes, probe->size));
    if (!client_receive(&connection, asks_head(probe), &response)) {
        cr_expect_geq(probe->promise, SILENT, "%s: no answer", probe->name);
        client_close(&connection);
        return;
    }
    const bool harmless = probe->promise == HARMLESS && response.status != probe->status;
    if (harmless || (probe->promise >= REFUSED && is_foreign(&response))) {
        int status = response.status;
        cr_expect((status >= 400 && status < 500) || status == 501 || status == 505,
                  "%s: %d is no refusal", probe->name, status);
        expect_end(&connection, probe);
    } else {
        expect_ours(&response, probe);
        if (probe->promise == KEPT || probe->promise == HARMLESS) {
            expect_alive(&connection, probe);
        } else {
            expect_end(&connection, probe);
        }
    }
    client_response_free(&response);
    client_close(&connection);
}

/* Promises 23 and 25. The daemon refuses compressed bodies by their heads. */
Test(framing, promise_23_probes) {
    static struct rows rows;
    struct probe probe;
    size_t count = 0;
    rows_open(&rows, "framing.txt");
    for (; next_probe(&rows, &probe); count++) {
        run_probe(&probe);
    }
    cr_expect_gt(count, 100);
    rows_close(&rows);
}

/* Sends targets of `target` bytes, and `headers` headers beside the three that the client adds,
 * around the limits of both. */
Test(framing, limits_of_heads) {
    static const struct {
        size_t target, headers;
        int status;
    } cases[] = {{2048, 0, 404}, {2049, 0, 414}, {2, 60, 404}, {2, 61, 404}, {2, 62, 431}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        char path[2050] = "/", headers[1024] = "";
        memset(path + 1, 'a', cases[i].target - 1);
        path[cases[i].target] = '\0';
        for (size_t j = 0, size = 0; j < cases[i].headers; j++) {
            size += (size_t)sprintf(headers + size, "A%zu: b\r\n", j);
        }
        struct client_response response = daemon_ask("GET", path, headers);
        cr_expect_eq(response.status, cases[i].status, "%zu bytes, %zu headers: %d",
                     cases[i].target, cases[i].headers, response.status);
        client_response_free(&response);
    }
}

/* Promise 24: bodies at the limit and one byte longer, with a length and in chunks. */
Test(framing, promise_24_limit_of_bodies) {
    static const char type[] = "Content-Type: application/json\r\n";
    daemon_connect();
    for (size_t size = 1023; size <= 1026; size++) {
        for (int chunked = 0; chunked < 2; chunked++) {
            char body[2048];
            const struct probe probe = {"a body near the limit", body, size,
                                        size <= 1024 ? 200 : 413, KEPT};
            sprintf(body, "{\"X\":[0,0]%*s}", (int)size - 11, "");
            struct client_response response =
                chunked ? daemon_ask_in_chunks("/softmax", type, body, size, size)
                        : daemon_ask_shared("POST", "/softmax", type, body, size);
            expect_ours(&response, &probe);
            cr_expect(size <= 1024 || strstr(response.body, "at most 1024,") != NULL, "%s",
                      response.body);
            client_response_free(&response);
            response = daemon_ask_shared("GET", "/health/live", "", "", 0);
            cr_expect_eq(response.status, 200);
            client_response_free(&response);
        }
    }
}

/* libmicrohttpd refuses what does not fit into its buffer. Version 0.9.75 answers an endless chunk
 * extension with a 500 of its own, which no filter sees. The connection ends without a 200. */
Test(framing, promise_24_what_outgrows_the_buffer) {
    static const struct {
        const char *name, *before, *after;
        int status; /* 0: any status that refuses */
    } cases[] = {
        {"a header of 40 KB", LIVE "A: ", "\r\n\r\n", 431},
        {"a header name of 40 KB", LIVE, ": b\r\n\r\n", 431},
        {"a target of HEAD of 40 KB", "HEAD /", " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
        {"cookies of 20 KB", LIVE "Cookie: a=", "\r\n\r\n", 431},
        {"a target of 40 KB", "GET /", " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
        {"a method of 40 KB", "", " / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
        {"a chunk extension of 60 KB", CHUNKED "b;", "\r\n" BODY "\r\n0\r\n\r\n", 0},
        {"a trailer of 60 KB", CHUNKED "b\r\n" BODY "\r\n0\r\nA: ", "\r\n\r\n", 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        static char filler[60000];
        const size_t size = strstr(cases[i].name, "60") != NULL   ? sizeof filler
                            : strstr(cases[i].name, "20") != NULL ? 20000
                                                                  : 40000;
        struct client_connection connection;
        struct client_response response;
        memset(filler, 'a', sizeof filler);
        cr_assert(client_open(&connection, the_daemon.port));
        (void)(client_send(&connection, cases[i].before, strlen(cases[i].before)) &&
               client_send(&connection, filler, size) &&
               client_send(&connection, cases[i].after, strlen(cases[i].after)));
        /* The daemon closes with unread bytes, so TCP sends a reset, which may overtake the
         * refusal. */
        if (client_receive(&connection, cases[i].before[0] == 'H', &response)) {
            cr_expect(cases[i].status != 0 ? response.status == cases[i].status
                                           : response.status >= 400,
                      "%s: %d", cases[i].name, response.status);
            client_response_free(&response);
            cr_expect(client_at_end(&connection), "%s: more than one answer", cases[i].name);
        }
        client_close(&connection);
    }
    struct client_connection connection;
    cr_assert(client_open(&connection, the_daemon.port));
    expect_alive(&connection, &(struct probe){.name = "what outgrows the buffer"});
    client_close(&connection);
}

/* Bytes that never become a request: the time limit for heads or bodies ends the connection. */
Test(framing_own, promise_23_what_never_ends) {
    static const struct probe endless[] = {
        PROBE("hello of TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 0, ENDED),
        PROBE("no line end", "\x80\x81\x82\x83", 0, ENDED),
        PROBE("head without an end", LIVE, 0, ENDED),
        PROBE("chunk size 2^64-1", CHUNKED "ffffffffffffffff\r\n" BODY, 0, ENDED),
        PROBE("chunk size 2^63", CHUNKED "8000000000000000\r\n" BODY, 0, ENDED),
        PROBE("chunk without an end", CHUNKED "b\r\n", 0, ENDED),
        PROBE("body without an end", LENGTH "\r\n{", 0, ENDED),
        PROBE("nothing", "", 0, ENDED),
    };
    static const char *const hasty[] = {"--header-timeout", "1", "--body-timeout", "1", NULL};
    struct client_connection connections[COUNT(endless)];
    daemon_start(hasty);
    for (size_t i = 0; i < COUNT(endless); i++) {
        cr_assert(client_open(&connections[i], the_daemon.port));
        cr_assert(client_send(&connections[i], endless[i].bytes, endless[i].size));
    }
    for (size_t i = 0; i < COUNT(endless); i++) {
        struct client_response response;
        if (client_receive(&connections[i], false, &response)) {
            cr_expect(response.status >= 400 && response.status < 500, "%s: %d", endless[i].name,
                      response.status);
            client_response_free(&response);
        }
        cr_expect(client_at_end(&connections[i]), "%s: more than one answer", endless[i].name);
        client_close(&connections[i]);
    }
    daemon_end();
}

/* Three requests, two of them for the same path, arrive in one packet and are answered in order. */
Test(framing, pipelining) {
    static const char requests[] =
        LENGTH "\r\n" BODY LIVE "\r\n" CHUNKED "b\r\n" BODY "\r\n0\r\n\r\n";
    static const char *const words[] = {"\"output\"", "\"live\"", "\"output\""};
    struct client_connection connection;
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_send(&connection, requests, sizeof requests - 1));
    for (size_t i = 0; i < COUNT(words); i++) {
        struct client_response response;
        cr_assert(client_receive(&connection, false, &response));
        cr_expect_not_null(strstr(response.body, words[i]), "%zu: %s", i, response.body);
        client_response_free(&response);
    }
    client_close(&connection);
}
