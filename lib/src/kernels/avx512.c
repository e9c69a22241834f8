/* avx512.c has the row kernels for AVX-512 F, BW, DQ and VL. */
#include "kernels/kernels.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>

/* Each step halves the number of vectors. In the end lane k holds the sum (or the largest) of all
 * lanes of vector k. */
#define FOLD_F32(name, OP)                                                                         \
    static inline __m512 name(const __m512 v[16]) {                                                \
        __m512 a[8];                                                                               \
        __m512d b[4];                                                                              \
        __m512 c[2];                                                                               \
        for (int i = 0; i < 8; i++) {                                                              \
            a[i] = OP(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),                                  \
                      _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));                                 \
        }                                                                                          \
        for (int i = 0; i < 4; i++) {                                                              \
            const __m512d x = _mm512_castps_pd(a[2 * i]), y = _mm512_castps_pd(a[2 * i + 1]);      \
            b[i] = _mm512_castps_pd(OP(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),                 \
                                       _mm512_castpd_ps(_mm512_unpackhi_pd(x, y))));               \
        }                                                                                          \
        for (int i = 0; i < 2; i++) {                                                              \
            const __m512 x = _mm512_castpd_ps(b[2 * i]), y = _mm512_castpd_ps(b[2 * i + 1]);       \
            c[i] = OP(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));         \
        }                                                                                          \
        return OP(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd)); \
    }
FOLD_F32(fold_add_f32, _mm512_add_ps)
FOLD_F32(fold_max_f32, _mm512_max_ps)

#define FOLD_F64(name, OP)                                                                         \
    static inline __m512d name(const __m512d v[8]) {                                               \
        __m512d a[4], b[2];                                                                        \
        for (int i = 0; i < 4; i++) {                                                              \
            a[i] = OP(_mm512_unpacklo_pd(v[2 * i], v[2 * i + 1]),                                  \
                      _mm512_unpackhi_pd(v[2 * i], v[2 * i + 1]));                                 \
        }                                                                                          \
        for (int i = 0; i < 2; i++) {                                                              \
            b[i] = OP(_mm512_shuffle_f64x2(a[2 * i], a[2 * i + 1], 0x88),                          \
                      _mm512_shuffle_f64x2(a[2 * i], a[2 * i + 1], 0xdd));                         \
        }                                                                                          \
        return OP(_mm512_shuffle_f64x2(b[0], b[1], 0x88), _mm512_shuffle_f64x2(b[0], b[1], 0xdd)); \
    }
FOLD_F64(fold_add_f64, _mm512_add_pd)
FOLD_F64(fold_max_f64, _mm512_max_pd)

/* The columns of a matrix of 4 x 4 blocks of 128 bits replace its rows. */
static inline void transpose_blocks(__m512d *v0, __m512d *v1, __m512d *v2, __m512d *v3) {
    const __m512d a = _mm512_shuffle_f64x2(*v0, *v1, 0x88),
                  b = _mm512_shuffle_f64x2(*v0, *v1, 0xdd);
    const __m512d c = _mm512_shuffle_f64x2(*v2, *v3, 0x88),
                  d = _mm512_shuffle_f64x2(*v2, *v3, 0xdd);
    *v0 = _mm512_shuffle_f64x2(a, c, 0x88);
    *v1 = _mm512_shuffle_f64x2(b, d, 0x88);
    *v2 = _mm512_shuffle_f64x2(a, c, 0xdd);
    *v3 = _mm512_shuffle_f64x2(b, d, 0xdd);
}

/* Transposes the square matrix whose rows are these 16 vectors of float, or 8 of double. */
static inline void transpose_f32(__m512 v[16]) {
    __m512d b[16];
    for (int i = 0; i < 16; i += 4) {
        const __m512d a0 = _mm512_castps_pd(_mm512_unpacklo_ps(v[i], v[i + 1]));
        const __m512d a1 = _mm512_castps_pd(_mm512_unpackhi_ps(v[i], v[i + 1]));
        const __m512d a2 = _mm512_castps_pd(_mm512_unpacklo_ps(v[i + 2], v[i + 3]));
        const __m512d a3 = _mm512_castps_pd(_mm512_unpackhi_ps(v[i + 2], v[i + 3]));
        b[i] = _mm512_unpacklo_pd(a0, a2);
        b[i + 1] = _mm512_unpackhi_pd(a0, a2);
        b[i + 2] = _mm512_unpacklo_pd(a1, a3);
        b[i + 3] = _mm512_unpackhi_pd(a1, a3);
    }
    for (int i = 0; i < 4; i++) {
        transpose_blocks(&b[i], &b[i + 4], &b[i + 8], &b[i + 12]);
    }
    for (int i = 0; i < 16; i++) {
        v[i] = _mm512_castpd_ps(b[i]);
    }
}

