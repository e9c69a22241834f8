/*
 * backward.h - the gradients of a tile of a state.
 */
#ifndef ATTN_BACKWARD_H
#define ATTN_BACKWARD_H

#include "recurrent/state_tile.h"

/* Computes the gradients of a tile in one segment: adds to its partial gradients, and takes the
 * gradient of its state from the end of the segment to its begin. */
void backward_run(const struct state_tile *tile, double *scratch);

#endif
