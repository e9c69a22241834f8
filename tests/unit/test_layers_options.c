/*
 * test_layers_options.c - what the settings of a model mean for its attention: windows, angles,
 * heads, buckets and fused tensors. tests/models compares with the models themselves.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer_config.h"
#include "layer_files.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

TestSuite(layers_options, .init = layer_config_begin, .fini = layer_files_end, .timeout = 60);

static const struct shape llama[] = {LLAMA, {0}};
static const struct shape vit[] = {VIT, {0}};

/* --------------------------------------------------------------------------- windows and angles */

/* Expects a window of so many keys in the layer with this number; 0 is none. */
static void expect_window(const char *prefix, const char *config, const struct shape *shapes,
                          size_t keys) {
    layer_config_put(prefix, "", config, shapes);
    const struct layer layer = layer_config_expect(NULL, config);
    const attn_options *o = &layer.options;
    cr_expect_eq((o->flags & ATTN_FLAG_WINDOW) != 0, keys > 0, "%s %s", prefix, config);
    if (keys > 0) {
        cr_expect_eq(o->window[0], (int64_t)keys - 1, "%s %s", prefix, config);
        cr_expect_eq(o->window[1], -1, "%s %s", prefix, config);
    }
}

Test(layers_options, slide_as_their_models_do) {
    static const char first[] = "layers.0.self_attn.", second[] = "layers.1.self_attn.";
#define MODEL(type, keys) "{\"model_type\":\"" type "\",\"num_key_value_heads\":2," HEADS keys "}"
#define SLIDES            ",\"sliding_window\":4,\"use_sliding_window\":true"
#define TYPES             ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]"
    static const struct shape qwen2[] = {
        LLAMA, {"q_proj.bias", 0, 8}, {"k_proj.bias", 0, 8}, {"v_proj.bias", 0, 8}, {0}};
    static const struct shape normed[] = {
        LLAMA, {"q_norm.weight", 0, 4}, {"k_norm.weight", 0, 4}, {0}};
    static const struct shape neo[] = {BART, {"out_proj.bias", 0, 8}, {0}};
    static const char gemma2[] =
        MODEL("gemma2", ",\"head_dim\":4,\"query_pre_attn_scalar\":4,"
                        "\"attn_logit_softcapping\":2,\"sliding_window\":4");
    static const char gemma3[] =
        MODEL("gemma3_text", ",\"head_dim\":4,\"query_pre_attn_scalar\":4,\"sliding_window\":4,"
                             "\"sliding_window_pattern\":2");
    static const char neo_config[] =
        "{\"model_type\":\"gpt_neo\",\"num_heads\":2,\"hidden_size\":8,"
        "\"window_size\":5,\"attention_types\":[[[\"global\"],1],"
        "[[\"local\",\"global\"],2]]}";
    expect_window(first, MODEL("mistral", ",\"sliding_window\":4"), llama, 4);
    expect_window(second, MODEL("mixtral", ",\"sliding_window\":1"), llama, 1);
    expect_window(second, MODEL("qwen2", SLIDES), qwen2, 0); /* max_window_layers is 28 */
    expect_window(first, MODEL("qwen2", SLIDES ",\"max_window_layers\":1"), qwen2, 0);
    expect_window(second, MODEL("qwen2", SLIDES ",\"max_window_layers\":1"), qwen2, 4);
    expect_window(second, MODEL("qwen2", ",\"sliding_window\":4,\"max_window_layers\":0"), qwen2,
                  0);
    expect_window(first, MODEL("qwen2", SLIDES TYPES), qwen2, 0);
    expect_window(second, MODEL("qwen2", SLIDES TYPES), qwen2, 4);
    expect_window(first, MODEL("qwen3_moe", SLIDES ",\"max_window_layers\":28"), normed, 4);
    expect_window(first, MODEL("qwen3_moe", ",\"sliding_window\":4"), normed, 0);
    expect_window(first, MODEL("qwen3_moe", ",\"sliding_window\":0"), normed, 0);
    expect_window(first, gemma2, llama, 4);
    expect_window(second, gemma2, llama, 0);
    cr_expect_eq(layer_config_find().options.softcap, 2);
    expect_window(first, gemma3, normed, 4);
    expect_window(second, gemma3, normed, 0);
    expect_window("h.0.attn.attention.", neo_config, neo, 0);
    expect_window("h.1.attn.attention.", neo_config, neo, 5);
    expect_window("h.2.attn.attention.", neo_config, neo, 0);
    expect_window("h.3.attn.attention.", neo_config, neo, 5);
    layer_config_put("h.5.attn.attention.", "", neo_config, neo);
    layer_config_expect("does not say whether layer 5 is global or local", "beyond the last");
    static const struct layer_keys cases[] = {
        {TYPES,
         "the layer has a sliding window, but config.json has no sliding_window or does not"},
        {",\"layer_types\":[\"full_attention\"]", "layer_types of layer 1 is not given"},
        {",\"layer_types\":[\"a\",\"chunked_attention\"]",
         "layer_types of layer 1 is chunked_attention"},
        {",\"layer_types\":[1,2]",
         "layer_types in config.json is [a list of numbers]; it must be a list of"},
    };
    layer_config_cases(second, "\"model_type\":\"qwen2\",\"num_key_value_heads\":2," HEADS, qwen2,
                       cases, COUNT(cases));
    layer_config_put(second, "", MODEL("qwen2_moe", SLIDES ",\"qkv_bias\":false"), llama);
    layer_config_expect("there are no layer_types that say which layers slide", "qwen2_moe");
}

