/*
 * written_calls.h - calls of the library that are written as text, such as "attention Q=4,8 K=5,8
 * V=5,8 causal=1". The head of tests/data/library_errors.txt has the rules. A text that breaks them
 * fails the test.
 */
#ifndef WRITTEN_CALLS_H
#define WRITTEN_CALLS_H

#include "attention.h"

enum {
    WRITTEN_FIELDS = 100, /* the most fields of a call */
    WRITTEN_LIST = 8,     /* the most numbers of a list */
    WRITTEN_NUMBERS = 4096
};

/* The arguments of all functions, of which each function takes its own. */
struct written_call {
    char function[16];
    bool runs;          /* the call is for the errors of its run */
    attn_linear linear; /* its Q, K and V are those of attention, too */
    attn_multihead multihead;
    attn_projection heads[2];
    attn_options options;
    attn_upstream upstream;
    attn_rotary rotary;
    attn_sequences sequences;
    bool has_upstream, has_rotary, has_sequences;
    const attn_tensor *weights;        /* to prepack */
    int64_t buffer;                    /* bytes behind an alignment; -1 = no buffer */
    size_t row, rows, column, columns; /* of a part to prepack */
    int64_t axis;                      /* of softmax */
    union {
        attn_tensor tensor;
        double numbers[WRITTEN_LIST];
        size_t sizes[WRITTEN_LIST];
    } values[WRITTEN_FIELDS]; /* what the fields above point to */
    double *numbers;          /* of the tensor that is not all zeros, owned; or NULL */
};

/* Reads a call, which does not move before free_written(). All tensors hold zeros. */
void read_written(struct written_call *call, const char *text);
void free_written(struct written_call *call);

/* Returns the tensor of this name, which may be changed, or NULL if the call has none. */
attn_tensor *written_tensor(struct written_call *call, const char *name);

/* Makes the call. *plan is NULL after an error, and for a function that makes no plan. */
attn_status make_written(attn_plan **plan, struct written_call *call, attn_error *error);

#endif
