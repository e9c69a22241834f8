/*
 * layer_files.h - the store of the folder of support/layer_folder.h, for tests of server/layers.
 */
#ifndef LAYER_FILES_H
#define LAYER_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "layers/layers.h"
#include "support/count.h"
#include "support/layer_folder.h"

/* Closes the_layers and removes the folder. */
void layer_files_end(void);

/* The store of the folder. layer_files_open() opens it, with this many bytes of packed weights. */
extern struct layers *the_layers;
void layer_files_open(size_t memory);

/* Notes a warning of the store: the last one, and how many there were. */
void layer_files_warn(const char *text);
extern char layer_warning[512];
extern unsigned layer_warnings;

/* Looks at the folder, and returns why a layer, a model or a file is not served: "" if it is, and
 * NULL if it is not listed. */
const char *layer_file_reason(const char *name);

/* Begins to use a layer, packs it in this thread, and returns whether that succeeded. */
bool layer_file_use(const char *name, attn_dtype dtype, struct layer_use *use,
                    char reason[static LAYERS_REASON]);

#endif
