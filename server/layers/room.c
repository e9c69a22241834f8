/* room.c - see room.h. */
#define _DEFAULT_SOURCE /* madvise() */
#include "layers/room.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    CHUNK = 16 << 20 /* bytes; giving them back to the kernel takes a few milliseconds */
};

static void unlink_kept(struct room *room, struct layer_packed *p) {
    *(p->newer != NULL ? &p->newer->older : &room->newest) = p->older;
    *(p->older != NULL ? &p->older->newer : &room->oldest) = p->newer;
    p->newer = p->older = NULL;
    room->kept -= p->bytes;
}

void room_keep(struct room *room, struct layer_packed *packed) {
    packed->older = room->newest;
    packed->newer = NULL;
    *(packed->older != NULL ? &packed->older->newer : &room->oldest) = packed;
    room->newest = packed;
    room->used -= packed->bytes;
    room->kept += packed->bytes;
}

void room_reuse(struct room *room, struct layer_packed *packed) {
    unlink_kept(room, packed);
    room->used += packed->bytes;
}

void room_drop(struct room *room, struct layer_packed *packed) {
    struct layer *layer =
        &packed->layer->model->layers[packed->layer - packed->layer->model->layers];
    for (int dtype = 0; dtype < 2; dtype++) {
        layer->packed[dtype] = layer->packed[dtype] == packed ? NULL : layer->packed[dtype];
    }
    unlink_kept(room, packed);
    room->dropped += packed->bytes;
    packed->older = room->waste;
    room->waste = packed;
}

bool room_make(struct room *room, size_t bytes) {
    if (bytes > room->most || room->used > room->most - bytes) {
        return false;
    }
    while (room->oldest != NULL && room->kept > room->most - bytes - room->used) {
        room_drop(room, room->oldest);
    }
    room->used += bytes;
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

bool room_free_chunk(struct room *room, pthread_mutex_t *mutex) {
    struct layer_packed *packed = room->waste;
    if (packed == NULL) {
        return false;
    }
    const size_t before = packed->bytes;
    size_t left = 0;
    room->waste = packed->older; /* no other thread takes it meanwhile */
    pthread_mutex_unlock(mutex);
    if (before > CHUNK) {
        left = give_back(packed, before);
    } else {
        pack_free(packed);
    }
    pthread_mutex_lock(mutex);
    room->dropped -= before - left;
    if (left > 0) {
        packed->bytes = left;
        packed->older = room->waste;
        room->waste = packed;
    }
    return true;
}
