/*
 * room.h - the memory of packed weights: which are in use, which are kept for the next request, and
 * which are dropped. Freeing a gigabyte takes long, so weights are only dropped under the mutex of
 * the store; they are freed later, in chunks, by threads that hold no lock.
 */
#ifndef LAYERS_ROOM_H
#define LAYERS_ROOM_H

#include "layers/pack.h"

/* Zero-initialise, and set `most`. The mutex of the store guards it. */
struct room {
    size_t most;                          /* bytes that may be in use or kept */
    size_t used, kept, dropped;           /* bytes */
    struct layer_packed *newest, *oldest; /* what is kept, by the last use */
    struct layer_packed *waste;           /* what is dropped, a list by `older` */
};

/* Keeps weights that nothing uses any more. */
void room_keep(struct room *room, struct layer_packed *packed);

/* Takes kept weights into use again. */
void room_reuse(struct room *room, struct layer_packed *packed);

/* Makes room for new weights in use: drops what was not used for the longest time. Drops nothing
 * and returns false if they cannot fit because of what is in use. */
bool room_make(struct room *room, size_t bytes);

/* Drops weights that are kept. Their layer may end before they are freed. */
void room_drop(struct room *room, struct layer_packed *packed);

/* Frees a chunk of what is dropped. Releases the mutex meanwhile, which the caller holds. Returns
 * false if there is nothing to free, or if other threads free all of it. */
bool room_free_chunk(struct room *room, pthread_mutex_t *mutex);

#endif
