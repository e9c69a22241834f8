/*
 * schedule.c - cuts a call into phases of independent tasks: the one place where tile sizes,
 * thresholds and the layout of the workspace are decided. Everything here depends on the call
 * alone, never on the number of threads: so the same call gives the same bytes on any of them.
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "blas.h"
#include "plan_build.h"
#include "tensor.h"

enum {
    ALIGN = 64,
    DIRECT_QUERIES =
        4, /* up to so many queries, dot products are as fast as BLAS: memory decides */
    DIRECT_WORK =
        8192,          /* multiply-adds of one head up to which the calls of BLAS would cost more */
    PACK_QUERIES = 16, /* queries that use one key head from which packing it pays */
    SPLIT_QUERIES = 16,    /* up to so many queries, long keys are split over tasks */
    SPLIT_BYTES = 1 << 20, /* keys and values of one part: half of a common L2 cache */
    EXACT_SCORES = 128,    /* scores of a call that is computed in double throughout: a teacher's */
    EXACT_WORK = 6144,     /* ... and its multiply-adds */
    WHOLE_BYTES = 1 << 20, /* whole rows of scores of one block: half of a common L2 cache */
    STREAM_BYTES = 1 << 23, /* weights that no L2 cache holds */
    TASK_WORK = 1 << 17,    /* multiply-adds of one task: some 2 us, more than handing it out */
    TASK_MOST = 1 << 30,    /* ... and about 13 ms: others want a turn, and may cancel the call */
    TILE_ROWS = 96,         /* that pass over a tile of keys or weights, */
    TILE_BYTES = 1 << 15,   /* which stays in an L1 cache */
};

static size_t ceil_div(size_t a, size_t b) {
    assert(b > 0);
    return a / b + (a % b != 0);
}

/*
 * Tile sizes for rows of d (or d_v) numbers of `size` bytes. Both products of a tile have the sizes
 * rows, keys and d. OpenBLAS has kernels for small products, without packing: there it reaches the
 * peak of the machine. They like keys in 64s. Measured on a Zen 5 with OpenBLAS's cores SkylakeX
 * (AVX-512, with such kernels) and Haswell (AVX2, without): half of the rows are up to 4 % slower,
 * half of the bytes 3 %, twice the bytes 5 %, in float64 with SkylakeX 8 %.
 */
static void choose_tile(struct schedule *s, size_t d, size_t size) {
    s->keys = TILE_BYTES / (d * size) / 64 * 64;
    s->keys = s->keys > 256 ? 256 : s->keys < 64 ? 64 : s->keys;
    s->rows = BLAS_SMALL_PRODUCT / (s->keys * d);
    s->rows = s->rows > TILE_ROWS ? TILE_ROWS : s->rows < 8 ? 8 : s->rows / 8 * 8;
}

/*
 * What a score costs besides its products, in the multiply-adds that take as long (80 in a
 * nanosecond on the machine this was measured on): softmax in vectors, or through double with
 * bias and the like; tanh; log from libm; sorting; every stage that is kept.
 */
static double score_cost(const attn_plan *plan, const struct schedule *s) {
    enum {
        PLAIN = 20,
        GENERAL = 80,
        SOFTCAP = 80,
        ENTROPY = 350,
        TOP_K = 900,
        STAGE = 60
    };
    const unsigned stages[] = {ATTN_WANT(WEIGHTS), ATTN_WANT(SCORES), ATTN_WANT(SCALED_SCORES),
                               ATTN_WANT(MASKED_SCORES), ATTN_WANT(STATISTICS)};
    double cost = s->plain ? PLAIN : GENERAL;
    cost += plan->softcap > 0 ? SOFTCAP : 0;
    cost += plan_wants(plan, ATTN_WANT(ENTROPY)) ? ENTROPY : 0;
    cost += plan_wants(plan, ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS)) ? TOP_K : 0;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        cost += plan_wants(plan, stages[i]) ? STAGE : 0;
    }
    return cost;
}

/* Reserves `count` things of `size` bytes in an area; false if it cannot be addressed. */
static bool reserve(size_t *area, size_t count, size_t size, size_t *at) {
    size_t bytes;
    *at = *area;
    return size_mul(count, size, &bytes) && size_add(bytes, ALIGN - 1, &bytes) &&
           size_add(*area, bytes / ALIGN * ALIGN, area);
}

static double projection_cost(const struct projection *projection) {
    return (double)projection->rows * (double)projection->inner * (double)projection->ld;
}

