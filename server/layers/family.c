/* family.c - see family.h. Each row of the table has the names that a family of models gives to the
 * tensors of an attention. */
#include "layers/pack.h"
#include "layers/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINEAR(q, k, v, o)                                                                         \
    [LAYER_W_Q] = (q ".weight"), [LAYER_W_K] = (k ".weight"), [LAYER_W_V] = (v ".weight"),         \
    [LAYER_W_O] = (o ".weight"), [LAYER_B_Q] = (q ".bias"), [LAYER_B_K] = (k ".bias"),             \
    [LAYER_B_V] = (v ".bias"), [LAYER_B_O] = (o ".bias")
#define TORCH                                                                                      \
    [LAYER_W_O] = "out_proj.weight", [LAYER_B_Q] = "in_proj_bias", [LAYER_B_O] = "out_proj.bias",  \
    [LAYER_BIAS_K] = "bias_k", [LAYER_BIAS_V] = "bias_v"

/* The models of which the attention is known to be the one that is computed here. Other models may
 * have the same names of tensors, but another attention. */
static const char *const bert[] = {
    "bert",          "roberta",  "xlm-roberta",          "camembert", "xmod", "electra", "ernie",
    "data2vec-text", "splinter", "roberta-prelayernorm", NULL};
static const char *const vit[] = {
    "vit", "deit", "vit_mae", "vit_msn", "yolos", "dinov2", "audio-spectrogram-transformer", NULL};
static const char *const distilbert[] = {"distilbert", NULL};
static const char *const gpt2[] = {"gpt2", "openai-gpt", NULL};
static const char *const llama[] = {"llama",     "mistral", "mixtral",   "qwen2",
                                    "qwen2_moe", "qwen3",   "qwen3_moe", NULL};
static const char *const bart[] = {"bart",
                                   "mbart",
                                   "plbart",
                                   "marian",
                                   "pegasus",
                                   "blenderbot",
                                   "blenderbot-small",
                                   "m2m_100",
                                   "opt",
                                   "whisper",
                                   "wav2vec2",
                                   "hubert",
                                   "clip_vision_model",
                                   "siglip_vision_model",
                                   NULL};
static const char *const t5[] = {"t5", "mt5", "umt5", NULL};

static const struct family families[] = {
    {.name = "torch",
     .tensors = {[LAYER_W_Q] = "in_proj_weight", TORCH},
     .fused_weights = true,
     .fused_biases = true,
     .needs_output = true},
    {.name = "torch",
     .tensors = {[LAYER_W_Q] = "q_proj_weight",
                 [LAYER_W_K] = "k_proj_weight",
                 [LAYER_W_V] = "v_proj_weight",
                 TORCH},
     .fused_biases = true,
     .needs_output = true},
    {.name = "bert",
     .models = bert,
     .tensors = {LINEAR("self.query", "self.key", "self.value", "output.dense")},
     .needs_output = true},
    {.name = "vit",
     .models = vit,
     .tensors = {LINEAR("attention.query", "attention.key", "attention.value", "output.dense")},
     .needs_output = true},
    {.name = "distilbert",
     .models = distilbert,
     .tensors = {LINEAR("q_lin", "k_lin", "v_lin", "out_lin")},
     .needs_output = true},
    {.name = "gpt2",
     .models = gpt2,
     .tensors = {[LAYER_W_Q] = "c_attn.weight",
                 [LAYER_B_Q] = "c_attn.bias",
                 [LAYER_W_O] = "c_proj.weight",
                 [LAYER_B_O] = "c_proj.bias"},
     .fused_weights = true,
     .fused_biases = true,
     .in_out = true,
     .needs_output = true,
     .causal = true},
    {.name = "llama",
     .models = llama,
     .tensors = {LINEAR("q_proj", "k_proj", "v_proj", "o_proj"), [LAYER_NORM_Q] = "q_norm.weight",
                 [LAYER_NORM_K] = "k_norm.weight"},
     .needs_output = true,
     .causal = true,
     .rotary = true},
    {.name = "bart",
     .models = bart,
     .tensors = {LINEAR("q_proj", "k_proj", "v_proj", "out_proj")},
     .needs_output = true},
    {.name = "t5",
     .models = t5,
     .tensors = {[LAYER_W_Q] = "q.weight",
                 [LAYER_W_K] = "k.weight",
                 [LAYER_W_V] = "v.weight",
                 [LAYER_W_O] = "o.weight"},
     .ending = "Attention.",
     .needs_output = true,
     .unscaled = true},
    {.name = "plain",
     .tensors = {[LAYER_W_Q] = "W_Q",
                 [LAYER_W_K] = "W_K",
                 [LAYER_W_V] = "W_V",
                 [LAYER_W_O] = "W_O",
                 [LAYER_B_Q] = "b_Q",
                 [LAYER_B_K] = "b_K",
                 [LAYER_B_V] = "b_V",
                 [LAYER_B_O] = "b_O",
                 [LAYER_NORM_Q] = "norm_Q",
                 [LAYER_NORM_K] = "norm_K",
                 [LAYER_BIAS_K] = "bias_K",
                 [LAYER_BIAS_V] = "bias_V"},
     .in_out = true},
};

