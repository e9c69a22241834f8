/*
 * family_models.c - the model types of Hugging Face transformers whose attention is known. A row
 * says which keys of config.json decide the attention of a model type, and which keys do not change
 * it. Its source is the eager attention of transformers 5 (models/NAME/modeling_NAME.py), and what
 * version 4 wrote into config.json. family_keys.c says what becomes of other keys.
 *
 * To add a model type: read the eager attention of the model type in transformers. Add a row here
 * that names the keys of its config.json that decide the attention, those of them that must be
 * there because their default differs between versions, and those that change nothing but would
 * refuse a layer by their words. What a new key may be stands in family_keys.c, and
 * family_options.c (or family_rotary.c) reads it. New names of tensors are a row of family.c. Add
 * rows to tests/data/layers.txt, which have the settings that a config gives, and a test to
 * tests/models/test_models.py, which compares with the eager attention, and name the model type in
 * the README.md of this folder.
 */
#include "layers/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST(...)                   ((const char *const[]){__VA_ARGS__, NULL})

/* ----------------------------------------------------------------------------------- the stacks */

#define STACKS(...)                 ((const struct stack[]){__VA_ARGS__, {0}})
#define STACK(place, names)         .part = (place), .family = (names)
#define COUNTS(heads_key, size_key) .heads = (heads_key), .size = (size_key)
#define HEADS                       COUNTS("num_attention_heads", "hidden_size")
/* A model whose layers are all alike. */
#define ALIKE(names)                STACKS({STACK(NULL, names), HEADS})
#define CAUSAL(names)               STACKS({STACK(NULL, names), HEADS, .causal = true})

static const struct stack own[] = {{.family = "torch"}, {.family = "plain"}, {0}};
static const struct stack bert[] = {{STACK("crossattention", "bert"), HEADS, .cross = true},
                                    {STACK("attention", "bert"), HEADS},
                                    {0}};
static const struct stack vit_mae[] = {
    {STACK("decoder", "vit"), COUNTS("decoder_num_attention_heads", "decoder_hidden_size")},
    {STACK("encoder", "vit"), HEADS},
    {0}};
static const struct stack bart[] = {
    {STACK("encoder_attn", "bart"), COUNTS("decoder_attention_heads", "d_model"), .cross = true},
    {STACK("decoder", "bart"), COUNTS("decoder_attention_heads", "d_model"), .causal = true},
    {STACK("encoder", "bart"), COUNTS("encoder_attention_heads", "d_model")},
    {0}};
static const struct stack t5[] = {
    {STACK("EncDecAttention", "t5"), COUNTS("num_heads", "d_model"), .cross = true},
    {STACK("decoder", "t5"), COUNTS("num_heads", "d_model"), .causal = true},
    {STACK("encoder", "t5"), COUNTS("num_heads", "d_model")},
    {0}};
static const struct stack siglip_vision[] = {
    {STACK("head", "torch"), HEADS, .cross = true}, {STACK(NULL, "bart"), HEADS}, {0}};

/* ------------------------------------------------------------------------------ the model types */

#define POSITIONS              "max_position_embeddings"
#define ROPE                   "rope_parameters", "rope_scaling", "rope_theta", POSITIONS
#define ROPE_TOO               "original_max_position_embeddings"
#define ROPE_ALL               ROPE, ROPE_TOO

#define KV_HEADS               "num_key_value_heads"

#define TYPE(text)             .name = (text)

/* The numbers of a class of transformers that has always had them. */
#define OTHERWISE(heads, size) .defaults = " num_attention_heads=" #heads " hidden_size=" #size " "
/* BERT and its relatives. */
#define BERT(type, heads, size)                                                                    \
    {                                                                                              \
        .name = type, .stacks = bert, .takes = LIST("is_decoder"), .biases = BIAS_ALL,             \
        OTHERWISE(heads, size)                                                                     \
    }
/* Keys, as in struct model_type. */
#define NEEDS(...)    .needs = LIST(__VA_ARGS__)
#define SHOWS(...)    .shows = LIST(__VA_ARGS__)
#define IGNORES(...)  .ignores = LIST(__VA_ARGS__)
#define ROPE_AND(...) .takes = LIST(ROPE_ALL, __VA_ARGS__)
/* A flag that decides about biases. */
#define BIASED(key, which, by_default)                                                             \
    .bias_key = (key), .biases_of_key = (which), .bias_default = (by_default)
