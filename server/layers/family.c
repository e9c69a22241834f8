/* family.c - see family.h. Each row of the table has the names that a family of models gives to the
 * tensors of an attention. */
#include "layers/pack.h"
#include "layers/search.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"

#define WEIGHTS(q, k, v, o)                                                                        \
    [LAYER_W_Q] = (q), [LAYER_W_K] = (k), [LAYER_W_V] = (v), [LAYER_W_O] = (o)
#define BIASES(q, k, v, o)                                                                         \
    [LAYER_B_Q] = (q), [LAYER_B_K] = (k), [LAYER_B_V] = (v), [LAYER_B_O] = (o)
#define LINEAR(q, k, v, o)                                                                         \
    WEIGHTS(q ".weight", k ".weight", v ".weight", o ".weight"),                                   \
        BIASES(q ".bias", k ".bias", v ".bias", o ".bias")
#define NORMS [LAYER_NORM_Q] = "q_norm.weight", [LAYER_NORM_K] = "k_norm.weight"
#define FUSED(qkv, o)                                                                              \
    [LAYER_W_Q] = (qkv ".weight"), [LAYER_B_Q] = (qkv ".bias"), [LAYER_W_O] = (o ".weight"),       \
    [LAYER_B_O] = (o ".bias")
#define TORCH                                                                                      \
    [LAYER_B_Q] = "in_proj_bias", [LAYER_B_O] = "out_proj.bias", [LAYER_BIAS_K] = "bias_k",        \
    [LAYER_BIAS_V] = "bias_v"

/* Why the layers of a family are not served. */
#define LATENT                                                                                     \
    "a norm stands between two projections of its keys (MLA), which stored layers have not. "      \
    "capture() (see server/layers/README.md) shows the heads of most such models"
#define SHARED                                                                                     \
    "it has no k_proj: it takes K and V of another layer, or makes them in another way. "          \
    "capture() (see server/layers/README.md) shows the heads of most such models"
#define CONVOLVED                                                                                  \
    "linear attention behind a convolution is not served; /linear-attention takes its Q, K and V " \
    "after the convolution" /* Qwen3-Next and Qwen3.5, whose other layers are served */

static const struct family families[] = {
    {.name = "torch", .tensors = {WEIGHTS("in_proj_weight", NULL, NULL, "out_proj.weight"), TORCH}},
    {.name = "torch",
     .tensors = {WEIGHTS("q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"),
                 TORCH}},
    {.name = "bert", .tensors = {LINEAR("self.query", "self.key", "self.value", "output.dense")}},
    {.name = "vit",
     .tensors = {LINEAR("attention.query", "attention.key", "attention.value", "output.dense")}},
    {.name = "distilbert", .tensors = {LINEAR("q_lin", "k_lin", "v_lin", "out_lin")}},
    {.name = "gpt2", .tensors = {FUSED("c_attn", "c_proj")}, .in_out = true},
    {.name = "llama",
     .tensors = {LINEAR("q_proj", "k_proj", "v_proj", "o_proj"), NORMS, [LAYER_SINK] = "sinks"}},
    {.name = "gated-delta-net",
     .tensors = {FUSED("in_proj_qkvz", "out_proj")},
     .ending = "linear_attn.",
     .refusal = CONVOLVED},
    {.name = "gated-delta-net",
     .tensors = {FUSED("in_proj_qkv", "out_proj")},
     .ending = "linear_attn.",
     .refusal = CONVOLVED},
    {.name = "llama", /* V is made of K */
     .tensors = {WEIGHTS("q_proj.weight", "k_proj.weight", NULL, "o_proj.weight"),
                 BIASES("q_proj.bias", "k_proj.bias", NULL, "o_proj.bias"), NORMS}},
    {.name = "llama",
     .tensors = {[LAYER_W_Q] = "q_proj.weight", [LAYER_W_O] = "o_proj.weight"},
     .without = "kv_a_proj_with_mqa.weight", /* as the next family has */
     .refusal = SHARED},
    {.name = "gemma4-vision",
     .tensors = {LINEAR("q_proj.linear", "k_proj.linear", "v_proj.linear", "o_proj.linear")}},
    {.name = "gemma4-audio",
     .tensors = {LINEAR("q_proj.linear", "k_proj.linear", "v_proj.linear", "post.linear")}},
    {.name = "mla", .tensors = {FUSED("kv_a_proj_with_mqa", "o_proj")}, .refusal = LATENT},
    {.name = "phi", .tensors = {LINEAR("q_proj", "k_proj", "v_proj", "dense")}},
    {.name = "phi3", .tensors = {FUSED("qkv_proj", "o_proj")}, .fusion = FAMILY_GROUPS},
    {.name = "gpt-neox", .tensors = {FUSED("query_key_value", "dense")}, .fusion = FAMILY_HEADS},
    {.name = "modernbert", .tensors = {FUSED("Wqkv", "Wo")}},
    {.name = "timm", .tensors = {FUSED("qkv", "proj")}}, /* which no known model type has */
    {.name = "bart", .tensors = {LINEAR("q_proj", "k_proj", "v_proj", "out_proj")}},
    {.name = "t5",
     .tensors = {WEIGHTS("q.weight", "k.weight", "v.weight", "o.weight")},
     .ending = "Attention."},
    {.name = "albert",
     .tensors = {LINEAR("query", "key", "value", "dense")},
     .ending = "attention."},
    {.name = "mpnet", .tensors = {LINEAR("q", "k", "v", "o")}, .ending = "attn."},
    {.name = "plain",
     .tensors =
         {WEIGHTS("W_Q", "W_K", "W_V", "W_O"),
          BIASES("b_Q", "b_K", "b_V", "b_O"), [LAYER_NORM_Q] = "norm_Q", [LAYER_NORM_K] = "norm_K",
          [LAYER_NORM_V] = "norm_V", [LAYER_BIAS_K] = "bias_K", [LAYER_BIAS_V] = "bias_V",
          [LAYER_SINK] = "sink", [LAYER_W_G] = "W_G", [LAYER_B_G] = "b_G"},
     .in_out = true,
     .optional_output = true},
};

