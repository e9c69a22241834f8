/* http_app.c - see http_app.h. */
#include "http_app.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http_fixture.h"

atomic_uint app_begun, app_ended, app_released, app_cancelled;
atomic_uint app_bodies_made, app_bodies_freed, app_pieces;
_Atomic uint64_t app_sent;
atomic_bool app_held, app_holding;
atomic_uint app_body_ms;
static const atomic_bool never;

struct exchange {
    char *bytes; /* the body of the request */
    size_t size;
    const struct http_request *request;
    struct http_response *response;
    struct http_pending *pending;
    pthread_t thread;
    atomic_bool cancel;
};

static bool begins(const struct http_request *request, const char *path) {
    return strncmp(request->path, path, strlen(path)) == 0;
}

/* Waits while the test holds the app, or until `cancel` is set. */
static void wait_while_held(const atomic_bool *cancel) {
    while (atomic_load(&app_held) && !atomic_load(cancel)) {
        fixture_sleep_ms(1);
    }
}

/* ----------------------------------------------------------------------------------- the bodies */

/* A body of the bytes 0, 1, ..., 250, 0, 1, ... up to `end`. */
struct body {
    size_t at, end;
    bool breaks; /* it fails at the end */
    bool slow;   /* the first piece takes so long that the app is asked to make the others */
};

static void free_body(void *body) {
    free(body);
    atomic_fetch_add(&app_bodies_freed, 1);
}

static bool read_body(void *body, char *out, size_t room, size_t *size) {
    struct body *b = body;
    if (b->slow && b->at == 0) {
        fixture_sleep_ms(2);
    }
    for (*size = 0; *size < room && b->at < b->end; b->at++) {
        out[(*size)++] = (char)(b->at % 251);
    }
    return *size > 0 || !b->breaks;
}

bool app_is_body(const char *bytes, size_t size) {
    size_t good = 0;
    while (good < size && (unsigned char)bytes[good] == good % 251) {
        good++;
    }
    return good == size;
}

/* Answers with a body that ends at `end`. Returns it. */
static struct body *answer_body(size_t end, struct http_response *response) {
    struct body *body = calloc(1, sizeof *body);
    cr_assert_not_null(body);
    body->end = end;
    *response = (struct http_response){.status = 200,
                                       .media_type = "text/plain",
                                       .body = body,
                                       .read = read_body,
                                       .release = free_body};
    atomic_fetch_add(&app_bodies_made, 1);
    return body;
}

/* `which` is the end of the path: "", "-short" or "-breaks"; `whole` is the size for "". */
static void answer_stream(const char *which, size_t whole, struct http_response *response) {
    struct body *body = answer_body(which[0] == '\0' ? whole : APP_SHORT, response);
    body->breaks = strcmp(which, "-breaks") == 0;
}

static void answer_sized(const struct http_request *request, struct http_response *response) {
    size_t end = 0, size = 0;
    const bool copied = begins(request, "/copied/");
    cr_assert_eq(sscanf(request->path + (copied ? 8 : 7), "%zu/%zu", &end, &size), 2);
    answer_body(end, response)->slow = !copied;
    response->size = size;
    response->copies = copied;
    response->inference_length = 1234567;
}

/* Answers with a text, which is owned. */
static void answer_text(const char *text, size_t size, struct http_response *response) {
    *response =
        (struct http_response){.status = 200, .body = text, .size = size, .release = free_body};
    atomic_fetch_add(&app_bodies_made, 1);
}

static void answer_told(const struct http_request *request, struct http_response *response) {
    char *text = malloc(1024);
    cr_assert_not_null(text);
    const int size =
        snprintf(text, 1024, "%s|%s", request->accept,
                 request->inference_header != NULL ? request->inference_header : "none");
    answer_text(text, (size_t)size, response);
}

static void answer_echo(const struct exchange *exchange, const struct http_request *request,
                        struct http_response *response) {
    const size_t room =
        strlen(request->path) + strlen(request->media_type) + strlen(request->id) + 32;
    char *text = malloc(room + exchange->size);
    cr_assert_not_null(text);
    const int length = sprintf(text, "%s%s %s %s %s\n", request->head ? "HEAD/" : "",
                               request->method, request->path, request->media_type, request->id);
    if (exchange->size > 0) {
        memcpy(text + length, exchange->bytes, exchange->size);
    }
    answer_text(text, (size_t)length + exchange->size, response);
    response->timed = true;
    memcpy(response->timing, (const double[]){1, 0.25, 12345.6789, 0}, sizeof response->timing);
}

/* -------------------------------------------------------------------------------------- the app */

/* Answers before the body is read. Returns false if the answer needs the body. */
static bool answer_head(const struct http_request *request, struct http_response *response) {
    static const char whole[16 * 1024];
    if (!request->authorized) {
        http_problem(response, request, 401, "a \"key\" is needed", NULL, NULL);
    } else if (strstr(request->path, "/none") != NULL) {
        http_problem(response, request, 404, "nothing is here", "/pointer",
                     &(struct http_place){1, 2, 3});
    } else if (begins(request, "/refuse")) {
        http_problem(response, request, 405, "no", NULL, NULL);
        response->allow = "GET, HEAD";
    } else if (begins(request, "/static")) {
        *response = (struct http_response){
            .status = 200, .media_type = "text/plain", .body = "static", .size = 6};
    } else if (begins(request, "/whole")) {
        *response = (struct http_response){.status = 200, .body = whole, .size = sizeof whole};
    } else if (begins(request, "/empty")) {
        response->status = 204;
    } else if (begins(request, "/draining")) {
        response->status = request->draining ? 503 : 200;
    } else if (begins(request, "/stream")) {
        answer_stream(request->path + strlen("/stream"), APP_LARGE, response);
    } else {
        return false;
    }
    return true;
}

