/* family_options.c - reads the options of a layer: what its model type and config.json say of
 * order, scale, softcap, sliding windows and T5's relative bias. */
#include "layers/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------------------- the windows */

/* Returns the text of an element of a list; NULL if there is none. */
static const char *text_at(const struct search *s, const struct codec_value *list, size_t index) {
    const struct codec_value *own = codec_at(list, index);
    const char *text;
    struct codec_error unused;
    return own != NULL && codec_kind_of(own) == CODEC_TEXT &&
                   codec_as_text(s->object.document, own, &text, &unused)
               ? text
               : NULL;
}

/* Says which of two types a text is. Returns false if it is neither. */
static bool is_type(const char *text, const char *yes, const char *no, bool *is) {
    *is = text != NULL && strcmp(text, yes) == 0;
    return *is || (text != NULL && strcmp(text, no) == 0);
}

/* Reads the type of the layer from a list of two types. */
static bool type_of_layer(const struct search *s, const char *key, const struct codec_value *list,
                          const char *sliding, const char *full, bool *slides) {
    long index;
    if (!search_number(s, &index)) {
        return false;
    }
    const char *type = text_at(s, list, (size_t)index);
    return is_type(type, sliding, full, slides) ||
           search_refuse(s, "%s of layer %ld is %.40s; it must be %s or %s", key, index,
                         type == NULL ? "not given" : type, full, sliding);
}

/* Finds whether a layer of GPT-Neo is local. attention_types is a list of pairs: a list of types,
 * and how often they are repeated. attention_layers is the same at full length, and comes first. */
static bool find_local(const struct search *s, bool *local) {
    const struct codec_value *layers = family_keys_value(s, "attention_layers");
    const struct codec_value *pairs = family_keys_value(s, "attention_types");
    long number;
    if (layers != NULL) {
        return type_of_layer(s, "attention_layers", layers, "local", "global", local);
    }
    if (!search_number(s, &number)) {
        return false;
    }
    size_t index = (size_t)number;
    for (const struct codec_value *pair = pairs == NULL ? NULL : codec_at(pairs, 0); pair != NULL;
         pair = codec_next(pair)) {
        const struct codec_value *types = codec_at(pair, 0), *times = codec_at(pair, 1);
        struct codec_error unused;
        int64_t repeats;
        if (types == NULL || codec_size(types) == 0 || times == NULL ||
            codec_kind_of(times) != CODEC_NUMBER ||
            !codec_as_integer(s->object.document, times, 0, 1 << 20, &repeats, &unused)) {
            break;
        }
        if (index < codec_size(types) * (size_t)repeats) {
            if (is_type(text_at(s, types, index % codec_size(types)), "local", "global", local)) {
                return true;
            }
            break;
        }
        index -= codec_size(types) * (size_t)repeats;
    }
    return search_refuse(
        s, "attention_types in config.json does not say whether layer %ld is global or local",
        number);
}

/* Finds whether the layer slides by the rule of its model type. */
static bool find_sliding(const struct search *s, bool *slides) {
    const struct codec_value *types = family_keys_value(s, "layer_types");
    const bool given = family_keys_number(s, "sliding_window", -1) >= 0;
    const bool used = family_keys_number(s, "use_sliding_window", 0) != 0;
    const enum model_slides rule = s->type->slides;
    const long pattern = (long)family_keys_count(s, "sliding_window_pattern", 6);
    long index = 0;
    if (types != NULL) {
        return type_of_layer(s, "layer_types", types, "sliding_attention", "full_attention",
                             slides);
    }
    const size_t period = family_keys_count(s, "global_attn_every_n_layers", 3);
    if ((rule == MODEL_SLIDES_ALTERNATELY || rule == MODEL_SLIDES_BY_PATTERN ||
         rule == MODEL_SLIDES_BETWEEN || (rule == MODEL_SLIDES_FROM_LAYER && used)) &&
        !search_number(s, &index)) {
        return false;
    }
    if (rule == MODEL_SLIDES_LOCALLY) {
        return find_local(s, slides);
    }
    if (rule == MODEL_SLIDES_BY_TYPE && used) {
        return search_refuse(s, "use_sliding_window in config.json is true, but there are no "
                                "layer_types that say which layers slide");
    }
    *slides = rule == MODEL_SLIDES           ? given
              : rule == MODEL_SLIDES_BY_FLAG ? used
              : rule == MODEL_SLIDES_FROM_LAYER
                  ? used && (double)index >= family_keys_number(s, "max_window_layers", 28)
              : rule == MODEL_SLIDES_ALTERNATELY ? index % 2 == 0
              : rule == MODEL_SLIDES_BY_PATTERN  ? index % pattern != pattern - 1
              : rule == MODEL_SLIDES_BETWEEN     ? period == 0 || (size_t)index % period != 0
                                                 : false;
    return true;
}

