/*
 * fuzz_layers.c - fuzzes the files of stored layers, from their bytes to an answer. An input is a
 * config.json, a zero byte, and the header of a safetensors file. The numbers of the tensors are
 * made here. Whatever the files are, each layer is either served with sizes that suit each other,
 * or refused with a reason.
 */
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/safetensors.h"
#include "fuzz/ask.h"
#include "fuzz/fuzz.h"
#include "layers/layers.h"

enum {
    NUMBERS = 4096,   /* of the tensors; 0.25 in float32, and other finite numbers in other types */
    MOST_COLUMNS = 64 /* of X; larger layers get no request */
};

static struct layers *layers;
static char folder[64];

static void remove_folder(void) {
    layers_close(layers);
    rmdir(folder);
}

/* Opens an empty folder once. */
static void open_folder(void) {
    char reason[LAYERS_REASON];
    const char *parent = getenv("TMPDIR");
    if (layers != NULL) {
        return;
    }
    snprintf(folder, sizeof folder, "%.40s/fuzz-layers-XXXXXX", parent == NULL ? "/tmp" : parent);
    fuzz_require(mkdtemp(folder) != NULL, "%s", folder);
    layers = layers_open(&(struct layers_options){.folder = folder, .memory = 1 << 20}, reason);
    fuzz_require(layers != NULL, "%s", reason);
    fuzz_serve_layers(layers);
    atexit(remove_folder);
}

static void write_file(const char *path, const void *const pieces[], const size_t sizes[],
                       size_t count) {
    FILE *file = fopen(path, "wb");
    fuzz_require(file != NULL, "%s", path);
    for (size_t i = 0; i < count; i++) {
        fuzz_require(fwrite(pieces[i], 1, sizes[i], file) == sizes[i], "%s", path);
    }
    fuzz_require(fclose(file) == 0, "%s", path);
}

/* Writes the files of a model. */
static void write_model(const char *config_path, const char *path, const uint8_t *data,
                        size_t size) {
    static float numbers[NUMBERS];
    const uint8_t *zero = memchr(data, 0, size);
    const size_t config = zero == NULL ? 0 : (size_t)(zero - data);
    const uint8_t *header = zero == NULL ? data : zero + 1;
    const size_t length = size - (size_t)(header - data);
    uint8_t prefix[SAFETENSORS_PREFIX];
    for (int i = 0; i < SAFETENSORS_PREFIX; i++) {
        prefix[i] = (uint8_t)(length >> 8 * i);
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        numbers[i] = 0.25F;
    }
    if (config > 0) {
        write_file(config_path, (const void *[]){data}, &config, 1);
    }
    write_file(path, (const void *[]){prefix, header, numbers},
               (size_t[]){sizeof prefix, length, sizeof numbers}, 3);
}

/* Asks for the attention of two rows. */
static void ask_layer(const struct layer *layer) {
    static const char *const keys[] = {"\"X\"", "\"context\"", "\"value_context\""};
    const size_t columns[] = {layer->d_model, layer->d_context, layer->d_value};
    char path[sizeof "/layers//attention" + LAYERS_NAME];
    char body[64 + 3 * (4 * MOST_COLUMNS + 32)];
    struct app_answer answer;
    snprintf(path, sizeof path, "/layers/%s/attention", layer->name);
    size_t size = (size_t)snprintf(body, sizeof body, "{\"dtype\":\"float64\"");
    for (size_t k = 0; k < 3; k++) {
        size += (size_t)snprintf(body + size, sizeof body - size, ",%s:", keys[k]);
        for (size_t i = 0; i < 2 * columns[k]; i++) {
            const char *number = i == 0 ? "[[1" : i == columns[k] ? "],[2" : ",0";
            size += (size_t)snprintf(body + size, sizeof body - size, "%s", number);
        }
        size += (size_t)snprintf(body + size, sizeof body - size, "]]");
    }
    size += (size_t)snprintf(body + size, sizeof body - size, "}");
    const struct http_request request = {.method = "POST",
                                         .path = path,
                                         .media_type = "application/json",
                                         .accept = "",
                                         .id = "fuzz"};
    fuzz_ask(false, &request, (const uint8_t *)body, size, 0, false, &answer);
    /* The numbers may be too large for the layer, and the layer for the memory of the app. */
    fuzz_require(answer.response.status == 200 || answer.response.status == 413 ||
                     answer.response.status == 422,
                 "%s: %d %s", path, answer.response.status, answer.body);
    free(answer.body);
}

static void check_layer(const struct layer *layer) {
    fuzz_require(layer->name[0] != '\0', "a layer of %s has no name", layer->model->name);
    if (layer->reason[0] != '\0') {
        return;
    }
    fuzz_require(layer->heads > 0 && layer->kv_heads > 0 && layer->heads % layer->kv_heads == 0,
                 "%s has %zu heads and %zu of keys", layer->name, layer->heads, layer->kv_heads);
    fuzz_require(layer->d_model > 0 && layer->d_context > 0 && layer->d_value > 0 && layer->d > 0 &&
                     layer->d_v > 0 && layer->d_out > 0,
                 "%s has a size of 0", layer->name);
    if (layer->d_model <= MOST_COLUMNS && layer->d_context <= MOST_COLUMNS &&
        layer->d_value <= MOST_COLUMNS) {
        ask_layer(layer);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned runs; /* a new name each time, so that no file is taken for an older one */
    char model[sizeof folder + 16], config[sizeof model + 16], path[sizeof model + 24];
    open_folder();
    snprintf(model, sizeof model, "%s/m%u", folder, runs++);
    snprintf(config, sizeof config, "%s/config.json", model);
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    fuzz_require(mkdir(model, 0700) == 0, "%s", model);
    write_model(config, path, data, size);
    layers_refresh(layers);
    const struct layers_catalogue *catalogue = layers_take(layers);
    fuzz_require(catalogue->count == 1, "%zu models", catalogue->count);
    const struct layer_model *found = catalogue->models[0];
    fuzz_require((found->count == 0) == (found->reason[0] != '\0'), "%zu layers, but: %s",
                 found->count, found->reason);
    for (size_t i = 0; i < found->count; i++) {
        check_layer(&found->layers[i]);
    }
    layers_give(layers, catalogue);
    unlink(config);
    unlink(path);
    rmdir(model);
    return 0;
}
