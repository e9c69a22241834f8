/*
 * test_layer_memory.c - the memory of packed weights as clients see it: what is too large, and what
 * a refused request leaves behind.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/layer_folder.h"

enum {
    INPUTS = 100,
    OUTPUTS = 500 /* the packed weights of a layer take 600 KiB */
};

/* Starts the daemon with the model m, which has the layers h.0 and h.1. */
static void serve_two(const char *const options[]) {
    layer_folder_begin();
    layer_file_model("m.safetensors", "", 2, INPUTS, OUTPUTS, 1);
    layer_folder_serve(options);
}

/* Posts X for one layer or for both. Returns the status. The answer has a part, if it is given. */
static int use_layers(const char *path, size_t layers, const char *part) {
    struct client_response response;
    char *body = malloc(64 + layers * (4 * INPUTS + 4));
    cr_assert_not_null(body);
    strcpy(body, "{\"return\":[\"lse\"],\"X\":");
    strcat(body, layers > 1 ? "[" : "");
    for (size_t i = 0; i < layers; i++) {
        strcat(body, i > 0 ? ",[[0" : "[[0");
        for (int column = 1; column < INPUTS; column++) {
            strcat(body, ",0");
        }
        strcat(body, "]]");
    }
    strcat(body, layers > 1 ? "]}" : "}");
    cr_assert(client_request(the_daemon.port, "POST", path, NULL, body, strlen(body), &response));
    const int status = response.status;
    cr_expect(part == NULL || strstr(response.body, part) != NULL, "%s: %s", path, response.body);
    client_response_free(&response);
    free(body);
    return status;
}

/* Expects a status and a part of the answer. */
static void expect_use(const char *path, size_t layers, int status, const char *part) {
    cr_expect_eq(use_layers(path, layers, part), status, "%s", path);
}

static void start_for_one(void) {
    serve_two((const char *const[]){"--layers-memory", "1MiB", NULL});
}

/* The layers of a model that are used together count together. */
Test(layer_memory, counts_all_layers_of_a_request, .init = start_for_one, .fini = layer_folder_stop,
     .timeout = 60) {
    expect_use("/layers/m.h.0/attention", 1, 200, "\"lse\"");
    expect_use("/layers/m.h.1/attention", 1, 200, "\"lse\"");
    expect_use("/layers/m/attention", 2, 413, "the packed weights of 2 layers take 12");
    expect_use("/layers/m/attention", 2, 413, "--layers-memory");
}

static void start_patiently(void) {
    serve_two((const char *const[]){"--layers-memory", "1MiB", "--idle-timeout", "3600",
                                    "--write-timeout", "3600", NULL});
}

/* A client that does not read its answer of 11 MB holds no weights, which others need. */
Test(layer_memory, is_free_while_an_answer_is_sent, .init = start_patiently,
     .fini = layer_folder_stop, .timeout = 60) {
    enum {
        ROWS = 1000
    };
    struct client_connection connection;
    char *body = malloc(64 + ROWS * (2 * INPUTS + 2));
    cr_assert_not_null(body);
    char *end = stpcpy(body, "{\"return\":[\"weights\"],\"X\":[");
    for (size_t row = 0; row < ROWS; row++) {
        end = stpcpy(end, row > 0 ? ",[0" : "[0");
        for (size_t column = 1; column < INPUTS; column++) {
            end = stpcpy(end, ",0");
        }
        end = stpcpy(end, "]");
    }
    end = stpcpy(end, "]}");
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_send_post(&connection, "/layers/m.h.0/attention", body, (size_t)(end - body)));
    while (daemon_metric("attentiond_layers_packed_bytes") == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    while (use_layers("/layers/m.h.1/attention", 1, NULL) != 200) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    client_close(&connection);
    free(body);
}

static void start_with_little_work(void) {
    serve_two((const char *const[]){"--max-work", "1000", NULL});
}

/* A load that is refused uses the layer no longer, so its weights can be unloaded. */
Test(layer_memory, is_given_back_by_a_load_that_is_refused, .init = start_with_little_work,
     .fini = layer_folder_stop, .timeout = 60) {
    expect_use("/v2/repository/models/m.h.0/load", 1, 413, "--max-work");
    expect_use("/v2/repository/models/m.h.0/unload", 1, 200, "\"loaded\":false");
    daemon_await_metric("attentiond_layers_packed_bytes", 0);
}
