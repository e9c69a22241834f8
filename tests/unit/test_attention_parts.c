/*
 * test_attention_parts.c - laws of attention that compare one way of computing a call with another,
 * and a whole call with its heads. Each law is tested over many kinds of calls (attention_laws.h).
 */
#include <criterion/criterion.h>
#include <criterion/theories.h>

#include "attention_laws.h"

/* ----------------------------------------------------------------------------- all ways are one */

/* The output is the same alone, with the weights, and with every stage: the reference's. */
TheoryDataPoints(laws, whatever_is_asked_for_has_one_value) = {
    DataPoints(unsigned, ALL_KINDS, NONE | MASK | BIAS, SIGMOID | CAUSAL | PADDING, STICK | CAUSAL,
               STICK | DECAY | MASK),
    SIZES, DTYPES};

Theory((unsigned kind, size_t size, int dtype), laws, whatever_is_asked_for_has_one_value,
       .timeout = 1200) {
    struct call c = draw_law_call(kind, size, dtype);
    check_ways(&c, all_ways, WAYS);
    free_call(&c);
}

/* In a mask, a byte of 2 means the same as a byte of 1. So a tile without any 1 is not left out. */
TheoryDataPoints(laws, any_byte_of_a_mask_but_zero_attends) = {DataPoints(unsigned, MASK, ALL),
                                                               SIZES, DTYPES};

Theory((unsigned kind, size_t size, int dtype), laws, any_byte_of_a_mask_but_zero_attends) {
    struct call ones = draw_law_call(kind, size, dtype), twos = copy_call(&ones);
    for (size_t i = 0; twos.mask != NULL && i < all_rows(&twos) * twos.m; i++) {
        twos.mask[i] = (unsigned char)(2 * twos.mask[i]);
    }
    for (size_t way = 0; way < WAYS; way++) {
        struct results a = run_call(&ones, all_ways[way]), b = run_call(&twos, all_ways[way]);
        cr_assert(same_bytes(&a, &b), "way %zu", way);
        free_results(&a);
        free_results(&b);
    }
    free_call(&ones);
    free_call(&twos);
}

/* Sizes at every edge of a vector and of a tile. 7 and 30 have no common divisor. So in each turn
 * each number of queries meets another number of keys. */
static const size_t edges[] = {1,   2,   3,   7,   8,   9,   15,  16,  17,  31,
                               32,  33,  63,  64,  65,  95,  96,  97,  127, 128,
                               129, 191, 192, 193, 255, 256, 257, 511, 512, 513};
static const size_t widths[] = {1, 3, 15, 16, 17, 32, 63, 64, 65, 100, 128, 129};

TheoryDataPoints(laws, every_edge_of_vectors_and_tiles) = {
    DataPoints(size_t, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
               22, 23, 24, 25, 26, 27, 28, 29),
    DataPoints(size_t, 0, 1, 2, 3), DTYPES};

Theory((size_t index, size_t turn, int dtype), laws, every_edge_of_vectors_and_tiles,
       .timeout = 1200) {
    static const unsigned kinds[] = {PLAIN, CAUSAL, MASK, BIAS, BOTTOM_RIGHT | WINDOW};
    enum {
        EDGES = COUNT(edges),
        WIDTHS = COUNT(widths)
    };
    const size_t n = edges[index], m = edges[turn == 0 ? index : (index * 7 + turn * 11) % EDGES];
    const size_t d = widths[(index + 5 * turn) % WIDTHS];
    const size_t d_v = widths[(index * 5 + turn) % WIDTHS];
    if (too_slow(1, n, m, d + d_v)) {
        return;
    }
    struct call c = draw_call(kinds[(index + turn) % 5], (attn_dtype)dtype, 1, n, m, d, d_v);
    check_ways(&c, all_ways, WAYS);
    free_call(&c);
}

/* ----------------------------------------------------------------------------- heads and wholes */

/* One head of many has the same bytes as that head alone, because the work is cut by the sizes of
 * one head. There is one exception: keys that several query heads share are packed for fewer
 * queries than other keys, and products with packed keys are summed in another order. */
TheoryDataPoints(laws, one_head_of_many_is_that_head_alone) = {KINDS, SIZES, DTYPES};

Theory((unsigned kind, size_t size, int dtype), laws, one_head_of_many_is_that_head_alone) {
    struct call c = draw_law_call(kind, size, dtype);
    const bool packed_apart = (kind & GROUPED) && c.n < 16;
    for (size_t way = 1; way < WAYS; way++) {
        struct results all = run_call(&c, all_ways[way]);
        for (size_t head = 0; head < c.batch * c.heads; head++) {
            struct call one = only_head(&c, head / c.heads, head % c.heads);
            struct results alone = run_call(&one, all_ways[way]), part = alone;
            for (int i = 0; i < ATTN_RESULT_COUNT; i++) {
                part.of[i] = all.of[i] == NULL ? NULL : all.of[i] + head * alone.count[i];
            }
            if (!packed_apart) {
                cr_assert(same_bytes(&part, &alone), "way %zu, head %zu", way, head);
            } else if (all_ways[way] == TILED) {
                struct worst worst = {0};
                compare_results(&worst, &one, &part, &alone, 2 * bound_of(c.dtype));
                expect_within_bounds(&worst);
            }
            free_results(&alone);
            free_call(&one);
        }
        free_results(&all);
    }
    free_call(&c);
}

/* More than 8 MiB of weights are written past the caches. Rows of 851 numbers begin at every place
 * of a vector. */
TheoryDataPoints(laws, large_weights_are_those_of_small_calls) = {
    DataPoints(unsigned, PLAIN, CAUSAL, WINDOW, MASK, BIAS | ALIBI), DTYPES};

Theory((unsigned kind, int dtype), laws, large_weights_are_those_of_small_calls, .timeout = 1200) {
    enum {
        HEADS = 4,
        ROWS = 851
    };
    if (too_slow(HEADS, ROWS, ROWS, 16)) {
        return;
    }
    struct call c = draw_call(kind, (attn_dtype)dtype, HEADS, ROWS, ROWS, 8, 8);
    struct results all = run_call(&c, TILED);
    cr_assert_gt(all.count[ATTN_RESULT_WEIGHTS] * attn_dtype_size(c.dtype), 1 << 23);
    for (size_t h = 0; h < HEADS; h++) {
        struct call one = only_head(&c, 0, h);
        struct results alone = run_call(&one, TILED), part = alone;
        cr_assert_lt(alone.count[ATTN_RESULT_WEIGHTS] * attn_dtype_size(c.dtype), 1 << 23);
        for (int i = 0; i < ATTN_RESULT_COUNT; i++) {
            part.of[i] = all.of[i] == NULL ? NULL : all.of[i] + h * alone.count[i];
        }
        cr_assert(same_bytes(&part, &alone), "head %zu", h);
        free_results(&alone);
        free_call(&one);
    }
    free_results(&all);
    free_call(&c);
}
