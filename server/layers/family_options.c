/* family_options.c - reads the options of a layer: the habits of its family, and what config.json
 * says of its window, its rotary embedding and its relative bias. */
#include "layers/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char model_type[] = "model_type";

/* Returns the number of the layer: the first number between two dots of its prefix. */
static long index_of(const struct search *s) {
    for (size_t i = 0; i < s->prefix_size; i++) {
        if ((i == 0 || s->prefix[i - 1] == '.') && s->prefix[i] >= '0' && s->prefix[i] <= '9') {
            char *end;
            const long index = strtol(s->prefix + i, &end, 10);
            if (*end == '.') {
                return index;
            }
        }
    }
    return 0;
}

/* Returns a number of the config under one name. */
static double setting(const struct search *s, const char *name, double otherwise) {
    return config_number(s->config, (const char *const[]){name, NULL}, otherwise);
}

/* Reads the sliding window of a layer: a query sees so many keys, its own included. */
static void find_window(const struct search *s, const char *model) {
    const struct codec_document *document;
    const struct codec_value *types = config_value(s->config, "layer_types", &document);
    const double window = setting(s, "sliding_window", 0);
    const char *type;
    struct codec_error unused;
    bool slides = strncmp(model, "qwen", 4) != 0;
    if (types != NULL && codec_kind_of(types) == CODEC_ARRAY) {
        const struct codec_value *own = codec_at(types, (size_t)index_of(s));
        slides = own != NULL && codec_kind_of(own) == CODEC_TEXT &&
                 codec_as_text(document, own, &type, &unused) &&
                 strcmp(type, "sliding_attention") == 0;
    } else if (!slides) {
        slides = config_flag(s->config, "use_sliding_window", false) &&
                 (double)index_of(s) >= setting(s, "max_window_layers", 28);
    }
    if (slides && window >= 1 && window <= INT32_MAX) {
        s->layer->options.flags |= ATTN_FLAG_WINDOW;
        s->layer->options.window[0] = (int64_t)window - 1;
        s->layer->options.window[1] = -1;
    }
}

/* Reads a list of divisors of frequencies into memory of the model. All layers of a model have the
 * same list, so all layers that are not refused have as many pairs of columns. */
static bool read_factors(const struct search *s, const struct codec_document *document,
                         const struct codec_value *scaling, const char *name, const double **list,
                         size_t *count, size_t place) {
    const struct codec_value *value = codec_get(scaling, name);
    attn_tensor numbers;
    struct codec_error unused;
    const struct layer *layer = s->layer;
    const size_t pairs = (layer->rotary.columns > 0 ? layer->rotary.columns : layer->d) / 2;
    if (value == NULL || !codec_as_reals(document, value, 1, 1, &numbers, &unused) ||
        numbers.shape[0] != pairs) {
        return search_refuse(s->layer, "config.json has no %s of %zu numbers", name, pairs);
    }
    if (s->model->factors == NULL) {
        s->model->factors = calloc(2 * pairs, sizeof *s->model->factors);
    }
    if (s->model->factors == NULL) {
        return search_refuse(s->layer, "there is no memory");
    }
    double *to = s->model->factors + place * pairs;
    for (size_t i = 0; i < numbers.shape[0]; i++) {
        to[i] = numbers.dtype == ATTN_FLOAT32 ? (double)((const float *)numbers.data)[i]
                                              : ((const double *)numbers.data)[i];
    }
    *list = to;
    *count = numbers.shape[0];
    return true;
}

static double number_of(const struct codec_document *document, const struct codec_value *object,
                        const char *name, double otherwise) {
    const struct codec_value *value = codec_get(object, name);
    double number;
    struct codec_error unused;
    return value != NULL && codec_as_number(document, value, &number, &unused) ? number : otherwise;
}

