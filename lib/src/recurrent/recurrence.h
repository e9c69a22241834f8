/*
 * recurrence.h - a state that is computed position by position.
 */
#ifndef ATTN_RECURRENCE_H
#define ATTN_RECURRENCE_H

#include "recurrent/state_tile.h"

/* Computes a tile position by position. */
attn_status recurrence_run(const struct state_tile *s, void *scratch);

#endif
