/*
 * model.h - the folder of models: which models there are, and what their files hold.
 */
#ifndef LAYERS_MODEL_H
#define LAYERS_MODEL_H

#include "layers/layers.h"

enum {
    MODEL_PATH = 400 /* bytes of a path inside the folder */
};

/* Where a model is: its file, or the index of its files. */
struct model_source {
    char name[LAYERS_NAME + 1];
    char path[MODEL_PATH];      /* inside the folder */
    char config[MODEL_PATH];    /* of its config.json; empty if there is none */
    char reason[LAYERS_REASON]; /* why it cannot be read; empty if it can */
    bool index;
    uint64_t version; /* a hash of what the file system says of its files */
};

/* Returns whether a model may have this name. */
bool model_is_name(const char *name);

/* Writes the path of the config.json of a model that is a file of the folder itself: that of this
 * name, or that of all models. */
void model_find_config(int folder, struct model_source *source, const char *name);

/* Lists the models of a folder, sorted by name. Returns them owned, to be freed by free(), or NULL
 * if there is no memory or the folder cannot be read; errno says which. */
struct model_source *model_scan(int folder, size_t *count);

/* Reads the headers of a model and finds its layers. Returns owned, with a reason if it cannot be
 * served, or NULL if there is no memory. */
struct layer_model *model_read(int folder, const struct model_source *source);

/* Frees a model, which nothing uses any more. NULL is allowed. */
void model_free(struct layer_model *model);

#endif
