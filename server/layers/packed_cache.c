/* packed_cache.c - see packed_cache.h. */
#define _DEFAULT_SOURCE /* madvise() */
#include "layers/packed_cache.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    CHUNK = 16 << 20 /* bytes; giving them back to the kernel takes a few milliseconds */
};

static void unlink_kept(struct packed_cache *cache, struct layer_packed *p) {
    *(p->newer != NULL ? &p->newer->older : &cache->newest) = p->older;
    *(p->older != NULL ? &p->older->newer : &cache->oldest) = p->newer;
    p->newer = p->older = NULL;
    cache->kept -= p->bytes;
}

void packed_cache_keep(struct packed_cache *cache, struct layer_packed *packed) {
    packed->older = cache->newest;
    packed->newer = NULL;
    *(packed->older != NULL ? &packed->older->newer : &cache->oldest) = packed;
    cache->newest = packed;
    cache->used -= packed->bytes;
    cache->kept += packed->bytes;
}

void packed_cache_reuse(struct packed_cache *cache, struct layer_packed *packed) {
    unlink_kept(cache, packed);
    cache->used += packed->bytes;
}

void packed_cache_drop(struct packed_cache *cache, struct layer_packed *packed) {
    struct layer *layer =
        &packed->layer->model->layers[packed->layer - packed->layer->model->layers];
    for (int dtype = 0; dtype < 2; dtype++) {
        layer->packed[dtype] = layer->packed[dtype] == packed ? NULL : layer->packed[dtype];
    }
    unlink_kept(cache, packed);
    cache->dropped += packed->bytes;
    packed->older = cache->dropped_list;
    cache->dropped_list = packed;
}

bool packed_cache_make_room(struct packed_cache *cache, size_t bytes) {
    if (bytes > cache->most || cache->used > cache->most - bytes) {
        return false;
    }
    while (cache->oldest != NULL && cache->kept > cache->most - bytes - cache->used) {
        packed_cache_drop(cache, cache->oldest);
    }
    cache->used += bytes;
    return true;
}

/* Gives the pages of a chunk of the block back to the kernel, from the end. Returns the bytes that
 * the block still has. */
static size_t give_back(const struct layer_packed *packed, size_t bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)packed->block;
    const size_t left = bytes - CHUNK;
    const uintptr_t first = (start + page - 1) / page * page, rest = (start + left) / page * page;
    const uintptr_t from = rest > first ? rest : first, to = (start + bytes) / page * page;
    if (from < to) {
        madvise((void *)from, to - from, MADV_DONTNEED);
    }
    return left;
}

bool packed_cache_free_chunk(struct packed_cache *cache, pthread_mutex_t *mutex) {
    struct layer_packed *packed = cache->dropped_list;
    if (packed == NULL) {
        return false;
    }
    const size_t before = packed->bytes;
    size_t left = 0;
    cache->dropped_list = packed->older; /* no other thread takes it meanwhile */
    pthread_mutex_unlock(mutex);
    if (before > CHUNK) {
        left = give_back(packed, before);
    } else {
        pack_free(packed);
    }
    pthread_mutex_lock(mutex);
    cache->dropped -= before - left;
    if (left > 0) {
        packed->bytes = left;
        packed->older = cache->dropped_list;
        cache->dropped_list = packed;
    }
    return true;
}
