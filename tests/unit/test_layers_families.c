/*
 * test_layers_families.c - the model types that are known, and the keys of config.json that are
 * understood. tests/models compares with the models themselves.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "layer_config.h"
#include "layer_files.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

TestSuite(layers_families, .init = layer_config_begin, .fini = layer_files_end, .timeout = 60);

static const struct shape llama[] = {LLAMA, {0}};
static const struct shape bert[] = {BERT, {0}};
static const struct shape gpt2[] = {GPT2, {0}};
static const struct shape torch[] = {TORCH, {0}};
static const struct shape bart[] = {BART, BIASES("q_proj", "k_proj", "v_proj", "out_proj"), {0}};

enum {
    MOST_TENSORS = 16
};

/* ------------------------------------------------------------------------------ the model types */

/* Every model type, the least that its config.json and its file need, and what its attention is. */
static const struct row {
    const char *type, *prefix, *config;
    struct shape shapes[MOST_TENSORS];
    bool causal, rotates;
    double scale; /* 0: the default */
} rows[] = {
#define ROW_OF_BERT(type)                                                                          \
    { type, "layer.0.attention.", HEADS, {BERT}, false, false, 0 }
    ROW_OF_BERT("bert"),
    ROW_OF_BERT("bert-generation"),
    ROW_OF_BERT("camembert"),
    ROW_OF_BERT("data2vec-text"),
    ROW_OF_BERT("dpr"),
    ROW_OF_BERT("electra"),
    ROW_OF_BERT("ernie"),
    ROW_OF_BERT("layoutlm"),
    ROW_OF_BERT("megatron-bert"),
    ROW_OF_BERT("roberta"),
    ROW_OF_BERT("roberta-prelayernorm"),
    ROW_OF_BERT("splinter"),
    ROW_OF_BERT("xlm-roberta"),
    ROW_OF_BERT("xlm-roberta-xl"),
    ROW_OF_BERT("xmod"),
    {"bert", "layer.0.attention.", HEADS ",\"is_decoder\":true", {BERT}, true, false, 0},
    {"bert", "layer.0.crossattention.", HEADS ",\"is_decoder\":true", {BERT}, false, false, 0},
#define ROW_OF_VIT(type)                                                                           \
    { type, "encoder.layer.0.attention.", HEADS, {VIT}, false, false, 0 }
    ROW_OF_VIT("audio-spectrogram-transformer"),
    ROW_OF_VIT("deit"),
    ROW_OF_VIT("dinov2"),
    ROW_OF_VIT("vit"),
    ROW_OF_VIT("vit_mae"),
    ROW_OF_VIT("vit_msn"),
    ROW_OF_VIT("yolos"),
    {"distilbert",
     "layer.0.attention.",
     "\"n_heads\":2,\"dim\":8",
     {MATRICES("q_lin", "k_lin", "v_lin", "out_lin"), BIASES("q_lin", "k_lin", "v_lin", "out_lin")},
     false,
     false,
     0},
    {"gpt2", "h.1.attn.", "\"n_head\":2,\"n_embd\":8", {GPT2}, true, false, 0.5},
    {"gpt2",
     "h.1.attn.",
     "\"n_head\":2,\"n_embd\":8,\"scale_attn_by_inverse_layer_idx\":true",
     {GPT2},
     true,
     false,
     0.25},
    {"gpt2",
     "h.1.attn.",
     "\"n_head\":2,\"n_embd\":8,\"scale_attn_weights\":false",
     {GPT2},
     true,
     false,
     1},
    {"gpt2",
     "3b.1.attn.", /* the number of the layer is 1 */
     "\"n_head\":2,\"n_embd\":8,\"scale_attn_by_inverse_layer_idx\":true",
     {GPT2},
     true,
     false,
     0.25},
    {"openai-gpt", "h.0.attn.", "\"n_head\":2,\"n_embd\":8", {GPT2}, true, false, 0},
#define ROW_OF_BART(type, part, heads, causal)                                                     \
    {                                                                                              \
        type, part, "\"d_model\":8,\"encoder_attention_heads\":" heads,                            \
            {BART, BIASES("q_proj", "k_proj", "v_proj", "out_proj")}, causal, false, 0             \
    }
#define ENCODER "2,\"decoder_attention_heads\":3"
#define DECODER "3,\"decoder_attention_heads\":2"
    ROW_OF_BART("bart", "encoder.layers.0.self_attn.", ENCODER, false),
    ROW_OF_BART("bart", "decoder.layers.0.self_attn.", DECODER, true),
    ROW_OF_BART("bart", "decoder.layers.0.encoder_attn.", DECODER, false),
    ROW_OF_BART("bart", "encoder.layers.0.self_attn.", ENCODER ",\"is_decoder\":true", false),
    ROW_OF_BART("blenderbot", "encoder.layers.0.self_attn.", ENCODER, false),
    ROW_OF_BART("blenderbot-small", "encoder.layers.0.self_attn.", ENCODER, false),
    ROW_OF_BART("m2m_100", "encoder.layers.0.self_attn.", ENCODER, false),
    ROW_OF_BART("marian", "encoder.layers.0.self_attn.", ENCODER, false),
    ROW_OF_BART("mbart", "encoder.layers.0.self_attn.", ENCODER, false),
    ROW_OF_BART("pegasus", "encoder.layers.0.self_attn.", ENCODER, false),
    ROW_OF_BART("plbart", "encoder.layers.0.self_attn.", ENCODER, false),
    {"whisper",
     "decoder.layers.0.self_attn.",
     "\"d_model\":8,\"encoder_attention_heads\":" DECODER,
     {BART, {"q_proj.bias", 0, 8}, {"v_proj.bias", 0, 8}, {"out_proj.bias", 0, 8}},
     true,
     false,
     0},
#define ROW_OF_TOWER(type, causal)                                                                 \
    {                                                                                              \
        type, "layers.0.self_attn.", HEADS,                                                        \
            {BART, BIASES("q_proj", "k_proj", "v_proj", "out_proj")}, causal, false, 0             \
    }
    ROW_OF_TOWER("biogpt", true),
    ROW_OF_TOWER("clip_text_model", true),
    ROW_OF_TOWER("clip_vision_model", false),
    ROW_OF_TOWER("hubert", false),
    ROW_OF_TOWER("opt", true),
    ROW_OF_TOWER("siglip_text_model", false),
    ROW_OF_TOWER("siglip_vision_model", false),
    ROW_OF_TOWER("wav2vec2", false),
    {"siglip_vision_model", "head.attention.", HEADS, {TORCH}, false, false, 0},
    {"opt", "layers.0.self_attn.", HEADS ",\"enable_bias\":false", {BART}, true, false, 0},
    {"gpt_neo",
     "h.1.attn.attention.",
     "\"num_heads\":2,\"hidden_size\":8,\"window_size\":3,\"attention_layers\":[\"local\","
     "\"global\"]",
     {BART, {"out_proj.bias", 0, 8}},
     true,
     false,
     1},
#define ROW_OF_T5(type, part, name, causal)                                                        \
    {                                                                                              \
        type, part ".block.0.layer.0." name ".",                                                   \
            "\"num_heads\":2,\"d_model\":8,\"d_kv\":4,\"relative_attention_num_buckets\":4",       \
            {T5, {"relative_attention_bias.weight", 4, 2}}, causal, false, 1                       \
    }
    ROW_OF_T5("mt5", "encoder", "SelfAttention", false),
    ROW_OF_T5("t5", "encoder", "SelfAttention", false),
    ROW_OF_T5("t5", "decoder", "SelfAttention", true),
    ROW_OF_T5("t5", "decoder", "EncDecAttention", false),
    ROW_OF_T5("umt5", "encoder", "SelfAttention", false),

#define KV ",\"num_key_value_heads\":2"
#define ROW_OF_LLAMA(type, keys)                                                                   \
    { type, "layers.0.self_attn.", HEADS KV keys, {LLAMA}, true, true, 0 }
    ROW_OF_LLAMA("gemma", ",\"head_dim\":4"),
    {"gemma2",
     "layers.0.self_attn.",
     HEADS KV ",\"head_dim\":4,\"query_pre_attn_scalar\":16,\"sliding_window\":5,"
              "\"attn_logit_softcapping\":null",
     {LLAMA},
     true,
     true,
     0.25},
    {"gemma3_text",
     "layers.0.self_attn.",
     HEADS KV ",\"head_dim\":4,\"query_pre_attn_scalar\":4,\"sliding_window\":5",
     {LLAMA, {"q_norm.weight", 0, 4}, {"k_norm.weight", 0, 4}},
     true,
     true,
     0.5},
    {"gpt_neox",
     "layers.0.attention.",
     HEADS ",\"rotary_pct\":0.5",
     {{"query_key_value.weight", 24, 8},
      {"dense.weight", 8, 8},
      {"query_key_value.bias", 0, 24},
      {"dense.bias", 0, 8}},
     true,
     true,
     0},
    {"gpt_oss",
     "layers.0.self_attn.",
     HEADS KV ",\"head_dim\":4,\"sliding_window\":5,\"attention_bias\":false,"
              "\"rope_scaling\":{\"rope_type\":\"default\"}",
     {LLAMA, {"sinks", 0, 2}},
     true,
     true,
     0},
    {"granite",
     "layers.0.self_attn.",
     HEADS ",\"attention_multiplier\":0.125",
     {LLAMA},
     true,
     true,
     0.125},
    ROW_OF_LLAMA("llama", ""),
    ROW_OF_LLAMA("mistral", ",\"sliding_window\":null"),
    ROW_OF_LLAMA("mixtral", ""),
    ROW_OF_LLAMA("olmo", ""),
    {"olmo2",
     "layers.0.self_attn.",
     HEADS ",\"rms_norm_eps\":0.01",
     {LLAMA, {"q_norm.weight", 0, 8}, {"k_norm.weight", 0, 8}},
     true,
     true,
     0},
    {"phi3",
     "layers.0.self_attn.",
     HEADS,
     {{"qkv_proj.weight", 24, 8}, {"o_proj.weight", 8, 8}},
     true,
     true,
     0},
    {"qwen2",
     "layers.0.self_attn.",
     HEADS KV,
     {LLAMA, {"q_proj.bias", 0, 8}, {"k_proj.bias", 0, 8}, {"v_proj.bias", 0, 8}},
     true,
     true,
     0},
    {"qwen2_moe", "layers.0.self_attn.", HEADS KV ",\"qkv_bias\":false", {LLAMA}, true, true, 0},
    {"qwen3",
     "layers.0.self_attn.",
     HEADS KV ",\"head_dim\":4",
     {LLAMA, {"q_norm.weight", 0, 4}, {"k_norm.weight", 0, 4}},
     true,
     true,
     0},
    {"qwen3_moe",
     "layers.0.self_attn.",
     HEADS KV,
     {LLAMA, {"q_norm.weight", 0, 4}, {"k_norm.weight", 0, 4}},
     true,
     true,
     0},
};

