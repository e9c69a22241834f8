/*
 * test_engine.c tests what random small calls do not reach: sizes around and over those of a tile,
 * split keys, and tasks that run in another order on scratches full of old bytes. Every case runs
 * twice: for output and lse alone (tiles with online softmax), and with the weights (whole rows).
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention_bounds.h"
#include "kernels/kernels.h"
#include "plan.h"
#include "support/rng.h"
#include "support/scale.h"

struct shape {
    size_t heads, kv_heads, n, m, past, d, d_v;
    bool causal, at_the_end;
    int64_t left, right; /* the window; -1: open */
    size_t length;       /* keys that may be attended to; 0: all */
    bool masked, sink;
};

static const struct shape shapes[] = {
    {1, 1, 95, 383, 0, 64, 64, false, false, -1, -1, 0, false, false},
    {1, 1, 96, 384, 0, 64, 64, false, false, -1, -1, 0, false, false},
    {1, 1, 97, 385, 0, 64, 64, false, false, -1, -1, 0, false, false},
    {2, 2, 65, 129, 0, 128, 128, false, false, -1, -1, 0, false, false},
    {2, 1, 100, 1000, 0, 128, 48, false, false, -1, -1, 0, false, true},
    {2, 1, 700, 700, 0, 64, 64, true, false, -1, -1, 0, false, false},
    {1, 1, 300, 700, 0, 64, 64, true, true, -1, -1, 0, false, false},
    {1, 1, 700, 300, 0, 64, 64, true, true, -1, -1, 0, false, false},
    {1, 1, 600, 1000, 400, 32, 32, true, false, 100, 0, 0, false, false},
    {1, 1, 500, 500, 0, 16, 16, false, false, 3, 5, 0, false, false},
    {1, 1, 64, 900, 0, 64, 64, false, false, -1, -1, 333, false, true},
    {1, 1, 300, 900, 0, 64, 64, true, true, 130, -1, 500, false, false},
    {1, 1, 3, 20000, 0, 16, 16, true, true, -1, -1, 9001, false, false},
    {2, 2, 90, 800, 77, 40, 24, false, false, -1, -1, 0, true, false},
    {1, 1, 40, 400, 0, 160, 200, false, false, -1, -1, 0, false, false},
    {1, 1, 1, 9000, 0, 64, 64, false, false, -1, -1, 0, false, false},
    {8, 2, 1, 20000, 19000, 16, 16, false, false, -1, -1, 0, false, true},
    {1, 1, 3, 12289, 0, 8, 8, false, false, -1, -1, 0, false, false},
    {1, 1, 16, 10000, 0, 16, 16, true, true, -1, -1, 0, true, false},
    {1, 1, 2, 16384, 0, 32, 32, false, false, -1, -1, 4096, false, false},
    {1, 1, 5, 8192, 0, 4, 4, false, false, 10, 10, 0, false, false},
    /* Two key heads take turns. */
    {4, 4, 200, 1000, 0, 64, 64, false, false, -1, -1, 0, false, false},
    /* 16 heads with one query each share their keys, which are packed. */
    {16, 1, 1, 500, 0, 64, 64, false, false, -1, -1, 0, false, false},
    /* 6 heads with one query each share their keys. BLAS multiplies them, without packing. */
    {6, 1, 1, 3000, 0, 64, 64, false, false, -1, -1, 0, true, false},
};

/* Draws the call of a case. Its mask forbids whole tiles. */
static struct call draw_shape(const struct shape *s, attn_dtype dtype) {
    struct call c = draw_call((s->sink ? SINK : PLAIN) | (s->masked ? MASK : PLAIN), dtype,
                              s->heads, s->n, s->m, s->d, s->d_v);
    c.kv_heads = s->kv_heads;
    c.past = s->past;
    c.options.causal = s->causal;
    c.options.flags |= s->at_the_end ? ATTN_FLAG_BOTTOM_RIGHT : 0;
    c.options.window[0] = s->left;
    c.options.window[1] = s->right;
    if (s->length != 0) {
        c.lengths = keep_block(&c, sizeof *c.lengths);
        c.lengths[0] = s->length;
    }
    for (size_t i = 0; s->masked && i < s->heads * s->n * s->m; i++) {
        c.mask[i] = c.mask[i] != 0 && (i % s->m <= 400 || i % s->m >= 790);
    }
    return c;
}

