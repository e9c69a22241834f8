/*
 * test_layers_config.c - what the tensors, the metadata and the config.json of a model mean for its
 * layers: the rows of tests/data/layers.txt, and the numbers of fused tensors, norms and sinks.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer_files.h"
#include "support/rows.h"

static void open_folder(void) {
    layer_folder_begin();
    layer_files_open(64 << 20);
}

TestSuite(layers_config, .init = open_folder, .fini = layer_files_end, .timeout = 60);

/* ----------------------------------------------------------------------------------- the models */

/* Writes the model "m", as tests/data/layers.txt describes it. Without a `config` it has no
 * config.json. */
static void put_model(const char *prefixes, const char *tensors, const char *metadata,
                      const char *config) {
    layer_file_described("m.safetensors", prefixes, tensors, metadata, NULL);
    if (config != NULL) {
        layer_file_text("m.config.json", config);
    }
}

/* Looks at the folder and returns the only layer of the model. The file may be gone afterwards. */
static struct layer only_layer(void) {
    layers_refresh(the_layers);
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    const struct layer_model *model = layers_find_model(catalogue, "m");
    cr_assert(model != NULL && model->count == 1);
    const struct layer layer = model->layers[0];
    cr_expect_str_eq(layer.reason, "");
    layers_give(the_layers, catalogue);
    return layer;
}

/* ------------------------------------------------------------------------------- their settings */

static char *put_size(char *end, const char *name, size_t size, size_t usual) {
    return size == usual ? end : end + sprintf(end, " %s %zu", name, size);
}

static char *put_list(char *end, const char *name, const double *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        end += i == 0 ? sprintf(end, " %s %.9g", name, list[i]) : sprintf(end, ",%.9g", list[i]);
    }
    return end;
}

static char *put_number(char *end, const char *name, double number) {
    return put_list(end, name, &number, number != 0);
}

static char *put_flag(char *end, const char *name, bool flag) {
    return flag ? end + sprintf(end, " %s", name) : end;
}

static char *describe_rotary(char *end, const attn_rotary *r) {
    static const char *const scalings[] = {
        [ATTN_ROTARY_LINEAR] = "linear",     [ATTN_ROTARY_DYNAMIC] = "dynamic",
        [ATTN_ROTARY_LLAMA3] = "llama3",     [ATTN_ROTARY_YARN] = "yarn",
        [ATTN_ROTARY_LONGROPE] = "longrope", [ATTN_ROTARY_PROPORTIONAL] = "proportional"};
    const bool partly = r->scaling == ATTN_ROTARY_PROPORTIONAL;
    end = put_size(end, "columns", r->columns, 0);
    end = put_flag(end, "interleaved", r->interleaved);
    end = put_number(end, "base", r->base);
    end = put_flag(end, scalings[r->scaling], r->scaling != ATTN_ROTARY_UNSCALED);
    end = put_number(end, "factor", r->factor);
    end = put_number(end, "original_positions", r->original_positions);
    end = put_number(end, "attention_factor", r->attention_factor);
    end = partly ? put_number(end, "partial_factor", r->partial_factor)
                 : put_number(end, "low_factor", r->low_factor);
    end = put_number(end, "high_factor", r->high_factor);
    end = put_number(end, "beta_fast", r->beta_fast);
    end = put_number(end, "beta_slow", r->beta_slow);
    end = put_number(end, "mscale", r->mscale);
    end = put_number(end, "mscale_all", r->mscale_all);
    end = put_flag(end, "untruncated", r->untruncated);
    end = put_list(end, "short_factors", r->short_factors, r->short_count);
    return put_list(end, "long_factors", r->long_factors, r->long_count);
}

/* Describes a layer as tests/data/layers.txt does. */
static void describe_layer(const struct layer *l, char *end) {
    const attn_options *o = &l->options;
    end += sprintf(end, "%s", l->family);
    end = put_size(end, "heads", l->heads, 2);
    end = put_size(end, "kv_heads", l->kv_heads, l->heads);
    end = put_size(end, "d", l->d, 4);
    end = put_size(end, "d_v", l->d_v, 4);
    end = put_size(end, "d_model", l->d_model, 8);
    end = put_size(end, "d_context", l->d_context, 8);
    end = put_size(end, "d_value", l->d_value, 8);
    end = put_size(end, "d_out", l->d_out, 8);
    end = put_flag(end, "causal", o->causal);
    end = put_flag(end, "bidirectional", l->bidirectional);
    end = put_size(end, "max_distance", l->max_distance, 0);
    end = put_number(end, "scale", (o->flags & ATTN_FLAG_SCALE) != 0 ? o->scale : 0);
    if ((o->flags & ATTN_FLAG_WINDOW) != 0) {
        end += sprintf(end, " window %d,%d", (int)o->window[0], (int)o->window[1]);
    }
    end = put_number(end, "softcap", o->softcap);
    end = put_number(end, "norm_epsilon", o->norm_epsilon);
    end = put_flag(end, "norm_V", l->tensors[LAYER_NORM_V].shard != NULL);
    end = put_flag(end, "zero_key", l->zero_key);
    end = put_size(end, "positions", l->positions, 0);
    end = put_flag(end, "rotary", l->rotates);
    describe_rotary(end, &l->rotary);
}