/* ----------------------------------------------------------------------------- parts of tensors */

/* Cuts the tensor of Q, if it holds Q, K and V: then K has no name. */
static bool split_fused(const struct search *s, enum layer_part first) {
    struct layer_tensor *parts = &s->layer->tensors[first];
    const enum family_fusion fusion = s->family->fusion;
    const size_t all = parts[0].count, heads = s->layer->heads;
    const size_t groups = fusion == FAMILY_GROUPS ? s->layer->kv_heads : heads;
    assert(heads > 0); /* find_heads() was called */
    if (parts[0].shard == NULL || s->family->tensors[first + 1] != NULL) {
        return true;
    }
    if (all % (heads + 2 * groups) != 0) {
        return search_refuse(
            s, "%s has %zu outputs, which cannot be cut into Q of %zu heads, and K and V of %zu",
            s->family->tensors[first], all, heads, groups);
    }
    const size_t d = all / (heads + 2 * groups);
    for (size_t i = 3; i-- > 0;) {
        parts[i] = parts[0];
        parts[i].count = (i == 0 ? heads : groups) * d;
        parts[i].first = i == 0 ? 0 : (heads + (i - 1) * groups) * d;
        if (fusion == FAMILY_HEADS) {
            parts[i].first = i * d;
            parts[i].block = d;
            parts[i].stride = 3 * d;
        }
    }
    return true;
}

/* Cuts the tensor of Q of a model whose output has a gate: the rows of each head are those of its
 * queries, then those of its gate. */
static bool split_gate(const struct search *s) {
    struct layer_tensor *t = s->layer->tensors;
    for (int bias = 0; bias < 2 && search_is(s, MODEL_GATED); bias++) {
        struct layer_tensor *q = &t[bias ? LAYER_B_Q : LAYER_W_Q],
                            *gate = &t[bias ? LAYER_B_G : LAYER_W_G];
        if (q->shard != NULL && q->count % (2 * s->layer->heads) != 0) {
            return search_refuse(
                s, "%s has %zu outputs, which is no multiple of %zu heads of queries and gates",
                s->family->tensors[bias ? LAYER_B_Q : LAYER_W_Q], q->count, s->layer->heads);
        }
        const size_t d = q->count / (2 * s->layer->heads);
        q->count /= 2;
        q->block = d;
        q->stride = 2 * d;
        *gate = *q;
        gate->first = d;
    }
    return true;
}

