/*
 * moments.h - the mean and the spread of a set of numbers that grows, for the statistics result.
 */
#ifndef ATTN_MOMENTS_H
#define ATTN_MOMENTS_H

/* How many numbers there are, their mean, and the sum of their squared deviations from it. */
struct moments {
    double count, mean, m2;
};

enum {
    MOMENT_NUMBERS = 1 << 18 /* numbers of Q or K that one task of PHASE_PACK reads */
};

/* Adds a set to another one (Chan, Golub and LeVeque 1979). */
static inline void moments_merge(struct moments *into, struct moments other) {
    if (other.count == 0) {
        return;
    }
    if (into->count == 0) { /* below, the square of a large mean times no numbers would be NaN */
        *into = other;
        return;
    }
    double count = into->count + other.count;
    double delta = other.mean - into->mean;
    into->m2 += other.m2 + delta * delta * (into->count * other.count / count);
    into->mean += delta * (other.count / count);
    into->count = count;
}

#endif
