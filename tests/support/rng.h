/* rng.h - seeded random numbers for tests, the same on every machine (xorshift64*, Marsaglia
 * 2003). */
#ifndef SUPPORT_RNG_H
#define SUPPORT_RNG_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state; /* not 0 */
};

static inline uint64_t rng_bits(struct rng *rng) {
    rng->state ^= rng->state >> 12;
    rng->state ^= rng->state << 25;
    rng->state ^= rng->state >> 27;
    return rng->state * UINT64_C(2685821657736338717);
}

/* A uniform number in [0, 1). */
static inline double rng_uniform(struct rng *rng) {
    return (double)(rng_bits(rng) >> 11) * 0x1p-53;
}

/* A uniform whole number in [low, high]. */
static inline size_t rng_between(struct rng *rng, size_t low, size_t high) {
    return low + (size_t)(rng_bits(rng) >> 33) % (high - low + 1);
}

/* True with the probability 1 / one_in. */
static inline int rng_chance(struct rng *rng, size_t one_in) {
    return rng_between(rng, 1, one_in) == 1;
}

/* A standard normal number (Box and Muller 1958). */
static inline double rng_normal(struct rng *rng) {
    double u = 1.0 - rng_uniform(rng), v = rng_uniform(rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

#endif