/* Reads rope_scaling, which newer files call rope_parameters. */
static bool read_scaling(const struct search *s, const struct codec_document *document,
                         const struct codec_value *scaling) {
    static const char *const types[] = {
        [ATTN_ROTARY_UNSCALED] = "default",  [ATTN_ROTARY_LINEAR] = "linear",
        [ATTN_ROTARY_DYNAMIC] = "dynamic",   [ATTN_ROTARY_YARN] = "yarn",
        [ATTN_ROTARY_LONGROPE] = "longrope", [ATTN_ROTARY_LLAMA3] = "llama3"};
    attn_rotary *r = &s->layer->rotary;
    const struct codec_value *type = codec_get(scaling, "rope_type");
    const char *text = "default";
    struct codec_error unused;
    type = type == NULL ? codec_get(scaling, "type") : type;
    if (type != NULL && !codec_as_text(document, type, &text, &unused)) {
        return search_refuse(s->layer, "rope_type in config.json is no text");
    }
    size_t kind = 0;
    while (kind < sizeof types / sizeof *types && strcmp(types[kind], text) != 0) {
        kind++;
    }
    if (kind == sizeof types / sizeof *types) {
        return search_refuse(s->layer, "rope_type in config.json is %.40s, which is not known",
                             text);
    }
    const double most = setting(s, "max_position_embeddings", 0);
    r->scaling = (attn_rotary_scaling)kind;
    r->base = number_of(document, scaling, "rope_theta", r->base);
    r->factor = number_of(document, scaling, "factor", 0);
    r->original_positions = number_of(document, scaling, "original_max_position_embeddings",
                                      setting(s, "original_max_position_embeddings", most));
    if (r->scaling == ATTN_ROTARY_DYNAMIC) {
        r->original_positions = most;
    }
    r->attention_factor = number_of(document, scaling, "attention_factor", 0);
    r->low_factor = number_of(document, scaling, "low_freq_factor", 0);
    r->high_factor = number_of(document, scaling, "high_freq_factor", 0);
    r->beta_fast = number_of(document, scaling, "beta_fast", 0);
    r->beta_slow = number_of(document, scaling, "beta_slow", 0);
    r->mscale = number_of(document, scaling, "mscale", 0);
    r->mscale_all = number_of(document, scaling, "mscale_all_dim", 0);
    const struct codec_value *truncate = codec_get(scaling, "truncate");
    bool truncated = true;
    if (truncate != NULL && codec_kind_of(truncate) == CODEC_BOOL) {
        codec_as_bool(document, truncate, &truncated, &unused);
    }
    r->untruncated = !truncated;
    if (r->scaling != ATTN_ROTARY_LONGROPE) {
        return true;
    }
    if (r->original_positions > 0 && r->original_positions != most) {
        r->factor = most / r->original_positions;
    }
    return read_factors(s, document, scaling, "short_factor", &r->short_factors, &r->short_count,
                        0) &&
           read_factors(s, document, scaling, "long_factor", &r->long_factors, &r->long_count, 1);
}

static bool find_rotary(const struct search *s) {
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    struct layer *layer = s->layer;
    const double share = setting(s, "partial_rotary_factor", 1);
    layer->turns = true;
    layer->rotary.base = setting(s, "rope_theta", 10000);
    layer->rotary.columns = share > 0 && share < 1 ? (size_t)((double)layer->d * share) : 0;
    layer->options.norm_epsilon = setting(s, "rms_norm_eps", 1e-6);
    find_window(s, config_text(s->config, model_type));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct codec_document *document;
        const struct codec_value *scaling = config_value(s->config, names[i], &document);
        if (scaling != NULL && codec_kind_of(scaling) == CODEC_OBJECT) {
            return read_scaling(s, document, scaling);
        }
    }
    return true;
}

/* Finds the table of T5's relative bias. All layers of a stack share the one of the first block. */
static const struct family_tensor *find_bias_tensor(const struct search *s) {
    static const char block[] = "block.", rest[] = ".layer.0.SelfAttention.";
    char prefix[512];
    const char *found = strstr(s->prefix, block);
    const char *own = found == NULL ? NULL : strstr(found, rest);
    const struct family_tensor *tensor =
        search_tensor(s, s->prefix, s->prefix_size, "relative_attention_bias.weight");
    if (tensor != NULL || own == NULL ||
        (size_t)(own - s->prefix) + sizeof rest - 1 != s->prefix_size) {
        return tensor;
    }
    snprintf(prefix, sizeof prefix, "%.*s0%s", (int)(found - s->prefix + (int)sizeof block - 1),
             s->prefix, rest);
    return search_tensor(s, prefix, strlen(prefix), "relative_attention_bias.weight");
}

