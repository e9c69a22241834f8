/*
 * schedule.c - cuts a call into phases of independent tasks, by the thresholds of tuning.h;
 * schedule_linear.c does the same for linear attention, and plan_gradients.c for gradients. Its
 * decisions depend on the call and the kernels alone and never on the number of threads, so a call
 * gives the same bytes on any number of threads. A task costs at most TASK_MOST (partition.h),
 * about 13 ms, and its scratch has at most about 2 MiB. OpenBLAS computes the products with keys
 * that are not packed.
 */
#include "softmax/schedule.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "base/status.h"
#include "base/tensor.h"
#include "engine/partial.h"
#include "kernels/kernels.h"
#include "partition.h"
#include "plan_results.h"
#include "softmax/cost.h"
#include "softmax/memory_map.h"
#include "softmax/plan_empty.h"
#include "softmax/plan_gradients.h"
#include "tuning.h"

/* Cuts a projection into tasks. Returns the number of tasks. A tile of weights stays in an L2 cache
 * while up to PROJECT_ROWS rows pass over it. If the projections of a phase have few `columns`
 * together, their rows are cut, too. */
static size_t choose_projection(attn_plan *plan, int which, size_t columns) {
    struct projection *p = &plan->project[which];
    if (p->count == 0 || p->rows == 0) {
        p->task_rows = 1; /* of no rows */
        return 0;
    }
    p->task_rows = size_min(p->rows, PROJECT_ROWS);
    p->task_columns = PANELS_COLUMNS;
    while (p->task_rows > 1 &&
           cost_of_projecting(p, p->task_rows, p->task_columns) > PROJECT_WORK) {
        p->task_rows = (p->task_rows + 1) / 2;
    }
    while (p->task_rows >= 2 * LEAST_PROJECTED &&
           ceil_div(columns, PANELS_COLUMNS) * ceil_div(p->rows, p->task_rows) < ENOUGH_PROJECTED) {
        p->task_rows = (p->task_rows + 1) / 2;
    }
    while (p->task_columns > (p->panel > 0 ? p->panel : 1) &&
           cost_of_projecting(p, p->task_rows, p->task_columns) > PROJECT_WORK) {
        p->task_columns /= 2;
    }
    p->tile_inner = p->inner;
    if (p->panel == 0) {
        assert(PANELS_COLUMNS % plan->tiling.panel == 0);
        p->tile_inner = PANELS_ROWS;
        plan->schedule.weight_numbers = (size_t)PANELS_ROWS * PANELS_COLUMNS;
    }
    p->across = ceil_div(p->ld, p->task_columns);
    return ceil_div(p->rows, p->task_rows) * p->across;
}

size_t plan_panel(attn_dtype dtype) {
    const struct attn_kernels *kernels = attn_kernels();
    return dtype == ATTN_FLOAT32 ? kernels->panel_f32 : kernels->panel_f64;
}

static void choose_paths(attn_plan *plan, double head_cost) {
    struct path *path = &plan->path;
    const bool half = plan->half.type != NULL;
    path->materialized =
        half || plan_wants(plan, STAGES_OF_ALL_KEYS) || plan->options.normalization != ATTN_SOFTMAX;
    path->keeps_tiles = !half && plan->options.normalization == ATTN_SOFTMAX &&
                        plan_wants(plan, RESULTS_OF(RESULT_OF_ROW));
    path->streams = path->keeps_tiles && plan_wants(plan, ATTN_WANT(WEIGHTS)) &&
                    !plan->results.mean &&
                    (double)plan->batch * (double)plan->heads * (double)plan->n * (double)plan->m *
                            (double)attn_dtype_size(plan->dtype) >
                        STREAM_BYTES;
    path->plain = plan->rules.mask.stride[3] == plan->rules.mask.given && !plan->rules.bias.given &&
                  !plan_has_slopes(plan) && !plan_has(plan, INPUT_DECAY) && !plan_bends(plan) &&
                  plan->options.rounding == NULL && plan->options.normalization == ATTN_SOFTMAX;
    /* A plain call rounds the scale to the dtype. In one that is widened, a scaled score is too
     * large for float32 only if its score is. */
    const bool float64 = plan->dtype == ATTN_FLOAT64;
    const double least = float64 ? 0 : FLT_MIN;
    const double most = plan->widened.is ? 1 : float64 ? INFINITY : FLT_MAX;
    for (size_t h = 0; h < plan->heads; h++) {
        const double scale = plan->head[h].scale;
        path->plain = path->plain && scale > 0 && scale >= least && scale <= most;
    }
    plan->tiling.panel = plan_panel(plan->dtype);
    path->without_blas = !half && (path->small || plan->n <= ROW_QUERIES ||
                                   (plan->n < PACK_QUERIES && head_cost <= ROW_WORK));
    path->packs =
        !half && !path->without_blas && plan->n * (plan->heads / plan->kv_heads) >= PACK_QUERIES;
}

