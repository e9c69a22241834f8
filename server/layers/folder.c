/*
 * folder.c - see folder.h. A scan lists the folder and the folders in it, sorts the names, and
 * finds by two searches in them which files an index may name. So its time grows with the number of
 * files and with the bytes of their names. The file system is asked once for each file.
 */
#define _DEFAULT_SOURCE /* d_type */
#include "layers/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account.h"
#include "layers/search.h"
#include "layers/shard.h"

static const char config_name[] = "config.json";

/* Endings of files of weights that are not read, and what they are. */
static const struct {
    const char *ending, *form;
} others[] = {
    {".gguf", "a file of llama.cpp"},
    {".bin", "a pickle of PyTorch, which may run code"},
    {".pt", "a pickle of PyTorch, which may run code"},
    {".pth", "a pickle of PyTorch, which may run code"},
    {".ckpt", "a checkpoint of a training program"},
    {".h5", "a file of Keras"},
    {".msgpack", "a file of Flax"},
};

/* The kinds of names that a model may need. Other files are not looked at. */
enum kind {
    KIND_NONE,
    KIND_INDEX,
    KIND_CONFIG,
    KIND_TENSORS,
    KIND_OTHER, /* weights in a form that is not read */
    KIND_FOLDER /* perhaps */
};

/* A name in the folder, or in a folder in it. */
struct entry {
    char *path;    /* owned; inside the folder */
    size_t inside; /* bytes of the path before the name: a folder and a slash, or 0 */
    enum kind kind;
    bool seen;        /* by the last scan, too */
    bool shard;       /* an index in the same folder may name it */
    uint64_t version; /* a hash of what the file system says of it; no folder has one */
};

/* One scan of the folder. */
struct scan {
    int folder;
    size_t most;
    const struct folder_seen *seen;
    struct entry *entries;
    size_t count;
    size_t left_out; /* entries that were not taken */
    struct model_source *sources;
    size_t source_count, source_capacity;
};

/* ---------------------------------------------------------------------------------- the listing */

/* Returns what a file of weights is that is not read, or NULL. */
static const char *form_of_name(const char *name) {
    static const char *const training[] = {"optimizer", "scheduler", "scaler", "rng_state",
                                           "training_args"};
    for (size_t i = 0; i < sizeof training / sizeof *training; i++) {
        if (strncmp(name, training[i], strlen(training[i])) == 0) {
            return NULL; /* what a trainer leaves beside weights */
        }
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (shard_stem(name, others[i].ending) > 0) {
            return others[i].form;
        }
    }
    return NULL;
}