/* Expects that a layer with this prefix is refused if its number decides its attention. */
static void expect_number(const char *prefix, const char *text) {
    static const char *const neo[] = {"\"attention_layers\":[\"local\",\"global\"]",
                                      "\"attention_types\":[[[\"local\",\"global\"],1]]"};
    static const char *const others[][2] = {
        {"gemma2", ",\"attn_logit_softcapping\":2"},
        {"gemma2", ",\"attn_logit_softcapping\":2,\"layer_types\":[\"full_attention\"]"},
        {"gemma3_text", ""},
        {"qwen2", ",\"use_sliding_window\":true"},
    };
    char config[512];
    for (size_t i = 0; i < COUNT(neo); i++) {
        snprintf(
            config, sizeof config,
            "{\"model_type\":\"gpt_neo\",\"num_heads\":2,\"hidden_size\":8,\"window_size\":5,%s}",
            neo[i]);
        layer_config_put(prefix, "", config,
                         (const struct shape[]){BART, {"out_proj.bias", 0, 8}, {0}});
        layer_config_expect(text, config);
    }
    for (size_t i = 0; i < COUNT(others); i++) {
        const bool biases = strcmp(others[i][0], "qwen2") == 0;
        snprintf(config, sizeof config,
                 "{\"model_type\":\"%s\",\"num_key_value_heads\":2," HEADS
                 ",\"head_dim\":4%s,\"sliding_window\":4%s}",
                 others[i][0], biases ? "" : ",\"query_pre_attn_scalar\":4", others[i][1]);
        const struct shape qwen2[] = {
            LLAMA, {"q_proj.bias", 0, 8}, {"k_proj.bias", 0, 8}, {"v_proj.bias", 0, 8}, {0}};
        const struct shape normed[] = {
            LLAMA, {"q_norm.weight", 0, 4}, {"k_norm.weight", 0, 4}, {0}};
        layer_config_put(prefix, "", config,
                         biases                                     ? qwen2
                         : strcmp(others[i][0], "gemma3_text") == 0 ? normed
                                                                    : llama);
        layer_config_expect(text, config);
    }
    layer_config_put(prefix, "",
                     "{\"model_type\":\"gpt2\",\"n_head\":2,\"n_embd\":8,"
                     "\"scale_attn_by_inverse_layer_idx\":true}",
                     (const struct shape[]){GPT2, {0}});
    layer_config_expect(text, "gpt2");
}

/* Without a number, and with several numbers as in the prefix of sentence-transformers, nobody
 * knows which layer it is. Models whose layers are all alike do not need to know it. */
Test(layers_options, need_a_number_if_it_decides) {
    expect_number("attn.", "have no number");
    expect_number("0.auto_model.h.1.attn.", "have more than one number");
    expect_window("self_attn.", MODEL("mistral", ",\"sliding_window\":4"), llama, 4);
    expect_window("0.layers.1.self_attn.", MODEL("mistral", ",\"sliding_window\":4"), llama, 4);
}

