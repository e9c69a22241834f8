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
#define STREAM(p, v)  _mm512_stream_ps(p, v)
#define ADD(a, b)     _mm512_add_ps(a, b)
#define SUB(a, b)     _mm512_sub_ps(a, b)
#define MUL(a, b)     _mm512_mul_ps(a, b)
#define MAX(a, b)     _mm512_max_ps(a, b)
#define FMA(a, b, c)  _mm512_fmadd_ps(a, b, c)
#define FNMA(a, b, c) _mm512_fnmadd_ps(a, b, c)
#define REDUCE_ADD(v) _mm512_reduce_add_ps(v)
#define REDUCE_MAX(v) _mm512_reduce_max_ps(v)
#define CLAMP(x)      (x)
#define EXP2(p, n, x)                                                                              \
    _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, SET(EXP_MIN), _CMP_NLT_UQ), p, n)
#define LOAD_PART(p, n, fill)                                                                      \
    _mm512_mask_loadu_ps(SET(fill), (__mmask16)((1u << (n)) - 1), p)
#define STORE_PART(p, v, n)   _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1), v)
#include "rows.inc"

#define real          double
#define REAL_IS_FLOAT 0
#define ROW(name)     name##_f64
#define V             __m512d
#define LANES         8
#define SET(c)        _mm512_set1_pd(c)
#define LOAD(p)       _mm512_loadu_pd(p)
#define STORE(p, v)   _mm512_storeu_pd(p, v)
#define STREAM(p, v)  _mm512_stream_pd(p, v)
#define ADD(a, b)     _mm512_add_pd(a, b)
#define SUB(a, b)     _mm512_sub_pd(a, b)
#define MUL(a, b)     _mm512_mul_pd(a, b)
#define MAX(a, b)     _mm512_max_pd(a, b)
#define FMA(a, b, c)  _mm512_fmadd_pd(a, b, c)
#define FNMA(a, b, c) _mm512_fnmadd_pd(a, b, c)
#define REDUCE_ADD(v) _mm512_reduce_add_pd(v)
#define REDUCE_MAX(v) _mm512_reduce_max_pd(v)
#define CLAMP(x)      (x)
#define EXP2(p, n, x)                                                                              \
    _mm512_maskz_scalef_pd(_mm512_cmp_pd_mask(x, SET(EXP_MIN), _CMP_NLT_UQ), p, n)
#define LOAD_PART(p, n, fill)                                                                      \
    _mm512_mask_loadu_pd(SET(fill), (__mmask8)((1u << (n)) - 1), p)
#define STORE_PART(p, v, n)   _mm512_mask_storeu_pd(p, (__mmask8)((1u << (n)) - 1), v)
#include "rows.inc"

static void fence(void) {
    _mm_sfence();
}

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
    .online_f32 = online_f32,
    .online_f64 = online_f64,
    .spread_f32 = spread_f32,
    .spread_f64 = spread_f64,
    .fence = fence,
    .mul_f32 = mul_f32,
    .mul_f64 = mul_f64,
    .axpy_f32 = axpy_f32,
    .axpy_f64 = axpy_f64,
    .dot_f32 = dot_f32,
    .dot_f64 = dot_f64,
};

#endif
