/*
 * test_framing.c - bytes that are no honest HTTP, sent to the daemon over a raw socket.
 * Each row: what is sent, the statuses of all that comes back, and whether the connection lives on.
 *
 * libmicrohttpd (0.9.75) itself answers what it cannot parse, in HTML, a bad Content-Length even
 * twice (newer ones once). It is never asked to be right here, only to answer with the right
 * status and to close. It hides from us, and so these stay 200: NUL in a target or value, bare LF,
 * folded headers, and what follows a header without a name. A proxy in front refuses all of these.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/client.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum after {
    KEPT,
    ENDED
};

struct probe {
    const char *name;
    const char *bytes;
    size_t size;
    int status; /* of every response */
    enum after after;
};

#define PROBE(name_, bytes_, status_, after_)                                                      \
    {                                                                                              \
        .name = name_, .bytes = bytes_, .size = sizeof(bytes_) - 1, .status = status_,             \
        .after = after_                                                                            \
    }

#define LIVE    "GET /health/live HTTP/1.1\r\nHost: a\r\n"
#define SOFTMAX "POST /softmax HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
#define BODY    "{\"X\":[0,0]}" /* 11 bytes */
#define CHUNKED SOFTMAX "Transfer-Encoding: chunked\r\n\r\n"
#define LENGTH  SOFTMAX "Content-Length: 11\r\n"

