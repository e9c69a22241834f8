/*
 * server.c runs the whole service in one process under mixed load: small and large calls, wrong
 * ones, clients that leave in the middle, many clients at a time; then a stop under load. Every
 * answer to the same request must have the same bytes. It is meant for ThreadSanitizer;
 * SECONDS=600 makes it run longer.
 */
#define _GNU_SOURCE /* mremap */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "api/api.h"
#include "http/http.h"
#include "support/client.h"
#include "support/json.h"
#include "support/rng.h"

enum {
    CLIENTS = 12
};

#define SEED "{\"random\":{\"generator\":\"torch\",\"seed\":1},"

static const struct {
    const char *format; /* see json_body() */
    int status;
} asked[] = {
    {"{\"X\":#4x8}", 200},
    {"{\"X\":#60x8,\"causal\":true}", 200},
    {"{\"X\":#700x8,\"return\":[\"output\",\"entropy\"]}", 200},
    {"{\"X\":#700x8,\"scale\":1e38}", 422},
    {"{\"X\":#400x8,\"return\":[\"comparison\"],\"expected\":{\"scores\":#400x400}}", 200},
    {"{\"X\":[[1.5,2.25],[0.5", 400},
    {"{\"X\":#700x8,\"timeout\":1e-9,\"return\":[\"entropy\"]}", 503},
    {SEED "\"X\":{\"random\":\"randn\",\"shape\":[4,3]}}", 200},
    {SEED "\"Q\":{\"random\":\"randn\",\"shape\":[300,200]},\"K\":{\"random\":\"rand\","
          "\"shape\":[200,200]},\"V\":{\"random\":\"rand\",\"shape\":[200,1]},\"mask\":{"
          "\"random\":\"randint\",\"high\":2,\"shape\":[300,200]},\"return\":[\"output\"]}",
     200},
    {SEED "\"text\":\"a rose is a rose is a rose\",\"embedding_dim\":3000,"
          "\"return\":[\"weights\"]}",
     200},
    {SEED "\"timeout\":0.01,\"X\":{\"random\":\"rand\",\"shape\":[1,1],\"discard\":[{\"random\":"
          "\"rand\",\"shape\":1000000000}]}}",
     503},
    /* These two have so many values that the workers parse them. */
    {SEED "\"embedding_dim\":3,\"tokens\":[\"a\"*1200(,\"word\")],\"return\":[\"output\"]}", 200},
    {"{\"X\":[[]*1200(,[])]}", 422},
};

enum {
    REQUESTS = COUNT(asked)
};

/* A request and its first answer. */
static struct request {
    char *body;
    size_t size;
    int status;
    pthread_mutex_t mutex;
    char *answer;
} requests[REQUESTS];

/* Stands in for mremap() of the C library. ThreadSanitizer intercepts mmap() and munmap() only:
 * where a mapping has moved away by mremap(), it takes the next thread there for a data race. */
void *mremap(void *addr, size_t old_len, size_t new_len, int flags, ...) {
    (void)flags; /* the service gives MREMAP_MAYMOVE */
    void *data = mmap(NULL, new_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data != MAP_FAILED) {
        memcpy(data, addr, old_len < new_len ? old_len : new_len);
        munmap(addr, old_len);
    }
    return data;
}

static unsigned port;
static atomic_bool ending;
static atomic_uint answered, refused, faults;

static void fault(const char *what, int status, const char *body) {
    fprintf(stderr, "%s: %d %.300s\n", what, status, body);
    atomic_fetch_add(&faults, 1);
}

static void prepare(void) {
    for (size_t i = 0; i < REQUESTS; i++) {
        requests[i].body = json_body(asked[i].format, &requests[i].size);
        requests[i].status = asked[i].status;
        pthread_mutex_init(&requests[i].mutex, NULL);
    }
}

/* Cuts off the body before its "request_id", which differs from answer to answer. */
static void drop_id(char *body) {
    char *id = strstr(body, "\"request_id\"");
    if (id != NULL) {
        *id = '\0';
    }
}

