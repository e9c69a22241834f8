/*
 * fuzz.h - what the fuzz targets share: the function that libFuzzer and replay.c call, and a check
 * that ends the process if it fails. Unlike assert(), it also works in builds with NDEBUG.
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* fuzz_require(condition, format, ...) prints the place, the condition and the message, and
 * aborts. */
#define fuzz_require(condition, ...)                                                               \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
