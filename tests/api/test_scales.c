/*
 * test_scales.c - promise 18 for quantised matrices: one with scales beside it gives the answer of
 * its products. The test draws calls with matrices of every type and scales of every shape that
 * divides theirs, multiplies in plain arithmetic, and asks for both: the answers have the same
 * bytes. Keys behind `lengths` have a scale that is NaN. The test knows the service by its socket.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/client.h"
#include "support/daemon.h"
#include "support/rng.h"

enum {
    CALLS = 2000,
    MOST = 10,     /* tensors of a request */
    LARGEST = 4096 /* numbers of a tensor */
};

/* The types, with the bits of their exponents and fractions; both are 0 for whole numbers. */
static const struct type {
    const char *safetensors, *inference;
    int bits, exponent, fraction;
} types[] = {{"F32", "FP32", 32, 8, 23},       {"I8", "INT8", 8, 0, 0},
             {"F8_E4M3", "FP8_E4M3", 8, 4, 3}, {"F8_E5M2", "FP8_E5M2", 8, 5, 2},
             {"F4", "FP4_E2M1", 4, 2, 1},      {"F16", "FP16", 16, 5, 10},
             {"BF16", "BF16", 16, 8, 7},       {"F8_E8M0", "FP8_E8M0", 8, 8, 0},
             {"F64", "FP64", 64, 11, 52}};
enum {
    F32,
    I8,
    F4 = 4,
    F16,
    BF16,
    E8M0,
    F64,
    TYPES
};

/* A tensor: its numbers, and the bits by which they are sent. */
struct tensor {
    char name[16];
    int rank;
    size_t shape[4], count;
    const struct type *type;
    uint64_t bits[LARGEST];
    double numbers[LARGEST];
};

struct request {
    struct rng rng;
    bool wide, inference, linear, packed;
    int rank;
    size_t batch, heads, kv_heads, n, m, past, d, d_v;
    struct {
        const char *name;
        char value[64];
    } options[5];
    size_t option_count;
    struct tensor scaled[MOST], plain[MOST];
    size_t scaled_count, plain_count;
};

/* Returns the number of these bits: IEEE 754-2008, 3.4. No infinity and no NaN is drawn. */
static double value_of(const struct type *t, uint64_t bits) {
    if (t->exponent == 0) {
        return (double)(int8_t)bits;
    }
    const int bias = (1 << (t->exponent - 1)) - 1;
    const uint64_t f = bits & ((UINT64_C(1) << t->fraction) - 1);
    const int e = (int)(bits >> t->fraction & ((1u << t->exponent) - 1));
    if (t == &types[E8M0]) {
        return ldexp(1, (int)bits - 127);
    }
    const double magnitude = e == 0 ? ldexp((double)f, 1 - bias - t->fraction)
                                    : ldexp((double)f, e - bias - t->fraction) + ldexp(1, e - bias);
    return bits >> (t->bits - 1) != 0 ? -magnitude : magnitude;
}

/* Draws the bits of a number of at most this magnitude. A scale is above 0. */
static uint64_t draw_bits(struct rng *rng, const struct type *t, double most, bool scale) {
    for (;;) {
        const uint64_t bits = rng_bits(rng) >> (64 - t->bits);
        const double number = value_of(t, bits);
        const bool small = fabs(number) <= most && (!scale || number >= 0x1p-9);
        if (small || t->bits < 16) {
            if (small) {
                return bits;
            }
            continue;
        }
        /* Most numbers of the long types are too large or too small, so the exponent is drawn. */
        const int bias = (1 << (t->exponent - 1)) - 1;
        const uint64_t e = (uint64_t)(bias - 9 + (int)rng_between(rng, 0, 9));
        const uint64_t f = bits & ((UINT64_C(1) << t->fraction) - 1);
        const uint64_t sign = scale ? 0 : (bits >> (t->bits - 1)) << (t->bits - 1);
        return sign | e << t->fraction | f;
    }
}

