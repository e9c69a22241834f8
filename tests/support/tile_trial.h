/*
 * tile_trial.h - random products for the checks of struct attn_tiles. Operands and packed operands
 * are allocated with their exact sizes, and packed ones are not cleared, so that valgrind and the
 * sanitizers see what is read beyond them or before it is written.
 */
#ifndef SUPPORT_TILE_TRIAL_H
#define SUPPORT_TILE_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/tiles.h"
#include "support/rng.h"

enum {
    TRIAL_GUARD = 40 /* floats around C that must stay as they are */
};

/* A product with its operands, packed ones and result. */
struct trial {
    size_t rows, k, n, lda, ldb, ldc, past;
    bool transposed;
    float factor_a, factor_b;
    float *a, *b[2], *c, *was;
    uint16_t *packed_a, *packed_b;
    float most_a, most_b;
};

/* trial_allocate() returns memory that is not cleared, and trial_allocate_parts() returns such
 * memory for a packed operand. The caller owns it and calls free(). */
void *trial_allocate(size_t count, size_t size);
uint16_t *trial_allocate_parts(size_t across, size_t k);

/* Returns how many numbers a matrix takes whose rows begin `ld` numbers apart. */
size_t trial_numbers(size_t rows, size_t ld, size_t columns);

/* Returns how many floats lie at p->c, with those around C. */
size_t trial_size_of_c(const struct trial *p);

/* Makes a trial of a size up to these. Its numbers are drawn by `draw`. The caller calls
 * trial_end(). */
struct trial trial_start(struct rng *rng, size_t most_rows, size_t most_k, size_t most_n,
                         float (*draw)(struct rng *));
void trial_end(struct trial *p);

/* Packs both operands with their factors. */
void trial_pack(const struct attn_tiles *t, struct trial *p);

/* trial_product() describes the product of the whole packed operands, and trial_multiply() computes
 * it. */
struct attn_tile_product trial_product(const struct trial *p, bool add);
void trial_multiply(const struct attn_tiles *t, const struct trial *p, bool add);

float trial_draw_normal(struct rng *rng);
/* Draws a zero, or a number of any exponent from subnormal ones up to 2^12. */
float trial_draw_small(struct rng *rng);

#endif
