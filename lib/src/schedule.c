/*
 * schedule.c - cuts a call into phases of independent tasks. It is the only place that decides tile
 * sizes and thresholds. Its decisions depend on the call and the kernels alone and never on the
 * number of threads, so a call gives the same bytes on any number of threads.
 */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "blas.h"
#include "engine/moments.h"
#include "engine/partial.h"
#include "engine/unit.h"
#include "kernels/kernels.h"
#include "plan_build.h"
#include "status.h"
#include "tensor.h"

enum {
    /* Dot products of up to this many queries are as fast as BLAS, because memory limits both. */
    ROW_QUERIES = 4,
    /* Calls of BLAS cost more than they save for a head of up to this many multiply-adds. */
    ROW_WORK = 8192,
    /* If at least this many queries use one key head, packing its keys saves time. */
    PACK_QUERIES = 16,
    /* The keys of long rows are split over tasks for up to this many queries. */
    SPLIT_QUERIES = 16,

    /* Rows of more numbers than this are not kept in a scratch. */
    WIDE = 4096,
    /* The most queries of one task of long rows. */
    LONG_QUERIES = 16,
    /* The fewest keys of one part of a long row, unless they cost more than LONG_WORK. */
    LONG_KEYS = 8192,
    /* A very long row is cut into this many parts, as long as they have at most LONG_MOST keys. */
    LONG_PARTS = 256,
    /* The most keys of one part of a long row. */
    LONG_MOST = 65536,
    /* The most multiply-adds of one task of long rows: about 3 ms. */
    LONG_WORK = 1 << 28,

    /* The most bytes of packed keys, those of one tile, in a scratch. */
    LATE_BYTES = 1 << 18,
    /* Numbers that one task packs, copies, merges, or finds for top_k. */
    PACK_NUMBERS = 1 << 18,
    COPY_NUMBERS = 1 << 17,
    MERGE_NUMBERS = 1 << 18,
    RANK_NUMBERS = 1 << 15,
    /* The most multiply-adds of one task of a projection, about 7 ms. */
    PROJECT_WORK = 1 << 29,
    /* The bytes of keys and values of one part: half of a common L2 cache. */
    SPLIT_BYTES = 1 << 20,
    /* An exact call, such as one for teaching, has at most EXACT_SCORES scores. Its attention costs
     * at most EXACT_WORK multiply-adds, and its projections cost at most as many. */
    EXACT_SCORES = 128,
    EXACT_WORK = 6144,
    /* A sum of this many numbers in `real` loses no digit that is promised. */
    PART_KEYS = 4096,
    /* The bytes of whole rows of scores of one block: half of a common L2 cache. */
    WHOLE_BYTES = 1 << 20,
    /* Weights of more bytes than this fit no L2 cache. */
    STREAM_BYTES = 1 << 23,
    /* The least multiply-adds of one task: about 3 us, more than the time to hand it out. */
    TASK_WORK = 1 << 18,
    /* The most multiply-adds of one task: about 13 ms, because other calls want their turn and a
     * call may be cancelled. */
    TASK_MOST = 1 << 30,
    /* TILE_ROWS rows pass over a tile of keys or weights. A tile of TILE_BYTES stays in an L1
     * cache. */
    TILE_ROWS = 96,
    TILE_BYTES = 1 << 15,
    /* The most bytes of packed keys, and of packed values, of one tile: a quarter of an L2 cache of
     * 512 KiB. */
    PANELS_BYTES = 1 << 17,
    /* The most columns of the values that are packed at once. */
    VALUE_COLUMNS = 512,
    /* A packed tile of weights has PANELS_ROWS rows and NARROW columns. PANELS_ROWS is a multiple
     * of PANEL_DEEP of every table, so prepacked weights give the same sums. NARROW is a multiple
     * of every panel. */
    PANELS_ROWS = 256,
    NARROW = 64,
    /* The fewest queries and keys for which packing for the matrix unit saves time. This is a
     * guess, because it was not measured yet. */
    UNIT_QUERIES = 32,
    UNIT_KEYS = 64,
    /* Blocks of a matrix unit have a multiple of so many queries, which are two of its tiles. */
    UNIT_ROWS = 32,
};

/* A number below 2^-126 may count as 0 in a product on the unit. With a scale up to this one and up
 * to WIDE columns, that changes a logit by less than 2^-44. */
#define UNIT_SCALE 0x1p20

static size_t ceil_div(size_t a, size_t b) {
    assert(b > 0);
    return a / b + (a % b != 0);
}

