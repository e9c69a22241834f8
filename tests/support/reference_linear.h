/*
 * reference_linear.h - linear attention of one head of one batch item, in long double, by plain
 * loops that follow the formulas of attn_linear in attention.h. The tests compare the library with
 * it, so it shares no code with the library, and it is easy to read rather than fast.
 */
#ifndef SUPPORT_REFERENCE_LINEAR_H
#define SUPPORT_REFERENCE_LINEAR_H

#include <stdbool.h>
#include <stddef.h>

struct reference_linear {
    size_t n, d, d_v;
    const double *q, *k, *v; /* (n,d), (n,d), (n,d_v) */
    const double *decay;     /* (n,decays), NULL = none */
    size_t decays;           /* 1, or d: each row of the state has its own; 0 = none */
    const double *beta;      /* (n), NULL = no delta rule */
    const double *past;      /* (d,d_v), NULL = zeros */
    double scale;
    bool normalize; /* rows of Q and K are divided by sqrt(sum of squares + epsilon) */
    double epsilon;
    bool keep_states, weigh; /* makes `states` or `weights` */
};

/* A number that is not finite in double is an infinity or NaN. */
struct reference_linear_results {
    double *output;  /* (n,d_v) */
    double *state;   /* (d,d_v), after the last position */
    double *states;  /* (n,d,d_v), or NULL */
    double *weights; /* (n,n), or NULL */
    double *gates;   /* (n,decays) */
    double largest;  /* the largest absolute value that a state or a correction u ever had */
    double size;     /* the largest absolute value that the state had, decayed since then */
    double terms;    /* the largest sum of the absolute values of the terms of an output */
    double pairs;    /* the same of q_i k_j with its gates, times the scale */
};

/* The gradients of a loss by the inputs of one head: q (n,d), k (n,d), v (n,d_v), decay (n,decays),
 * beta (n) and past (d,d_v); and for each of them the largest sum of the absolute values of the
 * terms of a number. */
enum {
    REFERENCE_Q,
    REFERENCE_K,
    REFERENCE_V,
    REFERENCE_DECAY,
    REFERENCE_BETA,
    REFERENCE_PAST,
    REFERENCE_INPUTS
};

struct reference_linear_gradients {
    double *of[REFERENCE_INPUTS];
    double terms[REFERENCE_INPUTS];
};

/* Computes the gradients of a loss, of which those by output (n,d_v) and by the last state (d,d_v)
 * are given; NULL = zeros. Free them with reference_linear_gradients_free(). */
struct reference_linear_gradients reference_linear_gradients(const struct reference_linear *call,
                                                             const double *output,
                                                             const double *state);
void reference_linear_gradients_free(struct reference_linear_gradients *gradients);

/* Computes all results of one head. Free them with reference_linear_free(). */
struct reference_linear_results reference_linear(const struct reference_linear *call);
void reference_linear_free(struct reference_linear_results *results);

#endif