/* Each number goes to its place, in the forms of all versions. */
Test(layers_options, are_turned_as_their_settings_say) {
    static const char yarn[] =
        "{\"rope_type\":\"yarn\",\"factor\":4,\"rope_theta\":500,\"beta_fast\":24,\"beta_slow\":3,"
        "\"original_max_position_embeddings\":16,\"attention_factor\":1.5,\"mscale\":0.7,"
        "\"mscale_all_dim\":0.3,\"truncate\":false}";
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    char config[512];
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(config, sizeof config,
                 "{\"model_type\":\"llama\"," HEADS ",\"rope_theta\":7,\"%s\":%s}", names[i], yarn);
        layer_config_put("layers.0.self_attn.", "", config, llama);
        const struct layer layer = layer_config_expect(NULL, config);
        const attn_rotary *r = &layer.rotary;
        cr_expect_eq(r->scaling, ATTN_ROTARY_YARN);
        cr_expect_eq(r->base, 500);
        cr_expect_eq(r->factor, 4);
        cr_expect_eq(r->beta_fast, 24);
        cr_expect_eq(r->beta_slow, 3);
        cr_expect_eq(r->original_positions, 16);
        cr_expect_eq(r->attention_factor, 1.5);
        cr_expect_eq(r->mscale, 0.7);
        cr_expect_eq(r->mscale_all, 0.3);
        cr_expect(r->untruncated);
    }
}

/* The factor follows from the positions if it is not given. Its lists are not rounded. */
Test(layers_options, are_turned_by_lists_and_ratios) {
    static const char longrope[] =
        "{\"model_type\":\"llama\"," HEADS
        ",\"max_position_embeddings\":64,\"rope_scaling\":{\"type\":"
        "\"longrope\",\"short_factor\":[1.1,1.2],\"long_factor\":[1.3,1.4],"
        "\"original_max_position_embeddings\":16%s}}";
    char config[512];
    for (int given = 0; given < 2; given++) {
        snprintf(config, sizeof config, longrope, given ? ",\"factor\":1.5" : "");
        layer_config_put("layers.0.self_attn.", "", config, llama);
        layers_refresh(the_layers);
        const struct layers_catalogue *catalogue = layers_take(the_layers);
        const attn_rotary *r = &layers_find(catalogue, "m.layers.0.self_attn")->rotary;
        cr_expect_eq(r->factor, given ? 1.5 : 4);
        cr_expect_eq(r->original_positions, 16);
        cr_assert(r->short_count == 2 && r->long_count == 2);
        cr_expect(r->short_factors[0] == 1.1 && r->short_factors[1] == 1.2);
        cr_expect(r->long_factors[0] == 1.3 && r->long_factors[1] == 1.4);
        layers_give(the_layers, catalogue);
    }
}

Test(layers_options, are_turned_by_the_keys_beside_their_scaling) {
    static const struct {
        const char *keys;
        double base, original, low, high;
        attn_rotary_scaling scaling;
    } cases[] = {
        {"", 0, 0, 0, 0, ATTN_ROTARY_UNSCALED},
        {",\"rope_theta\":77,\"max_position_embeddings\":64", 77, 0, 0, 0, ATTN_ROTARY_UNSCALED},
        {",\"rope_theta\":77,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"attention_"
         "factor\":3}",
         77, 0, 0, 0, ATTN_ROTARY_LINEAR},
        {",\"max_position_embeddings\":64,\"rope_parameters\":{\"rope_type\":\"dynamic\","
         "\"factor\":2,"
         "\"original_max_position_embeddings\":8}",
         0, 64, 0, 0, ATTN_ROTARY_DYNAMIC},
        {",\"max_position_embeddings\":64,\"original_max_position_embeddings\":32,\"rope_"
         "parameters\":{"
         "\"rope_type\":\"llama3\",\"factor\":2,\"low_freq_factor\":1,\"high_freq_factor\":4}",
         0, 32, 1, 4, ATTN_ROTARY_LLAMA3},
    };
    char config[512];
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(config, sizeof config, "{\"model_type\":\"llama\"," HEADS "%s}", cases[i].keys);
        layer_config_put("layers.0.self_attn.", "", config, llama);
        const struct layer layer = layer_config_expect(NULL, config);
        const attn_rotary *r = &layer.rotary;
        cr_expect_eq(r->scaling, cases[i].scaling, "%s", config);
        cr_expect_eq(r->base, cases[i].base, "%s", config);
        cr_expect_eq(r->original_positions, cases[i].original, "%s", config);
        cr_expect_eq(r->low_factor, cases[i].low, "%s", config);
        cr_expect_eq(r->high_factor, cases[i].high, "%s", config);
        cr_expect_eq(r->attention_factor, 0, "%s", config);
        cr_expect_eq(r->columns, 0, "%s", config);
    }
}

