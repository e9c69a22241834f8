/*
 * store.c - the catalogue of all models, which a thread keeps up to date, and the memory of packed
 * weights. A catalogue does not change; a new one takes the place of the old one, which lives until
 * the last request has given it back.
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
#include "layers/pack.h"

enum {
    PERIOD = 1,        /* seconds between two looks at the folder */
    MOST_FILES = 16384 /* files and folders that are taken; a look at so many takes some 50 ms */
};

struct layers {
    int folder;
    size_t memory; /* the most bytes of packed weights */
    void (*warn)(const char *text);
    pthread_t thread;
    pthread_mutex_t refresh; /* one refresh at a time, which uses `seen` */
    struct folder_seen seen;
    pthread_mutex_t mutex; /* guards the rest, and the members of models and packed weights that
                                layers.h and pack.h name */
    pthread_cond_t ended;
    bool ending;
    struct layers_catalogue *catalogue;
    size_t packed;                        /* bytes */
    struct layer_packed *newest, *oldest; /* all packed weights, by their last use */
};

/* ------------------------------------------------------------------------------- packed weights */

static void unlink_packed(struct layers *layers, struct layer_packed *p) {
    *(p->newer != NULL ? &p->newer->older : &layers->newest) = p->older;
    *(p->older != NULL ? &p->older->newer : &layers->oldest) = p->newer;
    p->newer = p->older = NULL;
}

static void link_newest(struct layers *layers, struct layer_packed *p) {
    p->older = layers->newest;
    *(p->older != NULL ? &p->older->newer : &layers->oldest) = p;
    layers->newest = p;
}

/* Frees packed weights that nothing uses. */
static void drop_packed(struct layers *layers, struct layer_packed *p) {
    struct layer *layer = &p->layer->model->layers[p->layer - p->layer->model->layers];
    unlink_packed(layers, p);
    layers->packed -= p->bytes;
    for (int dtype = 0; dtype < 2; dtype++) {
        layer->packed[dtype] = layer->packed[dtype] == p ? NULL : layer->packed[dtype];
    }
    pack_free(p);
}

/* Frees what was not used for the longest time, until `bytes` more fit. Frees nothing and returns
 * false if they cannot fit because of what is in use. */
static bool make_room(struct layers *layers, size_t bytes) {
    size_t used = 0;
    for (const struct layer_packed *p = layers->oldest; p != NULL; p = p->newer) {
        used += p->users > 0 ? p->bytes : 0;
    }
    if (used > layers->memory - bytes) {
        return false;
    }
    struct layer_packed *p = layers->oldest;
    while (p != NULL && layers->packed > layers->memory - bytes) {
        struct layer_packed *newer = p->newer;
        if (p->users == 0) {
            drop_packed(layers, p);
        }
        p = newer;
    }
    return true;
}

/* ----------------------------------------------------------------------------------- catalogues */

/* Gives up one use of a model. The last use frees it and its packed weights. */
static void leave_model(struct layers *layers, struct layer_model *model) {
    if (--model->users > 0) {
        return;
    }
    for (size_t i = 0; i < model->count; i++) {
        for (int dtype = 0; dtype < 2; dtype++) {
            if (model->layers[i].packed[dtype] != NULL) {
                drop_packed(layers, model->layers[i].packed[dtype]);
            }
        }
    }
    model_free(model);
}