static enum kind kind_of_entry(const struct dirent *entry, bool top) {
    const char *name = entry->d_name;
    if (name[0] == '.') { /* hidden files, too */
        return KIND_NONE;
    }
    if (shard_stem(name, SHARD_INDEX) > 0) {
        return KIND_INDEX;
    }
    if (strcmp(name, config_name) == 0 || shard_stem(name, ".config.json") > 0) {
        return KIND_CONFIG;
    }
    if (shard_stem(name, SHARD_ENDING) > 0) {
        return KIND_TENSORS;
    }
    if (form_of_name(name) != NULL) {
        return KIND_OTHER;
    }
    return top && (entry->d_type == DT_DIR || entry->d_type == DT_LNK ||
                   entry->d_type == DT_UNKNOWN)
               ? KIND_FOLDER
               : KIND_NONE;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts entries by their right to be taken. Those of the last scan come first. New settings come
 * before new tensors, which would be read in another way without them. */
static int by_rank(const void *a, const void *b) {
    const struct entry *first = a, *second = b;
    if (first->seen != second->seen) {
        return first->seen ? -1 : 1;
    }
    const bool tensors = first->kind >= KIND_TENSORS;
    if (tensors != (second->kind >= KIND_TENSORS)) {
        return tensors ? 1 : -1;
    }
    return strcmp(first->path, second->path);
}

/* Sorts by folder and then by name. The folder of all models comes first. */
static int by_place(const void *a, const void *b) {
    const struct entry *first = a, *second = b;
    const size_t inside = first->inside < second->inside ? first->inside : second->inside;
    const int folders = memcmp(first->path, second->path, inside);
    if (folders != 0 || first->inside != second->inside) {
        return folders != 0 ? folders : first->inside < second->inside ? -1 : 1;
    }
    return strcmp(first->path + inside, second->path + inside);
}

/* Leaves out all entries but the first ones by rank. */
static void cut(struct scan *scan) {
    if (scan->count > scan->most) {
        qsort(scan->entries, scan->count, sizeof *scan->entries, by_rank);
    }
    while (scan->count > scan->most) {
        free(scan->entries[--scan->count].path);
        scan->left_out++;
    }
}

/* Lists a folder, whose path with a slash is `inside`. Takes the descriptor. Returns false if there
 * is no memory or the folder cannot be read. */
static bool list_folder(struct scan *scan, int fd, const char *inside) {
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *found;
    bool good = stream != NULL;
    if (stream == NULL && fd >= 0) {
        close(fd);
    }
    while (good && (errno = 0, found = readdir(stream)) != NULL) {
        const enum kind kind = kind_of_entry(found, inside[0] == '\0');
        if (kind == KIND_NONE) {
            continue;
        }
        if (scan->count == 2 * scan->most) {
            cut(scan);
        }
        const size_t before = strlen(inside), size = strlen(found->d_name) + 1;
        char *path = malloc(before + size);
        good = path != NULL;
        if (good) {
            memcpy(path, inside, before);
            memcpy(path + before, found->d_name, size);
            scan->entries[scan->count++] =
                (struct entry){.path = path,
                               .inside = before,
                               .kind = kind,
                               .seen = scan->seen->count > 0 &&
                                       bsearch(&path, scan->seen->paths, scan->seen->count,
                                               sizeof(char *), by_text) != NULL};
        }
    }
    if (stream != NULL) {
        good = good && errno == 0;
        closedir(stream);
    }
    return good;
}

static uint64_t mix(uint64_t hash, uint64_t number) {
    return (hash ^ number) * UINT64_C(0x100000001b3);
}

static uint64_t version_of(int folder, const char *path) {
    uint64_t version = 1;
    struct stat s;
    if (fstatat(folder, path, &s, 0) == 0) {
        version = mix(mix(mix(version, s.st_dev), s.st_ino), (uint64_t)s.st_size);
        version = mix(mix(version, (uint64_t)s.st_mtim.tv_sec), (uint64_t)s.st_mtim.tv_nsec);
        version = mix(mix(version, (uint64_t)s.st_ctim.tv_sec), (uint64_t)s.st_ctim.tv_nsec);
    }
    return version;
}

/* Lists the folder and the folders in it. */
static bool list_all(struct scan *scan) {
    bool good =
        list_folder(scan, openat(scan->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "");
    cut(scan);
    char **folders = calloc(scan->count + 1, sizeof *folders);
    size_t count = 0;
    good = good && folders != NULL;
    for (size_t i = 0; good && i < scan->count; i++) {
        if (scan->entries[i].kind == KIND_FOLDER) {
            good = (folders[count] = strdup(scan->entries[i].path)) != NULL;
            count += good;
        }
    }
    for (size_t i = 0; i < count; i++) {
        char inside[FOLDER_PATH];
        const int fd = good ? shard_open_inside(scan->folder, folders[i], O_DIRECTORY) : -1;
        snprintf(inside, sizeof inside, "%s/", folders[i]);
        good = good && (fd >= 0 ? list_folder(scan, fd, inside) : !shard_may_pass(errno));
        free(folders[i]);
    }
    free(folders);
    cut(scan);
    for (size_t i = 0; good && i < scan->count; i++) {
        struct entry *e = &scan->entries[i];
        e->version = e->kind == KIND_FOLDER ? 0 : version_of(scan->folder, e->path);
    }
    if (good && scan->count > 0) {
        qsort(scan->entries, scan->count, sizeof *scan->entries, by_place);
    }
    return good;
}

/* ----------------------------------------------------------------------------------- the models */

static struct model_source *add_source(struct scan *scan) {
    struct model_source *list = account_grow(NULL, scan->sources, &scan->source_capacity,
                                             scan->source_count + 1, sizeof *list);
    if (list == NULL) {
        return NULL;
    }
    scan->sources = list;
    struct model_source *source = &scan->sources[scan->source_count++];
    *source = (struct model_source){.version = UINT64_C(0xcbf29ce484222325)};
    return source;
}

/* The characters that the name of a model may have. */
static const char name_characters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

/* Returns whether a model may have this name. */
static bool is_name(const char *name) {
    const size_t size = strlen(name);
    return size > 0 && size <= LAYERS_NAME && strspn(name, name_characters) == size;
}

/* Gives a model its name, and refuses one that a path of the API cannot have. Such a name gets
 * question marks in place of its other characters, because the next page of a list may begin after
 * it, and one at its end, so that it is not the name of another model. */
static void name_source(struct model_source *source, const char *name) {
    snprintf(source->name, sizeof source->name, "%.*s", LAYERS_NAME, name);
    if (is_name(name)) {
        return;
    }
    for (char *c = source->name; *c != '\0'; c++) {
        *c = strchr(name_characters, *c) != NULL ? *c : '?';
    }
    const size_t size = strlen(source->name);
    strcpy(source->name + (size < LAYERS_NAME ? size : LAYERS_NAME - 1), "?");
    snprintf(source->reason, sizeof source->reason,
             "the name of a model has 1 to %d of the characters A-Z, a-z, 0-9, \".\", \"_\" and "
             "\"-\"",
             LAYERS_NAME);
}

/* The entries of one folder: all have the same `inside`. */
struct group {
    struct entry *first;
    size_t count;
};

static int by_name(const void *name, const void *entry) {
    const struct entry *e = entry;
    return strcmp(name, e->path + e->inside);
}

/* Returns the index of the first name of a group that is not before `name`. */
static size_t find_name(const struct group *g, const char *name) {
    return search_first(name, g->first, g->count, sizeof *g->first, by_name);
}

/* Returns the entry with this name, or NULL. */
static struct entry *entry_of(const struct group *g, const char *name) {
    const size_t i = find_name(g, name);
    return i < g->count && by_name(name, &g->first[i]) == 0 ? &g->first[i] : NULL;
}

/* Finds the entries that an index may name: their names begin with its stem and a dash. */
static struct group shards_of(const struct group *g, const struct entry *index) {
    char name[256];
    const char *own = index->path + index->inside;
    const int stem = (int)shard_stem(own, SHARD_INDEX);
    snprintf(name, sizeof name, "%.*s-", stem, own);
    const size_t first = find_name(g, name);
    snprintf(name, sizeof name, "%.*s.", stem, own); /* '.' is the character after '-' */
    return (struct group){&g->first[first], find_name(g, name) - first};
}

static bool is_model(const struct entry *e) {
    return e->kind == KIND_INDEX || (e->kind == KIND_TENSORS && !e->shard);
}

/* Returns whether a file has the name of one of several files that have the tensors of a model. */
static bool is_part(const char *name) {
    return fnmatch("*-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9].*", name, 0) == 0 &&
           strstr(name, "-of-00001.") == NULL;
}

/* Adds the model of a file or of an index. `alone` says that its folder has no other model. */
static bool add_model(struct scan *scan, const struct group *g, struct entry *e, bool alone) {
    char text[FOLDER_PATH + 32];
    struct model_source *source = add_source(scan);
    if (source == NULL) {
        return false;
    }
    const char *own = e->path + e->inside;
    source->index = e->kind == KIND_INDEX;
    const int stem = (int)shard_stem(own, source->index ? SHARD_INDEX : SHARD_ENDING);
    const int folder = e->inside > 0 ? (int)e->inside - 1 : 0;
    snprintf(text, sizeof text, "%.*s%s%.*s", folder, e->path, folder > 0 && !alone ? "." : "",
             folder > 0 && alone ? 0 : stem, own);
    name_source(source, text);
    snprintf(source->path, sizeof source->path, "%s", e->path);
    if (source->reason[0] == '\0' && is_part(own)) {
        snprintf(source->reason, sizeof source->reason,
                 "it is one of several files of a model, and their *%s is not beside it",
                 SHARD_INDEX);
    }
    snprintf(text, sizeof text, "%.*s.%s", stem, own, config_name);
    struct entry *config = entry_of(g, text);
    config = config != NULL ? config : entry_of(g, config_name);
    if (config != NULL) {
        snprintf(source->config, sizeof source->config, "%s", config->path);
        source->version = mix(source->version, config->version);
    }
    source->version = mix(source->version, e->version);
    const struct group shards = source->index ? shards_of(g, e) : (struct group){0};
    for (size_t i = 0; i < shards.count; i++) {
        source->version = mix(source->version, shards.first[i].version);
    }
    return true;
}

/* Adds a model that is refused, because it has no weights in a form that is read. */
static bool add_refused(struct scan *scan, const struct entry *e) {
    char text[FOLDER_PATH];
    struct model_source *source = add_source(scan);
    if (source == NULL) {
        return false;
    }
    const char *own = e->path + e->inside;
    const size_t size = e->kind == KIND_FOLDER ? strlen(own)
                        : e->inside > 0        ? e->inside - 1
                                               : (size_t)(strrchr(own, '.') - own);
    snprintf(text, sizeof text, "%.*s", (int)size, e->path);
    name_source(source, text);
    snprintf(source->path, sizeof source->path, "%s", e->path);
    if (source->reason[0] != '\0') {
        return true;
    }
    if (e->kind == KIND_OTHER) {
        snprintf(source->reason, sizeof source->reason,
                 "%.100s is %s; only safetensors files are read, as save_pretrained() of "
                 "transformers writes them",
                 own, form_of_name(own));
    } else {
        strcpy(source->reason,
               "no .safetensors file is in this folder; folders in it are not looked "
               "at, and links out of the folder of all models are not followed");
    }
    return true;
}

/* Returns whether a file of another form stands for a model: the first one of a folder without
 * models, and each one in the folder of all models whose name no model has. */
static bool is_other(const struct group *g, const struct entry *e, size_t models, size_t before) {
    static const char *const endings[] = {"", SHARD_ENDING, SHARD_INDEX};
    bool found = false;
    if (e->kind != KIND_OTHER || e->inside > 0) {
        return e->kind == KIND_OTHER && models == 0 && before == 0;
    }
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        char name[FOLDER_PATH + 32];
        snprintf(name, sizeof name, "%.*s%s", (int)(strrchr(e->path, '.') - e->path), e->path,
                 endings[i]);
        found = found || entry_of(g, name) != NULL;
    }
    return !found;
}

/* Adds the models of a folder. */
static bool add_models(struct scan *scan, const struct group *g) {
    size_t models = 0, before = 0;
    for (size_t i = 0; i < g->count; i++) {
        const struct group shards =
            g->first[i].kind == KIND_INDEX ? shards_of(g, &g->first[i]) : (struct group){0};
        for (size_t k = 0; k < shards.count; k++) {
            shards.first[k].shard = true;
        }
    }
    for (size_t i = 0; i < g->count; i++) {
        models += is_model(&g->first[i]);
    }
    for (size_t i = 0; i < g->count; i++) {
        if (is_model(&g->first[i]) && !add_model(scan, g, &g->first[i], models == 1)) {
            return false;
        }
        if (is_other(g, &g->first[i], models, before) && !add_refused(scan, &g->first[i])) {
            return false;
        }
        before += g->first[i].kind == KIND_OTHER;
    }
    return true;
}

/* Compares a folder, whose name has a slash, with that of an entry. */
static int by_folder(const void *folder, const void *entry) {
    const struct entry *e = entry;
    const size_t size = strlen(folder), both = size < e->inside ? size : e->inside;
    const int order = memcmp(folder, e->path, both);
    return order != 0 ? order : size < e->inside ? -1 : size > e->inside;
}

/* Returns whether a folder has weights, in whatever form, or another model has its name. */
static bool has_weights(const struct scan *scan, const struct group *top, const struct entry *e) {
    static const char *const endings[] = {SHARD_ENDING, SHARD_INDEX};
    char name[FOLDER_PATH + 32];
    bool found = false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        snprintf(name, sizeof name, "%s%s", e->path, endings[i]);
        found = found || entry_of(top, name) != NULL;
    }
    snprintf(name, sizeof name, "%s/", e->path);
    for (size_t i = search_first(name, scan->entries, scan->count, sizeof *e, by_folder);
         i < scan->count && by_folder(name, &scan->entries[i]) == 0; i++) {
        found = found || scan->entries[i].kind != KIND_CONFIG;
    }
    return found;
}

