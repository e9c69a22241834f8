/*
 * layer_folder.h - a temporary folder with files of stored layers, for tests of server/layers and
 * of the daemon. It shares no code with the server.
 */
#ifndef SUPPORT_LAYER_FOLDER_H
#define SUPPORT_LAYER_FOLDER_H

#include <stddef.h>

/* The folder, with a slash at its end, while a test runs. */
extern char layer_folder[64];

/* Make and remove the folder. */
void layer_folder_begin(void);
void layer_folder_end(void);

/* Starts the daemon with the folder and with `options`, a list that ends with NULL. The daemon
 * knows all files that are there. */
void layer_folder_serve(const char *const options[]);

/* Stops the daemon and removes the folder. */
void layer_folder_stop(void);

/* Writes a file as a whole: under another name first. */
void layer_file_put(const char *name, const void *bytes, size_t size);

/* Does the same with a text. */
void layer_file_text(const char *name, const char *text);

void layer_file_remove(const char *name);

/* Writes a safetensors file from a header and the bytes of its tensors. */
void layer_file_tensors(const char *name, const char *header, const void *data, size_t bytes);

/* Writes a model of `count` layers of one head, whose tensors are "h.0.W_Q" and so on after a
 * prefix, such as "" or "v2.". W_Q, W_K and W_V have the shape (inputs, outputs). Number i of the
 * file is layer_file_number(seed, i). */
void layer_file_model(const char *name, const char *prefix, size_t count, size_t inputs,
                      size_t outputs, unsigned seed);
float layer_file_number(unsigned seed, size_t i);

/* Writes a model whose tensors are described as in tests/data/layers.txt: "W_Q 4x2, b_Q 2". Each
 * prefix of a list such as "a., b." has all of them, and a name that begins with '/' has none.
 * Without `numbers`, number i of the file is layer_file_number(1, i). `metadata` may be NULL. */
void layer_file_described(const char *name, const char *prefixes, const char *tensors,
                          const char *metadata, const float *numbers);

#endif
