/*
 * test_compute_dtype.c - compares every stage of random calls with a compute_dtype with plain loops
 * that take the stage before it as the library returns it, compute the next one in double, and
 * round it. The library sums in float32, so a number may also be what the sum rounds to if it is
 * off by the error of float32.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "attention_bounds.h"
#include "random_gradients.h"
#include "support/scale.h"
#include "test_by_hand.h"
#include "test_halves.h"

static double *rounded_all(struct call *c, const double *x, size_t count) {
    double *to = keep_block(c, count * sizeof *to);
    for (size_t i = 0; i < count; i++) {
        to[i] = rounded(c->options.compute_dtype, x[i]);
    }
    return to;
}

/* Checks that a number is what x rounds to, if x may be off by `error`. */
static void check(const struct call *c, const char *what, double is, double x, double error) {
    const attn_compute_dtype type = c->options.compute_dtype;
    const double low = rounded(type, x - error), high = rounded(type, x + error);
    cr_assert(is >= low && is <= high && is == rounded(type, is),
              "%s is %.9g, but %.9g rounds to %.9g", what, is, x, rounded(type, x));
}

/* One head of a batch item, whose results are known. */
struct head {
    struct call *c;
    attn_plan *plan;
    struct reference_head call; /* Q, K, V, bias, slope and sink are rounded */
    size_t b, h, part, slot;    /* the slot of its results among those of the part */
};

static const float *data_of(const struct head *head, attn_result which, size_t part) {
    return attn_plan_tensor(head->plan, which, part)->data;
}

/* Returns the rows of Q, K or V that are multiplied, as the results say. */
static const double *multiplied_rows(const struct head *head, attn_result which, size_t rows,
                                     size_t columns) {
    struct call *c = head->c;
    const struct own *of = which == ATTN_RESULT_Q           ? &c->own_q
                           : which == ATTN_RESULT_PRESENT_K ? &c->own_k
                                                            : &c->own_v;
    const bool packed = form_is_packed(of->form), own = c->multihead.per_head;
    const size_t heads = of->heads, b = of->one ? 0 : head->b, h = head->h / (c->heads / heads);
    const float *from = data_of(head, which, own ? h : 0);
    double *to = keep_block(c, rows * columns * sizeof *to);
    for (size_t i = 0; i < rows; i++) {
        const size_t row = packed ? (b * rows + i) * heads + h
                           : own  ? b * rows + i
                                  : (b * heads + h) * rows + i;
        for (size_t e = 0; e < columns; e++) {
            to[i * columns + e] = (double)from[row * columns + e];
        }
    }
    return to;
}

/* Returns the rows of Q, K or V as the call was given them, rounded, with their rounded bias. */
static double *given_rows(const struct head *head, const attn_tensor *t, const struct own *own,
                          const attn_tensor *bias, size_t rows, size_t columns) {
    struct call *c = head->c;
    const attn_compute_dtype type = c->options.compute_dtype;
    const size_t b = own->one ? 0 : head->b, heads = own->heads, h = head->h / (c->heads / heads);
    const float *x = t->data, *added = bias == NULL ? NULL : bias->data;
    double *to = keep_block(c, rows * columns * sizeof *to);
    for (size_t i = 0; i < rows; i++) {
        const size_t row =
            form_is_packed(own->form) ? (b * rows + i) * heads + h : (b * heads + h) * rows + i;
        for (size_t e = 0; e < columns; e++) {
            const double number = rounded(type, (double)x[row * columns + e]);
            const double sum =
                added == NULL ? 0 : number + rounded(type, (double)added[h * columns + e]);
            to[i * columns + e] = added == NULL ? number : rounded(type, (double)(float)sum);
        }
    }
    return to;
}

/* Checks that the keys (or values) x of a call without projections are the given ones. */
static void check_given(const struct head *head, const double *x, double *const past,
                        const double *given, size_t columns) {
    const struct call *c = head->c;
    for (size_t i = 0; i < c->m * columns; i++) {
        const size_t first = c->past * columns;
        cr_assert_eq(x[i],
                     i < first ? rounded(c->options.compute_dtype, past[i]) : given[i - first]);
    }
}

