/* names.c - see names.h. */
#include "layers/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/search.h"

/* ---------------------------------------------------------------------------------- in a model */

static int by_layer(const void *key, const void *layer) {
    return search_compare(key, ((const struct layer *)layer)->name);
}

/* Returns the layer of a model with this name, or NULL. */
static const struct layer *layer_of(const struct layer_model *model, const char *name) {
    return model->count == 0
               ? NULL
               : bsearch(name, model->layers, model->count, sizeof *model->layers, by_layer);
}

static bool is_under(const char *layer, const char *name, size_t size) {
    return strncmp(layer, name, size) == 0 && layer[size] == '.';
}

/* Returns the first layer of a model whose name begins with `name` and a dot, and how many there
 * are. They follow one another, because the dot ends a number. Returns NULL if there is none. */
static const struct layer *layers_of(const struct layer_model *model, const char *name,
                                     size_t *count) {
    char dotted[LAYERS_NAME + 2];
    const size_t size = strlen(name);
    *count = 0;
    if (size >= LAYERS_NAME) {
        return NULL;
    }
    snprintf(dotted, sizeof dotted, "%s.", name);
    const size_t low =
        search_first(dotted, model->layers, model->count, sizeof *model->layers, by_layer);
    while (low + *count < model->count && is_under(model->layers[low + *count].name, name, size)) {
        ++*count;
    }
    return *count == 0 ? NULL : &model->layers[low];
}

/* ------------------------------------------------------------------------------ in a catalogue */

static int by_model_name(const void *key, const void *model) {
    return strcmp(key, (*(struct layer_model *const *)model)->name);
}

size_t names_first(const struct layers_catalogue *catalogue, const char *name) {
    const size_t index = search_first(name, catalogue->models, catalogue->count,
                                      sizeof(struct layer_model *), by_model_name);
    const bool found =
        index < catalogue->count && strcmp(catalogue->models[index]->name, name) == 0;
    return found ? index : catalogue->count;
}

/* If several models have one name, all are refused. */
const struct layer_model *layers_find_model(const struct layers_catalogue *catalogue,
                                            const char *name) {
    const size_t index = names_first(catalogue, name);
    return index == catalogue->count ? NULL : catalogue->models[index];
}

/* Returns the model whose name is the first `size` bytes of a name, or NULL. */
static const struct layer_model *model_before(const struct layers_catalogue *catalogue,
                                              const char *name, size_t size) {
    char part[LAYERS_NAME + 1];
    if (size == 0 || size > LAYERS_NAME) {
        return NULL;
    }
    snprintf(part, sizeof part, "%.*s", (int)size, name);
    return layers_find_model(catalogue, part);
}

/* The name of a model may have dots, so every part of the name before a dot may be a model. If two
 * models have the layer, both layers are refused, and either says so. */
const struct layer *layers_find(const struct layers_catalogue *catalogue, const char *name) {
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        const struct layer_model *model = model_before(catalogue, name, (size_t)(dot - name));
        const struct layer *layer = model == NULL ? NULL : layer_of(model, name);
        if (layer != NULL) {
            return layer;
        }
    }
    return NULL;
}

/* Only models count whose names are the name up to a dot, or all of it. */
const struct layer_model *names_rival(const struct layers_catalogue *catalogue,
                                      const struct layer *layer) {
    const char *name = layer->name;
    for (size_t end = 1; name[end - 1] != '\0'; end++) {
        const struct layer_model *model =
            name[end] != '.' && name[end] != '\0' ? NULL : model_before(catalogue, name, end);
        size_t count;
        if (model != NULL && model != layer->model &&
            (layer_of(model, name) != NULL || layers_of(model, name, &count) != NULL)) {
            return model;
        }
    }
    return NULL;
}

const struct layer *layers_under(const struct layers_catalogue *catalogue, const char *name,
                                 size_t *count, const struct layer_model **other) {
    const size_t size = strlen(name);
    const struct layer *first = NULL;
    *count = 0;
    *other = NULL;
    for (size_t end = 1; end <= size && *other == NULL; end++) {
        const struct layer_model *model =
            name[end] != '.' && name[end] != '\0' ? NULL : model_before(catalogue, name, end);
        size_t found = 0;
        const struct layer *some = model == NULL ? NULL : layers_of(model, name, &found);
        if (first != NULL && some != NULL) {
            *other = model;
        } else if (some != NULL) {
            first = some;
            *count = found;
        }
    }
    return first;
}
