/* layer_folder.c - see layer_folder.h. */
#include "support/layer_folder.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/daemon.h"

char layer_folder[64];

void layer_folder_begin(void) {
    strcpy(layer_folder, "/tmp/layers-XXXXXX");
    cr_assert_not_null(mkdtemp(layer_folder));
    strcat(layer_folder, "/");
}

void layer_folder_end(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", layer_folder);
    cr_assert_eq(system(command), 0);
}

void layer_folder_serve(const char *const options[]) {
    const char *all[16] = {"--layers", layer_folder};
    for (size_t i = 0; options[i] != NULL; i++) {
        cr_assert_lt(i, 13);
        all[i + 2] = options[i];
    }
    daemon_start_with(all);
}

void layer_folder_stop(void) {
    daemon_end();
    layer_folder_end();
}

static void put(const char *name, const void *const pieces[], const size_t sizes[], size_t count) {
    char path[512], hidden[512];
    snprintf(path, sizeof path, "%s%s", layer_folder, name);
    snprintf(hidden, sizeof hidden, "%s.new", layer_folder);
    FILE *file = fopen(hidden, "wb");
    cr_assert_not_null(file);
    for (size_t i = 0; i < count; i++) {
        cr_assert(sizes[i] == 0 || fwrite(pieces[i], 1, sizes[i], file) == sizes[i]);
    }
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(rename(hidden, path), 0, "%s", path);
}

void layer_file_put(const char *name, const void *bytes, size_t size) {
    put(name, (const void *[]){bytes}, &size, 1);
}

void layer_file_text(const char *name, const char *text) {
    layer_file_put(name, text, strlen(text));
}

void layer_file_remove(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", layer_folder, name);
    cr_assert_eq(unlink(path), 0, "%s", path);
}

void layer_file_tensors(const char *name, const char *header, const void *data, size_t bytes) {
    const size_t length = strlen(header);
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) {
        prefix[i] = (unsigned char)((uint64_t)length >> 8 * i);
    }
    put(name, (const void *[]){prefix, header, data}, (size_t[]){8, length, bytes}, 3);
}

float layer_file_number(unsigned seed, size_t i) {
    return (float)((i * 37 + seed * 11 + i / 64) % 61) / 32 - 1;
}

void layer_file_model(const char *name, const char *prefix, size_t count, size_t inputs,
                      size_t outputs, unsigned seed) {
    static const char *const tensors[] = {"W_Q", "W_K", "W_V"};
    const size_t numbers = inputs * outputs, all = 3 * count * numbers;
    char *header = malloc(64 + 3 * count * (128 + strlen(prefix)));
    float *data = malloc(all * sizeof *data + 1);
    cr_assert(header != NULL && data != NULL);
    int size = sprintf(header, "{\"__metadata__\":{\"heads\":\"1\"}");
    for (size_t i = 0; i < 3 * count; i++) {
        size += sprintf(header + size,
                        ",\"%sh.%zu.%s\":{\"dtype\":\"F32\",\"shape\":[%zu,%zu],"
                        "\"data_offsets\":[%zu,%zu]}",
                        prefix, i / 3, tensors[i % 3], inputs, outputs, i * numbers * sizeof *data,
                        (i + 1) * numbers * sizeof *data);
    }
    sprintf(header + size, "}");
    for (size_t i = 0; i < all; i++) {
        data[i] = layer_file_number(seed, i);
    }
    layer_file_tensors(name, header, data, all * sizeof *data);
    free(header);
    free(data);
}

/* Cuts the first of several texts with ", " between them from *list. Returns NULL at the end. */
static char *next_of(char **list) {
    char *text = *list, *end = text != NULL ? strstr(text, ", ") : NULL;
    if (end != NULL) {
        *end = '\0';
    }
    *list = end != NULL ? end + 2 : NULL;
    return text;
}

void layer_file_described(const char *name, const char *prefixes, const char *tensors,
                          const char *metadata, const float *numbers) {
    char header[8192], prefix_list[256], list[2048], part[128], *prefix, *tensor;
    size_t at = 0, rows, columns;
    int size = metadata == NULL ? 0 : sprintf(header, ",\"__metadata__\":{%s}", metadata);
    strcpy(prefix_list, prefixes);
    for (char *rest = prefix_list; (prefix = next_of(&rest)) != NULL;) {
        strcpy(list, tensors);
        for (char *more = list; (tensor = next_of(&more)) != NULL;) {
            const int sizes = sscanf(tensor, "%127s %zux%zu", part, &rows, &columns);
            const bool bare = part[0] == '/', vector = sizes == 2;
            const size_t bytes = rows * (vector ? 1 : columns) * sizeof(float);
            cr_assert_geq(sizes, 2, "%s", tensor);
            size += sprintf(header + size, ",\"%s%s\":{\"dtype\":\"F32\",\"shape\":[%zu",
                            bare ? "" : prefix, part + bare, rows);
            size += vector ? 0 : sprintf(header + size, ",%zu", columns);
            size += sprintf(header + size, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes);
            at += bytes;
        }
    }
    header[0] = '{';
    strcpy(header + size, "}");
    float *made = malloc(at + 1);
    cr_assert_not_null(made);
    for (size_t i = 0; i < at / sizeof *made; i++) {
        made[i] = layer_file_number(1, i);
    }
    layer_file_tensors(name, header, numbers != NULL ? numbers : made, at);
    free(made);
}