/* Returns x, multiplied by the root of the scale and rounded. The product is one of float32. */
static double *scaled(struct call *c, const double *x, size_t count, double root) {
    double *to = keep_block(c, count * sizeof *to);
    for (size_t i = 0; i < count; i++) {
        to[i] = rounded(c->options.compute_dtype, (double)((float)x[i] * (float)root));
    }
    return to;
}

/* Checks scores, scaled and masked scores. */
static void check_stages(const struct head *head) {
    struct call *c = head->c;
    struct reference_head call = head->call;
    const double root = sqrt(fabs(call.scale));
    const size_t count = call.n * call.m, at = head->slot * count;
    const float *stages[] = {data_of(head, ATTN_RESULT_SCORES, 0) + at,
                             data_of(head, ATTN_RESULT_SCALED_SCORES, 0) + at,
                             data_of(head, ATTN_RESULT_MASKED_SCORES, 0) + at};
    struct reference_results raw = reference_compute(&call);
    call.q = scaled(c, call.q, call.n * call.d, copysign(root, call.scale));
    call.k = scaled(c, call.k, call.m * call.d, root);
    call.scale = 1;
    struct reference_results r = reference_compute(&call);
    for (size_t i = 0; i < count; i++) {
        const double error = 1e-6 * r.score_scale[i / call.m];
        check(c, "scores", (double)stages[0][i], raw.scores[i], 1e-6 * raw.score_scale[i / call.m]);
        const double is = (double)stages[1][i], x = r.scores[i];
        const attn_compute_dtype type = c->options.compute_dtype;
        const double low = reference_bend(&c->options, rounded(type, x - error)),
                     high = reference_bend(&c->options, rounded(type, x + error));
        check(c, "scaled_scores", is, (low + high) / 2,
              (high - low) / 2 + 1e-6 * fmax(fabs(low), fabs(high)));
        const double added = r.masked_scores[i] - r.scaled_scores[i]; /* exact enough */
        if (added == -INFINITY) {
            cr_assert_eq(stages[2][i], -INFINITY);
        } else {
            check(c, "masked_scores", (double)stages[2][i], is + added, 1e-6 * fabs(is) + 1e-9);
        }
    }
    free(raw.scores);
    free(r.scores);
}

/* Returns the logarithm of what `count` keys with the rounded scores x leave of a stick. */
static double left_of_stick(const float *x, size_t count) {
    double left = 0;
    for (size_t j = 0; j < count; j++) {
        left -= log1p(exp((double)x[j]));
    }
    return left;
}

/* Checks the weights of query i, and its lse, and adds its output to `output`. */
static void check_row(const struct head *head, size_t i, double *output, double *terms) {
    const struct call *c = head->c;
    const struct reference_head *call = &head->call;
    const size_t m = call->m, row = head->slot * call->n + i;
    const float *x = data_of(head, ATTN_RESULT_MASKED_SCORES, 0) + row * m;
    const float *w = data_of(head, ATTN_RESULT_WEIGHTS, 0) + row * m;
    double max = call->has_sink ? call->sink : -INFINITY, sum = 0;
    for (size_t j = 0; j < m; j++) {
        max = fmax(max, (double)x[j]);
    }
    for (size_t j = 0; j < m; j++) {
        sum += max == -INFINITY ? 0 : exp((double)x[j] - max);
    }
    sum += call->has_sink ? exp(call->sink - max) : 0;
    if (c->options.normalization == ATTN_SOFTMAX) {
        const double lse = sum == 0 ? -INFINITY : max + log(sum);
        const double is = (double)data_of(head, ATTN_RESULT_LSE, 0)[row];
        cr_assert(is == lse || fabs(is - lse) <= 1e-6 * fmax(1, fabs(lse)));
    }
    memset(output, 0, call->d_v * sizeof *output);
    memset(terms, 0, call->d_v * sizeof *terms);
    for (size_t j = 0; j < m; j++) {
        const double y = (double)x[j], bias = c->options.sigmoid_bias;
        const double weight = y == -INFINITY                                  ? 0
                              : c->options.normalization == ATTN_UNNORMALIZED ? y
                              : c->options.normalization == ATTN_STICK_BREAKING
                                  ? exp(left_of_stick(x + j + 1, m - j - 1)) / (1 + exp(-y))
                              : c->options.normalization == ATTN_SIGMOID ? 1 / (1 + exp(-y - bias))
                                                                         : exp(y - max) / sum;
        check(c, "weights", (double)w[j], weight, 1e-6 * fabs(weight));
        for (size_t e = 0; w[j] != 0 && e < call->d_v; e++) {
            output[e] += (double)w[j] * call->v[j * call->d_v + e];
            terms[e] += fabs((double)w[j] * call->v[j * call->d_v + e]);
        }
    }
}

