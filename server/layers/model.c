/* model.c - see model.h. Every file is opened below the folder, and only a regular file is read. */
#define _GNU_SOURCE /* syscall() */
#include "layers/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "codec/safetensors.h"
#include "layers/config.h"
#include "layers/family.h"
#include "layers/shard.h"

enum {
    MOST_HEADER = 16 << 20, /* bytes; a header is read as a whole */
    MOST_VALUES = 1 << 21,  /* values of a header */
    MOST_JSON = 16 << 20,   /* bytes of an index or a config.json */
    MOST_SHARDS = 256,      /* files of one model */
    MOST_ENTRIES = 4096     /* files of one folder */
};

static const char ending[] = ".safetensors", index_ending[] = ".safetensors.index.json";

static bool refuse_model(char reason[static LAYERS_REASON], const char *format, ...)
    __attribute__((cold, format(printf, 2, 3)));
static bool refuse_model(char reason[static LAYERS_REASON], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, LAYERS_REASON, format, arguments);
    va_end(arguments);
    return false;
}

/* --------------------------------------------------------------------------------------- files */

/* Opens a file inside the folder for reading. No link leads out of the folder. Returns -1 with
 * errno. */
static int open_inside(int folder, const char *path, int flags) {
    const struct open_how how = {
        .flags = (unsigned)(O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags),
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    const int fd = (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) {
        return fd;
    }
    if (strchr(path, '/') != NULL) { /* without openat2() no part of a path may be a link */
        char parent[MODEL_PATH];
        const char *name = strrchr(path, '/') + 1;
        snprintf(parent, sizeof parent, "%.*s", (int)(name - path - 1), path);
        const int inner = openat(folder, parent, O_RDONLY | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW);
        if (inner < 0) {
            return -1;
        }
        const int file = openat(inner, name, (int)how.flags | O_NOFOLLOW);
        const int error = errno;
        close(inner);
        errno = error;
        return file;
    }
    return openat(folder, path, (int)how.flags | O_NOFOLLOW);
}

/* Opens a regular file. Returns -1 with a reason. */
static int open_regular(int folder, const char *path, struct stat *status,
                        char reason[static LAYERS_REASON]) {
    const int fd = open_inside(folder, path, 0);
    if (fd < 0) {
        const char *why =
            errno == EXDEV || errno == ELOOP ? "it is a link out of the folder" : strerror(errno);
        refuse_model(reason, "%.100s cannot be opened: %s", path, why);
        return -1;
    }
    if (fstat(fd, status) != 0 || !S_ISREG(status->st_mode)) {
        refuse_model(reason, "%.100s is no regular file", path);
        close(fd);
        return -1;
    }
    return fd;
}

/* Returns whether an error may pass although the file does not change. */
static bool passes(int error) {
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == EIO;
}

/* Reads a small JSON file. Returns owned, or NULL with a reason. */
static struct codec_document *read_json(int folder, const char *path,
                                        char reason[static LAYERS_REASON]) {
    struct stat status;
    struct codec_error error = {0};
    const int fd = open_regular(folder, path, &status, reason);
    struct codec_document *document = NULL;
    char *text = NULL;
    if (fd < 0) {
        return NULL;
    }
    if (status.st_size > MOST_JSON) {
        refuse_model(reason, "%.100s has %lld bytes; at most %d are read", path,
                     (long long)status.st_size, MOST_JSON);
    } else if ((text = malloc((size_t)status.st_size + 1)) == NULL ||
               !shard_read_at(fd, text, (size_t)status.st_size, 0)) {
        refuse_model(reason, "%.100s cannot be read", path);
    } else if ((document = config_parse(text, (size_t)status.st_size, &error)) == NULL) {
        refuse_model(reason, "%.80s is not JSON as it should be: %.120s", path, error.message);
    }
    free(text);
    close(fd);
    return document;
}

/* ------------------------------------------------------------------------------------- scanning */

static uint64_t mix(uint64_t hash, uint64_t number) {
    return (hash ^ number) * UINT64_C(0x100000001b3);
}

/* Mixes what the file system says of a file into a hash. */
static uint64_t mix_file(uint64_t hash, int folder, const char *path) {
    struct stat s;
    if (fstatat(folder, path, &s, 0) != 0) {
        return mix(hash, 1);
    }
    hash = mix(mix(mix(hash, s.st_dev), s.st_ino), (uint64_t)s.st_size);
    hash = mix(mix(hash, (uint64_t)s.st_mtim.tv_sec), (uint64_t)s.st_mtim.tv_nsec);
    return mix(mix(hash, (uint64_t)s.st_ctim.tv_sec), (uint64_t)s.st_ctim.tv_nsec);
}

/* The names in a folder. */
struct names {
    char **list; /* owned; sorted */
    size_t count;
};

static void free_names(struct names *names) {
    for (size_t i = 0; i < names->count; i++) {
        free(names->list[i]);
    }
    free(names->list);
    *names = (struct names){0};
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lists a folder without hidden files. Takes the descriptor. Returns false if it cannot be read. */
static bool list_folder(int fd, struct names *names) {
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    bool good = stream != NULL;
    if (stream == NULL && fd >= 0) {
        close(fd);
    }
    while (good && (errno = 0, entry = readdir(stream)) != NULL) {
        if (entry->d_name[0] == '.' || names->count == MOST_ENTRIES) {
            continue;
        }
        char **list = realloc(names->list, (names->count + 1) * sizeof *list);
        char *copy = strdup(entry->d_name);
        names->list = list != NULL ? list : names->list;
        good = list != NULL && copy != NULL;
        if (good) {
            names->list[names->count++] = copy;
        } else {
            free(copy);
        }
    }
    if (stream != NULL) {
        good = good && errno == 0;
        closedir(stream);
    }
    if (names->count > 0) {
        qsort(names->list, names->count, sizeof *names->list, by_text);
    }
    return good;
}

/* Returns the size of the name before an ending, or 0 if it does not end so. */
static size_t stem_of(const char *name, const char *end) {
    const size_t size = strlen(name), last = strlen(end);
    return size > last && strcmp(name + size - last, end) == 0 ? size - last : 0;
}

static bool has_name(const struct names *names, const char *name) {
    return names->count > 0 &&
           bsearch(&name, names->list, names->count, sizeof *names->list, by_text) != NULL;
}

/* Returns whether an index in the same folder may name this file: its name begins with the stem of
 * the index and a dash. */
static bool is_shard(const struct names *names, const char *name) {
    char index[MODEL_PATH];
    for (const char *dash = strchr(name, '-'); dash != NULL; dash = strchr(dash + 1, '-')) {
        snprintf(index, sizeof index, "%.*s%s", (int)(dash - name), name, index_ending);
        if (has_name(names, index)) {
            return true;
        }
    }
    return false;
}

/* The models that a scan has found. */
struct scan {
    int folder;
    struct model_source *list;
    size_t count, capacity;
};

static struct model_source *add_source(struct scan *scan) {
    if (scan->count == scan->capacity) {
        const size_t capacity = scan->capacity == 0 ? 16 : 2 * scan->capacity;
        struct model_source *list = realloc(scan->list, capacity * sizeof *list);
        if (list == NULL) {
            return NULL;
        }
        scan->list = list;
        scan->capacity = capacity;
    }
    scan->list[scan->count] = (struct model_source){.version = UINT64_C(0xcbf29ce484222325)};
    return &scan->list[scan->count++];
}

bool model_is_name(const char *name) {
    const size_t size = strlen(name);
    return size > 0 && size <= LAYERS_NAME &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") ==
               size;
}

void model_find_config(int folder, struct model_source *source, const char *name) {
    struct stat status;
    snprintf(source->config, sizeof source->config, "%.200s.config.json", name);
    if (fstatat(folder, source->config, &status, 0) != 0) {
        strcpy(source->config, "config.json");
        source->config[fstatat(folder, source->config, &status, 0) == 0 ? 11 : 0] = '\0';
    }
}

/* A text of an answer must be UTF-8, but the name of a file may have any bytes, and a reason may be
 * cut. So other bytes than ASCII become question marks. */
static void keep_ascii(char *text) {
    for (; *text != '\0'; text++) {
        *text = (unsigned char)*text < 0x80 ? *text : '?';
    }
}

/* Gives a model its name, and refuses one that a path of the API cannot have. */
static void name_source(struct model_source *source, const char *name) {
    snprintf(source->name, sizeof source->name, "%.*s", LAYERS_NAME, name);
    keep_ascii(source->name);
    if (!model_is_name(name)) {
        refuse_model(source->reason,
                     "the name of a model has 1 to %d of the characters A-Z, a-z, 0-9, \".\", "
                     "\"_\" and \"-\"",
                     LAYERS_NAME);
    }
}

/* Adds the model of a file or of an index. `inside` is the name of its folder and a slash, or
 * empty. `alone` says that the folder has no other model. */
static bool add_model(struct scan *scan, const struct names *names, const char *inside,
                      const char *name, size_t stem, bool index, bool alone) {
    char text[2 * MODEL_PATH];
    struct model_source *source = add_source(scan);
    if (source == NULL) {
        return false;
    }
    const size_t folder = strlen(inside);
    source->index = index;
    if (folder > 0 && alone) {
        snprintf(text, sizeof text, "%.*s", (int)folder - 1, inside);
    } else {
        snprintf(text, sizeof text, "%.*s%s%.*s", (int)folder - (folder > 0), inside,
                 folder > 0 ? "." : "", (int)stem, name);
    }
    name_source(source, text);
    snprintf(source->path, sizeof source->path, "%s%s", inside, name);
    snprintf(text, sizeof text, "%.*s.config.json", (int)stem, name);
    if (has_name(names, text) || has_name(names, "config.json")) {
        snprintf(source->config, sizeof source->config, "%s%.200s", inside,
                 has_name(names, text) ? text : "config.json");
        source->version = mix_file(source->version, scan->folder, source->config);
    }
    source->version = mix_file(source->version, scan->folder, source->path);
    for (size_t i = 0; index && i < names->count; i++) {
        if (strncmp(names->list[i], name, stem) == 0 && names->list[i][stem] == '-') {
            snprintf(text, sizeof text, "%s%s", inside, names->list[i]);
            source->version = mix_file(source->version, scan->folder, text);
        }
    }
    return true;
}

/* Adds the models of a folder. Takes the descriptor. */
static bool scan_folder(struct scan *scan, int fd, const char *inside) {
    struct names names = {0};
    bool good = list_folder(fd, &names);
    size_t models = 0;
    for (size_t i = 0; i < names.count; i++) {
        models += stem_of(names.list[i], index_ending) > 0 ||
                  (stem_of(names.list[i], ending) > 0 && !is_shard(&names, names.list[i]));
    }
    for (size_t i = 0; good && i < names.count; i++) {
        const char *name = names.list[i];
        const size_t file = stem_of(name, ending), index = stem_of(name, index_ending);
        if (index > 0 || (file > 0 && !is_shard(&names, name))) {
            good = add_model(scan, &names, inside, name, index > 0 ? index : file, index > 0,
                             models == 1);
        } else if (inside[0] == '\0') {
            char below[MODEL_PATH];
            const int inner = open_inside(scan->folder, name, O_DIRECTORY);
            if (inner >= 0) {
                snprintf(below, sizeof below, "%s/", name);
                good = scan_folder(scan, inner, below);
            } else {
                good = !passes(errno);
            }
        }
    }
    free_names(&names);
    return good;
}

static int by_source_name(const void *a, const void *b) {
    const struct model_source *first = a, *second = b;
    const int names = strcmp(first->name, second->name);
    return names != 0 ? names : strcmp(first->path, second->path);
}

struct model_source *model_scan(int folder, size_t *count) {
    struct scan scan = {.folder = folder};
    if (!scan_folder(&scan, openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "")) {
        free(scan.list);
        return NULL;
    }
    if (scan.count > 0) {
        qsort(scan.list, scan.count, sizeof *scan.list, by_source_name);
    }
    for (size_t i = 1; i < scan.count; i++) {
        if (strcmp(scan.list[i - 1].name, scan.list[i].name) == 0) {
            refuse_model(scan.list[i].reason, "%.100s has the same name", scan.list[i - 1].path);
        }
    }
    for (size_t i = 0; i < scan.count; i++) { /* a model that is refused now may be read later */
        scan.list[i].version = mix(scan.list[i].version, scan.list[i].reason[0] != '\0');
    }
    *count = scan.count;
    return scan.list != NULL ? scan.list : calloc(1, sizeof *scan.list);
}

/* -------------------------------------------------------------------------------------- reading */

/* What a model is made of while it is read. */
struct reading {
    int folder;
    struct layer_model *model;
    struct codec_document **headers; /* owned; one for each shard */
    struct family_tensor *tensors;   /* owned */
    size_t count;
    struct config config;
};

/* Parses the header of a file. Returns owned, or NULL with a reason. */
static struct codec_document *read_header(int fd, uint64_t file, uint64_t *size, const char *path,
                                          char reason[static LAYERS_REASON]) {
    unsigned char prefix[SAFETENSORS_PREFIX];
    if (!shard_read_at(fd, prefix, sizeof prefix, 0)) {
        refuse_model(reason, "%.100s has no header: it has %llu bytes", path,
                     (unsigned long long)file);
        return NULL;
    }
    *size = codec_safetensors_length(prefix);
    if (*size > MOST_HEADER || *size > file - SAFETENSORS_PREFIX) {
        refuse_model(
            reason,
            "%.100s has a header of %llu bytes by its first 8 bytes; it may have "
            "%llu",
            path, (unsigned long long)*size,
            (unsigned long long)(*size > MOST_HEADER ? MOST_HEADER : file - SAFETENSORS_PREFIX));
        return NULL;
    }
    const struct codec_options options = {.max_skeleton = (size_t)*size + 1,
                                          .max_values = MOST_VALUES};
    struct codec_reader *reader = codec_reader_create(&options);
    struct codec_document *document = NULL;
    char piece[65536];
    const char *wrong = reader == NULL ? "there is no memory" : NULL;
    for (uint64_t at = 0; wrong == NULL && at < *size;) {
        const size_t left = (size_t)(*size - at), count = left < sizeof piece ? left : sizeof piece;
        if (!shard_read_at(fd, piece, count, SAFETENSORS_PREFIX + at)) {
            wrong = "it cannot be read";
        } else if (at == 0 && piece[0] != '{') {
            wrong = "it does not begin with {";
        } else if (codec_reader_feed(reader, piece, count) != CODEC_OK) {
            wrong = codec_reader_error(reader)->message;
        }
        at += count;
    }
    if (wrong == NULL && codec_reader_finish(reader, &document) != CODEC_OK) {
        wrong = codec_reader_error(reader)->message;
    }
    if (wrong != NULL) {
        refuse_model(reason, "the header of %.80s is not JSON as it should be: %.120s", path,
                     wrong);
    }
    codec_reader_free(reader);
    return document;
}

/* Opens a file of a model and adds its tensors. */
static bool add_shard(struct reading *r, const char *path) {
    struct layer_model *model = r->model;
    struct layer_shard *shard = &model->shards[model->shard_count];
    struct codec_error error = {0};
    struct stat status;
    uint64_t size = 0;
    size_t count;
    const struct codec_value *metadata;
    shard->fd = open_regular(r->folder, path, &status, model->reason);
    if (shard->fd < 0) {
        return false;
    }
    model->shard_count++;
    shard->size = (uint64_t)status.st_size;
    shard->changed = status.st_mtim;
    struct codec_document *header =
        read_header(shard->fd, (uint64_t)status.st_size, &size, path, model->reason);
    if (header == NULL) {
        return false;
    }
    r->headers[model->shard_count - 1] = header;
    shard->data = SAFETENSORS_PREFIX + size;
    struct codec_stored *list = codec_safetensors_list(
        header, (size_t)((uint64_t)status.st_size - shard->data), &count, &metadata, &error);
    if (list == NULL) {
        return refuse_model(model->reason, "%.80s: %.160s", path, error.message);
    }
    struct family_tensor *tensors = realloc(r->tensors, (r->count + count + 1) * sizeof *tensors);
    if (tensors == NULL) {
        free(list);
        return refuse_model(model->reason, "there is no memory for its %zu tensors", count);
    }
    r->tensors = tensors;
    for (size_t i = 0; i < count; i++) {
        r->tensors[r->count++] = (struct family_tensor){list[i], shard};
    }
    free(list);
    if (r->config.metadata == NULL) {
        r->config.header = header;
        r->config.metadata = metadata;
    }
    return true;
}

static bool make_shards(struct reading *r, size_t count) {
    r->model->shards = calloc(count, sizeof *r->model->shards);
    r->headers = calloc(count, sizeof(struct codec_document *));
    return (r->model->shards != NULL && r->headers != NULL) ||
           refuse_model(r->model->reason, "there is no memory");
}

/* Opens all files that an index names. */
static bool add_indexed(struct reading *r, const char *path) {
    char *reason = r->model->reason;
    struct codec_document *index = read_json(r->folder, path, reason);
    struct names names = {0};
    const char *slash = strrchr(path, '/'), *file;
    const int inside = slash == NULL ? 0 : (int)(slash + 1 - path);
    const size_t stem = stem_of(path + inside, index_ending);
    struct codec_error error;
    bool good = index != NULL;
    const struct codec_value *map = good && codec_kind_of(codec_root(index)) == CODEC_OBJECT
                                        ? codec_get(codec_root(index), "weight_map")
                                        : NULL;
    if (good && (map == NULL || codec_kind_of(map) != CODEC_OBJECT || codec_size(map) == 0)) {
        good = refuse_model(reason, "%.100s has no object \"weight_map\"", path);
    }
    names.list = good ? calloc(codec_size(map) + 1, sizeof *names.list) : NULL;
    for (const struct codec_value *member = good ? codec_at(map, 0) : NULL; good && member != NULL;
         member = codec_next(member)) {
        if (codec_kind_of(member) != CODEC_TEXT || !codec_as_text(index, member, &file, &error) ||
            strchr(file, '/') != NULL || stem_of(file, ending) == 0 ||
            strncmp(file, path + inside, stem) != 0 || file[stem] != '-') {
            good =
                refuse_model(reason, "%.80s names a file that is not %.*s-*.safetensors beside it",
                             path, (int)(stem < 80 ? stem : 80), path + inside);
        } else if (names.list != NULL && (names.list[names.count] = strdup(file)) != NULL) {
            names.count++;
        }
    }
    if (good && names.count > 0) {
        qsort(names.list, names.count, sizeof *names.list, by_text);
    }
    size_t files = 0;
    for (size_t i = 0; i < names.count; i++) {
        files += i == 0 || strcmp(names.list[i - 1], names.list[i]) != 0;
    }
    if (good && files > MOST_SHARDS) {
        good = refuse_model(reason, "%.100s names %zu files; at most %d are read", path, files,
                            MOST_SHARDS);
    }
    good = good && make_shards(r, files);
    for (size_t i = 0; good && i < names.count; i++) {
        char whole[MODEL_PATH];
        if (i == 0 || strcmp(names.list[i - 1], names.list[i]) != 0) {
            snprintf(whole, sizeof whole, "%.*s%s", inside, path, names.list[i]);
            good = add_shard(r, whole);
        }
    }
    free_names(&names);
    codec_document_free(index);
    return good;
}

static int by_tensor_name(const void *a, const void *b) {
    return strcmp(((const struct family_tensor *)a)->stored.name,
                  ((const struct family_tensor *)b)->stored.name);
}

static bool read_model(struct reading *r, const struct model_source *source) {
    struct layer_model *model = r->model;
    struct codec_error error = {0};
    if (!(source->index ? add_indexed(r, source->path)
                        : make_shards(r, 1) && add_shard(r, source->path))) {
        return false;
    }
    if (r->count > 0) {
        qsort(r->tensors, r->count, sizeof *r->tensors, by_tensor_name);
    }
    for (size_t i = 1; i < r->count; i++) {
        if (strcmp(r->tensors[i - 1].stored.name, r->tensors[i].stored.name) == 0) {
            return refuse_model(model->reason, "two of its files have the tensor %.100s",
                                r->tensors[i].stored.name);
        }
    }
    if (!config_open(&r->config, &error)) {
        return refuse_model(model->reason, "config in __metadata__ is not JSON: %.120s",
                            error.message);
    }
    if (source->config[0] != '\0' &&
        (r->config.file = read_json(r->folder, source->config, model->reason)) == NULL) {
        return false;
    }
    if (!family_find(model, r->tensors, r->count, &r->config)) {
        return refuse_model(model->reason, "there is no memory");
    }
    return model->count > 0 ||
           refuse_model(model->reason,
                        "none of its %zu tensors has the name of a weight of an attention that is "
                        "known",
                        r->count);
}

struct layer_model *model_read(int folder, const struct model_source *source) {
    struct layer_model *model = calloc(1, sizeof *model);
    struct reading r = {.folder = folder, .model = model};
    if (model == NULL) {
        return NULL;
    }
    snprintf(model->name, sizeof model->name, "%s", source->name);
    snprintf(model->file, sizeof model->file, "%.255s", source->path);
    snprintf(model->reason, sizeof model->reason, "%s", source->reason);
    model->version = source->version;
    errno = 0;
    if (model->reason[0] == '\0' && !read_model(&r, source) && passes(errno)) {
        model->version = 0; /* it is read again at the next look */
    }
    keep_ascii(model->file);
    keep_ascii(model->reason);
    config_close(&r.config);
    for (size_t i = 0; i < model->shard_count; i++) {
        codec_document_free(r.headers[i]);
    }
    free(r.headers);
    free(r.tensors);
    return model;
}

void model_free(struct layer_model *model) {
    if (model == NULL) {
        return;
    }
    for (size_t i = 0; i < model->shard_count; i++) {
        close(model->shards[i].fd);
    }
    free(model->shards);
    free(model->factors);
    free(model->layers);
    free(model);
}