enum {
    FAMILIES = sizeof families / sizeof *families
};

/* ---------------------------------------------------------------------------------- the tensors */

/* Cuts the tensor of Q, which holds Q, K and V, into three equal parts. */
static bool split_fused(const struct search *s, enum layer_part first) {
    struct layer_tensor *parts = &s->layer->tensors[first];
    const size_t all = parts[0].count;
    if (parts[0].shard == NULL) {
        return true;
    }
    if (all % 3 != 0) {
        return search_refuse(s->layer, "%s has %zu outputs, which is no multiple of 3",
                             s->family->tensors[first], all);
    }
    for (size_t i = 3; i-- > 0;) {
        parts[i] = parts[0];
        parts[i].first = i * (all / 3);
        parts[i].count = all / 3;
    }
    return true;
}

static bool read_tensors(const struct search *s) {
    for (int part = 0; part < LAYER_RELATIVE_BIAS; part++) {
        const struct family_tensor *tensor =
            search_tensor(s, s->prefix, s->prefix_size, s->family->tensors[part]);
        if (tensor != NULL &&
            !search_read(s, tensor, part <= LAYER_W_O, &s->layer->tensors[part])) {
            return false;
        }
    }
    return (!s->family->fused_weights || split_fused(s, LAYER_W_Q)) &&
           (!s->family->fused_biases || split_fused(s, LAYER_B_Q));
}

/* ------------------------------------------------------------------------------------ the sizes */

/* Checks that a vector has as many numbers as it should, if the layer has it. */
static bool check_vector(struct layer *layer, enum layer_part part, const char *name, size_t size) {
    const struct layer_tensor *t = &layer->tensors[part];
    return t->shard == NULL || t->count == size ||
           search_refuse(layer, "the %s has %zu numbers, not %zu", name, t->count, size);
}

static bool find_heads(const struct search *s) {
    static const char *const encoder[] = {"heads",  "num_heads", "num_attention_heads",
                                          "n_head", "n_heads",   "encoder_attention_heads",
                                          NULL};
    static const char *const decoder[] = {"decoder_attention_heads",
                                          "heads",
                                          "num_heads",
                                          "num_attention_heads",
                                          "n_head",
                                          "n_heads",
                                          NULL};
    static const char *const kv_names[] = {"kv_heads", "num_key_value_heads", NULL};
    struct layer *layer = s->layer;
    layer->heads =
        config_count(s->config, strstr(s->prefix, "decoder") != NULL ? decoder : encoder, 0);
    if (layer->heads == 0) {
        return search_refuse(layer, "the number of heads is not known: neither __metadata__ has "
                                    "\"heads\" nor config.json has \"num_attention_heads\"");
    }
    layer->kv_heads = config_count(s->config, kv_names, layer->heads);
    return (layer->kv_heads > 0 && layer->heads % layer->kv_heads == 0) ||
           search_refuse(layer, "%zu heads are no multiple of %zu heads of keys", layer->heads,
                         layer->kv_heads);
}

static bool check_sizes(const struct search *s) {
    struct layer *layer = s->layer;
    const struct layer_tensor *t = layer->tensors;
    const size_t q = t[LAYER_W_Q].count, k = t[LAYER_W_K].count, v = t[LAYER_W_V].count;
    layer->d_model = pack_inputs(&t[LAYER_W_Q]);
    layer->d_context = pack_inputs(&t[LAYER_W_K]);
    layer->d_value = pack_inputs(&t[LAYER_W_V]);
    if (q % layer->heads != 0) {
        return search_refuse(layer,
                             "the queries have %zu columns, which is no multiple of %zu heads", q,
                             layer->heads);
    }
    layer->d = q / layer->heads;
    if (k != layer->kv_heads * layer->d) {
        return search_refuse(layer, "the keys have %zu columns, not %zu heads of %zu columns", k,
                             layer->kv_heads, layer->d);
    }
    if (v % layer->kv_heads != 0) {
        return search_refuse(layer,
                             "the values have %zu columns, which is no multiple of %zu heads", v,
                             layer->kv_heads);
    }
    layer->d_v = v / layer->kv_heads;
    layer->d_out = t[LAYER_W_O].shard == NULL ? layer->heads * layer->d_v : t[LAYER_W_O].count;
    if (t[LAYER_W_O].shard != NULL && pack_inputs(&t[LAYER_W_O]) != layer->heads * layer->d_v) {
        return search_refuse(layer,
                             "the output projection has %zu inputs, but the heads have %zu "
                             "columns together",
                             pack_inputs(&t[LAYER_W_O]), layer->heads * layer->d_v);
    }
    return check_vector(layer, LAYER_B_Q, "bias of Q", q) &&
           check_vector(layer, LAYER_B_K, "bias of K", k) &&
           check_vector(layer, LAYER_B_V, "bias of V", v) &&
           check_vector(layer, LAYER_B_O, "bias of the output", layer->d_out) &&
           check_vector(layer, LAYER_NORM_Q, "norm of Q", layer->d) &&
           check_vector(layer, LAYER_NORM_K, "norm of K", layer->d) &&
           check_vector(layer, LAYER_BIAS_K, "bias_k", k) &&
           check_vector(layer, LAYER_BIAS_V, "bias_v", v);
}