/* Cuts the keys of long rows into parts. With few queries each part is a task, so that there is
 * work for many threads. With many queries the parts are tasks only if 8 queries with all keys
 * would be too much for one task. */
static void choose_splits(attn_plan *plan, size_t d) {
    struct path *path = &plan->path;
    struct tiling *t = &plan->tiling;
    const bool few = plan->n <= SPLIT_QUERIES;
    const size_t fit = SPLIT_BYTES / (2 * d * attn_dtype_size(plan->dtype));
    /* float64 has enough digits for longer parts. A sum of its largest numbers does not overflow if
     * it is not merged from parts. */
    const bool float64 = plan->dtype == ATTN_FLOAT64;
    const size_t part = few && (float64 || fit < PART_KEYS) ? fit : PART_KEYS;
    const bool parts = plan->m >= 2 * part;
    t->part_keys = size_max(t->keys, part / t->keys * t->keys);
    t->splits = 1;
    t->split_keys = plan->m;
    if (path->materialized || path->keeps_tiles) {
        path->adds_parts = parts;
        return;
    }
    const double block = (double)size_min(t->rows, plan->n) * cost_of_row(plan);
    if (few && parts) {
        t->split_keys = t->part_keys;
    } else if (block > TASK_MOST) {
        const double share = (double)plan->m * TASK_MOST / block;
        t->split_keys = share < (double)t->keys ? t->keys : (size_t)share / t->keys * t->keys;
    }
    t->splits = ceil_div(plan->m, t->split_keys);
    path->splits_keys = t->splits > 1;
    path->adds_parts = parts && t->split_keys > t->part_keys;
}

/* Returns how many key heads take turns: as many as fit a cache together. The keys that one core
 * packed then need not move to another core. */
static size_t choose_heads_in_turn(const attn_plan *plan, size_t d) {
    const size_t fit = WHOLE_BYTES / (2 * d * plan->m * attn_dtype_size(plan->dtype));
    size_t heads = size_min(fit, plan->kv_heads);
    while (heads > 1 && plan->kv_heads % heads != 0) {
        heads--;
    }
    return size_max(1, heads);
}

/* Gives each task of PHASE_ATTEND the same number of blocks: more than one if blocks are small. */
static void choose_tasks(attn_plan *plan) {
    const struct path *path = &plan->path;
    const struct tiling *t = &plan->tiling;
    struct schedule *s = &plan->schedule;
    /* If the mean over heads is wanted, one task has all heads of its rows, so that their sum
     * always has the same order. */
    const bool together = plan->results.mean && !path->long_rows;
    const size_t heads = together ? 1 : plan->heads;
    const size_t blocks = plan->batch * heads * t->blocks * t->splits;
    const double cost = path->small ? 0 : cost_of_attending(plan); /* a small call is one task */
    s->attend = partition_units(blocks, cost);
    s->tasks[PHASE_ATTEND] = s->attend.tasks;
}

/* Are whole rows too large for a scratch or a task, so that they have to be split? */
static bool rows_are_long(const attn_plan *plan, size_t d) {
    const struct path *path = &plan->path;
    const size_t size = attn_dtype_size(plan->dtype);
    const bool kept = path->materialized || path->keeps_tiles;
    /* The smallest task has 8 queries of one head, or one query of all heads if their mean is
     * wanted. */
    const double rows = plan->results.mean ? (double)plan->heads
                        : plan->n < 8      ? (double)plan->n
                                           : 8;
    return d > MOST_KEPT ||
           (kept && (plan->m > WHOLE_BYTES / 8 / size || rows * cost_of_row(plan) > TASK_MOST));
}

