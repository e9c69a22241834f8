/*
 * model.c - see model.h. A file is open only while its header is read. The memory that this takes
 * counts in an account, so that no file can take all memory.
 */
#include "layers/model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "account.h"
#include "codec/safetensors.h"
#include "layers/config.h"
#include "layers/search.h"
#include "layers/shard.h"

enum {
    MOST_BYTES = 16 << 20,  /* of a header, an index or a config.json; each is read as a whole */
    MOST_SHARDS = 256,      /* files of one model */
    MOST_READING = 64 << 20 /* bytes of memory while a model is read: a tensor takes about 1 KiB in
                               the tree of its header, and a fifth of that in an index */
};

/* A model that is being read, and the memory that only its reading needs. */
struct reading {
    int folder;
    struct layer_model *model;
    struct budget budget;
    struct account account;
    struct codec_document *header; /* owned; of the first file with metadata */
    struct family_tensor *tensors;
    size_t count, capacity;
    struct config config;
    bool later; /* what went wrong may pass although the files do not change */
};

/* Says why the model is refused. Returns false. */
static bool refuse_model(struct reading *r, const char *format, ...)
    __attribute__((cold, format(printf, 2, 3)));
static bool refuse_model(struct reading *r, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->model->reason, LAYERS_REASON, format, arguments);
    va_end(arguments);
    return false;
}

/* Refuses a model because there is no memory for what is read. */
static bool refuse_memory(struct reading *r) {
    r->later = r->account.refusal == ACCOUNT_NOT_REFUSED;
    return r->later ? refuse_model(r, "there is no memory to read it")
                    : refuse_model(r,
                                   "reading it takes more than %d bytes of memory, which is a "
                                   "fixed limit",
                                   MOST_READING);
}

/* Refuses a model because a text of it is not JSON, or because there is no memory to read it. */
static bool refuse_json(struct reading *r, const char *what, const char *path,
                        const struct codec_error *error) {
    return error->status == CODEC_NO_MEMORY
               ? refuse_memory(r)
               : refuse_model(r, "%s%.80s is not JSON as it should be: %.120s", what, path,
                              error->message);
}

/* Refuses a model for an error of errno, which is 0 if a file has ended. */
static bool refuse_file(struct reading *r, const char *path, const char *what, int error) {
    const char *why = error == EXDEV || error == ELOOP ? "it is a link out of the folder"
                      : error == 0                     ? "it has become shorter"
                                                       : strerror(error);
    r->later = error == 0 || shard_may_pass(error);
    return refuse_model(r, "%.100s cannot be %s: %s", path, what, why);
}

/* --------------------------------------------------------------------------------------- files */

/* Opens a regular file. Returns -1 with a reason. */
static int open_regular(struct reading *r, const char *path, struct stat *status) {
    const int fd = shard_open_inside(r->folder, path, 0);
    if (fd < 0) {
        refuse_file(r, path, "opened", errno);
        return -1;
    }
    if (fstat(fd, status) != 0 || !S_ISREG(status->st_mode)) {
        refuse_model(r, "%.100s is no regular file", path);
        close(fd);
        return -1;
    }
    return fd;
}

/* Returns what a file is that only has the name of a safetensors file, or NULL. */
static const char *form_of_bytes(const unsigned char prefix[static SAFETENSORS_PREFIX]) {
    return memcmp(prefix, "GGUF", 4) == 0        ? "a GGUF file of llama.cpp"
           : memcmp(prefix, "PK\3\4", 4) == 0    ? "a zip archive, as torch.save() writes it"
           : memcmp(prefix, "\x89HDF", 4) == 0   ? "an HDF5 file"
           : prefix[0] == 0x80 && prefix[1] <= 5 ? "a pickle of Python"
                                                 : NULL;
}

/* Parses `size` bytes of a file, from `begin` on; a header begins behind the prefix of its file.
 * Returns owned, or NULL with a reason. */