/*
 * Chooses the size of tiles for rows of d (or d_v) numbers of `size` bytes. Both products of a tile
 * have the sizes rows, keys and d.
 *
 * The packed keys or values of a tile share an L2 cache with its scores. Measured on a Zen 3 (AVX2)
 * with panels: with half of the keys a call is 3 to 10 % slower, with 50 % more rows 1 % faster.
 *
 * For small products OpenBLAS has kernels that do not pack; with them it reaches the peak of the
 * machine. They are fastest if the number of keys is a multiple of 64. Measured on a Zen 5 with
 * OpenBLAS's cores SkylakeX (AVX-512, with such kernels) and Haswell (AVX2, without them): with
 * half of the rows a call is up to 4 % slower, with half of the bytes 3 %, with twice the bytes
 * 5 %, and 8 % in float64 with SkylakeX.
 */
static void choose_tile(struct schedule *s, size_t d, size_t size) {
    const size_t bytes = s->panel > 0 ? PANELS_BYTES : TILE_BYTES;
    s->keys = bytes / (d * size) / 64 * 64;
    s->keys = s->keys > 256 ? 256 : s->keys < 64 ? 64 : s->keys;
    s->rows = s->panel > 0 ? TILE_ROWS : BLAS_SMALL_PRODUCT / (s->keys * d);
    s->rows = s->rows > TILE_ROWS ? TILE_ROWS : s->rows < 8 ? 8 : s->rows / 8 * 8;
}

/* The multiply-adds of all projections. */
static double all_projections(const attn_plan *plan) {
    const struct projection *all[] = {&plan->project_q, &plan->project_k, &plan->project_v,
                                      &plan->project_out};
    double work = 0;
    for (int i = 0; i < 4; i++) {
        work += (double)all[i]->rows * (double)all[i]->inner * (double)all[i]->ld;
    }
    return work;
}

enum {
    SPARSE = 32,             /* rows of X that are too few for a copy of the weights */
    SPARSE_BYTES = 48 << 10, /* the same limit, in rows of X times bytes of a row of the weights */
    PAGE_BYTES = 4096
};

/* Should weights of numbers of `size` bytes be packed in panels? The copy costs more than it saves
 * if X has few rows. The farther the rows of the weights lie apart, the fewer rows are enough,
 * because each row of a panel that is not packed may be on a page of its own. Measured on a Zen 3
 * with d_model from 384 to 2048 and 6 to 24 rows: with the copy a call is 1.3 to 2.4 times as fast
 * if the rows of the weights are a page apart or more. If they are nearer, and below both limits,
 * it is 0.8 to 0.95 times as fast. */
static bool packs_weights(const struct projection *p, size_t size) {
    const size_t apart = p->pieces[0].cols * size;
    return p->out_in || p->rows > SPARSE || (p->rows > 1 && apart >= PAGE_BYTES) ||
           (double)p->rows * (double)apart > SPARSE_BYTES;
}

/*
 * Cuts a projection of numbers of `size` bytes into tasks. Returns the number of tasks.
 *
 * A tile of weights that is packed in panels stays in an L2 cache while up to TALL rows pass over
 * it.
 *
 * With OpenBLAS's kernels for small products, a tile of NARROW columns of the weights stays in an
 * L1 cache while up to TALL rows pass over it, TILE_ROWS at a time. The tile is copied first,
 * because rows of weights lie pages apart. For up to SPARSE rows the copy costs more than it saves.
 * Weights in the form out_in are copied as soon as their product, which is a transposed one, would
 * be too large for these kernels without a copy.
 *
 * Without these kernels, products are large, up to SQUARE rows and columns, because each product
 * packs its rows anew. The columns of up to SPARSE rows are cut into SHARES, so that every thread
 * gets some. Measured on a Zen 5 with OpenBLAS's cores SkylakeX and Haswell, d_model 768 and 4096,
 * 16 to 2048 rows.
 */
