/*
 * test_mutation.c - promise 15: the bodies of the notebooks and of drawn calls are sent with bytes
 * changed, over keep-alive connections. Each gets a result, a refusal, or, if it asks for a time
 * limit, perhaps a 503. No answer takes for ever, and the daemon stays alive. The test sends
 * TEST_MUTATIONS bodies (200000 if it is not set); TEST_SEED chooses other ones. It knows the
 * service by its socket only.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/drawn.h"
#include "support/notebooks.h"
#include "support/rng.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum {
    CLIENTS = 4,
    DRAWN = 60,        /* calls, so that each option is in some of them */
    PIPELINED = 16,    /* requests sent before their answers are read */
    LONGEST = 8192,    /* bytes of a body before it is changed */
    ROOM = 3 * LONGEST /* bytes of a changed body */
};

struct seed {
    const char *path;
    char *body; /* of a drawn call: owned */
    size_t size;
};

static struct seed seeds[DRAWN + 64]; /* the drawn calls, and the notebooks */
static size_t seed_count;
static long mutations = 200000;
static atomic_uint counts[6]; /* answers by the first digit of the status */
static atomic_uint faults;
static atomic_long slowest_us;

/* ------------------------------------------------------------------------------------ mutations */

/* Texts that some part of the service treats specially. */
static const char *const words[] = {"[",
                                    "]",
                                    "{",
                                    "}",
                                    ",",
                                    ":",
                                    "\"",
                                    "\\",
                                    "\\u",
                                    "-",
                                    "e",
                                    "E9",
                                    ".",
                                    "0",
                                    "1e999",
                                    "-0",
                                    "1e39",
                                    "1e308",
                                    "5e-324",
                                    "2147483648",
                                    "4294967296",
                                    "9007199254740993",
                                    "18446744073709551616",
                                    "null",
                                    "true",
                                    "false",
                                    "NaN",
                                    "-Infinity",
                                    "[]",
                                    "[[]]",
                                    "[[[[1]]]]",
                                    "{}",
                                    "\"\"",
                                    "\"X\":",
                                    "\"Q\":",
                                    "\"heads\":",
                                    "\"dtype\":\"float64\",",
                                    "\"timeout\":1e-9,",
                                    "\xFF",
                                    "\xC3",
                                    "\xF0\x9F\x98\x80",
                                    "\xEF\xBB\xBF",
                                    "\t",
                                    "\n",
                                    "\x7F"};

static size_t replace(char *body, size_t size, size_t at, size_t gone, const char *bytes,
                      size_t count) {
    if (size - gone + count > ROOM) {
        return size;
    }
    memmove(body + at + count, body + at + gone, size - at - gone);
    memcpy(body + at, bytes, count);
    return size - gone + count;
}

static size_t mutate_once(struct rng *rng, char *body, size_t size) {
    char copy[64];
    const size_t at = size > 0 ? rng_between(rng, 0, size - 1) : 0;
    const size_t most = size - at < sizeof copy ? size - at : sizeof copy;
    const size_t some = most > 0 ? rng_between(rng, 1, most) : 0;
    const char *word = words[rng_between(rng, 0, COUNT(words) - 1)];
    switch (rng_between(rng, 0, 7)) {
    case 0: /* change a bit */
        if (size > 0) {
            body[at] = (char)(body[at] ^ (1 << rng_between(rng, 0, 7)));
        }
        return size;
    case 1: /* replace a byte by any other */
        if (size > 0) {
            body[at] = (char)rng_between(rng, 0, 255);
        }
        return size;
    case 2:
        return replace(body, size, at, some, "", 0);
    case 3:
        return replace(body, size, at, 0, word, strlen(word));
    case 4:
        return replace(body, size, at, some < 8 ? some : 8, word, strlen(word));
    case 5: /* repeat a part */
        memcpy(copy, body + at, some);
        return replace(body, size, at, 0, copy, some);
    case 6: /* copy a part to another place */
        memcpy(copy, body + at, some);
        return replace(body, size, rng_between(rng, 0, size), 0, copy, some);
    default:
        return rng_chance(rng, 4) ? at : size; /* cut the end */
    }
}

/* Changes a good body in one to four places. Returns the path to send it to. */
static const char *make(struct rng *rng, char body[static ROOM], size_t *size) {
    const struct seed *seed = &seeds[rng_between(rng, 0, seed_count - 1)];
    memcpy(body, seed->body, seed->size);
    *size = seed->size;
    for (size_t left = rng_chance(rng, 2) ? 1 : rng_between(rng, 2, 4); left > 0; left--) {
        *size = mutate_once(rng, body, *size);
    }
    return seed->path;
}

/* -------------------------------------------------------------------------------------- clients */

static void fault(const char *what, const char *body, size_t size) {
    atomic_fetch_add(&faults, 1);
    fprintf(stderr, "%s: %.*s\n", what, (int)size, body);
}

