/* file.c opens a file without waiting and checks that it is a regular one. */
#include "http/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *file_open(const char *path, char *error, size_t size) {
    struct stat about;
    FILE *file = NULL;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &about) == 0 && !S_ISREG(about.st_mode)) {
        snprintf(error, size, "this is not a regular file");
    } else if (fd < 0 || (file = fdopen(fd, "r")) == NULL) {
        snprintf(error, size, "%s", strerror(errno));
    }
    if (file == NULL && fd >= 0) {
        close(fd);
    }
    return file;
}
