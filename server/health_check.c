/*
 * health_check.c - sends one request over a socket, with or without TLS. One deadline holds for all
 * steps together.
 */
#include "health_check.h"

#include "clock.h"
#include "http/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    DEADLINE_MS = 3000
};

/* Returns a non-blocking socket that is connecting to the server, or -1 with errno. */
static int start_connect(const char *address, unsigned port) {
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
    int fd = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    if (connect(fd, name, ipv4 ? sizeof v4 : sizeof v6) == 0 || errno == EINPROGRESS) {
        return fd;
    }
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

static bool wait_for(int fd, short events, int64_t deadline) {
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int64_t left = deadline - clock_ms();
    int ready = left > 0 ? poll(&poll_fd, 1, (int)left) : 0;
    if (ready == 0) {
        errno = ETIMEDOUT;
    }
    return ready > 0;
}

/* Sends or receives up to `size` bytes before the deadline. Returns their number, 0 if the server
 * has closed the connection, or -1 with errno. */
static ssize_t pass(int fd, struct tls_client *tls, bool out, void *bytes, size_t size,
                    int64_t deadline) {
    for (;;) {
        const ssize_t count = tls != NULL ? (out ? tls_client_send(tls, bytes, size)
                                                 : tls_client_receive(tls, bytes, size))
                              : out       ? send(fd, bytes, size, MSG_NOSIGNAL)
                                          : recv(fd, bytes, size, 0);
        const short events = tls != NULL ? tls_client_awaits(tls) : out ? POLLOUT : POLLIN;
        if (count >= 0 || errno != EAGAIN || !wait_for(fd, events, deadline)) {
            return count;
        }
    }
}

/* Sends the request and reads the first line of the response. Returns the status code, or -1 with
 * errno. */
static int ask(int fd, struct tls_client *tls, int64_t deadline) {
    /* The request is smaller than any socket buffer, so it is sent at once or not at all. */
    static char request[] =
        "GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    char reply[sizeof "HTTP/1.1 200"] = "";
    size_t size = 0;
    int status = -1;
    if (!wait_for(fd, POLLOUT, deadline) ||
        pass(fd, tls, true, request, sizeof request - 1, deadline) < 0) {
        return -1;
    }
    while (size < sizeof reply - 1) {
        const ssize_t got = pass(fd, tls, false, reply + size, sizeof reply - 1 - size, deadline);
        if (got <= 0) {
            errno = got == 0 ? ECONNRESET : errno;
            return -1;
        }
        size += (size_t)got;
    }
    errno = EPROTO;
    return sscanf(reply, "HTTP/1.%*1d %3d", &status) == 1 ? status : -1;
}

int health_check(const char *address, unsigned port, bool tls) {
    int64_t deadline = clock_ms() + DEADLINE_MS;
    int fd = start_connect(address, port);
    struct tls_client *client = fd >= 0 && tls ? tls_client_new(fd) : NULL;
    int status = fd >= 0 && (!tls || client != NULL) ? ask(fd, client, deadline) : -1;
    if (status < 0) {
        fprintf(stderr, "attentiond: no answer from %s port %u: %s\n", address, port,
                strerror(errno));
    } else if (status != 200) {
        fprintf(stderr, "attentiond: %s port %u answered %d\n", address, port, status);
    }
    tls_client_free(client);
    if (fd >= 0) {
        close(fd);
    }
    return status == 200 ? 0 : 1;
}