Test(layers_families, are_known_by_their_model_type) {
    for (size_t i = 0; i < COUNT(rows); i++) {
        char config[512], what[160];
        snprintf(config, sizeof config, "{\"model_type\":\"%s\",%s}", rows[i].type, rows[i].config);
        snprintf(what, sizeof what, "%s %s", rows[i].type, rows[i].prefix);
        layer_config_put(rows[i].prefix, "", config, rows[i].shapes);
        const struct layer layer = layer_config_expect(NULL, what);
        const attn_options *o = &layer.options;
        cr_expect_eq(o->causal, rows[i].causal, "%s", what);
        cr_expect_eq(layer.rotates, rows[i].rotates, "%s", what);
        cr_expect_eq((o->flags & ATTN_FLAG_SCALE) != 0 ? o->scale : 0, rows[i].scale, "%s: %g",
                     what, o->scale);
        cr_expect_eq(layer.heads, 2, "%s", what);
    }
}

/* A model inside of another one has settings of its own. */
Test(layers_families, may_be_inside_of_another_model) {
    static const struct {
        const char *type, *prefix, *key, *inner, *reason;
        bool causal;
    } cases[] = {
        {"clip", "text_model.layers.0.self_attn.", "text_config", "clip_text_model", NULL, true},
        {"clip", "vision_model.layers.0.self_attn.", "vision_config", "clip_vision_model", NULL,
         false},
        {"siglip", "text_model.layers.0.self_attn.", "text_config", "siglip_text_model", NULL,
         false},
        {"llava", "vision_tower.layers.0.self_attn.", "vision_config", "clip_vision_model", NULL,
         false},
        {"clip", "text_model.layers.0.self_attn.", "vision_config", "clip_text_model",
         "config.json has no object text_config", false},
        {"clip", "other.layers.0.self_attn.", "text_config", "clip_text_model", "in this place",
         false},
        {"clip", "text_model.layers.0.self_attn.", "text_config", "clip",
         "no model_type of one model", false},
        {"clip", "text_model.layers.0.self_attn.", "text_config", "xglm", "model_type is xglm",
         false},
        {"clip", "text_model.layers.0.self_attn.", "text_config", "siglip_text_model",
         "model_type in text_config is siglip_text_model; only clip_text_model is known there",
         false},
        {"paligemma", "text_model.layers.0.self_attn.", "text_config", "clip_text_model",
         "model_type is paligemma", false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char config[512];
        snprintf(config, sizeof config,
                 "{\"model_type\":\"%s\",\"%s\":{\"model_type\":\"%s\"," HEADS "}}", cases[i].type,
                 cases[i].key, cases[i].inner);
        layer_config_put(cases[i].prefix, "", config, bart);
        const struct layer layer = layer_config_expect(cases[i].reason, cases[i].prefix);
        cr_expect_eq(layer.options.causal, cases[i].causal, "%s", cases[i].prefix);
    }
    layer_config_put("text_model.layers.0.self_attn.", "",
                     "{\"model_type\":\"clip\",\"pruned_heads\":{\"0\":[1]},\"text_config\":{"
                     "\"model_type\":\"clip_text_model\"," HEADS "}}",
                     bart);
    layer_config_expect("pruned_heads in config.json is {\"0\": [a list of numbers]}", "outside");
}

/* Two models of one type inside of another one have settings of their own. */
Test(layers_families, may_be_twice_inside_of_another_model) {
#define TEXT(name)   "language_model.self_attn." name
#define VISION(name) "vision_tower.self_attn." name
    static const struct shape both[] = {
        MATRICES(TEXT("q_proj"), TEXT("k_proj"), TEXT("v_proj"), TEXT("out_proj")),
        BIASES(TEXT("q_proj"), TEXT("k_proj"), TEXT("v_proj"), TEXT("out_proj")),
        MATRICES(VISION("q_proj"), VISION("k_proj"), VISION("v_proj"), VISION("out_proj")),
        BIASES(VISION("q_proj"), VISION("k_proj"), VISION("v_proj"), VISION("out_proj")),
        {0}};
    layer_config_put(
        "", "",
        "{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"clip_text_model\"," HEADS
        "},\"vision_config\":{\"model_type\":\"clip_text_model\",\"gate\":1," HEADS "}}",
        both);
    cr_expect_str_eq(layer_file_reason("m.language_model.self_attn"), "");
    const char *reason = layer_file_reason("m.vision_tower.self_attn");
    cr_expect_not_null(strstr(reason, "gate in config.json is 1, and this key is not known"), "%s",
                       reason);
}

/* torch.nn.MultiheadAttention has three weights if K or V has other columns than X, and one vector
 * of biases all the same. */
Test(layers_families, weights_apart_may_have_biases_together) {
    static const struct shape shapes[] = {{"q_proj_weight", 8, 8},
                                          {"k_proj_weight", 8, 6},
                                          {"v_proj_weight", 8, 5},
                                          {"out_proj.weight", 8, 8},
                                          {"in_proj_bias", 0, 24},
                                          {"out_proj.bias", 0, 8},
                                          {0}};
    layer_config_put("", "\"heads\":\"2\"", NULL, shapes);
    const struct layer layer = layer_config_expect(NULL, "weights apart");
    cr_expect(layer.d_context == 6 && layer.d_value == 5);
    cr_expect(layer.tensors[LAYER_B_V].first == 16 && layer.tensors[LAYER_B_V].count == 8);
}

/* The model type comes before the sizes, whatever names the tensors have. */
Test(layers_families, are_refused_by_their_model_type) {
    static const struct {
        const char *type;
        const struct shape *shapes;
        const char *reason;
    } cases[] = {
        {"clip_text_model", torch, "type clip_text_model has no attention with tensors named like"},
        {"xglm", bart, "model_type is xglm; the models with such tensors that are known are bart,"},
        {"moonshine", llama, "model_type is moonshine"},
        {"gpt_bigcode", gpt2,
         "model_type is gpt_bigcode; the models with such tensors that are known "
         "are gpt2, openai-gpt"},
        {"bert", llama, "type bert has no attention with tensors named like those of llama"},
        {"a\xc3\xa9", bert, "model_type is a??;"},
    };
    char config[256];
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(config, sizeof config, "{\"model_type\":\"%s\",\"num_attention_heads\":-3}",
                 cases[i].type);
        layer_config_put("layers.0.attention.", "", config, cases[i].shapes);
        layer_config_expect(cases[i].reason, cases[i].type);
    }
    layer_config_put("layers.0.attention2.", "", "{\"model_type\":\"bert\"," HEADS "}", bert);
    layer_config_expect("named like those of bert in this place", "attention2");
    layer_config_put("layers.0.attention.", "\"heads\":\"2\"", "{}", bert);
    layer_config_expect(
        "config.json gives no model_type; the models with such tensors that are known are "
        "bert,",
        "no type");
    layer_config_put("", "\"heads\":\"2\"", "[1]", torch);
    layer_config_expect("config.json is no object", "a list");
    layer_config_put("", "\"heads\":\"2\"", "{\"model_type\":[\"bert\"]}", torch);
    layer_config_expect("model_type in config.json is [\"bert\"]; it must be a text", "a list");
    layer_config_put("", "\"heads\":\"2\"", "{\"model_type\":null}", torch);
    layer_config_expect(NULL, "null");
}

