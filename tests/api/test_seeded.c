/*
 * test_seeded.c - draws as work of the service: the workers do it, it ends with its client and its
 * deadline, it is bounded in memory, and it never delays the answer to a small request.
 * data/exchanges.txt has draws over a limit, and data/golden_seeded.json the numbers that are
 * drawn. The tests know the service by its socket only.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/wait.h"

TestSuite(seeded, .timeout = 1200);

/* A draw that takes one core minutes. */
#define HUGE_BODY                                                                                  \
    "{\"random\":{\"generator\":\"torch\",\"seed\":1},\"X\":{\"random\":\"randn\",\"shape\":[3,2]" \
    ","                                                                                            \
    "\"discard\":[{\"random\":\"randn\",\"shape\":[1000,1000,4000]}]}"
#define NUMPY "\"random\":{\"generator\":\"numpy\",\"seed\":1}"

static void open_and_post(struct client_connection *connection, const char *path,
                          const char *body) {
    cr_assert(client_open(connection, the_daemon.port));
    cr_assert(client_send_post(connection, path, body, strlen(body)));
}

static const char *const much_work[] = {
    "--max-work", "1e18", "--max-queue", "1e18", "--io-threads", "1", "--workers", "1", NULL};

/* The daemon has one thread that reads and answers and one that computes. A draw blocks neither. */
Test(seeded, a_huge_draw_ends_with_its_client_and_keeps_nobody) {
    struct client_connection connection;
    daemon_start(much_work);
    open_and_post(&connection, "/attention", HUGE_BODY "}");
    daemon_await_metric("attentiond_jobs", 1);
    for (int i = 0; i < 20; i++) { /* the first request is computed at once, the second is a job */
        expect_answer("POST", "/attention", NULL,
                      "{" NUMPY ",\"X\":{\"random\":\"rand\",\"shape\":[2,2]}}", 200,
                      "\"output\":[[");
        expect_answer("POST", "/softmax", NULL,
                      "{" NUMPY ",\"X\":{\"random\":\"rand\",\"shape\":20000}}", 200,
                      "{\"output\":[");
    }
    cr_expect_eq(daemon_metric("attentiond_jobs"), 1);
    client_close(&connection); /* the client leaves */
    daemon_await_metric("attentiond_cancelled_total", 1);
    daemon_await_metric("attentiond_jobs", 0);
    daemon_end();
}

Test(seeded, a_draw_that_is_late) {
    daemon_start(much_work);
    expect_answer("POST", "/attention", NULL, HUGE_BODY ",\"timeout\":0.05}", 503,
                  "within 0.05 s, the ");
    expect_answer("POST", "/embeddings", NULL,
                  "{\"text\":\"a\",\"timeout\":0.05," NUMPY
                  ",\"embedding\":{\"random\":\"rand\",\"shape\":[1,2],\"discard\":[{\"random\":"
                  "\"rand\",\"shape\":4000000000}]}}",
                  503, "within 0.05 s, the ");
    cr_expect_eq(daemon_metric("attentiond_rejected_total{reason=\"timeout\"}"), 2);
    daemon_await_metric("attentiond_jobs", 0);
    daemon_end();
}

Test(seeded, a_draw_does_not_outlive_the_server) {
    struct client_connection connection;
    struct client_response response;
    daemon_start((const char *const[]){"--max-work", "1e18", "--drain-timeout", "1", NULL});
    open_and_post(&connection, "/attention", HUGE_BODY "}");
    daemon_await_metric("attentiond_jobs", 1);
    daemon_end();
    cr_assert(client_receive(&connection, false, &response));
    cr_expect_eq(response.status, 503, "%s", response.body);
    client_response_free(&response);
    client_close(&connection);
}

