/*
 * test_gradients.c - compares the gradients of random calls, over all options and forms, with the
 * differences of a loss. The loss is the sum of results, each number multiplied by a drawn one. Its
 * derivative in a drawn direction of one input is the sum of that direction times the gradient.
 * TEST_SEED chooses other calls.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention.h"
#include "attention_bounds.h"
#include "random_gradients.h"
#include "support/scale.h"

/* Returns the loss: the sum of the results times their gradients. */
static double loss(attn_plan *plan, const attn_upstream *up) {
    static const attn_result results[] = {ATTN_RESULT_OUTPUT, ATTN_RESULT_LSE, ATTN_RESULT_WEIGHTS};
    const attn_tensor *given[] = {up->output, up->lse, up->weights};
    double sum = 0;
    attn_error error = {0};
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
    for (int i = 0; i < 3; i++) {
        const attn_result_tensor *t = attn_plan_tensor(plan, results[i], 0);
        for (size_t j = 0; given[i] != NULL && j < count_of(given[i]); j++) {
            const attn_tensor result = attn_as_tensor(t);
            const double x = tensor_number(&result, j);
            sum += x == -INFINITY ? 0 : x * tensor_number(given[i], j);
        }
    }
    return sum;
}

/* Adds `step` times the direction to an input. */
static void move_input(const attn_tensor *t, const double *start, const double *direction,
                       double step) {
    double *x = (double *)(uintptr_t)t->data;
    for (size_t i = 0; i < count_of(t); i++) {
        x[i] = start[i] + (direction[i] == 0 ? 0 : step * direction[i]);
    }
}

/* Compares the derivative of the loss in a drawn direction with the gradient. Returns the error. */
static double check_input(struct call *c, attn_plan *forward, const attn_plan *plan,
                          const attn_upstream *up, const struct input *input) {
    const double step = 1e-5;
    const attn_tensor *t = input->tensor;
    const attn_tensor gradient =
        attn_as_tensor(attn_plan_tensor(plan, input->gradient, input->part));
    const size_t count = count_of(t);
    double *direction = draw_normals(c, count, 1), *start = keep_block(c, count * sizeof *start);
    double want = 0, size = 1;
    cr_assert_eq(gradient.rank, t->rank);
    cr_assert_eq(count_of(&gradient), count);
    for (size_t i = 0; i < count; i++) {
        start[i] = tensor_number(t, i);
        const double g = tensor_number(&gradient, i);
        if (start[i] == -INFINITY) {
            direction[i] = 0;
            cr_expect_eq(g, 0, "%s of -inf is %g", attn_result_name(input->gradient), g);
        }
        want += direction[i] * g;
        size += fabs(direction[i] * g);
    }
    move_input(t, start, direction, step);
    const double after = loss(forward, up);
    move_input(t, start, direction, -step);
    const double before = loss(forward, up);
    move_input(t, start, direction, 0);
    return fabs((after - before) / (2 * step) - want) / size;
}

/* Compares the gradients by all inputs of a call in float64 with differences. Returns the worst
 * error. */
static double compare_differences(struct call *c, uint64_t seed, size_t *compared) {
    const bool softmax = c->options.normalization == ATTN_SOFTMAX;
    attn_upstream up = {0};
    struct input inputs[INPUTS];
    double worst = 0;
    c->options.results = 0;
    const size_t count = ask_for_gradients(c, seed, &up, inputs);
    attn_plan *plan = plan_random_call(c, seed);
    bind_and_run(c, plan);
    expect_any_order(c, seed, plan);
    c->options.upstream = NULL;
    c->options.results = ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS) | (softmax ? ATTN_WANT(LSE) : 0);
    attn_plan *forward = plan_random_call(c, seed);
    bind_and_run(c, forward);
    for (size_t i = 0; i < count; i++, ++*compared) {
        const double error = check_input(c, forward, plan, &up, &inputs[i]);
        worst = fmax(worst, error);
        cr_expect(error < 1e-6, "seed %llu, %s: %g", (unsigned long long)seed,
                  attn_result_name(inputs[i].gradient), error);
    }
    attn_plan_free(plan);
    attn_plan_free(forward);
    return worst;
}

Test(gradients, are_the_differences_of_a_loss, .timeout = 1200) {
    enum {
        CALLS = 2000
    };
    const char *other = getenv("TEST_SEED");
    const uint64_t first = 1 + (other != NULL ? strtoull(other, NULL, 10) * CALLS : 0);
    double worst = 0;
    size_t compared = 0;
    for (uint64_t seed = first; seed < first + test_scale(CALLS); seed++) {
        struct call *c = malloc(sizeof *c);
        attn_plan_free(draw_random_call(c, seed));
        if (c->dtype == ATTN_FLOAT64) {
            worst = fmax(worst, compare_differences(c, seed, &compared));
        }
        free_call(c);
        free(c);
    }
    fprintf(stderr, "%zu gradients: worst error %.2g\n", compared, worst);
    cr_assert_gt(compared, test_scale(CALLS) / 4);
}

