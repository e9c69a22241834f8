/*
 * family_rotary.c - reads the rotary embedding of a layer: rope_parameters of config.json, which
 * older files call rope_scaling, and the keys beside it. The formulas are those of modeling_rope_
 * utils.py of transformers 5.
 */
#include "layers/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The keys of rope_parameters. Some are those of model types with a flag. */
static const struct keys keys[] = {
    {KEY_TEXT, 0, " rope_type type "},
    {KEY_POSITIVE, 0,
     " rope_theta partial_rotary_factor factor original_max_position_embeddings attention_factor "
     "beta_fast beta_slow low_freq_factor high_freq_factor "},
    {KEY_NUMBER, 0, " mscale mscale_all_dim "},
    {KEY_FLAG, 0, " truncate "},
    {KEY_LIST, 0, " short_factor long_factor "},
    {KEY_LIST, MODEL_MROPE, " mrope_section "},
    {KEY_NUMBER, MODEL_SCALES_FAR, " llama_4_scaling_beta "},
    {KEY_POSITIVE, MODEL_SCALES_FAR, " max_position_embeddings "},
    {KEY_POSITIVE, MODEL_SHORT_ROPE, " short_mscale long_mscale "},
    {KEY_FLAG, MODEL_MROPE, " mrope_interleaved "},
};

/* Reads both lists of divisors into memory of the model, which all of its layers share. */
static bool read_factors(const struct search *s, struct config_object scaling) {
    static const char *const names[] = {"short_factor", "long_factor"};
    struct layer_model *model = s->model;
    attn_rotary *r = &s->layer->rotary;
    const size_t pairs = (r->columns > 0 ? r->columns : s->layer->d) / 2;
    const size_t bytes = 2 * pairs * sizeof(double);
    double *factors = malloc(bytes);
    if (factors == NULL) {
        return search_refuse(s, "there is no memory");
    }
    for (size_t i = 0; i < COUNT(names); i++) {
        if (!config_numbers(scaling, names[i], pairs, factors + i * pairs)) {
            free(factors);
            return search_refuse(s, "config.json has no %s of %zu numbers", names[i], pairs);
        }
    }
    const bool same = model->factors != NULL && model->factor_count == 2 * pairs &&
                      memcmp(model->factors, factors, bytes) == 0;
    if (model->factors == NULL) {
        model->factors = factors;
        model->factor_count = 2 * pairs;
    } else {
        free(factors);
        if (!same) {
            return search_refuse(s,
                                 "short_factor and long_factor are not those of the other layers");
        }
    }
    r->short_factors = model->factors;
    r->long_factors = model->factors + pairs;
    r->short_count = r->long_count = pairs;
    return true;
}

/* Reads rope_type, which older files call type. */
static bool read_rope_type(const struct search *s, struct config_object scaling,
                           attn_rotary_scaling *type) {
    static const char *const types[] = {
        [ATTN_ROTARY_UNSCALED] = "default",         [ATTN_ROTARY_LINEAR] = "linear",
        [ATTN_ROTARY_DYNAMIC] = "dynamic",          [ATTN_ROTARY_YARN] = "yarn",
        [ATTN_ROTARY_LONGROPE] = "longrope",        [ATTN_ROTARY_LLAMA3] = "llama3",
        [ATTN_ROTARY_PROPORTIONAL] = "proportional"};
    const char *text = config_text(scaling, "rope_type"), *old = config_text(scaling, "type");
    if (text != NULL && old != NULL && strcmp(text, old) != 0) {
        return search_refuse(
            s, "type is %.40s, but rope_type, another name of the same setting, is %.40s", old,
            text);
    }
    text = text != NULL ? text : old != NULL ? old : "default";
    if (search_is(s, MODEL_MROPE) && strcmp(text, "mrope") == 0) {
        text = "default";
    }
    for (size_t i = 0; i < COUNT(types); i++) {
        if (strcmp(types[i], text) == 0) {
            *type = (attn_rotary_scaling)i;
            return true;
        }
    }
    return search_refuse(s, "rope_type in config.json is %.40s, which is not known", text);
}

/* Reads the positions of the training. The key beside rope_parameters comes first, so that the two
 * must agree. */
static bool read_original(const struct search *s, struct config_object scaling) {
    static const char name[] = "original_max_position_embeddings";
    const double inside = config_number(scaling, name, 0);
    const double beside = family_keys_number(s, name, 0);
    attn_rotary *r = &s->layer->rotary;
    if (inside != 0 && beside != 0 && inside != beside) {
        return search_refuse(s, "%s in config.json is %g, but %g inside of rope_parameters", name,
                             beside, inside);
    }
    const double most = family_keys_number(s, "max_position_embeddings", 0);
    r->original_positions = inside != 0 ? inside : beside != 0 ? beside : most;
    if (r->scaling == ATTN_ROTARY_DYNAMIC) {
        r->original_positions = most;
    }
    if (r->original_positions == 0) {
        return search_refuse(
            s, "config.json has no max_position_embeddings, which decides the rotary embedding");
    }
    return true;
}

