/*
 * tiles.h - float32 products on a matrix unit for bfloat16 (AMX-BF16), as accurate as those of
 * sgemm. tiles.inc implements them.
 *
 * A float is the sum of three bfloat16 numbers of 8 bits each, its parts: x = x1 + x2 + x3, where
 * x1 is x rounded to bfloat16, x2 is x - x1 rounded, and x3 is the rest. Of the nine products of
 * two such sums the unit adds six: a3 b1, a2 b1, a2 b2, a1 b2, a1 b3 and a1 b1. The other three are
 * smaller than 2^-24 |a b| together.
 *
 * The operands of a product are packed before. The left operand lies in panels of 16 rows, the
 * right one in panels of 16 columns. Along k a panel is a sequence of tiles of 16 x 32 parts, of
 * 1 KiB each. Every 32 numbers of k make a chunk: three tiles, one for each part. They lie in the
 * order 0, 16, 1, 17, 2, 18 ... there, which suits the vectors that split them. If at most 26
 * numbers are left at the end, they make the tail: the parts that the six products need follow one
 * another there, so that few tiles take the place of six products. The rest of a last tile is 0.
 * The order in which a number of C is summed depends on k alone. It is the same for any blocks of
 * rows and columns, and also if k is cut at multiples of 32.
 *
 * The unit takes numbers below 2^-126 for 0 and makes 0 of such results, and bfloat16 rounds the
 * largest floats to infinity. Therefore operands are packed with a factor, a power of two, and the
 * packing returns the largest magnitude. If attn_tiles_hold() accepts the two magnitudes:
 * - Nothing overflows. The sum of the products of the magnitudes is below 2^126, and rounding the
 *   parts and the sums makes it larger by less than a factor of 2.
 * - With ATTN_TILE_FACTOR, which is 2^46, the smallest float (2^-149) becomes 2^-103. Its lowest
 *   bit, and that of any larger float, is at least 2^-126. So all parts are 0 or at least 2^-126,
 *   and their sum is exact. With ATTN_TILE_WEIGHT, which is 2^24, the same holds for weights,
 *   which are 0 or at least 2^-126.
 * - A result that becomes 0 loses less than 2^-126. Each number of k makes at most 18 of them.
 *   Relative to operands without a factor this is 18 k 2^-196 or less, and C has no bits there.
 * - Without factors, a number loses less than 2^-126 when it is split. So C loses less than
 *   2^-126 k (|a| + |b| + 18) for the largest |a| and |b|. This is far below any digit of a logit,
 *   if both magnitudes are below ATTN_TILE_PLAIN.
 * Therefore the error of C has the bound of a float32 product: a small multiple of 2^-24 of the sum
 * of |a b|. If attn_tiles_hold() refuses, which it does for infinity and NaN, too, the caller takes
 * another path. This depends only on the numbers, never on threads.
 */
#ifndef ATTN_TILES_H
#define ATTN_TILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ATTN_TILE_ROWS = 16,     /* rows or columns of a panel */
    ATTN_TILE_DEPTH = 32,    /* numbers of k in a chunk */
    ATTN_TILE_NUMBERS = 512, /* parts of a tile */
    ATTN_TILE_TAIL = 26      /* the most numbers of a tail; more are a chunk */
};

#define ATTN_TILE_FACTOR 0x1p46f
#define ATTN_TILE_WEIGHT 0x1p24f
#define ATTN_TILE_PLAIN  0x1p48f

/* Chunks of k numbers. */
static inline size_t attn_tiles_chunks(size_t k) {
    return k / ATTN_TILE_DEPTH + (k % ATTN_TILE_DEPTH > ATTN_TILE_TAIL);
}

/* Tiles of the tail of k numbers: 0 to 5. */
static inline size_t attn_tiles_tail(size_t k) {
    const size_t rest = k % ATTN_TILE_DEPTH;
    return rest > ATTN_TILE_TAIL ? 0 : (6 * rest + ATTN_TILE_DEPTH - 1) / ATTN_TILE_DEPTH;
}

/* Parts (of 2 bytes) of a packed panel of k numbers in each row or column. The panel of row (or
 * column) i begins i / 16 times as many parts after the operand. */
static inline size_t attn_tiles_panel(size_t k) {
    return (3 * attn_tiles_chunks(k) + attn_tiles_tail(k)) * ATTN_TILE_NUMBERS;
}

/* Parts of a packed operand of `across` rows (columns) of k numbers. */
static inline size_t attn_tiles_parts(size_t across, size_t k) {
    return (across + ATTN_TILE_ROWS - 1) / ATTN_TILE_ROWS * attn_tiles_panel(k);
}

/* Does the bound hold for a product of operands whose largest magnitudes, with their factors, are a
 * and b? k counts all numbers that are summed, over all calls that add to the same C. */
static inline bool attn_tiles_hold(float a, float b, size_t k) {
    return a <= 0x1p126f && b <= 0x1p126f && (double)a * (double)b * (double)k <= 0x1p126;
}

/* Rows that lie in two places: `first_count` rows at `first`, and then those at `rest`. */
struct attn_tile_source {
    const float *first;
    size_t first_ld, first_count;
    const float *rest;
    size_t rest_ld;
};

/* C (rows, n) = A B, or C += A B with `add`. A and B are packed with k; the product takes the
 * numbers [from, to) of k. `from` is a multiple of 32, and `to` is one or k. C may have any ld. */
struct attn_tile_product {
    const uint16_t *a, *b;
    size_t k, from, to;
    float *c;
    size_t ldc, rows, n;
    bool add;
    /* How far the product is: the panels of A and B of the current block of tiles, and the steps of
     * it that are done. All 0 at first; when the product is done, `i` is behind the last panel. */
    size_t i, j, step;
};

/* How the tile registers of this thread are configured. */
struct attn_tile_unit {
    unsigned char wide, rows, columns;
};

/* All buffers of parts begin at multiples of 64 bytes. Nothing is read outside of the operands, and
 * nothing is written outside of the rows and columns of C. Panels of the last rows or columns may
 * be written as a whole. */
struct attn_tiles {
    /* A thread calls `begin` before its first product, and `end` after its last. Between the two
     * the unit is in use, which makes context switches slower. */
    void (*begin)(struct attn_tile_unit *unit);
    void (*end)(void);
    /* Splits and packs factor A (rows, k). Returns the largest magnitude of factor A, or INFINITY
     * if a number is not finite. */
    float (*pack_left)(uint16_t *packed, const float *a, size_t lda, size_t rows, size_t k,
                       float factor);
    /* Does the same for a right operand (k, n). Its rows are those of `b`, or with `transposed` its
     * columns are. */
    float (*pack_right)(uint16_t *packed, const struct attn_tile_source *b, size_t k, size_t n,
                        bool transposed, float factor);
    /* Computes what is left of a product. */
    void (*multiply)(struct attn_tile_unit *unit, struct attn_tile_product *product);
    /* Does what online_f32 of the row kernels does, and writes the weights with the factor
     * ATTN_TILE_WEIGHT to `packed`, the left operand of a product with k = `width` >= n. Weights
     * of keys [n, width) are 0 there; x is not changed there. x has the weights in place, too.
     * Meanwhile it computes `count` products, which neither read `packed` nor x, nor write it. The
     * engine does not use this yet, because it was not measured yet. */
    void (*softmax)(struct attn_tile_unit *unit, struct attn_tile_product *beside, size_t count,
                    float *x, size_t ld, size_t rows, size_t n, size_t width, float scale,
                    bool check, float *max, double *sum, float *factor, uint16_t *packed);
};

extern const struct attn_tiles attn_tiles_amx;

#endif
