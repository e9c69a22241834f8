/*
 * vectors.h - what decimal_vector.c and number_floats.inc need of an instruction set: AVX2 if the
 * compiler's flags allow it, and otherwise what every CPU of the kind has. This is the only place
 * for intrinsics in the server.
 *
 * VECTOR_BYTES and MULTIPLY(a, b) always exist: the bytes of a vector, and the products of the
 * lower halves of its 64-bit lanes. The functions for digits exist with AVX2 and on ARM.
 */
#ifndef CODEC_VECTORS_H
#define CODEC_VECTORS_H

#include <stdbool.h>
#include <stdint.h>

/* places[end] ... places[end + 15] are the places of 16 characters, the last of which is character
 * end - 1. steps[after] ... steps[after + 15] are 0 for the last `after` characters, and -1 for the
 * others. */
struct vector_tables {
    int8_t places[32], steps[32];
    char zeros[16];
};

#if defined(__AVX2__)
#include <immintrin.h>

#define VECTOR_BYTES   32
#define MULTIPLY(a, b) ((vector64)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))

typedef __m128i vector_eights;

static inline uint32_t vector_digits32(const char *text) {
    const __m256i zeros = _mm256_set1_epi8('0'), nine = _mm256_set1_epi8(9);
    const __m256i digits = _mm256_sub_epi8(_mm256_loadu_si256((const void *)text), zeros);
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(digits, nine), digits));
}

/* Returns the characters of text[0..64) that are no digits: bit i is set for character i. */
static inline uint64_t vector_others(const char *text) {
    return ~(vector_digits32(text) | (uint64_t)vector_digits32(text + 32) << 32);
}

static inline __m128i vector_load16(const void *bytes) {
    return _mm_loadu_si128(bytes);
}

/* Returns two numbers of eight digits: the last 16 digits of text[0..end), where `end` is at most
 * 16 and a point stands before the last `after` digits. If `after` is `end`, there is no point. A
 * sign counts as zero. The digits before the point move one place further. Then pairs, fours and
 * eights are added. */
static inline vector_eights vector_read(const struct vector_tables *tables, const char *text,
                                        uint64_t end, uint64_t after) {
    const __m128i places =
        _mm_add_epi8(vector_load16(tables->places + end), vector_load16(tables->steps + after));
    const __m128i chars = _mm_shuffle_epi8(vector_load16(text), places); /* 0 below place 0 */
    const __m128i ones = _mm_subs_epu8(chars, vector_load16(tables->zeros));
    const __m128i tens = _mm_set1_epi16(1 << 8 | 10), hundreds = _mm_set1_epi32(1 << 16 | 100);
    const __m128i fours = _mm_madd_epi16(_mm_maddubs_epi16(ones, tens), hundreds);
    return _mm_madd_epi16(_mm_packus_epi32(fours, fours), _mm_set1_epi32(1 << 16 | 10000));
}

static inline uint64_t vector_whole(vector_eights eights) {
    const uint64_t both = (uint64_t)_mm_cvtsi128_si64(eights);
    return (both & 0xFFFFFFFF) * 100000000 + (both >> 32);
}

/* Returns the same number as a double. It is exact below 2^53. */
static inline double vector_double(vector_eights eights) {
    const __m128d both = _mm_cvtepi32_pd(eights);
    return _mm_cvtsd_f64(_mm_fmadd_sd(both, _mm_set_sd(1e8), _mm_unpackhi_pd(both, both)));
}

#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_neon.h>

#define VECTOR_BYTES   16
#define MULTIPLY(a, b) ((vector64)vmull_u32(vmovn_u64((uint64x2_t)(a)), vmovn_u64((uint64x2_t)(b))))

typedef uint64x2_t vector_eights;

/* Bits 0 to 7 of both halves are set in the lanes of characters that are no digits. */
static inline uint8x16_t vector_bits16(const char *text) {
    const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
    const uint8x16_t digits = vsubq_u8(vld1q_u8((const uint8_t *)text), vdupq_n_u8('0'));
    return vandq_u8(vcgtq_u8(digits, vdupq_n_u8(9)), bits);
}

static inline uint64_t vector_others(const char *text) {
    const uint8x16_t first = vpaddq_u8(vector_bits16(text), vector_bits16(text + 16));
    const uint8x16_t second = vpaddq_u8(vector_bits16(text + 32), vector_bits16(text + 48));
    const uint8x16_t all = vpaddq_u8(first, second);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(all, all)), 0);
}

static inline vector_eights vector_read(const struct vector_tables *tables, const char *text,
                                        uint64_t end, uint64_t after) {
    const int8x16_t places =
        vaddq_s8(vld1q_s8(tables->places + end), vld1q_s8(tables->steps + after));
    const uint8x16_t chars =
        vqtbl1q_u8(vld1q_u8((const uint8_t *)text), vreinterpretq_u8_s8(places));
    const uint8x16_t ones = vqsubq_u8(chars, vdupq_n_u8('0'));
    const uint8x16_t tens = vreinterpretq_u8_u16(vdupq_n_u16(1 << 8 | 10));
    const uint16x8_t hundreds = vreinterpretq_u16_u32(vdupq_n_u32(1 << 16 | 100));
    const uint32x4_t thousands = vreinterpretq_u32_u64(vdupq_n_u64((uint64_t)1 << 32 | 10000));
    const uint16x8_t pairs = vpaddlq_u8(vmulq_u8(ones, tens));
    return vpaddlq_u32(vmulq_u32(vpaddlq_u16(vmulq_u16(pairs, hundreds)), thousands));
}

static inline uint64_t vector_whole(vector_eights eights) {
    return vgetq_lane_u64(eights, 0) * 100000000 + vgetq_lane_u64(eights, 1);
}

static inline double vector_double(vector_eights eights) {
    return (double)vector_whole(eights);
}

#elif defined(__x86_64__)
#include <emmintrin.h>

#define VECTOR_BYTES   16
#define MULTIPLY(a, b) ((vector64)_mm_mul_epu32((__m128i)(a), (__m128i)(b)))

#else

#define VECTOR_BYTES   16
#define MULTIPLY(a, b) (((a)&0xFFFFFFFF) * ((b)&0xFFFFFFFF))

#endif

/* Does this CPU have what the files *_vector.c use? On ARM every CPU has NEON. */
static inline bool vector_has_digits(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#else
    return true;
#endif
}

#endif