static void *begin(void *context, const struct http_request *request,
                   struct http_response *response) {
    cr_assert_str_eq(context, "context");
    if (answer_head(request, response)) {
        return NULL;
    }
    atomic_fetch_add(&app_begun, 1);
    return calloc(1, sizeof(struct exchange));
}

static bool body(void *exchange_, const void *bytes, size_t size) {
    struct exchange *exchange = exchange_;
    fixture_sleep_ms(atomic_load(&app_body_ms));
    char *grown = realloc(exchange->bytes, exchange->size + size);
    cr_assert_not_null(grown);
    memcpy(grown + exchange->size, bytes, size);
    exchange->bytes = grown;
    exchange->size += size;
    return memchr(bytes, '!', size) == NULL;
}

static bool end(void *exchange_, const struct http_request *request,
                struct http_response *response) {
    struct exchange *exchange = exchange_;
    atomic_fetch_add(&app_ended, 1);
    exchange->request = request;
    exchange->response = response;
    if (begins(request, "/slow")) {
        fixture_sleep_ms(2500 * (long)fixture_seconds(1));
    } else if (strcmp(request->path, "/hold") == 0) {
        atomic_store(&app_holding, true);
        wait_while_held(&never);
    } else if (begins(request, "/made")) {
        answer_stream(request->path + strlen("/made"), APP_MADE, response);
        return true;
    } else if (begins(request, "/copied/") || begins(request, "/sized/")) {
        answer_sized(request, response);
        return true;
    } else if (strstr(request->path, "/told") != NULL) {
        answer_told(request, response);
        return true;
    } else if (begins(request, "/later") || begins(request, "/held")) {
        return false;
    }
    answer_echo(exchange, request, response);
    return true;
}

static void *compute(void *exchange_) {
    struct exchange *exchange = exchange_;
    if (begins(exchange->request, "/held")) {
        wait_while_held(&exchange->cancel);
    }
    exchange->response->status = atomic_load(&exchange->cancel) ? 503 : 200;
    exchange->response->body = "later";
    exchange->response->size = 5;
    http_resume(exchange->pending);
    return NULL;
}

static void start(void *exchange_, struct http_pending *pending) {
    struct exchange *exchange = exchange_;
    exchange->pending = pending;
    cr_assert_eq(pthread_create(&exchange->thread, NULL, compute, exchange), 0);
}

static void cancel(void *exchange) {
    atomic_fetch_add(&app_cancelled, 1);
    atomic_store(&((struct exchange *)exchange)->cancel, true);
}

static void *make_piece(void *pending) {
    wait_while_held(&never);
    http_make(pending);
    http_resume(pending);
    return NULL;
}

/* Makes the next piece of a long body, on a thread of its own. */
static void make(void *exchange, struct http_pending *pending) {
    pthread_t thread;
    (void)exchange;
    atomic_fetch_add(&app_pieces, 1);
    cr_assert_eq(pthread_create(&thread, NULL, make_piece, pending), 0);
    pthread_detach(thread);
}

static void release(void *exchange_) {
    struct exchange *exchange = exchange_;
    if (exchange->pending != NULL) {
        pthread_join(exchange->thread, NULL);
    }
    free(exchange->bytes);
    free(exchange);
    atomic_fetch_add(&app_released, 1);
}

static void completed(void *context, const struct http_request *request,
                      const struct http_record *record) {
    (void)context;
    (void)request;
    atomic_store(&app_sent, record->sent);
}

static const struct http_app app = {.context = "context",
                                    .inference_path = "/v2",
                                    .begin = begin,
                                    .body = body,
                                    .end = end,
                                    .start = start,
                                    .cancel = cancel,
                                    .make = make,
                                    .release = release,
                                    .completed = completed};

static void set_default(unsigned *value, unsigned usual) {
    *value = *value > 0 ? *value : usual;
}

void app_serve(struct http_options options) {
    set_default(&options.threads, 2);
    set_default(&options.max_connections, 300);
    set_default(&options.idle_timeout, fixture_seconds(60));
    set_default(&options.header_timeout, fixture_seconds(60));
    set_default(&options.body_timeout, fixture_seconds(60));
    set_default(&options.write_timeout, fixture_seconds(60));
    set_default(&options.drain_timeout, fixture_seconds(30));
    options.max_body = options.max_body > 0 ? options.max_body : 1 << 20;
    fixture_start(&options, &app);
}

void app_stop(void) {
    cr_expect(http_stop(fixture_server));
    fixture_server = NULL;
    cr_expect_eq(app_begun, app_released, "%u exchanges begun, %u released", app_begun,
                 app_released);
    cr_expect_eq(app_bodies_made, app_bodies_freed, "%u bodies made, %u freed", app_bodies_made,
                 app_bodies_freed);
}
