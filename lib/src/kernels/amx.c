/*
 * amx.c has the row kernels of avx512.c and those of tiles.inc, for AMX-BF16 and AVX-512 F, BW, DQ,
 * VL and BF16.
 */
#include "kernels/kernels.h"

/* The macros of GCC, and those of clang. */
#if (defined(__AMX_BF16__) && defined(__AMX_TILE__)) ||                                            \
    (defined(__AMXBF16__) && defined(__AMXTILE__))
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/tiles.h"

static const uint16_t interleaved[32]
    __attribute__((aligned(64))) = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                    8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
static const uint16_t separated[32]
    __attribute__((aligned(64))) = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                    1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};

static inline __m512i permute_parts(const uint16_t order[32], __m512i w) {
    return _mm512_permutexvar_epi16(_mm512_load_si512(order), w);
}

/* A part is the upper half of a float. In this order each half of a lane is one, so that a shift
 * and a mask make floats of the parts again. The third part needs no rounding. */
static inline void split_vectors(__m512 lo, __m512 hi, __m512i parts[3]) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    for (int t = 0; t < 2; t++) {
        parts[t] = permute_parts(interleaved, (__m512i)_mm512_cvtne2ps_pbh(hi, lo));
        lo = _mm512_sub_ps(lo, _mm512_castsi512_ps(_mm512_slli_epi32(parts[t], 16)));
        hi = _mm512_sub_ps(hi, _mm512_castsi512_ps(_mm512_and_si512(parts[t], upper)));
    }
    parts[2] = _mm512_mask_blend_epi16(0x55555555, _mm512_castps_si512(hi),
                                       _mm512_srli_epi32(_mm512_castps_si512(lo), 16));
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
#define INTERLEAVE(w)            permute_parts(interleaved, w)
#define SEPARATE(w)              permute_parts(separated, w)
#define TRANSPOSE_PAIRS(w)       transpose_pairs(w)

#define TILES                    attn_tiles_amx
#define TABLE                    attn_kernels_amx
#define NAME                     "amx"
#include "avx512.c"

#endif
