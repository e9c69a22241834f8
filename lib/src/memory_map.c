/*
 * memory_map.c fills the maps of memory_map.h for a call that schedule.c has cut into tasks.
 */
#include "memory_map.h"

#include "engine/moments.h"
#include "engine/unit.h"
#include "plan_build.h"
#include "tensor.h"

/* Reserves an area of `count` elements of `size` bytes at the end of a memory, whose size grows.
 * Returns false if the memory could not be addressed. */
static bool reserve(size_t *memory, size_t count, size_t size, size_t *at) {
    size_t bytes;
    *at = *memory;
    return size_mul(count, size, &bytes) && size_add(bytes, ATTN_ALIGNMENT - 1, &bytes) &&
           size_add(*memory, bytes / ATTN_ALIGNMENT * ATTN_ALIGNMENT, memory);
}

/* Returns how many columns `columns` columns take when they are packed. */
static size_t packed_columns(const attn_plan *plan, size_t columns) {
    const struct tiling *t = &plan->tiling;
    return t->panel == 0 ? columns : (columns + t->panel - 1) / t->panel * t->panel;
}

/* Returns the numbers of a mask or bias for all keys. They fit: the plan checked all its scores. */
static size_t extended_numbers(const attn_plan *plan, const struct extended *rows) {
    return rows->items * rows->heads * rows->rows * plan->m;
}

bool memory_map_workspace(attn_plan *plan) {
    const struct path *path = &plan->path;
    const struct tiling *t = &plan->tiling;
    struct schedule *s = &plan->schedule;
    const size_t size = attn_dtype_size(plan->dtype), rows = plan->batch * plan->heads * plan->n;
    struct workspace_map *map = &s->workspace;
    size_t *end = &map->bytes;
    const size_t q = plan->form.projected || plan_turns_queries(plan) ? plan->in.q.numbers : 0;
    const size_t k = plan->form.projected || plan_turns_keys(plan) ? plan->in.k.numbers : 0;
    const size_t v = plan->form.projected ? plan->in.v.numbers : 0;
    bool fits = reserve(end, q, size, &map->q) && reserve(end, k, size, &map->k) &&
                reserve(end, v, size, &map->v) &&
                reserve(end, extended_numbers(plan, &plan->extra.mask), 1, &map->mask) &&
                reserve(end, extended_numbers(plan, &plan->extra.bias), size, &map->bias);
    if (path->packs || path->unit) {
        for (size_t h = 0; h < plan->heads; h++) {
            if (h % (plan->heads / plan->kv_heads) != 0) {
                plan->head[h].pack = plan->head[h - 1].pack;
                continue;
            }
            plan->head[h].pack = s->pack.batch;
            const size_t tile = path->unit
                                    ? unit_tile_parts(t->keys, plan->head[h].d, plan->head[h].d_v)
                                    : packed_columns(plan, t->keys) * plan->head[h].d;
            size_t tiles;
            fits = fits && size_mul(t->tiles, tile, &tiles) &&
                   size_add(s->pack.batch, tiles, &s->pack.batch);
        }
    }
    if (path->unit) {
        const size_t tiles = s->pack.items * plan->kv_heads * t->tiles;
        size_t all;
        fits = fits && size_mul(s->pack.items, s->pack.batch, &all) &&
               reserve(end, all, sizeof(uint16_t), &map->unit_tiles) &&
               reserve(end, 2 * tiles, sizeof(float), &map->unit_sizes);
    }
    if (path->packs) {
        /* A product that begins inside of a panel reads beyond its last panel. */
        const size_t beyond = plan->rules.window[0] >= 0 || path->long_rows ? t->panel : 0;
        size_t all;
        fits = fits && size_mul(s->pack.items, s->pack.batch, &all) &&
               size_add(all, beyond, &all) && reserve(end, all, size, &map->packed_keys);
    }
    if (plan->project[PROJECT_OUT].count > 0 && plan_wants(plan, ATTN_WANT(OUTPUT))) {
        fits = fits && reserve(end, plan->batch * plan->out.batch, size, &map->heads_out);
    }
    if (path->exact) {
        fits = fits && reserve(end, q, sizeof(double), &map->exact_q) &&
               reserve(end, k, sizeof(double), &map->exact_k) &&
               reserve(end, v, sizeof(double), &map->exact_v);
    }
    if (path->exact && plan->project[PROJECT_OUT].count > 0) {
        fits = fits && reserve(end, plan->batch * plan->out.batch, sizeof(double), &map->exact_out);
    }
    if (plan_wants(plan, ATTN_WANT(STATISTICS))) {
        const size_t inputs = s->moment_tasks[0] + s->moment_tasks[1] + s->moment_tasks[2];
        fits = fits &&
               reserve(end, s->tasks[PHASE_ATTEND] * 2, sizeof(struct moments), &map->moments) &&
               reserve(end, inputs, sizeof(struct moments), &map->input_moments);
    }
    if (path->cut) {
        const bool again = s->tasks[PHASE_WEIGH] > 0;
        const size_t entry = 2 * size; /* bytes of a struct entry */
        size_t parts, count;
        fits = fits && size_mul(rows, t->splits, &parts) &&
               size_mul(parts, s->merge.partial, &count) &&
               reserve(end, count, sizeof(double), &map->partials) &&
               reserve(end, again ? 2 * rows : 0, sizeof(double), &map->totals) &&
               size_mul(parts, s->rank.run, &count) && reserve(end, count, entry, &map->runs);
    }
    return fits;
}

