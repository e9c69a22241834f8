/*
 * http_fixture.h - what the tests of the HTTP server share: a server in this process, and requests
 * on connections to it. A function that cannot do its work fails the test.
 */
#ifndef HTTP_FIXTURE_H
#define HTTP_FIXTURE_H

#include "http/http.h"
#include "support/client.h"

/* A whole GET request. */
#define GET(path)       "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

/* The head of a POST request, without its last lines. */
#define POST(path)      "POST " path " HTTP/1.1\r\nHost: a\r\n"

/* A whole POST request with the body []. */
#define POST_JSON(path) POST(path) "Content-Length: 2\r\n\r\n[]"

/* The server that runs; NULL = none. */
extern struct http_server *fixture_server;

/* Starts the server on 127.0.0.1, whatever the address in the options is. */
void fixture_start(const struct http_options *options, const struct http_app *app);

/* Stops the server. */
void fixture_stop(void);

/* Stops the server in a thread of its own. *stopped, a bool, becomes the result of http_stop. */
void *fixture_stop_thread(void *stopped);

/* Sends a text on a connection; fixture_open opens the connection first. */
void fixture_send(struct client_connection *connection, const char *text);
void fixture_open(struct client_connection *connection, const char *text);

/* Receives a response and expects this status. `what` names the response in the message. */
void fixture_expect_status(struct client_connection *connection, int status, const char *what);

void fixture_sleep_ms(long ms);

/* Returns the seconds that stand for `seconds` on a machine on which everything takes longer. A
 * deadline that must not run out is this long, because a client may be stopped for a while. */
unsigned fixture_seconds(unsigned seconds);

/* Returns milliseconds since an arbitrary moment. */
double fixture_now_ms(void);

#endif
