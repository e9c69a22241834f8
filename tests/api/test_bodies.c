/*
 * test_bodies.c - bodies that are JSON and wrong nevertheless, from tables and combinations: keys
 * (promise 17), numbers (18), sizes (21) and shapes (22). Every refusal is a 422 or 400 that says
 * where and why, and the connection stays usable. The tests know the service by its socket only.
 */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/drawn.h"
#include "support/json.h"

TestSuite(bodies, .init = daemon_start_connected, .fini = daemon_end, .timeout = 1200);

/* An answer. If it is a problem document, `detail`, `pointer` and `offset` are its members. */
struct answer {
    int status;
    char text[512], detail[512], pointer[128];
    long offset; /* -1 if there is none */
};

static void copy_text(char *to, size_t size, const char *text) {
    snprintf(to, size, "%s", text != NULL ? text : "");
}

static struct answer post_body(const char *path, const char *body, size_t size) {
    struct client_response response;
    struct answer answer;
    double offset = -1;
    cr_assert(client_post(&the_connection, path, body, size, &response), "%s: no answer to %.200s",
              path, body);
    struct cJSON *json = json_parse(response.body, response.size);
    answer.status = response.status;
    copy_text(answer.text, sizeof answer.text, response.body);
    copy_text(answer.detail, sizeof answer.detail, json_text(json_get(json, "detail")));
    copy_text(answer.pointer, sizeof answer.pointer, json_text(json_get(json, "pointer")));
    json_number(json_get(json, "offset"), &offset);
    answer.offset = (long)offset;
    json_free(json);
    client_response_free(&response);
    return answer;
}

/* ----------------------------------------------------------------------------------------- keys */

static const char *const draw_keys[] = {"shape", "low", "high", "mean", "std", "dtype", "discard"};

/* Copies the key with upper and lower case exchanged. */
static void swap_case(char *to, const char *key) {
    for (; *key != '\0'; key++, to++) {
        *to = (char)(islower((unsigned char)*key) ? toupper((unsigned char)*key)
                                                  : tolower((unsigned char)*key));
    }
    *to = '\0';
}

/* The body is `before`, the key and `after`. `inside` is the pointer to the object that holds the
 * key. */
static void expect_key(const char *path, const char *before, const char *key, const char *after,
                       const char *inside) {
    char other[64], body[512], said[160], pointer[96];
    swap_case(other, key);
    int size = snprintf(body, sizeof body, "%s\"%s\":0%s", before, other, after);
    struct answer answer = post_body(path, body, (size_t)size);
    snprintf(said, sizeof said, "unknown key \"%s\"; did you mean \"%s\"?", other, key);
    snprintf(pointer, sizeof pointer, "%s/%s", inside, other);
    cr_expect(answer.status == 422 && strstr(answer.detail, said) != NULL &&
                  strcmp(answer.pointer, pointer) == 0,
              "%s %s: %s", path, body, answer.text);

    size = snprintf(body, sizeof body, "%s\"%s\":0,\"%s\":0%s", before, key, key, after);
    answer = post_body(path, body, (size_t)size);
    const long second = (long)(strlen(before) + strlen(key) + 5);
    cr_expect(answer.status == 400 && answer.offset == second, "%s %s: %s", path, body,
              answer.text);

    size = snprintf(body, sizeof body, "%s\"%s\":0,\"\\u%04x%s\":0%s", before, key,
                    (unsigned)key[0], key + 1, after);
    answer = post_body(path, body, (size_t)size);
    cr_expect(answer.status == 400 && answer.offset == second, "%s %s: %s", path, body,
              answer.text);
}

Test(bodies, promise_17_keys_of_another_case_and_keys_twice) {
    static const char x[] = "{\"X\":[[1,2],[3,4]],", head[] = "{\"X\":[[1]],\"heads\":[{";
    const char *key;
    for (size_t p = 0; p + 1 < drawn_path_count; p++) { /* there is no layer */
        for (size_t i = 0; (key = drawn_key(drawn_paths[p], i)) != NULL; i++) {
            expect_key(drawn_paths[p], "{", key, "}", "");
            /* A second X would be the first error. */
            if (strcmp(key, "X") != 0 && strcmp(drawn_paths[p], "/embeddings") != 0) {
                expect_key(drawn_paths[p], x, key, "}", "");
            }
        }
    }
    for (size_t i = 0; (key = drawn_key("heads", i)) != NULL; i++) {
        expect_key("/multi-head-attention", head, key, "}]}", "/heads/0");
    }
    for (size_t i = 0; i < COUNT(draw_keys); i++) {
        expect_key("/softmax", "{\"X\":{", draw_keys[i], "}}", "/X");
    }
    expect_key("/softmax", "{\"X\":{", "random", "}}", "/X");
    expect_key("/softmax", "{\"random\":{", "seed", "}}", "/random");
}

