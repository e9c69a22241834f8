/*
 * seeds.c - writes inputs for the fuzz targets that take whole requests: calls that are drawn from
 * the table of request fields, each in JSON, in the Open Inference Protocol and in safetensors. The
 * arguments are the folders for these three.
 */
#include <stdio.h>
#include <stdlib.h>

#include "support/drawn.h"

enum {
    SEEDS = 40, /* of each target */
    FORMATS = 3
};

/* Writes the bytes that choose a path and leave the rest as it usually is, and then the body. */
static void write_seed(const char *folder, size_t i, const unsigned char *first, size_t count,
                       const char *body, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/drawn-%zu", folder, i);
    FILE *to = fopen(path, "wb");
    if (to == NULL || fwrite(first, 1, count, to) != count || fwrite(body, 1, size, to) != size ||
        fclose(to) != 0) {
        perror(path);
        exit(EXIT_FAILURE);
    }
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc == FORMATS + 1 && i < SEEDS; i++) {
        struct rng rng = {i + 1};
        struct drawn_call drawn;
        size_t size, header;
        const unsigned char path[] = {(unsigned char)(i % 4), 0}; /* index in paths[] */
        draw_call(&rng, drawn_paths[i % 4], true, &drawn);
        char *body = binary_json(&drawn.call, "float32", &size);
        write_seed(argv[1], i, path, 1, body, size);
        free(body);
        draw_binary(i, &drawn);
        body = binary_inference(&drawn.call, "FP32", i % 2 == 0 ? ~0u : 0x55, "", &header, &size);
        write_seed(argv[2], i, path, 1, body, size);
        free(body);
        body = binary_safetensors(&drawn.call, "F32", &size);
        write_seed(argv[3], i, path, 2, body, size);
        free(body);
    }
    return argc == FORMATS + 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
