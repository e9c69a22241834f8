/* descriptors.h - counts the open descriptors of a process. */
#ifndef SUPPORT_DESCRIPTORS_H
#define SUPPORT_DESCRIPTORS_H

#include <assert.h>
#include <dirent.h>
#include <stdio.h>

/* Returns the open descriptors of a process, plus a constant: of this one if the id is 0. */
static inline size_t count_descriptors(long process) {
    char path[64] = "/proc/self/fd";
    size_t count = 0;
    if (process != 0) {
        snprintf(path, sizeof path, "/proc/%ld/fd", process);
    }
    DIR *folder = opendir(path);
    assert(folder != NULL);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}

#endif
