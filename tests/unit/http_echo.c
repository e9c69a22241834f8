/* http_echo.c has the app that answers at once with what it was sent. */
#include "http_echo.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http_fixture.h"

atomic_uint echo_begun, echo_ended, echo_released, echo_bodies_freed;
atomic_bool echo_holding, echo_let_go;

struct echo_exchange {
    char *bytes;
    size_t size, pieces;
};

static void free_body(void *body) {
    atomic_fetch_add(&echo_bodies_freed, 1);
    free(body);
}

static void *echo_begin(void *context, const struct http_request *request,
                        struct http_response *response) {
    cr_assert_str_eq(context, "context");
    if (strcmp(request->path, "/refuse") == 0) {
        http_problem(response, request, 405, "no", NULL, NULL);
        response->allow = "GET, HEAD";
        return NULL;
    }
    if (strcmp(request->path, "/static") == 0) {
        *response = (struct http_response){
            .status = 200, .media_type = "text/plain", .body = "static", .size = 6};
        return NULL;
    }
    if (strcmp(request->path, "/empty") == 0) {
        response->status = 204;
        return NULL;
    }
    atomic_fetch_add(&echo_begun, 1);
    return calloc(1, sizeof(struct echo_exchange));
}

static bool echo_body(void *exchange_, const void *bytes, size_t size) {
    struct echo_exchange *exchange = exchange_;
    char *grown = realloc(exchange->bytes, exchange->size + size);
    cr_assert_not_null(grown);
    memcpy(grown + exchange->size, bytes, size);
    exchange->bytes = grown;
    exchange->size += size;
    exchange->pieces++;
    return memchr(bytes, '!', size) == NULL;
}

static bool echo_end(void *exchange_, const struct http_request *request,
                     struct http_response *response) {
    struct echo_exchange *exchange = exchange_;
    atomic_fetch_add(&echo_ended, 1);
    if (strcmp(request->path, "/slow") == 0) {
        fixture_sleep_ms(2500);
    }
    if (strcmp(request->path, "/hold") == 0) {
        atomic_store(&echo_holding, true);
        while (!atomic_load(&echo_let_go)) {
            fixture_sleep_ms(1);
        }
    }
    size_t room = strlen(request->path) + strlen(request->media_type) + strlen(request->id) + 32;
    char *text = malloc(room + exchange->size);
    cr_assert_not_null(text);
    int length = sprintf(text, "%s%s %s %s %s\n", request->head ? "HEAD/" : "", request->method,
                         request->path, request->media_type, request->id);
    if (exchange->size > 0) {
        memcpy(text + length, exchange->bytes, exchange->size);
    }
    *response = (struct http_response){
        .status = 200,
        .body = text,
        .size = (size_t)length + exchange->size,
        .release = free_body,
        .timed = true,
        .timing = {1, 0.25, 12345.6789, 0},
    };
    return true;
}

static void echo_release(void *exchange_) {
    struct echo_exchange *exchange = exchange_;
    atomic_fetch_add(&echo_released, 1);
    free(exchange->bytes);
    free(exchange);
}

const struct http_app echo_app = {.context = "context",
                                  .begin = echo_begin,
                                  .body = echo_body,
                                  .end = echo_end,
                                  .release = echo_release};

void echo_serve(unsigned threads, unsigned connections, unsigned idle) {
    const struct http_options options = {
        .threads = threads,
        .max_body = ECHO_MAX_BODY,
        .max_connections = connections,
        .idle_timeout = idle,
        .header_timeout = 60,
        .body_timeout = 60,
        .write_timeout = 60,
        .drain_timeout = 3,
    };
    fixture_start(&options, &echo_app);
}

void echo_stop_and_count(void) {
    fixture_stop();
    cr_expect_gt(echo_begun, 0);
    cr_expect_eq(echo_begun, echo_released, "%u exchanges begun, %u released", echo_begun,
                 echo_released);
}