/* Reads T5's relative bias. */
static bool find_relative_bias(const struct search *s) {
    struct layer *layer = s->layer;
    const struct family_tensor *tensor = find_bias_tensor(s);
    const bool decoder = strstr(s->prefix, "decoder") != NULL;
    const bool itself = strstr(s->prefix, "SelfAttention") != NULL;
    layer->options.causal = decoder && itself ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    if (!itself || tensor == NULL) {
        return true;
    }
    struct layer_tensor *table = &layer->tensors[LAYER_RELATIVE_BIAS];
    if (!search_read(s, tensor, true, table)) {
        return false;
    }
    layer->bidirectional = !decoder;
    table->out_in = false; /* (buckets, heads) stays as it is */
    table->count = table->columns;
    layer->max_distance = config_count(
        s->config, (const char *const[]){"relative_attention_max_distance", NULL}, 128);
    if (table->columns != layer->heads || table->rows < (layer->bidirectional ? 4 : 2) ||
        layer->max_distance <= table->rows) {
        return search_refuse(layer,
                             "relative_attention_bias has %zu rows and %zu columns for %zu "
                             "heads and distances up to %zu",
                             table->rows, table->columns, layer->heads, layer->max_distance);
    }
    return true;
}

/* Checks that the attention of the model is known. Without model_type a family with rotary
 * embedding is refused, because its models differ too much. */
static bool check_model(const struct search *s) {
    const char *const *known = s->family->models;
    const char *type = config_text(s->config, model_type);
    char names[160] = "";
    if (known == NULL || (type == NULL && !s->family->rotary)) {
        return true;
    }
    for (size_t i = 0, size = 0; known[i] != NULL; i++) {
        if (type != NULL && strcmp(type, known[i]) == 0) {
            return true;
        }
        const int more =
            snprintf(names + size, sizeof names - size, "%s%s", i == 0 ? "" : ", ", known[i]);
        size += size + (size_t)more < sizeof names ? (size_t)more : 0;
    }
    return search_refuse(s->layer,
                         "model_type is %.40s; the models with such tensors that are known are %s",
                         type == NULL ? "not given" : type, names);
}

bool search_options(const struct search *s) {
    static const char position[] = "position_embedding_type";
    struct layer *layer = s->layer;
    attn_options *o = &layer->options;
    const char *kind = config_text(s->config, position);
    const bool cross =
        strstr(s->prefix, "cross") != NULL || strstr(s->prefix, "encoder_attn") != NULL;
    const bool decoder =
        config_flag(s->config, "is_decoder", false) ||
        (strcmp(s->family->name, "bart") == 0 && strstr(s->prefix, "decoder") != NULL);
    const bool causal = config_flag(s->config, "causal", s->family->causal || decoder);
    o->causal = causal && !cross ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    layer->zero_key =
        config_flag(s->config, "zero_key", config_flag(s->config, "add_zero_attn", false));
    if (!check_model(s)) {
        return false;
    }
    if (strcmp(s->family->name, "bert") == 0 && kind != NULL && strcmp(kind, "absolute") != 0) {
        return search_refuse(layer, "%s is %.40s, which is not known", position, kind);
    }
    const double scale = setting(s, "scale", NAN);
    if (!isnan(scale) || s->family->unscaled) {
        o->flags |= ATTN_FLAG_SCALE;
        o->scale = isnan(scale) ? 1 : scale;
    }
    if (strcmp(s->family->name, "gpt2") == 0) {
        double divisor =
            config_flag(s->config, "scale_attn_weights", true) ? sqrt((double)layer->d) : 1;
        divisor *= config_flag(s->config, "scale_attn_by_inverse_layer_idx", false)
                       ? (double)index_of(s) + 1
                       : 1;
        o->flags |= ATTN_FLAG_SCALE;
        o->scale = 1 / divisor;
    }
    if (strcmp(s->family->name, "t5") == 0) {
        return find_relative_bias(s);
    }
    return !s->family->rotary || find_rotary(s);
}
