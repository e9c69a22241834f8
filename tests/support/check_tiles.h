/*
 * check_tiles.h - the checks that every struct attn_tiles must pass, as plain functions. tests/unit
 * calls them for the model of tile_model.h, and run_kernels.c also for the unit of its CPU.
 */
#ifndef SUPPORT_CHECK_TILES_H
#define SUPPORT_CHECK_TILES_H

#include "kernels/tiles.h"

#define TILE_CHECKS(X)                                                                             \
    X(split_is_exact)                                                                              \
    X(largest_magnitude_is_found)                                                                  \
    X(products_agree_with_double)                                                                  \
    X(products_do_not_depend_on_blocks)                                                            \
    X(products_hold_at_the_borders)                                                                \
    X(softmax_agrees_with_online)                                                                  \
    X(softmax_computes_products_beside)                                                            \
    X(everything_has_the_bytes_of_the_model)

/* Each function returns NULL, or a text that says what is wrong. The next call overwrites it. The
 * permission of the operating system must be there. */
#define TILE_CHECK(name) const char *check_tiles_##name(const struct attn_tiles *t);
TILE_CHECKS(TILE_CHECK)
#undef TILE_CHECK

#endif
