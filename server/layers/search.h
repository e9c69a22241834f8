/*
 * search.h - what is known while the layers of a model are found. search.c looks their tensors up,
 * and family_tensors.c reads them. family_models.c has the table of model types, family_keys.c
 * checks the keys of a config.json by what family_words.c knows of their words, family.c finds the
 * sizes of layers, family_options.c their options, and family_rotary.c their rotary embedding.
 */
#ifndef LAYERS_SEARCH_H
#define LAYERS_SEARCH_H

#include "layers/family.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* How one tensor holds Q, K and V, if K and V have no names. */
enum family_fusion {
    FAMILY_THIRDS, /* all heads of Q, then all of K, then all of V: as many of each */
    FAMILY_GROUPS, /* the same, but K and V may have fewer heads */
    FAMILY_HEADS   /* Q, K and V of the first head, then those of the next one */
};

/* The names that a family of models gives to the tensors of an attention. */
struct family {
    const char *name;
    const char *tensors[LAYER_PARTS]; /* their names after the prefix of a layer */
    const char *ending;               /* the prefix ends with this text; NULL: any prefix */
    enum family_fusion fusion;
    bool in_out;          /* matrices are (inputs, outputs) */
    bool optional_output; /* a prefix without W_O may be a layer of this family */
    const char *refusal;  /* why no layer of it is served; NULL: they are */
    const char *without;  /* a tensor that no layer of this family has */
};

/* The kinds of values that keys of config.json have. */
enum key_kind {
    KEY_COUNT,    /* a whole number from 1 to 2^20 */
    KEY_INDEX,    /* a whole number from 0 to 2^20 */
    KEY_POSITIVE, /* a number above 0 */
    KEY_NUMBER,
    KEY_FLAG,
    KEY_TEXT,
    KEY_TEXTS, /* a list of texts */
    KEY_LIST,  /* a list, which its reader checks */
    KEY_OBJECT /* an object, which its reader checks */
};

/* Keys of one kind. */
struct keys {
    enum key_kind kind;
    unsigned flags;    /* bits MODEL_*: only model types with all of them have the keys */
    const char *names; /* a space is before and after each */
};

/* The layers of a model that have the same settings. The first stack that fits is taken. */
struct stack {
    const char *part;         /* a part of the prefix, from dot to dot; NULL: any prefix */
    const char *family;       /* the name of the family of its tensors */
    const char *heads, *size; /* keys: the number of heads, and the columns of X */
    bool causal, cross;       /* a cross-attention has a context and no order */
};

enum model_slides {
    MODEL_NEVER_SLIDES,
    MODEL_SLIDES,             /* all layers, if there is a sliding_window */
    MODEL_SLIDES_BY_FLAG,     /* all layers, if use_sliding_window is true */
    MODEL_SLIDES_FROM_LAYER,  /* by layer_types, otherwise from max_window_layers on */
    MODEL_SLIDES_BY_TYPE,     /* by layer_types only */
    MODEL_SLIDES_ALTERNATELY, /* by layer_types, otherwise every second layer */
    MODEL_SLIDES_BY_PATTERN,  /* by layer_types, otherwise all layers but every n-th */
    MODEL_SLIDES_BETWEEN,     /* by layer_types, otherwise all layers but every n-th from 0 on; the
                               * window is around each query */
    MODEL_SLIDES_LOCALLY      /* GPT-Neo's attention_types */
};

/* Whose relative bias (Raffel et al. 2020) a layer has. */
enum model_relative {
    MODEL_NOT_RELATIVE,
    MODEL_RELATIVE_OF_FIRST, /* that of the first block of its stack */
    MODEL_RELATIVE_OF_EACH,  /* its own */
    MODEL_RELATIVE_OF_ALL    /* one that stands beside all layers */
};

enum {
    MODEL_UNSCALED = 1 << 0,       /* the scale is 1 */
    MODEL_ROTARY = 1 << 1,         /* Q and K are turned */
    MODEL_PARTLY = 1 << 2,         /* partial_rotary_factor may be less than 1 */
    MODEL_NEEDS_ROPE = 1 << 3,     /* rope_parameters or rope_scaling must be given */
    MODEL_ROPE_BY_TYPE = 1 << 4,   /* rope_parameters has an object for each type of layer */
    MODEL_NORMS = 1 << 5,          /* Q and K are normalised in each head */
    MODEL_FROM_ONE = 1 << 6,       /* norms are stored as differences from 1 */
    MODEL_SINKS = 1 << 7,          /* each head has a sink */
    MODEL_WHOLE = 1 << 8,          /* norms go over all heads together */
    MODEL_MROPE = 1 << 9,          /* rows of text have the same position on all axes */
    MODEL_INTERLEAVED = 1 << 10,   /* pairs of columns that are turned lie beside each other */
    MODEL_ALIBI = 1 << 11,         /* with the slopes of the ALiBi paper */
    MODEL_TURNS_LOCALLY = 1 << 12, /* layers that do not slide do not turn, if any layer slides */
    MODEL_SCALES_FAR = 1 << 13,    /* queries behind the positions of the training have a scale */
    MODEL_SHORT_ROPE = 1 << 14,    /* longrope with its short factors and a magnitude of its own */
    MODEL_GATED = 1 << 15,    /* the matrix of Q has the output gate, too: in each head behind Q */
    MODEL_NORM_V = 1 << 16,   /* rows of V are normalised, with weights that are 1 */
    MODEL_TWO_SIZES = 1 << 17 /* layers that do not slide have heads of another size */
};

