/*
 * tuning.h - the sizes and limits by which calls are cut, products are packed and paths are chosen.
 * Each comment names the CPUs on which a value was measured. Where it names none, the value follows
 * from the size of a common cache or from the time of a task. Another value may cost speed and
 * never a digit that is promised. A value must suit every CPU, because it is the same on all.
 *
 * What a step costs is estimated in softmax/cost.c, softmax/plan_gradients.c and
 * recurrent/schedule_linear.c.
 */
#ifndef ATTN_TUNING_H
#define ATTN_TUNING_H

/* Paths and blocks of attention. */
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
    MOST_KEPT = 4096,
    /* The most queries of one task of long rows. */
    LONG_QUERIES = 16,
    /* The fewest keys of one part of a long row, unless they cost more than LONG_WORK. */
    LONG_KEYS = 8192,
    /* A very long row is split into this many parts, as long as they have at most LONG_MOST
     * keys. */
    LONG_PARTS = 256,
    /* The most keys of one part of a long row. */
    LONG_MOST = 65536,
    /* The most multiply-adds of one task of long rows: about 3 ms. */
    LONG_WORK = 1 << 28,

    /* The most bytes of packed keys, those of one tile, in a scratch. */
    LATE_BYTES = 1 << 18,
    /* An odd number of fewer blocks becomes even. Measured on a Zen 4 with one head of 254 to 600
     * queries: 1.06 to 1.27 times as fast with 2 threads, and as fast with 1. */
    FEW_BLOCKS = 8,
    /* A single block of at least so many queries and more than so many multiply-adds is halved.
     * Measured on a Zen 4: with 2 threads one head is 1.8 times as fast, and three are 1.2 times;
     * 16 heads, or one thread, are 2 to 4 % slower, because each block packs the keys. */
    HALF_QUERIES = 48,
    HALF_WORK = 1 << 20,
    /* Numbers of keys that are packed as one part, unless one tile has more. Measured on a Zen 4:
     * if one head of 400 keys is packed as one part, a call on 2 threads is 2 % slower. */
    PACK_NUMBERS = 1 << 14,
    /* Numbers that are merged as one part. */
    MERGE_NUMBERS = 1 << 18,
    /* The bytes of keys and values of one part: half of a common L2 cache. */
    SPLIT_BYTES = 1 << 20,
    /* A sum of this many numbers in `real` loses no digit that is promised. */
    PART_KEYS = 4096,
    /* The bytes of whole rows of scores of one block: half of a common L2 cache. */
    WHOLE_BYTES = 1 << 20,
    /* Weights, and outputs of linear attention, of more bytes than this fit no L2 cache, and are
     * written past the caches. Measured on a Zen 5 with rows of weights that begin anywhere in a
     * cache line: 1.05 to 1.08 times as fast with AVX-512, and as fast with AVX2. Measured on a
     * Zen 4 with linear attention: 1.09 times as fast. */
    STREAM_BYTES = 1 << 23,
    /* The most keys of a tile, and the most rows that pass over it. */
    TILE_KEYS = 256,
    TILE_ROWS = 96,
    /* The most bytes of packed keys, and of packed values, of one tile: a quarter of an L2 cache of
     * 512 KiB. They share this cache with the scores of the tile. Measured on a Zen 3 (AVX2): with
     * half of the keys a call is 3 to 10 % slower, with 50 % more rows 1 % faster. */
    PANELS_BYTES = 1 << 17,
    /* The most columns of the values that are packed at once. */
    VALUE_COLUMNS = 512,
};

/* Projections. */
enum {
    /* The most multiply-adds of one task of a projection, about 7 ms. */
    PROJECT_WORK = 1 << 29,
    /* A packed tile of weights has PANELS_ROWS rows and PANELS_COLUMNS columns, a multiple of every
     * panel. Measured on a Zen 5: with 128 columns a call on one thread is 1 % faster, but there
     * are too few tasks for many threads. */
    PANELS_ROWS = 256,
    PANELS_COLUMNS = 64,
    /* The most rows of X in one task. Measured on a Zen 5: with 128 or 192 rows a call of 512 rows
     * is 1 to 7 % slower. */
    PROJECT_ROWS = 512,
    /* Tasks of a phase that are enough for a few threads. Fewer ones are cut, down to
     * LEAST_PROJECTED rows. Measured on a Zen 5 with d_model 192: with 2 threads a call is 1.04
     * times as fast. With 12 tasks it is 6 % slower on one thread. */
    ENOUGH_PROJECTED = 6,
    LEAST_PROJECTED = 64,
};

