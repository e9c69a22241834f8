/*
 * random_gradients.h - asks for the gradients of random calls. The loss is the sum of results, each
 * number multiplied by a drawn one.
 */
#ifndef RANDOM_GRADIENTS_H
#define RANDOM_GRADIENTS_H

#include "random_calls.h"

/* An input, and the part of its gradient. */
struct input {
    attn_result gradient;
    const attn_tensor *tensor;
    size_t part;
};

enum {
    INPUTS = 24 + 6 * MAX_HEADS
};

/* Draws the gradients of some results of a drawn call, in `up`, and makes them an option. Adds the
 * gradients by all inputs to the wanted results. Returns the count of inputs. */
size_t ask_for_gradients(struct call *c, uint64_t seed, attn_upstream *up,
                         struct input inputs[INPUTS]);

/* Makes a drawn float32 call one of float64. Its tensors keep their places and their numbers. */
void widen_call(struct call *c);

/* Binds each part of the results of a plan to memory of its own, which holds NaN. */
void bind_all(struct call *c, attn_plan *plan);

/* Binds all results of a plan to memory of the call, and runs it. */
void bind_and_run(struct call *c, attn_plan *plan);

/* Expects that the results of two plans, of these sets, have the same bytes. */
void expect_same_parts(uint64_t seed, const attn_plan *a, const attn_plan *b, uint64_t results,
                       const char *what);

/* Runs the tasks of a call in another order, which must not change a byte of the results of a plan
 * that ran. If two tasks of a phase added to one number, the order would change its sum. */
void expect_any_order(struct call *c, uint64_t seed, const attn_plan *plan);

#endif