/* ------------------------------------------------------------------------------ keys and values */

Test(layers_families, refuse_keys_that_are_not_known) {
    static const struct layer_keys cases[] = {
        {"", NULL},
        {",\"vocab_size\":7,\"torch_dtype\":\"bfloat16\",\"architectures\":[\"A\"]", NULL},
        {",\"new_key\":null", NULL},
        {",\"new_key\":{\"a\":[{\"b\":true}]}",
         "new_key in config.json is {\"a\": [{\"b\": true}]}, "
         "and this key is not known for model_type bert"},
        {",\"vocab_size activation\":1", "vocab_size activation in config.json is 1"},
        {",\"quantization_config\":{\"bits\":4}",
         "quantization_config in config.json is {\"bits\": 4}"},
        {",\"pruned_heads\":{}", NULL},
        {",\"is_causal\":true", NULL},
        {",\"alibi\":null", NULL},
        {",\"is_causal\":null",
         "is_causal in config.json is null; only true is known for this model_type"},
        {",\"pruned_heads\":{\"0\":[1]}",
         "pruned_heads in config.json is {\"0\": [a list of numbers]}; only "
         "{} is known"},
        {",\"position_embedding_type\":\"absolute\"", NULL},
        {",\"position_embedding_type\":\"relative_key\"",
         "position_embedding_type in config.json is "
         "\"relative_key\"; only \"absolute\" is known"},
        {",\"num_key_value_heads\":1", "num_key_value_heads in config.json is 1"},
        {",\"is_decoder\":1", "is_decoder in config.json is 1; it must be true or false"},
        {",\"is_causal\":false", "is_causal in config.json is false; only true is known"},
    };
    layer_config_cases("layer.0.attention.", "\"model_type\":\"bert\"," HEADS, bert, cases,
                       COUNT(cases));
}

