/* upload.c - see upload.h. */
#include "layers/upload.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "layers/model.h"

#define TEMPORARY ".attentiond-" /* the beginning of the names of temporary files */

enum {
    ABANDONED = 600,             /* seconds */
    FILE_NAME = LAYERS_NAME + 16 /* bytes of NAME.safetensors */
};

struct upload {
    struct layers *layers; /* borrowed */
    int folder;            /* borrowed */
    int file;              /* owned; -1 once it is closed */
    int error;             /* errno of the first write that failed, or 0 */
    char name[LAYERS_NAME + 1], final[FILE_NAME];
    char temporary[64], old[64]; /* `old` is a second name of the file that is replaced */
};

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
    const struct layers_catalogue *catalogue = layers_take(layers);
    const struct layer_model *model = layers_find_model(catalogue, name);
    const bool other = model != NULL && strcmp(model->file, file) != 0;
    if (other) {
        refuse_upload(reason, UPLOAD_BAD,
                      "the model %s has the file %.60s; only a model that is the one file "
                      "NAME.safetensors is replaced and removed",
                      name, model->file);
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
    char text[48];
    snprintf(text, sizeof text, TEMPORARY "%llx-%lx-%x", (unsigned long long)now.tv_sec,
             (unsigned long)now.tv_nsec + (unsigned long)getpid(), atomic_fetch_add(&counter, 1));
    snprintf(u->temporary, sizeof u->temporary, "%s-new", text);
    snprintf(u->old, sizeof u->old, "%s-old", text);
    u->file = openat(u->folder, u->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return u->file >= 0 ? UPLOAD_DONE : refuse_system(reason, "the file cannot be made", errno);
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

/* Gives the file its name. The old file keeps a second name until the folder is on the disk. */
static enum upload_status rename_file(struct upload *u, bool *replaced,
                                      char reason[static LAYERS_REASON]) {
    *replaced = linkat(u->folder, u->final, u->folder, u->old, 0) == 0;
    if (!*replaced && errno != ENOENT) {
        return refuse_system(reason, "the old file cannot be kept", errno);
    }
    enum upload_status status = UPLOAD_DONE;
    if (renameat(u->folder, u->temporary, u->folder, u->final) != 0) {
        status = refuse_system(reason, "the file cannot get its name", errno);
    } else if (fsync(u->folder) != 0) {
        status = refuse_system(reason, "the folder cannot be written to the disk", errno);
        if (!*replaced) {
            unlinkat(u->folder, u->final, 0);
        } else {
            renameat(u->folder, u->old, u->folder, u->final);
        }
    }
    if (*replaced) {
        unlinkat(u->folder, u->old, 0);
    }
    return status;
}

/* Writes the file to the disk, checks it and gives it its name. */
static enum upload_status end_file(struct upload *upload, bool *replaced,
                                   char reason[static LAYERS_REASON]) {
    if (upload->error != 0) {
        return refuse_system(reason, "the file cannot be written", upload->error);
    }
    if (fsync(upload->file) != 0) {
        return refuse_system(reason, "the file cannot be written to the disk", errno);
    }
    const int error = close(upload->file) != 0 ? errno : 0;
    upload->file = -1;
    if (error != 0) {
        return refuse_system(reason, "the file cannot be written to the disk", error);
    }
    const enum upload_status status = check_file(upload, reason);
    return status == UPLOAD_DONE ? rename_file(upload, replaced, reason) : status;
}

enum upload_status upload_end(struct upload *upload, bool *replaced,
                              char reason[static LAYERS_REASON]) {
    *replaced = false;
    const enum upload_status status = end_file(upload, replaced, reason);
    unlinkat(upload->folder, upload->temporary, 0); /* it is not there if it was renamed */
    upload->temporary[0] = '\0';
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
    if (unlinkat(folder, file, 0) != 0) {
        return errno == ENOENT ? refuse_upload(reason, UPLOAD_MISSING, "there is no model %s", name)
                               : refuse_system(reason, "the file cannot be removed", errno);
    }
    if (fsync(folder) != 0) {
        status = refuse_system(reason, "the folder cannot be written to the disk", errno);
    }
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
        struct stat status;
        if (strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) == 0 &&
            fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            status.st_mtime < time(NULL) - ABANDONED) {
            unlinkat(folder, entry->d_name, 0);
        }
    }
    closedir(stream);
}
