/*
 * test_excluded.c - promise 19: rows of keys and values that `lengths`, `key_padding` or
 * `sequences` exclude may hold anything in a binary tensor. The test draws calls in which these
 * rows are zeros, and asks them again with garbage there: the answers have the same bytes. A NaN
 * in any other row is refused. The test knows the service by its socket only.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/binary.h"
#include "support/client.h"
#include "support/daemon.h"
#include "support/rng.h"

enum {
    CALLS = 1500,
    TENSORS = 16,
    KEYS = 340,
    ITEMS = 3
};

/* The numbers of excluded rows. */
enum garbage {
    ZEROS,
    SPECIAL, /* NaN and infinities */
    LARGE,   /* also ordinary numbers, and the largest ones of the type */
    GARBAGES
};

/* A call, and the keys of each batch item that are excluded. */
struct call {
    struct rng rng;
    size_t type; /* of its numbers, in `types` */
    struct binary_call call;
    size_t tensor_count;
    double *numbers[TENSORS]; /* of its inputs, owned */
    char options[1024];
    size_t items, heads, kv_heads, n, m, past, d, d_v;
    bool packed, sequences, headed, projected;
    bool shows; /* results show what excluded rows hold */
    bool gradients;
    bool excluded[ITEMS][KEYS];
};

static const struct {
    const char *inference, *safetensors;
} types[] = {
    {"FP32", "F32"}, {"FP64", "F64"}, {"FP16", "F16"}, {"BF16", "BF16"}, {"FP8_E5M2", "F8_E5M2"}};

/* ------------------------------------------------------------------------------------- drawing */

static size_t one_of(struct call *c, size_t count, const size_t *list) {
    return list[rng_between(&c->rng, 0, count - 1)];
}
#define ONE_OF(c, ...)                                                                             \
    one_of(c, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), (const size_t[]){__VA_ARGS__})

/* A power of two, which each type has. */
static double draw_number(struct rng *rng) {
    const double number = ldexp(1, -(int)rng_between(rng, 0, 3));
    return rng_chance(rng, 8) ? 0 : rng_chance(rng, 2) ? number : -number;
}

/* Adds a tensor, and returns its numbers. Axes of 0 are left out. */
static double *add(struct call *c, const char *name, const size_t shape[4]) {
    struct binary_input *t = &c->call.inputs[c->tensor_count];
    cr_assert_lt(c->tensor_count, (size_t)TENSORS);
    t->name = name;
    for (int i = 0, rank = 0; i < 4; i++) {
        if (shape[i] != 0) {
            t->shape[rank++] = shape[i];
        }
    }
    double *numbers = malloc(binary_count(t) * sizeof *numbers);
    for (size_t i = 0; i < binary_count(t); i++) {
        numbers[i] = draw_number(&c->rng);
    }
    t->numbers = c->numbers[c->tensor_count++] = numbers;
    return numbers;
}

static void free_call(struct call *c) {
    for (size_t k = 0; k < c->tensor_count; k++) {
        free(c->numbers[k]);
    }
}

/* Adds rows of Q, K or V, or rows like them. */
static void add_rows(struct call *c, const char *name, size_t items, size_t heads, size_t rows,
                     size_t columns) {
    if (c->sequences && c->headed && !c->packed) {
        add(c, name, (size_t[]){0, rows, heads, columns});
    } else if (c->packed) {
        add(c, name, (size_t[]){c->sequences ? 0 : items, 0, rows, heads * columns});
    } else {
        const bool batch = c->items > 1 || (c->headed && !c->projected);
        add(c, name, (size_t[]){batch ? items : 0, c->headed ? heads : 0, rows, columns});
    }
}

static void set(struct call *c, const char *name, const char *value) {
    const size_t used = strlen(c->options);
    const int size = snprintf(c->options + used, sizeof c->options - used, "%s\"%s\":%s",
                              used > 0 ? "," : "", name, value);
    cr_assert_lt((size_t)size, sizeof c->options - used);
    c->call.options = c->options;
}

static void set_number(struct call *c, const char *name, size_t number) {
    char text[32];
    snprintf(text, sizeof text, "%zu", number);
    set(c, name, text);
}

/* Draws sequences, of which one has no queries. */
static void draw_sequences(struct call *c) {
    const size_t half = c->m / 2, skipped = rng_between(&c->rng, 0, half);
    char text[256];
    if (strcmp(c->call.path, "/linear-attention") == 0) {
        snprintf(text, sizeof text, "[[%zu]]", c->n);
    } else {
        snprintf(text, sizeof text, "[[%zu,0],[%zu,%zu]]", c->n, c->m - skipped, skipped);
        for (size_t j = c->m - skipped; j < c->m; j++) {
            c->excluded[0][j] = true;
        }
    }
    set(c, "sequences", text);
}

