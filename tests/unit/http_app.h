/*
 * http_app.h - an app for tests of the HTTP server. The answer to most paths is "METHOD path
 * media-type id\n" and the body of the request, with timings; the METHOD of a HEAD request is
 * "HEAD/GET". Other answers, before the body is read:
 *   /refuse          405
 *   /static, /whole  200 with a static text, or with 16 KiB
 *   /empty           204
 *   /draining        503 if the request is `draining`, else 200
 *   /stream          a body of APP_LARGE bytes that is made while it is sent
 *   .../none         404
 *   any              401 without a key, if the server needs one
 * and after it:
 *   /slow            the answer takes 2.5 seconds
 *   /hold            the thread waits while app_held
 *   /held            another thread makes the answer, but not while app_held
 *   /later           another thread makes the answer
 *   /made            a body of APP_MADE bytes, of which the app has other threads make the rest
 *   /copied/END/SIZE a body of END bytes, of which SIZE are announced, that is only copied
 *   /sized/END/SIZE  the same, but it takes time to make
 *   /told            the headers that the app was told
 * After /stream and /made, "-short" makes a body of APP_SHORT bytes, and "-breaks" makes one that
 * cannot go on after these. A '!' in a body means that the app does not need the rest.
 */
#ifndef HTTP_APP_H
#define HTTP_APP_H

#include <stdatomic.h>

#include "http/http.h"

enum {
    APP_LARGE = 32 << 20, /* bytes of a response that no socket takes at once */
    APP_MADE = 4 << 20,   /* bytes of a response that takes more than the I/O thread's own time */
    APP_SHORT = 100000
};

/* The exchanges that were begun, came to their end, were released and were cancelled; the bodies
 * that were made and released; and the pieces that the app was asked to make. */
extern atomic_uint app_begun, app_ended, app_released, app_cancelled;
extern atomic_uint app_bodies_made, app_bodies_freed, app_pieces;
extern _Atomic uint64_t app_sent; /* bytes of the last response that was completed */
extern atomic_bool app_held;      /* set by the test: /hold, /held and the making of pieces wait */
extern atomic_bool app_holding;   /* a request for /hold waits */
extern atomic_uint app_body_ms;   /* set by the test: the time that each piece of a body takes */

/* Starts a server with the app. A limit or time that is 0 becomes one that no test reaches. */
void app_serve(struct http_options options);

/* Stops the server and expects that every exchange and every body was released once. (Criterion
 * does not count an expectation in a fixture.) */
void app_stop(void);

/* Returns whether the bytes are the first ones of any body that is made while it is sent. */
bool app_is_body(const char *bytes, size_t size);

#endif