/* Checks that a tensor is there if the model has it, and is not there otherwise. A family without a
 * name for it leaves that open. */
static bool check_presence(const struct search *s, enum layer_part part, bool wanted) {
    const bool there = s->layer->tensors[part].shard != NULL;
    return there == wanted || s->family->tensors[part] == NULL ||
           search_refuse(
               s,
               there ? "it has the tensor %s, which the attention of %s with these settings has not"
                     : "it has no tensor %s, which the attention of %s with these settings has",
               s->family->tensors[part], s->type->name);
}

/* Checks that the layer has the vectors that its model type has. */
static bool check_vectors(const struct search *s) {
    const unsigned biases = family_models_biases(s);
    bool good = true;
    if (s->type->name == NULL) {
        return true;
    }
    for (int i = 0; i < 4; i++) {
        good = good && check_presence(s, (enum layer_part)(LAYER_B_Q + i), biases >> i & 1);
    }
    for (enum layer_part part = LAYER_NORM_Q; part <= LAYER_NORM_K; part++) {
        good = good && check_presence(s, part, search_is(s, MODEL_NORMS));
        s->layer->tensors[part].from_one = search_is(s, MODEL_FROM_ONE);
    }
    return good && check_presence(s, LAYER_SINK, search_is(s, MODEL_SINKS));
}

/* ------------------------------------------------------------------------------------ the sizes */

/* Finds the sizes of a layer of a model with two sizes. Layers without a window have those of
 * global_head_dim and num_global_key_value_heads, which newer files have in per_layer_config. */
static bool find_own_sizes(struct search *s) {
    static const struct keys keys = {KEY_COUNT, 0, " head_dim num_key_value_heads "};
    const struct config_object all = config_inner(s->object, "per_layer_config");
    struct config_object layer = {all.document, NULL};
    long index;
    bool slides;
    struct own_sizes *own = &s->own;
    *own = (struct own_sizes){0};
    if (!search_is(s, MODEL_TWO_SIZES)) {
        return true;
    }
    const size_t count = family_keys_count(s, "num_hidden_layers", 0),
                 shared = family_keys_count(s, "num_kv_shared_layers", 0);
    if (!search_number(s, &index) || !family_options_slides(s, &slides)) {
        return false;
    }
    if ((size_t)index + shared >= count) {
        return search_refuse(s,
                             "it takes K and V of an earlier layer: num_hidden_layers is %zu, and "
                             "num_kv_shared_layers is %zu",
                             count, shared);
    }
    own->keys_are_values = !slides && family_keys_number(s, "attention_k_eq_v", 0) != 0;
    if (all.value == NULL) {
        own->d = slides ? 0 : family_keys_count(s, "global_head_dim", 512);
        own->kv_heads =
            own->keys_are_values ? family_keys_count(s, "num_global_key_value_heads", 0) : 0;
        return true;
    }
    for (const struct codec_value *v = codec_at(all.value, 0); v != NULL; v = codec_next(v)) {
        char *end;
        if (strtol(codec_name(v), &end, 10) == index && *end == '\0' && end != codec_name(v)) {
            layer.value = v; /* "5", or "05" in a model of ten layers */
        }
    }
    if (layer.value != NULL && codec_kind_of(layer.value) != CODEC_OBJECT) {
        return search_refuse(s, "per_layer_config has no object for layer %ld", index);
    }
    own->d = (size_t)config_number(layer, "head_dim", 0);
    own->kv_heads = (size_t)config_number(layer, "num_key_value_heads", 0);
    return family_keys_check(s, layer, "per_layer_config", &keys, 1);
}

/* Makes V of K, if the layer has no other V. */
static bool copy_keys(const struct search *s) {
    struct layer_tensor *t = s->layer->tensors;
    const bool copies =
        s->family->tensors[LAYER_W_K] != NULL && s->family->tensors[LAYER_W_V] == NULL;
    if (copies != s->own.keys_are_values) {
        return search_refuse(
            s, "it has %s tensor v_proj.weight, which the attention of %s with these settings %s",
            copies ? "no" : "a", s->type->name == NULL ? "others" : s->type->name,
            copies ? "has" : "has not");
    }
    if (copies) {
        t[LAYER_W_V] = t[LAYER_W_K];
        t[LAYER_B_V] = t[LAYER_B_K];
    }
    return true;
}