/* Adds the folders without weights, so that somebody who has put a folder at another depth sees it.
 * If entries were left out, nobody knows what was in their folders. */
static bool add_empty_folders(struct scan *scan, const struct group *top) {
    struct stat s;
    for (size_t i = 0; i < top->count && scan->left_out == 0; i++) {
        const struct entry *e = &top->first[i];
        if (e->kind == KIND_FOLDER && !has_weights(scan, top, e) &&
            fstatat(scan->folder, e->path, &s, 0) == 0 && S_ISDIR(s.st_mode) &&
            !add_refused(scan, e)) {
            return false;
        }
    }
    return true;
}

/* Adds a source that says how many entries were not taken. */
static bool add_left_out(struct scan *scan) {
    struct model_source *source = scan->left_out == 0 ? NULL : add_source(scan);
    if (source != NULL) {
        strcpy(source->name, FOLDER_LINE);
        strcpy(source->path, ".");
        snprintf(source->reason, sizeof source->reason,
                 "%zu files and folders in this folder are left out: at most %zu are taken, those "
                 "that were there before and then by name; this limit is fixed",
                 scan->left_out, scan->most);
    }
    return source != NULL || scan->left_out == 0;
}

static int by_source_name(const void *a, const void *b) {
    const struct model_source *first = a, *second = b;
    const int names = strcmp(first->name, second->name);
    return names != 0 ? names : strcmp(first->path, second->path);
}

