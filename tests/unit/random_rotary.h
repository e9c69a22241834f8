/*
 * random_rotary.h - draws norms and rotary embedding for a random call, and applies their formulas
 * to its matrices Q, K and V.
 */
#ifndef RANDOM_ROTARY_H
#define RANDOM_ROTARY_H

#include "random_calls.h"

/* Draws norms and rotary for some calls. It changes these options, and the rows of Q and the new
 * rows of K and V in `c`; tensors of Q, K and V that exist already keep their numbers. */
void draw_rotation(struct call *c);

#endif
