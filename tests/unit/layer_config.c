/* layer_config.c - see layer_config.h. */
#include "layer_config.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer_files.h"

void layer_config_begin(void) {
    layer_files_begin();
    layer_files_open(64 << 20);
}

void layer_config_put(const char *prefix, const char *metadata, const char *config,
                      const struct shape *shapes) {
    char header[4096];
    size_t at = 0;
    int size = sprintf(header, "{\"__metadata__\":{%s}", metadata);
    for (const struct shape *s = shapes; s->name != NULL; s++) {
        const size_t bytes = (s->rows == 0 ? 1 : s->rows) * s->columns * sizeof(float);
        char rows[32] = "";
        if (s->rows > 0) {
            snprintf(rows, sizeof rows, "%zu,", s->rows);
        }
        size +=
            sprintf(header + size,
                    ",\"%s%s\":{\"dtype\":\"F32\",\"shape\":[%s%zu],\"data_offsets\":[%zu,%zu]}",
                    prefix, s->name, rows, s->columns, at, at + bytes);
        at += bytes;
    }
    strcpy(header + size, "}");
    float *numbers = malloc(at + 1);
    cr_assert_not_null(numbers);
    for (size_t i = 0; i < at / sizeof *numbers; i++) {
        numbers[i] = layer_file_number(1, i);
    }
    layer_file_tensors("m.safetensors", header, numbers, at);
    free(numbers);
    if (config != NULL) {
        layer_file_text("m.config.json", config);
    }
}

struct layer layer_config_find(void) {
    layers_refresh(the_layers);
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    const struct layer_model *model = layers_find_model(catalogue, "m");
    cr_assert_not_null(model);
    cr_assert_eq(model->count, 1, "%s", model->reason);
    const struct layer layer = model->layers[0];
    layers_give(the_layers, catalogue);
    return layer;
}

struct layer layer_config_expect(const char *text, const char *what) {
    const struct layer layer = layer_config_find();
    if (text == NULL) {
        cr_expect_str_eq(layer.reason, "", "%s: %s", what, layer.reason);
    } else {
        cr_expect_not_null(strstr(layer.reason, text), "%s: %s", what, layer.reason);
    }
    return layer;
}

void layer_config_cases(const char *prefix, const char *needed, const struct shape *shapes,
                        const struct layer_keys *cases, size_t count) {
    char config[1024];
    for (size_t i = 0; i < count; i++) {
        snprintf(config, sizeof config, "{%s%s}", needed, cases[i].text);
        layer_config_put(prefix, "", config, shapes);
        layer_config_expect(cases[i].reason, cases[i].text);
    }
}