/* Models whose heads may have a bias or not: qkv_bias. */
#define VIT(type, with)                                                                            \
    {                                                                                              \
        .name = type, .stacks = with, .biases = BIAS_O, BIASED("qkv_bias", BIAS_QKV, true),        \
        OTHERWISE(12, 768)                                                                         \
    }
/* An encoder and a decoder. */
#define BART(type)                                                                                 \
    { .name = type, .stacks = bart, IGNORES("is_decoder"), .biases = BIAS_ALL }
/* Layers that are all alike, with the names of BART's tensors. */
#define TOWER(type, with, heads, size)                                                             \
    { .name = type, .stacks = with, .biases = BIAS_ALL, OTHERWISE(heads, size) }
#define T5(type, heads, kind)                                                                      \
    {                                                                                              \
        .name = type, .stacks = t5, .takes = LIST("relative_attention_max_distance"),              \
        NEEDS("d_kv", "relative_attention_num_buckets"), .head_size = "d_kv",                      \
        .flags = MODEL_UNSCALED, .relative = kind,                                                 \
        .defaults = " num_heads=" #heads " d_model=512 d_kv=64 relative_attention_num_buckets=32 " \
    }
#define GPT2                                                                                       \
    .stacks = STACKS({STACK("attn", "gpt2"), COUNTS("n_head", "n_embd"), .causal = true}),         \
    .biases = BIAS_ALL, .defaults = " n_head=12 n_embd=768 "
/* Decoders with rotary embedding and a key head_dim. */
#define ROTARY(names, more)                                                                        \
    .stacks = CAUSAL(names), .head_size = "head_dim", .flags = MODEL_ROTARY | (more)
#define LLAMA ROTARY("llama", 0)
#define OTHERWISE_LLAMA(kv_heads)                                                                  \
    .defaults = " num_attention_heads=32 hidden_size=4096 num_key_value_heads=" #kv_heads " "
#define LLAMA_BIAS(by_default) BIASED("attention_bias", BIAS_ALL, by_default)

/* Models that see, too, with a part for text whose settings stand in text_config, or in older files
 * beside vision_config. */
#define QWEN_VL(type, ...)                                                                         \
    {                                                                                              \
        .name = type, ROTARY("llama", MODEL_MROPE), NEEDS(KV_HEADS),                               \
        ROPE_AND("sliding_window", "use_sliding_window", "max_window_layers", "layer_types"),      \
        .biases = BIAS_QKV, .slides = MODEL_SLIDES_FROM_LAYER, .base = 1e6,                        \
        .defaults = " max_window_layers=80 ", __VA_ARGS__                                          \
    }
#define QWEN3_VL(type)                                                                             \
    {                                                                                              \
        .name = type, ROTARY("llama", MODEL_MROPE | MODEL_NORMS), NEEDS(KV_HEADS),                 \
        ROPE_AND("rms_norm_eps", "head_dim"), LLAMA_BIAS(false), .base = NAN                       \
    }
#define PARTS(...)        .inner = ((const struct inner_model[]){__VA_ARGS__, {0}})
#define TEXT_INSIDE(type) PARTS({NULL, "text_config", type})

/* Models whose full attention has an output gate. Their other layers are linear attention. */
#define QWEN_GATED(type, more, ...)                                                                \
    {                                                                                              \
        .name = type, NEEDS(KV_HEADS, "head_dim"),                                                 \
        ROTARY("llama", MODEL_PARTLY | MODEL_NORMS | MODEL_FROM_ONE | MODEL_GATED | (more)),       \
        ROPE_AND("rms_norm_eps", "partial_rotary_factor", "layer_types"),                          \
        IGNORES("full_attention_interval", "linear_conv_kernel_dim", "linear_key_head_dim",        \
                "linear_num_key_heads", "linear_num_value_heads", "linear_value_head_dim",         \
                "attn_output_gate", "output_gate_type"),                                           \
        .defaults =                                                                                \
            " num_attention_heads=16 head_dim=256 partial_rotary_factor=0.25 " __VA_ARGS__,        \
        LLAMA_BIAS(false)                                                                          \
    }

