/*
 * layers.h - stored layers: the attention weights of models, in safetensors files of one folder.
 *
 * layers_open() reads the headers of all files and starts a thread that looks for changes every
 * second. A model is a file of the folder, or an index of several files. It may also stand in a
 * folder of its own, beside its config.json. Each set of weights of an attention in it is a layer.
 * A layer has the name of its model, a dot, and the names of its tensors as far as they are the
 * same.
 *
 * The weights of a layer are read, widened and packed when a request first uses it. Packed weights
 * count in a budget of their own, and those that were not used for the longest time are freed.
 * Files are read and not mapped, because a mapped file that becomes shorter ends the process.
 *
 * This folder knows the formats of models. It knows nothing of HTTP and of requests.
 */
#ifndef LAYERS_H
#define LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "attention.h"
#include "codec/binary.h"

enum {
    LAYERS_NAME = 128,  /* the most characters of a name */
    LAYERS_REASON = 256 /* bytes of a text that says why something is not served */
};

/* -------------------------------------------------------------------------------------- a layer */

/* One of the files of a model. It is open only while it is read. */
struct layer_shard {
    int folder;    /* borrowed: the descriptor of the folder */
    char *path;    /* owned; inside the folder */
    uint64_t data; /* where the bytes of the tensors begin */
    /* The properties that the file had when its header was read. */
    uint64_t device, inode, size;
    struct timespec modified, changed;
};

enum {
    LAYER_LEAST_BLOCK = 32 /* columns of a block that has its own scale, if a row has several */
};

/* The scales of a matrix of 8 bits, which its numbers are multiplied by: one for each block of
 * `block_rows` rows and `block_columns` columns, of which the last ones may be smaller. */
struct layer_scales {
    const struct layer_shard *shard; /* NULL: the matrix has none */
    enum codec_type type;
    uint64_t offset;
    size_t columns;
    size_t block_rows, block_columns;
};

/* A matrix or vector of a layer in a file: a tensor, or a part of one. A part is `count` outputs
 * from `first` on: rows if out_in, otherwise columns. They lie in blocks of `block`, and each block
 * begins `stride` outputs after the one before it; with 0 they lie together. */
struct layer_tensor {
    const struct layer_shard *shard; /* NULL: the layer has no such tensor */
    enum codec_type type;
    uint64_t offset;      /* of the tensor, in the file */
    size_t rows, columns; /* of the whole tensor; a vector has one row */
    bool out_in;          /* (outputs, inputs), as torch.nn.Linear has it */
    size_t first, count;  /* outputs */
    size_t block, stride;
    bool from_one; /* the numbers of the file are differences from 1 */
    struct layer_scales scales;
    bool ones; /* all numbers are 1, and none is in the file */
};

/* The tensors of a layer. */
enum layer_part {
    LAYER_W_Q,
    LAYER_W_K,
    LAYER_W_V,
    LAYER_W_O, /* matrices */
    LAYER_B_Q,
    LAYER_B_K,
    LAYER_B_V,
    LAYER_B_O, /* vectors from here on */
    LAYER_NORM_Q,
    LAYER_NORM_K,
    LAYER_NORM_V,
    LAYER_BIAS_K,
    LAYER_BIAS_V,
    LAYER_SINK,          /* (heads) */
    LAYER_RELATIVE_BIAS, /* (buckets, heads): T5's relative_attention_bias */
    LAYER_W_G,           /* a matrix: the output gate */
    LAYER_B_G,
    LAYER_PARTS
};

struct layer_packed;

/* A layer does not change after it was found, except for `packed`. */
struct layer {
    char name[LAYERS_NAME + 1];
    const char *family; /* whose names the tensors have, such as "bert" */
    struct layer_model *model;
    char reason[LAYERS_REASON]; /* what is wrong with the layer itself; see layers_reason() */
    struct layer_tensor tensors[LAYER_PARTS];
    size_t d_model, d_context, d_value; /* columns of X, of the context and of the value_context */
    size_t heads, kv_heads, d, d_v, d_out;
    size_t bytes;         /* of its tensors in the file */
    attn_options options; /* those of the model: causal, scale, window, softcap; no pointers */
    bool rotates;         /* Q and K are rotated as `rotary` says */
    attn_rotary rotary;   /* its lists are owned by the model */
    size_t positions;     /* it is known at the positions below this one; 0: at all */
    bool zero_key;
    bool bidirectional;             /* keys before and after the query have their own buckets */
    size_t max_distance;            /* this distance and larger ones share the last bucket */
    struct layer_packed *packed[2]; /* by attn_dtype; the store's mutex guards them */
};

/* A model and its layers. */
struct layer_model {
    char name[LAYERS_NAME + 1];
    char file[256];             /* the path of its first file inside the folder */
    char reason[LAYERS_REASON]; /* why no layer of it is served; empty if there are layers */
    struct layer *layers;       /* owned; sorted by search_compare() */
    size_t count;
    /* The rest is for this folder. */
    struct layer_shard *shards;
    size_t shard_count;
    double *factors; /* owned; the lists of `rotary` of all layers, one after the other */
    size_t factor_count;
    char *ignored; /* owned; names of keys of its config.json that are not known and not needed, one
                    * behind the other, and an empty one; NULL: none */
    size_t ignored_size;
    uint64_t version; /* a hash of what the file system says of its files */
    size_t left_out;  /* bytes that its layers would take in a catalogue that is full; else 0 */
    struct layer_model *next; /* in a list of models that nothing uses */
    bool published;           /* a catalogue has had it; only the refresh uses this */
    size_t users;             /* catalogues and requests that use it; the store's mutex guards it */
};

/* ------------------------------------------------------------------------------------ the store */