static long now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static void judge_answer(const struct client_response *response, const char *body, size_t size) {
    const int status = response->status;
    atomic_fetch_add(&counts[status / 100 % 6], 1);
    if (status != 200 && status != 400 && status != 413 && status != 422 && status != 503) {
        fault("an unexpected status", body, size);
    }
    if (status == 503 && strstr(response->body, "was not computed within") == NULL) {
        fault(response->body, body, size); /* no body here needs more than the server gives */
    }
    if (response->size == 0 || response->body[response->size - 1] != '\n' ||
        (status != 200 && strstr(response->body, "\"detail\"") == NULL)) {
        fault("an answer without a line end or a detail", body, size);
    }
}

struct batch {
    char bodies[PIPELINED][ROOM];
    size_t sizes[PIPELINED];
    char text[PIPELINED * (ROOM + 256)];
};

static bool send_batch(struct client_connection *connection, struct batch *batch, struct rng *rng) {
    size_t size = 0;
    for (size_t i = 0; i < PIPELINED; i++) {
        const char *path = make(rng, batch->bodies[i], &batch->sizes[i]);
        size += (size_t)sprintf(batch->text + size,
                                "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", path,
                                batch->sizes[i]);
        memcpy(batch->text + size, batch->bodies[i], batch->sizes[i]);
        size += batch->sizes[i];
    }
    const long begun = now_us();
    if (!client_send(connection, batch->text, size)) {
        return false;
    }
    for (size_t i = 0; i < PIPELINED; i++) {
        struct client_response response;
        if (!client_receive(connection, false, &response)) {
            fault("no answer", batch->bodies[i], batch->sizes[i]);
            return false;
        }
        judge_answer(&response, batch->bodies[i], batch->sizes[i]);
        client_response_free(&response);
    }
    const long took = now_us() - begun;
    for (long most = atomic_load(&slowest_us);
         took > most && !atomic_compare_exchange_weak(&slowest_us, &most, took);) {
    }
    return true;
}

static void *client(void *seed) {
    struct rng rng = {*(const uint64_t *)seed};
    struct batch *batch = malloc(sizeof *batch);
    struct client_connection connection;
    if (batch != NULL && client_open(&connection, the_daemon.port)) {
        for (long sent = 0; sent < mutations / CLIENTS; sent += PIPELINED) {
            if (!send_batch(&connection, batch, &rng)) {
                fault("the connection ended", "", 0);
                break;
            }
        }
        client_close(&connection);
    }
    free(batch);
    return NULL;
}

Test(mutation, promise_15_changed_bodies_harm_nothing, .timeout = 3600) {
    const char *wanted = getenv("TEST_MUTATIONS"), *other = getenv("TEST_SEED");
    uint64_t states[CLIENTS];
    pthread_t threads[CLIENTS];
    size_t count;
    mutations = wanted != NULL ? atol(wanted) : mutations;
    struct notebook *notebooks = notebooks_read(&count);
    cr_assert(count > 0 && count + DRAWN <= COUNT(seeds));
    struct rng draws = {1};
    for (; seed_count < DRAWN; seed_count++) {
        struct drawn_call drawn;
        struct seed *seed = &seeds[seed_count];
        draw_call(&draws, drawn_paths[seed_count % 5], true, &drawn); /* there is no layer */
        seed->path = drawn.call.path;
        seed->body = binary_json(&drawn.call, "float32", &seed->size);
        cr_assert_leq(seed->size, LONGEST);
    }
    for (size_t i = 0; i < count; i++) {
        if (notebooks[i].size <= LONGEST) {
            seeds[seed_count++] =
                (struct seed){notebooks[i].path, notebooks[i].body, notebooks[i].size};
        }
    }
    daemon_start(NULL);
    for (size_t i = 0; i < seed_count; i++) { /* they must be good before they are changed */
        struct client_response response;
        cr_assert(client_request(the_daemon.port, "POST", seeds[i].path, NULL, seeds[i].body,
                                 seeds[i].size, &response));
        cr_assert_eq(response.status, 200, "%s: %s", seeds[i].body, response.body);
        client_response_free(&response);
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        states[i] = (other != NULL ? strtoull(other, NULL, 10) : 1) * CLIENTS + i + 1;
        cr_assert_eq(pthread_create(&threads[i], NULL, client, &states[i]), 0);
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        pthread_join(threads[i], NULL);
    }
    const unsigned taken = atomic_load(&counts[2]), refused = atomic_load(&counts[4]);
    printf("mutations: %u taken, %u refused, %u late; the slowest %d took %ld ms\n", taken, refused,
           atomic_load(&counts[5]), PIPELINED, atomic_load(&slowest_us) / 1000);
    cr_expect_eq(atomic_load(&faults), 0);
    cr_expect(taken > 0 && refused > taken / 10, "%u taken, %u refused", taken, refused);
    cr_expect_geq(taken + refused + atomic_load(&counts[5]), (unsigned)mutations);
    daemon_end();
    notebooks_free(notebooks, count);
    for (size_t i = 0; i < DRAWN; i++) {
        free(seeds[i].body);
    }
}