/* Adds a key with null to the object between `before` and `after`, which are a body that is right.
 * That changes nothing, unless the object has the key already. */
static void expect_null_is_absent(const char *path, const char *before, const char *after,
                                  const char *key) {
    char body[512], member[64];
    snprintf(member, sizeof member, "\"%s\":", key);
    int size = snprintf(body, sizeof body, "%s%s", before, after);
    const struct answer want = post_body(path, body, (size_t)size);
    cr_assert_eq(want.status, 200, "%s %s: %s", path, body, want.text);
    size = snprintf(body, sizeof body, "%s,%snull%s", before, member, after);
    const struct answer answer = post_body(path, body, (size_t)size);
    cr_expect(strstr(before, member) != NULL ? answer.status == 400
                                             : strcmp(answer.text, want.text) == 0,
              "%s %s: %s", path, body, answer.text);
}

/* Without the key, null for it is as if nothing were there. */
static void expect_null_is_missing(const char *path, const char *body, const char *without) {
    const struct answer null = post_body(path, body, strlen(body));
    const struct answer want = post_body(path, without, strlen(without));
    cr_expect(want.status == 422 && null.status == 422 && null.offset == want.offset &&
                  strcmp(null.detail, want.detail) == 0 &&
                  strcmp(null.pointer, want.pointer) == 0 && strstr(null.detail, "missing") != NULL,
              "%s %s: %s", path, body, null.text);
}

Test(bodies, null_means_that_the_key_is_absent) {
    static const struct {
        const char *path, *before, *after, *keys; /* the keys of this path */
    } objects[] = {
        {"/attention", "{\"Q\":[[1,2]],\"K\":[[3,4],[5,6]],\"V\":[[7],[8]]", "}", "/attention"},
        {"/attention", "{\"X\":[[1,2],[3,4]]", "}", "/attention"},
        {"/self-attention", "{\"X\":[[1]],\"W_Q\":[[1]],\"W_K\":[[1]],\"W_V\":[[2]]", "}",
         "/self-attention"},
        {"/multi-head-attention",
         "{\"X\":[[1]],\"heads\":[{\"W_Q\":[[1]],\"W_K\":[[1]],\"W_V\":[[1]]", "}]}", "heads"},
        {"/softmax", "{\"X\":[1,2]", "}", "/softmax"},
        {"/embeddings", "{\"text\":\"a b\"", "}", "/embeddings"},
    };
    for (size_t i = 0; i < COUNT(objects); i++) {
        const char *key;
        for (size_t j = 0; (key = drawn_key(objects[i].keys, j)) != NULL; j++) {
            expect_null_is_absent(objects[i].path, objects[i].before, objects[i].after, key);
        }
    }
    expect_null_is_missing("/attention", "{\"Q\":null,\"K\":[[1]],\"V\":[[1]]}",
                           "{\"K\":[[1]],\"V\":[[1]]}");
    expect_null_is_missing("/attention", "{\"Q\":[[1]],\"K\":[[1]],\"V\":null,\"X\":null}",
                           "{\"Q\":[[1]],\"K\":[[1]]}");
    expect_null_is_missing("/self-attention", "{\"X\":null}", "{}");
    expect_null_is_missing("/self-attention",
                           "{\"X\":[[1]],\"heads\":[{\"W_Q\":[[1]],\"W_K\":null}]}",
                           "{\"X\":[[1]],\"heads\":[{\"W_Q\":[[1]]}]}");
    expect_null_is_missing("/softmax", "{\"X\":null}", "{}");
    expect_null_is_missing("/embeddings", "{\"text\":null,\"tokens\":null}", "{}");
}

/* -------------------------------------------------------------------------------------- numbers */

