/*
 * app.h - asks the app in the process of the test, without a socket and without workers: it gives
 * the app a body in pieces, and reads the answer.
 */
#ifndef SUPPORT_APP_H
#define SUPPORT_APP_H

#include <stdbool.h>
#include <stddef.h>

#include "http/http.h"

/* The body of a request. */
struct app_body {
    const void *bytes;
    size_t size, step; /* the app gets at most `step` bytes at a time */
    bool leaves;       /* the client leaves in the middle of the body */
};

/* An answer. */
struct app_answer {
    struct http_response response; /* its status is 0 if the client has left */
    char *body;                    /* owned: free(); a NUL follows the last byte */
    size_t size;
    const char *fault; /* what the app did against the rules of http_app; NULL = nothing */
};

/* Unless it is NULL, it is called with true before each call of the app, and with false after. */
extern void (*app_is_called)(bool is_called);

/* Asks the app. Each piece is an allocation of its exact size, so that a sanitizer sees whatever is
 * read behind it. */
void app_ask(const struct http_app *app, const struct http_request *request,
             const struct app_body *body, struct app_answer *answer);

#endif