static const struct probe probes[] = {
    /* where a body ends */
    PROBE("sound", LENGTH "\r\n" BODY, 200, KEPT),
    PROBE("length with a zero in front", SOFTMAX "Content-Length: 011\r\n\r\n" BODY, 200, KEPT),
    PROBE("transfer gzip", SOFTMAX "Transfer-Encoding: gzip\r\n\r\n", 501, ENDED),
    PROBE("transfer gzip, chunked", SOFTMAX "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
          501, ENDED),
    PROBE("transfer identity and length", LENGTH "Transfer-Encoding: identity\r\n\r\n" BODY, 400,
          ENDED),
    PROBE("transfer xchunked and length", LENGTH "Transfer-Encoding: xchunked\r\n\r\n" BODY, 400,
          ENDED),
    PROBE("chunked and length", LENGTH "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" LIVE "\r\n",
          400, ENDED),
    PROBE("length and chunked",
          SOFTMAX "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" LIVE "\r\n",
          400, ENDED),
    PROBE("two transfer encodings",
          SOFTMAX "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400,
          ENDED),
    PROBE("space after Transfer-Encoding",
          SOFTMAX "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" LIVE "\r\n", 400, ENDED),
    PROBE("space after Content-Length", SOFTMAX "Content-Length : 37\r\n\r\n" LIVE "\r\n", 400,
          ENDED),
    PROBE("chunked in HTTP/1.0",
          "POST /softmax HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
          ENDED),
    PROBE("lengths 3 and 5", SOFTMAX "Content-Length: 3\r\nContent-Length: 5\r\n\r\n12345", 400,
          ENDED),
    PROBE("lengths 5 and 3", SOFTMAX "Content-Length: 5\r\nContent-Length: 3\r\n\r\n12345", 400,
          ENDED),
    PROBE("length twice", LENGTH "Content-Length: 11\r\n\r\n" BODY, 400, ENDED),
    PROBE("length +3", SOFTMAX "Content-Length: +3\r\n\r\nabc", 400, ENDED),
    PROBE("length -1", SOFTMAX "Content-Length: -1\r\n\r\nabc", 400, ENDED),
    PROBE("length 0x3", SOFTMAX "Content-Length: 0x3\r\n\r\nabc", 400, ENDED),
    PROBE("length 3,3", SOFTMAX "Content-Length: 3,3\r\n\r\nabc", 400, ENDED),
    PROBE("length 3a", SOFTMAX "Content-Length: 3a\r\n\r\nabc", 400, ENDED),
    PROBE("empty length", SOFTMAX "Content-Length:\r\n\r\nabc", 400, ENDED),
    PROBE("length 2^63", SOFTMAX "Content-Length: 9223372036854775808\r\n\r\n", 413, ENDED),
    PROBE("length 2^64-1", SOFTMAX "Content-Length: 18446744073709551615\r\n\r\n", 413, ENDED),
    PROBE("length 2^64", SOFTMAX "Content-Length: 18446744073709551616\r\n\r\n", 413, ENDED),
    /* chunks */
    PROBE("one chunk", CHUNKED "b\r\n" BODY "\r\n0\r\n\r\n", 200, KEPT),
    PROBE("chunk extension", CHUNKED "b;a=b\r\n" BODY "\r\n0;c\r\n\r\n", 200, KEPT),
    PROBE("trailer that is a length", CHUNKED "b\r\n" BODY "\r\n0\r\nContent-Length: 3\r\n\r\n",
          200, KEPT),
    PROBE("chunk size 0x3", CHUNKED "0x3\r\nabc\r\n0\r\n\r\n", 400, ENDED),
    PROBE("chunk size +3", CHUNKED "+3\r\nabc\r\n0\r\n\r\n", 400, ENDED),
    PROBE("chunk size without digits", CHUNKED "\r\nabc\r\n0\r\n\r\n", 400, ENDED),
    PROBE("chunk without its line end", CHUNKED "3\r\nabcd\r\n0\r\n\r\n", 400, ENDED),
    PROBE("chunk size 2^64", CHUNKED "10000000000000000\r\nabc", 413, ENDED),
    /* the request line */
    PROBE("HTTP/1.0", "GET /health/live HTTP/1.0\r\n\r\n", 200, ENDED),
    PROBE("HTTP/1.9", "GET /health/live HTTP/1.9\r\nHost: a\r\n\r\n", 505, ENDED),
    PROBE("HTTP/2.0", "GET /health/live HTTP/2.0\r\nHost: a\r\n\r\n", 505, ENDED),
    PROBE("preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, ENDED),
    PROBE("no version", "GET /health/live\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("lower-case method", "get /health/live HTTP/1.1\r\nHost: a\r\n\r\n", 501, ENDED),
    PROBE("unknown method", "BREW /health/live HTTP/1.1\r\nHost: a\r\n\r\n", 501, ENDED),
    PROBE("TRACE", "TRACE /health/live HTTP/1.1\r\nHost: a\r\n\r\n", 501, ENDED),
    PROBE("CONNECT", "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 501, ENDED),
    PROBE("space in the target", "GET /health /live HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("control character in the target", "GET /health\x01/live HTTP/1.1\r\nHost: a\r\n\r\n",
          400, ENDED),
    PROBE("byte over 127 in the target", "GET /h\xe9 HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("backslash", "GET /health\\live HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("%00", "GET /health/live%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("%0d%0a", "GET /health/live%0d%0aA: HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("% without digits", "GET /health/live%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("parent folder", "GET /a/../health/live HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("absolute form", "GET http://b/health/live HTTP/1.1\r\nHost: a\r\n\r\n", 200, KEPT),
    PROBE("asterisk form", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 404, KEPT),
    PROBE("encoded letter", "GET /%68ealth/live HTTP/1.1\r\nHost: a\r\n\r\n", 200, KEPT),
    PROBE("empty lines in front", "\r\n\r\n" LIVE "\r\n", 200, KEPT),
    /* headers */
    PROBE("no Host", "GET /health/live HTTP/1.1\r\n\r\n", 400, ENDED),
    PROBE("two Hosts", LIVE "Host: b\r\n\r\n", 400, ENDED),
    PROBE("header without a colon", LIVE "Header\r\n\r\n", 400, ENDED),
    PROBE("control character in a value", LIVE "A: b\x01c\r\n\r\n", 400, ENDED),
    PROBE("comma in a name", LIVE "A,b: c\r\n\r\n", 400, ENDED),
    PROBE("other expectation", LENGTH "Expect: tea\r\n\r\n", 417, ENDED),
    PROBE("gzip body", LENGTH "Content-Encoding: gzip\r\n\r\n" BODY, 415, KEPT),
    PROBE("deflate body", LENGTH "Content-Encoding: deflate\r\n\r\n" BODY, 415, KEPT),
    PROBE("gzip, identity body", LENGTH "Content-Encoding: gzip, identity\r\n\r\n" BODY, 415, KEPT),
    PROBE("upgrade to h2c", LIVE "Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 200, KEPT),
    /* refusals that are no matter of framing */
    PROBE("no such path", "POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 404,
          KEPT),
    PROBE("no such method",
          "DELETE /health/live HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 405, KEPT),
    PROBE("no such media type",
          "POST /softmax HTTP/1.1\r\nHost: a\r\nContent-Type: text/html\r\nContent-Length: "
          "3\r\n\r\nabc",
          415, KEPT),
    PROBE("no JSON", SOFTMAX "Content-Length: 3\r\n\r\nabc", 400, KEPT),
    PROBE("no call", SOFTMAX "Content-Length: 8\r\n\r\n{\"X\":{}}", 422, KEPT),
    PROBE("too large, but not by much", SOFTMAX "Content-Length: 2048\r\n\r\n", 413,
          KEPT), /* + its body */
};

static struct server_process server;

static void start(void) {
    static const char *const arguments[] = {"--max-body", "1KiB", NULL};
    cr_assert(server_spawn(&server, arguments), "ATTENTIOND_BIN=%s did not start",
              getenv("ATTENTIOND_BIN"));
}

static void stop(void) {
    server_stop(&server);
}

TestSuite(framing, .init = start, .fini = stop, .timeout = 120);

/* All responses have the status; there is one, or two where libmicrohttpd answers in HTML. */
static void expect_end(struct client_connection *connection, const struct probe *probe, bool html) {
    struct client_response response;
    while (client_receive(connection, false, &response)) {
        cr_expect(html && response.status == probe->status, "%s: a second answer, %d", probe->name,
                  response.status);
        client_response_free(&response);
    }
}

/* The next request on the connection is answered, once. */
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

static void run_probe(const struct probe *probe) {
    struct client_connection connection;
    struct client_response response;
    char type[64] = "";
    cr_assert(client_open(&connection, server.port));
    cr_assert(client_send(&connection, probe->bytes, probe->size));
    if (probe->status == 413 && probe->after == KEPT) {
        char body[2048];
        memset(body, ' ', sizeof body);
        cr_assert(client_send(&connection, body, sizeof body));
    }
    cr_assert(client_receive(&connection, false, &response), "%s: no answer", probe->name);
    cr_expect_eq(response.status, probe->status, "%s: %d, not %d", probe->name, response.status,
                 probe->status);
    client_header(&response, "Content-Type", type, sizeof type);
    /* No problem document, so libmicrohttpd's own page: it sends that without a type, or as
     * text/html. */
    bool html = type[0] == '\0' || strncmp(type, "text/html", 9) == 0;
    cr_expect(html || response.status == 200 || strcmp(type, "application/problem+json") == 0,
              "%s: the answer is of type %s", probe->name, type);
    cr_expect(!html || probe->after == ENDED, "%s: not answered by us", probe->name);
    client_response_free(&response);
    if (probe->after == ENDED)
        expect_end(&connection, probe, html);
    else
        expect_alive(&connection, probe);
    client_close(&connection);
}

Test(framing, probes) {
    for (size_t i = 0; i < COUNT(probes); i++)
        run_probe(&probes[i]);
}

/* "GET /aaa...", the target `size` bytes long; and 63 or 64 headers beside Host. */
Test(framing, limits_of_heads) {
    static const struct {
        size_t target, headers;
        int status;
    } cases[] = {{2048, 0, 404}, {2049, 0, 414}, {40000, 0, 414}, {1, 62, 404},
                 {1, 63, 404},   {1, 64, 431},   {1, 3000, 431}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t room = cases[i].target + cases[i].headers * 16 + 256;
        char *text = malloc(room);
        cr_assert_not_null(text);
        size_t size = (size_t)sprintf(text, "GET /");
        memset(text + size, 'a', cases[i].target - 1);
        size += cases[i].target - 1;
        size += (size_t)sprintf(text + size, " HTTP/1.1\r\nHost: a\r\n");
        for (size_t j = 0; j < cases[i].headers; j++)
            size += (size_t)sprintf(text + size, "A%zu: b\r\n", j);
        size += (size_t)sprintf(text + size, "\r\n");
        struct client_connection connection;
        struct client_response response;
        cr_assert(client_open(&connection, server.port));
        client_send(&connection, text, size); /* may be cut short by the refusal */
        if (client_receive(&connection, false, &response)) {
            cr_expect_eq(response.status, cases[i].status, "%zu bytes, %zu headers: %d",
                         cases[i].target, cases[i].headers, response.status);
            client_response_free(&response);
        } else {
            /* a close with unread bytes is a reset, which may overtake the answer */
            cr_expect(cases[i].target > 32768 || cases[i].headers > 1000, "case %zu: no answer", i);
        }
        client_close(&connection);
        free(text);
    }
}

/* A sound request cut at every byte, the client then gone: never an answer, never a crash. */
Test(framing, truncation) {
    static const char request[] = LENGTH "\r\n" BODY;
    for (size_t size = 0; size < sizeof request - 1; size++) {
        struct client_connection connection;
        cr_assert(client_open(&connection, server.port));
        cr_assert(client_send(&connection, request, size));
        client_close(&connection);
    }
    struct client_response response;
    cr_assert(client_request(server.port, "GET", "/health/live", NULL, NULL, 0, &response));
    cr_expect_eq(response.status, 200);
    client_response_free(&response);
    cr_expect_eq(server_stop(&server), 0);
}

/* A body in chunks of one byte means what it means in one piece. */
Test(framing, chunks_of_one_byte) {
    char text[1024] = CHUNKED;
    size_t size = strlen(text);
    for (const char *c = BODY; *c != '\0'; c++)
        size += (size_t)sprintf(text + size, "1\r\n%c\r\n", *c);
    size += (size_t)sprintf(text + size, "0\r\n\r\n");
    struct client_connection connection;
    struct client_response chunked, whole;
    cr_assert(client_open(&connection, server.port));
    cr_assert(client_send(&connection, text, size));
    cr_assert(client_receive(&connection, false, &chunked));
    cr_assert(client_request(server.port, "POST", "/softmax", "Content-Type: application/json\r\n",
                             BODY, strlen(BODY), &whole));
    cr_expect_eq(chunked.status, 200);
    cr_expect_str_eq(chunked.body, whole.body);
    client_response_free(&chunked);
    client_response_free(&whole);
    client_close(&connection);
}

/* Three requests of two kinds in one packet are answered in their order. */
Test(framing, pipelining) {
    static const char requests[] =
        LENGTH "\r\n" BODY LIVE "\r\n" CHUNKED "b\r\n" BODY "\r\n0\r\n\r\n";
    static const char *const words[] = {"\"output\"", "\"live\"", "\"output\""};
    struct client_connection connection;
    cr_assert(client_open(&connection, server.port));
    cr_assert(client_send(&connection, requests, sizeof requests - 1));
    for (size_t i = 0; i < COUNT(words); i++) {
        struct client_response response;
        cr_assert(client_receive(&connection, false, &response));
        cr_expect_not_null(strstr(response.body, words[i]), "%zu: %s", i, response.body);
        client_response_free(&response);
    }
    client_close(&connection);
}
