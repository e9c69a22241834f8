/*
 * test_http_sized.c tests bodies of a known size that are made while they are sent: plain and
 * compressed, over TLS, for HEAD and for slow clients. It also tests the headers of binary tensors
 * and bare errors.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/http.h"
#include "http_app.h"
#include "http_fixture.h"
#include "support/client.h"
#include "support/pack.h"
#include "support/tls.h"
#include "support/wait.h"

enum {
    LARGE = 8 << 20
};

static const struct http_options usual = {
    .max_body = 4096, .compression = true, .cors_origins = "*"};

TestSuite(http_sized, .timeout = 60);

/* --------------------------------------------------------------------------------- the bodies */

static size_t header_number(const struct client_response *response, const char *name) {
    char value[64];
    return client_header(response, name, value, sizeof value) ? strtoul(value, NULL, 10) : SIZE_MAX;
}

/* Expects a whole body of the first `size` bytes, with its length. */
static void expect_bytes(const struct client_response *response, size_t size, const char *path) {
    cr_expect_eq(response->status, 200, "%s: %d", path, response->status);
    cr_expect(response->size == size && app_is_body(response->body, size), "%s: %zu bytes", path,
              response->size);
    cr_expect_eq(header_number(response, "Content-Length"), size, "%s", path);
    cr_expect_eq(header_number(response, "Inference-Header-Content-Length"), 1234567, "%s", path);
}

static const struct {
    const char *path;
    size_t size;
} bodies[] = {
    {"/copied/1/1", 1},
    {"/copied/1000/1000", 1000},
    {"/copied/5000/5000", 5000},
    {"/copied/32768/32768", 32768},
    {"/copied/32769/32769", 32769},
    {"/copied/65536/65536", 65536},
    {"/copied/65537/65537", 65537},
    {"/copied/100000/100000", 100000},
    {"/copied/500000/500000", 500000},
    {"/copied/8388608/8388608", LARGE},
    {"/sized/1/1", 1},
    {"/sized/32768/32768", 32768},
    {"/sized/100001/100001", 100001},
    {"/sized/8388608/8388608", LARGE},
    {"/sized/8388608/5000000", 5000000}, /* what is beyond the announced size is not sent */
};

static void ask_for(struct client_connection *connection, const char *method, const char *path,
                    const char *headers) {
    char request[1024];
    snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: a\r\n%s\r\n", method, path, headers);
    fixture_send(connection, request);
}

/* The same connection gets all bodies, so each of them ends where its length says. The app is asked
 * to make pieces of bodies that are made while they are sent, but never to copy bytes. */
static void try_bodies(struct client_connection *connection) {
    struct client_response response;
    for (size_t i = 0; i < COUNT(bodies); i++) {
        const unsigned before = atomic_load(&app_pieces);
        ask_for(connection, "GET", bodies[i].path, "");
        cr_assert(client_receive(connection, false, &response), "%s", bodies[i].path);
        expect_bytes(&response, bodies[i].size, bodies[i].path);
        cr_expect(strncmp(bodies[i].path, "/copied", 7) != 0 || app_pieces == before);
        client_response_free(&response);
        ask_for(connection, "HEAD", bodies[i].path, "");
        cr_assert(client_receive(connection, true, &response), "%s", bodies[i].path);
        cr_expect_eq(header_number(&response, "Content-Length"), bodies[i].size, "%s",
                     bodies[i].path);
        client_response_free(&response);
    }
    cr_expect_gt(app_pieces, 0);
}

Test(http_sized, arrive_as_one_body) {
    app_serve(usual);
    struct client_connection connection;
    cr_assert(client_open(&connection, http_port(fixture_server)));
    try_bodies(&connection);
    client_close(&connection);
    app_stop();
}

