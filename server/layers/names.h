/*
 * names.h - which layers a name stands for. A name is that of a layer, or it stands for all layers
 * whose names begin with it and a dot. The names of models have dots, too, so a name could stand
 * for layers of two models. Such layers are refused.
 */
#ifndef LAYERS_NAMES_H
#define LAYERS_NAMES_H

#include "layers/layers.h"

/* Returns the index of the first model of this name, or the number of models. */
size_t names_first(const struct layers_catalogue *catalogue, const char *name);

/* Returns another model of which the name of a layer also stands for layers, or NULL. */
const struct layer_model *names_rival(const struct layers_catalogue *catalogue,
                                      const struct layer *layer);

#endif
