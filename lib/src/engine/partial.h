/*
 * partial.h - the partial result of one row and one part of its keys: numbers in double, from which
 * PHASE_MERGE computes the whole row.
 */
#ifndef ATTN_PARTIAL_H
#define ATTN_PARTIAL_H

/* The places of the numbers. With c, the largest logit of the part, and e = exp(logit - c) of each
 * key, entropy follows from PARTIAL_MOMENT without a logarithm for each key. */
enum {
    PARTIAL_MAX,    /* c; -inf without softmax */
    PARTIAL_SUM,    /* the sum of e */
    PARTIAL_MOMENT, /* the sum of e (logit - c) */
    PARTIAL_HEAD    /* here begins the part's output, if it is wanted: the sum of e v */
};

#endif