static struct codec_document *parse_file(struct reading *r, int fd, uint64_t begin, size_t size,
                                         const char *path) {
    const char *what = begin > 0 ? "the header of " : "";
    struct codec_options options = config_limits(size, &r->account);
    options.settings = begin == 0;
    struct codec_reader *reader = codec_reader_create(&options);
    struct codec_document *document = NULL;
    char chunk[65536];
    bool good = reader != NULL || refuse_memory(r);
    for (size_t at = 0, count; good && at < size; at += count) {
        count = size - at < sizeof chunk ? size - at : sizeof chunk;
        if (!shard_read_at(fd, chunk, count, begin + at)) {
            good = refuse_file(r, path, "read", errno);
        } else if (at == 0 && begin > 0 && chunk[0] != '{') {
            const struct codec_error error = {.message = "it does not begin with {"};
            good = refuse_json(r, what, path, &error);
        } else {
            good = codec_reader_feed(reader, chunk, count) == CODEC_OK ||
                   refuse_json(r, what, path, codec_reader_error(reader));
        }
    }
    if (good && codec_reader_finish(reader, &document) != CODEC_OK) {
        refuse_json(r, what, path, codec_reader_error(reader));
    }
    codec_reader_free(reader);
    return document;
}

/* Reads a JSON file. Returns owned, or NULL with a reason. */
static struct codec_document *read_json(struct reading *r, const char *path) {
    struct codec_document *document = NULL;
    struct stat status;
    const int fd = open_regular(r, path, &status);
    if (fd < 0) {
        return NULL;
    }
    const size_t size = (size_t)status.st_size;
    if (size > MOST_BYTES) {
        refuse_model(r, "%.100s has %zu bytes; at most %d are read", path, size, MOST_BYTES);
    } else {
        document = parse_file(r, fd, 0, size, path);
    }
    close(fd);
    return document;
}

/* Parses the header of a file of `file` bytes, and finds its size. Returns owned, or NULL with a
 * reason. */
static struct codec_document *read_header(struct reading *r, int fd, uint64_t file, uint64_t *size,
                                          const char *path) {
    unsigned char prefix[SAFETENSORS_PREFIX];
    if (!shard_read_at(fd, prefix, sizeof prefix, 0)) {
        refuse_model(r, "%.100s has no header: it has %llu bytes", path, (unsigned long long)file);
        return NULL;
    }
    if (codec_is_lfs_pointer(prefix)) {
        refuse_model(r, "%.100s: %s", path, codec_lfs_pointer);
        return NULL;
    }
    *size = codec_safetensors_length(prefix);
    if (*size > MOST_BYTES && form_of_bytes(prefix) != NULL) {
        refuse_model(r, "%.100s is %s, and no safetensors file", path, form_of_bytes(prefix));
        return NULL;
    }
    if (*size > MOST_BYTES || *size > file - SAFETENSORS_PREFIX) {
        const uint64_t left = file - SAFETENSORS_PREFIX;
        refuse_model(r,
                     "%.100s is no whole safetensors file: by its first 8 bytes its header has "
                     "%llu bytes; it may have %llu",
                     path, (unsigned long long)*size,
                     (unsigned long long)(left < MOST_BYTES ? left : MOST_BYTES));
        return NULL;
    }
    return parse_file(r, fd, SAFETENSORS_PREFIX, (size_t)*size, path);
}

/* ------------------------------------------------------------------------------------- tensors */

/* Adds the tensors of a file. Their names are copied, so that its header need not be kept. */
static bool add_tensors(struct reading *r, const struct codec_header_tensor *list, size_t count,
                        const struct layer_shard *shard) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += strlen(list[i].name) + 1;
    }
    if (count > CONFIG_KEYS - r->count) {
        return refuse_model(r, "it has %zu tensors; at most %d are read", r->count + count,
                            CONFIG_KEYS);
    }
    struct family_tensor *tensors =
        account_grow(&r->account, r->tensors, &r->capacity, r->count + count + 1, sizeof *tensors);
    r->tensors = tensors != NULL ? tensors : r->tensors;
    char *name = tensors == NULL ? NULL : account_alloc(&r->account, bytes);
    if (name == NULL) {
        return refuse_memory(r);
    }
    for (size_t i = 0; i < count; i++) {
        struct family_tensor *t = &r->tensors[r->count++];
        *t = (struct family_tensor){list[i], shard};
        const size_t size = strlen(list[i].name) + 1;
        t->header.name = memcpy(name, list[i].name, size);
        name += size;
    }
    return true;
}