/* data/answers.txt has numbers that are rounded, and data/refusals.txt numbers out of range. */
Test(bodies, promise_18_numbers_without_end) {
    static const size_t sizes[] = {4096, 4097, 1 << 20};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char *body = malloc(sizes[i] + 64);
        cr_assert_not_null(body);
        size_t size = (size_t)sprintf(body, "{\"X\":[1.");
        memset(body + size, '3', sizes[i] - 2);
        size += sizes[i] - 2;
        size += (size_t)sprintf(body + size, "]}");
        const struct answer answer = post_body("/softmax", body, size);
        if (sizes[i] <= 4096) {
            cr_expect_eq(answer.status, 200, "%s", answer.text);
        } else {
            cr_expect(answer.status == 400 && answer.offset == 6 &&
                          strstr(answer.detail, "4096") != NULL,
                      "%zu digits: %s", sizes[i], answer.text);
        }
        free(body);
    }
}

/* ---------------------------------------------------------------------------------------- sizes */

static const char *const sizes[] = {"0",
                                    "1",
                                    "32768",
                                    "65536",
                                    "2147483647",
                                    "2147483648",
                                    "4294967296",
                                    "9007199254740991",
                                    "9223372036854775808",
                                    "18446744073709551616",
                                    "-1",
                                    "1.5",
                                    "1e308"};
enum {
    SIZES = COUNT(sizes)
};

/* Options that are sizes or counts. X has two rows and two columns. `taken` has a '1' for each
 * element of `sizes` that is accepted, in the same order. */
static const struct counted {
    const char *path, *before, *after, *pointer;
    const char *taken;
} counted[] = {
    {"/attention", "\"heads\":", "", NULL, ".1..........."},
    {"/attention", "\"heads\":1,\"kv_heads\":", "", "/kv_heads", ".1..........."},
    {"/attention", "\"window\":[", ",0]", "/window/0", "11111.....1.."},
    {"/attention", "\"window\":[0,", "]", "/window/1", "11111.....1.."},
    {"/attention", "\"lengths\":[", "]", "/lengths/0", "11..........."},
    {"/attention", "\"return\":[\"top_k\"],\"top_k\":", "", "/top_k", ".1111111....."},
    {"/attention", "\"digits\":", "", "/digits", ".1..........."},
    {"/attention", "\"timeout\":", "", "/timeout", ".111111111.11"},
    {"/self-attention", "\"W_Q\":[[1],[2]],\"W_K\":[[1],[2]],\"W_V\":[[1],[2]],\"heads\":", "",
     NULL, ".1..........."},
    {"/softmax", "\"axis\":", "", "/axis", "11........1.."},
};

static void expect_size(const struct counted *row, size_t which) {
    char body[256];
    const int size = snprintf(body, sizeof body, "{\"X\":[[1,2],[3,4]],%s%s%s}", row->before,
                              sizes[which], row->after);
    const struct answer answer = post_body(row->path, body, (size_t)size);
    if (row->taken[which] == '1') {
        cr_expect_eq(answer.status, 200, "%s: %s", body, answer.text);
    } else {
        cr_expect(answer.status == 422 &&
                      (row->pointer == NULL ||
                       strncmp(answer.pointer, row->pointer, strlen(answer.pointer)) == 0),
                  "%s: %s", body, answer.text);
    }
}

Test(bodies, promise_21_counts_of_any_size) {
    for (size_t i = 0; i < COUNT(counted); i++) {
        for (size_t which = 0; which < SIZES; which++) {
            expect_size(&counted[i], which);
        }
    }
}

/* All combinations of four of these options: a bad size is refused whatever the others are. */
Test(bodies, promise_21_counts_of_any_size_together, .timeout = 1200) {
    static const struct counted *const heads = &counted[0], *const window = &counted[2],
                                       *const lengths = &counted[4], *const top_k = &counted[5];
    size_t taken = 0;
    for (size_t i = 0; i < (size_t)SIZES * SIZES * SIZES * SIZES; i++) {
        const size_t h = i % SIZES, w = i / SIZES % SIZES, l = i / SIZES / SIZES % SIZES,
                     k = i / SIZES / SIZES / SIZES;
        char body[512];
        const int size = snprintf(body, sizeof body,
                                  "{\"X\":[[1,2],[3,4]],\"heads\":%s,\"window\":[%s,1],"
                                  "\"lengths\":[%s],\"return\":[\"top_k\"],\"top_k\":%s}",
                                  sizes[h], sizes[w], sizes[l], sizes[k]);
        const bool sound = heads->taken[h] == '1' && window->taken[w] == '1' &&
                           lengths->taken[l] == '1' && top_k->taken[k] == '1';
        const struct answer answer = post_body("/attention", body, (size_t)size);
        cr_assert_eq(answer.status, sound ? 200 : 422, "%s: %s", body, answer.text);
        taken += sound;
    }
    cr_expect_eq(taken, 1 * 6 * 2 * 7);
}

