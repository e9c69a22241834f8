/*
 * test_cors.c - the headers by which a browser decides what a page of another origin may send and
 * read (the Fetch Standard, 3.2.3). The tests know the service by its socket only.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define EXPOSED      "X-Request-Id, Server-Timing, Retry-After, Inference-Header-Content-Length"

TestSuite(cors, .timeout = 60);

struct header {
    const char *name, *value; /* NULL: the header must be absent */
};

static void expect_cors_headers(const char *method, const char *headers,
                                const struct header *wanted, size_t count) {
    struct client_response response;
    const char *body = strcmp(method, "POST") == 0 ? "{\"X\":[[1]]}" : "";
    cr_assert(client_request(the_daemon.port, method, "/attention", headers, body, strlen(body),
                             &response));
    for (size_t i = 0; i < count; i++) {
        expect_header(&response, method, wanted[i].name, wanted[i].value);
    }
    client_response_free(&response);
}

Test(cors, pages_of_listed_origins_send_and_read_what_they_need) {
    static const char asks[] =
        "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n";
    static const struct header preflight[] = {
        {"Access-Control-Allow-Origin", "https://a.example"},
        {"Access-Control-Allow-Methods", "GET, HEAD, POST"},
        {"Access-Control-Allow-Headers",
         "Authorization, Content-Type, X-Request-Id, Inference-Header-Content-Length"},
        {"Access-Control-Max-Age", "600"},
        {"Vary", "Origin"},
    };
    static const struct header compressed[] = {
        {"Access-Control-Allow-Headers",
         "Authorization, Content-Encoding, Content-Type, X-Request-Id, "
         "Inference-Header-Content-Length"},
        {"Vary", "Origin, Accept-Encoding"},
    };
    static const struct header all[] = {{"Vary", "Origin, Accept, Accept-Encoding"}};
    static const struct header answer[] = {
        {"Access-Control-Allow-Origin", "https://a.example"},
        {"Access-Control-Expose-Headers", EXPOSED},
        {"Access-Control-Max-Age", NULL},
        {"Vary", "Origin, Accept"},
    };
    static const struct header none[] = {
        {"Access-Control-Allow-Origin", NULL},
        {"Access-Control-Expose-Headers", NULL},
        {"Vary", "Origin, Accept"},
    };
    static const char *const options[] = {"--cors-origins", "https://a.example", NULL};
    static const char *const with_compression[] = {"--cors-origins", "https://a.example",
                                                   "--compression", "yes", NULL};
    daemon_start(options);
    expect_cors_headers("OPTIONS", asks, preflight, COUNT(preflight));
    expect_cors_headers("POST", "Origin: https://a.example\r\n", answer, COUNT(answer));
    expect_cors_headers("POST", "Origin: https://a.example.org\r\n", none, COUNT(none));
    daemon_end();
    daemon_start(with_compression);
    expect_cors_headers("OPTIONS", asks, compressed, COUNT(compressed));
    expect_cors_headers("POST", "Origin: https://a.example\r\n", all, COUNT(all));
    daemon_end();
}

/* The preflights and requests of a browser, with the status and headers that it reads. */
Test(daemon, pages_of_listed_origins_may_ask) {
    static const struct {
        const char *method, *origin;
        int status;
        bool allowed;
    } cases[] = {
        {"POST", "Origin: https://a.example\r\n", 200, true},
        {"POST", "Origin: https://b.example\r\n", 200, false},
        {"POST", NULL, 200, false},
        {"OPTIONS", "Origin: https://a.example\r\nAccess-Control-Request-Method: POST\r\n", 204,
         true},
        {"OPTIONS", "Origin: https://b.example\r\nAccess-Control-Request-Method: POST\r\n", 405,
         false},
        {"OPTIONS", "Origin: https://a.example\r\n", 405, true},
    };
    struct client_response response;
    char value[256] = "";
    daemon_start((const char *const[]){"--cors-origins", "http://c,https://a.example", NULL});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *body = strcmp(cases[i].method, "POST") == 0 ? "{\"X\":[[1]]}" : "";
        cr_assert(client_request(the_daemon.port, cases[i].method, "/attention", cases[i].origin,
                                 body, strlen(body), &response));
        cr_expect_eq(response.status, cases[i].status, "case %zu", i);
        cr_expect_eq(client_header(&response, "Access-Control-Allow-Origin", value, sizeof value),
                     cases[i].allowed, "case %zu", i);
        cr_expect(!cases[i].allowed || strcmp(value, "https://a.example") == 0);
        cr_expect_eq(client_header(&response, "Access-Control-Allow-Headers", value, sizeof value),
                     cases[i].status == 204, "case %zu", i);
        cr_expect(client_header(&response, "Vary", value, sizeof value));
        client_response_free(&response);
    }
    daemon_end();
}
