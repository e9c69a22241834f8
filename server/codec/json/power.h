/*
 * power.h - powers of ten with 64 bits of precision, for the quick ways between decimal and binary.
 * They decide nearly every rounding, and show when they do not.
 */
#ifndef CODEC_POWER_H
#define CODEC_POWER_H

#include <stdint.h>

__extension__ typedef unsigned __int128 uint128;

/* codec_powers[e - POWER_MIN] is the first 64 bits of 10^e, cut off and not rounded. It is exact
 * for 0 <= e <= 27. */
enum {
    POWER_MIN = -64,
    POWER_MAX = 40
};
extern const uint64_t codec_powers[POWER_MAX - POWER_MIN + 1];

/* The unit of the digits of a normal float with the exponent bits e: floor(2^(e - 150) / 10^k *
 * 2^60), where 10^k is the largest power of ten that is not above 2^(e - 150). The last seven bits
 * are k + 64 instead. An entry is 0 where codec_powers ends and for infinity and NaN. That of e = 0
 * has only the k that gives 0 its one digit. */
extern const uint64_t codec_float_units[256];

/* Returns floor(log2(10^e)) for |e| < 350. 10^e is about codec_powers[e - POWER_MIN] * 2^(result -
 * 63). */
static inline int codec_power_log2(int e) {
    return (e * 217706) >> 16;
}

#endif