/* Computes a case with tasks in either order, and compares it with the reference. */
static void check_shape(const struct shape *s, attn_dtype dtype, uint64_t wanted) {
    struct call c = draw_shape(s, dtype);
    check_ways(&c, &wanted, 1);
    struct results forwards = run_call(&c, wanted),
                   backwards = try_call_by(&c, wanted, run_backwards);
    cr_assert_eq(backwards.status, ATTN_OK, "%s", backwards.error.message);
    cr_expect(same_bytes(&forwards, &backwards), "the order of the tasks changes the bytes");
    free_results(&forwards);
    free_results(&backwards);
    free_call(&c);
}

ParameterizedTestParameters(engine, sizes_over_the_tiles) {
    static size_t index[COUNT(shapes)];
    for (size_t i = 0; i < COUNT(shapes); i++) {
        index[i] = i;
    }
    return cr_make_param_array(size_t, index, COUNT(shapes));
}

ParameterizedTest(const size_t *index, engine, sizes_over_the_tiles, .timeout = 1200) {
    const struct shape *s = &shapes[*index];
    if (test_scale(100) < 100 && s->heads * s->n * s->m * (s->d + s->d_v) > 2000000) {
        cr_skip_test("too large for a slow run");
    }
    for (unsigned variant = 0; variant < 4; variant++) {
        check_shape(s, variant & 1 ? ATTN_FLOAT64 : ATTN_FLOAT32,
                    ATTN_WANT(OUTPUT) | ATTN_WANT(LSE) | (variant & 2 ? ATTN_WANT(WEIGHTS) : 0));
    }
}

/* A scratch must not grow with n if only the output is wanted, until keys are split. Rows of at
 * least 8192 keys need a little more than shorter ones, because their parts are summed in
 * double. */
Test(engine, scratch_is_bounded_and_constant_in_n) {
    static const float data[1];
    size_t first = 0;
    for (size_t n = 512; n <= 1 << 17; n *= 2) {
        attn_tensor t = {.data = data, .rank = 3, .shape = {8, n, 64}};
        attn_plan *plan;
        cr_assert_eq(attn_plan_attention(&plan, &t, &t, &t, NULL, NULL), ATTN_OK);
        first = n == 512 || n == 8192 ? attn_plan_scratch(plan) : first;
        cr_expect(attn_plan_scratch(plan) == first ||
                      (n >= 131072 && attn_plan_scratch(plan) < first),
                  "n %zu: %zu, not %zu", n, attn_plan_scratch(plan), first);
        cr_expect_leq(attn_plan_scratch(plan), 2 << 20);
        attn_plan_free(plan);
    }
}

/* A run of 8 heads of 16384 queries needs no more memory, beside its inputs and its output, than a
 * copy of its keys. */
Test(engine, memory_of_a_long_call_is_a_copy_of_its_keys) {
    static const float data[1];
    attn_tensor t = {.data = data, .rank = 3, .shape = {8, 16384, 64}};
    attn_plan *plan;
    cr_assert_eq(attn_plan_attention(&plan, &t, &t, &t, NULL, NULL), ATTN_OK);
    cr_expect_leq(plan->schedule.workspace.bytes, (size_t)8 * 16384 * 64 * sizeof(float));
    attn_plan_free(plan);
}

/* -------------------------------------------------------------------------------- projections */

static double *draw_in_dtype(struct rng *rng, size_t count, attn_dtype dtype) {
    double *x = allocate(count, sizeof *x);
    for (size_t i = 0; i < count; i++) {
        x[i] = rng_normal(rng);
        x[i] = dtype == ATTN_FLOAT32 ? (double)(float)x[i] : x[i];
    }
    return x;
}

/* Returns a matrix in a dtype. The caller frees its data. */
static attn_tensor matrix(const double *x, attn_dtype dtype, size_t rows, size_t columns) {
    const struct call c = {.dtype = dtype, .batch = 1};
    attn_tensor t = rows_of_heads(&c, x, 1, rows, 0, rows, columns);
    t.rank = 2;
    t.shape[0] = rows;
    t.shape[1] = columns;
    return t;
}

/* Packs weights of a plan before it is made. Returns their memory, which is owned: free(). */
static void *prepack(attn_tensor *w, attn_layout layout) {
    size_t bytes;
    cr_assert_eq(attn_prepack_bytes(w, layout, &bytes, NULL), ATTN_OK);
    void *buffer = aligned_alloc(ATTN_ALIGNMENT, bytes);
    cr_assert_not_null(buffer);
    cr_assert_eq(attn_prepack(w, layout, buffer, w, NULL), ATTN_OK);
    return buffer;
}

