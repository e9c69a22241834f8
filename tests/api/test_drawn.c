/*
 * test_drawn.c - calls that are drawn from the table of request fields: each is answered, in every
 * order of its keys alike, and the calls together have every key of every endpoint. The limits of
 * keys are tried at the limit, one below and one above.
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
    CALLS = 150, /* of each endpoint; enough for every key */
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

/* --------------------------------------------------------------------------- the order of keys */

enum {
    MEMBERS = 96 /* most of an object */
};

/* Returns the end of a value or key, before the comma or bracket that follows it. */
static const char *end_of_part(const char *part) {
    size_t depth = 0;
    for (bool inside = false;; part++) {
        if (inside) {
            part += *part == '\\';
            inside = *part != '"';
        } else if (*part == '"') {
            inside = true;
        } else if (*part == '[' || *part == '{') {
            depth++;
        } else if (*part == ']' || *part == '}') {
            if (depth-- == 0) {
                return part;
            }
        } else if (*part == ',' && depth == 0) {
            return part;
        }
    }
}

/* Writes a value in JSON, with the members of all its objects in an order that is drawn. */
static void write_shuffled(struct rng *rng, FILE *to, const char *value, const char *end) {
    const char *parts[MEMBERS], *ends[MEMBERS];
    size_t count = 0;
    if (*value != '{' && !(*value == '[' && value[1] == '{')) {
        fwrite(value, 1, (size_t)(end - value), to);
        return;
    }
    for (const char *part = value + 1; part < end - 1; part = ends[count++] + 1) {
        cr_assert_lt(count, MEMBERS);
        parts[count] = part;
        ends[count] = end_of_part(part);
    }
    fputc(*value, to);
    for (size_t left = count; left > 0; left--) {
        const bool member = *value == '{';
        const size_t next = member ? rng_between(rng, 0, left - 1) : count - left;
        const char *colon = member ? strchr(parts[next], ':') + 1 : parts[next];
        fputs(left < count ? "," : "", to);
        fwrite(parts[next], 1, (size_t)(colon - parts[next]), to);
        write_shuffled(rng, to, colon, ends[next]);
        if (member) {
            parts[next] = parts[left - 1];
            ends[next] = ends[left - 1];
        }
    }
    fputc(end[-1], to);
}

/* Expects the same bytes for a body and for some orders of its keys. */
static void expect_one_answer(struct rng *rng, const char *path, const char *body, size_t size,
                              size_t orders) {
    struct client_response first = daemon_ask_shared("POST", path, "", body, size);
    cr_expect_eq(first.status, 200, "%s: %.300s %.300s", path, first.body, body);
    for (size_t i = 0; i < orders; i++) {
        char *other;
        size_t length;
        FILE *to = open_memstream(&other, &length);
        write_shuffled(rng, to, body, body + size);
        fclose(to);
        cr_assert_eq(length, size);
        struct client_response response = daemon_ask_shared("POST", path, "", other, size);
        cr_expect(response.size == first.size && memcmp(response.body, first.body, first.size) == 0,
                  "%s: %.300s for %.300s and %.300s for %.300s", path, first.body, body,
                  response.body, other);
        client_response_free(&response);
        free(other);
    }
    client_response_free(&first);
}

/* Keys whose matrices are drawn are left out: they share one generator. */
Test(drawn, the_order_of_keys_changes_nothing) {
    for (size_t p = 0; p < drawn_path_count; p++) {
        struct rng rng = {p + 100};
        for (size_t i = 0; i < CALLS / 2; i++) {
            struct drawn_call drawn;
            size_t size;
            draw_call(&rng, drawn_paths[p], true, &drawn);
            char *text = binary_json(&drawn.call, drawn_dtype(&drawn, i % 2 != 0), &size);
            if (strstr(text, "\"random\"") == NULL) {
                expect_one_answer(&rng, drawn_paths[p], text, size, 4);
            }
            free(text);
        }
    }
}

Test(drawn, the_order_of_keys_changes_nothing_in_the_inference_protocol) {
    static const char *const types[] = {"FP32", "FP64", "FP16"};
    for (size_t i = 0; i < DRAWN_BINARY; i++) {
        struct rng rng = {i};
        struct drawn_call drawn;
        char path[64];
        size_t size, header;
        draw_binary(i, &drawn);
        char *text =
            binary_inference(&drawn.call, types[i % 3], 0, "\"id\":\"7\",", &header, &size);
        snprintf(path, sizeof path, "/v2/models%s/infer", drawn.call.path);
        expect_one_answer(&rng, path, text, size, 4);
        free(text);
    }
}

/* ---------------------------------------------------------------------------------- long bodies */

/* Writes numbers in many forms, and commas between them. Some of them lie so close to the middle of
 * two floats or halves that a double does not tell on which side. */