Test(layers_families, refuse_values_of_another_kind) {
    static const struct layer_keys heads[] = {
        {"-2", "is -2; it must be a whole number from 1"},
        {"2.5", "is 2.5; it must be a whole"},
        {"\"2\"", "is \"2\"; it must be a whole number"},
        {"{\"a\":2}", "is {\"a\": 2}; it must be"},
        {"[2]", "is [a list of numbers]; it must be"},
        {"true", "is true; it must be"},
        {"0", "is 0; it must be"},
        {"1e9", "is 1000000000; it must be"},
        {"null", "config.json has no num_attention_heads"},
        {"2", NULL},
    };
    char config[256];
    for (size_t i = 0; i < COUNT(heads); i++) {
        snprintf(config, sizeof config,
                 "{\"model_type\":\"bert\",\"hidden_size\":8,\"num_attention_heads\":%s}",
                 heads[i].text);
        layer_config_put("layer.0.attention.", "", config, bert);
        layer_config_expect(heads[i].reason, heads[i].text);
    }
    static const struct layer_keys others[] = {
        {",\"rope_theta\":\"x\"",
         "rope_theta in config.json is \"x\"; it must be a number above 0"},
        {",\"rope_theta\":0", "rope_theta in config.json is 0; it must be a number above 0"},
        {",\"rope_theta\":-1", "rope_theta in config.json is -1; it must be a number above 0"},
        {",\"rope_scaling\":4", "rope_scaling in config.json is 4; it must be an object"},
        {",\"rope_scaling\":{\"factor\":{}}",
         "factor in rope_parameters is {}; it must be a number"},
        {",\"rope_scaling\":{\"type\":3}", "type in rope_parameters is 3; it must be a text"},
        {",\"rope_scaling\":{\"type\":\"su\"}",
         "rope_type in config.json is su, which is not known"},
        {",\"attention_bias\":\"no\"",
         "attention_bias in config.json is \"no\"; it must be true or false"},
        {",\"max_position_embeddings\":[]",
         "max_position_embeddings in config.json is []; it must be"},
        {",\"rope_scaling\":{},\"rope_parameters\":null", NULL},
    };
    layer_config_cases("layers.0.self_attn.", "\"model_type\":\"llama\"," HEADS, llama, others,
                       COUNT(others));
}