/* Cuts long rows. A task takes some queries and a part of the keys, and costs at most LONG_WORK. */
static void cut_long_rows(attn_plan *plan) {
    struct path *path = &plan->path;
    struct tiling *t = &plan->tiling;
    struct schedule *s = &plan->schedule;
    const size_t m = plan->m;
    assert(t->keys > 0);
    path->streams = false;
    path->splits_keys = true;
    t->ld = t->keys;
    t->rows = size_min(plan->n, LONG_QUERIES);
    const double pair = cost_of_row(plan) / (double)m;
    while (t->rows > 1 && (double)t->rows * (double)t->keys * pair > LONG_WORK) {
        t->rows = (t->rows + 1) / 2;
    }
    const double most = LONG_WORK / ((double)t->rows * pair);
    size_t keys = size_min(LONG_MOST, size_max(LONG_KEYS, m / LONG_PARTS));
    keys = (double)keys > most ? (most < 1 ? 1 : (size_t)most) : keys;
    keys = keys > t->keys ? keys / t->keys * t->keys : keys;
    t->split_keys = size_min(keys, m);
    t->splits = ceil_div(m, t->split_keys);
    t->scratch_rows = t->rows;
    if (plan->results.mean && plan_wants(plan, ATTN_WANT(WEIGHTS))) {
        const double all = LONG_WORK / (pair * (double)plan->heads);
        s->weigh.mean_keys = all < 8                       ? 8
                             : all > (double)t->split_keys ? t->split_keys
                                                           : (size_t)all;
        s->weigh.mean_keys = size_min(s->weigh.mean_keys, m);
        s->weigh.mean_parts = ceil_div(m, s->weigh.mean_keys);
    }
    if (plan_wants_top_k(plan)) {
        s->rank.run = size_min(plan->results.top_k, t->split_keys);
    }
}

/* Makes blocks of whole rows of scores: as many queries as fit a cache. */
static void keep_whole_rows(attn_plan *plan) {
    struct tiling *t = &plan->tiling;
    const size_t size = attn_dtype_size(plan->dtype);
    /* The distance of rows is no power of two, because caches have few places for such rows. */
    t->ld = ceil_div(plan->m, 16) * 16 + 16;
    const size_t fit = WHOLE_BYTES / (t->ld * size);
    t->rows = t->rows < fit ? t->rows : size_max(8, fit / 8 * 8);
}

/* Cuts queries into blocks and keys into tiles and parts. The widest row has d numbers. */
static void choose_blocks(attn_plan *plan, size_t d) {
    struct path *path = &plan->path;
    struct tiling *t = &plan->tiling;
    const size_t size = attn_dtype_size(plan->dtype);
    t->rows = TILE_ROWS;
    t->keys = size_max(64, size_min(TILE_KEYS, PANELS_BYTES / (d * size) / 64 * 64));
    t->keys = size_min(t->keys, plan->m);
    t->tiles = ceil_div(plan->m, t->keys);
    t->ld = t->keys;
    path->packs = path->packs && d <= MOST_KEPT;
    path->long_rows = rows_are_long(plan, d);
    if (path->long_rows) {
        cut_long_rows(plan);
    } else if (path->materialized || path->keeps_tiles) {
        keep_whole_rows(plan);
    }
    t->scratch_rows = size_min(t->rows, plan->n);
    if (!path->long_rows) {
        const double heads = plan->results.mean ? (double)plan->heads : 1;
        const size_t least = plan->results.mean ? 1 : 8;
        const double fit = TASK_MOST / (cost_of_row(plan) * heads);
        if ((double)t->rows > fit) {
            t->rows = fit < (double)least ? least : (size_t)fit / least * least;
        }
        choose_splits(plan, d);
    }
    /* All blocks get the same number of rows, but for the last one. Two threads share few blocks
     * evenly if their number is even. */
    const double work = (double)plan->n * (double)plan->m * plan->schedule.columns;
    const size_t fewest = ceil_div(plan->n, t->rows);
    const bool odd = fewest > 1 ? fewest % 2 == 1 : plan->n >= HALF_QUERIES && work > HALF_WORK;
    const size_t blocks = fewest + (odd && fewest < FEW_BLOCKS);
    t->rows = size_min(ceil_div(plan->n, blocks), t->rows);
    t->blocks = ceil_div(plan->n, t->rows);
    const bool few =
        path->packs ? t->blocks <= 2 && plan->heads == plan->kv_heads : !path->without_blas;
    /* With a compute_dtype, a block rounds the keys that it packs. */
    path->packs_late =
        plan->half.type != NULL || (few && !path->long_rows && t->keys * d * size <= LATE_BYTES);
    path->packs = path->packs && !path->packs_late;
    t->heads_in_turn = t->splits > 1 ? 1 : choose_heads_in_turn(plan, d);
    choose_tasks(plan);
}

