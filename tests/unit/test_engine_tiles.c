/*
 * test_engine_tiles.c tests plans that compute their products on a matrix unit, see
 * lib/src/engine/mma.inc. A model of the unit takes its place, so the sizes are small. The tests
 * count the products, because a plan that does not use the unit would pass, too.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_bounds.h"
#include "kernels/kernels.h"
#include "support/scale.h"
#include "support/tile_model.h"

enum {
    SUMS = ATTN_WANT(OUTPUT) | ATTN_WANT(LSE),
    KEPT = SUMS | ATTN_WANT(WEIGHTS),
    RANKED = KEPT | ATTN_WANT(ENTROPY) | ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS)
};

static const unsigned ways[] = {SUMS, KEPT, RANKED, ATTN_WANT(WEIGHTS)};

static size_t products, uses; /* calls of multiply, and of begin without end */

static void count_begin(struct attn_tile_unit *unit) {
    uses++;
    tile_model.begin(unit);
}

static void count_end(void) {
    uses--;
    tile_model.end();
}

static void count_product(struct attn_tile_unit *unit, struct attn_tile_product *product) {
    products++;
    cr_assert_eq(uses, 1);
    tile_model.multiply(unit, product);
}

/* Puts the model into the fastest table that needs no unit. */
static void use_model(void) {
    static struct attn_kernels table;
    static struct attn_tiles tiles;
    const struct attn_kernels *tables[ATTN_KERNELS_MAX];
    for (size_t i = attn_kernels_usable(tables); i-- > 0;) {
        table = *tables[i];
        if (table.tiles == NULL) {
            break;
        }
    }
    tiles = tile_model;
    tiles.begin = count_begin;
    tiles.end = count_end;
    tiles.multiply = count_product;
    table.tiles = &tiles;
    attn_kernels_use(&table);
}

TestSuite(engine_tiles, .init = use_model, .timeout = 300);

static struct call draw_float_call(unsigned kind, size_t heads, size_t n, size_t m, size_t d,
                                   size_t d_v) {
    products = 0;
    return draw_call(kind, ATTN_FLOAT32, heads, n, m, d, d_v);
}

/* Checks that the runs since the call was drawn used the unit, or that they did not. */
static void expect_unit(bool used) {
    cr_expect_eq(products > 0, used, "%zu products", products);
    cr_expect_eq(uses, 0);
}

/* ------------------------------------------------------------------------------------- accuracy */

/* Every kind meets sizes at the edges of panels, chunks, tiles of keys and blocks. */
Test(engine_tiles, kinds_and_edges_agree_with_the_reference) {
    static const unsigned kinds[] = {PLAIN,
                                     CAUSAL,
                                     BOTTOM_RIGHT,
                                     BOTTOM_RIGHT | WINDOW,
                                     WINDOW | PAST,
                                     MASK,
                                     BIAS,
                                     SOFTCAP,
                                     ALIBI | CAUSAL,
                                     GROUPED | SINK,
                                     LENGTHS,
                                     PAST | CAUSAL | NEGATIVE,
                                     MASK | CAUSAL | LENGTHS,
                                     PADDING,
                                     SHARED | PADDING | MASK,
                                     SHARED | LENGTHS,
                                     SHARED | PAST | CAUSAL,
                                     ALL,
                                     ALL | BOTTOM_RIGHT,
                                     LENGTHS | BOTTOM_RIGHT,
                                     LENGTHS | AT_THE_END | WINDOW | ALIBI};
    static const size_t queries[] = {32, 33, 63, 64, 65, 100, 129, 197};
    static const size_t keys[] = {64, 65, 100, 127, 129, 197, 250};
    static const size_t widths[] = {3, 16, 24, 26, 27, 31, 33, 58, 64, 80, 96, 100, 160};
    const size_t kind_count = sizeof kinds / sizeof *kinds, rounds = test_scale(42);
    for (size_t i = 0; i < rounds; i++) {
        const unsigned kind = kinds[i % kind_count];
        struct call c =
            draw_float_call(kind, kind & GROUPED ? 2 : 1, queries[i % 8], keys[i * 3 % 7],
                            widths[i * 5 % 13], widths[(i * 8 + 3) % 13]);
        const unsigned two[] = {ways[i % 2], ways[2 + i % 2]};
        check_ways(&c, two, 2);
        free_call(&c);
        expect_unit(true);
    }
}

