/*
 * test_truncation.c - promise 14: a request that is cut anywhere is no request. Every request of
 * the notebooks, with a length and in chunks, is cut at every byte. There the client ends its half
 * of the connection, or it sends nothing more. The answer is never a 200, the daemon never crashes,
 * and the place of the connection becomes free. A long body is cut at a few hundred places, or at
 * every byte if TEST_EVERY_CUT is set. The tests know the service by its socket only.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/notebooks.h"
#include "support/wait.h"

enum {
    LONG = 3000,  /* a request of more bytes is not cut at every one */
    DRAWN = 400,  /* cuts of a long request */
    OPEN = 800,   /* connections at a time that are half closed */
    SILENT = 800, /* connections at a time that send nothing more */
    SOURCES = 16  /* addresses to connect from; each has its own ports */
};

struct message {
    char name[80];
    char *bytes;
    size_t size, step; /* `step` is the distance between cuts */
};

static struct message *messages;
static size_t message_count;

/* ------------------------------------------------------------------------------------- requests */

static void make_message(struct message *out, const struct notebook *notebook, bool chunked) {
    const size_t room = notebook->size + 512, parts = 3;
    char *to = malloc(room);
    cr_assert_not_null(to);
    snprintf(out->name, sizeof out->name, "%s%s", notebook->name, chunked ? " in chunks" : "");
    out->bytes = to;
    to += sprintf(to, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n",
                  notebook->path);
    if (!chunked) {
        to += sprintf(to, "Content-Length: %zu\r\n\r\n", notebook->size);
        memcpy(to, notebook->body, notebook->size);
        to += notebook->size;
    } else {
        to += sprintf(to, "Transfer-Encoding: chunked\r\n\r\n");
        for (size_t i = 0; i < parts; i++) {
            const size_t from = notebook->size * i / parts;
            const size_t part = notebook->size * (i + 1) / parts - from;
            to += sprintf(to, "%zx\r\n", part);
            memcpy(to, notebook->body + from, part);
            to += part;
            to += sprintf(to, "\r\n");
        }
        to += sprintf(to, "0\r\n\r\n");
    }
    out->size = (size_t)(to - out->bytes);
    const bool all = out->size <= LONG || getenv("TEST_EVERY_CUT") != NULL;
    out->step = all ? 1 : out->size / DRAWN;
}

static void read_messages(void) {
    size_t count;
    struct notebook *notebooks = notebooks_read(&count);
    cr_assert_gt(count, 0);
    message_count = 2 * count;
    messages = calloc(message_count, sizeof *messages);
    for (size_t i = 0; i < message_count; i++) {
        make_message(&messages[i], &notebooks[i / 2], i % 2);
    }
    notebooks_free(notebooks, count);
}

static void start_patient(void) {
    read_messages();
    daemon_start(NULL);
}

static void start_hasty(void) {
    static const char *const arguments[] = {
        "--header-timeout", "1", "--body-timeout", "1", "--log-file", "/dev/null", NULL};
    read_messages();
    daemon_start(arguments);
}

static void stop_and_free(void) {
    for (size_t i = 0; i < message_count; i++) {
        free(messages[i].bytes);
    }
    free(messages);
    daemon_end();
}

TestSuite(truncation, .fini = stop_and_free, .timeout = 600);

/* ---------------------------------------------------------------------------------- connections */

static int open_from(unsigned source) {
    const struct sockaddr_in here = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK + source)};
    const struct sockaddr_in there = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)the_daemon.port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval limit = {.tv_sec = 60};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&here, sizeof here), 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&there, sizeof there), 0);
    return fd;
}

static void send_all(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        const ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        cr_assert_gt(sent, 0);
        bytes += sent;
        size -= (size_t)sent;
    }
}

/* A connection on which the first `size` bytes of a message were sent. */
struct cut {
    int fd;
    const struct message *message;
    size_t size;
};

/* Expects that the server closes the connection, perhaps after a refusal. */
static void expect_no_answer(const struct cut *cut) {
    char text[4096];
    size_t size = 0;
    ssize_t got;
    while ((got = recv(cut->fd, text + size, sizeof text - 1 - size, 0)) > 0) {
        size += (size_t)got;
    }
    text[size] = '\0';
    cr_expect(got == 0 || size == 0, "%s, %zu bytes: it stays open", cut->message->name, cut->size);
    cr_expect(size == 0 || strncmp(text, "HTTP/1.1 4", 10) == 0, "%s, %zu bytes: %.80s",
              cut->message->name, cut->size, text);
    close(cut->fd);
}

