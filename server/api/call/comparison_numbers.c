/*
 * comparison_numbers.c - the types in which kernels multiply, and the numbers that are compared.
 */
#include "api/call/comparison.h"

#include <math.h>
#include <string.h>

/* The relative tolerances of float64, float32, float16 and bfloat16 are those of
 * torch.testing.assert_close(), and so are the absolute ones of float64 and float32 for results of
 * the size 1. */
const struct comparison_type comparison_types[] = {
    {"float64", 0x1p-51, 0x1p-51, 0x1p-500, 0x1p-500, 0x1p-52, 0, 1e-7, 1e-7},
    {"float32", 0x1p-24, 0x1p-23, 0x1p-126, 0x1p-126, 0x1p-24, 0, 1.3e-6, 1e-5},
    {"tf32", 0x1p-11, 0x1p-23, 0x1p-126, 0x1p-126, 0x1p-24, 0, 1e-3, 1e-3},
    {"float16", 0x1p-11, 0x1p-11, 0x1p-25, 0x1p-25, 0x1p-24, -65504, 1e-3, 1e-3},
    {"bfloat16", 0x1p-8, 0x1p-8, 0x1p-126, 0x1p-126, 0x1p-24, 0, 1.6e-2, 1.6e-2},
    {"float8", 0x1p-4, 0x1p-21, 0x1p-17, 0x1p-126, 0x1p-24, 0, 0.25, 0.25},
    {"float8_e5m2", 0x1p-3, 0x1p-21, 0x1p-17, 0x1p-126, 0x1p-24, 0, 0.5, 0.5},
};

const struct comparison_type *comparison_type_of(enum codec_type type) {
    static const size_t types[CODEC_TYPE_COUNT] = {
        [CODEC_TYPE_FP8_E4M3] = COMPARISON_FLOAT8, [CODEC_TYPE_FP8_E5M2] = COMPARISON_FLOAT8_E5M2,
        [CODEC_TYPE_FP16] = COMPARISON_FLOAT16,    [CODEC_TYPE_BF16] = COMPARISON_BFLOAT16,
        [CODEC_TYPE_FP32] = COMPARISON_FLOAT32,    [CODEC_TYPE_FP64] = COMPARISON_FLOAT64};
    return &comparison_types[types[type]];
}

void comparison_widen(const void *data, attn_dtype dtype, size_t first, size_t count, double *out) {
    if (dtype == ATTN_FLOAT64) {
        memcpy(out, (const double *)data + first, count * sizeof *out);
        return;
    }
    const float *numbers = (const float *)data + first;
    for (size_t i = 0; i < count; i++) {
        out[i] = (double)numbers[i];
    }
}

void comparison_exact(const struct comparison_pair *pair, size_t first, size_t count, double *out) {
    if (pair->exact != NULL) {
        memcpy(out, pair->exact + first, count * sizeof *out);
    } else {
        comparison_widen(pair->result->data, pair->result->dtype, first, count, out);
    }
}

bool comparison_judges(const struct comparison *own, const struct comparison_pair *pair) {
    const bool unexplained = pair->sums.score > 1 && isfinite(pair->sums.score);
    return pair->computed == own->type ||
           (pair->computed < own->type && unexplained && pair->coarser == NULL);
}
