/* shard.h - reads the files of models, which may change or become shorter while they are read. */
#ifndef LAYERS_SHARD_H
#define LAYERS_SHARD_H

#include "layers/layers.h"

/* Reads `size` bytes at an offset. Returns false with errno if they cannot be read; errno is 0 if
 * the file ends before. */
bool shard_read_at(int fd, void *to, size_t size, uint64_t offset);

/* Returns whether a file is as it was when its header was read, by its size and its time. */
bool shard_is_unchanged(const struct layer_shard *shard);

#endif