/* Packs the parts of weights of 200 columns, the last one first, and compares them with weights
 * that were packed as a whole. A part has some of the rows. */
static void check_parts(attn_dtype dtype, attn_layout layout) {
    enum {
        INNER = 7,
        COLUMNS = 200
    };
    static const size_t firsts[] = {128, 64, 0}, ends[] = {COLUMNS, 128, 64};
    static const size_t rows_from[] = {4, 0, 3}, rows_to[] = {INNER, 3, 4};
    struct rng rng = {5};
    double *numbers = draw_in_dtype(&rng, INNER * COLUMNS, dtype), part[INNER * COLUMNS];
    const bool out_in = layout == ATTN_OUT_IN;
    attn_tensor whole =
        out_in ? matrix(numbers, dtype, COLUMNS, INNER) : matrix(numbers, dtype, INNER, COLUMNS);
    const void *rows = whole.data;
    size_t bytes;
    cr_assert_eq(attn_prepack_bytes(&whole, layout, &bytes, NULL), ATTN_OK);
    char *expected = aligned_alloc(ATTN_ALIGNMENT, bytes);
    char *buffer = aligned_alloc(ATTN_ALIGNMENT, bytes);
    cr_assert(expected != NULL && buffer != NULL);
    memset(expected, 1, bytes); /* bytes between the columns stay as they are */
    memset(buffer, 1, bytes);
    cr_assert_eq(attn_prepack(&whole, layout, expected, &whole, NULL), ATTN_OK);
    for (size_t i = 0; i < 9; i++) {
        const size_t first = firsts[i / 3], count = ends[i / 3] - first;
        const size_t row = rows_from[i % 3], inner = rows_to[i % 3] - row;
        for (size_t k = 0; k < inner * count; k++) {
            const size_t in = row + (out_in ? k % inner : k / count);
            const size_t out = first + (out_in ? k / inner : k % count);
            part[k] = numbers[out_in ? out * INNER + in : in * COLUMNS + out];
        }
        attn_tensor columns =
            out_in ? matrix(part, dtype, count, inner) : matrix(part, dtype, inner, count);
        cr_assert_eq(attn_prepack_part(&columns, layout, row, INNER, first, COLUMNS, buffer, NULL),
                     ATTN_OK);
        free((void *)(uintptr_t)columns.data);
    }
    cr_expect_arr_eq(buffer, expected, bytes);
    free((void *)(uintptr_t)rows);
    free(expected);
    free(buffer);
    free(numbers);
}

Test(engine, parts_of_weights_are_packed_like_the_whole) {
    const struct attn_kernels *tables[ATTN_KERNELS_MAX];
    const size_t count = attn_kernels_usable(tables);
    for (size_t i = 0; i < 4 * count; i++) {
        attn_kernels_use(tables[i / 4]);
        check_parts(i % 2 == 0 ? ATTN_FLOAT32 : ATTN_FLOAT64,
                    i / 2 % 2 == 0 ? ATTN_IN_OUT : ATTN_OUT_IN);
    }
}

/* Weights of whole panels take the bytes of their numbers, and others those of the next panel. */
static void check_packed_bytes(struct rng *rng, attn_dtype dtype) {
    const size_t inner = rng_between(rng, 1, 300), columns = rng_between(rng, 1, 40);
    const size_t all = (columns + 63) / 64 * 64, size = attn_dtype_size(dtype);
    const size_t more = 64 * rng_between(rng, 0, 4);
    const attn_tensor narrow = {rng, dtype, 2, {inner, columns}},
                      whole = {rng, dtype, 2, {inner, all + more}},
                      turned = {rng, dtype, 2, {all + more, inner}};
    size_t bytes[3];
    cr_assert_eq(attn_prepack_bytes(&narrow, ATTN_IN_OUT, &bytes[0], NULL), ATTN_OK);
    cr_assert_eq(attn_prepack_bytes(&whole, ATTN_IN_OUT, &bytes[1], NULL), ATTN_OK);
    cr_assert_eq(attn_prepack_bytes(&turned, ATTN_OUT_IN, &bytes[2], NULL), ATTN_OK);
    cr_expect(bytes[0] >= inner * columns * size && bytes[0] <= inner * all * size);
    cr_expect_eq(bytes[1], inner * (all + more) * size);
    cr_expect_eq(bytes[2], bytes[1]);
}