/* Reads what the scaling of the frequencies needs. */
static bool read_scaling(const struct search *s, struct config_object scaling, bool by_type) {
    attn_rotary *r = &s->layer->rotary;
    r->factor = config_number(scaling, "factor", 0);
    if (r->factor == 0 && (r->scaling == ATTN_ROTARY_LINEAR || r->scaling == ATTN_ROTARY_DYNAMIC ||
                           r->scaling == ATTN_ROTARY_LLAMA3)) {
        return search_refuse(s, "rope_parameters in config.json has no factor");
    }
    if (r->scaling == ATTN_ROTARY_UNSCALED || r->scaling == ATTN_ROTARY_LINEAR ||
        r->scaling == ATTN_ROTARY_PROPORTIONAL) {
        return true;
    }
    if (!read_original(s, scaling)) {
        return false;
    }
    r->low_factor = config_number(scaling, "low_freq_factor", 0);
    r->high_factor = config_number(scaling, "high_freq_factor", 0);
    if (r->scaling != ATTN_ROTARY_YARN && r->scaling != ATTN_ROTARY_LONGROPE) {
        return true;
    }
    if (r->factor == 0) {
        r->factor = family_keys_number(s, "max_position_embeddings", 0) / r->original_positions;
    }
    r->attention_factor = config_number(scaling, "attention_factor", 0);
    if (r->scaling == ATTN_ROTARY_YARN) {
        r->beta_fast = config_number(scaling, "beta_fast", 0);
        r->beta_slow = config_number(scaling, "beta_slow", 0);
        r->mscale = config_number(scaling, "mscale", 0);
        r->mscale_all = config_number(scaling, "mscale_all_dim", 0);
        r->untruncated = !config_flag(scaling, "truncate", true);
        return !(by_type && r->untruncated) ||
               search_refuse(s, "truncate in rope_parameters of one type of layers is not known");
    }
    return by_type ? search_refuse(s, "longrope for one type of layers is not known")
                   : read_factors(s, scaling);
}

/* Reads the part of the columns that are turned. */
static bool read_part(const struct search *s, struct config_object scaling) {
    struct layer *layer = s->layer;
    const bool partly = search_is(s, MODEL_PARTLY);
    double share = family_keys_number(s, "partial_rotary_factor", 1);
    const double turned = family_keys_number(s, "rotary_dim", 0); /* columns */
    if (turned > 0) {
        share = turned / (double)layer->d;
    }
    share = family_keys_number(s, "rotary_pct", share);
    share = config_number(scaling, "partial_rotary_factor", share);
    if (layer->rotary.scaling == ATTN_ROTARY_PROPORTIONAL) { /* the library checks it */
        layer->rotary.partial_factor = share;
        return true;
    }
    if (share > 1 || (share < 1 && !partly)) {
        return search_refuse(s, "partial_rotary_factor in config.json is %g; %s", share,
                             partly ? "it must be at most 1"
                                    : "only 1 is known for this model_type");
    }
    const bool whole = turned > 0 && share == turned / (double)layer->d;
    const size_t columns = (size_t)(whole ? turned : (double)layer->d * share);
    if (columns == 0 || columns % 2 != 0) {
        return search_refuse(
            s,
            "%zu columns of each head would be turned; they must be an even number of at least 2",
            columns);
    }
    layer->rotary.columns = columns == layer->d ? 0 : columns;
    return true;
}

/* Finds the object that has the parameters; its value is NULL if there is none. */
static bool find_object(const struct search *s, struct config_object *scaling) {
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    struct config_object found[2];
    for (size_t i = 0; i < 2; i++) {
        found[i] = config_inner(s->object, names[i]);
        if (found[i].value != NULL && codec_size(found[i].value) == 0) {
            found[i].value = NULL;
        }
    }
    *scaling = found[0].value != NULL ? found[0] : found[1];
    return found[0].value == NULL || found[1].value == NULL ||
           search_refuse(s, "config.json has both rope_parameters and rope_scaling");
}

/* Goes to the parameters for the type of the layer. Older files have those of layers without a
 * window in rope_scaling, and otherwise rope_local_base_freq. */
static bool find_by_type(const struct search *s, bool slides, struct config_object *scaling,
                         double *base) {
    static const struct keys kinds = {KEY_OBJECT, 0, " full_attention sliding_attention "};
    static const char *const local[] = {"rope_local_base_freq", "local_rope_theta"};
    struct config_object all = config_inner(s->object, "rope_parameters");
    *base = family_keys_number(s, "rope_theta", s->type->base);
    *base = family_keys_number(s, "global_rope_theta", *base);
    for (size_t i = 0; slides && i < COUNT(local); i++) {
        *base = family_keys_number(s, local[i], *base);
    }
    if (all.value == NULL) {
        scaling->value = slides ? NULL : scaling->value;
        return true;
    }
    *scaling = config_inner(all, slides ? "sliding_attention" : "full_attention");
    return family_keys_check(s, all, "rope_parameters", &kinds, 1);
}

