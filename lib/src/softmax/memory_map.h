/*
 * memory_map.h - where everything lies in the two kinds of memory that a run needs beside its
 * inputs and results. memory_map.c lays the areas out, and engine/worker.inc has a pointer to each.
 *
 * The two lists have a row X(name, type, size, count, each) for each area: it holds count * each
 * elements of `size` bytes, where `real` is the dtype of the plan. memory_map.c has the names that
 * stand in the last three. An area begins at a multiple of ATTN_ALIGNMENT bytes. A call that does
 * not need an area has a count of 0 there, and the pointer of the engine is NULL.
 */
#ifndef ATTN_MEMORY_MAP_H
#define ATTN_MEMORY_MAP_H

#include <attention.h>

/* clang-format off */

/* The workspace is shared by all tasks. The plan owns it. That of a plan of softmax alone holds
 * only the maximum and the sum of each part of a slice, see softmax.inc. */
#define ATTN_WORKSPACE(X)                                                                          \
    /* Q, K and V, if they are projected or prepared. */                                           \
    X(q, real, size, q, 1)                                                                         \
    X(k, real, size, k, 1)                                                                         \
    X(v, real, size, v, 1)                                                                         \
    /* Mask and bias of all keys, if there are extra keys, see struct extended. */                 \
    X(extended_mask, unsigned char, 1, extended_rows_of(&plan->extra.mask), plan->m)               \
    X(extended_bias, real, size, extended_rows_of(&plan->extra.bias), plan->m)                     \
    /* Sums of decays, see decay.inc. */                                                           \
    X(decay, double, sizeof(double), plan->decay.items * plan->decay.heads, 2 * plan->m)           \
    /* Tiles of keys, transposed. */                                                               \
    X(packed_keys, real, size, path->packs ? plan->in.k.items : 0, s->pack.batch + beyond)         \
    /* The projected gate. The outputs of heads, if W_O takes them, or if gradients need them as   \
     * they are before the gate; then W_O takes those after it. */                                 \
    X(gate, real, size, plan->project[PROJECT_GATE].across > 0 ? plan->gate.numbers : 0, 1)        \
    X(heads_out, real, size, plan->batch, heads_out)                                               \
    X(gated, real, size, apart && w_o ? plan->batch : 0, plan->out.batch)                          \
    /* Statistics: scores and scaled scores that each task of PHASE_ATTEND saw, and parts of Q, K  \
     * and past_K. */                                                                              \
    X(moments, struct moments, sizeof(struct moments), statistics ? s->tasks[PHASE_ATTEND] : 0, 2) \
    X(input_moments, struct moments, sizeof(struct moments),                                       \
      s->moment_tasks[0] + s->moment_tasks[1] + s->moment_tasks[2], 1)                             \
    /* Rows whose keys are split: a partial result of each part, see partial.h; the largest logit  \
     * and 1 / sum, for PHASE_WEIGH; the sorted parts for top_k, which are struct entry. */        \
    X(partials, double, sizeof(double), path->splits_keys ? rows * t->splits : 0, s->merge.partial)\
    X(softmax_totals, double, sizeof(double), s->tasks[PHASE_WEIGH] > 0 ? rows : 0, 2)             \
    X(top_k_runs, void, 2 * size, rows * t->splits, s->rank.run)                                   \
    /* Gradients: the lse of each row, and what was lost when it was rounded; the sum of P dP over \
     * the keys, less grad_lse; and sums of the gradients of its logits, those for the slope of    \
     * ALiBi and those for a bias that is the same for all keys. */                                \
    X(lse, double, sizeof(double), g->wanted ? rows : 0, 2)                                        \
    X(delta, double, sizeof(double), g->wanted ? rows : 0, 1)                                      \
    X(slope_sums, double, sizeof(double), plan_wants(plan, ATTN_WANT(GRAD_ALIBI)) ? rows : 0, 1)   \
    X(bias_sums, double, sizeof(double), row_bias ? rows : 0, 1)                                   \
    /* The same for the decays, of each row and of each column. */                                 \
    X(decay_rows, double, sizeof(double), grad_decay ? rows : 0, 1)                                \
    X(decay_columns, double, sizeof(double), sums_of_columns(plan), 1)                             \
    /* Sticks: what the keys after each tile of a row have broken, and the sum of P dP over the    \
     * keys before it. */                                                                          \
    X(stick_after, double, sizeof(double), stick_tiles(plan), rows)                                \
    X(stick_before, double, sizeof(double), stick_tiles(plan), rows)                               \
    /* Gradients of Q, K and V, unless these are results as they are, and of the heads' outputs.   \
     * Projected Q, K and V before their norms. Gradients of the norms, from each task. */         \
    X(grad_q, real, size, gradient_is_kept(plan, SUMS_Q) ? plan->in.q.numbers : 0, 1)              \
    X(grad_k, real, size, gradient_is_kept(plan, SUMS_K) ? plan->in.k.numbers : 0, 1)              \
    X(grad_v, real, size, gradient_is_kept(plan, SUMS_V) ? plan->in.v.numbers : 0, 1)              \
    X(grad_heads, real, size, grad_heads ? plan->batch : 0, plan->out.batch)                       \
    X(grad_gate, real, size, grad_heads && map->gate != SIZE_MAX ? plan->gate.numbers : 0, 1)      \
    X(raw_q, real, size, raw_is_kept(plan, INPUT_NORM_Q) ? plan->in.q.numbers : 0, 1)              \
    X(raw_k, real, size, raw_is_kept(plan, INPUT_NORM_K) ? plan->in.k.numbers : 0, 1)              \
    X(raw_v, real, size, raw_is_kept(plan, INPUT_NORM_V) ? plan->in.v.numbers : 0, 1)              \
    X(norm_q_sums, double, sizeof(double), norm_tasks(plan, PREPARE_QUERIES),                      \
      norm_numbers(plan, PREPARE_QUERIES))                                                         \
    X(norm_k_sums, double, sizeof(double), norm_tasks(plan, PREPARE_KEYS),                         \
      norm_numbers(plan, PREPARE_KEYS))                                                            \
    X(norm_v_sums, double, sizeof(double), norm_tasks(plan, PREPARE_VALUES),                       \
      norm_numbers(plan, PREPARE_VALUES))

