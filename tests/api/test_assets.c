/*
 * test_assets.c - the files that browsers load: the pages, every file that a page or a script
 * names, openapi.yaml and llms.txt. The tests check each header, that every coding holds the same
 * bytes, that caches can keep a file, and that no key is needed. They know the service by its
 * socket only.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/pack.h"
#include "support/tls.h"

TestSuite(assets, .init = daemon_start_plain, .fini = daemon_end, .timeout = 1200);
TestSuite(frames, .timeout = 1200);

static const char *media_type_of(const char *path) {
    const char *end = strrchr(path, '.');
    return strcmp(path, "/openapi.yaml") == 0   ? "application/yaml"
           : strcmp(path, "/openapi.json") == 0 ? "application/json"
           : end == NULL                        ? "text/html; charset=utf-8"
           : strcmp(end, ".js") == 0            ? "text/javascript; charset=utf-8"
           : strcmp(end, ".css") == 0           ? "text/css; charset=utf-8"
           : strcmp(end, ".safetensors") == 0   ? "application/vnd.safetensors"
                                                : "text/plain; charset=utf-8";
}

#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "        \
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "                 \
    "frame-ancestors "

/* Checks the headers that every answer to a request for the file has, also a 304. */
static void expect_asset_headers(const struct client_response *response, const char *path) {
    char tag[64] = "";
    const bool immutable = strncmp(path, "/assets/", 8) == 0;
    expect_header(response, path, "Vary", "Accept-Encoding");
    expect_header(response, path, "Cache-Control",
                  immutable ? "public, max-age=31536000, immutable" : "no-cache");
    expect_header(response, path, "X-Content-Type-Options", "nosniff");
    expect_header(response, path, "Referrer-Policy", "no-referrer");
    expect_header(response, path, "Cross-Origin-Opener-Policy", "same-origin");
    expect_header(response, path, "Content-Security-Policy", POLICY "'none'");
    expect_header(response, path, "X-Frame-Options", NULL);
    cr_expect(client_header(response, "ETag", tag, sizeof tag) && strncmp(tag, "W/\"", 3) == 0 &&
                  strlen(tag) == 20,
              "%s: %s", path, tag);
}

/* The entity tag of a file consists of the first 64 bits of the SHA-256 of its bytes. So tags of
 * different files differ, and a tag changes with the bytes. */
static void make_tag(const struct client_response *plain, char tag[static 21]) {
    unsigned char digest[32];
    cr_assert(tls_sha256(plain->body, plain->size, digest));
    char *end = stpcpy(tag, "W/\"");
    for (size_t i = 0; i < 8; i++) {
        end += sprintf(end, "%02x", digest[i]);
    }
    strcpy(end, "\"");
}

/* HEAD has the headers of GET, and a file whose tag the client has is not sent again. */
static void expect_head_and_304(const char *path, const char *headers,
                                const struct client_response *whole) {
    char tag[64], more[256], length[32];
    snprintf(length, sizeof length, "%zu", whole->size);
    struct client_response head = daemon_ask("HEAD", path, headers);
    cr_expect(head.status == 200 && head.size == 0, "%s: %d", path, head.status);
    expect_asset_headers(&head, path);
    expect_header(&head, path, "Content-Length", length);
    expect_header(&head, path, "Content-Type", media_type_of(path));
    client_response_free(&head);
    cr_assert(client_header(whole, "ETag", tag, sizeof tag));
    snprintf(more, sizeof more, "%sIf-None-Match: \"other\", %s\r\n", headers, tag);
    for (int i = 0; i < 2; i++) {
        struct client_response same = daemon_ask(i == 0 ? "GET" : "HEAD", path, more);
        cr_expect(same.status == 304 && same.size == 0, "%s: %d", path, same.status);
        expect_asset_headers(&same, path);
        expect_header(&same, path, "ETag", tag);
        expect_header(&same, path, "Content-Type", NULL);
        expect_header(&same, path, "Content-Encoding", NULL);
        client_response_free(&same);
    }
    snprintf(more, sizeof more, "%sIf-None-Match: \"other\"\r\n", headers);
    struct client_response other = daemon_ask("GET", path, more);
    cr_expect(other.status == 200 && other.size == whole->size, "%s: %d", path, other.status);
    client_response_free(&other);
}

