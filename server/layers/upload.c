/* upload.c - see upload.h. */
#define _GNU_SOURCE /* renameat2() */
#include "layers/upload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "layers/model.h"

#define TEMPORARY ".attentiond-" /* the beginning of the names of temporary files */

enum {
    FILE_NAME = LAYERS_NAME + 16 /* bytes of NAME.safetensors */
};

struct upload {
    struct layers *layers; /* borrowed */
    int folder;            /* borrowed */
    int file;              /* owned; -1 once it is closed */
    int error;             /* errno of the first write that failed, or 0 */
    char name[LAYERS_NAME + 1], final[FILE_NAME];
    char temporary[64];
};

static pthread_mutex_t renaming = PTHREAD_MUTEX_INITIALIZER; /* one file gets or loses its name */

/* Writes why something failed. Returns the status. */
static enum upload_status refuse_upload(char reason[static LAYERS_REASON],
                                        enum upload_status status, const char *format, ...)
    __attribute__((cold, format(printf, 3, 4)));
static enum upload_status refuse_upload(char reason[static LAYERS_REASON],
                                        enum upload_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, LAYERS_REASON, format, arguments);
    va_end(arguments);
    return status;
}

/* Refuses because of `error`, an errno, which happened while the daemon did `what`. */
static enum upload_status refuse_system(char reason[static LAYERS_REASON], const char *what,
                                        int error) {
    const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    return refuse_upload(reason, full ? UPLOAD_FULL : UPLOAD_FAILED, "%s: %s", what,
                         strerror(error));
}

/* Makes the name of the file of a model. Refuses a name that no file may have, and a model that has
 * another file. */
static enum upload_status name_file(struct layers *layers, const char *name,
                                    char file[static FILE_NAME],
                                    char reason[static LAYERS_REASON]) {
    if (name[0] == '.' || !model_is_name(name)) {
        return refuse_upload(reason, UPLOAD_BAD,
                             "the name of a model has 1 to %d of the characters A-Z, a-z, 0-9, "
                             "\".\", \"_\" and \"-\", and does not begin with \".\"",
                             LAYERS_NAME);
    }
    snprintf(file, FILE_NAME, "%s.safetensors", name);
    struct stat status;
    const bool exists = fstatat(layers_folder(layers), file, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists) {
        layers_refresh(layers); /* the catalogue may not have the file yet */
    }
    const struct layers_catalogue *catalogue = layers_take(layers);
    const struct layer_model *model = layers_find_model(catalogue, name);
    const bool other = model == NULL ? exists : strcmp(model->file, file) != 0;
    if (other) {
        refuse_upload(reason, UPLOAD_BAD,
                      "%s is a part of another model; only a model that is the one file "
                      "NAME.safetensors is replaced and removed",
                      model == NULL ? file : model->file);
    }
    layers_give(layers, catalogue);
    return other ? UPLOAD_BAD : UPLOAD_DONE;
}

