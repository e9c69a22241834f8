/*
 * partial_gradients.h - the gradients of the inputs, which are sums over heads, tiles and
 * sequences.
 */
#ifndef ATTN_PARTIAL_GRADIENTS_H
#define ATTN_PARTIAL_GRADIENTS_H

#include "recurrent/state_tile.h"

/* Makes some rows of gradients, which are sums of partial gradients. */
attn_status partial_gradients_task(const struct state_tile *s, size_t task, double *scratch);

#endif
