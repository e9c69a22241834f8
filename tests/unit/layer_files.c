/* layer_files.c - see layer_files.h. */
#include "layer_files.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layers *the_layers;
char layer_warning[512];
unsigned layer_warnings;

void layer_files_warn(const char *text) {
    layer_warnings++;
    snprintf(layer_warning, sizeof layer_warning, "%s", text);
}

void layer_files_end(void) {
    layers_close(the_layers);
    the_layers = NULL;
    layer_folder_end();
}

void layer_files_open(size_t memory) {
    char reason[LAYERS_REASON];
    const struct layers_options options = {.folder = layer_folder, .memory = memory};
    the_layers = layers_open(&options, reason);
    cr_assert_not_null(the_layers, "%s", reason);
}

const char *layer_file_reason(const char *name) {
    static char reason[LAYERS_REASON];
    const char *found = NULL;
    layers_refresh(the_layers);
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    const struct layer *layer = layers_find(catalogue, name);
    if (layer != NULL) {
        found = layers_reason(catalogue, layer);
    }
    for (size_t i = 0; i < catalogue->count && found == NULL; i++) {
        const struct layer_model *model = catalogue->models[i];
        if (strcmp(model->name, name) == 0 || strcmp(model->file, name) == 0) {
            found = model->reason;
        }
    }
    if (found != NULL) {
        strcpy(reason, found);
    }
    layers_give(the_layers, catalogue);
    return found == NULL ? NULL : reason;
}

bool layer_file_use(const char *name, attn_dtype dtype, struct layer_use *use,
                    char reason[static LAYERS_REASON]) {
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    const struct layer *layer = layers_find(catalogue, name);
    cr_assert_not_null(layer, "%s", name);
    cr_assert_eq(layer_begin(the_layers, layer, dtype, use), LAYER_OK);
    layers_give(the_layers, catalogue);
    void *scratch = malloc(layer_scratch(use));
    cr_assert_not_null(scratch);
    const size_t tasks = layer_tasks(use);
    for (size_t i = 0; i < tasks; i++) {
        layer_task(use, scratch);
    }
    free(scratch);
    return layer_wait(use, reason);
}
