/*
 * memory_map.h - where everything lies in the two kinds of memory that a run needs beside its
 * inputs and results. memory_map.c fills the maps, and engine/worker.inc makes pointers of them.
 *
 * An area begins at a multiple of ATTN_ALIGNMENT bytes. A call that does not need an area gives it
 * no bytes. `real` is the dtype of the plan, B its batch items, H its heads, KV its key heads, n
 * its queries, m its keys. The other sizes are members of struct tiling
 * and of struct schedule, and the conditions are members of struct path.
 *
 * The workspace is shared by all tasks. The plan owns it.
 *
 *   0 +---------------+----------------------------------+---------------------------------------+
 *     | q             | real, in the shape of q          | Q and K, if they are projected or     |
 *     | k             | real, in the shape of k          | turned                                |
 *     | v             | real, in the shape of v          | V, if it is projected                 |
 *     | mask          | bytes (items, heads, rows, m)    | mask and bias of all keys, if there   |
 *     | bias          | real (items, heads, rows, m)     | are extra keys, see struct extended   |
 *     | packed_keys   | real (items, batch) of `pack`     | transposed tiles of keys, if `packs`  |
 *     | unit_tiles    | uint16_t (items, batch) of `pack` | keys and values that are packed for   |
 *     |               |                                  | the matrix unit, if `unit`            |
 *     | unit_sizes    | float (B, KV, tiles, 2)          | their largest magnitudes              |
 *     | heads_out     | real (B, out_batch)              | outputs of heads, if W_O takes them   |
 *     | exact_q       | double, in the shape of q        | Q, K and V of an exact call           |
 *     | exact_k       | double, in the shape of k        |                                       |
 *     | exact_v       | double, in the shape of v        |                                       |
 *     | exact_out     | double, in the shape of heads_out| outputs of heads of an exact call     |
 *     | moments       | struct moments (tasks, 2)        | scores and scaled scores that a task  |
 *     |               |                                  | of PHASE_ATTEND saw, for statistics   |
 *     | input_moments | struct moments (moment_tasks)    | parts of Q, K and past_K              |
 *     | partials      | double (B, H, n, splits,         | partial results of rows whose keys    |
 *     |               |         partial)                 | are cut, see partial.h                |
 *     | totals        | double (B, H, n, 2)              | the largest logit and 1 / sum of each |
 *     |               |                                  | row, for PHASE_WEIGH                  |
 *     | runs          | struct entry (B, H, n, splits,   | sorted parts of rows, for top_k       |
 *     |               |         run)                     |                                       |
 *     +---------------+----------------------------------+---------------------------------------+
 *
 * The workspace of a plan of softmax alone holds only the maximum and the sum of each part of a
 * slice, see softmax.inc.
 *
 * A scratch belongs to one task at a time. `rows` is scratch_rows here, and d_v the largest of any
 * head.
 *
 *   0 +---------------+----------------------------------+---------------------------------------+
 *     | scores        | real (rows, ld)                  | scores of a block, then its weights   |
 *     | row           | double (m) or (keys)             | one row, or one tile of it, between   |
 *     |               |                                  | raw score and weight                  |
 *     | total         | double (rows, merge.partial)     | partial results, unless keys are cut  |
 *     | wide          | double (wide_numbers + columns)  | a row of an exact call in double, and |
 *     |               |                                  | a row of its result                   |
 *     | mean          | double (rows, m)                 | the mean over heads of an exact call  |
 *     | logits        | double (keys)                    | logits of one tile of a long row      |
 *     | sum           | double (rows)                    | sums of online softmax                |
 *     | max           | real (rows)                      | the largest logits so far             |
 *     |               | real (rows)                      | factors by which the output shrinks   |
 *     | top           | real (rows, tiles)               | maxima of tiles, if `keeps_tiles`     |
 *     | part          | real (rows, d_v)                 | output of a part of the keys          |
 *     | tile          | real                             | a tile of weights of a projection, or |
 *     |               |                                  | of packed keys, if `packs_late`       |
 *     | unit_queries  | uint16_t                         | the queries of a block, packed for the|
 *     |               |                                  | matrix unit                           |
 *     | unit_weights  | uint16_t                         | the weights of a tile, packed for it  |
 *     | order         | 8 bytes each                     | top_k's heap; of long rows: entries   |
 *     |               |                                  | in each run, or the heap of runs      |
 *     | turn          | double (2 d)                     | cos and sin of a row, and the row of  |
 *     |               |                                  | a head that is turned                 |
 *     +---------------+----------------------------------+---------------------------------------+
 */
#ifndef ATTN_MEMORY_MAP_H
#define ATTN_MEMORY_MAP_H

#include <stddef.h>

/* Offsets in bytes. */
struct workspace_map {
    size_t q, k, v;
    size_t mask, bias;
    size_t packed_keys;
    size_t unit_tiles, unit_sizes;
    size_t heads_out;
    size_t exact_q, exact_k, exact_v, exact_out;
    size_t moments, input_moments;
    size_t partials, totals, runs;
    size_t bytes; /* size of the workspace */
};

/* Offsets in bytes. */
struct scratch_map {
    size_t scores;
    size_t row;
    size_t total;
    size_t wide;
    size_t mean;
    size_t logits;
    size_t sum;
    size_t max;
    size_t top;
    size_t part;
    size_t tile;
    size_t unit_queries, unit_weights;
    size_t order;
    size_t turn;
    size_t bytes; /* size of a scratch */
};

#endif