/* ----------------------------------------------------------------------------------- long calls */

/* Draws the gradients of output and lse. The caller frees their data. */
static void draw_long_loss(const struct call *c, attn_tensor *output, attn_tensor *lse,
                           attn_upstream *up) {
    const size_t rows = c->batch * c->heads * c->n;
    double *x = allocate(rows * (c->d_v + 1), sizeof *x);
    struct rng rng = {rows * 77 + c->m};
    for (size_t i = 0; i < rows * (c->d_v + 1); i++) {
        x[i] = (double)(float)rng_normal(&rng);
    }
    *output = rows_of_heads(c, x, c->heads, c->n, 0, c->n, c->d_v);
    *lse = rows_of_heads(c, x + rows * c->d_v, c->heads, c->n, 0, c->n, 1);
    lse->rank = 3;
    *up = (attn_upstream){.output = output,
                          .lse = c->options.normalization == ATTN_SOFTMAX ? lse : NULL};
    free(x);
}

/* Returns the gradients by all inputs of a call. */
static struct results run_gradients(struct call *c) {
    attn_tensor output, lse;
    attn_upstream up;
    draw_long_loss(c, &output, &lse, &up);
    c->options.upstream = &up;
    struct results r = run_call(c, gradients_of(c));
    c->options.upstream = NULL;
    free((void *)(uintptr_t)output.data);
    free((void *)(uintptr_t)lse.data);
    return r;
}

/* Compares float32 gradients with others, which differ by rounding. */
static void expect_close(const struct results *a, const struct results *b, int result,
                         const char *what) {
    const double scale = largest_of(b->of[result], b->count[result]);
    for (size_t i = 0; i < b->count[result]; i++) {
        const double x = a->of[result][i], want = b->of[result][i];
        cr_assert_float_eq(x, want, 4e-6 * scale, "%s: %s[%zu] is %g, not %g", what,
                           attn_result_name((attn_result)result), i, x, want);
    }
}

/* Draws a call with projections whose gradients have several blocks along each side. */
static void draw_wide_projections(struct call *c, attn_layout layout, bool per_head) {
    enum {
        ITEMS = 2,
        ROWS = 420,
        INNER = 350,
        HEADS = 4,
        COLUMNS = 80,
        OUT = 330
    };
    const size_t columns = per_head ? COLUMNS : HEADS * COLUMNS, all = HEADS * COLUMNS;
    const bool turned = layout == ATTN_OUT_IN;
    const size_t x[] = {ITEMS, ROWS, INNER},
                 w[] = {turned ? columns : INNER, turned ? INNER : columns},
                 w_o[] = {turned ? OUT : all, turned ? all : OUT}, bias[] = {columns},
                 b_o[] = {OUT}, extra[] = {all};
    const double scale = 1 / sqrt(INNER);
    c->form = PROJECTED;
    c->multihead =
        (attn_multihead){.x = tensor_of(c, draw_normals(c, ITEMS * ROWS * INNER, 1), 3, x),
                         .projections = c->projections,
                         .count = per_head ? HEADS : 1,
                         .per_head = per_head,
                         .layout = layout,
                         .w_o = tensor_of(c, draw_normals(c, all * OUT, scale), 2, w_o),
                         .b_o = tensor_of(c, draw_normals(c, OUT, 1), 1, b_o),
                         .zero_key = true};
    if (!per_head) {
        c->options.heads = HEADS;
        c->multihead.bias_k = tensor_of(c, draw_normals(c, all, 1), 1, extra);
        c->multihead.bias_v = tensor_of(c, draw_normals(c, all, 1), 1, extra);
    }
    for (size_t h = 0; h < c->multihead.count; h++) {
        const attn_tensor *all_of[6];
        for (int i = 0; i < 6; i++) {
            all_of[i] = i < 3 ? tensor_of(c, draw_normals(c, INNER * columns, scale), 2, w)
                              : tensor_of(c, draw_normals(c, columns, 1), 1, bias);
        }
        c->projections[h] = (attn_projection){.w_q = all_of[0],
                                              .w_k = all_of[1],
                                              .w_v = all_of[2],
                                              .b_q = all_of[3],
                                              .b_k = all_of[4],
                                              .b_v = all_of[5]};
    }
}

