/*
 * folder.h - the folder of models: which models there are, and when their files change.
 */
#ifndef LAYERS_FOLDER_H
#define LAYERS_FOLDER_H

#include "layers/layers.h"

enum {
    FOLDER_PATH = 520 /* bytes of a path inside the folder: two names and a slash */
};

/* The name of the line that says that files are left out. No model has the name of a hidden
 * file. */
#define FOLDER_LINE "."

/* Where a model is: its file, or the index of its files. */
struct model_source {
    char name[LAYERS_NAME + 1];
    char path[FOLDER_PATH];     /* inside the folder */
    char config[FOLDER_PATH];   /* of its config.json; empty if there is none */
    char reason[LAYERS_REASON]; /* why it cannot be read; empty if it can */
    bool index;
    uint64_t version; /* a hash of what the file system says of its files */
};

/* Files and folders that the last scan has taken: sorted paths. Zero-initialise. */
struct folder_seen {
    char **paths;
    size_t count;
};

/* Lists the models of a folder, sorted by name. Returns them owned, to be freed by free(), or NULL
 * if there is no memory or the folder cannot be read. At most `most` files and folders are taken,
 * those in `seen` first. If there are more, a source with the name FOLDER_LINE says so. `seen`
 * becomes what was taken now. */
struct model_source *folder_scan(int folder, size_t most, struct folder_seen *seen, size_t *count);

/* Frees the paths. */
void folder_forget(struct folder_seen *seen);

#endif