/* ----------------------------------------------------------------------------------- the layers */

/* Returns the family of which a tensor is the W_Q, and the size of the prefix of its name. */
static const struct family *family_of(const struct search *s, const char *name, size_t *prefix) {
    const size_t size = strlen(name);
    for (size_t i = 0; i < FAMILIES; i++) {
        const struct family *f = &families[i];
        const size_t end = strlen(f->tensors[LAYER_W_Q]);
        if (size < end || strcmp(name + size - end, f->tensors[LAYER_W_Q]) != 0 ||
            (size > end && name[size - end - 1] != '.')) {
            continue;
        }
        *prefix = size - end;
        const size_t ending = f->ending == NULL ? 0 : strlen(f->ending);
        if (*prefix < ending ||
            memcmp(name + *prefix - ending, f->ending == NULL ? "" : f->ending, ending) != 0 ||
            (f->needs_output && search_tensor(s, name, *prefix, f->tensors[LAYER_W_O]) == NULL) ||
            (!f->fused_weights &&
             (search_tensor(s, name, *prefix, f->tensors[LAYER_W_K]) == NULL ||
              search_tensor(s, name, *prefix, f->tensors[LAYER_W_V]) == NULL))) {
            continue;
        }
        return f;
    }
    return NULL;
}

/* Gives a layer its name. Characters that a name cannot have become underscores. */
static void name_layer(const struct search *s) {
    struct layer *layer = s->layer;
    const size_t size = s->prefix_size == 0 ? strlen("attention") : s->prefix_size - 1;
    const char *rest = s->prefix_size == 0 ? "attention" : s->prefix;
    const int length =
        snprintf(layer->name, sizeof layer->name, "%s.%.*s", s->model->name, (int)size, rest);
    for (char *c = layer->name; *c != '\0'; c++) {
        if (strchr("._-", *c) == NULL && !(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z') &&
            !(*c >= '0' && *c <= '9')) {
            *c = '_';
            search_refuse(layer, "the names of its tensors have characters that are not in A-Z, "
                                 "a-z, 0-9, \".\", \"_\" and \"-\"");
        }
    }
    if (length > LAYERS_NAME) {
        search_refuse(layer, "its name has more than %d characters", LAYERS_NAME);
    }
}

static int by_layer_name(const void *a, const void *b) {
    return search_compare(((const struct layer *)a)->name, ((const struct layer *)b)->name);
}

bool family_find(struct layer_model *model, const struct family_tensor *tensors, size_t count,
                 struct config *config) {
    struct search s = {.model = model, .tensors = tensors, .count = count, .config = config};
    size_t found = 0, prefix;
    for (size_t i = 0; i < count; i++) {
        found += family_of(&s, tensors[i].stored.name, &prefix) != NULL;
    }
    model->layers = calloc(found + 1, sizeof *model->layers);
    if (model->layers == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        s.family = family_of(&s, tensors[i].stored.name, &s.prefix_size);
        if (s.family == NULL) {
            continue;
        }
        config->of_text = s.family->rotary;
        s.prefix = tensors[i].stored.name;
        s.layer = &model->layers[model->count++];
        s.layer->model = model;
        s.layer->family = s.family->name;
        name_layer(&s);
        attn_error error;
        if (s.layer->reason[0] == '\0' && read_tensors(&s) && find_heads(&s) && check_sizes(&s) &&
            search_options(&s) && !pack_check(s.layer, &error)) {
            search_refuse(s.layer, "%s", error.message);
        }
    }
    qsort(model->layers, model->count, sizeof *model->layers, by_layer_name);
    for (size_t i = 1; i < model->count; i++) {
        if (strcmp(model->layers[i - 1].name, model->layers[i].name) == 0) {
            search_refuse(&model->layers[i], "another layer of this model has the same name");
        }
    }
    return true;
}