/* Counts the tasks of PHASE_PREPARE. */
static void choose_preparation(attn_plan *plan) {
    struct schedule *s = &plan->schedule;
    const struct extended *mask = &plan->extra.mask, *bias = &plan->extra.bias;
    const size_t rows[PREPARE_COUNT] = {
        plan_prepares_queries(plan) ? plan->in.q.items * plan->n : 0,
        plan_prepares_keys(plan) ? plan->in.k.items * plan->form.new_keys : 0,
        plan_prepares_values(plan) ? plan->in.v.items * plan->form.new_keys : 0,
        plan->extra.count > 0 ? plan->batch : 0,
        mask->items * mask->heads * mask->rows,
        bias->items * bias->heads * bias->rows,
        plan->decay.items * plan->decay.heads * ceil_div(plan->m, DECAY_KEYS),
    };
    for (int i = 0; i < PREPARE_COUNT; i++) {
        if (rows[i] == 0) {
            continue;
        }
        const double cost = cost_of_preparing(plan, (enum prepare)i) * (double)rows[i];
        s->prepare[i] = partition_units(rows[i], cost);
        s->tasks[PHASE_PREPARE] += s->prepare[i].tasks;
        s->input_cost += cost;
    }
}

/* Counts the tasks of PHASE_PACK. d is that of the widest head. */
static void choose_pack(attn_plan *plan, size_t d) {
    const struct path *path = &plan->path;
    const struct tiling *t = &plan->tiling;
    struct schedule *s = &plan->schedule;
    if (path->packs) {
        s->pack.tiles = size_min(t->tiles, size_max(1, PACK_NUMBERS / (t->keys * d)));
        s->pack.parts = ceil_div(t->tiles, s->pack.tiles);
        s->pack.all = partition_units(plan->in.k.items * plan->kv_heads * s->pack.parts,
                                      cost_of_packing(plan));
    }
    s->tasks[PHASE_PACK] = s->pack.all.tasks;
    for (int r = 0; r < ATTN_RESULT_COUNT; r++) {
        if (!result_is((attn_result)r, RESULT_COPY) || !plan_wants(plan, UINT64_C(1) << r)) {
            continue;
        }
        const size_t which = result_place((attn_result)r, RESULT_COPY);
        const struct copy_form form = copy_form_of(plan, (attn_result)r);
        const size_t rows = form.rows, matrices = form.items * form.heads;
        size_t widest = 0;
        for (size_t h = 0; h < form.heads; h++) {
            widest = size_max(widest, copy_columns(plan, &form, h));
        }
        s->copy[which].parts = ceil_div(rows * widest, COPY_NUMBERS);
        const double cost =
            (double)matrices * cost_of_copying((double)rows * (double)widest, (double)rows);
        s->input_cost += cost;
        s->copy[which].all = partition_units(matrices * s->copy[which].parts, cost);
        s->tasks[PHASE_PACK] += s->copy[which].all.tasks;
    }
    if (plan_wants(plan, ATTN_WANT(STATISTICS))) {
        const size_t counts[] = {plan->in.q.numbers, plan->in.k.numbers, plan->in.past_k.numbers};
        for (int i = 0; i < 3; i++) {
            s->moment_tasks[i] = ceil_div(counts[i], MOMENT_NUMBERS);
            s->tasks[PHASE_PACK] += s->moment_tasks[i];
        }
    }
}

/* Counts the tasks of the phases that follow split keys. d_v is that of the widest head. */
static void choose_after_cuts(attn_plan *plan, size_t d_v) {
    const struct path *path = &plan->path;
    struct schedule *s = &plan->schedule;
    const size_t rows = plan->batch * plan->heads * plan->n;
    s->merge.partial = PARTIAL_HEAD + (plan_makes_output(plan) ? d_v : 0);
    if (!path->splits_keys) {
        return;
    }
    s->merge.columns = size_max(256, MERGE_NUMBERS / plan->tiling.splits);
    s->merge.parts = ceil_div(d_v, s->merge.columns);
    s->merge.all = partition_units(rows * s->merge.parts, cost_of_merging(plan));
    s->tasks[PHASE_MERGE] = s->merge.all.tasks;
    const bool blocks =
        s->rank.run > 0 || (plan_wants(plan, ATTN_WANT(WEIGHTS)) && !plan->results.mean);
    s->weigh.tasks = blocks && path->long_rows ? s->tasks[PHASE_ATTEND] : 0;
    s->tasks[PHASE_WEIGH] = s->weigh.tasks + plan->batch * plan->n * s->weigh.mean_parts;
    if (s->rank.run > 0) {
        s->rank.parts = ceil_div(plan->results.top_k, RANK_NUMBERS);
        s->rank.all = partition_units(rows * s->rank.parts, cost_of_ranking(plan));
        s->tasks[PHASE_RANK] = s->rank.all.tasks;
    }
}

