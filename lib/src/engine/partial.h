/*
 * partial.h - what tasks keep in the workspace until other tasks merge it: moments of numbers, and
 * partial results of rows. Gradients add to their results without these, see gradient_tile.inc.
 */
#ifndef ATTN_PARTIAL_H
#define ATTN_PARTIAL_H

/* The mean and the spread of a set of numbers: how many numbers there are, their mean, and the sum
 * of their squared deviations from it. */
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

/* The places of the numbers of a partial result, which is that of one row and one part of its keys.
 * The numbers are double, and PHASE_MERGE computes the whole row of them. With c, the largest logit
 * of the part, and e = exp(logit - c) of each key, entropy follows from PARTIAL_MOMENT without a
 * logarithm for each key. */
enum {
    PARTIAL_MAX,                     /* c; -inf without softmax */
    PARTIAL_SUM,                     /* the sum of e */
    PARTIAL_MOMENT,                  /* the sum of e (logit - c) */
    PARTIAL_BROKEN = PARTIAL_MOMENT, /* of a stick, see break_stick() */
    PARTIAL_HEAD /* here begins the part's output, if it is wanted: the sum of e v */
};

#endif