struct layers_options {
    const char *folder;
    size_t memory;       /* bytes of packed weights */
    size_t descriptions; /* bytes that a catalogue may take; 0: 64 MiB */
    size_t files;        /* the most files and folders that are taken; 0: 16384 */
    /* Writes a line of the log, when and by whomever the folder is looked at; NULL: no log. */
    void (*warn)(const char *text);
};

struct layers;

/* Opens a folder. Returns owned, or NULL with a text in `reason`. A file that cannot be served is
 * no error: the catalogue has the reason. */
struct layers *layers_open(const struct layers_options *options, char reason[static LAYERS_REASON]);

/* Ends the thread and frees everything. Nothing may be in use. NULL is allowed. */
void layers_close(struct layers *layers);

/* Looks for changes now. */
void layers_refresh(struct layers *layers);

/* A line of the list of all layers: a layer, or a model of which no layer is served. */
struct layers_entry {
    const struct layer_model *model;
    const struct layer *layer; /* NULL: the model */
    const char *reason;        /* why it is not served; empty if it is */
};

/* All models at one moment, sorted by name, and the list of all layers, sorted by name, too. */
struct layers_catalogue {
    struct layer_model **models;
    size_t count;
    struct layers_entry *entries;
    size_t entry_count, refused;   /* `refused` of these are not served */
    size_t left_out;               /* models for whose layers there was no room */
    size_t users;                  /* the store's mutex guards it */
    struct layers_catalogue *next; /* in a list of catalogues that nothing uses */
};

/* Returns the newest catalogue. It does not change, and lives until it is given back. */
const struct layers_catalogue *layers_take(struct layers *layers);
void layers_give(struct layers *layers, const struct layers_catalogue *catalogue);

/* Finds a layer or a model by its name. Returns NULL if there is none. */
const struct layer *layers_find(const struct layers_catalogue *catalogue, const char *name);
const struct layer_model *layers_find_model(const struct layers_catalogue *catalogue,
                                            const char *name);

/* Returns the first layer of a model whose name begins with `name` and a dot, and how many there
 * are; they follow it. `name` is that of the model, or has also the first parts of the names of its
 * layers. *other is another model that has such layers, or NULL; `name` is ambiguous then. Returns
 * NULL if there is none. */
const struct layer *layers_under(const struct layers_catalogue *catalogue, const char *name,
                                 size_t *count, const struct layer_model **other);

/* Returns why a layer of the catalogue is not served; empty if it is. */
const char *layers_reason(const struct layers_catalogue *catalogue, const struct layer *layer);

/* Returns the name of the layer or of the model. */
const char *layers_entry_name(const struct layers_entry *entry);

/* Returns the index of the first entry whose name comes after this one, or their number. */
size_t layers_after(const struct layers_catalogue *catalogue, const char *name);

struct layers_load {
    size_t layers, refused; /* in the newest catalogue */
    size_t packed;          /* bytes of packed weights, until they are freed */
};

struct layers_load layers_load(struct layers *layers);

/* -------------------------------------------------------------------------------- using a layer */

enum layer_status {
    LAYER_OK,
    LAYER_BUSY, /* layers in use take the memory, or the layer alone is larger than it */
    LAYER_NO_MEMORY
};

/* The use of a layer by one request. Zero-initialise. */
struct layer_use {
    const struct layer *layer;
    struct layer_packed *packed;
    attn_projection projection; /* the weights that `multihead` points to */
    attn_tensor tensors[LAYER_PARTS];
    bool unreadable; /* layer_wait() has failed because of the file, and not because of a number */
};

/* Begins to use a layer of a catalogue that the caller has taken. The layer stays as it is until
 * layer_end(), whatever happens to its file. */
enum layer_status layer_begin(struct layers *layers, const struct layer *layer, attn_dtype dtype,
                              struct layer_use *use);
void layer_end(struct layers *layers, struct layer_use *use);

/* Gives back the packed weights before the end of the use, when all is computed: a client may take
 * hours to read its answer. The layer stays as it is until layer_end(). */
void layer_give_weights(struct layers *layers, struct layer_use *use);

/* Drops the packed weights of a layer, those in use when their last use ends. They are freed
 * soon. */
void layers_unload(struct layers *layers, const struct layer *layer);

/* Frees a chunk of the packed weights that were dropped. The store does so anyway. Whoever packs
 * weights calls this before each task, so that more is freed than is packed. */
void layers_free_chunk(struct layers *layers);

/* Returns the bytes that all packed weights together may take. */
size_t layers_memory(const struct layers *layers);

/* Returns the bytes of the packed weights of a layer. */
size_t layer_packed_bytes(const struct layer *layer, attn_dtype dtype);

/* Fills the weights and the extra keys of a call, and the options of the layer. They point into
 * `use`. The weights have no numbers until they are packed. */
void layer_fill(struct layer_use *use, attn_multihead *multihead, attn_options *options);

/* Returns the bucket of a distance, key position minus query position, in the table of relative
 * bias (Raffel et al. 2020, arXiv 1910.10683; transformers' T5Attention). */
size_t layer_bucket(const struct layer *layer, int64_t distance);

/* Packing: the number of tasks that are left, 0 if the layer is packed; the bytes of scratch of one
 * task; its cost in multiply-adds. */
size_t layer_tasks(const struct layer_use *use);
size_t layer_scratch(const struct layer_use *use);
double layer_cost(const struct layer_use *use);

/* Runs the next of these tasks, of which many may run at the same time, also for other requests. */
void layer_task(struct layer_use *use, void *scratch);

/* Waits until all tasks that other threads have begun are done. Returns false with a text if the
 * file could not be read or has changed, or a weight is not finite. */
bool layer_wait(struct layer_use *use, char reason[static LAYERS_REASON]);

#endif
