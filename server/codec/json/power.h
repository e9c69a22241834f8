/*
 * power.h - powers of ten for the quick paths between decimal and binary: with 64 bits of
 * precision, enough to decide nearly every rounding and to notice when it does not.
 */
#ifndef CODEC_POWER_H
#define CODEC_POWER_H

#include <stdint.h>

__extension__ typedef unsigned __int128 uint128;

/* The first 64 bits of 10^e for e = POWER_MIN..POWER_MAX, cut off, not rounded: exact for 0 <= e
 * <= 27. */
enum {
    POWER_MIN = -64,
    POWER_MAX = 40
};
extern const uint64_t codec_powers[POWER_MAX - POWER_MIN + 1];

/* floor(log2(10^e)) for |e| < 350: 10^e is about codec_powers[e - POWER_MIN] * 2^(this - 63). */
static inline int codec_power_log2(int e) {
    return (e * 217706) >> 16;
}

#endif