/* Null is false where a flag is read, and so it is not the default of a flag that is true without
 * it. */
Test(layers_families, refuse_null_for_true) {
    static const struct layer_keys vit_cases[] = {
        {",\"qkv_bias\":true", NULL},
        {",\"qkv_bias\":null", "qkv_bias in config.json is null; it must be true or false"},
    };
    static const struct layer_keys gpt2_cases[] = {
        {",\"scale_attn_weights\":null",
         "scale_attn_weights in config.json is null; it must be true or"},
        {",\"scale_attn_by_inverse_layer_idx\":null", NULL},
    };
    layer_config_cases("layer.0.attention.", "\"model_type\":\"vit\"," HEADS,
                       (const struct shape[]){VIT, {0}}, vit_cases, COUNT(vit_cases));
    layer_config_cases("h.0.attn.", "\"model_type\":\"gpt2\",\"n_head\":2,\"n_embd\":8", gpt2,
                       gpt2_cases, COUNT(gpt2_cases));
}

/* A key whose default differs between versions, or from null, must be there. */
Test(layers_families, refuse_keys_that_are_missing) {
    static const struct layer_keys cases[] = {
        {",\"num_key_value_heads\":2", "config.json has no sliding_window, which decides"},
        {",\"sliding_window\":null", "config.json has no num_key_value_heads, which decides"},
        {",\"num_key_value_heads\":2,\"sliding_window\":null", NULL},
    };
    layer_config_cases("layers.0.self_attn.", "\"model_type\":\"mistral\"," HEADS, llama, cases,
                       COUNT(cases));
}

