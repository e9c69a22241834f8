/* avx512.c - row kernels for AVX-512 F and DQ. */
#include "kernels.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#define real          float
#define REAL_IS_FLOAT 1
#define ROW(name)     name##_f32
#define V             __m512
#define LANES         16
#define SET(c)        _mm512_set1_ps(c)
#define LOAD(p)       _mm512_loadu_ps(p)
#define STORE(p, v)   _mm512_storeu_ps(p, v)
#define ADD(a, b)     _mm512_add_ps(a, b)
#define SUB(a, b)     _mm512_sub_ps(a, b)
#define MUL(a, b)     _mm512_mul_ps(a, b)
#define MAX(a, b)     _mm512_max_ps(a, b)
#define FMA(a, b, c)  _mm512_fmadd_ps(a, b, c)
#define FNMA(a, b, c) _mm512_fnmadd_ps(a, b, c)
#define EXP2(p, n)    _mm512_scalef_ps(p, n)
#define REDUCE_ADD(v) _mm512_reduce_add_ps(v)
#define REDUCE_MAX(v) _mm512_reduce_max_ps(v)
#define KEEP(e, x)    _mm512_mask_mov_ps(e, _mm512_cmp_ps_mask(x, SET(EXP_MIN), _CMP_LT_OQ), SET(0))
#include "rows.inc"

#define real          double
#define REAL_IS_FLOAT 0
#define ROW(name)     name##_f64
#define V             __m512d
#define LANES         8
#define SET(c)        _mm512_set1_pd(c)
#define LOAD(p)       _mm512_loadu_pd(p)
#define STORE(p, v)   _mm512_storeu_pd(p, v)
#define ADD(a, b)     _mm512_add_pd(a, b)
#define SUB(a, b)     _mm512_sub_pd(a, b)
#define MUL(a, b)     _mm512_mul_pd(a, b)
#define MAX(a, b)     _mm512_max_pd(a, b)
#define FMA(a, b, c)  _mm512_fmadd_pd(a, b, c)
#define FNMA(a, b, c) _mm512_fnmadd_pd(a, b, c)
#define EXP2(p, n)    _mm512_scalef_pd(p, n)
#define REDUCE_ADD(v) _mm512_reduce_add_pd(v)
#define REDUCE_MAX(v) _mm512_reduce_max_pd(v)
#define KEEP(e, x)    _mm512_mask_mov_pd(e, _mm512_cmp_pd_mask(x, SET(EXP_MIN), _CMP_LT_OQ), SET(0))
#include "rows.inc"

const struct attn_kernels attn_kernels_avx512 = {
    .name = "avx512",
    .max_f32 = max_f32,
    .max_f64 = max_f64,
    .mask_f32 = mask_f32,
    .mask_f64 = mask_f64,
    .exp_f32 = exp_row_f32,
    .exp_f64 = exp_row_f64,
    .exp_shift_f32 = exp_shift_f32,
    .exp_shift_f64 = exp_shift_f64,
    .mul_f32 = mul_f32,
    .mul_f64 = mul_f64,
    .axpy_f32 = axpy_f32,
    .axpy_f64 = axpy_f64,
    .dot_f32 = dot_f32,
    .dot_f64 = dot_f64,
};

#endif
