/*
 * test_extremes.c - promise 19: an answer holds finite numbers. The test sends random calls with
 * numbers at the ends of their range, with queries that may attend to nothing, with biases of minus
 * infinity, and with gradients. Each gets a 200 without NaN and infinity, or a 422 that says what
 * is not finite. In a 200, null stands only for minus infinity, and only in masked_scores and lse.
 * The test knows the service by its socket only.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/json.h"
#include "support/rng.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum {
    CALLS = 20000
};

static const char *const extremes32[] = {"1e30",  "-1e30", "3.4e38", "-3.4e38", "1e19", "-1e19",
                                         "1e-38", "1e-45", "-1e-45", "0",       "-0",   "1e10",
                                         "700",   "-700",  "1",      "-1",      "0.5"};
static const char *const extremes64[] = {"1e300",  "-1e300", "1.7e308", "-1.7e308", "1e154",
                                         "-1e154", "5e-324", "1e-308",  "-0",       "1e30",
                                         "7000",   "-7000",  "1",       "0.5"};

static const char *const decays[] = {"null", "-Infinity", "0", "-0", "-1e-45", "-3.4e38", "-700"};

/* The state from which a call is drawn. */
struct draw {
    struct rng rng;
    bool float64, tame; /* tame: most numbers are ordinary, so that many calls have a result */
    FILE *to;
};

static void put_number(struct draw *d) {
    if (d->tame && !rng_chance(&d->rng, 8)) {
        fprintf(d->to, "%.3g", rng_normal(&d->rng) * 10);
    } else if (d->float64) {
        fputs(extremes64[rng_between(&d->rng, 0, COUNT(extremes64) - 1)], d->to);
    } else {
        fputs(extremes32[rng_between(&d->rng, 0, COUNT(extremes32) - 1)], d->to);
    }
}

static void put_element(struct draw *d, char kind) {
    if (kind == 'm') { /* an element of a mask */
        fputs(rng_chance(&d->rng, 2) ? "true" : "false", d->to);
    } else if (kind == 'd' && rng_chance(&d->rng, 2)) { /* an element of decay */
        fprintf(d->to, "-%.3g", fabs(rng_normal(&d->rng)));
    } else if (kind == 'd') {
        fputs(decays[rng_between(&d->rng, 0, COUNT(decays) - 1)], d->to);
    } else if (kind == 'b' && rng_chance(&d->rng, 4)) {
        fputs(rng_chance(&d->rng, 2) ? "null" : "-Infinity", d->to);
    } else {
        put_number(d);
    }
}

static void put_matrix(struct draw *d, const char *name, char kind, size_t rows, size_t columns) {
    fprintf(d->to, ",\"%s\":[", name);
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            fputs(j > 0 ? "," : i > 0 ? ",[" : "[", d->to);
            put_element(d, kind);
        }
        fputs("]", d->to);
    }
    fputs("]", d->to);
}

static void put_options(struct draw *d, size_t queries, size_t keys, bool none) {
    static const char *const causal[] = {"true", "false", "\"bottom_right\""};
    if (rng_chance(&d->rng, 3)) {
        put_matrix(d, "mask", 'm', queries, keys);
    }
    if (rng_chance(&d->rng, 3)) {
        put_matrix(d, "bias", 'b', queries, keys);
    }
    if (rng_chance(&d->rng, 3)) {
        fprintf(d->to, ",\"causal\":%s", causal[rng_between(&d->rng, 0, 2)]);
    }
    if (rng_chance(&d->rng, 6)) {
        fprintf(d->to, ",\"window\":[%zu,0]", rng_between(&d->rng, 0, 3));
    }
    if (rng_chance(&d->rng, 6)) {
        fprintf(d->to, ",\"lengths\":[%zu]", rng_between(&d->rng, 0, keys));
    }
    if (rng_chance(&d->rng, 4)) {
        fputs(",\"scale\":", d->to);
        put_number(d);
    }
    if (rng_chance(&d->rng, 6)) {
        fprintf(d->to, ",\"softcap\":%s", rng_chance(&d->rng, 2) ? "30" : "1e-30");
    }
    if (rng_chance(&d->rng, 6)) {
        fputs(",\"alibi\":[", d->to);
        put_number(d);
        fputs("]", d->to);
    }
    if (!none && rng_chance(&d->rng, 6)) {
        fputs(",\"sink\":", d->to);
        put_number(d);
    }
    if (rng_chance(&d->rng, 4)) {
        fprintf(d->to, ",\"digits\":%zu", rng_between(&d->rng, 1, 17));
    }
}

/* Writes gradients of results. Returns the names of the gradients by inputs, which begin with a
 * comma. */
static const char *put_gradients(struct draw *d, size_t queries, size_t keys, size_t columns,
                                 bool projected) {
    if (!rng_chance(&d->rng, 3)) {
        return "";
    }
    put_matrix(d, "grad_output", 'x', queries, columns);
    if (rng_chance(&d->rng, 3)) {
        put_matrix(d, "grad_weights", 'x', queries, keys);
    }
    return projected ? ",\"grad_X\",\"grad_W_Q\",\"grad_W_V\",\"grad_W_O\",\"grad_context\""
                     : ",\"grad_Q\",\"grad_K\",\"grad_V\"";
}