/* Checks a head. Its outputs are compared unless W_O follows. */
static void check_rounded_head(const struct head *head, size_t column, size_t ld) {
    struct call *c = head->c;
    const size_t d_v = head->call.d_v, n = head->call.n;
    double *output = keep_block(c, 2 * d_v * sizeof *output), *terms = output + d_v;
    const float *is = data_of(head, ATTN_RESULT_OUTPUT, 0);
    check_stages(head);
    for (size_t i = 0; i < n; i++) {
        check_row(head, i, output, terms);
        const float *row = c->form < PACKED_2D ? is + (head->slot * n + i) * d_v
                                               : is + (head->b * n + i) * ld + column;
        for (size_t e = 0; c->d_out == 0 && e < d_v; e++) {
            check(c, "output", (double)row[e], output[e], 1e-6 * terms[e]);
        }
    }
}

/* Returns head h of batch item b, with its results. */
static struct head head_of(struct call *c, attn_plan *plan, size_t b, size_t h) {
    const attn_options *o = &c->options;
    const size_t own = c->multihead.per_head ? h : 0, n = c->n, m = c->m, d = c->own_d[own],
                 d_v = c->own_d_v[own];
    const size_t slot = b * c->heads + h, k = h / (c->heads / c->own_k.heads),
                 v = h / (c->heads / c->own_v.heads);
    struct head head = {.c = c, .plan = plan, .b = b, .h = h, .slot = slot};
    struct reference_head *call = &head.call;
    const bool as_given = c->form != PROJECTED;
    *call = head_of_call(c, b, h);
    call->q = as_given ? given_rows(&head, c->tensor_q, &c->own_q, o->b_q, n, d)
                       : multiplied_rows(&head, ATTN_RESULT_Q, n, d);
    call->k = multiplied_rows(&head, ATTN_RESULT_PRESENT_K, m, d);
    call->v = multiplied_rows(&head, ATTN_RESULT_PRESENT_V, m, d_v);
    call->bias = call->bias == NULL ? NULL : rounded_all(c, call->bias, n * m);
    call->decay = call->decay == NULL ? NULL : rounded_all(c, call->decay, m);
    call->slope = rounded(o->compute_dtype, call->slope);
    call->sink = rounded(o->compute_dtype, call->sink);
    if (as_given) {
        const double *keys = given_rows(&head, c->tensor_k, &c->own_k, o->b_k, m - c->past, d);
        const double *values = given_rows(&head, c->tensor_v, &c->own_v, o->b_v, m - c->past, d_v);
        check_given(&head, call->k, c->K[b][k], keys, d);
        check_given(&head, call->v, c->V[b][v], values, d_v);
    }
    return head;
}

