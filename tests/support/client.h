/*
 * client.h - a small HTTP/1.1 client for tests. It uses plain sockets to 127.0.0.1 and shares no
 * code with the server. Its functions return false when they fail, and they never fail a test.
 */
#ifndef SUPPORT_CLIENT_H
#define SUPPORT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "support/count.h"

/* -------------------------------------------------------------------------------- one exchange */

struct client_response {
    int status;
    char *headers; /* the lines between the status line and the empty one, each with its CRLF */
    char *body;    /* a NUL follows the last byte */
    size_t size;
};

/* Sends a request on a connection of its own and receives the answer. `headers` is "A: b\r\n..." or
 * NULL; Host, Connection and Content-Length are added. If $TEST_RECORD names a folder, the
 * exchange is written there as a JSON file, with the body of a POST that was answered with 200.
 * `out` is owned: client_response_free(). */
bool client_request(unsigned port, const char *method, const char *path, const char *headers,
                    const void *body, size_t size, struct client_response *out);

/* Copies the value of the first header of this name. Returns false if there is none or it does not
 * fit. */
bool client_header(const struct client_response *response, const char *name, char *value,
                   size_t size);

void client_response_free(struct client_response *response);

/* ---------------------------------------------------------------------------- a raw connection */

/* A layer between the bytes and the socket (see tls.h). Its functions work as send, recv and
 * close. */
struct client_layer {
    ssize_t (*send)(struct client_layer *layer, const void *bytes, size_t size);
    ssize_t (*receive)(struct client_layer *layer, void *bytes, size_t size);
    void (*close)(struct client_layer *layer);
};

/* A connection for pipelining, for keep-alive, and for bytes that are not a request. Each wait is
 * bounded, see wait.h. */
struct client_connection {
    int fd;
    struct client_layer *layer; /* NULL: bytes go directly to the socket */
    char *buffer;               /* bytes that were received and not yet used */
    size_t size, capacity;
};

bool client_open(struct client_connection *connection, unsigned port);
bool client_send(struct client_connection *connection, const void *bytes, size_t size);

/* Receives the next response, chunked or not, and skips those of status 1xx. `head` says that it
 * answers a HEAD request. Returns false at the end of the connection. */
bool client_receive(struct client_connection *connection, bool head, struct client_response *out);

/* Sends a POST that keeps the connection, and does not wait for the answer. */
bool client_send_post(struct client_connection *connection, const char *path, const void *body,
                      size_t size);

/* Sends a POST that keeps the connection, and receives the answer. */
bool client_post(struct client_connection *connection, const char *path, const void *body,
                 size_t size, struct client_response *out);

/* Waits for bytes or the end of the connection. Returns true if the other side has closed it and
 * nothing is left to read. */
bool client_at_end(struct client_connection *connection);

/* Closes the connection. It may be closed already, but it may not be NULL. */
void client_close(struct client_connection *connection);

#endif
