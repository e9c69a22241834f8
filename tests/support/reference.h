/*
 * reference.h - attention of one head of one batch item, in double, by plain loops that follow the
 * formulas of attention.h. The tests compare the library with it, so it shares no code with the
 * library, and it is easy to read rather than fast.
 */
#ifndef SUPPORT_REFERENCE_H
#define SUPPORT_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attention.h"

struct reference_head {
    size_t n, m, d, d_v;
    size_t extra;                /* the last keys, which no rule forbids and which get no bias */
    const double *q, *k, *v;     /* (n,d), (m,d), (m,d_v); past keys and values come first */
    double scale;                /* that of the head, whatever the options say */
    const double *bias;          /* (n,m), NULL = none; -INFINITY forbids */
    const unsigned char *mask;   /* (n,m), NULL = none; 0 forbids */
    const unsigned char *exists; /* (m), NULL = all keys exist; 0 = the key does not */
    double slope;                /* the slope of ALiBi, 0 = none */
    const double *decay;         /* (m), NULL = none; logarithms of forget gates */
    int64_t first;               /* the position of query 0, see reference_position() */
    size_t length;               /* keys j >= length are forbidden */
    bool has_sink;
    double sink;
    attn_options options; /* the window, and what is one number or choice for all heads */
};

/* The results, in one block of memory that begins with `scores`: free that. The errors of a row are
 * compared with the size of the terms that are added in it: output_scale is max_c sum_j |w_j v_jc|,
 * and score_scale is max_j sum_c |q_c k_jc|. */
struct reference_results {
    double *scores, *scaled_scores, *masked_scores, *weights; /* (n,m) */
    double *output;                                           /* (n,d_v) */
    double *score_scale, *output_scale;                       /* (n) */
    /* The same by the names of results, NULL for those that are not here. Those that have no name
     * above are one number for each query. */
    double *of[ATTN_RESULT_COUNT];
};

/* Returns the position of query i. Query 0 follows the past keys, or the last query stands at the
 * last of `length` valid keys. */
int64_t reference_position(bool at_the_end, size_t past, size_t length, size_t n, size_t i);

/* Returns the scaled score of a score that the scale has multiplied. */
double reference_bend(const attn_options *o, double x);

/* Computes all results of one head. */
struct reference_results reference_compute(const struct reference_head *call);

#endif
