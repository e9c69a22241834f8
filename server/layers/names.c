/* names.c - see names.h. */
#include "layers/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
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

/* ------------------------------------------------------------------------------------- clashes */

static bool add_clash(struct names_clashes *clashes, size_t model, const struct layer *layer,
                      const struct layer_model *other) {
    struct names_clash *list =
        account_grow(NULL, clashes->list, &clashes->capacity, clashes->count + 1, sizeof *list);
    if (list == NULL) {
        return false;
    }
    clashes->list = list;
    clashes->list[clashes->count++] = (struct names_clash){model, layer->name, other};
    return true;
}

/* Adds those of some layers of a model whose names stand for layers of another model. */
static bool add_clashes(struct names_clashes *clashes, size_t model, const struct layer *layers,
                        size_t count, const struct layer_model *other) {
    for (size_t i = 0; i < count; i++) {
        size_t under;
        if ((layer_of(other, layers[i].name) != NULL ||
             layers_of(other, layers[i].name, &under) != NULL) &&
            !add_clash(clashes, model, &layers[i], other)) {
            return false;
        }
    }
    return true;
}

/* Compares two models. The name of `inner` begins with the name of `outer` and a dot, so only those
 * layers of `outer` can clash that begin with the name of `inner`. */
static bool compare_models(struct names_clashes *clashes, const struct layers_catalogue *catalogue,
                           size_t outer, size_t inner) {
    const struct layer_model *a = catalogue->models[outer], *b = catalogue->models[inner];
    size_t count;
    const struct layer *same = layer_of(a, b->name), *under = layers_of(a, b->name, &count);
    return (same == NULL || add_clashes(clashes, outer, same, 1, b)) &&
           (under == NULL || (add_clashes(clashes, outer, under, count, b) &&
                              add_clashes(clashes, inner, b->layers, b->count, a)));
}

static int by_model(const void *a, const void *b) {
    const struct names_clash *first = a, *second = b;
    const int layers = strcmp(first->layer, second->layer);
    return first->model != second->model ? (first->model < second->model ? -1 : 1)
           : layers != 0                 ? layers
                                         : strcmp(first->other->name, second->other->name);
}

bool names_compare(const struct layers_catalogue *catalogue, struct names_clashes *clashes) {
    for (size_t i = 0; i < catalogue->count; i++) {
        const char *name = catalogue->models[i]->name;
        for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
            char part[LAYERS_NAME + 1];
            snprintf(part, sizeof part, "%.*s", (int)(dot - name), name);
            const size_t outer = names_first(catalogue, part);
            if (outer < catalogue->count && !compare_models(clashes, catalogue, outer, i)) {
                return false;
            }
        }
    }
    if (clashes->count > 0) {
        qsort(clashes->list, clashes->count, sizeof *clashes->list, by_model);
    }
    return true;
}

static uint64_t hash_text(uint64_t hash, const char *text) {
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    return hash * UINT64_C(0x100000001b3);
}

uint64_t names_hash(const struct names_clashes *clashes, size_t from, size_t to) {
    uint64_t hash = 0;
    for (size_t i = from; i < to; i++) {
        hash = hash_text(hash_text(hash + 1, clashes->list[i].layer), clashes->list[i].other->name);
    }
    return hash;
}

void names_refuse(const struct names_clashes *clashes, size_t from, size_t to,
                  struct layer_model *model) {
    for (size_t i = from; i < to; i++) {
        const struct layer *layer = layer_of(model, clashes->list[i].layer);
        if (layer != NULL) {
            search_refuse(&model->layers[layer - model->layers],
                          "its name also stands for a layer of the model %.128s: one of the two "
                          "models needs another name",
                          clashes->list[i].other->name);
        }
    }
}