/* A setting of the angles that is not understood is never ignored. */
Test(layers_options, refuse_angles_that_are_not_known) {
    static const struct layer_keys cases[] = {
        {",\"partial_rotary_factor\":0.5",
         "partial_rotary_factor in config.json is 0.5; only 1 is known"},
        {",\"partial_rotary_factor\":1", NULL},
        {",\"rope_parameters\":{\"partial_rotary_factor\":1.5}",
         "partial_rotary_factor in config.json is "
         "1.5; only 1 is known"},
        {",\"rope_parameters\":{\"partial_rotary_factor\":0.5}",
         "partial_rotary_factor in config.json is "
         "0.5; only 1 is known"},
        {",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":5}}",
         "full_attention in rope_parameters is {\"rope_theta\": 5}, and this key is not known"},
        {",\"rope_parameters\":{\"rope_theta\":5},\"rope_scaling\":{\"type\":\"linear\",\"factor\":"
         "2}",
         "config.json has both rope_parameters and rope_scaling"},
        {",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2}",
         "has no max_position_embeddings"},
        {",\"original_max_position_embeddings\":8,\"rope_parameters\":{\"rope_type\":\"yarn\","
         "\"factor\":2,"
         "\"original_max_position_embeddings\":16}",
         "original_max_position_embeddings in config.json is 8, but 16 inside of rope_parameters"},
        {",\"rope_parameters\":{\"rope_type\":\"longrope\",\"short_factor\":[1,2]},"
         "\"max_position_embeddings\":64",
         "config.json has no long_factor of 2 numbers"},
        {",\"rope_parameters\":{\"rope_type\":\"longrope\",\"short_factor\":[1,2,3],\"long_"
         "factor\":[1,2]},"
         "\"max_position_embeddings\":64",
         "config.json has no short_factor of 2 numbers"},
        {",\"rope_parameters\":{\"mrope_section\":[1,1]}", "mrope_section in rope_parameters is"},
    };
    layer_config_cases("layers.0.self_attn.", "\"model_type\":\"llama\"," HEADS, llama, cases,
                       COUNT(cases));
}

/* The lists of divisors are shared by all layers of a model, and two models inside of one may have
 * other lists. */
Test(layers_options, share_their_lists_of_divisors) {
    static const struct shape two[] = {
        MATRICES(
            "language_model.layers.0.self_attn.q_proj", "language_model.layers.0.self_attn.k_proj",
            "language_model.layers.0.self_attn.v_proj", "language_model.layers.0.self_attn.o_proj"),
        MATRICES("vision_tower.layers.0.self_attn.q_proj", "vision_tower.layers.0.self_attn.k_proj",
                 "vision_tower.layers.0.self_attn.v_proj",
                 "vision_tower.layers.0.self_attn.o_proj"),
        {0}};
    static const struct {
        const char *heads, *lists, *reason;
    } cases[] = {
        {"2", "[1,2]", ""},
        {"2", "[1,3]", "short_factor and long_factor are not those of the other layers"},
        {"1", "[1,2,1,2]", "short_factor and long_factor are not those of the other layers"},
    };
#define INNER                                                                                      \
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"max_position_embeddings\":64,"                  \
    "\"num_attention_heads\":%s,\"rope_parameters\":{\"rope_type\":\"longrope\",\"factor\":2,"     \
    "\"short_factor\":%s,\"long_factor\":%s}}"
    for (size_t i = 0; i < COUNT(cases); i++) {
        char config[1024];
        snprintf(config, sizeof config,
                 "{\"model_type\":\"llava\",\"text_config\":" INNER ",\"vision_config\":" INNER "}",
                 "2", "[1,2]", "[1,2]", cases[i].heads, cases[i].lists, cases[i].lists);
        layer_config_put("", "", config, two);
        cr_expect_str_eq(layer_file_reason("m.language_model.layers.0.self_attn"), "");
        cr_expect_str_eq(layer_file_reason("m.vision_tower.layers.0.self_attn"), cases[i].reason);
    }
}

