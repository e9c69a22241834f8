/*
 * random_rotary.h - draws norms and rotary embedding for a random call, and applies their formulas
 * to its matrices Q and K.
 */
#ifndef RANDOM_ROTARY_H
#define RANDOM_ROTARY_H

#include "random_calls.h"

/* Draws norm_q, norm_k and rotary for some calls. It changes options.norm_q, norm_k and rotary, and
 * the rows of Q and the new rows of K in `c`; tensors of Q and K that exist already keep their
 * numbers. */
void draw_rotation(struct call *c);

#endif
