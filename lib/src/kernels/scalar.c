/* scalar.c - row kernels in plain C, for every CPU; what the others are tested against. */
#include "kernels.h"

#include <float.h>
#include <math.h>

/* In SHIFTED the product of two floats is exact in double. */

#define real                   float
#define ROW(name)              name##_f32
#define EXP                    expf
#define REAL_HIGHEST           FLT_MAX
#define SHIFTED(x, scale, max) (float)((double)(x) * (double)(scale) - (double)(max))
#define MAX_EXACT              0x1p29
#include "scalar.inc"
#undef real
#undef ROW
#undef EXP
#undef SHIFTED
#undef REAL_HIGHEST
#undef MAX_EXACT

#define real                   double
#define ROW(name)              name##_f64
#define EXP                    exp
#define REAL_HIGHEST           DBL_MAX
#define SHIFTED(x, scale, max) fma(x, scale, -(max))
#define MAX_EXACT              0x1p58
#include "scalar.inc"

static void softcap(double *y, size_t n, double softcap) {
    for (size_t i = 0; i < n; i++) {
        y[i] = isfinite(y[i]) ? softcap * tanh(y[i] / softcap) : y[i];
    }
}

static void alibi(double *y, size_t n, double slope, double first) {
    for (size_t i = 0; i < n; i++) {
        y[i] -= slope * fabs(first + (double)i);
    }
}

static void fence(void) {
    /* nothing goes past the caches */
}

const struct attn_kernels attn_kernels_scalar = {
    .name = "scalar",
    .max_f32 = max_f32,
    .max_f64 = max_f64,
    .mask_f32 = mask_f32,
    .mask_f64 = mask_f64,
    .widen_f32 = widen_f32,
    .widen_f64 = widen_f64,
    .softcap = softcap,
    .alibi = alibi,
    .admit_f32 = admit_f32,
    .admit_f64 = admit_f64,
    .moments_f32 = moments_f32,
    .moments_f64 = moments_f64,
    .exp_f32 = exp_row_f32,
    .exp_f64 = exp_row_f64,
    .exp_shift_f32 = exp_shift_f32,
    .exp_shift_f64 = exp_shift_f64,
    .online_f32 = online_f32,
    .online_f64 = online_f64,
    .spread_f32 = spread_f32,
    .spread_f64 = spread_f64,
    .fence = fence,
    .mul_f32 = mul_f32,
    .mul_f64 = mul_f64,
    .axpy_f32 = axpy_f32,
    .axpy_f64 = axpy_f64,
    .dots_f32 = dots_f32,
    .dots_f64 = dots_f64,
    .combine_f32 = combine_f32,
    .combine_f64 = combine_f64,
    .mix_f32 = mix_f32,
    .mix_f64 = mix_f64,
};