/* Compares the call of a seed, if it has float32 and Q is known. Returns whether it did so. */
static bool check_rounded_seed(uint64_t seed) {
    struct call *c = malloc(sizeof *c);
    attn_plan *plan = draw_random_call(c, seed);
    const bool turned =
        c->options.norm_q != NULL || c->options.norm_v != NULL || c->options.rotary != NULL;
    const bool compared =
        c->dtype == ATTN_FLOAT32 && c->extra == 0 && (c->form == PROJECTED || !turned);
    attn_plan_free(plan);
    if (compared) {
        attn_options *o = &c->options;
        o->compute_dtype = seed % 2 == 0 ? ATTN_COMPUTE_FLOAT16 : ATTN_COMPUTE_BFLOAT16;
        o->flags &= ~(unsigned)ATTN_FLAG_MEAN_OVER_HEADS;
        o->gate = o->w_g = o->b_g = NULL; /* test_attention_gate.c has them */
        o->results = ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS) | ATTN_WANT(SCORES) |
                     ATTN_WANT(SCALED_SCORES) | ATTN_WANT(MASKED_SCORES) | ATTN_WANT(PRESENT_K) |
                     ATTN_WANT(PRESENT_V) |
                     (o->normalization == ATTN_SOFTMAX ? ATTN_WANT(LSE) : 0) |
                     (c->form == PROJECTED ? ATTN_WANT(Q) : 0);
        plan = plan_random_call(c, seed);
        bind_and_run(c, plan);
        for (size_t b = 0; b < c->batch; b++) {
            size_t column = 0, ld = 0;
            for (size_t h = 0; h < c->heads; h++) {
                ld += c->own_d_v[c->multihead.per_head ? h : 0];
            }
            for (size_t h = 0; h < c->heads; h++) {
                const struct head head = head_of(c, plan, b, h);
                check_rounded_head(&head, column, ld);
                column += head.call.d_v;
            }
        }
        attn_plan_free(plan);
    }
    free_call(c);
    free(c);
    return compared;
}

Test(compute_dtype, stages_are_rounded, .timeout = 1200) {
    const size_t calls = test_scale(400);
    size_t compared = 0;
    for (uint64_t seed = 1; compared < calls; seed++) {
        compared += check_rounded_seed(seed);
    }
}

/* ------------------------------------------------------------------------- projections by hand */

enum {
    ROWS = 3,
    COLUMNS = 4
};

/* Numbers that a type of 16 bits does not have. */
static const float X[ROWS * COLUMNS] = {1.001F,  -2.003F, 0.3337F, 0.1F,    -1.77F,  0.9F,
                                        2.7183F, 0.05F,   -0.123F, 1.4142F, 3.1416F, -0.6F};
static const float W[COLUMNS * COLUMNS] = {0.3F,  -0.7F, 1.1F,  0.2F,  0.61F, 0.33F, -0.9F, 1.7F,
                                           -0.2F, 0.77F, 0.44F, -1.3F, 0.9F,  0.1F,  0.21F, -0.4F};
static const float ROW[COLUMNS] = {0.0123F, -1.23F, 0.777F, 1.9F};

/* y = x W + b, rounded, of rounded x. */
static void project_rounded(attn_compute_dtype type, const double *x, double y[COLUMNS]) {
    for (int e = 0; e < COLUMNS; e++) {
        y[e] = rounded(type, (double)ROW[e]);
        for (int i = 0; i < COLUMNS; i++) {
            y[e] += rounded(type, x[i]) * rounded(type, (double)W[i * COLUMNS + e]);
        }
        y[e] = rounded(type, y[e]);
    }
}

/* Makes y w y / sqrt(mean(y^2) + 1e-6). */
static void normalise_rounded(attn_compute_dtype type, double y[COLUMNS]) {
    double squares = 0;
    for (int e = 0; e < COLUMNS; e++) {
        squares += y[e] * y[e] / COLUMNS;
    }
    for (int e = 0; e < COLUMNS; e++) {
        y[e] *= rounded(type, (double)ROW[e]) / sqrt(squares + 1e-6);
    }
}

/* Normalises y, rotates its pairs by `angle` and angle / 100, and rounds. */
static void normalise_and_turn(attn_compute_dtype type, double angle, double y[COLUMNS]) {
    normalise_rounded(type, y);
    for (int e = 0; e < COLUMNS / 2; e++) {
        const double a = y[e], b = y[e + COLUMNS / 2];
        y[e] = rounded(type, a * cos(angle) - b * sin(angle));
        y[e + COLUMNS / 2] = rounded(type, b * cos(angle) + a * sin(angle));
        angle /= 100;
    }
}