static void check(struct request *q, const struct client_response *response) {
    if (response->status == 503) { /* busy, or late */
        atomic_fetch_add(&refused, 1);
        return;
    }
    if (response->status != q->status) {
        fault("a wrong status", response->status, response->body);
        return;
    }
    atomic_fetch_add(&answered, 1);
    drop_id(response->body);
    pthread_mutex_lock(&q->mutex);
    if (q->answer == NULL) {
        q->answer = strdup(response->body);
    } else if (strcmp(q->answer, response->body) != 0) {
        fault("two answers to one request", response->status, response->body);
    }
    pthread_mutex_unlock(&q->mutex);
}

static bool send_request(struct client_connection *connection, const struct request *q) {
    char head[256];
    const int size =
        snprintf(head, sizeof head,
                 "POST /attention HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", q->size);
    return client_send(connection, head, (size_t)size) && client_send(connection, q->body, q->size);
}

static void *client(void *seed) {
    struct rng rng = {*(const uint64_t *)seed};
    while (!atomic_load(&ending)) {
        struct client_connection connection;
        struct client_response response;
        if (!client_open(&connection, port)) {
            break;
        }
        for (size_t left = rng_between(&rng, 1, 20); left > 0; left--) {
            struct request *q = &requests[rng_between(&rng, 0, REQUESTS - 1)];
            if (!send_request(&connection, q) || rng_chance(&rng, 8) ||
                !client_receive(&connection, false, &response)) {
                break; /* the client leaves, or the server ends */
            }
            check(q, &response);
            client_response_free(&response);
        }
        client_close(&connection);
    }
    return NULL;
}

/* Returns whether each request that can be answered has been. */
static bool all_answered(void) {
    bool all = true;
    for (size_t i = 0; i < REQUESTS; i++) {
        pthread_mutex_lock(&requests[i].mutex);
        all = all && (requests[i].answer != NULL || requests[i].status == 503);
        pthread_mutex_unlock(&requests[i].mutex);
    }
    return all;
}

int main(void) {
    struct api_state state = {.budget = {.max_request = 64 << 20, .max_total = 16 << 20},
                              .max_work = 1e12,
                              .timeout = 60,
                              .threads = 3};
    const struct jobs_options workers = {.threads = 3, .max_jobs = 6, .max_cost = 2e10};
    const struct http_options options = {.address = "127.0.0.1",
                                         .threads = 2,
                                         .max_body = 4 << 20,
                                         .max_connections = 100,
                                         .idle_timeout = 30,
                                         .header_timeout = 30,
                                         .body_timeout = 30,
                                         .write_timeout = 30,
                                         .drain_timeout = 10};
    const char *seconds = getenv("SECONDS");
    char error[256];
    uint64_t seeds[CLIENTS];
    pthread_t clients[CLIENTS];
    signal(SIGPIPE, SIG_IGN);
    prepare();
    state.jobs = jobs_start(&workers);
    const struct http_app app = api_app(&state);
    struct http_server *server = http_start(&options, &app, error, sizeof error);
    if (state.jobs == NULL || server == NULL) {
        fprintf(stderr, "the server does not start\n");
        return 1;
    }
    port = http_port(server);
    for (size_t i = 0; i < CLIENTS; i++) {
        seeds[i] = i + 1;
        if (pthread_create(&clients[i], NULL, client, &seeds[i]) != 0) {
            fprintf(stderr, "a thread does not start\n");
            return 1;
        }
    }
    nanosleep(&(struct timespec){.tv_sec = seconds != NULL ? atol(seconds) : 10}, NULL);
    for (int more = 0; more < 100 && !all_answered(); more++) { /* on a busy machine */
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    }
    if (!http_stop(server)) { /* under load */
        fault("the server does not stop", 0, "");
        return 1;
    }
    atomic_store(&ending, true);
    for (size_t i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i], NULL);
    }
    if (jobs_load(state.jobs).jobs != 0 || atomic_load(&state.budget.used) != 0) {
        fault("jobs or memory are left", 0, "");
    }
    jobs_stop(state.jobs);
    for (size_t i = 0; i < REQUESTS; i++) {
        if (requests[i].answer == NULL && requests[i].status != 503) {
            fault("a request without any answer", (int)i, "");
        }
        free(requests[i].answer);
        free(requests[i].body);
    }
    printf("%u answers, %u refused, %u faults\n", atomic_load(&answered), atomic_load(&refused),
           atomic_load(&faults));
    return atomic_load(&faults) != 0;
}
