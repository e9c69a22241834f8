/* test_layer_load.c - a stored layer whose matrices are as large as one task takes, and no
 * layer. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/binary.h"
#include "support/daemon.h"
#include "support/json.h"

enum {
    SIDE = 512 /* a matrix has 2 MiB as doubles */
};

static const struct binary_call large = {"/multi-head-attention",
                                         "\"heads\":4",
                                         NULL,
                                         {{"X", {1, SIDE}, 0},
                                          {"W_Q", {SIDE, SIDE}, 0},
                                          {"W_K", {SIDE, SIDE}, 0},
                                          {"W_V", {SIDE, SIDE}, 0}}};
static const struct binary_call question = {
    "/layers/large.attention/attention", "", NULL, {{"X", {1, SIDE}, 0}}};

static struct cJSON *ask_float32(const struct binary_call *call) {
    size_t size;
    char *body = binary_json(call, "float32", &size);
    struct cJSON *answer = daemon_ask_json(call->path, body, size);
    free(body);
    return answer;
}

/* A task has room for all numbers that it reads. */
Test(layer_load, has_room_for_a_large_matrix, .timeout = 60) {
    char folder[] = "/tmp/layers-XXXXXX", path[64];
    struct json_difference difference;
    size_t size;
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/large.safetensors", folder);
    char *bytes = binary_safetensors(&large, "F32", &size);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
    free(bytes);
    daemon_start_with((const char *const[]){"--layers", folder, NULL});
    struct client_response response =
        daemon_ask_shared("POST", "/v2/repository/models/large.attention/load", "", "", 0);
    cr_expect_eq(response.status, 200, "%s", response.body);
    client_response_free(&response);
    struct cJSON *answer = ask_float32(&question), *expected = ask_float32(&large);
    cr_expect(json_near(answer, expected, 1e-6, 1e-6, &difference), "%s", difference.message);
    json_free(answer);
    json_free(expected);
    daemon_end();
    unlink(path);
    cr_expect_eq(rmdir(folder), 0);
}

Test(no_layers, are_served_without_the_option, .init = daemon_start_connected, .fini = daemon_end,
     .timeout = 20) {
    static const char body[] = "{\"X\":[[1]]}";
    struct client_response response = daemon_ask("GET", "/layers", "");
    cr_expect_eq(response.status, 200);
    cr_expect_str_eq(response.body, "{\"layers\":[],\"refused\":[]}\n");
    client_response_free(&response);
    response = daemon_ask_shared("POST", "/layers/a.b/attention",
                                 "Content-Type: application/json\r\n", body, strlen(body));
    cr_expect_eq(response.status, 404);
    cr_expect_not_null(strstr(response.body, "--layers"), "%s", response.body);
    client_response_free(&response);
}
