/*
 * upload.h - replaces and removes the file of a model in the folder of stored layers. The bytes go
 * to a temporary file. The file is checked, written to the disk and renamed, so there is always
 * either the old or the new file as a whole, whatever happens to the process.
 */
#ifndef LAYERS_UPLOAD_H
#define LAYERS_UPLOAD_H

#include "layers/layers.h"

enum upload_status {
    UPLOAD_DONE,
    UPLOAD_BAD,     /* the name or the file is not one that is served */
    UPLOAD_MISSING, /* there is no such file */
    UPLOAD_FULL,    /* the disk or the quota is full */
    UPLOAD_FAILED   /* the file system refuses something else */
};

/* A file that is being written. */
struct upload;

/* Begins to write the file of a model, NAME.safetensors in the folder. *upload becomes owned. */
enum upload_status upload_begin(struct layers *layers, const char *name, struct upload **upload,
                                char reason[static LAYERS_REASON]);

/* Appends bytes. Returns false if they cannot be written; upload_end() says why. */
bool upload_write(struct upload *upload, const void *bytes, size_t size);

/* Checks the file, and gives it its name. This waits for the disk. If it fails, the old file, if
 * there is one, is what it was. *replaced says whether there was one. */
enum upload_status upload_end(struct upload *upload, bool *replaced,
                              char reason[static LAYERS_REASON]);

/* Closes the file and frees the struct. A file without its name is removed. NULL is allowed. */
void upload_free(struct upload *upload);

/* Removes the file of a model. This waits for the disk. */
enum upload_status upload_remove(struct layers *layers, const char *name,
                                 char reason[static LAYERS_REASON]);

/* Removes the temporary files that no process is writing: one that was killed has left them. */
void upload_clean(int folder);

#endif
