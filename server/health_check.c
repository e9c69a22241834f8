/*
 * health_check.c - sends one request over a socket, with or without TLS. An alarm ends the process
 * if all steps together take too long.
 */
#include "health_check.h"

#include "http/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    DEADLINE = 3 /* seconds */
};

/* Returns a socket that is connected to the server, or -1 with errno. */
static int open_connection(const char *address, unsigned port) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    bool ipv4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
    if (ipv4 && v4.sin_addr.s_addr == htonl(INADDR_ANY)) {
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    if (!ipv4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1) {
        errno = EINVAL;
        return -1;
    }
    if (!ipv4 && memcmp(&v6.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0) {
        v6.sin6_addr = in6addr_loopback;
    }
    const struct sockaddr *name =
        ipv4 ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6;
    int fd = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, name, ipv4 ? sizeof v4 : sizeof v6) != 0) {
        int reason = errno;
        close(fd);
        errno = reason;
        return -1;
    }
    return fd;
}

/* Sends the request and reads the first line of the response. Returns the status code, or -1 with
 * errno. */
static int ask(int fd, struct http_tls_client *tls) {
    static const char request[] =
        "GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    char reply[sizeof "HTTP/1.1 200"] = "";
    size_t size = 0;
    int status = -1;
    const ssize_t sent = tls != NULL ? http_tls_client_send(tls, request, sizeof request - 1)
                                     : send(fd, request, sizeof request - 1, MSG_NOSIGNAL);
    while (sent >= 0 && size < sizeof reply - 1) {
        const size_t room = sizeof reply - 1 - size;
        const ssize_t got = tls != NULL ? http_tls_client_receive(tls, reply + size, room)
                                        : recv(fd, reply + size, room, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            errno = got == 0 ? ECONNRESET : errno;
            return -1;
        }
        size += got > 0 ? (size_t)got : 0; /* TLS says EAGAIN after a message of its own */
    }
    if (sent < 0) {
        return -1;
    }
    errno = EPROTO;
    return sscanf(reply, "HTTP/1.%*1d %3d", &status) == 1 ? status : -1;
}

static char late[192]; /* what the alarm says */

static void end_late(int signal_number) {
    (void)!write(STDERR_FILENO, late, strlen(late));
    _exit(signal_number == SIGALRM);
}

int health_check(const char *address, unsigned port, bool tls) {
    snprintf(late, sizeof late, "attentiond: no answer from %s port %u: %s\n", address, port,
             strerror(ETIMEDOUT));
    signal(SIGALRM, end_late);
    alarm(DEADLINE);
    int fd = open_connection(address, port);
    struct http_tls_client *client = fd >= 0 && tls ? http_tls_client_new(fd) : NULL;
    int status = fd >= 0 && (!tls || client != NULL) ? ask(fd, client) : -1;
    if (status < 0) {
        fprintf(stderr, "attentiond: no answer from %s port %u: %s\n", address, port,
                strerror(errno));
    } else if (status != 200) {
        fprintf(stderr, "attentiond: %s port %u answered %d\n", address, port, status);
    }
    http_tls_client_free(client);
    if (fd >= 0) {
        close(fd);
    }
    return status == 200 ? 0 : 1;
}