static void write_numbers(struct rng *rng, FILE *to, size_t rows, size_t columns, const char *row) {
    static const char *const beside[] = {"1.00000005960464477539062499999",
                                         "1.00000005960464477539062500001",
                                         "1.00048828125000000000000000001",
                                         "-3.5762788e-07",
                                         "16777217",
                                         "1e-46"};
    for (size_t i = 0; i < rows * columns; i++) {
        fputs(i % columns != 0 ? "," : i > 0 ? row : "", to);
        if (rng_chance(rng, 20)) {
            fputs(beside[rng_between(rng, 0, COUNT(beside) - 1)], to);
        } else {
            fprintf(to, "%.*g", (int)rng_between(rng, 1, 17), rng_normal(rng));
        }
    }
}

/* Writes a member of an object. */
static void write_matrix(struct rng *rng, FILE *to, const char *name, size_t rows, size_t columns) {
    fprintf(to, "\"%s\":[[", name);
    write_numbers(rng, to, rows, columns, "],[");
    fputs("]],", to);
}

enum {
    ROWS = 16,
    COLUMNS = 32
};

/* Each writes a body with the numbers of so many keys. */
static void write_call(struct rng *rng, FILE *to, size_t keys) {
    write_matrix(rng, to, "Q", ROWS, COLUMNS);
    write_matrix(rng, to, "K", keys, COLUMNS);
    write_matrix(rng, to, "V", keys, 3);
    fputs("\"scale\":0.001,", to);
}

static void write_heads(struct rng *rng, FILE *to, size_t keys) {
    write_matrix(rng, to, "X", 3, keys);
    for (size_t h = 0; h < 2; h++) {
        fputs(h == 0 ? "\"heads\":[{" : "},{", to);
        write_matrix(rng, to, "W_Q", keys, 8);
        write_matrix(rng, to, "W_K", keys, 8);
        write_matrix(rng, to, "W_V", keys, 8);
        fputs("\"b_Q\":null", to);
    }
    fputs("}],\"scale\":0.001,", to);
}

static void write_inputs(struct rng *rng, FILE *to, size_t keys) {
    static const char *const types[] = {"FP16", "FP32", "FP64", "INT64"};
    static const char names[] = "QKV";
    const char *type = types[rng_between(rng, 0, 3)];
    fputs("\"inputs\":[", to);
    for (size_t i = 0; i < 3; i++) {
        fprintf(to, "%s{\"name\":\"%c\",\"shape\":[%zu,%d],\"data\":[", i > 0 ? "," : "", names[i],
                i > 0 ? keys : ROWS, COLUMNS);
        if (strcmp(type, "INT64") == 0) {
            for (size_t k = 0; k < (i > 0 ? keys : ROWS) * COLUMNS; k++) {
                fprintf(to, "%s%zu", k > 0 ? "," : "", 16777200 + rng_between(rng, 0, 40));
            }
        } else {
            write_numbers(rng, to, i > 0 ? keys : ROWS, COLUMNS, ",");
        }
        fprintf(to, "],\"datatype\":\"%s\"}", type);
    }
    fputs("],\"parameters\":{\"scale\":1e-16},", to);
}

/* A body in JSON is read while it arrives, so its dtype may come after its matrices. */
Test(drawn, the_dtype_of_a_long_body_stands_anywhere) {
    static const struct {
        const char *path, *returned;
        void (*write)(struct rng *rng, FILE *to, size_t keys);
    } forms[] = {
        {"/attention", "\"return\":[\"output\",\"lse\"]", write_call},
        {"/multi-head-attention", "\"return\":[\"output\",\"lse\"]", write_heads},
        {"/v2/models/attention/infer", "\"outputs\":[{\"name\":\"output\"},{\"name\":\"lse\"}]",
         write_inputs},
    };
    static const char *const dtypes[] = {"", ",\"dtype\":\"float64\"", ",\"dtype\":\"float32\""};
    struct rng rng = {7};
    for (size_t keys = 4; keys <= 8192; keys *= 2048) { /* about 3 MB in the end */
        for (size_t i = 0; i < 9; i++) {
            const size_t form = i % 3, orders = keys == 4 ? 8 : 3;
            char *text;
            size_t size;
            FILE *to = open_memstream(&text, &size);
            fputs("{", to);
            forms[form].write(&rng, to, form == 1 ? keys / 2 : keys);
            fprintf(to, "%s%s}", forms[form].returned, form == 2 ? "" : dtypes[i / 3]);
            fclose(to);
            expect_one_answer(&rng, forms[form].path, text, size, orders);
            free(text);
        }
    }
}

/* --------------------------------------------------------------------------------- the limits */

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