bool family_options_slides(const struct search *s, bool *slides) {
    const bool last_sees_all = search_is(s, MODEL_TWO_SIZES);
    long index = 0;
    if (!find_sliding(s, slides) || (last_sees_all && !search_number(s, &index))) {
        return false;
    }
    /* transformers lets the last layer see everything, whatever the list says. */
    *slides = *slides &&
              !(last_sees_all && (size_t)index + 1 == family_keys_count(s, "num_hidden_layers", 0));
    return true;
}

/* Reads the sliding window of a layer: a query sees so many keys, its own included. */
static bool find_window(const struct search *s, bool slides) {
    const enum model_slides rule = s->type->slides;
    const bool around = rule == MODEL_SLIDES_BETWEEN;
    const char *key = rule == MODEL_SLIDES_LOCALLY ? "window_size"
                      : around                     ? "local_attention"
                                                   : "sliding_window";
    const size_t window = slides ? family_keys_count(s, key, 0) : 0;
    if (!slides) {
        return true;
    }
    if (window == 0 || (family_models_uses(s, "use_sliding_window") &&
                        family_keys_number(s, "use_sliding_window", 0) == 0)) {
        return search_refuse(
            s, "the layer has a sliding window, but config.json has no %s or does not use it", key);
    }
    s->layer->options.flags |= ATTN_FLAG_WINDOW;
    s->layer->options.window[0] = around ? (int64_t)window / 2 : (int64_t)window - 1;
    s->layer->options.window[1] = around ? (int64_t)window / 2 : -1;
    return true;
}

/* ---------------------------------------------------------------------------- the relative bias */

/* Finds the table of the relative bias of a layer. */
static const struct family_tensor *find_bias_tensor(const struct search *s) {
    static const char table[] = "relative_attention_bias.weight", block[] = "block.",
                      rest[] = ".layer.0.SelfAttention.";
    char prefix[512];
    if (s->type->relative == MODEL_RELATIVE_OF_EACH) {
        return search_tensor(s, s->prefix, s->prefix_size, table);
    }
    if (s->type->relative == MODEL_RELATIVE_OF_ALL) {
        const char *layers = strstr(s->prefix, "layer.");
        return layers == NULL ? NULL
                              : search_tensor(s, s->prefix, (size_t)(layers - s->prefix), table);
    }
    const char *found = strstr(s->prefix, block);
    const char *own = found == NULL ? NULL : strstr(found, rest);
    if (own == NULL || (size_t)(own - s->prefix) + sizeof rest - 1 != s->prefix_size) {
        return NULL;
    }
    snprintf(prefix, sizeof prefix, "%.*s0%s", (int)(found - s->prefix + (int)sizeof block - 1),
             s->prefix, rest);
    return search_tensor(s, prefix, strlen(prefix), table);
}

/* Reads the relative bias. */
static bool find_relative_bias(const struct search *s) {
    struct layer *layer = s->layer;
    const struct family_tensor *tensor = find_bias_tensor(s);
    const size_t buckets = family_keys_count(s, "relative_attention_num_buckets", 32);
    if (s->stack->cross) {
        return true;
    }
    struct layer_tensor *table = &layer->tensors[LAYER_RELATIVE_BIAS];
    if (tensor == NULL) {
        return search_refuse(s, "there is no relative_attention_bias for this layer");
    }
    if (!search_read(s, tensor, true, table)) {
        return false;
    }
    layer->bidirectional = !s->stack->causal;
    table->out_in = false; /* (buckets, heads) stays as it is */
    table->count = table->columns;
    layer->max_distance = family_keys_count(s, "relative_attention_max_distance", 128);
    const size_t exact =
        buckets / (layer->bidirectional ? 4 : 2); /* distances with their own one */
    if (table->columns != layer->heads || table->rows != buckets || exact == 0 ||
        layer->max_distance <= exact) {
        return search_refuse(s,
                             "relative_attention_bias has %zu rows and %zu columns for %zu "
                             "buckets, %zu heads and distances up to %zu",
                             table->rows, table->columns, buckets, layer->heads,
                             layer->max_distance);
    }
    return true;
}

