/*
 * test_cors.c - the headers by which a browser decides what a page of another origin may send and
 * read (the Fetch Standard, 3.2.3). The tests know the service by its socket only.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define EXPOSED      "X-Request-Id, Server-Timing, Retry-After, Inference-Header-Content-Length"

TestSuite(cors, .timeout = 60);

#define ALLOWED_ORIGIN  "Access-Control-Allow-Origin"
#define ALLOWED_HEADERS "Access-Control-Allow-Headers"
#define A               "https://a.example"
#define PREFLIGHT       "Access-Control-Request-Method: POST\r\n"

/* The preflights and requests of a browser. The headers that it reads follow as pairs of name and
 * value; the value of one that must be absent is NULL. */
struct cors_case {
    const char *method, *headers;
    int status;
    const char *wanted[10];
};

static const struct cors_case plain[] = {
    {"OPTIONS",
     "Origin: " A "\r\n" PREFLIGHT,
     204,
     {ALLOWED_ORIGIN, A, "Access-Control-Allow-Methods", "GET, HEAD, POST", ALLOWED_HEADERS,
      "Authorization, Content-Type, X-Request-Id, Inference-Header-Content-Length",
      "Access-Control-Max-Age", "600", "Vary", "Origin"}},
    {"OPTIONS",
     "Origin: https://b.example\r\n" PREFLIGHT,
     405,
     {ALLOWED_ORIGIN, NULL, ALLOWED_HEADERS, NULL}},
    {"OPTIONS", "Origin: " A "\r\n", 405, {ALLOWED_ORIGIN, A, ALLOWED_HEADERS, NULL}},
    {"POST",
     "Origin: " A "\r\n",
     200,
     {ALLOWED_ORIGIN, A, "Access-Control-Expose-Headers", EXPOSED, "Access-Control-Max-Age", NULL,
      ALLOWED_HEADERS, NULL, "Vary", "Origin, Accept"}},
    {"POST",
     "Origin: " A ".org\r\n",
     200,
     {ALLOWED_ORIGIN, NULL, "Access-Control-Expose-Headers", NULL, "Vary", "Origin, Accept"}},
    {"POST", "", 200, {ALLOWED_ORIGIN, NULL, "Vary", "Origin, Accept"}},
};

static const struct cors_case compressed[] = {
    {"OPTIONS",
     "Origin: " A "\r\n" PREFLIGHT,
     204,
     {ALLOWED_HEADERS,
      "Authorization, Content-Encoding, Content-Type, X-Request-Id, "
      "Inference-Header-Content-Length",
      "Vary", "Origin, Accept-Encoding"}},
    {"POST", "Origin: " A "\r\n", 200, {"Vary", "Origin, Accept, Accept-Encoding"}},
};

static void try_cases(const struct cors_case *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct client_response response;
        char about[64];
        const char *body = strcmp(cases[i].method, "POST") == 0 ? "{\"X\":[[1]]}" : "";
        cr_assert(client_request(the_daemon.port, cases[i].method, "/attention", cases[i].headers,
                                 body, strlen(body), &response));
        snprintf(about, sizeof about, "case %zu, %s", i, cases[i].method);
        cr_expect_eq(response.status, cases[i].status, "%s: %d", about, response.status);
        for (const char *const *pair = cases[i].wanted;
             pair < cases[i].wanted + 10 && pair[0] != NULL; pair += 2) {
            expect_header(&response, about, pair[0], pair[1]);
        }
        client_response_free(&response);
    }
    daemon_end();
}

Test(cors, pages_of_listed_origins_send_and_read_what_they_need) {
    daemon_start((const char *const[]){"--cors-origins", "http://c," A, NULL});
    try_cases(plain, COUNT(plain));
    daemon_start((const char *const[]){"--cors-origins", A, "--compression", "yes", NULL});
    try_cases(compressed, COUNT(compressed));
}
