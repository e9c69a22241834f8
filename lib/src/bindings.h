/*
 * bindings.h - the data that one run of a plan reads and writes. The plan is constant: it says
 * which inputs there are, and how they lie. A run may read a copy in place of an input, and each
 * packed sequence has bindings of its own.
 */
#ifndef ATTN_BINDINGS_H
#define ATTN_BINDINGS_H

#include <attention.h>

/* The inputs of a call but the weights of its projections. plan_inputs.c has their names. */
enum {
    INPUT_Q, /* Q, K and V follow each other, and so does what belongs to each of them */
    INPUT_K,
    INPUT_V,
    INPUT_X, /* what Q is projected from; X of softmax alone */
    INPUT_CONTEXT,
    INPUT_VALUE_CONTEXT,
    INPUT_B_Q,
    INPUT_B_K,
    INPUT_B_V,
    INPUT_PAST_K,
    INPUT_PAST_V,
    INPUT_BIAS,
    INPUT_DECAY,
    INPUT_NORM_Q,
    INPUT_NORM_K,
    INPUT_NORM_V,
    INPUT_ROTARY_COS,
    INPUT_ROTARY_SIN,
    INPUT_BIAS_K,
    INPUT_BIAS_V,
    INPUT_GATE,
    INPUT_ROUNDED, /* a compute_dtype rounds the inputs before this one */
    INPUT_GRAD_OUTPUT = INPUT_ROUNDED,
    INPUT_GRAD_LSE,
    INPUT_GRAD_WEIGHTS,
    INPUT_COPIED, /* a widened call has copies of the inputs before this one, see plan_inputs.c */
    INPUT_POSITIONS = INPUT_COPIED,
    INPUT_SINK,
    INPUT_ALIBI,
    INPUT_MASK, /* key_padding, if that is the only mask */
    INPUT_KEY_PADDING,
    INPUT_BETA,
    INPUT_PAST_STATE,
    INPUT_GRAD_STATE,
    INPUT_COUNT
};

struct bindings {
    /* Borrowed, or copies. An input that is not given is NULL, and so is a matrix that the run
     * computes. A matrix that stands for another one is bound as both. */
    const void *inputs[INPUT_COUNT];
    /* The matrices of weights of the projections, each followed by its bias or NULL. */
    const void **weights;
    const attn_rounding *rounding; /* borrowed; NULL: none */
    /* A run reads these numbers when it begins: those of alibi and sink, one for each head, and the
     * frequencies of rotary embedding, one for each pair of columns. NULL: there are none. */
    double *slopes, *sinks, *frequencies;
    void *results[ATTN_RESULT_COUNT]; /* the data of the first part of each; NULL: none */
    void **parts;    /* of all parts, if heads have projections of their own; otherwise NULL */
    char *workspace; /* shared by all tasks; NULL until it is needed. The plan owns its own. */
    double *shared;  /* of a sequence: the sums to which it adds its gradients; or NULL */
};

/* Returns the place of an input, or of weights: those are counted from INPUT_COUNT on. */
static inline const void **bound_input(struct bindings *bindings, size_t which) {
    return which < INPUT_COUNT ? &bindings->inputs[which] : &bindings->weights[which - INPUT_COUNT];
}

#endif
