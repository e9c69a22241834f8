/*
 * test_binary.c - what both formats of binary tensors have in common, over a socket: bodies that
 * are chunked or cut, slow readers, and the limits of memory, bodies, work and time.
 * The tests know the service by its socket only.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "support/binary.h"
#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
#include "support/json.h"

#define SAFETENSORS "Content-Type: application/vnd.safetensors\r\n"
#define LENGTH      "Inference-Header-Content-Length"

TestSuite(binary, .init = daemon_start_connected, .fini = daemon_end, .timeout = 1200);
TestSuite(binary_limits, .fini = daemon_end, .timeout = 1200);

enum format {
    INFERENCE, /* the Open Inference Protocol */
    SAFETENSORS_FILE,
    FORMATS
};

/* A request whose matrices are all binary, and whose answer is to be binary. */
struct request {
    char path[64], headers[128], about[128]; /* `about` names it in messages */
    char *body;                              /* owned */
    size_t size;
    bool safetensors;
};

/* Makes a request with floats of this many bits. */
static struct request make_request(enum format format, const struct binary_call *call, int bits) {
    struct request q = {.safetensors = format == SAFETENSORS_FILE};
    char type[8], options[2048];
    snprintf(type, sizeof type, q.safetensors ? "F%d" : "FP%d", bits);
    if (q.safetensors) {
        q.body = binary_safetensors(call, type, &q.size);
        strcpy(q.path, call->path);
        strcpy(q.headers, SAFETENSORS);
    } else {
        const struct binary_call binary = binary_with(call, "\"binary_data_output\":true", options);
        size_t header;
        q.body = binary_inference(&binary, type, ~0u, "", &header, &q.size);
        snprintf(q.path, sizeof q.path, "/v2/models%s/infer", call->path);
        snprintf(q.headers, sizeof q.headers, LENGTH ": %zu\r\n", header);
    }
    snprintf(q.about, sizeof q.about, "%s in %s", q.path, type);
    return q;
}

static struct client_response ask(const struct request *q) {
    return daemon_ask_shared("POST", q->path, q->headers, q->body, q->size);
}

/* Expects the bytes of the plain answer. `what` says how these bytes came. */
static void expect_equal(const struct client_response *plain, const void *body, size_t size,
                         const char *what, const char *about) {
    cr_expect(body != NULL && size == plain->size && memcmp(body, plain->body, size) == 0,
              "%s, %s: %zu bytes differ from the %zu of the plain answer", about, what, size,
              plain->size);
}

/* ----------------------------------------------------------------------------- chunks and cuts */

Test(binary, chunks) {
    for (enum format format = 0; format < FORMATS; format++) {
        struct request q = make_request(format, &binary_rich, 64);
        struct client_response plain = ask(&q);
        for (size_t part = 1; part < 400; part = 3 * part + 1) {
            char what[64];
            snprintf(what, sizeof what, "chunks of %zu bytes", part);
            struct client_response response =
                daemon_ask_in_chunks(q.path, q.headers, q.body, q.size, part);
            cr_expect_eq(response.status, 200, "%s, %s: %d", q.about, what, response.status);
            expect_equal(&plain, response.body, response.size, what, q.about);
            client_response_free(&response);
        }
        client_response_free(&plain);
        free(q.body);
    }
}

/* A body that is cut at any byte is never answered with a 200. */
Test(binary, cuts_at_every_byte) {
    static const struct binary_call call = {"/attention",
                                            "\"scale\":2",
                                            "[\"lse\"]",
                                            {{"X", {2, 3}, 0, NULL}, {"mask", {2, 2}, 1, NULL}}};
    for (enum format format = 0; format < FORMATS; format++) {
        struct request q = make_request(format, &call, 16);
        for (size_t cut = 0; cut < q.size; cut++) {
            char about[192];
            sprintf(about, "%s, %zu of %zu bytes", q.about, cut, q.size);
            struct client_response response =
                daemon_ask_shared("POST", q.path, q.headers, q.body, cut);
            expect_refused(&response, q.path, 400, "", about);
        }
        struct client_response response = ask(&q);
        cr_expect_eq(response.status, 200, "%s: %s", q.about, response.body);
        client_response_free(&response);
        free(q.body);
    }
}

/* --------------------------------------------------------------------------------- slow readers */

struct slow_layer {
    struct client_layer layer;
    int fd;
    size_t turn;
};

