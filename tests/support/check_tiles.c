/*
 * check_tiles.c has the checks of check_tiles.h that split and multiply. check_tile_softmax.c has
 * the others.
 */
#include "support/check_tiles.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_kernels.h"
#include "support/scale.h"
#include "support/tile_trial.h"

/* ------------------------------------------------------------------------------------ splitting */

static double part_of(uint16_t part) {
    const uint32_t bits = (uint32_t)part << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* Checks the three parts of `count` numbers, which are packed as a row. */
static const char *check_parts(const struct attn_tiles *t, const float *x, size_t count,
                               float factor) {
    uint16_t *packed = trial_allocate_parts(1, count);
    const char *wrong = NULL;
    t->pack_left(packed, x, count, 1, count, factor);
    for (size_t i = 0; i < count && wrong == NULL; i++) {
        const uint16_t *part = packed + i / 32 * 3 * ATTN_TILE_NUMBERS + i % 16 * 2 + i % 32 / 16;
        const double parts[] = {part_of(part[0]), part_of(part[ATTN_TILE_NUMBERS]),
                                part_of(part[2 * ATTN_TILE_NUMBERS])};
        const double want = (double)(x[i] * factor);
        double rest = want;
        for (int k = 0; k < 3; k++) {
            /* A part is the nearest number of 8 bits, so the rest has at most half of the last. */
            int exponent;
            frexp(rest, &exponent);
            if (fabs(rest) >= 0x1p-126 && !(fabs(rest - parts[k]) <= ldexp(1, exponent - 9))) {
                wrong = check_failure("part %d of %a is %a of %a", k, want, parts[k], rest);
            }
            rest -= parts[k];
        }
        if (fabs(want) >= 0x1p-103 ? rest != 0 : !(fabs(rest) < 0x1p-126)) {
            wrong = check_failure("%a is not %a + %a + %a", want, parts[0], parts[1], parts[2]);
        }
    }
    free(packed);
    return wrong;
}

static float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

const char *check_tiles_split_is_exact(const struct attn_tiles *t) {
    enum {
        COUNT = 4096
    };
    static float x[COUNT];
    struct rng rng = {15};
    const char *wrong = NULL;
    for (size_t round = 0; round < test_scale(40) && wrong == NULL; round++) {
        for (size_t i = 0; i < COUNT; i++) { /* all exponents, and all below 2^127 */
            const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x17fff, 0x18000};
            uint32_t bits = (uint32_t)(rng_bits(&rng) >> 32);
            bits = rng_chance(&rng, 2) ? bits : (bits & 0xfffe0000) | low[bits % 8];
            x[i] = float_of_bits(bits);
            x[i] = fabsf(x[i]) <= 0x1p127f ? x[i] : 0;
        }
        wrong = check_parts(t, x, COUNT, 1);
        for (size_t i = 0; i < COUNT; i++) { /* with its factor every float is exact */
            x[i] = fabsf(x[i]) <= 0x1p80f ? x[i] : (float)rng_normal(&rng);
        }
        wrong = wrong != NULL ? wrong : check_parts(t, x, COUNT, ATTN_TILE_FACTOR);
    }
    return wrong;
}