Test(http_sized, arrive_over_tls) {
    char folder[] = "/tmp/attentiond-sized-XXXXXX", certificate[64], key[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(certificate, sizeof certificate, "%s/certificate.pem", folder);
    snprintf(key, sizeof key, "%s/key.pem", folder);
    cr_assert(tls_make_pair("sized", false, 3600, certificate, key));
    struct http_options options = usual;
    options.tls_certificate = certificate;
    options.tls_key = key;
    app_serve(options);
    struct client_connection connection;
    cr_assert(tls_open(&connection, http_port(fixture_server), NULL));
    try_bodies(&connection);
    client_close(&connection);
    app_stop();
    unlink(certificate);
    unlink(key);
    rmdir(folder);
}

/* A client of HTTP/1.0 knows no chunks, but it knows lengths. */
Test(http_sized, arrive_at_old_clients) {
    app_serve(usual);
    for (size_t i = 0; i < COUNT(bodies); i++) {
        struct client_connection connection;
        struct client_response response;
        char request[256];
        snprintf(request, sizeof request, "GET %s HTTP/1.0\r\nAccept-Encoding: gzip;q=0\r\n\r\n",
                 bodies[i].path);
        fixture_open(&connection, request);
        cr_assert(client_receive(&connection, false, &response));
        expect_bytes(&response, bodies[i].size, bodies[i].path);
        client_response_free(&response);
        client_close(&connection);
    }
    app_stop();
}

Test(http_sized, are_compressed_as_one_body) {
    static const char *const codings[] = {"gzip", "zstd", "deflate"};
    app_serve(usual);
    struct client_connection connection;
    cr_assert(client_open(&connection, http_port(fixture_server)));
    for (size_t i = 0; i < COUNT(bodies) - 1; i++) {
        for (size_t k = 0; k < COUNT(codings); k++) {
            struct client_response response;
            char headers[64], value[64] = "";
            snprintf(headers, sizeof headers, "Accept-Encoding: %s\r\n", codings[k]);
            ask_for(&connection, "GET", bodies[i].path, headers);
            cr_assert(client_receive(&connection, false, &response), "%s", bodies[i].path);
            cr_expect_eq(header_number(&response, "Inference-Header-Content-Length"), 1234567);
            if (bodies[i].size < 1024) {
                expect_bytes(&response, bodies[i].size, bodies[i].path);
            } else {
                size_t size = 0;
                cr_expect(client_header(&response, "Content-Encoding", value, sizeof value));
                cr_expect_str_eq(value, codings[k]);
                cr_expect_lt(response.size, bodies[i].size);
                char *text = unpack(codings[k], response.body, response.size, &size);
                cr_expect(text != NULL && size == bodies[i].size && app_is_body(text, size),
                          "%s, %s: %zu bytes", bodies[i].path, codings[k], size);
                free(text);
            }
            client_response_free(&response);
        }
    }
    client_close(&connection);
    app_stop();
}

Test(http_sized, a_body_that_is_shorter_than_its_length_is_cut_off) {
    static const char *const short_ones[] = {"/sized/0/10", "/sized/99/100", "/sized/99999/100000"};
    app_serve(usual);
    for (size_t i = 0; i < COUNT(short_ones); i++) {
        struct client_connection connection;
        struct client_response response;
        cr_assert(client_open(&connection, http_port(fixture_server)));
        ask_for(&connection, "GET", short_ones[i], "");
        cr_expect_not(client_receive(&connection, false, &response), "%s", short_ones[i]);
        client_close(&connection);
    }
    app_stop();
}

/* A client whose head fills the memory of its connection gets its answer, or loses its connection.
 * The server goes on. */
Test(http_sized, long_heads_do_no_harm) {
    enum {
        LONGEST = 32768
    };
    char *request = malloc(LONGEST + 256);
    unsigned answered = 0;
    app_serve(usual);
    for (size_t size = 1000; size < LONGEST; size += 97) {
        struct client_connection connection;
        struct client_response response;
        int at = sprintf(request, "GET /copied/100000/100000 HTTP/1.1\r\nHost: a\r\nX: ");
        memset(request + at, 'x', size);
        strcpy(request + at + size, "\r\n\r\n");
        fixture_open(&connection, request);
        if (client_receive(&connection, false, &response)) {
            answered += response.status == 200;
            cr_expect(response.status != 200 || response.size == 100000);
            client_response_free(&response);
        }
        client_close(&connection);
    }
    cr_expect_gt(answered, 200);
    free(request);
    app_stop();
}

/* ------------------------------------------------------------------------ slow clients, records */

Test(http_sized, a_client_that_takes_nothing_is_cut_off) {
    struct http_options options = usual;
    options.write_timeout = 1;
    app_serve(options);
    struct client_connection connection;
    const int small = 4096;
    cr_assert(client_open(&connection, http_port(fixture_server)));
    setsockopt(connection.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    ask_for(&connection, "GET", "/copied/8388608/8388608", "");
    WAIT_UNTIL(atomic_load(&app_bodies_made) == 1);
    WAIT_UNTIL(atomic_load(&app_bodies_freed) == 1);
    WAIT_UNTIL(atomic_load(&app_released) == 1);
    cr_expect_lt(atomic_load(&app_sent), (uint64_t)LARGE, "not all of it was given away");
    client_close(&connection);
    app_stop();
}

Test(http_sized, records_count_the_bytes) {
    static const struct {
        const char *method, *path;
        uint64_t sent;
    } cases[] = {
        {"GET", "/copied/1000/1000", 1000},   {"GET", "/copied/100000/100000", 100000},
        {"HEAD", "/copied/100000/100000", 0}, {"GET", "/sized/100000/100000", 100000},
        {"HEAD", "/sized/100000/100000", 0},  {"GET", "/copied/8388608/8388608", LARGE},
    };
    app_serve(usual);
    struct client_connection connection;
    struct client_response response;
    cr_assert(client_open(&connection, http_port(fixture_server)));
    for (unsigned i = 0; i < COUNT(cases); i++) {
        atomic_store(&app_sent, UINT64_MAX);
        ask_for(&connection, cases[i].method, cases[i].path, "");
        cr_assert(client_receive(&connection, cases[i].method[0] == 'H', &response));
        client_response_free(&response);
        WAIT_UNTIL(atomic_load(&app_sent) != UINT64_MAX);
        cr_expect_eq(atomic_load(&app_sent), cases[i].sent, "%s: %llu", cases[i].path,
                     (unsigned long long)app_sent);
    }
    client_close(&connection);
    app_stop();
}

/* -------------------------------------------------------------------------- headers and errors */

Test(http_sized, the_app_is_told_headers) {
    static const struct {
        const char *headers, *told;
    } cases[] = {
        {"", "|none"},
        {"Accept:\r\n", "|none"},
        {"accept: application/vnd.safetensors, */*;q=0.1\r\nAccept: text/html\r\n",
         "application/vnd.safetensors, */*;q=0.1|none"},
        {"inference-header-content-length: 17\r\n", "|17"},
        {"Accept: a/b\r\nInference-Header-Content-Length: -1 x\r\nX: y\r\n", "a/b|-1 x"},
    };
    app_serve(usual);
    struct client_connection connection;
    struct client_response response;
    cr_assert(client_open(&connection, http_port(fixture_server)));
    for (size_t i = 0; i < COUNT(cases); i++) {
        char headers[512];
        /* Bytes of further requests follow, and they overwrite nothing. */
        ask_for(&connection, "GET", "/told", cases[i].headers);
        snprintf(headers, sizeof headers, "%sContent-Length: 4096\r\n", cases[i].headers);
        char filler[4096];
        memset(filler, 'z', sizeof filler);
        ask_for(&connection, "POST", "/told", headers);
        cr_assert(client_send(&connection, filler, sizeof filler));
        for (int k = 0; k < 2; k++) {
            cr_assert(client_receive(&connection, false, &response));
            cr_expect_str_eq(response.body, cases[i].told);
            cr_expect_eq(header_number(&response, "Inference-Header-Content-Length"), SIZE_MAX);
            client_response_free(&response);
        }
    }
    client_close(&connection);
    app_stop();
}

#define DETAIL_404 "nothing is here"

/* Each refusal has both forms: the bare one below /v2, and a problem document elsewhere. */
Test(http_sized, errors_are_bare_below_the_path) {
    static const struct {
        const char *before, *path, *after;
        int status;
        const char *detail;
    } cases[] = {
        {"GET ", "/none", " HTTP/1.1\r\nHost: a\r\n\r\n", 404, DETAIL_404},
        {"POST ", "/none", " HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n", 413,
         "the body has 9000 bytes"},
        {"POST ", "/none", " HTTP/1.1\r\nHost: a\r\n\r\n", 411, "the request has no"},
        {"POST ", "/x",
         " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
         "Content-Encoding: \"br\"\r\n\r\n[]",
         415, "the Content-Encoding must be"},
        {"POST ", "/x",
         " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
         "Inference-Header-Content-Length: 2\r\n"
         "Inference-Header-Content-Length: 2\r\n\r\n[]",
         400, "a request has one Inference-Header-Content-Length; this one has 2"},
        {"get ", "/x", " HTTP/1.1\r\nHost: a\r\n\r\n", 501, "the method \\\"get\\\""},
        {"GET ", "/x%", " HTTP/1.1\r\nHost: a\r\n\r\n", 400, "a request target"},
    };
    static const struct {
        const char *path;
        bool bare;
    } places[] = {{"/v2", true},   {"/v2/models", true}, {"/%762", true}, {"http://a/v2", true},
                  {"/v2x", false}, {"/v", false},        {"", false},     {"/x/v2", false}};
    app_serve(usual);
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (size_t k = 0; k < COUNT(places); k++) {
            struct client_connection connection;
            struct client_response response;
            char request[512], begin[256], type[64] = "";
            snprintf(request, sizeof request, "%s%s%s%s", cases[i].before, places[k].path,
                     cases[i].path, cases[i].after);
            fixture_open(&connection, request);
            cr_assert(client_receive(&connection, false, &response), "%s", request);
            cr_expect_eq(response.status, cases[i].status, "%s: %d", request, response.status);
            cr_expect(client_header(&response, "Content-Type", type, sizeof type));
            cr_expect_str_eq(type, places[k].bare ? "application/json" : "application/problem+json",
                             "%s", request);
            snprintf(begin, sizeof begin, "%s%s",
                     places[k].bare ? "{\"error\":\"" : "{\"type\":\"about:blank\",\"title\":\"",
                     places[k].bare ? cases[i].detail : "");
            cr_expect_eq(strncmp(response.body, begin, strlen(begin)), 0, "%s", response.body);
            cr_expect_not_null(strstr(response.body, cases[i].detail), "%s", response.body);
            cr_expect(!places[k].bare || strcmp(response.body + response.size - 3, "\"}\n") == 0);
            cr_expect(!places[k].bare || strstr(response.body, "pointer") == NULL);
            client_response_free(&response);
            client_close(&connection);
        }
    }
    app_stop();
}

/* A refusal of too many headers, and one of the app. */
Test(http_sized, errors_of_heads_and_keys_are_bare) {
    char file[] = "/tmp/attentiond-keys-XXXXXX", request[2048] = "GET /v2 HTTP/1.1\r\nHost: a\r\n";
    const int fd = mkstemp(file);
    cr_assert_eq(write(fd, "0123456789abcdef\n", 17), 17);
    close(fd);
    struct http_options options = usual;
    options.api_key_file = file;
    app_serve(options);
    struct client_connection connection;
    struct client_response response;
    fixture_open(&connection, GET("/v2"));
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_eq(response.status, 401);
    cr_expect_str_eq(response.body, "{\"error\":\"a \\\"key\\\" is needed\"}\n");
    client_response_free(&response);
    client_close(&connection);
    for (int i = 0; i < 64; i++) {
        strcat(request, "X: y\r\n");
    }
    strcat(request, "\r\n");
    fixture_open(&connection, request);
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_eq(response.status, 431);
    cr_expect_str_eq(response.body, "{\"error\":\"a request has at most 64 header fields\"}\n");
    client_response_free(&response);
    client_close(&connection);
    app_stop();
    unlink(file);
}