static const struct model_type types[] = {
    {.stacks = own,
     .takes = LIST("heads", "num_heads", "num_attention_heads", "n_head", "n_heads", "kv_heads",
                   KV_HEADS, "causal", "scale", "zero_key", "add_zero_attn", "norm_epsilon")},
    {TYPE("albert"), .stacks = ALIKE("albert"), IGNORES("down_scale_factor"), .biases = BIAS_ALL},
    BERT("bert", 12, 768),
    BERT("bert-generation", 16, 1024),
    BERT("camembert", 12, 768),
    BERT("data2vec-text", 12, 768),
    BERT("dpr", 12, 768),
    BERT("electra", 4, 256),
    BERT("ernie", 12, 768),
    {TYPE("esm"), .stacks = bert, .flags = MODEL_ROTARY, .biases = BIAS_ALL,
     NEEDS("position_embedding_type"), .takes = LIST("is_decoder", "rope_theta")},
    {TYPE("layoutlm"), .stacks = bert, .biases = BIAS_ALL, OTHERWISE(12, 768)},
    BERT("megatron-bert", 16, 1024),
    {TYPE("mpnet"), .stacks = STACKS({STACK("attn", "mpnet"), HEADS}), .biases = BIAS_ALL,
     .relative = MODEL_RELATIVE_OF_ALL},
    BERT("roberta", 12, 768),
    BERT("roberta-prelayernorm", 12, 768),
    {TYPE("splinter"), .stacks = bert, .biases = BIAS_ALL, OTHERWISE(12, 768)},
    BERT("xlm-roberta", 12, 768),
    BERT("xlm-roberta-xl", 32, 2560),
    BERT("xmod", 12, 768),
    VIT("audio-spectrogram-transformer", ALIKE("vit")),
    VIT("deit", ALIKE("vit")),
    VIT("dinov2", ALIKE("vit")),
    VIT("vit", ALIKE("vit")),
    VIT("vit_mae", vit_mae),
    VIT("vit_msn", ALIKE("vit")),
    VIT("yolos", ALIKE("vit")),
    {TYPE("distilbert"), .stacks = STACKS({STACK(NULL, "distilbert"), COUNTS("n_heads", "dim")}),
     .biases = BIAS_ALL, .defaults = " n_heads=12 dim=768 "},
    {TYPE("gpt2"), GPT2, .takes = LIST("scale_attn_weights", "scale_attn_by_inverse_layer_idx")},
    {TYPE("openai-gpt"), GPT2},
    BART("bart"),
    BART("blenderbot"),
    BART("blenderbot-small"),
    BART("m2m_100"),
    BART("marian"),
    BART("mbart"),
    BART("pegasus"),
    BART("plbart"),
    {TYPE("whisper"), .stacks = bart, IGNORES("is_decoder"), .biases = BIAS_Q | BIAS_V | BIAS_O},
    TOWER("biogpt", CAUSAL("bart"), 16, 1024),
    TOWER("clip_text_model", CAUSAL("bart"), 8, 512),
    TOWER("clip_vision_model", ALIKE("bart"), 12, 768),
    TOWER("hubert", ALIKE("bart"), 12, 768),
    {TYPE("opt"), .stacks = CAUSAL("bart"), BIASED("enable_bias", BIAS_ALL, true)},
    TOWER("siglip_text_model", ALIKE("bart"), 12, 768),
    TOWER("siglip_vision_model", siglip_vision, 12, 768),
    TOWER("siglip2_text_model", ALIKE("bart"), 12, 768),
    TOWER("siglip2_vision_model", siglip_vision, 12, 768),
    TOWER("wav2vec2", ALIKE("bart"), 12, 768),
    T5("mt5", 6, MODEL_RELATIVE_OF_FIRST),
    T5("t5", 8, MODEL_RELATIVE_OF_FIRST),
    T5("umt5", 6, MODEL_RELATIVE_OF_EACH),
    {TYPE("gemma"), LLAMA,
     .defaults = " num_attention_heads=16 hidden_size=3072 num_key_value_heads=16 head_dim=256 ",
     NEEDS(KV_HEADS, "head_dim"), .takes = LIST(ROPE_ALL), LLAMA_BIAS(false)},
    {TYPE("gemma2"), LLAMA, NEEDS(KV_HEADS, "head_dim", "query_pre_attn_scalar", "sliding_window"),
     SHOWS("attn_logit_softcapping"), ROPE_AND("layer_types"), .slides = MODEL_SLIDES_ALTERNATELY,
     LLAMA_BIAS(false)},
    {TYPE("gemma3_text"), ROTARY("llama", MODEL_ROPE_BY_TYPE | MODEL_NORMS | MODEL_FROM_ONE),
     .defaults = " num_attention_heads=8 hidden_size=2304 num_key_value_heads=4 head_dim=256 "
                 "query_pre_attn_scalar=256 sliding_window=4096 rope_local_base_freq=10000 ",
     NEEDS(KV_HEADS, "head_dim", "query_pre_attn_scalar", "sliding_window"),
     .takes = LIST(ROPE, "rope_local_base_freq", "layer_types", "sliding_window_pattern",
                   "rms_norm_eps"),
     IGNORES("_sliding_window_pattern"), .slides = MODEL_SLIDES_BY_PATTERN, LLAMA_BIAS(false),
     .base = 1e6},
    {TYPE("gemma4_text"),
     ROTARY("llama", MODEL_ROPE_BY_TYPE | MODEL_NEEDS_ROPE | MODEL_NORMS | MODEL_NORM_V |
                         MODEL_TWO_SIZES | MODEL_UNSCALED),
     NEEDS(KV_HEADS, "head_dim", "sliding_window", "num_hidden_layers"),
     .takes = LIST("rope_parameters", "max_position_embeddings", "layer_types", "rms_norm_eps",
                   "attention_k_eq_v", "global_head_dim", "num_global_key_value_heads",
                   "num_kv_shared_layers", "per_layer_config", "use_bidirectional_attention"),
     IGNORES("enable_moe_block", "hidden_size_per_layer_input", "top_k_experts",
             "use_double_wide_mlp", "vocab_size_per_layer_input"),
     .slides = MODEL_SLIDES_BY_PATTERN, LLAMA_BIAS(false), .base = NAN},
    {TYPE("gpt_neo"),
     .stacks = STACKS({STACK(NULL, "bart"), COUNTS("num_heads", "hidden_size"), .causal = true}),
     NEEDS("window_size"), .takes = LIST("attention_types", "attention_layers"), .biases = BIAS_O,
     .slides = MODEL_SLIDES_LOCALLY, .flags = MODEL_UNSCALED},
    {TYPE("gpt_neox"), LLAMA_BIAS(true), .stacks = CAUSAL("gpt-neox"),
     .flags = MODEL_ROTARY | MODEL_PARTLY,
     .takes = LIST("rope_parameters", "rope_scaling", "rotary_emb_base", "rotary_pct",
                   "max_position_embeddings", ROPE_TOO),
     .defaults = " rotary_pct=0.25 ", IGNORES("is_decoder")},
    {TYPE("gpt_oss"), ROTARY("llama", MODEL_NEEDS_ROPE | MODEL_SINKS),
     NEEDS(KV_HEADS, "head_dim", "sliding_window"), ROPE_AND("layer_types"),
     .slides = MODEL_SLIDES_ALTERNATELY, .base = 150000, LLAMA_BIAS(true)},
    {TYPE("granite"), LLAMA, NEEDS("attention_multiplier"), ROPE_AND(KV_HEADS, "head_dim"),
     LLAMA_BIAS(false)},
    {TYPE("llama"), LLAMA, OTHERWISE(32, 4096), ROPE_AND(KV_HEADS, "head_dim"), LLAMA_BIAS(false)},
    {TYPE("mistral"), LLAMA,
     .defaults =
         " num_attention_heads=32 hidden_size=4096 num_key_value_heads=8 sliding_window=4096 ",
     NEEDS(KV_HEADS), SHOWS("sliding_window"), ROPE_AND("head_dim"), .slides = MODEL_SLIDES},
    {TYPE("mixtral"), LLAMA, OTHERWISE_LLAMA(8), NEEDS(KV_HEADS),
     ROPE_AND("head_dim", "sliding_window"), .slides = MODEL_SLIDES, .base = 1e6},
    {TYPE("olmo"), LLAMA, OTHERWISE(32, 4096), ROPE_AND(KV_HEADS, "head_dim"), LLAMA_BIAS(false)},
    {TYPE("olmo2"), ROTARY("llama", MODEL_NORMS | MODEL_WHOLE), NEEDS("rms_norm_eps"),
     ROPE_AND(KV_HEADS, "head_dim"), LLAMA_BIAS(false)},
    {TYPE("phi"), ROTARY("phi", MODEL_PARTLY),
     ROPE_AND(KV_HEADS, "head_dim", "partial_rotary_factor"), .biases = BIAS_ALL,
     .defaults = " partial_rotary_factor=0.5 "},
    {TYPE("phimoe"), ROTARY("llama", MODEL_SHORT_ROPE), OTHERWISE_LLAMA(8), NEEDS(KV_HEADS),
     ROPE_AND("head_dim", "sliding_window"), .slides = MODEL_SLIDES, .base = 1e6,
     LLAMA_BIAS(false)},
    {TYPE("phi3"), ROTARY("phi3", MODEL_PARTLY),
     ROPE_AND(KV_HEADS, "head_dim", "partial_rotary_factor", "sliding_window"),
     .slides = MODEL_SLIDES},
    {TYPE("qwen2"), LLAMA, OTHERWISE_LLAMA(32), NEEDS(KV_HEADS),
     ROPE_AND("head_dim", "sliding_window", "use_sliding_window", "max_window_layers",
              "layer_types"),
     .biases = BIAS_QKV, .slides = MODEL_SLIDES_FROM_LAYER},
    {TYPE("qwen2_moe"), LLAMA, NEEDS(KV_HEADS),
     ROPE_AND("head_dim", "sliding_window", "use_sliding_window", "layer_types"),
     BIASED("qkv_bias", BIAS_QKV, true), .slides = MODEL_SLIDES_BY_TYPE},
    {TYPE("qwen3"), ROTARY("llama", MODEL_NORMS),
     .defaults = " num_attention_heads=32 hidden_size=4096 num_key_value_heads=32 head_dim=128 ",
     NEEDS(KV_HEADS, "head_dim"),
     ROPE_AND("rms_norm_eps", "sliding_window", "use_sliding_window", "max_window_layers",
              "layer_types"),
     .slides = MODEL_SLIDES_FROM_LAYER, LLAMA_BIAS(false)},
    {TYPE("qwen3_moe"), ROTARY("llama", MODEL_NORMS), NEEDS(KV_HEADS),
     ROPE_AND("head_dim", "rms_norm_eps", "sliding_window", "use_sliding_window"),
     .slides = MODEL_SLIDES_BY_FLAG, LLAMA_BIAS(false)},
    {TYPE("stablelm"), .stacks = CAUSAL("llama"), .flags = MODEL_ROTARY | MODEL_PARTLY,
     NEEDS(KV_HEADS), ROPE_AND("partial_rotary_factor"), BIASED("use_qkv_bias", BIAS_QKV, false),
     .defaults = " partial_rotary_factor=0.25 "},
    {TYPE("starcoder2"), LLAMA, NEEDS(KV_HEADS), ROPE_AND("head_dim", "sliding_window"),
     .slides = MODEL_SLIDES, BIASED("use_bias", BIAS_ALL, true)},
    {TYPE("minimax_m2"), ROTARY("llama", MODEL_NORMS | MODEL_WHOLE | MODEL_PARTLY),
     NEEDS(KV_HEADS, "head_dim"), ROPE_AND("rms_norm_eps", "partial_rotary_factor", "rotary_dim"),
     IGNORES("qk_norm_type"), .base = 5e6},
    {TYPE("bloom"),
     .stacks = STACKS({STACK(NULL, "gpt-neox"), COUNTS("n_head", "hidden_size"), .causal = true}),
     .flags = MODEL_ALIBI,
     IGNORES("bias_dropout_fusion", "masked_softmax_fusion", "offset_alibi", "skip_bias_add",
             "skip_bias_add_qkv"),
     .biases = BIAS_ALL},
    {TYPE("cohere"), ROTARY("llama", MODEL_INTERLEAVED), ROPE_AND(KV_HEADS, "head_dim"),
     .base = NAN, LLAMA_BIAS(false)},
    {TYPE("cohere2"), ROTARY("llama", MODEL_INTERLEAVED | MODEL_TURNS_LOCALLY),
     NEEDS("sliding_window"),
     ROPE_AND(KV_HEADS, "head_dim", "layer_types", "sliding_window_pattern"),
     IGNORES("order_of_interleaved_layers", "position_embedding_type", "rotary_pct"),
     .slides = MODEL_SLIDES_BY_PATTERN, .defaults = " sliding_window_pattern=4 ",
     LLAMA_BIAS(false)},
    {TYPE("exaone4"), ROTARY("llama", MODEL_NORMS | MODEL_TURNS_LOCALLY),
     NEEDS(KV_HEADS, "layer_types"), SHOWS("sliding_window"), ROPE_AND("head_dim", "rms_norm_eps"),
     IGNORES("sliding_window_pattern"), .defaults = " rms_norm_eps=1e-5 ",
     .slides = MODEL_SLIDES_BY_TYPE},
    {TYPE("glm4"), ROTARY("llama", MODEL_PARTLY | MODEL_INTERLEAVED), NEEDS(KV_HEADS, "head_dim"),
     ROPE_AND("partial_rotary_factor"), BIASED("attention_bias", BIAS_QKV, true),
     .defaults = " partial_rotary_factor=0.5 "},
    {TYPE("gptj"),
     .stacks = STACKS({STACK("attn", "bart"), COUNTS("n_head", "n_embd"), .causal = true}),
     .flags = MODEL_ROTARY | MODEL_PARTLY | MODEL_INTERLEAVED, NEEDS("rotary_dim")},
    {TYPE("jamba"), .stacks = CAUSAL("llama"), .head_size = "head_dim", NEEDS(KV_HEADS),
     .takes = LIST("head_dim"), IGNORES("attn_layer_offset", "attn_layer_period")},
    {TYPE("ministral3"), ROTARY("llama", MODEL_NEEDS_ROPE | MODEL_SCALES_FAR), OTHERWISE_LLAMA(8),
     NEEDS(KV_HEADS, "head_dim"), ROPE_AND("sliding_window"), .slides = MODEL_SLIDES},
    {TYPE("modernbert"), .stacks = ALIKE("modernbert"), .flags = MODEL_ROTARY | MODEL_ROPE_BY_TYPE,
     NEEDS("local_attention"),
     .takes = LIST("rope_parameters", "max_position_embeddings", "global_rope_theta",
                   "local_rope_theta", "layer_types", "global_attn_every_n_layers"),
     IGNORES("repad_logits_with_grad", "decoder_bias", "sparse_prediction",
             "sparse_pred_ignore_index"),
     .slides = MODEL_SLIDES_BETWEEN, .defaults = " local_rope_theta=10000 ", .base = 160000,
     BIASED("attention_bias", BIAS_ALL, false)},
    {TYPE("nemotron_h"), .stacks = CAUSAL("llama"), .head_size = "head_dim",
     NEEDS(KV_HEADS, "head_dim"), .defaults = " head_dim=128 ",
     IGNORES("attention_head_dim", "hybrid_override_pattern", "layers_block_type",
             "mtp_hybrid_override_pattern", "mtp_layers_block_type", "partial_rotary_factor",
             "rope_theta")},
    {TYPE("olmo3"), ROTARY("llama", MODEL_NORMS | MODEL_WHOLE | MODEL_ROPE_BY_TYPE),
     NEEDS("rms_norm_eps", "sliding_window"), ROPE_AND(KV_HEADS, "head_dim", "layer_types"),
     .slides = MODEL_SLIDES_BY_PATTERN, .defaults = " sliding_window_pattern=4 ", .base = NAN,
     LLAMA_BIAS(false)},
    {TYPE("smollm3"), LLAMA, NEEDS(KV_HEADS),
     ROPE_AND("head_dim", "no_rope_layers", "no_rope_layer_interval", "layer_types",
              "sliding_window", "use_sliding_window"),
     .slides = MODEL_SLIDES_BY_TYPE, .base = NAN, LLAMA_BIAS(false)},
    QWEN_GATED("qwen3_next", 0, "hidden_size=2048 num_key_value_heads=2 "),
    QWEN_GATED("qwen3_5_text", MODEL_MROPE, "hidden_size=4096 num_key_value_heads=4 "),
    QWEN_GATED("qwen3_5_moe_text", MODEL_MROPE, "hidden_size=2048 num_key_value_heads=2 "),
    {TYPE("qwen3_5"), TEXT_INSIDE("qwen3_5_text")},
    {TYPE("qwen3_5_moe"), TEXT_INSIDE("qwen3_5_moe_text")},
    QWEN_VL("qwen2_vl_text", .inner = NULL),
    QWEN_VL("qwen2_5_vl_text", .inner = NULL),
    QWEN_VL("qwen2_vl", TEXT_INSIDE("qwen2_vl_text")),
    QWEN_VL("qwen2_5_vl", TEXT_INSIDE("qwen2_5_vl_text")),
    QWEN3_VL("qwen3_vl_text"),
    QWEN3_VL("qwen3_vl_moe_text"),
    {TYPE("qwen3_vl"), TEXT_INSIDE("qwen3_vl_text")},
    {TYPE("qwen3_vl_moe"), TEXT_INSIDE("qwen3_vl_moe_text")},
    {TYPE("clip"), PARTS({"text_model", "text_config", "clip_text_model"},
                         {"vision_model", "vision_config", "clip_vision_model"})},
    {TYPE("gemma3"), PARTS({"language_model", "text_config", "gemma3_text"},
                           {"vision_tower", "vision_config", "siglip_vision_model"})},
    {TYPE("gemma4"), PARTS({"language_model", "text_config", "gemma4_text"})},
    {TYPE("llava"),
     PARTS({"language_model", "text_config", NULL}, {"vision_tower", "vision_config", NULL})},
    {TYPE("mistral3"),
     PARTS({"language_model", "text_config", NULL}, {"vision_tower", "vision_config", NULL})},
    {TYPE("siglip2"), PARTS({"text_model", "text_config", "siglip2_text_model"},
                            {"vision_model", "vision_config", "siglip2_vision_model"})},
    {TYPE("siglip"), PARTS({"text_model", "text_config", "siglip_text_model"},
                           {"vision_model", "vision_config", "siglip_vision_model"})},
};