static size_t choose_projection(struct projection *p, struct schedule *s, size_t size) {
    enum {
        TALL = 512,
        SQUARE = 256,
        SHARES = 6
    };
    if (p->count == 0 || p->rows == 0) {
        return 0;
    }
    const bool panels = s->panel > 0, small = panels || blas_has_small();
    const size_t task_rows = small ? TALL : SQUARE;
    p->task_rows = p->rows < task_rows ? p->rows : task_rows;
    p->task_columns = small ? NARROW : SQUARE;
    while (p->task_rows > 1 &&
           cost_of_projecting(p, p->task_rows, p->task_columns) > PROJECT_WORK) {
        p->task_rows = (p->task_rows + 1) / 2;
    }
    while (p->task_columns > (p->prepacked ? s->panel : 1) &&
           cost_of_projecting(p, p->task_rows, p->task_columns) > PROJECT_WORK) {
        p->task_columns /= 2;
    }
    if (!small && p->rows <= SPARSE) {
        const size_t share = p->ld / SHARES / NARROW * NARROW, most = p->task_columns;
        p->task_columns = share < NARROW ? NARROW : share;
        p->task_columns = p->task_columns > most ? most : p->task_columns;
    }
    p->tile_columns = p->task_columns;
    p->tile_rows = p->task_rows;
    p->tile_inner = p->inner;
    if (panels && !p->prepacked) {
        assert(NARROW % s->panel == 0);
        p->copies_tiles = packs_weights(p, size);
        p->tile_inner = PANELS_ROWS;
        s->weight_numbers = (size_t)PANELS_ROWS * NARROW;
    } else if (small && !panels) {
        p->copies_tiles = p->rows > (p->out_in ? BLAS_SMALL_TRANSPOSED / NARROW : SPARSE);
        p->tile_rows = p->copies_tiles ? TILE_ROWS : p->task_rows;
        p->tile_inner =
            (p->copies_tiles ? TILE_BYTES / size : BLAS_SMALL_PRODUCT / p->task_rows) / NARROW;
        s->weight_numbers = p->copies_tiles ? TILE_BYTES / size : s->weight_numbers;
    }
    p->across = ceil_div(p->ld, p->task_columns);
    return ceil_div(p->rows, p->task_rows) * p->across;
}

/* OpenBLAS's kernels for small products are as fast as panels in float64, too. */
size_t plan_panel(attn_dtype dtype) {
    const struct attn_kernels *kernels = attn_kernels();
    return dtype == ATTN_FLOAT32 ? kernels->panel_f32 : blas_has_small() ? 0 : kernels->panel_f64;
}

static void choose_paths(attn_plan *plan, struct schedule *s, double head_cost) {
    const unsigned weights = ATTN_WANT(WEIGHTS) | ATTN_WANT(ENTROPY) | ATTN_WANT(TOP_K_INDICES) |
                             ATTN_WANT(TOP_K_WEIGHTS);
    s->staged = plan_wants(plan, STAGES_OF_ALL_KEYS) || plan->normalization == ATTN_UNNORMALIZED;
    s->keeps_tiles = plan->normalization == ATTN_SOFTMAX && plan_wants(plan, weights);
    /* Each row must begin with a cache line, because a line that is stored in two parts is slow. */
    s->streams_weights = s->keeps_tiles && plan_wants(plan, ATTN_WANT(WEIGHTS)) &&
                         !plan->mean_over_heads &&
                         plan->m * attn_dtype_size(plan->dtype) % ATTN_ALIGNMENT == 0 &&
                         (double)plan->batch * (double)plan->heads * (double)plan->n *
                                 (double)plan->m * (double)attn_dtype_size(plan->dtype) >
                             STREAM_BYTES;
    s->plain = plan->rules.mask.stride[3] == (plan->rules.mask.data != NULL) &&
               plan->rules.bias.data == NULL && plan->slopes == NULL && plan->softcap == 0 &&
               plan->normalization == ATTN_SOFTMAX;
    for (size_t h = 0; h < plan->heads; h++) { /* a plain call rounds the scale to the dtype */
        const double scale = plan->head[h].scale;
        s->plain = s->plain && scale > 0 &&
                   (plan->dtype == ATTN_FLOAT64 || (scale >= FLT_MIN && scale <= FLT_MAX));
    }
    s->panel = plan_panel(plan->dtype);
    s->without_blas = plan->n <= ROW_QUERIES || (plan->n < PACK_QUERIES && head_cost <= ROW_WORK);
    s->packs = !s->without_blas && plan->n * (plan->heads / plan->kv_heads) >= PACK_QUERIES;
    s->unit = attn_kernels()->tiles != NULL && plan->dtype == ATTN_FLOAT32 && !s->staged &&
              !s->without_blas && plan->n >= UNIT_QUERIES && plan->m >= UNIT_KEYS;
    for (size_t h = 0; h < plan->heads; h++) {
        s->unit = s->unit && fabs(plan->head[h].scale) <= UNIT_SCALE;
    }
}

