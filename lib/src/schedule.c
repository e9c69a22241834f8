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
#include "engine/moments.h"
#include "engine/partial.h"
#include "plan_build.h"
#include "status.h"
#include "tensor.h"

enum {
    ALIGN = 64,
    DIRECT_QUERIES =
        4, /* up to so many queries, dot products are as fast as BLAS: memory decides */
    DIRECT_WORK =
        8192,          /* multiply-adds of one head up to which the calls of BLAS would cost more */
    PACK_QUERIES = 16, /* queries that use one key head from which packing it pays */
    SPLIT_QUERIES = 16,      /* up to so many queries, long keys are split over tasks */
    WIDE = 4096,             /* rows of more numbers than this are not kept in a scratch */
    LONG_QUERIES = 16,       /* queries of one task where rows are long */
    LONG_KEYS = 8192,        /* the least keys of one part of a long row, if they cost little */
    LONG_PARTS = 256,        /* the number of parts that a very long row aims at */
    LONG_MOST = 65536,       /* the most keys of one part */
    LONG_WORK = 1 << 28,     /* the most that one task of long rows costs: about 3 ms */
    LATE_BYTES = 1 << 18,    /* packed keys of one tile that a scratch may hold */
    PACK_NUMBERS = 1 << 18,  /* numbers that one task packs */
    COPY_NUMBERS = 1 << 17,  /* numbers that one task copies */
    MERGE_NUMBERS = 1 << 18, /* numbers that one task merges */
    RANK_NUMBERS = 1 << 15,  /* numbers of top_k that one task makes */
    PROJECT_WORK = 1 << 29,  /* multiply-adds of one task of a projection, about 7 ms */
    SPLIT_BYTES = 1 << 20,   /* keys and values of one part: half of a common L2 cache */
    EXACT_SCORES = 128,    /* scores of a call that is computed in double throughout: a teacher's */
    EXACT_WORK = 6144,     /* ... and its multiply-adds, and those of its projections */
    PART_KEYS = 4096,      /* of a row: so many sums in `real` lose no digit that is promised */
    WHOLE_BYTES = 1 << 20, /* whole rows of scores of one block: half of a common L2 cache */
    STREAM_BYTES = 1 << 23, /* weights that no L2 cache holds */
    TASK_WORK = 1 << 18,    /* multiply-adds of one task: some 3 us, more than handing it out */
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

/* Reserves `count` things of `size` bytes in an area; false if it cannot be addressed. */
static bool reserve(size_t *area, size_t count, size_t size, size_t *at) {
    size_t bytes;
    *at = *area;
    return size_mul(count, size, &bytes) && size_add(bytes, ALIGN - 1, &bytes) &&
           size_add(*area, bytes / ALIGN * ALIGN, area);
}

/* Multiply-adds of all projections. */
static double all_projections(const attn_plan *plan) {
    const struct projection *all[] = {&plan->project_q, &plan->project_k, &plan->project_v,
                                      &plan->project_out};
    double work = 0;
    for (int i = 0; i < 4; i++) {
        work += (double)all[i]->rows * (double)all[i]->inner * (double)all[i]->ld;
    }
    return work;
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
    while (p->task_rows > 1 && projection_cost(p, p->task_rows, p->task_columns) > PROJECT_WORK) {
        p->task_rows = (p->task_rows + 1) / 2;
    }
    while (p->task_columns > 1 &&
           projection_cost(p, p->task_rows, p->task_columns) > PROJECT_WORK) {
        p->task_columns /= 2;
    }
    if (!small && p->rows <= SPARSE) {
        const size_t share = p->ld / SHARES / NARROW * NARROW, most = p->task_columns;
        p->task_columns = share < NARROW ? NARROW : share;
        p->task_columns = p->task_columns > most ? most : p->task_columns;
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
    const unsigned weights = ATTN_WANT(WEIGHTS) | ATTN_WANT(ENTROPY) | ATTN_WANT(TOP_K_INDICES) |
                             ATTN_WANT(TOP_K_WEIGHTS);
    s->staged = plan_wants(plan, STAGES_OF_ALL_KEYS) || plan->normalization == ATTN_UNNORMALIZED;
    s->keeps = plan->normalization == ATTN_SOFTMAX && plan_wants(plan, weights);
    s->streams = s->keeps && plan_wants(plan, ATTN_WANT(WEIGHTS)) && !plan->mean_over_heads &&
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

/* Long rows are summed in parts of their keys. With few queries the parts are tasks, so that there
 * is work for many threads; with many queries where 8 of them alone would be too much for one task.
 */
static void choose_splits(const attn_plan *plan, struct schedule *s, size_t d) {
    const bool few = plan->n <= SPLIT_QUERIES;
    const size_t fit = SPLIT_BYTES / (2 * d * attn_dtype_size(plan->dtype));
    /* float64 has digits enough for longer parts, and sums of its largest numbers do not overflow
     * where they are not merged. */
    const bool wide = plan->dtype == ATTN_FLOAT64;
    const size_t part = few && (wide || fit < PART_KEYS) ? fit : PART_KEYS;
    const bool parts = plan->m >= 2 * part;
    s->part_keys = part < s->keys ? s->keys : part / s->keys * s->keys;
    s->splits = 1;
    s->split_keys = plan->m;
    if (s->staged || s->keeps) {
        s->adds_parts = parts;
        return;
    }
    const double block = (double)(s->rows < plan->n ? s->rows : plan->n) * cost_of_row(plan, s);
    if (few && parts) {
        s->split_keys = s->part_keys;
    } else if (block > TASK_MOST) {
        const double share = (double)plan->m * TASK_MOST / block;
        s->split_keys = share < (double)s->keys ? s->keys : (size_t)share / s->keys * s->keys;
    }
    s->splits = ceil_div(plan->m, s->split_keys);
    s->cut = s->splits > 1;
    s->adds_parts = parts && s->split_keys > s->part_keys;
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

/* How many things of one cost make a task: `work`, or more if there would be very many tasks. */
static size_t some_per_task(double cost, double count, double work) {
    const double least = cost * count / MOST_TASKS;
    work = least > work ? least : work;
    work = work > TASK_MOST ? TASK_MOST : work;
    const double some = work / (cost < 1 ? 1 : cost);
    return some < 1 ? 1 : some > count ? (size_t)count : (size_t)some;
}

/* Small blocks share a task, all tasks as many. */
static void choose_tasks(const attn_plan *plan, struct schedule *s) {
    /* With the mean over heads, one task has all heads of its rows: their sum has one order. */
    const bool together = plan->mean_over_heads && !s->long_rows;
    const size_t heads = together ? 1 : plan->heads;
    const size_t blocks = plan->batch * heads * s->blocks * s->splits;
    const double each = cost_of_attending(plan, s) / (double)blocks;
    s->per_task = s->exact ? blocks : some_per_task(each, (double)blocks, TASK_WORK);
    s->tasks[PHASE_ATTEND] = ceil_div(blocks, s->per_task);
}

/* Do rows have to be cut, since whole ones would be too large for a scratch or a task? */
static bool rows_are_long(const attn_plan *plan, const struct schedule *s, size_t d) {
    const size_t size = attn_dtype_size(plan->dtype);
    const bool kept = s->staged || s->keeps;
    /* The smallest task has one query of all heads, if their mean is wanted, else 8 queries. */
    const double rows = plan->mean_over_heads ? (double)plan->heads
                        : plan->n < 8         ? (double)plan->n
                                              : 8;
    return d > WIDE ||
           (kept && (plan->m > WHOLE_BYTES / 8 / size || rows * cost_of_row(plan, s) > TASK_MOST));
}

/* A task takes a few queries and a part of the keys, which cost LONG_WORK together. */
static void cut_long_rows(const attn_plan *plan, struct schedule *s) {
    const size_t m = plan->m;
    assert(s->keys > 0);
    s->exact = s->streams = false;
    s->cut = true;
    s->ld = s->keys;
    s->rows = plan->n < LONG_QUERIES ? plan->n : LONG_QUERIES;
    const double pair = cost_of_row(plan, s) / (double)m;
    while (s->rows > 1 && (double)s->rows * (double)s->keys * pair > LONG_WORK) {
        s->rows = (s->rows + 1) / 2;
    }
    const double most = LONG_WORK / ((double)s->rows * pair);
    size_t keys = m / LONG_PARTS < LONG_KEYS ? LONG_KEYS : m / LONG_PARTS;
    keys = keys > LONG_MOST ? LONG_MOST : keys;
    keys = (double)keys > most ? (most < 1 ? 1 : (size_t)most) : keys;
    keys = keys > s->keys ? keys / s->keys * s->keys : keys;
    s->split_keys = keys < m ? keys : m;
    s->splits = ceil_div(m, s->split_keys);
    s->scratch_rows = s->rows;
    if (plan->mean_over_heads && plan_wants(plan, ATTN_WANT(WEIGHTS))) {
        const double all = LONG_WORK / (pair * (double)plan->heads);
        s->mean_keys = all < 8 ? 8 : all > (double)s->split_keys ? s->split_keys : (size_t)all;
        s->mean_keys = s->mean_keys < m ? s->mean_keys : m;
        s->mean_parts = ceil_div(m, s->mean_keys);
    }
    if (plan_wants_top_k(plan)) {
        s->run_length = plan->top_k < s->split_keys ? plan->top_k : s->split_keys;
    }
}

/* Whole rows of scores are kept: as many queries as fit a cache. */
static void keep_whole_rows(const attn_plan *plan, struct schedule *s) {
    const size_t size = attn_dtype_size(plan->dtype);
    s->ld = ceil_div(plan->m, 16) * 16 + 16; /* no power of two: caches have few places for it */
    const size_t fit = WHOLE_BYTES / (s->ld * size);
    s->rows = s->rows < fit ? s->rows : fit < 8 ? 8 : fit / 8 * 8;
}

/* d: of the widest rows of any head. */
static void choose_blocks(attn_plan *plan, struct schedule *s, size_t d, double head_cost) {
    const size_t size = attn_dtype_size(plan->dtype);
    const double calls = (double)plan->batch * (double)plan->heads;
    choose_tile(s, d, size);
    s->keys = s->keys < plan->m ? s->keys : plan->m;
    s->tiles = ceil_div(plan->m, s->keys);
    s->exact = calls * (double)plan->n * (double)plan->m <= EXACT_SCORES &&
               calls * head_cost <= EXACT_WORK && all_projections(plan) <= EXACT_WORK;
    s->ld = s->keys;
    s->packs = s->packs && d <= WIDE;
    s->long_rows = rows_are_long(plan, s, d);
    if (s->long_rows) {
        cut_long_rows(plan, s);
    } else if (s->staged || s->keeps || s->exact) {
        keep_whole_rows(plan, s);
    }
    s->scratch_rows = s->rows < plan->n ? s->rows : plan->n; /* constant in n */
    if (!s->long_rows) {
        const double heads = plan->mean_over_heads ? (double)plan->heads : 1;
        const size_t least = plan->mean_over_heads ? 1 : 8;
        const double fit = TASK_MOST / (cost_of_row(plan, s) * heads);
        if ((double)s->rows > fit) {
            s->rows = fit < (double)least ? least : (size_t)fit / least * least;
        }
        choose_splits(plan, s, d);
    }
    /* Blocks of one size, in eights. */
    s->blocks = ceil_div(plan->n, s->rows);
    const size_t even = ceil_div(ceil_div(plan->n, s->blocks), 8) * 8;
    s->rows = even < s->rows ? even : s->rows;
    s->rows = s->rows < plan->n ? s->rows : plan->n;
    s->blocks = ceil_div(plan->n, s->rows);
    s->packs = s->packs && !s->exact;
    s->packs_late = s->packs && s->blocks <= 2 && plan->heads == plan->kv_heads && !s->long_rows &&
                    s->keys * d * size <= LATE_BYTES;
    s->packs = s->packs && !s->packs_late;
    s->abreast = s->splits > 1 ? 1 : choose_abreast(plan, d);
    choose_tasks(plan, s);
}

/* The tasks of PHASE_PACK. d: of the widest heads. */
static void choose_pack(const attn_plan *plan, struct schedule *s, size_t d) {
    static const unsigned results[COPY_COUNT] = {ATTN_WANT(Q), ATTN_WANT(K), ATTN_WANT(V),
                                                 ATTN_WANT(PRESENT_K), ATTN_WANT(PRESENT_V)};
    const size_t size_of_tile = s->keys * d;
    if (s->packs) {
        const size_t some = PACK_NUMBERS / size_of_tile;
        s->pack_tiles = some < 1 ? 1 : some > s->tiles ? s->tiles : some;
        s->pack_parts = ceil_div(s->tiles, s->pack_tiles);
        const size_t parts = plan->batch * plan->kv_heads * s->pack_parts;
        s->pack_per_task =
            some_per_task(cost_of_packing(plan, s) / (double)parts, (double)parts, TASK_WORK);
        s->pack_tasks = ceil_div(parts, s->pack_per_task);
    }
    s->tasks[PHASE_PACK] = s->pack_tasks;
    for (int which = 0; which < COPY_COUNT; which++) {
        if (!plan_wants(plan, results[which])) {
            continue;
        }
        size_t widest = 0;
        const size_t heads = which == COPY_Q ? plan->heads : plan->kv_heads;
        const size_t rows = which == COPY_Q                      ? plan->n
                            : which == COPY_K || which == COPY_V ? plan->m - plan->past
                                                                 : plan->m;
        for (size_t h = 0; h < heads; h++) {
            const struct head *head = &plan->head[which == COPY_Q ? h : h * (plan->heads / heads)];
            const size_t columns = which == COPY_V || which == COPY_PRESENT_V ? head->d_v : head->d;
            widest = columns > widest ? columns : widest;
        }
        s->copy_numbers[which] = COPY_NUMBERS;
        s->copy_parts[which] = ceil_div(rows * widest, COPY_NUMBERS);
        const size_t parts = plan->batch * heads * s->copy_parts[which];
        s->copy_per_task[which] =
            some_per_task(cost_of_copying((double)rows * (double)widest, (double)rows) /
                              (double)s->copy_parts[which],
                          (double)parts, TASK_WORK);
        s->copy_tasks[which] = ceil_div(parts, s->copy_per_task[which]);
        s->tasks[PHASE_PACK] += s->copy_tasks[which];
    }
    if (plan_wants(plan, ATTN_WANT(STATISTICS))) {
        const size_t counts[] = {plan->batch * plan->q.batch, plan->batch * plan->k.batch,
                                 plan->past == 0 ? 0 : plan->batch * plan->past_k.batch};
        for (int i = 0; i < 3; i++) {
            s->moment_tasks[i] = ceil_div(counts[i], MOMENT_NUMBERS);
            s->tasks[PHASE_PACK] += s->moment_tasks[i];
        }
    }
}

/* The tasks of the phases that come after parts of rows. d_v: of the widest heads. */
static void choose_after_cuts(const attn_plan *plan, struct schedule *s, size_t d_v) {
    const size_t rows = plan->batch * plan->heads * plan->n;
    if (!s->cut) {
        return;
    }
    s->partial_row = PARTIAL_HEAD;
    s->partial_row += plan_wants(plan, ATTN_WANT(OUTPUT)) ? d_v : 0;
    s->merge_columns = MERGE_NUMBERS / s->splits;
    s->merge_columns = s->merge_columns < 256 ? 256 : s->merge_columns;
    s->merge_parts = ceil_div(d_v, s->merge_columns);
    const size_t parts = rows * s->merge_parts;
    s->merge_per_task =
        some_per_task(cost_of_merging(plan, s) / (double)parts, (double)parts, TASK_WORK);
    s->tasks[PHASE_MERGE] = ceil_div(parts, s->merge_per_task);
    const bool blocks =
        s->run_length > 0 || (plan_wants(plan, ATTN_WANT(WEIGHTS)) && !plan->mean_over_heads);
    s->weigh_tasks = blocks && s->long_rows ? s->tasks[PHASE_ATTEND] : 0;
    s->tasks[PHASE_WEIGH] = s->weigh_tasks + plan->batch * plan->n * s->mean_parts;
    if (s->run_length > 0) {
        s->rank_numbers = RANK_NUMBERS;
        s->rank_parts = ceil_div(plan->top_k, RANK_NUMBERS);
        const size_t ranges = rows * s->rank_parts;
        s->rank_per_task =
            some_per_task(cost_of_ranking(plan, s) / (double)ranges, (double)ranges, TASK_WORK);
        s->tasks[PHASE_RANK] = ceil_div(ranges, s->rank_per_task);
    }
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
    if (s->exact && plan->projected) {
        fits =
            fits &&
            reserve(area, plan->project_q.rows * plan->project_q.ld, sizeof(double), &s->exact_q) &&
            reserve(area, plan->project_k.rows * plan->project_k.ld, sizeof(double), &s->exact_k) &&
            reserve(area, plan->project_v.rows * plan->project_v.ld, sizeof(double), &s->exact_v);
    }
    if (s->exact && plan->has_out_projection) {
        fits = fits && reserve(area, plan->batch * plan->out_batch, sizeof(double), &s->exact_out);
    }
    if (plan_wants(plan, ATTN_WANT(STATISTICS))) {
        fits = fits &&
               reserve(area, s->tasks[PHASE_ATTEND] * 2, sizeof(struct moments), &s->moments) &&
               reserve(area, s->moment_tasks[0] + s->moment_tasks[1] + s->moment_tasks[2],
                       sizeof(struct moments), &s->input_moments);
    }
    if (s->cut) {
        const bool again = s->tasks[PHASE_WEIGH] > 0;
        size_t parts, entries, entry = plan->dtype == ATTN_FLOAT32 ? 8 : 16;
        fits = fits && size_mul(rows, s->splits, &parts) &&
               size_mul(parts, s->partial_row, &entries) &&
               reserve(area, entries, sizeof(double), &s->partial) &&
               reserve(area, again ? 2 * rows : 0, sizeof(double), &s->totals) &&
               size_mul(parts, s->run_length, &entries) && reserve(area, entries, entry, &s->runs);
    }
    return fits;
}

/* Scratch of one worker: a block of scores, one row in double, the state of the rows. d, d_v: of
 * the widest heads. It has a bound whatever the call: rows that would be too large are long. */
static bool size_scratch(const attn_plan *plan, struct schedule *s, size_t d, size_t d_v) {
    const size_t size = attn_dtype_size(plan->dtype), rows = s->scratch_rows;
    const bool top_k = plan_wants_top_k(plan);
    size_t at, tile = 0, order = top_k ? 2 * plan->top_k : 0;
    if (plan->project_q.copies_tiles || plan->project_k.copies_tiles ||
        plan->project_v.copies_tiles || plan->project_out.copies_tiles) {
        tile = TILE_BYTES / size;
    }
    tile = s->packs_late && s->keys * d > tile ? s->keys * d : tile;
    const bool adds = s->adds_parts, whole = (s->staged && !s->long_rows) || s->exact;
    size_t wide = 0;
    if (s->exact) {
        const struct projection *all[] = {&plan->project_q, &plan->project_k, &plan->project_v};
        s->wide_row = d;
        for (int i = 0; i < 3; i++) {
            s->wide_row = all[i]->inner > s->wide_row ? all[i]->inner : s->wide_row;
        }
        wide = s->wide_row + plan->project_out.ld;
    }
    s->total_row = d_v + 2;
    if (s->long_rows) {
        order = top_k && s->splits > rows ? s->splits : rows;
    }
    return reserve(&s->scratch, rows * s->ld, size, &at) &&
           reserve(&s->scratch, whole ? plan->m : s->keys, sizeof(double), &s->row) &&
           reserve(&s->scratch, adds ? rows * s->total_row : 0, sizeof(double), &s->total) &&
           reserve(&s->scratch, wide, sizeof(double), &s->wide) &&
           reserve(&s->scratch, s->exact && plan->mean_over_heads ? rows * plan->m : 0,
                   sizeof(double), &s->mean) &&
           reserve(&s->scratch, s->long_rows ? s->keys : 0, sizeof(double), &s->logits) &&
           reserve(&s->scratch, rows + (s->long_rows ? 0 : rows * d_v), sizeof(double),
                   &s->state) &&
           reserve(&s->scratch, s->long_rows ? 0 : 2 * rows, sizeof(double), &s->slow) &&
           reserve(&s->scratch, 2 * rows, size, &s->max) &&
           reserve(&s->scratch, s->keeps && !s->long_rows ? rows * s->tiles : 0, size, &s->top) &&
           reserve(&s->scratch, adds || (s->cut && !s->long_rows) ? rows * d_v : 0, size,
                   &s->part) &&
           reserve(&s->scratch, tile, size, &s->tile) && reserve(&s->scratch, order, 8, &s->order);
}

attn_status plan_schedule(attn_plan *plan, attn_error *error) {
    struct schedule *s = &plan->schedule;
    const size_t size = attn_dtype_size(plan->dtype);
    size_t d = 1, d_v = 1; /* of the widest heads */
    memset(s, 0, sizeof *s);
    for (size_t h = 0; h < plan->heads; h++) {
        d = plan->head[h].d > d ? plan->head[h].d : d;
        d_v = plan->head[h].d_v > d_v ? plan->head[h].d_v : d_v;
    }
    const double head_cost = (double)plan->n * (double)plan->m * mean_columns(plan);
    choose_paths(plan, s, head_cost);
    choose_blocks(plan, s, d > d_v ? d : d_v, head_cost);
    choose_pack(plan, s, d);
    choose_after_cuts(plan, s, d_v);
    s->tasks[PHASE_PROJECT] = choose_projection(&plan->project_q, size) +
                              choose_projection(&plan->project_k, size) +
                              choose_projection(&plan->project_v, size);
    s->tasks[PHASE_OUT] =
        plan_wants(plan, ATTN_WANT(OUTPUT)) ? choose_projection(&plan->project_out, size) : 0;
    if (s->exact) { /* all of them in one task */
        s->tasks[PHASE_PROJECT] = s->tasks[PHASE_PROJECT] > 0;
        s->tasks[PHASE_OUT] = s->tasks[PHASE_OUT] > 0;
    }
    if (!lay_out(plan, s) || !size_scratch(plan, s, d, d_v)) {
        return attn_too_large(error);
    }
    s->cost = cost_of_plan(plan, s);
    return ATTN_OK;
}

double attn_plan_cost(const attn_plan *plan) {
    return plan->schedule.cost;
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
