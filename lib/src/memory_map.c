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
static size_t packed_columns(const struct schedule *s, size_t columns) {
    return s->panel == 0 ? columns : (columns + s->panel - 1) / s->panel * s->panel;
}

/* Returns the numbers of a mask or bias for all keys. They fit: the plan checked all its scores. */
static size_t extended_numbers(const attn_plan *plan, const struct extended *rows) {
    return rows->items * rows->heads * rows->rows * plan->m;
}

bool memory_map_workspace(attn_plan *plan) {
    struct schedule *s = &plan->schedule;
    const size_t size = attn_dtype_size(plan->dtype), rows = plan->batch * plan->heads * plan->n;
    struct workspace_map *map = &s->workspace;
    size_t *end = &map->bytes;
    const size_t q = plan->projected || plan_turns_queries(plan) ? plan->q.numbers : 0;
    const size_t k = plan->projected || plan_turns_keys(plan) ? plan->k.numbers : 0;
    const size_t v = plan->projected ? plan->v.numbers : 0;
    bool fits = reserve(end, q, size, &map->q) && reserve(end, k, size, &map->k) &&
                reserve(end, v, size, &map->v) &&
                reserve(end, extended_numbers(plan, &plan->mask_rows), 1, &map->mask) &&
                reserve(end, extended_numbers(plan, &plan->bias_rows), size, &map->bias);
    if (s->packs || s->unit) {
        for (size_t h = 0; h < plan->heads; h++) {
            if (h % (plan->heads / plan->kv_heads) != 0) {
                plan->head[h].pack = plan->head[h - 1].pack;
                continue;
            }
            plan->head[h].pack = s->pack_batch;
            const size_t tile = s->unit
                                    ? unit_tile_parts(s->keys, plan->head[h].d, plan->head[h].d_v)
                                    : packed_columns(s, s->keys) * plan->head[h].d;
            size_t tiles;
            fits = fits && size_mul(s->tiles, tile, &tiles) &&
                   size_add(s->pack_batch, tiles, &s->pack_batch);
        }
    }
    if (s->unit) {
        const size_t tiles = s->pack_items * plan->kv_heads * s->tiles;
        size_t all;
        fits = fits && size_mul(s->pack_items, s->pack_batch, &all) &&
               reserve(end, all, sizeof(uint16_t), &map->unit_tiles) &&
               reserve(end, 2 * tiles, sizeof(float), &map->unit_sizes);
    }
    if (s->packs) {
        /* A product that begins inside of a panel reads beyond its last panel. */
        const size_t beyond = plan->rules.window[0] >= 0 || s->long_rows ? s->panel : 0;
        size_t all;
        fits = fits && size_mul(s->pack_items, s->pack_batch, &all) &&
               size_add(all, beyond, &all) && reserve(end, all, size, &map->packed_keys);
    }
    if (plan->has_out_projection && plan_wants(plan, ATTN_WANT(OUTPUT))) {
        fits = fits && reserve(end, plan->batch * plan->out_batch, size, &map->heads_out);
    }
    if (s->exact) {
        fits = fits && reserve(end, q, sizeof(double), &map->exact_q) &&
               reserve(end, k, sizeof(double), &map->exact_k) &&
               reserve(end, v, sizeof(double), &map->exact_v);
    }
    if (s->exact && plan->has_out_projection) {
        fits = fits && reserve(end, plan->batch * plan->out_batch, sizeof(double), &map->exact_out);
    }
    if (plan_wants(plan, ATTN_WANT(STATISTICS))) {
        const size_t inputs = s->moment_tasks[0] + s->moment_tasks[1] + s->moment_tasks[2];
        fits = fits &&
               reserve(end, s->tasks[PHASE_ATTEND] * 2, sizeof(struct moments), &map->moments) &&
               reserve(end, inputs, sizeof(struct moments), &map->input_moments);
    }
    if (s->cut) {
        const bool again = s->tasks[PHASE_WEIGH] > 0;
        const size_t entry = 2 * size; /* bytes of a struct entry */
        size_t parts, count;
        fits = fits && size_mul(rows, s->splits, &parts) &&
               size_mul(parts, s->partial_numbers, &count) &&
               reserve(end, count, sizeof(double), &map->partials) &&
               reserve(end, again ? 2 * rows : 0, sizeof(double), &map->totals) &&
               size_mul(parts, s->run_length, &count) && reserve(end, count, entry, &map->runs);
    }
    return fits;
}

