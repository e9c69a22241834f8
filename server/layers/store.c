/*
 * store.c - the catalogue of all models, and the use of layers. A catalogue does not change; a new
 * one takes the place of the old one, which lives until the last request has given it back. A
 * thread looks at the folder, and frees what nothing uses any more, so no request waits for either.
 */
#include "layers/layers.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/model.h"
#include "layers/names.h"
#include "layers/packed_cache.h"
#include "layers/search.h"

enum {
    PERIOD = 1,              /* seconds between two scans of the folder */
    DESCRIPTIONS = 64 << 20, /* bytes of all models and layers of a catalogue */
    MOST_FILES = 16384       /* a scan of so many takes some 50 ms */
};

struct layers {
    int folder;
    size_t most;  /* bytes of a catalogue */
    size_t files; /* the most that are taken */
    void (*warn)(const char *text);
    pthread_t thread;
    pthread_mutex_t refresh; /* one refresh at a time, which uses `seen` */
    struct folder_seen seen;
    pthread_mutex_t mutex;  /* guards the rest, and the members of models and packed weights that
                                layers.h and pack.h name */
    pthread_cond_t changed; /* `ending`, or there is something to free */
    bool ending;
    struct layers_catalogue *catalogue;
    struct packed_cache cache;
    struct layers_catalogue *dead_catalogues; /* lists of what nothing uses any more */
    struct layer_model *dead_models;
};

/* ----------------------------------------------------------------------------------- catalogues */

/* Gives up one use of a model. Nothing frees it here, because it may have thousands of layers: the
 * thread of the store does so. */
static void leave_model(struct layers *layers, struct layer_model *model) {
    if (--model->users == 0) {
        model->next = layers->dead_models;
        layers->dead_models = model;
        pthread_cond_signal(&layers->changed);
    }
}

/* Does the same with a catalogue. */
static void leave_catalogue(struct layers *layers, struct layers_catalogue *catalogue) {
    if (--catalogue->users == 0) {
        catalogue->next = layers->dead_catalogues;
        layers->dead_catalogues = catalogue;
        pthread_cond_signal(&layers->changed);
    }
}

/* Drops the packed weights of a model that nothing uses, and frees the model. Holds the mutex for
 * one layer at a time. */
static void end_model(struct layers *layers, struct layer_model *model) {
    for (size_t i = 0; i < model->count; i++) {
        pthread_mutex_lock(&layers->mutex);
        for (int dtype = 0; dtype < 2; dtype++) {
            if (model->layers[i].packed[dtype] != NULL) {
                packed_cache_drop(&layers->cache, model->layers[i].packed[dtype]);
            }
        }
        pthread_mutex_unlock(&layers->mutex);
    }
    model_free(model);
}

static void free_catalogue(struct layers_catalogue *catalogue) {
    for (size_t i = 0; i < catalogue->entry_count; i++) {
        const struct layers_entry *entry = &catalogue->entries[i];
        if (entry->layer != NULL && entry->reason != entry->layer->reason) {
            free((char *)(uintptr_t)entry->reason);
        }
    }
    free(catalogue->models);
    free(catalogue->entries);
    free(catalogue);
}

static void end_catalogue(struct layers *layers, struct layers_catalogue *catalogue) {
    for (size_t i = 0; i < catalogue->count; i++) {
        pthread_mutex_lock(&layers->mutex);
        leave_model(layers, catalogue->models[i]);
        pthread_mutex_unlock(&layers->mutex);
    }
    free_catalogue(catalogue);
}

/* Frees a part of what nothing uses. Releases the mutex meanwhile, which the caller holds. Returns
 * false if there is nothing. */
static bool free_some(struct layers *layers) {
    struct layers_catalogue *catalogue = layers->dead_catalogues;
    struct layer_model *model = layers->dead_models;
    if (catalogue != NULL) {
        layers->dead_catalogues = catalogue->next;
    } else if (model != NULL) {
        layers->dead_models = model->next;
    } else {
        return packed_cache_free_chunk(&layers->cache, &layers->mutex);
    }
    pthread_mutex_unlock(&layers->mutex);
    if (catalogue != NULL) {
        end_catalogue(layers, catalogue);
    } else {
        end_model(layers, model);
    }
    pthread_mutex_lock(&layers->mutex);
    return true;
}

