/*
 * test_framing.c - bytes that are no honest HTTP, sent to the daemon over a raw socket.
 * Each row: what is sent, and what is promised with every libmicrohttpd: that ours is the answer,
 * or that the bytes are refused, by whomever, or that they do no harm.
 *
 * libmicrohttpd itself answers what it cannot parse, with a page of its own: 0.9.75 little, and a
 * bad Content-Length even twice; 1.x most of what is malformed. Its status is its own affair as
 * long as it refuses and closes. What no filter can see, 0.9.75 hides from us and 1.x refuses: NUL
 * in a target or value, bare LF, folded headers, chunk extensions, and a header without a name. A
 * proxy in front refuses all of these.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/client.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum promise {
    KEPT,    /* ours is the answer, and the connection lives on */
    ENDED,   /* ours is the answer, and the connection ends */
    REFUSED, /* as ENDED, or libmicrohttpd refuses it and closes */
    HARMLESS /* as KEPT, or libmicrohttpd refuses it and closes, if need be without a word */
};

struct probe {
    const char *name;
    const char *bytes;
    size_t size;
    int status; /* of our answer */
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

static const struct probe probes[] = {
    /* where a body ends */
    PROBE("sound", LENGTH "\r\n" BODY, 200, KEPT),
    PROBE("length with a zero in front", SOFTMAX "Content-Length: 011\r\n\r\n" BODY, 200, KEPT),
    PROBE("transfer gzip", SOFTMAX "Transfer-Encoding: gzip\r\n\r\n", 501, REFUSED),
    PROBE("transfer gzip, chunked", SOFTMAX "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
          501, REFUSED),
    PROBE("transfer identity and length", LENGTH "Transfer-Encoding: identity\r\n\r\n" BODY, 400,
          REFUSED),
    PROBE("transfer xchunked and length", LENGTH "Transfer-Encoding: xchunked\r\n\r\n" BODY, 400,
          REFUSED),
    PROBE("chunked and length", LENGTH "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" LIVE "\r\n",
          400, REFUSED),
    PROBE("length and chunked",
          SOFTMAX "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" LIVE "\r\n",
          400, REFUSED),
    PROBE("two transfer encodings",
          SOFTMAX "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 400,
          ENDED),
    PROBE("space after Transfer-Encoding",
          SOFTMAX "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" LIVE "\r\n", 400, REFUSED),
    PROBE("space after Content-Length", SOFTMAX "Content-Length : 37\r\n\r\n" LIVE "\r\n", 400,
          REFUSED),
    PROBE("chunked in HTTP/1.0",
          "POST /softmax HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
          ENDED),
    PROBE("lengths 3 and 5", SOFTMAX "Content-Length: 3\r\nContent-Length: 5\r\n\r\n12345", 400,
          ENDED),
    PROBE("lengths 5 and 3", SOFTMAX "Content-Length: 5\r\nContent-Length: 3\r\n\r\n12345", 400,
          ENDED),
    PROBE("length twice", LENGTH "Content-Length: 11\r\n\r\n" BODY, 400, ENDED),
    PROBE("length +3", SOFTMAX "Content-Length: +3\r\n\r\nabc", 400, REFUSED),
    PROBE("length -1", SOFTMAX "Content-Length: -1\r\n\r\nabc", 400, REFUSED),
    PROBE("length 0x3", SOFTMAX "Content-Length: 0x3\r\n\r\nabc", 400, REFUSED),
    PROBE("length 3,3", SOFTMAX "Content-Length: 3,3\r\n\r\nabc", 400, REFUSED),
    PROBE("length 3a", SOFTMAX "Content-Length: 3a\r\n\r\nabc", 400, REFUSED),
    PROBE("empty length", SOFTMAX "Content-Length:\r\n\r\nabc", 400, REFUSED),
    PROBE("length 2^63", SOFTMAX "Content-Length: 9223372036854775808\r\n\r\n", 413, REFUSED),
    PROBE("length 2^64-1", SOFTMAX "Content-Length: 18446744073709551615\r\n\r\n", 413, REFUSED),
    PROBE("length 2^64", SOFTMAX "Content-Length: 18446744073709551616\r\n\r\n", 413, REFUSED),
    /* chunks */
    PROBE("one chunk", CHUNKED "b\r\n" BODY "\r\n0\r\n\r\n", 200, KEPT),
    PROBE("chunk extension", CHUNKED "b;a=b\r\n" BODY "\r\n0;c\r\n\r\n", 200, HARMLESS),
    PROBE("trailer that is a length", CHUNKED "b\r\n" BODY "\r\n0\r\nContent-Length: 3\r\n\r\n",
          200, KEPT),
    PROBE("chunk size 0x3", CHUNKED "0x3\r\nabc\r\n0\r\n\r\n", 400, REFUSED),
    PROBE("chunk size +3", CHUNKED "+3\r\nabc\r\n0\r\n\r\n", 400, REFUSED),
    PROBE("chunk size without digits", CHUNKED "\r\nabc\r\n0\r\n\r\n", 400, REFUSED),
    PROBE("chunk without its line end", CHUNKED "3\r\nabcd\r\n0\r\n\r\n", 400, REFUSED),
    PROBE("chunk size 2^64", CHUNKED "10000000000000000\r\nabc", 413, REFUSED),
    /* the request line */
    PROBE("HTTP/1.0", "GET /health/live HTTP/1.0\r\n\r\n", 200, ENDED),
    PROBE("HTTP/1.9", "GET /health/live HTTP/1.9\r\nHost: a\r\n\r\n", 505, ENDED),
    PROBE("HTTP/2.0", "GET /health/live HTTP/2.0\r\nHost: a\r\n\r\n", 505, REFUSED),
    PROBE("preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, REFUSED),
    PROBE("no version", "GET /health/live\r\nHost: a\r\n\r\n", 400, REFUSED),
    PROBE("lower-case method", "get /health/live HTTP/1.1\r\nHost: a\r\n\r\n", 501, ENDED),
    PROBE("unknown method", "BREW /health/live HTTP/1.1\r\nHost: a\r\n\r\n", 501, ENDED),
    PROBE("TRACE", "TRACE /health/live HTTP/1.1\r\nHost: a\r\n\r\n", 501, ENDED),
    PROBE("CONNECT", "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 501, ENDED),
    PROBE("space before the target", "GET  /health/live HTTP/1.1\r\nHost: a\r\n\r\n", 200,
          HARMLESS),
    PROBE("tab in the target", "GET /health\t/live HTTP/1.1\r\nHost: a\r\n\r\n", 400, REFUSED),
    PROBE("NUL in the target", "GET /health/live\0 HTTP/1.1\r\nHost: a\r\n\r\n", 200, HARMLESS),
    PROBE("space in the target", "GET /health /live HTTP/1.1\r\nHost: a\r\n\r\n", 400, REFUSED),
    PROBE("control character in the target", "GET /health\x01/live HTTP/1.1\r\nHost: a\r\n\r\n",
          400, REFUSED),
    PROBE("byte over 127 in the target", "GET /h\xe9 HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("backslash", "GET /health\\live HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("%00", "GET /health/live%00 HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("%0d%0a", "GET /health/live%0d%0aA: HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("% without digits", "GET /health/live%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("parent folder", "GET /a/../health/live HTTP/1.1\r\nHost: a\r\n\r\n", 400, ENDED),
    PROBE("absolute form", "GET http://b/health/live HTTP/1.1\r\nHost: a\r\n\r\n", 200, KEPT),
    PROBE("asterisk form", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 404, KEPT),
    PROBE("encoded letter", "GET /%68ealth/live HTTP/1.1\r\nHost: a\r\n\r\n", 200, KEPT),
    PROBE("empty line in front", "\r\n" LIVE "\r\n", 200, KEPT),
    PROBE("empty lines in front", "\r\n\r\n" LIVE "\r\n", 200, HARMLESS),
    PROBE("bare LF", "GET /health/live HTTP/1.1\nHost: a\n\n", 200, HARMLESS),
    /* headers */
    PROBE("no Host", "GET /health/live HTTP/1.1\r\n\r\n", 400, REFUSED),
    PROBE("two Hosts", LIVE "Host: b\r\n\r\n", 400, ENDED),
    PROBE("header without a colon", LIVE "Header\r\n\r\n", 400, REFUSED),
    PROBE("control character in a value", LIVE "A: b\x01c\r\n\r\n", 400, ENDED),
    PROBE("NUL in a value", LIVE "A: b\0c\r\n\r\n", 200, HARMLESS),
    PROBE("bare CR in a value", LIVE "A: b\rc\r\n\r\n", 400, REFUSED),
    PROBE("folded header", LIVE "A: b\r\n c\r\n\r\n", 200, HARMLESS),
    PROBE("header without a name", LIVE ": b\r\n\r\n", 200, HARMLESS),
    PROBE("space before the first header", "GET /health/live HTTP/1.1\r\n Host: a\r\n\r\n", 400,
          REFUSED),
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

/* No response follows, except that 0.9.75 says some of its own refusals twice. */
static void expect_end(struct client_connection *connection, const struct probe *probe,
                       int refused) {
    struct client_response response;
    while (client_receive(connection, false, &response)) {
        cr_expect_eq(response.status, refused, "%s: a second answer, %d", probe->name,
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

/* A page of libmicrohttpd's own. It is sent without a type or as text/html. */
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
    cr_assert(client_open(&connection, server.port));
    cr_assert(client_send(&connection, probe->bytes, probe->size));
    if (probe->status == 413 && probe->promise == KEPT) {
        char body[2048];
        memset(body, ' ', sizeof body);
        cr_assert(client_send(&connection, body, sizeof body));
    }
    if (!client_receive(&connection, false, &response)) {
        cr_expect_eq(probe->promise, HARMLESS, "%s: no answer", probe->name);
        client_close(&connection);
        return;
    }
    if (probe->promise >= REFUSED && is_foreign(&response)) {
        int status = response.status;
        cr_expect((status >= 400 && status < 500) || status == 501 || status == 505,
                  "%s: %d is no refusal", probe->name, status);
        expect_end(&connection, probe, status);
    } else {
        expect_ours(&response, probe);
        if (probe->promise == KEPT || probe->promise == HARMLESS) {
            expect_alive(&connection, probe);
        } else {
            expect_end(&connection, probe, 0);
        }
    }
    client_response_free(&response);
    client_close(&connection);
}

Test(framing, probes) {
    for (size_t i = 0; i < COUNT(probes); i++) {
        run_probe(&probes[i]);
    }
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
        for (size_t j = 0; j < cases[i].headers; j++) {
            size += (size_t)sprintf(text + size, "A%zu: b\r\n", j);
        }
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

/* A body in chunks of one byte means what it means in one piece. */
Test(framing, chunks_of_one_byte) {
    char text[1024] = CHUNKED;
    size_t size = strlen(text);
    for (const char *c = BODY; *c != '\0'; c++) {
        size += (size_t)sprintf(text + size, "1\r\n%c\r\n", *c);
    }
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
