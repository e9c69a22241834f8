/*
 * test_metrics.c - what the daemon counts: each request by route and status, its bytes and its
 * stages, and the requests that it refuses or gives up when it is busy. The tests know the service
 * by its socket only.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/json.h"

Test(daemon, metrics_count_every_request) {
    static const struct {
        const char *method, *path, *body, *name;
        unsigned times;
    } cases[] = {
        {"POST", "/attention", "{\"X\":[[1]]}", "{route=\"/attention\",code=\"200\"}", 7},
        {"POST", "/attention", "{\"X\":[[1],2]}", "{route=\"/attention\",code=\"422\"}", 3},
        {"POST", "/softmax", "{", "{route=\"/softmax\",code=\"400\"}", 2},
        {"GET", "/softmax", "", "{route=\"/softmax\",code=\"405\"}", 1},
        {"GET", "/health/live", "", "{route=\"/health/live\",code=\"200\"}", 4},
        {"GET", "/nowhere", "", "{route=\"none\",code=\"404\"}", 5},
    };
    struct client_response response;
    double received = 0, sent = 0, all = 0, pages = 0, name_value;
    char name[128];
    daemon_start(NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        for (unsigned time = 0; time < cases[i].times; time++) {
            cr_assert(client_request(the_daemon.port, cases[i].method, cases[i].path, NULL,
                                     cases[i].body, strlen(cases[i].body), &response));
            received += (double)strlen(cases[i].body);
            sent += (double)response.size;
            all++;
            client_response_free(&response);
        }
    }
    struct client_connection raw; /* a POST without a length, which client_request() cannot send */
    static const char endless[] = "POST /softmax HTTP/1.1\r\nHost: a\r\n\r\n";
    cr_assert(client_open(&raw, the_daemon.port));
    cr_assert(client_send(&raw, endless, sizeof endless - 1));
    cr_assert(client_receive(&raw, false, &response));
    sent += (double)response.size;
    all++;
    client_response_free(&response);
    client_close(&raw);
    /* A client may have its answer before the server has counted the request. */
    char *page = daemon_metrics();
    for (; daemon_metric_on(page, "attentiond_requests_in_flight") != 1; page = daemon_metrics()) {
        sent += (double)strlen(page);
        all++;
        pages++;
        free(page);
    }
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(name, sizeof name, "attentiond_requests_total%s", cases[i].name);
        name_value = daemon_metric_on(page, name);
        cr_expect(name_value == cases[i].times, "%s %g", name, name_value);
    }
    cr_expect_eq(
        daemon_metric_on(page, "attentiond_requests_total{route=\"/softmax\",code=\"411\"}"), 1);
    cr_expect_eq(daemon_metric_on(page, "attentiond_request_bytes_total"), received);
    cr_expect_eq(daemon_metric_on(page, "attentiond_response_bytes_total"), sent);
    cr_expect_eq(daemon_metric_on(page, "attentiond_request_duration_seconds_count"), all);
    cr_expect_eq(daemon_metric_on(page, "attentiond_request_duration_seconds_bucket{le=\"+Inf\"}"),
                 all);
    cr_expect_eq(
        daemon_metric_on(page, "attentiond_stage_duration_seconds_count{stage=\"decode\"}"), 12);
    cr_expect_gt(daemon_metric_on(page, "attentiond_stage_duration_seconds_sum{stage=\"encode\"}"),
                 0);
    cr_expect_eq(daemon_metric_on(page, "attentiond_requests_in_flight"), 1);
    cr_expect_eq(daemon_metric_on(page, "attentiond_memory_bytes"), 0);
    cr_expect_eq(daemon_metric_on(page, "attentiond_queue_cost"), 0);
    cr_expect_gt(daemon_metric_on(page, "process_resident_memory_bytes"), 1e6);
    cr_expect_gt(daemon_metric_on(page, "process_start_time_seconds"), 1.7e9);
    free(page);
    do {
        page = daemon_metrics();
        name_value =
            daemon_metric_on(page, "attentiond_requests_total{route=\"/metrics\",code=\"200\"}");
        free(page);
        pages++;
    } while (name_value != pages);
    daemon_end();
}

/* A long answer is encoded while it is sent, after its head. The metric counts that, too. */
Test(daemon, encoding_counts_to_the_last_byte) {
    struct client_response response;
    size_t size;
    char *body = json_body("{\"X\":#4000x8}", &size);
    daemon_start((const char *const[]){NULL});
    cr_assert(client_request(the_daemon.port, "POST", "/softmax", NULL, body, size, &response));
    cr_assert_eq(response.status, 200, "%s", response.body);
    const char *encode = strstr(response.headers, "encode;dur=");
    cr_assert_not_null(encode);
    daemon_await_metric("attentiond_stage_duration_seconds_count{stage=\"encode\"}", 1);
    cr_expect_gt(daemon_metric("attentiond_stage_duration_seconds_sum{stage=\"encode\"}") * 1e3,
                 strtod(encode + strlen("encode;dur="), NULL) + 0.001);
    client_response_free(&response);
    free(body);
    daemon_end();
}

/* The server counts work that it refuses, that is late, or that its client gave up. Other clients
 * get a 503 with Retry-After while the queue is full. */
Test(daemon, busy_servers_say_so) {
    enum {
        ROWS = 200000
    };
    struct client_connection working;
    struct client_response response;
    char value[16] = "";
    size_t size;
    char *page, *body = json_rows("\"return\":[\"lse\"],\"softcap\":5", ROWS, &size);
    /* The body is made longer below. */
    body = realloc(body, size + 128);
    cr_assert_not_null(body);
    daemon_start((const char *const[]){"--max-queue", "1", "--max-work", "1e18", NULL});
    cr_assert(client_open(&working, the_daemon.port));
    cr_assert(client_send_post(&working, "/attention", body, size));
    daemon_await_metric("attentiond_jobs", 1); /* the computation runs */
    cr_assert(client_request(the_daemon.port, "POST", "/attention", NULL, body, size, &response));
    cr_expect_eq(response.status, 503, "%s", response.body);
    cr_expect(client_header(&response, "Retry-After", value, sizeof value));
    cr_expect_str_eq(value, "1");
    cr_expect_not_null(strstr(response.body, "--max-queue"));
    client_response_free(&response);
    static const char small[] = "{\"X\":[[1]]}"; /* computed at once, without the queue */
    cr_assert(client_request(the_daemon.port, "POST", "/attention", NULL, small, sizeof small - 1,
                             &response));
    cr_expect_eq(response.status, 200);
    client_response_free(&response);
    client_close(&working); /* the client leaves */
    do {
        page = daemon_metrics();
        value[0] = daemon_metric_on(page, "attentiond_cancelled_total") == 1 ? '1' : '\0';
        cr_expect_eq(daemon_metric_on(page, "attentiond_rejected_total{reason=\"queue\"}"), 1);
        free(page);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    } while (value[0] != '1');
    memcpy(body + size - 1, ",\"timeout\":1e-6}", sizeof ",\"timeout\":1e-6}");
    size += strlen(",\"timeout\":1e-6");
    do { /* until the abandoned computation has ended */
        cr_assert(
            client_request(the_daemon.port, "POST", "/attention", NULL, body, size, &response));
        cr_expect_eq(response.status, 503);
        value[0] = strstr(response.body, "within 1e-06 s, the ") != NULL ? '1' : '\0';
        client_response_free(&response);
    } while (value[0] != '1');
    cr_expect_eq(daemon_metric("attentiond_rejected_total{reason=\"timeout\"}"), 1);
    daemon_end();
    free(body);
}