/*
 * Cuts a projection of numbers of `size` bytes into tasks; returns how many. Where OpenBLAS has
 * kernels for small products, a tile of the weights, NARROW columns of them, stays in an L1 cache
 * while up to TALL rows pass over it, TILE_ROWS at a time. It is copied first, since rows of
 * weights lie pages apart; up to SPARSE rows do not pay for that. Those of out_in are copied as
 * soon as their product, a transposed one, would count as large in place. Elsewhere products are
 * large, up to SQUARE rows and columns, since each packs its rows anew; but the columns of up to
 * SPARSE rows are cut into SHARES, to have some for every thread. Measured on a Zen 5 with
 * OpenBLAS's cores SkylakeX and Haswell, d_model 768 and 4096, 16 to 2048 rows.
 */
static size_t choose_projection(struct projection *p, size_t size) {
    enum {
        SPARSE = 32,
        TALL = 512,
        NARROW = 64,
        SQUARE = 256,
        SHARES = 6
    };
    if (p->count == 0 || p->rows == 0) {
        return 0;
    }
    const bool small = blas_has_small();
    const size_t task_rows = small ? TALL : SQUARE;
    p->task_rows = p->rows < task_rows ? p->rows : task_rows;
    p->task_columns = small ? NARROW : SQUARE;
    if (!small && p->rows <= SPARSE) {
        const size_t share = p->ld / SHARES / NARROW * NARROW;
        p->task_columns = share < NARROW ? NARROW : share > SQUARE ? SQUARE : share;
    }
    p->tile_columns = p->task_columns;
    p->copies_tiles = small && p->rows > (p->out_in ? BLAS_SMALL_TRANSPOSED / NARROW : SPARSE);
    p->tile_rows = p->copies_tiles ? TILE_ROWS : p->task_rows;
    p->tile_inner = p->inner;
    if (small) {
        p->tile_inner =
            (p->copies_tiles ? TILE_BYTES / size : BLAS_SMALL_PRODUCT / p->task_rows) / NARROW;
    }
    p->across = ceil_div(p->ld, p->task_columns);
    return ceil_div(p->rows, p->task_rows) * p->across;
}

static void choose_paths(attn_plan *plan, struct schedule *s, double head_cost) {
    const unsigned stages = ATTN_WANT(SCORES) | ATTN_WANT(SCALED_SCORES) |
                            ATTN_WANT(MASKED_SCORES) | ATTN_WANT(STATISTICS) | ATTN_WANT(ENTROPY) |
                            ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS);
    s->staged = plan_wants(plan, stages) || plan->normalization == ATTN_UNNORMALIZED;
    s->keeps = !s->staged && plan_wants(plan, ATTN_WANT(WEIGHTS));
    s->streams = s->keeps && !plan->mean_over_heads &&
                 (double)plan->batch * (double)plan->heads * (double)plan->n * (double)plan->m *
                         (double)attn_dtype_size(plan->dtype) >
                     STREAM_BYTES;
    s->plain = plan->mask.stride[3] == (plan->mask.data != NULL) && plan->bias.data == NULL &&
               plan->slopes == NULL && plan->softcap == 0 && plan->normalization == ATTN_SOFTMAX;
    for (size_t h = 0; h < plan->heads; h++) { /* plain: scale is rounded to the dtype */
        const double scale = plan->head[h].scale;
        s->plain = s->plain && scale > 0 &&
                   (plan->dtype == ATTN_FLOAT64 || (scale >= FLT_MIN && scale <= FLT_MAX));
    }
    s->direct = plan->n <= DIRECT_QUERIES || (plan->n < PACK_QUERIES && head_cost <= DIRECT_WORK);
    s->packs = !s->direct && plan->n * (plan->heads / plan->kv_heads) >= PACK_QUERIES;
}

/* With few queries and long keys the keys are cut, so that there is work for many threads. */
static void choose_splits(const attn_plan *plan, struct schedule *s, size_t d) {
    const size_t part = SPLIT_BYTES / (2 * d * attn_dtype_size(plan->dtype));
    s->splits = 1;
    s->split_keys = plan->m;
    if (!s->staged && !s->keeps && plan->n <= SPLIT_QUERIES && plan->m >= 2 * part) {
        s->split_keys = part < s->keys ? s->keys : part / s->keys * s->keys;
        s->splits = ceil_div(plan->m, s->split_keys);
    }
}

/* Key heads that take turns: as many as stay in a cache together. What one core packed need not
 * move to another then. */
static size_t choose_abreast(const attn_plan *plan, size_t d) {
    const size_t fit = WHOLE_BYTES / (2 * d * plan->m * attn_dtype_size(plan->dtype));
    size_t abreast = fit < plan->kv_heads ? fit : plan->kv_heads;
    while (abreast > 1 && plan->kv_heads % abreast != 0) {
        abreast--;
    }
    return abreast < 1 ? 1 : abreast;
}