/* --------------------------------------------------------------------------------------- shapes */

/* Sends the call with one input changed: to the text `as`, or else to this shape. */
static struct answer ask_changed(const struct drawn_call *drawn, size_t changed, const char *as,
                                 const size_t *shape) {
    struct binary_call call = drawn->call;
    char *body;
    size_t size;
    FILE *to = open_memstream(&body, &size);
    cr_assert_not_null(to);
    for (size_t i = 0; call.inputs[i].name != NULL; i++) {
        fputc(i == 0 ? '{' : ',', to);
        if (i == changed && as != NULL) {
            fprintf(to, "\"%s\":%s", call.inputs[i].name, as);
            continue;
        }
        if (i == changed) {
            memcpy(call.inputs[i].shape, shape, sizeof call.inputs[i].shape);
        }
        binary_put(to, &call.inputs[i]);
    }
    fprintf(to, "%s%s", call.options[0] != '\0' ? "," : "", call.options);
    fprintf(to, call.returned != NULL ? ",\"return\":%s}" : "}", call.returned);
    fclose(to);
    const struct answer answer = post_body(call.path, body, size);
    free(body);
    return answer;
}

/* Returns a body of the input without its last number, so that its last row is short. Owned. */
static char *without_last(const struct binary_input *input) {
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    cr_assert_not_null(to);
    binary_put(to, input);
    fclose(to);
    char *last = strrchr(text, ','), *end = strchr(last, ']');
    memmove(last, end, strlen(end) + 1);
    memmove(text, strchr(text, ':') + 1, strlen(strchr(text, ':')));
    return text;
}

/* Says whether the text contains this number, not as a part of a longer one. */
static bool says(const char *text, size_t number) {
    char digits[24];
    const size_t size = (size_t)sprintf(digits, "%zu", number);
    for (const char *at = text; (at = strstr(at, digits)) != NULL; at++) {
        if ((at == text || !isdigit((unsigned char)at[-1])) && !isdigit((unsigned char)at[size])) {
            return true;
        }
    }
    return false;
}

static bool points_into(const char *pointer, const char *name) {
    const size_t size = strlen(name);
    return pointer[0] == '/' && strncmp(pointer + 1, name, size) == 0 &&
           (pointer[1 + size] == '\0' || pointer[1 + size] == '/');
}

/* Returns whether the sizes of two axes must agree, or one follows from the other. */
static bool are_related(char one, char other, bool keys) {
    static const char *const groups[] = {"HGhgi", "pka", "mka", "dei", "vi", "cxy"};
    for (size_t i = 0; i < COUNT(groups); i++) {
        if (strchr(groups[i], one) != NULL && strchr(groups[i], other) != NULL) {
            return true;
        }
    }
    return keys && strchr("nk", one) != NULL && strchr("nk", other) != NULL;
}

/* Returns whether the size of an axis must agree with that of an input: 2 if the input has the same
 * axis, 1 if it has one that follows from it, 0 if any size is right. */
static int bound_by(const struct drawn_call *drawn, size_t input, char axis) {
    bool keys = true; /* as many as queries */
    int bound = 0;
    for (size_t i = 0; drawn->call.inputs[i].name != NULL; i++) {
        keys = keys && strchr(drawn->axes[i], 'm') == NULL;
    }
    for (const char *other = drawn->axes[input]; *other != '\0'; other++) {
        const int found = axis == *other ? 2 : are_related(axis, *other, keys);
        if (keys && axis == 'n' && *other == 'k') {
            return 1; /* the refusal may name all keys, with the past ones */
        }
        bound = found > bound ? found : bound;
    }
    return bound;
}

/* Returns the same for all inputs but one. If `refused` is the pointer of a refusal to another one
 * of them, it returns the same for this one alone. */