/* A model type inside another one, such as the text model of one that sees, too. */
struct inner_model {
    const char *part; /* of the prefix; NULL: any prefix */
    const char *key;  /* of config.json; NULL ends a list */
    const char *type; /* its model_type; NULL: any model */
};

/* A model type of transformers: which keys of its config.json decide its attention, and which do
 * not change it. A key that is in none of these lists is refused if it may decide attention. Lists
 * end with NULL. */
struct model_type {
    const char *name; /* NULL: there is no model_type */
    const struct stack *stacks;
    const struct inner_model *inner; /* instead of stacks, or if config.json has the first one */
    const char *const *needs;        /* keys that must have a value, beyond those of the stacks */
    const char *const *shows;   /* keys that must be there or have a default, but may be null */
    const char *const *takes;   /* keys with a default */
    const char *const *ignores; /* keys that do not change its attention */
    const char *defaults;       /* " key=number key=number " of its class in all versions */
    unsigned biases;            /* bits BIAS_*: the biases that it always has */
    const char *bias_key;       /* a flag that decides about more of them */
    unsigned biases_of_key;
    bool bias_default;
    const char *head_size; /* a key: the columns of Q in a head; NULL: columns of X / heads */
    enum model_slides slides;
    enum model_relative relative;
    unsigned flags; /* bits MODEL_* */
    double base;    /* of rotary embedding, if config.json has none; 0: 10000; NAN: it must */
};

enum {
    BIAS_Q = 1 << 0,
    BIAS_K = 1 << 1,
    BIAS_V = 1 << 2,
    BIAS_O = 1 << 3,
    BIAS_QKV = BIAS_Q | BIAS_K | BIAS_V,
    BIAS_ALL = BIAS_QKV | BIAS_O
};

/* The sizes of a layer of Gemma 4 that the other layers do not have. */
struct own_sizes {
    size_t d, kv_heads;   /* 0: what the others have */
    bool keys_are_values; /* V is K before its norm and rotation */
};

enum {
    SEARCH_CHECKED = 8 /* more kinds of layers than a model has */
};

/* Settings whose keys were checked, and what was wrong with them. */
struct checked_settings {
    const struct model_type *type;
    const struct stack *stack;
    const struct codec_value *object;
    char reason[LAYERS_REASON];
};

/* The layer that is looked at. Everything is borrowed. */
struct search {
    struct layer_model *model;
    const struct family_tensor *tensors;
    size_t count;
    const struct config *config;
    const struct family *family;
    const char *prefix; /* of the tensors of the layer, with its last dot */
    size_t prefix_size;
    const struct model_type *type;
    const struct stack *stack;
    struct config_object object; /* the settings of this model type */
    struct layer *layer;
    struct own_sizes own;
    struct checked_settings checked[SEARCH_CHECKED];
    size_t checked_count;
};

/* The part of a reason that helps somebody whose model is not known. */
extern const char search_capture[];

/* Compares the names of two layers as strcmp() does, but numbers in them by their size: layer.2 is
 * before layer.10. */
int search_compare(const char *a, const char *b);

/* Returns the index of the first element of a sorted list that is not before the key, or their
 * number. The parameters are those of bsearch(). */
size_t search_first(const void *key, const void *list, size_t count, size_t size,
                    int (*compare)(const void *key, const void *element));

/* Returns whether a list that ends with NULL, or is NULL, has a name. */
bool search_list_has(const char *const *list, const char *name);

/* Returns whether a text has a name. A space is before and after each name in it. */
bool search_has_name(const char *names, const char *name);

/* Makes a text ASCII, so that it may stand in an answer: the name of a file may have any bytes, and
 * a reason may be cut inside of a character. Other bytes become question marks. */
void search_keep_ascii(char *text);

/* Returns whether the model type of the layer has a flag MODEL_*. */
static inline bool search_is(const struct search *s, unsigned flag) {
    return (s->type->flags & flag) != 0;
}

