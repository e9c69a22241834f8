/* neon.c has the row kernels for 64-bit ARM. */
#include "kernels/kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#include <float.h>
#include <math.h>
#include <stdint.h>

/* Transposes the square matrix whose rows are these 4 vectors of float, or 2 of double. */
static inline void transpose_f32(float32x4_t v[4]) {
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(v[0], v[1]));
    const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(v[0], v[1]));
    const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(v[2], v[3]));
    const float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(v[2], v[3]));
    v[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    v[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    v[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    v[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

static inline void transpose_f64(float64x2_t v[2]) {
    const float64x2_t a = v[0];
    v[0] = vtrn1q_f64(a, v[1]);
    v[1] = vtrn2q_f64(a, v[1]);
}

/* Six rows and four vectors: 24 sums in 32 registers. */
#define STRIP_ROWS           6
#define PANEL_VECTORS        4

#define DOUBLES              float64x2_t
#define DOUBLE_LANES         2
#define SET_DOUBLES(c)       vdupq_n_f64(c)
#define LOAD_DOUBLES(p)      vld1q_f64(p)
#define STORE_DOUBLES(p, v)  vst1q_f64(p, v)
#define FMA_DOUBLES(a, b, c) vfmaq_f64(c, a, b)

#define real                 float
#define REAL_IS_FLOAT        1
#define ROW(name)            name##_f32
#define V                    float32x4_t
#define LANES                4
#define SET(c)               vdupq_n_f32(c)
#define LOAD(p)              vld1q_f32(p)
#define STORE(p, v)          vst1q_f32(p, v)
#define MAX(a, b)            vbslq_f32(vcgtq_f32(a, b), a, b)
#define WIDEN(p)             vcvt_f64_f32(vld1_f32(p))
#define NARROW(p, v)         vst1_f32(p, vcvt_f32_f64(v))
#define FMA(a, b, c)         vfmaq_f32(c, a, b)
#define FNMA(a, b, c)        vfmsq_f32(c, a, b)
#define REDUCE_ADD(v)        vaddvq_f32(v)
#define REDUCE_MAX(v)        vmaxvq_f32(v)
#define FOLD_ADD(v)          vpaddq_f32(vpaddq_f32((v)[0], (v)[1]), vpaddq_f32((v)[2], (v)[3]))
#define FOLD_MAX(v)          vpmaxq_f32(vpmaxq_f32((v)[0], (v)[1]), vpmaxq_f32((v)[2], (v)[3]))
#define TRANSPOSE(v)         transpose_f32(v)
#define CLAMP(x)             vbslq_f32(vcltq_f32(x, SET(EXP_MIN)), SET(EXP_MIN), x)
#define EXP2(p, n, x)                                                                              \
    vbslq_f32(vcltq_f32(x, SET(EXP_MIN)), SET(0),                                                  \
              vreinterpretq_f32_s32(                                                               \
                  vaddq_s32(vreinterpretq_s32_f32(p), vshlq_n_s32(vcvtq_s32_f32(n), 23))))
#include "vector.inc"

#define real                    double
#define REAL_IS_FLOAT           0
#define ROW(name)               name##_f64
#define V                       float64x2_t
#define LANES                   2
#define SET(c)                  vdupq_n_f64(c)
#define SELECT_LESS(a, b, x, y) vbslq_f64(vcltq_f64(a, b), x, y)
#define LOAD(p)                 vld1q_f64(p)
#define STORE(p, v)             vst1q_f64(p, v)
#define MAX(a, b)               vbslq_f64(vcgtq_f64(a, b), a, b)
#define WIDEN(p)                LOAD(p)
#define NARROW(p, v)            STORE(p, v)
#define FMA(a, b, c)            vfmaq_f64(c, a, b)
#define FNMA(a, b, c)           vfmsq_f64(c, a, b)
#define REDUCE_ADD(v)           vaddvq_f64(v)
#define REDUCE_MAX(v)           vmaxvq_f64(v)
#define FOLD_ADD(v)             vpaddq_f64((v)[0], (v)[1])
#define FOLD_MAX(v)             vpmaxq_f64((v)[0], (v)[1])
#define TRANSPOSE(v)            transpose_f64(v)
#define CLAMP(x)                vbslq_f64(vcltq_f64(x, SET(EXP_MIN)), SET(EXP_MIN), x)
#define EXP2(p, n, x)                                                                              \
    vbslq_f64(vcltq_f64(x, SET(EXP_MIN)), SET(0),                                                  \
              vreinterpretq_f64_s64(                                                               \
                  vaddq_s64(vreinterpretq_s64_f64(p), vshlq_n_s64(vcvtq_s64_f64(n), 52))))
#include "vector.inc"

static void fence(void) {
    /* No store of these kernels bypasses the caches. */
}

#define TABLE attn_kernels_neon
#define NAME  "neon"
#include "table.inc"

#endif