/* The same weights, packed or not, and the same ones for Q, K, V and the output. */
static void run_projected(attn_compute_dtype type, bool packed, float q[ROWS * COLUMNS],
                          float out[ROWS * COLUMNS]) {
    static _Alignas(ATTN_ALIGNMENT) float buffer[64 * COLUMNS];
    const attn_tensor x = {.data = X, .rank = 2, .shape = {ROWS, COLUMNS}};
    const attn_tensor given = {.data = W, .rank = 2, .shape = {COLUMNS, COLUMNS}};
    const attn_tensor b = {.data = ROW, .rank = 1, .shape = {COLUMNS}};
    const attn_rotary rotary = {0};
    attn_tensor w = given;
    size_t bytes;
    if (packed) {
        cr_assert(attn_prepack_bytes(&given, ATTN_IN_OUT, &bytes, NULL) == ATTN_OK &&
                  bytes <= sizeof buffer);
        cr_assert_eq(attn_prepack(&given, ATTN_IN_OUT, buffer, &w, NULL), ATTN_OK);
    }
    const attn_projection all = {&w, &w, &w, &b, &b, &b};
    const attn_multihead call = {.x = &x,
                                 .projections = &all,
                                 .count = 1,
                                 .layout = packed ? ATTN_PREPACKED : ATTN_IN_OUT,
                                 .w_o = &w,
                                 .b_o = &b};
    const attn_options options = {.compute_dtype = type,
                                  .causal = true,
                                  .norm_q = &b,
                                  .rotary = &rotary,
                                  .results = ATTN_WANT(Q) | ATTN_WANT(OUTPUT)};
    attn_plan *plan;
    cr_assert_eq(attn_plan_multihead(&plan, &call, &options, NULL), ATTN_OK);
    attn_plan_bind(plan, ATTN_RESULT_Q, 0, q);
    attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, out);
    cr_assert_eq(attn_plan_run(plan, NULL), ATTN_OK);
    cr_assert_eq(attn_plan_run(plan, NULL), ATTN_OK); /* the inputs are found again */
    attn_plan_free(plan);
}

Test(compute_dtype, projections_norms_and_rotary_are_rounded) {
    for (int type = ATTN_COMPUTE_FLOAT16; type <= ATTN_COMPUTE_BFLOAT16; type++) {
        const attn_compute_dtype to = (attn_compute_dtype)type;
        float q[ROWS * COLUMNS], out[ROWS * COLUMNS], packed[2][ROWS * COLUMNS];
        run_projected(to, false, q, out);
        run_projected(to, true, packed[0], packed[1]);
        cr_assert_arr_eq(q, packed[0], sizeof q);
        cr_assert_arr_eq(out, packed[1], sizeof out);
        for (int i = 0; i < ROWS; i++) {
            double x[COLUMNS], y[COLUMNS];
            for (int e = 0; e < COLUMNS; e++) {
                x[e] = (double)X[i * COLUMNS + e];
            }
            project_rounded(to, x, y);
            if (i == 0) { /* it sees one key, so the output of the head is V */
                double o[COLUMNS];
                project_rounded(to, y, o);
                for (int e = 0; e < COLUMNS; e++) {
                    cr_assert_eq((double)out[e], o[e]);
                }
            }
            normalise_and_turn(to, i, y);
            for (int e = 0; e < COLUMNS; e++) {
                cr_assert_eq((double)q[i * COLUMNS + e], y[e]);
            }
        }
    }
}

/* Given keys and values are rounded with their bias before they are normalised, as projected ones
 * are. */
Test(compute_dtype, biases_of_given_rows_are_rounded) {
    const attn_tensor x = {.data = X, .rank = 2, .shape = {ROWS, COLUMNS}};
    const attn_tensor row = {.data = ROW, .rank = 1, .shape = {COLUMNS}};
    const attn_rotary rotary = {0};
    for (int type = ATTN_COMPUTE_FLOAT16; type <= ATTN_COMPUTE_BFLOAT16; type++) {
        const attn_compute_dtype to = (attn_compute_dtype)type;
        const attn_options options = {.compute_dtype = to,
                                      .b_k = &row,
                                      .b_v = &row,
                                      .norm_k = &row,
                                      .norm_v = &row,
                                      .rotary = &rotary,
                                      .results = ATTN_WANT(PRESENT_K) | ATTN_WANT(PRESENT_V)};
        float keys[ROWS * COLUMNS], values[ROWS * COLUMNS];
        void *const data[ATTN_RESULT_COUNT] = {
            [ATTN_RESULT_PRESENT_K] = keys, [ATTN_RESULT_PRESENT_V] = values};
        cr_assert_eq(plan_and_run(&x, &x, &x, &options, data, NULL), ATTN_OK);
        for (int i = 0; i < ROWS; i++) {
            double y[COLUMNS], v[COLUMNS];
            for (int e = 0; e < COLUMNS; e++) {
                y[e] = v[e] = rounded(to, rounded(to, (double)X[i * COLUMNS + e]) +
                                              rounded(to, (double)ROW[e]));
            }
            normalise_and_turn(to, i, y);
            normalise_rounded(to, v);
            for (int e = 0; e < COLUMNS; e++) {
                cr_assert_eq((double)keys[i * COLUMNS + e], y[e]);
                cr_assert_eq((double)values[i * COLUMNS + e], rounded(to, v[e]));
            }
        }
    }
}

