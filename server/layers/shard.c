/* shard.c - see shard.h. */
#include "layers/shard.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

bool shard_read_at(int fd, void *to, size_t size, uint64_t offset) {
    char *bytes = to;
    while (size > 0) {
        const ssize_t got = pread(fd, bytes, size, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            errno = got == 0 ? 0 : errno;
            return false;
        }
        bytes += got;
        size -= (size_t)got;
        offset += (uint64_t)got;
    }
    return true;
}

bool shard_is_unchanged(const struct layer_shard *shard) {
    struct stat status;
    return fstat(shard->fd, &status) == 0 && (uint64_t)status.st_size == shard->size &&
           status.st_mtim.tv_sec == shard->changed.tv_sec &&
           status.st_mtim.tv_nsec == shard->changed.tv_nsec;
}