const char *check_tiles_largest_magnitude_is_found(const struct attn_tiles *t) {
    struct rng rng = {16};
    const float odd[] = {3e38f, -FLT_MAX, INFINITY, -INFINITY, NAN};
    for (size_t c = 0; c < 200; c++) {
        const size_t rows = rng_between(&rng, 1, 20), k = rng_between(&rng, 1, 70);
        const struct attn_tile_source source = {.rest_ld = k};
        struct attn_tile_source b = source;
        float *x = trial_allocate(rows * k, sizeof *x), want = 0;
        uint16_t *packed =
            trial_allocate(attn_tiles_parts(rows, k) + attn_tiles_parts(k, rows), sizeof *packed);
        for (size_t i = 0; i < rows * k; i++) {
            x[i] = (float)rng_normal(&rng);
        }
        if (rng_chance(&rng, 2)) {
            x[rng_between(&rng, 0, rows * k - 1)] = odd[c % 5];
        }
        for (size_t i = 0; i < rows * k; i++) {
            want = fabsf(x[i]) <= want ? want : fabsf(x[i]);
            want = isfinite(x[i]) && !isnan(want) ? want : INFINITY;
        }
        b.rest = x;
        const float left = t->pack_left(packed, x, k, rows, k, 1);
        const float plain = t->pack_right(packed, &b, rows, k, false, 1);
        const float transposed = t->pack_right(packed, &b, k, rows, true, 1);
        free(packed);
        free(x);
        if (left != want || plain != want || transposed != want) {
            return check_failure("the largest of %zu x %zu is %g, not %g, %g or %g", rows, k,
                                 (double)want, (double)left, (double)plain, (double)transposed);
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------- products */

static float b_at(const struct trial *p, size_t k, size_t j) {
    const size_t row = p->transposed ? j : k, column = p->transposed ? k : j;
    return row < p->past ? p->b[0][row * p->ldb + column]
                         : p->b[1][(row - p->past) * p->ldb + column];
}

/* The bound of the trials here, whose k is at most 200. The products that are left out are below
 * 2^-24, and the rest is rounding. The largest error that was seen is 1.7e-7 for normal numbers,
 * which is 2.9 times 2^-24, and 3.6e-7 if one product of a sum is far larger than the others. */
#define BOUND (8 * 0x1p-24)

/* Compares C with the product in double. The error is relative to the sum of |a b|. A float cannot
 * tell errors below 2^-149. */
static const char *check_trial(const struct trial *p, bool add) {
    const double scale = 1 / ((double)p->factor_a * (double)p->factor_b);
    for (size_t i = 0; i < trial_size_of_c(p); i++) {
        const size_t at = i - TRIAL_GUARD;
        if ((i < TRIAL_GUARD || at / p->ldc >= p->rows || at % p->ldc >= p->n) &&
            memcmp(&p->c[i], &p->was[i], sizeof *p->c) != 0) {
            return check_failure("product %zu x %zu x %zu wrote outside of C", p->rows, p->k, p->n);
        }
    }
    for (size_t i = 0; i < p->rows * p->n; i++) {
        const size_t r = i / p->n, j = i % p->n, at = TRIAL_GUARD + r * p->ldc + j;
        double want = add ? (double)p->was[at] * scale : 0, terms = fabs(want);
        for (size_t e = 0; e < p->k; e++) {
            const double term = (double)p->a[r * p->lda + e] * (double)b_at(p, e, j);
            want += term;
            terms += fabs(term);
        }
        const double error = fabs((double)p->c[at] * scale - want);
        if (!(error <= BOUND * terms + 0x1p-149)) {
            return check_failure("product %zu x %zu x %zu%s%s at %zu, %zu: %a, not %a, off by %g",
                                 p->rows, p->k, p->n, p->transposed ? " transposed" : "",
                                 add ? " added" : "", r, j, (double)p->c[at] * scale, want,
                                 error / terms);
        }
    }
    return NULL;
}

const char *check_tiles_products_agree_with_double(const struct attn_tiles *t) {
    struct rng rng = {17};
    for (size_t c = 0; c < test_scale(400); c++) {
        const bool add = rng_chance(&rng, 2);
        struct trial p = trial_start(&rng, 50, 200, 100, trial_draw_normal);
        trial_pack(t, &p);
        trial_multiply(t, &p, add);
        const char *wrong = check_trial(&p, add);
        trial_end(&p);
        if (wrong != NULL) {
            return wrong;
        }
    }
    return NULL;
}

/* Computes the product in blocks of rows and columns and in pieces of k, into `c`. */
static void multiply_in_blocks(const struct attn_tiles *t, const struct trial *p, float *c,
                               struct rng *rng) {
    const size_t panel = attn_tiles_panel(p->k);
    const size_t rows = 16 * rng_between(rng, 1, 3), columns = 16 * rng_between(rng, 1, 4);
    const size_t some = 32 * rng_between(rng, 1, 3);
    struct attn_tile_unit unit;
    t->begin(&unit);
    for (size_t r = 0; r < p->rows; r += rows) {
        for (size_t j = 0; j < p->n; j += columns) {
            for (size_t from = 0; from < p->k; from += some) {
                struct attn_tile_product block = trial_product(p, from > 0);
                block.a += r / 16 * panel;
                block.b += j / 16 * panel;
                block.from = from;
                block.to = from + some < p->k ? from + some : p->k;
                block.c = c + TRIAL_GUARD + r * p->ldc + j;
                block.rows = p->rows - r < rows ? p->rows - r : rows;
                block.n = p->n - j < columns ? p->n - j : columns;
                t->multiply(&unit, &block);
            }
        }
    }
    t->end();
}

/* A row that is packed and computed alone has the same bytes, too. */
static const char *check_row_alone(const struct attn_tiles *t, const struct trial *p, size_t r) {
    uint16_t *packed = trial_allocate_parts(1, p->k);
    float *c = trial_allocate(p->n, sizeof *c);
    struct attn_tile_unit unit;
    struct attn_tile_product product = trial_product(p, false);
    t->pack_left(packed, p->a + r * p->lda, p->lda, 1, p->k, p->factor_a);
    product.a = packed;
    product.c = c;
    product.ldc = p->n;
    product.rows = 1;
    t->begin(&unit);
    t->multiply(&unit, &product);
    t->end();
    const bool same = memcmp(c, p->c + TRIAL_GUARD + r * p->ldc, p->n * sizeof *c) == 0;
    free(packed);
    free(c);
    return same ? NULL : check_failure("row %zu of %zu alone has other bytes", r, p->rows);
}

const char *check_tiles_products_do_not_depend_on_blocks(const struct attn_tiles *t) {
    struct rng rng = {18};
    for (size_t c = 0; c < test_scale(100); c++) {
        struct trial p = trial_start(&rng, 80, 150, 120, trial_draw_normal);
        assert(p.rows > 0);
        float *again = trial_allocate(trial_size_of_c(&p), sizeof *again);
        memcpy(again, p.was, trial_size_of_c(&p) * sizeof *again);
        trial_pack(t, &p);
        trial_multiply(t, &p, false);
        multiply_in_blocks(t, &p, again, &rng);
        const char *wrong = check_row_alone(t, &p, (size_t)rng_bits(&rng) % p.rows);
        if (memcmp(again, p.c, trial_size_of_c(&p) * sizeof *again) != 0) {
            wrong = check_failure("%zu x %zu x %zu in blocks has other bytes", p.rows, p.k, p.n);
        }
        free(again);
        trial_end(&p);
        if (wrong != NULL) {
            return wrong;
        }
    }
    return NULL;
}

/* --------------------------------------------------------------------------------- magnitudes */

/* Each matrix has small and large numbers, and a few of any size. */
static float draw_mixed(struct rng *rng) {
    const float some[] = {1e-38f, 1e-45f, 3e-38f, 1, 1e3f, 0};
    const float size = some[rng_between(rng, 0, 5)];
    return size * (float)rng_normal(rng);
}

/* Numbers like weights: exp of something between -87 and 0. */
static float draw_weight(struct rng *rng) {
    return rng_chance(rng, 9) ? 0 : (float)exp(-87.3 * rng_uniform(rng));
}

/* Values of any exponent from subnormal ones up to 2^40. */
static float draw_value(struct rng *rng) {
    const int exponent = -149 + (int)rng_between(rng, 0, 187);
    return (float)ldexp(rng_normal(rng), exponent);
}

/* Draws the right operand of a trial again. */
static void draw_b(const struct trial *p, float (*draw)(struct rng *), struct rng *rng) {
    const size_t rows = p->transposed ? p->n : p->k, columns = p->transposed ? p->k : p->n;
    for (size_t i = 0; i < trial_numbers(p->past, p->ldb, columns); i++) {
        p->b[0][i] = draw(rng);
    }
    for (size_t i = 0; i < trial_numbers(rows - p->past, p->ldb, columns); i++) {
        p->b[1][i] = draw(rng);
    }
}

/* Makes a number near the largest so that attn_tiles_hold() just accepts, or refuses, the trial. */
static const char *check_at_limit(const struct attn_tiles *t, struct rng *rng) {
    struct trial p = trial_start(rng, 5, 70, 20, trial_draw_normal);
    const char *wrong = NULL;
    const float largest = (float)ldexp(1, 62);
    for (size_t i = 0; i < trial_numbers(p.rows, p.lda, p.k); i++) {
        p.a[i] = rng_chance(rng, 2) ? largest : -largest;
    }
    const float other = (float)(0x1p64 / (double)p.k);
    for (size_t i = 0; i < trial_numbers(p.past, p.ldb, p.transposed ? p.k : p.n); i++) {
        p.b[0][i] = other;
    }
    for (size_t i = 0, rows = p.transposed ? p.n : p.k;
         i < trial_numbers(rows - p.past, p.ldb, p.transposed ? p.k : p.n); i++) {
        p.b[1][i] = other;
    }
    trial_pack(t, &p);
    if (!attn_tiles_hold(p.most_a, nextafterf(p.most_b, 0), p.k) ||
        attn_tiles_hold(p.most_a, p.most_b * 1.01f, p.k) || attn_tiles_hold(1, INFINITY, 1) ||
        attn_tiles_hold(INFINITY, 0, 1)) {
        wrong = check_failure("attn_tiles_hold has another limit for %zu", p.k);
    }
    trial_multiply(t, &p, false);
    wrong = wrong != NULL ? wrong : check_trial(&p, false);
    trial_end(&p);
    return wrong;
}

const char *check_tiles_products_hold_at_the_borders(const struct attn_tiles *t) {
    struct rng rng = {19};
    static const struct {
        float (*draw)(struct rng *);
        float factor_a, factor_b;
    } kinds[] = {{trial_draw_small, ATTN_TILE_FACTOR, ATTN_TILE_FACTOR},
                 {draw_mixed, ATTN_TILE_FACTOR, ATTN_TILE_FACTOR},
                 {draw_weight, ATTN_TILE_WEIGHT, ATTN_TILE_FACTOR}};
    size_t held = 0;
    for (size_t c = 0; c < test_scale(300); c++) {
        struct trial p = trial_start(&rng, 20, 100, 40, kinds[c % 3].draw);
        const char *wrong = NULL;
        p.factor_a = kinds[c % 3].factor_a;
        p.factor_b = kinds[c % 3].factor_b;
        if (c % 3 == 2) { /* tiny weights meet values of any size */
            draw_b(&p, draw_value, &rng);
        }
        trial_pack(t, &p);
        if (attn_tiles_hold(p.most_a, p.most_b, p.k)) {
            held++;
            trial_multiply(t, &p, false);
            wrong = check_trial(&p, false);
        }
        trial_end(&p);
        wrong = wrong != NULL ? wrong : check_at_limit(t, &rng);
        if (wrong != NULL) {
            return wrong;
        }
    }
    return held < test_scale(300) * 9 / 10 ? check_failure("only %zu trials were valid", held)
                                           : NULL;
}
