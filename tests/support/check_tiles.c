/*
 * check_tiles.c implements check_tiles.h. Operands and packed operands are allocated with their
 * exact sizes, and packed ones are not cleared, so that valgrind and the sanitizers see what is
 * read beyond them or before it is written.
 */
#include "support/check_tiles.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "support/check_kernels.h"
#include "support/rng.h"
#include "support/scale.h"
#include "support/tile_model.h"

double check_tiles_worst;

static void *allocate_exactly(size_t count, size_t size) {
    /* The size is a multiple of the alignment only for packed operands. */
    void *memory = count * size % 64 == 0 && count > 0 ? aligned_alloc(64, count * size)
                                                       : malloc(count * size + (count == 0));
    assert(memory != NULL);
    return memory;
}

static uint16_t *allocate_parts(size_t across, size_t k) {
    return allocate_exactly(attn_tiles_parts(across, k), sizeof(uint16_t));
}

static double part_of(uint16_t part) {
    const uint32_t bits = (uint32_t)part << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* ------------------------------------------------------------------------------------ splitting */

/* Checks the three parts of `count` numbers, which are packed as a row. */
static const char *check_parts(const struct attn_tiles *t, const float *x, size_t count,
                               float factor) {
    uint16_t *packed = allocate_parts(1, count);
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
        float *x = allocate_exactly(rows * k, sizeof *x), want = 0;
        uint16_t *packed =
            allocate_exactly(attn_tiles_parts(rows, k) + attn_tiles_parts(k, rows), sizeof *packed);
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

enum {
    GUARD_FLOATS = 40 /* floats around C that must stay as they are */
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

static size_t numbers_of(size_t rows, size_t ld, size_t columns) {
    return rows == 0 ? 0 : (rows - 1) * ld + columns;
}

static float b_at(const struct trial *p, size_t k, size_t j) {
    const size_t row = p->transposed ? j : k, column = p->transposed ? k : j;
    return row < p->past ? p->b[0][row * p->ldb + column]
                         : p->b[1][(row - p->past) * p->ldb + column];
}

static size_t size_of_c(const struct trial *p) {
    return p->rows * p->ldc + 2 * (size_t)GUARD_FLOATS;
}

/* Makes a trial of a size up to these. Its numbers are drawn by `draw`. */
static struct trial start_trial(struct rng *rng, size_t most_rows, size_t most_k, size_t most_n,
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
    const size_t counts[] = {numbers_of(rows, p.lda, k), numbers_of(p.past, p.ldb, b_columns),
                             numbers_of(b_rows - p.past, p.ldb, b_columns), size_of_c(&p)};
    float **const all[] = {&p.a, &p.b[0], &p.b[1], &p.c};
    for (size_t m = 0; m < 4; m++) {
        *all[m] = allocate_exactly(counts[m], sizeof(float));
        for (size_t i = 0; i < counts[m]; i++) {
            (*all[m])[i] = draw(rng);
        }
    }
    p.was = allocate_exactly(counts[3], sizeof(float));
    memcpy(p.was, p.c, counts[3] * sizeof(float));
    p.packed_a = allocate_parts(rows, k);
    p.packed_b = allocate_parts(n, k);
    return p;
}

/* Draws the right operand of a trial again. */
static void draw_b(const struct trial *p, float (*draw)(struct rng *), struct rng *rng) {
    const size_t rows = p->transposed ? p->n : p->k, columns = p->transposed ? p->k : p->n;
    for (size_t i = 0; i < numbers_of(p->past, p->ldb, columns); i++) {
        p->b[0][i] = draw(rng);
    }
    for (size_t i = 0; i < numbers_of(rows - p->past, p->ldb, columns); i++) {
        p->b[1][i] = draw(rng);
    }
}

static void end_trial(struct trial *p) {
    free(p->a);
    free(p->b[0]);
    free(p->b[1]);
    free(p->c);
    free(p->was);
    free(p->packed_a);
    free(p->packed_b);
}

static void pack_trial(const struct attn_tiles *t, struct trial *p) {
    const struct attn_tile_source b = {p->b[0], p->ldb, p->past, p->b[1], p->ldb};
    p->most_a = t->pack_left(p->packed_a, p->a, p->lda, p->rows, p->k, p->factor_a);
    p->most_b = t->pack_right(p->packed_b, &b, p->k, p->n, p->transposed, p->factor_b);
}

static struct attn_tile_product product_of(const struct trial *p, bool add) {
    return (struct attn_tile_product){.a = p->packed_a,
                                      .b = p->packed_b,
                                      .k = p->k,
                                      .to = p->k,
                                      .c = p->c + GUARD_FLOATS,
                                      .ldc = p->ldc,
                                      .rows = p->rows,
                                      .n = p->n,
                                      .add = add};
}

static void multiply_trial(const struct attn_tiles *t, const struct trial *p, bool add) {
    struct attn_tile_unit unit;
    struct attn_tile_product product = product_of(p, add);
    t->begin(&unit);
    t->multiply(&unit, &product);
    t->end();
}

/* The bound of the trials here, whose k is at most 200. The products that are left out are below
 * 2^-24, and the rest is rounding. The largest error that was seen is 1.7e-7 for normal numbers,
 * which is 2.9 times 2^-24, and 3.6e-7 if one product of a sum is far larger than the others. */
#define BOUND (8 * 0x1p-24)

/* Compares C with the product in double. The error is relative to the sum of |a b|. A float cannot
 * tell errors below 2^-149. */
static const char *check_trial(const struct trial *p, bool add) {
    const double scale = 1 / ((double)p->factor_a * (double)p->factor_b);
    for (size_t i = 0; i < size_of_c(p); i++) {
        const size_t at = i - GUARD_FLOATS;
        if ((i < GUARD_FLOATS || at / p->ldc >= p->rows || at % p->ldc >= p->n) &&
            memcmp(&p->c[i], &p->was[i], sizeof *p->c) != 0) {
            return check_failure("product %zu x %zu x %zu wrote outside of C", p->rows, p->k, p->n);
        }
    }
    for (size_t i = 0; i < p->rows * p->n; i++) {
        const size_t r = i / p->n, j = i % p->n, at = GUARD_FLOATS + r * p->ldc + j;
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
        check_tiles_worst = fmax(check_tiles_worst, (error - 0x1p-149) / fmax(terms, 0x1p-149));
    }
    return NULL;
}

static float draw_normal(struct rng *rng) {
    return (float)rng_normal(rng);
}

const char *check_tiles_products_agree_with_double(const struct attn_tiles *t) {
    struct rng rng = {17};
    for (size_t c = 0; c < test_scale(400); c++) {
        const bool add = rng_chance(&rng, 2);
        struct trial p = start_trial(&rng, 50, 200, 100, draw_normal);
        pack_trial(t, &p);
        multiply_trial(t, &p, add);
        const char *wrong = check_trial(&p, add);
        end_trial(&p);
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
                struct attn_tile_product block = product_of(p, from > 0);
                block.a += r / 16 * panel;
                block.b += j / 16 * panel;
                block.from = from;
                block.to = from + some < p->k ? from + some : p->k;
                block.c = c + GUARD_FLOATS + r * p->ldc + j;
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
    uint16_t *packed = allocate_parts(1, p->k);
    float *c = allocate_exactly(p->n, sizeof *c);
    struct attn_tile_unit unit;
    struct attn_tile_product product = product_of(p, false);
    t->pack_left(packed, p->a + r * p->lda, p->lda, 1, p->k, p->factor_a);
    product.a = packed;
    product.c = c;
    product.ldc = p->n;
    product.rows = 1;
    t->begin(&unit);
    t->multiply(&unit, &product);
    t->end();
    const bool same = memcmp(c, p->c + GUARD_FLOATS + r * p->ldc, p->n * sizeof *c) == 0;
    free(packed);
    free(c);
    return same ? NULL : check_failure("row %zu of %zu alone has other bytes", r, p->rows);
}

const char *check_tiles_products_do_not_depend_on_blocks(const struct attn_tiles *t) {
    struct rng rng = {18};
    for (size_t c = 0; c < test_scale(100); c++) {
        struct trial p = start_trial(&rng, 80, 150, 120, draw_normal);
        assert(p.rows > 0);
        float *again = allocate_exactly(size_of_c(&p), sizeof *again);
        memcpy(again, p.was, size_of_c(&p) * sizeof *again);
        pack_trial(t, &p);
        multiply_trial(t, &p, false);
        multiply_in_blocks(t, &p, again, &rng);
        const char *wrong = check_row_alone(t, &p, (size_t)rng_bits(&rng) % p.rows);
        if (memcmp(again, p.c, size_of_c(&p) * sizeof *again) != 0) {
            wrong = check_failure("%zu x %zu x %zu in blocks has other bytes", p.rows, p.k, p.n);
        }
        free(again);
        end_trial(&p);
        if (wrong != NULL) {
            return wrong;
        }
    }
    return NULL;
}

/* --------------------------------------------------------------------------------- magnitudes */

/* Numbers of any exponent from subnormal ones up to 2^12, and zeros. */
static float draw_small(struct rng *rng) {
    const int exponent = -149 + (int)rng_between(rng, 0, 160);
    return rng_chance(rng, 10) ? 0 : (float)ldexp(rng_normal(rng), exponent);
}

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

/* Makes a number near the largest so that attn_tiles_hold() just accepts, or refuses, the trial. */
static const char *check_at_limit(const struct attn_tiles *t, struct rng *rng) {
    struct trial p = start_trial(rng, 5, 70, 20, draw_normal);
    const char *wrong = NULL;
    const float largest = (float)ldexp(1, 62);
    for (size_t i = 0; i < numbers_of(p.rows, p.lda, p.k); i++) {
        p.a[i] = rng_chance(rng, 2) ? largest : -largest;
    }
    const float other = (float)(0x1p64 / (double)p.k);
    for (size_t i = 0; i < numbers_of(p.past, p.ldb, p.transposed ? p.k : p.n); i++) {
        p.b[0][i] = other;
    }
    for (size_t i = 0, rows = p.transposed ? p.n : p.k;
         i < numbers_of(rows - p.past, p.ldb, p.transposed ? p.k : p.n); i++) {
        p.b[1][i] = other;
    }
    pack_trial(t, &p);
    if (!attn_tiles_hold(p.most_a, nextafterf(p.most_b, 0), p.k) ||
        attn_tiles_hold(p.most_a, p.most_b * 1.01f, p.k) || attn_tiles_hold(1, INFINITY, 1) ||
        attn_tiles_hold(INFINITY, 0, 1)) {
        wrong = check_failure("attn_tiles_hold has another limit for %zu", p.k);
    }
    multiply_trial(t, &p, false);
    wrong = wrong != NULL ? wrong : check_trial(&p, false);
    end_trial(&p);
    return wrong;
}

const char *check_tiles_products_hold_at_the_borders(const struct attn_tiles *t) {
    struct rng rng = {19};
    static const struct {
        float (*draw)(struct rng *);
        float factor_a, factor_b;
    } kinds[] = {{draw_small, ATTN_TILE_FACTOR, ATTN_TILE_FACTOR},
                 {draw_mixed, ATTN_TILE_FACTOR, ATTN_TILE_FACTOR},
                 {draw_weight, ATTN_TILE_WEIGHT, ATTN_TILE_FACTOR}};
    size_t held = 0;
    for (size_t c = 0; c < test_scale(300); c++) {
        struct trial p = start_trial(&rng, 20, 100, 40, kinds[c % 3].draw);
        const char *wrong = NULL;
        p.factor_a = kinds[c % 3].factor_a;
        p.factor_b = kinds[c % 3].factor_b;
        if (c % 3 == 2) { /* tiny weights meet values of any size */
            draw_b(&p, draw_value, &rng);
        }
        pack_trial(t, &p);
        if (attn_tiles_hold(p.most_a, p.most_b, p.k)) {
            held++;
            multiply_trial(t, &p, false);
            wrong = check_trial(&p, false);
        }
        end_trial(&p);
        wrong = wrong != NULL ? wrong : check_at_limit(t, &rng);
        if (wrong != NULL) {
            return wrong;
        }
    }
    return held < test_scale(300) * 9 / 10 ? check_failure("only %zu trials were valid", held)
                                           : NULL;
}

/* -------------------------------------------------------------------------------------- softmax */

/* The state of a block of rows of online softmax. */
struct block_of_rows {
    size_t rows, n, width, ld;
    bool check;
    float scale, *x, *max, *factor;
    double *sum;
    uint16_t *packed;
};

static struct block_of_rows start_rows(struct rng *rng) {
    struct block_of_rows b = {.rows = rng_between(rng, 1, 40)};
    b.width = rng_between(rng, 1, 200);
    b.n = rng_chance(rng, 3) ? rng_between(rng, 0, b.width) : b.width;
    b.ld = b.width + rng_between(rng, 0, 9);
    b.check = rng_chance(rng, 2);
    b.scale = (float)(1 + rng_uniform(rng));
    b.scale = ldexpf(b.scale, (int)rng_between(rng, 0, 8) - 4);
    b.x = allocate_exactly(numbers_of(b.rows, b.ld, b.width), sizeof *b.x);
    b.max = allocate_exactly(b.rows, sizeof *b.max);
    b.factor = allocate_exactly(b.rows, sizeof *b.factor);
    b.sum = allocate_exactly(b.rows, sizeof *b.sum);
    b.packed = allocate_parts(b.rows, b.width);
    for (size_t i = 0; i < numbers_of(b.rows, b.ld, b.width); i++) {
        b.x[i] = rng_chance(rng, 50) ? -INFINITY : (float)(4 * rng_normal(rng));
    }
    if (rng_chance(rng, 4)) { /* one odd score */
        const float odd[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 0x1p31f};
        b.x[rng_between(rng, 0, numbers_of(b.rows, b.ld, b.width) - 1)] =
            odd[rng_between(rng, 0, 5)];
    }
    for (size_t r = 0; r < b.rows; r++) {
        b.max[r] = rng_chance(rng, 3) ? -INFINITY : (float)(3 * rng_normal(rng));
        b.sum[r] = b.max[r] > -INFINITY ? 1 + rng_uniform(rng) : 0;
    }
    return b;
}

static struct block_of_rows copy_rows(const struct block_of_rows *from) {
    struct block_of_rows b = *from;
    const size_t numbers = numbers_of(b.rows, b.ld, b.width);
    b.x = allocate_exactly(numbers, sizeof *b.x);
    b.max = allocate_exactly(b.rows, sizeof *b.max);
    b.factor = allocate_exactly(b.rows, sizeof *b.factor);
    b.sum = allocate_exactly(b.rows, sizeof *b.sum);
    b.packed = allocate_parts(b.rows, b.width);
    memcpy(b.x, from->x, numbers * sizeof *b.x);
    memcpy(b.max, from->max, b.rows * sizeof *b.max);
    memcpy(b.sum, from->sum, b.rows * sizeof *b.sum);
    return b;
}

static void end_rows(struct block_of_rows *b) {
    free(b->x);
    free(b->max);
    free(b->factor);
    free(b->sum);
    free(b->packed);
}

static void soften_rows(const struct attn_tiles *t, struct block_of_rows *b,
                        struct attn_tile_product *beside, size_t count) {
    struct attn_tile_unit unit;
    t->begin(&unit);
    t->softmax(&unit, beside, count, b->x, b->ld, b->rows, b->n, b->width, b->scale, b->check,
               b->max, b->sum, b->factor, b->packed);
    t->end();
}

/* Returns whether two packed left operands agree, without the rows that do not exist. */
static bool same_packed(const uint16_t *a, const uint16_t *b, size_t rows, size_t k) {
    const size_t panel = attn_tiles_panel(k);
    for (size_t r = 0; r < rows; r++) {
        for (size_t i = 0; i < panel; i += ATTN_TILE_NUMBERS) {
            const size_t at = r / 16 * panel + i + r % 16 * 32;
            if (memcmp(a + at, b + at, 64) != 0) {
                return false;
            }
        }
    }
    return true;
}

static bool close_to(double is, double want, double units) {
    return is == want || (isnan(is) && isnan(want)) ||
           fabs(is - want) <= units * 0x1p-23 * fabs(want) || fabs(want) < 0x1p-125;
}

/* Compares `got` with what the row kernels of plain C make of the same rows. */
static const char *compare_rows(const struct block_of_rows *got, const struct block_of_rows *want) {
    for (size_t r = 0; r < got->rows; r++) {
        const bool odd = isnan(want->sum[r]);
        if (!close_to(got->sum[r], want->sum[r], 40) ||
            (!odd && (got->max[r] != want->max[r] ||
                      !close_to((double)got->factor[r], (double)want->factor[r], 2)))) {
            return check_failure("row %zu of %zu, %zu wide: sum %g, not %g; max %g, not %g", r,
                                 got->rows, got->n, got->sum[r], want->sum[r], (double)got->max[r],
                                 (double)want->max[r]);
        }
        for (size_t j = 0; j < got->width; j++) {
            const float *a = got->x + r * got->ld, *b = want->x + r * want->ld;
            if (!odd && !close_to((double)a[j], (double)b[j], j < got->n ? 2 : 0)) {
                return check_failure("weight %zu, %zu of %zu is %a, not %a", r, j, got->n,
                                     (double)a[j], (double)b[j]);
            }
        }
    }
    return NULL;
}

const char *check_tiles_softmax_agrees_with_online(const struct attn_tiles *t) {
    struct rng rng = {20};
    for (size_t c = 0; c < test_scale(400); c++) {
        struct block_of_rows b = start_rows(&rng), want = copy_rows(&b);
        attn_kernels_scalar.online_f32(want.x, want.ld, want.rows, want.n, want.scale, want.check,
                                       want.max, want.sum, want.factor);
        soften_rows(t, &b, NULL, 0);
        const char *wrong = compare_rows(&b, &want);
        /* The packed weights are those in place, and 0 behind them. */
        for (size_t r = 0; r < b.rows; r++) {
            for (size_t j = b.n; j < b.width; j++) {
                b.x[r * b.ld + j] = 0;
            }
        }
        t->pack_left(want.packed, b.x, b.ld, b.rows, b.width, ATTN_TILE_WEIGHT);
        if (wrong == NULL && !same_packed(b.packed, want.packed, b.rows, b.width)) {
            wrong = check_failure("packed weights of %zu rows, %zu of %zu, differ", b.rows, b.n,
                                  b.width);
        }
        end_rows(&b);
        end_rows(&want);
        if (wrong != NULL) {
            return wrong;
        }
    }
    return NULL;
}

const char *check_tiles_softmax_computes_products_beside(const struct attn_tiles *t) {
    struct rng rng = {21};
    for (size_t c = 0; c < test_scale(60); c++) {
        struct trial p[2];
        struct attn_tile_product products[2];
        float *want[2];
        bool same = true;
        for (size_t i = 0; i < 2; i++) {
            p[i] = start_trial(&rng, 40, 150, 130, draw_normal);
            pack_trial(t, &p[i]);
            multiply_trial(t, &p[i], i == 1);
            want[i] = p[i].c;
            p[i].c = allocate_exactly(size_of_c(&p[i]), sizeof(float));
            memcpy(p[i].c, p[i].was, size_of_c(&p[i]) * sizeof(float));
            products[i] = product_of(&p[i], i == 1);
        }
        struct block_of_rows b = start_rows(&rng), alone = copy_rows(&b);
        soften_rows(t, &b, products, 2);
        soften_rows(t, &alone, NULL, 0);
        for (size_t i = 0; i < 2; i++) {
            same = same && memcmp(p[i].c, want[i], size_of_c(&p[i]) * sizeof(float)) == 0;
            free(want[i]);
            end_trial(&p[i]);
        }
        same = same && same_packed(b.packed, alone.packed, b.rows, b.width) &&
               memcmp(b.sum, alone.sum, b.rows * sizeof *b.sum) == 0;
        end_rows(&b);
        end_rows(&alone);
        if (!same) {
            return check_failure("softmax with products beside it has other bytes");
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------- with the model */

/* Returns whether the same trial has the same bytes with the model. */
static bool same_with_model(const struct attn_tiles *t, struct rng *rng) {
    struct trial p = start_trial(rng, 50, 150, 90, rng_chance(rng, 2) ? draw_normal : draw_small);
    struct trial q = p;
    bool same = true;
    q.packed_a = allocate_parts(p.rows, p.k);
    q.packed_b = allocate_parts(p.n, p.k);
    q.c = allocate_exactly(size_of_c(&p), sizeof(float));
    memcpy(q.c, p.was, size_of_c(&p) * sizeof(float));
    pack_trial(t, &p);
    pack_trial(&tile_model, &q);
    multiply_trial(t, &p, true);
    multiply_trial(&tile_model, &q, true);
    same = p.most_a == q.most_a && p.most_b == q.most_b &&
           same_packed(p.packed_a, q.packed_a, p.rows, p.k) &&
           memcmp(p.packed_b, q.packed_b, attn_tiles_parts(p.n, p.k) * sizeof *p.packed_b) == 0 &&
           memcmp(p.c, q.c, size_of_c(&p) * sizeof(float)) == 0;
    free(q.packed_a);
    free(q.packed_b);
    free(q.c);
    end_trial(&p);
    return same;
}

const char *check_tiles_everything_has_the_bytes_of_the_model(const struct attn_tiles *t) {
    struct rng rng = {22};
    for (size_t c = 0; c < test_scale(100); c++) {
        if (!same_with_model(t, &rng)) {
            return check_failure("trial %zu has other bytes than the model", c);
        }
        struct block_of_rows b = start_rows(&rng), model = copy_rows(&b);
        soften_rows(t, &b, NULL, 0);
        soften_rows(&tile_model, &model, NULL, 0);
        bool same = true;
        for (size_t r = 0; r < b.rows; r++) { /* NaN may have another payload */
            same = same && (isnan(model.sum[r])
                                ? isnan(b.sum[r])
                                : b.sum[r] == model.sum[r] && b.factor[r] == model.factor[r] &&
                                      memcmp(b.x + r * b.ld, model.x + r * b.ld,
                                             b.width * sizeof *b.x) == 0);
        }
        end_rows(&b);
        end_rows(&model);
        if (!same) {
            return check_failure("softmax %zu has other bytes than the model", c);
        }
    }
    return NULL;
}
