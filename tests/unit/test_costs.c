/*
 * test_costs.c tests what a plan says before it runs: its cost, its memory and its tasks. Calls are
 * admitted and handed out by these numbers alone, so they may not leave anything out.
 * tests/bench/bench_costs.c measures how well they fit the time that calls take.
 */
#include <criterion/criterion.h>

#include "attention.h"
#include "kernels/kernels.h"
#include "plan.h"
#include "support/rng.h"

static const float data[1];

/* The sizes of tiles depend on the kernels, and the plain loops are the same on every machine. */
static void use_plain_loops(void) {
    attn_kernels_use(&attn_kernels_scalar);
}

static attn_plan *plan_of(size_t batch, size_t heads, size_t n, size_t m, size_t d,
                          const attn_options *o) {
    attn_tensor q = {.data = data, .rank = 4, .shape = {batch, heads, n, d}}, k = q;
    attn_plan *plan;
    attn_error error;
    k.shape[2] = m;
    cr_assert_eq(attn_plan_attention(&plan, &q, &k, &k, o, &error), ATTN_OK, "%s", error.message);
    return plan;
}

static double cost_of(size_t batch, size_t heads, size_t n, size_t m, size_t d,
                      const attn_options *o) {
    attn_plan *plan = plan_of(batch, heads, n, m, d, o);
    const double cost = attn_plan_cost(plan);
    attn_plan_free(plan);
    return cost;
}

static double tasks_of(const attn_plan *plan) {
    size_t tasks = 0;
    for (size_t phase = 0; phase < attn_plan_phases(plan); phase++) {
        tasks += attn_plan_tasks(plan, phase);
    }
    return (double)tasks;
}

/* The cost of 2 x 8 heads of 1024 queries and 2048 keys of 64 columns is computed term by term. */
Test(costs, of_a_plain_call_are_exact, .init = use_plain_loops) {
    const double pairs = 2.0 * 8 * 1024 * 2048, heads = 2 * 8;
    const double products = pairs * (0.8 * 128 + 40 + 400.0 / 1024);
    const double rows = heads * 1024 * (8 * 1000 + 2000); /* a row has 8 tiles of 256 keys */
    const double blocks = heads * 11 * 8 * 15000;         /* 11 blocks of 96 queries, 8 tiles */
    const double packing = heads * (2048 * 64 * 40 + 15000);
    const double memory =
        heads * (1024 + 2 * 2048) * 64 * 4 * 4 + (heads * 1024 * 64 + heads * 2048 * 64) * 4 * 20;
    attn_plan *plan = plan_of(2, 8, 1024, 2048, 64, NULL);
    const double want =
        products + rows + blocks + packing + memory + 80000 + 8 * 1000 + tasks_of(plan) * 4000;
    cr_expect_float_eq(attn_plan_cost(plan), want, 1e-9 * want, "%.17g, not %.17g",
                       attn_plan_cost(plan), want);
    attn_plan_free(plan);
}

/* Twice as many batch items, queries, keys or heads cost twice as much, except for the constant
 * cost of a call. */
Test(costs, double_with_each_size, .init = use_plain_loops) {
    const size_t n = 1536, m = 1536,
                 sizes[][4] = {{4, 8, n, m}, {2, 16, n, m}, {2, 8, 2 * n, m}, {2, 8, n, 2 * m}};
    const double one = cost_of(2, 8, n, m, 64, NULL);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t *s = sizes[i];
        const double ratio = cost_of(s[0], s[1], s[2], s[3], 64, NULL) / one;
        cr_expect(ratio > 1.95 && ratio < 2.02, "size %zu: %g times", i, ratio);
    }
}

/* Heads are cut into tasks as batch items are. */
Test(costs, heads_and_batch_items_have_the_same_tasks) {
    static const unsigned wanted[] = {0, ATTN_WANT(WEIGHTS), ATTN_WANT(SCORES), ATTN_WANT(ENTROPY),
                                      ATTN_WANT(LSE) | ATTN_WANT(PRESENT_K)};
    struct rng rng = {47};
    for (size_t i = 0; i < 200; i++) {
        const attn_options o = {.results = ATTN_WANT(OUTPUT) | wanted[i % 5]};
        const size_t many = rng_between(&rng, 2, 64), n = rng_between(&rng, 1, 2000),
                     m = rng_between(&rng, 1, 4000), d = rng_between(&rng, 1, 200);
        attn_plan *heads = plan_of(1, many, n, m, d, &o), *items = plan_of(many, 1, n, m, d, &o);
        cr_assert_eq(attn_plan_phases(heads), attn_plan_phases(items));
        for (size_t phase = 0; phase < attn_plan_phases(heads); phase++) {
            const size_t of_heads = attn_plan_tasks(heads, phase),
                         of_items = attn_plan_tasks(items, phase);
            cr_expect(2 * of_heads >= of_items && of_heads <= 2 * of_items,
                      "%zu heads or items, n %zu, m %zu, d %zu: phase %zu has %zu and %zu tasks",
                      many, n, m, d, phase, of_heads, of_items);
        }
        attn_plan_free(heads);
        attn_plan_free(items);
    }
}

