/*
 * http_later.h - an app for tests of the HTTP server whose answers are made on other threads. Its
 * paths:
 *   /held        the answer waits until later_held is false or the request is cancelled
 *   /whole       16 KiB at once
 *   /draining    503 if the request is `draining`, else 200
 *   /stream      a body of LATER_LARGE bytes that is made while it is sent
 *   /made        a body of LATER_MADE bytes, of which the app has other threads make the rest
 *   any other    the answer comes from another thread as soon as it can
 * After /stream and /made, "-short" makes a body of LATER_SHORT bytes, and "-breaks" makes one that
 * cannot go on after these.
 */
#ifndef HTTP_LATER_H
#define HTTP_LATER_H

#include <stdatomic.h>

#include "http/http.h"

enum {
    LATER_LARGE = 32 << 20, /* bytes of a response that no socket takes at once */
    LATER_MADE = 4 << 20,   /* bytes of a response that takes more than the I/O thread's own time */
    LATER_SHORT = 100000
};

/* The exchanges that were begun, released and cancelled, the bodies made while they were sent that
 * were released, and the pieces that the app was asked to make. */
extern atomic_uint later_begun, later_released, later_cancelled, later_streams_freed, later_made;
extern atomic_bool later_held; /* set by the test: /held waits, and so does the making of pieces */

/* Options whose deadlines no test reaches. */
extern const struct http_options later_patient;

/* Starts a server with the app and these deadlines. */
void later_serve(struct http_options options);

/* Stops the server and expects that every exchange was released once. */
void later_stop(void);

#endif
