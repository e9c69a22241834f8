/* save.h writes tensors into a file of safetensors. It is for C, C++ and CUDA. */
#ifndef SAVE_H
#define SAVE_H

#include <stdint.h>
#include <stdio.h>

/* The service computes in float64, answers with the verdict alone, and refuses wrong results. */
#define OPTIONS                                                                                    \
    "\"dtype\": \"float64\", \"return\": \"[\\\"comparison\\\"]\", "                               \
    "\"fail_on_difference\": \"true\""

struct tensor {
    const char *name, *type, *shape; /* such as "expected.lse", "F32" and "8, 512" */
    const void *data;                /* in the memory of the host, row by row */
    size_t bytes;
};

/* Returns 0 if it has written everything. The options are members of a JSON object of texts. */
static int save(const char *path, const char *options, const struct tensor *tensors, int count) {
    FILE *file = fopen(path, "wb");
    if (!file)
        return -1;
    uint64_t length = 0; /* of the head; it is written once it is known */
    size_t end = 0;
    fwrite(&length, 8, 1, file);
    fprintf(file, "{\"__metadata__\": {%s}", options);
    for (const struct tensor *t = tensors; t < tensors + count; end += t->bytes, t++)
        fprintf(file,
                ", \"%s\": {\"dtype\": \"%s\", \"shape\": [%s], \"data_offsets\": [%zu, %zu]}",
                t->name, t->type, t->shape, end, end + t->bytes);
    fputs("}", file);
    length = (uint64_t)ftell(file) - 8;
    for (const struct tensor *t = tensors; t < tensors + count; t++)
        fwrite(t->data, 1, t->bytes, file);
    rewind(file);
    fwrite(&length, 8, 1, file);
    int failed = ferror(file);
    return fclose(file) || failed ? -1 : 0;
}

#endif