/* Cuts `text` where `separator` is, and returns what follows, or NULL if it is not there. */
static char *cut(char *text, const char *separator) {
    char *at = strstr(text, separator);
    if (at != NULL) {
        *at = '\0';
        at += strlen(separator);
    }
    return at;
}

/* Expects that the layers of the model are those of a row. */
static void expect_layers(char *expected, unsigned row) {
    layers_refresh(the_layers);
    const struct layers_catalogue *catalogue = layers_take(the_layers);
    const struct layer_model *model = layers_find_model(catalogue, "m");
    cr_assert_not_null(model);
    for (size_t i = 0; i < model->count || expected != NULL; i++) {
        char got[512];
        cr_assert(i < model->count && expected != NULL, "line %u: %zu layers %s", row, model->count,
                  model->reason);
        const struct layer *layer = &model->layers[i];
        char *next = cut(expected, " & ");
        describe_layer(layer, got);
        const bool refused = layer->reason[0] != '\0';
        cr_expect(refused ? strstr(layer->reason, expected) != NULL : strcmp(got, expected) == 0,
                  "line %u: %s, not %s", row, refused ? layer->reason : got, expected);
        expected = next;
    }
    layers_give(the_layers, catalogue);
}

Test(layers_config, means_what_its_model_does) {
    static char prefixes[ROWS_BYTES], row[ROWS_BYTES];
    struct rows rows;
    char *tensors = NULL;
    unsigned count = 0;
    rows_open(&rows, "layers.txt");
    while (rows_next(&rows)) {
        if (rows.line[0] == '=') {
            rows_expand(&rows, rows.line + 2, prefixes);
            tensors = cut(prefixes, ": ");
            continue;
        }
        rows_expand(&rows, rows.line, row);
        char *expected = cut(row, " => "), *config = cut(row, " + "), *metadata = row;
        cr_assert(tensors != NULL && expected != NULL, "line %u", rows.number);
        if (config == NULL) {
            config = row;
            metadata = row + strlen(row);
        }
        const bool bare = strcmp(config, "-") == 0;
        put_model(prefixes, tensors, metadata, bare ? NULL : config);
        expect_layers(expected, rows.number);
        if (!bare) {
            layer_file_remove("m.config.json");
        }
        count++;
    }
    rows_close(&rows);
    cr_expect_gt(count, 200);
}

/* ---------------------------------------------------------------------------------- the numbers */

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
    cr_assert(layer_file_use(only_layer().name, ATTN_FLOAT32, &use, reason), "%s", reason);
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
Test(layers_config, may_have_heads_one_after_the_other) {
    put_model(
        "layers.0.attention.",
        "query_key_value.weight 24x8, dense.weight 8x8, query_key_value.bias 24, dense.bias 8", "",
        "{\"model_type\":\"gpt_neox\",\"num_attention_heads\":2,\"hidden_size\":8,"
        "\"rotary_pct\":0.5}");
    expect_rows(&(struct fused){8, 4, 2, 2, 24 * 8 + 64, row_of_neox});
    put_model("layers.0.attention.", "query_key_value.weight 3960x1320, dense.weight 1320x1320", "",
              "{\"model_type\":\"gpt_neox\",\"attention_bias\":false,\"num_attention_heads\":44,"
              "\"hidden_size\":1320,\"rotary_pct\":0.2}");
    expect_rows(&(struct fused){1320, 30, 44, 44, 0, row_of_neox});
}