static void expect_asset(const char *path) {
    static const char *const codings[] = {"gzip", "br"};
    char headers[64], length[32], tag[21];
    struct client_response plain = daemon_ask("GET", path, "");
    cr_assert_eq(plain.status, 200, "%s: %d", path, plain.status);
    make_tag(&plain, tag);
    cr_expect_gt(plain.size, 0, "%s", path);
    expect_asset_headers(&plain, path);
    expect_header(&plain, path, "Content-Type", media_type_of(path));
    expect_header(&plain, path, "Content-Encoding", NULL);
    expect_header(&plain, path, "ETag", tag);
    expect_head_and_304(path, "", &plain);
    for (size_t i = 0; i < COUNT(codings); i++) {
        size_t size = 0;
        snprintf(headers, sizeof headers, "Accept-Encoding: %s, zstd\r\n", codings[i]);
        struct client_response packed = daemon_ask("GET", path, headers);
        snprintf(length, sizeof length, "%zu", packed.size);
        cr_expect_lt(packed.size, plain.size, "%s", path);
        expect_asset_headers(&packed, path);
        expect_header(&packed, path, "Content-Encoding", codings[i]);
        expect_header(&packed, path, "Content-Length", length);
        expect_header(&packed, path, "Transfer-Encoding", NULL);
        expect_header(&packed, path, "ETag", tag);
        char *bytes = unpack(codings[i], packed.body, packed.size, &size);
        cr_expect(bytes != NULL && size == plain.size && memcmp(bytes, plain.body, size) == 0,
                  "%s, %s: %zu bytes of %zu", path, codings[i], size, plain.size);
        expect_head_and_304(path, headers, &packed);
        free(bytes);
        client_response_free(&packed);
    }
    client_response_free(&plain);
}

/* Returns whether a name of so many bytes has 16 digits of a hash before its ending. */
static bool is_hashed(const char *name, size_t size) {
    static const char *const endings[] = {".js", ".safetensors"};
    for (size_t i = 0; i < COUNT(endings); i++) {
        const size_t stem = size - strlen(endings[i]);
        if (size > strlen(endings[i]) + 17 &&
            strncmp(name + stem, endings[i], strlen(endings[i])) == 0 && name[stem - 17] == '-' &&
            strspn(name + stem - 16, "0123456789abcdef") == 16) {
            return true;
        }
    }
    return false;
}

/* Finds the next file that is named after `at`: a page names "assets/NAME", a script names the file
 * with its hash. Writes its path, and returns where the name begins, or NULL if there is no other
 * file. */
static const char *next_file(const char *at, bool page, char path[static 128]) {
    const char *before = page ? "\"assets/" : "\"";
    while ((at = strstr(at, before)) != NULL) {
        at += strlen(before);
        const size_t size = strcspn(at, "\"");
        if (size < 100 && (page || is_hashed(at, size))) {
            snprintf(path, 128, "/assets/%.*s", (int)size, at);
            return at;
        }
    }
    return NULL;
}

/* Checks a file, the files that it names, and the files that these name. Returns how many files
 * were named. */
static int expect_files(const char *path, bool page) {
    char next[128];
    int files = 0;
    expect_asset(path);
    struct client_response file = daemon_ask("GET", path, "");
    for (const char *at = file.body; (at = next_file(at, page, next)) != NULL; files++) {
        files += expect_files(next, false);
    }
    client_response_free(&file);
    return files;
}

/* The explorer names a style and a script, and the script names the worker's. */
Test(assets, pages_and_their_files) {
    cr_expect_geq(expect_files("/", true), 2, "the explorer has a script and a style");
    cr_expect_eq(expect_files("/docs", true), 3, "a style, a script, and what it loads");
}

Test(assets, the_document) {
    expect_asset("/openapi.yaml");
    expect_asset("/openapi.json");
    expect_asset("/llms.txt");
}

