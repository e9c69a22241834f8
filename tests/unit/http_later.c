/*
 * http_later.c has the app whose answers come later. Each answer, and each piece of a long body, is
 * made on a thread of its own.
 */
#include "http_later.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "http_fixture.h"

atomic_uint later_begun, later_released, later_cancelled, later_streams_freed, later_made;
atomic_bool later_held;

const struct http_options later_patient = {
    .header_timeout = 60, .body_timeout = 60, .write_timeout = 60, .drain_timeout = 30};

struct later_exchange {
    const struct http_request *request;
    struct http_response *response;
    struct http_pending *pending;
    pthread_t thread;
    atomic_bool cancel;
};

/* A body of the bytes 0, 1, ..., 250, 0, 1, ... up to `end`. At the end, `breaks` makes it fail. */
struct counting {
    size_t at, end;
    bool breaks;
};

static bool read_counting(void *body, char *out, size_t room, size_t *size) {
    struct counting *c = body;
    for (*size = 0; *size < room && c->at < c->end; c->at++) {
        out[(*size)++] = (char)(c->at % 251);
    }
    return *size > 0 || !c->breaks;
}

static void free_counting(void *body) {
    free(body);
    atomic_fetch_add(&later_streams_freed, 1);
}

/* Answers with such a body. `which` is the end of the path: "", "-short" or "-breaks"; `whole` is
 * the size for "". */
static void answer_counting(const char *which, size_t whole, struct http_response *response) {
    struct counting *counting = calloc(1, sizeof *counting);
    counting->breaks = strcmp(which, "-breaks") == 0;
    counting->end = which[0] == '\0' ? whole : LATER_SHORT;
    *response = (struct http_response){.status = 200,
                                       .media_type = "text/plain",
                                       .body = counting,
                                       .read = read_counting,
                                       .release = free_counting};
}

static void *later_begin(void *context, const struct http_request *request,
                         struct http_response *response) {
    static const char whole[16 * 1024];
    (void)context;
    if (strcmp(request->path, "/whole") == 0) {
        *response = (struct http_response){.status = 200, .body = whole, .size = sizeof whole};
        return NULL;
    }
    if (strcmp(request->path, "/draining") == 0) {
        response->status = request->draining ? 503 : 200;
        return NULL;
    }
    if (strncmp(request->path, "/stream", 7) == 0) {
        answer_counting(request->path + 7, LATER_LARGE, response);
        return NULL;
    }
    atomic_fetch_add(&later_begun, 1);
    return calloc(1, sizeof(struct later_exchange));
}

static bool later_body(void *exchange, const void *bytes, size_t size) {
    (void)exchange;
    (void)bytes;
    (void)size;
    return true;
}

static bool later_end(void *exchange_, const struct http_request *request,
                      struct http_response *response) {
    struct later_exchange *exchange = exchange_;
    exchange->request = request;
    exchange->response = response;
    if (strncmp(request->path, "/made", 5) == 0) {
        answer_counting(request->path + 5, LATER_MADE, response);
        return true;
    }
    return false;
}

/* Makes the next piece of a long body, on a thread of its own. */
static void *make_piece(void *pending) {
    while (atomic_load(&later_held)) {
        fixture_sleep_ms(1);
    }
    http_make(pending);
    http_resume(pending);
    return NULL;
}

static void later_make(void *exchange, struct http_pending *pending) {
    pthread_t thread;
    (void)exchange;
    atomic_fetch_add(&later_made, 1);
    cr_assert_eq(pthread_create(&thread, NULL, make_piece, pending), 0);
    pthread_detach(thread);
}

static void *compute(void *exchange_) {
    struct later_exchange *exchange = exchange_;
    while (strcmp(exchange->request->path, "/held") == 0 && atomic_load(&later_held) &&
           !atomic_load(&exchange->cancel)) {
        fixture_sleep_ms(1);
    }
    exchange->response->status = atomic_load(&exchange->cancel) ? 503 : 200;
    exchange->response->body = "later";
    exchange->response->size = 5;
    http_resume(exchange->pending);
    return NULL;
}

static void later_start(void *exchange_, struct http_pending *pending) {
    struct later_exchange *exchange = exchange_;
    exchange->pending = pending;
    cr_assert_eq(pthread_create(&exchange->thread, NULL, compute, exchange), 0);
}

static void later_cancel(void *exchange) {
    atomic_fetch_add(&later_cancelled, 1);
    atomic_store(&((struct later_exchange *)exchange)->cancel, true);
}

static void later_release(void *exchange_) {
    struct later_exchange *exchange = exchange_;
    if (exchange->pending != NULL) {
        pthread_join(exchange->thread, NULL);
    }
    free(exchange);
    atomic_fetch_add(&later_released, 1);
}

static const struct http_app later_app = {.begin = later_begin,
                                          .body = later_body,
                                          .end = later_end,
                                          .start = later_start,
                                          .cancel = later_cancel,
                                          .make = later_make,
                                          .release = later_release};

void later_serve(struct http_options options) {
    options.threads = 2;
    options.max_body = 1 << 20;
    options.max_connections = 300;
    options.idle_timeout = options.idle_timeout > 0 ? options.idle_timeout : 60;
    fixture_start(&options, &later_app);
}

void later_stop(void) {
    cr_expect(http_stop(fixture_server));
    cr_expect_eq(later_begun, later_released, "%u exchanges begun, %u released", later_begun,
                 later_released);
    fixture_server = NULL;
}
