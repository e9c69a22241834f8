/* shard.c - see shard.h. */
#define _GNU_SOURCE /* syscall() */
#include "layers/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

size_t shard_stem(const char *name, const char *ending) {
    const size_t size = strlen(name), last = strlen(ending);
    return size > last && strcmp(name + size - last, ending) == 0 ? size - last : 0;
}

int shard_open_inside(int folder, const char *path, int flags) {
    const struct open_how how = {
        .flags = (unsigned)(O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    const int fd = (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) {
        return fd;
    }
    if (strchr(path, '/') != NULL) { /* without openat2() no part of a path may be a link */
        char parent[256];
        const char *name = strrchr(path, '/') + 1;
        snprintf(parent, sizeof parent, "%.*s", (int)(name - path - 1), path);
        const int inner = openat(folder, parent, O_RDONLY | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW);
        if (inner < 0) {
            return -1;
        }
        const int file = openat(inner, name, (int)how.flags | O_NOFOLLOW);
        const int error = errno;
        close(inner);
        errno = error;
        return file;
    }
    return openat(folder, path, (int)how.flags | O_NOFOLLOW);
}

bool shard_may_pass(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == EIO;
}

void shard_note(struct layer_shard *shard, const struct stat *status) {
    shard->device = (uint64_t)status->st_dev;
    shard->inode = (uint64_t)status->st_ino;
    shard->size = (uint64_t)status->st_size;
    shard->modified = status->st_mtim;
    shard->changed = status->st_ctim;
}

static bool is_same_time(struct timespec a, struct timespec b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool shard_is_unchanged(const struct layer_shard *shard, int fd) {
    struct layer_shard now = {0};
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return false;
    }
    shard_note(&now, &status);
    return now.device == shard->device && now.inode == shard->inode && now.size == shard->size &&
           is_same_time(now.modified, shard->modified) && is_same_time(now.changed, shard->changed);
}

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
