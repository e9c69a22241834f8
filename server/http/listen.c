/*
 * listen.c opens and ends the listening socket, and raises RLIMIT_NOFILE.
 */
#define _GNU_SOURCE /* dup3 */
#include "http/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 1024,    /* the kernel cuts it to net.core.somaxconn */
    RESERVE_FILES = 64 /* standard streams, epoll, eventfd, listening sockets, libraries, and the
                          files of layers that are read at one time */
};

union socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Returns the size of the socket address, or 0 if `text` is not a numeric address. */
static socklen_t parse_address(const char *text, unsigned port, union socket_address *address) {
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, text, &address->v4.sin_addr) == 1) {
        address->v4.sin_family = AF_INET;
        address->v4.sin_port = htons((uint16_t)port);
        return sizeof address->v4;
    }
    if (inet_pton(AF_INET6, text, &address->v6.sin6_addr) == 1) {
        address->v6.sin6_family = AF_INET6;
        address->v6.sin6_port = htons((uint16_t)port);
        return sizeof address->v6;
    }
    return 0;
}

/* SO_REUSEADDR is set so that a restart need not wait for old connections. SO_REUSEPORT is not:
 * with it, a second server that was forgotten would silently take a share of the requests. */
static bool open_socket(int fd, const union socket_address *address, socklen_t size) {
    int on = 1, off = 0;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0) {
        return false;
    }
    if (address->any.sa_family == AF_INET6 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) {
        return false;
    }
    return bind(fd, &address->any, size) == 0 && listen(fd, BACKLOG) == 0;
}

/* Writes what failed and what to do about it. */
static void describe_failure(char *error, size_t size, const char *address, unsigned port,
                             int reason) {
    const bool ipv6 = strchr(address, ':') != NULL;
    const int used =
        snprintf(error, size,
                 ipv6 ? "cannot listen on [%s]:%u: " : "cannot listen on %s:%u: ", address, port);
    const size_t left = size > (size_t)used ? size - (size_t)used : 0;
    char *rest = error + (size - left);
    const unsigned other = port < 65535 ? port + 1 : port - 1;
    switch (reason) {
    case EADDRINUSE:
        snprintf(rest, left,
                 "the port is in use; choose another one with --port "
                 "(make run ARGS=\"--port %u\")",
                 other);
        break;
    case EACCES:
        snprintf(rest, left, "this port needs a privilege; choose one from 1024 on with --port");
        break;
    case EADDRNOTAVAIL:
        snprintf(rest, left, "this machine has no such address; choose another one with --address");
        break;
    default:
        snprintf(rest, left, "%s", strerror(reason));
    }
}

int listen_open(const char *address, unsigned *port, bool *ipv6, char *error, size_t size) {
    union socket_address name;
    socklen_t length = parse_address(address, *port, &name);
    if (length == 0 || *port > 65535) {
        snprintf(error, size, "cannot listen on \"%s\": this is not a numeric IPv4 or IPv6 address",
                 address);
        return -1;
    }
    *ipv6 = name.any.sa_family == AF_INET6;
    int fd = socket(name.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || !open_socket(fd, &name, length) || getsockname(fd, &name.any, &length) != 0) {
        describe_failure(error, size, address, *port, errno);
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    *port = ntohs(*ipv6 ? name.v6.sin6_port : name.v4.sin_port);
    return fd;
}

bool listen_end(int fd) {
    const struct sockaddr_un unnamed = {.sun_family = AF_UNIX}; /* the kernel chooses a name */
    const int idle = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int old = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    const bool ended = idle >= 0 && old >= 0 &&
                       bind(idle, (const void *)&unnamed, sizeof unnamed.sun_family) == 0 &&
                       listen(idle, 0) == 0 && dup3(idle, fd, O_CLOEXEC) == fd;
    if (ended) {
        shutdown(old, SHUT_RDWR); /* otherwise a thread in poll() keeps it listening */
    }
    if (idle >= 0) {
        close(idle);
    }
    if (old >= 0) {
        close(old);
    }
    return ended;
}

unsigned listen_reserve_files(unsigned wanted) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return wanted;
    }
    const rlim_t needed = (rlim_t)wanted + RESERVE_FILES, before = limit.rlim_cur;
    if (before < needed) {
        limit.rlim_cur = limit.rlim_max;
        limit.rlim_cur = setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_max : before;
    }
    if (limit.rlim_cur >= needed) {
        return wanted;
    }
    return limit.rlim_cur > RESERVE_FILES ? (unsigned)(limit.rlim_cur - RESERVE_FILES) : 1;
}
