/*
 * test_cors.c - the headers by which a browser decides what a page of another origin may send and
 * read (the Fetch Standard, 3.2.3). Knows the service by its socket only.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "support/client.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define EXPOSED      "X-Request-Id, Server-Timing, Retry-After"

TestSuite(cors, .timeout = 60);

struct header {
    const char *name, *value; /* NULL: there is none */
};

static void expect_headers(unsigned port, const char *method, const char *headers,
                           const struct header *wanted, size_t count) {
    struct client_response response;
    const char *body = strcmp(method, "POST") == 0 ? "{\"X\":[[1]]}" : "";
    cr_assert(client_request(port, method, "/attention", headers, body, strlen(body), &response));
    for (size_t i = 0; i < count; i++) {
        char value[128] = "";
        const bool there = client_header(&response, wanted[i].name, value, sizeof value);
        cr_expect(wanted[i].value != NULL ? there && strcmp(value, wanted[i].value) == 0 : !there,
                  "%s: %s: %s, not %s", method, wanted[i].name, there ? value : "none",
                  wanted[i].value != NULL ? wanted[i].value : "none");
    }
    client_response_free(&response);
}

Test(cors, pages_of_listed_origins_send_and_read_what_they_need) {
    static const char asks[] =
        "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n";
    static const struct header preflight[] = {
        {"Access-Control-Allow-Origin", "https://a.example"},
        {"Access-Control-Allow-Methods", "GET, HEAD, POST"},
        {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id"},
        {"Access-Control-Max-Age", "600"},
        {"Vary", "Origin"},
    };
    static const struct header compressed[] = {
        {"Access-Control-Allow-Headers",
         "Authorization, Content-Encoding, Content-Type, X-Request-Id"},
        {"Vary", "Origin, Accept-Encoding"},
    };
    static const struct header answer[] = {
        {"Access-Control-Allow-Origin", "https://a.example"},
        {"Access-Control-Expose-Headers", EXPOSED},
        {"Access-Control-Max-Age", NULL},
        {"Vary", "Origin"},
    };
    static const struct header none[] = {
        {"Access-Control-Allow-Origin", NULL},
        {"Access-Control-Expose-Headers", NULL},
        {"Vary", "Origin"},
    };
    static const char *const options[] = {"--cors-origins", "https://a.example", NULL};
    static const char *const with_compression[] = {"--cors-origins", "https://a.example",
                                                   "--compression", "yes", NULL};
    struct server_process server;
    cr_assert(server_spawn(&server, options));
    expect_headers(server.port, "OPTIONS", asks, preflight, COUNT(preflight));
    expect_headers(server.port, "POST", "Origin: https://a.example\r\n", answer, COUNT(answer));
    expect_headers(server.port, "POST", "Origin: https://a.example.org\r\n", none, COUNT(none));
    cr_expect_eq(server_stop(&server), 0);
    cr_assert(server_spawn(&server, with_compression));
    expect_headers(server.port, "OPTIONS", asks, compressed, COUNT(compressed));
    cr_expect_eq(server_stop(&server), 0);
}
