/*
 * test_extremes.c - promise 19: an answer holds finite numbers. The test sends drawn calls of all
 * endpoints and options with numbers at the ends of their range, with queries that may attend to
 * nothing, with biases of minus infinity, and with gradients. Each gets a 200 without NaN and
 * infinity, or a 422 that says what is not finite. In a 200, null stands only for minus infinity,
 * and only in masked_scores and lse. The test knows the service by its socket only.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/drawn.h"
#include "support/json.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum {
    CALLS = 20000
};

static const double extremes32[] = {1e30, -1e30, 3.4e38, -3.4e38, 1e19, -1e19, 1e-38, 1e-45, -1e-45,
                                    0,    -0.0,  1e10,   700,     -700, 1,     -1,    0.5};
static const double extremes64[] = {1e300,  -1e300, 1.7e308, -1.7e308, 1e154, -1e154, 5e-324,
                                    1e-308, -0.0,   1e30,    7000,     -7000, 1,      0.5};

static const double decays[] = {-INFINITY, 0, -0.0, -1e-45, -3.4e38, -700};

/* How the numbers of a call are drawn. */
struct ends {
    struct rng rng;
    bool float64, tame; /* tame: most numbers are ordinary, so that many calls have a result */
};

static double draw_extreme(struct ends *e) {
    if (e->tame && !rng_chance(&e->rng, 8)) {
        return rng_normal(&e->rng) * 10;
    }
    return e->float64 ? extremes64[rng_between(&e->rng, 0, COUNT(extremes64) - 1)]
                      : extremes32[rng_between(&e->rng, 0, COUNT(extremes32) - 1)];
}

static double draw_decay(struct ends *e) {
    return rng_chance(&e->rng, 2) ? -fabs(rng_normal(&e->rng))
                                  : decays[rng_between(&e->rng, 0, COUNT(decays) - 1)];
}

/* Gives a matrix such numbers, unless it has those of another range. They are owned by the caller;
 * NULL if there are none. */
static double *put_extremes(struct ends *e, struct binary_input *input) {
    static const char *const others[] = {"positions", "rotary_cos", "rotary_sin"};
    for (size_t i = 0; i < COUNT(others); i++) {
        if (strcmp(input->name, others[i]) == 0) {
            return NULL;
        }
    }
    if ((input->kind & (BINARY_MASK | BINARY_SHARE)) != 0) {
        return NULL;
    }
    double *numbers = malloc(binary_count(input) * sizeof *numbers);
    for (size_t i = 0; i < binary_count(input); i++) {
        numbers[i] = (input->kind & BINARY_DECAY) != 0 ? draw_decay(e) : draw_extreme(e);
    }
    return numbers;
}

/* Adds an option that the call does not have. Only softcap must not be negative. */
static void add_extreme(struct ends *e, struct drawn_call *drawn, const char *option) {
    char *end = drawn->options + strlen(drawn->options);
    if (strstr(drawn->options, option) == NULL && rng_chance(&e->rng, 4)) {
        const double number = draw_extreme(e);
        sprintf(end, "%s\"%s\":%.17g", end > drawn->options ? "," : "", option,
                strcmp(option, "softcap") == 0 ? fabs(number) : number);
    }
}

/* Has a call other rules: for the ends of compute_dtype, for words, or for what is expected? */
static bool has_other_rules(const struct drawn_call *drawn) {
    bool has = drawn->words || strstr(drawn->options, "compute_dtype") != NULL;
    for (const struct binary_input *input = drawn->call.inputs; input->name != NULL; input++) {
        has |= strncmp(input->name, "expected.", 9) == 0;
    }
    return has;
}

