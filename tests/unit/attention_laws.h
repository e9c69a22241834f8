/*
 * attention_laws.h - the kinds, sizes and dtypes over which the laws of attention are tested. The
 * sizes take every path of the engine. Two results that a law makes equal may each be as far from
 * the truth as bound_of() says, so their difference may be twice that.
 */
#ifndef ATTENTION_LAWS_H
#define ATTENTION_LAWS_H

#include "attention_bounds.h"
#include "results.h"

#define SIZES  DataPoints(size_t, 0, 1, 2, 3, 4, 5)
#define DTYPES DataPoints(int, ATTN_FLOAT32, ATTN_FLOAT64)
#define ALL_KINDS                                                                                  \
    PLAIN, CAUSAL, BOTTOM_RIGHT | WINDOW, WINDOW | PAST, MASK, BIAS, SOFTCAP, ALIBI | CAUSAL,      \
        GROUPED, SINK, LENGTHS, PAST | CAUSAL | NEGATIVE, PADDING, SHARED | PADDING,               \
        SHARED | PAST | GROUPED, ALL, ALL | BOTTOM_RIGHT, AT_THE_END | WINDOW | ALIBI | LENGTHS,   \
        DECAY, DECAY | BOTTOM_RIGHT | ALL
#define KINDS  DataPoints(unsigned, ALL_KINDS)

#define TILED  (ATTN_WANT(OUTPUT) | ATTN_WANT(WEIGHTS) | ATTN_WANT(LSE))
#define STAGES (TILED | RESULTS_OF(RESULT_STAGE | RESULT_PER_QUERY))

/* Choices of wanted results that are computed in different ways. */
enum {
    WAYS = 5
};

extern const uint64_t all_ways[WAYS];

/* Draws a call of a kind; `size` is one of SIZES. A slow run draws smaller calls. */
struct call draw_law_call(unsigned kind, size_t size, int dtype);

/* Makes the test fail if a number was beyond its bound. */
void expect_within_bounds(const struct worst *worst);

/* Returns the number of queries of all heads and batch items. */
size_t all_rows(const struct call *c);

#endif