const struct layers_catalogue *layers_take(struct layers *layers) {
    pthread_mutex_lock(&layers->mutex);
    struct layers_catalogue *catalogue = layers->catalogue;
    catalogue->users++;
    pthread_mutex_unlock(&layers->mutex);
    return catalogue;
}

void layers_give(struct layers *layers, const struct layers_catalogue *catalogue) {
    pthread_mutex_lock(&layers->mutex);
    leave_catalogue(layers, (struct layers_catalogue *)(uintptr_t)catalogue);
    pthread_mutex_unlock(&layers->mutex);
}

/* ---------------------------------------------------------------------------------- the refresh */

/* Returns the model of a source in the old catalogue if its files have not changed, else NULL. With
 * `changed` it is the model of the source's name that has layers. */
static struct layer_model *find_old(const struct layers_catalogue *old,
                                    const struct model_source *source, bool changed) {
    for (size_t i = names_first(old, source->name);
         i < old->count && strcmp(source->name, old->models[i]->name) == 0; i++) {
        struct layer_model *model = old->models[i];
        if (changed ? model->count > 0 : model->version == source->version) {
            return model;
        }
    }
    return NULL;
}

static size_t bytes_of(const struct layer_model *model) {
    return sizeof *model + model->count * (sizeof *model->layers + sizeof(struct layers_entry)) +
           model->shard_count * sizeof *model->shards +
           model->factor_count * sizeof *model->factors + model->ignored_size;
}

/* Takes the bytes of a model from the room of a catalogue. */
static void take_room(size_t *room, const struct layer_model *model) {
    const size_t bytes = bytes_of(model);
    *room -= bytes < *room ? bytes : *room;
}

/* Reads a model. If it takes more than the room, only its name and the reason stay. */
static struct layer_model *read_within(const struct layers *layers,
                                       const struct model_source *source, size_t *room) {
    struct layer_model *model = model_read(layers->folder, source);
    if (model != NULL && model->count > 0 && bytes_of(model) > *room) {
        model->left_out = bytes_of(model);
        model_strip(model);
        snprintf(model->reason, sizeof model->reason,
                 "its layers take %zu bytes, and only %zu of the %zu bytes for the descriptions of "
                 "all layers are left; remove other files, or files of many small layers",
                 model->left_out, *room, layers->most);
    } else if (model != NULL) {
        take_room(room, model);
    }
    return model;
}

/* Finds the models of all sources. Those of the old catalogue stay, and then others are read as
 * long as there is room. One that cannot be read now, perhaps because its file is replaced
 * meanwhile, stays as it was until it can. Returns false if there is no memory. */
static bool find_models(struct layers *layers, const struct layers_catalogue *old,
                        const struct model_source *sources, size_t count,
                        struct layers_catalogue *made) {
    size_t room = layers->most;
    for (size_t i = 0; i < count; i++) {
        made->models[i] = find_old(old, &sources[i], false);
        if (made->models[i] != NULL && made->models[i]->left_out == 0) {
            take_room(&room, made->models[i]);
        }
    }
    for (; made->count < count; made->count++) {
        struct layer_model **model = &made->models[made->count];
        if (*model == NULL || ((*model)->left_out > 0 && (*model)->left_out <= room)) {
            *model = read_within(layers, &sources[made->count], &room);
        }
        if (*model == NULL) {
            return false;
        }
        struct layer_model *before = (*model)->version != 0 || (*model)->published
                                         ? NULL
                                         : find_old(old, &sources[made->count], true);
        if (before != NULL) {
            model_free(*model);
            *model = before;
            take_room(&room, before);
        }
    }
    return true;
}

/* Returns whether two catalogues have the same models. */
static bool same(const struct layers_catalogue *a, const struct layers_catalogue *b) {
    return a->count == b->count &&
           (a->count == 0 ||
            memcmp(a->models, b->models, a->count * sizeof(struct layer_model *)) == 0);
}