/* The size, in numbers, of the largest tile that a task copies or packs into its scratch. */
static size_t copied_tile(const attn_plan *plan, size_t d) {
    const struct path *path = &plan->path;
    const struct tiling *t = &plan->tiling;
    const size_t keys = path->packs_late ? packed_columns(plan, t->keys) * d : 0;
    const bool packs_values =
        t->panel > 0 && !path->exact && !path->without_blas && !path->long_rows;
    const size_t values = packs_values ? t->keys * packed_columns(plan, t->value_columns) : 0;
    const size_t weights = path->exact ? 0 : plan->schedule.weight_numbers,
                 tile = keys > values ? keys : values;
    return tile > weights ? tile : weights;
}

/* The numbers of the longest row that an exact call converts to double. */
static size_t widest_exact_row(const attn_plan *plan, size_t d) {
    const struct projection *all[] = {&plan->project[PROJECT_Q], &plan->project[PROJECT_K],
                                      &plan->project[PROJECT_V]};
    size_t numbers = d;
    for (int i = 0; i < 3; i++) {
        numbers = all[i]->inner > numbers ? all[i]->inner : numbers;
    }
    return numbers;
}

bool memory_map_scratch(attn_plan *plan, size_t d, size_t d_v) {
    const struct path *path = &plan->path;
    const struct tiling *t = &plan->tiling;
    struct schedule *s = &plan->schedule;
    const size_t size = attn_dtype_size(plan->dtype), rows = t->scratch_rows;
    const bool top_k = plan_wants_top_k(plan), adds = path->adds_parts, is_long = path->long_rows;
    const bool whole = (path->staged && !is_long) || path->exact;
    const bool mean = path->exact && plan->results.mean;
    const bool turns = plan_turns_queries(plan) || plan_turns_keys(plan);
    struct scratch_map *map = &s->scratch;
    size_t *end = &map->bytes, order = top_k ? 2 * plan->results.top_k : 0, wide = 0;
    if (path->exact) {
        s->wide_numbers = widest_exact_row(plan, d);
        wide = s->wide_numbers + plan->project[PROJECT_OUT].ld;
    }
    if (is_long) {
        order = top_k && t->splits > rows ? t->splits : rows;
    }
    return reserve(end, rows * t->ld, size, &map->scores) &&
           reserve(end, whole ? plan->m : t->keys, sizeof(double), &map->row) &&
           reserve(end, path->cut ? 0 : rows * s->merge.partial, sizeof(double), &map->total) &&
           reserve(end, wide, sizeof(double), &map->wide) &&
           reserve(end, mean ? rows * plan->m : 0, sizeof(double), &map->mean) &&
           reserve(end, is_long ? t->keys : 0, sizeof(double), &map->logits) &&
           reserve(end, rows, sizeof(double), &map->sum) &&
           reserve(end, 2 * rows, size, &map->max) &&
           reserve(end, path->keeps_tiles && !is_long ? rows * t->tiles : 0, size, &map->top) &&
           reserve(end, adds || (path->cut && !is_long) ? rows * d_v : 0, size, &map->part) &&
           reserve(end, copied_tile(plan, d), size, &map->tile) &&
           reserve(end, path->unit ? attn_tiles_parts(rows, d) : 0, sizeof(uint16_t),
                   &map->unit_queries) &&
           reserve(end, path->unit ? unit_weight_parts(rows, t->keys) : 0, sizeof(uint16_t),
                   &map->unit_weights) &&
           reserve(end, order, sizeof(uint64_t), &map->order) &&
           reserve(end, turns ? 2 * d : 0, sizeof(double), &map->turn);
}
