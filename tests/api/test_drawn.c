/*
 * test_drawn.c - calls that are drawn from the table of request fields: each is answered,
 * and the calls together have every key of every endpoint. The limits of keys are tried at the
 * limit, one below and one above.
 */
#include <criterion/criterion.h>
#include <stdio.h>
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

/* Writes a value at this rank, or a number, in JSON. */
static void write_value(char out[64], const struct drawn_limit *limit, int at) {
    if (limit->element == NULL) {
        sprintf(out, "%d", at);
        return;
    }
    out += sprintf(out, "%.*s%s", at, "[[[[[[[[[[", limit->element);
    sprintf(out, "%.*s", at, "]]]]]]]]]]");
}

/* Returns a body with the value; free(). X stands in place of Q, K and V. */
static char *body_of_value(const char *path, const char *name, const char *value) {
    const char *example = drawn_example(path);
    if (strcmp(path, "heads") != 0) {
        const bool alone = strcmp(name, "X") == 0 && strstr(example, "\"Q\"") != NULL;
        return json_with(alone ? "{}" : example, name, value);
    }
    char list[512], *head = json_with("{\"W_Q\":[[1]],\"W_K\":[[1]],\"W_V\":[[1]]}", name, value);
    snprintf(list, sizeof list, "[%s]", head);
    free(head);
    return json_with("{\"X\":[[1]]}", "heads", list);
}

/* Sends a request with the value, and expects that it is refused, or that it is not refused for a
 * limit. What is within the limit may be wrong for another reason: the rank of decay and beta also
 * depends on that of Q, which is 2 here. */
static void try_value(const char *path, const struct drawn_limit *limit, int at) {
    const bool heads = strcmp(path, "heads") == 0;
    char value[64], pointer[80], rule[64];
    write_value(value, limit, at);
    snprintf(pointer, sizeof pointer, "\"pointer\":\"%s/%s", heads ? "/heads/0" : "", limit->name);
    snprintf(rule, sizeof rule, "%s must %s", limit->name,
             limit->element == NULL ? "be" : "have rank");
    char *body = body_of_value(path, limit->name, value);
    struct client_response response =
        daemon_ask_shared("POST", heads ? "/multi-head-attention" : path, "", body, strlen(body));
    if (at >= limit->least && (at <= limit->most || limit->most == 0)) {
        cr_expect(strstr(response.body, rule) == NULL ||
                      (at > 2 && strstr(response.body, "rank 1 to 2,") != NULL),
                  "%s: %s %s", path, body, response.body);
    } else {
        cr_expect(response.status == 422 && strstr(response.body, pointer) != NULL, "%s: %s %s",
                  path, body, response.body);
    }
    client_response_free(&response);
    free(body);
}

Test(drawn, limits_hold_to_one) {
    size_t tried = 0;
    for (size_t p = 0; p <= drawn_path_count; p++) {
        const char *path = p < drawn_path_count ? drawn_paths[p] : "heads";
        struct drawn_limit limit;
        for (size_t i = 0; drawn_limit_of(path, i, &limit); i++) {
            if (limit.least == 0 && limit.most == 0) {
                continue;
            }
            for (int at = limit.least - 1; at <= limit.least + 1; at++) {
                if (at >= limit.least || !limit.open) {
                    try_value(path, &limit, at);
                }
            }
            for (int at = limit.most - 1; at <= limit.most + 1 && limit.most > limit.least; at++) {
                try_value(path, &limit, at);
            }
            tried++;
        }
    }
    cr_expect_geq(tried, 150, "%zu limits", tried);
}