/* Packed products, see kernels/panels.inc. The figures are those of projections of d_model 384 to
 * 2048. */
enum {
    /* Rows of a panel that pass at once: so many of 32 float columns fit an L1 cache of 32 KiB. */
    PANEL_DEEP = 256,
    /* Rows of a panel that are loaded in advance, into an L2 cache. Measured on a Zen 4: with 32 a
     * call whose weights fit no L2 cache is up to 1.4 times as slow, with 96 it is as fast. Lines
     * that are loaded into an L1 cache keep the stores of a copy waiting, and the call is 1.3
     * times as slow. */
    ROWS_AHEAD = 64,
    INTO_L2 = 2, /* an argument of __builtin_prefetch() */
    /* A copy of the panels costs more than it saves for so many strips. Measured on a Zen 4: with
     * 2 a call with AVX-512 is up to 4 % slower; with 8 one with AVX2 is up to 4 % slower. */
    FEW_STRIPS = 4,
};

/* Gradients of attention. Their tiles are those of attention. */
enum {
    /* Tasks that cost less than this are not cut further, so that there are more of them. */
    GRADIENT_WORK = 1 << 24,
    /* Tasks of a phase that are enough for all threads. */
    ENOUGH_GRADIENTS = 64,
    /* The most that a row costs in a phase of GRADIENT_START. */
    START_WORK = 1 << 26,
    /* The multiply-adds of a block of a product of projections, and the sides of blocks. */
    BLOCK_WORK = 1 << 26,
    LEAST_SIDE = 16,
    MOST_SIDE = 256,
    BLOCK_COLUMNS = 4096,
    /* Numbers of a bias whose gradients one task makes at least. */
    BIAS_NUMBERS = 16,
};

/* Linear attention. */
enum {
    /* A call of fewer numbers may as well be exact. */
    FEW_NUMBERS = 1 << 14,
    /* A segment costs at most about this much, which is 0.2 ms, because denormal numbers take up to
     * 85 times as long on CPUs of Intel. Measured on a Zen 4: a call of 64 columns is up to 1.1
     * times as fast as with 3 ms, because all heads read the same pages. */
    SEGMENT_WORK = 1 << 24,
    /* It may cost this much for each number of its state, which is read and written. Measured on a
     * Zen 4: with half of it a call of 128 columns is 2 % slower, and one of 256 columns 5 %. */
    SEGMENT_STATES = 1536,
    /* A segment of gradients keeps a state. It costs at most about this much, which is 3 ms. */
    BACKWARD_WORK = 1 << 28,
    /* A chunk that costs more is computed position by position. */
    LONGEST_CHUNK = 1 << 29,
    /* Tiles of states that are enough for the threads of most machines. Each tile computes the
     * products of its keys again, so more of them cost more. A tile that is made only for threads
     * has at least STATE_COLUMNS columns and STATE_WORK multiply-adds. */
    ENOUGH_STATES = 8,
    STATE_COLUMNS = 32,
    STATE_WORK = 1 << 20,
    /* The most numbers of a tile of a state, and of the rows of K of a chunk. A tile of shorter
     * rows of K has no more columns than if they had LEAST_D numbers. Measured on a Zen 4: with
     * half of the numbers of a state, a call of 256 columns is 5 to 10 % slower. */
    STATE_NUMBERS = 1 << 16,
    LEAST_D = 64,
    CHUNK_NUMBERS = 1 << 14,
    /* The most weights of a block, unless CHUNK_ROWS rows have more. */
    BLOCK_WEIGHTS = 1 << 18,
    CHUNK_ROWS = 16, /* the fewest rows of a chunk or a block; others are a multiple of it */
    /* Gradients: the numbers of a state in the columns that are computed at a time, these columns,
     * and the numbers of all states of an interval. */
    BACKWARD_NUMBERS = 1 << 12,
    LEAST_BACKWARD = 8,
    MOST_BACKWARD = 64,
    INTERVAL_NUMBERS = 1 << 17,
    MOST_INTERVAL = 16,
};

_Static_assert(PANELS_ROWS % PANEL_DEEP == 0, "prepacked weights would give other sums");

#endif
