/*
 * layer_files.h - small files of stored layers in a temporary folder, for tests of server/layers.
 */
#ifndef LAYER_FILES_H
#define LAYER_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "layers/layers.h"

/* The folder, with a slash at its end, while a test runs. */
extern char layer_folder[64];

/* Make and remove the folder; the second one also closes the_layers. */
void layer_files_begin(void);
void layer_files_end(void);

/* The store of the folder. layer_files_open() opens it, with this many bytes of packed weights. */
extern struct layers *the_layers;
void layer_files_open(size_t memory);

/* Notes a warning of the store: the last one, and how many there were. */
void layer_files_warn(const char *text);
extern char layer_warning[512];
extern unsigned layer_warnings;

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

/* Looks at the folder, and returns why a layer, a model or a file is not served: "" if it is, and
 * NULL if it is not listed. */
const char *layer_file_reason(const char *name);

/* Begins to use a layer, packs it in this thread, and returns whether that succeeded. */
bool layer_file_use(const char *name, attn_dtype dtype, struct layer_use *use,
                    char reason[static LAYERS_REASON]);

#endif