/* Options that change other answers do not change these files. */
Test(assets, options_of_others, .init = NULL) {
    char path[] = "/tmp/attentiond-keys-XXXXXX";
    const int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, "0123456789abcdef\n", 17), 17);
    close(fd);
    daemon_start((const char *const[]){"--compression", "yes", "--api-key-file", path, NULL});
    static const char *const open[] = {"/", "/docs", "/openapi.yaml", "/openapi.json", "/llms.txt"};
    for (size_t i = 0; i < COUNT(open); i++) {
        expect_asset(open[i]);
        struct client_response response = daemon_ask("GET", open[i], "Accept-Encoding: zstd\r\n");
        expect_header(&response, open[i], "Content-Encoding", NULL);
        client_response_free(&response);
    }
    struct client_response none = daemon_ask("GET", "/assets/none.js", "");
    cr_expect_eq(none.status, 404);
    expect_header(&none, "none.js", "Content-Type", "application/problem+json");
    expect_header(&none, "none.js", "Cache-Control", "no-store");
    client_response_free(&none);
    unlink(path);
}

/* Starts the daemon with a list, and expects it in the policy of the pages. */
static void expect_ancestors(const char *list, const char *in_policy) {
    static const char *const pages[] = {"/", "/docs"};
    static const struct {
        const char *headers;
        int status;
    } asks[] = {{"", 200}, {"Accept-Encoding: br\r\n", 200}, {"If-None-Match: *\r\n", 304}};
    daemon_start((const char *const[]){"--frame-ancestors", list, NULL});
    for (size_t i = 0; i < COUNT(pages) * COUNT(asks); i++) {
        const char *page = pages[i % COUNT(pages)];
        struct client_response response = daemon_ask("GET", page, asks[i / COUNT(pages)].headers);
        char policy[5000] = "";
        cr_expect_eq(response.status, asks[i / COUNT(pages)].status, "%s", page);
        cr_expect(client_header(&response, "Content-Security-Policy", policy, sizeof policy));
        cr_expect_eq(strncmp(policy, POLICY, strlen(POLICY)), 0, "%s: %s", page, policy);
        cr_expect_str_eq(policy + strlen(POLICY), in_policy, "%s: %s", page, policy);
        expect_header(&response, page, "X-Frame-Options", NULL);
        client_response_free(&response);
    }
    struct client_response api = daemon_ask("GET", "/version", "");
    expect_header(&api, "/version", "Content-Security-Policy", NULL);
    client_response_free(&api);
    daemon_end();
}

Test(frames, origins_are_in_the_policy) {
    expect_ancestors("http://localhost:8888", "http://localhost:8888");
    expect_ancestors("https://notebooks.example.org,http://localhost:8888,http://a",
                     "https://notebooks.example.org http://localhost:8888 http://a");
    char longest[4097] = "https://";
    memset(longest + strlen(longest), 'a', 4096 - strlen(longest));
    expect_ancestors(longest, longest);
}

/* The connection is kept after answers without a body, and all assets are counted as one route. */
Test(assets, kept_connection_and_metrics) {
    static const char requests[] = "GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\n\r\n"
                                   "GET /assets/a HTTP/1.1\r\nHost: a\r\n\r\n"
                                   "GET /assets/b HTTP/1.1\r\nHost: a\r\n\r\n"
                                   "GET /docs HTTP/1.1\r\nHost: a\r\n\r\n";
    static const int statuses[] = {304, 404, 404, 200};
    struct client_connection connection;
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_send(&connection, requests, sizeof requests - 1));
    for (size_t i = 0; i < COUNT(statuses); i++) {
        struct client_response response;
        cr_assert(client_receive(&connection, false, &response), "%zu", i);
        cr_expect_eq(response.status, statuses[i], "%zu: %d", i, response.status);
        client_response_free(&response);
    }
    client_close(&connection);
    struct client_response metrics = daemon_ask("GET", "/metrics", "");
    cr_expect_not_null(strstr(
        metrics.body, "attentiond_requests_total{route=\"/assets/{name}\",code=\"404\"} 2\n"));
    cr_expect_not_null(
        strstr(metrics.body, "attentiond_requests_total{route=\"/\",code=\"304\"} 1\n"));
    client_response_free(&metrics);
}
