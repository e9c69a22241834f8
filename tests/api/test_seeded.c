/*
 * test_seeded.c - what drawing is to the one who runs the service: it is the workers' work, ends
 * with its client and its deadline, is bounded in memory, work and count, and never keeps a small
 * request from its answer. What is drawn, golden_seeded.json says. Knows the service by its socket
 * only.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/client.h"

TestSuite(seeded, .timeout = 120);

/* Minutes of one core. */
#define HUGE_BODY                                                                                  \
    "{\"random\":{\"generator\":\"torch\",\"seed\":1},\"X\":{\"random\":\"randn\",\"shape\":[3,2]" \
    ","                                                                                            \
    "\"discard\":[{\"random\":\"randn\",\"shape\":[1000,1000,4000]}]}"
#define NUMPY "\"random\":{\"generator\":\"numpy\",\"seed\":1}"

static struct server_process server;

static void start(const char *const arguments[]) {
    cr_assert(server_spawn(&server, arguments));
}

/* Asks and returns the status; `contains` must be in the answer. */
static int ask(const char *path, const char *body, const char *contains) {
    struct client_response response;
    cr_assert(client_request(server.port, "POST", path, NULL, body, strlen(body), &response));
    cr_expect(strstr(response.body, contains) != NULL, "%s: no %s in %.300s", body, contains,
              response.body);
    const int status = response.status;
    client_response_free(&response);
    return status;
}

/* The value of a metric. */
static double metric(const char *name) {
    struct client_response response;
    char line[128];
    double value = -1;
    cr_assert(client_request(server.port, "GET", "/metrics", NULL, NULL, 0, &response));
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(response.body, line);
    if (at != NULL) {
        value = strtod(at + strlen(line), NULL);
    }
    client_response_free(&response);
    return value;
}

static void await(const char *name, double value) {
    for (int i = 0; i < 60000 && (metric(name) < value || metric(name) > value); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cr_assert_eq(metric(name), value, "%s", name);
}

static void send_post(struct client_connection *connection, const char *path, const char *body) {
    char head[256];
    const int size =
        snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
                 path, strlen(body));
    cr_assert(client_open(connection, server.port));
    cr_assert(client_send(connection, head, (size_t)size));
    cr_assert(client_send(connection, body, strlen(body)));
}

static const char *const much_work[] = {
    "--max-work", "1e18", "--max-queue", "1e18", "--io-threads", "1", "--workers", "1", NULL};

/* One thread that reads and answers, one that computes: who draws does not keep either. */
Test(seeded, a_huge_draw_ends_with_its_client_and_keeps_nobody) {
    struct client_connection connection;
    start(much_work);
    send_post(&connection, "/attention", HUGE_BODY "}");
    await("attentiond_jobs", 1);
    for (int i = 0; i < 20; i++) { /* some small ones at once, some as jobs */
        cr_expect_eq(ask("/attention", "{" NUMPY ",\"X\":{\"random\":\"rand\",\"shape\":[2,2]}}",
                         "\"output\":[["),
                     200);
        cr_expect_eq(ask("/softmax", "{" NUMPY ",\"X\":{\"random\":\"rand\",\"shape\":20000}}",
                         "{\"output\":["),
                     200);
    }
    cr_expect_eq(metric("attentiond_jobs"), 1);
    client_close(&connection); /* leaves */
    await("attentiond_cancelled_total", 1);
    await("attentiond_jobs", 0);
    cr_expect_eq(server_stop(&server), 0);
}

Test(seeded, a_draw_that_is_late) {
    start(much_work);
    cr_expect_eq(ask("/attention", HUGE_BODY ",\"timeout\":0.05}", "within 0.05 s, the "), 503);
    cr_expect_eq(ask("/embeddings",
                     "{\"text\":\"a\",\"timeout\":0.05," NUMPY
                     ",\"embedding\":{\"random\":\"rand\",\"shape\":[1,2],\"discard\":[{\"random\":"
                     "\"rand\",\"shape\":4000000000}]}}",
                     "within 0.05 s, the "),
                 503);
    cr_expect_eq(metric("attentiond_rejected_total{reason=\"timeout\"}"), 2);
    await("attentiond_jobs", 0);
    cr_expect_eq(server_stop(&server), 0);
}

Test(seeded, a_draw_does_not_outlive_the_server) {
    struct client_connection connection;
    struct client_response response;
    start((const char *const[]){"--max-work", "1e18", "--drain-timeout", "1", NULL});
    send_post(&connection, "/attention", HUGE_BODY "}");
    await("attentiond_jobs", 1);
    cr_expect_eq(server_stop(&server), 0);
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_eq(response.status, 503, "%s", response.body);
    client_response_free(&response);
    client_close(&connection);
}

