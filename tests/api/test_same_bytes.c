/*
 * test_same_bytes.c - promise 32: the same request gets the same bytes, alone and beside other
 * requests, whichever thread computes which part. Each request is asked REPEATS times on one
 * connection, and then as often on 64 connections while other clients ask other requests. The test
 * knows the service by its socket only.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/notebooks.h"
#include "support/rng.h"

enum {
    REPEATS = 1000,
    ASKING = 64,
    DISTURBING = 2
};

struct request {
    const char *path;
    char *body;
    size_t size;
    struct client_response first; /* the first answer, which all others must equal */
};

/* One request is from a notebook, one is computed by the workers, one has a long answer, one is
 * in float64, and one keeps a state. */
static struct request requests[5];
static const size_t request_count = sizeof requests / sizeof *requests;
static atomic_uint answered, faults;
static atomic_bool ending;

static void draw(struct request *q, uint64_t seed, size_t rows, size_t columns, const char *rest) {
    struct rng rng = {seed};
    FILE *to = open_memstream(&q->body, &q->size);
    cr_assert_not_null(to);
    q->path = "/attention";
    fputs("{\"X\":[", to);
    for (size_t i = 0; i < rows * columns; i++) {
        fprintf(to, "%s%.7g", i % columns != 0 ? "," : i > 0 ? "],[" : "[", rng_normal(&rng));
    }
    fprintf(to, "]]%s}", rest);
    fclose(to);
}

static bool is_same(const struct client_response *a, const struct client_response *b) {
    return a->status == b->status && a->size == b->size && memcmp(a->body, b->body, a->size) == 0;
}

static bool gets_the_first_answer(struct client_connection *connection, const struct request *q) {
    struct client_response response;
    if (!client_post(connection, q->path, q->body, q->size, &response)) {
        return false;
    }
    const bool same = is_same(&response, &q->first);
    client_response_free(&response);
    atomic_fetch_add(&answered, 1);
    return same;
}

static void *asking(void *unused) {
    struct client_connection connection;
    (void)unused;
    bool sound = client_open(&connection, the_daemon.port);
    for (size_t i = 0; sound && i < REPEATS / ASKING + 1; i++) {
        for (size_t j = 0; sound && j < request_count; j++) {
            sound = gets_the_first_answer(&connection, &requests[j]);
        }
    }
    client_close(&connection);
    atomic_fetch_add(&faults, !sound);
    return NULL;
}

/* Sends calls of other sizes, so that the workers always have other work in turn. */
static void *disturbing(void *seed) {
    struct rng rng = {*(const uint64_t *)seed};
    struct client_connection connection;
    bool open = client_open(&connection, the_daemon.port);
    while (open && !atomic_load(&ending)) {
        struct client_response response;
        struct request other;
        draw(&other, rng_bits(&rng) | 1, rng_between(&rng, 2, 300), rng_between(&rng, 1, 40),
             ",\"return\":[\"output\"]");
        open = client_post(&connection, other.path, other.body, other.size, &response);
        client_response_free(&response);
        free(other.body);
    }
    client_close(&connection);
    return NULL;
}

static void read_requests(void) {
    size_t count;
    struct notebook *notebooks = notebooks_read(&count);
    cr_assert_gt(count, 0);
    requests[0].path = "/attention";
    requests[0].body = strdup(notebooks[0].body);
    requests[0].size = notebooks[0].size;
    cr_assert_str_eq(notebooks[0].path, requests[0].path);
    notebooks_free(notebooks, count);
    draw(&requests[1], 1, 300, 32, ",\"causal\":true,\"return\":[\"output\",\"lse\"],\"digits\":9");
    draw(&requests[2], 2, 110, 8, ",\"return\":[\"weights\",\"masked_scores\"]");
    draw(&requests[3], 3, 200, 16, ",\"dtype\":\"float64\",\"softcap\":5,\"return\":[\"entropy\"]");
    draw(&requests[4], 4, 300, 32, ",\"normalize_QK\":true,\"return\":[\"output\"]");
    requests[4].path = "/linear-attention";
    for (size_t i = 0; i < request_count; i++) {
        struct request *q = &requests[i];
        cr_assert(
            client_request(the_daemon.port, "POST", q->path, NULL, q->body, q->size, &q->first));
        cr_assert_eq(q->first.status, 200, "%s", q->first.body);
    }
}

Test(same_bytes, promise_32_alone_and_beside_others, .timeout = 600) {
    struct client_connection connection;
    uint64_t seeds[DISTURBING];
    pthread_t threads[ASKING], others[DISTURBING];
    daemon_start(NULL);
    read_requests();
    cr_assert(client_open(&connection, the_daemon.port));
    for (size_t i = 0; i < REPEATS * request_count; i++) {
        cr_assert(gets_the_first_answer(&connection, &requests[i / REPEATS]),
                  "request %zu, time %zu", i / REPEATS, i % REPEATS);
    }
    client_close(&connection);
    for (size_t i = 0; i < DISTURBING; i++) {
        seeds[i] = 100 + i;
        cr_assert_eq(pthread_create(&others[i], NULL, disturbing, &seeds[i]), 0);
    }
    for (size_t i = 0; i < ASKING; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, asking, NULL), 0);
    }
    for (size_t i = 0; i < ASKING; i++) {
        pthread_join(threads[i], NULL);
    }
    atomic_store(&ending, true);
    for (size_t i = 0; i < DISTURBING; i++) {
        pthread_join(others[i], NULL);
    }
    cr_expect_eq(atomic_load(&faults), 0, "%u of %d connections got another answer",
                 atomic_load(&faults), (int)ASKING);
    cr_expect_geq(atomic_load(&answered), 2 * REPEATS * request_count);
    for (size_t i = 0; i < request_count; i++) {
        client_response_free(&requests[i].first);
        free(requests[i].body);
    }
    daemon_end();
}
