/*
 * amx.c has the row kernels of avx512.c and those of tiles.inc, for AMX-BF16 and AVX-512 F, BW, DQ
 * and BF16.
 */
#include "kernels/kernels.h"

/* The macros of GCC, and those of clang. */
#if (defined(__AMX_BF16__) && defined(__AMX_TILE__)) ||                                            \
    (defined(__AMXBF16__) && defined(__AMXTILE__))
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/tiles.h"

/* Makes floats of the lower and of the upper 16 of 32 parts. */
static inline __m512 lower_parts(__m512i parts) {
    const __m256i half = _mm512_castsi512_si256(parts);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline __m512 upper_parts(__m512i parts) {
    const __m256i half = _mm512_extracti64x4_epi64(parts, 1);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline void split_vectors(__m512 lo, __m512 hi, __m512i parts[3]) {
    parts[0] = (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
    lo = _mm512_sub_ps(lo, lower_parts(parts[0]));
    hi = _mm512_sub_ps(hi, upper_parts(parts[0]));
    parts[1] = (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
    lo = _mm512_sub_ps(lo, lower_parts(parts[1]));
    hi = _mm512_sub_ps(hi, upper_parts(parts[1]));
    parts[2] = (__m512i)_mm512_cvtne2ps_pbh(hi, lo);
}

static inline __m512i interleave_halves(__m512i w) {
    static const uint16_t order[32] __attribute__((aligned(64))) = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_load_si512(order), w);
}

/* Each of the four steps exchanges blocks of pairs between two vectors; the blocks have 1, 2, 4 and
 * 8 pairs. */
static inline void transpose_pairs(__m512i w[16]) {
    __m512i t[16];
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(w[2 * i], w[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(w[2 * i], w[2 * i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        w[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        w[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        w[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        w[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) { /* columns i, 4 + i, 8 + i and 12 + i */
        const __m512i a = _mm512_shuffle_i32x4(w[i], w[4 + i], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(w[i], w[4 + i], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(w[8 + i], w[12 + i], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(w[8 + i], w[12 + i], 0xdd);
        t[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(b, d, 0x88);
        t[8 + i] = _mm512_shuffle_i32x4(a, c, 0xdd);
        t[12 + i] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
    memcpy(w, t, sizeof t);
}

/* The intrinsic of GCC 12 says that LDTILECFG reads 8 of its 64 bytes, and that loads of tiles read
 * nothing. So the operand is named here in full, and TILE_BARRIER comes before the loads. */
#define TILE_CONFIG(c)           __asm__ volatile("ldtilecfg %0" : : "m"(*(c)) : "memory")
#define TILE_BARRIER()           __asm__ volatile("" : : : "memory")
#define TILE_ZERO(t)             _tile_zero(t)
#define TILE_LOAD(t, p, stride)  _tile_loadd(t, p, stride)
#define TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define TILE_DOT(c, a, b)        _tile_dpbf16ps(c, a, b)
#define TILE_RELEASE()           _tile_release()
#define W                        __m512i
#define LOAD_PARTS(p)            _mm512_loadu_si512(p)
#define STORE_PARTS(p, w)        _mm512_storeu_si512(p, w)
#define SPLIT(lo, hi, parts)     split_vectors(lo, hi, parts)
#define INTERLEAVE(w)            interleave_halves(w)
#define TRANSPOSE(w)             transpose_pairs(w)

#define TILES                    attn_tiles_amx
#define TABLE                    attn_kernels_amx
#define NAME                     "amx"
#include "avx512.c"

#endif
