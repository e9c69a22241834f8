/*
 * names.h - which layers a name stands for. A name is that of a layer, or it stands for all layers
 * whose names begin with it and a dot. The names of models have dots, too, so a name could stand
 * for layers of two models. Such layers are refused.
 */
#ifndef LAYERS_NAMES_H
#define LAYERS_NAMES_H

#include "layers/layers.h"

/* A layer whose name also stands for layers of another model. Everything is borrowed. */
struct names_clash {
    size_t model; /* its index in the catalogue */
    const char *layer;
    const struct layer_model *other;
};

struct names_clashes {
    struct names_clash *list; /* owned: free() */
    size_t count, capacity;
};

/* Returns the index of the first model of this name, or the number of models. */
size_t names_first(const struct layers_catalogue *catalogue, const char *name);

/* Lists all clashes of a catalogue into a list that is empty, by model. Returns false if there is
 * no memory. */
bool names_compare(const struct layers_catalogue *catalogue, struct names_clashes *clashes);

/* Returns a hash of the clashes [from, to); 0 if there are none. */
uint64_t names_hash(const struct names_clashes *clashes, size_t from, size_t to);

/* Refuses the layers of a model that are in the clashes [from, to). Nothing may use the model
 * yet. */
void names_refuse(const struct names_clashes *clashes, size_t from, size_t to,
                  struct layer_model *model);

#endif
