/*
 * layer_config.h - models of one layer and their config.json, for tests of what is read from them.
 */
#ifndef LAYER_CONFIG_H
#define LAYER_CONFIG_H

#include "layers/layers.h"

/* Opens a folder, as layer_files.h says. */
void layer_config_begin(void);

/* A tensor, after the prefix of its layer. A vector has no rows. */
struct shape {
    const char *name;
    size_t rows, columns;
};

/* Writes the model "m" with one layer, whose numbers are layer_file_number(1, i). A list of shapes
 * ends with a name that is NULL, and so may `config` be: the model then has none. */
void layer_config_put(const char *prefix, const char *metadata, const char *config,
                      const struct shape *shapes);

/* Looks at the folder and returns the layer of the model. Its file may be gone afterwards. */
struct layer layer_config_find(void);

/* Expects that the layer is served (NULL), or is refused with this text. */
struct layer layer_config_expect(const char *text, const char *what);

/* A case: keys of config.json beside those that the layer needs, and why it is refused. */
struct layer_keys {
    const char *text, *reason;
};

/* Expects that the layer is served or refused with each of these keys. */
void layer_config_cases(const char *prefix, const char *needed, const struct shape *shapes,
                        const struct layer_keys *cases, size_t count);

/* The tensors of layers with 2 heads of 4 columns and an X of 8 columns. */
#define MATRICES(q, k, v, o)                                                                       \
    {q ".weight", 8, 8}, {k ".weight", 8, 8}, {v ".weight", 8, 8}, {                               \
        o ".weight", 8, 8                                                                          \
    }
#define BIASES(q, k, v, o)                                                                         \
    {q ".bias", 0, 8}, {k ".bias", 0, 8}, {v ".bias", 0, 8}, {                                     \
        o ".bias", 0, 8                                                                            \
    }
#define LLAMA MATRICES("q_proj", "k_proj", "v_proj", "o_proj")
#define BART  MATRICES("q_proj", "k_proj", "v_proj", "out_proj")
#define BERT                                                                                       \
    MATRICES("self.query", "self.key", "self.value", "output.dense"),                              \
        BIASES("self.query", "self.key", "self.value", "output.dense")
#define VIT                                                                                        \
    MATRICES("attention.query", "attention.key", "attention.value", "output.dense"),               \
        BIASES("attention.query", "attention.key", "attention.value", "output.dense")
#define GPT2                                                                                       \
    {"c_attn.weight", 8, 24}, {"c_proj.weight", 8, 8}, {"c_attn.bias", 0, 24}, {                   \
        "c_proj.bias", 0, 8                                                                        \
    }
#define T5 MATRICES("q", "k", "v", "o")
#define TORCH                                                                                      \
    {"in_proj_weight", 24, 8}, {"out_proj.weight", 8, 8}, {"in_proj_bias", 0, 24}, {               \
        "out_proj.bias", 0, 8                                                                      \
    }

#define HEADS "\"num_attention_heads\":2,\"hidden_size\":8"

#endif