/* --------------------------------------------------------------------------------- the options */

/* Reads the scale, if it is not 1 divided by the square root of the columns of a head. */
static bool find_scale(const struct search *s) {
    struct layer *layer = s->layer;
    const bool divided = family_keys_number(s, "scale_attn_weights", 1) != 0,
               by_index = family_keys_number(s, "scale_attn_by_inverse_layer_idx", 0) != 0;
    const double scalar = family_keys_number(s, "query_pre_attn_scalar", 0);
    double scale =
        search_is(s, MODEL_UNSCALED) ? 1 : family_keys_number(s, "attention_multiplier", NAN);
    long index = 0;
    if (by_index && !search_number(s, &index)) {
        return false;
    }
    if (scalar != 0) {
        scale = 1 / sqrt(scalar);
    } else if (!divided || by_index) {
        scale = 1 / ((divided ? sqrt((double)layer->d) : 1) * ((double)index + 1));
    }
    if (!isnan(scale)) {
        layer->options.flags |= ATTN_FLAG_SCALE;
        layer->options.scale = scale;
    }
    return true;
}

/* Reads the options of a layer without a model_type. */
static bool find_own_options(const struct search *s) {
    static const char *const zero_names[] = {"zero_key", "add_zero_attn", NULL};
    attn_options *o = &s->layer->options;
    const double scale = family_keys_number(s, "scale", NAN);
    o->causal = family_keys_number(s, "causal", 0) != 0;
    o->norm_epsilon = family_keys_number(s, "norm_epsilon", 0);
    s->layer->zero_key = family_keys_agreed(s, zero_names, 0) != 0;
    if (!isnan(scale)) {
        o->flags |= ATTN_FLAG_SCALE;
        o->scale = scale;
    }
    return s->layer->reason[0] == '\0';
}

/* Reads the rotary embedding, if the positions of the model are those of one. Others have no part
 * in the attention. */
static bool find_positions(const struct search *s, bool slides) {
    const char *kind = family_keys_text(s, "position_embedding_type");
    const bool turns = kind == NULL || strcmp(kind, "rotary") == 0;
    if (!turns && strcmp(kind, "absolute") != 0) {
        return search_refuse(s,
                             "position_embedding_type in config.json is \"%.40s\"; only "
                             "\"absolute\" and \"rotary\" are known",
                             kind);
    }
    return !turns || !search_is(s, MODEL_ROTARY) || family_rotary_find(s, slides);
}

bool family_options_read(const struct search *s) {
    attn_options *o = &s->layer->options;
    bool slides = false;
    if (s->type->name == NULL) {
        return find_own_options(s);
    }
    o->causal =
        !s->stack->cross && (s->stack->causal || family_keys_number(s, "is_decoder", 0) != 0);
    o->softcap = family_keys_number(s, "attn_logit_softcapping", 0);
    if (search_is(s, MODEL_ALIBI)) {
        o->flags |= ATTN_FLAG_ALIBI;
    }
    if (search_is(s, MODEL_NORMS)) {
        o->norm_epsilon = family_keys_number(s, "rms_norm_eps", 1e-6);
    }
    const char *both = family_keys_text(s, "use_bidirectional_attention");
    if (both != NULL && strcmp(both, "vision") != 0) { /* which is about the rows of images */
        return search_refuse(
            s,
            "use_bidirectional_attention in config.json is %.40s; only null and vision are known",
            both);
    }
    return find_scale(s) && family_options_slides(s, &slides) && find_window(s, slides) &&
           (s->type->relative == MODEL_NOT_RELATIVE || find_relative_bias(s)) &&
           find_positions(s, slides);
}