/* Keys that change the attention of no model type of the table: those whose names or objects might
 * do so, and those that most files have, so that the list of layers names the others. A space is
 * before and after each. */
static const char ignored_by_all[] =
    " _name_or_path _remove_final_layer_norm adapter_attn_dim adapter_layer_norm "
    "adapter_reuse_layer_norm add_cross_attention add_final_layer_norm apply_layernorm "
    "architectures attention_dropout attention_probs_dropout_prob audio_config auto_map "
    "bos_token_id classifier_dropout conv_pos_batch_norm custom_pipelines decoder_sparse_step "
    "decoder_start_token_id directionality do_layer_norm_before do_stable_layer_norm dropout "
    "dtype eos_token_id extra_pos_embeddings feat_extract_norm feat_proj_layer_norm "
    "gradient_checkpointing hidden_act hidden_dropout_prob id2label image_size "
    "initializer_factor initializer_range intermediate_size is_encoder_decoder is_gated_act "
    "label2id layer_norm_elementwise_affine layer_norm_eps layer_norm_epsilon "
    "layerscale_value mask_feature_length mask_feature_min_masks mask_ratio "
    "max_2d_position_embeddings max_length max_position_embeddings max_source_positions "
    "max_target_positions max_window_layers model_type moe_intermediate_size n_positions "
    "norm_pix_loss normalize_before normalize_embedding num_conv_pos_embedding_groups "
    "num_conv_pos_embeddings num_experts_per_tok num_hidden_layers output_attentions "
    "pad_token_id patch_size pooler_num_attention_heads pre_norm pretraining_tp problem_type "
    "quantization remove_invalid_values reorder_and_upcast_attn rms_norm_eps "
    "scale_decoder_outputs sentence_transformers sinusoidal_pos_embds "
    "static_position_embeddings task_specific_params tdnn_dilation temperature "
    "tie_word_embeddings tokenizer_class torch_dtype transformers.js_config "
    "transformers_version type_vocab_size use_cache use_mid_position_embeddings vision_config "
    "vision_use_head vocab_size ";