/* A scratch belongs to one task at a time. d and d_v are those of the widest heads. */
#define ATTN_SCRATCH(X)                                                                            \
    /* A widened call: copies of its inputs, then its results. */                                  \
    X(widened, double, sizeof(double), plan->widened.numbers, 1)                                   \
    /* Scores of a block, then its weights. */                                                     \
    X(scores, real, size, rows, t->ld)                                                             \
    /* The queries of a block, multiplied by the root of the scale, see product.inc. */            \
    X(scaled_q, real, size, plan->half.type != NULL ? rows : 0, d)                                 \
    /* One row, or one tile of it, between raw score and weight; and its logits if it is long. */  \
    X(row_f64, double, sizeof(double), size_max(whole ? plan->m : t->keys, g_keys), 1)             \
    X(logits, double, sizeof(double), path->long_rows ? t->keys : 0, 1)                            \
    /* Partial results, see partial.h, unless the keys are split. */                               \
    X(block_partials, double, sizeof(double), path->splits_keys ? 0 : rows, s->merge.partial)      \
    /* Online softmax: the sum of each row and its largest logit so far, to which join_sink() may  \
     * add the sink; and the factor by which the output so far shrinks. */                         \
    X(softmax_sum, double, sizeof(double), rows, 1)                                                \
    X(softmax_max, real, size, rows, 1)                                                            \
    X(rescale, real, size, rows, 1)                                                                \
    /* The maxima to which the weights of each tile are relative; after shrink_tiles() the factors \
     * by which they shrink. */                                                                    \
    X(tile_max, real, size, path->keeps_tiles && !path->long_rows ? rows : 0, t->tiles)            \
    /* The output of a part of the keys. */                                                        \
    X(part_out, real, size, parts ? rows : 0, d_v)                                                 \
    /* Packed keys of a tile (d, keys), or a tile of the weights of a projection. */               \
    X(tile, real, size, copied_tile(plan, d), 1)                                                   \
    /* top_k: the entries of a row. If rows are long: the entries in the run of each row so far,   \
     * the entries of each run that are used up, and the heap of runs. */                          \
    X(entries, void, sizeof(uint64_t), top_k && !path->long_rows ? 2 : 0, plan->results.top_k)     \
    X(run_filled, size_t, sizeof(size_t), path->long_rows ? rows : 0, 1)                           \
    X(run_used, uint32_t, sizeof(uint32_t), top_k && path->long_rows ? t->splits : 0, 1)           \
    X(run_heap, uint32_t, sizeof(uint32_t), top_k && path->long_rows ? t->splits : 0, 1)           \
    /* The cos and sin of a row, and the row of a head that is prepared. */                        \
    X(rotated, double, sizeof(double), prepares ? 1 : 0, d + size_max(d, d_v))                     \
    /* Gradients: a tile of weights, and of gradients of scores; the queries of the tile and the   \
     * gradients of their outputs, also transposed; its keys and values, packed transposed, and    \
     * its keys packed; sums of the gradients of its keys and values, transposed; rows that are    \
     * copied; and for one row of the tile the share that each key takes of a stick and what it    \
     * leaves, the derivative of softcap, and the gradient of a bias. */                           \
    X(g_weights, real, size, g_rows, g_ld)                                                         \
    X(g_scores, real, size, g_rows, g_ld)                                                          \
    X(g_q, real, size, g_rows, d)                                                                  \
    X(g_q_transposed, real, size, g_rows, d)                                                       \
    X(g_out, real, size, g_rows, d_v)                                                              \
    X(g_out_transposed, real, size, g_rows, d_v)                                                   \
    X(g_k_transposed, real, size, g_ld, d)                                                         \
    X(g_v_transposed, real, size, g_ld, d_v)                                                       \
    X(g_k, real, size, g_keys, packed_columns(plan, d))                                            \
    X(g_k_sums, real, size, grad_k ? g_ld : 0, d)                                                  \
    X(g_v_sums, real, size, grad_v ? g_ld : 0, d_v)                                                \
    X(g_moved, real, size, size_max(g_rows, g_keys), size_max(d, d_v))                             \
    X(g_stick, double, sizeof(double), stick_tiles(plan) > 0 ? g_keys : 0, 2)                      \
    X(g_slope, double, sizeof(double), g_keys, 1)                                                  \
    X(g_bias, double, sizeof(double), column_bias ? g_keys : 0, 1)                                 \
    X(g_row, double, sizeof(double), g->wanted && prepares ? 1 : 0, size_max(d, d_v))

/* clang-format on */

#define ATTN_AREA_OFFSET(name, type, size, count, each) size_t name;

/* Offsets in bytes; SIZE_MAX for an area that the call does not need. `bytes` is the whole size. */
struct workspace_map {
    ATTN_WORKSPACE(ATTN_AREA_OFFSET)
    size_t bytes;
};

struct scratch_map {
    ATTN_SCRATCH(ATTN_AREA_OFFSET)
    size_t bytes;
};

/* These functions lay out the workspace, and a scratch for heads whose widest d and d_v are given.
 * The size of a scratch has a bound for all calls, because rows that would be too large are long
 * rows. Both return false if the memory cannot be addressed. */
bool memory_map_workspace(attn_plan *plan);
bool memory_map_scratch(attn_plan *plan, size_t d, size_t d_v);

#endif
