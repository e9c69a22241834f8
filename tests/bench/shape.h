/*
 * shape.h has the calls that bench_attention and bench-peers measure, and the lines that name them.
 */
#ifndef BENCH_SHAPE_H
#define BENCH_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SHAPE_LINE = 256 /* bytes of the longest line, with its end */
};

/* A call. A line names the members that are not zero: "heads=1 kv_heads=1 n=64 m=64 d=3 ...". */
struct shape {
    size_t heads, kv_heads, n, m, d;
    size_t d_v;     /* the columns of a head's values; 0 = d */
    size_t d_model; /* if not 0, Q, K and V are projected from X (n,d_model), and m is n */
    size_t float64, weights, mask, causal;
    size_t window;    /* with causal: a query sees so many keys before its own */
    size_t prepacked; /* the weights of the projections are packed before the measurement */
    size_t packed;    /* if not 0, given Q, K, V and the output are (n,heads*d) */
    size_t gradients; /* those of given Q, K and V are computed, too */
    /* Attention without softmax, in packed form, with its present state. `gated` and `delta` are
     * its two rules, which may be combined. A single query has a past state. */
    size_t linear, gated, delta;
};

/* Writes the line of a call without a newline into line[SHAPE_LINE]. */
void shape_write(const struct shape *s, char *line);

/* Reads a line, which may end with a newline. Returns false if it names no call. */
bool shape_read(struct shape *s, const char *line);

/* Returns the columns of a head's values. */
size_t shape_d_v(const struct shape *s);

/* Returns the floating-point operations of a call's matrix products: two for each multiply-add of
 * the two products of attention, of the five of its gradients and of the projections. Pairs of
 * query and key that causal or a window forbids do not count. Pairs that a mask forbids count,
 * because masks are arbitrary. Linear attention has the products of its recurrence: that of a query
 * and the state, that of a key and a value, and that of a key and the state with `delta`. */
double shape_flops(const struct shape *s);

/* Which calls are measured. */
struct shape_choice {
    uint64_t seed; /* the seed of the drawn calls */
    size_t drawn;  /* how many calls are drawn */
    bool without_grid;
    const char *only; /* if not NULL, only the lines that match this extended regular expression */
};

/* Calls each(group, s) for each call of the choice. The groups follow one another: the grid, the
 * calls of common models, and the calls that are drawn from the seed. The first calls that a seed
 * draws do not depend on how many are drawn. Exits the program if `only` is no regular
 * expression. */
void shape_each(const struct shape_choice *choice,
                void (*each)(const char *group, const struct shape *s));

#endif