/* Lists the tensors of a header. Takes the header. */
static bool list_tensors(struct reading *r, struct codec_document *header,
                         const struct layer_shard *shard) {
    struct codec_safetensors read = {.most = codec_size(codec_root(header))};
    struct codec_error error = {0};
    read.list = account_alloc(&r->account, (read.most + 1) * sizeof *read.list);
    const bool good =
        read.list == NULL ? refuse_memory(r)
        : codec_safetensors_read(header, (size_t)(shard->size - shard->data), &read, &error)
            ? add_tensors(r, read.list, read.count, shard)
            : refuse_model(r, "%.80s: %.160s", shard->path, error.message);
    account_free(&r->account, read.list);
    if (good && read.metadata != NULL && r->header == NULL) {
        r->config.header = r->header = header;
        r->config.metadata = read.metadata;
    } else {
        codec_document_free(header);
    }
    return good;
}

/* Reads the header of a file of a model, and adds its tensors. */
static bool add_shard(struct reading *r, const char *path) {
    struct layer_shard *shard = &r->model->shards[r->model->shard_count];
    struct stat status;
    uint64_t size = 0;
    if ((shard->path = strdup(path)) == NULL) {
        return refuse_memory(r);
    }
    r->model->shard_count++;
    const int fd = open_regular(r, path, &status);
    if (fd < 0) {
        return false;
    }
    shard->folder = r->folder;
    shard_note(shard, &status);
    struct codec_document *header = read_header(r, fd, shard->size, &size, path);
    const bool changed = !shard_is_unchanged(shard, fd);
    shard->data = SAFETENSORS_PREFIX + size;
    close(fd);
    if (header != NULL && changed) {
        codec_document_free(header);
        r->later = true;
        return refuse_model(r, "%.100s has changed while it was read", path);
    }
    return header != NULL && list_tensors(r, header, shard);
}

static bool make_shards(struct reading *r, size_t count) {
    r->model->shards = calloc(count, sizeof *r->model->shards);
    return r->model->shards != NULL || refuse_memory(r);
}

/* ---------------------------------------------------------------------------------- the indices */