/* A part begins at a multiple of 64 columns, and it ends at one or with the weights. */
static void check_part(struct rng *rng, attn_dtype dtype) {
    enum {
        MOST = 200
    };
    static double numbers[MOST * 3];
    static _Alignas(ATTN_ALIGNMENT) double buffer[(MOST + 64) * 3];
    const size_t columns = rng_between(rng, 1, MOST), row = rng_between(rng, 0, 3);
    const size_t first = rng_between(rng, 0, 3) * 64 + (rng_chance(rng, 4) ? 1 : 0);
    const size_t count =
        rng_chance(rng, 2) && first < columns ? columns - first : rng_between(rng, 1, 70);
    const attn_tensor part = {numbers, dtype, 2, {1, count}};
    const bool fits = first % 64 == 0 && first + count <= columns && row < 3 &&
                      (count % 64 == 0 || first + count == columns);
    const attn_status status =
        attn_prepack_part(&part, ATTN_IN_OUT, row, 3, first, columns, buffer, NULL);
    cr_expect_eq(status, fits ? ATTN_OK : ATTN_INVALID_ARGUMENT,
                 "row %zu, columns %zu to %zu of %zu", row, first, first + count, columns);
}

Test(engine, sizes_of_packed_weights_are_exact) {
    const struct attn_kernels *tables[ATTN_KERNELS_MAX];
    const size_t count = attn_kernels_usable(tables);
    struct rng rng = {47};
    for (size_t i = 0; i < 200 * count; i++) {
        attn_kernels_use(tables[i % count]);
        check_packed_bytes(&rng, i / count % 2 == 0 ? ATTN_FLOAT32 : ATTN_FLOAT64);
        check_part(&rng, i / count % 2 == 0 ? ATTN_FLOAT32 : ATTN_FLOAT64);
    }
}

/* Compares Q = X W + b with plain sums. The sizes are cut in every way: in steps of the inner size,
 * by columns, and by rows. */
static void check_projection(size_t rows, size_t inner, size_t columns, attn_dtype dtype,
                             attn_layout layout, bool biased, bool prepacked) {
    struct rng rng = {rows + inner};
    const bool out_in = layout == ATTN_OUT_IN;
    double *m[] = {draw_in_dtype(&rng, rows * inner, dtype),
                   draw_in_dtype(&rng, inner * columns, dtype),
                   draw_in_dtype(&rng, columns, dtype)};
    const attn_tensor x = matrix(m[0], dtype, rows, inner);
    attn_tensor w = matrix(m[1], dtype, out_in ? columns : inner, out_in ? inner : columns);
    attn_tensor b = matrix(m[2], dtype, 1, columns);
    b.rank = 1;
    b.shape[0] = columns;
    const void *given = w.data;
    void *packed = prepacked ? prepack(&w, layout) : NULL;
    const attn_projection p = {.w_q = &w, .w_k = &w, .w_v = &w, .b_q = biased ? &b : NULL};
    const attn_multihead call = {
        .x = &x, .projections = &p, .count = 1, .layout = prepacked ? ATTN_PREPACKED : layout};
    const attn_options o = {.results = ATTN_WANT(Q)};
    void *q = malloc(rows * columns * attn_dtype_size(dtype));
    attn_plan *plan;
    cr_assert_not_null(q);
    cr_assert_eq(attn_plan_multihead(&plan, &call, &o, NULL), ATTN_OK);
    attn_plan_bind(plan, ATTN_RESULT_Q, 0, q);
    cr_assert_eq(run_backwards(plan, NULL), ATTN_OK);
    attn_plan_free(plan);
    for (size_t i = 0; i < rows; i += rows < 20 ? 1 : rows / 20) {
        for (size_t j = 0; j < columns; j++) {
            double want = biased ? m[2][j] : 0, size = fabs(want);
            for (size_t e = 0; e < inner; e++) {
                const double product =
                    m[0][i * inner + e] * m[1][out_in ? j * inner + e : e * columns + j];
                want += product;
                size += fabs(product);
            }
            const size_t at = i * columns + j;
            const double got = number_of(q, dtype, at);
            cr_assert(fabs(got - want) <= (dtype == ATTN_FLOAT32 ? 1e-6 : 2e-15) * size,
                      "%zu rows of %zu, %s: (%zu,%zu) is %.17g, not %.17g", rows, inner,
                      dtype == ATTN_FLOAT32 ? "float32" : "float64", i, j, got, want);
        }
    }
    const void *all[] = {m[0], m[1], m[2], x.data, given, b.data, q, packed};
    for (size_t i = 0; i < COUNT(all); i++) {
        free((void *)(uintptr_t)all[i]);
    }
}

