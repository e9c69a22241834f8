/*
 * model.h - what the files of a model hold.
 */
#ifndef LAYERS_MODEL_H
#define LAYERS_MODEL_H

#include "layers/folder.h"

/* Reads the headers of a model and finds its layers. Borrows the descriptor of the folder. Returns
 * owned, with a reason if the model cannot be served, or NULL if there is no memory. */
struct layer_model *model_read(int folder, const struct model_source *source);

/* Frees the layers of a model, which nothing uses yet. Its name, its file and its reason stay. */
void model_strip(struct layer_model *model);

/* Frees a model, which nothing uses any more. NULL is allowed. */
void model_free(struct layer_model *model);

#endif
