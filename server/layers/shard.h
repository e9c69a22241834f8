/* shard.h - opens and reads the files of models, which may change or become shorter meanwhile. No
 * file stays open, so any number of models may be served. */
#ifndef LAYERS_SHARD_H
#define LAYERS_SHARD_H

#include <sys/stat.h>

#include "layers/layers.h"

#define SHARD_ENDING ".safetensors"
#define SHARD_INDEX  SHARD_ENDING ".index.json"

/* Returns the size of the name before an ending, or 0 if it does not end so. */
size_t shard_stem(const char *name, const char *ending);

/* Opens something inside the folder for reading; `flags` are added to those of open(). No link
 * leads out of the folder. Returns -1 with errno. */
int shard_open_inside(int folder, const char *path, int flags);

/* Returns whether an error may pass although the file does not change. */
bool shard_may_pass(int error);

/* Notes what the file system says of a file, so that the same file is known again. */
void shard_note(struct layer_shard *shard, const struct stat *status);

/* Returns whether an open file is the file whose header was read, and has not changed since. */
bool shard_is_unchanged(const struct layer_shard *shard, int fd);

/* Reads `size` bytes at an offset. Returns false with errno if they cannot be read; errno is 0 if
 * the file ends before. */
bool shard_read_at(int fd, void *to, size_t size, uint64_t offset);

#endif
