/*
 * linear_calls.h - draws calls of linear attention over all updates, options, forms and dtypes, and
 * runs them. The numbers of each head are made first, and are then put into the form of the call.
 * The doubles are exact in the dtype of the call.
 */
#ifndef LINEAR_CALLS_H
#define LINEAR_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attention.h"
#include "attention_calls.h"
#include "support/rng.h"

enum linear_form {
    LINEAR_PLAIN,          /* (n,d): no axis of heads */
    LINEAR_HEADS,          /* (H,n,d) with up to two axes of a batch */
    LINEAR_PACKED,         /* (n,H*d) with up to two axes of a batch */
    LINEAR_ROWS,           /* sequences (n,d) */
    LINEAR_ROWS_PACKED,    /* sequences (n,H*d) */
    LINEAR_ROWS_AND_HEADS, /* sequences (n,H,d) */
    LINEAR_FORMS
};

enum {
    MAX_SEQUENCES = 6,
    MAX_LINES = 6,
    MAX_LINEAR_HEADS = 12,
    LINEAR_TENSORS = 8,
};

/* A matrix or a list of gates with its own axes: of those of size 1, all share the numbers. */
struct linear_matrix {
    size_t items, heads, rows, columns;
    double *x; /* (items,heads,rows,columns) */
};

/* One call with all its inputs. H_s is the number of states. */
struct linear_call {
    struct rng rng;
    attn_dtype dtype;
    enum linear_form form;
    int axis_count;
    size_t axes[2], B, H, H_s, n, d, d_v;
    /* past: (items,H_s,d,d_v). grad_output and grad_state are gradients by results. x may be NULL.
     */
    struct linear_matrix q, k, v, decay, beta, past, grad_output, grad_state;
    double scales[MAX_LINEAR_HEADS];
    size_t lengths[MAX_LINES];
    /* The batch items, or the sequences, and their rows. */
    size_t line_count, line_first[MAX_LINES], line_rows[MAX_LINES], queries[MAX_SEQUENCES];
    attn_tensor tensors[LINEAR_TENSORS]; /* of these matrices */
    attn_upstream upstream;
    attn_sequences sequences;
    attn_linear call;
    attn_options options;
    struct kept kept;
};

/* Draws the call of a seed: short with n up to 300, or long with n up to 5000. Free it with
 * free_linear_call(). */
struct linear_call *draw_linear_call(uint64_t seed, bool is_long);
void free_linear_call(struct linear_call *c);

/* A call of one head whose rows of K have the length 1, and whose gates are drawn from ranges. */
struct linear_kind {
    attn_dtype dtype;
    size_t n, d, d_v, decays; /* decays: 1 or d; 0 = none */
    double decay[2];
    bool has_beta;
    double beta[2];
    bool one_key; /* all positions have the same row of K */
};

/* Draws a call of a kind with an output and a state. Free it with free_linear_call(). */
struct linear_call *draw_linear_kind(const struct linear_kind *kind);

/* Does a call have packed sequences? Are its heads not an axis before that of the positions? */
bool linear_has_sequences(const struct linear_call *c);
bool linear_is_packed(const struct linear_call *c);

/* Returns how many numbers a matrix has, or the row of a batch item, a head and a position. */
size_t linear_count(const struct linear_matrix *m);
double *linear_number(const struct linear_matrix *m, size_t b, size_t h, size_t i);

/* Returns the place of such a row in a tensor. The rows of a packed call lie before its heads. */
size_t linear_place(const struct linear_matrix *m, size_t b, size_t h, size_t i, bool packed);

/* Makes the tensors of a call from its numbers. Call it again after the numbers changed. */
void make_linear_tensors(struct linear_call *c);

/* Describes a call, for messages. The text is static. */
const char *describe_linear(const struct linear_call *c);

/* Runs a call by attn_plan_run(), or by `run`. The plan must be possible. */
struct results try_linear(const struct linear_call *c, run_tasks *run);

#endif