/* Refused before anything is drawn, whatever the size says. */
Test(seeded, limits_of_memory_work_and_count) {
    static const struct {
        const char *path, *body, *detail;
    } rows[] = {
        {"/softmax", "{" NUMPY ",\"X\":{\"random\":\"rand\",\"shape\":[3000000]}}", "--max-memory"},
        {"/softmax", "{" NUMPY ",\"X\":{\"random\":\"rand\",\"shape\":[9007199254740991]}}",
         "--max-memory"},
        {"/softmax", "{" NUMPY ",\"X\":{\"random\":\"rand\",\"shape\":[4294967296,2147483648]}}",
         "--max-memory"},
        {"/attention",
         "{" NUMPY
         ",\"X\":[[1]],\"mask\":{\"random\":\"randint\",\"high\":2,\"shape\":[1,3000000]}}",
         "--max-memory"},
        {"/attention",
         "{" NUMPY ",\"Q\":{\"random\":\"rand\",\"shape\":[1000,900]},\"K\":{\"random\":\"rand\","
         "\"shape\":[1000,900]},\"V\":{\"random\":\"rand\",\"shape\":[1000,900]}}",
         "--max-memory"},
        {"/embeddings",
         "{\"random\":{\"generator\":\"torch\",\"seed\":1},\"text\":\"a "
         "b\",\"embedding_dim\":2000000}",
         "--max-memory"},
        {"/embeddings",
         "{\"tokens\":[\"a\",\"a\",\"a\",\"a\"],\"embedding\":{\"random\":\"rand\",\"shape\":[4,"
         "400000]}," NUMPY "}",
         "--max-memory"},
        {"/attention",
         "{" NUMPY ",\"X\":{\"random\":\"rand\",\"shape\":[1,1],\"discard\":[{\"random\":\"rand\","
         "\"shape\":4294967296}]}}",
         "draws more than 4294967296 numbers, which is a fixed limit"},
        {"/attention",
         "{" NUMPY ",\"X\":{\"random\":\"rand\",\"shape\":[1,1],\"discard\":[{\"random\":\"rand\","
         "\"shape\":4000000}]}}",
         "--max-work"},
        {"/embeddings",
         "{\"text\":\"a\"," NUMPY ",\"embedding\":{\"random\":\"randn\",\"shape\":[1,1],"
         "\"discard\":[{\"random\":\"randn\",\"shape\":1000000}]}}",
         "--max-work"},
    };
    start((const char *const[]){"--max-memory", "10MiB", "--max-work", "1e9", NULL});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_expect_eq(ask(rows[i].path, rows[i].body, rows[i].detail), 413, "%s", rows[i].body);
    }
    cr_expect_eq(server_stop(&server), 0);
}

/* Draws that are thrown away take memory until all are drawn: some 400 bytes of each. */
Test(seeded, limit_of_memory_for_draws_that_are_thrown_away) {
    static const char head[] = "{" NUMPY ",\"X\":{\"random\":\"rand\",\"shape\":[2],\"discard\":[";
    static const char one[] = "{\"random\":\"rand\",\"shape\":1}";
    char *body = malloc(sizeof head + 20000 * sizeof one + 8);
    start((const char *const[]){"--max-memory", "4MiB", NULL});
    for (int many = 0; many < 2; many++) {
        char *end = stpcpy(body, head);
        for (int i = 0; i < (many ? 20000 : 5000); i++) {
            end = stpcpy(stpcpy(end, i > 0 ? "," : ""), one);
        }
        strcpy(end, "]}}");
        cr_expect_eq(ask("/softmax", body, many ? "--max-memory" : "output"), many ? 413 : 200);
    }
    cr_expect_eq(server_stop(&server), 0);
    free(body);
}