static bool find_heads(const struct search *s) {
    static const char *const names[] = {"heads",  "num_heads", "num_attention_heads",
                                        "n_head", "n_heads",   NULL};
    static const char *const kv_names[] = {"kv_heads", "num_key_value_heads", NULL};
    struct layer *layer = s->layer;
    const bool named = s->type->name != NULL;
    layer->heads = (size_t)(named ? family_keys_number(s, s->stack->heads, 0)
                                  : family_keys_agreed(s, names, 0));
    if (layer->heads == 0) {
        return search_refuse(s, "the number of heads is not known: __metadata__ has no \"heads\"");
    }
    const double heads = (double)layer->heads;
    layer->kv_heads = s->own.kv_heads != 0
                          ? s->own.kv_heads
                          : (size_t)(!named ? family_keys_agreed(s, kv_names, heads)
                                            : family_keys_number(s, "num_key_value_heads", heads));
    return (layer->kv_heads > 0 && layer->heads % layer->kv_heads == 0) ||
           search_refuse(s, "%zu heads are no multiple of %zu heads of keys", layer->heads,
                         layer->kv_heads);
}

/* Checks that the sizes of the tensors are those of the settings. Heads that were removed from a
 * model are found here, too. */
static bool check_settings(const struct search *s) {
    const struct layer *layer = s->layer;
    if (s->type->name == NULL) {
        return true;
    }
    const size_t columns = family_keys_count(s, s->stack->size, 0);
    const size_t whole = columns / layer->heads;
    const size_t d = s->own.d != 0                ? s->own.d
                     : s->type->head_size == NULL ? whole
                                                  : family_keys_count(s, s->type->head_size, whole);
    if (layer->d_model != columns) {
        return search_refuse(s, "W_Q has %zu inputs, but %s is %zu", layer->d_model, s->stack->size,
                             columns);
    }
    return layer->d == d ||
           search_refuse(s, "the heads have %zu columns, but they have %zu by config.json",
                         layer->d, d);
}

static bool check_sizes(const struct search *s) {
    struct layer *layer = s->layer;
    const struct layer_tensor *t = layer->tensors;
    const bool whole = search_is(s, MODEL_WHOLE);
    const size_t q = t[LAYER_W_Q].count, k = t[LAYER_W_K].count, v = t[LAYER_W_V].count;
    layer->d_model = pack_inputs(&t[LAYER_W_Q]);
    layer->d_context = pack_inputs(&t[LAYER_W_K]);
    layer->d_value = pack_inputs(&t[LAYER_W_V]);
    if (q % layer->heads != 0) {
        return search_refuse(s, "the queries have %zu columns, which is no multiple of %zu heads",
                             q, layer->heads);
    }
    layer->d = q / layer->heads;
    if (k != layer->kv_heads * layer->d) {
        return search_refuse(s, "the keys have %zu columns, not %zu heads of %zu columns", k,
                             layer->kv_heads, layer->d);
    }
    if (v % layer->kv_heads != 0) {
        return search_refuse(s, "the values have %zu columns, which is no multiple of %zu heads", v,
                             layer->kv_heads);
    }
    layer->d_v = v / layer->kv_heads;
    if (search_is(s, MODEL_NORM_V)) {
        struct layer_tensor *norm = &layer->tensors[LAYER_NORM_V];
        *norm = (struct layer_tensor){.shard = t[LAYER_W_V].shard, .rows = 1, .ones = true};
        norm->type = t[LAYER_W_V].type;
        norm->columns = norm->count = layer->d_v;
    }
    layer->d_out = t[LAYER_W_O].shard == NULL ? layer->heads * layer->d_v : t[LAYER_W_O].count;
    if (t[LAYER_W_O].shard != NULL && pack_inputs(&t[LAYER_W_O]) != layer->heads * layer->d_v) {
        return search_refuse(
            s, "the output projection has %zu inputs, but the heads have %zu columns together",
            pack_inputs(&t[LAYER_W_O]), layer->heads * layer->d_v);
    }
    /* Those of LAYER_B_Q and the parts behind it. */
    static const char *const names[] = {"bias of Q", "bias of K", "bias of V", "bias of the output",
                                        "norm of Q", "norm of K", "norm of V", "bias_k",
                                        "bias_v",    "sinks"};
    const size_t sizes[] = {q,
                            k,
                            v,
                            layer->d_out,
                            whole ? q : layer->d,
                            whole ? k : layer->d,
                            whole ? v : layer->d_v,
                            k,
                            v,
                            layer->heads};
    for (size_t i = 0; i < COUNT(names); i++) {
        const struct layer_tensor *own = &t[LAYER_B_Q + i];
        if (own->shard != NULL && own->count != sizes[i]) {
            return search_refuse(s, "the %s has %zu numbers, not %zu", names[i], own->count,
                                 sizes[i]);
        }
    }
    return check_settings(s);
}