/* The keys of long rows are added up in parts. */
Test(engine_tiles, long_rows_agree_with_the_reference) {
    struct call c = draw_float_call(BOTTOM_RIGHT, 1, 33, 8230, 3, 3);
    if (!too_slow(1, c.n, c.m, c.d)) {
        check_ways(&c, ways, 2);
        expect_unit(true);
    }
    free_call(&c);
}

/* Fewer queries or keys take the other path. */
Test(engine_tiles, small_calls_do_without) {
    static const size_t sizes[][2] = {{17, 100}, {31, 64}, {64, 63}, {4, 200}};
    for (size_t i = 0; i < 4; i++) {
        struct call c = draw_float_call(PLAIN, 2, sizes[i][0], sizes[i][1], 16, 16);
        check_ways(&c, ways, 2);
        free_call(&c);
        expect_unit(false);
    }
}

static void multiply_all(double *x, size_t count, double factor) {
    for (size_t i = 0; i < count; i++) {
        x[i] = (double)(float)(x[i] * factor);
    }
}

/* Numbers from the smallest to the largest floats have the bound of all others. */
Test(engine_tiles, numbers_of_any_size_agree_with_the_reference) {
    static const struct {
        double q, k, v, scale;
        bool unit;
    } cases[] = {
        {1, 1, 1e-30, 1, true},     {1, 1, 1e-38, 1, true},         {1, 1, 1e12, 1, true},
        {1, 1, 1e20, 1, false},     {1, 1, 1e37, 1, false},         {1e12, 1e-12, 1, 1, true},
        {1e30, 1e-30, 1, 1, false}, {1e-38, 1e37, 1, 1, false},     {1e-25, 1e-25, 1, 1, true},
        {1e-38, 1e-38, 1, 1, true}, {1e-12, 1e-12, 1, 1e24, false}, {1e-18, 1e-18, 1, 1e36, false},
        {300, 300, 1, 1, true},     {1e5, 1e5, 1, 1e-9, true},      {1e4, 1e4, 1e12, 1, true},
        {3e3, 3e3, 1e12, 1, true},  {1e12, 1e12, 1, 1e-24, true}};
    static const unsigned kinds[] = {PLAIN, BIAS | CAUSAL};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        struct call c = draw_float_call(kinds[i % 2], 1, 33, 70, 24, 20);
        multiply_all(c.q, c.n * c.d, cases[i / 2].q);
        multiply_all(c.k, c.m * c.d, cases[i / 2].k);
        multiply_all(c.v, c.m * c.d_v, cases[i / 2].v);
        c.scale *= cases[i / 2].scale;
        check_ways(&c, ways, 2);
        free_call(&c);
        expect_unit(cases[i / 2].unit);
    }
}

/* Weights far below the largest one meet values far above the others. */
Test(engine_tiles, tiny_weights_of_large_values_count) {
    static const double values[] = {1e3, 1e12, 1e30};
    for (size_t i = 0; i < 6; i++) {
        struct call c = draw_float_call(PLAIN, 1, 40, 100, 16, 24);
        for (size_t j = 0; j < c.n; j++) {
            c.q[j * c.d] = 8;
        }
        for (size_t j = 0; j < c.m; j += 3) { /* its logit is -20 */
            multiply_all(c.k + j * c.d, c.d, 0);
            c.k[j * c.d] = -10;
            multiply_all(c.v + j * c.d_v, c.d_v, values[i % 3]);
        }
        c.sinks = i < 3 ? NULL : allocate(1, sizeof *c.sinks);
        if (c.sinks != NULL) { /* the sum is large, and the output small */
            c.sinks[0] = 80;
        }
        check_ways(&c, ways, 1);
        free_call(&c);
        expect_unit(i % 3 < 2);
    }
}