/* Phi-3 has fewer heads of K and V behind those of Q. */
Test(layers_config, may_have_parts_of_different_sizes) {
    put_model("layers.0.self_attn.", "qkv_proj.weight 32x8, o_proj.weight 8x16", "",
              "{\"model_type\":\"phi3\",\"num_attention_heads\":4,\"num_key_value_heads\":2,"
              "\"head_dim\":4,\"hidden_size\":8}");
    expect_rows(&(struct fused){8, 4, 4, 2, 0, row_of_phi3});
}

/* The vector of biases of torch.nn.MultiheadAttention is one even if its weights are three. */
Test(layers_config, may_have_weights_apart_and_biases_together) {
    put_model("",
              "q_proj_weight 8x8, k_proj_weight 8x6, v_proj_weight 8x5, out_proj.weight 8x8, "
              "in_proj_bias 24, out_proj.bias 8",
              "\"heads\":\"2\"", NULL);
    const struct layer layer = only_layer();
    cr_expect(layer.tensors[LAYER_B_V].first == 16 && layer.tensors[LAYER_B_V].count == 8);
}

/* Gemma stores the weights of its norms as differences from 1, and gpt-oss has a sink in each
 * head. */
Test(layers_config, have_norms_and_sinks) {
#define LLAMA "q_proj.weight 8x8, k_proj.weight 8x8, v_proj.weight 8x8, o_proj.weight 8x8, "
#define KEYS                                                                                       \
    "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"hidden_size\":8,\"head_dim\":4,"        \
    "\"sliding_window\":4"
    struct layer_use use = {0};
    char reason[LAYERS_REASON];
    put_model("layers.0.self_attn.", LLAMA "q_norm.weight 4, k_norm.weight 4", "",
              "{\"model_type\":\"gemma3_text\"," KEYS ",\"query_pre_attn_scalar\":4}");
    only_layer();
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
    put_model("layers.0.self_attn.", LLAMA "q_norm.weight 4, k_norm.weight 4", "",
              "{\"model_type\":\"gemma4_text\"," KEYS ",\"num_hidden_layers\":2,"
              "\"rope_parameters\":{\"sliding_attention\":{\"rope_theta\":9}}}");
    only_layer();
    for (int wide = 0; wide < 2; wide++) {
        cr_assert(layer_file_use("m.layers.0.self_attn", wide ? ATTN_FLOAT64 : ATTN_FLOAT32, &use,
                                 reason));
        const attn_tensor *norm = &use.tensors[LAYER_NORM_V];
        for (size_t i = 0; i < 4; i++) {
            cr_expect_eq(
                wide ? ((const double *)norm->data)[i] : (double)((const float *)norm->data)[i], 1);
        }
        layer_end(the_layers, &use);
    }
    put_model("layers.0.self_attn.", LLAMA "sinks 2", "",
              "{\"model_type\":\"gpt_oss\"," KEYS ",\"attention_bias\":false,"
              "\"rope_parameters\":{\"rope_type\":\"default\"}}");
    only_layer();
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

/* Qwen3-Next has the gate of each head behind its queries. Matrices are cut as their biases are. */
Test(layers_config, may_have_gates_behind_queries) {
    enum {
        BEFORE = 128 + 3 * 64 + 2 * 4 /* numbers before the bias of Q */
    };
    struct layer_use use = {0};
    char reason[LAYERS_REASON];
    put_model("layers.0.self_attn.",
              "q_proj.weight 16x8, k_proj.weight 8x8, v_proj.weight 8x8, o_proj.weight 8x8, "
              "q_norm.weight 4, k_norm.weight 4, q_proj.bias 16, k_proj.bias 8, v_proj.bias 8, "
              "o_proj.bias 8",
              "",
              "{\"model_type\":\"qwen3_next\",\"num_attention_heads\":2,\"num_key_value_heads\":2,"
              "\"hidden_size\":8,\"head_dim\":4,\"partial_rotary_factor\":0.5,"
              "\"attention_bias\":true}");
    const struct layer layer = only_layer();
    const struct layer_tensor *gate = &layer.tensors[LAYER_W_G];
    cr_expect(gate->first == 4 && gate->block == 4 && gate->stride == 8 && gate->count == 8);
    cr_assert(layer_file_use("m.layers.0.self_attn", ATTN_FLOAT32, &use, reason));
    for (size_t i = 0; i < 16; i++) {
        const attn_tensor *bias = &use.tensors[i % 8 < 4 ? LAYER_B_Q : LAYER_B_G];
        cr_expect_eq(((const float *)bias->data)[i / 8 * 4 + i % 4],
                     layer_file_number(1, BEFORE + i), "%zu", i);
    }
    layer_end(the_layers, &use);
}
