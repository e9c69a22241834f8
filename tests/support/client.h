/*
 * client.h - a small HTTP/1.1 client and a way to run the daemon, for tests.
 * Plain sockets to 127.0.0.1; shares no code with the server. Nothing here fails a test: it
 * returns false.
 */
#ifndef SUPPORT_CLIENT_H
#define SUPPORT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* -------------------------------------------------------------------------------- one exchange */

struct client_response {
    int status;
    char *headers; /* the lines between the status line and the empty one, each with its CRLF */
    char *body;    /* a NUL follows for convenience */
    size_t size;
};

/* One request on a connection of its own. `headers` is "A: b\r\n..." or NULL, beside Host and
 * Content-Length. If $ATTENTIOND_RECORD names a folder, the exchange is written there as a JSON
 * file, with the body of a POST that was answered with 200. */
bool client_request(unsigned port, const char *method, const char *path, const char *headers,
                    const void *body, size_t size, struct client_response *out);

/* The value of the first header of this name; false if there is none or it does not fit. */
bool client_header(const struct client_response *response, const char *name, char *value,
                   size_t size);

void client_response_free(struct client_response *response);

/* ---------------------------------------------------------------------------- a raw connection */

/* What may lie between the bytes and the socket (see tls.h). As send, recv and close. */
struct client_layer {
    ssize_t (*send)(struct client_layer *layer, const void *bytes, size_t size);
    ssize_t (*receive)(struct client_layer *layer, void *bytes, size_t size);
    void (*close)(struct client_layer *layer);
};

/* For bytes that are no request, pipelining and keep-alive. Each wait is bounded by 60 seconds. */
struct client_connection {
    int fd;
    struct client_layer *layer; /* NULL: the socket itself */
    char *buffer;               /* bytes read and not yet taken */
    size_t size, capacity;
};

bool client_open(struct client_connection *connection, unsigned port);
bool client_send(struct client_connection *connection, const void *bytes, size_t size);

/* The next response, chunked or not; `head` says that it answers a HEAD request. 1xx ones are
 * passed over. False at the end of the connection. */
bool client_receive(struct client_connection *connection, bool head, struct client_response *out);

/* Sends a POST that keeps the connection, and does not wait for the answer. */
bool client_send_post(struct client_connection *connection, const char *path, const void *body,
                      size_t size);

/* Sends a POST that keeps the connection, and receives the answer. */
bool client_post(struct client_connection *connection, const char *path, const void *body,
                 size_t size, struct client_response *out);

/* Has the other side closed, with nothing left to read? Waits for either. */
bool client_at_end(struct client_connection *connection);

/* NULL is not fine; a closed connection is. */
void client_close(struct client_connection *connection);

#endif