/* Notes why a layer is not served. The first reason counts. Returns false. */
bool search_refuse(const struct search *s, const char *format, ...)
    __attribute__((cold, format(printf, 2, 3)));

/* Returns whether the prefix of the layer has this part, from dot to dot. */
bool search_has_part(const struct search *s, const char *part);

/* Reads the number of the layer, which stands between two dots of its prefix. Refuses a layer whose
 * prefix has no number or several of them: nobody knows which one counts the layers. */
bool search_number(const struct search *s, long *number);

/* Finds a tensor by its prefix and the rest of its name, which may be NULL. Returns NULL if there
 * is none. */
const struct family_tensor *search_tensor(const struct search *s, const char *prefix,
                                          size_t prefix_size, const char *rest);

/* Returns the index of the first tensor whose name is not before this one. */
size_t search_from(const struct search *s, const char *name);

/* Returns what config.json says of weights that are stored in fewer bits than the model has. */
struct config_object search_quantization(const struct search *s);

/* Returns a tensor beside a matrix that is not known to leave the matrix as it is, or NULL:
 * q_proj.bias beside q_proj.weight is known, and q_proj.weight.absmax is not. */
const struct family_tensor *search_beside(const struct search *s, const char *part);

/* Reads a tensor as a matrix, or as a vector: all axes but the last have the size 1. Returns false
 * with the reason in the layer. */
bool search_read(const struct search *s, const struct family_tensor *from, bool matrix,
                 struct layer_tensor *to);

/* Finds a model type. NULL stands for a model without a model_type. Returns NULL if the type is not
 * known. */
const struct model_type *family_models_find(const char *name);

/* Returns the model type of a config.json without model_type, or NULL: all types with tensors of
 * this family and with these keys must have the same attention. */
const struct model_type *family_models_guess(const char *family, struct config_object object);

/* Writes the names of the model types that have layers of a family, or "none". */
void family_models_list(const char *family, size_t room, char *text);

/* Returns whether a key decides the attention of the model type of the layer. */
bool family_models_uses(const struct search *s, const char *key);

/* Returns the biases of the layer: bits BIAS_*. */
unsigned family_models_biases(const struct search *s);

/* Returns the number that a key has if config.json has not the key, or 0 if it must be there. */
double family_models_default(const struct model_type *type, const char *key);

/* Returns whether a key changes the attention of no model type. */
bool family_models_ignore(const char *key);

/* Finds the model type, the stack and the settings of the layer, and checks all keys of the
 * settings. Returns false with the reason in the layer. */
bool family_keys_find_model(struct search *s);

/* Checks that every key of an object is among `count` kinds of keys and has its kind. `where` names
 * the object in the reason. */
bool family_keys_check(const struct search *s, struct config_object object, const char *where,
                       const struct keys *keys, size_t count);

/* Returns whether the name of a key speaks of attention, so that the key may decide it. */
bool family_words_speak(const struct search *s, const char *name);

/* Returns whether a flag says what the model type does without it. `value` is its text. */
bool family_words_no_news(const struct search *s, const char *name, const char *value);

/* Returns the text of the one value of a key that changes nothing, or NULL. */
const char *family_words_fixed(const char *name);

/* Each returns the value of a key that decides the attention of the model type. NULL: there is
 * none, it is null, or the model type does not use the key. */
const struct codec_value *family_keys_value(const struct search *s, const char *name);
const char *family_keys_text(const struct search *s, const char *name);

/* Each reads a number whose default is `otherwise`, which is also what a key has that the model
 * type does not use. Without a model_type, the metadata of the file of weights come before
 * config.json. A count is a number from 0 to 2^20. A flag is 0 or 1. */
double family_keys_number(const struct search *s, const char *name, double otherwise);
size_t family_keys_count(const struct search *s, const char *name, size_t otherwise);

/* Reads a setting of a layer without a model_type that has several names. `names` ends with NULL.
 * The names that are given must agree. Returns 0 with the reason in the layer if they do not. */
double family_keys_agreed(const struct search *s, const char *const *names, double otherwise);

/* Reads the tensors of a layer, whose model type is known. Returns false with the reason in the
 * layer. */
bool family_tensors_read(const struct search *s);

/* Reads the rotary embedding of a layer. `slides` says whether it has a sliding window. Returns
 * false with the reason in the layer. */
bool family_rotary_find(const struct search *s, bool slides);

/* Finds whether the layer has a sliding window. Returns false with the reason in the layer. */
bool family_options_slides(const struct search *s, bool *slides);

/* Reads the options of a layer whose tensors and sizes are known. Returns false with the reason in
 * the layer. */
bool family_options_read(const struct search *s);

#endif