/* Frees a catalogue that nothing has used, and the models that were read for it. */
static void drop_made(struct layers_catalogue *made) {
    for (size_t i = 0; i < made->count; i++) {
        if (!made->models[i]->published) {
            model_free(made->models[i]);
        }
    }
    free_catalogue(made);
}

const char *layers_entry_name(const struct layers_entry *entry) {
    return entry->layer != NULL ? entry->layer->name : entry->model->name;
}

static int by_entry(const void *a, const void *b) {
    const int order = search_compare(layers_entry_name(a), layers_entry_name(b));
    return order != 0 ? order
                      : strcmp(((const struct layers_entry *)a)->model->file,
                               ((const struct layers_entry *)b)->model->file);
}

/* Adds the entry of a layer. A layer does not change after it was found, but whether another model
 * has its name does. Returns false if there is no memory. */
static bool add_layer(struct layers_catalogue *made, const struct layer *layer) {
    const struct layer_model *rival = layer->reason[0] == '\0' ? names_rival(made, layer) : NULL;
    char *reason = rival == NULL ? NULL : malloc(LAYERS_REASON);
    if (reason != NULL) {
        snprintf(reason, LAYERS_REASON,
                 "its name also stands for a layer of the model %.128s: one of the two models "
                 "needs another name",
                 rival->name);
    }
    made->entries[made->entry_count++] =
        (struct layers_entry){layer->model, layer, reason != NULL ? reason : layer->reason};
    return rival == NULL || reason != NULL;
}

/* Lists the entries of a catalogue, and counts them. Returns false if there is no memory. */
static bool list_entries(struct layers_catalogue *made) {
    size_t most = made->count;
    for (size_t i = 0; i < made->count; i++) {
        most += made->models[i]->count;
    }
    made->entries = calloc(most + 1, sizeof *made->entries);
    bool good = made->entries != NULL;
    for (size_t i = 0; good && i < made->count; i++) {
        const struct layer_model *model = made->models[i];
        made->left_out += model->left_out > 0;
        if (model->reason[0] != '\0') {
            made->entries[made->entry_count++] = (struct layers_entry){model, NULL, model->reason};
        }
        for (size_t k = 0; good && k < model->count; k++) {
            good = add_layer(made, &model->layers[k]);
        }
    }
    for (size_t i = 0; i < made->entry_count; i++) {
        made->refused += made->entries[i].reason[0] != '\0';
    }
    if (good) {
        qsort(made->entries, made->entry_count, sizeof *made->entries, by_entry);
    }
    return good;
}

static int by_entry_name(const void *name, const void *entry) {
    return search_compare(name, layers_entry_name(entry));
}

const char *layers_reason(const struct layers_catalogue *catalogue, const struct layer *layer) {
    const struct layers_entry *entry =
        catalogue->entries + search_first(layer->name, catalogue->entries, catalogue->entry_count,
                                          sizeof *entry, by_entry_name);
    while (entry->layer != layer) {
        entry++;
    }
    return entry->reason;
}

/* Compares a name with an entry. The entries of this name count as before it. */
static int by_later_name(const void *name, const void *entry) {
    return search_compare(name, layers_entry_name(entry)) >= 0 ? 1 : -1;
}

size_t layers_after(const struct layers_catalogue *catalogue, const char *name) {
    return search_first(name, catalogue->entries, catalogue->entry_count,
                        sizeof *catalogue->entries, by_later_name);
}

/* Makes a catalogue of the models that there are now. Returns NULL if there is no memory, if the
 * folder cannot be read, or if the models are those of the old catalogue. */
static struct layers_catalogue *make_catalogue(struct layers *layers,
                                               const struct layers_catalogue *old) {
    size_t count = 0;
    struct model_source *sources =
        folder_scan(layers->folder, layers->files, &layers->seen, &count);
    struct layers_catalogue *made = calloc(1, sizeof *made);
    const bool good = sources != NULL && made != NULL &&
                      (made->models = calloc(count + 1, sizeof(struct layer_model *))) != NULL &&
                      find_models(layers, old, sources, count, made) && !same(old, made) &&
                      list_entries(made);
    free(sources);
    if (!good && made != NULL) {
        drop_made(made);
        made = NULL;
    }
    return made;
}