/* ----------------------------------------------------------------------------------- the layers */

/* Returns the family of which a tensor is the W_Q, and the size of the prefix of its name. */
static const struct family *family_of(const struct search *s, const char *name, size_t *prefix) {
    const size_t size = strlen(name);
    for (const struct family *f = families; f < families + COUNT(families); f++) {
        const char *w_q = f->tensors[LAYER_W_Q], *ending = f->ending == NULL ? "" : f->ending;
        const size_t end = strlen(w_q), before = strlen(ending);
        *prefix = size - end;
        bool fits = size >= end + before && strcmp(name + *prefix, w_q) == 0 &&
                    (*prefix == 0 || name[*prefix - 1] == '.') &&
                    memcmp(name + *prefix - before, ending, before) == 0 &&
                    search_tensor(s, name, *prefix, f->without) == NULL;
        for (int part = LAYER_W_K; fits && part <= LAYER_W_O; part++) {
            fits = f->tensors[part] == NULL || (part == LAYER_W_O && f->optional_output) ||
                   search_tensor(s, name, *prefix, f->tensors[part]) != NULL;
        }
        if (fits) {
            return f;
        }
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
        if (strchr("._-", *c) == NULL && !isalnum((unsigned char)*c)) {
            *c = '_';
            search_refuse(s, "the names of its tensors have characters that are not in A-Z, a-z, "
                             "0-9, \".\", \"_\" and \"-\"");
        }
    }
    if (length > LAYERS_NAME) {
        search_refuse(s, "its name has more than %d characters", LAYERS_NAME);
    }
}

static int by_layer_name(const void *a, const void *b) {
    return search_compare(((const struct layer *)a)->name, ((const struct layer *)b)->name);
}

/* Finds the model type of a layer, its sizes and its options. */
static bool find_layer(struct search *s) {
    attn_error error;
    name_layer(s);
    if (s->family->refusal != NULL) {
        return search_refuse(s, "%s", s->family->refusal);
    }
    return s->layer->reason[0] == '\0' && family_keys_find_model(s) && family_tensors_read(s) &&
           find_own_sizes(s) && find_heads(s) && check_vectors(s) && copy_keys(s) &&
           split_fused(s, LAYER_W_Q) && split_fused(s, LAYER_B_Q) && split_gate(s) &&
           check_sizes(s) && family_options_read(s) &&
           (pack_check(s->layer, &error) || search_refuse(s, "%s", error.message));
}

bool family_find(struct layer_model *model, const struct family_tensor *tensors, size_t count,
                 const struct config *config) {
    struct search s = {.model = model, .tensors = tensors, .count = count, .config = config};
    size_t found = 0, prefix;
    for (size_t i = 0; i < count; i++) {
        found += family_of(&s, tensors[i].header.name, &prefix) != NULL;
    }
    if (account_take(config->account, (found + 1) * sizeof *model->layers)) {
        model->layers = calloc(found + 1, sizeof *model->layers);
    }
    if (model->layers == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        s.family = family_of(&s, tensors[i].header.name, &s.prefix_size);
        if (s.family == NULL) {
            continue;
        }
        s.prefix = tensors[i].header.name;
        s.layer = &model->layers[model->count++];
        s.layer->model = model;
        s.layer->family = s.family->name;
        find_layer(&s);
    }
    qsort(model->layers, model->count, sizeof *model->layers, by_layer_name);
    for (size_t i = 1; i < model->count; i++) {
        if (strcmp(model->layers[i - 1].name, model->layers[i].name) == 0) {
            s.layer = &model->layers[i];
            search_refuse(&s, "another layer of this model has the same name");
        }
    }
    return true;
}
