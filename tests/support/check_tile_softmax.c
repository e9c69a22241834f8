/* check_tile_softmax.c has the checks of check_tiles.h that need softmax or the model. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "support/check_kernels.h"
#include "support/check_tiles.h"
#include "support/scale.h"
#include "support/tile_model.h"
#include "support/tile_trial.h"

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
    b.x = trial_allocate(trial_numbers(b.rows, b.ld, b.width), sizeof *b.x);
    b.max = trial_allocate(b.rows, sizeof *b.max);
    b.factor = trial_allocate(b.rows, sizeof *b.factor);
    b.sum = trial_allocate(b.rows, sizeof *b.sum);
    b.packed = trial_allocate_parts(b.rows, b.width);
    for (size_t i = 0; i < trial_numbers(b.rows, b.ld, b.width); i++) {
        b.x[i] = rng_chance(rng, 50) ? -INFINITY : (float)(4 * rng_normal(rng));
    }
    if (rng_chance(rng, 4)) { /* one odd score */
        const float odd[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 0x1p31f};
        b.x[rng_between(rng, 0, trial_numbers(b.rows, b.ld, b.width) - 1)] =
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
    const size_t numbers = trial_numbers(b.rows, b.ld, b.width);
    b.x = trial_allocate(numbers, sizeof *b.x);
    b.max = trial_allocate(b.rows, sizeof *b.max);
    b.factor = trial_allocate(b.rows, sizeof *b.factor);
    b.sum = trial_allocate(b.rows, sizeof *b.sum);
    b.packed = trial_allocate_parts(b.rows, b.width);
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
           fabs(is - want) <= units * 0x1p-23 * fabs(want) ||
           (fabs(want) < 0x1p-125 && fabs(is) < 0x1p-125);
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
            p[i] = trial_start(&rng, 40, 150, 130, trial_draw_normal);
            trial_pack(t, &p[i]);
            trial_multiply(t, &p[i], i == 1);
            want[i] = p[i].c;
            p[i].c = trial_allocate(trial_size_of_c(&p[i]), sizeof(float));
            memcpy(p[i].c, p[i].was, trial_size_of_c(&p[i]) * sizeof(float));
            products[i] = trial_product(&p[i], i == 1);
        }
        struct block_of_rows b = start_rows(&rng), alone = copy_rows(&b);
        soften_rows(t, &b, products, 2);
        soften_rows(t, &alone, NULL, 0);
        for (size_t i = 0; i < 2; i++) {
            same = same && memcmp(p[i].c, want[i], trial_size_of_c(&p[i]) * sizeof(float)) == 0;
            free(want[i]);
            trial_end(&p[i]);
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
    struct trial p =
        trial_start(rng, 50, 150, 90, rng_chance(rng, 2) ? trial_draw_normal : trial_draw_small);
    struct trial q = p;
    bool same = true;
    q.packed_a = trial_allocate_parts(p.rows, p.k);
    q.packed_b = trial_allocate_parts(p.n, p.k);
    q.c = trial_allocate(trial_size_of_c(&p), sizeof(float));
    memcpy(q.c, p.was, trial_size_of_c(&p) * sizeof(float));
    trial_pack(t, &p);
    trial_pack(&tile_model, &q);
    trial_multiply(t, &p, true);
    trial_multiply(&tile_model, &q, true);
    same = p.most_a == q.most_a && p.most_b == q.most_b &&
           same_packed(p.packed_a, q.packed_a, p.rows, p.k) &&
           memcmp(p.packed_b, q.packed_b, attn_tiles_parts(p.n, p.k) * sizeof *p.packed_b) == 0 &&
           memcmp(p.c, q.c, trial_size_of_c(&p) * sizeof(float)) == 0;
    free(q.packed_a);
    free(q.packed_b);
    free(q.c);
    trial_end(&p);
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