static void leave_catalogue(struct layers *layers, struct layers_catalogue *catalogue) {
    if (catalogue == NULL || --catalogue->users > 0) {
        return;
    }
    for (size_t i = 0; i < catalogue->count; i++) {
        leave_model(layers, catalogue->models[i]);
    }
    free(catalogue->models);
    free(catalogue);
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

/* Returns a model of the old catalogue if its files have not changed, or reads it. */
static struct layer_model *find_or_read(struct layers *layers, const struct layers_catalogue *old,
                                        const struct model_source *source) {
    for (size_t i = names_first(old, source->name);
         i < old->count && strcmp(source->name, old->models[i]->name) == 0; i++) {
        if (old->models[i]->version == source->version) {
            return old->models[i];
        }
    }
    return model_read(layers->folder, source);
}

/* Returns whether two catalogues have the same models. */
static bool same(const struct layers_catalogue *a, const struct layers_catalogue *b) {
    return a->count == b->count &&
           (a->count == 0 ||
            memcmp(a->models, b->models, a->count * sizeof(struct layer_model *)) == 0);
}

/* Refuses the layers whose names stand for layers of two models. A layer does not change after it
 * was found, so a model of which other layers clash than before is read again. Returns false if
 * there is no memory. */
static bool settle_names(struct layers *layers, const struct model_source *sources,
                         struct layers_catalogue *made) {
    struct names_clashes clashes = {0};
    bool good = names_compare(made, &clashes);
    struct layer_model **again = calloc(made->count + 1, sizeof(struct layer_model *));
    good = good && again != NULL;
    for (size_t i = 0, at = 0, end; good && i < made->count; i++, at = end) {
        for (end = at; end < clashes.count && clashes.list[end].model == i; end++) {
        }
        const uint64_t hash = names_hash(&clashes, at, end);
        struct layer_model *model = made->models[i];
        if (model->clashes != hash) {
            again[i] = model->published ? model_read(layers->folder, &sources[i]) : model;
            good = again[i] != NULL;
        }
        if (again[i] != NULL) {
            names_refuse(&clashes, at, end, again[i]);
            again[i]->clashes = hash;
        }
    }
    for (size_t i = 0; again != NULL && i < made->count; i++) {
        made->models[i] = again[i] != NULL ? again[i] : made->models[i];
    }
    free(again);
    free(clashes.list);
    return good;
}

/* Frees a catalogue that nothing has used, and the models that were read for it. */
static void drop_made(struct layers_catalogue *made) {
    for (size_t i = 0; i < made->count; i++) {
        if (!made->models[i]->published) {
            model_free(made->models[i]);
        }
    }
    free(made->models);
    free(made);
}

/* Makes a catalogue of the models that there are now. Returns NULL if there is no memory, or if the
 * folder cannot be read. */
static struct layers_catalogue *make_catalogue(struct layers *layers,
                                               const struct layers_catalogue *old) {
    size_t count = 0;
    struct model_source *sources = folder_scan(layers->folder, MOST_FILES, &layers->seen, &count);
    struct layers_catalogue *made = calloc(1, sizeof *made);
    bool good = sources != NULL && made != NULL &&
                (made->models = calloc(count + 1, sizeof(struct layer_model *))) != NULL;
    for (size_t i = 0; good && i < count; i++) {
        struct layer_model *model = find_or_read(layers, old, &sources[i]);
        good = model != NULL;
        made->models[made->count] = model;
        made->count += good;
    }
    good = good && (same(old, made) || settle_names(layers, sources, made));
    free(sources);
    if (!good && made != NULL) {
        drop_made(made);
        made = NULL;
    }
    if (made != NULL) {
        made->users = 1;
    }
    return made;
}

/* Says in the log that files are left out, when this begins and when it changes. */
static void warn_of_limit(const struct layers *layers, const struct layers_catalogue *old,
                          const struct layers_catalogue *made) {
    const struct layer_model *line = layers_find_model(made, FOLDER_LINE);
    char text[LAYERS_REASON + 32];
    if (line != NULL && layers->warn != NULL && line != layers_find_model(old, FOLDER_LINE)) {
        snprintf(text, sizeof text, "the folder of --layers: %s", line->reason);
        layers->warn(text);
    }
}

void layers_refresh(struct layers *layers) {
    pthread_mutex_lock(&layers->refresh);
    const struct layers_catalogue *old = layers_take(layers);
    struct layers_catalogue *made = make_catalogue(layers, old);
    if (made != NULL) {
        warn_of_limit(layers, old, made);
    }
    pthread_mutex_lock(&layers->mutex);
    for (size_t i = 0; made != NULL && i < made->count; i++) {
        made->models[i]->users++;
        made->models[i]->published = true;
    }
    if (made != NULL && !same(old, made)) {
        leave_catalogue(layers, layers->catalogue);
        layers->catalogue = made;
    } else {
        leave_catalogue(layers, made);
    }
    pthread_mutex_unlock(&layers->mutex);
    layers_give(layers, old);
    pthread_mutex_unlock(&layers->refresh);
}

/* Looks at the folder from time to time. */
static void *watch(void *argument) {
    struct layers *layers = argument;
    pthread_mutex_lock(&layers->mutex);
    while (!layers->ending) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += PERIOD;
        pthread_cond_timedwait(&layers->ended, &layers->mutex, &until);
        if (!layers->ending) {
            pthread_mutex_unlock(&layers->mutex);
            layers_refresh(layers);
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
    layers->memory = options->memory;
    layers->warn = options->warn;
    layers->catalogue = none;
    none->users = 1;
    pthread_mutex_init(&layers->refresh, NULL);
    pthread_mutex_init(&layers->mutex, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&layers->ended, &attributes);
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
    pthread_cond_signal(&layers->ended);
    pthread_mutex_unlock(&layers->mutex);
    if (started) {
        pthread_join(layers->thread, NULL);
    }
    leave_catalogue(layers, layers->catalogue);
    pthread_mutex_destroy(&layers->refresh);
    pthread_mutex_destroy(&layers->mutex);
    pthread_cond_destroy(&layers->ended);
    close(layers->folder);
    folder_forget(&layers->seen);
    free(layers);
}

void layers_unload(struct layers *layers, const struct layer *layer) {
    pthread_mutex_lock(&layers->mutex);
    for (int dtype = 0; dtype < 2; dtype++) {
        struct layer_packed *packed = layer->packed[dtype];
        if (packed != NULL && packed->users == 0) {
            drop_packed(layers, packed);
        } else if (packed != NULL) {
            packed->unwanted = true;
        }
    }
    pthread_mutex_unlock(&layers->mutex);
}

size_t layers_memory(const struct layers *layers) {
    return layers->memory;
}

struct layers_load layers_load(struct layers *layers) {
    const struct layers_catalogue *catalogue = layers_take(layers);
    struct layers_load load = {0};
    for (size_t i = 0; i < catalogue->count; i++) {
        const struct layer_model *model = catalogue->models[i];
        load.refused += model->reason[0] != '\0';
        for (size_t k = 0; k < model->count; k++) {
            const bool refused = model->layers[k].reason[0] != '\0';
            load.refused += refused;
            load.layers += !refused;
        }
    }
    pthread_mutex_lock(&layers->mutex);
    load.packed = layers->packed;
    pthread_mutex_unlock(&layers->mutex);
    layers_give(layers, catalogue);
    return load;
}

/* -------------------------------------------------------------------------------- using a layer */

enum layer_status layer_begin(struct layers *layers, const struct layer *layer, attn_dtype dtype,
                              struct layer_use *use) {
    struct layer *own = &layer->model->layers[layer - layer->model->layers];
    const size_t bytes = layer_packed_bytes(layer, dtype);
    enum layer_status status = LAYER_OK;
    if (bytes > layers->memory) {
        return LAYER_BUSY;
    }
    pthread_mutex_lock(&layers->mutex);
    struct layer_packed *packed = own->packed[dtype];
    if (packed != NULL && pack_has_failed(packed)) { /* its last user frees it */
        own->packed[dtype] = packed = NULL;
    }
    if (packed != NULL) {
        packed->unwanted = false;
        unlink_packed(layers, packed);
    } else if (!make_room(layers, bytes)) {
        status = LAYER_BUSY;
    } else if ((packed = pack_new(layer, dtype)) == NULL) {
        status = LAYER_NO_MEMORY;
    } else {
        own->packed[dtype] = packed;
        layers->packed += bytes;
    }
    if (packed != NULL) {
        link_newest(layers, packed);
        packed->users++;
        own->model->users++;
        *use = (struct layer_use){.layer = layer, .packed = packed};
        memcpy(use->tensors, packed->tensors, sizeof use->tensors);
    }
    pthread_mutex_unlock(&layers->mutex);
    return status;
}

void layer_end(struct layers *layers, struct layer_use *use) {
    struct layer_packed *packed = use->packed;
    if (packed == NULL) {
        return;
    }
    struct layer_model *model = packed->layer->model;
    pthread_mutex_lock(&layers->mutex);
    packed->users--;
    if (packed->users == 0 && (packed->failed || packed->unwanted)) { /* the next use reads anew */
        drop_packed(layers, packed);
    }
    leave_model(layers, model);
    pthread_mutex_unlock(&layers->mutex);
    *use = (struct layer_use){0};
}
