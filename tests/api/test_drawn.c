/*
 * test_drawn.c - calls that are drawn from the table of request fields: each is answered,
 * and the calls together have every key of every endpoint.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/drawn.h"
#include "support/expect.h"
#include "support/json.h"

enum {
    CALLS = 100, /* of each endpoint; enough for every key */
    KEYS = 96
};

static void start_with_layers(void) {
    daemon_start_with((const char *const[]){"--layers", TESTS_DIR "/data/layers", NULL});
}

TestSuite(drawn, .init = start_with_layers, .fini = daemon_end, .timeout = 1200);

/* Marks the keys that an object has. */
static void mark(const struct cJSON *body, const char *path, bool marks[KEYS]) {
    for (size_t i = 0; drawn_key(path, i) != NULL; i++) {
        marks[i] |= json_get(body, drawn_key(path, i)) != NULL;
    }
}

static void expect_marks(const char *path, const bool marks[KEYS]) {
    for (size_t i = 0; drawn_key(path, i) != NULL; i++) {
        cr_expect(marks[i], "no call of %s has %s", path, drawn_key(path, i));
    }
}

Test(drawn, every_key_is_answered) {
    bool heads[KEYS] = {0};
    for (size_t p = 0; p < drawn_path_count; p++) {
        struct rng rng = {p + 1};
        bool marks[KEYS] = {0};
        for (size_t i = 0; i < CALLS; i++) {
            struct drawn_call drawn;
            size_t size;
            draw_call(&rng, drawn_paths[p], true, &drawn);
            char *text = binary_json(&drawn.call, drawn_dtype(&drawn, i % 2 != 0), &size);
            struct client_response response =
                daemon_ask_shared("POST", drawn_paths[p], "", text, size);
            cr_expect_eq(response.status, 200, "%s: %s %s", drawn_paths[p], response.body, text);
            struct cJSON *body = json_parse(text, size);
            mark(body, drawn_paths[p], marks);
            mark(json_first(json_get(body, "heads")), "heads", heads);
            json_free(body);
            client_response_free(&response);
            free(text);
        }
        expect_marks(drawn_paths[p], marks);
    }
    expect_marks("heads", heads);
}