/* Draws a body, which is owned, for a path. */
static char *draw_body(struct ends *e, const char *path, size_t *size) {
    double *numbers[BINARY_INPUTS] = {0};
    struct drawn_call drawn;
    do {
        draw_call(&e->rng, path, true, &drawn);
    } while (has_other_rules(&drawn));
    for (size_t i = 0; drawn.call.inputs[i].name != NULL; i++) {
        drawn.call.inputs[i].numbers = numbers[i] = put_extremes(e, &drawn.call.inputs[i]);
    }
    if (strcmp(path, "/softmax") != 0) {
        add_extreme(e, &drawn, "scale");
    }
    if (strstr(path, "attention") == path + 1 || strstr(path, "self") != NULL) {
        add_extreme(e, &drawn, "softcap");
    }
    if (strstr(drawn.options, "\"sigmoid\"") != NULL) {
        add_extreme(e, &drawn, "sigmoid_bias");
    }
    char *body = binary_json(&drawn.call, e->float64 ? "float64" : "float32", size);
    for (size_t i = 0; i < BINARY_INPUTS; i++) {
        free(numbers[i]);
    }
    return body;
}

/* Says whether every number is finite in the dtype of the call, and null stands only where it
 * may. */
static bool is_sound(const struct cJSON *value, double largest, bool may_be_null) {
    double number;
    if (json_is_array(value) || json_is_object(value)) {
        bool sound = true;
        for (value = json_first(value); value != NULL && sound; value = json_next(value)) {
            const char *name = json_name(value);
            const bool is_statistic = name != NULL && strcmp(name, "statistics") == 0;
            sound = is_sound(value, is_statistic ? DBL_MAX : largest,
                             name == NULL
                                 ? may_be_null
                                 : strcmp(name, "masked_scores") == 0 || strcmp(name, "lse") == 0);
        }
        return sound;
    }
    return json_number(value, &number) ? fabs(number) <= largest : may_be_null;
}

static void expect_finite(const char *body, bool float64, const struct client_response *response,
                          size_t *finite) {
    struct cJSON *answer = json_parse(response->body, response->size);
    const char *detail = json_text(json_get(answer, "detail"));
    /* Rounding to few digits may make the largest number larger. */
    const double largest = float64 ? DBL_MAX : 10.0 * FLT_MAX;
    *finite += response->status == 200;
    cr_expect(response->status == 200
                  ? is_sound(answer, largest, false)
                  : response->status == 422 && detail != NULL && strstr(detail, "finite") != NULL,
              "%s: %d %.1000s", body, response->status, response->body);
    /* cJSON might read NaN and infinity as numbers or words of its own, so the text is searched,
     * too. */
    cr_expect(response->status != 200 ||
                  (strstr(response->body, "nan") == NULL && strstr(response->body, "inf") == NULL &&
                   strstr(response->body, "NaN") == NULL && strstr(response->body, "Inf") == NULL),
              "%s: %.1000s", body, response->body);
    json_free(answer);
}

Test(extremes, promise_19_answers_are_finite, .timeout = 1200) {
    struct client_connection connection;
    struct ends e = {.rng = {19}};
    size_t finite = 0;
    daemon_start(NULL);
    cr_assert(client_open(&connection, the_daemon.port));
    for (size_t i = 0; i < CALLS; i++) {
        static const char *const paths[] = {"/attention", "/attention", "/self-attention",
                                            "/linear-attention", "/softmax"};
        struct client_response response;
        const char *path = paths[rng_between(&e.rng, 0, COUNT(paths) - 1)];
        size_t size;
        e.float64 = rng_chance(&e.rng, 3);
        e.tame = rng_chance(&e.rng, 2);
        char *body = draw_body(&e, path, &size);
        cr_assert(client_post(&connection, path, body, size, &response), "%s: no answer", body);
        expect_finite(body, e.float64, &response, &finite);
        client_response_free(&response);
        free(body);
    }
    cr_expect(finite > CALLS / 10 && finite < CALLS * 9 / 10, "%zu of %d have a result", finite,
              (int)CALLS);
    client_close(&connection);
    daemon_end();
}