/* Small blocks share a task, all tasks as many. */
static void choose_tasks(const attn_plan *plan, struct schedule *s, double head_cost) {
    /* With the mean over heads, one task has all heads of its rows: their sum has one order. */
    const size_t heads = plan->mean_over_heads ? 1 : plan->heads;
    const size_t blocks = plan->batch * heads * s->blocks * s->splits;
    const double scores = (double)plan->n * (double)plan->m * score_cost(plan, s);
    const double cost = (head_cost + scores) * (double)plan->batch * (double)plan->heads;
    const double tasks = cost / TASK_WORK < 1 ? 1 : cost / TASK_WORK;
    s->per_task = tasks < (double)blocks ? ceil_div(blocks, (size_t)tasks) : 1;
    s->tasks[PHASE_ATTEND] = ceil_div(blocks, s->per_task);
}

/* d: of the widest rows of any head. */
static void choose_blocks(attn_plan *plan, struct schedule *s, size_t d, double head_cost) {
    const size_t size = attn_dtype_size(plan->dtype);
    const double calls = (double)plan->batch * (double)plan->heads;
    choose_tile(s, d, size);
    s->keys = s->keys < plan->m ? s->keys : plan->m;
    s->tiles = ceil_div(plan->m, s->keys);
    s->exact = s->tiles == 1 && calls * (double)plan->n * (double)plan->m <= EXACT_SCORES &&
               calls * head_cost <= EXACT_WORK;
    s->ld = s->keys;
    if (s->staged || s->keeps) {
        s->ld =
            ceil_div(plan->m, 16) * 16 + 16; /* no power of two: caches have few places for it */
        const size_t fit = WHOLE_BYTES / (s->ld * size);
        s->rows = s->rows < fit ? s->rows : fit < 8 ? 8 : fit / 8 * 8;
    }
    s->scratch_rows = s->rows < plan->n ? s->rows : plan->n; /* constant in n */
    const double row_cost = head_cost / (double)plan->n + (double)plan->m * score_cost(plan, s);
    if ((double)s->rows * row_cost > TASK_MOST) {
        const size_t fit = (size_t)(TASK_MOST / row_cost);
        s->rows = fit < 8 ? 8 : fit / 8 * 8;
    }
    /* Blocks of one size, in eights. */
    s->blocks = ceil_div(plan->n, s->rows);
    s->rows = ceil_div(ceil_div(plan->n, s->blocks), 8) * 8;
    s->rows = s->rows < plan->n ? s->rows : plan->n;
    s->blocks = ceil_div(plan->n, s->rows);
    s->packs_late = s->packs && s->blocks <= 2 && plan->heads == plan->kv_heads;
    s->packs = s->packs && !s->packs_late;
    choose_splits(plan, s, d);
    s->abreast = s->splits > 1 ? 1 : choose_abreast(plan, d);
    choose_tasks(plan, s, head_cost);
}

/* One after the other: the projected rows, packed keys, the heads' outputs, partial results. */
static bool lay_out(attn_plan *plan, struct schedule *s) {
    const size_t size = attn_dtype_size(plan->dtype), rows = plan->batch * plan->heads * plan->n;
    size_t *area = &s->workspace;
    bool fits = true;
    if (plan->projected) {
        fits = reserve(area, plan->project_q.rows * plan->project_q.ld, size, &s->q) &&
               reserve(area, plan->project_k.rows * plan->project_k.ld, size, &s->k) &&
               reserve(area, plan->project_v.rows * plan->project_v.ld, size, &s->v);
    }
    if (s->packs) {
        for (size_t h = 0; h < plan->heads; h++) {
            if (h % (plan->heads / plan->kv_heads) != 0) {
                plan->head[h].pack = plan->head[h - 1].pack;
                continue;
            }
            plan->head[h].pack = s->pack_batch;
            fits = fits &&
                   size_add(s->pack_batch, s->tiles * s->keys * plan->head[h].d, &s->pack_batch);
        }
        size_t all;
        fits = fits && size_mul(plan->batch, s->pack_batch, &all) &&
               reserve(area, all, size, &s->pack);
    }
    if (plan->has_out_projection && plan_wants(plan, ATTN_WANT(OUTPUT))) {
        fits = fits && reserve(area, plan->batch * plan->out_batch, size, &s->out);
    }
    if (s->splits > 1) {
        for (size_t h = 0; h < plan->heads; h++) {
            const size_t numbers = plan->head[h].d_v + 2;
            s->partial_row = numbers > s->partial_row ? numbers : s->partial_row;
        }
        fits =
            fits && reserve(area, rows * s->splits * s->partial_row, sizeof(double), &s->partial);
    }
    if (plan_wants(plan, ATTN_WANT(STATISTICS))) {
        fits = fits && reserve(area, plan->batch * plan->heads * s->blocks * 2, 3 * sizeof(double),
                               &s->moments);
    }
    return fits;
}