/* Each of these parts was missing in the cost once. */
Test(costs, count_everything) {
    const attn_options top[] = {{.results = ATTN_WANT(TOP_K_INDICES), .top_k = 1},
                                {.results = ATTN_WANT(TOP_K_INDICES), .top_k = 20000}};
    cr_expect_gt(cost_of(1, 1, 8, 20000, 2, &top[1]), 5 * cost_of(1, 1, 8, 20000, 2, &top[0]));
    /* An entry costs about 23,000 multiply-adds in the runs of a long row, and 2600 when these are
     * ranked. */
    const attn_options half = {.results = ATTN_WANT(TOP_K_INDICES), .top_k = 150000},
                       whole = {.results = ATTN_WANT(TOP_K_INDICES), .top_k = 300000};
    cr_expect_gt(cost_of(1, 1, 8, 300000, 2, &whole) - cost_of(1, 1, 8, 300000, 2, &half),
                 8 * 150000 * 24000.0);
    cr_expect_gt(cost_of(1, 65536, 1, 1, 1, NULL), 500 * cost_of(1, 1, 1, 1, 1, NULL));
    cr_expect_gt(cost_of(65536, 1, 1, 1, 1, NULL), 500 * cost_of(1, 1, 1, 1, 1, NULL));
    const attn_options statistics = {.results = ATTN_WANT(OUTPUT) | ATTN_WANT(STATISTICS)};
    cr_expect_gt(cost_of(1, 1, 1, 1, 500000, &statistics) - cost_of(1, 1, 1, 1, 500000, NULL),
                 2 * 500000 * 40.0); /* of the moments of Q and K */
    const double output = cost_of(1, 4, 300, 300, 16, NULL);
    const uint64_t more = RESULTS_FORWARD & ~RESULTS_OF(RESULT_PROJECTED) & ~ATTN_WANT(OUTPUT);
    for (uint64_t left = more; left != 0; left &= left - 1) {
        const attn_options o = {.results = ATTN_WANT(OUTPUT) | (left & -left)};
        cr_expect_gt(cost_of(1, 4, 300, 300, 16, &o), output, "%s costs nothing",
                     attn_result_name((attn_result)__builtin_ctzll(left)));
    }
}

/* The scratch has a bound, and no task costs more than about 20 ms: this is tested for few rows and
 * many, for long rows and wide ones, and for every result. */
Test(costs, of_a_task_and_its_scratch_are_bounded) {
    static const size_t shapes[][5] = {
        /* The sizes are heads, n, m, d of Q and K, and d of V. */
        {1, 8, 3000000, 1, 1},  {1, 1, 100000000, 1, 1},   {1, 8, 32768, 64, 64},
        {1, 8, 16384, 4096, 8}, {1, 3, 5, 10000000, 1},    {1, 3, 5, 1, 10000000},
        {65536, 1, 1, 1, 1},    {65536, 9, 5, 3, 3},       {1, 100000, 1000000, 64, 64},
        {2, 4096, 4096, 64, 4}, {64, 128, 32768, 128, 128}};
    static const unsigned wanted[] = {0,
                                      ATTN_WANT(WEIGHTS),
                                      ATTN_WANT(TOP_K_WEIGHTS),
                                      ATTN_WANT(STATISTICS),
                                      ATTN_WANT(ENTROPY) | ATTN_WANT(LSE),
                                      ATTN_WANT(WEIGHTS) | ATTN_WANT(PRESENT_K)};
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        const size_t *s = shapes[i / 2];
        const attn_dtype dtype = i % 2 == 0 ? ATTN_FLOAT32 : ATTN_FLOAT64;
        const attn_tensor q = {data, dtype, 3, {s[0], s[1], s[3]}},
                          k = {data, dtype, 3, {s[0], s[2], s[3]}},
                          v = {data, dtype, 3, {s[0], s[2], s[4]}};
        for (size_t w = 0; w < sizeof wanted / sizeof *wanted; w++) {
            const attn_options o = {.results = ATTN_WANT(OUTPUT) | wanted[w],
                                    .top_k = s[2],
                                    .flags = w == 5 ? (unsigned)ATTN_FLAG_MEAN_OVER_HEADS : 0};
            attn_plan *plan;
            cr_assert_eq(attn_plan_attention(&plan, &q, &k, &v, &o, NULL), ATTN_OK);
            cr_expect_leq(attn_plan_scratch(plan), (size_t)5 << 19, "shape %zu, way %zu: %zu bytes",
                          i, w, attn_plan_scratch(plan));
            cr_expect_leq(attn_plan_cost(plan) / tasks_of(plan), 1.6e9, "shape %zu, way %zu: %g", i,
                          w, attn_plan_cost(plan) / tasks_of(plan));
            attn_plan_free(plan);
        }
    }
}