/* Refuses what long rows of broken sticks do not have. */
static attn_status check_sticks(const attn_plan *plan, attn_error *error) {
    return plan->options.normalization == ATTN_STICK_BREAKING && plan->path.long_rows &&
                   plan->results.mean
               ? attn_fail(error, ATTN_TOO_LARGE, "normalization",
                           "the mean over heads of normalization \"stick_breaking\" needs rows of "
                           "at most %d keys, and of fewer if the %zu heads have many columns, but "
                           "there are %zu",
                           WHOLE_BYTES / 8 / (int)attn_dtype_size(plan->dtype), plan->heads,
                           plan->m)
               : ATTN_OK;
}

/* Refuses long rows of a call with a compute_dtype. The widest row has d numbers. */
static attn_status refuse_long_rows(const attn_plan *plan, size_t d, attn_error *error) {
    if (d > MOST_KEPT) {
        return attn_fail(error, ATTN_TOO_LARGE, "compute_dtype",
                         "compute_dtype needs heads of at most %d columns, not %zu", MOST_KEPT, d);
    }
    return attn_fail(error, ATTN_TOO_LARGE, "compute_dtype",
                     "compute_dtype needs rows of at most %d keys, and of fewer if their %zu "
                     "columns are many, but there are %zu",
                     WHOLE_BYTES / 8 / (int)sizeof(float), d, plan->m);
}

attn_status plan_schedule(attn_plan *plan, attn_error *error) {
    struct schedule *s = &plan->schedule;
    const double heads = (double)plan->heads;
    size_t d = 1, d_v = 1; /* those of the widest heads */
    double keys = 0, values = 0;
    for (size_t h = 0; h < plan->heads; h++) {
        const struct head *head = &plan->head[h];
        d = size_max(d, head->d);
        d_v = size_max(d_v, head->d_v);
        keys += (double)head->d;
        values += (double)head->d_v;
    }
    s->columns = (keys + values) / heads;
    s->read_columns = plan_makes_output(plan) ? s->columns : keys / heads;
    const double head_cost = (double)plan->n * (double)plan->m * s->columns;
    plan->tiling.value_columns = size_min(d_v, VALUE_COLUMNS);
    choose_paths(plan, head_cost);
    if (plan->form.empty) { /* the path of the scores does not matter */
        plan->path = (struct path){0};
        s->tasks[PHASE_ATTEND] = plan_count_fills(plan);
    } else {
        choose_blocks(plan, size_max(d, d_v));
    }
    if (plan->half.type != NULL && plan->path.long_rows) {
        return refuse_long_rows(plan, size_max(d, d_v), error);
    }
    ATTN_TRY(check_sticks(plan, error));
    choose_preparation(plan);
    choose_pack(plan, d);
    choose_after_cuts(plan, d_v);
    plan_cut_gate(plan);
    plan_cut_gradients(plan, size_max(d, d_v));
    const struct projection *all = plan->project;
    const size_t columns = all[PROJECT_Q].ld + all[PROJECT_K].ld + all[PROJECT_V].ld;
    s->tasks[PHASE_PROJECT] = choose_projection(plan, PROJECT_Q, columns) +
                              choose_projection(plan, PROJECT_K, columns) +
                              choose_projection(plan, PROJECT_V, columns) +
                              (plan->gate.is ? choose_projection(plan, PROJECT_GATE, columns) : 0);
    s->tasks[PHASE_OUT] = plan_wants(plan, ATTN_WANT(OUTPUT))
                              ? choose_projection(plan, PROJECT_OUT, all[PROJECT_OUT].ld)
                              : 0;
    if (!memory_map_workspace(plan) || !memory_map_scratch(plan, d, d_v)) {
        return attn_too_large(error);
    }
    s->cost = cost_of_plan(plan);
    return ATTN_OK;
}
