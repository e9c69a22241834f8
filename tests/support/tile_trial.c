/* tile_trial.c implements tile_trial.h. */
#include "support/tile_trial.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void *trial_allocate(size_t count, size_t size) {
    /* The size is a multiple of the alignment only for packed operands. */
    void *memory = count * size % 64 == 0 && count > 0 ? aligned_alloc(64, count * size)
                                                       : malloc(count * size + (count == 0));
    assert(memory != NULL);
    return memory;
}

uint16_t *trial_allocate_parts(size_t across, size_t k) {
    return trial_allocate(attn_tiles_parts(across, k), sizeof(uint16_t));
}

size_t trial_numbers(size_t rows, size_t ld, size_t columns) {
    return rows == 0 ? 0 : (rows - 1) * ld + columns;
}

size_t trial_size_of_c(const struct trial *p) {
    return p->rows * p->ldc + 2 * (size_t)TRIAL_GUARD;
}

struct trial trial_start(struct rng *rng, size_t most_rows, size_t most_k, size_t most_n,
                         float (*draw)(struct rng *)) {
    struct trial p = {.factor_a = 1, .factor_b = 1};
    const size_t rows = p.rows = rng_between(rng, 1, most_rows);
    const size_t k = p.k = rng_between(rng, 1, most_k), n = p.n = rng_between(rng, 1, most_n);
    p.transposed = rng_chance(rng, 2);
    const size_t b_rows = p.transposed ? n : k, b_columns = p.transposed ? k : n;
    p.lda = k + rng_between(rng, 0, 1) * rng_between(rng, 0, 20);
    p.ldb = b_columns + rng_between(rng, 0, 1) * rng_between(rng, 0, 20);
    p.ldc = n + rng_between(rng, 0, 1) * rng_between(rng, 0, 20);
    p.past = rng_chance(rng, 3) ? rng_between(rng, 0, b_rows) : 0;
    const size_t counts[] = {trial_numbers(rows, p.lda, k), trial_numbers(p.past, p.ldb, b_columns),
                             trial_numbers(b_rows - p.past, p.ldb, b_columns), trial_size_of_c(&p)};
    float **const all[] = {&p.a, &p.b[0], &p.b[1], &p.c};
    for (size_t m = 0; m < 4; m++) {
        *all[m] = trial_allocate(counts[m], sizeof(float));
        for (size_t i = 0; i < counts[m]; i++) {
            (*all[m])[i] = draw(rng);
        }
    }
    p.was = trial_allocate(counts[3], sizeof(float));
    memcpy(p.was, p.c, counts[3] * sizeof(float));
    p.packed_a = trial_allocate_parts(rows, k);
    p.packed_b = trial_allocate_parts(n, k);
    return p;
}

void trial_end(struct trial *p) {
    free(p->a);
    free(p->b[0]);
    free(p->b[1]);
    free(p->c);
    free(p->was);
    free(p->packed_a);
    free(p->packed_b);
}

void trial_pack(const struct attn_tiles *t, struct trial *p) {
    const struct attn_tile_source b = {p->b[0], p->ldb, p->past, p->b[1], p->ldb};
    p->most_a = t->pack_left(p->packed_a, p->a, p->lda, p->rows, p->k, p->factor_a);
    p->most_b = t->pack_right(p->packed_b, &b, p->k, p->n, p->transposed, p->factor_b);
}

struct attn_tile_product trial_product(const struct trial *p, bool add) {
    return (struct attn_tile_product){.a = p->packed_a,
                                      .b = p->packed_b,
                                      .k = p->k,
                                      .to = p->k,
                                      .c = p->c + TRIAL_GUARD,
                                      .ldc = p->ldc,
                                      .rows = p->rows,
                                      .n = p->n,
                                      .add = add};
}

void trial_multiply(const struct attn_tiles *t, const struct trial *p, bool add) {
    struct attn_tile_unit unit;
    struct attn_tile_product product = trial_product(p, add);
    t->begin(&unit);
    t->multiply(&unit, &product);
    t->end();
}

float trial_draw_normal(struct rng *rng) {
    return (float)rng_normal(rng);
}

float trial_draw_small(struct rng *rng) {
    const int exponent = -149 + (int)rng_between(rng, 0, 160);
    return rng_chance(rng, 10) ? 0 : (float)ldexp(rng_normal(rng), exponent);
}