static void make_tensor(struct tensor *t, const char *name, const char *more, int rank,
                        const size_t *shape) {
    snprintf(t->name, sizeof t->name, "%s%s", name, more);
    t->rank = rank;
    t->count = 1;
    for (int axis = 0; axis < rank; axis++) {
        t->shape[axis] = shape[axis];
        t->count *= shape[axis];
    }
    cr_assert_leq(t->count, (size_t)LARGEST);
}

static void draw_tensor(struct rng *rng, struct tensor *t, double most, bool scale) {
    for (size_t i = 0; i < t->count; i++) {
        t->bits[i] = draw_bits(rng, t->type, most, scale);
        t->numbers[i] = value_of(t->type, t->bits[i]);
    }
}

/* Gives a tensor a float type of the request and these numbers. */
static void give_number(const struct request *r, struct tensor *t, size_t i, double number) {
    const union {
        float number;
        uint32_t bits;
    } narrow = {.number = (float)number};
    t->type = &types[r->wide ? F64 : F32];
    memcpy(&t->bits[i], &number, sizeof number);
    t->bits[i] = r->wide ? t->bits[i] : narrow.bits;
}

/* Returns the element of the scale for element i of a tensor. */
static size_t block_of(const struct tensor *t, const struct tensor *scale, size_t i) {
    size_t place = 0, stride = 1;
    for (int axis = t->rank - 1; axis >= 0 && scale->count > 1; axis--) {
        const size_t of = i % t->shape[axis], block = t->shape[axis] / scale->shape[axis];
        place += of / block * stride;
        stride *= scale->shape[axis];
        i /= t->shape[axis];
    }
    return place;
}

/* Draws the shape of a scale: each axis a divisor of that of the tensor. `rows` keeps the rows
 * apart. */
static void draw_scale(struct request *r, const struct tensor *t, struct tensor *scale, bool rows) {
    static const int of_scales[] = {F32, F16, BF16, E8M0, 2, F64};
    size_t shape[4];
    for (int axis = 0; axis < t->rank; axis++) {
        do {
            shape[axis] = rng_between(&r->rng, 1, t->shape[axis]);
        } while (t->shape[axis] % shape[axis] != 0);
    }
    if (rows) {
        shape[t->rank - 2] = t->shape[t->rank - 2];
    }
    const bool one = !rows && rng_chance(&r->rng, 6);
    make_tensor(scale, t->name, "_scale", one ? 1 : t->rank, one ? (size_t[]){1} : shape);
    scale->type = &types[of_scales[rng_between(&r->rng, 0, 5)]];
    draw_tensor(&r->rng, scale, 1, true);
}

/* Adds a matrix to both requests. Its last `behind` rows are behind `lengths`: there the scale is
 * NaN, and the plain matrix has zeros. */
static void add_matrix(struct request *r, const char *name, size_t heads, size_t rows,
                       size_t columns, size_t behind) {
    struct tensor *q = &r->scaled[r->scaled_count++], *x = &r->plain[r->plain_count++];
    const size_t side = r->packed ? heads : 1;
    const size_t shape[] = {r->batch, r->packed ? r->batch : heads, rows, side * columns};
    make_tensor(q, name, "", r->rank, shape + 4 - r->rank);
    *x = *q;
    const bool scales = behind > 0 || !rng_chance(&r->rng, 4);
    do {
        q->type = &types[rng_between(&r->rng, 0, F4)];
    } while (q->type == &types[F4] && q->count % 2 != 0);
    draw_tensor(&r->rng, q, q->type == &types[I8] ? 127 : 8, false);
    struct tensor *scale = &r->scaled[r->scaled_count];
    if (scales) {
        draw_scale(r, q, scale, behind > 0);
        r->scaled_count++;
    }
    for (size_t i = 0; i < q->count; i++) {
        const double one = q->numbers[i],
                     factor = scales ? scale->numbers[block_of(q, scale, i)] : 1;
        give_number(r, x, i, r->wide ? one * factor : (double)((float)one * (float)factor));
    }
    if (behind > 0) { /* these matrices have two axes */
        const size_t each = scale->shape[1];
        scale->type = &types[rng_chance(&r->rng, 2) ? E8M0 : F32];
        for (size_t i = 0; i < scale->count; i++) {
            scale->bits[i] = scale->type == &types[E8M0] ? 127 : 0x3F800000;
            scale->bits[i] = i < each * (rows - behind) ? scale->bits[i] : UINT32_MAX;
        }
        for (size_t i = 0; i < q->count; i++) {
            give_number(r, x, i, i < (rows - behind) * columns ? q->numbers[i] : 0);
        }
    }
}