/* Refuses all models that have one name. */
static void refuse_same_names(struct scan *scan) {
    struct model_source *list = scan->sources;
    for (size_t i = 1; i < scan->source_count; i++) {
        if (strcmp(list[i - 1].name, list[i].name) != 0) {
            continue;
        }
        for (size_t k = 0; k < 2; k++) {
            if (list[i - k].reason[0] == '\0') {
                snprintf(list[i - k].reason, LAYERS_REASON, "%.100s would have the same name",
                         list[i - 1 + k].path);
            }
        }
    }
}

static bool add_all(struct scan *scan) {
    bool good = add_left_out(scan);
    for (size_t i = 0, end; good && i < scan->count; i = end) {
        const struct entry *e = &scan->entries[i];
        for (end = i + 1; end < scan->count && scan->entries[end].inside == e->inside &&
                          memcmp(scan->entries[end].path, e->path, e->inside) == 0;
             end++) {
        }
        const struct group group = {&scan->entries[i], end - i};
        good = add_models(scan, &group) && (e->inside > 0 || add_empty_folders(scan, &group));
    }
    if (good && scan->source_count > 0) {
        qsort(scan->sources, scan->source_count, sizeof *scan->sources, by_source_name);
        refuse_same_names(scan);
    }
    for (size_t i = 0; i < scan->source_count; i++) {
        struct model_source *source =
            &scan->sources[i]; /* if it is refused, it may be read later */
        for (const char *c = source->reason; *c != '\0'; c++) {
            source->version = mix(source->version, (unsigned char)*c);
        }
    }
    return good;
}