/* Reads how queries are scaled by their positions: 1 + beta log(1 + floor(position / original)),
 * which is 1 at the positions of the training. */
static bool read_far_scale(const struct search *s, struct config_object scaling) {
    static const char *const names[] = {"llama_4_scaling_beta", "original_max_position_embeddings"};
    for (size_t i = 0; i < COUNT(names); i++) {
        if (config_value(scaling, names[i]) == NULL) {
            return search_refuse(
                s, "config.json has no %s in rope_parameters, which decides the attention of %s",
                names[i], s->type->name);
        }
    }
    if (config_number(scaling, names[0], 0) != 0) {
        s->layer->positions = (size_t)fmax(1, config_number(scaling, names[1], 0));
    }
    return true;
}

/* Reads the magnitude of cos and sin. In transformers 5 the long factors of such a model are never
 * taken. */
static bool read_magnitude(const struct search *s, struct config_object scaling) {
    attn_rotary *r = &s->layer->rotary;
    const double magnitude = config_number(scaling, "short_mscale", 0);
    if (r->scaling == ATTN_ROTARY_UNSCALED) {
        return true;
    }
    if (r->scaling != ATTN_ROTARY_LONGROPE || magnitude == 0 ||
        magnitude != config_number(scaling, "long_mscale", 0)) {
        return search_refuse(s, "rope_type in config.json must be longrope, with the same "
                                "short_mscale and long_mscale");
    }
    r->attention_factor = magnitude;
    r->long_factors = r->short_factors;
    return true;
}

/* Finds whether Q and K of the layer are turned. */
static bool find_turns(const struct search *s, bool slides, bool *turns) {
    const struct codec_value *list = family_keys_value(s, "no_rope_layers");
    struct codec_error unused;
    double flag;
    long index;
    *turns = true;
    if (search_is(s, MODEL_TURNS_LOCALLY)) {
        *turns = slides || family_keys_value(s, "sliding_window") == NULL;
    }
    if (!family_models_uses(s, "no_rope_layers")) {
        return true;
    }
    if (!search_number(s, &index)) {
        return false;
    }
    if (list == NULL) {
        const size_t interval = family_keys_count(s, "no_rope_layer_interval", 4);
        *turns = interval == 0 || ((size_t)index + 1) % interval != 0;
        return true;
    }
    const struct codec_value *own = codec_at(list, (size_t)index);
    if (own == NULL || codec_kind_of(own) != CODEC_NUMBER ||
        !codec_as_number(s->object.document, own, &flag, &unused)) {
        return search_refuse(s, "no_rope_layers in config.json has no number for layer %ld", index);
    }
    *turns = flag != 0;
    return true;
}

/* Checks the frequencies that ESM stores. transformers takes them as the file has rounded them. */
static bool check_stored_frequencies(const struct search *s) {
    static const char ending[] = "rotary_embeddings.inv_freq";
    for (size_t i = 0; i < s->count && strcmp(s->type->name, "esm") == 0; i++) {
        const struct codec_header_tensor *t = &s->tensors[i].header;
        const size_t size = strlen(t->name);
        if (size >= sizeof ending - 1 &&
            strcmp(t->name + size - (sizeof ending - 1), ending) == 0 &&
            t->type < CODEC_TYPE_FP32) {
            return search_refuse(s,
                                 "its rotary_embeddings.inv_freq are rounded, and so transformers "
                                 "turns by other angles; save the model in float32");
        }
    }
    return true;
}

bool family_rotary_find(const struct search *s, bool slides) {
    attn_rotary *r = &s->layer->rotary;
    const bool by_type = search_is(s, MODEL_ROPE_BY_TYPE);
    struct config_object scaling;
    double base = family_keys_number(s, "rope_theta", s->type->base);
    base = family_keys_number(s, "rotary_emb_base", base);
    if (!check_stored_frequencies(s) || !find_object(s, &scaling) ||
        (by_type && !find_by_type(s, slides, &scaling, &base))) {
        return false;
    }
    if (scaling.value == NULL && search_is(s, MODEL_NEEDS_ROPE)) {
        return search_refuse(s,
                             "config.json has no rope_parameters, which decide the attention of %s",
                             s->type->name);
    }
    if ((scaling.value != NULL &&
         !family_keys_check(s, scaling, "rope_parameters", keys, COUNT(keys))) ||
        !find_turns(s, slides, &s->layer->rotates)) {
        return false;
    }
    r->interleaved = search_is(s, MODEL_INTERLEAVED);
    r->base = config_number(scaling, "rope_theta", base);
    if (isnan(r->base)) {
        return search_refuse(s, "config.json has no rope_theta, whose default differs between "
                                "versions of transformers");
    }
    return read_rope_type(s, scaling, &r->scaling) && read_part(s, scaling) &&
           read_scaling(s, scaling, by_type) &&
           (!search_is(s, MODEL_SCALES_FAR) || read_far_scale(s, scaling)) &&
           (!search_is(s, MODEL_SHORT_ROPE) || read_magnitude(s, scaling));
}