static void draw_exclusions(struct call *c) {
    const size_t keys = c->past + c->m;
    const bool linear = strcmp(c->call.path, "/linear-attention") == 0;
    char text[256] = "[";
    cr_assert_gt(keys, 0);
    if (c->sequences) {
        draw_sequences(c);
        return;
    }
    const bool lengths = linear || rng_chance(&c->rng, 2);
    for (size_t b = 0; b < c->items && lengths; b++) {
        const size_t length = rng_between(&c->rng, 0, keys), used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%zu", b > 0 ? "," : "", length);
        for (size_t j = length; j < keys; j++) {
            c->excluded[b][j] = true;
        }
    }
    if (lengths) {
        strcat(text, "]");
        set(c, "lengths", text);
    }
    if (!linear && (!lengths || rng_chance(&c->rng, 2))) {
        const size_t lines = rng_chance(&c->rng, 2) ? 1 : c->items, all = lines * keys;
        cr_assert(all > 0 && c->items <= ITEMS && keys <= KEYS);
        double *exists = add(c, "key_padding", (size_t[]){0, 0, lines, keys});
        c->call.inputs[c->tensor_count - 1].kind = BINARY_MASK;
        for (size_t i = 0; i < all; i++) {
            exists[i] = i == 0 || rng_chance(&c->rng, 2);
        }
        for (size_t i = 0; i < c->items * keys; i++) {
            c->excluded[i / keys][i % keys] |= exists[i % all] == 0;
        }
    }
}

/* Draws X and a context with their projections. */
static void draw_projections(struct call *c) {
    const size_t items = c->items > 1 ? c->items : 0, own = rng_chance(&c->rng, 2) ? 5 : 0;
    c->projected = true;
    add(c, "X", (size_t[]){0, items, c->n, 3});
    add(c, "context", (size_t[]){0, items, c->m, 4});
    add(c, "W_Q", (size_t[]){0, 0, 3, c->heads * c->d});
    add(c, "W_K", (size_t[]){0, 0, 4, c->kv_heads * c->d});
    add(c, "W_V", (size_t[]){0, 0, own > 0 ? own : 4, c->kv_heads * c->d_v});
    if (own > 0) {
        add(c, "value_context", (size_t[]){0, items, c->m, own});
    }
}

static void draw_form(struct call *c) {
    static const char *const paths[] = {"/attention", "/attention", "/multi-head-attention",
                                        "/linear-attention"};
    struct rng *rng = &c->rng;
    c->call.path = paths[rng_between(rng, 0, 3)];
    const bool projected = strcmp(c->call.path, "/multi-head-attention") == 0,
               linear = strcmp(c->call.path, "/linear-attention") == 0;
    c->sequences = !projected && rng_chance(rng, 4);
    c->items = c->sequences || rng_chance(rng, 2) ? 1 : rng_between(rng, 2, ITEMS);
    c->headed = c->items > 1 || rng_chance(rng, 2);
    c->packed = c->headed && (projected || rng_chance(rng, 3));
    c->kv_heads = c->headed ? rng_between(rng, 1, 2) : 1;
    c->heads = c->headed ? c->kv_heads * rng_between(rng, 1, 2) : 1;
    c->n = ONE_OF(c, 1, 2, 17, 130);
    c->m = linear ? c->n : ONE_OF(c, 1, 5, 33, 300);
    c->past = linear || c->sequences || rng_chance(rng, 2) ? 0 : ONE_OF(c, 3, 20);
    c->d = ONE_OF(c, 2, 8, 32);
    c->d_v = ONE_OF(c, 1, 8, 16);
    if (c->packed) {
        set_number(c, "heads", c->heads);
        set_number(c, "kv_heads", c->kv_heads);
    }
    if (projected) {
        c->headed = c->packed;
        c->items = c->packed ? c->items : 1;
        draw_projections(c);
        c->packed = false; /* past keys are not */
    } else {
        add_rows(c, "Q", c->items, c->heads, c->n, c->d);
        const size_t shared = c->past == 0 && rng_chance(rng, 2) ? 1 : c->items;
        add_rows(c, "K", shared, c->kv_heads, c->m, c->d);
        add_rows(c, "V", c->items, c->kv_heads, c->m, c->d_v);
    }
    if (c->past > 0) {
        add_rows(c, "past_K", c->items, c->kv_heads, c->past, c->d);
        add_rows(c, "past_V", c->items, c->kv_heads, c->past, c->d_v);
    }
}