/* Scratch of one worker: a block of scores, one row in double, the state of the rows. d, d_v: of
 * the widest heads. */
static bool size_scratch(const attn_plan *plan, struct schedule *s, size_t d, size_t d_v) {
    const size_t size = attn_dtype_size(plan->dtype), rows = s->scratch_rows;
    size_t at;
    const bool top_k = plan_wants(plan, ATTN_WANT(TOP_K_INDICES) | ATTN_WANT(TOP_K_WEIGHTS));
    size_t tile = 0;
    if (plan->project_q.copies_tiles || plan->project_k.copies_tiles ||
        plan->project_v.copies_tiles || plan->project_out.copies_tiles) {
        tile = TILE_BYTES / size;
    }
    tile = s->packs_late && s->keys * d > tile ? s->keys * d : tile;
    return reserve(&s->scratch, rows * s->ld, size, &at) &&
           reserve(&s->scratch, s->staged ? plan->m : s->keys, sizeof(double), &s->row) &&
           reserve(&s->scratch, rows + d_v, sizeof(double), &s->state) &&
           reserve(&s->scratch, 2 * rows, size, &s->max) &&
           reserve(&s->scratch, s->keeps ? rows * s->tiles : 0, size, &s->top) &&
           reserve(&s->scratch, s->splits > 1 ? rows * d_v : 0, size, &s->part) &&
           reserve(&s->scratch, tile, size, &s->tile) &&
           reserve(&s->scratch, top_k ? plan->m : 0, sizeof(size_t), &s->order);
}

attn_status plan_schedule(attn_plan *plan, attn_error *error) {
    struct schedule *s = &plan->schedule;
    const size_t size = attn_dtype_size(plan->dtype);
    const double scores = (double)plan->n * (double)plan->m;
    double columns = 0;    /* of Q and V, all heads together */
    size_t d = 1, d_v = 1; /* of the widest heads */
    memset(s, 0, sizeof *s);
    for (size_t h = 0; h < plan->heads; h++) {
        const struct head *head = &plan->head[h];
        columns += (double)head->d + (double)head->d_v;
        d = head->d > d ? head->d : d;
        d_v = head->d_v > d_v ? head->d_v : d_v;
    }
    const double head_cost = scores * columns / (double)plan->heads;
    choose_paths(plan, s, head_cost);
    choose_blocks(plan, s, d > d_v ? d : d_v, head_cost);
    s->cost = projection_cost(&plan->project_q) + projection_cost(&plan->project_k) +
              projection_cost(&plan->project_v) + projection_cost(&plan->project_out) +
              (double)plan->batch * scores * (columns + (double)plan->heads * score_cost(plan, s));
    s->tasks[PHASE_PROJECT] = choose_projection(&plan->project_q, size) +
                              choose_projection(&plan->project_k, size) +
                              choose_projection(&plan->project_v, size);
    s->tasks[PHASE_OUT] =
        plan_wants(plan, ATTN_WANT(OUTPUT)) ? choose_projection(&plan->project_out, size) : 0;
    if (!lay_out(plan, s) || !size_scratch(plan, s, d, d_v)) {
        return plan_too_large(error);
    }
    const unsigned copies =
        ATTN_WANT(PRESENT_K) | ATTN_WANT(PRESENT_V) | ATTN_WANT(Q) | ATTN_WANT(K) | ATTN_WANT(V);
    s->tasks[PHASE_PACK] = s->packs || plan_wants(plan, copies) ? plan->batch * plan->kv_heads : 0;
    s->tasks[PHASE_MERGE] = s->splits > 1 ? plan->batch * plan->heads : 0;
    return ATTN_OK;
}

double attn_plan_cost(const attn_plan *plan) {
    return plan->schedule.cost;
}

size_t attn_plan_workspace(const attn_plan *plan) {
    return plan->schedule.workspace;
}

size_t attn_plan_scratch(const attn_plan *plan) {
    return plan->schedule.scratch;
}

size_t attn_plan_phases(const attn_plan *plan) {
    (void)plan;
    return PHASE_COUNT;
}

size_t attn_plan_tasks(const attn_plan *plan, size_t phase) {
    return phase < PHASE_COUNT ? plan->schedule.tasks[phase] : 0;
}