/* Cuts the keys of long rows into parts. With few queries each part is a task, so that there is
 * work for many threads. With many queries the parts are tasks only if 8 queries with all keys
 * would be too much for one task. */
static void choose_splits(const attn_plan *plan, struct schedule *s, size_t d) {
    const bool few = plan->n <= SPLIT_QUERIES;
    const size_t fit = SPLIT_BYTES / (2 * d * attn_dtype_size(plan->dtype));
    /* float64 has enough digits for longer parts. A sum of its largest numbers does not overflow if
     * it is not merged from parts. */
    const bool wide = plan->dtype == ATTN_FLOAT64;
    const size_t part = few && (wide || fit < PART_KEYS) ? fit : PART_KEYS;
    const bool parts = plan->m >= 2 * part;
    s->part_keys = part < s->keys ? s->keys : part / s->keys * s->keys;
    s->splits = 1;
    s->split_keys = plan->m;
    if (s->staged || s->keeps_tiles) {
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

/* Returns how many key heads take turns: as many as fit a cache together. The keys that one core
 * packed then need not move to another core. */
static size_t choose_heads_in_turn(const attn_plan *plan, size_t d) {
    const size_t fit = WHOLE_BYTES / (2 * d * plan->m * attn_dtype_size(plan->dtype));
    size_t heads = fit < plan->kv_heads ? fit : plan->kv_heads;
    while (heads > 1 && plan->kv_heads % heads != 0) {
        heads--;
    }
    return heads < 1 ? 1 : heads;
}

/* Returns how many of `count` units make a task, if each unit costs `cost` and a task should cost
 * `work`. Tasks become larger if there would be more than MOST_TASKS of them. */
static size_t some_per_task(double cost, double count, double work) {
    const double least = cost * count / MOST_TASKS;
    work = least > work ? least : work;
    work = work > TASK_MOST ? TASK_MOST : work;
    const double some = work / (cost < 1 ? 1 : cost);
    return some < 1 ? 1 : some > count ? (size_t)count : (size_t)some;
}

/* Gives each task of PHASE_ATTEND the same number of blocks: more than one if blocks are small. */
static void choose_tasks(const attn_plan *plan, struct schedule *s) {
    /* If the mean over heads is wanted, one task has all heads of its rows, so that their sum
     * always has the same order. */
    const bool together = plan->mean_over_heads && !s->long_rows;
    const size_t heads = together ? 1 : plan->heads;
    const size_t blocks = plan->batch * heads * s->blocks * s->splits;
    const double each = cost_of_attending(plan, s) / (double)blocks;
    s->blocks_per_task = s->exact ? blocks : some_per_task(each, (double)blocks, TASK_WORK);
    s->tasks[PHASE_ATTEND] = ceil_div(blocks, s->blocks_per_task);
}

/* Are whole rows too large for a scratch or a task, so that they have to be cut? */
static bool rows_are_long(const attn_plan *plan, const struct schedule *s, size_t d) {
    const size_t size = attn_dtype_size(plan->dtype);
    const bool kept = s->staged || s->keeps_tiles;
    /* The smallest task has 8 queries of one head, or one query of all heads if their mean is
     * wanted. */
    const double rows = plan->mean_over_heads ? (double)plan->heads
                        : plan->n < 8         ? (double)plan->n
                                              : 8;
    return d > WIDE ||
           (kept && (plan->m > WHOLE_BYTES / 8 / size || rows * cost_of_row(plan, s) > TASK_MOST));
}

/* Cuts long rows. A task takes some queries and a part of the keys, and costs at most LONG_WORK. */
static void cut_long_rows(const attn_plan *plan, struct schedule *s) {
    const size_t m = plan->m;
    assert(s->keys > 0);
    s->exact = s->streams_weights = false;
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

/* Makes blocks of whole rows of scores: as many queries as fit a cache. */
static void keep_whole_rows(const attn_plan *plan, struct schedule *s) {
    const size_t size = attn_dtype_size(plan->dtype);
    /* The distance of rows is no power of two, because caches have few places for such rows. */
    s->ld = ceil_div(plan->m, 16) * 16 + 16;
    const size_t fit = WHOLE_BYTES / (s->ld * size);
    s->rows = s->rows < fit ? s->rows : fit < 8 ? 8 : fit / 8 * 8;
}

/* Cuts queries into blocks and keys into tiles and parts. The widest row has d numbers. */
static void choose_blocks(attn_plan *plan, struct schedule *s, size_t d, double head_cost) {
    const size_t size = attn_dtype_size(plan->dtype);
    const double calls = (double)plan->batch * (double)plan->heads;
    choose_tile(s, d, size);
    s->keys = s->keys < plan->m ? s->keys : plan->m;
    s->tiles = ceil_div(plan->m, s->keys);
    s->unit = s->unit && s->keys * d * size <= LATE_BYTES;
    s->exact = calls * (double)plan->n * (double)plan->m <= EXACT_SCORES &&
               calls * head_cost <= EXACT_WORK && all_projections(plan) <= EXACT_WORK;
    s->ld = s->keys;
    s->packs = s->packs && d <= WIDE;
    s->long_rows = rows_are_long(plan, s, d);
    s->unit = s->unit && !s->long_rows && !s->exact;
    if (s->long_rows) {
        cut_long_rows(plan, s);
    } else if (s->staged || s->keeps_tiles || s->exact) {
        keep_whole_rows(plan, s);
    }
    s->scratch_rows = s->rows < plan->n ? s->rows : plan->n;
    if (!s->long_rows) {
        const double heads = plan->mean_over_heads ? (double)plan->heads : 1;
        const size_t least = plan->mean_over_heads ? 1 : 8;
        const double fit = TASK_MOST / (cost_of_row(plan, s) * heads);
        if ((double)s->rows > fit) {
            s->rows = fit < (double)least ? least : (size_t)fit / least * least;
        }
        choose_splits(plan, s, d);
    }
    /* All blocks get the same number of rows, a multiple of `step`. */
    const size_t step = s->unit ? UNIT_ROWS : 8;
    s->blocks = ceil_div(plan->n, s->rows);
    const size_t even = ceil_div(ceil_div(plan->n, s->blocks), step) * step;
    s->rows = even < s->rows ? even : s->rows;
    s->rows = s->rows < plan->n ? s->rows : plan->n;
    s->blocks = ceil_div(plan->n, s->rows);
    s->packs = s->packs && !s->exact;
    const bool few = s->packs ? s->blocks <= 2 && plan->heads == plan->kv_heads
                              : s->panel > 0 && !s->without_blas && !s->exact;
    s->packs_late = (few || s->unit) && !s->long_rows && s->keys * d * size <= LATE_BYTES;
    s->packs = s->packs && !s->packs_late;
    /* The unit packs the keys of each batch item up to its length. */
    s->pack_items = s->unit && plan->rules.lengths != NULL ? plan->batch : kv_items(plan);
    s->heads_in_turn = s->splits > 1 ? 1 : choose_heads_in_turn(plan, d);
    choose_tasks(plan, s);
}

/* Counts the tasks of PHASE_PREPARE. */
static void choose_preparation(const attn_plan *plan, struct schedule *s) {
    const struct extended *mask = &plan->mask_rows, *bias = &plan->bias_rows;
    const size_t rows[PREPARE_COUNT] = {
        plan_turns_queries(plan) ? plan->batch * plan->n : 0,
        plan_turns_keys(plan) ? kv_items(plan) * plan->new_keys : 0,
        plan->extra > 0 ? plan->batch : 0,
        mask->items * mask->heads * mask->rows,
        bias->items * bias->heads * bias->rows,
    };
    for (int i = 0; i < PREPARE_COUNT; i++) {
        const double cost = cost_of_preparing(plan, (enum prepare)i);
        s->prepare_rows[i] = rows[i] == 0 ? 1 : some_per_task(cost, (double)rows[i], TASK_WORK);
        s->prepare_tasks[i] = ceil_div(rows[i], s->prepare_rows[i]);
        s->tasks[PHASE_PREPARE] += s->prepare_tasks[i];
        s->prepare_cost += cost * (double)rows[i];
    }
}

/* Counts the tasks of PHASE_PACK. d is that of the widest head. */
static void choose_pack(const attn_plan *plan, struct schedule *s, size_t d) {
    static const unsigned results[COPY_COUNT] = {ATTN_WANT(Q), ATTN_WANT(K), ATTN_WANT(V),
                                                 ATTN_WANT(PRESENT_K), ATTN_WANT(PRESENT_V)};
    const size_t size_of_tile = s->keys * d;
    if (s->packs || s->unit) {
        const size_t some = PACK_NUMBERS / size_of_tile;
        s->pack_tiles = some < 1 ? 1 : some > s->tiles ? s->tiles : some;
        s->pack_parts = ceil_div(s->tiles, s->pack_tiles);
        const size_t parts = s->pack_items * plan->kv_heads * s->pack_parts;
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
                            : which == COPY_K || which == COPY_V ? plan->new_keys
                                                                 : present_rows(plan);
        for (size_t h = 0; h < heads; h++) {
            const struct head *head = &plan->head[which == COPY_Q ? h : h * (plan->heads / heads)];
            const size_t columns = which == COPY_V || which == COPY_PRESENT_V ? head->d_v : head->d;
            widest = columns > widest ? columns : widest;
        }
        s->copy_numbers[which] = COPY_NUMBERS;
        s->copy_parts[which] = ceil_div(rows * widest, COPY_NUMBERS);
        const size_t items = which == COPY_Q ? plan->batch : kv_items(plan);
        const size_t parts = items * heads * s->copy_parts[which];
        s->copy_per_task[which] =
            some_per_task(cost_of_copying((double)rows * (double)widest, (double)rows) /
                              (double)s->copy_parts[which],
                          (double)parts, TASK_WORK);
        s->copy_tasks[which] = ceil_div(parts, s->copy_per_task[which]);
        s->tasks[PHASE_PACK] += s->copy_tasks[which];
    }
    if (plan_wants(plan, ATTN_WANT(STATISTICS))) {
        const size_t counts[] = {plan->q.numbers, plan->k.numbers, plan->past_k.numbers};
        for (int i = 0; i < 3; i++) {
            s->moment_tasks[i] = ceil_div(counts[i], MOMENT_NUMBERS);
            s->tasks[PHASE_PACK] += s->moment_tasks[i];
        }
    }
}

/* Counts the tasks of the phases that follow cut keys. d_v is that of the widest head. */
static void choose_after_cuts(const attn_plan *plan, struct schedule *s, size_t d_v) {
    const size_t rows = plan->batch * plan->heads * plan->n;
    if (!s->cut) {
        return;
    }
    s->partial_numbers = PARTIAL_HEAD;
    s->partial_numbers += plan_wants(plan, ATTN_WANT(OUTPUT)) ? d_v : 0;
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

attn_status plan_schedule(attn_plan *plan, attn_error *error) {
    struct schedule *s = &plan->schedule;
    const size_t size = attn_dtype_size(plan->dtype);
    size_t d = 1, d_v = 1; /* those of the widest heads */
    memset(s, 0, sizeof *s);
    for (size_t h = 0; h < plan->heads; h++) {
        d = plan->head[h].d > d ? plan->head[h].d : d;
        d_v = plan->head[h].d_v > d_v ? plan->head[h].d_v : d_v;
    }
    const double head_cost = (double)plan->n * (double)plan->m * cost_mean_columns(plan);
    s->value_columns = d_v < VALUE_COLUMNS ? d_v : VALUE_COLUMNS;
    choose_paths(plan, s, head_cost);
    choose_blocks(plan, s, d > d_v ? d : d_v, head_cost);
    choose_preparation(plan, s);
    choose_pack(plan, s, d);
    choose_after_cuts(plan, s, d_v);
    s->tasks[PHASE_PROJECT] = choose_projection(&plan->project_q, s, size) +
                              choose_projection(&plan->project_k, s, size) +
                              choose_projection(&plan->project_v, s, size);
    s->tasks[PHASE_OUT] =
        plan_wants(plan, ATTN_WANT(OUTPUT)) ? choose_projection(&plan->project_out, s, size) : 0;
    if (s->exact) { /* one task computes all projections of a phase */
        s->tasks[PHASE_PROJECT] = s->tasks[PHASE_PROJECT] > 0;
        s->tasks[PHASE_OUT] = s->tasks[PHASE_OUT] > 0;
    }
    if (!memory_map_workspace(plan) || !memory_map_scratch(plan, d, d_v)) {
        return attn_too_large(error);
    }
    s->cost = cost_of_plan(plan, s);
    return ATTN_OK;
}

double attn_plan_cost(const attn_plan *plan) {
    return plan->schedule.cost;
}

size_t attn_plan_scratch(const attn_plan *plan) {
    return plan->schedule.scratch.bytes;
}

size_t attn_plan_phases(const attn_plan *plan) {
    (void)plan;
    return PHASE_COUNT;
}

size_t attn_plan_tasks(const attn_plan *plan, size_t phase) {
    return phase < PHASE_COUNT ? plan->schedule.tasks[phase] : 0;
}