/* GPT-NeoX turns a part of the columns, and Gemma 3 turns layers with a window in another way. */
Test(layers_options, may_turn_in_part_or_by_type) {
    static const struct shape neox[] = {
        {"query_key_value.weight", 24, 8}, {"dense.weight", 8, 8}, {0}};
    static const struct shape normed[] = {
        LLAMA, {"q_norm.weight", 0, 4}, {"k_norm.weight", 0, 4}, {0}};
#define NEOX "{\"model_type\":\"gpt_neox\",\"attention_bias\":false," HEADS
    layer_config_put("layers.0.attention.", "", NEOX ",\"rotary_pct\":0.5,\"rotary_emb_base\":9}",
                     neox);
    struct layer layer = layer_config_expect(NULL, "rotary_pct");
    cr_expect_eq(layer.rotary.columns, 2);
    cr_expect_eq(layer.rotary.base, 9);
    layer_config_put("layers.0.attention.", "",
                     NEOX ",\"rope_parameters\":{\"partial_rotary_factor\":1}}", neox);
    layer = layer_config_expect(NULL, "all columns");
    cr_expect_eq(layer.rotary.columns, 0);
    layer_config_put("layers.0.attention.", "", NEOX "}", neox);
    layer_config_expect("1 columns of each head would be turned", "a quarter of 4");
    static const struct {
        const char *keys;
        double full, sliding;
    } cases[] = {
        {"", 1e6, 10000},
        {",\"rope_theta\":50,\"rope_local_base_freq\":60", 50, 60},
        {",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":5},\"sliding_attention\":{"
         "\"rope_theta\":6}}",
         5, 6},
        {",\"rope_theta\":50,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}", 50, 10000},
    };
    char config[512];
    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        snprintf(config, sizeof config,
                 MODEL("gemma3_text",
                       ",\"head_dim\":4,\"query_pre_attn_scalar\":4,\"sliding_window\":4,"
                       "\"sliding_window_pattern\":2%s"),
                 cases[i / 2].keys);
        layer_config_put(i % 2 == 0 ? "layers.0.self_attn." : "layers.1.self_attn.", "", config,
                         normed);
        layer = layer_config_expect(NULL, config);
        cr_expect_eq(layer.rotary.base, i % 2 == 0 ? cases[i / 2].sliding : cases[i / 2].full,
                     "%s: %g", config, layer.rotary.base);
        cr_expect_eq(layer.rotary.scaling, i == 7 ? ATTN_ROTARY_LINEAR : ATTN_ROTARY_UNSCALED, "%s",
                     config);
    }
    layer_config_put("layers.0.self_attn.", "",
                     MODEL("gemma3_text",
                           ",\"head_dim\":4,\"query_pre_attn_scalar\":4,\"sliding_window\":4,"
                           "\"rope_parameters\":{\"rope_theta\":5}"),
                     normed);
    layer_config_expect("rope_theta in rope_parameters is 5, and this key is not known", "flat");
}

/* ----------------------------------------------------------------------------- other properties */