/* Texts on their way count in the memory of all requests. */
Test(seeded, limit_of_memory_for_texts_that_are_still_to_come) {
    enum {
        SIZE = 1000000
    };
    struct client_connection connection;
    char *body = malloc(SIZE + 64), head[128], *end = stpcpy(body, "{\"text\":\"");
    memset(end, 'a', SIZE);
    strcpy(end + SIZE, "\"}");
    start((const char *const[]){"--total-memory", "3500KiB", NULL});
    snprintf(head, sizeof head,
             "POST /embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", strlen(body));
    cr_assert(client_open(&connection, server.port));
    cr_assert(client_send(&connection, head, strlen(head)));
    cr_assert(client_send(&connection, body, SIZE));
    for (int i = 0; i < 60000 && metric("attentiond_memory_bytes") < SIZE; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    cr_expect_eq(ask("/embeddings", body, "operator sets the limit with --total-memory"), 503);
    client_close(&connection);
    await("attentiond_memory_bytes", 0);
    cr_expect_eq(ask("/embeddings", body, "vocabulary"), 200);
    await("attentiond_memory_bytes", 0);
    cr_expect_eq(server_stop(&server), 0);
    free(body);
}

Test(seeded, words_are_counted) {
    enum {
        MOST = 16384
    };
    char *body = malloc(MOST * 2 + 64);
    start(NULL);
    for (int more = 0; more < 2; more++) {
        size_t size = (size_t)sprintf(body, "{\"text\":\"");
        for (int i = 0; i < MOST + more; i++) {
            memcpy(body + size, "a ", 2);
            size += 2;
        }
        strcpy(body + size, "\"}");
        cr_expect_eq(ask("/embeddings", body,
                         more ? "text has 16385 words; it may have at most 16384"
                              : "\"vocabulary\":{\"a\":16383},\"ids\":[16383,"),
                     more ? 422 : 200);
    }
    cr_expect_eq(server_stop(&server), 0);
    free(body);
}

/* Drawn by the workers, answered in chunks: the same bytes each time, whoever draws beside it. */
Test(seeded, long_answers_are_the_same_each_time) {
    static const char body[] = "{\"random\":{\"generator\":\"torch\",\"seed\":7},\"X\":{\"random\":"
                               "\"randn\",\"shape\":[500,"
                               "300]},\"mask\":{\"random\":\"randint\",\"high\":2,\"shape\":[500,"
                               "500]},\"dtype\":\"float64\"}";
    struct client_connection own, beside;
    struct client_response first, next;
    start(much_work);
    cr_assert(client_open(&own, server.port)); /* and not by client_request, which records it all */
    cr_assert(client_post(&own, "/attention", body, strlen(body), &first));
    cr_expect_eq(first.status, 200);
    cr_expect_gt(first.size, 4 << 20);
    cr_expect_not_null(strstr(first.headers, "chunked"));
    send_post(&beside, "/attention", HUGE_BODY "}");
    for (int i = 0; i < 3; i++) {
        cr_assert(client_post(&own, "/attention", body, strlen(body), &next));
        cr_expect_eq(next.size, first.size);
        cr_expect(next.size == first.size && memcmp(next.body, first.body, first.size) == 0);
        client_response_free(&next);
    }
    client_close(&beside);
    client_close(&own);
    client_response_free(&first);
    cr_expect_eq(server_stop(&server), 0);
}

/* The order of the keys is that of the draws; "random" may stand anywhere; what is drawn by nobody
 * does no harm. */
Test(seeded, the_request_decides_the_order) {
    static const char first[] = "\"ids\":[0],\"embedding\":[[0.41702]]";
    start(NULL);
    cr_expect_eq(ask("/embeddings",
                     "{\"tokens\":[\"a\"],\"digits\":5," NUMPY
                     ",\"embedding\":{\"random\":\"rand\",\"shape\":[1,1]}}",
                     first),
                 200);
    cr_expect_eq(ask("/embeddings",
                     "{\"embedding\":{\"shape\":[1,1],\"random\":\"rand\"},\"digits\":5,\"tokens\":"
                     "[\"a\"]," NUMPY "}",
                     first),
                 200);
    cr_expect_eq(ask("/attention",
                     "{" NUMPY
                     ",\"K\":[[1]],\"Q\":[[1]],\"V\":{\"random\":\"rand\",\"shape\":[1,1]},"
                     "\"digits\":5}",
                     "\"output\":[[0.41702]]"),
                 200);
    cr_expect_eq(ask("/attention",
                     "{" NUMPY
                     ",\"K\":[[1]],\"Q\":{\"random\":\"rand\",\"shape\":[1,1]},\"V\":{\"random\":"
                     "\"rand\",\"shape\":[1,1]},\"digits\":5}",
                     "\"output\":[[0.72032]]"),
                 200);
    cr_expect_eq(ask("/attention", "{" NUMPY ",\"X\":[[1]]}", "{\"output\":[[1]]"), 200);
    cr_expect_eq(
        ask("/embeddings", "{\"text\":\"B, a; B.\"}",
            "{\"tokens\":[\"b\",\"a\",\"b\"],\"vocabulary\":{\"a\":0,\"b\":2},\"ids\":[2,0,2]}\n"),
        200);
    cr_expect_eq(
        ask("/embeddings", "{\"text\":\"c b a z y x w v u t s r\",\"digits\":1}", "\"z\":11}"),
        200);
    cr_expect_eq(
        ask("/attention",
            "{\"tokens\":[\"a\",\"\\\"\\n\"],\"embedding\":[[0],[0]],\"return\":[\"weights\"]}",
            "{\"tokens\":[\"a\",\"\\\"\\n\"],\"weights\":[[0.5,0.5],[0.5,0.5]]}\n"),
        200);
    cr_expect_eq(server_stop(&server), 0);
}