/* The gradient of a bias is a sum over all rows: its cost is counted, and many tasks make it. */
Test(costs, of_the_bias_of_many_rows) {
    const size_t rows = 3000000, columns = 64;
    const attn_tensor q = {data, ATTN_FLOAT32, 2, {rows, columns}},
                      k = {data, ATTN_FLOAT32, 2, {1, columns}},
                      v = {data, ATTN_FLOAT32, 2, {1, 1}},
                      grad = {data, ATTN_FLOAT32, 2, {rows, 1}},
                      b_q = {data, ATTN_FLOAT32, 1, {columns}};
    const attn_upstream upstream = {.output = &grad};
    double costs[2];
    for (int with = 0; with < 2; with++) {
        const attn_options o = {.b_q = &b_q,
                                .upstream = &upstream,
                                .results = ATTN_WANT(GRAD_V) | (with ? ATTN_WANT(GRAD_B_Q) : 0)};
        attn_plan *plan;
        cr_assert_eq(attn_plan_attention(&plan, &q, &k, &v, &o, NULL), ATTN_OK);
        costs[with] = attn_plan_cost(plan);
        cr_expect(!with || attn_plan_tasks(plan, attn_plan_phases(plan) - 1) >= 4);
        attn_plan_free(plan);
    }
    cr_expect_gt(costs[1] - costs[0], 30.0 * (double)rows * (double)columns);
}

/* Keys that all batch items and heads share are packed once. */
Test(costs, shared_keys_are_packed_once, .init = use_plain_loops) {
    const attn_tensor q = {.data = data, .rank = 4, .shape = {64, 8, 256, 64}},
                      k = {.data = data, .rank = 2, .shape = {4096, 64}},
                      own = {.data = data, .rank = 4, .shape = {64, 1, 4096, 64}};
    attn_plan *shared, *apart;
    cr_assert_eq(attn_plan_attention(&shared, &q, &k, &k, NULL, NULL), ATTN_OK);
    cr_assert_eq(attn_plan_attention(&apart, &q, &own, &own, NULL, NULL), ATTN_OK);
    cr_expect_leq(shared->schedule.workspace.bytes, 4096 * 64 * sizeof(float));
    cr_expect_geq(apart->schedule.workspace.bytes, 64 * 4096 * 64 * sizeof(float));
    cr_expect_lt(attn_plan_tasks(shared, PHASE_PACK), attn_plan_tasks(apart, PHASE_PACK));
    /* The difference is 63 copies of K: each is packed, is written to fresh memory, and is read. */
    const double copies = 63 * (4096.0 * 64 * (40 + 4 * 20 + 2 * 4 * 4) + 15000);
    const double less = attn_plan_cost(apart) - attn_plan_cost(shared);
    cr_expect(less > 0.9 * copies && less < 1.1 * copies, "%g, not %g", less, copies);
    attn_plan_free(shared);
    attn_plan_free(apart);
}

/* Returns the bytes that a plan itself holds, without its results and its workspace. */
static size_t own_bytes(const attn_plan *plan) {
    size_t all, results;
    cr_assert(attn_plan_bytes(plan, 0, &all) && attn_plan_results_bytes(plan, &results));
    return all - results - plan->schedule.workspace.bytes;
}

/* The memory of a plan includes its heads. */
Test(costs, memory_counts_heads) {
    attn_plan *one = plan_of(1, 1, 1, 1, 1, NULL), *many = plan_of(1, 65536, 1, 1, 1, NULL);
    cr_expect_gt(own_bytes(many), own_bytes(one) + 65535 * 8 * sizeof(size_t));
    attn_plan_free(one);
    attn_plan_free(many);
}

Test(costs, of_softmax) {
    attn_tensor x = {.data = data, .rank = 2, .shape = {8192, 4096}};
    double costs[2];
    for (int axis = 0; axis < 2; axis++) {
        attn_plan *plan;
        cr_assert_eq(attn_plan_softmax(&plan, &x, axis, NULL), ATTN_OK);
        costs[axis] = attn_plan_cost(plan);
        cr_expect_leq(costs[axis] / tasks_of(plan), 1e9);
        cr_expect_eq(attn_plan_scratch(plan), 0);
        attn_plan_free(plan);
    }
    x.shape[0] *= 2;
    for (int axis = 0; axis < 2; axis++) {
        attn_plan *plan;
        cr_assert_eq(attn_plan_softmax(&plan, &x, axis, NULL), ATTN_OK);
        cr_expect_float_eq(attn_plan_cost(plan) / costs[axis], 2, 0.01);
        attn_plan_free(plan);
    }
}

/* Batch items whose keys are all forbidden cost almost nothing; the others are counted in full. */
Test(costs, count_all_lengths) {
    size_t lengths[96];
    for (size_t b = 0; b < 96; b++) {
        lengths[b] = b < 64 ? 0 : 1024;
    }
    const attn_options some = {.lengths = lengths + 64, .lengths_count = 32};
    const attn_options all = {.lengths = lengths, .lengths_count = 96};
    const double wanted = cost_of(32, 1, 1024, 1024, 4, &some);
    const double got = cost_of(96, 1, 1024, 1024, 4, &all);
    cr_expect(got > 0.95 * wanted && got < 3 * wanted, "%g, not %g", got, wanted);
}