/* ----------------------------------------------------------------------------------- looking up */

const struct model_type *family_models_find(const char *name) {
    for (size_t i = 0; i < COUNT(types); i++) {
        if (name == NULL ? types[i].name == NULL
                         : types[i].name != NULL && strcmp(types[i].name, name) == 0) {
            return &types[i];
        }
    }
    return NULL;
}

/* Returns the first stack of a model type that has the tensors of a family, or NULL. */
static const struct stack *stack_of(const struct model_type *type, const char *family) {
    const struct stack *stack = type->name == NULL ? NULL : type->stacks;
    while (stack != NULL && stack->family != NULL && strcmp(stack->family, family) != 0) {
        stack++;
    }
    return stack != NULL && stack->family != NULL ? stack : NULL;
}

/* Returns whether two model types have the same attention. */
static bool alike(const struct model_type *a, const struct stack *of_a, const struct model_type *b,
                  const struct stack *of_b) {
    return a->biases == b->biases && a->bias_key == b->bias_key && a->flags == b->flags &&
           a->slides == b->slides && a->relative == b->relative && a->head_size == b->head_size &&
           of_a->causal == of_b->causal && of_a->cross == of_b->cross;
}

const struct model_type *family_models_guess(const char *family, struct config_object object) {
    static const char *const guessed[] = {"bert", "gpt2", NULL};
    const struct model_type *found = NULL;
    const struct stack *of_found = NULL;
    for (size_t i = 0; i < COUNT(types) && search_list_has(guessed, family); i++) {
        const struct stack *stack = stack_of(&types[i], family);
        if (stack == NULL || stack->heads == NULL || types[i].needs != NULL ||
            config_value(object, stack->heads) == NULL ||
            config_value(object, stack->size) == NULL) {
            continue;
        }
        if (found != NULL && !alike(found, of_found, &types[i], stack)) {
            return NULL;
        }
        of_found = found == NULL ? stack : of_found;
        found = found == NULL ? &types[i] : found;
    }
    return found;
}