/* Writes the matrices and options of linear attention. */
static void put_linear(struct draw *d, size_t rows, size_t depth, size_t columns) {
    put_matrix(d, "Q", 'x', rows, depth);
    put_matrix(d, "K", 'x', rows, depth);
    put_matrix(d, "V", 'x', rows, columns);
    const bool gated = rng_chance(&d->rng, 2);
    if (gated) {
        put_matrix(d, "decay", 'd', rows, depth);
    }
    if (rng_chance(&d->rng, 2)) {
        fputs(",\"beta\":[", d->to);
        for (size_t i = 0; i < rows; i++) {
            fprintf(d->to, "%s%.3g", i > 0 ? "," : "", 2 * rng_uniform(&d->rng));
        }
        fputs("]", d->to);
    }
    if (rng_chance(&d->rng, 3)) {
        put_matrix(d, "past_state", 'x', depth, columns);
    }
    fprintf(
        d->to,
        ",\"normalize_QK\":%s,\"return\":[\"output\",\"weights\",\"present_state\",\"states\"%s]}",
        rng_chance(&d->rng, 2) ? "true" : "false", gated ? ",\"decays\"" : "");
}

/* Writes a call. Returns the path to send it to. */
static const char *put_call(struct draw *d) {
    static const size_t sizes[] = {1, 2, 3, 4, 5, 17, 33};
    const size_t queries = sizes[rng_between(&d->rng, 0, COUNT(sizes) - 1)];
    const size_t keys = sizes[rng_between(&d->rng, 0, COUNT(sizes) - 1)];
    const size_t depth = rng_between(&d->rng, 1, 9), columns = rng_between(&d->rng, 1, 5);
    const bool projected = rng_chance(&d->rng, 4), none = rng_chance(&d->rng, 6);
    fprintf(d->to, "{\"dtype\":\"%s\"", d->float64 ? "float64" : "float32");
    if (rng_chance(&d->rng, 8)) {
        put_matrix(d, "X", 'x', queries, depth);
        fprintf(d->to, ",\"axis\":%zu}", rng_between(&d->rng, 0, 1));
        return "/softmax";
    }
    if (rng_chance(&d->rng, 6)) {
        put_linear(d, queries, depth, columns);
        return "/linear-attention";
    }
    if (projected) {
        put_matrix(d, "X", 'x', queries, depth);
        put_matrix(d, "context", 'x', keys, depth);
        put_matrix(d, "W_Q", 'x', depth, 2);
        put_matrix(d, "W_K", 'x', depth, 2);
        put_matrix(d, "W_V", 'x', depth, columns);
        put_matrix(d, "W_O", 'x', columns, 3);
    } else {
        put_matrix(d, "Q", 'x', queries, depth);
        put_matrix(d, "K", 'x', keys, depth);
        put_matrix(d, "V", 'x', keys, columns);
    }
    put_options(d, queries, keys, none);
    const bool sigmoid = none && rng_chance(&d->rng, 2);
    if (sigmoid) {
        fputs(",\"sigmoid_bias\":", d->to);
        put_number(d);
    }
    const char *gradients = put_gradients(d, queries, keys, projected ? 3 : columns, projected);
    const char *other = sigmoid ? "sigmoid" : rng_chance(&d->rng, 2) ? "none" : "stick_breaking";
    fprintf(d->to, ",\"normalization\":\"%s\"", none ? other : "softmax");
    if (gradients[0] != '\0' && rng_chance(&d->rng, 2)) {
        fprintf(d->to, ",\"return\":[%s]}", gradients + 1);
    } else {
        fprintf(d->to,
                ",\"return\":[\"output\",\"weights\",\"scores\",\"scaled_scores\","
                "\"masked_scores\",\"statistics\"%s%s]}",
                none ? "" : ",\"lse\",\"entropy\",\"top_k\"", gradients);
    }
    return projected ? "/self-attention" : "/attention";
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
    struct draw d = {.rng = {19}};
    size_t finite = 0;
    daemon_start(NULL);
    cr_assert(client_open(&connection, the_daemon.port));
    for (size_t i = 0; i < CALLS; i++) {
        struct client_response response;
        char *body;
        size_t size;
        d.to = open_memstream(&body, &size);
        cr_assert_not_null(d.to);
        d.float64 = rng_chance(&d.rng, 3);
        d.tame = rng_chance(&d.rng, 2);
        const char *path = put_call(&d);
        fclose(d.to);
        cr_assert(client_post(&connection, path, body, size, &response), "%s: no answer", body);
        expect_finite(body, d.float64, &response, &finite);
        client_response_free(&response);
        free(body);
    }
    cr_expect(finite > CALLS / 10 && finite < CALLS * 9 / 10, "%zu of %d have a result", finite,
              (int)CALLS);
    client_close(&connection);
    daemon_end();
}