/* ------------------------------------------------------------------------------------ overflow */

struct large {
    float q, k, v, bias;
    const char *argument, *message;
};

/* Runs a call of one query and two keys, the second of which is forbidden and NaN. */
static attn_status run_large(const struct large *n, attn_error *error, float *out) {
    const float k[] = {n->k, NAN}, v[] = {n->v, NAN}, bias[] = {n->bias, -INFINITY};
    const attn_tensor q = {.data = &n->q, .rank = 2, .shape = {1, 1}};
    const attn_tensor keys = {.data = k, .rank = 2, .shape = {2, 1}};
    const attn_tensor values = {.data = v, .rank = 2, .shape = {2, 1}};
    const attn_tensor added = {.data = bias, .rank = 2, .shape = {1, 2}};
    const attn_options options = {
        .compute_dtype = ATTN_COMPUTE_FLOAT16, .normalization = ATTN_UNNORMALIZED, .bias = &added};
    return plan_and_run(&q, &keys, &values, &options, (void *[ATTN_RESULT_COUNT]){out}, error);
}

Test(compute_dtype, overflow_is_an_error) {
    static const struct large calls[] = {
        {1, 65520, 1, 0, "K", "K holds 65520, but the largest number of compute_dtype \"float16\""},
        {1, 1, 1, -7e4F, "bias", "bias holds -70000"},
        {300, 300, 1, 0, "scaled_scores", "scaled_scores is not a finite float16"},
        {1, 6e4F, 1, 6e4F, "masked_scores",
         "masked_scores is not a finite float16 at batch item 0"},
        {200, 200, 2, 0, "output", "output is not a finite float16"},
        {1, 65519, 1, 0, "", ""}, /* rounds to the largest number */
    };
    for (size_t i = 0; i < COUNT(calls); i++) {
        attn_error error = {0};
        float out;
        const attn_status status = run_large(&calls[i], &error, &out);
        if (calls[i].argument[0] == '\0') {
            cr_assert(status == ATTN_OK && out == 65504, "%s", error.message);
            continue;
        }
        cr_assert_eq(status, ATTN_NOT_FINITE, "call %zu", i);
        cr_assert_str_eq(error.argument, calls[i].argument);
        cr_assert(strstr(error.message, calls[i].message) != NULL, "%s", error.message);
    }
}

Test(compute_dtype, mean_over_heads_is_rounded) {
    const float x[] = {1, 0.7F, -0.3F, 0.2F}; /* two heads of two rows */
    const attn_tensor matrix = {.data = x, .rank = 3, .shape = {2, 2, 1}};
    const attn_options options = {.compute_dtype = ATTN_COMPUTE_BFLOAT16,
                                  .flags = ATTN_FLAG_MEAN_OVER_HEADS,
                                  .results = ATTN_WANT(WEIGHTS)};
    attn_options apart = options;
    float mean[4], each[8];
    float *const to[] = {mean, each};
    apart.flags = 0;
    for (int i = 0; i < 2; i++) {
        void *const data[ATTN_RESULT_COUNT] = {[ATTN_RESULT_WEIGHTS] = to[i]};
        cr_assert_eq(plan_and_run(&matrix, &matrix, &matrix, i ? &apart : &options, data, NULL),
                     ATTN_OK);
    }
    for (int i = 0; i < 4; i++) {
        const double sum = (double)each[i] + (double)each[4 + i];
        cr_assert_eq((double)mean[i], rounded(ATTN_COMPUTE_BFLOAT16, sum / 2));
    }
}