/* The size, in numbers, of the largest tile that a task copies or packs into its scratch. */
static size_t copied_tile(const struct schedule *s, size_t d) {
    const size_t keys = s->packs_late ? packed_columns(s, s->keys) * d : 0;
    const bool packs_values = s->panel > 0 && !s->exact && !s->without_blas && !s->long_rows;
    const size_t values = packs_values ? s->keys * packed_columns(s, s->value_columns) : 0;
    const size_t weights = s->exact ? 0 : s->weight_numbers, tile = keys > values ? keys : values;
    return tile > weights ? tile : weights;
}

/* The numbers of the longest row that an exact call converts to double. */
static size_t widest_exact_row(const attn_plan *plan, size_t d) {
    const struct projection *all[] = {&plan->project_q, &plan->project_k, &plan->project_v};
    size_t numbers = d;
    for (int i = 0; i < 3; i++) {
        numbers = all[i]->inner > numbers ? all[i]->inner : numbers;
    }
    return numbers;
}

bool memory_map_scratch(attn_plan *plan, size_t d, size_t d_v) {
    struct schedule *s = &plan->schedule;
    const size_t size = attn_dtype_size(plan->dtype), rows = s->scratch_rows;
    const bool top_k = plan_wants_top_k(plan), adds = s->adds_parts, is_long = s->long_rows;
    const bool whole = (s->staged && !is_long) || s->exact;
    const bool mean = s->exact && plan->mean_over_heads;
    const bool turns = plan_turns_queries(plan) || plan_turns_keys(plan);
    struct scratch_map *map = &s->scratch;
    size_t *end = &map->bytes, order = top_k ? 2 * plan->top_k : 0, wide = 0;
    if (s->exact) {
        s->wide_numbers = widest_exact_row(plan, d);
        wide = s->wide_numbers + plan->project_out.ld;
    }
    s->total_numbers = d_v + 2;
    if (is_long) {
        order = top_k && s->splits > rows ? s->splits : rows;
    }
    return reserve(end, rows * s->ld, size, &map->scores) &&
           reserve(end, whole ? plan->m : s->keys, sizeof(double), &map->row) &&
           reserve(end, adds ? rows * s->total_numbers : 0, sizeof(double), &map->total) &&
           reserve(end, wide, sizeof(double), &map->wide) &&
           reserve(end, mean ? rows * plan->m : 0, sizeof(double), &map->mean) &&
           reserve(end, is_long ? s->keys : 0, sizeof(double), &map->logits) &&
           reserve(end, rows + (is_long ? 0 : rows * d_v), sizeof(double), &map->sum) &&
           reserve(end, is_long ? 0 : 2 * rows, sizeof(double), &map->slow) &&
           reserve(end, 2 * rows, size, &map->max) &&
           reserve(end, s->keeps_tiles && !is_long ? rows * s->tiles : 0, size, &map->top) &&
           reserve(end, adds || (s->cut && !is_long) ? rows * d_v : 0, size, &map->part) &&
           reserve(end, copied_tile(s, d), size, &map->tile) &&
           reserve(end, s->unit ? attn_tiles_parts(rows, d) : 0, sizeof(uint16_t),
                   &map->unit_queries) &&
           reserve(end, s->unit ? unit_weight_parts(rows, s->keys) : 0, sizeof(uint16_t),
                   &map->unit_weights) &&
           reserve(end, order, sizeof(uint64_t), &map->order) &&
           reserve(end, turns ? 2 * d : 0, sizeof(double), &map->turn);
}