static void draw_options(struct call *c) {
    static const char *const halves[] = {"\"float16\"", "\"bfloat16\""};
    struct rng *rng = &c->rng;
    const bool linear = strcmp(c->call.path, "/linear-attention") == 0;
    c->gradients = rng_chance(rng, 2);
    if (linear) {
        if (rng_chance(rng, 2)) {
            set(c, "normalize_QK", "true");
        }
        set(c, "return",
            c->gradients   ? "[\"output\",\"present_state\",\"grad_Q\",\"grad_K\"]"
            : c->sequences ? "[\"output\",\"present_state\"]"
                           : "[\"output\",\"weights\"]");
    } else {
        if (rng_chance(rng, 2)) {
            set(c, "causal", "true");
        }
        if (rng_chance(rng, 3)) {
            set(c, "rotary", "true");
        }
        if (rng_chance(rng, 3)) {
            add(c, "norm_K", (size_t[]){0, 0, 0, c->d});
        }
        if (rng_chance(rng, 3)) {
            add(c, "norm_V", (size_t[]){0, 0, 0, c->d_v});
        }
        /* All rows of sequences are rounded, so large numbers in them are refused. */
        if (!c->gradients && !c->sequences && c->type == 0 && rng_chance(rng, 2)) {
            set(c, "compute_dtype", halves[rng_between(rng, 0, 1)]);
        }
        c->shows = !c->gradients && !c->sequences && rng_chance(rng, 2);
        set(c, "return",
            c->projected && c->gradients
                ? "[\"output\",\"grad_X\",\"grad_context\",\"grad_W_K\",\"grad_W_V\"]"
            : c->gradients ? "[\"output\",\"lse\",\"grad_Q\",\"grad_K\",\"grad_V\"]"
            : c->sequences ? "[\"output\",\"lse\",\"entropy\"]"
            : !c->shows && rng_chance(rng, 2) ? "[\"output\",\"masked_scores\"]"
            : !c->shows                       ? "[\"output\",\"top_k\"]"
            : rng_chance(rng, 2)              ? "[\"present_K\",\"output\",\"weights\"]"
                                              : "[\"statistics\",\"scores\",\"output\"]");
    }
    if (c->gradients && c->projected) {
        add(c, "grad_output", (size_t[]){0, c->items > 1 ? c->items : 0, c->n, c->heads * c->d_v});
    } else if (c->gradients) {
        add_rows(c, "grad_output", c->items, c->heads, c->n, c->d_v);
    }
}

/* -------------------------------------------------------------------------------- the garbage */

/* Returns the first key of a tensor of keys or values, or SIZE_MAX if it is none. */
static size_t first_key(const struct call *c, const struct binary_input *t) {
    static const char *const present[] = {"K", "V", "context", "value_context"};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(t->name, present[i]) == 0) {
            return c->past;
        }
    }
    return strncmp(t->name, "past_", 5) == 0 ? 0 : SIZE_MAX;
}

static int rank_of(const struct binary_input *t) {
    int rank = 0;
    while (rank < 4 && t->shape[rank] != 0) {
        rank++;
    }
    return rank;
}

/* Is number i of a tensor of keys or values in an excluded row? */
static bool is_excluded(const struct call *c, const struct binary_input *t, size_t i) {
    const bool heads_follow = c->sequences && rank_of(t) == 3,
               has_heads = c->headed && !c->packed && t->name[0] != 'c' && t->name[0] != 'v';
    const int rank = rank_of(t), row = heads_follow ? 0 : rank - 2;
    size_t columns = t->shape[rank - 1] * (heads_follow ? t->shape[1] : 1);
    const size_t place = i / columns, heads = has_heads && !heads_follow ? c->kv_heads : 1,
                 item = place / t->shape[row] / heads,
                 key = first_key(c, t) + place % t->shape[row],
                 items = binary_count(t) / columns / t->shape[row] / heads;
    bool all = true;
    for (size_t b = 0; b < c->items; b++) {
        all = all && (c->excluded[b][key] || (items > 1 && b != item));
    }
    return all;
}

static double draw_garbage(struct rng *rng, enum garbage garbage) {
    const size_t kind = rng_between(rng, 0, garbage == LARGE ? 5 : 2);
    return garbage == ZEROS ? 0
           : kind == 0      ? (double)NAN
           : kind == 1      ? (double)INFINITY
           : kind == 2      ? -(double)INFINITY
           : kind == 3      ? draw_number(rng)
           : kind == 4      ? 0x1p1000
                            : -0x1p1000;
}

/* Returns how many numbers of excluded rows there are, and replaces them by garbage. */
static size_t put_garbage(struct call *c, enum garbage garbage) {
    size_t count = 0;
    for (size_t k = 0; k < c->tensor_count; k++) {
        const struct binary_input *t = &c->call.inputs[k];
        for (size_t i = 0; first_key(c, t) != SIZE_MAX && i < binary_count(t); i++) {
            if (is_excluded(c, t, i)) {
                c->numbers[k][i] = draw_garbage(&c->rng, garbage);
                count++;
            }
        }
    }
    return count;
}

/* Makes a NaN of a number of K or V, or of a context, that is in no excluded row. Returns whether
 * there is one. */