/* The tensors must be those that the model has with these settings. */
Test(layers_families, have_the_tensors_of_their_settings) {
    static const struct shape biased[] = {
        LLAMA, BIASES("q_proj", "k_proj", "v_proj", "o_proj"), {0}};
    static const struct shape normed[] = {
        LLAMA, {"q_norm.weight", 0, 4}, {"k_norm.weight", 0, 4}, {0}};
    static const struct shape pruned[] = {
        {"self.query.weight", 4, 8},   {"self.key.weight", 4, 8},   {"self.value.weight", 4, 8},
        {"output.dense.weight", 8, 4}, {"self.query.bias", 0, 4},   {"self.key.bias", 0, 4},
        {"self.value.bias", 0, 4},     {"output.dense.bias", 0, 8}, {0}};
    static const struct shape wide[] = {
        {"self.query.weight", 16, 8},   {"self.key.weight", 16, 8},  {"self.value.weight", 16, 8},
        {"output.dense.weight", 8, 16}, {"self.query.bias", 0, 16},  {"self.key.bias", 0, 16},
        {"self.value.bias", 0, 16},     {"output.dense.bias", 0, 8}, {0}};
    static const struct shape sinks[] = {LLAMA, {"sinks", 0, 3}, {0}};
    static const struct {
        const char *config;
        const struct shape *shapes;
        const char *reason;
    } cases[] = {
        {"\"model_type\":\"llama\"," HEADS, biased, "it has the tensor q_proj.bias, which"},
        {"\"model_type\":\"llama\",\"attention_bias\":true," HEADS, biased, NULL},
        {"\"model_type\":\"llama\",\"attention_bias\":true," HEADS, llama,
         "it has no tensor q_proj.bias"},
        {"\"model_type\":\"llama\"," HEADS, normed, "it has the tensor q_norm.weight"},
        {"\"model_type\":\"qwen3_moe\",\"num_key_value_heads\":2," HEADS, llama,
         "it has no tensor q_norm.weight"},
        {"\"model_type\":\"bert\"," HEADS, pruned,
         "the heads have 2 columns, but they have 4 by config"},
        {"\"model_type\":\"bert\"," HEADS, wide,
         "the heads have 8 columns, but they have 4 by config"},
        {"\"model_type\":\"gpt_oss\",\"num_key_value_heads\":2,\"head_dim\":4,\"sliding_window\":4,"
         "\"attention_bias\":false,\"rope_parameters\":{\"rope_type\":\"default\"}," HEADS,
         sinks, "the sinks has 3 numbers, not 2"},
        {"\"model_type\":\"bert\",\"num_attention_heads\":2,\"hidden_size\":16", bert,
         "W_Q has 8 inputs, but hidden_size is 16"},
    };
    char config[256];
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(config, sizeof config, "{%s}", cases[i].config);
        layer_config_put("layers.0.attention.", "", config, cases[i].shapes);
        layer_config_expect(cases[i].reason, config);
    }
}

