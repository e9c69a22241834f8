/*
 * http_echo.h - an app for tests of the HTTP server that answers at once. Its answer is "METHOD
 * path media-type id\n" and the body of the request, with timings; the METHOD of a HEAD request is
 * "HEAD/GET". Some paths have answers of their own:
 *   /refuse  405, before the body is read
 *   /static  200 with a static text, before the body is read
 *   /empty   204, before the body is read
 *   /slow    the answer takes 2.5 seconds
 *   /hold    the answer waits for echo_let_go
 * A '!' in a body means that the app does not need the rest.
 */
#ifndef HTTP_ECHO_H
#define HTTP_ECHO_H

#include <stdatomic.h>

#include "http/http.h"

enum {
    ECHO_MAX_BODY = 4096 /* bytes that the server of echo_serve takes */
};

extern const struct http_app echo_app;

/* The exchanges that were begun, came to their end and were released, and the bodies of responses
 * that were released. */
extern atomic_uint echo_begun, echo_ended, echo_released, echo_bodies_freed;
extern atomic_bool echo_holding; /* the app is at work on a request for /hold */
extern atomic_bool echo_let_go;  /* set by the test: requests for /hold go on */

/* Starts a server with the app. `idle` is the idle timeout in seconds. */
void echo_serve(unsigned threads, unsigned connections, unsigned idle);

/* Stops the server and expects that every exchange was released once, whatever happened to it.
 * (Criterion does not count an expectation in a fixture.) */
void echo_stop_and_count(void);

#endif