/* Says in the log that files are left out, when this begins and when it changes. */
static void warn_of_limits(const struct layers *layers, const struct layers_catalogue *old,
                           const struct layers_catalogue *made) {
    const struct layer_model *line = layers_find_model(made, FOLDER_LINE);
    char text[LAYERS_REASON + 32];
    if (layers->warn == NULL) {
        return;
    }
    if (line != NULL && line != layers_find_model(old, FOLDER_LINE)) {
        snprintf(text, sizeof text, "the folder of --layers: %s", line->reason);
        layers->warn(text);
    }
    if (made->left_out > 0 && made->left_out != old->left_out) {
        snprintf(text, sizeof text,
                 "the folder of --layers: the layers of %zu files are not served, because the "
                 "descriptions of all layers would take more than %zu bytes",
                 made->left_out, layers->most);
        layers->warn(text);
    }
}

void layers_refresh(struct layers *layers) {
    pthread_mutex_lock(&layers->refresh);
    const struct layers_catalogue *old = layers_take(layers);
    struct layers_catalogue *made = make_catalogue(layers, old);
    if (made != NULL) {
        warn_of_limits(layers, old, made);
        made->users = 1;
        pthread_mutex_lock(&layers->mutex);
        for (size_t i = 0; i < made->count; i++) {
            made->models[i]->users++;
            made->models[i]->published = true;
        }
        leave_catalogue(layers, layers->catalogue);
        layers->catalogue = made;
        pthread_mutex_unlock(&layers->mutex);
    }
    layers_give(layers, old);
    pthread_mutex_unlock(&layers->refresh);
}

/* Looks at the folder from time to time, and frees what nothing uses meanwhile. */
static void *watch(void *argument) {
    struct layers *layers = argument;
    struct timespec next_scan;
    clock_gettime(CLOCK_MONOTONIC, &next_scan);
    next_scan.tv_sec += PERIOD;
    pthread_mutex_lock(&layers->mutex);
    while (!layers->ending) {
        if (!free_some(layers) && !layers->ending &&
            pthread_cond_timedwait(&layers->changed, &layers->mutex, &next_scan) == ETIMEDOUT) {
            pthread_mutex_unlock(&layers->mutex);
            layers_refresh(layers);
            clock_gettime(CLOCK_MONOTONIC, &next_scan);
            next_scan.tv_sec += PERIOD;
            pthread_mutex_lock(&layers->mutex);
        }
    }
    pthread_mutex_unlock(&layers->mutex);
    return NULL;
}