Test(engine, projections_cut_in_any_way_are_right) {
    static const size_t sizes[][3] = {{3, 5, 70},     {16, 768, 130}, {24, 500, 150},
                                      {64, 400, 300}, {600, 140, 70}, {300, 70, 520},
                                      {1100, 33, 520}};
    const bool slow = test_scale(100) < 100; /* a slow run tests two ways of four sizes */
    for (size_t i = 0; i < (slow ? 4 : COUNT(sizes)); i++) {
        for (int way = slow ? 1 : 0; way < 16; way += slow ? 5 : 1) {
            check_projection(sizes[i][0], sizes[i][1], sizes[i][2],
                             way & 4 ? ATTN_FLOAT64 : ATTN_FLOAT32, (attn_layout)(way & 1),
                             (way & 2) != 0, (way & 8) != 0);
        }
    }
}

/* Projects rows of ROWS * `step` columns, of which row i selects row step * i of W_V. With
 * `context`, they are a value_context beside a small X, and otherwise X itself. All of W_K is 1. */
static void check_wide_rows(size_t step, bool context) {
    enum {
        ROWS = 1024,
        MODEL = 8,
        COLUMNS = 128
    };
    const size_t columns = ROWS * step, model = context ? MODEL : columns;
    if (too_slow(1, ROWS, COLUMNS, columns)) {
        return;
    }
    float *x = calloc(ROWS * MODEL, sizeof *x), *wide = calloc(ROWS * columns, sizeof *wide),
          *w = calloc(columns * MODEL, sizeof *w), *w_v = malloc(columns * COLUMNS * sizeof *w_v),
          *v = malloc(ROWS * COLUMNS * sizeof *v), *k = calloc(ROWS * MODEL, sizeof *k);
    cr_assert(x != NULL && wide != NULL && w != NULL && w_v != NULL && v != NULL && k != NULL);
    for (size_t i = 0; i < ROWS; i++) {
        wide[i * columns + i * step] = 1;
        x[i * MODEL] = 1;
    }
    for (size_t i = 0; i < columns * MODEL; i++) {
        w[i] = 1;
    }
    for (size_t i = 0; i < columns * COLUMNS; i++) {
        w_v[i] = (float)i;
    }
    const attn_tensor tensors[] = {{.data = context ? x : wide, .rank = 2, .shape = {ROWS, model}},
                                   {.data = wide, .rank = 2, .shape = {ROWS, columns}},
                                   {.data = w, .rank = 2, .shape = {model, MODEL}},
                                   {.data = w_v, .rank = 2, .shape = {columns, COLUMNS}}};
    const attn_projection projection = {.w_q = &tensors[2], .w_k = &tensors[2], .w_v = &tensors[3]};
    const attn_multihead call = {.x = &tensors[0],
                                 .value_context = context ? &tensors[1] : NULL,
                                 .projections = &projection,
                                 .count = 1};
    const attn_options options = {.results = ATTN_WANT(K) | ATTN_WANT(V)};
    attn_plan *plan;
    attn_error error;
    cr_assert_eq(attn_plan_multihead(&plan, &call, &options, &error), ATTN_OK, "%s", error.message);
    cr_assert_eq(attn_plan_bind(plan, ATTN_RESULT_K, 0, k), ATTN_OK);
    cr_assert_eq(attn_plan_bind(plan, ATTN_RESULT_V, 0, v), ATTN_OK);
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
    for (size_t i = 0; i < ROWS; i++) {
        cr_assert_arr_eq(v + i * COLUMNS, w_v + i * step * COLUMNS, COLUMNS * sizeof *v, "row %zu",
                         i);
    }
    for (size_t i = 0; i < ROWS * MODEL; i++) {
        cr_assert_eq(k[i], 1, "row %zu", i / MODEL);
    }
    attn_plan_free(plan);
    free(x);
    free(wide);
    free(w);
    free(w_v);
    free(v);
    free(k);
}

/* The tasks of V may have fewer rows than those of Q and K, because a value_context has many more
 * columns than X. With the same input, they may have more rows, because narrow matrices cost more.
 */
Test(engine, wide_rows_are_projected_whole) {
    check_wide_rows(17, true);
    check_wide_rows(12, false);
}
