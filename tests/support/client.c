/*
 * client.c - the test client: sockets, the framing of responses, and the record of exchanges.
 */
#include "support/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "support/wait.h"

/* ---------------------------------------------------------------------------- a raw connection */

static void limit_waits(int fd) {
    const int64_t milliseconds = wait_limit();
    const struct timeval limit = {.tv_sec = milliseconds / 1000,
                                  .tv_usec = milliseconds % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* Notes that the time of a wait is over, so that the next waits are short. */
static void note_wait(int fd, ssize_t result) {
    if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        wait_gave_up();
        limit_waits(fd);
    }
}

bool client_open(struct client_connection *connection, unsigned port) {
    const struct sockaddr_in name = {.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int on = 1;
    *connection = (struct client_connection){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (connection->fd < 0) {
        return false;
    }
    limit_waits(connection->fd);
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(connection->fd, (const struct sockaddr *)&name, sizeof name) == 0) {
        return true;
    }
    client_close(connection);
    return false;
}

void client_close(struct client_connection *connection) {
    if (connection->layer != NULL) {
        connection->layer->close(connection->layer);
    }
    if (connection->fd >= 0) {
        close(connection->fd);
    }
    free(connection->buffer);
    *connection = (struct client_connection){.fd = -1};
}

bool client_send(struct client_connection *connection, const void *bytes, size_t size) {
    const char *next = bytes;
    while (size > 0) {
        ssize_t sent = connection->layer != NULL
                           ? connection->layer->send(connection->layer, next, size)
                           : send(connection->fd, next, size, MSG_NOSIGNAL);
        if (sent <= 0) {
            note_wait(connection->fd, sent);
            return false;
        }
        next += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Receives more bytes into the buffer. */
static bool read_more(struct client_connection *connection) {
    if (connection->capacity - connection->size < 65536) {
        size_t capacity = connection->capacity * 2 + 65537;
        char *buffer = realloc(connection->buffer, capacity);
        if (buffer == NULL) {
            return false;
        }
        connection->buffer = buffer;
        connection->capacity = capacity;
    }
    char *end = connection->buffer + connection->size;
    const size_t room = connection->capacity - connection->size - 1;
    ssize_t got = connection->layer != NULL
                      ? connection->layer->receive(connection->layer, end, room)
                      : recv(connection->fd, end, room, 0);
    if (got <= 0) {
        note_wait(connection->fd, got);
        return false;
    }
    connection->size += (size_t)got;
    connection->buffer[connection->size] = '\0';
    return true;
}

bool client_at_end(struct client_connection *connection) {
    return connection->size == 0 && !read_more(connection);
}

static void take(struct client_connection *connection, size_t size) {
    connection->size -= size;
    memmove(connection->buffer, connection->buffer + size, connection->size + 1);
}

/* Copies the bytes and appends a NUL. Returns owned: free(). */
static char *copy(const char *bytes, size_t size) {
    char *text = malloc(size + 1);
    if (text != NULL) {
        if (size > 0) {
            memcpy(text, bytes, size);
        }
        text[size] = '\0';
    }
    return text;
}

/* Receives the status line and the headers. */
static bool receive_head(struct client_connection *connection, struct client_response *out) {
    const char *end = NULL;
    while (connection->size == 0 || (end = strstr(connection->buffer, "\r\n\r\n")) == NULL) {
        if (!read_more(connection)) {
            return false;
        }
    }
    const char *line_end = strstr(connection->buffer, "\r\n") + 2;
    if (sscanf(connection->buffer, "HTTP/1.%*1d %3d", &out->status) != 1) {
        return false;
    }
    size_t size = line_end > end ? 0 : (size_t)(end + 2 - line_end);
    out->headers = copy(line_end, size);
    take(connection, (size_t)(end + 4 - connection->buffer));
    return out->headers != NULL;
}

/* Returns a power of two that is at least `size`. A body grows by these sizes, because it would be
 * copied for each of its many chunks otherwise. */
static size_t room_for(size_t size) {
    size_t room = 64;
    while (room < size) {
        room *= 2;
    }
    return room;
}

/* Appends the next `size` bytes of the connection to the body. */
static bool receive_bytes(struct client_connection *connection, size_t size,
                          struct client_response *out) {
    while (connection->size < size) {
        if (!read_more(connection)) {
            return false;
        }
    }
    char *body = out->body;
    const size_t room = room_for(out->size + size + 1);
    if (room > room_for(out->size + 1)) {
        body = realloc(out->body, room);
    }
    if (body == NULL) {
        return false;
    }
    if (size > 0) {
        memcpy(body + out->size, connection->buffer, size);
    }
    out->body = body;
    out->size += size;
    out->body[out->size] = '\0';
    if (size > 0) {
        take(connection, size);
    }
    return true;
}

static bool receive_chunks(struct client_connection *connection, struct client_response *out) {
    for (;;) {
        const char *end = NULL;
        char *digits_end = NULL;
        while (connection->size == 0 || (end = strstr(connection->buffer, "\r\n")) == NULL) {
            if (!read_more(connection)) {
                return false;
            }
        }
        size_t size = strtoul(connection->buffer, &digits_end, 16);
        if (digits_end == connection->buffer) {
            return false;
        }
        take(connection, (size_t)(end + 2 - connection->buffer));
        if (!receive_bytes(connection, size, out)) {
            return false;
        }
        while (connection->size < 2) {
            if (!read_more(connection)) {
                return false;
            }
        }
        if (memcmp(connection->buffer, "\r\n", 2) != 0) {
            return false; /* this client asks for no trailers, so none may come */
        }
        take(connection, 2);
        if (size == 0) {
            return true;
        }
    }
}

static bool receive_body(struct client_connection *connection, struct client_response *out) {
    char value[64];
    if (client_header(out, "Transfer-Encoding", value, sizeof value)) {
        return strcasecmp(value, "chunked") == 0 && receive_chunks(connection, out);
    }
    if (client_header(out, "Content-Length", value, sizeof value)) {
        return receive_bytes(connection, strtoul(value, NULL, 10), out);
    }
    while (read_more(connection)) {
    }
    return receive_bytes(connection, connection->size, out);
}

bool client_receive(struct client_connection *connection, bool head, struct client_response *out) {
    *out = (struct client_response){0};
    do {
        client_response_free(out);
        if (!receive_head(connection, out)) {
            goto failed;
        }
    } while (out->status < 200);
    out->body = calloc(1, room_for(1));
    if (out->body == NULL) {
        goto failed;
    }
    if (head || out->status == 204 || out->status == 304) {
        return true;
    }
    if (receive_body(connection, out)) {
        return true;
    }
failed:
    client_response_free(out);
    return false;
}

bool client_send_post(struct client_connection *connection, const char *path, const void *body,
                      size_t size) {
    char head[256];
    const int length = snprintf(head, sizeof head,
                                "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: "
                                "application/json\r\nContent-Length: %zu\r\n\r\n",
                                path, size);
    return length > 0 && (size_t)length < sizeof head &&
           client_send(connection, head, (size_t)length) && client_send(connection, body, size);
}

bool client_post(struct client_connection *connection, const char *path, const void *body,
                 size_t size, struct client_response *out) {
    *out = (struct client_response){0};
    return client_send_post(connection, path, body, size) && client_receive(connection, false, out);
}

void client_response_free(struct client_response *response) {
    free(response->headers);
    free(response->body);
    response->headers = NULL;
    response->body = NULL;
    response->size = 0;
}

bool client_header(const struct client_response *response, const char *name, char *value,
                   size_t size) {
    size_t name_size = strlen(name);
    for (const char *line = response->headers; line != NULL && *line != '\0';) {
        const char *end = strstr(line, "\r\n");
        if (end == NULL) {
            return false;
        }
        if (strncasecmp(line, name, name_size) == 0 && line[name_size] == ':') {
            line += name_size + 1;
            line += strspn(line, " \t");
            size_t length = (size_t)(end - line);
            if (length >= size) {
                return false;
            }
            memcpy(value, line, length);
            value[length] = '\0';
            return true;
        }
        line = end + 2;
    }
    return false;
}

/* ------------------------------------------------------------------ requests, and their record */

static void write_string(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            fprintf(file, "\\%c", c);
        } else if (c < 0x20 || c > 0x7e) {
            fprintf(file, "\\u%04x", c);
        } else {
            fputc(c, file);
        }
    }
    fputc('"', file);
}

static bool is_json(const char *media_type) {
    size_t size = strcspn(media_type, "; ");
    return (size == 16 && strncasecmp(media_type, "application/json", 16) == 0) ||
           (size > 5 && strncasecmp(media_type + size - 5, "+json", 5) == 0);
}

/* Returns whether a request with these headers has a body that is JSON alone. */
static bool sends_json(const char *headers) {
    static const char form[] = "application/x-www-form-urlencoded";
    const struct client_response request = {.headers = (char *)headers};
    char value[256];
    return !client_header(&request, "Inference-Header-Content-Length", value, sizeof value) &&
           (!client_header(&request, "Content-Type", value, sizeof value) || is_json(value) ||
            strcmp(value, form) == 0);
}

/* Writes one JSON file {"method","path","status","media_type","body"[,"request"]} for
 * check_openapi.py. `request` is the body of a POST that was answered with 200; NULL if it is not
 * JSON. An answer that is compressed is no JSON yet, so it is not recorded. */
static void record(const char *method, const char *path, const void *request, size_t size,
                   const struct client_response *response) {
    static atomic_uint counter;
    const char *folder = getenv("TEST_RECORD");
    char name[4096], media_type[256] = "";
    if (folder == NULL || folder[0] == '\0' ||
        client_header(response, "Content-Encoding", name, sizeof name)) {
        return;
    }
    snprintf(name, sizeof name, "%s/%ld-%u.json", folder, (long)getpid(),
             atomic_fetch_add(&counter, 1));
    FILE *file = fopen(name, "w");
    if (file == NULL) {
        return;
    }
    client_header(response, "Content-Type", media_type, sizeof media_type);
    fputs("{\"method\":", file);
    write_string(file, method);
    fputs(",\"path\":", file);
    write_string(file, path);
    fprintf(file, ",\"status\":%d,\"media_type\":", response->status);
    write_string(file, media_type);
    fputs(",\"body\":", file);
    if (response->size > 0 && is_json(media_type)) {
        fwrite(response->body, 1, response->size, file);
    } else {
        fputs("null", file);
    }
    if (response->status == 200 && strcmp(method, "POST") == 0 && size > 0 && request != NULL) {
        fputs(",\"request\":", file);
        fwrite(request, 1, size, file);
    }
    fputs("}\n", file);
    fclose(file);
}

bool client_request(unsigned port, const char *method, const char *path, const char *headers,
                    const void *body, size_t size, struct client_response *out) {
    static const char format[] = "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nConnection: close\r\n"
                                 "Content-Length: %zu\r\n%s\r\n";
    struct client_connection connection = {.fd = -1};
    char *head = NULL;
    bool received = false;
    *out = (struct client_response){0};
    headers = headers != NULL ? headers : "";
    int length = snprintf(NULL, 0, format, method, path, port, size, headers);
    if (length < 0 || (head = malloc((size_t)length + 1)) == NULL) {
        goto done;
    }
    snprintf(head, (size_t)length + 1, format, method, path, port, size, headers);
    if (!client_open(&connection, port)) {
        goto done;
    }
    /* A server may refuse, and close, while the body is still being sent. Its answer counts. */
    if (client_send(&connection, head, (size_t)length)) {
        client_send(&connection, body, size);
    }
    received = client_receive(&connection, strcmp(method, "HEAD") == 0, out);
    if (received) {
        record(method, path, sends_json(headers) ? body : NULL, size, out);
    }
done:
    client_close(&connection);
    free(head);
    return received;
}