/* --------------------------------------------------------------------------------- the metadata */

Test(layers_families, need_no_config_if_their_names_say_what_they_are) {
    static const struct {
        const char *metadata, *config, *reason;
        size_t heads;
    } cases[] = {
        {"\"heads\":\"2\"", NULL, NULL, 2},
        {"\"num_heads\":\"4\",\"format\":\"pt\"", NULL, NULL, 4},
        {"\"heads\":\"2\",\"num_heads\":\"4\"", NULL, "num_heads is 4, but another name", 2},
        {"", NULL, "the number of heads is not known", 0},
        {"\"heads\":\"two\"", NULL, "heads in __metadata__ is \"two\"; it must be a whole number",
         0},
        {"\"heads\":\"2\",\"causal\":\"True\"", NULL,
         "causal in __metadata__ is \"True\"; it must be true or "
         "false",
         2},
        {"\"heads\":\"2\",\"scale\":\"big\"", NULL, "scale in __metadata__ is \"big\"", 2},
        {"", "{\"num_attention_heads\":2,\"causal\":true,\"scale\":3}", NULL, 2},
        {"", "{\"num_attention_heads\":2,\"model\":\"x\"}",
         "model in config.json is \"x\", and this key is "
         "not known for model_type null",
         2},
        {"\"config\":\"{\\\"heads\\\":2}\"", "{\"heads\":4}", NULL, 2},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        layer_config_put("", cases[i].metadata, cases[i].config, torch);
        const struct layer layer = layer_config_expect(cases[i].reason, cases[i].metadata);
        if (cases[i].reason == NULL) {
            cr_expect_eq(layer.heads, cases[i].heads, "%zu: %zu", i, layer.heads);
        }
        if (cases[i].config != NULL) {
            layer_file_remove("m.config.json");
        }
    }
}

/* An extra key has the columns of K, and its value those of V. */
Test(layers_families, have_an_extra_value_of_the_size_of_values) {
    struct shape shapes[] = {{"W_Q", 8, 4},    {"W_K", 8, 4},    {"W_V", 8, 6},
                             {"bias_K", 0, 4}, {"bias_V", 0, 6}, {0}};
    layer_config_put("", "\"heads\":\"2\"", NULL, shapes);
    const struct layer layer = layer_config_expect(NULL, "6 columns");
    cr_expect_eq(layer.d, 2);
    cr_expect_eq(layer.d_v, 3);
    shapes[4].columns = 4;
    layer_config_put("", "\"heads\":\"2\"", NULL, shapes);
    layer_config_expect("the bias_v has 4 numbers, not 6", "4 columns");
}
