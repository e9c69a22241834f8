/*
 * chunks.h - a state that is computed in chunks of positions. chunks.inc and chunk_weights.inc are
 * the templates.
 */
#ifndef ATTN_CHUNKS_H
#define ATTN_CHUNKS_H

#include "recurrent/state_tile.h"

/* Computes a tile in chunks, in float or in double. *ill_conditioned becomes true if the keys of a
 * chunk are so much alike that errors of the delta rules would add up, or if the numbers between
 * the inputs and the results are too small or too large for the type of the plan. The results of
 * the tile are not complete then. */
attn_status chunks_run_f32(const struct state_tile *s, void *scratch, bool *ill_conditioned);
attn_status chunks_run_f64(const struct state_tile *s, void *scratch, bool *ill_conditioned);

/* Computes the weights of a block of queries of head h, in double. */
attn_status chunks_weigh_f64(const struct state_tile *s, size_t h, size_t block, void *scratch);

#endif