/* A bucket of its own needs an encoder for each direction. */
Test(layers_options, have_enough_buckets) {
    static const struct {
        const char *prefix;
        size_t rows;
        bool good;
    } cases[] = {
        {"encoder.block.0.layer.0.SelfAttention.", 199, true},
        {"encoder.block.0.layer.0.SelfAttention.", 200, false}, /* 50 distances, and no more */
        {"encoder.block.0.layer.0.SelfAttention.", 4, true},
        {"encoder.block.0.layer.0.SelfAttention.", 3, false},
        {"encoder.block.0.layer.0.SelfAttention.", 2, false},
        {"decoder.block.0.layer.0.SelfAttention.", 2, true},
        {"decoder.block.0.layer.0.SelfAttention.", 1, false},
    };
    char config[256];
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct shape shapes[] = {
            T5, {"relative_attention_bias.weight", cases[i].rows, 2}, {0}};
        snprintf(config, sizeof config,
                 "{\"model_type\":\"t5\",\"num_heads\":2,\"d_model\":8,\"d_kv\":4,"
                 "\"relative_attention_num_buckets\":%zu,\"relative_attention_max_distance\":50}",
                 cases[i].rows);
        layer_config_put(cases[i].prefix, "", config, shapes);
        const struct layer layer =
            layer_config_expect(cases[i].good ? NULL : "relative_attention_bias has", config);
        cr_expect_eq(layer.bidirectional, cases[i].prefix[0] == 'e', "%s", config);
        cr_expect_eq(layer.max_distance, 50);
    }
    for (int distance = 2; distance <= 3; distance++) { /* 2 of 8 buckets have one distance each */
        snprintf(config, sizeof config,
                 "{\"model_type\":\"t5\",\"num_heads\":2,\"d_model\":8,\"d_kv\":4,"
                 "\"relative_attention_num_buckets\":8,\"relative_attention_max_distance\":%d}",
                 distance);
        layer_config_put("encoder.block.0.layer.0.SelfAttention.", "", config,
                         (const struct shape[]){T5, {"relative_attention_bias.weight", 8, 2}, {0}});
        layer_config_expect(distance == 3 ? NULL : "2 heads and distances up to 2", config);
    }
    layer_config_put("encoder.block.1.layer.0.SelfAttention.", "",
                     "{\"model_type\":\"umt5\",\"num_heads\":2,\"d_model\":8,\"d_kv\":4,"
                     "\"relative_attention_num_buckets\":4}",
                     (const struct shape[]){T5, {0}});
    layer_config_expect("there is no relative_attention_bias for this layer", "umt5");
    layer_config_put("encoder.block.0.layer.0.SelfAttention.", "",
                     "{\"model_type\":\"t5\",\"num_heads\":2,\"d_model\":8,\"d_kv\":4,"
                     "\"relative_attention_num_buckets\":4,\"is_decoder\":true}",
                     (const struct shape[]){T5, {"relative_attention_bias.weight", 4, 2}, {0}});
    layer_config_expect("is_decoder in config.json is true; only false is known", "an encoder");
}

/* All layers of MPNet share a table, of which 32 rows count whatever config.json says. */
Test(layers_options, may_share_a_table_beside_them) {
    static const struct {
        const char *keys;
        size_t rows;
        const char *reason;
    } cases[] = {
        {"", 32, NULL},
        {",\"relative_attention_num_buckets\":32", 32, NULL},
        {",\"relative_attention_num_buckets\":40", 40,
         "relative_attention_num_buckets in config.json is "
         "40; only 32 is known"},
        {"", 40, "relative_attention_bias has 40 rows"},
    };
    char config[256];
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct shape shapes[] = {
#define OF_LAYER(name) "encoder.layer.0.attention.attn." name
            MATRICES(OF_LAYER("q"), OF_LAYER("k"), OF_LAYER("v"), OF_LAYER("o")),
            BIASES(OF_LAYER("q"), OF_LAYER("k"), OF_LAYER("v"), OF_LAYER("o")),
            {"encoder.relative_attention_bias.weight", cases[i].rows, 2},
            {0}};
        snprintf(config, sizeof config, "{\"model_type\":\"mpnet\"," HEADS "%s}", cases[i].keys);
        layer_config_put("", "", config, shapes);
        const struct layer layer = layer_config_expect(cases[i].reason, config);
        cr_expect(cases[i].reason != NULL || layer.bidirectional, "%s", config);
    }
}

/* The decoder of ViT-MAE has other sizes than its encoder. */
Test(layers_options, have_the_heads_of_their_stack) {
    static const char config[] = "{\"model_type\":\"vit_mae\",\"num_attention_heads\":4,"
                                 "\"hidden_size\":16,\"decoder_num_attention_heads\":2,"
                                 "\"decoder_hidden_size\":8}";
    layer_config_put("decoder.decoder_layers.0.attention.", "", config, vit);
    cr_expect_eq(layer_config_expect(NULL, "decoder").heads, 2);
    layer_config_put("vit.encoder.layer.0.attention.", "", config, vit);
    layer_config_expect("W_Q has 8 inputs, but hidden_size is 16", "encoder");
}

