/*
 * reference.h - attention for one head of one batch item, in double, by plain loops written from
 * the formulas of attention.h alone. The oracle of the tests: it is never dispatched to, shares no
 * code with the implementation, and is meant to be read.
 */
#ifndef ATTN_REFERENCE_H
#define ATTN_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reference_head {
    size_t n, m, d, d_v;
    const double *q, *k, *v;   /* (n,d), (m,d), (m,d_v); past keys and values come first */
    double scale, softcap;     /* softcap 0 = none */
    const double *bias;        /* (n,m), NULL = none; -INFINITY forbids */
    const unsigned char *mask; /* (n,m), NULL = none; 0 forbids */
    double slope;              /* of ALiBi, 0 = none */
    bool causal;
    int64_t shift;       /* query i stands at i + shift */
    int64_t left, right; /* window, -1 = open */
    size_t length;       /* keys j >= length are forbidden */
    bool has_sink;
    double sink;
    bool unnormalized;
};

/* Results, caller's buffers, none NULL. Errors are measured against the size of the terms that a
 * row is summed from: output_scale (n) is max_c sum_j |w_j v_jc|, score_scale (n) is
 * max_j sum_c |q_c k_jc|. */
struct reference_results {
    double *scores, *scaled_scores, *masked_scores, *weights; /* (n,m) */
    double *output;                                           /* (n,d_v) */
    double *lse, *entropy, *score_scale, *output_scale;       /* (n) */
};

void attn_reference_head(const struct reference_head *call, const struct reference_results *out);

#endif