/* ------------------------------------------------------------------------------- forbidden keys */

/* Makes NaN of the keys and values of a call with one key head that no query may attend to. Returns
 * their number. */
static size_t spoil(const struct call *c) {
    size_t count = 0;
    for (size_t b = 0; b < c->batch; b++) {
        for (size_t j = 0; j < c->m; j++) {
            bool seen = false;
            for (size_t i = 0; i < c->heads * c->n && !seen; i++) {
                seen = may_attend(c, b, i / c->n, i % c->n, j);
            }
            for (size_t e = 0; e < c->d && !seen; e++) {
                c->k[(b * c->m + j) * c->d + e] = NAN;
            }
            for (size_t e = 0; e < c->d_v && !seen; e++) {
                c->v[(b * c->m + j) * c->d_v + e] = e % 2 == 0 ? NAN : INFINITY;
            }
            count += !seen;
        }
    }
    return count;
}

Test(engine_tiles, forbidden_keys_may_be_nan) {
    static const unsigned kinds[] = {CAUSAL,         LENGTHS, WINDOW | CAUSAL, MASK, PADDING,
                                     LENGTHS | BIAS, ALL};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const bool grouped = (kinds[i] & GROUPED) != 0;
        struct call c = draw_float_call(kinds[i], grouped ? 2 : 1, 40, 150, 24, 17);
        for (size_t r = 0; kinds[i] & MASK && r < c.batch * c.heads * c.n; r++) {
            c.mask[r * c.m + 66] = c.mask[r * c.m + 140] = 0;
        }
        struct call clean = copy_call(&c);
        cr_expect_gt(spoil(&c), 0);
        for (size_t way = 0; way < 2; way++) {
            struct results a = run_call(&clean, KEPT), b = run_call(&c, ways[way]);
            struct worst worst = {0};
            compare_results(&worst, &clean, &a, &b, 2 * bound_of(ATTN_FLOAT32));
            cr_expect(worst.error <= 1, "kind %zu, way %zu: %s of row %zu is off by %g", i, way,
                      worst.what, worst.row, worst.error);
            free_results(&a);
            free_results(&b);
        }
        free_call(&c);
        free_call(&clean);
        expect_unit(true);
    }
}

/* Keys and values after the last visible key are not packed, so they do not stop the unit. */
Test(engine_tiles, keys_that_nobody_sees_do_not_stop_the_unit) {
    struct call c = draw_float_call(LENGTHS, 1, 40, 150, 24, 17), clean = copy_call(&c);
    spoil(&c);
    struct results a = run_call(&clean, KEPT), b = run_call(&c, KEPT);
    cr_expect(same_bytes(&a, &b));
    free_results(&a);
    free_results(&b);
    free_call(&c);
    free_call(&clean);
    expect_unit(true);
}

/* A score that is not finite is an error as on the other path. */
Test(engine_tiles, visible_nan_fails) {
    struct call c = draw_float_call(PLAIN, 1, 40, 100, 24, 17);
    c.k[70 * c.d] = NAN;
    struct results r = try_call(&c, SUMS);
    cr_expect_eq(r.status, ATTN_NOT_FINITE);
    free_results(&r);
    free_call(&c);
    cr_expect_eq(uses, 0);
}

/* ------------------------------------------------------------------------------ the same bytes */

/* Returns the call of the last n queries. */
static struct call last_queries(const struct call *c, size_t n) {
    struct call some = copy_call(c);
    for (size_t h = 0; h < c->heads; h++) {
        memcpy(some.q + h * n * c->d, c->q + ((h + 1) * c->n - n) * c->d, n * c->d * sizeof *c->q);
    }
    some.n = n;
    return some;
}