Test(gradients, of_wide_projections, .timeout = 1200) {
    size_t compared = 0;
    for (uint64_t kind = 0; kind < 2 && !too_slow(8, 420, 420, 160); kind++) {
        struct call *c = calloc(1, sizeof *c);
        c->dtype = ATTN_FLOAT64;
        c->rng = (struct rng){77 + kind};
        draw_wide_projections(c, kind == 0 ? ATTN_IN_OUT : ATTN_OUT_IN, kind == 0);
        compare_differences(c, kind, &compared);
        free_call(c);
        free(c);
    }
}

/* Memory does not grow with n m: with Q, K and V, a plan and its results take less than twice the
 * bytes of Q, K, V and their gradients. */
Test(gradients, take_memory_that_does_not_grow_with_scores) {
    enum {
        ROWS = 16384,
        COLUMNS = 64
    };
    const size_t matrix = sizeof(float) * ROWS * COLUMNS;
    const attn_tensor x = {calloc(ROWS, matrix / ROWS), ATTN_FLOAT32, 2, {ROWS, COLUMNS}};
    const attn_tensor k = x, v = x;
    const attn_upstream up = {.output = &x};
    const attn_options o = {
        .results = ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_V),
        .upstream = &up,
    };
    attn_plan *plan = NULL;
    size_t bytes = 0;
    cr_assert_eq(attn_plan_attention(&plan, &x, &k, &v, &o, NULL), ATTN_OK);
    cr_assert(attn_plan_bytes(plan, 2, &bytes));
    cr_expect_lt(bytes + 3 * matrix, 2 * 6 * matrix, "%zu bytes", bytes);
    attn_plan_free(plan);
    free((void *)(uintptr_t)x.data);
}

/* ------------------------------------------------------------------------------------ overflow */

/* Sizes of a small call, of one with a tile, and of one with several. */
static const struct {
    size_t heads, n, m, d, d_v;
} sizes[] = {{2, 3, 5, 4, 3}, {2, 20, 30, 8, 8}, {2, 120, 300, 16, 8}};

/* Writes x to the key and value j of a batch item and head, if no query may attend to it. Returns
 * whether it did. */
static bool fill_forbidden(struct call *c, size_t b, size_t kv, size_t j, double x) {
    const size_t group = c->heads / c->kv_heads;
    for (size_t h = kv * group; h < (kv + 1) * group; h++) {
        for (size_t i = 0; i < c->n; i++) {
            if (may_attend(c, b, h, i, j)) {
                return false;
            }
        }
    }
    const size_t row = key_row(c, b, kv * group) + j;
    for (size_t e = 0; e < c->d; e++) {
        c->k[row * c->d + e] = x;
    }
    for (size_t e = 0; e < c->d_v; e++) {
        c->v[row * c->d_v + e] = x;
    }
    return true;
}

static size_t fill_all_forbidden(struct call *c, double x) {
    size_t filled = 0;
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t kv = 0; kv < c->kv_heads; kv++) {
            for (size_t j = 0; j < c->m; j++) {
                filled += fill_forbidden(c, b, kv, j, x);
            }
        }
    }
    return filled;
}

/* Compares the gradients of a call whose forbidden keys and values are x with those of zeros.
 * Returns how many keys are forbidden. */
static size_t compare_forbidden(struct call *c, const struct results *zeros, double x) {
    const size_t filled = fill_all_forbidden(c, x);
    struct results got = run_gradients(c);
    for (int r = ATTN_RESULT_GRAD_Q; r <= ATTN_RESULT_GRAD_ALIBI; r++) {
        expect_close(&got, zeros, r, "forbidden number");
    }
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t h = 0; h < c->heads; h++) {
            for (size_t j = 0; j < c->m; j++) {
                const size_t row = key_row(c, b, h) + j;
                const bool forbidden = !(fabs(c->k[row * c->d]) < 1e30);
                for (size_t e = 0; forbidden && e < c->d; e++) {
                    cr_assert_eq(got.of[ATTN_RESULT_GRAD_K][row * c->d + e], 0);
                }
            }
        }
    }
    free_results(&got);
    return filled;
}

/* A number may be NaN, or so large that its products with other numbers are infinite. */
Test(gradients, see_no_forbidden_number) {
    static const unsigned kinds[] = {PADDING,
                                     LENGTHS | CAUSAL,
                                     PADDING | SIGMOID,
                                     LENGTHS | NONE | BIAS,
                                     PADDING | WINDOW | GROUPED,
                                     PADDING | STICK};
    size_t filled = 0;
    for (size_t i = 0; i < 12 * COUNT(sizes); i++) {
        const size_t at = i / 12;
        const attn_dtype dtype = i / 6 % 2 == 0 ? ATTN_FLOAT32 : ATTN_FLOAT64;
        struct call c = draw_call(kinds[i % 6], dtype, sizes[at].heads, sizes[at].n, sizes[at].m,
                                  sizes[at].d, sizes[at].d_v);
        c.options.scale = 2;
        fill_all_forbidden(&c, 0);
        struct results zeros = run_gradients(&c);
        filled += compare_forbidden(&c, &zeros, NAN);
        filled += compare_forbidden(&c, &zeros, dtype == ATTN_FLOAT32 ? 3e38 : 1e308);
        free_results(&zeros);
        free_call(&c);
    }
    cr_assert_gt(filled, 400);
}