struct layers *layers_open(const struct layers_options *options,
                           char reason[static LAYERS_REASON]) {
    struct layers *layers = calloc(1, sizeof *layers);
    struct layers_catalogue *none = calloc(1, sizeof *none);
    int folder = -1;
    if (layers == NULL || none == NULL) {
        snprintf(reason, LAYERS_REASON, "there is no memory");
    } else if ((folder = open(options->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        snprintf(reason, LAYERS_REASON, "%.150s: %s", options->folder, strerror(errno));
    }
    if (folder < 0) {
        free(layers);
        free(none);
        return NULL;
    }
    layers->folder = folder;
    layers->cache.most = options->memory;
    layers->most = options->descriptions > 0 ? options->descriptions : DESCRIPTIONS;
    layers->files = options->files > 0 ? options->files : MOST_FILES;
    layers->warn = options->warn;
    layers->catalogue = none;
    none->users = 1;
    pthread_mutex_init(&layers->refresh, NULL);
    pthread_mutex_init(&layers->mutex, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&layers->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    layers_refresh(layers);
    const int error = pthread_create(&layers->thread, NULL, watch, layers);
    if (error != 0) {
        snprintf(reason, LAYERS_REASON, "a thread cannot be started: %s", strerror(error));
        layers->ending = true;
        layers_close(layers);
        return NULL;
    }
    return layers;
}

void layers_close(struct layers *layers) {
    if (layers == NULL) {
        return;
    }
    pthread_mutex_lock(&layers->mutex);
    const bool started = !layers->ending;
    layers->ending = true;
    pthread_cond_signal(&layers->changed);
    pthread_mutex_unlock(&layers->mutex);
    if (started) {
        pthread_join(layers->thread, NULL);
    }
    pthread_mutex_lock(&layers->mutex);
    leave_catalogue(layers, layers->catalogue);
    while (free_some(layers)) {
    }
    pthread_mutex_unlock(&layers->mutex);
    pthread_mutex_destroy(&layers->refresh);
    pthread_mutex_destroy(&layers->mutex);
    pthread_cond_destroy(&layers->changed);
    close(layers->folder);
    folder_forget(&layers->seen);
    free(layers);
}

void layers_unload(struct layers *layers, const struct layer *layer) {
    pthread_mutex_lock(&layers->mutex);
    for (int dtype = 0; dtype < 2; dtype++) {
        struct layer_packed *packed = layer->packed[dtype];
        if (packed != NULL && packed->users == 0) {
            packed_cache_drop(&layers->cache, packed);
            pthread_cond_signal(&layers->changed);
        } else if (packed != NULL) {
            packed->unwanted = true;
        }
    }
    pthread_mutex_unlock(&layers->mutex);
}

size_t layers_memory(const struct layers *layers) {
    return layers->cache.most;
}

void layers_free_chunk(struct layers *layers) {
    pthread_mutex_lock(&layers->mutex);
    packed_cache_free_chunk(&layers->cache, &layers->mutex);
    pthread_mutex_unlock(&layers->mutex);
}

struct layers_load layers_load(struct layers *layers) {
    pthread_mutex_lock(&layers->mutex);
    const struct layers_catalogue *catalogue = layers->catalogue;
    const struct packed_cache *cache = &layers->cache;
    const struct layers_load load = {.layers = catalogue->entry_count - catalogue->refused,
                                     .refused = catalogue->refused,
                                     .packed = cache->used + cache->kept + cache->dropped};
    pthread_mutex_unlock(&layers->mutex);
    return load;
}

/* -------------------------------------------------------------------------------- using a layer */

enum layer_status layer_begin(struct layers *layers, const struct layer *layer, attn_dtype dtype,
                              struct layer_use *use) {
    struct layer *own = &layer->model->layers[layer - layer->model->layers];
    const size_t bytes = layer_packed_bytes(layer, dtype);
    enum layer_status status = LAYER_OK;
    pthread_mutex_lock(&layers->mutex);
    struct layer_packed *packed = own->packed[dtype];
    if (packed != NULL && pack_has_failed(packed)) { /* its last user frees it */
        own->packed[dtype] = packed = NULL;
    }
    if (packed != NULL) {
        packed->unwanted = false;
        if (packed->users == 0) {
            packed_cache_reuse(&layers->cache, packed);
        }
    } else if (!packed_cache_make_room(&layers->cache, bytes)) {
        status = LAYER_BUSY;
    } else if ((packed = pack_new(layer, dtype)) == NULL) {
        layers->cache.used -= bytes;
        status = LAYER_NO_MEMORY;
    } else {
        own->packed[dtype] = packed;
    }
    if (packed != NULL) {
        packed->users++;
        own->model->users++;
        *use = (struct layer_use){.layer = layer, .packed = packed};
        memcpy(use->tensors, packed->tensors, sizeof use->tensors);
    }
    pthread_mutex_unlock(&layers->mutex);
    return status;
}

void layer_give_weights(struct layers *layers, struct layer_use *use) {
    struct layer_packed *packed = use->packed;
    if (packed == NULL) {
        return;
    }
    use->packed = NULL;
    pthread_mutex_lock(&layers->mutex);
    packed->users--;
    if (packed->users == 0) {
        packed_cache_keep(&layers->cache, packed);
    }
    if (packed->users == 0 && (packed->failed || packed->unwanted)) { /* the next use reads anew */
        packed_cache_drop(&layers->cache, packed);
        pthread_cond_signal(&layers->changed);
    }
    pthread_mutex_unlock(&layers->mutex);
}

void layer_end(struct layers *layers, struct layer_use *use) {
    if (use->layer == NULL) {
        return;
    }
    layer_give_weights(layers, use);
    pthread_mutex_lock(&layers->mutex);
    leave_model(layers, use->layer->model);
    pthread_mutex_unlock(&layers->mutex);
    *use = (struct layer_use){0};
}