/* Returns a result of the layer for the first 8 rows of a unit matrix as X: 8 rows of its matrix,
 * and its bias. Returns owned. */
static float *project_rows(attn_result result, size_t inputs, size_t columns) {
    struct layer_use use = {0};
    char reason[LAYERS_REASON];
    float *unit = calloc(8 * inputs, sizeof *unit), *numbers = calloc(8 * columns, sizeof *numbers);
    const attn_tensor x = {.data = unit, .rank = 2, .shape = {8, inputs}};
    attn_multihead multihead = {.x = &x};
    attn_options options = {.results = 1u << result};
    attn_error error;
    attn_plan *plan;
    cr_assert(unit != NULL && numbers != NULL);
    for (size_t i = 0; i < 8; i++) {
        unit[i * inputs + i] = 1;
    }
    cr_assert(layer_file_use(layer_config_find().name, ATTN_FLOAT32, &use, reason), "%s", reason);
    layer_fill(&use, &multihead, &options);
    cr_assert_eq(attn_plan_multihead(&plan, &multihead, &options, &error), ATTN_OK, "%s",
                 error.message);
    cr_assert_eq(attn_plan_bind(plan, result, 0, numbers), ATTN_OK);
    cr_assert_eq(attn_plan_run(plan, &error), ATTN_OK, "%s", error.message);
    attn_plan_free(plan);
    layer_end(the_layers, &use);
    free(unit);
    return numbers;
}

/* A fused matrix: its inputs, the columns of a head, the heads of Q and of K and V, and where its
 * bias begins; 0: it has none. `row_of` gives the first row of a head of Q (0), K (1) or V (2). */
struct fused {
    size_t inputs, d, heads, kv_heads, bias;
    size_t (*row_of)(const struct fused *f, size_t which, size_t head);
};

/* Expects Q, K and V to be those of rows of the fused matrix. */
static void expect_rows(const struct fused *f) {
    static const attn_result results[] = {ATTN_RESULT_Q, ATTN_RESULT_K, ATTN_RESULT_V};
    for (size_t which = 0; which < 3; which++) {
        const size_t heads = which == 0 ? f->heads : f->kv_heads;
        float *numbers = project_rows(results[which], f->inputs, heads * f->d);
        for (size_t k = 0; k < heads * 8 * f->d; k++) {
            const size_t row = f->row_of(f, which, k / f->d / 8) + k % f->d, i = k / f->d % 8;
            const float bias = f->bias > 0 ? layer_file_number(1, f->bias + row) : 0;
            const float want = layer_file_number(1, row * f->inputs + i) + bias;
            cr_expect_float_eq(numbers[k], want, 1e-6, "%zu %zu", which, k);
        }
        free(numbers);
    }
}

static size_t row_of_neox(const struct fused *f, size_t which, size_t head) {
    return (3 * head + which) * f->d;
}

static size_t row_of_phi3(const struct fused *f, size_t which, size_t head) {
    return (which == 0 ? head : f->heads + (which - 1) * f->kv_heads + head) * f->d;
}

/* GPT-NeoX has Q, K and V of one head together. A task may begin inside of a head. */
Test(layers_options, may_have_heads_one_after_the_other) {
    layer_config_put("layers.0.attention.", "",
                     "{\"model_type\":\"gpt_neox\"," HEADS ",\"rotary_pct\":0.5}",
                     (const struct shape[]){{"query_key_value.weight", 24, 8},
                                            {"dense.weight", 8, 8},
                                            {"query_key_value.bias", 0, 24},
                                            {"dense.bias", 0, 8},
                                            {0}});
    layer_config_expect(NULL, "gpt_neox");
    expect_rows(&(struct fused){8, 4, 2, 2, 24 * 8 + 64, row_of_neox});
    layer_config_put(
        "layers.0.attention.", "",
        "{\"model_type\":\"gpt_neox\",\"attention_bias\":false,\"num_attention_heads\":44,"
        "\"hidden_size\":1320,\"rotary_pct\":0.2}",
        (const struct shape[]){
            {"query_key_value.weight", 3960, 1320}, {"dense.weight", 1320, 1320}, {0}});
    layer_config_expect(NULL, "many tasks");
    expect_rows(&(struct fused){1320, 30, 44, 44, 0, row_of_neox});
}