__attribute__((format(printf, 3, 4))) static void set_option(struct request *r, const char *name,
                                                             const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    r->options[r->option_count].name = name;
    vsnprintf(r->options[r->option_count++].value, sizeof r->options->value, format, arguments);
    va_end(arguments);
}

static void draw_request(struct request *r) {
    struct rng *rng = &r->rng;
    r->wide = rng_chance(rng, 3);
    r->inference = rng_chance(rng, 2);
    r->linear = rng_chance(rng, 4);
    r->packed = rng_chance(rng, 3);
    r->batch = rng_between(rng, 1, 2);
    r->rank = r->packed ? 3 : (int)rng_between(rng, 2, 4);
    r->kv_heads = r->rank > 2 ? rng_between(rng, 1, 2) : 1;
    r->heads = r->rank > 2 ? r->kv_heads * rng_between(rng, 1, 2) : 1;
    r->n = rng_between(rng, 1, 8);
    r->m = r->linear ? r->n : rng_between(rng, 1, 9);
    r->d = 2 * rng_between(rng, 1, 6);
    r->d_v = rng_between(rng, 1, 9);
    const bool past = !r->linear && rng_chance(rng, 3);
    const size_t behind = r->rank == 2 && !r->linear && !past && r->m > 1 && rng_chance(rng, 2);
    const bool all = !r->linear && rng_chance(rng, 2);
    set_option(r, "dtype", r->wide ? "float64" : "float32");
    set_option(r, "return", all ? "[\"output\",\"lse\",\"weights\"]" : "[\"output\"]");
    if (r->packed) {
        set_option(r, "heads", "%zu", r->heads);
        set_option(r, "kv_heads", "%zu", r->kv_heads);
    }
    if (behind > 0) {
        set_option(r, "lengths", "%zu", r->m - behind);
    }
    add_matrix(r, "Q", r->heads, r->n, r->d, 0);
    add_matrix(r, "K", r->kv_heads, r->m, r->d, behind);
    add_matrix(r, "V", r->kv_heads, r->m, r->d_v, behind);
    if (past) {
        add_matrix(r, "past_K", r->kv_heads, 3, r->d, 0);
        add_matrix(r, "past_V", r->kv_heads, 3, r->d_v, 0);
    }
}

/* ----------------------------------------------------------------------------------- the bodies */

static size_t bytes_of(const struct tensor *t) {
    return t->count * (size_t)t->type->bits / 8;
}

/* Writes the header of a tensor, and its bytes. Returns the end of the header. */
static char *put_tensor(char *head, const struct tensor *t, bool inference, unsigned char *bytes,
                        size_t *at) {
    char shape[96] = "";
    for (int axis = 0; axis < t->rank; axis++) {
        const size_t used = strlen(shape);
        snprintf(shape + used, sizeof shape - used, "%s%zu", axis > 0 ? "," : "", t->shape[axis]);
    }
    head +=
        inference
            ? sprintf(head,
                      "%s{\"name\":\"%s\",\"datatype\":\"%s\",\"shape\":[%s],\"parameters\":{"
                      "\"binary_data_size\":%zu}}",
                      *at > 0 ? "," : "", t->name, t->type->inference, shape, bytes_of(t))
            : sprintf(head, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                      t->name, t->type->safetensors, shape, *at, *at + bytes_of(t));
    for (size_t i = 0; i < t->count; i++) {
        if (t->type->bits == 4) { /* the first of two numbers is in the lower bits */
            bytes[*at + i / 2] =
                (unsigned char)(i % 2 == 0 ? t->bits[i] : bytes[*at + i / 2] | t->bits[i] << 4);
        } else {
            memcpy(bytes + *at + i * (size_t)t->type->bits / 8, &t->bits[i],
                   (size_t)t->type->bits / 8);
        }
    }
    *at += bytes_of(t);
    return head;
}