static bool put_nan(struct call *c) {
    for (size_t k = 0; k < c->tensor_count; k++) {
        const struct binary_input *t = &c->call.inputs[k];
        const size_t some = rng_between(&c->rng, 0, binary_count(t) - 1);
        if (first_key(c, t) != SIZE_MAX && !is_excluded(c, t, some)) {
            c->numbers[k][some] = (double)NAN;
            return true;
        }
    }
    return false;
}

/* ----------------------------------------------------------------------------------- the bodies */

static struct client_response ask_safetensors(const struct call *c) {
    size_t size;
    char *body = binary_safetensors(&c->call, types[c->type].safetensors, &size);
    struct client_response response = daemon_ask_shared(
        "POST", c->call.path, "Content-Type: application/vnd.safetensors\r\n", body, size);
    free(body);
    return response;
}

static struct client_response ask_inference(const struct call *c) {
    char path[64], headers[128], options[2048];
    size_t header, size;
    const struct binary_call call = binary_with(&c->call, "\"binary_data_output\":true", options);
    char *body = binary_inference(&call, types[c->type].inference, ~0u, "", &header, &size);
    snprintf(headers, sizeof headers,
             "Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %zu\r\n",
             header);
    snprintf(path, sizeof path, "/v2/models%s/infer", c->call.path);
    struct client_response response = daemon_ask_shared("POST", path, headers, body, size);
    free(body);
    return response;
}

/* ---------------------------------------------------------------------------------- the tests */

/* Asks a call of many keys, with a NaN at the begin of each of these rows of K. */
static struct client_response ask_long(size_t row, size_t other) {
    struct call c = {.rng = {7}, .call.path = "/attention", .items = 1};
    add(&c, "Q", (size_t[]){0, 0, 1, 32});
    double *k = add(&c, "K", (size_t[]){0, 0, 80000, 32});
    add(&c, "V", (size_t[]){0, 0, 80000, 1});
    set(&c, "lengths", "[79990]");
    k[32 * row] = k[32 * other] = (double)NAN;
    struct client_response response = ask_safetensors(&c);
    free_call(&c);
    return response;
}

TestSuite(excluded, .init = daemon_start_connected, .fini = daemon_end, .timeout = 1200);

Test(excluded, promise_19_rows_may_hold_anything) {
    size_t asked = 0, refused = 0;
    for (uint64_t seed = 1; seed <= CALLS; seed++) {
        struct call c = {.rng = {seed * 7919}};
        c.type = rng_between(&c.rng, 0, sizeof types / sizeof *types - 1);
        draw_form(&c);
        draw_options(&c);
        draw_exclusions(&c);
        const bool inference = rng_chance(&c.rng, 2);
        struct client_response (*const ask)(const struct call *) =
            inference ? ask_inference : ask_safetensors;
        if (put_garbage(&c, ZEROS) > 0) {
            struct client_response zeros = ask(&c);
            cr_assert_eq(zeros.status, 200, "seed %zu: %s", (size_t)seed, zeros.body);
            for (int g = SPECIAL; g < GARBAGES; g++) {
                put_garbage(&c, (enum garbage)(c.shows ? SPECIAL : g));
                struct client_response some = ask(&c);
                cr_expect_eq(some.status, 200, "seed %zu: %s", (size_t)seed, some.body);
                cr_expect(some.size == zeros.size && memcmp(some.body, zeros.body, some.size) == 0,
                          "seed %zu, garbage %d: another answer", (size_t)seed, g);
                client_response_free(&some);
                asked++;
            }
            if (put_nan(&c)) {
                struct client_response nan = ask(&c);
                cr_expect(nan.status == 422 && strstr(nan.body, "finite number, not NaN") != NULL,
                          "seed %zu: %d %s", (size_t)seed, nan.status, nan.body);
                client_response_free(&nan);
                refused++;
            }
            client_response_free(&zeros);
        }
        free_call(&c);
    }
    cr_expect_gt(asked, (size_t)CALLS);
    cr_expect_gt(refused, (size_t)CALLS / 4);
}

/* Several tasks look at the numbers of K, and the first NaN is named. */
Test(excluded, promise_19_in_a_long_matrix) {
    struct client_response response = ask_long(79990, 79999);
    cr_expect_eq(response.status, 200, "%s", response.body);
    client_response_free(&response);
    response = ask_long(79989, 20);
    cr_expect_eq(response.status, 422);
    cr_expect_not_null(strstr(response.body, "\"pointer\":\"/K/20/0\""), "%s", response.body);
    client_response_free(&response);
    response = ask_long(79991, 79989);
    cr_expect_eq(response.status, 422);
    cr_expect_not_null(strstr(response.body, "\"pointer\":\"/K/79989/0\""), "%s", response.body);
    client_response_free(&response);
}
