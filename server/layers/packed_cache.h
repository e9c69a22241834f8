/*
 * packed_cache.h - the cache of packed weights: which are in use, which are kept for the next
 * request, and which are dropped. Freeing a gigabyte takes long, so weights are only dropped under
 * the mutex of the store; they are freed later, in chunks, by threads that hold no lock.
 */
#ifndef LAYERS_PACKED_CACHE_H
#define LAYERS_PACKED_CACHE_H

#include "layers/pack.h"

/* The cache. Zero-initialise, and set `most`. The mutex of the store guards it. */
struct packed_cache {
    size_t most;                          /* bytes that may be in use or kept */
    size_t used, kept, dropped;           /* bytes */
    struct layer_packed *newest, *oldest; /* what is kept, by the last use */
    struct layer_packed *dropped_list;    /* what is dropped, a list by `older` */
};

/* Keeps weights that nothing uses any more. */
void packed_cache_keep(struct packed_cache *cache, struct layer_packed *packed);

/* Takes kept weights into use again. */
void packed_cache_reuse(struct packed_cache *cache, struct layer_packed *packed);

/* Makes room for new weights in use: drops what was not used for the longest time. Drops nothing
 * and returns false if they cannot fit because of what is in use. */
bool packed_cache_make_room(struct packed_cache *cache, size_t bytes);

/* Drops weights that are kept. Their layer may end before they are freed. */
void packed_cache_drop(struct packed_cache *cache, struct layer_packed *packed);

/* Frees a chunk of what is dropped. Releases the mutex meanwhile, which the caller holds. Returns
 * false if there is nothing to free, or if other threads free all of it. */
bool packed_cache_free_chunk(struct packed_cache *cache, pthread_mutex_t *mutex);

#endif