/* Writes the options as texts, or only lists as texts. Returns the end. */
static char *put_options(char *head, const struct request *r, bool all) {
    for (size_t i = 0; i < r->option_count; i++) {
        const char *value = r->options[i].value;
        const bool text = all || *value == '[' || *value == 'f';
        head +=
            sprintf(head, "%s\"%s\":%s", i > 0 ? "," : "", r->options[i].name, text ? "\"" : "");
        for (; *value != '\0'; value++) {
            head += sprintf(head, *value == '"' ? "\\\"" : "%c", *value);
        }
        head += sprintf(head, text ? "\"" : "");
    }
    return head;
}

static struct client_response ask_tensors(const struct request *r, const struct tensor *list,
                                          size_t count) {
    static unsigned char bytes[MOST * LARGEST * 8];
    static char text[16384], body[sizeof bytes + sizeof text];
    char headers[192], path[64], *head = text;
    size_t size = 0;
    head += sprintf(head, r->inference ? "{\"parameters\":{" : "{\"__metadata__\":{");
    head = put_options(head, r, !r->inference);
    head += sprintf(head, r->inference ? ",\"binary_data_output\":true},\"inputs\":[" : "}");
    for (size_t i = 0; i < count; i++) {
        head = put_tensor(head, &list[i], r->inference, bytes, &size);
    }
    head += sprintf(head, r->inference ? "]}" : "}");
    const uint64_t length = (uint64_t)(head - text);
    size_t whole = 0;
    if (!r->inference) {
        memcpy(body, &length, sizeof length);
        whole = sizeof length;
    }
    memcpy(body + whole, text, length);
    memcpy(body + whole + length, bytes, size);
    whole += length + size;
    snprintf(headers, sizeof headers,
             r->inference ? "Content-Type: application/octet-stream\r\n"
                            "Inference-Header-Content-Length: %zu\r\n"
                          : "Content-Type: application/vnd.safetensors\r\n",
             (size_t)length);
    snprintf(path, sizeof path, r->inference ? "/v2/models/%s/infer" : "/%s",
             r->linear ? "linear-attention" : "attention");
    return daemon_ask_shared("POST", path, headers, body, whole);
}

/* ---------------------------------------------------------------------------------- the tests */

TestSuite(scales, .init = daemon_start_connected, .fini = daemon_end, .timeout = 600);

Test(scales, promise_18_multiply_their_matrices) {
    static struct request r;
    size_t scales = 0;
    for (uint64_t seed = 1; seed <= CALLS; seed++) {
        r = (struct request){.rng = {seed * 7919}};
        draw_request(&r);
        struct client_response plain = ask_tensors(&r, r.plain, r.plain_count),
                               scaled = ask_tensors(&r, r.scaled, r.scaled_count);
        cr_assert_eq(plain.status, 200, "seed %zu: %s", (size_t)seed, plain.body);
        cr_assert_eq(scaled.status, 200, "seed %zu: %s", (size_t)seed, scaled.body);
        cr_assert(plain.size == scaled.size && memcmp(plain.body, scaled.body, plain.size) == 0,
                  "seed %zu: another answer", (size_t)seed);
        scales += r.scaled_count - r.plain_count;
        client_response_free(&plain);
        client_response_free(&scaled);
    }
    cr_assert_gt(scales, (size_t)CALLS);
}