static ssize_t send_at_once(struct client_layer *layer, const void *bytes, size_t size) {
    return send(((struct slow_layer *)layer)->fd, bytes, size, MSG_NOSIGNAL);
}

/* Receives 1 to 20011 bytes, and rests now and then so that the daemon has to wait. */
static ssize_t receive_slowly(struct client_layer *layer, void *bytes, size_t size) {
    struct slow_layer *slow = (struct slow_layer *)layer;
    const size_t piece = 1 + slow->turn++ * 7919 % 20011;
    if (slow->turn % 16 == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return recv(slow->fd, bytes, piece < size ? piece : size, 0);
}

static void close_nothing(struct client_layer *layer) {
    (void)layer;
}

/* Makes the shared connection a new one. */
static void connect_again(void) {
    client_close(&the_connection);
    daemon_connect();
}

/* Makes the shared connection one that reads slowly, and has little room for what is not read. */
static void connect_slowly(struct slow_layer *slow) {
    const int room = 32768;
    connect_again();
    cr_assert_eq(setsockopt(the_connection.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
    *slow = (struct slow_layer){.layer = {send_at_once, receive_slowly, close_nothing},
                                .fd = the_connection.fd};
    the_connection.layer = &slow->layer;
}

/* Expects the numbers of an answer in JSON. */
static void expect_numbers(const struct request *q, const struct client_response *response,
                           const struct cJSON *json) {
    struct binary_answer answer;
    char message[256];
    (q->safetensors ? expect_file : expect_outputs)(response, q->about, &answer);
    cr_expect(binary_equal_json(&answer, json, message), "%s: %s", q->about, message);
    binary_free(&answer);
}

/* Reads an answer of several megabytes in small pieces, and finds every byte right. FP16 is rounded
 * while it is sent. */
Test(binary, slow_readers) {
    static const struct binary_call call = {
        "/attention", "", "[\"weights\",\"output\"]", {{"X", {1000, 8}, 0, NULL}}};
    static const int bits[] = {16, 32, 64};
    size_t size;
    char *body = binary_json(&call, "float32", &size);
    struct cJSON *json = daemon_ask_json(call.path, body, size);
    for (enum format format = 0; format < FORMATS; format++) {
        for (size_t i = 0; i < COUNT(bits); i++) {
            struct slow_layer slow;
            struct request q = make_request(format, &call, bits[i]);
            struct client_response plain = ask(&q);
            cr_assert_eq(plain.status, 200, "%s: %s", q.about, plain.body);
            cr_expect_geq(plain.size, (size_t)1000 * 1008 * (size_t)bits[i] / 8);
            if (bits[i] == 32) {
                expect_numbers(&q, &plain, json);
            }
            connect_slowly(&slow);
            struct client_response response = ask(&q);
            expect_equal(&plain, response.body, response.size, "read slowly", q.about);
            connect_again();
            client_response_free(&response);
            client_response_free(&plain);
            free(q.body);
        }
    }
    json_free(json);
    free(body);
}

/* The same with JSON, which is made while it is sent. */
Test(binary, slow_readers_of_json) {
    static const struct binary_call call = {
        "/attention", "", "[\"weights\",\"output\"]", {{"X", {600, 8}, 0, NULL}}};
    static const char *const paths[] = {"/attention", "/v2/models/attention/infer"};
    for (size_t i = 0; i < COUNT(paths); i++) {
        struct slow_layer slow;
        size_t header, size;
        char *body = i == 0 ? binary_json(&call, "float32", &size)
                            : binary_inference(&call, "FP32", 0, "", &header, &size);
        struct client_response plain = daemon_ask_shared("POST", paths[i], "", body, size);
        cr_assert_eq(plain.status, 200, "%s: %s", paths[i], plain.body);
        cr_expect_gt(plain.size, 3000000);
        connect_slowly(&slow);
        struct client_response response = daemon_ask_shared("POST", paths[i], "", body, size);
        expect_equal(&plain, response.body, response.size, "read slowly", paths[i]);
        connect_again();
        client_response_free(&response);
        client_response_free(&plain);
        free(body);
    }
}

/* --------------------------------------------------------------------------------------- limits */

/* Opens a connection, and sends a head that declares a tensor of 400 MB, the JSON before it, and
 * its first 1000 bytes. */
static void declare(struct client_connection *connection, enum format format) {
    static const char kilobyte[1000];
    static const char json[] =
        "{\"inputs\":[{\"name\":\"X\",\"datatype\":\"FP32\",\"shape\":[10000,10000],"
        "\"parameters\":{\"binary_data_size\":400000000}}]}";
    static const char header[] = "{\"X\":{\"dtype\":\"F32\",\"shape\":[10000,10000],"
                                 "\"data_offsets\":[0,400000000]}}";
    char head[512], headers[64] = SAFETENSORS;
    size_t size;
    char *file = binary_file(format == INFERENCE ? json : header, kilobyte, sizeof kilobyte, &size);
    const size_t length = format == INFERENCE ? 8 : 0; /* only files begin with a length */
    if (format == INFERENCE) {
        sprintf(headers, LENGTH ": %zu\r\n", sizeof json - 1);
    }
    cr_assert(client_open(connection, the_daemon.port));
    sprintf(head, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n%s\r\n",
            format == INFERENCE ? "/v2/models/softmax/infer" : "/softmax",
            size - length - sizeof kilobyte + 400000000, headers);
    cr_assert(client_send(connection, head, strlen(head)));
    cr_assert(client_send(connection, file + length, size - length));
    free(file);
}

/* Twenty clients declare 8 GB together and send 20 KB. Other requests must be answered. */
Test(binary_limits, declared_sizes_that_never_arrive) {
    enum {
        CLIENTS = 20
    };
    struct client_connection clients[CLIENTS];
    daemon_start_with((const char *const[]){"--max-memory", "1GiB", "--total-memory", "16MiB",
                                            "--max-body", "1GiB", NULL});
    for (enum format format = 0; format < FORMATS; format++) {
        struct request q = make_request(format, &binary_long, 64);
        for (size_t i = 0; i < CLIENTS; i++) {
            declare(&clients[i], format);
        }
        daemon_await_metric("attentiond_requests_in_flight", CLIENTS + 1);
        for (size_t i = 0; i < 20; i++) {
            struct client_response response = ask(&q);
            cr_expect_eq(response.status, 200, "%s: %.300s", q.about, response.body);
            client_response_free(&response);
        }
        const double held = daemon_metric("attentiond_memory_bytes");
        cr_expect(held > 0 && held < 10e6, "%s: %g bytes", q.about, held);
        for (size_t i = 0; i < CLIENTS; i++) {
            client_close(&clients[i]); /* the clients leave in the middle of a tensor */
        }
        daemon_await_metric("attentiond_memory_bytes", 0);
        free(q.body);
    }
}

/* Each limit refuses a request that goes over it, holds no memory afterwards, and leaves the
 * connection to the next one. */
Test(binary_limits, memory_body_work_and_time) {
    static const struct {
        const char *option, *value;
        struct binary_call call;
        int status;
    } rows[] = {
        {"--max-memory", "64KiB", {"/attention", "", NULL, {{"X", {200, 8}, 0, NULL}}}, 413},
        {"--max-memory", "256KiB", {"/softmax", "", NULL, {{"X", {300, 300}, 0, NULL}}}, 413},
        {"--max-body", "4096", {"/attention", "", NULL, {{"X", {200, 8}, 0, NULL}}}, 413},
        {"--max-work", "1000000", {"/attention", "", NULL, {{"X", {300, 8}, 0, NULL}}}, 413},
        {"--compute-timeout", "0.001", {"/attention", "", NULL, {{"X", {1500, 64}, 0, NULL}}}, 503},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        daemon_start_with((const char *const[]){rows[i].option, rows[i].value, NULL});
        for (enum format format = 0; format < FORMATS; format++) {
            struct request q = make_request(format, &rows[i].call, 32);
            struct client_response response;
            if (strcmp(rows[i].option, "--max-body") == 0) { /* the head alone is refused */
                cr_assert(client_request(the_daemon.port, "POST", q.path, q.headers, q.body, q.size,
                                         &response));
            } else {
                response = ask(&q);
            }
            if (rows[i].status == 503) {
                expect_header(&response, rows[i].option, "Retry-After", NULL); /* it is alone */
            }
            expect_refused(&response, q.path, rows[i].status, rows[i].option, rows[i].option);
            daemon_await_metric("attentiond_memory_bytes", 0);
            free(q.body);
        }
        if (i + 1 < COUNT(rows)) {
            daemon_end();
        }
    }
}
