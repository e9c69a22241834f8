/*
 * memory_map.c fills the maps of memory_map.h for a call that schedule.c has cut into tasks.
 */
#include "softmax/memory_map.h"

#include "base/tensor.h"
#include "engine/partial.h"
#include "plan.h"
#include "softmax/plan_gradients.h"

/* Reserves an area of count * each elements of `size` bytes at the end of a memory, whose size
 * grows. Returns false if the memory could not be addressed. */
static bool reserve(size_t *memory, size_t size, size_t count, size_t each, size_t *at) {
    size_t bytes;
    *at = SIZE_MAX;
    if (count == 0 || each == 0) {
        return true;
    }
    *at = *memory;
    return size_mul(size, count, &bytes) && size_mul(bytes, each, &bytes) && size_align(&bytes) &&
           size_add(*memory, bytes, memory);
}

#define RESERVE(name, type, size, count, each)                                                     \
    fits = fits && reserve(&map->bytes, size, count, each, &map->name);

/* Returns how many columns `columns` columns take when they are packed. */
static size_t packed_columns(const attn_plan *plan, size_t columns) {
    const size_t panel = plan->tiling.panel;
    return ceil_div(columns, panel) * panel;
}

static size_t extended_rows_of(const struct extended *rows) {
    return rows->items * rows->heads * rows->rows;
}

/* Sets where the packed keys of each head lie in those of a batch item. Returns false if their
 * number does not fit a size_t. */
static bool place_packed_keys(attn_plan *plan) {
    const struct tiling *t = &plan->tiling;
    size_t *end = &plan->schedule.pack.batch;
    bool fits = true;
    for (size_t h = 0; h < plan->heads; h++) {
        struct head *head = &plan->head[h];
        if (h % (plan->heads / plan->kv_heads) != 0) {
            head->pack = plan->head[h - 1].pack;
            continue;
        }
        size_t tiles;
        head->pack = *end;
        fits = fits && size_mul(t->tiles, packed_columns(plan, t->keys) * head->d, &tiles) &&
               size_add(*end, tiles, end);
    }
    return fits;
}

/* Returns the numbers of a gradient of a norm, and the tasks that each make a part. */
static size_t norm_numbers(const attn_plan *plan, enum prepare what) {
    const struct operand *const operands[] = {&plan->in.q, &plan->in.k, &plan->in.v};
    const struct head *head = &plan->head[0];
    return (plan->whole_norm[what] ? operands[what]->heads : 1) *
           (what == PREPARE_VALUES ? head->d_v : head->d);
}

static size_t norm_tasks(const attn_plan *plan, enum prepare what) {
    static const uint64_t wants[] = {ATTN_WANT(GRAD_NORM_Q), ATTN_WANT(GRAD_NORM_K),
                                     ATTN_WANT(GRAD_NORM_V)};
    return plan_wants(plan, wants[what]) ? plan->schedule.prepare[what].tasks : 0;
}

bool memory_map_workspace(attn_plan *plan) {
    const struct path *path = &plan->path;
    const struct tiling *t = &plan->tiling;
    struct schedule *s = &plan->schedule;
    struct workspace_map *map = &s->workspace;
    const size_t size = dtype_size(plan->dtype), rows = plan->batch * plan->heads * plan->n;
    const bool projected = plan->form.projected,
               statistics = plan_wants(plan, ATTN_WANT(STATISTICS));
    const size_t q = projected || plan_prepares_queries(plan) ? plan->in.q.numbers : 0;
    const size_t k = projected || plan_prepares_keys(plan) ? plan->in.k.numbers : 0;
    const size_t v = projected || plan_prepares_values(plan) ? plan->in.v.numbers : 0;
    const struct gradients *g = &plan->gradients;
    const bool w_o = plan->project[PROJECT_OUT].count > 0,
               out = plan_wants(plan, ATTN_WANT(OUTPUT));
    const bool apart = plan->gate.is && g->wanted;
    const size_t heads_out =
        plan_makes_output(plan) && (w_o || !out || apart) ? plan->out.batch : 0;
    const bool row_bias = plan_wants(plan, ATTN_WANT(GRAD_BIAS)) && g->bias_numbers == 0;
    const bool grad_decay = plan_wants(plan, ATTN_WANT(GRAD_DECAY)),
               grad_heads = (w_o || apart) && plan_has(plan, INPUT_GRAD_OUTPUT);
    /* A product that begins inside of a panel reads beyond its last panel. */
    const size_t beyond = plan->rules.window[0] >= 0 || path->long_rows ? t->panel : 0;
    bool fits = !path->packs || place_packed_keys(plan);
    ATTN_WORKSPACE(RESERVE)
    return fits;
}

/* The size, in numbers, of the largest tile that a task copies or packs into its scratch. */
static size_t copied_tile(const attn_plan *plan, size_t d) {
    const struct path *path = &plan->path;
    const struct tiling *t = &plan->tiling;
    const size_t keys = path->packs_late ? packed_columns(plan, t->keys) * d : 0;
    const bool packs_values = !path->without_blas && !path->long_rows;
    const size_t values = packs_values ? t->keys * packed_columns(plan, t->value_columns) : 0;
    return size_max(size_max(keys, values), plan->schedule.weight_numbers);
}

bool memory_map_scratch(attn_plan *plan, size_t d, size_t d_v) {
    const struct path *path = &plan->path;
    const struct tiling *t = &plan->tiling;
    struct schedule *s = &plan->schedule;
    struct scratch_map *map = &s->scratch;
    const size_t size = dtype_size(plan->dtype), rows = t->scratch_rows;
    const bool whole = path->materialized && !path->long_rows;
    const bool parts = path->adds_parts || (path->splits_keys && !path->long_rows);
    const bool prepares =
        plan_prepares_queries(plan) || plan_prepares_keys(plan) || plan_prepares_values(plan);
    const bool top_k = plan_wants_top_k(plan);
    const struct gradients *g = &plan->gradients;
    const size_t g_rows = g->tile_rows, g_keys = g->tile_keys, g_ld = g->ld;
    const bool grad_k = gradient_is_kept(plan, SUMS_K) ||
                        plan_wants(plan, ATTN_WANT(GRAD_K) | ATTN_WANT(GRAD_PAST_K)),
               grad_v = plan_has(plan, INPUT_GRAD_OUTPUT) &&
                        (gradient_is_kept(plan, SUMS_V) ||
                         plan_wants(plan, ATTN_WANT(GRAD_V) | ATTN_WANT(GRAD_PAST_V))),
               column_bias = g->bias_numbers > 0 && g->bias.stride[2] == 0;
    bool fits = true;
    ATTN_SCRATCH(RESERVE)
    return fits;
}