void family_models_list(const char *family, size_t room, char *text) {
    size_t size = 0;
    snprintf(text, room, "none");
    for (size_t i = 0; i < COUNT(types); i++) {
        if (stack_of(&types[i], family) != NULL && size + strlen(types[i].name) + 2 < room) {
            size += (size_t)snprintf(text + size, room - size, "%s%s", size == 0 ? "" : ", ",
                                     types[i].name);
        }
    }
}

bool family_models_uses(const struct search *s, const char *key) {
    const struct model_type *type = s->type;
    bool used = search_list_has(type->needs, key) || search_list_has(type->shows, key) ||
                search_list_has(type->takes, key) ||
                (type->bias_key != NULL && strcmp(type->bias_key, key) == 0);
    for (const struct stack *k = type->stacks; k != NULL && k->family != NULL; k++) {
        used = used || (k->heads != NULL && strcmp(k->heads, key) == 0) ||
               (k->size != NULL && strcmp(k->size, key) == 0);
    }
    return used;
}

unsigned family_models_biases(const struct search *s) {
    const struct model_type *type = s->type;
    const bool more =
        type->bias_key != NULL && config_flag(s->object, type->bias_key, type->bias_default);
    return type->biases | (more ? type->biases_of_key : 0);
}

double family_models_default(const struct model_type *type, const char *key) {
    char word[64];
    snprintf(word, sizeof word, " %s=", key);
    const char *found = type->defaults == NULL ? NULL : strstr(type->defaults, word);
    return found == NULL ? 0 : strtod(found + strlen(word), NULL);
}

bool family_models_ignore(const char *key) {
    return search_has_name(ignored_by_all, key);
}
