/*
 * test_layer_memory.c - the memory of packed weights as clients see it: what is too large, and what
 * a refused request leaves behind.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/expect.h"
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

/* X of one row for one layer, or for both. */
#define RANDOM "\"random\":{\"generator\":\"numpy\",\"seed\":1}"
#define ONE    "{\"return\":[\"lse\"]," RANDOM ",\"X\":{\"random\":\"rand\",\"shape\":[1,100]}}"
#define BOTH   "{\"return\":[\"lse\"]," RANDOM ",\"X\":{\"random\":\"rand\",\"shape\":[2,1,100]}}"

static void start_for_one(void) {
    serve_two((const char *const[]){"--layers-memory", "1MiB", NULL});
}

/* The layers of a model that are used together count together. */
Test(layer_memory, counts_all_layers_of_a_request, .init = start_for_one, .fini = layer_folder_stop,
     .timeout = 1200) {
    expect_answer("POST", "/layers/m.h.0/attention", NULL, ONE, 200, "\"lse\"");
    expect_answer("POST", "/layers/m.h.1/attention", NULL, ONE, 200, "\"lse\"");
    expect_answer("POST", "/layers/m/attention", NULL, BOTH, 413,
                  "the packed weights of 2 layers take 12|--layers-memory");
}

static void start_narrowly(void) {
    serve_two((const char *const[]){"--max-memory", "512KiB", NULL});
}

/* Each worker has 800 KB of numbers before they are packed. */
Test(layer_memory, counts_what_packing_needs, .init = start_narrowly, .fini = layer_folder_stop,
     .timeout = 1200) {
    expect_answer("POST", "/v2/repository/models/m.h.0/load", NULL, "", 413, "--max-memory");
    expect_answer("POST", "/layers/m.h.0/attention", NULL, ONE, 413, "--max-memory");
}

static void start_patiently(void) {
    serve_two((const char *const[]){"--layers-memory", "1MiB", "--idle-timeout", "3600",
                                    "--write-timeout", "3600", NULL});
}

/* A client that does not read its answer of 11 MB holds no weights, which others need. */
Test(layer_memory, is_free_while_an_answer_is_sent, .init = start_patiently,
     .fini = layer_folder_stop, .timeout = 1200) {
    static const char body[] =
        "{\"return\":[\"weights\"]," RANDOM ",\"X\":{\"random\":\"rand\",\"shape\":[1000,100]}}";
    struct client_connection connection;
    struct client_response response;
    int status = 0;
    cr_assert(client_open(&connection, the_daemon.port));
    cr_assert(client_send_post(&connection, "/layers/m.h.0/attention", body, sizeof body - 1));
    while (daemon_metric("attentiond_layers_packed_bytes") == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    while (status != 200) {
        cr_assert(client_request(the_daemon.port, "POST", "/layers/m.h.1/attention", NULL, ONE,
                                 strlen(ONE), &response));
        status = response.status;
        client_response_free(&response);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    client_close(&connection);
}

static void start_with_little_work(void) {
    serve_two((const char *const[]){"--max-work", "1000", NULL});
}

/* A load that is refused uses the layer no longer, so its weights can be unloaded. */
Test(layer_memory, is_given_back_by_a_load_that_is_refused, .init = start_with_little_work,
     .fini = layer_folder_stop, .timeout = 1200) {
    expect_answer("POST", "/v2/repository/models/m.h.0/load", NULL, "", 413, "--max-work");
    expect_answer("POST", "/v2/repository/models/m.h.0/unload", NULL, "", 200, "\"loaded\":false");
    daemon_await_metric("attentiond_layers_packed_bytes", 0);
}