/* Replaces what was seen by the paths of the entries. */
static void remember(struct scan *scan, struct folder_seen *seen) {
    char **paths = calloc(scan->count + 1, sizeof *paths);
    if (paths == NULL) {
        return; /* what was seen before is still a good choice */
    }
    folder_forget(seen);
    for (size_t i = 0; i < scan->count; i++) {
        paths[i] = scan->entries[i].path;
        scan->entries[i].path = NULL;
    }
    qsort(paths, scan->count, sizeof *paths, by_text);
    *seen = (struct folder_seen){paths, scan->count};
}

struct model_source *folder_scan(int folder, size_t most, struct folder_seen *seen, size_t *count) {
    struct scan scan = {.folder = folder, .most = most, .seen = seen};
    scan.entries = calloc(2 * most, sizeof *scan.entries);
    bool good = scan.entries != NULL && list_all(&scan) && add_all(&scan);
    if (good && scan.sources == NULL) {
        good = (scan.sources = calloc(1, sizeof *scan.sources)) != NULL;
    }
    if (good) {
        remember(&scan, seen);
    } else {
        free(scan.sources);
        scan.sources = NULL;
    }
    for (size_t i = 0; i < scan.count; i++) {
        free(scan.entries[i].path);
    }
    free(scan.entries);
    *count = scan.source_count;
    return scan.sources;
}

void folder_forget(struct folder_seen *seen) {
    for (size_t i = 0; i < seen->count; i++) {
        free(seen->paths[i]);
    }
    free(seen->paths);
    *seen = (struct folder_seen){0};
}