static inline void transpose_f64(__m512d v[8]) {
    for (int i = 0; i < 8; i += 2) {
        const __m512d a = v[i];
        v[i] = _mm512_unpacklo_pd(a, v[i + 1]);
        v[i + 1] = _mm512_unpackhi_pd(a, v[i + 1]);
    }
    transpose_blocks(&v[0], &v[2], &v[4], &v[6]);
    transpose_blocks(&v[1], &v[3], &v[5], &v[7]);
}

/* Twelve rows and two vectors: 24 sums in 32 registers. */
#define STRIP_ROWS            12
#define PANEL_VECTORS         2

#define DOUBLES               __m512d
#define DOUBLE_LANES          8
#define SET_DOUBLES(c)        _mm512_set1_pd(c)
#define LOAD_DOUBLES(p)       _mm512_loadu_pd(p)
#define STORE_DOUBLES(p, v)   _mm512_storeu_pd(p, v)
#define FMA_DOUBLES(a, b, c)  _mm512_fmadd_pd(a, b, c)

#define real                  float
#define REAL_IS_FLOAT         1
#define ROW(name)             name##_f32
#define V                     __m512
#define LANES                 16
#define SET(c)                _mm512_set1_ps(c)
#define LOAD(p)               _mm512_loadu_ps(p)
#define STORE(p, v)           _mm512_storeu_ps(p, v)
#define STREAM(p, v)          _mm512_stream_ps(p, v)
#define MAX(a, b)             _mm512_max_ps(a, b)
#define WIDEN(p)              _mm512_cvtps_pd(_mm256_loadu_ps(p))
#define NARROW(p, v)          _mm256_storeu_ps(p, _mm512_cvtpd_ps(v))
#define FMA(a, b, c)          _mm512_fmadd_ps(a, b, c)
#define FNMA(a, b, c)         _mm512_fnmadd_ps(a, b, c)
#define REDUCE_ADD(v)         _mm512_reduce_add_ps(v)
#define REDUCE_MAX(v)         _mm512_reduce_max_ps(v)
#define FOLD_ADD(v)           fold_add_f32(v)
#define FOLD_MAX(v)           fold_max_f32(v)
#define TRANSPOSE(v)          transpose_f32(v)
#define CLAMP(x)              (x)
#define EXP2(p, n, x)         _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, SET(EXP_MIN), _CMP_NLT_UQ), p, n)
#define LOAD_PART(p, n, fill) _mm512_mask_loadu_ps(SET(fill), (__mmask16)((1u << (n)) - 1), p)
#define STORE_PART(p, v, n)   _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1), v)
#include "vector.inc"

#define real                    double
#define REAL_IS_FLOAT           0
#define ROW(name)               name##_f64
#define V                       __m512d
#define LANES                   8
#define SET(c)                  _mm512_set1_pd(c)
#define SELECT_LESS(a, b, x, y) _mm512_mask_blend_pd(_mm512_cmp_pd_mask(a, b, _CMP_LT_OQ), y, x)
#define LOAD(p)                 _mm512_loadu_pd(p)
#define STORE(p, v)             _mm512_storeu_pd(p, v)
#define STREAM(p, v)            _mm512_stream_pd(p, v)
#define MAX(a, b)               _mm512_max_pd(a, b)
#define WIDEN(p)                LOAD(p)
#define NARROW(p, v)            STORE(p, v)
#define FMA(a, b, c)            _mm512_fmadd_pd(a, b, c)
#define FNMA(a, b, c)           _mm512_fnmadd_pd(a, b, c)
#define REDUCE_ADD(v)           _mm512_reduce_add_pd(v)
#define REDUCE_MAX(v)           _mm512_reduce_max_pd(v)
#define FOLD_ADD(v)             fold_add_f64(v)
#define FOLD_MAX(v)             fold_max_f64(v)
#define TRANSPOSE(v)            transpose_f64(v)
#define CLAMP(x)                (x)
#define EXP2(p, n, x)           _mm512_maskz_scalef_pd(_mm512_cmp_pd_mask(x, SET(EXP_MIN), _CMP_NLT_UQ), p, n)
#define LOAD_PART(p, n, fill)   _mm512_mask_loadu_pd(SET(fill), (__mmask8)((1u << (n)) - 1), p)
#define STORE_PART(p, v, n)     _mm512_mask_storeu_pd(p, (__mmask8)((1u << (n)) - 1), v)
#include "vector.inc"

static void fence(void) {
    _mm_sfence();
}

#define TABLE attn_kernels_avx512
#define NAME  "avx512"
#include "table.inc"

#endif