static void expect_answer(int fd, const char *name) {
    char text[12] = "";
    recv(fd, text, sizeof text, MSG_WAITALL);
    cr_expect_eq(memcmp(text, "HTTP/1.1 200", sizeof text), 0, "%s, whole: %.12s", name, text);
    close(fd);
}

static bool only_one_connection(void) {
    struct client_response response;
    cr_assert(client_request(the_daemon.port, "GET", "/metrics", NULL, NULL, 0, &response));
    const bool one = strstr(response.body, "\nattentiond_connections 1\n") != NULL &&
                     strstr(response.body, "\nattentiond_requests_in_flight 1\n") != NULL &&
                     strstr(response.body, "\nattentiond_memory_bytes 0\n") != NULL;
    client_response_free(&response);
    return one;
}

/* Waits until the only connection is that of the request for /metrics. */
static void expect_places_free(void) {
    WAIT_UNTIL(only_one_connection());
}

/* ---------------------------------------------------------------------------------------- tests */

/* The client ends its half a while after the last bytes. If both arrive together, libmicrohttpd
 * 0.9.75 may overlook the end, and the time limit for the head or body ends the connection. */
Test(truncation, promise_14_the_client_ends_its_half, .init = start_hasty) {
    struct cut cuts[OPEN] = {{.fd = 0}};
    size_t count = 0;
    for (size_t i = 0; i < message_count; i++) {
        const struct message *m = &messages[i];
        for (size_t size = 0; size < m->size; size += m->step, count++) {
            struct cut *cut = &cuts[count % OPEN];
            if (count >= OPEN) {
                expect_no_answer(cut);
            }
            *cut = (struct cut){open_from((unsigned)(count % SOURCES)), m, size};
            send_all(cut->fd, m->bytes, size);
            if (count >= OPEN / 2) {
                shutdown(cuts[(count + OPEN / 2) % OPEN].fd, SHUT_WR);
            }
        }
        const int whole = open_from(0); /* the whole message is good */
        send_all(whole, m->bytes, m->size);
        /* A half-closed connection would cancel the work of the workers. */
        if (strstr(m->name, "seeded") == NULL) {
            shutdown(whole, SHUT_WR);
        }
        expect_answer(whole, m->name);
    }
    for (size_t i = 0; i < OPEN; i++) {
        shutdown(cuts[i].fd, SHUT_WR); /* half of them for the second time */
    }
    for (size_t i = 0; i < OPEN; i++) {
        expect_no_answer(&cuts[i]);
    }
    expect_places_free();
}

/* The client sends byte by byte on one connection. No answer comes before the last byte. */
Test(truncation, promise_14_no_answer_before_the_last_byte, .init = start_patient) {
    for (size_t i = 0; i < message_count; i++) {
        const struct message *m = &messages[i];
        const int fd = open_from(0);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        for (size_t size = 0; size + 1 < m->size; size += m->step) {
            const size_t left = m->size - 1 - size;
            send_all(fd, m->bytes + size, left < m->step ? left : m->step);
            cr_assert_eq(poll(&ready, 1, 0), 0, "%s: an answer to %zu bytes", m->name, size);
        }
        cr_expect_eq(poll(&ready, 1, 20), 0, "%s: an answer before the last byte", m->name);
        send_all(fd, m->bytes + m->size - 1, 1);
        expect_answer(fd, m->name);
    }
}

/* All messages are cut at places from start to end, and the client waits. The server does not wait
 * for ever. */
Test(truncation, promise_14_the_client_says_nothing_more, .init = start_hasty) {
    static struct cut cuts[SILENT];
    for (size_t i = 0; i < SILENT; i++) {
        const struct message *m = &messages[i % message_count];
        const size_t size = m->size * (i / message_count) / (SILENT / message_count + 1);
        cuts[i] = (struct cut){open_from((unsigned)(i % SOURCES)), m, size};
        send_all(cuts[i].fd, m->bytes, size);
    }
    for (size_t i = 0; i < SILENT; i++) {
        expect_no_answer(&cuts[i]);
    }
    expect_places_free();
}
