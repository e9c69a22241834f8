/* avx2.c has the row kernels for AVX2 with FMA. */
#include "kernels/kernels.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>

/* Returns p 2^n by adding n to the exponent of p. p is near 1, and n is at least -126 (-1021). */
static inline __m256 exp2_f32(__m256 p, __m256 n) {
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), bits));
}

/* AVX2 cannot convert doubles to 64-bit integers, so 1.5 * 2^52 is added, which leaves n in the low
 * bits. The shift moves the low 12 bits of a NaN's payload into sign and exponent, so a NaN with a
 * payload in these bits may become a number. */
static inline __m256d exp2_f64(__m256d p, __m256d n) {
    const __m256i whole = _mm256_castpd_si256(_mm256_add_pd(n, _mm256_set1_pd(0x1.8p52)));
    return _mm256_castsi256_pd(
        _mm256_add_epi64(_mm256_castpd_si256(p), _mm256_slli_epi64(whole, 52)));
}

static inline float add_f32(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float max_lanes_f32(__m256 v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

static inline double add_f64(__m256d v) {
    const __m128d s = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

static inline double max_lanes_f64(__m256d v) {
    const __m128d s = _mm_max_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(_mm_max_sd(s, _mm_unpackhi_pd(s, s)));
}

/* Each step halves the number of vectors. In the end lane k holds the sum (or the largest) of all
 * lanes of vector k. */
#define FOLD_F32(name, OP)                                                                         \
    static inline __m256 name(const __m256 v[8]) {                                                 \
        __m256 a[4], b[2];                                                                         \
        for (int i = 0; i < 4; i++) {                                                              \
            a[i] = OP(_mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]),                                  \
                      _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]));                                 \
        }                                                                                          \
        for (int i = 0; i < 2; i++) {                                                              \
            b[i] = OP(_mm256_shuffle_ps(a[2 * i], a[2 * i + 1], 0x44),                             \
                      _mm256_shuffle_ps(a[2 * i], a[2 * i + 1], 0xee));                            \
        }                                                                                          \
        return OP(_mm256_permute2f128_ps(b[0], b[1], 0x20),                                        \
                  _mm256_permute2f128_ps(b[0], b[1], 0x31));                                       \
    }
FOLD_F32(fold_add_f32, _mm256_add_ps)
FOLD_F32(fold_max_f32, _mm256_max_ps)

#define FOLD_F64(name, OP)                                                                         \
    static inline __m256d name(const __m256d v[4]) {                                               \
        const __m256d a = OP(_mm256_unpacklo_pd(v[0], v[1]), _mm256_unpackhi_pd(v[0], v[1]));      \
        const __m256d b = OP(_mm256_unpacklo_pd(v[2], v[3]), _mm256_unpackhi_pd(v[2], v[3]));      \
        return OP(_mm256_permute2f128_pd(a, b, 0x20), _mm256_permute2f128_pd(a, b, 0x31));         \
    }
FOLD_F64(fold_add_f64, _mm256_add_pd)
FOLD_F64(fold_max_f64, _mm256_max_pd)

/* Transposes the square matrix whose rows are these 8 vectors of float, or 4 of double. */
static inline void transpose_f32(__m256 v[8]) {
    __m256 a[8], b[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

static inline void transpose_f64(__m256d v[4]) {
    const __m256d a = _mm256_unpacklo_pd(v[0], v[1]), b = _mm256_unpackhi_pd(v[0], v[1]);
    const __m256d c = _mm256_unpacklo_pd(v[2], v[3]), d = _mm256_unpackhi_pd(v[2], v[3]);
    v[0] = _mm256_permute2f128_pd(a, c, 0x20);
    v[1] = _mm256_permute2f128_pd(b, d, 0x20);
    v[2] = _mm256_permute2f128_pd(a, c, 0x31);
    v[3] = _mm256_permute2f128_pd(b, d, 0x31);
}

/* Returns a mask that selects the first n lanes. */
static inline __m256i first_f32(size_t n) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes);
}

static inline __m256i first_f64(size_t n) {
    const __m256i lanes = _mm256_setr_epi64x(0, 1, 2, 3);
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x((long long)n), lanes);
}

/* Returns the first n numbers of p; the other lanes are `fill`. */
static inline __m256 load_first_f32(const float *p, size_t n, float fill) {
    const __m256i first = first_f32(n);
    return _mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(p, first),
                            _mm256_castsi256_ps(first));
}