/* A row has the same bytes in any block. */
Test(engine_tiles, rows_do_not_depend_on_their_block) {
    static const unsigned kinds[] = {PLAIN, BOTTOM_RIGHT, BOTTOM_RIGHT | WINDOW,
                                     ALIBI | BOTTOM_RIGHT};
    for (size_t i = 0; i < 4; i++) {
        struct call c = draw_float_call(kinds[i], 1, 130, 200, 20, 17);
        struct call some = last_queries(&c, 77);
        for (size_t way = 0; way < 2; way++) {
            struct results all = run_call(&c, ways[way]), few = run_call(&some, ways[way]);
            for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
                const size_t count = few.count[r], before = all.count[r] - count;
                cr_expect(few.of[r] == NULL ||
                              memcmp(few.of[r], all.of[r] + before, count * sizeof *few.of[r]) == 0,
                          "kind %zu: %s", i, attn_result_name((attn_result)r));
            }
            free_results(&all);
            free_results(&few);
        }
        free_call(&c);
        free_call(&some);
        expect_unit(true);
    }
}

/* Runs the tasks of each phase in order or in the opposite order. Each task has a scratch of 0xff
 * bytes, which are NaN. The output is written to `out`. */
static void run_tasks(const float *q, const float *k, const float *v, bool backwards, float *out,
                      size_t *tasks) {
    attn_plan *plan;
    const attn_tensor t[] = {{.data = q, .dtype = ATTN_FLOAT32, .rank = 3, .shape = {3, 120, 24}},
                             {.data = k, .dtype = ATTN_FLOAT32, .rank = 3, .shape = {3, 300, 24}},
                             {.data = v, .dtype = ATTN_FLOAT32, .rank = 3, .shape = {3, 300, 24}}};
    const attn_options o = {
        .results = ATTN_WANT(OUTPUT), .causal = true, .flags = ATTN_FLAG_BOTTOM_RIGHT};
    cr_assert_eq(attn_plan_attention(&plan, &t[0], &t[1], &t[2], &o, NULL), ATTN_OK);
    attn_plan_bind(plan, ATTN_RESULT_OUTPUT, 0, out);
    cr_assert_eq(attn_plan_begin(plan, NULL), ATTN_OK);
    const size_t bytes = attn_plan_scratch(plan);
    void *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64);
    *tasks = 0;
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        const size_t count = attn_plan_tasks(plan, phase);
        for (size_t i = 0; i < count; i++) {
            memset(scratch, 0xff, bytes);
            cr_assert_eq(attn_plan_task(plan, phase, backwards ? count - 1 - i : i, scratch, NULL),
                         ATTN_OK);
        }
        *tasks += count;
    }
    cr_assert_eq(attn_plan_end(plan, NULL), ATTN_OK);
    free(scratch);
    attn_plan_free(plan);
}

Test(engine_tiles, tasks_give_the_same_bytes_in_any_order) {
    enum {
        OUTPUT = 3 * 120 * 24,
        KEYS = 3 * 300 * 24
    };
    float *x = allocate(3 * OUTPUT + 2 * KEYS, sizeof *x), *k = x + OUTPUT, *v = k + KEYS;
    float *there = v + KEYS, *back = there + OUTPUT;
    size_t tasks;
    products = 0;
    for (size_t i = 0; i < OUTPUT + 2 * KEYS; i++) {
        x[i] = (float)sin((double)i * 1.7);
    }
    run_tasks(x, k, v, false, there, &tasks);
    run_tasks(x, k, v, true, back, &tasks);
    cr_expect_gt(tasks, 4);
    cr_expect_arr_eq(there, back, OUTPUT * sizeof *there);
    free(x);
    expect_unit(true);
}