enum upload_status upload_begin(struct layers *layers, const char *name, struct upload **upload,
                                char reason[static LAYERS_REASON]) {
    static atomic_uint counter;
    struct upload *u = calloc(1, sizeof *u);
    *upload = u;
    if (u == NULL) {
        return refuse_system(reason, "memory", ENOMEM);
    }
    u->layers = layers;
    u->folder = layers_folder(layers);
    u->file = -1;
    const enum upload_status status = name_file(layers, name, u->final, reason);
    if (status != UPLOAD_DONE) {
        return status;
    }
    snprintf(u->name, sizeof u->name, "%s", name);
    struct timespec now; /* other machines may share the folder */
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(u->temporary, sizeof u->temporary, TEMPORARY "%llx-%lx-%x",
             (unsigned long long)now.tv_sec, (unsigned long)now.tv_nsec + (unsigned long)getpid(),
             atomic_fetch_add(&counter, 1));
    u->file = openat(u->folder, u->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (u->file < 0) {
        u->temporary[0] = '\0';
        return refuse_system(reason, "the file cannot be made", errno);
    }
    flock(u->file, LOCK_EX | LOCK_NB); /* upload_clean() leaves it alone */
    return UPLOAD_DONE;
}

bool upload_write(struct upload *upload, const void *bytes_, size_t size) {
    const char *bytes = bytes_;
    while (upload->error == 0 && size > 0) {
        const ssize_t part = write(upload->file, bytes, size);
        if (part >= 0) {
            bytes += part;
            size -= (size_t)part;
        } else if (errno != EINTR) {
            upload->error = errno;
        }
    }
    return upload->error == 0;
}

/* Checks that the file has a layer that is served. */
static enum upload_status check_file(const struct upload *u, char reason[static LAYERS_REASON]) {
    struct model_source source = {0};
    enum upload_status status = UPLOAD_DONE;
    snprintf(source.name, sizeof source.name, "%s", u->name);
    snprintf(source.path, sizeof source.path, "%s", u->temporary);
    model_find_config(u->folder, &source, u->name);
    struct layer_model *model = model_read(u->folder, &source);
    if (model == NULL) {
        return refuse_system(reason, "memory", ENOMEM);
    }
    const char *why = model->reason;
    for (size_t i = 0; i < model->count && (i == 0 || why[0] != '\0'); i++) {
        why = model->layers[i].reason;
    }
    if (why[0] != '\0') {
        const char *found = strstr(why, u->temporary); /* the client knows the other name */
        status = found == NULL ? refuse_upload(reason, UPLOAD_BAD, "%s", why)
                               : refuse_upload(reason, UPLOAD_BAD, "%.*s%s%s", (int)(found - why),
                                               why, u->final, found + strlen(u->temporary));
    }
    model_free(model);
    return status;
}

/* Gives the file its name. The old file takes the temporary name until the folder is on the disk,
 * so that it can come back. A file system that cannot exchange names just replaces it. */
static enum upload_status rename_file(struct upload *u, bool *replaced,
                                      char reason[static LAYERS_REASON]) {
    struct stat status;
    *replaced = fstatat(u->folder, u->final, &status, AT_SYMLINK_NOFOLLOW) == 0;
    const bool exchanged =
        *replaced && renameat2(u->folder, u->temporary, u->folder, u->final, RENAME_EXCHANGE) == 0;
    if (!exchanged && ((*replaced && errno != EINVAL && errno != ENOSYS) ||
                       renameat(u->folder, u->temporary, u->folder, u->final) != 0)) {
        return refuse_system(reason, "the file cannot get its name", errno);
    }
    if (fsync(u->folder) == 0) {
        return UPLOAD_DONE;
    }
    const int error = errno;
    if (!*replaced) {
        unlinkat(u->folder, u->final, 0);
    } else if (exchanged &&
               renameat2(u->folder, u->temporary, u->folder, u->final, RENAME_EXCHANGE) != 0) {
        u->temporary[0] = '\0'; /* it is the old file, which stays */
    }
    return refuse_system(reason, "the folder cannot be written to the disk", error);
}

/* Checks the file, writes it to the disk and gives it its name. */
static enum upload_status end_file(struct upload *upload, bool *replaced,
                                   char reason[static LAYERS_REASON]) {
    if (upload->error != 0) {
        return refuse_system(reason, "the file cannot be written", upload->error);
    }
    enum upload_status status = check_file(upload, reason);
    if (status != UPLOAD_DONE) {
        return status;
    }
    if (fsync(upload->file) != 0) {
        return refuse_system(reason, "the file cannot be written to the disk", errno);
    }
    pthread_mutex_lock(&renaming);
    status = name_file(upload->layers, upload->name, upload->final, reason);
    status = status == UPLOAD_DONE ? rename_file(upload, replaced, reason) : status;
    pthread_mutex_unlock(&renaming);
    return status;
}

enum upload_status upload_end(struct upload *upload, bool *replaced,
                              char reason[static LAYERS_REASON]) {
    *replaced = false;
    const enum upload_status status = end_file(upload, replaced, reason);
    if (upload->temporary[0] != '\0') {
        unlinkat(upload->folder, upload->temporary, 0); /* it is not there if it was renamed */
        upload->temporary[0] = '\0';
    }
    layers_refresh(upload->layers);
    return status;
}

void upload_free(struct upload *upload) {
    if (upload == NULL) {
        return;
    }
    if (upload->file >= 0) {
        close(upload->file);
    }
    if (upload->temporary[0] != '\0') {
        unlinkat(upload->folder, upload->temporary, 0);
    }
    free(upload);
}

enum upload_status upload_remove(struct layers *layers, const char *name,
                                 char reason[static LAYERS_REASON]) {
    char file[FILE_NAME];
    const int folder = layers_folder(layers);
    enum upload_status status = name_file(layers, name, file, reason);
    if (status != UPLOAD_DONE) {
        return status;
    }
    pthread_mutex_lock(&renaming);
    if (unlinkat(folder, file, 0) != 0) {
        status = errno == ENOENT
                     ? refuse_upload(reason, UPLOAD_MISSING, "there is no model %s", name)
                     : refuse_system(reason, "the file cannot be removed", errno);
    } else if (fsync(folder) != 0) {
        status = refuse_system(reason, "the folder cannot be written to the disk", errno);
    }
    pthread_mutex_unlock(&renaming);
    layers_refresh(layers);
    return status;
}

void upload_clean(int folder) {
    const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    if (stream == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    while ((entry = readdir(stream)) != NULL) {
        if (strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) != 0) {
            continue;
        }
        const int file =
            openat(folder, entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0) {
            unlinkat(folder, entry->d_name, 0);
        }
        if (file >= 0) {
            close(file);
        }
    }
    closedir(stream);
}
