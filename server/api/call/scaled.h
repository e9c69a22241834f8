/*
 * scaled.h - scales beside Q, K, V and past keys and values, as quantised inputs have them. Element
 * (i, c) of a matrix stands for its number times scale[i / b, c / b'], and so on for more axes: the
 * blocks of b by b' numbers follow from the two shapes. Tasks multiply before the plan of the call
 * runs, so all else knows only the products. A product that is not finite is one of excluded.h.
 */
#ifndef API_SCALED_H
#define API_SCALED_H

#include "attention.h"
#include "codec/codec.h"
#include "jobs/jobs.h"

struct call;

enum {
    SCALED_TENSORS = 5 /* Q, K, V, and the past rows of the last two */
};

struct scaled {
    struct scaled_tensor {
        const struct codec_value *value;
        double number;       /* the one for all, if the request gives a number */
        attn_tensor scale;   /* of as many axes as the tensor; its numbers are borrowed */
        size_t count, tasks; /* numbers, and tasks that multiply them */
    } list[SCALED_TENSORS];
    size_t count;
    struct job_phases phases;
};

/* Puts the phase that multiplies at the end of a list. Returns the end of the list. */
struct job_phases **scaled_add_phases(struct call *call, struct job_phases **end);

/* Returns the cost of this phase. */
double scaled_cost(const struct call *call);

#endif
