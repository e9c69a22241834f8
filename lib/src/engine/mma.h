/*
 * mma.h - the sizes of what mma.inc packs for the matrix unit. schedule.c reserves the memory.
 */
#ifndef ATTN_MMA_H
#define ATTN_MMA_H

#include "kernels/tiles.h"

/* Parts of the packed keys of a tile. */
static inline size_t mma_key_parts(size_t keys, size_t d) {
    return attn_tiles_parts(keys, d);
}

/* Parts of an operand of `across` rows or columns with one number for each key of a tile of at most
 * `keys` keys. A last chunk of fewer keys may take five tiles, and a full one takes three. */
static inline size_t mma_weight_parts(size_t across, size_t keys) {
    const size_t chunks = (keys + ATTN_TILE_DEPTH - 1) / ATTN_TILE_DEPTH;
    return (across + ATTN_TILE_ROWS - 1) / ATTN_TILE_ROWS * (3 * chunks + 2) * ATTN_TILE_NUMBERS;
}

/* Parts of a tile of keys and values: first the keys, then the values. */
static inline size_t mma_tile_parts(size_t keys, size_t d, size_t d_v) {
    return mma_key_parts(keys, d) + mma_weight_parts(d_v, keys);
}

#endif