/* A discarded draw takes some 400 bytes until all numbers are drawn. */
Test(seeded, limit_of_memory_for_draws_that_are_thrown_away) {
    static const char head[] = "{" NUMPY ",\"X\":{\"random\":\"rand\",\"shape\":[2],\"discard\":[";
    static const char one[] = "{\"random\":\"rand\",\"shape\":1}";
    char *body = malloc(sizeof head + 20000 * sizeof one + 8);
    daemon_start((const char *const[]){"--max-memory", "4MiB", NULL});
    for (int many = 0; many < 2; many++) {
        char *end = stpcpy(body, head);
        for (int i = 0; i < (many ? 20000 : 5000); i++) {
            end = stpcpy(stpcpy(end, i > 0 ? "," : ""), one);
        }
        strcpy(end, "]}}");
        expect_answer("POST", "/softmax", NULL, body, many ? 413 : 200,
                      many ? "--max-memory" : "output");
    }
    daemon_end();
    free(body);
}

/* The bytes of a text count as memory of all requests while it arrives. */
Test(seeded, limit_of_memory_for_texts_that_are_still_to_come) {
    enum {
        SIZE = 1000000
    };
    struct client_connection connection;
    char *body = malloc(SIZE + 64), head[128], *end = stpcpy(body, "{\"text\":\"");
    memset(end, 'a', SIZE);
    strcpy(end + SIZE, "\"}");
    daemon_start((const char *const[]){"--total-memory", "3500KiB", NULL});
    snprintf(head, sizeof head,
             "POST /embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", strlen(body));
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_send(&connection, head, strlen(head)));
    cr_assert(client_send(&connection, body, SIZE));
    WAIT_UNTIL(daemon_metric("attentiond_memory_bytes") >= SIZE);
    expect_answer("POST", "/embeddings", NULL, body, 503,
                  "operator sets the limit with --total-memory");
    client_close(&connection);
    daemon_await_metric("attentiond_memory_bytes", 0);
    expect_answer("POST", "/embeddings", NULL, body, 200, "vocabulary");
    daemon_await_metric("attentiond_memory_bytes", 0);
    daemon_end();
    free(body);
}

Test(seeded, words_are_counted) {
    enum {
        MOST = 16384
    };
    char *body = malloc(MOST * 2 + 64);
    daemon_start(NULL);
    for (int more = 0; more < 2; more++) {
        size_t size = (size_t)sprintf(body, "{\"text\":\"");
        for (int i = 0; i < MOST + more; i++) {
            memcpy(body + size, "a ", 2);
            size += 2;
        }
        strcpy(body + size, "\"}");
        expect_answer("POST", "/embeddings", NULL, body, more ? 422 : 200,
                      more ? "text has 16385 words; it may have at most 16384"
                           : "\"vocabulary\":{\"a\":16383},\"ids\":[16383,");
    }
    daemon_end();
    free(body);
}

/* The workers draw, and the answer comes in chunks. It has the same bytes each time, also while
 * another client draws. */
Test(seeded, long_answers_are_the_same_each_time) {
    static const char body[] = "{\"random\":{\"generator\":\"torch\",\"seed\":7},\"X\":{\"random\":"
                               "\"randn\",\"shape\":[500,"
                               "300]},\"mask\":{\"random\":\"randint\",\"high\":2,\"shape\":[500,"
                               "500]},\"dtype\":\"float64\"}";
    struct client_connection own, beside;
    struct client_response first, next;
    daemon_start(much_work);
    /* client_request() would record the long answers. */
    cr_assert(client_open(&own, the_daemon.port));
    cr_assert(client_post(&own, "/attention", body, strlen(body), &first));
    cr_expect_eq(first.status, 200);
    cr_expect_gt(first.size, 4 << 20);
    cr_expect_not_null(strstr(first.headers, "chunked"));
    open_and_post(&beside, "/attention", HUGE_BODY "}");
    for (int i = 0; i < 3; i++) {
        cr_assert(client_post(&own, "/attention", body, strlen(body), &next));
        cr_expect_eq(next.size, first.size);
        cr_expect(next.size == first.size && memcmp(next.body, first.body, first.size) == 0);
        client_response_free(&next);
    }
    client_close(&beside);
    client_close(&own);
    client_response_free(&first);
    daemon_end();
}