static int bound_of(const struct drawn_call *drawn, size_t input, char axis, const char *refused) {
    int bound = 0;
    for (size_t i = 0; drawn->call.inputs[i].name != NULL; i++) {
        const int found = i != input ? bound_by(drawn, i, axis) : 0;
        if (i != input && points_into(refused, drawn->call.inputs[i].name)) {
            return found;
        }
        bound = found > bound ? found : bound;
    }
    return bound;
}

/* Makes each size one larger and one smaller. If the size must agree with another one, the refusal
 * names the size. */
static void expect_neighbours(const struct drawn_call *drawn, size_t input) {
    const struct binary_input *m = &drawn->call.inputs[input];
    for (size_t axis = 0; axis < 4 && m->shape[axis] > 0; axis++) {
        const char letter = drawn->axes[input][axis];
        const int others = bound_of(drawn, input, letter, "");
        for (int change = -1; change <= 1; change += 2) {
            size_t shape[4];
            memcpy(shape, m->shape, sizeof shape);
            shape[axis] += (size_t)change;
            const bool blocks = strstr(m->name, "_scale") != NULL;
            if (shape[axis] == 0 || others == 0 ||
                (shape[axis] == 1 && (blocks || strchr("bhgHG", letter) != NULL))) { /* for all */
                continue;
            }
            const struct answer answer = ask_changed(drawn, input, NULL, shape);
            const int bound = bound_of(drawn, input, letter, answer.pointer);
            cr_expect(answer.status == 422 && answer.pointer[0] == '/' &&
                          (bound == 1 || points_into(answer.pointer, "lengths") ||
                           (says(answer.detail, shape[axis]) &&
                            (says(answer.detail, m->shape[axis]) ||
                             strstr(answer.detail, "multiple of") != NULL))),
                      "%s %s, axis %zu, %zu instead of %zu: %s", drawn->call.path, m->name, axis,
                      shape[axis], m->shape[axis], answer.text);
        }
    }
}

static void expect_shapes(const struct drawn_call *drawn, size_t input) {
    static const char *const no_matrices[] = {"\"text\"", "{}",       "[\"1\"]",
                                              "[{}]",     "[[null]]", "[[{}]]"};
    static const char *const empty[] = {"[]", "[[]]", "[[],[]]", "[[[]]]", "[[[]],[[]]]"};
    const struct binary_input *m = &drawn->call.inputs[input];
    const size_t rank = strlen(drawn->axes[input]);
    expect_neighbours(drawn, input);
    if (rank > 1 && m->shape[rank - 1] > 1) {
        char *text = without_last(m);
        const struct answer answer = ask_changed(drawn, input, text, NULL);
        cr_expect(answer.status == 422 && points_into(answer.pointer, m->name), "%s %s = %s: %s",
                  drawn->call.path, m->name, text, answer.text);
        free(text);
    }
    for (size_t i = 0; i < COUNT(no_matrices); i++) {
        if (strcmp(no_matrices[i], "[[null]]") == 0 &&
            (strcmp(m->name, "bias") == 0 || strcmp(m->name, "decay") == 0 ||
             strcmp(drawn->call.path, "/softmax") == 0)) {
            continue; /* minus infinity is allowed */
        }
        const struct answer answer = ask_changed(drawn, input, no_matrices[i], NULL);
        cr_expect(answer.status == 422 && points_into(answer.pointer, m->name), "%s %s = %s: %s",
                  drawn->call.path, m->name, no_matrices[i], answer.text);
    }
    /* A matrix without rows may fit, and otherwise it or another matrix is at fault. */
    for (size_t i = 0; i < COUNT(empty); i++) {
        const struct answer answer = ask_changed(drawn, input, empty[i], NULL);
        cr_expect(answer.status == 200 || (answer.status == 422 && answer.pointer[0] == '/'),
                  "%s %s = %s: %s", drawn->call.path, m->name, empty[i], answer.text);
    }
}

Test(bodies, promise_22_shapes_that_do_not_fit) {
    for (size_t i = 0; i < DRAWN_BINARY; i++) {
        struct drawn_call drawn;
        draw_binary(i, &drawn);
        for (size_t k = 0; drawn.call.inputs[k].name != NULL; k++) {
            expect_shapes(&drawn, k);
        }
    }
}