/* Phi-3 has fewer heads of K and V behind those of Q. */
Test(layers_options, may_have_parts_of_different_sizes) {
    layer_config_put(
        "layers.0.self_attn.", "",
        "{\"model_type\":\"phi3\",\"num_attention_heads\":4,\"num_key_value_heads\":2,"
        "\"head_dim\":4,\"hidden_size\":8}",
        (const struct shape[]){{"qkv_proj.weight", 32, 8}, {"o_proj.weight", 8, 16}, {0}});
    cr_expect_eq(layer_config_expect(NULL, "phi3").kv_heads, 2);
    expect_rows(&(struct fused){8, 4, 4, 2, 0, row_of_phi3});
}

/* Gemma stores the weights of its norms as differences from 1, and gpt-oss has a sink in each
 * head. */
Test(layers_options, have_norms_and_sinks) {
    struct layer_use use = {0};
    char reason[LAYERS_REASON];
    layer_config_put(
        "layers.0.self_attn.", "",
        MODEL("gemma3_text", ",\"head_dim\":4,\"query_pre_attn_scalar\":4,\"sliding_window\":4,"
                             "\"rms_norm_eps\":0.01"),
        (const struct shape[]){LLAMA, {"q_norm.weight", 0, 4}, {"k_norm.weight", 0, 4}, {0}});
    cr_expect_eq(layer_config_expect(NULL, "gemma3").options.norm_epsilon, 0.01);
    for (int wide = 0; wide < 2; wide++) {
        cr_assert(layer_file_use("m.layers.0.self_attn", wide ? ATTN_FLOAT64 : ATTN_FLOAT32, &use,
                                 reason));
        for (size_t i = 0; i < 8; i++) {
            const attn_tensor *norm = &use.tensors[i < 4 ? LAYER_NORM_Q : LAYER_NORM_K];
            const double got = wide ? ((const double *)norm->data)[i % 4]
                                    : (double)((const float *)norm->data)[i % 4];
            cr_expect_eq(got, 1 + (double)layer_file_number(1, 256 + i), "%zu", i);
        }
        layer_end(the_layers, &use);
    }
    layer_config_put("layers.0.self_attn.", "",
                     MODEL("gpt_oss",
                           ",\"head_dim\":4,\"sliding_window\":4,\"attention_bias\":false,"
                           "\"rope_parameters\":{\"rope_type\":\"default\"}"),
                     (const struct shape[]){LLAMA, {"sinks", 0, 2}, {0}});
    cr_expect_eq(layer_config_expect(NULL, "gpt_oss").rotary.base, 150000);
    cr_assert(layer_file_use("m.layers.0.self_attn", ATTN_FLOAT32, &use, reason));
    attn_multihead multihead = {0};
    attn_options options = {0};
    layer_fill(&use, &multihead, &options);
    cr_assert_not_null(options.sink);
    for (size_t i = 0; i < 2; i++) {
        cr_expect_eq(((const float *)options.sink->data)[i], layer_file_number(1, 256 + i));
    }
    layer_end(the_layers, &use);
}

/* Each head of queries has a sink of its own, also if heads share keys. */
Test(layers_options, have_a_sink_for_each_head_of_queries) {
    for (size_t sinks = 1; sinks <= 2; sinks++) {
        layer_config_put("layers.0.self_attn.", "",
                         "{\"model_type\":\"gpt_oss\",\"num_key_value_heads\":1," HEADS
                         ",\"head_dim\":4,\"sliding_window\":4,\"attention_bias\":false,"
                         "\"rope_parameters\":{\"rope_type\":\"default\"}}",
                         (const struct shape[]){{"q_proj.weight", 8, 8},
                                                {"k_proj.weight", 4, 8},
                                                {"v_proj.weight", 4, 8},
                                                {"o_proj.weight", 8, 8},
                                                {"sinks", 0, sinks},
                                                {0}});
        layer_config_expect(sinks == 2 ? NULL : "the sinks has 1 numbers, not 2", "sinks");
    }
}