static int by_file(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the files that an index names, sorted and each once. `list` has room for all members of the
 * map. Returns their number, or 0 with a reason. */
static size_t list_files(struct reading *r, const struct codec_document *index,
                         const struct codec_value *map, const char *path, const char **list) {
    const char *slash = strrchr(path, '/'), *own = slash == NULL ? path : slash + 1;
    const size_t stem = shard_stem(own, SHARD_INDEX);
    struct codec_error error;
    size_t count = 0, files = 0;
    for (const struct codec_value *member = codec_at(map, 0); member != NULL;
         member = codec_next(member)) {
        const char *file;
        if (codec_kind_of(member) != CODEC_TEXT || !codec_as_text(index, member, &file, &error) ||
            strchr(file, '/') != NULL || shard_stem(file, SHARD_ENDING) == 0 ||
            strncmp(file, own, stem) != 0 || file[stem] != '-') {
            refuse_model(r, "%.80s names a file that is not %.*s-*" SHARD_ENDING " beside it", path,
                         (int)(stem < 80 ? stem : 80), own);
            return 0;
        }
        list[count++] = file;
    }
    qsort(list, count, sizeof *list, by_file);
    for (size_t i = 0; i < count; i++) {
        if (files == 0 || strcmp(list[files - 1], list[i]) != 0) {
            list[files++] = list[i];
        }
    }
    if (files > MOST_SHARDS) {
        refuse_model(r, "%.100s names %zu files; at most %d are read", path, files, MOST_SHARDS);
        return 0;
    }
    return files;
}

/* Reads all files that an index names. They lie beside it. */
static bool add_indexed(struct reading *r, const char *path) {
    struct codec_document *index = read_json(r, path);
    const char *slash = strrchr(path, '/');
    const int inside = slash == NULL ? 0 : (int)(slash + 1 - path);
    if (index == NULL) {
        return false;
    }
    const struct codec_value *root = codec_root(index);
    const struct codec_value *map =
        codec_kind_of(root) == CODEC_OBJECT ? codec_get(root, "weight_map") : NULL;
    bool good = (map != NULL && codec_kind_of(map) == CODEC_OBJECT && codec_size(map) > 0) ||
                refuse_model(r, "%.100s has no object \"weight_map\"", path);
    const size_t bytes = good ? codec_size(map) * sizeof(char *) : 0;
    const char **files = good ? account_alloc(&r->account, bytes) : NULL;
    if (good && files == NULL) {
        refuse_memory(r);
    }
    const size_t count = files != NULL ? list_files(r, index, map, path, files) : 0;
    good = count > 0 && make_shards(r, count);
    for (size_t i = 0; good && i < count; i++) {
        char whole[FOLDER_PATH];
        good = snprintf(whole, sizeof whole, "%.*s%s", inside, path, files[i]) < FOLDER_PATH
                   ? add_shard(r, whole)
                   : refuse_model(r, "%.100s names a file with a name that is too long", path);
    }
    account_free(&r->account, files);
    codec_document_free(index);
    return good;
}

/* ----------------------------------------------------------------------------------- the model */

static int by_tensor_name(const void *a, const void *b) {
    return strcmp(((const struct family_tensor *)a)->header.name,
                  ((const struct family_tensor *)b)->header.name);
}

static bool read_model(struct reading *r, const struct model_source *source) {
    struct codec_error error = {0};
    if (!(source->index ? add_indexed(r, source->path)
                        : make_shards(r, 1) && add_shard(r, source->path))) {
        return false;
    }
    if (r->count > 0) {
        qsort(r->tensors, r->count, sizeof *r->tensors, by_tensor_name);
    }
    for (size_t i = 1; i < r->count; i++) {
        if (strcmp(r->tensors[i - 1].header.name, r->tensors[i].header.name) == 0) {
            return refuse_model(r, "two of its files have the tensor %.100s",
                                r->tensors[i].header.name);
        }
    }
    if (!config_open(&r->config, &error)) {
        return refuse_json(r, "config in ", "__metadata__", &error);
    }
    if (source->config[0] != '\0' && (r->config.file = read_json(r, source->config)) == NULL) {
        return false;
    }
    if (!family_find(r->model, r->tensors, r->count, &r->config)) {
        return refuse_memory(r);
    }
    const char *method =
        config_text(config_inner(config_root(&r->config), "quantization_config"), "quant_method");
    for (size_t i = 0; r->model->count == 0 && i < r->count; i++) {
        if (strstr(r->tensors[i].header.name, ".lora_") != NULL) {
            return refuse_model(r, "it is an adapter (LoRA), which has no weights of an attention: "
                                   "merge it into its model, and save that");
        }
    }
    return r->model->count > 0 ||
           refuse_model(r,
                        "%snone of its %zu tensors has the name of a weight of an attention that "
                        "is known%s%.40s",
                        search_capture, r->count, method == NULL ? "" : "; its quant_method is ",
                        method == NULL ? "" : method);
}

struct layer_model *model_read(int folder, const struct model_source *source) {
    struct layer_model *model = calloc(1, sizeof *model);
    struct reading r = {.folder = folder,
                        .model = model,
                        .budget = {.max_request = MOST_READING, .max_total = 2 * MOST_READING}};
    if (model == NULL) {
        return NULL;
    }
    account_open(&r.account, &r.budget, 0);
    r.config.account = &r.account;
    snprintf(model->name, sizeof model->name, "%s", source->name);
    snprintf(model->file, sizeof model->file, "%.255s", source->path);
    snprintf(model->reason, sizeof model->reason, "%s", source->reason);
    model->version = source->version;
    if (model->reason[0] == '\0' && !read_model(&r, source) && r.later) {
        model->version = 0; /* it is read again by the next scan */
    }
    search_keep_ascii(model->file);
    search_keep_ascii(model->reason);
    config_close(&r.config);
    codec_document_free(r.header);
    account_close(&r.account);
    return model;
}

void model_strip(struct layer_model *model) {
    for (size_t i = 0; i < model->shard_count; i++) {
        free(model->shards[i].path);
    }
    free(model->shards);
    free(model->factors);
    free(model->ignored);
    free(model->layers);
    model->shards = NULL;
    model->factors = NULL;
    model->ignored = NULL;
    model->layers = NULL;
    model->shard_count = model->factor_count = model->ignored_size = model->count = 0;
}

void model_free(struct layer_model *model) {
    if (model == NULL) {
        return;
    }
    model_strip(model);
    free(model);
}
