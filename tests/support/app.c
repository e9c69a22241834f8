/* app.c - see app.h. */
#include "support/app.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROOM = 4099 /* bytes of a piece of an answer; it is odd, so that pieces end everywhere */
};

void (*app_is_called)(bool is_called);

static void note(bool is_called) {
    if (app_is_called != NULL) {
        app_is_called(is_called);
    }
}

static void *grow(void *block, size_t size) {
    block = realloc(block, size);
    if (block == NULL) {
        abort();
    }
    return block;
}

static void append(struct app_answer *answer, const void *bytes, size_t size) {
    answer->body = grow(answer->body, answer->size + size + 1);
    memcpy(answer->body + answer->size, size > 0 ? bytes : "", size);
    answer->size += size;
    answer->body[answer->size] = '\0';
}

/* Gives the body to the app until it wants no more. */
static void feed(const struct http_app *app, void *exchange, const struct app_body *body) {
    const size_t size = body->leaves ? body->size / 2 : body->size;
    bool wanted = true;
    for (size_t at = 0, part; wanted && at < size; at += part) {
        part = body->step < size - at ? body->step : size - at;
        void *piece = memcpy(grow(NULL, part), (const char *)body->bytes + at, part);
        note(true);
        wanted = app->body(exchange, piece, part);
        note(false);
        free(piece);
    }
}

/* Reads a body that is made while it is sent. Returns what is wrong, or NULL. */
static const char *read_stream(struct app_answer *answer) {
    const struct http_response *response = &answer->response;
    char *piece = grow(NULL, ROOM); /* a sanitizer sees a write beyond it */
    const char *fault = NULL;
    size_t size = ROOM, last;
    do {
        last = size;
        note(true);
        const bool whole = response->read((void *)(uintptr_t)response->body, piece, ROOM, &size);
        note(false);
        fault = !whole                     ? "the body breaks off"
                : size > ROOM              ? "a piece is larger than its room"
                : last < ROOM && size != 0 ? "there is more behind the end"
                                           : NULL;
        append(answer, piece, fault == NULL ? size : 0);
    } while (fault == NULL && (last == ROOM || size != 0));
    free(piece);
    if (fault == NULL && response->size != 0 && response->size != answer->size) {
        fault = "the body is not as long as it was said to be";
    }
    return fault;
}

void app_ask(const struct http_app *app, const struct http_request *request,
             const struct app_body *body, struct app_answer *answer) {
    struct http_request asked = *request;
    struct http_response *response = &answer->response;
    *answer = (struct app_answer){0};
    asked.authorized = true;
    asked.route = app->find(asked.path);
    note(true);
    void *exchange = app->begin(app->context, &asked, response);
    note(false);
    if (exchange != NULL) {
        feed(app, exchange, body);
        note(true);
        answer->fault = body->leaves || app->end(exchange, &asked, response)
                            ? NULL
                            : "the answer comes later, but there are no workers";
        note(false);
    }
    append(answer, "", 0);
    if (response->read != NULL && answer->fault == NULL) {
        answer->fault = read_stream(answer);
    } else if (response->read == NULL) {
        append(answer, response->body, response->size);
    }
    note(true);
    if (response->release != NULL) {
        response->release((void *)(uintptr_t)response->body);
    }
    if (exchange != NULL) { /* the body may lie in the exchange */
        app->release(exchange);
    }
    note(false);
}