/* The product of a key, or a value, and its weights is infinite in double. */
Test(gradients, of_norms_see_no_forbidden_number) {
    const double weights[] = {100, 100, 100, 100};
    const attn_tensor norm = {.data = weights, .dtype = ATTN_FLOAT64, .rank = 1, .shape = {4}};
    struct call c = draw_call(PADDING, ATTN_FLOAT64, 2, 20, 30, 4, 4);
    c.options.norm_k = c.options.norm_v = &norm;
    fill_all_forbidden(&c, 0);
    struct results zeros = run_gradients(&c);
    cr_assert_gt(compare_forbidden(&c, &zeros, 1e307), 0);
    free_results(&zeros);
    free_call(&c);
}

/* The output is finite, but its gradient times the values is not. */
Test(gradients, that_overflow_are_errors) {
    for (size_t at = 0; at < COUNT(sizes); at++) {
        struct call c = draw_call(PLAIN, ATTN_FLOAT32, sizes[at].heads, sizes[at].n, sizes[at].m,
                                  sizes[at].d, sizes[at].d_v);
        attn_tensor output, lse;
        attn_upstream up;
        draw_long_loss(&c, &output, &lse, &up);
        float *grad = (float *)(uintptr_t)output.data;
        for (size_t i = 0; i < count_of(&output); i++) {
            grad[i] = 3e38f;
        }
        c.options.upstream = &up;
        struct results r = try_call(&c, ATTN_WANT(GRAD_Q) | ATTN_WANT(GRAD_V));
        cr_expect_eq(r.status, ATTN_NOT_FINITE);
        cr_expect(strstr(r.error.message, "grad_") != NULL, "%s", r.error.message);
        cr_expect(strstr(r.error.message, "is not a finite float32 at (") != NULL, "%s",
                  r.error.message);
        free_results(&r);
        free((void *)(uintptr_t)output.data);
        free((void *)(uintptr_t)lse.data);
        c.options.upstream = NULL;
        free_call(&c);
    }
}

/* Each number of a sum over queries is finite, but the sum is not. */
Test(gradients, whose_sums_overflow_are_errors) {
    for (size_t at = 0; at < COUNT(sizes); at++) {
        struct call c = draw_call(NONE | BIAS, ATTN_FLOAT32, sizes[at].heads, sizes[at].n,
                                  sizes[at].m, sizes[at].d, sizes[at].d_v);
        attn_tensor output, lse;
        attn_upstream up;
        draw_long_loss(&c, &output, &lse, &up);
        attn_tensor bias = rows_of_heads(&c, c.q, 1, 1, 0, 1, 1);
        const attn_tensor q = rows_of_heads(&c, c.q, c.heads, c.n, 0, c.n, c.d),
                          k = rows_of_heads(&c, c.k, c.heads, c.m, 0, c.m, c.d),
                          v = rows_of_heads(&c, c.v, c.heads, c.m, 0, c.m, c.d_v);
        for (size_t i = 0; i < count_of(&v); i++) {
            ((float *)(uintptr_t)v.data)[i] = 1;
        }
        for (size_t i = 0; i < count_of(&output); i++) {
            ((float *)(uintptr_t)output.data)[i] = 2e37f;
        }
        const attn_options o = {.results = ATTN_WANT(GRAD_BIAS),
                                .normalization = ATTN_UNNORMALIZED,
                                .bias = &bias,
                                .upstream = &up};
        attn_plan *plan;
        attn_error error = {0};
        float sum;
        cr_assert_eq(attn_plan_attention(&plan, &q, &k, &v, &o, &error), ATTN_OK, "%s",
                     error.message);
        attn_plan_bind(plan, ATTN_RESULT_GRAD_BIAS, 0, &sum);
        cr_expect_eq(attn_plan_run(plan, &error), ATTN_NOT_FINITE);
        cr_expect_str_eq(error.message, "grad_bias is not a finite float32 at (0, 0, 0, 0): the "
                                        "values are too large");
        attn_plan_free(plan);
        const attn_tensor all[] = {output, lse, bias, q, k, v};
        for (size_t i = 0; i < COUNT(all); i++) {
            free((void *)(uintptr_t)all[i].data);
        }
        free_call(&c);
    }
}