static inline __m256d load_first_f64(const double *p, size_t n, double fill) {
    const __m256i first = first_f64(n);
    return _mm256_blendv_pd(_mm256_set1_pd(fill), _mm256_maskload_pd(p, first),
                            _mm256_castsi256_pd(first));
}

/* Six rows and two vectors: 12 sums in 16 registers. */
#define STRIP_ROWS           6
#define PANEL_VECTORS        2

#define DOUBLES              __m256d
#define DOUBLE_LANES         4
#define SET_DOUBLES(c)       _mm256_set1_pd(c)
#define LOAD_DOUBLES(p)      _mm256_loadu_pd(p)
#define STORE_DOUBLES(p, v)  _mm256_storeu_pd(p, v)
#define FMA_DOUBLES(a, b, c) _mm256_fmadd_pd(a, b, c)

#define real                 float
#define REAL_IS_FLOAT        1
#define ROW(name)            name##_f32
#define V                    __m256
#define LANES                8
#define SET(c)               _mm256_set1_ps(c)
#define LOAD(p)              _mm256_loadu_ps(p)
#define STORE(p, v)          _mm256_storeu_ps(p, v)
#define STREAM(p, v)         _mm256_stream_ps(p, v)
#define MAX(a, b)            _mm256_max_ps(a, b)
#define WIDEN(p)             _mm256_cvtps_pd(_mm_loadu_ps(p))
#define NARROW(p, v)         _mm_storeu_ps(p, _mm256_cvtpd_ps(v))
#define FMA(a, b, c)         _mm256_fmadd_ps(a, b, c)
#define FNMA(a, b, c)        _mm256_fnmadd_ps(a, b, c)
#define REDUCE_ADD(v)        add_f32(v)
#define REDUCE_MAX(v)        max_lanes_f32(v)
#define FOLD_ADD(v)          fold_add_f32(v)
#define FOLD_MAX(v)          fold_max_f32(v)
#define TRANSPOSE(v)         transpose_f32(v)
#define CLAMP(x)             MAX(SET(EXP_MIN), x)
#define LOAD_PART            load_first_f32
#define STORE_PART(p, v, n)  _mm256_maskstore_ps(p, first_f32(n), v)
#define EXP2(p, n, x)        _mm256_andnot_ps(_mm256_cmp_ps(x, SET(EXP_MIN), _CMP_LT_OQ), exp2_f32(p, n))
#include "vector.inc"

#define real                    double
#define REAL_IS_FLOAT           0
#define ROW(name)               name##_f64
#define V                       __m256d
#define LANES                   4
#define SET(c)                  _mm256_set1_pd(c)
#define SELECT_LESS(a, b, x, y) _mm256_blendv_pd(y, x, _mm256_cmp_pd(a, b, _CMP_LT_OQ))
#define LOAD(p)                 _mm256_loadu_pd(p)
#define STORE(p, v)             _mm256_storeu_pd(p, v)
#define STREAM(p, v)            _mm256_stream_pd(p, v)
#define MAX(a, b)               _mm256_max_pd(a, b)
#define WIDEN(p)                LOAD(p)
#define NARROW(p, v)            STORE(p, v)
#define FMA(a, b, c)            _mm256_fmadd_pd(a, b, c)
#define FNMA(a, b, c)           _mm256_fnmadd_pd(a, b, c)
#define REDUCE_ADD(v)           add_f64(v)
#define REDUCE_MAX(v)           max_lanes_f64(v)
#define FOLD_ADD(v)             fold_add_f64(v)
#define FOLD_MAX(v)             fold_max_f64(v)
#define TRANSPOSE(v)            transpose_f64(v)
#define CLAMP(x)                MAX(SET(EXP_MIN), x)
#define LOAD_PART               load_first_f64
#define STORE_PART(p, v, n)     _mm256_maskstore_pd(p, first_f64(n), v)
#define EXP2(p, n, x)           _mm256_andnot_pd(_mm256_cmp_pd(x, SET(EXP_MIN), _CMP_LT_OQ), exp2_f64(p, n))
#include "vector.inc"

static void fence(void) {
    _mm_sfence();
}

#define TABLE attn_kernels_avx2
#define NAME  "avx2"
#include "table.inc"

#endif
